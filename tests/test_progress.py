"""Progress: every item once, announced before it is worked on, and the end is said only at the end."""

import pytest

from filet._progress import reported


def test_each_item_is_announced_before_it_comes():
    told = []
    for item in reported([10, 20, 30, 40], lambda share, label: told.append((share, label)), str):
        assert told[-1][1] == str(item)
    assert told == [(0.0, "10"), (0.25, "20"), (0.5, "30"), (0.75, "40"), (1.0, "done")]


def test_nobody_to_tell_means_no_labels_are_made():
    assert list(reported([1, 2], None, lambda item: pytest.fail("a label nobody reads"))) == [1, 2]


def test_nothing_to_do_is_done_at_once():
    told = []
    assert list(reported([], lambda share, label: told.append((share, label)))) == []
    assert told == [(1.0, "done")]


def test_work_that_stops_is_not_called_done():
    told = []
    for item in reported([1, 2], lambda share, label: told.append(label), str):
        if item == 1:
            break
    assert told == ["1"]
