"""What a task is asked to fill: synopses and the time that they lack, and how much it may hold meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from optimizer.synopses.derivation import SynopsisPart, shares_of
from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.values import columns_of, source_columns

GROUP_LIMIT = 2_000_000
"""Most groups of what is held as a whole: the keys that rows are numbered by (the driver knows the counts of all of
them), and the groups of windows of rows on one day. What has more fails alone (HDL-602)."""

BATCH_ROWS = 1 << 18
"""Smaller batches are put together first: what a batch costs beside its events is paid once for so many."""

SLICE_ROWS = 1 << 20
"""Larger batches are cut."""

SAMPLE_ROWS = 1 << 16
"""So many events tell which synopses are better not lifted together."""

RUNS = 16
"""A piece of partial rows with more runs than so many a synopsis is put in order first: a slice costs microseconds."""

ROLL_UP_COST = 3
"""Rolling one cell up costs about as much as lifting so many events."""


@dataclass(frozen=True)
class FillRequest:
    """Fill a synopsis for the fragments that start in [begin, end) (microseconds; both are edges).

    ``most_groups``: that one task may fill; None: however many there are. ``stored``: synopses all of whose rows are
    there and give filters and states of it (:mod:`optimizer.synopses.derivation`), or event types; the others come from
    events. ``into``: what it fills beside rows that give those; None: its own synopsis. ``is_counted``: those count its
    tuples.
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
        """What each of ``stored`` gives."""
        return shares_of(self.stored, self.synopsis)[0]

    @property
    def lifted(self) -> list[FillRequest]:
        """What of it has to be lifted from events."""
        if not self.stored:
            return [self]
        rest = shares_of(self.stored, self.synopsis)[1]
        return [
            FillRequest(part.synopsis, self.begin, self.end, into=self.synopsis, is_counted=part.is_counted)
            for part in rest
        ]


def by_fingerprint(rows: pa.Table) -> dict[str, pa.Table]:
    """Partial rows apart by synopsis, in the order of the fingerprints: slices, for each piece was written with the
    rows of a synopsis one after the other. Only pieces that are nothing but short runs are taken row by row."""
    slices: dict[str, list[pa.Table]] = {}
    first = 0
    for chunk in rows["fingerprint"].chunks:
        found = chunk.dictionary_encode()
        names, codes = found.dictionary.to_pylist(), found.indices.to_numpy()
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
    found = source_columns(synopsis.group_by, synopsis.derived) | set(synopsis.per or ())
    found |= synopsis.sequenced.columns() if synopsis.sequenced else set()
    for predicate in synopsis.predicates:
        found |= set(columns_of(predicate))
    for state in synopsis.states:
        found |= {*columns_of(state.argument), *columns_of(state.by)}
    return found - {synopsis.time}
