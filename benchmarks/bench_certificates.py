"""What a certificate costs to make and to check, on the settings A-E.

    python benchmarks/bench_certificates.py [--quick]

Prints a table and writes results/certificates.json. `cost` is how far the certified epsilon lies above the curve's own,
relatively; `estimated` is what `certify` expects a check to take. Every check runs in a process of its own; times are of
the processor, in seconds, and memory is that process's peak, with Python and the reading of the file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import machine, write_json

from filet.accounting.accountant import account
from filet.accounting.certificate import estimated_seconds
from filet.accounting.terms import Adjacency, Analysis
from filet.checking import Claim
from settings import SETTINGS

KINDS = (("truncate", "refined"), ("truncate", "swap"), ("truncate", "note"), ("reject", "refined"))
# The peak is read from /proc: what getrusage says includes the parent's, up to the moment a process becomes another program.
CHECK = """
import json, re, sys, time
from filet.checking import check
claim = json.load(open(sys.argv[1]))
start = time.process_time()
verdict = check(claim)
seconds = time.process_time() - start
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
print(json.dumps([verdict.ok, verdict.reason, seconds, int(peak[1]) / 1e3]))
"""


def checked(claim: dict[str, Any]) -> tuple[float, float]:
    """Processor seconds and megabytes of a check in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.certificate.json")
        path.write_text(json.dumps(claim), encoding="utf-8")
        command = [sys.executable, "-c", CHECK, str(path)]
        ok, reason, seconds, peak = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    if not ok:
        raise SystemExit(f"a certificate was refused: {reason}")
    return seconds, peak


def measure(name: str, overflow: str, analysis: str, adjacency: Adjacency) -> dict[str, Any]:
    s = SETTINGS[name]
    curve = account(
        s.scheme(overflow), noise_multiplier=s.sigma, steps=s.steps, adjacency=adjacency, analysis=Analysis(analysis)
    )
    bound = curve.epsilon(s.delta)
    start = time.process_time()
    claim = curve.certificate(s.delta)
    made = time.process_time() - start
    seconds, peak = checked(claim)
    return {
        "setting": name,
        "overflow": overflow,
        "analysis": analysis,
        "certified_as": claim["phases"][0]["analysis"],
        "adjacency": adjacency.value,
        "epsilon": bound,
        "certified": claim["epsilon"],
        "cost": float(claim["epsilon"]) / bound - 1,
        "make_s": made,
        "check_s": seconds,
        "estimated_s": estimated_seconds(Claim(claim)),
        "check_mb": peak,
        "file_kb": len(json.dumps(claim)) / 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="setting B only")
    quick = parser.parse_args().quick
    rows = []
    print(
        "| policy | analysis | setting | adjacency | epsilon | certified | cost | make, s | check, s | estimated, s | MB | file, kB |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for overflow, analysis in KINDS:
        for name in ["B"] if quick else SETTINGS:
            for adjacency in Adjacency:
                row = measure(name, overflow, analysis, adjacency)
                rows.append(row)
                print(f"| {overflow} | {analysis} | {name} | {adjacency} | {row['epsilon']:.5f} | {row['certified']}"
                      f" | {row['cost']:.3%} | {row['make_s']:.1f} | {row['check_s']:.2f} | {row['estimated_s']:.2f} | {row['check_mb']:.0f}"
                      f" | {row['file_kb']:.0f} |", flush=True)  # fmt: skip
    record = {"machine": machine("numpy", "scipy", "python-flint", "filet"), "quick": quick, "rows": rows}
    write_json("certificates", record)


if __name__ == "__main__":
    main()
