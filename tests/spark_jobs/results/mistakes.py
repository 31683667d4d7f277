"""Statements that are no SELECT over answers: mistakes, and attacks."""

from __future__ import annotations

MISTAKES: list[tuple[str, str, tuple[int, int] | None, str]] = [
    ("SELEC 1", "HDL-620", (1, 1), ""),
    ("SELECT n\nFROM whole\nWHERE m = 1", "HDL-620", (3, 7), "n"),
    ("SELECT 'é', nope FROM whole", "HDL-620", (1, 13), ""),
    ("SELECT 1; SELECT 2", "HDL-620", (0, 0), "one SELECT"),
    ("", "HDL-620", (0, 0), "one SELECT"),
    ("SELECT CAST(last AS INT) FROM whole", "HDL-620", None, ""),
    ("SELECT * FROM whol", "HDL-621", (1, 15), "did you mean whole?"),
    ("SELECT * FROM whole, by_text", "HDL-621", (1, 22), "did you mean by.text?"),
    ("SELECT * FROM 'secret.csv'", "HDL-622", (0, 0), "SELECT"),
    ("SELECT * FROM read_csv('secret.csv')", "HDL-622", (1, 15), "SELECT"),
    ("SELECT * FROM glob('*')", "HDL-622", (1, 15), "SELECT"),
    ("COPY whole TO 'secret.csv'", "HDL-622", (0, 0), "SELECT"),
    ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'secret.csv'", "HDL-622", (0, 0), "SELECT"),
    ("SET enable_external_access = true", "HDL-622", (0, 0), "SELECT"),
    ("CREATE TABLE t AS SELECT 1", "HDL-622", (0, 0), "SELECT"),
    ("ATTACH 'secret.csv'", "HDL-622", (0, 0), "SELECT"),
    ("INSTALL httpfs", "HDL-622", (0, 0), "SELECT"),
    ("SELECT * FROM secret_table", "HDL-621", (1, 15), ""),
]
"""A text, its code, its place and a part of its hint."""
