"""Threads and processes: the same batches and numbers as alone, and state files that are always whole."""

import multiprocessing
import os
import random
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import filet

SPAWN = multiprocessing.get_context("spawn")
SCHEMES = [
    filet.CappedPoisson(100_000, 0.002, 210),
    filet.CappedPoisson(100_000, 0.002, 200, "reject"),
    filet.CappedPoisson(10_007, 0.05, 60, cycle_length=8),
]


def rows(sampler, step):
    return sampler[step].indices.tolist()


def accountant(phases):
    result = filet.Accountant("zero-out")
    for number in range(phases):
        result.compose(SCHEMES[0], noise_multiplier=1.0 + number / 8, steps=10 + number)
    return result


def keep_saving(path, phases, stop, ready):
    """Save one state over and over until told to stop; returns nothing, fails loudly."""
    state = accountant(phases)
    while not stop.is_set():
        state.save(path)
        ready.set()


def start_writer(path, phases):
    stop, ready = SPAWN.Event(), SPAWN.Event()
    writer = SPAWN.Process(target=keep_saving, args=(path, phases, stop, ready))
    writer.start()
    return writer, stop, ready


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_one_sampler_used_by_many_threads_draws_what_it_draws_alone(scheme, secure):
    steps = list(range(200)) * 2
    random.Random(0).shuffle(steps)
    alone = {step: rows(scheme.sampler(7, secure=secure), step) for step in range(200)}
    shared = scheme.sampler(7, secure=secure)
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda step: (step, rows(shared, step)), steps))
    assert all(alone[step] == drawn for step, drawn in together)


def test_pickled_samplers_in_other_processes_draw_the_same_batches():
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        for scheme in SCHEMES:
            sampler = scheme.sampler(11)
            drawn = list(pool.map(rows, [sampler] * 20, range(20), chunksize=5))
            assert drawn == [rows(sampler, step) for step in range(20)]


def test_shards_drawn_in_different_threads_make_up_the_batch():
    sampler = SCHEMES[0].sampler(3)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda rank: [sampler.shard(rank, 4)[step] for step in range(50)], range(4)))
    for step in range(50):
        union = np.sort(np.concatenate([part[step].indices[part[step].mask] for part in parts]))
        assert union.tolist() == [row for row in rows(sampler, step) if row >= 0]


def test_curves_and_lower_bounds_are_the_same_from_many_threads():
    curve = filet.account(SCHEMES[0], noise_multiplier=1.0, steps=100, adjacency="zero-out")
    deltas = [10.0**-k for k in range(2, 8)]
    alone = [
        filet.account(SCHEMES[0], noise_multiplier=1.0, steps=100, adjacency="zero-out").epsilon(d) for d in deltas
    ]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(3):
            assert list(pool.map(curve.epsilon, deltas)) == alone
    backwards = filet.account(SCHEMES[0], noise_multiplier=1.0, steps=100, adjacency="zero-out")
    assert [backwards.epsilon(d) for d in reversed(deltas)] == alone[::-1]


def test_answers_of_every_kind_are_the_same_digits_from_threads_that_ask_one_curve_at_once():
    """No answer leaves anything behind that another could read half written."""
    ask = {"noise_multiplier": 1.0, "steps": 100, "adjacency": "add-remove"}
    deltas, epsilons = np.geomspace(1e-9, 1e-3, 7), np.linspace(0.1, 2.0, 5)
    questions = [
        lambda curve: curve.epsilon_bounds(1e-5),
        lambda curve: curve.epsilon_bounds(deltas)[1].tolist(),
        lambda curve: curve.delta_bounds(0.7),
        lambda curve: curve.delta_bounds(epsilons)[1].tolist(),
        lambda curve: curve.true_positive_rate(1e-3),
    ]
    alone = [question(filet.account(SCHEMES[0], **ask)) for question in questions]
    shared = filet.account(SCHEMES[0], **ask)
    with ThreadPoolExecutor(5) as pool:
        together = list(pool.map(lambda question: question(shared), questions * 3))
    assert together == alone * 3


def test_a_state_file_written_by_two_processes_is_always_one_of_the_two_states(tmp_path):
    path = tmp_path / "state.json"
    states = [accountant(1).state_dict(), accountant(60).state_dict()]  # of very different lengths
    writers = [start_writer(path, phases) for phases in (1, 60)]
    try:
        assert all(ready.wait(60) for _, _, ready in writers)
        seen = [0, 0]
        deadline = time.monotonic() + 10.0
        while min(seen) < 20 and time.monotonic() < deadline:
            seen[states.index(filet.Accountant.load(path).state_dict())] += 1
    finally:
        for writer, stop, _ in writers:
            stop.set()
            writer.join(60)
    assert [writer.exitcode for writer, _, _ in writers] == [0, 0]
    assert min(seen) >= 1  # both writers were caught in the act
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_writer_killed_at_any_moment_leaves_a_whole_state(tmp_path):
    path = tmp_path / "state.json"
    accountant(1).save(path)
    states = [accountant(1).state_dict(), accountant(60).state_dict()]
    for pause in (0.0, 0.003):
        writer, _, ready = start_writer(path, 60)
        assert ready.wait(60)
        time.sleep(pause)
        writer.kill()
        writer.join(60)
        assert filet.Accountant.load(path).state_dict() in states


# --- accountants in threads -----------------------------------------------------------------------------------------


def test_steps_that_threads_compose_at_once_are_all_counted():
    scheme = filet.CappedPoisson(1_000, 0.01, 20)
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            accountant = filet.Accountant("zero-out")
            start = threading.Barrier(4)

            def work(accountant=accountant, start=start):
                start.wait()
                for _ in range(50):
                    accountant.compose(scheme, 1.0, 1)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sum(phase.steps for phase in accountant.phases) == 200
    finally:
        sys.setswitchinterval(0.005)


def test_a_curve_that_was_made_while_another_thread_composed_is_not_kept(monkeypatch):
    """The curve of few steps must never stand for the many that were composed while it was computed."""
    from filet.accounting import accountant as module

    scheme = filet.CappedPoisson(1_000, 0.01, 20)
    accountant = filet.Accountant("zero-out")
    accountant.compose(scheme, 1.0, 1)
    reading, composed = threading.Event(), threading.Event()

    class Slow(filet.PrivacyCurve):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            if not composed.is_set():
                reading.set()
                composed.wait(0.5)  # as long as it takes the other thread, if nothing holds it back

    monkeypatch.setattr(module, "PrivacyCurve", Slow)
    reader = threading.Thread(target=accountant.curve)
    reader.start()
    reading.wait()

    def compose():
        accountant.compose(scheme, 1.0, 5_000)
        composed.set()

    writer = threading.Thread(target=compose)
    writer.start()
    reader.join()
    writer.join()
    exact = filet.account(scheme, noise_multiplier=1.0, steps=5_001, adjacency="zero-out").epsilon(1e-5)
    assert accountant.epsilon(1e-5) == exact
