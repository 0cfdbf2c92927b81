"""One order of the neighbours: the loss laws of all phases, and the discrete losses that bracket them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...errors import NotCertifiedError
from ...scheme import Size
from ..terms import Adjacency, Analysis, Bounds, Phase
from .cells import Cells, discretise_above, discretise_below
from .hull import ProfileNodes
from .loss_law import LossLaw
from .pmf import LossPMF
from .sizes import Bound, SecretSize, SizesUpTo
from .theorems import lending_step, loss_law

NO_RELEASE = Bounds(0.0, 0.0)
Grid = Cells | ProfileNodes


@dataclass(frozen=True)
class PhaseLaw:
    """One phase: the loss law of a step, the number of steps, and bounds of its profile at nodes.


    Nodes are there where they help. Without a law there are bounds, and nothing else.

    Proof: theory.md#profiles-and-dominating-pairs, theory.md#how-it-is-used
    """

    law: LossLaw | None
    steps: int
    step: Bound | None = None

    def reversed(self) -> PhaseLaw:
        return replace(self, law=self.law and self.law.reversed())


def phase_law(phase: Phase, adjacency: Adjacency, lenders: int) -> PhaseLaw:
    """One step of a phase by the theorems of its analysis; the refined one adds what lending proves.

    Proof: theory.md#lending, theory.md#a-secret-size, theory.md#every-size-up-to-a-largest-one
    """
    scheme, sigma = phase.scheme, phase.noise_multiplier
    if scheme.size is Size.SECRET and adjacency is Adjacency.ADD_REMOVE:
        return PhaseLaw(None, phase.rounds, SecretSize(scheme, sigma))
    if scheme.size is Size.AT_MOST and scheme.capped and phase.analysis is Analysis.REFINED:
        return PhaseLaw(None, phase.rounds, SizesUpTo(scheme, sigma, adjacency, lenders))
    law = loss_law(scheme, sigma, adjacency, phase.analysis)
    refined = phase.analysis is Analysis.REFINED
    step = lending_step(scheme, sigma, adjacency, lenders) if refined else None
    return PhaseLaw(law, phase.rounds, step)


@dataclass(frozen=True)
class Pair:
    """A dominating pair of the run: phases, and Gaussian releases whose total squared shift is within `gaussian`.

    Proof: theory.md#profiles-and-dominating-pairs
    """

    phases: tuple[PhaseLaw, ...]
    gaussian: Bounds = NO_RELEASE
    symmetric: bool = False  # both orders have the same profile
    backward: bool = False

    @cached_property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def reversed(self) -> Pair:
        """The pair with P and Q exchanged."""
        phases = tuple(phase.reversed() for phase in self.phases)
        return Pair(phases, self.gaussian, self.symmetric, not self.backward)

    def pmf(self, grids: Sequence[Grid], *, above: bool, negligible: float) -> LossPMF:
        """The composed loss on the given grids: a dominating one from above, a dominated one from below.

        The law on nodes of a profile is itself what is bounded, from both sides; losses of which no
        step exceeds the last one with a chance above `negligible` are left out of it.

        Proof: engine.md#two-discrete-losses-around-the-true-one
        """
        discretise = discretise_above if above else discretise_below
        laws = []
        for grid, phase in zip(grids, self.phases, strict=True):
            if isinstance(grid, ProfileNodes):
                if grid.step is not phase.step or grid.backward is not self.backward:
                    raise NotCertifiedError("the nodes belong to another step; please report these parameters")
                laws.append((grid.discretised(negligible), phase.steps))
            else:
                if grid.law != phase.law:
                    raise NotCertifiedError("the cells belong to another law; please report these parameters")
                laws.append((discretise(grid), phase.steps))
        return LossPMF(laws, self.gaussian.upper if above else self.gaussian.lower, above)
