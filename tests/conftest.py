"""Settings of all tests: random examples repeat, and parts are tested without NumPy's warnings.

Whoever asks a question (a run, many of them, a certificate) turns these warnings off once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# The same examples everywhere, at any speed, and no file written: the working folder may be read-only.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")

FOLDER = Path(__file__).parent
PARTS = ("accounting/proving", "accounting/search")
# Tests of directions and of steps, not of curves.
ASK_PARTS = (
    "test_adversary",
    "test_brackets",
    "test_enumeration",
    "test_soundness",
    "test_truth",
    "checking/test_theorems",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests may use short keys, which are for tests; what the documentation shows may not."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:.*can be found by trying"))


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    path = request.path.with_suffix("").as_posix()
    if any(part in path for part in PARTS) or path.endswith(ASK_PARTS):
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            yield
    else:
        yield
