"""Rows that are deleted from a source leave everything that a warehouse has, or are named with a date.

A person's rows carry a text that nothing else has. After a generated history, their deletion from the source, a repair
and `heddle maintain --erase`, every file below the warehouse is searched for it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.in_process import Clock, heddle, without_spark
from tests.sizes import examples

PERSON = "zqx-person-zqx"
BEGIN = 1_372_636_800_000_000
MINUTE = 60_000_000

STREAMS = """
streams:
  trades:
    source: {{format: {format}, path: trades{id}}}
    schema: {{ts: timestamp, customer: string, price: double, kind: string}}
    time: ts
"""
QUERIES = """
-- name: per_customer
-- table: per_customer, change data feed
SELECT customer, count(*) AS n, sum(price) AS s FROM trades
WINDOW RANGE '20 minutes' SLIDE '{slide} minutes' ON ts GROUP BY customer;
-- name: others
-- table: others
SELECT kind, count(DISTINCT customer) AS d, first(customer) AS f, max_by(customer, price) AS m, mode(customer) AS o
FROM trades WINDOW RANGE '30 minutes' SLIDE '10 minutes' ON ts GROUP BY kind;
-- name: sets
SELECT top_k(customer, 3) AS t, collect_set(customer, 9) AS c, approx_top_k(customer, 3) AS a
FROM trades WINDOW RANGE '30 minutes' SLIDE '30 minutes' ON ts;
-- name: ever
SELECT customer, count(*) AS n, last(customer) AS l FROM trades WINDOW RANGE UNBOUNDED SLIDE '15 minutes' ON ts
GROUP BY customer;
-- name: counted
SELECT min(customer) AS low, max(customer) AS high FROM trades WINDOW ROWS 10 SLIDE 10 ON ts;
"""


class Project:
    """A folder with a source, queries and a warehouse."""

    def __init__(self, place: Path, format: str) -> None:
        self.place, self.format = place, format
        (place / "streams.yaml").write_text(STREAMS.format(format=format, id=""))
        (place / "heddle.toml").write_text('warehouse = "house"\nstreams = "streams.yaml"\nworkload = "q.sql"\n')
        self.define(10)

    def define(self, slide: int) -> None:
        (self.place / "q.sql").write_text(QUERIES.format(slide=slide))

    def write(self, name: str, rows: pa.Table) -> None:
        folder = self.place / "trades"
        folder.mkdir(exist_ok=True)
        if self.format == "delta":
            write_deltalake(str(folder), rows, mode="append")
        elif self.format == "csv":
            pv.write_csv(
                rows.set_column(0, "ts", pc.strftime(rows["ts"], "%Y-%m-%dT%H:%M:%SZ")), folder / f"{name}.csv"
            )
        else:
            pq.write_table(rows, folder / f"{name}.parquet")

    def delete(self, name: str, rows: pa.Table) -> None:
        """Delete the person: by a statement, or by the same file without the rows."""
        if self.format == "delta":
            DeltaTable(str(self.place / "trades")).delete(f"customer = '{PERSON}'")
        else:
            self.write(name, rows.filter(pc.not_equal(rows["customer"], PERSON)))

    def held(self) -> set[str]:
        """The files of the warehouse that have the person in them, by their paths."""
        files_with_person = set()
        house = self.place / "house"
        for file in house.rglob("*"):
            if file.is_file() and (PERSON.encode() in file.read_bytes() or PERSON in text_of(file)):
                files_with_person.add(str(file.relative_to(house)))
        return files_with_person


def text_of(file: Path) -> str:
    """What a Parquet file says, uncompressed."""
    return str(pq.ParquetFile(file).read().to_pydict()) if file.suffix == ".parquet" else ""


def events(of_person: list[int]) -> pa.Table:
    rows = [
        (minute * MINUTE + 30_000_000, f"c{minute % 4}", float(minute % 5), "ab"[minute % 2]) for minute in range(90)
    ]
    rows += [(minute * MINUTE, PERSON, 9.5 - minute % 3, "ab"[minute % 2]) for minute in of_person]
    columns = zip(*sorted(rows), strict=True)
    table = pa.table(dict(zip(("ts", "customer", "price", "kind"), map(list, columns), strict=True)))
    return table.set_column(0, "ts", pa.array([BEGIN + at for at, *_ in sorted(rows)], pa.timestamp("us", "UTC")))


def done(*arguments: str) -> str:
    completed = heddle(*arguments)
    assert completed.code in (0, 1), completed
    return completed.out


def erased(retention: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done("maintain", "--erase", "--retention", retention, "--json"))
    return report


def dated(found: dict[str, Any]) -> set[str]:
    return {file for holder in found["holders"] if holder["until"] for file in holder["files"]}


HISTORIES = st.fixed_dictionaries(
    {
        "format": st.sampled_from(["parquet", "csv", "delta"]),
        "of_person": st.lists(st.integers(0, 89), min_size=1, max_size=5),
        "redefined": st.booleans(),
        "absent": st.sampled_from(["", "pause", "remove"]),
        "quoted": st.booleans(),
    }
)


@settings(max_examples=examples(1, 20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
@example(history={"format": "csv", "of_person": [7, 25], "redefined": True, "absent": "remove", "quoted": True})
@example(history={"format": "delta", "of_person": [0, 71, 89], "redefined": False, "absent": "pause", "quoted": False})
def test_deleted_rows_leave_everything_or_are_named_with_a_date(
    history: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("erased")
    project, rows = Project(place, history["format"]), events(history["of_person"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        # files have another clock than runs here
        with without_spark(Clock(time.time_ns() // 1000 - 86_400_000_000)):
            play(project, rows, history)
            assert project.held()
            if not history["absent"] and not history["quoted"]:
                # what is of the source as it is stays
                report = erased("7 days")
                assert (report["rows_of_changed_sources"], report["texts_erased"]) == (0, 0)
            project.delete("day", rows)
            done("repair")
        assert project.held() <= dated(erased("7 days")) | unrepaired(project)
        check_nothing_is_held(project, history)


def play(project: Project, rows: pa.Table, history: dict[str, Any]) -> None:
    """What is done with the person's rows before they are deleted."""
    project.write("day", rows)
    assert heddle("run", "--from", "2013-07-01", "--to", "2013-07-01T01:00").code == 0
    if history["redefined"]:
        project.define(5)
    done("run", "--from", "2013-07-01T01:00", "--to", "2013-07-01T02:00")
    if history["quoted"] and project.format == "csv":
        bad = project.place / "trades" / "late.csv"
        bad.write_text(f"ts,customer,price,kind\n2013-07-01T01:10:00Z,a,{PERSON},a\n")
        done("run", "--from", "2013-07-01T01:00", "--to", "2013-07-01T02:00", "--recompute")
        bad.unlink()
    if history["absent"]:
        done(history["absent"], "sets", "--yes") if history["absent"] == "remove" else done("pause", "sets")


def unrepaired(project: Project) -> set[str]:
    """Files of answers that no run answers any more, which a remedy names, not a date."""
    house = Warehouse.open(project.place / "house")
    return {f"results/{file['path']}" for file in house.files("results", "", "9")}


def check_nothing_is_held(project: Project, history: dict[str, Any]) -> None:
    report = erased("0 days")
    remedies = [holder["remedy"] for holder in report["holders"] if not holder["until"]]
    if history["absent"]:
        with without_spark(Clock(time.time_ns() // 1000 - 3_600_000_000)):
            if history["absent"] == "remove":
                assert remedies == ["heddle remove sets --with-answers"]
                done("remove", "sets", "--with-answers", "--yes")
            else:
                assert remedies == ["heddle resume sets, and the heddle backfill that it names"]
                for first, last in json.loads(done("resume", "sets", "--json"))["unanswered"]["sets"]:
                    done("backfill", "--from", first, "--to", last)
    else:
        assert not remedies
    last = erased("0 days")
    assert last["rows_of_changed_sources"] == 0 and not [holder for holder in last["holders"] if not holder["until"]]
    assert project.held() == set()
