"""Events without a usable time: they are in no window, so every run that reads them skips and reports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import Diagnostic, count
from optimizer.workload.values import Stream
from spark_jobs.store.warehouse import quarantine
from spark_jobs.store.warehouse.data_files import WithoutTime
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.quarantine import LeftOut, newest_of_each
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.ledger import ledger

NAMED = 100
"""Files of a stream that a record names; the others are counted together."""

SHOWN = 3
"""Files that a warning names."""


def note_without_time(record: RunRecord, stream: Stream, counted: Sequence[WithoutTime]) -> None:
    """Enter the events of a stream without a usable time into the record of a run, with a warning."""
    if not counted:
        return
    events = Counter(record.without_time.get(stream.name, {}))
    for each in counted:
        events[file_name(stream, each.path)] += each.rows
    shown = dict(sorted(events.items(), key=lambda item: (item[0] == "", -item[1], item[0])))
    unnamed_rows = sum(rows for number, (file, rows) in enumerate(shown.items()) if number >= NAMED or not file)
    shown = dict([(file, rows) for file, rows in shown.items() if file][:NAMED])
    record.without_time[stream.name] = shown | ({"": unnamed_rows} if unnamed_rows else {})
    record.diagnostics.append(warning(stream.name, record.without_time[stream.name]).to_json())


def file_name(stream: Stream, path: str) -> str:
    """Name of a file in warnings: its path below the stream's."""
    root = stream.source.path.rstrip("/")
    return path.rpartition("/")[2] if path == root else path.removeprefix(f"{root}/")


def warning(stream: str, files: Mapping[str, int]) -> Diagnostic:
    """The warning about events without a usable time, by file ("": of other files)."""
    first = [f"{file} ({rows:,})" for file, rows in files.items() if file][:SHOWN]
    more = len(files) - len(first)
    shown_files = ", ".join(first) + (f" and {more:,} more" if first and more else "")
    events = count(sum(files.values()), "event")
    message = f"stream {stream}: {events} without a usable time left out" + (f": {shown_files}" if shown_files else "")
    hint = "correct the files if they should count; usable are the years 1 to 9999"
    return Diagnostic("HDL-410", message, hint, severity="warning")


def standing_without_time(warehouse: Warehouse, streams: Collection[str] | None = None) -> list[LeftOut]:
    """The events without a usable time of files that are there as they were read last, by stream and file.
    ``streams``: None: of all."""
    rows = [row for row in quarantine.rows(warehouse) if row.file and (streams is None or row.stream in streams)]
    noted = newest_of_each(rows)
    left_out: list[LeftOut] = []
    for stream in sorted({row.stream for row in noted}):
        known = ledger(warehouse, stream).rows
        # of each file its last row
        last = known.group_by(["identity"], use_threads=False).aggregate(
            [("path", "last"), ("event", "last"), ("arrived", "last")]
        )
        present = last.filter(pc.not_equal(last["event_last"], "gone"))
        for row in (row for row in noted if row.stream == stream):
            is_of_file = pc.or_(
                pc.equal(present["path_last"], row.file), pc.ends_with(present["path_last"], f"/{row.file}")
            )
            arrived = present["arrived_last"].filter(is_of_file)
            # a file that was corrected came again since
            if pc.any(pc.less_equal(arrived, pa.scalar(row.at, INSTANT))).as_py():
                left_out.append(row)
    return sorted(left_out, key=lambda row: (row.stream, -row.rows, row.file))


def warnings(left_out: Iterable[LeftOut]) -> list[Diagnostic]:
    """A warning for each stream of some events without a usable time."""
    by_stream: dict[str, dict[str, int]] = {}
    for row in left_out:
        by_stream.setdefault(row.stream, {})[row.file] = row.rows
    return [warning(stream, files) for stream, files in by_stream.items()]


def without_time_json(left_out: Sequence[LeftOut]) -> dict[str, list[dict[str, object]]]:
    """Events without a usable time as programs read them; nothing if there are none."""
    rows: list[dict[str, object]] = [{"stream": row.stream, "file": row.file, "events": row.rows} for row in left_out]
    return {"without_time": rows} if rows else {}
