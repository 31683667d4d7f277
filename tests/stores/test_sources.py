"""Sources in a store: the same events and answers as from a folder, whatever comes, goes and changes there."""

from __future__ import annotations

import gzip
import io
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.streams import load_streams
from optimizer.workload.values import LONG, Source, Stream, Workload
from spark_jobs.audit.unshared.measure import native_frame
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources import csv_source
from spark_jobs.streams.sources.decoding import discover_schema, first_rows, missing_columns, read_split
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.inspection import inspect
from spark_jobs.streams.sources.ledger import ledger
from tests import oracle
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, SCHEMA, Event, steady, table_of
from tests.spark_jobs.streams.feed import LATER
from tests.stores.credentials import WRONG
from tests.stores.proxy import Fate, Rule, StoreProxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("csv", "parquet", "delta")

ONE_QUERY = """
-- name: by_symbol
SELECT symbol, count(*) AS n, sum(volume) AS total, min(price) AS low, max(price) AS high
FROM trades WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
"""


class At:
    """A stream of one format at a place, to which files come."""

    def __init__(self, root: str, format: str, **options: Any) -> None:
        self.root, self.format = Place.of(root), format
        self.stream = Stream("trades", Source(format, root), (*SCHEMA, ("id", LONG)), "ts", **options)

    def put(self, name: str, events: Sequence[Event], ids: Sequence[int] = ()) -> None:
        numbers = [*ids, *range(1000, 2000)][: len(events)]
        table = table_of(events).append_column("id", pa.array(numbers, pa.int64()))
        if self.format == "delta":
            write_deltalake(self.root.url, table, mode="append")
            return
        sink = io.BytesIO()
        ending = self.format
        if self.format == "csv":
            pcsv.write_csv(table, sink)
        elif self.format == "json":
            ending += ".gz"
            lines = [json.dumps(row | {"ts": row["ts"].isoformat()}) for row in table.to_pylist()]
            sink.write(gzip.compress("\n".join(lines).encode(), mtime=0))
        else:
            pq.write_table(table, sink, row_group_size=7, compression="none", use_dictionary=False)
        file = self.root / f"{name}.{ending}"
        file.parent.make_folder()
        file.put(sink.getvalue())

    def remove(self, name: str) -> None:
        (self.root / f"{name}.{self.format}").remove()


def rows_of(source: At) -> list[Any]:
    """All that is read of a source, split by split, but for where its files are."""
    splits = splits_of(source.stream)
    names = [name for name, _ in source.stream.schema]
    assert missing_columns(source.stream, splits, names) == []
    split_records = []
    for split in splits:
        rows = pa.Table.from_batches(list(read_split(source.stream, split, names))).to_pylist()
        head = first_rows(source.stream, split, names)
        assert head is not None and head.to_pylist() == rows[: len(head)]
        name = split.path.removeprefix(source.root.url) if source.format != "delta" else ""
        split_records.append((name, split.row_groups, split.begin, split.end, split.rows, rows))
    return sorted(split_records, key=str) if source.format == "delta" else split_records


@pytest.fixture(autouse=True)
def unaudited(request: pytest.FixtureRequest) -> Iterator[None]:
    """Without a session of Spark nothing is audited."""
    with nullcontext() if "spark" in request.fixturenames else without_audit():
        yield


MINUTES = st.integers(0, 119)
EVENTS = st.lists(
    st.tuples(
        MINUTES.map(float),
        st.sampled_from(["A", "B", 'say "x",\nor', None]),
        st.sampled_from([1.5, -2.25, None]),
        st.integers(-5, 5) | st.none(),
    ),
    min_size=1,
    max_size=20,
)
NAMES = st.sampled_from(["a", "b", "sub/a", "sub/c d", "sub-1/é", "z=1/a%20b", "A"])
ON_PLACES = settings(
    max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("format", [*FORMATS, "json"])
@ON_PLACES
@given(files=st.dictionaries(NAMES, EVENTS, min_size=1, max_size=4))
def test_splits_are_those_of_a_folder(place: str, tmp_path: Path, format: str, files: dict[str, list[Event]]) -> None:
    under = uuid.uuid4().hex
    both = [At(f"{root}/{under}", format) for root in (str(tmp_path), place)]
    for source in both:
        for name, events in files.items():
            source.put(name, events)
        for name in ("_hidden/a", ".hidden", "sub/_b") if format != "delta" else ():
            source.put(name, steady(3))
        (source.root / "notes.txt").put(b"no events")
    local_source, remote_source = both
    assert rows_of(local_source) == rows_of(remote_source)
    looked = [inspect(source.stream, ["symbol", "volume"]).to_json() for source in both]
    assert looked[0] == looked[1]
    if format != "csv":
        bare = [Stream("trades", source.stream.source, (), "ts") for source in both]
        assert len({discover_schema(stream)[0].schema for stream in bare}) == 1


class House:
    """A source and a warehouse, both at one place, and runs over it in this process."""

    def __init__(self, root: str, format: str, engine: Any = None, **options: Any) -> None:
        self.engine = in_process() if engine is None else engine
        self.source = At(f"{root}/data", format, **options)
        self.warehouse = Warehouse.open(f"{root}/warehouse")
        self.runs = 0

    def plan(self) -> int:
        parsed = parse(ONE_QUERY, {"trades": self.source.stream})
        assert not parsed.diagnostics
        workload = Workload(parsed.queries, (self.source.stream,))
        return publish_plan(self.warehouse, build_plan(workload, {"trades": Fraction(1)}, "weave-share"))[0]

    def run(self, version: int, begin: int, end: int) -> RunRecord:
        self.runs += 1
        first, last = DAY + begin * MINUTE, DAY + end * MINUTE
        return run(self.engine, self.warehouse, version, first, last, f"run {self.runs}", as_of=LATER)

    def answers(self) -> list[dict[str, Any]]:
        rows = read(self.warehouse, "by_symbol").to_pylist()
        return sorted(rows, key=str)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, EVENTS, st.lists(st.integers(0, 9), max_size=20)),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("run")),
    ),
    min_size=2,
    max_size=6,
)


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("csv", {}),
        ("parquet", {"event_id": "id"}),
        ("csv", {"allowed_lateness": MINUTE}),
        pytest.param("parquet", {}, marks=pytest.mark.longer),
        pytest.param("csv", {"event_id": "id"}, marks=pytest.mark.longer),
        pytest.param("parquet", {"allowed_lateness": MINUTE}, marks=pytest.mark.longer),
    ],
    ids=str,
)
@settings(max_examples=examples(2), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_answers_are_those_of_a_folder(
    place: str, tmp_path: Path, format: str, options: dict[str, Any], steps: list[tuple[Any, ...]]
) -> None:
    under = uuid.uuid4().hex
    houses = [House(f"{root}/{under}", format, **options) for root in (str(tmp_path), place)]
    versions = []
    for house in houses:
        house.source.put("first", steady(60))
        versions.append(house.plan())
    for step in [("run",), *steps, ("run",)]:
        outcomes = []
        for house, version in zip(houses, versions, strict=True):
            if step[0] == "put":
                house.source.put(*step[1:])
            elif step[0] == "remove":
                house.source.remove(step[1])
            else:
                record = house.run(version, 0, 120)
                late = sorted(row["rows"] for row in house.warehouse.rows("quarantine"))
                outcomes.append((house.answers(), late, record.features.get("events_lifted")))
        assert outcomes == [] or outcomes[0] == outcomes[1]
    assert all(outdated(house.warehouse, LATER) == [] for house in houses)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_file_that_is_replaced_by_one_of_its_size(place: str, format: str) -> None:
    house = House(place, format)
    house.source.put("a", steady(60))
    version = house.plan()
    house.run(version, 0, 60)
    before, size = house.answers(), (house.source.root / f"a.{format}").info()
    house.source.put("a", [(at, symbol, 103.5, volume) for at, symbol, _, volume in steady(60)])
    again = (house.source.root / f"a.{format}").info()
    if format == "parquet":
        assert size is not None and again is not None and size.size == again.size
    assert len(outdated(house.warehouse, LATER)) == 1
    house.run(version, 0, 60)
    assert house.answers() != before and all(row["high"] == 103.5 for row in house.answers())
    events = [known.event for known in ledger(house.warehouse, "trades").values()]
    assert sorted(events) == ["came", "gone"]


# ------------------------------------------------------------------------------------------- requests
@pytest.mark.parametrize(("format", "driver", "most"), [("parquet", 2, 4), ("csv", 2, 7), ("delta", 7, 5)])
def test_requests_are_linear_in_the_files(
    place: str, proxy: StoreProxy, tmp_path: Path, format: str, driver: int, most: int
) -> None:
    """``driver``: requests a file to list it (of a Delta table four are for its commit); ``most``: of a run in a
    process that has listed it before. Of CSV a run reads new files twice, for the ledger and for the answers."""
    request_counts: list[tuple[int, int]] = []
    for count in (4, 12):
        source = At(f"{place}/{count}", format)
        for number in range(count):
            source.put(f"{number:03}", steady(10, 10 * number))
        proxy.counts()
        splits = splits_of(source.stream)
        missing_columns(source.stream, splits, ["symbol", "volume"])
        listing = proxy.counts().total()
        house = House(str(tmp_path / str(count)), format)  # requests are those for the source alone
        house.source = source
        version = house.plan()
        proxy.counts()
        assert house.run(version, 0, 120).failed == []
        request_counts.append((listing, proxy.counts().total()))
    (few, first), (many, second) = request_counts
    assert many - few <= 8 * driver and second - first <= 8 * most, request_counts


# --------------------------------------------------------------------------------------------- faults
@pytest.mark.parametrize(
    "rules",
    [
        (Rule(Fate.REFUSE, "GET", "/data/", times=4), Rule(Fate.REFUSE, "HEAD", "/data/", times=3)),
        (Rule(Fate.LOSE_ANSWER, "GET", "/data/", times=3, skip=1), Rule(Fate.LOSE_ANSWER, "HEAD", "/data/", times=2)),
        (Rule(Fate.CUT_OFF, "GET", "/data/", times=3, skip=1),),
    ],
    ids=["fewer requests are asked for", "answers are lost", "answers are cut off"],
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_store_that_suffers_is_asked_again(
    place: str, proxy: StoreProxy, format: str, rules: tuple[Rule, ...]
) -> None:
    source = At(f"{place}/data", format)
    for number in range(3):
        source.put(str(number), steady(20, 20 * number))
    expected = rows_of(source)
    proxy.set(0.0, *rules)
    try:
        assert rows_of(source) == expected
    except HeddleError as refused:
        # Arrow asks Azure three times more, and for a list that was cut off not once
        assert place.startswith("abfss:") and refused.diagnostic.code == "HDL-578"
        proxy.set()
        assert rows_of(source) == expected


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("fate", ["changed", "gone", "same size"])
def test_what_changes_between_listing_and_reading(place: str, format: str, fate: str) -> None:
    source = At(f"{place}/data", format)
    source.put("a", steady(30))
    (split,) = splits_of(source.stream)
    if fate == "gone":
        source.remove("a")
    else:
        source.put("a", steady(40) if fate == "changed" else [(at, who, 107.5, n) for at, who, _, n in steady(30)])
    with pytest.raises(HeddleError, match="(?s)HDL-402 .*run it again"):
        list(read_split(source.stream, split, ["price"]))


@pytest.mark.parametrize("format", FORMATS)
def test_what_goes_wrong_is_coded(
    place: str, format: str, through: dict[str, str], root_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = At(f"{place}/data", format)
    with pytest.raises(HeddleError, match="HDL-401 "):
        splits_of(source.stream)
    with pytest.raises(HeddleError, match="HDL-576 "):
        splits_of(At(f"{root_of('no-such-bucket-here')}/x", format).stream)
    source.put("a", steady(3))
    for name in WRONG.keys() & through.keys():
        with monkeypatch.context() as patched:
            patched.setenv(name, WRONG[name])
            with pytest.raises(HeddleError, match="HDL-577 ") as refused:
                splits_of(source.stream)
            assert WRONG[name] not in str(refused.value)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_damaged_files_are_told(place: str, format: str) -> None:
    source = At(f"{place}/data", format)
    content = b"ts,symbol,price,volume,id\nx,A,1,2,3\n" if format == "csv" else b"PAR1 and then PAR1"
    (source.root / f"bad.{format}").put(content)
    with pytest.raises(HeddleError, match=r"HDL-40[24] .*bad"):
        for split in splits_of(source.stream):
            list(read_split(source.stream, split, []))
    (source.root / f"bad.{format}").put(b"")
    if format == "parquet":
        with pytest.raises(HeddleError, match="HDL-402 "):
            splits_of(source.stream)
    else:
        (split,) = splits_of(source.stream)
        assert list(read_split(source.stream, split, [])) == []
        assert csv_source.names_of(source.stream, split.path, split.version) == ()


def test_lines_of_a_large_file_are_told(place: str) -> None:
    source = At(f"{place}/data", "csv")
    text = "ts,symbol,price,volume,id\n" + "2013-07-01 00:00:00,A,1.5,2,3\n" * 100_000
    (source.root / "a.csv").put((text + "2013-07-01 00:00:00,A,much,2,3\n").encode())
    (split,) = splits_of(source.stream)
    with pytest.raises(HeddleError, match="HDL-404 .*line 100002"):
        list(read_split(source.stream, split, ["price"]))


def test_other_streams_go_on(place: str, tmp_path: Path) -> None:
    house = House(place, "parquet")
    house.source.put("a", steady(60))
    lost = Stream("quotes", Source("parquet", f"{place}/nothing"), SCHEMA, "ts")
    text = ONE_QUERY + ONE_QUERY.replace("by_symbol", "other").replace("trades", "quotes")
    streams = {"trades": house.source.stream, "quotes": lost}
    workload = Workload(parse(text, streams).queries, tuple(streams.values()))
    version = publish_plan(house.warehouse, build_plan(workload, dict.fromkeys(streams, Fraction(1)), "weave-share"))[0]
    record = house.run(version, 0, 60)
    assert list(record.failed) == ["quotes"] and len(house.answers()) > 0


# -------------------------------------------------------------------------------------------- places
STREAMS = "streams:\n  trades: {source: {format: parquet, path: '@'}, time: ts, schema: {ts: timestamp}}\n"


@pytest.mark.parametrize(
    ("path", "roots", "code"),
    [
        ("s3://bucket/data", None, None),
        ("s3a://bucket//data/", ("s3://bucket/data",), None),
        ("s3://bucket/data/x", ("/else", "s3a://bucket/data/"), None),
        ("abfss://box@account.dfs.core.windows.net/x", ("abfss://box@account.dfs.core.windows.net",), None),
        ("s3://bucket/data2", ("s3://bucket/data",), "HDL-458"),
        ("s3://bucket2/data", ("s3://bucket",), "HDL-458"),
        ("gs://bucket/data", ("s3://bucket/data",), "HDL-458"),
        ("s3://bucket/data", ("/",), "HDL-458"),
        ("/data/x", ("s3://bucket",), "HDL-458"),
        ("s3://bucket/data/../x", ("s3://bucket",), "HDL-574"),
        ("s3:/bucket/data", None, "HDL-574"),
        ("https://bucket/data", None, "HDL-574"),
        ("s3://key:verysecret@bucket/x", None, "HDL-575"),
        ("s3://bucket/x?secret=verysecret", None, "HDL-458"),
        ("abfss://box:verysecret@account.dfs.core.windows.net/x", None, "HDL-575"),
        ("s3://bucket/x", ("s3://key:verysecret@bucket",), "HDL-575"),
    ],
)
def test_where_sources_may_lie(tmp_path: Path, path: str, roots: tuple[str, ...] | None, code: str | None) -> None:
    (tmp_path / "streams.yaml").write_text(STREAMS.replace("@", path))
    streams, diagnostics = load_streams(tmp_path / "streams.yaml", roots)
    assert [each.code for each in diagnostics] == ([] if code is None else [code])
    assert "verysecret" not in str(diagnostics)
    assert (code is None) == bool(streams)


def test_files_of_a_log_lie_where_sources_may(place: str, monkeypatch: pytest.MonkeyPatch, proxy: StoreProxy) -> None:
    source = At(f"{place}/data", "delta")
    source.put("a", steady(3))
    monkeypatch.setenv("HEDDLE_SOURCES", f"/else:{place}")
    assert len(splits_of(source.stream)) == 1
    monkeypatch.setenv("HEDDLE_SOURCES", f"{place}/dat")
    with pytest.raises(HeddleError, match="HDL-458 "):
        splits_of(source.stream)


@pytest.mark.parametrize(
    ("name", "root", "code"),
    [
        ("{root}/{there}", None, None),
        ("{other}/{there}", "{root}", None),
        ("{root}/{there}", "{data}", "HDL-458"),
        ("../else/x.parquet", None, "HDL-405"),
        ("gs://bucket/{there}", None, "HDL-405"),
        ("file:///etc/x.parquet", None, "HDL-405"),
    ],
)
def test_files_that_a_log_names_elsewhere(
    place: str,
    bucket: str,
    root_of: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    root: str | None,
    code: str | None,
) -> None:
    source = At(f"{place}/data", "delta")
    source.put("a", steady(3))
    (split,) = splits_of(source.stream)
    other_file = Place.of(f"{place}/else/x.parquet")
    other_file.put(Place.of(split.path).read())
    store = root_of(bucket)
    other = store.replace("s3:", "s3a:").replace("abfss:", "abfs:")
    words = {"root": store, "other": other, "there": other_file.url.removeprefix(f"{store}/"), "data": source.root.url}
    log = source.root / "_delta_log/00000000000000000000.json"
    log.put(log.read().replace(split.path.rpartition("/")[2].encode(), name.format(**words).encode()))
    if root is not None:
        monkeypatch.setenv("HEDDLE_SOURCES", root.format(**words))
    if code is None:
        assert [file_split.path for file_split in splits_of(source.stream)] == [other_file.url]
    else:
        with pytest.raises(HeddleError, match=f"{code} "):
            splits_of(source.stream)


def test_commands_take_streams_of_a_store(place: str, tmp_path: Path) -> None:
    for format in FORMATS:
        At(f"{place}/{format}", format).put("a", steady(90))
    declared = [
        f"  {format}: {{source: {{format: {format}, path: '{place}/{format}'}}, time: ts, "
        "schema: {ts: timestamp, symbol: string, price: double, volume: long}}\n"
        for format in FORMATS
    ]
    (tmp_path / "streams.yaml").write_text("streams:\n" + "".join(declared))
    queries = [ONE_QUERY.replace("trades", format).replace("by_symbol", f"of_{format}") for format in FORMATS]
    (tmp_path / "q.sql").write_text("".join(queries))
    streams = ["--streams", str(tmp_path / "streams.yaml")]
    for command in (["validate", str(tmp_path / "q.sql")], ["streams"], ["preview", str(tmp_path / "q.sql")]):
        done = CliRunner().invoke(app, [*command, *streams])
        assert done.exit_code == 0, done.output
        assert all(format in done.output for format in FORMATS)


@pytest.mark.parametrize(
    "format", ["csv", *(pytest.param(name, marks=pytest.mark.longer) for name in FORMATS if name != "csv")]
)
def test_tasks_of_spark_read_a_store(
    spark: SparkSession, place: str, format: str, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the session may have begun before the store was known
    for name, value in os.environ.items():
        if name.startswith(("AWS_", "AZURE_", "AZURITE_")):
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
    house = House(place, format, spark)
    for number in range(3):
        house.source.put(str(number), steady(40, 40 * number))
    version = house.plan()
    proxy.set(0.0, Rule(Fate.REFUSE, "GET", "/data/", times=3, skip=4))
    assert house.run(version, 0, 120).failed == []
    proxy.set()
    query = load_plan(house.warehouse, version).workload.queries[0]
    expected = oracle.answers(query, table_of(steady(120)), "ts", DAY, DAY + 120 * MINUTE)
    assert oracle.compare(query, read(house.warehouse, query.name), expected) == []


def test_deletion_vectors_and_other_names(spark: SparkSession, place: str, tmp_path: Path) -> None:
    """Made by Spark in a folder, and put as it is into a store."""
    local, table = tmp_path / "table", f"delta.`{tmp_path / 'table'}`"
    spark.sql(
        f"CREATE TABLE {table} (ts timestamp, v bigint, part string) USING delta PARTITIONED BY (part) TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} SELECT timestamp_micros(id), id, concat('a b%', id % 2) FROM range(0, 20, 1, 1)")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN v TO w")
    spark.sql(f"DELETE FROM {table} WHERE w IN (3, 4, 11)")
    for file in local.rglob("*"):
        if file.is_file():
            (Place.of(f"{place}/data") / str(file.relative_to(local))).put(file.read_bytes())
    contents = []
    for root in (str(local), f"{place}/data"):
        stream, problems = discover_schema(Stream("trades", Source("delta", root), (), "ts"))
        assert not problems
        splits = splits_of(stream)
        batches = [batch for split in splits for batch in read_split(stream, split, ["w", "part"])]
        rows = sorted((row["w"], row["part"]) for row in pa.Table.from_batches(batches).to_pylist())
        contents.append((rows, sorted((split.identity, split.rows) for split in splits)))
    assert contents[0] == contents[1]
    assert [number for number, _ in contents[0][0]] == [number for number in range(20) if number not in (3, 4, 11)]


def test_comparison_by_spark_is_refused(spark: SparkSession) -> None:
    with pytest.raises(HeddleError, match="HDL-425 .*in a store"):
        native_frame(spark, At("s3://bucket/data", "parquet").stream)
