# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Opacus with capped Poisson batches: an engine whose loader, optimizer and accountant read one scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from filet import _checks
from filet.accounting.accountant import Accountant, account
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, Analysis
from filet.errors import FiletError, InvalidArgumentError, MissingExtraError, StateError
from filet.planning.calibration import calibrate_noise_multiplier
from filet.scheme import CappedPoisson

try:
    import torch
    from opacus import PrivacyEngine
    from opacus.accountants import IAccountant
    from opacus.optimizers import DPOptimizer, get_optimizer_class
except ImportError as error:
    raise MissingExtraError("Opacus is not installed; run: pip install 'filet[opacus]'") from error

from .torch import CappedPoissonBatchSampler, CappedPoissonLoader

_CLIPPING = ("flat", "per_layer")
_GRAD_SAMPLE_MODES = ("hooks", "functorch", "ew")
_COPIED = (
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
)


class CappedAccountant(IAccountant):
    """filet as an Opacus accountant: counts optimizer steps, and knows how their batches were drawn.

    >>> scheme = CappedPoisson(dataset_size=60_000, sampling_probability=256 / 60_000, max_batch_size=300)
    >>> accountant = CappedAccountant(scheme, adjacency="zero-out")
    >>> for _ in range(100):
    ...     accountant.step(noise_multiplier=1.0, sample_rate=scheme.sampling_probability)
    >>> len(accountant), round(accountant.get_epsilon(delta=1e-5), 3)
    (100, 0.293)

    Arguments:
        scheme: how batches are drawn.
        adjacency: "add-remove", "zero-out" or "replace-one".
        analysis: "refined", or, to compare, "note" or "union".
    """

    def __init__(
        self, scheme: CappedPoisson, *, adjacency: Adjacency | str, analysis: Analysis | str = Analysis.REFINED
    ) -> None:
        super().__init__()
        account(scheme, noise_multiplier=1.0, steps=0, adjacency=adjacency, analysis=analysis)  # checks all three
        self.scheme = scheme
        self.adjacency = _checks.choice("adjacency", adjacency, Adjacency)
        self.analysis = _checks.choice("analysis", analysis, Analysis)

    @classmethod
    def mechanism(cls) -> str:
        return "filet"

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step with this noise; `sample_rate` must be the scheme's sampling probability."""
        entry = (_checks.noise_multiplier(noise_multiplier), sample_rate, 1)
        self._check(entry)
        if self.history and self.history[-1][0] == entry[0]:
            entry = (*entry[:2], self.history.pop()[2] + 1)
        self.history.append(entry)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """The hook that counts a step; Opacus's guess of the rate, from the loader's length, is not used."""

        def count(optimizer: DPOptimizer) -> None:
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=self.scheme.sampling_probability)

        return count

    def curve(self) -> PrivacyCurve:
        """The privacy of all steps so far."""
        total = Accountant(self.adjacency)
        for entry in self.history:
            self._check(entry)
            total.compose(self.scheme, entry[0], entry[2], analysis=self.analysis)
        return total.curve()

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Certified upper bound of epsilon for the steps so far."""
        return float(self.curve().epsilon(delta))

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    def state_dict(self, destination: Any = None) -> Any:
        """Opacus's state, with the scheme, the adjacency and the analysis."""
        return _with(super().state_dict(destination), self._identity())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a saved state; one of another scheme, adjacency or analysis raises `StateError`."""
        try:
            for name, value in self._identity().items():
                if state_dict[name] != value:
                    raise StateError(
                        f"the state has {name}={state_dict[name]}, not {value}; load it into an accountant made alike"
                    )
            history = [
                (_checks.noise_multiplier(s), rate, _checks.step_count(n)) for s, rate, n in state_dict["history"]
            ]
            for entry in history:
                self._check(entry)
            super().load_state_dict({**state_dict, "history": history})
        except StateError:
            raise
        except (KeyError, TypeError, ValueError, FiletError):
            raise StateError("the state is damaged or not filet's; pass what state_dict() returned") from None

    def _identity(self) -> dict[str, str]:
        return {"scheme": repr(self.scheme), "adjacency": self.adjacency.value, "analysis": self.analysis.value}

    def _check(self, entry: tuple[float, float, int]) -> None:
        if entry[1] != self.scheme.sampling_probability:
            raise InvalidArgumentError(
                f"sample_rate={_checks.show(entry[1])} is not the scheme's"
                f" sampling_probability={self.scheme.sampling_probability}; use the loader that make_private returned"
            )


def _with(destination: Any, more: dict[str, str]) -> Any:
    destination.update(more)
    return destination


class _Turn:
    """Hands each batch's mask from the loader to the optimizer: one batch, one step."""

    def __init__(self) -> None:
        self.masks: list[torch.Tensor] = []

    def take(self) -> torch.Tensor:
        masks, self.masks = self.masks, []
        if len(masks) != 1:
            raise StateError(
                f"{len(masks)} batches were drawn from filet's loader since the last step, not 1; call optimizer.step()"
                " once for every batch of the loader that make_private returned"
            )
        return masks[0]


class _TurnLoader(CappedPoissonLoader):
    """Yields the data alone, so that the training loop stays as it was; the optimizer gets the mask."""

    turn: _Turn

    def _counted(self, batches: Iterator[Any], number: int) -> Iterator[Any]:
        self.turn.masks = []
        for data, mask in super()._counted(batches, number):
            self.turn.masks.append(mask)
            yield data

    @property
    def mask(self) -> torch.Tensor:
        """The mask of the batch that was handed out last and not stepped yet."""
        if not self.turn.masks:
            raise StateError("no batch is waiting for its step; ask for the mask between a batch and its step")
        return self.turn.masks[-1]


class _ZeroPadding:
    """Makes the rows of per-example gradients that belong to padding exactly zero, before anything reads them."""

    turn: _Turn
    params: Any

    def clip_and_accumulate(self) -> None:
        mask = self.turn.take()
        for p in self.params:
            rows = self._get_flat_grad_sample(p)  # type: ignore[attr-defined]
            if rows.shape[0] != mask.shape[0]:
                raise StateError(
                    f"gradients of {rows.shape[0]} rows do not belong to a batch of {mask.shape[0]}; train on whole"
                    " batches of the loader that make_private returned"
                )
            keep = mask.to(rows.device).reshape(-1, *[1] * (rows.ndim - 1))
            p.grad_sample = torch.where(keep, rows, torch.zeros((), dtype=rows.dtype, device=rows.device))
        super().clip_and_accumulate()  # type: ignore[misc]


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
    >>> tuple(x.shape), round(engine.get_epsilon(delta=1e-5), 2)
    ((64, 3), 1.98)

    Guarantees: every batch has `max_batch_size` rows (with several ranks, an equal share). Padding contributes exactly
    zero, whatever the model makes of it. The noisy sum is divided by `scheme.expected_batch_size`, a constant.
    `get_epsilon` is filet's, for exactly these batches. A step on anything but one whole batch of the returned loader
    raises before the model changes.

    Arguments:
        scheme: how batches are drawn.
        adjacency: "add-remove", "zero-out" or "replace-one".
        steps: the number of steps of the whole run.
        epoch_steps: batches in one pass over the loader; all of them if None.
        key: secret bytes, as for `filet.Sampler`. None draws a fresh key.
        secure: draw batches from AES-256 (Opacus's `secure_mode` is about the noise).
        analysis: "refined", or, to compare, "note" or "union".
        secure_mode: Opacus's.
    """

    def __init__(
        self,
        scheme: CappedPoisson,
        *,
        adjacency: Adjacency | str,
        steps: int,
        epoch_steps: int | None = None,
        key: bytes | int | None = None,
        secure: bool = True,
        analysis: Analysis | str = Analysis.REFINED,
        secure_mode: bool = False,
    ) -> None:
        accountant = CappedAccountant(scheme, adjacency=adjacency, analysis=analysis)
        super().__init__(accountant="rdp", secure_mode=secure_mode)
        self.accountant = accountant
        self.scheme = scheme
        self.steps = _checks.step_count(steps)
        self._draw: dict[str, Any] = {"epoch_steps": epoch_steps, "key": key, "secure": secure}
        self._turn = _Turn()
        self._used = False

    def make_private(self, **arguments: Any) -> Any:
        """Opacus's `make_private`; `data_loader` gives the data set, collate function and workers, not the sampling."""
        accountant = self.accountant
        if not isinstance(accountant, CappedAccountant) or accountant.scheme != self.scheme:
            raise InvalidArgumentError("accountant is not the one of this engine's scheme; leave it as it was made")
        _allow("clipping", arguments.get("clipping", "flat"), _CLIPPING)
        _allow("grad_sample_mode", arguments.get("grad_sample_mode", "hooks"), _GRAD_SAMPLE_MODES)
        _allow("poisson_sampling", arguments.get("poisson_sampling", True), (True,))
        _allow("batch_first", arguments.get("batch_first", True), (True,))
        if self._used and self._draw["key"] is not None:
            raise InvalidArgumentError(
                "this engine's key has a loader already, and a second one would draw the same batches; make a new engine"
                " with a new key"
            )
        made = super().make_private(**arguments)
        self._used = True
        return made

    def make_private_with_epsilon(
        self, *, target_epsilon: float, target_delta: float, epochs: int | None = None, **arguments: Any
    ) -> Any:
        """`make_private` with the least noise for which the engine's `steps` cost at most `target_epsilon`.

        `epochs` may be left out; if given, it must say the same as `steps`: `epochs * epoch_steps`.
        """
        if epochs is not None and epochs * (self._draw["epoch_steps"] or self.steps) != self.steps:
            raise InvalidArgumentError(
                f"epochs={_checks.show(epochs)} of epoch_steps={self._draw['epoch_steps']} are not the engine's"
                f" steps={self.steps}; leave epochs out, or make them agree"
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

    def _prepare_data_loader(self, data_loader: Any, **_: Any) -> Any:
        self._turn = _Turn()
        if isinstance(data_loader, CappedPoissonLoader):
            raise InvalidArgumentError(
                "data_loader draws capped batches already; pass a plain DataLoader, whose sampling the engine replaces"
            )
        options = {name: getattr(data_loader, name) for name in _COPIED if getattr(data_loader, name, None)}
        batch_sampler = CappedPoissonBatchSampler(self.scheme, self.steps, **self._draw)
        made = _TurnLoader(data_loader.dataset, batch_sampler, data_loader.collate_fn, **options)
        made.turn = self._turn
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
        if distributed:
            _allow("clipping with several ranks", clipping, ("flat",))
        kind = get_optimizer_class(clipping=clipping, distributed=distributed, grad_sample_mode=grad_sample_mode)
        masked = type(f"Capped{kind.__name__}", (_ZeroPadding, kind), {"turn": self._turn})
        if isinstance(optimizer, DPOptimizer):
            optimizer = optimizer.original_optimizer
        world_size = torch.distributed.get_world_size() if distributed else 1
        options["expected_batch_size"] = self.scheme.expected_batch_size / world_size  # Opacus's is the loader's guess
        return masked(
            optimizer=optimizer,
            generator=self.secure_rng if self.secure_mode else noise_generator,
            secure_mode=self.secure_mode,
            **options,
        )


def _allow(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        choices = " or ".join(repr(choice) for choice in allowed)
        raise InvalidArgumentError(f"{name}={_checks.show(value)} is not supported with capped batches; use {choices}")
