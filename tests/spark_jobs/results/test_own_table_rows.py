"""Generated versions of a query's own table: the feed tells the rows that changed and no others."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizer.workload.values import AnswerTable
from spark_jobs.operations.file_checks import check_files
from spark_jobs.results import own_table
from spark_jobs.results.own_table import TableRequest
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.sizes import examples

HOUR = 3_600_000_000
FIRST = 1_372_636_800_000_000
SCHEMA = pa.schema(
    [
        pa.field("instant", INSTANT),
        pa.field("carrier", pa.string()),
        pa.field("mean", pa.float64()),
        pa.field("money", pa.decimal128(38, 2)),
        pa.field("revision", pa.int64()),
        pa.field("day", pa.string()),
    ]
)

Answers = dict[tuple[int, str], tuple[float | None, int]]
"""By hour and group: a mean, and cents."""

Hours = list[tuple[int, int]] | None
"""Spans (begin, end] of hours; None: all."""

SPANS: list[Hours] = [None, [(0, 12)], [(0, 6), (20, 30)]]

KEYS = st.tuples(st.integers(1, 30), st.sampled_from(["AA", "it's", "", "x" * 80]))
VALUES = st.tuples(st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, None]), st.sampled_from([0, -5, 10**37 + 1]))
ANSWERS = st.dictionaries(KEYS, VALUES, max_size=12)


def rows_of(answers: Answers, revision: int) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for (hour, carrier), (mean, cents) in sorted(answers.items()):
        columns["instant"].append(FIRST + hour * HOUR)
        columns["carrier"].append(carrier)
        columns["mean"].append(mean)
        columns["money"].append(Decimal(cents).scaleb(-2, Context(prec=40)))
        columns["revision"].append(revision)
        columns["day"].append("2013-07-01" if hour <= 24 else "2013-07-02")
    columns["instant"] = pa.array(columns["instant"], pa.int64()).cast(INSTANT)
    return pa.table(columns, schema=SCHEMA)


def counted(rows: list[dict[str, Any]], with_revision: bool = True) -> Counter[str]:
    names = [name for name in SCHEMA.names if with_revision or name != "revision"]
    return Counter(str([row[name] for name in names]) for row in rows)


def inside(hour: int, hours: Hours) -> bool:
    return hours is None or any(begin < hour <= end for begin, end in hours)


def fed(current: DeltaTable, since: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows that the feed deletes and inserts after a version."""
    rows = pa.table(DeltaTable(current.table_uri).load_cdf(starting_version=since + 1)).to_pylist()
    assert {row["_change_type"] for row in rows} <= {"delete", "insert"}
    deleted = [row for row in rows if row["_change_type"] == "delete"]
    return deleted, [row for row in rows if row["_change_type"] == "insert"]


NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return Warehouse.open(tmp_path_factory.mktemp("own") / "house")


@settings(max_examples=examples(25))
@given(
    versions=st.lists(
        st.tuples(ANSWERS, st.sampled_from([None, [(0, 12)], [(0, 6), (20, 30)]])), min_size=2, max_size=4
    ),
    has_changes=st.booleans(),
)
@example(
    versions=[
        ({(hour, "AA"): (1.0, 1) for hour in range(1, 10)}, None),
        ({(hour, "AA"): (2.0 if hour < 4 else 1.0, 1) for hour in range(1, 10)}, None),
    ],
    has_changes=True,
)
def test_the_feed_has_the_rows_that_changed_and_no_others(
    versions: list[tuple[Answers, Hours]],
    has_changes: bool,
    warehouse: Warehouse,
) -> None:
    """Applied to the version before, what a commit feeds gives the version after; nothing in it is as it was."""
    request = TableRequest("q", AnswerTable(f"q{next(NUMBERS)}", has_changes), "", "SELECT", False)
    known: Answers = {}
    with warehouse.lease() as token:
        current = own_table.made(warehouse, request, SCHEMA, token)
        for revision, (answers, hours) in enumerate(versions, 1):
            spans = hours and [(FIRST + begin * HOUR, FIRST + end * HOUR) for begin, end in hours]

            new = {key: value for key, value in answers.items() if inside(key[0], hours)}
            since, before = int(current.version()), current.to_pyarrow_table().to_pylist()
            current = own_table.replace(
                warehouse, request, current, rows_of(new, revision), spans, [("results", revision)], token
            )
            known = {key: value for key, value in known.items() if not inside(key[0], hours)} | new
            after = current.to_pyarrow_table().to_pylist()
            assert counted(after, False) == counted(rows_of(known, 0).to_pylist(), False)
            if current.version() == since:
                assert counted(before) == counted(after)
                continue
            assert current.transaction_version("results") == revision
            # what stays has the revision that it had
            same = counted(before, False) & counted(after, False)
            assert same.total() == (counted(before) & counted(after)).total()
            if has_changes:
                deleted, come = fed(current, since)
                assert counted(before) - counted(deleted) + counted(come) == counted(after)
                assert not counted(deleted) - counted(before) and not counted(deleted, False) & counted(come, False)
    checked = check_files(warehouse, [request.name])
    assert not checked.damaged and not checked.without_checksum
    assert _found(current, "AA") == sum(carrier == "AA" for _, carrier in known)


def _found(current: DeltaTable, carrier: str) -> int:
    """Rows that a reader finds who passes over files by their statistics."""
    return int(current.to_pyarrow_dataset().to_table(filter=ds.field("carrier") == carrier).num_rows)
