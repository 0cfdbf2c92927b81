"""Certificates: an epsilon with what `filet.checking` needs to prove it again, without floating point.

The choices here (spacing of the losses, nodes, bits, window) decide how tight and how fast a proof is, never whether it is
right: the checker trusts none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _checks
from .._progress import Progress
from ..errors import FiletError, MissingExtraError, NotCertifiedError
from ..scheme import CappedPoisson, Overflow, Size
from .proving.pair import Pair, phase_law
from .proving.sizes import cell_starts, spread_sizes
from .search.lending import Shares, lenders
from .search.solve import lending_used
from .terms import Adjacency, Analysis, Phase

try:
    from flint import arb, ctx, fmpq
except ImportError as error:
    raise MissingExtraError("certificates need python-flint; install it with: pip install 'filet[check]'") from error

from ..checking import Claim, check, checksum
from ..checking.theorems import profile

if TYPE_CHECKING:
    from .curve import PrivacyCurve

LARGEST_COST = 1e-3  # how far epsilon may lie above the curve's own, relatively
_AIM = 4e-4
_FINENESS = 48  # cells are at most this fraction of their loss wide
_WIDE = 10**7
_LIGHT = 2.0**-22  # mass beyond the last node, as a share of delta
# Shares far from where anything is lent may overflow; the checker judges what comes out, so nobody needs warnings.
_QUIET = np.errstate(over="ignore", divide="ignore", invalid="ignore")

Profile = Callable[[arb, int], arb]
Rows = list[list[int] | None]  # for each node [tilt * 2^20, shares * 4096, ...], or None where nothing is lent


def certificate(
    curve: PrivacyCurve,
    delta: float,
    *,
    max_seconds: float = 600.0,
    max_bytes: float = 2e9,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """A claim that `curve`'s run is (epsilon, delta)-private, as plain JSON, with a witness for `filet.checking.check`.

    >>> import filet
    >>> from filet.checking import check
    >>> scheme = filet.CappedPoisson(1_000, 0.05, 80)
    >>> curve = filet.account(scheme, noise_multiplier=2.0, steps=100, adjacency="zero-out")
    >>> claim = certificate(curve, 1e-5)
    >>> check(claim).ok
    True
    >>> abs(float(claim["epsilon"]) / curve.epsilon(1e-5) - 1) < 1e-3
    True

    Guarantees: the checker accepts what is returned (it was run), and epsilon is at most max(0.1 %, 1e-4) above
    `curve.epsilon(delta)`: what the checker's lattice of losses costs. Nothing secret is in it: no key, no data, only the
    run's public parameters. Raises `NotCertifiedError` where no such proof was found, or the run has no finite epsilon, and
    before it starts where it would take too long or too much memory, with the estimate.

    Arguments:
        curve: the run.
        delta: the delta of the claim.
        max_seconds: what making and checking it may take, as estimated.
        max_bytes: the memory that it may take, as estimated.
        progress: called with the share of the work done and with what comes next.
    """
    max_seconds = _checks.real("max_seconds", max_seconds, remedy="pass the seconds that it may take")
    max_bytes = _checks.real("max_bytes", max_bytes, remedy="pass the bytes that it may take")
    bound = curve.epsilon_bounds(delta).upper
    if not math.isfinite(bound):
        raise NotCertifiedError(f"the run has no finite epsilon at delta={delta!r}, so there is nothing to certify")
    if any(phase.noise_multiplier == 0.0 for phase in _kept(curve)):
        raise NotCertifiedError("some step has noise_multiplier=0.0, which no certificate covers; add noise")
    try:
        claim, _ = certified(Plan.guess(curve, float(delta), bound), max_seconds, max_bytes, progress)
    except FiletError:
        raise
    except ValueError as error:  # the checker's own limits
        raise NotCertifiedError(f"no certificate can hold this run ({error}); use less extreme parameters") from None
    return claim


def certified(
    plan: Plan, max_seconds: float = math.inf, max_bytes: float = math.inf, progress: Progress | None = None
) -> tuple[dict[str, Any], float]:
    """A claim that the checker accepts, and how far its epsilon lies above the plan's, relatively."""
    done = 0.0

    def told(label: str, end: float) -> Callable[[float], None]:
        return lambda share: progress(done + (end - done) * share, label) if progress else None

    for _ in range(6):
        seconds, size = plan.estimate()
        if seconds > max_seconds or size > max_bytes:
            raise NotCertifiedError(
                f"this certificate may take {seconds:.0f} s and {size / 1e6:.0f} MB; pass larger max_seconds and max_bytes"
            )
        claim, cost = plan.claim(told("composing", (1 + done) / 2))
        done = (1 + done) / 2
        if cost <= 0.9 * LARGEST_COST:
            verdict = check(claim, max_seconds=math.inf, max_bytes=math.inf, progress=told("checking", 1.0))
            if verdict.ok:
                return claim, cost
            raise NotCertifiedError(f"the checker refuses its own epsilon ({verdict.reason}); report these parameters")
        plan = plan.finer(cost)
    raise NotCertifiedError(
        f"the lattice of losses costs {cost:.2%} of epsilon={plan.bound!r}, above 0.1 %; use a larger delta"
    )


@_QUIET
def _lent(phase: Phase, adjacency: Adjacency, steps: int, delta: float) -> Shares | None:
    """Shares of a step's lower levels, where the curve's own answer at delta uses lending."""
    if phase.analysis is not Analysis.REFINED or phase.only_gaussian:
        return None
    law = phase_law(phase, adjacency, lenders(phase.scheme.max_batch_size, phase.noise_multiplier))
    return lending_used(Pair((replace(law, steps=steps),)), delta)[0]


@_QUIET
def lending_rows(shares: Shares, nodes: list[int], spacing: float) -> Rows:
    """The witness of the lending theorem: what is lent at each node above the least loss that allows it."""
    loss = spacing * np.array(nodes, dtype=float)
    usable = shares.step.masses(loss)[3].down > 0.0  # m_1, the top's own negative mass; under replace-one, losses > 0
    found, tilts = shares.at(loss)
    units = np.rint(4096 * np.clip(np.nan_to_num(found), 0.0, 1.0)).astype(int)
    steps = np.rint(2**20 * np.clip(np.nan_to_num(tilts), -1e3, 1e3)).astype(int)
    rows: Rows = []
    for use, tilt, row in zip(usable.tolist(), steps.tolist(), units.tolist(), strict=True):
        while row and not row[-1]:
            row.pop()
        rows.append([tilt, *row] if use and row else None)
    return rows


def _phase(phase: Phase, lent: Shares | None) -> dict[str, Any]:
    """A phase of the claim. What the library calls refined is the exchange argument ("swap") where lending gains nothing."""
    scheme, analysis = phase.scheme, phase.analysis
    if scheme.overflow is Overflow.TRUNCATE and analysis is Analysis.REFINED and lent is None:
        analysis = Analysis.SWAP
    return {
        "dataset_size": scheme.dataset_size,
        "sampling_probability": repr(float(scheme.sampling_probability)),
        "max_batch_size": scheme.max_batch_size,
        "overflow": scheme.overflow.value,
        "cycle_length": scheme.cycle_length,
        "noise_multiplier": repr(float(phase.noise_multiplier)),
        "steps": phase.steps,
        "analysis": analysis.value,
        "size": scheme.size.value,
    }


def _cuts(scheme: CappedPoisson) -> list[int]:
    """Cuts of data set sizes into cells (`at-most`), or knots of batch sizes (`secret`), for the checker; any will do."""
    n, p, cap = scheme.dataset_size, scheme.sampling_probability, scheme.max_batch_size
    if scheme.size is Size.AT_MOST and scheme.capped:
        return [start for start in cell_starts(scheme) if cap < start <= n]
    if scheme.size is Size.SECRET:
        return [int(knot) for knot in spread_sizes(n, p, cap).knots]
    return []


def estimated_seconds(one: Claim) -> float:
    """An estimate, from above, of a check's seconds on one core: products, one kernel a level and node, sums of binomial tails."""
    products = sum(2 * rounds.bit_length() for _, rounds, _ in one.parts) * one.window
    kernels = 0
    terms = 0.0
    for (n, p, *_, policy, _, _, lend, cuts), _, nodes in one.parts:
        several = 1 + len(cuts) * (policy in ("at-most", "secret"))  # bounds, of which the largest counts
        kernels += several * (3 * len(nodes) + sum(len(shares) + 1 for shares, _ in lend.values()))
        spread = min(float(n * p * (1 - p)), 1e8)  # beyond, a function that takes as long as the longest sums
        terms += 5 * several * (one.precision + math.sqrt(2 * one.precision * spread))
    each = 5e-5 + 2e-7 * one.precision
    return float(products * (4e-6 + 1e-8 * one.bits) + kernels * each + terms * (2e-6 + 4e-10 * one.precision))


def describes(claim: Any, curve: PrivacyCurve, delta: float) -> bool:
    """True if a claim is about this run at this delta; its proof is the checker's to judge."""
    if not isinstance(claim, dict) or not isinstance(claim.get("phases"), list):
        return False
    kept = [_phase(phase, None) for phase in _kept(curve)]
    claimed = [{**one, "analysis": ""} for one in claim["phases"] if isinstance(one, dict)]
    return (claim.get("adjacency"), claim.get("delta"), claim.get("gaussian"), claimed) == (
        curve.adjacency.value,
        repr(delta),
        repr(curve.gaussian),
        [{**one, "analysis": ""} for one in kept],
    )


def _kept(curve: PrivacyCurve) -> list[Phase]:
    """The phases of a claim: those that release anything."""
    return [phase for phase in curve.phases if phase.steps and math.isfinite(phase.noise_multiplier)]


def signed(body: dict[str, Any]) -> dict[str, Any]:
    """The claim with its checksum."""
    return {**body, "checksum": checksum(body)}


def rounded_up(value: float) -> str:
    """A decimal that is at least `value`, in eight digits, in the form that the checker reads."""
    return repr(float(Context(prec=8, rounding=ROUND_UP).plus(Decimal(value))))


@dataclass(frozen=True)
class Plan:
    """Parts of a claim; `steepness` is -d log(delta) / d epsilon, which decides how coarse far losses may be."""

    body: dict[str, Any]
    bound: float
    delta: float
    steepness: float
    spacing: float
    fineness: float
    dense: tuple[bool, ...]  # which phases use every record in every step, and so are Gaussian releases
    ranges: tuple[tuple[float, float], ...]
    lent: tuple[Shares | None, ...]  # what each phase lends
    cuts: tuple[int, ...]  # of sizes that are not public

    @classmethod
    def guess(cls, curve: PrivacyCurve, delta: float, bound: float) -> Plan:
        kept = _kept(curve)
        rounds = sum(phase.rounds for phase in kept if not phase.only_gaussian)
        lent = tuple(_lent(p, curve.adjacency, max(rounds, 1), delta) for p in kept)
        body: dict[str, Any] = {
            "format": "filet-certificate",
            "version": 2,
            "adjacency": curve.adjacency.value,
            "epsilon": rounded_up(bound),
            "delta": repr(delta),
            "gaussian": repr(curve.gaussian),
            "phases": [_phase(*one) for one in zip(kept, lent, strict=True)],
        }
        width = 0.01 * bound + 1e-9
        near, far = (max(curve.delta_bounds(e).upper, 1e-300) for e in (bound, bound + width))
        steepness = max(math.log(near / far) / width, 1.0)
        spacing = math.sqrt(8 * _AIM * max(bound, 0.01) / (max(rounds, 1) * (steepness + 1)))
        plan = cls(body, bound, delta, steepness, min(spacing, 0.02), _FINENESS,
                   tuple(p.only_gaussian for p in kept), (), lent,
                   tuple(sorted({cut for p in kept for cut in _cuts(p.scheme)})))  # fmt: skip
        return plan._with_ranges()

    def _with_ranges(self) -> Plan:
        one = Claim(self._signed("0.0", 64, _WIDE, [[]] * (len(self.dense) + 1)))
        rounds = max(one.rounds, 1)
        with ctx.workprec(256 + 2 * int(-math.log2(self.delta))):
            found = tuple(_range(profile(*step), self.delta * _LIGHT / rounds) for step, _, _ in one.parts)
        return replace(self, ranges=found)

    def _signed(self, epsilon: str, bits: int, window: int, nodes: list[list[int]]) -> dict[str, Any]:
        spacing = rounded_up(self.spacing)
        lending = [
            lending_rows(shares, row, float(spacing)) if shares and row else None
            for shares, row in zip(self.lent, nodes, strict=False)
        ]
        witness = {"spacing": spacing, "bits": bits, "window": window, "nodes": nodes, "lending": lending,
                   "cuts": list(self.cuts)}  # fmt: skip
        return signed({**self.body, "epsilon": epsilon, "witness": witness})

    def finer(self, cost: float) -> Plan:
        shrink = min(0.7, math.sqrt(_AIM / cost))
        return replace(self, spacing=self.spacing * shrink, fineness=self.fineness / shrink)

    def nodes(self, low: float, high: float) -> list[int]:
        """0 and nodes on both sides, as far as needed; cells grow with the loss, up to a fraction of 1 / steepness."""
        sides = []
        for end in (-low, high):
            k, side, widest = 0, [], 4.0 / (self.fineness * self.steepness) / self.spacing
            while k * self.spacing < end:
                k += max(1, int(min(k / self.fineness, widest)))
                side.append(k)
            sides.append(side)
        return [-k for k in reversed(sides[0])] + [0] + sides[1]

    def _witness(self) -> tuple[int, list[list[int]], int]:
        """The bits of the masses, the nodes of each phase and of Gaussian releases, and the widest span of them."""
        found = [self.nodes(*ends) for ends in self.ranges]
        grids = [[] if dense else found.pop(0) for dense in self.dense] + [found.pop() if found else []]
        rounds = Claim(self._signed("0.0", 64, _WIDE, grids)).rounds
        span = max(grid[-1] - grid[0] for grid in [[0, 1], *grids] if grid)
        return int(-math.log2(self.delta) + math.log2(rounds + 1) + math.log2(span + 2)) + 30, grids, span

    def witnessed(self, window: int) -> dict[str, Any]:
        """A claim at the plan's own epsilon, for composed losses of at most `window` nodes; whether it is proven is open."""
        bits, grids, span = self._witness()
        return self._signed(rounded_up(self.bound), bits, max(window, span + 1), grids)

    def estimate(self) -> tuple[float, float]:
        """Estimates of the seconds and the bytes that making and checking the claim takes."""
        reach = 2 * self.bound + max((high - low for low, high in self.ranges), default=0.0)
        one = Claim(self.witnessed(int(reach / self.spacing) + 2))
        return 2 * estimated_seconds(one), one.bytes

    def claim(self, progress: Callable[[float], None] = lambda share: None) -> tuple[dict[str, Any], float]:
        """The claim at the smallest epsilon that the checker proves, and how far that lies above the bound, relatively."""
        bits, grids, span = self._witness()
        one = Claim(self._signed("0.0", bits, _WIDE, grids))
        with ctx.workprec(one.precision):
            composed = one.compose(progress)
            epsilon = _smallest(lambda e: bool(one.delta_at(composed, e) <= one.delta), self.bound)
        window = 2 * max([len(law.masses) for law in composed] + [span, 1])
        return self._signed(epsilon, bits, window, grids), (float(epsilon) - self.bound) / max(self.bound, 0.1)


def _range(profile: Profile, light: float) -> tuple[float, float]:
    """Losses beyond which a step has less mass than `light`, forward above and reversed below."""

    def beyond(sign: int, loss: float) -> bool:
        at = arb(sign * loss)
        value = profile(at, sign)
        if sign < 0:
            value = (value - 1 + at.exp()) / at.exp()
        return bool(value <= light)

    ends = []
    for sign in (-1, 1):
        low, high = 0.0, 1e-6
        while not beyond(sign, high):
            low, high = high, 2 * high
            if high > 1e5:
                raise NotCertifiedError("a step's loss is beyond 100000, which no certificate covers; use more noise")
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (low, middle) if beyond(sign, middle) else (middle, high)
        ends.append(sign * high)
    return ends[0], ends[1]


def _smallest(proven: Callable[[fmpq], bool], guess: float) -> str:
    """The smallest epsilon in eight digits, or nearly, that is proven."""

    def at(value: float) -> fmpq:
        return fmpq(*Decimal(rounded_up(value)).as_integer_ratio())

    if proven(at(0.0)):
        return "0.0"
    low, high = 0.0, guess
    step = 1e-4 * max(guess, 1e-4)
    while not proven(at(high)):
        low, high, step = high, high + step, 4 * step
        if step > 100 * max(guess, 1.0):
            return rounded_up(high)
    if low == 0.0 and guess > 0.0 and not proven(at(guess * (1 - 2e-3))):
        low = guess * (1 - 2e-3)
    while high - low > 1e-7 * high and rounded_up(low) != rounded_up(high):
        middle = (low + high) / 2
        low, high = (low, middle) if proven(at(middle)) else (middle, high)
    return rounded_up(high)
