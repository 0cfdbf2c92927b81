"""Examples against plain autograd: a weight used outside its layer, mixed rows and layers that changed are refused."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from tests.integrations.opacus_models import MODES, ROWS, Plain, refusal, start, train
from tests.integrations.quiet import OPACUS
from torch import nn
from torch.nn import functional

pytestmark = [
    *OPACUS,
    pytest.mark.filterwarnings("ignore:In CPU autocast"),
]


class Functional(Plain):
    """The first layer's weight is the output layer's too, past the layer."""

    def forward(self, x):
        return functional.linear(super().forward(x), self.first.weight)


class Gated(Functional):
    """As above, behind a gate that is shut when training begins."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(5, 5)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, x):
        return self.last(self.first(x)) + functional.linear(self.gate(x), self.first.weight)


class Centred(Plain):
    def forward(self, x):
        hidden = self.first(x)
        return self.last(torch.relu(hidden - hidden.mean(0)))


class Attending(Plain):
    def forward(self, x):
        hidden = self.first(x)
        return self.last(torch.softmax(hidden @ hidden.T, dim=-1) @ hidden)


class Contrastive(nn.CrossEntropyLoss):
    def forward(self, outputs, labels):
        unit = functional.normalize(outputs, dim=1)
        return functional.cross_entropy(20 * unit @ unit.T, torch.arange(len(unit)), reduction=self.reduction)


@pytest.mark.parametrize("mode", [*MODES, "functorch"])
@pytest.mark.parametrize(
    ("model", "says"),
    [(Functional, "parameter 'first.weight': an example's gradient"), (Centred, "mixes the rows"),
     (Attending, "mixes the rows")],
)  # fmt: skip
def test_gradients_that_clipping_does_not_bound_are_refused_before_the_model_changes(mode, model, says):
    started = start(model, mode)
    before = [p.detach().clone() for p in started[1].parameters()]
    assert says in refusal(train, started)
    assert all(torch.equal(p, q) for p, q in zip(started[1].parameters(), before, strict=True))
    assert len(started[0].accountant) == 0


@pytest.mark.parametrize("mode", MODES)
def test_the_check_can_be_switched_off(mode):
    assert len(train(start(Functional, mode, check_gradients=False))) == 60


@pytest.mark.parametrize("mode", MODES)
def test_a_weight_whose_second_use_is_silent_at_first_is_found_later(mode):
    started = start(Gated, mode, noise=1.0, lr=1.0)
    assert "'first.weight'" in refusal(train, started)
    assert 1 <= len(started[0].accountant) <= 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unfreeze", [True, False])
def test_a_layer_that_is_frozen_or_unfrozen_after_make_private_is_refused(mode, unfreeze):
    model = Plain()
    model.first.requires_grad_(not unfreeze)
    started = start(model, mode)
    train(started, 1)
    model.first.requires_grad_(unfreeze)
    word = "trained" if unfreeze else "frozen"
    assert f"parameter 'first.weight' is {word} now and was not at make_private" in refusal(train, started)
    assert len(started[0].accountant) == 1


def test_a_parameter_group_that_is_added_later_is_refused():
    started = start(Plain, "hooks")
    train(started, 1)
    started[2].add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    assert "a parameter of shape (3,) that the module did not have" in refusal(train, started)


def test_ghost_clipping_refuses_a_loss_that_mixes_rows_or_has_a_small_penalty():
    assert "loss of an example depends on other rows" in refusal(train, start(Plain, "ghost", criterion=Contrastive()))

    class Penalised(nn.CrossEntropyLoss):
        def forward(self, outputs, labels):
            return super().forward(outputs, labels) + 1e-6 * model.first.weight.square().sum()

    model = Plain()
    assert "parameter 'first.weight' is in the loss past" in refusal(
        train, start(model, "ghost", criterion=Penalised())
    )


@pytest.mark.parametrize("mode", MODES)
def test_half_precision_passes(mode):
    engine, model, optimizer, criterion, run = start(Plain, mode)
    for x, y in run:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = model(x)
        criterion(outputs.float(), y).backward()
        optimizer.step()
    assert len(engine.accountant) == 4


def test_a_loss_inside_the_module_passes_if_it_is_a_mean_of_rows_and_is_refused_if_not():
    class Inside(Plain):
        def forward(self, x, y):  # type: ignore[override]
            losses = functional.cross_entropy(super().forward(x), y, reduction="none")
            return {"loss": (losses * self.weights(y)).sum() / self.weights(y).sum()}

        def weights(self, y):
            return torch.ones(len(y))

    class Weighted(Inside):
        def weights(self, y):
            return 1.0 + y

    def one(model):
        engine, made, optimizer, _, run = start(model, "hooks")
        for x, y in run:
            optimizer.zero_grad()
            made(x, y)["loss"].backward()
            optimizer.step()
        return len(engine.accountant)

    assert one(Inside) == 4
    assert "an example's gradient has norm" in refusal(one, Weighted)


def test_a_module_that_is_not_called_as_a_whole_is_refused():
    _, model, optimizer, criterion, run = start(nn.Sequential(nn.Linear(5, 5)), "hooks")
    x, y = next(iter(run))
    criterion(next(model.children())[0](x), y).backward()
    assert "was not called as a whole" in refusal(optimizer.step)


@pytest.mark.parametrize("mode", MODES)
def test_a_private_module_can_be_copied_and_saved_while_it_is_trained(mode):
    started = start(Plain, mode)
    _, model, optimizer, criterion, run = started
    x, y = next(iter(run))
    criterion(model(x), y).backward()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        with torch.no_grad():
            torch.testing.assert_close(other(ROWS), model(ROWS))
    optimizer.step()
    assert len(started[0].accountant) == 1
