"""Cells of tables: numbers are not broken over lines, and columns of words keep a width on a phone."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

WORDS = 40  # characters of a cell that wants some width


def mark(app: Any, document: nodes.document, name: str) -> None:
    for cell in document.findall(nodes.entry):
        text = cell.astext()
        if re.fullmatch(r"[\d.,]+(e[+-]?\d+)?( ?%)?", text):
            cell["classes"].append("number")
        elif len(text) > WORDS:
            cell["classes"].append("words")


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-resolved", mark)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
