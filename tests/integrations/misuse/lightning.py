"""Wrong uses of the Lightning callback."""

from __future__ import annotations

import copy

import lightning
import torch
from opacus.validators.errors import UnsupportedModuleError
from tests.integrations.lightning_runs import DATA, KEY, SCHEME, Small, callback, fit, quiet, trainer, weights
from tests.integrations.misuse import Answer, Refused, Right, Warned
from torch import distributed, nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, TensorDataset

import filet


class Functional(Small):
    def forward(self, x):
        return functional.linear(self.net(x), self.net[-1].weight[:, :2])


class Centred(Small):
    def forward(self, x):
        hidden = self.net[0](x)
        return self.net[-1](hidden - hidden.mean(0))


class Frozen(Small):
    def __init__(self):
        super().__init__()
        self.net[0].requires_grad_(False)

    def on_train_batch_end(self, *_):
        self.requires_grad_(True)


class OwnOptimizer(Small):
    """Steps with an optimizer that the engine does not know."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.mine = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def training_step(self, batch, number):
        self.manual_backward(super().training_step(batch, number))
        self.mine.step()


class Normalised(Small):
    def __init__(self):
        super().__init__()
        self.net.append(nn.BatchNorm1d(2))


class Penalised(Small):
    """The penalty is a part of the criterion, so that ghost clipping would see it as a loss of examples."""

    def __init__(self):
        super().__init__()
        self.criterion = _Penalty(self.net[0])


class _Penalty(nn.CrossEntropyLoss):
    def __init__(self, layer):
        super().__init__()
        self.layers = (layer,)

    def forward(self, outputs, labels):
        return super().forward(outputs, labels) + self.layers[0].weight.square().sum()


class Reversing(Small):
    def training_step(self, batch, number):
        return super().training_step([part.flip(0) for part in batch], number)


class Seeding(lightning.Callback):
    def on_train_batch_end(self, trainer, *_):
        torch.manual_seed(trainer.global_step)


def both(model):
    """Hooks mode first; its refusal must be the same."""
    try:
        fit(callback(), model())
    except filet.FiletError:
        fit(callback(grad_sample_mode="ghost"), model())


def seeds_between_steps():
    """Dropout follows the global seed, noise and batches do not."""
    models = Small(dropout=0.0), Small(dropout=0.0)
    models[1].load_state_dict(copy.deepcopy(models[0].state_dict()))
    plain, seeded = fit(callback(), models[0]), fit(callback(), models[1], Seeding())
    assert torch.equal(weights(plain), weights(seeded))


def wrapped():
    """Lightning's own wrapper of several loaders."""
    with quiet():
        loaders = lightning.pytorch.utilities.CombinedLoader([DataLoader(DATA), DataLoader(DATA)])
        trainer(callback()).fit(Small(), loaders)


def joined_late():
    class Joins(lightning.Callback):
        def on_train_batch_start(self, *_):
            distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())

    try:
        fit(callback(), Small(), Joins())
    finally:
        distributed.destroy_process_group()


def fitted_twice():
    private = callback()
    fit(private)
    fit(private)


def sliced():
    with quiet():
        trainer(callback(), limit_train_batches=3).fit(Small(), DataLoader(DATA))


def grown():
    data = TensorDataset(*DATA.tensors)

    class Grows(lightning.Callback):
        def on_train_batch_end(self, *_):
            data.tensors = tuple(torch.cat([t, t[:1]]) for t in data.tensors)

    fit(callback(), Small(), Grows(), data=data)


def reversed_rows():
    """Padding counts and examples do not, but each is clipped: replacing one moves the sum by two norms at most."""
    drawn = int(SCHEME.sampler(KEY)[0].indices[0])
    outlier = DATA.tensors[0].clone()
    outlier[drawn] = 1_000.0
    start, found = Reversing(dropout=0.0).state_dict(), []
    for rows in (DATA.tensors[0], outlier):
        model = Reversing(dropout=0.0)
        model.load_state_dict(copy.deepcopy(start))
        private = callback(engine={"steps": 1, "passes": 1}, noise_multiplier=0.0)
        found.append(weights(fit(private, model, data=TensorDataset(rows, DATA.tensors[1]))))
    moved = float((found[0] - found[1]).norm()) / 0.1 * SCHEME.expected_batch_size
    assert moved <= 2.0 + 1e-3


def other_runs_state():
    class Saves(lightning.Callback):
        def on_fit_end(self, trainer, module):
            self.made = trainer._checkpoint_connector.dump_checkpoint()

    saves, again = Saves(), callback()
    fit(callback(engine={"key": KEY + b"!"}), None, saves, fast_dev_run=True)
    again._saved = saves.made["filet"]
    fit(again)


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Refused(lambda: both(Functional), "an example's gradient has norm"),
    "layer unfrozen later": Refused(lambda: fit(callback(), Frozen()), "is trained now and was not at make_private"),
    "batch without a step": Refused(lambda: fit(callback(), OwnOptimizer()), "had no accounted step"),
    "global seed set in the loop": Right(seeds_between_steps),
    "rows mixed": Refused(lambda: both(Centred), "the module mixes the rows of a batch"),
    "batch normalisation": Refused(lambda: fit(callback(), Normalised()), "BatchNorm cannot", UnsupportedModuleError),
    "loader wrapped by another library": Refused(wrapped, "pass one DataLoader"),
    "ranks joined late": Refused(joined_late, "call it after torch.distributed is initialised"),
    "iterated twice": Refused(fitted_twice, "this engine has a loader already"),
    "batches repeated, shuffled or sliced": Refused(sliced, "limit_train_batches=3 does not fit a private run"),
    "data set changed during the run": Refused(grown, "dataset has 201 examples, not scheme.dataset_size=200"),
    "another batch size": Refused(
        lambda: fit(callback(), data=DataLoader(DATA, batch_size=100)), "data_loader has batch_size=100"
    ),
    "rows rearranged after batching": Right(reversed_rows),
    "penalty in the loss": Refused(
        lambda: fit(callback(grad_sample_mode="ghost"), Penalised()), "in the loss past the module's outputs"
    ),
    "short key": Warned(lambda: fit(callback(engine={"key": 7})), "key is an integer below 2**64"),
    "resumed at the wrong step": Refused(other_runs_state, "another key"),
}
