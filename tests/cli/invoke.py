"""How the tests of the command line call it, in this process and in another."""

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

import filet
from filet.cli.commands.answers import main

SCHEME = ["--dataset-size", "60000", "--poisson-batch-size", "256", "--max-batch-size", "300"]
RUN = [*SCHEME, "--noise-multiplier", "1", "--steps", "14000"]
RUN_FILE = """adjacency = "zero-out"
delta = 1e-5
dataset_size = 60_000
poisson_batch_size = 256
max_batch_size = 300
noise_multiplier = 1.0
steps = 14_000
"""
ZERO_OUT = [*RUN, "--adjacency", "zero-out"]
TARGET = ["--epsilon", 3, "--delta", "1e-5", "--adjacency", "zero-out"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(filet.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def process(*arguments, **options):
    command = [sys.executable, "-m", "filet.cli.entry", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT, **options, check=False)


def one_line(outcome, code):
    """The line of a refusal, which must come alone."""
    assert outcome.exit_code == code, outcome.output
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("filet: ")
    assert outcome.stderr.count("\n") == 1
    return outcome.stderr


def curve(adjacency="zero-out", analysis="refined", **changes):
    """What the library says of the run that `RUN` describes."""
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300, **changes)
    return filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency=adjacency, analysis=analysis)
