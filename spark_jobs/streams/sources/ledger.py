"""Admit files of a source: when each file came, which events came too late, and which repeat others.

The ledger ``source_files`` records each file of a stream once, by its identity, with the moment at which it came. A
file that is new where intervals are already published brings *late* events. They are admitted, and
:func:`spark_jobs.pipeline.run.history.outdated` finds the intervals that they change, unless the stream has an
``allowed_lateness`` and they are later than that: those are *refused*, by spans of time in the ledger, so that every
later run, retry and backfill skips the same events. They are counted in ``quarantine`` until somebody releases the
file. A file that replaces others which covered the same time (rewritten, compacted, corrected) is never refused.

A file is identified by its listing below the root of its source (:mod:`spark_jobs.streams.sources.listings`), so that a
source may be moved. A local file may have new content under the same name, size and time of modification, or the same
content under another time: the ledger stores its *stamps*, inode, time of change and CRC-32, to recognise it
(:mod:`spark_jobs.streams.sources.recognition`). New content gets a new identity, as a file that came where
another went.

The span of a file's events, and its refused spans, refer to the event times as declared then. They are stored with the
declaration digest of those (:mod:`spark_jobs.streams.sources.declared`), and computed again if the event time is
declared differently.

For files of a Delta table that replaced others, the table's change data feed may show which rows changed
(:mod:`spark_jobs.streams.sources.change_feed`). Then the ledger stores with them the times at which they differ, and
everything that was computed for other times remains valid (:mod:`spark_jobs.streams.sources.replacements`).

A stream with an ``event_id`` is read without repetitions: of the events that have one id on one day (UTC) the first is
used, in the order of files and rows. The repetitions depend only on the files: they are computed again for the days
that new files touch, and stored in ``repeated/`` by the hash of their input.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.diagnostics import count as number_of
from optimizer.workload.instants import format_instant
from optimizer.workload.partitions import is_exact
from optimizer.workload.values import Stream, digest
from spark_jobs.engine.workers import Available, in_shares, unavailable
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse import quarantine
from spark_jobs.store.warehouse.plans import former_streams
from spark_jobs.store.warehouse.quarantine import LeftOut
from spark_jobs.store.warehouse.schemas import HOUR, TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.arrivals import Arrival, Move, arrival_of, time_named
from spark_jobs.streams.sources.change_feed import ChangedRows, changed_rows
from spark_jobs.streams.sources.clusters import Cluster, gaps_of, of_file, stored_clusters
from spark_jobs.streams.sources.declared import Declaration
from spark_jobs.streams.sources.decoding import events_in, of_each_layout
from spark_jobs.streams.sources.exact_folders import events_outside
from spark_jobs.streams.sources.file_statuses import status_of
from spark_jobs.streams.sources.files import files_of, reopened
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.legacy_calendar import MOVED_DATES
from spark_jobs.streams.sources.listings import first_table, listed_as, named_alike
from spark_jobs.streams.sources.looks import Look
from spark_jobs.streams.sources.newest_entries import newest_in
from spark_jobs.streams.sources.partition_columns import Wanted, wanted
from spark_jobs.streams.sources.published_times import published_spans
from spark_jobs.streams.sources.recognition import Seen, file_errors, recognised
from spark_jobs.streams.sources.replacements import FAR, FileSpan, Replacement, Replacements, disjoint
from spark_jobs.streams.sources.splits import FIRST, LAST, KnownFiles, SourceFiles, Split, failures_of

REPEATED = "repeated"
"""Folder of the warehouse for :func:`distinct`."""

NOWHERE = (FAR, FAR)
"""A span in which no file has events: of a listing for it only what is new or not as it was is opened."""

REPEATS = pa.schema([("split", pa.int32()), ("row", pa.int64()), ("day", pa.int64())])


class Ledger(Mapping[str, Arrival]):
    """The known files of a stream, by identity, including files that are gone.

    Data are columns, so that the cost grows little with the files: an :class:`Arrival` is created for the files that a
    caller asks for. ``version``: of the table ``source_files``; ``rows``: of the stream, by moment; ``added``: files
    known in addition; ``declared``: the stream's declaration, None: spans count whatever their declaration.
    """

    def __init__(
        self,
        stream: str,
        version: int,
        rows: pa.Table,
        added: Mapping[str, Arrival] | None = None,
        declared: Declaration | None = None,
    ) -> None:
        self.stream, self.version, self.rows, self.added = stream, version, rows, dict(added or {})
        self.declared = declared
        self._columns: dict[str, pa.Array] = {}
        self._known_as: dict[str | None, pa.Array] = {}

    def joined(self, arrivals: Iterable[Arrival]) -> Ledger:
        """Return the ledger with more files."""
        added = self.added | {arrival.identity: arrival for arrival in arrivals}
        ledger = Ledger(self.stream, self.version, self.rows, added, self.declared)
        # what was made of the rows is the same
        for name in ("_encoded", "_last", "_spans", "_columns", "_known_as"):
            if name in self.__dict__:
                ledger.__dict__[name] = self.__dict__[name]
        return ledger

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
        """The known files among some identities."""
        ordered = list(dict.fromkeys(identities))
        arrivals = {
            arrival.identity: arrival for arrival in self._arrivals(self._places(ordered).tolist())
        } | self.added
        return {identity: arrivals[identity] for identity in ordered if identity in arrivals}

    def path(self, number: int) -> str:
        """Path of the file with a number."""
        return str(self._of_last("path")[number].as_py())

    def names(self, numbers: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """Names of the files with some numbers below the source, as last seen."""
        listings = self.known_as().take(pa.array(self._last)).take(pa.array(numbers, pa.int64())).to_pylist()
        return [listing.removesuffix(MOVED_DATES).rsplit("|", 2)[0] for listing in listings]

    def unlisted(self, stream: Stream, span: tuple[int, int]) -> tuple[Wanted | None, NDArray[np.int64]]:
        """The folders to list for a span [begin, end), None: all; and the numbers of the files in all others, which
        stay as they are known."""
        if not is_exact(stream.source):
            return None, np.zeros(0, dtype=np.int64)
        lows, highs = self._spans
        here = np.flatnonzero(self._is_here)
        is_needed = (lows[here] < span[1]) & (highs[here] > span[0])
        folders, others = wanted(stream.source, span, self.names(here), is_needed)
        return folders, here[others]

    def _places(self, identities: Iterable[str]) -> NDArray[np.int64]:
        """The numbers of those of some identities that are known, ascending, but for what is added."""
        # the few are made a table of, not the many
        known = pc.is_in(self._encoded.dictionary, pa.array(list(identities), pa.string()))
        return np.flatnonzero(known.to_numpy(zero_copy_only=False))

    def _arrivals(self, numbers: Sequence[int]) -> list[Arrival]:
        """The files of some identities, by their numbers."""
        if not len(numbers):
            return []
        row_numbers = np.flatnonzero(np.isin(self._encoded.indices.to_numpy(), np.asarray(numbers)))
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows.take(pa.array(row_numbers)).to_pylist():
            rows.setdefault(row["identity"], []).append(row)
        known = self._encoded.dictionary.take(pa.array(numbers, pa.int64())).to_pylist()
        return [arrival_of(self.stream, rows[identity], (), self._is_spanned) for identity in known]

    def _is_spanned(self, declared: str | None) -> bool:
        """Return whether spans with this digest refer to the event times as declared now."""
        if self.declared is None:
            return True
        return self.declared.is_former_of_times if declared is None else declared == self.declared.of_times

    # ------------------------------------------------------------------------------------- by listing
    def known_as(self, table: str | None = None) -> pa.Array:
        """Listing of each row. ``table``: the id of the stream's current table."""
        if table not in self._known_as:
            stream = None if self.declared is None else self.declared.stream
            is_table, roots = False, list[str]()
            if self.declared is not None and stream is not None:
                is_table, roots = format_of(stream).is_table, [stream.source.path]
                if self.rows["listed"].null_count:
                    roots += [former_stream.source.path for former_stream in self.declared.former]
            self._known_as[table] = listed_as(self.rows, is_table, roots, first_table(self.rows) or table)
        return self._known_as[table]

    def listings(self, table: str | None = None) -> dict[str, str]:
        """Latest listing of each file, by identity."""
        listed = self.known_as(table).take(pa.array(self._last)).to_pylist()
        return dict(zip(self._encoded.dictionary.to_pylist(), listed, strict=True))

    def listed(self, listings: Collection[str], table: str | None = None, is_sized: bool = False) -> list[Arrival]:
        """The files that were ever listed so, those that are here first, with what they were listed as. ``is_sized``:
        by their names and sizes alone."""
        known = self.known_as(table)
        alike = named_alike(known, list(listings)) if is_sized else pc.is_in(known, pa.array(listings, pa.string()))
        is_wanted = pc.fill_null(alike, False).to_numpy(zero_copy_only=False)
        numbers = np.unique(self._encoded.indices.to_numpy()[is_wanted])
        chosen = np.flatnonzero(np.isin(self._encoded.indices.to_numpy(), numbers))
        seen: dict[str, set[tuple[str, str]]] = {}
        for identity, listing, stamps in zip(
            self._encoded.take(pa.array(chosen)).to_pylist(),
            known.take(pa.array(chosen)).to_pylist(),
            self.rows["stamps"].take(pa.array(chosen)).to_pylist(),
            strict=True,
        ):
            statuses = [stamp.rpartition("|")[0] for stamp in (stamps or "").split()]
            seen.setdefault(identity, set()).update((listing, status) for status in statuses or [""])
        arrivals = [
            replace(arrival, listings=frozenset(seen[arrival.identity])) for arrival in self._arrivals(numbers.tolist())
        ]
        return sorted(arrivals, key=lambda arrival: (not arrival.is_here, -arrival.noted))

    # ------------------------------------------------------------------------------------------ of all
    @cached_property
    def _is_here(self) -> NDArray[np.bool_]:
        """Mask of the files that are present, without those in ``added``."""
        is_present = pc.not_equal(self._of_last("event"), "gone").to_numpy(zero_copy_only=False)
        if self.added:
            again = pa.array(list(self.added), pa.string())
            is_present = is_present & ~pc.is_in(self._encoded.dictionary, again).to_numpy(zero_copy_only=False)
        return np.asarray(is_present)

    @property
    def newest(self) -> int:
        """The moment of the last entry: what is noted after it, by whichever host, gets a later one."""
        noted = [arrival.noted for arrival in self.added.values()]
        return max([*noted, *([] if not len(self.rows) else [pc.max(self.rows["at"]).value])], default=0)

    @property
    def late(self) -> int:
        """Events that are refused of the files that are there."""
        known = pc.fill_null(self._of_spanned("late"), 0).to_numpy()[self._is_here].sum()
        return int(known) + sum(arrival.late for arrival in self.added.values() if arrival.is_here)

    @property
    def extent(self) -> tuple[int, int] | None:
        """The span [begin, end) of the events of all files that are there; None: not known, or there are none."""
        lows, highs = self._spans
        known = self._is_here & (lows < highs)  # not empty
        added = [
            arrival
            for arrival in self.added.values()
            if arrival.is_here and (arrival.begin is None or arrival.begin != arrival.end)
        ]
        begins = [*lows[known].tolist(), *(-FAR if arrival.begin is None else arrival.begin for arrival in added)]
        ends = [*highs[known].tolist(), *(FAR if arrival.end is None else arrival.end for arrival in added)]
        return (min(begins), max(ends)) if begins and -FAR not in begins and FAR not in ends else None

    @property
    def newest_event(self) -> int | None:
        """Time of the newest event in the present files with a known span; None if there is none."""
        lows, highs = self._spans
        ends = highs[self._is_here & (lows < highs) & (highs < FAR)].tolist()
        ends += [
            arrival.end
            for arrival in self.added.values()
            if arrival.is_here and arrival.begin != arrival.end and arrival.end is not None
        ]
        return max(ends) - 1 if ends else None

    @property
    def clusters(self) -> list[tuple[Cluster, str]]:
        """The clusters of the files that are there, with their paths; none, if nothing can be far from anything."""
        is_present = pa.array(self._is_here)
        columns = self._of_last("path"), *map(self._of_spanned, ("begin", "end", "clusters"))
        known = [column.filter(is_present) for column in columns]
        added = [
            (cluster, arrival.path)
            for arrival in self.added.values()
            if arrival.is_here
            for cluster in arrival.clusters
        ]
        return stored_clusters(known, added)

    @cached_property
    def _spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Spans of files' events, by the event times as declared now; files without a span get all times."""
        lows, highs = (self._of_spanned(name).cast(pa.int64()) for name in ("begin", "end"))
        known = pc.and_(lows.is_valid(), highs.is_valid())
        return (
            pc.if_else(known, lows, -FAR).to_numpy(zero_copy_only=False),
            pc.if_else(known, highs, FAR).to_numpy(zero_copy_only=False),
        )

    @cached_property
    def _spanned(self) -> pa.Array | None:
        """The number of the last row of each identity whose span is of the event times of now; None: the last of
        all."""
        if self.declared is None:
            return None
        digests = self.rows["declared"].combine_chunks().dictionary_encode()
        allowed = [self._is_spanned(stored_digest) for stored_digest in digests.dictionary.to_pylist()]
        if all(allowed) and (not digests.null_count or self._is_spanned(None)):
            return None
        by_digest = pa.array(allowed, pa.bool_()).take(digests.indices)
        usable = pc.fill_null(by_digest, bool(digests.null_count) and self._is_spanned(None))
        rows = np.flatnonzero(usable.to_numpy(zero_copy_only=False))
        last_rows = np.full(len(self._encoded.dictionary), -1, dtype=np.int64)
        last_rows[self._encoded.indices.to_numpy()[rows]] = rows
        return pa.array(last_rows, mask=last_rows < 0)

    def _of_spanned(self, column: str) -> pa.Array:
        """A column of the last row of each identity whose span is of the event times of now; null: there is none."""
        if self._spanned is None:
            return self._of_last(column)
        return self.rows[column].combine_chunks().take(self._spanned)

    def newest_in(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Moments of the newest entries of files, present or gone, that may have events in some spans [begin, end)
        (n,): (n,); 0: there are none. O((files + n) log files).
        """
        lows, highs = self._spans
        noted = self._of_last("at").cast(pa.int64()).to_numpy().copy()
        noted[self._places(self.added)] = 0
        more = [(_or(arrival.begin, -FAR), _or(arrival.end, FAR), arrival.noted) for arrival in self.added.values()]
        lows, highs, noted = (
            np.concatenate([known, np.array([added_bounds[at] for added_bounds in more], dtype=np.int64)])
            for at, known in enumerate((lows, highs, noted))
        )
        return newest_in(lows, highs, noted, begins, ends)

    def since(self, noted: int) -> list[Arrival]:
        """The files of which something was noted after a moment."""
        later = pc.greater(self._of_last("at").cast(pa.int64()), noted).to_numpy(zero_copy_only=False)
        known = [
            arrival for arrival in self._arrivals(np.flatnonzero(later).tolist()) if arrival.identity not in self.added
        ]
        return [*known, *(arrival for arrival in self.added.values() if arrival.noted > noted)]

    def missing(self, settled: NDArray[np.int64], present: Iterable[str]) -> list[Arrival]:
        """The files that were there, and are not: neither among those ``settled`` (:meth:`settled_in`) nor with one of
        the identities that are ``present``."""
        present = set(present)
        is_missing = self._is_here.copy()
        is_missing[settled] = False
        is_missing[self._places(present)] = False
        added = [arrival for arrival in self.added.values() if arrival.is_here and arrival.identity not in present]
        return [*self._arrivals(np.flatnonzero(is_missing).tolist()), *added]

    def replacements(self, stream: Stream) -> Replacements:
        """Known replacements of files by others."""
        identities = self.rows.filter(self.rows["changed"].is_valid())["identity"].to_pylist()
        files = [
            *self.of(identities).values(),
            *(arrival for arrival in self.added.values() if arrival.identity not in identities),
        ]
        moments: dict[int, list[tuple[Move, FileSpan]]] = {}
        for arrival in files:
            for move in arrival.moves:
                if move.changed is not None and move.by == time_named(stream):
                    moments.setdefault(move.noted, []).append(
                        (move, FileSpan(arrival.identity, arrival.begin, arrival.end))
                    )
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
        if is_by_version(stream) or format_of(stream).is_table or not is_passed.any():
            is_passed = np.zeros(len(is_passed), dtype=bool)
        numbers = np.flatnonzero(is_passed & self._is_seen_once)
        statuses = self._of_last("stamps").take(pa.array(numbers))
        inodes = pc.list_flatten(pc.split_pattern(statuses, "|"))[::3].cast(pa.uint64()).to_numpy()
        chosen = look.knows(inodes, self._of_last("at").cast(pa.int64()).to_numpy()[numbers])
        numbers = numbers[chosen]
        return KnownFiles(self._of_last("path").take(pa.array(numbers)), inodes[chosen]), numbers

    def settled_in(self, stream: Stream, files: SourceFiles, span: tuple[int, int]) -> tuple[Any, NDArray[np.int64]]:
        """Files of a listing that are unchanged and contain no event of a span [begin, end), so that they need not be
        opened (n,), and the numbers of their identities.
        """
        passed = self._passed(stream, span)
        if not files.is_settling or not passed.any():
            return np.zeros(len(files.paths), dtype=bool), np.zeros(0, dtype=np.int64)
        if 2 * len(files.paths) < len(passed):
            # of a source that was moved nothing is left then, and all is opened
            listed = pc.is_in(self._of_last("path"), pa.array(files.paths, pa.string()))
            passed = passed & listed.to_numpy(zero_copy_only=False)
        numbers = np.flatnonzero(passed)
        at = pc.index_in(self._listed(stream, files), self._marks(stream, numbers, files.table))
        return at.is_valid().to_numpy(zero_copy_only=False), numbers[at.drop_null().to_numpy()]

    def _passed(self, stream: Stream, span: tuple[int, int]) -> NDArray[np.bool_]:
        """Mask of the files that are present and contain no event of a span, without those in ``added``."""
        lows, highs = self._spans
        # what repeats an event is looked for in all files that may hold its day
        if self.added or (stream.event_id is not None and (lows[self._is_here] == -FAR).any()):
            return np.zeros(len(lows), dtype=bool)
        return np.asarray(self._is_here & ((highs <= span[0]) | (lows >= span[1])))

    @property
    def _written(self) -> pa.Array:
        """Times at which files of a store were written, as last seen (microseconds)."""
        # one that was copied from store to store is noted with a moment of its own
        again = pc.if_else(self._is_seen_once, self._of_last("stamps"), pa.scalar(None, pa.string())).cast(pa.int64())
        return pc.coalesce(again, self._of_last("arrived").cast(pa.int64()))

    @cached_property
    def _is_seen_once(self) -> NDArray[np.bool_]:
        """Mask of the files that have one stamp in their last row, which is the one that they were last seen with."""
        alone = pc.equal(pc.count_substring(self._of_last("stamps"), " "), 0)
        return np.asarray(pc.fill_null(alone, False).to_numpy(zero_copy_only=False))

    def _listed(self, stream: Stream, files: SourceFiles) -> pa.Array:
        """Keys of the files of a listing, to be looked up in :meth:`_marks`."""
        marks = files.marks if isinstance(files.marks, pa.Array) else pa.array(files.marks, pa.string())
        if not is_by_version(stream):
            return marks
        return pc.binary_join_element_wise(pa.array(files.names, pa.string()), marks, "\n")

    def _marks(self, stream: Stream, numbers: NDArray[np.int64], table: str | None) -> pa.Array:
        """Keys that a listing has for some files if they have not changed since they were noted; null: they must be
        read.
        """
        chosen = pa.array(numbers)
        listed = self.known_as(table).take(pa.array(self._last)).take(chosen)
        if is_by_version(stream):
            names, size = (
                pc.struct_field(pc.extract_regex(listed, r"(?s)^(?P<name>.*)\|(?P<size>\d+)\|[^|]*$"), part)
                for part in ("name", "size")
            )
            written = self._written.take(chosen)
            marks = pc.binary_join_element_wise(
                names, pa.scalar("\n"), size, pa.scalar("|"), written.cast(pa.string()), ""
            )
            noted = pc.coalesce(self._of_last("seen"), self._of_last("at")).take(chosen).cast(pa.int64())
            # what is written within the hour before it was seen may be written again under the same moment
            return pc.if_else(pc.greater(pc.subtract(noted, written), HOUR), marks, pa.scalar(None, pa.string()))
        if format_of(stream).is_table:
            return listed
        status = pc.utf8_slice_codeunits(self._of_last("stamps").take(chosen), 0, -9)
        marks = pc.binary_join_element_wise(listed, status, "\n")
        # of a file that came again with several stamps they are compared one by one
        return pc.if_else(pa.array(self._is_seen_once[numbers]), marks, pa.scalar(None, pa.string()))


def _or(moment: int | None, other: int) -> int:
    return other if moment is None else moment


def ledger(warehouse: Warehouse, stream: str | Stream) -> Ledger:
    """The ledger of a stream's files. With only a stream's name: by the declaration under which they were last seen."""
    name, declared = stream if isinstance(stream, str) else stream.name, None
    if isinstance(stream, Stream):
        declared = Declaration(stream, partial(former_streams, warehouse, name))
    chosen = ds.field("stream") == name
    current = warehouse.table("source_files")
    rows = _by_moment(warehouse.stored_rows("source_files", None, chosen, current))
    for field in TABLES["source_files"][0]:
        if field.name not in rows.schema.names:  # an earlier Heddle has made it
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return Ledger(name, int(current.version()), rows, None, declared)


def _by_moment(rows: pa.Table) -> pa.Table:
    """Rows of a ledger by their moments, those of one as they are. Most come so, in pieces that follow one another."""
    pieces = [(piece.column("at").cast(pa.int64()).to_numpy(), piece) for piece in rows.to_batches() if len(piece)]
    pieces.sort(key=lambda piece: int(piece[0][0]))
    ascend = all(bool((at[1:] >= at[:-1]).all()) for at, _ in pieces)
    # of one moment in several pieces it is not known which came first
    follow = all(bool(before[-1] < at[0]) for (before, _), (at, _) in zip(pieces, pieces[1:], strict=False))
    if not (ascend and follow):
        # of those that say when they were seen the latest comes last
        seen = pc.fill_null(rows["seen"].cast(pa.int64()), 0) if "seen" in rows.schema.names else rows["at"]
        moments = pa.table({"at": rows["at"], "seen": seen})
        return rows.take(pc.sort_indices(moments, [("at", "ascending"), ("seen", "ascending")]))
    return pa.Table.from_batches([piece for _, piece in pieces], rows.schema).combine_chunks()


def is_by_version(stream: Stream) -> bool:
    """Return whether a stream's files are in a store, where their version identifies them."""
    return not format_of(stream).is_table and not Place.of(stream.source.path).is_local


OPENED_A_TASK = 64
"""Files that are worth a task that opens them."""


class Listed(NamedTuple):
    """Result of listing a stream.

    - ``splits``: of the opened files; ``layouts``: one of these for each layout of files;
    - ``settled``: files that were not opened (:meth:`Ledger.settled_in`); ``others`` opens them, the last first;
    - ``commit``: the state of a table; ``table``: its id;
    - ``look``: the look, if not all files had to be read;
    - ``warnings``: about files that are not read.
    """

    splits: list[Split]
    layouts: list[Split]
    settled: NDArray[np.int64]
    commit: str | None
    others: Iterator[list[Split]]
    look: Look | None = None
    table: str | None = None
    warnings: tuple[Diagnostic, ...] = ()


def opened(
    stream: Stream,
    known: Ledger,
    span: tuple[int, int] | None,
    look: Look | None = None,
    available: Available = unavailable,
    sparing: bool = False,
) -> Listed:
    """The files of a stream now: opened are those that are not as the ledger has them, or may hold events of a span
    [begin, end); None: all. ``look``: those that it knows are not looked at, None: all are. ``available``: the workers
    that open files of a folder, if there are many. ``sparing``: of exact folders only those are listed that the span
    needs. Raises what :func:`spark_jobs.streams.sources.files.splits_of` raises."""
    passed, known_files = np.zeros(0, dtype=np.int64), None
    if span is not None and look is not None:
        with failures_of(stream, stream.source.path):
            known_files, passed = known.known_files(stream, span, look)
    folders, unlisted = None, np.zeros(0, dtype=np.int64)
    if span is not None and sparing:
        folders, unlisted = known.unlisted(stream, span)
    files = files_of(stream, known_files, folders)
    passed = passed[files.passed]
    is_settled, settled = np.zeros(len(files.paths), dtype=bool), np.zeros(0, dtype=np.int64)
    if span is not None:
        with failures_of(stream, stream.source.path):
            is_settled, settled = known.settled_in(stream, files, span)
    chosen = np.flatnonzero(~is_settled)

    def work(numbers: Sequence[int]) -> tuple[list[Split], list[Split]]:
        splits = files.opened(chosen[list(numbers)].tolist())
        return splits, of_each_layout(stream, splits)

    # where the files of a table may lie is a setting of this process
    tasks = 1 if format_of(stream).is_table else len(chosen) // OPENED_A_TASK
    shares = in_shares(work, len(chosen), tasks, available, f"list {stream.name}: {number_of(len(chosen), 'file')}")
    splits, layouts = ([split for share in shares for split in share[at]] for at in (0, 1))

    def unopened_splits() -> Iterator[list[Split]]:
        for number in np.flatnonzero(is_settled)[::-1].tolist():
            yield files.opened([number])
        # nobody needs them for more than what columns they have
        for number in passed[::-1].tolist():
            yield reopened(stream, known.path(number), *known.names([number]))

    listed = np.concatenate([settled, passed, unlisted])
    return Listed(splits, layouts, listed, files.commit, unopened_splits(), look, files.table, files.warnings)


class Admitted(NamedTuple):
    """Admitted files of a stream: its ``splits``, the ledger with them (``arrivals``), and warnings: why a change data
    feed that should show the changes does not, and which events lie outside the time of their folder.
    """

    splits: list[Split]
    arrivals: Ledger
    problems: tuple[Diagnostic, ...]


def admitted(
    warehouse: Warehouse,
    stream: Stream,
    known: Ledger,
    listed: Listed,
    clock: int,
    note: str | None,
    trust: bool = True,
    available: Available = unavailable,
) -> Admitted | None:
    """The splits with what is refused of them and the times that they may hold, and the ledger as it is with them.

    ``known``: the ledger from before the files were ``listed``. ``clock`` (microseconds): now. ``note``: the run whose
    listing this is, which enters new files into the ledger; None: nothing is written. ``trust``: what the ledger has of
    the files' content and times is taken for right. ``available``: the workers that read new files. Returns None if
    another run has noted files since ``known``: list again. Raises what reading raises.
    """
    names = recognised(stream, listed.splits, known, listed.table, note is not None, trust, available)
    splits, seen = names.splits, names.seen
    listed = listed._replace(splits=splits)
    judged, spanned = _judged(warehouse, stream, listed, clock, known, trust)
    judged = [_seen_now(arrival, seen.get(arrival.identity)) for arrival in judged]
    # nothing came or went: with the moment of their last entries, so that nothing counts as changed since
    moved = {arrival.identity for arrival in judged}
    before = known.of(name for name in seen if name not in moved) | {arrival.identity: arrival for arrival in spanned}
    same = [_seen_now(arrival, seen.get(name)) for name, arrival in before.items()]
    rows = _changed_rows(stream, known, judged, listed)
    if not (judged or same) or note is None:
        moved_files = _moved(stream, judged, listed.commit, rows, next_moment(known))
    else:
        with warehouse.lease() as token:
            since = warehouse.version("source_files")
            if since != known.version and not ledger(warehouse, stream.name).rows.equals(known.rows):
                return None
            moved_files = _moved(stream, judged, listed.commit, rows, next_moment(known))
            for arrival in moved_files:
                if arrival.event == "came" and arrival.late:
                    _quarantine(warehouse, stream, arrival, note, token)
            try:
                stamps, now = {name: arrival.stamp for name, arrival in seen.items()}, next_moment(known)
                rows_added = [arrival.row(stamps.get(arrival.identity), now) for arrival in [*moved_files, *same]]
                warehouse.append("source_files", rows_added, token, since=since)
            except HeddleError as error:
                if warehouse.place.is_local or error.diagnostic.code != "HDL-510":
                    raise
                return None
    if listed.look is not None and note is not None:
        listed.look.keep()
    known = known.joined([*moved_files, *spanned])
    replacements, files = known.replacements(stream), known.of(split.identity for split in splits)
    admitted_splits, has_statistics = [], format_of(stream).has_statistics
    for split in splits:
        arrival = files[split.identity]
        # what statistics say of row groups is narrower than what the ledger knows of the file
        begin, end = (split.begin, split.end) if has_statistics else (arrival.begin, arrival.end)
        if begin is None or begin != end:  # not empty
            declared = known.declared or split.declared
            about: dict[str, Any] = {
                "begin": begin,
                "end": end,
                "gaps": gaps_of(arrival.clusters),
                "refused": arrival.refused,
            }
            admitted_splits.append(replace(split, **about, declared=declared, replacements=replacements))
    outside = events_outside(stream, judged, splits)
    problems = outside if rows.problem is None else (rows.problem, *outside)
    return Admitted(admitted_splits, known, problems)


def _seen_now(file: Arrival, seen: Seen | None) -> Arrival:
    """A file of the ledger as it is listed now, if that is not how it was."""
    if seen is None:
        return file
    stamps = file.stamps | ({seen.stamp} if seen.stamp else set())
    return replace(file, path=seen.path, listed=seen.listing, stamps=stamps)


def _changed_rows(stream: Stream, known: Ledger, judged: Sequence[Arrival], listed: Listed) -> ChangedRows:
    """Changes that the feed of a Delta table shows for the files that came and went since the ledger was written."""
    # what repeats an event of another file may be another row as soon as files are in another order
    if not format_of(stream).has_feed or stream.event_id is not None or all(arrival.is_here for arrival in judged):
        return ChangedRows()
    files, names = known.all(), known.listings(listed.table)
    moves = [move for arrival in files for move in arrival.moves]
    commit = max(moves, key=lambda move: move.noted).commit if moves else None
    spans = {names[arrival.identity]: (arrival.begin, arrival.end) for arrival in files if arrival.is_here}
    identities = {names.get(arrival.identity, arrival.identity): arrival.identity for arrival in judged}
    removed = [names[arrival.identity] for arrival in judged if not arrival.is_here]
    came = [names.get(arrival.identity, arrival.identity) for arrival in judged if arrival.is_here]
    places = {names.get(split.identity, split.identity): split.path for split in listed.splits}
    rows = changed_rows(stream, (commit, listed.commit), spans, removed, came, places)
    rows = replace(rows, files=frozenset(identities[name] for name in rows.files))
    # of what is refused one may hold more than the other, though both have the rows
    refused = [span for arrival in judged if arrival.identity in rows.files for span in arrival.refused]
    return replace(rows, changed=disjoint([*rows.changed, *refused]))


def _moved(
    stream: Stream, judged: Sequence[Arrival], commit: str | None, rows: ChangedRows, noted: int
) -> list[Arrival]:
    """Files that came and went, as moves of one moment at which the table was in the state ``commit``."""
    # which files have the spans is all the same: they are stored once
    first = next((arrival.identity for arrival in judged if arrival.identity in rows.files), None)
    moved = []
    for arrival in judged:
        move = Move(arrival.event, noted, commit)
        if arrival.identity in rows.files:
            move = replace(move, by=time_named(stream), changed=rows.changed if arrival.identity == first else ())
        moved.append(replace(arrival, noted=noted, moves=(*arrival.moves, move)))
    return moved


def next_moment(known: Ledger) -> int:
    """The moment of the ledger's next entry, under the lease."""
    return max(time.time_ns() // 1000, known.newest + 1)


def _judged(
    warehouse: Warehouse, stream: Stream, listed: Listed, clock: int, known: Ledger, trust: bool
) -> tuple[list[Arrival], list[Arrival]]:
    """Files that came and went since the ledger was written, with their refused spans; and unchanged files whose span
    the ledger did not know for the event times as declared now.
    """
    present: dict[str, list[Split]] = {}
    for split in listed.splits:
        present.setdefault(split.identity, []).append(split)
    now, arrivals, spanned = next_moment(known), list[Arrival](), list[Arrival]()
    declared = None if known.declared is None else known.declared.of_times
    removed = [replace(arrival, event="gone", noted=now) for arrival in known.missing(listed.settled, present)]
    befores = known.of(present)
    for identity, splits_of_file in present.items():
        before = befores.get(identity)
        if before is not None and (before.is_spanned and trust):
            # back again as it was: what was refused of it still is
            arrivals += [] if before.is_here else [replace(before, event="came", noted=now)]
            continue
        clusters = of_file(stream, splits_of_file)
        begin, end = _bounds(stream, splits_of_file, clusters)
        about: dict[str, Any] = {"declared": declared, "clusters": tuple(clusters or ())}
        if before is not None:
            arrival = replace(before, begin=begin, end=end, is_spanned=True, **about)
            is_other = before.is_spanned and (before.begin, before.end) != (begin, end)
            if not before.is_here or is_other:
                arrivals.append(replace(arrival, event="came", noted=now))
            elif not before.is_spanned:
                spanned.append(arrival)
            continue
        arrived = max(FIRST, min(clock, _modified(stream, splits_of_file[0])))
        arrival = Arrival(
            stream.name, identity, splits_of_file[0].path, "came", arrived, now, begin, end, listed=identity, **about
        )
        if (
            stream.allowed_lateness is not None
            and len(known.rows)
            and not any(other.meets(begin, end) for other in removed)
        ):
            until = arrived - stream.allowed_lateness if end is None else min(end, arrived - stream.allowed_lateness)
            published = published_spans(warehouse, stream.name, FIRST if begin is None else begin, until)
            spans = [(first if begin is None else max(first, begin), min(last, until)) for first, last in published]
            refused = tuple((first, last) for first, last in spans if first < last)
            arrival = replace(arrival, refused=refused, late=events_in(stream, splits_of_file, refused))
        arrivals.append(arrival)
    return [*arrivals, *removed], spanned


def _bounds(
    stream: Stream, splits: Sequence[Split], clusters: Sequence[Cluster] | None
) -> tuple[int | None, int | None]:
    """The span [begin, end) of a file's events; None, None if some have no time. Without statistics it comes from the
    clusters.
    """
    if not format_of(stream).has_statistics:
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
    """Time of a file's last modification, in microseconds."""
    if split.version is not None:
        return split.version.modified
    with file_errors(stream, split.path):
        return status_of(split.path).st_mtime_ns // 1000


def _quarantine(warehouse: Warehouse, stream: Stream, arrival: Arrival, run_id: str, token: int) -> None:
    assert stream.allowed_lateness is not None
    spans = ", ".join(f"{format_instant(first)} .. {format_instant(last)}" for first, last in arrival.refused[:3])
    detail = (
        f"{arrival.path} came at {format_instant(arrival.arrived)}, more than the stream's allowed_lateness after "
        f"{spans}, which was published"
    )
    left_out = LeftOut(run_id, stream.name, "HDL-411", arrival.late, detail, arrival.noted)
    quarantine.log(warehouse, [left_out], token, (f"quarantine/{digest([stream.name, arrival.identity])}", 1))
