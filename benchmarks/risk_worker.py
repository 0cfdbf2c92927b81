"""Risk measures by riskcal, in its own environment: one line of JSON in, one out.

    echo '{"p": 0.004, "sigma": 1.0, "steps": 100, "rates": [0.01], "priors": [0.5], "advantages": []}' |
        python benchmarks/risk_worker.py

The loss distribution is what riskcal's own calibration makes. `profile` is what the same distribution
gives without riskcal: the least delta(log a) + a * rate over thresholds a, an upper bound of the power.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np
from common import plain, timed, versions

pld_module = import_module("dp_accounting.pld.privacy_loss_distribution")
analysis, dpsgd = import_module("riskcal.analysis"), import_module("riskcal.calibration.dpsgd")
GRID = 1e-4  # riskcal's default


def measured(asked: dict[str, Any]) -> dict[str, Any]:
    pld, built = timed(lambda: _pld(asked), seconds=0.0)
    rates, priors = np.array(asked["rates"]), asked["priors"]
    power, ms = timed(lambda: 1.0 - analysis.get_beta_from_pld(pld, alpha=rates), seconds=0.0)
    thresholds = np.linspace(-8.0, 8.0, 4001)  # logarithms
    deltas = np.array(pld.get_delta_for_epsilon(thresholds))
    profile = [float(np.min(deltas + np.exp(thresholds) * rate)) for rate in rates]
    return {
        "advantage": analysis.get_advantage_from_pld(pld),
        "power": list(power),
        "profile": profile,
        "bayes_errors": [float(analysis.get_bayes_risk_from_pld(pld, prior)) for prior in priors],
        "ms": built + ms,
        "noises": [_calibrated(asked, advantage) for advantage in asked["advantages"]],
        "versions": versions("riskcal", "dp-accounting", "numpy", "scipy"),
    }


def _pld(asked: dict[str, Any]) -> Any:
    return pld_module.from_gaussian_mechanism(
        standard_deviation=asked["sigma"],
        sampling_prob=asked["p"],
        use_connect_dots=True,
        value_discretization_interval=asked.get("grid", GRID),
    ).self_compose(asked["steps"])


def _calibrated(asked: dict[str, Any], advantage: float) -> dict[str, Any]:
    def find() -> float:
        return float(dpsgd.find_noise_multiplier_for_advantage(advantage, asked["p"], asked["steps"]))

    noise, ms = timed(find, seconds=0.0)
    return {"advantage": advantage, "noise": noise, "ms": ms}


if __name__ == "__main__":
    print(json.dumps(plain(measured(json.loads(sys.stdin.readline())))))
