"""Write `tables/profiles.csv` and `tables/composed.csv`: python make_tables.py [PART] ...

Without arguments everything is made, in about 15 minutes on one core. Each composed row is computed twice, with other
tilt, period and quadrature grids; `digits` is how many decimal digits of epsilon the two share (at most 20), and the
row is refused below 10. No random state outside the seeds below: the same tables come out every time.
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.reference import exact, few_steps

TABLES = Path(__file__).parent / "tables"
FIELDS = ["n", "p", "B", "sigma", "steps", "overflow", "adjacency", "analysis", "direction", "epsilon", "delta"]
SETTINGS = {  # n, expected batch, cap, sigma, steps, delta
    "A": (60_000, 256, 300, 1.0, 14_000, 1e-5),
    "B": (50_000, 4096, 4200, 3.0, 2_500, 1e-5),
    "C": (1_281_167, 16_384, 16_600, 2.5, 18_000, 8e-7),
    "D": (45_000_000, 65_536, 66_000, 1.0, 3_500, 1e-8),
    "E": (60_000, 256, 256, 1.0, 14_000, 1e-5),
}
HEADERS = {
    "profiles": """\
# One-step privacy profiles: delta = H_{exp(epsilon)}(P||Q), direction reverse: H_{exp(epsilon)}(Q||P).
# Made by tests/reference/make_tables.py with 70-digit arithmetic; every row was computed from the closed forms and
# again from the explicit loss law, and the two agreed to 1e-40. p, sigma and epsilon are the doubles printed here.
""",
    "composed": """\
# Composed epsilons: the epsilon at which `steps` steps have delta(epsilon) = delta, one direction only
# (a guarantee is the maximum over forward and reverse). analysis poisson: no cap, B is ignored.
# Made by tests/reference/make_tables.py; `digits`: how many digits of epsilon two computations with different contours
# and grids share. part: settings A-E, random parameters, rare hits (steps * p about 1 or less), two steps.
# p, sigma and delta are the doubles printed here.
""",
}


def text(x: Any) -> str:
    return mpmath.nstr(x, 20, strip_zeros=False, min_fixed=-3, max_fixed=6)


def write(name: str, rows: list[dict[str, Any]], extra: list[str]) -> None:
    TABLES.mkdir(exist_ok=True)
    with (TABLES / f"{name}.csv").open("w", newline="") as out:
        out.write(HEADERS[name])
        table = csv.DictWriter(out, FIELDS + extra, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def read(name: str) -> list[dict[str, str]]:
    path = TABLES / f"{name}.csv"
    if not path.exists():
        return []
    with path.open() as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def common_digits(x: Any, y: Any) -> int:
    return 20 if x == y else min(20, int(mpmath.floor(-mpmath.log10(abs(x / y - 1)))))


def row(setting: dict[str, Any], combination: tuple[str, str, str], direction: str) -> dict[str, Any]:
    overflow, adjacency, analysis = combination
    return {**setting, "overflow": overflow, "adjacency": adjacency, "analysis": analysis, "direction": direction}


def law_of(r: dict[str, Any]) -> exact.Law:
    keys = ("n", "p", "B", "sigma", "overflow", "adjacency", "analysis", "direction")
    return exact.law(**{k: r[k] for k in keys})


def composed(r: dict[str, Any], delta: float, part: str) -> dict[str, Any] | None:
    """The row with its epsilon, or None where epsilon is 0 or the transform decays too slowly."""
    start = time.perf_counter()
    L = law_of(r)
    if exact.total_variation_below(L, r["steps"], delta):
        return None
    try:
        first = exact.Composed(L, r["steps"]).epsilon(delta)
        second = exact.Composed(L, r["steps"], fineness=1.3, lean=0.9).epsilon(delta)
    except ArithmeticError as error:
        print("skipped", r, delta, error, flush=True)
        return None
    digits = common_digits(first, second)
    spent = time.perf_counter() - start
    print(f"{part} {list(r.values())} {delta} {text(first)} digits {digits} ({spent:.1f} s)", flush=True)
    if digits < 10:
        raise ArithmeticError(f"only {digits} digits: {r}, delta {delta}: {first}, {second}")
    return {**r, "epsilon": text(first), "delta": repr(delta), "digits": digits, "part": part}


def named() -> list[dict[str, Any]]:
    rows = []
    for n, batch, B, sigma, steps, delta in SETTINGS.values():
        setting = {"n": n, "p": batch / n, "B": B, "sigma": sigma, "steps": steps}
        for combination in exact.COMBINATIONS:
            for direction in ("forward", "reverse"):
                rows.append(composed(row(setting, combination, direction), delta, "named"))
    return [r for r in rows if r]


def random_parameters(count: int = 110) -> list[dict[str, Any]]:
    """Batches of ordinary training runs and far from them, every combination and direction in turn."""
    rng = np.random.default_rng(20250821)
    cases = [(combination, direction) for combination in exact.COMBINATIONS for direction in ("forward", "reverse")]
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        combination, direction = cases[len(rows) % len(cases)]
        n = int(10 ** rng.uniform(1, 8))
        p = float(10 ** rng.uniform(max(-5.5, -np.log10(n)), -0.05))
        steps = int(10 ** rng.uniform(np.log10(2), 6))
        sigma = round(float(np.exp(rng.uniform(np.log(0.4), np.log(8)))), 3)
        B = max(1, round(n * p + rng.uniform(-2, 5) * np.sqrt(n * p * (1 - p))))
        delta = float(f"{10 ** rng.uniform(-30, -2):.3g}")
        spread = p * np.sqrt(steps * min(np.expm1(min(sigma**-2, 60)), 1e6))
        if not (steps * p > 20 and spread < 60):
            continue
        setting = {"n": n, "p": p, "B": B, "sigma": sigma, "steps": steps}
        found = composed(row(setting, combination, direction), delta, "random")
        if found:
            rows.append(found)
    return rows


def put(rows: list[dict[str, Any]], r: dict[str, Any], epsilon: Any, delta: float, digits: int, part: str) -> None:
    print(part, list(r.values()), delta, text(epsilon), "digits", digits, flush=True)
    if digits < 8:
        raise ArithmeticError(f"only {digits} digits: {r}")
    rows.append({**r, "epsilon": text(epsilon), "delta": repr(delta), "digits": digits, "part": part})
    store(part, rows)  # these are slow: keep what there is


def rare() -> list[dict[str, Any]]:
    """Few steps and rare hits of plain Poisson sampling, by convolution at two resolutions."""
    rows: list[dict[str, Any]] = []
    for p, sigma, steps, deltas in [
        (1e-3, 1.0, 3, [1e-5, 1e-12]), (1e-3, 1.0, 10, [1e-6, 1e-20]), (1e-2, 0.7, 5, [1e-3, 1e-12]),
        (5e-2, 2.0, 4, [1e-3, 1e-10]), (1e-6, 1.0, 100, [1e-8, 1e-30]), (1e-5, 0.6, 30, [1e-6, 1e-15]),
        (1e-4, 0.5, 1000, [1e-3, 1e-8]),
    ]:  # fmt: skip
        coarse, fine = (few_steps.PoissonLoss(p, sigma, steps, width=width) for width in (0.2, 0.11))
        for direction in ("forward", "reverse"):
            for delta in deltas:
                if fine.delta(0.0, direction) > 1.01 * delta:
                    one, two = coarse.epsilon(delta, direction), fine.epsilon(delta, direction)
                    setting = {"n": 1_000_000, "p": p, "B": 1_000_000, "sigma": sigma, "steps": steps}
                    r = row(setting, ("none", "add-remove", "poisson"), direction)
                    digits = min(14, common_digits(mpmath.mpf(one), mpmath.mpf(two)))
                    put(rows, r, mpmath.mpf(two), delta, digits, "rare")
    return rows


def two_steps() -> list[dict[str, Any]]:
    """Two steps of everything: by the transform where it decays, checked by direct quadrature; otherwise the latter."""
    rows: list[dict[str, Any]] = []
    rng = np.random.default_rng(2)
    for combination in exact.COMBINATIONS:
        for direction in ("forward", "reverse"):
            if combination[1:] == ("zero-out", "note"):  # no closed form: too slow
                continue
            n, p = int(10 ** rng.uniform(1, 5)), float(10 ** rng.uniform(-1.5, -0.3))
            B = max(1, round(n * p + rng.uniform(-1, 2) * np.sqrt(n * p)))
            setting = {"n": n, "p": p, "B": B, "sigma": round(float(rng.uniform(0.5, 2)), 2), "steps": 2}
            delta = float(f"{10 ** rng.uniform(-12, -3):.3g}")
            r = row(setting, combination, direction)
            step = {k: r[k] for k in r if k != "steps"}
            try:
                if exact.law(**step).atoms:  # atoms: the transform does not decay
                    raise ArithmeticError
                epsilon = exact.Composed(exact.law(**step), 2, digits=20, most=5000).epsilon(delta)
                error = few_steps.two_steps_error(epsilon, delta, degree=3, **step)
            except ArithmeticError:
                epsilon, error = few_steps.two_steps_epsilon(delta, **step)
            put(rows, r, epsilon, delta, min(20, int(-mpmath.log10(error + mpmath.mpf(10) ** -30))), "two steps")
    return rows


def profiles(count: int = 480) -> list[dict[str, Any]]:
    """One step at random parameters, every combination and direction in turn; the corners p = 1, B = 1, n, n+1 too."""
    rng = np.random.default_rng(15089)
    cases = [(combination, direction) for combination in exact.COMBINATIONS for direction in ("forward", "reverse")]
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        combination, direction = cases[len(rows) % len(cases)]
        n = int(10 ** rng.uniform(0.35, 8))
        p = float(10 ** rng.uniform(-np.log10(n), 0)) if rng.uniform() < 0.9 else 1.0
        B = max(1, round(n * p + rng.uniform(-3, 6) * np.sqrt(n * p * (1 - p))))
        if rng.uniform() < 0.15:
            B = int(rng.choice([1, n, n + 1]))
        if combination[0] == "reject" and p == 1 and n > B:
            continue
        sigma = round(float(np.exp(rng.uniform(np.log(0.3), np.log(10)))), 3)
        scale = [1, p, 5][rng.integers(3)]
        epsilon = round(float(scale * rng.normal()), 6) if scale != p else float(f"{scale * rng.normal():.6g}")
        if rng.uniform() < 0.1:
            epsilon = 0.0
        r = row({"n": n, "p": p, "B": B, "sigma": sigma, "steps": 1}, combination, direction)
        keys = ("n", "p", "B", "sigma", "overflow", "adjacency", "analysis", "direction")
        delta = exact.profile(epsilon, **{k: r[k] for k in keys})
        if abs(delta) < mpmath.mpf(10) ** -45:  # zero, or too few digits left of 70
            continue
        again = exact.law_profile(law_of(r), epsilon)
        if not abs(delta - again) <= mpmath.mpf(10) ** -40:
            raise ArithmeticError(f"{r}, epsilon {epsilon}: {delta} from the profile, {again} from the law")
        rows.append({**r, "epsilon": repr(epsilon), "delta": text(delta)})
    return rows


def store(part: str, rows: list[dict[str, Any]]) -> None:
    kept = [r for r in read("composed") if r["part"] != part]
    order = ["named", "random", "rare", "two steps"]
    write("composed", sorted([*kept, *rows], key=lambda r: order.index(r["part"])), ["digits", "part"])


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["profiles", "named", "random", "rare", "two steps"]
    for part in wanted:
        if part == "profiles":
            write("profiles", profiles(), [])
        else:
            store(part, {"named": named, "random": random_parameters, "rare": rare, "two steps": two_steps}[part]())
