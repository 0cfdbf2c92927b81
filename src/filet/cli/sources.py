"""Finished runs from their files: a state, a checkpoint, an event tree, a plan's fields.

An event tree is what `to_named_tuple` of a dp_accounting event holds, as JSON: an object for each event with
its `class_name` and its fields. A plan's fields are those of JAX Privacy's `BandMFExecutionPlanConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import plain_json
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..accounting.accountant import Accountant

GIVEN = ("dataset_size", "max_batch_size", "no_cap", "overflow", "adjacency")  # facts that a source may leave open
_ZIP = b"PK"  # how PyTorch's files begin
_NAMES = ("class_name", "module_name")


def read_source(path: str, given: Mapping[str, Any]) -> Accountant:
    """The accountant of a finished run; `given` has facts that the file leaves open, by the names in `GIVEN`."""
    from ..accounting.accountant import Accountant

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"cannot read {path!r}: {error.strerror}; pass what a run left behind") from None
    if data.startswith(_ZIP):
        return _of_checkpoint(path, given)
    try:
        tree = plain_json(data)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"{path!r} is neither a checkpoint nor plain JSON ({error}); pass a checkpoint, an accountant's state, an event tree or a"
            " plan's fields"
        ) from None
    if isinstance(tree, Mapping) and ("class_name" in tree or "sampling_prob" in tree):
        _refuse(given, ("adjacency", "dataset_size"), "the file")
        read = of_event_tree if "class_name" in tree else of_plan_fields
        return read(tree, given.get("adjacency"), given.get("dataset_size"))
    _refuse(given, (), "the state")
    return Accountant.load(path)


def _refuse(given: Mapping[str, Any], open_ones: tuple[str, ...], what: str) -> None:
    for name in given:
        if name not in open_ones:
            option = "--" + name.replace("_", "-")
            raise InvalidArgumentError(f"{option} has no place here: {what} names it; drop it")


def _of_checkpoint(path: str, given: Mapping[str, Any]) -> Accountant:
    from ..accounting.accountant import Accountant
    from ..integrations.opacus import read_checkpoint

    scheme = {name: given[name] for name in GIVEN if name in given and name != "no_cap"}
    if given.get("no_cap"):
        if len({"max_batch_size", "overflow"} & set(scheme)):
            raise InvalidArgumentError("--no-cap and a cap or its overflow are both given; pass one of them")
        scheme["max_batch_size"] = None
    curve = read_checkpoint(path, **scheme)
    accountant = Accountant(curve.adjacency)
    for phase in curve.phases:
        accountant.compose(phase.scheme, phase.noise_multiplier, phase.steps, analysis=phase.analysis)
    return accountant


# Fields of a plan's config on which its privacy depends, and those on which it does not.
_PLAN = ("iterations", "strategy", "noise_multiplier", "sampling_prob", "truncated_batch_size", "num_examples",
         "partition_type", "column_normalize")  # fmt: skip
_ASIDE = (
    "epsilon",
    "delta",
    "l2_clip_norm",
    "rescale_to_unit_norm",
    "normalize_by",
    "dtype",
    "accountant",
    "noise_seed",
)


def of_plan_fields(fields: Mapping[str, Any], adjacency: str | None, dataset_size: int | None) -> Accountant:
    """The accountant of a JAX Privacy plan, from the fields of its config.

    >>> fields = {"iterations": 100, "strategy": [1.0], "noise_multiplier": 2.0, "sampling_prob": 0.05,
    ...     "truncated_batch_size": 80, "num_examples": 1000}
    >>> of_plan_fields(fields, "zero-out", None)
    Accountant(zero-out, dataset_size=1000, phases=1, steps=100)
    """
    from .. import _checks
    from ..accounting.accountant import Accountant
    from ..accounting.terms import Adjacency
    from ..scheme import CappedPoisson

    _checks.no_unknown_keys("the plan", fields, (*_PLAN, *_ASIDE))
    if fields.get("noise_multiplier") is None:
        raise InvalidArgumentError(
            "noise_multiplier of the plan is missing: it was calibrated; pass the event tree of plan.dp_event, which has it"
        )
    found = {**fields, "adjacency": adjacency, "dataset_size": _plan_size(fields, dataset_size)}
    missing = [name for name in ("iterations", "strategy", "sampling_prob", "adjacency") if found.get(name) is None]
    if missing:
        raise InvalidArgumentError(
            f"{', '.join(missing)} missing; pass all fields of the plan's config, and --adjacency"
        )
    bands = _bands(fields)
    cap = fields.get("truncated_batch_size")
    scheme = CappedPoisson(found["dataset_size"], fields["sampling_prob"], cap, cycle_length=bands)
    accountant = Accountant(Adjacency(found["adjacency"]))
    accountant.compose(scheme, fields["noise_multiplier"], fields["iterations"])
    return accountant


def _bands(fields: Mapping[str, Any]) -> int:
    """The number of bands; strategies that filet does not account for are refused."""
    from .. import _checks

    strategy = fields["strategy"]
    split = fields.get("partition_type") or "EQUAL_SPLIT"
    if not isinstance(strategy, list) or not strategy:
        raise InvalidArgumentError(f"strategy={_checks.show(strategy)} is no list of coefficients; pass one a band")
    if len(strategy) > 1 and split != "EQUAL_SPLIT":
        raise InvalidArgumentError(f"partition_type={_checks.show(split)} is not accounted for; only EQUAL_SPLIT is")
    if fields.get("column_normalize"):
        raise InvalidArgumentError("column_normalize=true is not accounted for: the noise is scaled for other columns")
    return len(strategy)


def _plan_size(fields: Mapping[str, Any], dataset_size: int | None) -> Any:
    """The number of examples: the plan's, or without truncation the given one."""
    size = fields.get("num_examples")
    if size is None and dataset_size is None:
        raise InvalidArgumentError("dataset_size is missing; pass --dataset-size (the plan has no num_examples)")
    if size is not None and dataset_size not in (None, size):
        raise InvalidArgumentError(f"dataset_size={dataset_size} differs from the plan's {size!r}; drop it")
    return dataset_size if size is None else size


def of_event_tree(tree: Mapping[str, Any], adjacency: str | None, dataset_size: int | None) -> Accountant:
    """The accountant of a dp_accounting event, from its tree.

    >>> step = {"class_name": "TruncatedSubsampledGaussianDpEvent", "dataset_size": 1000, "sampling_probability": 0.05,
    ...     "truncated_batch_size": 80, "noise_multiplier": 2.0}
    >>> of_event_tree({"class_name": "SelfComposedDpEvent", "event": step, "count": 100}, "zero-out", None)
    Accountant(zero-out, dataset_size=1000, phases=1, steps=100)
    """
    from ..accounting.accountant import Accountant
    from ..accounting.terms import Adjacency

    if adjacency is None:
        raise InvalidArgumentError("adjacency is missing; pass --adjacency (an event does not name it)")
    accountant = Accountant(Adjacency(adjacency))
    _compose(accountant, tree, 1, dataset_size)
    return accountant


def _compose(accountant: Accountant, event: Any, count: int, dataset_size: int | None) -> None:
    """Add an event that happens `count` times."""
    kind = event.get("class_name") if isinstance(event, Mapping) else None
    if kind == "SelfComposedDpEvent":
        inner, times = _fields(event, "event", "count")
        _compose(accountant, inner, count * _whole(times), dataset_size)
    elif kind == "ComposedDpEvent":
        (parts,) = _fields(event, "events")
        for part in parts if isinstance(parts, list) else [None]:
            _compose(accountant, part, count, dataset_size)
    elif kind == "GaussianDpEvent":
        (noise,) = _fields(event, "noise_multiplier")
        accountant.compose_gaussian(noise, count)
    elif kind in ("TruncatedSubsampledGaussianDpEvent", "PoissonSampledDpEvent"):
        scheme, noise = _step(event, dataset_size)
        accountant.compose(scheme, noise, count)
    elif kind != "NoOpDpEvent":
        from .._checks import show

        raise InvalidArgumentError(
            f"event {show(kind)} is none that filet accounts for; pass capped or plain Poisson batches, or Gaussians"
        )


def _step(event: Mapping[str, Any], dataset_size: int | None) -> tuple[Any, Any]:
    """The scheme and the noise of a training step."""
    from ..scheme import CappedPoisson

    if event["class_name"] == "TruncatedSubsampledGaussianDpEvent":
        size, rate, cap, noise = _fields(
            event, "dataset_size", "sampling_probability", "truncated_batch_size", "noise_multiplier"
        )
        if dataset_size not in (None, size):
            raise InvalidArgumentError(f"dataset_size={dataset_size} differs from the event's {size!r}; drop it")
        return CappedPoisson(size, rate, cap), noise
    rate, inner = _fields(event, "sampling_probability", "event")
    if not isinstance(inner, Mapping) or inner.get("class_name") != "GaussianDpEvent":
        raise InvalidArgumentError("a Poisson event holds something else than one Gaussian; pass it as Gaussians apart")
    if dataset_size is None:
        raise InvalidArgumentError("dataset_size is missing; pass --dataset-size (a Poisson event does not name it)")
    return CappedPoisson(dataset_size, rate, None), *_fields(inner, "noise_multiplier")


def _fields(event: Mapping[str, Any], *names: str) -> list[Any]:
    """The values of an event's fields, which must be these and no others."""
    if set(event) - set(_NAMES) != set(names):
        found = sorted(str(name) for name in set(event) - set(_NAMES))
        raise InvalidArgumentError(
            f"event {event['class_name']} has the fields {found}, not {sorted(names)}; pass what to_named_tuple() holds"
        )
    return [event[name] for name in names]


def _whole(count: Any) -> int:
    from .. import _checks

    return _checks.integer("count", count, low=0, remedy="pass how often the event happens")
