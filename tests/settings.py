"""The five settings of the theory page and its table of epsilons."""

from __future__ import annotations

from settings import SETTINGS

__all__ = ["SETTINGS", "TABLE"]

# (overflow, analysis, adjacency) -> epsilon on A to E; overflow "none" is Poisson without a cap.
# The rows of truncate, refined are the library's own upper bounds, rounded up: lending's law is a hull at finitely many
# nodes, and these are within a relative 3e-4 of the limit of many nodes. All others are the exact values of their analysis.
TABLE = {
    ("none", "refined", "add-remove"): (2.81572, 6.57890, 3.40317, 0.64406, 2.81572),
    ("none", "refined", "zero-out"): (2.81572, 6.57890, 3.40317, 0.64406, 2.81572),
    ("none", "refined", "replace-one"): (4.83309, 14.71120, 7.10815, 0.96007, 4.83309),
    ("truncate", "note", "add-remove"): (4.56715, 7.27084, 3.76842, 5.67291, 14.56534),
    ("truncate", "swap", "add-remove"): (2.86517, 7.24585, 3.75939, 3.68924, 9.09122),
    ("truncate", "refined", "add-remove"): (2.82786, 6.98416, 3.63668, 1.12897, 4.89208),
    ("truncate", "note", "zero-out"): (4.57646, 8.00776, 4.08992, 5.67612, 15.00145),
    ("truncate", "swap", "zero-out"): (2.85175, 6.71409, 3.50859, 3.53819, 7.84232),
    ("truncate", "refined", "zero-out"): (2.82446, 6.65377, 3.46248, 1.11703, 4.34319),
    ("truncate", "note", "replace-one"): (5.67985, 15.96867, 7.69144, 5.72554, 17.86201),
    ("truncate", "swap", "replace-one"): (4.87560, 15.01265, 7.31769, 3.76136, 11.96719),
    ("truncate", "refined", "replace-one"): (4.84614, 14.85222, 7.22017, 1.25019, 7.24188),
    ("reject", "refined", "add-remove"): (2.81531, 6.62400, 3.40997, 0.64402, 2.78190),
    ("reject", "refined", "zero-out"): (2.81475, 6.57318, 3.40172, 0.64398, 2.74078),
    ("reject", "refined", "replace-one"): (4.83132, 14.69733, 7.10498, 0.95992, 4.69668),
}
