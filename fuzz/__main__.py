"""Run every target for some time and print what was done: python -m fuzz [--seconds N] [--runs N] [TARGET ...]."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from .common import CORPUS

TARGETS = ("run_file", "state", "command_line")
FOUND = Path(__file__).parent / "found"
HANG = 60  # seconds for one input
OPTIONS = (
    "-print_final_stats=1",
    f"-timeout={HANG}",
    f"-report_slow_units={HANG}",
    "-max_len=16384",
    "-len_control=0",
    "-rss_limit_mb=4096",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"any of {', '.join(TARGETS)}  [default: all]")
    parser.add_argument("--seconds", type=int, default=60, help="time for each target  [default: 60]")
    parser.add_argument("--runs", type=int, default=-1, help="stop a target after so many executions")
    given = parser.parse_args()
    if not set(given.targets) <= set(TARGETS):
        parser.error(f"unknown target; choose from {', '.join(TARGETS)}")
    print(f"{'target':14}{'executions':>12}{'seconds':>9}{'edges':>8}{'inputs':>8}{'findings':>10}", flush=True)
    findings = [finding for name in given.targets or TARGETS for finding in _fuzz(name, given.seconds, given.runs)]
    for path in findings:
        print(f"finding: {path} (output in {FOUND / 'log'}); mend it, then keep the input in {CORPUS}")
    return 1 if findings else 0


def _fuzz(name: str, seconds: int, runs: int) -> list[Path]:
    """Run one target, print its line of the table, and return the inputs that broke a rule."""
    inputs, broken, log = FOUND / name, FOUND / "broken", FOUND / "log" / f"{name}.txt"
    for folder in (inputs, broken, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    known = set(broken.iterdir())
    with log.open("w") as file:
        code = subprocess.run(
            [sys.executable, "-m", "fuzz.libfuzzer", name, *OPTIONS, f"-max_total_time={seconds}", f"-runs={runs}",
             f"-artifact_prefix={broken}/{name}-", str(inputs), str(CORPUS / name)],
            stdout=file, stderr=subprocess.STDOUT, cwd=Path(__file__).parent.parent, check=False,
        ).returncode  # fmt: skip
    text = log.read_text(errors="replace")
    new = sorted(set(broken.iterdir()) - known)
    if code and not new:
        new = [log]  # it did not even start
    executions = _last(r"stat::number_of_executed_units: *(\d+)", text) or _last(r"^#(\d+)", text)
    took = _last(r"Done \d+ runs in (\d+)", text) or "-"
    edges, size = _last(r"\bcov: (\d+)", text), _last(r"\bcorp: (\d+)", text)
    print(f"{name:14}{executions:>12}{took:>9}{edges:>8}{size:>8}{len(new):>10}", flush=True)
    return new


def _last(pattern: str, text: str) -> str:
    matches = re.findall(pattern, text, re.MULTILINE)
    return matches[-1] if matches else ""


if __name__ == "__main__":
    sys.exit(main())
