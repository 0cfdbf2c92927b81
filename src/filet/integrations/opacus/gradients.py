# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call", allow-subclassing-any
"""Check of per-example gradients: two rows alone by autograd against Opacus's for the batch."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from filet.errors import FiletError, StateError

from .._frameworks import needed_for

with needed_for("opacus"):
    import torch
    from torch import nn

from .layers import remedy
from .rows import (
    SWITCH,
    Call,
    FixedRandomness,
    by_row,
    changed,
    chosen_rows,
    eager,
    leaves,
    norm,
    only_rows,
    row_of,
    row_twice,
)

# Largest difference of a parameter's gradient, relative to that gradient and to the gradient of all parameters.
# Both are far above rounding. A smaller error moves a clipped sum by at most this share of the clipping norm.
_SINGLE = (1e-2, 1e-4)
_SINGLE_NORMS = (1e-2, 5e-3)  # norms from products of activations lose half of the digits
_HALF = (1e-1, 1e-1)


class RowGradients(NamedTuple):
    """One row of a batch: its outputs, and its gradient (or the gradient's norm) for every parameter."""

    outputs: list[torch.Tensor]
    gradients: dict[str, Any]


class GradientMonitor:
    """Monitor of a private module: its trainable parameters stay the same, and its gradients are checked.

    Guarantees: at steps 0, 1, 2, 4, 8 and so on, and at the first of a resumed run, two examples of
    the batch are run alone. A difference of their outputs or gradients from those of the batch raises
    before the model changes. Dropout and other random numbers are constants while this is done.
    """

    def __init__(self, made: Any, module: nn.Module, mode: str, reduction: str, *, active: bool) -> None:
        self.made = made
        self.module = module
        self.mode = mode
        self.mean = reduction == "mean"
        self.ghost = "ghost" in mode
        self.active = active
        self.sharded = mode == "ghost_fsdp"  # Opacus keeps norms elsewhere
        self.names = {id(p): name for name, p in module.named_parameters()}
        self.known = [(name, p, p.requires_grad) for name, p in module.named_parameters()]
        self.trainable = {name: p for name, p, trains in self.known if trains}
        self.rows = 0  # of the call of the module that is under way
        self._pending = True
        self._calls: list[Call] = []
        self._recording = True
        self._ledger: Any = None
        self._handles: list[Any] = []

    def __getstate__(self) -> dict[str, Any]:
        """The state of a copied or pickled module, whose calls nobody monitors."""
        return {**vars(self), "_ledger": None, "_calls": [], "_handles": []}

    def attach(self, ledger: Any) -> None:
        """Monitor the module's calls for the batches of this ledger."""
        self._ledger = ledger
        ledger.monitor = self
        self._handles = [
            self.module.register_forward_pre_hook(self._enter, with_kwargs=True),
            self.module.register_forward_hook(self._leave, with_kwargs=True),
        ]
        for layer in self.module.modules():
            if type(layer) is nn.Embedding:
                self._handles.append(layer.register_forward_pre_hook(self._ids_for_all_rows))

    def detach(self) -> None:
        """Leave the module as it was."""
        for handle in self._handles:
            handle.remove()

    def version(self) -> int:
        """A number that grows with every change of a trainable parameter."""
        return sum(p._version for p in self.trainable.values())

    def forget_calls(self) -> None:
        """Drop the calls for an earlier batch."""
        self._calls = []

    def has_gradients(self) -> bool:
        """True after a backward pass whose gradients were not cleared."""
        return any(p.grad is not None for p in self.trainable.values())

    def same_parameters(self, params: Any) -> None:
        """Raise if a parameter was frozen, unfrozen or added since `make_private`."""
        for name, p, trained in self.known:
            if p.requires_grad != trained:
                now = "trained" if p.requires_grad else "frozen"
                raise StateError(
                    f"parameter {name!r} is {now} now and was not at make_private, so that"
                    f" grad_sample_mode={self.mode!r} would clip without it; set requires_grad before"
                    " make_private, and to stop training it later set its learning rate to 0"
                )
        added = [p for p in params if id(p) not in self.names]
        if added:
            raise StateError(
                f"the optimizer has a parameter of shape {tuple(added[0].shape)} that the module did not"
                " have at make_private; add parameter groups before make_private"
            )

    def require(self, p: Any, rows: int, found: Any, what: str) -> None:
        """Raise unless Opacus has found one gradient (or norm) of the parameter for each row."""
        name = self.names[id(p)]
        start = f"parameter {self.names[id(p)]!r}: grad_sample_mode={self.mode!r}"
        if found is None and getattr(p, "_forward_counter", 0) > 0:
            raise StateError(
                f"{start} saw its layer run forward more often than backward, as gradient checkpointing"
                " does; turn that off, and run the module once for every backward()"
            )
        if found is None:
            raise StateError(
                f"{start} found no {what} of examples: it is not used, or outside the forward of the"
                f" layer that owns it; use it there only, or freeze {name!r}"
            )
        if found.shape[0] != rows:
            raise StateError(
                f"{start} found gradients of {found.shape[0]} rows, which do not belong to a batch of"
                f" {rows}; pass whole batches of the loader that make_private returned, and give the"
                " layer one row for each example"
            )

    def _due(self, batch: Any) -> bool:
        step, part, _ = batch
        doubled = step & (step - 1) == 0
        return bool(self.active and part == 0 and (self._pending or doubled))

    def _enter(self, module: Any, args: Any, kwargs: Any) -> None:
        self.rows = next((t.shape[0] for t in leaves((args, kwargs)) if t.ndim), 0)

    def _leave(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        waiting = self._ledger.waiting if self._ledger is not None else []
        if not (self._recording and module.training and torch.is_grad_enabled()):
            return
        if waiting and self._due(waiting[-1]):
            self._calls.append(Call(args, kwargs, output, self._device(), first_only=self.ghost))

    def _ids_for_all_rows(self, layer: nn.Embedding, args: Any) -> Any:
        """Ids that all rows share, once for every row: Opacus needs each row's own gradient."""
        hooked = getattr(self.made, "hooks_enabled", False) and layer.weight.requires_grad
        if not (args and hooked and layer.training and torch.is_grad_enabled()):
            return None
        ids = args[0]
        if ids.ndim == 2 and ids.shape[0] == 1 and self.rows > 1:
            return (ids.expand(self.rows, -1).contiguous(), *args[1:])
        return None

    def check_loss(self, losses: torch.Tensor, mask: torch.Tensor) -> None:
        """Raise if a loss reaches parameters past the module's outputs, or other rows' outputs."""
        waiting = self._ledger.waiting
        if not (waiting and self._due(waiting[-1])):
            return
        self._refuse_past_outputs(losses)
        self.made.disable_hooks()
        try:
            for row in chosen_rows(mask):
                self._refuse_mixed_loss(losses[row], row, mask)
        finally:
            self.made.enable_hooks()
            for call in self._calls:  # of single rows; the backward pass that follows has all
                call.gradients.clear()

    def _refuse_mixed_loss(self, loss: torch.Tensor, row: int, mask: torch.Tensor) -> None:
        """Raise if the loss of a row depends on the outputs of another row that is no padding."""
        edges = [edge for call in self._calls for edge in call.edges.values()]
        others = [other for other in mask.nonzero().flatten().tolist() if other != row]
        for gradient in torch.autograd.grad(loss, edges, retain_graph=True, allow_unused=True):
            if gradient is None or not (gradient.ndim and others):
                continue
            if bool((by_row(gradient, len(mask))[others] != 0).any()):
                raise StateError(
                    "the loss of an example depends on other rows of its batch, so that clipping does not"
                    " bound what one example changes; use a loss of each row alone, no contrastive one"
                )

    def _refuse_past_outputs(self, losses: torch.Tensor) -> None:
        """Raise if a parameter enters the losses above the module's outputs, as a penalty does."""
        stop = {edge.node for call in self._calls for edge in call.edges.values()}
        nodes, seen = [losses.grad_fn], set(stop)
        while nodes:
            node = nodes.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            name = self.names.get(id(getattr(node, "variable", None)))
            if name is not None and name in self.trainable:
                raise StateError(
                    f"parameter {name!r} is in the loss past the module's outputs, which bypasses the"
                    " clipping, as a penalty on the weights does; use the optimizer's weight_decay, and"
                    " compute the loss from what the module returns"
                )
            nodes += [following for following, _ in node.next_functions]

    def check(self, batch: Any) -> None:
        """Compare the gradients of two examples alone with Opacus's for them in the batch."""
        calls, self._calls = [call for call in self._calls if call.gradients], []
        if not self._due(batch):
            return
        rows, chosen = len(batch.mask), chosen_rows(batch.mask)
        self._pending = True
        if not chosen:  # all padding: the next batch will do
            return
        if not calls:
            raise StateError(
                "the module was not called as a whole for this batch, so that its gradients cannot be"
                f" checked; call the module that make_private returned, or {SWITCH}"
            )
        with self._apart() as again:
            try:
                together = self._in_batch(calls, chosen, rows)
                for row, found in zip(chosen, together, strict=True):
                    again()
                    self._compare(found, self._alone(calls, row, rows), self._tolerances(calls))
            except (FiletError, Warning):
                raise
            except Exception as error:
                says = " ".join(str(error).split())[:200]
                raise StateError(
                    "the gradients of two examples cannot be checked, as the module does not run on"
                    f" one alone ({type(error).__name__}: {says}); let it, or {SWITCH}"
                ) from error
        self._pending = len(chosen) < min(2, rows)

    def _in_batch(self, calls: list[Call], chosen: list[int], rows: int) -> list[RowGradients]:
        """Outputs and gradients of some rows of the batch, as Opacus computes them."""
        module = self.module if hasattr(self.made, "hooks_enabled") else self.made  # ew: the wrapper
        outputs, pairs = [], []
        for call in calls:
            made = self._run(module, call, lambda t: t.detach().clone().requires_grad_(t.requires_grad))
            for number, gradient in call.gradients.items():
                outputs.append(made[number].detach())
                pairs.append((made[number], only_rows(gradient, chosen, rows)))
        torch.autograd.backward([one for one, _ in pairs], [one for _, one in pairs])
        found = []
        for row in chosen:
            values = {name: self._engines(p, row, rows) for name, p in self.trainable.items()}
            found.append(RowGradients([row_of(one, row, rows) for one in outputs], values))
        return found

    def _engines(self, p: Any, row: int, rows: int) -> Any:
        if self.ghost:
            found = vars(p).get("_norm_sample")
            self.require(p, rows, found, "norms")
            return found[row]
        found = vars(p).get("grad_sample")
        self.require(p, rows, found, "gradients")
        return found[row].clone()

    def _alone(self, calls: list[Call], row: int, rows: int) -> RowGradients:
        """One row by plain autograd; twice, as some modules squeeze a batch of one away."""
        hooked = hasattr(self.made, "hooks_enabled")
        if hooked:  # until _apart ends, or the next row
            self.made.disable_hooks()
        outputs, pairs = [], []
        for call in calls:
            made = self._run(self.module, call, lambda t: row_twice(t, row, rows))
            for number, gradient in call.gradients.items():
                outputs.append(row_of(made[number].detach(), 0, 2))
                pairs.append((made[number], self._cotangent(gradient, made[number], row, rows)))
        for p in self.module.parameters():
            p.grad = None
        torch.autograd.backward([one for one, _ in pairs], [one for _, one in pairs])
        return RowGradients(outputs, {name: p.grad for name, p in self.trainable.items()})

    def _cotangent(self, gradient: torch.Tensor, output: torch.Tensor, row: int, rows: int) -> torch.Tensor:
        """The gradient of the row's own loss in the output of the row run twice."""
        if gradient.ndim == 0:  # a loss that the module has reduced over the rows itself
            return gradient if self.mean else gradient / 2
        made = torch.zeros_like(output, memory_format=torch.contiguous_format)
        by_row(made, 2)[0] = row_of(gradient, row, rows) * (rows if self.mean else 1)
        return made

    def _run(self, module: Any, call: Call, change: Any) -> list[torch.Tensor]:
        args, kwargs = changed(call.args, change), changed(call.kwargs, change)
        enabled, dtype = call.autocast
        with torch.autocast(self._device(), dtype=dtype, enabled=enabled):
            return leaves(module(*args, **kwargs))

    def _tolerances(self, calls: list[Call]) -> tuple[float, float]:
        kinds = {p.dtype for p in self.trainable.values()} | {call.autocast[1] for call in calls if call.autocast[0]}
        if kinds & {torch.float16, torch.bfloat16}:
            return _HALF
        return _SINGLE_NORMS if self.ghost else _SINGLE

    def _compare(self, together: RowGradients, alone: RowGradients, tolerances: tuple[float, float]) -> None:
        relative, share = tolerances
        for one, other in zip(together.outputs, alone.outputs, strict=True):
            if one.ndim and norm(one - other) > relative * norm(other) + 1e-6:
                raise StateError(
                    f"the module mixes the rows of a batch: an example's output moves by"
                    f" {norm(one - other):.3g} from {norm(other):.3g} when it is alone; take batch"
                    f" statistics and attention over the batch out, or {SWITCH}"
                )
        sizes = {name: 0.0 if g is None else norm(g) for name, g in alone.gradients.items()}
        whole = float(np.linalg.norm(list(sizes.values())))
        for name, size in sizes.items():
            engines, gradient = together.gradients[name], alone.gradients[name]
            off = _difference(engines, gradient, size, norms=self.ghost)
            if not off <= relative * size + share * whole:  # NaN is refused
                found = float(engines) if self.ghost else norm(engines)
                raise StateError(
                    f"parameter {name!r}: an example's gradient has norm {size:.4g} by plain autograd,"
                    f" and {found:.4g} in grad_sample_mode={self.mode!r} (they differ by {off:.3g}): it is"
                    " used outside the forward of the layer that owns it, or the rows of the batch are"
                    f" mixed; use it through its layer only, or {remedy(self.mode)}"
                )

    @contextlib.contextmanager
    def _apart(self) -> Iterator[Any]:
        """Keep gradients, buffers and random states; `again()` repeats the random numbers."""
        kept = [(p, p.grad, dict(vars(p))) for p in self.module.parameters()]
        buffers = [(b, b.detach().clone()) for b in self.module.buffers()]
        chance = (random.getstate(), np.random.get_state())  # noqa: NPY002, for models that use it
        devices = sorted({p.device.index for p, *_ in kept if p.device.type == "cuda"})

        def again() -> None:
            random.setstate(chance[0])
            np.random.set_state(chance[1])  # noqa: NPY002

        for p, *_ in kept:
            p.grad = None
            if "grad_sample" in vars(p):
                vars(p)["grad_sample"] = None
            vars(p).pop("_norm_sample", None)
        self._recording = False
        try:
            with torch.random.fork_rng(devices), torch.enable_grad(), eager(), FixedRandomness():
                yield again
        finally:
            self._recording = True
            if hasattr(self.made, "hooks_enabled"):
                self.made.enable_hooks()
            again()
            for p, gradient, attributes in kept:
                p.grad = gradient
                vars(p).clear()
                vars(p).update(attributes)
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)

    def _device(self) -> str:
        return next(self.module.parameters()).device.type


def _difference(engines: Any, gradient: torch.Tensor | None, size: float, *, norms: bool) -> float:
    if norms:
        return abs(float(engines) - size)
    return norm(engines) if gradient is None else norm(engines.reshape(gradient.shape) - gradient)
