"""The PyTorch loader: fixed shapes, honest padding, exact resumption, ranks, compilation."""

from __future__ import annotations

import collections
import collections.abc
import gc
import pickle

import numpy as np
import pytest
import torch
import transformers
from torch import distributed, multiprocessing
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import filet
from filet.integrations.torch import CappedPoissonBatchSampler, PaddedCollate, loader

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


class Frozen(collections.abc.Mapping):
    """A mapping that nobody can change."""

    def __init__(self, parts):
        self._parts = dict(parts)

    def __getitem__(self, key):
        return self._parts[key]

    def __iter__(self):
        return iter(self._parts)

    def __len__(self):
        return len(self._parts)


class Odd(Frozen):
    """One that cannot be made from a dict either."""

    def __init__(self, parts, size):
        super().__init__(parts)


MAPPINGS = [
    (dict, dict),
    (transformers.BatchEncoding, transformers.BatchEncoding),
    (collections.OrderedDict, collections.OrderedDict),
    (collections.UserDict, collections.UserDict),
    (lambda parts: collections.defaultdict(list, parts), collections.defaultdict),
    (Frozen, Frozen),
    (lambda parts: Odd(parts, 3), dict),
]


@pytest.mark.parametrize(("make", "kind"), MAPPINGS, ids=lambda value: getattr(value, "__name__", ""))
def test_mappings_other_than_dict_stay_what_the_collate_function_returned(make, kind):
    def collate(examples):
        rows = torch.stack([x for x, _ in examples])
        return make({"input_ids": rows, "inner": make({"labels": torch.stack([y for _, y in examples])})})

    sizes = set()
    for data, mask in loader(DATA, SCHEME, 60, KEY, collate_fn=collate):
        assert type(data) is type(data["inner"]) is kind
        assert set(data) == {"input_ids", "inner"}
        assert torch.equal(data["input_ids"][mask], ROWS[data["inner"]["labels"][mask] - 1])
        assert not data["input_ids"][~mask].any()
        sizes.add(int(mask.sum()))
    assert 0 in sizes


def test_another_structure_than_in_the_first_example_is_refused():
    def changing(examples):
        rows = torch.stack([x for x, _ in examples])
        found = {"x": rows, "more": rows} if len(examples) > 1 else {"x": rows}
        return transformers.BatchEncoding(found)

    with pytest.raises(filet.InvalidArgumentError, match="another structure than in the first example"):
        list(loader(DATA, SCHEME, 30, KEY, collate_fn=changing))
    nested = PaddedCollate(DATA, 4, lambda examples: {"x": [torch.zeros(len(examples))] * len(examples)})
    with pytest.raises(filet.InvalidArgumentError, match=r"data\['x'\] has another structure"):
        nested([DATA[0], DATA[1]])


def test_an_empty_batch_holds_nothing_of_the_first_example():
    def collate(examples):
        found = transformers.BatchEncoding({"x": torch.stack([x for x, _ in examples])})
        found.secret = examples  # type: ignore[attr-defined]
        return found

    empty, _ = PaddedCollate(DATA, 4, collate)([])
    assert type(empty) is transformers.BatchEncoding
    assert "secret" not in vars(empty)


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


def test_small_a_finished_run_with_workers_leaves_nothing_to_be_printed():
    run = loader(DATA, SCHEME, 4, KEY, num_workers=1)
    assert len(list(run)) == 4
    with pytest.raises(filet.StateError, match="is over"):
        iter(run)
    gc.collect()  # an iterator that was half made would be an unraisable error here, which pytest makes a failure


def test_small_a_run_resumes_on_another_number_of_ranks():
    whole = plain(loader(DATA, SCHEME, 24, KEY))
    one = loader(DATA, SCHEME, 24, KEY)
    seen = iter(one)
    for _ in range(10):
        next(seen)
    state = one.state_dict()
    ranks = [loader(DATA, SCHEME, 24, KEY, rank=rank, world_size=2) for rank in range(2)]
    for rank in ranks:
        rank.load_state_dict(state)
    for expected, *parts in zip(whole[10:], *map(plain, ranks), strict=True):
        union = sorted(int(y) for _, labels, mask in parts for y in labels[mask])
        assert union == expected[1][expected[2]].tolist()


def test_small_a_loader_that_drew_its_own_key_says_so_when_its_state_is_saved():
    run = loader(DATA, SCHEME, 9)
    seen = iter(run)
    for _ in range(4):
        next(seen)
    with pytest.warns(UserWarning, match=r"cannot be resumed; pass key=.*include_key=True"):
        run.state_dict()
    state = run.state_dict(include_key=True)
    rest = plain(seen)
    other = loader(DATA, SCHEME, 9)
    other.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert_same(plain(other), rest)
    with pytest.raises(filet.StateError, match="key is damaged"):
        loader(DATA, SCHEME, 9).load_state_dict({**state, "key": b"short"})
    with pytest.raises(filet.StateError, match="another key"):
        loader(DATA, SCHEME, 9, KEY).load_state_dict(state)


def test_small_iterating_draws_nothing_from_the_global_generator():
    run = loader(DATA, SCHEME, 6, KEY, num_workers=1)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert len(list(run)) == 6
    assert torch.equal(torch.get_rng_state(), before)


def test_virtual_batches_are_the_batches_in_equal_parts_with_an_exact_length():
    scheme = filet.CappedPoisson(40, 0.1, 6)
    whole = plain(loader(DATA, scheme, 25, KEY))
    run = loader(DATA, scheme, 25, KEY, physical_batch_size=2, epoch_steps=10)
    assert (len(run), run.parts) == (30, 3)
    parts, ends = [], []
    for count, ((x, y), mask) in enumerate(run):
        assert (x.shape, mask.shape) == ((2, 2), (2,))
        parts.append((x.clone(), y.clone(), mask.clone()))
        ends.append(run.ends_batch)
        if count == 16:
            break  # in the middle of the sixth batch
    assert ends == [count % 3 == 2 for count in range(17)]
    assert run.state_dict()["step"] == 5
    parts = parts[:15]  # a new pass begins with the whole batch again
    assert len(run) == 30
    parts += plain(run)
    assert len(run) == 30
    parts += plain(run)
    assert len(run) == 0
    assert len(parts) == 75
    joined = [tuple(torch.cat(group) for group in zip(*parts[3 * k : 3 * k + 3], strict=True)) for k in range(25)]
    assert_same(joined, whole)
    halves = [loader(DATA, scheme, 25, KEY, rank=r, world_size=2, physical_batch_size=1) for r in range(2)]
    assert [len(half) for half in halves] == [75, 75]
    for wrong in (4, 5, 7):
        with pytest.raises(filet.InvalidArgumentError, match=rf"physical_batch_size={wrong} does not divide .* 6 rows"):
            loader(DATA, scheme, 25, KEY, physical_batch_size=wrong)


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
    group = multiprocessing.spawn(_rank, (2, tmp_path / "store", queue), nprocs=2, join=False)  # type: ignore[attr-defined]
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
