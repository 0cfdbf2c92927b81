"""Noise of the engine: from the key and the step, whatever a program does to PyTorch's own generators."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.integrations.opacus_runs import DATA, SCHEME, Words
from tests.integrations.quiet import OPACUS
from torch import nn
from torch.utils.data import DataLoader

import filet
from filet.integrations.opacus import CappedPrivacyEngine
from filet.integrations.opacus.noise import step_generator
from filet.sampling.streams import Purpose

pytestmark = [
    *OPACUS,
    pytest.mark.filterwarnings("ignore:In CPU autocast"),  # of Opacus, in functorch mode
]


KEY = b"a key for the tests of noise"


def start(mode="hooks", *, key=KEY, seed=3, physical=None, **options):
    torch.manual_seed(seed)
    model = Words()
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=6, key=key, physical_batch_size=physical)
    made, optimizer, *criterion, run = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        data_loader=DataLoader(DATA),
        noise_multiplier=1.0,
        max_grad_norm=0.3,
        grad_sample_mode=mode,
        **options,
    )
    return engine, made, optimizer, criterion[0] if criterion else nn.CrossEntropyLoss(), run


def noise_of(started, *, between=lambda: None):
    """The noise of each step: what was added to the clipped sum."""
    _, model, optimizer, criterion, run = started
    found = []
    for x, y in run:
        between()
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        if run.ends_batch:
            parts = [p.grad * SCHEME.expected_batch_size - p.summed_grad for p in optimizer.params]
            found.append(torch.cat([part.flatten() for part in parts]).numpy())
    return np.stack(found)


@pytest.mark.parametrize(("mode", "physical"), [("hooks", None), ("hooks", 2), ("ghost", None), ("functorch", None)])
def test_a_seed_that_is_set_in_the_loop_changes_no_noise(mode, physical):
    plain = noise_of(start(mode, physical=physical))
    seeded = noise_of(start(mode, physical=physical, seed=8), between=lambda: torch.manual_seed(1))
    np.testing.assert_allclose(seeded, plain, atol=2e-5)
    correlation = np.corrcoef(seeded)[~np.eye(6, dtype=bool)]
    assert np.abs(correlation).max() < 5 / np.sqrt(seeded.shape[1])


def test_noise_is_the_same_in_all_modes_and_another_for_another_key():
    hooks = noise_of(start())
    np.testing.assert_allclose(noise_of(start("ghost")), hooks, atol=2e-5)
    other = noise_of(start(key=b"another key, also of 16 bytes"))
    assert abs(np.corrcoef(hooks.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(hooks.size)


def test_a_generator_that_the_user_gives_is_used():
    own = [noise_of(start(noise_generator=torch.Generator().manual_seed(4), key=key)) for key in (KEY, 2**100)]
    np.testing.assert_allclose(own[0][0], own[1][0], atol=2e-5)


def test_the_generator_has_all_of_the_keys_words_in_its_state():
    sampler = SCHEME.sampler(KEY)
    words = sampler.stream(Purpose.GENERATOR, 5).words(312)
    twister = np.random.MT19937(0)
    halves = np.stack([words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)], axis=1).ravel()
    twister.state = {"bit_generator": "MT19937", "state": {"key": halves.astype(np.uint32), "pos": 624}}
    raw = twister.random_raw(8)
    found = torch.empty(8, dtype=torch.int32).random_(generator=step_generator(sampler, 5, torch.device("cpu")))
    np.testing.assert_array_equal(found.numpy(), raw % 2**31)


def test_pytorchs_own_seed_has_32_bits_on_a_processor_so_that_it_is_not_used():
    one, other = (torch.randn(3, generator=torch.Generator().manual_seed(1 + high)) for high in (0, 2**32))
    assert torch.equal(one, other)


def test_a_checkpoint_of_noise_that_did_not_come_from_the_key_is_refused():
    engine = start()[0]
    state = engine.state_dict()
    state["filet"]["version"] = 1
    with pytest.raises(filet.StateError, match=r"finish that run with filet 0\.2"):
        engine.load_state_dict(state)
