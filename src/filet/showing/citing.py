"""A record in the words of others: a model card, a paper, a bibliography, a registry of deployments."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .._checks import fail, show
from .._numbers import round_down, round_up

_TITLE = "Privacy record of a training run"


def markdown(made: Mapping[str, Any]) -> str:
    """A block for a Hugging Face model card: front matter and a table.

    >>> import filet
    >>> scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    >>> curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    >>> print(markdown(filet.record(curve, 1e-5)).splitlines()[6])
      epsilon: 2.825
    """
    guarantee, unit = made["guarantee"], made["privacy_unit"]
    front = [
        "---",
        "tags:",
        "- differential-privacy",
        "- dp-sgd",
        "differential_privacy:",
        f"  unit: {json.dumps(unit['unit'], ensure_ascii=False)}",  # JSON strings are YAML strings
        f"  epsilon: {round_up(guarantee['epsilon'])}",
        f"  delta: {_yaml(guarantee['delta'])}",
        f"  adjacency: {unit['adjacency']}",
        f"  record: {made['checksum']}",
        "---",
    ]
    rows = [f"| {name} | {_cell(value)} |" for name, value in _facts(made)]
    return "\n".join([*front, "", "## Differential privacy", "", "| | |", "| --- | --- |", *rows, ""])


def _yaml(value: float) -> str:
    """A number that every YAML reader takes for one: 1e-05 is text to some."""
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent):+03d}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _facts(made: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of the table, rounded to the safe side."""
    guarantee, risk, unit = made["guarantee"], made["risk"], made["privacy_unit"]
    attack, proof = made["attack"], made["certificate"]
    facts = [("Run", made["title"])] if made["title"] else []
    facts += [
        (
            "Guarantee",
            f"epsilon = {round_up(guarantee['epsilon'])} at delta = {guarantee['delta']!r}, for the whole run",
        ),
        ("Number of records", guarantee["holds_for"]),
        ("Unit of privacy", unit["unit"]),
        ("Neighbours", f"{unit['adjacency']}. {unit['neighbours']}"),
    ]
    facts += [("Mechanism", words) for words in made["mechanism"]["words"]]
    facts += [("Analysis", words) for words in guarantee["theorems"]]
    if attack["attack_epsilon"] is not None:
        facts.append(("Attack", f"epsilon is at least {round_down(attack['attack_epsilon'])}: {attack['words']}"))
    facts.append(("Membership advantage", f"at most {round_up(risk['membership_advantage'])}"))
    for one in risk["true_positive_rates"]:
        power, rate = round_up(one["true_positive_rate"]), one["false_positive_rate"]
        facts.append(("Attack's true positive rate", f"at most {power} at false positive rate {rate!r}"))
    for one in risk["beliefs"]:
        words = f"from {one['prior']!r} to at most {round_up(one['belief'])}, but for outputs of chance"
        facts.append(("Attacker's belief", f"{words} {guarantee['delta']!r}"))
    facts.append(("Certificate", f"epsilon = {proof['epsilon']}" if proof else "none in this record"))
    facts.append(("Record", f"filet {made['made_with']['filet']}, `{made['checksum']}`"))
    return facts


_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def _tex(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)


def _power(value: float) -> str:
    """A number in TeX's words, as it is: 1.1e-10 is 1.1 times ten to the minus ten."""
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    ten = f"10^{{{int(exponent)}}}"
    return ten if mantissa == "1" else rf"{mantissa} \cdot {ten}"


def latex(made: Mapping[str, Any]) -> str:
    """A sentence with a footnote for a paper."""
    guarantee, unit, risk = made["guarantee"], made["privacy_unit"], made["risk"]
    mechanism = " ".join([*made["mechanism"]["words"], *guarantee["theorems"]])
    attack = made["attack"]["attack_epsilon"]
    lower = "" if attack is None else f" An explicit attack proves $\\varepsilon \\ge {round_down(attack)}$."
    return (
        f"The training run is $({round_up(guarantee['epsilon'])}, {_power(guarantee['delta'])})$-differentially"
        f" private for {_tex(unit['unit'])} under {_tex(unit['adjacency'])} adjacency,"
        f" for {_tex(guarantee['holds_for'])}.%\n"
        f"\\footnote{{{_tex(unit['neighbours'])} {_tex(mechanism)}{lower} No attack has a membership advantage above"
        f" {round_up(risk['membership_advantage'])}. Accounted for with filet {_tex(made['made_with']['filet'])};"
        f" record \\texttt{{{made['checksum'][:16]}}}.}}\n"
    )


def bibtex(made: Mapping[str, Any]) -> str:
    """An entry that cites the record."""
    guarantee = made["guarantee"]
    claim = f"({round_up(guarantee['epsilon'])}, {guarantee['delta']!r})-differential privacy"
    unit = f"{_tex(made['privacy_unit']['unit'])}, {made['privacy_unit']['adjacency']} adjacency"
    return (
        f"@misc{{filet-record-{made['checksum'][:8]},\n"
        f"  title = {{{_tex(made['title'] or _TITLE)}}},\n"
        f"  note = {{{claim}; {unit}; record {made['checksum']}}},\n"
        f"  howpublished = {{filet {_tex(made['made_with']['filet'])}, \\url{{https://github.com/filet-dp/filet}}}}\n"
        "}\n"
    )


def registry(made: Mapping[str, Any]) -> str:
    """The fields that a registry of deployments asks for, as JSON; fields that only the curator knows are left empty."""
    guarantee, unit = made["guarantee"], made["privacy_unit"]
    fields = {
        "data_product": {"name": made["title"], "data_curator": "", "intended_use": "", "publication_year": ""},
        "flavor": {
            "name": "Approximate DP",
            "data_domain": unit["unit"],
            "unprotected_quantities": made["public"],
        },
        "privacy_loss": {
            "privacy_unit": unit["unit"],
            "privacy_unit_description": unit["neighbours"],
            "epsilon": guarantee["epsilon"],
            "delta": guarantee["delta"],
        },
        "model": {"name": "Central", "trusted": made["secret"]},
        "accounting": {"composition": guarantee["theorems"], "post_processing": "any, without further cost"},
        "implementation": {
            "libraries": made["made_with"],
            "mechanisms": made["mechanism"]["words"],
            "assumptions": made["assumptions"],
        },
        "record": made["checksum"],
    }
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "json": lambda made: json.dumps(made, indent=2, allow_nan=False) + "\n",
    "markdown": markdown,
    "latex": latex,
    "bibtex": bibtex,
    "registry": registry,
}


def cited(made: Mapping[str, Any], form: str) -> str:
    """A record as text: "json", "markdown", "latex", "bibtex" or "registry"."""
    if form not in FORMATS:
        raise fail(f"format={show(form)} is unknown; pass one of {', '.join(map(repr, FORMATS))}")
    return FORMATS[form](made)
