"""What a certificate says is proven or refused: false claims and damaged ones; and what the checker is made of."""

from __future__ import annotations

import ast
import copy
import json
import math
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from flint import ctx, fmpq, fmpz
from scipy.stats import binom

import filet
import filet.checking
from filet.accounting.certificate import signed
from filet.checking import Claim, check, checksum, read
from filet.checking import theorems as limits
from filet.checking.lattice import Law, times

FOLDER = Path(filet.checking.__file__).parent


@pytest.fixture(scope="module")
def claim() -> dict[str, Any]:
    """1,000 records, rate 0.05, cap 60, noise 2, 1,000 steps, add-remove, swap; as it was first written in this format."""
    return json.loads(Path(__file__).with_name("swap.certificate.json").read_text())


# --- what is proven ---


def test_the_verdict_says_what_was_verified(claim: dict[str, Any]) -> None:
    shares: list[float] = []
    verdict = check(claim, progress=shares.append)
    assert verdict.ok
    assert shares[-1] == 1.0
    assert verdict.epsilon == claim["epsilon"]
    assert 0.999e-5 < float(verdict.delta) <= 1e-5
    for part in (
        "one record added or removed",
        "1000 steps",
        "1000 records",
        "0.05",
        "at most 60",
        "truncate",
        "swap",
        "bits",
    ):
        assert part in verdict.words


@pytest.mark.parametrize("epsilon", ["4.3", "4.4", "4.5", "4.6", "4.7", "4.8"])
def test_the_delta_that_is_said_is_rounded_up_to_ten_digits(claim: dict[str, Any], epsilon: str) -> None:
    new = altered(claim, ("epsilon",), epsilon, sealed=True)
    one, said = Claim(new), check(new).delta
    with ctx.workprec(one.precision):
        exact = one.delta_at(one.compose(lambda share: None), one.epsilon)
    assert exact <= fmpq(*Fraction(said).as_integer_ratio()) < exact * (1 + fmpq(1, 10**9))
    assert len(said.lower().split("e")[0].replace(".", "").strip("0")) <= 10


def test_a_proven_delta_may_be_the_claimed_one(claim: dict[str, Any]) -> None:
    certain = two_phases(claim, analysis="union", max_batch_size=40)
    assert check(altered(certain, ("delta",), "1.0", sealed=True)).ok
    assert check(certain).reason == f"at epsilon {claim['epsilon']} only delta <= 1 is proven"


def test_a_verdict_says_each_phase_and_how_long_it_took(claim: dict[str, Any]) -> None:
    verdict = check(two_phases(claim))
    assert "Mechanism: 500 steps on" in verdict.words
    assert "Gaussian" not in verdict.words
    assert "analysis swap; 250 steps on" in verdict.words
    assert "analysis swap. Rates and noise are the double-precision numbers nearest to these. 750 " in verdict.words
    assert 0 <= verdict.seconds < 600
    refused = check({**claim, "checksum": ""})
    assert (refused.words, refused.epsilon, refused.delta) == ("", "", "")
    assert 0 <= refused.seconds < 600


# --- false and damaged claims ---


def altered(claim: dict[str, Any], path: tuple[Any, ...], value: Any, *, sealed: bool) -> dict[str, Any]:
    """The claim with one field changed, with the old checksum or a fitting one."""
    new = copy.deepcopy(claim)
    place: Any = new
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return signed(new) if sealed else new


PHASE = ("phases", 0)
INSIDE = (
    "only delta <=",
    "window",
    "a rate or noise is 0",
    "must be 2, not True",
    "must be 2, not '2'",
    "MB, more than max_bytes allows",
)
FALSE = [  # changes that make the claim say more than is true, or make it no claim at all; with a fitting checksum
    (("format",), "filet-accountant", "the format of a certificate must be filet-certificate"),
    (("version",), 1, "the version of a certificate must be 2, not 1"),
    (("version",), True, "must be 2, not True"),
    (("version",), "2", "must be 2, not '2'"),
    (("adjacency",), "replace-one", "only delta <="),
    (("adjacency",), "swap", "adjacency must be add-remove or zero-out or replace-one, not 'swap'"),
    (("adjacency",), ["add-remove"], "adjacency must be"),
    (("delta",), "9.99e-06", "only delta <="),
    (("delta",), "0.0", "delta and spacing must be positive"),
    (("delta",), "1.5", "delta must be a number up to 1 "),
    (("gaussian",), "0.01", "the witness has no usable node for some step"),
    (("gaussian",), "2e+18", "gaussian must be a number"),
    (("epsilon",), "1000001.0", "epsilon must be a number up to 1000000 "),
    (("phases",), {}, "phases must be a list, not {}"),
    (("phases",), [], "nodes and lending do not match the phases"),
    ((*PHASE, "dataset_size"), 1001, "only delta <="),
    ((*PHASE, "dataset_size"), 1000.0, "dataset_size must be a whole number from 1 to 9999999999999999, not 1000.0"),
    ((*PHASE, "dataset_size"), 10**16, "dataset_size must be"),
    ((*PHASE, "sampling_probability"), "0.0501", "only delta <="),
    ((*PHASE, "sampling_probability"), "1.5", "sampling_probability must be a number up to 1.0 "),
    ((*PHASE, "sampling_probability"), "0.0", "a rate or noise is 0"),
    ((*PHASE, "max_batch_size"), 59, "only delta <="),
    ((*PHASE, "max_batch_size"), 0, "max_batch_size must be"),
    ((*PHASE, "max_batch_size"), True, "max_batch_size must be"),
    ((*PHASE, "overflow"), "keep", "overflow must be truncate or reject, not 'keep'"),
    ((*PHASE, "overflow"), "reject", "policy reject has the analysis refined only"),
    ((*PHASE, "cycle_length"), 0, "cycle_length must be"),
    ((*PHASE, "cycle_length"), 1001, "cycle_length is above dataset_size, or a rate or noise is 0"),
    ((*PHASE, "noise_multiplier"), "1.999", "only delta <="),
    ((*PHASE, "noise_multiplier"), "0.0", "a rate or noise is 0"),
    ((*PHASE, "noise_multiplier"), "1.0000000000000002e+18", "noise_multiplier must be"),
    ((*PHASE, "steps"), 1001, "only delta <="),
    ((*PHASE, "steps"), 0, "steps must be"),
    ((*PHASE, "steps"), "200", "steps must be a whole number from 1 to 999999999999, not '200'"),
    ((*PHASE, "steps"), True, "steps must be"),
    ((*PHASE, "steps"), 10**12, "steps must be"),
    ((*PHASE, "analysis"), "note", "only delta <="),
    ((*PHASE, "analysis"), "guess", "analysis must be refined or swap or note or union"),
    ((*PHASE, "size"), "at-most", "only delta <="),
    ((*PHASE, "size"), "hidden", "size must be public or at-most or secret, not 'hidden'"),
    ((*PHASE, "size"), None, "size must be"),
    (PHASE, None, "a phase must have exactly the fields"),
    (("witness", "cuts"), None, "cuts must be a list"),
    (("witness", "cuts"), [61, 0.5], "a cut must be a whole number from 0 to 9999999999999999, not 0.5"),
    (("witness", "cuts"), [True], "a cut must be"),
    (("witness", "cuts"), [-1], "a cut must be"),
    (("witness", "cuts"), [10**16], "a cut must be"),
    (("witness",), None, "witness must be a dict"),
    (("witness", "spacing"), "0.0", "delta and spacing must be positive"),
    (("witness", "spacing"), "1e-300", "window"),
    (("witness", "bits"), 16, "window"),
    (("witness", "bits"), 15, "bits must be"),
    (("witness", "bits"), 10**6, "bits must be a whole number from 16 to 4096"),
    (("witness", "window"), 10, "a node must be a whole number from -10 to 9"),
    (("witness", "window"), 99_999_999, "MB, more than max_bytes allows"),
    (("witness", "nodes"), [[], []], "the witness has no usable node for some step"),
    (("witness", "nodes"), [[0, 5, 5], []], "the nodes do not rise"),
    (("witness", "nodes"), [[5, 0], []], "the nodes do not rise"),
    (("witness", "nodes"), [[0, 0.5], []], "a node must be"),
    (("witness", "nodes"), [[0, True], []], "a node must be"),
    (("witness", "nodes"), [{}, []], "nodes must be a list"),
    (("witness", "nodes"), [[-5, 0, 5]], "nodes and lending do not match the phases"),
    (("witness", "nodes"), [[-5, 0, 5], []], "only delta <="),
    (("witness", "lending"), [[None]], "lending is for truncate, refined only"),
    (("witness", "lending"), [], "nodes and lending do not match the phases"),
]


@pytest.mark.parametrize(("path", "value", "reason"), FALSE)
def test_a_false_claim_is_refused_with_the_reason(claim: dict[str, Any], path: tuple[Any, ...], value: Any, reason: str) -> None:  # fmt: skip
    verdict = check(altered(claim, path, value, sealed=True))
    assert not verdict.ok
    assert verdict.reason.startswith(reason) or reason in INSIDE, verdict.reason
    assert reason in verdict.reason
    assert verdict.words == verdict.epsilon == ""


LESS = [  # changes after which the claim is still true
    (("epsilon",), "5.0"),
    (("delta",), "1.1e-05"),
    ((*PHASE, "steps"), 999),
    ((*PHASE, "noise_multiplier"), "2.1"),
    ((*PHASE, "sampling_probability"), "0.0499"),
    ((*PHASE, "max_batch_size"), 61),
    (("witness", "bits"), 200),
]


@pytest.mark.parametrize(("path", "value"), LESS)
def test_a_true_change_breaks_the_checksum(claim: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    """Signed anew it would be proven, so that the checksum alone refuses it."""
    assert check(altered(claim, path, value, sealed=True)).ok
    verdict = check(altered(claim, path, value, sealed=False))
    assert verdict.reason == "the checksum does not match: the certificate was changed or damaged"
    assert not verdict.ok


# --- numbers ---

NUMBERS = [("epsilon",), ("delta",), ("gaussian",), (*PHASE, "sampling_probability"), (*PHASE, "noise_multiplier"),
           ("witness", "spacing")]  # fmt: skip
OTHER_FORMS = ["", " ", "1", "01.5", "1.50", "+1.5", "1.5 ", " 1.5", "1,5", "1_0.0", "0x1p3", ".5", "5.", "1e4", "1.0000000e4", "1e-5", "1e5",
               "1E-05", "1e-005", "10e-05", "0.00001", "1e-05\n", "-0.0", "-1.0", "nan", "inf", "-inf", "Infinity", "1e400", "1e+400", "1e-400", "1e999999999",
               "0.\u0665", "\u0661.5", "\uff11.\uff15", "1.5\u0000", "0.1000000000000000055511151231257827", "9" * 5000, "0." + "1" * 10**6,
               0.05, 1, 0, True, None, 10**5000, ["0.05"], {"0.05": 1}, float("nan"), float("inf"), -0.0]  # fmt: skip


@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_has_one_form(claim: dict[str, Any], path: tuple[Any, ...]) -> None:
    """Any other is refused, echoed in ASCII and cut."""
    for value in OTHER_FORMS:
        if value == 10**5000:
            continue
        verdict = check(altered(claim, path, value, sealed=True))
        assert f"{path[-1]} must be a number up to " in verdict.reason, value
        assert not verdict.ok
        assert verdict.reason.isascii()
        assert verdict.reason.isprintable()
        assert len(verdict.reason) < 250


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*PHASE, "noise_multiplier"), "10000.0"),
        ((*PHASE, "noise_multiplier"), "2.0000000000000004"),
        ((*PHASE, "noise_multiplier"), "1e+17"),
        ((*PHASE, "sampling_probability"), "1.2e-08"),
        ((*PHASE, "sampling_probability"), "0.049999999999999996"),
        (("epsilon",), "4.3999999999999995"),
        (("delta",), "0.00012345678901234567"),
    ],
)
def test_numbers_are_printed_whole_as_they_were_checked(claim: dict[str, Any], path: tuple[Any, ...], value: str) -> None:  # fmt: skip
    verdict = check(altered(claim, path, value, sealed=True))
    assert verdict.ok, verdict.reason
    name = {"noise_multiplier": "noise multiplier", "sampling_probability": "Poisson rate"}.get(path[-1], path[-1])
    assert f"{name} {value}" in verdict.words.replace(",", "")


def test_rates_and_noise_are_the_nearest_doubles_and_epsilon_and_delta_decimals(claim: dict[str, Any]) -> None:
    one = Claim(altered(claim, (*PHASE, "noise_multiplier"), "1.2", sealed=True))
    (n, p, cap, s2, *_), rounds, _ = one.parts[0]
    assert (n, cap, rounds) == (1_000, 60, 1_000)
    assert p == fmpq(*(0.05).as_integer_ratio()) != fmpq(1, 20)
    assert s2 == fmpq(*(1.2).as_integer_ratio()) ** 2
    assert one.delta == fmpq(1, 10**5)
    assert one.epsilon == fmpq(*Fraction(claim["epsilon"]).as_integer_ratio())
    assert read("gaussian", "0.1", 1e18) == fmpq(*(0.1).as_integer_ratio())
    assert "nearest to these" in check(claim).words


def test_a_smaller_epsilon_is_refused(claim: dict[str, Any]) -> None:
    epsilon = float(claim["epsilon"])
    for less in (1e-4, 1e-6):
        lowered = altered(claim, ("epsilon",), repr(epsilon * (1 - less)), sealed=True)
        assert "only delta" in check(lowered).reason
    assert check(altered(claim, ("epsilon",), repr(epsilon * (1 + 1e-4)), sealed=True)).ok


def test_every_field_is_needed_and_none_may_be_added(claim: dict[str, Any]) -> None:
    for place in (claim, claim["phases"][0], claim["witness"]):
        for name in (*place, "comment"):
            new = copy.deepcopy(claim)
            part = new if place is claim else new["witness"] if place is claim["witness"] else new["phases"][0]
            part.pop(name) if name in part else part.update({name: 1})
            if "checksum" in new:
                new["checksum"] = checksum(new)
            verdict = check(new)
            assert not verdict.ok, name
            where = "a claim" if place is claim else "the witness" if place is claim["witness"] else "a phase"
            exact = f"{where} must have exactly the fields {', '.join(place)}"
            assert verdict.reason == exact or name in ("format", "version")


@pytest.fixture(scope="module")
def lending() -> dict[str, Any]:
    """1,000 records, rate 0.05, cap 52, noise 1, 20 steps, zero-out, refined; as it was first written in this format."""
    return json.loads(Path(__file__).with_name("lending.certificate.json").read_text())


TILTED = "a tilt must be a whole number from -2147483648 to 2147483647"
ROWS = [
    ([0, 4097], "a share must be a whole number from 0 to 4096"),
    ([0, -1], "a share must be"),
    ([0, 0.5], "a share must be"),
    ([0, True], "a share must be"),
    ([0, "1"], "a share must be"),
    ([0] * 53, "lending has no tilt, or more levels than the cap"),
    ([], "lending has no tilt"),
    ("x", "lending must be a list"),
    ({}, "lending must be a list"),
    ([None, 0], TILTED),
    ([2**31, 0], TILTED),
    ([-(2**31) - 1, 0], TILTED),
    ([True, 0], TILTED),
    (["0", 0], TILTED),
]


def row_of(lending: dict[str, Any]) -> int:
    """The first node at which something is lent."""
    return next(i for i, row in enumerate(lending["witness"]["lending"][0]) if row is not None)


@pytest.mark.parametrize(("value", "reason"), ROWS)
def test_shares_and_tilts_are_validated(lending: dict[str, Any], value: Any, reason: str) -> None:
    verdict = check(altered(lending, ("witness", "lending", 0, row_of(lending)), value, sealed=True))
    assert not verdict.ok
    assert verdict.reason.startswith(reason)


def test_lending_is_used_and_shares_and_tilts_go_to_their_ends(lending: dict[str, Any]) -> None:
    assert check(lending).ok
    table, at = lending["witness"]["lending"][0], row_of(lending)
    none = altered(lending, ("witness", "lending", 0), None, sealed=True)
    assert "only delta <=" in check(none).reason  # without lending, epsilon is larger
    short = altered(lending, ("witness", "lending", 0), table[:-1], sealed=True)
    assert check(short).reason == "lending does not match the nodes"
    text = altered(lending, ("witness", "lending", 0), "x", sealed=True)
    assert check(text).reason == "lending must be a list, not 'x'"
    (*_, lend, _), _, nodes = Claim(lending).parts[0]
    given = {k: row for k, row in zip(nodes, table, strict=True) if row is not None}
    assert lend == {k: ([fmpq(v, 4096) for v in shares], fmpq(tilt, 2**20)) for k, (tilt, *shares) in given.items()}
    for row in ([0] * 52, [2**31 - 1, 4096], [-(2**31), 0], [5]):
        Claim(altered(lending, ("witness", "lending", 0, at), row, sealed=True))


# --- rules that a claim breaks although its epsilon would be proven ---


def two_phases(claim: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Half of the steps, and a quarter with changes."""
    phase, witness = claim["phases"][0], claim["witness"]
    phases = [{**phase, "steps": 500}, {**phase, "steps": 250, **changes}]
    nodes = [witness["nodes"][0], *witness["nodes"]]
    return signed({**claim, "phases": phases, "witness": {**witness, "nodes": nodes, "lending": [None, None]}})


def test_add_remove_phases_have_one_size(claim: dict[str, Any]) -> None:
    """What "one record more" means depends on it."""
    assert check(two_phases(claim)).ok
    assert check(two_phases(claim, dataset_size=990)).reason == "add-remove phases must have one dataset_size"
    other = altered(two_phases(claim, dataset_size=990), ("adjacency",), "zero-out", sealed=True)
    assert check(altered(other, ("delta",), "0.5", sealed=True)).ok


def test_balls_have_less_than_10000_bits(claim: dict[str, Any]) -> None:
    """One far node, which is not needed, asks for more."""
    spacing, witness = float(claim["witness"]["spacing"]), claim["witness"]
    one = Claim(claim)
    room = 9_999 - one.precision + 3 * math.ceil(max(map(abs, witness["nodes"][0])) * spacing)
    for loss, ok in ((room // 3, True), (room // 3 + 1, False)):
        nodes = [[*witness["nodes"][0], int(loss / spacing)], []]
        new = signed({**claim, "witness": {**witness, "nodes": nodes, "window": 10**7}})
        if ok:
            assert 9_990 < Claim(new).precision < 10_000
        else:
            assert re.fullmatch(
                r"the nodes and the spacing ask for balls of 1000\d bits, above 10000", check(new).reason
            )


def test_reject_accepts_no_batch_where_all_are_too_large(claim: dict[str, Any]) -> None:
    reject = altered(two_phases(claim, analysis="refined"), ("phases", 1, "overflow"), "reject", sealed=True)
    assert check(reject).ok
    certain = altered(reject, ("phases", 1, "sampling_probability"), "1.0", sealed=True)
    assert check(certain).reason == "policy reject accepts no batch at sampling_probability 1"
    fits = altered(certain, ("phases", 1, "max_batch_size"), 1_000, sealed=True)
    assert "accepts no batch" not in check(fits).reason


def test_rules_leave_the_smallest_group_and_full_truncated_batches_alone(claim: dict[str, Any]) -> None:
    for path, value in (((*PHASE, "cycle_length"), 1_000), ((*PHASE, "sampling_probability"), "1.0")):
        new = altered(altered(claim, path, value, sealed=True), ("delta",), "1.0", sealed=True)
        assert check(new).ok or check(new).reason.startswith("the composed losses take more nodes")


# --- composition ---


def deltas(claim: dict[str, Any], epsilon: fmpq) -> tuple[fmpq, list[fmpq]]:
    """What is proven at an epsilon, and what each direction alone would prove."""
    one = Claim(claim)
    with ctx.workprec(one.precision):
        composed = one.compose(lambda share: None)
        return one.delta_at(composed, epsilon), [one.delta_at([law], epsilon) for law in composed]


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_both_directions_count_and_under_replace_one_they_are_one(claim: dict[str, Any], adjacency: str) -> None:
    new = altered(altered(claim, ("adjacency",), adjacency, sealed=True), (*PHASE, "steps"), 10, sealed=True)
    for epsilon in (fmpq(0), fmpq(1, 10), fmpq(1)):
        found, alone = deltas(new, epsilon)
        assert len(alone) == (1 if adjacency == "replace-one" else 2)
        assert found == max(alone)
        assert min(alone) > 0


def test_two_phases_are_as_one_of_all_their_steps(claim: dict[str, Any]) -> None:
    shares: list[float] = []
    halves = altered(two_phases(claim, steps=500), ("delta",), "1.01e-05", sealed=True)
    found, whole = (float(check(one, progress=heard).delta) for one, heard in ((halves, shares.append), (claim, print)))
    assert found == pytest.approx(whole, rel=1e-3)
    assert shares == sorted(shares)
    assert len(set(shares)) > 30
    assert 0.02 > shares[0] > 0
    assert shares[-1] == 1.0
    assert {0.125, 0.25, 0.375, 0.5, 0.75} <= set(shares)


@pytest.mark.parametrize(("adjacency", "apart"), [("add-remove", 1), ("zero-out", 1), ("replace-one", 4)])
def test_steps_that_use_every_record_are_gaussian_releases(claim: dict[str, Any], adjacency: str, apart: int) -> None:
    """In 3 groups, 7 steps are at most 3 releases of a record; under replace-one it moves twice as far."""
    dense = {"sampling_probability": "1.0", "max_batch_size": 333, "cycle_length": 3, "steps": 7}
    new = signed({**two_phases(claim, **dense), "adjacency": adjacency, "gaussian": "0.25"})
    one = Claim(new)
    assert one.mu2 == fmpq(1, 4) + fmpq(3 * apart, 4)
    (n, p, cap, s2, policy, kind, analysis, lend, _), rounds, nodes = one.parts[1]
    assert (n, p, cap, s2, policy, kind, analysis, lend) == (1, 1, 1, 1 / one.mu2, "truncate", "zero-out", "swap", {})
    assert (len(one.parts), rounds, nodes, one.rounds) == (2, 1, [], 501)
    assert one.said[0] == "Gaussian releases, (sensitivity / noise)^2 = 0.25"
    assert one.said[2].startswith(
        "7 steps on 1000 records (size public) in 3 group(s), Poisson rate 1.0, at most 333 a batch (truncate), "
    )
    for changes in ({"max_batch_size": 332}, {"sampling_probability": "0.9999999999999999"}):
        other = Claim(signed({**two_phases(claim, **{**dense, **changes}), "adjacency": adjacency}))
        assert [(step[0], rounds) for step, rounds, _ in other.parts] == [(1_000, 500), (333, 3)]


def test_the_union_bound_adds_the_chance_that_some_batch_overflows(claim: dict[str, Any]) -> None:
    """(1 + e^epsilon) (1 - product of (1 - tail)^steps), over the phases whose cap can be reached."""
    both = two_phases(claim, analysis="union", steps=3)
    both["phases"][0].update(analysis="union", steps=2, max_batch_size=75)
    both["phases"][1].update(max_batch_size=80)
    plain = copy.deepcopy(both)
    for phase in plain["phases"]:
        phase["max_batch_size"] = 1_000
    epsilon = fmpq(1, 2)
    added = deltas(signed(both), epsilon)[0] - deltas(signed(plain), epsilon)[0]
    chance = 1 - (1 - binom.sf(75, 1_000, 0.05)) ** 2 * (1 - binom.sf(80, 1_000, 0.05)) ** 3
    assert float(added.p) / float(added.q) == pytest.approx((1 + math.exp(0.5)) * chance, rel=1e-9)
    most = copy.deepcopy(both)
    for phase in most["phases"]:
        phase["size"] = "at-most"  # overflows are the more likely the more records there are
    assert deltas(signed(most), epsilon)[0] == deltas(signed(both), epsilon)[0]
    both["phases"][0].update(max_batch_size=40)
    assert deltas(signed(both), epsilon)[0] == 1  # no more than certainty


def test_every_reason_of_the_checker_is_asserted_here() -> None:
    """The words of each rule, up to the first value in them, occur in this file or in the tests of the lattice."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    found = []
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("need", "ValueError"):
                parts = [part.value for part in ast.walk(node.args[-1]) if isinstance(part, ast.Constant)]
                found.append(max((str(part).strip() for part in parts), key=len, default="reason"))
    assert len(found) >= 20
    for words in found:
        assert words in tests, words


# --- sizes that are not public ---


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, Any]]:
    """One claim of each size, at the same numbers, under add-remove."""
    found = {}
    for size, overflow in (("public", "reject"), ("secret", "reject"), ("at-most", "truncate")):
        scheme = filet.CappedPoisson(400, 0.05, 30, overflow=overflow, size=size)  # type: ignore[arg-type]
        curve = filet.account(scheme, noise_multiplier=1.0, steps=20, adjacency="add-remove")
        found[size] = curve.certificate(1e-5)
        assert float(found[size]["epsilon"]) <= 1.001 * curve.epsilon(1e-5)
    return found


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("public", "the larger data set has the stated public size."),
        ("at-most", "the larger data set has any size up to the stated one."),
        ("secret", "the larger data set has any size, if no data decided the stated one."),
    ],
)
def test_a_verdict_says_for_which_sizes_it_holds(claims: dict[str, dict[str, Any]], size: str, words: str) -> None:
    verdict = check(claims[size])
    assert verdict.ok
    assert words in verdict.words
    assert f"20 steps on 400 records (size {size})" in verdict.words


def test_of_several_phases_the_size_that_holds_for_fewest_is_said(claims: dict[str, dict[str, Any]]) -> None:
    for other, words in (("public", "the stated public size."), ("at-most", "any size up to the stated one.")):
        both = copy.deepcopy(claims["secret"])
        both["phases"] += claims[other]["phases"]
        both["witness"]["nodes"][1:1] = claims["secret"]["witness"]["nodes"][:1]
        both["witness"]["lending"] = [None, None]
        both["witness"]["cuts"] += claims["at-most"]["witness"]["cuts"]
        verdict = check(signed({**both, "delta": "1.0"}))
        assert f"the larger data set has {words}" in verdict.words, verdict.reason


FORGED = [  # a proven claim, what is changed in its phase, and the rule that alone refuses it
    ("secret", {"overflow": "truncate"}, "policy truncate: no size secret"),
    ("at-most", {"overflow": "reject", "analysis": "refined"}, "policy reject: no size at-most"),
    ("secret", {"cycle_length": 2}, "size secret: one group, no note"),
    ("at-most", {"cycle_length": 2}, "size at-most: one group, no note"),
    ("at-most", {"analysis": "note"}, "size at-most: one group, no note"),
    ("secret", {"max_batch_size": 400}, "size secret has a planned dataset_size above max_batch_size"),
    ("secret", {"max_batch_size": 2**63 - 1}, "size secret has a planned dataset_size above max_batch_size"),
]


@pytest.mark.parametrize(("size", "changes", "reason"), FORGED)
def test_each_rule_of_sizes_alone_refuses_some_claim(
    claims: dict[str, dict[str, Any]], size: str, changes: dict[str, Any], reason: str
) -> None:
    """At delta 1 everything is proven, and the same change with a public size is no reason."""
    new = copy.deepcopy(claims[size])
    new["delta"] = "1.0"
    new["phases"][0].update(changes)
    new["witness"]["lending"] = [None]
    assert check(signed(new)).reason == reason
    new["phases"][0]["size"] = "public"
    assert check(signed(new)).ok


def test_an_epsilon_for_one_size_is_not_one_for_all(claims: dict[str, dict[str, Any]]) -> None:
    public = copy.deepcopy(claims["public"])
    public["phases"][0]["size"] = "secret"
    public["witness"]["cuts"] = claims["secret"]["witness"]["cuts"]
    assert "only delta <=" in check(signed(public)).reason
    coarse = altered(claims["at-most"], ("witness", "cuts"), [], sealed=True)
    assert "only delta <=" in check(coarse).reason  # one cell of all sizes: valid, and loose
    fewer = altered(claims["secret"], ("witness", "cuts"), [], sealed=True)
    assert "only delta <=" in check(fewer).reason


def test_cuts_are_free(claims: dict[str, dict[str, Any]]) -> None:
    """More of them, in any order, repeated or beyond all sizes: the claim stays proven."""
    for size in ("secret", "at-most"):
        cuts = [*range(29, 0, -1), *range(31, 400, 3), 399, 400, 401, 10**15, 0, 0]
        more = altered(claims[size], ("witness", "cuts"), cuts + claims[size]["witness"]["cuts"], sealed=True)
        assert check(more).ok
    assert check(altered(claims["public"], ("witness", "cuts"), [5, 7], sealed=True)).ok


# --- what is no claim ---


@pytest.mark.parametrize(
    "thing", [None, 3, "text", [], {}, {"format": "filet-certificate"}, [{}], {"format": ["filet-certificate"]}]
)
def test_what_is_no_claim_is_refused(thing: Any) -> None:
    verdict = check(thing)
    assert not verdict.ok
    whole = isinstance(thing, dict) and thing.get("format") == "filet-certificate"
    name, need = ("version", "2") if whole else ("format", "filet-certificate")
    assert verdict.reason.startswith(f"the {name} of a certificate must be {need}, not ")


def test_a_checksum_is_a_string(claim: dict[str, Any]) -> None:
    assert check({**claim, "checksum": None}).reason == "checksum must be a str, not None"


def test_what_cannot_be_read_is_named(claim: dict[str, Any]) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert check({**claim, "phases": deep}).reason.startswith("it cannot be read: RecursionError: ")


def test_half_a_claim_is_refused(claim: dict[str, Any]) -> None:
    text = json.dumps(claim)
    assert not check(text).ok  # the text of a claim is no claim
    for end in (1, len(text) // 2, len(text) - 1):
        assert not check(text[:end]).ok
    for count in range(len(claim)):
        assert not check(dict(list(claim.items())[:count])).ok


# --- what a check takes ---


class Clock:
    """A clock on which a second passes whenever somebody looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return float(self.looks)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (filet.checking, limits):
        monkeypatch.setattr(module, "monotonic", found)
    return found


def test_without_time_nothing_starts(claim: dict[str, Any]) -> None:
    heard: list[float] = []
    for seconds in (0, -1, math.nan):
        verdict = check(claim, max_seconds=seconds, progress=heard.append)
        assert verdict.reason == "it takes longer than max_seconds allows"
    assert not heard
    assert check(claim).ok  # and the limit is gone


def test_without_memory_nothing_starts(claim: dict[str, Any]) -> None:
    heard: list[float] = []
    verdict = check(claim, max_bytes=1e6, progress=heard.append)
    least = Claim(claim).bytes
    assert verdict.reason == f"it may need {least / 1e6:.0f} MB, more than max_bytes allows"
    assert not heard
    assert check(claim, max_bytes=least).ok
    more = (("witness", "bits"), 2_000), (("witness", "window"), 10**5), (("witness", "cuts"), [7] * 1_000)
    assert all(Claim(altered(claim, path, value, sealed=True)).bytes > 1.01 * least for path, value in more)


@pytest.mark.parametrize("seconds", [5, 50, 300, 500])
def test_time_is_up_in_the_middle_of_any_work(claim: dict[str, Any], clock: Clock, seconds: int) -> None:
    """Phases, terms of a binomial tail, kernels and products look at the clock, each before it starts."""
    assert check(claim, max_seconds=seconds).reason == "it takes longer than max_seconds allows"
    assert clock.looks <= seconds + 4


def test_a_thousand_phases_with_wide_tails_are_stopped_in_time(claim: dict[str, Any], clock: Clock) -> None:
    phase = {
        **claim["phases"][0],
        "dataset_size": 4 * 10**8,
        "sampling_probability": "0.5",
        "max_batch_size": 2 * 10**8,
    }
    witness = {**claim["witness"], "nodes": [[0]] * 1_001, "lending": [None] * 1_000}
    many = signed({**claim, "phases": [phase] * 1_000, "witness": witness})
    assert "max_seconds" in check(many, max_seconds=2_000).reason
    assert clock.looks <= 2_004


def test_time_left_is_what_a_product_needs_before_it_starts() -> None:
    law = Law(0, [fmpz(1)] * 50_000, fmpz(0))
    for seconds, ok in ((0.3, False), (3_000.0, True)):
        limit = limits.DEADLINE.set(monotonic() + seconds)
        try:
            if ok:
                times(law, law, (16, 10**6, fmpq(0)))
            else:
                with pytest.raises(ValueError, match="max_seconds"):
                    times(law, law, (16, 10**6, fmpq(0)))
        finally:
            limits.DEADLINE.reset(limit)


# --- what the checker is made of ---


def test_the_checker_imports_nothing_else_of_filet() -> None:
    allowed = {*sys.stdlib_module_names, "flint"}
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom):
                inside = node.level == 1 and (FOLDER / f"{node.module}.py").exists()
                assert inside or (node.level == 0 and str(node.module).split(".")[0] in allowed), (path, node.module)


def test_the_folder_works_alone(claim: dict[str, Any], tmp_path: Path) -> None:
    """Copied elsewhere, with neither filet nor NumPy, it comes to the same verdict."""
    shutil.copytree(FOLDER, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "claim.json").write_text(json.dumps(claim))
    code = (
        "import json, sys\n"
        "sys.modules['filet'] = sys.modules['numpy'] = sys.modules['scipy'] = None\n"
        "from elsewhere import check\n"
        "print(check(json.load(open('claim.json'))).words)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.strip() == check(claim).words


def test_the_checker_is_short_enough_to_audit() -> None:
    assert sum(len(path.read_text().splitlines()) for path in FOLDER.rglob("*.py")) <= 450


def test_no_floating_point_decides() -> None:
    """The only float literals are the largest rates and noises, and those of memory and time."""
    found = {}
    for path in FOLDER.glob("*.py"):
        values = [
            n.value
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Constant) and type(n.value) is float
        ]
        found[path.name] = sorted(values)
    assert found == {
        "__init__.py": sorted([1e18, 1.0, 1e18, 4e7, 600.0, 1e6, 600.0, 2e9]),  # limits, and of memory and time
        "lattice.py": [],
        "theorems.py": [],
    }


def test_a_missing_package_is_named_with_the_extra() -> None:
    code = "import sys; sys.modules['flint'] = None\ntry:\n    import filet.checking\nexcept ImportError as error:\n    print(error)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "filet.checking needs python-flint; pip install 'filet[check]'"
