"""From an empty folder with some data to the first answers: ``heddle init``, and what follows it."""

from __future__ import annotations

import gzip
import json
import random
import re
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.operations import project
from spark_jobs.operations.first_queries import rate_text, window_of
from spark_jobs.operations.project import plan_project
from spark_jobs.streams.sources.csv_guess import guess_csv
from spark_jobs.streams.sources.proposals import look, propose, time_of
from tests.in_process import Clock, Said, heddle, without_spark
from tests.spark_jobs.laboratory import serve_commands

NOW = 1_800_000_000_000_000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("WAREHOUSE", "STREAMS", "WORKLOAD"):
        monkeypatch.delenv(f"HEDDLE_{name}", raising=False)
    return tmp_path


# ------------------------------------------------------------------------------------------ five steps
def frame() -> pd.DataFrame:
    times = pd.date_range("2025-03-03", periods=2000, freq="45s")
    pages = np.array(["home", "shop", "help"])[np.arange(2000) % 3]
    return pd.DataFrame({"at": times, "page": pages, "seconds": np.arange(2000) % 17 / 2})


def as_csv(folder: Path) -> None:
    frame().to_csv(folder / "visits.csv", index=False)


def as_pandas_parquet(folder: Path) -> None:
    """Several files with nanoseconds and the index, as pandas writes them."""
    (folder / "visits").mkdir()
    for number, part in enumerate(np.array_split(frame().index, 3)):
        table = frame().loc[part].set_index("at") if number % 2 else frame().loc[part].set_index("at")
        table.to_parquet(folder / "visits" / f"{number}.parquet")
    kind = pq.read_schema(folder / "visits" / "0.parquet").field("at").type
    assert kind == pa.timestamp("ns"), "this test is about nanoseconds"


def as_delta(folder: Path) -> None:
    write_deltalake(str(folder / "visits"), frame(), partition_by=["page"])


SHAPES = [as_csv, as_pandas_parquet, as_delta]


def five_steps(write: Callable[[Path], None], folder: Path) -> dict[str, Said]:
    """Init, validate, preview, run and read, as what init prints says."""
    write(folder)
    completed_steps = {"init": heddle("init")}
    steps = completed_steps["init"].out.partition("next:\n")[2].split("\n")
    for step in filter(None, steps):
        words = step.split()[1:]
        completed_steps[words[0]] = heddle(*words)
    return completed_steps


@pytest.mark.parametrize("write", SHAPES)
def test_five_steps_over_data_that_nobody_has_declared(write: Callable[[Path], None], folder: Path) -> None:
    with without_spark(Clock(NOW)):
        completed_steps = five_steps(write, folder)
    assert list(completed_steps) == ["init", "validate", "preview", "run", "read"]
    assert {name: step.code for name, step in completed_steps.items()} == dict.fromkeys(completed_steps, 0), (
        completed_steps
    )
    assert "1 query usable, 0 errors" in completed_steps["validate"].out
    assert "visits_15min" in completed_steps["preview"].out
    rows = re.findall(r"2025-03-04 00:15:00 │ (\w+) +│ +(\d+) │", completed_steps["read"].out)
    assert sorted(rows) == [("help", "6"), ("home", "7"), ("shop", "7")]


@pytest.mark.longer
@pytest.mark.spark
@pytest.mark.parametrize("write", SHAPES)
def test_five_steps_with_spark(
    write: Callable[[Path], None], folder: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_commands(spark, monkeypatch)
    completed_steps = five_steps(write, folder)
    assert {name: step.code for name, step in completed_steps.items()} == dict.fromkeys(completed_steps, 0), (
        completed_steps
    )
    assert "2025-03-04 00:15:00" in completed_steps["read"].out


# ----------------------------------------------------------------------------------------------- files
def test_nothing_is_overwritten(folder: Path) -> None:
    as_csv(folder)
    Path("queries").mkdir()
    Path("queries/first.sql").write_text("mine")
    completed = heddle("init")
    assert completed.code == 2
    assert "HDL-133" in completed.err and "queries/first.sql" in completed.err
    assert not Path("streams.yaml").exists() and not Path("heddle.toml").exists()
    completed = heddle("init", "--folder", "other")
    assert completed.code == 0
    assert "cd other" in completed.out
    assert Path("queries/first.sql").read_text() == "mine"


def test_a_dry_run_shows_the_files_and_writes_none(folder: Path) -> None:
    as_csv(folder)
    completed = heddle("init", "--dry-run")
    assert "would write streams.yaml" in completed.out and "time: at" in completed.out
    assert sorted(path.name for path in folder.iterdir()) == ["visits.csv"]


def test_options_say_the_time_and_the_name(folder: Path) -> None:
    Path("x.csv").write_text("created,ts,v\n" + "2025-03-03T10:00:00,2025-03-03T11:00:00,1\n" * 3)
    assert heddle("init", "x.csv", "--dry-run").out.count("time: ts") == 2
    completed = heddle("init", "x.csv", "--time", "created", "--name", "orders")
    assert completed.code == 0, completed.err
    text = Path("streams.yaml").read_text()
    assert "  orders:" in text and "time: created" in text and "# time: ts   # also timestamps in ISO 8601" in text
    assert "HDL-136" in heddle("init", "x.csv", "--time", "v", "--folder", "b").err
    assert "did you mean created?" in heddle("init", "x.csv", "--time", "create", "--folder", "b").err


def test_somebody_is_asked_at_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("x.csv").write_text("created,ts,v\n" + "2025-03-03T10:00:00,2025-03-03T11:00:00,1\n" * 3)
    monkeypatch.setattr("heddle.cli.changes.is_at_terminal", lambda: True)
    replies = iter(["created", "orders"])
    monkeypatch.setattr("typer.prompt", lambda *arguments, **options: next(replies))
    assert heddle("init").code == 0
    text = Path("streams.yaml").read_text()
    assert "  orders:" in text and "time: created" in text
    assert heddle("init", "--yes", "--folder", "b").code == 0


def test_airflow_gets_a_folder_of_dags_and_its_environment(folder: Path) -> None:
    as_csv(folder)
    assert heddle("init", "--airflow").code == 0
    environment = Path("airflow.env").read_text()
    assert f"HEDDLE_PROJECT={folder}\n" in environment
    assert f"AIRFLOW__CORE__DAGS_FOLDER={folder}/dags" in environment
    compile(Path("dags/heddle_dags.py").read_text(), "heddle_dags.py", "exec")


def test_everything_below_is_looked_at(folder: Path) -> None:
    as_csv(folder)
    (folder / "deep").mkdir()
    write_deltalake(str(folder / "deep" / "orders"), frame())
    (folder / "logs" / "day=2025-03-03").mkdir(parents=True)
    frame().to_parquet(folder / "logs" / "day=2025-03-03" / "a.parquet")
    (folder / ".hidden").mkdir()
    frame().to_csv(folder / ".hidden" / "x.csv")
    (folder / "empty.csv").touch()
    completed = heddle("init")
    assert completed.code == 0
    assert "warning HDL-135 empty.csv is empty" in completed.err
    text = Path("streams.yaml").read_text()
    assert re.findall(r"^  (\w+):", text, re.M) == ["visits", "orders", "logs"]
    assert "partitions: [day]" in text and "#   day: date" in text
    assert heddle("validate").code == 0


def test_a_pattern_of_all_files_is_their_folder(folder: Path) -> None:
    as_pandas_parquet(folder)
    assert "path: visits\n" in heddle("init", "visits/*.parquet", "--dry-run").out
    some = heddle("init", "visits/[01].parquet", "--dry-run").out
    assert "path: visits/0.parquet" in some and "path: visits/1.parquet" in some


# ------------------------------------------------------------------------------------------- guessing
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ts,v\n2025-03-03T10:00:00,1\n", {}),
        (
            "ts;v\n05.03.2015 20:17;1,5\n13.03.2015 20:17;1,5\n",
            {"delimiter": ";", "timestamp_format": "%d.%m.%Y %H:%M"},
        ),
        ("ts\tv\n1425586620\t1\n1425586680\tNA\n", {"delimiter": "\t", "time_unit": "s", "null": ("NA",)}),
        ("1425586620123,a\n1425586680123,b\n", {"header": False, "time_unit": "ms"}),
        ("v,when\n1,03/25/2015 9:05 PM\n2,03/26/2015 9:05 AM\n", {"timestamp_format": "%m/%d/%Y %I:%M %p"}),
        ('ts,"a, b"\n2025-03-03,"x, y"\n', {}),
        ("ts|v\n20250303|01234\n", {"delimiter": "|", "timestamp_format": "%Y%m%d"}),
        ("ts,v\n05/Mar/2015:20:17:00 +0100,1\n", {"timestamp_format": "%d/%b/%Y:%H:%M:%S %z"}),
        ("\ufeffts,v\r\n2025-03-03 10:00:00.5+01:00,1\r\n", {}),
    ],
)
def test_what_csv_files_seem_to_be(text: str, expected: dict[str, object]) -> None:
    Path("some.csv").write_text(text, newline="")
    data = look(Path("some.csv"))
    proposal = propose(data, time_of(data))
    source = proposal.stream.source
    options = {"delimiter": ",", "header": True, "null": (), "timestamp_format": None, "time_unit": None} | expected
    assert {name: getattr(source, name) for name in options} == options
    assert proposal.inspection.diagnostics == ()
    assert heddle("init", "some.csv").code == 0
    assert heddle("validate").code == 0
    assert heddle("preview").code == 0


def test_decimal_commas_are_told_of_and_comments() -> None:
    Path("some.csv").write_text("ts;v\n2025-03-03;1,5\n2025-03-04;1.250,00\n")
    assert "numbers with a decimal comma are read as texts: v" in heddle("init", "some.csv").out
    Path("log.csv").write_text("# exported by hand\nts,v\n2025-03-03,1\n")
    assert "remove lines that are comments" in heddle("init", "log.csv", "--folder", "b").err


def test_codes_that_begin_with_zeros_are_no_numbers() -> None:
    Path("some.csv").write_text("ts,zip,big,n\n2025-03-03,01234,12345678901234567890,1\n2025-03-04,50667,1,x\n")
    types = {column.name: str(column.type) for column in guess_csv([Path("some.csv")]).columns}
    assert types == {"ts": "date", "zip": "string", "big": "string", "n": "string"}


@given(
    start=st.datetimes(datetime(1991, 1, 1), datetime(2090, 1, 1)).map(lambda at: at.replace(microsecond=0)),
    step=st.integers(1, 10**7),
    unit=st.sampled_from(("s", "ms", "us", "ns")),
)
def test_what_integers_count_is_seen(
    tmp_path_factory: pytest.TempPathFactory, start: datetime, step: int, unit: str
) -> None:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = [(start + timedelta(seconds=number * step)).replace(tzinfo=UTC) for number in range(5)]
    file = tmp_path_factory.mktemp("units") / "x.parquet"
    pq.write_table(pa.table({"t": [int(at.timestamp()) * factor for at in times], "v": range(5)}), file)
    data = look(file)
    proposal = propose(data, time_of(data))
    assert proposal.stream.source.time_unit == unit
    assert proposal.inspection.first == int(times[0].timestamp()) * 10**6


def test_strings_of_times_in_parquet_get_a_schema() -> None:
    pq.write_table(pa.table({"t": ["2025-03-03 10:00:00", "2025-03-03 11:00:00"], "v": [1, 2]}), "x.parquet")
    assert heddle("init").code == 0
    assert "      t: timestamp" in Path("streams.yaml").read_text()
    completed = heddle("preview", "--json")
    assert completed.code == 0 and json.loads(completed.out)["queries"][0]["newest_event"] == "2025-03-03T11:00:00Z"


@pytest.mark.parametrize(
    ("rate", "span", "window"), [(100, 86_400, "5 minutes"), (1, 3600, "1 minute"), (0, 10, "1 minute")]
)
def test_the_window_goes_by_the_rate_and_the_span(rate: int, span: int, window: str) -> None:
    from fractions import Fraction

    from optimizer.workload.instants import duration_text

    assert duration_text(window_of(Fraction(rate), span * 10**6)[0]) == window
    assert rate_text(Fraction(1, 120)) == "about 30 an hour"


# -------------------------------------------------------------------------------------------- hostile
def junk(seed: int) -> bytes:
    return random.Random(seed).randbytes(5000)


HOSTILE: dict[str, bytes] = {
    "empty.csv": b"",
    "blank.csv": b"\n\n \n",
    "junk.csv": junk(1),
    "junk.parquet": junk(2),
    "cut.parquet": b"PAR1" + junk(3),
    "zipped.csv": gzip.compress(b"ts,v\n2025-03-03,1\n"),
    "latin.csv": "ts,v\n2025-03-03,Köln\n".encode("latin-1"),
    "wide_characters.csv": "ts,v\n2025-03-03,1\n".encode("utf-16"),
    "header.csv": b"ts,v\n",
    "twice.csv": b"ts,ts\n2025-03-03,2025-03-03\n",
    "no_time.csv": b"a,b\n1,2\n",
    "text.csv": b"once upon a time\nthere was a file\n",
    "nul.csv": b"ts,v\n2025-03-03,\x00\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_stream_is_told_with_a_code(name: str) -> None:
    Path(name).write_bytes(HOSTILE[name])
    completed = heddle("init", name)
    assert completed.code in (1, 2)
    assert re.search(r"error HDL-13[456] ", completed.err) and "hint:" in completed.err
    assert "HDL-9" not in completed.err
    assert not Path("streams.yaml").exists()
    Path("streams.yaml").write_text(
        f"streams:\n  s:\n    source: {{format: {name.partition('.')[2]}, path: {name}}}\n"
        "    schema: {ts: timestamp, v: long}\n    time: ts\n"
    )
    looked = heddle("streams", "--streams", "streams.yaml")
    assert "HDL-9" not in looked.err
    assert looked.code == 1 or name in ("empty.csv", "blank.csv", "header.csv", "latin.csv", "twice.csv"), looked


def test_nothing_to_look_at(folder: Path) -> None:
    assert "HDL-134" in heddle("init").err
    assert "HDL-134" in heddle("init", "none.csv").err
    assert "HDL-134" in heddle("init", "*.parquet").err
    Path("folder").mkdir()
    assert "HDL-134" in heddle("init", "folder").err


def test_ten_thousand_columns(folder: Path) -> None:
    names = ["ts", *(f"column number {number}" for number in range(10_000))]
    line = ",".join(["2025-03-03T10:00:00", *(["1.5"] * 10_000)])
    Path("wide.csv").write_text("\n".join([",".join(names), line, line]))
    assert heddle("init").code == 0
    assert "9201 more" in Path("streams.yaml").read_text().replace("and 9195", "and 9201")
    assert heddle("validate").code == 0
    completed = heddle("streams")
    assert completed.code == 0
    assert "more columns" in completed.out


NAMES = [
    "on",
    "null",
    "a b",
    "x: y",
    "# no",
    "'q'",
    '"dq"',
    "Ünï",
    "select",
    "`tick`",
    "[b]",
    "{c}",
    "1st",
    "-",
    "yes",
    "%s",
]


def test_weird_names_of_columns_and_files(folder: Path) -> None:
    table = pa.table({"ts": [datetime(2025, 3, 3, tzinfo=UTC)] * 4} | {name: ["u", "v", "u", "v"] for name in NAMES})
    pq.write_table(table, "1 odd (file) & name.parquet")
    completed = heddle("init")
    assert completed.code == 0, completed.err
    assert heddle("validate").code == 0
    assert heddle("preview").code == 0
    text = Path("1 odd (file) & name.parquet")
    table.to_pandas().to_csv("odd.csv", index=False)
    text.unlink()
    completed = heddle("init", "odd.csv", "--folder", "b")
    assert completed.code == 0, completed.err
    assert heddle("validate", "b/queries", "--streams", "b/streams.yaml").code == 0
    assert heddle("streams", "--streams", "b/streams.yaml").code == 0


@given(
    names=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5, unique_by=str.lower),
    values=st.lists(st.sampled_from(["1", "x", "", "2025-03-03", "1.5", "true", "NA", "é"]), min_size=1, max_size=6),
)
def test_whatever_a_parquet_file_calls_its_columns(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], values: list[str]
) -> None:
    """What is proposed is read again as it was meant."""
    names = [name for name in names if name.lower() != "ts" and name.encode("utf-8", "ignore").decode() == name]
    place = tmp_path_factory.mktemp("names")
    times = [datetime(2025, 3, 3, tzinfo=UTC) + timedelta(seconds=number) for number in range(len(values))]
    try:
        pq.write_table(pa.table({"ts": times} | dict.fromkeys(names, values)), place / "x.parquet")
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return
    planned_project = plan_project([place / "x.parquet"], place, time="ts")
    planned_project.write()
    from spark_jobs.pipeline.planning.requested import load_inputs

    inputs = load_inputs([place / "queries"], place / "streams.yaml")
    assert [str(problem) for problem in inputs.errors] == []
    assert len(inputs.workload.queries) == 1
    assert project.STREAMS in dict(planned_project.files)


# -------------------------------------------------------------------------------------------- streams
def test_streams_are_described(folder: Path) -> None:
    as_csv(folder)
    heddle("init")
    completed = heddle("streams", "--json")
    assert completed.code == 0, completed.err
    stream = json.loads(completed.out)["streams"][0]
    assert (stream["events"], stream["first"], stream["last"]) == (2000, "2025-03-03T00:00:00Z", "2025-03-04T00:59:15Z")
    assert stream["counts"] == {"from": "2025-03-03T00:00:00Z", "seconds": 3600, "events": [80] * 25}
    columns = {column["name"]: column for column in stream["columns"]}
    assert (columns["page"]["distinct"], columns["page"]["nulls"], columns["page"]["least"]) == (3, 0.0, "help")
    text = heddle("streams", "visits").out
    assert "|█████████████████████████| events by 1 hour, at most 80" in text
    assert "did you mean visits?" in heddle("streams", "visit").err


def test_what_statistics_tell_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_pandas_parquet(folder)
    heddle("init")
    read = json.loads(heddle("streams", "--json").out)["streams"][0]
    monkeypatch.setattr("spark_jobs.streams.sources.event_times.MOST_KEPT", 0)
    monkeypatch.setattr("spark_jobs.streams.sources.event_times.read_split", None)
    spread = json.loads(heddle("streams", "--json").out)["streams"][0]
    assert {key: spread[key] for key in ("events", "first", "last")} == {
        key: read[key] for key in ("events", "first", "last")
    }
    assert abs(sum(spread["counts"]["events"]) - 2000) < 30


# ------------------------------------------------------------------------------------------ schemas
def test_files_name_schemas_that_lie_in_the_project_and_accept_them(folder: Path) -> None:
    as_csv(folder)
    assert heddle("init", "--yes").code == 0
    streams, settings = Path("streams.yaml").read_text(), Path("heddle.toml").read_text()
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", streams), re.match(r"#:schema (\S+)\n", settings)
    for match, data in zip(named, (yaml.safe_load(streams), tomllib.loads(settings)), strict=True):
        assert match is not None
        jsonschema.validate(data, json.loads(Path(match[1]).read_text()))
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(data | {"strems": {}}, json.loads(Path(match[1]).read_text()))


def test_a_dry_run_shows_no_schema(folder: Path) -> None:
    as_csv(folder)
    said = heddle("init", "--yes", "--dry-run")
    assert "would write .heddle/streams.yaml.json" in said.out and "$defs" not in said.out
