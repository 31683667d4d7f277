"""What is registered after any sequence of commands and refreshes is what was asked for, and nothing leaves unasked.

Without a JVM: runs end where the plan is stored. Beside the warehouse a model holds what is registered by the rules of
the README, which share nothing with the code but the names.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import typer
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from typer.testing import CliRunner

from heddle.cli import changes as changes_module
from heddle.cli import options, run
from heddle.cli import plan as plan_module
from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import ACQ, LONG
from spark_jobs.pipeline.planning import publication, removal
from spark_jobs.pipeline.planning.changes import pause_or_resume, remove_queries
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.pipeline.planning.registration import misfit
from spark_jobs.store.storage import Place as Located
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.registry import events, registered
from spark_jobs.store.warehouse.schemas import MARKER, TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.optimizer.joined_orders import ORDERS
from tests.optimizer.joined_orders import query as joined_query
from tests.sizes import examples

MINUTE = 60_000_000
COLUMNS = {"ts": pa.timestamp("us", "UTC"), "symbol": pa.string(), "volume": pa.int64()}
NO_CONTEXT: Any = None
"""What a command was typed as: only an incomplete one looks at it."""

NAMES = ("a", "b", "c", "d", "e", "f")
FILES = ("one.sql", "two.sql", "three.sql")


@dataclass(frozen=True)
class Text:
    """A query as a file has it."""

    minutes: int = 30
    stream: str = "trades"
    owner: str = "anna"
    broken: bool = False
    table: str = ""
    asset: bool = False

    def written(self, name: str) -> str:
        column = "volum" if self.broken else "volume"
        table = f"-- table: {self.table}\n" * bool(self.table)
        return (
            f"-- name: {name}\n-- owner: {self.owner}\n{table}{'-- asset' * self.asset}\n"
            f"SELECT symbol, sum({column}) AS total FROM {self.stream}\n"
            f"WINDOW RANGE '{self.minutes} minutes' SLIDE '15 minutes' ON ts GROUP BY symbol;\n"
        )


QUOTES = {
    "fine": "{ts: timestamp, symbol: string, volume: long}",
    "more": "{ts: timestamp, symbol: string, price: double, volume: long}",
    "narrower": "{ts: timestamp, symbol: string}",
    "another type": "{ts: timestamp, symbol: string, volume: double}",
    "broken": "{ts: timestamp, symbol: strng, volume: long}",
    "undeclared": "",
}
"""How the second stream may be declared."""

QUOTED = st.sampled_from((*QUOTES, "fine", "broken", "broken"))
TEXTS = st.builds(
    Text,
    st.sampled_from((15, 30, 45)),
    st.sampled_from(("trades", "trades", "quotes")),
    st.sampled_from(("anna", "ben")),
    st.sampled_from((False,) * 7 + (True,)),
)


CHOSEN = st.lists(st.sampled_from(FILES), min_size=1, unique=True)
EDIT = st.tuples(st.just("edit"), st.sampled_from(FILES), st.sampled_from(NAMES), TEXTS | st.none())
MOVE = st.tuples(st.just("move"), st.sampled_from(NAMES), st.sampled_from(FILES), st.sampled_from(FILES))
EDITS = st.lists(
    st.one_of(
        *(EDIT, EDIT, EDIT),
        *(MOVE, MOVE),
        st.tuples(st.just("spoil"), st.sampled_from(FILES), st.booleans()),
        st.tuples(st.just("declare"), QUOTED),
        st.tuples(st.just("declare"), QUOTED),
    ),
    min_size=1,
    max_size=3,
)


@dataclass(frozen=True)
class Held:
    """A query as it is registered."""

    minutes: int
    stream: str
    owner: str
    file: str | None
    kind: str = "long"
    paused: bool = False

    @classmethod
    def of(cls, query: ACQ, file: str | None, paused: bool = False) -> Held:
        kind = query.outputs[0].argument_type
        return cls(query.window.range // MINUTE, query.stream, query.owner, file, str(kind), paused)


class Memory(Warehouse):
    """A warehouse of small tables that never reach a disk: registration reads and appends, and no more."""

    tables: ClassVar[dict[str, list[dict[str, Any]]]] = {}

    @contextmanager
    def lease(self) -> Iterator[int]:
        yield 0

    def version(self, table: str) -> int:
        return len(self.tables[table])

    def state(self, table: str) -> str:
        return str(self.version(table))

    def dataset(self, table: str, current: Any = None, where: Any = None) -> ds.Dataset:
        return ds.dataset(pa.Table.from_pylist(self.tables[table], TABLES[table][0]))

    def path(self, table: str) -> str:
        return str(Path(str(self.place)) / table)

    def files(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return []

    def latest_number(self, table: str, column: str) -> int | None:
        return max((row[column] for row in self.tables[table]), default=None)

    def newest_first(self, table: str, by: str, columns: Sequence[str], where: Any) -> Iterator[tuple[pa.Table, None]]:
        yield self.dataset(table).to_table(list(columns), filter=where), None

    def append(self, table: str, rows: Sequence[dict[str, Any]], *given: Any, **named: Any) -> None:
        self.tables[table] += rows

    @classmethod
    def open(cls, root: Any, create: bool = True) -> Memory:
        marker = Path(root) / MARKER
        if not marker.exists():
            if not create:
                raise HeddleError("HDL-502", "there is none")
            marker.parent.mkdir()
            marker.touch()
            cls.tables.update({name: [] for name in TABLES})
        return cls(Located.of(root))

    @classmethod
    def existing(cls, root: Any) -> Memory | None:
        return cls(Located.of(root)) if (Path(root) / MARKER).exists() else None


class Place:
    """A folder of workload files and streams, and a warehouse."""

    def __init__(self, place: Path) -> None:
        self.place, self.house = place, place / "house"
        for stream in ("trades", "quotes"):
            pq.write_table(pa.table({name: pa.array([], kind) for name, kind in COLUMNS.items()}), place / stream)
        self.declare("fine")

    def declare(self, quotes: str) -> None:
        text = "streams:\n"
        for stream, schema in (("trades", QUOTES["fine"]), ("quotes", QUOTES[quotes])):
            if schema:
                text += f"  {stream}:\n    source: {{format: parquet, path: {stream}}}\n    time: ts\n"
                text += f"    schema: {schema}\n"
        (self.place / "streams.yaml").write_text(text)

    def write(self, name: str, queries: Mapping[str, Text]) -> Path:
        path = self.place / name
        path.write_text("\n".join(text.written(name) for name, text in queries.items()))
        return path

    def run(self, *names: str, exactly: bool = False, yes: bool = False) -> int:
        """`heddle run` of some files; its exit code."""
        files = [self.place / name for name in names]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "publish_interval", lambda *arguments, **keywords: {"diagnostics": []})
            patch.setattr(changes_module, "is_at_terminal", lambda: False)
            try:
                run.run(
                    *(NO_CONTEXT, files, self.place / "streams.yaml", self.house, "2013-01-01", "2013-01-02"),
                    algorithm=options.Algorithm.weave_share,
                    exactly=exactly,
                    yes=yes,
                    as_json=True,
                )
            except typer.Exit as done:
                return done.exit_code
        raise AssertionError("a command ends with a code")

    def refresh(self, *names: str, **asked: Any) -> dict[str, Any]:
        files = [self.place / name for name in names]
        return refresh_plan(self.house, files, self.place / "streams.yaml", "weave-share", **asked).to_json()

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse.open(self.house, create=False)

    def registered(self) -> dict[str, Held]:
        if not (self.house / MARKER).exists():
            return {}
        return {
            name: Held.of(registration.query, registration.file, registration.paused)
            for name, registration in registered(events(self.warehouse)).items()
            if not registration.removed
        }

    def told(self, name: str) -> list[str]:
        return [event.event for event in events(self.warehouse) if event.query == name]


@contextmanager
def refused(*codes: str) -> Iterator[None]:
    with pytest.raises(HeddleError) as caught:
        yield
    assert caught.value.diagnostic.code in codes, caught.value


class Registration(RuleBasedStateMachine):
    """Files that are written, broken, moved and lost, and the commands that are given between."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(Warehouse, "open", Memory.open)
        self.patch.setattr(Warehouse, "existing", Memory.existing)
        self.at = Place(Path(self.folder.name))
        self.files: dict[str, dict[str, Text]] = {}
        self.spoilt: set[str] = set()
        self.quotes = "fine"
        self.held: dict[str, Held] = {}
        self.last: dict[str, str | None] = {}

    def teardown(self) -> None:
        self.patch.undo()
        self.folder.cleanup()

    # ------------------------------------------------------------------------------------------- files
    @initialize()
    def begin(self) -> None:
        for file, names in zip(FILES, ("abc", "de", "f"), strict=True):
            self.write(file, {name: Text(stream="quotes" if name in "ce" else "trades") for name in names})
        self.ran(FILES, False, False)

    def write(self, file: str, queries: dict[str, Text]) -> None:
        self.files[file] = queries
        self.spoilt.discard(file)
        self.at.write(file, queries)

    def edit(self, file: str, name: str, text: Text | None) -> None:
        """A query of a file is another, or new, or gone."""
        queries = {other: query_text for other, query_text in self.files.get(file, {}).items() if other != name}
        if text is not None or queries:
            self.write(file, {**queries, name: text} if text is not None else queries)

    def move(self, name: str, origin: str, to: str) -> None:
        if name in self.files.get(origin, {}):
            text = self.files[origin].pop(name)
            self.write(origin, self.files[origin])
            self.write(to, {**self.files.get(to, {}), name: text})

    def spoil(self, file: str, lost: bool) -> None:
        """The file is gone, or is no text any more."""
        if file in self.files and lost:
            del self.files[file]
            (self.at.place / file).unlink()
        elif file in self.files:
            self.spoilt.add(file)
            (self.at.place / file).write_bytes(b"\xff\xfe" + b"x" * 9)

    def declare(self, quotes: str) -> None:
        self.quotes = quotes
        self.at.declare(quotes)

    # ---------------------------------------------------------------------------------------- the model
    def usable(self, files: Sequence[str]) -> tuple[dict[str, Held], set[str]]:
        """The queries that some files register, and the names of those that they have wrong."""
        queries: dict[str, Held] = {}
        wrong = set()
        for file in files:
            for name, text in {} if file in self.spoilt else self.files[file].items():
                fits = text.stream == "trades" or self.quotes in ("fine", "more", "another type")
                if text.broken or not fits:
                    wrong.add(name)
                elif name not in queries:
                    kind = "double" if text.stream == "quotes" and self.quotes == "another type" else "long"
                    queries[name] = Held(text.minutes, text.stream, text.owner, str(self.at.place / file), kind)
        return queries, wrong - set(queries)

    def has_errors(self, files: Sequence[str]) -> bool:
        """Whether something is wrong with some files or their streams that is told, and changes no other query."""
        names = [name for file in files if file not in self.spoilt for name in self.files[file]]
        twice = len(set(names)) < len(names)
        return self.quotes == "broken" or bool(self.spoilt & set(files)) or twice or bool(self.usable(files)[1])

    def outcome(self, files: Sequence[str], exactly: bool) -> tuple[dict[str, Held] | None, set[str]]:
        """What some files make of what is registered (None: they are refused), and what they remove."""
        usable, wrong = self.usable(files)
        missing = set(self.held) - set(usable)
        kept_names = missing
        if exactly and not self.spoilt & set(files):
            lost = {name for name in missing if self.held[name].stream == "quotes" and self.quotes == "broken"}
            kept_names = missing & wrong | lost
        after = {name: query for name, query in self.held.items() if name in kept_names}
        # a stream may have more columns, but not have lost one, or have one of another type
        fitting = {"fine": "long", "more": "long", "another type": "double", "narrower": "none"}.get(self.quotes)
        if fitting and any(query.stream == "quotes" and query.kind != fitting for query in after.values()):
            return None, set()
        for name, query in usable.items():
            after[name] = replace(query, paused=name in self.held and self.held[name].paused)
        if not usable or all(query.paused for query in after.values()):
            return None, set()
        return after, missing - kept_names

    def becomes(self, after: Mapping[str, Held]) -> None:
        self.held = dict(after)
        self.last |= {name: query.file for name, query in after.items()}

    # -------------------------------------------------------------------------------------- the commands
    def edited(self, edits: Sequence[tuple[Any, ...]]) -> None:
        for what, *arguments in edits:
            getattr(self, what)(*arguments)

    @rule(edits=EDITS, files=CHOSEN)
    def run(self, edits: Any, files: Sequence[str]) -> None:
        self.edited(edits)
        self.ran([name for name in files if name in self.files], False, False)

    @rule(edits=EDITS, files=CHOSEN, yes=st.booleans())
    def run_exactly(self, edits: Any, files: Sequence[str], yes: bool) -> None:
        self.edited(edits)
        self.ran([name for name in files if name in self.files], True, yes)

    def ran(self, files: Sequence[str], exactly: bool, yes: bool) -> None:
        if not files:
            return
        after, removed = self.outcome(files, exactly)
        code = self.at.run(*files, exactly=exactly, yes=yes)
        if after is None:
            assert code == 1
        elif removed and not yes:
            assert code == 2
        else:
            assert code == (1 if self.has_errors(files) else 0)
            self.becomes(after)

    @rule(edits=EDITS, dry=st.sampled_from((False, False, True)), allow=st.booleans())
    def refresh(self, edits: Any, dry: bool, allow: bool) -> None:
        self.edited(edits)
        files = sorted(self.files)
        after, removed = self.outcome(files, True)
        if after is None:
            with refused("HDL-113", "HDL-528"):
                self.at.refresh(*files, dry_run=dry, allow_removals=allow)
            return
        remaining_files = {query.file for query in after.values()} | {
            self.held[name].file for name in self.held.keys() - removed
        }
        emptied_files = {self.held[name].file for name in removed} - remaining_files - {None}
        many = bool(emptied_files) or (len(removed) >= 3 and len(removed) > len(self.held) / 10)
        if many and not allow and not dry:
            with refused("HDL-526"):
                self.at.refresh(*files)
            return
        report = self.at.refresh(*files, dry_run=dry, allow_removals=allow)
        assert ("HDL-526" in {diagnostic["code"] for diagnostic in report["diagnostics"]}) == (many and not allow)
        assert {line for line in report["diff"] if line.startswith("- query")} == {
            f"- query {name}" for name in removed
        }
        if not dry:
            self.becomes(after)

    @rule(
        what=st.sampled_from(("pause", "pause", "resume", "remove")),
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True),
    )
    def change(self, what: str, names: list[str]) -> None:
        running = {name for name, query in self.held.items() if not query.paused}

        def act() -> None:
            if what == "remove":
                remove_queries(self.at.warehouse, names)
            else:
                pause_or_resume(self.at.warehouse, "paused" if what == "pause" else "resumed", names)

        if not set(names) <= set(self.held):
            with refused("HDL-521"):
                act()
        elif what != "resume" and running <= set(names):
            with refused("HDL-523"):
                act()
        else:
            try:
                act()
            except HeddleError as error:
                # of a stream that it did not have, or was another, when it was paused
                assert error.diagnostic.code in ("HDL-524", "HDL-528") and what == "resume"
                return
            for name in names:
                if what == "remove":
                    del self.held[name]
                else:
                    self.held[name] = replace(self.held[name], paused=what == "pause")

    @rule(back=st.integers(1, 4), yes=st.booleans())
    def rollback(self, back: int, yes: bool) -> None:
        version = max(1, (current_version(self.at.warehouse) or 1) - back)
        paused = {name: query for name, query in self.held.items() if query.paused}
        target = {
            query.name: Held.of(query, self.last[query.name])
            for query in load_plan(self.at.warehouse, version).workload.queries
            if query.name not in paused
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(changes_module, "is_at_terminal", lambda: False)
            try:
                plan_module.rollback(version, self.at.house, yes=yes, as_json=True)
                code = 0
            except typer.Exit as done:
                code = done.exit_code
        removed_names = set(self.held) - set(target) - set(paused)
        assert code == (1 if not target else 2 if removed_names and not yes else 0)
        if code == 0:
            self.becomes(target | paused)

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        assert self.at.registered() == self.held
        if self.held:
            plan = load_plan(self.at.warehouse, current_version(self.at.warehouse) or 0)
            planned = {query.name: (query.window.range // MINUTE, query.stream) for query in plan.workload.queries}
            assert planned == {
                name: (query.minutes, query.stream) for name, query in self.held.items() if not query.paused
            }


def test_what_is_registered_is_what_was_asked_for() -> None:
    run_state_machine_as_test(
        Registration,
        settings=settings(
            max_examples=examples(8),
            stateful_step_count=16,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


# ----------------------------------------------------------------------------------------- the command line
SIX = {name: Text() for name in NAMES}


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Six queries of one file are registered."""
    monkeypatch.setattr(run, "publish_interval", lambda *arguments, **keywords: {"diagnostics": []})
    place = Place(tmp_path)
    place.write("one.sql", SIX)
    place.write("two.sql", {"g": Text(60)})
    place.run("one.sql")
    return place


def heddle(at: Place, command: str, *given: str, answer: str = "") -> tuple[int, str, str]:
    """A command on the warehouse; of files of its folder, if it runs or plans them."""
    files = [str(at.place / name) if name.endswith(".sql") else name for name in given]
    more = ["--streams", str(at.place / "streams.yaml")] if command in ("run", "plan") and files else []
    more += ["--from", "2013-01-01", "--to", "2013-01-02", "--json"] if command == "run" else []
    done = CliRunner().invoke(app, [command, *files, *more, "--warehouse", str(at.house)], input=answer)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def stored(at: Place) -> tuple[int, ...]:
    return tuple(at.warehouse.version(name) for name in ("workload_queries", "sharing_plans", "results"))


def changes(told: str) -> list[str]:
    return [line for line in told.splitlines() if line[1:8] == " query "]


def test_a_file_adds_and_replaces_by_name(at: Place) -> None:
    """What a new user does second: one more query."""
    _, out, err = heddle(at, "run", "two.sql")
    assert changes(err) == ["+ query g"] and set(at.registered()) == {*NAMES, "g"}
    assert json.loads(out)["changes"][0] == "+ query g"
    at.write("two.sql", {"g": Text(45, owner="ben"), "a": Text(owner="ben")})
    _, _, err = heddle(at, "run", "two.sql")
    assert sorted(changes(err)) == ["~ query a (owner, file)", "~ query g (window, owner)"]
    assert at.registered()["a"].file == str(at.place / "two.sql")
    _, _, err = heddle(at, "run", "two.sql")
    assert changes(err) == [] and at.told("a") == ["registered", "replaced"]


def test_a_query_that_becomes_an_asset_is_replaced_and_the_plan_stays(at: Place) -> None:
    """Nothing that is answered changes: the registry says which queries are assets."""
    at.write("two.sql", {"g": Text()})
    heddle(at, "run", "two.sql")
    version = current_version(at.warehouse)
    for number, is_asset in enumerate((True, False, True), 1):
        at.write("two.sql", {"g": Text(asset=is_asset)})
        _, _, err = heddle(at, "run", "two.sql")
        assert changes(err) == ["~ query g (asset)"] and current_version(at.warehouse) == version
        registration = registered(events(at.warehouse))["g"]
        assert registration.last.asset is is_asset is registration.query.asset
        assert at.told("g") == ["registered"] + ["replaced"] * number
        _, _, err = heddle(at, "run", "two.sql")
        assert changes(err) == [] and at.told("g")[-1] == "replaced"
    _, out, _ = heddle(at, "queries", "--json")
    assert [query["query"] for query in json.loads(out)["queries"] if query.get("asset")] == ["g"]


def test_a_query_that_is_wrong_stays_as_it_is_registered(at: Place) -> None:
    at.write("one.sql", SIX | {"a": Text(45, broken=True), "b": Text(45)})
    code, _, err = heddle(at, "run", "one.sql", "--exactly")
    assert code == 1 and changes(err)[0] == "~ query b (window)" and "  query a stays as it is registered" in err
    assert at.registered()["a"].minutes == 30 and at.registered()["b"].minutes == 45


def test_many_new_queries_are_counted_and_all_that_go_are_named(at: Place) -> None:
    at.write("two.sql", {f"new{number}": Text() for number in range(40)})
    _, _, err = heddle(at, "run", "two.sql", "--exactly", "--yes")
    assert changes(err)[:6] == [f"- query {name}" for name in NAMES] and "+ 20 more queries" in err


def test_exactly_wants_a_yes(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored(at)
    code, out, err = heddle(at, "run", "two.sql", "--exactly")
    assert code == 2 and "HDL-525 6 registered queries would be removed: a, b, c" in err and "--yes" in err
    assert stored(at) == before and out == ""
    monkeypatch.setattr(changes_module, "is_at_terminal", lambda: True)
    code, _, err = heddle(at, "run", "two.sql", "--exactly", answer="n\n")
    assert code == 1 and changes(err) == [f"- query {name}" for name in NAMES] and "nothing was changed" in err
    assert stored(at) == before
    _, out, _ = heddle(at, "run", "two.sql", "--exactly", answer="y\n")
    # the runner repeats the answer
    assert set(at.registered()) == {"g"} and json.loads(out[out.index("{") :])["changes"][0] == "- query a"
    # nothing to remove: no question
    at.write("two.sql", {"g": Text(45)})
    assert "?" not in heddle(at, "run", "two.sql", "--exactly")[2] and at.registered()["g"].minutes == 45


def test_yes_is_an_answer_everywhere(at: Place) -> None:
    heddle(at, "run", "two.sql", "--exactly", "--yes")
    assert set(at.registered()) == {"g"} and at.told("a") == ["registered", "removed"]


def test_a_plan_shows_what_a_run_would_change_and_stores_nothing(at: Place) -> None:
    before = stored(at)
    _, out, err = heddle(at, "plan", "two.sql", "--json")
    assert changes(err) == ["+ query g"] and json.loads(out)["changes"][0] == "+ query g"
    assert sum(len(tree["queries"]) for tree in json.loads(out)["trees"]) == 7
    _, out, err = heddle(at, "plan", "two.sql", "--exactly")
    assert changes(err) == [*(f"- query {name}" for name in NAMES), "+ query g"]
    assert stored(at) == before
    done = CliRunner().invoke(app, ["plan", str(at.place / "two.sql"), "--exactly"])
    assert done.exit_code == 2


def test_a_rollback_asks_before_it_removes(at: Place) -> None:
    heddle(at, "run", "two.sql")
    before = stored(at)
    code, _, err = heddle(at, "rollback", "1")
    assert code == 2 and "HDL-525 1 registered query would be removed: g" in err and stored(at) == before
    code, out, _ = heddle(at, "rollback", "1", "--dry-run", "--json")
    assert code == 0 and json.loads(out)["changes"] == ["- query g"] and stored(at) == before
    code, _, err = heddle(at, "rollback", "1", "--yes")
    assert code == 0 and changes(err) == ["- query g"] and set(at.registered()) == set(NAMES)
    code, _, err = heddle(at, "rollback", "2")
    assert code == 0 and changes(err) == ["+ query g"] and "g" in at.registered()


def test_a_run_that_stores_nothing_leaves_no_warehouse(at: Place) -> None:
    at.write("one.sql", {"a": Text(broken=True)})
    shutil.rmtree(at.house)
    assert heddle(at, "run", "one.sql")[0] == 1 and not at.house.exists()


def test_what_came_meanwhile_stays(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs at once, the second one within the first: registers, redefines, removes, pauses."""
    at.write("three.sql", {"h": Text(), "a": Text(45)})

    def meanwhile() -> None:
        at.run("three.sql")
        remove_queries(at.warehouse, ["b"])
        pause_or_resume(at.warehouse, "paused", ["c"])

    overtaken_by(meanwhile, monkeypatch)
    heddle(at, "run", "two.sql")
    registered_queries = at.registered()
    assert (
        set(registered_queries) == {"a", "c", "d", "e", "f", "g", "h"}
        and registered_queries["a"].minutes == 45
        and registered_queries["c"].paused
    )
    assert at.told("b") == ["registered", "removed"] and at.told("a") == ["registered", "replaced"]
    # who said that two.sql is all is asked about what came meanwhile as well
    at.write("three.sql", {"i": Text()})
    remove_queries(at.warehouse, ["c"])
    overtaken_by(lambda: at.run("three.sql"), monkeypatch)
    removals: list[list[str]] = []
    monkeypatch.setattr(changes_module, "confirm_removal", lambda removed, yes: removals.append(list(removed)))
    heddle(at, "run", "two.sql", "--exactly")
    assert [names for names in removals if names] == [["a", "d", "e", "f", "h"], ["i"]] and set(at.registered()) == {
        "g"
    }


def overtaken_by(meanwhile: Callable[[], Any], patch: pytest.MonkeyPatch) -> None:
    """Something else happens, once, between the next plan and its publication."""
    original, pending = publication.publish_plan, [meanwhile]

    def publish(*arguments: Any, **keywords: Any) -> Any:
        patch.setattr(publication, "publish_plan", original)
        if pending:
            pending.pop()()
        return original(*arguments, **keywords)

    patch.setattr(publication, "publish_plan", publish)


# ------------------------------------------------------------------------------------------------ remove
def test_removing_keeps_answers_and_other_trees(at: Place) -> None:
    code, out, _ = heddle(at, "remove", "b", "--dry-run")
    assert code == 0 and changes(out) == ["- query b"] and "would be removed: b" in out and "b" in at.registered()
    code, out, _ = heddle(at, "remove", "b", "c", "--reason", "unused")
    assert code == 0 and changes(out) == ["- query b", "- query c"] and "plan version 2 (new): removed: b, c" in out
    assert set(at.registered()) == {"a", "d", "e", "f"} and events(at.warehouse)[-1].reason == "unused"
    code, _, err = heddle(at, "remove", "aa")
    assert code == 1 and "HDL-521" in err and "did you mean a?" in err
    assert heddle(at, "remove", "b")[0] == 1
    heddle(at, "pause", "a", "d")
    code, out, _ = heddle(at, "remove", "a", "--json")
    assert code == 0 and json.loads(out)["queries"] == ["a"] and not json.loads(out)["changed"]
    code, _, err = heddle(at, "remove", "e", "f")
    assert code == 1 and "HDL-523" in err and set(at.registered()) == {"d", "e", "f"}


@dataclass(frozen=True)
class Deleted:
    query: str
    answers: int
    first: int | None
    last: int | None


def test_answers_go_when_somebody_agrees(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"a": 7, "b": 0, "z": 3}

    def delete_answers(house: Warehouse, names: Sequence[str], dry_run: bool) -> list[Deleted]:
        deleted = [Deleted(name, answers.get(name, 0), 0, 60 * MINUTE) for name in names]
        answers.update({} if dry_run else dict.fromkeys(names, 0))
        return deleted

    monkeypatch.setattr(removal, "delete_answers", delete_answers)
    before = stored(at)
    code, out, err = heddle(at, "remove", "a", "b", "--with-answers")
    assert code == 2 and "HDL-527" in err and "7" in out and "1970-01-01T01:00:00Z" in out
    code, out, _ = heddle(at, "remove", "a", "--with-answers", "--dry-run", "--json")
    report = json.loads(out)
    assert code == 0 and report["dry_run"] and report["queries"] == ["a"]
    assert report["answers"] == [
        {"query": "a", "answers": 7, "first": "1970-01-01T00:00:00Z", "last": "1970-01-01T01:00:00Z"}
    ]
    monkeypatch.setattr(changes_module, "is_at_terminal", lambda: True)
    code, _, err = heddle(at, "remove", "a", "--with-answers", answer="n\n")
    assert code == 1 and "nothing was changed" in err and stored(at) == before and answers["a"] == 7
    code, out, _ = heddle(at, "remove", "a", "b", "--with-answers", answer="y\n")
    assert code == 0 and answers["a"] == 0 and not {"a", "b"} & set(at.registered())
    assert "a: 7 published answers deleted" in out
    # removed before, with answers and without
    answers["b"] = 5
    code, out, _ = heddle(at, "remove", "b", "z", "--with-answers", "--yes", "--json")
    assert code == 0 and answers == {"a": 0, "b": 0, "z": 0} and not json.loads(out)["dry_run"]
    code, _, err = heddle(at, "remove", "b", "--with-answers", "--yes")
    assert code == 1 and "HDL-521" in err


# ------------------------------------------------------------------------------------- files and the guard
def test_a_query_may_move_to_another_file(at: Place) -> None:
    at.write("one.sql", {name: SIX[name] for name in "bcdef"})
    at.write("two.sql", {"a": Text()})
    pause_or_resume(at.warehouse, "paused", ["a"])
    report = at.refresh("one.sql", "two.sql")
    assert report["diff"][0] == "~ query a (file)" and at.told("a") == ["registered", "paused", "moved"]
    assert at.registered()["a"] == Held(30, "trades", "anna", str(at.place / "two.sql"), paused=True)
    pause_or_resume(at.warehouse, "resumed", ["a"])
    assert at.registered()["a"].file == str(at.place / "two.sql")
    assert at.refresh("one.sql", "two.sql")["diff"][0].startswith("same queries")
    # all of its file
    with refused("HDL-526"):
        at.refresh("one.sql")


def test_a_folder_that_is_not_there_unregisters_nobody(at: Place) -> None:
    at.write("two.sql", {f"q{number}": Text() for number in range(30)})
    at.run("two.sql")
    before = stored(at)
    for files in (("one.sql",), ("two.sql",)):
        with refused("HDL-526"):
            at.refresh(*files)
        report = at.refresh(*files, dry_run=True)
        assert [diagnostic["code"] for diagnostic in report["diagnostics"]][-1] == "HDL-526" and report["changed"]
        assert sum(line.startswith("- query") for line in report["diff"]) == (30 if files == ("one.sql",) else 6)
    with refused("HDL-113"):
        at.refresh()
    assert stored(at) == before
    # a tenth at most, or less than three
    at.write("two.sql", {f"q{number}": Text() for number in range(27)})
    at.refresh("one.sql", "two.sql")
    at.write("two.sql", {f"q{number}": Text() for number in range(23)})
    with refused("HDL-526"):
        at.refresh("one.sql", "two.sql")
    at.refresh("one.sql", "two.sql", allow_removals=True)
    assert len(at.registered()) == 29
    at.refresh("one.sql", allow_removals=True)
    assert set(at.registered()) == set(NAMES)


def test_renaming_the_only_query_of_a_file_is_no_loss_of_the_file(at: Place) -> None:
    heddle(at, "run", "two.sql")
    at.write("two.sql", {"gg": Text(60)})
    assert at.refresh("one.sql", "two.sql")["changed"] and "g" not in at.registered()


@pytest.mark.parametrize("mistake", ["quote", "comment", "name", "unnamed", "bytes"])
def test_a_mistake_that_hides_queries_removes_none(at: Place, mistake: str) -> None:
    """Where it is not certain what a file has, nothing that came from it goes."""
    texts = {name: text.written(name) for name, text in SIX.items()}
    if mistake == "quote":
        texts["a"] = texts["a"].replace("'15 minutes'", "'15 minutes").replace("-- name: b\n", "")
        texts["b"] = texts["b"].replace("-- name: b\n", "")
    elif mistake == "comment":
        texts["a"], texts["b"] = "/* " + texts["a"], "x"
    elif mistake == "name":
        texts["b"] = texts["b"].replace("-- name: b", "-- name: b b")
    elif mistake == "unnamed":
        path = at.write("two.sql", {})
        bare = Text().written("").partition("anna\n")[2]
        path.write_text(bare * 3)
        at.run("two.sql")
        assert "two_3" in at.registered()
        # the semicolon between the first two is missing: the third is the second now
        path.write_text(bare.replace(";", "") + bare * 2)
    path = at.place / "one.sql"
    path.write_bytes(b"\xff" if mistake == "bytes" else "\n".join(texts.values()).encode())
    before = set(at.registered())
    at.write("three.sql", {"h": Text()})
    files = ("one.sql", "two.sql", "three.sql") if mistake == "unnamed" else ("one.sql", "three.sql")
    at.refresh(*files, allow_removals=True)
    assert set(at.registered()) >= before | {"h"}


def test_a_stream_that_cannot_be_read_keeps_its_queries(at: Place) -> None:
    at.write("two.sql", {"g": Text(stream="quotes")})
    at.run("two.sql")
    at.declare("broken")
    report = at.refresh("one.sql", allow_removals=True)
    assert "  query g stays as it is registered: its stream cannot be read" in report["diff"]
    at.declare("undeclared")
    assert at.run("one.sql") < 2 and "g" in at.registered()
    at.refresh("one.sql", allow_removals=True)
    assert "g" not in at.registered()


def test_a_stream_that_no_longer_fits_is_refused(at: Place) -> None:
    at.write("two.sql", {"g": Text(stream="quotes")})
    at.run("two.sql")
    before = stored(at)
    for quotes, message in (("narrower", "g: quotes has no column volume now"), ("another type", "is a double now")):
        at.declare(quotes)
        code, _, err = heddle(at, "run", "one.sql")
        assert code == 1 and "HDL-528" in err and message in err and "heddle remove" in err and stored(at) == before
    assert at.run("two.sql") < 2 and at.registered()["g"].kind == "double"
    at.declare("narrower")
    remove_queries(at.warehouse, ["g"])
    assert at.run("one.sql") < 2


def test_an_owner_has_so_many_queries_however_they_came(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_OWNER_QUOTA", "6")
    at.write("two.sql", {"g": Text(), "h": Text(owner="ben"), "a": Text(45)})
    code, _, err = heddle(at, "run", "two.sql")
    assert code == 1 and "HDL-311 [g] there are 6 queries of anna already" in err
    assert set(at.registered()) == {*NAMES, "h"} and at.registered()["a"].minutes == 45


def tables(at: Place) -> dict[str, str]:
    registrations = registered(events(at.warehouse))
    return {
        name: registration.table.name for name, registration in registrations.items() if registration.table is not None
    }


def test_a_table_belongs_to_one_registered_query(at: Place) -> None:
    """It changes hands when its query gives it away, not when another asks for it."""
    at.write("one.sql", {"a": Text(table="x"), "b": Text(table="y")})
    assert at.run("one.sql") < 2
    at.write("two.sql", {"b": Text(table="X"), "d": Text(table="Y")})
    code, _, err = heddle(at, "run", "two.sql")
    # b may not have a's table, so it keeps its own, which d may not have
    assert code == 1 and [f"HDL-226 [{name}]" in err for name in "abd"] == [False, True, True]
    assert "query b stays as it is registered: another query has the table that it asks for" in err
    assert tables(at) == {"a": "x", "b": "y"}
    at.write("one.sql", {"a": Text(table="y"), "b": Text(table="x")})
    assert at.run("one.sql") < 2
    assert tables(at) == {"a": "y", "b": "x"} and at.told("a") == ["registered", "replaced", "replaced"]


def test_all_queries_of_an_owner_may_have_tables(at: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_TABLES_OF_OWNERS", "ben, anna")
    at.write("one.sql", {"a": Text(), "b": Text(table="y"), "g": Text(owner="cleo")})
    assert at.run("one.sql") < 2
    assert tables(at) == {"a": "a", "b": "y"}


def test_a_warehouse_that_knows_no_files_goes_on(at: Place) -> None:
    """Its table of queries has no such column; what is added has."""
    path = at.warehouse.path("workload_queries")
    old = [name for name in TABLES["workload_queries"][0].names if name != "file"]
    table = DeltaTable(path).to_pyarrow_table(columns=old)
    write_deltalake(path, table, mode="overwrite", schema_mode="overwrite")
    assert {query.file for query in at.registered().values()} == {None}
    pause_or_resume(at.warehouse, "paused", ["b"])
    report = at.refresh("one.sql")
    # it is no change to have come from a file
    assert not changes("\n".join(report["diff"])) and at.told("a") == ["registered", "moved"]
    assert {query.file for query in at.registered().values()} == {str(at.place / "one.sql")}


@pytest.mark.parametrize(
    "on", ["kind = p.region AND p.store = store", "upper(kind) = p.region AND abs(store) = p.store"]
)
def test_a_query_fits_no_stream_without_a_column_of_its_key(on: str) -> None:
    joined = joined_query(
        f"SELECT opened, count(*) AS n FROM orders LEFT JOIN stores AS p ON {on} {{w}} GROUP BY opened"
    )
    columns = dict(ORDERS.schema)
    assert misfit(joined, ORDERS, ORDERS) == ""
    without = replace(ORDERS, schema=tuple((name, type_) for name, type_ in columns.items() if name != "kind"))
    assert misfit(joined, ORDERS, without) == "orders has no column kind now"
    other = replace(ORDERS, schema=tuple((columns | {"kind": LONG}).items()))
    assert misfit(joined, ORDERS, other) == "column kind of orders is a long now, not a string"
