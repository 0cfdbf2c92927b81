# mypy: disable-error-code="import-not-found", allow-subclassing-any
"""Batches drawn inside `jax.jit` or on the host, as fixed-shape arrays; and keys with all their bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from filet import _checks
from filet.errors import InvalidArgumentError
from filet.sampling.keys import Key, warn_of_short_key
from filet.sampling.sampler import Sampler
from filet.sampling.size_law import size_law
from filet.scheme import CappedPoisson, Size

from .._frameworks import needed_for
from .._records import warn_of_own_size

with needed_for("jax"):
    import jax
    import jax.numpy as jnp
    from jax import lax

_LARGEST = 2**31 - 1
_REMEDY = "make keys by secret_key() of filet.integrations.jax"


def secret_key(key: bytes | int | None = None, purpose: str = "") -> jax.Array:
    """A key for `jax.random` that uses all of its bits, derived from secret bytes.

    >>> run = b"32 bytes that nobody else knows."  # such as secrets.token_bytes(32), kept to resume
    >>> for_batches, for_noise = secret_key(run, "batches"), secret_key(run, "noise")
    >>> bool((jax.random.key_data(for_batches) != jax.random.key_data(for_noise)).any())
    True

    `jax.random.key(seed)` keeps the low 32 bits of its seed, unless `jax_enable_x64` is on. 2**32
    seeds can be tried, and seeds that differ by a multiple of 2**32 give the same batches and the
    same noise.

    Guarantees: the same bytes and purpose give the same key in every process. Keys of different
    purposes tell nothing of each other, nor of what `scheme.sampler` draws from the same bytes. The
    key is one of JAX's default generator: 64 bits for `threefry2x32`, 128 for `rbg`.

    Arguments:
        key: secret bytes, as for `filet.Sampler`; None draws fresh ones, for a run that is never
            resumed.
        purpose: a name, such as "batches" or "noise".
    """
    like = jax.random.key_data(jax.random.key(0))
    data = Key(key).derive(f"jax {purpose}", like.nbytes)
    words = np.frombuffer(data, dtype="<u4").reshape(like.shape)
    made: jax.Array = jax.random.wrap_key_data(jnp.asarray(words))
    return made


def warn_of_seed(key: Any) -> None:
    """Warn of a key that was made from an integer below 2**32; a traced key shows no bits."""
    if isinstance(key, jax.core.Tracer):
        return
    typed = hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = np.asarray(jax.random.key_data(key) if typed else key)
    if words.size and not words.reshape(-1, 2)[:, 0].any():  # the upper halves of a seed's 64 bits
        warn_of_short_key("key was made from an integer below 2**32", _REMEDY)


def device_sampler(scheme: CappedPoisson) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """A function `draw(key, step)` that draws a capped batch on the device, inside `jax.jit` if you like.

    >>> scheme = CappedPoisson(dataset_size=1000, sampling_probability=0.005, max_batch_size=8)
    >>> draw = jax.jit(device_sampler(scheme))
    >>> indices, mask = draw(secret_key(), 3)
    >>> indices.shape, mask.shape, bool((indices >= 0).sum() == mask.sum())
    ((8,), (8,), True)

    Guarantees: for ideal random bits, the law is the scheme's: sizes to a chance of 2**-64, and given the size every set
    of examples is exactly equally likely (integers are drawn by rejection, duplicates are drawn again). Examples come
    first, ascending; padding is -1. Batches of different keys or steps are independent. A draw costs O(B log B) time and
    O(B) memory for B = `max_batch_size`, whatever the size of the data set, in one compilation.

    The batches differ from `scheme.sampler`'s, and their secrecy is that of the `jax.random` key: JAX's default
    generator has 64-bit keys and is not cryptographic. Make the key by `secret_key`:
    `jax.random.key(seed)` keeps 32 bits, and a call outside `jax.jit` with such a key warns. With
    `cycle_length = b`, step t draws from the examples i with i mod b = t mod b (the last `dataset_size % b` are
    left out): a fixed partition, as private as a random one. Shuffle the data set once if its order has a period.

    With `size="secret"` the function is `draw(key, step, records)`: make the true number of records an
    argument of the jitted function, so that the compiled program does not hold it. The shape of an
    array on the device tells the number of its rows: pad the data to a public number of rows, or gather
    them on the host.

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
    _check_size(scheme)
    rows = scheme.max_batch_size
    most = min(scheme.max_batch_size, scheme.group_size)
    law = size_law(scheme)
    high = np.asarray(law.thresholds >> np.uint64(32), dtype=np.uint32)
    low = np.asarray(law.thresholds & np.uint64(0xFFFFFFFF), dtype=np.uint32)

    def draw(key: jax.Array, step: Any = 0, records: Any = None) -> tuple[jax.Array, jax.Array]:
        slots = _slots(scheme, records)
        warn_of_seed(key)
        step = jnp.asarray(step, jnp.uint32)
        for_size, for_members = jax.random.split(jax.random.fold_in(key, step))
        size = law.first + _count_up_to(high, low, jax.random.bits(for_size, (2,), jnp.uint32))
        members = _ordered_sample(for_members, slots, most)
        if scheme.cycle_length > 1:
            members = members * scheme.cycle_length + (step % scheme.cycle_length).astype(jnp.int32)
        # The first `size` of a random order are a uniformly random set of that size; the rest sorts behind them.
        members = jnp.sort(jnp.where(jnp.arange(most) < size, members, _LARGEST))
        if records is not None:  # slots without a record are padding
            size = jnp.sum(members < jnp.asarray(records, jnp.int32), dtype=jnp.int32)
        mask = jnp.arange(rows) < size
        return jnp.where(mask, jnp.pad(members, (0, rows - most)), -1), mask

    return draw


def _check_size(scheme: CappedPoisson) -> None:
    """Refuse sizes that are not public where the compiled draw would depend on the number of records."""
    if scheme.size is Size.AT_MOST:
        raise InvalidArgumentError(
            "size='at-most' has a law of sizes that depends on the number of records, and would be compiled into the draw;"
            " use size='secret', or scheme.sampler(key, records=...) on the host"
        )
    if scheme.size is Size.SECRET and scheme.dataset_size < 2 * scheme.max_batch_size:
        raise InvalidArgumentError(
            f"dataset_size={scheme.dataset_size} below twice max_batch_size={scheme.max_batch_size} is not drawn on the"
            " device with size='secret'; use scheme.sampler(key, records=...) on the host"
        )


def _slots(scheme: CappedPoisson, records: Any) -> Any:
    """The number of slots to draw from; where the size is secret, a traced number that is in no compiled program."""
    if scheme.size is Size.PUBLIC:
        if records is not None:
            raise InvalidArgumentError("records is for a scheme with size='secret'; leave it out")
        return scheme.group_size
    if records is None:
        raise InvalidArgumentError(
            "size='secret' needs the true number of records; pass it to draw, as an argument of the jitted function"
        )
    if isinstance(records, (int, np.integer)):
        if not 0 <= records <= _LARGEST:
            raise InvalidArgumentError("records is not in [0, 2**31 - 1]; use scheme.sampler on the host")
        warn_of_own_size(scheme, int(records))
    return jnp.maximum(jnp.asarray(records, jnp.int32), scheme.dataset_size).astype(jnp.uint32)


def _count_up_to(high: Any, low: Any, word: jax.Array) -> jax.Array:
    """The number of 64-bit thresholds at or below the word; both are given as two 32-bit halves."""
    below = (high < word[0]) | ((high == word[0]) & (low <= word[1]))
    return jnp.sum(below, dtype=jnp.int32)


def _ordered_sample(key: jax.Array, population: Any, count: int) -> jax.Array:
    """`count` distinct integers of [0, population) in random order, every such sequence equally likely.

    A population that is an array is at least twice `count`.
    """
    if isinstance(population, jax.Array) or 2 * count <= population:
        return _distinct(key, population, count).astype(jnp.int32)
    # Few values are left over, so put all of them in the order of distinct random words: still O(count).
    return jnp.argsort(_distinct(key, 2**32, population))[:count].astype(jnp.int32)


def _distinct(key: jax.Array, population: Any, count: int) -> jax.Array:
    """Distinct integers of [0, population): bad ones are drawn again, all at once, until none is left.

    Bad is a word beyond the last multiple of `population`, and one whose value an earlier place holds already (as a word
    that is not beyond it). Renaming the values changes nothing in this procedure, hence all sequences of distinct values
    are equally likely. Each round mends a bad place with chance 1/4 at least, as at least half of all words are within
    the last multiple, and at most half of the values are taken.
    """
    modulus: Any
    limit: Any
    if isinstance(population, jax.Array):
        modulus = population
        limit = jnp.uint32(2**32 - 1) - (-population) % population  # 2**32 is 0
    else:
        limit = np.uint32(2**32 - 1 - 2**32 % population)
        modulus = None if population == 2**32 else np.uint32(population)

    def values(words: jax.Array) -> jax.Array:
        return words if modulus is None else words % modulus

    def bad(words: jax.Array) -> jax.Array:
        beyond = words > limit
        # One key to sort by: no value is 2**32 - 1 where words can be beyond the limit.
        found = jnp.where(beyond, np.uint32(2**32 - 1), values(words))
        ranked, order = lax.sort((found, jnp.arange(count)), num_keys=1, is_stable=True)  # the earliest place first
        repeated = jnp.concatenate([jnp.zeros(1, bool), ranked[1:] == ranked[:-1]])
        found_again: jax.Array = jnp.zeros(count, bool).at[order].set(repeated, unique_indices=True)
        return jnp.logical_or(found_again, beyond)

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
    >>> sampler = scheme.sampler(key=b"16 secret bytes!")
    >>> rows, mask = next(batches({"x": np.arange(10.0)}, sampler, steps=3))
    >>> rows["x"], mask.sum()
    (Array([0., 1., 8., 9., 0., 0., 0., 0.], dtype=float32), Array(4, dtype=int32))

    Arguments:
        data: arrays with `dataset_size` rows each (the sampler's `records`, where that is a secret), in nested dicts,
            lists and tuples.
        sampler: `scheme.sampler(key)`, or a shard of it.
        steps: number of steps of the whole run.
        start: first step to draw, to resume.
    """
    if not isinstance(sampler, Sampler):
        raise InvalidArgumentError(f"sampler={_checks.show(sampler)} is not a Sampler; pass scheme.sampler(key)")
    run = sampler.batches(steps, start)
    sampler[0].take(data)  # wrong data are refused here, not at the first step
    return ((jax.tree.map(jnp.asarray, batch.take(data)), jnp.asarray(batch.mask)) for batch in run)
