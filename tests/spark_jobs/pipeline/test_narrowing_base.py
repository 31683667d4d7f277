"""Which publication a run may build on, so that it answers only windows that changed since."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.pipeline.run import narrowing
from spark_jobs.pipeline.run.narrowing import narrowing_base


def base(monkeypatch: pytest.MonkeyPatch, is_deleted: bool = False, as_declared: bool = True, **changes: Any) -> Any:
    """The base of a run over [0, 10) by a publication of it; ``changes``: of the publication."""
    facts = {"table_version": 5, "begin": 0, "end": 10, "status": "published", "basis": "b", "has_failed": False}
    facts |= {"listed": {"trades": 7}, "answered_until": {"trades": 9}} | changes
    row = SimpleNamespace(**facts, record=SimpleNamespace(**facts))
    monkeypatch.setattr(narrowing.publish_log, "newest_publication", lambda *arguments: row)
    monkeypatch.setattr(narrowing.publish_log, "deleted_since", lambda *arguments: is_deleted)
    monkeypatch.setattr(narrowing, "stands_as_declared", lambda *arguments: as_declared)
    prepared: Any = SimpleNamespace(
        request=SimpleNamespace(begin=0, end=10),
        basis="b",
        listing=SimpleNamespace(newest={"trades": 7}),
        plan=None,
        sources={},
        ends={"trades": 9},
    )
    warehouse: Any = None
    return narrowing_base(warehouse, prepared) is row


def test_a_publication_of_the_same_interval_is_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    assert base(monkeypatch)


@pytest.mark.parametrize(
    "changes",
    [
        {"table_version": 0},
        {"begin": -1},
        {"end": 11},
        {"status": "failed"},
        {"basis": "other"},
        {"has_failed": True},
        {"listed": {"trades": 8}},
        {"answered_until": {"trades": 10}},
        {"is_deleted": True},
        {"as_declared": False},
    ],
)
def test_any_other_publication_is_none(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not base(monkeypatch, **changes)
