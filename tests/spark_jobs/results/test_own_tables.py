"""Tables of queries follow the published answers: whatever happens, and wherever it is cut off."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.workload.values import DATE, TIMESTAMP, AnswerTable, Source, Stream
from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.planning.changes import pause_or_resume
from spark_jobs.pipeline.planning.removal import remove
from spark_jobs.results import own_table, table_notes, table_rows, table_upkeep, tables
from spark_jobs.results.contract import contract
from spark_jobs.results.read import read
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse import registry
from spark_jobs.store.warehouse.plans import current_version
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos.world import Died, World, without_audit
from tests.in_process import heddle
from tests.sizes import examples
from tests.spark_jobs.followed import counted, torn, wrong
from tests.spark_jobs.laboratory import Event, steady
from tests.spark_jobs.results.odcs import accepted, table_of

BY_SYMBOL = "SELECT symbol, {} FROM trades WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;\n"
OTHERS = (
    "-- name: all\n-- owner: ops\n-- table: All\nSELECT sum(price) AS money, max(volume) AS revised FROM trades\n"
    "WINDOW RANGE '40 minutes' SLIDE '20 minutes' ENDING '30 minutes' AGO ON ts;\n"
    "-- name: none\n-- table: none\nSELECT count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts\n"
    "WHERE volume > 100;\n"
    "-- name: rows\n-- table: rows, change data feed\nSELECT avg(price) AS mean FROM trades\n"
    "WINDOW ROWS 20 SLIDE 20 ON ts;\n-- name: without\nSELECT count(*) AS n FROM trades\n"
    "WINDOW RANGE '30 minutes' SLIDE '30 minutes' ON ts;\n"
)
OUTPUTS = ("count(*) AS n, min(price) AS low", "count(*) AS n", "avg(price) AS high, count(*) AS n", "sum(price) AS n")
"""Of one query: fewer, more, and ``n`` of another type."""


def texts(outputs: int, table: str = "by_symbol, change data feed") -> str:
    table_comment = f"-- table: {table}\n" if table else ""
    return f"-- name: by_symbol\n{table_comment}{BY_SYMBOL.format(OUTPUTS[outputs])}{OTHERS}"


POINTS: dict[str, tuple[Any, str, bool]] = {
    "before it follows": (tables, "follow", False),
    "before a table is made": (own_table, "made", False),
    "after a table is made": (own_table, "made", True),
    "before a table is written": (own_table, "replace", False),
    "after a table is written": (own_table, "replace", True),
    "before the notes are": (table_notes.TableNotes, "write", False),
}
"""Where a run is cut off after it has published."""


@contextmanager
def cut_off(point: str | None) -> Iterator[None]:
    """The first time that a run comes to a point, its process is gone."""
    with pytest.MonkeyPatch.context() as patch:
        if point is not None:
            owner, name, after = POINTS[point]
            original: Callable[..., Any] = getattr(owner, name)
            pending = [True]

            def dying(*arguments: Any, **options: Any) -> Any:
                result = original(*arguments, **options) if after else None
                if pending:
                    pending.clear()
                    raise Died
                return result if after else original(*arguments, **options)

            patch.setattr(owner, name, dying)
        yield


def table(house: Warehouse, name: str) -> DeltaTable:
    return DeltaTable(house.path(f"tables/{name}"))


def unchanged(changes: pa.Table) -> list[str]:
    """The rows of a feed that a commit has deleted and inserted with the same values."""
    names = [column for column in changes.schema.names if column != "revision" and not column.startswith("_change_t")]
    seen = Counter[str]()
    for row in changes.select([*names, "_change_type"]).to_pylist():
        kind = row.pop("_change_type")
        seen[f"{kind} {list(row.values())}"] += 1
    return [text for text in seen if text.startswith("delete") and text.replace("delete", "insert", 1) in seen]


def unfed(house: Warehouse, name: str) -> list[str]:
    """What a reader of the change data feed of a table has wrong who has applied all of it."""
    applied: Counter[str] = Counter()
    delta = table(house, name)
    names = [field.name for field in delta.schema().fields]
    changes = pa.table(delta.load_cdf(starting_version=0))
    if twice := unchanged(changes):
        return [f"{name}: {twice[0]} is fed though nothing in it changed"]
    for row in changes.to_pylist():
        text = str([row.get(column) for column in names])
        applied[text] += {"insert": 1, "delete": -1}[row["_change_type"]]
    rows = Counter(str(list(row.values())) for row in delta.to_pyarrow_table().select(names).to_pylist())
    return [] if +applied == rows and not -applied else [f"{name}: {len(rows)} rows, {len(+applied)} by the feed"]


# ------------------------------------------------------------------------------------------------ histories
SPANS = st.sampled_from([(0, 60), (60, 120), (0, 120), (30, 90)])
STEPS = st.one_of(
    st.tuples(st.just("run"), SPANS, st.booleans(), st.sampled_from([None, None, *POINTS])),
    st.tuples(st.just("late"), st.integers(0, 119)),
    st.tuples(st.just("define"), st.sampled_from([0, 0, 1, 2])),
    st.tuples(st.just("retype"), st.none()),
    st.tuples(st.just("pause"), st.sampled_from(["by_symbol", "all"])),
    st.tuples(st.just("resume"), st.sampled_from(["by_symbol", "all"])),
    st.tuples(st.just("remove"), st.sampled_from(["by_symbol", "all", "rows"]), st.booleans()),
    st.tuples(st.just("maintain"), st.none()),
    st.tuples(st.just("forget"), st.none()),
)


class Played:
    """A warehouse and what happens to it."""

    def __init__(self, folder: Path) -> None:
        self.world = World.at(folder)
        self.house = self.world.warehouse
        self.world.write(steady(120))
        self.world.write([], "quotes")
        self.number = 0
        self.world.plan(texts(0))

    def play(self, step: Any) -> None:
        self.number += 1
        getattr(self, step[0])(*step[1:])

    def run(self, span: tuple[int, int], recompute: bool, point: str | None) -> None:
        version = current_version(self.house) or 0
        try:
            with cut_off(point):
                record = self.world.run(version, *span, f"run {self.number}", recompute=recompute)
        except Died:
            assert torn(self.house) == []
            assert tables.follow(self.house) == []
        else:
            assert record.diagnostics == []

    def late(self, minute: int) -> None:
        event: Event = (minute + 0.25, "A", 7.0, 5)
        self.world.write([event], name=f"late-{self.number}")

    def define(self, outputs: int) -> None:
        if not self._is_any_paused():
            self.world.plan(texts(outputs))

    def retype(self, _: None) -> None:
        """Its table is blocked until somebody asks for another."""
        if self._is_any_paused():
            return
        self.world.plan(texts(3))
        version = current_version(self.house) or 0
        before = table(self.house, "by_symbol").version() if (self.house.root / "tables/by_symbol").is_dir() else None
        record = self.world.run(version, 0, 60, f"run {self.number}", recompute=True)
        if before is not None:
            assert [diagnostic["code"] for diagnostic in record.diagnostics] == ["HDL-561"]
            assert table(self.house, "by_symbol").version() == before
            assert self._states()["by_symbol"] == "blocked"
        table_upkeep.rebuild(self.house, "by_symbol")
        assert wrong(self.house) == []
        self.world.plan(texts(0))
        table_upkeep.rebuild(self.house, "by_symbol")

    def pause(self, name: str) -> None:
        if self._state(name) == "running":
            pause_or_resume(self.house, "paused", [name])

    def resume(self, name: str) -> None:
        if self._state(name) == "paused":
            pause_or_resume(self.house, "resumed", [name])

    def remove(self, name: str, with_answers: bool) -> None:
        if self._state(name) != "removed":
            assert remove(self.house, [name], "", with_answers, False, lambda deleted: True).diagnostics == ()

    def maintain(self, _: None) -> None:
        maintain(self.house, retention=0)

    def forget(self, _: None) -> None:
        """The notes are gone."""
        (self.house.root / "tables/.followed.json").unlink(missing_ok=True)

    def _is_any_paused(self) -> bool:
        return "paused" in (self._state("by_symbol"), self._state("all"))

    def _state(self, name: str) -> str:
        return registry.registered(registry.events(self.house))[name].state(0)

    def _states(self) -> dict[str, str]:
        return {
            listing.table: listing.state
            for listing in table_upkeep.table_listings(self.house, tables.follow(self.house))
        }


@given(steps=st.lists(STEPS, max_size=7))
@example(steps=[("run", (0, 120), False, None), ("late", 20), ("run", (0, 120), False, None), ("remove", "all", True)])
@example(steps=[("run", (0, 60), False, "after a table is made"), ("late", 7), ("run", (0, 120), False, None)])
@example(steps=[("run", (0, 120), False, None), ("define", 1), ("run", (0, 60), True, None), ("define", 2)])
@example(steps=[("run", (0, 120), False, None), ("retype", None), ("run", (60, 120), True, "after a table is written")])
@pytest.mark.reduced
@settings(max_examples=examples(3, slow=6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_tables_are_what_is_published_whatever_happens(
    steps: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with without_audit():
        played = Played(tmp_path_factory.mktemp("house"))
        maintained = False
        for step in steps:
            played.play(step)
            maintained = maintained or step[0] == "maintain"
            assert tables.follow(played.house) == []
            assert wrong(played.house) == []
            if not maintained:  # files of versions before are gone
                assert torn(played.house) == []
        for name in ("by_symbol", "rows"):
            was_fed = not maintained and "retype" not in {step[0] for step in steps}
            if was_fed and (played.house.root / "tables" / name).is_dir():
                assert unfed(played.house, name) == []
        folder = played.house.root / own_table.FOLDER
        before = {folder / name: DeltaTable(folder / name).version() for name in own_table.folders(played.house)}
        assert tables.follow(played.house) == []
        assert {path: DeltaTable(str(path)).version() for path in before} == before


# ------------------------------------------------------------------------------------------------- cases
@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    with without_audit():
        history = Played(tmp_path)
        history.run((0, 60), False, None)
        yield history


def test_a_reader_with_deltalake_and_duckdb_needs_nothing_else(played: Played) -> None:
    path, seen = played.house.path("tables/by_symbol"), []
    for step in (("late", 20), ("run", (0, 60), False, None), ("run", (60, 120), False, None)):
        played.play(step)
        departures = DeltaTable(path).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
        rows = "SELECT symbol, max(window_end), sum(n), count(*) FROM departures WHERE error IS NULL GROUP BY ALL"
        seen.append(sorted(duckdb.sql(rows).fetchall()))
    answers = read(played.house, "by_symbol").to_pylist()
    expected = {name: [row for row in answers if row["symbol"] == name] for name in "AB"}
    assert seen[-1] == [
        (name, max(row["window_end"] for row in rows), sum(row["n"] for row in rows), len(rows))
        for name, rows in expected.items()
    ]
    assert [sum(row[2] for row in snapshot) for snapshot in seen[:2]][0] < sum(row[2] for row in seen[1])


def test_a_table_says_what_it_is(played: Played) -> None:
    delta_table = table(played.house, "All")
    about, types = delta_table.metadata(), {field.name: str(field.type.type) for field in delta_table.schema().fields}
    assert about.name == "All" and about.partition_columns == ["day"]
    assert about.description.startswith("answers of the query all of ops:\nSELECT sum(price) AS money")
    assert types == {
        **dict.fromkeys(["window_start", "window_end", "instant"], "timestamp"),
        **{"money": "double", "revised": "long", "error": "string", "revision": "long", "day": "string"},
    }
    comments = {field.name: field.metadata["comment"] for field in delta_table.schema().fields}
    assert comments["money"] == "sum of price" and all(comments.values())
    assert about.configuration[own_table.FEED] == "false"
    assert table(played.house, "by_symbol").metadata().configuration[own_table.FEED] == "true"


def nullable(delta_table: DeltaTable) -> set[str]:
    return {field.name for field in delta_table.schema().fields if field.nullable}


def test_times_and_revision_of_a_new_table_are_not_null(played: Played) -> None:
    names = {field.name for field in table(played.house, "by_symbol").schema().fields}
    assert names - nullable(table(played.house, "by_symbol")) == {"window_start", "window_end", "revision"}
    assert table(played.house, "by_symbol").protocol().min_reader_version == 1
    played.play(("late", 20))
    played.run((0, 60), False, None)
    assert wrong(played.house) == [] and unfed(played.house, "by_symbol") == []
    with pytest.raises(DeltaError, match="failed validation"):
        rows = table(played.house, "by_symbol").to_pyarrow_table().slice(0, 1)
        empty = pa.nulls(1, rows["revision"].type)
        rows = rows.set_column(rows.column_names.index("revision"), "revision", empty)
        write_deltalake(table(played.house, "by_symbol"), rows, mode="append")


def test_a_table_of_before_goes_on_and_a_rebuild_constrains_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of Heddle before constraints had the same columns, all of them nullable."""
    with without_audit():
        played = Played(tmp_path)
        with monkeypatch.context() as former:
            former.setattr(table_rows, "NEVER_NULL", ())
            played.run((0, 60), False, None)
        before = table(played.house, "by_symbol")
        assert len(nullable(before)) == len(before.schema().fields)
        for step in (("late", 20), ("run", (0, 60), False, None), ("run", (60, 120), False, None), ("define", 1)):
            played.play(step)
        played.run((60, 120), True, None)
        assert tables.follow(played.house) == [] and wrong(played.house) == []
        assert unfed(played.house, "by_symbol") == []
        after = table(played.house, "by_symbol")
        assert len(nullable(after)) == len(after.schema().fields) and after.version() > before.version()
        house = ("--warehouse", str(played.house.root))
        assert "--rebuild All declares them NOT NULL" in heddle("tables", *house).out.replace("\n", " ")
        assert heddle("tables", *house, "--rebuild", "by_symbol").code == 0
        assert not {"window_start", "window_end", "revision"} & nullable(table(played.house, "by_symbol"))
        assert wrong(played.house) == []
        played.run((60, 120), True, None)
        assert tables.follow(played.house) == [] and wrong(played.house) == []


def test_what_is_asked_for_may_change(played: Played) -> None:
    """No feed any more, and other words: told in the table, and no row is written for that."""
    before = table(played.house, "by_symbol").to_pyarrow_table()
    played.world.plan(texts(0, "by_symbol"))
    assert tables.follow(played.house) == []
    delta_table = table(played.house, "by_symbol")
    assert delta_table.metadata().configuration[own_table.FEED] == "false" and delta_table.to_pyarrow_table() == before
    played.world.plan(texts(0, ""))
    played.run((0, 60), True, None)
    listings = {
        listing.table: listing for listing in table_upkeep.table_listings(played.house, tables.follow(played.house))
    }
    assert listings["by_symbol"].state == "not asked for" and listings["by_symbol"].query == "by_symbol"
    assert table(played.house, "by_symbol").version() == delta_table.version()


def test_a_table_changes_hands_when_somebody_says_so(played: Played) -> None:
    played.world.plan(texts(0, "").replace("-- name: without\n", "-- name: without\n-- table: by_symbol\n"))
    (problem,) = tables.follow(played.house)
    assert (problem.code, problem.query) == ("HDL-562", "without") and "is that of by_symbol" in problem.message
    listing = table_upkeep.rebuild(played.house, "by_symbol")
    assert (listing.query, listing.state, listing.rows) == ("without", "up to date", 2)
    assert tables.follow(played.house) == [] and wrong(played.house) == []


def test_what_is_no_table_of_a_query_is_left_alone(played: Played) -> None:
    house = played.house
    (house.root / "tables/notes").mkdir()
    write_deltalake(house.path("tables/foreign"), pa.table({"n": [1]}))
    played.world.plan(texts(0, "notes") + f"-- name: other\n-- table: foreign\n{BY_SYMBOL.format(OUTPUTS[0])}")
    diagnostics = tables.follow(house)
    assert sorted((diagnostic.code, diagnostic.query) for diagnostic in diagnostics) == [
        ("HDL-562", "by_symbol"),
        ("HDL-562", "other"),
    ]
    for name in ("notes", "foreign"):
        for change in (table_upkeep.rebuild, table_upkeep.drop):
            with pytest.raises(HeddleError, match="HDL-562"):
                change(house, name)
    maintain(house)
    assert DeltaTable(house.path("tables/foreign")).version() == 0
    with pytest.raises(HeddleError, match="HDL-564.*\n.*did you mean All"):
        table_upkeep.rebuild(house, "al")


@pytest.mark.parametrize(
    ("owner", "deed", "code"), [(pq, "write_table", "HDL-542"), (own_table, "unmatched_rows", "HDL-563")]
)
def test_a_table_that_cannot_be_written_takes_nothing_from_others(
    played: Played, monkeypatch: pytest.MonkeyPatch, owner: Any, deed: str, code: str
) -> None:
    original, pending = getattr(owner, deed), [True]

    def full(*arguments: Any, **options: Any) -> Any:
        # the tables come by their names: the first one is All
        if pending:
            pending.clear()
            raise OSError("No space left on device")
        return original(*arguments, **options)

    played.late(20)
    with monkeypatch.context() as patch:
        patch.setattr(owner, deed, full)
        record = played.world.run(current_version(played.house) or 0, 0, 120, "more")
    assert record.status == "published"
    assert [(diagnostic["code"], diagnostic["query"]) for diagnostic in record.diagnostics] == [(code, "all")]
    (logged,) = [row for row in played.world.log("published") if row["run_id"] == "more"]
    assert code in logged["record"]
    assert wrong(played.house) == ["tables/All: 2 rows, 5 answers"]
    # the next run of whatever makes up for it
    assert played.world.run(current_version(played.house) or 0, 0, 120, "again").status == "unchanged"
    assert wrong(played.house) == []


@pytest.mark.parametrize("meanwhile", ["follows", "publishes and follows", "drops the table"])
def test_somebody_else_follows_meanwhile(played: Played, monkeypatch: pytest.MonkeyPatch, meanwhile: str) -> None:
    """Between what one has read and what it writes: a table never goes back."""
    reads, pending = tables.published_rows, [meanwhile]

    def interrupted(*arguments: Any) -> Any:
        rows = reads(*arguments)
        while pending:
            what = pending.pop()
            if what == "drops the table":
                table_upkeep.drop(played.house, "by_symbol")
                continue
            if what == "publishes and follows":
                played.run((60, 120), False, None)
            assert tables.follow(played.house) == []
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(tables, "follow", lambda *arguments: [])
        played.late(20)
        played.run((0, 60), False, None)
    monkeypatch.setattr(tables, "published_rows", interrupted)
    diagnostics = tables.follow(played.house)
    assert [diagnostic.code for diagnostic in diagnostics] == ["HDL-510"] * (meanwhile == "drops the table")
    assert tables.follow(played.house) == [] and wrong(played.house) == [] and torn(played.house) == []


def test_columns_that_tables_have_themselves_are_renamed(tmp_path: Path) -> None:
    query = parse(
        "-- name: q\nSELECT day, count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY day",
        {"trades": Stream("trades", Source("csv", "x"), (("ts", TIMESTAMP), ("day", DATE)), "ts")},
    ).queries[0]
    names = table_rows.columns_of(query).names
    assert names == ["window_start", "window_end", "instant", "day_", "n", "error", "revision", "day"]


def test_a_folder_that_delta_cannot_write_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "a[1]").mkdir()
    with without_audit():
        played = Played(tmp_path / "a[1]")
        record = played.world.run(1, 0, 60, "first")
    assert record.status == "published" and {diagnostic["code"] for diagnostic in record.diagnostics} == {"HDL-546"}
    assert sorted(diagnostic["query"] for diagnostic in record.diagnostics) == ["all", "by_symbol", "none", "rows"]


INSTANTS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 2)), max_size=12)


@given(old=INSTANTS, new=INSTANTS, spans=st.lists(st.integers(-1, 3000), max_size=6, unique=True))
@example(old=[(999, 0)], new=[], spans=[998, 3000])
@settings(max_examples=examples(40), deadline=None)
def test_a_commit_replaces_what_differs_within_its_spans_alone(
    old: list[tuple[int, int]], new: list[tuple[int, int]], spans: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Instants of microseconds, of which Delta's log knows milliseconds."""
    house = Warehouse(Place.of(tmp_path_factory.mktemp("house")))
    cuts = sorted(spans)[: len(spans) // 2 * 2]
    pairs = list(zip(cuts[::2], cuts[1::2], strict=True))
    request = own_table.TableRequest("q", AnswerTable("t", True), "", "", False)
    schema = pa.schema([("instant", INSTANT), ("n", pa.int64()), ("day", pa.string())])

    def rows(answers: list[tuple[int, int]]) -> pa.Table:
        columns = [[at for at, _ in answers], [n for _, n in answers], ["1970-01-01"] * len(answers)]
        return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)

    with house.lease() as token:
        own_table.made(house, request, schema, token)
        current = house.table("tables/t")
        own_table.replace(house, request, current, rows(old), None, [("results", 1)], token)
        inside = [answer for answer in new if any(begin < answer[0] <= end for begin, end in pairs)]
        if pairs:
            own_table.replace(house, request, house.table("tables/t"), rows(inside), pairs, [("results", 2)], token)
    outside = [answer for answer in old if not any(begin < answer[0] <= end for begin, end in pairs)]
    expected = rows([*outside, *inside])
    assert counted(table(house, "t").to_pyarrow_table(), schema.names) == counted(expected, schema.names)
    assert unfed(house, "t") == []


# ------------------------------------------------------------------------------------------ the command line
def test_heddle_tables(played: Played) -> None:
    house = str(played.house.root)
    invocation = heddle("tables", "--warehouse", house, "--json")
    rows = {row["table"]: row for row in json.loads(invocation.out)["tables"]}
    assert invocation.code == 0 and {name: row["state"] for name, row in rows.items()} == dict.fromkeys(
        ["All", "by_symbol", "none", "rows"], "up to date"
    )
    assert rows["by_symbol"] == {
        **{
            "query": "by_symbol",
            "table": "by_symbol",
            "rows": 12,
            "state": "up to date",
            "problem": "",
            "not_null": True,
        },
        "newest": "2013-07-01T00:55:00Z",
    }
    played.world.plan(texts(3))
    played.world.run(current_version(played.house) or 0, 0, 60, "retyped", recompute=True)
    invocation = heddle("tables", "--warehouse", house)
    assert invocation.code == 1 and "HDL-561 [by_symbol]" in invocation.err and "blocked" in invocation.out
    assert heddle("tables", "--warehouse", house, "--rebuild", "by_symbol").code == 0
    assert wrong(played.house) == []
    invocation = heddle("tables", "--warehouse", house, "--drop", "by_symbol")
    assert invocation.code == 2 and "HDL-527" in invocation.err and (played.house.root / "tables/by_symbol").exists()
    invocation = heddle("tables", "--warehouse", house, "--drop", "by_symbol", "--yes")
    assert (
        invocation.code == 0 and "not made" in invocation.out and not (played.house.root / "tables/by_symbol").exists()
    )
    invocation = heddle("tables", "--warehouse", house, "--drop", "by_symbol", "--yes")
    assert invocation.code == 1 and "HDL-564 there is no table by_symbol" in invocation.err
    # whoever asks for it still has it made anew
    assert "up to date" in heddle("tables", "--warehouse", house).out and wrong(played.house) == []


@pytest.mark.parametrize("command", [("repair",), ("tick", "--at", "2013-07-01T00:30"), ("tables",)])
def test_commands_without_a_run_make_up_for_what_is_missing(played: Played, command: tuple[str, ...]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "follow", lambda *arguments: [])
        played.world.run(current_version(played.house) or 0, 60, 120, "more", live=True)
    assert wrong(played.house) != []
    assert heddle(*command, "--warehouse", str(played.house.root)).code == 0
    assert wrong(played.house) == []


def test_a_warehouse_without_tables_says_so(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    assert "no query asks for a table of its own" in heddle("tables", "--warehouse", str(house.root)).out
    assert tables.follow(house) == [] and not (house.root / "tables").exists()


def test_maintenance_keeps_tables_small(played: Played) -> None:
    for begin in range(60, 120, 20):
        played.run((begin, begin + 20), False, None)
    before = table(played.house, "by_symbol").to_pyarrow_table()
    files = len(table(played.house, "by_symbol").file_uris())
    maintain(played.house)
    assert len(table(played.house, "by_symbol").file_uris()) == 1
    # merging is no change, and the feed is kept for as long as files are
    assert unfed(played.house, "by_symbol") == []
    maintain(played.house, retention=0)
    delta_table, folder = table(played.house, "by_symbol"), played.house.root / "tables/by_symbol"
    assert len(delta_table.file_uris()) == 1 < files and len(list(folder.glob("day=*/*"))) == 1
    assert counted(delta_table.to_pyarrow_table(), before.schema.names) == counted(before, before.schema.names)
    played.run((0, 120), True, None)
    assert wrong(played.house) == []


# ---------------------------------------------------------------------------------------------- contract
def test_a_query_with_a_table_is_described_as_the_table_is(played: Played) -> None:
    data = accepted(contract(played.house))
    table = table_of(data, "by_symbol")
    fields = DeltaTable(played.house.path("tables/by_symbol")).schema().fields
    assert (table["physicalName"], table["physicalType"]) == ("tables/by_symbol", "table")
    described = [(each["name"], each["physicalType"], each["required"]) for each in table["properties"]]
    assert described == [(field.name, field.type.type, not field.nullable) for field in fields]
    assert table["properties"][-1]["name"] == "day" and table["properties"][-1]["partitioned"]
    assert table_of(data, "without")["physicalType"] == "view"


def test_the_command_writes_it(played: Played) -> None:
    house = ("--warehouse", str(played.house.root))
    accepted(heddle("contract", *house).out)
    path = str(played.house.root.parent / "c.yaml")
    assert heddle("contract", "by_symbol", *house, "--output", path).code == 0
    assert "HDL-507" in heddle("contract", "nope", *house).err
