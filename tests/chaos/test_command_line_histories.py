"""Histories of commands: whatever is typed in whatever order, readers see what the oracle answers.

A state machine registers, replaces, removes, pauses and resumes queries, runs, ticks, repairs, backfills, rolls back
and maintains through the command line, while files come, come late, repeat themselves, change and go. Beside it stands
a model that knows nothing of the pipeline: of every query the answers that its runs owe to readers, each by the
definition that the query had then, from the DuckDB oracle over the events that were there. After every step the two are
the same, in ``heddle read`` and in the table that others read; so are the registered queries, and what the records say
of readers.

From the commands themselves the model takes facts alone: which interval a run was over, up to which watermark, at which
instants the schedule refreshes, and which spans of a file are refused. ``make chaos`` plays 300 histories. Tasks run in
the driver's process (:mod:`tests.chaos.orders`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typer import testing
from typer.main import get_command

from heddle.cli.app import app
from optimizer.aggregates.states import carrier_of
from optimizer.language.parser import parse
from optimizer.plan import instants_due
from optimizer.plan import schedules as schedules_module
from optimizer.synopses.synopsis import CARRIERS
from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.streams import load_streams
from optimizer.workload.values import ACQ
from spark_jobs.engine import session as session_module
from spark_jobs.pipeline.planning.live_runs import refreshed_at
from spark_jobs.pipeline.run import interval as interval_module
from spark_jobs.results.read import read
from spark_jobs.results.rows import group_values, typed
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant
from tests import oracle
from tests.chaos.conftest import Counted
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit

ROUNDS = int(os.environ.get("HEDDLE_CHAOS", "0"))
SEED = int(os.environ.get("HEDDLE_CHAOS_SEED", "0"))

PARTS = 10
"""`make chaos` plays them in so many parts."""

MINUTE = 60_000_000
START = 1_372_716_000_000_000
"""2013-07-01T22:00:00Z: all times of these tests are minutes after it, so that midnight lies among them."""

STREAMS = """
streams:
  trades:
    source: {format: parquet, path: trades}
    schema: {ts: timestamp, id: long, symbol: string, price: double, volume: long}
    time: ts
    step: 30 minutes
  orders:
    source: {format: parquet, path: orders}
    schema: {ts: timestamp, id: long, symbol: string, price: double, volume: long}
    time: ts
    lateness: 20 minutes
    step: 30 minutes
    allowed_lateness: 1 hour
    event_id: id
"""
ARROW = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("id", pa.int64()),
        ("symbol", pa.string()),
        ("price", pa.float64()),
        ("volume", pa.int64()),
    ]
)
STREAM_NAMES = ("trades", "orders")

QUERIES = {
    "counts": "SELECT symbol, count(*) AS n, sum(volume) AS total FROM trades "
    "WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts GROUP BY symbol",
    "other select list": "SELECT sum(volume) AS total, count(*) AS n, max(price) AS high FROM trades "
    "WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts",
    "other types": "SELECT symbol, avg(volume) AS n, max(symbol) AS total FROM trades "
    "WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts GROUP BY symbol",
    "other window": "SELECT symbol, count(*) AS n, sum(volume) AS total FROM trades "
    "WINDOW RANGE '2 hours' SLIDE '1 hour' ON ts GROUP BY symbol",
    "having": "SELECT symbol, count(*) AS n, min(price) AS low FROM trades "
    "WINDOW RANGE '90 minutes' SLIDE '30 minutes' ON ts WHERE volume > 0 GROUP BY symbol HAVING sum(volume) > 4",
    "rows": "SELECT count(*) AS n, sum(volume) AS total FROM trades WINDOW ROWS 3 SLIDE 2 ON ts",
    "bound": "SELECT symbol, sum(volume) AS total FROM trades "
    "WINDOW RANGE '1 hour' SLIDE AT MOST '30 minutes' ON ts GROUP BY symbol",
    "lifetime": "-- until: 2013-07-02T00:30:00\nSELECT symbol, count(*) AS n FROM trades "
    "WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts GROUP BY symbol",
    "orders": "SELECT symbol, count(*) AS n, sum(volume) AS total FROM orders "
    "WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts GROUP BY symbol",
    "bound orders": "SELECT count(*) AS n, max(price) AS high FROM orders "
    "WINDOW RANGE '90 minutes' SLIDE AT MOST '1 hour' ON ts",
    "historical": "SELECT count(*) AS n FROM orders WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING '30 minutes' AGO ON ts",
    "wrong": "SELECT sum(nothing) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts",
}
NAMES = ("alpha", "beta", "gamma")
INTERVALS = ((0, 120), (120, 240), (60, 180), (0, 240), (240, 360), (600, 660))
"""What runs are over, in minutes: beside one another, overlapping, within others, and one without any event."""

Event = tuple[int | None, int, str | None, float | None, int | None]
"""(minute, id, symbol, price, volume)"""

Key = tuple[Any, ...]
"""(fingerprint, instant, window, group values...) of an answer; the window is its start, or its number."""

Answers = dict[Key, tuple[ACQ, oracle.Row]]
"""What readers see of one query, each answer with the definition that it is of."""

EVENTS = st.lists(
    st.tuples(
        st.integers(-6, 40).map(lambda number: 10 * number) | st.none(),
        st.integers(1, 6),
        st.sampled_from(["A", "B", None]),
        st.sampled_from([1.0, 2.5, None]),
        st.sampled_from([0, 3, 7, None]),
    ),
    min_size=1,
    max_size=4,
)
FILES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(list(QUERIES)), min_size=1, max_size=2)
MANY = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(list(QUERIES)), min_size=2, max_size=3)
SOME = st.sets(st.sampled_from(NAMES), min_size=1, max_size=2)


def steady(first: int) -> list[Event]:
    """An event each twenty minutes, two symbols in turn."""
    return [(at, first + at, "AB"[at // 20 % 2], at % 7 / 2, at % 5) for at in range(0, 360, 20)]


def table_of(events: Iterable[Event]) -> pa.Table:
    rows = [
        dict(zip(ARROW.names, (None if at is None else START + at * MINUTE, *values), strict=True))
        for at, *values in events
    ]
    return pa.Table.from_pylist(rows, ARROW)


@dataclass
class Said:
    """What a command said: exit code, its JSON object, the codes of its errors and warnings, and all of its text."""

    code: int
    data: dict[str, Any]
    codes: set[str]
    text: str


@dataclass
class Registered:
    query: ACQ
    paused: bool = False
    removed: bool = False

    @property
    def runs(self) -> bool:
        return not self.paused and not self.removed


@dataclass
class Publication:
    """A run that published (begin, end]: its queries, with the instants at which they were asked (None: all)."""

    begin: int
    end: int
    asked: dict[str, tuple[ACQ, Sequence[int] | None]]

    def holds(self, instant: int) -> bool:
        return self.begin < instant <= self.end


COMMAND = get_command(app)
"""Made once: that takes longer than most commands."""

played: Counter[str] = Counter()
"""Commands and what came of them, over all histories."""


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.context = ExitStack()
        self.folder = Path(tempfile.mkdtemp())
        self.context.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.context.enter_context(without_audit())
        patch = self.context.enter_context(pytest.MonkeyPatch.context())
        self.now = START
        patch.setattr(time, "time_ns", self.clock)
        patch.setattr(testing, "_get_command", lambda app: COMMAND)
        patch.setattr(session_module, "start_session", lambda *args, **kwargs: in_process())
        self.run, self.instants = interval_module.run, list[dict[str, list[int]]]()
        patch.setattr(interval_module, "run", self.noticed)
        self.house = self.folder / "warehouse"
        (self.folder / "streams.yaml").write_text(STREAMS)
        self.streams, _ = load_streams(self.folder / "streams.yaml")
        self.files: dict[str, dict[str, list[Event]]] = {name: {} for name in self.streams}
        self.refused: dict[str, list[list[int]]] = {}
        self.registered: dict[str, Registered] = {}
        self.plans: dict[int, dict[str, ACQ]] = {}
        self.answers: dict[str, Answers] = {}
        self.publications: list[Publication] = []
        self.typed: list[tuple[dict[str, str], tuple[int, int]]] = []
        self.steps, self.looked_at, self.maintained = 0, -1, 0

    def teardown(self) -> None:
        self.context.close()

    # ------------------------------------------------------------------------------------- the world
    def clock(self) -> int:
        """The time of day of this world, in nanoseconds: no two looks at it are the same."""
        self.now += 1
        return self.now * 1000

    def noticed(
        self, spark: Any, house: Warehouse, version: int, begin: int, end: int, *given: Any, **named: Any
    ) -> Any:
        """A run, and at which instants its schedule refreshes which queries."""
        schedules, before = load_plan(house, version).schedules, refreshed_at(house, begin)
        refreshes = (instants_due.late if named.get("late") else instants_due.ticks)(schedules, begin, end, before)
        instants_by_query: dict[str, list[int]] = {}
        for instant, names in refreshes:
            for name in names:
                instants_by_query.setdefault(name, []).append(instant)
        record = self.run(spark, house, version, begin, end, *given, **named)
        self.instants.append(instants_by_query)
        return record

    def heddle(self, command: str, *given: str) -> Said:
        self.steps += 1
        self.instants.clear()
        result = testing.CliRunner().invoke(app, [command, *given])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        text = result.stdout + result.stderr
        assert "HDL-9" not in text, text
        data = json.loads(result.stdout) if result.stdout.startswith("{") else {}
        played[command] += 1
        return Said(result.exit_code, data, set(re.findall(r"HDL-\d+", result.stderr)), text)

    def about(self, command: str, *given: str) -> Said:
        """A command on the warehouse."""
        return self.heddle(command, *given, "--warehouse", str(self.house), "--json")

    def stored(self) -> dict[str, int]:
        house = Warehouse.open(self.house, create=False)
        return {name: house.version(name) for name in ("results", "sharing_plans", "workload_queries", "publish_log")}

    def refused_by(self, said: Said, code: str, before: Mapping[str, int], exits: int = 1) -> None:
        """A command that could not be done changed nothing."""
        played[f"refused by {code}"] += 1
        assert said.code == exits and code in said.codes, said.text
        assert self.stored() == before

    def definition(self, name: str, which: str) -> ACQ:
        if (name, which) not in _definitions:
            parsed = parse(f"-- name: {name}\n{QUERIES[which]};", self.streams)
            assert not parsed.diagnostics
            _definitions[name, which] = parsed.queries[0]
        return _definitions[name, which]

    # ------------------------------------------------------------------------------------- the model
    def events(self, stream: str) -> pa.Table:
        """What a run takes in now: of all files, less what is refused, the first of each id of a day."""
        admitted, seen = [], set()
        for file, events in sorted(self.files[stream].items()):
            spans = self.refused.get(f"{stream}/{file}", [])
            for event in events:
                if event[0] is None:
                    continue
                at = START + event[0] * MINUTE
                if any(first <= at < last for first, last in spans):
                    continue
                again = event[1], at // DAY
                if self.streams[stream].event_id is not None and again in seen:
                    continue
                seen.add(again)
                admitted.append(event)
        return table_of(admitted)

    def owed(self, query: ACQ, begin: int, end: int, at: Sequence[int] | None) -> Answers:
        """The oracle's answers of a query for the instants in (begin, end]; of ``at`` alone, unless None."""
        events = self.events(query.stream)
        key = query.fingerprint, begin, end, None if at is None else tuple(at), str(events.to_pydict())
        if key not in _owed:
            restricted_query = query if at is None else oracle.asked_at(query, at)
            answers: Answers = {}
            for window, row in oracle.answers(restricted_query, events, "ts", begin, end).items():
                assert row.certain and not row.failure
                instant = row.span[1] if row.span else window[0] + query.window.range + query.window.ago
                answers[query.fingerprint, instant, *window] = query, row
            _owed[key] = answers
        return _owed[key]

    def until(self, query: ACQ, end: int, watermark: int) -> int:
        return min([end, watermark, *([query.until] if query.until is not None else [])])

    def published(self, record: Mapping[str, Any], instants: Mapping[str, Sequence[int]]) -> None:
        """What a run owes to readers from now on, and whether it says so. Only the answers of its own queries change,
        up to the watermarks of their streams."""
        begin, end = parse_instant(record["begin"]), parse_instant(record["end"])
        publication = Publication(begin, end, {})
        before = self.within(publication)
        due = set()
        for name, query in self.plans[record["plan_version"]].items():
            at = instants.get(name, ()) if schedules_module.is_bound(query) else None
            publication.asked[name] = query, at
            if query.stream in record["failed"]:
                continue
            until = self.until(query, end, parse_instant(record["withheld"].get(query.stream, record["end"])))
            outside = {key: answer for key, answer in self.answers.get(name, {}).items() if not begin < key[1] <= until}
            self.answers[name] = outside | self.owed(query, begin, until, at)
            due |= {name} if is_due(query, begin, until, at) else set()
        self.publications.append(publication)
        after = self.within(publication)
        if record["status"] == "unchanged":
            assert contents(before) == contents(after), "the run said that nothing had changed"
            return
        assert record["status"] == "published"
        assert record["readers"] == change_of(before, after)
        assert record["empty"] == sorted(name for name in due if not after[name])
        self.silence_is_told(record, begin, end)

    def within(self, made: Publication) -> dict[str, Answers]:
        return {
            name: {key: answer for key, answer in answers.items() if made.holds(key[1])}
            for name, answers in self.answers.items()
        }

    def silence_is_told(self, record: Mapping[str, Any], begin: int, end: int) -> None:
        """A stream without events is told, and no other; if no file spans the interval, certainly."""
        reported_streams = [
            diagnostic["message"].split()[1] for diagnostic in record["diagnostics"] if diagnostic["code"] == "HDL-413"
        ]
        for stream in {query.stream for query in self.plans[record["plan_version"]].values()} - set(record["failed"]):
            until = min(end, parse_instant(record["withheld"].get(stream, record["end"])))
            # an interval that is all to come is looked at as a whole
            until = until if until > begin else end
            times = oracle._values(self.events(stream)["ts"])
            if any(begin <= at < until for at in times):
                assert stream not in reported_streams
                continue
            spans = [[event[0] for event in events] for events in self.files[stream].values()]
            if not any(None in span or (after(begin, max(span)) and after(min(span), until)) for span in spans):
                assert stream in reported_streams, f"nobody says that {stream} has no events"

    # --------------------------------------------------------------------------------- what comes of it
    def planned(self) -> None:
        """The plan in force has what is registered and not paused, no more and no less."""
        house = Warehouse.open(self.house, create=False)
        version = current_version(house)
        assert version is not None
        expected_queries = {name: registered.query for name, registered in self.registered.items() if registered.runs}
        self.plans[version] = expected_queries
        fingerprints = {query.name: query.fingerprint for query in load_plan(house, version).workload.queries}
        assert fingerprints == {name: query.fingerprint for name, query in expected_queries.items()}

    def ran(self, said: Said, records: Sequence[Mapping[str, Any]], failed: bool = False) -> None:
        """Some runs were to be made: what they owe, and their exit code."""
        if not any(self.files[registered.query.stream] for registered in self.registered.values() if registered.runs):
            played["nothing can be read"] += 1
            assert said.code == 1 and "HDL-505" in said.codes, said.text
            return
        assert len(records) == len(self.instants), said.text
        instants = list(self.instants)
        self.note_refused()
        for record, at in zip(records, instants, strict=True):
            played[record["status"]] += 1
            played["narrow"] += record["narrow"]
            self.published(record, at)
        problems = [
            diagnostic
            for record in records
            for diagnostic in record["diagnostics"]
            if diagnostic["severity"] == "error"
        ]
        assert said.code == (1 if failed or problems else 0), said.text

    def note_refused(self) -> None:
        refused = self.about("quarantine").data["refused"]
        self.refused = {str(Path(file["path"]).relative_to(self.folder)): file["refused"] for file in refused}

    def write(self, stream: str, file: str, events: Sequence[Event]) -> None:
        folder = self.folder / stream
        folder.mkdir(exist_ok=True)
        pq.write_table(table_of(events), folder / f"_{file}")
        os.utime(folder / f"_{file}", ns=(self.clock(), self.clock()))
        (folder / f"_{file}").rename(folder / file)
        self.files[stream][file] = list(events)
        self.refused.pop(f"{stream}/{file}", None)

    # --------------------------------------------------------------------------------------- the rules
    @initialize(queries=MANY, interval=st.sampled_from(INTERVALS[:4]), minute=st.sampled_from([90, 270, 500]))
    def begin(self, queries: dict[str, str], interval: tuple[int, int], minute: int) -> None:
        self.now = START + minute * MINUTE
        for number, stream in enumerate(self.streams):
            self.write(stream, "base.parquet", steady(1000 * number))
        self.run_files(queries, interval)

    @rule(stream=st.sampled_from(STREAM_NAMES), file=st.sampled_from("adz"), events=EVENTS)
    def a_file_comes_or_changes(self, stream: str, file: str, events: list[Event]) -> None:
        """Late, or repeating what is there, before the others or after them."""
        played["changed files" if f"{file}.parquet" in self.files[stream] else "new files"] += 1
        self.write(stream, f"{file}.parquet", events)

    @rule(stream=st.sampled_from(STREAM_NAMES), at=st.integers(0, 11), symbol=st.sampled_from("AC"))
    def an_event_is_late(self, stream: str, at: int, symbol: str) -> None:
        played["late events"] += 1
        number = len(self.files[stream]) + self.steps
        self.write(stream, f"late-{number}.parquet", [(20 * at + 5, 100 + number, symbol, 7.0, 5)])

    @rule(stream=st.sampled_from(STREAM_NAMES), number=st.integers(0, 3))
    def a_file_goes(self, stream: str, number: int) -> None:
        spare = 0 if number == 3 else 1  # few histories are worth anything without a file
        if len(self.files[stream]) <= spare:
            return
        file = sorted(self.files[stream])[number % len(self.files[stream])]
        played["files that went"] += 1
        (self.folder / stream / file).unlink()
        del self.files[stream][file]
        self.refused.pop(f"{stream}/{file}", None)

    @rule(
        queries=FILES,
        interval=st.sampled_from(INTERVALS),
        how=st.sampled_from(["beside", "beside", "beside", "exactly", "exactly, nobody asked", "plan"]),
    )
    def run_files(self, queries: dict[str, str], interval: tuple[int, int], how: str = "beside") -> None:
        file = self.folder / "queries.sql"
        file.write_text("".join(f"-- name: {name}\n{QUERIES[kind]};\n" for name, kind in queries.items()))
        before = self.stored() if self.house.exists() else None
        outcome = self.about(
            "plan" if how == "plan" else "run",
            *(str(file), "--streams", str(self.folder / "streams.yaml")),
            *("--rate", "trades=1", "--rate", "orders=1", "--algorithm", "weave-share"),
            *(("--exactly",) if how.startswith("exactly") else ()),
            *(("--yes",) if how == "exactly" else ()),
            *(() if how == "plan" else (*spanned(interval), "--allow-empty")),
        )
        usable = {name: self.definition(name, kind) for name, kind in queries.items() if kind != "wrong"}
        after = dict(self.registered)
        if how.startswith("exactly"):
            # what a file has wrong is not removed
            after = {
                name: registered if name in queries else Registered(registered.query, removed=True)
                for name, registered in after.items()
            }
        for name, query in usable.items():
            after[name] = Registered(query, name in after and after[name].paused and not after[name].removed)
        if before is None and not usable:
            assert outcome.code == 1 and "HDL-113" in outcome.codes, outcome.text
            return
        assert before is not None or not self.plans
        goes = [name for name, registered in after.items() if registered.removed and not self.registered[name].removed]
        if not usable or not any(registered.runs for registered in after.values()):
            self.refused_by(outcome, "HDL-113", before or {})
        elif how == "plan":
            assert self.stored() == before
            planned_names = {name for tree in outcome.data["trees"] for name in tree["queries"]}
            assert planned_names == {name for name, registered in after.items() if registered.runs}
        elif goes and how == "exactly, nobody asked":
            self.refused_by(outcome, "HDL-525", before or {}, exits=2)
        else:
            self.change_is_told(outcome.text, after)
            self.registered = after
            self.typed.append((queries, interval))
            self.planned()
            self.ran(outcome, [outcome.data] if outcome.data else [], "wrong" in queries.values())

    def change_is_told(self, text: str, after: Mapping[str, Registered]) -> None:
        """Every query that comes, changes or goes stands in what a command says, and no other does."""
        expected_changes = set()
        for name, registered in after.items():
            was = self.registered.get(name)
            if was is None or was.removed:
                expected_changes |= set() if registered.removed else {("+", name)}
            elif registered.removed:
                expected_changes.add(("-", name))
            elif was.query.fingerprint != registered.query.fingerprint:
                expected_changes.add(("~", name))
        assert set(re.findall(r"^([+~-]) query (\w+)", text, re.MULTILINE)) == expected_changes, text

    @rule(number=st.integers(0, 3))
    def run_again(self, number: int) -> None:
        """What was typed before."""
        if self.typed:
            self.run_files(*self.typed[number % len(self.typed)])

    @rule(minutes=st.sampled_from([0, 10, 30, 60, 90]), begin=st.none() | st.just(0))
    def tick(self, minutes: int, begin: int | None) -> None:
        if not self.plans:
            return
        self.now += minutes * MINUTE
        first = () if begin is None else ("--from", format_instant(START + begin * MINUTE))
        outcome = self.about("tick", "--at", format_instant(self.now), *first)
        if outcome.data.get("status") == "nothing due":
            played["nothing due"] += 1
            assert outcome.code == 0
            return
        self.ran(outcome, [outcome.data] if outcome.data else [])

    @rule(interval=st.sampled_from(INTERVALS), every=st.sampled_from(["7 days", "2 hours"]), dry=st.booleans())
    def backfill(self, interval: tuple[int, int], every: str, dry: bool) -> None:
        if not self.plans:
            return
        before = self.stored()
        outcome = self.about("backfill", "--every", every, *spanned(interval), *(("--dry-run",) if dry else ()))
        if dry:
            assert self.stored() == before and outcome.code == 0
        elif outcome.data and not outcome.data.get("records"):
            assert outcome.code == 0
        else:
            self.ran(outcome, outcome.data.get("records", []))

    @rule(dry=st.booleans())
    def repair(self, dry: bool) -> None:
        """Afterwards every interval is what a run by its plan would publish, of the events that are there now."""
        if not self.plans:
            return
        before, clock = self.stored(), self.now
        outcome = self.about("repair", *(("--dry-run",) if dry else ()))
        if dry:
            assert self.stored() == before and outcome.code == 0
            return
        if outcome.data and not outcome.data.get("records"):
            assert outcome.code == 0
        else:
            self.ran(outcome, outcome.data.get("records", []))
        if outcome.data:
            self.note_refused()
            self.nothing_is_outdated(clock)

    def nothing_is_outdated(self, clock: int) -> None:
        for number, publication in enumerate(self.publications):
            later = self.publications[number + 1 :]
            if any(newer.begin <= publication.begin and publication.end <= newer.end for newer in later):
                continue
            for name, (query, at) in publication.asked.items():
                if not self.files[query.stream]:
                    continue
                until = self.until(query, publication.end, clock - self.streams[query.stream].lateness)
                answer_sets = (
                    {key: answer for key, answer in self.answers[name].items() if publication.begin < key[1] <= until},
                    self.owed(query, publication.begin, until, at),
                )
                stored_answers, expected_answers = (
                    {key: answer for key, answer in answers.items() if not any(other.holds(key[1]) for other in later)}
                    for answers in answer_sets
                )
                assert contents({name: stored_answers}) == contents({name: expected_answers}), (
                    f"{name} is outdated after a repair"
                )

    @rule(names=SOME, event=st.sampled_from(["pause", "resume"]))
    def pause_or_resume(self, names: set[str], event: str) -> None:
        if not self.plans:
            return
        before = self.stored()
        outcome = self.about(event, *sorted(names))
        after = {
            name: replace(registered, paused=event == "pause") if name in names else registered
            for name, registered in self.registered.items()
        }
        if any(name not in self.registered or self.registered[name].removed for name in names):
            self.refused_by(outcome, "HDL-521", before)
        elif not any(registered.runs for registered in after.values()):
            self.refused_by(outcome, "HDL-523", before)
        else:
            assert outcome.code == 0, outcome.text
            self.registered = after
            self.planned()

    @rule(names=SOME, with_answers=st.booleans(), how=st.sampled_from(["--yes", "--yes", "--dry-run", ""]))
    def remove(self, names: set[str], with_answers: bool, how: str) -> None:
        if not self.plans:
            return
        before = self.stored()
        options = [*(["--with-answers"] if with_answers else []), *([how] if how else [])]
        outcome = self.about("remove", *sorted(names), *options)
        live = {name for name in names if name in self.registered and not self.registered[name].removed}
        doomed = {name: len(self.answers[name]) for name in names if with_answers and self.answers.get(name)}
        after = {
            name: replace(registered, removed=name in live or registered.removed)
            for name, registered in self.registered.items()
        }
        if names - live - doomed.keys():
            self.refused_by(outcome, "HDL-521", before)
            return
        if live and not any(registered.runs for registered in after.values()):
            self.refused_by(outcome, "HDL-523", before)
            return
        assert {row["query"]: row["answers"] for row in outcome.data["answers"]} == doomed
        if how == "--dry-run":
            assert self.stored() == before and outcome.code == 0
        elif doomed and not how:
            self.refused_by(outcome, "HDL-527", before, exits=2)
        else:
            assert outcome.code == 0, outcome.text
            played["answers deleted"] += bool(doomed)
            self.registered = {
                name: replace(registered, paused=False) if registered.removed else registered
                for name, registered in after.items()
            }
            for name in doomed:
                self.answers[name] = {}
                for publication in self.publications:
                    publication.asked.pop(name, None)
            self.planned()

    @rule(number=st.integers(0, 5), yes=st.booleans())
    def rollback(self, number: int, yes: bool) -> None:
        if not self.plans:
            return
        before, version = self.stored(), 1 + number % max(self.plans)
        outcome = self.about("rollback", str(version), *(("--yes",) if yes else ()))
        after = {
            name: registered if registered.paused else Registered(registered.query, removed=True)
            for name, registered in self.registered.items()
        }
        after |= {name: Registered(query) for name, query in self.plans[version].items() if not after[name].paused}
        goes = [name for name, registered in after.items() if registered.removed and not self.registered[name].removed]
        if not any(registered.runs for registered in after.values()):
            self.refused_by(outcome, "HDL-113", before)
        elif goes and not yes:
            self.refused_by(outcome, "HDL-525", before, exits=2)
        else:
            assert outcome.code == 0, outcome.text
            self.change_is_told(outcome.text, after)
            self.registered = after
            self.planned()

    @precondition(lambda self: len(self.publications) > self.maintained + 1)
    @rule()
    def maintain(self) -> None:
        self.maintained = len(self.publications)
        outcome = self.about("maintain", "--keep", "0 seconds", "--retention", "0 seconds")
        assert outcome.code == 0, outcome.text

    @precondition(lambda self: self.refused)
    @rule(number=st.integers(0, 3))
    def release(self, number: int) -> None:
        path = sorted(self.refused)[number % len(self.refused)]
        outcome = self.about("quarantine", "--release", path)
        assert outcome.code == 0 and len(outcome.data["released"]) == 1, outcome.text
        del self.refused[path]

    # --------------------------------------------------------------------------------------- the judge
    @invariant()
    def is_seen(self) -> None:
        """What readers see is what the model owes to them, and what is registered is what was."""
        if self.looked_at == self.steps or not self.plans:
            return
        house = Warehouse.open(self.house, create=False)
        self.raw_is_right(house)
        newest = {name: query for version in sorted(self.plans) for name, query in self.plans[version].items()}
        typed = sorted(newest)[self.steps % len(newest)]
        for name, query in newest.items():
            columns = ["window_start", "window_end", *groups_of(query), *(output.name for output in query.outputs)]
            if name == typed:
                outcome = self.about("read", name)
                # without an answer it says so if the last run failed, which is right only if none is owed
                rows = [] if outcome.code == 1 and "HDL-547" in outcome.codes else outcome.data["rows"]
                times = ([parse_instant(row[column]) for row in rows] for column in columns[:2])
                column_values = [*times, *([row[column] for row in rows] for column in columns[2:])]
            else:
                table = read(house, name)
                column_values = [oracle._values(table[column]) for column in columns]
            self.read_is_right(query, list(zip(*column_values, strict=True)))
        self.registered_is_right()
        self.looked_at = self.steps

    def raw_is_right(self, house: Warehouse) -> None:
        """The table itself: every row of every query, decoded by the definition that its fingerprint names."""
        table = house.table("results").to_pyarrow_table()
        definitions = {query.fingerprint: query for plan in self.plans.values() for query in plan.values()}
        stored: dict[Key, list[Any]] = {}
        for fingerprint in sorted(set(table["fingerprint"].to_pylist())):
            query, rows = definitions[fingerprint], table.filter(pc.equal(table["fingerprint"], fingerprint))
            assert set(rows["query"].to_pylist()) == {query.name}
            for key, values in decoded(query, rows):
                assert key not in stored, f"{query.name}: {told(key)} is there more than once"
                stored[key] = values
        expected = {key: answer for answers in self.answers.values() for key, answer in answers.items()}
        wrong = [f"{definitions[key[0]].name}: {told(key)} is there" for key in stored.keys() - expected.keys()]
        wrong += [f"{expected[key][0].name}: {told(key)} is missing" for key in expected.keys() - stored.keys()]
        for key in stored.keys() & expected.keys():
            query, row = expected[key]
            if not all(cell.matches(value) for cell, value in zip(row, stored[key], strict=True)):
                wrong.append(f"{query.name}: {told(key)} is {stored[key]}, not {[cell.value for cell in row]}")
        assert not wrong, "\n".join(sorted(wrong)[:8])

    def read_is_right(self, query: ACQ, rows: Sequence[Sequence[Any]]) -> None:
        """What `heddle read` returns: the answers of earlier definitions as far as name and type agree."""
        types = dict(zip(groups_of(query), (type for _, type in query.group_by), strict=True))
        types |= {output.name: output.type for output in query.outputs}
        places: dict[tuple[int, int], list[Sequence[Any]]] = {}
        for start, end, *values in rows:
            places.setdefault((start, end), []).append(values)
        answers = self.answers.get(query.name, {})
        assert len(rows) == len(answers), f"{query.name}: {len(rows)} answers are read, not {len(answers)}"
        for (_, _, window, *values), (answered, row) in answers.items():
            cells = {
                (name, type): oracle.Cell(value)
                for name, (_, type), value in zip(groups_of(answered), answered.group_by, values, strict=True)
            }
            cells |= {(output.name, output.type): cell for output, cell in zip(answered.outputs, row, strict=True)}
            expected = [cells.get(column, oracle.Cell(None)) for column in types.items()]
            candidates = places.get(row.span or (window, window + answered.window.range), [])
            hit = next(
                (candidate for candidate in candidates if all(map(oracle.Cell.matches, expected, candidate))), None
            )
            assert hit is not None, f"{query.name}: {[cell.value for cell in expected]} is not among {candidates}"
            candidates.remove(hit)

    def registered_is_right(self) -> None:
        listed = {row["query"]: (row["state"], row["fingerprint"]) for row in self.about("queries").data["queries"]}
        expected = {}
        for name, registered in self.registered.items():
            expired = registered.query.until is not None and registered.query.until < self.now
            state = (
                "removed"
                if registered.removed
                else "expired"
                if expired
                else "paused"
                if registered.paused
                else "running"
            )
            expected[name] = state, registered.query.fingerprint
        assert listed == expected


_definitions: dict[tuple[str, str], ACQ] = {}
_owed: dict[tuple[Any, ...], Answers] = {}


def spanned(interval: tuple[int, int]) -> tuple[str, ...]:
    begin, end = (format_instant(START + minute * MINUTE) for minute in interval)
    return "--from", begin, "--to", end


def after(instant: int, minute: int) -> bool:
    return START + minute * MINUTE >= instant


def told(key: Key) -> str:
    return f"the answer of minute {(key[1] - START) / MINUTE:g}, {key[3:]},"


def groups_of(query: ACQ) -> list[str]:
    return list(query.select or (name for name, _ in query.group_by))


def is_due(query: ACQ, begin: int, until: int, at: Sequence[int] | None) -> bool:
    """Whether a window of the query may end in (begin, until]; of rows nobody knows beforehand."""
    window = query.window
    if at is not None:
        return any(begin < instant <= until for instant in at)
    return window.is_rows or (until - window.range) // window.slide > (begin - window.range) // window.slide


# ------------------------------------------------------------------------------------ what readers are told
def contents(answers: Mapping[str, Answers]) -> dict[tuple[Any, ...], Counter[Any]]:
    """What stands in the rows of each window (query, instant, number of its first row)."""
    rows_by_window: dict[tuple[Any, ...], Counter[Any]] = {}
    for name, query_answers in answers.items():
        for (_, instant, window, *groups), (query, row) in query_answers.items():
            lists: dict[str, tuple[Any, ...]] = dict.fromkeys(CARRIERS, ())
            for output, cell in zip(query.outputs, row, strict=True):
                lists[carrier_of(output.type)] += (cell.value,)
            place = name, instant, window if query.window.is_rows else None
            start = row.span[0] if row.span else window
            rows_by_window.setdefault(place, Counter())[start, *groups, *lists.values()] += 1
    return rows_by_window


def change_of(before: Mapping[str, Answers], after: Mapping[str, Answers]) -> dict[str, Any]:
    """What the record of a run is to say of readers."""
    was, now = contents(before), contents(after)
    moved = {
        "gained": now.keys() - was.keys(),
        "lost": was.keys() - now.keys(),
        "changed": {place for place in was.keys() & now.keys() if was[place] != now[place]},
    }
    counts = {name: [len(before.get(name, ())), len(after[name])] for name in after}
    return {
        "before": sum(had for had, _ in counts.values()),
        "after": sum(has for _, has in counts.values()),
        **{kind: [len({name for name, *_ in places}), len(places)] for kind, places in moved.items()},
        "fewer": {name: both for name, both in sorted(counts.items()) if both[1] < both[0]},
        "queries": sorted({name for name, *_ in moved["lost"] | moved["changed"]}),
    }


def decoded(query: ACQ, rows: pa.Table) -> Iterable[tuple[Key, list[Any]]]:
    """Rows of the results table as the README says how to read them: the outputs of each carrier in the query's
    order."""
    used: Counter[str] = Counter()
    columns = []
    for output in query.outputs:
        carrier = carrier_of(output.type)
        values = [None if cells is None else cells[used[carrier]] for cells in rows[carrier].to_pylist()]
        used[carrier] += 1
        columns.append(oracle._values(typed(pa.array(values, rows[carrier].type.value_type), output.type)))
    groups = [
        oracle._values(typed(texts, type))
        for texts, (_, type) in zip(group_values(rows["key"], len(query.group_by)), query.group_by, strict=True)
    ]
    instants = oracle._values(rows["instant"])
    windows = oracle._values(rows["position" if query.window.is_rows else "window_start"])
    for number in range(len(rows)):
        key = (query.fingerprint, instants[number], windows[number], *(column[number] for column in groups))
        yield key, [column[number] for column in columns]


# --------------------------------------------------------------------------------------------- the tests
BOTH = {"alpha": "counts", "beta": "other select list"}
KNOWN: dict[str, list[tuple[Any, ...]]] = {
    "one more query takes no other away": [
        ("begin", BOTH, (0, 120), 500),
        ("run_files", {"gamma": "counts"}, (120, 240)),
    ],
    "one more query on a published interval": [
        ("begin", BOTH, (0, 120), 500),
        ("run_files", {"gamma": "counts"}, (0, 120), "exactly"),
    ],
    "a late event and a repair after a removal": [
        ("begin", BOTH, (0, 120), 500),
        ("remove", {"alpha"}, False, "--yes"),
        ("an_event_is_late", "trades", 1, "A"),
        ("repair", False),
    ],
    "another select list of other types under one name": [
        ("begin", {"alpha": "counts"}, (0, 120), 500),
        ("run_files", {"alpha": "other types"}, (120, 240)),
        ("run_files", {"alpha": "other select list"}, (60, 180)),
    ],
    "a lifetime that ends within what is published": [
        ("begin", {"alpha": "counts"}, (0, 240), 500),
        ("run_files", {"alpha": "lifetime"}, (120, 240)),
    ],
    "an interval without events": [
        ("begin", BOTH, (0, 120), 900),
        ("run_files", {"gamma": "orders"}, (600, 660)),
    ],
    "events in a part of an interval that was read before": [
        ("begin", {"alpha": "counts"}, (0, 120), 270),
        ("tick", 0, None),
    ],
    "late events that a repair refuses": [
        ("begin", {"beta": "bound orders"}, (0, 120), 270),
        ("a_file_comes_or_changes", "orders", "a", [(0, 1, "A", 1.0, 0)]),
        ("repair", False),
    ],
    "deleted by name, and published again": [
        ("begin", BOTH, (0, 120), 500),
        ("remove", {"alpha"}, True, "--yes"),
        ("run_files", BOTH, (0, 120)),
    ],
}
"""Histories in which answers were once taken away, misread, or not told."""


@pytest.mark.parametrize("name", KNOWN)
def test_known_histories(name: str) -> None:
    machine = Histories()
    try:
        for what, *arguments in KNOWN[name]:
            getattr(machine, what)(*arguments)
            machine.is_seen()
    finally:
        machine.teardown()


def histories(most: int, steps: int, part: int = 0) -> int:
    """Plays generated histories; how many commands they had."""
    played.clear()
    run_state_machine_as_test(
        seeded(SEED or 1 + part)(type("Seeded", (Histories,), {})),
        settings=settings(
            max_examples=most,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )
    return sum(played.values())


def test_some_histories() -> None:
    assert histories(3, 10) > 0


@pytest.mark.longer
def test_more_histories() -> None:
    assert histories(24, 12, 1) > 0


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_histories(part: int, counted: Counted) -> None:
    count = (300 if ROUNDS else 30) // PARTS
    counted("histories of commands", count, commands=histories(count, 30, 1 + part))
