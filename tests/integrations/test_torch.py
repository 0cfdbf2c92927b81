"""The PyTorch loader: fixed shapes, honest padding, exact resumption, ranks, compilation."""

from __future__ import annotations

import collections
import pickle

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import filet
from filet.integrations.torch import CappedPoissonBatchSampler, PaddedCollate, loader

# Other tests import JAX into this process, which warns of any fork; the workers here do not touch JAX.
pytestmark = pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")

KEY = b"a key for the tests of torch"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=5)
# No row is zero, so that a zero row can only be padding.
ROWS = torch.arange(1.0, 81.0).reshape(40, 2)
DATA = TensorDataset(ROWS, torch.arange(1, 41))
Pair = collections.namedtuple("Pair", "left right")


class Nested(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": ROWS[index], "more": (torch.tensor(index + 1), Pair(float(index + 1), np.int64(index + 1)))}


def plain(run):
    return [(x.clone(), y.clone(), mask.clone()) for (x, y), mask in run]


def assert_same(one, two):
    assert len(one) == len(two)
    for first, second in zip(one, two, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_batches_are_the_samplers_padded_with_zeros():
    sampler = SCHEME.sampler(KEY)
    batches = plain(loader(DATA, SCHEME, 200, KEY))
    assert len(batches) == 200
    assert {int(mask.sum()) for _, _, mask in batches} == {0, 1, 2, 3, 4, 5}
    for step, (x, y, mask) in enumerate(batches):
        batch = sampler[step]
        assert x.shape == (5, 2)
        assert np.array_equal(mask.numpy(), batch.mask)
        assert np.array_equal(y[mask].numpy() - 1, batch.indices[batch.mask])
        assert torch.equal(x[mask], ROWS[y[mask] - 1])
        assert not x[~mask].any()
        assert not y[~mask].any()


@pytest.mark.parametrize("workers", [0, 2])
def test_structure_shapes_and_types_never_change(workers):
    kinds = set()
    for data, _ in loader(Nested(), SCHEME, 60, KEY, num_workers=workers):
        more = data["more"]
        leaves = [data["x"], more[0], more[1].left, more[1].right]
        kinds.add(tuple((leaf.shape, leaf.dtype) for leaf in leaves))
        assert torch.equal(more[0], more[1].right)
    assert kinds == {(((5, 2), torch.float32), ((5,), torch.int64), ((5,), torch.float64), ((5,), torch.int64))}


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_a_run_resumes_exactly_in_the_middle_of_an_epoch(options):
    whole = plain(loader(DATA, SCHEME, 24, KEY))
    first = loader(DATA, SCHEME, 24, KEY, epoch_steps=10, **options)
    assert len(first) == 10
    seen = plain(first)
    for number, ((x, y), mask) in enumerate(first):
        seen.append((x.clone(), y.clone(), mask.clone()))
        if number == 4:
            state = pickle.loads(pickle.dumps(first.state_dict()))
            break
    second = loader(DATA, SCHEME, 24, KEY, epoch_steps=10, **options)
    second.load_state_dict(state)
    assert_same(seen + plain(second), whole[:24])
    # The loader that was left in the middle goes on behind the last batch it handed out, too.
    assert_same(plain(first), whole[15:24])


def test_a_finished_run_is_not_repeated():
    run = loader(DATA, SCHEME, 4, KEY)
    assert len(list(run)) == 4
    with pytest.raises(filet.StateError, match=r"steps=4 is over.*new key"):
        list(run)


def test_two_passes_at_once_are_refused():
    run = loader(DATA, SCHEME, 9, KEY)
    with pytest.raises(filet.StateError, match="one at a time"):
        list(zip(run, run, strict=True))


def test_a_state_says_nothing_of_the_key_and_fits_only_its_run():
    run = loader(DATA, SCHEME, 9, KEY)
    state = run.state_dict()
    assert KEY.hex() not in repr(state)
    other = filet.CappedPoisson(40, 0.1, 6)
    for wrong, match in [
        (loader(DATA, SCHEME, 9, 5), "another key; "),
        (loader(DATA, SCHEME, 10, KEY), "another steps"),
        (loader(DATA, other, 9, KEY), "another scheme"),
    ]:
        with pytest.raises(filet.StateError, match=match):
            wrong.load_state_dict(state)
    for damaged in [{}, {**state, "step": 10}, {**state, "step": "1"}, None]:
        with pytest.raises(filet.StateError):
            run.load_state_dict(damaged)
    assert run.state_dict() == state


def test_pinned_memory_keeps_the_structure():
    run = loader(Nested(), SCHEME, 3, KEY, pin_memory=True)
    if torch.accelerator.is_available():
        batches = list(run)
        assert batches[0][1].is_pinned()
    else:
        with pytest.warns(UserWarning, match="no accelerator"):
            batches = list(run)
    assert [data["x"].shape for data, _ in batches] == [(5, 2)] * 3


def test_the_batch_sampler_serves_a_plain_data_loader():
    batches = CappedPoissonBatchSampler(SCHEME, 20, KEY)
    run = DataLoader(DATA, batch_sampler=batches, collate_fn=PaddedCollate(DATA, batches.rows))
    assert len(run) == 20
    assert_same(plain(run), plain(loader(DATA, SCHEME, 20, KEY)))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(40))


class Ragged(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.zeros(1 + index % 2)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: loader(TensorDataset(torch.zeros(39)), SCHEME, 1), "39 examples, not scheme.dataset_size=40"),
        (lambda: loader(Stream(), SCHEME, 1), "map-style"),
        (lambda: loader(["text"] * 40, SCHEME, 1), r"data\[0\] is of type str"),
        (lambda: loader(DATA, SCHEME, 1, shuffle=True), "shuffle is set by the scheme"),
        (lambda: loader(DATA, SCHEME, 1, batch_size=4), "batch_size is set by the scheme"),
        (lambda: loader(DATA, SCHEME, 1, collate_fn=len), "data is of type int"),
        (lambda: loader(DATA, SCHEME, 1, rank=0), "both or none"),
        (lambda: loader(DATA, SCHEME, 1, rank=0, world_size=2), "same key on all ranks"),
        (lambda: loader(DATA, SCHEME, -1), "steps=-1"),
        (lambda: loader(DATA, "scheme", 1), "CappedPoisson"),
        (lambda: list(loader(DATA, SCHEME, 30, KEY, collate_fn=lambda rows: rows[0][0][None])), "one row per"),
        (lambda: PaddedCollate(DATA, 1)([DATA[0], DATA[1]]), "does not fit rows=1"),
    ],
)
def test_bad_input_is_refused_with_the_remedy(make, match):
    with pytest.raises(filet.InvalidArgumentError, match=match):
        make()


def test_examples_of_another_shape_are_refused():
    collate = PaddedCollate(Ragged(), 4)
    with pytest.raises(filet.InvalidArgumentError, match="same shape"):
        collate([torch.zeros(2)])


def _rank(rank, world_size, path, queue):
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world_size)
    try:
        with_key = plain(loader(DATA, SCHEME, 50, KEY))
        fresh = plain(loader(DATA, SCHEME, 50))
        try:
            loader(DATA, SCHEME, 50, key=rank)
        except filet.InvalidArgumentError as error:
            refusal = str(error)
        to_lists = [[(y[mask].tolist(), x.shape, mask.shape) for x, y, mask in run] for run in (with_key, fresh)]
        queue.put((rank, *to_lists, refusal))
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own, about the device of a barrier
def test_two_ranks_share_each_global_batch(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    group = multiprocessing.spawn(_rank, (2, tmp_path / "store", queue), nprocs=2, join=False)
    parts = sorted(queue.get() for _ in range(2))
    while not group.join():
        pass
    sampler = SCHEME.sampler(KEY)
    for step in range(50):
        (first, *shapes), (second, *others) = (part[1][step] for part in parts)
        assert shapes == others == [(3, 2), (3,)]
        assert sorted(first + second) == (sampler[step].indices[sampler[step].mask] + 1).tolist()
        assert abs(len(first) - len(second)) <= 1
        drawn = parts[0][2][step][0] + parts[1][2][step][0]
        assert len(set(drawn)) == len(drawn) <= 5
    assert len(parts[0][2]) == len(parts[1][2]) == 50
    assert all("pass the same on all" in part[3] for part in parts)


@pytest.mark.parametrize("dynamic", [None, False])
def test_a_compiled_step_compiles_once_and_more_often_with_plain_poisson(dynamic):
    def compilations(batches):
        torch._dynamo.reset()
        count = 0

        def backend(graph, inputs):
            nonlocal count
            count += 1
            return graph.forward

        @torch.compile(backend=backend, dynamic=dynamic)
        def step(x, mask):
            return (x.square().sum(1) * mask).sum()

        for x, mask in batches:
            step(x, mask)
        return count

    capped = [(x, mask) for (x, _), mask in loader(DATA, SCHEME, 50, KEY)]
    poisson = [(x[mask], mask[mask]) for x, mask in capped]
    assert compilations(capped) == 1
    assert compilations(poisson) > 1
