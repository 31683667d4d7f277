"""Stored coverage of each synopsis, and the state of its source that it was computed from: the gaps, and what a run
completed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from optimizer.synopses.derivation import amount_of, best_of, given_by
from optimizer.synopses.synopsis import Synopsis, former_of, period_levels
from optimizer.windows.alignment import day_label, day_pieces
from optimizer.workload.instants import FAR_APART
from optimizer.workload.values import Stream
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import (
    DataFile,
    SynopsisFailure,
    is_of_levels,
    read_file,
    write_files,
)
from spark_jobs.store.warehouse.plans import former_streams, recent_plans
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.declared import Declaration, Named
from spark_jobs.streams.sources.splits import ContentName, Split, Tokens
from spark_jobs.windows.partials.fill_request import FillRequest, columns_of_synopsis, partition_of
from spark_jobs.windows.partials.stored_marks import Pieces, StoredMarks

if TYPE_CHECKING:
    from spark_jobs.windows.partials.synopsis_work import SynopsisWork


EVER = -(1 << 62)
"""Before every instant."""


MOST_PIECES = 8
"""Requests that what is missing of a synopsis is cut into at most."""


def uncovered(
    marks: StoredMarks,
    parts: Sequence[SynopsisWork],
    splits: list[Split],
    current: DeltaTable,
    trust: bool = True,
) -> list[FillRequest]:
    """Requests for the missing time of the parts of a stream, for its source as of ``current``. ``trust``: stored rows
    count; if False, everything is requested, in place of whole stored pieces.

    If rows of other synopses of the recent plans give it, or some of its states, the request names them
    (:attr:`FillRequest.stored`); a synopsis then has several requests, one after the other in time.
    """
    if not parts:
        return []
    pieces = pieces_under(marks, parts, current)
    tokens = marks.tokens[parts[0].synopsis.stream]
    missing = [
        (part, gap)
        for part in parts
        for gap in _missing_under(part, pieces.get(part.synopsis.fingerprint, []), splits, trust, tokens)
    ]
    if not trust:
        return [gap for _, gap in missing]
    # what only counts rows has as many groups as the driver can hold: that is found out while it is lifted
    usable = [gap for part, gap in missing if part.queries]
    stored = _stored_runs(marks, current, parts, usable, splits)
    requests: list[FillRequest] = []
    for _, gap in missing:
        requests += _derived(gap, stored, MOST_PIECES) if gap in usable else [gap]
    return requests


Runs = list[tuple[Synopsis, list[tuple[int, int]]]]
"""Synopses with the spans [begin, end) of which all is stored."""


def _stored_runs(
    marks: StoredMarks,
    current: DeltaTable,
    parts: Sequence[SynopsisWork],
    gaps: Sequence[FillRequest],
    splits: list[Split],
) -> Runs:
    """Stored spans, inside the time of the gaps, of the synopses of a stream and of its recent plans, for the
    source as it is now.
    """
    if not gaps:
        return []
    stream, within = gaps[0].synopsis.stream, (min(gap.begin for gap in gaps), max(gap.end for gap in gaps))
    covered = marks.under(current, None, [within], stream)
    synopses = {part.synopsis.fingerprint: part.synopsis for part in parts}
    if covered.keys() - synopses.keys():
        recent = [pair for plan in recent_plans(marks.warehouse) for pair in plan.synopses(stream)]
        formers = (former_of(synopsis, queries) for synopsis, queries in recent)
        synopses |= {form.fingerprint: form for form in chain((synopsis for synopsis, _ in recent), formers)}
    runs: Runs = []
    for synopsis, pieces in ((synopses[name], pieces) for name, pieces in covered.items() if name in synopses):
        known: list[tuple[int, int]] = []
        is_stored = stored_for(synopsis, splits, marks.tokens[stream])
        for first, last, name in pieces:
            if not is_stored(name, first, last):
                continue
            if known and known[-1][1] >= first:
                known[-1] = known[-1][0], max(known[-1][1], last)
            else:
                known.append((first, last))
        runs += [(synopsis, known)] if known else []
    return runs


def _derived(gap: FillRequest, stored: Runs, most: int) -> list[FillRequest]:
    """Split a gap into at most ``most`` requests, one after the other, by the longest spans for which stored rows
    give most.
    """
    best: tuple[tuple[bool, int, int], Synopsis, int, int] | None = None
    for other, runs in stored if most > 1 else ():
        part = given_by(other, gap.synopsis)
        for run in runs if part is not None else ():
            assert part is not None
            begin, end = _within(gap, run)
            worth = amount_of(part) == amount_of(gap.synopsis), amount_of(part), end - begin
            if begin < end and (best is None or worth > best[0]):
                best = worth, other, begin, end
    if best is None:
        return [gap]
    _, other, begin, end = best
    requests = [_completed_by_others(replace(gap, begin=begin, end=end, stored=(other,)), stored)]
    if gap.begin < begin:
        requests = _derived(replace(gap, end=begin), stored, most // 2) + requests
    if end < gap.end:
        requests += _derived(replace(gap, begin=end), stored, most // 2)
    return requests


def _within(gap: FillRequest, run: tuple[int, int]) -> tuple[int, int]:
    """Intersect a gap and a run, from an edge to an edge of the gap's synopsis; empty if the first is not before
    the second.
    """
    fragments, first, last = gap.synopsis.fragments, max(run[0], gap.begin), min(run[1], gap.end)
    if first >= last:
        return first, first
    begin = fragments.last_edge(first)
    return begin if begin == first else fragments.next_edge(first), fragments.last_edge(last)


def _completed_by_others(request: FillRequest, stored: Runs) -> FillRequest:
    """A request that is given something by other synopses, too, as long as those give what nobody has given."""
    span = request.begin, request.end
    covering = [other for other, runs in stored if any(_within(request, run) == span for run in runs)]
    while (best := best_of(covering, (lifted.synopsis for lifted in request.lifted))) is not None:
        request = replace(request, stored=(*request.stored, best))
    return request


def store_coverage(
    warehouse: Warehouse,
    stream: Stream,
    splits: list[Split],
    spans: Sequence[FillRequest],
    files: list[DataFile],
    broken: Mapping[str, SynopsisFailure],
    record: RunRecord,
    still: Callable[[], None] = lambda: None,
    trust: bool = True,
) -> list[FillRequest]:
    """Commit what tasks wrote for some spans, without the synopses that failed; the spans that are stored now.

    The rows that they replace go in the same commit, and the levels above them
    (:mod:`spark_jobs.windows.partials.levels`). ``still``: as of
    :meth:`spark_jobs.store.warehouse.warehouse.Warehouse.replace`. ``trust``: levels of the source as it is now stay,
    which may be all that is stored of their periods.
    """
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
    files += write_files(root, _completed(stream, splits, spans, {file.day for file in files}))
    days = day_label(first), day_label(last - 1)
    are_levels = all(span.synopsis.period is not None for span in spans)

    def untouched(file: dict[str, Any]) -> bool:
        if is_of_levels(file["day"]):
            return bool(file["max.fragment_end"] <= first or file["min.fragment_start"] >= last)
        return are_levels or bool(file["max.fragment_start"] < first or file["min.fragment_start"] >= last)

    # replacing the same cells by the same rows is idempotent by itself: the revision only has to grow
    partitions = days[0][: len("2020")], days[1]
    replaced = _replaced_by(spans, partial(_staying_levels, warehouse, splits, spans) if trust else dict)
    warehouse.replace("partials", files, partitions, replaced, "/".join(days), None, untouched, still=still)
    return list(spans)


def _staying_levels(
    warehouse: Warehouse, splits: list[Split], spans: Sequence[FillRequest]
) -> dict[str, set[tuple[int, int]]]:
    """The periods of the levels above some spans that stay if these are stored, by fingerprint: those of the source as
    it is now; and days whose fragments were dropped, until all of their fragments are stored again."""
    tests: dict[str, Callable[[str, int, int], bool]] = {}
    stored: dict[str, list[tuple[int, int]]] = {}
    tokens: Tokens = {}
    for span in spans:
        for level in period_levels(span.synopsis) if span.synopsis.period is None else ():
            tests[level.fingerprint] = stored_for(level, splits, tokens)
            stored.setdefault(level.fingerprint, []).append((span.begin, span.end))
    staying: dict[str, set[tuple[int, int]]] = {}
    near, current = sorted(chain(*stored.values())), warehouse.table("partials")
    for row in StoredMarks(warehouse).marks(current, sorted(tests), near, are_levels=True):
        name, period = row["fingerprint"], (row["fragment_start"], row["fragment_end"])
        content, *dropped = row["texts"]
        is_complete = any(begin <= period[0] and period[1] <= end for begin, end in stored[name])
        if tests[name](content, *period) or (dropped and not is_complete):
            staying.setdefault(name, set()).add(period)
    return staying


def _replaced_by(
    spans: Sequence[FillRequest], levels_that_stay: Callable[[], Mapping[str, Collection[tuple[int, int]]]]
) -> Callable[[pa.Table], pa.Array]:
    """The test which stored rows are replaced if some spans are stored: those of the fragments inside, and the rows of
    the levels above them, apart from the periods of ``levels_that_stay``."""
    inside: dict[str, list[tuple[int, int]]] = {}
    above: dict[str, list[tuple[int, int]]] = {}
    for span in spans:
        inside.setdefault(span.synopsis.fingerprint, []).append((span.begin, span.end))
        for level in period_levels(span.synopsis) if span.synopsis.period is None else ():
            above.setdefault(level.fingerprint, []).append((span.begin, span.end))
    staying = cache(levels_that_stay)

    def replaced(stored: pa.Table) -> pa.Array:
        encoded = stored["fingerprint"].combine_chunks().dictionary_encode()
        starts, ends = stored["fragment_start"].to_numpy(), stored["fragment_end"].to_numpy()
        is_replaced = np.zeros(len(stored), dtype=bool)
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            if name in inside or name in above:
                rows = np.flatnonzero(encoded.indices.to_numpy() == code)
                for begin, end in inside.get(name, ()):
                    is_replaced[rows] |= (starts[rows] >= begin) & (starts[rows] < end)
                for begin, end in above.get(name, ()):
                    is_replaced[rows] |= (starts[rows] < end) & (ends[rows] > begin)
                if name in above and is_replaced[rows].any():
                    for begin, end in staying().get(name, ()):
                        is_replaced[rows] &= (starts[rows] != begin) | (ends[rows] != end)
        return pa.array(is_replaced)

    return replaced


def _only(root: Place, files: Sequence[DataFile], fingerprints: set[str]) -> list[DataFile]:
    """The files of partial rows without the rows of incomplete synopses."""
    cleaned: list[DataFile] = []
    for file in files:
        rows = read_file(root / file.path)
        remaining = rows.filter(pc.is_in(rows["fingerprint"], pa.array(sorted(fingerprints), pa.string())))
        if len(remaining) == len(rows):
            cleaned.append(file)
            continue
        (root / file.path).remove()
        cleaned += write_files(root, remaining.append_column("day", pa.array([file.day] * len(remaining), pa.string())))
    return cleaned


def _completed(
    stream: Stream, splits: list[Split], spans: Sequence[FillRequest], occupied: Collection[str] | None = None
) -> pa.Table:
    """Rows that mark each span, day by day, as complete, with the content of the source and the declaration it is
    for.

    ``occupied``: the labels of the only days that have partial rows; all days between two of them are one row. A
    row of several days is in the partition of the first, and no partial row is ever inside it: storing some
    replaces it, too. Of a level each period has a row.
    """
    pieces = ((span.synopsis, *piece) for span in spans for piece in _pieces_of(span, occupied))
    return completed_pieces(stream, splits, pieces)


def _pieces_of(span: FillRequest, occupied: Collection[str] | None) -> Iterable[tuple[int, int]]:
    if span.synopsis.period is not None:
        return span.synopsis.fragments.inside(span.begin, span.end)
    return day_pieces(span.begin, span.end, occupied)


def completed_pieces(stream: Stream, splits: list[Split], pieces: Iterable[tuple[Synopsis, int, int]]) -> pa.Table:
    """Rows that mark pieces [begin, end) of synopses as complete, for the source and its declaration as of now."""
    names: dict[Synopsis, ContentName] = {}
    rows = []
    for synopsis, first, last in pieces:
        if synopsis not in names:
            names[synopsis] = content_name(synopsis, splits)
        name = names[synopsis].of(_first_read(synopsis, first), last)
        mark: dict[str, Any] = {
            "day": partition_of(synopsis, first),
            "stream": stream.name,
            "fingerprint": synopsis.fingerprint,
        }
        mark |= {"fragment_start": first, "fragment_end": last}
        rows.append(mark | {"key": None, "shard": None, "bucket": -1, "longs": [], "doubles": [], "texts": [name]})
    return pa.Table.from_pylist(rows, schema=PARTIALS)


def content_name(synopsis: Synopsis, splits: list[Split], tokens: Tokens | None = None) -> ContentName:
    """The name of the stored rows of a synopsis."""
    return ContentName(splits, _columns_declared(synopsis), tokens)


def _columns_declared(synopsis: Synopsis) -> list[str] | None:
    """The columns whose declaration decides the rows of a synopsis; None: all columns of the stream."""
    return None if synopsis.kind.reads_every_column else sorted(columns_of_synopsis(synopsis))


def named_as_declared(warehouse: Warehouse, stream: Stream, synopsis: Synopsis) -> Named:
    """The declaration of the columns of a synopsis, which distinguishes its stored rows by name."""
    return Declaration(stream, partial(former_streams, warehouse, stream.name)).of(_columns_declared(synopsis))


def _first_read(synopsis: Synopsis, begin: int) -> int:
    """The time from which events decide its rows of [begin, end): row numbers depend on all earlier rows."""
    return EVER if synopsis.kind.reads_from_first else begin


def stored_for(
    synopsis: Synopsis, splits: list[Split], tokens: Tokens | None = None
) -> Callable[[str, int, int], bool]:
    """Return the test whether a piece [begin, end) stored under a name matches the source and its declaration as of
    now.
    """
    name = content_name(synopsis, splits, tokens)
    return lambda stored, begin, end: name.is_of(stored, _first_read(synopsis, begin), end)


def named_for(synopsis: Synopsis, splits: list[Split], stream: Stream) -> Callable[[int, int, str], bool]:
    """Return the test whether a complete piece (:func:`coverage`) was computed from the source as it is now, with the
    declaration of a ``stream``: of the same one, with other versions of its dimensions.
    """
    declared = [replace(split, declared=Declaration(stream)) for split in splits[:1]]
    is_stored = stored_for(synopsis, [*declared, *splits[1:]])
    return lambda begin, end, name: is_stored(name, begin, end)


def is_current(synopsis: Synopsis, splits: list[Split], piece: tuple[int, int, str]) -> bool:
    """Return whether a complete piece (:func:`coverage`) was computed from the source as it is now."""
    first, last, name = piece
    return stored_for(synopsis, splits)(name, first, last)


def span_of(parts: Sequence[SynopsisWork]) -> tuple[int, int]:
    """The least span [begin, end) that holds those of all parts."""
    return min((part.begin for part in parts), default=0), max((part.end for part in parts), default=0)


def coverage(
    warehouse: Warehouse,
    fingerprints: list[str] | None,
    within: tuple[int, int] | None = None,
    stream: str | None = None,
) -> Pieces:
    """Complete pieces of each synopsis (``fingerprints`` None: of all of a ``stream``) as of now; those that overlap a
    span [begin, end), if one is given."""
    spans = None if within is None else [within]
    return StoredMarks(warehouse).under(warehouse.table("partials"), fingerprints, spans, stream)


def pieces_under(marks: StoredMarks, parts: Sequence[SynopsisWork], current: DeltaTable) -> Pieces:
    """Complete pieces under the fragments that some work needs."""
    fingerprints = sorted({part.synopsis.fingerprint for part in parts})
    return marks.under(current, fingerprints, [span for part in parts for span in part.fine])


def _missing_under(
    part: SynopsisWork, pieces: list[tuple[int, int, str]], splits: list[Split], trust: bool, tokens: Tokens
) -> list[FillRequest]:
    """Requests as of :func:`missing_spans` for the spans of which a part needs fragments. They do not overlap: a piece
    may reach over levels from one span to the next."""
    requests: list[FillRequest] = []
    gaps = [gap for span in part.fine for gap in missing_spans(part.over(*span), pieces, splits, trust, tokens)]
    for gap in sorted(gaps, key=lambda gap: gap.begin):
        if requests and gap.begin < requests[-1].end:
            gap = replace(gap, begin=requests[-1].begin, end=max(requests.pop().end, gap.end))
        requests.append(gap)
    return requests


def missing_spans(
    part: SynopsisWork,
    pieces: list[tuple[int, int, str]],
    splits: list[Split],
    trust: bool = True,
    tokens: Tokens | None = None,
) -> list[FillRequest]:
    """Requests for the missing time of [begin, end), for the source as it is now, widened to whole pieces: usually
    one request, several if more than :data:`optimizer.workload.instants.FAR_APART` between them is stored.
    ``trust``: stored rows count.
    """
    is_stored = stored_for(part.synopsis, splits, tokens)
    valid = [piece for piece in pieces if trust and is_stored(piece[2], piece[0], piece[1])]
    gaps, at = [], part.begin
    for first, last, _ in valid:
        if last <= at or first >= part.end:
            continue
        if first > at:
            gaps.append((at, first))
        at = last
    if at < part.end:
        gaps.append((at, part.end))
    spans: list[tuple[int, int]] = []
    for begin, end in gaps:
        for first, last, _ in pieces:
            if first < end and last > begin:
                begin, end = min(begin, first), max(end, last)
        if spans and begin - spans[-1][1] <= FAR_APART:
            begin = spans.pop()[0]
        spans.append((begin, end))
    return [FillRequest(part.synopsis, begin, end) for begin, end in spans]
