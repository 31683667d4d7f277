"""Late, refused, released and repeated events: answers are the oracle's over exactly the events that are taken in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from heddle.cli.run import _of_revision
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import TIMESTAMP
from spark_jobs.audit.checks.data_docs import FOLDER, document_file
from spark_jobs.operations.read import docs_page, read_operations
from spark_jobs.pipeline.run import history
from spark_jobs.store.warehouse import data_files
from spark_jobs.store.warehouse import warehouse as warehouse_module
from spark_jobs.store.warehouse.schemas import TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.ledger import ledger
from spark_jobs.streams.sources.refusals import refusals, release
from spark_jobs.streams.sources.repetitions import distinct, forget
from spark_jobs.streams.sources.splits import snapshot_token
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, Event, outdated, steady, table_of
from tests.spark_jobs.streams.feed import HOUR, LATER, Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def minutes(table: pa.Table) -> Any:
    return (table["ts"].cast(pa.int64()).to_numpy() - DAY) / MINUTE


def once(table: pa.Table) -> pa.Table:
    """The first event of each id and day, in plain Python."""
    seen: set[tuple[int, int]] = set()
    first_flags = []
    for row in table.to_pylist():
        key = (row["id"], row["ts"].toordinal()) if row["ts"] is not None and row["id"] is not None else None
        first_flags.append(key is None or key not in seen)
        seen |= {key} if key else set()
    return table.filter(pa.array(first_flags, pa.bool_()))


# ------------------------------------------------------------------------------------------- late events
def test_late_events_are_told_to_the_window_and_published(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path)
    feed.write("a", steady(120), 0)
    version = feed.plan()
    for begin in (0, 60):
        assert feed.run(version, begin, begin + 60, f"run {begin}").radius is None
    assert outdated(feed.warehouse, LATER) == []
    # 10:30 and no volume: by_symbol windows [0, 25) slide 10, `all` [0, 40) slide 15 where volume > 0
    feed.write("b", [(30.5, "A", 7.0, 0), (31, "C", 1.0, 5)], 120)
    first, second = outdated(feed.warehouse, LATER)
    # windows that end in (0, 60] and hold 30.5 or 31: by_symbol ends 35, 45, 55; all (31 alone) 40 and 55
    assert first.radius.queries == ("by_symbol", "all") and (first.radius.rows, first.radius.files) == (2, 1)
    assert first.radius.windows == 3 + 2 and first.radius.fragments == 2  # one of each query's; as in the README
    # (60, 120]: none of by_symbol reaches back to 31, of all [30, 70)
    assert second.radius.queries == ("all",) and second.radius.windows == 1
    # the operating view says the same
    shown = read_operations(feed.warehouse, look=True).stale
    assert shown is not None and [(interval.queries, interval.windows) for interval in shown] == [(2, 5), (1, 1)]
    # a look is no run: nothing was noted, nothing changed
    assert len(ledger(feed.warehouse, "trades")) == 1
    assert feed.wrong(version, 0, 120, feed.all()) != []
    record = feed.run(version, 0, 60, "repair")
    assert record.radius is not None and record.radius["windows"] == 5 and record.revision == 2
    # exactly these windows are of the new revision, without the other groups in them
    assert record.narrow and feed.revised(0, 60, 2) == {("by_symbol", end) for end in (35, 45, 55)} | {
        ("all", end) for end in (40, 55)
    }
    assert feed.revised(0, 60, 1) & feed.revised(0, 60, 2) == {("by_symbol", end) for end in (35, 45, 55)}
    rows = feed.warehouse.rows("results", ["query", "key", "revision"])
    revised = {(row["query"], row["key"]) for row in rows if row["revision"] == 2}
    assert revised == {("by_symbol", '["A"]'), ("by_symbol", '["C"]'), ("all", "[]")}
    # noted by that run, and still new to the other interval
    assert len(ledger(feed.warehouse, "trades")) == 2
    (remaining_interval,) = outdated(feed.warehouse, LATER)
    assert remaining_interval.radius == second.radius
    feed.run(version, 60, 120, "repair too")
    assert outdated(feed.warehouse, LATER) == [] and feed.wrong(version, 0, 120, feed.all()) == []


@pytest.mark.spark
def test_late_events_that_no_window_takes_replace_nothing(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path)
    feed.write("a", steady(60), 0)
    version = feed.plan(QUERIES[QUERIES.index("-- name: all") :])
    feed.run(version, 0, 60, "one")
    # no volume: not in the windows of `all`
    feed.write("b", [(30.5, "A", 7.0, 0)], 120)
    (interval,) = outdated(feed.warehouse, LATER)
    assert (interval.radius.rows, interval.radius.windows) == (1, 0)
    record = feed.run(version, 0, 60, "two")
    assert (record.status, record.revision, record.answers, record.narrow) == ("published", 2, 0, True)
    assert feed.revised(0, 60, 1) and not feed.revised(0, 60, 2)
    assert document_file(feed.warehouse.place / FOLDER, docs_page("two", 2))
    assert outdated(feed.warehouse, LATER) == [] and feed.wrong(version, 0, 60, feed.all()) == []


def test_the_ledger_knows_which_times_a_csv_file_holds(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path, "csv")
    feed.write("a", steady(60), 0)
    version = feed.plan()
    feed.run(version, 0, 60, "one")
    # the next hour's file does not make this one outdated, nor does it need the first to be read for it alone
    feed.write("b", [(at + 0.0, who, price, volume) for at, who, price, volume in steady(30, 120)], 60)
    assert outdated(feed.warehouse, LATER) == []
    assert feed.run(version, 120, 150, "two").rows_scanned == 30
    # events without a time are still met and counted
    feed.write("c", [(None, "A", 1.0, 1), (140, "A", 1.0, 1)], 60)
    assert feed.run(version, 120, 150, "three").rows_without_time == 1
    feed.write("d", [], 60)
    feed.run(version, 60, 150, "four")
    assert feed.wrong(version, 0, 150, feed.all()) == []


def test_windows_that_were_withheld_are_in_the_radius(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path)
    feed.write("a", steady(120), 0)
    version = feed.plan()
    feed.run(version, 0, 60, "early", clock=DAY + 40 * MINUTE)
    (interval,) = outdated(feed.warehouse, LATER)
    # by_symbol ends at 45, 55; all at 55
    assert (interval.radius.files, interval.radius.rows, interval.radius.windows) == (0, 0, 3)


def test_a_file_that_went_counts_by_time(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path)
    feed.write("a", steady(60), 0)
    path = feed.write("b", [(70, "A", 1.0, 1)], 0)
    version = feed.plan()
    feed.run(version, 0, 60, "one")
    feed.run(version, 60, 120, "two")
    path.unlink()
    del feed.files["b"]
    (interval,) = outdated(feed.warehouse, LATER)
    # ends after 70 and begins before: 75, 85, 95 and 85, 100
    assert (interval.begin - DAY) // MINUTE == 60 and (interval.radius.rows, interval.radius.windows) == (0, 5)
    feed.run(version, 60, 120, "again")
    assert outdated(feed.warehouse, LATER) == [] and feed.wrong(version, 0, 120, feed.all()) == []
    assert [arrival.event for arrival in ledger(feed.warehouse, "trades").values()] == ["came", "gone"]


# --------------------------------------------------------------------------------------- refused events
@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_what_comes_later_than_is_allowed_is_counted_and_left_out(engine: Any, tmp_path: Path, format: str) -> None:
    feed = Feed(engine, tmp_path, format, allowed_lateness=30 * MINUTE)
    feed.write("a", steady(120), 0)
    version = feed.plan()
    feed.run(version, 0, 60, "one")
    # came at 100: 20 is published and 80 minutes old; 90 is not published; 75 is published later
    late: list[Event] = [(20, "A", 7.0, 5), (90, "C", 1.0, 1), (65, "B", 1.0, 1)]
    feed.write("b", late, 100)
    assert outdated(feed.warehouse, LATER) == []
    record = feed.run(version, 60, 120, "two")
    assert record.refused == {"trades": 1} and record.revision == 1
    (row,) = feed.warehouse.rows("quarantine")
    assert (row["code"], row["rows"], row["stream"], row["run_id"]) == ("HDL-411", 1, "trades", "two")
    assert outdated(feed.warehouse, LATER) == []
    all_events = feed.all()
    accepted = all_events.filter(pa.array(~((minutes(all_events) == 20) & (all_events["price"].to_numpy() == 7.0))))
    assert feed.wrong(version, 0, 120, accepted) == []
    # a retry, a backfill over all of it, a plan of other windows: the same events
    feed.run(version, 0, 120, "backfill")
    assert feed.wrong(version, 0, 120, accepted) == []
    other = feed.plan(QUERIES.replace("25 minutes", "35 minutes"))
    assert feed.run(other, 0, 120, "other plan").refused == {"trades": 1}
    assert feed.wrong(other, 0, 120, accepted) == []
    assert len(feed.warehouse.rows("quarantine")) == 1
    # released: taken in by a repair, and only then
    with pytest.raises(HeddleError, match="HDL-412"):
        release(feed.warehouse, ["c"])
    (arrival,) = release(feed.warehouse, [f"b.{format}"])
    assert arrival.late == 1 and refusals(feed.warehouse) == []
    (interval,) = outdated(feed.warehouse, LATER)
    assert interval.radius.rows >= 1 and "by_symbol" in interval.radius.queries
    feed.run(other, 0, 120, "repair")
    assert feed.wrong(other, 0, 120, feed.all()) == []


def test_corrections_are_never_refused(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path, allowed_lateness=MINUTE)
    feed.write("a", steady(60), 0)
    feed.write("b", steady(60, 60), 0)
    version = feed.plan()
    feed.run(version, 0, 120, "one")
    # rewritten with another price; and both compacted into one
    feed.write("a", [(at, who, 1.5, volume) for at, who, _, volume in steady(60)], 500)
    feed.run(version, 0, 120, "two")
    assert refusals(feed.warehouse) == [] and feed.wrong(version, 0, 120, feed.all()) == []
    all_events = feed.all()
    for name in ("a", "b"):
        (feed.folder / f"{name}.parquet").unlink()
    pq.write_table(all_events, feed.folder / "c.parquet")
    feed.run(version, 0, 120, "three")
    assert refusals(feed.warehouse) == [] and feed.wrong(version, 0, 120, all_events) == []
    assert len(feed.warehouse.rows("quarantine")) == 0


def test_what_was_never_published_is_never_too_late(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path, allowed_lateness=MINUTE)
    feed.write("a", steady(120), 0)
    version = feed.plan()
    feed.run(version, 60, 120, "one")
    feed.write("b", [(20, "A", 7.0, 5)], 10_000)
    # nobody had published [0, 60)
    assert feed.run(version, 0, 60, "two").refused == {}
    assert feed.wrong(version, 0, 120, feed.all()) == []


def test_a_look_at_a_new_file_says_what_a_run_will_refuse(tmp_path: Path) -> None:
    """Tokens: a file of which everything is refused is as if it were not there; of which a part is, is another file."""
    feed = Feed(None, tmp_path)
    feed.write("a", [(5, "A", 1.0, 1), (50, "A", 1.0, 1)], 0)
    (split,) = splits_of(feed.stream)
    low, high = DAY, DAY + HOUR
    all_of_it = replace(split, refused=((low, high),))
    part = replace(split, refused=((low, low + 10 * MINUTE),))
    tokens = [snapshot_token([variant], low, high) for variant in (split, all_of_it, part)]
    assert len(set(tokens)) == 3 and tokens[1] == snapshot_token([], low, high)
    assert snapshot_token([part], low + 10 * MINUTE, high) == snapshot_token([split], low + 10 * MINUTE, high)
    assert snapshot_token([part], low, low + 10 * MINUTE) == snapshot_token([], low, low + 10 * MINUTE)
    assert [minutes(pa.table(batch)).tolist() for batch in read_split(feed.stream, part, [])] == [[50.0]]


# -------------------------------------------------------------------------------------- repeated events
EVENTS = st.lists(
    st.tuples(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 200), st.integers(1430, 1450)),  # about midnight, too
            st.sampled_from("AB"),
            st.integers(1, 9).map(float),
            st.integers(0, 3),
        ),
        st.one_of(st.none(), st.integers(1, 6)),
    ),
    max_size=10,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, min_size=1, max_size=4), st.sampled_from(["parquet", "csv"]), st.integers(0, 1500))
def test_one_event_of_an_id_and_day_is_read(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[Event, int | None]]], format: str, begin: int
) -> None:
    feed = Feed(None, tmp_path_factory.mktemp("feed"), format, event_id="id")
    for number, file in enumerate(files):
        feed.write(f"f{number}", [event for event, _ in file], 0, [number for _, number in file])
    splits = splits_of(feed.stream)
    for _ in range(2):  # from the files, then from what was kept
        distinct_splits = distinct(feed.warehouse, feed.stream, splits, DAY + begin * MINUTE, DAY + 1500 * MINUTE)
        batches = [
            batch
            for split in distinct_splits
            for batch in read_split(feed.stream, split, ["id", "symbol", "price", "volume"])
        ]
        rows = [row for batch in batches for row in batch.to_pylist()]
        # whole days from the midnight before `begin` on
        expected_rows = [
            row for row in once(feed.all()).to_pylist() if row["ts"] is None or _minute(row["ts"]) >= begin
        ]
        seen = [row for row in rows if row["ts"] is None or _minute(row["ts"]) >= begin]
        names = sorted(feed.files[next(iter(feed.files))].schema.names)
        assert [[row[name] for name in names] for row in seen] == [
            [row[name] for name in names] for row in expected_rows
        ]
    file_count = len(list((feed.warehouse.root / "repeated").glob("*")))
    assert forget(feed.warehouse, 0, False) == 0 and forget(feed.warehouse, 1e12, True) == file_count
    assert forget(feed.warehouse, 1e12, False) == file_count and forget(feed.warehouse, 1e12, False) == 0


def test_what_is_refused_is_no_events_first(tmp_path: Path) -> None:
    feed = Feed(None, tmp_path, event_id="id")
    feed.write("a", [(5, "A", 1.0, 1)], 0, [7])
    feed.write("b", [(50, "A", 2.0, 1)], 0, [7])
    first, second = splits_of(feed.stream)
    late = replace(first, refused=((DAY, DAY + 10 * MINUTE),))
    distinct_splits = distinct(feed.warehouse, feed.stream, [late, second], DAY, DAY + HOUR)
    batches = [batch for split in distinct_splits for batch in read_split(feed.stream, split, ["price"])]
    assert [price for batch in batches for price in batch.column("price").to_pylist()] == [2.0]


def _minute(moment: Any) -> float:
    return (moment.timestamp() * 1e6 - DAY) / MINUTE


def test_repeated_events_count_once_whatever_comes_when(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path, event_id="id", allowed_lateness=DAY)
    feed.write("a", steady(90), 0, list(range(90)))
    version = feed.plan()
    record = feed.run(version, 0, 90, "one")
    assert record.repeated == {} and feed.wrong(version, 0, 90, feed.all()) == []
    # sent again: nothing changes but what is new
    feed.write("b", [*steady(90)[30:], (60.5, "A", 2.0, 2)], 0, [*range(30, 90), 1000])
    (interval,) = outdated(feed.warehouse, LATER)
    assert interval.radius.files == 1
    record = feed.run(version, 0, 90, "two")
    assert record.repeated == {"trades": 60}
    # the event that is new alone is late
    assert record.radius is not None and record.radius["rows"] == 1
    assert feed.wrong(version, 0, 90, once(feed.all())) == []
    # the first file is taken back: the second one's events count now
    (feed.folder / "a.parquet").unlink()
    del feed.files["a"]
    feed.run(version, 0, 90, "three")
    assert feed.wrong(version, 0, 90, feed.all()) == []


def test_an_event_id_that_is_declared_later_recomputes(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path)
    feed.write("a", steady(60), 0, list(range(60)))
    feed.write("b", steady(60), 0, list(range(60)))
    version = feed.plan()
    feed.run(version, 0, 60, "one")
    assert feed.wrong(version, 0, 60, feed.all()) == []
    feed.stream = replace(feed.stream, event_id="id")
    again = feed.plan()
    assert again != version
    feed.run(again, 0, 60, "two")
    assert feed.wrong(again, 0, 60, once(feed.all())) == []


def test_an_event_that_becomes_a_repetition_is_missed(engine: Any, tmp_path: Path) -> None:
    """A file of other times, earlier in the order of files, brings the first event of an id: what was taken for it is
    none any more, in an interval that the file does not reach."""
    feed = Feed(engine, tmp_path, event_id="id")
    feed.write("b", steady(60, 120), 0, list(range(60)))
    version = feed.plan()
    feed.run(version, 120, 180, "one")
    feed.write("a", [(5, "A", 7.0, 3)], 0, [45])
    assert [interval.begin for interval in outdated(feed.warehouse, LATER)] == [DAY + 120 * MINUTE]
    record = feed.run(version, 120, 180, "again")
    assert record.revision == 2 and not record.narrow
    assert feed.wrong(version, 120, 180, once(feed.all())) == []
    # a file that makes nothing a repetition changes nothing
    feed.write("c", [(6, "A", 7.0, 3)], 0, [999])
    assert outdated(feed.warehouse, LATER) == []


def test_another_column_of_times_recomputes(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path)
    feed.schema = (*feed.schema, ("seen", TIMESTAMP))
    feed.stream = replace(feed.stream, schema=feed.schema)
    events = table_of(steady(60)).append_column("id", pa.array(range(60), pa.int64()))
    seen = pc.add(events["ts"], pa.scalar(7 * MINUTE, pa.duration("us")))
    pq.write_table(events.append_column("seen", seen), feed.folder / "a.parquet")
    version = feed.plan()
    feed.run(version, 0, 60, "one")
    feed.stream = replace(feed.stream, time="seen")
    again = feed.plan(QUERIES.replace("ON ts", "ON seen"))
    assert feed.run(again, 0, 60, "two").status == "published"


@settings(max_examples=examples(4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_order_of_files_runs_and_repairs_gives_the_oracles_answers(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Files with late, refused and repeated events between runs of any intervals: what is published is of exactly the
    events that the rules take in, reckoned here event by event."""
    allowed, event_id = data.draw(st.sampled_from([None, 20, 90])), data.draw(st.sampled_from([None, "id"]))
    lateness = {} if allowed is None else {"allowed_lateness": allowed * MINUTE}
    feed = Feed(
        engine,
        tmp_path_factory.mktemp("feed"),
        data.draw(st.sampled_from(["parquet", "csv"])),
        event_id=event_id,
        **lateness,
    )
    feed.write("f0", steady(180), 0, list(range(180)))
    version = feed.plan()
    refused: dict[str, set[int]] = {"f0": set()}
    published: list[tuple[int, int]] = []
    came = 0
    for number in range(1, 4):
        begin, end = data.draw(st.sampled_from([(0, 60), (60, 120), (0, 120), (0, 180), (0, 180)]))
        feed.run(version, begin, end, f"run {number}")
        published.append((begin, end))
        came += data.draw(st.integers(10, 90))
        times = data.draw(st.lists(st.integers(0, 179), min_size=1, max_size=5))
        ids = data.draw(st.lists(st.integers(0, 250), min_size=len(times), max_size=len(times)))
        feed.write(f"f{number}", [(at + 0.5, "A", float(number), 1) for at in times], came, ids)
        refused[f"f{number}"] = {
            place
            for place, at in enumerate(times)
            if allowed is not None
            and any(low <= at + 0.5 < high for low, high in published)
            and at + 0.5 < came - allowed
        }
    feed.run(version, 0, 180, "first look at all")
    for interval in outdated(feed.warehouse, LATER):
        feed.run(version, (interval.begin - DAY) // MINUTE, (interval.end - DAY) // MINUTE, f"repair {interval.begin}")
    accepted = pa.concat_tables(
        table.filter(pa.array([place not in refused[name] for place in range(len(table))]))
        for name, table in sorted(feed.files.items())
    )
    assert feed.wrong(version, 0, 180, accepted if event_id is None else once(accepted)) == []
    assert outdated(feed.warehouse, LATER) == []
    quarantined_rows = sum(row["rows"] for row in feed.warehouse.rows("quarantine"))
    assert quarantined_rows == sum(len(places) for places in refused.values())


# ------------------------------------------------------------------------------------------- the rest
def test_delta_sources_grow_and_are_optimized(engine: Any, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    feed = Feed(engine, tmp_path, "delta", allowed_lateness=MINUTE)
    rows = table_of(steady(60)).append_column("id", pa.array(range(60), pa.int64()))
    write_deltalake(str(feed.folder), rows)
    version = feed.plan()
    feed.run(version, 0, 60, "one")
    late = table_of([(20, "A", 7.0, 5)]).append_column("id", pa.array([99], pa.int64()))
    write_deltalake(str(feed.folder), late, mode="append")
    assert feed.run(version, 0, 60, "two").refused == {"trades": 1}
    assert feed.wrong(version, 0, 60, rows) == []
    # compacting mixes what was refused with the rest: then it is taken in, as a new revision
    DeltaTable(str(feed.folder)).optimize.compact()
    assert len(outdated(feed.warehouse, LATER)) == 1
    record = feed.run(version, 0, 60, "three")
    assert record.refused == {} and feed.wrong(version, 0, 60, pa.concat_tables([rows, late])) == []


def test_tables_of_a_later_heddle_are_made_in_older_warehouses(tmp_path: Path) -> None:
    import shutil

    house = Warehouse.open(tmp_path / "house")
    shutil.rmtree(house.path("source_files"))
    assert Warehouse.open(tmp_path / "house").rows("source_files") == []
    assert all((house.root / name / "_delta_log").is_dir() for name in TABLES)


def test_quarantine_on_the_command_line(engine: Any, tmp_path: Path) -> None:
    feed = Feed(engine, tmp_path, allowed_lateness=MINUTE)
    feed.write("a", steady(60), 0)
    version = feed.plan()
    house = ["quarantine", "--warehouse", str(feed.warehouse.root)]
    feed.run(version, 0, 60, "one")
    assert "no event came too late" in CliRunner().invoke(app, house).stdout
    feed.write("b", [(20, "A", 7.0, 5)], 500)
    feed.run(version, 0, 60, "two")
    invocation = CliRunner().invoke(app, house)
    assert invocation.exit_code == 0 and "b.parquet" in invocation.stdout and "trades" in invocation.stdout
    assert CliRunner().invoke(app, [*house, "--release", "x"]).exit_code == 1
    done = CliRunner().invoke(app, [*house, "--release", "b.parquet", "--json"])
    assert done.exit_code == 0 and '"released": [' in done.stdout and '"refused": []' in done.stdout


def test_nothing_is_left_out_of_streams_without_these_settings(tmp_path: Path) -> None:
    feed = Feed(None, tmp_path)
    feed.write("a", steady(20), 0, [1] * 20)
    splits = splits_of(feed.stream)
    assert distinct(feed.warehouse, feed.stream, splits, DAY, DAY + HOUR) is splits
    assert (
        np.concatenate(
            [minutes(pa.table(batch)) for split in splits for batch in read_split(feed.stream, split, [])]
        ).size
        == 20
    )


def test_a_repair_rewrites_the_files_of_its_windows_alone(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "FILE_ROWS", 12)
    feed = Feed(engine, tmp_path)
    feed.write("a", steady(60), came=60)
    window = "WINDOW RANGE '10 minutes' SLIDE '5 minutes' ON ts"
    version = feed.plan(
        f"-- name: of_a\nSELECT count(*) FROM trades WHERE symbol = 'A' {window};\n"
        f"-- name: a_quiet_one\nSELECT count(*) FROM trades WHERE symbol = 'B' {window};\n"
        f"-- name: of_z\nSELECT max(volume) FROM trades {window};"
    )
    first = feed.run(version, 0, 60, "one")
    assert first.rewritten == {"files": 0, "bytes": 0, "rows": 0} and first.answers == 36
    # what stays of the first file is laid out by query
    feed.write("b", [(50.5, "A", 1.0, 1)], came=65)
    feed.run(version, 0, 60, "two")
    before = {file["path"]: file["min.query"] for file in feed.warehouse.files("results", "", "9")}
    assert sorted(before.values()) == ["a_quiet_one", "of_a", "of_a"]
    read: list[str] = []
    original_read = warehouse_module.read_file
    monkeypatch.setattr(
        warehouse_module, "read_file", lambda path: read.append(Path(str(path)).name) or original_read(path)
    )
    feed.write("c", [(20.5, "A", 1.0, 1)], came=70)
    record = feed.run(version, 0, 60, "three")
    # the greatest volume of two windows stays
    assert record.narrow and (record.status, record.answers) == ("published", 2)
    assert record.features["answers"] == 4
    after = {file["path"] for file in feed.warehouse.files("results", "", "9")}
    removed_paths = [path for path in before if path not in after]
    assert [before[path] for path in removed_paths] == ["of_a"]
    # no other is even read whole
    assert set(read) & {Path(path).name for path in before} == {Path(path).name for path in removed_paths}
    assert (record.rewritten["files"], record.rewritten["rows"]) == (1, 20) and record.rewritten["bytes"] > 0
    report_lines = _of_revision(record.to_json())
    assert report_lines[-1].startswith("written again with what was replaced: 20 other answers in 1 file, ")
    assert record.readers is not None and (record.readers["before"], record.readers["after"]) == (36, 36)
    assert feed.wrong(version, 0, 60, feed.all()) == []


def test_a_repair_looks_at_what_may_have_changed_alone(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(engine, tmp_path)
    feed.write("a", steady(240), came=240)
    version = feed.plan()
    for begin in range(0, 240, 60):
        feed.run(version, begin, begin + 60, f"run {begin}")
    looked: list[int] = []
    look = history.changed_since

    def watched(house: Any, plan: Any, listing: Any, row: Any, *arguments: Any) -> Any:
        looked.append((row.begin - DAY) // MINUTE)
        return look(house, plan, listing, row, *arguments)

    monkeypatch.setattr(history, "changed_since", watched)
    assert history.outdated(feed.warehouse, LATER) == [] and looked == []
    # windows that end until 160 hold it, and none of the first hour and the last
    feed.write("b", [(119.5, "A", 1.0, 1)], came=245)
    begin_minutes = [(interval.begin - DAY) // MINUTE for interval in history.outdated(feed.warehouse, LATER)]
    assert begin_minutes == looked == [60, 120]
