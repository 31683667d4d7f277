"""What is counted of logs, as they are appended to and merged, is what all their rows say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.operations import maintenance
from spark_jobs.store.warehouse import checks_log, log_counts, publish_log
from spark_jobs.store.warehouse.checks_log import RECOMPUTED, CheckRow
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.sizes import examples

steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 4), st.integers(1, 2)),
        st.tuples(st.just("fail"), st.integers(0, 4), st.just(1)),
        st.tuples(st.just("check"), st.booleans(), st.booleans()),
        st.tuples(st.sampled_from(["merge", "lose"]), st.just(0), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=examples(30), deadline=None)
@given(history=steps)
def test_counts_are_what_all_rows_say(tmp_path_factory: pytest.TempPathFactory, history: list[Any]) -> None:
    warehouse = Warehouse.open(tmp_path_factory.mktemp("counted") / "house")
    revisions: dict[tuple[int, int], int] = {}
    published: set[tuple[int, int]] = set()
    checks: list[tuple[bool, bool]] = []
    for at, (step, first, second) in enumerate(history):
        if step in ("publish", "fail"):
            span = first * 10, first * 10 + 10 * second
            revisions[span] = revisions.get(span, 0) + 1
            event: Any = "published" if step == "publish" else "failed"
            row = LogRow(*span, revisions[span], f"{at}", event, 1, None, 0, at, at, "{}")
            with warehouse.lease() as token:
                warehouse.append("publish_log", [row.to_row()], token)
            published |= {span} if step == "publish" else set()
        elif step == "check":
            name = f"{RECOMPUTED}q)" if first else "gx:other"
            checks_log.log(warehouse, [CheckRow("a run", 0, 1, name, second, at)])
            checks.append((first, second))
        elif step == "merge":
            maintenance.merge_logs(warehouse, most=0)
        else:
            for file in (warehouse.root / log_counts.COUNTS).glob("*"):
                file.write_text("{")
        assert publish_log.intervals_published(warehouse) == len(published)
        check_counts = checks_log.counts(warehouse)
        failed = [is_recomputed for is_recomputed, success in checks if not success]
        assert (check_counts.passed, check_counts.failed) == (len(checks) - len(failed), len(failed))
        assert (check_counts.recomputed, check_counts.different) == (sum(first for first, _ in checks), sum(failed))


def test_what_was_merged_is_not_counted_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    warehouse = Warehouse.open(tmp_path / "house")
    for at in range(4):
        checks_log.log(warehouse, [CheckRow("a run", 0, 1, "gx:other", True, at)])
    maintenance.merge_logs(warehouse, most=0)
    counted: list[int] = []
    real = checks_log.count_checks

    def watched(*arguments: Any) -> Any:
        counted.append(len(list(arguments[1].get_fragments())))
        return real(*arguments)

    monkeypatch.setattr(checks_log, "count_checks", watched)
    assert checks_log.counts(warehouse).passed == 4 and counted == []
    checks_log.log(warehouse, [CheckRow("a run", 0, 1, "gx:other", False, 9)])
    assert checks_log.counts(warehouse) == checks_log.CheckCounts(4, 1, 0, 0) and counted == [1]
