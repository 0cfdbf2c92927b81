"""Pages made from the code: current, complete, and true of what runs raise."""

from __future__ import annotations

import re
from typing import Any

import pytest

import filet
from tests.test_docs import DOCS, load

TESTS = DOCS.parent / "tests" / "integrations"


@pytest.mark.parametrize("name", ["support", "symbols", "troubleshooting"])
def test_the_page_is_what_its_script_writes(name: str) -> None:
    script = load(name)
    assert script.PAGE.read_text(encoding="utf-8") == script.generated(), f"run: python docs/_scripts/{name}.py"


def test_every_error_of_the_code_has_its_message_on_the_page_or_repeats_another() -> None:
    read = load("troubleshooting").read()
    assert len(read.found) > 400
    places = {place.split(":")[0] for place in read.passed_on}
    # `fail` itself, the checker's missing package, and run files, which put the file's name before a message.
    assert places <= {"_checks.py", "cli/commands/certificates.py", "planning/run_file.py", "integrations/batch_files/records.py"}  # fmt: skip


def wrong_uses() -> list[Any]:
    scheme = filet.CappedPoisson(1_000, 0.01, 20)
    curve = filet.account(scheme, noise_multiplier=1.0, steps=10, adjacency="zero-out")
    run: dict[str, Any] = {"noise_multiplier": 1.0, "steps": 10, "adjacency": "zero-out"}
    return [
        lambda: filet.CappedPoisson(0, 0.01, 20),
        lambda: filet.CappedPoisson(1_000, 2.0, 20),
        lambda: filet.CappedPoisson(1_000, float("nan"), 20),
        lambda: filet.CappedPoisson(1_000, 1.0, 20, overflow="reject"),
        lambda: filet.CappedPoisson(1_000, 0.01, 20, overflow="cut"),
        lambda: filet.account("scheme", **run),
        lambda: filet.account(scheme, **(run | {"noise_multiplier": -1.0})),
        lambda: filet.account(scheme, **(run | {"steps": 1.5})),
        lambda: filet.account(scheme, **(run | {"adjacency": "none"})),
        lambda: curve.epsilon(0.0),
        lambda: scheme.sampler(key=b"short"),
        lambda: scheme.sampler(key="text"),
        lambda: scheme.sampler(key=7).shard(3, 2),
        lambda: filet.calibrate_steps(scheme, noise_multiplier=0.0, epsilon=1.0, delta=1e-5, adjacency="zero-out"),
        lambda: filet.plan(dataset_size=1_000, max_batch_size=20, epsilon=1.0, delta=1e-5, adjacency="zero-out"),
        lambda: filet.Accountant.load("/no/such/file"),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_messages_of_wrong_uses_are_found_on_the_page_by_their_words() -> None:
    script = load("troubleshooting")
    page, found = script.PAGE.read_text(encoding="utf-8"), script.read().found
    for use in wrong_uses():
        with pytest.raises(filet.FiletError) as caught:
            use()
        forms = [one for one in found if matches(script.GAP, one.text, str(caught.value))]
        assert forms, str(caught.value)
        assert any(script.cell(form.cause) in page for form in forms)


def matches(gap: str, form: str, message: str) -> bool:
    return re.fullmatch(re.escape(form).replace(re.escape(gap), ".*"), message) is not None


def test_every_feature_of_the_support_matrix_names_a_test_that_exists() -> None:
    script = load("support")
    known = {name: (DOCS.parent / "src/filet/integrations" / name).is_dir() for name in script.INTEGRATIONS}
    assert all(known.values()), known
    for feature, tests in script.FEATURES.items():
        for integration, test in tests.items():
            files = [*(TESTS / integration).glob("test_*.py"), *TESTS.glob("test_*.py")]  # the latter are of several
            assert any(f"def {test}(" in file.read_text(encoding="utf-8") for file in files), (feature, integration)


def test_every_integration_is_in_the_support_matrix() -> None:
    packages = (DOCS.parent / "src/filet/integrations").glob("*/__init__.py")
    script = load("support")
    assert {path.parent.name for path in packages} - script.WITHOUT == set(script.INTEGRATIONS)


def test_the_glossary_has_every_class_that_users_meet() -> None:
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("glossary.md", "symbols.md"))
    classes = [name for name in filet.__all__ if isinstance(getattr(filet, name), type)]
    assert len(classes) > 15
    assert [name for name in classes if f"`{name}`" not in text] == []


@pytest.mark.parametrize(("page", "room"), [("symbols.md", "src/filet")])
def test_names_beside_the_symbols_exist_in_the_code(page: str, room: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8").split("## Every class")[0]
    source = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / room).rglob("*.py"))
    named = {word for row in re.findall(r"^\|.*\|(.*)\|$", text, re.M) for word in re.findall(r"`\.?([\w.]+)`", row)}
    assert len(named) > 30
    for name in named:
        assert re.search(rf"\b{name.rpartition('.')[2]}\b", source), name
