# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call", allow-subclassing-any
"""Single rows of a module's inputs and outputs, and constants for its random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from filet.errors import StateError

from .._frameworks import needed_for

with needed_for("opacus"):
    import torch
    from torch.autograd.graph import get_gradient_edge
    from torch.utils._python_dispatch import TorchDispatchMode

SWITCH = "pass check_gradients=False to the engine if you have proven that each example is clipped"


class Call:
    """A call of the module: its inputs, outputs, and the gradients of the loss in the outputs."""

    def __init__(self, args: Any, kwargs: Any, output: Any, device: str, *, first_only: bool) -> None:
        self.args, self.kwargs = args, kwargs
        self.gradients: dict[int, torch.Tensor] = {}
        self.edges: dict[int, Any] = {}
        self.autocast = (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        self._first_only = first_only
        for number, tensor in enumerate(leaves(output)):
            if tensor.grad_fn is not None:
                self.edges[number] = get_gradient_edge(tensor)
                tensor.register_hook(lambda gradient, number=number: self._receive(number, gradient))

    def _receive(self, number: int, gradient: torch.Tensor) -> None:
        before = self.gradients.get(number)
        if before is None:
            self.gradients[number] = gradient.detach().clone()
        elif not self._first_only:
            self.gradients[number] = before + gradient.detach()


class FixedRandomness(TorchDispatchMode):
    """Constants for random numbers; dropout keeps everything. A row is the same in any batch."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        names = [argument.name for argument in func._schema.arguments]
        args, kwargs = list(args), dict(kwargs or {})
        attention = "dropout_p" in names
        if attention:
            _set_argument(names, args, kwargs, "dropout_p", 0.0)
        made = func(*args, **kwargs)
        if attention or torch.Tag.nondeterministic_seeded not in func.tags:
            return made
        if func.overloadpacket is torch.ops.aten.native_dropout:
            kept = torch.ones_like(made[1])
            return args[0] / (1 - args[1]) if args[1] < 1 else made[0] * 0, kept
        return _constant(func, made) if isinstance(made, torch.Tensor) else made


def _set_argument(names: list[str], args: list[Any], kwargs: dict[str, Any], name: str, value: Any) -> None:
    """Replace an argument of a call, by position or by name."""
    place = names.index(name)
    if place < len(args):
        args[place] = value
    else:
        kwargs[name] = value


def _constant(func: Any, made: torch.Tensor) -> torch.Tensor:
    """The random tensor of an operation, filled with one number."""
    if "bernoulli" in func.__name__:
        return made.fill_(1)
    return made.fill_(0.5 if made.is_floating_point() else 0)


def eager() -> Any:
    """Compiled modules run as they were written: the mode above would compile them again."""
    return torch.compiler.set_stance("force_eager")


def leaves(tree: Any) -> list[torch.Tensor]:
    """The tensors in nested mappings, lists and tuples, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in leaves(part)]
    return []


def changed(tree: Any, change: Any) -> Any:
    """The same nested structure with every tensor changed."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {name: changed(part, change) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        parts = [changed(part, change) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree


def chosen_rows(mask: torch.Tensor) -> list[int]:
    real = mask.nonzero().flatten().tolist()
    return sorted({real[0], real[-1]}) if real else []


def by_row(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """A view with one entry for each row of the batch; several in a row of a flattened output."""
    if tensor.shape[0] % rows:
        raise StateError(
            f"the module returns a tensor of shape {tuple(tensor.shape)}, which has not one part for each"
            f" of {rows} rows; return one, or {SWITCH}"
        )
    return tensor.view(rows, tensor.shape[0] // rows, *tensor.shape[1:])


def row_of(tensor: torch.Tensor, row: int, rows: int) -> torch.Tensor:
    return by_row(tensor.contiguous(), rows)[row] if tensor.ndim else tensor


def only_rows(gradient: torch.Tensor, chosen: list[int], rows: int) -> torch.Tensor:
    if gradient.ndim == 0:
        return gradient
    made = torch.zeros_like(gradient, memory_format=torch.contiguous_format)
    by_row(made, rows)[chosen] = by_row(gradient.contiguous(), rows)[chosen]
    return made


def row_twice(tensor: torch.Tensor, row: int, rows: int) -> torch.Tensor:
    own = tensor.ndim > 0 and tensor.shape[0] == rows
    made = tensor.detach()[[row, row]] if own else tensor.detach().clone()
    return made.requires_grad_(tensor.requires_grad)


def norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.detach().to(torch.float64)))
