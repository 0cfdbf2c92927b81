"""Transformers' Trainer, Accelerate and peft on capped batches; small models made from a config."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import accelerate
import peft
import pytest
import torch
import transformers
from tests.integrations.planted import leaked
from tests.integrations.quiet import TRANSFORMERS
from torch import nn
from torch.utils.data import DataLoader

import filet
from filet.integrations.huggingface import CappedTrainer
from filet.integrations.opacus import CappedPrivacyEngine

pytestmark = TRANSFORMERS


KEY = b"a key for the tests of transformers"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.06, max_batch_size=6)
TOKENS = torch.randint(2, 20, (40, 7), generator=torch.Generator().manual_seed(0))


class Texts(torch.utils.data.Dataset):
    """Sentences of different lengths, padded by the collator."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"input_ids": TOKENS[index][: 3 + index % 5].tolist()}


def collate(examples):
    """As a tokenizer's collator does: a BatchEncoding of one length, with labels that ignore the filling."""
    found = {"input_ids": [], "attention_mask": [], "labels": []}
    for example in examples:
        ids, rest = example["input_ids"], 7 - len(example["input_ids"])
        found["input_ids"].append(ids + [0] * rest)
        found["attention_mask"].append([1] * len(ids) + [0] * rest)
        found["labels"].append(ids + [-100] * rest)
    return transformers.BatchEncoding({name: torch.tensor(rows) for name, rows in found.items()})


def lora_model():
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=16, pad_token_id=0, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    adapters = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return peft.get_peft_model(model, adapters)


def trainer(folder, *, mode="ghost", physical=None, model=None, steps=8, args=(), **options):
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=steps, key=KEY, physical_batch_size=physical)
    arguments = {
        "output_dir": str(folder), "use_cpu": True, "report_to": [], "save_strategy": "no", "logging_strategy": "no",
        "disable_tqdm": True, "learning_rate": 0.05, "lr_scheduler_type": "constant", "remove_unused_columns": False,
        "seed": 3, **dict(args),
    }  # fmt: skip
    return CappedTrainer(
        model=model or lora_model(), args=transformers.TrainingArguments(**arguments), train_dataset=Texts(),
        data_collator=collate, engine=engine, clipping_norm=0.5, grad_sample_mode=mode,
        **{"noise_multiplier": 1.0, **options},
    )  # fmt: skip


def trainable(model):
    return [p.detach().clone() for p in model.parameters() if p.requires_grad]


def assert_close(one, two, **tolerance):
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, **{"rtol": 1e-3, "atol": 1e-5, **tolerance})


def test_hugging_face_lora_with_ghost_clipping_costs_what_filet_says_and_equals_hooks(tmp_path):
    ghost = trainer(tmp_path, noise_multiplier=None, target_epsilon=3.0, target_delta=1e-4)
    before = trainable(ghost.model)
    ghost.train()
    assert ghost.state.global_step == len(ghost.engine.accountant) == 8
    assert 2.99 < ghost.engine.get_epsilon(1e-4) <= 3.0
    assert ghost.record(1e-4)["guarantee"]["epsilon"] == ghost.engine.get_epsilon(1e-4)
    assert leaked(ghost.record(1e-4), KEY, SCHEME.sampler(key=KEY).fingerprint) == []
    after = trainable(ghost.model)
    assert any(not torch.equal(p, q) for p, q in zip(before, after, strict=True))
    frozen = [p for name, p in ghost.model.named_parameters() if "lora" not in name]
    assert not any(p.requires_grad for p in frozen)
    hooks = trainer(tmp_path, mode="hooks", noise_multiplier=None, target_epsilon=3.0, target_delta=1e-4)
    hooks.train()
    assert_close(trainable(hooks.model), after)
    virtual = trainer(tmp_path, physical=2, noise_multiplier=None, target_epsilon=3.0, target_delta=1e-4)
    virtual.train()
    assert (virtual.state.global_step, len(virtual.engine.accountant)) == (24, 8)
    assert_close(trainable(virtual.model), after)


def test_hugging_face_noiseless_step_is_the_clipped_sum_by_hand(tmp_path):
    run = trainer(tmp_path, steps=1, noise_multiplier=0.0, args={"optim": "sgd", "learning_rate": 1.0})
    by_hand = lora_model()
    run.train()
    batch = SCHEME.sampler(KEY)[0]
    assert batch.size > 0
    start = trainable(by_hand)
    total = [torch.zeros_like(p) for p in start]
    parameters = [p for p in by_hand.parameters() if p.requires_grad]
    for index in batch.indices[: batch.size]:
        gradients = torch.autograd.grad(by_hand(**collate([Texts()[int(index)]])).loss, parameters)
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        total = [t + g * min(1.0, 0.5 / float(norm + 1e-6)) for t, g in zip(total, gradients, strict=True)]
    expected = [p - t / SCHEME.expected_batch_size for p, t in zip(start, total, strict=True)]
    assert_close(trainable(run.model), expected, rtol=1e-4)


SMALL = {"vocab_size": 20, "pad_token_id": 0}
DRY = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def gpt2(**options):
    torch.manual_seed(3)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 1}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SMALL, **sizes, **{**DRY, **options}))


def bert(dropout=0.0):
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    dry = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout, "max_position_embeddings": 16}
    return transformers.BertForMaskedLM(transformers.BertConfig(**SMALL, **sizes, **dry))


@pytest.mark.parametrize(
    ("build", "mode"),
    [(gpt2, "hooks"), (bert, "hooks"), (lambda: gpt2(tie_word_embeddings=False), "ghost")],
)
def test_hugging_face_full_fine_tunes_of_gpt2_and_bert_are_the_clipped_sum_by_hand(tmp_path, build, mode):
    args = {"optim": "sgd", "learning_rate": 1.0}
    run = trainer(tmp_path, steps=1, noise_multiplier=0.0, model=build(), mode=mode, args=args)
    by_hand = build()
    parameters = list(by_hand.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    run.train()
    for index in SCHEME.sampler(KEY)[0].indices[: SCHEME.sampler(KEY)[0].size]:
        gradients = torch.autograd.grad(by_hand(**collate([Texts()[int(index)]])).loss, parameters)
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        total = [t + g * min(1.0, 0.5 / float(norm + 1e-6)) for t, g in zip(total, gradients, strict=True)]
    expected = [p - t / SCHEME.expected_batch_size for p, t in zip(parameters, total, strict=True)]
    assert_close(trainable(run.model), [p.detach() for p in expected], rtol=1e-4)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_hugging_face_names_the_parameter_the_mode_and_the_remedy_of_what_cannot_be_clipped(tmp_path, mode):
    base = lora_model().unload
    targets = ["q_proj", "v_proj"]
    kinds = {
        "lora_magnitude_vector|lora_A": peft.LoraConfig(r=2, use_dora=True, target_modules=targets),
        "ia3_l": peft.IA3Config(target_modules=targets, feedforward_modules=[]),
        "lora_embedding_A": peft.LoraConfig(r=2, target_modules=["embed_tokens", *targets]),
        "prompt_encoder": peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    }
    for name, config in kinds.items():
        with pytest.raises(filet.FiletError, match=rf"parameter '.*({name}).*grad_sample_mode='{mode}'.*; ") as raised:
            trainer(tmp_path, model=peft.get_peft_model(base(), config), mode=mode).train()
        assert "\n" not in str(raised.value)
    checkpointed = lora_model()
    checkpointed.gradient_checkpointing_enable()
    checkpointed.enable_input_require_grads()
    with pytest.raises(filet.StateError, match=rf"parameter '.*lora_A.*grad_sample_mode='{mode}'.*checkpointing"):
        trainer(tmp_path, model=checkpointed, mode=mode).train()
    if mode == "ghost":
        with pytest.raises(filet.StateError, match=r"'transformer\.wte\.weight'.*use grad_sample_mode='hooks'"):
            trainer(tmp_path, model=gpt2()).train()


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_hugging_face_dropout_raises_no_alarm(tmp_path, mode):
    model = gpt2(resid_pdrop=0.3, embd_pdrop=0.3, attn_pdrop=0.3, tie_word_embeddings=mode == "hooks")
    run = trainer(tmp_path, model=model, mode=mode)
    run.train()
    assert len(run.engine.accountant) == 8


def test_hugging_face_run_resumes_to_identical_weights(tmp_path):
    args = {"save_strategy": "steps", "save_steps": 3}
    whole = trainer(tmp_path / "whole", args=args)
    whole.train()

    class Stops(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 5:  # two steps behind the checkpoint
                raise KeyboardInterrupt

    first = trainer(tmp_path / "part", args=args)
    first.add_callback(Stops())
    with pytest.raises(KeyboardInterrupt):
        first.train()
    second = trainer(tmp_path / "part", args=args)
    second.train(resume_from_checkpoint=True)
    assert len(second.engine.accountant) == second.state.global_step == 8
    for p, q in zip(trainable(second.model), trainable(whole.model), strict=True):
        assert torch.equal(p, q)
    assert second.engine.get_epsilon(1e-4) == whole.engine.get_epsilon(1e-4)
    (tmp_path / "part" / "checkpoint-3" / "filet.pt").unlink()
    third = trainer(tmp_path / "part", args=args)
    with pytest.raises(filet.StateError, match="cannot go on"):
        third.train(resume_from_checkpoint=str(tmp_path / "part" / "checkpoint-3"))


def test_hugging_face_accelerate_trains_with_the_engines_optimizer_and_loader():
    model = lora_model()
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=6, key=KEY)
    _, optimizer, criterion, run = engine.make_private(
        module=model, optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1),
        data_loader=DataLoader(Texts(), collate_fn=collate), criterion=nn.CrossEntropyLoss(ignore_index=-100),
        noise_multiplier=1.0, max_grad_norm=0.5, grad_sample_mode="ghost", wrap_model=False,
    )  # fmt: skip
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in run:
        assert type(batch) is transformers.BatchEncoding
        optimizer.zero_grad()
        mask = batch["attention_mask"].masked_fill(~run.mask[:, None], 1)
        logits = model(input_ids=batch["input_ids"], attention_mask=mask).logits[:, :-1]
        criterion(logits.flatten(0, 1), batch["labels"][:, 1:].flatten(), shape=logits.shape).backward()
        optimizer.step()
    assert len(engine.accountant) == 6


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(filet.InvalidArgumentError, match="physical_batch_size"):
        trainer(tmp_path, args={"gradient_accumulation_steps": 2})
    with pytest.raises(filet.InvalidArgumentError, match="save_steps=4 falls into the middle of a batch of 3 parts"):
        trainer(tmp_path, physical=2, args={"save_strategy": "steps", "save_steps": 4})
    with pytest.raises(filet.InvalidArgumentError, match="either noise_multiplier"):
        trainer(tmp_path, target_epsilon=1.0, target_delta=1e-3)
    with pytest.raises(filet.InvalidArgumentError, match=r"label_smoothing_factor=0\.1"):
        trainer(tmp_path, args={"label_smoothing_factor": 0.1})
    with pytest.raises(filet.InvalidArgumentError, match="gradient_checkpointing=True"):
        trainer(tmp_path, args={"gradient_checkpointing": True})
    with pytest.raises(filet.InvalidArgumentError, match="compute_loss_func"):
        trainer(tmp_path, compute_loss_func=lambda outputs, labels, **_: outputs.loss)
    assert trainer(tmp_path, args={"save_strategy": "steps", "save_steps": 0.25}).args.max_steps == 8


def test_hugging_face_takes_no_step_twice_or_beyond_the_runs(tmp_path):
    class Stops(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 3

    run = trainer(tmp_path)
    run.add_callback(Stops)
    run.train()
    assert len(run.engine.accountant) == 3
    run.remove_callback(Stops)
    run.train()  # the five steps that are left
    assert len(run.engine.accountant) == 8
    with pytest.raises(filet.StateError, match="the run of steps=8 is over"):
        run.train()
    later = trainer(tmp_path)
    later.args.gradient_accumulation_steps = 2
    with pytest.raises(filet.StateError, match="had no accounted step"):
        later.train()
    assert len(later.engine.accountant) == 0


def ranks(*arguments):
    """A run on two ranks, as `torchrun` starts them."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, *launch, "-m", "tests.integrations.huggingface_ranks", *map(str, arguments)]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    steps, found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    return steps, torch.tensor(found)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["ghost", "hooks"])
def test_two_ranks_train_as_one_and_resume_to_the_same_weights(tmp_path, mode):
    steps, whole = ranks(mode, tmp_path / "whole", 99)
    assert steps == 8
    assert ranks(mode, tmp_path / "cut", 5)[0] == 5
    steps, resumed = ranks(mode, tmp_path / "cut", 99, "resume")
    assert steps == 8
    assert torch.equal(resumed, whole)
    one = trainer(tmp_path, mode=mode)
    one.train()
    alone = torch.cat([p.detach().flatten() for p in one.model.parameters() if p.requires_grad])
    assert torch.allclose(alone, whole, atol=1e-5)


def scores(examples):
    """Texts with a number each, as a regression has them."""
    made = collate(examples)
    made["labels"] = made["input_ids"].float().mean(dim=1)
    return made


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_one_label_is_a_regression_with_transformers_own_loss(tmp_path, mode):
    def model(**options):
        torch.manual_seed(3)
        config = transformers.LlamaConfig(
            vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            max_position_embeddings=16, pad_token_id=0, bos_token_id=1, eos_token_id=1, **options,
        )  # fmt: skip
        made = transformers.LlamaForSequenceClassification(config)
        made.model.requires_grad_(False)
        return made

    run = trainer(tmp_path, mode=mode, model=model(num_labels=1), steps=1, noise_multiplier=0.0)
    run.data_collator = scores
    before = run.model.score.weight.detach().clone()
    batch = scores([Texts()[int(index)] for index in SCHEME.sampler(KEY)[0].indices if index >= 0])
    own = model(num_labels=1)
    total = torch.zeros_like(before)
    for row in range(len(batch["labels"])):  # by hand: Transformers' loss of each example alone, clipped
        own.zero_grad()
        own(**{name: rows[row : row + 1] for name, rows in batch.items()}).loss.backward()
        gradient = own.score.weight.grad
        total += gradient * (0.5 / (gradient.norm() + 1e-6)).clamp(max=1.0)
    run.train()
    average = (total / SCHEME.expected_batch_size).sign()
    moved = run.model.score.weight.detach() - before
    assert torch.equal(moved.sign(), -average)  # Adam's first step has the signs of the gradient
    with pytest.raises(filet.InvalidArgumentError, match="one label at a time"):
        trainer(tmp_path, model=model(num_labels=3, problem_type="multi_label_classification"))


def cost(steps):
    return filet.account(SCHEME, noise_multiplier=1.0, steps=steps, adjacency="zero-out").epsilon(1e-3)


def test_epsilon_is_logged_and_training_stops_before_the_budget_is_exceeded(tmp_path):
    class Logged(transformers.TrainerCallback):
        seen: list = []  # noqa: RUF012

        def on_log(self, args, state, control, logs=None, **_):
            if "privacy/epsilon" in logs:
                self.seen.append((state.global_step, logs["privacy/epsilon"]))

    limit = (cost(5) + cost(6)) / 2
    options = {"delta": 1e-3, "max_epsilon": limit, "args": {"logging_strategy": "steps", "logging_steps": 2}}
    run = trainer(tmp_path, callbacks=[Logged()], **options)
    run.train()
    assert len(run.engine.accountant) == 5
    assert Logged.seen == [(2, cost(2)), (4, cost(4)), (5, cost(5))]
    with pytest.raises(filet.InvalidArgumentError, match="max_epsilon has no delta"):
        trainer(tmp_path, max_epsilon=1.0)
    with pytest.raises(filet.InvalidArgumentError, match=r"one step with noise_multiplier=1\.0 costs"):
        trainer(tmp_path, delta=1e-3, max_epsilon=cost(1) / 2).train()
