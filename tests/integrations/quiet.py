"""Warnings of other libraries that say nothing of filet: marks that tests of private training carry."""

from __future__ import annotations

import pytest

OPACUS = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]
TRANSFORMERS = [
    *OPACUS,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
]
