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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.instants import format_instant
from optimizer.workload.values import Stream, digest
from spark_jobs.sources.change_feed import ChangedRows, changed_rows
from spark_jobs.sources.clusters import Cluster, gaps_of, of_file, stored_clusters
from spark_jobs.sources.decoding import read_split, times_of
from spark_jobs.sources.looks import Look
from spark_jobs.sources.newest_entries import newest_in
from spark_jobs.sources.replacements import FAR, FileSpan, Replacement, Replacements, disjoint
from spark_jobs.sources.splits import FIRST, LAST, KnownFiles, SourceFiles, Split, declared, failures_of, files_of
from spark_jobs.storage import Place
from spark_jobs.warehouse import publish_log, quarantine
from spark_jobs.warehouse.plans import planned
from spark_jobs.warehouse.quarantine import LeftOut
from spark_jobs.warehouse.schemas import HOUR, TABLES, micros, moment
from spark_jobs.warehouse.warehouse import Warehouse

REPEATED = "repeated"
"""Folder of the warehouse for :func:`distinct`."""

CONTENT = "|content "
"""Before the CRC-32 in the identity of a file that held something else under its path, size and time."""

CHUNK = 4 << 20
"""Bytes of a file that are read at once for its CRC-32."""

NOWHERE = (FAR, FAR)
"""A span in which no file has events: of a listing for it only what is new or not as it was is opened."""

REPEATS = pa.schema([("split", pa.int32()), ("row", pa.int64()), ("day", pa.int64())])


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
    clusters: tuple[Cluster, ...] = ()

    @property
    def is_here(self) -> bool:
        return self.event != "gone"

    def meets(self, begin: int | None, end: int | None) -> bool:
        """Whether both may hold events of one moment."""
        return (self.begin is None or end is None or self.begin < end) and (
            self.end is None or begin is None or begin < self.end
        )

    def row(self, stamp: str | None = None) -> dict[str, Any]:
        """As the table has it. ``stamp``: the one that it was seen with now, alone: rows before have the others."""
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
            "stamps": stamp or " ".join(sorted(self.stamps)) or None,
            "commit": move.commit,
            "changed": move.text(),
            "clusters": json.dumps(self.clusters) if self.clusters else None,
            **moments,
        }


class Ledger(Mapping[str, Arrival]):
    """What is known of a stream's files, by identity, those that are gone among them.

    Columns, so that what it takes grows little with the files: an :class:`Arrival` is made of those that are asked for.
    ``version``: of the table ``source_files``; ``rows``: of the stream, by moment; ``added``: what is known beyond.
    """

    def __init__(self, stream: str, version: int, rows: pa.Table, added: Mapping[str, Arrival] | None = None) -> None:
        self.stream, self.version, self.rows, self.added = stream, version, rows, dict(added or {})
        self._columns: dict[str, pa.Array] = {}

    def joined(self, arrivals: Iterable[Arrival]) -> Ledger:
        """With some more."""
        found = Ledger(self.stream, self.version, self.rows, self.added | {one.identity: one for one in arrivals})
        # what was made of the rows is the same
        for name in ("_encoded", "_last", "_spans", "_columns"):
            if name in self.__dict__:
                found.__dict__[name] = self.__dict__[name]
        return found

    # ------------------------------------------------------------------------------------ by identity
    @cached_property
    def _encoded(self) -> pa.DictionaryArray:
        return self.rows["identity"].combine_chunks().dictionary_encode()

    @cached_property
    def _last(self) -> NDArray[np.int64]:
        """The number of the last row of each identity, identities as they came first."""
        last = np.zeros(len(self._encoded.dictionary), dtype=np.int64)
        last[self._encoded.indices.to_numpy()] = np.arange(len(self.rows))
        return last

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {identity: number for number, identity in enumerate(self._encoded.dictionary.to_pylist())}

    def _of_last(self, column: str) -> pa.Array:
        """A column of the last row of each identity."""
        if column not in self._columns:
            known = self.rows[column].combine_chunks()
            # most files came once, and were never touched again
            is_each_alone = len(self._last) == len(known)
            self._columns[column] = known if is_each_alone else known.take(pa.array(self._last))
        return self._columns[column]

    def __getitem__(self, identity: str) -> Arrival:
        if identity in self.added:
            return self.added[identity]
        return self._arrivals([self._numbers[identity]])[0]

    def __iter__(self) -> Iterator[str]:
        yield from self._numbers
        yield from (identity for identity in self.added if identity not in self._numbers)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def all(self) -> list[Arrival]:
        """All of them at once, as :meth:`values` has them one by one."""
        numbers = [number for identity, number in self._numbers.items() if identity not in self.added]
        return [*self._arrivals(numbers), *self.added.values()]

    def of(self, identities: Iterable[str]) -> dict[str, Arrival]:
        """Those of some identities that are known."""
        wanted = list(dict.fromkeys(identities))
        found = {one.identity: one for one in self._arrivals(self._places(wanted).tolist())} | self.added
        return {identity: found[identity] for identity in wanted if identity in found}

    def path(self, number: int) -> str:
        """Where the file of a number lies."""
        return str(self._of_last("path")[number].as_py())

    def _places(self, identities: Iterable[str]) -> NDArray[np.int64]:
        """The numbers of those of some identities that are known, ascending, but for what is added."""
        # the few are made a table of, not the many
        known = pc.is_in(self._encoded.dictionary, pa.array(list(identities), pa.string()))
        return np.flatnonzero(known.to_numpy(zero_copy_only=False))

    def _arrivals(self, numbers: Sequence[int]) -> list[Arrival]:
        """Those of some identities, by their numbers."""
        if not len(numbers):
            return []
        mine = np.flatnonzero(np.isin(self._encoded.indices.to_numpy(), np.asarray(numbers)))
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows.take(pa.array(mine)).to_pylist():
            rows.setdefault(row["identity"], []).append(row)
        known = self._encoded.dictionary.take(pa.array(numbers, pa.int64())).to_pylist()
        return [_arrival(self.stream, rows[identity]) for identity in known]

    # ------------------------------------------------------------------------------------------ of all
    @cached_property
    def _is_here(self) -> NDArray[np.bool_]:
        """Which files are there, but those that are added."""
        here = pc.not_equal(self._of_last("event"), "gone").to_numpy(zero_copy_only=False)
        if self.added:
            again = pa.array(list(self.added), pa.string())
            here = here & ~pc.is_in(self._encoded.dictionary, again).to_numpy(zero_copy_only=False)
        return np.asarray(here)

    @property
    def newest(self) -> int:
        """The moment of the last entry: what is noted after it, by whichever host, gets a later one."""
        noted = [one.noted for one in self.added.values()]
        return max([*noted, *([] if not len(self.rows) else [pc.max(self.rows["at"]).value])], default=0)

    @property
    def late(self) -> int:
        """Events that are refused of the files that are there."""
        known = self._of_last("late").to_numpy()[self._is_here].sum()
        return int(known) + sum(one.late for one in self.added.values() if one.is_here)

    @property
    def extent(self) -> tuple[int, int] | None:
        """The span [begin, end) of the events of all files that are there; None: not known, or there are none."""
        lows, highs = self._spans
        known = self._is_here & (lows < highs)  # not empty
        added = [one for one in self.added.values() if one.is_here and (one.begin is None or one.begin != one.end)]
        begins = [*lows[known].tolist(), *(-FAR if one.begin is None else one.begin for one in added)]
        ends = [*highs[known].tolist(), *(FAR if one.end is None else one.end for one in added)]
        return (min(begins), max(ends)) if begins and -FAR not in begins and FAR not in ends else None

    @property
    def newest_event(self) -> int | None:
        """The time of the newest event of the files that are there and say so; None if none does."""
        lows, highs = self._spans
        ends = highs[self._is_here & (lows < highs) & (highs < FAR)].tolist()
        ends += [one.end for one in self.added.values() if one.is_here and one.begin != one.end and one.end is not None]
        return max(ends) - 1 if ends else None

    @property
    def clusters(self) -> list[tuple[Cluster, str]]:
        """The clusters of the files that are there, with their paths; none, if nothing can be far from anything."""
        here = pa.array(self._is_here)
        known = [self._of_last(name).filter(here) for name in ("path", "begin", "end", "clusters")]
        added = [(cluster, one.path) for one in self.added.values() if one.is_here for cluster in one.clusters]
        return stored_clusters(known, added)

    @cached_property
    def _spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The spans of files' events; of those that do not say theirs all times."""
        lows, highs = (self._of_last(name).cast(pa.int64()) for name in ("begin", "end"))
        known = pc.and_(lows.is_valid(), highs.is_valid())
        return (
            pc.if_else(known, lows, -FAR).to_numpy(zero_copy_only=False),
            pc.if_else(known, highs, FAR).to_numpy(zero_copy_only=False),
        )

    def newest_in(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of some spans [begin, end) (n,) the moments of the newest entries of files that may have events there (n,),
        those that are gone among them; 0: there are none. O((files + n) log files)."""
        lows, highs = self._spans
        noted = self._of_last("at").cast(pa.int64()).to_numpy().copy()
        noted[self._places(self.added)] = 0
        more = [(_or(one.begin, -FAR), _or(one.end, FAR), one.noted) for one in self.added.values()]
        lows, highs, noted = (
            np.concatenate([known, np.array([one[at] for one in more], dtype=np.int64)])
            for at, known in enumerate((lows, highs, noted))
        )
        return newest_in(lows, highs, noted, begins, ends)

    def since(self, noted: int) -> list[Arrival]:
        """The files of which something was noted after a moment."""
        later = pc.greater(self._of_last("at").cast(pa.int64()), noted).to_numpy(zero_copy_only=False)
        known = [one for one in self._arrivals(np.flatnonzero(later).tolist()) if one.identity not in self.added]
        return [*known, *(one for one in self.added.values() if one.noted > noted)]

    def missing(self, settled: NDArray[np.int64], present: Iterable[str]) -> list[Arrival]:
        """The files that were there, and are not: neither among those ``settled`` (:meth:`settled_in`) nor with one of
        the identities that are ``present``."""
        present = set(present)
        here = self._is_here.copy()
        here[settled] = False
        here[self._places(present)] = False
        added = [one for one in self.added.values() if one.is_here and one.identity not in present]
        return [*self._arrivals(np.flatnonzero(here).tolist()), *added]

    def seen_as(self, listed: Collection[str]) -> list[Arrival]:
        """The files that were listed by such identities, whatever they held."""
        names = _as_listed(self._encoded.dictionary)
        mine = pc.is_in(names, pa.array(listed, pa.string())).to_numpy(zero_copy_only=False)
        return [*self._arrivals(np.flatnonzero(mine).tolist()), *self.added.values()]

    def replacements(self, stream: Stream) -> Replacements:
        """What is known of files that took the place of others."""
        told = self.rows.filter(self.rows["changed"].is_valid())["identity"].to_pylist()
        files = [*self.of(told).values(), *(one for one in self.added.values() if one.identity not in told)]
        moments: dict[int, list[tuple[Move, FileSpan]]] = {}
        for one in files:
            for move in one.moves:
                if move.changed is not None and move.by == time_named(stream):
                    moments.setdefault(move.noted, []).append((move, FileSpan(one.identity, one.begin, one.end)))
        return Replacements(
            Replacement(
                noted,
                tuple(file for move, file in moved if move.event == "gone"),
                tuple(file for move, file in moved if move.event != "gone"),
                disjoint(span for move, _ in moved for span in move.changed or ()),
            )
            for noted, moved in moments.items()
        )

    def known_files(self, stream: Stream, span: tuple[int, int], look: Look) -> tuple[KnownFiles, NDArray[np.int64]]:
        """The files that hold no event of a span [begin, end) and are as they were, if their names and inodes are; and
        the numbers of their identities here."""
        is_passed = self._passed(stream, span)
        if is_by_version(stream) or stream.source.format in ("delta", "iceberg") or not is_passed.any():
            is_passed = np.zeros(len(is_passed), dtype=bool)
        numbers = np.flatnonzero(is_passed & self._is_seen_once)
        statuses = self._of_last("stamps").take(pa.array(numbers))
        inodes = pc.list_flatten(pc.split_pattern(statuses, "|"))[::3].cast(pa.uint64()).to_numpy()
        chosen = look.knows(inodes, self._of_last("at").cast(pa.int64()).to_numpy()[numbers])
        numbers = numbers[chosen]
        return KnownFiles(self._of_last("path").take(pa.array(numbers)), inodes[chosen]), numbers

    def settled_in(self, stream: Stream, files: SourceFiles, span: tuple[int, int]) -> tuple[Any, NDArray[np.int64]]:
        """Which files of a listing are as they were, and hold no event of a span [begin, end): those that need not be
        opened (n,), and the numbers of their identities here."""
        passed = self._passed(stream, span)
        if not files.is_settling or not passed.any():
            return np.zeros(len(files.paths), dtype=bool), np.zeros(0, dtype=np.int64)
        if 2 * len(files.paths) < len(passed):
            listed = pc.is_in(self._of_last("path"), pa.array(files.paths, pa.string()))
            passed = passed & listed.to_numpy(zero_copy_only=False)
        numbers = np.flatnonzero(passed)
        at = pc.index_in(self._listed(stream, files), self._marks(stream, numbers))
        return at.is_valid().to_numpy(zero_copy_only=False), numbers[at.drop_null().to_numpy()]

    def _passed(self, stream: Stream, span: tuple[int, int]) -> NDArray[np.bool_]:
        """Which files are there and hold no event of a span, those that are added not among them."""
        lows, highs = self._spans
        # what repeats an event is looked for in all files that may hold its day
        if self.added or (stream.event_id is not None and (lows[self._is_here] == -FAR).any()):
            return np.zeros(len(lows), dtype=bool)
        return np.asarray(self._is_here & ((highs <= span[0]) | (lows >= span[1])))

    @cached_property
    def _is_seen_once(self) -> NDArray[np.bool_]:
        """Which files have one stamp in their last row, which is the one that they were seen with last."""
        alone = pc.equal(pc.count_substring(self._of_last("stamps"), " "), 0)
        return np.asarray(pc.fill_null(alone, False).to_numpy(zero_copy_only=False))

    def _listed(self, stream: Stream, files: SourceFiles) -> pa.Array:
        """By what the files of a listing are found among :meth:`_marks`."""
        marks = files.marks if isinstance(files.marks, pa.Array) else pa.array(files.marks, pa.string())
        if not is_by_version(stream):
            return marks
        return pc.binary_join_element_wise(pa.array(files.paths, pa.string()), marks, "\n")

    def _marks(self, stream: Stream, numbers: NDArray[np.int64]) -> pa.Array:
        """By what a listing has some files if they are as they were when they were noted; null: they have to be looked
        at."""
        chosen = pa.array(numbers)
        names = self._encoded.dictionary.take(chosen)
        if is_by_version(stream):
            behind, found = declared(stream), list[str | None]()
            arrived, noted = (
                self._of_last(name).take(chosen).cast(pa.int64()).to_pylist() for name in ("arrived", "at")
            )
            paths = self._of_last("path").take(chosen).to_pylist()
            for name, path, written, seen in zip(names.to_pylist(), paths, arrived, noted, strict=True):
                version = name[len(path) + 1 : len(name) - len(behind)].split("|")
                is_same = name.endswith(behind) and len(version) == 2
                # what is written within the hour before it was seen may be written again under the same moment
                found.append(f"{path}\n{version[0]}|{written}" if is_same and seen - written > HOUR else None)
            return pa.array(found, pa.string())
        if stream.source.format in ("delta", "iceberg"):
            return names
        status = pc.utf8_slice_codeunits(self._of_last("stamps").take(chosen), 0, -9)
        marks = pc.binary_join_element_wise(_as_listed(names), status, "\n")
        # of a file that came again with several stamps they are compared one by one
        return pc.if_else(pa.array(self._is_seen_once[numbers]), marks, pa.scalar(None, pa.string()))


def _as_listed(identities: pa.Array) -> pa.Array:
    """By what files are listed, whatever they hold."""
    if not pc.any(pc.match_substring(identities, CONTENT)).as_py():
        return identities
    return pc.replace_substring_regex(identities, r"\|content [0-9a-f]{8}$", "")


def _or(moment: int | None, other: int) -> int:
    return other if moment is None else moment


def _arrival(stream: str, rows: Sequence[Mapping[str, Any]]) -> Arrival:
    """A file, of its rows by moment."""
    moves: dict[int, Move] = {}
    for row in rows:
        if row["event"] != "released":
            move = _move(row)
            moves[move.noted] = move
    row = rows[-1]
    return Arrival(
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
        # of all rows: one that adds a stamp has the moment of the one before it
        frozenset(stamp for row in rows for stamp in (row.get("stamps") or "").split()),
        tuple(moves.values()),
        tuple(Cluster(*one) for one in json.loads(row.get("clusters") or "[]")),
    )


def ledger(warehouse: Warehouse, stream: str) -> Ledger:
    """What is known of a stream's files."""
    chosen = ds.field("stream") == stream
    current = warehouse.table("source_files")
    rows = _by_moment(warehouse.dataset("source_files", current, where=chosen).to_table(filter=chosen))
    for field in TABLES["source_files"][0]:
        if field.name not in rows.schema.names:  # an earlier Heddle has made it
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return Ledger(stream, int(current.version()), rows)


def _by_moment(rows: pa.Table) -> pa.Table:
    """Rows of a ledger by their moments, those of one as they are. Most come so, in pieces that follow one another."""
    pieces = [(piece.column("at").cast(pa.int64()).to_numpy(), piece) for piece in rows.to_batches() if len(piece)]
    pieces.sort(key=lambda piece: int(piece[0][0]))
    ascend = all(bool((at[1:] >= at[:-1]).all()) for at, _ in pieces)
    # of one moment in several pieces it is not known which came first
    follow = all(bool(before[-1] < at[0]) for (before, _), (at, _) in zip(pieces, pieces[1:], strict=False))
    if not (ascend and follow):
        return rows.sort_by("at")
    return pa.Table.from_batches([piece for _, piece in pieces], rows.schema).combine_chunks()


def is_by_version(stream: Stream) -> bool:
    """Whether a stream's files are those of a store, which are known by their version there."""
    return stream.source.format not in ("delta", "iceberg") and not Place.of(stream.source.path).is_local


def _move(row: Mapping[str, Any]) -> Move:
    told = json.loads(row.get("changed") or "null")
    move = Move(row["event"], micros(row["at"]), row.get("commit"))
    if told is None:
        return move
    return replace(move, by=told["by"], changed=tuple((first, last) for first, last in told["spans"]))


def time_named(stream: Stream) -> str:
    """The column of times of a stream, and what it counts."""
    unit = stream.source.time_unit
    return stream.time if unit is None else f"{stream.time} in {unit}"


class Listed(NamedTuple):
    """What of a stream was listed: the ``splits`` of the files that were opened, the ``settled`` ones, which were not
    (:meth:`Ledger.settled_in`), and the state ``commit`` of a table. ``others`` opens those, the last first. ``look``:
    the look that it was, if not all files had to be looked at. ``warnings``: about files that are not read."""

    splits: list[Split]
    settled: NDArray[np.int64]
    commit: str | None
    others: Iterator[list[Split]]
    look: Look | None = None
    warnings: tuple[Diagnostic, ...] = ()


def opened(stream: Stream, known: Ledger, span: tuple[int, int] | None, look: Look | None = None) -> Listed:
    """The files of a stream now: opened are those that are not as the ledger has them, or may hold events of a span
    [begin, end); None: all. ``look``: those that it knows are not looked at, None: all are. Raises what
    :func:`spark_jobs.sources.splits.splits_of` raises."""
    passed, known_files = np.zeros(0, dtype=np.int64), None
    if span is not None and look is not None:
        with failures_of(stream, stream.source.path):
            known_files, passed = known.known_files(stream, span, look)
    files = files_of(stream, known_files)
    passed = passed[files.passed]
    is_settled, settled = np.zeros(len(files.paths), dtype=bool), np.zeros(0, dtype=np.int64)
    if span is not None:
        with failures_of(stream, stream.source.path):
            is_settled, settled = known.settled_in(stream, files, span)
    splits = files.opened(np.flatnonzero(~is_settled).tolist())

    def others() -> Iterator[list[Split]]:
        for number in np.flatnonzero(is_settled)[::-1].tolist():
            yield files.opened([number])
        # nobody needs them for more than what columns they have
        for number in passed[::-1].tolist():
            path = known.path(number)
            yield files_of(replace(stream, source=replace(stream.source, path=path))).opened([0])

    return Listed(splits, np.concatenate([settled, passed]), files.commit, others(), look, files.warnings)


class Admitted(NamedTuple):
    """What of a stream is taken in: its ``splits``, the ledger with them (``arrivals``), and why a change data feed
    does not say what changed, if it ought to."""

    splits: list[Split]
    arrivals: Ledger
    problem: Diagnostic | None


def admitted(
    warehouse: Warehouse, stream: Stream, known: Ledger, listed: Listed, clock: int, note: str | None
) -> Admitted | None:
    """The splits with what is refused of them and the times that they may hold, and the ledger as it is with them.

    ``known``: the ledger from before the files were ``listed``. ``clock`` (microseconds): now. ``note``: the run whose
    listing this is, which enters new files into the ledger; None: nothing is written. Returns None if another run has
    noted files since ``known``: list again. Raises what reading raises.
    """
    splits, stamps = _recognised(stream, listed.splits, known, note is not None)
    listed = listed._replace(splits=splits)
    judged = [
        replace(one, stamps=one.stamps.union(stamps.get(one.identity, "").split()))
        for one in _judged(warehouse, stream, listed, clock, known)
    ]
    # nothing came or went: with the moment of their last entries, so that nothing counts as changed since
    moved = {one.identity for one in judged}
    same = [one for name, one in known.of(stamps).items() if name not in moved]
    rows = _changed_rows(stream, known, judged, listed)
    found = _moved(stream, judged, listed.commit, rows, next_moment(known))
    if (found or same) and note is not None:
        with warehouse.lease() as token:
            since = warehouse.version("source_files")
            if since != known.version and not ledger(warehouse, stream.name).rows.equals(known.rows):
                return None
            found = _moved(stream, judged, listed.commit, rows, next_moment(known))
            for one in found:
                if one.event == "came" and one.late:
                    _quarantine(warehouse, stream, one, note, token)
            try:
                rows_added = [one.row(stamps.get(one.identity)) for one in [*found, *same]]
                warehouse.append("source_files", rows_added, token, since=since)
            except HeddleError as error:
                if warehouse.place.is_local or error.diagnostic.code != "HDL-510":
                    raise
                return None
    if listed.look is not None and note is not None:
        listed.look.keep()
    known = known.joined(found)
    replacements, files = known.replacements(stream), known.of(split.identity for split in splits)
    taken = []
    for split in splits:
        one = files[split.identity]
        # what Parquet says of its row groups is narrower than what the ledger knows of the file
        begin, end = (one.begin, one.end) if split.format == "csv" else (split.begin, split.end)
        if begin is None or begin != end:  # not empty
            bounds = replace(split, begin=begin, end=end, gaps=gaps_of(one.clusters))
            taken.append(replace(bounds, refused=one.refused, replacements=replacements))
    return Admitted(taken, known, rows.problem)


def _changed_rows(stream: Stream, known: Ledger, judged: Sequence[Arrival], listed: Listed) -> ChangedRows:
    """What the feed of a Delta table says of the files that came and went since the ledger was written."""
    # what repeats an event of another file may be another row as soon as files are in another order
    if stream.source.format != "delta" or stream.event_id is not None or all(one.is_here for one in judged):
        return ChangedRows()
    files = known.all()
    moves = [move for one in files for move in one.moves]
    commit = max(moves, key=lambda move: move.noted).commit if moves else None
    spans = {one.identity: (one.begin, one.end) for one in files if one.is_here}
    gone = [one.identity for one in judged if not one.is_here]
    came = [one.identity for one in judged if one.is_here]
    rows = changed_rows(stream, (commit, listed.commit), spans, gone, came, listed.splits)
    # of what is refused one may hold more than the other, though both have the rows
    refused = [span for one in judged if one.identity in rows.files for span in one.refused]
    return replace(rows, changed=disjoint([*rows.changed, *refused]))


def _moved(
    stream: Stream, judged: Sequence[Arrival], commit: str | None, rows: ChangedRows, noted: int
) -> list[Arrival]:
    """What came and went, as moves of one moment, of which the table was in the state ``commit``."""
    # which files have the spans is all the same: they are stored once
    first = next((one.identity for one in judged if one.identity in rows.files), None)
    moved = []
    for one in judged:
        move = Move(one.event, noted, commit)
        if one.identity in rows.files:
            move = replace(move, by=time_named(stream), changed=rows.changed if one.identity == first else ())
        moved.append(replace(one, noted=noted, moves=(*one.moves, move)))
    return moved


def _recognised(stream: Stream, splits: list[Split], known: Ledger, note: bool) -> tuple[list[Split], dict[str, str]]:
    """The splits, those of files that hold what they never held under an identity of their own, and by identity the
    stamps that are not known yet (of files without any if ``note``). Raises HDL-402."""
    # files of a Delta table never change under their names, and an ETag of a store stands for its content
    if stream.source.format in ("delta", "iceberg") or not Place.of(stream.source.path).is_local:
        return splits, {}
    seen: dict[tuple[str, str], str] = {}
    held: dict[str, dict[str, str]] = {}
    for one in known.seen_as({split.identity for split in splits}):
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


def next_moment(known: Ledger) -> int:
    """The moment of the ledger's next entry, under the lease."""
    return max(time.time_ns() // 1000, known.newest + 1)


def _judged(warehouse: Warehouse, stream: Stream, listed: Listed, clock: int, known: Ledger) -> list[Arrival]:
    """What came and what went since the ledger was written, with what is refused."""
    present: dict[str, list[Split]] = {}
    for split in listed.splits:
        present.setdefault(split.identity, []).append(split)
    now, found = next_moment(known), list[Arrival]()
    gone = [replace(one, event="gone", noted=now) for one in known.missing(listed.settled, present)]
    befores = known.of(present)
    for identity, mine in present.items():
        before = befores.get(identity)
        if before is not None:
            # back again as it was: what was refused of it still is
            found += [] if before.is_here else [replace(before, event="came", noted=now)]
            continue
        clusters = of_file(stream, mine)
        begin, end = _bounds(mine, clusters)
        arrived = max(FIRST, min(clock, _modified(stream, mine[0])))
        one = Arrival(stream.name, identity, mine[0].path, "came", arrived, now, begin, end, clusters=clusters or ())
        if (
            stream.allowed_lateness is not None
            and len(known.rows)
            and not any(other.meets(begin, end) for other in gone)
        ):
            until = arrived - stream.allowed_lateness if end is None else min(end, arrived - stream.allowed_lateness)
            published = _published(warehouse, stream.name, FIRST if begin is None else begin, until)
            spans = [(first if begin is None else max(first, begin), min(last, until)) for first, last in published]
            refused = tuple((first, last) for first, last in spans if first < last)
            one = replace(one, refused=refused, late=events_in(stream, mine, refused))
        found.append(one)
    return [*found, *gone]


def _bounds(splits: Sequence[Split], clusters: Sequence[Cluster] | None) -> tuple[int | None, int | None]:
    """The span [begin, end) of a file's events; None, None if some have no time. CSV does not say: its clusters do."""
    if any(split.format == "csv" for split in splits):
        if not clusters:
            return (None, None) if clusters is None else (0, 0)
        return clusters[0].begin, clusters[-1].end if clusters[-1].end < LAST else None
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


def _published(warehouse: Warehouse, stream: str, begin: int, end: int) -> list[tuple[int, int]]:
    """The spans of time in [begin, end) for which a stream's windows are published, as intervals of [begin, end)."""
    if begin >= end:
        return []
    rows = publish_log.overlapping(warehouse, begin, end, publish_log.PUBLISHED)
    versions = sorted({row.plan_version for row in rows})
    mine = (ds.field("stream") == stream) & ds.field("plan_version").isin(versions)
    plans = {row.plan_version for row in planned(warehouse, mine)} if versions else set()
    spans = []
    for row in rows:
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
    quarantine.log(warehouse, [left_out], token, (f"quarantine/{digest([stream.name, arrival.identity])}", 1))
