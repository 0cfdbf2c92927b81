"""The accounted mechanism: the noisy sum of one capped Poisson batch (the note's Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks
from .._public import public
from ..scheme import CappedPoisson, Size
from .batch import map_leaves
from .noise import rounded_normals
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
    """The sum of a sampled batch of rows of norm at most 1, plus Gaussian noise (Algorithm 1).

    >>> from filet.scheme import CappedPoisson
    >>> scheme = CappedPoisson(dataset_size=3, sampling_probability=1.0, max_batch_size=8)
    >>> rows = [[0.5, 0.0], [0.0, 0.5], [30.0, 40.0]]
    >>> print(noisy_sum(rows, scheme, noise_multiplier=0.0, key=b"16 secret bytes!", step=0).round(6))
    [1.1 1.3]
    >>> noisy_sum(rows, scheme, noise_multiplier=2.0, key=b"16 secret bytes!", step=0).shape
    (2,)

    Guarantees: the batch is `scheme.sampler(key, secure=secure)[step]`, and the noise comes from a
    stream of the same key that shares no block with any sampler's. In exact arithmetic, adding or
    removing a row of the batch moves the sum by a vector of norm 1 at most: clipped rows are
    rounded towards zero to multiples of a power of two, which depends on `max_batch_size` and
    `noise_multiplier` alone, and added as whole numbers, in any order. The noise is a real Gaussian
    rounded to the same grid, exactly (`filet.sampling.noise`), so that the result is a rounding of
    what the ideal mechanism over the real numbers releases: its low-order bits betray nothing. A
    result for the same key and step repeats the same noise: release only one.

    Arguments:
        vectors: a matrix of finite numbers, one row per example, `dataset_size` rows; as many as there are where the
            scheme's size is not public.
        scheme: how the batch is drawn.
        noise_multiplier: standard deviation of the noise in each coordinate (the clipping norm is
            1), finite.
        key: 16 or more secret bytes, as for `Sampler`; None draws a fresh key.
        step: which step's batch.
        clip: scale longer rows to norm 1; with False they are an error, wherever they are (whether
            an error is raised does not depend on the batch).
        secure: draw batch and noise from AES-256; False draws from Philox, which is not
            cryptographic.
    """
    secret = isinstance(scheme, CappedPoisson) and scheme.size is not Size.PUBLIC
    rows = _matrix(vectors)
    sampler = Sampler(scheme, key, secure=secure, records=len(rows) if secret else None)
    sigma = _finite_noise(noise_multiplier)
    step = _checks.integer("step", step, low=0, remedy="pass a step from 0 to 2**63 - 1")
    if not isinstance(clip, (bool, np.bool_)):
        raise _checks.fail(f"clip={_checks.show(clip)} is not a bool; pass True or False")
    if not secret and len(rows) != scheme.dataset_size:
        raise _checks.fail(
            f"vectors has {len(rows)} rows, not dataset_size={scheme.dataset_size}; pass a matrix with one row per example"
        )
    if not clip:
        _check_norms(rows)
    batch = sampler[step]
    bits = _grid_bits(scheme.max_batch_size, 1.0, sigma)
    total = exact_sum(_clipped(rows[batch.indices[: batch.size]]), bits)
    return _released(total, sampler, step, Fraction(sigma), bits)


@public
def add_noise(total: Any, sampler: Sampler, *, noise_multiplier: float, step: int, clip_norm: float = 1.0) -> Any:
    """A batch's sum of clipped gradients, of any framework, plus the run's keyed Gaussian noise.

    >>> from filet.scheme import CappedPoisson
    >>> scheme = CappedPoisson(dataset_size=100, sampling_probability=0.1, max_batch_size=16)
    >>> sampler = scheme.sampler(key=b"16 secret bytes!")
    >>> total = np.array([[3.5, -1.25], [0.0, 2.0]])  # the sum of sampler[7]'s gradients, each of norm 5 or less
    >>> add_noise(total, sampler, noise_multiplier=0.0, step=7, clip_norm=5.0).tolist()
    [[3.5, -1.25], [0.0, 2.0]]
    >>> add_noise(total, sampler, noise_multiplier=1.0, step=7, clip_norm=5.0).shape
    (2, 2)
    >>> gradients = {"weight": total, "bias": np.zeros(2)}  # one sum for all the parameters of a model
    >>> {name: noisy.shape for name, noisy in add_noise(gradients, sampler, noise_multiplier=1.0, step=7).items()}
    {'weight': (2, 2), 'bias': (2,)}

    Guarantees: the noise has standard deviation `noise_multiplier * clip_norm` in each coordinate, depends on the
    sampler's key, the step and the place alone, and is independent of every batch. The result is the sum plus a real
    Gaussian, rounded to a grid, exactly: rounding comes after the noise, so that it costs no privacy. That each
    example's gradient was clipped, over all parameters together, and that the sum moves by `clip_norm` at most, is up to
    the framework: sums in floating point may move by a little more.

    Call it once a step, for all parameters and the sum over all ranks: two calls for one key and
    step add the same noise twice, and their difference has none.

    Arguments:
        total: the sum over the batch: an array of any shape of finite numbers, or nested dicts,
            lists and tuples of arrays, which come back as NumPy arrays in the same places. None
            stays None.
        sampler: where the batch came from; a shard of it gives the same noise.
        noise_multiplier: standard deviation of the noise, divided by `clip_norm`; finite.
        step: which step's batch.
        clip_norm: the largest norm of one example's gradient.
    """
    if not isinstance(sampler, Sampler):
        raise _checks.fail(f"sampler={_checks.show(sampler)} is not a Sampler; pass scheme.sampler(key)")
    sigma = _finite_noise(noise_multiplier)
    step = _checks.integer("step", step, low=0, remedy="pass a step from 0 to 2**63 - 1")
    remedy = "pass the norm that gradients are clipped to"
    norm = _checks.real("clip_norm", clip_norm, rule="in (0, inf)", remedy=remedy)
    if not 0.0 < norm < math.inf:
        raise _checks.fail(f"clip_norm={norm!r} is not in (0, inf); {remedy}")
    bits = _grid_bits(sampler.scheme.max_batch_size, norm, sigma)
    leaves: list[NDArray[np.float64]] = []
    _each_leaf(lambda leaf: leaves.append(_in_units(leaf, sampler.scheme.max_batch_size, norm, bits)), total)
    flat = np.concatenate([leaf.ravel() for leaf in leaves]) if leaves else np.zeros(0)
    noisy = _released(flat, sampler, step, Fraction(sigma) * Fraction(norm), bits)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = iter([noisy[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)])
    return _each_leaf(lambda _: next(parts), total)


def _each_leaf(function: Callable[[Any], Any], total: Any) -> Any:
    """The function of every array, in the containers that hold them.

    Lists of plain numbers are arrays themselves.
    """
    return map_leaves(function, total) if _holds_arrays(total) else function(total)


def _holds_arrays(total: Any) -> bool:
    if isinstance(total, Mapping):
        return True
    return isinstance(total, (list, tuple)) and any(hasattr(part, "shape") or _holds_arrays(part) for part in total)


def _in_units(total: Any, most: int, norm: float, bits: int) -> NDArray[np.float64]:
    """One sum in units of 2**-bits; a sum that clipped gradients cannot reach is refused."""
    values = _checks.real_array("total", total, rule="finite", remedy="pass the sum of the batch's gradients")
    largest = float(np.abs(values).max(initial=0.0))
    if not largest <= min(1.001 * most * norm, 1e308):
        raise _checks.fail(
            f"total holds {largest:.6g}, above max_batch_size * clip_norm = {most * norm:.6g};"
            " pass the sum of gradients that are clipped to clip_norm"
        )
    return np.asarray(np.ldexp(values, bits))


def clipped_sum(rows: NDArray[np.float64], most_rows: int) -> NDArray[np.float64]:
    """The sum of at most `most_rows` rows, each clipped to norm 1, for `add_noise`.

    Guarantees: one row more or less moves it by a vector of norm 1 at most, in exact arithmetic, as
    in `noisy_sum`. The order of the rows does not matter. A row that is not finite counts as zero.
    """
    finite = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    bits = _grid_bits(most_rows, 1.0, 0.0)
    return np.asarray(np.ldexp(exact_sum(_clipped(finite), bits), -bits))


def exact_sum(rows: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    """The sum of the rows in units of 2**-bits, each coordinate rounded towards zero first: whole numbers, no error.

    Rounding towards zero lengthens no row. Partial sums stay below 2**53 in size, where floats hold
    all whole numbers, so neither their order nor how NumPy adds them matters.
    """
    return np.asarray(np.trunc(np.ldexp(rows, bits)).sum(axis=0))


def _grid_bits(most_rows: int, norm: float, sigma: float) -> int:
    """Bits of the grid 2**-bits: a billionth of the clipping norm, or of the noise if larger.

    It depends on public numbers only.

    Sums of `most_rows` rows stay below 2**52 units.
    """
    # The powers of two that are not below them.
    size, spread = (math.frexp(math.nextafter(value, 0.0))[1] for value in (norm, sigma))
    return min(30 - size - max(spread, 0), 51 - size - most_rows.bit_length())


def _released(
    units: NDArray[np.float64], sampler: Sampler, step: int, spread: Fraction, bits: int
) -> NDArray[np.float64]:
    """Numbers below 2**53 in units of 2**-bits, plus Gaussians of standard deviation `spread`, rounded to whole units.

    Nothing is rounded before the noise is there: the fraction of a number is the mean of its Gaussian.
    """
    nearest = np.rint(units)
    whole = nearest.astype(np.int64)
    if spread:
        stream = sampler.stream(Purpose.NOISE, step)
        noise = rounded_normals(stream, whole.size, spread * Fraction(2) ** bits, (units - nearest).ravel())
        whole = whole + noise.reshape(whole.shape)
    with np.errstate(over="ignore"):  # noise of about 1e308 has no float but inf
        return np.asarray(np.ldexp(whole.astype(np.float64), -bits))


def _finite_noise(noise_multiplier: Any) -> float:
    sigma = _checks.noise_multiplier(noise_multiplier)
    if math.isinf(sigma):
        raise _checks.fail("noise_multiplier=inf leaves nothing to return; pass a finite number")
    return sigma


def _matrix(vectors: Any) -> NDArray[np.float64]:
    remedy = "pass a matrix with one row per example"
    matrix = _checks.real_array("vectors", vectors, rule="finite", remedy=remedy)
    if matrix.ndim != 2:
        raise _checks.fail(f"vectors has {matrix.ndim} dimensions, not 2; {remedy}")
    if not np.isfinite(matrix).all():
        raise _checks.fail("vectors holds inf, which has no norm; pass finite numbers, clipped before they overflow")
    return matrix


def _scales_and_norms(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each row's largest magnitude, and its norm in units of that.

    Their product is the norm, without overflow.
    """
    scales = np.abs(rows).max(axis=1, initial=0.0)
    scales[scales == 0.0] = 1.0  # any number: a row of zeros has norm zero in every unit
    return scales, np.sqrt(((rows / scales[:, None]) ** 2).sum(axis=1))


def _norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    scales, norms = _scales_and_norms(rows)
    with np.errstate(over="ignore"):  # an infinite norm is above 1, and that is all that is asked
        return scales * norms


def _slack(rows: NDArray[np.float64]) -> float:
    """Relative error of a computed norm."""
    return float(rows.shape[1] + 8) * 2.0**-52


def _check_norms(rows: NDArray[np.float64]) -> None:
    longest = float(_norms(rows).max(initial=0.0))
    if longest > 1.0 + _slack(rows):
        raise _checks.fail(
            f"vectors has a row of norm {longest:.6g}, above 1; divide by the clipping norm, or pass clip=True"
        )


def _clipped(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows longer than 1 scaled to 1, less the slack.

    The exact norms are at most 1, not only the computed ones.
    """
    room = 1.0 - _slack(rows)
    long = _norms(rows) > room
    if long.any():
        scales, norms = _scales_and_norms(rows[long])
        rows = rows.copy()
        rows[long] = rows[long] / scales[:, None] * (room / norms)[:, None]
    return rows
