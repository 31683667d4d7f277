"""Events without a row in a dimension that they are joined with: counted while they are lifted, and reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from optimizer.errors.diagnostics import Diagnostic
from optimizer.workload.attributes import JoinedAttribute, attributes_in
from optimizer.workload.values import STRING, Dimension, Stream
from spark_jobs.store.storage import Place

SHARE = 0.01
"""Share of the events without a row that is reported."""

SHOWN = 5
"""Keys without a row that are shown."""


@dataclass(frozen=True)
class Unmatched:
    """Events that were joined with a dimension.

    Parameters
    ----------
    dimension
        The dimension.
    events
        Their number.
    without_row
        Those whose key has no row.
    null_keys
        Those with a null in the key.
    keys
        Some of the keys without a row, as texts.
    """

    dimension: str
    events: int
    without_row: int
    null_keys: int
    keys: tuple[str, ...] = ()

    def joined(self, other: Unmatched) -> Unmatched:
        """Both, of different events."""
        keys = tuple(sorted({*self.keys, *other.keys})[:SHOWN])
        events, without_row = self.events + other.events, self.without_row + other.without_row
        return Unmatched(self.dimension, events, without_row, self.null_keys + other.null_keys, keys)


def joins_of(stream: Stream, columns: Iterable[str]) -> dict[str, JoinedAttribute]:
    """For each join that some columns of a stream need, by its name, the attribute that says whether there is a row."""
    return {each.row.name: each.row for each in attributes_in(stream, columns).values()}


def unmatched_in(events: pa.RecordBatch, join: str, attribute: JoinedAttribute) -> Unmatched:
    """The events of a batch without a row, which has the keys of a join and, under its name, whether there is a row."""
    has_none = pc.invert(events.column(join))
    if not pc.any(has_none, min_count=0).as_py():
        return Unmatched(attribute.dimension, len(events), 0, 0)
    keys = [events.column(key).filter(has_none) for key in attribute.keys]
    is_null = pc.is_null(keys[0])
    for key in keys[1:]:
        is_null = pc.or_(is_null, pc.is_null(key))
    null_keys = pc.sum(is_null).as_py() or 0
    known = pa.table([key.filter(pc.invert(is_null)) for key in keys], names=[str(at) for at in range(len(keys))])
    shown = {", ".join(map(str, row.values())) for row in known.slice(0, 64).to_pylist()}
    return Unmatched(
        attribute.dimension, len(events), len(keys[0]) - null_keys, null_keys, tuple(sorted(shown)[:SHOWN])
    )


def together(counted: Iterable[Unmatched]) -> dict[str, Unmatched]:
    """The counts of several batches by dimension."""
    known: dict[str, Unmatched] = {}
    for each in counted:
        known[each.dimension] = known[each.dimension].joined(each) if each.dimension in known else each
    return known


def stored(counted: Sequence[Unmatched]) -> dict[str, dict[str, Any]]:
    """The counts of a run by dimension, as its record has them."""
    return {
        name: {
            "events": each.events,
            "without_row": each.without_row,
            "null_keys": each.null_keys,
            "keys": list(each.keys),
        }
        for name, each in sorted(together(counted).items())
    }


def warnings_of_unmatched(stream: Stream, counted: Sequence[Unmatched]) -> list[Diagnostic]:
    """A warning for each dimension that lacks a row for more than :data:`SHARE` of the events of a stream. If only the
    case of letters tells the keys of the events from those of the dimension, the hint says so.
    """
    warnings = []
    for name, each in sorted(together(counted).items()):
        if each.without_row <= SHARE * each.events:
            continue
        keys = f", for example {', '.join(each.keys)}" if each.keys else ""
        message = (
            f"{each.without_row:,} of {each.events:,} events of {stream.name} have no row in dimension {name}{keys}"
        )
        hint = "JOIN leaves them out, LEFT JOIN keeps them with nulls; add the rows to the dimension"
        if (likely := _in_other_letters(stream.dimension(name), each.keys)) is not None:
            hint = f"the dimension has {likely}: compare letters of one case, ON upper(…) = … or ON lower(…) = …"
        warnings.append(Diagnostic("HDL-465", message, hint, severity="warning"))
    return warnings


def _in_other_letters(dimension: Dimension, keys: Sequence[str]) -> str | None:
    """A key of a dimension that differs from one of some texts in the case of its letters alone; None if none does."""
    if len(dimension.key) > 1 or dimension.type_of(dimension.key[0]) != STRING or dimension.version is None:
        return None
    known = pq.read_table(Place(dimension.version.place).open_unchanging(), columns=[dimension.key[0]])[0]
    lowered = pc.utf8_lower(known.combine_chunks())
    for key in keys:
        at = pc.index(lowered, key.lower()).as_py()
        if at >= 0:
            return repr(known[at].as_py())
    return None
