"""Sphinx configuration: MyST pages, Furo, formulas as MathML; nothing is loaded from the network when a page is viewed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs" / "_ext")]

project = "filet"
author = "The filet authors"
copyright = "The filet authors"
release = version = re.search(r'__version__ = "(.*?)"', (ROOT / "src/filet/__init__.py").read_text())[1]  # type: ignore[index]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_dmath_double_inline = True
myst_heading_anchors = 3
exclude_patterns = ["_build", "_scripts", "_ext"]
nitpicky = False
# Published sites have one folder a version, and a page that lists them (docs/_scripts/versions.py).
if tags.has("published"):  # type: ignore[name-defined]  # noqa: F821, Sphinx defines it
    html_theme_options = {"announcement": f"filet {release} · <a href='../versions.html'>other versions</a>"}

default_role = "code"  # single backticks in docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
add_module_names = False
maximum_signature_line_length = 60  # longer ones get one line an argument
python_use_unqualified_type_names = True

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"filet {release}"
html_static_path = ["_static"]
html_css_files = ["filet.css"]
html_show_sourcelink = False


def without_last_blank_lines(app: Any, docname: str, source: list[str]) -> None:
    """Doctest wants a blank line at the end of an example; a reader does not."""
    lines, inside = [], False
    for line in source[0].split("\n"):
        if line.startswith("```"):
            if inside and lines[-1] == "":
                lines.pop()
            inside = not inside
        lines.append(line)
    source[0] = "\n".join(lines)


def without_factories(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: Any
) -> Any:
    """A default that is made anew is no Python expression, and with it Sphinx gives up on the whole signature."""
    return (signature.replace("<factory>", "..."), returns) if signature else None


def setup(app: Any) -> None:
    app.connect("source-read", without_last_blank_lines)
    app.connect("autodoc-process-signature", without_factories)
