"""Fields of structs, values of maps and elements of arrays: what is read, and answers as DuckDB gives."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.nested import MOST_LEAVES, Nested, Step
from optimizer.workload.nested import Path as LeafPath
from optimizer.workload.streams import parse_column, with_schema
from optimizer.workload.values import ACQ, SECOND, TIMESTAMP, Source, Stream, Workload, from_json, to_json
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import discover_schema, missing_columns, read_split
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.leaves import Leaf
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.oracle import answers, compare
from tests.sizes import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60 * SECOND
BEGIN, END = 0, 240 * MINUTE

LEG = pa.struct([("fee", pa.decimal128(10, 2)), ("stops", pa.list_(pa.string()))])
GEO = pa.struct([("lat", pa.float64()), ("ok", pa.bool_())])
EVENTS = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("a.b", pa.int64()),
        ("a", pa.struct([("b", pa.int64())])),
        ("place", pa.struct([("City", pa.string()), ("zip code", pa.int32()), ("geo", GEO)])),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("by_id", pa.map_(pa.int32(), pa.struct([("n", pa.int64())]))),
        ("legs", pa.list_(LEG)),
    ]
)
NUMBERS = {
    "`a.b`": '"a.b"',
    "a.b": '"a"."b"',
    "events.place.`Zip code`": 'place."zip code"',
    "tags['k']": "map_extract(tags, 'k')[1]",
    r"tags['it\'s \"']": "map_extract(tags, 'it''s \"')[1]",
    "by_id[-5].n": "map_extract(by_id, -5)[1].n",
    "by_id[7].n": "map_extract(by_id, 7)[1].n",
    "legs[0].fee": "legs[1].fee",
    "legs[2].fee": "legs[3].fee",
}
TEXTS = {"place.city": "place.City", "legs[0].stops[1]": "legs[1].stops[2]"}
"""Leaves as queries write them, and as DuckDB does, whose arrays begin with 1."""

TRUTHS = {"place.geo.ok": "place.geo.ok"}


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


_SMALL = maybe(st.integers(-5, 5))
_TEXT = maybe(st.sampled_from(["", "x", "é", "y"]))
ROWS = st.fixed_dictionaries(
    {
        "ts": st.integers(BEGIN // MINUTE, END // MINUTE).map(lambda minute: minute * MINUTE),
        "a.b": _SMALL,
        "a": maybe(st.fixed_dictionaries({"b": _SMALL})),
        "place": maybe(
            st.fixed_dictionaries(
                {
                    "City": _TEXT,
                    "zip code": _SMALL,
                    "geo": maybe(st.fixed_dictionaries({"lat": maybe(st.just(0.5)), "ok": maybe(st.booleans())})),
                }
            )
        ),
        "tags": maybe(
            st.dictionaries(st.sampled_from(["k", "it's \"", "other"]), _SMALL).map(lambda it: [*it.items()])
        ),
        "by_id": maybe(
            st.dictionaries(st.sampled_from([-5, 7, 0]), maybe(st.fixed_dictionaries({"n": _SMALL}))).map(
                lambda it: [*it.items()]
            )
        ),
        "legs": maybe(
            st.lists(
                maybe(
                    st.fixed_dictionaries(
                        {
                            "fee": maybe(st.sampled_from([Decimal("0.01"), Decimal("-3.50")])),
                            "stops": maybe(st.lists(_TEXT, max_size=3)),
                        }
                    )
                ),
                max_size=3,
            )
        ),
    }
)
TABLES = st.lists(ROWS, min_size=1, max_size=40).map(lambda rows: pa.Table.from_pylist(rows, EVENTS))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A query over some leaves."""
    number, other = draw(st.sampled_from([*NUMBERS])), draw(st.sampled_from([*NUMBERS]))
    text, truth = draw(st.sampled_from([*TEXTS])), "place.geo.ok"
    where_clause = draw(
        st.sampled_from(["", f"WHERE {other} > 0", f"WHERE {text} = 'x' OR NOT {truth}", f"WHERE {other} IS NULL"])
    )
    group = draw(st.sampled_from(["", text, truth, f"{text}, place.`zip code`", f"upper({text})", f"{text} = 'x'"]))
    values = f"sum({number}) AS s, max({text}) AS t, count(*) FILTER (WHERE {other} < 3) AS f, count({truth}) AS c"
    having = draw(st.sampled_from(["", "HAVING count(*) > 1", f"HAVING max({other}) > 0"]))
    return (
        f"SELECT {values}, sum({other} - {number}) / count(*) AS d FROM events "
        f"WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts {where_clause} {f'GROUP BY {group}' if group else ''} {having}"
    )


def stored(table: pa.Table, folder: Path, format: str) -> Stream:
    """The stream of a table that is written to two files, its schema found there."""
    folder.mkdir()
    half = len(table) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        if format == "delta":
            # deltalake 1.6 aborts on slices of maps
            part = pa.Table.from_pylist(part.to_pylist(), EVENTS)
            write_deltalake(str(folder), part, mode="append")
        else:
            pq.write_table(part, folder / f"{number}.parquet", row_group_size=7)
    stream, diagnostics = discover_schema(Stream("events", Source(format, str(folder)), (), "ts"))
    assert not diagnostics
    return stream


def queries_of(queries: list[str], stream: Stream) -> tuple[ACQ, ...]:
    text = "".join(f"-- name: q{number}\n{query};\n" for number, query in enumerate(queries))
    parsed = parse(text, {"events": stream})
    assert not parsed.diagnostics, parsed.diagnostics
    return parsed.queries


def flat(table: pa.Table, stream: Stream) -> pa.Table:
    """The events with every leaf as a column, as DuckDB takes it out of them."""
    names = {}
    for written, sql in (NUMBERS | TEXTS | TRUTHS).items():
        (query,) = queries_of([f"SELECT count({written}) FROM events WINDOW RANGE '1 hour' ON ts"], stream)
        names[query.columns()[0]] = sql
    table = table.set_column(0, "ts", table["ts"].cast(pa.int64()))
    with duckdb.connect() as connection:
        connection.register("events", table)
        selected = ", ".join(f'{sql} AS "{name.replace(chr(34), chr(34) * 2)}"' for name, sql in names.items())
        leaves = connection.sql(f"SELECT ts, {selected} FROM events").to_arrow_table()
    return leaves.set_column(0, "ts", leaves["ts"].cast(pa.timestamp("us", "UTC")))


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_answers_are_duckdbs(tmp_path_factory: pytest.TempPathFactory, format: str) -> None:
    @settings(max_examples=examples(8, 40), deadline=None, suppress_health_check=list(HealthCheck))
    @given(TABLES, st.lists(texts(), min_size=1, max_size=6))
    def check(table: pa.Table, written: list[str]) -> None:
        folder = tmp_path_factory.mktemp("nested")
        stream = stored(table, folder / "source", format)
        queries = queries_of(written, stream)
        warehouse = Warehouse.open(folder / "warehouse")
        plan = build_plan(Workload(queries, (stream,)), {"events": Fraction(1)}, "weave-share")
        version = publish_plan(warehouse, plan)[0]
        with without_audit():
            run(in_process(), warehouse, version, BEGIN, END, "run")
        events = flat(table, stream)
        for query in queries:
            expected = answers(query, events, "ts", BEGIN, END)
            assert compare(query, read(warehouse, query.name), expected) == [], query.text

    check()


@pytest.mark.spark
def test_unshared_answers_are_duckdbs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    from spark_jobs.audit.unshared.columns import with_leaves
    from spark_jobs.audit.unshared.measure import native_frame
    from spark_jobs.audit.unshared.windows import unshared
    from tests.spark_jobs.audit.spark_answers import as_answers

    @settings(max_examples=examples(2, 8), deadline=None, suppress_health_check=list(HealthCheck))
    @given(TABLES, st.lists(texts(), min_size=1, max_size=2))
    def check(table: pa.Table, written: list[str]) -> None:
        stream = stored(table, tmp_path_factory.mktemp("nested") / "source", "parquet")
        events = flat(table, stream)
        for query in queries_of(written, stream):
            frame = with_leaves(native_frame(spark, stream), stream, query.columns())
            unshared_answers = as_answers(query, unshared(frame, query, "ts").toArrow(), BEGIN, END)
            assert compare(query, unshared_answers, answers(query, events, "ts", BEGIN, END)) == [], query.text

    check()


# --------------------------------------------------------------------------------------------- reading
def column(stream: Stream, name: str) -> list[Any]:
    """The values of a column of a stream in the order of its files."""
    return [
        value
        for split in splits_of(stream)
        for batch in read_split(stream, split, [name])
        for value in batch.column(name).to_pylist()
    ]


def parquet(folder: Path, *tables: dict[str, pa.Array]) -> Stream:
    """A stream of files with these columns besides their times, whose schema is left out."""
    folder.mkdir(exist_ok=True)
    for number, columns in enumerate(tables):
        rows = len(next(iter(columns.values())))
        times = pa.array(range(rows), pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"ts": times, **columns}), folder / f"{number}.parquet")
    return Stream("events", Source("parquet", str(folder)), (), "ts")


def nested(stream: Stream, **types: str) -> Stream:
    parsed = {name: parse_column(text) for name, text in types.items()}
    columns = [(name, type) for name, type in parsed.items() if isinstance(type, Nested)]
    return with_schema(stream, {"ts": TIMESTAMP}, columns)


@pytest.mark.parametrize(
    "type",
    [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)],
)
def test_elements_of_every_kind_of_array(type: pa.DataType) -> None:
    stream = Stream("events", Source("parquet", "/f"), (), "ts")
    values = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64())).cast(type)
    leaf = Leaf(stream, "f", LeafPath("l", (Step(False, 1),)), values.type)
    assert leaf.values(values).to_pylist() == [2, None, None]
    assert leaf.values(values.slice(2)).to_pylist() == [None]
    assert leaf.values(pa.chunked_array([values, values.slice(0, 1)])).to_pylist() == [2, None, None, 2]


def test_of_equal_keys_the_first_counts_and_capitals_differ(tmp_path: Path) -> None:
    entries = [[("k", 1), ("k", 2), ("K", 3)], None, [], [("K", None), ("K", 4)]]
    stream = parquet(tmp_path / "m", {"m": pa.array(entries, pa.map_(pa.string(), pa.int64()))})
    stream, _ = discover_schema(stream)
    assert column(stream, "m['k']") == [1, None, None, None] and column(stream, "m['K']") == [3, None, None, None]


def test_fields_that_some_files_lack_are_null_there(tmp_path: Path) -> None:
    older, newer = pa.array([{"b": 1}, None]), pa.array([{"b": 2, "C": "x"}, {"b": None, "C": None}])
    stream, diagnostics = discover_schema(parquet(tmp_path / "s", {"a": older}, {"A": newer}))
    assert not diagnostics and [(name, str(type)) for name, type in stream.nested] == [
        ("a", "struct<b: long, C: string>")
    ]
    assert column(stream, "a.C") == [None, None, "x", None] and column(stream, "a.b") == [1, None, 2, None]
    assert missing_columns(stream, splits_of(stream), ["a.C", "a.b"]) == []
    declared = nested(stream, a="struct<b: long, d: long>")
    assert missing_columns(declared, splits_of(stream), ["a.b", "a.d"]) == ["a.d"]


@pytest.mark.parametrize(
    ("declared", "leaf"),
    [
        ("struct<b: string>", "a.b"),
        ("struct<b: struct<c: long>>", "a.b.c"),
        ("map<string, long>", "a['b']"),
        ("array<long>", "a[0]"),
        ("struct<s: long>", "a.s"),
    ],
)
def test_what_files_hold_otherwise_is_coded(tmp_path: Path, declared: str, leaf: str) -> None:
    rows = pa.array([{"b": 1, "s": {"t": 1}}])
    stream = nested(parquet(tmp_path / "s", {"a": rows}), a=declared)
    with pytest.raises(HeddleError, match="HDL-404"):
        missing_columns(stream, splits_of(stream), [leaf])
    with pytest.raises(HeddleError, match="HDL-404"):
        column(stream, leaf)


def test_fields_that_differ_by_case_are_coded_where_they_are_read(tmp_path: Path) -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["b", "B", "c"])
    stream, _ = discover_schema(parquet(tmp_path / "s", {"a": twice}))
    assert [str(type) for _, type in stream.nested] == ["struct<c: long>"] and column(stream, "a.c") == [3]
    with pytest.raises(HeddleError, match="HDL-456"):
        column(nested(stream, a="struct<b: long>"), "a.b")


def test_fields_without_a_common_type_are_left_out_and_told(tmp_path: Path) -> None:
    first, other = pa.array([{"b": 1, "c": {"d": 1}}]), pa.array([{"b": "x", "c": {"d": 2.5}}])
    stream, diagnostics = discover_schema(
        parquet(tmp_path / "s", {"a": first, "x": first}, {"a": other, "x": pa.array([1])})
    )
    assert [(name, str(type)) for name, type in stream.nested] == [("a", "struct<c: struct<d: double>>")]
    assert [diagnostic.code for diagnostic in diagnostics] == ["HDL-431", "HDL-431"]
    assert "column a.b is" in diagnostics[0].message and "column x is" in diagnostics[1].message


def test_ten_thousand_fields_are_known_and_more_are_left_out(tmp_path: Path) -> None:
    def wide(count: int) -> pa.Array:
        return pa.StructArray.from_arrays([pa.array([1])] * count, names=[f"f{number}" for number in range(count)])

    most = parquet(tmp_path / "s", {"a": wide(MOST_LEAVES), "b": wide(2)})
    stream, diagnostics = discover_schema(most)
    assert [name for name, _ in stream.nested] == ["a"] and [diagnostic.code for diagnostic in diagnostics] == [
        "HDL-431"
    ]
    assert column(stream, "a.f9999") == [1] and stream.type_of("a.f10000") is None
    assert from_json(to_json(stream)) == stream


def test_frames_tell_keys_apart_that_differ_by_case() -> None:
    from spark_jobs.audit.unshared.values import from_spark, spark_name

    names = ["m['K']", "m['k']", "m['É']", "m['é']", r"m['\\u00004b']", "a.B", "m['it''s K']"]
    names += [f"d(=concat(x, 'it''s {letter}')).c" for letter in "Kk"]
    assert len({spark_name(name).lower() for name in names}) == len(names)
    assert [from_spark(spark_name(name)) for name in names] == names
    assert spark_name("a.B") == "a.B"
