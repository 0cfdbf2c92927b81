"""Audits: empirical checks that a stream of batches follows its scheme.

P-values allow for many tests. Given their sizes, the batches of a correct loader are independent
uniform subsets, so every statistic of `size_checks` and `member_checks` has a known law.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks
from .._public import public
from .._tables import html_table
from ..scheme import CappedPoisson, Size
from .batch import Batch
from .member_checks import inclusion_check, overlap_check, position_checks, split_groups
from .p_values import Check
from .sampler import Batches, Sampler
from .size_checks import after_full_check, sequence_check, size_checks
from .urn import checked_records


@public
@dataclass(frozen=True)
class AuditReport:
    """Findings of an audit. Made by `audit`.

    Guarantees: a loader that follows the scheme fails with chance `significance` at most
    (up to the normal approximations of the tests), however many checks there were: p-values are
    combined by Holm's method.
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
        """True if no check contradicts the scheme."""
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

    def _repr_html_(self) -> str:
        """The report as a table, for notebooks."""
        rows = []
        for check in self.checks:
            mark = "fail" if check in self.failures else "ok"
            rows.append((mark, f"{check.p_value:.3g}", check.name, check.detail))
        rows += [("skipped", "", "", text) for text in self.skipped]
        verdict = f"{'passed' if self.passed else 'FAILED'}: {self.steps} batches against {self.scheme}"
        return html_table(("", "p-value", "check", "found"), rows, verdict)


@public
def audit(
    batches: Sampler | Iterable[Any],
    scheme: CappedPoisson,
    *,
    steps: int | None = None,
    significance: float = 1e-3,
    records: int | None = None,
) -> AuditReport:
    """Test batches against a scheme: sizes, inclusion, positions, independence across steps.

    >>> scheme = CappedPoisson(dataset_size=1_000, sampling_probability=0.05, max_batch_size=60)
    >>> audit(scheme.sampler(key=b"16 secret bytes!"), scheme, steps=500).passed
    True
    >>> order = np.random.default_rng(0).permuted(np.tile(np.arange(1_000), (25, 1)), axis=1)
    >>> report = audit(order.reshape(500, 50), scheme)
    >>> report.passed, [check.name for check in report.failures][:2]
    (False, ['size law', 'inclusion'])

    Guarantees: see `AuditReport`. Passing proves nothing: a fault that is rare in the given number
    of steps stays undetected, and no test of batches can show that a key is secret. Audit a loader with
    a key of its own, not with the key of a run whose batches must stay secret.

    Arguments:
        batches: a `Sampler`, or the global batches of consecutive steps: `Batch` objects, arrays of
            row numbers (-1 is padding), or pairs of row numbers and a boolean mask.
        scheme: what the batches should follow.
        steps: how many batches to use; needed for a `Sampler`, all of them by default.
        significance: chance of a false alarm that is tolerated.
        records: where the scheme's size is not public, the number of records that the batches were
            drawn from. With `size="secret"` sizes must follow the planned number whatever this one is.
    """
    if not isinstance(scheme, CappedPoisson):
        raise _checks.fail(f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
    planned, members = _expected(scheme, records)
    level = _checks.real("significance", significance, rule="in (0, 1)", remedy="pass a small chance such as 1e-3")
    if not 0.0 < level < 1.0:
        raise _checks.fail(f"significance={level!r} is not in (0, 1); pass a small chance such as 1e-3")
    checks: list[Check] = []
    sets = list(_sets(_stream(batches, steps), members, checks))
    if not sets:
        raise _checks.fail("there are no batches to audit; pass at least a few hundred")
    skipped: list[str] = []
    sizes = np.array([one.size for one in sets], dtype=np.int64)
    checks += size_checks(sizes, planned)
    checks += sequence_check(sizes, planned, skipped)
    checks += after_full_check(sizes, planned, skipped)
    parts = split_groups(sets, members, checks, skipped)
    checks += inclusion_check(parts, members.group_size, skipped)
    checks += position_checks(parts, members, skipped)
    checks += overlap_check(sets, members, skipped)
    return AuditReport(scheme, len(sets), level, tuple(checks), tuple(skipped))


def _expected(scheme: CappedPoisson, records: Any) -> tuple[CappedPoisson, CappedPoisson]:
    """The scheme whose sizes batches must have, and the one whose examples they hold, both of a public size."""
    number = checked_records(scheme, records)
    if number is None:
        return scheme, scheme
    if scheme.size is Size.AT_MOST:
        own = replace(scheme, dataset_size=max(number, 1), size=Size.PUBLIC)
        return own, own
    if number < scheme.dataset_size:
        raise _checks.fail(
            f"records below dataset_size={scheme.dataset_size} leave slots empty, so that sizes do not show their law;"
            " audit a sampler with at least as many records as were planned"
        )
    public = replace(scheme, size=Size.PUBLIC)
    return public, replace(public, dataset_size=number)


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
    """The row numbers of each batch, sorted.

    Repetitions and batches above the cap are recorded as an impossible event.
    """
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
