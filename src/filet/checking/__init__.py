"""Is a certificate's epsilon proven? `check(claim)` answers in ball arithmetic, and uses nothing else of filet."""

import hashlib
import json
import re
import time
from collections.abc import Callable
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

try:
    from flint import arb, ctx, fmpq
except ImportError as missing:
    raise ImportError("filet.checking needs python-flint; pip install 'filet[check]'") from missing

from .lattice import Law, delta, laws, need, power, times
from .theorems import Step, tail

ADJACENCIES = {"add-remove": "one record added or removed, of data sets whose larger one has the stated public size",
               "zero-out": "one record replaced by zero", "replace-one": "one record replaced by another"}  # fmt: skip
# The rule of a field: a type, a range of whole numbers, a choice of words, or the largest of exact decimals in strings.
CLAIM = {"format": ("filet-certificate",), "version": range(1, 2), "adjacency": tuple(ADJACENCIES), "epsilon": 10**6,
         "delta": 1, "gaussian": 10**18, "phases": list, "witness": dict, "checksum": str}  # fmt: skip
PHASE = {"dataset_size": range(1, 10**16), "sampling_probability": 1, "max_batch_size": range(1, 2**63),
         "overflow": ("truncate", "reject"), "cycle_length": range(1, 10**16), "noise_multiplier": 10**18,
         "steps": range(1, 10**12), "analysis": ("refined", "swap", "note", "union")}  # fmt: skip
WITNESS = {"spacing": 1, "bits": range(16, 4097), "window": range(1, 10**8), "nodes": list, "lending": list}


class Verdict(NamedTuple):
    """`ok`: epsilon and delta are proven; else `reason` says why not. `words`: what was verified, and how."""

    ok: bool
    reason: str
    words: str
    epsilon: str
    delta: str
    seconds: float


def read(name: str, value: Any, rule: Any) -> Any:
    """The value if it keeps the rule; decimals become exact fractions."""
    if not isinstance(rule, int):
        kept = isinstance(value, rule) if isinstance(rule, type) else type(value) in (int, str) and value in rule
        need(kept, f"{name}={str(value)[:40]} breaks its rule: {rule}")
        return value
    exact = isinstance(value, str) and re.fullmatch(r"\d{1,40}(\.\d{1,1100})?(e[+-]?\d{1,3})?", value)
    need(exact and Fraction(value) <= rule, f"{name}={str(value)[:40]} breaks its rule: '0' to '{rule}', in decimals")
    return fmpq(*Fraction(value).as_integer_ratio())


def fields(raw: Any, rules: dict[str, Any], name: str) -> list[Any]:
    need(isinstance(raw, dict) and set(raw) == set(rules), f"{name} must have exactly the fields {', '.join(rules)}")
    return [read(key, raw[key], rule) for key, rule in rules.items()]


def checksum(claim: dict[str, Any]) -> str:
    """SHA-256 of the claim's other fields, as JSON with sorted keys and without spaces."""
    body = {key: value for key, value in claim.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Claim:
    """A claim whose every field keeps its rule; `parts` are its kinds of steps: (arguments of `Step`, rounds, nodes)."""

    def __init__(self, raw: Any) -> None:
        for key in ("format", "version"):
            read(key, raw.get(key) if isinstance(raw, dict) else None, CLAIM[key])
        _, _, self.adjacency, self.epsilon, self.delta, self.mu2, phases, witness, seal = fields(raw, CLAIM, "a claim")
        need(seal == checksum(raw), "the checksum does not match: the certificate was changed or damaged")
        self.spacing, self.bits, self.window, nodes, lending = fields(witness, WITNESS, "the witness")
        need(self.delta > 0 and self.spacing > 0, "delta and spacing must be positive")
        need(len(nodes) == len(phases) + 1 == len(lending) + 1, "nodes and lending do not match the phases")
        near = range(-self.window, self.window)
        whole = [{read("a node", k, near) for k in read("nodes", row, list)} for row in nodes]
        need(nodes == [sorted(row) for row in whole], "the nodes do not rise")
        self.parts: list[tuple[tuple[Any, ...], int, list[int]]] = []
        self.unions: list[tuple[int, int, fmpq, int]] = []
        self.said = [self.add(*row) for row in zip(phases, nodes, lending, strict=False)]
        sizes = {phase["dataset_size"] for phase in phases}
        need(len(sizes) < 2 or self.adjacency != "add-remove", "add-remove phases must have one dataset_size")
        if self.mu2 > 0:
            self.parts.append(((1, fmpq(1), 1, 1 / self.mu2, "truncate", "zero-out", "swap", {}), 1, nodes[-1]))
            self.said.append(f"Gaussian releases, (sensitivity / noise)^2 = {arb(self.mu2).str(6, radius=False)}")
        self.rounds = sum(rounds for _, rounds, _ in self.parts)
        # Bits of the balls: second differences at this spacing, and weights e^loss at the ends, must keep `bits`.
        far = int((max((abs(k) for row in nodes for k in row), default=0) * self.spacing).ceil())
        self.precision = self.bits + 2 * int((1 / self.spacing).ceil()).bit_length() + 3 * far + 64
        need(self.precision < 10**4, f"the nodes and the spacing ask for balls of {self.precision} bits, above 10000")
        kernels = sum(len(row or []) for rows in lending for row in rows or []) + 3 * sum(map(len, nodes))
        products = sum(2 * rounds.bit_length() for _, rounds, _ in self.parts) * self.window
        wide = sum(n * p * (1 - p) > 10**8 for (n, p, *_), _, _ in self.parts) * ((self.precision + 192) / 560) ** 6
        self.seconds = products * (4e-6 + 1e-8 * self.bits) + kernels * (5e-5 + 2e-7 * self.precision) + wide
        self.bytes = 4e7 + self.window * (600.0 + self.bits)

    def add(self, raw: Any, nodes: list[int], lending: Any) -> str:
        """One phase, in words. A record's group has its turn every `cycle_length` steps. Units: share 1/4096, tilt 2^-20."""
        size, p, cap, policy, groups, s, steps, analysis = fields(raw, PHASE, "a phase")
        n, rounds = size // groups, -(-steps // groups)
        need(n > 0 and p > 0 and s > 0, "cycle_length is above dataset_size, or a rate or noise is 0")
        need(policy == "truncate" or analysis == "refined", "policy reject has the analysis refined only")
        need(policy == "truncate" or cap >= n or p < 1, "policy reject accepts no batch at sampling_probability 1")
        need(lending is None or (policy, analysis) == ("truncate", "refined"), "lending is for truncate, refined only")
        rows = [(k, row) for k, row in zip(nodes, lending or [], strict=False) if row is not None]
        need(all(len(row) <= cap for _, row in rows), "lending has more levels than the cap")
        lend = {k: ([fmpq(read("share", v, range(4097)), 4096) for v in r[1:]], fmpq(r[0], 2**20)) for k, r in rows}
        if analysis == "union" and cap < n:
            self.unions.append((cap + 1, n, p, steps))
        if p == 1 and cap >= n:  # every record in every step: Gaussian releases
            self.mu2 += rounds * (4 if self.adjacency == "replace-one" else 1) / (s * s)
        else:
            self.parts.append(((n, p, cap, s * s, policy, self.adjacency, analysis, lend), rounds, nodes))
        return (f"{steps} steps on {size} records in {groups} group(s), Poisson rate {raw['sampling_probability'][:9]}, at most"
                f" {cap} a batch ({policy}), noise multiplier {raw['noise_multiplier'][:9]}, analysis {analysis}")  # fmt: skip

    def compose(self, progress: Callable[[float], None]) -> list[Law]:
        """The laws of the whole run, forward and reversed; under replace-one they are the same, so one suffices."""
        rule = self.bits, self.window, self.delta * fmpq(2) ** (self.bits - 24) / max(self.rounds, 1)
        sides, total = 1 if self.adjacency == "replace-one" else 2, list[Law]()
        for i, (step, rounds, nodes) in enumerate(self.parts):
            both = laws(Step(*step).profile, nodes, self.spacing, self.bits)[:sides]
            ticks = [lambda share, at=i * sides + j: progress((at + share) / len(self.parts) / sides) for j in (0, 1)]
            powers = [power(law, rounds, rule, tick) for law, tick in zip(both, ticks, strict=False)]
            total = [times(x, y, rule) for x, y in zip(total, powers, strict=True)] if total else powers
        return total

    def delta_at(self, composed: list[Law], epsilon: fmpq) -> arb:
        """A ball whose upper end is proven to be at least delta, in both directions. The union bound adds its chance."""
        worst, fits = arb(0), arb(1)
        for law in composed:
            worst = worst.max(delta(law, epsilon, self.spacing, self.bits))
        for first, n, p, steps in self.unions:
            fits *= (1 - tail(first, n, p)) ** steps
        return worst + (1 + arb(epsilon).exp()) * (1 - fits)


def check(claim: Any, *, max_seconds: float = 600.0, max_bytes: float = 2e9,
          progress: Callable[[float], None] = lambda share: None) -> Verdict:  # fmt: skip
    """Whether a certificate's epsilon is proven; a damaged or false claim is refused with the reason, never an error.

    Arguments: the certificate, from `json.load`; what a check may take, as estimated before it starts; who hears of progress.
    >>> check({"format": "filet-certificate", "version": 7}).reason
    'version=7 breaks its rule: range(1, 2)'
    """
    start, reason, words, found = time.perf_counter(), "", "", ""
    try:
        one = Claim(claim)
        need(one.seconds <= max_seconds and one.bytes <= max_bytes,
             f"it may take {one.seconds:.0f} s and {one.bytes / 1e6:.0f} MB: pass max_seconds, max_bytes")  # fmt: skip
        with ctx.workprec(one.precision):
            ball = one.delta_at(one.compose(progress), one.epsilon)
            exact = ball.upper().fmpq()
            found = str(Context(prec=10, rounding=ROUND_UP).divide(Decimal(int(exact.p)), Decimal(int(exact.q))))
            need(exact <= one.delta, f"at epsilon {claim['epsilon']} only delta <= {found} is proven")
        words = (f"Proven: epsilon {claim['epsilon']} at delta {claim['delta']} (at most {found}). Neighbours: "
                 f"{ADJACENCIES[one.adjacency]}. Mechanism: {'; '.join(one.said)}. {one.rounds} composed steps; balls of "
                 f"{one.precision} bits, masses in units of 2^-{one.bits}.")  # fmt: skip
    except Exception as error:  # a claim may be anything
        reason = str(error) if type(error) is ValueError else f"it cannot be read: {type(error).__name__}: {error}"
    return Verdict(not reason, reason, words, claim["epsilon"] if words else "", found, time.perf_counter() - start)
