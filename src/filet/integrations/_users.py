"""Users and their examples: users are sampled, capped and accounted for; each brings the same number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from filet import _checks
from filet.errors import InvalidArgumentError
from filet.scheme import CappedPoisson, Size

_Indices = NDArray[np.signedinteger[Any]]


class Users:
    """Users, and the examples that each brings to a step.

    >>> users = Users(["ann", "ann", "ann", "bob"], examples_per_user=2)
    >>> users.count, users.examples
    (2, 4)
    >>> scheme = CappedPoisson(dataset_size=2, sampling_probability=0.5, max_batch_size=2)
    >>> [users.rows(scheme, step, [0, 1]).tolist() for step in range(2)]
    [[[0, 1], [3, 3]], [[2, 0], [3, 3]]]

    Guarantees: a user brings `examples_per_user` rows of their own. They are taken in rotation by the number of the
    step, so that all are used and a run resumes at any step. A user with fewer brings some twice. Users are numbered
    from 0 in the order of their sorted ids.

    Arguments:
        user_ids: the user of each example: one number (or text) per example.
        examples_per_user: rows of every chosen user.
    """

    def __init__(self, user_ids: ArrayLike, examples_per_user: int) -> None:
        ids = np.asarray(user_ids)
        if ids.ndim != 1 or not ids.size:
            raise InvalidArgumentError(f"user_ids of shape {ids.shape} is not one per example; pass a flat array")
        remedy = "pass how many examples every chosen user brings"
        self.examples_per_user = _checks.integer("examples_per_user", examples_per_user, low=1, remedy=remedy)
        users, owner = np.unique(ids, return_inverse=True)
        self.count, self.examples = int(users.size), int(ids.size)
        # Examples in the order of their users: user u's are at first[u] : first[u] + counts[u].
        self._examples = np.argsort(owner, kind="stable").astype(np.min_scalar_type(-ids.size))
        self._counts = np.bincount(owner, minlength=users.size)
        self._first = np.cumsum(self._counts) - self._counts

    def __str__(self) -> str:
        return f"{self.count} users of {self.examples} examples, {self.examples_per_user} a batch"

    def check_scheme(self, scheme: CappedPoisson) -> None:
        """Raise unless the scheme's data set is the users, a public number of them."""
        if scheme.size is not Size.PUBLIC:
            raise InvalidArgumentError(
                f"size={scheme.size.value!r} with users: their number is part of the run's state, and so public;"
                " make the scheme with size='public'"
            )
        if self.count != scheme.dataset_size:
            raise InvalidArgumentError(
                f"user_ids names {self.count} users, not scheme.dataset_size={scheme.dataset_size}; make the scheme"
                " for the number of users"
            )

    def rows(self, scheme: CappedPoisson, step: int, users: ArrayLike) -> _Indices:
        """The examples of some users at a step, a row of `examples_per_user` each."""
        chosen = np.asarray(users, dtype=np.intp)[:, None]
        turn = (step // scheme.cycle_length) * self.examples_per_user + np.arange(self.examples_per_user)
        found: _Indices = self._examples[self._first[chosen] + turn % self._counts[chosen]]
        return found
