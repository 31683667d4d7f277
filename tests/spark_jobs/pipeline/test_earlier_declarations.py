"""Which published intervals stand on an earlier declaration of a stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.pipeline.run import declarations
from spark_jobs.pipeline.run.declarations import OlderDeclaration, on_earlier_declarations


def test_intervals_of_which_a_declaration_changed_stand_on_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = pa.table({"stream": ["trades", "trades", "quotes", "quotes"], "of": ["now", "before", "now", "before"]})
    known = SimpleNamespace(
        reads=reads,
        owner=np.array([0, 1, 1, 2]),
        is_told=np.array([True] * 3),
        # the last interval was answered again
        all_standing=np.array([True, True, False]),
        results=(np.array([0, 10, 20]), np.array([10, 20, 30]), None),
    )
    declared = SimpleNamespace(streams={"trades": None, "quotes": None}, is_noted=lambda name, of: of == "now")
    monkeypatch.setattr(declarations.publish_log, "publications_read", lambda warehouse, since: known)
    monkeypatch.setattr(declarations.Declarations, "now", lambda warehouse: declared)
    warehouse: Any = None
    assert on_earlier_declarations(warehouse) == [OlderDeclaration(10, 20, ("trades",))]
