"""Dimensions: how they are declared and read, what is wrong with them, their versions, and rows by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.attributes import JoinedAttribute
from optimizer.workload.instants import DAY
from optimizer.workload.streams import load_streams
from optimizer.workload.values import DATE, Dimension, DimensionVersion, Source
from spark_jobs.store.storage import Place
from spark_jobs.streams.copies.readers import known_streams
from spark_jobs.streams.sources import dimension_rows
from spark_jobs.streams.sources.dimension_rows import VALID_FROM, VALID_TO, VersionRows, attribute_name
from spark_jobs.streams.sources.dimensions import (
    read_rows,
    store_version,
    stored_version,
    version_rows,
    with_schema_of_files,
)
from tests.sizes import examples

NOON = 1_769_947_200_000_000

Rows = Sequence[dict[str, Any]]


def dimension(folder: Path, rows: Rows, key: Sequence[str] = ("id",), **options: Any) -> Dimension:
    """A dimension whose rows are in a Parquet file, with the columns of the first."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
    path = folder / "rows.parquet"
    pq.write_table(table, path)
    known, _ = with_schema_of_files(Dimension("products", Source("parquet", str(path)), tuple(key), (), **options))
    return known


def refused(of: Dimension, columns: Sequence[str]) -> tuple[str, str]:
    with pytest.raises(HeddleError) as error:
        version_rows(of, columns)
    return error.value.diagnostic.code, error.value.diagnostic.message


# ------------------------------------------------------------------------------------------------ declarations
DECLARED = """\
streams:
  orders: {source: {format: csv, path: o.csv}, time: ts, schema: {ts: timestamp, product_id: long}}
dimensions:
"""


def findings(tmp_path: Path, text: str) -> list[tuple[str, int, str]]:
    file = tmp_path / "streams.yaml"
    file.write_text(DECLARED + text)
    return [(each.code, each.line, each.message) for each in load_streams(file)[1]]


def test_dimensions_are_declared_for_every_stream(tmp_path: Path) -> None:
    file = tmp_path / "streams.yaml"
    file.write_text(
        DECLARED
        + "  owners:\n    source: {format: parquet, path: owners.parquet}\n    key: [a, b]\n    valid_from: since\n"
        + "    valid_to: until\n    repair: 30 days\n"
        + "    schema: {a: long, b: string, since: timestamp, until: date, owner: string}\n"
        + "  products: {source: {format: csv, path: p.csv}, key: product_id}\n"
    )
    streams, diagnostics = load_streams(file)
    assert diagnostics == ()
    owners, products = streams["orders"].dimensions
    assert (owners.name, owners.key, owners.valid_from, owners.valid_to) == ("owners", ("a", "b"), "since", "until")
    assert owners.repair == 30 * DAY and owners.special == ("a", "b", "since", "until")
    assert (products.key, products.schema, products.valid_from, products.repair) == (("product_id",), (), None, 0)
    assert products.source.path == str(tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("text", "code", "line", "message"),
    [
        ("  p: {key: id}\n", "HDL-453", 4, "source"),
        ("  p: {source: {format: csv, path: p}}\n", "HDL-453", 4, "key"),
        ("  p: {source: {format: csv, path: p}, key: id, lateness: 1 hour}\n", "HDL-452", 4, "lateness"),
        ("  p: {source: {format: csv, path: p}, key: []}\n", "HDL-457", 4, "1 to 8"),
        ("  p: {source: {format: csv, path: p}, key: [a, A]}\n", "HDL-457", 4, "different columns"),
        (f"  p: {{source: {{format: csv, path: p}}, key: [{', '.join('abcdefghi')}]}}\n", "HDL-457", 4, "1 to 8"),
        ("  p: {source: {format: csv, path: p}, key: id, valid_to: x}\n", "HDL-453", 4, "without valid_from"),
        ("  p: {source: {format: csv, path: p}, key: id, repair: never}\n", "HDL-457", 4, "never"),
        ("  p: {source: {format: csv, path: p}, key: id, repair: 4000 days}\n", "HDL-457", 4, "too long"),
        ("  1p: {source: {format: csv, path: p}, key: id}\n", "HDL-457", 4, "cannot name a dimension"),
        ("  Orders: {source: {format: csv, path: p}, key: id}\n", "HDL-456", 4, "a stream has the same name"),
        ("  p: {source: {format: orc, path: p}, key: id, schema: {id: long}}\n", "HDL-457", 4, "without Spark"),
        ("  p: {source: {format: csv, path: p}, key: id, schema: {id: double}}\n", "HDL-455", 4, "is a double"),
        ("  p: {source: {format: csv, path: p}, key: id, schema: {x: long}}\n", "HDL-455", 4, "no column id"),
        ("  p: {source: {format: csv, path: p}, key: id, schema: {id: text}}\n", "HDL-454", 4, "column id"),
        ("  p: {source: {format: csv, path: p}, key: id, schema: {id: long, ID: long}}\n", "HDL-456", 4, "by case"),
        (
            "  p: {source: {format: csv, path: p}, key: id, valid_from: t, schema: {id: long, t: long}}\n",
            "HDL-455",
            4,
            "t is a long",
        ),
        (
            "  p: {source: {format: csv, path: p}, key: id}\n  p: {source: {format: csv, path: q}, key: id}\n",
            "HDL-456",
            5,
            "declared twice",
        ),
    ],
)
def test_a_wrong_declaration_is_found(tmp_path: Path, text: str, code: str, line: int, message: str) -> None:
    ((found_code, found_line, found_message),) = findings(tmp_path, text)
    assert (found_code, found_line) == (code, line) and message in found_message


def test_what_is_wrong_with_one_dimension_leaves_streams_and_others(tmp_path: Path) -> None:
    file = tmp_path / "streams.yaml"
    (tmp_path / "q.csv").write_text("id,name\n1,a\n")
    (tmp_path / "o.csv").write_text("ts,product_id\n2026-01-01T00:00:00Z,1\n")
    file.write_text(
        DECLARED
        + "  p: {source: {format: csv, path: p.csv}, key: id}\n  q: {source: {format: csv, path: q.csv}, key: id}\n"
    )
    _, streams, diagnostics = known_streams(file)
    assert [each.name for each in streams["orders"].dimensions] == ["q"]
    (diagnostic,) = diagnostics
    assert diagnostic.code == "HDL-401"


def test_what_is_wrong_with_a_dimension_is_said_of_it(tmp_path: Path) -> None:
    with pytest.raises(HeddleError) as error:
        with_schema_of_files(Dimension("p", Source("csv", str(tmp_path / "p.csv")), ("id",), ()))
    assert error.value.diagnostic.message.startswith("dimension p: there is no ")


def test_columns_of_texts_get_the_type_that_fits_all_values(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,code,price,since,ok,name\n" + "1,07,2.50,2026-01-01,true,a\n" * 1200 + "x2,8,NA,NA,false,NA\n")
    known, _ = with_schema_of_files(Dimension("p", Source("csv", str(path)), ("name",), (), "since"))
    types = {name: type.name for name, type in known.schema}
    assert types["id"] == "string" and types["price"] in ("decimal", "double") and types["ok"] == "boolean"
    assert types["since"] in ("date", "timestamp") and types["name"] == "string"
    rows = read_rows(known, ["price", "since", "name"])
    assert rows.slice(1200).to_pylist() == [{"price": None, "since": None, "name": None}]


# ------------------------------------------------------------------------------------------------ duplicates
def test_two_rows_of_a_key_are_shown_with_both(tmp_path: Path) -> None:
    rows = [{"id": key, "name": name, "price": 1.5} for key, name in ((3, "c"), (2, "drinks"), (1, "a"), (2, None))]
    code, message = refused(dimension(tmp_path, rows), ["name", "price"])
    assert code == "HDL-462" and "two rows for id = 2" in message
    assert "name: 'drinks'" in message and "name: null" in message and "price: '1.5'" in message


def test_rows_without_a_key_are_no_duplicates(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": None, "x": 1}, {"a": 1, "b": None, "x": 2}, {"a": 1, "b": "", "x": 3}]
    kept = version_rows(dimension(tmp_path, rows, ("a", "b")), ["x"])
    assert kept.to_pylist() == [{"a": 1, "b": "", attribute_name("x"): 3}]


def moments(*hours: float | None) -> list[int | None]:
    return [None if hour is None else NOON + round(hour * 3_600_000_000) for hour in hours]


def valid(rows: Sequence[tuple[int, float | None, float | None]]) -> pa.Table:
    keys, starts, ends = zip(*rows, strict=True)
    time = pa.timestamp("us", "UTC")
    columns = {"id": pa.array(keys), "since": pa.array(moments(*starts), time), "until": pa.array(moments(*ends), time)}
    return pa.table(columns | {"name": pa.array([f"n{number}" for number in range(len(rows))])})


@pytest.mark.parametrize(
    ("rows", "is_refused"),
    [
        ([(1, 0, 1), (1, 1, 2)], False),
        ([(1, 0, 1.0001), (1, 1, 2)], True),
        ([(1, None, 1), (1, 1, None)], False),
        ([(1, None, 1.5), (1, 1, None)], True),
        ([(1, 0, None), (1, 5, None)], True),
        ([(1, None, None), (1, 5, 6)], True),
        ([(1, 0, 9), (1, 2, 2), (1, 3, 1)], False),
        ([(1, 0, 9), (2, 0, 9)], False),
        ([(1, 0, 9), (1, 0, 9)], True),
        ([(1, 0, 9), (1, 0, 0)], False),
    ],
)
def test_validities_of_a_key_do_not_overlap(
    tmp_path: Path, rows: list[tuple[int, float | None, float | None]], is_refused: bool
) -> None:
    known = dimension(tmp_path, valid(rows), valid_from="since", valid_to="until")
    if is_refused:
        code, message = refused(known, ["name"])
        assert code == "HDL-462" and "id = 1 at one time" in message and "name: 'n0'" in message
    else:
        begins, ends = (version_rows(known, ["name"])[name].to_pylist() for name in (VALID_FROM, VALID_TO))
        assert all(begin < end for begin, end in zip(begins, ends, strict=True))


def test_a_row_without_an_end_is_valid_until_the_next(tmp_path: Path) -> None:
    known = dimension(tmp_path, valid([(1, 5, 0), (1, None, 0), (1, 2, 0), (2, 1, 0)]), valid_from="since")
    rows = version_rows(known, [])
    spans = list(zip(rows["id"].to_pylist(), rows[VALID_FROM].to_pylist(), rows[VALID_TO].to_pylist(), strict=True))
    (two, five, one), open_begin, open_end = moments(2, 5, 1), -(1 << 62), 1 << 62
    assert spans == [(1, open_begin, two), (1, two, five), (1, five, open_end), (2, one, open_end)]
    twice = dimension(tmp_path, valid([(1, 5, 0), (1, 5, 9)]), valid_from="since")
    assert refused(twice, [])[0] == "HDL-462"


def test_days_are_validities_from_midnight_on(tmp_path: Path) -> None:
    rows = [{"id": 1, "since": date(2026, 2, 1), "until": date(2026, 2, 2)}]
    known = dimension(tmp_path, rows, valid_from="since", valid_to="until")
    assert dict(known.schema)["since"] == DATE
    kept = version_rows(known, [])
    assert (kept[VALID_TO][0].as_py() - kept[VALID_FROM][0].as_py()) == DAY
    assert kept[VALID_FROM][0].as_py() % DAY == 0


def test_what_does_not_fit_a_task_is_refused_with_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": np.arange(200_000), "name": [f"name {number % 7}" for number in range(200_000)]})
    known = dimension(tmp_path, rows)
    monkeypatch.setenv("HEDDLE_TASK_MEMORY", "64m")
    assert len(version_rows(known, ["name"])) == 200_000
    monkeypatch.setenv("HEDDLE_TASK_MEMORY", "16m")
    code, message = refused(known, ["name"])
    assert code == "HDL-463" and "its key and 1 columns" in message and "MiB" in message
    assert len(version_rows(known, [])) == 200_000


# ------------------------------------------------------------------------------------------------ versions
def version_of(folder: Path, rows: Rows, columns: Sequence[str] = ("name",), **options: Any) -> DimensionVersion:
    (folder / "versions").mkdir(exist_ok=True)
    return store_version(dimension(folder, rows, **options), columns, Place.of(folder / "versions"))


ROWS: list[dict[str, Any]] = [{"id": 1, "name": "a", "price": 1}, {"id": 2, "name": None, "price": 2}]


def test_a_version_is_named_by_its_content(tmp_path: Path) -> None:
    version = version_of(tmp_path, ROWS)
    assert version_of(tmp_path, ROWS[::-1]) == version
    assert version_of(tmp_path, [{**row, "more": 1} for row in ROWS]) == version
    assert version_of(tmp_path, [{**row, "price": 9} for row in ROWS]) == version
    assert version_of(tmp_path, [*ROWS, {"id": None, "name": "x", "price": 0}]) == version
    assert stored_version(Place.of(version.place)) == version
    assert len(list((tmp_path / "versions").iterdir())) == 1


def test_other_content_is_another_version_of_what_changed_alone(tmp_path: Path) -> None:
    version = version_of(tmp_path, ROWS, ("name", "price"))
    dearer = version_of(tmp_path, [{**row, "price": 9} for row in ROWS], ("name", "price"))
    columns, others = dict(version.columns), dict(dearer.columns)
    assert dearer.id != version.id and dearer.rows == version.rows
    assert columns["name"] == others["name"] and columns["price"] != others["price"]
    assert version_of(tmp_path, ROWS[:1], ("name", "price")).rows != version.rows
    assert version_of(tmp_path, [ROWS[0], {**ROWS[1], "name": ""}]).id != version_of(tmp_path, ROWS).id


@pytest.mark.parametrize(
    "values",
    [
        [True, None],
        [1.5, None],
        [-0.0, None],
        [Decimal("1.50"), None],
        ["é", ""],
        [date(2026, 2, 1), None],
    ],
)
def test_columns_of_every_type_have_a_content(tmp_path: Path, values: list[Any]) -> None:
    version = version_of(tmp_path, [{"id": number, "name": value} for number, value in enumerate(values)])
    others = version_of(tmp_path, [{"id": number, "name": value} for number, value in enumerate(values[::-1])])
    assert version.rows == others.rows and version.columns != others.columns


@pytest.mark.parametrize("name", ["=name", "valid from", "name of"])
def test_a_key_may_have_any_name(tmp_path: Path, name: str) -> None:
    rows = [{name: 1, "name": 7, "since": date(2026, 2, 1)}]
    kept = version_rows(dimension(tmp_path, rows, (name,), valid_from="since"), ["name"])
    assert kept[name].to_pylist() == [1] and len(kept.column_names) == 4


# ------------------------------------------------------------------------------------------------ rows by key
KEY_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 2**53]),
    "int": (pa.int32(), [0, 1, -1, 2**31 - 1]),
    "string": (pa.string(), ["", "a", "A", "é", "e\u0301", "0", "\x00", "a\x00"]),
    "date": (pa.date32(), [date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 1)]),
    "timestamp": (pa.timestamp("us", "UTC"), [-1, 0, NOON, NOON + 1]),
    "boolean": (pa.bool_(), [True, False]),
    "decimal": (pa.decimal128(20, 2), [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999999999999.99")]),
}
"""Arrow types of keys, and some of their values."""


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[pa.Table, tuple[str, ...], list[pa.Array], list[int], list[list[Any]]]:
    """Rows of a version, the names of its key, and the keys and times of some events, also as plain values."""
    kinds = draw(st.lists(st.sampled_from(sorted(KEY_VALUES)), min_size=1, max_size=3))
    names = tuple(f"k{number}" for number in range(len(kinds)))
    drawn = st.tuples(*(st.sampled_from(KEY_VALUES[kind][1]) for kind in kinds))
    keys = draw(st.lists(drawn, max_size=12, unique=True))
    is_timed = draw(st.booleans())
    spans: list[tuple[int, int]] = []
    of: list[tuple[Any, ...]] = []
    for key in keys:
        cuts = sorted(draw(st.sets(st.integers(-4, 12), min_size=2, max_size=5))) if is_timed else [0, 1]
        pieces = [pair for pair in zip(cuts, cuts[1:], strict=False) if not is_timed or draw(st.booleans())]
        spans += pieces
        of += [key] * len(pieces)
    columns = {
        name: pa.array([key[at] for key in of], KEY_VALUES[kind][0])
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }
    if is_timed:
        columns |= {VALID_FROM: pa.array([b for b, _ in spans], pa.int64())}
        columns |= {VALID_TO: pa.array([e for _, e in spans], pa.int64())}
    columns[attribute_name("x")] = pa.array([f"x{number}" for number in range(len(of))], pa.string())
    asked = draw(st.lists(st.one_of(drawn, *([st.sampled_from(keys)] if keys else [])), max_size=20))
    nullable = [tuple(None if draw(st.integers(0, 9)) == 9 else value for value in key) for key in asked]
    times = [draw(st.integers(-6, 14)) for _ in nullable]
    arrays = [pa.array([key[at] for key in nullable], KEY_VALUES[kind][0]) for at, kind in enumerate(kinds)]
    plain = [
        array.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(array.type) else array.to_pylist()
        for array in arrays
    ]
    return pa.table(columns), names, arrays, times, plain


def by_dict(rows: pa.Table, names: Sequence[str], times: Sequence[int], keys: list[list[Any]]) -> list[int]:
    """The number of the row of each key at each time, by looking at all rows; -1: none."""
    plain = {
        name: (rows[name].cast(pa.int64()) if pa.types.is_timestamp(rows[name].type) else rows[name]).to_pylist()
        for name in names
    }
    numbers: dict[tuple[Any, ...], list[int]] = {}
    for number, key in enumerate(zip(*plain.values(), strict=True)):
        numbers.setdefault(key, []).append(number)
    is_timed = VALID_FROM in rows.column_names
    begins, ends = (rows[name].to_pylist() if is_timed else None for name in (VALID_FROM, VALID_TO))
    found = []
    for at, time in enumerate(times):
        own = [
            number
            for number in numbers.get(tuple(values[at] for values in keys), ())
            if begins is None or ends is None or begins[number] <= time < ends[number]
        ]
        found.append(own[0] if own else -1)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(keyed_rows(), st.sampled_from((lambda array: array, lambda array: array.dictionary_encode())))
def test_rows_are_found_as_in_a_dict(case: Any, form: Callable[[pa.Array], pa.Array]) -> None:
    rows, names, keys, times, plain = case
    of_version = VersionRows(rows, names)
    keys = [form(array) if pa.types.is_string(array.type) else array for array in keys]
    numbers = of_version.numbers(keys, np.array(times, dtype=np.int64))
    expected = by_dict(rows, names, times, plain)
    assert numbers.tolist() == expected
    attribute = JoinedAttribute("d", names, "x")
    values = [None if number < 0 else f"x{number}" for number in expected]
    places = pa.array(numbers, mask=numbers < 0)
    for is_encoded in (False, True):
        assert of_version.take(attribute, names, places, is_encoded).to_pylist() == values
    exists = of_version.take(attribute.row, names, places, False)
    assert exists.to_pylist() == [number >= 0 for number in expected]
    own = of_version.take(attribute._replace(column=names[0]), names, places, False)
    assert own.is_valid().to_pylist() == [number >= 0 for number in expected]


def test_a_process_holds_the_rows_of_few_versions(tmp_path: Path) -> None:
    places = [version_of(tmp_path, [{"id": number, "name": "a"}]).place for number in range(5)]
    rows = [dimension_rows._loaded(place, ("id",)) for place in places]
    assert dimension_rows._loaded(places[4], ("id",)) is rows[4]
    assert dimension_rows._loaded(places[2], ("id",)) is rows[2]
    assert len(dimension_rows._versions[str(tmp_path / "versions")]) == dimension_rows.MOST_VERSIONS
    assert dimension_rows._loaded(places[0], ("id",)) is not rows[0]
