# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Batch selection for JAX Privacy: batches of examples or of users, padded to one shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from filet import _checks
from filet.errors import InvalidArgumentError
from filet.sampling.keys import SAFE_INTEGERS, warn_of_short_key
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson, Size

from .._frameworks import needed_for
from .._records import sampler_of
from .._users import Users

with needed_for("jax-privacy"):
    from jax_privacy import batch_selection


_Indices = NDArray[np.signedinteger[Any]]


class PaddedIndices(np.ndarray[Any, Any]):
    """An index array that may hold padding, and therefore refuses to be read one by one.

    A loop over the indices that reads examples takes padding, -1, for the last example, unmasked: that of JAX Privacy's
    `UserSelectionStrategy` does. Comparing, slicing and indexing give plain arrays.
    """

    def __iter__(self) -> NoReturn:
        raise InvalidArgumentError(
            "these indices are padded with -1, which a loop over them would take for the last example; use them as an array"
            " with is_padding_example, pass padded=False, or use CappedUserSelection for batches of users"
        )

    def __getitem__(self, item: Any) -> Any:
        return self.view(np.ndarray)[item]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [part.view(np.ndarray) if isinstance(part, PaddedIndices) else part for part in inputs]
        return getattr(ufunc, method)(*plain, **options)


@dataclass(frozen=True)
class CappedPoissonSelection(batch_selection.BatchSelectionStrategy):
    """A JAX Privacy batch selection strategy that yields index arrays of one shape, padded with -1.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8, overflow="reject")
    >>> strategy = CappedPoissonSelection(scheme, iterations=2, secure=False)
    >>> for indices in strategy.batch_iterator(10, rng=b"16 secret bytes!"):
    ...     print(indices, is_padding_example(indices).sum())
    [ 0  2  6  7  8 -1 -1 -1] 3
    [ 1  3  5  9 -1 -1 -1 -1] 4

    Guarantees: the batches are those of `scheme.sampler`. Pass `is_padding_example(indices)` to JAX Privacy's clipped
    functions, which make the gradients of padding zero. Padded arrays refuse to be looped over (see `PaddedIndices`).

    Arguments:
        scheme: how batches are drawn. `cycle_length` is JAX Privacy's; its `sampling_prob` is `sampling_probability`.
        iterations: number of batches.
        padded: False yields the examples alone, in arrays of varying length, for code that pads by itself.
        secure: draw from AES-256; needs `pip install 'filet[secure]'`. None: as `filet.Sampler` does.
        key: secret bytes of the run's batches, for a training loop that makes its own generator. They
            are used in place of that one.
    """

    scheme: CappedPoisson
    iterations: int
    padded: bool = True
    secure: bool | None = None
    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_scheme(self.scheme)
        object.__setattr__(self, "iterations", _checks.step_count(self.iterations, "iterations"))

    def batch_iterator(self, num_examples: int, rng: Any = None, start: int = 0) -> Iterator[_Indices]:
        """Yield the index arrays of all batches, from step `start` on.

        Arguments:
            num_examples: must be the scheme's `dataset_size`; where that is not public, the true number of records, which
                stays with the iterator.
            rng: a NumPy generator, from which a key is drawn; or the key itself, as for `filet.Sampler`; or None. To
                resume, the key itself. One call is one run: another call with the same key gives
                the same batches.
            start: the first step to draw; no earlier one is replayed.
        """
        public = self.scheme.size is Size.PUBLIC
        if public and num_examples != self.scheme.dataset_size:
            raise InvalidArgumentError(
                f"num_examples={_checks.show(num_examples)} is not scheme.dataset_size={self.scheme.dataset_size}; pass"
                " the data set that the scheme was made for"
            )
        records = None if public else num_examples
        sampler = _sampler(self.scheme, self._key(rng), self.secure, records)
        batches = sampler.batches(self.iterations, start)
        if self.padded:
            return (batch.indices.view(PaddedIndices) for batch in batches)
        return (batch.indices[: batch.size] for batch in batches)

    def _key(self, rng: Any) -> Any:
        if self.key is None:
            return rng
        if rng is not None and not isinstance(rng, np.random.Generator) and rng != self.key:
            raise InvalidArgumentError("rng is another key than the strategy's own; leave rng out")
        return self.key


@dataclass(frozen=True)
class CappedUserSelection:
    """Batches of users: users are sampled, capped and accounted for; each brings the same number of rows.

    >>> scheme = CappedPoisson(dataset_size=3, sampling_probability=0.7, max_batch_size=3)  # of users
    >>> strategy = CappedUserSelection(scheme, iterations=2, rows_per_user=2, secure=False)
    >>> for rows in strategy.batch_iterator([50, 50, 50, 8, 8, 99], rng=b"16 secret bytes!"):
    ...     print(rows.tolist(), is_padding_example(rows))
    [[3, 4], [0, 1], [-1, -1]] [False False  True]
    [[3, 4], [2, 0], [-1, -1]] [False False  True]

    Guarantees: every array has the shape `(max_batch_size, rows_per_user)`; a row holds examples of one user, or padding
    (-1) throughout. Clip per row, as JAX Privacy does for batches with an axis of users: then the scheme's guarantee,
    with `dataset_size` counting users, is one for all data of a user. A user's examples are taken in rotation by the
    number of the step, so that a run resumes at any step; a user with fewer than `rows_per_user` brings some twice.

    Arguments:
        scheme: how users are drawn; `dataset_size` is the number of users, the planned one where that is not public.
        iterations: number of batches.
        rows_per_user: examples of every chosen user.
        secure: as for `CappedPoissonSelection`.
    """

    scheme: CappedPoisson
    iterations: int
    rows_per_user: int = 1
    secure: bool | None = None

    def __post_init__(self) -> None:
        _check_scheme(self.scheme)
        object.__setattr__(self, "iterations", _checks.step_count(self.iterations, "iterations"))
        remedy = "pass how many examples every chosen user brings"
        object.__setattr__(
            self, "rows_per_user", _checks.integer("rows_per_user", self.rows_per_user, low=1, remedy=remedy)
        )

    def batch_iterator(self, user_ids: ArrayLike, rng: Any = None, start: int = 0) -> Iterator[_Indices]:
        """Yield the index arrays of all batches, from step `start` on.

        Arguments:
            user_ids: the user of each example: one number (or text) per example.
            rng: as for `CappedPoissonSelection.batch_iterator`; to resume, the key itself.
            start: the first step to draw.
        """
        owned = Users(user_ids, self.rows_per_user)
        public = self.scheme.size is Size.PUBLIC
        if public:
            owned.check_scheme(self.scheme)
        records = None if public else owned.count
        batches = _sampler(self.scheme, rng, self.secure, records).batches(self.iterations, start)

        def rows(step: int, users: _Indices, size: int) -> _Indices:
            chosen = owned.rows(self.scheme, step, users[:size])
            found = np.full((users.size, self.rows_per_user), -1, dtype=chosen.dtype)
            found[:size] = chosen
            return found.view(PaddedIndices)

        return (rows(step, batch.indices, batch.size) for step, batch in zip(batches.steps, batches, strict=True))


def is_padding_example(indices: ArrayLike) -> NDArray[np.bool_]:
    """True where an index (or a user's row of them) is padding, for that argument of JAX Privacy's clipped functions."""
    padding = np.asarray(indices) < 0
    return padding if padding.ndim < 2 else np.asarray(padding.all(axis=1))


def _check_scheme(scheme: Any) -> None:
    if not isinstance(scheme, CappedPoisson):
        raise InvalidArgumentError(
            f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)"
        )


def _sampler(scheme: CappedPoisson, rng: Any, secure: bool | None, records: int | None) -> Sampler:
    key = rng
    if isinstance(rng, np.random.Generator):
        seed = getattr(rng.bit_generator.seed_seq, "entropy", None)
        if isinstance(seed, int) and seed < SAFE_INTEGERS:
            remedy = "pass secrets.token_bytes(32) as rng"
            warn_of_short_key("rng was seeded by an integer below 2**64", remedy)
        key = rng.bytes(32)
    return sampler_of(scheme, key, secure, records)
