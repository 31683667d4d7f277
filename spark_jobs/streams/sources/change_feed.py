"""Find the events of a Delta table that changed with its change data feed, where its log only shows the changed files.

An UPDATE of one row rewrites the file of a day. If the table has ``delta.enableChangeDataFeed``, each commit shows
which rows it changed: in separate files (``cdc``), which then cover all its changes; by complete files that it added or
removed; or by the rows that a deletion vector names and the one before it did not. Commits that change no data
(``OPTIMIZE``) are marked. Only times are read, with the code that reads events, so that a changed row has the same time
as its event.

The result is sound only if the commits lead from one of the two compared states of the table to the other. So the
table must be the same one, its files at the version that the ledger knows must be those in the ledger, the feed must
have been on, and no commit since may change the table's columns, properties or protocol. Otherwise, or if a file of the
feed is gone, changes are found by files as for any other table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.errors.codes import is_fatal
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.values import Stream
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.delta_source import DeltaFile, DeltaSnapshot, file_place, read_log
from spark_jobs.streams.sources.formats.tables import table_splits
from spark_jobs.streams.sources.leaves import path_of
from spark_jobs.streams.sources.replacements import disjoint, spans_of_times

UNTIMED = -(1 << 62)
"""In place of the time of a row that has none: it is in no window."""

MOST_COMMITS = 1000
"""Commits that are read at once; of more, what changed is known by files."""

MOST_ROWS = 10_000_000
"""Rows of which the times are read at once; of more, what changed is known by files."""


Span = tuple[int | None, int | None]
"""[begin, end) of a file's events; None: not known."""


@dataclass(frozen=True)
class ChangedRows:
    """Changes shown by a feed: the identities of the ``files`` that came or went and together contain the same events
    outside the ``changed`` spans [begin, end) (microseconds); or a ``problem``: why the feed should show them and
    does not.
    """

    files: frozenset[str] = frozenset()
    changed: tuple[tuple[int, int], ...] = ()
    problem: Diagnostic | None = None


class _NoFeed(Exception):
    """Reason why the feed does not show the changes."""


def changed_rows(
    stream: Stream,
    commits: tuple[str | None, str | None],
    known: Mapping[str, Span],
    gone: Sequence[str],
    came: Sequence[str],
    places: Mapping[str, str],
) -> ChangedRows:
    """Changes of a Delta table without an ``event_id`` between two states of it, its ``commits``.

    - ``known``: the identities of its files then, each with the span of its events;
    - ``gone`` and ``came``: the identities of files that went since, and that came;
    - ``places``: at least those of the files that came.

    Files that only contain new rows are not in the result.
    """
    commit, listed = commits
    if commit is None or listed is None:
        return ChangedRows()
    try:
        now = read_log(stream, _version(listed))
        if now.commit != listed:
            raise _NoFeed("another table lies in its place")
        before = _before(stream, commit, now, known)
        feed = _Feed(stream, before, now, _spans(before, known), _actions(stream, before, now))
        spans = feed.spans()
    except (_NoFeed, HeddleError, OSError, KeyError, ValueError) as error:
        if isinstance(error, HeddleError) and is_fatal(error.diagnostic.code):
            raise
        why = error.diagnostic.message if isinstance(error, HeddleError) else error
        message = f"stream {stream.name}: the table's change data feed does not say which rows changed: {why}"
        hint = "what changed is known by the times of its files"
        return ChangedRows(problem=Diagnostic("HDL-435", message, hint, severity="warning"))
    rewritten = [identity for identity in came if places[identity] not in feed.fresh]
    return ChangedRows(frozenset([*gone, *rewritten]), disjoint(spans))


def _version(commit: str) -> int:
    return int(commit.rpartition("@")[2])


def _before(stream: Stream, commit: str, now: DeltaSnapshot, known: Mapping[str, Span]) -> DeltaSnapshot:
    """The state of the table that the ledger knows. Raises :class:`_NoFeed` if it does not lead to the one now."""
    version = _version(commit)
    if now.table != commit.rpartition("@")[0] or now.version <= version:
        raise _NoFeed("another table lies in the place of the one that was seen")
    if now.version - version > MOST_COMMITS:
        raise _NoFeed(f"there are {now.version - version:,} commits since, more than {MOST_COMMITS:,}")
    before = read_log(stream, version)
    further = [file for file in before.files if file.identity not in known]
    # what has no rows is no file to the ledger
    if known.keys() - {file.identity for file in before.files} or table_splits(stream, before.schema, further):
        raise _NoFeed(f"version {version} has other files than were seen")
    return before


def _spans(snapshot: DeltaSnapshot, known: Mapping[str, Span]) -> dict[str, Span]:
    """The spans of a snapshot's files, by their places."""
    return {file.path: known.get(file.identity, (None, None)) for file in snapshot.files}


@dataclass(frozen=True)
class _Actions:
    """Actions of the commits between two states of a table, by the places of files. ``notes``: files of the feed with
    the rows that changed, and their sizes. By commits without any: the files that were ``added``, ``removed``, and
    whose deletion ``vectors`` changed. ``named``: all files; ``complete``: the files that first came with all rows.
    """

    notes: dict[str, int] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    vectors: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    complete: set[str] = field(default_factory=set)


def _actions(stream: Stream, before: DeltaSnapshot, now: DeltaSnapshot) -> _Actions:
    """Read the actions of commits. Raises :class:`_NoFeed` if the table was altered, OSError if a commit is gone."""
    root, actions = Place.of(stream.source.path), _Actions()
    for version in range(before.version + 1, now.version + 1):
        commit: dict[str, list[dict[str, Any]]] = {}
        for line in (root / "_delta_log" / f"{version:020}.json").read().splitlines():
            for kind, action in json.loads(line).items() if line.strip() else ():
                commit.setdefault(kind, []).append(action)
        if commit.keys() & {"metaData", "protocol"}:
            raise _NoFeed(f"version {version} altered the table")
        added, removed, notes = (
            {file_place(stream, root, each["path"]): each for each in commit.get(kind, ())}
            for kind in ("add", "remove", "cdc")
        )
        first = added.keys() - removed.keys() - actions.named
        actions.complete.update(path for path in first if not added[path].get("deletionVector"))
        actions.named.update(added.keys() | removed.keys())
        # they are all that changed, whichever files were written for it
        actions.notes.update({path: each["size"] for path, each in notes.items()})
        if notes:
            continue
        come, go = ({path for path, each in files.items() if each["dataChange"]} for files in (added, removed))
        actions.vectors.update(come & go)
        actions.added.update(come - go)
        actions.removed.update(go - come)
    return actions


@dataclass
class _Feed:
    """Reads what changed from the state ``before`` to ``now``. ``known``: the spans of the files from before."""

    stream: Stream
    before: DeltaSnapshot
    now: DeltaSnapshot
    known: dict[str, Span]
    actions: _Actions
    rows: int = 0

    def __post_init__(self) -> None:
        self.then = {file.path: file for file in self.before.files}
        self.here = {file.path: file for file in self.now.files}

    @property
    def fresh(self) -> set[str]:
        """The places of files that came as new data and are there: their rows are read as those of any late file."""
        return self.actions.added & (self.here.keys() - self.then.keys())

    def spans(self) -> list[tuple[int, int]]:
        """The spans of all rows that changed, but those of fresh files."""
        changed_spans = [span for path, size in self.actions.notes.items() for span in self._of_rows(path, size)]
        # a file that came complete since: how it came is told as of any other
        then = {path: replace(self.here[path], deleted=None) for path in self.actions.complete & self.here.keys()}
        then |= self.then
        in_both = {path for path in self.actions.vectors if path in then and path in self.here}
        for path in sorted(in_both):
            changed_spans += self._between(then[path], self.here[path])
        for path in sorted((self.actions.added - self.fresh) | self.actions.removed | (self.actions.vectors - in_both)):
            changed_spans += self._of_file(path)
        return changed_spans

    def _of_file(self, path: str) -> list[tuple[int, int]]:
        """Spans of all rows of a file, or the span of its events if there are too many or the file is gone."""
        begin, end = self.known.get(path, (None, None))
        try:
            return self._of_rows(path, self.then[path].size if path in self.then else 0)
        except (_NoFeed, HeddleError, OSError) as error:
            if begin is None or end is None or (isinstance(error, HeddleError) and is_fatal(error.diagnostic.code)):
                raise
            return [(begin, end)]

    def _of_rows(self, path: str, size: int) -> list[tuple[int, int]]:
        times = self._times(DeltaFile(path, path, {}, None, None, size, 0))
        return spans_of_times(times[times != UNTIMED])

    def _between(self, then: DeltaFile, here: DeltaFile) -> list[tuple[int, int]]:
        """Spans of the rows of a file that are deleted in only one of two states."""
        none = np.zeros(0, dtype=np.int64)
        deleted = [none if file.deleted is None else file.deleted for file in (then, here)]
        times = self._times(replace(here, deleted=None))[np.setxor1d(deleted[0], deleted[1])]
        return spans_of_times(times[times != UNTIMED])

    def _times(self, file: DeltaFile) -> NDArray[np.int64]:
        """The time of each row of a file. Raises :class:`_NoFeed`, and what reading raises."""
        chunks = [np.zeros(0, dtype=np.int64)]
        for split in table_splits(self.stream, self.now.schema, [file]):
            self.rows += split.rows or 0
            if self.rows > MOST_ROWS:
                raise _NoFeed(f"more than {MOST_ROWS:,} rows changed")
            if path_of(self.stream, self.stream.time).root in dict(split.constants):
                raise _NoFeed(f"{file.path} lacks the times")
            for batch in read_split(self.stream, split, []):
                times = pc.fill_null(batch.column(self.stream.time).cast(pa.int64()), UNTIMED)
                chunks.append(times.to_numpy(zero_copy_only=False))
        return np.concatenate(chunks)
