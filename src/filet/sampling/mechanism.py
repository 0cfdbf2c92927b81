"""The mechanism that is accounted: the noisy sum of one capped Poisson batch (the note's Algorithm 1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks
from .._public import public
from ..scheme import CappedPoisson
from .draws import normals
from .sampler import Sampler
from .streams import Purpose


@public
def noisy_sum(
    vectors: Any,
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    key: bytes | int | None,
    step: int,
    clip: bool = True,
    secure: bool = True,
) -> NDArray[np.float64]:
    """The sum of a sampled batch of rows of norm at most 1, plus Gaussian noise: Algorithm 1 of the note.

    >>> from filet.scheme import CappedPoisson
    >>> scheme = CappedPoisson(dataset_size=3, sampling_probability=1.0, max_batch_size=8)
    >>> rows = [[0.5, 0.0], [0.0, 0.5], [30.0, 40.0]]
    >>> print(noisy_sum(rows, scheme, noise_multiplier=0.0, key=1, step=0).round(6))
    [1.1 1.3]
    >>> noisy_sum(rows, scheme, noise_multiplier=2.0, key=1, step=0).shape
    (2,)

    Guarantees: the batch is `scheme.sampler(key, secure=secure)[step]`, and the noise comes from a stream of the same
    key that shares no block with any sampler's. The noise is a Gaussian in floating-point numbers: its law is
    right to about 1e-15, but the low-order bits of a result may betray more than the theorem allows, as with any
    noise added in floating point. A result for the same key and step repeats the same noise: release only one.

    Arguments:
        vectors: a matrix of finite numbers, one row per example, `dataset_size` rows.
        scheme: how the batch is drawn.
        noise_multiplier: standard deviation of the noise in each coordinate (the clipping norm is 1), finite.
        key: 16 or more secret bytes, as for `Sampler`; None draws a fresh key.
        step: which step's batch.
        clip: scale longer rows to norm 1; with False they are an error, wherever they are (whether an error
            is raised does not depend on the batch).
        secure: draw batch and noise from AES-256; False draws from Philox, which is not cryptographic.
    """
    sampler = Sampler(scheme, key, secure=secure)
    sigma = _checks.noise_multiplier(noise_multiplier)
    if math.isinf(sigma):
        raise _checks.fail("noise_multiplier=inf leaves nothing to return; pass a finite number")
    step = _checks.integer("step", step, low=0, remedy="pass a step from 0 to 2**63 - 1")
    if not isinstance(clip, (bool, np.bool_)):
        raise _checks.fail(f"clip={_checks.show(clip)} is not a bool; pass True or False")
    rows = _matrix(vectors, scheme.dataset_size)
    if not clip:
        _check_norms(rows)
    batch = sampler[step]
    total: NDArray[np.float64] = _clipped(rows[batch.indices[: batch.size]]).sum(axis=0)
    if sigma:
        total += sigma * normals(sampler.stream(Purpose.NOISE, step), total.size)
    return total


def _matrix(vectors: Any, rows: int) -> NDArray[np.float64]:
    remedy = "pass a matrix with one row per example"
    matrix = _checks.real_array("vectors", vectors, rule="finite", remedy=remedy)
    if matrix.ndim != 2:
        raise _checks.fail(f"vectors has {matrix.ndim} dimensions, not 2; {remedy}")
    if matrix.shape[0] != rows:
        raise _checks.fail(f"vectors has {matrix.shape[0]} rows, not dataset_size={rows}; {remedy}")
    if not np.isfinite(matrix).all():
        raise _checks.fail("vectors holds inf, which has no norm; pass finite numbers, clipped before they overflow")
    return matrix


def _scales_and_norms(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each row's largest magnitude, and its norm in units of that: their product is the norm, without overflow."""
    scales = np.abs(rows).max(axis=1, initial=0.0)
    scales[scales == 0.0] = 1.0
    return scales, np.sqrt(((rows / scales[:, None]) ** 2).sum(axis=1))


def _norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    scales, norms = _scales_and_norms(rows)
    with np.errstate(over="ignore"):  # an infinite norm is above 1, and that is all that is asked
        return scales * norms


def _slack(rows: NDArray[np.float64]) -> float:
    """How far rounding may move a computed norm, relative to the exact one."""
    return float(rows.shape[1] + 8) * 2.0**-52


def _check_norms(rows: NDArray[np.float64]) -> None:
    longest = float(_norms(rows).max(initial=0.0))
    if longest > 1.0 + _slack(rows):
        raise _checks.fail(
            f"vectors has a row of norm {longest:.6g}, above 1; divide by the clipping norm, or pass clip=True"
        )


def _clipped(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows longer than 1 scaled to 1, less the slack: the exact norms are at most 1, not only the computed ones."""
    room = 1.0 - _slack(rows)
    long = _norms(rows) > room
    if long.any():
        scales, norms = _scales_and_norms(rows[long])
        rows = rows.copy()
        rows[long] = rows[long] / scales[:, None] * (room / norms)[:, None]
    return rows
