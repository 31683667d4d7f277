"""Fine partial aggregates that a stream does not keep: whole histories against the oracle, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY
from optimizer.workload.values import TIMESTAMP, Source, Stream, Workload
from spark_jobs.operations.fine_partials import DroppedFine
from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.partials import dropped_fine, levels
from tests.oracle import answers, compare
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR
from tests.workloads import POOLS, SCHEMA, arrow_schema

BEGIN = 19_782 * DAY
"""2024-02-29T00:00:00Z: histories begin to be answered."""

DAYS = 3
"""Days that are answered."""

SIZES = ("62 days", "100 days", "366 days", "45 days")


def events_between(chance: np.random.Generator, begin: int, end: int, size: int) -> pa.Table:
    """Events of all columns, spread over [begin, end)."""
    columns: dict[str, Any] = {"ts": np.sort(chance.integers(begin, end, size))}
    for name, _ in SCHEMA:
        columns[name] = [POOLS[name][at] for at in chance.integers(0, min(3, len(POOLS[name])), size)]
    return pa.table(columns, schema=arrow_schema())


class History:
    """A stream of some files, queries of two slides over it, and a warehouse, through what happens to them."""

    def __init__(self, engine: Any, folder: Path, seed: int, texts: list[str], keep_fine: int | None) -> None:
        self.engine, self.texts, self.chance = engine, texts, np.random.default_rng(seed)
        self.source, self.number, self.is_missing = folder / "source", 0, False
        self.source.mkdir()
        self.files: dict[str, pa.Table] = {}
        edges = BEGIN - np.array([400, 300, 200, 101, 100, 40, 0, -1, -2, -3]) * DAY
        for begin, end in zip(edges.tolist(), edges.tolist()[1:], strict=False):
            self.write(events_between(self.chance, begin, end, 20))
        self.warehouse = Warehouse.open(folder / "warehouse")
        self.plan(keep_fine)

    def write(self, rows: pa.Table, name: str = "") -> None:
        """Write a file of events, a new one unless it is named."""
        self.number += 1
        name = name or f"{self.number:03}.parquet"
        self.files[name] = rows
        pq.write_table(rows, self.source / name, row_group_size=5)

    def plan(self, keep_fine: int | None) -> None:
        source = Source("parquet", str(self.source))
        stream = Stream("events", source, (("ts", TIMESTAMP), *SCHEMA), "ts", keep_fine=keep_fine)
        parsed = parse(";\n".join(self.texts), {"events": stream})
        assert not parsed.errors
        self.workload = Workload(parsed.queries, (stream,))
        self.version, _ = publish_plan(self.warehouse, build_plan(self.workload, {"events": Fraction(1)}))

    def run(self, first: int, last: int | None = None, recompute: bool = False) -> RunRecord | None:
        """Answer some days; None if all of it was refused because files are missing."""
        self.number += 1
        span = BEGIN + first * DAY, BEGIN + (first + 1 if last is None else last) * DAY
        try:
            record = run(self.engine, self.warehouse, self.version, *span, f"run-{self.number}", recompute=recompute)
        except HeddleError as error:
            assert error.code == "HDL-517" and self.is_missing
            return None
        assert record.status in ("published", "unchanged")
        return record

    def remove(self, name: str) -> None:
        """Take a file away, without another in its place."""
        (self.source / name).unlink()
        del self.files[name]
        self.is_missing = True

    def maintain(self, erase: bool = False) -> list[DroppedFine]:
        maintained = maintain(self.warehouse, retention=0, erase=erase)
        assert not any(fine.problem for fine in maintained.fine)
        return maintained.fine

    def wrong(self, refused: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
        """Differences between what is published and the oracle, of the queries that were not refused."""
        table = pa.concat_tables(self.files.values())
        return [
            f"{query.name}: {line}"
            for query in self.workload.queries
            if query.name not in refused
            for line in compare(
                query,
                read(self.warehouse, query.name),
                answers(query, table, "ts", BEGIN, BEGIN + DAYS * DAY),
            )
        ]

    def checked(self) -> set[str]:
        """Repair all days, and compare. Returns the queries that were refused: nothing of them is published anew."""
        refused: set[str] = set()
        for day in range(DAYS):
            record = self.run(day)
            names = {query.name for query in self.workload.queries}
            if record is not None:
                codes = [issue for issue in record.diagnostics if issue["code"] == dropped_fine.GONE]
                names = {issue["query"] for issue in codes}
                assert self.is_missing or not names
            refused |= names
        assert self.wrong(refused) == []
        return refused


@pytest.fixture
def eager() -> Iterator[pytest.MonkeyPatch]:
    """Each day is closed at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "BATCH", 1)
        yield patch


def text(name: str, size: str, slide: str, ago: str = "", group: str = "late") -> str:
    outputs = "count(*) AS n, sum(volume) AS s, max(price) AS m, median(volume) AS d, first(code) AS f"
    window = f"WINDOW RANGE '{size}' SLIDE '{slide}'{ago} ON ts"
    return f"-- name: {name}\nSELECT {group}, {outputs} FROM events {window} GROUP BY {group}"


STEPS = ("run", "run", "late", "rewrite", "remove", "maintain", "maintain", "recompute", "erase", "keep", "query")


@settings(DEAR, max_examples=examples(2, 40, slow=5))
@given(data=st.data(), seed=st.integers(0, 1 << 16))
def test_what_is_dropped_changes_no_answer(
    engine: Any, eager: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, seed: int
) -> None:
    """Runs, late events, files rewritten and removed, maintenance, erasure, other settings and queries, in any order;
    in the end all answers are those of the oracle, or refused."""
    # 0: no window is so short that fragments are kept for it
    eager.setattr(levels, "LONG", data.draw(st.sampled_from((0, 0, 62 * DAY))))
    slides = data.draw(st.permutations(("1 day", "6 hours", "7 days")))[:2]
    texts = [
        text(
            f"q{number}",
            data.draw(st.sampled_from(SIZES)),
            slide,
            data.draw(st.sampled_from(("", " ENDING '20 days' AGO"))),
        )
        for number, slide in enumerate(slides)
    ]
    keep_fine = data.draw(st.sampled_from((DAY, 50 * DAY, 90 * DAY, 300 * DAY)))
    history = History(engine, tmp_path_factory.mktemp("history"), seed, texts, keep_fine)
    history.run(0)
    for _ in range(data.draw(st.integers(2, 7))):
        step, names = data.draw(st.sampled_from(STEPS)), sorted(history.files)
        name = data.draw(st.sampled_from(names))
        if step in ("run", "recompute"):
            history.run(data.draw(st.integers(0, DAYS - 1)), recompute=step == "recompute")
        elif step == "late":
            back = data.draw(st.integers(1, 380)) * DAY
            history.write(events_between(history.chance, BEGIN - back, BEGIN - back + DAY, 2))
        elif step == "rewrite":
            history.write(history.files[name].slice(1), name)
        elif step == "remove" and len(names) > 2:
            history.remove(name)
        elif step in ("maintain", "erase"):
            history.maintain(erase=step == "erase")
        elif step == "keep":
            keep_fine = data.draw(st.sampled_from((None, DAY, 100 * DAY)))
            history.plan(keep_fine)
        elif step == "query":
            group = data.draw(st.sampled_from(("late", "carrier")))
            history.texts.append(text(f"q{len(history.texts)}", "70 days", "3 hours", "", group))
            history.plan(keep_fine)
    refused = history.checked()
    if refused:
        # what is refused is answered from the files that there are if it is asked for
        for day in range(DAYS):
            history.run(day, recompute=True)
        assert history.wrong() == []
