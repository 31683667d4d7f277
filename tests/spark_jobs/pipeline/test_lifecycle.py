"""Queries that are registered, paused, resumed, replaced and removed, and the answers that stay meanwhile."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.synopses.synopsis import synopses_of
from spark_jobs.audit.checks import suite
from spark_jobs.operations import maintenance
from spark_jobs.pipeline.planning import publication
from spark_jobs.pipeline.planning.changes import pause_or_resume
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.results.deletion import Deleted, delete_answers
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.registry import events, registered
from spark_jobs.store.warehouse.schemas import TABLES, micros
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, Laboratory, serve_commands, steady

if TYPE_CHECKING:
    pass

STREAMS = """
streams:
  trades:
    source: {format: parquet, path: trades}
    schema: {ts: timestamp, symbol: string, volume: long}
    time: ts
  quotes:
    source: {format: parquet, path: quotes}
    schema: {ts: timestamp, symbol: string, volume: long}
    time: ts
"""
FAR = 4_000_000_000_000_000


class World:
    """Workload files, a warehouse, and what a person may do to them."""

    def __init__(self, place: Path) -> None:
        self.place, self.files = place, {"a": "60 minutes", "b": "90 minutes", "c": "45 minutes"}
        (place / "streams.yaml").write_text(STREAMS)
        self.refresh()
        self.warehouse = Warehouse.open(place / "warehouse")

    def write(self) -> None:
        text = "\n".join(
            f"-- name: {name}\n-- owner: {name}s\n{'-- until: 2013-01-01' if 'until' in about else ''}\n"
            f"SELECT symbol, sum(volume) AS total FROM {'quotes' if 'quotes' in about else 'trades'}\n"
            f"WINDOW RANGE '{about.split(' minutes')[0]} minutes' SLIDE '15 minutes' ON ts GROUP BY symbol;"
            for name, about in self.files.items()
        )
        (self.place / "queries.sql").write_text(text)

    def refresh(self, **asked: Any) -> dict[str, Any]:
        self.write()
        return refresh_plan(
            self.place / "warehouse",
            [self.place / "queries.sql"],
            self.place / "streams.yaml",
            rates={"trades": 1, "quotes": 1},
            **asked,
        ).to_json()

    def pause(self, *names: str) -> dict[str, Any]:
        return pause_or_resume(self.warehouse, "paused", names)

    def resume(self, *names: str) -> dict[str, Any]:
        return pause_or_resume(self.warehouse, "resumed", names)

    def planned(self) -> dict[str, int]:
        """The queries of the plan in force, with the lengths of their windows in minutes."""
        plan = load_plan(self.warehouse, current_version(self.warehouse) or 0)
        return {query.name: query.window.range // MINUTE for query in plan.workload.queries}

    def states(self, clock: int = FAR) -> dict[str, str]:
        return {name: query.state(clock) for name, query in registered(events(self.warehouse)).items()}

    def told(self, name: str) -> list[str]:
        return [event.event for event in events(self.warehouse) if event.query == name]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def heddle(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


# ----------------------------------------------------------------------------------------- without a JVM
def test_a_paused_query_is_in_no_plan_until_it_is_resumed(world: World) -> None:
    before = load_plan(world.warehouse, 1)
    report = world.pause("b")
    assert (report["version"], report["changed"], report["queries"], report["already"]) == (2, True, ["b"], [])
    assert world.planned() == {"a": 60, "c": 45} and world.states()["b"] == "paused"
    assert world.refresh()["paused"] == ["b"] and current_version(world.warehouse) == 2
    world.files["d"] = "30 minutes"
    assert world.refresh()["version"] == 3 and world.planned() == {"a": 60, "c": 45, "d": 30}
    del world.files["d"]
    world.refresh()
    report = world.resume("b")
    assert report["queries"] == ["b"] and world.planned() == {"a": 60, "b": 90, "c": 45}
    # in its old place: the plan that it had been, so the next refresh has nothing to change
    assert load_plan(world.warehouse, report["version"]).fingerprint == before.fingerprint
    assert not world.refresh()["changed"]
    assert world.told("b") == ["registered", "paused", "resumed"]
    assert world.told("d") == ["registered", "removed"] and world.states()["d"] == "removed"


def test_a_resumed_query_takes_its_old_place(world: World) -> None:
    """That of its file, not of its registration: trees name their queries in order."""
    world.files = {"z": "75 minutes", **world.files}
    before = load_plan(world.warehouse, world.refresh(algorithm="shared")["version"])
    world.pause("a")
    report = world.resume("a")
    assert load_plan(world.warehouse, report["version"]).fingerprint == before.fingerprint


def test_pausing_twice_is_pausing_once(world: World) -> None:
    world.pause("b")
    stored = world.warehouse.version("workload_queries"), world.warehouse.version("sharing_plans")
    report = world.pause("b", "b")
    assert (report["version"], report["changed"], report["queries"], report["already"]) == (2, False, [], ["b"])
    assert (world.warehouse.version("workload_queries"), world.warehouse.version("sharing_plans")) == stored
    assert world.resume("a")["already"] == ["a"] and world.told("a") == ["registered"]
    report = world.pause("a", "b")
    assert (report["queries"], report["already"]) == (["a"], ["b"]) and world.planned() == {"c": 45}


def test_an_unknown_name_changes_nothing(world: World) -> None:
    world.files["by_symbol"] = "20 minutes"
    world.refresh()
    with pytest.raises(HeddleError, match="HDL-521 .*by_simbol\n.*did you mean by_symbol"):
        world.pause("a", "by_simbol")
    assert set(world.states().values()) == {"running"} and "a" in world.planned()
    del world.files["by_symbol"]
    world.refresh()
    with pytest.raises(HeddleError, match="HDL-521"):
        world.resume("by_symbol")


def test_a_paused_query_that_is_edited_stays_paused(world: World) -> None:
    world.pause("b")
    world.files["b"] = "120 minutes"
    assert not world.refresh()["changed"] and world.planned() == {"a": 60, "c": 45}
    assert world.told("b") == ["registered", "paused", "replaced"] and world.states()["b"] == "paused"
    world.resume("b")
    assert world.planned() == {"a": 60, "b": 120, "c": 45}


def test_a_paused_query_whose_file_goes_is_removed(world: World) -> None:
    world.pause("b")
    window = world.files.pop("b")
    world.refresh()
    assert world.states()["b"] == "removed"
    world.files["b"] = window
    world.refresh()
    # what is registered anew runs
    assert world.states()["b"] == "running" and "b" in world.planned()
    assert world.told("b") == ["registered", "paused", "removed", "registered"]


def test_a_paused_query_may_expire(world: World) -> None:
    world.files["b"] = "90 minutes until"
    world.refresh()
    end = registered(events(world.warehouse))["b"].query.until
    assert end is not None
    assert world.states(end)["b"] == "running" and world.states(end + 1)["b"] == "expired"
    world.pause("b")
    assert world.states(end)["b"] == "paused" and world.states(end + 1)["b"] == "expired"
    world.resume("b")
    assert world.states(end + 1)["b"] == "expired" and "b" in world.planned()


def test_some_query_runs_always(world: World) -> None:
    with pytest.raises(HeddleError, match="HDL-523"):
        world.pause("a", "b", "c")
    assert set(world.states().values()) == {"running"} and current_version(world.warehouse) == 1
    world.pause("a", "b")
    with pytest.raises(HeddleError, match="HDL-523"):
        world.pause("c")
    del world.files["c"]
    with pytest.raises(HeddleError, match="HDL-113.*paused"):
        world.refresh()
    assert world.planned() == {"c": 45}


def test_all_queries_of_a_stream_may_be_paused(world: World) -> None:
    world.files["q"] = "30 minutes of quotes"
    world.refresh()
    world.pause("q")
    assert [stream.name for stream in load_plan(world.warehouse, 3).workload.streams] == ["trades"]
    world.refresh()
    world.resume("q")
    assert world.planned()["q"] == 30


def test_a_query_of_a_stream_that_no_plan_knows_cannot_be_resumed_yet(world: World) -> None:
    world.pause("b")
    world.files["b"] = "90 minutes of quotes"
    world.refresh()
    with pytest.raises(HeddleError, match="HDL-524 .*quotes"):
        world.resume("b")
    assert world.states()["b"] == "paused"


def test_a_plan_that_was_overtaken_is_not_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh, and another pause, that began before a pause and end after it."""
    original = publication.publish_plan

    def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(publication, "publish_plan", original)
        world.pause("b")
        return original(*arguments, **options)

    monkeypatch.setattr(publication, "publish_plan", overtaken)
    world.files["d"] = "30 minutes"
    with pytest.raises(HeddleError, match="HDL-522 .*: b"):
        world.refresh()
    assert world.planned() == {"a": 60, "c": 45} and "d" not in world.states()
    world.refresh()
    assert world.planned() == {"a": 60, "c": 45, "d": 30}
    world.resume("b")

    monkeypatch.setattr(publication, "publish_plan", overtaken)
    with pytest.raises(HeddleError, match="HDL-522"):
        world.pause("a")
    assert world.states()["a"] == "running" and world.states()["b"] == "paused"

    def overtaken_by_resume(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(publication, "publish_plan", original)
        world.resume("b")
        return original(*arguments, **options)

    monkeypatch.setattr(publication, "publish_plan", overtaken_by_resume)
    world.files["e"] = "15 minutes"
    with pytest.raises(HeddleError, match="HDL-522 .*: b"):
        world.refresh()
    assert world.states()["b"] == "running" and "b" in world.planned() and "e" not in world.planned()


@pytest.mark.parametrize("event", ["paused", "resumed"])
def test_a_change_that_is_cut_off_is_completed(world: World, monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    """The events are stored, the plan is not: the same command, any other, or a refresh goes on."""
    if event == "resumed":
        world.pause("b")
    append = Warehouse.append

    def cut(self: Warehouse, table: str, *arguments: Any, **options: Any) -> None:
        if table == "sharing_plans":
            raise OSError("gone")
        append(self, table, *arguments, **options)

    for go_on in (lambda: pause_or_resume(world.warehouse, event, ["b"]), lambda: world.pause("c"), world.refresh):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="gone"):
            patch.setattr(Warehouse, "append", cut)
            pause_or_resume(world.warehouse, event, ["b"])
        before = world.planned()
        assert ("b" in before) == (event == "paused") and world.states()["b"] == {"resumed": "running"}.get(
            event, event
        )
        go_on()
        assert ("b" in world.planned()) != (event == "paused") and world.states()["a"] == "running"
        assert world.told("b").count("removed") == 0
        world.resume("b", "c")
        if event == "resumed":
            world.pause("b")


def test_rolling_back_wakes_nobody(world: World) -> None:
    world.files["b"] = "100 minutes"
    world.refresh()
    world.pause("b")
    place = str(world.warehouse.root)
    assert heddle("rollback", "1", "--warehouse", place)[0] == 0
    assert world.planned() == {"a": 60, "c": 45} and world.states()["b"] == "paused"
    # what is resumed is what was registered last
    world.resume("b")
    assert world.planned()["b"] == 100


def test_an_owner_may_change(world: World) -> None:
    world.files = {"z" if name == "a" else name: about for name, about in world.files.items()}
    text = (world.place / "queries.sql").read_text().replace("-- owner: bs", "-- owner: somebody")
    world.write = lambda: (world.place / "queries.sql").write_text(text)  # type: ignore[method-assign]
    assert not world.refresh()["changed"]
    assert world.told("b") == ["registered", "replaced"]
    assert registered(events(world.warehouse))["b"].query.owner == "somebody" and world.told("a") == ["registered"]


def test_maintenance_keeps_what_a_paused_query_needs(world: World) -> None:
    """However many plans came since: its stored partial aggregates fill the gap when it is resumed."""
    world.files = {"a": "65 minutes", "b": "92 minutes", "c": "45 minutes"}  # of different fragments
    before = load_plan(world.warehouse, world.refresh(algorithm="no-share")["version"])

    def is_kept(name: str) -> bool:
        stream = before.workload.stream("trades")
        needed = {synopsis.fingerprint for synopsis in synopses_of(stream, before.tree_of(name).queries)}
        return needed <= (maintenance._wanted(world.warehouse) or set())

    assert is_kept("a") and is_kept("b")
    del world.files["a"]
    world.pause("b")
    for minutes in (30, 75, 120, 150):
        world.files["c"] = f"{minutes} minutes"
        world.refresh(algorithm="no-share")
    assert is_kept("b") and not is_kept("a")


def test_layout_and_comments_change_nothing(world: World) -> None:
    text = (world.place / "queries.sql").read_text().replace("SELECT", "select /* the same */").replace("\n", " \n\n")
    world.write = lambda: (world.place / "queries.sql").write_text(text)  # type: ignore[method-assign]
    assert not world.refresh()["changed"] and world.told("a") == ["registered"]


def test_a_warehouse_of_before_pauses_goes_on(world: World) -> None:
    """Its table of queries has neither plan versions nor reasons; what is added has."""
    path = world.warehouse.path("workload_queries")
    old = [field for field in TABLES["workload_queries"][0].names if field not in ("plan_version", "reason")]
    write_deltalake(path, DeltaTable(path).to_pyarrow_table(columns=old), mode="overwrite", schema_mode="overwrite")
    assert DeltaTable(path).to_pyarrow_table().schema.names == old
    assert world.states() == {"a": "running", "b": "running", "c": "running"}
    assert heddle("queries", "--warehouse", str(world.warehouse.root))[0] == 0
    world.pause("b")
    assert world.states()["b"] == "paused" and world.planned() == {"a": 60, "c": 45}
    DeltaTable(path).optimize.compact()
    assert world.told("b") == ["registered", "paused"]


def test_the_commands(world: World) -> None:
    house = ("--warehouse", str(world.warehouse.root))
    code, out, _ = heddle("pause", "b", "c", *house, "--reason", "costs too much")
    assert code == 0 and "paused: b, c" in out and "plan version 2 (new)" in out and "- query b (paused)" in out
    code, out, _ = heddle("pause", "b", *house, "--json")
    assert code == 0 and json.loads(out)["already"] == ["b"]
    code, _, err = heddle("pause", "bb", *house)
    assert code == 1 and "HDL-521" in err and "did you mean b?" in err
    code, out, _ = heddle("queries", *house, "--json")
    queries = {query["query"]: query for query in json.loads(out)["queries"]}
    assert {name: query["state"] for name, query in queries.items()} == {"a": "running", "b": "paused", "c": "paused"}
    assert (queries["b"]["owner"], queries["b"]["plan_version"], queries["a"]["plan_version"]) == ("bs", 1, 2)
    code, out, _ = heddle("queries", *house)
    assert code == 0 and "1 running, 2 paused" in out and queries["b"]["fingerprint"][:8] in out
    heddle("resume", "b", *house)
    code, out, _ = heddle("queries", *house, "--history", "b", "--json")
    assert [event["event"] for event in json.loads(out)["events"]] == ["registered", "paused", "resumed"]
    assert json.loads(out)["events"][1]["reason"] == "costs too much"
    code, out, _ = heddle("queries", *house, "--history", "b")
    assert code == 0 and "costs too much" in out
    assert heddle("queries", *house, "--history", "bb")[0] == 1


@pytest.mark.parametrize("seed", range(6))
def test_any_history_ends_as_it_should(world: World, seed: int) -> None:
    """Beside a model of it that holds no more than a set of names: who is registered, and who is paused."""
    chance, paused, live = random.Random(seed), set(), dict(world.files)
    for _ in range(12):
        name = chance.choice("abcde")
        running = set(live) - paused
        match chance.choice(("pause", "resume", "edit", "remove", "refresh")):
            case "pause" if name in live and running != {name}:
                world.pause(name)
                paused.add(name)
            case "resume" if name in live:
                world.resume(name)
                paused.discard(name)
            case "edit":
                world.files[name] = f"{chance.randrange(1, 9) * 15} minutes"
            case "remove" if set(world.files) - paused - {name}:
                world.files.pop(name, None)
            case "refresh" if set(world.files) - paused:
                world.refresh()
                paused &= set(world.files)
                live = dict(world.files)
        states = {known: state for known, state in world.states().items() if state != "removed"}
        assert states == {name: "paused" if name in paused else "running" for name in live}
        expected_minutes = {name: int(about.split()[0]) for name, about in live.items() if name not in paused}
        assert world.planned() == expected_minutes


# --------------------------------------------------------------------------------------- what is published
OTHER = QUERIES.split(";")[1] + ";"


@pytest.fixture
def laboratory(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    lab = Laboratory(engine, tmp_path)
    lab.write(steady(180))
    lab.write([], "quotes")
    serve_commands(engine, monkeypatch)
    # what Great Expectations judges is tested elsewhere; here the judge is the oracle
    monkeypatch.setattr(suite, "expectations", lambda *arguments: [])
    return lab


def ends(laboratory: Laboratory, query: str) -> set[float]:
    """The minutes that a query is answered at."""
    return {(row["window_end"].timestamp() * 1e6 - DAY) / MINUTE for row in laboratory.rows(query)}


def test_the_answers_of_a_paused_query_stay_and_the_gap_is_filled(laboratory: Laboratory) -> None:
    """Run again, repaired after late events, run by larger intervals while it is paused; then backfilled."""
    version = laboratory.plan()
    house = str(laboratory.warehouse.root)
    for begin in (0, 60):
        laboratory.run(version, begin, begin + 60, f"run {begin}")
    before = laboratory.rows("by_symbol")
    assert heddle("pause", "by_symbol", "--warehouse", house)[0] == 0
    paused = current_version(laboratory.warehouse) or 0
    # an interval that it was published in is run again, a new one is run, late events are repaired
    laboratory.run(paused, 0, 60, "again", recompute=True)
    laboratory.run(paused, 120, 180, "next")
    assert laboratory.rows("by_symbol") == before
    laboratory.write([*steady(180), (50.5, "A", 7.0, 5)])
    assert heddle("repair", "--warehouse", house)[0] == 0
    assert laboratory.rows("by_symbol") == before and laboratory.wrong(paused, 0, 180) == []
    assert max(ends(laboratory, "all")) == 175 and max(ends(laboratory, "by_symbol")) == 115

    output = heddle("resume", "by_symbol", "--warehouse", house)[1]
    resumed = current_version(laboratory.warehouse) or 0
    # a run that is pinned to the plan of before is none of the resumed query's business
    laboratory.run(paused, 60, 120, "pinned to the pause", recompute=True)
    assert laboratory.rows("by_symbol") == before
    missed = "--from 2013-07-01T00:00:00Z --to 2013-07-01T03:00:00Z"
    assert output.count("heddle backfill") == 1 and f"heddle backfill --warehouse {house} {missed}\n" in output
    span = ("--warehouse", house, *missed.split(), "--every", "1 hour")
    assert heddle("backfill", *span)[0] == 0
    assert laboratory.wrong(resumed, 0, 180) == [] and max(ends(laboratory, "by_symbol")) == 175
    assert "0 runs" in heddle("backfill", *span)[1]


def test_what_a_paused_query_missed_is_told_span_by_span(laboratory: Laboratory) -> None:
    version = laboratory.plan()
    laboratory.run(version, 0, 60)
    paused = pause_or_resume(laboratory.warehouse, "paused", ["by_symbol"])
    assert paused["unanswered"] == {}
    laboratory.run(paused["version"], 60, 90, "a")
    laboratory.run(paused["version"], 90, 120, "b")
    laboratory.run(paused["version"], 150, 180, "c")
    resumed = pause_or_resume(laboratory.warehouse, "resumed", ["by_symbol", "all"])
    spans = [("2013-07-01T01:00:00Z", "2013-07-01T02:00:00Z"), ("2013-07-01T02:30:00Z", "2013-07-01T03:00:00Z")]
    assert resumed["unanswered"] == {"by_symbol": spans} and resumed["already"] == ["all"]
    again = pause_or_resume(laboratory.warehouse, "paused", ["by_symbol"])
    assert again["unanswered"] == pause_or_resume(laboratory.warehouse, "resumed", ["by_symbol"])["unanswered"] == {}


def test_the_answers_of_a_removed_query_stay_until_they_are_deleted_by_name(laboratory: Laboratory) -> None:
    version = laboratory.plan()
    first = laboratory.run(version, 0, 120, "first")
    before = laboratory.rows("by_symbol")
    other = laboratory.run(laboratory.plan(OTHER), 0, 120, "without")
    assert laboratory.rows("by_symbol") == before != [] and laboratory.rows("all") != []
    readers = other.readers
    assert readers is not None and first.readers is not None
    assert readers["before"] == first.answers and readers["lost"] == [0, 0] and readers["fewer"] == {}
    assert readers["after"] == len(before) + len(laboratory.rows("all")) == first.readers["after"]
    # a rerun, a late event, a plan that never knew it: still there
    laboratory.write([*steady(120), (20.25, "A", 7.0, 3)])
    laboratory.run(laboratory.plan(OTHER), 0, 120, "late", recompute=True)
    assert laboratory.rows("by_symbol") == before
    assert delete_answers(laboratory.warehouse, ["by_symbol", "none"], dry_run=True) == (
        would := [Deleted("by_symbol", len(before), *_span(before)), Deleted("none")]
    )
    assert laboratory.rows("by_symbol") == before
    assert delete_answers(laboratory.warehouse, ["by_symbol", "none"], dry_run=False) == would
    assert laboratory.rows("by_symbol") == [] and laboratory.rows("all") != []
    # the same plan and sources as before, and yet not "nothing changed"
    again = laboratory.run(laboratory.plan(), 0, 120, "again")
    assert again.status == "published" and laboratory.wrong(laboratory.plan(), 0, 120) == []
    assert again.readers is not None and again.readers["gained"][0] == 1


def _span(rows: list[dict[str, Any]]) -> tuple[int, int]:
    ends = [micros(row["window_end"]) for row in rows]
    return min(ends), max(ends)


def test_a_new_query_has_its_history_computed_on_request(laboratory: Laboratory) -> None:
    """Its answers alone are new; a query of a tree of its own has its own partial aggregates computed and no others."""
    span = ("--from", "2013-07-01", "--to", "2013-07-01T03:00")
    house = ("--warehouse", str(laboratory.warehouse.root))
    laboratory.plan(algorithm="no-share")
    assert heddle("backfill", *house, *span)[0] == 0
    before = {name: laboratory.rows(name) for name in ("by_symbol", "all")}
    new = "-- name: new\nSELECT max(volume) AS most FROM trades WINDOW RANGE '35 minutes' SLIDE '7 minutes' ON ts;"
    version = laboratory.plan(QUERIES + new, algorithm="no-share")
    code, out, _ = heddle("backfill", *house, *span, "--json")
    (record,) = json.loads(out)["records"]
    assert code == 0 and (record["synopses"], record["synopses_reused"]) == (3, 2)
    assert laboratory.wrong(version, 0, 180) == [] and laboratory.rows("new") != []
    assert {name: laboratory.rows(name) for name in before} == before
    # spaces and comments: the same plan, the same content, nothing to run
    assert laboratory.plan(QUERIES.replace(", ", " ,\n  ") + "-- a word\n" + new, algorithm="no-share") == version
    code, out, _ = heddle("backfill", *house, *span, "--json")
    assert code == 0 and "records" not in json.loads(out) and json.loads(out)["runs"][0]["published"]
