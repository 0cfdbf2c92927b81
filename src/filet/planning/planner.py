"""Plans: noise, sampling probability, cap and policy that waste the least, at a privacy target.

Options are compared at equal hardware cost, `steps * max_batch_size` rows, by the noise that is
left on the mean gradient: `noise_multiplier / expected_batch_size` of one step, over the square
root of the number of steps for the run as a whole. The search over the sampling probability
calibrates roughly; the noise of its result is calibrated and certified.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .. import _checks
from .._numbers import round_down, round_up
from .._progress import Progress, reported
from .._public import public
from .._tables import WIDTH, html_table, text_table, wrapped
from ..accounting.terms import Adjacency, AdjacencyName, Analysis
from ..errors import NoSolutionError
from ..scheme import CappedPoisson
from .hardware import checked_settings
from .options import Option
from .recipes import broken
from .strategies import FIXED_SIZE, IDEAL, MICROBATCHES, SECRET, STRATEGIES, Strategy, best_option
from .target import Target


@public
@dataclass(frozen=True)
class Plan:
    """Ways to run within (epsilon, delta), the least noisy first. Made by `plan`.

    `options` ranks all of them, the unreachable ideal included; `best` is the first that gives
    every step one batch of the fixed shape and rests on the refined analysis. `skipped` says why a
    strategy is missing. Every option has its `command()`, `python()` lines and `run_file()`;
    `recipe` shows those of the best.
    """

    dataset_size: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    options: tuple[Option, ...]
    skipped: tuple[str, ...] = ()

    @cached_property
    def best(self) -> Option:
        """The least noisy option with fixed shapes and the refined analysis."""
        return next(option for option in self.options if option.recommendable)

    def option(self, name: str) -> Option:
        """The least noisy option of that name."""
        for option in self.options:
            if option.name == name:
                return option
        names = ", ".join(dict.fromkeys(repr(option.name) for option in self.options))
        raise _checks.fail(f"name={_checks.show(name)} is not in this plan; pass one of {names}")

    def table(self, width: int = WIDTH) -> str:
        """The options as plain text.

        Noise is rounded up and probabilities down, so that copied figures stay safe.

        Lines are at most `width` wide; a narrower table goes on below. `to_dict` has every figure
        of an option.
        """
        width = _checks.integer("width", width, low=20, remedy="pass the number of columns of the terminal")
        rows = [_row(option, " *" if option is self.best else "") for option in self.options]
        title = f"{self._target}; * best of fixed shape"
        skipped = (wrapped(f"skipped {reason}", width, "  ") for reason in self.skipped)
        return "\n".join([wrapped(title, width), text_table(_HEADER, rows, width), *skipped])

    def recipe(self, width: int = WIDTH) -> str:
        """The best option to copy: its command, Python lines and run file, with exact numbers."""
        best = self.best
        cost = round_up(best.epsilon, 6, zeros=True)
        title = f"{best.name}: {best.description}; epsilon {cost} at delta {self.delta!r}, {self.adjacency}"
        return "\n\n".join(
            [
                wrapped(title, width),
                broken(best.command(), width),
                f"Python:\n\n{best.python()}",
                f"Run file (filet epsilon --config FILE):\n\n{best.run_file()}",
            ]
        )

    @property
    def _target(self) -> str:
        return f"dataset_size={self.dataset_size}, epsilon={self.epsilon!r}, delta={self.delta!r}, {self.adjacency}"

    def __repr__(self) -> str:
        best = self.best
        noise = round_up(best.noise_multiplier, 6)
        return f"Plan({self._target}, options={len(self.options)}, best={best.name}: noise_multiplier={noise})"

    def _repr_html_(self) -> str:
        """The table, for notebooks, with one more column."""
        rows = [(*_row(option, ""), round_up(option.effective_noise, 4, zeros=True)) for option in self.options]
        header = (*_HEADER, "noise/example")
        return html_table(header, rows, f"{self._target}; bold: best", self.options.index(self.best))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; the options in order, `best` as its place among them."""
        return {
            "dataset_size": self.dataset_size,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency.value,
            "best": self.options.index(self.best),
            "options": [option.to_dict() for option in self.options],
            "skipped": list(self.skipped),
        }


# Several lines where the figures below are narrower than the name. What ranks and what has to be
# copied comes first, as a narrow terminal shows the last columns below.
_HEADER = (
    "option",
    "ranked by\nrun noise\nx ideal",
    "policy",
    "overflow\nchance",
    "batch",
    "steps",
    "sampling\nchance",
    "noise",
    "epsilon",
    "mean\nbatch",
    "rows\nused",
)


def _row(option: Option, star: str) -> tuple[str, ...]:
    """One line of the table, each figure rounded to the side on which it is safe to use."""
    return (
        option.name + star,
        round_up(option.ratio_to_ideal, 4, zeros=True),
        option.policy,
        round_up(option.overflow_probability, 2),
        str(option.max_batch_size),
        str(option.steps),
        round_down(option.scheme.sampling_probability, 5, zeros=True),
        round_up(option.noise_multiplier, 6, zeros=True),
        round_up(option.epsilon, 6, zeros=True),
        f"{option.expected_batch_size:.1f}",
        f"{100 * option.utilization:.1f}%",
    )


@public
def plan(
    *,
    dataset_size: int,
    max_batch_size: int | Iterable[int],
    epsilon: float,
    delta: float,
    adjacency: Adjacency | AdjacencyName,
    steps: int | Iterable[int] | None = None,
    hardware_epochs: float | None = None,
    cycle_length: int = 1,
    comparisons: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Find the sampling probability and the noise of every strategy at a target, and rank them.

    >>> plans = plan(dataset_size=60_000, max_batch_size=256, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="zero-out")
    >>> plans.best.name, round(plans.best.utilization, 2), round(plans.best.ratio_to_ideal, 2)
    ('reject', 0.95, 1.04)

    Every option meets (epsilon, delta), certified. The hardware spends the same on each: `steps`
    batches of `max_batch_size` rows. Plain Poisson sampling in microbatches takes a second batch on
    overflow, and so gets fewer steps for the same rows; the ideal would fill every row and never
    overflow, which no sampler can. The option `secret` holds for every
    number of records, `dataset_size` being a planned one; all others are for that public number.

    Guarantees: for each strategy the noise is calibrated as by `calibrate_noise_multiplier`; the
    sampling probability minimises `run_noise` to about a part in a thousand. If no strategy with
    fixed shapes meets the target, `NoSolutionError` is raised. Nothing is written anywhere, so that
    an interruption is safe.

    Arguments:
        dataset_size: number of examples.
        max_batch_size: rows that the hardware takes at once; several to compare.
        epsilon, delta, adjacency: the privacy target.
        steps: number of training steps; several to compare. Or:
        hardware_epochs: rows that the hardware processes, padding included, in data sets, so that
            steps = ceil(hardware_epochs * dataset_size / max_batch_size) and every `max_batch_size`
            costs the same.
        cycle_length: number of groups of cyclic sampling, as for `CappedPoisson`.
        comparisons: also the earlier analyses of truncated batches, `note` and `union`. They prove
            less about the same batches and cannot win, so they are skipped otherwise.
        progress: called with the share of the work done and a label.
    """
    target = Target.checked(epsilon, delta, adjacency, Analysis.REFINED)
    settings = checked_settings(dataset_size, max_batch_size, steps, hardware_epochs, cycle_length)
    if not isinstance(comparisons, bool):
        raise _checks.fail(f"comparisons={_checks.show(comparisons)} is not a bool; pass True or False")
    tries = [(*setting, strategy) for setting in settings for strategy in _tried(setting[0], comparisons)]
    options: list[Option] = []
    skipped: list[str] = [] if comparisons else [_CANNOT_WIN]
    for hardware, count, strategy in reported(tries, progress, _label):
        option = best_option(target, strategy, hardware, count)
        if option is None:
            skipped.append(
                f"{strategy.name} (batch {hardware.max_batch_size}, {count} steps): no noise meets the target"
            )
            continue
        options.append(option)
    if not any(option.recommendable for option in options):
        raise NoSolutionError(f"{target.describe()} cannot be met by any strategy; raise epsilon or delta")
    first = settings[0][0]
    ranked = _ranked(options)
    return Plan(first.dataset_size, target.epsilon, target.delta, target.adjacency, ranked, tuple(skipped))


def _ranked(options: list[Option]) -> tuple[Option, ...]:
    """Options by noise, the least first; one ideal for all, so that ratios rank as the noise."""
    ideals = [option.run_noise for option in options if option.name == IDEAL.name]
    ideal = min(ideals or [option.run_noise for option in options])
    ranked = sorted(options, key=lambda option: option.run_noise)
    return tuple(replace(option, ratio_to_ideal=option.run_noise / ideal) for option in ranked)


_TRIED = (IDEAL, *STRATEGIES, SECRET, FIXED_SIZE, MICROBATCHES)


def _tried(hardware: CappedPoisson, comparisons: bool) -> list[Strategy]:
    return [one for one in _TRIED if (comparisons or one.may_win) and one.fits(hardware)]


_CANNOT_WIN = (
    f"{' and '.join(strategy.name for strategy in _TRIED if not strategy.may_win)}: they prove less about the batches of"
    " truncate, so they cannot win; ask for comparisons to see them"
)


def _label(tried: tuple[CappedPoisson, int, Strategy]) -> str:
    hardware, count, strategy = tried
    return f"{strategy.name}, batch {hardware.max_batch_size}, {count} steps"
