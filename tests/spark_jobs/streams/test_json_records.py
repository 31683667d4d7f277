"""Records of JSON files as Spark is given them: each event once, however lines and keys are written, or a code."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.nested import Nested
from optimizer.workload.values import BOOLEAN, BYTE, DATE, DOUBLE, INT, LONG, SHORT, STRING, TIMESTAMP, Type, decimal
from spark_jobs.streams.copies.copying import bring_up_to_date
from spark_jobs.streams.copies.json_records import records_of
from spark_jobs.streams.sources.files import files_of
from tests.sizes import examples
from tests.spark_jobs.streams.copied_streams import LATER, rows_of, stream_of
from tests.spark_jobs.streams.sink_log import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECLARED: dict[str, Type | Nested] = {
    "ts": TIMESTAMP,
    "user_id": LONG,
    "price": DOUBLE,
    "fee": decimal(6, 2),
    "note": STRING,
    "at": Nested("struct", (("lat", DOUBLE), ("ids", Nested("array", (("element", INT),))))),
    "tags": Nested("map", (("key", STRING), ("value", LONG))),
}


def records(*lines: str) -> list[Any]:
    """What Spark is given, with exact numbers."""
    texts = [record for line in lines for record in records_of("s", DECLARED, "f.json", line)]
    return [json.loads(text, parse_float=Decimal) for text in texts]


texts = st.text(max_size=6) | st.sampled_from(["}{", '"', "\\", "'", "}\n{", '","ts":1,"', "é\u2028"])
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
events = st.fixed_dictionaries(
    {"ts": st.just("2020-01-01T00:00:00Z")},
    optional={
        "user_id": numbers | st.none(),
        "price": st.floats(allow_nan=False, allow_infinity=False) | numbers,
        "fee": st.integers(-999_999, 999_999).map(lambda cents: f"{cents / 100:.2f}"),
        "note": texts,
        "at": st.fixed_dictionaries(
            {}, optional={"lat": st.floats(-90, 90), "ids": st.lists(st.integers(-9, 9), max_size=3)}
        ),
        "tags": st.dictionaries(texts, numbers, max_size=2),
        "other": st.recursive(texts | numbers, lambda inner: st.lists(inner, max_size=2), max_leaves=3),
    },
)


def in_case(value: Any, declared: dict[str, Type | Nested], change: Any) -> Any:
    """An event with the declared keys in another case."""
    return {
        change(key) if key in declared else key: in_case(inner, dict(kind.fields), change)
        if isinstance(kind := declared.get(key), Nested) and kind.kind == "struct"
        else inner
        for key, inner in value.items()
    }


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), lines=st.lists(st.lists(events, min_size=1, max_size=4), max_size=4))
def test_each_record_comes_once_by_the_declared_keys(data: st.DataObject, lines: list[list[dict[str, Any]]]) -> None:
    expected, written = [], []
    for line in lines:
        expected += [json.loads(json.dumps(event), parse_float=Decimal) for event in line]
        change = st.sampled_from([str, str.upper, str.title])
        spelled = [json.dumps(in_case(event, DECLARED, data.draw(change))) for event in line]
        between = data.draw(st.sampled_from(["", " ", "\t", "\n", "\r\n  "]))
        is_array = data.draw(st.booleans())
        written.append(f"[{', '.join(spelled)}]" if is_array else between.join(spelled))
    assert records(*written) == expected


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), before=st.lists(events, max_size=2))
def test_a_value_that_does_not_fit_is_an_error_with_its_column(
    data: st.DataObject, before: list[dict[str, Any]]
) -> None:
    wrong: dict[str, list[Any]] = {
        "user_id": ["12", 1.5, True, 1 << 63, {}, [1]],
        "price": ["1.5", "x", True, []],
        "fee": [1.005, 10_000, "1e9", "x", True],
        "ts": [1_600_000_000_000, 1.5, True, {}],
        "at.lat": ["north", {}],
        "at.ids": [{}, 1],
        "at.ids[1]": [[1, "x"], [1, 1 << 31]],
        "tags": [[1], "x"],
        "tags['k']": [{"k": "x"}],
    }
    column = data.draw(st.sampled_from(sorted(wrong)))
    value = data.draw(st.sampled_from(wrong[column]))
    root, _, field = column.partition(".")
    event: Any = {root.partition("[")[0]: {field.partition("[")[0]: value} if field else value}
    line = "".join(map(json.dumps, [*before, event]))
    with pytest.raises(HeddleError, match="HDL-404") as caught:
        records(line)
    message = caught.value.diagnostic.message
    assert f"column {column} of f.json does not fit its declared type" in message and caught.value.hint
    shown = value[1] if column == "at.ids[1]" else value["k"] if column == "tags['k']" else value
    assert json.dumps(shown) in message or column in ("at.lat", "at.ids")


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        *[
            ("127", BYTE, True),
            ("128", BYTE, False),
            ("-32768", SHORT, True),
            ("1e3", LONG, False),
            ("NaN", DOUBLE, True),
        ],
        *[('"NaN"', DOUBLE, True), ("NaN", LONG, False), ("true", BOOLEAN, True), ("1", BOOLEAN, False)],
        *[('"2020-01-01"', DATE, True), ("18262", DATE, False), ("1", STRING, True), ("{}", STRING, True)],
        *[("1.10", decimal(3, 1), True), ("1.11", decimal(3, 1), False), ("100", decimal(3, 1), False)],
        *[('"12.5"', decimal(3, 1), True), ("1e1", decimal(3, 1), True), ("0e99", decimal(3, 1), True)],
        *[("null", LONG, True), ("-62135596800", TIMESTAMP, True), ("-62135596801", TIMESTAMP, False)],
    ],
)
def test_which_values_fit(value: str, kind: Type, fits: bool) -> None:
    def read() -> list[str]:
        return list(records_of("s", {"x": kind}, "f", f'{{"x": {value}}}'))

    if fits:
        assert read() == [f'{{"x": {value}}}']
    else:
        with pytest.raises(HeddleError, match="HDL-404"):
            read()


@pytest.mark.parametrize(
    "line",
    ['{"a": 1', '{"a": 1} x', '{"a": 1},', "null", "1", '[{"a": 1}, 2]', '{"a": 1}\x00', "{'a': 1}{'a': 2}", "{'a'"],
)
def test_what_is_no_record_is_refused_by_file(line: str) -> None:
    with pytest.raises(HeddleError, match=r"HDL-433 stream s: f.json has what is no JSON record") as caught:
        records(line)
    assert caught.value.hint


def test_single_quotes_byte_order_marks_and_empty_lines() -> None:
    assert list(records_of("s", DECLARED, "f", "{'note': 'a}{\\'b'}")) == ["{'note': 'a}{\\'b'}"]
    assert records("\ufeff" + '{"ts": "a"}', "", "  \t") == [{"ts": "a"}]


def test_keys_that_differ_by_case() -> None:
    """The one that is spelled as declared counts; without it two are refused."""
    assert records('{"TS": 1, "ts": 2}') == [{"TS": 1, "ts": 2}]
    assert records('{"tags": {"TS": 1}, "at": {"LAT": 1.50}}') == [{"tags": {"TS": 1}, "at": {"lat": Decimal("1.50")}}]
    with pytest.raises(HeddleError, match="HDL-456 .*Ts and TS"):
        records('{"Ts": 1, "TS": 2}')


# ------------------------------------------------------------------------------------------------ by Spark
@pytest.fixture(autouse=True)
def _copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_COPIES", str(tmp_path / "copies"))


def test_copies_of_json_hold_each_event_once(spark: SparkSession, tmp_path: Path) -> None:
    """As Firehose writes them, in other cases, as arrays, over several lines, of files that were committed."""
    data = tmp_path / "data"
    data.mkdir()

    def event(number: int) -> str:
        return json.dumps({"ts": f"2020-01-01T00:00:{number:02}Z", "symbol": "A", "price": 1.5, "volume": number})

    (data / "a.json").write_text("".join(map(event, range(3))) + "\n" + event(3) + "\n\n" + f"[{event(4)}, {event(5)}]")
    (data / "b").write_text(event(6).replace("ts", "TS").replace("volume", "Volume"))
    for name in ("c.json.tmp", "_hidden.json", "d.json._COPYING_"):
        (data / name).write_text(event(50))
    stream = stream_of(tmp_path, "{format: json, path: data, reader: spark}")
    bring_up_to_date(spark, stream, LATER)
    assert sorted(row.split("'volume', ")[1] for row in rows_of(stream)) == [f"{number})]" for number in range(7)]
    (data / "e.json").write_text(event(7).replace("2020-01-01T00:00:07Z", "yesterday"))
    with pytest.raises(HeddleError, match="HDL-404 stream trades: column ts .* declared type timestamp: .*yesterday"):
        bring_up_to_date(spark, stream, LATER)
    (data / "e.json").write_text('{"volume": "many"}')
    with pytest.raises(HeddleError, match=r"HDL-404 stream trades: column volume of .*e\.json .* long: \"many\""):
        bring_up_to_date(spark, stream, LATER)
    (data / "e.json").unlink()
    batch(data, 0, [("add", "a.json")])
    bring_up_to_date(spark, stream, LATER)
    assert rows_of(stream).total() == 6
    assert [warning.code for warning in files_of(stream).warnings] == ["HDL-416"]
    many = stream_of(tmp_path, "{format: json, path: more, options: {multiLine: 'true'}}")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.json").write_text(f"[\n{event(1)},\n{event(2)}]\n{event(3)}".replace(",", ",\n"))
    bring_up_to_date(spark, many, LATER)
    assert Counter(row.split("'volume', ")[1] for row in rows_of(many)) == Counter(["1)]", "2)]", "3)]"])
