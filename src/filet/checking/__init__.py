"""Is a certificate's epsilon proven? `check(claim)` answers in ball arithmetic, and uses nothing else of filet."""

import hashlib
import json
import re
from collections.abc import Callable
from decimal import ROUND_UP, Context, Decimal
from time import monotonic
from typing import Any, NamedTuple

try:
    from flint import arb, ctx, fmpq, fmpz
except ImportError as missing:
    raise ImportError("filet.checking needs python-flint; pip install 'filet[check]'") from missing

from .lattice import Law, delta, laws, power, times, up
from .theorems import DEADLINE, need, profile, spend, tail

ADJACENCIES = {"add-remove": "added or removed", "zero-out": "replaced by zero", "replace-one": "replaced by another"}
SIZES = {"public": "the stated public size", "at-most": "any size up to the stated one", "secret": "any size, if no data decided the stated one"}  # fmt: skip
# The rule of a field: whole numbers, choices, a type, or the largest number: an int for decimals, a float for nearest doubles.
CLAIM = {"format": ("filet-certificate",), "version": (2,), "adjacency": tuple(ADJACENCIES), "epsilon": 10**6,
         "delta": 1, "gaussian": 1e18, "phases": list, "witness": dict, "checksum": str}  # fmt: skip
PHASE = {"dataset_size": range(1, 10**16), "sampling_probability": 1.0, "max_batch_size": range(1, 2**63),
         "overflow": ("truncate", "reject"), "cycle_length": range(1, 10**16), "noise_multiplier": 1e18,
         "steps": range(1, 10**12), "analysis": ("refined", "swap", "note", "union"), "size": tuple(SIZES)}  # fmt: skip
WITNESS = {"spacing": 1, "bits": range(16, 4097), "window": range(1, 10**8), "nodes": list, "lending": list, "cuts": list}  # fmt: skip
NUMBER = r"[0-9]{1,16}\.[0-9]{1,20}|[1-9](\.[0-9]{1,16})?e[-+][0-9]{2,3}"


class Verdict(NamedTuple):
    """`ok`: epsilon and delta are proven; else `reason` says why not. `words`: what was verified, and how."""

    ok: bool
    reason: str
    words: str
    epsilon: str
    delta: str
    seconds: float


def read(name: str, value: Any, rule: Any) -> Any:
    """The value if it keeps the rule. Numbers are strings, in the one form that Python gives them, and become fractions."""
    if isinstance(rule, range | tuple):
        kept, whole = type(value) is type(rule[0]) and value in rule, isinstance(rule, range)
        words = f"a whole number from {rule[0]} to {rule[-1]}" if whole else " or ".join(map(str, rule))
    elif isinstance(rule, type):
        kept, words = type(value) is rule, f"a {rule.__name__}"
    else:
        number = float(value) if type(value) is str and re.fullmatch(NUMBER, value) else float("nan")
        kept = repr(number) == value and number <= rule
        words = f"a number up to {rule} in a string, written as Python writes it, such as '0.05' or '1e-05'"
        value = fmpq(*Decimal(value if type(rule) is int else number).as_integer_ratio()) if kept else value
    need(kept, "" if kept else f"{name} must be {words}, not {ascii(value)[:60]}")
    return value


def fields(raw: Any, rules: dict[str, Any], name: str) -> list[Any]:
    need(type(raw) is dict and set(raw) == set(rules), f"{name} must have exactly the fields {', '.join(rules)}")
    return [read(key, raw[key], rule) for key, rule in rules.items()]


def checksum(claim: dict[str, Any]) -> str:
    """SHA-256 of the claim's other fields, as JSON with sorted keys and without spaces."""
    body = json.dumps({key: claim[key] for key in claim if key != "checksum"}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()


class Claim:
    """A claim whose every field keeps its rule; `parts` are its kinds of steps: (arguments of `profile`, rounds, nodes)."""

    def __init__(self, raw: Any) -> None:
        for key in ("format", "version"):  # of another version nothing else is known
            read(f"the {key} of a certificate", raw.get(key) if type(raw) is dict else None, CLAIM[key])
        _, _, self.adjacency, self.epsilon, self.delta, self.mu2, phases, witness, seal = fields(raw, CLAIM, "a claim")
        need(seal == checksum(raw), "the checksum does not match: the certificate was changed or damaged")
        self.spacing, self.bits, self.window, nodes, lending, cuts = fields(witness, WITNESS, "the witness")
        self.cuts, near = [read("a cut", size, range(10**16)) for size in cuts], range(-self.window, self.window)
        need(self.delta > 0 and self.spacing > 0, "delta and spacing must be positive")
        need(len(nodes) == len(phases) + 1 == len(lending) + 1, "nodes and lending do not match the phases")
        rising = [sorted({read("a node", k, near) for k in read("nodes", row, list)}) for row in nodes]
        need(nodes == rising, "the nodes do not rise")
        self.parts, self.unions = list[tuple[tuple[Any, ...], int, list[int]]](), list[tuple[int, int, fmpq, int]]()
        self.said = [f"Gaussian releases, (sensitivity / noise)^2 = {raw['gaussian']}"] if self.mu2 > 0 else []
        self.said += [self.add(*row) for row in zip(phases, nodes, lending, strict=False)]
        sizes = {phase["dataset_size"] for phase in phases if self.adjacency == "add-remove"}
        need(len(sizes) < 2, "add-remove phases must have one dataset_size")
        if self.mu2 > 0:
            self.parts.append(((1, fmpq(1), 1, 1 / self.mu2, "truncate", "zero-out", "swap", {}, []), 1, nodes[-1]))
        self.rounds = sum(rounds for _, rounds, _ in self.parts)
        far = int((max((abs(k) for row in nodes for k in row), default=0) * self.spacing).ceil())
        # Bits of the balls: second differences at this spacing, and weights e^loss at the ends, must keep `bits`.
        self.precision = self.bits + 2 * int((1 / self.spacing).ceil()).bit_length() + 3 * far + 64
        need(self.precision < 10**4, f"the nodes and the spacing ask for balls of {self.precision} bits, above 10000")
        self.bytes = 4e7 + self.window * (600.0 + self.bits) + len(cuts) * (4000 + 2 * self.precision)

    def add(self, raw: Any, nodes: list[int], lending: Any) -> str:
        """One phase, in words. A record's group has its turn every `cycle_length` steps. Units: share 1/4096, tilt 2^-20."""
        spend()
        size, p, cap, policy, groups, s, steps, analysis, kind = fields(raw, PHASE, "a phase")
        n, rounds = size // groups, -(-steps // groups)
        need(min(n, p, s) > 0, "cycle_length is above dataset_size, or a rate or noise is 0")
        need(policy == "truncate" or analysis == "refined", "policy reject has the analysis refined only")
        need(policy == "truncate" or cap >= n or p < 1, "policy reject accepts no batch at sampling_probability 1")
        need((policy, kind) not in (("truncate", "secret"), ("reject", "at-most")), f"policy {policy}: no size {kind}")
        need(kind == "public" or (groups, analysis == "note") == (1, False), f"size {kind}: one group, no note")
        need(cap < n or kind != "secret", "size secret has a planned dataset_size above max_batch_size")
        need(lending is None or (policy, analysis) == ("truncate", "refined"), "lending is for truncate, refined only")
        given = [None] * len(nodes) if lending is None else read("lending", lending, list)
        need(len(given) == len(nodes), "lending does not match the nodes")
        rows = [(k, read("lending", row, list)) for k, row in zip(nodes, given, strict=True) if row is not None]
        need(all(0 < len(row) <= cap for _, row in rows), "lending has no tilt, or more levels than the cap")
        shares = {k: [fmpq(read("a share", v, range(4097)), 4096) for v in row[1:]] for k, row in rows}
        lend = {k: (shares[k], fmpq(read("a tilt", row[0], range(-(2**31), 2**31)), 2**20)) for k, row in rows}
        if analysis == "union" and cap < n:
            self.unions.append((cap + 1, n, p, steps))
        if p == 1 and cap >= n:  # every record in every step: Gaussian releases
            self.mu2 += rounds * (4 if self.adjacency == "replace-one" else 1) / (s * s)
        else:
            by = {"public": policy}.get(kind, kind)
            self.parts.append(((n, p, cap, s * s, by, self.adjacency, analysis, lend, self.cuts), rounds, nodes))
        return (f"{steps} steps on {size} records (size {kind}) in {groups} group(s), Poisson rate {raw['sampling_probability']}, "
                f"at most {cap} a batch ({policy}), noise multiplier {raw['noise_multiplier']}, analysis {analysis}")  # fmt: skip

    def compose(self, progress: Callable[[float], None]) -> list[Law]:
        """The laws of the whole run, forward and reversed; under replace-one they are the same, so one suffices."""
        rule = self.bits, self.window, self.delta * fmpq(2) ** (self.bits - 24) / max(self.rounds, 1)
        sides, total = 1 if self.adjacency == "replace-one" else 2, list[Law]()
        for i, (step, rounds, nodes) in enumerate(self.parts):
            both = laws(profile(*step), nodes, self.spacing, self.bits)[:sides]
            ticks = [lambda share, at=i * sides + j: progress((at + share) / len(self.parts) / sides) for j in (0, 1)]
            powers = [power(law, rounds, rule, tick) for law, tick in zip(both, ticks, strict=False)]
            total = [times(x, y, rule) for x, y in zip(total, powers, strict=True)] if total else powers
        return total

    def delta_at(self, composed: list[Law], epsilon: fmpq) -> fmpq:
        """A number that is proven to be at least delta, in both directions. The union bound adds its chance."""
        worst, fits, bits = arb(0), arb(1), self.bits + 64
        for law in composed:
            worst = worst.max(delta(law, epsilon, self.spacing, self.bits))
        for first, n, p, steps in self.unions:
            fits *= (1 - tail(first, n, p)) ** steps
        return fmpq(up((worst + (1 + arb(epsilon).exp()) * (1 - fits)).min(arb(1)), bits), fmpz(1) << bits)


def check(claim: Any, *, max_seconds: float = 600.0, max_bytes: float = 2e9,
          progress: Callable[[float], None] = lambda share: None) -> Verdict:  # fmt: skip
    """Verdict on a certificate's epsilon, proven or not; a damaged or false claim is refused with the reason, never an error.
    >>> check({"format": "filet-certificate", "version": 7}).reason
    'the version of a certificate must be 2, not 7'
    """
    start, reason, words, found = monotonic(), "", "", ""
    limit = DEADLINE.set(start + max_seconds)
    try:
        one = Claim(claim)
        need(one.bytes <= max_bytes, f"it may need {one.bytes / 1e6:.0f} MB, more than max_bytes allows")
        with ctx.workprec(one.precision):
            exact = one.delta_at(one.compose(progress), one.epsilon)
        found = str(Context(prec=10, rounding=ROUND_UP).divide(Decimal(int(exact.p)), Decimal(int(exact.q))))
        need(exact <= one.delta, f"at epsilon {claim['epsilon']} only delta <= {found} is proven")
        size = min(["secret", *(phase["size"] for phase in claim["phases"])], key=[*SIZES].index)
        words = (f"Proven: epsilon {claim['epsilon']} at delta {claim['delta']} (at most {found}). Neighbours: one record "
                 f"{ADJACENCIES[one.adjacency]}; the larger data set has {SIZES[size]}. Mechanism: {'; '.join(one.said)}. Rates "
                 f"and noise are the double-precision numbers nearest to these. {one.rounds} composed steps; balls of "
                 f"{one.precision} bits, masses in units of 2^-{one.bits}.")  # fmt: skip
    except Exception as error:  # a claim may be anything
        reason = str(error) if type(error) is ValueError else f"it cannot be read: {type(error).__name__}: {error}"
    finally:
        DEADLINE.reset(limit)
    return Verdict(not reason, reason, words, claim["epsilon"] if words else "", found, monotonic() - start)
