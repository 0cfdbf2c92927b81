"""Run the benchmarks and write the report.

    python benchmarks/run.py                      all but the stress grid: results/*.json, figures/, RESULTS.md
    python benchmarks/run.py sweep floor          only these
    python benchmarks/run.py --quick --dry        a few points each, nothing kept: does everything still run?
    python benchmarks/run.py --report             only the figures and the report, from the JSON that is there

Everything runs on one thread, one process at a time, so that ratios are those of one run on one core. The first run
makes environments for the peers that need one of their own (benchmarks/peers/).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import figures
import results
from common import HERE, RESULTS

BENCHES = (
    "accountant", "sweep", "growth", "floor", "samplers", "gap", "planning", "shapes", "bulk", "command", "files"
)  # fmt: skip
# Some minutes more, each.
BY_NAME_ONLY = ("grid", "certificates", "beam", "engines", "loaders", "risk", "jax", "accuracy")
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", choices=[*BENCHES, *BY_NAME_ONLY, []], metavar="BENCH")
    parser.add_argument("--quick", action="store_true", help="a few points of each")
    parser.add_argument("--dry", action="store_true", help="put the stored results back afterwards")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    options = parser.parse_args()
    with stored_results_kept() if options.dry else nullcontext():
        failed = [] if options.report else [name for name in options.benches or BENCHES if not ran(name, options.quick)]
        text = results.report()
        if not options.dry:
            figures.draw()
            results.TARGET.write_text(text, encoding="utf-8")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; their results are those of an earlier run")


@contextmanager
def stored_results_kept() -> Iterator[None]:
    """Put results/*.json back as they were, whatever happens."""
    before = {path: path.read_bytes() for path in RESULTS.glob("*.json")}
    try:
        yield
    finally:
        for path in RESULTS.glob("*.json"):
            path.unlink()
        for path, content in before.items():
            path.write_bytes(content)


def ran(name: str, quick: bool) -> bool:
    """Whether the benchmark ended well; one that fails leaves its old results and does not stop the others."""
    print(f"== {name}", flush=True)
    start = time.perf_counter()
    command = [sys.executable, str(HERE / f"bench_{name}.py"), *(["--quick"] if quick else [])]
    code = subprocess.run(command, env=os.environ | dict.fromkeys(ONE_THREAD, "1")).returncode
    print(f"== {name}: {time.perf_counter() - start:.0f} s" + (f", FAILED with {code}" if code else ""), flush=True)
    return code == 0


if __name__ == "__main__":
    main()
