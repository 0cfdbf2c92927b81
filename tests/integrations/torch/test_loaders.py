"""The PyTorch loader: fixed shapes, honest padding, exact resumption, ranks, compilation."""

from __future__ import annotations

import gc
import pickle

import accelerate
import numpy as np
import pytest
import torch
from tests.integrations.torch_data import DATA, KEY, ROWS, SCHEME, Nested
from tests.integrations.torch_ranks import two_ranks
from torch import distributed
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import filet
from filet.integrations.torch import CappedPoissonBatchSampler, PaddedCollate, loader


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
    parts = sorted(two_ranks(_rank, 2, tmp_path / "store"))
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


def _refusal(use):
    try:
        use()
    except filet.StateError as error:
        return str(error)


def _joins_late(rank, world_size, path, queue):
    early = loader(DATA, SCHEME, 6, KEY)
    told = loader(DATA, SCHEME, 6, KEY, rank=rank, world_size=world_size)
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world_size)
    try:
        prepared = accelerate.Accelerator(
            cpu=True, dataloader_config=accelerate.DataLoaderConfiguration(even_batches=False)
        ).prepare(loader(DATA, SCHEME, 6, KEY))
        late, left = (loader(DATA, SCHEME, 6, KEY) for _ in range(2))
        found = [_refusal(lambda: list(early)), _refusal(lambda: list(prepared))]
        sizes = [[int(mask.sum()) for _, mask in run] for run in (told, late)]
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
    queue.put((*found, _refusal(lambda: list(left)), sizes[0] == sizes[1]))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own, about the device of a barrier
def test_a_loader_made_before_the_process_group_or_sharded_again_is_refused(tmp_path):
    answers = two_ranks(_joins_late, 2, tmp_path / "store")
    for early, prepared, left, same in answers:
        assert "world_size=1 when this loader was made" in early
        assert "leave it out of prepare" in prepared
        assert "world_size=2 when this loader was made, and this process is rank 0 of 1 now" in left
        assert same  # ranks that were told, and ranks that asked the group


def test_a_loader_that_accelerate_has_wrapped_is_refused_and_stays_usable():
    run = loader(DATA, SCHEME, 6, KEY)
    wrapped = accelerate.Accelerator(cpu=True).prepare(run)
    with pytest.raises(filet.StateError, match=r"another loader reads.*leave it out of prepare"):
        next(iter(wrapped))
    assert run.state_dict()["step"] == 0
    assert_same(plain(run), plain(loader(DATA, SCHEME, 6, KEY)))
    assert run.state_dict()["step"] == 6


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_that_changes_its_length_is_noticed_at_the_next_batch(workers):
    rows = [torch.tensor(float(number)) for number in range(40)]
    for change in (lambda: rows.pop(), lambda: rows.append(rows[0])):
        run = loader(rows, SCHEME, 6, KEY, epoch_steps=3, num_workers=workers)
        batches = iter(run)
        next(batches)
        change()
        for goes_on in (lambda: next(batches), lambda: iter(run)):  # noqa: B023
            with pytest.raises(filet.InvalidArgumentError, match=r"examples, not scheme\.dataset_size=40"):
                goes_on()
        assert run.state_dict()["step"] == 1
        rows[:] = [torch.tensor(float(number)) for number in range(40)]


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
