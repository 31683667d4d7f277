"""What a task is asked to fill: synopses and the time that they lack, and how much it may hold meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.values import columns_of, source_columns

GROUP_LIMIT = 2_000_000
"""Most groups of what is held as a whole: the keys that rows are numbered by (the driver knows the counts of all of
them), and the groups of windows of rows on one day. What has more fails alone (HDL-602)."""

BATCH_ROWS = 1 << 18
"""Smaller batches are put together first: what a batch costs beside its events is paid once for so many."""

SLICE_ROWS = 1 << 20
"""Larger batches are cut."""

ROLL_UP_COST = 3
"""Rolling one cell up costs about as much as lifting so many events."""


@dataclass(frozen=True)
class FillRequest:
    """Fill a synopsis for the fragments that start in [begin, end) (microseconds; both are edges).

    ``most_groups``: that one task may fill; None: however many there are.
    """

    synopsis: Synopsis
    begin: int
    end: int
    most_groups: int | None = None


def by_fingerprint(rows: pa.Table) -> dict[str, pa.Table]:
    """Partial rows apart by synopsis, in the order of the fingerprints. O(n), however many synopses there are."""
    found = rows["fingerprint"].dictionary_encode().unify_dictionaries().combine_chunks()
    names = found.dictionary.to_pylist()
    if len(names) == 1:
        return {names[0]: rows}
    codes = found.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    ascending = sorted(range(len(names)), key=names.__getitem__)
    return {names[code]: rows.take(pa.array(order[cuts[code] : cuts[code + 1]])) for code in ascending}


def columns_of_synopsis(synopsis: Synopsis) -> set[str]:
    """Source columns that filling a synopsis reads, without the time column."""
    found = source_columns(synopsis.group_by, synopsis.derived) | set(synopsis.per or ())
    if synopsis.sequenced is not None:
        found.add(synopsis.sequenced.on)
        found.update(name for argument, _ in synopsis.sequenced.attributes for name in columns_of(argument))
    for predicate in synopsis.predicates:
        found |= set(columns_of(predicate))
    for state in synopsis.states:
        found |= {*columns_of(state.argument), *columns_of(state.by)}
    return found - {synopsis.time}
