"""Names of what lies in nested columns: how they are written, what they stand for, and how wrong ones are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.workload.nested import Nested, Path, Step, read_path
from optimizer.workload.streams import load_streams, parse_column
from optimizer.workload.values import ACQ, DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, from_json, to_json

TYPES = {
    "a": "struct<b: long, c: struct<`d e`: string, F: decimal(10,2)>>",
    "m": "map<string, double>",
    "l": "array<struct<x: int, y: array<int>>>",
    "by_id": "map<short, struct<z string>>",
    "trades": "struct<qty: long>",
}
TRADES = Stream(
    "trades",
    Source("parquet", "/t"),
    (("ts", TIMESTAMP), ("symbol", STRING), ("qty", LONG), ("a.b", DOUBLE)),
    "ts",
    nested=tuple((name, type) for name, text in TYPES.items() if isinstance(type := parse_column(text), Nested)),
)
WINDOW = "WINDOW RANGE '1 hour' ON ts"


def query(text: str) -> ACQ:
    parsed = parse(f"-- name: q\n{text}", {"trades": TRADES})
    assert not parsed.diagnostics, parsed.diagnostics
    return parsed.queries[0]


@pytest.mark.parametrize(
    ("written", "name", "type"),
    [
        ("a.b", "`a`.`b`", "long"),
        ("`a.b`", "a.b", "double"),
        ("trades.A.B", "`a`.`b`", "long"),
        ("a.C.`D E`", "a.c.`d e`", "string"),
        ("trades.a.c.f", "a.c.F", "decimal(10,2)"),
        ("m['k']", "m['k']", "double"),
        (r"m['it\'s ]']", "m['it''s ]']", "double"),
        ("l[0].X", "l[0].x", "int"),
        ("trades.l [ 12 ] . y [ 3 ]", "l[12].y[3]", "int"),
        ("by_id[-5].z", "by_id[-5].z", "string"),
        ("trades.qty", "qty", "long"),
        ("trades.trades.qty", "trades.qty", "long"),
    ],
)
def test_names_of_leaves(written: str, name: str, type: str) -> None:
    (output,) = query(f"SELECT max({written}) AS x FROM trades {WINDOW}").outputs
    assert [*output.columns()] == [name] and str(output.argument_type) == type
    assert str(TRADES.type_of(name)) == type and name in TRADES.types


def test_leaves_stand_wherever_columns_do() -> None:
    parsed_query = query(
        f"SELECT a.c.f, a.b - 1 AS less, count(*) FILTER (WHERE m['k'] > 1) AS n, sum(a.b) / count(l[0].x) AS mean "
        f"FROM trades {WINDOW} WHERE by_id[1].z LIKE 'x%' AND m['k'] - 1 < -l[0].x "
        f"GROUP BY a.c.f, a.b - 1 HAVING a.c.F > 1 AND max(a.b) > 2 AND a.b - 1 > 0 ORDER BY a.c.f, a.b - 1 LIMIT 3"
    )
    assert parsed_query.select == ("a_c_F", "less")
    assert parsed_query.columns() == ["`a`.`b`", "a.c.F", "by_id[1].z", "l[0].x", "m['k']"]


@pytest.mark.parametrize(
    ("marked", "code", "hint"),
    [
        ("^a", "HDL-202", "write a.b, a.c.`d e`, a.c.F"),
        ("^a.c", "HDL-202", "a.c.F"),
        ("^m", "HDL-202", "m['…']"),
        ("^l[0]", "HDL-202", "l[0].x, l[0].y[0]"),
        ("^a.bb", "HDL-202", "did you mean b?"),
        ("^a.b.c", "HDL-202", ""),
        ("^a['b']", "HDL-202", "behind a dot"),
        ("^m.k", "HDL-202", "m['key']"),
        ("^m[1]", "HDL-202", "m['key']"),
        ("^by_id['x'].z", "HDL-202", "m[1]"),
        ("^by_id[40000].z", "HDL-202", "m[1]"),
        ("^l[-1].x", "HDL-202", "a[0]"),
        ("^l.x", "HDL-202", "a[0]"),
        ("^l[2147483648].x", "HDL-202", "a[0]"),
        ("^l[1.5].x", "HDL-103", "whole number"),
        ("^qty[0]", "HDL-202", ""),
        ("^qty.x", "HDL-202", ""),
        ("^nosuch['x']", "HDL-202", ""),
        ("m^[qty]", "HDL-103", "m['key']"),
        ("m^['a' || 'b']", "HDL-103", "m['key']"),
        ("m^[]", "HDL-103", "m['key']"),
        ("l^[0:1]", "HDL-103", "m['key']"),
        ("^[1]", "HDL-103", "m['key']"),
        ("(m)^['k']", "HDL-103", "m['key']"),
        ("lower('x')^[0]", "HDL-103", "m['key']"),
        ("array^[0]", "HDL-103", "backticks"),
        ("^a.b(1)", "HDL-103", ""),
        ("l" + "[0]" * 17 + "^[0]", "HDL-303", ""),
        ("a" + ".b" * 17 + "^.b", "HDL-303", ""),
    ],
)
@pytest.mark.parametrize("clause", ["SELECT max({}) FROM trades {w}", "SELECT count(*) FROM trades {w} WHERE {} = 1"])
def test_mistakes_are_coded_positioned_and_say_what_to_do(clause: str, marked: str, code: str, hint: str) -> None:
    text = clause.format(marked, w=WINDOW)
    (diagnostic,) = parse(text.replace("^", "", 1), {"trades": TRADES}).diagnostics
    assert (diagnostic.code, diagnostic.column) == (code, text.index("^") + 1), diagnostic
    assert hint in diagnostic.hint


@pytest.mark.parametrize("text", ["WINDOW ROWS 10 SLIDE 5 ON ts", f"{WINDOW} PATTERN SEQ(A, B) ON symbol"])
def test_windows_of_rows_and_sequences_read_plain_columns_alone(text: str) -> None:
    text = f"SELECT count(*) FROM trades {text} WHERE {{}} > 1"
    assert [diagnostic.code for diagnostic in parse(text.format("m['k']"), {"trades": TRADES}).diagnostics] == [
        "HDL-242"
    ]
    assert not parse(text.format("qty"), {"trades": TRADES}).diagnostics


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8)
STEPS = st.one_of(
    NAMES.map(lambda name: Step(True, name)),
    st.text(max_size=8).map(lambda key: Step(False, key)),
    st.integers(-(2**63), 2**63).map(lambda at: Step(False, at)),
)


@given(NAMES, st.lists(STEPS, min_size=1, max_size=5), st.booleans())
def test_a_name_is_read_back_as_the_path_that_it_was(root: str, steps: list[Step], is_taken: bool) -> None:
    path = Path(root, tuple(steps))
    name = path.name(())
    assert read_path(path.name([name.upper()] if is_taken else ())) == path


@given(st.text(max_size=30) | st.text("ab.`[]'0-", max_size=20))
def test_any_text_may_be_asked_for_as_a_name(text: str) -> None:
    assert (text in TRADES.types) == (TRADES.types.get(text) is not None)


# --------------------------------------------------------------------------------------------- types
@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("STRUCT< a:long,b string >", "struct<a: long, b: string>"),
        ("struct<`x ``y`: decimal(10, 2)>", "struct<`x ``y`: decimal(10,2)>"),
        (" map<string,array< map<int,date>>> ", "map<string, array<map<int, date>>>"),
        ("struct<type: struct<struct: long>>", "struct<type: struct<struct: long>>"),
    ],
)
def test_types_are_read_and_written(text: str, canonical: str) -> None:
    column_type = parse_column(text)
    assert str(column_type) == canonical and parse_column(canonical) == column_type
    stream = replace(TRADES, nested=(("x", column_type),)) if isinstance(column_type, Nested) else TRADES
    assert from_json(to_json(stream)) == stream


@pytest.mark.parametrize(
    "text",
    [
        *("struct<>", "struct<a>", "struct<a:>", "struct<a: long", "struct<a: long>>", "struct<a: long, A: int>"),
        *("map<long>", "map<double, long>", "map<struct<a: long>, long>", "array<>", "array<long, long>"),
        *("array<" * 17 + "long" + ">" * 17, "array<" * 5000, "struct<a: blob>", "struct<a long b>", "array<long> x"),
    ],
)
def test_wrong_types_are_coded(text: str) -> None:
    with pytest.raises(HeddleError, match="HDL-454"):
        parse_column(text)


def test_streams_declare_nested_columns_but_for_csv(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def load(format: str, *columns: str) -> tuple[dict[str, Stream], list[str]]:
        lines = "".join(f"      {column}\n" for column in ("ts: timestamp", *columns))
        text = f"streams:\n  s:\n    source: {{format: {format}, path: x}}\n    time: ts\n    schema:\n{lines}"
        (tmp_path / "streams.yaml").write_text(text)
        streams, diagnostics = load_streams(tmp_path / "streams.yaml")
        return streams, [f"{diagnostic.code} {diagnostic.line}" for diagnostic in diagnostics]

    streams, diagnostics = load("parquet", "a: 'struct<b: long>'", "m: map<string, long>")
    assert not diagnostics and [(name, str(type)) for name, type in streams["s"].nested] == [
        ("a", "struct<b: long>"),
        ("m", "map<string, long>"),
    ]
    assert load("csv", "a: array<long>")[1] == ["HDL-454 7"]
    assert load("delta", "a: array<long>", "A: long")[1] == ["HDL-456 6"]
    assert load("delta", "a: array<long>", "a: map<string, long>")[1] == ["HDL-456 8"]
