"""A private LoRA fine-tune to start from: your model, your texts, an epsilon; nothing is downloaded unless you name a model.

    python examples/finetune_lora.py RUN                                          # a tiny model, made-up texts
    python examples/finetune_lora.py RUN --model HuggingFaceTB/SmolLM2-135M --texts notes.txt --epsilon 8

`notes.txt` has one person's text on each line: a line is what epsilon protects. Batches are Poisson samples, capped at
`--rows`: the sampling that the accountant accounts for. The run may be killed at any moment; started again with the same
arguments it goes on from its last checkpoint, to the weights of an undisturbed run. At its end `RUN/adapter` holds the
adapter, and `RUN/PRIVACY.md` what to say of it.
"""

from __future__ import annotations

import argparse
import hashlib
import warnings
from pathlib import Path
from typing import Any

import datasets
import peft
import tokenizers
import torch
import transformers
import trl

import filet
from filet.integrations.huggingface import CappedSFTTrainer
from filet.integrations.opacus import CappedPrivacyEngine
from filet.sampling.keys import read_key_file, write_key_file
from filet.showing.citing import markdown

warnings.filterwarnings("ignore")
transformers.utils.logging.set_verbosity_error()
datasets.disable_progress_bars()
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]


def made_up_texts() -> list[str]:
    """A text a person, that counts up from some number: easy to learn, and about nobody."""
    return [" ".join(NUMBERS[(person + k) % len(NUMBERS)] for k in range(8)) for person in range(400)]


def tiny_model() -> tuple[Any, Any]:
    """A Llama of two layers with random weights, and a tokenizer of whole words."""
    words = {word: number for number, word in enumerate(["<pad>", "<end>", "<unknown>", *NUMBERS])}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unknown>"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>"
    )
    config = transformers.LlamaConfig(
        vocab_size=len(words), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config), tokenizer


def run_key(path: Path) -> bytes:
    """The run's secret: drawn once, for its owner only. Who has it can tell whose text was in which batch."""
    if not path.exists():
        write_key_file(path)
    return read_key_file(path)


class Tells(transformers.TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        print(f"step {state.global_step} of {state.max_steps}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="a folder of this run alone")
    parser.add_argument("--model", help="a name on the hub, or a folder; none: a tiny model with random weights")
    parser.add_argument("--texts", type=Path, help="a file with one person's text on each line; none: made up")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rows", type=int, default=48, help="of every batch")
    parser.add_argument("--length", type=int, default=16, help="tokens of a text; longer ones are cut")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    options.run.mkdir(parents=True, exist_ok=True)
    transformers.set_seed(0)
    texts = options.texts.read_text(encoding="utf-8").splitlines() if options.texts else made_up_texts()
    if options.model:
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model)
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    else:
        model, tokenizer = tiny_model()
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))

    delta = 0.1 / len(texts)
    scheme = filet.CappedPoisson.from_batch_size(len(texts), 0.85 * options.rows, options.rows, overflow="reject")
    engine = CappedPrivacyEngine(
        scheme, adjacency="zero-out", steps=options.steps, key=run_key(options.run / "run.key")
    )
    config = trl.SFTConfig(
        output_dir=str(options.run), max_length=options.length, learning_rate=options.learning_rate,
        lr_scheduler_type="constant", gradient_checkpointing=False, bf16=False, save_strategy="steps", save_steps=10,
        save_total_limit=2, logging_strategy="no", report_to=[], disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    trainer = CappedSFTTrainer(
        model, config, train_dataset=datasets.Dataset.from_dict({"text": texts}), processing_class=tokenizer,
        engine=engine, clipping_norm=1.0, target_epsilon=options.epsilon, target_delta=delta, callbacks=[Tells()],
    )  # fmt: skip
    last = transformers.trainer_utils.get_last_checkpoint(str(options.run))
    if last is not None:
        print(f"resumed at step {last.rpartition('-')[2]}", flush=True)
    trainer.train(resume_from_checkpoint=last)

    model.save_pretrained(options.run / "adapter")
    (options.run / "PRIVACY.md").write_text(
        markdown(trainer.record(delta, unit="one line of the texts")), encoding="utf-8"
    )
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters() if p.requires_grad)
    print(f"the model says: {continued(model, tokenizer, texts[0])}")
    print(
        f"epsilon {engine.get_epsilon(delta):.6f} at delta {delta:.2g},"
        f" weights {hashlib.sha256(weights).hexdigest()[:16]}"
    )


def continued(model: Any, tokenizer: Any, text: str) -> str:
    """How the model goes on after the first words of a text."""
    model.eval()
    start = tokenizer(" ".join(text.split()[:2]), return_tensors="pt").to(model.device)
    made = model.generate(input_ids=start["input_ids"], max_new_tokens=6, do_sample=False)
    return str(tokenizer.decode(made[0], skip_special_tokens=True))


if __name__ == "__main__":
    main()
