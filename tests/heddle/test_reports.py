"""Reports of checks for CI: annotations of GitHub, JUnit XML, the comment on a pull request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from check_jsonschema import main as check_schema
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from heddle.cli.reports import Case, command, junit_xml, workflow_commands
from optimizer.errors.diagnostics import Diagnostic
from tests.in_process import heddle

ROOT = Path(__file__).resolve().parents[2]

STREAMS = """
streams:
  trades:
    source: {format: csv, path: data.csv}
    schema: {ts: timestamp, symbol: string, price: double}
    time: ts
"""

QUERY = "SELECT symbol, count(*) AS n\nFROM trades\nWINDOW RANGE '1 hour' SLIDE '1 hour' ON ts\nGROUP BY symbol;\n"

GOOD = f"-- name: hourly\n{QUERY}"
BAD = "-- name: broken\nSELECT count(* AS n FROM trades;\n"

TESTS = """
tests:
  - name: a, 100% wrong
    query: hourly
    given: [{ts: 2013-07-01T00:10:00, symbol: A, price: 1}]
    expect: [{window_end: 2013-07-01T01:00:00, symbol: A, n: 7}]
  - name: right
    query: hourly
    given: [{ts: 2013-07-01T00:10:00, symbol: A, price: 1}]
    expect: [{symbol: A, n: 1}]
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    for name in ("WAREHOUSE", "STREAMS", "WORKLOAD"):
        monkeypatch.delenv(f"HEDDLE_{name}", raising=False)
    files = {"streams.yaml": STREAMS, "q/a.sql": GOOD, "q/b.sql": BAD, "tests/t.yaml": TESTS}
    files["data.csv"] = "ts,symbol,price\n2013-07-01 00:10:00,A,1.5\n2013-07-01 02:10:00,B,2.5\n"
    files["heddle.toml"] = 'streams = "streams.yaml"\nworkload = "q"\n'
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    yield tmp_path


def commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("::")]


def cases(file: str) -> dict[str, ElementTree.Element]:
    root = ElementTree.parse(file).getroot()
    inside = root.findall("./testsuite/testcase")
    failed = root.findall("./testsuite/testcase/failure")
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", str(len(inside)), str(len(failed)))
    return {case.get("name", ""): case for case in inside}


def test_validate_annotates_the_place_of_each_problem() -> None:
    said = heddle("validate", "--format", "github", "--junit", "v.xml")
    assert said.code == 1 and "1 query usable, 1 error" in said.out
    places = [re.sub("::.*", "", line[2:]) for line in commands(said.out)]
    assert places == ["error file=q/b.sql,line=2,col=13,title=HDL-101"]
    written = cases("v.xml")
    assert set(written) == {"q/a.sql", "q/b.sql", "streams.yaml"}
    failure = written["q/b.sql"].find("failure")
    assert failure is not None and failure.get("type") == "HDL-101" and "q/b.sql:2:13" in (failure.text or "")
    assert written["q/a.sql"].find("failure") is None


def test_paths_are_those_of_the_repository(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.parent))
    said = heddle("validate", "--format", "github")
    assert commands(said.out)[0].startswith(f"::error file={project.name}/q/b.sql,line=2")


def test_a_missing_file_is_reported_too() -> None:
    said = heddle("validate", "nowhere", "--format", "github", "--junit", "v.xml")
    assert said.code == 2 and "title=HDL-111" in said.out and len(cases("v.xml")) == 1


def test_format_annotates_the_first_line_that_changes() -> None:
    Path("q/a.sql").write_text(GOOD.replace("FROM trades\n", "from trades\n"))
    said = heddle("format", "--check", "q", "--format", "github", "--junit", "f.xml")
    assert said.code == 1
    assert "::error file=q/a.sql,line=3,title=q/a.sql::it is not laid out: heddle format q/a.sql" in said.out
    assert {name for name, case in cases("f.xml").items() if case.find("failure") is not None} == {"q/a.sql", "q/b.sql"}


def test_format_that_writes_reports_no_failure() -> None:
    Path("q/a.sql").write_text(GOOD.lower())
    said = heddle("format", "q/a.sql", "--format", "github", "--junit", "f.xml")
    assert said.code == 0 and not commands(said.out) and cases("f.xml")["q/a.sql"].find("failure") is None


def test_tests_of_queries_are_annotated_at_their_lines() -> None:
    said = heddle("test", "--format", "github", "--junit", "t.xml")
    annotated = commands(said.out)
    assert said.code == 1 and len(annotated) == 1
    assert annotated[0].startswith("::error file=tests/t.yaml,line=3,title=a%2C 100%25 wrong::differs%0A- ")
    failure = cases("t.xml")["a, 100% wrong"].find("failure")
    assert failure is not None and "tests/t.yaml:3" in (failure.text or "") and "n: 7" in (failure.text or "")


def test_json_and_junit_go_together() -> None:
    said = heddle("test", "--json", "--junit", "t.xml")
    assert len(json.loads(said.out)["tests"]) == 2 and len(cases("t.xml")) == 2
    assert heddle("test", "--json", "--format", "github").code == 2


def test_a_report_that_cannot_be_written_is_an_error() -> None:
    said = heddle("format", "--check", "q/a.sql", "--junit", "no/such/folder/f.xml")
    assert said.code != 0 and "HDL-115" in said.err and "check --junit" in said.err


# ----------------------------------------------------------------------------------------- hostile texts
ANY = st.text(st.characters(codec="utf-8"), max_size=40)


@given(ANY, ANY, ANY)
def test_no_text_ends_a_workflow_command(file: str, title: str, message: str) -> None:
    line = command("error", title, message, file, 3, 4)
    assert "\n" not in line and "\r" not in line
    properties, _, told = line.removeprefix("::error ").partition("::")
    assert {part.partition("=")[0] for part in properties.split(",")} <= {"file", "line", "col", "title"}
    assert told.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%") == message


@given(ANY, ANY, ANY)
def test_any_text_is_xml(suite: str, name: str, line: str) -> None:
    problem = Diagnostic("HDL-101", name, line, suite, 1, 1, severity="warning")
    text = junit_xml([Case(suite, name, 1, [problem], [line])])
    (case,) = ElementTree.fromstring(text).findall("./testsuite/testcase")
    assert case.find("failure") is not None and case.find("system-out") is not None


def test_annotations_have_queries_and_hints() -> None:
    problem = Diagnostic("HDL-101", "wrong", "mend it", "a.sql", 1, 2, "q", "warning")
    told = list(workflow_commands(Case("a.sql", "a.sql", problems=[problem])))
    assert told == ["::warning file=a.sql,line=1,col=2,title=HDL-101::wrong [q]%0Ahint: mend it"]


# --------------------------------------------------------------------------------------- difference
@pytest.fixture
def changed(project: Path) -> Path:
    (project / "q/b.sql").write_text(GOOD.replace("hourly", "also"))
    (project / "base").mkdir()
    (project / "base/a.sql").write_text(GOOD + GOOD.replace("hourly", "old"))
    return project


def test_diff_compares_files_as_a_comment(changed: Path) -> None:
    said = heddle("diff", "--before", "base", "--after", "q", "--format", "markdown", "--output", "plan.md")
    text = Path("plan.md").read_text()
    assert said.code == 0, said.err
    assert "| queries | 2 | 2 |  |" in text and "**Added** (1): `also`" in text and "**Removed** (1): `old`" in text
    assert "| a run over a day, CPU seconds |" in text


def test_diff_of_files_stores_nothing_and_is_json_too(changed: Path) -> None:
    said = heddle("diff", "--before", "base", "--after", "q", "--json")
    data = json.loads(said.out)
    assert data["added"] == ["also"] and data["versions"] == {"old": None, "new": None} and data["run_over_a_day"]
    assert {path.name for path in changed.iterdir()} >= {"q", "base"} and not (changed / "warehouse").exists()


def test_diff_annotates_what_is_wrong_with_files(changed: Path) -> None:
    Path("q/c.sql").write_text(BAD)
    said = heddle("diff", "--before", "base", "--after", "q", "--format", "github")
    assert said.code == 1
    assert [line.split("::")[1].partition(" ")[0] for line in commands(said.out)] == ["error", "notice"]


def test_diff_refuses_options_that_do_not_go_together(changed: Path) -> None:
    assert heddle("diff", "--before", "base").code == 2
    assert heddle("diff", "1", "--after", "q").code == 2
    assert heddle("diff", "--before", "base", "--after", "q", "--output", "x").code == 2


# ------------------------------------------------------------------------------------------ shipped files
def test_the_workflow_is_one() -> None:
    path = str(ROOT / "examples/web-requests/github-workflow.yml")
    done = CliRunner().invoke(check_schema, ["--builtin-schema", "vendor.github-workflows", path])
    assert done.exit_code == 0, done.output


def test_hooks_run_commands_that_exist() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["heddle-format", "heddle-validate"]
    for hook in hooks:
        program, *arguments = hook["entry"].split()
        assert program == "heddle" and heddle(*arguments, "--help").code == 0
        assert {"id", "name", "entry", "language"} <= hook.keys()
