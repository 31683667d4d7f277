"""Recomputes sampled windows of rows, and compares."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import ACQ, LONG, Output
from spark_jobs.audit.checks.inspection import json_value
from spark_jobs.audit.checks.kinds import AUDITS
from spark_jobs.audit.checks.recompute import (
    FEW_EVENTS,
    Difference,
    Drawn,
    EventsHeld,
    Judge,
    RecomputedQuery,
    compare,
    drawn,
    raw_events,
    recorded,
)
from spark_jobs.audit.checks.sampling import Past, Units
from spark_jobs.audit.checks.staged_answers import Staged
from spark_jobs.engine.choice import Engine
from spark_jobs.store.warehouse.data_files import bucket_of
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.streams.sources.splits import Split


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
    staged: Staged,
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: Mapping[str, int],
    seed: str,
    past: Past | None = None,
) -> list[dict[str, Any]]:
    """Recompute sampled windows of rows from the raw events of their spans: one check a query.

    A span that has fewer rows of the key than the window is wrong. One that has more (rows at the time of the first
    or the last may belong to neighbours) proves nothing about the answer. If a run answers everything, one key of
    each query is also checked for missing windows (:class:`_Succession`), and a query without any window is checked
    for rows that make one (:class:`_Silence`).
    """
    past = past or Past()
    edges = {} if past.repaired else {name: (begin, end) for name, end in ends.items()}
    queries = [query for query in plan.workload.queries if query.stream in ends and AUDITS[query.kind].by_key]
    sample = drawn(staged, queries, sources, begin, ends, seed, past, len(plan.workload.queries))
    counts = staged.counts() if queries else Counter[str]()
    silences = [
        _Silence.of(query, sources[query.stream], *edges[query.stream])
        for query in queries
        if query.stream in edges and not counts[query.name] and _answers_all(query)
    ]
    return [recorded(check) for check in compared_rows(engine, staged, plan, sources, sample, edges, silences)]


def compared_rows(
    engine: Engine,
    staged: Staged,
    plan: SharingPlan,
    sources: Mapping[str, Sequence[Split]],
    sample: Sequence[Drawn],
    edges: Mapping[str, tuple[int, int]] = {},
    silences: Sequence[_Silence] = (),
) -> list[dict[str, Any]]:
    """Recompute the drawn windows of rows and compare: one check a query. ``edges``: by stream the interval [begin,
    end) of which all windows are answered; ``silences``: of queries without a window."""
    by_name = {each.units.query.name: each for each in sample}
    recomputed_queries, windows, successions = [], dict[str, list[RowWindow]](), dict[str, _Succession]()
    for each in sample:
        query = each.units.query
        windows[query.name] = [RowWindow.of(each.units, number) for number in each.numbers]
        buckets = set(bucket_of([json_value(window.key) for window in windows[query.name]]).tolist())
        recomputed = RecomputedQuery.of(each)
        if query.stream in edges and (succession := _Succession.of(each, *edges[query.stream])) is not None:
            successions[query.name] = succession
            spans = dict.fromkeys([*recomputed.windows, *succession.spans])
            recomputed = recomputed._replace(windows=tuple(spans))
        recomputed_queries.append(recomputed._replace(buckets=tuple(sorted(buckets))))
    silent = {silence.query.name: silence for silence in silences if silence.span[0] < silence.span[1]}
    recomputed_queries += [RecomputedQuery(silence.query, (silence.span,), None) for silence in silent.values()]
    checks = []
    for events in raw_events(engine, plan, sources, recomputed_queries):
        query = events.wanted.query
        if query.name in silent:
            check = events.check(engine, silent[query.name].differences)
            checks.append(check | {"audited": [f"query {query.name}"], "events": events.rows})
            continue
        ends = {window.end for window in windows[query.name]}
        audit = _RowAudit(staged.rows({query.name: ends}), query, windows[query.name], successions.get(query.name))
        check = events.check(engine, audit.differences)
        detail = audit.detail() if check["success"] else ""
        check["detail"] = "; ".join(filter(None, (check["detail"], detail)))
        checks.append(check | {"audited": by_name[query.name].labels, "events": events.rows})
    return checks


@dataclass
class _RowAudit:
    """Sampled windows of a query that counts rows; ``apart``: those whose rows no neighbour may have."""

    staged: list[dict[str, Any]]
    query: ACQ
    windows: list[RowWindow]
    succession: _Succession | None = None
    apart: int = 0

    def differences(self, judge: Judge) -> list[Difference]:
        """Faults of the answers."""
        from spark_jobs.audit.unshared.agreement import grain

        query, counting = self.query, _counting(self.query)
        expected, counted = judge.rows(query), judge.rows(counting)
        rows = {(_span(row), grain(counting, row)[1]): row["rows"] for row in counted if "rows" in row}
        faults = list[Difference]()
        self.apart = 0
        for window in self.windows:
            span, key = (window.start, window.end), window.key
            if (count := rows.get((span, key), 0)) != query.window.range:
                if count < query.window.range:
                    faults.append(
                        Difference(query.name, window.end, key, f"holds {count} of {query.window.range} rows")
                    )
                continue
            self.apart += 1
            matches = [row for row in expected if _span(row) == span and _key_of(query, grain(query, row)[1]) == key]
            faults += compare(query, self._of(window), matches)
        return faults if self.succession is None else faults + self.succession.differences(query, rows)

    def _of(self, window: RowWindow) -> list[dict[str, Any]]:
        """The staged answers of a window."""
        rows = (row for row in self.staged if row["position"] == window.position)
        return [row for row in rows if _key_of(self.query, json.loads(row["key"])) == window.key]

    def detail(self) -> str:
        """Text for people: the number of compared windows."""
        return f"{self.apart} of {len(self.windows)} windows, the others share the time of their first or last row"


class _Succession(NamedTuple):
    """The windows of one key in an interval, of a query that answers every window. Each begins a slide after the
    one before it. Less than a slide of rows comes before the last row of the first, and after the last.

    ``missing``: numbers of first rows that no window has; ``before``, ``after``: spans [start, end), None if a
    window that is missing there cannot be detected; ``end``: of the first window (microseconds).
    """

    key: tuple[str | None, ...]
    missing: tuple[int, ...]
    before: tuple[int, int] | None
    after: tuple[int, int] | None
    end: int

    @classmethod
    def of(cls, drawn: Drawn, begin: int, end: int) -> _Succession | None:
        """That of the key of the first drawn window; None for a query that leaves windows out."""
        units, query = drawn.units, drawn.units.query
        if units.positions is None or not drawn.numbers or not _answers_all(query):
            return None
        key = RowWindow.of(units, drawn.numbers[0]).key
        texts = {text for text in set(units.keys) if _key_of(query, json.loads(text)) == key}
        numbers = [number for number, text in enumerate(units.keys) if text in texts]
        windows = sorted({(int(units.positions[number]), int(units.ends[number])) for number in numbers})
        slide, until = query.window.slide, end if query.until is None else min(end, query.until)
        (first, first_end), (last, last_end) = windows[0], windows[-1]
        missing = set(range(first, last, slide)) - {position for position, _ in windows}
        # the last row of the first window is no row before it
        before = (begin, first_end - 1) if first >= slide and begin < first_end - 1 else None
        after = (last_end, until) if last_end < until else None
        return cls(key, tuple(sorted(missing)), before, after, first_end)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Spans whose rows are counted."""
        return [span for span in (self.before, self.after) if span is not None]

    def differences(self, query: ACQ, rows: Mapping[tuple[tuple[int, int], Any], int]) -> list[Difference]:
        """The windows that are missing. ``rows``: of each span and key."""
        faults = [
            Difference(query.name, self.end, self.key, f"has no successor from row {position} on")
            for position in self.missing[:1]
        ]
        for span, side in ((self.before, "before"), (self.after, "after")):
            count = rows.get((span, self.key), 0) if span is not None else 0
            if count >= query.window.slide:
                what = f"is not all: {count} rows {side} the windows of its key make another"
                faults.append(Difference(query.name, self.end, self.key, what))
        return faults


class _Silence(NamedTuple):
    """A query that answers every window and has none in an interval: no key has enough rows in its ``span`` [begin,
    end) to make a window.
    """

    query: ACQ
    span: tuple[int, int]

    @classmethod
    def of(cls, query: ACQ, splits: Sequence[Split], begin: int, end: int) -> _Silence:
        """That of the begin of an interval, of which about :data:`FEW_EVENTS` are counted."""
        until = end if query.until is None else min(end, query.until)
        events = EventsHeld(splits).events([(begin, until)])
        share = min(1.0, FEW_EVENTS / events) if events else 1.0
        return cls(query, (begin, begin + int((until - begin) * share)))

    def differences(self, judge: Judge) -> list[Difference]:
        """The keys whose rows make a window. Among a window and a slide of consecutive rows, less one, a window
        begins and ends.
        """
        from spark_jobs.audit.unshared.agreement import grain

        counting, window = _counting(self.query), self.query.window
        faults = []
        for row in judge.rows(counting):
            if row.get("rows", 0) >= window.range + window.slide - 1:
                key = grain(counting, row)[1]
                what = f"has no window, though {row['rows']} rows make one"
                faults.append(Difference(self.query.name, self.span[1], key, what))
        return faults


def _answers_all(query: ACQ) -> bool:
    """Return whether a query answers every window of rows that exists."""
    is_whole = query.filter is None and not query.having and query.top is None
    return is_whole and query.window.at is None


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
