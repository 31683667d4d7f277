"""Number the sets of GROUPING SETS, ROLLUP and CUBE."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def grouping_column(sets: Iterable[Iterable[str]]) -> str:
    """The name of the group column that has the number of the grouping set."""
    return f"grouping_id({', '.join(f'({chr(44).join(names)})' for names in sets)})"


def grouping_ids(columns: Sequence[str], sets: Iterable[Collection[str]]) -> list[int]:
    """The number of each grouping set, as Spark's ``grouping_id()`` has it: a bit a column, that of the first the
    highest, set where the column is not in the set.
    """
    bits = {name: 1 << place for place, name in enumerate(reversed(columns))}
    return [sum(bit for name, bit in bits.items() if name not in names) for names in sets]
