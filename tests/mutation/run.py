"""Mutation testing of one module: python tests/mutation/run.py kernel

mutmut changes the module in one place at a time and runs the tests listed here; a change that no test notices is a
survivor. Works on a copy under build/mutation, where `mutmut browse` shows the results. A second run tries again only
what has changed; `--fresh` starts from nothing.
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

# Quick tests with a sharp reference; what takes seconds and knows inequalities only is left out, and a child process,
# which would import the code that is not mutated.
TESTS = {
    "kernel": (["tests/test_profiles.py"], "not never_above and not convex"),
    "profiles": (["tests/test_profiles.py"], "not never_above and not convex"),
    "sampling": (["tests/test_sampling.py"], "not other_processes"),
    "engine": (
        ["tests/test_engine.py", "tests/test_engine_search.py", "tests/test_soundness.py"],
        "not two_steps and not stress_grid and not discrete_laws_bracket and not transform and not little_noise",
    ),
}


def mutmut(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "mutmut", *arguments], env=environment, check=True, **options)


def settings(module: str) -> str:
    files, names = TESTS[module]
    return f"""
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/filet/{module}.py"]
pytest_add_cli_args_test_selection = {json.dumps(files)}
pytest_add_cli_args = ["-p", "no:cacheprovider", "--hypothesis-seed=0", "-k", {json.dumps(names)}]
timeout_multiplier = 5.0
timeout_constant = 15.0
"""


def prepare(module: str, folder: Path) -> None:
    for part in ("src", "tests"):
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
    parser.add_argument("module", choices=sorted(TESTS))
    parser.add_argument("mutants", nargs="*", help="patterns of mutants' names to run; all of the module by default")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    options = parser.parse_args()
    folder = ROOT / "build" / "mutation" / options.module
    if options.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    prepare(options.module, folder)
    mutmut("run", "--max-children", "1", *(options.mutants or [f"filet.{options.module}.*"]), cwd=folder)
    report(options.module, folder)


if __name__ == "__main__":
    main()
