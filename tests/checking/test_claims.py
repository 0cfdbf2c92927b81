"""What a certificate says is proven or refused: false claims and damaged ones; and what the checker is made of."""

from __future__ import annotations

import ast
import copy
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import filet
import filet.checking
from filet.accounting.certificate import signed
from filet.checking import Claim, check, checksum

FOLDER = Path(filet.checking.__file__).parent


@pytest.fixture(scope="module")
def claim() -> dict[str, Any]:
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    curve = filet.account(scheme, noise_multiplier=2.0, steps=1_000, adjacency="add-remove", analysis="swap")
    return curve.certificate(1e-5)


# --- what is proven ---


def test_the_verdict_says_what_was_verified(claim: dict[str, Any]) -> None:
    shares: list[float] = []
    verdict = check(claim, progress=shares.append)
    assert verdict.ok
    assert shares[-1] == 1.0
    assert verdict.epsilon == claim["epsilon"]
    assert 0.999e-5 < float(verdict.delta) <= 1e-5
    for part in (
        "one record added or removed",
        "1000 steps",
        "1000 records",
        "0.05",
        "at most 60",
        "truncate",
        "swap",
        "bits",
    ):
        assert part in verdict.words


# --- false and damaged claims ---


def altered(claim: dict[str, Any], path: tuple[Any, ...], value: Any, *, sealed: bool) -> dict[str, Any]:
    """The claim with one field changed, with the old checksum or a fitting one."""
    new = copy.deepcopy(claim)
    place: Any = new
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return signed(new) if sealed else new


FALSE = [  # changes that make the claim say more than is true, or make it no claim at all; with a fitting checksum
    (("format",), "filet-accountant", "format"),
    (("version",), 2, "version"),
    (("version",), True, "version"),
    (("adjacency",), "replace-one", "only delta"),
    (("adjacency",), "swap", "adjacency"),
    (("delta",), "9.99e-6", "only delta"),
    (("delta",), "0", "positive"),
    (("delta",), 1e-5, "delta"),
    (("gaussian",), "0.01", "usable node"),
    (("gaussian",), "-1", "gaussian"),
    (("epsilon",), "nan", "epsilon"),
    (("epsilon",), "1e400", "epsilon"),
    (("epsilon",), "1e999999999", "epsilon"),
    (("phases",), {}, "phases"),
    (("phases",), [], "do not match"),
    (("phases", 0, "dataset_size"), 1001, "only delta"),
    (("phases", 0, "dataset_size"), 1000.0, "dataset_size"),
    (("phases", 0, "sampling_probability"), "0.0501", "only delta"),
    (("phases", 0, "sampling_probability"), "1.5", "sampling_probability"),
    (("phases", 0, "sampling_probability"), "0", "rate or noise"),
    (("phases", 0, "max_batch_size"), 59, "only delta"),
    (("phases", 0, "max_batch_size"), 0, "max_batch_size"),
    (("phases", 0, "overflow"), "keep", "overflow"),
    (("phases", 0, "overflow"), "reject", "refined only"),
    (("phases", 0, "cycle_length"), 0, "cycle_length"),
    (("phases", 0, "cycle_length"), 1001, "cycle_length"),
    (("phases", 0, "noise_multiplier"), "1.999", "only delta"),
    (("phases", 0, "noise_multiplier"), "0", "rate or noise"),
    (("phases", 0, "steps"), 1001, "only delta"),
    (("phases", 0, "steps"), 0, "steps"),
    (("phases", 0, "analysis"), "note", "only delta"),
    (("phases", 0, "analysis"), "guess", "analysis"),
    (("phases", 0), None, "a phase"),
    (("witness",), None, "witness"),
    (("witness", "spacing"), "0", "positive"),
    (("witness", "spacing"), "1e-999", "window"),
    (("witness", "bits"), 16, "window"),
    (("witness", "bits"), 10**6, "bits"),
    (("witness", "window"), 10, "node"),
    (("witness", "window"), 99_999_999, "MB"),
    (("witness", "nodes"), [[], []], "usable node"),
    (("witness", "nodes"), [[0, 5, 5], []], "rise"),
    (("witness", "nodes"), [[0, 0.5], []], "node"),
    (("witness", "nodes"), [[-5, 0, 5]], "do not match"),
    (("witness", "nodes"), [[-5, 0, 5], []], "only delta"),
    (("witness", "lending"), [[[0, 1]]], "lending"),
    (("witness", "lending"), [], "do not match"),
]


@pytest.mark.parametrize(("path", "value", "reason"), FALSE)
def test_a_false_claim_is_refused_with_the_reason(claim: dict[str, Any], path: tuple[Any, ...], value: Any, reason: str) -> None:  # fmt: skip
    verdict = check(altered(claim, path, value, sealed=True))
    assert not verdict.ok
    assert reason in verdict.reason, verdict.reason
    assert verdict.words == verdict.epsilon == ""


@pytest.mark.parametrize(("path", "value", "reason"), FALSE)
def test_any_change_breaks_the_checksum(claim: dict[str, Any], path: tuple[Any, ...], value: Any, reason: str) -> None:
    verdict = check(altered(claim, path, value, sealed=False))
    assert not verdict.ok
    assert verdict.reason


def test_a_smaller_epsilon_is_refused(claim: dict[str, Any]) -> None:
    epsilon = float(claim["epsilon"])
    for less in (1e-4, 1e-6):
        lowered = altered(claim, ("epsilon",), f"{epsilon * (1 - less):.12f}", sealed=True)
        assert "only delta" in check(lowered).reason
    assert check(altered(claim, ("epsilon",), f"{epsilon * (1 + 1e-4):.12f}", sealed=True)).ok


def test_every_field_is_needed_and_none_may_be_added(claim: dict[str, Any]) -> None:
    for place in (claim, claim["phases"][0], claim["witness"]):
        for name in (*place, "comment"):
            new = copy.deepcopy(claim)
            part = new if place is claim else new["witness"] if place is claim["witness"] else new["phases"][0]
            part.pop(name) if name in part else part.update({name: 1})
            if "checksum" in new:
                new["checksum"] = checksum(new)
            verdict = check(new)
            assert not verdict.ok, name
            assert "exactly the fields" in verdict.reason or name in ("format", "version")


def test_shares_and_tilts_are_validated() -> None:
    scheme = filet.CappedPoisson(1_000, 0.05, 52)
    curve = filet.account(scheme, noise_multiplier=1.0, steps=20, adjacency="zero-out")
    found = curve.certificate(1e-5)
    assert check(found).ok
    table = found["witness"]["lending"][0]
    at = next(i for i, row in enumerate(table) if row is not None)
    for value, reason in (([0, 4097], "share"), ([0, -1], "share"), ([0, 0.5], "share"), ([0] * 60, "levels"), ([], "read"), ("x", "read"), ([None, 0], "read")):  # fmt: skip
        verdict = check(altered(found, ("witness", "lending", 0, at), value, sealed=True))
        assert not verdict.ok
        assert reason in verdict.reason
    none = altered(found, ("witness", "lending", 0), None, sealed=True)
    assert "only delta" in check(none).reason  # without lending, epsilon is larger


@pytest.mark.parametrize(
    "thing", [None, 3, "text", [], {}, {"format": "filet-certificate"}, [{}], {"format": ["filet-certificate"]}]
)
def test_what_is_no_claim_is_refused(thing: Any) -> None:
    verdict = check(thing)
    assert not verdict.ok
    assert verdict.reason


def test_half_a_claim_is_refused(claim: dict[str, Any]) -> None:
    text = json.dumps(claim)
    assert not check(text).ok  # the text of a claim is no claim
    for end in (1, len(text) // 2, len(text) - 1):
        assert not check(text[:end]).ok
    for count in range(len(claim)):
        assert not check(dict(list(claim.items())[:count])).ok


def test_a_budget_is_kept_before_starting(claim: dict[str, Any]) -> None:
    for budget in ({"max_seconds": 0.01}, {"max_bytes": 1e6}):
        verdict = check(claim, **budget)
        assert not verdict.ok
        assert "MB" in verdict.reason
        assert verdict.seconds < 0.5


def test_estimates_are_not_far_below_what_a_check_takes(claim: dict[str, Any]) -> None:
    start = time.process_time()  # other processes may slow a clock on the wall
    assert check(claim).ok
    assert time.process_time() - start < 3 * Claim(claim).seconds + 1


# --- what the checker is made of ---


def test_the_checker_imports_nothing_else_of_filet() -> None:
    allowed = {*sys.stdlib_module_names, "flint"}
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom):
                inside = node.level == 1 and (FOLDER / f"{node.module}.py").exists()
                assert inside or (node.level == 0 and str(node.module).split(".")[0] in allowed), (path, node.module)


def test_the_folder_works_alone(claim: dict[str, Any], tmp_path: Path) -> None:
    """Copied elsewhere, with neither filet nor NumPy, it comes to the same verdict."""
    shutil.copytree(FOLDER, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "claim.json").write_text(json.dumps(claim))
    code = (
        "import json, sys\n"
        "sys.modules['filet'] = sys.modules['numpy'] = sys.modules['scipy'] = None\n"
        "from elsewhere import check\n"
        "print(check(json.load(open('claim.json'))).words)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.strip() == check(claim).words


def test_the_checker_is_short_enough_to_audit() -> None:
    assert sum(len(path.read_text().splitlines()) for path in FOLDER.rglob("*.py")) <= 400


def test_no_floating_point_decides() -> None:
    """The only float literals are those of the estimate and of the budget's defaults."""
    found = {}
    for path in FOLDER.glob("*.py"):
        values = [
            n.value
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Constant) and type(n.value) is float
        ]
        found[path.name] = sorted(values)
    assert found == {
        "__init__.py": sorted([4e-6, 1e-8, 5e-5, 2e-7, 4e7, 600.0, 1e6, 600.0, 2e9]),
        "lattice.py": [],
        "theorems.py": [],
    }


def test_a_missing_package_is_named_with_the_extra() -> None:
    code = "import sys; sys.modules['flint'] = None\ntry:\n    import filet.checking\nexcept ImportError as error:\n    print(error)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "filet.checking needs python-flint; pip install 'filet[check]'"
