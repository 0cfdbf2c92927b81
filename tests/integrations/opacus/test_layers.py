"""Layers that Opacus gets wrong: made right, or refused by name."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from opacus.grad_sample import GradSampleModule
from opacus.layers import DPGRU
from tests.integrations.opacus_engines import engine_for, private
from tests.integrations.opacus_models import LABELS, MODES, Plain, refusal, start, train
from tests.integrations.quiet import OPACUS
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

pytestmark = [
    *OPACUS,
    pytest.mark.filterwarnings("ignore:In CPU autocast"),
]


class Texts(nn.Module):
    """Ids with padding, positions that all rows share, and a linear layer on four dimensions."""

    def __init__(self, **options):
        super().__init__()
        self.words = nn.Embedding(7, 8, **{"padding_idx": 0, **options})
        self.places = nn.Embedding(4, 8)
        self.inner = nn.Linear(4, 4)
        self.out = nn.Linear(8, 5)

    def forward(self, ids):
        hidden = self.words(ids) + self.places(self.ids(ids))
        return self.out(self.inner(hidden.view(len(ids), 4, 2, 4)).flatten(2).mean(1))

    def ids(self, ids):
        return torch.arange(4)[None]


IDS = torch.randint(0, 7, (8, 4), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("mode", MODES)
def test_shared_positions_padding_ids_and_four_dimensions_are_right(mode):
    torch.manual_seed(4)
    model = Texts()
    plain = copy.deepcopy(model)
    found = train(start(model, mode, rows=IDS, lr=0.0), 1)
    total = torch.zeros_like(found)
    for ids, label in zip(IDS, LABELS, strict=True):
        loss = functional.cross_entropy(plain(ids[None]), label[None])
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(plain.parameters()))])
        total += gradient / max(1.0, float(gradient.norm()))
    torch.testing.assert_close(found, total, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_layers_that_cannot_be_clipped_are_refused_by_name(mode):
    class OneDimension(Texts):
        def ids(self, ids):
            return torch.arange(4)

    def bag():
        return nn.Sequential(nn.EmbeddingBag(7, 5))

    assert "'words.weight' has scale_grad_by_freq" in refusal(start, Texts(scale_grad_by_freq=True), mode, rows=IDS)
    assert "'words.weight' has max_norm=1.0" in refusal(start, Texts(max_norm=1.0), mode, rows=IDS)
    shared = refusal(train, start(OneDimension, mode, rows=IDS))
    assert f"parameter 'places.weight': grad_sample_mode='{mode}' found gradients of 4 rows" in shared
    assert "'0.weight'" in refusal(lambda: train(start(bag(), mode, rows=IDS)))


@pytest.mark.parametrize("mode", MODES)
def test_what_opacus_cannot_do_names_parameter_mode_and_remedy(mode):
    class Unused(Plain):
        def __init__(self):
            super().__init__()
            self.other = nn.Linear(5, 5)

    class Checkpointed(Plain):
        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(super().forward, x.requires_grad_(), use_reentrant=False)

    class Prompted(Plain):
        active_peft_config = SimpleNamespace(is_prompt_learning=True)

        def __init__(self):
            super().__init__()  # the head comes first, as in PEFT's models for classification
            self.prompt_encoder = nn.Embedding(3, 5)

    assert "parameter 'prompt_encoder.weight' is a prompt" in refusal(start, Prompted, mode)
    unused = refusal(train, start(Unused, mode))
    assert f"parameter 'other.weight': grad_sample_mode='{mode}' found no" in unused
    found = refusal(train, start(Checkpointed, mode))
    assert f"grad_sample_mode='{mode}'" in found
    assert "gradient checkpointing" in found
    assert "'first.weight'" in found or "'last.weight'" in found


def test_a_tied_weight_is_right_in_hooks_mode_and_named_in_ghost_mode():
    class Tied(Plain):
        def __init__(self):
            super().__init__()
            self.last.weight = self.first.weight

    assert len(train(start(Tied, "hooks"))) == 35
    tied = refusal(train, start(Tied, "ghost"))
    assert "parameter 'first.weight' of Linear" in tied
    assert "use grad_sample_mode='hooks'" in tied


class Convolved(nn.Module):
    """Layers whose gradients of biases are views of what was propagated back, and one that is used twice."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(1, 4, 3)
        self.groups = nn.GroupNorm(2, 4)
        self.twice = nn.Linear(16, 16)
        self.layers = nn.LayerNorm(16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        hidden = self.groups(self.convolution(x[:, None])).flatten(1)
        return self.out(self.layers(self.twice(torch.tanh(self.twice(hidden)))))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = DPGRU(2, 4, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.cells(x.view(len(x), 3, 2))[0][:, -1])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("model", [Convolved, Recurrent])
def test_clipped_sums_are_those_of_single_examples_and_backprops_stay_as_they_were(model, reduction):
    torch.manual_seed(5)
    data = TensorDataset(torch.randn(40, 6), torch.arange(40) % 3)
    plain = model()
    made, optimizer, run = private(
        engine_for(steps=6), copy.deepcopy(plain), data, lr=0.0, noise_multiplier=0.0, loss_reduction=reduction
    )
    examples = 0
    for x, y in run:
        optimizer.zero_grad()
        output = made(x)
        output.retain_grad()
        functional.cross_entropy(output, y, reduction=reduction).backward()
        before = output.grad.clone()
        optimizer.step()
        assert torch.equal(output.grad, before)
        total = [torch.zeros_like(p) for p in plain.parameters()]
        for row in run.mask.nonzero().flatten().tolist():
            loss = functional.cross_entropy(plain(x[row : row + 1]), y[row : row + 1])
            gradients = torch.autograd.grad(loss, list(plain.parameters()))
            norm = float(torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients])))
            total = [old + g / max(1.0, norm) for old, g in zip(total, gradients, strict=True)]
            examples += 1
        for p, expected in zip(optimizer.params, total, strict=True):
            torch.testing.assert_close(p.summed_grad, expected, rtol=1e-4, atol=1e-5)
    assert examples


def test_a_samplers_gradients_are_not_copied_but_a_users_are():
    """Opacus's hooks copy every gradient; a registered sampler's tensor may be one that its author keeps."""
    made_by = []

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6))

        def forward(self, x):
            return x * self.weight

    def sampler(layer, activations, backprops):
        made_by.append(activations[0] * backprops)
        return {layer.weight: made_by[-1]}

    einsum, results = torch.einsum, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GradSampleModule.GRAD_SAMPLERS, Scale, sampler)
        made, _, run = private(engine_for(steps=1, check_gradients=False), nn.Sequential(Scale(), nn.Linear(6, 3)))
        x, y = next(iter(run))

        def kept(*terms):
            results.append(einsum(*terms))
            return results[-1]

        patch.setattr(torch, "einsum", kept)
        functional.cross_entropy(made(x), y).backward()
    scale, weight, bias = made.parameters()
    assert scale.grad_sample.data_ptr() != made_by[0].data_ptr()
    assert weight.grad_sample.data_ptr() == results[0].data_ptr()
    assert bias.grad_sample.data_ptr() != results[1].data_ptr()  # a view of what was propagated back
