"""Write the table of classes of docs/symbols.md: python docs/_scripts/symbols.py

Every class of the source without a leading underscore, with the first sentence of its docstring.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "filet"
PAGE = ROOT / "docs" / "symbols.md"
START = "<!-- classes: made by docs/_scripts/symbols.py -->\n"
END = "<!-- end of classes -->"


def classes() -> list[tuple[str, str, str]]:
    """Name, module and first sentence of each class, by name."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                found.append((node.name, path.relative_to(SOURCE).as_posix(), first_sentence(text)))
    return sorted(found, key=lambda row: (row[0].lower(), row[1]))


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:;]) ", text)[0].rstrip(":;.")


def generated() -> str:
    """The page as it should be."""
    rows = ["| class | defined in | is |", "| --- | --- | --- |"]
    for name, place, words in classes():
        plain = re.sub(r"([|*_<>\[\]$\\])", r"\\\1", words) if "`" not in words else words.replace("|", "\\|")
        rows.append(f"| `{name}` | `{place}` | {plain} |")
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    return before + START + "\n".join(rows) + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(generated(), encoding="utf-8")
