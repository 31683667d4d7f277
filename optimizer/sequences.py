"""Event sequence aggregation: COUNT, SUM, MIN and MAX over all matches of SEQ patterns in sliding windows.

A match of ``SEQ(E1, ..., El)`` in a window is one event of each type in *strictly* increasing time, all of one key and
all in the window ``[start, start + range)``; every choice of events counts (skip-till-any-match). Windows start on the
multiples of their slide, as in :mod:`optimizer.window`; times are integer ticks of any unit and may be negative. Only
windows with at least one match have an answer. A type may occur several times in a pattern.

    events = Events.of(key, time, type, {"price": (prices, prices_known)})     # raw events, compacted
    events = compacted([these, those])                                         # what tasks combine, in any order
    found = answers(events, [Asked(pattern=(3, 1, 4), range=600, slide=60, measures=(Measure("sum", "price", 1),))])
    found[0].key, found[0].start, found[0].count.integers(), found[0].measures[0].integers()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Attribute:
    """What compaction keeps of an attribute's values at each of n events; a null takes no part in any of it.

    ``known``: how many are not null. ``sum``: of integers the exact sum as 128-bit two's complement, (low (n,) uint64,
    high (n,) int64); of doubles that of the finite ones as a double-double, (total, residue) (n,) float64.
    ``least`` and ``greatest`` (n,) int64: integers, or doubles as :func:`optimizer.intervals.ordinals` (without meaning
    where nothing is known). ``special`` (n,) uint8, of doubles alone: 1 if there is a NaN, 2 inf, 4 -inf, added up.
    """

    known: Longs
    sum: tuple[NDArray[Any], NDArray[Any]]
    least: Longs
    greatest: Longs
    special: NDArray[np.uint8] | None = None

    @property
    def exact(self) -> bool:
        """The values are integers."""
        return self.special is None


@dataclass(frozen=True)
class Events:
    """Compacted events of many keys, ascending by (key, time, type), each combination once.

    ``key``, ``time`` (ticks), ``count`` (how many events were compacted into this one, >= 1): (n,) int64; ``type``:
    (n,) int32 codes. ``attributes`` by name: any attribute may belong to events of several types.
    """

    key: Longs
    time: Longs
    type: NDArray[np.int32]
    count: Longs
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        key: Longs,
        time: Longs,
        type: NDArray[np.int32],
        attributes: Mapping[str, tuple[NDArray[Any], NDArray[np.bool_] | None]] | None = None,
    ) -> Events:
        """Compact raw events (n,), in any order. ``attributes``: name -> values (n,) int64 or float64, and which of
        them are not null (None: all)."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.key)


def compacted(parts: Iterable[Events]) -> Events:
    """Several parts, in any order, as one: commutative and associative, so Spark tasks may combine parts as they come
    (integers to the bit; sums of doubles within 2**-100 of the sum of their magnitudes)."""
    raise NotImplementedError


@dataclass(frozen=True)
class Measure:
    """An aggregate over the events of one ``type`` in all matches of a window (an event counts once for every match
    and every position of the pattern at which the match has it).

    ``function``: ``sum`` (of no value: 0; ask for ``known`` to tell null), ``known`` (how many values are not null),
    ``min``, ``max`` of ``attribute`` (Spark's order of doubles, NaN greatest).
    """

    function: str
    attribute: str
    type: int


@dataclass(frozen=True)
class Asked:
    """One query: ``pattern`` of type codes (one at least), windows ``[k*slide, k*slide + range)`` in ticks."""

    pattern: tuple[int, ...]
    range: int
    slide: int
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True)
class Integers:
    """Exact integers (a,): 128-bit two's complement, ``low`` uint64 and ``high`` int64, which is a decimal128's buffer.

    ``over`` (a,): the integer has more than 38 digits (or that cannot be told); its ``low`` and ``high`` mean nothing.
    """

    low: NDArray[np.uint64]
    high: Longs
    over: NDArray[np.bool_]

    def decimals(self, scale: int = 0) -> pa.Array:
        """As ``decimal128(38, scale)`` of the unscaled integers; null where ``over``."""
        raise NotImplementedError

    def integers(self) -> list[int | None]:
        """As Python's integers; None where ``over``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Numbers:
    """Values (a,), int64 or float64, and which of them are ``known`` (not null)."""

    values: NDArray[Any]
    known: NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Answers of one query, ascending by (key, start): ``key`` and ``start`` of the window (a,), number of matches
    ``count`` (>= 1), and for each measure of the query Integers (sum of integers, known) or Numbers (sum of doubles,
    min, max)."""

    key: Longs
    start: Longs
    count: Integers
    measures: tuple[Integers | Numbers, ...] = ()


def answers(
    events: Events,
    asked: Sequence[Asked],
    executor: str | None = None,
    ends: tuple[int, int] | None = None,
) -> list[Answers]:
    """The answers of every query asked, in the same order, over all events given.

    ``executor``: one of :data:`EXECUTORS` (default: what :func:`choose` finds cheapest; measures always run on
    ``windows``). ``ends``: only windows that end in ``(begin, end]``; a window's events must all be given.
    Raises ValueError for an empty pattern, a range or slide that is not positive, an unknown attribute or executor.
    """
    raise NotImplementedError


EXECUTORS = ("windows", "fragments", "landmarks", "middle")


class Substrings:
    """The distinct substrings of some patterns: what the cells of a fragment count.

    ``texts``: each substring as a tuple of type codes, by length, then by codes (the same for the same set of
    patterns). ``number``: its number. ``types``: the type codes in use, ascending.
    """

    def __init__(self, patterns: Iterable[tuple[int, ...]]) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Cells:
    """Of each (key, fragment) how many matches of every substring lie in the fragment: the sequence aggregate's partial
    aggregates. Rows (g,) ascending by (key, start).

    ``key``, ``start`` (of the fragment, ticks): (g,). ``longs`` (g, x) int64 and ``doubles`` (g, y) float64: one list
    a row in Parquet, laid out by :class:`Substrings` alone.
    """

    key: Longs
    start: Longs
    longs: NDArray[np.int64]
    doubles: NDArray[np.float64]


def cells_of(events: Events, index: Substrings, edges: Longs) -> Cells:
    """The cells of each key in each fragment ``[edges[i], edges[i + 1])``, edges (e + 1,) ascending; events outside are
    left out, fragments without events have no row."""
    raise NotImplementedError


def concatenated(a: Cells, b: Cells, index: Substrings) -> Cells:
    """Row by row the cells of ``a``'s events followed by ``b``'s: associative, not commutative. ``a`` ends no later
    than ``b`` begins, within one timestamp at most."""
    raise NotImplementedError


def answers_of_cells(
    cells: Cells, index: Substrings, asked: Sequence[Asked], ends: tuple[int, int] | None = None
) -> list[Answers]:
    """As :func:`answers`, from stored cells (COUNT alone: queries with measures raise ValueError). Fragments must be
    cut at every edge of the windows asked for."""
    raise NotImplementedError
