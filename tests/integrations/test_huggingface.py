"""Transformers' Trainer, Accelerate and peft on capped batches; small models made from a config."""

from __future__ import annotations

import accelerate
import peft
import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader

import filet
from filet.integrations.huggingface import CappedTrainer
from filet.integrations.opacus import CappedPrivacyEngine

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
]

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
    with pytest.raises(filet.StateError, match="2 batches were drawn"):
        later.train()
    assert len(later.engine.accountant) == 0
