"""Wrong uses of Hugging Face's Trainer on capped batches."""

from __future__ import annotations

import copy
import tempfile
import warnings

import accelerate
import torch
import transformers
from opacus.validators.errors import UnsupportedModuleError
from tests.integrations.misuse import Answer, Refused, Right, Warned
from torch import distributed, nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

import filet
from filet.integrations.huggingface import CappedTrainer
from filet.integrations.opacus import CappedPrivacyEngine

KEY = b"a key for wrong uses of transformers"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=6)
IDS = torch.randint(1, 11, (40, 4), generator=torch.Generator().manual_seed(0))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.out = nn.Linear(6, 11)

    def forward(self, input_ids):
        return transformers.modeling_outputs.CausalLMOutput(logits=self.logits(self.words(input_ids)))

    def logits(self, hidden):
        return self.out(hidden)


class Functional(Plain):
    def logits(self, hidden):
        return functional.linear(hidden, self.words.weight) + self.out(hidden)


class Centred(Plain):
    def logits(self, hidden):
        return self.out(hidden - hidden.mean(0))


class Frozen(Plain):
    def __init__(self):
        super().__init__()
        self.words.requires_grad_(False)


class Normalised(Plain):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)


class After(transformers.TrainerCallback):
    """Does something after every step."""

    def __init__(self, change):
        self.change = change

    def on_step_end(self, args, state, control, **_):
        self.change(state.global_step)


def trainer(model=Plain, *, args=(), rows=None, change=None, engine=(), **options):
    torch.manual_seed(3)
    rows = [{"input_ids": ids, "labels": ids} for ids in IDS] if rows is None else rows
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Secure RNG turned off")
        made = CappedPrivacyEngine(SCHEME, **{"adjacency": "zero-out", "steps": 4, "key": KEY, **dict(engine)})
    arguments = {
        "output_dir": tempfile.gettempdir(), "use_cpu": True, "report_to": [], "save_strategy": "no", "seed": 3,
        "logging_strategy": "no", "disable_tqdm": True, "remove_unused_columns": False, **dict(args),
    }  # fmt: skip
    run = CappedTrainer(
        model=model(), args=transformers.TrainingArguments(**arguments), train_dataset=rows, engine=made,
        data_collator=transformers.default_data_collator, clipping_norm=1.0, noise_multiplier=1.0, **options,
    )  # fmt: skip
    if change is not None:
        run.add_callback(After(change))
    return run


def train(run):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook is firing")
        warnings.filterwarnings("ignore", ".*pin_memory.*")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        run.train()
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def both(model):
    """Hooks mode first; its refusal must be the same."""
    try:
        train(trainer(model, grad_sample_mode="hooks"))
    except filet.FiletError:
        train(trainer(model))


def unfrozen():
    run = trainer(Frozen)
    run.add_callback(After(lambda _: run.model.requires_grad_(True)))
    train(run)


def accumulated():
    run = trainer()
    run.args.gradient_accumulation_steps = 2
    train(run)


def seeds_between_steps():
    assert torch.equal(train(trainer()), train(trainer(change=torch.manual_seed)))


def loader_again(change):
    run = trainer()
    made = run.get_train_dataloader()
    run.get_train_dataloader = lambda: change(made)
    train(run)


def joined_late():
    run = trainer()
    run.get_train_dataloader()
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        iter(run.get_train_dataloader())
    finally:
        distributed.destroy_process_group()


def iterated_twice():
    run = trainer()
    train(run)
    train(run)


def grown():
    rows = [{"input_ids": ids, "labels": ids} for ids in IDS]
    train(trainer(rows=rows, change=lambda _: rows.append(rows[0])))


def permuted():
    """Rows of the model's inputs in another order than the labels' and the mask's: a bad model, clipped all the same."""

    class Reversing(Plain):
        def forward(self, input_ids):
            return super().forward(input_ids.flip(0))

    train(trainer(Reversing))


def other_runs_state():
    saved, run = trainer(engine={"key": KEY + b"!"}), trainer()
    saved.get_train_dataloader()
    run.get_train_dataloader()
    run.engine.load_state_dict(copy.deepcopy(saved.engine.state_dict()))


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Refused(lambda: both(Functional), "parameter 'words.weight': an example's"),
    "layer unfrozen later": Refused(unfrozen, "parameter 'words.weight' is trained now and was not at make_private"),
    "batch without a step": Refused(accumulated, "had no accounted step"),
    "global seed set in the loop": Right(seeds_between_steps),
    "rows mixed": Refused(lambda: both(Centred), "the module mixes the rows of a batch"),
    "batch normalisation": Refused(lambda: train(trainer(Normalised)), "BatchNorm cannot", UnsupportedModuleError),
    "loader wrapped by another library": Refused(
        lambda: loader_again(accelerate.Accelerator(cpu=True).prepare), "leave it out of prepare"
    ),
    "ranks joined late": Refused(joined_late, "make the loader after init_process_group"),
    "iterated twice": Refused(iterated_twice, "the run of steps=4 is over"),
    "batches repeated, shuffled or sliced": Refused(
        lambda: loader_again(lambda made: accelerate.skip_first_batches(made, 2)), "would shard or skip them again"
    ),
    "data set changed during the run": Refused(grown, "dataset has 41 examples, not scheme.dataset_size=40"),
    "another batch size": Refused(
        lambda: trainer(args={"gradient_accumulation_steps": 2}), "would step on several batches"
    ),
    "rows rearranged after batching": Refused(permuted, "the module mixes the rows of a batch"),
    "penalty in the loss": Refused(
        lambda: trainer(compute_loss_func=lambda outputs, labels, **_: outputs.loss), "leave it out"
    ),
    "short key": Warned(lambda: trainer(engine={"key": 7}).get_train_dataloader(), "key is an integer below 2**64"),
    "resumed at the wrong step": Refused(other_runs_state, "another key"),
}
