"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned with blanks: the first to the left, numbers to the right.

    >>> print(text_table(["policy", "epsilon"], [["truncate", "2.852"], ["reject", "2.815"]]))
    policy    epsilon
    truncate    2.852
    reject      2.815
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
