"""Definitions in JSON and YAML as queries: GroupBys of Chronon."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.migration.documents import is_document
from optimizer.migration.importing import Imported, import_job
from optimizer.migration.words import Dialect
from optimizer.workload.values import ACQ, DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream
from tests.in_process import heddle as heddle_command
from tests.oracle import answers
from tests.sizes import examples

SCHEMA = (("ts", TIMESTAMP), ("user_id", STRING), ("price", DOUBLE), ("qty", LONG), ("system", STRING))
STREAMS = {"purchases": Stream("purchases", Source("parquet", "x"), SCHEMA, "ts")}

EPOCH = datetime.datetime(1970, 1, 1)
END = datetime.datetime(2024, 4, 10)


def imported(text: str, typed: bool = True) -> Imported:
    return import_job(text, Dialect.spark, "definition", STREAMS if typed else None)


def queries_of(text: str) -> list[ACQ]:
    result = imported(text)
    queries = parse(result.text, STREAMS).queries
    assert len(queries) == len(result.names), result
    return list(queries)


def heddle(text: str, name: str = "shop.purchases.v1") -> ACQ:
    result = parse(f"-- name: {name}\n{text}", STREAMS)
    assert not result.errors, result.errors
    return result.queries[0]


def found(text: str) -> list[tuple[str, int, int]]:
    return [(each.code, each.line, each.column) for each in imported(text).diagnostics]


# ------------------------------------------------------------------------------------------- Chronon
def windows(*days: int, unit: int | str = 1) -> list[dict[str, Any]]:
    return [{"length": length, "timeUnit": unit} for length in days]


def aggregation(column: str, operation: int | str, of: list[Any] | None, **arguments: str) -> dict[str, Any]:
    return {"inputColumn": column, "operation": operation, "argMap": arguments} | (
        {} if of is None else {"windows": of}
    )


def group_by(aggregations: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    query = {"selects": {"user": "user_id", "price": "price", "n": "qty * 2"}, "timeColumn": "ts", "setups": []}
    query |= changes.pop("query", {})
    events = {"table": "data.purchases", "query": query} | changes.pop("events", {})
    meta = {"name": "shop.purchases.v1", "team": "shop", "online": 1, "customJson": '{"lag": 0}'}
    fixed = {"metaData": meta, "sources": [{"events": events}], "keyColumns": ["user"]}
    return fixed | {"aggregations": aggregations} | changes


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2)


WITH_KEY = "WHERE user_id IS NOT NULL GROUP BY user_id"


def test_a_list_of_windows_is_one_query() -> None:
    text = as_json(group_by([aggregation("price", 7, windows(3, 14, 30)), aggregation("price", "COUNT", windows(3))]))
    expected = heddle(
        "SELECT user_id AS user, sum(price) OVER a AS price_sum_3d, sum(price) OVER b AS price_sum_14d, "
        "sum(price) OVER c AS price_sum_30d, count(price) OVER a AS price_count_3d FROM purchases "
        f"WINDOW a AS (RANGE '3 days'), b AS (RANGE '14 days'), c AS (RANGE '30 days') SLIDE '1 day' ON ts {WITH_KEY}"
    )
    (query,) = queries_of(text)
    assert query.fingerprint == expected.fingerprint and query.owner == "shop" and not found(text)
    assert query.name == "shop.purchases.v1" and [output.name for output in query.outputs][0] == "price_sum_3d"
    assert imported(text, typed=False).names == ("shop.purchases.v1",)
    assert imported(text.replace("  ", "\t")).text == imported(text).text


OPERATIONS = (
    *((0, "min(price)", "min"), (1, "max(price)", "max"), (2, "first(price)", "first"), (3, "last(price)", "last")),
    *((4, "count(DISTINCT price)", "unique_count"), (5, "approx_count_distinct(price)", "approx_unique_count")),
    *((8, "avg(price)", "average"), (9, "var_pop(price)", "variance"), (10, "skewness(price)", "skew")),
    *((11, "kurtosis(price)", "kurtosis"), (12, "approx_percentile(price, array(0.5))", "approx_percentile")),
    *((18, "approx_top_k(price, 8)", "approx_histogram_k"),),
    *((19, "least(count(DISTINCT price), 8)", "bounded_unique_count"),),
)


@pytest.mark.parametrize(("number", "call", "name"), OPERATIONS)
def test_operations_are_aggregates(number: int, call: str, name: str) -> None:
    for operation in (number, name.upper()):
        text = as_json(group_by([aggregation("price", operation, windows(7))]))
        window = "WINDOW RANGE '7 days' SLIDE '1 day' ON ts"
        expected = heddle(f"SELECT user_id AS user, {call} AS price_{name}_7d FROM purchases {window} {WITH_KEY}")
        assert queries_of(text)[0].fingerprint == expected.fingerprint


def test_what_cannot_be_said_is_named_and_the_rest_goes_on() -> None:
    parts = [
        aggregation("price", 7, windows(7)),
        aggregation("price", 7, None),
        aggregation("price", 6, [{"length": 7, "timeUnit": 1}, None]),
        aggregation("price", 13, windows(7), k="3"),
        aggregation("price", 17, windows(7)),
        aggregation("n", 14, windows(7), k="2"),
        aggregation("n", 13, windows(7), k="2"),
        aggregation("nothing", 7, windows(7)),
        aggregation("price", 7, windows(7)) | {"buckets": ["system"]},
        aggregation("price", 99, windows(7)),
    ]
    text = as_json(group_by(parts))
    result = imported(text)
    (query,) = queries_of(text)
    assert [output.name for output in query.outputs] == ["price_sum_7d", "price_count_7d", "n_last2_7d"]
    codes = [diagnostic.code for diagnostic in result.errors]
    assert codes == ["HDL-141", "HDL-141", "HDL-104", "HDL-104", "HDL-143", "HDL-146", "HDL-203", "HDL-202"], result
    lines = text.split("\n")
    for diagnostic in result.errors:
        assert lines[diagnostic.line - 1][diagnostic.column - 1] in "{n", diagnostic
    assert "price_last3_7d" in next(each.message for each in result.errors if each.code == "HDL-203")
    assert [each.message[:6] for each in result.diagnostics if each.code == "HDL-147"] == ["last_k"]


SOURCES = (
    ({"sources": []}, "HDL-142"),
    ({"sources": [{"events": {}}, {"events": {}}]}, "HDL-142"),
    ({"sources": [{"entities": {"snapshotTable": "t"}}]}, "HDL-142"),
    ({"events": {"isCumulative": True}}, "HDL-142"),
    ({"events": {"table": ""}}, "HDL-142"),
    ({"query": {"timeColumn": "UNIX_TIMESTAMP(ts) * 1000"}}, "HDL-144"),
    ({"query": {"timeColumn": None}}, "HDL-144"),
    ({"query": {"selects": {"user": "user_id, price"}}}, "HDL-146"),
    ({"query": {"selects": {"user": "user_id FROM x"}}}, "HDL-146"),
    ({"query": {"selects": {"user": "{{ user }}"}}}, "HDL-146"),
    ({"query": {"wheres": ["price > (SELECT 1)"]}}, "HDL-103"),
)


@pytest.mark.parametrize(("changes", "code"), SOURCES)
def test_other_sources_are_refused(changes: dict[str, Any], code: str) -> None:
    result = imported(as_json(group_by([aggregation("price", 7, windows(7))], **changes)))
    assert [diagnostic.code for diagnostic in result.errors] == [code] and not result.names, result


def test_a_group_without_aggregations_is_refused() -> None:
    assert found(as_json(group_by([]))) == [("HDL-143", 1, 1)]
    result = imported(as_json(group_by([aggregation("nothing", 7, windows(1)), aggregation("n", 17, windows(1))])))
    assert [diagnostic.code for diagnostic in result.errors] == ["HDL-104", "HDL-202"] and not result.names


def test_conditions_partitions_and_dates() -> None:
    query = {"wheres": ["qty > 1 OR price < 3", "system <> 'b'"], "startPartition": "2021-01-01", "selects": None}
    events = {"table": "data.purchases/system=mobile"}
    text = as_json(group_by([aggregation("price", 7, windows(7))], query=query, events=events, keyColumns=["user_id"]))
    expected = heddle(
        "SELECT user_id, sum(price) AS price_sum_7d FROM purchases WINDOW RANGE '7 days' SLIDE '1 day' ON ts "
        "WHERE (qty > 1 OR price < 3) AND system <> 'b' AND system = 'mobile' AND user_id IS NOT NULL GROUP BY user_id"
    )
    assert queries_of(text)[0].fingerprint == expected.fingerprint
    assert [code for code, *_ in found(text)] == ["HDL-140"]


def test_answers_at_every_request_have_a_slide() -> None:
    for days, unit, slide in ((30, 1, "1 day"), (7, 1, "1 hour"), (3, 0, "5 minutes")):
        text = as_json(group_by([aggregation("price", 7, windows(days, unit=unit))], events={"topic": "purchases"}))
        length = f"{days} {'days' if unit else 'hours'}"
        expected = heddle(
            f"SELECT user_id AS user, sum(price) AS s FROM purchases WINDOW RANGE '{length}' SLIDE '{slide}' ON ts "
            + WITH_KEY
        )
        (query,) = queries_of(text)
        assert query.window == expected.window and [code for code, *_ in found(text)] == ["HDL-147"]


def test_derivations_are_values_made_of_aggregates() -> None:
    parts = [aggregation("price", 7, windows(7, 30)), aggregation("price", 6, windows(7))]
    ratio = {"name": "mean", "expression": "price_sum_7d / price_count_7d"}
    every = {"name": "*", "expression": "*"}
    lost = {"name": "other", "expression": "price_sum_90d + 1"}
    text = as_json(group_by(parts, derivations=[ratio, lost]))
    (query,) = queries_of(text)
    assert [output.name for output in query.outputs] == ["mean"]
    assert [code for code, *_ in found(text)] == ["HDL-202"]
    (query,) = queries_of(as_json(group_by(parts, derivations=[every, ratio])))
    assert [output.name for output in query.outputs] == ["price_sum_7d", "price_sum_30d", "price_count_7d", "mean"]


def test_the_groups_of_a_join_are_queries() -> None:
    named = [group_by([aggregation("price", 7, windows(days))]) for days in (7, 30)]
    named[1]["metaData"] = {"name": "second"}
    text = as_json({"metaData": {"name": "j"}, "left": {}, "joinParts": [{"groupBy": each} for each in named]})
    assert imported(text).names == ("shop.purchases.v1", "second") and [code for code, *_ in found(text)] == ["HDL-140"]
    assert imported(as_json(named)).names == ("shop.purchases.v1", "second")


def test_documents_are_recognised_by_their_content(tmp_path: Path) -> None:
    for text, is_one in (
        ("{}", True),
        ("\ufeff\n [1]", True),
        ("# of a project\nversion: 2\nmetrics:\n", True),
        ("{{ config(a=1) }} SELECT 1", False),
        ("{% if a %}", False),
        ("-- metrics:\nSELECT 1", False),
        ("/* what is in it\nmetrics: all\n*/ WITH a AS (SELECT 1) SELECT 1", False),
        ("SELECT 'a\nversion: 2'", False),
    ):
        assert is_document(text) == is_one, text
    file = tmp_path / "purchases.v1"
    file.write_text(as_json(group_by([aggregation("price", 7, windows(3)), aggregation("price", 7, None)])))
    done = heddle_command("import", str(file))
    assert done.code == 1 and done.out.startswith("-- name: shop.purchases.v1\n") and "HDL-141" in done.err
    assert "1 query imported, 1 error" in done.err


NO_DEFINITIONS = (
    ('{"a": ', "HDL-146"),
    ('{"a": 1}', "HDL-146"),
    ("[1, 2]", "HDL-146"),
    ("{" * 50, "HDL-146"),
    ('{"sources": "\x01"}', "HDL-146"),
    ('{"x": &a [1], "y": *a}', "HDL-146"),
    ('{"sources": [], "keyColumns": []}', "HDL-142"),
)


@pytest.mark.parametrize(("text", "code"), NO_DEFINITIONS)
def test_other_documents_are_refused(text: str, code: str) -> None:
    result = imported(text)
    assert [diagnostic.code for diagnostic in result.errors] == [code] and not result.text, result


NUMBERS = {7: "sum({})", 6: "count({})", 0: "min({})", 1: "max({})", 4: "count(DISTINCT {})"}

generated = st.lists(
    st.tuples(
        st.sampled_from(("n", "qty")),
        st.sampled_from(sorted(NUMBERS)),
        st.lists(st.tuples(st.integers(1, 6), st.sampled_from((0, 1))), min_size=1, max_size=3, unique=True),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda part: part[:2],
)
rows = st.lists(
    st.tuples(st.integers(-1, 7 * 48), st.none() | st.sampled_from("ab"), st.none() | st.integers(-3, 3)), max_size=40
)


@given(generated, rows)
@settings(max_examples=examples(30), deadline=None)
def test_generated_groups_answer_as_their_definition_says(parts: list[Any], events: list[Any]) -> None:
    aggregations = [
        aggregation(column, operation, [{"length": length, "timeUnit": unit} for length, unit in of])
        for column, operation, of in parts
    ]
    selects = {"user": "user_id", "n": "qty * 2", "qty": "qty"}
    (query,) = queries_of(as_json(group_by(aggregations, query={"selects": selects})))
    half_hour = datetime.timedelta(minutes=30)
    times = [END - at * half_hour for at, *_ in events]
    columns = {"ts": times, "user_id": [row[1] for row in events], "qty": [row[2] for row in events]}
    types = (pa.timestamp("us"), pa.string(), pa.int64())
    table = pa.table({name: pa.array(of, type) for (name, of), type in zip(columns.items(), types, strict=True)})
    lengths = [length * (24 if unit else 1) for _, _, of in parts for length, unit in of]
    values = [
        f"{NUMBERS[operation].format('qty * 2' if column == 'n' else 'qty')} FILTER "
        f"(WHERE ts >= TIMESTAMP '{END}' - INTERVAL {length * (24 if unit else 1)} HOURS)"
        for column, operation, of in parts
        for length, unit in of
    ]
    connection = duckdb.connect()
    connection.register("events", table)
    expected = connection.execute(
        f"SELECT user_id, {', '.join(values)} FROM events WHERE ts < TIMESTAMP '{END}' AND user_id IS NOT NULL AND "
        f"ts >= TIMESTAMP '{END}' - INTERVAL {max(lengths)} HOURS GROUP BY user_id"
    ).fetchall()
    at = (END - EPOCH) // datetime.timedelta(microseconds=1)
    ours = {key[1:]: cells for key, cells in answers(query, table, "ts", at - 1, at).items()}
    assert ours.keys() == {row[:1] for row in expected}, query.text
    for key, *row in expected:
        for cell, value in zip(ours[(key,)], row, strict=True):
            assert cell.matches(None if value is None else int(value)), (query.text, key, row)
