"""What families share of a batch: signatures of all predicates, fragments of all edges, cells numbered from both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import absorb
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Call, Column, Expression, Literal
from spark_jobs.store.arrays import numbering
from spark_jobs.streams.sources.expressions import evaluate
from spark_jobs.windows.partials import kernels, values
from spark_jobs.windows.partials.kernels import Coded, numbered_cells
from spark_jobs.windows.partials.values import Batch
from tests.sizes import examples

SCHEMA = {"ts": TIMESTAMP, "side": STRING, "other": STRING, "price": DOUBLE, "volume": LONG}


def comparisons() -> st.SearchStrategy[Expression]:
    texts = st.sampled_from(["", "A", "B", "ab", "%"]).map(lambda text: Literal(text, STRING))
    names = st.sampled_from(["side", "other"]).map(Column)
    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    numbers = st.sampled_from([float("nan"), -0.0, 0.0, 1.5]).map(lambda number: Literal(number, DOUBLE))
    of_price = st.builds(lambda name, number: Call(name, (Column("price"), number)), operators, numbers)
    return st.one_of(
        st.builds(lambda name, left, right: Call(name, (left, right)), operators, names, texts),
        st.builds(lambda name, left, right: Call(name, (right, left)), operators, names, texts),
        st.builds(lambda name: Call(name, (Column("side"), Column("other"))), operators),
        st.builds(lambda name: Call("is_null", (name,)), names),
        st.builds(lambda name, some: Call("in", (name, *some)), names, st.lists(texts, min_size=1, max_size=3)),
        of_price,
    )


def combined(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    both = st.builds(lambda name, operands: Call(name, operands), st.sampled_from(["and", "or"]), several)
    return st.one_of(both, parts.map(lambda part: Call("not", (part,))))


PREDICATES = st.recursive(comparisons(), combined, max_leaves=5)

TEXTS = st.sampled_from([None, "", "A", "B", "ab", "a%b"])

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "side": TEXTS,
            "other": TEXTS,
            "price": st.sampled_from([None, float("nan"), -0.0, 0.0, 1.0, 2.0]),
            "volume": st.sampled_from([None, 0, 1]),
        }
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=ROWS,
    predicates=st.lists(PREDICATES, min_size=1, max_size=6, unique=True),
    encoded=st.sets(st.sampled_from(["side", "other"])),
    at_once=st.sampled_from([1, 2, 12]),
    cut=st.integers(0, 3),
    data=st.data(),
)
def test_signatures_are_what_each_predicate_says(
    rows: list[dict[str, Any]],
    predicates: list[Expression],
    encoded: set[str],
    at_once: int,
    cut: int,
    data: st.DataObject,
) -> None:
    """Of columns with and without dictionaries, cut out of larger ones, whatever is null; of any of the predicates."""
    table = pa.Table.from_pylist(
        rows,
        pa.schema([("side", pa.string()), ("other", pa.string()), ("price", pa.float64()), ("volume", pa.int64())]),
    )
    plain = table.combine_chunks().to_batches()[0].slice(min(cut, len(rows) - 1))
    batch = table.set_column(0, "side", table["side"].dictionary_encode()) if "side" in encoded else table
    batch = batch.set_column(1, "other", batch["other"].dictionary_encode()) if "other" in encoded else batch
    batch = batch.combine_chunks().to_batches()[0].slice(min(cut, len(rows) - 1))
    times = np.arange(len(plain), dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "PREDICATES_AT_ONCE", at_once)
        shared = Batch(batch, times, SCHEMA, ((10, 0),), (None, *predicates))
        subset = tuple(data.draw(st.lists(st.sampled_from([None, *predicates]), min_size=1, max_size=4, unique=True)))
        signatures, shard_of, selected = shared.shards(subset)
    truth = [
        [True] * len(plain)
        if predicate is None
        else [value is True for value in evaluate(predicate, plain, SCHEMA).to_pylist()]
        for predicate in subset
    ]
    expected = [sum(satisfied[at] << bit for bit, satisfied in enumerate(truth)) for at in range(len(plain))]
    row_signatures = [-1 if shard < 0 else int(signatures[shard]) for shard in shard_of[shared.signature].tolist()]
    assert [signature if signature else -1 for signature in expected] == row_signatures
    assert signatures.tolist() == sorted(set(expected) - {0})
    passing = [at for at, signature in enumerate(expected) if signature]
    assert passing == (list(range(len(plain))) if selected is None else selected.tolist())


@pytest.mark.parametrize("encoded", [True, False])
def test_what_is_null_satisfies_no_comparison(encoded: bool) -> None:
    """A null stands beside the values of a dictionary: it is none of them, and is_null finds it alone."""
    column = pa.array(["A", None, "B", "A", None])
    batch = pa.record_batch({"side": column.dictionary_encode() if encoded else column}).slice(1)
    side = Column("side")
    some, literal_b, none = (Literal(text, STRING) for text in ("A", "B", "C"))
    expected_rows = {
        Call("=", (side, some)): [2],
        Call("!=", (side, none)): [1, 2],
        Call("in", (side, some, literal_b)): [1, 2],
        Call("is_null", (side,)): [0, 3],
    }
    shared = Batch(batch, np.arange(4), SCHEMA, ((10, 0),), tuple(expected_rows))
    for predicate, rows in expected_rows.items():
        _, _, selected = shared.shards((predicate,))
        assert selected is not None and selected.tolist() == rows


EDGES = st.lists(st.tuples(st.sampled_from([4, 6, 10, 60]), st.integers(0, 3)), min_size=1, max_size=3).map(absorb)


@settings(max_examples=examples(100), deadline=None)
@given(
    times=st.lists(st.integers(-200, 200), min_size=1, max_size=40),
    edges=st.lists(EDGES, min_size=1, max_size=4),
)
def test_fragments_of_all_edges_lie_in_those_of_each(times: list[int], edges: list[Any]) -> None:
    """In any order of time: what a synopsis makes of the numbers that all share is the fragment of each event."""
    at = np.array(times, dtype=np.int64)
    every = absorb(edge for some in edges for edge in some)
    batch = Batch(pa.record_batch({"n": pa.array(times)}), at, SCHEMA, every, (None,))
    for some in edges:
        synopsis = Synopsis("trades", "ts", some, (None,), (), (), ())
        starts, ends, place = batch.fragments(synopsis)
        fragment_of_event = place[batch.fragment]
        assert starts[fragment_of_event].tolist() == synopsis.fragments.starts(at).tolist()
        assert ends[fragment_of_event].tolist() == synopsis.fragments.ends(starts[fragment_of_event]).tolist()


@pytest.mark.parametrize("dense", [numbering.DENSE, -(10**9)])
@settings(max_examples=examples(80), deadline=None)
@given(
    events=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=60),
    is_grouped=st.booleans(),
    is_sharded=st.booleans(),
    is_selected=st.booleans(),
)
def test_cells_are_numbered_alike_through_tables_and_hashes(
    dense: int, events: list[tuple[int, int, int]], is_grouped: bool, is_sharded: bool, is_selected: bool
) -> None:
    fragment, group, signature = (np.array(column, dtype=np.int32) for column in zip(*events, strict=True))
    groups, shards = 5 if is_grouped else 1, 3 if is_sharded else 1
    rows = np.arange(0, len(events), 2, dtype=np.int32) if is_selected else np.empty(0, dtype=np.int32)
    chosen = rows.tolist() if is_selected else list(range(len(events)))
    coded = Coded(
        fragment,
        np.arange(4, dtype=np.int64) * groups * shards,
        group if is_grouped else group[:0],
        shards,
        signature,
        np.array([2, 0, 1], dtype=np.int32),
        4 * groups * shards,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "DENSE", dense)
        patch.setattr(numbering, "DENSE", dense)
        cell, codes, counts = numbered_cells(len(chosen), rows, coded)
    expected = [
        (events[at][0] * groups + (events[at][1] if is_grouped else 0)) * shards
        + ([2, 0, 1][events[at][2]] if is_sharded else 0)
        for at in chosen
    ]
    assert codes.tolist() == sorted(set(expected))
    assert [codes[number] for number in cell] == expected
    assert counts.tolist() == [expected.count(code) for code in codes]
