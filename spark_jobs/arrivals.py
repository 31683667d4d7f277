"""What of a source is taken in: which files came when, which events came too late, and which came twice.

The ledger ``source_files`` notes each file of a stream once, by its identity, with the moment at which it came. A file
that is new where intervals are published already brings *late* events. They are taken in, and
:func:`spark_jobs.history.outdated` finds the intervals that they change, unless the stream has an ``allowed_lateness``
and they are later than that: those are *refused*, by spans of time that stand in the ledger, so that every later run,
retry and backfill leaves the same events out; they are counted in ``quarantine`` until somebody releases the file. A
file that takes the place of others which covered the same time (rewritten, compacted, corrected) is never refused.

A stream with an ``event_id`` is read without repetitions: of the events that have one id on one day (UTC) the first is
taken, in the order of files and rows. What repeats is a function of the files alone: it is worked out anew for the days
that new files touch, and kept in ``repeated/`` by the hash of what it comes from.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.errors import HeddleError
from optimizer.plan import SharingPlan
from optimizer.query import ACQ, Stream, digest
from optimizer.window import DAY, Fragments, instants
from spark_jobs.expressions import evaluate
from spark_jobs.sources import Split, format_instant, read_split, times_of
from spark_jobs.tables import INSTANT, Warehouse, micros

REPEATED = "repeated"
"""Folder of the warehouse for :func:`distinct`."""

REPEATS = pa.schema([("split", pa.int32()), ("row", pa.int64())])


@dataclass(frozen=True)
class Arrival:
    """A file of a source as the ledger has it. Moments in microseconds; ``begin``, ``end``: its events lie in
    [begin, end), None if it does not say so; ``late`` events of it lie in the spans ``refused``."""

    stream: str
    identity: str
    path: str
    event: str
    arrived: int
    noted: int
    begin: int | None
    end: int | None
    refused: tuple[tuple[int, int], ...] = ()
    late: int = 0

    @property
    def is_here(self) -> bool:
        return self.event != "gone"

    def meets(self, begin: int | None, end: int | None) -> bool:
        """Whether both may hold events of one moment."""
        return (self.begin is None or end is None or self.begin < end) and (
            self.end is None or begin is None or begin < self.end
        )

    def row(self) -> dict[str, Any]:
        moments = {name: None if at is None else _moment(at) for name, at in (("begin", self.begin), ("end", self.end))}
        return {
            "stream": self.stream,
            "identity": self.identity,
            "path": self.path,
            "event": self.event,
            "arrived": _moment(self.arrived),
            "refused": json.dumps(self.refused),
            "late": self.late,
            "at": _moment(self.noted),
            **moments,
        }


def _moment(instant: int) -> Any:
    return pa.scalar(instant, INSTANT).as_py()


def ledger(warehouse: Warehouse, stream: str) -> dict[str, Arrival]:
    """What is known of a stream's files, by identity, those that are gone among them."""
    table = warehouse.dataset("source_files")
    rows = table.to_table(filter=ds.field("stream") == stream).sort_by("at").to_pylist()
    return {
        row["identity"]: Arrival(
            stream,
            row["identity"],
            row["path"],
            row["event"],
            micros(row["arrived"]),
            micros(row["at"]),
            None if row["begin"] is None else micros(row["begin"]),
            None if row["end"] is None else micros(row["end"]),
            tuple((first, last) for first, last in json.loads(row["refused"])),
            row["late"],
        )
        for row in rows
    }


def newest(known: Mapping[str, Arrival]) -> int:
    """The moment of the ledger's last entry: what is noted after it, by whichever host, gets a later one."""
    return max((one.noted for one in known.values()), default=0)


def admitted(
    warehouse: Warehouse, stream: Stream, known: dict[str, Arrival], splits: list[Split], clock: int, note: str | None
) -> tuple[list[Split], dict[str, Arrival]] | None:
    """The splits with what is refused of them and the times that they may hold, and the ledger as it is with them.

    ``known``: the ledger from before the splits were listed. ``clock`` (microseconds): now. ``note``: the run whose
    listing this is, which enters new files into the ledger; None: nothing is written. Returns None if another run has
    noted files since ``known``: list again. Raises what reading raises.
    """
    found = _judged(warehouse, stream, splits, clock, known)
    if found and note is not None:
        with warehouse.lease() as token:
            if ledger(warehouse, stream.name) != known:
                return None
            now = _next(known)
            found = [replace(one, noted=now) for one in found]
            for one in found:
                if one.event == "came" and one.late:
                    _quarantine(warehouse, stream, one, note, token)
            warehouse.append("source_files", [one.row() for one in found], token)
    known = known | {one.identity: one for one in found}
    taken = []
    for split in splits:
        one = known[split.identity]
        # what Parquet says of its row groups is narrower than what the ledger knows of the file
        begin, end = (one.begin, one.end) if split.format == "csv" else (split.begin, split.end)
        if begin is None or begin != end:  # not empty
            taken.append(replace(split, refused=one.refused, begin=begin, end=end))
    return taken, known


def _next(known: Mapping[str, Arrival]) -> int:
    """The moment of the ledger's next entry, under the lease."""
    return max(time.time_ns() // 1000, newest(known) + 1)


def _judged(
    warehouse: Warehouse, stream: Stream, splits: Sequence[Split], clock: int, known: Mapping[str, Arrival]
) -> list[Arrival]:
    """What came and what went since the ledger was written, with what is refused."""
    present: dict[str, list[Split]] = {}
    for split in splits:
        present.setdefault(split.identity, []).append(split)
    now = _next(known)
    gone = [replace(one, event="gone", noted=now) for one in known.values() if one.is_here]
    gone = [one for one in gone if one.identity not in present]
    found = []
    published: list[tuple[int, int]] | None = None
    for identity, mine in present.items():
        before = known.get(identity)
        if before is not None:
            # back again as it was: what was refused of it still is
            found += [] if before.is_here else [replace(before, event="came", noted=now)]
            continue
        begin, end = _bounds(stream, mine)
        arrived = min(clock, _modified(stream, mine[0]))
        one = Arrival(stream.name, identity, mine[0].path, "came", arrived, now, begin, end)
        if stream.allowed_lateness is not None and known and not any(other.meets(begin, end) for other in gone):
            if published is None:
                published = _published(warehouse, stream.name)
            until = arrived - stream.allowed_lateness if end is None else min(end, arrived - stream.allowed_lateness)
            spans = [(first if begin is None else max(first, begin), min(last, until)) for first, last in published]
            refused = tuple((first, last) for first, last in spans if first < last)
            one = replace(one, refused=refused, late=_events_in(stream, mine, refused))
        found.append(one)
    return [*found, *gone]


def _bounds(stream: Stream, splits: Sequence[Split]) -> tuple[int | None, int | None]:
    """The span [begin, end) of a file's events; None, None if some have no time. CSV does not say: it is read."""
    if any(split.format == "csv" for split in splits):
        low, high = 1 << 62, -(1 << 62)
        for split in splits:
            for batch in read_split(stream, split, []):
                times, _, missing = times_of(batch, stream)
                if missing:
                    return None, None
                if len(times):
                    low, high = min(low, int(times.min())), max(high, int(times.max()) + 1)
        return (low, high) if low < high else (0, 0)
    begins, ends = [split.begin for split in splits], [split.end for split in splits]
    if None in begins or None in ends:
        return None, None
    return min(at for at in begins if at is not None), max(at for at in ends if at is not None)


def _modified(stream: Stream, split: Split) -> int:
    """When a file was written last, in microseconds."""
    try:
        return Path(split.path).stat().st_mtime_ns // 1000
    except OSError as error:
        hint = "do files come and go while they are listed? run it again"
        raise HeddleError("HDL-402", f"stream {stream.name}: {split.path} cannot be read: {error}", hint) from error


def _published(warehouse: Warehouse, stream: str) -> list[tuple[int, int]]:
    """The spans of time for which a stream's windows are published, as intervals of [begin, end)."""
    plans = {
        row["plan_version"]
        for row in warehouse.rows("sharing_plans", ["plan_version", "stream"])
        if row["stream"] == stream
    }
    spans = []
    for row in warehouse.rows("publish_log"):
        if row["event"] != "published" or row["plan_version"] not in plans:
            continue
        record = json.loads(row["record"])
        begin, end = micros(row["interval_start"]), micros(row["interval_end"])
        if stream in record.get("failed", ()):
            continue
        end = min(end, _instant(record["withheld"][stream])) if stream in record["withheld"] else end
        spans.append((begin, end))
    return _joined(spans)


def _instant(text: str) -> int:
    return int(np.datetime64(text.removesuffix("Z"), "us").astype(np.int64))


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _events_in(stream: Stream, splits: Iterable[Split], spans: Sequence[tuple[int, int]]) -> int:
    return sum(
        int(inside(times, spans).sum())
        for split in splits
        if any(split.may_hold(*span) for span in spans)
        for batch in read_split(stream, split, [])
        for times in [times_of(batch, stream)[0]]
    )


def inside(times: Any, spans: Sequence[tuple[int, int]]) -> Any:
    """Which of some times (n,) lie in one of the spans [begin, end)."""
    found = np.zeros(len(times), dtype=bool)
    for begin, end in spans:
        found |= (times >= begin) & (times < end)
    return found


def _quarantine(warehouse: Warehouse, stream: Stream, one: Arrival, run_id: str, token: int) -> None:
    assert stream.allowed_lateness is not None
    spans = ", ".join(f"{format_instant(first)} .. {format_instant(last)}" for first, last in one.refused[:3])
    row = {
        "run_id": run_id,
        "stream": stream.name,
        "code": "HDL-411",
        "rows": one.late,
        "detail": f"{one.path} came at {format_instant(one.arrived)}, more than the stream's allowed_lateness after "
        f"{spans}, which was published",
        "at": _moment(one.noted),
    }
    warehouse.append("quarantine", [row], token, (f"quarantine/{digest([stream.name, one.identity])}", 1))


def refusals(warehouse: Warehouse) -> list[Arrival]:
    """The files of which events are refused now, by stream and path."""
    streams = {row["stream"] for row in warehouse.rows("source_files", ["stream"])}
    found = [one for stream in sorted(streams) for one in ledger(warehouse, stream).values()]
    return sorted((one for one in found if one.is_here and one.late), key=lambda one: (one.stream, one.path))


def release(warehouse: Warehouse, paths: Sequence[str]) -> list[Arrival]:
    """Take in what is refused of some files (by path, or the end of one): the intervals that it changes are outdated
    then, and repaired as others are. Returns the files. Raises HDL-412 for one of which nothing is refused."""
    with warehouse.lease() as token:
        refused = refusals(warehouse)
        found: dict[str, Arrival] = {}
        for path in paths:
            mine = [one for one in refused if one.path == path or one.path.endswith("/" + path)]
            if not mine:
                known = ", ".join(Path(one.path).name for one in refused[:8]) or "nothing is"
                raise HeddleError("HDL-412", f"nothing of {path} is refused", f"refused: {known}")
            found |= {one.identity: one for one in mine}
        released = [
            replace(one, event="released", noted=_next(ledger(warehouse, one.stream)), refused=(), late=0)
            for one in found.values()
        ]
        warehouse.append("source_files", [one.row() for one in released], token)
    return list(found.values())


# ------------------------------------------------------------------------------------------ blast radius
@dataclass(frozen=True)
class Radius:
    """What has changed of a published interval: ``files`` that came or went since, the late events (``rows``) in the
    history of its windows, the ``fragments`` that they fall into, and the ``queries`` with how many of their
    ``windows`` hold such an event that passes the query's filter, or are due now and were not then. Files that went
    cannot be read: what they may have held counts by time alone. Windows of rows are not counted (their queries are).
    """

    files: int
    rows: int
    fragments: int
    queries: tuple[str, ...]
    windows: int


class Change(NamedTuple):
    """What has changed of a published interval: the ``radius``, and of each query that it may have changed the
    ``instants`` (ascending) whose windows it may have; None: any of them."""

    radius: Radius
    instants: dict[str, NDArray[np.int64] | None]


def change(
    plan: SharingPlan,
    sources: Mapping[str, Sequence[Split]],
    arrivals: Mapping[str, Mapping[str, Arrival]],
    begin: int,
    ends: Mapping[str, int],
    since: Mapping[str, int],
    due: Mapping[str, int],
    fragments: Mapping[str, Sequence[Fragments]],
) -> Change:
    """What came or went since the ledger was as it was then makes of the windows that end after ``begin``.

    Of each stream: ``arrivals`` its ledger, ``since`` the newest entry that was known then, ``ends`` up to where its
    windows are answered, ``due`` up to where they were then (if not to the same), ``fragments`` what its synopses are
    cut into. Instants are certain: a window that is not among them holds the events that it held, because its files are
    the same. Where an event may make another one a repetition (``event_id``) any window may change, and with windows of
    rows.
    """
    files = rows = cut = windows = 0
    touched: dict[str, NDArray[np.int64] | None] = {}
    names: list[str] = []
    for name, splits in sources.items():
        stream, end = plan.workload.stream(name), ends[name]
        queries = plan.workload.queries_of(name)
        first = min((begin - query.window.reach for query in queries if not query.window.is_rows), default=begin)
        later = [one for one in arrivals[name].values() if one.noted > since.get(name, 0)]
        news = {one.identity: one for one in later if one.meets(first, end)}
        gone = [one for one in news.values() if not one.is_here]
        files += len(news)
        columns = sorted({column for query in queries if query.filter is not None for column in query.columns()})
        batches = [
            batch
            for split in splits
            if split.identity in news and split.may_hold(first, end)
            for batch in read_split(stream, split, columns)
        ]
        times, found = _late(stream, batches, first, end)
        rows += len(times)
        for edges in fragments.get(name, ()):
            cut += len(np.unique(edges.starts(times)))
        schema = dict(stream.schema)
        for query in queries:
            if query.window.is_rows:
                touched[query.name] = None
                names += [query.name] * (len(times) > 0 or bool(gone))
                continue
            mine = times
            if query.filter is not None and len(times):
                passed = evaluate(query.filter, found, schema)
                mine = times[pc.fill_null(passed, False).to_numpy(zero_copy_only=False)]
            hit = _windows(query, mine, gone, begin, end, due.get(name, end))
            windows += len(hit)
            names += [query.name] * bool(len(hit))
            if stream.event_id is not None:
                touched[query.name] = None
            elif len(hit):
                touched[query.name] = hit
    return Change(Radius(files, rows, cut, tuple(names), windows), touched)


def _late(stream: Stream, batches: Iterable[pa.RecordBatch], begin: int, end: int) -> tuple[Any, Any]:
    """The times of the events in [begin, end), ascending, and the events in that order."""
    kept = []
    for batch in batches:
        times, batch, _ = times_of(batch, stream)
        kept.append(batch.filter(pa.array((times >= begin) & (times < end))))
    if not kept:
        return np.zeros(0, dtype=np.int64), None
    table = pa.Table.from_batches(kept).combine_chunks()
    table = table.take(pc.sort_indices(table, [(stream.time, "ascending")]))
    batch = table.combine_chunks().to_batches()[0] if len(table) else kept[0]
    return times_of(batch, stream)[0], batch


def _windows(query: ACQ, times: Any, gone: Sequence[Arrival], begin: int, end: int, due: int) -> NDArray[np.int64]:
    """The instants of (begin, end] whose windows hold one of the times (ascending), may have held what is gone, or end
    after ``due``."""
    window = query.window
    at = instants(window, begin, end)
    hit = np.searchsorted(times, at - window.reach) < np.searchsorted(times, at - window.ago)
    for one in gone:
        low, high = one.begin if one.begin is not None else -(1 << 62), one.end if one.end is not None else 1 << 62
        hit |= (at - window.ago > low) & (at - window.reach < high)
    return at[hit | (at > due)]


# ------------------------------------------------------------------------------------------- repetitions
def distinct(warehouse: Warehouse, stream: Stream, splits: list[Split], begin: int, end: int) -> list[Split]:
    """The splits with what repeats of their events in [begin, end), for streams with an ``event_id``; others as they
    are. Raises what reading raises."""
    if stream.event_id is None:
        return splits
    groups: list[tuple[int, int, list[int]]] = []
    if any(split.begin is None or split.end is None for split in splits):
        # what does not say which times it holds is read once for all of them
        groups.append((-(1 << 62), 1 << 62, list(range(len(splits)))))
    else:
        days = {day for split in splits for day in _days(split, begin, end)}
        for day in sorted(days):
            mine = [number for number, split in enumerate(splits) if split.may_hold(day, day + DAY)]
            groups.append((day, day + DAY, mine))
    found = list(splits)
    for first, last, mine in groups:
        path = _repeated(warehouse, stream, [splits[number] for number in mine], first, last)
        rows = pq.read_table(path)
        # most splits repeat nothing: nothing is attached to those
        for place in np.unique(rows["split"].to_numpy()):
            split = found[mine[place]]
            lacking = digest(rows.filter(pc.equal(rows["split"], place))["row"].to_pylist())
            found[mine[place]] = replace(
                split,
                repeated=(*split.repeated, f"{path}#{place}"),
                lacking=(*split.lacking, (first, last, lacking)),
            )
    return found


def _days(split: Split, begin: int, end: int) -> Iterator[int]:
    """The midnights before the events that a split may have on the days of [begin, end)."""
    assert split.begin is not None and split.end is not None
    first, last = max(begin // DAY * DAY, split.begin), min(-(-end // DAY) * DAY, split.end)
    if first < last:
        yield from range(first // DAY * DAY, last, DAY)


def _repeated(warehouse: Warehouse, stream: Stream, splits: Sequence[Split], begin: int, end: int) -> str:
    """The file that says which rows of some splits repeat an event of [begin, end) that stands before them: their
    ``split`` (its place in the list) and ``row``, both ascending. Made once for the same content."""
    assert stream.event_id is not None
    content = [[split.identity, split.row_groups, split.refused] for split in splits]
    folder = warehouse.root / REPEATED
    path = folder / f"{digest([stream.name, stream.event_id, begin, end, content])}.parquet"
    if path.exists():
        os.utime(path)  # maintenance leaves it
        return str(path)
    tables = []
    for place, split in enumerate(splits):
        seen = 0
        # as the file has them: rows are counted from its first
        for batch in read_split(stream, replace(split, refused=(), repeated=()), [stream.event_id]):
            times = pc.fill_null(batch.column(stream.time).cast(pa.int64()), -(1 << 62)).to_numpy(zero_copy_only=False)
            kept = (times >= begin) & (times < end) & (times > -(1 << 62)) & ~inside(times, split.refused)
            kept &= batch.column(stream.event_id).is_valid().to_numpy(zero_copy_only=False)
            where = np.flatnonzero(kept)
            tables.append(
                pa.table(
                    {
                        "id": batch.column(stream.event_id).take(pa.array(where)),
                        "day": times[where] // DAY,
                        "split": np.full(len(where), place, dtype=np.int32),
                        "row": where + seen,
                    }
                )
            )
            seen += batch.num_rows
    found = REPEATS.empty_table()
    if tables:
        events = pa.concat_tables(tables)
        events = events.append_column("number", pa.array(np.arange(len(events))))
        firsts = events.group_by(["id", "day"], use_threads=False).aggregate([("number", "min")])["number_min"]
        again = np.ones(len(events), dtype=bool)
        again[firsts.to_numpy()] = False
        found = events.filter(pa.array(again)).select(REPEATS.names).cast(REPEATS)
    folder.mkdir(exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.new")
    pq.write_table(found, temporary)
    temporary.replace(path)
    return str(path)


def forget(warehouse: Warehouse, before: float, dry_run: bool) -> int:
    """Remove what :func:`distinct` has kept and nobody has asked for since a moment (seconds); how many files."""
    old = [path for path in (warehouse.root / REPEATED).glob("*") if path.stat().st_mtime < before]
    for path in old:
        if not dry_run:
            path.unlink(missing_ok=True)
    return len(old)
