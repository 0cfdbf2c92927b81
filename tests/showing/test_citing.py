"""Citations say what the record says, rounded to the safe side, in the syntax of their readers."""

from __future__ import annotations

import json
import re

import pytest
import yaml

import filet
from filet import InvalidArgumentError
from filet.showing.citing import FORMATS, bibtex, cited, latex, markdown, registry

SCHEME = filet.CappedPoisson(1_000, 0.05, 70)
CURVE = filet.account(SCHEME, noise_multiplier=2.0, steps=100, adjacency="zero-out")
ODD = 'one "row" of 5 % & a_b | {c} #1 ~x^2 \\n'
MADE = filet.record(CURVE, 1e-6, unit=ODD, title="run: 50 % of_it")
EPSILON = filet.round_up(CURVE.epsilon(1e-6))


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_states_the_record(form: str) -> None:
    text = cited(MADE, form)
    assert text.endswith("\n")
    assert MADE["checksum"][:8] in text
    assert (EPSILON if form not in ("json", "registry") else repr(CURVE.epsilon(1e-6))) in text


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="format='html' is unknown"):
        cited(MADE, "html")


def test_the_model_cards_front_matter_is_yaml_with_numbers() -> None:
    _, front, body = markdown(MADE).split("---\n", 2)
    fields = yaml.safe_load(front)["differential_privacy"]
    assert fields["unit"] == ODD
    assert fields["epsilon"] == float(EPSILON)
    assert fields["delta"] == 1e-6
    assert fields["adjacency"] == "zero-out"
    for line in re.findall(r"^\|.*$", body, re.M):
        assert len(re.findall(r"(?<!\\)\|", line)) == 3, line


def test_tex_is_escaped() -> None:
    for text in (latex(MADE), bibtex(MADE)):
        assert r"5 \% \& a\_b | \{c\} \#1 \textasciitilde{}x\textasciicircum{}2 \textbackslash{}n" in text
        depth = 0
        for character in re.sub(r"\\.", "", text):
            depth += {"{": 1, "}": -1}.get(character, 0)
            assert depth >= 0
        assert depth == 0
    assert "10^{-6}" in latex(MADE)
    assert r"1.1 \cdot 10^{-10}" in latex(filet.record(CURVE, 1.1e-10))
    assert ", 0.001)$" in latex(filet.record(CURVE, 0.001))


def test_the_registry_leaves_empty_what_only_a_curator_knows() -> None:
    fields = json.loads(registry(MADE))
    assert fields["privacy_loss"]["epsilon"] == CURVE.epsilon(1e-6)
    assert fields["data_product"]["data_curator"] == ""
    assert "dataset_size" in fields["flavor"]["unprotected_quantities"]


def test_runs_without_an_attack_are_cited_too() -> None:
    accountant = filet.Accountant("zero-out")
    accountant.compose_gaussian(3.0)
    made = filet.record(accountant.curve(), 1e-6)
    for form in FORMATS:
        assert "None" not in cited(made, form)
    assert "explicit attack" not in latex(made)
