"""Padding of PyTorch batches: structure, shapes and types never change, and rows of padding hold nothing."""

from __future__ import annotations

import collections
import collections.abc

import pytest
import torch
import transformers
from tests.integrations.torch_data import DATA, KEY, ROWS, SCHEME, Nested
from torch.utils.data import Dataset

import filet
from filet.integrations.torch import PaddedCollate, loader


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


class Ragged(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.zeros(1 + index % 2)


def test_examples_of_another_shape_are_refused():
    collate = PaddedCollate(Ragged(), 4)
    with pytest.raises(filet.InvalidArgumentError, match="same shape"):
        collate([torch.zeros(2)])
