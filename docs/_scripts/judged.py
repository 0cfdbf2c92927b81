"""Write the validation page's table of the engine judged by the checker: python docs/_scripts/judged.py

Read from tests/checking/judged_ordinary.csv and judged_extreme.csv, which `python -m tests.checking.judging` makes.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "validation.md"
HEADER = """\
| runs | policy, analysis | judged | violations | smallest margin above | below | median margin above | below |
| --- | --- | --- | --- | --- | --- | --- | --- |"""

Row = dict[str, str]


def rows(kind: str) -> list[Row]:
    with (ROOT / "tests" / "checking" / f"judged_{kind}.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def line(kind: str, group: str, judged: list[Row]) -> str:
    above, below = ([float(row[side]) for row in judged] for side in ("above", "below"))
    violations = sum(min(pair) < 0.0 for pair in zip(above, below, strict=True))
    figures = " | ".join(f"{value:.1e}" for value in (min(above), min(below), median(above), median(below)))
    return f"| {kind} | {group} | {len(judged)} | {violations} | {figures} |"


def content() -> str:
    lines, left_out = [HEADER], []
    for kind in ("ordinary", "extreme"):
        drawn = rows(kind)
        judged = [row for row in drawn if row["outcome"] == "judged"]
        for group in sorted({(row["overflow"], row["analysis"]) for row in judged}, reverse=True):
            lines.append(line(kind, ", ".join(group), [r for r in judged if (r["overflow"], r["analysis"]) == group]))
        lines.append(line(kind, "all", judged))
        others = Counter(row["outcome"] for row in drawn if row["outcome"] != "judged")
        words = ", ".join(f"{count} {outcome}" for outcome, count in others.most_common()) or "none"
        words = words.replace("too dear", "too expensive to check")  # the tables keep their old word
        left_out.append(f"of {len(drawn):,} {kind} runs that were drawn, not judged: {words}")
    return "\n".join([*lines, "", f"Of all draws: {'; '.join(left_out)}.".replace("Of all draws: of", "Of", 1)])


def generated() -> str:
    """The page as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(
        r"(<!-- judged: [^\n]*-->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{content()}\n{found[2]}",
        text,
        count=1,
        flags=re.S,
    )


if __name__ == "__main__":
    PAGE.write_text(generated(), encoding="utf-8")
