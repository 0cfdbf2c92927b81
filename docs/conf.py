"""Sphinx configuration: MyST pages, Furo, nothing loaded from the network when a page is viewed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

project = "filet"
author = "The filet authors"
copyright = "The filet authors"
release = version = re.search(r'__version__ = "(.*?)"', (ROOT / "src/filet/__init__.py").read_text())[1]  # type: ignore[index]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_scripts"]
nitpicky = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"

html_theme = "furo"
html_title = f"filet {release}"
html_static_path = ["_static"]
html_show_sourcelink = False
