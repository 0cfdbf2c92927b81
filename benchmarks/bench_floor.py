"""What is left above the floor: where the time of one `epsilon` call goes, and how little of it the method must spend.

    python benchmarks/bench_floor.py [--quick]

Writes results/floor.json. The functions named in STAGES are wrapped, and each second is charged to the innermost one;
what no stage covers is "rest". The fastest of several calls is shown. A name that no longer exists is an error, so that the profile cannot silently go stale.

The floor counts what the method needs for its answer when nothing is tried in vain: for both bounds one discretisation and
one transform (one for each where few losses decide), with the cells and frequencies that the engine last used, and
one of each to show that the other direction is smaller. Each evaluation of ndtr, exp, log, complex exp, each complex
product and each point of an FFT is charged what it costs on long arrays, in this run.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from common import machine, timed, write_json
from scipy.fft import rfft
from scipy.special import ndtr

import filet
from settings import SETTINGS, Setting


def resolve(name: str) -> tuple[Any, str, Any]:
    """The owner, the attribute and the value of module:name; an error says what to mend."""
    module, _, path = name.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, last = path.split(".")
    try:
        for parent in parents:
            owner = getattr(owner, parent)
        return owner, last, getattr(owner, last)
    except AttributeError as error:
        raise SystemExit(f"bench_floor: {name} does not exist any more ({error}); bring STAGES up to date") from None


def value_of(name: str) -> int:
    return int(resolve(name)[2])


# stage -> functions, as module:name; time inside an inner stage is not charged to the outer one
PROVING, SEARCH = "filet.accounting.proving.", "filet.accounting.search."
STAGES = {
    "loss law": [PROVING + "theorems:loss_law"],
    "saddle point": [SEARCH + "question:EpsilonQuestion.start"],
    "cells": [SEARCH + "grid:uniform_grid", SEARCH + "grid:refined_grid"],
    "discretise": [
        PROVING + "cells:discretise_above",
        PROVING + "cells:discretise_below",
        PROVING + "pmf:LossPMF.__init__",
    ],
    "choice of a contour": [SEARCH + "contour:choose_inversion"],
    "contour": [PROVING + "contour:Contour.__init__"],
    "tilt": [PROVING + "composition:Tilted.__init__", PROVING + "composition:Composition.log_mgf"],
    "transform": [PROVING + "composition:Tilted.transform"],
    "decay": [PROVING + "composition:Composition.decays_after"],
    "spectrum": [PROVING + "composition:Composition.spectrum"],
    "read": [PROVING + "contour:Contour.read"],
}
# What separates the orders of the neighbours; the second one is the rest of both.
DIRECTIONS = {"first order": SEARCH + "solve:_solve", "both orders": SEARCH + "solve:_both_orders"}
COUNTED = (
    PROVING + "cells:discretise_above",
    PROVING + "cells:discretise_below",
    PROVING + "composition:Composition.spectrum",
)
SPREAD = 2 * value_of(PROVING + "transform:_HALF_WIDTH")  # grid points that one loss is spread on
FEW = value_of(PROVING + "composition:_FEW")  # up to so many frequencies are reached by multiplication


class Profile:
    """Seconds by stage, without those of inner stages, and the arguments of the counted calls."""

    def __init__(self) -> None:
        self.own: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.inclusive: dict[str, float] = defaultdict(float)
        self.arguments: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._inner = [0.0]

    def wrap(self, stage: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.thread_time() - start
                inner = self._inner.pop()
                self._inner[-1] += spent
                self.own[stage] += spent - inner
                self.calls[stage] += 1
                if name in COUNTED:
                    self.arguments[name].append(args)

        return wrapped

    def watch(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Inclusive time, charged besides the stages."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.inclusive[what] += time.thread_time() - start

        return wrapped


@contextmanager
def profiled() -> Iterator[Profile]:
    """Replace every stage function, in each module of filet that imported it, and put all back."""
    profile = Profile()
    undo: list[tuple[Any, str, Any]] = []

    def replace(name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        owner, attribute, function = resolve(name)
        new = wrapper(function)
        modules = [m for key, m in list(sys.modules.items()) if key.split(".")[0] == "filet"]
        places = [(owner, attribute)] if isinstance(owner, type) else [
            (module, key) for module in modules for key, value in vars(module).items() if value is function
        ]  # fmt: skip
        for place, key in places:
            undo.append((place, key, function))
            setattr(place, key, new)

    try:
        for stage, names in STAGES.items():
            for name in names:
                replace(name, lambda f, stage=stage, name=name: profile.wrap(stage, name, f))  # type: ignore[misc]
        for what, name in DIRECTIONS.items():
            replace(name, lambda f, what=what: profile.watch(what, f))  # type: ignore[misc]
        yield profile
    finally:
        for place, key, function in undo:
            setattr(place, key, function)


def call(s: Setting) -> float:
    scheme = s.scheme()
    curve = filet.account(scheme, noise_multiplier=s.sigma, steps=s.steps, adjacency="add-remove", analysis="swap")
    return float(curve.epsilon(s.delta))


def unit_costs() -> dict[str, float]:
    """Nanoseconds for one evaluation, on arrays of the engine's size."""
    x = np.linspace(-6.0, 6.0, 4096)
    z = 1j * x
    place = np.empty_like(z)
    positive = np.abs(x) + 0.1
    kinds: dict[str, Callable[[], Any]] = {
        "ndtr": lambda: ndtr(x),
        "exp": lambda: np.exp(x),
        "log": lambda: np.log(positive),
        "complex exp": lambda: np.exp(z),
        "complex log": lambda: np.log(z + 2.0),
        "complex product": lambda: np.multiply(z, z, out=place),
        "FFT point": lambda: rfft(x),
    }
    return {name: 1e6 * fastest(one, 200) / x.size for name, one in kinds.items()}


def needed(profile: Profile) -> dict[str, int]:
    """Evaluations of one contour for both bounds, or of one each, and of one upper bound of the other order."""
    count: dict[str, int] = dict.fromkeys(unit_costs(), 0)
    above, below, spectra = (profile.arguments[name] for name in COUNTED)
    # calls in order: the bounds of the first direction, then the look at the other one; shared cells count once
    for cells in {id(one): one for one, *_ in (*above[-2:], *below[-1:])}.values():
        for piece, (start, end) in zip(cells.law.pieces, pairwise((0, *cells.ends)), strict=True):
            number = end - start
            count["ndtr"] += len(piece.means) * number
            count["exp"] += (len(piece.means) - 1) * number  # the loss: a ratio of sums of exponentials
            count["log"] += number
    for composition, _, _, _, frequencies, *_ in spectra[-(len(below[-1:]) + 2) :]:
        losses = sum(block.loss.size for block in composition.small)
        count["exp"] += losses  # the tilt
        if frequencies <= FEW:
            count["complex exp"] += losses
            count["complex product"] += losses * (frequencies + 2 * math.isqrt(frequencies))
        else:
            count["exp"] += SPREAD * losses
            count["FFT point"] += 6 * frequencies
        count["complex log"] += frequencies  # the power of the transform
        count["complex exp"] += 2 * frequencies  # back from the logarithm; the turn at one epsilon
    return count


def fastest(function: Callable[[], Any], repeats: int) -> float:
    """Milliseconds of the call that was disturbed least; a profile must add up, which medians of parts do not."""
    return min(timed(function, most=1)[1] for _ in range(repeats))


def profiled_call(setting: Setting) -> tuple[float, Profile]:
    with profiled() as profile:
        return timed(lambda: call(setting), most=1)[1], profile


def measure(name: str, repeats: int) -> dict[str, Any]:
    setting = SETTINGS[name]
    alone = fastest(lambda: call(setting), repeats)
    total, profile = min((profiled_call(setting) for _ in range(repeats)), key=lambda one: one[0])
    stages = {stage: 1e3 * profile.own[stage] for stage in STAGES}
    stages["rest"] = total - sum(stages.values())
    counts, costs = needed(profile), unit_costs()
    floor = {kind: 1e-6 * number * costs[kind] for kind, number in counts.items()}
    return {
        "setting": name,
        "ms": alone,
        "profiled_ms": total,
        "stages": stages,
        "calls": dict(profile.calls),
        "directions": {what: 1e3 * profile.inclusive[what] for what in DIRECTIONS},
        "counts": counts,
        "costs_ns": costs,
        "floor_ms": floor,
        "floor_total_ms": sum(floor.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="setting A only")
    quick = parser.parse_args().quick
    call(SETTINGS["A"])
    rows = []
    for name in ["A"] if quick else SETTINGS:
        row = measure(name, 5 if quick else 25)
        rows.append(row)
        shares = ", ".join(f"{stage} {v / row['profiled_ms']:.0%}" for stage, v in row["stages"].items())
        print(f"{name}: {row['ms']:.2f} ms ({row['profiled_ms']:.2f} profiled); {shares}; "
              f"floor {row['floor_total_ms']:.2f} ms", flush=True)  # fmt: skip
    write_json("floor", {"machine": machine("numpy", "scipy", "filet"), "quick": quick, "rows": rows})


if __name__ == "__main__":
    main()
