"""Events of the interval that a run publishes, for the expectations of their stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from optimizer.errors.diagnostics import printable
from optimizer.errors.redaction import redacted
from optimizer.workload.expectations import Expectation
from optimizer.workload.values import Stream, columns_of
from spark_jobs.audit.checks.expected import ExpectationRequest
from spark_jobs.pipeline.run.values import FilledRun, Run
from spark_jobs.streams.sources.decoding import inside, read_split, times_of
from spark_jobs.streams.sources.expressions import arrow_type

MOST_EVENTS = 1_000_000
"""Events of an interval that are judged, about: of more, every second or third, and so on."""


@dataclass(frozen=True)
class StreamEvents:
    """Events of a ``stream``, and the requests to judge them. ``sampled``: which of them are judged, "" for all."""

    stream: Stream
    rows: pa.Table
    requests: tuple[ExpectationRequest, ...]
    sampled: str = ""

    def shown(self, place: int, expectation: Expectation) -> str:
        """An event as a text: its time and the columns of an expectation."""
        names = dict.fromkeys((self.stream.time, *expectation.columns, *columns_of(expectation.where)))
        values = ((name, self.rows[name][place].as_py()) for name in names if name in self.rows.schema.names)
        return printable(redacted(", ".join(f"{name}={value}" for name, value in values)), 200)


def stream_requests(run: Run, filled: FilledRun) -> list[StreamEvents]:
    """The events of all streams of a run of which something is expected."""
    return [
        _events(run, filled, stream)
        for stream in filled.narrowed.workload.streams
        if stream.expect and stream.name in filled.sources
    ]


def _events(run: Run, filled: FilledRun, stream: Stream) -> StreamEvents:
    begin, end = run.record.begin, filled.ends[stream.name]
    names = {name for each in stream.expect for name in (*each.columns, *columns_of(each.where))}
    columns = sorted(names - {stream.time})
    splits = [split for split in filled.sources[stream.name] if split.may_hold(begin, end)]
    step = max(1, round(sum(split.rows_about() for split in splits) / MOST_EVENTS))
    schema = dict(stream.schema)
    target = pa.schema([(name, arrow_type(schema[name])) for name in sorted({*names, stream.time} & schema.keys())])
    pieces, seen = [target.empty_table()], 0
    for split in splits:
        for batch in read_split(stream, split, columns):
            times, timed, _ = times_of(batch, stream)
            rows = pa.Table.from_batches([timed.filter(pa.array(inside(times, [(begin, end)])))])
            places = np.arange(-seen % step, len(rows), step)
            seen += len(rows)
            pieces.append(rows.select(target.names).take(pa.array(places)).cast(target))
    rows = pa.concat_tables(pieces).combine_chunks()
    requests = tuple(
        ExpectationRequest(stream.name, each, rows, schema, clock=run.request.clock) for each in stream.expect
    )
    return StreamEvents(stream, rows, requests, f"1 of {step} events is judged" if step > 1 else "")
