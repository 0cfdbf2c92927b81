# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call", allow-subclassing-any
"""TRL's `SFTTrainer` on capped Poisson batches: texts of one length, each an example of its own."""

from __future__ import annotations

from typing import Any

from filet.errors import InvalidArgumentError

from .._frameworks import needed_for

with needed_for("huggingface"):
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

from .trainer import CappedTrainerMixin


class CappedSFTTrainer(CappedTrainerMixin, SFTTrainer):
    """TRL's `SFTTrainer`, private: see `CappedTrainer` for its guarantees and arguments.

    Texts are cut and padded to `max_length` of `SFTConfig`. Packing is refused: a row would hold
    texts of several people. `SFTConfig` turns gradient checkpointing on; pass
    `gradient_checkpointing=False`. The loss is the mean over a text's own tokens.
    """

    def __init__(self, model: Any, args: Any = None, **options: Any) -> None:
        if not isinstance(args, SFTConfig):
            raise InvalidArgumentError("args is no SFTConfig; pass one, with max_length= and its output_dir")
        for name in ("packing", "padding_free", "use_liger_kernel"):
            if getattr(args, name, False):
                raise InvalidArgumentError(
                    f"{name}=True mixes texts or hides their losses, so that none can be clipped alone; pass {name}=False"
                )
        if args.loss_type != "nll":
            raise InvalidArgumentError(f"loss_type={args.loss_type!r} is not the private loss; pass loss_type='nll'")
        if args.max_length is None or args.pad_to_multiple_of not in (None, args.max_length):
            raise InvalidArgumentError(
                f"max_length={args.max_length} with pad_to_multiple_of={args.pad_to_multiple_of} gives rows of several"
                " lengths; pass max_length= alone"
            )
        args.pad_to_multiple_of = args.max_length  # rows are cut to it already: all get this length
        super().__init__(model, args, **options)
