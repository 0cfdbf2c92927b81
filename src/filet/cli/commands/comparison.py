"""The command `compare`: every policy and analysis of a run, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ...errors import InvalidArgumentError, NotCertifiedError
from ..group import Command
from ..options import (
    ADJACENCIES,
    ANALYSES,
    OVERFLOWS,
    RUN_NEEDS,
    config_option,
    delta_option,
    json_option,
    required,
    run_from,
    run_options,
)
from ..output import note, print_json, print_table, progress_bar, warn_of_delta

if TYPE_CHECKING:
    from ..._progress import Progress
    from ...accounting.terms import Phase
    from ..run_file import RunFile


@click.command(cls=Command)
@run_options
@delta_option
@click.option(
    "--adjacency",
    type=click.Choice([*ADJACENCIES, "all"]),
    multiple=True,
    help="Which data sets are neighbours; may be repeated, or all (no default).",
)
@config_option
@json_option
def compare(as_json: bool, adjacency: tuple[str, ...], **options: Any) -> None:
    """Epsilon of every policy and analysis, side by side.

    The row "no cap" is plain Poisson sampling with batches of any size. The rows "attack" are lower bounds: explicit
    neighbouring data sets prove that at least this much is lost. With --config, every phase of the file is changed to
    the row's policy and analysis; --adjacency then adds to the question.
    """
    for name, why in (("overflow", "compare shows both policies"), ("no_cap", "compare has a row for it")):
        if options.get(name) is not None:
            raise InvalidArgumentError(f"{name} has no place here: {why}; drop it")
    if not options["config"]:
        required({**options, "adjacency": adjacency or None}, *RUN_NEEDS, "delta")
    first = {} if options["config"] else {"adjacency": ADJACENCIES[1]}  # any: each row has its own
    run = run_from({**options, **first}, "delta")
    asked = adjacency or (run.accountant.adjacency.value,)
    wanted = list(ADJACENCIES) if "all" in asked else list(dict.fromkeys(asked))
    question = Comparison(run, float(run.delta or 0.0))
    with progress_bar("accounting") as progress:
        rows = question.rows(wanted, progress)
    if as_json:
        print_json("compare", {**question.inputs(), "delta": question.delta, "adjacency": wanted}, rows)
    else:
        names = [name.replace("-", "-\n") for name in wanted]
        print_table(["policy", "analysis", "rows\nused", *names], [_compared(row) for row in rows])
    if not question.attackable:
        note("attacks are not computed: only for runs of one phase without Gaussian releases")
    warn_of_delta(question.delta, *run.sizes)


def _compared(row: dict[str, Any]) -> list[str]:
    """A line of the table: attacks are lower bounds and rounded down."""
    from ..._numbers import round_down, round_up

    attack = row["analysis"] == "attack"
    used = "-" if row["utilization"] is None else f"{100 * row['utilization']:.1f} %"
    figures = []
    for value in row["epsilon"].values():
        shown = "-" if value is None else (round_down if attack else round_up)(value, zeros=True)
        figures.append("none found" if attack and value == 0.0 else shown)
    return [row["policy"], row["analysis"], used, *figures]


@dataclass(frozen=True)
class Comparison:
    """A run whose phases are given other policies and analyses, at one delta."""

    run: RunFile
    delta: float

    @property
    def attackable(self) -> bool:
        return len(self.run.accountant.phases) == 1 and not self.run.curve.gaussian

    def inputs(self) -> dict[str, Any]:
        """What is compared, without what the rows change."""
        from ...accounting.state import phase_fields

        left_out = ("overflow", "analysis")
        phases = [{key: value for key, value in phase_fields(phase).items() if key not in left_out}
                  for phase in self.run.accountant.phases]  # fmt: skip
        return phases[0] if self.attackable else {"phases": phases, "releases": self.run.curve.releases}

    def rows(self, wanted: list[str], progress: Progress | None) -> list[dict[str, Any]]:
        """A row for each policy and analysis, with an epsilon for each adjacency; None where there is none."""
        from ..._progress import reported

        rows: list[dict[str, Any]] = [
            {"policy": policy, "analysis": analysis, "utilization": None, "epsilon": dict.fromkeys(wanted)}
            for policy, analysis in kinds()
        ]
        tries = [(row, adjacency) for row in rows for adjacency in wanted]
        for row, adjacency in reported(
            tries, progress, lambda one: f"{one[0]['policy']}, {one[0]['analysis']}, {one[1]}"
        ):
            try:
                phases = self.phases(row["policy"], row["analysis"])
                row["utilization"] = None if row["policy"] == "no cap" else utilization(phases)
                row["epsilon"][adjacency] = self.epsilon(phases, adjacency, attack=row["analysis"] == "attack")
            except NotCertifiedError as error:
                note(str(error))
            except InvalidArgumentError as error:
                if row["policy"] != "reject":  # only reject can be impossible where the others are not
                    raise
                note(str(error))
        return rows

    def phases(self, policy: str, analysis: str) -> list[Phase]:
        """The run's phases under another policy and analysis."""
        from ...accounting.terms import Analysis
        from ...scheme import Overflow

        kind = Analysis.REFINED if analysis == "attack" else Analysis(analysis)
        if policy == "no cap":
            schemes = [replace(phase.scheme, max_batch_size=phase.scheme.group_size, overflow=Overflow.TRUNCATE)
                       for phase in self.run.accountant.phases]  # fmt: skip
        else:
            schemes = [replace(phase.scheme, overflow=Overflow(policy)) for phase in self.run.accountant.phases]
        pairs = zip(self.run.accountant.phases, schemes, strict=True)
        return [replace(phase, scheme=scheme, analysis=kind) for phase, scheme in pairs]

    def epsilon(self, phases: list[Phase], adjacency: str, *, attack: bool) -> float | None:
        """The certified bound of these phases, or what an attack proves to be lost; None where no attack is known."""
        from ...accounting.accountant import Accountant
        from ...accounting.lower_bounds import epsilon_lower_bound
        from ...accounting.terms import Adjacency

        if attack:
            if not self.attackable:
                return None
            [phase] = phases
            return epsilon_lower_bound(phase.scheme, noise_multiplier=phase.noise_multiplier, steps=phase.steps,
                                       adjacency=Adjacency(adjacency), delta=self.delta)  # fmt: skip
        accountant = Accountant(Adjacency(adjacency))
        for phase in phases:
            accountant.compose(phase.scheme, phase.noise_multiplier, phase.steps, analysis=phase.analysis)
        for sigma, count in self.run.curve.releases:
            accountant.compose_gaussian(sigma, count)
        return accountant.epsilon(self.delta)


def utilization(phases: list[Phase]) -> float | None:
    """Share of all the phases' rows that hold examples."""
    weights = [max(phase.steps, 1) for phase in phases]
    rows = sum(weight * phase.scheme.max_batch_size for weight, phase in zip(weights, phases, strict=True))
    used = sum(weight * phase.scheme.expected_batch_size for weight, phase in zip(weights, phases, strict=True))
    return used / rows if rows else None


def kinds() -> list[tuple[str, str]]:
    """Policy and analysis of each row: no cap at all, every analysis that a policy has, and the attack on it."""
    found = [("no cap", "refined")]
    for policy in OVERFLOWS:
        analyses = reversed(ANALYSES) if policy == "truncate" else ("refined",)
        found += [(policy, analysis) for analysis in (*analyses, "attack")]
    return found
