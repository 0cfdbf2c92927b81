"""Composed runs at the extremes, each by a formula of its own: python extremes_composed.py [FILE]. Nothing of filet is used.

- gaussian: every example in every batch, and Gaussian releases: the closed form.
- exposed: steps without noise and one noisy step. Without noise a step shows its hit; the other outcomes shift the loss.
- apart: so little noise that hits can be told from misses: a sum over the numbers of hits, and the chance of confusion as error.
- beside: one step and Gaussian releases: the step's profile averaged over the Gaussian loss, by Gauss-Legendre panels.
- two: two steps (`few_steps.two_steps`), with weights at the extremes.
- rare: plain Poisson by convolution (`few_steps.PoissonLoss`); many: moderate parameters by inversion (`exact.Composed`).

`delta` is the larger of both directions at `epsilon`, and `error` its relative uncertainty.
"""

from __future__ import annotations

import csv
import itertools
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpmath import mp, mpf
from mpmath.calculus.quadrature import GaussLegendre

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.reference import exact, extremes, few_steps
from tests.reference.extremes import ADJACENCIES, POLICIES, Step

PATH = Path(__file__).parent / "tables" / "extremes_composed.csv"
HEADER = """\
# Composed runs at the extremes, made by tests/reference/extremes_composed.py (which says how each part is computed).
# steps: n p cap policy analysis sigma count, separated by ";"; releases: sigma count of Gaussian releases. All numbers are the doubles
# printed here. delta: the larger direction's at epsilon; error: its relative uncertainty.
"""
FIELDS = ["part", "adjacency", "steps", "releases", "epsilon", "delta", "error"]
Row = dict[str, Any]


def text(step: Step, count: int) -> str:
    return f"{step.n} {step.p!r} {step.cap} {step.policy} {step.analysis} {step.sigma!r} {count}"


def row(part: str, adjacency: str, runs: list[tuple[Step, int]], releases: list[tuple[float, int]], epsilon: float,
        delta: Any, error: float) -> Row:  # fmt: skip
    return {
        "part": part, "adjacency": adjacency, "steps": ";".join(text(*run) for run in runs),
        "releases": ";".join(f"{sigma!r} {count}" for sigma, count in releases),
        "epsilon": epsilon, "delta": mp.nstr(delta, 20), "error": error,
    }  # fmt: skip


def gaussian_delta(square: Any, epsilon: Any) -> Any:
    """delta of a Gaussian loss N(square / 2, square)."""
    mu = mp.sqrt(square)
    return extremes._tail(epsilon / mu - mu / 2) - mp.exp(epsilon) * extremes._tail(epsilon / mu + mu / 2)


def gaussian(draw: random.Random, count: int) -> Iterator[Row]:
    while count:
        adjacency = draw.choice(ADJACENCIES)
        n = draw.choice((1, 1000, 10**15))
        runs = [(Step(n, 1.0, n, "none", "refined", adjacency, 10.0 ** draw.uniform(-5, 6)), int(10.0 ** draw.uniform(0, 6)))
                for _ in range(draw.choice((0, 1, 1, 3)))]  # fmt: skip
        releases = [
            (10.0 ** draw.uniform(-5, 8), int(10.0 ** draw.uniform(0, 6))) for _ in range(draw.choice((0, 1, 4)))
        ]
        with mp.workdps(120):
            square = mp.fsum(mpf(k) / mpf(s) ** 2 for s, k in releases)
            square += mp.fsum(mpf(k * (4 if adjacency == "replace-one" else 1)) / mpf(v.sigma) ** 2 for v, k in runs)
            if not square:
                continue
            mu = mp.sqrt(square)
            epsilon = float(mu * (draw.uniform(-4, 36) + mu / 2))
            delta = gaussian_delta(square, mpf(epsilon)) if epsilon > 0 else mpf(0)
        if 1e-285 < delta < 0.999:
            count -= 1
            yield row("gaussian", adjacency, runs, releases, epsilon, delta, 1e-20)


def at_any(step: Step, epsilon: Any, forward: bool, digits: int = 90) -> Any:
    """The step's profile at an epsilon of either sign."""
    if epsilon >= 0:
        return step.delta(epsilon, forward, digits)
    return -mp.expm1(epsilon) + mp.exp(epsilon) * step.delta(-epsilon, not forward, digits)


def inclusion(step: Step) -> Any:
    """Chance that the example is in the batch: plain, E|S| / n, or given a batch that fits."""
    v = step.weights()
    if step.policy == "none":
        return v["p"]
    return v["p"] * (1 - v["b"]) if step.policy == "reject" else v["p"] * (v["room"] + v["w"]) + v["tq"]


def exposed(draw: random.Random, count: int) -> Iterator[Row]:
    while count:
        noisy = extremes.draw_step(draw, extremes.draw_scheme(draw))
        policy, analysis = draw.choice(POLICIES) if noisy.adjacency == "replace-one" else ("none", "refined")
        if policy == "reject" and noisy.p == 1.0:
            continue
        cap = noisy.cap
        bare = Step(noisy.n, noisy.p, cap, policy, analysis, noisy.adjacency, 0.0)
        steps = int(10.0 ** draw.uniform(0, 6))
        with mp.workdps(90):
            shift = steps * mp.log1p(-inclusion(bare)) if inclusion(bare) < 1 else mp.ninf
            hit = -mp.expm1(shift)
            if not 1e-60 < hit < 0.99:
                continue
            for epsilon in extremes.ladder(noisy, draw, 4):
                move = 0 if noisy.adjacency == "replace-one" else shift
                delta = hit + (1 - hit) * at_any(noisy, mpf(epsilon) - move, True)
                if noisy.adjacency != "replace-one":
                    delta = max(delta, at_any(noisy, mpf(epsilon) + move, False))
                if delta < 1.01 * hit and draw.random() < 0.9:  # the noisy step should matter
                    continue
                count = max(0, count - 1)
                yield row("exposed", noisy.adjacency, [(bare, steps), (noisy, 1)], [], epsilon, delta, 1e-20)


def told_apart(step: Step) -> list[tuple[Any, Any, Any]] | None:
    """Outcomes of a step with little noise: P-mass, constant part of the loss, squared shift (0: a miss)."""
    v, one, far = step.weights(), 1 / mpf(step.sigma) ** 2, 4 / mpf(step.sigma) ** 2
    p, kind = v["p"], (step.policy, step.analysis, step.adjacency)
    if step.policy == "none":
        if step.adjacency == "replace-one":
            return [(1 - p, mpf(0), mpf(0)), (p, mp.log(p / (1 - p)), one)]
        return [(1 - p, mp.log1p(-p), mpf(0)), (p, mp.log(p), one)]
    if kind == ("reject", "refined", "add-remove"):
        k, hit = v["k"], (1 - v["b'"]) * v["k"] * p
        return [(1 - hit, mp.log(k * (1 - p)), mpf(0)), (hit, mp.log(k * p), one)]
    if kind == ("reject", "refined", "replace-one"):
        hit = (1 - v["b"]) * p
        return [(1 - hit, mpf(0), mpf(0)), (hit, mp.log(p / (1 - p)), one)]
    if step.adjacency != "add-remove" or not v["tau"] or not v["w"]:
        return None
    room, q = v["room"] + (v["w"] if step.analysis == "note" else 0), v["q"]
    parts = [(room * (1 - p), mp.log1p(-p), mpf(0)), (room * p, mp.log(p), one)]
    if step.analysis == "note":
        return [*parts, (v["swap"], mp.log(1 - q), mpf(0)), (v["tq"], mp.log(q), far)]
    stay = (1 - p) * v["w"]
    return [
        *parts,
        (stay, mp.log1p(-p), mpf(0)),
        (v["swap"], mp.log(1 - q), mpf(0)),
        (v["c"], mp.log(v["c"] / v["w"]), one),
    ]


def confusion(step: Step, outcomes: list[tuple[Any, Any, Any]]) -> float:
    """log of about the chance that a hit looks like a miss or the reverse: half the distance, moved by the odds."""
    least = min(abs(mp.log(max(m, mpf(10) ** -300))) for m, _, _ in outcomes)
    odds = max(
        [abs(c) for _, c, _ in outcomes] + [abs(mp.log(max(m, mpf(10) ** -300))) for m, _, _ in outcomes] + [least]
    )
    lead = mpf(1) / 2 - mpf(step.sigma) ** 2 * odds * 2
    return -float(lead**2 / (2 * mpf(step.sigma) ** 2)) if lead > 0 else 0.0


def apart_delta(outcomes: list[tuple[Any, Any, Any]], steps: int, epsilon: Any) -> Any:
    total = mpf(0)
    if len(outcomes) == 2:
        (miss, low, _), (hit, high, square) = outcomes
        most = min(steps, int(steps * hit) + 150)
        counts: Any = ((steps - k, k) for k in range(most + 1))
        log_miss, log_hit = mp.log(miss), mp.log(hit)
        sets = ((mp.exp(mp.loggamma(steps + 1) - mp.loggamma(a + 1) - mp.loggamma(k + 1) + a * log_miss + k * log_hit),
                 a * low + k * high, k * square) for a, k in counts)  # fmt: skip
    else:
        sets = ((math.prod((v[0] for v in some), start=mpf(1)), sum(v[1] for v in some), sum(v[2] for v in some))
                for some in itertools.product(outcomes, repeat=steps))  # fmt: skip
    for chance, constant, square in sets:
        if square:
            total += chance * gaussian_delta(square, epsilon - constant)
        elif constant > epsilon:
            total += chance * -mp.expm1(epsilon - constant)
    return total


def apart(draw: random.Random, count: int) -> Iterator[Row]:
    while count:
        n, p, cap = extremes.draw_scheme(draw)
        policy, analysis = draw.choice([v for v in POLICIES if v[0] != "reject" or p < 1.0])
        step = Step(n, p, cap, policy, analysis, draw.choice(ADJACENCIES), 10.0 ** draw.uniform(-3.5, -1.7))
        with mp.workdps(60):
            outcomes = told_apart(step) if p < 1.0 else None
            chance = confusion(step, outcomes) if outcomes else 0.0
            if not outcomes or chance > -250.0 or min(m for m, _, _ in outcomes) <= 0:
                continue
            hits = mp.fsum(m for m, _, square in outcomes if square)
            steps = draw.choice((2, 3))
            if len(outcomes) == 2 and draw.random() < 0.7:
                steps = min(
                    10**6,
                    max(2, int(10.0 ** draw.uniform(-8, 1.3) / float(hits) + 1)),
                    int(10.0 ** draw.uniform(0.3, 6)) + 1,
                )
            floor = steps * max(-c for _, c, square in outcomes if not square) + 1
            for _ in range(2):
                constant, square = draw.choice([v for v in outcomes if v[2]])[1:]
                k = draw.choice((1, 1, 2, 3)) if steps > 2 else draw.choice((1, 1, 2))
                rest = (steps - k) * outcomes[0][1]
                epsilon = float(k * constant + rest + k * square / 2 + draw.uniform(-8, 8) * mp.sqrt(k * square))
                if not floor < epsilon:
                    continue
                delta = apart_delta(outcomes, steps, mpf(epsilon))
                error = steps * 1e3 * math.exp(chance) / float(delta) if delta > 1e-200 else 1.0
                if error < 1e-12 and delta < 0.99:
                    count = max(0, count - 1)
                    yield row("apart", step.adjacency, [(step, steps)], [], epsilon, delta, error + 1e-18)


def beside(draw: random.Random, count: int) -> Iterator[Row]:
    with mp.workdps(40):
        coarse, fine = (GaussLegendre(mp).calc_nodes(degree, mp.prec) for degree in (3, 4))
    while count:
        n, p, cap = extremes.draw_scheme(draw)
        policy, analysis = draw.choice([v for v in POLICIES if v[0] != "reject" or p < 1.0])
        step = Step(n, p, cap, policy, analysis, draw.choice(ADJACENCIES), 10.0 ** draw.uniform(-0.3, 4))
        release = step.sigma * 10.0 ** draw.uniform(-0.5, 1), draw.choice((1, 1, 10))
        with mp.workdps(40):
            mu = mp.sqrt(mpf(release[1])) / mpf(release[0])
            epsilon = float(mu * (draw.uniform(-1, 12) + mu / 2))
            if epsilon <= 0:
                continue
            v = step.weights()
            kinks = [mpf(0), *(s * mp.log1p(-v[k]) for k in ("p", "q") if k in v and v[k] < 1 for s in (1, -1))]
            marks = sorted({(epsilon - k - mu * mu / 2) / mu for k in kinks})
            points = sorted({mpf(j) / 2 for j in range(-26, 64)} | set(marks) | {
                m + s * mpf(2) ** -k for m in marks for k in range(2, 24, 2) for s in (1, -1)})  # fmt: skip
            found = []
            for rule in (coarse, fine) if count % 5 == 0 else (coarse,):
                worst = mpf(0)
                for forward in (True, False)[: 1 if step.adjacency == "replace-one" else 2]:
                    total = mpf(0)
                    for a, b in itertools.pairwise(points):
                        for x, wt in rule:
                            t = (a + b) / 2 + (b - a) / 2 * x
                            total += (
                                (b - a)
                                / 2
                                * wt
                                * mp.npdf(t)
                                * at_any(step, epsilon - mu * mu / 2 - mu * t, forward, 55)
                            )
                    worst = max(worst, total)
                found.append(worst)
            assert abs(found[0] / found[-1] - 1) < 1e-9, (step, release, epsilon, found)
        if 1e-280 < found[-1] < 0.99:
            count -= 1
            yield row("beside", step.adjacency, [(step, 1)], [release], epsilon, found[-1], 1e-8)


def law(step: Step, forward: bool) -> exact.Law:
    """The explicit loss law of `exact`, with weights at the extremes; policies none, reject and truncate refined."""
    v, one, s = step.weights(), mpf(1), mpf(step.sigma)
    p, atoms = v["p"], []
    if step.policy == "none":
        pieces = [exact._poisson_piece(p, step.adjacency, one, one)]
    elif step.policy == "reject" and step.adjacency == "add-remove":
        pieces = [exact._poisson_piece(p, step.adjacency, (1 - v["b'"]) * v["k"], 1 - v["b'"])]
        atoms = [(v["b'"] * v["k"] * (1 - p), v["b'"])]
    elif step.policy == "reject":
        pieces, atoms = [exact._poisson_piece(p, step.adjacency, 1 - v["b"], 1 - v["b"])], [(v["b"], v["b"])]
    else:
        names = {k: v[k] for k in ("p", "w", "tau", "tq", "c", "q")}
        all_weights = exact.Weights(n=step.n, B=step.cap, Z_n=one, Z_N=one, b=one, b_prime=one, k=one, **names)
        pieces, atoms = exact._capped_pieces(all_weights, s, step.adjacency)
        if v["room"] > 0:
            pieces = [exact._poisson_piece(p, step.adjacency, v["room"], v["room"]), *pieces]
    found = exact.Law(s, tuple(pieces), tuple((x, y) for x, y in atoms if x > 0 or y > 0))
    return found if forward else found.reversed()


def two(draw: random.Random, count: int) -> Iterator[Row]:
    while count:
        n, p, cap = extremes.draw_scheme(draw)
        policy, analysis = draw.choice([v for v in POLICIES if v[1] == "refined" and (v[0] != "reject" or p < 1.0)])
        step = Step(n, p, cap, policy, analysis, draw.choice(ADJACENCIES), 10.0 ** draw.uniform(-0.4, 2))
        if 1.0 - p < 1e-9 or (policy == "truncate" and step.weights()["w"] + step.weights()["tau"] < 1e-60):
            continue
        goal = min(extremes._log10(step, 0.0), 0.0) - draw.uniform(0.3, 12)
        epsilon = 2.0 * 10.0 ** extremes._reach(step, goal, -25.0, 13.0)
        ways = (True, False)[: 1 if step.adjacency == "replace-one" else 2]
        with mp.workdps(40):
            rough = [
                few_steps.two_steps(
                    law(step, way), epsilon, 20, lambda e, step=step, way=way: at_any(step, e, way, 55), degree=3
                )
                for way in ways
            ]
        if 1e-30 < max(rough) < 0.99:  # outputs beyond 14 deviations are left out
            count -= 1
            yield row("two", step.adjacency, [(step, 2)], [], epsilon, max(rough), 1e-8)


def rare(draw: random.Random, laws: int) -> Iterator[Row]:
    for _ in range(laws):
        p, sigma, steps = 10.0 ** draw.uniform(-9, -0.5), 10.0 ** draw.uniform(-0.4, 1), draw.choice((2, 3, 4, 8, 16))
        loss = few_steps.PoissonLoss(p, sigma, steps)
        step = Step(10**6, p, 10**6, "none", "refined", draw.choice(ADJACENCIES[:2]), sigma)
        for _ in range(6):
            epsilon = loss.epsilon(10.0 ** draw.uniform(-2, -60) * min(1.0, steps * p))
            delta = max(loss.delta(epsilon, way) for way in ("forward", "reverse"))
            yield row("rare", step.adjacency, [(step, steps)], [], epsilon, mpf(delta), 1e-8)


def many(draw: random.Random, count: int) -> Iterator[Row]:
    while count:
        n = int(10.0 ** draw.uniform(1, 5))
        p, sigma = 10.0 ** draw.uniform(-2, -0.1), 10.0 ** draw.uniform(-0.1, 1.3)
        cap = min(max(1, round(n * p + draw.gauss(0, 2) * math.sqrt(n * p))), n - 1)
        policy, analysis = draw.choice([v for v in POLICIES if v[1] == "refined"])
        step = Step(n, p, cap, policy, analysis, draw.choice(ADJACENCIES), sigma)
        steps, goal = int(10.0 ** draw.uniform(1, 6)), 10.0 ** draw.uniform(-30, -2)
        ways = (True, False)[: 1 if step.adjacency == "replace-one" else 2]
        try:
            runs = [exact.Composed(law(step, way), steps, digits=11) for way in ways]
            epsilon = max(float(one.epsilon(goal)) for one in runs)
            delta = max(one.delta(epsilon) for one in runs)
        except (ArithmeticError, ValueError):
            continue
        count -= 1
        yield row("many", step.adjacency, [(step, steps)], [], epsilon, delta, 1e-8)


PARTS = {"gaussian": (gaussian, 160), "exposed": (exposed, 120), "apart": (apart, 160), "rare": (rare, 10),
         "two": (two, 20), "beside": (beside, 25), "many": (many, 12)}  # fmt: skip


def rows(names: list[str]) -> Iterator[Row]:
    for name in names:
        make, count = PARTS[name]
        yield from make(random.Random(f"20260101 {name}"), count)


def main(path: Path, names: list[str]) -> None:
    with path.open("w", newline="") as out:
        out.write(HEADER)
        table = csv.DictWriter(out, FIELDS, lineterminator="\n")
        table.writeheader()
        for one in rows(names):
            table.writerow(one)
            out.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PATH, sys.argv[2:] or list(PARTS))
