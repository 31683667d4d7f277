"""Columns in the names of folders: what DuckDB reads by itself and what was written, whatever the names are."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.workload.values import DATE, DOUBLE, LONG, STRING, TIMESTAMP, Partition, Source, Stream, Type
from spark_jobs.audit.unshared.duckdb_files import events_of
from spark_jobs.audit.unshared.measure import native_frame
from spark_jobs.streams.sources.decoding import check_columns, discover_schema, first_rows, read_split, read_splits
from spark_jobs.streams.sources.expressions import evaluate
from spark_jobs.streams.sources.files import files_of, splits_of
from spark_jobs.streams.sources.formats.source_format import ReadByRun
from spark_jobs.streams.sources.inspection import inspect
from spark_jobs.streams.sources.partition_columns import guessed_type, may_match
from tests.sizes import examples

JULY = 1_372_636_800_000_000
NULL = "__HIVE_DEFAULT_PARTITION__"
NAMES = ("day", "region", "n", "größe", "a b")
TEXTS = st.one_of(
    st.sampled_from(
        ["eu", "a b", "a%b", "ü/ö", "", "01", "x=y", "100%25", "NULL", "null", "+1", "'", '"', "é", ".", "~"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5).filter(lambda text: text != NULL),
)
VALUES: dict[str, tuple[Type, st.SearchStrategy[Any]]] = {
    "text": (STRING, TEXTS),
    "number": (LONG, st.integers(-(1 << 63), (1 << 63) - 1)),
    "date": (DATE, st.dates(dt.date(1, 1, 1))),
}


class Layout(NamedTuple):
    """Files in folders: the types of the folders' columns, and of each file its values and the numbers of its rows."""

    types: dict[str, Type]
    files: list[tuple[dict[str, Any], list[int]]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [values | {"x": number} for values, numbers in self.files for number in numbers]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    kinds = {name: VALUES[draw(st.sampled_from(sorted(VALUES)))] for name in names}
    files, used = [], 0
    for _ in range(draw(st.integers(1, 5))):
        values = {name: draw(st.one_of(st.none(), of)) for name, (_, of) in kinds.items()}
        count = draw(st.integers(1, 3))
        files.append((values, list(range(used, used + count))))
        used += count
    return Layout({name: type for name, (type, _) in kinds.items()}, files)


def folder_of(values: Mapping[str, Any], is_short: bool) -> str:
    """Folders with a value each, escaped as pyarrow does, or only where a name would be none."""
    texts = {name: NULL if value is None else escaped(str(value), is_short) for name, value in values.items()}
    return "/".join(f"{escaped(name, is_short)}={text}" for name, text in texts.items())


def escaped(text: str, is_short: bool) -> str:
    if not is_short:
        return quote(text, safe="")
    return re.sub(r"[%/=\x00-\x1f\x7f]", lambda match: quote(match[0], safe=""), text)


def written(layout: Layout, root: Path, format: str, is_short: bool) -> None:
    for number, (values, rows) in enumerate(layout.files):
        folder = root / folder_of(values, is_short)
        folder.mkdir(parents=True, exist_ok=True)
        write(rows_of(rows), folder / f"{number}.{format}", format)


def write(table: pa.Table, path: Path, format: str) -> None:
    if format == "json":
        path.write_text("".join(f"{json.dumps(row, default=str)}\n" for row in table.to_pylist()))
        return
    (pcsv.write_csv if format == "csv" else pq.write_table)(table, str(path))


def rows_of(numbers: Sequence[int]) -> pa.Table:
    times = pa.array([JULY + number for number in numbers], pa.timestamp("us"))
    return pa.table({"ts": times, "x": pa.array(numbers, pa.int64())})


def stream_of(root: Path, format: str, types: Mapping[str, Type], **options: Any) -> Stream:
    source = Source(format, str(root), partitions=tuple(Partition(name) for name in types), **options)
    return Stream("events", source, (("ts", TIMESTAMP), ("x", LONG), *types.items()), "ts")


def read(stream: Stream, encoded: Sequence[str] = ()) -> list[dict[str, Any]]:
    names = ["x", *(partition.name for partition in stream.source.partitions)]
    return [
        {name: row[name] for name in names}
        for split in splits_of(stream)
        for batch in read_split(stream, split, names, encoded)
        for row in batch.to_pylist()
    ]


def ordered(rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    return [[row[name] for name in sorted(row)] for row in sorted(rows, key=lambda row: row["x"])]


def in_duckdb(root: Path, format: str, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """What DuckDB reads with texts for the columns of the folders, by their names there."""
    function = {"csv": "read_csv", "json": "read_json", "parquet": "read_parquet"}[format]
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in names.values())
    sql = f"SELECT x, {columns} FROM {function}('{root}/**/*.{format}', hive_partitioning=true, hive_types_autocast=0)"
    rows = duckdb.execute(sql).fetchall()
    return [dict(zip(["x", *names], row, strict=True)) for row in rows]


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(layout=layouts(), is_short=st.booleans())
def test_folders_give_what_was_written(layout: Layout, is_short: bool, format: str, tmp_path: Path) -> None:
    root = tmp_path / uuid.uuid4().hex
    written(layout, root, format, is_short)
    stream = stream_of(root, format, layout.types)
    assert ordered(read(stream)) == ordered(layout.rows)
    assert ordered(read(stream, list(layout.types))) == ordered(layout.rows)
    texts = [{name: None if row[name] is None else str(row[name]) for name in layout.types} for row in layout.rows]
    expected = [text | {"x": row["x"]} for text, row in zip(texts, layout.rows, strict=True)]
    # DuckDB leaves names of columns as they are
    names = {name: escaped(name, is_short) for name in layout.types}
    assert ordered(in_duckdb(root, format, names)) == ordered(expected)
    check_columns(stream, splits_of(stream), list(layout.types))
    try:
        audited = events_of(stream, splits_of(stream), ["x", *layout.types], [(0, 1 << 60)])
    except ReadByRun:
        # a mark of a pattern in a name is not for DuckDB, nor a name of a column that is escaped
        assert any(mark in str(layout.files) for mark in "*?[]{}") or any(name != of for name, of in names.items())
    else:
        assert ordered(audited.to_pylist()) == ordered(layout.rows)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(layout=layouts())
def test_a_dataset_of_pyarrow_comes_back(layout: Layout, tmp_path: Path) -> None:
    root = tmp_path / uuid.uuid4().hex
    tables = [
        rows_of(rows).append_column("key", pa.array([number] * len(rows)))
        for number, (_, rows) in enumerate(layout.files)
    ]
    texts = {
        name: [None if values[name] is None else str(values[name]) for values, _ in layout.files]
        for name in layout.types
    }
    table = pa.concat_tables(tables)
    for name, of_files in texts.items():
        table = table.append_column(name, pa.array(of_files, pa.string()).take(table["key"]))
    parting = ds.partitioning(pa.schema([(name, pa.string()) for name in layout.types]), flavor="hive")
    # an empty text has no name there
    table = table.filter(pc.invert(pc.fill_null(_any_empty(table, list(layout.types)), False)))
    ds.write_dataset(table, root, format="parquet", partitioning=parting, existing_data_behavior="overwrite_or_ignore")
    if len(table):
        kept_numbers = set(table["x"].to_pylist())
        stream = stream_of(root, "parquet", layout.types)
        assert ordered(read(stream)) == ordered([row for row in layout.rows if row["x"] in kept_numbers])


def _any_empty(table: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    is_empty = pc.equal(table[names[0]], "")
    for name in names[1:]:
        is_empty = pc.or_kleene(is_empty, pc.equal(table[name], ""))
    return is_empty


SEGMENTS = st.text(st.characters(codec="utf-8", exclude_characters="\0/\n*?[]{}"), min_size=1, max_size=6).filter(
    lambda text: text[0] not in "._"
)


@pytest.mark.parametrize("format", ["csv", "json"])
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(folders=st.lists(st.tuples(SEGMENTS, SEGMENTS, st.dates(dt.date(1000, 1, 1))), min_size=1, max_size=5))
def test_a_pattern_gives_what_was_written(folders: list[tuple[str, str, dt.date]], format: str, tmp_path: Path) -> None:
    root = tmp_path / uuid.uuid4().hex
    expected = []
    for number, (shop, till, day) in enumerate(folders):
        folder = root / shop / f"till {till}" / f"{day.year:04}-{day.month}" / f"{day.day:02}"
        folder.mkdir(parents=True, exist_ok=True)
        write(rows_of([number]), folder / f"{number}.{format}", format)
        expected.append({"x": number, "shop": shop, "till": till, "year": day.year, "month": day.month, "day": day.day})
    types = {"shop": STRING, "till": STRING, "year": LONG, "month": LONG, "day": LONG}
    stream = stream_of(root, format, types, folders="{shop}/till {till}/{year}-{month}/{day}")
    assert ordered(read(stream)) == ordered(expected)
    audited = events_of(stream, splits_of(stream), ["x", *types], [(0, 1 << 60)])
    assert ordered(audited.to_pylist()) == ordered(expected)


CONDITIONS = (
    "region = 'eu'",
    "region <> 'eu'",
    "region IN ('eu', 'us')",
    "region IS NULL",
    "region LIKE 'e%' OR x > 3",
    "NOT region = 'eu'",
    "n > 5 AND x < 3",
    "n BETWEEN 2 AND 9 AND region = 'us'",
    "coalesce(n, 7) = 7",
    "x = 1",
    "region = 'eu' AND x = n",
    "n + 1 > 5 OR region IS NOT NULL",
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(CONDITIONS),
    st.sampled_from(["eu", "us", "e%", "", None]),
    st.one_of(st.none(), st.integers(0, 10)),
    st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=6),
)
def test_no_event_of_a_file_that_is_passed_over_satisfies_the_filter(
    condition: str, region: str | None, number: int | None, values: list[int | None]
) -> None:
    types = {"region": STRING, "n": LONG}
    stream = stream_of(Path("/data"), "csv", types)
    text = f"SELECT count(*) AS c FROM events WINDOW RANGE '1 day' SLIDE '1 day' ON ts WHERE {condition}"
    (query,) = parse(text, {"events": stream}).queries
    texts = (("region", region), ("n", None if number is None else str(number)))
    (split,) = [replace(_split(), folders=texts)]
    rows = pa.RecordBatch.from_pydict(
        {
            "x": pa.array(values, pa.int64()),
            "region": pa.array([region] * len(values), pa.string()),
            "n": pa.array([number] * len(values), pa.int64()),
        }
    )
    assert query.filter is not None
    satisfied = pc.any(pc.fill_null(evaluate(query.filter, rows, stream.types), False)).as_py()
    assert may_match(query.filter, stream, split) or not satisfied
    if condition == "region = 'eu'":
        assert may_match(query.filter, stream, split) == (region == "eu")


def _split() -> Any:
    from spark_jobs.streams.sources.splits import Split

    return Split("/data/f.csv", "f.csv|1|1")


# ------------------------------------------------------------------------------------------- by hand
@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "lake"
    for day in ("2024-01-30", "2024-01-31"):
        for region in ("eu", "us"):
            put(root / f"day={day}/region={region}/a.csv", f"{day}T05:00:00", region)
    yield root
    shutil.rmtree(root)


def put(path: Path, ts: str, *more: Any, header: str = "ts,x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{header}\n{ts},{','.join(map(str, more[1:])) or 1}\n")


def of_lake(root: Path, **options: Any) -> Stream:
    return stream_of(root, "csv", {"day": DATE, "region": STRING}, **options)


def refused(stream: Stream) -> HeddleError:
    with pytest.raises(HeddleError) as caught:
        read(stream)
    return caught.value


def test_a_value_of_another_type_is_reported_with_its_folder(lake: Path) -> None:
    put(lake / "day=tomorrow/region=eu/a.csv", "2024-01-30T05:00:00")
    error = refused(of_lake(lake))
    assert (
        error.diagnostic.code == "HDL-404"
        and "lake/day=tomorrow/region=eu" in str(error)
        and "'tomorrow'" in str(error)
    )
    stream = stream_of(lake, "csv", {"day": LONG, "region": STRING})
    assert refused(stream).diagnostic.code == "HDL-404"
    (finding,) = inspect(stream, ["day"]).diagnostics[:1]
    assert finding.code == "HDL-404"


@pytest.mark.parametrize(
    "name", ["a.csv", "day=2024-01-30/a.csv", "region=eu/a.csv", "day=2024-01-30/day=2024-01-31/region=eu/a.csv"]
)
def test_a_file_that_lacks_a_level_is_an_error(lake: Path, name: str) -> None:
    put(lake / name, "2024-01-30T05:00:00")
    error = refused(of_lake(lake))
    assert error.diagnostic.code == "HDL-485" and name in str(error)


def test_more_folders_and_another_order_are_no_matter(lake: Path) -> None:
    put(lake / "region=jp/x/day=2024-02-01/_n=3/a.csv", "2024-02-01T05:00:00")
    assert {(row["day"], row["region"]) for row in read(of_lake(lake))} >= {(dt.date(2024, 2, 1), "jp")}


def test_a_file_outside_a_pattern_is_named_and_not_read(tmp_path: Path) -> None:
    for name in ("logs/2024/01/31/a.csv", "logs/2024/01/31/more/a.csv", "logs/2024/01/a.csv", "logs/old/01/31/a.csv"):
        put(tmp_path / name, "2024-01-31T05:00:00")
    types = {"year": LONG, "month": LONG, "day": STRING}
    stream = stream_of(tmp_path / "logs", "csv", types, folders="{year}/{month}/{day}")
    assert [(row["year"], row["month"], row["day"]) for row in read(stream)] == [(2024, 1, "31")] * 2
    (warning,) = files_of(stream).warnings
    assert warning.code == "HDL-485" and warning.severity == "warning"
    assert "2 files" in warning.message and "2024/01/a.csv" in warning.message and "old/01/31/a.csv" in warning.message
    audited = events_of(stream, splits_of(stream), ["x", *types], [(0, 1 << 62)])
    assert ordered(audited.to_pylist()) == ordered(read(stream))


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_column_in_both_has_to_be_the_same(tmp_path: Path, format: str) -> None:
    root = tmp_path / "lake"
    (root / "n=7").mkdir(parents=True)
    stream = stream_of(root, format, {"n": LONG})
    for values, is_same in (([7, 7, None], True), ([7, 8, 7], False)):
        table = rows_of(range(3)).append_column("n", pa.array(values, pa.int64()))
        write(table, root / f"n=7/a.{format}", format)
        if is_same:
            assert [row["n"] for row in read(stream, ["n"])] == [7, 7, 7]
            continue
        error = refused(stream)
        assert error.diagnostic.code == "HDL-487" and "is 8 in row 2, its folder has 7" in error.diagnostic.message
        # what is not declared to be in the folders is the file's
        plain = replace(stream, source=replace(stream.source, partitions=()))
        assert [batch["n"].to_pylist() for split in splits_of(plain) for batch in read_split(plain, split, ["n"])] == [
            values
        ]


def test_a_column_that_only_folders_have_is_hinted_at(lake: Path) -> None:
    stream = of_lake(lake)
    plain = replace(stream, source=replace(stream.source, partitions=()))
    with pytest.raises(HeddleError) as caught:
        list(read_splits(plain, splits_of(plain), ["region"]))
    assert caught.value.diagnostic.code == "HDL-403"
    (finding, *_) = inspect(plain, ["region"]).diagnostics
    assert finding.code == "HDL-403" and "`partitions: [day, region]`" in finding.hint


def test_null_in_the_name_of_a_folder_is_no_warning(tmp_path: Path) -> None:
    (tmp_path / f"region={NULL}").mkdir()
    write(rows_of([1]), tmp_path / f"region={NULL}" / "a.json", "json")
    assert inspect(stream_of(tmp_path, "json", {"region": STRING}), ["region", "x"]).diagnostics == ()


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_the_time_may_be_in_the_folders_alone(tmp_path: Path, format: str) -> None:
    for day in ("2024-01-30", "2024-01-31"):
        folder = tmp_path / f"dt={day}"
        folder.mkdir()
        table = pa.table({"x": [1, 2]})
        write(table, folder / f"a.{format}", format)
    source = Source(format, str(tmp_path), partitions=(Partition("dt"),))
    stream = Stream("events", source, (("x", LONG), ("dt", TIMESTAMP)), "dt")
    times = [row["dt"] for row in pa.Table.from_batches(read_splits(stream, splits_of(stream), [])).to_pylist()]
    assert [time.day for time in times] == [30, 30, 31, 31]
    look = inspect(stream, ["x"])
    assert look.diagnostics == () and str(look).endswith("from 2024-01-30T00:00:00Z to 2024-01-31T00:00:00Z")
    assert first_rows(stream, splits_of(stream)[0], []) is not None


def test_files_are_chosen_by_a_pattern_of_their_names(tmp_path: Path) -> None:
    for number, name in enumerate(["a.parq", "b.PARQ", "c.parquet", "000000_0", "d.parq.tmp", ".e.parq", "f/g.parq"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(rows_of([number]), tmp_path / name)
    stream = stream_of(tmp_path, "parquet", {}, files="*.parq")
    assert sorted(row["x"] for row in read(stream)) == [0, 1, 6]
    (warning,) = files_of(stream).warnings
    assert warning.code == "HDL-414" and "000000_0, c.parquet" in warning.message and "*.parq" in warning.hint
    lone = replace(stream, source=Source("parquet", str(tmp_path / "000000_0")))
    assert [row["x"] for row in read(lone)] == [3]
    with pytest.raises(HeddleError, match="no file that matches x-"):
        files_of(stream_of(tmp_path, "parquet", {}, files="x-*"))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2024-01-31", None], DATE),
        (["1", "-2"], LONG),
        (["01", "12"], LONG),
        (["0123", "1234"], STRING),
        (["1.5", "2"], DOUBLE),
        (["2024-01-31 05:00:00"], TIMESTAMP),
        (["1", "eu"], STRING),
        ([""], STRING),
        ([None], STRING),
        (["99999999999999999999"], STRING),
        (["2024-02-30"], STRING),
        (["true"], STRING),
    ],
)
def test_types_are_guessed_from_all_folders(texts: list[str | None], expected: Type) -> None:
    assert guessed_type("k", texts) == expected


def test_a_stream_without_a_schema_has_the_columns_of_its_folders(tmp_path: Path) -> None:
    for day, shop in (("2024-01-30", "007"), ("2024-01-31", "12")):
        folder = tmp_path / f"day={day}" / f"shop={shop}"
        folder.mkdir(parents=True)
        pq.write_table(rows_of([1]).append_column("day", pa.array(["x"])).drop(["day"]), folder / "a.parquet")
    source = Source(
        "parquet",
        str(tmp_path),
        partitions=(
            Partition("day"),
            Partition("shop"),
        ),
    )
    stream, warnings = discover_schema(Stream("events", source, (), "ts"))
    assert dict(stream.schema) == {"ts": TIMESTAMP, "x": LONG, "day": DATE, "shop": STRING} and warnings == ()
    typed = replace(source, partitions=(Partition("day", STRING), Partition("shop")))
    assert dict(discover_schema(Stream("events", typed, (), "ts"))[0].schema)["day"] == STRING


@pytest.mark.spark
def test_spark_reads_the_same_columns(spark: Any, lake: Path) -> None:
    put(lake / f"day={NULL}/region=a%20b/a.csv", "2024-01-30T05:00:00", "", 2)
    stream = of_lake(lake)
    rows = native_frame(spark, stream).select("x", "day", "region").collect()
    assert sorted(map(str, (row.asDict() for row in rows))) == sorted(map(str, read(stream)))
    pattern = replace(stream, source=replace(stream.source, folders="{day}/{region}"))
    with pytest.raises(HeddleError, match="HDL-425"):
        native_frame(spark, pattern)
