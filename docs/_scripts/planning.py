"""Write the table of docs/planning.md: python docs/_scripts/planning.py"""

from __future__ import annotations

import re
from pathlib import Path

import filet

PAGE = Path(__file__).resolve().parents[1] / "planning.md"
TABLE = re.compile(r"(<!-- table: made by docs/_scripts/planning.py -->\n```text\n)(.*?)(\n```)", re.S)


def table() -> str:
    """The options of the page's example."""
    plan = filet.plan(
        dataset_size=60_000,
        max_batch_size=256,
        steps=14_000,
        epsilon=3.0,
        delta=1e-5,
        adjacency="zero-out",
        comparisons=True,
    )
    return plan.table()


def generated() -> str:
    """The whole page, with its table made anew."""
    return TABLE.sub(lambda found: found[1] + table() + found[3], PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(generated(), encoding="utf-8")
