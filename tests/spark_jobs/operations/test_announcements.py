"""New answers of queries that are assets: what is announced of each publication, beside the answers read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from optimizer.workload.instants import format_instant
from spark_jobs.operations import announcements
from spark_jobs.operations.announcements import Announcement, key_of, of_others, of_run
from spark_jobs.pipeline.run import publication
from spark_jobs.results.deletion import delete_answers
from spark_jobs.store.warehouse import publish_log
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady
from tests.spark_jobs.pipeline.publication_queries import TEXTS

Windows = dict[str, dict[Any, Counter[str]]]


def text_of(assets: Mapping[str, bool]) -> str:
    """The queries, and whether each is an asset."""
    return "".join(f"-- name: {name}\n{'-- asset' * assets[name]}\n{TEXTS[name]};\n" for name in sorted(assets))


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    lab = Laboratory(in_process(), tmp_path)
    lab.write(steady(120))
    lab.write(steady(120), "quotes")
    return lab


def seen(laboratory: Laboratory, begin: float, end: float) -> Windows:
    """What readers see in (begin, end], minutes: the answers of each window of each query."""
    answers_by_query: Windows = {}
    for row in laboratory.warehouse.dataset("results").to_table().to_pylist():
        if begin < (row["instant"].timestamp() * 1e6 - DAY) / MINUTE <= end:
            window = row["instant"], row["position"]
            content = repr([row["key"], *(row[name] or None for name in ("longs", "doubles", "texts", "error"))])
            answers_by_query.setdefault(row["query"], {}).setdefault(window, Counter())[content] += 1
    return answers_by_query


def difference(was: Windows, now: Windows, name: str) -> dict[str, int]:
    before, after = was.get(name, {}), now.get(name, {})
    return {
        "added": len(after.keys() - before.keys()),
        "removed": len(before.keys() - after.keys()),
        "changed": sum(before[window] != after[window] for window in before.keys() & after.keys()),
    }


def of(laboratory: Laboratory, begin: float, end: float, run_id: str) -> list[Announcement]:
    return of_run(laboratory.warehouse, round(DAY + begin * MINUTE), round(DAY + end * MINUTE), run_id)


_SPANS = st.sampled_from([(0, 60), (60, 120), (0, 120), (30, 90)])
_ASSETS = st.dictionaries(st.sampled_from(sorted(TEXTS)), st.booleans(), min_size=1)
_STEPS = st.tuples(_ASSETS, _SPANS, st.booleans(), st.one_of(st.none(), st.integers(0, 118)))


@given(steps=st.lists(st.one_of(_STEPS, st.sampled_from(sorted(TEXTS))), max_size=6))
# a narrow repair, a run that finds nothing to change, one that publishes the same again
@example(
    steps=[
        ({"all": True, "last": False}, (0, 120), again, late)
        for again, late in ((False, None), (False, 30), (False, None), (True, None))
    ]
)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_change_of_an_asset_is_announced_and_nothing_else(
    steps: Sequence[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    laboratory = Laboratory(in_process(), tmp_path_factory.mktemp("house"))
    events = steady(120)
    laboratory.write(events)
    laboratory.write(steady(120), "quotes")
    with without_audit():
        for number, step in enumerate(steps):
            if isinstance(step, str):
                delete_answers(laboratory.warehouse, [step], dry_run=False)
                continue
            assets, (begin, end), recompute, late = step
            if late is not None:
                events = [*events, (late + 0.5, "A", 7.0, 5)]
                laboratory.write(events)
            was = seen(laboratory, begin, end)
            version = laboratory.plan(text_of(assets))
            record = laboratory.run(version, begin, end, f"run {number}", recompute=recompute)
            now = seen(laboratory, begin, end)
            announced = of(laboratory, begin, end, f"run {number}")
            changed = {name: change for name in TEXTS if any((change := difference(was, now, name)).values())}
            assert {announcement.query: announcement.windows for announcement in announced} == {
                name: change for name, change in changed.items() if assets.get(name)
            }
            assert record.status == "published" or not changed
            for announcement in announced:
                assert announcement.first is (announcement.query not in was)
                assert announcement.answers == sum(map(Counter.total, now.get(announcement.query, {}).values()))
                assert (announcement.revision, announcement.plan_version) == (record.revision, version)
                assert (announcement.late is None) is (record.radius is None)
                assert key_of(announcement.extra) == announcement.key and announcement.extra["from"] == format_instant(
                    record.begin
                )


def test_each_publication_is_the_business_of_one_task(laboratory: Laboratory) -> None:
    """Runs of the DAG announce theirs; the hourly task repairs, runs by hand, those that failed, and what is left."""
    with without_audit():
        version = laboratory.plan(text_of({"all": True}))
        names = ("scheduled__1", "repair/1", "cli/1", "backfill/1", "live/1", "session/scheduled__2/1")
        for number, run_id in enumerate(names):
            laboratory.run(version, 20 * number, 20 * (number + 1), run_id)
        # a stream that is gone fails the run, which publishes the others' answers
        version = laboratory.plan(text_of({"all": True, "quoted": True}))
        laboratory.source("quotes").unlink()
        laboratory.write([*steady(120), (20.5, "A", 7.0, 5)])
        assert laboratory.run(version, 0, 120, "manual__1").has_failed
    rows = publish_log.publications(laboratory.warehouse)
    assert len(rows) == 7
    announced_by_run = {
        row.run_id: announcements.of_run(laboratory.warehouse, row.begin, row.end, row.run_id) for row in rows
    }
    assert [run_id for run_id, announced in announced_by_run.items() if announced] == [
        "scheduled__1",
        "session/scheduled__2/1",
    ]
    clock = rows[-1].at + 1
    assert {announcement.run_id for announcement in of_others(laboratory.warehouse, clock)} == {
        *("repair/1", "cli/1", "backfill/1", "live/1", "manual__1"),
    }
    for run_id, expected_run_ids in (
        ("scheduled__2", ["session/scheduled__2/1"]),
        ("scheduled__", []),
        ("scheduled__1", []),
    ):
        assert [row.run_id for row in announcements.of_session(laboratory.warehouse, run_id, clock)] == expected_run_ids
    # whoever should have announced it has had a day; after three it is no news
    later = of_others(laboratory.warehouse, clock + 86_400_000_000)
    assert {announcement.run_id for announcement in later} == {row.run_id for row in rows}
    assert (
        later == sorted(later, key=lambda announcement: announcement.at)
        and of_others(laboratory.warehouse, clock + 4 * 86_400_000_000) == []
    )


def test_a_publication_of_which_nothing_is_recorded_is_announced_all_the_same(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends after the commit and before the log: readers see the answers."""

    def ending(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with without_audit():
        version = laboratory.plan(text_of({"all": True, "quoted": False}))
        with monkeypatch.context() as patch:
            patch.setattr(publication, "log_statistics", ending)
            with pytest.raises(KeyboardInterrupt):
                laboratory.run(version, 0, 120, "scheduled__1")
        assert laboratory.run(version, 0, 120, "scheduled__1").status == "unchanged"
    (announcement,) = of(laboratory, 0, 120, "scheduled__1")
    assert (announcement.query, announcement.windows, announcement.first, announcement.late) == (
        "all",
        None,
        None,
        None,
    )
    assert announcement.answers == len(laboratory.rows("all")) > 0


def test_what_earlier_versions_published_is_no_news_of_an_asset_of_today(laboratory: Laboratory) -> None:
    """Their records do not say what changed; nobody had asked for an asset then."""
    with without_audit():
        version = laboratory.plan(text_of({"all": False}))
        laboratory.run(version, 0, 120, "scheduled__1")
        laboratory.plan(text_of({"all": True}))
    (row,) = publish_log.publications(laboratory.warehouse)
    former = replace(row, text=row.text.replace('"assets": {}', '"aspects": {}') if row.text else None)
    assert former.record.assets is None and row.record.assets == {}
    assert announcements.announcements(laboratory.warehouse, [former]) == []
