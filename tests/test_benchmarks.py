"""The benchmark report: it says what the stored results say, its figures exist, and every truth it uses is proven."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import filet
from tests.settings import SETTINGS

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
STORED = sorted((BENCHMARKS / "results").glob("*.json"))
FIGURE = re.compile(r"\]\((figures/[^)]+)\)")


def test_the_report_is_what_the_results_say():
    command = [sys.executable, "-c", "import results; print(results.report(), end='')"]
    made = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    written = (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8")
    assert written == made, "run: python benchmarks/run.py --report"


def test_every_figure_of_the_report_exists():
    figures = FIGURE.findall((BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8"))
    assert figures
    assert [name for name in figures if not (BENCHMARKS / name).exists()] == []


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_results_are_of_a_full_run(path):
    assert not json.loads(path.read_text()).get("quick"), f"run: python benchmarks/run.py {path.stem}"


def test_the_settings_are_those_of_the_theory_page():
    assert SETTINGS["A"] == (60_000, 256, 300, 1.0, 14_000, 1e-5)
    assert list(SETTINGS) == ["A", "B", "C", "D", "E"]


def test_brackets_contain_the_truths_of_the_report():
    with (BENCHMARKS / "truth.csv").open() as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    ours = [row for row in rows if row["pair"] != "dp_accounting"]
    assert len(ours) > 40
    for row in ours:
        scheme = filet.CappedPoisson(int(row["n"]), float(row["p"]), int(row["cap"]))
        curve = filet.account(
            scheme,
            noise_multiplier=float(row["sigma"]),
            steps=int(row["steps"]),
            adjacency="add-remove",
            analysis="swap" if scheme.max_batch_size < scheme.group_size else "refined",  # whose truths these are
        )
        bounds = curve.epsilon_bounds(float(row["delta"]))
        truth, slack = float(row["epsilon"]), 10.0 ** (1 - int(row["digits"]))
        assert bounds.lower <= truth * (1 + slack), row
        assert bounds.upper >= truth * (1 - slack), row


def test_what_the_page_says_of_riskcal_is_what_was_measured():
    found = json.loads((BENCHMARKS / "results" / "risk.json").read_text())
    page = (BENCHMARKS.parent / "docs" / "meaning.md").read_text(encoding="utf-8")
    assert found["peer"]["riskcal"] in page
    run = next(row for row in found["rows"] if row["steps"] == 14_000)
    for theirs, reached, ours in zip(run["riskcal"]["power"], run["least"], run["filet"]["power"], strict=True):
        assert theirs < reached <= ours
        assert f"{theirs:.6f}" in page
        assert f"{int(reached * 1e6) / 1e6:.6f}" in page
