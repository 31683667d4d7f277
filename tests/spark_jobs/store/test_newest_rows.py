"""The newest rows of logs, which are read no further than that takes, are those that the whole logs have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.operations import maintenance
from spark_jobs.store.warehouse import checks_log, publish_log
from spark_jobs.store.warehouse.checks_log import CheckRow
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.sizes import examples

batches = st.lists(
    st.one_of(
        st.just("merge"),
        # of each row its interval, whether it failed, and when it was logged
        st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 30)), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=examples(40), deadline=None)
@given(history=batches, most=st.integers(1, 4))
def test_the_newest_are_those_of_the_whole_logs(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any], most: int
) -> None:
    warehouse = Warehouse.open(tmp_path_factory.mktemp("newest") / "house")
    revisions: dict[int, int] = {}
    logged: list[LogRow] = []
    checks: list[CheckRow] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maintenance, "ROWS_IN_GROUPS", {"publish_log": 2, "quality_results": 2})
        for batch in history:
            if batch == "merge":
                maintenance.merge_logs(warehouse, most=0)
                continue
            rows: list[LogRow] = []
            for interval, failed, second in batch:
                # no two at one moment: which of those comes first is not said
                moment = second * 1_000_000 + len(logged) + len(rows)
                revisions[interval] = revisions.get(interval, 0) + 1
                event: Any = "failed" if failed else "published"
                span = interval * 10, interval * 10 + 10
                rows.append(
                    LogRow(
                        *span, revisions[interval], "a", event, 1, None, 0, moment, moment, text_of(interval, moment)
                    )
                )
            new_checks = [CheckRow("a", 0, 1, "gx:x", row.event == "published", row.at, f"{row.at}") for row in rows]
            checks_log.log(warehouse, new_checks)
            with warehouse.lease() as token:
                warehouse.append("publish_log", [row.to_row() for row in rows], token)
            logged += rows
            checks += new_checks
    failures = sorted((check for check in checks if not check.success), key=lambda check: -check.at)
    assert checks_log.newest_failed(warehouse, most) == failures[:most]
    published = [row for row in logged if row.event == "published"]
    again: dict[int, int] = {}
    for row in published:
        if row.revision > 1:
            again[row.begin] = max(again.get(row.begin, row.at), row.at)
    of_interval = {begin: [row for row in published if row.begin == begin] for begin in again}
    several = [begin for begin in sorted(again, key=lambda begin: -again[begin]) if len(of_interval[begin]) > 1]
    revised = publish_log.newest_revised(warehouse, most)
    assert [sorted(row.at for row in rows) for rows in revised] == [
        sorted(row.at for row in of_interval[begin]) for begin in several[:most]
    ]
    assert all(row.text == text_of(row.begin // 10, row.at) for rows in revised for row in rows)
    check_what_was_read(publish_log.publications_read(warehouse, None), published)


def text_of(interval: int, moment: int) -> str:
    """The record of a run, which says of odd intervals what it has read."""
    read = {f"s{number}": (interval - number, interval + 9, "declared") for number in range(interval)}
    return json.dumps({"read": read, "listed": dict.fromkeys(read, moment)} if interval % 2 else {})


def check_what_was_read(known: publish_log.Publications, published: list[LogRow]) -> None:
    """The columns are those of the rows, also those that are read later."""
    rows = {row.at: row for row in published}
    of: dict[int, list[tuple[Any, ...]]] = {}
    for owner, read in zip(known.owner.tolist(), known.reads.to_pylist(), strict=True):
        of.setdefault(owner, []).append(tuple(read.values()))
    begins, ends, table_versions = known.results
    stand = {row.at for row in publish_log.standing(published)}
    assert sorted(known.at.tolist()) == sorted(rows)
    for number, at in enumerate(known.at.tolist()):
        row, interval = rows[at], rows[at].begin // 10
        assert (begins[number], ends[number], table_versions[number]) == (row.begin, row.end, row.table_version)
        expected_reads = [(f"s{each}", interval - each, interval + 9, at, "declared") for each in range(interval)]
        assert (known.is_told[number], of.get(number, [])) == (
            bool(interval % 2),
            expected_reads if interval % 2 else [],
        )
        assert known.stands(number) == (at in stand)
