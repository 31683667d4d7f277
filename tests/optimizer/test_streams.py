"""streams.yaml: what is declared, and positioned errors for everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.streams import load_streams, parse_type, with_schema
from optimizer.workload.values import DOUBLE, INT, LONG, STRING, TIMESTAMP, Source, Stream, decimal, from_json, to_json

GOOD = """\
streams:
  trades:
    source: {format: csv, path: data/trades.csv}
    schema: {ts: timestamp, symbol: string, price: double, volume: long, fee: 'decimal(10,2)'}
    time: ts
    lateness: 10 minutes
  flights:
    source:
      format: delta
      path: s3://bucket/flights
    time: event_time
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "streams.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_streams_are_read_and_paths_resolve_against_the_file(tmp_path: Path) -> None:
    streams, diagnostics = load_streams(write(tmp_path, GOOD))
    assert diagnostics == ()
    schema = (
        ("ts", TIMESTAMP),
        ("symbol", STRING),
        ("price", DOUBLE),
        ("volume", LONG),
        ("fee", decimal(10, 2)),
    )
    source = Source("csv", str(tmp_path / "data" / "trades.csv"))
    assert streams["trades"] == Stream("trades", source, schema, "ts", 600_000_000)
    assert streams["flights"] == Stream("flights", Source("delta", "s3://bucket/flights"), (), "event_time", 0)


def test_late_and_repeated_events_are_declared(tmp_path: Path) -> None:
    text = STREAM + "    lateness: 1 minute\n    allowed_lateness: 7 days\n    event_id: i\n"
    streams, diagnostics = load_streams(write(tmp_path, text + "    schema: {t: timestamp, i: string}\n"))
    assert diagnostics == ()
    assert (streams["a"].allowed_lateness, streams["a"].event_id) == (7 * 86_400_000_000, "i")


def test_fine_partial_aggregates_are_kept_as_long_as_declared(tmp_path: Path) -> None:
    streams, diagnostics = load_streams(write(tmp_path, STREAM + "    levels: {keep_fine: 90 days}\n"))
    assert diagnostics == () and streams["a"].keep_fine == 90 * 86_400_000_000
    streams, _ = load_streams(write(tmp_path, STREAM))
    assert streams["a"].keep_fine is None and "keep_fine" not in to_json(streams["a"])
    text = STREAM + "    lateness: 3 days\n    levels:\n      keep_fine: 2 days\n"
    (diagnostic,) = load_streams(write(tmp_path, text))[1]
    assert (diagnostic.code, diagnostic.line, diagnostic.column) == ("HDL-457", 7, 18)
    assert "keep_fine is shorter than lateness" in diagnostic.message and "3 days" in diagnostic.hint


def test_how_the_files_of_a_source_are_written_is_declared(tmp_path: Path) -> None:
    options = "delimiter: tab, header: false, quote: none, 'null': [NA, '-'], timestamp_format: '%d/%m/%Y %H:%M'"
    streams, diagnostics = load_streams(write(tmp_path, STREAM.replace("a.csv", "a.csv, " + options)))
    path = str(tmp_path / "a.csv")
    assert diagnostics == ()
    assert streams["a"].source == Source("csv", path, "\t", False, None, ("NA", "-"), "%d/%m/%Y %H:%M")
    for mark in ("';'", '"\\t"', '"|"', '" "'):
        options = f'delimiter: {mark}, quote: "\'", header: true, null: NA'
        streams, diagnostics = load_streams(write(tmp_path, STREAM.replace("a.csv", "a.csv, " + options)))
        assert diagnostics == ()
        assert streams["a"].source == Source("csv", path, yaml.safe_load(mark), True, "'", ("NA",))


def test_options_that_are_not_given_leave_what_is_stored_as_it_was() -> None:
    source = Source("csv", "a.csv")
    assert to_json(source) == {"is": "Source", "format": "csv", "path": "a.csv"} and source.options == ""
    source_with_options = Source("csv", "a.csv", delimiter=";", quote=None, null=("NA",))
    assert from_json(to_json(source_with_options)) == source_with_options and json.loads(
        source_with_options.options
    ).keys() == {"delimiter", "quote", "null"}


def test_a_time_column_of_integers_is_one_of_timestamps_by_its_unit(tmp_path: Path) -> None:
    text = STREAM.replace("a.csv", "a.csv, time_unit: ms") + "    schema: {t: long, n: long}\n"
    streams, diagnostics = load_streams(write(tmp_path, text))
    assert diagnostics == () and streams["a"].schema == (("t", TIMESTAMP), ("n", LONG))


STREAM = "streams:\n  a:\n    source: {format: csv, path: a.csv}\n    time: t\n"


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("", "HDL-453", 0),
        ("- a\n", "HDL-453", 1),
        ("stream:\n  a: {}\n", "HDL-452", 1),
        ("streams:\n  a: [\n", "HDL-451", 3),
        ("streams:\n  a: {}\n", "HDL-453", 2),
        ("streams:\n  a b: {}\n", "HDL-457", 2),
        (STREAM + "    latenes: 1 hour\n", "HDL-452", 5),
        (STREAM + "    lateness: 1 month\n", "HDL-457", 5),
        (STREAM + "    lateness: -1 hour\n", "HDL-457", 5),
        (STREAM + "    allowed_lateness: -1 hour\n", "HDL-457", 5),
        (STREAM + "    lateness: 2 hours\n    allowed_lateness: 1 hour\n", "HDL-457", 6),
        (STREAM + "    levels: {keep_fine: 90}\n", "HDL-457", 5),
        (STREAM + "    levels: {keep_fine: 3 hours}\n", "HDL-457", 5),
        (STREAM + "    levels: {keep_fine: 4000 days}\n", "HDL-457", 5),
        (STREAM + "    levels: {keep_fine: [1 day]}\n", "HDL-453", 5),
        (STREAM + "    levels: {}\n", "HDL-453", 5),
        (STREAM + "    levels: 90 days\n", "HDL-453", 5),
        (STREAM + "    levels: {keep: 90 days}\n", "HDL-452", 5),
        (STREAM + "    event_id: i\n    schema: {t: timestamp}\n", "HDL-461", 5),
        (STREAM + "    event_id: i\n    schema: {t: timestamp, i: double}\n", "HDL-461", 5),
        (STREAM + "    event_id: [i]\n", "HDL-453", 5),
        (STREAM + "    time: u\n", "HDL-456", 5),
        (STREAM + "    schema: {t: timestam}\n", "HDL-454", 5),
        (STREAM + "    schema: {t: timestamp, m: decimal(10,2)}\n", "HDL-454", 5),
        (STREAM + "    schema:\n      t: timestamp\n      m: decimal(40,2)\n", "HDL-454", 7),
        (STREAM + "    schema: {u: timestamp}\n", "HDL-455", 4),
        (STREAM + "    schema: {t: string}\n", "HDL-455", 4),
        (STREAM + "    schema: {t: timestamp, T: long}\n", "HDL-456", 5),
        (STREAM + "    schema: {t: timestamp, t: timestamp}\n", "HDL-456", 5),
        (STREAM + "    schema: {t: [timestamp]}\n", "HDL-453", 5),
        (STREAM.replace("csv,", "xml,"), "HDL-457", 3),
        (STREAM.replace("a.csv", "''"), "HDL-457", 3),
        (STREAM.replace("    time: t\n", ""), "HDL-453", 3),
        ("streams:\n  a: !!python/object/apply:os.system ['true']\n", "HDL-453", 2),
        (STREAM.replace("a.csv", "a.csv, delimiter: ab"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, delimiter: x"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, delimiter: '\"'"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, quote: ''"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, header: maybe"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, null: {a: b}"), "HDL-453", 3),
        (STREAM.replace("a.csv", "a.csv, null: [[a]]"), "HDL-453", 3),
        (STREAM.replace("a.csv", "a.csv, time_unit: minutes"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, timestamp_format: '%d/%m'"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, timestamp_format: '%d/%m/%Y %q'"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, timestamp_format: '%d/%m/%Y %d'"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, timestamp_format: '%d/%m/%Y %I:%M'"), "HDL-457", 3),
        (STREAM.replace("a.csv", "a.csv, timestamp_format: '%d/%m/%Y %'"), "HDL-457", 3),
        (STREAM.replace("csv,", "parquet,").replace("a.csv", "a, header: false"), "HDL-457", 3),
        (STREAM + "    schema: {t: long}\n", "HDL-455", 4),
        ("[" * 5000, "HDL-451", None),
    ],
)
def test_mistakes_have_a_code_and_a_line(tmp_path: Path, text: str, code: str, line: int | None) -> None:
    streams, diagnostics = load_streams(write(tmp_path, text))
    assert streams == {}
    assert [diagnostic.code for diagnostic in diagnostics] == [code]
    assert line is None or diagnostics[0].line == line


def test_one_bad_stream_leaves_the_others(tmp_path: Path) -> None:
    streams, diagnostics = load_streams(write(tmp_path, GOOD.replace("format: csv", "format: cvs")))
    assert list(streams) == ["flights"]
    assert "did you mean csv?" in str(diagnostics[0]) and "trades" in diagnostics[0].message


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x" * (1 << 21)])
def test_files_that_are_no_text_are_refused(tmp_path: Path, content: bytes) -> None:
    assert [diagnostic.code for diagnostic in load_streams(write(tmp_path, content))[1]] == ["HDL-450"]


def test_a_missing_file_is_a_diagnostic(tmp_path: Path) -> None:
    streams, diagnostics = load_streams(tmp_path / "none.yaml")
    assert streams == {} and diagnostics[0].code == "HDL-450"


def test_a_discovered_schema_is_checked_like_a_declared_one() -> None:
    stream = Stream("a", Source("delta", "a"), (), "t")
    assert with_schema(stream, {"t": TIMESTAMP, "x": INT}).schema == (("t", TIMESTAMP), ("x", INT))
    for schema, code in (
        ([("x", INT)], "HDL-455"),
        ([("t", LONG)], "HDL-455"),
        ([("t", TIMESTAMP), ("T", LONG)], "HDL-456"),
    ):
        with pytest.raises(HeddleError) as caught:
            with_schema(stream, schema)
        assert caught.value.diagnostic.code == code


def test_types_by_name() -> None:
    assert parse_type(" Integer ") == INT
    assert parse_type("decimal(38, 10)") == decimal(38, 10)
    assert parse_type("decimal(5)") == decimal(5, 0)
    for text in ("decimal", "decimal(5,6)", "decimal(0,0)", "varchar", ""):
        with pytest.raises(HeddleError):
            parse_type(text)
