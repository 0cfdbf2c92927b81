# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""filet as an Opacus accountant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from filet import _checks
from filet.accounting.accountant import Accountant, account
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, AdjacencyName, Analysis, AnalysisName
from filet.errors import FiletError, InvalidArgumentError, StateError
from filet.scheme import CappedPoisson

from .._frameworks import needed_for

with needed_for("opacus"):
    from opacus.accountants import IAccountant
    from opacus.optimizers import DPOptimizer


class CappedAccountant(IAccountant):
    """filet as an Opacus accountant: counts optimizer steps, and knows how their batches were drawn.

    >>> scheme = CappedPoisson(dataset_size=60_000, sampling_probability=256 / 60_000, max_batch_size=300)
    >>> accountant = CappedAccountant(scheme, adjacency="zero-out")
    >>> for _ in range(100):
    ...     accountant.step(noise_multiplier=1.0, sample_rate=scheme.sampling_probability)
    >>> from filet import round_up
    >>> len(accountant), round_up(accountant.get_epsilon(delta=1e-5), 3)
    (100, '0.293')

    Arguments:
        scheme: how batches are drawn.
        adjacency: "add-remove", "zero-out" or "replace-one".
        analysis: "refined" (the default, the tightest), or, to compare, "swap" (Theorem 2 alone), "note" (Ganesh, 2025)
            or "union" (plain Poisson plus the chance of any overflow).
    """

    def __init__(
        self,
        scheme: CappedPoisson,
        *,
        adjacency: Adjacency | AdjacencyName,
        analysis: Analysis | AnalysisName = Analysis.REFINED,
    ) -> None:
        super().__init__()
        account(scheme, noise_multiplier=1.0, steps=0, adjacency=adjacency, analysis=analysis)  # checks all three
        self.scheme = scheme
        self.adjacency = _checks.choice("adjacency", adjacency, Adjacency)
        self.analysis = _checks.choice("analysis", analysis, Analysis)

    @classmethod
    def mechanism(cls) -> str:
        return "filet"

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step with this noise; `sample_rate` must be the scheme's sampling probability."""
        entry = (_checks.noise_multiplier(noise_multiplier), sample_rate, 1)
        self._check(entry)
        if self.history and self.history[-1][0] == entry[0]:
            entry = (*entry[:2], self.history.pop()[2] + 1)
        self.history.append(entry)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """The hook that counts a step; Opacus's guess of the rate, from the loader's length, is not used."""

        def count(optimizer: DPOptimizer) -> None:
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=self.scheme.sampling_probability)

        return count

    def curve(self) -> PrivacyCurve:
        """The privacy of all steps so far."""
        total = Accountant(self.adjacency)
        for entry in self.history:
            self._check(entry)
            total.compose(self.scheme, entry[0], entry[2], analysis=self.analysis)
        return total.curve()

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Certified upper bound of epsilon for the steps so far."""
        return float(self.curve().epsilon(delta))

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    def state_dict(self, destination: Any = None) -> Any:
        """Opacus's state, with the scheme, the adjacency and the analysis."""
        state = super().state_dict(destination)
        state.update(self._identity())
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a saved state; one of another scheme, adjacency or analysis raises `StateError`."""
        try:
            for name, value in self._identity().items():
                if state_dict[name] != value:
                    raise StateError(
                        f"the state has {name}={state_dict[name]}, not {value}; load it into an accountant with the same {name}"
                    )
            history = [
                (_checks.noise_multiplier(s), rate, _checks.step_count(n)) for s, rate, n in state_dict["history"]
            ]
            for entry in history:
                self._check(entry)
            super().load_state_dict({**state_dict, "history": history})
        except StateError:
            raise
        except (KeyError, TypeError, ValueError, FiletError):
            raise StateError("the state is damaged or not filet's; pass what state_dict() returned") from None

    def _identity(self) -> dict[str, str]:
        return {"scheme": repr(self.scheme), "adjacency": self.adjacency.value, "analysis": self.analysis.value}

    def _check(self, entry: tuple[float, float, int]) -> None:
        if entry[1] != self.scheme.sampling_probability:
            raise InvalidArgumentError(
                f"sample_rate={_checks.show(entry[1])} is not the scheme's"
                f" sampling_probability={self.scheme.sampling_probability}; use the loader that make_private returned"
            )
