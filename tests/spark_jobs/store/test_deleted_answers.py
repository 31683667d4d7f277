"""Which publications are older than the deletion of a query's answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from spark_jobs.store.warehouse import publish_log


@pytest.mark.parametrize(("version", "deleted"), [(2, True), (3, False), (4, False)])
def test_a_deletion_counts_for_publications_before_it(
    version: int, deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = pa.table(
        {
            "event": ["deleted", "deleted", "published"],
            "table_version": [3, 5, 6],
            "deleted": [["sums"], ["of another plan"], ["sums"]],
        }
    )

    def rows(warehouse: Any, where: ds.Expression) -> list[Any]:
        return [SimpleNamespace(**row) for row in ds.dataset(log).to_table(filter=where).to_pylist()]

    monkeypatch.setattr(publish_log, "rows", rows)
    plan: Any = SimpleNamespace(workload=SimpleNamespace(queries=[SimpleNamespace(name="sums")]))
    publication: Any = SimpleNamespace(table_version=version)
    assert publish_log.deleted_since(None, plan, publication) == deleted  # type: ignore[arg-type]
