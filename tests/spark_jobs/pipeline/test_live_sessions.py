"""Live sessions: refreshes as they fall due, one session after the other, killed ones among them."""

from __future__ import annotations

import gc
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.operations.maintenance import merge_logs
from spark_jobs.pipeline.run.interval import run
from spark_jobs.pipeline.run.live import LiveSession, wait_for
from spark_jobs.store.warehouse.publish_log import RunRecord, publications
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady
from tests.spark_jobs.pipeline.live_clock import Clock, Killed
from tests.spark_jobs.pipeline.refresh_bounds import BOUND, BOUNDS, made, scheduled


def session(laboratory: Laboratory, clock: Clock, until: float, begin: float = 30) -> LiveSession:
    spark: Any = in_process(clock.point)
    first, last = round(DAY + begin * MINUTE), round(DAY + until * MINUTE)
    return LiveSession(laboratory.warehouse, spark, last, first, clock=clock, wait=clock.wait)


@pytest.fixture
def laboratory(engine: Any, tmp_path: Path) -> Laboratory:
    return made(engine, tmp_path)


def published(laboratory: Laboratory) -> Iterator[tuple[int, int]]:
    """The intervals of the live runs in minutes, by their begins."""
    for row in sorted(publications(laboratory.warehouse), key=lambda row: row.begin):
        yield (row.begin - DAY) // MINUTE, (row.end - DAY) // MINUTE


def test_each_refresh_is_answered_as_it_falls_due(laboratory: Laboratory) -> None:
    version, clock = laboratory.plan(BOUND), Clock(41)
    records = list(session(laboratory, clock, 60).refreshes())
    assert all(isinstance(record, RunRecord) and record.status == "published" for record in records)
    intervals = list(published(laboratory))
    # one follows on the other, none is late but the first
    assert [end for _, end in intervals[:-1]] == [begin for begin, _ in intervals[1:]] and len(intervals) > 5
    assert clock.now == DAY + 60 * MINUTE and clock.waits
    end = intervals[-1][1]
    assert laboratory.wrong(version, 30, end, scheduled(laboratory, version, 30, end)) == []


def test_a_session_that_is_told_to_end_ends_after_its_refresh(laboratory: Laboratory) -> None:
    laboratory.plan(BOUND)
    live = session(laboratory, Clock(41), 240)
    for _ in live.refreshes():
        live.stop()
    assert len(list(published(laboratory))) == 1


def test_what_fails_is_tried_again_later_and_later(laboratory: Laboratory) -> None:
    version, clock = laboratory.plan(BOUND), Clock(41)
    source = laboratory.source()
    content = source.read_bytes()
    source.unlink()
    live, outcomes, waited = session(laboratory, clock, 52), list[Any](), list[int]()
    for outcome in live.refreshes():
        waited.append(clock.now)
        outcomes.append(outcome)
        if len(outcomes) == 3:
            source.write_bytes(content)
    assert [isinstance(outcome, HeddleError) for outcome in outcomes[:4]] == [True, True, True, False]
    assert waited[2] - waited[1] == 2 * (waited[1] - waited[0])
    end = list(published(laboratory))[-1][1]
    assert end >= 50 and laboratory.log("failed")
    assert version == 1


@pytest.mark.reduced
@settings(max_examples=examples(2, 60, slow=3))
@given(st.data())
def test_killed_sessions_lose_and_double_nothing(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        played(made(in_process(), Path(folder)), data)


def played(laboratory: Laboratory, data: st.DataObject) -> None:
    """Sessions one after the other, of which some are killed, some meet late events or another plan."""
    version, clock, events = laboratory.plan(BOUND), Clock(41), list(steady(240))
    with without_audit():
        for _ in range(data.draw(st.integers(1, 5), "sessions")):
            clock.kill_at = data.draw(st.none() | st.integers(0, 40), "killed after")
            until = (clock.now - DAY) / MINUTE + data.draw(st.integers(1, 12), "minutes")
            with suppress(Killed):
                list(session(laboratory, clock, until, 40).refreshes())
            match data.draw(st.sampled_from(["", "late", "plan"]), "then"):
                case "late":
                    at = data.draw(st.integers(31, 39), "late event")
                    events.append((at + 0.5, "A", 1.0, 1))
                    laboratory.write(events)
                case "plan":
                    laboratory.plan(BOUND, data.draw(st.sampled_from(["no-share", "shared"]), "algorithm"))
        clock.kill_at = None
        last = (clock.now - DAY) / MINUTE + 3
        list(session(laboratory, clock, last, 40).refreshes())
    intervals = list(published(laboratory))
    assert [end for _, end in intervals[:-1]] == [begin for begin, _ in intervals[1:]]
    # every query within its bound, and each answer once: `rows` has all that readers see
    for name, bound in BOUNDS.items():
        keys = [(row["window_end"], row.get("symbol")) for row in laboratory.rows(name)]
        assert len(keys) == len(set(keys)), name
        assert intervals[-1][1] - 41 < bound or keys
    assert version == 1


def test_a_refresh_that_takes_too_long_is_told(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    laboratory.plan(BOUND)
    clock, overloads = Clock(41), list[tuple[int, int]]()
    live = session(laboratory, clock, 52)
    live.overloaded = lambda record, at: overloads.append(((record.end - DAY) // MINUTE, (at - DAY) // MINUTE))
    ends = []
    for number, refresh in enumerate(live.refreshes()):
        assert isinstance(refresh, RunRecord)
        ends.append((refresh.end - DAY) // MINUTE)
        # the third takes so long that the next is due meanwhile
        slow = 125 if number == 1 else 0
        monkeypatch.setattr("spark_jobs.pipeline.run.live.run", taking(slow, clock))
    assert overloads == [(ends[2], ends[2] + 2)] and len(ends) > 4


def taking(seconds: float, clock: Clock) -> Any:
    """A run that takes so long."""

    def slow(*arguments: Any, **options: Any) -> RunRecord:
        record = run(*arguments, **options)
        clock.wait(seconds)
        return record

    return slow


def test_a_session_ends_when_nobody_waits_for_it(laboratory: Laboratory) -> None:
    laboratory.plan(BOUND)
    live, waiting = session(laboratory, Clock(41), 240), [True, True, False]
    live.abandoned = lambda: not waiting.pop(0)
    assert len(list(live.refreshes())) <= 2 and not live.was_stopped


@pytest.mark.parametrize(("until", "least"), [(56, 6), pytest.param(80, 15, marks=pytest.mark.longer)])
def test_logs_stay_few_files(laboratory: Laboratory, until: int, least: int) -> None:
    """Each refresh writes to them and reads them some times: what there is to be read stays as much.

    Each adds two files: six would leave twelve.
    """
    version = laboratory.plan(BOUND)
    live, most = session(laboratory, Clock(41), until), list[int]()
    live.meanwhile = lambda: merge_logs(laboratory.warehouse, most=6)
    with without_audit():
        for _ in live.refreshes():
            most.append(len(laboratory.warehouse.table("publish_log").file_uris()))
    assert len(most) > least and max(most) <= 10
    end = list(published(laboratory))[-1][1]
    assert laboratory.wrong(version, 30, end, scheduled(laboratory, version, 30, end)) == []


def test_a_session_waits_for_the_first_plan(laboratory: Laboratory, tmp_path: Path) -> None:
    assert wait_for(str(laboratory.warehouse.root), 0) is not None
    messages: list[str] = []
    assert wait_for(str(tmp_path / "none"), 0, messages.append) is None


def test_what_cannot_be_read_is_tried_again(laboratory: Laboratory) -> None:
    """Also what says which refresh is due: a session outlives a store that does not answer."""
    laboratory.plan(BOUND)
    log = laboratory.warehouse.root / "publish_log"
    log.rename(log.with_name("away"))
    outcomes = []
    for outcome in session(laboratory, Clock(41), 46).refreshes():
        outcomes.append(outcome)
        if len(outcomes) == 2:
            log.with_name("away").rename(log)
    assert [isinstance(outcome, HeddleError) for outcome in outcomes[:3]] == [True, True, False]


def held(kinds: Counter[str]) -> Counter[str]:
    """How many objects of Heddle's there are of each kind, and how many entries its caches without a bound have."""
    gc.collect()
    for instance in gc.get_objects():
        kind = type(instance)
        if str(kind.__module__).partition(".")[0] in ("spark_jobs", "optimizer", "heddle"):
            kinds[f"{kind.__module__}.{kind.__qualname__}"] += 1
        elif kind is _lru_cache_wrapper and instance.cache_info().maxsize is None:
            kinds[f"cache {instance.__module__}.{instance.__qualname__}"] += instance.cache_info().currsize
        elif kind is dict and len(instance) > 30:
            kinds["entries of large dicts"] += len(instance)
        elif kind is list and len(instance) > 30:
            kinds["items of large lists"] += len(instance)
    return kinds


@pytest.mark.parametrize(("first", "last"), [(4, 16), pytest.param(10, 30, marks=pytest.mark.longer)])
def test_a_session_holds_no_more_after_many_refreshes(laboratory: Laboratory, first: int, last: int) -> None:
    laboratory.plan(BOUND)
    live, counts = session(laboratory, Clock(41), 120), dict[int, Counter[str]]()
    with without_audit():
        for number, _ in enumerate(live.refreshes()):
            if number in (first, last):
                counts[number] = held(Counter())
            if number == last:
                live.stop()
    # an object more for each refresh would be twelve, or twenty
    grown = {kind: count - counts[first][kind] for kind, count in counts[last].items()}
    assert {kind: more for kind, more in grown.items() if more > 10} == {} and len(counts) == 2


def test_the_command_line_follows(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    laboratory.plan(BOUND)
    clock, house = Clock(41), str(laboratory.warehouse.root)

    def live(*arguments: Any, **options: Any) -> LiveSession:
        return LiveSession(*arguments, clock=clock, wait=clock.wait, **options)

    monkeypatch.setattr("spark_jobs.pipeline.run.live.LiveSession", live)
    following = ["tick", "--warehouse", house, "--follow", "--from", "2013-07-01T00:40"]
    done = CliRunner().invoke(app, [*following, "--until", "2013-07-01T00:46", "--json"])
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0 and len(records) >= 2
    assert [record["end"] for record in records[:-1]] == [record["begin"] for record in records[1:]]
    done = CliRunner().invoke(app, [*following, "--until", "2013-07-01T00:46"])
    assert done.exit_code == 0 and done.stdout == ""
    for wrong in (["--follow", "--at", "2013-07-01"], ["--until", "2013-07-01"]):
        assert CliRunner().invoke(app, ["tick", "--warehouse", house, *wrong]).exit_code == 2
