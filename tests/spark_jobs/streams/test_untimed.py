"""Events without a usable time are reported by stream and file wherever somebody looks, until the file is corrected."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from spark_jobs.operations.read import read_operations
from spark_jobs.results.read import check_answered
from spark_jobs.store.warehouse import publish_log, quarantine
from spark_jobs.store.warehouse.data_files import WithoutTime
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.quarantine import LeftOut
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.untimed import NAMED, note_without_time, standing_without_time
from tests.sizes import examples

DAY = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
STREAMS = """
streams:
  trades: {source: {format: %s, path: trades}, time: ts, schema: {ts: timestamp, v: long}}
  quotes: {source: {format: %s, path: quotes}, time: ts, schema: {ts: timestamp, v: long}}
"""
QUERIES = """
-- name: trades_hourly
SELECT count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts;
-- name: quotes_hourly
SELECT count(*) AS n FROM quotes WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts;
"""


def write(format: str, path: Path, events: Sequence[int | None]) -> None:
    """A file of events at these minutes of the day; None: without a time, -1: at one that is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    micros = [
        at if at is None else int(DAY.timestamp() * 1e6) + at * 60_000_000 if at >= 0 else 1 << 62 for at in events
    ]
    times = pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "v": pa.array(range(len(events)), pa.int64())})
    if format == "csv":
        pcsv.write_csv(table.set_column(0, "ts", pa.array(texts(events), pa.string())), path)
    elif format == "parquet":
        pq.write_table(table, path)
    else:
        write_deltalake(path.parent, table, mode="append")


def texts(events: Sequence[int | None]) -> list[str | None]:
    return [
        at if at is None else (DAY + dt.timedelta(minutes=at)).isoformat() if at >= 0 else "12020-01-01T00:00:00"
        for at in events
    ]


def heddle(*arguments: str, code: int = 0) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == code, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


class Project:
    """A project on disk, and the commands on it."""

    def __init__(self, folder: Path, format: str) -> None:
        self.folder, self.format, self.house = folder, format, ("--warehouse", str(folder / "house"))
        folder.mkdir(parents=True, exist_ok=True)
        self.streams = ("--streams", str(folder / "streams.yaml"))
        (folder / "streams.yaml").write_text(STREAMS % (format, format))
        (folder / "q.sql").write_text(QUERIES)

    def run(self, code: int = 0, end: str = "2020-01-02") -> dict[str, Any]:
        span = ("--from", "2020-01-01", "--to", end)
        return heddle(
            "run", str(self.folder / "q.sql"), *self.streams, *self.house, *span, "--checks", "none", code=code
        )


@pytest.mark.engine
@pytest.mark.parametrize("format", ["parquet", "delta"])
@settings(max_examples=examples(2, 20), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    files=st.lists(
        st.tuples(
            st.sampled_from(["trades", "quotes"]), st.lists(st.sampled_from([1, 90, None, -1]), min_size=1, max_size=4)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_every_event_is_answered_or_counted_by_its_file(
    format: str, files: list[tuple[str, list[int | None]]], tmp_path: Path
) -> None:
    project = Project(tmp_path / uuid.uuid4().hex, format)
    expected: dict[str, list[int]] = {"trades": [], "quotes": []}
    answered = {"trades": 1, "quotes": 1}
    for stream in expected:
        write(format, project.folder / stream / f"0.{format}", [0])
    for number, (stream, events) in enumerate(files, 1):
        write(format, project.folder / stream / f"{number}.{format}", events)
        lost = sum(at is None or at < 0 for at in events)
        answered[stream] += len(events) - lost
        expected[stream] += [lost] if lost else []
    record = project.run()
    assert {name: sorted(of.values()) for name, of in record["without_time"].items()} == {
        name: sorted(of) for name, of in expected.items() if of
    }
    assert record["rows_without_time"] == sum(map(sum, expected.values()))
    warned = {
        diagnostic["message"].split(":")[0] for diagnostic in record["diagnostics"] if diagnostic["code"] == "HDL-410"
    }
    assert warned == {f"stream {name}" for name, of in expected.items() if of}
    for stream, events in answered.items():
        rows = heddle("read", f"{stream}_hourly", *project.house)["rows"]
        assert sum(row["n"] for row in rows) == events
    untimed = heddle("quarantine", *project.house).get("without_time", [])
    assert sorted((row["stream"], row["events"]) for row in untimed) == sorted(
        (name, count) for name, of in expected.items() for count in of
    )
    assert heddle("status", *project.house).get("without_time", []) == untimed
    again = project.run()
    assert again["status"] == "unchanged"
    messages = [
        sorted(diagnostic["message"] for diagnostic in each["diagnostics"] if diagnostic["code"] == "HDL-410")
        for each in (record, again)
    ]
    assert messages[0] == messages[1]


def test_a_file_is_reported_until_it_is_corrected(tmp_path: Path) -> None:
    """By run, quarantine, status, streams and the page of operations, each file once however often it was read."""
    project, house = Project(tmp_path, "csv"), Warehouse.open(tmp_path / "house")
    for stream in ("trades", "quotes"):
        write("csv", tmp_path / stream / "good.csv", [0, 90])
    write("csv", tmp_path / "trades" / "bad one.csv", [1, None, None])
    for end in ("2020-01-02", "2020-01-03"):
        record = project.run(end=end)
    assert record["without_time"] == {"trades": {"bad one.csv": 2}}
    (untimed_file,) = standing_without_time(house)
    assert (untimed_file.stream, untimed_file.file, untimed_file.rows, untimed_file.code) == (
        "trades",
        "bad one.csv",
        2,
        "HDL-410",
    )
    runner = CliRunner()
    for command in (("quarantine",), ("status",)):
        assert "bad one.csv" in runner.invoke(app, [*command, *project.house]).output
    for command in (("streams",), ("validate", str(tmp_path / "q.sql"))):
        done = runner.invoke(app, [*command, *project.streams])
        assert done.exit_code == 0
        assert command[0] == "validate" or "2 events without a usable time left out: bad one.csv (2)" in done.output
    (total,) = read_operations(house).quarantined
    assert (total.stream, total.code, total.rows, total.runs) == ("trades", "HDL-410", 2, 2)
    write("csv", tmp_path / "trades" / "bad one.csv", [1, 2, None, 3])
    assert project.run(end="2020-01-03")["without_time"] == {"trades": {"bad one.csv": 1}}
    assert [row.rows for row in standing_without_time(house)] == [1]
    write("csv", tmp_path / "trades" / "bad one.csv", [1, 2, 3, 4, 5])
    assert project.run(end="2020-01-03")["without_time"] == {} and standing_without_time(house) == []
    write("csv", tmp_path / "quotes" / "worse.csv", [None])
    project.run(end="2020-01-03")
    assert [row.file for row in standing_without_time(house, {"quotes"})] == ["worse.csv"]
    (tmp_path / "quotes" / "worse.csv").unlink()
    project.run(end="2020-01-03")
    assert standing_without_time(house) == []
    assert "HDL-410" not in runner.invoke(app, ["status", *project.house, "--last", "1"]).output


def test_many_files_are_named_as_far_as_they_matter() -> None:
    from optimizer.workload.values import LONG, TIMESTAMP, Source, Stream

    stream = Stream("s", Source("csv", "/data"), (("ts", TIMESTAMP), ("v", LONG)), "ts")
    record = RunRecord("r", 1, 0, 1)
    note_without_time(record, stream, [WithoutTime(f"/data/{number}.csv", number + 1) for number in range(NAMED + 5)])
    files = record.without_time["s"]
    assert len(files) == NAMED + 1 and files[""] == sum(range(1, 6)) and max(files.values()) == NAMED + 5
    assert "104.csv (105), 103.csv (104), 102.csv (103) and 98 more" in record.diagnostics[0]["message"]


def test_rows_of_an_earlier_heddle_are_read(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path)
    with house.lease() as token:
        rows = [LeftOut("one", "", "HDL-410", 3, "3 events without an event time were left out", 5)] * 2
        quarantine.log(house, rows, token, ("x", 1))
    assert standing_without_time(house) == []
    assert [(total.stream, total.rows) for total in read_operations(house).quarantined] == [("", 6)]


# -------------------------------------------------------------------------------- the reason of a query
@pytest.mark.engine
def test_a_query_without_answers_is_told_the_reason_of_its_own_stream(tmp_path: Path) -> None:
    project = Project(tmp_path, "csv")
    for stream in ("trades", "quotes"):
        write("csv", tmp_path / stream / "a.csv", [0, 90])
    project.run()
    (tmp_path / "trades" / "a.csv").write_text("ts,v\nyesterday,1\n")
    (tmp_path / "quotes" / "a.csv").write_text("v\n1\n")
    span = ("--from", "2020-01-02", "--to", "2020-01-03")
    files = (str(tmp_path / "q.sql"), *project.streams, *project.house)
    assert CliRunner().invoke(app, ["run", *files, *span]).exit_code == 1
    for stream, code in (("trades", "HDL-404"), ("quotes", "HDL-403")):
        done = CliRunner().invoke(app, ["read", f"{stream}_hourly", *project.house, "--from", "2020-01-02"])
        assert done.exit_code == 1 and "HDL-547" in done.output
        assert code in done.output.replace("HDL-547", ""), done.output


def test_warnings_and_other_streams_are_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house, record = Warehouse.open(tmp_path), RunRecord("r", 1, 0, 10, status="failed", failed=["trades", "trades_2"])
    diagnostics = [
        Diagnostic("HDL-410", "stream trades: 1 event without a usable time left out", severity="warning"),
        Diagnostic("HDL-402", "stream trades_2: b.csv cannot be read"),
        Diagnostic("HDL-404", "stream trades: a.csv does not fit"),
        Diagnostic("HDL-505", "none of the plan's streams could be read"),
    ]
    record.diagnostics = [diagnostic.to_json() for diagnostic in diagnostics]
    from spark_jobs.results import read as module

    monkeypatch.setattr(
        module, "planned", lambda *arguments: [type("Row", (), {"plan_version": 1, "stream": "trades"})()]
    )
    publish_log.log_event(house, record, "failed", None, None)
    with pytest.raises(HeddleError, match="HDL-404 stream trades: a.csv"):
        check_answered(house, "q")


# ------------------------------------------------------------------------------------------ exit codes
@pytest.mark.engine
def test_commands_with_warnings_only_end_with_0(tmp_path: Path) -> None:
    """Events without a time, files that are not read, intervals without events: all that was asked was published."""
    project = Project(tmp_path, "csv")
    for stream in ("trades", "quotes"):
        write("csv", tmp_path / stream / "a.csv", [0, None, 90])
        write("csv", tmp_path / stream / "b.csv.xz", [0])
    record = project.run()
    assert {diagnostic["code"] for diagnostic in record["diagnostics"]} >= {"HDL-410", "HDL-414"}
    assert {diagnostic["severity"] for diagnostic in record["diagnostics"]} == {"warning"}
    span = ("--from", "2020-01-01", "--to", "2020-01-03")
    for command in (
        ("backfill", *span, "--checks", "none", *project.house),
        ("tick", "--at", "2020-01-04", "--checks", "none", *project.house),
        ("repair", *project.house),
        ("streams", *project.streams),
        ("validate", str(tmp_path / "q.sql"), *project.streams),
        ("status", *project.house),
    ):
        heddle(*command)
    write("csv", tmp_path / "trades" / "late.csv", [5, None])
    assert len(heddle("repair", *project.house)["records"]) >= 1
