"""The privacy statement of a run, in words that can be checked against the proofs.

Nothing heavy is imported at the top, so that the command line starts quickly.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .._numbers import round_down, round_up

if TYPE_CHECKING:
    from ..accounting.curve import PrivacyCurve
    from ..accounting.terms import Phase


_ADJACENCY = {
    "add-remove": "Two data sets are neighbours if one is the other without one example.{larger}",
    "zero-out": (
        "Two data sets of the same{public} size are neighbours if one example of one is a zero vector (contributes"
        " nothing) in the other."
    ),
    "replace-one": (
        "Two data sets of the same{public} size are neighbours if one example of one is an arbitrary other in the other."
    ),
}
_LARGER = " dataset_size is public and is the size of the larger of the two."

_THEOREM = {
    ("truncate", "refined"): (
        "the smaller of lending and exchange, for random truncation (documentation, theory page, Theorems 2 and 4)"
    ),
    ("truncate", "swap"): "exchanged examples, for random truncation (documentation, theory page, Theorem 2)",
    ("truncate", "note"): "Ganesh (2025), arXiv 2508.15089, Theorems 3.1, 3.3 and 3.4 (theory page, Theorem 1)",
    ("truncate", "union"): (
        "plain Poisson sampling with delta + (1 + e^epsilon) eta, eta the chance that any batch overflows"
        " (after Chua et al., 2024)"
    ),
    ("reject", "refined"): "Poisson sampling conditioned on fitting (documentation, theory page, Theorem 3)",
}

_SIZE_THEOREM = {
    "public": "",
    "at-most": "; for all sizes up to the largest (Theorem 6)",
    "secret": "; for every size, by a law of batch sizes that does not follow the data (Theorem 5)",
}

_SECRECY = {
    "at-most": (
        "The number of records is at most the largest size, and stays secret: nothing that is released depends on it"
        " but the sums. The guarantee composes with mechanisms that keep it secret, for data sets up to that size."
    ),
    "secret": (
        "The number of records stays secret: nothing that is released depends on it but the sums, and dataset_size was"
        " planned without it. The guarantee composes with mechanisms that keep the number secret."
    ),
}

_OVERFLOW = {
    "truncate": "a larger batch is cut to a uniformly random subset of {cap} examples",
    "reject": "a larger batch is thrown away and drawn again",
}


def statement(curve: PrivacyCurve, delta: float, *, unit: str = "example") -> str:
    """The privacy statement of a run: mechanism, neighbours, guarantee, assumptions, theorems.

    `unit` is the word for what is sampled and clipped: "example", or "user" if the scheme samples users.

    >>> import filet
    >>> scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    >>> curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    >>> print(statement(curve, delta=1e-5).splitlines()[1])
      The outputs of the whole run are (epsilon, delta)-differentially private with epsilon = 2.825 and delta = 1e-05.
    """
    bounds = curve.epsilon_bounds(delta)
    lines = ["Guarantee"]
    if math.isinf(bounds.upper):
        lines += [f"  None: no finite epsilon is proven at delta = {delta!r}."]
    else:
        lines += [
            "  The outputs of the whole run are (epsilon, delta)-differentially private with"
            f" epsilon = {round_up(bounds.upper)} and delta = {delta!r}.",
            "  Epsilon is an upper bound, rounded up, for both orders of the two data sets; the exact value of this",
            f"  analysis is proven to lie in [{round_down(bounds.lower, 6)}, {round_up(bounds.upper, 6)}].",
        ]
    lines += _wrapped(f"It holds for {curve.holds_for}.")
    lines += ["", f"Neighbouring data sets ({curve.adjacency})", *_wrapped(neighbours(curve, unit))]
    lines += ["", "Mechanism"]
    for number, words in enumerate(mechanism(curve, unit), 1):
        numbered = len(curve.phases) > 1 and number <= len(curve.phases)
        lines += _wrapped(words, f"{number}. " if numbered else "")
    for heading, entries in (("Assumptions", assumptions(curve, unit)), ("Theorems", theorems(curve))):
        lines += ["", heading]
        for entry in entries:
            lines += _wrapped(entry, "- ")
    return "\n".join(lines)


def neighbours(curve: PrivacyCurve, unit: str = "example") -> str:
    """The neighbouring data sets of the guarantee, in words."""
    public = curve.size.value == "public"
    words = {"larger": _LARGER if public else "", "public": " public" if public else ""}
    return _ADJACENCY[curve.adjacency.value].format(**words).replace("example", unit)


def mechanism(curve: PrivacyCurve, unit: str = "example") -> list[str]:
    """The mechanism in words: a paragraph for each phase, and one for other Gaussian releases."""
    words = [_phase(phase).replace("example", unit) for phase in curve.phases]
    if curve.gaussian:
        noise = round_down(1 / math.sqrt(curve.gaussian))
        words.append(f"Gaussian releases beside the training, together as private as one of noise multiplier {noise}.")
    return words


def theorems(curve: PrivacyCurve) -> list[str]:
    """The theorems that the guarantee rests on."""
    used = dict.fromkeys(
        (phase.scheme.overflow.value, phase.analysis.value, phase.scheme.size.value) for phase in curve.phases
    )
    return [
        *(
            f"{policy}, {analysis}: {_THEOREM[policy, analysis]}{_SIZE_THEOREM[size]}."
            for policy, analysis, size in used
        ),
        "composition: privacy loss distributions, added up with bounds on every numerical error.",
    ]


def _phase(phase: Phase) -> str:
    scheme = phase.scheme
    overflow = _OVERFLOW[scheme.overflow.value].format(cap=scheme.max_batch_size)
    if not scheme.capped:
        overflow = "there is no cap on the batch"
    cyclic = ""
    if scheme.cycle_length > 1:
        cyclic = (
            f" The examples are split once, at random, into {scheme.cycle_length} groups of {scheme.group_size}, and"
            " step t samples from group t mod the number of groups; each example takes part in at most"
            f" {phase.rounds} steps."
        )
    whole = "examples" if scheme.size.value == "at-most" else f"{scheme.group_size} examples"
    drawn = (
        f"Each includes every one of the {whole} independently with"
        f" probability {scheme.sampling_probability!r}; {overflow}."
    )
    if scheme.size.value == "secret":
        drawn = (
            f"Each draws the size of a batch by the law of Poisson sampling of {scheme.dataset_size} planned examples with"
            f" probability {scheme.sampling_probability!r}, given at most {scheme.max_batch_size}, whatever the number of"
            f" records is; then that many of its slots, one a record and at least {scheme.dataset_size}, uniformly at"
            " random. Slots without a record add nothing."
        )
    return (
        f"{phase.steps} steps. {drawn}"
        f"{cyclic} The step releases the sum of the batch's vectors, each of norm at most C, plus Gaussian noise of"
        f" standard deviation {phase.noise_multiplier!r} C in every coordinate."
    )


def assumptions(curve: PrivacyCurve, unit: str = "example") -> list[str]:
    """The assumptions of the guarantee."""
    given = [words.replace("example", unit) for words in _assumptions(curve)]
    if unit == "user":
        given.append("A user is one person (or what else is to be protected), and every example is of one user alone.")
    return given


def _assumptions(curve: PrivacyCurve) -> list[str]:
    size, kind = curve.dataset_size, curve.size.value
    given = [
        f"dataset_size{'' if size is None else f' = {size}'}, the probabilities, caps, noise multipliers and numbers of"
        " steps are public constants, not computed from the data.",
        "Batches stay secret: neither their members nor their sizes are released, and sums are divided by a constant.",
        "Sampling keys are secret, uniformly random and used for one run.",
        "Vectors are clipped to norm C one example at a time; noise is an ideal Gaussian (computers add it in floating"
        " point).",
        "Everything released from these data is in the list above (what is not must be composed with it).",
    ]
    if kind == "public" and curve.adjacency.value == "add-remove":
        given.append(
            "The guarantee is for this public size. To protect a set of n examples against additions as well, report"
            " the larger of the epsilons for n and n + 1; do not compose it with mechanisms that keep the size private."
        )
    if kind != "public":
        given.append(_SECRECY[kind].format(size=size))
    if any(phase.scheme.cycle_length > 1 for phase in curve.phases):
        given.append("Cyclic sampling: the steps are those of DP-SGD, or of BandMF with at most cycle_length bands.")
    return given


def _wrapped(text: str, mark: str = "", width: int = 110) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, initial_indent="  " + mark, subsequent_indent="  " + " " * len(mark))
