"""Sketches in the form of Apache DataSketches: read by the library, of equal bytes for equal values."""

from __future__ import annotations

import base64
import math
from collections import Counter
from typing import Any

import datasketches
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.aggregates.datasketches import hll_sketch, quantile_sketch, theta_sketch
from tests.sizes import examples


def multiset(values: list[Any]) -> tuple[Any, Any]:
    counts = Counter(values)
    distinct = sorted(counts)
    return np.array(distinct), np.array([counts[value] for value in distinct], dtype=np.int64)


def read_kll(sketch: bytes, of_doubles: bool) -> Any:
    serde = datasketches.PyDoublesSerDe() if of_doubles else datasketches.PyLongsSerDe()
    return datasketches.kll_items_sketch.deserialize(sketch, serde)


VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=400),
    st.lists(st.integers(-5, 5), min_size=1, max_size=400),
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=400).map(lambda all: [value + 0.0 for value in all]),
    st.integers(1, 5000).map(lambda most: list(range(most))),
)


@settings(max_examples=examples(150), deadline=None)
@given(VALUES, st.sampled_from((8, 9, 50, 200, 1000)))
def test_every_rank_of_a_quantile_sketch_is_within_its_error(values: list[Any], k: int) -> None:
    sketch = quantile_sketch(*multiset(values), k)
    assert sketch is not None and sketch == quantile_sketch(*multiset(values[::-1]), k)
    read, n = read_kll(sketch, isinstance(values[0], float)), len(values)
    assert (read.n, read.k, read.get_min_value(), read.get_max_value()) == (n, k, min(values), max(values))
    assert read.num_retained <= k + 62
    off = n / k if n > k else 0
    ordered = np.array(sorted(values))
    for value in ordered[:: max(1, n // 40)].tolist():
        true = int(np.searchsorted(ordered, value, side="right"))
        assert abs(read.get_rank(value, True) * n - true) <= off + 1e-6


@pytest.mark.parametrize("weights", [(2**40, 3), (1, 2**61), (5, 10**15 + 1)])
def test_weights_of_any_size_are_kept(weights: tuple[int, int]) -> None:
    sketch = quantile_sketch(np.array([-4, 9]), np.array(weights), 200)
    assert sketch is not None
    read = read_kll(sketch, False)
    assert read.n == sum(weights) and read.get_rank(-4, True) == pytest.approx(weights[0] / sum(weights), abs=1 / 200)


def test_quantile_sketches_merge_with_the_librarys() -> None:
    ours = quantile_sketch(*multiset([float(value) for value in range(1000)]), 200)
    library_sketch = datasketches.kll_doubles_sketch(200)
    for value in range(1000, 2000):
        library_sketch.update(float(value))
    assert ours is not None
    library_sketch.merge(datasketches.kll_doubles_sketch.deserialize(ours))
    assert library_sketch.n == 2000 and abs(library_sketch.get_quantile(0.5) - 1000) < 2000 * 0.03


def test_nan_is_in_no_quantile_sketch() -> None:
    values = np.array([1.5, math.inf, math.nan])
    sketch = quantile_sketch(values, np.array([2, 1, 7]), 200)
    assert sketch is not None and read_kll(sketch, True).n == 3
    assert quantile_sketch(values[2:], np.array([7]), 200) is None


@pytest.mark.parametrize("make, read", [(hll_sketch, "hll_sketch"), (theta_sketch, "compact_theta_sketch")])
def test_distinct_values_are_estimated_and_bytes_are_equal(make: Any, read: str) -> None:
    for values in ([*range(100_000)], [f"key {at}" for at in range(3000)], [-1, 7], [""]):
        distinct, weights = multiset(values)
        sketch = make(distinct, weights, 12)
        assert sketch == make(distinct.copy(), 2 * weights, 12)
        # DataSketches ignores the empty text
        count = len(values) if values != [""] else 0
        estimate = getattr(datasketches, read).deserialize(sketch).get_estimate()
        assert abs(estimate - count) <= 0.01 + 6 * count / 64
    assert make(np.array([], dtype=np.int64), np.array([], dtype=np.int64), 12) is None


def test_stored_sketches_outlive_a_version_of_the_library() -> None:
    """These bytes are in warehouses, and hashed: they must not change."""
    values, weights = multiset([1, 2, 3, 3])
    sketches = [hll_sketch(values, weights, 4), theta_sketch(values, weights, 5), quantile_sketch(values, weights, 8)]
    assert [base64.b64encode(sketch or b"").decode() for sketch in sketches] == STORED


STORED = [
    "AgEHBAMIAwgr8vsGhi/5DXWBZgc=",
    "AgMDAAAazJMDAAAAAAAAABX5fcu9hqEFw5f8EoFwnR66QLPB2gZpXQ==",
    "BQEPAggACAAEAAAAAAAAAAgAAQAEAAAAAQAAAAAAAAADAAAAAAAAAAEAAAAAAAAAAgAAAAAAAAADAAAAAAAAAAMAAAAAAAAA",
]
