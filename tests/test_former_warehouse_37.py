"""Read, repair, roll back and continue warehouses that the code before issues 37, 39, 40, 41 and 42 wrote.

``fixtures/make_warehouse_37.py`` describes the history of the warehouses. Tasks run in this process, and DuckDB judges
what is published again (:mod:`tests.oracle`).
"""

from __future__ import annotations

import json
import math
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.workload.values import ACQ
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant
from tests import oracle
from tests.earlier_code import EarlierCode
from tests.fixtures.history_37 import (
    COUNTRY,
    FIRST,
    HAS_VENUE,
    INTERVALS,
    LATE_ORDERS,
    LATE_TRADES,
    MINUTE,
    PENDING,
    REFUSED,
    SCHEMAS,
    SECOND,
    START,
    VENUES,
    Written,
    clicks,
    orders,
    readings,
    trades,
    write_venues,
)
from tests.in_process import Clock, heddle, without_spark
from tests.spark_jobs.followed import wrong

FIXTURES = Path(__file__).parent / "fixtures"
ISSUES = ("37", "39", "40", "41", "42")
SAID: dict[str, dict[str, Any]] = {
    issue: json.loads((FIXTURES / f"answers_{issue}.json").read_text()) for issue in ISSUES
}
"""What commands printed of the warehouses, by the issue before which each was written."""

MOMENTS = {name for name, one in AGGREGATES.items() if {"sum_squares", "both_x"} & set(one.kinds)}
NEXT = ("2013-07-02T04:00:00Z", "2013-07-02T06:00:00Z")
"""The interval after those of the fixture."""

BEFORE_UPGRADES = "d80ed804"
"""The last commit without ``heddle upgrade``."""

BEFORE_SEVERAL_WINDOWS = "4d4e3097"
"""The last commit without queries over several windows, and with dimensions."""

KNOWN = (*FIRST, LATE_TRADES, LATE_ORDERS, *SECOND, PENDING)
BEFORE = {
    (run["begin"], run["end"]): [refresh["at"] for refresh in run["refreshes"]] for run in SAID["37"]["status"]["runs"]
}
"""The instants of each published interval at which queries with a bound were answered, in both warehouses."""

THIRD_FILES = (
    Written(490, "trades", "third.parquet", trades(range(370, 490, 10))),
    Written(490, "orders", "third.csv", orders(range(375, 490, 15))),
    Written(490, "clicks", "", clicks(range(372, 490, 12))),
    Written(490, "readings", "third.csv", readings(range(375, 490, 15))),
)
LATE_FILES = (
    Written(415, "trades", "later.parquet", trades([95])),
    Written(415, "orders", "later.csv", [*orders([355], 9000), *orders([345])]),
    Written(415, "clicks", "", clicks([200])),
    Written(415, "readings", "later.csv", readings([290])),
)


def unpacked(issue: str, name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpack one of the two projects of an issue and make it the current folder."""
    with tarfile.open(FIXTURES / f"warehouse_{issue}.tar.xz") as archive:
        members = [member for member in archive.getmembers() if member.name.partition("/")[0] == name]
        archive.extractall(place, members, filter="data")
    monkeypatch.chdir(place / name / "project")
    # one stream is declared by an absolute path, which is corrected as whoever moves a project corrects it
    text, old = Path("streams.yaml").read_text(), f"{SAID[issue]['place']}/{name}/landing/readings"
    assert text.count(old) == 1
    Path("streams.yaml").write_text(text.replace(old, str(Path("../landing/readings").resolve())))


@pytest.fixture(params=["37", *(pytest.param(each, marks=pytest.mark.longer) for each in ("39", "40", "41")), "42"])
def issue(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def clock(issue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The project with relative paths as the current folder, ten minutes after the last run."""
    unpacked(issue, "here", tmp_path, monkeypatch)
    clock = Clock(START + 410 * MINUTE)
    with without_spark(clock):
        yield clock


def done(*arguments: str, code: int = 0) -> dict[str, Any]:
    """Run a command on the project in the current folder; its JSON."""
    completed = heddle(*arguments, "--json")
    assert completed.code == code, completed
    reply: dict[str, Any] = json.loads(completed.out)
    return reply


def arrived(*files: Written) -> None:
    for file in files:
        file.write(Path("../landing/readings") if file.stream == "readings" else Path("data", file.stream))


def events(
    stream: str, files: Sequence[Written], refused: set[int] = REFUSED, countries: Mapping[str, str] = VENUES
) -> pa.Table:
    """The events that a run reads: those of all files, without the refused, the first of each id of a day.

    ``countries``: those of the venues, of which trades have their own as a joined column.
    """
    tables = [file.table() for file in sorted(files, key=lambda file: file.file) if file.stream == stream]
    if stream == "trades":
        joined = [countries.get(venue) for venue in pa.concat_tables(tables)["venue"].to_pylist()]
        has_row = [country is not None for country in joined]
        return (
            pa.concat_tables(tables)
            .append_column(COUNTRY, pa.array(joined, pa.string()))
            .append_column(HAS_VENUE, pa.array(has_row))
        )
    if stream != "orders":
        return pa.concat_tables(tables)
    rows, seen = [], set()
    for row in pa.concat_tables(tables).to_pylist():
        again = row["id"], row["at"].date()
        if row["id"] not in refused and again not in seen:
            seen.add(again)
            rows.append(row)
    return pa.Table.from_pylist(rows, tables[0].schema)


def planned() -> dict[str, ACQ]:
    house = Warehouse.open("warehouse", create=False)
    return {query.name: query for query in load_plan(house, current_version(house) or 0).workload.queries}


def published_before(query: ACQ, row: oracle.Row) -> oracle.Row:
    """What an answer may be that was published before moments of exact numbers were rounded once: off by some bits."""
    cells = []
    for output, cell in zip(query.outputs, row, strict=True):
        if output.function in MOMENTS and isinstance(cell.value, float) and cell.low is None:
            bound = abs(cell.value) * 1e-12
            cell = replace(cell, low=cell.value - bound, high=cell.value + bound)
        cells.append(cell)
    former = oracle.Row(cells)
    former.__dict__.update(row.__dict__)
    return former


def differences(
    interval: tuple[str, str],
    refreshes: Sequence[str],
    files: Sequence[Written],
    names: Sequence[str] = (),
    refused: set[int] = REFUSED,
    countries: Mapping[str, str] = VENUES,
) -> list[str]:
    """Differences between the published answers of an interval and those of the oracle over some files.

    ``refreshes``: the instants at which the query with a refresh bound is answered; ``names``: only these queries.
    """
    house = Warehouse.open("warehouse", create=False)
    begin, end = map(parse_instant, interval)
    lines, compared = [], 0
    for name, query in planned().items():
        if names and name not in names:
            continue
        refreshed_query = oracle.asked_at(query, list(map(parse_instant, refreshes))) if name == "bound" else query
        time = SCHEMAS[query.stream].names[0]
        answered = oracle.answers(refreshed_query, events(query.stream, files, refused, countries), time, begin, end)
        expected = {key: published_before(query, row) for key, row in answered.items()}
        answers = read(house, name, begin, end)
        compared += answers.num_rows
        if answers.num_rows != len(expected):
            lines.append(f"{name}: {answers.num_rows} answers, expected {len(expected)}")
        lines += [f"{name}: {line}" for line in oracle.compare(query, answers, expected)]
    assert compared
    return lines


def refreshes(record: dict[str, Any]) -> list[str]:
    return [refresh["at"] for refresh in record["refreshes"]]


def intervals(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The intervals that a repair published again."""
    return [(record["begin"], record["end"]) for record in found.get("records", [])]


def has(now: Any, before: Any, tolerance: float = 0.0) -> bool:
    """Whether a JSON value has all that it had: objects may have further keys, and doubles may differ a little."""
    if isinstance(before, dict):
        keys = isinstance(now, dict) and before.keys() <= now.keys()
        return keys and all(has(now[key], value, tolerance) for key, value in before.items())
    if isinstance(before, list):
        lists = isinstance(now, list) and len(now) == len(before)
        return lists and all(has(*pair, tolerance) for pair in zip(now, before, strict=True))
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(now, before, rel_tol=tolerance)
    return bool(now == before)


# --------------------------------------------------------------------------------------------------- read
@pytest.mark.parametrize("what", ["queries", "status", "quarantine"])
def test_commands_print_what_they_printed(issue: str, clock: Clock, what: str) -> None:
    printed = done(*{"queries": ("queries", "--at", "2013-07-03")}.get(what, (what,)))
    assert has(printed, SAID[issue][what]), printed


def test_all_answers_are_read(issue: str, clock: Clock) -> None:
    answers = SAID[issue]["read"]
    assert (
        len(answers) == {"37": 16, "42": 20}.get(issue, 18)
        and sum(len(reply["rows"]) for reply in answers.values()) > 200
    )
    assert all(has(done("read", name), reply) for name, reply in answers.items())


def test_partial_aggregates_are_looked_up(issue: str, clock: Clock) -> None:
    assert len(SAID[issue]["lookup"]) == 3
    # the last bits of a double are those of today's arithmetic
    assert all(has(done("lookup", *words), reply, 1e-12) for words, reply in SAID[issue]["lookup"])


def test_published_answers_equal_the_oracle(clock: Clock) -> None:
    """Each interval over the files of its time."""
    first = [name for name in planned() if name not in ("spread", "phases")]
    files = (*FIRST, LATE_TRADES)
    assert differences(INTERVALS[0], BEFORE[INTERVALS[0]], files, first) == []
    files = (*files, LATE_ORDERS)
    assert differences(INTERVALS[1], BEFORE[INTERVALS[1]], files) == []
    files = (*files, *SECOND)
    assert differences(INTERVALS[2], BEFORE[INTERVALS[2]], files) == []


def test_a_run_again_finds_that_nothing_changed(clock: Clock) -> None:
    reply = done("backfill", "--from", INTERVALS[2][0], "--to", INTERVALS[2][1])
    assert [run["published"] for run in reply["runs"]] == [True] and "records" not in reply


# ----------------------------------------------------------------------------------------------- continued
def test_late_files_are_repaired(clock: Clock) -> None:
    """The file that was pending, then one of each stream."""
    reply = done("repair")
    assert intervals(reply) == [INTERVALS[1]]
    assert differences(INTERVALS[1], BEFORE[INTERVALS[1]], KNOWN) == []
    assert done("repair") == {"format_version": 1, "outdated": []}

    clock.now = START + 416 * MINUTE
    arrived(*LATE_FILES)
    reply = done("repair")
    assert intervals(reply) == list(INTERVALS)
    files = (*KNOWN, *LATE_FILES)
    first = [name for name in planned() if name not in ("spread", "phases")]
    assert differences(INTERVALS[0], BEFORE[INTERVALS[0]], files, first) == []
    for interval in INTERVALS[1:]:
        assert differences(interval, BEFORE[interval], files) == []
    assert done("repair") == {"format_version": 1, "outdated": []}
    assert wrong(Warehouse.open("warehouse", create=False)) == []


@pytest.mark.parametrize("issue", ["42"], indirect=True)
def test_a_changed_dimension_revises_what_was_joined(clock: Clock) -> None:
    """The venue Y moves, Z gets a country; only queries that join the dimension are revised, and no other interval."""
    done("repair")
    clock.now = START + 416 * MINUTE
    moved = {**VENUES, "Y": "DE", "Z": "US"}
    write_venues(moved, 415)
    assert intervals(done("repair")) == list(INTERVALS)
    first = [name for name in planned() if name not in ("spread", "phases")]
    files = (*FIRST, LATE_TRADES)
    assert differences(INTERVALS[0], BEFORE[INTERVALS[0]], files, ["by_country", "abroad"], countries=moved) == []
    for interval in INTERVALS:
        names = first if interval == INTERVALS[0] else ()
        assert differences(interval, BEFORE[interval], KNOWN, names, countries=moved) == [], interval
    assert done("repair") == {"format_version": 1, "outdated": []}


def test_refused_events_are_released(clock: Clock) -> None:
    released = done("quarantine", "--release", "data/orders/late.csv")["released"]
    assert [release["late"] for release in released] == [1]
    reply = done("repair")
    assert INTERVALS[0] in intervals(reply)
    for interval in intervals(reply):
        names = [name for name in planned() if interval != INTERVALS[0] or name not in ("spread", "phases")]
        assert differences(interval, BEFORE[interval], KNOWN, names, refused=set()) == []
    assert done("quarantine")["refused"] == []


def test_the_next_interval_is_published(clock: Clock) -> None:
    """Windows that reach back combine stored partials with new ones."""
    arrived(*THIRD_FILES)
    clock.now = START + 500 * MINUTE
    record = done("backfill", "--from", NEXT[0], "--to", NEXT[1])["records"][0]
    assert (record["status"], record["plan_version"], record["revision"]) == ("published", 2, 1)
    assert record["refused"] == {"orders": 1} and record["failed"] == []
    assert differences(NEXT, refreshes(record), (*KNOWN, *THIRD_FILES)) == []
    assert done("status")["intervals_published"] == 4
    assert wrong(Warehouse.open("warehouse", create=False)) == []


def test_stored_partial_aggregates_are_used_again(issue: str, clock: Clock) -> None:
    """Windows reach back, but only events of the new interval are read.

    Before issue 37 sums of doubles had another form, and ``pages`` has none of them. Windows of rows are left out: new
    files number their rows again.
    """
    plain = [name for name, query in planned().items() if not query.window.is_rows and name != "bound"]
    names = {"37": ["pages"]}.get(issue, plain)
    arrived(*THIRD_FILES)
    done("pause", *(name for name in planned() if name not in names))
    clock.now = START + 500 * MINUTE
    record = done("backfill", "--from", NEXT[0], "--to", NEXT[1])["records"][0]
    begin, end = map(parse_instant, NEXT)
    for stream, span in record["scanned"].items():
        times = pc.cast(events(stream, (*KNOWN, *THIRD_FILES))[0], pa.int64())
        count = pc.sum(pc.and_(pc.greater_equal(times, begin), pc.less(times, end))).as_py()
        assert span == [begin, end, count], stream
    assert set(record["scanned"]) == {planned()[name].stream for name in names}
    assert differences(NEXT, [], (*KNOWN, *THIRD_FILES), names) == []


def test_the_first_plan_is_in_force_again(issue: str, clock: Clock) -> None:
    reply = done("rollback", "1", "--yes")
    assert (reply["from"], reply["to"], reply["version"]) == (2, 1, 3)
    assert set(reply["changes"]) == {"- query spread", "- query phases"}
    assert set(planned()) == set(SAID[issue]["read"]) - {"spread", "phases"}
    assert intervals(done("repair")) == [INTERVALS[1]]
    again = done("backfill", "--from", INTERVALS[2][0], "--to", INTERVALS[2][1])
    assert [record["plan_version"] for record in again["records"]] == [3]
    for interval in INTERVALS:
        assert differences(interval, BEFORE[interval], KNOWN) == []
    assert has(done("read", "spread"), SAID[issue]["read"]["spread"])


# ---------------------------------------------------------------------------------------------- rolled back
@pytest.mark.longer
def test_the_code_of_before_goes_on_where_this_one_wrote(issue: str, clock: Clock) -> None:
    """This code publishes an interval, the code of before repairs all, then this code finds no fault."""
    assert done("upgrade", "--apply")["steps"] == []
    arrived(*THIRD_FILES)
    clock.now = START + 500 * MINUTE
    record = done("backfill", "--from", NEXT[0], "--to", NEXT[1])["records"][0]
    names = sorted(planned())
    printed = [done("read", name) for name in names]
    earlier = EarlierCode.of(BEFORE_SEVERAL_WINDOWS if issue == "42" else BEFORE_UPGRADES)
    status, *answers = earlier.run(clock.now, ["status"], *(["read", name] for name in names))
    assert status["intervals_published"] == 4 and answers == printed
    clock.now += 10 * MINUTE
    arrived(*LATE_FILES)
    (reply,) = earlier.run(clock.now, ["repair"])
    assert intervals(reply) == [*INTERVALS, NEXT]
    files, at = (*KNOWN, *THIRD_FILES, *LATE_FILES), {**BEFORE, NEXT: refreshes(record)}
    first = [name for name in names if name not in ("spread", "phases")]
    for interval in (*INTERVALS, NEXT):
        assert differences(interval, at[interval], files, first if interval == INTERVALS[0] else ()) == [], interval
    clock.now += 10 * MINUTE
    assert done("repair") == {"format_version": 1, "outdated": []}
    assert wrong(Warehouse.open("warehouse", create=False)) == []


# --------------------------------------------------------------------------------------------------- moved
@pytest.fixture(
    params=[
        "37 moved",
        "37 here",
        *(pytest.param(f"{issue} moved", marks=pytest.mark.longer) for issue in ("39", "40", "41", "42")),
    ]
)
def moved(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A project at another place than its plans and ledger say, ten minutes after its last run.

    ``moved``: they have absolute paths of a folder that does not exist; ``here``: they have relative ones, and the
    commands below resolve those of ``streams.yaml``.
    """
    unpacked(*request.param.split(), tmp_path, monkeypatch)
    clock = Clock(START + 410 * MINUTE)
    with without_spark(clock):
        yield clock


def run(interval: tuple[str, str], *options: str) -> dict[str, Any]:
    """``heddle run`` by the files of the project; the record of its run."""
    rates = [word for stream in SCHEMAS for word in ("--rate", f"{stream}=1")]
    return done("run", *rates, "--algorithm", "weave-share", *options, "--from", interval[0], "--to", interval[1])


def touched(folder: Path) -> None:
    """Give data files another time, as ``cp -r`` does."""
    for file in folder.rglob("*.*"):
        if "_delta_log" not in file.parts:
            os.utime(file)


def nothing_is_late(record: dict[str, Any]) -> None:
    """The run reports no late events and refuses nothing that was not refused before."""
    assert not (record["radius"] or {}).get("rows"), record["radius"]
    assert record["refused"] == {"orders": 1}
    assert sum(refusal["late"] for refusal in done("quarantine")["refused"]) == 1


@pytest.mark.parametrize("how", ["moved with times", "copied without times"])
def test_a_moved_project_goes_on(moved: Clock, how: str) -> None:
    """The next interval reads its own events, reports no other as late, and equals the oracle."""
    if how == "copied without times":
        touched(Path("data"))
        touched(Path("../landing"))
    arrived(*THIRD_FILES)
    moved.now = START + 500 * MINUTE
    record = run(NEXT)
    assert (record["status"], record["failed"]) == ("published", [])
    nothing_is_late(record)
    assert differences(NEXT, refreshes(record), (*KNOWN, *THIRD_FILES)) == []
    # what was late before the project moved is repaired, and nothing else
    reply = done("repair")
    assert intervals(reply) == [INTERVALS[1]]
    assert differences(INTERVALS[1], BEFORE[INTERVALS[1]], KNOWN) == []
    assert done("repair") == {"format_version": 1, "outdated": []}


def test_a_moved_project_finds_that_nothing_changed(moved: Clock) -> None:
    """The plan of the same queries is the stored one, whose fingerprint has what its patterns share."""
    assert run(INTERVALS[2])["status"] == "unchanged"
    assert current_version(Warehouse.open("warehouse", create=False)) == 2


def test_late_files_of_a_moved_project_are_repaired(moved: Clock) -> None:
    """Late files arrive after the move. Where ``streams.yaml`` declares another path, a run is the first command."""
    if Path.cwd().parent.name == "moved":
        run(INTERVALS[2])
    moved.now = START + 416 * MINUTE
    arrived(*LATE_FILES)
    assert intervals(done("repair")) == list(INTERVALS)
    first = [name for name in planned() if name not in ("spread", "phases")]
    for interval in INTERVALS:
        names = first if interval == INTERVALS[0] else ()
        assert differences(interval, BEFORE[interval], (*KNOWN, *LATE_FILES), names) == []


def test_a_moved_project_is_rolled_back(moved: Clock) -> None:
    """The restored plan reads the files at their new place."""
    run(INTERVALS[2])
    done("rollback", "1", "--yes")
    assert intervals(done("repair")) == [INTERVALS[1]]
    assert differences(INTERVALS[1], BEFORE[INTERVALS[1]], KNOWN) == []
