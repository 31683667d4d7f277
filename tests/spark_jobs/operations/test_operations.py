"""What the operating view reads from the tables, without a JVM: runs, lateness, checks, revisions, savings, history."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.pages.operations import page, radius
from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, LONG, SECOND, TIMESTAMP, Output, Source, Stream, Window, Workload
from spark_jobs.audit.checks.data_docs import FOLDER
from spark_jobs.operations import read as reading
from spark_jobs.operations.read import (
    change_of,
    check_in_force,
    docs_page,
    opened,
    read_operations,
    read_radius,
    read_versions,
)
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.data_files import write_files
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.schemas import RESULTS
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.sizes import examples

STREAM = Stream("trades", Source("csv", "x"), (("ts", TIMESTAMP),), "ts")
COUNT = (Output("n", "count", None, None, LONG),)
NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


def at(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def query(name: str, seconds: int, slide: int, owner: str = "", at_most: bool = False) -> ACQ:
    window = Window(seconds * SECOND, slide * SECOND)
    if at_most:
        window = replace(window, slide=60 * SECOND, at_most=slide * SECOND)
    return ACQ(name, "trades", window, COUNT, owner=owner)


QUERIES = [query("a", 7200, 3600, "ops"), query("b", 10800, 3600, "ops"), query("c", 86400, 43200)]


def store(warehouse: Warehouse, queries: list[ACQ], by: str = "anna, manual__1", reason: str = "because") -> int:
    plan = build_plan(Workload(tuple(queries), (STREAM,)), {"trades": Fraction(1, 100)}, "weave-share")
    return publish_plan(warehouse, plan, by, reason)[0]


def log(warehouse: Warehouse, day: int, event: str, run_id: str, revision: int = 1, **told: Any) -> datetime:
    """A row of the publish log as a run writes it."""
    minutes = len(warehouse.rows("publish_log", ["at"]))
    moment = NOW - timedelta(days=1) + timedelta(minutes=minutes)
    record = {
        "run_id": run_id,
        **{"answers": 100, "queries": 3, "rows_scanned": 5000, "predicted_cpu_seconds": 12.0},
        **{"cpu_seconds": {"list": 1.0, "finals": 9.0}, "wall_seconds": {"list": 5.0}},
        "checks": [{"check": "gx:x(y)", "success": True, "detail": ""}],
        **told.pop("record", {}),
    }
    row = {
        "interval_start": at(day * DAY),
        "interval_end": at((day + 1) * DAY),
        **{"revision": revision, "run_id": run_id, "event": event, "plan_version": 1, "content": f"{day}/{revision}"},
        **{"answers": record["answers"], "table_version": minutes, "record": json.dumps(record), "at": moment},
    }
    with warehouse.lease() as token:
        warehouse.append("publish_log", [row | told], token)
    return moment


def check(warehouse: Warehouse, day: int, run_id: str, name: str, success: bool, moment: datetime) -> None:
    row = {
        **{"run_id": run_id, "interval_start": at(day * DAY), "interval_end": at((day + 1) * DAY), "check": name},
        **{"success": success, "detail": "" if success else "3 rows", "at": moment},
    }
    with warehouse.lease() as token:
        warehouse.append("quality_results", [row], token)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    house = Warehouse.open(tmp_path / "house")
    store(house, QUERIES)
    return house


def test_an_empty_warehouse_is_shown(tmp_path: Path) -> None:
    assert opened(tmp_path) is None
    operations = read_operations(Warehouse.open(tmp_path / "house"), NOW, look=True)
    assert (operations.plan_version, operations.runs, operations.savings, operations.stale) == (None, (), (), ())
    assert "No plan yet" in page(operations)


def test_runs_are_those_that_ended_and_those_that_did_not(warehouse: Warehouse) -> None:
    log(warehouse, 1, "allocated", "one")
    log(warehouse, 1, "published", "one")
    log(warehouse, 2, "allocated", "two")
    failure = {"diagnostics": [{"code": "HDL-530", "message": "wrong", "hint": "look", "file": "", "line": 0}]}
    log(warehouse, 2, "failed", "two", record=failure)
    log(warehouse, 3, "allocated", "three")
    log(warehouse, 3, "allocated", "three")  # a retry that died, too
    (warehouse.root / FOLDER).mkdir()
    (warehouse.root / FOLDER / docs_page("one", 1)).write_text("x")
    operations = read_operations(warehouse, NOW)
    assert [(run.run_id, run.status) for run in operations.runs] == [
        *(("three", "no end"), ("two", "failed"), ("one", "published")),
    ]
    three, two, one = operations.runs
    assert (one.measured, one.predicted, one.wall, one.passed, one.checks) == (10.0, 12.0, 5.0, 1, 1)
    assert (one.begin, one.end, one.docs) == (DAY, 2 * DAY, docs_page("one", 1))
    assert two.problems[0].code == "HDL-530" and two.docs == ""
    (warehouse.root / FOLDER / docs_page("two", 1)).with_suffix(".json").write_text("{}")
    assert read_operations(warehouse, NOW).runs[1].docs == docs_page("two", 1)
    assert three.measured is None and three.answers == 0
    assert operations.intervals == 1 and "HDL-530 wrong" in page(operations)


def test_only_the_newest_runs_are_read(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "RUNS", 3)
    for day in range(6):
        log(warehouse, day, "published", f"run-{day}")
    operations = read_operations(warehouse, NOW)
    assert [run.run_id for run in operations.runs] == ["run-5", "run-4", "run-3"] and operations.intervals == 6


def test_revisions_say_what_was_new(warehouse: Warehouse) -> None:
    log(warehouse, 1, "published", "first")
    log(warehouse, 1, "published", "repair/1", 2, answers=103)
    log(warehouse, 1, "published", "again", 3, answers=103, content="1/2")
    store(warehouse, QUERIES[:2])
    log(warehouse, 1, "published", "later", 4, plan_version=2, answers=90)
    log(warehouse, 2, "published", "other")
    (revised,) = read_operations(warehouse, NOW).revised
    assert (revised.begin, [publication.revision for publication in revised.publications]) == (DAY, [1, 2, 3, 4])
    assert [publication.why for publication in revised.publications] == [
        "first publication",
        "its source or its watermark changed: late events, or files that came or went; +3 answers; by repair",
        "recomputed on demand, of the same source",
        "plan version 1 → 2; -13 answers",
    ]


def test_sampled_queries_by_audit(warehouse: Warehouse) -> None:
    """Two audits of one run, seconds apart within each, are two; what else is checked is none."""
    begun = NOW - timedelta(hours=1)
    for minute, second, name, fine in (
        *((0, 0, "shared=unshared(a)", True), (0, 1, "shared=unshared(b)", False)),
        *((0, 1, "gx:expect(x)", False), (9, 0, "shared=unshared(a)", True)),
    ):
        check(warehouse, 1, "one", name, fine, begun + timedelta(minutes=minute, seconds=second))
    operations = read_operations(warehouse, NOW)
    assert [(sample.queries, sample.names) for sample in operations.sampled] == [(2, ("b",)), (1, ())]
    assert operations.all_checks == (2, 2)
    assert {failed_check.name for failed_check in operations.failed_checks} == {"shared=unshared(b)", "gx:expect(x)"}
    assert operations.failed_checks[0].detail == "3 rows"


def test_what_was_left_out_by_stream_and_code(warehouse: Warehouse) -> None:
    def row(run_id: str, rows: int, hour: int, stream: str = "trades") -> dict[str, Any]:
        detail = f"{rows} of them"
        return {
            **{"run_id": run_id, "stream": stream, "code": "HDL-410", "rows": rows, "detail": detail},
            "at": NOW - timedelta(hours=hour),
        }

    with warehouse.lease() as token:
        warehouse.append(
            "quarantine", [row("one", 3, 2), row("one", 4, 3), row("two", 5, 1), row("x", 1, 1, "")], token
        )
    quarantined = read_operations(warehouse, NOW).quarantined
    assert [(summary.stream, summary.code, summary.rows, summary.runs, summary.detail) for summary in quarantined] == [
        ("trades", "HDL-410", 12, 2, "5 of them"),
        ("", "HDL-410", 1, 1, "1 of them"),
    ]


@settings(max_examples=examples(8), deadline=None)
@given(
    owners=st.lists(st.sampled_from(["ops", "web", ""]), min_size=3, max_size=3),
    measured=st.lists(st.floats(0, 1e6), min_size=1, max_size=4),
)
def test_parts_of_owners_add_up_to_what_was_measured(
    owners: list[str], measured: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    warehouse = Warehouse.open(tmp_path_factory.mktemp("house"))
    store(warehouse, [replace(query, owner=owner) for query, owner in zip(QUERIES, owners, strict=True)])
    for day, seconds in enumerate(measured):
        log(warehouse, day, "published", f"run-{day}", record={"cpu_seconds": {"finals": seconds}})
    log(warehouse, 9, "failed", "failed", record={"cpu_seconds": {"finals": 1e9}})
    operations = read_operations(warehouse, NOW)
    assert {saving.owner: saving.queries for saving in operations.savings} == {
        owner: owners.count(owner) for owner in owners
    }
    assert sum(saving.part for saving in operations.savings) == pytest.approx(sum(measured))
    assert all(saving.part <= saving.unshared * (1 + 1e-9) for saving in operations.savings if len(set(owners)) == 1)
    assert operations.unpriced == 0


def test_savings_of_a_plan_that_is_gone_are_said_to_be_left_out(warehouse: Warehouse) -> None:
    log(warehouse, 1, "published", "one", plan_version=7)
    operations = read_operations(warehouse, NOW)
    assert (operations.savings, operations.unpriced) == ((), 1)


def test_lateness_of_queries_with_a_bound(tmp_path: Path) -> None:
    warehouse = Warehouse.open(tmp_path / "house")
    stream = replace(STREAM, step=60 * SECOND)
    watch = query("watch", 7200, 3600, at_most=True)
    plan = build_plan(Workload((watch,), (stream,)), {"trades": Fraction(1, 100)}, "weave-share")
    publish_plan(warehouse, plan)
    (before,) = read_operations(warehouse, NOW).refreshed
    assert (before.query, before.bound, before.answered, before.now) == ("watch", 3600 * SECOND, None, 0)
    late = {"live": True, "late": True, "lateness": {"watch": 90 * SECOND}, "refreshed": {"watch": 2 * DAY}}
    log(warehouse, 1, "published", "one", record=late)
    (during,) = read_operations(warehouse, NOW).refreshed
    assert (during.answered, during.latest, during.late_runs, during.now) == (2 * DAY, 90 * SECOND, 1, 90 * SECOND)
    log(warehouse, 2, "published", "two", record={"live": True, "refreshed": {"watch": 3 * DAY}})
    (after,) = read_operations(warehouse, NOW).refreshed
    assert (after.answered, after.latest, after.late_runs, after.now) == (3 * DAY, 90 * SECOND, 1, 0)


def test_the_history_of_the_plan(warehouse: Warehouse) -> None:
    assert store(warehouse, [*QUERIES, query("d", 900, 60)], "ben", "more") == 2
    (second, first), total = read_versions(warehouse)
    assert total == 2 and (first.number, first.queries, first.by, first.because) == (1, 3, "anna, manual__1", "because")
    assert (second.number, second.queries, second.algorithm, second.cost_model) == (2, 4, "weave-share", "paper")
    assert first.cost <= first.no_share and second.trees >= 1
    assert change_of(warehouse, 2).added == ("d",) and set(change_of(warehouse, 1).added) == {"a", "b", "c"}
    with pytest.raises(HeddleError, match="HDL-506"):
        change_of(warehouse, 3)


def test_what_was_decided_on_another_plan_is_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    root = warehouse.root
    check_in_force(root, 1)
    check_in_force(root, None)
    check_in_force(tmp_path / "nowhere", 0)
    store(warehouse, QUERIES[:1], "ben, manual__2")
    with pytest.raises(HeddleError, match="HDL-551 the plan in force is version 2, not 1"):
        check_in_force(root, 1)
    with pytest.raises(HeddleError, match="HDL-551"):
        check_in_force(tmp_path / "nowhere", 1)
    # the task that stored it is tried again
    check_in_force(root, 1, "ben, manual__2")
    with pytest.raises(HeddleError, match="HDL-551"):
        check_in_force(root, 1, "anna, manual__3")
    # and under the lease, should one have come between the look and the commit
    first, second = load_plan(warehouse, 1), load_plan(warehouse, 2)
    with pytest.raises(HeddleError, match="HDL-551"):
        publish_plan(warehouse, first, expected=1)
    assert publish_plan(warehouse, second, expected=1) == (2, False)
    assert publish_plan(warehouse, first, expected=2) == (3, True)


def publish(warehouse: Warehouse, revision: int, answers: dict[tuple[str, int], tuple[float, str | None]]) -> int:
    """Publish answers (by query and hour) of 1970-01-02 as a run does; the table's version."""
    rows = [
        {
            **{"stream": "trades", "query": name, "key": "[]", "longs": [1], "doubles": [value], "texts": []},
            **{"window_start": at(DAY), "window_end": at(DAY + hour), "instant": at(DAY + hour), "error": error},
            **{"plan_version": 1, "revision": revision, "run_id": f"run-{revision}", "day": "1970-01-02"},
        }
        for (name, hour), (value, error) in answers.items()
    ]
    files = list(write_files(warehouse.path("results"), pa.Table.from_pylist(rows, schema=RESULTS)))
    return warehouse.replace(
        "results", files, ("1970-01-02", "1970-01-02"), lambda stored: pc.is_valid(stored["query"]), "1", revision
    )


def test_what_a_revision_changed_for_readers(warehouse: Warehouse) -> None:
    nan = float("nan")
    same = {("a", 1): (nan, None), ("a", 2): (2.0, None)}
    first = publish(warehouse, 1, same | {("a", 3): (3.0, None), ("b", 1): (1.0, None), ("b", 2): (1.0, None)})
    log(warehouse, 1, "published", "one", 1, table_version=first)
    second = publish(warehouse, 2, same | {("a", 3): (3.5, None), ("b", 1): (1.0, "HDL-601"), ("c", 9): (1.0, None)})
    log(warehouse, 1, "published", "two", 2, table_version=second)
    change_radius = read_radius(warehouse, DAY, 2 * DAY, 2)
    assert change_radius.answers == (5, 5)
    assert change_radius.queries == (("a", 1, 0, 0), ("b", 1, 0, 1), ("c", 0, 1, 0))
    text = radius(change_radius)
    assert "Of 5 answers <b>2</b> changed, <b>1</b> came and <b>1</b> went" in text
    assert read_radius(warehouse, DAY, 2 * DAY, 1).queries == (("a", 0, 3, 0), ("b", 0, 2, 0))
    with pytest.raises(HeddleError, match="HDL-559"):
        read_radius(warehouse, DAY, 2 * DAY, 3)


def test_a_revision_whose_files_are_gone_or_too_many_is_not_compared(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for revision in (1, 2):
        version = publish(warehouse, revision, {("a", 1): (float(revision), None)})
        log(warehouse, 1, "published", f"run-{revision}", revision, table_version=version)
    monkeypatch.setattr(reading, "COMPARED", 0)
    with pytest.raises(HeddleError, match="HDL-558 this interval has more than 0"):
        read_radius(warehouse, DAY, 2 * DAY, 2)
    monkeypatch.undo()
    for file in (warehouse.root / "results").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(HeddleError, match="HDL-558 this revision cannot be compared any more"):
        read_radius(warehouse, DAY, 2 * DAY, 2)
