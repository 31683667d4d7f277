"""Recomputes sampled windows of rows, and compares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import ACQ, LONG, Output
from spark_jobs.checks.inspection import json_value
from spark_jobs.checks.recompute import (
    Difference,
    Drawn,
    Judge,
    RecomputedQuery,
    compare,
    drawn,
    raw_events,
    recorded,
)
from spark_jobs.checks.sampling import Past, Units
from spark_jobs.checks.staged_answers import Staged
from spark_jobs.engine.choice import Engine
from spark_jobs.sources.splits import Split
from spark_jobs.warehouse.data_files import bucket_of
from spark_jobs.warehouse.schemas import INSTANT


class RowWindow(NamedTuple):
    """A published window of rows: the number of its first row among those of ``key`` (its values of ``per`` as texts),
    and its span [start, end), microseconds."""

    position: int
    key: tuple[str | None, ...]
    start: int
    end: int

    @classmethod
    def of(cls, units: Units, number: int) -> RowWindow:
        """A drawn window."""
        assert units.positions is not None
        key = _key_of(units.query, json.loads(units.keys[number]))
        return cls(int(units.positions[number]), key, int(units.starts[number]), int(units.ends[number]))


def recomputed_rows(
    engine: Engine,
    staged: list[str],
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: Mapping[str, int],
    seed: str,
    past: Past | None = None,
) -> list[dict[str, Any]]:
    """Recompute sampled windows of rows from the raw events of their spans: one check a query.

    A span that holds fewer rows of the key than the window has is wrong. One that holds more (rows at the time of the
    first or the last may belong to neighbours) says nothing about the answer.
    """
    queries = [query for query in plan.workload.queries if query.window.is_rows and query.stream in ends]
    answers = Staged(staged)
    sample = drawn(answers, queries, sources, begin, ends, seed, past or Past(), len(plan.workload.queries))
    return [recorded(check) for check in compared_rows(engine, answers, plan, sources, sample)]


def compared_rows(
    engine: Engine,
    staged: Staged,
    plan: SharingPlan,
    sources: Mapping[str, Sequence[Split]],
    sample: Sequence[Drawn],
) -> list[dict[str, Any]]:
    """Recompute the drawn windows of rows and compare: one check a query."""
    by_name = {each.units.query.name: each for each in sample}
    wanted, windows = [], dict[str, list[RowWindow]]()
    for each in sample:
        query = each.units.query
        windows[query.name] = [RowWindow.of(each.units, number) for number in each.numbers]
        buckets = set(bucket_of([json_value(window.key) for window in windows[query.name]]).tolist())
        wanted.append(RecomputedQuery.of(each)._replace(buckets=tuple(sorted(buckets))))
    found = []
    for events in raw_events(plan, sources, wanted):
        query = events.wanted.query
        ends = {window.end for window in windows[query.name]}
        audit = _RowAudit(staged.rows({query.name: ends}), query, windows[query.name])
        check = events.check(engine, audit.differences)
        told = audit.detail() if check["success"] else ""
        check["detail"] = "; ".join(filter(None, (check["detail"], told)))
        found.append(check | {"audited": by_name[query.name].labels, "events": events.rows})
    return found


@dataclass
class _RowAudit:
    """Sampled windows of a query that counts rows; ``apart``: those whose rows no neighbour may have."""

    staged: list[dict[str, Any]]
    query: ACQ
    windows: list[RowWindow]
    apart: int = 0

    def differences(self, judge: Judge) -> list[Difference]:
        """What is wrong with their answers."""
        from spark_jobs.unshared.agreement import grain

        query, counting = self.query, _counting(self.query)
        expected, counted = judge.rows(query), judge.rows(counting)
        rows = {(_span(row), grain(counting, row)[1]): row["rows"] for row in counted if "rows" in row}
        found = list[Difference]()
        self.apart = 0
        for window in self.windows:
            span, key = (window.start, window.end), window.key
            if (held := rows.get((span, key), 0)) != query.window.range:
                if held < query.window.range:
                    found.append(Difference(query.name, window.end, key, f"holds {held} of {query.window.range} rows"))
                continue
            self.apart += 1
            theirs = [row for row in expected if _span(row) == span and _key_of(query, grain(query, row)[1]) == key]
            found += compare(query, self._of(window), theirs)
        return found

    def _of(self, window: RowWindow) -> list[dict[str, Any]]:
        """The staged answers of a window."""
        rows = (row for row in self.staged if row["position"] == window.position)
        return [row for row in rows if _key_of(self.query, json.loads(row["key"])) == window.key]

    def detail(self) -> str:
        """How much was compared, for people."""
        return f"{self.apart} of {len(self.windows)} windows, the others share the time of their first or last row"


def _counting(query: ACQ) -> ACQ:
    """All rows of each key, whatever the query makes of them."""
    per = query.window.per or ()
    group_by = tuple(column for column in query.group_by if column[0] in per)
    rows = Output("rows", "count", None, None, LONG)
    return replace(query, filter=None, group_by=group_by, select=(), outputs=(rows,), having=())


def _key_of(query: ACQ, values: Sequence[str | None]) -> tuple[str | None, ...]:
    """The values of ``per`` among those of a group."""
    per = query.window.per or ()
    return tuple(value for value, (name, _) in zip(values, query.group_by, strict=True) if name in per)


def _span(row: Mapping[str, Any]) -> tuple[int, int]:
    start, end = (pa.scalar(row[name], INSTANT).value for name in ("window_start", "window_end"))
    return start, end
