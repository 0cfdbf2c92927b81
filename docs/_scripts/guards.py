"""Write the table of wrong uses into docs/guards.md: python docs/_scripts/guards.py

Read from tests/integrations/misuse, which needs every framework but Flower. Run it from the project's folder.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guards.md"
NAMES = {
    "torch": "PyTorch",
    "opacus": "Opacus",
    "huggingface": "Hugging Face",
    "lightning": "Lightning",
    "jax": "JAX",
    "jax_privacy": "JAX Privacy",
    "keras": "Keras",
    "grain": "grain",
    "dp_accounting": "dp_accounting",
    "beam": "Beam",
    "flower": "Flower",
    "spark": "Spark",
    "ray": "Ray",
}


def answers() -> dict[str, dict[str, str]]:
    """The answer of every integration that has some, by misuse: the name of its class."""
    misuse = importlib.import_module("tests.integrations.misuse")
    found = {}
    for name in misuse.INTEGRATIONS:
        if (Path(str(misuse.__file__)).parent / f"{name}.py").exists():
            given = importlib.import_module(f"tests.integrations.misuse.{name}").ANSWERS
            found[name] = {use: type(answer).__name__.lower() for use, answer in given.items()}
    return found


def content() -> str:
    found = answers()
    misuses = importlib.import_module("tests.integrations.misuse").MISUSES
    lines = ["| wrong use | " + " | ".join(NAMES[name] for name in found) + " |"]
    lines.append("| --- |" + " --- |" * len(found))
    for use, meaning in misuses.items():
        cells = (given[use] for given in found.values())
        lines.append(f"| *{use}*: {meaning} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def generated() -> str:
    """The page as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    start = "<!-- wrong uses: made by docs/_scripts/guards.py -->\n"
    return re.sub(f"{start}.*?<!-- end -->", lambda _: f"{start}{content()}<!-- end -->", text, flags=re.S)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(generated(), encoding="utf-8")
