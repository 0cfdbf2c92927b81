"""Tests, in rooms of the same names as the code."""
