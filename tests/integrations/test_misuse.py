"""Every wrong use, in every integration: refused with one line, right all the same, or said where a user reads it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from pathlib import Path

import pytest
from tests.integrations.misuse import INTEGRATIONS, MISUSES, Absent, Documented, Refused, Right, Warned

from filet.errors import FiletError

DOCS = Path(__file__).parents[2] / "docs"
# Frameworks that have an environment of their own, where these tests run, too (conftest.py of the project).
APART = os.environ.get("FILET_TESTED_APART", "").split()
TRIED = [name for name in INTEGRATIONS if name not in APART]


def answers(integration: str):
    return importlib.import_module(f"tests.integrations.misuse.{integration}").ANSWERS


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_every_integration_answers_every_wrong_use(integration: str) -> None:
    assert list(answers(integration)) == list(MISUSES)


@pytest.mark.parametrize("misuse", MISUSES)
@pytest.mark.parametrize("integration", TRIED)
def test_a_wrong_use_does_not_end_well(integration: str, misuse: str) -> None:
    match answers(integration)[misuse]:
        case Refused(use, says, raises):
            with pytest.raises(raises or FiletError) as caught:
                use()
            assert says in str(caught.value)
            assert raises is not None or "\n" not in str(caught.value)
        case Warned(use, says):
            with pytest.warns(UserWarning, match=re.escape(says)) as warned:
                use()
            assert not any("\n" in str(warning.message) for warning in warned)
        case Right(use):
            use()
        case Absent(why):
            assert why
        case Documented(page, says):
            assert says in " ".join((DOCS / page).read_text().split())


def test_the_page_of_guards_names_every_wrong_use() -> None:
    page = " ".join((DOCS / "guards.md").read_text().split())
    for misuse, meaning in MISUSES.items():
        assert misuse in page.lower(), misuse
        assert meaning


def test_the_table_of_the_page_is_what_the_tests_try() -> None:
    spec = importlib.util.spec_from_file_location("guards", DOCS / "_scripts" / "guards.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (DOCS / "guards.md").read_text(encoding="utf-8") == script.generated(), "run: docs/_scripts/guards.py"


def test_every_test_that_the_page_names_is_there() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "guards.md").read_text(encoding="utf-8")))
    assert len(named) > 40
    assert [name for name in sorted(named) if f"def {name}(" not in tests] == []
