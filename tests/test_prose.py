"""Docstrings begin with a noun or a verb, and the source has no words that a reader would have to translate."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "filet"
OPENINGS = re.compile(r"(What|Where|Whether|Which|Who|Whose|Whence|When|Why|How|About|Nothing:)\b")
# "Expensive", "NaN", "that many" or the number's name, "from where" and "search" say the same.
WORDS = re.compile(r"\b(dear|dearer|is no number|so many|so much of|whence|whither|a look)\b")
NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


PLACES = [path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.py"))]


def text(place: str) -> str:
    return (SOURCE / place).read_text(encoding="utf-8")


@pytest.mark.parametrize("place", PLACES)
def test_no_docstring_begins_with_a_question_word(place: str) -> None:
    documented = [node for node in ast.walk(ast.parse(text(place))) if isinstance(node, NODES)]
    found = [ast.get_docstring(node) or "" for node in documented]
    assert [one for one in found if OPENINGS.match(one)] == []


@pytest.mark.parametrize("place", PLACES)
def test_no_word_has_to_be_translated(place: str) -> None:
    assert [line.strip() for line in text(place).splitlines() if WORDS.search(line)] == []


def test_the_rules_find_what_they_forbid() -> None:
    assert OPENINGS.match("Whether a file is there.")
    assert not OPENINGS.match("Whereabouts of a file.")
    assert WORDS.search("near zero only if that is not dear")
    assert not WORDS.search("dearth of data, which somebody looks up")
