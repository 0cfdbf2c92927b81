"""Risk measures of a run as plain data: limits of any attack on one example.

Nothing heavy is imported at the top, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..accounting.curve import PrivacyCurve

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.05)
PRIORS = (0.01, 0.5)


def risks(
    curve: PrivacyCurve,
    delta: float,
    false_positive_rates: Sequence[float] = FALSE_POSITIVE_RATES,
    priors: Sequence[float] = PRIORS,
) -> dict[str, Any]:
    """The risk measures of a run, all proven: Bayes errors from below, the others from above.

    >>> import filet
    >>> scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    >>> curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    >>> found = risks(curve, delta=1e-5)
    >>> filet.round_up(found["membership_advantage"]), filet.round_up(found["beliefs"][0]["belief"], 3)
    ('0.2579', '0.214')

    Arguments:
        curve: the run.
        delta: the chance of outputs that the beliefs leave out.
        false_positive_rates: where to state the largest true positive rate.
        priors: beliefs of an attacker before the run.
    """
    return {
        "membership_advantage": curve.membership_advantage(),
        "true_positive_rates": [
            {"false_positive_rate": rate, "true_positive_rate": curve.true_positive_rate(rate)}
            for rate in false_positive_rates
        ],
        "bayes_errors": [{"prior": prior, "bayes_error": curve.bayes_error(prior)} for prior in priors],
        "beliefs": [{"prior": prior, "belief": curve.posterior_belief(prior, delta)} for prior in priors],
    }
