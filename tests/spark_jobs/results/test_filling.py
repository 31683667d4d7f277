"""Series without gaps: a row for each group at every published instant."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload, decimal
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.filling import filled
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos.orders import in_process
from tests.in_process import heddle
from tests.sizes import examples
from tests.spark_jobs.kernels import FAST

HOUR = 3600 * SECOND
SCHEMA = (("ts", TIMESTAMP), ("k", STRING), ("v", LONG), ("d", DOUBLE), ("fee", decimal(6, 2)))
Event = tuple[int, str | None, int]
"""(hour and a bit, key, value)"""

QUERIES = {
    "plain": "SELECT k, sum(v) AS total, avg(d) AS mean, sum(fee) AS fees, max(k) AS most, count(*) AS n FROM s "
    "WINDOW RANGE '{range} hours' SLIDE '{slide} hours' ON ts GROUP BY k",
    "all": "SELECT count(*) AS n, min(v) AS low FROM s WINDOW RANGE '{range} hours' SLIDE '{slide} hours' ON ts",
    "before": "SELECT k, count(*) AS n FROM s "
    "WINDOW RANGE '{range} hours' SLIDE '{slide} hours' ENDING '3 hours' AGO ON ts GROUP BY k",
}
HAVING = "SELECT k, count(*) AS n FROM s WINDOW RANGE '1 hour' ON ts GROUP BY k HAVING count(*) > 1"


def warehouse_of(folder: Path, text: str, events: Sequence[Event], spans: Sequence[tuple[int, int]]) -> Warehouse:
    """A warehouse with the answers of some spans of hours."""
    columns: list[list[Any]] = [
        [hour * HOUR // 2 for hour, _, _ in events],
        [key for _, key, _ in events],
        [value for _, _, value in events],
        [value / 2 for _, _, value in events],
        [Decimal(value) for _, _, value in events],
    ]
    types = [pa.timestamp("us", "UTC"), pa.string(), pa.int64(), pa.float64(), pa.decimal128(6, 2)]
    arrays = [pa.array(column, type) for column, type in zip(columns, types, strict=True)]
    (folder / "s").mkdir()
    pq.write_table(pa.table(arrays, names=[name for name, _ in SCHEMA]), folder / "s" / "1.parquet")
    stream = Stream("s", Source("parquet", str(folder / "s")), SCHEMA, "ts")
    parsed = parse(f"-- name: q\n{text}", {"s": stream})
    house = Warehouse.open(folder / "house")
    plan = build_plan(Workload(parsed.queries, (stream,)), {"s": Fraction(1)}, "weave-share")
    version, _ = publish_plan(house, plan)
    for begin, end in spans:
        run(in_process(), house, version, begin * HOUR, end * HOUR, f"run {begin}", checks="none")
    return house


def hours(column: pa.ChunkedArray) -> list[int]:
    return pc.divide(pc.cast(column, pa.int64()), HOUR).to_pylist()


@settings(FAST, max_examples=examples(25))
@given(
    st.sampled_from(sorted(QUERIES)),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(("a", "b", None)), st.integers(0, 9)), max_size=25),
    st.integers(1, 4),
    st.integers(1, 3),
    st.tuples(st.integers(0, 5), st.integers(1, 12), st.integers(0, 6), st.integers(1, 12)),
    st.none() | st.integers(0, 20),
)
def test_every_group_has_a_row_at_every_published_instant(
    kind: str, events: list[Event], range_: int, slide: int, cuts: tuple[int, ...], since: int | None
) -> None:
    first, size, pause, other = cuts
    spans = [(first, first + size), (first + size + pause, first + size + pause + other)]
    text = QUERIES[kind].format(range=range_ * slide, slide=slide)
    ago = 3 if kind == "before" else 0
    with tempfile.TemporaryDirectory() as folder:
        house = warehouse_of(Path(folder), text, events, spans)
        begin = None if since is None else since * HOUR
        answers = read(house, "q", begin)
        table = filled(house, "q", answers, Decimal(7), begin, None)
    names = ["k"] if kind != "all" else []
    groups = {tuple(row.values()) for row in answers.select(names).to_pylist()} or (set() if names else {()})
    due = [
        at
        for low, high in spans
        for at in range(low + 1, high + 1)
        if at % slide == 0 and (since is None or at > since)
    ]
    expected = sorted(((at - ago, key) for at in due for key in groups), key=repr)
    keys = [tuple(row.values()) for row in table.select(names).to_pylist()] if names else [()] * len(table)
    assert sorted(zip(hours(table["window_end"]), keys, strict=True), key=repr) == expected
    # what was answered is as it was, and the rest is filled
    rows, known = table.to_pylist(), answers.to_pylist()
    assert [row for row in rows if row in known] == known
    for row in rows:
        if row not in known:
            numbers = [row[name] for name in ("total", "mean", "fees", "n", "low") if name in row]
            assert set(numbers) == {7} and row.get("most") is None
            assert row["window_end"] - row["window_start"] == timedelta(hours=range_ * slide)


def test_a_missing_row_of_having_is_not_filled(tmp_path: Path) -> None:
    house = warehouse_of(tmp_path, HAVING, [(1, "a", 1)], [(0, 3)])
    with pytest.raises(HeddleError, match=r"HDL-549.*HAVING"):
        filled(house, "q", read(house, "q"), Decimal(0), None, None)


@pytest.mark.parametrize("value", ["0.5", "1e30"])
def test_numbers_that_a_column_cannot_hold_are_refused(tmp_path: Path, value: str) -> None:
    text = QUERIES["plain"].format(range=1, slide=1)
    house = warehouse_of(tmp_path, text, [(1, "a", 1), (5, "b", 2)], [(0, 6)])
    with pytest.raises(HeddleError, match="HDL-549 the column total"):
        filled(house, "q", read(house, "q"), Decimal(value), None, None)


def test_the_command_fills(tmp_path: Path) -> None:
    warehouse_of(tmp_path, QUERIES["all"].format(range=1, slide=1), [(1, "a", 1), (5, "b", 2)], [(0, 4)])
    result = heddle("read", "q", "--warehouse", str(tmp_path / "house"), "--fill", "0", "--format", "csv")
    assert [line.split(",")[2] for line in result.out.splitlines()[1:]] == ["1", "0", "1", "0"]
    wrong = heddle("read", "q", "--warehouse", str(tmp_path / "house"), "--fill", "x")
    assert wrong.code == 2
