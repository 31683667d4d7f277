"""The promises of a run: idempotent, atomic, checked, and no answer lost or doubled whatever happens around it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.operations.upgrade import apply_upgrade
from spark_jobs.pipeline.run import checks_stage, finals_stage, interval, stage_tasks
from spark_jobs.store.warehouse import marker, publish_log
from spark_jobs.store.warehouse.schemas import COLUMNS, TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.partials import families
from spark_jobs.windows.partials.cells import Cells, concatenated
from tests.chaos.orders import in_process
from tests.former_rows import as_lists
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Laboratory:
    """Runs through Spark, or, in tests without the suite, through whatever the fixture engine is."""
    has_suite = "without_suite" not in request.fixturenames
    laboratory = Laboratory(request.getfixturevalue("spark" if has_suite else "engine"), tmp_path)
    laboratory.write(steady())
    return laboratory


@pytest.fixture
def without_suite(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Great Expectations out where the audit is not what is tested."""
    from spark_jobs.audit.checks import suite

    monkeypatch.setattr(suite, "expectations", lambda *arguments: [])


# ------------------------------------------------------------------------------------------ idempotence
def test_a_crash_before_the_log_publishes_nothing_twice_and_new_events_make_a_revision(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lab.plan()
    log = publish_log.log_event

    def crash(*arguments: Any) -> None:
        if arguments[2] == "published":
            raise RuntimeError("power cut")
        log(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(publish_log, "log_event", crash)
        with pytest.raises(RuntimeError, match="power cut"):
            lab.run(version, 60, 120, "run-1")
    assert lab.log("published") == []  # but the answers are there
    before = lab.versions()
    assert lab.wrong(version, 60, 120) == []

    retried = lab.run(version, 60, 120, "run-1")
    assert (retried.status, retried.revision) == ("unchanged", 1)
    assert retried.answers == DeltaTable(lab.warehouse.path("results")).to_pyarrow_dataset().count_rows() > 0
    after = lab.versions()
    assert (after["results"], after["partials"]) == (before["results"], before["partials"])
    (row,) = lab.log("published")
    assert (row["revision"], row["run_id"], row["answers"]) == (1, "run-1", retried.answers)

    again = lab.run(version, 60, 120, "run-2")
    assert again.status == "unchanged" and lab.versions() == after

    lab.write([*steady(), (70.5, "C", 1.0, 2), (100, "A", None, None)])
    late = lab.run(version, 60, 120, "run-3")
    assert (late.status, late.revision) == ("published", 2)
    assert lab.wrong(version, 60, 120) == []
    assert {row["symbol"] for row in lab.rows("by_symbol")} == {"A", "B", "C"}


def test_a_retry_goes_on_under_the_revision_it_was_given(
    lab: Laboratory, without_suite: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lab.plan()
    with monkeypatch.context() as patch:
        patch.setattr(finals_stage, "write_finals", lambda *arguments: 1 / 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                lab.run(version, 60, 120, "run-1")
    assert [row["revision"] for row in lab.log("allocated")] == [1]
    published = lab.run(version, 60, 120, "run-1")
    # what the crashed attempts had computed is not computed again
    assert (published.revision, published.rows_scanned) == (1, 0)
    assert published.synopses_reused == published.synopses > 0


def test_intervals_of_any_shape_never_double_an_answer_nor_change_a_byte(lab: Laboratory, without_suite: None) -> None:
    version = lab.plan()

    def answers() -> list[dict[str, Any]]:
        columns = ["query", "window_start", "window_end", "key", "longs", "doubles", "texts", "error"]
        rows = DeltaTable(lab.warehouse.path("results")).to_pyarrow_table(columns=columns).to_pylist()
        return sorted(rows, key=lambda row: (row["query"], row["window_end"], row["key"]))

    first = lab.run(version, 30, 75, "a")
    second = lab.run(version, 75, 120, "b")
    halves = answers()
    assert lab.wrong(version, 30, 120) == []
    # the second run takes the history under its windows from what the first one left
    assert second.rows_scanned < 60 < first.rows_scanned
    third = lab.run(version, 60, 90, "c")
    assert third.rows_scanned == 0 and third.synopses_reused == third.synopses
    assert answers() == halves
    fourth = lab.run(version, 30, 120, "d")
    assert fourth.status == "published" and fourth.rows_scanned == 0
    assert answers() == halves
    assert lab.wrong(version, 30, 120) == []


def test_the_sharing_plan_may_change_between_intervals(lab: Laboratory, without_suite: None) -> None:
    versions = [lab.plan(algorithm=name) for name in ("weave-share", "no-share", "shared")]
    trees = [len(interval.load_plan(lab.warehouse, version).trees) for version in versions]
    assert len(set(versions)) >= 2 and len(set(trees)) == 2
    for number, version in enumerate(versions):
        lab.run(version, 30 * (number + 1), 30 * (number + 2), f"run-{number}")
    assert lab.wrong(versions[-1], 30, 120) == []
    # another plan for the same queries and events has nothing to publish
    again = lab.run(versions[0], 90, 120, "again")
    assert again.status == "unchanged"
    replayed = lab.run(versions[0], 90, 120, "forced", recompute=True)
    assert replayed.status == "published" and lab.wrong(versions[-1], 30, 120) == []


# ------------------------------------------------------------------------------------------------ audit
ONE = """
-- name: only
SELECT symbol, count(*) AS n, sum(volume) AS total FROM trades
WINDOW RANGE '60 minutes' SLIDE '60 minutes' ON ts GROUP BY symbol;
"""


def test_a_failing_check_publishes_nothing_and_names_the_rows(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    version = lab.plan(ONE)
    lab.run(version, 0, 60, "good")
    before, good = lab.versions(), lab.rows("only")
    write = finals_stage.write_finals

    def corrupted(*arguments: Any) -> Any:
        staged = write(*arguments)
        for written in staged:
            path = lab.warehouse.root / "results" / written.file.path
            rows = pq.ParquetFile(path).read()
            wrong = [row | {"longs": [row["longs"][0], row["longs"][1] + 1]} for row in rows.to_pylist()]
            pq.write_table(pa.Table.from_pylist(wrong, rows.schema), path)
        return staged

    monkeypatch.setattr(finals_stage, "write_finals", corrupted)
    with pytest.raises(HeddleError, match="HDL-530 .*nothing was published") as raised:
        lab.run(version, 60, 120, "bad")
    message = str(raised.value)
    assert (
        "shared=unshared(only)" in message
        and "total" in message
        and "ends at 2013-07-01 02:00:00+00:00, group ['B']" in message
    )
    assert lab.versions()["results"] == before["results"] and lab.rows("only") == good
    (failed,) = lab.log("failed")
    assert failed["run_id"] == "bad"
    checks = [row for row in lab.warehouse.rows("quality_results") if row["run_id"] == "bad"]
    assert [row["check"] for row in checks if not row["success"]] == ["shared=unshared(only)"]
    assert len(checks) > 5

    monkeypatch.undo()
    assert lab.run(version, 60, 120, "bad").status == "published"
    assert lab.wrong(version, 0, 120) == []


def test_a_crashing_check_publishes_nothing(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    version = lab.plan(ONE)

    def crash(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("the check itself is broken")

    monkeypatch.setattr(checks_stage, "audit", crash)
    before = lab.versions()["results"]
    with pytest.raises(RuntimeError, match="the check itself is broken"):
        lab.run(version, 0, 60)
    assert lab.versions()["results"] == before
    assert lab.log("published") == [] and lab.rows("only") == []
    # the run is on record as failed, and what it had computed is gone
    [failed] = lab.log("failed")
    assert "HDL-531" in failed["record"]
    assert list((lab.warehouse.root / "results").rglob("*.parquet")) == []


# -------------------------------------------------------------------------------------- streams that fail
BOTH = """
-- name: trades_only
SELECT count(*) AS n, sum(volume) AS total FROM trades WINDOW RANGE '20 minutes' SLIDE '20 minutes' ON ts;
-- name: quotes_only
SELECT count(*) AS n, max(symbol) AS last FROM quotes WINDOW RANGE '20 minutes' SLIDE '20 minutes' ON ts;
"""


def test_a_stream_that_cannot_be_read_fails_alone_and_keeps_its_answers(lab: Laboratory, without_suite: None) -> None:
    version = lab.plan(BOTH)
    # quotes are not there yet
    first = lab.run(version, 0, 60, "1")
    assert first.status == "published" and [diagnostic["code"] for diagnostic in first.diagnostics] == ["HDL-401"]
    assert len(lab.rows("trades_only")) == 3 and lab.rows("quotes_only") == []

    lab.write(steady(), "quotes")
    second = lab.run(version, 0, 60, "2")
    assert (second.revision, second.diagnostics) == (2, [])
    assert lab.wrong(version, 0, 60) == []

    # then half of a file, while trades go on
    published_rows = lab.rows("quotes_only")
    content = lab.source("quotes").read_bytes()
    lab.source("quotes").write_bytes(content[: len(content) // 2])
    lab.write([*steady(), (5, "A", 1.0, 1000)])
    third = lab.run(version, 0, 60, "3")
    assert (third.revision, [diagnostic["code"] for diagnostic in third.diagnostics]) == (3, ["HDL-402"])
    assert lab.rows("quotes_only") == published_rows and lab.wrong(version, 0, 60) == []

    # then a column of another type: trades have not changed, nothing is computed
    table = lab.events["quotes"]
    numbers = table.set_column(1, "symbol", pa.array(range(len(table))))
    pq.write_table(numbers, lab.source("quotes"))
    fourth = lab.run(version, 0, 60, "4")
    assert fourth.status == "unchanged" and [diagnostic["code"] for diagnostic in fourth.diagnostics] == ["HDL-404"]
    assert "symbol" in fourth.diagnostics[0]["message"]
    assert lab.rows("quotes_only") == published_rows

    lab.source("trades").unlink()
    before = lab.versions()["results"]
    with pytest.raises(HeddleError, match="HDL-505"):
        lab.run(version, 0, 60, "5")
    assert lab.versions()["results"] == before and lab.wrong(version, 0, 60) == []


# ------------------------------------------------------------------------------------------ awkward data
def test_nan_infinities_and_nulls_are_answered_as_spark_would(lab: Laboratory) -> None:
    lab.write(
        [
            (1, "A", math.nan, 1),
            (2, "A", 1.0, 1),
            (3, "B", math.inf, 2),
            (4, "B", -math.inf, 3),
            (5, None, -0.0, 4),
            (6, None, None, None),
            (31, "A", None, None),
            (32, "A", None, None),
            (None, "A", 5.0, 5),
        ]
    )
    version = lab.plan()
    record = lab.run(version, 0, 60)
    assert record.status == "published" and record.rows_without_time == 1
    assert lab.wrong(version, 0, 60) == []
    nulls = [row for row in lab.rows("by_symbol") if row["window_start"].minute == 30]
    assert [(row["n"], row["total"], row["mean"], row["low"]) for row in nulls] == [(2, None, None, None)]
    (quarantined,) = lab.warehouse.rows("quarantine")
    assert (quarantined["code"], quarantined["rows"]) == ("HDL-410", 1)


def test_an_overflow_is_a_null_and_a_code_of_its_row_alone(lab: Laboratory, without_suite: None) -> None:
    huge = 2**63 - 1
    lab.write([(1, "A", 1.0, huge), (2, "A", 1.0, 1), (3, "B", 1.0, huge)])
    version = lab.plan(ONE)
    lab.run(version, 0, 60)
    a, b = lab.rows("only")
    assert (a["total"], b["total"]) == (None, huge)
    assert "HDL-601" in a["error"] and "total" in a["error"] and b["error"] is None


def test_an_interval_without_events_publishes_no_answers_and_succeeds(lab: Laboratory) -> None:
    version = lab.plan()
    record = lab.run(version, 10_000, 10_060)
    assert (record.status, record.answers) == ("published", 0)
    assert all(check["success"] for check in record.checks) and record.checks
    assert lab.run(version, 10_000, 10_060, "again").status == "unchanged"


def test_windows_beyond_the_watermark_come_later(lab: Laboratory) -> None:
    version = lab.plan(ONE)
    clock = DAY + 90 * MINUTE
    early = lab.run(version, 0, 120, "1", as_of=DAY - MINUTE)
    assert (early.status, early.answers) == ("published", 0)
    partly = lab.run(version, 0, 120, "2", as_of=clock)
    assert partly.withheld == {"trades": "2013-07-01T01:30:00Z"}
    assert lab.wrong(version, 0, 60) == []  # the window that ends at 02:00 is not there
    complete = lab.run(version, 0, 120, "3", as_of=DAY + 120 * MINUTE)
    assert complete.withheld == {} and lab.wrong(version, 0, 120) == []


# ------------------------------------------------------------------------------------------ bad requests
def test_requests_that_make_no_sense_are_coded(lab: Laboratory) -> None:
    version = lab.plan()
    with pytest.raises(HeddleError, match="HDL-504"):
        lab.run(version, 60, 60)
    with pytest.raises(HeddleError, match="HDL-506"):
        lab.run(version + 7, 0, 60)
    assert lab.warehouse.rows("publish_log") == []


# ------------------------------------------------------------------------------- what queries may ask for
TWINS = """
-- name: one
SELECT symbol, sum(volume) AS total FROM trades WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
-- name: longer
SELECT symbol, sum(volume) AS total FROM trades WINDOW RANGE '45 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
"""


def test_trees_that_need_the_same_partial_aggregates_share_them(lab: Laboratory, without_suite: None) -> None:
    """Ranges of 25 and 45 minutes have the same edges: without sharing there are two trees with one synopsis."""
    version = lab.plan(TWINS, "no-share")
    assert len(interval.load_plan(lab.warehouse, version).trees) == 2
    record = lab.run(version, 60, 120)
    assert record.synopses == 1
    assert lab.wrong(version, 60, 120) == []


EVERY_KIND = """
-- name: yesterday
SELECT symbol, sum(volume) AS total, percentile(price, 0.9) AS high FROM trades
WINDOW RANGE '20 minutes' SLIDE '10 minutes' ENDING '35 minutes' AGO ON ts GROUP BY symbol;
-- name: rows_of_each
SELECT symbol, max(price) AS high, count(DISTINCT volume) AS sizes FROM trades
WINDOW ROWS 10 SLIDE 4 PARTITION BY symbol ON ts WHERE volume > 2 GROUP BY symbol;
-- name: rows_of_all
SELECT avg(price) AS mean FROM trades WINDOW ROWS 15 SLIDE 5 ON ts;
-- name: busy
SELECT symbol, sum(volume) AS total, last(price) AS price FROM trades
WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol HAVING sum(volume) > 75;
"""


@pytest.mark.longer
def test_partial_rows_of_before_go_into_the_answers_of_now(
    tmp_path: Path, without_suite: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warehouse whose partial rows have no column of numbers gets one, and keeps its rows."""
    with monkeypatch.context() as before:
        schema, days = TABLES["partials"]
        before.setitem(TABLES, "partials", (pa.schema([field for field in schema if field.name != "numbers"]), days))
        before.setattr(marker, "COLUMNS", 1)
        before.setattr(marker, "BREAKING", 1)
        before.setattr(Cells, "encode", with_lists(Cells.encode))
        before.setattr(families, "stored_rows", lambda parts: concatenated(parts).to_store().encode())
        lab = Laboratory(in_process(), tmp_path)
        lab.write(steady())
        version = lab.plan()
        lab.run(version, 0, 60, "first")
    rows = DeltaTable(lab.warehouse.path("partials")).to_pyarrow_table().to_pylist()
    assert "numbers" not in rows[0] and [row for row in rows if row["key"] and row["longs"]]
    apply_upgrade(Warehouse.open(lab.warehouse.root))
    lab.warehouse = Warehouse.open(lab.warehouse.root)
    assert lab.warehouse.marker.columns == COLUMNS
    assert lab.run(version, 50, 120, "second").status == "published"
    rows = DeltaTable(lab.warehouse.path("partials")).to_pyarrow_table().to_pylist()
    assert {row["numbers"] is None for row in rows if row["key"]} == {True, False}
    assert lab.wrong(version, 0, 120) == []


def with_lists(encode: Any) -> Any:
    """How cells were encoded before there were numbers."""

    def encoded(cells: Cells) -> pa.Table:
        return as_lists(encode(cells), cells).drop_columns("numbers")

    return encoded


def test_historical_windows_windows_of_rows_and_thresholds_in_one_run(lab: Laboratory) -> None:
    version = lab.plan(EVERY_KIND)
    for begin, end in ((60, 90), (90, 120)):
        assert lab.run(version, begin, end, f"run-{begin}").status == "published"
    assert lab.wrong(version, 60, 120) == []
    assert all(row["instant"] - row["window_end"] == timedelta(minutes=35) for row in lab.rows("yesterday"))
    assert lab.rows("rows_of_all")[0]["position"] % 5 == 0 and lab.rows("rows_of_each")
    assert 0 < len(lab.rows("busy")) < 12 and all(row["total"] > 75 for row in lab.rows("busy"))
    # a late event in the first interval renumbers the rows from there on
    lab.write([*steady(), (70.5, "A", 1.0, 9)])
    assert lab.run(version, 60, 90, "late").status == lab.run(version, 90, 120, "after").status == "published"
    assert lab.wrong(version, 60, 120) == []


def test_too_many_groups_fail_their_queries_alone_and_keep_the_earlier_answers(
    lab: Laboratory, without_suite: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
-- name: by_volume
SELECT volume, count(*) AS n FROM trades WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON ts GROUP BY volume;
-- name: by_symbol
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
"""
    version = lab.plan(text)
    assert lab.run(version, 60, 90, "whole").status == "published"
    before = lab.rows("by_volume")
    lab.write([*steady(), *((65 + minute / 100, "A", 1.0, 100 + minute) for minute in range(50))])
    monkeypatch.setattr(
        stage_tasks, "with_group_limits", lambda requests, _: [replace(request, most_groups=20) for request in requests]
    )
    record = lab.run(version, 60, 90, "crowded")
    assert (record.status, record.revision) == ("published", 2)
    (diagnostic,) = record.diagnostics
    assert (diagnostic["code"], diagnostic["query"]) == (
        "HDL-602",
        "by_volume",
    ) and "20 groups of volume" in diagnostic["message"]
    assert lab.rows("by_volume") == before
    assert [line for line in lab.wrong(version, 60, 90) if line.startswith("by_symbol")] == []
    # nothing of the synopsis that is not whole is stored
    monkeypatch.undo()
    assert lab.run(version, 60, 90, "again", recompute=True).diagnostics == []
    assert lab.wrong(version, 60, 90) == []
