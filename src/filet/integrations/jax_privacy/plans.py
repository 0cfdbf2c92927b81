# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""JAX Privacy's execution plans with filet's batches, and the privacy of a plan."""

from __future__ import annotations

import dataclasses
from typing import Any

from filet import _checks
from filet.accounting.accountant import account
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, AdjacencyName, Analysis, AnalysisName
from filet.errors import InvalidArgumentError
from filet.sampling.keys import warn_of_short_key
from filet.scheme import CappedPoisson, Overflow, Size, SizeName

from .._frameworks import needed_for

with needed_for("jax-privacy"):
    from dp_accounting import NeighboringRelation, dp_event
    from jax import numpy as jnp
    from jax_privacy import batch_selection
    from optax import GradientTransformation

from ..dp_accounting import Run, from_dp_event
from ..jax import secret_key
from . import configs
from .selection import CappedPoissonSelection


@dataclasses.dataclass(frozen=True)
class CappedConfig:
    """A config for JAX Privacy's `DPTrainer`: its own config, on filet's batches of one public shape.

    `DPTrainer(config=CappedConfig(config, key=key), loss_fn=..., optimizer=...)` trains on them.

    Guarantees: as for `capped_plan`. `batch_iterator` of the plan draws from `key`, whatever generator
    the trainer passes it, so that a trainer that goes on from a saved state meets the batches of the
    same run. All batches have `max_batch_size` rows before the trainer pads them: what is compiled,
    and what `AutotuneMicrobatch` chooses, does not depend on the draw.

    Arguments:
        config, max_batch_size, dataset_size, secure: as for `capped_plan`.
        key: secret bytes, from which batches and noise are derived; one key is one run.
    """

    config: Any
    key: bytes = dataclasses.field(repr=False)
    max_batch_size: int | None = None
    dataset_size: int | None = None
    secure: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes):
            raise InvalidArgumentError(
                f"key is of type {type(self.key).__name__}, not bytes; draw it with secrets.token_bytes(32), and keep it"
            )
        scheme_of(self.config, self.max_batch_size, self.dataset_size)

    def make(self, performance_flags: Any = None) -> Any:
        """The plan, as `DPTrainer` asks for it."""
        plan = capped_plan(
            self.config,
            max_batch_size=self.max_batch_size,
            dataset_size=self.dataset_size,
            secure=self.secure,
            key=self.key,
            performance_flags=performance_flags,
        )
        batches = dataclasses.replace(plan.batch_selection_strategy, key=self.key)
        return dataclasses.replace(plan, batch_selection_strategy=batches)


def capped_plan(
    config: Any,
    *,
    max_batch_size: int | None = None,
    dataset_size: int | None = None,
    size: Size | SizeName = Size.PUBLIC,
    secure: bool | None = None,
    key: bytes | int | None = None,
    performance_flags: Any = None,
) -> Any:
    """A config's plan whose batches are filet's: of one shape, padded with -1.

    >>> import numpy as np
    >>> from jax_privacy.experimental import execution_plan
    >>> from filet.integrations.dp_accounting import FiletAccountant
    >>> config = execution_plan.BandMFExecutionPlanConfig(
    ...     strategy=np.ones(1), iterations=1_000, epsilon=2.0, delta=1e-6, sampling_prob=0.005,
    ...     truncated_batch_size=320, num_examples=60_000,
    ...     accountant=FiletAccountant(NeighboringRelation.REPLACE_SPECIAL))
    >>> key = b"32 bytes that nobody else knows."  # such as secrets.token_bytes(32)
    >>> plan = capped_plan(config, key=key)
    >>> next(plan.batch_selection_strategy.batch_iterator(60_000, rng=key)).shape
    (320,)
    >>> 1.99 < account_plan(plan, adjacency="zero-out").epsilon(1e-6) <= 2.0
    True

    Guarantees: clipping, noise and `dp_event` are the config's. The noise's generator begins with a
    key of its own that uses all bits of a JAX key; JAX Privacy's would keep 32, or draw 31 from
    NumPy's global generator. With `truncated_batch_size` the batches are truncated, and the event is
    their mechanism. Without it, pass `max_batch_size` and `dataset_size`: batches that are too large
    are drawn again ("reject"), for which the event, plain Poisson sampling, is a proven upper bound.

    Arguments:
        config: JAX Privacy's `BandMFExecutionPlanConfig` (2.0), or `BandMFConfig` of its head. With
            `FiletAccountant` as the accountant the noise is calibrated by filet.
        max_batch_size, dataset_size: if the config has no `truncated_batch_size`; the size may also be
            the config's `num_examples`.
        size: as for `CappedPoisson`; "secret" is for these two, where `dataset_size` is the planned
            number. The config's event still bounds the run under zero-out and replace-one;
            `account_plan` says what it costs under add-remove.
        secure: as for `CappedPoissonSelection`.
        key: secret bytes, from which the noise is derived; those of the batches may be used again.
            None draws fresh ones. To resume, the state of the noise is saved in either case.
        performance_flags: those of JAX Privacy's head.
    """
    scheme = scheme_of(config, max_batch_size, dataset_size, size)
    strategy = CappedPoissonSelection(scheme, config.iterations, secure=secure)
    plan = configs.make(config, performance_flags)
    seed = configs.noise_seed(config, performance_flags)
    return dataclasses.replace(
        plan,
        batch_selection_strategy=strategy,
        noise_addition_transform=_keyed_noise(plan.noise_addition_transform, seed, key),
    )


def _keyed_noise(noise: Any, seed: int | None, key: Any) -> Any:
    """JAX Privacy's noise, begun with a key that uses all bits."""
    if seed is not None:
        remedy = "leave it out and pass key= to capped_plan"
        if key is not None:
            message = f"the config has a noise_seed, and key is given, too; {remedy} alone"
            raise InvalidArgumentError(message)
        warn_of_short_key("noise_seed is an integer of which JAX keeps 32 bits", remedy)
        return noise
    first = secret_key(key, "jax-privacy noise")

    def init(params: Any) -> Any:
        _, inner = noise.init(params)  # a key, and the noise that is still to be mixed in
        return jnp.copy(first), inner  # a trainer may donate the state, and begin again

    return GradientTransformation(init, noise.update)


def scheme_of(
    config: Any,
    max_batch_size: int | None = None,
    dataset_size: int | None = None,
    size: Size | SizeName = Size.PUBLIC,
) -> CappedPoisson:
    """The scheme of a config's batches, with a cap that the config or the caller names."""
    found = configs.read(config)
    if found.bands > 1 and not found.equal_split:
        raise InvalidArgumentError(
            "the config splits the examples independently (PartitionType.INDEPENDENT), and filet's groups are of equal"
            " size; use EQUAL_SPLIT (JAX Privacy 2.0), or set num_examples (its head)"
        )
    if found.max_batch_size is not None:
        if max_batch_size is not None or dataset_size is not None:
            raise InvalidArgumentError(
                "the config has truncated_batch_size and num_examples; leave max_batch_size and dataset_size out"
            )
        if _checks.choice("size", size, Size) is not Size.PUBLIC:
            raise InvalidArgumentError(
                f"size={Size(size).value!r} is not what the event of truncated_batch_size is for, one public size; leave"
                " that out of the config, and pass max_batch_size and dataset_size with size='secret'"
            )
        cap, overflow = found.max_batch_size, Overflow.TRUNCATE
    else:
        if max_batch_size is None or _size(found, dataset_size) is None:
            raise InvalidArgumentError(
                "the config has no truncated_batch_size; set it with num_examples, or pass max_batch_size and dataset_size"
            )
        if found.relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
            raise InvalidArgumentError(
                "under ADD_OR_REMOVE_ONE plain Poisson is no upper bound for batches drawn again; use REPLACE_SPECIAL,"
                " which JAX Privacy's head does where num_examples is set"
            )
        cap, overflow = max_batch_size, Overflow.REJECT
    number: Any = _size(found, dataset_size)
    return CappedPoisson(
        number, found.sampling_probability, cap, overflow=overflow, cycle_length=found.bands, size=size
    )


def _size(found: configs.Settings, dataset_size: int | None) -> int | None:
    if None not in (found.dataset_size, dataset_size) and found.dataset_size != dataset_size:
        raise InvalidArgumentError(
            f"dataset_size={_checks.show(dataset_size)} is not the config's num_examples={found.dataset_size}; leave it out"
        )
    return found.dataset_size if dataset_size is None else dataset_size


def account_plan(
    plan: Any,
    *,
    adjacency: Adjacency | AdjacencyName,
    analysis: Analysis | AnalysisName = Analysis.REFINED,
) -> PrivacyCurve:
    """The privacy of a JAX Privacy plan, read from the plan itself: no noise multiplier to be passed in a wrong convention.

    Guarantees: the noise is that of the plan's `dp_event`; the batches are those of its strategy, `CappedPoissonSelection`
    or JAX Privacy's own. A strategy and an event that do not belong together raise `InvalidArgumentError`.

    Arguments:
        plan: from `capped_plan`, or JAX Privacy's own: `config.plan` (2.0), `config.make()` (its head).
        adjacency: "add-remove", "zero-out" or "replace-one".
        analysis: as for `filet.account`.
    """
    if not isinstance(plan, configs.Plan):
        raise InvalidArgumentError(f"plan={_checks.show(plan)} is not a DPExecutionPlan; pass capped_plan(config)")
    batches = plan.batch_selection_strategy
    run = _run(plan.dp_event)
    if isinstance(batches, CappedPoissonSelection):
        rounds = -(-batches.iterations // batches.scheme.cycle_length)
        if (batches.scheme.sampling_probability, rounds) != (run.scheme.sampling_probability, run.steps):
            raise InvalidArgumentError(
                f"the plan's batches, {batches}, are not those of its event, {_checks.show(plan.dp_event)}; use capped_plan"
            )
        run = Run(batches.scheme, run.noise_multiplier, batches.iterations)
    elif not isinstance(batches, batch_selection.CyclicPoissonSampling):
        raise InvalidArgumentError(
            f"the strategy {type(batches).__name__} draws no Poisson batches, which are all that filet accounts for; use"
            " capped_plan"
        )
    return account(
        run.scheme, noise_multiplier=run.noise_multiplier, steps=run.steps, adjacency=adjacency, analysis=analysis
    )


def _run(event: Any) -> Run:
    inner = event
    while isinstance(inner, dp_event.SelfComposedDpEvent):
        inner = inner.event
    # A Poisson event does not name the data set's size, on which plain Poisson sampling does not depend.
    return from_dp_event(event, dataset_size=1 if isinstance(inner, dp_event.PoissonSampledDpEvent) else None)
