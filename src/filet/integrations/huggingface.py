# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call, override", allow-subclassing-any
"""Hugging Face's `Trainer` on capped Poisson batches: DP-SGD by Opacus, padding masked, one accounted step a batch."""

from __future__ import annotations

import copy
import math
import os
from typing import Any

from filet.errors import InvalidArgumentError, MissingExtraError, StateError

try:
    import torch
    import transformers
    from torch import nn
    from torch.utils.data import DataLoader
except ImportError as error:
    raise MissingExtraError("Transformers is not installed; run: pip install 'filet[huggingface]'") from error

from . import opacus_checkpoint
from .opacus import CappedPrivacyEngine

_FILE = "filet.pt"
_IGNORED = -100  # labels that Transformers' collators give to tokens without a loss


class CappedTrainer(transformers.Trainer):
    """A `Trainer` whose batches, gradients and epsilon are those of a `CappedPrivacyEngine`.

    Guarantees: those of the engine. An example's loss is the mean over its own tokens, so that no example changes the
    weight of another's. The run takes the engine's `steps`, whatever the arguments say of epochs. Checkpoints hold the
    run's position, accountant and noise: `train(resume_from_checkpoint=...)` ends with the weights of a run that was never
    interrupted.

    Arguments:
        engine: a new one, for this run.
        noise_multiplier: or `target_epsilon` and `target_delta`, from which the engine calibrates it.
        clipping_norm: of every example's gradient. `max_grad_norm` of the arguments is not used.
        grad_sample_mode: "ghost", or "hooks" for models with layers that ghost clipping does not know.
        shift_labels: True if the logits of a token are for the next one; if None, for `...ForCausalLM` and `...LMHead...`.
        include_key: also save the key of the batches in checkpoints.
        options: for `Trainer`. `train_dataset` must have `scheme.dataset_size` examples, and the data collator give all
            examples the same length. `gradient_accumulation_steps` must be 1: pass `physical_batch_size` to the engine.
    """

    def __init__(
        self,
        *positional: Any,
        engine: CappedPrivacyEngine,
        clipping_norm: float,
        noise_multiplier: float | None = None,
        target_epsilon: float | None = None,
        target_delta: float | None = None,
        grad_sample_mode: str = "ghost",
        shift_labels: bool | None = None,
        include_key: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*positional, **options)
        if (noise_multiplier is None) == (target_epsilon is None) or (target_epsilon is None) != (target_delta is None):
            raise InvalidArgumentError("pass either noise_multiplier, or both target_epsilon and target_delta")
        self.engine = engine
        self.model: Any
        self.optimizer: Any
        self.train_dataset: Any
        self._private: dict[str, Any] = {
            "max_grad_norm": clipping_norm,
            "grad_sample_mode": grad_sample_mode,
            "wrap_model": False,
        }
        self._noise: dict[str, Any] = {"noise_multiplier": noise_multiplier} if target_epsilon is None else {
            "target_epsilon": target_epsilon, "target_delta": target_delta
        }  # fmt: skip
        self._shift = _predicts_the_next(self.model) if shift_labels is None else shift_labels
        self._include_key = include_key
        self._resume: Any = None
        self._loader: Any = None
        self._criterion: Any = nn.CrossEntropyLoss(ignore_index=_IGNORED)
        parts = self.engine.physical_batches
        _check_arguments(self.args, parts, engine.steps * parts)
        if self.compute_loss_func is not None:
            raise InvalidArgumentError(
                "compute_loss_func would see whole batches, whose losses cannot be clipped; leave it out"
            )
        self.args = copy.copy(self.args)
        self.args.max_steps = engine.steps * parts
        self.args.max_grad_norm = 0.0  # per-example gradients are clipped; clipping their noisy sum is not needed
        self.args.ignore_data_skip = True  # the loader itself knows where it is
        self.add_callback(_KeepsTheRun(self))

    def create_optimizer(self, *positional: Any, **options: Any) -> Any:
        """Transformers' optimizer, made private together with the model and the data."""
        if self._loader is not None:
            return self.optimizer
        plain = super().create_optimizer(*positional, **options)
        data = DataLoader(
            self.train_dataset, collate_fn=self.data_collator, num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and torch.accelerator.is_available(),
        )  # fmt: skip
        make = self.engine.make_private if "noise_multiplier" in self._noise else self.engine.make_private_with_epsilon
        self.model.train()
        made = make(
            module=self.model,
            optimizer=plain,
            data_loader=data,
            criterion=self._criterion,
            **self._private,
            **self._noise,
        )
        self.optimizer, self._loader = made[1], made[-1]
        if len(made) == 4:
            self._criterion = made[2]
        return self.optimizer

    def get_train_dataloader(self) -> Any:
        """The engine's loader, as it is: preparing it again would deal its batches anew."""
        self.create_optimizer()
        return self._loader

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """One physical batch: loss and private gradients; the optimizer's step follows."""
        model.train()
        self.optimizer.zero_grad()  # the Trainer clears the model's gradients only, not those of single examples
        inputs = dict(self._prepare_inputs(inputs))
        labels = inputs.pop("labels")
        if "attention_mask" in inputs:  # rows of padding attend to themselves, as attention to nothing is not a number
            padding = ~self._loader.mask.to(labels.device)
            inputs["attention_mask"] = inputs["attention_mask"].masked_fill(padding[:, None], 1)
        loss = self._loss(model(**inputs).logits, labels)
        loss.backward()
        return torch.as_tensor(loss.detach())

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> Any:
        if logits.ndim == 2:
            return self._criterion(logits, labels)
        if self._shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        flat = (logits.flatten(0, 1), labels.flatten())
        if not isinstance(self._criterion, nn.CrossEntropyLoss):
            return self._criterion(*flat, shape=logits.shape)
        losses = nn.functional.cross_entropy(*flat, ignore_index=_IGNORED, reduction="none").view(labels.shape)
        return (losses.sum(dim=1) / (labels != _IGNORED).sum(dim=1).clamp(min=1)).mean()

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> None:
        """Nothing: before the noise is added, the norm of the gradients is not private, and Transformers would log it."""

    def train(self, resume_from_checkpoint: Any = None, **options: Any) -> Any:
        """`Trainer.train`; also restores the engine's run from a checkpoint."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = transformers.trainer_utils.get_last_checkpoint(self.args.output_dir)
        self._resume = resume_from_checkpoint or None
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **options)

    def save_run(self, folder: Any) -> None:
        """Write the engine's run beside Transformers' own files."""
        path = os.path.join(folder, _FILE)
        with opacus_checkpoint.target(path, secret=self._include_key) as file:
            torch.save(self.engine.state_dict(include_key=self._include_key), file)

    def load_run(self) -> None:
        """Restore the engine's run, if training goes on from a checkpoint."""
        if self._resume is None:
            return
        path = os.path.join(self._resume, _FILE)
        if not os.path.exists(path):
            raise StateError(
                f"{path!r} does not exist, so the private run cannot go on; resume from CappedTrainer's checkpoint"
            )
        self.engine.load_state_dict(torch.load(path, weights_only=False))
        self._resume = None


class _KeepsTheRun(transformers.TrainerCallback):
    def __init__(self, trainer: CappedTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.load_run()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        self._trainer.save_run(folder)


def _predicts_the_next(model: Any) -> bool:
    names = [type(part).__name__ for part in model.modules()]
    return any("ForCausalLM" in name or "LMHead" in name for name in names)


def _check_arguments(args: Any, parts: int, max_steps: int) -> None:
    if args.gradient_accumulation_steps != 1:
        raise InvalidArgumentError(
            f"gradient_accumulation_steps={args.gradient_accumulation_steps} would step on several batches; leave it at"
            " 1 and pass physical_batch_size to the engine"
        )
    if args.label_smoothing_factor:
        raise InvalidArgumentError(
            f"label_smoothing_factor={args.label_smoothing_factor} is not part of the private loss; leave it at 0"
        )
    every = args.save_steps if args.save_steps >= 1 else math.ceil(max_steps * args.save_steps)  # as Transformers does
    if args.save_strategy == "steps" and every % parts:
        raise InvalidArgumentError(
            f"save_steps={args.save_steps} falls into the middle of a batch of {parts} parts; pass a multiple"
        )
