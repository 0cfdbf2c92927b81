"""Flower's rounds on filet's cohorts: who is asked, what one client moves, what is released, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from tests.integrations.flower_grid import KEY, SCHEME, SHAPES, cohorts, flat, grid, model, updates

import filet
from filet.integrations.flower import by_node_id


def test_a_round_asks_exactly_the_clients_of_its_step_and_an_empty_cohort_is_a_round():
    few = filet.CappedPoisson(dataset_size=12, sampling_probability=0.08, max_batch_size=4)
    strategy, nodes = cohorts(few, rounds=30), grid()
    strategy.start(nodes, model())
    sampler = few.sampler(KEY)
    drawn = [sorted(sampler[step].indices[: sampler[step].size].tolist()) for step in range(30)]
    assert [] in drawn
    assert nodes.asked == [cohort for cohort in drawn if cohort]
    assert strategy.rounds_done == 30
    whole = filet.account(few, noise_multiplier=1.0, steps=30, adjacency="zero-out")
    assert strategy.epsilon(1e-3) == whole.epsilon(1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_round_releases_the_accounted_mechanism_divided_by_a_constant(dtype):
    strategy = cohorts(server_learning_rate=0.7)
    found = strategy.start(grid(), model(0.25, dtype), num_rounds=1).arrays
    rows = np.stack([np.concatenate([part.ravel() for part in updates(client, 1).values()]) for client in range(12)])
    noisy = filet.noisy_sum(rows / 0.5, SCHEME, noise_multiplier=1.0, key=KEY, step=0)
    reference = 0.25 + 0.7 * 0.5 * noisy / SCHEME.expected_batch_size
    np.testing.assert_allclose(flat(found), reference, rtol=1e-5 if dtype is np.float32 else 1e-8, atol=1e-6)
    assert {array.numpy().dtype for array in found.values()} == {np.dtype(dtype)}


@pytest.mark.parametrize("value", [1e30, -1e-3, np.nan, np.inf])
def test_one_client_moves_a_round_by_the_clipping_norm_at_most(value):
    def attacked(partition, number):
        moves = updates(partition, number)
        return {name: np.full_like(part, value) for name, part in moves.items()} if partition == victim else moves

    batch = SCHEME.sampler(KEY)[0]
    victim = int(batch.indices[0])

    def released(update):
        return flat(cohorts().start(grid(update), model(dtype=np.float64), num_rounds=1).arrays)

    moved = released(updates) - released(attacked)
    assert 0.0 < np.linalg.norm(moved) * SCHEME.expected_batch_size <= 2 * 0.5 * (1 + 1e-12)
    zeroed = released(
        lambda partition, number: {k: v * (partition != victim) for k, v in updates(partition, number).items()}
    )
    assert np.linalg.norm(zeroed - released(attacked)) * SCHEME.expected_batch_size <= 0.5 * (1 + 1e-12)


def test_noise_is_that_of_the_key_and_the_round():
    still = grid(lambda partition, number: {name: np.zeros(shape) for name, shape in SHAPES.items()})
    found = flat(cohorts(rounds=200, noise_multiplier=2.0).start(still, model(dtype=np.float64)).arrays)
    sampler = SCHEME.sampler(KEY)
    noise = sum(filet.add_noise(np.zeros(8), sampler, noise_multiplier=2.0, step=step) for step in range(200))
    np.testing.assert_allclose(found, noise * 0.5 / SCHEME.expected_batch_size, rtol=1e-9)
    spread = 2.0 * 0.5 / SCHEME.expected_batch_size * np.sqrt(200)
    assert 0.3 * spread < found.std() < 2.5 * spread


@pytest.mark.parametrize("lost", ["silent", "broken"])
def test_an_incomplete_cohort_releases_nothing_and_is_asked_again_as_the_same_round(lost):
    strategy, nodes = cohorts(), grid()
    undisturbed = flat(cohorts().start(grid(), model()).arrays)
    missing = int(SCHEME.sampler(KEY)[2].indices[0])
    node = next(node for node, partition in nodes.nodes.items() if partition == missing)
    setattr(nodes, lost, {node})
    with pytest.raises(
        filet.InvalidArgumentError, match=r"cohort of round \d is incomplete, and nothing was released"
    ) as caught:
        strategy.start(nodes, model())
    assert str(missing) not in str(caught.value).replace(f"round {strategy.rounds_done + 1}", "")
    failed = strategy.rounds_done
    assert failed <= 2
    setattr(nodes, lost, set())
    np.testing.assert_array_equal(flat(strategy.start(nodes, model()).arrays), undisturbed)
    assert nodes.asked[failed] == nodes.asked[failed + 1]


@pytest.mark.parametrize("lost", ["silent", "broken", "gone"])
def test_a_drop_out_may_count_as_zero_and_the_divisor_stays(lost):
    missing = int(SCHEME.sampler(KEY)[0].indices[0])

    def without(partition, number):
        return {name: part * (partition != missing) for name, part in updates(partition, number).items()}

    nodes = grid()
    node = next(node for node, partition in nodes.nodes.items() if partition == missing)
    if lost == "gone":
        del nodes.nodes[node]
    else:
        setattr(nodes, lost, {node})
    found = cohorts(dropouts="zero").start(nodes, model(), num_rounds=1).arrays
    assert np.array_equal(flat(found), flat(cohorts().start(grid(without), model(), num_rounds=1).arrays))


def test_a_population_that_is_not_the_schemes_is_refused():
    for clients, options in [(11, {}), (13, {}), (13, {"dropouts": "zero"}), (11, {"clients": by_node_id})]:
        nodes = grid(clients=clients)
        with pytest.raises(
            filet.InvalidArgumentError, match=rf"{clients} known as clients, not scheme.dataset_size=12"
        ):
            cohorts(**options).start(nodes, model())
        assert nodes.asked == []
    twins = grid()
    twins.nodes = dict.fromkeys(twins.nodes, 3)
    with pytest.raises(filet.InvalidArgumentError, match="two nodes say that they have partition 3"):
        cohorts().start(twins, model())


def test_a_population_that_connects_anew_keeps_its_names():
    nodes = grid()
    whole = flat(cohorts().start(grid(), model()).arrays)
    strategy = cohorts()
    strategy.start(nodes, model(), num_rounds=3)
    nodes.nodes = grid(first_id=50_000).nodes
    assert np.array_equal(flat(strategy.start(nodes, model()).arrays), whole)
    by_id = cohorts(clients=by_node_id)
    by_id.start(grid(), model())
    assert by_id.rounds_done == 6


def test_killed_at_any_round_and_resumed_ends_with_the_same_model(tmp_path):
    whole = flat(cohorts().start(grid(), model()).arrays)
    path = tmp_path / "run.npz"
    for stop in (2, 1, 3):
        strategy = cohorts(checkpoint=path)
        strategy.start(grid(), model(), num_rounds=stop)
    done = cohorts(checkpoint=path)
    assert (done.rounds_done, done.rounds_left) == (6, 0)
    assert np.array_equal(flat(done.start(grid(), model()).arrays), whole)
    assert done.epsilon(1e-3) == cohorts_epsilon(6)
    assert KEY not in path.read_bytes()


def cohorts_epsilon(rounds):
    return filet.account(SCHEME, noise_multiplier=1.0, steps=rounds, adjacency="zero-out").epsilon(1e-3)


def test_rounds_beyond_the_run_are_refused():
    strategy = cohorts()
    with pytest.raises(filet.InvalidArgumentError, match="6 of rounds=6 are left"):
        strategy.start(grid(), model(), num_rounds=7)
    nodes = grid()
    strategy.start(nodes, model())
    with pytest.raises(filet.InvalidArgumentError, match="rounds=6 have been released"):
        strategy.configure_train(7, model(), {}, nodes)
    with pytest.raises(filet.InvalidArgumentError, match="no round was configured"):
        strategy.aggregate_train(7, [])


def test_nothing_without_noise_is_asked_of_clients_or_reported():
    strategy = cohorts()
    result = strategy.start(grid(), model())
    assert result.train_metrics_clientapp == {}
    assert result.evaluate_metrics_clientapp == {}
    assert strategy.configure_evaluate(1, model(), {}, grid()) == []


def test_what_does_not_fit_is_refused_before_a_release():
    sizes = ArrayRecord({"weight": Array(np.zeros((3, 2))), "steps": Array(np.zeros(1, dtype=np.int64))})
    wrong = grid(lambda partition, number: {"weight": np.zeros((3, 2))})
    broken = ArrayRecord({name: Array(np.full(shape, np.nan)) for name, shape in SHAPES.items()})
    for call, match in [
        (lambda: cohorts().start(grid(), sizes), "array 'steps' holds int64"),
        (lambda: cohorts().start(wrong, model()), "does not hold the model's arrays"),
        (lambda: cohorts().start(grid(), broken), "not finite"),
        (lambda: cohorts(clipping_norm=0.0), r"clipping_norm=0\.0 is not in"),
        (lambda: cohorts(dropouts="resample"), "pass 'refuse' or 'zero'"),
        (lambda: cohorts(key=None, checkpoint="run.npz"), "checkpoint is given without a key"),
        (lambda: cohorts(adjacency="add"), "adjacency"),
        (lambda: cohorts("scheme"), "CappedPoisson"),
    ]:
        with pytest.raises(filet.FiletError, match=match) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_reply_of_somebody_else_is_refused():
    strategy, nodes = cohorts(), grid()
    asked = list(strategy.configure_train(1, model(), {}, nodes))
    replies = nodes.send_and_receive(asked)
    with pytest.raises(filet.InvalidArgumentError, match="the second of one client"):
        strategy.aggregate_train(1, [*replies, replies[0]])
    assert strategy.rounds_done == 0
