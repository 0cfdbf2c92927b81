"""Whoever asks a question (a run, many of them, a certificate) turns NumPy's warnings off once; parts are tested without them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

PARTS = ("accounting/proving", "accounting/searching")
# Tests of directions and of steps, not of curves.
ASK_PARTS = (
    "test_adversary",
    "test_brackets",
    "test_enumeration",
    "test_soundness",
    "test_truth",
    "checking/test_theorems",
)


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    path = request.path.with_suffix("").as_posix()
    if any(part in path for part in PARTS) or path.endswith(ASK_PARTS):
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            yield
    else:
        yield
