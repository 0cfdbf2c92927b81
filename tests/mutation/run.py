"""Mutation testing of one module: python tests/mutation/run.py loss_law

mutmut changes the module in one place at a time and runs the tests listed here; a change that no test notices is a
survivor. Covers every module of the proving room, and the sampler. Works on a copy under build/mutation, where `mutmut
browse` shows the results. A second run tries again only what has changed; `--fresh` starts from nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROVING = "accounting/proving"

# Quick tests with a sharp reference, the module's own first; what takes seconds and knows inequalities only is left out,
# and a child process, which would import the code that is not mutated. A module is its path below src/filet.
TESTS = {
    "_rounding": (["test_rounding.py"], ""),
    f"{PROVING}/loss_law": (
        [f"{PROVING}/test_loss_law.py", f"{PROVING}/test_theorems.py"],
        "not never_above and not convex",
    ),
    f"{PROVING}/theorems": ([f"{PROVING}/test_theorems.py"], "not never_above and not convex"),
    f"{PROVING}/cells": ([f"{PROVING}/test_cells.py", "accounting/searching/test_grids.py"], ""),
    f"{PROVING}/transform": (
        [f"{PROVING}/test_transform.py", f"{PROVING}/test_composition.py"],
        "not 200000 and not threads",
    ),
    f"{PROVING}/composition": (
        [f"{PROVING}/test_composition.py", f"{PROVING}/test_composition_split.py", f"{PROVING}/test_line.py"],
        "not rounded_masses",
    ),
    f"{PROVING}/line": ([f"{PROVING}/test_line.py", f"{PROVING}/test_verdict.py"], ""),
    f"{PROVING}/view": ([f"{PROVING}/test_view.py", f"{PROVING}/test_verdict.py"], ""),
    # the names of a class's methods are not its own once it is mutated
    f"{PROVING}/verdict": ([f"{PROVING}/test_verdict.py", "accounting/searching/test_newton.py"], "not only_verdicts"),
    f"{PROVING}/closed_form": ([f"{PROVING}/test_closed_form.py"], ""),
    f"{PROVING}/tails": ([f"{PROVING}/test_tails.py"], ""),
    f"{PROVING}/hull": ([f"{PROVING}/test_hull.py"], ""),
    f"{PROVING}/lending": ([f"{PROVING}/test_lending_margins.py", f"{PROVING}/test_lending.py"], "not small_data_set"),
    f"{PROVING}/combining": ([f"{PROVING}/test_combining.py", "accounting/test_run.py"], ""),
    "sampling/sampler": (["sampling/test_sampler.py"], "not other_processes"),
}
NAMES = {path.rsplit("/", 1)[-1]: path for path in TESTS}


def mutmut(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "mutmut", *arguments], env=environment, check=True, **options)


def settings(module: str) -> str:
    files, names = TESTS[module]
    selection = ["-k", names] if names else []
    return f"""
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/filet/{module}.py"]
pytest_add_cli_args_test_selection = {json.dumps([f"tests/{file}" for file in files])}
pytest_add_cli_args = {json.dumps(["-p", "no:cacheprovider", "--hypothesis-seed=0", *selection])}
timeout_multiplier = 5.0
timeout_constant = 15.0
"""


def prepare(module: str, folder: Path) -> None:
    # benchmarks: the five settings that some tests share with them
    for part in ("src", "tests", "benchmarks"):
        shutil.copytree(ROOT / part, folder / part, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings(module))


def report(module: str, folder: Path) -> None:
    from mutmut.stats import status_by_exit_code  # only here: pytest imports this file, with or without mutmut

    results = json.loads((folder / f"mutants/src/filet/{module}.py.meta").read_text())["exit_code_by_key"]
    verdicts = {name: status_by_exit_code[code] for name, code in results.items()}
    print(f"{module}: {len(verdicts)} mutants", dict(Counter(verdicts.values())))
    for name in (name for name, verdict in verdicts.items() if verdict not in ("killed", "not checked")):
        shown = mutmut("show", name, cwd=folder, capture_output=True, text=True).stdout
        changes = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        print(f"\n{verdicts[name]}: {name}", *changes, sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", choices=sorted(NAMES))
    parser.add_argument("mutants", nargs="*", help="patterns of mutants' names to run; all of the module by default")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    options = parser.parse_args()
    module = NAMES[options.module]
    folder = ROOT / "build" / "mutation" / options.module
    if options.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    prepare(module, folder)
    mutmut("run", "--max-children", "1", *(options.mutants or [f"filet.{module.replace('/', '.')}.*"]), cwd=folder)
    report(module, folder)


if __name__ == "__main__":
    main()
