"""Passes over a run: its steps, cut into the epochs of a loader."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import _checks
from ..scheme import CappedPoisson


@dataclass(frozen=True)
class Passes:
    """The steps of a run, cut into passes. Made by `checked_passes`.

    At most one of `epoch_steps`, `count` and `epochs` is given; without any, one pass takes all
    steps.
    """

    scheme: CappedPoisson
    steps: int
    epoch_steps: int | None = None
    count: int | None = None
    epochs: float | None = None

    def end(self, step: int) -> int:
        """The end of the pass that goes on at `step`; never beyond the run.

        >>> passes = Passes(CappedPoisson(100, 0.1, 20), steps=5, count=4)
        >>> [passes.end(step) for step in range(6)]
        [2, 2, 3, 4, 5, 5]
        """
        if step >= self.steps:
            return self.steps
        if self.epoch_steps is not None:
            return min(step + self.epoch_steps, self.steps)
        if self.count is None and self.epochs is None:
            return self.steps
        number = self._passed(step) + 1
        while self._boundary(number) <= step:
            number += 1
        return min(self._boundary(number), self.steps)

    def bounds(self, step: int) -> tuple[int, int]:
        """First step and end of the pass that a step belongs to if no pass was left early.

        >>> passes = Passes(CappedPoisson(100, 0.1, 20), steps=5, count=4)
        >>> [passes.bounds(step) for step in range(5)]
        [(0, 2), (0, 2), (2, 3), (3, 4), (4, 5)]
        """
        step = min(step, self.steps - 1)
        if self.epoch_steps is not None:
            start = step - step % self.epoch_steps
            return start, self.end(start)
        if self.count is None and self.epochs is None:
            return 0, self.steps
        number = self._passed(step)
        while self._boundary(number + 1) <= step:
            number += 1
        return self._boundary(number), self.end(step)

    def _passed(self, step: int) -> int:
        """A number of passes that are surely over at a step; at most one or two too few."""
        if self.count is not None:
            return max(0, step * self.count // self.steps - 1)
        share = self.scheme.poisson_batch_size / self.scheme.dataset_size  # of an epoch that a step takes
        return max(0, int(step * share * (1 - 1e-9)) - 1)

    def _boundary(self, number: int) -> int:
        """The end of pass `number`, counted from 1; 0 for pass 0.

        Passes are whole epochs, or equal shares of the steps, up to one step.
        """
        if self.count is not None:
            return -(-self.steps * number // self.count)
        return self.scheme.steps_of_epochs(number)

    def __len__(self) -> int:
        """The number of passes."""
        if self.epoch_steps is not None:
            return -(-self.steps // self.epoch_steps)
        return self.count or (1 if self.epochs is None else math.ceil(self.epochs))

    @property
    def most_steps(self) -> int:
        """Steps of the longest pass, the first."""
        return self.end(0)

    def over(self) -> str:
        """The message for a pass too many: the rule and the remedies."""
        way = (
            f"a pass takes up to {self.most_steps} of them"
            if self.most_steps < self.steps
            else "one pass takes them all"
        )
        return (
            f"the run of steps={self.steps} is over, as {way}; for E passes over it pass passes=E, or epochs=E instead of"
            " steps; for more steps make a new run with a new key, and account for it"
        )


def checked_passes(
    scheme: CappedPoisson,
    steps: int | None,
    epochs: float | None = None,
    epoch_steps: int | None = None,
    passes: int | None = None,
) -> Passes:
    """The passes of a run of `steps`, or of `epochs` of which each is a pass.

    >>> ten = checked_passes(CappedPoisson(60_000, 256 / 60_000, 300), None, epochs=10)
    >>> ten.steps, ten.end(0), ten.end(235)
    (2344, 235, 469)
    """
    if not isinstance(scheme, CappedPoisson):
        raise _checks.fail(f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
    whole = scheme.checked_steps(steps, epochs)
    given = {"epochs": epochs, "epoch_steps": epoch_steps, "passes": passes}
    ways = [name for name, value in given.items() if value is not None]
    if len(ways) > 1:
        raise _checks.fail(f"{' and '.join(ways)} all say how long a pass is; pass one of them")
    if epoch_steps is not None:
        remedy = "pass the number of batches in one pass, or None for all"
        epoch_steps = _checks.integer("epoch_steps", epoch_steps, low=1, remedy=remedy)
    if passes is not None:
        remedy = "pass the number of passes over the loader, at most one a step"
        passes = _checks.integer("passes", passes, low=1, high=max(whole, 1), remedy=remedy)
    return Passes(scheme, whole, epoch_steps, passes, epochs)
