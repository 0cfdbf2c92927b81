"""Risk measures beside riskcal's: advantage, power of attacks, Bayes error, and noise for an advantage.

    python benchmarks/bench_risk.py [--quick]

Prints a table and writes results/risk.json. Plain Poisson sampling under add-remove, as riskcal has no cap. Where
a closed form is known, the exact power stands beside both.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
from typing import Any

import numpy as np
from common import HERE, machine, timed, write_json
from peers import python_of
from scipy.special import ndtr, ndtri

import filet
from filet.accounting.curve import delta_brackets_each_order

RATES, PRIORS = (0.001, 0.01, 0.05), (0.5, 0.01)
RUNS: dict[str, dict[str, Any]] = {
    "one Gaussian": {"p": 1.0, "sigma": 1.0, "steps": 1, "advantages": []},
    "one step, p = 0.1": {"p": 0.1, "sigma": 1.0, "steps": 1, "advantages": [], "grid": 1e-5},
    "A without a cap": {"p": 256 / 60_000, "sigma": 1.0, "steps": 14_000, "advantages": [0.1, 0.25]},
}


def exact_power(run: dict[str, Any]) -> list[float] | None:
    """The largest true positive rate of one step, over both orders of the neighbours; None for more steps."""
    if run["steps"] != 1:
        return None
    p, shift = run["p"], 1.0 / run["sigma"]

    def power(rate: float) -> float:
        # With the example the output is (1-p) N(0) + p N(shift), without it N(0): accuse what is large, or small.
        added = float((1 - p) * rate + p * ndtr(shift - ndtri(1 - rate)))
        low, high = -40.0, 40.0  # the largest threshold below which the mixture has this mass
        for _ in range(200):
            middle = 0.5 * (low + high)
            mass = (1 - p) * ndtr(middle) + p * ndtr(middle - shift)
            low, high = (middle, high) if mass <= rate else (low, middle)
        return max(added, float(ndtr(low)))

    return [power(rate) for rate in RATES]


def least_power(run: dict[str, Any]) -> list[float]:
    """True positive rates that an attack on one order of the neighbours is proven to reach.

    The best attack reaches the least H_a + a f over a >= 0, and H falls in a: between two thresholds it is at least its
    lower bound at the larger one, and a at least the smaller one. Below a = 1 it is at least H_1.
    """
    scheme = filet.CappedPoisson.uncapped(60_000, run["p"])
    curve = filet.account(scheme, noise_multiplier=run["sigma"], steps=run["steps"], adjacency="add-remove")
    logs = np.linspace(0.0, 7.0, 3501)
    found = []
    for bounds in delta_brackets_each_order(curve, logs):
        lower, above = np.asarray(bounds.lower), np.exp(logs)
        found.append([float(min((lower[1:] + above[:-1] * f).min(), lower[0], above[-1] * f)) for f in RATES])
    return [max(pair) for pair in zip(*found, strict=True)]


def by_filet(run: dict[str, Any]) -> dict[str, Any]:
    scheme = filet.CappedPoisson.uncapped(60_000, run["p"])

    def measures() -> dict[str, Any]:
        curve = filet.account(scheme, noise_multiplier=run["sigma"], steps=run["steps"], adjacency="add-remove")
        return {
            "advantage": curve.membership_advantage(),
            "power": [curve.true_positive_rate(rate) for rate in RATES],
            "bayes_errors": [curve.bayes_error(prior) for prior in PRIORS],
        }

    found, ms = timed(measures)
    noises = []
    for advantage in run["advantages"]:
        noise, taken = timed(
            lambda advantage=advantage: filet.calibrate_noise_multiplier(  # type: ignore[misc]
                scheme, steps=run["steps"], advantage=advantage, adjacency="add-remove"
            ),
            seconds=0.0,
        )
        noises.append({"advantage": advantage, "noise": noise, "ms": taken})
    return {**found, "ms": ms, "noises": noises}


def by_riskcal(python: str, run: dict[str, Any]) -> dict[str, Any]:
    asked = json.dumps({**run, "rates": RATES, "priors": PRIORS}) + "\n"
    ran = subprocess.run(
        [python, str(HERE / "risk_worker.py")], input=asked, capture_output=True, text=True, check=True
    )
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="no calibrations")
    quick = parser.parse_args().quick
    python = python_of("riskcal")
    rows = []
    for name, run in RUNS.items():
        given = {**run, "advantages": []} if quick else run
        row = {"run": name, **run, "least": least_power(run), "exact": exact_power(run)}
        row |= {"filet": by_filet(given), "riskcal": by_riskcal(python, given)}
        rows.append(row)
        print(name, *(f"{who}: {row[who]['power']}" for who in ("filet", "riskcal")), sep="\n  ", flush=True)
    about = {"machine": machine("numpy", "scipy", "filet"), "peer": rows[-1]["riskcal"]["versions"]}
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    write_json("risk", {**about, "date": day, "quick": quick, "rates": RATES, "priors": PRIORS, "rows": rows})


if __name__ == "__main__":
    main()
