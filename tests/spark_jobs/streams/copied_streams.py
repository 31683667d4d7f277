"""Streams of copied sources, and what runs read of them."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

from optimizer.workload.streams import load_streams
from optimizer.workload.values import Stream
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.files import splits_of
from tests.spark_jobs.laboratory import DAY, MINUTE

SCHEMA = "{ts: timestamp, symbol: string, price: double, volume: long}"
LATER = DAY + 400 * MINUTE
"""The clock."""


def stream_of(folder: Path, source: str, more: str = "", schema: str = f", schema: {SCHEMA}") -> Stream:
    """The stream trades of a source as streams.yaml has it."""
    file = folder / f"{uuid.uuid4().hex}.yaml"
    file.write_text(f"streams: {{trades: {{source: {source}, time: ts{more}{schema}}}}}")
    streams, problems = load_streams(file, None, str(folder / "copies"))
    assert not problems, problems
    return streams["trades"]


def rows_of(stream: Stream) -> Counter[str]:
    """What runs read of a stream now, in whatever order."""
    columns = [name for name, _ in stream.schema]
    batches = [batch for split in splits_of(stream) for batch in read_split(stream, split, columns)]
    return Counter(repr(sorted(row.items())) for batch in batches for row in batch.to_pylist())
