"""The kept inputs of the fuzz targets, seeds and all that ever broke a rule, once more; no fuzzer is needed.

`python -m fuzz` looks for new ones; see fuzz/README.md.
"""

import importlib
import sys
from pathlib import Path
from random import Random

import pytest
from fuzz import command_line, run_file, state
from fuzz.__main__ import TARGETS
from fuzz.common import CORPUS

import filet

KEPT = [(name, path) for name in TARGETS for path in sorted((CORPUS / name).iterdir())]
CHECKS = {name: importlib.import_module(f"fuzz.{name}") for name in TARGETS}


@pytest.mark.parametrize(("name", "path"), KEPT, ids=lambda value: value.stem if isinstance(value, Path) else value)
def test_kept_inputs_keep_the_rules(name, path):
    CHECKS[name].check(path.read_bytes())


@pytest.mark.parametrize(("name", "count"), [("run_file", 300), ("state", 150), ("command_line", 100)])
def test_changed_inputs_keep_the_rules(name, count):
    random = Random(1)
    quick = [path.read_bytes() for kind, path in KEPT if kind == name and not path.stem.startswith(("plan", "plot_"))]
    for _ in range(count):
        data = random.choice(quick)
        for _ in range(random.randint(1, 3)):
            data = CHECKS[name].mutate(data, random)
        CHECKS[name].check(data)


# --- the rules can fail ----------------------------------------------------------------------------------------------


def test_an_error_of_another_kind_is_found(monkeypatch):
    def broken(path):
        raise KeyError("phases")

    monkeypatch.setattr(run_file, "read_run", broken)
    with pytest.raises(KeyError):
        run_file.check(b"")


@pytest.mark.parametrize("message", ["two\nlines", "", "x" * 3000, "this names no file"])
def test_an_error_that_is_not_one_line_about_the_file_is_found(message, monkeypatch):
    def broken(path):
        raise filet.InvalidArgumentError(message)

    monkeypatch.setattr(run_file, "read_run", broken)
    with pytest.raises(AssertionError):
        run_file.check(b"")


def test_a_state_that_comes_back_cheaper_is_found(monkeypatch):
    cheaper = filet.Accountant("zero-out")
    cheaper.compose(filet.CappedPoisson(1000, 0.1, 120), 1.0, 9)
    monkeypatch.setattr(filet.Accountant, "load", lambda path: cheaper)
    with pytest.raises(AssertionError):
        state.check((CORPUS / "state" / "phase_and_gaussian.json").read_bytes())


def leave_half_a_file():
    Path(".out.csv.half").write_text("step,0")
    sys.stderr.write("filet: no space left\n")
    sys.exit(1)


def overwrite_and_fail():
    Path("old.csv").write_text("new")
    sys.stderr.write("filet: no space left\n")
    sys.exit(1)


def answer_and_fail():
    print("epsilon 1")
    sys.stderr.write("filet: no\n")
    sys.exit(2)


@pytest.mark.parametrize(
    "broken",
    [
        lambda: print('{"epsilon": NaN}'),
        lambda: print('{"epsilon": Infinity}'),
        lambda: print('{"epsilon": 1'),
        lambda: print("epsilon  nan"),
        lambda: sys.exit(5),
        lambda: sys.exit(2),
        lambda: sys.stderr.write("RuntimeWarning: overflow\n"),
        lambda: 1 / 0,
        leave_half_a_file,
        overwrite_and_fail,
        answer_and_fail,
    ],
)
def test_a_command_that_breaks_a_rule_is_found(broken, monkeypatch):
    monkeypatch.setattr(command_line.cli, "main", broken)  # type: ignore[attr-defined]
    with pytest.raises((AssertionError, ValueError, ZeroDivisionError)):
        command_line.check(b"epsilon\n--json")


def test_a_state_that_passes_without_its_seal_is_found(monkeypatch):
    load = filet.Accountant.load
    monkeypatch.setattr(filet.Accountant, "load", lambda path, key=None: load(path))
    with pytest.raises(AssertionError, match="never sealed"):
        state._check_no_seal((CORPUS / "state" / "no_noise.json").read_bytes())
