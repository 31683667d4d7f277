"""The timetable fires at the refreshes of the published schedule; the DAG that uses it survives serialization."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from optimizer.language.parser import parse
from optimizer.plan import instants_due
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import format_instant
from optimizer.workload.values import LONG, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant

ROOT = Path(__file__).resolve().parents[2]
SECOND = 1_000_000
MINUTE = 60 * SECOND
NOON = 1_767_268_800_000_000
"""2026-01-01T12:00:00Z"""

WORKLOAD = """
-- name: often
SELECT count(*) AS n FROM events WINDOW RANGE '10 minutes' SLIDE AT MOST '{} minutes' ON ts;
-- name: seldom
SELECT sum(amount) AS total FROM events WINDOW RANGE '1 hour' SLIDE AT MOST '9 minutes' ON ts;
"""

SERVER = """
import json, os, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
import airflow
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.serialization.serialized_objects import DagSerialization
import pendulum
from heddle.airflow.runs import pinned_run
from heddle.airflow.timetable import NextRefresh, RefreshTimetable
from spark_jobs.store.settings import settings
folder = Path(sys.argv[1])
bag = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
assert not bag.import_errors, bag.import_errors
moment = lambda micros: pendulum.from_timestamp(micros / 1e6)

def asked(questions):
    kept = DagSerialization.from_dict(DagSerialization.to_dict(bag.dags["aggregate_windows"]))
    told = []
    for now, last, catchup in questions:
        # Airflow loads plugins as modules of its own
        kept.timetable.next_dagrun_info.__globals__["_now"] = lambda: moment(now)
        interval = None if last is None else DataInterval(*map(moment, last))
        restriction = TimeRestriction(moment(0), None, catchup)
        found = kept.timetable.next_dagrun_info(last_automated_data_interval=interval, restriction=restriction)
        told.append([round(at.timestamp() * 1e6) for at in (*found.data_interval, found.run_after)])
    return {"told": told, "name": type(kept.timetable).__name__,
            "deadlines": bool(kept.deadline), "summary": kept.timetable.summary}

def sessions(period, now, last_end, earliest, latest):
    timetable = RefreshTimetable(timedelta(microseconds=period))
    RefreshTimetable.next_dagrun_info.__globals__["_now"] = lambda: moment(now)
    last = None if last_end is None else DataInterval(moment(last_end - period), moment(last_end))
    limits = [None if limit is None else moment(limit) for limit in (earliest, latest)]
    run = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=TimeRestriction(*limits, False))
    return run and [round(at.timestamp() * 1e6) for at in (*run.data_interval, run.run_after)]

def deadline(end, *of_session):
    session = SimpleNamespace(scalar=lambda query: moment(end))
    kept = NextRefresh.deserialize_reference(NextRefresh(*of_session).serialize_reference())
    found = kept._evaluate_with(session=session, dag_id="d", run_id="r")
    return round(found.timestamp() * 1e6)

def pinned(begin, end, kind):
    first, last = (datetime.fromtimestamp(micros / 1e6, UTC) for micros in (begin, end))
    return pinned_run(settings(), first, last, kind == "live")

for line in sys.stdin:
    name, place, given = json.loads(line)
    os.environ |= {"HEDDLE_WAREHOUSE": place + "/warehouse", "HEDDLE_STREAMS": place + "/streams.yaml"}
    print("RESULT" + json.dumps(globals()[name](*given)), flush=True)
"""

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Asks a function of :data:`SERVER` about the warehouse below a folder, in one Airflow for all tests: to import it
    takes longer than they do."""
    home = tmp_path_factory.mktemp("airflow")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT))),
    }
    command, log_file = [sys.executable, "-c", SERVER, str(ROOT / "dags")], home / "said"
    with (
        log_file.open("w") as log,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None

        def call(name: str, place: Path, *arguments: Any) -> Any:
            print(json.dumps([name, str(place), arguments]), file=process.stdin, flush=True)
            for line in process.stdout:
                if line.startswith("RESULT"):
                    return json.loads(line.removeprefix("RESULT"))
            raise AssertionError(log_file.read_text())

        yield call
        process.stdin.close()


def publish(place: Path, bound: int, lateness: int = 0) -> Any:
    """The schedules of a plan that is stored."""
    stream = Stream("events", Source("csv", "x.csv"), (("ts", TIMESTAMP), ("amount", LONG)), "ts", lateness)
    parsed = parse(WORKLOAD.format(bound), {"events": stream})
    assert not parsed.errors
    plan = build_plan(Workload(parsed.queries, (stream,)), {"events": Fraction(1)})
    publish_plan(Warehouse.open(place / "warehouse"), plan)
    return plan.schedules


def test_runs_follow_the_published_schedule(ask: Ask, tmp_path: Path) -> None:
    late = 3 * MINUTE
    schedules = publish(tmp_path, 4, late)
    ticks = [at for at, _ in instants_due.ticks(schedules, NOON - 60 * MINUTE, NOON + 60 * MINUTE)]
    latest_tick = max(at for at in ticks if at <= NOON - late)
    place = ticks.index(latest_tick)
    before, following, after = ticks[place - 1], ticks[place + 1], ticks[place + 2]
    questions = [
        (NOON, None, False),
        (NOON, (before, latest_tick), False),
        # a run that was missed while Airflow was down, and a first run after a change from daily runs
        (NOON, (ticks[0], ticks[1]), False),
        # after a run: the next; a clock that went backwards asks for nothing twice
        (following + late, (latest_tick, following), False),
        (latest_tick - 20 * MINUTE, (latest_tick, following), False),
        # backfills go by days
        (NOON, None, True),
    ]
    answer = ask("asked", tmp_path, questions)
    assert (answer["name"], answer["summary"], answer["deadlines"]) == ("RefreshTimetable", "published schedule", True)
    day = 1440 * MINUTE
    assert answer["told"] == [
        [before, latest_tick, latest_tick + late],
        [latest_tick, following, following + late],
        [before, latest_tick, latest_tick + late],
        [following, after, after + late],
        [following, after, after + late],
        [0, day, day],
    ]


def test_the_schedule_changes_with_the_plan(ask: Ask, tmp_path: Path) -> None:
    often = publish(tmp_path, 4)
    seldom = publish(tmp_path, 7)
    last = NOON - 30 * MINUTE
    (next_run,) = ask("asked", tmp_path, [(last, (last - MINUTE, last), False)])["told"]
    assert next_run[1] == instants_due.next_tick(seldom, last) != instants_due.next_tick(often, last)


def test_without_a_plan_or_bounds_runs_are_daily(ask: Ask, tmp_path: Path) -> None:
    day = 1440 * MINUTE
    midnight = NOON - NOON % day
    (next_run,) = ask("asked", tmp_path, [(NOON, (midnight - 2 * day, midnight - day), True)])["told"]
    assert next_run == [midnight - day, midnight, midnight]


def test_a_deadline_is_when_the_next_refresh_is_due(ask: Ask, tmp_path: Path) -> None:
    end = NOON
    schedules = publish(tmp_path, 4, MINUTE)
    assert ask("deadline", tmp_path, end) == instants_due.next_tick(schedules, end) + MINUTE
    # a session ends by the clock: what it leaves to the next is due after that
    for minute in range(9):
        due = ask("deadline", tmp_path, end + minute * MINUTE, True)
        assert due == instants_due.next_tick(schedules, end + (minute - 1) * MINUTE) + MINUTE > end + minute * MINUTE


def published(place: Path, begin: int, end: int, live: bool) -> None:
    """A row of the log as a run over an interval leaves it."""
    record = json.dumps({"live": live, "refreshed": {"often": end, "seldom": end}})
    row = {
        "interval_start": datetime.fromtimestamp(begin / 1e6, UTC),
        "interval_end": datetime.fromtimestamp(end / 1e6, UTC),
        "revision": 1,
        "run_id": "test",
        "event": "published",
        "plan_version": 1,
        "content": "",
        "answers": 0,
        "table_version": 1,
        "record": record,
        "at": datetime.now(UTC),
    }
    warehouse = Warehouse.open(place / "warehouse")
    with warehouse.lease() as token:
        warehouse.append("publish_log", [row], token)


def test_scheduled_runs_go_on_where_the_last_one_ended(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text("streams: {}\n")
    assert ask("pinned", tmp_path, NOON, NOON + MINUTE, "live") is None  # no plan yet: it waits
    schedules = publish(tmp_path, 4)
    ticks = [at for at, _ in instants_due.ticks(schedules, NOON - 60 * MINUTE, NOON)]
    # a run by hand or of a backfill is over its own interval, whatever was published
    assert ask("pinned", tmp_path, NOON - MINUTE, NOON, "other") == {
        "plan_version": 1,
        "from": "2026-01-01T11:59:00Z",
        "to": "2026-01-01T12:00:00Z",
    }
    published(tmp_path, ticks[0], ticks[2], True)
    published(tmp_path, ticks[2], ticks[5], False)
    assert ask("pinned", tmp_path, ticks[1], ticks[2], "live") == "covered"
    pinned_run = ask("pinned", tmp_path, ticks[2], ticks[3], "live")
    # from the last live run on to now, which is much later than two refreshes
    assert pinned_run["from"] == format_instant(ticks[2]) and pinned_run["live"] and pinned_run["late"]
    assert parse_instant(pinned_run["to"]) > ticks[-1]


@pytest.mark.parametrize(
    ("now", "last_end", "earliest", "latest", "begin"),
    [
        (NOON, None, None, None, NOON),
        (NOON + SECOND, None, None, None, NOON),
        (NOON + 60 * MINUTE - SECOND, None, None, None, NOON),
        (NOON + 60 * MINUTE, None, None, None, NOON + 60 * MINUTE),
        # after the session before, also one that ended late; one that was missed is not made up for
        (NOON + 30 * MINUTE, NOON, None, None, NOON),
        (NOON + 30 * MINUTE, NOON + 60 * MINUTE, None, None, NOON + 60 * MINUTE),
        (NOON + 30 * MINUTE, NOON - 120 * MINUTE, None, None, NOON),
        (NOON + 30 * MINUTE, None, NOON + 10 * MINUTE, None, NOON + 10 * MINUTE),
        (NOON + 30 * MINUTE, None, None, NOON, NOON),
        (NOON + 30 * MINUTE, None, None, NOON - SECOND, None),
    ],
)
def test_a_session_begins_with_its_period_of_the_clock(
    ask: Ask,
    tmp_path: Path,
    now: int,
    last_end: int | None,
    earliest: int | None,
    latest: int | None,
    begin: int | None,
) -> None:
    hour = 60 * MINUTE
    run = ask("sessions", tmp_path, hour, now, last_end, earliest, latest)
    assert run == (None if begin is None else [begin, begin - begin % hour + hour, begin])
