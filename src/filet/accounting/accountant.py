"""Accountants: `account` for one scheme, `Accountant` for several phases, `PrivacyCurve` for the answers."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import replace
from typing import Any, overload

from .. import _checks
from .._checks import Number, Numbers
from .._public import public
from ..errors import InvalidArgumentError, StateError
from ..scheme import CappedPoisson, Size, SizeName
from .curve import PrivacyCurve
from .proving.loss_law import Array
from .state import as_state, check_steps, from_state, read_state, sealed, unsealed, upgraded, write_state
from .terms import Adjacency, AdjacencyName, Analysis, AnalysisName, Phase


@public
def account(
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    steps: int | None = None,
    epochs: float | None = None,
    adjacency: Adjacency | AdjacencyName,
    analysis: Analysis | AnalysisName = Analysis.REFINED,
) -> PrivacyCurve:
    """The privacy of `steps` training steps that each release a noisy sum over a capped Poisson batch.

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject")
    >>> curve = account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    >>> from filet import round_up
    >>> round_up(curve.epsilon(delta=1e-5), 4)  # an upper bound is never rounded down
    '2.741'

    Arguments:
        scheme: how batches are drawn.
        noise_multiplier: standard deviation of the Gaussian noise on the sum, divided by the clipping norm.
        steps: number of training steps. Or:
        epochs: passes over the data, by expected draws before the cap (`scheme.steps_of_epochs`).
        adjacency: "add-remove", "zero-out" or "replace-one".
        analysis: "refined" (the default, the tightest), or, to compare, "swap" (Theorem 2 alone), "note" (Theorems 3.1, 3.3 and 3.4 of
            Ganesh, 2025) or "union" (plain Poisson plus the chance of any overflow).
    """
    accountant = Accountant(adjacency)
    accountant.compose(scheme, noise_multiplier, steps, epochs=epochs, analysis=analysis)
    return accountant.curve()


@public
class Accountant:
    """Adds up the privacy of a run's phases, with different schemes, rates and noise.

    >>> accountant = Accountant("zero-out")
    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    >>> accountant.compose(scheme, noise_multiplier=1.0, steps=1_000)
    >>> accountant.compose_gaussian(noise_multiplier=5.0)
    >>> from filet import round_up
    >>> round_up(accountant.epsilon(delta=1e-5), 3)
    '1.05'

    Under add-remove adjacency the guarantee is for data sets of one public size (`dataset_size`, the larger of the two
    neighbours), so all schemes must agree on it.
    """

    def __init__(self, adjacency: Adjacency | AdjacencyName) -> None:
        self.adjacency = _checks.choice("adjacency", adjacency, Adjacency)
        self._phases: list[Phase] = []
        self._releases: dict[float, int] = {}
        self._secret_size = False  # whether some release treats the number of records as private
        self._curve: PrivacyCurve | None = None
        # Threads may share an accountant: what was composed and the curve of it change together.
        self._lock = threading.RLock()

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The composed phases, in order; equal neighbours are merged."""
        return tuple(self._phases)

    @property
    def dataset_size(self) -> int | None:
        """The public data set size that the guarantee is for; None before the first scheme."""
        return self._phases[0].scheme.dataset_size if self._phases else None

    def compose(
        self,
        scheme: CappedPoisson,
        noise_multiplier: float,
        steps: int | None = None,
        *,
        epochs: float | None = None,
        analysis: Analysis | AnalysisName = Analysis.REFINED,
    ) -> None:
        """Add `steps` training steps, or those of `epochs` passes over the data (`scheme.steps_of_epochs`)."""
        if not isinstance(scheme, CappedPoisson):
            raise _checks.fail(f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
        phase = Phase(
            scheme,
            _checks.noise_multiplier(noise_multiplier),
            scheme.checked_steps(steps, epochs),
            _checks.choice("analysis", analysis, Analysis),
        )
        with self._lock:
            self._append(phase)

    def _append(self, phase: Phase) -> None:
        """Keep a phase, merged with the one before if they are equal."""
        scheme = phase.scheme
        self._check_secrecy(scheme, self._secret_size)
        if (
            self.adjacency is Adjacency.ADD_REMOVE
            and self.dataset_size is not None
            and scheme.dataset_size != self.dataset_size
        ):
            raise InvalidArgumentError(
                f"dataset_size={scheme.dataset_size} differs from the {self.dataset_size} of earlier phases, which"
                " add-remove adjacency does not allow; use one size, or adjacency='zero-out'"
            )
        same = self._phases and replace(self._phases[-1], steps=phase.steps) == phase and scheme.cycle_length == 1
        if same:  # merged, with as many steps as one phase may have
            self._phases[-1] = replace(phase, steps=_checks.step_count(self._phases[-1].steps + phase.steps))
        else:
            self._phases.append(phase)
        self._curve = None

    def _check_secrecy(self, scheme: CappedPoisson, secret: bool) -> None:
        """Refuse a phase for one public size beside releases that treat the number of records as private."""
        if secret and self.adjacency is Adjacency.ADD_REMOVE and scheme.size is Size.PUBLIC:
            raise InvalidArgumentError(
                "size='public' under add-remove is a guarantee for a known number of records, and does not compose with"
                " releases that treat it as private; use CappedPoisson(..., overflow='reject', size='secret')"
            )

    def compose_gaussian(self, noise_multiplier: float, count: int = 1, *, size: Size | SizeName = Size.PUBLIC) -> None:
        """Add `count` plain Gaussian releases; the noise is relative to their sensitivity under this adjacency.

        >>> accountant = Accountant("add-remove")
        >>> accountant.compose(CappedPoisson(1_000, 0.01, 16, overflow="reject", size="secret"), 1.0, 100)
        >>> accountant.compose_gaussian(noise_multiplier=20.0, size="secret")  # a noisy number of records
        >>> accountant.compose(CappedPoisson(1_000, 0.01, 16), 1.0, 100)
        Traceback (most recent call last):
        ...
        filet.InvalidArgumentError: size='public' under add-remove is a guarantee for a known number of records, ...

        Arguments:
            noise_multiplier: of the noise, relative to the sensitivity.
            count: number of releases.
            size: "secret" for releases that treat the number of records as private, such as a noisy count. Under
                add-remove they compose with phases whose size is not public, and are refused beside others.
        """
        sigma = _checks.noise_multiplier(noise_multiplier)
        count = _checks.integer("count", count, low=0, remedy="pass the number of releases")
        secret = _checks.choice("size", size, Size) is not Size.PUBLIC
        with self._lock:
            for phase in self._phases:
                self._check_secrecy(phase.scheme, secret)
            self._secret_size |= secret
            self._curve = None
            if count and sigma < math.inf:
                # Kept one by one, so that nothing is rounded and the order does not matter.
                self._releases[sigma] = _checks.step_count(self._releases.get(sigma, 0) + count, "count")

    def curve(self) -> PrivacyCurve:
        """The privacy of everything composed so far."""
        with self._lock:
            if self._curve is None:
                self._curve = PrivacyCurve(self._phases, sorted(self._releases.items()), self.adjacency)
            return self._curve

    @overload
    def epsilon(self, delta: Number) -> float: ...
    @overload
    def epsilon(self, delta: Numbers) -> Array: ...
    def epsilon(self, delta: Number | Numbers) -> float | Array:
        """Certified upper bound of epsilon at delta; a float, or an array for an array."""
        return self.curve().epsilon(delta)

    @overload
    def delta(self, epsilon: Number) -> float: ...
    @overload
    def delta(self, epsilon: Numbers) -> Array: ...
    def delta(self, epsilon: Number | Numbers) -> float | Array:
        """Certified upper bound of delta at epsilon; a float, or an array for an array."""
        return self.curve().delta(epsilon)

    def __repr__(self) -> str:
        steps = sum(phase.steps for phase in self._phases)
        return (
            f"Accountant({self.adjacency}, dataset_size={self.dataset_size}, phases={len(self._phases)}, steps={steps})"
        )

    def __eq__(self, other: object) -> bool:
        """True if both hold the same: adjacency, phases and releases."""
        return self.state_dict() == other.state_dict() if isinstance(other, Accountant) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes as it is used

    def __reduce__(self) -> tuple[Any, ...]:
        return Accountant.from_state_dict, (self.state_dict(),)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as plain JSON types."""
        with self._lock:
            return as_state(self.adjacency, self._phases, sorted(self._releases.items()), self._secret_size)

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Accountant:
        """The inverse of `state_dict`; a damaged state raises `StateError`."""
        adjacency, phases, releases = from_state(state)
        accountant = cls(adjacency)
        try:
            for scheme, sigma, steps, analysis in phases:
                accountant.compose(scheme, sigma, steps, analysis=analysis)
            for sigma, count in releases:
                accountant.compose_gaussian(sigma, count)
            if state.get("secret_size") is True:
                accountant.compose_gaussian(math.inf, 0, size=Size.SECRET)
        except InvalidArgumentError as error:
            raise StateError(f"the accountant state is invalid: {error}") from None
        if accountant.state_dict() != upgraded(state):  # a field that would be read as something else, or not at all
            raise StateError("the accountant state is not as save() writes it; restore it from a backup")
        return accountant

    def save(self, path: str | os.PathLike[str], key: bytes | int | None = None) -> None:
        """Write the state to a JSON file, whole or not at all; with the run's key it is sealed against changes."""
        state = self.state_dict()
        write_state(state if key is None else sealed(state, key), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], key: bytes | int | None = None, least_steps: int = 0) -> Accountant:
        """Restore what `save` wrote; a damaged file raises `StateError`.

        With the key that `save` was given, so does a file that anybody without the key has changed. An older file in
        the newest one's place is noticed if it holds fewer than `least_steps` training steps.
        """
        accountant = cls.from_state_dict(unsealed(read_state(path), key))
        check_steps(accountant.phases, least_steps)
        return accountant
