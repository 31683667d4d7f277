"""Events that repeat an ``event_id`` within a day: which are the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from optimizer.workload.instants import DAY
from optimizer.workload.values import Stream, digest
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.declared import Declaration
from spark_jobs.streams.sources.decoding import inside, read_split
from spark_jobs.streams.sources.ledger import REPEATED, REPEATS
from spark_jobs.streams.sources.splits import Split


def distinct(
    warehouse: Warehouse, stream: Stream, splits: list[Split], begin: int, end: int, trust: bool = True
) -> list[Split]:
    """Splits with the repeated events in [begin, end), for streams with an ``event_id``; other splits do not change.
    ``trust``: earlier results count. Raises what reading raises.
    """
    if stream.event_id is None:
        return splits
    # what does not say which times it holds is read once for all of them
    groups, is_known = [(-(1 << 62), 1 << 62, list(range(len(splits))))], False
    if all(split.begin is not None and split.end is not None for split in splits):
        groups, is_known = _groups(splits, begin // DAY * DAY, -(-end // DAY) * DAY), True
    without_repeats = list(splits)
    for first, last, numbers in groups:
        path = _repeated(warehouse, stream, [splits[number] for number in numbers], first, last, trust)
        with Place.of(path).open() as file:
            rows = pq.read_table(file)
        # most splits repeat nothing: nothing is attached to those
        for place in np.unique(rows["split"].to_numpy()):
            split, repeats = without_repeats[numbers[place]], rows.filter(pc.equal(rows["split"], place))
            lacking = _by_day(repeats, first, last) if is_known else [(first, last, _digest(repeats))]
            without_repeats[numbers[place]] = replace(
                split,
                repeated=(*split.repeated, f"{path}#{place}"),
                lacking=(*split.lacking, *lacking),
            )
    return without_repeats


def _groups(splits: Sequence[Split], begin: int, end: int) -> list[tuple[int, int, list[int]]]:
    """Divide [begin, end), both midnights, into spans [first, last) of complete days on which the same splits may have
    events, with the numbers of these splits. At most four spans a split, however long the time between its first and
    last event.
    """
    edges = {begin, end}
    for split in splits:
        bounds = [at for span in split.spans for at in span if at is not None]
        edges.update(edge for at in bounds for edge in (at // DAY * DAY, -(-at // DAY) * DAY))
    groups = []
    for first, last in pairwise(sorted(at for at in edges if begin <= at <= end)):
        numbers = [number for number, split in enumerate(splits) if split.may_hold(first, last)]
        groups += [(first, last, numbers)] if numbers else []
    return groups


def _digest(repeats: pa.Table) -> str:
    return digest(repeats["row"].to_pylist())


def _by_day(repeats: pa.Table, first: int, last: int) -> list[tuple[int, int, str]]:
    """A hash of the rows that a split repeats, for each day of [first, last) on which it does."""
    if last - first == DAY:  # what an earlier Heddle kept of a day does not say of which
        return [(first, last, _digest(repeats))]
    days = pc.unique(repeats["day"]).sort().to_pylist()
    return [(day * DAY, (day + 1) * DAY, _digest(repeats.filter(pc.equal(repeats["day"], day)))) for day in days]


def _repeated(warehouse: Warehouse, stream: Stream, splits: Sequence[Split], begin: int, end: int, trust: bool) -> str:
    """The file with the rows of some splits that repeat an earlier event of [begin, end): their ``split`` (its place in
    the list) and ``row``, both ascending. Created once for the same content under the same declaration of the event id
    and the event time.
    """
    assert stream.event_id is not None
    content = [[split.identity, split.row_groups, split.refused] for split in splits]
    declaration = (splits[0].declared if splits else None) or Declaration(stream)
    events = declaration.of([stream.event_id])
    kind = [stream.name, stream.event_id, begin, end, content]
    folder = warehouse.place / REPEATED
    file = folder / f"{digest([*kind, events.digest])}.parquet"
    stored_file = file.info() if trust else None
    if stored_file is None and trust and (former := folder / f"{digest(kind)}.parquet").exists() and events.is_former:
        file, stored_file = former, former.info()
    if stored_file is not None:
        file.touch(stored_file)  # maintenance leaves it
        return str(file)
    tables = []
    for place, split in enumerate(splits):
        seen = 0
        # as the file has them: rows are counted from its first
        for batch in read_split(stream, replace(split, refused=(), repeated=()), [stream.event_id]):
            times = pc.fill_null(batch.column(stream.time).cast(pa.int64()), -(1 << 62)).to_numpy(zero_copy_only=False)
            stored_file = (times >= begin) & (times < end) & (times > -(1 << 62)) & ~inside(times, split.refused)
            stored_file &= batch.column(stream.event_id).is_valid().to_numpy(zero_copy_only=False)
            places = np.flatnonzero(stored_file)
            tables.append(
                pa.table(
                    {
                        "id": batch.column(stream.event_id).take(pa.array(places)),
                        "day": times[places] // DAY,
                        "split": np.full(len(places), place, dtype=np.int32),
                        "row": places + seen,
                    }
                )
            )
            seen += batch.num_rows
    repeats = REPEATS.empty_table()
    if tables:
        events = pa.concat_tables(tables)
        events = events.append_column("number", pa.array(np.arange(len(events))))
        firsts = events.group_by(["id", "day"], use_threads=False).aggregate([("number", "min")])["number_min"]
        again = np.ones(len(events), dtype=bool)
        again[firsts.to_numpy()] = False
        repeats = events.filter(pa.array(again)).select(REPEATS.names).cast(REPEATS)
    sink = pa.BufferOutputStream()
    pq.write_table(repeats, sink)
    file.put(sink.getvalue().to_pybytes())
    return str(file)


def forget(warehouse: Warehouse, before: float, dry_run: bool) -> int:
    """Remove results of :func:`distinct` that were not used since a moment (seconds); return the number of files."""
    folder = warehouse.place / REPEATED
    old = [file for file in folder.listed() if file.modified < before * 1e6]
    for file in old:
        if not dry_run:
            (folder / file.name).remove()
    return len(old)
