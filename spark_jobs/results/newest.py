"""The newest answer of each group of a query, found by the group's values: tables in memory, within a limit."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.results.snapshot import AnswerSnapshot, definition_digest, midnight_of

Version = tuple[str, int, int]
"""The id and the version of the results, and the version of the plans."""


@dataclass(frozen=True)
class NewestAnswers:
    """The newest answers (n,) of a query by group. ``version``: of the results that they were read of, with the
    ``digest`` of what decides them, and its parts: the query's ``definition`` and the data ``files`` with their days.
    They are in the order of the ``hashes`` (n,) of their groups."""

    query: str
    version: int
    digest: str
    definition: str
    files: frozenset[tuple[str, str]]
    groups: tuple[str, ...]
    answers: pa.Table
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, snapshot: AnswerSnapshot, digest: str) -> NewestAnswers:
        """Read the newest answers of a snapshot with its digest."""
        after = snapshot.look_back()
        answers = snapshot.known.schema.empty_table() if after is None else snapshot.newest_by_group(after)
        return cls._made(snapshot, digest, answers)

    @classmethod
    def _made(cls, snapshot: AnswerSnapshot, digest: str, answers: pa.Table) -> NewestAnswers:
        groups, definition = tuple(snapshot.known.named("group")), definition_digest(snapshot.known)
        hashes = _hashes(_texts(answers, groups))
        order = np.argsort(hashes, kind="stable")
        facts = (snapshot.query, snapshot.version, digest, definition, snapshot.files, groups)
        return cls(*facts, answers.take(order), hashes[order])

    def renewed(self, snapshot: AnswerSnapshot, digest: str) -> NewestAnswers | None:
        """Renew them for another snapshot, of which only the days since the earliest file that came or went are read.

        None if that is not enough: older days have to be read, or the query has had several definitions.
        """
        after, changed = snapshot.look_back(), self.files ^ snapshot.files
        is_same = self.definition == definition_digest(snapshot.known) and len(snapshot.known.definitions) == 1
        if after is None or not changed or not is_same:
            return None
        begin = midnight_of(min(day for _, day in changed))
        if begin <= after:
            return None
        fresh = snapshot.newest_by_group(begin)
        known_texts, fresh_texts = _texts(self.answers, self.groups), _texts(fresh, self.groups)
        instants = self.answers["instant" if "instant" in self.answers.column_names else "window_end"].cast(pa.int64())
        instants = pc.add(instants, snapshot.known.end_before)
        is_fresh, is_changed = pc.is_in(known_texts, fresh_texts), pc.greater(instants, begin)
        if pc.any(pc.and_not(is_changed, is_fresh)).as_py():
            # a group has lost its newest answer, and may have an older one
            return None
        unchanged = self.answers.filter(pc.and_not(pc.greater(instants, after), is_fresh))
        return self._made(snapshot, digest, pa.concat_tables([unchanged, fresh]).combine_chunks())

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return int(self.answers.nbytes) + self.hashes.nbytes

    @property
    def newest(self) -> int | None:
        """The end of the newest window (microseconds); None without any answer."""
        moment: int | None = pc.max(self.answers["window_end"]).cast(pa.int64()).as_py()
        return moment

    def find(self, groups: pa.Table) -> pa.Table:
        """The answers of some groups (m,), in their order; a row of nulls for a group without an answer.

        ``groups`` has the group columns, in their types.
        """
        texts = _texts(groups, self.groups)
        hashes, rows = _hashes(texts), np.full(len(groups), -1)
        # neighbours are looked for one after the other, which takes less of the processor's caches
        ascending = np.argsort(hashes)
        place = np.empty(len(groups), np.int64)
        place[ascending] = np.searchsorted(self.hashes, hashes[ascending])
        waiting = np.arange(len(groups))
        stored_groups = self.answers.select(self.groups or self.answers.column_names[:1])
        # of equal hashes each is tried: nearly always there is one
        while len(waiting := waiting[place[waiting] < len(self.hashes)]):
            waiting = waiting[self.hashes[place[waiting]] == hashes[waiting]]
            known = _texts(stored_groups.take(place[waiting]), self.groups)
            is_same = pc.equal(known, texts.take(waiting)).to_numpy(zero_copy_only=False)
            rows[waiting[is_same]] = place[waiting[is_same]]
            waiting = waiting[~is_same]
            place[waiting] += 1
        return self.answers.take(pa.array(rows, mask=rows < 0))


class NewestCache:
    """The newest answers of the queries that were asked for last, within a number of bytes. Threads share it."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {}
        self._cached: OrderedDict[str, tuple[Version, NewestAnswers]] = OrderedDict()

    def cached(self, query: str, version: Version) -> NewestAnswers | None:
        """Return those of a query if they are cached as of a version."""
        with self._lock:
            entry = self._cached.get(query)
            if entry is None or entry[0] != version:
                return None
            self._cached.move_to_end(query)
            return entry[1]

    def load(self, version: Version, snapshot: AnswerSnapshot) -> NewestAnswers:
        """Return those of a snapshot, which is as of ``version``; they are read unless its answers are cached.

        Raises HDL-901 if they take more than all of the memory.
        """
        query = snapshot.query
        with self._lock:
            loading = self._loading.setdefault(query, threading.Lock())
        with loading:
            known, digest = self.cached(query, version), snapshot.digest()
            if known is not None:
                return known
            with self._lock:
                entry = self._cached.get(query)
            is_current = entry is not None and entry[1].digest == digest
            if entry is not None and is_current:
                answers = entry[1]
            else:
                renewed = None if entry is None else entry[1].renewed(snapshot, digest)
                answers = renewed or NewestAnswers.of(snapshot, digest)
            if answers.size > self.most_bytes:
                message = f"the newest answers of {query} take {answers.size >> 20:,} MiB"
                raise HeddleError("HDL-901", message, "set HEDDLE_SERVE_MEMORY to more")
            with self._lock:
                self._cached[query] = version, answers
                self._cached.move_to_end(query)
                while sum(each.size for _, each in self._cached.values()) > self.most_bytes:
                    self._cached.popitem(last=False)
            return answers


def _texts(rows: pa.Table, groups: Sequence[str]) -> pa.Array:
    """The groups of some rows as texts: equal groups, nulls among them, have equal texts."""
    if not groups:
        return pa.array([""] * len(rows), pa.string())
    columns = []
    for name in groups:
        column = rows[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        elif pa.types.is_floating(column.type):
            # of two zeros there is one
            column = pc.add(column, 0.0)
        texts = column.cast(pa.string())
        lengths = pc.binary_length(texts).cast(pa.string())
        # with its length before it, no text ends where another begins
        columns.append(pc.fill_null(pc.binary_join_element_wise(lengths, texts, ":"), "-"))
    return pa.chunked_array(pc.binary_join_element_wise(*columns, "")).combine_chunks()


def _hashes(texts: pa.Array) -> NDArray[np.uint64]:
    from pandas.util import hash_array

    hashes: NDArray[np.uint64] = hash_array(texts.to_numpy(zero_copy_only=False), categorize=False)
    return hashes
