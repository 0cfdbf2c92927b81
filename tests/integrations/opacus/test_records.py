"""Records of engines and of their checkpoints: the run's own figures, and nothing secret."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner
from opacus import PrivacyEngine
from tests.integrations.opacus_engines import DATA, SCHEME, engine_for, private, train
from tests.integrations.planted import leaked, spellings
from tests.integrations.quiet import OPACUS
from torch import nn
from torch.utils.data import DataLoader

import filet
from filet.cli.commands.answers import main
from filet.errors import InvalidArgumentError, StateError
from filet.integrations.opacus import CappedPrivacyEngine, read_checkpoint
from filet.showing.citing import FORMATS, cited
from filet.showing.record import verify

pytestmark = OPACUS

KEYS = (b"planted key number one, 32 bytes", 31415926535897932384626433832795)
DELTA = 1e-4
PUBLIC = filet.account(SCHEME, noise_multiplier=1.0, steps=30, adjacency="zero-out")


def trained(key: bytes | int) -> tuple[CappedPrivacyEngine, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    engine = engine_for(key=key)
    model, optimizer, run = private(engine, nn.Linear(6, 3), DATA)
    train(model, optimizer, run)
    return engine, model, optimizer


def test_an_engines_record_is_that_of_the_steps_it_took() -> None:
    engine, *_ = trained(KEYS[0])
    made = engine.record(DELTA, unit="one row")
    assert made == filet.record(PUBLIC, DELTA, unit="one row")
    assert made["guarantee"]["epsilon"] == engine.get_epsilon(DELTA)
    assert verify(made) == []


def test_records_do_not_depend_on_anything_secret() -> None:
    """Other keys draw other batches, sizes and noise, and give the same record to the last byte."""
    (one, *_), (two, *_) = (trained(key) for key in KEYS)
    drawn = [[(tuple(batch.indices.tolist()), batch.size) for batch in SCHEME.sampler(key=key)[:30]] for key in KEYS]
    assert drawn[0] != drawn[1]
    for form in FORMATS:
        assert cited(one.record(DELTA), form) == cited(two.record(DELTA), form)


@pytest.mark.parametrize("key", KEYS, ids=["bytes", "integer"])
def test_a_planted_key_is_in_no_record(key: bytes | int, tmp_path) -> None:
    engine, model, optimizer = trained(key)
    path = tmp_path / "run.pt"
    more = {"key": key, "indices": [123456789], "sizes": [987654321]}
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer, checkpoint_dict=more, include_key=True)
    outcome = CliRunner().invoke(main, ["record", "--from", str(path), "--delta", str(DELTA)])
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.stdout) == filet.record(PUBLIC, DELTA)
    secrets = [*spellings(key), "123456789", "987654321", SCHEME.sampler(key=key).fingerprint]
    for text in (outcome.output, *(cited(engine.record(DELTA), form) for form in FORMATS)):
        assert not [secret for secret in secrets if secret in text]


def test_indices_and_sizes_of_batches_are_in_no_record() -> None:
    scheme = filet.CappedPoisson(2_147_483_659, 1e-6, 2_300)
    batches = [scheme.sampler(key=KEYS[0])[step] for step in range(3)]
    curve = filet.account(scheme, noise_multiplier=1.0, steps=3, adjacency="zero-out")
    planted = [str(index) for batch in batches for index in batch.indices[batch.mask].tolist() if index > 10**8]
    planted += [str(batch.size) for batch in batches]
    for form in FORMATS:
        text = cited(filet.record(curve, 1e-10), form).replace("2147483659", "")
        assert not [one for one in planted if f" {one}" in text or f'"{one}' in text]


def test_checkpoints_that_contradict_themselves_are_refused(tmp_path) -> None:
    engine, model, optimizer = trained(KEYS[0])
    path = tmp_path / "run.pt"
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
    assert read_checkpoint(path).epsilon(DELTA) == engine.get_epsilon(DELTA)
    good = torch.load(path, weights_only=True)
    name = "privacy_accountant_state_dict"
    wrong_scheme = good[name]["scheme"].replace("0.05", "0.005")
    for broken, words in (
        (
            {**good, "filet": {**good["filet"], "loader": {**good["filet"]["loader"], "step": 31}}},
            "loader is at step 31",
        ),
        ({**good, name: {**good[name], "scheme": "import os"}}, "is no scheme"),
        ({**good, name: {**good[name], "scheme": wrong_scheme}}, "damaged"),
        ({"filet": good["filet"]}, "no checkpoint of CappedPrivacyEngine or of Opacus"),
        ([1, 2], "no checkpoint of CappedPrivacyEngine or of Opacus"),
    ):
        torch.save(broken, path)
        with pytest.raises(StateError, match=words):
            read_checkpoint(path)
    path.write_bytes(b"PK no checkpoint")
    with pytest.raises(StateError, match="no checkpoint of CappedPrivacyEngine or of Opacus"):
        read_checkpoint(path)


OWN = {"dataset_size": 40, "max_batch_size": None, "adjacency": "add-remove"}


def opacus_checkpoint(path, accountant: str = "prv", **more: object) -> None:
    """A checkpoint of a training with Opacus alone: four batches an epoch, other noise in the second one."""
    engine = PrivacyEngine(accountant=accountant)
    torch.manual_seed(1)
    model = nn.Linear(6, 3)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(DATA, batch_size=10),
        noise_multiplier=1.5,
        max_grad_norm=1.0,
    )
    train(model, optimizer, loader)
    if accountant != "gdp":  # which knows one noise only
        optimizer.noise_multiplier = 2.0
    train(model, optimizer, loader)
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer, checkpoint_dict=dict(more))


@pytest.mark.parametrize("kind", ["prv", "rdp", "gdp"])
@pytest.mark.filterwarnings("ignore:GDP accounting is experimental")
def test_a_checkpoint_of_opacus_alone_gives_noise_rate_and_steps(kind: str, tmp_path) -> None:
    opacus_checkpoint(tmp_path / "run.pt", kind)
    expected = filet.Accountant("add-remove")
    scheme = filet.CappedPoisson(40, 0.25, None)
    for noise in (1.5, 1.5 if kind == "gdp" else 2.0):
        expected.compose(scheme, noise, 4)
    found = read_checkpoint(tmp_path / "run.pt", **OWN)
    assert found.epsilon(DELTA) == expected.epsilon(DELTA)
    options = ["--dataset-size", "40", "--no-cap", "--adjacency", "add-remove", "--delta", str(DELTA)]
    outcome = CliRunner().invoke(main, ["record", "--from", str(tmp_path / "run.pt"), *options])
    assert json.loads(outcome.stdout) == filet.record(expected.curve(), DELTA)
    capped = read_checkpoint(tmp_path / "run.pt", **{**OWN, "max_batch_size": 20, "overflow": "reject"})
    assert {phase.scheme for phase in capped.phases} == {filet.CappedPoisson(40, 0.25, 20, overflow="reject")}


def test_what_a_checkpoint_of_opacus_does_not_say_must_be_given(tmp_path) -> None:
    path = tmp_path / "run.pt"
    opacus_checkpoint(path)
    for name in OWN:
        with pytest.raises(InvalidArgumentError, match=f"^{name} missing"):
            read_checkpoint(path, **{key: value for key, value in OWN.items() if key != name})
    command = ["record", "--from", str(path), "--delta", str(DELTA)]
    for options, words in (
        ([], "dataset_size, max_batch_size, adjacency missing"),
        (["--no-cap", "--max-batch-size", "20"], "both given"),
        (["--sampling-probability", "0.1"], "--sampling-probability has no place beside --from"),
    ):
        outcome = CliRunner().invoke(main, [*command, *options])
        assert (outcome.exit_code, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
        assert words in outcome.stderr
    engine, model, optimizer = trained(KEYS[0])
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
    with pytest.raises(InvalidArgumentError, match="dataset_size is given"):
        read_checkpoint(path, **OWN)


def test_what_is_planted_in_a_checkpoint_of_opacus_is_in_no_record(tmp_path) -> None:
    more = {"key": KEYS[0], "indices": [123456789], "sizes": [987654321]}
    opacus_checkpoint(tmp_path / "run.pt", **more)
    made = filet.record(read_checkpoint(tmp_path / "run.pt", **OWN), DELTA)
    assert leaked(made, KEYS[0], "123456789", "987654321") == []


def test_a_damaged_history_of_opacus_is_refused(tmp_path) -> None:
    path = tmp_path / "run.pt"
    for history, words in (
        ([], "has counted no step"),
        ([(1.0, 0.25)], "is damaged"),
        ([(-1.0, 0.25, 4)], "is damaged"),
        ([(1.0, 0.25, 4.5)], "is damaged"),
        (None, "is damaged"),
    ):
        torch.save({"privacy_accountant_state_dict": {"history": history, "mechanism": "rdp"}}, path)
        with pytest.raises(StateError, match=words):
            read_checkpoint(path, **OWN)
    torch.save({"privacy_accountant_state_dict": {"history": [(1.0, 1.5, 4)], "mechanism": "rdp"}}, path)
    with pytest.raises(InvalidArgumentError, match=r"sampling_probability=1\.5"):
        read_checkpoint(path, **OWN)
