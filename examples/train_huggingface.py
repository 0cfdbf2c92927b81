"""A private LoRA fine-tune with Transformers, peft and ghost clipping; nothing is downloaded.

Run it with `python examples/train_huggingface.py FOLDER [--steps N]`. It may be killed at any moment; started again it goes
on from its last checkpoint, to the weights of an undisturbed run.
"""

from __future__ import annotations

import argparse
import hashlib
import warnings
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from torch.utils.data import Dataset

import filet
from filet.integrations.huggingface import CappedTrainer
from filet.integrations.opacus import CappedPrivacyEngine

warnings.filterwarnings("ignore")
transformers.utils.logging.set_verbosity_error()
LENGTH, WORDS, TEXTS = 12, 40, 400


class Counting(Dataset):
    """Texts that count up from a random number: easy to learn, and made of nothing."""

    def __init__(self) -> None:
        starts = torch.randint(WORDS, (TEXTS, 1), generator=torch.Generator().manual_seed(0))
        self.texts = (starts + torch.arange(LENGTH)) % WORDS

    def __len__(self) -> int:
        return TEXTS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        text = self.texts[index]
        return {"input_ids": text, "attention_mask": torch.ones_like(text), "labels": text}


class Tells(transformers.TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        print(f"step {state.global_step} of {state.max_steps}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    scheme = filet.CappedPoisson(TEXTS, 0.07, 32, overflow="reject")
    # A real run keeps 32 secret random bytes in a file of its own, or passes include_key=True to the trainer.
    engine = CappedPrivacyEngine(
        scheme, adjacency="zero-out", steps=options.steps, key=b"for an example only", physical_batch_size=16
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(options.folder), save_strategy="steps", save_steps=10, logging_strategy="no", report_to=[],
        disable_tqdm=True, learning_rate=0.02, lr_scheduler_type="constant", use_cpu=True, save_total_limit=2,
    )  # fmt: skip
    trainer = CappedTrainer(
        model=model, args=arguments, train_dataset=Counting(), engine=engine, clipping_norm=1.0, noise_multiplier=1.0,
        callbacks=[Tells()],
    )  # fmt: skip
    last = transformers.trainer_utils.get_last_checkpoint(str(options.folder)) if options.folder.exists() else None
    if last is not None:
        print(f"resumed at step {last.rpartition('-')[2]}", flush=True)
    trainer.train(resume_from_checkpoint=last)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters() if p.requires_grad)
    print(f"epsilon {engine.get_epsilon(1e-4):.6f} at delta 1e-4, weights {hashlib.sha256(weights).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
