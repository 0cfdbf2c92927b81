"""Formulas as MathML, made when the site is built: browsers show them without a script, a font or a network."""

from __future__ import annotations

import html
import itertools
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert

MATHML = "http://www.w3.org/1998/Math/MathML"
LONGEST = 30  # characters of a formula that fits a line of a phone; longer ones may scroll
FUNCTIONS = {"log", "cos", "sin", "cosh", "sinh", "coth"}
PRIMES = {"\u2032", "\u2033", "\u2034"}
ElementTree.register_namespace("", MATHML)


def inline(self: Any, node: nodes.math) -> None:
    kind = "math long" if len(node.astext()) > LONGEST else "math"
    self.body.append(f'<span class="{kind}">{mathml(node.astext(), "inline")}</span>')
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    label = node.get("label")
    anchor = f' id="equation-{html.escape(label)}"' if label else ""
    self.body.append(f'<div class="math-block"{anchor}>{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def mathml(latex: str, display: str) -> str:
    """The formula, with its source for those who copy it."""
    known = latex.replace("{aligned}", "{align*}")  # the converter knows the table by this name only
    formula = ElementTree.fromstring(convert(known, display=display))
    formula.set("title", latex)
    for element in formula.iter():
        close_bars(element)
        lower_primes(element)
        space_functions(element)
    return ElementTree.tostring(formula, encoding="unicode")


def close_bars(element: ElementTree.Element) -> None:
    """Bars of a modulus or a size without the space of an operator."""
    if element.tag == f"{{{MATHML}}}mo" and element.text == "|":
        element.attrib.update(lspace="0em", rspace="0em")


def lower_primes(element: ElementTree.Element) -> None:
    """Primes beside their letter: the glyph is raised already, and as an exponent it would be raised twice."""
    tag, parts = element.tag.removeprefix(f"{{{MATHML}}}"), list(element)
    if tag in ("msup", "msubsup") and parts[-1].text in PRIMES:
        prime = ElementTree.Element(f"{{{MATHML}}}mo", lspace="0em", rspace="0em")
        prime.text = parts[-1].text
        element.tag = f"{{{MATHML}}}mrow"
        element[:] = [parts[0], prime]
        if tag == "msubsup":
            base = ElementTree.Element(f"{{{MATHML}}}msub")
            base.extend(parts[:2])
            element[0] = base


def space_functions(element: ElementTree.Element) -> None:
    """Thin spaces around the name of a function, as an argument without brackets and a factor before it need them."""
    apart = (f"{{{MATHML}}}mo", f"{{{MATHML}}}mspace")
    for place, both in reversed(list(enumerate(itertools.pairwise(element)))):
        named = [one.text in FUNCTIONS for one in both]
        if any(named) and not any(one.tag in apart for one in both):
            element.insert(place + 1, ElementTree.Element(f"{{{MATHML}}}mspace", width="0.167em"))


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
