"""Days of a stream whose fine partial aggregates were dropped, because levels cover them.

The owner of a stream says how long the rows of fragments are kept (``levels: {keep_fine: 90 days}``); ``heddle
maintain`` drops older ones of days that a level has
(:mod:`spark_jobs.operations.fine_partials`). The mark of the day's level then has a second text, a :class:`DroppedDay`.
A run that needs fragments of such a day lifts them again from the events. If files have gone since then, their events
are in the level alone: what has to be lifted is refused (HDL-618), because it would be answered without them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from deltalake import DeltaTable

from optimizer.windows.alignment import day_label
from spark_jobs.store.warehouse.data_files import SynopsisFailure
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.arrivals import Arrival
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.stored_marks import StoredMarks

if TYPE_CHECKING:
    from spark_jobs.streams.sources.ledger import Ledger

GONE = "HDL-618"
"""Code of what cannot be lifted again because files are gone."""

ANSWER_WITHOUT = "put the files back; or `heddle run --recompute` answers from the files that there are"
"""What to do about it."""


class DroppedDay(NamedTuple):
    """A day [begin, end) of a synopsis whose fragments were dropped: ``rows`` rows of about ``bytes`` bytes.

    ``seen``: the newest entry of the stream's ledger at that time (microseconds), of which the level is.
    """

    begin: int
    end: int
    seen: int
    rows: int
    bytes: int

    def text(self) -> str:
        """The text of the level's mark."""
        return json.dumps({"seen": self.seen, "rows": self.rows, "bytes": self.bytes})

    @classmethod
    def read(cls, begin: int, end: int, text: str) -> DroppedDay:
        """The day of a level's mark, of its second text."""
        return cls(begin, end, **json.loads(text))


def dropped_days(
    warehouse: Warehouse,
    stream: str,
    spans: Sequence[tuple[int, int]] | None = None,
    current: DeltaTable | None = None,
) -> list[DroppedDay]:
    """The days of a stream that overlap some spans [begin, end) (None: all) and whose fragments were dropped: one of
    each synopsis."""
    current = warehouse.table("partials") if current is None else current
    marks = StoredMarks(warehouse).marks(current, None, spans, stream, are_levels=True)
    return [
        DroppedDay.read(mark["fragment_start"], mark["fragment_end"], mark["texts"][1])
        for mark in marks
        if len(mark["texts"]) > 1
    ]


def cannot_be_lifted(
    warehouse: Warehouse, stream: str, requests: Sequence[FillRequest], ledger: Ledger
) -> dict[str, SynopsisFailure]:
    """The synopses that some requests cannot fill from events, by fingerprint: files of a dropped day are gone since
    its fragments were dropped, and no other file came in their place."""
    days: dict[tuple[int, int], int] = {}
    for day in dropped_days(warehouse, stream, sorted({(request.begin, request.end) for request in requests})):
        span = day.begin, day.end
        days[span] = max(day.seen, days.get(span, day.seen))
    if not days:
        return {}
    noted = ledger.since(min(days.values()))
    missing = [file for file in noted if not file.is_here]
    lost = {seen: [file for file in missing if _is_lost(file, noted, seen)] for seen in set(days.values())}
    failures: dict[str, SynopsisFailure] = {}
    for (begin, end), seen in sorted(days.items()):
        path = next((file.path for file in lost[seen] if file.meets(begin, end)), None)
        for request in requests if path is not None else ():
            if request.begin < end and request.end > begin:
                message = (
                    f"stream {stream}: fragments of {day_label(begin)} are needed again, they were dropped "
                    f"(levels: keep_fine), and {path} is gone"
                )
                name = request.filled.fingerprint
                failures.setdefault(name, SynopsisFailure(name, GONE, message))
    return failures


def _is_lost(file: Arrival, noted: Sequence[Arrival], seen: int) -> bool:
    """Return whether a missing file had events of before a moment and has no other in its place. ``noted``: all files
    that came or went since then."""
    if file.noted <= seen or _is_replaced(file, file.noted, noted, False):
        return False
    before = [move for move in file.moves if move.noted <= seen]
    was_here = bool(before) and max(before, key=lambda move: move.noted).event != "gone"
    # a file that came later has events of before if it took the place of another
    return was_here or any(_is_replaced(file, move.noted, noted, True) for move in file.moves if move.noted > seen)


def _is_replaced(file: Arrival, moment: int, noted: Sequence[Arrival], is_gone: bool) -> bool:
    """Return whether another file of the same times came, or went (``is_gone``), at the moment of a file's move."""
    return any(
        other.identity != file.identity
        and other.meets(file.begin, file.end)
        and any((move.event == "gone") == is_gone and move.noted == moment for move in other.moves)
        for other in noted
    )
