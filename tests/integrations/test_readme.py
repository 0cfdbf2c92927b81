"""The README's snippets for Opacus and JAX run as they stand, with a model and fewer steps in place of the reader's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import filet

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```py\n(.*?)```", README, re.S)
SCHEME = filet.CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject")


def snippet(word: str) -> str:
    found = [text for text in SNIPPETS if word in text]
    assert len(found) == 1
    return found[0]


@pytest.mark.filterwarnings("ignore:Secure RNG turned off", "ignore:Full backward hook", "ignore:key=None draws")
def test_the_opacus_snippet_trains_within_its_budget():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(3, 2)
    names: dict[str, Any] = {
        "scheme": SCHEME,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loader": DataLoader(TensorDataset(torch.randn(60_000, 3), torch.randint(2, (60_000,))), batch_size=256),
        "loss_function": torch.nn.CrossEntropyLoss(),
    }
    text = snippet("CappedPrivacyEngine")
    assert "steps=14_000" in text
    exec(text.replace("steps=14_000", "steps=4"), names)
    assert len(names["engine"].accountant) == 4
    assert names["x"].shape == (256, 3)
    assert names["engine"].get_epsilon(1e-5) <= 3.0


def test_the_jax_snippet_compiles_once_and_moves_the_weights():
    import jax
    import jax.numpy as jnp

    def clipped_sum(params, rows, mask):
        gradients = params - rows
        norms = jnp.linalg.norm(gradients, axis=1, keepdims=True)
        return (gradients / jnp.maximum(norms, 1.0) * mask[:, None]).sum(axis=0)

    names: dict[str, Any] = {
        "jax": jax, "scheme": SCHEME, "data": jnp.ones((60_000, 2)), "clipped_sum": clipped_sum, "noise_multiplier": 1.0,
        "clipping_norm": 1.0, "rate": 0.5,
    }  # fmt: skip
    exec(snippet("device_sampler"), names)
    params = jnp.zeros(2)
    for number in range(3):
        params = names["step"](params, jax.random.key(0), number)
    assert float(params.min()) > 0.5
    assert names["step"]._cache_size() == 1
