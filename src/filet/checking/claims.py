"""Reading a claim, and the verdict. A claim is refused, never an error: whatever is not proven is not said."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction
from typing import Any

from flint import arb, ctx, fmpq

from .lattice import Composer, Law, RefusedError, delta, laws
from .theorems import Step, gaussian, tail

NUMBER = re.compile(r"\d{1,40}(\.\d{1,1100})?(e[+-]?\d{1,3})?")
FIELDS = {"format", "version", "adjacency", "epsilon", "delta", "gaussian", "phases", "witness", "checksum"}
PHASE = {"dataset_size", "sampling_probability", "max_batch_size", "overflow", "cycle_length", "noise_multiplier", "steps",
         "analysis"}  # fmt: skip
WITNESS = {"spacing", "bits", "window", "nodes", "lending"}
ADJACENCIES = {"add-remove": "one record added or removed (the larger data set has the stated, public size)",
               "zero-out": "one record replaced by zero", "replace-one": "one record replaced by another"}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """`ok`: epsilon and delta are proven. Otherwise `reason` says why not. `words`: what was verified, and how."""

    ok: bool
    reason: str
    words: str
    epsilon: str
    delta: str
    seconds: float


def need(condition: object, reason: str) -> None:
    if not condition:
        raise RefusedError(reason)


def number(value: Any, name: str, low: int = 0, high: Any = 10**18) -> fmpq:
    """An exact decimal number in a string, low < value <= high."""
    need(isinstance(value, str) and NUMBER.fullmatch(value), f"{name} is no decimal number in a string")
    exact = Fraction(value)
    need(low < exact <= high, f"{name}={value[:40]} is not in ({low}, {high}]")
    return fmpq(exact.numerator, exact.denominator)


def whole(value: Any, name: str, low: int, high: int) -> int:
    need(type(value) is int and low <= value <= high, f"{name} is no whole number from {low} to {high}")
    return int(value)


def keys(value: Any, names: set[str], name: str) -> dict[str, Any]:
    need(isinstance(value, dict) and set(value) == names, f"{name} must have exactly the fields {', '.join(sorted(names))}")
    return dict(value)


def listed(value: Any, name: str) -> list[Any]:
    need(isinstance(value, list), f"{name} is no list")
    return list(value)


def rising(value: Any) -> list[int]:
    nodes = [whole(k, "a node", -(10**9), 10**9) for k in listed(value, "nodes")]
    need(len(nodes) <= 10**6 and all(x < y for x, y in zip(nodes, nodes[1:], strict=False)), "nodes do not rise")
    return nodes


def lent(row: Any, cap: int) -> tuple[list[fmpq], fmpq]:
    """A tilt (in units of 2^-20) and the shares (of 1/4096) that the levels B-2, B-3, ... lend, at one node."""
    tilt, *shares = (whole(v, "a tilt or share", -(2**30), 2**30) for v in listed(row, "a row of lending"))
    need(len(shares) < cap and all(0 <= v <= 4096 for v in shares), "a share is out of range, or there are too many")
    return [fmpq(v, 4096) for v in shares], fmpq(tilt, 2**20)


def checksum(claim: dict[str, Any]) -> str:
    body = {key: value for key, value in claim.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Claim:
    """A claim whose every field was validated; `parts` are the kinds of steps, as (profile, rounds, nodes)."""

    def __init__(self, raw: Any) -> None:
        kind = raw.get("format") if isinstance(raw, dict) else type(raw).__name__
        need(kind == "filet-certificate", f"this is no certificate (format {str(kind)[:40]!r}); pass the JSON that filet wrote")
        need(raw.get("version") == 1, f"version {str(raw.get('version'))[:20]} of certificates is unknown to this checker")
        raw = keys(raw, FIELDS, "the certificate")
        need(raw["checksum"] == checksum(raw), "the checksum does not match: the certificate was changed or damaged")
        witness = keys(raw["witness"], WITNESS, "the witness")
        need(raw["adjacency"] in list(ADJACENCIES), "adjacency is none of " + ", ".join(ADJACENCIES))
        self.adjacency: str = raw["adjacency"]
        self.epsilon, self.delta = number(raw["epsilon"], "epsilon", -1, 10**6), number(raw["delta"], "delta", 0, 1)
        self.mu2 = number(raw["gaussian"], "gaussian", -1)
        self.spacing = number(witness["spacing"], "spacing", 0, 1)
        self.bits, self.window = whole(witness["bits"], "bits", 16, 4096), whole(witness["window"], "window", 1, 10**8)
        phases, nodes = listed(raw["phases"], "phases"), [rising(v) for v in listed(witness["nodes"], "nodes")]
        lending = listed(witness["lending"], "lending")
        need(len(nodes) == len(phases) + 1 == len(lending) + 1, "nodes and lending do not match the phases")
        self.steps: list[tuple[Step, int, list[int]]] = []
        self.unions: list[tuple[int, fmpq, int, int]] = []
        self.said = [self.add(keys(*row[:1], PHASE, "a phase"), *row[1:]) for row in zip(phases, nodes, lending)]
        need(self.adjacency != "add-remove" or len({phase["dataset_size"] for phase in phases}) < 2,
             "add-remove phases must have one dataset_size")  # fmt: skip
        self.parts = [(step.profile, rounds, at) for step, rounds, at in self.steps]
        if self.mu2 > 0:
            self.said.append(f"Gaussian releases of total (sensitivity / noise)^2 = {arb(self.mu2).str(6, radius=False)}")
            self.parts.append((lambda loss, node: gaussian(arb(self.mu2), loss), 1, nodes[-1]))
        self.rounds = sum(rounds for _, rounds, _ in self.parts)

    def add(self, phase: dict[str, Any], nodes: list[int], lending: Any) -> str:
        """One phase, in words; with `cycle_length` groups a record takes part in every so-many-th step only."""
        size = whole(phase["dataset_size"], "dataset_size", 1, 10**16)
        groups = whole(phase["cycle_length"], "cycle_length", 1, size)
        steps, cap = whole(phase["steps"], "steps", 1, 10**12), whole(phase["max_batch_size"], "max_batch_size", 1, 2**63)
        p = number(phase["sampling_probability"], "sampling_probability", 0, 1)
        s = number(phase["noise_multiplier"], "noise_multiplier")
        n, rounds, policy, analysis = size // groups, -(-steps // groups), phase["overflow"], phase["analysis"]
        need(policy in ("truncate", "reject"), "overflow is neither truncate nor reject")
        need(analysis in ("refined", "swap", "note", "union"), "analysis is none of refined, swap, note, union")
        need(policy == "truncate" or analysis == "refined", "policy reject has the analysis refined only")
        need(policy == "truncate" or cap >= n or p < 1, "policy reject has no batch to accept at sampling_probability 1")
        if analysis == "union" and cap < n:
            self.unions.append((n, p, cap, steps))
        if p == 1 and cap >= n:  # every record in every step: Gaussian releases
            self.mu2 += rounds * (4 if self.adjacency == "replace-one" else 1) / (s * s)
        else:
            rows = listed(lending, "lending") if policy == "truncate" and analysis == "refined" and cap < n else []
            need(rows or lending is None, "lending is for truncated phases of the analysis refined only")
            table = {k: lent(row, cap) for k, row in zip(nodes, rows, strict=False) if row is not None}
            self.steps.append((Step(n, p, cap, s, policy, self.adjacency, analysis, table), rounds, nodes))
        return (f"{steps} steps on {size} records in {groups} group(s), Poisson batches at rate {arb(p).str(6, radius=False)} with at "
                f"most {cap} records ({policy}), noise multiplier {arb(s).str(6, radius=False)}, analysis {analysis}")

    @property
    def precision(self) -> int:
        """Bits of the balls: second differences at this spacing, and weights e^loss at the ends, must keep `bits`."""
        far = max((abs(k) for _, _, nodes in self.parts for k in nodes), default=0) * self.spacing
        return self.bits + 2 * int((1 / self.spacing).ceil()).bit_length() + 3 * int(far.ceil()) + 64

    def estimate(self) -> tuple[float, float]:
        """Seconds and bytes that the check may take, roughly."""
        sides = 1 if self.adjacency == "replace-one" else 2
        seconds = sum(sides * rounds.bit_length() for _, rounds, _ in self.parts) * self.window * (4e-6 + 1e-8 * self.bits)
        for step, _, nodes in self.steps:
            seconds += 1e-4 * sum(2 + len(step.lend[k][0]) if k in step.lend else 2 for k in nodes)
        return seconds, 4e7 + self.window * (600.0 + self.bits)

    def compose(self, progress: Callable[[float], None]) -> list[Law]:
        """The laws of the whole run, forward and reversed; under replace-one they are the same, so one suffices."""
        light = int((self.delta * fmpq(2) ** (self.bits - 24)).floor())
        composer, total, done = Composer(self.bits, self.window, light, self.rounds), [], 0
        for profile, rounds, nodes in self.parts:
            both = laws(profile, nodes, self.spacing, self.bits)[: 1 if self.adjacency == "replace-one" else 2]
            progress(float(done + rounds / 3) / self.rounds)
            powers, done = [composer.power(law, rounds) for law in both], done + rounds
            total = [composer.times(x, y, done) for x, y in zip(total, powers, strict=True)] if total else powers
            progress(done / self.rounds)
        return total

    def delta_at(self, composed: list[Law], epsilon: fmpq) -> arb:
        """A ball whose upper end is proven to be at least delta, in both directions; the union bound adds its chance."""
        worst, fits = arb(0), arb(1)
        for law in composed:
            worst = worst.max(delta(law, epsilon, self.spacing, self.bits))
        if len(self.parts) == 1 and self.mu2 > 0:
            worst = gaussian(arb(self.mu2), arb(epsilon))
        for n, p, cap, steps in self.unions:
            fits *= (1 - tail(cap + 1, n, p)) ** steps
        return worst + (1 + arb(epsilon).exp()) * (1 - fits)


def decimal_up(value: arb) -> str:
    """At least the ball, in ten digits."""
    exact = value.upper().fmpq()
    return str(Context(prec=10, rounding=ROUND_UP).divide(Decimal(int(exact.p)), Decimal(int(exact.q))))


def check(claim: Any, *, max_seconds: float = 600.0, max_bytes: float = 2e9,
          progress: Callable[[float], None] = lambda share: None) -> Verdict:  # fmt: skip
    """Whether a certificate's epsilon is proven; never an error.

    Arguments: the certificate, as `json.load` gives it; what the check may take (it refuses before it starts); a function
    that is told the share of the work that is done.
    """
    start, words, proven = time.perf_counter(), "", ""
    try:
        one = Claim(claim)
        seconds, size = one.estimate()
        need(seconds <= max_seconds and size <= max_bytes,
             f"it would take about {seconds:.0f} s and {size / 1e6:.0f} MB, above the budget; pass max_seconds, max_bytes")  # fmt: skip
        with ctx.workprec(one.precision):
            found = one.delta_at(one.compose(progress), one.epsilon)
            need(found.is_finite(), "delta could not be enclosed; the witness needs more bits")
            proven = decimal_up(found)
            need(found <= arb(one.delta), f"delta({claim['epsilon']}) is only proven to be at most {proven}, above {claim['delta']}")
        words = (f"Proven: epsilon {claim['epsilon']} at delta {claim['delta']} (delta at most {proven}). Neighbours: {ADJACENCIES[one.adjacency]}. "
                 f"Mechanism: {'; '.join(one.said)}. {one.rounds} composed steps, balls of {one.precision} bits, masses in units of 2^-{one.bits}.")
        return Verdict(True, "", words, claim["epsilon"], proven, time.perf_counter() - start)
    except (RefusedError, ArithmeticError, ValueError, TypeError, RecursionError, MemoryError) as error:
        reason = str(error) if isinstance(error, RefusedError) else f"the claim cannot be read ({type(error).__name__}: {error})"
        return Verdict(False, reason, words, "", proven, time.perf_counter() - start)
