"""Dates and timestamps that Spark wrote in its legacy calendar.

Up to version 2, and later in its mode LEGACY, Spark counts days in the calendar of its time: Julian before 1582-10-15,
Gregorian since. Arrow, Parquet and SQL count in the Gregorian calendar throughout, so 1582-10-04 of such a file would
be read as 1582-10-14. The footer of a file shows how it was written. Values are moved so that they show the same date.

References
----------
Spark: ``RebaseDateTime.scala`` (which values move, and by how much), ``DataSourceUtils.datetimeRebaseSpec`` and
``int96RebaseSpec`` (which files). Departure: a timestamp before 1900 of a file whose zone is not UTC is refused, as old
offsets of zones differ between Java's two calendars.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.workload.instants import DAY

CHANGE = -141_427
"""1582-10-15, the first day of the Gregorian calendar, in days since 1970."""

ZONES_AGREE = -25_567
"""1900-01-01 in days since 1970: from then on both of Java's calendars have the same offsets."""

_UTC = re.compile(r"(Etc/)?(UTC|UCT|GMT|Zulu|Universal|Greenwich|GMT[+-]?0)|Z|[+-]00:00")

_PER_DAY = {"s": DAY // 1_000_000, "ms": DAY // 1000, "us": DAY, "ns": DAY * 1000}


@dataclass(frozen=True)
class LegacyCalendar:
    """Values of a file in the legacy calendar: ``datetimes`` (dates and 64-bit timestamps), ``int96``; and the ``zone``
    in which timestamps were written, None if it is UTC or not stated.
    """

    datetimes: bool
    int96: bool
    zone: str | None

    def is_in(self, metadata: pq.FileMetaData, place: str) -> bool:
        """Return whether the values of a column, or of a field of it, are in the legacy calendar. ``place``: its
        dotted path.
        """
        for number in range(metadata.num_columns):
            column = metadata.schema.column(number)
            if column.path == place or column.path.startswith(f"{place}."):
                return self.int96 if column.physical_type == "INT96" else self.datetimes
        return False


def legacy_calendar(metadata: pq.FileMetaData) -> LegacyCalendar | None:
    """The calendar of a file, by its footer; None if none of its values is in the legacy calendar."""
    properties = metadata.metadata or {}
    version = properties.get(b"org.apache.spark.version")
    # the first versions of Spark 2 named themselves nowhere, but wrote their schema
    if version is None and b"org.apache.spark.sql.parquet.row.metadata" not in properties:
        return None
    number = tuple(int(part) for part in re.findall(rb"\d+", version or b"2")[:2])
    datetimes = number < (3,) or b"org.apache.spark.legacyDateTime" in properties
    int96 = number < (3, 1) or b"org.apache.spark.legacyINT96" in properties
    if not datetimes and not int96:
        return None
    zone = properties.get(b"org.apache.spark.timeZone", b"UTC").decode(errors="replace")
    return LegacyCalendar(datetimes, int96, None if _UTC.fullmatch(zone) else zone)


def shift(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of days (n,) by which days (n,) since 1970 move so that they show the date of the legacy calendar."""
    # years that begin in March, from that of 4801 BC
    years = (4 * (days + 2_440_588 + 32_082) + 3) // 1461
    return np.asarray(np.where(days < CHANGE, 38 - years // 100 + years // 400, 0))


def moved_instant(instant: int, calendar: LegacyCalendar | None) -> int:
    """A timestamp of a file (microseconds), moved."""
    if calendar is None or not calendar.datetimes:
        return instant
    return instant + int(shift(np.array([instant // DAY]))[0]) * DAY


def moved(values: pa.Array | pa.ChunkedArray, zone: str | None, is_time: bool) -> Any:
    """Dates and timestamps of the legacy calendar, moved; other values as they are.

    Raises ArrowInvalid for a timestamp before 1900 of a ``zone``; not for event times (``is_time``) before the year 1,
    which are none in either calendar.
    """
    kind = values.type
    if not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)) or not len(values):
        return values
    of_day = 1 if pa.types.is_date32(kind) else _PER_DAY[kind.unit]
    numbers = values.cast(pa.int32() if of_day == 1 else pa.int64())
    least = pc.min(numbers).as_py()
    if least is None or least // of_day >= (CHANGE if of_day == 1 or zone is None else ZONES_AGREE):
        return values
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    known = numbers.is_valid().to_numpy(zero_copy_only=False)
    counts = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    days = np.floor_divide(counts, of_day)
    if of_day != 1 and zone is not None:
        # -719162: 0001-01-01
        before = known & (days < ZONES_AGREE) & ((days >= -719_162) if is_time else True)
        if before.any():
            raise LegacyTimestamp(str(pa.scalar(int(counts[before][0]), pa.int64()).cast(pa.timestamp(kind.unit))))
        return values
    counts += shift(days) * of_day
    return pa.array(counts.astype(np.int32) if of_day == 1 else counts, mask=~known).cast(kind)


MOVED_DATES = "|moved dates"
"""Suffix of the identity of a file whose dates are moved."""


class LegacyTimestamp(ValueError):
    """A timestamp of the legacy calendar that cannot be converted without Java's old offsets of its zone."""


def has_moved(metadata: pq.FileMetaData, calendar: LegacyCalendar | None) -> bool:
    """Return whether statistics of a file show values that move."""
    if calendar is None:
        return False
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        kind = column.logical_type.type
        if kind not in ("DATE", "TIMESTAMP") or not calendar.datetimes:
            continue
        for group in range(metadata.num_row_groups):
            statistics = metadata.row_group(group).column(number).statistics
            if statistics is not None and statistics.has_min_max and _day(statistics.min_raw, column) < CHANGE:
                return True
    return False


def _day(number: int, column: Any) -> int:
    if column.logical_type.type == "DATE":
        return number
    return int(number // (DAY // 1000 if "milliseconds" in str(column.logical_type) else DAY))
