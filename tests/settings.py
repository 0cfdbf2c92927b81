"""The five settings of the theory page and its table of epsilons."""

from __future__ import annotations

from typing import NamedTuple

from filet import CappedPoisson


class Setting(NamedTuple):
    n: int
    batch: int
    cap: int
    sigma: float
    steps: int
    delta: float

    def scheme(self, overflow: str = "truncate") -> CappedPoisson:
        return CappedPoisson(self.n, self.batch / self.n, self.cap, overflow)  # type: ignore[arg-type]

    def uncapped(self) -> CappedPoisson:
        return CappedPoisson(self.n, self.batch / self.n, self.n)


SETTINGS = {
    "A": Setting(60_000, 256, 300, 1.0, 14_000, 1e-5),
    "B": Setting(50_000, 4096, 4200, 3.0, 2_500, 1e-5),
    "C": Setting(1_281_167, 16_384, 16_600, 2.5, 18_000, 8e-7),
    "D": Setting(45_000_000, 65_536, 66_000, 1.0, 3_500, 1e-8),
    "E": Setting(60_000, 256, 256, 1.0, 14_000, 1e-5),
}

# (overflow, analysis, adjacency) -> epsilon on A to E; overflow "none" is Poisson without a cap
TABLE = {
    ("none", "refined", "add-remove"): (2.81572, 6.57890, 3.40317, 0.64406, 2.81572),
    ("none", "refined", "zero-out"): (2.81572, 6.57890, 3.40317, 0.64406, 2.81572),
    ("none", "refined", "replace-one"): (4.83309, 14.71120, 7.10815, 0.96007, 4.83309),
    ("truncate", "note", "add-remove"): (4.56715, 7.27084, 3.76842, 5.67291, 14.56534),
    ("truncate", "refined", "add-remove"): (2.86517, 7.24585, 3.75939, 3.68924, 9.09122),
    ("truncate", "note", "zero-out"): (4.57646, 8.00776, 4.08992, 5.67612, 15.00145),
    ("truncate", "refined", "zero-out"): (2.85175, 6.71409, 3.50859, 3.53819, 7.84232),
    ("truncate", "note", "replace-one"): (5.67985, 15.96867, 7.69144, 5.72554, 17.86201),
    ("truncate", "refined", "replace-one"): (4.87560, 15.01265, 7.31769, 3.76136, 11.96719),
    ("reject", "refined", "add-remove"): (2.81531, 6.62400, 3.40997, 0.64402, 2.78190),
    ("reject", "refined", "zero-out"): (2.81475, 6.57318, 3.40172, 0.64398, 2.74078),
    ("reject", "refined", "replace-one"): (4.83132, 14.69733, 7.10498, 0.95992, 4.69668),
}
