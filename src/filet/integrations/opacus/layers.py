# mypy: disable-error-code="import-untyped, import-not-found"
"""Layers that Opacus gets wrong or gives up on: made right, or refused by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from filet.errors import FiletError, InvalidArgumentError, StateError

from .._frameworks import needed_for

with needed_for("opacus"):
    import torch
    from opacus.grad_sample import GradSampleHooks
    from torch import nn

_REMEDIES = {
    True: "untie it, turn gradient checkpointing off, or use grad_sample_mode='hooks'",
    False: "freeze it, turn gradient checkpointing off, or register a grad sampler for its layer"
    " (opacus.grad_sample.register_grad_sampler)",
}


def remedy(mode: str) -> str:
    """Ways out for a parameter whose gradients of examples a mode does not find."""
    return _REMEDIES["ghost" in mode]


def refuse_layers(module: nn.Module, mode: str) -> None:
    """Raise for layers that depend on the whole batch, or whose norms Opacus gets wrong."""
    _refuse_prompts(module, mode)
    for name, layer in module.named_modules():
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.weight.requires_grad:
            _refuse_embedding(layer, f"parameter '{name}.weight'" if name else "parameter 'weight'", mode)


def _refuse_embedding(layer: nn.Embedding | nn.EmbeddingBag, which: str, mode: str) -> None:
    """Raise for options of an embedding whose gradients are not sums of its examples' clipped ones."""
    if layer.scale_grad_by_freq:
        raise InvalidArgumentError(
            f"{which} has scale_grad_by_freq=True, which divides by counts over the whole batch; leave it False"
        )
    if layer.max_norm is not None:
        raise InvalidArgumentError(
            f"{which} has max_norm={layer.max_norm}, which changes the rows of a batch's ids"
            " without noise; leave it None"
        )
    if isinstance(layer, nn.EmbeddingBag) and "ghost" in mode:
        raise InvalidArgumentError(
            f"{which} is an EmbeddingBag's, whose norms grad_sample_mode={mode!r} gets wrong for"
            " repeated ids; use nn.Embedding and a sum over the ids"
        )


def _refuse_prompts(module: nn.Module, mode: str) -> None:
    """Raise for PEFT's prompt learning."""
    if not getattr(getattr(module, "active_peft_config", None), "is_prompt_learning", False):
        return
    prompts = (name for name, p in module.named_parameters() if p.requires_grad and "prompt_encoder" in name)
    raise InvalidArgumentError(
        f"parameter {next(prompts, 'prompt_encoder')!r} is a prompt that all rows share, of which"
        f" grad_sample_mode={mode!r} finds no gradients of examples; use LoRA on linear layers"
    )


@contextlib.contextmanager
def owners_without_weights(module: nn.Module) -> Iterator[list[nn.Module]]:
    """Let Opacus look into modules that own only parameters of their children, as BERT's head.

    Opacus would take such a module for one layer. Its hooks are to be removed afterwards.
    """
    found = [one for one in module.modules() if _owns_only_its_childrens(one)]
    samplers = GradSampleHooks.GRAD_SAMPLERS
    kinds = {type(one) for one in found} - set(samplers)
    samplers.update(dict.fromkeys(kinds, _no_sampler))
    try:
        yield found
    finally:
        for kind in kinds:
            del samplers[kind]


def _owns_only_its_childrens(module: nn.Module) -> bool:
    own = {p for p in module.parameters(recurse=False) if p.requires_grad}
    return bool(own) and own <= {p for child in module.children() for p in child.parameters()}


def _no_sampler(layer: nn.Module, activations: Any, backprops: Any) -> dict[Any, Any]:
    return {}


def teach(made: Any, owners: list[nn.Module], names: dict[int, str], mode: str) -> None:
    """Give Opacus's module right samplers for more layers, and hooks whose errors name one.

    Only this module changes, not Opacus.
    """
    if not isinstance(made, GradSampleHooks):
        return
    made.GRAD_SAMPLERS = _right(made.GRAD_SAMPLERS)
    if mode != "ghost_fsdp":  # there Opacus takes the norms of what samplers return
        made.GRAD_SAMPLERS = _kept(made.GRAD_SAMPLERS)
    if hasattr(made, "NORM_SAMPLERS"):
        made.NORM_SAMPLERS = _right(made.NORM_SAMPLERS)
        linear = made.NORM_SAMPLERS[nn.Linear]
        made.NORM_SAMPLERS[nn.Linear] = partial(_of_three_dimensions, linear)
    silent = {key for owner in owners for key in (*owner._forward_hooks, *owner._backward_hooks)}
    for handle in made.autograd_grad_sample_hooks:
        hooks = handle.hooks_dict_ref()
        if handle.id in silent:
            handle.remove()
        else:
            hooks[handle.id] = partial(_named, hooks[handle.id], names, mode)


def _right(samplers: dict[Any, Any]) -> dict[Any, Any]:
    return {**samplers, nn.Embedding: partial(_without_padding, samplers[nn.Embedding])}


def _kept(samplers: dict[Any, Any]) -> dict[Any, Any]:
    """Opacus's samplers, whose gradients stay where they were made; a user's own may return what it keeps."""
    return {kind: partial(_keep, one) if _is_opacus(one) else one for kind, one in samplers.items()}


def _is_opacus(sampler: Any) -> bool:
    inner = sampler.args[0] if isinstance(sampler, partial) else sampler
    return str(getattr(inner, "__module__", "")).startswith("opacus.grad_sample.")


def _keep(
    sampler: Callable[..., Any], layer: nn.Module, activations: list[torch.Tensor], backprops: torch.Tensor
) -> dict[Any, torch.Tensor]:
    """Note a layer's gradients for Opacus without its copy into new memory, which takes as long as making them.

    A gradient that is a view of something else, as a bias's of its backprops, is copied: it will be changed in place.
    Opacus adds up the rest: a parameter's second use in a batch, and rows of sequences that have ended.
    """
    found: dict[Any, torch.Tensor] = sampler(layer, activations, backprops)
    taken = {_memory(tensor) for tensor in (*activations, backprops)}
    left = {}
    for p, rows in found.items():
        if not p.requires_grad or hasattr(p, "_current_grad_sample") or len(rows) != layer.max_batch_len:
            left[p] = rows
            continue
        own = rows.is_contiguous() and _memory(rows) not in taken
        p._current_grad_sample = rows if own else rows.clone(memory_format=torch.contiguous_format)
        taken.add(_memory(rows))
    return left


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _without_padding(
    sampler: Callable[..., Any],
    layer: nn.Embedding,
    activations: list[torch.Tensor],
    backprops: torch.Tensor,
) -> Any:
    """An embedding's sampler that leaves `padding_idx` out, as autograd does."""
    ids = activations[0].contiguous()
    if layer.padding_idx is not None:
        backprops = backprops.masked_fill((ids == layer.padding_idx).unsqueeze(-1), 0)
    return sampler(layer, [ids], backprops)


def _of_three_dimensions(
    sampler: Callable[..., Any],
    layer: nn.Linear,
    activations: list[torch.Tensor],
    backprops: torch.Tensor,
) -> Any:
    """A linear layer's norm sampler for any number of dimensions; Opacus's knows two and three."""
    if backprops.ndim <= 3:
        return sampler(layer, activations, backprops)
    return sampler(layer, [activations[0].flatten(1, -2)], backprops.flatten(1, -2))


def _named(hook: Callable[..., Any], names: dict[int, str], mode: str, layer: nn.Module, *rest: Any) -> Any:
    """Call a hook of Opacus; an error in it names a parameter of the layer."""
    try:
        return hook(layer, *rest)
    except (FiletError, Warning):
        raise
    except Exception as error:
        first = next((names[id(p)] for p in layer.parameters() if p.requires_grad and id(p) in names), "")
        says = " ".join(str(error).split())[:200]
        raise StateError(
            f"parameter {first!r} of {type(layer).__name__}: grad_sample_mode={mode!r} finds no gradients"
            f" of examples ({type(error).__name__}: {says}); {remedy(mode)}"
        ) from error
