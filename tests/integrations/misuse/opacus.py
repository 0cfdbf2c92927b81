"""Wrong uses of the Opacus engine."""

from __future__ import annotations

import warnings

import accelerate
import torch
from opacus.validators.errors import UnsupportedModuleError
from tests.integrations.misuse import Answer, Refused, Right, Warned
from tests.integrations.opacus_models import Plain
from torch import distributed, nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.opacus import CappedPrivacyEngine

KEY = b"a key for wrong uses of opacus"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=6)
ROWS = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 5


class Functional(Plain):
    def forward(self, x):
        return functional.linear(super().forward(x), self.first.weight)


class Centred(Plain):
    def forward(self, x):
        hidden = self.first(x)
        return self.last(hidden - hidden.mean(0))


class Penalised(nn.CrossEntropyLoss):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, outputs, labels):
        return super().forward(outputs, labels) + self.model.first.weight.square().sum()


def start(model=Plain, mode="ghost", *, rows=ROWS, noise=1.0, criterion=None, batch_size=None, **options):
    torch.manual_seed(0)
    model = model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Secure RNG turned off")
        engine = CappedPrivacyEngine(SCHEME, **{"adjacency": "zero-out", "steps": 4, "key": KEY, **options})
    made, optimizer, *ghost, run = engine.make_private(
        module=model,
        optimizer=plain,
        criterion=criterion(model) if criterion else nn.CrossEntropyLoss(),
        data_loader=DataLoader(TensorDataset(rows, LABELS), batch_size=batch_size or 1),
        noise_multiplier=noise,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
    )
    return engine, made, optimizer, ghost[0] if ghost else nn.CrossEntropyLoss(), run


def train(started, *, change=lambda step: None, order=None):
    _, model, optimizer, criterion, run = started
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook is firing")
        for step, (x, y) in enumerate(run):
            x, y = (x, y) if order is None else (x[order], y[order])
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            change(step)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def both(*arguments, **options):
    """Hooks mode first; its refusal must be the same."""
    try:
        train(start(*arguments, mode="hooks", **options))
    except filet.FiletError:
        train(start(*arguments, **options))


def unfrozen():
    def frozen():
        made = Plain()
        made.first.requires_grad_(False)
        return made

    started = start(frozen)
    train(started, change=lambda step: started[1].requires_grad_(True))


def other_optimizer():
    engine, model, _, criterion, run = start()
    train((engine, model, torch.optim.SGD(model.parameters(), lr=0.1), criterion, run))


def seeds_between_steps():
    plain = [train(start(mode=mode)) for mode in ("hooks", "ghost")]
    seeded = [train(start(mode=mode), change=torch.manual_seed) for mode in ("hooks", "ghost")]
    assert all(torch.equal(one, other) for one, other in zip(plain, seeded, strict=True))


def with_batch_norm():
    start(lambda: nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)))


def wrapped():
    *rest, run = start()
    train((*rest, accelerate.Accelerator(cpu=True).prepare(run)))


def joined_late():
    started = start()
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        train(started)
    finally:
        distributed.destroy_process_group()


def iterated_twice():
    started = start()
    train(started)
    train(started)


def skipped():
    *rest, run = start()
    train((*rest, accelerate.skip_first_batches(run, 2)))


def grown():
    started = start()
    data = started[-1].dataset
    train(started, change=lambda step: setattr(data, "tensors", tuple(torch.cat([t, t[:1]]) for t in data.tensors)))


def reversed_rows():
    """Padding counts and examples do not, but each is clipped: replacing one moves the sum by two norms at most."""
    drawn = int(SCHEME.sampler(KEY)[0].indices[0])
    outlier = ROWS.clone()
    outlier[drawn] = 1_000.0
    order = torch.arange(5, -1, -1)
    options = {"mode": "hooks", "noise": 0.0, "steps": 1}
    before, after = (train(start(rows=rows, **options), order=order) for rows in (ROWS, outlier))
    assert float((after - before).norm()) / 0.1 * SCHEME.expected_batch_size <= 2.0 + 1e-3


def other_runs_state():
    start()[0].load_state_dict(start(key=KEY + b"!")[0].state_dict())


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Refused(lambda: both(Functional), "parameter 'first.weight': an example's"),
    "layer unfrozen later": Refused(unfrozen, "parameter 'first.weight' is trained now and was not at make_private"),
    "batch without a step": Refused(other_optimizer, "had no accounted step"),
    "global seed set in the loop": Right(seeds_between_steps),
    "rows mixed": Refused(lambda: both(Centred), "the module mixes the rows of a batch"),
    "batch normalisation": Refused(with_batch_norm, "BatchNorm cannot support", UnsupportedModuleError),
    "loader wrapped by another library": Refused(wrapped, "leave it out of prepare"),
    "ranks joined late": Refused(joined_late, "make the loader after init_process_group"),
    "iterated twice": Refused(iterated_twice, "the run of steps=4 is over"),
    "batches repeated, shuffled or sliced": Refused(skipped, "would shard or skip them again"),
    "data set changed during the run": Refused(grown, "dataset has 41 examples, not scheme.dataset_size=40"),
    "another batch size": Refused(lambda: start(batch_size=20), "data_loader has batch_size=20"),
    "rows rearranged after batching": Right(reversed_rows),
    "penalty in the loss": Refused(lambda: train(start(criterion=Penalised)), "in the loss past the module's outputs"),
    "short key": Warned(lambda: start(key=7), "key is an integer below 2**64"),
    "resumed at the wrong step": Refused(other_runs_state, "another key"),
}
