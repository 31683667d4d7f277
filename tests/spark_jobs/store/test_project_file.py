"""The project file: where it is looked for, what goes before it, what a bad one does, and that none changes nothing."""

from __future__ import annotations

import json
import os
import shlex
import tarfile
from collections.abc import Iterator, Mapping
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heddle.local.servers import Place, airflow_environment
from optimizer.errors import redaction
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted
from spark_jobs.operations.upgrade import apply_upgrade
from spark_jobs.store.project_file import BIGGEST, NAME, ProjectFile
from spark_jobs.store.settings import DECLARED, Settings, TaskMemory, describe, project_file, settings, use_project
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.in_process import Clock, heddle, without_spark

ROOT = Path(__file__).resolve().parents[3]
ARCHIVE = ROOT / "tests" / "fixtures" / "warehouse_0_1.tar.xz"
KEYS = {setting.key: setting for setting in DECLARED if setting.form is not None}
PATHS = {"event_log", "warehouse", "streams", "workload", "sources", "jars", "topics", "copies"}
LISTS = {"workload", "sources", "tables_of_owners"}
NUMBERS = {"owner_quota": 7, "airflow_port": 8090, "in_process": 7000, "local_events": 8000, "dimension_days": 9}
OTHERS = {
    "engine": ("local", "spark"),
    "spark_code": ("folder", "archive"),
    "checks": ("sample", "none"),
    "spark_history": ("http://in-file:18080", "http://by-variable:18080"),
    "task_memory": ("64m", "1g"),
    "owners": ("in_file", "desk=by_variable"),
    "serve_memory": ("64m", "1g"),
}
"""Settings of which not every text is a value: what the file and what the environment says."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, an environment that says nothing, and a HEDDLE_HOME without a project file."""
    monkeypatch.setattr(redaction, "_given", {})
    for setting in DECLARED:
        monkeypatch.delenv(setting.variable, raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HEDDLE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "heddle.toml").write_text(text)
    return folder / "heddle.toml"


def code_of(text: str, folder: Path) -> str:
    """What is told of a project file."""
    written(folder, text)
    with pytest.raises(HeddleError) as raised:
        settings()
    return str(raised.value.diagnostic)


# ------------------------------------------------------------------------------------------------ precedence
def in_file(key: str) -> str:
    text = OTHERS[key][0] if key in OTHERS else f"in_{key}"
    if key == "owners":
        return f'owners = {{desk = "{text}"}}'
    value = NUMBERS[key] if key in NUMBERS else json.dumps([text] if key in LISTS else text)
    return f"{key} = {value}"


def in_environment(key: str) -> str:
    if key in OTHERS:
        return OTHERS[key][1]
    return str(NUMBERS[key] + 1) if key in NUMBERS else f"/by/{key}" if key in PATHS else f"by_{key}"


def expected(key: str, is_in_environment: bool, is_in_file: bool, folder: Path, default: Any) -> Any:
    """The value of a setting, by rules written down again."""
    if not is_in_environment and not is_in_file:
        return default
    if key in NUMBERS:
        return NUMBERS[key] + is_in_environment
    if key == "owners":
        return {"desk": "by_variable" if is_in_environment else "in_file"}
    if key in OTHERS:
        return {"64m": TaskMemory(64 << 20), "1g": TaskMemory(1 << 30)}.get(
            text := OTHERS[key][is_in_environment], text
        )
    text = in_environment(key) if is_in_environment else f"in_{key}"
    text = str(folder / text) if key in PATHS else text
    if key in LISTS:
        return (text,)
    # a warehouse may be a URL
    return Path(text) if key in PATHS and key not in ("warehouse", "copies", "event_log") else text


@given(data=st.data())
def test_what_is_said_first_holds(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any subset of the settings in the environment, any others in the file: every value, and its source."""
    of_variables = data.draw(st.sets(st.sampled_from(sorted(KEYS))), label="environment")
    of_file = data.draw(st.lists(st.sampled_from(sorted(KEYS)), unique=True), label="file")
    place = tmp_path_factory.mktemp("said")
    written(place, "# a comment\n" + "\n".join(map(in_file, of_file)))
    environment = {KEYS[key].variable: in_environment(key) for key in of_variables}
    environment["HEDDLE_HOME"] = str(place)
    settings = Settings(environment, project_file(environment))
    default = Settings({"HEDDLE_HOME": str(place)})
    rows, path = describe(environment)
    assert path == place / "heddle.toml"
    row_by_name = {row.name: row for row in rows}
    for key, setting in KEYS.items():
        otherwise = getattr(default, setting.name)
        if key == "copies":  # beside the warehouse, wherever that is
            otherwise = f"{settings.warehouse}-copies"
        elif settings.in_process is not None and key in ("engine", "local_events"):
            otherwise = {"engine": "auto", "local_events": settings.in_process}[key]
        value = expected(key, key in of_variables, key in of_file, place, otherwise)
        assert getattr(settings, setting.name) == value, key
        source = "environment" if key in of_variables else "heddle.toml" if key in of_file else "default"
        line = of_file.index(key) + 2 if source == "heddle.toml" else 0
        assert (row_by_name[key].source, row_by_name[key].line) == (source, line)


COMMANDS = {
    "warehouse": ([], ["status"], "--warehouse"),
    "streams": (["q.sql"], ["validate", "q.sql"], "--streams"),
    "workload": ([], ["validate", "--streams", "s.yaml"], ""),
}
"""By setting: files that are made, a command that needs it alone, and its option (FILES have none)."""


@pytest.mark.parametrize("key", COMMANDS)
@pytest.mark.parametrize("sources", range(8))
def test_a_command_takes_the_first_that_says_it(
    key: str, sources: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Option, environment, file, none of them: all that are named are missing, and the error says which was looked
    for."""
    file_names, command, option = COMMANDS[key]
    for name in file_names:
        (folder / name).write_text("SELECT 1")
    options = ([option] if option else []) + [str(folder / "by_option")]
    if sources & 4:
        command = [*command, *options]
    if sources & 2:
        monkeypatch.setenv(f"HEDDLE_{key.upper()}", str(folder / "by_variable"))
    if sources & 1:
        written(folder, f'{key} = "by_file"')
    done = heddle(*command)
    assert done.code in (1, 2) and not done.out
    names = {name for name in ("by_option", "by_variable", "by_file") if name in done.err}
    first = {"by_option"} if sources & 4 else {"by_variable"} if sources & 2 else {"by_file"} if sources else set()
    assert names == first
    if not sources:
        ways = ("FILES" if key == "workload" else option, f"HEDDLE_{key.upper()}", f"{key} = ", "heddle.toml")
        assert done.code == 2 and "HDL-124" in done.err and all(way in done.err for way in ways)


# ------------------------------------------------------------------------------------------------- the search
@given(depth=st.integers(0, 5), levels=st.sets(st.integers(0, 5)), at_home=st.booleans())
@example(depth=0, levels=set(), at_home=True)
def test_the_nearest_file_upward_is_read(
    depth: int, levels: set[int], at_home: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("upward")
    folders = [place.joinpath(*"abcde"[:level]) for level in range(6)]
    folders[-1].mkdir(parents=True)
    for level in levels:
        written(folders[level], f'warehouse = "house{level}"')
    if at_home:
        written(place.with_name(place.name + "-home"), 'warehouse = "house_at_home"')
    above = [level for level in levels if level <= depth]
    home = place.with_name(place.name + "-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEDDLE_HOME", str(home))
        patch.chdir(folders[depth])
        warehouse = Path(settings().warehouse)
    if above:
        assert warehouse == folders[max(above)] / f"house{max(above)}"
    else:
        assert warehouse == (home / "house_at_home" if at_home else home / "var" / "warehouse")


def test_a_folder_of_its_name_is_no_project_file(folder: Path) -> None:
    (folder / "heddle.toml").mkdir()
    assert project_file(os.environ) == ProjectFile()


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    written(tmp_path / "home", 'warehouse = "house"')
    assert Path(settings().warehouse) == tmp_path / "home" / "house"
    monkeypatch.chdir(tmp_path)


def test_a_file_of_another_user_is_refused_upward_and_trusted_at_home(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(folder, 'jars = "evil"')
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(HeddleError, match=f"HDL-123 \\S+ belongs to another user\n.*HEDDLE_HOME={folder}"):
        settings()
    monkeypatch.setenv("HEDDLE_HOME", str(folder))
    assert settings().jars == folder / "evil"


def test_the_file_is_read_anew_at_each_call(folder: Path) -> None:
    for name in ("a", "b"):
        written(folder, f'warehouse = "{name}"')
        assert Path(settings().warehouse) == folder / name


# -------------------------------------------------------------------------------------------------- bad files
BAD = {
    'warehose = "x"': ":1:1: error HDL-123 there is no setting warehose\n    hint: did you mean warehouse?",
    '\n# c\nstreams = "s"\nx = 1': ":4:1: error HDL-123 there is no setting x\n    hint: known: airflow_port, ",
    "home = '/a'": ":1:1: error HDL-123 there is no setting home\n    hint: set HEDDLE_HOME in the environment",
    "debug = true": ":1:1: error HDL-123 there is no setting debug\n    hint: set HEDDLE_DEBUG in the environment",
    "[warehouse]\npath = 'x'": ":1:1: error HDL-123 warehouse is a table or a time, no path\n",
    "\n\n[other]\nstreams = 'x'": ":3:1: error HDL-123 there is no setting other\n",
    "warehouse = 7": ":1:1: error HDL-123 warehouse is a number, no path\n    hint: it is a path: ",
    "warehouse = ['a']": ":1:1: error HDL-123 warehouse is a list, no path\n",
    "warehouse = ' '": ":1:1: error HDL-123 warehouse is empty\n",
    'streams = "a\\u0000"': ":1:1: error HDL-123 streams has a character that no value may have\n",
    "workload = []": ":1:1: error HDL-123 workload is an empty list\n",
    "streams = 's'\nworkload = [\n  'a',\n  1,\n]": ":2:1: error HDL-123 workload is a number, no path\n",
    "tables_of_owners = [['a']]": ":1:1: error HDL-123 tables_of_owners is a list, no text\n",
    "owner_quota = true": ":1:1: error HDL-123 owner_quota is true or false, no whole number\n",
    "owner_quota = 1.5": ":1:1: error HDL-123 owner_quota is a number, no whole number\n",
    "owner_quota = -1": ":1:1: error HDL-123 owner_quota is a number that it cannot be\n",
    "airflow_port = 65536": ":1:1: error HDL-123 airflow_port is a number that it cannot be\n",
    "streams = 's'\nwarehouse = x": ":2:13: error HDL-123 it is no TOML: Invalid value\n",
    "warehouse 'x'": ":1:11: error HDL-123 it is no TOML: Expected '=' after a key in a key/value pair\n",
    "workload = ['a',\n": ":2:1: error HDL-123 it is no TOML: Invalid value\n",
    "jars = 'a'\njars = 'b'": ":2:11: error HDL-123 it is no TOML: Cannot overwrite a value\n",
    "x = " + "[" * 5000: "heddle.toml: error HDL-123 it is no TOML\n",
    "owner_quota = " + "9" * 50: ":1:1: error HDL-123 owner_quota is a number that it cannot be\n",
    "# " + "x" * BIGGEST: "heddle.toml: error HDL-123 it is longer than 65,536 bytes\n",
}
"""Texts of project files, and what is told of them."""


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:30])
def test_a_bad_file_is_told_with_its_place(text: str, folder: Path) -> None:
    message = code_of(text, folder)
    assert message.startswith(str(folder)) and BAD[text] in message


def test_a_file_that_is_not_utf_8(folder: Path) -> None:
    (folder / "heddle.toml").write_bytes(b"# ok\nwarehouse = '\xff'\n")
    with pytest.raises(HeddleError, match=r"heddle.toml:2:1: error HDL-123 it is not UTF-8"):
        settings()


def test_windows_line_ends_and_a_mark_of_utf_8(folder: Path) -> None:
    (folder / "heddle.toml").write_bytes(b"\xef\xbb\xbfwarehouse = 'a'\r\nstreams = 'b'\r\n")
    assert (Path(settings().warehouse), settings().streams) == (folder / "a", folder / "b")


@pytest.mark.parametrize("command", ["status", "config", "validate", "plan", "serve"])
def test_a_bad_file_ends_a_command_and_its_help_is_there(command: str, folder: Path) -> None:
    written(folder, "nothing = 1")
    done = heddle(command)
    assert done.code == 2 and not done.out and "heddle.toml:1:1: error HDL-123" in done.err
    assert heddle(command, "--help").code == 0


@given(data=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@example(data=b"owner_quota = " + b"9" * 5000)
def test_any_bytes_are_settings_or_one_coded_error(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("bytes")
    (place / "heddle.toml").write_bytes(data)
    try:
        project_file({"HEDDLE_HOME": str(place)})
    except HeddleError as error:
        assert error.code == "HDL-123"


# ------------------------------------------------------------------------------------------- what it is used for
def test_a_password_is_in_nothing_that_is_shown(folder: Path) -> None:
    written(folder, 'lease_dsn = "host=db user=heddle password=hunter2"')
    for arguments in (["config"], ["config", "--json"]):
        done = heddle(*arguments)
        assert done.code == 0 and "***" in done.out and "hunter2" not in done.out + done.err
    assert "hunter2" not in redacted("a library's error: hunter2 was refused")
    written(folder, 'lease_dsn = "host=db password=hunter3"\nlease_dsn = 7')
    assert "hunter3" not in heddle("config").err


def test_the_files_of_several_patterns(folder: Path) -> None:
    for name in ("q/b.sql", "q/a.sql", "c.sql"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    written(folder, 'workload = ["q/*.sql", "c.sql", "missing/*.sql", "q/b.sql"]')
    names = ["c.sql", "missing/*.sql", "q/a.sql", "q/b.sql"]
    # the reading of the files refuses what names none: queries of a folder that is not mounted are not removed
    assert settings().workload_files() == [str(folder / name) for name in names]
    written(folder, 'workload = "missing/*.sql"')
    assert settings().workload_files() == []


def test_airflow_of_this_machine_leaves_what_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "home")
    written(tmp_path / "home", 'warehouse = "house"\njars = "jars"')
    ports = {"api": 8090, "worker_logs": 1, "trigger_logs": 2}
    environment = airflow_environment(Place(tmp_path / "home"), 5433, ports)
    settings = Settings(environment, project_file(environment))
    assert (Path(settings.warehouse), settings.jars) == (tmp_path / "home" / "house", tmp_path / "home" / "jars")
    assert settings.streams == tmp_path / "home" / "dags" / "workload" / "streams.yaml"


@pytest.fixture
def project(folder: Path) -> Iterator[Mapping[str, list[str]]]:
    """A project with a warehouse; the options that say what its file says."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    apply_upgrade(Warehouse.open(folder / "warehouse"))
    written(folder, 'warehouse = "warehouse"\nstreams = "streams.yaml"\nworkload = ["queries.sql"]')
    (folder / "below").mkdir()
    yield {"warehouse": ["--warehouse", f"{folder}/warehouse"], "streams": ["--streams", f"{folder}/streams.yaml"]}


@pytest.mark.parametrize(
    "command",
    [
        "status", "queries", "diff", "tables", "quarantine", "read by_symbol --format csv", "explain by_symbol",
        "plan --summary", "what-if --remove spread", "sql 'SELECT 1 AS x' --format csv", "views",
        "maintain --dry-run --keep '36500 days' --retention '36500 days'",
    ],
)  # fmt: skip
def test_commands_below_do_as_with_options(
    command: str, project: Mapping[str, list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(command)
    (folder / "heddle.toml").rename(folder / "away")
    with_options = heddle(*words, *project["warehouse"])
    (folder / "away").rename(folder / "heddle.toml")
    monkeypatch.chdir(folder / "below")
    assert heddle(*words) == with_options and with_options.code in (0, 1) and with_options.out


def test_files_and_streams_are_the_projects(
    project: Mapping[str, list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_options = heddle("validate", str(folder / "queries.sql"), *project["streams"])
    planned = heddle("plan", str(folder / "queries.sql"), *project["streams"], "--format", "mermaid")
    monkeypatch.chdir(folder / "below")
    assert heddle("validate") == with_options and "usable" in with_options.out
    assert heddle("plan", "../queries.sql", "--format", "mermaid").out == planned.out


def test_a_run_of_a_project_publishes_as_one_with_options(
    project: Mapping[str, list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interval = ["--from", "2013-07-01T22:00:00", "--to", "2013-07-02T00:00:00"]
    written(folder, 'warehouse = "new"\nstreams = "streams.yaml"\nworkload = ["queries.sql"]')
    with without_spark(Clock(1_372_734_300_000_000)):
        options = [*project["streams"], "--warehouse", "other"]
        with_options = heddle("run", "queries.sql", *options, *interval)
        monkeypatch.chdir(folder / "below")
        assert heddle("run", *interval).code == with_options.code == 0
        by_symbol = heddle("read", "by_symbol", "--format", "csv").out
        other = ["--warehouse", str(folder / "other")]
        assert by_symbol.count("\n") > 3 and by_symbol == heddle("read", "by_symbol", "--format", "csv", *other).out
    assert not (folder / "below" / "new").exists()


@pytest.mark.parametrize("command", ["plan", "explain by_symbol", "what-if"])
def test_files_are_planned_without_the_warehouse_unless_that_is_given(
    command: str, project: Mapping[str, list[str]], folder: Path
) -> None:
    written(folder, 'warehouse = "missing"\nstreams = "streams.yaml"')
    with_files = heddle(*command.split(), "queries.sql")
    assert with_files.code == 0 and with_files.out
    assert "missing" in heddle(*command.split()).err


def test_without_a_project_file_optional_warehouses_stay_so(folder: Path) -> None:
    for command in (["plan"], ["explain", "q"], ["what-if"]):
        done = heddle(*command)
        assert done.code == 2 and "--warehouse" in done.err and "HDL" not in done.err


def test_config_shows_values_as_they_are_used_and_wrong_ones_as_they_are_given() -> None:
    environment = {"HEDDLE_OWNER_QUOTA": "many", "HEDDLE_TASK_MEMORY": "1024MB", "HEDDLE_OWNER": " desk "}
    shown = {row.name: row.value for row in describe(environment)[0]}
    assert (shown["owner_quota"], shown["task_memory"], shown["owner"]) == ("many", "1g", "desk")
    assert shown["local_events"] == "15000000" and shown["engine"] == ""


# ------------------------------------------------------------------------------------------- a named project
def test_a_named_project_says_its_places_whatever_variables_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
        (folder / NAME).write_text('owner = "of the file"\nwarehouse = "house"\nchecks = "none"\n')
    monkeypatch.chdir(other)
    monkeypatch.setenv("HEDDLE_PROJECT", str(project))
    for name in ("HOME", "WAREHOUSE", "STREAMS", "WORKLOAD", "TOPICS", "COPIES"):
        monkeypatch.setenv(f"HEDDLE_{name}", str(other))
    monkeypatch.setenv("HEDDLE_CHECKS", "sample")
    configured = settings()
    assert configured.warehouse == str(project / "house") and configured.home == project
    assert configured.streams == project / "dags" / "workload" / "streams.yaml"
    assert configured.copies == str(project / "house-copies")
    # what is no place is as everywhere: a variable holds before the file
    assert (configured.checks, configured.owner) == ("sample", "of the file")
    rows, path = describe(os.environ)
    assert path == project / NAME
    assert {row.source for row in rows if row.name == "warehouse"} == {NAME}


def test_a_context_uses_a_project_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).write_text('warehouse = "house"\n')
    monkeypatch.setenv("HEDDLE_PROJECT", str(tmp_path / "two"))

    def of(folder: str) -> str:
        use_project(folder)
        return settings().warehouse

    assert copy_context().run(of, str(tmp_path / "one")) == str(tmp_path / "one" / "house")
    assert copy_context().run(of, "") == settings().warehouse == str(tmp_path / "two" / "house")


def test_a_named_project_without_its_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_PROJECT", str(tmp_path))
    with pytest.raises(HeddleError, match=f"HDL-583 {tmp_path} has no heddle.toml"):
        settings()
