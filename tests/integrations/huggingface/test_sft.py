"""TRL's SFTTrainer on capped batches: the gradients and steps of CappedTrainer; what mixes texts is refused."""

from __future__ import annotations

import datasets
import pytest
import tokenizers
import torch
import transformers
from tests.integrations.huggingface.test_trainer import KEY, SCHEME, lora_model
from trl.trainer.sft_config import SFTConfig

import filet
from filet.integrations.huggingface import CappedSFTTrainer, CappedTrainer
from filet.integrations.opacus import CappedPrivacyEngine

pytestmark = pytest.mark.filterwarnings("ignore")
TEXTS = [" ".join(f"w{(3 * row + place) % 17}" for place in range(3 + row % 5)) for row in range(40)]
LENGTH = 8


def tokenizer():
    words = {"<pad>": 0, "<s>": 1, **{f"w{number}": number + 2 for number in range(17)}, "<unk>": 19}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="<s>", unk_token="<unk>"
    )


def start(folder, *, mode="ghost", engine=(), **options):
    torch.manual_seed(3)
    made = CappedPrivacyEngine(SCHEME, **{"adjacency": "zero-out", "steps": 6, "key": KEY, **dict(engine)})
    args = SFTConfig(**{
        "output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no",
        "disable_tqdm": True, "learning_rate": 0.05, "lr_scheduler_type": "constant", "max_length": LENGTH,
        "gradient_checkpointing": False, "seed": 3, "logging_strategy": "no", **options,
    })  # fmt: skip
    return CappedSFTTrainer(
        lora_model(), args, train_dataset=datasets.Dataset.from_dict({"text": TEXTS}), processing_class=tokenizer(),
        engine=made, clipping_norm=0.5, noise_multiplier=1.0, grad_sample_mode=mode,
    )  # fmt: skip


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.model.parameters() if p.requires_grad])


def by_trainer(folder, mode):
    """The same texts through CappedTrainer, padded by hand."""
    words = tokenizer()
    rows = [words(text + " <s>")["input_ids"] for text in TEXTS]

    def collate(examples):
        short = [row + [0] * (LENGTH - len(row)) for row in examples]
        mask = torch.tensor([[1] * len(row) + [0] * (LENGTH - len(row)) for row in examples])
        ids = torch.tensor(short)
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

    torch.manual_seed(3)
    made = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=6, key=KEY)
    args = transformers.TrainingArguments(
        output_dir=str(folder), use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, learning_rate=0.05,
        lr_scheduler_type="constant", remove_unused_columns=False, seed=3, logging_strategy="no",
    )  # fmt: skip
    run = CappedTrainer(
        model=lora_model(), args=args, train_dataset=rows, data_collator=collate, engine=made, clipping_norm=0.5,
        noise_multiplier=1.0, grad_sample_mode=mode,
    )  # fmt: skip
    run.train()
    return weights(run)


@pytest.mark.parametrize("mode", ["ghost", "hooks"])
def test_weights_are_those_of_capped_trainer(tmp_path, mode):
    run = start(tmp_path, mode=mode)
    run.train()
    assert len(run.engine.accountant) == 6
    assert torch.allclose(weights(run), by_trainer(tmp_path, mode), atol=1e-6)


def test_a_killed_run_ends_with_the_same_weights(tmp_path):
    class Stops(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 4

    whole = start(tmp_path / "whole")
    whole.train()
    saving = {"save_strategy": "steps", "save_steps": 2}
    cut = start(tmp_path / "cut", **saving)
    cut.add_callback(Stops())
    cut.train()
    rest = start(tmp_path / "cut", **saving)
    rest.train(resume_from_checkpoint=True)
    assert torch.equal(weights(rest), weights(whole))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"packing": True}, "packing=True mixes texts"),
        ({"padding_free": True}, "padding_free=True mixes texts"),
        ({"max_length": None}, "pass max_length= alone"),
        ({"pad_to_multiple_of": 3}, "pass max_length= alone"),
        ({"gradient_checkpointing": True}, "leave it False"),
        ({"loss_type": "dft"}, "pass loss_type='nll'"),
    ],
)
def test_what_mixes_texts_or_their_losses_is_refused(tmp_path, options, says):
    with pytest.raises(filet.InvalidArgumentError, match=says):
        start(tmp_path, **options)


def test_arguments_of_another_kind_are_refused():
    with pytest.raises(filet.InvalidArgumentError, match="args is no SFTConfig"):
        CappedSFTTrainer(lora_model(), None)
