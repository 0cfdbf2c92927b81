"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned with blanks: the first to the left, numbers to the right. Names may take several lines.

    >>> print(text_table(["policy", "epsilon"], [["truncate", "2.852"], ["reject", "2.815"]]))
    policy    epsilon
    truncate    2.852
    reject      2.815
    >>> print(text_table(["policy", "rows\\nused"], [["truncate", "85 %"]]))
              rows
    policy    used
    truncate  85 %
    """
    names = [name.split("\n") for name in header]
    height = max(map(len, names))
    above = [[""] * (height - len(name)) + name for name in names]
    lines = [*map(list, zip(*above, strict=True)), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
