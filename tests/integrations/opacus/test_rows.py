"""Single rows of a batch: both are compared, and models keep their random numbers."""

from __future__ import annotations

import pytest
import torch
from opacus.layers import DPLSTM
from tests.integrations.opacus_models import KEY, MODES, ROWS, SCHEME, Plain, refusal, start, train
from tests.integrations.quiet import OPACUS
from torch import nn
from torch.nn import functional

pytestmark = [
    *OPACUS,
    pytest.mark.filterwarnings("ignore:In CPU autocast"),
]


class LastRowOnly(Plain):
    """The second use is there for examples with a mark, of which the data has one: the last."""

    def forward(self, x):
        marked = (x[:, :1] > 50).float()
        return super().forward(x) + marked * functional.linear(x, self.first.weight)


@pytest.mark.parametrize("mode", MODES)
def test_both_of_the_two_rows_are_compared(mode):
    drawn = SCHEME.sampler(KEY)[0].indices
    for last in (drawn[0], drawn[-1]):
        rows = ROWS.clone()
        rows[last, 0] = 100.0
        assert "'first.weight'" in refusal(train, start(LastRowOnly, mode, rows=rows))


class Chance(nn.Module):
    """Random in every way: dropout, attention, noise in the rows, whole rows left out."""

    def __init__(self):
        super().__init__()
        self.into = nn.Linear(5, 8)
        self.out = nn.Linear(8, 5)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        tokens = self.into(x).view(len(x), 4, 2)
        mixed = functional.scaled_dot_product_attention(tokens, tokens, tokens, dropout_p=0.4)
        hidden = self.drop(mixed.flatten(1)) * (torch.rand(len(x), 1) < 0.7)
        return self.out(hidden + 0.1 * torch.randn_like(hidden)).squeeze()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = DPLSTM(1, 5, batch_first=True)

    def forward(self, x):
        return self.layer(x[..., None])[0][:, -1]


@pytest.mark.parametrize("mode", [*MODES, "functorch", "ew"])
@pytest.mark.parametrize("model", [Plain, Chance, Recurrent])
def test_models_that_are_right_pass_and_keep_their_random_numbers(mode, model):
    found = [train(start(model, mode, check_gradients=check)) for check in (True, False)]
    assert torch.equal(*found)
