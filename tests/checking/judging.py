"""The engine judged by the checker at random runs, one row of a table for each: python -m tests.checking.judging ordinary

`epsilon_bounds(delta)` says: at `upper` the exact delta is at most delta, at `lower` at least. The exact delta at both is
bracketed in ball arithmetic (`checking_bracket`), and the bracket must not contradict either. Rows are kept in
judged_ordinary.csv and judged_extreme.csv beside this file. A draw depends on its number alone and the table is written anew
after each, so an interrupted run goes on where it was; a larger `--budget` tries again what was too dear. Extremes: n to
10^15, p and 1 - p to 10^-12, noise of 0.05 to 100, delta to 10^-60, up to 10^6 steps.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from flint import fmpq
from tests.checking.checking_bracket import bracket

import filet
from filet._files import whole_file
from filet.accounting.certificate import Plan, estimated_seconds
from filet.checking import Claim

FOLDER = Path(__file__).parent
SEEDS = {"ordinary": 2, "extreme": 3}
POINTS = {"ordinary": 500, "extreme": 200}
ADJACENCIES = ("add-remove", "zero-out", "replace-one")
KINDS = (("truncate", "swap"), ("truncate", "note"), ("reject", "refined"))
RUN = {"n": int, "p": float, "cap": int, "sigma": float, "steps": int, "delta": float, "adjacency": str, "overflow": str,
       "analysis": str}  # fmt: skip
# lower, upper: the engine's. delta_at_upper, delta_at_lower: the end of the exact delta's bracket that may contradict.
# above, below: by how much log(delta) is away from contradiction. seconds: of the processor, for the bracket.
COLUMNS = ("draw", *RUN, "outcome", "lower", "upper", "delta_at_upper", "delta_at_lower", "above", "below", "seconds")
JUDGED, TOO_DEAR = "judged", "too dear"


def ordinary(rng: np.random.Generator, most_steps: float = 2e4) -> dict[str, Any]:
    n = round(10 ** rng.uniform(2, 7))
    p = 10 ** rng.uniform(-3.5, -0.5)
    return {
        "n": n,
        "p": p,
        "cap": max(1, round(n * p + rng.uniform(-1, 4) * math.sqrt(n * p * (1 - p)))),
        "sigma": 10 ** rng.uniform(-0.3, 0.8),
        "steps": round(10 ** rng.uniform(0, math.log10(most_steps))),
        "delta": 10 ** rng.uniform(-10, -3),
    }


def extreme(rng: np.random.Generator) -> dict[str, Any]:
    n = round(10 ** rng.uniform(0.3, 15))
    p = 10 ** rng.uniform(-12, 0)
    if rng.random() < 0.3:
        p = 1 - p
    return {
        "n": n,
        "p": p,
        "cap": max(1, round(n * p + rng.uniform(-5, 8) * math.sqrt(n * p * (1 - p)))),
        "sigma": 10 ** rng.uniform(-1.3, 2),
        "steps": round(10 ** rng.uniform(0, 6)),
        "delta": 10 ** rng.uniform(-60, -1),
    }


def drawn(kind: str, number: int, **options: float) -> dict[str, Any]:
    """The run of this number: the same on every machine, whatever was drawn before."""
    rng = np.random.default_rng([SEEDS[kind], number])
    run = ordinary(rng, **options) if kind == "ordinary" else extreme(rng)
    overflow, analysis = KINDS[rng.integers(3)]
    return {**run, "adjacency": ADJACENCIES[rng.integers(3)], "overflow": overflow, "analysis": analysis}


def curve_of(run: dict[str, Any]) -> filet.PrivacyCurve:
    scheme = filet.CappedPoisson(run["n"], run["p"], run["cap"], overflow=run["overflow"])
    return filet.account(
        scheme,
        noise_multiplier=run["sigma"],
        steps=run["steps"],
        adjacency=run["adjacency"],
        analysis=run["analysis"],
    )


def judge(run: dict[str, Any], budget: float) -> dict[str, Any]:
    """The engine's answer, the exact delta at it, and how far one is from contradicting the other; or why it is not judged."""
    try:
        curve = curve_of(run)
        bounds = curve.epsilon_bounds(run["delta"])
    except filet.FiletError:
        return {"outcome": "refused by the engine"}
    answer = {"lower": bounds.lower, "upper": bounds.upper}
    if curve.phases[0].only_gaussian:
        return {**answer, "outcome": "a closed form"}
    if bounds.upper <= 1e-4:
        return {**answer, "outcome": "epsilon at most 1e-4"}
    if bounds.upper >= 600.0:
        return {**answer, "outcome": "epsilon of 600 or more"}
    try:
        claim = _affordable(Plan.guess(curve, run["delta"], bounds.upper), budget)
    except (filet.FiletError, ValueError):  # the checker's own limits
        return {**answer, "outcome": "beyond the checker"}
    if claim is None:
        return {**answer, "outcome": TOO_DEAR}
    start = time.process_time()
    (lower, _), (_, upper) = bracket(claim, bounds.upper, bounds.lower)
    delta = math.log(run["delta"])
    return {
        **answer,
        "outcome": JUDGED,
        "delta_at_upper": _decimal(lower, ROUND_FLOOR),
        "delta_at_lower": _decimal(upper, ROUND_CEILING),
        "above": delta - _log(lower),
        "below": _log(upper) - delta,
        "seconds": round(time.process_time() - start, 2),
    }


def _affordable(plan: Plan, budget: float) -> dict[str, Any] | None:
    """A claim with the finest lattice, from a seventh of a certificate's spacing to just that, whose bracket is affordable."""
    for finer, share in ((0.15, 0.2), (0.35, 0.5), (1.0, 1.0)):
        one = replace(plan, spacing=finer * plan.spacing, fineness=plan.fineness / math.sqrt(finer))
        (low, high), *_ = one.ranges
        window = 2 * int((one.bound + high - low) / one.spacing) + 2
        if estimated_seconds(Claim(one.witnessed(window))) < share * budget:
            return one.witnessed(4 * window)  # wide enough for any; products stop where masses do
    return None


def _log(value: fmpq) -> float:
    """Natural logarithm of a fraction far beyond floats."""
    return math.log(int(value.p)) - math.log(int(value.q)) if value > 0 else -math.inf


def _decimal(value: fmpq, rounding: str) -> str:
    """Twelve digits on the safe side."""
    return str(Context(prec=12, rounding=rounding).divide(Decimal(int(value.p)), Decimal(int(value.q))))


def table(kind: str) -> dict[int, dict[str, Any]]:
    """The rows found so far, by the number of their draw."""
    path = FOLDER / f"judged_{kind}.csv"
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as lines:
        return {
            int(row["draw"]): {**row, **{k: read(row[k]) for k, read in RUN.items()}} for row in csv.DictReader(lines)
        }


def write(kind: str, rows: dict[int, dict[str, Any]]) -> None:
    with whole_file(FOLDER / f"judged_{kind}.csv") as path, path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[number] for number in sorted(rows))


def judged(kind: str, points: int, budget: float) -> Iterator[dict[str, Any]]:
    """Judge draws that the table has not, until it has enough; those that were too dear are tried again first."""
    rows = table(kind)
    number = 0
    while sum(row["outcome"] == JUDGED for row in rows.values()) < points:
        if number not in rows or (rows[number]["outcome"] == TOO_DEAR and float(rows[number]["seconds"]) < budget):
            run = drawn(kind, number)
            row = {"draw": number, **run, **judge(run, budget)}
            row = {**row, "seconds": budget} if row["outcome"] == TOO_DEAR else row
            rows[number] = row
            write(kind, rows)
            yield row
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=SEEDS)
    parser.add_argument("--points", type=int, help="how many judged runs the table is to have (500, 200)")
    parser.add_argument("--budget", type=float, default=20.0, help="estimated seconds above which a run is put off")
    options = parser.parse_args()
    for row in judged(options.kind, options.points or POINTS[options.kind], options.budget):
        print(
            row["draw"], row["outcome"], row.get("above", ""), row.get("below", ""), row.get("seconds", ""), flush=True
        )
        if row["outcome"] == JUDGED and min(row["above"], row["below"]) < 0.0:
            print("A BOUND IS WRONG:", row, flush=True)


if __name__ == "__main__":
    main()
