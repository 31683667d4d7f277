"""Answers over event sequences from stored rows, without tasks and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.values import ACQ
from spark_jobs.windows.sequences.answers import answered, lowered
from spark_jobs.windows.sequences.encoding import decoded


def finals_of_sequences(
    partials: pa.Table, synopsis: Synopsis, queries: Sequence[ACQ], begin: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Answers of queries of one synopsis for the instants in (begin, end]; ``partials`` are rows of complete groups."""
    by_name = {query.name: query for query in queries}
    if len(partials):
        for rolled in answered(synopsis, queries, decoded(synopsis, partials), begin, end):
            for _, rows in lowered(by_name[rolled.query], synopsis, rolled):
                yield rows.rows()
