"""Answers on demand: any registered query at any instant, or over any window of its fragments, from stored partials.

:class:`Reader` loads the partial rows of a query's synopsis once, without Spark; :class:`Lookups` answers from them, by
the same cells, structures and lowering as the final tasks (:mod:`spark_jobs.final_aggregates`), so an answer on demand
is the one that would be published. What a query keeps between look-ups is built when it is first needed.

What is stored is what the last runs left: only fragments that a run completed are used, and what a source has gained
since is seen once it was run again. Windows of rows are not answered on demand (HDL-607).

How it is quick: an instant is a number of a window (one multiplication), the window two positions in the list of all
fragments, and these, with a group, a run of cells: by arithmetic where every group has every fragment, else by a table
of positions. Counts and exact sums are then two running totals; least and greatest a sparse table, quantiles a wavelet
matrix.

References: Arasu & Widom, "Resource sharing in continuous sliding-window aggregates" (VLDB 2004), sections 3 (look-ups)
and 5 (substream filters: ``HAVING``).
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from optimizer.aggregates import AGGREGATES, LIMB, MEDIAN, ROWS, State, carrier_of
from optimizer.errors import HeddleError
from optimizer.expression import exact_literal, family_of
from optimizer.intervals import ordinals
from optimizer.quantiles import _answer_wavelet
from optimizer.query import ACQ, DOUBLE, STRING, Condition, Literal, Output, Window
from optimizer.substreams import HavingIndex
from optimizer.synopsis import Synopsis, synopses_of
from optimizer.window import day_label, instants
from spark_jobs.cells import Cells, Fixed, key_texts
from spark_jobs.expressions import arrow_type
from spark_jobs.files import CHECKED, bucket_of, reading
from spark_jobs.final_aggregates import (
    MANY,
    Answers,
    Asked,
    Chunk,
    Runs,
    View,
    _holds,
    _seek,
)
from spark_jobs.partial_aggregates import as_texts
from spark_jobs.planning import current_version, load_plan
from spark_jobs.read import _group_names, _typed, _with_errors
from spark_jobs.results import ANSWERS, typed
from spark_jobs.run import _coverage
from spark_jobs.sources import format_instant, parse_instant
from spark_jobs.tables import Warehouse

MOST_WINDOWS = 1 << 22
"""Windows whose fragments are kept as a table; beyond, they are searched for."""

MOST_POSITIONS = 1 << 24
"""Entries of the table of positions (groups x fragments), unless cells are about as many; beyond, they are searched."""

TABLE_CELLS = 1 << 20
"""Up to so many cells sums of doubles get a table (20 levels of it); beyond, look-ups are put in order instead."""

BLOCK = 1 << 14
"""Look-ups of a batch whose runs are found at once: they stay in the cache until they are combined."""

SHORT = 1 << 12
"""Up to so many fragments a single look-up combines one by one."""

IN_ORDER = frozenset({"mode", "top_k", "count_distinct"})
"""Functions that take look-ups in the order of group and time only."""

Longs = NDArray[np.int64]
Group = tuple[Any, ...]
Answered = dict[str, tuple[NDArray[Any], NDArray[np.bool_]]]
Span = tuple[int, int]


# ---------------------------------------------------------------------------------------------- kernels
@numba.njit(cache=True)
def _windows_at(times, base, slide, first, last, low, high):
    """The fragments [low, high) of the newest window of each instant; the first look-up that has none, or -1.

    first, last: (w,) those of the windows whose instants are base, base + slide, ...; -1: not stored.
    """
    inverse = 1.0 / slide
    for i in range(len(times)):
        distance = times[i] - base
        window = np.int64(distance * inverse)
        rest = distance - window * slide
        # the product is off by one at most wherever there are windows
        if rest < 0:
            window -= 1
        elif rest >= slide:
            window += 1
        if window < 0 or window >= len(first) or first[window] < 0:
            return i
        low[i], high[i] = first[window], last[window]
    return -1


@numba.njit(cache=True)
def _run_by_arithmetic(groups, fragments, low, high):
    """Runs of cells, in place of fragments [low, high), where every group has a cell in every one."""
    for i in range(len(low)):
        begin = groups[i] * fragments
        low[i] += begin
        high[i] += begin


@numba.njit(cache=True)
def _run_by_position(groups, position, low, high):
    for i in range(len(low)):
        row = position[groups[i]]
        low[i], high[i] = row[low[i]], row[high[i]]


@numba.njit(cache=True)
def _run_by_search(groups, slots, offsets, low, high):
    for i in range(len(low)):
        begin, end = offsets[groups[i]], offsets[groups[i] + 1]
        begin = _seek(slots, begin, end, low[i])
        high[i] = _seek(slots, begin, end, high[i])
        low[i] = begin


@numba.njit(cache=True)
def _positions(slots, offsets, position):
    """Of each group the cells before each fragment: (g, f + 1)."""
    for g in range(len(offsets) - 1):
        at = offsets[g]
        for slot in range(position.shape[1]):
            while at < offsets[g + 1] and slots[at] < slot:
                at += 1
            position[g, slot] = at


@numba.njit(cache=True)
def _sums_between(totals, low, high, values, valid):
    for i in range(len(low)):
        before, after = totals[low[i]], totals[high[i]]
        valid[i] = after[0] > before[0]
        values[i] = after[1] - before[1]


@numba.njit(cache=True)
def _means_between(totals, low, high, values, valid):
    for i in range(len(low)):
        before, after = totals[low[i]], totals[high[i]]
        count = after[0] - before[0]
        valid[i] = count > 0
        values[i] = (after[1] - before[1]) / max(count, 1)


@numba.njit(cache=True)
def _best(numbers, greatest, low, high):
    """Which number of the run is the greatest, or the least; of equal ones the first."""
    best = low
    for at in range(low + 1, high):
        if (numbers[at] > numbers[best]) if greatest else (numbers[at] < numbers[best]):
            best = at
    return best


@numba.njit(cache=True)
def _double_sum(high_part, low_part, low, high):
    total, rest = high_part[low], low_part[low]
    for at in range(low + 1, high):
        found = total + high_part[at]
        if np.isfinite(found):
            virtual = found - total
            error = (total - (found - virtual)) + (high_part[at] - virtual) + rest + low_part[at]
            total = found + error
            rest = error - (total - found)
        else:
            total, rest = found, 0.0
    return total + rest


@numba.njit(cache=True)
def _code_at(blocks, zeros, totals, first, last, rank):
    """The element of a rank in one run of a wavelet matrix: the number of its value."""
    asked = np.empty((4, 1), np.int64)
    asked[0, 0], asked[1, 0], asked[2, 0] = first, last, rank
    _answer_wavelet(blocks, zeros, totals, asked[0], asked[1], asked[2], asked[3])
    return asked[3, 0]


# ---------------------------------------------------------------------------------------------- loading
class Reader:
    """Opens look-ups of a warehouse's queries: ``Reader(house).query("by_symbol").at(instant)``.

    ``plan_version``: whose synopses to use; None: the newest that has stored partials for the query as it is now.
    """

    def __init__(self, warehouse: Warehouse | str | os.PathLike[str], plan_version: int | None = None) -> None:
        self.warehouse = warehouse if isinstance(warehouse, Warehouse) else Warehouse.open(warehouse, create=False)
        self.plan_version = plan_version

    def query(
        self,
        name: str,
        begin: int | None = None,
        end: int | None = None,
        groups: Sequence[Group] | None = None,
    ) -> Lookups:
        """Load the stored partial rows of a query's synopsis.

        ``begin``, ``end`` (microseconds): only what instants in (begin, end] need. ``groups``: only these, each a tuple
        of the group columns' values as :meth:`Lookups.at` returns them.

        Raises HDL-507 for a query that no plan knows, HDL-603 if nothing is stored for it, HDL-605 for an unknown
        group, HDL-607 for windows of rows.
        """
        query, synopsis, spans = self._stored(name)
        window = query.window
        if begin is not None:
            first = int(instants(window, begin, begin + window.slide)[0]) - window.reach
            spans = [(max(span[0], first), span[1]) for span in spans if span[1] > first]
        if end is not None:
            last = synopsis.fragments.last_edge(end - window.ago)
            spans = [(span[0], min(span[1], last)) for span in spans if span[0] < last]
        rows = self._rows(synopsis, spans, self._buckets(query, synopsis, groups))
        cells = Cells.decode(synopsis, rows)
        inside = np.zeros(len(cells), dtype=bool)
        for first, last in spans:
            inside |= (cells.starts >= first) & (cells.starts < last)
        if not inside.all():
            cells = cells.take(np.flatnonzero(inside))
        if synopsis.is_plain(query):
            cells = cells.combined()
        else:
            cells = cells.projected(synopsis.bit(query.filter), query.group_by)
        found = Lookups(query, cells, spans)
        return found if groups is None else found.of_groups(groups)

    def _stored(self, name: str) -> tuple[ACQ, Synopsis, list[Span]]:
        """The query, the synopsis to answer it from, and the pieces of time that are complete."""
        newest = current_version(self.warehouse) or 0
        versions = range(newest, 0, -1) if self.plan_version is None else [self.plan_version]
        wanted: ACQ | None = None
        for version in versions:
            plan = load_plan(self.warehouse, version)
            for tree in plan.trees:
                query = next((query for query in tree.queries if query.name == name), None)
                if query is None or (wanted is not None and query.fingerprint != wanted.fingerprint):
                    continue
                wanted = wanted or query
                if not query.is_plain:
                    what = "event sequences" if query.pattern is not None else "windows of rows"
                    message = f"{name} is over {what}: these are not answered on demand"
                    raise HeddleError("HDL-607", message, "`heddle read`")
                made = synopses_of(plan.workload.stream(tree.stream), tree.queries, tree.together)
                synopsis = next(synopsis for synopsis, members in made.items() if query in members)
                pieces = _coverage(self.warehouse, [synopsis.fingerprint]).get(synopsis.fingerprint)
                if pieces:
                    return query, synopsis, _joined([piece[:2] for piece in pieces])
        if wanted is None:
            raise HeddleError("HDL-507", f"no plan knows a query {name}", "`heddle explain` lists those of a plan")
        raise HeddleError("HDL-603", f"no partial aggregates are stored for {name}", "`heddle run` stores them")

    def _rows(self, synopsis: Synopsis, spans: list[Span], buckets: list[int] | None) -> pa.Table:
        chosen = (ds.field("fingerprint") == synopsis.fingerprint) & ds.field("key").is_valid()
        if spans:
            first, last = spans[0][0], spans[-1][1]
            chosen &= (ds.field("day") >= day_label(first)) & (ds.field("day") <= day_label(last - 1))
            chosen &= (ds.field("fragment_start") >= first) & (ds.field("fragment_start") < last)
        else:
            chosen &= pc.scalar(False)
        if buckets is not None:
            chosen &= ds.field("bucket").isin(buckets)
        columns = ["fragment_start", "fragment_end", "key", "shard", "longs", "doubles", "texts"]
        with reading(self.warehouse.path("partials")):
            table = self.warehouse.dataset("partials")
            return table.to_table(columns=columns, filter=chosen, fragment_scan_options=CHECKED)

    def _buckets(self, query: ACQ, synopsis: Synopsis, groups: Sequence[Group] | None) -> list[int] | None:
        """The buckets that hold the rows of some groups; None: all."""
        if groups is None:
            return None
        names = [name for name, _ in query.group_by]
        columns = _texts_of(query, groups)
        told = key_texts([columns[names.index(name)] for name in synopsis.bucket_by], len(groups))
        return sorted(set(bucket_of(told.to_pylist()).tolist()))


def _joined(pieces: Sequence[Span]) -> list[Span]:
    """Ascending pieces, those that touch in one."""
    found: list[Span] = []
    for first, last in sorted(pieces):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _texts_of(query: ACQ, groups: Sequence[Group]) -> list[pa.StringArray]:
    """Groups as columns of texts, as keys hold them. Raises HDL-605 for values that are none of the columns'."""
    columns = []
    for at, (_, type) in enumerate(query.group_by):
        try:
            columns.append(as_texts(pa.array([group[at] for group in groups], arrow_type(type))))
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, IndexError) as error:
            raise _unknown_group(query, groups) from error
    if any(len(group) != len(query.group_by) for group in groups):
        raise _unknown_group(query, groups)
    return columns


def _unknown_group(query: ACQ, groups: Sequence[Group]) -> HeddleError:
    shown = "; ".join(", ".join(map(str, group)) or "(none)" for group in groups[:3])
    columns = ", ".join(name for name, _ in query.group_by) or "no columns: it has one group, ()"
    return HeddleError("HDL-605", f"{query.name} has no such group: {shown}", f"it is grouped by {columns}")


def parse_group(query: ACQ, texts: Sequence[str]) -> Group:
    """A group from texts as a person writes them (``\\N``: null). Raises HDL-605."""
    if len(texts) != len(query.group_by):
        raise _unknown_group(query, [tuple(texts)])
    values = []
    for text, (_, type) in zip(texts, query.group_by, strict=True):
        try:
            stored = pa.array([None if text == "\\N" else text], pa.string())
            if type.name == "timestamp" and text != "\\N":
                stored = pa.array([parse_instant(text)])
            values.append(stored.cast(arrow_type(type))[0].as_py())
        # text that cannot be UTF-8, and types that no text is converted into
        except (pa.ArrowException, UnicodeError, HeddleError) as error:
            raise _unknown_group(query, [tuple(texts)]) from error
    return tuple(values)


LONGEST_HAVING = 2048
"""Characters of the thresholds that a look-up may ask for."""

_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|!=|<>|=|<|>)\s*('(?:[^']|'')*'|[-+]?[\w.]+)\s*")


def parse_having(query: ACQ, text: str) -> tuple[Condition, ...]:
    """Thresholds on a query's outputs by name, e.g. ``n >= 100 AND high < 5.5``; numbers and quoted texts.

    Raises HDL-608 for anything else.
    """
    outputs = {output.name: output for output in query.computed}
    found = []
    if len(text) > LONGEST_HAVING:
        raise HeddleError("HDL-608", f"thresholds of {len(text)} characters", f"{LONGEST_HAVING} at most")
    for part in re.split(r"\bAND\b(?=(?:[^']*'[^']*')*[^']*$)", text, flags=re.IGNORECASE):
        match = _CONDITION.fullmatch(part)
        output = outputs.get(match.group(1)) if match else None
        if match is None or output is None:
            raise HeddleError("HDL-608", f"{part.strip()!r} is no threshold", f"e.g. {next(iter(outputs))} >= 100")
        found.append(Condition(output, match.group(2).replace("<>", "!="), _literal(output, match.group(3))))
    return tuple(found)


def _literal(output: Output, text: str) -> Literal:
    family = family_of(output.type)
    if text.startswith("'") and family == "string":
        return Literal(text[1:-1].replace("''", "'"), STRING)
    if re.fullmatch(r"[-+]?(\d+(\.\d*)?|\.\d+)", text, re.ASCII) and family == "number":
        return exact_literal(Decimal(text))
    raise HeddleError("HDL-608", f"{output.name} is {output.type}: it cannot be compared with {text}", "see above")


# --------------------------------------------------------------------------------------------- answering
class _Total(NamedTuple):
    """Running totals (n + 1, 2) over all cells: of what must not be 0 for a value, and of what is summed. ``mean``:
    the value is their quotient. No run of cells exceeds 63 bits (with ``mean``: 53)."""

    totals: Longs
    mean: bool


class Lookups:
    """Look-ups of one query over its stored fragments. Made by :meth:`Reader.query`.

    ``stored``: the spans [begin, end) of time, microseconds, whose fragments are complete; ``groups``: the groups that
    have any, as tuples of their values in the query's order (number i is that of :meth:`batch`). Instants are
    microseconds UTC. The newest instant of a query that is not after a given one is the one that is answered; its
    window must be stored as a whole (HDL-604). Not safe for several threads at once.
    """

    def __init__(self, query: ACQ, cells: Cells, stored: Sequence[Span]) -> None:
        self.query = query
        self.cells = cells
        self.stored = list(stored)
        self._asked = Asked.of(query, cells.synopsis, 0, 0)
        self._view = View(cells, [self._asked])
        table = len(cells) <= TABLE_CELLS
        self._view.wanted = Counter(dict.fromkeys(range(len(self._view.states)), MANY if table else 1))
        self._in_order = any(
            found.output.function in IN_ORDER
            or (not table and any(cells.synopsis.states[place].operation == "add_double" for _, place in found.states))
            for found in self._asked.computed
        )
        self._chunk = Chunk(self._view, 0, cells.groups)
        self._indexes: dict[Any, HavingIndex | None] = {}
        self._totals: dict[Any, _Total | None] = {}

    def of_groups(self, groups: Sequence[Group]) -> Lookups:
        """Look-ups of some groups alone. Raises HDL-605 for an unknown one."""
        wanted = [self.number(group) for group in groups]
        chosen = np.zeros(self.cells.groups, dtype=bool)
        chosen[wanted] = True
        return Lookups(self.query, self.cells.take(np.flatnonzero(chosen[self.cells.group])).combined(), self.stored)

    # ------------------------------------------------------------------------------------------ groups
    @cached_property
    def groups(self) -> list[Group]:
        columns = [
            typed(column, type).to_pylist()
            for column, (_, type) in zip(self.cells.key_columns, self.query.group_by, strict=True)
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * self.cells.groups

    @cached_property
    def _numbers(self) -> dict[Group, int]:
        return {_hashable(group): number for number, group in enumerate(self.groups)}

    def number(self, group: Group) -> int:
        """The number of a group. Raises HDL-605 for one that has no stored partials."""
        try:
            return self._numbers[_hashable(group)]
        except (KeyError, TypeError) as error:
            raise _unknown_group(self.query, [group]) from error

    # ---------------------------------------------------------------------------------------- instants
    def _newest(self, instant: int) -> int:
        window = self.query.window
        return (instant - window.range) // window.slide * window.slide + window.range

    def _check(self, start: int, end: int) -> None:
        """Raises HDL-604 unless the fragments of [start, end) are stored."""
        if any(first <= start and end <= last for first, last in self.stored):
            return
        told = f"{self.query.name}: {format_instant(start)} .. {format_instant(end)}"
        if not self.stored:
            raise HeddleError("HDL-604", f"{told} is not stored: nothing is")
        shown = ", ".join(f"{format_instant(first)} .. {format_instant(last)}" for first, last in self.stored[:5])
        shown += ", ..." if len(self.stored) > 5 else ""
        where = "has fragments that are not stored"
        if start < self.stored[0][0]:
            where = "begins before the first stored fragment"
        elif end > self.stored[-1][1]:
            where = "ends after the last stored fragment"
        raise HeddleError("HDL-604", f"{told} {where}", f"stored: {shown}")

    # ------------------------------------------------------------------------------------------ tables
    def at(self, instant: int, group: Group | None = None) -> pa.Table:
        """The answers of the newest instant that is not after the given one, as :func:`spark_jobs.read.read` returns
        them; ``group``: of this group alone. Raises HDL-604 and HDL-605."""
        return self._answered(self._asked, np.array([self._newest(instant)]), group)

    def between(self, begin: int, end: int, group: Group | None = None) -> pa.Table:
        """The answers of all instants in (begin, end], by window and group. Raises HDL-604 if one is not stored."""
        return self._answered(self._asked, instants(self.query.window, begin, end), group)

    def window(
        self, start: int, end: int, having: bool | Sequence[Condition] = True, group: Group | None = None
    ) -> pa.Table:
        """The query's outputs over [start, end), whatever its range and slide; columns as of :meth:`at`, without
        ``instant``.

        ``having``: the query's own thresholds (True), none (False), or these, of outputs whose states the synopsis
        keeps (else HDL-608; see :func:`parse_having`). Raises HDL-606 unless both ends are edges of fragments.
        """
        if end <= start:
            raise HeddleError("HDL-606", "the window is empty", "its end must be after its start")
        fragments = self.cells.synopsis.fragments
        for edge in (start, end):
            before = fragments.last_edge(edge)
            if before != edge:
                after = int(fragments.ends(np.array([before]))[0])
                raise HeddleError(
                    "HDL-606",
                    f"{format_instant(edge)} is no edge of {self.query.name}'s fragments",
                    f"the nearest are {format_instant(before)} and {format_instant(after)}",
                )
        if isinstance(having, bool):
            having = self.query.having if having else ()
        query = replace(self.query, window=Window(end - start, end - start), having=tuple(having))
        try:
            asked = Asked.of(query, self.cells.synopsis, 0, 0)
        except ValueError as error:
            message = "the stored partials do not hold what HAVING compares"
            raise HeddleError("HDL-608", message, "compare outputs of the query") from error
        return self._answered(asked, np.array([end]), group)

    def _answered(self, asked: Asked, moments: Longs, group: Group | None) -> pa.Table:
        """The answers of some instants, ascending."""
        query, window = asked.query, asked.query.window
        starts, ends = moments - window.reach, moments - window.ago
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self._check(start, end)
        groups = None if group is None else np.array([self.number(group)])
        if groups is None and len(moments) == 1:
            groups = self._candidates(query, int(starts[0]), int(ends[0]))
        if groups is None:
            self._view._windows.clear()  # it knows a query's windows by the query's name
            answers = self._chunk.answers(replace(asked, instants=moments), 0, len(moments))
        else:
            answers = self._of_groups(asked, groups, moments)
        stream = self.cells.synopsis.stream
        batches = [found.answered(stream).rows() for found in answers]
        tables = [_typed(query, pa.Table.from_batches([batch])) for batch in batches]
        tables.append(_typed(query, ANSWERS.empty_table()))
        if any("error" in table.schema.names for table in tables):
            tables = [_with_errors(table) for table in tables]
        order = ["window_end", *_group_names(query)]
        return pa.concat_tables(tables).sort_by([(name, "ascending") for name in order])

    def _of_groups(self, asked: Asked, groups: Longs, moments: Longs) -> Iterator[Answers]:
        window, grid = asked.query.window, self._view.grid
        numbers = np.repeat(groups, len(moments))
        low = np.tile(np.searchsorted(grid, moments - window.reach), len(groups))
        high = np.tile(np.searchsorted(grid, moments - window.ago), len(groups))
        self._to_runs(numbers, low, high)
        there = low < high
        if not there.any():
            return
        runs = Runs(numbers, low, high).where(there)
        found = Answers(asked, self._chunk, runs, np.tile(moments, len(groups))[there]).qualifying()
        if len(found.instants):
            yield found

    # ------------------------------------------------------------------------------------------ HAVING
    def _candidates(self, query: ACQ, start: int, end: int) -> Longs | None:
        """Groups (k,) outside which none satisfies HAVING, by an index over a count or a sum; None: not known."""
        for condition in query.having:
            bounds = _bounds(condition)
            index = self._index(condition.output) if bounds is not None else None
            if index is not None and bounds is not None:
                return index.between(start, end, *bounds)
        return None

    def _index(self, output: Output) -> HavingIndex | None:
        key = output.function, output.argument
        if key not in self._indexes:
            total = self._total(output)
            self._indexes[key] = None
            if total is not None and not total.mean:
                values = np.diff(total.totals[:, 1])
                if values.min(initial=0) >= 0:
                    self._indexes[key] = HavingIndex(self.cells.starts, self._chunk.offsets, values)
        return self._indexes[key]

    # ------------------------------------------------------------------------------------------- batches
    @cached_property
    def _table(self) -> tuple[int, Longs, Longs]:
        """Start of the windows' table (the first instant), and the fragments [low, high) under each window; -1: it is
        not stored as a whole."""
        window, grid = self.query.window, self._view.grid
        if not self.stored:
            return 0, np.empty(0, np.int64), np.empty(0, np.int64)
        begin, end = self.stored[0][0] + window.reach - 1, self.stored[-1][1] + window.ago
        count = max(0, (end - window.range) // window.slide - (begin - window.range) // window.slide)
        if count > MOST_WINDOWS:
            return 0, np.empty(0, np.int64), np.empty(0, np.int64)
        moments = instants(window, begin, end)
        starts, ends = moments - window.reach, moments - window.ago
        inside = np.zeros(len(moments), dtype=bool)
        for first, last in self.stored:
            inside |= (starts >= first) & (ends <= last)
        low = np.where(inside, np.searchsorted(grid, starts), -1)
        return int(moments[0]) if len(moments) else 0, low, np.searchsorted(grid, ends)

    def _slots(self, times: Longs, low: Longs, high: Longs) -> None:
        """The fragments under the newest window of each instant. Raises HDL-604."""
        base, first, last = self._table
        window = self.query.window
        wrong = _windows_at(times, base, window.slide, first, last, low, high)
        if wrong < 0:
            return
        if len(first):
            newest = self._newest(int(times[wrong]))
            self._check(newest - window.reach, newest - window.ago)
        moments = (times - window.range) // window.slide * window.slide + window.range
        for moment in np.unique(moments).tolist():
            self._check(moment - window.reach, moment - window.ago)
        low[:] = np.searchsorted(self._view.grid, moments - window.reach)
        high[:] = np.searchsorted(self._view.grid, moments - window.ago)

    @cached_property
    def _position(self) -> NDArray[Any] | None:
        """Of each group the cells before each fragment (g, f + 1); None if that is arithmetic, or too much to keep."""
        cells, groups, fragments = len(self.cells), self.cells.groups, len(self._view.grid)
        size = groups * (fragments + 1)
        if cells == groups * fragments or size > max(MOST_POSITIONS, 4 * cells):
            return None
        position = np.empty((groups, fragments + 1), np.int32 if cells < 1 << 31 else np.int64)
        _positions(self._view.slots, self._chunk.offsets, position)
        return position

    def _to_runs(self, groups: Longs, low: Longs, high: Longs) -> None:
        """Fragments [low, high) of groups become runs of cells, in place."""
        if len(self.cells) == self.cells.groups * len(self._view.grid):
            _run_by_arithmetic(groups, len(self._view.grid), low, high)
        elif self._position is not None:
            _run_by_position(groups, self._position, low, high)
        else:
            _run_by_search(groups, self._view.slots, self._chunk.offsets, low, high)

    def batch(self, at: Any, groups: Any = None) -> Answered:
        """Many look-ups at once: by output its values and whether each is an answer that is not null.

        ``at`` (a,): instants, int64 microseconds or datetime64, in any order; ``groups`` (a,): of each look-up the
        number of its group, or its values as a tuple; None: each instant of every group, results are (g, a) then. One
        look-up is one (instant, group) with all outputs of the query: from the instant to the window, to the fragments,
        to the values. Values are int64 (booleans 0 and 1, dates as days, timestamps as microseconds), float64, or
        objects (texts, decimals as texts). Not valid are nulls, values that do not fit their type, and where there is
        no answer: no event in the window, or not as HAVING wants. Raises HDL-604 and HDL-605 for the first wrong one.
        """
        times = np.asarray(at)
        if np.issubdtype(times.dtype, np.datetime64):
            times = times.astype("datetime64[us]")
        times = np.ascontiguousarray(times.astype(np.int64, copy=False)).reshape(-1)
        shape: tuple[int, ...] = (len(times),)
        if groups is None:
            numbers, shape = np.repeat(np.arange(self.cells.groups), len(times)), (self.cells.groups, len(times))
            times = np.tile(times, self.cells.groups)
        else:
            numbers = self._group_numbers(groups)
            if numbers.shape != times.shape:
                raise ValueError(f"{len(times)} instants, {len(numbers)} groups")
        order = np.lexsort((times, numbers)) if self._in_order else None
        if order is not None:
            times, numbers = times[order], numbers[order]
        found = [
            (np.empty(len(times), dtype=_DTYPES[carrier_of(output.type)]), np.empty(len(times), dtype=bool))
            for output in self.query.outputs
        ]
        quick = not self.query.having and all(self._total(output) is not None for output in self.query.outputs)
        size = BLOCK if quick else self._asked.block
        low, high = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        for begin in range(0, len(times), size):
            part = slice(begin, min(begin + size, len(times)))
            runs = Runs(numbers[part], low[: part.stop - begin], high[: part.stop - begin])
            self._slots(times[part], runs.low, runs.high)
            self._to_runs(*runs)
            self._fill(runs, [(values[part], valid[part]) for values, valid in found])
        if order is not None:
            for values, valid in found:
                values[order], valid[order] = values.copy(), valid.copy()
        named = zip(self.query.outputs, found, strict=True)
        return {output.name: (values.reshape(shape), valid.reshape(shape)) for output, (values, valid) in named}

    def _group_numbers(self, groups: Any) -> Longs:
        if not isinstance(groups, np.ndarray) or groups.dtype == object:
            groups = [group if isinstance(group, (int, np.integer)) else self.number(tuple(group)) for group in groups]
        numbers = np.ascontiguousarray(groups, dtype=np.int64).reshape(-1)
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < self.cells.groups):
            wrong = int(numbers[(numbers < 0) | (numbers >= self.cells.groups)][0])
            raise HeddleError(
                "HDL-605", f"{self.query.name} has no group number {wrong}", f"{self.cells.groups} groups"
            )
        return numbers

    def _fill(self, runs: Runs, out: list[tuple[NDArray[Any], NDArray[np.bool_]]]) -> None:
        """The outputs under some runs of cells."""
        chosen: Longs | None = None
        answers: Answers | None = None
        kept: NDArray[Any] | None = None

        def answered() -> Answers:
            nonlocal chosen, answers
            if answers is None:
                there = runs.low < runs.high
                if there.all():
                    answers = Answers(self._asked, self._chunk, runs, runs.low)
                else:
                    chosen = np.flatnonzero(there)
                    part = runs.where(chosen)
                    answers = Answers(self._asked, self._chunk, part, part.low)
            return answers

        def spread(values: NDArray[Any], to: NDArray[Any]) -> None:
            if chosen is None:
                to[:] = values
            else:
                to[:] = np.zeros((), to.dtype) if to.dtype != object else None
                to[chosen] = values

        for condition, number in zip(self.query.having, self._asked.conditions, strict=True):
            holds = _holds(condition, answered().lowered(number))
            kept = holds if kept is None else kept & holds
        for output, number, (values, valid) in zip(self.query.outputs, self._asked.outputs, out, strict=True):
            total = self._total(output)
            if total is not None and kept is None:
                (_means_between if total.mean else _sums_between)(total.totals, runs.low, runs.high, values, valid)
                continue
            if len(answered().runs.low) == 0:
                valid[:] = False
                values[:] = np.zeros((), values.dtype) if values.dtype != object else None
                continue
            lowered = answered().lowered(number)
            spread(lowered.values, values)
            spread(lowered.valid if kept is None else lowered.valid & kept, valid)

    def _total(self, output: Output) -> _Total | None:
        """Running totals that answer an output; None if it takes more."""
        key = output.function, output.argument
        if key not in self._totals:
            made = _TOTALS.get(output.function)
            self._totals[key] = made(self.cells, output) if made is not None else None
        return self._totals[key]

    def _multiset(self, state: State) -> Any:
        """The elements of a state of multisets, over all cells."""
        none = np.empty(0, dtype=np.int64)
        return self._chunk.state(self.cells.synopsis.states.index(state), Runs(none, none, none)).elements

    # ------------------------------------------------------------------------------------- one at a time
    def one(self, instant: int, *group: Any) -> tuple[Any, ...] | None:
        """One look-up: the outputs of a group at the newest instant that is not after the given one (microseconds), as
        the rows of :meth:`at` have them; None if there is no answer: no event in the window, or not as HAVING wants.

        Without tables of Arrow: counts, sums, means, extremes and percentiles of integers and doubles take a few
        microseconds, and runs of up to :data:`SHORT` fragments are combined one by one where there are no running
        totals. Raises HDL-604 and HDL-605.
        """
        quick = self._quick
        number = quick.numbers.get(group)
        if number is None:
            number = self.number(group)
        window = (instant - quick.base) // quick.slide
        if not 0 <= window < quick.windows or quick.first[window] < 0:
            return self._slowly(instant, group)
        low, high = quick.first[window], quick.last[window]
        if quick.position is None:
            begin = number * quick.fragments
            low, high = begin + low, begin + high
        else:
            low, high = quick.position[number, low], quick.position[number, high]
        if low == high:
            return None
        if high - low > quick.most:
            return self._slowly(instant, group)
        for holds in quick.conditions:
            if not holds(low, high):
                return None
        return tuple([output(low, high) for output in quick.outputs])

    def _slowly(self, instant: int, group: Group) -> tuple[Any, ...] | None:
        rows = self.at(instant, group).to_pylist()
        return tuple(rows[0][output.name] for output in self.query.outputs) if rows else None

    @cached_property
    def _quick(self) -> _Quick:
        base, first, last = self._table
        outputs = [self._single(output) for output in self.query.outputs]
        conditions = [self._single_condition(condition) for condition in self.query.having]
        searched = self._position is None and len(self.cells) != self.cells.groups * len(self._view.grid)
        able = not searched and None not in outputs and None not in conditions
        folded = any(
            self._total(output) is None and output.function not in ("median", "percentile", "percentile_disc")
            for output in self.query.computed
        )
        return _Quick(
            self._numbers,
            base,
            self.query.window.slide,
            len(first) if able else 0,
            first.data,
            last.data,
            len(self._view.grid),
            None if self._position is None else self._position.data,
            SHORT if folded else len(self.cells),
            [output for output in outputs if output is not None],
            [condition for condition in conditions if condition is not None],
        )

    def _single_condition(self, condition: Condition) -> Callable[[int, int], bool] | None:
        value, literal = self._single(condition.output), condition.value
        if value is None or condition.output.type.name != "long" or literal.type.name != "long":
            return None
        compare, bound = _COMPARE[condition.comparison], literal.value

        def holds(low: int, high: int) -> bool:
            found = value(low, high)
            return found is not None and compare(found, bound)

        return holds

    def _single(self, output: Output) -> _Value | None:
        """What gives an output under one run of cells, at once; None if it takes the long way."""
        made = _SINGLE.get(output.function)
        return made(self, output) if made is not None else None


_Value = Callable[[int, int], Any]
_DTYPES: dict[str, Any] = {"longs": np.int64, "doubles": np.float64, "texts": object}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


class _Quick(NamedTuple):
    """What :meth:`Lookups.one` reads, as Python reads it quickest. ``windows`` 0: every look-up takes the long way."""

    numbers: dict[Group, int]
    base: int
    slide: int
    windows: int
    first: memoryview
    last: memoryview
    fragments: int
    position: memoryview | None
    most: int
    outputs: list[_Value]
    conditions: list[Callable[[int, int], bool]]


def _hashable(group: Group) -> Group:
    """NaN is one value."""
    return tuple("NaN" if isinstance(value, float) and value != value else value for value in group)


def _bounds(condition: Condition) -> tuple[int | None, int | None] | None:
    """The least and the greatest integer that satisfy a threshold; None if it is no interval, or not exact."""
    if not condition.value.type.is_exact or condition.value.value is None:
        return None
    value = condition.value.value
    floor, ceiling = math.floor(value), math.ceil(value)
    return {
        ">": (floor + 1, None),
        ">=": (ceiling, None),
        "<": (None, ceiling - 1),
        "<=": (None, floor),
        "=": (ceiling, floor),
    }.get(condition.comparison)


# ---------------------------------------------------------------------------------------- running totals
def _column(cells: Cells, kind: str, output: Output) -> Any:
    """The column of the state of a kind that an output needs."""
    state = next(state for state in AGGREGATES[output.function].states(output) if state.kind == kind)
    return cells.states[state]


def _accumulated(counts: Longs, values: Longs, mean: bool) -> _Total | None:
    if float(np.abs(values.astype(np.float64)).sum()) >= (2.0**53 if mean else 2.0**62):
        return None
    totals = np.zeros((len(values) + 1, 2), dtype=np.int64)
    np.cumsum(counts, out=totals[1:, 0])
    np.cumsum(values, out=totals[1:, 1])
    return _Total(totals, mean)


def _count_total(cells: Cells, output: Output) -> _Total | None:
    kind = "rows" if output.argument is None else "count"
    rows = cells.states[ROWS]
    assert isinstance(rows, Fixed)
    return _accumulated(rows.values[:, 0], _column(cells, kind, output).values[:, 0], mean=False)


def _sum_total(cells: Cells, output: Output) -> _Total | None:
    if output.argument_type is None or output.argument_type.name != "long":
        return None
    limbs = _column(cells, "sum", output).values
    if not (np.abs(limbs[:, 1]) < 1 << 30).all():
        return None
    values = (limbs[:, 1] << LIMB) + limbs[:, 0]
    return _accumulated(_column(cells, "count", output).values[:, 0], values, mean=output.function == "avg")


_TOTALS: dict[str, Callable[[Cells, Output], _Total | None]] = {
    "count": _count_total,
    "sum": _sum_total,
    "avg": _sum_total,
}


# ------------------------------------------------------------------------------------- one value at once
def _view_of(column: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(column).data


def _single_count(lookups: Lookups, output: Output) -> _Value | None:
    total = lookups._total(output)
    if total is None:
        return None
    sums = _view_of(total.totals[:, 1])
    return lambda low, high: sums[high] - sums[low]


def _single_sum(lookups: Lookups, output: Output) -> _Value | None:
    total = lookups._total(output)
    if total is None:
        return _single_double_sum(lookups, output)
    counts, sums = _view_of(total.totals[:, 0]), _view_of(total.totals[:, 1])
    if total.mean:

        def mean(low: int, high: int) -> float | None:
            count = counts[high] - counts[low]
            return (sums[high] - sums[low]) / count if count else None

        return mean
    return lambda low, high: sums[high] - sums[low] if counts[high] > counts[low] else None


def _counts(lookups: Lookups, output: Output) -> memoryview:
    counts = _column(lookups.cells, "count", output).values[:, 0]
    return _view_of(np.concatenate([[0], np.cumsum(counts)]))


def _single_double_sum(lookups: Lookups, output: Output) -> _Value | None:
    if output.argument_type != DOUBLE:
        return None
    high_part, low_part = (np.ascontiguousarray(part) for part in _column(lookups.cells, "sum", output).values.T)
    counts, mean = _counts(lookups, output), output.function == "avg"

    def value(low: int, high: int) -> float | None:
        count = counts[high] - counts[low]
        if not count:
            return None
        found: float = _double_sum(high_part, low_part, low, high)
        return found / count if mean else found

    return value


def _single_extreme(lookups: Lookups, output: Output) -> _Value | None:
    if output.type.name not in ("long", "double"):
        return None
    values = np.ascontiguousarray(_column(lookups.cells, output.function, output).values[:, 0])
    numbers = ordinals(values) if values.dtype == np.float64 else values
    counts, shown, greatest = _counts(lookups, output), _view_of(values), output.function == "max"

    def value(low: int, high: int) -> Any:
        return shown[_best(numbers, greatest, low, high)] if counts[high] > counts[low] else None

    return value


def _single_quantile(lookups: Lookups, output: Output) -> _Value | None:
    if output.argument_type is None or output.argument_type.name not in ("long", "double"):
        return None
    (state,) = AGGREGATES[output.function].states(output)
    elements = lookups._multiset(state)
    wavelet, offsets, weights = elements.wavelet, _view_of(elements.offsets), _view_of(elements.totals)
    shown = _view_of(elements.shown(wavelet.values))
    tables = wavelet._blocks, wavelet._zeros, wavelet._totals
    fraction = MEDIAN if output.parameter is None else output.parameter
    above, unit = fraction.as_integer_ratio()
    interpolated = state.kind == "values" and output.function != "percentile_disc"
    double = output.type == DOUBLE

    def at(first: int, last: int, rank: int) -> Any:
        found = shown[_code_at(*tables, first, last, rank)]
        return float(found) if double else found

    def value(low: int, high: int) -> Any:
        first, last = offsets[low], offsets[high]
        count = weights[last] - weights[first]
        if not count:
            return None
        if not interpolated:
            return at(first, last, max(1, -(-count * above // unit)))
        position, rest = divmod((count - 1) * above, unit)
        least = at(first, last, position + 1)
        greatest = at(first, last, position + 2) if rest else least
        if least == greatest:
            return least
        weight = rest / unit
        return (1.0 - weight) * least + weight * greatest

    return value


_SINGLE: dict[str, Callable[[Lookups, Output], _Value | None]] = {
    "count": _single_count,
    "sum": _single_sum,
    "avg": _single_sum,
    "min": _single_extreme,
    "max": _single_extreme,
    "median": _single_quantile,
    "percentile": _single_quantile,
    "percentile_disc": _single_quantile,
}
