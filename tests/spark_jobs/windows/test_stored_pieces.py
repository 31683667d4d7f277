"""Which pieces of partials are stored, as their marks in any files say, and which files are read for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from spark_jobs.store.warehouse.data_files import write_files
from spark_jobs.store.warehouse.held_tables import Files
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.partials.stored_coverage import coverage
from spark_jobs.windows.partials.stored_marks import StoredMarks, overlaps
from tests.sizes import examples

Row = tuple[str, str, str | None, int, int]
"""Stream, fingerprint, key (None: a mark), and the span [begin, end) of a row."""

ROWS: list[Row] = [
    ("trades", "f", None, 0, 10),
    ("trades", "f", None, 10, 20),
    ("trades", "f", "[]", 10, 20),
    ("trades", "f", None, 20, DAY),
    ("trades", "f", None, DAY, DAY + 5),
    ("quotes", "g", None, 0, 10),
]


def stored(warehouse: Warehouse, rows: list[Row], is_replaced: Callable[[int, int], bool] = lambda *_: False) -> None:
    """Commit rows in place of those of some spans. A mark's content is named after its number."""
    number = warehouse.version("partials")
    records = [
        {"day": day_label(begin), "stream": stream, "fingerprint": name, "fragment_start": begin, "fragment_end": end}
        | {"key": key, "shard": None if key is None else 1, "bucket": -1 if key is None else 3}
        | {"longs": [], "doubles": [], "texts": [f"{number}.{at}"]}
        for at, (stream, name, key, begin, end) in enumerate(rows)
    ]
    table = pa.Table.from_pylist(records, schema=PARTIALS)
    files = list(write_files(warehouse.path("partials"), table)) if rows else []

    def replaced(before: pa.Table) -> pa.Array:
        spans = zip(before["fragment_start"].to_pylist(), before["fragment_end"].to_pylist(), strict=True)
        return pa.array([is_replaced(*span) for span in spans], pa.bool_())

    warehouse.replace("partials", files, ("0000", "9999"), replaced, "all", None)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    house = Warehouse.open(tmp_path_factory.mktemp("pieces") / "w")
    stored(house, ROWS)
    return house


@pytest.mark.parametrize(
    ("within", "begins"),
    [(None, [0, 10, 20, DAY]), ((10, 20), [10]), ((9, 21), [0, 10, 20]), ((0, 1), [0]), ((DAY, DAY + 1), [DAY])],
)
def test_pieces_that_only_touch_a_span_are_not_in_it(
    warehouse: Warehouse, within: tuple[int, int] | None, begins: list[int]
) -> None:
    stored_pieces = coverage(warehouse, ["f"], within=within)
    assert [piece[0] for piece in stored_pieces.get("f", [])] == begins


def test_pieces_of_a_stream_are_of_all_its_synopses(warehouse: Warehouse) -> None:
    assert coverage(warehouse, None, stream="quotes") == {"g": [(0, 10, "0.5")]}
    assert coverage(warehouse, []) == {}


# ------------------------------------------------------------------------------------- one object, many versions
NAMES = ["a" * 64, "b", "c", "ü" * 70]
instants = st.integers(0, 8).map(lambda number: number * DAY // 2)
span = st.tuples(instants, instants).filter(lambda pair: pair[0] < pair[1])
row = st.tuples(st.sampled_from(["trades", "quotes"]), st.sampled_from(NAMES), st.sampled_from([None, "[]"]), span)


@dataclass(frozen=True)
class Asked:
    names: list[str] | None
    spans: list[tuple[int, int]] | None
    stream: str


@dataclass(frozen=True)
class Commit:
    rows: list[Any]
    replaced: tuple[int, int]


asked = st.builds(
    Asked,
    st.one_of(st.none(), st.lists(st.sampled_from(NAMES), max_size=3, unique=True)),
    st.one_of(st.none(), st.lists(span, max_size=3)),
    st.sampled_from(["trades", "quotes"]),
)
commit = st.builds(Commit, st.lists(row, max_size=6), st.one_of(st.just((0, 0)), span))


def expected(warehouse: Warehouse, asked: Asked) -> dict[str, list[tuple[int, int, str]]]:
    """The answer by looking at every row."""
    pieces: dict[str, list[tuple[int, int, str]]] = {}
    for each in warehouse.dataset("partials").to_table().to_pylist():
        begin, end, name = each["fragment_start"], each["fragment_end"], each["fingerprint"]
        is_of = each["stream"] == asked.stream if asked.names is None else name in asked.names
        is_in = asked.spans is None or any(begin < last and end > first for first, last in asked.spans)
        if each["key"] is None and is_of and is_in:
            pieces.setdefault(name, []).append((begin, end, each["texts"][0]))
    return {name: sorted(of_name) for name, of_name in pieces.items()}


def starts_in(span: tuple[int, int], begin: int, end: int) -> bool:
    return span[0] <= begin < span[1]


@settings(max_examples=examples(25, 150), deadline=None)
@given(st.lists(st.one_of(commit, asked, asked), min_size=2, max_size=8))
def test_marks_of_every_version_are_those_of_its_rows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Commit | Asked]
) -> None:
    house = Warehouse.open(tmp_path_factory.mktemp("marks") / "w")
    marks = StoredMarks(house)
    for step in steps:
        if isinstance(step, Asked):
            assert marks.under(house.table("partials"), step.names, step.spans, step.stream) == expected(house, step)
        else:
            rows = [(stream, name, key, *of_row) for stream, name, key, of_row in step.rows]
            stored(house, rows, partial(starts_in, step.replaced))


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by the number of files of each reading of marks."""
    numbers: list[int] = []
    original = Warehouse.dataset

    def noting(self: Any, table: str, current: Any, where: Any, files: Files) -> ds.Dataset:
        dataset = original(self, table, current, where, files)
        numbers.append(len(dataset.files))
        return dataset

    monkeypatch.setattr(Warehouse, "dataset", noting)
    return numbers


def test_each_file_is_read_once_and_only_files_that_may_have_the_marks(tmp_path: Path, files_read: list[int]) -> None:
    house = Warehouse.open(tmp_path / "w")
    for day in range(4):
        stored(
            house, [("trades", "f", None, day * DAY, (day + 1) * DAY), ("trades", "f", "[]", day * DAY, day * DAY + 1)]
        )
        stored(house, [("trades", "g", None, day * DAY, (day + 1) * DAY)])
    marks = StoredMarks(house)
    ask = lambda *given: marks.under(house.table("partials"), *given)  # noqa: E731
    assert len(ask(["f"], [(0, DAY), (2 * DAY, 3 * DAY)])["f"]) == 2
    assert len(ask(["f"], [(0, 3 * DAY)])["f"]) == 3
    assert len(ask(["f"], [(0, 3 * DAY)])["f"]) == 3
    assert files_read == [2, 1]
    stored(house, [("trades", "f", None, 4 * DAY, 5 * DAY)])
    assert len(ask(["f"], [(0, 5 * DAY)])["f"]) == 5
    assert files_read == [2, 1, 2]
    # a file that was read is replaced by another one
    stored(house, [("trades", "f", None, 0, DAY)], lambda first, _: first == 0)
    assert ask(["f"], [(0, DAY)])["f"] == [(0, DAY, "9.0")]
    assert files_read == [2, 1, 2, 1]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6),
    st.lists(span.map(lambda s: (s[0] // DAY * 3, s[1] // DAY * 3 + 1)), max_size=4),
)
def test_overlaps_are_those_of_each_pair(pieces: list[tuple[int, int]], spans: list[tuple[int, int]]) -> None:
    starts, ends = np.array(pieces, dtype=np.int64).reshape(-1, 2).T
    assert overlaps(starts, ends, spans).tolist() == [
        any(start < last and end > first for first, last in spans) for start, end in zip(starts, ends, strict=True)
    ]
