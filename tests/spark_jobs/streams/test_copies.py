"""Copies of what only Spark reads: whatever comes, goes and changes, a copy holds what Spark reads then, each row once;
runs over it store the same partial rows and give the same answers as over the files themselves."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import partials_stage
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.copies import copying
from spark_jobs.streams.copies.copying import bring_up_to_date
from spark_jobs.streams.copies.readers import known_streams, reason, unseen
from spark_jobs.streams.sources.files import splits_of
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, Event, steady, table_of
from tests.spark_jobs.streams.copied_streams import LATER, rows_of, stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_COPIES", str(tmp_path / "copies"))


def rows_in(*tables: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for table in tables for row in table.to_pylist())


def to_json(table: pa.Table, path: Path) -> None:
    json_table = table.set_column(0, "ts", pc.strftime(table["ts"], "%Y-%m-%dT%H:%M:%SZ"))
    path.write_text("".join(json.dumps(row) + "\n" for row in json_table.to_pylist()))


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "orc": lambda table, path: po.write_table(table, path),
    "parquet": lambda table, path: pq.write_table(table, path),
    "json": to_json,
}
NAMES = ("a", "b [1]*", "c{d}é %20", "day=1/e", "day=x/f", "_hidden", ".dot")

events = st.lists(
    st.tuples(
        st.integers(0, 300).map(float) | st.none(),
        st.sampled_from(["A", "B", "é\n'", None]),
        st.floats(-1e6, 1e6, width=32) | st.none(),
        st.integers(-(1 << 53), 1 << 53) | st.none(),
    ),
    max_size=5,
)
steps = st.lists(st.tuples(st.sampled_from(NAMES), events | st.none()), min_size=1, max_size=5)


@pytest.mark.parametrize("format", WRITERS)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(history=st.lists(steps, min_size=1, max_size=3))
def test_a_copy_of_files_is_what_they_hold(
    format: str, history: list[list[tuple[str, list[Event] | None]]], spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / uuid.uuid4().hex
    (folder / "data").mkdir(parents=True)
    stream = stream_of(folder, f"{{format: {format}, path: data{', reader: spark' if format != 'orc' else ''}}}")
    files: dict[str, pa.Table] = {}
    for changes in history:
        for name, content in changes:
            path = folder / "data" / name
            if content is None:
                files.pop(name, None)
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(exist_ok=True)
                files[name] = table_of(content)
                WRITERS[format](files[name], path)
        seen = [table for name, table in files.items() if not name.startswith(("_", "."))]
        if not seen:
            with pytest.raises(HeddleError, match="HDL-401"):
                bring_up_to_date(spark, stream, LATER)
            continue
        done = bring_up_to_date(spark, stream, LATER)
        assert done is not None and rows_of(stream) == rows_in(*seen), (done, history)
        again = bring_up_to_date(spark, stream, LATER)
        assert again is not None and (again.pieces, again.rows, again.gone) == (0, 0, 0)


def write_all(spark: SparkSession, name: str, events: Sequence[Event]) -> None:
    spark.createDataFrame(table_of(events)).createOrReplaceTempView(name)


@settings(max_examples=examples(5), deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(pieces=st.lists(st.integers(1, 40), min_size=1, max_size=4), lateness=st.integers(0, 30))
def test_rows_without_files_come_once_as_their_times_do(
    pieces: list[int], lateness: int, spark: SparkSession, tmp_path: Path
) -> None:
    stream = stream_of(tmp_path, "{table: growing}", f", lateness: {lateness} minutes")
    # a copy of its own for each example
    stream = replace(stream, source=replace(stream.source, path=str(tmp_path / uuid.uuid4().hex / "trades")))
    now = 0
    for minutes in pieces:
        now += minutes
        # what is later than the clock is there already, and waits
        write_all(spark, "growing", steady(now + 20))
        bring_up_to_date(spark, stream, DAY + now * MINUTE)
        until = now - lateness
        assert rows_of(stream) == rows_in(table_of([event for event in steady(now + 20) if event[0] < until]))  # type: ignore[operator]


def test_what_is_empty_is_copied_as_such(spark: SparkSession, tmp_path: Path) -> None:
    write_all(spark, "none", steady(3))
    spark.sql("CREATE OR REPLACE TEMP VIEW none_yet AS SELECT * FROM none WHERE volume < 0")
    stream = stream_of(tmp_path, "{table: none_yet}")
    for _ in range(2):
        bring_up_to_date(spark, stream, LATER)
        assert rows_of(stream) == Counter()
    write_all(spark, "none_yet", steady(3))
    bring_up_to_date(spark, stream, LATER)
    assert rows_of(stream) == rows_in(table_of(steady(3)))


def test_rows_that_become_visible_later_are_found_in_the_newest_spans(spark: SparkSession, tmp_path: Path) -> None:
    stream = stream_of(tmp_path, "{table: slow, watermark: volume}")
    rows = [(float(n), "A", 1.0, n) for n in range(30)]
    write_all(spark, "slow", rows[:10])
    bring_up_to_date(spark, stream, LATER)
    write_all(spark, "slow", [*rows[:10], *rows[12:20]])
    bring_up_to_date(spark, stream, LATER)
    write_all(spark, "slow", rows)
    done = bring_up_to_date(spark, stream, LATER)
    assert done is not None and done.gone == 1 and rows_of(stream) == rows_in(table_of(rows))


def test_a_database_is_copied_by_its_watermark(spark: SparkSession, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "a-long-secret-of-the-shop")
    url = f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"
    options = "options: {driver: org.apache.derby.iapi.jdbc.AutoloadedDriver, user: app, password: '${SHOP_PASSWORD}'}"

    def insert(events: Sequence[Event], mode: str = "append") -> None:
        frame = spark.createDataFrame(table_of(events)).selectExpr("*", "volume as id")
        secret = {"user": "app", "password": "a-long-secret-of-the-shop"}
        frame.write.jdbc(url, "orders", mode, secret | {"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"})

    insert([(float(n), "A", n / 2, n) for n in range(10)])
    stream = stream_of(tmp_path, f"{{format: jdbc, path: '{url}', table: orders, watermark: id, {options}}}")
    bring_up_to_date(spark, stream, LATER)
    late = [(1.5, "B", 7.0, 10), (400.0, "C", 8.0, 11)]
    insert(late)  # type: ignore[arg-type]
    done = bring_up_to_date(spark, stream, LATER)
    assert done is not None and (done.pieces, done.rows) == (1, 2)
    assert rows_of(stream) == rows_in(table_of([*((float(n), "A", n / 2, n) for n in range(10)), *late]))  # type: ignore[list-item]
    monkeypatch.delenv("SHOP_PASSWORD")
    with pytest.raises(HeddleError, match="HDL-434.*SHOP_PASSWORD"):
        bring_up_to_date(spark, stream, LATER)
    monkeypatch.setenv("SHOP_PASSWORD", "another-secret-that-is-wrong")
    wrong = stream_of(tmp_path, f"{{format: jdbc, path: '{url}', table: nowhere, {options}}}")
    with pytest.raises(HeddleError, match="HDL-433") as caught:
        bring_up_to_date(spark, wrong, LATER)
    assert "another-secret" not in str(caught.value)


def test_rows_without_a_watermark_are_copied_too(spark: SparkSession, tmp_path: Path) -> None:
    stream = stream_of(tmp_path, "{table: holes, watermark: volume}")
    rows: list[Event] = [(float(n), "A", 1.0, None if n % 3 == 0 else n) for n in range(30)]
    for count, gone in ((10, 0), (10, 0), (11, 0), (30, 1)):
        write_all(spark, "holes", rows[:count])
        done = bring_up_to_date(spark, stream, LATER)
        assert done is not None and done.gone == gone and rows_of(stream) == rows_in(table_of(rows[:count]))
    write_all(spark, "holes", rows_with := [row for row in rows if row[3] is not None])
    done = bring_up_to_date(spark, stream, LATER)
    assert done is not None and done.gone == 1 and rows_of(stream) == rows_in(table_of(rows_with))


def test_timestamps_of_a_database_are_of_its_zone(spark: SparkSession, tmp_path: Path) -> None:
    url = f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"
    manager: Any = spark._jvm.java.sql.DriverManager  # type: ignore[union-attr]
    connection = manager.getConnection(url)
    statement = connection.createStatement()
    statement.execute("CREATE TABLE orders (ts TIMESTAMP, volume BIGINT)")
    clocks = ["2026-01-01 12:00:00", "2026-07-01 12:00:00", "2026-03-29 02:30:00", "2026-10-25 02:30:00"]
    instants = ["2026-01-01T11:00", "2026-07-01T10:00", "2026-03-29T01:30", "2026-10-25T00:30"]
    for number, clock in enumerate(clocks):
        statement.execute(f"INSERT INTO orders VALUES ('{clock}', {number})")
    source = f"{{format: jdbc, path: '{url}', table: orders, zone: Europe/Berlin"
    for watermark in ("", ", watermark: volume"):
        copies = uuid.uuid4().hex
        stream = stream_of(tmp_path, f"{source}{watermark}}}", schema=", schema: {ts: timestamp, volume: long}")
        stream = replace(stream, source=replace(stream.source, path=str(tmp_path / copies / "trades")))
        bring_up_to_date(spark, stream, 1 << 60)
        read = sorted(
            (row["volume"], row["ts"].strftime("%Y-%m-%dT%H:%M"))
            for row in DeltaTable(stream.source.path).to_pyarrow_table().to_pylist()
        )
        assert read == list(enumerate(instants))
        again = bring_up_to_date(spark, stream, 1 << 60)
        assert again is not None and again.pieces == 0


def test_tables_of_a_catalogue_are_read_by_whoever_can(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE DATABASE IF NOT EXISTS shop LOCATION '{tmp_path / 'shop'}'")
    try:
        write_all(spark, "few", steady(30))
        table_kinds = {
            "as_delta": ("delta", "direct"),
            "as_parquet": ("parquet", "direct"),
            "as_orc": ("orc", "spark"),
            "by_day": ("parquet PARTITIONED BY (symbol)", "spark"),
        }
        for name, (provider, _) in table_kinds.items():
            spark.sql(f"CREATE TABLE shop.{name} USING {provider} AS SELECT ts, price, volume, symbol FROM few")
        file = tmp_path / "streams.yaml"
        text = "".join(
            f"  {name}: {{source: {{table: shop.{name}}}, time: ts}}\n" for name in (*table_kinds, "no_such")
        )
        file.write_text("streams:\n" + text)
        _, known, problems = known_streams(file)
        assert [problem.code for problem in problems] == ["HDL-401"] and "no_such" in problems[0].message
        for name, (_, reader) in table_kinds.items():
            stream = known[name]
            assert (stream.source.origin is None) == (reader == "direct"), name
            assert reason(stream).startswith("Heddle" if reader == "direct" else "Spark")
            assert bool(unseen(stream)) == (reader == "spark")
            bring_up_to_date(spark, stream, LATER)
            assert rows_of(stream) == rows_in(table_of(steady(30)).select([name for name, _ in stream.schema])), name
        spark.sql("INSERT INTO shop.by_day SELECT ts, price, volume, 'Z' FROM few WHERE volume > 10")
        done = bring_up_to_date(spark, known["by_day"], LATER)
        assert done is not None and done.gone == 0 and 0 < done.rows < 30
    finally:
        spark.sql("DROP DATABASE shop CASCADE")


@pytest.mark.longer
def test_a_delta_table_that_heddle_does_not_understand_is_copied(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "table"
    write_all(spark, "few", steady(40))
    options = {"delta.enableDeletionVectors": "true", "delta.enableTypeWidening": "true"}
    spark.table("few").repartition(2).write.format("delta").options(**options).save(str(place))
    spark.sql(f"DELETE FROM delta.`{place}` WHERE volume = 3")
    file = tmp_path / "streams.yaml"
    file.write_text("streams: {trades: {source: {format: delta, path: table}, time: ts}}")
    _, known, problems = known_streams(file)
    assert not problems and "features that only Spark reads" in reason(known["trades"])
    remaining = [event for event in steady(40) if event[3] != 3]
    for volume in (3, 5):
        remaining = [event for event in remaining if event[3] != volume]
        spark.sql(f"DELETE FROM delta.`{place}` WHERE volume = {volume}")
        bring_up_to_date(spark, known["trades"], LATER)
        assert rows_of(known["trades"]) == rows_in(table_of(remaining))
    # back to an earlier version: the same file with another deletion vector
    spark.sql(f"RESTORE TABLE delta.`{place}` TO VERSION AS OF 1")
    bring_up_to_date(spark, known["trades"], LATER)
    assert rows_of(known["trades"]) == rows_in(table_of([event for event in steady(40) if event[3] != 3]))
    file.write_text("streams: {trades: {source: {format: delta, path: table, reader: direct}, time: ts}}")
    assert [problem.code for problem in known_streams(file)[2]] == ["HDL-405"]


def published(spark: SparkSession, warehouse: Warehouse, stream: Stream, until: int = 120) -> dict[str, list[Any]]:
    """The answers of a run over [0, until) minutes."""
    workload = Workload(parse(QUERIES, {"trades": stream}).queries, (stream,))
    version, _ = publish_plan(warehouse, build_plan(workload, {"trades": Fraction(1)}, "best"))
    run(spark, warehouse, version, DAY, DAY + until * MINUTE, f"r{uuid.uuid4().hex}", as_of=LATER)
    return {query.name: read(warehouse, query.name).to_pylist() for query in workload.queries}


def partials_of(warehouse: Warehouse) -> Counter[str]:
    # but for those that say which files they are of
    rows = [row for row in warehouse.dataset("partials").to_table().to_pylist() if row["bucket"] >= 0]
    return Counter(repr(sorted((name, value) for name, value in row.items() if name != "run_id")) for row in rows)


@pytest.mark.parametrize(
    "format", ["json", pytest.param("orc", marks=pytest.mark.longer), pytest.param("parquet", marks=pytest.mark.longer)]
)
def test_runs_over_a_copy_are_runs_over_the_files(
    format: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a task a file: in which order one adds the doubles of several depends on their names, and a copy has its own
    monkeypatch.setattr(partials_stage, "EVENTS_A_TASK", 1)
    (tmp_path / "data").mkdir()
    (tmp_path / "plain").mkdir()
    spoken = f"{{format: {format}, path: data{', reader: spark' if format != 'orc' else ''}}}"
    copied, direct = stream_of(tmp_path, spoken), stream_of(tmp_path, "{format: parquet, path: plain}")
    houses = {name: Warehouse.open(tmp_path / name) for name in ("copied", "direct")}
    for number, content in enumerate([steady(130), [(7.5, "A", 1.0, 2)], [(40.0, "B", 3.0, 4)]]):
        WRITERS[format](table_of(content), tmp_path / "data" / f"{number}.{format}")
        pq.write_table(table_of(content), tmp_path / "plain" / f"{number}.parquet")
        answers = [published(spark, houses["copied"], copied), published(spark, houses["direct"], direct)]
        shown = [{name: [{**row, "revision": 0} for row in rows] for name, rows in of.items()} for of in answers]
        assert shown[0] == shown[1] and all(shown[0].values())
        assert partials_of(houses["copied"]) == partials_of(houses["direct"])


def test_two_at_once_copy_nothing_twice(spark: SparkSession, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "data").mkdir()
    po.write_table(table_of(steady(10)), tmp_path / "data" / "a.orc")
    stream = stream_of(tmp_path, "{format: orc, path: data}")
    commit, pending = copying._commit, iter([1])

    def meanwhile(*arguments: Any) -> None:
        if next(pending, None):
            bring_up_to_date(spark, stream, LATER)
        commit(*arguments)

    monkeypatch.setattr(copying, "_commit", meanwhile)
    done = bring_up_to_date(spark, stream, LATER)
    assert done is not None and done.pieces == 0 and rows_of(stream) == rows_in(table_of(steady(10)))
    monkeypatch.undo()
    monkeypatch.setenv("HEDDLE_COPIES", str(tmp_path / "copies"))
    files = {path.name for path in Path(stream.source.path).glob("*.parquet")}
    assert files == {Path(split.path).name for split in splits_of(stream)}


BY_SPARK = "{format: json, path: data, reader: spark}"
BAD: Sequence[tuple[str, Callable[[Path], None], str]] = [
    (
        "{format: json, path: data, reader: spark}",
        lambda data: (data / "a.json").write_text('{"ts": "2013"\n') and None,
        "HDL-433",
    ),
    (
        "{format: json, path: data, reader: spark}",
        lambda data: (data / "a").write_text('{"volume": "x"}\n') and None,
        "HDL-404",
    ),
    ("{format: orc, path: data}", lambda data: (data / "a.orc").write_bytes(b"ORCno") and None, "HDL-433"),
    ("{format: orc, path: data}", lambda data: po.write_table(pa.table({"x": [1]}), data / "a.orc"), "HDL-403"),
    (
        "{format: orc, path: data}",
        lambda data: po.write_table(pa.table({"ts": ["x"], "volume": [1]}), data / "a.orc"),
        "HDL-404",
    ),
    ("{format: avro, path: data}", lambda data: (data / "a.avro").write_bytes(b"Obj") and None, "HDL-433"),
    ("{table: nowhere.at_all}", lambda data: None, "HDL-401"),
    ("{format: jdbc, path: 'jdbc:nowhere://x', table: y}", lambda data: None, "HDL-433"),
]


@pytest.mark.parametrize(("source", "write", "code"), BAD)
def test_what_cannot_be_copied_is_told(
    source: str, write: Callable[[Path], None], code: str, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    stream = stream_of(tmp_path, source)
    with pytest.raises(HeddleError) as caught:
        bring_up_to_date(spark, stream, LATER)
    assert caught.value.diagnostic.code == code, caught.value
    assert "\n" not in caught.value.diagnostic.message and len(caught.value.diagnostic.message) < 800
    with pytest.raises(HeddleError, match="HDL-432"):
        splits_of(stream)


def test_commands_say_who_reads(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    po.write_table(table_of(steady(60)), tmp_path / "data" / "a.orc")
    (tmp_path / "streams.yaml").write_text("streams: {trades: {source: {format: orc, path: data}, time: ts}}")
    (tmp_path / "q.sql").write_text(QUERIES)
    options = ["--streams", str(tmp_path / "streams.yaml")]
    runner = CliRunner()
    invocation = runner.invoke(app, ["streams", *options])
    assert invocation.exit_code == 0 and "warning HDL-432" in invocation.output
    checked = runner.invoke(app, ["validate", str(tmp_path / "q.sql"), *options])
    assert checked.exit_code == 0 and "2 queries usable, 0 errors" in checked.output, checked.output
    done = runner.invoke(app, ["copy", *options])
    assert done.exit_code == 0 and "copied 60 rows of 1 new piece" in done.stdout
    invocation = runner.invoke(app, ["streams", *options])
    assert invocation.exit_code == 0 and "read by Spark, into a copy at" in invocation.stdout, invocation.output
    assert runner.invoke(app, ["copy", "trade", *options]).exit_code != 0
    po.write_table(table_of(steady(61)), tmp_path / "data" / "a.orc")
    shown = runner.invoke(app, ["preview", str(tmp_path / "q.sql"), *options])
    assert shown.exit_code == 0 and "by_symbol" in shown.stdout, shown.output
