"""The command `risk`: the library's measures, exact in JSON, rounded to the safe side in print."""

import json
import re

from tests.cli.invoke import ZERO_OUT, curve, one_line, run

from filet.showing.risk import risks


def test_json_holds_the_librarys_measures():
    answer = json.loads(run("risk", *ZERO_OUT, "--delta", "1e-5", "--json").stdout)
    assert answer["schema"] == "filet.risk.v1"
    assert answer["result"] == risks(curve(), 1e-5)


def test_print_rounds_to_the_safe_side():
    text = run("risk", *ZERO_OUT, "--delta", "1e-5", "--prior", "0.1", "--false-positive-rate", "0.02").stdout
    shown = {name.strip(): float(value) for name, value in re.findall(r"^([a-z ]+?)  +([\d.e-]+) at", text, re.M)}
    one = curve()
    assert list(shown) == ["membership advantage", "true positive rate", "bayes error", "posterior belief"]
    assert one.membership_advantage() <= shown["membership advantage"] <= one.membership_advantage() * 1.001
    assert one.true_positive_rate(0.02) <= shown["true positive rate"] <= one.true_positive_rate(0.02) * 1.001
    assert one.bayes_error(0.1) * 0.999 <= shown["bayes error"] <= one.bayes_error(0.1)
    assert one.posterior_belief(0.1, 1e-5) <= shown["posterior belief"] <= one.posterior_belief(0.1, 1e-5) * 1.001


def test_wrong_rates_and_priors_are_refused_in_a_line():
    assert "prior=1.0 is not in (0, 1)" in one_line(run("risk", *ZERO_OUT, "--delta", "1e-5", "--prior", "1"), 2)
    wrong = run("risk", *ZERO_OUT, "--delta", "1e-5", "--false-positive-rate", "2")
    assert "false_positive_rate=2.0 is not in [0, 1]" in one_line(wrong, 2)
    assert "delta is missing" in one_line(run("risk", *ZERO_OUT), 2)
