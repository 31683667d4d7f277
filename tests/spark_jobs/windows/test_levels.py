"""Levels of partial aggregates: whole runs with levels, against the oracle and against runs without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.synopses.synopsis import period_levels
from optimizer.workload.instants import DAY
from optimizer.workload.values import TIMESTAMP, Source, Stream, Workload
from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.partials import levels
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, expects_answers, planned, published, stored, wrong
from tests.spark_jobs.kernels import ALGORITHMS
from tests.workloads import POOLS, SCHEMA, Case, arrow_schema, leveled_cases, spans_of


@pytest.fixture
def eager() -> Iterator[pytest.MonkeyPatch]:
    """Every window is long, and each day is closed at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "LONG", 0)
        patch.setattr(levels, "BATCH", 1)
        yield patch


def level_marks(warehouse: Warehouse, version: int) -> dict[str, int]:
    """The number of stored periods, by their length."""
    plan = load_plan(warehouse, version)
    names = {level.fingerprint: level.period for synopsis, _ in plan.synopses() for level in period_levels(synopsis)}
    rows = warehouse.dataset("partials").to_table(["fingerprint", "key"]).to_pylist()
    counts: dict[str, int] = {}
    for row in rows:
        if row["key"] is None and row["fingerprint"] in names:
            period = str(names[row["fingerprint"]])
            counts[period] = counts.get(period, 0) + 1
    return counts


def read_spans(patch: pytest.MonkeyPatch) -> list[levels.LevelSpan]:
    """A list that grows by the spans that runs read from levels."""
    spans: list[levels.LevelSpan] = []
    original = levels.LevelRows.__init__

    def noting(self: Any, parts: Any) -> None:
        spans.extend(span for part in parts for span in part.levels)
        original(self, parts)

    patch.setattr(levels.LevelRows, "__init__", noting)
    return spans


@settings(DEAR, max_examples=examples(8, 60, slow=15))
@given(
    generated=leveled_cases(),
    algorithm=st.sampled_from(ALGORITHMS),
    data=st.data(),
)
def test_levels_change_no_answer(
    engine: Any,
    eager: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    generated: Case,
    algorithm: str,
    data: st.DataObject,
) -> None:
    """Interval after interval in any order; late events and removed files; repairs; computing again; maintenance."""
    assume(len(generated.events) > 2 and expects_answers(generated))
    folder = tmp_path_factory.mktemp("levels")
    cuts = sorted(data.draw(st.lists(st.integers(1, len(generated.events) - 1), min_size=1, max_size=2)))
    pieces = [generated.events.slice(low, high - low) for low, high in zip([0, *cuts], [*cuts, 1 << 30], strict=True)]
    case = stored(replace(generated, events=pieces[0]), folder / "source", "parquet")
    warehouse, version = planned(case, folder / "warehouse", algorithm)
    source = Path(case.stream.source.path)
    for number, piece in enumerate(pieces):
        if number:
            pq.write_table(piece, source / f"late-{number}.parquet")
        spans = data.draw(st.permutations(spans_of(case, data.draw(st.integers(1, 2)))))
        for begin, end in spans:
            again = data.draw(st.integers(0, 3)) == 0
            run(engine, warehouse, version, begin, end, f"run-{number}-{begin}", recompute=again)
            if data.draw(st.integers(0, 5)) == 0:
                maintain(warehouse, retention=0)
        # every interval is of the events so far once it was run again
        for begin, end in spans:
            run(engine, warehouse, version, begin, end, f"repair-{number}-{begin}")
        so_far = replace(generated, events=pa.concat_tables(pieces[: number + 1]))
        assert wrong(so_far, published(case, warehouse)) == []


SIZES = ("800 days", "400 days", "366 days", "100 days", "62 days", "45 days")


def many_events(chance: np.random.Generator, begin: int, end: int, size: int) -> pa.Table:
    """Events of all columns, spread over [begin, end)."""
    times = np.sort(chance.integers(begin, end, size))
    columns: dict[str, Any] = {"ts": times}
    for name, _ in SCHEMA:
        columns[name] = [POOLS[name][at] for at in chance.integers(0, min(3, len(POOLS[name])), size)]
    return pa.table(columns, schema=arrow_schema())


@pytest.mark.parametrize("seed", range(examples(2, 40)))
def test_windows_begin_and_end_inside_periods(
    engine: Any, eager: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    """Queries of one family over windows of many lengths, and one of another; late events, then repairs."""
    eager.undo()
    eager.setattr(levels, "BATCH", 1)
    chance = np.random.default_rng(seed)
    texts = []
    for number, at in enumerate(chance.integers(0, len(SIZES), 4).tolist()):
        slide, ago = chance.choice(["1 day", "6 hours", "7 days"]), chance.choice(["", " ENDING '20 days' AGO"])
        outputs = "count(*) AS n, sum(volume) AS s, max(price) AS m, median(volume) AS d, first(code) AS f"
        # the last one reads fragments that the others read from levels, of the same files
        size, group = (SIZES[at], "late") if number < 3 else ("45 days", "carrier")
        window = f"WINDOW RANGE '{size}' SLIDE '{slide}'{ago} ON ts"
        texts.append(f"-- name: q{number}\nSELECT {group}, {outputs} FROM events {window} GROUP BY {group}")
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    parsed = parse(";\n".join(texts), {"events": stream})
    assert not parsed.errors
    begin = 19_782 * DAY + int(chance.integers(0, 60)) * DAY
    end = begin + 4 * DAY
    table = many_events(chance, begin - 800 * DAY, end, 500)
    order = chance.permutation(len(table))
    early, late = table.take(order[:480]), table.take(order[480:])
    generated = Case(Workload(parsed.queries, (stream,)), early, begin, end)
    case = stored(generated, tmp_path / "source", "parquet")
    warehouse, version = planned(case, tmp_path / "warehouse", "shared")
    spans = read_spans(eager)
    for day in range(4):
        run(engine, warehouse, version, begin + day * DAY, begin + (day + 1) * DAY, f"day-{day}")
    assert wrong(generated, published(case, warehouse)) == []
    assert spans
    pq.write_table(late, Path(case.stream.source.path) / "late.parquet")
    for day in range(4):
        run(engine, warehouse, version, begin + day * DAY, begin + (day + 1) * DAY, f"again-{day}")
    assert wrong(replace(generated, events=table), published(case, warehouse)) == []
    assert set(level_marks(warehouse, version)) >= {"day", "month"}
