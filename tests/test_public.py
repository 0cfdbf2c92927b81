"""Public names belong to `filet`: pickles name nothing else, old ones stay readable, and their examples run."""

from __future__ import annotations

import base64
import doctest
import importlib
import inspect
import json
import pickle
import pickletools
from pathlib import Path

import numpy as np
import pytest

import filet
from tests.golden import make_pickles

GOLDEN = {
    name: base64.b64decode(text)
    for name, text in json.loads((Path(__file__).parent / "golden" / "pickles.json").read_text()).items()
}
SAFE = {"filet", "builtins", "copyreg", "_codecs"}


def named_modules(data: bytes) -> set[str]:
    """The modules whose names a pickle looks up; module and name are the two strings before STACK_GLOBAL."""
    strings: list[str] = []
    found = set()
    memo: dict[int, str] = {}
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ("SHORT_BINUNICODE", "BINUNICODE"):
            strings.append(argument)
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = strings[-1] if strings else ""
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            strings.append(memo.get(argument, ""))
        elif opcode.name == "STACK_GLOBAL":
            found.add(strings[-2])
        elif opcode.name == "GLOBAL":
            found.add(argument.split()[0])
    return found


@pytest.mark.parametrize("name", GOLDEN)
def test_pickles_name_no_place_in_the_code(name: str) -> None:
    fresh = pickle.dumps(make_pickles.values()[name] if name != "plan" else pickle.loads(GOLDEN["plan"]), protocol=4)
    for data in (GOLDEN[name], fresh):
        assert {module for module in named_modules(data) if not module.startswith("numpy")} <= SAFE


def test_old_pickles_mean_what_they_meant() -> None:
    old = {name: pickle.loads(data) for name, data in GOLDEN.items()}
    new = {name: value for name, value in make_pickles.values().items() if name != "plan"}
    assert old["scheme"] == new["scheme"]
    assert old["batch"] == new["batch"]
    assert old["words"] == new["words"]
    assert old["bounds"] == new["bounds"]
    for name in ("sampler", "shard"):
        for step in (0, 7):
            assert old[name][step] == new[name][step]
    assert [a == b for a, b in zip(old["batches"], new["batches"], strict=True)] == [True] * 6
    # States of version 1 kept the sum of Gaussian releases only; it may be rounded up, and no more.
    assert old["accountant"].phases == new["accountant"].phases
    for name in ("accountant", "curve"):
        ratio = old[name].epsilon(1e-4) / new[name].epsilon(1e-4)
        assert 1 - 1e-12 <= ratio <= 1 + 1e-9  # the last bit of an answer is no promise
    assert old["plan"].best.name == "reject"
    assert str(old["error"]) == "no bound"


def test_every_public_name_says_that_it_is_filets() -> None:
    for name in filet.__all__:
        assert getattr(filet, name).__module__ == "filet", name


@pytest.mark.parametrize("name", filet.__all__)
def test_examples_of_public_names_run(name: str) -> None:
    """Doctest looks for a thing where it says that it lives, and so finds none of these by itself."""
    thing = getattr(filet, name)
    home = importlib.import_module(f"filet.{filet._HOME[name]}")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(thing, name, module=False, globs=dict(vars(home)) | {"np": np}):
        assert runner.run(test).failed == 0, test.name


def test_public_functions_have_examples() -> None:
    finder = doctest.DocTestFinder()
    for name in filter(lambda name: inspect.isfunction(getattr(filet, name)), filet.__all__):
        assert any(test.examples for test in finder.find(getattr(filet, name), name, module=False)), name
