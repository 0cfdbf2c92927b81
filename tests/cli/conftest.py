"""Every test of the command line has a terminal of 80 columns, whatever the one that runs the tests has."""

import pytest


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
