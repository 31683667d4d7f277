"""What of each synopsis is stored, and for which state of its source: the gaps, and what a run completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import day_label, day_pieces
from optimizer.workload.values import Stream, WindowKind
from spark_jobs.partials.fill_request import FillRequest
from spark_jobs.sources.splits import Split, snapshot_token
from spark_jobs.storage import Place
from spark_jobs.warehouse.data_files import CHECKED, DataFile, SynopsisFailure, read_file, reading, write_files
from spark_jobs.warehouse.publish_log import RunRecord
from spark_jobs.warehouse.schemas import PARTIALS
from spark_jobs.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from spark_jobs.partials.synopsis_work import SynopsisWork


EVER = -(1 << 62)
"""Before every instant."""


def uncovered(warehouse: Warehouse, parts: Sequence[SynopsisWork], splits: list[Split]) -> list[FillRequest]:
    """What is not stored of the parts of a stream for its source as it is now."""
    pieces = coverage(warehouse, [part.synopsis.fingerprint for part in parts], None, span_of(parts))
    gaps = (missing_span(part, pieces.get(part.synopsis.fingerprint, []), splits) for part in parts)
    return [gap for gap in gaps if gap is not None]


def store_coverage(
    warehouse: Warehouse,
    stream: Stream,
    splits: list[Split],
    spans: Sequence[FillRequest],
    files: list[DataFile],
    broken: Mapping[str, SynopsisFailure],
    record: RunRecord,
) -> list[FillRequest]:
    """Commit what tasks wrote for some spans, without the synopses that failed; the spans that are stored now."""
    root = warehouse.path("partials")
    if broken:
        spans = [span for span in spans if span.synopsis.fingerprint not in broken]
        files = _only(Place.of(root), files, {span.synopsis.fingerprint for span in spans})
    if not spans:
        return []
    first, last = min(span.begin for span in spans), max(span.end for span in spans)
    written = sum(file.rows for file in files)
    record.partials_written += written
    record.features["partial_rows_written"] += written
    files += write_files(root, _completed(stream, splits, spans))
    begins = {span.synopsis.fingerprint: span.begin for span in spans}
    ends = {span.synopsis.fingerprint: span.end for span in spans}

    def replaced(stored: pa.Table) -> pa.Array:
        encoded = stored["fingerprint"].combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        # a synopsis that this run does not fill loses no row: its span is empty
        low = pa.array([begins.get(name, 0) for name in names], pa.int64()).take(encoded.indices)
        high = pa.array([ends.get(name, 0) for name in names], pa.int64()).take(encoded.indices)
        starts = stored["fragment_start"]
        return pc.and_(pc.greater_equal(starts, low), pc.less(starts, high))

    def untouched(file: dict[str, Any]) -> bool:
        return bool(file["max.fragment_start"] < first or file["min.fragment_start"] >= last)

    days = day_label(first), day_label(last - 1)
    # replacing the same cells by the same rows is idempotent by itself: the revision only has to grow
    warehouse.replace("partials", files, days, replaced, "/".join(days), None, untouched)
    return list(spans)


def _only(root: Place, files: Sequence[DataFile], fingerprints: set[str]) -> list[DataFile]:
    """The files of partial rows without those of synopses that are not whole."""
    found: list[DataFile] = []
    for file in files:
        rows = read_file(root / file.path)
        kept = rows.filter(pc.is_in(rows["fingerprint"], pa.array(sorted(fingerprints), pa.string())))
        if len(kept) == len(rows):
            found.append(file)
            continue
        (root / file.path).remove()
        found += write_files(root, kept.append_column("day", pa.array([file.day] * len(kept), pa.string())))
    return found


def _completed(stream: Stream, splits: list[Split], spans: Sequence[FillRequest]) -> pa.Table:
    """Rows that say of each span, day by day, that it is complete, and for which content of the source."""
    rows = [
        {
            "day": day_label(first),
            "stream": stream.name,
            "fingerprint": span.synopsis.fingerprint,
            "fragment_start": first,
            "fragment_end": last,
            "key": None,
            "shard": None,
            "bucket": -1,
            "longs": [],
            "doubles": [],
            "texts": [_token(span.synopsis, splits, first, last)],
        }
        for span in spans
        for first, last in day_pieces(span.begin, span.end)
    ]
    return pa.Table.from_pylist(rows, schema=PARTIALS)


def _token(synopsis: Synopsis, splits: list[Split], begin: int, end: int) -> str:
    """The state of what the partial aggregates of [begin, end) come from: row numbers from all that is before, too."""
    return snapshot_token(splits, EVER if synopsis.kind is WindowKind.ROWS else begin, end)


def span_of(parts: Sequence[SynopsisWork]) -> tuple[int, int]:
    """The least span [begin, end) that holds those of all parts."""
    return min((part.begin for part in parts), default=0), max((part.end for part in parts), default=0)


def coverage(
    warehouse: Warehouse,
    fingerprints: list[str],
    current: DeltaTable | None = None,
    within: tuple[int, int] | None = None,
) -> dict[str, list[tuple[int, int, str]]]:
    """Complete pieces [begin, end) of each synopsis with the token of the source they were computed from; those that
    overlap a span, if one is given."""
    if not fingerprints:
        return {}
    chosen = ds.field("key").is_null() & ds.field("fingerprint").isin(fingerprints)
    if within is not None:
        begin, end = within
        chosen &= (ds.field("day") >= day_label(begin)) & (ds.field("day") <= day_label(end))
        # files of other runs of these days are passed over
        chosen &= (ds.field("fragment_start") < end) & (ds.field("fragment_end") > begin)
    with reading(warehouse.path("partials")):
        found = warehouse.dataset("partials", current, chosen).to_table(
            columns=["fingerprint", "fragment_start", "fragment_end", "texts"],
            filter=chosen,
            fragment_scan_options=CHECKED,
        )
    pieces: dict[str, list[tuple[int, int, str]]] = {}
    for row in found.to_pylist():
        piece = (row["fragment_start"], row["fragment_end"], row["texts"][0])
        pieces.setdefault(row["fingerprint"], []).append(piece)
    return {fingerprint: sorted(found) for fingerprint, found in pieces.items()}


def missing_span(part: SynopsisWork, pieces: list[tuple[int, int, str]], splits: list[Split]) -> FillRequest | None:
    """What of [begin, end) is not stored for the source as it is now, widened to whole pieces; None if nothing."""
    valid = [piece for piece in pieces if piece[2] == _token(part.synopsis, splits, piece[0], piece[1])]
    gaps, at = [], part.begin
    for first, last, _ in valid:
        if last <= at or first >= part.end:
            continue
        if first > at:
            gaps.append((at, first))
        at = max(at, last)
    if at < part.end:
        gaps.append((at, part.end))
    if not gaps:
        return None
    begin, end = gaps[0][0], gaps[-1][1]
    for first, last, _ in pieces:
        if first < end and last > begin:
            begin, end = min(begin, first), max(end, last)
    return FillRequest(part.synopsis, begin, end)
