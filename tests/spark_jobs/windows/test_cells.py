"""Cells in memory: stored and read back, combined in any order, rolled up to families, laid out by bucket."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.aggregates.exact_doubles import ExactSums
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import Fragments
from optimizer.workload.instants import DAY
from optimizer.workload.values import STRING, decimal
from spark_jobs.store.arrays import numbering
from spark_jobs.store.arrays.numbering import (
    LONG_MAX,
    LONG_MIN,
    Longs,
    distinct_of,
    distinct_rows,
    encoded,
    numbered,
    numbered_tuples,
    positions_in,
    ranked,
)
from spark_jobs.store.warehouse.data_files import BUCKET_ROWS, BUCKETS, bucket_of, read_buckets, write_files
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.finals.passes import _slices
from spark_jobs.windows.partials import encoding
from spark_jobs.windows.partials.cells import Cells, buckets, buckets_of, concatenated, fragments_of, stored_rows
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import Lifting, partials_of
from spark_jobs.windows.partials.states import Fixed, class_of
from tests.former_rows import as_lists
from tests.sizes import examples
from tests.spark_jobs.windows.expected_cells import content, expected, same
from tests.spark_jobs.windows.partial_cases import (
    MANY,
    NULLS,
    PREDICATES,
    SECOND,
    STREAM,
    TYPES,
    cuts,
    events,
    pieces,
    rows_of_events,
    simple,
    spans,
    state,
)


def stored(span: FillRequest, found: Sequence[dict[str, Any]], where: Sequence[int]) -> pa.Table:
    """Rows as several tasks write them, each of some of the events."""
    return pa.concat_tables(
        [PARTIALS.empty_table(), *(partials_of([batch], STREAM, [span]) for batch in pieces(found, where))]
    )


def lifted_cells(span: FillRequest, batch: pa.RecordBatch) -> list[Cells]:
    """The cells of some events, in the order in which they were lifted."""
    lifting = Lifting(STREAM, [span])
    lifting.add(batch)
    lifting._finish()
    return [block for family in lifting.families for block in family.blocks]


def bits(cells: Cells | pa.Table) -> str:
    """All of them as stored, bit by bit: NaN equals itself and the zeros are told apart."""
    rows = (cells.encode() if isinstance(cells, Cells) else cells).to_pylist()
    return str([row | {"doubles": [float.hex(value) for value in row["doubles"] or ()]} for row in rows])


# ------------------------------------------------------------------------------------- stored and read
@MANY
@given(rows_of_events, cuts, spans())
def test_cells_are_read_as_they_were_stored(found: list[dict[str, Any]], where: list[int], span: FillRequest) -> None:
    rows = stored(span, found, where)
    cells = Cells.decode(span.synopsis, rows)
    assert bits(cells) == bits(rows)
    assert rows.schema == PARTIALS
    assert list(cells.states) == list(span.synopsis.states)
    # of a slice of a table in chunks, with dictionaries, as files are read
    some = rows.slice(1, 3)
    coded = some.set_column(rows.schema.names.index("key"), "key", some["key"].dictionary_encode())
    assert bits(Cells.decode(span.synopsis, coded)) == bits(some)


@MANY
@given(rows_of_events, cuts, spans(), st.booleans(), st.booleans())
def test_parts_write_the_rows_that_they_have_when_they_are_joined(
    found: list[dict[str, Any]], where: list[int], span: FillRequest, is_ordered: bool, is_of_numbers: bool
) -> None:
    if is_ordered:
        # most cells are in one part
        found = sorted(found, key=lambda event: event["at"] or 0)
    if is_of_numbers:
        states = tuple(each for each in span.synopsis.states if class_of(each) in (Fixed, ExactSums))
        span = replace(span, synopsis=replace(span.synopsis, states=states))
    parts = [part for batch in pieces(found, where) for part in lifted_cells(span, batch)]
    if parts:
        assert bits(stored_rows(parts)) == bits(concatenated(parts).to_store())


def test_parts_without_cells_in_common_are_not_joined_with_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = (state("exact_sum", "price"), state("exact_sum_squares", "price"))
    synopsis = simple("symbol", states=(*sums, state("max", "price"), state("sum", "volume")))
    span = FillRequest(synopsis, -40 * SECOND, 40 * SECOND)
    prices = [(31, "B", 0.1), (31, "A", 1e300), (2, "A", -1e-9), (2, "B", 7.0), (17, "B", None)]
    batches = [events({"at": at, "symbol": name, "price": price, "volume": at}) for at, name, price in prices]
    parts = [part for batch in batches for part in lifted_cells(span, batch)]
    joined = bits(concatenated(parts).to_store())
    monkeypatch.setattr(Cells, "to_store", None)
    rows = stored_rows(parts)
    assert bits(rows) == joined
    assert same(content([Cells.decode(synopsis, rows)]), content(parts))


@MANY
@given(rows_of_events, cuts, spans(), st.randoms(use_true_random=False), st.integers(1, 200))
def test_rows_of_before_are_read_among_those_of_now(
    found: list[dict[str, Any]],
    where: list[int],
    span: FillRequest,
    chance: random.Random,
    most: int,
) -> None:
    rows = stored(span, found, where)
    cells = Cells.decode(span.synopsis, rows)
    old = as_lists(rows.combine_chunks(), cells)
    assert bits(Cells.decode(span.synopsis, old)) == bits(rows)
    parts = [chance.choice([rows, old]).slice(at, 1) for at in range(len(rows))]
    mixed = pa.concat_tables([PARTIALS.empty_table(), *parts])
    assert bits(Cells.decode(span.synopsis, mixed)) == bits(rows)
    with pytest.MonkeyPatch.context() as patch:
        # in pieces, as what has too many bytes for one is
        patch.setattr(encoding, "MOST_BYTES", most * 8 * (cells.longs.shape[1] + cells.doubles.shape[1]))
        assert bits(cells) == bits(rows)


def test_rows_with_other_numbers_than_their_synopsis_says_are_refused() -> None:
    cells = many_cells(2, 3)[0]
    rows = cells.encode()
    other = replace(cells.synopsis, states=cells.synopsis.states[:1])
    with pytest.raises(ValueError, match="numbers each"):
        Cells.decode(other, rows)


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), max_size=30), st.integers(0, 5))
def test_buckets_are_the_same_for_ever(keys: list[str], first: int) -> None:
    """What a task computes of a column is what is computed of each key, and what CRC-32 says."""
    assert bucket_of(["[]", '["SYM001"]']).tolist() == [41, 54]
    column = pa.array(keys, pa.string()).slice(first)
    assert buckets_of(column).tolist() == bucket_of(keys[first:]).tolist()


@MANY
@given(rows_of_events, cuts, spans(), st.integers(0, 2**32))
def test_rows_combine_to_the_same_bits_in_whatever_order_they_arrive(
    found: list[dict[str, Any]], where: list[int], span: FillRequest, seed: int
) -> None:
    """However a run finds the pieces of a cell (files have random names), and in whatever pieces they are read."""
    rows = stored(span, found, where)
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    shuffled = rows.take(pa.array(order, pa.int64()))
    combined = Cells.decode(span.synopsis, rows).combined()
    other = Cells.decode(span.synopsis, shuffled).combined()
    half = len(order) // 2
    parts = [Cells.decode(span.synopsis, shuffled.slice(*piece)) for piece in ((0, half), (half, len(order)))]
    assert bits(combined) == bits(other) == bits(concatenated(parts).combined())
    for predicate in span.synopsis.predicates:
        family = span.synopsis.bit(predicate), span.synopsis.group_by[::-1]
        assert bits(combined.projected(*family)) == bits(other.projected(*family))
    # what is combined stays as it is, and is what the definition says
    assert bits(combined.combined()) == bits(combined)
    assert same(content([combined]), expected(span, found))
    # by group, in the order of the keys' texts, then start, then shard; no group is without cells
    texts = combined.key_texts.to_pylist()
    assert texts == sorted(set(texts))
    places = list(zip(combined.group.tolist(), combined.starts.tolist(), combined.shards.tolist(), strict=True))
    assert places == sorted(places) and {group for group, _, _ in places} == set(range(combined.groups))
    assert [json.dumps(list(key), separators=(",", ":"), ensure_ascii=False) for key in combined.keys] == texts


def test_the_order_of_equal_cells_does_not_show_in_sums_of_doubles() -> None:
    span = FillRequest(
        simple(states=(state("exact_sum", "price"), state("exact_sum_squares", "price"))), 0, 10 * SECOND
    )
    chance = random.Random(3)
    rows = [{"at": 1, "price": chance.uniform(-1, 1) * 10.0 ** chance.randint(-12, 12)} for _ in range(60)]
    parts = [partials_of([events(row)], STREAM, [span]) for row in rows]
    distinct_bits = set()
    for _ in range(20):
        chance.shuffle(parts)
        distinct_bits.add(bits(Cells.decode(span.synopsis, pa.concat_tables(parts)).combined()))
    assert len(distinct_bits) == 1


# ------------------------------------------------------------------------------------------- rolling up
@MANY
@given(rows_of_events, cuts, spans(), st.data())
def test_a_family_has_its_shards_and_columns(
    found: list[dict[str, Any]], where: list[int], span: FillRequest, data: st.DataObject
) -> None:
    predicate = data.draw(st.sampled_from(span.synopsis.predicates))
    group_by = tuple(data.draw(st.permutations(span.synopsis.group_by)))
    group_by = group_by[: data.draw(st.integers(0, len(group_by)))]
    cells = Cells.decode(span.synopsis, stored(span, found, where)).combined()
    family = cells.projected(span.synopsis.bit(predicate), group_by)
    alone = replace(span, synopsis=replace(span.synopsis, predicates=(predicate,), group_by=group_by))
    assert same(content([family]), expected(alone, found))
    assert family.key_texts.to_pylist() == sorted(family.key_texts.to_pylist())


@MANY
@given(rows_of_events, cuts, spans(), st.data())
def test_coarser_cells_come_from_finer_ones(
    found: list[dict[str, Any]], where: list[int], span: FillRequest, data: st.DataObject
) -> None:
    fine = span.synopsis
    edges = tuple((2 * slide, shift) for slide, shift in fine.edges)
    predicates = tuple(data.draw(st.lists(st.sampled_from(fine.predicates), min_size=1, unique=True)))
    states = fine.states[: data.draw(st.integers(1, len(fine.states)))]
    coarse = Synopsis("trades", "ts", edges, predicates, fine.group_by[1:], states, ())
    instants = coarse.fragments.between(-80 * SECOND, 80 * SECOND).tolist()
    begin = min(instant for instant in instants if instant >= span.begin)
    end = max((instant for instant in instants if instant <= span.end), default=begin)
    rolled = Cells.decode(fine, stored(span, found, where)).rolled_up(coarse, begin, end)
    expected_content = expected(FillRequest(coarse, begin, end), found)
    assert same(content([rolled.merged()]), expected_content)
    assert same(content([rolled.to_store()]), expected_content)


def test_keys_of_a_filter_are_those_of_its_tuples() -> None:
    predicates = tuple(PREDICATES)[:2]  # all, and volume > 0
    span = FillRequest(simple("symbol", "late", predicates=predicates), 0, 10 * SECOND)
    rows = [
        {"at": 1, "symbol": symbol, "late": late, "volume": volume}
        for symbol, late, volume in (("A", True, 1), ("A", False, 1), ("B", True, 0), (None, None, 5), (None, None, 6))
    ]
    cells = Cells.decode(span.synopsis, partials_of([events(*rows)], STREAM, [span]))
    symbol = (("symbol", STRING),)
    for chosen, names in ((predicates[:1], ["A", "B", None]), (predicates[1:], ["A", None])):
        (keys,), count = cells.keys_of(symbol, chosen)
        assert (sorted(keys.to_pylist(), key=str), count) == (names, len(names))


# ---------------------------------------------------------------------------------------------- layout
def test_the_groups_of_one_family_are_in_one_bucket() -> None:
    rows = [{"at": 1, "symbol": f"k{at % 40}", "late": at % 3 == 0} for at in range(200)]
    columns = (("late", TYPES["late"]), ("symbol", STRING))
    synopsis = replace(simple(), group_by=columns, bucket_by=("symbol",))
    rows_stored = partials_of([events(*rows)], STREAM, [FillRequest(synopsis, 0, 10 * SECOND)])
    keyed_buckets = zip(rows_stored["key"].to_pylist(), rows_stored["bucket"].to_pylist(), strict=True)
    for key, bucket in keyed_buckets:
        _, symbol = json.loads(key)
        assert bucket == bucket_of([json.dumps([symbol])])[0]
    assert len(set(rows_stored["bucket"].to_pylist())) > 10
    cells = Cells.decode(replace(synopsis, bucket_by=()), rows_stored)
    assert set(buckets(cells).tolist()) == {bucket_of(["[]"])[0]}


def many_cells(groups: int, fragments: int, days: int = 1) -> list[Cells]:
    """Cells of two synopses, as a task has them."""
    requests = [FillRequest(simple("symbol"), 0, days * DAY), FillRequest(simple("symbol", "tip"), 0, days * DAY)]
    lifting = Lifting(STREAM, requests)
    rows = [
        NULLS | {"at": at * 10 * days + day * 86_400, "symbol": f"k{group}", "volume": group}
        for at in range(fragments)
        for group in range(groups)
        for day in range(days)
    ]
    lifting.add(events(*rows))
    return list(lifting.cells())


def test_row_groups_are_by_bucket_and_a_task_reads_just_its_own(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    tables = [cells.encode() for cells in many_cells(groups=150, fragments=150)]
    all_rows = pa.concat_tables(tables)
    (file,) = write_files(tmp_path, all_rows)
    assert file.rows == len(all_rows) > 5 * BUCKET_ROWS
    path = tmp_path / file.path
    bounds = []
    opened = pq.ParquetFile(path)
    assert opened.num_row_groups > 3
    for group in range(opened.num_row_groups):
        rows = opened.read_row_group(group)
        assert len(rows) >= BUCKET_ROWS or group == opened.num_row_groups - 1
        bounds.append((min(rows["bucket"].to_pylist()), max(rows["bucket"].to_pylist())))
    assert all(previous[1] < other[0] for previous, other in zip(bounds, bounds[1:], strict=False))
    order = [("fingerprint", "ascending"), ("key", "ascending"), ("fragment_start", "ascending")]
    plain = all_rows.drop_columns("day").sort_by(order)
    for bucket_set in (set(range(BUCKETS)), {3}, {0, 1, 2, 40}, set()):
        read_tables = list(read_buckets([str(path)], bucket_set))
        if not bucket_set:
            assert read_tables == []
            continue
        rows = pa.concat_tables(read_tables).cast(plain.schema).sort_by(order)
        assert rows.equals(plain.filter(pa.compute.is_in(plain["bucket"], pa.array(sorted(bucket_set), pa.int32()))))


def test_small_files_of_many_synopses_are_by_bucket_too(tmp_path: Path) -> None:
    tables = [cells.encode() for cells in many_cells(groups=7, fragments=3, days=2)] * 20
    all_rows = pa.concat_tables(tables)
    files = list(write_files(tmp_path, all_rows))
    assert [file.day for file in files] == ["1970-01-01", "1970-01-02"]
    assert sum(file.rows for file in files) == len(all_rows)
    rows = pa.concat_tables(read_buckets([str(tmp_path / file.path) for file in files], set(range(BUCKETS))))
    assert sorted(rows["key"].to_pylist()) == sorted(all_rows["key"].to_pylist())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(15))
@given(st.lists(st.integers(1, 40), min_size=2, max_size=4), st.integers(1, 1 << 14))
def test_pieces_of_files_of_unequal_sizes_are_put_together(
    tmp_path_factory: pytest.TempPathFactory, fragments: list[int], most: int
) -> None:
    """Those that are cut, and those that are small enough as they are."""
    root = tmp_path_factory.mktemp("unequal")
    tables = [cells.encode() for number in fragments for cells in many_cells(groups=3, fragments=number)]
    paths = [str(root / file.path) for table in tables for file in write_files(root, table)]
    read = list(read_buckets(paths, set(range(BUCKETS))))
    sliced = pa.concat_tables(_slices(iter(read), most))
    all_rows = pa.concat_tables(read)
    assert sliced.schema == all_rows.schema and sliced.to_pylist() == all_rows.to_pylist()


# ------------------------------------------------------------------------------------------- numbering
longs = st.lists(st.integers(-100, 100) | st.integers(LONG_MIN, LONG_MAX), max_size=40)


@settings(deadline=None)
@given(longs, st.booleans(), st.sampled_from([1, 4, 16, numbering.FEW_DISTINCT]))
def test_distinct_values_are_numbered_in_their_order(values: list[int], dense: bool, few: int) -> None:
    array = np.array(values, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        # a table that is full, one that is not, none
        patch.setattr(numbering, "FEW_DISTINCT", few)
        distinct, number = distinct_of(array)
    assert distinct.tolist() == sorted(set(values)) and distinct[number].tolist() == values
    codes: Longs = np.abs(array % 1000)
    distinct_codes, number = numbered(codes, 1000 if dense else 1 << 60)
    assert distinct_codes.tolist() == sorted(set(codes.tolist())) and distinct_codes[number].tolist() == codes.tolist()


def test_a_hash_table_grows() -> None:
    codes = np.random.default_rng(1).integers(0, 1 << 60, 30_000)
    codes = np.concatenate([codes, codes[::-1]])
    distinct_codes, number = numbered(codes, 1 << 60)
    assert (distinct_codes[number] == codes).all() and (np.diff(distinct_codes) > 0).all()


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=9, unique=True), st.lists(st.integers(0, 120), max_size=30))
def test_positions_are_those_of_a_binary_search(bounds: list[int], steps: list[int]) -> None:
    array, values = np.array(sorted(bounds)), min(bounds) + np.array(steps, dtype=np.int64)
    assert positions_in(array, values).tolist() == (np.searchsorted(array, values, side="right") - 1).tolist()


@settings(deadline=None)
@given(
    st.lists(st.integers(-3 * DAY, 3 * DAY), max_size=20),
    st.sampled_from([((60 * SECOND, 0),), ((7 * SECOND, 3), (11 * SECOND, 0)), ((1, 0),), ((DAY, 5),)]),
)
def test_fragments_of_instants(instants: list[int], edges: tuple[tuple[int, int], ...]) -> None:
    """Of a few edges by their list, of very many one by one."""
    times = np.array(instants, dtype=np.int64)
    starts, ends, number = fragments_of(Fragments(edges), times)
    expected_starts = Fragments(edges).starts(times)
    assert starts[number].tolist() == expected_starts.tolist()
    assert ends[number].tolist() == Fragments(edges).ends(expected_starts).tolist()


def test_rows_of_columns_are_distinct_as_tuples() -> None:
    first, second = pa.array(["a", None, "a", None, "b"]), pa.array([None, "x", None, None, "x"])
    columns, number, count = distinct_rows([first, second], 5)
    assert count == 4
    pairs = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert [pairs[at] for at in number] == list(zip(first.to_pylist(), second.to_pylist(), strict=True))
    for rows in (5, 0):
        columns, number, count = distinct_rows([], rows)
        assert (columns, number.tolist(), count) == ((), [0] * rows, min(rows, 1))


@pytest.mark.parametrize("values", [["a", None, "b", "a"], [None, None], []])
def test_columns_are_encoded_with_their_nulls(values: list[str | None]) -> None:
    plain = pa.array(values, pa.string())
    for column in (plain, plain.dictionary_encode(), plain.dictionary_encode("encode")):
        dictionary, indices = encoded(column)
        assert [dictionary[at].as_py() for at in indices.tolist()] == values


def test_texts_are_ranked_in_the_order_of_their_type() -> None:
    ranks, texts = ranked(pa.array(["10.00", "-3.10", None, "9.50", "-3.10"]), decimal(30, 2))
    assert (ranks.tolist(), texts.to_pylist()) == ([2, 0, -1, 1, 0], ["-3.10", "9.50", "10.00"])
    ranks, texts = ranked(pa.array(["b", "é", "", None, "B"]), STRING)
    assert (ranks.tolist(), texts.to_pylist()) == ([2, 3, 0, -1, 1], ["", "B", "b", "é"])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 9)), max_size=40),
    st.sampled_from([10, 2**25]),
)
def test_tuples_are_numbered_in_their_order(tuples: list[tuple[int, int, int]], bound: int) -> None:
    """By a table where there are few possible ones, by sorting where there are very many."""
    columns = [np.array([triple[place] for triple in tuples], dtype=np.int64) for place in range(3)]
    row, number = numbered_tuples(list(zip(columns, (bound, 3, 10), strict=True)), len(tuples))
    distinct = sorted(set(tuples))
    assert [tuples[at] for at in row] == distinct
    assert [distinct[at] for at in number] == tuples
