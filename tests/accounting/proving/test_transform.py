"""Fast transforms of discrete losses: every way to compute one against direct sums in extended precision."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.accounting.laws import LONG

from filet._rounding import TRANSFORM_ERROR, UNIT
from filet.accounting.proving import transform as module
from filet.accounting.proving.transform import by_powers, by_series, characteristic, powers_error


def direct(turns: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """sum_i weights_i e^{i turns_ji} in extended precision."""
    heavy = weights.astype(LONG)
    return (np.cos(turns) @ heavy + 1j * (np.sin(turns) @ heavy)).astype(complex)


def test_the_fast_transform_stays_within_its_error_bound() -> None:
    rng = np.random.default_rng(1)
    for sources, count, spacing in [(1000, 50, 0.3), (3000, 500, 0.01), (3000, 20_000, 1e-3), (500, 3, 2.0)]:
        x = rng.normal(size=sources)
        weights = rng.exponential(size=sources)
        weights /= weights.sum()
        values = characteristic(x, weights, spacing, count)
        picked = np.unique(np.linspace(0, count - 1, 40).astype(int))
        for j in picked:
            angle = np.remainder(x.astype(np.longdouble) * spacing * j, 2 * np.longdouble(np.pi))
            exact = (weights * np.exp(1j * angle.astype(float))).sum()
            phase = 4 * 2.0**-53 * spacing * j * np.abs(x).max()
            assert abs(values[j] - exact) <= TRANSFORM_ERROR + phase


@pytest.mark.parametrize("count", [1000, 20_000, 200_000])
def test_a_single_negative_position_is_transformed_within_the_stated_error(count: int) -> None:
    j = np.arange(count).astype(LONG)
    for x in (-0.77, -1.0, -1.3, 1.3):
        values = characteristic(np.array([x]), np.ones(1), 1.0 / count, count)
        angle = j * LONG(1.0 / count) * LONG(x)
        off = np.hypot((values.real - np.cos(angle)).astype(float), (values.imag - np.sin(angle)).astype(float))
        assert off.max() <= TRANSFORM_ERROR


@pytest.mark.parametrize("count", [601, 1003, 2203, 5557])
def test_the_grid_is_three_times_as_fine_as_the_modes_and_quick_to_transform(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    sizes = []

    def rfft(field: np.ndarray) -> np.ndarray:
        sizes.append(field.size)
        return np.fft.rfft(field)

    monkeypatch.setattr(module, "rfft", rfft)
    characteristic(np.array([0.3]), np.ones(1), 1e-3, count)
    (size,) = sizes
    assert 6 * count <= size < 6.5 * count
    for factor in (2, 3, 5):  # a real transform is quick at these
        while size % factor == 0:
            size //= factor
    assert size == 1


@pytest.mark.parametrize("count", [1, 2, 3, 64, 65, 300])
def test_powers_transform_every_row_by_itself(count: int) -> None:
    rng = np.random.default_rng(count)
    positions, weights = rng.normal(size=(3, 50)), rng.dirichlet(np.ones(50), size=3)
    weights[1, 20:] = 0.0  # a shorter row
    values = by_powers(positions, weights, 0.3, count)
    assert values.shape == (3, count)
    for row in range(3):
        turns = np.multiply.outer(0.3 * np.arange(count).astype(LONG), positions[row].astype(LONG))
        off = np.abs(values[row] - direct(turns, weights[row]))
        assert (off <= 4 * count * UNIT + 4 * UNIT * 0.3 * count * np.abs(positions[row]).max()).all()


def test_more_rows_than_fit_the_cache_are_transformed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    positions, weights = rng.normal(size=(7, 50)), rng.dirichlet(np.ones(50), size=7)
    together = by_powers(positions, weights, 0.3, 40)
    monkeypatch.setattr(module, "_CACHED", 2 * 2 * 7 * 50)  # two rows at a stride of seven
    assert np.array_equal(by_powers(positions, weights, 0.3, 40), together)


def test_rows_in_turn_take_the_memory_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CACHED", 8_000)  # complex numbers of 16 bytes: one of these rows
    positions, weights = np.zeros((64, 400)), np.ones((64, 400))
    tracemalloc.start()
    by_powers(positions, weights, 0.3, 100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 8_000 * 16


def test_the_power_series_is_exact_to_rounding_up_to_half_a_radian() -> None:
    rng = np.random.default_rng(8)
    turns, weights = rng.uniform(-0.5, 0.5, size=400), rng.dirichlet(np.ones(400))
    turns[:2] = -0.5, 0.5
    share = np.linspace(0.0, 1.0, 301)
    values = by_series(turns, weights, share)
    off = np.abs(values - direct(np.multiply.outer(share.astype(LONG), turns.astype(LONG)), weights))
    assert off.max() <= 16 * UNIT
    assert values[0] == pytest.approx(weights.sum(), abs=4 * UNIT)


@pytest.mark.parametrize(("size", "count", "units"), [(50, 64, 16 * 64 + 100 + 16), (7, 1, 16 + 14 + 16), (3, 65, 32 * 10 + 22), (1, 2, 16 * 2 + 18)])  # fmt: skip
def test_powers_cost_sixteen_units_each_and_their_sum_two_a_term(size: int, count: int, units: int) -> None:
    assert powers_error(size, count) == units * UNIT


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="context switches are counted by Linux")
def test_one_question_leaves_the_threads_of_blas_alone() -> None:
    """Products of small matrices that are handed to threads take longer, and ten times as long on a busy machine.

    A thread that is never woken is never switched to, however busy the machine is.
    """
    code = r"""
import os, pathlib, re
import numpy as np
import filet

def others():  # state and context switches of every thread but the main one
    tasks = [task for task in pathlib.Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()]
    return [re.findall(r"State:\s+(\w)|ctxt_switches:\s+(\d+)", (task / "status").read_text()) for task in tasks]

def settled():  # once all of them sleep
    seen = []
    while seen != (seen := others()) or any(one[0][0] != "S" for one in seen):
        os.sched_yield()
    return seen

scheme = filet.CappedPoisson(60_000, 256 / 60_000, 256)
def ask(steps):
    filet.account(scheme, noise_multiplier=1.0, steps=steps, adjacency="add-remove", analysis="swap").epsilon(1e-5)
ask(13_000)
before = settled()
for steps in range(14_000, 14_010):
    ask(steps)
after = settled()
np.ones((700, 700)) @ np.ones((700, 700))
print(after == before, settled() != after)
"""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True, check=True).stdout.split()
    if found[1] == "False":
        pytest.skip("this BLAS has no threads")
    assert found[0] == "True"


@pytest.mark.parametrize("serial", [1, 500, 2_000])
def test_products_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch, serial: int) -> None:
    rng = np.random.default_rng(5)
    positions, weights = rng.normal(size=(3, 50)), rng.dirichlet(np.ones(50), size=3)
    together = by_powers(positions, weights, 0.3, 60)
    monkeypatch.setattr(module, "_SERIAL", serial)
    assert by_powers(positions, weights, 0.3, 60) == pytest.approx(together, abs=50 * UNIT)
