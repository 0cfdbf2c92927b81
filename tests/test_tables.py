"""Tables: columns line up whatever is in them."""

import pytest

from filet._tables import html_table, text_table, wrapped


def test_columns_line_up_and_nothing_is_cut():
    lines = text_table(["name", "a\nlong head"], [["x" * 40, "1"], ["y", "1234567890123"]]).splitlines()
    assert lines[0] == " " * 54 + "a"
    assert len({len(line) for line in lines}) == 1
    assert lines[2] == "x" * 40 + " " * 14 + "1"
    assert lines[3].endswith("  1234567890123")


def test_a_table_without_rows_is_its_head():
    assert text_table(["a", "b"], []) == "a  b"


def test_a_row_of_another_length_is_a_mistake():
    with pytest.raises((ValueError, IndexError)):
        text_table(["a", "b"], [["1"]])


def test_a_table_that_is_too_wide_goes_on_below_with_its_first_column():
    header = ["name", "first\nfigure", "second", "third"]
    rows = [["a", "1.25", "2.5", "1234567890"], ["bb", "10.50", "0.5", "3"]]
    for width in (8, 12, 18, 25, 40):
        parts = [part.splitlines() for part in text_table(header, rows, width).split("\n\n")]
        figures = [cell for part in parts for line in part[-2:] for cell in line.split()]
        assert {cell for row in rows for cell in row} == set(figures)  # nothing is cut, nothing lost
        assert all([line.split()[0] for line in part[-2:]] == ["a", "bb"] for part in parts)
        assert all(len(line) <= max(width, 16) for part in parts for line in part)
    assert text_table(header, rows, 60) == text_table(header, rows)


def test_words_are_wrapped_and_never_broken():
    assert wrapped("a long-winded word 0.123456789 here", 12, "  ") == "a\n  long-winded\n  word\n  0.123456789\n  here"


def test_html_is_escaped_and_marks_one_row():
    text = html_table(["a & b"], [["<x>"], ["y"]], "t < u", strong=1)
    assert "<caption>t &lt; u</caption>" in text
    assert "<th>a &amp; b</th>" in text
    assert "<td>&lt;x&gt;</td>" in text
    assert text.count("<b>") == 1
    assert "<b>y</b>" in text
