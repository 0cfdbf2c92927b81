"""Speed and tightness: filet and every peer, on the settings A-E and on sweeps of steps, delta, p and sigma.

    python benchmarks/bench_sweep.py [--quick]

Writes results/sweep.json. Adjacency is add-remove, the only one that all peers know. *Plain* points have no cap, which
is all that most peers know; *capped* points are for filet and the two peers that know a cap. Peers run with their own
default accuracy, each in its own warm process; a call is fresh, and its time is taken inside that process.
"""

from __future__ import annotations

import argparse
from typing import Any, Literal

from common import SWAP, machine, timed, write_json
from peers import CAPPED_PEERS, ENVIRONMENT, Worker

import filet
from settings import Point, points

SECONDS = 15.0  # of processor time, for one answer of a peer
# It calls dp_accounting, so that its values are the same; the settings show what it costs.
SETTINGS_ONLY = ("jax_privacy",)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one point of each kind, and less patience")
    quick = parser.parse_args().quick
    workers = {peer: Worker(peer, seconds=10.0 if quick else SECONDS) for peer in ENVIRONMENT}
    ours(points(plain=True)[0])  # imports and first calls
    rows = []
    for plain in (True, False):
        for point in chosen(points(plain=plain), quick):
            row = compare(point, workers)
            rows.append(row)
            print(line(row), flush=True)
    about = {peer: {"versions": worker.versions, "broken": worker.broken} for peer, worker in workers.items()}
    for worker in workers.values():
        worker.stop()
    limit = 10.0 if quick else SECONDS
    record = {"machine": machine("numpy", "scipy", "filet"), "quick": quick, "seconds": limit, "peers": about}
    write_json("sweep", record | {"rows": rows})


def chosen(all_points: list[Point], quick: bool) -> list[Point]:
    if not quick:
        return all_points
    first: dict[str, Point] = {}
    for point in all_points:
        first.setdefault(point.sweep, point)
    return list(first.values())


def compare(point: Point, workers: dict[str, Worker]) -> dict[str, Any]:
    bounds, ms = timed(lambda: ours(point))
    answers: dict[str, Any] = {"filet": {"epsilon": bounds.upper, "lower": bounds.lower, "ms": ms}}
    if not point.plain:  # whose truth is known
        bounds, ms = timed(lambda: ours(point, "swap"))
        answers[SWAP] = {"epsilon": bounds.upper, "lower": bounds.lower, "ms": ms}
    for peer, worker in workers.items():
        if not (point.plain or peer in CAPPED_PEERS):
            continue
        if peer in SETTINGS_ONLY and not point.sweep.startswith("settings"):
            continue
        answers[peer] = worker.ask(point._asdict())
    return {"point": point._asdict(), "answers": answers}


def ours(point: Point, analysis: Literal["refined", "swap"] = "refined") -> filet.Bounds:
    curve = filet.account(
        point.scheme, noise_multiplier=point.sigma, steps=point.steps, adjacency="add-remove", analysis=analysis
    )
    return curve.epsilon_bounds(point.delta)


def line(row: dict[str, Any]) -> str:
    point = row["point"]
    cells = [f"{name} {short(answer)}" for name, answer in row["answers"].items()]
    where = " ".join(f"{name}={point[name]:g}" for name in ("n", "p", "cap", "sigma", "steps", "delta"))
    return f"{point['sweep']:11s} {where}: " + "; ".join(cells)


def short(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return str(answer["error"])[:40]
    value = answer["epsilon"]
    return f"{value if isinstance(value, str) else format(value, '.6g')} in {answer['ms']:.3g} ms"


if __name__ == "__main__":
    main()
