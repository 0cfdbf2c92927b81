"""What every benchmark does: time a call, describe the machine, write its JSON. Standard library only: peers import it."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
HERE = Path(__file__).parent
RESULTS = HERE / "results"
SWAP = "filet, swap"  # by Theorem 2 alone, as a name in tables


def timed(function: Callable[[], T], *, seconds: float = 0.5, most: int = 9) -> tuple[T, float]:
    """The result and the median processor time in milliseconds, of as many calls as fit in the seconds; of one at least.

    On one thread that is what the clock shows on a quiet machine, and neighbours disturb it less. (The time of the thread:
    that of the process is coarse while a limit on it is set, as in `peer_worker`.)
    """
    times: list[float] = []
    while not times or (len(times) < most and sum(times) + times[-1] < seconds):
        start = time.thread_time()
        result = function()
        times.append(time.thread_time() - start)
    return result, 1e3 * statistics.median(times)


def versions(*packages: str) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine(*packages: str) -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        **versions(*packages),
    }


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def write_json(name: str, record: Any) -> Path:
    """results/NAME.json, whole or not at all. JSON has no infinity: it is written as a word."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}.json"
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(plain(record), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(target)
    return target


def plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value
