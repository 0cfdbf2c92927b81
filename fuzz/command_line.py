"""The command line: any arguments give a documented exit code, an answer without NaN or one line, and whole files.

An input holds one argument a line. It runs in a fresh folder with a few files, through the real entry point.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest import mock

import click

from filet.cli import entry as cli
from filet.cli.commands.answers import main as group
from filet.cli.group import ANSWERED, CANNOT_ANSWER, TARGET_NOT_MET, USAGE

from .common import LEAST_NOISE, NUMBERS, WORDS, check_json, check_no_nan, edited, is_number_between

RUN = """adjacency = "zero-out"
delta = 1e-3
dataset_size = 100
max_batch_size = 12
sampling_probability = 0.1
noise_multiplier = 2.0
steps = 3
"""
FILES = {"run.toml": RUN.encode(), "broken.toml": b"steps = = 3\n", "key.bin": bytes(range(32)), "old.csv": b"old\n"}
NAMES = (
    *FILES, "out.csv", "out.jsonl", "out.npy", "out.png", "out.svg", "out.pdf", "out.txt", "missing/out.csv", ".", "",
    "-", "csv", "jsonl", "npy", "batch-sizes", "utilization", "frontier", "epsilon-steps", "delta-epsilon", "trade-off",
    "noise-multiplier", "steps", "sampling-probability", "n" * 300 + ".csv",
)  # fmt: skip
MOST_ARGUMENTS = 40
# An honest question about much data takes its time; such inputs say nothing about the parser.
LARGE = {"--steps": 40, "--max-batch-size": 2000, "--points": 6, "--world-size": 1e6, "--dataset-size": 1e7}


@dataclass(frozen=True)
class Outcome:
    code: object
    out: str
    err: str
    files: dict[str, bytes]


def check(data: bytes) -> None:
    arguments = arguments_of(data)
    if _skipped(arguments):
        return
    outcome = _run(arguments)
    assert outcome.code in (ANSWERED, CANNOT_ANSWER, USAGE, TARGET_NOT_MET), f"exit code {outcome.code}"
    assert all(line.startswith("filet: ") for line in outcome.err.splitlines()), f"stray remark: {outcome.err!r}"
    assert "please report" not in outcome.err, f"an unforeseen error: {outcome.err!r}"
    if outcome.code in (CANNOT_ANSWER, USAGE):
        _check_refusal(arguments, outcome)
    else:
        _check_answer(arguments, outcome)


def arguments_of(data: bytes) -> list[str]:
    """One argument a line, as the operating system would hand it over: without zeros, other bytes as surrogates."""
    return data.replace(b"\0", b"").decode(errors="surrogateescape").split("\n")[:MOST_ARGUMENTS]


def _skipped(arguments: list[str]) -> bool:
    """Whether the run could write outside its folder, or would be too long."""
    if any("/" in one and one not in NAMES for one in arguments):
        return True
    if sum(one.startswith(("--steps", "--max-batch-size")) for one in arguments) > 3 and "plan" in arguments:
        return True
    given = zip(arguments, [*arguments[1:], ""], strict=True)
    pairs = [one.split("=", 1) if "=" in one else (one, value) for one, value in given]
    if any(name == "--noise-multiplier" and is_number_between(value, 0.0, LEAST_NOISE) for name, value in pairs):
        return True
    sized = LARGE if {"sample", "plot", "plan", "calibrate"} & set(arguments) else {"--points": 6}
    return any(is_number_between(value, sized[name], 2.0**62) for name, value in pairs if name in sized)


def _run(arguments: list[str]) -> Outcome:
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors) for errors in ("strict", "backslashreplace")
    )
    code: object = ANSWERED
    given = io.TextIOWrapper(io.BytesIO(RUN.encode()), encoding="utf-8")
    argv = ["filet", *arguments]
    with _folder() as folder, mock.patch.multiple(sys, argv=argv, stdin=given, stdout=out, stderr=err):
        # Always shown, so that a warning does not depend on what ran before it.
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            try:
                cli.main()
            except SystemExit as stop:
                code = stop.code
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    texts = [_text(stream) for stream in (out, err)]
    return Outcome(code, texts[0], texts[1], files)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A fresh working folder that holds `FILES`."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="filet-fuzz-") as name:
        for file, content in FILES.items():
            Path(name, file).write_bytes(content)
        Path(name, "key.bin").chmod(0o600)  # a key that others can read is refused
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def _check_refusal(arguments: list[str], outcome: Outcome) -> None:
    assert outcome.err.count("\n") == 1 + outcome.err.count("no key given"), f"not one line: {outcome.err!r}"
    assert outcome.out == "" or "sample" in arguments, f"an answer and an error: {outcome.out!r}"
    assert outcome.files == FILES, f"files changed by an error: {sorted(outcome.files)}"


def _check_answer(arguments: list[str], outcome: Outcome) -> None:
    changed = {name for name, content in outcome.files.items() if FILES.get(name) != content}
    assert len(changed) <= 1, f"more than one file written: {changed}"
    assert not changed or changed <= {one.removeprefix("--output=").removeprefix("-o") for one in arguments}, changed
    assert FILES.keys() <= outcome.files.keys()
    check_no_nan(outcome.out)
    if "frontier" not in arguments:  # nan is documented there: the target cannot be met
        for name in changed:
            if name.endswith((".csv", ".jsonl")):
                check_no_nan(outcome.files[name].decode(errors="replace"))  # npy may have any name
    if outcome.out.startswith("{"):
        for text in outcome.out.splitlines() if "sample" in arguments else [outcome.out]:
            check_json(text)


def mutate(data: bytes, random: Random) -> bytes:
    """An option more or less, or another value, from the real list of commands and options."""
    arguments = arguments_of(data)
    choice = random.random()
    here = random.randrange(len(arguments))
    if choice < 0.2:
        arguments = edited(arguments, random)
    elif choice < 0.3:
        arguments[0] = random.choice(list(group.commands))
    elif choice < 0.65:
        arguments[here] = _value(random)
    else:
        named = arguments[1] if arguments[0] == "plot" and len(arguments) > 1 else arguments[0]
        arguments[here + 1 : here + 1] = _option(named, random)
    return "\n".join(arguments).encode(errors="surrogateescape")


def _value(random: Random) -> str:
    return random.choice(random.choice((NUMBERS, NUMBERS, WORDS, NAMES)))


def _leaves() -> dict[str, click.Command]:
    """Every command that has options; a kind of picture goes by its own name."""
    plots = group.commands["plot"]
    assert isinstance(plots, click.Group)
    found = {**group.commands, **plots.commands}
    return {name: one for name, one in found.items() if any(isinstance(param, click.Option) for param in one.params)}


def _option(command: str, random: Random) -> list[str]:
    parameters = (_leaves().get(command) or random.choice(list(_leaves().values()))).params
    parameter = random.choice([one for one in parameters if isinstance(one, click.Option)])
    flag = random.choice(parameter.opts)
    if parameter.is_flag:
        return [flag]
    value = random.choice(parameter.type.choices) if isinstance(parameter.type, click.Choice) else _value(random)
    return random.choice(([flag, str(value)], [f"{flag}={value}"]))
