"""The command line over odd arguments, odd files and odd warehouses: a code and a line, never a traceback."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from heddle.cli.app import app
from spark_jobs.engine import session
from spark_jobs.store.warehouse.schemas import MARKER, TABLES
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.sizes import examples
from tests.spark_jobs.laboratory import QUERIES, Laboratory, steady

STREAMS = """
streams:
  trades:
    source: {format: parquet, path: trades.parquet}
    schema: {ts: timestamp, symbol: string, price: double, volume: long}
    time: ts
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source, a workload, and a warehouse in which an hour is published."""
    folder = tmp_path_factory.mktemp("commands")
    with without_audit():
        laboratory = Laboratory(in_process(), folder)
        laboratory.write(steady())
        assert laboratory.run(laboratory.plan(), 0, 60).status == "published"
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "good.sql").write_text(QUERIES)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of it, in which commands are run."""
    copy = tmp_path / "place"
    shutil.copytree(made, copy)
    monkeypatch.chdir(copy)
    monkeypatch.delenv("HEDDLE_DEBUG", raising=False)
    monkeypatch.setattr(session, "start_session", lambda *arguments, **options: in_process())
    temp_folder = tmp_path / "kept"
    temp_folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temp_folder))
    with without_audit():
        yield copy


def heddle(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def check(done: Result, *arguments: str) -> None:
    """A code of ours and a reason; nothing that only whoever wrote Heddle can read."""
    report = f"heddle {arguments}: {done.exit_code}\n{done.output}"
    assert done.exception is None or isinstance(done.exception, SystemExit), report
    assert done.exit_code in (0, 1, 2), report
    # what can be wrong with data is of the tests of sources
    of_data = any("of_csv" in argument for argument in arguments)
    assert "Traceback" not in done.output and (of_data or "HDL-900" not in done.output), report
    if done.exit_code:
        assert "HDL-" in done.stderr or "Usage:" in done.stderr, report
    for line in done.stderr.splitlines():
        assert not re.match(r"\s*error\b(?! HDL-\d{3} )", line), report
        assert "\\n" not in line or any("\n" in argument for argument in arguments), report


# ------------------------------------------------------------------------------------------- warehouses
def _truncated(house: Path) -> None:
    marker = house / MARKER
    marker.write_text(marker.read_text()[:9])


def _marked(content: str) -> Callable[[Path], None]:
    return lambda house: (house / MARKER).write_text(content) and None


def _replaced(path: str, content: bytes | None) -> Callable[[Path], None]:
    """A file or a folder below the warehouse is a file of this content, or (None) an empty folder."""

    def change(house: Path) -> None:
        for target in house.glob(path):
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            target.mkdir() if content is None else target.write_bytes(content)

    return change


def _gone(path: str) -> Callable[[Path], None]:
    def change(house: Path) -> None:
        for target in house.glob(path):
            shutil.rmtree(target) if target.is_dir() else target.unlink()

    return change


def _is_a(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def change(house: Path) -> None:
        shutil.rmtree(house)
        make(house)

    return change


LOG = "_delta_log/*.json"
WAREHOUSES: dict[str, Callable[[Path], None]] = {
    "a file": _is_a(lambda house: house.write_text("x")),
    "nothing": _is_a(lambda house: None),
    "an empty folder": _is_a(Path.mkdir),
    "a link to itself": _is_a(lambda house: house.symlink_to(house)),
    "a link to nothing": _is_a(lambda house: house.symlink_to("nowhere")),
    "something else": _is_a(lambda house: (house.mkdir(), (house / "thesis.txt").write_text("x"))),
    "truncated marker": _truncated,
    "empty marker": _marked(""),
    "marker of another kind": _marked("[1, 2]"),
    "marker without a number": _marked('{"format": "two"}'),
    "marker that is no text": _replaced(MARKER, b"\xff\xfe\x00"),
    "marker that is a folder": _replaced(MARKER, None),
    "no marker": _gone(MARKER),
    "lease that is a folder": _replaced(".lease", None),
    "lease of words": _replaced(".lease", b"mine"),
    **{f"no {table}": _gone(table) for table in TABLES},
    **{f"{table} is a file": _replaced(table, b"x") for table in ("sharing_plans", "results", "publish_log")},
    **{f"empty log of {table}": _replaced(f"{table}/{LOG}", b"") for table in TABLES},
    **{f"broken log of {table}": _replaced(f"{table}/{LOG}", b'{"add": ') for table in ("sharing_plans", "results")},
    **{f"no data of {table}": _gone(f"{table}/**/*.parquet") for table in TABLES},
    **{f"broken data of {table}": _replaced(f"{table}/**/*.parquet", b"PAR1") for table in TABLES},
}
SPAN = ("--from", "2013-07-01", "--to", "2013-07-01T02:00")
AT = ("--at", "2013-07-01T00:50")
FILES = ("good.sql", "--streams", "streams.yaml")
COMMANDS: dict[str, tuple[str, ...]] = {
    "read": ("read", "all", "--format", "csv"),
    "read another": ("read", "al"),
    "lookup": ("lookup", "by_symbol", *AT),
    "status": ("status",),
    "queries": ("queries",),
    "history of a query": ("queries", "--history", "all"),
    "plan": ("plan",),
    "plan files": ("plan", *FILES),
    "explain": ("explain", "all"),
    "diff": ("diff", "1", "1"),
    "what-if": ("what-if", "--remove", "all"),
    "run": ("run", *FILES, *SPAN),
    "tick": ("tick", "--at", "2013-07-03"),
    "backfill": ("backfill", *SPAN, "--dry-run"),
    "repair": ("repair",),
    "quarantine": ("quarantine",),
    "rollback": ("rollback", "1"),
    "pause": ("pause", "all"),
    "resume": ("resume", "all"),
    "maintain": ("maintain",),
    "calibrate": ("calibrate",),
    "compare": ("compare", *SPAN),
}
"""Without ``--warehouse``, which comes with each."""


FEW = 3
"""Commands over each odd warehouse in `make test`, others over each; all of them where slow tests are asked for."""


@pytest.mark.parametrize("odd", WAREHOUSES)
def test_over_an_odd_warehouse(odd: str, place: Path) -> None:
    first, names = FEW * list(WAREHOUSES).index(odd), list(COMMANDS)
    over(odd, [names[number % len(names)] for number in range(first, first + FEW)], place)


@pytest.mark.slow
@pytest.mark.parametrize("odd", WAREHOUSES)
def test_every_command_over_an_odd_warehouse(odd: str, place: Path) -> None:
    over(odd, list(COMMANDS), place)


def over(odd: str, names: list[str], place: Path) -> None:
    for name in names:
        command = COMMANDS[name]
        shutil.rmtree(place / "copy", ignore_errors=True)
        (place / "copy").unlink(missing_ok=True)
        shutil.copytree(place / "warehouse", place / "copy")
        WAREHOUSES[odd](place / "copy")
        check(heddle(*command, "--warehouse", "copy"), odd, name)


# ------------------------------------------------------------------------------------------------ files
def _odd_files(folder: Path) -> list[str]:
    """Paths to odd files, made in a folder."""
    contents = {
        "empty.sql": b"",
        "comment.sql": b"-- nothing here",
        "binary.sql": bytes(range(256)) * 9,
        "utf16.sql": QUERIES.encode("utf-16"),
        "broken.sql": QUERIES.encode()[:-40],
        "streams.txt": STREAMS.encode()[:40],
        "list.yaml": b"- a\n- b\n",
        "no_source.yaml": STREAMS.replace("trades.parquet", "none.parquet").encode(),
        "of_folder.yaml": STREAMS.replace("trades.parquet", "folder").encode(),
        "of_text.yaml": STREAMS.replace("trades.parquet", "good.sql").encode(),
        "of_csv.yaml": STREAMS.replace("parquet", "csv").replace("trades.csv", "binary.sql").encode(),
        "no_schema.yaml": re.sub(r".*schema.*\n", "", STREAMS.replace("trades.parquet", "good.sql")).encode(),
        "windows.csv": b"range,slide\n60,0\nx,y\n",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    return [
        *contents,
        "folder",
        "loop",
        "dangling",
        "pipe",
        "none",
        "x" * 300,
        "a\nb",
        "",
        ".",
        "*",
        "[",
        "/dev/null",
        "~x",
    ]


INSTANTS = [
    "",
    "x",
    "2013-13-01",
    "0001-01-01",
    "9999-12-31",
    "2013-07-01T25",
    "１",
    "-1",
    "9" * 400,
    "now",
    "2013-07-01+99:99",
]
DURATIONS = ["", "x", "0 days", "-1 day", "1 month", "9" * 30 + " days", "1e9 days", "'"]
NAMES = ["all", "al", "", "'; --", "[red]x", "x" * 2000, "\x1b[31m", "é", "a\nb"]
NUMBERS = ["0", "-1", "1", "x", "", "9" * 40, "1.5", "nan"]
RATES = ["trades=1", "trades", "=", "trades=-1", "trades=1/0", "trades=1e99999", "x=1", "tradesx2", ""]
OPTIONS: dict[str, list[str]] = {
    **dict.fromkeys(("--from", "--to", "--at", "--ending-at"), INSTANTS),
    **dict.fromkeys(("--every", "--keep", "--retention", "--range"), DURATIONS),
    **dict.fromkeys(("--history", "--remove", "--group", "--having", "--release", "--reason"), NAMES),
    **dict.fromkeys(("--limit", "--last", "--sample", "--plan-version", "--budget"), NUMBERS),
    **dict.fromkeys(("--rate", "--base-rate"), RATES),
    "--format": ["table", "csv", "json", "parquet", "html", "x"],
    "--output": ["out", "folder", "none/out", "", "good.sql/x"],
    "--algorithm": ["best", "x"],
}
SWITCHES = ["--json", "--dry-run", "--recompute", "--summary"]


def test_over_odd_arguments(place: Path) -> None:
    """Drawn: a command, its right arguments, and some that are wrong in their place or beside them."""
    odd = _odd_files(place)
    options = OPTIONS | dict.fromkeys(("--streams", "--add", "--windows"), odd) | {"--warehouse": ["warehouse", *odd]}

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.data())
    def play(data: st.DataObject) -> None:
        command = list(COMMANDS[data.draw(st.sampled_from(list(COMMANDS)))])
        command += ["--warehouse", "warehouse"]
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(1, len(command) - 1))
            before = command[at - 1]
            values = options.get(before, [*odd, *NAMES, *NUMBERS])
            command[at] = data.draw(st.sampled_from(values))
        for _ in range(data.draw(st.integers(0, 2))):
            option = data.draw(st.sampled_from([*options, *SWITCHES]))
            command += [option] if option in SWITCHES else [option, data.draw(st.sampled_from(options[option]))]
        check(heddle(*command), *command)

    play()


@pytest.mark.parametrize("command", [("validate",), ("plan",), ("explain", "all"), ("what-if",)])
def test_over_odd_files(command: tuple[str, ...], place: Path) -> None:
    odd = _odd_files(place)
    for file in odd:
        check(heddle(*command, file, "--streams", "streams.yaml"), *command, file)
        check(heddle(*command, "good.sql", "--streams", file), *command, "--streams", file)


# ---------------------------------------------------------------------------------------- what is left
def test_a_run_that_has_nothing_to_store_leaves_no_warehouse(place: Path) -> None:
    (place / "bad.sql").write_text("SELECT 1;")
    (place / "empty.sql").write_text("-- nothing\n")
    for file, message in (("bad.sql", "`heddle validate` lists"), ("empty.sql", "write one: SELECT")):
        done = heddle("run", file, "--streams", "streams.yaml", "--warehouse", "new", *SPAN)
        assert done.exit_code == 1 and "HDL-113" in done.stderr and message in done.stderr
        assert not (place / "new").exists()


def test_read_says_why_there_is_no_answer(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty and exit 0 is an answer only where something was published."""
    call = ("read", "all", "--warehouse", "new")
    moved_file = place / "gone.parquet"
    (place / "trades.parquet").rename(moved_file)
    done = heddle("run", *FILES, "--rate", "trades=1", "--warehouse", "new", *SPAN)
    # every stream that cannot be read is told, in lines of its own, once
    assert done.exit_code == 1 and done.stderr.count("error HDL-505") == 1 and "\nerror HDL-4" in done.stderr
    assert "HDL-201" not in done.stderr and "\\n" not in done.stderr
    done = heddle(*call)
    assert (
        done.exit_code == 1
        and "HDL-547 the last run of 2013-07-01T00:00:00Z .. 2013-07-01T02:00:00Z failed" in done.stderr
    )
    moved_file.rename(place / "trades.parquet")
    assert heddle("run", *FILES, "--warehouse", "new", *SPAN).exit_code == 0
    assert heddle(*call).exit_code == 0
    done = heddle(*call, "--from", "2014-01-01", "--to", "2014-01-02")
    assert done.exit_code == 1 and "HDL-548 no run has answered all of this time" in done.stderr
    # an hour in which no event is
    late = ("--from", "2013-07-20", "--to", "2013-07-20T01:00")
    assert heddle("run", *FILES, "--warehouse", "new", *late).exit_code == 2
    assert heddle("run", *FILES, "--warehouse", "new", *late, "--allow-empty").exit_code == 0
    done = heddle(*call, *late, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["rows"] == []


def test_answers_as_csv_have_times_as_json_has_them(place: Path) -> None:
    call = ("read", "all", "--warehouse", "warehouse", "--format")
    lines = heddle(*call, "csv").stdout.replace('"', "").splitlines()
    rows = json.loads(heddle(*call, "json").stdout)["rows"]
    assert rows and [line.split(",")[:2] for line in lines[1:]] == [[r["window_start"], r["window_end"]] for r in rows]


def test_one_query_is_one_query(place: Path) -> None:
    (place / "one.sql").write_text(QUERIES.split(";")[0] + ";")
    stdout = heddle("validate", "one.sql", "--streams", "streams.yaml").stdout
    assert stdout.endswith("1 query usable, 0 errors\n") and "stream trades: 1 file," in stdout
    stdout = heddle("plan", "one.sql", "--streams", "streams.yaml").stdout
    assert "1 execution tree " in stdout.replace("\n", " ")
