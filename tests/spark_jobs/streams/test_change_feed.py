"""A Delta table's change data feed: exactly the windows of rows that changed are answered again, and all are right."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.windows.alignment import instants, starts_of
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.streams.sources import change_feed
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.ledger import ledger
from spark_jobs.streams.sources.splits import snapshot_token
from tests.sizes import examples
from tests.spark_jobs.laboratory import ARROW, DAY, MINUTE, Event, outdated, table_of
from tests.spark_jobs.streams.feed import LATER, Feed

HOUR = 60
"""Minutes."""

DAYS = 3
END = DAYS * 24 * HOUR

QUERIES = """
-- name: by_symbol
SELECT symbol, count(*) AS n, sum(volume) AS total, min(price) AS low, max(price) AS high
FROM trades WINDOW RANGE '10 hours' SLIDE '4 hours' ON ts GROUP BY symbol;
-- name: all
SELECT count(price) AS priced, sum(price) AS money
FROM trades WINDOW RANGE '30 hours' SLIDE '6 hours' ON ts WHERE volume > 0;
"""
NUMBERED = "-- name: numbered\nSELECT sum(volume) AS total FROM trades WINDOW ROWS 5 SLIDE 3 ON ts;\n"

TABLE = pa.schema([*ARROW, pa.field("id", pa.int64())])
ON = {"delta.enableChangeDataFeed": "true"}


def events(hours: Sequence[float], first: int = 0) -> pa.Table:
    """Events at some hours, each with an id of its own."""
    rows: list[Event] = [
        (hour * HOUR, "AB"[(first + number) % 2], 100.0 + number % 7, 1 + number % 5)
        for number, hour in enumerate(hours)
    ]
    return table_of(rows).append_column("id", pa.array(range(first, first + len(rows)), pa.int64()))


@dataclass
class FedTable:
    """A Delta table of three days, its stream, its warehouse, and the times of all rows that were changed."""

    feed: Feed
    parts: list[str] | None = None
    is_on: bool = True
    changed: set[int] = field(default_factory=set)
    next_id: int = 0

    @property
    def path(self) -> str:
        return str(self.feed.folder)

    def append(self, hours: Sequence[float], **how: Any) -> None:
        new_events = events(hours, self.next_id)
        self.next_id += len(hours)
        how = {"mode": "append"} | how
        configuration = ON if self.is_on and not DeltaTable.is_deltatable(self.path) else None
        write_deltalake(self.path, new_events, partition_by=self.parts, configuration=configuration, **how)

    def rows(self) -> pa.Table:
        return DeltaTable(self.path).to_pyarrow_table().select(TABLE.names).cast(TABLE).sort_by("id")

    def watched(self, change: Any) -> None:
        """Do something to the table, and note the times of the rows that it changes."""
        before = self.counted()
        change()
        after = self.counted()
        self.changed |= {row[0] for row in ((before - after) + (after - before))}

    def counted(self) -> Counter[Any]:
        rows = self.rows()
        columns = [rows["ts"].cast(pa.int64()), *(rows[name] for name in TABLE.names[1:])]
        return Counter(zip(*(column.to_pylist() for column in columns), strict=True))

    def run(self, version: int, day: int, run_id: str) -> RunRecord:
        return self.feed.run(version, day * 24 * HOUR, (day + 1) * 24 * HOUR, run_id)

    def repaired(self, version: int, run_id: str) -> list[RunRecord]:
        """What the repairs of all that is outdated recorded."""
        stale = outdated(self.feed.warehouse, LATER)
        return [
            self.run(version, (interval.begin - DAY) // (24 * HOUR * MINUTE), f"{run_id} {interval.begin}")
            for interval in stale
        ]

    def wrong(self, version: int) -> list[str]:
        return self.feed.wrong(version, 0, END, self.rows())

    def touched(self, version: int) -> dict[str, set[float]]:
        """The windows (by their ends in minutes) of each query of times that hold a row which changed."""
        times, touched_ends = np.array(sorted(self.changed)), {}
        for query in load_plan(self.feed.warehouse, version).workload.queries:
            if query.window.is_rows:
                continue
            at = instants(query.window, DAY, DAY + END * MINUTE)
            hit = np.searchsorted(times, starts_of(query.window, at)) < np.searchsorted(times, at)
            touched_ends[query.name] = set(((at[hit] - DAY) / MINUTE).tolist())
        return touched_ends


def fed(engine: Any, folder: Path, files: Sequence[Sequence[float]], **options: Any) -> FedTable:
    table = FedTable(Feed(engine, folder, "delta"), **options)
    for hours in files:
        table.append(hours)
    return table


def published(table: FedTable, text: str = QUERIES) -> int:
    version = table.feed.plan(text)
    for day in range(DAYS):
        table.run(version, day, f"first {day}")
    assert table.wrong(version) == []
    return version


def numbered(ids: Sequence[int]) -> str:
    return f"id IN ({', '.join(map(str, ids))})"


def update(table: FedTable, *ids: int) -> None:
    table.watched(lambda: DeltaTable(table.path).update(predicate=numbered(ids), updates={"volume": "volume + 1"}))


EVERY_TWO_HOURS = [range(first, 72, 2) for first in (0, 1)]


# ------------------------------------------------------------------------------------------- one change
def test_one_row_of_three_days(engine: Any, tmp_path: Path) -> None:
    """Of files of three days one row is updated: its windows, and the partial aggregates of its day."""
    windows_and_hours = {}
    for is_on in (True, False):
        (folder := tmp_path / str(is_on)).mkdir()
        table = fed(engine, folder, EVERY_TWO_HOURS, is_on=is_on)
        version = published(table)
        update(table, 15)  # at 30:00, on the second day
        records = table.repaired(version, "after")
        assert table.wrong(version) == [] and outdated(table.feed.warehouse, LATER) == []
        assert table.touched(version) == {
            "by_symbol": {34 * HOUR, 38 * HOUR},
            "all": {36 * HOUR, 42 * HOUR, 48 * HOUR, 54 * HOUR, 60 * HOUR},
        }
        windows = [record.radius["windows"] for record in records if record.radius is not None]
        scanned = [record.scanned.get("trades", (0, 0, 0)) for record in records]
        windows_and_hours[is_on] = windows, sum((last - first) // (HOUR * MINUTE) for first, last, _ in scanned)
        assert all(record.narrow for record in records)
    # the second day's and the third's windows; the feed's partial aggregates of the second day, else of all
    assert windows_and_hours[True] == ([5, 2], 24)
    assert windows_and_hours[False] == ([10, 10, 10], 72)


def test_other_days_stand_whatever_is_rewritten(engine: Any, tmp_path: Path) -> None:
    """What is stored of a span has the same name before and after a change elsewhere, and after many."""
    table = fed(engine, tmp_path, [range(72)])
    version = published(table)
    store = table.feed.warehouse

    def tokens() -> list[str]:
        table.run(version, 0, "look")
        known = ledger(store, "trades").replacements(table.feed.stream)
        splits = [replace(split, replacements=known) for split in splits_of(table.feed.stream)]
        day = 24 * HOUR * MINUTE
        return [snapshot_token(splits, DAY + number * day, DAY + (number + 1) * day) for number in range(DAYS)]

    before = tokens()
    update(table, 30)
    second = tokens()
    assert [a == b for a, b in zip(before, second, strict=True)] == [True, False, True]
    DeltaTable(table.path).optimize.compact()
    update(table, 31, 71)
    third = tokens()
    assert [a == b for a, b in zip(second, third, strict=True)] == [True, False, False] and third[0] == before[0]
    # a look is no run
    update(table, 3)
    assert [interval.radius.by_feed for interval in outdated(store, LATER)] == [4, 4, 4]
    assert len(ledger(store, "trades").replacements(table.feed.stream).newest_first) == 2


def test_compacting_changes_nothing(engine: Any, tmp_path: Path) -> None:
    table = fed(engine, tmp_path, EVERY_TWO_HOURS)
    version = published(table)
    DeltaTable(table.path).optimize.compact()
    assert len(splits_of(table.feed.stream)) == 1 and outdated(table.feed.warehouse, LATER) == []
    assert table.run(version, 1, "again").status == "unchanged"
    update(table, 15)
    assert [record.status for record in table.repaired(version, "after")] == ["published"] * 2
    assert table.wrong(version) == []


def test_several_changes_between_two_looks(engine: Any, tmp_path: Path) -> None:
    """Files that came, were changed or went meanwhile, beside others: each window that changed is answered, and no
    other."""
    table = fed(engine, tmp_path, EVERY_TWO_HOURS)
    version = published(table)
    delta = lambda: DeltaTable(table.path)  # noqa: E731
    for number, changes in enumerate(
        [
            [lambda: table.append([3.5]), lambda: update(table, 60)],
            [lambda: table.append([30.5, 9.5]), lambda: update(table, 73), lambda: update(table, 60)],
            [lambda: update(table, 2), lambda: delta().optimize.compact(), lambda: update(table, 40)],
            # a file that came, and went again as it was
            [lambda: table.append([50.5]), lambda: update(table, 1), lambda: delta().delete("id = 75")],
            # all goes at once, without a word in the feed
            [lambda: update(table, 0), lambda: table.append([20, 60], mode="overwrite")],
        ]
    ):
        table.changed.clear()
        for change in changes:
            table.watched(change)
        records = table.repaired(version, f"repair {number}")
        assert table.wrong(version) == [] and outdated(table.feed.warehouse, LATER) == []
        assert sum(record.radius["windows"] for record in records if record.radius is not None) == sum(
            map(len, table.touched(version).values())
        )


# ------------------------------------------------------------------------------------- where it says nothing
def spoiled(table: FedTable, how: str) -> None:
    """An update, of which the feed cannot tell, or not all."""
    root = Path(table.path)
    if how == "switched off":
        DeltaTable(table.path).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    update(table, 15)
    if how == "vacuumed":
        shutil.rmtree(root / "_change_data")
    elif how == "no commit":
        DeltaTable(table.path).create_checkpoint()
        for log in sorted((root / "_delta_log").glob("*.json"))[:-1]:
            log.unlink()
        DeltaTable(table.path).optimize.compact()
    elif how == "altered":
        DeltaTable(table.path).alter.set_table_properties({"delta.logRetentionDuration": "interval 2 days"})
    elif how == "anew":
        rows = table.rows()
        shutil.rmtree(root)
        for part in (rows.slice(0, 9), rows.slice(9), rows.slice(0, 0)):
            write_deltalake(table.path, part, mode="append", configuration=ON)
        update(table, 16)


@pytest.mark.parametrize("how", ["switched off", "vacuumed", "no commit", "altered", "anew"])
def test_where_the_feed_says_nothing_files_do(engine: Any, tmp_path: Path, how: str) -> None:
    table = fed(engine, tmp_path, EVERY_TWO_HOURS)
    version = published(table)
    spoiled(table, how)
    records = table.repaired(version, "after")
    assert table.wrong(version) == [] and outdated(table.feed.warehouse, LATER) == []
    assert [record.radius["by_feed"] for record in records if record.radius is not None] == [0] * DAYS
    codes = {diagnostic["code"] for record in records for diagnostic in record.diagnostics}
    # of a table that has no feed now nothing was expected
    assert codes == (set() if how == "switched off" else {"HDL-435"})
    # from here on it does
    if how != "switched off":
        table.changed.clear()
        update(table, 40)
        records = table.repaired(version, "again")
        assert {record.radius["by_feed"] for record in records if record.radius is not None} == {2}
        assert table.wrong(version) == []


def test_another_history_of_the_same_table(engine: Any, tmp_path: Path) -> None:
    """A table is put back as it was, and goes on otherwise: its commits lie between states that nobody has seen."""
    table = fed(engine, tmp_path, EVERY_TWO_HOURS)
    version = published(table)
    shutil.copytree(table.path, tmp_path / "before")
    update(table, 15)
    table.repaired(version, "seen")
    shutil.rmtree(table.path)
    shutil.move(tmp_path / "before", table.path)
    update(table, 3)
    update(table, 60)
    (first, *_) = table.repaired(version, "after")
    assert [diagnostic["code"] for diagnostic in first.diagnostics] == ["HDL-435"]
    assert table.wrong(version) == [] and outdated(table.feed.warehouse, LATER) == []


def test_many_changed_rows_are_told_by_files(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = fed(engine, tmp_path, EVERY_TWO_HOURS)
    version = published(table)
    monkeypatch.setattr(change_feed, "MOST_ROWS", 3)
    update(table, 15, 16)
    (first, *_) = table.repaired(version, "after")
    assert [diagnostic["code"] for diagnostic in first.diagnostics] == ["HDL-435"] and table.wrong(version) == []
    monkeypatch.setattr(change_feed, "MOST_ROWS", 4)
    update(table, 15, 16)
    assert not table.repaired(version, "again")[0].diagnostics and table.wrong(version) == []


def test_events_that_were_refused_are_changed_rows(engine: Any, tmp_path: Path) -> None:
    """A rewritten file takes in what was refused of the one before it, though no row of the table changed."""
    table = fed(engine, tmp_path, EVERY_TWO_HOURS)
    table.feed.stream = replace(table.feed.stream, allowed_lateness=MINUTE)
    version = published(table)
    before = table.rows()
    table.append([30.5, 90])
    assert table.run(version, 1, "late").refused == {"trades": 1}
    assert table.feed.wrong(version, 0, END, before) == []
    update(table, 3)
    table.repaired(version, "after")
    assert table.feed.wrong(version, 0, END, table.rows().filter(pa.array([True] * 72 + [False] * 2))) == []
    DeltaTable(table.path).optimize.compact()
    assert table.repaired(version, "compacted") and table.wrong(version) == []


def test_another_column_of_times_knows_nothing_of_it(engine: Any, tmp_path: Path) -> None:
    table = fed(engine, tmp_path, [range(72)])
    published(table)
    update(table, 30)
    table.run(1, 1, "look")
    known = ledger(table.feed.warehouse, "trades")
    assert len(known.replacements(table.feed.stream).newest_first) == 1
    assert not known.replacements(replace(table.feed.stream, time="seen")).newest_first


def test_events_with_ids_are_told_by_files(engine: Any, tmp_path: Path) -> None:
    """Which event of an id is the first goes by the order of files: another order, other events."""
    table = fed(engine, tmp_path, EVERY_TWO_HOURS)
    table.feed.stream = replace(table.feed.stream, event_id="id")
    version = published(table)
    update(table, 15)
    records = table.repaired(version, "after")
    assert table.wrong(version) == [] and {record.radius["by_feed"] for record in records if record.radius} == {0}


# ------------------------------------------------------------------------------------------- any history
CHANGES = [
    "append",
    "late append",
    "update",
    "move",
    "delete",
    "delete all of a file",
    "merge",
    "overwrite",
    "optimize",
    "restore",
    "nothing",
    "vacuum",
]


def play(table: FedTable, change: str, data: st.DataObject) -> None:
    """One change of a table."""
    ids = table.rows()["id"].to_pylist()
    some = data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True)) if ids else [0]
    delta = DeltaTable(table.path)
    if change.endswith("append"):
        hours = data.draw(st.lists(st.integers(0, 71 if change == "late append" else 90), min_size=1, max_size=3))
        table.append([hour + 0.5 for hour in hours])
    elif change == "update":
        delta.update(predicate=numbered(some), updates={"volume": "volume + 1"})
    elif change == "move":
        at = table_of([(data.draw(st.integers(0, 71)) * HOUR + 15.0, "A", 1.0, 1)])["ts"][0].as_py()
        delta.update(predicate=numbered(some), new_values={"ts": at})
    elif change == "delete":
        delta.delete(numbered(some))
    elif change == "delete all of a file":
        delta.delete("symbol = 'A'" if data.draw(st.booleans()) else "id < 24")
    elif change == "merge":
        changed = events([data.draw(st.integers(0, 71)) + 0.25 for _ in some])
        changed = changed.set_column(4, "id", pa.array([*some[1:], table.next_id], pa.int64()))
        table.next_id += 1
        merged = delta.merge(changed, "s.id = t.id", source_alias="s", target_alias="t")
        merged.when_matched_update({"price": "t.price + 0.5"}).when_not_matched_insert_all().execute()
    elif change == "overwrite":
        rows = table.rows()
        chosen = rows.filter(pa.array([number in some for number in rows["id"].to_pylist()]))
        chosen = chosen.set_column(3, "volume", pa.array([9] * len(chosen), pa.int64()))
        write_deltalake(table.path, chosen, mode="overwrite", predicate=numbered(some))
    elif change == "optimize":
        delta.optimize.compact()
    elif change == "restore":
        # there is none before the first version, nor one whose files are gone
        with suppress(DeltaError):
            delta.restore(max(0, delta.version() - data.draw(st.integers(1, 3))))
    elif change == "nothing":
        delta.delete("id = -1")
    elif change == "vacuum":
        delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


@settings(
    max_examples=examples(2, 60, slow=5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_history_gives_the_oracles_answers_and_no_more_windows(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """After whatever was done to a table, repairs give what a computation from scratch gives; with the feed, they
    answer no window again that holds no row which changed."""
    feed = data.draw(st.sampled_from(["on", "on", "on", "off", "midway", "files gone"]))
    numbered_too = data.draw(st.booleans())
    table = fed(
        engine,
        tmp_path_factory.mktemp("fed"),
        data.draw(st.sampled_from([EVERY_TWO_HOURS, [range(72)], [range(24), range(24, 48), range(48, 72)]])),
        parts=data.draw(st.sampled_from([None, ["symbol"]])),
        is_on=feed in ("on", "files gone"),
    )
    version = published(table, QUERIES + NUMBERED * numbered_too)
    for number in range(data.draw(st.integers(1, 4))):
        table.changed.clear()
        changes = data.draw(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=3))
        if feed == "midway" and number == 1:
            DeltaTable(table.path).alter.set_table_properties(ON)
        for change in changes:
            table.watched(lambda change=change: play(table, change, data))
        if feed == "files gone":
            shutil.rmtree(Path(table.path) / "_change_data", ignore_errors=True)
        revisions = {interval.begin: interval.revision for interval in outdated(table.feed.warehouse, LATER)}
        records = table.repaired(version, f"repair {number}")
        assert len(records) == len(revisions)
        assert table.wrong(version) == [] and outdated(table.feed.warehouse, LATER) == []
        # what was restored or vacuumed is known by files
        if feed == "on" and not {"restore", "vacuum"} & set(changes):
            touched = table.touched(version)
            assert not [
                diagnostic for record in records for diagnostic in record.diagnostics if diagnostic["code"] == "HDL-435"
            ]
            for record in records:
                low, high = ((at - DAY) / MINUTE for at in (record.begin, record.end))
                again = table.feed.revised(low, high, record.revision)
                assert {(name, at) for name, at in again if at not in touched.get(name, {at})} == set()
                assert record.radius is not None
                assert record.radius["windows"] <= sum(low < at <= high for ends in touched.values() for at in ends)


# -------------------------------------------------------------------------------------- as Spark writes it
@pytest.mark.longer
@pytest.mark.spark
@pytest.mark.parametrize("vectors", [True, False])
def test_tables_of_spark_with_and_without_deletion_vectors(spark: Any, tmp_path: Path, vectors: bool) -> None:
    table = fed(spark, tmp_path, [])
    stored = f"delta.`{table.path}`"
    columns = "ts timestamp, symbol string, price double, volume bigint, id bigint"
    table_properties = (
        f"'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = '{str(vectors).lower()}'"
    )
    spark.sql(f"CREATE TABLE {stored} ({columns}) USING delta TBLPROPERTIES ({table_properties})")
    rows = "timestamp_micros({} + id * 3600000000), if(id % 2 = 0, 'A', 'B'), 1.5 * id, id % 5 + 1, id"
    spark.sql(f"INSERT INTO {stored} SELECT {rows.format(DAY)} FROM range(0, 72, 1, 1)")

    def rows_now() -> pa.Table:
        return spark.sql(f"SELECT * FROM {stored} ORDER BY id").toArrow().select(TABLE.names).cast(TABLE)

    version = table.feed.plan(QUERIES)
    for day in range(DAYS):
        table.run(version, day, f"first {day}")
    for statement, hours in (
        ("DELETE FROM {t} WHERE id = 30", [30]),
        ("DELETE FROM {t} WHERE id = 31 OR id = 60", [31, 60]),
        ("UPDATE {t} SET volume = 99 WHERE id = 5", [5]),
        ("MERGE INTO {t} USING (SELECT 6 AS k) ON id = k WHEN MATCHED THEN UPDATE SET volume = 98", [6]),
        ("OPTIMIZE {t}", []),
        ("DELETE FROM {t} WHERE id < 3", [0, 1, 2]),
        ("UPDATE {t} SET volume = 97 WHERE id = 70", [70]),
    ):
        spark.sql(statement.format(t=stored))
        records = table.repaired(version, statement)
        known = ledger(table.feed.warehouse, "trades").replacements(table.feed.stream).newest_first
        assert [(low - DAY) / MINUTE / HOUR for low, _ in known[0].changed] == hours or not hours
        assert all(not record.diagnostics for record in records) and bool(records) == bool(hours)
        assert table.feed.wrong(version, 0, END, rows_now()) == []
