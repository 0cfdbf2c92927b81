"""Reading behind the loaders: the same batches by every way, and workers that fill memory shared from the start."""

from __future__ import annotations

import gc
import itertools
import time
import weakref

import numpy as np
import pytest
import torch
from tests.integrations.torch_data import DATA, KEY, SCHEME, Nested
from torch.utils.data import Dataset, TensorDataset, default_collate, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

import filet
from filet.integrations.torch import loader
from filet.integrations.torch.padding import map_leaves
from filet.integrations.torch.reading import SharedCollate

LARGE = filet.CappedPoisson(dataset_size=2000, sampling_probability=0.15, max_batch_size=330)
WIDE = torch.arange(1.0, 4001.0).reshape(2000, 2)


class Rows(Dataset):
    """Examples of one data set, read one by one."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, place):
        assert type(place) is int
        return self.dataset[place]


class AtOnce(Rows):
    """The same by `__getitems__`, which notes what it was asked for."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.asked: list[list[int]] = []

    def __getitem__(self, place):
        assert place == 0, "only the first example, for the structure"
        return self.dataset[place]

    def __getitems__(self, places):
        self.asked.append(places)
        return [self.dataset[place] for place in places]


def expected(dataset, scheme, steps):
    """Each batch by hand: collated whole, zeros behind."""
    dataset = getattr(dataset, "dataset", dataset)
    for batch in scheme.sampler(KEY)[:steps]:
        places = batch.indices[: batch.size].tolist()
        rows = default_collate([dataset[place] for place in places] or [dataset[0]])
        size = len(places)

        def padded(leaf, _, size=size):
            zeros = leaf.new_zeros((scheme.max_batch_size - size, *leaf.shape[1:]))
            return torch.cat([leaf[:size], zeros])

        yield map_leaves(padded, rows, "data"), torch.from_numpy(batch.mask)


def assert_equal(found, wanted):
    assert len(found) == len(wanted)
    for (data, mask), (other, other_mask) in zip(found, wanted, strict=True):
        assert torch.equal(mask, other_mask)
        torch.testing.assert_close(data, other, rtol=0, atol=0)
        assert type(data) is type(other)


MANY = [
    TensorDataset(WIDE, torch.arange(2000)),
    Rows(TensorDataset(WIDE, torch.arange(2000))),
    AtOnce(TensorDataset(WIDE, torch.arange(2000))),
    WIDE,
    [{"x": row, "n": (number, float(number))} for number, row in enumerate(WIDE)],
    np.arange(1, 2001, dtype=np.int16),
]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", MANY, ids=lambda dataset: type(dataset).__name__)
def test_batches_of_many_rows_are_those_of_one_collation(dataset, workers):
    run = loader(dataset, LARGE, 4, KEY, num_workers=workers)
    assert_equal(list(run), list(expected(dataset, LARGE, 4)))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [DATA, Rows(DATA), Nested(), torch.arange(40)], ids=lambda one: type(one).__name__)
def test_batches_of_few_rows_are_too_also_empty_ones(dataset, workers):
    assert_equal(list(loader(dataset, SCHEME, 60, KEY, num_workers=workers)), list(expected(dataset, SCHEME, 60)))


@pytest.mark.long
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_are_spawned_give_the_same_batches(persistent):
    options = {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": persistent}
    run = loader(Nested(), SCHEME, 8, KEY, epoch_steps=4, **options)
    assert_equal([*run, *run], list(expected(Nested(), SCHEME, 8)))


def test_a_data_set_that_reads_several_is_asked_once_a_batch_with_its_places():
    dataset = AtOnce(DATA)
    list(loader(dataset, SCHEME, 60, KEY))
    batches = [batch.indices[: batch.size].tolist() for batch in SCHEME.sampler(KEY)[:60]]
    assert dataset.asked == [places for places in batches if places]


class Counted(Dataset):
    """Counts the examples that are alive."""

    def __init__(self):
        self.alive = self.most = 0

    def __len__(self):
        return 2000

    def __getitem__(self, place):
        row = torch.zeros(1)
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(row, self._forget)
        return row

    def _forget(self):
        self.alive -= 1


def test_few_examples_are_alive_at_once():
    dataset = Counted()
    for _, mask in loader(dataset, LARGE, 3, KEY):
        assert mask.sum() > 256
    assert dataset.most <= 161


def _sees_users_data(worker):
    dataset = get_worker_info().dataset  # type: ignore[union-attr]
    assert type(dataset) in (Marked, TensorDataset)
    dataset.mark = worker + 1  # type: ignore[union-attr]


class Marked(Rows):
    mark = 0

    def __getitem__(self, place):
        info = get_worker_info()
        assert info is None or info.dataset is self
        return torch.tensor([self.mark, place])


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn_changes_the_data_set_that_the_worker_reads(persistent):
    options = {"num_workers": 2, "worker_init_fn": _sees_users_data, "persistent_workers": persistent}
    run = loader(Marked(DATA), SCHEME, 8, KEY, epoch_steps=4, **options)
    marks = [set(data[mask, 0].tolist()) for _ in range(2) for data, mask in run]
    assert marks == [{1}, {2}] * 4
    assert get_worker_info() is None


def _told(worker):
    raise RuntimeError(f"worker {worker} was started")


def test_tensors_are_gathered_without_workers_unless_somebody_would_notice():
    list(loader(DATA, SCHEME, 2, KEY, num_workers=1, timeout=5, multiprocessing_context="spawn"))
    with pytest.raises(RuntimeError, match="worker 0 was started"):
        list(loader(DATA, SCHEME, 2, KEY, num_workers=1, worker_init_fn=_told))
    where = loader(DATA, SCHEME, 2, KEY, num_workers=1, collate_fn=_worker_number)
    assert [data[mask].unique().tolist() for data, mask in where] == [[1]] * 2


def _worker_number(examples):
    info = get_worker_info()
    return torch.full((len(examples),), 0 if info is None else info.id + 1)


def test_a_worker_ships_one_tensor_a_batch_and_the_mask_is_apart():
    for data, mask in loader(Nested(), SCHEME, 4, KEY, num_workers=1):
        leaves = [data["x"], data["more"][0], *data["more"][1]]
        assert len({leaf.untyped_storage().data_ptr() for leaf in leaves}) == 1
        assert all(leaf.is_contiguous() and leaf.data_ptr() % leaf.element_size() == 0 for leaf in leaves)
        assert mask.untyped_storage().data_ptr() != data["x"].untyped_storage().data_ptr()
        data["x"].fill_(7.0)
        assert not (data["more"][0][~mask] != 0).any()


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_that_are_kept_stay_as_they_are_also_over_abandoned_passes(persistent, prefetch):
    """A worker fills its slots in turn, while the main process may hold any number of batches."""
    options = {"num_workers": 2, "persistent_workers": persistent, "prefetch_factor": prefetch}
    run = loader(Nested(), SCHEME, 60, KEY, **options)
    kept = []
    for taken in (1, 2, 7, 3, 20):
        kept += itertools.islice(run, taken)
    kept += list(run)
    assert_equal(kept, list(expected(Nested(), SCHEME, 60)))


def test_a_worker_that_waits_for_the_main_process_overwrites_nothing():
    run = iter(loader(Nested(), SCHEME, 60, KEY, num_workers=2, prefetch_factor=1))
    found = []
    for batch in run:
        time.sleep(0.01)  # workers are ahead as far as they may
        found.append(batch)
    assert_equal(found, list(expected(Nested(), SCHEME, 60)))


def test_slots_of_a_worker_are_used_in_turn_and_shared_with_other_processes():
    shared = SharedCollate(loader(DATA, SCHEME, 1, KEY).collate_fn)
    shared.make_slots(2, 3)
    assert shared._slots is not None
    assert shared._slots.is_shared()
    assert shared._slots.shape[:2] == (2, 3)


def test_batches_out_of_order_are_refused():
    with pytest.raises(filet.InvalidArgumentError, match="in_order=False"):
        loader(Nested(), SCHEME, 4, KEY, num_workers=2, in_order=False)


class Own(dict):
    """A mapping that knows more than its parts."""

    note: str


def own_mapping(examples):
    made = Own(x=torch.stack([x for x, _ in examples]))
    made.note = f"{len(examples)} examples"
    return made


@pytest.mark.parametrize("workers", [0, 1])
def test_structures_of_the_users_own_are_shipped_as_they_are(workers):
    run = loader(DATA, SCHEME, 6, KEY, collate_fn=own_mapping, num_workers=workers)
    assert {type(data) for data, _ in run} == {Own}


def test_collate_functions_that_were_registered_for_a_type_are_used(monkeypatch):
    def negative(tensors, *, collate_fn_map=None):
        return -torch.stack(tensors)

    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, negative)
    for (x, _), mask in loader(DATA, SCHEME, 6, KEY):
        assert (x[mask] < 0).all()


def test_a_tensor_that_was_put_in_its_place_is_read():
    dataset = TensorDataset(*DATA.tensors)
    run = loader(dataset, SCHEME, 6, KEY, epoch_steps=3)
    list(run)
    dataset.tensors = (-DATA.tensors[0], DATA.tensors[1])
    for (x, _), mask in run:
        assert (x[mask] < 0).all()
    dataset.tensors = (DATA.tensors[0].double(), DATA.tensors[1])
    changed = loader(dataset, SCHEME, 6, KEY)
    changed.collate_fn = run.collate_fn
    with pytest.raises(filet.InvalidArgumentError, match=r"data\[0\] has rows of \(2,\) torch.float64"):
        list(changed)


def test_options_that_change_between_passes_are_followed_and_no_reader_stays():
    run = loader(Rows(DATA), SCHEME, 9, KEY, epoch_steps=3, collate_fn=_worker_number)
    seen = [{int(data[mask].max()) for data, mask in run if mask.any()}]
    run.num_workers = 1
    run.prefetch_factor = 2
    seen.append({int(data[mask].max()) for data, mask in run if mask.any()})
    assert seen == [{0}, {1}]
    old = weakref.ref(run._reader)
    list(run)
    gc.collect()
    assert old() is None


def test_two_tensors_of_one_name_are_refused():
    class Key:
        def __repr__(self):
            return "key"

    with pytest.raises(filet.InvalidArgumentError, match=r"two tensors are called data\[key\]"):
        loader(
            DATA, SCHEME, 1, KEY, collate_fn=lambda rows: {Key(): torch.zeros(len(rows)), Key(): torch.ones(len(rows))}
        )


def test_padding_in_shared_memory_is_zero_whatever_was_there():
    padded = loader(DATA, SCHEME, 1, KEY).collate_fn
    shared = SharedCollate(padded)
    _, memory, size = shared([DATA[0]])
    (x, y), mask = shared.received(([None, None], memory, size))
    assert (x.tolist(), y.tolist(), mask.tolist()) == ([[1, 2]] + [[0, 0]] * 4, [1, 0, 0, 0, 0], [True] + [False] * 4)
