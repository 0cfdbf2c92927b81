"""Checkpoints of a federation: whole, of the same run, or refused."""

from __future__ import annotations

import pytest
from tests.integrations.flower_grid import cohorts, grid, model

import filet


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "run.npz"
    cohorts(checkpoint=file).start(grid(), model(), num_rounds=2)
    return file


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"key": b"another key for these tests"}, "key"),
        ({"noise_multiplier": 2.0}, "noise_multiplier"),
        ({"clipping_norm": 1.0}, "clipping_norm"),
        ({"rounds": 7}, "rounds"),
        ({"adjacency": "add-remove"}, "adjacency"),
        ({"dropouts": "zero"}, "dropouts"),
        ({"scheme": filet.CappedPoisson(12, 0.3, 5)}, "max_batch_size"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_by_name(path, options, named):
    with pytest.raises(filet.StateError, match=f"is of another run: {named} differs"):
        cohorts(checkpoint=path, **options)


@pytest.mark.parametrize("damage", [lambda data: data[:-40], lambda data: b"", lambda data: b"PK" + data[9:]])
def test_a_damaged_checkpoint_is_refused(path, damage):
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(filet.StateError, match=r"cannot read the checkpoint .*; restore it from a backup") as caught:
        cohorts(checkpoint=path)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_cannot_be_written_stops_the_round_before_its_release(path):
    strategy = cohorts(checkpoint=path)
    path.parent.joinpath("folder").mkdir()
    strategy._checkpoint = path.parent / "folder"
    with pytest.raises(filet.OutputError, match="not a regular file"):
        strategy.start(grid(), model())
    assert strategy.rounds_done == 2
