"""Formulas as MathML, made when the site is built: browsers show them without a script, a font or a network."""

from __future__ import annotations

import html
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(f'<span class="math">{mathml(node.astext(), "inline")}</span>')
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    label = node.get("label")
    anchor = f' id="equation-{html.escape(label)}"' if label else ""
    self.body.append(f'<div class="math-block"{anchor}>{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def mathml(latex: str, display: str) -> str:
    """The formula, with its source for those who copy it."""
    known = latex.replace("{aligned}", "{align*}")  # the converter knows the table by this name only
    return str(convert(known, display=display)).replace("<math ", f'<math title="{html.escape(latex)}" ', 1)


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
