"""Work of a task that fills synopses: the synopses with the time that they lack, and the limits on its memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from optimizer.synopses.derivation import SynopsisPart, shares_of
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import day_label
from optimizer.workload.values import columns_of, source_columns

GROUP_LIMIT = 2_000_000
"""Maximum number of groups kept as a whole: the keys that rows are numbered by (the driver has the counts of all of
them), and the groups of windows of rows on one day. A synopsis with more fails (HDL-602); the others do not.
"""

BATCH_ROWS = 1 << 18
"""Number of rows below which batches are merged first, to share the fixed cost of a batch."""

SLICE_ROWS = 1 << 20
"""Larger batches are cut."""

SAMPLE_ROWS = 1 << 16
"""Number of events from which it is decided which synopses are better not lifted together."""

RUNS = 16
"""Number of runs a synopsis above which a piece of partial rows is sorted first: a slice costs microseconds."""

ROLL_UP_COST = 3
"""Cost of rolling up one cell, about this number of lifted events."""


def partition_of(synopsis: Synopsis, instant: int) -> str:
    """The partition of the partials table that has the rows of the fragment which begins at an instant: its day; of a
    level the month of its days, and the year of its months and years."""
    return day_label(instant)[: LABELS.get(synopsis.period)]


LABELS: dict[str | None, int] = {"day": len("2020-01"), "month": len("2020"), "year": len("2020")}
"""Characters of the labels of partitions that have levels, by their periods: a few files have all of a year."""


@dataclass(frozen=True)
class FillRequest:
    """Fill a synopsis for the fragments that start in [begin, end) (microseconds; both are edges).

    ``most_groups``: the maximum for one task; None: no limit. ``stored``: synopses whose rows all exist and that
    give filters and states of it (:mod:`optimizer.synopses.derivation`), or event types; the others come from
    events. ``into``: the synopsis to fill if stored rows give the rest; None: its own synopsis. ``is_counted``:
    those rows count its tuples.
    """

    synopsis: Synopsis
    begin: int
    end: int
    most_groups: int | None = None
    stored: tuple[Synopsis, ...] = ()
    into: Synopsis | None = None
    is_counted: bool = False

    @property
    def filled(self) -> Synopsis:
        """The synopsis whose rows it fills."""
        return self.synopsis if self.into is None else self.into

    @property
    def given(self) -> list[list[SynopsisPart]]:
        """The parts that each of ``stored`` gives."""
        return shares_of(self.stored, self.synopsis)[0]

    @property
    def lifted(self) -> list[FillRequest]:
        """The parts that have to be lifted from events."""
        if not self.stored:
            return [self]
        remaining = shares_of(self.stored, self.synopsis)[1]
        return [
            FillRequest(part.synopsis, self.begin, self.end, into=self.synopsis, is_counted=part.is_counted)
            for part in remaining
        ]


def by_fingerprint(rows: pa.Table) -> dict[str, pa.Table]:
    """Partial rows apart by synopsis, in the order of the fingerprints: slices, for each piece was written with the
    rows of a synopsis one after the other. Only pieces that are nothing but short runs are taken row by row."""
    slices: dict[str, list[pa.Table]] = {}
    first = 0
    for chunk in rows["fingerprint"].chunks:
        encoded = chunk.dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        cuts = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
        piece, first = rows.slice(first, len(chunk)), first + len(chunk)
        if len(cuts) > RUNS * len(names) + 2:
            order = np.argsort(codes, kind="stable")
            piece, codes = piece.take(pa.array(order)), codes[order]
            cuts = np.searchsorted(codes, np.arange(len(names) + 1)).tolist()
        for low, high in pairwise(cuts):
            if low < high:
                slices.setdefault(names[codes[low]], []).append(piece.slice(low, high - low))
    return {name: pa.concat_tables(slices[name]) for name in sorted(slices)}


def columns_of_synopsis(synopsis: Synopsis) -> set[str]:
    """Source columns that filling a synopsis reads, without the time column."""
    columns = source_columns(synopsis.group_by, synopsis.derived) | set(synopsis.per or ())
    columns |= synopsis.sequenced.columns() if synopsis.sequenced else set()
    for predicate in synopsis.predicates:
        columns |= set(columns_of(predicate))
    for state in synopsis.states:
        columns |= {*columns_of(state.argument), *columns_of(state.by)}
    return columns - {synopsis.time}
