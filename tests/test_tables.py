"""Tables: columns line up whatever is in them."""

import pytest

from filet._tables import text_table


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
