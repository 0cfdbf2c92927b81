# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Capped Poisson batches for JAX Privacy: a batch selection strategy, and the accounting of banded noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from filet import _checks
from filet.accounting.accountant import account
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, Analysis
from filet.errors import InvalidArgumentError, MissingExtraError
from filet.scheme import CappedPoisson

try:
    from jax_privacy import batch_selection
except ImportError as error:
    raise MissingExtraError("JAX Privacy is not installed; run: pip install 'filet[jax-privacy]'") from error


@dataclass(frozen=True)
class CappedPoissonSelection(batch_selection.BatchSelectionStrategy):
    """A JAX Privacy batch selection strategy that yields index arrays of one shape, padded with -1.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8, overflow="reject")
    >>> strategy = CappedPoissonSelection(scheme, iterations=2)
    >>> for indices in strategy.batch_iterator(10, rng=7):
    ...     print(indices, is_padding_example(indices).sum())
    [ 0  1  2  4  8  9 -1 -1] 2
    [ 0  3  4  7 -1 -1 -1 -1] 4

    Guarantees: the batches are those of `scheme.sampler`. Pass `is_padding_example(indices)` to JAX Privacy's clipped
    functions, which make the gradients of padding zero.

    Arguments:
        scheme: how batches are drawn. `cycle_length` is JAX Privacy's; its `sampling_prob` is `sampling_probability`.
        iterations: number of batches.
    """

    scheme: CappedPoisson
    iterations: int

    def __post_init__(self) -> None:
        if not isinstance(self.scheme, CappedPoisson):
            raise InvalidArgumentError(
                f"scheme={_checks.show(self.scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)"
            )
        object.__setattr__(self, "iterations", _checks.step_count(self.iterations, "iterations"))

    def batch_iterator(self, num_examples: int, rng: Any = None) -> Iterator[NDArray[np.signedinteger[Any]]]:
        """Yield the index arrays of all batches.

        Arguments:
            num_examples: must be the scheme's `dataset_size`.
            rng: a NumPy generator, from which a key is drawn; or the key itself, as for `filet.Sampler`; or None.
        """
        if num_examples != self.scheme.dataset_size:
            raise InvalidArgumentError(
                f"num_examples={_checks.show(num_examples)} is not scheme.dataset_size={self.scheme.dataset_size}; pass"
                " the data set that the scheme was made for"
            )
        sampler = self.scheme.sampler(rng.bytes(32) if isinstance(rng, np.random.Generator) else rng)
        return (batch.indices for batch in sampler.batches(self.iterations))


def is_padding_example(indices: ArrayLike) -> NDArray[np.bool_]:
    """True where an index is padding, for the argument of that name of JAX Privacy's clipped functions."""
    return np.asarray(indices) < 0


def account_banded(
    scheme: CappedPoisson,
    strategy: ArrayLike,
    *,
    noise_multiplier: float,
    steps: int,
    adjacency: Adjacency | str,
    analysis: Analysis | str = Analysis.REFINED,
) -> PrivacyCurve:
    """The privacy of a run with banded matrix noise (BandMF) on cyclic capped batches.

    >>> scheme = CappedPoisson(60_000, 0.02, 300, overflow="reject", cycle_length=4)
    >>> curve = account_banded(scheme, [0.8, 0.4, 0.4, 0.2], noise_multiplier=1.0, steps=2_000, adjacency="zero-out")
    >>> round(curve.epsilon(1e-6), 3)
    3.15

    Guarantees: the reduction of Choquette-Choo et al. (2024): with at most `cycle_length` bands an example's steps use
    disjoint rows of the strategy, so the run costs at most `ceil(steps / cycle_length)` ordinary steps on one group,
    with the noise divided by the largest column norm. More bands than that are an error.

    Arguments:
        scheme: how batches are drawn; `cycle_length` at least the number of bands.
        strategy: the matrix C of JAX Privacy, whose inverse mixes the noise: a lower triangular matrix with `steps`
            rows, or the first column of a Toeplitz one (its coefficients).
        noise_multiplier: standard deviation of the noise before mixing, divided by the clipping norm.
        steps: number of training steps.
        adjacency: "add-remove", "zero-out" or "replace-one".
        analysis: as for `filet.account`.
    """
    sigma = _checks.noise_multiplier(noise_multiplier)
    steps = _checks.step_count(steps)
    bands, norm = _bands_and_norm(strategy, steps)
    if not isinstance(scheme, CappedPoisson) or bands > scheme.cycle_length:
        raise InvalidArgumentError(
            f"strategy has {bands} bands, more than the scheme's cycle_length={getattr(scheme, 'cycle_length', None)}; set"
            " cycle_length to the number of bands"
        )
    effective = sigma / norm * (1.0 - 1e-12)  # the norm's last bits must not make the noise look larger than it is
    return account(scheme, noise_multiplier=effective, steps=steps, adjacency=adjacency, analysis=analysis)


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
