"""Certificates are made for what the engine proves: the checker accepts them, and they cost next to nothing."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from scipy.special import ndtr
from tests.checking.checking_lending import rows
from tests.cli.invoke import ENVIRONMENT
from tests.settings import SETTINGS

import filet
from filet.accounting.certificate import (
    LARGEST_COST,
    Plan,
    certificate,
    estimated_seconds,
    lending_rows,
    rounded_up,
    signed,
)
from filet.accounting.proving.theorems import lending_step
from filet.accounting.search.lending import choose_shares, lenders
from filet.accounting.terms import Adjacency
from filet.checking import Claim, check, read
from filet.checking.theorems import Step

ADJACENCIES = ("add-remove", "zero-out", "replace-one")
KINDS = (("truncate", "refined"), ("truncate", "swap"), ("truncate", "note"), ("reject", "refined"))


def run(name: str, adjacency: str, overflow: str = "truncate", analysis: str = "refined") -> tuple[Any, float]:
    s = SETTINGS[name]
    scheme = s.scheme(overflow)
    return (
        filet.account(scheme, noise_multiplier=s.sigma, steps=s.steps, adjacency=adjacency, analysis=analysis),
        s.delta,
    )


def certify(curve: filet.PrivacyCurve, delta: float, analysis: str) -> dict[str, Any]:
    """The curve's certificate, which must be accepted after a trip through JSON, by the theorem, and cost little."""
    found = curve.certificate(delta)
    bounds = curve.epsilon_bounds(delta)
    assert found["phases"][0]["analysis"] == analysis
    assert 0.999 * bounds.lower < float(found["epsilon"]) <= bounds.upper * (1 + LARGEST_COST)
    verdict = check(json.loads(json.dumps(found)), max_seconds=60)
    assert verdict.ok, verdict.reason
    assert float(verdict.delta) <= delta
    return found


# --- the settings of the theory page ---


@pytest.mark.long
@pytest.mark.parametrize(("overflow", "analysis"), KINDS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_setting_b_is_certified_for_every_adjacency_and_analysis(adjacency: str, overflow: str, analysis: str) -> None:
    certify(*run("B", adjacency, overflow, analysis), analysis)


@pytest.mark.slow
@pytest.mark.parametrize(("overflow", "analysis"), KINDS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", "ACDE")
def test_the_other_settings_are_certified(name: str, adjacency: str, overflow: str, analysis: str) -> None:
    certify(*run(name, adjacency, overflow, analysis), analysis)


@pytest.mark.parametrize(("name", "adjacency", "gain"), [("A", "zero-out", 0.009), ("D", "add-remove", 0.65)])
@pytest.mark.long
def test_lending_is_certified_and_gains_what_the_curve_gains(name: str, adjacency: str, gain: float) -> None:
    found = certify(*run(name, adjacency), "refined")
    swap, delta = run(name, adjacency, analysis="swap")
    assert float(found["epsilon"]) < (1 - gain) * swap.epsilon(delta)


# --- lending ---


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "p", "cap", "sigma"),
    [(1_000, 0.05, 90, 2.0), (1_000, 0.05, 1, 2.0), (1_000, 0.05, 60, 0.09), (1_000, 0.05, 1_000, 2.0)],
    ids=["cap far out", "cap of one", "little noise", "no cap"],
)
def test_where_lending_gains_nothing_the_exchange_argument_is_certified(
    n: int, p: float, cap: int, sigma: float
) -> None:
    scheme = filet.CappedPoisson(n, p, cap)
    curve = filet.account(scheme, noise_multiplier=sigma, steps=10, adjacency="zero-out")
    found = certify(curve, 1e-5, "swap")
    assert found["witness"]["lending"] == [None]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", "ABE")
def test_the_rows_are_near_the_best_and_in_the_checkers_units(name: str, adjacency: str) -> None:
    """An independent fixed point gives profiles that are hardly lower, at any loss that matters."""
    s, nodes, spacing = SETTINGS[name], [-40, -1, 0, 1, 5, 40, 160, 400], 0.005
    step = lending_step(s.scheme(), s.sigma, Adjacency(adjacency), lenders(s.cap, s.sigma))
    assert step is not None
    with np.errstate(all="ignore"):  # as a certificate is made
        mine = lending_rows(choose_shares(step), nodes, spacing)
    phase = {"dataset_size": s.n, "cycle_length": 1, "max_batch_size": s.cap, "sampling_probability": repr(s.p),
             "noise_multiplier": repr(s.sigma)}  # fmt: skip
    others = rows(phase, adjacency, nodes, spacing)
    least = math.log1p(-step.weights.tq / step.weights.tau) if adjacency == "add-remove" else 0.0
    assert [row is None for row in mine] == [spacing * k <= least for k in nodes]
    with ctx.workprec(200):
        for k, *both in zip(nodes, mine, others, strict=True):
            if k <= 0:
                continue
            assert both[0] is not None
            assert all(type(v) is int for v in both[0])
            assert 0 < len(both[0]) - 1 <= step.lenders
            assert all(0 <= v <= 4096 for v in both[0][1:])
            values = []
            for row in both:
                lend = {k: ([fmpq(v, 4096) for v in row[1:]], fmpq(row[0], 2**20))} if row else {}
                one = Step(s.n, fmpq(*s.p.as_integer_ratio()), s.cap, fmpq(int(s.sigma)) ** 2, "truncate", adjacency, "refined", lend)  # fmt: skip
                values.append(float(one.profile(arb(k) / 200, k)))
            assert values[0] <= 1.01 * values[1] + 1e-12, (k, values)


@pytest.mark.long
def test_several_phases_lend_each_for_itself() -> None:
    accountant = filet.Accountant("add-remove")
    for cap, noise in ((52, 1.0), (200, 1.0), (55, 2.0)):
        accountant.compose(filet.CappedPoisson(1_000, 0.05, cap), noise_multiplier=noise, steps=30)
    found = certificate(accountant.curve(), 1e-5)
    assert [phase["analysis"] for phase in found["phases"]] == ["refined", "swap", "refined"]
    first, none, last = found["witness"]["lending"]
    assert none is None
    assert first != last
    assert float(found["epsilon"]) <= accountant.curve().epsilon(1e-5) * (1 + LARGEST_COST)


# --- other runs ---


@pytest.mark.long
def test_plain_poisson_is_where_other_accountants_see_it() -> None:
    """Setting A without a cap: 2.81572 in the theory page's table, so 2.8167 is proven and 2.8150 cannot be."""
    s = SETTINGS["A"]
    curve = filet.account(s.uncapped(), noise_multiplier=s.sigma, steps=s.steps, adjacency="zero-out")
    found = certificate(curve, s.delta)
    assert 2.81572 < float(found["epsilon"]) < 2.8172
    assert not check(signed({**found, "epsilon": "2.815"})).ok


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_gaussian_releases_have_the_closed_form(adjacency: str) -> None:
    accountant = filet.Accountant(adjacency)
    accountant.compose_gaussian(2.0, count=3)
    accountant.compose(filet.CappedPoisson(100, 1.0, 100), noise_multiplier=4.0, steps=8)
    found = certificate(accountant.curve(), 1e-6)
    mu, epsilon = math.sqrt(3 / 4 + 8 * (4 if adjacency == "replace-one" else 1) / 16), float(found["epsilon"])
    truth = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    assert 0.99e-6 < truth < 1e-6
    assert check(found).ok


@pytest.mark.long
def test_phases_cycles_union_and_gaussians_are_composed() -> None:
    accountant = filet.Accountant("zero-out")
    accountant.compose(filet.CappedPoisson(4_000, 0.1, 160, cycle_length=4), noise_multiplier=2.0, steps=203)
    accountant.compose(filet.CappedPoisson(5_000, 0.01, 60, overflow="reject"), noise_multiplier=1.5, steps=100)
    accountant.compose(filet.CappedPoisson(5_000, 0.01, 120), noise_multiplier=1.5, steps=50, analysis="union")
    accountant.compose_gaussian(8.0)
    curve = accountant.curve()
    found = certificate(curve, 1e-6)
    assert curve.epsilon_bounds(1e-6).lower < float(found["epsilon"]) < curve.epsilon(1e-6) * 1.001
    words = check(found).words
    for part in ("203 steps", "4 group(s)", "reject", "union", "Gaussian releases", "1e-06", "replaced by zero"):
        assert part in words


def test_nothing_released_costs_nothing() -> None:
    found = certificate(filet.Accountant("replace-one").curve(), 1e-5)
    assert found["epsilon"] == "0.0"
    assert check(found).ok


@pytest.mark.parametrize(("n", "p", "words"), [(100, 0.1, "no finite epsilon"), (10**9, 1e-9, "noise_multiplier=0.0")])
def test_a_run_without_noise_has_no_certificate(n: int, p: float, words: str) -> None:
    curve = filet.account(filet.CappedPoisson(n, p, 20), noise_multiplier=0.0, steps=1, adjacency="zero-out")
    with pytest.raises(filet.NotCertifiedError, match=words):
        certificate(curve, 1e-5)


def test_what_the_checkers_format_cannot_hold_is_a_refusal() -> None:
    scheme = filet.CappedPoisson(100, 1.0, 100)
    curve = filet.account(scheme, noise_multiplier=1e7, steps=10**12, adjacency="zero-out")
    with pytest.raises(filet.NotCertifiedError, match=r"no certificate can hold this run \(steps must be"):
        curve.certificate(1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, "x", [1e-5, 1e-6], math.nan])
def test_delta_is_checked_first(delta: Any) -> None:
    curve = filet.Accountant("zero-out").curve()
    with pytest.raises(filet.InvalidArgumentError, match="delta"):
        curve.certificate(delta)


@pytest.mark.long
def test_any_float_of_delta_is_understood() -> None:
    scheme = filet.CappedPoisson(1_000, 0.05, 80)
    curve = filet.account(scheme, noise_multiplier=2.0, steps=10, adjacency="zero-out")
    assert curve.certificate(np.float64(1e-5)) == curve.certificate(1e-5)


# --- numbers ---


@pytest.mark.parametrize("sigma", [1.2, 0.7, 2.0, 1e17, 1 / 3])
@pytest.mark.parametrize("p", [256 / 60_000, 0.05, 1.2e-8, 1.0])
def test_numbers_in_claims_are_as_python_writes_them_and_are_the_floats_of_the_run(sigma: float, p: float) -> None:
    curve = filet.account(filet.CappedPoisson(60_000, p, 300), noise_multiplier=sigma, steps=5, adjacency="zero-out")
    phase = Plan.guess(curve, 1e-5, 1.0).body["phases"][0]
    assert (phase["sampling_probability"], phase["noise_multiplier"]) == (repr(p), repr(sigma))
    assert read("noise_multiplier", phase["noise_multiplier"], 1e18) == fmpq(*sigma.as_integer_ratio())


def test_a_certificate_says_the_noise_that_was_asked_for() -> None:
    scheme = filet.CappedPoisson(1_000, 0.05, 80)
    curve = filet.account(scheme, noise_multiplier=1.2, steps=10, adjacency="zero-out")
    assert (
        "Poisson rate 0.05, at most 80 a batch (truncate), noise multiplier 1.2, "
        in check(certificate(curve, 1e-5)).words
    )


@pytest.mark.parametrize("value", [0.0, 1 / 3, 0.25, 7.0, 1e-12, 3.0000000001e-5, 123456.789, 999_999.99])
def test_epsilons_are_rounded_up_to_a_form_that_the_checker_reads(value: float) -> None:
    found = rounded_up(value)
    assert value <= float(found) <= value * (1 + 1e-7)
    exact = read("epsilon", found, 10**6)
    assert fmpq(*value.as_integer_ratio()) <= exact == fmpq(*Fraction(found).as_integer_ratio())


def test_epsilons_have_eight_digits() -> None:
    assert rounded_up(1 / 3) == "0.33333334"
    assert rounded_up(0.25) == "0.25"
    assert rounded_up(1e-9 / 3) == "3.3333334e-10"


@pytest.mark.long
def test_a_plan_gets_finer_until_it_costs_little() -> None:
    scheme = filet.CappedPoisson(1_000, 0.05, 80)
    curve = filet.account(scheme, noise_multiplier=2.0, steps=10, adjacency="zero-out")
    plan = Plan.guess(curve, 1e-5, curve.epsilon(1e-5))
    finer = plan.finer(4e-3)
    assert finer.spacing < 0.4 * plan.spacing
    assert finer.claim()[1] <= plan.claim()[1]


def test_without_the_package_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['flint'] = None\nimport filet\n"
        "try:\n    filet.Accountant('zero-out').curve().certificate(1e-5)\n"
        "except filet.MissingExtraError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert result.stdout.strip() == "certificates need python-flint; install it with: pip install 'filet[check]'"


# --- what it takes ---


def small() -> filet.PrivacyCurve:
    return filet.account(filet.CappedPoisson(1_000, 0.05, 80), noise_multiplier=2.0, steps=20, adjacency="zero-out")


def test_progress_rises_to_the_end() -> None:
    heard: list[tuple[float, str]] = []
    claim = certificate(small(), 1e-5, progress=lambda share, label: heard.append((share, label)))
    shares, labels = zip(*heard, strict=True)
    assert list(shares) == sorted(shares)
    assert len(set(shares)) > 8
    assert shares[0] < 0.2
    assert shares[-1] == 1.0
    assert list(dict.fromkeys(labels)) == ["composing", "checking"]
    ticks: list[float] = []
    assert check(claim, progress=ticks.append).ok
    assert ticks == sorted(ticks)
    assert ticks[-1] == 1.0


@pytest.mark.parametrize("limit", [{"max_seconds": 1e-3}, {"max_bytes": 1e7}])
def test_what_takes_more_than_allowed_is_refused_before_it_starts(limit: dict[str, float]) -> None:
    heard: list[float] = []
    with pytest.raises(filet.NotCertifiedError, match=r"may take \d+ s and \d+ MB; pass larger max_seconds"):
        small().certificate(1e-5, progress=lambda share, label: heard.append(share), **limit)
    assert not heard


@pytest.mark.parametrize("name", ["max_seconds", "max_bytes"])
def test_limits_are_numbers(name: str) -> None:
    with pytest.raises(filet.InvalidArgumentError, match=name):
        small().certificate(1e-5, **{name: "long"})
    with pytest.raises(filet.InvalidArgumentError, match=f"{name}=nan is not a number; pass the .* that it may take"):
        small().certificate(1e-5, **{name: math.nan})


def test_the_estimate_knows_of_steps_nodes_bits_tails_and_phases() -> None:
    """Seconds are measured by benchmarks/bench_certificates.py; here, what takes longer is estimated to."""
    plan = Plan.guess(small(), 1e-5, small().epsilon(1e-5))
    body = plan.witnessed(5_000)
    phase, witness = body["phases"][0], body["witness"]

    def seconds(changes: dict[str, Any], phases: int = 1, **witnessed: Any) -> float:
        new = {**witness, "nodes": [*witness["nodes"][:1] * phases, []], "lending": [None] * phases, **witnessed}
        return estimated_seconds(Claim(signed({**body, "phases": [{**phase, **changes}] * phases, "witness": new})))

    wide = {"dataset_size": 4 * 10**8, "sampling_probability": "0.5", "max_batch_size": 2 * 10**8}
    least = seconds({})
    assert seconds({"steps": 2_000}) > 1.5 * least
    assert seconds({}, window=50_000) > 5 * least
    assert seconds({}, bits=4_000) > 2 * least
    assert seconds({}, nodes=[list(range(-4_000, 4_000)), []]) > 2 * least
    assert seconds({}, phases=10) == pytest.approx(10 * least)
    assert seconds(wide) > 1.0  # measured: 0.6 s
    assert seconds(wide, phases=1_000) > 600.0
    assert plan.estimate()[0] == pytest.approx(2 * estimated_seconds(Claim(plan.witnessed(1))), rel=5.0)
