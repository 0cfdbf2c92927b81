# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call", allow-subclassing-any
"""The callback: it makes module, optimizer and loader private when a fit begins, and keeps them together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from filet.errors import InvalidArgumentError, StateError

from .._frameworks import needed_for

with needed_for("lightning"):
    import torch
    from lightning.pytorch import Callback
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from torch import nn
    from torch.utils.data import DataLoader

from .._private_run import PrivateRun, make_private, noise_options, several_ranks
from ..opacus import CappedPrivacyEngine
from ..tracking import Budget, lightning_logger
from .loss import GhostLoss
from .strategy import CappedDDPStrategy

_NAME = "filet"  # of the run in Lightning's checkpoints


class CappedPrivacy(Callback):
    """A Lightning callback that trains a module by DP-SGD on the capped Poisson batches of an engine.

    Everything else of a script stays: `training_step` with its mean loss, `configure_optimizers`, the
    `DataLoader` (which gives the data set, collate function and workers), validation, checkpoints.

    Guarantees: those of the engine. The fit ends with the engine's `steps`, or earlier if one more
    would cost more than `max_epsilon`. Checkpoints of Lightning hold the run's position, accountant and
    noise: `fit(ckpt_path=...)` ends with the weights of a run that was never interrupted. Epsilon and
    what is left of it go to the progress bar and to all loggers; nothing else of the batches does.

    Arguments:
        engine: a new one, for this run. Its passes are Lightning's epochs.
        clipping_norm: of every example's gradient. Lightning's `gradient_clip_val` must be left out.
        noise_multiplier: or `target_epsilon` and `target_delta`, from which the engine calibrates it.
        delta: at which epsilon is told; `target_delta` if that is given, and None tells nothing.
        max_epsilon: what the run may cost at `delta`; None: what the engine's steps cost.
        grad_sample_mode: "hooks", or "ghost", which needs a `criterion`.
        criterion: for ghost clipping, the name of the module's attribute that computes the loss of a
            batch from outputs and labels, such as `nn.CrossEntropyLoss()`.
        module: the name of the part that is trained, if it is not the Lightning module itself.
            `training_step` must call it as a whole: `self(x)`, or `self.net(x)` for `module="net"`.

    Keep the engine's key: checkpoints do not hold it, as Lightning's files are readable by others.
    """

    def __init__(
        self,
        engine: CappedPrivacyEngine,
        *,
        clipping_norm: float,
        noise_multiplier: float | None = None,
        target_epsilon: float | None = None,
        target_delta: float | None = None,
        delta: float | None = None,
        max_epsilon: float | None = None,
        grad_sample_mode: str = "hooks",
        criterion: str | None = None,
        module: str | None = None,
    ) -> None:
        self.engine = engine
        self._noise = noise_options(noise_multiplier, target_epsilon, target_delta)
        delta = target_delta if delta is None else delta
        if delta is None and max_epsilon is not None:
            raise InvalidArgumentError("max_epsilon has no delta; pass delta=, too")
        self.budget = None if delta is None else Budget(engine, delta=delta, max_epsilon=max_epsilon)
        if (criterion is None) != (grad_sample_mode == "hooks"):
            raise InvalidArgumentError(
                f"criterion={criterion!r} does not fit grad_sample_mode={grad_sample_mode!r}; for 'ghost' name the"
                " module's attribute that computes the loss, for 'hooks' leave it out"
            )
        self._private = {"max_grad_norm": clipping_norm, "grad_sample_mode": grad_sample_mode}
        self._criterion, self._module = criterion, module
        self._batches: _Batches | None = None
        self._saved: Any = None

    # --- the run begins -------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse settings of the trainer that do not fit a private run."""
        if stage == "fit":
            _check_trainer(trainer)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the run private: the strategy has moved the module and made its optimizer by now."""
        source = trainer.fit_loop._data_source
        module = _attribute(pl_module, self._module) if self._module else pl_module
        options = dict(self._private)
        if self._criterion is not None:
            options["criterion"] = _attribute(pl_module, self._criterion)
        module.train()
        made = make_private(
            self.engine,
            module,
            self._noise,
            optimizer=_only_optimizer(trainer.optimizers),
            data_loader=_only_loader(source.dataloader()),
            **options,
        )
        if self._saved is not None:
            self.engine.load_state_dict(self._saved)
        if self.budget is not None:
            self.budget.check(made.optimizer.noise_multiplier)
        trainer.strategy.optimizers = [made.optimizer]
        source.instance = self._batches = _Batches(made, self.engine)
        if self._criterion is not None:
            setattr(pl_module, self._criterion, GhostLoss(made.criterion, options["criterion"]))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Go on with the random numbers of the saved run: setting up loaders may have drawn some."""
        if self._saved is not None:
            torch.set_rng_state(_own(self._saved["random"]))
            self._saved = None
        if self.budget is not None:
            self.budget.every = trainer.log_every_n_steps or 1
            self.budget.trackers = [lightning_logger(logger) for logger in trainer.loggers]

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Tell Lightning the length of this pass: passes may differ by one step."""
        length = self._run().begin()
        loop, interval = trainer.fit_loop, trainer.val_check_interval
        loop.max_batches = loop._combined_loader.limits[0] = length
        if isinstance(interval, float) and trainer.val_check_batch is not None:
            trainer.val_check_batch = max(1, int(length * interval))

    # --- steps ----------------------------------------------------------------------------------

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Tell epsilon, and stop if the budget is spent."""
        engine = self.engine
        over = len(engine.accountant) >= engine.steps
        if self.budget is not None:
            over = self.budget.update(at=trainer.global_step)
            told = {name.rpartition("/")[2]: value for name, value in self.budget.told.items()}
            pl_module.log_dict(told, prog_bar=True, logger=False)
        trainer.should_stop = trainer.should_stop or over

    # --- checkpoints ----------------------------------------------------------------------------

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Add the run to a checkpoint of Lightning."""
        self._run()
        state = self.engine.state_dict()
        checkpoint[_NAME] = {**state, "random": _everyones(torch.get_rng_state())}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Keep the saved run until the loader is there."""
        if not trainer.training:
            return
        if _NAME not in checkpoint:
            raise StateError(
                "the checkpoint has no private run, so that its steps would not be counted; pass one that was"
                " saved with this callback"
            )
        self._saved = checkpoint[_NAME]

    def _run(self) -> _Batches:
        if self._batches is None:
            raise StateError("the private run has not begun; call trainer.fit first")
        return self._batches


class _Batches:
    """The engine's loader as Lightning sees it: no sampler to replace, and a position that the engine restores."""

    def __init__(self, made: PrivateRun, engine: CappedPrivacyEngine) -> None:
        self._loader, self._engine = made.loader, engine
        self.dataset = made.loader.dataset
        self._length = self.begin()

    def begin(self) -> int:
        """The number of batches of the pass under way, with those that were taken before a resumption."""
        start, end = self._loader.batch_sampler.passes.bounds(len(self._engine.accountant))
        self._length = (end - start) * self._loader.parts
        return self._length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        self.begin()
        return iter(self._loader)

    def state_dict(self) -> dict[str, int]:
        """The position, for Lightning to know that there is one."""
        return {"step": len(self._engine.accountant)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Nothing, as the engine has its run back already; another position is an error."""
        if state != self.state_dict():
            raise StateError(
                f"the checkpoint's loader is at step {state.get('step')}, and its private run at step"
                f" {len(self._engine.accountant)}; restore the checkpoint from a backup"
            )


def _check_trainer(trainer: Any) -> None:
    ranks = trainer.world_size
    strategies = SingleDeviceStrategy if ranks == 1 else CappedDDPStrategy
    if not isinstance(trainer.strategy, (strategies, CappedDDPStrategy)):
        remedy = "accelerator and devices alone" if ranks == 1 else "strategy=CappedDDPStrategy() of this package"
        raise InvalidArgumentError(
            f"strategy {type(trainer.strategy).__name__} is not for private runs on {ranks} ranks; pass {remedy}"
        )
    whole = trainer.limit_train_batches == 1.0 or trainer.fast_dev_run
    wrong = {
        "accumulate_grad_batches": (trainer.accumulate_grad_batches, 1, "pass physical_batch_size= to the engine"),
        "gradient_clip_val": (trainer.gradient_clip_val or None, None, "pass clipping_norm= to the callback"),
        "limit_train_batches": (1.0 if whole else trainer.limit_train_batches, 1.0, "pass passes= to the engine"),
        "overfit_batches": (trainer.overfit_batches, 0.0, "leave it out"),
        "precision": ("scaled" if trainer.precision == "16-mixed" else None, None, "use 'bf16-mixed' or '32-true'"),
    }
    for name, (value, allowed, remedy) in wrong.items():
        if value != allowed:
            raise InvalidArgumentError(f"{name}={getattr(trainer, name)} does not fit a private run; {remedy}")


def _attribute(module: Any, name: str) -> Any:
    found = getattr(module, name, None)
    if not isinstance(found, nn.Module):
        raise InvalidArgumentError(f"{name!r} is no submodule of {type(module).__name__}; pass the name of one")
    return found


def _only_optimizer(optimizers: list[Any]) -> Any:
    if len(optimizers) != 1:
        raise InvalidArgumentError(
            f"configure_optimizers returned {len(optimizers)} optimizers, and a private step is one of one; return one"
        )
    return optimizers[0]


def _only_loader(given: Any) -> Any:
    if not isinstance(given, DataLoader):
        raise InvalidArgumentError(
            f"the training data is of type {type(given).__name__}; pass one DataLoader, whose sampling the engine replaces"
        )
    return given


def _everyones(state: torch.Tensor) -> list[torch.Tensor]:
    """The state of each rank's random numbers, which dropout draws from."""
    if not several_ranks():
        return [state]
    states: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return states


def _own(states: list[torch.Tensor]) -> torch.Tensor:
    rank = torch.distributed.get_rank() if several_ranks() else 0
    return states[rank % len(states)]
