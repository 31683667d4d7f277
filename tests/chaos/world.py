"""A warehouse that is small enough to be played with a thousand times, and the judge of all that it ever showed.

The judge reads Delta's log by itself: which publications there were, in which order. It compares every version of the
results that readers could have seen with the DuckDB oracle over the events as the publishing run had listed them, and
the log of publications, the plans and the partial aggregates with what must be true of them.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import format_instant
from spark_jobs.operations import maintenance as maintenance_module
from spark_jobs.pipeline.run import checks_stage, finals_stage, preparation, publication
from spark_jobs.results import tables
from spark_jobs.results.read import typed_rows
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.plans import RECENT, current_version, load_plan
from spark_jobs.store.warehouse.schemas import TABLES, micros
from spark_jobs.windows.partials import stored_coverage
from tests import oracle
from tests.chaos.orders import Orders, in_process, in_turns
from tests.spark_jobs import followed
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, Event, Laboratory, steady, table_of

TABLED = QUERIES.replace("-- name: by_symbol\n", "-- name: by_symbol\n-- table: by_symbol, change data feed\n")

PLANS = (
    TABLED,
    TABLED.replace("25 minutes", "35 minutes"),
    TABLED
    + "-- name: more\nSELECT max(price) AS high FROM trades WINDOW RANGE '30 minutes' SLIDE '15 minutes' ON ts;\n",
)
MINUTES = 120
INTERVALS = ((0, 60), (60, 120), (0, 120))
LATE: tuple[Event, ...] = ((20.25, "A", 7.0, 3), (50.25, "C", 8.0, 5), (70.25, "B", 9.0, 2))


class Died(BaseException):
    """The process is gone: nothing in the code may catch it to go on."""


def die(*given: Any) -> None:
    raise Died


REFUSED = {"HDL-510", "HDL-511", "HDL-512", "HDL-541"}
"""Codes of a run that changed nothing and is to be tried again."""

ALL_THERE = frozenset({"first"})
"""What runs in other processes list, whose listings are not watched."""

_expected: dict[Any, Any] = {}


class World(Laboratory):
    """A laboratory whose source is a folder: late events come as files of their own, so a listing is a state."""

    @classmethod
    def at(cls, folder: Path, point: Callable[[str], None] = lambda name: None) -> World:
        return cls(in_process(point), folder)

    def source(self, stream: str = "trades") -> Path:
        return self.folder / stream

    def write(self, events: Sequence[Event], stream: str = "trades", name: str = "first") -> None:
        folder = self.source(stream)
        folder.mkdir(exist_ok=True)
        pq.write_table(table_of(events), folder / f"_{name}")
        (folder / f"_{name}").rename(folder / f"{name}.parquet")

    def state(self) -> frozenset[str]:
        return frozenset(path.stem for path in self.source().glob("*.parquet"))


def events_of(state: frozenset[str]) -> list[Event]:
    late = [LATE[int(name.removeprefix("late-"))] for name in sorted(state - {"first"})]
    return [*steady(MINUTES), *late]


def begun(folder: Path, crowded: bool = False) -> World:
    """A world in which one interval is published; ``crowded``: again in pieces, so that there are files to merge."""
    world = World.at(folder)
    world.write(steady(MINUTES))
    world.write([], "quotes")
    version = world.plan(PLANS[0])
    world.run(version, 0, 60, "before")
    for begin in range(0, 60, 12) if crowded else ():
        world.run(version, begin, begin + 12, f"small {begin}")
    return world


def template(folder: Path, crowded: bool = False) -> tuple[Path, Path]:
    """A world to copy, and the place where copies live: plans hold the paths of their sources."""
    place, template_folder = folder / "place", folder / "template"
    place.mkdir()
    with without_audit():
        begun(place, crowded)
    shutil.move(place, template_folder)
    return template_folder, place


@contextmanager
def without_audit() -> Iterator[None]:
    """The audit needs Spark; here the judge is the oracle. A few files are enough to be merged."""
    with pytest.MonkeyPatch.context() as patch:
        passed = [{"check": "none", "success": True, "detail": ""}]
        patch.setattr(checks_stage, "audit", lambda *args: list(passed))
        patch.setattr(maintenance_module, "FEW", 2)
        yield


@dataclass
class Race:
    """Some drivers on a copy of a world, and what each of them listed."""

    world: World
    chance: random.Random
    drivers: dict[str, Callable[[], None]] = field(default_factory=dict)
    listed: dict[str, frozenset[str]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    again: list[tuple[str, int, int]] = field(default_factory=list)
    said: list[tuple[tuple[str, str], int, str, int]] = field(default_factory=list)
    """What runs that succeeded said: interval, revision, status; and the version of the results at their begin."""
    first: int = 0
    """The version of the results with which it begins."""

    def draw(self) -> None:
        """Two to four drivers, at least one of them a run."""
        kinds = [
            "run",
            *self.chance.choices(("run", "twin", "same", "plan", "late", "maintain"), (4, 3, 2, 2, 2, 1), k=3),
        ]
        for number, kind in enumerate(kinds[: self.chance.randint(2, 4)]):
            begin, end = self.chance.choice(INTERVALS)
            if kind in ("twin", "same") and self.again:
                run_id, begin, end = self.chance.choice(self.again)
                self.add_run(run_id if kind == "twin" else f"run {number}", begin, end, number)
            elif kind == "plan":
                text = self.chance.choice(PLANS)
                self.drivers[f"{number}: plan {PLANS.index(text)}"] = lambda text=text: self.plan(text)
            elif kind == "late":
                late = self.chance.randrange(len(LATE))
                self.drivers[f"{number}: late {late}"] = lambda late=late: self.late(late)
            elif kind == "maintain":
                self.drivers[f"{number}: maintain"] = self.maintain
            else:
                self.add_run(f"run {number}", begin, end, number)

    def add_run(self, run_id: str, begin: int, end: int, number: int) -> None:
        self.again.append((run_id, begin, end))
        self.drivers[f"{number}: {run_id} of {begin}..{end}"] = lambda: self.run(run_id, begin, end)

    # ----------------------------------------------------------------------------------------- what drivers do
    def tried(self, body: Callable[[], Any]) -> bool:
        try:
            body()
        except HeddleError as error:
            if error.diagnostic.code not in REFUSED:
                raise
            self.refused[error.diagnostic.code] += 1
            return False
        return True

    def run(self, run_id: str, begin: int, end: int, version: int = 0) -> None:
        """Until it succeeds, by the plan in force unless another is named; what it said is judged in the end."""
        version = version or current_version(self.world.warehouse) or 0
        span = format_instant(DAY + begin * MINUTE), format_instant(DAY + end * MINUTE)

        def attempt() -> None:
            before = self.world.warehouse.version("results")
            record = self.world.run(version, begin, end, run_id)
            self.said.append((span, record.revision, record.status, before))

        for _ in range(30):
            if self.tried(attempt):
                return
        raise AssertionError(f"{run_id} is refused for ever")

    def plan(self, text: str, algorithm: str = "weave-share") -> None:
        for _ in range(30):
            if self.tried(lambda: self.world.plan(text, algorithm)):
                return
        raise AssertionError("a plan is refused for ever")

    def late(self, number: int) -> None:
        self.world.write([LATE[number]], name=f"late-{number}")

    def maintain(self) -> None:
        self.tried(lambda: maintenance_module.maintain(self.world.warehouse))

    def dies_unlogged(self, begin: int, end: int) -> None:
        """By another plan, and the process is gone between the publication and its log."""
        self.plan(PLANS[1])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publication, "log_statistics", die)
            with pytest.raises(Died):
                self.world.run(current_version(self.world.warehouse) or 0, begin, end, "dead")

    def forgotten(self) -> None:
        """The plan's synopses are of no recent plan: what is stored of them goes."""
        for number in range(RECENT):
            self.plan(QUERIES.replace("25 minutes", f"{26 + number} minutes").replace("40", f"{41 + number}"))
        self.maintain()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Remember which files the runs had listed, by the content that they say they publish."""
        sources, content, looked = preparation.listed, preparation.content_hash, preparation.opened
        states: dict[int, tuple[Any, frozenset[str]]] = {}
        seen: dict[int, list[frozenset[str]]] = {}

        def looking(*args: Any) -> Any:
            # no driver's turn comes while a folder is listed; a run may list again, or another in the middle of it
            seen[threading.get_ident()][-1] = self.world.state()
            return looked(*args)

        def listing(*args: Any) -> Any:
            thread_states = seen.setdefault(threading.get_ident(), [])
            thread_states.append(frozenset())
            try:
                source_listing = sources(*args)
            finally:
                state = thread_states.pop()
            # the lists are kept, so that no others get their ids
            states.update({id(splits): (splits, state) for splits in source_listing.sources.values()})
            return source_listing

        def hashed(*args: Any) -> str:
            content_hash = content(*args)
            for splits in args[2].values():
                self.listed.setdefault(content_hash, states[id(splits)][1])
            return content_hash

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(preparation, "listed", listing)
            patch.setattr(preparation, "opened", looking)
            patch.setattr(preparation, "content_hash", hashed)
            yield

    # ----------------------------------------------------------------------------------------- the judge
    def closing(self) -> None:
        """What comes after every race: a run over everything, on the partial aggregates that were left."""
        self.run("closing", 0, 120)

    def publications(self) -> list[dict[str, Any]]:
        """What Delta's own log of the results says was published, in order."""
        published = []
        for path in sorted((self.world.warehouse.root / "results" / "_delta_log").glob("*.json")):
            for line in path.read_text().splitlines():
                transaction = json.loads(line).get("txn")
                if transaction is not None:
                    _, begin, end = transaction["appId"].split("/")
                    published.append({"at": int(path.stem), "span": (begin, end), "revision": transaction["version"]})
        return published

    def logged(self) -> list[dict[str, Any]]:
        log = sorted(self.world.warehouse.rows("publish_log"), key=lambda row: row["at"])
        for row in log:
            row["span"] = tuple(format_instant(micros(row[name])) for name in ("interval_start", "interval_end"))
        return log

    def wrong(self) -> list[str]:
        """Everything that must be true once a run over everything has ended."""
        log, violations = self.logged(), []
        published = [row for row in log if row["event"] == "published"]
        if len(published) != len({(row["span"], row["revision"]) for row in published}):
            violations.append("one revision of an interval was published twice")
        logged = {(row["span"], row["revision"], row["table_version"]) for row in published}
        committed = {(commit["span"], commit["revision"], commit["at"]) for commit in self.publications()}
        violations += [f"the log says {sorted(logged - committed)}, the table {sorted(committed - logged)}"] * (
            logged != committed
        )
        allocated = [(row["span"], row["revision"]) for row in log if row["event"] == "allocated"]
        violations += ["one revision was given out twice"] * (len(allocated) != len(set(allocated)))
        violations += self.said_wrong()
        for name in TABLES:
            isolation = DeltaTable(self.world.warehouse.path(name)).metadata().configuration["delta.isolationLevel"]
            violations += [f"{name} isolates {isolation}"] * (isolation != "Serializable")
        violations += followed.wrong(self.world.warehouse) + followed.torn(self.world.warehouse)
        return violations + self.seen_wrong(self.first) + self.plans_wrong() + self.partials_wrong()

    def said_wrong(self) -> list[str]:
        """Runs that said that they published, and did not; or that nothing had changed, when something had."""
        versions = {(commit["span"], commit["revision"]): commit["at"] for commit in self.publications()}
        violations = []
        for span, revision, status, before in self.said:
            at = versions.get((span, revision), -1)
            over = [
                other
                for ((begin, end), _), other in versions.items()
                if begin < span[1] and end > span[0] and at < other <= before
            ]
            if at <= before and (status == "published" or at < 0 or over):
                violations.append(
                    f"revision {revision} of {span} was said to be {status}: version {at}, begun at {before}, {over}"
                )
        return violations

    def seen_wrong(self, since: int = 0) -> list[str]:
        """What was wrong with what readers saw, at any time: whole publications, equal to the oracle."""
        rows = {
            (row["span"], row["revision"]): row for row in self.logged() if row["event"] in ("allocated", "published")
        }
        violations: list[str] = []
        published: list[dict[str, Any]] = []
        for commit in self.publications():
            row = rows.get((commit["span"], commit["revision"]))
            if row is None:
                violations.append(f"nobody was given revision {commit['revision']} of {commit['span']}")
                continue
            published.append(row)
            if commit["at"] >= since:
                violations += self.shown(commit["at"], published)
        newest = self.world.warehouse.version("results")
        return violations + self.shown(newest, published)

    def shown(self, version: int, published: Sequence[dict[str, Any]]) -> list[str]:
        """What is wrong with the answers that readers of a version of the results see: of each query those of the
        newest publication that answered it, however many came since that did not."""
        violations: list[str] = []
        table = DeltaTable(self.world.warehouse.path("results"), version=version).to_pyarrow_table()
        log = self.logged()
        plans = {row["plan_version"]: load_plan(self.world.warehouse, row["plan_version"]) for row in published}
        names = {name: {query.name: query for query in plan.workload.queries} for name, plan in plans.items()}
        covered = 0
        for name in sorted({query for known in names.values() for query in known}):
            answers = table.filter(pc.equal(table["query"], name))
            instants = answers["instant"].cast("int64").to_numpy()
            for begin, end, row in standing([row for row in published if name in names[row["plan_version"]]]):
                inside = answers.filter(pa.array((instants > begin) & (instants <= end)))
                covered += len(inside)
                # answers that no late event touched are of an earlier revision of the same interval
                stamped = {
                    (row["plan_version"], other["revision"], other["run_id"]): other["revision"]
                    for other in log
                    if other["span"] == row["span"]
                }
                stamps = {
                    tuple(stamp.values()) for stamp in inside.select(["plan_version", "revision", "run_id"]).to_pylist()
                }
                if any(stamp not in stamped or stamped[stamp] > row["revision"] for stamp in stamps):
                    violations.append(f"version {version}: {stamps} in what {row['run_id']} published")
                query = names[row["plan_version"]][name]
                state = self.listed.get(row["content"], ALL_THERE)
                key = (query.fingerprint, state, begin, end)
                if key not in _expected:
                    _expected[key] = oracle.answers(query, table_of(events_of(state)), "ts", begin, end)
                if set(inside["fingerprint"].to_pylist()) - {query.fingerprint}:
                    violations.append(f"version {version}: {name} has rows of another definition")
                lines = oracle.compare(query, typed_rows(query, inside), _expected[key])
                violations += [f"version {version}, {row['run_id']}, {name}: {line}" for line in lines]
        if covered != len(table):
            violations.append(f"version {version}: {len(table) - covered} answers that nobody published")
        return violations

    def plans_wrong(self) -> list[str]:
        house = self.world.warehouse
        rows = house.rows("sharing_plans")
        newest, violations = current_version(house) or 0, []
        prints = []
        for version in range(1, newest + 1):
            plan_rows = [row for row in rows if row["plan_version"] == version]
            kinds = {(row["fingerprint"], row["created_at"]) for row in plan_rows}
            if len(kinds) != 1 or len({row["row"] for row in plan_rows}) != len(plan_rows):
                violations.append(f"plan version {version} was stored {len(kinds)} times")
                continue
            prints.append(load_plan(house, version).fingerprint)
        violations += ["a plan was stored again unchanged"] * any(
            a == b for a, b in zip(prints, prints[1:], strict=False)
        )
        registered: dict[str, tuple[str, str]] = {}
        for row in sorted(house.rows("workload_queries"), key=lambda row: row["at"]):
            registered[row["query"]] = row["event"], row["fingerprint"]
        live = {name: print for name, (event, print) in registered.items() if event != "removed"}
        planned = {query.name: query.fingerprint for query in load_plan(house, newest).workload.queries}
        return violations + [f"registered are {sorted(live)}, planned {sorted(planned)}"] * (live != planned)

    def partials_wrong(self) -> list[str]:
        table = DeltaTable(self.world.warehouse.path("partials")).to_pyarrow_table(
            columns=["fingerprint", "fragment_start", "key", "shard"]
        )
        count = Counter(tuple(row.values()) for row in table.to_pylist())
        return [f"{number} partial rows of {cell}" for cell, number in count.items() if number > 1][:3]


def standing(published: Sequence[dict[str, Any]]) -> list[tuple[int, int, dict[str, Any]]]:
    """The pieces (begin, end] of time (microseconds) with the newest of some publications of each."""
    pieces: list[tuple[int, int, dict[str, Any]]] = []
    for row in published:
        begin, end = micros(row["interval_start"]), micros(row["interval_end"])
        cut: list[tuple[int, int, dict[str, Any]]] = []
        for low, high, other in pieces:
            cut += [(low, min(high, begin), other)] if low < begin else []
            cut += [(max(low, end), high, other)] if high > end else []
        pieces = [*cut, (begin, end, row)]
    return pieces


def copied(template: Path, place: Path, chance: random.Random, point: Callable[[str], None]) -> Race:
    """A race to be set up, on a copy of a world."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(template, place)
    played = Race(World.at(place, point), chance)
    played.first = played.world.warehouse.version("results")
    # what the template's run had listed
    for row in played.world.warehouse.rows("publish_log"):
        played.listed[row["content"]] = ALL_THERE
    return played


def race(template: Path, place: Path, seed: int) -> tuple[Orders, Race]:
    """One drawn ordering, judged."""
    chance = random.Random(seed)
    orders = Orders(chance, place / "warehouse", chance.choice((0.05, 0.2, 0.5)), chance.choice((0.0, 0.0, 0.02, 0.1)))
    played = copied(template, place, chance, orders.point)
    played.draw()
    history = [f"drivers: {', '.join(played.drivers)}"]

    def play() -> None:
        try:
            with in_turns(orders):
                orders.play(played.drivers)
        finally:
            history.extend(orders.told[-400:])

    judged(played, play, history)
    if not orders.broken and set(played.refused) & {"HDL-510", "HDL-511"}:
        raise AssertionError(f"a lease was lost that nobody took away: {played.refused}")
    return orders, played


def judged(played: Race, play: Callable[[], None], told: list[str]) -> None:
    """What happened, then a run over everything, then the judge."""
    cause = None
    with without_audit(), played.watched():
        try:
            play()
            played.closing()
            wrong = played.wrong()
        except Exception as error:
            wrong, cause = [f"{type(error).__name__}: {error}"], error
    if wrong:
        raise AssertionError("\n".join([*told, *wrong[:8]])) from cause


STEPS: dict[str, tuple[Any, str]] = {
    "prepare": (preparation, "prepare"),
    "reconcile": (publish_log, "reconcile"),
    "look for the same content": (publish_log, "same_publication"),
    "choose the revision": (publish_log, "revision_of"),
    "look for gaps": (stored_coverage, "uncovered"),
    "store what is complete": (stored_coverage, "store_coverage"),
    "answer": (finals_stage, "write_finals"),
    "log the checks": (publication, "log_checks"),
    "publish": (publication, "publish"),
    "follow with the tables": (tables, "follow"),
    "log the statistics": (publication, "log_statistics"),
    "log": (publish_log, "log_event"),
}
"""Where a run can be interrupted: before each of these functions, and after; the module in which it is looked up."""

INTRUDERS: dict[str, Callable[[Race], None]] = {
    "its retry": lambda race: race.run("interrupted", 60, 120),
    "a run of the same, with late events": lambda race: (race.late(1), race.run("other", 60, 120))[1],
    "a run of more, with late events and another plan": lambda race: (
        race.late(1),
        race.plan(PLANS[1]),
        race.run("other", 0, 120),
    )[2],
    "a run of what it reads, with late events": lambda race: (race.late(0), race.late(1), race.run("other", 0, 60))[2],
    "a run of more that dies before its log": lambda race: race.dies_unlogged(0, 120),
    "plans that need nothing of it, and maintenance": lambda race: race.forgotten(),
}


def interrupted(template: Path, place: Path, step: str, after: bool, intruder: str, narrow: bool = False) -> Race:
    """A run of 60..120 that is stopped at a step, until all of another thing has happened; judged. ``narrow``: it would
    publish only the windows of a late event again."""
    played = copied(template, place, random.Random(0), lambda name: None)
    if narrow:
        with without_audit(), played.watched():
            played.run("earlier", 60, 120)
            played.late(2)
    owner, name = STEPS[step]
    original, armed = getattr(owner, name), [True]

    def stopped(*args: Any, **kwargs: Any) -> Any:
        if not armed:
            return original(*args, **kwargs)
        armed.clear()
        if not after:
            INTRUDERS[intruder](played)
        result = original(*args, **kwargs)
        if after:
            INTRUDERS[intruder](played)
        return result

    def play() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, stopped)
            played.run("interrupted", 60, 120)

    judged(played, play, [f"{intruder}, {'after' if after else 'before'} {step}"])
    return played


CLOCK = 1 << 52
"""Long after everything, in microseconds."""
