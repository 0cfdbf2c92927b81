"""Comparison of one run under every policy and analysis, and with the attack on each policy.

Nothing heavy is imported at the top, so that the command line starts quickly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError, NotCertifiedError

if TYPE_CHECKING:
    from .._progress import Progress
    from ..accounting.terms import Phase
    from .run_file import RunFile

NO_CAP, ATTACK = "no cap", "attack"


def kinds() -> list[tuple[str, str]]:
    """Policy and analysis of each row: no cap, every analysis of a policy, and the attack on it."""
    from ..accounting.terms import Analysis
    from ..scheme import Overflow

    found = [(NO_CAP, Analysis.REFINED.value)]
    for policy in Overflow:
        analyses = [Analysis.REFINED] if policy is Overflow.REJECT else reversed(Analysis)
        found += [(policy.value, analysis.value) for analysis in analyses]
        found += [(policy.value, ATTACK)]
    return found


@dataclass(frozen=True)
class Comparison:
    """A run whose phases take other policies and analyses, at one delta."""

    run: RunFile
    delta: float

    def __post_init__(self) -> None:
        for phase in self.run.accountant.phases:
            if phase.scheme.size.value != "public":
                raise InvalidArgumentError(
                    f"size={phase.scheme.size.value!r} is for one policy, and policies are compared here;"
                    " drop it, or use filet epsilon"
                )

    def inputs(self, adjacencies: list[str]) -> dict[str, Any]:
        """The inputs of the answer, without those that the rows change."""
        from ..accounting.state import phase_fields

        phases = [phase_fields(phase) for phase in self.run.accountant.phases]
        for phase in phases:
            del phase["overflow"], phase["analysis"]
        if self.run.only_phase is not None:
            described = phases[0]
        else:
            described = {"phases": phases, "releases": self.run.curve.releases}
        return {**described, "delta": self.delta, "adjacency": adjacencies}

    def rows(self, adjacencies: list[str]) -> list[dict[str, Any]]:
        """A row for each policy and analysis; its epsilons are None until they are computed."""
        rows = []
        for policy, analysis in kinds():
            used = None
            with contextlib.suppress(InvalidArgumentError):  # at probability 1 reject has no batch
                used = None if policy == NO_CAP else _utilization(self._phases(policy, analysis))
            epsilons = dict.fromkeys(adjacencies)
            row = {"policy": policy, "analysis": analysis, "utilization": used, "epsilon": epsilons}
            rows.append(row)
        return rows

    def fill(self, rows: list[dict[str, Any]], progress: Progress | None, note: Callable[[str], None]) -> None:
        """Compute the epsilons of the rows, and note why one is missing."""
        from .._progress import reported

        tries = [(row, adjacency) for row in rows for adjacency in row["epsilon"]]

        def label(one: tuple[dict[str, Any], str]) -> str:
            return f"{one[0]['policy']}, {one[0]['analysis']}, {one[1]}"

        for row, adjacency in reported(tries, progress, label):
            found = self.epsilon(row["policy"], row["analysis"], adjacency, note)
            row["epsilon"][adjacency] = found

    def epsilon(
        self,
        policy: str,
        analysis: str,
        adjacency: str,
        note: Callable[[str], None] = lambda reason: None,
    ) -> float | None:
        """The certified bound, or that of the attack from below; None, with a note, without one."""
        try:
            phases = self._phases(policy, analysis)
            if analysis == ATTACK:
                return self._attack(phases, adjacency)
            return self._bound(phases, adjacency)
        except NotCertifiedError as error:
            note(str(error))
        except InvalidArgumentError as error:
            if policy != "reject":  # only reject can be impossible where the others are not
                raise
            note(str(error))
        return None

    def _phases(self, policy: str, analysis: str) -> list[Phase]:
        """The run's phases under another policy and analysis."""
        from ..accounting.terms import Analysis
        from ..scheme import Overflow

        kind = Analysis.REFINED if analysis == ATTACK else Analysis(analysis)
        phases = []
        for phase in self.run.accountant.phases:
            if policy == NO_CAP:
                whole = phase.scheme.group_size
                scheme = replace(phase.scheme, max_batch_size=whole, overflow=Overflow.TRUNCATE)
            else:
                scheme = replace(phase.scheme, overflow=Overflow(policy))
            phases.append(replace(phase, scheme=scheme, analysis=kind))
        return phases

    def _attack(self, phases: list[Phase], adjacency: str) -> float | None:
        """The lower bound that an attack proves; None for runs of several phases or releases."""
        return None if self.run.only_phase is None else attack_epsilon(phases[0], adjacency, self.delta)

    def _bound(self, phases: list[Phase], adjacency: str) -> float:
        from ..accounting.accountant import Accountant
        from ..accounting.terms import Adjacency

        accountant = Accountant(Adjacency(adjacency))
        for phase in phases:
            accountant.compose(phase.scheme, phase.noise_multiplier, phase.steps, analysis=phase.analysis)
        for sigma, count in self.run.curve.releases:
            accountant.compose_gaussian(sigma, count)
        return accountant.epsilon(self.delta)


def attack_epsilon(phase: Phase, adjacency: str, delta: float) -> float:
    """The epsilon that an explicit pair of neighbouring data sets proves to be lost."""
    from ..accounting.lower_bounds import epsilon_lower_bound
    from ..accounting.terms import Adjacency

    return epsilon_lower_bound(
        phase.scheme,
        noise_multiplier=phase.noise_multiplier,
        steps=phase.steps,
        adjacency=Adjacency(adjacency),
        delta=delta,
    )


def _utilization(phases: list[Phase]) -> float | None:
    """Share of all the phases' rows that hold examples."""
    rows = sum(max(phase.steps, 1) * phase.scheme.max_batch_size for phase in phases)
    used = sum(max(phase.steps, 1) * phase.scheme.expected_batch_size for phase in phases)
    return used / rows if rows else None
