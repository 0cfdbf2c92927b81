"""Draw what epsilon 4 means: python docs/_scripts/risk_figure.py (a few seconds; the same bytes every time)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import filet
from filet.showing import plots

STATIC = Path(__file__).resolve().parents[1] / "_static"
EPSILON, DELTA = 4.0, 1e-5


def run() -> filet.PrivacyCurve:
    """A training run whose noise is calibrated to epsilon 4."""
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    noise = filet.calibrate_noise_multiplier(scheme, steps=14_000, epsilon=EPSILON, delta=DELTA, adjacency="zero-out")
    return filet.account(scheme, noise_multiplier=noise, steps=14_000, adjacency="zero-out")


def main() -> None:
    curve = run()
    left = plots.new_axes(7.6, 3.7)
    left.set_position((0.08, 0.14, 0.38, 0.74))
    right = left.figure.add_axes((0.58, 0.14, 0.38, 0.74))
    rates = np.linspace(0.0, 1.0, 401)
    anything = np.minimum(math.exp(EPSILON) * rates + DELTA, 1 - math.exp(-EPSILON) * (1 - DELTA - rates))
    left.plot(rates, np.minimum(anything, 1.0), color=plots.RED, linestyle="--", label="any release with epsilon 4")
    left.plot(rates, curve.true_positive_rate(rates), color=plots.BLUE, linewidth=2.0, label="this training run")
    left.plot(rates, rates, color=plots.GREY, linestyle=":", label="tossing a coin")
    left.set_xlabel("accused, though not in the data")
    left.set_ylabel("found, if in the data")
    left.set_title("The best possible attack", fontsize=10)
    left.legend(fontsize=8, loc="lower right")
    priors = np.concatenate([np.linspace(0.001, 0.05, 40), np.linspace(0.06, 0.999, 100)])
    for delta, colour, words in ((1e-5, plots.BLUE, "99.999"), (0.01, plots.ORANGE, "99"), (0.1, plots.GREEN, "90")):
        beliefs = [curve.posterior_belief(float(prior), delta) for prior in priors]
        right.plot(priors, beliefs, color=colour, label=f"in {words} % of runs")
    right.plot([0, 1], [0, 1], color=plots.GREY, linestyle=":", label="nothing learnt")
    right.set_xlabel("belief before")
    right.set_ylabel("belief after, at most")
    right.set_title("What an attacker may come to believe", fontsize=10)
    right.legend(fontsize=8, loc="lower right")
    for ax in (left, right):
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1.01)
    STATIC.mkdir(exist_ok=True)
    plots.save(left, STATIC / "risk.svg")


if __name__ == "__main__":
    main()
