"""Imports of other libraries: a missing one names its extra, a changed one what it lacks and the version that has it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import filet
from filet.integrations._frameworks import KNOWN, needed_for

ROOT = Path(__file__).resolve().parents[2]


def test_known_versions_are_those_with_which_everything_passed():
    files = ("constraints-flower.txt", "constraints.txt")  # the second is the one that most are tested with
    lines = [line for name in files for line in (ROOT / name).read_text().splitlines()]
    pinned = dict(line.replace("-", "_").split("==") for line in lines if "==" in line)
    assert {name: version for name, (_, version) in KNOWN.items()} == {name: pinned[name] for name in KNOWN}


def test_a_package_that_is_not_there_names_the_extra():
    with pytest.raises(filet.MissingExtraError) as caught, needed_for("beam"):
        importlib.import_module("no_such_package")
    assert str(caught.value) == "no_such_package is not installed; run: pip install 'filet[beam]'"


def test_a_name_that_is_gone_is_not_a_missing_package():
    with pytest.raises(filet.MissingExtraError) as caught, needed_for("dp-accounting"):
        from dp_accounting import no_such_name  # noqa: F401
    found = re.fullmatch(
        r"dp_accounting \S+ does not have what filet imports: cannot import name 'no_such_name' from 'dp_accounting';"
        r" filet knows version 0\.6\.0, run: pip install 'dp-accounting==0\.6\.0'",
        str(caught.value),
    )
    assert found, caught.value


def test_an_unknown_package_that_cannot_be_imported_says_why(tmp_path, monkeypatch):
    (tmp_path / "half_a_package.py").write_text("from json import no_such_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(filet.MissingExtraError) as caught, needed_for("beam"):
        importlib.import_module("half_a_package")
    words = "the extra 'beam' cannot be imported: cannot import name 'no_such_name' from 'json'"
    assert str(caught.value) == f"{words}; run: pip install 'filet[beam]'"


def test_jax_privacy_without_plans_says_what_has_moved_and_selects_batches_all_the_same():
    code = """
        import sys
        import jax_privacy
        vars(jax_privacy).pop("execution_plan", None)  # its head imports it
        for place in ("jax_privacy", "jax_privacy.experimental"):
            sys.modules[f"{place}.execution_plan"] = None
        import filet
        from filet.integrations.jax_privacy import CappedPoissonSelection, account_banded
        try:
            from filet.integrations.jax_privacy import capped_plan
        except filet.MissingExtraError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "jax_privacy.experimental" in said
    assert "execution_plan" in said
    assert "pip install 'jax-privacy==2.0.0'" in said
    assert "not installed" not in said
