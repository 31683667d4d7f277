"""Keep a warehouse small and quick, without ever changing an answer or breaking a reader.

Live runs write small files and small commits, killed runs leave files that no commit names, replaced revisions stay
for readers that have begun. Maintenance reads every file: partial aggregates of a day that is damaged are dropped
and computed again when they are needed, damaged answers are reported. Then it merges the small files of a day into
large ones, drops partial aggregates that no recent plan and no paused query can use, and those below levels that a
stream does not keep (:mod:`spark_jobs.operations.fine_partials`), removes files that no version
younger than the retention refers to, and checkpoints the logs, including those of tables of queries. Each commit is
made under the warehouse's lease, like those of runs; it needs no JVM.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from optimizer.workload.values import Stream
from spark_jobs.operations import erasure
from spark_jobs.operations.erasure import Holder
from spark_jobs.operations.features import sweep_features
from spark_jobs.operations.file_checks import check_files
from spark_jobs.operations.fine_partials import DroppedFine, drop_fine
from spark_jobs.pipeline.run.dimensions import sweep_versions
from spark_jobs.results import current_dimensions, own_table
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse import checks_log, log_counts, publish_log, registry
from spark_jobs.store.warehouse.data_files import (
    UNREADABLE,
    is_awkward,
    linked,
    now_millis,
    read_file,
    unwritable,
    write_files,
)
from spark_jobs.store.warehouse.plans import current_version, last_with, load_plan, recent_plans
from spark_jobs.store.warehouse.schemas import TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.repetitions import forget

FEW = 8
"""Files of a day that are left as they are."""

LARGE = 64 << 20
"""Bytes from which on a file is large enough."""

BATCH = 512 << 20
"""Bytes of small files that are merged at once, and so are in memory."""

MANY = 64
"""Files of a log, each a few rows, from which on a live session merges them."""

ROWS_IN_GROUPS = {"publish_log": 1_000, "quality_results": 5_000, "sharing_plans": 600, "stream_statistics": 1_000}
"""Rows of a group of rows in merged files, for tables whose readers want the newest rows, and whose rows are long
or many.
"""

MERGED = 2 << 20
"""Bytes of a merged file of a small table: a reader of the newest rows opens few of a year's files, and reads short
footers.
"""

CODEC = "ZSTD"
"""Compression of merged files: records are much alike from run to run, and take a tenth or less."""

BOUND = 64
"""Bytes of the least and the greatest text of a group of rows, beyond which they are cut (the greatest upwards):
complete records in footers are longer than the rows that are read.
"""

COUNTED: dict[str, log_counts.Counted] = {
    "publish_log": publish_log.count_runs,
    "quality_results": checks_log.count_checks,
}
"""Logs of which it is counted what they hold."""

SMALL_TABLES = (
    "alerts",
    "publish_log",
    "quality_results",
    "quarantine",
    "sharing_plans",
    "source_files",
    "stream_statistics",
    "workload_queries",
)


@dataclass
class Maintained:
    """Result of maintenance, or of a dry run: small files merged and into how many, rows of partial aggregates
    dropped and why, files removed that nothing refers to; ``damaged``: unreadable files, and why. If rows were
    to be erased: partial rows of sources that have changed, removed pages and logged texts with values, and what
    still has such rows. ``fine``: fine partial aggregates that were dropped as their stream allows.
    """

    merged: int = 0
    into: int = 0
    rows_of_no_plan: int = 0
    rows_too_old: int = 0
    removed: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    rows_of_changed_sources: int = 0
    texts_erased: int = 0
    holders: list[Holder] = field(default_factory=list)
    fine: list[DroppedFine] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The counts as ``heddle maintain --json`` prints them."""
        lists = {name: [each.to_json() for each in getattr(self, name)] for name in ("holders", "fine")}
        return {"format_version": 1, **asdict(self), **lists}


def maintain(
    warehouse: Warehouse,
    keep: int = 30 * DAY,
    retention: int = 7 * DAY,
    dry_run: bool = False,
    report: Callable[[str], None] = lambda line: None,
    erase: bool = False,
) -> Maintained:
    """Read, merge, drop, remove, checkpoint. Running runs and readers go on.

    - ``keep`` (microseconds): partial aggregates stay for this time beyond the longest window that ends at the
      newest published instant; older ones are computed again if a backfill needs them.
    - ``retention`` (microseconds): files are removed this time after the last version that referred to them, or
      after they were written if none ever did; a reader or a run that takes longer loses its files.
    - ``erase``: also remove other values of rows deleted from the sources, Delta's logs by the same ``retention``,
      and report what remains.

    Raises HDL-542 if the disk is full, HDL-543 in the end if published answers cannot be read.
    """
    # what a lost commit named would be removed as a file that nothing refers to
    publish_log.check_commits(warehouse)
    maintained = Maintained()
    broken = {table: _damaged(warehouse, table, report, maintained) for table in ("partials", "results")}
    own = [table for table in own_table.names(warehouse) if _damaged(warehouse, table, report, maintained)]
    if not dry_run:
        _drop(warehouse, broken["partials"])
    for table in current_dimensions.table_names(warehouse):
        if _damaged(warehouse, table, report, maintained) and not dry_run:
            report(f"removing the damaged file of {table}: the next run makes it anew")
            current_dimensions.discard(warehouse, table)
    if erase:
        report("looking for values of rows that are gone")
        maintained.rows_of_changed_sources = erasure.drop_stale_partials(warehouse, dry_run)
        maintained.texts_erased = erasure.scrub(warehouse, dry_run)
    maintained.fine = drop_fine(warehouse, dry_run, report)
    fingerprints = _wanted(warehouse)
    horizon = _horizon(warehouse, keep)
    for table in ("partials", "results"):
        for day in _days(warehouse, table):
            if day in broken[table]:
                continue
            report(f"merging {table} of {day}")
            _merge(warehouse, table, day, fingerprints, horizon, dry_run, maintained)
    for name in (*TABLES, *own_table.names(warehouse), *current_dimensions.table_names(warehouse)):
        report(f"removing what nothing refers to: {name}")
        try:
            maintained.tables[name] = _swept(warehouse, name, retention, dry_run)
        except (DeltaError, OSError) as error:
            raise unwritable(warehouse.path(name), error) from error
        maintained.removed += maintained.tables[name]
    copied = _copied(warehouse)
    if copied:
        # what copies loads Spark
        from spark_jobs.streams.copies.copying import sweep
    for stream in copied:
        report(f"removing what nothing refers to: the copy of {stream.name}")
        maintained.tables[f"copy of {stream.name}"] = sweep(stream, retention, dry_run)
        maintained.removed += maintained.tables[f"copy of {stream.name}"]
    maintained.removed += forget(warehouse, time.time() - retention / 1e6, dry_run)
    maintained.removed += sweep_versions(warehouse, retention, dry_run)
    maintained.removed += sweep_features(warehouse, time.time_ns() // 1000 - retention, dry_run)
    if erase:
        erasure.expire_logs(warehouse, retention, dry_run)
        maintained.holders = erasure.holders(warehouse, retention)
    if broken["results"]:
        days = ", ".join(f"--from {day} --to {_after(day)}" for day in broken["results"])
        message = f"published answers cannot be read: {'; '.join(maintained.damaged)}"
        raise HeddleError(UNREADABLE, message, f"`heddle run --recompute` publishes them again: {days}")
    if own:
        message = f"tables of queries are damaged: {'; '.join(maintained.damaged)}"
        again = "; ".join(f"heddle tables --rebuild {table.rpartition('/')[2]}" for table in own)
        raise HeddleError("HDL-534", message, f"make them again from the published answers: {again}")
    return maintained


def _copied(warehouse: Warehouse) -> list[Stream]:
    """The streams of the plan in force that are read from copies."""
    newest = current_version(warehouse)
    streams = load_plan(warehouse, newest).workload.streams if newest is not None else ()
    return [stream for stream in streams if stream.source.origin is not None]


def merge_logs(warehouse: Warehouse, report: Callable[[str], None] = lambda line: None, most: int = MANY) -> list[str]:
    """Merge each small table (logs, registry) of more than ``most`` small files; return their names.

    For processes that write and read them often, such as a live session while it waits. A table that cannot be
    merged now is reported, and stays.
    """
    merged = []
    for name in SMALL_TABLES:
        try:
            sizes = pa.table(warehouse.table(name).get_add_actions())["size_bytes"].to_numpy()
            if int((sizes < MERGED).sum()) <= most:
                continue
            with warehouse.lease() as token:
                _merge_small(warehouse, name, token)
            merged.append(name)
        except (HeddleError, DeltaError, OSError) as error:
            report(f"the files of {name} were not merged: {error}")
    return merged


def _merge_small(warehouse: Warehouse, name: str, token: int) -> None:
    """Merge the small files of a small table (but not below a folder whose name delta-rs cannot read), of a query's own
    those of the days of many files."""
    table = warehouse.table(name)
    warehouse.check_lease(token)
    if is_awkward(warehouse.path(name)):
        return
    if name.startswith(f"{own_table.FOLDER}/"):
        for day in _crowded(warehouse, name, table):
            for batch in _batches(warehouse.files(name, day, day, table), False):
                if len(batch) > 1:
                    table = own_table.rewrite(warehouse, name, table, batch, token)
    if name not in SMALL_TABLES:
        return
    counted = log_counts.counted_log(warehouse, name, COUNTED[name]) if name in COUNTED else None
    with warehouse.exactly(name, table) as once:
        table.optimize.compact(None, MERGED, commit_properties=once, writer_properties=written_as(name))
    if counted is not None:
        log_counts.keep_counts(warehouse, name, counted)


def written_as(name: str) -> WriterProperties:
    """Writer properties of the merged files of a small table."""
    rows = ROWS_IN_GROUPS.get(name)
    return WriterProperties(max_row_group_size=rows, compression=CODEC, statistics_truncate_length=BOUND)


def _swept(warehouse: Warehouse, name: str, retention: int, dry_run: bool) -> int:
    """Merge the small files of a table of many, remove what no version refers to, shorten the log; how many files
    went."""
    with warehouse.lease() as token:
        if not dry_run:
            _merge_small(warehouse, name, token)
        table = warehouse.table(name)
        warehouse.check_lease(token)
        place = warehouse.path(name)
        elsewhere = is_awkward(place)
        hours = retention // (3600 * 1_000_000)
        if elsewhere:
            linked(place)
        removed = table.vacuum(hours, dry_run=dry_run or elsewhere, enforce_retention_duration=False, full=True)
        for path in removed if elsewhere and not dry_run else ():
            (Place(place) / path).remove()
        if not dry_run:
            table = warehouse.table(name)
            table.create_checkpoint()
            table.cleanup_metadata()
        return len(removed)


def _crowded(warehouse: Warehouse, name: str, table: DeltaTable) -> list[str]:
    """The days of a query's own table that have more than a few small files."""
    files = Counter(file["day"] for file in warehouse.files(name, "", "9", table) if file["size"] < LARGE)
    return sorted(day for day, count in files.items() if count > FEW)


def _damaged(warehouse: Warehouse, table: str, report: Callable[[str], None], done: Maintained) -> list[str]:
    """The days of which a file is missing, or is not the one that was committed."""
    damaged = check_files(warehouse, [table], report).damaged
    done.damaged += [file.reason for file in damaged]
    return list(dict.fromkeys(file.day for file in damaged))


def _drop(warehouse: Warehouse, days: list[str]) -> None:
    """Drop all partial aggregates of some days: the mark that a day is complete may be in another of its files."""
    if not days:
        return
    with warehouse.lease() as token:
        current = warehouse.table("partials")
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file["path"], True, now_millis(), file["size"], {"day": day})
            for day in days
            for file in warehouse.files("partials", day, day, current)
        ]
        warehouse.commit("partials", current, actions, token)


def _after(day: str) -> str:
    return str(np.datetime64(day) + 1)


def _wanted(warehouse: Warehouse) -> set[str] | None:
    """Fingerprints of the synopses of the newest plans, and of those that had what is paused now; None: no plan, so no
    reason to drop anything."""
    recent = recent_plans(warehouse)
    if not recent:
        return None
    fingerprints: set[str] = set()
    paused = registry.paused(registry.registered(registry.events(warehouse)))
    rested = [(plan, paused.keys()) for plan in last_with(warehouse, list(paused))]
    for plan, names in [*((plan, None) for plan in recent), *rested]:
        for tree in plan.trees:
            if names is not None and names.isdisjoint(query.name for query in tree.queries):
                continue
            synopses = tree.stored_synopses(plan.workload.stream(tree.stream))
            fingerprints |= {synopsis.fingerprint for synopsis in synopses}
    return fingerprints


def _horizon(warehouse: Warehouse, keep: int) -> str | None:
    """The first day whose partial aggregates stay; None: all, because some query reads from the stream's first
    event.
    """
    newest = current_version(warehouse)
    ends = [row.end for row in publish_log.publications(warehouse, records=False)]
    if newest is None or not ends:
        return None
    queries = load_plan(warehouse, newest).workload.queries
    if any(query.kind.reads_from_first or query.window.has_origin for query in queries):
        return None
    return day_label(max(ends) - max(query.window.reach for query in queries) - keep)


def _days(warehouse: Warehouse, table: str) -> list[str]:
    return sorted({file["day"] for file in warehouse.files(table, "", "9")})


def _merge(
    warehouse: Warehouse,
    table: str,
    day: str,
    wanted: set[str] | None,
    horizon: str | None,
    dry_run: bool,
    done: Maintained,
) -> None:
    """Merge the small files of one day, in as many commits as there are batches."""
    drop = table == "partials" and wanted is not None
    with warehouse.lease() as token:
        current = warehouse.table(table)
        files = warehouse.files(table, day, day, current)
        # a month or a year of levels is old once all of its days are
        old = drop and horizon is not None and day < horizon[: len(day)]
        for batch in _batches(files, old or drop):
            small = len(files) > FEW and len(batch) > 1
            if not (small or drop):
                continue
            rows, lost = _read(warehouse.place / table, batch, day), 0
            count = len(rows)
            if old:
                rows, done.rows_too_old = rows.slice(0, 0), done.rows_too_old + count
                lost = count
            elif drop and wanted is not None:
                rows = rows.filter(pc.is_in(rows["fingerprint"], pa.array(sorted(wanted), pa.string())))
                lost = count - len(rows)
                done.rows_of_no_plan += lost
            if not small and not lost:
                continue
            done.merged += len(batch)
            if dry_run:
                continue
            written = list(write_files(warehouse.path(table), rows)) if len(rows) else []
            done.into += len(written)
            partition = {"day": day}
            actions: list[AddAction | RemoveAction] = [
                AddAction(file.path, file.size, partition, now_millis(), False, file.stats) for file in written
            ]
            actions += [RemoveAction(file["path"], False, now_millis(), file["size"], partition) for file in batch]
            warehouse.commit(table, current, actions, token)
            current = warehouse.table(table, current.version() + 1)


def _batches(files: list[dict[str, Any]], every: bool) -> Iterator[list[dict[str, Any]]]:
    """Small files in batches; large ones by themselves if ``every`` file is to be looked into."""
    batch: list[dict[str, Any]] = []
    size = 0
    for file in files:
        if file["size"] >= LARGE:
            if every:
                yield [file]
            continue
        if batch and size + file["size"] > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file["size"]
    if batch:
        yield batch


def _read(root: Place, files: list[dict[str, Any]], day: str) -> pa.Table:
    # files of results have the columns alone that their queries use
    rows = pa.concat_tables([read_file(root / file["path"]) for file in files], promote_options="default")
    return rows.append_column("day", pa.array([day] * len(rows), pa.string()))
