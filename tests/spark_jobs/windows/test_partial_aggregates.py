"""Partial aggregates: what a fragment keeps, and that neither cutting, nor order, nor sharing changes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from optimizer.aggregates.exact_sums import exact_total
from optimizer.aggregates.states import ROWS
from optimizer.workload.values import (
    LONG,
    STRING,
    Call,
    Column,
    Literal,
    Source,
    Stream,
)
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.pipeline.run.partials_task import UNTIMED, events_of_slab, lift_task
from spark_jobs.store.arrays import numbering
from spark_jobs.store.settings import TASK_MEMORY, TaskMemory
from spark_jobs.store.warehouse.data_files import DataFile, SynopsisFailure, WithoutTime, read_buckets
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.windows.partials import cells as cells_module
from spark_jobs.windows.partials import fill_request, kernels, values
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.fill_request import FillRequest, by_fingerprint, columns_of_synopsis
from spark_jobs.windows.partials.lifting import Lifting, partials_of
from spark_jobs.windows.partials.states import Multiset
from tests.sizes import examples
from tests.spark_jobs.windows.expected_cells import content, expected, same
from tests.spark_jobs.windows.partial_cases import (
    NULLS,
    SECOND,
    STREAM,
    events,
    pieces,
    rows_of_events,
    simple,
    spans,
    state,
    synopsis,
)

# ------------------------------------------------------------------------------------------- brute force


def lifted(batches: Sequence[pa.RecordBatch], wanted: Sequence[FillRequest]) -> dict[str, list[Cells]]:
    lifting = Lifting(STREAM, wanted)
    for batch in batches:
        lifting.add(batch)
    cells_of_synopsis: dict[str, list[Cells]] = {span.synopsis.fingerprint: [] for span in wanted}
    for cells in lifting.cells():
        cells_of_synopsis[cells.synopsis.fingerprint].append(cells)
    assert not lifting.failed
    return cells_of_synopsis


@pytest.fixture(params=["shared", "apart", "as it comes"])
def sharing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Families are never divided, or always as far as can be, or as the counts say; batches are lifted one by one."""
    cost = {"shared": 0, "apart": 10**9}
    if request.param in cost:
        monkeypatch.setattr(fill_request, "ROLL_UP_COST", cost[request.param])
    else:
        # a few events tell what is lifted apart, and combinations of values are numbered that do not occur
        monkeypatch.setattr(fill_request, "SAMPLE_ROWS", 3)
        monkeypatch.setattr(values, "FEW_EVENTS", 0.01)
    if request.param == "apart":
        # numbered by hashing, and cut small
        monkeypatch.setattr(kernels, "DENSE", -(10**6))
        monkeypatch.setattr(numbering, "DENSE", -(10**6))
        monkeypatch.setattr(fill_request, "SLICE_ROWS", 7)
        monkeypatch.setattr(values, "FEW_EVENTS", 0)
    monkeypatch.setattr(fill_request, "BATCH_ROWS", 1)


MANY = settings(
    max_examples=examples(25),
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@MANY
@given(rows_of_events, st.lists(st.integers(0, 25), max_size=3), st.lists(spans(), min_size=1, max_size=4))
def test_lifting_is_what_the_definition_says(
    sharing: None, found: list[dict[str, Any]], cuts: list[int], wanted: list[FillRequest]
) -> None:
    """Any events in any batches, for several synopses at once: fragments, shards, groups and every state."""
    wanted = list({span.synopsis.fingerprint: span for span in wanted}.values())
    cells = lifted(list(pieces(found, cuts)), wanted)
    for span in wanted:
        assert same(content(cells[span.synopsis.fingerprint]), expected(span, found))


@MANY
@given(rows_of_events, st.lists(st.integers(0, 25), max_size=3), st.lists(spans(), min_size=2, max_size=5))
def test_synopses_lifted_together_are_those_lifted_alone(
    sharing: None, found: list[dict[str, Any]], cuts: list[int], wanted: list[FillRequest]
) -> None:
    wanted = list({span.synopsis.fingerprint: span for span in wanted}.values())
    batches = list(pieces(found, cuts))
    together = lifted(batches, wanted)
    for span in wanted:
        fingerprint = span.synopsis.fingerprint
        alone = lifted(batches, [span])[fingerprint]
        assert same(content(together[fingerprint]), content(alone))
        # and in the same order
        assert [cells.key_texts.take(pa.array(cells.group)) for cells in together[fingerprint]] == [
            cells.key_texts.take(pa.array(cells.group)) for cells in alone
        ]


def test_events_of_one_group_alone_may_be_nearly_all(sharing: None) -> None:
    """A key with most of the events is lifted as the others are."""
    event_rows = [{"at": at // 50, "symbol": "A" if at % 10 else f"k{at}", "volume": at} for at in range(1000)]
    rows = [NULLS | row for row in event_rows]
    (cells,) = lifted([events(*rows)], [span := FillRequest(simple("symbol"), 0, 20 * SECOND)])[
        span.synopsis.fingerprint
    ]
    assert same(content([cells]), expected(span, rows))


def test_there_may_be_no_events_at_all(sharing: None) -> None:
    requests = [FillRequest(simple("symbol"), 0, 20 * SECOND), FillRequest(simple(), 0, 20 * SECOND)]
    lifting = Lifting(STREAM, requests)
    for batch in (events(), events({"at": None}), events({"at": -5}, {"at": 99})):
        lifting.add(batch)
    assert list(lifting.cells()) == []
    assert (lifting.inside, lifting.untimed, lifting.size) == (0, 1, 0)
    partials = partials_of([], STREAM, requests)
    assert partials.schema == PARTIALS and len(partials) == 0


def test_only_events_of_the_spans_and_filters_are_lifted_and_all_are_counted() -> None:
    query_synopsis, _ = synopsis("count(*) AS n", rest="WHERE volume > 0")
    batch = events(
        {"at": -1, "volume": 9},
        {"at": 0, "volume": 1},
        {"at": 9, "volume": None},
        {"at": 9, "volume": 0},
        {"at": 10, "volume": 9},
        {"at": None, "volume": 9},
    )
    lifting = Lifting(STREAM, [FillRequest(query_synopsis, 0, 10 * SECOND)])
    lifting.add(batch)
    (cells,) = lifting.cells()
    assert cells.states[ROWS].values.tolist() == [[1]]  # type: ignore[union-attr]
    assert (lifting.inside, lifting.untimed) == (3, 1)
    assert columns_of_synopsis(query_synopsis) == {"volume"}
    pair = replace(query_synopsis, states=(ROWS, state("least_by", "price", "fee"), state("first", "late", "ts")))
    assert columns_of_synopsis(pair) == {"volume", "price", "fee", "late"}


def test_a_row_a_fragment_and_group_with_its_day_and_bounds() -> None:
    query_synopsis, _ = synopsis("symbol, count(*) AS n, sum(volume) AS s", range_=15, rest="GROUP BY symbol")
    batch = events(
        {"at": 1, "symbol": "A", "volume": 5},
        {"at": 4, "symbol": "A", "volume": None},
        {"at": 6, "symbol": "A", "volume": 7},
        {"at": 6, "symbol": None, "volume": -1},
    )
    rows = partials_of([batch], STREAM, [FillRequest(query_synopsis, 0, 10 * SECOND)]).to_pylist()
    # range 15, slide 10: edges at 0, 5, 10, …
    assert sorted((row["fragment_start"], row["fragment_end"], row["key"], row["shard"]) for row in rows) == [
        (0, 5 * SECOND, '["A"]', 1),
        (5 * SECOND, 10 * SECOND, '["A"]', 1),
        (5 * SECOND, 10 * SECOND, "[null]", 1),
    ]
    assert {(row["day"], row["stream"], row["fingerprint"]) for row in rows} == {
        ("1970-01-01", "trades", query_synopsis.fingerprint)
    }


def test_groups_tell_nulls_empty_strings_and_separators_apart() -> None:
    values = [("a", True), ("", None), (None, None), ('a","b', False), ("a", True), ("null", None)]
    batch = events(*({"at": 1, "symbol": symbol, "late": late} for symbol, late in values))
    request = FillRequest(simple("symbol", "late"), 0, 10 * SECOND)
    rows = partials_of([batch], STREAM, [request]).to_pylist()
    counts = sorted(((*json.loads(row["key"]), int.from_bytes(row["numbers"][:8], "little")) for row in rows), key=str)
    assert counts == sorted(
        [("a", "true", 2), ("", None, 1), (None, None, 1), ('a","b', "false", 1), ("null", None, 1)], key=str
    )


def test_extremes_of_nothing_but_nulls_leave_no_trace() -> None:
    query_synopsis, _ = synopsis("min(price) AS a, max(symbol) AS b, min(fee) AS c, max(late) AS d")
    null, event = (
        events({"at": 1}),
        events({"at": 2, "price": 2.5, "symbol": "x", "fee": Decimal("-3.10"), "late": True}),
    )
    span = FillRequest(query_synopsis, 0, 10 * SECOND)
    both, alone = partials_of([null, event], STREAM, [span]), partials_of([event], STREAM, [span])
    (row,), (other,) = both.to_pylist(), alone.to_pylist()
    assert (row["longs"][0], other["longs"][0]) == (2, 1)
    assert (row["doubles"], row["texts"]) == (other["doubles"], other["texts"])
    assert sorted(row["texts"]) == ["-3.10", "x"]


def test_ties_and_nulls_of_the_value_at_the_least_or_greatest() -> None:
    """Equal orders: the least or the greatest value, null being the least; `first` and `last` know no null values."""
    rows = [
        {"at": 1, "volume": 1, "symbol": None, "tip": None},
        {"at": 2, "volume": 1, "symbol": "a"},
        {"at": 2, "volume": 9, "symbol": "b"},
        {"at": 3, "volume": 9, "symbol": "c"},
        {"at": 4, "volume": None, "symbol": "d"},
        {"at": 5, "volume": 2, "symbol": None},
    ]
    expected_values = {
        state("least_by", "symbol", "volume"): (1, 0),
        state("greatest_by", "symbol", "volume"): (9, "c"),
        state("first", "symbol", "ts"): (2 * SECOND, "a"),
        state("last", "symbol", "ts"): (4 * SECOND, "d"),
        state("least_by", "symbol", "tip"): "nothing",
    }
    span = FillRequest(simple(states=tuple(expected_values)), 0, 10 * SECOND)
    for cuts in ([], [1, 3], [2, 5]):
        parts = [cells for batch in pieces(rows, cuts) for cells in lifted([batch], [span])[span.synopsis.fingerprint]]
        (states,) = content([cells_module.concatenated(parts).combined()]).values()
        assert {aggregate_state: states[aggregate_state] for aggregate_state in expected_values} == expected_values


@pytest.mark.parametrize("value", [10**28 - 1, -(10**28) + 1, 2**64, -(2**64), -1])
def test_wide_decimals_are_kept_exactly(value: int) -> None:
    total = state("sum", "fee")
    fee = Decimal(value).scaleb(-2)
    batch = events({"at": 1, "fee": fee}, {"at": 2, "fee": fee}, {"at": 3})
    lifting = Lifting(STREAM, [FillRequest(simple(states=(total,)), 0, 10 * SECOND)])
    lifting.add(batch)
    (cells,) = lifting.cells()
    assert exact_total(cells.states[total].values)[0] == 2 * value  # type: ignore[union-attr]


def test_columns_may_come_as_dictionaries() -> None:
    """Even of a file whose dictionary holds a value twice, values that do not occur, or a null."""
    plain = pa.array(["A", None, "B", "A", "A"])
    twice = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 3, 0], pa.int32()), pa.array(["A", "B", "C", "A", None])
    )
    rows = [{"at": 1, "symbol": symbol, "volume": 1} for symbol in plain.to_pylist()]
    batch = events(*rows)
    columns = [twice if name == "symbol" else batch.column(name) for name in batch.schema.names]
    coded = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    predicate = Call("=", (Column("symbol"), Literal("A", STRING)))
    requests = [
        FillRequest(simple("symbol", states=(state("max", "symbol"),)), 0, 10 * SECOND),
        FillRequest(simple(predicates=(predicate,)), 0, 10 * SECOND),
    ]
    plain_cells, other = lifted([batch, batch], requests), lifted([coded, batch], requests)
    for span in requests:
        fingerprint = span.synopsis.fingerprint
        assert same(content(plain_cells[fingerprint]), content(other[fingerprint]))


def test_sketches_are_thinned_once_when_they_are_stored() -> None:
    quantiles, frequent = state("quantiles", "volume", error="0.1"), state("frequent", "symbol", error="0.2")
    request = FillRequest(simple(states=(quantiles, frequent)), 0, 20 * SECOND)
    rows = [{"at": at // 50, "volume": at, "symbol": "often" if at % 3 else f"s{at}"} for at in range(1000)]
    (cells,) = lifted([events(*rows[:300]), events(*rows[300:])], [request])[request.synopsis.fingerprint]
    of_volume, of_symbol = cells.states[quantiles], cells.states[frequent]
    assert isinstance(of_volume, Multiset) and isinstance(of_symbol, Multiset) and of_symbol.texts is not None
    for cell in range(len(cells)):
        part = slice(of_volume.offsets[cell], of_volume.offsets[cell + 1])
        values, weights = of_volume.values[part], of_volume.weights[part]
        assert weights.sum() == 500 and len(values) == 5
        true = np.searchsorted(np.arange(500 * cell, 500 * cell + 500), values, side="right")
        assert (np.abs(true - np.cumsum(weights)) <= 0.1 * 500).all()
        part = slice(of_symbol.offsets[cell], of_symbol.offsets[cell + 1])
        assert of_symbol.texts.take(pa.array(of_symbol.values[part])).to_pylist() == ["often"]
        assert of_symbol.weights[part].tolist() == [
            sum(1 for row in rows[500 * cell : 500 * cell + 500] if row["symbol"] == "often")
        ]


def test_there_may_be_more_filters_than_a_signature_has_bits() -> None:
    predicates = [Call(">", (Column("volume"), Literal(value, LONG))) for value in range(100)]
    requests = [FillRequest(simple(predicates=(predicate,)), 0, 10 * SECOND) for predicate in predicates]
    cells_of_synopsis = lifted([events(*({"at": 1, "volume": value} for value in range(101)))], requests)
    for value, span in enumerate(requests):
        (cells,) = cells_of_synopsis[span.synopsis.fingerprint]
        assert cells.states[ROWS].values.tolist() == [[100 - value]]  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------- a Spark task
def stored(folder: Path, rows: Sequence[dict[str, Any]]) -> Stream:
    table = pa.Table.from_batches([events(*rows)])
    pq.write_table(table, folder / "events.parquet", row_group_size=100)
    return replace(STREAM, source=Source("parquet", str(folder / "events.parquet")))


def run_task(
    stream: Stream, wanted: list[FillRequest], root: Path, limit: int | None = None, memory: TaskMemory = TASK_MEMORY
) -> tuple[list[Any], int, int]:
    splits = splits_of(stream)
    wanted = [replace(span, most_groups=limit) for span in wanted]
    task = lift_task(stream, splits, [wanted], str(root), memory)
    outcome = LocalWorkers().run(task, len(splits), 1, "lift")
    return outcome.results, outcome.counts[events_of_slab(0)], outcome.counts[UNTIMED]


def rows_of(root: Path, outcomes: Sequence[Any]) -> pa.Table:
    paths = [str(root / file.path) for file in outcomes if isinstance(file, DataFile)]
    return pa.concat_tables(read_buckets(paths, set(range(64))))


@pytest.mark.parametrize("memory", [8, 1 << 12, 1 << 32])
def test_a_task_writes_files_that_hold_every_cell(tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one file a day, or in many when memory is short: combined they are the same."""
    monkeypatch.setattr(fill_request, "BATCH_ROWS", 1)
    rows = [NULLS | {"at": at, "symbol": f"k{at % 7}", "volume": at} for at in range(0, 200_000, 500)]
    stream = stored(tmp_path, [*rows, {"at": None}])
    requests = [FillRequest(simple("symbol"), 0, 200_000 * SECOND), FillRequest(simple("late"), 0, 200_000 * SECOND)]
    outcomes, inside, untimed = run_task(stream, requests, tmp_path / "out", memory=TaskMemory(memory))
    assert (inside, untimed) == (len(rows), 1)
    assert [each.rows for each in outcomes if isinstance(each, WithoutTime)] == [1]
    assert {file.day for file in outcomes if isinstance(file, DataFile)} == {"1970-01-01", "1970-01-02", "1970-01-03"}
    rows_of_synopsis = by_fingerprint(rows_of(tmp_path / "out", outcomes))
    for span in requests:
        cells = Cells.decode(span.synopsis, rows_of_synopsis[span.synopsis.fingerprint]).combined()
        assert same(content([cells]), expected(span, rows))


@settings(deadline=None, max_examples=examples(40))
@given(
    pieces=st.lists(st.lists(st.integers(0, 3), max_size=40), max_size=6),
    runs=st.integers(0, 3),
    dictionary=st.booleans(),
    cut=st.integers(0, 5),
)
def test_rows_are_told_apart_by_synopsis_in_their_order(
    pieces: list[list[int]], runs: int, dictionary: bool, cut: int
) -> None:
    """Of pieces with long runs, of shuffled ones, of empty ones and of parts of pieces; each row once."""
    names = [[f"{(number * 7) % 4}" for number in piece] for piece in pieces]
    chunks = [pa.array(piece, pa.string()) for piece in names]
    column = pa.chunked_array([chunk.dictionary_encode() if dictionary else chunk for chunk in chunks] or [[]])
    if not dictionary:
        column = column.cast(pa.string())
    rows = pa.table({"fingerprint": column, "number": pa.array(range(len(column)), pa.int64())}).slice(cut)
    flat = [name for piece in names for name in piece][cut:]
    expected = {
        name: [cut + at for at, other in enumerate(flat) if other == name] for name in sorted(dict.fromkeys(flat))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fill_request, "RUNS", runs)
        tables = by_fingerprint(rows)
    assert {name: table["number"].to_pylist() for name, table in tables.items()} == expected
    assert list(tables) == list(expected)
    for name, table in tables.items():
        assert set(table["fingerprint"].to_pylist()) == {name}


def test_a_synopsis_of_too_many_groups_fails_alone(tmp_path: Path, sharing: None) -> None:
    """Whether it is met early or late, and whether or not others share its atoms; as many as allowed are no failure."""
    rows = [{"at": at % 10, "symbol": f"k{at % 100}", "volume": at, "late": at % 2 == 0} for at in range(1000)]
    rows += [{"at": 1, "symbol": f"last {at}", "volume": 0} for at in range(30)]
    stream = stored(tmp_path, rows)
    allowed = Call(">", (Column("volume"), Literal(0, LONG)))
    requests = [
        FillRequest(simple("symbol", predicates=(None,)), 0, 10 * SECOND),
        FillRequest(simple("symbol", predicates=(allowed,)), 0, 10 * SECOND),
        FillRequest(simple("late"), 0, 10 * SECOND),
        FillRequest(simple(), 0, 10 * SECOND),
    ]
    outcomes, inside, _ = run_task(stream, requests, tmp_path / "out", 100)
    (failed,) = (outcome for outcome in outcomes if isinstance(outcome, SynopsisFailure))
    assert (failed.fingerprint, failed.code) == (requests[0].synopsis.fingerprint, "HDL-602")
    assert failed.message == "more than 100 groups of symbol in one part of stream trades"
    assert inside == len(rows)
    rows_of_synopsis = by_fingerprint(rows_of(tmp_path / "out", outcomes))
    assert rows_of_synopsis.keys() == {span.synopsis.fingerprint for span in requests[1:]}
    for span in requests[1:]:
        cells = Cells.decode(span.synopsis, rows_of_synopsis[span.synopsis.fingerprint])
        assert same(content([cells]), expected(span, [NULLS | row for row in rows]))


def test_groups_are_counted_across_what_was_written_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill_request, "BATCH_ROWS", 1)
    (tmp_path / "events").mkdir()
    for number in range(5):
        rows = [{"at": 1, "symbol": f"k{at}"} for at in range(100 * number, 100 * number + 120)]
        pq.write_table(pa.Table.from_batches([events(*rows)]), tmp_path / "events" / f"{number}.parquet")
    stream = replace(STREAM, source=Source("parquet", str(tmp_path / "events")))
    requests = [FillRequest(simple("symbol"), 0, 10 * SECOND)]
    for limit, failures in ((519, 1), (520, 0)):
        outcomes, _, _ = run_task(stream, requests, tmp_path / f"out{limit}", limit, TaskMemory(8))
        assert sum(isinstance(outcome, SynopsisFailure) for outcome in outcomes) == failures
        assert sum(isinstance(outcome, DataFile) for outcome in outcomes) >= 4
