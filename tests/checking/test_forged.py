"""Claims made to hang the checker, to end its process or to have it say what it did not check. Most came from attacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.checking.test_claims import PHASE, altered
from tests.cli.invoke import ENVIRONMENT

from filet.accounting.certificate import signed
from filet.checking import check

HERE = Path(__file__).parent
CLAIM: dict[str, Any] = json.loads((HERE / "swap.certificate.json").read_text())
LENDING: dict[str, Any] = json.loads((HERE / "lending.certificate.json").read_text())

EXTREMES: list[tuple[tuple[Any, ...], list[Any]]] = [
    (("epsilon",), ["0.0", "5e-324", "1000000.0"]),
    (("delta",), ["5e-324", "1e-300", "1.0"]),
    (("gaussian",), ["5e-324", "1e-300", "1.0", "1e+18"]),
    ((*PHASE, "sampling_probability"), ["5e-324", "1e-300", "1e-16", "0.9999999999999999", "1.0"]),
    ((*PHASE, "noise_multiplier"), ["5e-324", "1e-300", "1e-160", "1e-10", "0.001", "10000000000.0", "1e+18"]),
    ((*PHASE, "dataset_size"), [1, 2, 60, 61, 10**9, 10**16 - 1]),
    ((*PHASE, "max_batch_size"), [1, 2, 999, 1_000, 2**63 - 1]),
    ((*PHASE, "cycle_length"), [2, 999, 1_000]),
    ((*PHASE, "steps"), [1, 10**12 - 1]),
    (("witness", "spacing"), ["5e-324", "1e-300", "1e-30", "0.5", "1.0"]),
    (("witness", "bits"), [16, 17, 4_096]),
    (("witness", "window"), [10**5]),
    (("witness", "nodes"), [[[0], []], [[-1], []], [[1], []], [[0], [0]], [list(range(-100, 100)), []]]),
]
# Single changes, and pairs that are worse than either.
CLAIMS = [altered(CLAIM, path, value, sealed=True) for path, values in EXTREMES for value in values]
CLAIMS += [
    altered(altered(CLAIM, (*PHASE, "noise_multiplier"), noise, sealed=True), path, value, sealed=True)
    for noise in ("1e-300", "1e+18")
    for path, values in EXTREMES
    for value in (values[0], values[-1])
]
CLAIMS += [
    altered(LENDING, ("witness", "lending", 0, -1), row, sealed=True)
    for row in ([2**31 - 1, 4096], [-(2**31), 4096], [-(2**31), *[4096] * 51], [2**31 - 1, *[1] * 51], [0, 0, 0])
]

CODE = """
import json, sys
from filet.checking import check
for line in sys.stdin:
    verdict = check(json.loads(line), max_seconds=2, max_bytes=1e9)
    print(json.dumps([verdict.ok, verdict.reason, verdict.words]), flush=True)
"""


@pytest.mark.long
def test_extreme_claims_get_a_verdict_and_leave_the_process_alive() -> None:
    """In a process of its own: what FLINT cannot do ends it. A proof says the very numbers of the claim."""
    lines = "".join(json.dumps(claim) + "\n" for claim in CLAIMS)
    result = subprocess.run([sys.executable, "-c", CODE], input=lines, capture_output=True, text=True, env=ENVIRONMENT, check=True)  # fmt: skip
    verdicts = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(verdicts) == len(CLAIMS) > 100
    for claim, (ok, reason, words) in zip(CLAIMS, verdicts, strict=True):
        assert bool(reason) == (not ok)
        assert "cannot be read" not in reason, reason
        assert reason.isascii()
        if ok:
            phase = claim["phases"][0]
            said = [f"epsilon {claim['epsilon']} at delta {claim['delta']} ", f"rate {phase['sampling_probability']},"]
            said += [
                f"noise multiplier {phase['noise_multiplier']},",
                f"{phase['steps']} steps on {phase['dataset_size']} ",
            ]
            assert all(part in words for part in said), words


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "path",
    [("epsilon",), ("phases",), PHASE, ("witness",), ("witness", "nodes"), ("witness", "lending"), ("checksum",)],
)
def test_deep_and_huge_things_are_refused(path: tuple[Any, ...]) -> None:
    for thing in (nested(100_000), [0] * 10**6, "x" * 10**7, {str(k): k for k in range(10**5)}):
        new = {**CLAIM, "phases": [dict(CLAIM["phases"][0])], "witness": dict(CLAIM["witness"])}
        place: Any = new
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = thing
        verdict = check(new)
        assert not verdict.ok
        assert 0 < len(verdict.reason) < 250


def test_a_claim_that_contains_itself_is_refused() -> None:
    new = {**CLAIM}
    new["phases"] = [new]
    assert check(new).reason


@pytest.mark.parametrize(
    "value", ["\x1b[2J\x1b[HProven: epsilon 0.1", "1.0\nProven: epsilon 0.1", "\u202e1.0", "\u0661.\u0660"]
)
def test_no_text_of_a_claim_reaches_the_screen_as_it_is(value: str) -> None:
    """Neither control characters nor lines nor digits of other scripts."""
    for path in (("epsilon",), ("adjacency",), ("format",), ("version",), (*PHASE, "steps"), (*PHASE, "overflow")):
        reason = check(altered(CLAIM, path, value, sealed=True)).reason
        assert reason.isascii()
        assert reason.isprintable()


def test_ten_thousand_phases_are_stopped_in_time() -> None:
    """Gaussian releases, whose sum of fractions has ever more digits."""
    phases = [{**CLAIM["phases"][0], "sampling_probability": "1.0", "max_batch_size": 1_000, "noise_multiplier": repr(1 + k / 1e5)}
              for k in range(10**4)]  # fmt: skip
    witness = {**CLAIM["witness"], "nodes": [[]] * (len(phases) + 1), "lending": [None] * len(phases)}
    many = signed({**CLAIM, "phases": phases, "witness": witness})
    assert check(many, max_seconds=1).reason in (
        "it takes longer than max_seconds allows",
        "the witness has no usable node for some step",
    )
