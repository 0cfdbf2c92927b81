"""Answers for people and programs: the privacy statement, JSON, columns to export, plots."""
