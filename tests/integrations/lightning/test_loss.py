"""Ghost clipping's loss as a tensor: scaled, it scales nothing that is clipped; twice or with a penalty, it is refused."""

from __future__ import annotations

import pytest
import torch
from tests.integrations.lightning_runs import Small, callback, fit, weights

import filet

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


class Twice(Small):
    def training_step(self, batch, number):
        x, y = batch
        logits = self(x)
        return self.criterion(logits, y) + self.criterion(logits, 1 - y)


class Penalised(Small):
    def training_step(self, batch, number):
        return super().training_step(batch, number) + self.net[0].weight.square().sum()


class Scaled(Small):
    def training_step(self, batch, number):
        return 1_000.0 * super().training_step(batch, number)


def test_a_loss_in_evaluation_is_the_plain_one():
    model = Small(dropout=0.0)
    plain = model.criterion
    fit(callback(grad_sample_mode="ghost"), model)
    x, y = torch.randn(4, 8), torch.tensor([0, 1, 0, 1])
    with torch.no_grad():
        assert torch.equal(model.criterion(model(x), y), plain(model(x), y))
    assert "criterion" not in " ".join(model.state_dict())


def test_two_losses_of_one_batch_are_refused():
    with pytest.raises(filet.StateError, match="add them up in one criterion"):
        fit(callback(grad_sample_mode="ghost"), Twice())


def test_a_penalty_is_refused_or_has_no_effect_on_the_weights():
    """Its gradients come before the clipped ones, which drop them, or after, which is noticed."""
    try:
        private = callback(grad_sample_mode="ghost")
        torch.manual_seed(1)
        found = weights(fit(private, Penalised()))
    except filet.StateError as error:
        assert "may not be clipped" in str(error)
    else:
        torch.manual_seed(1)
        assert torch.equal(found, weights(fit(callback(grad_sample_mode="ghost"), Small())))


def test_a_large_loss_is_clipped_like_any_other():
    private = callback(
        grad_sample_mode="ghost", noise_multiplier=0.0, clipping_norm=1e-3, engine={"steps": 1, "passes": 1}
    )
    torch.manual_seed(1)
    model = Scaled(dropout=0.0)
    before = weights(model)
    moved = float((weights(fit(private, model)) - before).norm())
    assert (
        0 < moved <= 0.1 * 1e-3 * 32 / filet.CappedPoisson(200, 0.1, 32, overflow="reject").expected_batch_size * 1.001
    )
