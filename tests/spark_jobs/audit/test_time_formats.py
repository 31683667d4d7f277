"""A ``timestamp_format`` as Spark's own reader takes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.audit.unshared.measure import _java_format

STREAM: Any = SimpleNamespace(name="trades", source=SimpleNamespace(format="csv"))


@pytest.mark.parametrize(
    ("pattern", "java"),
    [
        ("%Y-%m-%d", "yyyy'-'M'-'d"),
        ("%Y%m%d", "yyyyMMdd"),
        ("%d %b %Y %I:%M %p", "d' 'MMM' 'yyyy' 'h':'m' 'a"),
        ("%H o'clock%%", "H' o''clock''%'"),
        ("%S.%f%z", "ss'.'[SSSSSS][SSSSS][SSSS][SSS][SS][S][XXX][XX]"),
    ],
)
def test_directives_are_those_of_java(pattern: str, java: str) -> None:
    assert _java_format(STREAM, pattern) == java


def test_a_directive_that_java_lacks_is_refused() -> None:
    with pytest.raises(HeddleError, match="HDL-425 .*%j"):
        _java_format(STREAM, "%Y %j")
