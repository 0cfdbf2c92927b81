# mypy: disable-error-code="import-not-found", allow-subclassing-any
"""Capped Poisson batches for JAX: a sampler that runs inside `jax.jit`, and host batches as fixed-shape arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from filet import _checks
from filet.errors import InvalidArgumentError, MissingExtraError
from filet.sampling.sampler import Sampler
from filet.sampling.size_law import size_law
from filet.scheme import CappedPoisson

try:
    import jax
    import jax.numpy as jnp
    from jax import lax
except ImportError as error:
    raise MissingExtraError("JAX is not installed; run: pip install 'filet[jax]'") from error

_LARGEST = 2**31 - 1


def device_sampler(scheme: CappedPoisson) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """A function `draw(key, step)` that draws a capped batch on the device, inside `jax.jit` if you like.

    >>> scheme = CappedPoisson(dataset_size=1000, sampling_probability=0.005, max_batch_size=8)
    >>> draw = jax.jit(device_sampler(scheme))
    >>> indices, mask = draw(jax.random.key(0), 3)
    >>> indices.shape, mask.shape, bool((indices >= 0).sum() == mask.sum())
    ((8,), (8,), True)

    Guarantees: for ideal random bits, the law is the scheme's: sizes to a chance of 2**-64, and given the size every set
    of examples is exactly equally likely (integers are drawn by rejection, duplicates are drawn again). Examples come
    first, ascending; padding is -1. Batches of different keys or steps are independent. A draw costs O(B log B) time and
    O(B) memory for B = `max_batch_size`, whatever the size of the data set, in one compilation.

    The batches differ from `scheme.sampler`'s, and their secrecy is that of the `jax.random` key: JAX's default
    generator has 64-bit keys and is not cryptographic. Draw the key's seed from `secrets`, not from a small number. With
    `cycle_length = b`, step t draws from the examples i with i mod b = t mod b (the last `dataset_size % b` are
    left out): a fixed partition, as private as a random one. Shuffle the data set once if its order has a period.

    Arguments:
        scheme: how batches are drawn; at most 2**31 - 1 examples.
    """
    if not isinstance(scheme, CappedPoisson):
        raise InvalidArgumentError(
            f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)"
        )
    if scheme.dataset_size > _LARGEST:
        raise InvalidArgumentError(
            f"dataset_size={scheme.dataset_size} is above 2**31 - 1, the largest index; use scheme.sampler on the host"
        )
    rows, most = scheme.max_batch_size, min(scheme.max_batch_size, scheme.group_size)
    law = size_law(scheme)
    high = np.asarray(law.thresholds >> np.uint64(32), dtype=np.uint32)
    low = np.asarray(law.thresholds & np.uint64(0xFFFFFFFF), dtype=np.uint32)

    def draw(key: jax.Array, step: Any = 0) -> tuple[jax.Array, jax.Array]:
        step = jnp.asarray(step, jnp.uint32)
        for_size, for_members = jax.random.split(jax.random.fold_in(key, step))
        size = law.first + _count_up_to(high, low, jax.random.bits(for_size, (2,), jnp.uint32))
        members = _ordered_sample(for_members, scheme.group_size, most)
        if scheme.cycle_length > 1:
            members = members * scheme.cycle_length + (step % scheme.cycle_length).astype(jnp.int32)
        # The first `size` of a random order are a uniformly random set of that size; the rest sorts behind them.
        members = jnp.sort(jnp.where(jnp.arange(most) < size, members, _LARGEST))
        mask = jnp.arange(rows) < size
        return jnp.where(mask, jnp.pad(members, (0, rows - most)), -1), mask

    return draw


def _count_up_to(high: Any, low: Any, word: jax.Array) -> jax.Array:
    """How many 64-bit thresholds are at most the word; both are given as two 32-bit halves."""
    below = (high < word[0]) | ((high == word[0]) & (low <= word[1]))
    return jnp.sum(below, dtype=jnp.int32)


def _ordered_sample(key: jax.Array, population: int, count: int) -> jax.Array:
    """`count` distinct integers of [0, population) in random order, every such sequence equally likely."""
    if 2 * count <= population:
        return _distinct(key, population, count).astype(jnp.int32)
    # Few values are left over, so put all of them in the order of distinct random words: still O(count).
    return jnp.argsort(_distinct(key, 2**32, population))[:count].astype(jnp.int32)


def _distinct(key: jax.Array, population: int, count: int) -> jax.Array:
    """Distinct integers of [0, population): bad ones are drawn again, all at once, until none is left.

    Bad is a word beyond the last multiple of `population`, and one whose value an earlier place holds already (as a word
    that is not beyond it). Renaming the values changes nothing in this procedure, hence all sequences of distinct values
    are equally likely. Each round mends a bad place with chance 1/4 at least, as at least half of all words are within
    the last multiple, and at most half of the values are taken.
    """
    limit = np.uint32(2**32 - 1 - 2**32 % population)
    modulus = None if population == 2**32 else np.uint32(population)

    def values(words: jax.Array) -> jax.Array:
        return words if modulus is None else words % modulus

    def bad(words: jax.Array) -> jax.Array:
        found, beyond = values(words), words > limit
        order = jnp.lexsort((found, beyond))  # stable: of equal values the earliest place comes first
        ranked, last = found[order], beyond[order]
        repeated = jnp.concatenate([jnp.zeros(1, bool), (ranked[1:] == ranked[:-1]) & ~last[1:]])
        return jnp.zeros(count, bool).at[order].set(repeated | last)

    def again(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        number, words, redraw = state
        fresh = jax.random.bits(jax.random.fold_in(key, number), (count,), jnp.uint32)
        words = jnp.where(redraw, fresh, words)
        return number + 1, words, bad(words)

    start = (jnp.uint32(0), jnp.zeros(count, jnp.uint32), jnp.ones(count, bool))
    return values(lax.while_loop(lambda state: state[2].any(), again, start)[1])


def gather(data: Any, indices: jax.Array, mask: jax.Array) -> Any:
    """The rows of every array in a pytree; padding rows are zeros. Runs inside `jax.jit`.

    >>> gather(jnp.arange(10.0, 16.0), jnp.array([1, 4, -1]), jnp.array([True, True, False]))
    Array([11., 14.,  0.], dtype=float32)

    Arguments:
        data: arrays with one row per example.
        indices, mask: of a batch, of one shape; that of a batch of users has two axes.
    """

    def rows(leaf: Any) -> jax.Array:
        taken = jnp.asarray(leaf)[jnp.where(mask, indices, 0)]
        shape = (*mask.shape, *[1] * (taken.ndim - mask.ndim))
        return jnp.where(mask.reshape(shape), taken, jnp.zeros((), taken.dtype))

    return jax.tree.map(rows, data)


def batches(data: Any, sampler: Sampler, steps: int, start: int = 0) -> Iterator[tuple[Any, jax.Array]]:
    """Batches drawn on the host, as `(data, mask)` of fixed-shape device arrays, for any `jax.jit`-ed step.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> rows, mask = next(batches({"x": np.arange(10.0)}, scheme.sampler(key=7), steps=3))
    >>> rows["x"], mask.sum()
    (Array([0., 1., 2., 4., 8., 9., 0., 0.], dtype=float32), Array(6, dtype=int32))

    Arguments:
        data: arrays with `dataset_size` rows each, in nested dicts, lists and tuples.
        sampler: `scheme.sampler(key)`, or a shard of it.
        steps: number of steps of the whole run.
        start: first step to draw, to resume.
    """
    if not isinstance(sampler, Sampler):
        raise InvalidArgumentError(f"sampler={_checks.show(sampler)} is not a Sampler; pass scheme.sampler(key)")
    run = sampler.batches(steps, start)
    sampler[0].take(data)  # what does not fit is refused here, not at the first step
    return ((jax.tree.map(jnp.asarray, batch.take(data)), jnp.asarray(batch.mask)) for batch in run)
