"""Apply the diffs of docs/contributing.md to a copy of the tree, and use what they add."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RECIPES = ("An aggregate", "A source format", "A command", "A page")
COPIED = ("heddle", "optimizer", "spark_jobs", "docs")

PROJECT = {
    "heddle.toml": 'warehouse = "warehouse"\nstreams = "streams.yaml"\nworkload = ["queries.sql"]\n',
    "streams.yaml": """\
streams:
  readings:
    source: {format: jsonl, path: data}
    schema: {at: timestamp, site: string, v: long}
    time: at
""",
    "queries.sql": """\
-- name: extremes
-- owner: ops
SELECT site, max_abs(v) AS most, min(v) AS low FROM readings
WINDOW RANGE '1 hour' SLIDE '30 minutes' ON at GROUP BY site;
-- name: rows
-- owner: ops
SELECT max_abs(v) AS most FROM readings WINDOW ROWS 3 SLIDE 2 ON at;
""",
}
EVENTS = [
    {"at": f"2024-05-01T00:{minute:02}:00Z", "site": "ab"[minute % 2], "v": (-1) ** minute * minute * 7 % 97 - 40}
    for minute in range(0, 60, 4)
]
EVENTS += [
    {"at": "2024-05-01T00:58:00Z", "site": "a", "v": -(2**63)},
    {"at": "2024-05-01T00:59:00Z", "site": "b", "v": 2**63 - 1},
    {"at": "2024-05-01T00:59:30Z", "site": "c", "v": None},
]

USED = """
import json
import pyarrow as pa
from fastapi.testclient import TestClient
from heddle.cli.serve import pages_of
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant
from tests import oracle
from tests.in_process import heddle

interval = ("2024-05-01T00:00:00Z", "2024-05-01T01:30:00Z")
ran = heddle("run", "--engine", "local", "--from", interval[0], "--to", interval[1], "--json")
assert ran.code == 0, ran
warehouse = Warehouse.open("warehouse", create=False)
events = [json.loads(line) for line in open("data/0.jsonl")]
times = pa.array([parse_instant(event["at"]) for event in events], pa.timestamp("us", "UTC"))
columns = [times, pa.array([event["site"] for event in events]), pa.array([event["v"] for event in events], pa.int64())]
table = pa.table(columns, ["at", "site", "v"])
differences, answers = [], 0
for query in load_plan(warehouse, 1).workload.queries:
    expected = oracle.answers(query, table, "at", *map(parse_instant, interval))
    published = read(warehouse, query.name, *map(parse_instant, interval))
    differences += oracle.compare(query, published, expected)
    answers += len(expected)
pages = TestClient(pages_of("warehouse", "127.0.0.1", ""), base_url="http://127.0.0.1:8765")
print(json.dumps({
    "run": json.loads(ran.out),
    "differences": differences,
    "answers": answers,
    "extremes": json.loads(heddle("read", "extremes", "--json").out)["rows"],
    "listed": heddle("--help").out,
    "owners": [heddle("owners", "--warehouse", "warehouse", *options).out for options in ((), ("--json",))],
    "page": pages.get("/owners").text,
}))
"""


def diffs(title: str) -> list[str]:
    """The diffs of a section of the page."""
    page = (ROOT / "docs" / "contributing.md").read_text()
    section = re.split(r"\n##+ ", page.split(f"### {title}\n")[1])[0]
    return re.findall(r"```diff\n(.*?)```", section, re.DOTALL)


def changes(diff: str) -> list[tuple[str, list[str], list[str]]]:
    """(path, lines before, lines after) of each hunk; no lines before: the file is new."""
    hunks: list[tuple[str, list[str], list[str]]] = []
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")
        if line.startswith(("+++ ", "@@")):
            hunks.append((path, [], []))
        elif not line.startswith("--- "):
            _, before, after = hunks[-1]
            before.extend([line[1:]] * (line[:1] != "+"))
            after.extend([line[1:]] * (line[:1] != "-"))
    return [hunk for hunk in hunks if hunk[2]]


def apply(diff: str, folder: Path) -> None:
    """Apply a diff by the lines of its hunks, which have to be in one place only, and need no numbers."""
    for name, before, after in changes(diff):
        path, former, new = folder / name, "\n".join(["", *before, ""]), "\n".join(["", *after, ""])
        text = f"\n{path.read_text()}" if path.exists() else ""
        assert text.count(former) == 1 if before else not text, f"{name}: {before}"
        path.write_text((text.replace(former, new) if before else new)[1:])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, with compiled kernels, in which all recipes were followed."""
    folder = tmp_path_factory.mktemp("tree")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    (folder / "tests").mkdir()
    for file in ROOT.glob("tests/*.py"):
        shutil.copy2(file, folder / "tests")
    for title in RECIPES:
        for diff in diffs(title):
            apply(diff, folder)
    return folder


@pytest.fixture(scope="module")
def used(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run, a command and a page print that use everything that the recipes add."""
    project = tmp_path_factory.mktemp("project")
    (project / "data").mkdir()
    (project / "data" / "0.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in EVENTS))
    for name, text in PROJECT.items():
        (project / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tree), "HEDDLE_HOME": str(tree)}
    done = subprocess.run(
        [sys.executable, "-c", USED], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def test_an_aggregate_answers_as_the_oracle(used: dict[str, Any]) -> None:
    assert used["differences"] == [] and used["answers"] > 10
    newest = {row["site"]: row["most"] for row in used["extremes"][-3:]}
    assert newest == {"a": -(2**63), "b": 2**63 - 1, "c": None}
    assert all(check["success"] for check in used["run"]["checks"])


def test_an_aggregate_takes_three_modules() -> None:
    paths = {line for diff in diffs("An aggregate") for line in re.findall(r"^\+\+\+ b/(\S+)", diff, re.MULTILINE)}
    assert len([path for path in paths if path.startswith(("heddle/", "optimizer/", "spark_jobs/"))]) == 3


def test_a_source_format_is_read(used: dict[str, Any]) -> None:
    assert used["run"]["scanned"]["readings"][2] == len(EVENTS)


def test_a_command_is_listed_and_prints(used: dict[str, Any]) -> None:
    text, data = used["owners"]
    assert json.loads(data)["owners"] == {"ops": 2}
    assert re.search(r"ops\s*│\s*2", text) and "owners" in used["listed"]


def test_a_page_is_served(used: dict[str, Any]) -> None:
    assert "<td>ops</td><td>2</td>" in used["page"] and 'aria-current="page">Owners' in used["page"]
