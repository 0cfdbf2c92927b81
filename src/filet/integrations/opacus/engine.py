# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""The engine: Opacus's `PrivacyEngine`, whose loader, optimizer and accountant read one scheme."""

from __future__ import annotations

import warnings
from typing import Any

from filet import _checks
from filet.accounting.terms import Adjacency, AdjacencyName, Analysis, AnalysisName
from filet.errors import InvalidArgumentError, StateError
from filet.planning.calibration import calibrate_noise_multiplier
from filet.sampling.passes import checked_passes
from filet.scheme import CappedPoisson
from filet.showing.record import UNIT, USER_UNIT, record
from filet.showing.statement import statement

from .._frameworks import needed_for

with needed_for("opacus"):
    import torch
    from opacus import PrivacyEngine
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
    from opacus.grad_sample import AbstractGradSampleModule
    from opacus.optimizers import DPOptimizer, get_optimizer_class
    from torch.nn.parallel import DistributedDataParallel

from .._batch_sizes import check_batch_size, physical_batches
from .._checkpoint_files import target
from .._records import records_of
from ..torch import CappedPoissonBatchSampler, CappedPoissonLoader, Users
from .accountant import CappedAccountant
from .checkpoint import ACCOUNTANT, NAME, check_noise, check_run, restore_noise, run_state
from .ghost import GhostOptimizer, MaskedLoss
from .gradients import GradientMonitor
from .layers import owners_without_weights, refuse_layers, teach
from .ledger import AccountedLoader, AccountedOptimizer, StepLedger, guard_optimizer, world_size
from .noise import step_generator
from .sharded import GHOST_FSDP, ShardedOptimizer, check_sharding

_CLIPPING = ("flat", "per_layer")
_GRAD_SAMPLE_MODES = ("hooks", "functorch", "ew", "ghost", GHOST_FSDP)
_GHOST_OPTIMIZERS = {"ghost": GhostOptimizer, GHOST_FSDP: ShardedOptimizer}
_COPIED = (
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
)


class CappedPrivacyEngine(PrivacyEngine):
    """Opacus's `PrivacyEngine` with capped Poisson batches; everything else in a training script stays as it is.

    >>> import warnings; warnings.simplefilter("ignore")
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> dataset = TensorDataset(torch.randn(1000, 3), torch.randint(2, (1000,)))
    >>> scheme = CappedPoisson(dataset_size=1000, sampling_probability=0.05, max_batch_size=64, overflow="reject")
    >>> engine = CappedPrivacyEngine(scheme, adjacency="zero-out", steps=20, key=1)
    >>> model = torch.nn.Linear(3, 2)
    >>> model, optimizer, loader = engine.make_private(
    ...     module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=DataLoader(dataset),
    ...     noise_multiplier=1.0, max_grad_norm=1.0)
    >>> for x, y in loader:
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.cross_entropy(model(x), y).backward()
    ...     optimizer.step()
    >>> from filet import round_up
    >>> tuple(x.shape), round_up(engine.get_epsilon(delta=1e-5), 3)
    ((64, 3), '1.99')

    Guarantees: every batch has `max_batch_size` rows (with several ranks, an equal share). Padding contributes exactly
    zero, whatever the model makes of it; with ghost clipping, a model that makes it infinite is an error. The noisy sum is
    divided by `scheme.expected_batch_size`, a constant. `get_epsilon` is filet's, for exactly these batches. A step on
    anything but one whole batch of the returned loader, beyond `steps`, or while accountant and loader are at different
    steps raises before the model changes. One engine is one run. Noise comes from the key and the step alone. Two examples
    of a batch are checked against plain autograd at steps 0, 1, 2, 4, 8 and so on: a weight that is used outside its
    layer, or rows that the module mixes, raise.

    Arguments:
        scheme: how batches are drawn. Where its size is not public, the data set of `data_loader` may have any number of
            examples: divisor, steps, lengths and checkpoints are those of `dataset_size`, the planned number.
        adjacency: "add-remove", "zero-out" or "replace-one".
        steps: the number of steps of the whole run. Or:
        epochs: passes over the data, by expected draws before the cap; each is then one pass over the loader.
        epoch_steps, passes: with `steps`, the steps in one pass over the loader, or the number of passes, equal up to one
            step. Without either, and without `epochs`, one pass takes all steps.
        key: secret bytes, as for `filet.Sampler`. None draws a fresh key, and warns: only checkpoints that include the
            key can then be resumed.
        secure: draw batches from AES-256 (Opacus's `secure_mode` is about the noise). None: as `filet.Sampler` does.
        physical_batch_size: rows that fit memory; a divisor of `max_batch_size`. Every batch then comes in parts of this
            size, with one `optimizer.step()` each; the last one of a batch adds the noise and is counted.
        analysis: "refined" (the default, the tightest), or, to compare, "swap" (Theorem 2 alone), "note" (Ganesh, 2025)
            or "union" (plain Poisson plus the chance of any overflow).
        secure_mode: Opacus's: noise from the operating system, not from the key.
        check_gradients: False leaves the comparison with plain autograd out; it costs about a step each time.
        users: `filet.integrations.torch.Users`, if the scheme samples users and not examples: `dataset_size` and
            `max_batch_size` then count users, epsilon is for all data of a user, and a user has `examples_per_user` rows
            in a batch. Not with ghost clipping, which never holds the gradient of a user.
        user_gradient: "mean" or "sum" of the gradients of a user's rows, which is clipped once.
    """

    def __init__(
        self,
        scheme: CappedPoisson,
        *,
        adjacency: Adjacency | AdjacencyName,
        steps: int | None = None,
        epochs: float | None = None,
        epoch_steps: int | None = None,
        passes: int | None = None,
        key: bytes | int | None = None,
        secure: bool | None = None,
        physical_batch_size: int | None = None,
        analysis: Analysis | AnalysisName = Analysis.REFINED,
        secure_mode: bool = False,
        check_gradients: bool = True,
        users: Users | None = None,
        user_gradient: str = "mean",
    ) -> None:
        """Make the engine of one run; the arguments are those of the class, above, and not Opacus's."""
        accountant = CappedAccountant(scheme, adjacency=adjacency, analysis=analysis)
        super().__init__(accountant="rdp", secure_mode=secure_mode)
        self.accountant = accountant
        self.scheme = scheme
        self._passes = checked_passes(scheme, steps, epochs, epoch_steps, passes)
        remedy = "pass the number of steps of the whole run"
        self.steps = _checks.integer("steps", self._passes.steps, low=1, remedy=remedy)
        self._sampler_options: dict[str, Any] = {
            "steps": steps,
            "epochs": epochs,
            "epoch_steps": epoch_steps,
            "passes": passes,
            "key": key,
            "secure": secure,
            "physical_batch_size": physical_batch_size,
            "users": users,
        }
        _allow("user_gradient", user_gradient, ("mean", "sum"))
        self.users = users
        self._user_gradient = user_gradient
        if users is not None:
            users.check_scheme(scheme)
        self._loader: AccountedLoader | None = None
        self._optimizer: Any = None
        self._monitor: GradientMonitor | None = None
        self._check_gradients = check_gradients
        self._sharded = False
        if key is None:
            warnings.warn(
                "key=None draws a key that nobody knows: to resume this run, save checkpoints with include_key=True, or"
                " pass key=secrets.token_bytes(32) and keep it",
                stacklevel=2,
            )

    @property
    def physical_batches(self) -> int:
        """The number of parts in which a rank gets every batch."""
        rows = -(-self.scheme.max_batch_size // world_size())
        each = getattr(self.users, "examples_per_user", 1)
        return physical_batches(rows * each, self._sampler_options["physical_batch_size"], each)

    def make_private(self, **arguments: Any) -> Any:
        """Opacus's `make_private`; `data_loader` gives the data set, collate function and workers, not the sampling."""
        accountant = self.accountant
        if not isinstance(accountant, CappedAccountant) or accountant.scheme != self.scheme:
            raise InvalidArgumentError("accountant is not the one of this engine's scheme; leave it as it was made")
        _allow("clipping", arguments.get("clipping", "flat"), _CLIPPING)
        _allow("grad_sample_mode", arguments.get("grad_sample_mode", "hooks"), _GRAD_SAMPLE_MODES)
        _allow("poisson_sampling", arguments.get("poisson_sampling", True), (True,))
        _allow("batch_first", arguments.get("batch_first", True), (True,))
        module = arguments.get("module")
        mode = arguments.get("grad_sample_mode", "hooks")
        if self.users is not None and mode in _GHOST_OPTIMIZERS:
            raise InvalidArgumentError(
                f"grad_sample_mode={mode!r} has norms of single rows, and a user's gradient is of several; use 'hooks'"
            )
        sharded = check_sharding(module, mode, arguments.get("loss_reduction", "mean"))
        if not sharded:
            _refuse_lonely_ranks(module)
        if self._optimizer is not None:
            raise InvalidArgumentError(
                "this engine has a loader already, and a second one would draw the same batches; make a new engine with a"
                " new key for every run"
            )
        self._sharded = sharded
        try:
            return super().make_private(**arguments)
        except BaseException:
            self._forget()  # nothing was handed out: the call may be repeated
            raise

    def _forget(self) -> None:
        self._optimizer = None
        if self._monitor is not None:
            self._monitor.detach()

    def make_private_with_epsilon(
        self, *, target_epsilon: float, target_delta: float, epochs: int | None = None, **arguments: Any
    ) -> Any:
        """`make_private` with the least noise for which the engine's `steps` cost at most `target_epsilon`.

        `epochs` may be left out; if given, it must be the number of the engine's passes over its loader.
        """
        if epochs is not None and epochs != len(self._passes):
            raise InvalidArgumentError(
                f"epochs={_checks.show(epochs)} are not the engine's {len(self._passes)} passes of"
                f" {self._passes.most_steps} steps; leave epochs out, or make the engine with epochs={_checks.show(epochs)}"
            )
        if len(self.accountant):
            raise InvalidArgumentError(
                f"{len(self.accountant)} steps were counted already; make a new engine, or call make_private"
            )
        sigma = calibrate_noise_multiplier(
            self.scheme,
            steps=self.steps,
            epsilon=target_epsilon,
            delta=target_delta,
            adjacency=self.accountant.adjacency,
            analysis=self.accountant.analysis,
        )
        return self.make_private(noise_multiplier=sigma, **arguments)

    def get_epsilon(self, delta: float) -> float:
        """Certified upper bound of epsilon for the steps so far; uncounted steps are a `StateError`."""
        if self._loader is not None:
            if self.accountant is not self._loader.ledger.accountant:
                raise StateError("the accountant was replaced and has not counted this run; leave it as it was made")
            self._loader.ledger.check_accountant()
            self._loader.ledger.check_unaccounted()
        return float(self.accountant.get_epsilon(delta))

    def record(self, delta: float, **options: Any) -> dict[str, Any]:
        """The record of the steps so far, as `filet.record` makes it of a curve, with its other `options`."""
        self.get_epsilon(delta)  # refuses uncounted steps
        unit = UNIT if self.users is None else USER_UNIT
        return record(self.accountant.curve(), delta, **{"unit": unit, **options})

    def statement(self, delta: float) -> str:
        """The privacy statement of the steps so far; it says "user" if the engine samples users."""
        self.get_epsilon(delta)
        return statement(self.accountant.curve(), delta, unit="example" if self.users is None else "user")

    def save_checkpoint(
        self,
        *,
        path: Any,
        module: Any,
        optimizer: Any = None,
        checkpoint_dict: dict[str, Any] | None = None,
        include_key: bool = False,
        **options: Any,
    ) -> None:
        """Save the whole run: model, optimizer, accountant, the loader's position and the state of the noise.

        Arguments:
            path: a file, written whole or not at all; or an open one.
            module: the module that `make_private` returned.
            optimizer: the one that `make_private` returned; None stands for it.
            checkpoint_dict: further entries to save.
            include_key: also save the key of the batches, a secret; the file is then readable by its owner only.
            options: Opacus's: `noise_scheduler`, `grad_clip_scheduler`, `module_state_dict_kwargs`, `torch_save_kwargs`.
        """
        more = {**(checkpoint_dict or {}), **self.state_dict(include_key=include_key)}
        optimizer = self._optimizer if optimizer is None else optimizer
        with target(path, secret=include_key) as file:
            super().save_checkpoint(path=file, module=module, optimizer=optimizer, checkpoint_dict=more, **options)

    def load_checkpoint(
        self,
        *,
        path: Any,
        module: Any,
        optimizer: Any = None,
        noise_scheduler: Any = None,
        grad_clip_scheduler: Any = None,
        module_load_dict_kwargs: dict[str, Any] | None = None,
        torch_load_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Go on with a saved run, on any number of ranks; what does not fit raises `StateError` and changes nothing.

        Call it after `make_private`, with the same arguments as for the run that was saved. The rest of the run has the
        batches and the noise that it would have had without the interruption.
        """
        _, own = self._made()
        checkpoint = torch.load(path, **{"weights_only": False, **(torch_load_kwargs or {})})
        self._checked(checkpoint)
        module.load_state_dict(checkpoint["module_state_dict"], **(module_load_dict_kwargs or {}))
        (own if optimizer is None else optimizer).load_state_dict(checkpoint["optimizer_state_dict"])
        for name, scheduler in (("noise_scheduler", noise_scheduler), ("grad_clip_scheduler", grad_clip_scheduler)):
            if scheduler is not None and f"{name}_state_dict" in checkpoint:
                scheduler.load_state_dict(checkpoint[f"{name}_state_dict"])
        self.load_state_dict(checkpoint)
        return checkpoint

    def state_dict(self, *, include_key: bool = False) -> dict[str, Any]:
        """Accountant, loader and noise: all but the model and its optimizer, for frameworks that save these themselves."""
        loader, own = self._made()
        run = run_state(
            loader, own.generator, secure_mode=self.secure_mode, sharded=self._sharded, include_key=include_key
        )
        return {NAME: run, ACCOUNTANT: self.accountant.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        """Go on with what `state_dict` returned; what does not fit raises `StateError` and changes nothing."""
        loader, own = self._made()
        run = self._checked(state)
        self.accountant.load_state_dict(state[ACCOUNTANT])
        loader.restore(run["loader"])
        restore_noise(run, loader, own.generator)

    def _checked(self, state: Any) -> dict[str, Any]:
        loader, own = self._made()
        run = check_run(state, self.accountant, loader)
        check_noise(run, loader, own.generator, secure_mode=self.secure_mode, sharded=self._sharded)
        return run

    def _made(self) -> tuple[AccountedLoader, Any]:
        if self._loader is None or self._optimizer is None:
            raise StateError("the engine has no loader yet; call make_private first")
        return self._loader, self._optimizer

    def _prepare_model(self, module: Any, **options: Any) -> Any:
        mode = options.get("grad_sample_mode", "hooks")
        plain = module
        if isinstance(plain, AbstractGradSampleModule):
            (plain,) = plain.children()
        if isinstance(plain, (DifferentiallyPrivateDistributedDataParallel, DistributedDataParallel)):
            plain = plain.module
        refuse_layers(plain, mode)
        with owners_without_weights(plain) as owners:
            made = super()._prepare_model(module, **options)
        active = self._check_gradients and not self._sharded
        self._monitor = GradientMonitor(made, plain, mode, options.get("loss_reduction", "mean"), active=active)
        teach(made, owners, self._monitor.names, mode)
        return made

    def _noise(self, step: int, device: Any) -> torch.Generator:
        loader, _ = self._made()
        return step_generator(loader.batch_sampler.sampler, step, device)

    def _prepare_data_loader(self, data_loader: Any, **_: Any) -> Any:
        if isinstance(data_loader, CappedPoissonLoader):
            raise InvalidArgumentError(
                "data_loader draws capped batches already; pass a plain DataLoader, whose sampling the engine replaces"
            )
        check_batch_size(data_loader, self.scheme)
        options = {name: getattr(data_loader, name) for name in _COPIED if getattr(data_loader, name, None)}
        records = records_of(self.scheme, data_loader.dataset)
        batch_sampler = CappedPoissonBatchSampler(self.scheme, **self._sampler_options, records=records)
        made = AccountedLoader(data_loader.dataset, batch_sampler, data_loader.collate_fn, **options)
        made.ledger = StepLedger(self.accountant, self.steps, batch_sampler.parts)
        made.ledger.rows_each = batch_sampler.rows_each
        made.ledger.averages = self._user_gradient == "mean"
        self._loader = made
        self.dataset = made.dataset
        return made

    def _prepare_optimizer(
        self,
        *,
        optimizer: Any,
        clipping: str = "flat",
        distributed: bool = False,
        grad_sample_mode: str = "hooks",
        noise_generator: Any = None,
        **options: Any,
    ) -> Any:
        if distributed or grad_sample_mode in _GHOST_OPTIMIZERS:
            _allow("clipping with several ranks or ghost clipping", clipping, ("flat",))
        kind = get_optimizer_class(clipping=clipping, distributed=distributed, grad_sample_mode=grad_sample_mode)
        ledger = self._loader.ledger if self._loader else None
        accounted = _GHOST_OPTIMIZERS.get(grad_sample_mode, AccountedOptimizer)
        masked = type(f"Capped{kind.__name__}", (accounted, kind), {"ledger": ledger})
        if isinstance(optimizer, DPOptimizer):
            optimizer = optimizer.original_optimizer
        # Opacus would take it from the loader's length.
        options["expected_batch_size"] = self.scheme.expected_batch_size / (world_size() if distributed else 1)
        self._optimizer = masked(
            optimizer=optimizer,
            generator=self.secure_rng if self.secure_mode else noise_generator,
            secure_mode=self.secure_mode,
            **options,
        )
        if noise_generator is None and not self.secure_mode:
            self._optimizer.noise = self._noise
        if self._monitor is not None:
            self._monitor.attach(ledger)
        guard_optimizer(self._optimizer)
        return self._optimizer

    def _prepare_criterion(
        self, *, module: Any, optimizer: Any, criterion: Any, loss_reduction: str = "mean", **_: Any
    ) -> Any:
        return MaskedLoss(module, optimizer.ledger, optimizer, criterion, loss_reduction)


def _refuse_lonely_ranks(module: Any) -> None:
    """Raise if the gradients of the ranks are not added up: each would train a model of its own, accounted as one."""
    if world_size() == 1:
        return
    if not isinstance(module, (DifferentiallyPrivateDistributedDataParallel, DistributedDataParallel)):
        raise InvalidArgumentError(
            f"module of type {type(module).__name__} is not distributed, but there are"
            f" {world_size()} ranks; wrap it in"
            " opacus.distributed.DifferentiallyPrivateDistributedDataParallel"
        )


def _allow(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        choices = " or ".join(repr(choice) for choice in allowed)
        raise InvalidArgumentError(f"{name}={_checks.show(value)} is not supported with capped batches; use {choices}")
