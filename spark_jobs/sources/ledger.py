"""What of a source is taken in: which files came when, which events came too late, and which came twice.

The ledger ``source_files`` notes each file of a stream once, by its identity, with the moment at which it came. A file
that is new where intervals are published already brings *late* events. They are taken in, and
:func:`spark_jobs.run.history.outdated` finds the intervals that they change, unless the stream has an
``allowed_lateness`` and they are later than that: those are *refused*, by spans of time that stand in the ledger, so
that every later run, retry and backfill leaves the same events out; they are counted in ``quarantine`` until somebody
releases the file. A file that takes the place of others which covered the same time (rewritten, compacted, corrected)
is never refused.

A CSV or Parquet file is listed by its path, size and time of modification. What it holds under them may be something
else all the same: the ledger keeps its *stamps*, inode, time of change and CRC-32. With an inode and a time of change
that it had before it is as it was. Else it is read: links, permissions and copies change them as well. If it holds what
it never held under this size and time it gets an identity of its own, and is a file that came where another went. A
file of a store is listed by its URL, size and ETag, which stands for its content: nothing more is read or noted.

Of files of a Delta table that took the place of others the table's change data feed may say which rows changed
(:mod:`spark_jobs.sources.change_feed`). Then the ledger notes with them at what times they differ from those, and all
that was made of other times stands (:mod:`spark_jobs.sources.replacements`).

A stream with an ``event_id`` is read without repetitions: of the events that have one id on one day (UTC) the first is
taken, in the order of files and rows. What repeats is a function of the files alone: it is worked out anew for the days
that new files touch, and kept in ``repeated/`` by the hash of what it comes from.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.instants import format_instant
from optimizer.workload.values import Stream, digest
from spark_jobs.sources.change_feed import ChangedRows, changed_rows
from spark_jobs.sources.decoding import read_split, times_of
from spark_jobs.sources.replacements import FileSpan, Replacement, Replacements, disjoint
from spark_jobs.sources.splits import FIRST, LAST, Split
from spark_jobs.storage import Place
from spark_jobs.warehouse import publish_log, quarantine
from spark_jobs.warehouse.plans import planned
from spark_jobs.warehouse.quarantine import LeftOut
from spark_jobs.warehouse.schemas import micros, moment
from spark_jobs.warehouse.warehouse import Warehouse

REPEATED = "repeated"
"""Folder of the warehouse for :func:`distinct`."""

CONTENT = "|content "
"""Before the CRC-32 in the identity of a file that held something else under its path, size and time."""

CHUNK = 4 << 20
"""Bytes of a file that are read at once for its CRC-32."""

REPEATS = pa.schema([("split", pa.int32()), ("row", pa.int64())])


@dataclass(frozen=True)
class Move:
    """A file came or went, at the moment ``noted``, when the table that it is of was in the state ``commit``.
    ``changed``: None, or the file is among those that a change data feed tells of: with all of them that moved at this
    moment it has the spans in which these do not hold the same events, by the column of times that ``by`` names."""

    event: str
    noted: int
    commit: str | None = None
    by: str = ""
    changed: tuple[tuple[int, int], ...] | None = None

    def text(self) -> str | None:
        """What changed as the table has it."""
        return None if self.changed is None else json.dumps({"by": self.by, "spans": self.changed})


@dataclass(frozen=True)
class Arrival:
    """A file of a source as the ledger has it. Moments in microseconds; ``begin``, ``end``: its events lie in
    [begin, end), None if it does not say so; ``late`` events of it lie in the spans ``refused``; ``stamps``: as it was
    seen, ``inode|time of change (nanoseconds)|CRC-32`` (none: in a Delta table, or noted by an earlier Heddle);
    ``moves``: when it came and went, in order."""

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
    stamps: frozenset[str] = frozenset()
    moves: tuple[Move, ...] = ()

    @property
    def is_here(self) -> bool:
        return self.event != "gone"

    def meets(self, begin: int | None, end: int | None) -> bool:
        """Whether both may hold events of one moment."""
        return (self.begin is None or end is None or self.begin < end) and (
            self.end is None or begin is None or begin < self.end
        )

    def row(self) -> dict[str, Any]:
        """As the table has it."""
        moments = {name: None if at is None else moment(at) for name, at in (("begin", self.begin), ("end", self.end))}
        nothing = Move(self.event, self.noted)
        move = next((each for each in self.moves if (each.event, each.noted) == (self.event, self.noted)), nothing)
        return {
            "stream": self.stream,
            "identity": self.identity,
            "path": self.path,
            "event": self.event,
            "arrived": moment(self.arrived),
            "refused": json.dumps(self.refused),
            "late": self.late,
            "at": moment(self.noted),
            "stamps": " ".join(sorted(self.stamps)) or None,
            "commit": move.commit,
            "changed": move.text(),
            **moments,
        }


def ledger(warehouse: Warehouse, stream: str) -> dict[str, Arrival]:
    """What is known of a stream's files, by identity, those that are gone among them."""
    chosen = ds.field("stream") == stream
    table = warehouse.dataset("source_files", where=chosen)
    rows = table.to_table(filter=chosen).sort_by("at").to_pylist()
    stamps: dict[str, frozenset[str]] = {}
    moves: dict[str, dict[int, Move]] = {}
    for row in rows:
        # of all rows: one that adds a stamp has the moment of the one before it
        found = (row.get("stamps") or "").split()
        stamps[row["identity"]] = stamps.get(row["identity"], frozenset()).union(found)
        mine = moves.setdefault(row["identity"], {})
        if row["event"] != "released":
            move = _move(row)
            mine[move.noted] = move
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
            stamps[row["identity"]],
            tuple(moves[row["identity"]].values()),
        )
        for row in rows
    }


def _move(row: Mapping[str, Any]) -> Move:
    told = json.loads(row.get("changed") or "null")
    move = Move(row["event"], micros(row["at"]), row.get("commit"))
    if told is None:
        return move
    return replace(move, by=told["by"], changed=tuple((first, last) for first, last in told["spans"]))


def replacements_of(stream: Stream, known: Mapping[str, Arrival]) -> Replacements:
    """What a stream's ledger knows of files that took the place of others."""
    moments: dict[int, list[tuple[Move, FileSpan]]] = {}
    for one in known.values():
        for move in one.moves:
            if move.changed is not None and move.by == time_named(stream):
                moments.setdefault(move.noted, []).append((move, FileSpan(one.identity, one.begin, one.end)))
    return Replacements(
        Replacement(
            noted,
            tuple(file for move, file in files if move.event == "gone"),
            tuple(file for move, file in files if move.event != "gone"),
            disjoint(span for move, _ in files for span in move.changed or ()),
        )
        for noted, files in moments.items()
    )


def time_named(stream: Stream) -> str:
    """The column of times of a stream, and what it counts."""
    unit = stream.source.time_unit
    return stream.time if unit is None else f"{stream.time} in {unit}"


def newest(known: Mapping[str, Arrival]) -> int:
    """The moment of the ledger's last entry: what is noted after it, by whichever host, gets a later one."""
    return max((one.noted for one in known.values()), default=0)


class Admitted(NamedTuple):
    """What of a stream is taken in: its ``splits``, the ledger with them (``arrivals``), and why a change data feed
    does not say what changed, if it ought to."""

    splits: list[Split]
    arrivals: dict[str, Arrival]
    problem: Diagnostic | None


def admitted(
    warehouse: Warehouse, stream: Stream, known: dict[str, Arrival], splits: list[Split], clock: int, note: str | None
) -> Admitted | None:
    """The splits with what is refused of them and the times that they may hold, and the ledger as it is with them.

    ``known``: the ledger from before the splits were listed. ``clock`` (microseconds): now. ``note``: the run whose
    listing this is, which enters new files into the ledger; None: nothing is written. Returns None if another run has
    noted files since ``known``: list again. Raises what reading raises.
    """
    splits, stamps = _recognised(stream, splits, known, note is not None)
    judged = [
        replace(one, stamps=one.stamps.union(stamps.pop(one.identity, "").split()))
        for one in _judged(warehouse, stream, splits, clock, known)
    ]
    # nothing came or went: with the moment of their last entries, so that nothing counts as changed since
    same = [replace(known[identity], stamps=frozenset({stamp})) for identity, stamp in stamps.items()]
    rows = _changed_rows(stream, known, judged, splits)
    found = _moved(stream, judged, splits, rows, _next(known))
    if (found or same) and note is not None:
        with warehouse.lease() as token:
            since = warehouse.version("source_files")
            if ledger(warehouse, stream.name) != known:
                return None
            found = _moved(stream, judged, splits, rows, _next(known))
            for one in found:
                if one.event == "came" and one.late:
                    _quarantine(warehouse, stream, one, note, token)
            try:
                warehouse.append("source_files", [one.row() for one in [*found, *same]], token, since=since)
            except HeddleError as error:
                if warehouse.place.is_local or error.diagnostic.code != "HDL-510":
                    raise
                return None
    known = known | {one.identity: one for one in found}
    replacements = replacements_of(stream, known)
    taken = []
    for split in splits:
        one = known[split.identity]
        # what Parquet says of its row groups is narrower than what the ledger knows of the file
        begin, end = (one.begin, one.end) if split.format == "csv" else (split.begin, split.end)
        if begin is None or begin != end:  # not empty
            taken.append(replace(split, refused=one.refused, begin=begin, end=end, replacements=replacements))
    return Admitted(taken, known, rows.problem)


def _changed_rows(
    stream: Stream, known: Mapping[str, Arrival], judged: Sequence[Arrival], splits: Sequence[Split]
) -> ChangedRows:
    """What the feed of a Delta table says of the files that came and went since the ledger was written."""
    # what repeats an event of another file may be another row as soon as files are in another order
    if stream.source.format != "delta" or stream.event_id is not None or all(one.is_here for one in judged):
        return ChangedRows()
    moves = [move for one in known.values() for move in one.moves]
    commit = max(moves, key=lambda move: move.noted).commit if moves else None
    spans = {one.identity: (one.begin, one.end) for one in known.values() if one.is_here}
    gone = [one.identity for one in judged if not one.is_here]
    came = [one.identity for one in judged if one.is_here]
    rows = changed_rows(stream, commit, spans, gone, came, splits)
    # of what is refused one may hold more than the other, though both have the rows
    refused = [span for one in judged if one.identity in rows.files for span in one.refused]
    return replace(rows, changed=disjoint([*rows.changed, *refused]))


def _moved(
    stream: Stream, judged: Sequence[Arrival], splits: Sequence[Split], rows: ChangedRows, noted: int
) -> list[Arrival]:
    """What came and went, as moves of one moment."""
    commit = splits[0].commit if splits else None
    # which files have the spans is all the same: they are stored once
    first = next((one.identity for one in judged if one.identity in rows.files), None)
    moved = []
    for one in judged:
        move = Move(one.event, noted, commit)
        if one.identity in rows.files:
            move = replace(move, by=time_named(stream), changed=rows.changed if one.identity == first else ())
        moved.append(replace(one, noted=noted, moves=(*one.moves, move)))
    return moved


def _recognised(
    stream: Stream, splits: list[Split], known: Mapping[str, Arrival], note: bool
) -> tuple[list[Split], dict[str, str]]:
    """The splits, those of files that hold what they never held under an identity of their own, and by identity the
    stamps that are not known yet (of files without any if ``note``). Raises HDL-402."""
    # files of a Delta table never change under their names, and an ETag of a store stands for its content
    if stream.source.format in ("delta", "iceberg") or not Place.of(stream.source.path).is_local:
        return splits, {}
    seen: dict[tuple[str, str], str] = {}
    held: dict[str, dict[str, str]] = {}
    for one in known.values():
        for stamp in one.stamps:
            status, _, content = stamp.rpartition("|")
            listed = one.identity.removesuffix(CONTENT + content)
            seen[listed, status] = held.setdefault(listed, {})[content] = one.identity
    identities: dict[str, str] = {}
    stamps: dict[str, str] = {}
    for path, listed in {split.path: split.identity for split in splits}.items():
        with _reading(stream, path):
            found = Path(path).stat()
            status = f"{found.st_ino}|{found.st_ctime_ns}"
            identity = seen.get((listed, status), listed)
            if (listed, status) not in seen and (note or listed in held):
                content = _checksum(path)
                if listed in held:
                    identity = held[listed].get(content, f"{listed}{CONTENT}{content}")
                stamps[identity] = f"{status}|{content}"
        identities[path] = identity
    return [replace(split, identity=identities[split.path]) for split in splits], stamps


def _checksum(path: str) -> str:
    """The CRC-32 of a file's content."""
    found = 0
    with Path(path).open("rb") as file:
        while chunk := file.read(CHUNK):
            found = zlib.crc32(chunk, found)
    return f"{found:08x}"


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
        arrived = max(FIRST, min(clock, _modified(stream, mine[0])))
        one = Arrival(stream.name, identity, mine[0].path, "came", arrived, now, begin, end)
        if stream.allowed_lateness is not None and known and not any(other.meets(begin, end) for other in gone):
            if published is None:
                published = _published(warehouse, stream.name)
            until = arrived - stream.allowed_lateness if end is None else min(end, arrived - stream.allowed_lateness)
            spans = [(first if begin is None else max(first, begin), min(last, until)) for first, last in published]
            refused = tuple((first, last) for first, last in spans if first < last)
            one = replace(one, refused=refused, late=events_in(stream, mine, refused))
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
        return (low, high if high < LAST else None) if low < high else (0, 0)
    begins, ends = [split.begin for split in splits], [split.end for split in splits]
    if None in begins or None in ends:
        return None, None
    high = max(at for at in ends if at is not None)
    # the ledger has moments of the years 1 to 9999
    return min(at for at in begins if at is not None), high if high < LAST else None


def _modified(stream: Stream, split: Split) -> int:
    """When a file was written last, in microseconds."""
    if split.version is not None:
        return split.version.modified
    with _reading(stream, split.path):
        return Path(split.path).stat().st_mtime_ns // 1000


@contextmanager
def _reading(stream: Stream, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "do files come and go while they are listed? run it again"
        raise HeddleError("HDL-402", f"stream {stream.name}: {path} cannot be read: {error}", hint) from error


def _published(warehouse: Warehouse, stream: str) -> list[tuple[int, int]]:
    """The spans of time for which a stream's windows are published, as intervals of [begin, end)."""
    plans = {row.plan_version for row in planned(warehouse, ds.field("stream") == stream)}
    spans = []
    for row in publish_log.publications(warehouse):
        if row.plan_version in plans and stream not in row.record.failed:
            spans.append((row.begin, min(row.end, row.record.answered_until.get(stream, row.end))))
    return _joined(spans)


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


def events_in(stream: Stream, splits: Iterable[Split], spans: Sequence[tuple[int, int]]) -> int:
    """How many events of some splits lie in one of the spans [begin, end). Raises what reading raises."""
    return sum(
        int(inside(times, spans).sum())
        for split in splits
        if any(split.may_hold(*span) for span in spans)
        for batch in read_split(stream, split, [])
        for times in [times_of(batch, stream)[0]]
    )


def has_events(stream: Stream, splits: Iterable[Split], begin: int, end: int) -> bool:
    """Whether an event of some splits lies in [begin, end) (microseconds); reads up to the first one. Raises what
    reading raises."""
    return any(
        bool(inside(times_of(batch, stream)[0], [(begin, end)]).any())
        for split in splits
        if split.may_hold(begin, end)
        for batch in read_split(stream, split, [])
    )


def inside(times: Any, spans: Sequence[tuple[int, int]]) -> Any:
    """Which of some times (n,) lie in one of the spans [begin, end)."""
    found = np.zeros(len(times), dtype=bool)
    for begin, end in spans:
        found |= (times >= begin) & (times < end)
    return found


def _quarantine(warehouse: Warehouse, stream: Stream, arrival: Arrival, run_id: str, token: int) -> None:
    assert stream.allowed_lateness is not None
    spans = ", ".join(f"{format_instant(first)} .. {format_instant(last)}" for first, last in arrival.refused[:3])
    detail = (
        f"{arrival.path} came at {format_instant(arrival.arrived)}, more than the stream's allowed_lateness after "
        f"{spans}, which was published"
    )
    left_out = LeftOut(run_id, stream.name, "HDL-411", arrival.late, detail, arrival.noted)
    quarantine.log(warehouse, left_out, token, (f"quarantine/{digest([stream.name, arrival.identity])}", 1))


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
