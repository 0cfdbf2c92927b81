"""Lightning's trainer on capped batches: the engine's own run, resumed exactly, told and stopped."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from tests.integrations.lightning_runs import DATA, KEY, SCHEME, Small, callback, fit, quiet, trainer, weights
from tests.integrations.quiet import OPACUS
from torch import nn
from torch.utils.data import DataLoader

import filet
from filet.integrations.opacus import CappedPrivacyEngine

pytestmark = OPACUS
MODES = ["hooks", "ghost"]


def cost(steps):
    return filet.account(SCHEME, noise_multiplier=1.0, steps=steps, adjacency="zero-out").epsilon(1e-4)


EPSILON = cost(20)


class Seen(lightning.Callback):
    """What Lightning does, and when: batches by their number, validations as "v"; ends the process's run at a step."""

    def __init__(self, stop=None):
        self.events, self.lengths, self.stop = [], [], stop

    def on_train_epoch_start(self, trainer, module):
        self.lengths.append(trainer.num_training_batches)

    def on_train_batch_end(self, trainer, *_):
        self.events.append(trainer.global_step)
        if trainer.global_step == self.stop:
            raise SystemExit("killed")

    def on_validation_epoch_end(self, trainer, module):
        self.events.append("v")


def by_hand(mode):
    """The same run in a plain loop of the engine."""
    torch.manual_seed(1)
    model = Small()
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=20, passes=3, key=KEY)
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    made, optimizer, *criterion, run = engine.make_private(
        module=model, optimizer=plain, data_loader=DataLoader(DATA), noise_multiplier=1.0, max_grad_norm=1.0,
        grad_sample_mode=mode, criterion=nn.CrossEntropyLoss(),
    )  # fmt: skip
    decay = torch.optim.lr_scheduler.StepLR(plain, 1, 0.9)
    for _ in range(3):
        for x, y in run:
            optimizer.zero_grad()
            (criterion[0] if criterion else nn.CrossEntropyLoss())(made(x), y).backward()
            optimizer.step()
        decay.step()
    return weights(model)


@pytest.mark.parametrize("mode", MODES)
def test_weights_are_those_of_the_engines_own_loop(mode):
    private = callback(grad_sample_mode=mode)
    assert torch.equal(weights(fit(private)), by_hand(mode))
    assert len(private.engine.accountant) == 20
    assert private.engine.get_epsilon(1e-4) == EPSILON


@pytest.mark.parametrize("stop", [3, 7, 8, 19])
@pytest.mark.parametrize("mode", MODES)
def test_ckpt_path_resumes_to_the_same_weights(tmp_path, mode, stop):
    whole = fit(callback(grad_sample_mode=mode), validation=True)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=1, monitor="step", mode="max", filename="run")
    with pytest.raises(SystemExit):
        # the last checkpoint is of the step before: Lightning's own callback comes after this one
        fit(callback(grad_sample_mode=mode), None, Seen(stop), saving, validation=True, enable_checkpointing=True)
    again, seen = callback(grad_sample_mode=mode), Seen()
    resumed = fit(again, None, seen, validation=True, ckpt_path=tmp_path / "run.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    assert [event for event in seen.events if event != "v"] == list(range(stop, 21))
    assert again.engine.get_epsilon(1e-4) == EPSILON


def test_a_checkpoint_of_an_epochs_end_resumes_to_the_same_weights(tmp_path):
    whole = fit(callback(), validation=True)
    saving = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{epoch}")
    with pytest.raises(SystemExit):
        fit(callback(), None, saving, Seen(16), validation=True, enable_checkpointing=True)
    for name in ("epoch=0", "epoch=1"):
        seen = Seen()
        resumed = fit(callback(), None, seen, validation=True, ckpt_path=tmp_path / f"{name}.ckpt")
        assert torch.equal(weights(resumed), weights(whole))
        assert seen.events[-1] == "v"


def test_epochs_are_the_engines_passes_with_right_lengths_and_a_validation_each():
    seen = Seen()
    fit(callback(), None, seen, validation=True)
    assert seen.lengths == [7, 7, 6]
    assert seen.events == ["v", *range(1, 8), "v", *range(8, 15), "v", *range(15, 21), "v"]


@pytest.mark.parametrize("way", [{"epoch_steps": 6, "passes": None}, {"steps": None, "passes": None, "epochs": 1.5}])
def test_every_way_to_cut_passes_resumes_in_their_middle(tmp_path, way):
    whole, first = callback(engine=way), Seen()
    made = weights(fit(whole, None, first))
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=8, save_top_k=-1, filename="{step}")
    with pytest.raises(SystemExit):
        fit(callback(engine=way), None, saving, Seen(10), enable_checkpointing=True)
    seen = Seen()
    resumed = fit(callback(engine=way), None, seen, ckpt_path=tmp_path / "step=8.ckpt")
    assert torch.equal(weights(resumed), made)
    assert seen.lengths[-1] == first.lengths[-1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_bf16_trains_and_stays_near_single_precision(mode, precision):
    single = weights(fit(callback(grad_sample_mode=mode)))
    half = weights(fit(callback(grad_sample_mode=mode), precision=precision))
    assert 0 < float((half - single).norm()) < 0.1 * float(single.norm())


@pytest.mark.parametrize("mode", MODES)
def test_batches_in_parts_take_one_accounted_step_each(mode):
    """Without noise: the same sums, up to rounding."""
    model = Small(dropout=0.0)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    found = []
    for size in (None, 8):
        again = Small(dropout=0.0)
        again.load_state_dict(start)
        private = callback(engine={"physical_batch_size": size}, noise_multiplier=0.0, grad_sample_mode=mode)
        found.append(weights(fit(private, again)))
        assert len(private.engine.accountant) == 20
    assert torch.allclose(*found, atol=1e-5)


def test_epsilon_is_logged_and_nothing_else_of_the_batches(tmp_path):
    private = callback(delta=1e-4)
    fit(private, logger=CSVLogger(tmp_path), log_every_n_steps=5)
    text = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert [int(row["step"]) for row in rows] == [5, 10, 15, 20]
    assert float(rows[-1]["privacy/epsilon"]) == EPSILON
    assert {name for row in rows for name in row} <= {"step", "privacy/epsilon", "epoch"}


def test_the_fit_stops_before_the_budget_is_exceeded():
    private = callback(delta=1e-4, max_epsilon=2.5)
    fit(private, validation=True)
    spent = len(private.engine.accountant)
    costs = [cost(steps) for steps in (spent, spent + 1)]
    assert costs[0] <= 2.5 < costs[1]
    assert private.engine.get_epsilon(1e-4) == costs[0]


def test_a_budget_below_one_step_is_refused_before_any():
    private = callback(delta=1e-4, max_epsilon=0.5)
    with pytest.raises(filet.InvalidArgumentError, match=r"one step with noise_multiplier=1\.0 costs"):
        fit(private)
    assert len(private.engine.accountant) == 0


def test_noise_is_calibrated_to_a_target():
    private = callback(noise_multiplier=None, target_epsilon=1.0, target_delta=1e-4)
    fit(private)
    assert 0.999 < private.engine.get_epsilon(1e-4) <= 1.0
    assert private.budget.spent().epsilon == private.engine.get_epsilon(1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_manual_optimization_takes_the_same_steps(mode):
    class Plain(Small):
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Manual(Plain):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, number):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, number))
            optimizer.step()

    torch.manual_seed(1)
    models = Plain(), Manual()
    models[1].load_state_dict(models[0].state_dict())
    found = [weights(fit(callback(grad_sample_mode=mode), model)) for model in models]
    assert torch.equal(*found)


def test_a_named_part_of_the_module_is_trained_and_the_rest_stays():
    class Two(Small):
        def __init__(self):
            super().__init__()
            self.other = nn.Linear(2, 2)

        def training_step(self, batch, number):
            return self.criterion(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.1)

    model = Two()
    before = model.other.weight.detach().clone()
    private = callback(module="net")
    fit(private, model)
    assert len(private.engine.accountant) == 20
    assert torch.equal(model.other.weight, before)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"accumulate_grad_batches": 2}, "pass physical_batch_size= to the engine"),
        ({"gradient_clip_val": 1.0}, "pass clipping_norm= to the callback"),
        ({"limit_train_batches": 3}, "pass passes= to the engine"),
        ({"overfit_batches": 2}, "does not fit a private run"),
        ({"devices": 2, "strategy": "ddp_spawn"}, r"pass strategy=CappedDDPStrategy\(\)"),
    ],
)
def test_settings_that_do_not_fit_a_private_run_are_refused(options, says):
    with quiet(), pytest.raises(filet.InvalidArgumentError, match=says):
        callback().setup(trainer(**options), None, "fit")


def test_arguments_that_contradict_are_refused():
    with pytest.raises(filet.InvalidArgumentError, match="either noise_multiplier"):
        callback(target_epsilon=1.0, target_delta=1e-4)
    with pytest.raises(filet.InvalidArgumentError, match="max_epsilon has no delta"):
        callback(max_epsilon=1.0)
    with pytest.raises(filet.InvalidArgumentError, match="for 'ghost' name"):
        callback(grad_sample_mode="ghost", criterion=None)
    with pytest.raises(filet.InvalidArgumentError, match="'nett' is no submodule of Small"):
        fit(callback(module="nett"))
    with pytest.raises(filet.StateError, match=r"call trainer\.fit first"):
        callback().on_save_checkpoint(None, None, {})


def test_a_checkpoint_without_the_run_is_refused(tmp_path):
    class Plain(ModelCheckpoint):
        pass

    private, saving = callback(), Plain(tmp_path, every_n_train_steps=5, save_top_k=-1, filename="{step}")
    fit(private, None, saving, enable_checkpointing=True)
    path = tmp_path / "step=5.ckpt"
    stripped = torch.load(path, weights_only=False)
    del stripped["filet"]
    torch.save(stripped, path)
    with pytest.raises(filet.StateError, match="the checkpoint has no private run"):
        fit(callback(), ckpt_path=path)


def ranks(*arguments):
    command = [sys.executable, "-m", "tests.integrations.lightning_runs", *map(str, arguments)]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    steps, found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    return steps, torch.tensor(found)


@pytest.mark.long
def test_two_ranks_train_as_one_and_resume_to_the_same_weights(tmp_path):
    """Hooks mode has dropout, so that random numbers of both ranks must go on; ghost has none, to compare with one rank."""
    for mode in MODES:
        steps, whole = ranks(mode, tmp_path / mode, 99)
        assert steps == 20
        assert ranks(mode, tmp_path / f"{mode}-cut", 10)[0] == 10
        saved = next((tmp_path / f"{mode}-cut").glob("*step=9.ckpt"))
        steps, resumed = ranks(mode, tmp_path / f"{mode}-rest", 99, saved)
        assert steps == 20
        assert torch.equal(resumed, whole)
    torch.manual_seed(1)
    one = fit(callback(grad_sample_mode="ghost"), Small(dropout=0.0))
    assert torch.allclose(weights(one), whole, atol=1e-5)
