"""What is measured: the five settings of the theory page, and sweeps around the first of them. The one place for both."""

from __future__ import annotations

import math
from typing import NamedTuple

from filet import CappedPoisson, Overflow


class Setting(NamedTuple):
    """One training run: data set size, expected batch, cap, noise multiplier, steps, delta."""

    n: int
    batch: int
    cap: int
    sigma: float
    steps: int
    delta: float

    @property
    def p(self) -> float:
        return self.batch / self.n

    def scheme(self, overflow: Overflow | str = Overflow.TRUNCATE) -> CappedPoisson:
        return CappedPoisson(self.n, self.p, self.cap, Overflow(overflow))

    def uncapped(self) -> CappedPoisson:
        return CappedPoisson(self.n, self.p, self.n)


SETTINGS = {
    "A": Setting(60_000, 256, 300, 1.0, 14_000, 1e-5),
    "B": Setting(50_000, 4096, 4200, 3.0, 2_500, 1e-5),
    "C": Setting(1_281_167, 16_384, 16_600, 2.5, 18_000, 8e-7),
    "D": Setting(45_000_000, 65_536, 66_000, 1.0, 3_500, 1e-8),
    "E": Setting(60_000, 256, 256, 1.0, 14_000, 1e-5),
}

# Targets for calibration and planning: each a little off what the setting itself costs, so that there is work to do.
TARGET_EPSILON = {"A": 3.0, "B": 7.0, "C": 3.5, "D": 1.0, "E": 3.0}


class Point(NamedTuple):
    """One comparison: a setting with p instead of a batch; `cap = n` is plain Poisson sampling."""

    sweep: str
    n: int
    p: float
    cap: int
    sigma: float
    steps: int
    delta: float

    @property
    def plain(self) -> bool:
        return self.cap >= self.n

    @property
    def scheme(self) -> CappedPoisson:
        return CappedPoisson(self.n, self.p, self.cap)

    @property
    def key(self) -> tuple[int, str, int, str, int, str]:
        """What identifies the run whatever sweep it is in; floats as text, as they are stored."""
        return self.n, repr(self.p), self.cap, repr(self.sigma), self.steps, repr(self.delta)


STEPS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
DELTAS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-13, 1e-16, 1e-20, 1e-30)
PROBABILITIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0)
SIGMAS = (0.3, 0.5, 0.8, 2.0, 5.0, 20.0, 100.0)


def _cap(n: int, p: float) -> int:
    """As far above the mean as the cap of setting A: 2.75 standard deviations."""
    return min(n, round(n * p + 2.75 * math.sqrt(n * p * (1 - p))))


def points(*, plain: bool) -> list[Point]:
    """The settings, then one parameter of setting A at a time, with its cap or without one."""
    a = SETTINGS["A"]
    base = Point("", a.n, a.p, a.n if plain else a.cap, a.sigma, a.steps, a.delta)
    named = [Point(name, s.n, s.p, s.n if plain else s.cap, s.sigma, s.steps, s.delta) for name, s in SETTINGS.items()]
    if plain:
        named = named[:-1]  # E is A without the cap
    found = [point._replace(sweep="settings " + point.sweep) for point in named]
    found += [base._replace(sweep="steps", steps=steps) for steps in STEPS]
    found += [base._replace(sweep="delta", delta=delta) for delta in DELTAS]
    for p in PROBABILITIES if plain else PROBABILITIES[2:-1]:  # a cap needs a few examples in a batch, and room above
        n = 10**9 if plain else a.n
        found.append(base._replace(sweep="p", n=n, p=p, cap=n if plain else _cap(n, p)))
    found += [base._replace(sweep="sigma", sigma=sigma) for sigma in SIGMAS]
    return found
