"""Noise for sums that others made: that of `noisy_sum`, for any clip norm, and for all parameters of a model at once."""

import math

import numpy as np
import pytest
from scipy import stats

from filet import CappedPoisson, InvalidArgumentError, add_noise, noisy_sum

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total": [math.inf]}, "total holds inf, above max_batch_size"),
        ({"total": [math.nan]}, "total holds nan"),
        ({"total": [4.1]}, r"total holds 4\.1, above max_batch_size \* clip_norm = 4"),
        ({"total": ["a"]}, "total=.* is not a number"),
        ({"clip_norm": 0.0}, r"clip_norm=0\.0 is not in \(0, inf\)"),
        ({"clip_norm": math.inf}, r"clip_norm=inf is not in \(0, inf\)"),
        ({"noise_multiplier": math.inf}, "noise_multiplier=inf"),
        ({"step": -1}, "step=-1 is below 0"),
        ({"sampler": None}, "sampler=None is not a Sampler"),
    ],
)
def test_add_noise_refuses_what_is_no_sum_of_clipped_gradients(change, message):
    arguments = {"total": [0.5], "sampler": ONE.sampler(KEY), "noise_multiplier": 1.0, "step": 0} | change
    with pytest.raises(InvalidArgumentError, match=message) as error:
        add_noise(arguments.pop("total"), arguments.pop("sampler"), **arguments)
    assert "\n" not in str(error.value)
