"""Write truth.csv: what every point of the comparison really is, by the slow reference of tests/reference.

    python benchmarks/make_truth.py            keeps the rows that are there; about half an hour from nothing

The reference shares no code with filet. `how` says where a row comes from; a point whose truth is not affordable has no
row, and the report then uses filet's certified bracket and says so. Add-remove: the larger of the two directions.

`pair` names the dominating pair: poisson (no cap), swap (filet's Theorem 2), dp_accounting (its own, looser pair, so that its
numerical error can be told from its analysis).
"""

from __future__ import annotations

import csv
import math
import signal
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))  # last: it has a settings.py too

from mpmath import mp, mpf, nstr  # noqa: E402

from reference import exact, few_steps  # type: ignore[import-not-found]  # noqa: E402
from settings import Point, points  # noqa: E402

FIELDS = ["n", "p", "cap", "sigma", "steps", "delta", "pair", "epsilon", "digits", "how"]
SECONDS = 40.0  # of processor time, for one direction of one row
Row = dict[str, Any]


def main() -> None:
    path = HERE / "truth.csv"
    rows = {row_key(row): row for row in read(path)}
    stored = reference_rows()
    for point, pair in wanted():
        key = (*map(str, point.key), pair)
        if key in rows:
            continue
        found = stored.get((*map(str, point.key), pair)) or slow_truth(point, pair)
        print(point, pair, found, flush=True)
        if found:
            rows[key] = dict(zip(FIELDS, (*point.key, pair, *found), strict=True))
            write(path, list(rows.values()))


def wanted() -> list[tuple[Point, str]]:
    capped = points(plain=False)
    return [(point, "poisson") for point in points(plain=True)] + [
        (point, pair) for pair in ("swap", "dp_accounting") for point in capped
    ]


def slow_truth(point: Point, pair: str) -> tuple[str, int, str] | None:
    """Epsilon, its correct digits and where they come from; None if no way works within the time."""
    ways: list[tuple[str, Callable[[Point, str, str], tuple[Any, int]]]] = []
    if point.steps == 1 or (point.p == 1.0 and pair == "poisson"):
        ways.append(("closed form", closed_form))
    else:
        ways.append(("transform", transform))
        if pair == "poisson" and point.steps <= 1000:  # more convolutions lose too many digits
            ways.insert(0, ("convolution", convolution))
    for how, way in ways:
        try:
            both = [within_time(way, point, pair, direction) for direction in ("forward", "reverse")]
        except (ArithmeticError, TimeoutError, ValueError, AssertionError) as error:
            print("  no", how, "-", error, flush=True)
            continue
        epsilon, digits = max(both, key=lambda one: one[0])
        if digits >= 5:
            return nstr(epsilon, 20, strip_zeros=False), digits, how
        print("  only", digits, "digits by", how, flush=True)
    return None


def law(point: Point, pair: str, direction: str) -> Any:
    step = {"n": point.n, "p": point.p, "B": point.cap, "sigma": point.sigma, "adjacency": "add-remove"}
    if pair != "dp_accounting":
        overflow, analysis = ("none", "poisson") if pair == "poisson" else ("truncate", "refined")
        return exact.law(**step, overflow=overflow, analysis=analysis, direction=direction)
    # Weight 1 - tau on Poisson sampling at distance 1, tau on its replace-one version at distance 2.
    w = exact.weights(point.n, point.p, point.cap)
    pieces = [exact._poisson_piece(w.p, "add-remove", 1 - w.tau, 1 - w.tau)]
    if w.tau > 0:
        pieces.append(exact._piece({0: 1 - w.q, -2: w.q}, {0: 1 - w.q, 2: w.q}, w.tau))
    found = exact.Law(mpf(point.sigma), tuple(pieces))
    return found if direction == "forward" else found.reversed()


def transform(point: Point, pair: str, direction: str) -> tuple[Any, int]:
    """Two inversions with other tilt, period and quadrature; the digits they share."""
    one = law(point, pair, direction)
    if exact.total_variation_below(one, point.steps, point.delta):
        return mpf(0), 20
    first = exact.Composed(one, point.steps).epsilon(point.delta)
    second = exact.Composed(one, point.steps, fineness=1.3, lean=0.9).epsilon(point.delta)
    return first, shared_digits(first, second)


def convolution(point: Point, pair: str, direction: str) -> tuple[Any, int]:
    """Direct convolution at two resolutions, in double precision."""
    coarse, fine = (convolved(point.p, point.sigma, point.steps, width) for width in (0.2, 0.11))
    if fine.delta(0.0, direction) <= point.delta:
        return mpf(0), 14
    one, two = (mpf(loss.epsilon(point.delta, direction)) for loss in (coarse, fine))
    return two, min(14, shared_digits(one, two))


@lru_cache
def convolved(p: float, sigma: float, steps: int, width: float) -> Any:
    return few_steps.PoissonLoss(p, sigma, steps, width=width)


def closed_form(point: Point, pair: str, direction: str) -> tuple[Any, int]:
    """One step, or steps without sampling, which are one step with less noise: the profile itself, by bisection."""
    single = point._replace(sigma=point.sigma / math.sqrt(point.steps)) if point.steps > 1 else point
    # Without sampling both directions are one; the reference integrates the forward one without cancellation.
    one = law(single, pair, "forward" if point.p == 1.0 else direction)
    low, high = mpf(0), mpf(1)
    if exact.law_profile(one, low) <= point.delta:
        return mpf(0), 20
    while exact.law_profile(one, high) > point.delta:
        low, high = high, 2 * high
    while high - low > high * mpf(10) ** -16:
        middle = (low + high) / 2
        low, high = (middle, high) if exact.law_profile(one, middle) > point.delta else (low, middle)
    return high, 15


def shared_digits(x: Any, y: Any) -> int:
    return 20 if x == y else min(20, int(mp.floor(-mp.log10(abs(x / y - 1)))))


def within_time(way: Callable[..., tuple[Any, int]], *arguments: Any) -> tuple[Any, int]:
    def give_up(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS:.0f} s")

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return way(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def reference_rows() -> dict[tuple[str, ...], tuple[str, int, str]]:
    """The rows of tests/reference/tables/composed.csv that are points of ours."""
    found: dict[tuple[str, ...], tuple[str, int, str]] = {}
    analyses = {"poisson": "poisson", "refined": "swap"}  # the tables' name for Theorem 2
    for row in read(HERE.parent / "tests" / "reference" / "tables" / "composed.csv"):
        if row["adjacency"] != "add-remove" or row["overflow"] == "reject" or row["analysis"] not in analyses:
            continue
        cap = row["n"] if row["analysis"] == "poisson" else row["B"]
        numbers = (row["n"], repr(float(row["p"])), cap, repr(float(row["sigma"])), row["steps"])
        key = (*numbers, repr(float(row["delta"])), analyses[row["analysis"]])
        if key not in found or mpf(found[key][0]) < mpf(row["epsilon"]):
            found[key] = row["epsilon"], int(row["digits"]), "tests/reference"
    return found


def row_key(row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in FIELDS[:7])


def read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open() as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def write(path: Path, rows: list[Row]) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="") as out:
        out.write("# Made by benchmarks/make_truth.py, which says what the columns mean.\n")
        table = csv.DictWriter(out, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    partial.replace(path)


if __name__ == "__main__":
    main()
