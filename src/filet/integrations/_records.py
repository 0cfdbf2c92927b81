"""Secret numbers of records: the schemes that need one, and a warning where the planned size equals it."""

from __future__ import annotations

import warnings
from typing import Any

from filet.errors import InvalidArgumentError
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson, Size


def records_of(scheme: CappedPoisson, data: Any) -> int | None:
    """The true number of records, for the sampler alone; None where the size is public."""
    if getattr(scheme, "size", Size.PUBLIC) is Size.PUBLIC:  # the sampler refuses anything but a scheme
        return None
    if not hasattr(data, "__len__"):
        raise InvalidArgumentError(
            f"the data set of type {type(data).__name__} has no length, which random sampling needs; define __len__"
        )
    return len(data)


def sampler_of(
    scheme: CappedPoisson, key: Any = None, secure: bool | None = None, records: int | None = None
) -> Sampler:
    """The sampler of an integration; a planned size that equals the number of records is warned of."""
    warn_of_own_size(scheme, records)
    return Sampler(scheme, key, records=records, **({} if secure is None else {"secure": secure}))


def warn_of_own_size(scheme: CappedPoisson, records: int | None) -> None:
    """Warn where the planned size may have been computed from the data, which voids the guarantee."""
    if records is None or records != scheme.dataset_size:
        return
    warnings.warn(
        f"dataset_size={scheme.dataset_size} is exactly the number of records, which size={scheme.size.value!r}"
        " keeps secret; computed from the data, it voids the guarantee: plan with a number that is known without"
        " them (and keep this warning to yourself, as it tells the number)",
        stacklevel=4,
    )
