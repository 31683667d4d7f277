"""Literals of the query language."""

from __future__ import annotations

import pytest
from sqlglot import exp

from optimizer.language.expressions import _literal
from optimizer.language.refusals import Refused
from optimizer.workload.values import BOOLEAN, STRING, Literal


def test_what_is_no_literal_is_refused() -> None:
    assert _literal(exp.Literal.string("a")) == Literal("a", STRING)
    assert _literal(exp.Boolean(this=True)) == Literal(True, BOOLEAN)
    with pytest.raises(Refused):
        _literal(exp.Star())
