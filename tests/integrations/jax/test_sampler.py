"""The JAX sampler's law by enumeration, and fixed shapes: one compilation."""

from __future__ import annotations

import itertools
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import chdtrc

import filet
from filet.integrations.jax import batches, device_sampler, gather, secret_key
from filet.integrations.jax.sampler import _count_up_to, _distinct
from filet.sampling.size_law import size_law

SCHEMES = [
    filet.CappedPoisson(6, 0.3, 2),
    filet.CappedPoisson(6, 0.3, 2, overflow="reject"),
    filet.CappedPoisson(6, 0.6, 3),
    filet.CappedPoisson(5, 0.7, 4, overflow="reject"),
    filet.CappedPoisson(4, 0.5, 7),
    filet.CappedPoisson(4, 1.0, 3),
    filet.CappedPoisson(7, 0.5, 1),
    filet.CappedPoisson(1, 0.4, 1),
]


def exact_law(scheme):
    """The chance of every set of examples (of one group)."""
    n = scheme.group_size
    return {
        chosen: math.exp(scheme.log_batch_size_probability(size)) / math.comb(n, size)
        for size in range(min(n, scheme.max_batch_size) + 1)
        for chosen in itertools.combinations(range(n), size)
    }


def p_value(counts, law):
    draws = sum(counts.values())
    assert set(counts) <= {chosen for chosen, chance in law.items() if chance > 0}
    cells = [(counts.get(chosen, 0), draws * chance) for chosen, chance in law.items() if chance > 0]
    if len(cells) == 1:
        return 1.0
    return chdtrc(len(cells) - 1, sum((seen - expected) ** 2 / expected for seen, expected in cells))


def tally(indices):
    sets, counts = np.unique(np.asarray(indices), axis=0, return_counts=True)
    return {tuple(int(i) for i in row if i >= 0): int(count) for row, count in zip(sets, counts, strict=True)}


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_every_set_has_its_exact_chance(scheme):
    draw = jax.jit(jax.vmap(device_sampler(scheme), in_axes=(None, 0)))
    indices, mask = draw(jax.random.key(11), jnp.arange(40_000))
    assert indices.shape == (40_000, scheme.max_batch_size)
    assert jnp.array_equal(mask, indices >= 0)
    assert p_value(tally(indices), exact_law(scheme)) > 1e-6


def test_in_a_cycle_each_step_draws_from_its_own_group():
    scheme = filet.CappedPoisson(11, 0.5, 2, cycle_length=3)  # groups of 3; examples 9 and 10 are left out
    draw = jax.jit(jax.vmap(device_sampler(scheme), in_axes=(None, 0)))
    indices, _ = draw(jax.random.key(5), jnp.arange(45_000))
    for group in range(3):
        counts = tally(indices[group::3])
        inner = {tuple((i - group) // 3 for i in chosen): count for chosen, count in counts.items()}
        assert all(i % 3 == group for chosen in counts for i in chosen)
        assert p_value(inner, exact_law(scheme)) > 1e-6


def test_sizes_follow_all_64_bits_of_the_table():
    scheme = filet.CappedPoisson(1000, 0.01, 15)
    law = size_law(scheme)
    high, low = (law.thresholds >> np.uint64(32)).astype(np.uint32), law.thresholds.astype(np.uint32)
    words = np.concatenate([law.thresholds - np.uint64(1), law.thresholds, law.thresholds + np.uint64(1),
                            np.array([0, 2**64 - 1], np.uint64)])  # fmt: skip
    halves = np.stack([(words >> np.uint64(32)).astype(np.uint32), words.astype(np.uint32)], axis=1)
    counted = jax.vmap(lambda word: _count_up_to(high, low, word))(jnp.asarray(halves))
    np.testing.assert_array_equal(counted, np.searchsorted(law.thresholds, words, side="right"))


def test_ordered_pairs_are_equally_likely_where_most_words_are_drawn_again():
    # Nearly half of all 32-bit words lie beyond the last multiple of this population.
    population = 2**31 + 1
    keys = jax.random.split(jax.random.key(3), 20_000)
    pairs = np.asarray(jax.vmap(lambda key: _distinct(key, population, 2))(keys), dtype=np.float64) / population
    # Uniform on the unit square: means, and every quarter of each axis.
    assert np.all(np.abs(pairs.mean(axis=0) - 0.5) < 5 / math.sqrt(12 * 20_000))
    cells = np.histogram2d(pairs[:, 0], pairs[:, 1], bins=4, range=[[0, 1], [0, 1]])[0].ravel()
    assert chdtrc(15, float(((cells - 1250) ** 2 / 1250).sum())) > 1e-6


def test_a_huge_data_set_costs_no_more_than_its_batch():
    scheme = filet.CappedPoisson(2**31 - 1, 1e-6, 2200)
    draw = jax.jit(device_sampler(scheme))
    compiled = draw.lower(jax.random.key(0), 0).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2_000_000
    indices, mask = compiled(jax.random.key(0), jnp.asarray(0))
    chosen = np.asarray(indices)[np.asarray(mask)]
    assert 1900 < chosen.size <= 2200
    assert np.all(np.diff(chosen) > 0)
    assert chosen[-1] > 2**30


def test_keys_and_steps_give_different_batches_and_repeat():
    draw = jax.jit(device_sampler(filet.CappedPoisson(1000, 0.05, 64)))
    first, _ = draw(jax.random.key(1), 4)
    assert jnp.array_equal(first, draw(jax.random.key(1), 4)[0])
    assert not jnp.array_equal(first, draw(jax.random.key(1), 5)[0])
    assert not jnp.array_equal(first, draw(jax.random.key(2), 4)[0])


def test_one_compilation_over_fifty_steps_on_the_device_and_from_the_host():
    scheme = filet.CappedPoisson(200, 0.05, 14)
    data = {"x": np.arange(200.0).reshape(200, 1) + 1, "y": np.arange(200)}
    draw = device_sampler(scheme)
    traced = []

    @jax.jit
    def on_device(key, step):
        traced.append("device")
        indices, mask = draw(key, step)
        return gather(data, indices, mask)["x"].sum()

    @jax.jit
    def from_host(rows, mask):
        traced.append("host")
        return (rows["x"][:, 0] * mask).sum()

    for step in range(50):
        on_device(jax.random.key(1), step)
    sampler = scheme.sampler(key=3)
    for step, (rows, mask) in enumerate(batches(data, sampler, 50)):
        expected = data["x"][sampler[step].indices[: sampler[step].size]].sum()
        assert float(from_host(rows, mask)) == expected
    assert traced == ["device", "host"]
    assert on_device._cache_size() == from_host._cache_size() == 1  # type: ignore[attr-defined]

    @jax.jit
    def plain(rows):
        traced.append("plain")
        return rows.sum()

    for batch in sampler.batches(50):
        plain(data["x"][batch.indices[: batch.size]])
    assert traced.count("plain") > 5


def test_padding_is_zeros_of_the_arrays_own_type():
    data = {"x": jnp.ones((5, 2)), "y": jnp.full(5, 7), "flag": jnp.ones(5, bool)}
    rows = gather(data, jnp.array([4, -1]), jnp.array([True, False]))
    assert rows["x"].tolist() == [[1, 1], [0, 0]]
    assert rows["y"].tolist() == [7, 0]
    assert rows["flag"].dtype == bool
    assert not rows["flag"][1]


def test_host_batches_resume_at_any_step():
    sampler = filet.CappedPoisson(20, 0.2, 6).sampler(key=9)
    whole = [np.asarray(rows) for rows, _ in batches(np.arange(20) + 1, sampler, 12)]
    rest = [np.asarray(rows) for rows, _ in batches(np.arange(20) + 1, sampler, 12, start=7)]
    np.testing.assert_array_equal(whole[7:], rest)


def test_bad_input_is_refused():
    with pytest.raises(filet.InvalidArgumentError, match="CappedPoisson"):
        device_sampler("scheme")
    with pytest.raises(filet.InvalidArgumentError, match="on the host"):
        device_sampler(filet.CappedPoisson(2**31, 1e-9, 8))
    with pytest.raises(filet.InvalidArgumentError, match="is not a Sampler"):
        batches(np.arange(3), "sampler", 3)
    with pytest.raises(filet.InvalidArgumentError, match="19 rows"):
        batches(np.arange(19), filet.CappedPoisson(20, 0.2, 6).sampler(key=9), 3)


# --- secrets -------------------------------------------------------------------------------------------------------

KEY = b"a key for the tests of JAX"
SCHEME = filet.CappedPoisson(100, 0.1, 16)


def words(key):
    return np.asarray(jax.random.key_data(key))


def test_secret_keys_use_all_bits_where_seeds_keep_32():
    seeds = [jax.random.key(np.int64(5 + (k << 32))) for k in range(3)]
    assert all(np.array_equal(words(one), words(seeds[0])) for one in seeds)  # JAX's; if it fails, seeds are better now
    keys = np.array([words(secret_key(KEY + bytes([number]))) for number in range(200)])
    assert keys.shape == (200, 2)
    for bit in range(32):  # each of 64 bits is set in about half of them
        assert ((keys >> bit & 1).sum(axis=0) > 60).all()
    assert len(np.unique(keys, axis=0)) == 200
    assert not np.array_equal(words(secret_key()), words(secret_key()))


def test_a_secret_key_depends_on_the_bytes_and_the_purpose_alone():
    assert np.array_equal(words(secret_key(KEY)), words(secret_key(bytearray(KEY))))
    found = {tuple(words(secret_key(KEY, purpose))) for purpose in ("", "batches", "noise", "noise ")}
    assert len(found) == 4
    with jax.default_prng_impl("rbg"):
        assert words(secret_key(KEY)).shape == (4,)
        assert device_sampler(SCHEME)(secret_key(KEY))[1].shape == (16,)
    for wrong in (b"short", "text", -1):
        with pytest.raises(filet.InvalidArgumentError, match="token_bytes"):
            secret_key(wrong)
    with pytest.warns(UserWarning, match="integer below"):
        secret_key(7)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_a_key_that_a_small_integer_made_is_warned_of_where_it_can_be_seen(impl):
    draw = device_sampler(SCHEME)
    for key in (jax.random.key(7, impl=impl), jax.random.PRNGKey(2**31, impl=impl)):
        with (
            jax.default_prng_impl(impl),
            pytest.warns(UserWarning, match=r"integer below 2\*\*32.*secret_key") as caught,
        ):
            draw(key, 3)
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(draw)(jax.random.key(7, impl=impl), 3)  # a traced key shows no bits
        jax.vmap(draw, in_axes=(None, 0))(secret_key(KEY), jnp.arange(3))
        draw(jax.random.split(secret_key(KEY))[0], 3)
