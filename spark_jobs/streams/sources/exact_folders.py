"""Events outside the time of their folder, where the folders of a stream are declared to be exact.

A run lists the folders of the times that it reads, those next to them, and those of known files that have events of
these times (:mod:`spark_jobs.streams.sources.partition_columns`). What a file of another folder has for them is known
once that file is listed: by a run for its folder, or by the next repair, which lists all. It is late data then.
"""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.errors.diagnostics import Diagnostic, count
from optimizer.workload.values import Stream
from spark_jobs.streams.sources.arrivals import Arrival
from spark_jobs.streams.sources.decoding import events_in
from spark_jobs.streams.sources.file_names import some
from spark_jobs.streams.sources.partition_columns import folder_span
from spark_jobs.streams.sources.splits import FIRST, LAST, Split


def events_outside(stream: Stream, files: Sequence[Arrival], splits: Sequence[Split]) -> tuple[Diagnostic, ...]:
    """Return the warning about events outside the time of their folder (HDL-486); empty if there are none.

    ``files``: those that came or went; ``splits``: of all files that were opened. Raises what reading raises.
    """
    came = {file.identity: file for file in files if file.event == "came"}
    of_files: dict[str, list[Split]] = {}
    for split in splits:
        if split.identity in came and split.folders:
            of_files.setdefault(split.identity, []).append(split)
    outside: dict[str, int] = {}
    for identity, of_file in of_files.items():
        name = _below(stream, of_file[0].path)
        span, file = folder_span(stream, name), came[identity]
        if span is None or _is_inside(file, span):
            continue
        if events := events_in(stream, of_file, [(FIRST, span[0]), (span[1], LAST)]):
            outside[name] = events
    return _warning(stream, outside)


def misplaced_files(stream: Stream, splits: Sequence[Split]) -> tuple[Diagnostic, ...]:
    """Return the warning about files whose known times lie outside their folder (HDL-486). Reads no event."""
    names: dict[str, None] = {}
    for split in splits:
        span = folder_span(stream, _below(stream, split.path)) if split.folders else None
        if span is None or split.begin is None or split.end is None:
            continue
        if split.begin < span[0] or split.end > span[1]:
            names[_below(stream, split.path)] = None
    if not names:
        return ()
    message = f"stream {stream.name}: {count(len(names), 'file')} with events outside the time of their folder: "
    return (Diagnostic("HDL-486", message + some(list(names)), _HINT, severity="warning"),)


def _below(stream: Stream, path: str) -> str:
    return path[len(stream.source.path.rstrip("/")) + 1 :]


def _is_inside(file: Arrival, span: tuple[int, int]) -> bool:
    if file.begin is None or file.end is None:
        return False
    return file.begin == file.end or (span[0] <= file.begin and file.end <= span[1])


_HINT = (
    "they count by their own time: late data if that was published; write them into their folder, or leave `exact` out"
)


def _warning(stream: Stream, outside: dict[str, int]) -> tuple[Diagnostic, ...]:
    if not outside:
        return ()
    shown = some([f"{name} ({events:,})" for name, events in sorted(outside.items())])
    message = f"stream {stream.name}: {count(sum(outside.values()), 'event')} outside the time of their folder: {shown}"
    return (Diagnostic("HDL-486", message, _HINT, severity="warning"),)
