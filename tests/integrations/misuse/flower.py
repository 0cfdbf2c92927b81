"""Wrong uses of filet's cohorts in Flower.

Flower is imported inside the functions: the table is read where it is not installed, too.
"""

from __future__ import annotations

import numpy as np
from tests.integrations.misuse import Absent, Answer, Documented, Refused, Right, Warned


def federation():
    from tests.integrations import flower_grid

    return flower_grid


def without_a_round():
    one = federation()
    one.cohorts().aggregate_train(1, [])


def seeds_between_rounds():
    one = federation()

    def weights(seed):
        strategy = one.cohorts()
        for _ in range(3):
            np.random.seed(seed)  # noqa: NPY002, on purpose
            found = strategy.start(one.grid(), one.model(), num_rounds=2)
        return one.flat(found.arrays)

    assert np.array_equal(weights(1), weights(2))


def a_client_stays_bounded():
    """Whatever a client computes on its rows, its update is clipped once, as a whole."""
    one = federation()
    victim = int(one.SCHEME.sampler(one.KEY)[0].indices[0])

    def large(partition, number):
        factor = -1e9 if partition == victim else 1.0
        return {name: factor * part for name, part in one.updates(partition, number).items()}

    def released(update):
        first = one.model(dtype=np.float64)
        return one.flat(one.cohorts().start(one.grid(update), first, num_rounds=1).arrays)

    moved = np.linalg.norm(released(large) - released(one.updates)) * one.SCHEME.expected_batch_size
    assert 0.0 < moved <= 2 * 0.5 * (1 + 1e-9)


def counters_of_batch_normalisation():
    from flwr.app import Array, ArrayRecord

    one = federation()
    arrays = {"weight": Array(np.zeros((3, 2))), "num_batches_tracked": Array(np.zeros((), dtype=np.int64))}
    one.cohorts().start(one.grid(), ArrayRecord(arrays))


def another_cohort():
    """Another strategy, or a wrapper, asks other nodes than the round's."""
    one = federation()
    strategy, nodes = one.cohorts(), one.grid()
    asked = list(strategy.configure_train(1, one.model(), {}, nodes))
    strategy.aggregate_train(1, nodes.send_and_receive([asked[0], *asked]))


def too_many_rounds():
    one = federation()
    strategy = one.cohorts()
    strategy.start(one.grid(), one.model())
    strategy.start(one.grid(), one.model(), num_rounds=1)


def part_of_a_cohort():
    one = federation()
    strategy, nodes = one.cohorts(), one.grid()
    asked = list(strategy.configure_train(1, one.model(), {}, nodes))
    strategy.aggregate_train(1, nodes.send_and_receive(asked[1:]))


def population_shrinks():
    one = federation()
    strategy, nodes = one.cohorts(), one.grid()
    strategy.start(nodes, one.model(), num_rounds=2)
    nodes.nodes.popitem()
    strategy.start(nodes, one.model())


def from_another_run():
    import tempfile
    from pathlib import Path

    one = federation()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.npz")
        one.cohorts(checkpoint=path).start(one.grid(), one.model(), num_rounds=2)
        one.cohorts(checkpoint=path, key=b"the key of another run")


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Right(a_client_stays_bounded),
    "layer unfrozen later": Right(a_client_stays_bounded),
    "batch without a step": Refused(without_a_round, "no round was configured"),
    "global seed set in the loop": Right(seeds_between_rounds),
    "rows mixed": Right(a_client_stays_bounded),
    "batch normalisation": Refused(counters_of_batch_normalisation, "holds int64, which cannot be noised"),
    "loader wrapped by another library": Refused(another_cohort, "is not of its cohort, or the second of one client"),
    "ranks joined late": Absent("one server draws the cohorts; clients that connect late are waited for"),
    "iterated twice": Refused(too_many_rounds, "0 of rounds=6 are left"),
    "batches repeated, shuffled or sliced": Refused(part_of_a_cohort, "is incomplete, and nothing was released"),
    "data set changed during the run": Refused(population_shrinks, "the population must stay"),
    "another batch size": Documented("integrations/flower.md", "has no `fraction_train`"),
    "rows rearranged after batching": Absent("a cohort has no padding and no mask"),
    "penalty in the loss": Right(a_client_stays_bounded),
    "short key": Warned(lambda: federation().cohorts(key=7), "key is an integer below 2**64"),
    "resumed at the wrong step": Refused(from_another_run, "is of another run: key differs"),
}
