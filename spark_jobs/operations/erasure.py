"""List what a warehouse still has of rows that were deleted from a source, and until when.

A repair publishes the answers again that the rows were in. The replaced files stay for readers that have begun, and
for time travel: files that only older versions refer to, and logs of Delta, whose statistics have values. This
module removes other copies of values at once: partial aggregates of a source that has changed since and that no
repair needed, texts of findings that quote a value, and Data Docs of checks that failed, which show examples.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.instants import format_instant
from optimizer.workload.values import Stream
from spark_jobs.audit.checks.data_docs import FOLDER as DATA_DOCS
from spark_jobs.audit.checks.data_docs import read_document
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.pipeline.run.preparation import listed
from spark_jobs.results import current_dimensions, own_table
from spark_jobs.results.tables import table_requests
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse import registry
from spark_jobs.store.warehouse.data_files import LOG, log_place, now_millis, read_file, reading, write_files
from spark_jobs.store.warehouse.plans import current_version, load_plan, recent_plans
from spark_jobs.store.warehouse.publish_log import interval_label
from spark_jobs.store.warehouse.schemas import TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse, added
from spark_jobs.streams.sources.repetitions import distinct
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials.stored_coverage import coverage, is_current

ERASED = "erased by `heddle maintain --erase`"

ERASED_SAMPLE = json.dumps([ERASED])

QUOTING = ("HDL-404", "HDL-539", "HDL-565")
"""Codes of findings whose messages quote a value of a row."""

_ENTRY = re.compile(r"(\d{20})\.(?:checkpoint\b.*\.parquet|json)", re.ASCII)


@dataclass(frozen=True)
class Holder:
    """A place that still has values of deleted rows.

    Parameters
    ----------
    what
        The kind of thing, and its table or query.
    until
        When `heddle maintain --erase` removes it (microseconds); None: a command does, see ``remedy``.
    files
        Paths below the warehouse.
    remedy
        The command that removes it; empty: time does.
    """

    what: str
    until: int | None
    files: tuple[str, ...] = ()
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle maintain --erase --json`` prints them."""
        until = None if self.until is None else format_instant(self.until)
        return {"what": self.what, "until": until, "files": list(self.files), "remedy": self.remedy}


# ----------------------------------------------------------------------------------------------------- partials
def drop_stale_partials(warehouse: Warehouse, dry_run: bool) -> int:
    """Drop the partial aggregates of sources that have changed since they were computed; how many rows. They are
    computed again where they are needed. Those of streams that cannot be read now go as well."""
    spans = _stale(warehouse)
    if not spans:
        return 0
    dropped = 0
    with warehouse.lease() as token:
        current = warehouse.table("partials")
        actions: list[AddAction | RemoveAction] = []
        for file in warehouse.files("partials", "", "9", current):
            rows = read_file(warehouse.place / "partials" / file["path"])
            stale = _inside(rows, spans)
            count = int(stale.sum())
            dropped += count
            if not count or dry_run:
                continue
            actions.append(RemoveAction(file["path"], True, now_millis(), file["size"], {"day": file["day"]}))
            remaining = rows.filter(pa.array(~stale))
            remaining = remaining.append_column("day", pa.array([file["day"]] * len(remaining), pa.string()))
            if len(remaining):
                actions += [added(written) for written in write_files(warehouse.path("partials"), remaining)]
        if actions:
            warehouse.commit("partials", current, actions, token)
    return dropped


Spans = Mapping[str, list[tuple[int, int]]]
"""Spans [begin, end) by the fingerprint of a synopsis."""


def _stale(warehouse: Warehouse) -> Spans:
    """Spans of the stored partials whose source has changed since."""
    version = current_version(warehouse)
    if version is None:
        return {}
    plan = load_plan(warehouse, version)
    listing = listed(warehouse, plan, time.time_ns() // 1000)
    stale_spans: dict[str, list[tuple[int, int]]] = {}
    for name in {tree.stream for tree in plan.trees}:
        splits, synopses = listing.sources.get(name), _synopses(warehouse, plan, name)
        for fingerprint, pieces in coverage(warehouse, None, stream=name).items():
            synopsis = synopses.get(fingerprint)
            if splits is not None and synopsis is not None:
                pieces = _changed(warehouse, plan.workload.stream(name), synopsis, splits, pieces)
            if pieces:
                stale_spans[fingerprint] = [(first, last) for first, last, _ in pieces]
    return stale_spans


def _synopses(warehouse: Warehouse, plan: SharingPlan, name: str) -> dict[str, Synopsis]:
    """The synopses of a stream that the plans in use store, by fingerprint."""
    synopses: list[Synopsis] = []
    for each in (plan, *recent_plans(warehouse)):
        for tree in (tree for tree in each.trees if tree.stream == name):
            synopses += tree.stored_synopses(each.workload.stream(name))
    return {synopsis.fingerprint: synopsis for synopsis in synopses}


def _changed(
    warehouse: Warehouse, stream: Stream, synopsis: Synopsis, splits: list[Split], pieces: list[tuple[int, int, str]]
) -> list[tuple[int, int, str]]:
    first, last = min(piece[0] for piece in pieces), max(piece[1] for piece in pieces)
    now = distinct(warehouse, stream, splits, first, last)
    return [piece for piece in pieces if not is_current(synopsis, now, piece)]


def _inside(rows: pa.Table, spans: Spans) -> np.ndarray:
    """Mask of the rows of partials that are of these synopses and spans."""
    at, inside = rows["fragment_start"].cast(pa.int64()).to_numpy(), np.zeros(len(rows), dtype=bool)
    for fingerprint in set(pc.unique(rows["fingerprint"]).to_pylist()) & set(spans):
        of_synopsis = pc.equal(rows["fingerprint"], fingerprint).to_numpy()
        for first, last in spans[fingerprint]:
            inside |= of_synopsis & (at >= first) & (at < last)
    return inside


# ------------------------------------------------------------------------------------------- texts that quote values
def scrub(warehouse: Warehouse, dry_run: bool) -> int:
    """Take values of rows out of the texts that runs have logged, and remove Data Docs that show examples; how many
    texts and pages."""
    changed = _rewritten(warehouse, "publish_log", "record", _without_values, dry_run)
    changed += _rewritten(warehouse, "quality_results", "detail", _without_examples, dry_run)
    changed += _rewritten(warehouse, "quality_results", "sample", _without_sample, dry_run)
    folder = warehouse.place / DATA_DOCS
    shown = [file.name for file in folder.listed() if _shows_examples(folder / file.name)]
    for name in shown:
        if not dry_run:
            (folder / name).remove()
    return changed + len(shown)


def _without_values(row: Mapping[str, Any]) -> str | None:
    text = row["record"] or ""
    if not any(code in text for code in QUOTING):
        return None
    record = json.loads(text)
    for finding in record.get("diagnostics", ()):
        if finding.get("code") in QUOTING:
            finding["message"] = ERASED
    changed = json.dumps(record)
    return changed if json.loads(text) != record else None


def _without_examples(row: Mapping[str, Any]) -> str | None:
    return None if row["success"] or row["detail"] in (None, "", ERASED) else ERASED


def _without_sample(row: Mapping[str, Any]) -> str | None:
    return None if row.get("sample") in (None, "", ERASED_SAMPLE) else ERASED_SAMPLE


def _shows_examples(file: Place) -> bool:
    """Return whether a page of Data Docs is of a check that failed, or cannot be read; pages of those that passed
    have only counts.
    """
    return file.name.endswith(".html") or not read_document(file).get("result", {}).get("success", False)


def _rewritten(
    warehouse: Warehouse, table: str, column: str, change: Callable[[Mapping[str, Any]], str | None], dry_run: bool
) -> int:
    """Write the files of a log again that have rows which change (by their new text); how many rows do."""
    count = 0
    with warehouse.lease() as token:
        current = warehouse.table(table)
        schema = pa.schema(current.schema().to_arrow())
        actions: list[AddAction | RemoveAction] = []
        sizes: dict[str, int] = current._table.get_add_file_sizes()
        for path, size in sorted(sizes.items()):
            rows = read_file(warehouse.place / table / path)
            new = [change(row) for row in rows.select(sorted({column, "success"} & {*rows.schema.names})).to_pylist()]
            if not any(text is not None for text in new):
                continue
            count += sum(text is not None for text in new)
            texts = pc.coalesce(pa.array(new, pa.string()), rows[column].cast(pa.string()))
            values = {field.name: pa.nulls(len(rows), field.type) for field in schema}
            values |= {name: rows[name] for name in rows.schema.names} | {column: texts}
            data = pa.table({field.name: values[field.name] for field in schema}).cast(schema)
            if not dry_run:
                actions += [RemoveAction(path, True, now_millis(), size), warehouse.added_rows(table, current, data)]
        if actions:
            warehouse.commit(table, current, actions, token)
    return count


# ------------------------------------------------------------------------------------------------- logs and old files
def expire_logs(warehouse: Warehouse, retention: int, dry_run: bool) -> None:
    """Remove the commits and checkpoints of Delta's logs that are older than the retention (microseconds), and that
    the newest checkpoint replaces: their statistics have values of removed files.
    """
    before = time.time_ns() // 1000 - retention
    for name in () if dry_run else _tables(warehouse):
        with warehouse.lease() as token:
            warehouse.check_lease(token)
            table = warehouse.table(name)
            table.create_checkpoint()
            log = warehouse.place / name / LOG
            for entry, modified in _entries(log, int(table.version())):
                if modified <= before:
                    (log / entry).remove()


def _entries(log: Place, version: int) -> Iterator[tuple[str, int]]:
    """Name and time (microseconds) of the entries of a log from before a version."""
    for file in log.listed():
        match = _ENTRY.fullmatch(file.name)
        if match is not None and int(match[1]) < version:
            yield file.name, file.modified


def holders(warehouse: Warehouse, retention: int) -> list[Holder]:
    """Places that still have values of rows deleted from the sources, and until when; ``retention`` (microseconds)."""
    all_holders = [*_to_repair(warehouse), *_unanswered(warehouse), *_not_asked_for(warehouse)]
    for name in _tables(warehouse):
        all_holders += _old_files(warehouse, name, retention, f"{name}/")
    for stream in _copied(warehouse):
        place = Place.of(stream.source.path)
        if DeltaTable.is_deltatable(log_place(place.url)):
            all_holders += _old_files(Warehouse(place.parent), place.name, retention, f"{place}/")
            message = f"the copy of {stream.name}: rows that its origin has lost since it was copied"
            all_holders.append(Holder(message, None, (), f"heddle copy {stream.name}"))
    return sorted(all_holders, key=lambda holder: (holder.until or 0, holder.what))


def _tables(warehouse: Warehouse) -> list[str]:
    return [*TABLES, *own_table.names(warehouse), *current_dimensions.table_names(warehouse)]


def _not_asked_for(warehouse: Warehouse) -> Iterator[Holder]:
    """Tables that no query requests any more, which nothing brings up to date."""
    requested = {request.name.lower() for request in table_requests(warehouse)}
    for name in own_table.names(warehouse):
        if name.lower() not in requested:
            folder = name.rpartition("/")[2]
            yield Holder(f"{name}, which no query asks for", None, (), f"heddle tables --drop {folder} --yes")


def _old_files(warehouse: Warehouse, name: str, retention: int, prefix: str) -> Iterator[Holder]:
    """Files of a table that its newest version does not refer to, and its log. The youngest of each determines
    until when.
    """
    table, root = warehouse.table(name), warehouse.place / name
    known, removed = {*table._table.get_add_file_sizes()}, _removals(root / LOG)
    files = {
        f"{prefix}{file.name}": max(file.modified, removed.get(file.name, 0))
        for file in root.listed(True)
        if not file.name.startswith(f"{LOG}/") and file.name not in known
    }
    log = {f"{prefix}{LOG}/{entry}": modified for entry, modified in _entries(root / LOG, int(table.version()))}
    for what, times in (("files of earlier versions", files), ("the log of earlier versions", log)):
        if times:
            yield Holder(f"{name}: {what}", max(times.values()) + retention, tuple(sorted(times)))


def _copied(warehouse: Warehouse) -> list[Stream]:
    version = current_version(warehouse)
    streams = load_plan(warehouse, version).workload.streams if version is not None else ()
    return [stream for stream in streams if stream.source.origin is not None]


def _removals(log: Place) -> dict[str, int]:
    """Times when files were removed (microseconds), by their path, as far as the log reaches back."""
    removed: dict[str, int] = {}
    for file in log.listed():
        if file.name.endswith(".json") and _ENTRY.fullmatch(file.name):
            for line in (log / file.name).read().splitlines():
                removal = json.loads(line).get("remove")
                if removal is not None:
                    removed[removal["path"]] = int(removal.get("deletionTimestamp") or 0) * 1000
    return removed


def _to_repair(warehouse: Warehouse) -> Iterator[Holder]:
    """Intervals that no repair has published again yet."""
    stale = outdated(warehouse, time.time_ns() // 1000)
    if stale:
        labels = ", ".join(interval_label(interval.begin, interval.end) for interval in stale[:3])
        yield Holder(f"answers of {len(stale)} intervals whose source has changed: {labels}", None, (), "heddle repair")


def _unanswered(warehouse: Warehouse) -> Iterator[Holder]:
    """Published answers of queries that no run answers any more, and so no repair publishes again."""
    version = current_version(warehouse)
    if version is None:
        return
    running = {query.name for query in load_plan(warehouse, version).workload.queries}
    known = registry.registered(registry.events(warehouse))
    chosen = ~ds.field("query").isin(pa.array(sorted(running), pa.string()))
    with reading(warehouse.path("results")):
        rows = warehouse.dataset("results", where=chosen).to_table(["query"], filter=chosen)
    for name in sorted(pc.unique(rows["query"]).to_pylist()):
        state, remedy = "removed", f"heddle remove {name} --with-answers"
        if name in known and not known[name].removed:
            state, remedy = "paused", f"heddle resume {name}, and the heddle backfill that it names"
        yield Holder(f"answers of the query {name}, which is {state}", None, (), remedy)
