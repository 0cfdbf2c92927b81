"""Recipes: a run written as a command, as Python and as a run file says the same, with exact numbers."""

from __future__ import annotations

import os
import shlex
import subprocess
import tomllib
from dataclasses import replace

import pytest

from filet.accounting.terms import Analysis
from filet.planning import recipes
from filet.planning.options import Option
from filet.planning.target import Target
from filet.scheme import CappedPoisson

TARGET = Target.checked(2.0, 1e-5, "zero-out", "refined")
SCHEME = CappedPoisson(1_000, 0.1 + 0.2, 32, "reject", cycle_length=2)
CAPPED = Option("reject", "words", SCHEME, Analysis.REFINED, 1.1, 400, 1.9, 32, 32.0, True, 1.25, TARGET)
FREE = replace(CAPPED, scheme=CappedPoisson.uncapped(1_000, 0.25), fixed_shape=False, analysis=Analysis.UNION)
WORDS = {
    "capped": (
        CAPPED,
        "--dataset-size 1000 --sampling-probability 0.30000000000000004 --max-batch-size 32 --overflow reject"
        " --cycle-length 2 --noise-multiplier 1.1 --steps 400 --delta 1e-05 --adjacency zero-out",
    ),
    "without a cap": (
        FREE,
        "--dataset-size 1000 --sampling-probability 0.25 --no-cap --noise-multiplier 1.1 --steps 400"
        " --delta 1e-05 --adjacency zero-out --analysis union",
    ),
}


@pytest.mark.parametrize("case", WORDS)
def test_the_command_has_exact_numbers_and_names_the_policy(case: str) -> None:
    option, words = WORDS[case]
    assert option.command() == f"filet epsilon {words}"


@pytest.mark.parametrize("case", WORDS)
def test_the_run_file_holds_what_the_command_says_and_the_target(case: str) -> None:
    option, words = WORDS[case]
    file = tomllib.loads(option.run_file())
    assert file.pop("max_epsilon") == 2.0
    told = {f"--{name.replace('_', '-')}": str(value) for name, value in file.items()}
    pairs = words.replace("--no-cap", "--no-cap True").split()
    assert told == dict(zip(pairs[::2], pairs[1::2], strict=True))


def test_the_python_lines_make_the_options_scheme() -> None:
    for option in (CAPPED, FREE):
        lines = option.python().split("curve = ")[0]
        names: dict[str, object] = {}
        exec(lines, names)
        assert names["scheme"] == option.scheme


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
@pytest.mark.parametrize("width", [20, 40, 80, 1_000])
def test_a_broken_command_is_the_same_to_a_shell_and_fits(width: int) -> None:
    line = CAPPED.command()
    text = recipes.broken(line, width)
    outcome = subprocess.run(["sh", "-c", text.replace("filet", "echo", 1)], capture_output=True, text=True, check=True)
    assert outcome.stdout.split() == shlex.split(line)[1:]
    longest = max(len(f"    --{option} \\") for option in line.split(" --")[1:])
    assert max(map(len, text.splitlines())) <= max(width, longest)
