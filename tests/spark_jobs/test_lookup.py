"""Answers on demand: those that runs publish, from the same partial rows, at any instant and over any window."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from optimizer.errors import HeddleError
from optimizer.parser import parse
from optimizer.plan import SharingPlan, build_plan
from optimizer.query import ACQ, Stream, Window, Workload
from optimizer.synopsis import synopses_of
from optimizer.window import DAY, history_start, instants
from spark_jobs import lookup
from spark_jobs.cli import app
from spark_jobs.files import write_files
from spark_jobs.lookup import Lookups, Reader, parse_group, parse_having
from spark_jobs.partial_aggregates import Span, partials_of
from spark_jobs.planning import publish_plan
from spark_jobs.run import _completed
from spark_jobs.tables import Warehouse
from tests.oracle import answers, compare
from tests.spark_jobs.test_differential import ALGORITHMS, decoded, normalised
from tests.spark_jobs.test_partial_aggregates import SECOND, STREAM, events
from tests.workloads import Case, cases

FAST = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def stored(
    root: Path | str,
    workload: Workload,
    table: pa.Table,
    pieces: Sequence[tuple[int, int]],
    algorithm: str = "weave-share",
    together: Sequence[Sequence[str]] = (),
) -> Warehouse:
    """A warehouse as runs over some intervals leave it, without Spark and without results."""
    warehouse = Warehouse.open(root)
    plan = build_plan(workload, dict.fromkeys((stream.name for stream in workload.streams), Fraction(1)), algorithm)
    plan = replace(plan, trees=tuple(replace(tree, together=_within(tree.queries, together)) for tree in plan.trees))
    publish_plan(warehouse, plan)
    for number, (begin, end) in enumerate(pieces):
        store(warehouse, plan, table, begin, end, number)
    return warehouse


def _within(queries: Sequence[ACQ], together: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    names = {query.name for query in queries}
    found = (tuple(name for name in homes if name in names) for homes in together)
    return tuple(homes for homes in found if len(homes) > 1)


def store(warehouse: Warehouse, plan: SharingPlan, table: pa.Table, begin: int, end: int, number: int) -> None:
    for tree in plan.trees:
        stream = plan.workload.stream(tree.stream)
        for synopsis, members in synopses_of(stream, tree.queries, tree.together).items():
            windows = [query.window for query in members]
            first = history_start(windows, begin, end)
            last = synopsis.fragments.last_edge(end - min(window.ago for window in windows))
            if first >= last:
                continue
            span = Span(synopsis, first, last)
            rows = pa.concat_tables([partials_of(table.to_batches(), stream, [span]), _completed(stream, [], [span])])
            files = list(write_files(warehouse.path("partials"), rows))
            gone = lambda rows, span=span: pa.array(  # noqa: E731
                (rows["fragment_start"].to_numpy() >= span.begin)
                & (rows["fragment_start"].to_numpy() < span.end)
                & (np.array(rows["fingerprint"].to_pylist()) == span.synopsis.fingerprint)
            )
            warehouse.replace("partials", files, ("0000", "9999"), gone, f"{synopsis.fingerprint}", number + 1)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


# ------------------------------------------------------------------------------------ against the oracle
@FAST
@given(cases(), st.sampled_from(ALGORITHMS), st.lists(st.integers(0, 1), max_size=6), st.booleans())
def test_every_instants_answer_is_the_oracles(case: Case, algorithm: str, homes: list[int], twice: bool) -> None:
    """Every aggregate, HAVING, historical windows, merged families; the partials written by one run or by two."""
    case = normalised(case)
    together = [
        [query.name for query, home in zip(case.workload.queries, homes, strict=False) if home == wanted]
        for wanted in (0, 1)
    ]
    middle = (case.begin + case.end) // 2
    pieces = [(case.begin, middle), (middle, case.end)] if twice and middle > case.begin else [(case.begin, case.end)]
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(stored(Path(folder) / "house", case.workload, decoded(case), pieces, algorithm, together))
        for query in case.workload.queries:
            try:
                found = reader.query(query.name)
            except HeddleError as error:
                # no window of its tree ends in the interval
                assert error.diagnostic.code == "HDL-603" and not len(instants(query.window, case.begin, case.end))
                continue
            expected = answers(query, case.events, case.stream.time, case.begin, case.end)
            table = found.between(case.begin, case.end)
            assert compare(query, table, expected) == []
            check_instants(query, found, table, case)


def check_instants(query: ACQ, found: Lookups, table: pa.Table, case: Case) -> None:
    """Each way to ask for one instant tells what ``between`` tells of it."""
    moments = instants(query.window, case.begin, case.end)
    if len(moments) == 0:
        return
    groups = [query.select[at] if query.select else name for at, (name, _) in enumerate(query.group_by)]
    outputs = [output.name for output in query.outputs]
    known = {}
    for row in rows_of(table):
        at = row["window_end"] if not query.window.ago else row["instant"]
        key = pa.scalar(at, pa.timestamp("us", "UTC")).value, tuple(map(repr, (row[name] for name in groups)))
        known[key] = row
    later = moments + min(query.window.slide, 3) - 1
    batch = found.batch(later)
    for place, moment in enumerate(moments.tolist()):
        singly = found.at(moment)
        mine = [row for (at, _), row in known.items() if at == moment]
        assert list(map(repr, rows_of(singly.select(outputs)))) == [
            repr({name: row[name] for name in outputs}) for row in mine
        ]
        for number, group in enumerate(found.groups):
            row = known.get((moment, tuple(map(repr, group))))
            told = found.one(int(later[place]), *group)
            assert (told is None) == (row is None)
            if row is not None and told is not None:
                assert [alike(value) for value in told] == [alike(row[name]) for name in outputs]
            for output in query.outputs:
                values, valid = batch[output.name]
                wanted = None if row is None else row[output.name]
                assert valid[number, place] == (wanted is not None)
                if wanted is not None and output.type.name in ("long", "double", "string"):
                    assert alike(values[number, place].item() if values.dtype != object else values[number, place]) == (
                        alike(wanted)
                    )


def alike(value: Any) -> Any:
    """Doubles up to the rounding of sums that are put together in another order, which can cancel."""
    if isinstance(value, float):
        return "NaN" if value != value else pytest.approx(value, rel=1e-9, abs=1e-9)
    return value
