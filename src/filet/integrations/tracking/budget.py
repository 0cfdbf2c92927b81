"""The budget of a run: epsilon so far, the remainder, and a stop before it is exceeded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from filet import _checks
from filet._numbers import round_up
from filet.accounting.accountant import Accountant
from filet.errors import InvalidArgumentError

from .trackers import Tracker

_LONGEST_LOOK_AHEAD = 1 << 20  # steps; the remainder is computed anew after them


class Spent(NamedTuple):
    """Public values of a run: they depend on scheme, noise and the number of steps, on no example."""

    step: int
    epsilon: float
    left: float | None  # of `max_epsilon`; None if there is no limit


class Budget:
    """The privacy budget of a run: call `update()` after every step, and stop when it returns True.

    Guarantees: trackers get the number of steps, epsilon so far and what is left of `max_epsilon`,
    and nothing else: no losses, sizes of batches or indices. Epsilon is a certified upper bound.
    `update` returns True if the run is over, or if one more step with the noise of the last one
    would cost more than `max_epsilon`. A scheduler that lowers the noise between the two is not
    foreseen.

    Arguments:
        engine: a `CappedPrivacyEngine`, or anything with its `accountant` and `steps`.
        delta: at which epsilon is told.
        max_epsilon: what the run may cost; None: as many steps as the engine has.
        trackers: where values go, of `tensorboard`, `wandb`, `mlflow` or `lightning_logger`; or any
            function of a mapping of names to values and a step.
        every: steps between two values; the last is always told.
    """

    def __init__(
        self,
        engine: Any,
        *,
        delta: float,
        max_epsilon: float | None = None,
        trackers: Iterable[Tracker] = (),
        every: int = 10,
    ) -> None:
        if not hasattr(engine, "accountant") or not hasattr(engine, "steps"):
            raise InvalidArgumentError(f"{_checks.show(engine)} is no engine; pass a CappedPrivacyEngine")
        self.engine = engine
        self.delta = _checks.open_probability("delta", delta, remedy="pass one well below 1 / dataset_size")
        self.max_epsilon = None if max_epsilon is None else _limit(max_epsilon)
        self.trackers = list(trackers)
        self.every = _checks.integer("every", every, low=1, remedy="pass the steps between two values")
        self._noise: float | None = None
        self.told: dict[str, float] = {}  # the values that were told last
        self._told_at = 0
        self._free_until = 0  # no step before this one, with this noise, costs too much

    def check(self, noise_multiplier: float) -> None:
        """Raise if not even one more step with this noise fits; call it before the first step of a run."""
        if len(self.engine.accountant) < self.engine.steps and not self._fits(noise_multiplier, 1):
            cost = round_up(self._epsilon_after(noise_multiplier, 1), 4)
            raise InvalidArgumentError(
                f"one step with noise_multiplier={noise_multiplier} costs {cost}, more than"
                f" max_epsilon={self.max_epsilon}; add noise, or spend more"
            )

    def spent(self) -> Spent:
        """Steps and epsilon so far, and what is left."""
        accountant = self.engine.accountant
        epsilon = float(accountant.get_epsilon(self.delta))
        left = None if self.max_epsilon is None else max(0.0, self.max_epsilon - epsilon)
        return Spent(len(accountant), epsilon, left)

    @staticmethod
    def _values(spent: Spent) -> dict[str, float]:
        """The values for trackers, by the names that they show."""
        told = {"privacy/epsilon": spent.epsilon}
        return told if spent.left is None else {**told, "privacy/epsilon_left": spent.left}

    def update(self, at: int | None = None) -> bool:
        """Tell the trackers, if it is time; True if no further step is to be taken.

        Arguments:
            at: the step that trackers show, if it is another number than that of the steps so far.
        """
        step = len(self.engine.accountant)
        over = self.is_spent()
        if step > self._told_at and (over or step % self.every == 0):
            self._told_at, self.told = step, self._values(self.spent())
            for track in self.trackers:
                track(self.told, step if at is None else at)
        return over

    def is_spent(self) -> bool:
        """True if the run is over, or if one more step would cost more than `max_epsilon`."""
        step = len(self.engine.accountant)
        history = self.engine.accountant.history
        if step >= self.engine.steps:
            return True
        if not history:
            return False  # nothing is known of the noise; `check` asks for it
        noise = history[-1][0]
        if noise != self._noise or step >= self._free_until:
            self._noise, self._free_until = noise, step + self._free(noise)
        return step >= self._free_until

    def _free(self, noise: float) -> int:
        """A number of further steps that fit: at least half of all, and 0 only if none does."""
        found, more = 0, 1
        while more <= _LONGEST_LOOK_AHEAD and self._fits(noise, more):
            found, more = more, 2 * more
        return found

    def _fits(self, noise: float, more: int) -> bool:
        return self.max_epsilon is None or self._epsilon_after(noise, more) <= self.max_epsilon

    def _epsilon_after(self, noise: float, more: int) -> float:
        accountant = self.engine.accountant
        total = Accountant(accountant.adjacency)
        for sigma, _, steps in (*accountant.history, (noise, 0.0, more)):
            total.compose(accountant.scheme, sigma, steps, analysis=accountant.analysis)
        return float(total.epsilon(self.delta))


def _limit(max_epsilon: Any) -> float:
    remedy = "pass the most that the run may cost, or None for all steps of the engine"
    found = _checks.real("max_epsilon", max_epsilon, rule="above 0", remedy=remedy)
    if not found > 0:
        raise _checks.fail(f"max_epsilon={_checks.show(found)} is not above 0; {remedy}")
    return found
