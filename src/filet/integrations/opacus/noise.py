# mypy: disable-error-code="import-untyped, import-not-found"
"""Noise of a step: a generator that depends on the run's key and the step, and on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from filet.errors import StateError
from filet.sampling.sampler import Sampler
from filet.sampling.streams import Purpose

from .._frameworks import needed_for

with needed_for("opacus"):
    import torch

_WORDS = 624  # of 32 bits: the state of PyTorch's generator on a CPU, a Mersenne Twister
_STATE_BYTES = 5056
_FIRST_WORD = 24  # each is stored in 8 bytes


def step_generator(sampler: Sampler, step: int, device: Any) -> torch.Generator:
    """The generator of a step's noise on a device: the same in every process, rank and resumed run.

    On a CPU the whole state comes from the key, as `manual_seed` keeps 32 bits of its seed. Other
    devices take a seed of 64 bits.
    """
    words = sampler.stream(Purpose.GENERATOR, step).words(_WORDS // 2)
    generator = torch.Generator(device)
    if generator.device.type != "cpu":
        return generator.manual_seed(int(words[0]))
    state = generator.manual_seed(0).get_state()
    if state.numel() != _STATE_BYTES:
        raise StateError(
            f"PyTorch {torch.__version__} keeps the state of its generator in another form, so the"
            " noise cannot be drawn from the key; use the PyTorch that filet names in its extras"
        )
    stored = state.numpy()[_FIRST_WORD : _FIRST_WORD + 8 * _WORDS].view(np.uint64)
    stored[0::2] = words & np.uint64(0xFFFFFFFF)
    stored[1::2] = words >> np.uint64(32)
    return generator.set_state(state)
