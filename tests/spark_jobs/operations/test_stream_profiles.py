"""The times of a stream's events, of the first files only where there are very many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.operations import stream_profiles
from spark_jobs.operations.stream_profiles import _times

STREAM: Any = SimpleNamespace(time="ts")


def split(rows: int | None) -> Any:
    return SimpleNamespace(rows=rows, path="a.csv", begin=None, end=None, bytes_about=lambda: 10)


@pytest.mark.parametrize(
    ("rows", "most", "read", "total"),
    [([], 9, 0, 0), ([2], 9, 2, 2), ([2, 2], 4, 4, 4), ([2, 2, 5], 3, 2, 9), ([2, None], 9, 4, 4)],
)
def test_rows_of_files_count_whether_they_are_read_or_not(
    rows: list[int | None], most: int, read: int, total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = pa.record_batch({"ts": pa.array([1, 2], pa.timestamp("us"))})
    monkeypatch.setattr(stream_profiles, "read_split", lambda stream, split, columns: [batch])
    monkeypatch.setattr(stream_profiles, "MOST_ROWS", most)
    times = _times(STREAM, [split(each) for each in rows])
    assert (len(times.times), times.rows) == (read, total)
