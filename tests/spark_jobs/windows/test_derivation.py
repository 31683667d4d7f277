"""A changed workload pays for what it adds: rows from stored rows, states beside them, nothing twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.aggregates.states import ROWS
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import diff
from optimizer.synopses.derivation import SynopsisPart, given_by, shares_of, sources_of
from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.values import Source, Stream, Workload
from spark_jobs.audit.checks import suite
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.derivation import Derivation
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import partials_of
from spark_jobs.windows.partials.stored_coverage import _within
from tests.sizes import examples
from tests.spark_jobs.laboratory import MINUTE, SCHEMA, Laboratory, steady
from tests.spark_jobs.windows.expected_cells import content, expected, same
from tests.spark_jobs.windows.lift_requests import kinds, pairs_of, watched
from tests.spark_jobs.windows.partial_cases import (
    MANY,
    PREDICATES,
    SECOND,
    STATES,
    STREAM,
    cuts,
    pieces,
    rows_of_events,
    simple,
    spans,
    state,
)


@st.composite
def wanted_of(draw: st.DrawFn, stored: Synopsis) -> Synopsis:
    """A synopsis that rows of another may give, with filters and states that those lack."""
    predicates = draw(st.permutations(stored.predicates))[: draw(st.integers(0, len(stored.predicates)))]
    predicates += draw(st.lists(st.sampled_from(list(PREDICATES)), min_size=not predicates, max_size=2, unique=True))
    group_by = draw(st.permutations(stored.group_by))
    group_by = group_by[: draw(st.integers(0, len(group_by)))]
    states = draw(st.lists(st.sampled_from((*stored.states[1:], *STATES)), max_size=5, unique=True))
    edges = tuple((slide * draw(st.integers(1, 2)), shift) for slide, shift in stored.edges)
    edges = tuple((slide, shift % slide) for slide, shift in edges)[: draw(st.integers(1, len(edges)))]
    return replace(
        stored,
        edges=edges,
        predicates=tuple(dict.fromkeys(predicates)),
        group_by=tuple(group_by),
        states=(ROWS, *(state for state in states if state != ROWS)),
        bucket_by=tuple(name for name, _ in group_by),
    )


@MANY
@given(rows_of_events, cuts, spans(), st.data(), st.sampled_from([1, 1 << 30]))
def test_rows_from_rows_beside_lifted_states_are_those_of_the_events(
    found: list[dict[str, Any]], where: list[int], span: FillRequest, data: st.DataObject, memory: int
) -> None:
    target = data.draw(wanted_of(span.synopsis))
    edges = target.fragments.between(span.begin, span.end).tolist()
    edges = [edge for edge in edges if target.fragments.last_edge(edge) == edge]
    if len(edges) < 2:
        return
    begin, end = sorted(data.draw(st.lists(st.sampled_from(edges), min_size=2, max_size=2, unique=True)))
    if given_by(span.synopsis, target) is None:
        # no filter, or nothing but the number of tuples in common
        assert {state for _, state in pairs_of(target) & pairs_of(span.synopsis)} <= {ROWS}
    drawn = data.draw(wanted_of(span.synopsis))
    other = replace(span.synopsis, predicates=drawn.predicates, states=drawn.states)
    both = {span.synopsis: span, other: replace(span, synopsis=other)}
    request = FillRequest(target, begin, end, stored=tuple(sources_of(both, target)))
    if not request.stored:
        return
    lifted = (partials_of([batch], STREAM, list(both.values())) for batch in pieces(found, where))
    stored = pa.concat_tables([PARTIALS.empty_table(), *lifted])
    written: list[pa.Table] = []
    derivation = Derivation([request], TaskMemory(memory), written.extend)
    for first in range(0, len(stored), 3):
        derivation.add(stored.slice(first, 3))
    written += derivation.tables()
    parts = [
        *chain.from_iterable(request.given),
        *((lift_request.synopsis, lift_request.is_counted) for lift_request in request.lifted),
    ]
    # each from where it is, once
    assert Counter(pair for part in parts for pair in pairs_of(*part)) == Counter(pairs_of(target))
    new = {pair for lift_request in request.lifted for pair in pairs_of(lift_request.synopsis, lift_request.is_counted)}
    assert all(state == ROWS for source in request.stored for _, state in new & pairs_of(source))
    if request.lifted:
        written += [partials_of([batch], STREAM, request.lifted) for batch in pieces(found, where)]
    rows = pa.concat_tables([PARTIALS.empty_table(), *written])
    assert set(rows["fingerprint"].to_pylist()) <= {target.fingerprint}
    cells = Cells.decode(target, rows).combined()
    for predicate in target.predicates:
        alone = replace(target, predicates=(predicate,))
        of_filter = content([cells.projected(target.bit(predicate), target.group_by)])
        assert same(of_filter, expected(FillRequest(alone, begin, end), found))


def test_what_gives_nothing() -> None:
    price, volume = state("sum", "price"), state("max", "volume")
    stored = simple("symbol", states=(price,))
    assert given_by(stored, stored) == stored and shares_of([stored], stored) == ([[SynopsisPart(stored)]], [])
    for other in (
        replace(stored, stream="quotes"),
        replace(stored, time="at"),
        replace(stored, edges=((3 * SECOND, 0),)),
        replace(stored, predicates=(STATES[0].argument,)),
        simple("symbol", "late", states=(price,)),
        # its tuples are counted with what is lifted
        replace(stored, states=(ROWS, volume)),
        replace(stored, per=("symbol",)),
        replace(stored, derived=(("symbol", STATES[0].argument),)),
    ):
        assert given_by(stored, other) is None
    assert given_by(stored, replace(stored, states=(ROWS,))) == replace(stored, states=(ROWS,))
    both = replace(stored, states=(ROWS, price, volume))
    uncovered = SynopsisPart(replace(stored, states=(ROWS, volume)), is_counted=True)
    assert given_by(stored, both) == stored and shares_of([stored], both) == ([[SynopsisPart(stored)]], [uncovered])
    assert shares_of([stored, both], both) == ([[SynopsisPart(stored)], [uncovered]], [])
    assert shares_of([], both) == ([], [SynopsisPart(both)])
    # of a filter that is new all states, of the others those that are
    filters = (*stored.predicates, STATES[0].argument)
    alone = SynopsisPart(replace(both, predicates=filters[-1:]))
    target = replace(both, predicates=filters)
    assert shares_of([stored], target) == ([[SynopsisPart(stored)]], [alone, uncovered])
    # what another gives of one part leaves the others as they are
    second = replace(stored, predicates=filters[-1:])
    uncovered_second = uncovered._replace(synopsis=replace(uncovered.synopsis, predicates=filters[-1:]))
    assert shares_of([stored, second], target) == (
        [[SynopsisPart(stored)], [SynopsisPart(second)]],
        [uncovered_second, uncovered],
    )
    with pytest.raises(ValueError, match="gives nothing"):
        shares_of([stored, stored], both)


# ------------------------------------------------------------------------------------------- whole runs
@pytest.fixture
def lab(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.setattr(suite, "expectations", lambda *args: [])
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady(300))
    return laboratory


def query(name: str, outputs: str, window: tuple[int, int], where: str = "", group_by: str = "") -> str:
    return (
        f"-- name: {name}\nSELECT {group_by + ', ' if group_by else ''}{outputs} FROM trades "
        f"WINDOW RANGE '{window[0]} minutes' SLIDE '{window[1]} minutes' ON ts"
        f"{' WHERE ' + where if where else ''}{' GROUP BY ' + group_by if group_by else ''};\n"
    )


OLD = query("old", "sum(volume) AS v, min(price) AS low", (60, 10), group_by="symbol")


def test_a_state_more_is_lifted_alone(lab: Laboratory) -> None:
    lab.run(lab.plan(OLD), 60, 240, "old")
    version = lab.plan(OLD + query("new", "max(volume) AS most", (30, 10), group_by="symbol"))
    with watched() as seen:
        record = lab.run(version, 60, 240, "new")
    assert kinds(seen) == [{"rows", "max"}] and record.synopses_reused == 0 < record.features["partial_rows_read"]
    assert lab.wrong(version, 60, 240) == []
    # the day after: all of it is lifted of what is new, and nothing of what is old
    with watched() as seen:
        lab.run(version, 240, 290, "next")
    assert [(request.stored, request.into) for request in seen] == [((), None)]
    assert lab.wrong(version, 60, 290) == []
    # without it as before: nothing is read but rows
    back = lab.plan(OLD)
    assert lab.run(back, 60, 300, "back").rows_scanned == 10 and lab.wrong(back, 60, 300) == []


def test_a_query_less_reads_no_event(lab: Laboratory) -> None:
    many = OLD + query("fine", "max(volume) AS most", (10, 5), group_by="symbol")
    lab.run(lab.plan(many + query("other", "count(*) AS n", (30, 30))), 60, 240, "many")
    version = lab.plan(OLD + query("all", "count(*) AS n, sum(volume) AS v", (30, 30)))
    with watched() as seen:
        record = lab.run(version, 60, 240, "few")
    assert seen == [] and record.rows_scanned == 0 and "trades" not in record.scanned
    assert lab.wrong(version, 60, 240) == []


def planned_together(lab: Laboratory, *texts: str) -> int:
    """A plan of one synopsis."""
    stream = Stream("trades", Source("parquet", str(lab.source())), SCHEMA, "ts")
    queries = parse("".join(texts), {"trades": stream}).queries
    together = [[query.name for query in queries]]
    plan = build_plan(Workload(queries, (stream,)), {"trades": Fraction(1)}, "shared", sharing=together)
    assert len(plan.synopses()) == 1
    return publish_plan(lab.warehouse, plan)[0]


def test_a_filter_that_joins_others_is_lifted_alone(lab: Laboratory) -> None:
    few = query("few", "max(volume) AS most", (60, 10), "volume > 3", "symbol")
    before = planned_together(lab, OLD, few)
    lab.run(before, 60, 240, "old")
    new = query("new", "sum(volume) AS v", (30, 10), "price > 100.4", "symbol")
    version = planned_together(lab, OLD, few, new)
    changes = diff(*(load_plan(lab.warehouse, plan) for plan in (before, version)))
    added = "only filters and states that are new are computed"
    assert {why.partition("; ")[2] for _, why, _ in changes.rebuilt} == {added}
    with watched() as seen:
        lab.run(version, 60, 240, "new")
    (lifted,) = seen
    assert len(lifted.synopsis.predicates) == 1 and lab.wrong(version, 60, 240) == []
    # and is there once the plan changes again
    version = planned_together(lab, OLD, new)
    assert lab.run(version, 60, 240, "fewer").rows_scanned == 0 and lab.wrong(version, 60, 240) == []


def test_filters_that_stood_apart_give_their_rows_to_what_they_share(lab: Laboratory) -> None:
    texts = [
        query(name, "sum(volume) AS v", (60, 10), where, "symbol") for name, where in (("a", ""), ("b", "volume > 3"))
    ]
    lab.run(lab.plan("".join(texts)), 60, 240, "apart")
    version = planned_together(lab, *texts)
    with watched() as seen:
        record = lab.run(version, 60, 240, "together")
    assert seen == [] and record.rows_scanned == 0 and lab.wrong(version, 60, 240) == []


def test_of_files_that_changed_nothing_is_taken(lab: Laboratory) -> None:
    lab.run(lab.plan(OLD), 60, 240, "old")
    lab.write([*steady(300), (100.5, "A", 5.0, 7)])
    version = lab.plan(OLD + query("new", "max(volume) AS most", (30, 10), group_by="symbol"))
    with watched() as seen:
        lab.run(version, 60, 240, "new")
    assert [(request.into, kind) for request, kind in zip(seen, kinds(seen), strict=True)] == [
        (None, {"rows", "sum", "min", "count", "max"})
    ]
    assert lab.wrong(version, 60, 240) == []


def test_a_new_day_is_lifted_for_all_and_old_ones_for_what_is_new(lab: Laboratory) -> None:
    lab.write([(minute, "AB"[minute // 20 % 2], 100.0 + minute % 7, minute // 20 % 5) for minute in range(0, 7200, 20)])
    old = OLD.replace("60 minutes", "4320 minutes")
    lab.run(lab.plan(old), 5750, 5760, "old")
    new = query("new", "max(price) AS most", (4320, 10), group_by="symbol")
    version = lab.plan(old + new)
    with watched() as seen:
        record = lab.run(version, 5750, 7000, "new")
    # windows of the new query reach back over three days, of which the old one's states are stored
    spans = [
        (kind - {"rows"}, (request.end - request.begin) // MINUTE)
        for request, kind in zip(seen, kinds(seen), strict=True)
    ]
    assert sorted(spans, key=lambda span: -span[1]) == [({"max"}, 4320), ({"sum", "min", "count", "max"}, 1240)], spans
    assert record.scanned["trades"][2] == record.rows_scanned == record.features["events"] == 278
    assert record.features["family_tuples"] == record.features["tree_tuples"] == record.features["events"]
    assert lab.wrong(version, 5750, 7000) == []


AGGREGATES = ("sum(volume) AS v", "min(price) AS a, count(*) AS b", "avg(price) AS v", "count(DISTINCT volume) AS v")


@st.composite
def texts_of_queries(draw: st.DrawFn, name: str) -> str:
    """A query over trades: of few aggregates, windows, filters and groups, so that several have some in common."""
    group_by = draw(st.sampled_from(["", "symbol", "volume", "symbol, volume"]))
    where = draw(st.sampled_from(["", "volume > 3", "price > 100.4", "symbol = 'A'"]))
    window = draw(st.sampled_from([(60, 10), (30, 10), (30, 5), (45, 15), (20, 20)]))
    return query(name, draw(st.sampled_from(AGGREGATES)), window, where, group_by)


@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_changes_of_a_workload_are_answered_as_the_oracle_does(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Queries come, go and change, share synopses in any way, and history is answered again, up to some time later."""
    lab = Laboratory(engine, tmp_path_factory.mktemp("changes"))
    lab.write(steady(200))
    stream = Stream("trades", Source("parquet", str(lab.source())), SCHEMA, "ts")
    names, query_texts, end = [f"q{number}" for number in range(5)], dict[str, str](), 100
    plan: SharingPlan | None = None
    for step in range(data.draw(st.integers(2, 4))):
        for name in data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True)):
            query_texts.pop(name, None)
            if data.draw(st.booleans()):
                query_texts[name] = data.draw(texts_of_queries(name))
        query_texts = query_texts or {"q0": OLD.replace("old", "q0")}
        place = {name: data.draw(st.integers(0, 2)) for name in query_texts}
        plan = build_plan(
            Workload(parse("".join(query_texts.values()), {"trades": stream}).queries, (stream,)),
            {"trades": Fraction(1)},
            data.draw(st.sampled_from(["weave-share", "shared", "no-share"])),
            previous=plan if data.draw(st.booleans()) else None,
            sharing=[[name for name in query_texts if place[name] == number] for number in range(3)],
        )
        version, _ = publish_plan(lab.warehouse, plan)
        end += data.draw(st.sampled_from([0, 0, 30]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(suite, "expectations", lambda *args: [])
            lab.run(version, 60, end, f"step {step}")
        assert lab.wrong(version, 60, end) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8)), min_size=1, max_size=2), st.data())
def test_of_a_gap_whole_fragments_that_lie_in_a_run_are_given(
    edges: list[tuple[int, int]], data: st.DataObject
) -> None:
    """A run begins and ends at edges of finer fragments: what it has of the wanted ones at both ends is not all."""
    progressions = tuple((slide * SECOND, shift % slide * SECOND) for slide, shift in edges)
    synopsis = replace(simple("symbol"), edges=progressions)
    instants = range(-30 * SECOND, 60 * SECOND, SECOND)
    cut = [at for at in instants if synopsis.fragments.last_edge(at) == at]
    begin, end = sorted(data.draw(st.lists(st.sampled_from(cut), min_size=2, max_size=2, unique=True)))
    run = sorted(data.draw(st.lists(st.sampled_from(instants), min_size=2, max_size=2, unique=True)))
    inside = [at for at in cut if max(begin, run[0]) <= at <= min(end, run[1])]
    first, last = _within(FillRequest(synopsis, begin, end), (run[0], run[1]))
    assert (first, last) == (inside[0], inside[-1]) if len(inside) > 1 else first >= last
