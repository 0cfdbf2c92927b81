"""Mutation testing of a module or of a whole room: python tests/mutation/run.py loss_law

mutmut changes a module in one place at a time and runs the tests listed here; a change that no test notices is a
survivor. Covers proving, the checker, sampling, planning, the scheme, the accountant's state and the curve. Works on
a copy under build/mutation, where `mutmut browse` shows the results. A second run tries only functions that have
changed; `--survivors` tries again what no test noticed, after new tests; `--fresh` starts from nothing.
"""

from __future__ import annotations

import argparse
import contextlib
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
CHECKING = "checking"
CLAIMS = "not imports_nothing and not floating_point and not short_enough and not works_alone and not every_reason and not missing_package"
# Processes import what is not changed, and mutmut stands between a function and its caller.
ELSEWHERE = "not other_processes and not callers_line"

SAMPLING = (
    "audits", "batch", "batched_draws", "draws", "exact_sizes", "keys", "member_checks", "noise", "p_values",
    "partition", "passes", "size_checks", "size_law", "streams", "urn",
)  # fmt: skip
PLANNING = (
    "calibration", "comparison", "frontiers", "hardware", "options", "planner", "recipes", "roots", "run_file",
    "strategies", "target", "unknowns",
)  # fmt: skip

# Quick tests with a sharp reference, the module's own first; what takes seconds and knows inequalities only is left out,
# and a child process, which would import the code that is not mutated. A module is its path below src/filet.
TESTS = {
    "_rounding": (["test_rounding.py"], ""),
    f"{PROVING}/loss_law": (
        [f"{PROVING}/test_loss_law.py", f"{PROVING}/test_theorems.py"],
        "not never_above and not convex",
    ),
    f"{PROVING}/theorems": ([f"{PROVING}/test_theorems.py"], "not never_above and not convex"),
    f"{PROVING}/cells": ([f"{PROVING}/test_cells.py", "accounting/search/test_grid.py"], ""),
    f"{PROVING}/transform": (
        [f"{PROVING}/test_transform.py", f"{PROVING}/test_composition.py"],
        "not 200000 and not threads",
    ),
    f"{PROVING}/composition": (
        [f"{PROVING}/test_composition.py", f"{PROVING}/test_composition_split.py", f"{PROVING}/test_contour.py"],
        "not rounded_masses",
    ),
    f"{PROVING}/contour": ([f"{PROVING}/test_contour.py", f"{PROVING}/test_inversion.py"], ""),
    f"{PROVING}/pmf": ([f"{PROVING}/test_pmf.py", f"{PROVING}/test_inversion.py"], ""),
    f"{PROVING}/pair": ([f"{PROVING}/test_pair.py"], ""),
    f"{PROVING}/sizes": ([f"{PROVING}/test_sizes.py"], ""),
    # the names of a class's methods are not its own once it is mutated
    f"{PROVING}/inversion": (
        [f"{PROVING}/test_inversion.py", "accounting/search/test_question.py"],
        "not only_verdicts",
    ),
    f"{PROVING}/closed_form": ([f"{PROVING}/test_closed_form.py"], ""),
    f"{PROVING}/tails": ([f"{PROVING}/test_tails.py"], ""),
    f"{PROVING}/hull": ([f"{PROVING}/test_hull.py"], ""),
    f"{PROVING}/lending": ([f"{PROVING}/test_lending_margins.py", f"{PROVING}/test_lending.py"], "not small_data_set"),
    f"{PROVING}/combining": ([f"{PROVING}/test_combining.py", "accounting/test_run.py"], ""),
    # what reads the checker's source would read the changed one
    f"{CHECKING}/__init__": ([f"{CHECKING}/test_claims.py", f"{CHECKING}/test_rules.py"], CLAIMS),
    f"{CHECKING}/lattice": ([f"{CHECKING}/test_lattice.py"], ""),
    f"{CHECKING}/theorems": (
        [f"{CHECKING}/test_rules.py", f"{CHECKING}/test_limits.py", f"{CHECKING}/test_theorems.py"],
        "not small_data_set",
    ),
    **{f"sampling/{name}": ([f"sampling/test_{name}.py"], ELSEWHERE) for name in SAMPLING},
    "sampling/sampler": (
        [f"sampling/test_{name}.py" for name in ("sampler", "urn", "batch", "partition")],
        f"{ELSEWHERE} and not exact_law and not true_number and not pairs_to_groups",
    ),
    "sampling/mechanism": (["sampling/test_mechanism.py", "sampling/test_add_noise.py"], ""),
    "scheme": (["test_scheme.py"], ""),
    "accounting/state": (["accounting/test_state.py"], ""),
    "accounting/curve": (["accounting/test_curve.py", "accounting/test_risk.py", "accounting/test_accountant.py"], ""),
    **{f"planning/{name}": ([f"planning/test_{name}.py"], "") for name in PLANNING},
}


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
also_copy = ["benchmarks"]
pytest_add_cli_args_test_selection = {json.dumps([f"tests/{file}" for file in files])}
pytest_add_cli_args = {json.dumps(["-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", "not slow and not long", *selection])}
timeout_multiplier = 4.0
timeout_constant = 8.0
"""


def prepare(module: str, folder: Path) -> None:
    # benchmarks: the five settings that some tests share with them
    for part in ("src", "tests", "benchmarks"):
        shutil.copytree(ROOT / part, folder / part, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings(module))


def changed_lines(name: str, module: str) -> list[str]:
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    lines = get_diff_for_mutant(name, path=Path(f"src/filet/{module}.py")).splitlines()
    return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def only_words(change: list[str]) -> bool:
    """Whether only a text with a space in it is another: a part of a message, no name that a program reads."""
    before, after = ("\n".join(line[1:].strip() for line in change if line[0] == sign) for sign in "-+")
    place = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), len(before))
    literal = after[after.rfind('"', 0, place) : after.find('"', place)]
    return after.replace("XX", "").lower() == before.lower() and " " in literal


def verdicts_of(module: str, folder: Path) -> dict[str, str]:
    from mutmut.stats import status_by_exit_code  # only here: pytest imports this file, with or without mutmut

    results = json.loads((folder / f"mutants/src/filet/{module}.py.meta").read_text())["exit_code_by_key"]
    return {name: status_by_exit_code[code] for name, code in results.items()}


def unnoticed(module: str, folder: Path) -> list[str]:
    return [name for name, verdict in verdicts_of(module, folder).items() if verdict in ("survived", "no tests")]


def report(module: str, folder: Path) -> None:
    verdicts = verdicts_of(module, folder)
    with contextlib.chdir(folder):
        left = [name for name, verdict in verdicts.items() if verdict not in ("killed", "not checked")]
        changes = {name: changed_lines(name, module) for name in left}
    words = [name for name, change in changes.items() if only_words(change)]
    print(
        f"{module}: {len(verdicts)} mutants",
        dict(Counter(verdicts.values())),
        f"of these {len(words)} are words of messages",
    )
    for name in [name for name in changes if name not in words]:
        print(f"\n{verdicts[name]}: {name}", *changes[name], sep="\n")


def modules(name: str) -> list[str]:
    """The modules whose path below src/filet has this part: a room's name, a module's, or both."""
    found = [path for path in TESTS if f"/{name}/" in f"/{path}/"]
    if not found:
        raise SystemExit(f"no module of this name: {name}; there are {', '.join(TESTS)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a module or a room: loss_law, proving, checking, checking/theorems, sampling")
    parser.add_argument("mutants", nargs="*", help="patterns of mutants' names to run; all of the module by default")
    parser.add_argument("--survivors", action="store_true", help="only what no test noticed in earlier runs")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    options = parser.parse_args()
    for module in modules(options.name):
        folder = ROOT / "build" / "mutation" / module.replace("/", "_")
        if options.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        prepare(module, folder)
        wanted = unnoticed(module, folder) if options.survivors else options.mutants
        mutmut("run", "--max-children", "1", *wanted, cwd=folder)
        report(module, folder)


if __name__ == "__main__":
    main()
