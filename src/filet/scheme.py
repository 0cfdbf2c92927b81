"""Sampling schemes: `CappedPoisson`, and the words for overflow and size. Public facts only, no randomness."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from . import _checks
from ._binomial import hazard, log_cdf, log_pmf, log_sf
from ._binomial_ranges import log_pmf_ratio
from ._public import public
from ._tables import html_table

if TYPE_CHECKING:
    from .sampling.sampler import Sampler

OverflowName = Literal["truncate", "reject"]
SizeName = Literal["public", "at-most", "secret"]


@public
class Overflow(enum.StrEnum):
    """The policy for a Poisson batch larger than the cap.

    `truncate` keeps a uniformly random subset of `max_batch_size` examples (the note's mechanism).
    `reject` draws again until the batch fits, that is, samples from the Poisson law conditioned on fitting.
    """

    TRUNCATE = "truncate"
    REJECT = "reject"


@public
class Size(enum.StrEnum):
    """The data set sizes that a guarantee holds for.

    `public`: `dataset_size` alone, a number that anybody may know. `at-most`: every size up to `dataset_size`
    (policy truncate). `secret`: every size whatsoever (policy reject); `dataset_size` is then a planned one.
    Under `at-most` and `secret` the sampler alone learns the true number of records.
    """

    PUBLIC = "public"
    AT_MOST = "at-most"
    SECRET = "secret"


_SIZE_WORDS = {Size.PUBLIC: "", Size.AT_MOST: " or fewer", Size.SECRET: " planned, the number is secret"}


@public
@dataclass(frozen=True)
class CappedPoisson:
    """Poisson sampling with batches of at most `max_batch_size` examples.

    >>> scheme = CappedPoisson(dataset_size=60_000, sampling_probability=256 / 60_000, max_batch_size=300)
    >>> round(scheme.expected_batch_size, 3), round(scheme.utilization, 3)
    (255.982, 0.853)
    >>> round(scheme.overflow_probability, 5)
    0.00324

    Arguments:
        dataset_size: number of examples `n`, public; under add-remove adjacency the larger of the two sizes.
        sampling_probability: chance `p` in (0, 1] with which each example joins a batch, before the cap.
        max_batch_size: the cap `B`; every batch has this many rows, the missing ones are padding. None is plain Poisson
            sampling, for comparison: no cap, that is, as many rows as a batch can ever hold.
        overflow: what to do with a batch larger than the cap, `"truncate"` or `"reject"`.
        cycle_length: with `b > 1` (cyclic Poisson sampling, for BandMF) the examples are split once, at random,
            into `b` groups of `dataset_size // b` (the remainder is left out), and step `t` samples
            from group `t mod b` only.
        size: the data set sizes that the guarantee holds for, `"public"`, `"at-most"` or `"secret"` (see `Size`). Under
            the last two, `dataset_size` must not be computed from the data, and the true number of records goes to
            `sampler(key, records=...)` alone.
    """

    dataset_size: int
    sampling_probability: float
    max_batch_size: int
    overflow: Overflow = Overflow.TRUNCATE
    cycle_length: int = 1
    size: Size = Size.PUBLIC
    group_size: int = field(init=False, repr=False, compare=False)

    if TYPE_CHECKING:  # the same at run time; for type checkers, the words are as good as the members

        def __init__(
            self,
            dataset_size: int,
            sampling_probability: float,
            max_batch_size: int | None,
            overflow: Overflow | OverflowName = ...,
            cycle_length: int = ...,
            size: Size | SizeName = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        size = _checks.integer("dataset_size", self.dataset_size, low=1, remedy="pass the number of training examples")
        put("dataset_size", size)
        rate = _checks.probability(
            "sampling_probability",
            self.sampling_probability,
            remedy="for a batch size, pass batch_size / dataset_size",
        )
        put("sampling_probability", rate)
        if self.max_batch_size is not None:
            cap = _checks.integer(
                "max_batch_size", self.max_batch_size, low=1, remedy="pass the number of rows the hardware takes"
            )
            put("max_batch_size", cap)
        put("overflow", _checks.choice("overflow", self.overflow, Overflow))
        cycle = _checks.integer(
            "cycle_length",
            self.cycle_length,
            low=1,
            high=self.dataset_size,
            remedy="pass 1 for plain sampling, or the number of groups, at most dataset_size",
        )
        put("cycle_length", cycle)
        put("group_size", self.dataset_size // self.cycle_length)
        if self.max_batch_size is None:
            put("max_batch_size", self.group_size)
        if (
            self.overflow is Overflow.REJECT
            and self.sampling_probability == 1.0
            and self.max_batch_size < self.group_size
        ):
            raise _checks.fail(
                f"sampling_probability=1 with max_batch_size={self.max_batch_size} below the {self.group_size} examples"
                " leaves overflow='reject' no batch to accept; pass overflow='truncate' or a smaller probability"
            )
        put("size", _checks.choice("size", self.size, Size))
        if self.size is not Size.PUBLIC:
            self._check_size()

    def _check_size(self) -> None:
        """Refuse schemes without a guarantee for several data set sizes."""
        given = f"size={self.size.value!r}"
        if self.cycle_length > 1:
            raise _checks.fail(
                f"{given} is not for cycle_length={self.cycle_length}: groups of dataset_size // cycle_length examples"
                " tell the number of records; pass cycle_length=1, or size='public'"
            )
        secret = self.size is Size.SECRET
        reject = self.overflow is Overflow.REJECT
        if secret and not reject:
            raise _checks.fail(
                f"{given} is for overflow='reject': no useful bound of truncated batches holds for every number of"
                " records; pass overflow='reject', or size='at-most' for all up to dataset_size"
            )
        if reject and not secret:
            raise _checks.fail(
                f"{given} is for overflow='truncate'; pass size='secret', which holds for every number of records"
            )
        if secret and not self.capped:
            raise _checks.fail(
                f"{given} with max_batch_size={self.max_batch_size} takes a planned dataset_size above it, not"
                f" {self.dataset_size}; pass a smaller cap or a larger planned size"
            )
        if self.capped and self.sampling_probability == 1.0:
            raise _checks.fail(
                f"{given} with sampling_probability=1 fills every batch to the cap; pass a smaller probability"
            )

    @classmethod
    def from_batch_size(
        cls,
        dataset_size: int,
        poisson_batch_size: float,
        max_batch_size: int | None,
        overflow: Overflow | OverflowName = Overflow.TRUNCATE,
        cycle_length: int = 1,
        size: Size | SizeName = Size.PUBLIC,
    ) -> CappedPoisson:
        """The scheme whose Poisson batches have this mean size before the cap, instead of a sampling probability.

        >>> CappedPoisson.from_batch_size(dataset_size=1000, poisson_batch_size=10, max_batch_size=16).sampling_probability
        0.01

        Arguments:
            poisson_batch_size: mean size of a Poisson draw, in (0, group_size].
            dataset_size, max_batch_size, overflow, cycle_length, size: as for `CappedPoisson`.
        """
        whole = cls(dataset_size, 1.0, max_batch_size, Overflow.TRUNCATE, cycle_length)  # checks the public numbers
        remedy = "pass the mean number of examples in a Poisson batch, before the cap"
        rule = f"in (0, {whole.group_size}]"
        mean = _checks.real("poisson_batch_size", poisson_batch_size, rule=rule, remedy=remedy)
        if not 0.0 < mean <= whole.group_size:
            raise _checks.fail(f"poisson_batch_size={_checks.show(mean)} is not {rule}; {remedy}")
        rate = mean / whole.group_size
        return cls(whole.dataset_size, rate, whole.max_batch_size, overflow, whole.cycle_length, size)

    @classmethod
    def uncapped(cls, dataset_size: int, sampling_probability: float, cycle_length: int = 1) -> CappedPoisson:
        """Plain Poisson sampling, the yardstick: `max_batch_size` is the largest possible draw, so nothing overflows.

        >>> scheme = CappedPoisson.uncapped(dataset_size=60_000, sampling_probability=256 / 60_000)
        >>> scheme.max_batch_size, scheme.overflow_probability, scheme.capped
        (60000, 0.0, False)
        """
        return cls(dataset_size, sampling_probability, None, Overflow.TRUNCATE, cycle_length)

    @property
    def capped(self) -> bool:
        """True if a Poisson draw can exceed the cap; if not, this is plain Poisson sampling."""
        return self.max_batch_size < self.group_size

    @property
    def poisson_batch_size(self) -> float:
        """Mean number of examples in a Poisson draw, before the cap: `sampling_probability * group_size`."""
        return self.sampling_probability * self.group_size

    def steps_of_epochs(self, epochs: float) -> int:
        """The least number of steps whose Poisson draws, before the cap, hold `epochs * dataset_size` examples on average.

        >>> CappedPoisson(dataset_size=1000, sampling_probability=0.015, max_batch_size=32).steps_of_epochs(3)
        200
        """
        remedy = "pass the number of passes over the data set"
        passes = _checks.real("epochs", epochs, rule="in [0, inf)", remedy=remedy)
        if not 0.0 <= passes < math.inf:
            raise _checks.fail(f"epochs={_checks.show(passes)} is not in [0, inf); {remedy}")
        exact = passes * self.dataset_size / self.poisson_batch_size
        # 3 epochs at rate 0.3 are 10 steps, although 3 / 0.3 is a hair above 10 in floating point.
        return _checks.steps_of_epochs(passes, exact * (1 - 1e-12))

    @property
    def overflow_probability(self) -> float:
        """Chance that one Poisson draw exceeds the cap, so that the overflow policy has to act."""
        return math.exp(self.log_overflow_probability)

    @property
    def log_overflow_probability(self) -> float:
        """Natural logarithm of `overflow_probability`, exact where that underflows."""
        return log_sf(self.max_batch_size + 1, self.group_size, self.sampling_probability)

    @property
    def inclusion_probability(self) -> float:
        """Chance that a given example of the step's group is in the batch, after the cap."""
        n, p, cap = self.group_size, self.sampling_probability, self.max_batch_size
        if cap >= n:
            return p
        if self.overflow is Overflow.REJECT:
            # The example is drawn with chance p unless the others fill the batch: p (1 - Pr[full without it]).
            full, not_full = hazard(cap, n, p)
            return p * (not_full + full * (cap / n))
        fits = math.exp(log_cdf(cap - 1, n - 1, p))
        return min(p, p * fits + cap / n * math.exp(log_sf(cap + 1, n, p)))

    @property
    def expected_batch_size(self) -> float:
        """Mean number of examples in a batch, after the cap; before it, the mean is `poisson_batch_size`."""
        return min(self.group_size * self.inclusion_probability, float(self.max_batch_size))

    @property
    def utilization(self) -> float:
        """Share of the fixed `max_batch_size` rows that hold examples, on average."""
        return self.expected_batch_size / self.max_batch_size

    def log_batch_size_probability(self, size: int) -> float:
        """Natural logarithm of the chance that a batch holds exactly `size` examples, after the cap."""
        size = _checks.integer("size", size, low=0, remedy="pass a number of examples")
        n, p, cap = self.group_size, self.sampling_probability, self.max_batch_size
        if size > min(cap, n):
            return -math.inf
        if self.overflow is Overflow.REJECT:
            at_cap = hazard(cap, n, p)[0] if cap < n else 0.0
            if at_cap > 1e-200:  # the ratio stays exact where both probabilities underflow
                return log_pmf_ratio(size, cap, n, p) + math.log(at_cap)
            return log_pmf(size, n, p) - log_cdf(cap, n, p)
        return log_sf(cap, n, p) if size == cap else log_pmf(size, n, p)

    def to_dict(self) -> dict[str, Any]:
        """The scheme's arguments as plain JSON types: `CappedPoisson(**scheme.to_dict())` is the same scheme.

        A public size, as all had before there were others, is left out.

        >>> CappedPoisson(1000, 0.01, 16).to_dict()
        {'dataset_size': 1000, 'sampling_probability': 0.01, 'max_batch_size': 16, 'overflow': 'truncate', 'cycle_length': 1}
        """
        return {
            "dataset_size": self.dataset_size,
            "sampling_probability": self.sampling_probability,
            "max_batch_size": self.max_batch_size,
            "overflow": self.overflow.value,
            "cycle_length": self.cycle_length,
            **({} if self.size is Size.PUBLIC else {"size": self.size.value}),
        }

    def _repr_html_(self) -> str:
        """The scheme's public facts, for notebooks."""
        facts = {
            "examples": f"{self.dataset_size}{_SIZE_WORDS[self.size]}",
            "groups": f"{self.cycle_length} of {self.group_size} examples" if self.cycle_length > 1 else "",
            "sampling probability": repr(self.sampling_probability),
            "mean Poisson draw": f"{self.poisson_batch_size:.2f} examples",
            "cap": f"{self.max_batch_size} rows, then {self.overflow}" if self.capped else "none",
            "mean batch": f"{self.expected_batch_size:.2f} examples, {100 * self.utilization:.1f} % of the rows",
            "draws above the cap": f"{self.overflow_probability:.2g}" if self.capped else "",
        }
        return html_table(("", ""), [pair for pair in facts.items() if pair[1]], "CappedPoisson")

    def checked_steps(self, steps: int | None, epochs: float | None) -> int:
        """The number of steps, given as such or by `epochs`; exactly one of them."""
        if (steps is None) == (epochs is None):
            both = "neither is" if steps is None else "both are"
            raise _checks.fail(f"exactly one of steps and epochs is needed, {both} given; pass one of them")
        return self.steps_of_epochs(epochs) if epochs is not None else _checks.step_count(steps)

    def sampler(self, key: bytes | int | None = None, *, secure: bool = True, records: int | None = None) -> Sampler:
        """A keyed, random-access sampler of this scheme; see `filet.Sampler`.

        Where the size is not public, `records` is the true number of records, a secret that only the sampler keeps.
        """
        from .sampling.sampler import Sampler

        return Sampler(self, key, secure=secure, records=records)
