"""Errors: one tree, each class of which says what a caller can do about it."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

import filet
from filet import errors

CLASSES: dict[str, Any] = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_a_public_filet_error_of_one_line(name: str) -> None:
    kind = CLASSES[name]
    assert issubclass(kind, filet.FiletError)
    assert getattr(filet, name) is kind
    assert kind.__doc__
    assert "\n" not in kind.__doc__


@pytest.mark.parametrize("name", CLASSES)
def test_words_survive_a_pickle(name: str) -> None:
    error = pickle.loads(pickle.dumps(CLASSES[name]("the words")))
    assert type(error) is CLASSES[name]
    assert str(error) == "the words"


def test_each_is_caught_by_the_class_that_python_programs_expect() -> None:
    expected = {"InvalidArgumentError": ValueError, "NoSolutionError": filet.InvalidArgumentError, "OutputError": OSError,
                "NotCertifiedError": ArithmeticError, "MissingExtraError": ImportError}  # fmt: skip
    for name, kind in expected.items():
        assert issubclass(CLASSES[name], kind)


def test_the_one_for_targets_is_not_raised_for_arguments() -> None:
    scheme = filet.CappedPoisson(1_000, 0.01, 20)
    target: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-9, "adjacency": "zero-out"}
    with pytest.raises(filet.NoSolutionError):
        filet.calibrate_steps(scheme, noise_multiplier=0.1, **target)
    with pytest.raises(filet.InvalidArgumentError) as caught:
        filet.calibrate_steps(scheme, noise_multiplier=-0.1, **target)
    assert not isinstance(caught.value, filet.NoSolutionError)
