"""A warehouse that Heddle 0.1 wrote is upgraded, read, repaired, rolled back and gone on with by the code of today.

``fixtures/warehouse_0_1.tar.xz`` and what its commands said then (``answers_0_1.json``) were made by
``fixtures/make_warehouse.py``, which says what happened in it. Tasks run in this process; the judge of what is
published anew is DuckDB (:mod:`tests.oracle`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.workload.values import ACQ, AnswerTable
from spark_jobs.operations.upgrade import way_back
from spark_jobs.results import tables
from spark_jobs.results.connect import connect
from spark_jobs.results.frames import scan
from spark_jobs.results.read import read
from spark_jobs.results.table_upkeep import table_listings
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.registry import QueryEvent, registered
from spark_jobs.store.warehouse.registry import events as registered_events
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant
from tests import oracle
from tests.earlier_code import EarlierCode
from tests.in_process import Clock, Said, heddle, without_spark
from tests.spark_jobs.followed import wrong

FIXTURES = Path(__file__).parent / "fixtures"
SAID: dict[str, Any] = json.loads((FIXTURES / "answers_0_1.json").read_text())
MINUTE = 60_000_000
START = 1_372_716_000_000_000
"""2013-07-01T22:00:00Z, as in make_warehouse.py."""

FIRST, SECOND, THIRD = (
    ("2013-07-01T22:00:00Z", "2013-07-02T00:00:00Z"),
    ("2013-07-02T00:00:00Z", "2013-07-02T02:00:00Z"),
    ("2013-07-02T02:00:00Z", "2013-07-02T04:00:00Z"),
)
COLUMNS_1 = "69407660"
"""The last commit that stores partial aggregates as lists."""

REFUSED = {1900}
"""Ids of the events that came later than is allowed."""


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The warehouse, unpacked into the current folder, half an hour after the last that was done to it."""
    with tarfile.open(FIXTURES / "warehouse_0_1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    clock = Clock(START + 305 * MINUTE)
    with without_spark(clock):
        done("upgrade", "--apply", "--yes")
        yield clock


def done(*arguments: str, code: int = 0) -> dict[str, Any]:
    """What a command on the warehouse says as JSON."""
    completed: Said = heddle(*arguments, "--warehouse", "warehouse", "--json")
    assert completed.code == code, completed
    reply: dict[str, Any] = json.loads(completed.out)
    return reply


def write(clock: Clock, file: str, events: Sequence[tuple[int, int, str, float, int]]) -> None:
    """A file of a stream with (minute, id, symbol, price, volume), written now."""
    first = pq.read_table(Path(file).with_name("first.parquet")).schema
    rows = [dict(zip(first.names, (START + at * MINUTE, *values), strict=True)) for at, *values in events]
    pq.write_table(pa.Table.from_pylist(rows, first), file)
    os.utime(file, ns=(clock.now * 1000,) * 2)


def events(stream: str, refused: set[int]) -> pa.Table:
    """What a run takes in: all files' events, less those refused, of those with one id on a day the first."""
    rows, seen = [], set()
    for file in sorted(Path(stream).glob("*.parquet")):
        for row in pq.read_table(file).to_pylist():
            if stream == "orders":
                again = row["id"], row["ts"].date()
                if row["id"] in refused or again in seen:
                    continue
                seen.add(again)
            rows.append(row)
    return pa.Table.from_pylist(rows, pq.read_schema(f"{stream}/first.parquet"))


def planned() -> dict[str, ACQ]:
    house = Warehouse.open("warehouse", create=False)
    return {query.name: query for query in load_plan(house, current_version(house) or 0).workload.queries}


def differences(
    interval: tuple[str, str], refreshes: Sequence[str], refused: set[int] = REFUSED, names: Sequence[str] = ()
) -> list[str]:
    """What the answers of the plan's queries for an interval have other than the oracle. ``refreshes``: the instants at
    which the one query with a refresh bound is answered; ``names``: only these queries."""
    house = Warehouse.open("warehouse", create=False)
    begin, end = map(parse_instant, interval)
    lines = []
    for name, query in planned().items():
        if names and name not in names:
            continue
        refreshed_query = oracle.asked_at(query, list(map(parse_instant, refreshes))) if name == "bound" else query
        expected = oracle.answers(refreshed_query, events(query.stream, refused), "ts", begin, end)
        answers = read(house, name, begin, end)
        assert answers.num_rows == len(expected) > 0, (name, answers.num_rows, len(expected))
        lines += [f"{name}: {line}" for line in oracle.compare(query, answers, expected)]
    return lines


def refreshes(record: dict[str, Any]) -> list[str]:
    return [refresh["at"] for refresh in record["refreshes"]]


BEFORE = {interval: [refresh["at"] for refresh in run["refreshes"]] for run in SAID["status"]["runs"]
          for interval in [(run["begin"], run["end"])]}  # fmt: skip
"""Of each published interval the instants at which queries with a bound were answered."""


# ------------------------------------------------------------------------------------------------- as it is
@pytest.mark.parametrize("what", ["queries", "status", "quarantine"])
def test_it_says_what_it_said(clock: Clock, what: str) -> None:
    arguments = {"queries": ("queries", "--at", "2013-07-03")}.get(what, (what,))
    reply = done(*arguments)
    reply.pop("warehouse", None)
    assert reply == SAID[what]


def test_all_answers_are_read(clock: Clock) -> None:
    assert len(SAID["read"]) == 15 and sum(len(reply["rows"]) for reply in SAID["read"].values()) == 112
    assert {name: done("read", name) for name in SAID["read"]} == SAID["read"]


def test_its_queries_are_relations(clock: Clock) -> None:
    house = Warehouse.open("warehouse", create=False)
    connection = connect(house)
    for name in SAID["read"]:
        rows = sorted(map(str, read(house, name, full=True).to_pylist()))
        assert len(rows) == len(SAID["read"][name]["rows"]) > 0
        for table in (connection.sql(f'FROM "{name}"').to_arrow_table(), scan(house, name).collect().to_arrow()):
            schema = read(house, name, full=True).schema
            assert sorted(map(str, table.cast(schema).to_pylist())) == rows, name


def test_partial_aggregates_are_looked_up(clock: Clock) -> None:
    assert [[arguments, done("lookup", *arguments)] for arguments, _ in SAID["lookup"]] == SAID["lookup"]


def test_what_was_published_is_what_the_oracle_says(clock: Clock) -> None:
    """The newer interval: that before is outdated by a file which came later."""
    assert differences(SECOND, BEFORE[SECOND]) == []
    assert any(line.startswith("by_symbol") for line in differences(FIRST, BEFORE[FIRST], names=["by_symbol"]))


def test_a_run_again_finds_that_nothing_changed(clock: Clock) -> None:
    """Files that were moved and unpacked are the same files, and the hashes of plan and sources are as they were."""
    reply = done("backfill", "--from", SECOND[0], "--to", SECOND[1])
    assert [run["published"] for run in reply["runs"]] == [True] and "records" not in reply


# --------------------------------------------------------------------------------------------- gone on with
def test_late_files_are_repaired(clock: Clock) -> None:
    """The late one of the fixture, then one that comes now: only the first interval, then both."""
    paused, removed_answers = (SAID["read"][name] for name in ("paused", "gone"))
    reply = done("repair")
    assert [(record["begin"], record["narrow"]) for record in reply["records"]] == [(FIRST[0], False)]
    assert reply["records"][0]["revision"] == 2
    assert differences(FIRST, refreshes(reply["records"][0])) == []
    assert done("repair") == {"format_version": 1, "outdated": []}

    clock.now += 10 * MINUTE
    write(clock, "trades/later.parquet", [(55, 910, "B", 3.5, 7), (170, 911, "A", 4.25, 8)])
    reply = done("repair")
    assert [(record["begin"], record["narrow"]) for record in reply["records"]] == [(FIRST[0], True), (SECOND[0], True)]
    for interval, record in zip((FIRST, SECOND), reply["records"], strict=True):
        assert differences(interval, BEFORE[interval]) == [], record
    # who is in no plan any more keeps the answers of then
    assert (done("read", "paused"), done("read", "gone")) == (paused, removed_answers)


def test_what_was_refused_is_taken_in(clock: Clock) -> None:
    released = done("quarantine", "--release", "orders/late.parquet")["released"]
    assert [release["late"] for release in released] == [1]
    reply = done("repair")
    # minute 60 lies in windows of the first interval only
    assert FIRST[0] in [record["begin"] for record in reply["records"]]
    for record in reply["records"]:
        interval = record["begin"], record["end"]
        assert differences(interval, BEFORE[interval], refused=set()) == []
    assert done("quarantine")["refused"] == []


def test_the_first_plan_is_in_force_again(clock: Clock) -> None:
    assert planned().keys() - {"gone"} == planned().keys() and "wide" in planned()
    reply = done("rollback", "1", "--yes")
    assert (reply["from"], reply["to"], reply["version"]) == (4, 1, 5)
    assert set(reply["changes"]) == {"- query wide", "+ query gone", "~ query replaced (window)"}
    # what is paused stays paused
    assert set(planned()) == {query["query"] for query in SAID["queries"]["queries"]} - {"wide", "paused"}
    # what the late file outdated, then what was published by the plan of before
    repaired = done("repair")["records"]
    again = done("backfill", "--from", SECOND[0], "--to", SECOND[1])["records"]
    assert [(run["begin"], run["plan_version"]) for run in (*repaired, *again)] == [(FIRST[0], 5), (SECOND[0], 5)]
    for record in (*repaired, *again):
        assert differences((record["begin"], record["end"]), refreshes(record)) == []
    assert done("read", "wide")["rows"] == SAID["read"]["wide"]["rows"]


def test_the_next_interval_is_answered_with_what_is_resumed(clock: Clock) -> None:
    reply = done("resume", "paused")
    assert reply["queries"] == ["paused"] and reply["version"] == 5 and "paused" in planned()
    clock.now = START + 390 * MINUTE
    for stream in ("trades", "orders"):
        write(
            clock,
            f"{stream}/second.parquet",
            [(at, 2000 + at, "BA"[at % 2], at / 8, at % 6) for at in range(300, 360, 9)],
        )
    record = done("backfill", "--from", THIRD[0], "--to", THIRD[1])["records"][0]
    assert (record["status"], record["plan_version"], record["begin"]) == ("published", 5, THIRD[0])
    assert record["refused"] == {"orders": 1}
    assert differences(THIRD, refreshes(record)) == []
    assert differences(SECOND, BEFORE[SECOND], names=[*set(planned()) - {"paused"}]) == []
    assert done("status")["intervals_published"] == 3


def test_stored_partial_aggregates_are_used_again(clock: Clock) -> None:
    """Windows that reach back over what was published read of the sources the new interval alone, but for sums of
    doubles, which were not exact then: what those need of the former interval is lifted again."""
    clock.now = START + 390 * MINUTE
    record = done("backfill", "--from", THIRD[0], "--to", THIRD[1])["records"][0]
    begin, end = map(parse_instant, THIRD)
    assert record["scanned"] == {"trades": [begin - 90 * MINUTE, end, 15], "orders": [begin, end, 6]}
    assert (record["synopses_reused"], record["synopses"]) == (3, 7)
    assert differences(THIRD, refreshes(record)) == []


def test_plans_with_a_sequence_plan_are_gone_on_with(clock: Clock) -> None:
    """Each stored plan shares a piece of two patterns, and its fingerprint has that. No event is read again."""
    house = Warehouse.open("warehouse", create=False)
    stored = house.dataset("sharing_plans").to_table(["plan_version", "fingerprint", "row"]).to_pylist()
    for version in (1, 2, 3, 4):
        rows = [row for row in stored if row["plan_version"] == version]
        (sequence_plan,) = [plan_text for row in rows if (plan_text := json.loads(row["row"])["sequence_plan"])]
        assert [piece["queries"] for piece in json.loads(sequence_plan)["shared"]] == [["longer_pattern", "pattern"]]
        assert load_plan(house, version).fingerprint not in {row["fingerprint"] for row in rows}
    done("pause", *(name for name in planned() if name != "longer_pattern"))
    clock.now = START + 390 * MINUTE
    record = done("backfill", "--from", THIRD[0], "--to", THIRD[1])["records"][0]
    begin, end = map(parse_instant, THIRD)
    assert (record["status"], record["plan_version"]) == ("published", 5)
    # windows of an hour reach back over what was published
    assert [*record["scanned"]] == ["trades"] and record["scanned"]["trades"][:2] == [begin, end]
    assert differences(THIRD, []) == []


def test_ticks_follow_one_another(clock: Clock) -> None:
    first, second = (done("tick", "--at", f"2013-07-02T{at}") for at in ("03:10:00", "03:30:00"))
    assert (first["begin"], first["end"], first["live"]) == ("2013-07-02T01:00:00Z", "2013-07-02T02:00:00Z", True)
    assert (second["begin"], second["end"], second["late"]) == (first["end"], "2013-07-02T03:00:00Z", False)
    for record in (first, second):
        assert differences((record["begin"], record["end"]), refreshes(record), names=["by_symbol", "bound"]) == []
    assert done("tick", "--at", "2013-07-02T03:31:00")["status"] == "nothing due"


@pytest.mark.longer
def test_code_of_then_goes_on_after_the_upgrade_is_taken_back(clock: Clock, tmp_path: Path) -> None:
    """Today's code publishes an interval, then what ``heddle upgrade`` says is done, then code of then goes on."""
    clock.now = START + 390 * MINUTE
    done("backfill", "--from", THIRD[0], "--to", THIRD[1])
    printed = done("read", "by_symbol")
    warehouse = tmp_path / "warehouse"
    _, _, script = way_back(Warehouse.open(warehouse)).partition("\n")
    subprocess.run([sys.executable, "-c", script], check=True)
    (warehouse / "heddle.json.1").replace(warehouse / "heddle.json")
    earlier = EarlierCode.of(COLUMNS_1)
    later = ("2013-07-02T04:00:00Z", "2013-07-02T06:00:00Z")
    clock.now = START + 490 * MINUTE
    write(clock, "trades/third.parquet", [(at, 3000 + at, "BA"[at % 2], at / 8, at % 6) for at in range(370, 480, 9)])
    place = ("--warehouse", "warehouse")
    answers, run = earlier.run(
        clock.now, ["read", "by_symbol", *place], ["backfill", "--from", later[0], "--to", later[1], *place]
    )
    assert answers["rows"] == printed["rows"]
    assert run["records"][0]["status"] == "published"
    assert differences(later, refreshes(run["records"][0]), names=["by_symbol"]) == []


def test_queries_of_then_may_have_tables_now(clock: Clock) -> None:
    """Of all answers, those of before definitions had fingerprints too."""
    house = Warehouse.open("warehouse")
    known = registered(registered_events(house))
    tabled = [replace(state.query, table=AnswerTable(name, True)) for name, state in known.items() if not state.removed]
    now = max(event.at for event in registered_events(house)) + 1
    rows = [QueryEvent.of(query, "replaced", now, 1, "").to_row() for query in tabled]
    with house.lease() as token:
        house.append("workload_queries", rows, token)
    assert tables.follow(house) == [] and wrong(house) == []
    assert len(tables.table_requests(house)) == len(tabled) > 3
    read_then = {query.name: len(read(house, query.name)) for query in tabled}
    assert sum(read_then.values()) > 100
    assert {listing.query: listing.rows for listing in table_listings(house, ())} == read_then
