"""Tables as plain text of any width, and as HTML for notebooks."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence

WIDTH = 80  # of a terminal that says nothing
_GAP = 2


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Columns aligned with blanks: the first to the left, numbers to the right. Names may take several lines.

    >>> print(text_table(["policy", "epsilon"], [["truncate", "2.852"], ["reject", "2.815"]]))
    policy    epsilon
    truncate    2.852
    reject      2.815
    >>> print(text_table(["policy", "rows\\nused"], [["truncate", "85 %"]]))
              rows
    policy    used
    truncate  85 %

    A table wider than `width` goes on below, each part with the first column again, so that no figure is ever cut:

    >>> print(text_table(["policy", "noise", "epsilon"], [["reject", "0.9506", "2.815"]], width=16))
    policy   noise
    reject  0.9506
    <BLANKLINE>
    policy  epsilon
    reject    2.815
    """
    names = [name.split("\n") for name in header]
    height = max(map(len, names))
    above = [[""] * (height - len(name)) + name for name in names]
    lines = [*map(list, zip(*above, strict=True)), *map(list, rows)]
    if any(len(line) != len(header) for line in lines):
        raise ValueError("a row has not as many cells as the header")
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n\n".join(_part(lines, columns, widths) for columns in _parts(widths, width))


def _parts(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """The columns of each part: the first one, and as many of the others as fit, but at least one."""
    parts, taken = [[0]], widths[0]
    for column in range(1, len(widths)):
        taken += _GAP + widths[column]
        if width is not None and taken > width and len(parts[-1]) > 1:
            parts.append([0])
            taken = widths[0] + _GAP + widths[column]
        parts[-1].append(column)
    return parts


def _part(lines: Sequence[Sequence[str]], columns: Sequence[int], widths: Sequence[int]) -> str:
    kept = [[line[column] for column in columns] for line in lines]
    if kept and not any(kept[0]):  # the upper line of names that only other columns have
        kept = kept[next(i for i, line in enumerate(kept) if any(line)) :]
    return "\n".join(
        (" " * _GAP)
        .join(
            cell.rjust(widths[column]) if column else cell.ljust(widths[column])
            for cell, column in zip(line, columns, strict=True)
        )
        .rstrip()
        for line in kept
    )


def wrapped(text: str, width: int, indent: str = "") -> str:
    """Text in lines of at most `width`, the following ones indented; words and figures are not broken."""
    return "\n".join(
        textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )


def html_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", strong: int | None = None
) -> str:
    """The table as HTML, for notebooks; row number `strong` is in bold.

    >>> html_table(["a", "b"], [["x < y", "1"]], "two")
    '<table><caption>two</caption><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>x &lt; y</td><td>1</td></tr></tbody></table>'
    """

    def line(cells: Sequence[str], tag: str, bold: bool = False) -> str:
        shown = (html.escape(cell).replace("\n", " ") for cell in cells)
        mark = ("<b>", "</b>") if bold else ("", "")
        return "<tr>" + "".join(f"<{tag}>{mark[0]}{cell}{mark[1]}</{tag}>" for cell in shown) + "</tr>"

    head = f"<thead>{line(header, 'th')}</thead>" if any(header) else ""
    body = "".join(line(row, "td", number == strong) for number, row in enumerate(rows))
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"
