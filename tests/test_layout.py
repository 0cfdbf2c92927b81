"""The architecture holds: imports point one way, the core needs no optional package, the public names are pinned."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import filet

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "filet"

# A module may import only modules of earlier rows, or of its own row further left.
LAYERS = [
    ["errors", "_validate", "binomial"],
    ["scheme"],
    ["_streams", "_draws", "_partition", "sampling", "mechanism"],
    ["kernel", "profiles", "pld", "transform", "compose", "inversion", "engine", "composite"],
    ["_state", "accountant"],
    ["attacks", "auditing", "_search", "calibrate", "planning", "frontiers"],
    ["curves", "report", "plots"],
    ["_config", "_cli", "cli"],
]
ORDER = [name for layer in LAYERS for name in layer]
# Neither sampling nor mechanism may know anything of privacy accounting, and accounting nothing of sampling.
APART = {"_streams", "_draws", "_partition", "sampling", "mechanism"}
# The one lazy upward import: a scheme makes its sampler.
ALLOWED = {("scheme", "sampling")}


def rank(name: str) -> int:
    matches = [i for i, known in enumerate(ORDER) if name == known or name.startswith(known + "_")]
    assert matches, f"{name} is not in the list of layers"
    return max(matches)


def imports(path: Path) -> set[str]:
    """Modules of filet that a file imports, at the top or inside functions, but not for type checking only."""
    tree = ast.parse(path.read_text())
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in guarded:
            found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return found


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.glob("*.py")) if path.stem != "__init__"]


def test_dependencies_point_one_way() -> None:
    for path in modules():
        for other in imports(path):
            if (path.stem, other) in ALLOWED or not (SOURCE / f"{other}.py").exists():
                continue
            assert rank(other) <= rank(path.stem), f"{path.stem} imports {other}, which stands above it"


def test_sampling_and_accounting_do_not_know_each_other() -> None:
    accounting = {name for layer in LAYERS[3:5] for name in layer}
    for path in modules():
        if path.stem in APART:
            assert not imports(path) & accounting, path
        if path.stem in accounting:
            assert not imports(path) & APART, path


def test_nothing_imports_the_integrations() -> None:
    for path in modules():
        assert "integrations" not in imports(path), path


def test_importing_filet_loads_no_optional_package() -> None:
    optional = ["click", "rich", "matplotlib", "torch", "opacus", "jax", "jax_privacy", "dp_accounting", "cryptography",
                "scipy.stats", "pandas", "sklearn"]  # fmt: skip
    code = f"import sys, filet; print([name for name in {optional!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_names_are_pinned() -> None:
    assert filet.__all__ == sorted(filet.__all__)
    assert set(filet._HOME) == set(filet.__all__)
    for name, module in filet._HOME.items():
        assert getattr(filet, name) is getattr(importlib.import_module(f"filet.{module}"), name)
    assert set(filet.__all__) <= set(dir(filet))
    with pytest.raises(AttributeError, match="no attribute"):
        _ = filet.Poisson


def test_the_changelog_and_the_package_agree_on_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\S+)", changelog, re.M)
    assert newest is not None
    assert newest.group(1) == filet.__version__
    assert f'version = "{filet.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()
