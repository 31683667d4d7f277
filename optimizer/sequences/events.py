"""Event sequence aggregation: COUNT, SUM, MIN and MAX over all matches of SEQ patterns in sliding windows.

A match of ``SEQ(E1, ..., El)`` in a window is one event of each type in *strictly* increasing time, all of one key and
all in the window ``[start, start + range)``; every choice of events counts (skip-till-any-match). Windows start on the
multiples of their slide, as in :mod:`optimizer.windows.alignment`; times are integer ticks of any unit and may be
negative. Only windows with at least one match have an answer. A type may occur several times in a pattern.

    events = Events.of(key, time, type, {"price": (prices, prices_known)})     # raw events, compacted
    events = compacted([first_part, second_part])                              # partial events of tasks, in any order
    query = SequenceQuery(pattern=(3, 1, 4), range=600, slide=60, measures=(Measure("sum", "price", 1),))
    (answer,) = answers(events, [query])
    answer.key, answer.start, answer.count.integers(), answer.measures[0].integers()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.combine.elements import ordinals
from optimizer.sequences import event_kernels, kernels

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Attribute:
    """Compacted values of an attribute at each of n events, without nulls.

    ``known``: the number of values that are not null. ``sum``: of integers the exact sum as 128-bit two's complement,
    (low (n,) uint64, high (n,) int64); of doubles that of the finite ones as a double-double, (total, residue) (n,)
    float64. ``least`` and ``greatest`` (n,) int64: integers, or doubles as :func:`optimizer.combine.elements.ordinals`
    (without meaning if no value is known). ``special`` (n,) uint8, only of doubles: 1 if there is a NaN, 2 inf, 4 -inf,
    added up.
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
        n = len(key)
        raw_attributes = {name: _attribute(values, known) for name, (values, known) in (attributes or {}).items()}
        columns = (np.asarray(key, np.int64), np.asarray(time, np.int64), np.asarray(type, np.int32))
        return merged(*columns, np.ones(n, dtype=np.int64), raw_attributes)

    def __post_init__(self) -> None:
        columns: list[NDArray[Any]] = [self.time, self.type, self.count]
        for attribute in self.attributes.values():
            columns += [attribute.known, *attribute.sum, attribute.least, attribute.greatest]
        if any(len(column) != len(self.key) for column in columns):
            raise ValueError("columns of events differ in length")
        if not event_kernels.is_ascending(self.key, self.time, self.type):
            raise ValueError("compacted events ascend by key, time and type, each combination once")

    def __len__(self) -> int:
        return len(self.key)

    @cached_property
    def runs(self) -> Longs:
        """Index where the events of each key begin (k + 1,)."""
        return event_kernels.runs_of(self.key)


def compacted(parts: Iterable[Events]) -> Events:
    """Several parts, in any order, as one: commutative and associative, so Spark tasks may combine parts as they come
    (integers to the bit; sums of doubles within 2**-100 of the sum of their magnitudes). Raises ValueError if their
    attributes differ."""
    nonempty = [part for part in parts if len(part)] or list(parts)[:1]
    if not nonempty:
        none = np.zeros(0, dtype=np.int64)
        return Events(none, none, none.astype(np.int32), none)
    if any(part.attributes.keys() != nonempty[0].attributes.keys() for part in nonempty):
        raise ValueError("events to be combined have different attributes")
    attributes = {name: _joined([part.attributes[name] for part in nonempty]) for name in nonempty[0].attributes}
    key, time, type_, count = (
        np.concatenate([getattr(part, name) for part in nonempty]) for name in ("key", "time", "type", "count")
    )
    return merged(key, time, type_, count, attributes)


def _attribute(values: NDArray[Any], known: NDArray[np.bool_] | None) -> Attribute:
    """Raw values (n,) and which are not null, each for itself."""
    is_known = np.ones(len(values), dtype=np.bool_) if known is None else np.asarray(known, dtype=np.bool_)
    if np.issubdtype(values.dtype, np.integer):
        integers = np.where(is_known, values, 0).astype(np.int64)
        return Attribute(is_known.astype(np.int64), (integers.view(np.uint64), integers >> 63), integers, integers)
    double = np.where(is_known, values, 0.0).astype(np.float64)
    special = np.isnan(double) + 2 * (double == np.inf) + 4 * (double == -np.inf)
    order = ordinals(double)
    finite = np.where(special > 0, 0.0, double), np.zeros(len(double))
    return Attribute(is_known.astype(np.int64), finite, order, order, special.astype(np.uint8))


def _joined(parts: list[Attribute]) -> Attribute:
    if any(part.exact != parts[0].exact for part in parts):
        raise ValueError("an attribute is integers in one part and doubles in another")
    special = None if parts[0].exact else np.concatenate([part.special for part in parts if part.special is not None])
    return Attribute(
        np.concatenate([part.known for part in parts]),
        (np.concatenate([part.sum[0] for part in parts]), np.concatenate([part.sum[1] for part in parts])),
        np.concatenate([part.least for part in parts]),
        np.concatenate([part.greatest for part in parts]),
        special,
    )


CELLS_PER_EVENT = 4
"""Most combinations of key, time and type per event for which events are counted in one table instead of sorted."""


def merged(key: Longs, time: Longs, type: NDArray[np.int32], count: Longs, attributes: dict[str, Attribute]) -> Events:
    """Events in any order, with repeats, as compacted ones."""
    if len(key) == 0 or event_kernels.is_ascending(key, time, type):
        return Events(key, time, type, count, attributes)
    columns: tuple[NDArray[Any], ...] = (key, time, type)
    least = [int(column.min()) for column in columns]
    sizes = [int(column.max()) - low + 1 for column, low in zip(columns, least, strict=True)]
    cells = sizes[0] * sizes[1] * sizes[2]
    if cells < 1 << 62:
        code = event_kernels.codes(key, time, type, *least, sizes[1], sizes[2])
        if not attributes and cells <= CELLS_PER_EVENT * len(key):
            total = event_kernels.histogram(code, count, cells)
            code = np.flatnonzero(total)
            upper, kind = np.divmod(code, sizes[2])
            keys, times = np.divmod(upper, sizes[1])
            return Events(keys + least[0], times + least[1], (kind + least[2]).astype(np.int32), total[code])
        order = np.argsort(code, kind="stable")
        code = code[order]
        first = np.flatnonzero(np.concatenate([[True], code[1:] != code[:-1]]))
    else:
        order = np.lexsort((type, time, key))
        changes = np.zeros(len(order), dtype=np.bool_)
        changes[0] = True
        for column in (key, time, type):
            ordered = column[order]
            changes[1:] |= ordered[1:] != ordered[:-1]
        first = np.flatnonzero(changes)
    rows = order[first]
    total = np.add.reduceat(count[order], first)
    reduced = {name: _reduced(attribute, order, first) for name, attribute in attributes.items()}
    return Events(key[rows], time[rows], type[rows], total, reduced)


def _reduced(attribute: Attribute, order: Longs, first: Longs) -> Attribute:
    """One value for each run of ``order``; runs begin at ``first``."""
    known = attribute.known[order]
    is_known = known > 0
    least = np.where(is_known, attribute.least[order], np.iinfo(np.int64).max)
    greatest = np.where(is_known, attribute.greatest[order], np.iinfo(np.int64).min)
    leading, other = attribute.sum[0][order], attribute.sum[1][order]
    special = None
    if attribute.special is None:
        total = event_kernels.wide_sums(leading, other, first)
    else:
        total = kernels.double_sums(leading, other, first)
        special = np.bitwise_or.reduceat(attribute.special[order], first)
    return Attribute(
        np.add.reduceat(known, first),
        total,
        np.minimum.reduceat(least, first),
        np.maximum.reduceat(greatest, first),
        special,
    )
