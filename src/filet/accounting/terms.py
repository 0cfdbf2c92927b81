"""The words of accounting: adjacency, analysis, phase, bounds."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._public import public
from ..errors import InvalidArgumentError
from ..scheme import CappedPoisson, Overflow, Size

# For type checkers: wherever filet asks for a word, its string is as good as the member.
AdjacencyName = Literal["add-remove", "zero-out", "replace-one"]
AnalysisName = Literal["refined", "swap", "note", "union"]


@public
class Adjacency(enum.StrEnum):
    """Pairs of data sets that must look alike. Accepts the strings wherever filet asks for an adjacency.

    `dataset_size` is public under all three, unless the scheme says otherwise (`Size`). Under add-remove it is the size
    of the *larger* data set.
    """

    ADD_REMOVE = "add-remove"
    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"


@public
class Analysis(enum.StrEnum):
    """The proof that the numbers rest on.

    `refined` is the tightest that filet proves. The others are for comparison, and for policy truncate only: `swap`
    compares a full batch with those in which the example is exchanged, `note` is the analysis of Ganesh (2025), `union`
    the earlier strategy that adds the chance of any overflow to delta.
    """

    REFINED = "refined"
    SWAP = "swap"
    NOTE = "note"
    UNION = "union"


@public
class Bounds(NamedTuple):
    """A proven interval: the exact value of the analysis lies in it."""

    lower: float
    upper: float


class Brackets(NamedTuple):
    """Proven intervals of several answers, as two arrays."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


@public
@dataclass(frozen=True)
class Phase:
    """`steps` training steps with one scheme and one noise multiplier."""

    scheme: CappedPoisson
    noise_multiplier: float
    steps: int
    analysis: Analysis = Analysis.REFINED

    def __post_init__(self) -> None:
        if self.analysis is not Analysis.REFINED and self.scheme.overflow is Overflow.REJECT:
            raise InvalidArgumentError(
                f"analysis={self.analysis.value!r} is for overflow='truncate', not 'reject'; pass analysis='refined'"
            )
        if self.scheme.size is Size.AT_MOST and self.analysis in (Analysis.SWAP, Analysis.NOTE):
            raise InvalidArgumentError(
                f"analysis={self.analysis.value!r} is for one public size, not size='at-most'; pass analysis='refined'"
            )

    @property
    def rounds(self) -> int:
        """Steps in which one given example can take part: every `cycle_length`-th."""
        return -(-self.steps // self.scheme.cycle_length)

    @property
    def only_gaussian(self) -> bool:
        """True if every step uses every example, so that only a Gaussian mechanism is left."""
        return self.scheme.sampling_probability == 1.0 and self.scheme.max_batch_size >= self.scheme.group_size

    @property
    def noiseless_exponent(self) -> float:
        """-log of the chance that no step's batch holds one given example."""
        # Plain Poisson sampling; overflows are counted apart. And of all sizes up to a largest, small ones have its rate.
        if self.analysis is Analysis.UNION or self.scheme.size is Size.AT_MOST:
            rate = self.scheme.sampling_probability
        else:
            rate = self.scheme.inclusion_probability
        return math.inf if rate >= 1.0 else -self.rounds * math.log1p(-rate)

    @property
    def overflow_exponent(self) -> float:
        """-log of the chance that no batch overflows, for the union strategy."""
        if self.analysis is not Analysis.UNION:
            return 0.0
        log_one = self.scheme.log_overflow_probability
        if log_one >= 0.0:
            return math.inf
        # Near 1 and near 0 the other formula loses the digits that matter.
        log_fits = math.log(-math.expm1(log_one)) if log_one > -0.5 else math.log1p(-math.exp(log_one))
        return -self.steps * log_fits
