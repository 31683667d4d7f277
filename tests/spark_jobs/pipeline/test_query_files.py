"""Queries that are deleted, renamed or moved in their files are named by every command, and removed when asked."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.builder import build_plan
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.planning.query_files import missing_queries
from spark_jobs.pipeline.planning.registration import RegistrationRequest, registering
from spark_jobs.pipeline.planning.requested import load_inputs
from spark_jobs.store.warehouse import registry
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.in_process import Clock, heddle, without_spark
from tests.sizes import examples

STREAMS = """\
streams:
  trades:
    source: {format: parquet, path: trades}
    schema: {ts: timestamp, symbol: string, volume: long}
    time: ts
"""
NAMES = ("daily", "hourly", "dialy", "by_symbol", "totals")
FILES = ("queries/core.sql", "queries/more/extra.sql", "others/team.sql")
GIVEN = (("queries",), ("queries", "others"), ("others/team.sql",), ("queries/core.sql",), ("queries/**/*.sql",))
MEANINGS = ("15 minutes", "30 minutes", "45 minutes")
START = 15_887 * 86_400_000_000

FileOf = dict[str, dict[str, str]]
"""The queries of each file, by name, with what they mean."""


@dataclass
class Project:
    """A folder with streams, workload files and a warehouse; and beside it what is registered by the rules of the
    documents: the file and meaning of each query."""

    root: Path
    registered: dict[str, tuple[str, str]]

    @classmethod
    def made(cls, root: Path) -> Project:
        (root / "trades").mkdir(parents=True)
        rows = {"ts": pa.array([START], pa.timestamp("us", "UTC")), "symbol": ["A"], "volume": [1]}
        pq.write_table(pa.table(rows), root / "trades/first.parquet")
        (root / "streams.yaml").write_text(STREAMS)
        return cls(root, {})

    def write(self, files: FileOf) -> None:
        for name in FILES:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if name in files:
                path.write_text("".join(query(query_name, span) for query_name, span in files[name].items()))

    def asked(self, given: tuple[str, ...], prune: bool) -> RegistrationRequest:
        """What registering the given files asks for; stored."""
        places = [self.root / path for path in given]
        house = Warehouse.open(self.root / "warehouse")
        inputs = load_inputs(places, self.root / "streams.yaml", house)
        request = registering(inputs, house, prune=prune)
        plan = build_plan(request.workload, {"trades": 1}, "no-share")
        publish_plan(house, plan, "test", request=request)
        return request

    def expected(self, files: FileOf, given: tuple[str, ...]) -> dict[str, str]:
        """The registered queries that are in no given file any more, each with what it looks renamed to."""
        scope = [file for file in FILES if is_given(file, given)]
        spans = {name: span for file in scope for name, span in files.get(file, {}).items()}
        new_first = sorted(spans, key=lambda other: other in self.registered)
        return {
            name: next((other for other in new_first if spans[other] == meaning), "")
            for name, (file, meaning) in self.registered.items()
            if file in scope and name not in spans
        }

    def follow(self, files: FileOf, given: tuple[str, ...], removed: set[str]) -> None:
        for file in FILES:
            if is_given(file, given):
                self.registered |= {name: (file, span) for name, span in files.get(file, {}).items()}
        for name in removed:
            del self.registered[name]


def is_given(file: str, given: tuple[str, ...]) -> bool:
    return any(file == place or file.startswith(place.partition("/*")[0] + "/") for place in given)


def query(name: str, span: str) -> str:
    return f"-- name: {name}\nSELECT count(*) AS n FROM trades WINDOW RANGE '{span}' SLIDE '15 minutes' ON ts;\n"


CONTENT = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(MEANINGS), min_size=1, max_size=4)
STEP = st.tuples(
    st.fixed_dictionaries({FILES[0]: CONTENT}, optional={FILES[1]: CONTENT, FILES[2]: CONTENT}),
    st.sampled_from(GIVEN),
    st.booleans(),
)


@settings(max_examples=examples(15), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.lists(STEP, min_size=2, max_size=5))
def test_queries_that_left_their_files_are_named_or_pruned(steps: list[tuple[FileOf, tuple[str, ...], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Project.made(Path(folder).resolve() / "project")
        for files, places, prune in steps:
            files = {name: content for name, content in files.items() if unique(files, name, content)}
            project.write(files)
            if not all(any(is_given(file, (place,)) for file in files) for place in places):
                continue  # a place without a file is an error of its own (HDL-111)
            expected = project.expected(files, places)
            if prune and 2 * len(expected) > len(project.registered):
                with pytest.raises(HeddleError, match="would remove"):
                    project.asked(places, prune)
                continue
            request = project.asked(places, prune)
            assert set(request.removed) == (set(expected) if prune else set())
            renamed = {name: other for name, other in expected.items() if other}
            reported = renamed if prune else expected
            messages = [diagnostic.message for diagnostic in request.diagnostics]
            assert [diagnostic.code for diagnostic in request.diagnostics] == (["HDL-148"] if reported else [])
            for name, other in reported.items():
                assert f"{name} (" in messages[0] and (not other or f"looks renamed to {other}" in messages[0])
            project.follow(files, places, set(expected) if prune else set())
            live = registry.live(Warehouse.open(project.root / "warehouse"))
            known = {
                name: str(Path(registration.file or "").relative_to(project.root))
                for name, registration in live.items()
            }
            assert known == {name: file for name, (file, _) in project.registered.items()}
            # status looks at the file of each query: one that moved is not in it until its new file is given
            moved = {name for name, (file, _) in project.registered.items() if name not in files.get(file, {})}
            assert {missing.name for missing in missing_queries(live)} == moved


def unique(files: FileOf, name: str, content: dict[str, str]) -> bool:
    """Whether no earlier file has a query of this one: two of a name are an error of their own (HDL-209)."""
    earlier = FILES[: FILES.index(name)]
    return not any(set(content) & set(files.get(file, {})) for file in earlier)


def test_copied_project_finds_its_files_where_they_are_now(tmp_path: Path) -> None:
    project = Project.made(tmp_path / "staging")
    files: FileOf = {FILES[0]: {"daily": MEANINGS[0], "hourly": MEANINGS[1], "totals": MEANINGS[2]}}
    project.write(files)
    project.asked(("queries",), False)
    shutil.copytree(tmp_path / "staging", tmp_path / "production")
    copy = Project(tmp_path / "production", {})
    assert copy.asked(("queries",), False).lines == ()
    (copy.root / FILES[0]).write_text(query("daily", MEANINGS[0]) + query("hourly", MEANINGS[1]))
    assert [missing.name for missing in missing_queries(registry.live(Warehouse.open(copy.root / "warehouse")))] == [
        "totals"
    ]
    shutil.rmtree(tmp_path / "staging")
    (request,) = (copy.asked(("queries",), True),)
    assert request.removed == ("totals",)


def test_commands_name_what_left_and_prune_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project.made(tmp_path / "mine")
    monkeypatch.chdir(project.root)
    (project.root / "heddle.toml").write_text(
        'workload = ["queries"]\nstreams = "streams.yaml"\nwarehouse = "warehouse"\n'
    )
    project.write({FILES[0]: {"dialy": MEANINGS[0], "hourly": MEANINGS[1], "totals": MEANINGS[2]}})
    run = ["run", "--from", "2013-07-01", "--to", "2013-07-02"]
    with without_spark(Clock(START + 10 * 86_400_000_000)):
        assert heddle(*run).code == 0
        project.write({FILES[0]: {"daily": MEANINGS[0], "hourly": MEANINGS[1], "totals": MEANINGS[2]}})
        for command in (
            ["validate"],
            run,
            ["plan", "queries", "--streams", "streams.yaml", "--warehouse", "warehouse"],
        ):
            done = heddle(*command)
            assert done.code == 0 and "HDL-148" in done.err + done.out, (command, done)
            assert "dialy (core.sql, looks renamed to daily)" in " ".join((done.err + done.out).split())
        assert "HDL-148" in heddle("status").err + heddle("status").out
        # nobody is at a terminal
        refused = heddle(*run, "--prune")
        assert refused.code == 2 and "HDL-525" in refused.err
        before = heddle("read", "dialy", "--format", "csv").out
        assert heddle(*run, "--prune", "--yes").code == 0
        assert set(registry.live(Warehouse.open(project.root / "warehouse"))) == {"daily", "hourly", "totals"}
        assert heddle("read", "dialy", "--format", "csv").out == before != ""
        project.write({FILES[0]: {"new": MEANINGS[0]}})
        refused = heddle(*run, "--prune", "--yes")
        assert refused.code != 0 and "HDL-149" in refused.err
