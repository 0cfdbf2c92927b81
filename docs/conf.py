"""Sphinx configuration: MyST pages, executed notebooks, Furo, formulas as MathML.

Nothing is loaded from the network, neither when the site is built nor when a page is viewed.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs" / "_ext")]
# Notebooks run in processes of their own, which import this source too, on one thread.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "filet"
author = "The filet authors"
copyright = "The filet authors"
release = version = re.search(r'__version__ = "(.*?)"', (ROOT / "src/filet/__init__.py").read_text())[1]  # type: ignore[index]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "cells",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_dmath_double_inline = True
myst_heading_anchors = 3
exclude_patterns = ["_build", "_scripts", "_ext"]
nitpicky = False

# Notebooks are stored without output, and run at every build; a cell that fails, fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds a cell, for a busy machine; a whole notebook takes far less
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # would be loaded from the network

# Prompts and printed lines are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Inventories in plain text, of the names that signatures mention: no build depends on another site.
INVENTORIES = ROOT / "docs" / "_inventories"
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", str(INVENTORIES / "python.txt")),
    "numpy": ("https://numpy.org/doc/stable", str(INVENTORIES / "numpy.txt")),
}
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
