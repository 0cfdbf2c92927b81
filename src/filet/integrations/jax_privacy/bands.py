# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""The privacy of banded matrix noise (BandMF) on cyclic capped batches."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from filet import _checks
from filet.accounting.accountant import account
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, AdjacencyName, Analysis, AnalysisName
from filet.errors import InvalidArgumentError
from filet.scheme import CappedPoisson

_CONVENTIONS = ("before-mixing", "jax-privacy")


def account_banded(
    scheme: CappedPoisson,
    strategy: ArrayLike,
    *,
    noise_multiplier: float,
    noise_convention: Literal["before-mixing", "jax-privacy"] | None = None,
    steps: int,
    adjacency: Adjacency | AdjacencyName,
    analysis: Analysis | AnalysisName = Analysis.REFINED,
) -> PrivacyCurve:
    """The privacy of a run with banded matrix noise (BandMF) on cyclic capped batches.

    >>> scheme = CappedPoisson(60_000, 0.02, 300, overflow="reject", cycle_length=4)
    >>> curve = account_banded(scheme, [0.8, 0.4, 0.4, 0.2], noise_multiplier=1.0, noise_convention="before-mixing",
    ...                        steps=2_000, adjacency="zero-out")
    >>> from filet import round_up
    >>> round_up(curve.epsilon(1e-6), 4)
    '3.151'

    Guarantees: the reduction of Choquette-Choo et al. (2024): with at most `cycle_length` bands an example's steps use
    disjoint rows of the strategy, so the run costs at most `ceil(steps / cycle_length)` ordinary steps on one group,
    with the noise divided by the largest column norm. More bands than that are an error.

    Arguments:
        scheme: how batches are drawn; `cycle_length` at least the number of bands.
        strategy: the matrix C of JAX Privacy, whose inverse mixes the noise: a lower triangular matrix with `steps`
            rows, or the first column of a Toeplitz one (its coefficients).
        noise_multiplier: standard deviation of the noise before mixing, divided as the convention says.
        noise_convention: what the noise was divided by; there is no default, as the two differ by much. "before-mixing":
            by the clipping norm. "jax-privacy": by the clipping norm and the strategy's largest column norm, as the
            `noise_multiplier` of JAX Privacy's `BandMFExecutionPlanConfig` is, and that of its plan's `dp_event`.
        steps: number of training steps.
        adjacency: "add-remove", "zero-out" or "replace-one".
        analysis: as for `filet.account`.
    """
    sigma = _checks.noise_multiplier(noise_multiplier)
    if noise_convention not in _CONVENTIONS:
        raise InvalidArgumentError(
            f"noise_convention={_checks.show(noise_convention)} does not say what noise_multiplier is relative to; pass"
            " 'before-mixing' (the clipping norm) or 'jax-privacy' (that times the largest column norm)"
        )
    steps = _checks.step_count(steps)
    bands, norm = _bands_and_norm(strategy, steps)
    if not isinstance(scheme, CappedPoisson) or bands > scheme.cycle_length:
        raise InvalidArgumentError(
            f"strategy has {bands} bands, more than the scheme's cycle_length={getattr(scheme, 'cycle_length', None)}; set"
            " cycle_length to the number of bands"
        )
    if noise_convention == "before-mixing":
        sigma = sigma / norm * (1.0 - 1e-12)  # rounding of the norm must not make the noise larger than it is
    return account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency, analysis=analysis)


def _bands_and_norm(strategy: ArrayLike, steps: int) -> tuple[int, float]:
    remedy = "pass a lower triangular matrix with one row per step, or Toeplitz coefficients"
    matrix = _checks.real_array("strategy", strategy, rule="finite", remedy=remedy)
    if not np.isfinite(matrix).all() or matrix.ndim not in (1, 2) or not matrix.any():
        raise _checks.fail(f"strategy of shape {matrix.shape} is not a finite matrix other than zero; {remedy}")
    if matrix.ndim == 1:
        return int(np.flatnonzero(matrix)[-1]) + 1, float(np.linalg.norm(matrix))
    if matrix.shape != (steps, steps) or np.triu(matrix, 1).any():
        raise _checks.fail(
            f"strategy of shape {matrix.shape} is not lower triangular with steps={steps} rows; {remedy}"
        )
    rows, columns = np.nonzero(matrix)
    return int((rows - columns).max()) + 1, float(np.linalg.norm(matrix, axis=0).max())
