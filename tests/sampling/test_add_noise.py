"""Noise for sums that others made: that of `noisy_sum`, for any clip norm, and for all parameters of a model at once."""

import math

import numpy as np
import pytest
from scipy import stats

from filet import CappedPoisson, InvalidArgumentError, add_noise, noisy_sum
from filet.sampling.mechanism import clipped_sum

KEY = b"a key of 16 byte"
ONE = CappedPoisson(4, 1.0, 4)
P_VALUE = 1e-4


def test_add_noise_gives_what_noisy_sum_gives():
    """With norm 1 and rows on the grid, summed by someone else."""
    rows = np.random.default_rng(2).integers(-5, 6, (4, 6)) / 16
    sampler = ONE.sampler(KEY)
    for sigma in (0.0, 0.3, 1.0, 40.0):
        expected = noisy_sum(rows, ONE, noise_multiplier=sigma, key=KEY, step=3)
        assert np.array_equal(add_noise(rows.sum(axis=0), sampler, noise_multiplier=sigma, step=3), expected)
    shard = sampler.shard(1, 2)
    assert np.array_equal(add_noise(rows.sum(axis=0), shard, noise_multiplier=40.0, step=3), expected)


def test_rounding_to_the_grid_adds_nothing_to_what_a_row_moves():
    """Two sums that are a fiftieth of a unit apart in every place differ by a unit in a fiftieth of the places."""
    unit, places = 2.0**-30, 100_000
    below, above = (
        add_noise(np.full(places, share * unit), ONE.sampler(KEY), noise_multiplier=1.0, step=1)
        for share in (0.49, 0.51)
    )
    moved = (above - below) / unit
    assert set(moved.tolist()) == {0.0, 1.0}
    assert abs(moved.mean() - 0.02) < 5 * math.sqrt(0.02 / places)


@pytest.mark.parametrize("norm", [1e-3, 0.7, 1.0, 5.0, 1e6])
def test_added_noise_scales_with_the_clip_norm(norm):
    total = np.full((30, 200), 0.25 * norm)
    noisy = add_noise(total, ONE.sampler(KEY), noise_multiplier=1.5, step=1, clip_norm=norm)
    assert noisy.shape == total.shape
    assert stats.kstest((noisy - total).ravel() / norm, stats.norm(scale=1.5).cdf).pvalue > P_VALUE


def test_all_parameters_get_noise_of_their_own_in_one_call():
    """Calls for one parameter after another would add the same noise to each, and their difference would have none."""
    sampler = ONE.sampler(KEY)
    sizes = {"weight": (40, 30), "bias": (30,), "scale": ()}
    tree = {
        "layers": [{"weight": np.zeros((40, 30)), "bias": np.zeros(30, dtype=np.float32)}, None],
        "scale": np.zeros(()),
    }
    noisy = add_noise(tree, sampler, noise_multiplier=1.0, step=2)
    assert noisy["layers"][1] is None
    parts = {"weight": noisy["layers"][0]["weight"], "bias": noisy["layers"][0]["bias"], "scale": noisy["scale"]}
    assert {name: part.shape for name, part in parts.items()} == sizes
    flat = np.concatenate([part.ravel() for part in parts.values()])
    assert np.array_equal(flat, add_noise(np.zeros(flat.size), sampler, noise_multiplier=1.0, step=2))
    assert np.unique(flat).size == flat.size
    assert abs(np.std(flat) - 1.0) < 0.1


def test_lists_of_numbers_are_arrays_and_tuples_of_arrays_stay_tuples():
    sampler = ONE.sampler(KEY)
    assert add_noise([[0.5, 0.25], [0.0, 0.125]], sampler, noise_multiplier=0.0, step=0).shape == (2, 2)
    first, second = add_noise((np.zeros(2), [np.ones(1)]), sampler, noise_multiplier=0.0, step=0)
    assert (first.tolist(), [part.tolist() for part in second]) == ([0.0, 0.0], [[1.0]])
    assert add_noise({}, sampler, noise_multiplier=1.0, step=0) == {}


NORM = "pass the norm that gradients are clipped to"
SUM = "pass the sum of the batch's gradients"
CLIPPED = "pass the sum of gradients that are clipped to clip_norm"


@pytest.mark.parametrize(("change", "message"), [
    ({"total": [math.inf]}, f"total holds inf, above max_batch_size * clip_norm = 4; {CLIPPED}"),
    ({"total": [math.nan]}, f"total holds nan, which is not finite; {SUM}"),
    ({"total": [-4.1]}, f"total holds 4.1, above max_batch_size * clip_norm = 4; {CLIPPED}"),
    ({"total": [4.1], "clip_norm": 0.5}, f"total holds 4.1, above max_batch_size * clip_norm = 2; {CLIPPED}"),
    ({"total": ["a"]}, f"total=['a'] is not a number (or array of numbers) finite; {SUM}"),
    ({"clip_norm": 0.0}, f"clip_norm=0.0 is not in (0, inf); {NORM}"),
    ({"clip_norm": math.inf}, f"clip_norm=inf is not in (0, inf); {NORM}"),
    ({"clip_norm": [1]}, f"clip_norm=[1] is not a number in (0, inf); {NORM}"),
    ({"noise_multiplier": math.inf}, "noise_multiplier=inf leaves nothing to return; pass a finite number"),
    ({"step": -1}, "step=-1 is below 0; pass a step from 0 to 2**63 - 1"),
    ({"sampler": None}, "sampler=None is not a Sampler; pass scheme.sampler(key)"),
])  # fmt: skip
def test_add_noise_refuses_what_is_no_sum_of_clipped_gradients(change, message):
    arguments = {"total": [0.5], "sampler": ONE.sampler(KEY), "noise_multiplier": 1.0, "step": 0} | change
    with pytest.raises(InvalidArgumentError) as error:
        add_noise(arguments.pop("total"), arguments.pop("sampler"), **arguments)
    assert str(error.value) == message


def test_a_sum_may_be_a_thousandth_longer_than_its_rows_as_floats_round():
    sampler = ONE.sampler(KEY)
    assert add_noise([4.0039], sampler, noise_multiplier=0.0, step=0) == pytest.approx([4.0039], abs=2.0**-29)
    with pytest.raises(InvalidArgumentError, match="above max_batch_size"):
        add_noise([4.0041], sampler, noise_multiplier=0.0, step=0)


def test_lists_in_lists_of_arrays_come_back_in_their_places():
    found = add_noise([[np.zeros(2)], [np.ones(3)]], ONE.sampler(KEY), noise_multiplier=0.0, step=0)
    assert [[part.tolist() for part in row] for row in found] == [[[0.0, 0.0]], [[1.0, 1.0, 1.0]]]


def test_nothing_gets_no_noise():
    assert add_noise(np.zeros((0, 3)), ONE.sampler(KEY), noise_multiplier=1.0, step=0).shape == (0, 3)
    assert noisy_sum(np.zeros((4, 0)), ONE, noise_multiplier=1.0, key=KEY, step=0).shape == (0,)
    nobody = CappedPoisson(4, 0.5, 2, size="at-most")
    for clip in (True, False):
        found = noisy_sum(np.zeros((0, 2)), nobody, noise_multiplier=0.0, key=KEY, step=0, clip=clip)
        assert found.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("cap", "norm", "bits"), [(4, 8.0, 27), (4, 0.25, 32), (2**24, 8.0, 23), (2**24, 0.25, 28)])
def test_the_grid_of_added_noise_is_a_billionth_of_the_clip_norm_or_what_the_cap_leaves(cap, norm, bits):
    """Sums of so many rows stay below 2**52 units."""
    sampler = CappedPoisson(4, 1.0, cap).sampler(KEY)
    units = add_noise(np.zeros(50), sampler, noise_multiplier=1.0, step=0, clip_norm=norm) * 2.0**bits
    assert (units == np.rint(units)).all()
    assert (units % 2 == 1).any()  # no coarser grid would do


def test_noise_beyond_floats_is_infinite_without_a_warning():
    found = noisy_sum(np.zeros((4, 200)), ONE, noise_multiplier=1e308, key=KEY, step=0)
    assert np.isinf(found).any()
    assert np.isfinite(found).any()


def test_a_clipped_sum_is_that_of_the_noisy_sum_and_rows_that_are_not_finite_count_as_zero():
    rows = np.random.default_rng(6).standard_normal((4, 3))
    expected = noisy_sum(rows, ONE, noise_multiplier=0.0, key=KEY, step=0)
    assert clipped_sum(rows, 4).tolist() == expected.tolist()
    assert clipped_sum(np.vstack([rows, [np.inf, 0, 0], [0, np.nan, 1]]), 4).tolist() == expected.tolist()
    assert clipped_sum(np.array([[3 * 2.0**-30, 0.0]]), 4).tolist() == [3 * 2.0**-30, 0.0]
