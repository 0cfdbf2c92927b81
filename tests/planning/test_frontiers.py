"""Frontiers: heights are what account and the calibration say, and nothing is done before all is checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from filet.accounting.accountant import account
from filet.errors import InvalidArgumentError
from filet.planning.calibration import calibrate_noise_multiplier
from filet.planning.frontiers import frontier
from filet.planning.planner import plan
from filet.scheme import CappedPoisson, Overflow

FRONTIER: dict[str, Any] = {"dataset_size": 3_000, "delta": 1e-5, "adjacency": "zero-out"}
SETTING: dict[str, Any] = {"dataset_size": 3_000, "max_batch_size": 48, "steps": 400, "epsilon": 2.0, "delta": 1e-5}


def test_frontier_of_epsilon_is_what_account_says_and_rises_with_steps() -> None:
    found = frontier(over="steps", values=[50, 400], max_batch_size=48, sampling_probability=0.012, noise_multiplier=1.0,
                     **FRONTIER)  # fmt: skip
    assert found.x.tolist() == [50.0, 400.0]
    assert found.x_label == "steps"
    scheme = CappedPoisson(3_000, 0.012, 48, Overflow.REJECT)
    curve = account(scheme, noise_multiplier=1.0, steps=400, adjacency="zero-out")
    assert found.series["reject"][1] == curve.epsilon(1e-5)
    assert found.series["reject"][0] < found.series["reject"][1]
    assert set(found.series) == {"reject", "truncate", "note", "union"}


@pytest.mark.long
def test_frontier_of_noise_uses_calibrated_noise() -> None:
    found = frontier(over="sampling_probability", values=[0.008, 0.016], max_batch_size=48, steps=400, epsilon=2.0,
                     **FRONTIER)  # fmt: skip
    scheme = CappedPoisson(3_000, 0.016, 48)
    noise = calibrate_noise_multiplier(scheme, steps=400, epsilon=2.0, delta=1e-5, adjacency="zero-out")
    assert found.series["truncate"][1] == pytest.approx(noise / scheme.expected_batch_size, rel=1e-4)
    assert np.isnan(found.series["union"][1])  # overflows alone exceed delta there
    assert found.to_dict()["series"]["union"][1] is None


@pytest.mark.long
def test_frontier_over_batches_finds_the_best_probability() -> None:
    found = frontier(over="max_batch_size", values=[24, 48], steps=400, epsilon=2.0, **FRONTIER)
    best = plan(adjacency="zero-out", **SETTING).option("truncate")
    assert found.series["truncate"][1] == pytest.approx(best.effective_noise, rel=1e-9)
    assert (found.series["reject"] <= found.series["union"]).all()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"over": "epsilon"}, "over='epsilon' is unknown"),
        ({"steps": 5}, "steps=5 is also the x axis"),
        ({"epsilon": 1.0}, "exactly one of noise_multiplier"),
        ({"max_batch_size": None}, "max_batch_size is missing"),
        ({"sampling_probability": None}, "sampling_probability is missing"),
        ({"sampling_probability": 1.5}, "sampling_probability=1.5 is not in"),
        ({"values": []}, "values is empty"),
        ({"values": [10, 0]}, "steps=0 is below 1"),
    ],
)
def test_frontier_refuses_bad_arguments_before_any_work(changes: dict[str, Any], reason: str) -> None:
    good = {
        "over": "steps",
        "values": [10],
        "max_batch_size": 48,
        "sampling_probability": 0.01,
        "noise_multiplier": 1.0,
    }

    def no_work(share: float, label: str) -> None:
        raise AssertionError("work was done")

    with pytest.raises(InvalidArgumentError, match=reason):
        frontier(**FRONTIER | good | changes, progress=no_work)


def test_progress_names_what_comes_next_and_rises_to_one() -> None:
    seen: list[tuple[float, str]] = []
    frontier(over="steps", values=[5, 10], max_batch_size=48, sampling_probability=0.01, noise_multiplier=1.0, **FRONTIER,
             progress=lambda share, label: seen.append((share, label)))  # fmt: skip
    assert [share for share, _ in seen] == [i / 8 for i in range(9)]
    assert (seen[0][1], seen[-1][1]) == ("reject, steps 5", "done")
