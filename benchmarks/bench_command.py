"""The command line: processor time of `filet` as a whole process, over that of importing what it computes with.

    python benchmarks/bench_command.py [--quick]

Prints a table and writes results/command.json. Processes take turns, as neighbours on the machine come and go. Bytecode is
written once, as an installation does.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from common import machine, write_json

IMPORTS = "numpy, scipy.special, scipy.fft, click"
RUN = ("--dataset-size=60000", "--poisson-batch-size=256", "--max-batch-size=300", "--noise-multiplier=1", "--steps=14000",
       "--delta=1e-5", "--adjacency=zero-out")  # fmt: skip
FILET = (str(Path(sys.executable).with_name("filet")),)
COMMANDS = {
    "import": (sys.executable, "-c", f"import {IMPORTS}"),
    "filet epsilon": (*FILET, "epsilon", *RUN),
    "filet --help": (*FILET, "--help"),
}


def busy(command: tuple[str, ...]) -> float:
    """Seconds of the processor, of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three rounds")
    quick = parser.parse_args().quick
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(4 if quick else 32):
        for name, command in COMMANDS.items():
            taken = busy(command)
            if turn:  # the first writes bytecode
                times[name].append(taken)
    rows = []
    for name, found in times.items():
        ratio = statistics.median(one / base for one, base in zip(found, times["import"], strict=True))
        rows.append({"command": name, "ms": 1e3 * statistics.median(found), "ratio": ratio})
        print(f"{name:14s} {rows[-1]['ms']:6.0f} ms, {ratio:.2f} times the imports", flush=True)
    about = machine("numpy", "scipy", "click", "filet")
    write_json("command", {"machine": about, "quick": quick, "imports": IMPORTS, "rows": rows})


if __name__ == "__main__":
    main()
