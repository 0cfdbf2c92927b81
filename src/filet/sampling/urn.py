"""One step's urn: how many slots a batch is drawn from, and by which law of sizes.

The number of records may be a secret: nothing here names it in a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from .. import _checks
from ..scheme import CappedPoisson, Size
from .size_law import SizeLaw, size_law


@dataclass(frozen=True)
class Urn:
    """A uniform subset of `slots` slots is drawn, of a size that follows `law`."""

    law: SizeLaw
    slots: int = field(repr=False)


def urn(scheme: CappedPoisson, records: int | None) -> Urn:
    """The urn of a scheme on this many records.

    Secret sizes: the law of sizes is that of `dataset_size`, a public number, and the records fill the first of
    `max(records, dataset_size)` slots. Proof: theory.md#a-secret-size
    """
    if records is None:
        return Urn(size_law(scheme), scheme.group_size)
    if scheme.size is Size.SECRET:
        return Urn(size_law(scheme), max(records, scheme.dataset_size))
    # No record fills no slot: a batch of one slot, which is empty.
    own = replace(scheme, dataset_size=max(records, 1), size=Size.PUBLIC)
    return Urn(size_law(own), own.dataset_size)


def checked_records(scheme: CappedPoisson, records: Any) -> int | None:
    """The true number of records, needed where the scheme's size is not public; no message shows it."""
    if scheme.size is Size.PUBLIC:
        if records is not None:
            raise _checks.fail(
                "records is for a scheme whose size is not public, as dataset_size says it here;"
                " leave it out, or pass size='secret' to CappedPoisson"
            )
        return None
    if records is None:
        raise _checks.fail(
            f"size={scheme.size.value!r} needs the true number of records, a secret of the sampler;"
            " pass records=len(data)"
        )
    number = _secret_integer(records)
    if scheme.size is Size.AT_MOST and number > scheme.dataset_size:
        raise _checks.fail(
            f"records is above dataset_size={scheme.dataset_size}, the most that size='at-most' holds for (and this"
            " error says so to whoever sees it); plan with a larger dataset_size, or with size='secret'"
        )
    return number


def _secret_integer(value: Any) -> int:
    whole = getattr(value, "__index__", None)
    number = -1 if whole is None or isinstance(value, bool) else int(whole())
    if not 0 <= number <= _checks.MAX_INTEGER:
        raise _checks.fail("records is not a whole number from 0 to 2**63 - 1; pass records=len(data)")
    return number
