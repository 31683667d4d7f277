"""Tables by the kind of a window: each has an entry for every kind."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import pytest

from optimizer.workload import window_kinds
from optimizer.workload.window_kinds import WindowKind

KINDS = [kind for kind in vars(window_kinds).values() if isinstance(kind, WindowKind)]

TABLES = (
    "optimizer.synopses.synopsis:SYNOPSES_BY_KIND",
    "optimizer.synopses.derivation:DERIVED_BY_KIND",
    "spark_jobs.windows.kinds:EXECUTIONS",
    "spark_jobs.audit.checks.kinds:AUDITS",
    "spark_jobs.audit.unshared.windows:UNSHARED",
    "spark_jobs.audit.unshared.duckdb_windows:RECOMPUTED",
)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_by_kind_has_every_kind(table: str) -> None:
    module, name = table.split(":")
    entries: Mapping[WindowKind, object] = getattr(import_module(module), name)
    assert len(KINDS) == 4 and list(entries) == KINDS
    assert f":data:`{module}.{name}`" in " ".join((window_kinds.__doc__ or "").split())
