"""Events with attributes: as runs look them up, and as the audit joins them, they are those of a join by DuckDB."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from optimizer.workload.values import Stream
from spark_jobs.audit.unshared.duckdb_files import events_of
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.dimensions import pinned_stream
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.files import splits_of
from tests.joined_cases import (
    FORMATS,
    JoinedCase,
    as_read,
    in_order,
    joined_cases,
    joined_events,
    with_stored_dimensions,
)
from tests.sizes import examples
from tests.spark_jobs.case_runs import stored


def looked_up(stream: Stream, names: list[str], encoded: list[str]) -> pa.Table:
    """Columns of all events as a run reads them."""
    schema = pa.schema([(name, arrow_type(stream.types[name])) for name in names])
    batches = [
        batch.select(names).cast(schema)
        for split in splits_of(stream)
        for batch in read_split(stream, split, names, encoded)
    ]
    return pa.Table.from_batches(batches, schema)


FEW = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes
)


@settings(FEW, max_examples=examples(25))
@given(joined=joined_cases(most_queries=1, most_events=40), data=st.data())
def test_attributes_are_those_of_a_join(tmp_path: Path, joined: JoinedCase, data: st.DataObject) -> None:
    folder = Path(mkdtemp(dir=tmp_path))
    formats = data.draw(st.lists(st.sampled_from(FORMATS), min_size=1, max_size=2))
    joined = with_stored_dimensions(joined, folder / "dimensions", formats)
    stream = stored(joined.case, folder / "source", "parquet").stream
    names = []
    for name, attribute in joined.joins.items():
        columns = [column for column, _ in stream.dimension(attribute.dimension).schema]
        some = data.draw(st.lists(st.sampled_from(columns), max_size=4, unique=True))
        names += [
            *([name] if data.draw(st.booleans()) else []),
            *(attribute._replace(column=each).name for each in some),
        ]
    names = ["ts", *names]
    pinned = pinned_stream(stream, names)
    expected: Any = joined_events(joined)
    texts = [name for name in names if data.draw(st.booleans())]
    assert in_order(looked_up(pinned, names, texts)) == in_order(as_read(expected.select(names), pinned))
    span = (joined.case.begin - 10**15, joined.case.end + 10**15)
    timed = expected.filter(expected["ts"].is_valid()).select(names)
    assert in_order(events_of(pinned, splits_of(pinned), names, [span])) == in_order(as_read(timed, pinned))
