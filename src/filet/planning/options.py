"""One way to run that meets a target, with its certified numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .._binomial import log_sf
from .._public import public
from ..accounting.terms import Analysis
from ..scheme import CappedPoisson
from . import recipes
from .target import Target


@public
@dataclass(frozen=True)
class Option:
    """One way to run that meets the target.

    name: "reject", "secret", "truncate", "note", "union", "fixed-size", "microbatches" or "ideal".
    target: the epsilon, the delta and the adjacency that the plan was asked for.
    epsilon: the certified epsilon of the run, at or below the target.
    rows_per_step: rows that the hardware processes in a step, padding included, on average.
    fixed_shape: every step is one batch of `max_batch_size` rows; `Plan.best` is such an option.
    ratio_to_ideal: `run_noise` over that of the plan's unreachable ideal, one for all options.
    """

    name: str
    description: str
    scheme: CappedPoisson
    analysis: Analysis
    noise_multiplier: float
    steps: int
    epsilon: float
    max_batch_size: int
    rows_per_step: float
    fixed_shape: bool
    ratio_to_ideal: float
    target: Target

    @property
    def recommendable(self) -> bool:
        return self.fixed_shape and self.analysis is Analysis.REFINED

    @property
    def expected_batch_size(self) -> float:
        return self.scheme.expected_batch_size

    @property
    def utilization(self) -> float:
        """Share of the hardware's rows that hold examples."""
        return self.expected_batch_size / self.rows_per_step

    @property
    def wasted_percent(self) -> float:
        """Rows of padding, in percent."""
        return 100.0 * max(0.0, 1.0 - self.utilization)

    @property
    def overflow_probability(self) -> float:
        """Chance that a Poisson draw exceeds `max_batch_size`."""
        n, p = self.scheme.group_size, self.scheme.sampling_probability
        return math.exp(log_sf(self.max_batch_size + 1, n, p))

    @property
    def effective_noise(self) -> float:
        """Noise on the mean gradient of one step, in clipping norms.

        It is `noise_multiplier / expected_batch_size`.
        """
        return self.noise_multiplier / self.expected_batch_size

    @property
    def run_noise(self) -> float:
        """Noise on the average of all the run's mean gradients: `effective_noise / sqrt(steps)`.

        Options rank by it.
        """
        return self.effective_noise / math.sqrt(self.steps)

    @property
    def hardware_rows(self) -> float:
        """Rows that the hardware processes in the whole run, on average."""
        return self.rows_per_step * self.steps

    @property
    def policy(self) -> str:
        """The policy for draws above the batch: "reject", "truncate", or "no cap"."""
        return str(self.scheme.overflow) if self.fixed_shape else "no cap"

    @property
    def _run_description(self) -> dict[str, Any]:
        """The keys of a run file for this run; without a cap it has no policy."""
        cap: dict[str, Any] = {"no_cap": True}
        if self.fixed_shape:
            cap = {"max_batch_size": self.max_batch_size, "overflow": self.scheme.overflow.value}
        run = {
            "dataset_size": self.scheme.dataset_size,
            "sampling_probability": self.scheme.sampling_probability,
            **cap,
            "cycle_length": self.scheme.cycle_length,
            "size": self.scheme.size.value,
            "noise_multiplier": self.noise_multiplier,
            "steps": self.steps,
            "delta": self.target.delta,
            "adjacency": self.target.adjacency.value,
            "analysis": self.analysis.value,
        }
        usual = {"cycle_length": 1, "size": "public", "analysis": "refined"}
        return {name: value for name, value in run.items() if usual.get(name) != value}

    def command(self) -> str:
        """The `filet epsilon` line of this run, with exact numbers: it gives `epsilon` again."""
        return recipes.command(self._run_description)

    def python(self) -> str:
        """Python lines that make the scheme, account for this run and print its epsilon."""
        return recipes.python(self._run_description)

    def run_file(self) -> str:
        """A run file of this run, with the target as its `max_epsilon`."""
        return recipes.run_file({**self._run_description, "max_epsilon": self.target.epsilon})

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "name": self.name,
            "description": self.description,
            "fixed_shape": self.fixed_shape,
            **self.scheme.to_dict(),
            "max_batch_size": self.max_batch_size,  # the hardware's: microbatches have no cap of their own
            "analysis": self.analysis.value,
            "noise_multiplier": self.noise_multiplier,
            "steps": self.steps,
            "epsilon": self.epsilon,
            "expected_batch_size": self.expected_batch_size,
            "rows_per_step": self.rows_per_step,
            "hardware_rows": self.hardware_rows,
            "utilization": self.utilization,
            "wasted_percent": self.wasted_percent,
            "overflow_probability": self.overflow_probability,
            "effective_noise": self.effective_noise,
            "run_noise": self.run_noise,
            "ratio_to_ideal": self.ratio_to_ideal,
            "policy": self.policy,
            "command": self.command(),
            "python": self.python(),
            "run_file": self.run_file(),
        }
