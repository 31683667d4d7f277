"""A changed workload of windows of rows pays for what it adds: cells from stored ones, states beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.aggregates.states import ROWS, State
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import diff
from optimizer.synopses.derivation import given_by
from optimizer.synopses.synopsis import POSITION, Synopsis, counts_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import LONG, TIMESTAMP, Column, Source, Stream, Workload
from spark_jobs.audit.checks import suite
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import rows_stage
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.derivation import Derivation
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import partials_of
from spark_jobs.windows.row_windows.lifting import RowLifting
from spark_jobs.windows.row_windows.numbering import Counts
from tests.sizes import examples
from tests.spark_jobs import laboratory
from tests.spark_jobs.laboratory import SCHEMA, Laboratory
from tests.spark_jobs.windows.expected_cells import content, same
from tests.spark_jobs.windows.lift_requests import pairs_of
from tests.spark_jobs.windows.partial_cases import (
    ARROW,
    GROUPS,
    MANY,
    PREDICATES,
    STATES,
    STREAM,
    TYPES,
    rows_of_events,
)

HOUR = DAY // 24
TIMES = (State("min", Column("ts"), TIMESTAMP), State("max", Column("ts"), TIMESTAMP))
FILTERS = tuple(predicate for predicate in PREDICATES if predicate is not None)
DAYS = (-3 * DAY, 3 * DAY)

some_states = st.lists(st.sampled_from(STATES), max_size=4, unique=True)


def numbered(
    per: Sequence[str], others: Sequence[str], edges: Iterable[tuple[int, int]], filters: Iterable[Any], states: Any
) -> Synopsis:
    """A synopsis of rows."""
    group_by = (*((name, TYPES[name]) for name in (*per, *others)), (POSITION, LONG))
    all_states = tuple(dict.fromkeys((ROWS, *states, *TIMES)))
    return Synopsis("trades", "ts", tuple(edges), (None, *filters), group_by, all_states, tuple(per), tuple(per))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Synopsis, Synopsis]:
    """A stored synopsis, and one that it gives, with states that it lacks."""
    names = draw(st.permutations(GROUPS))
    per, other_names = names[: draw(st.integers(0, 1))], names[1 : draw(st.integers(1, 3))]
    slides = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    edges = [(slide, draw(st.integers(0, slide - 1))) for slide in slides]
    filters = draw(st.lists(st.sampled_from(FILTERS), max_size=3, unique=True))
    states = draw(some_states)
    coarser = [(slide * times, shift) for slide, shift in edges if (times := draw(st.integers(1, 3)))]
    fewer = (
        draw(st.permutations(choices))[: draw(st.integers(0, len(choices)))]
        for choices in (other_names, filters, states)
    )
    fewer_others, fewer_filters, fewer_states = fewer
    more = (*fewer_states, *draw(some_states))
    target = numbered(per, fewer_others, coarser[: draw(st.integers(1, len(coarser)))], fewer_filters, more)
    return numbered(per, other_names, edges, filters, states), target


def lifted_rows(requests: Sequence[FillRequest], found: Sequence[dict[str, Any]]) -> pa.Table:
    """What is lifted of some rows for requests, in blocks of a day or several."""
    table = pa.Table.from_pylist(
        [row | {"ts": None if row["at"] is None else row["at"] * 2 * HOUR} for row in found], ARROW
    )

    def read(columns: list[str]) -> list[pa.RecordBatch]:
        return list(table.select(["ts", *columns]).combine_chunks().to_batches(max_chunksize=7))

    counts = {}
    for per in {request.synopsis.per or () for request in requests}:
        counter = counts_of(STREAM, per)
        rows = partials_of(read(list(per)), STREAM, [FillRequest(counter, *DAYS)])
        counts[per] = Counts.of(counter, rows)
    lifting = RowLifting(STREAM, requests, counts)
    blocks = next(iter(counts.values())).blocks(*DAYS, most=8) if counts else []
    cells = [cells.encode() for block in blocks for cells in lifting.cells(read, *block)]
    assert not lifting.failed
    return pa.concat_tables([PARTIALS.empty_table(), *cells])


@MANY
@given(rows_of_events, pairs(), st.lists(st.integers(-3, 3), min_size=2, max_size=2, unique=True), st.booleans())
def test_cells_from_cells_beside_lifted_states_are_those_of_the_rows(
    found: list[dict[str, Any]], pair: tuple[Synopsis, Synopsis], days: list[int], in_pieces: bool
) -> None:
    stored, target = pair
    begin, end = (day * DAY for day in sorted(days))
    request = FillRequest(target, begin, end, stored=(stored,))
    assert given_by(stored, target) is not None
    written: list[pa.Table] = []
    derivation = Derivation([request], TaskMemory(1 if in_pieces else 1 << 30), written.extend)
    rows = lifted_rows([FillRequest(stored, *DAYS)], found)
    for first in range(0, len(rows), 3):
        derivation.add(rows.slice(first, 3))
    written += derivation.tables()
    new = {pair for lifted in request.lifted for pair in pairs_of(lifted.synopsis, lifted.is_counted)}
    assert new == pairs_of(target) - pairs_of(stored)
    written.append(lifted_rows(request.lifted, found))
    derived = pa.concat_tables([PARTIALS.empty_table(), *written])
    again = lifted_rows([FillRequest(target, begin, end)], found)
    assert set(derived["fingerprint"].to_pylist()) <= {target.fingerprint}
    places = (
        set(zip(*(rows[name].to_pylist() for name in ("day", "key", "bucket")), strict=True))
        for rows in (derived, again)
    )
    assert next(places) == next(places)
    cells = [Cells.decode(target, rows).combined() for rows in (derived, again)]
    for predicate in target.predicates:
        bit = target.bit(predicate)
        assert same(*(content([of_all.projected(bit, target.group_by)]) for of_all in cells))


def test_what_gives_no_rows() -> None:
    stored = numbered(["symbol"], ["late"], [(2, 0)], FILTERS[:1], STATES[:1])
    for other in (
        numbered([], ["symbol", "late"], [(2, 0)], FILTERS[:1], STATES[:1]),
        numbered(["symbol"], ["due"], [(2, 0)], FILTERS[:1], STATES[:1]),
        numbered(["symbol"], ["late"], [(2, 1)], FILTERS[:1], STATES[:1]),
        numbered(["symbol"], ["late"], [(3, 0)], FILTERS[:1], STATES[:1]),
        numbered(["symbol"], ["late"], [(2, 0)], FILTERS[:2], STATES[:1]),
        replace(stored, per=None),
    ):
        assert given_by(stored, other) is None


# ------------------------------------------------------------------------------------------- whole runs
@pytest.fixture
def lab(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.setattr(suite, "expectations", lambda *args: [])
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(trades())
    return laboratory


def trades() -> list[laboratory.Event]:
    """An event every hour of ten days, now and then two at once."""
    hours = [hour - (hour % 7 == 0) for hour in range(240)]
    return [(hour * 60, "AB"[hour // 3 % 2], 100.0 + hour % 7, hour % 5) for hour in hours]


def query(name: str, outputs: str, window: tuple[int, int], where: str = "", group_by: str = "", per: str = "") -> str:
    return (
        f"-- name: {name}\nSELECT {group_by + ', ' if group_by else ''}{outputs} FROM trades "
        f"WINDOW ROWS {window[0]} SLIDE {window[1]}{' PARTITION BY ' + per if per else ''} ON ts"
        f"{' WHERE ' + where if where else ''}{' GROUP BY ' + group_by if group_by else ''};\n"
    )


@contextmanager
def watched() -> Iterator[list[FillRequest]]:
    """What is lifted from rows meanwhile."""
    seen: list[FillRequest] = []
    rows_task = rows_stage.rows_task
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_stage, "rows_task", lambda *args: seen.extend(args[3]) or rows_task(*args))
        yield seen


def kinds(requests: Sequence[FillRequest]) -> list[set[str]]:
    return [{state.kind for state in request.synopsis.states} for request in requests]


BEGIN, END = 5 * 24 * 60, 6 * 24 * 60
OLD = query("old", "sum(volume) AS v, min(price) AS low", (60, 10), group_by="symbol", per="symbol")


def test_a_state_more_is_lifted_alone(lab: Laboratory) -> None:
    before = lab.plan(OLD)
    lab.run(before, BEGIN, END, "old")
    version = lab.plan(OLD + query("new", "max(volume) AS most", (30, 10), group_by="symbol", per="symbol"))
    changes = diff(*(load_plan(lab.warehouse, plan) for plan in (before, version)))
    assert {why.partition("; ")[2] for _, why, _ in changes.rebuilt} == {"only states that are new are computed"}
    with watched() as seen:
        record = lab.run(version, BEGIN, END, "new")
    assert kinds(seen) == [{"rows", "max"}] and record.features["partial_rows_read"] > 0
    assert lab.wrong(version, BEGIN, END) == []
    # the day after: of what is old nothing
    with watched() as seen:
        lab.run(version, END, END + 1440, "next")
    assert [(request.stored, request.into, (request.end - request.begin) // DAY) for request in seen] == [((), None, 1)]
    assert lab.wrong(version, BEGIN, END + 1440) == []


def test_a_query_less_reads_no_row(lab: Laboratory) -> None:
    lab.run(lab.plan(OLD + query("other", "max(price) AS p", (8, 2), "volume > 1", "symbol", "symbol")), BEGIN, END)
    version = lab.plan(query("few", "sum(volume) AS v", (40, 20), group_by="symbol", per="symbol"))
    with watched() as seen:
        record = lab.run(version, BEGIN, END, "few")
    assert seen == [] and record.rows_scanned == 0 and lab.wrong(version, BEGIN, END) == []


def test_of_files_that_changed_nothing_is_taken(lab: Laboratory) -> None:
    lab.run(lab.plan(OLD), BEGIN, END, "old")
    # all rows of A have other numbers
    lab.write([(0.5, "A", 5.0, 7), *trades()])
    version = lab.plan(OLD + query("new", "max(volume) AS most", (30, 10), group_by="symbol", per="symbol"))
    with watched() as seen:
        lab.run(version, BEGIN, END, "new")
    assert [request.into for request in seen] == [None] and lab.wrong(version, BEGIN, END) == []


AGGREGATES = ("sum(volume) AS v", "min(price) AS a, count(*) AS b", "avg(price) AS v", "last(price) AS v")


@st.composite
def texts_of_queries(draw: st.DrawFn, name: str) -> str:
    """A query over trades: of few aggregates, windows, filters and groups, so that several have some in common."""
    per = draw(st.sampled_from(["", "symbol", "symbol"]))
    group_by = draw(st.sampled_from(["symbol", "symbol, volume"] if per else ["", "volume"]))
    where = draw(st.sampled_from(["", "", "volume > 3", "symbol = 'A'"]))
    window = draw(st.sampled_from([(60, 10), (30, 10), (30, 5), (45, 15), (20, 20)]))
    return query(name, draw(st.sampled_from(AGGREGATES)), window, where, group_by, per)


@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_changes_of_a_workload_are_answered_as_the_oracle_does(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Queries come, go and change, and history is answered again, up to some time later."""
    lab = Laboratory(engine, tmp_path_factory.mktemp("changes"))
    lab.write(trades())
    stream = Stream("trades", Source("parquet", str(lab.source())), SCHEMA, "ts")
    names, query_texts, end = [f"q{number}" for number in range(5)], dict[str, str](), END
    plan: SharingPlan | None = None
    for step in range(data.draw(st.integers(2, 4))):
        for name in data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True)):
            query_texts.pop(name, None)
            if data.draw(st.booleans()):
                query_texts[name] = data.draw(texts_of_queries(name))
        query_texts = query_texts or {"q0": OLD.replace("old", "q0")}
        plan = build_plan(
            Workload(parse("".join(query_texts.values()), {"trades": stream}).queries, (stream,)),
            {"trades": Fraction(1)},
            data.draw(st.sampled_from(["weave-share", "shared", "no-share"])),
            previous=plan if data.draw(st.booleans()) else None,
        )
        version, _ = publish_plan(lab.warehouse, plan)
        end += data.draw(st.sampled_from([0, 0, 1440]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(suite, "expectations", lambda *args: [])
            lab.run(version, BEGIN, end, f"step {step}")
        assert lab.wrong(version, BEGIN, end) == []
