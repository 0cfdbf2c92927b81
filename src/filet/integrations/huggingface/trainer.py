# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call, override", allow-subclassing-any
"""A `Trainer` for DP-SGD by Opacus: padding is masked, and each batch is one accounted step."""

from __future__ import annotations

import copy
import math
import os
from typing import Any

from filet.errors import InvalidArgumentError, StateError
from filet.scheme import Size

from .._frameworks import needed_for

with needed_for("huggingface"):
    import torch
    import transformers
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
    from torch import nn
    from torch.utils.data import DataLoader

from .._checkpoint_files import target
from .._private_run import make_private, noise_options, several_ranks
from ..opacus import CappedPrivacyEngine
from ..tracking import Budget

_FILE = "filet.pt"
_IGNORED = -100  # labels that Transformers' collators give to tokens without a loss


class CappedTrainerMixin:
    """Mixin that makes a `Trainer`'s batches, gradients and epsilon those of a `CappedPrivacyEngine`.

    Guarantees: those of the engine. An example's loss is the mean over its own tokens, so that no example changes the
    weight of another's. Sequence classification with one label is a regression with squared errors, as in Transformers.
    The run takes the engine's `steps`, whatever the arguments say of epochs. Checkpoints hold the run's position,
    accountant and noise: `train(resume_from_checkpoint=...)` ends with the weights of a run that was never interrupted.
    Several ranks (`torchrun`) have a part of each batch.

    Arguments:
        engine: a new one, for this run.
        noise_multiplier: or `target_epsilon` and `target_delta`, from which the engine calibrates it.
        clipping_norm: of every example's gradient. `max_grad_norm` of the arguments is not used.
        delta: at which epsilon is logged, every `logging_steps`; `target_delta` if that is given, and None logs nothing.
        max_epsilon: what the run may cost at `delta`; training stops before it is exceeded. None: the engine's steps.
        grad_sample_mode: "ghost", or "hooks" for models with layers that ghost clipping does not know.
        shift_labels: True if the logits of a token are for the next one; if None, for `...ForCausalLM` and `...LMHeadModel`.
        include_key: also save the key of the batches in checkpoints.
        options: for `Trainer`. `train_dataset` must have `scheme.dataset_size` examples (any
            number, which nothing logs or saves, where the scheme's size is not public), and the data collator give all
            examples the same length. `gradient_accumulation_steps` must be 1: pass `physical_batch_size` to the engine.
    """

    args: Any
    accelerator: Any
    model: Any
    optimizer: Any
    train_dataset: Any
    data_collator: Any
    compute_loss_func: Any
    add_callback: Any
    log: Any
    is_world_process_zero: Any
    _prepare_inputs: Any

    def __init__(
        self,
        *positional: Any,
        engine: CappedPrivacyEngine,
        clipping_norm: float,
        noise_multiplier: float | None = None,
        target_epsilon: float | None = None,
        target_delta: float | None = None,
        grad_sample_mode: str = "ghost",
        delta: float | None = None,
        max_epsilon: float | None = None,
        shift_labels: bool | None = None,
        include_key: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*positional, **options)
        self._noise = noise_options(noise_multiplier, target_epsilon, target_delta)
        self.engine = engine
        delta = target_delta if delta is None else delta
        if delta is None and max_epsilon is not None:
            raise InvalidArgumentError("max_epsilon has no delta; pass delta=, too")
        self.budget = None if delta is None else Budget(engine, delta=delta, max_epsilon=max_epsilon)
        self._private = {"max_grad_norm": clipping_norm, "grad_sample_mode": grad_sample_mode}
        self._shift = _predicts_the_next(self.model) if shift_labels is None else shift_labels
        self._include_key = include_key
        self._resume: Any = None
        self._loader: Any = None
        self._criterion: Any = _criterion_of(self.model)
        self._regression = isinstance(self._criterion, nn.MSELoss)
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
        plain = super().create_optimizer(*positional, **options)  # type: ignore[misc]
        data = DataLoader(
            self.train_dataset,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and torch.accelerator.is_available(),
        )
        self.model.train()
        self.optimizer, self._loader, private = make_private(
            self.engine,
            self.model,
            self._noise,
            optimizer=plain,
            data_loader=data,
            criterion=self._criterion,
            **self._private,
        )
        self._criterion = private or self._criterion
        if self.budget is not None:
            self.budget.check(self.optimizer.noise_multiplier)
            if self.args.logging_strategy == "steps":
                self.budget.every = _whole(self.args.logging_steps, self.args.max_steps)
                self.budget.trackers = [lambda values, step: self.log(dict(values))]
        return self.optimizer

    def num_examples(self, dataloader: Any) -> int:
        """`Trainer.num_examples`, which is logged; of the training data, the planned number where the true one is secret."""
        scheme = self.engine.scheme
        if dataloader is self._loader and scheme.size is not Size.PUBLIC:
            return scheme.dataset_size
        return int(super().num_examples(dataloader))  # type: ignore[misc]

    def _wrap_model(self, model: Any, training: bool = True, dataloader: Any = None) -> Any:
        """Keep several ranks out of `DistributedDataParallel`: it would average gradients before they are clipped."""
        wrapped = isinstance(model, DifferentiallyPrivateDistributedDataParallel)
        if wrapped or not (training and several_ranks()):
            return model if wrapped else super()._wrap_model(model, training, dataloader)  # type: ignore[misc]
        autocast = self.accelerator.prepare_model(model, evaluation_mode=True)
        return DifferentiallyPrivateDistributedDataParallel(autocast)

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
        if "attention_mask" in inputs:  # rows of padding attend to themselves, as attention to nothing is NaN
            padding = ~self._loader.mask.to(labels.device)
            inputs["attention_mask"] = inputs["attention_mask"].masked_fill(padding[:, None], 1)
        loss = self._loss(model(**inputs).logits, labels)
        loss.backward()
        return torch.as_tensor(loss.detach())

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> Any:
        if logits.ndim == 2:
            logits = logits.squeeze(1) if self._regression and labels.ndim == 1 else logits
            return self._criterion(logits, labels.to(logits.dtype) if self._regression else labels)
        if self._shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        flat = (logits.flatten(0, 1), labels.flatten())
        if not isinstance(self._criterion, nn.CrossEntropyLoss):
            return self._criterion(*flat, shape=logits.shape)
        losses = nn.functional.cross_entropy(*flat, ignore_index=_IGNORED, reduction="none").view(labels.shape)
        return (losses.sum(dim=1) / (labels != _IGNORED).sum(dim=1).clamp(min=1)).mean()

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> None:
        """Return no norm: before the noise is added, the norm of the gradients is not private, and Transformers would log it."""

    def train(self, resume_from_checkpoint: Any = None, *positional: Any, **options: Any) -> Any:
        """`Trainer.train`; also restores the engine's run from a checkpoint."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = transformers.trainer_utils.get_last_checkpoint(self.args.output_dir)
        self._resume = resume_from_checkpoint or None
        return super().train(resume_from_checkpoint, *positional, **options)  # type: ignore[misc]

    def record(self, delta: float, **options: Any) -> dict[str, Any]:
        """The record of the steps so far, as `filet.record` makes it; `filet.showing.citing.markdown` is for the model card."""
        return self.engine.record(delta, **options)

    def save_run(self, folder: Any) -> None:
        """Write the engine's run beside Transformers' own files; one rank does it for all."""
        if not self.is_world_process_zero():
            return
        path = os.path.join(folder, _FILE)
        with target(path, secret=self._include_key) as file:
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


class CappedTrainer(CappedTrainerMixin, transformers.Trainer):
    """A `Trainer` whose batches, gradients and epsilon are those of a `CappedPrivacyEngine`."""

    __doc__ = (__doc__ or "") + (CappedTrainerMixin.__doc__ or "").partition("\n")[2]


class _KeepsTheRun(transformers.TrainerCallback):
    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.load_run()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        budget = self._trainer.budget
        if budget is not None and budget.update():
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        self._trainer.save_run(folder)


def _criterion_of(model: Any) -> nn.Module:
    """The loss that Transformers' heads use: squared errors for one label, or as `problem_type` of the model says."""
    config = getattr(model, "config", None)
    heads = any("ForSequenceClassification" in type(part).__name__ for part in model.modules())
    problem = getattr(config, "problem_type", None)
    if heads and (problem == "regression" or (problem is None and getattr(config, "num_labels", 2) == 1)):
        return nn.MSELoss()
    if heads and problem == "multi_label_classification":
        raise InvalidArgumentError(
            "problem_type='multi_label_classification' is not known to the private loss; train one label at a time"
        )
    return nn.CrossEntropyLoss(ignore_index=_IGNORED)


def _predicts_the_next(model: Any) -> bool:
    names = [type(part).__name__ for part in model.modules()]
    return any("ForCausalLM" in name or "LMHeadModel" in name for name in names)  # not BertOnlyMLMHead


def _whole(steps: float, max_steps: int) -> int:
    """A number of steps that may be given as a share of all, as Transformers reads it."""
    return int(steps) if steps >= 1 else math.ceil(max_steps * steps)


def _check_arguments(args: Any, parts: int, max_steps: int) -> None:
    if args.gradient_accumulation_steps != 1:
        raise InvalidArgumentError(
            f"gradient_accumulation_steps={args.gradient_accumulation_steps} would step on several batches; leave it at"
            " 1 and pass physical_batch_size to the engine"
        )
    if args.gradient_checkpointing:
        raise InvalidArgumentError(
            "gradient_checkpointing=True runs layers forward twice, of which Opacus takes both for"
            " gradients of examples; leave it False and pass physical_batch_size to the engine"
        )
    if args.label_smoothing_factor:
        raise InvalidArgumentError(
            f"label_smoothing_factor={args.label_smoothing_factor} is not part of the private loss; leave it at 0"
        )
    if args.save_strategy == "steps" and _whole(args.save_steps, max_steps) % parts:
        raise InvalidArgumentError(
            f"save_steps={args.save_steps} falls into the middle of a batch of {parts} parts; pass a multiple"
        )
