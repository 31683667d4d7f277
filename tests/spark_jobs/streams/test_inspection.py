"""``heddle validate`` opens the data: each mistake of a new user is told before anything runs, with what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream
from spark_jobs.pipeline.costs.measurements import events_between
from spark_jobs.streams.sources import event_times
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.inspection import LOOKS, estimated, inspect

QUERY = """
-- name: total
SELECT sum(value) AS total FROM metrics WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY series;
"""
SCHEMA = "    schema: {ts: timestamp, series: string, value: double}\n"
TIMES = ["2015-03-05 20:17:53", "2015-03-06 08:00:00"]


def declared(source: str, schema: str = SCHEMA) -> str:
    return f"streams:\n  metrics:\n    source: {{{source}}}\n{schema}    time: ts\n"


def validate(folder: Path, streams: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON, and what is told to people."""
    (folder / "streams.yaml").write_text(streams)
    (folder / "q.sql").write_text(QUERY)
    arguments = ["validate", str(folder / "q.sql"), "--streams", str(folder / "streams.yaml")]
    invocation = CliRunner().invoke(app, arguments)
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert invocation.exception is None or isinstance(invocation.exception, SystemExit), invocation.exception
    assert invocation.exit_code == done.exit_code
    return done.exit_code, json.loads(done.stdout), invocation.stdout + invocation.stderr


def csv(folder: Path, text: str, name: str = "m.csv") -> str:
    (folder / name).write_text(text)
    return f"format: csv, path: {folder}"


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("ts;series;value\n2015-03-05 20:17:53;a;1\n", "HDL-403", "delimiter: ';'"),
        ("2015-03-05 20:17:53,a,1\n", "HDL-403", "header: false"),
        ("ts,series,value\n05/03/2015 20:17,a,1\n", "HDL-404", "timestamp_format"),
        ("ts,series,value\n1425586673,a,1\n", "HDL-404", "time_unit: s"),
        ("ts,series\n2015-03-05 20:17:53,a\n", "HDL-403", "it has series, ts"),
        ("ts,series,value\n2015-03-05 20:17:53,a,1.2.3\n", "HDL-404", "a decimal number"),
        ("ts,series,value\n2015-03-05 20:17:53,a\n", "HDL-421", ""),
        ('ts,series,value\n2015-03-05 20:17:53,"a,1\n', "HDL-422", "quote: none"),
        ("ts,series,value,value\n2015-03-05 20:17:53,a,1,2\n", "HDL-423", "rename"),
        ("# x\nts,series,value\n", "HDL-403", "comment"),
    ],
)
def test_csv_files_that_are_not_as_declared(tmp_path: Path, text: str, code: str, hint: str) -> None:
    exit_code, report, people = validate(tmp_path, declared(csv(tmp_path, text)))
    (diagnostic,) = report["diagnostics"]
    assert (exit_code, diagnostic["code"], diagnostic["severity"]) == (1, code, "error")
    assert hint in diagnostic["hint"] and str(tmp_path / "m.csv") in diagnostic["message"] and code in people


@pytest.mark.parametrize(
    ("times", "schema", "code", "hint"),
    [
        (pa.array(TIMES), "", "HDL-455", "as timestamp"),
        (pa.array([1425586673, 1425628800]), "", "HDL-455", "time_unit"),
        (pa.array([1425586673, 1425628800]), SCHEMA, "HDL-404", "streams.yaml"),
        (pa.array(["soon", "later"]), SCHEMA, "HDL-404", ""),
    ],
)
@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_parquet_and_delta_whose_times_are_none(
    tmp_path: Path, format: str, times: pa.Array, schema: str, code: str, hint: str
) -> None:
    events = pa.table({"ts": times, "series": ["a", "b"], "value": [1.0, 2.0]})
    if format == "delta":
        write_deltalake(tmp_path / "data", events)
    else:
        (tmp_path / "data").mkdir()
        pq.write_table(events, tmp_path / "data" / "a.parquet")
    exit_code, report, _ = validate(tmp_path, declared(f"format: {format}, path: data", schema))
    diagnostic = report["diagnostics"][0]
    assert (exit_code, diagnostic["code"]) == (1, code) and hint in diagnostic["hint"]


def test_types_that_differ_between_files_and_columns_that_lack(tmp_path: Path) -> None:
    times = pa.array([1425586673000000], pa.timestamp("us"))
    pq.write_table(pa.table({"ts": times, "series": ["a"], "value": [1.0]}), tmp_path / "a.parquet")
    for values, code, exit_wanted in (({"value": ["x"]}, "HDL-404", 1), ({"valu": [1.0]}, "HDL-403", 0)):
        pq.write_table(pa.table({"ts": times, "series": ["a"]} | values), tmp_path / "b.parquet")
        os.utime(tmp_path / "a.parquet", ns=(1, 1))
        exit_code, report, _ = validate(tmp_path, declared(f"format: parquet, path: {tmp_path}"))
        # a column that one file lacks is null there, and perhaps a slip; a run answers all the same
        (diagnostic,) = {finding["message"]: finding for finding in report["diagnostics"]}.values()
        assert (exit_code, diagnostic["code"]) == (exit_wanted, code) and "b.parquet" in diagnostic["message"]


def test_what_no_query_reads_is_a_warning(tmp_path: Path) -> None:
    source = csv(tmp_path, "ts,series,value\n2015-03-05 20:17:53,a,1\n")
    more = SCHEMA.replace("}", ", unit: string}")
    exit_code, report, _ = validate(tmp_path, declared(source, more))
    (diagnostic,) = report["diagnostics"]
    assert (exit_code, diagnostic["code"], diagnostic["severity"]) == (0, "HDL-403", "warning")
    assert "no query reads it" in diagnostic["hint"]
    other = "  other:\n    source: {format: csv, path: absent.csv}\n    schema: {ts: timestamp}\n    time: ts\n"
    exit_code, report, _ = validate(tmp_path, declared(source) + other)
    (diagnostic,) = report["diagnostics"]
    assert (exit_code, diagnostic["code"], diagnostic["severity"]) == (0, "HDL-401", "warning")


def test_the_times_that_a_stream_holds_are_told(tmp_path: Path) -> None:
    csv(tmp_path, f"ts,series,value\n{TIMES[0]},a,1\n", "a.csv")
    source = csv(tmp_path, f"ts,series,value\n{TIMES[0]},a,1\n{TIMES[1]},a,1\n", "b.csv")
    exit_code, report, people = validate(tmp_path, declared(source))
    first, last = "2015-03-05T20:17:53Z", "2015-03-06T08:00:00Z"
    assert exit_code == 0 and report["diagnostics"] == []
    times = {"first": first, "last": last, "newest": last, "about": False, "sample": None}
    assert report["streams"] == [{"name": "metrics", "files": 2, "events": 3} | times]
    assert f"stream metrics: 2 files, 3 events from {first} to {last}" in people
    instants = pa.array([1425586673000000, 1425628800000000], pa.timestamp("us"))
    pq.write_table(pa.table({"ts": instants, "series": ["a", "b"], "value": [1.0, 2.0]}), tmp_path / "p.parquet")
    _, report, people = validate(tmp_path, declared("format: parquet, path: p.parquet", ""))
    assert report["streams"] == [{"name": "metrics", "files": 1, "events": 2} | times]
    assert f"stream metrics: 1 file, 2 events from {first} to {last}" in people


def test_a_stream_without_any_time_is_told(tmp_path: Path) -> None:
    exit_code, report, people = validate(tmp_path, declared(csv(tmp_path, "ts,series,value\n,a,1\n")))
    assert exit_code == 0 and [diagnostic["code"] for diagnostic in report["diagnostics"]] == ["HDL-424"]
    assert "times not known" in people


def test_a_look_reads_only_the_ends_of_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is too long not even the middle is looked at: a broken line there is found by the run."""
    rows = [f"2015-03-05T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02},a,1\n" for at in range(20_000)]
    rows[10_000] = "broken\n"
    path = tmp_path / "m.csv"
    path.write_text("ts,series,value\n" + "".join(rows))
    schema = (("ts", TIMESTAMP), ("series", STRING), ("value", DOUBLE))
    stream = Stream("metrics", Source("csv", str(path)), schema, "ts")
    monkeypatch.setattr(event_times, "MOST_BYTES", 1000)
    inspection = inspect(stream, ["value"])
    assert inspection.diagnostics == () and inspection.about
    assert "about from 2015-03-05T00:00:00Z to 2015-03-05T05:33:19Z (a sample of " in str(inspection)
    monkeypatch.undo()
    (problem,) = inspect(stream, ["value"]).diagnostics
    assert (problem.code, problem.severity) == ("HDL-421", "error") and "line 10002" in problem.message


def test_event_ids_are_looked_at_too(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("ts\n2015-03-05\n")
    stream = Stream("m", Source("csv", str(path)), (("ts", TIMESTAMP), ("id", LONG)), "ts", event_id="id")
    assert [(diagnostic.code, diagnostic.severity) for diagnostic in inspect(stream, []).diagnostics] == [
        ("HDL-403", "error")
    ]


def test_events_of_csv_files_are_counted_about(tmp_path: Path) -> None:
    """Day files, more than are looked at, some longer: an hour has about its events, other hours none."""
    day, every = 86_400, 60
    for number in range(2 * LOOKS + 3):
        rows = [
            f"{number * day + at},{'a' * (at % 7)},{at}" for at in range(0, day, every if number % 5 else every // 2)
        ]
        (tmp_path / f"{number:03}.csv").write_text("\n".join(["ts,series,value", *rows, ""]))
    types = (("ts", TIMESTAMP), ("series", STRING), ("value", LONG))
    stream = Stream("metrics", Source("csv", str(tmp_path), time_unit="s"), types, "ts")
    splits = splits_of(stream)
    counted = estimated(stream, splits)
    assert [(split.path, split.identity) for split in counted] == [(split.path, split.identity) for split in splits]
    micros = 1_000_000
    total = events_between(counted, 0, len(splits) * day * micros)
    written = sum(day // every if number % 5 else 2 * day // every for number in range(len(splits)))
    assert total == pytest.approx(written, rel=0.05)
    assert events_between(counted, 10 * day * micros, 20 * day * micros) == pytest.approx(12 * day // every, rel=0.2)
    assert events_between(counted, -day * micros, 0) == events_between(splits, 0, day * micros) == 0


def test_files_that_say_nothing_of_their_events_stay_as_they_are(tmp_path: Path) -> None:
    for name, text in {
        "a": "",
        "b": "ts,series,value\n",
        "c": "ts,series,value\nnever,a,1\n",
        "d": "other\n1\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text(text)
    stream = Stream("metrics", Source("csv", str(tmp_path)), (("ts", TIMESTAMP), ("value", LONG)), "ts")
    assert estimated(stream, splits_of(stream)) == splits_of(stream)
    assert estimated(stream, []) == []
