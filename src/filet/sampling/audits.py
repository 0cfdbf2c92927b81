"""An empirical check that a stream of batches follows its scheme: `audit`, with p-values that allow for many tests.

Given their sizes, the batches of a correct loader are independent uniform subsets, so every statistic below has a known
law: the sizes, how often examples appear, where they lie, and how many two steps share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, chdtrc, gammainc, gammaincc, ndtr, pdtr, pdtrc

from .. import _checks
from .._binomial import log_pmf, log_sf
from .._public import public
from ..scheme import CappedPoisson, Overflow
from .batch import Batch
from .sampler import Batches, Sampler

Sets = list[NDArray[np.int64]]

_EXPECTED = 10.0  # outcomes expected less often than this are pooled
_ENOUGH = 25.0  # variance from which a sum is tested by its normal approximation


@dataclass(frozen=True)
class Check:
    """One test: its name, its p-value, and what was seen."""

    name: str
    p_value: float
    detail: str


@public
@dataclass(frozen=True)
class AuditReport:
    """What an audit found. Made by `audit`.

    Guarantees: a loader that follows the scheme is found not to with chance `significance` at most (up to the normal
    approximations of the tests), however many checks there were: p-values are combined by Holm's method.
    """

    scheme: CappedPoisson
    steps: int
    significance: float
    checks: tuple[Check, ...]
    skipped: tuple[str, ...]

    @property
    def p_value(self) -> float:
        """The smallest p-value, multiplied by the number of checks (Bonferroni), at most 1."""
        return min(1.0, len(self.checks) * min(check.p_value for check in self.checks))

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the scheme."""
        return self.p_value >= self.significance

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that contradict the scheme, by Holm's method; worst first."""
        found: list[Check] = []
        for rank, check in enumerate(sorted(self.checks, key=lambda one: one.p_value)):
            if check.p_value * (len(self.checks) - rank) >= self.significance:
                break
            found.append(check)
        return tuple(found)

    def summary(self) -> str:
        """The report as a few lines of text."""
        lines = [f"{'passed' if self.passed else 'FAILED'}: {self.steps} batches against {self.scheme}"]
        failures = self.failures
        for check in self.checks:
            mark = "fail" if check in failures else "ok"
            lines.append(f"  {mark:4}  p={check.p_value:<9.3g} {check.name}: {check.detail}")
        lines += [f"  -     {text}" for text in self.skipped]
        return "\n".join(lines)


@public
def audit(
    batches: Sampler | Iterable[Any],
    scheme: CappedPoisson,
    *,
    steps: int | None = None,
    significance: float = 1e-3,
) -> AuditReport:
    """Test whether batches follow a scheme: sizes, inclusion, positions and independence across steps.

    >>> scheme = CappedPoisson(dataset_size=1_000, sampling_probability=0.05, max_batch_size=60)
    >>> audit(scheme.sampler(key=1), scheme, steps=500).passed
    True
    >>> order = np.random.default_rng(0).permuted(np.tile(np.arange(1_000), (25, 1)), axis=1)
    >>> report = audit(order.reshape(500, 50), scheme)
    >>> report.passed, [check.name for check in report.failures][:2]
    (False, ['size law', 'inclusion'])

    Guarantees: see `AuditReport`. Passing proves nothing: a fault that is rare in the given number of steps stays
    unseen, and no test of batches can show that a key is secret. Audit a loader with a key of its own, not with the
    key of a run whose batches must stay secret.

    Arguments:
        batches: a `Sampler`, or the global batches of consecutive steps: `Batch` objects, arrays of row numbers (-1 is
            padding), or pairs of row numbers and a boolean mask.
        scheme: what the batches should follow.
        steps: how many batches to use; needed for a `Sampler`, all of them by default.
        significance: chance of a false alarm that is tolerated.
    """
    if not isinstance(scheme, CappedPoisson):
        raise _checks.fail(f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
    level = _checks.real("significance", significance, rule="in (0, 1)", remedy="pass a small chance such as 1e-3")
    if not 0.0 < level < 1.0:
        raise _checks.fail(f"significance={level!r} is not in (0, 1); pass a small chance such as 1e-3")
    checks: list[Check] = []
    sets = list(_sets(_stream(batches, steps), scheme, checks))
    if not sets:
        raise _checks.fail("there are no batches to audit; pass at least a few hundred")
    skipped: list[str] = []
    sizes = np.array([one.size for one in sets], dtype=np.int64)
    checks += _size_checks(sizes, scheme)
    checks += _serial_check(sizes, scheme, skipped)
    parts = _groups(sets, scheme, checks, skipped)
    checks += _inclusion_check(parts, scheme.group_size, skipped)
    checks += _position_checks(parts, scheme, skipped)
    checks += _overlap_check(sets, scheme, skipped)
    return AuditReport(scheme, len(sets), level, tuple(checks), tuple(skipped))


def _stream(batches: Any, steps: int | None) -> Iterator[Any]:
    count = None if steps is None else _checks.step_count(steps)
    whole = batches.sampler if isinstance(batches, Batches) else batches
    if isinstance(whole, Sampler) and whole.world_size > 1:
        raise _checks.fail(
            f"the sampler holds one of {whole.world_size} ranks' shares; pass the whole sampler, or the ranks' union"
        )
    if isinstance(batches, Sampler):
        if count is None:
            raise _checks.fail("steps=None is not an integer, and a sampler has no end; pass the number of batches")
        batches = batches.batches(count)
    try:
        stream = iter(batches)
    except TypeError:
        raise _checks.fail(
            f"batches={_checks.show(batches)} is neither a Sampler nor iterable; pass an iterable of index arrays"
        ) from None
    for step, batch in enumerate(stream):
        if step == count:
            return
        yield batch


def _sets(stream: Iterator[Any], scheme: CappedPoisson, checks: list[Check]) -> Iterator[NDArray[np.int64]]:
    """The row numbers of each batch, sorted; what no correct loader does is recorded as an impossible event."""
    repeated = oversize = 0
    for step, batch in enumerate(stream):
        rows = np.sort(_rows(batch, step))
        if rows.size and not (rows[0] >= 0 and rows[-1] < scheme.dataset_size):
            wrong = rows[0] if rows[0] < 0 else rows[-1]
            raise _checks.fail(
                f"batch {step} holds the row number {wrong}, which is not in [0, dataset_size={scheme.dataset_size});"
                " pass row numbers of the data set, with -1 or a mask for padding"
            )
        repeated += bool((rows[1:] == rows[:-1]).any())
        oversize += rows.size > scheme.max_batch_size
        yield np.unique(rows)
    detail = f"{repeated} batches repeat an example, {oversize} are larger than max_batch_size"
    checks.append(Check("well-formed", 0.0 if repeated or oversize else 1.0, detail))


def _rows(batch: Any, step: int) -> NDArray[np.int64]:
    mask = None
    if isinstance(batch, Batch):
        batch, mask = batch.indices, batch.mask
    elif isinstance(batch, (tuple, list)) and len(batch) == 2 and getattr(batch[1], "dtype", None) == np.bool_:
        batch, mask = batch
    try:
        array = np.asarray(batch)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TypeError
        rows = array.astype(np.int64)
        return rows[rows != -1] if mask is None else np.asarray(rows[np.asarray(mask)])
    except (TypeError, ValueError, IndexError, OverflowError):
        raise _checks.fail(
            f"batch {step}, {_checks.show(batch)}, is not a list of row numbers; pass one-dimensional integers, with"
            " -1 or a boolean mask of the same shape for padding"
        ) from None


def _log_chance(scheme: CappedPoisson, size: int) -> float:
    n, p, cap = scheme.group_size, scheme.sampling_probability, scheme.max_batch_size
    if scheme.overflow is Overflow.REJECT and (cap >= n or log_sf(cap, n, p) < -40.0):
        return log_pmf(size, n, p)  # nothing is ever rejected
    return scheme.log_batch_size_probability(size)


def _log_size_law(scheme: CappedPoisson, low: int, high: int) -> NDArray[np.float64]:
    """log chances of the sizes low..high, from one value and the ratios of neighbours."""
    n, p, cap = scheme.group_size, scheme.sampling_probability, min(scheme.max_batch_size, scheme.group_size)
    if p == 1.0:
        return np.where(np.arange(low, high + 1) == cap, 0.0, -np.inf)
    k = np.arange(low, high + 1, dtype=np.float64)
    anchor = min(max(round(scheme.expected_batch_size), low), high)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(np.maximum(n - k[:-1], 0.0) / (k[:-1] + 1.0)) + (math.log(p) - math.log1p(-p))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    truncated = scheme.overflow is Overflow.TRUNCATE
    start = log_pmf(anchor, n, p) if truncated else _log_chance(scheme, anchor)
    logs += start - logs[anchor - low]
    if truncated and high == cap:
        logs[-1] = _log_chance(scheme, cap)
    return np.asarray(logs)


def _moments(scheme: CappedPoisson) -> tuple[int, NDArray[np.float64]]:
    """The first size that matters, and the chances of the sizes from there on."""
    cap = min(scheme.max_batch_size, scheme.group_size)
    spread = math.sqrt(scheme.group_size * scheme.sampling_probability * (1.0 - scheme.sampling_probability))
    middle = scheme.expected_batch_size
    low = max(0, math.floor(middle - 9.0 * spread) - 30)
    high = min(cap, math.ceil(middle + 9.0 * spread) + 30)
    return low, np.exp(_log_size_law(scheme, low, high))


def _size_checks(sizes: NDArray[np.int64], scheme: CappedPoisson) -> list[Check]:
    steps = sizes.size
    first, law = _moments(scheme)
    seen = sizes - first
    inside = (seen >= 0) & (seen < law.size)
    odd = sizes[~inside]
    counts = np.bincount(seen[inside], minlength=law.size)
    observed, expected = _pool(counts, steps * law)
    statistic = float((np.square(observed - expected) / expected).sum())
    p_value = float(chdtrc(observed.size - 1, statistic)) if observed.size > 1 else 1.0
    impossible = odd.size + int(counts[law * steps < 1e-12].sum())
    if impossible:
        p_value = 0.0
    mean = float(law @ (first + np.arange(law.size)))
    detail = f"mean {sizes.mean():.6g}, expected {mean:.6g}, in {observed.size} bins"
    detail += f", {impossible} of an all but impossible size" if impossible else ""
    checks = [Check("size law", p_value, detail)]
    cap = min(scheme.max_batch_size, scheme.group_size)
    smallest, parts = 1.0, []
    for name, size in (("empty", 0), ("full", cap)):
        chance = min(1.0, math.exp(_log_chance(scheme, size)))
        count = int((sizes == size).sum())
        smallest = min(smallest, _binomial_p_value(count, steps, chance))
        parts.append(f"{count} {name}, expected {steps * chance:.4g}")
    checks.append(Check("empty or full", min(1.0, 2.0 * smallest), "; ".join(parts)))
    return checks


def _pool(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Join neighbouring sizes until each bin expects enough; what is left joins the last bin."""
    bins: list[list[float]] = []
    count = mean = 0.0
    for one, expectation in zip(counts.tolist(), expected.tolist(), strict=True):
        count, mean = count + one, mean + expectation
        if mean >= _EXPECTED:
            bins.append([count, mean])
            count = mean = 0.0
    if not bins:
        return np.array([count]), np.array([max(mean, 1e-300)])
    bins[-1][0] += count
    bins[-1][1] += mean
    table = np.array(bins)
    return table[:, 0], table[:, 1]


def _two_sided(below: float, above: float) -> float:
    return min(1.0, 2.0 * min(below, above))


def _binomial_p_value(count: int, steps: int, chance: float) -> float:
    below = 1.0 if count == steps else float(bdtr(count, steps, chance))
    above = 1.0 if count == 0 else float(bdtrc(count - 1, steps, chance))
    return _two_sided(below, above)


def _sum_p_value(total: float, mean: float, variance: float) -> float:
    """A sum of many small independent counts: normal if that fits, else by Poisson's wider tails."""
    if variance >= _ENOUGH:
        gap = abs(total - mean)
        return min(1.0, 2.0 * float(ndtr(-max(gap - 0.5, 0.0) / math.sqrt(variance))))
    return _poisson_p_value(total, mean)


def _poisson_p_value(count: float, mean: float) -> float:
    return _two_sided(float(pdtr(count, mean)), 1.0 if count == 0 else float(pdtrc(count - 1, mean)))


def _serial_check(sizes: NDArray[np.int64], scheme: CappedPoisson, skipped: list[str]) -> list[Check]:
    """Sizes of neighbouring steps must be uncorrelated."""
    first, law = _moments(scheme)
    k = first + np.arange(law.size)
    mean = float(law @ k)
    variance = float(law @ np.square(k - mean))
    # products of rare deviations are far from normal
    if (sizes.size - 1) * (1.0 - float(law.max())) ** 2 < _ENOUGH:
        skipped.append("size sequence: not tested, too few batches differ in size")
        return []
    centred = sizes - mean
    z = float(centred[:-1] @ centred[1:]) / (variance * math.sqrt(sizes.size - 1))
    return [Check("size sequence", 2.0 * float(ndtr(-abs(z))), f"lag-one correlation {z / math.sqrt(sizes.size):.3g}")]


def _groups(sets: Sets, scheme: CappedPoisson, checks: list[Check], skipped: list[str]) -> list[Sets]:
    """The batches of each group, with row numbers counted within the group; one group without cycles."""
    cycle = scheme.cycle_length
    if cycle == 1:
        return [sets]
    members = [np.unique(np.concatenate(sets[turn::cycle])) for turn in range(min(cycle, len(sets)))]
    together = np.concatenate(members)
    shared = together.size - np.unique(together).size
    crowded = sum(one.size > scheme.group_size for one in members)
    wrong = f"{shared} examples appear in two groups, {crowded} groups are too large"
    checks.append(Check("groups", 0.0 if shared or crowded else 1.0, wrong))
    if any(one.size != scheme.group_size for one in members):
        skipped.append("inclusion and positions: not tested, as some members of groups were never drawn")
        return []
    return [[np.searchsorted(one, rows) for rows in sets[turn::cycle]] for turn, one in enumerate(members)]


def _inclusion_check(parts: list[Sets], n: int, skipped: list[str]) -> list[Check]:
    """How often each example was drawn: neither too uneven nor too even (as with shuffled epochs).

    The squares of the counts add up to the sizes plus twice the overlaps of all pairs of steps. Given the sizes,
    overlaps of different pairs are uncorrelated, so the mean and the variance of the sum are exact. A gamma law with
    these moments gives the p-value; while overlaps are few, so does Poisson's law, and the larger one counts.
    """
    overlap = mean = variance = spread = 0.0
    for sets in parts:
        sizes = np.array([rows.size for rows in sets], dtype=np.float64)
        _, counts = np.unique(np.concatenate(sets), return_counts=True)
        overlap += 0.5 * float(counts @ (counts - 1))
        mean += _pairs(sizes) / n
        variance += _pairs(sizes * (n - sizes)) / (n**2 * max(n - 1.0, 1.0))
        spread += float((sizes * (1.0 - sizes / n)).sum())
    if mean < 1.0 or variance <= 0.0:
        if parts:
            skipped.append("inclusion: not tested, no example is expected twice")
        return []
    shape, scale = spread**2 / (4.0 * variance), 4.0 * variance / spread
    x = max(spread + 2.0 * (overlap - mean), 0.0) / scale
    p_value = _two_sided(float(gammainc(shape, x)), float(gammaincc(shape, x)))
    if mean <= 1_000.0:
        p_value = max(p_value, _poisson_p_value(overlap, mean))
    ratio = 1.0 + 2.0 * (overlap - mean) / spread
    return [Check("inclusion", p_value, f"variance of the examples' counts {ratio:.4g} times the expected one")]


def _pairs(values: NDArray[np.float64]) -> float:
    """The sum of the products of all pairs."""
    return 0.5 * (float(values.sum()) ** 2 - float(values @ values))


def _position_checks(parts: list[Sets], scheme: CappedPoisson, skipped: list[str]) -> list[Check]:
    """Row numbers must lie evenly, in all batches and in full ones (where a biased cut would show)."""
    n = scheme.group_size
    checks = []
    for name, least in (("positions", 0), ("positions in full batches", min(scheme.max_batch_size, n))):
        gap = variance = 0.0
        for sets in parts:
            for rows in sets:
                if rows.size >= least:
                    gap += float(rows.sum(dtype=np.float64)) / n - rows.size * (n - 1) / (2.0 * n)
                    variance += rows.size * (n - rows.size) * (n + 1.0) / (12.0 * n**2)
        # a row's place is uniform, so that about this many rows make a normal sum
        if variance * 12.0 < 2 * _ENOUGH:
            if parts:
                skipped.append(f"{name}: not tested, too few examples")
            continue
        z = gap / math.sqrt(variance)
        checks.append(Check(name, 2.0 * float(ndtr(-abs(z))), f"{z:+.2f} standard deviations towards the end"))
    return checks


def _overlap_check(sets: Sets, scheme: CappedPoisson, skipped: list[str]) -> list[Check]:
    """Two steps of a group share as many examples as independent batches do (a shuffled epoch's share none)."""
    n, lag = scheme.group_size, scheme.cycle_length
    total, mean, variance = 0, 0.0, 0.0
    for one, other in zip(sets[:-lag], sets[lag:], strict=True):
        total += np.intersect1d(one, other, assume_unique=True).size
        a, b = one.size, other.size
        mean += a * b / n
        if n > 1:
            variance += a * b / n * (1.0 - a / n) * (n - b) / (n - 1)
    if mean < 1.0 or variance <= 0.0:
        skipped.append("overlap of steps: not tested, it is too rare")
        return []
    p_value = _sum_p_value(float(total), mean, variance)
    return [Check("overlap of steps", p_value, f"{total} shared examples, expected {mean:.6g}")]
