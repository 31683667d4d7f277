"""Event sequences over several windows in one query: its answers are those of a query for each window, side by side."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.synopses.synopsis import synopses_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.schemas import ANSWERS
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.sequences.answers import answered, joined, lowered, sequence_queries, single_windows
from spark_jobs.windows.sequences.encoding import decoded, sequenced_of
from spark_jobs.windows.sequences.lifting import SequenceLifting
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, expects_answers, planned, published, stored, wrong
from tests.spark_jobs.kernels import ALGORITHMS, FAST, as_read, differences, kernel_answers, of_query
from tests.workloads import Case, sequence_cases, spans_of


@settings(FAST, max_examples=examples(60))
@given(sequence_cases(4, 40, several=1), st.sampled_from(ALGORITHMS), st.integers(1, 4), st.lists(st.integers(0, 100)))
def test_they_answer_as_the_oracle(case: Case, algorithm: str, pieces: int, cuts: list[int]) -> None:
    """Whatever the plan, the pieces in which events come, and however the span is cut."""
    parts = [kernel_answers(case, algorithm, cuts, *span) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables(parts)) == []


# ------------------------------------------------------------------------------- as single queries, joined
def singles(query: ACQ) -> list[ACQ]:
    """A query for each window, with those outputs that are over it, under numbers."""
    return [
        replace(
            query,
            name=f"{query.name} {number}",
            window=replace(part, at=query.window.at),
            outputs=tuple(
                replace(output, name=f"o{place}", window=0)
                for place, output in enumerate(query.outputs)
                if output.window == number and not output.parts
            ),
        )
        for number, part in enumerate(query.window.parts)
    ]


def exact(query: ACQ) -> ACQ:
    """The query without HAVING, outputs made of others, and sums of doubles, which may be rounded in another order."""
    outputs = (output for output in query.outputs if not output.parts)
    chosen = [each for each in outputs if each.argument_type != DOUBLE or each.function not in ("sum", "avg")]
    return replace(query, outputs=tuple(chosen), having=())


@settings(FAST, max_examples=examples(60))
@given(sequence_cases(3, 40, several=1), st.sampled_from(ALGORITHMS))
def test_they_are_the_full_join_of_a_query_for_each_window(case: Case, algorithm: str) -> None:
    """Counts and numbers of keys are 0 where a query for the window has no answer, all else is null."""
    every = [exact(query) for query in case.workload.queries if query.pattern is not None and query.window.parts]
    queries = [
        query for query in every if {output.window for output in query.outputs} == set(range(len(query.window.parts)))
    ]
    assume(queries)
    workload = replace(case.workload, queries=tuple(itertools.chain(queries, *map(singles, queries))))
    answers = kernel_answers(replace(case, workload=workload), algorithm, [], case.begin, case.end)
    for query in queries:
        places = {output.name: f"o{place}" for place, output in enumerate(query.outputs)}
        nothing = {
            places[output.name]: {"count": Decimal(0), "reached": 0}.get(output.function) for output in query.outputs
        }
        joined_rows: dict[Any, dict[str, Any]] = {}
        for single in singles(query):
            for key, row in rows_by_key(single, answers).items():
                values = {name: value for name, value in row.items() if name in nothing}
                joined_rows.setdefault(key, dict(nothing)).update(values)
        ours = {
            key: {place: row[name] for name, place in places.items()}
            for key, row in rows_by_key(query, answers).items()
        }
        assert repr(sorted(ours.items())) == repr(sorted(joined_rows.items()))


def rows_by_key(query: ACQ, answers: pa.Table) -> dict[tuple[str, ...], dict[str, Any]]:
    """The rows of a query by instant and group."""
    groups = query.select or tuple(name for name, _ in query.group_by)
    rows = as_read(query, of_query(answers, query)).to_pylist()
    keyed = {tuple(repr(row[name]) for name in ("instant", *groups)): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


# --------------------------------------------------------------------------------------------- whole runs
@pytest.mark.parametrize("order", ["live", "backfill"])
@settings(DEAR, max_examples=examples(3, 30, slow=6))
@given(generated=sequence_cases(3, 40, several=1), algorithm=st.sampled_from(ALGORITHMS), data=st.data())
def test_late_events_reach_the_windows_that_hold_them(
    engine: Any,
    tmp_path_factory: pytest.TempPathFactory,
    order: str,
    generated: Case,
    algorithm: str,
    data: st.DataObject,
) -> None:
    """Runs over some of the events, then the others come, and further runs answer what they change: of windows that
    ended in the past, that is no interval."""
    assume(len(generated.events) > 2 and expects_answers(generated))
    folder = tmp_path_factory.mktemp("late")
    cut = data.draw(st.integers(1, len(generated.events) - 1))
    early = replace(generated, events=generated.events.slice(0, cut))
    case = stored(early, folder / "source", "parquet")
    warehouse, version = planned(case, folder / "warehouse", algorithm)
    spans = spans_of(case, 4)
    spans = spans if order == "live" else data.draw(st.permutations(spans))
    for begin, end in spans:
        run(engine, warehouse, version, begin, end, f"first-{begin}")
    assert wrong(case, published(case, warehouse)) == []
    pq.write_table(generated.events.slice(cut), Path(case.stream.source.path) / "late.parquet")
    for begin, end in spans:
        run(engine, warehouse, version, begin, end, f"second-{begin}")
    assert wrong(replace(case, events=generated.events), published(case, warehouse)) == []


# ------------------------------------------------------------------------------------------------ by hand
HOUR = 3600 * SECOND
COLUMNS = (("ts", TIMESTAMP), ("kind", STRING), ("user", STRING), ("amount", LONG), ("country", STRING))
STREAM = Stream("shop", Source("parquet", "/shop"), COLUMNS, "ts")
WINDOWS = "WINDOW h AS (RANGE '1 hour'), d AS (RANGE '5 hours') SLIDE '1 hour' ON ts"


def queries(*texts: str) -> tuple[ACQ, ...]:
    result = parse(";".join(f"-- name: q{at}\n{text}" for at, text in enumerate(texts)), {"shop": STREAM})
    assert result.errors == ()
    return result.queries


def lifted(query: ACQ, *rows: tuple[int, str, str, int, str]) -> pa.Table:
    """The stored rows of events (seconds, kind, user, amount, country)."""
    (synopsis,) = synopses_of(STREAM, [query])
    lifting = SequenceLifting(STREAM, [FillRequest(synopsis, 0, DAY)])
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    times = pa.array([at * SECOND for at, *_ in rows], pa.timestamp("us", "UTC"))
    lifting.add(pa.RecordBatch.from_arrays([times, *columns[1:]], names=[name for name, _ in COLUMNS]))
    return pa.concat_tables(lifting.tables())


def rows_of(query: ACQ, *stored_rows: pa.Table) -> list[dict[str, Any]]:
    """The answers of a day, of which tasks have a table of stored rows each."""
    (synopsis,) = synopses_of(STREAM, [query])
    parts = [answered(synopsis, [query], decoded(synopsis, rows), 0, DAY)[0] for rows in stored_rows]
    return [
        row for _, rows in lowered(query, synopsis, joined(parts)) for row in as_read(query, table_of(rows)).to_pylist()
    ]


def table_of(rows: Any) -> pa.Table:
    return pa.Table.from_batches([rows.rows()], ANSWERS)


A, B = (10, "view", "ann", 1, "DE"), (20, "order", "ann", 7, "DE")


def test_a_group_has_rows_as_long_as_one_of_the_windows_holds_a_sequence() -> None:
    (query,) = queries(
        f"""SELECT country, count(*) OVER h AS n, count(*) OVER d AS m, n / m AS share, sum(`order`.amount) OVER h AS s,
        max(`order`.amount) OVER d AS most, reached(1) OVER d AS seen
        FROM shop PATTERN SEQ(view, `order`) ON kind PARTITION BY user {WINDOWS} GROUP BY country"""
    )
    rows = rows_of(query, lifted(query, A, B, (2 * 3600 + 1, "view", "bob", 1, "FR")))
    values = [
        (row["country"], row["instant"].hour, *[row[name] for name in ("n", "m", "share", "s", "most", "seen")])
        for row in rows
    ]
    assert values == [
        ("DE", 1, 1, 1, 1.0, 7, 7, 1),
        *[("DE", hour, 0, 1, 0.0, None, 7, 1) for hour in (2, 3, 4, 5)],
        # a user who reached the first step of a funnel is counted over the window of the funnel
        *[("FR", hour, 0, 0, None, None, None, 1) for hour in (3, 4, 5, 6, 7)],
    ]
    assert {row["window_end"] - row["window_start"] for row in rows} == {timedelta(hours=5)}


def test_a_funnel_over_one_window_decides_no_rows_of_another() -> None:
    (query,) = queries(
        f"""SELECT count(*) OVER d AS m, reached(1) OVER h AS seen
        FROM shop PATTERN SEQ(view, `order`) ON kind PARTITION BY user {WINDOWS}"""
    )
    rows = rows_of(query, lifted(query, A), lifted(query, (11, "view", "bob", 1, "FR")))
    assert [(row["instant"].hour, row["m"], row["seen"]) for row in rows] == [(1, 0, 2)]


def test_conditions_judge_whole_rows() -> None:
    (query,) = queries(
        f"""SELECT count(*) OVER d AS m FROM shop PATTERN SEQ(view, `order`) ON kind
        {WINDOWS} HAVING count(*) OVER h < count(*) OVER d AND m > 0"""
    )
    assert [row["instant"].hour for row in rows_of(query, lifted(query, A, B))] == [2, 3, 4, 5]


def test_a_value_that_does_not_fit_is_an_error_of_its_window() -> None:
    (query,) = queries(
        f"""SELECT count(*) OVER (h, d) AS n FROM shop PATTERN SEQ({", ".join(["view"] * 64)}) ON kind {WINDOWS}"""
    )
    # 100 views in each of two hours
    views = [(hour * 3600 + at, "view", "ann", 1, "DE") for hour in (0, 1) for at in range(100)]
    first, second, *_ = rows_of(query, lifted(query, *views))
    assert first["n_h"] == first["n_d"] == math.comb(100, 64) and first["error"] is None
    assert (second["n_h"], second["n_d"]) == (math.comb(100, 64), None) and "HDL-601 n_d does not fit" in second[
        "error"
    ]


def test_they_are_answered_from_what_single_queries_store_and_count() -> None:
    several, *each = queries(
        f"SELECT count(*) OVER h AS n, sum(view.amount) OVER d AS s FROM shop "
        f"PATTERN SEQ(view, `order`) ON kind {WINDOWS}",
        "SELECT count(*) AS n FROM shop PATTERN SEQ(view, `order`) ON kind WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts",
        "SELECT sum(view.amount) AS s FROM shop PATTERN SEQ(view, `order`) ON kind "
        "WINDOW RANGE '5 hours' SLIDE '1 hour' ON ts",
    )
    (together,), (alone,) = synopses_of(STREAM, each), synopses_of(STREAM, [several])
    assert alone.fingerprint == together.fingerprint
    sequences = [sequence_queries(single, sequenced_of(alone)) for single in single_windows(several)]
    assert sequences == [sequence_queries(query, sequenced_of(alone)) for query in each]
