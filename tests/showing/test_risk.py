"""Risk measures as data are the curve's own, to the last bit."""

from __future__ import annotations

import json

import filet
from filet.showing.risk import risks

SCHEME = filet.CappedPoisson(1_000, 0.05, 80)


def test_the_measures_are_the_curves_own_and_plain_json() -> None:
    curve = filet.account(SCHEME, noise_multiplier=1.0, steps=100, adjacency="replace-one")
    found = risks(curve, 1e-5, [0.02], [0.1])
    assert found == json.loads(json.dumps(found))
    assert found == {
        "membership_advantage": curve.delta(0.0),
        "true_positive_rates": [
            {"false_positive_rate": 0.02, "true_positive_rate": curve.true_positive_rate(0.02)},
        ],
        "bayes_errors": [{"prior": 0.1, "bayes_error": curve.bayes_error(0.1)}],
        "beliefs": [{"prior": 0.1, "belief": curve.posterior_belief(0.1, 1e-5)}],
    }
