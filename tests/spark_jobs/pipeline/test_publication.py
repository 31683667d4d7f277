"""What a publication takes from readers, and what it tells of streams that have stopped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spark_jobs.pipeline.run import finals_stage, publication
from spark_jobs.results.deletion import delete_answers
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady
from tests.spark_jobs.pipeline.publication_queries import TEXTS


def text_of(names: Any) -> str:
    return "".join(f"-- name: {name}\n{TEXTS[name]};\n" for name in sorted(names))


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    lab = Laboratory(in_process(), tmp_path)
    lab.write(steady(120))
    lab.write(steady(120), "quotes")
    return lab


def counts(laboratory: Laboratory, begin: float, end: float) -> Counter[str]:
    """Answers that readers see in (begin, end], minutes, by query."""
    rows = laboratory.warehouse.dataset("results").to_table(["query", "instant"])
    at = (rows["instant"].cast("int64").to_numpy() - DAY) / MINUTE
    return Counter(name for name, when in zip(rows["query"].to_pylist(), at, strict=True) if begin < when <= end)


_SPANS = st.sampled_from([(0, 60), (60, 120), (0, 120), (30, 90)])
_NAMES = st.sets(st.sampled_from(sorted(TEXTS)), min_size=1)


@given(
    steps=st.lists(st.one_of(st.tuples(_NAMES, _SPANS, st.booleans()), st.sampled_from(sorted(TEXTS))), max_size=6),
    late=st.lists(st.integers(0, 118), max_size=3),
)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_only_answers_of_queries_that_are_answered_or_deleted_by_name_go(
    steps: list[Any], late: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Plans of any queries run over any intervals, late events between them, answers deleted: what every other query
    has stays, and the record says what readers see."""
    laboratory = Laboratory(in_process(), tmp_path_factory.mktemp("house"))
    events = steady(120)
    laboratory.write(events)
    laboratory.write(steady(120), "quotes")
    ran: tuple[set[str], tuple[int, int], Counter[str]] | None = None
    with without_audit():
        for number, step in enumerate(steps):
            before = {name: laboratory.rows(name) if seen else [] for name, seen in counts(laboratory, 0, 120).items()}
            if isinstance(step, str):
                delete_answers(laboratory.warehouse, [step], dry_run=False)
                before.pop(step, None)
                if ran is not None and step in ran[0]:
                    # the same run again: that answers were deleted is no reason to say that nothing has changed
                    names, (begin, end), count = ran
                    laboratory.run(laboratory.plan(text_of(names)), begin, end, f"again {number}")
                    assert counts(laboratory, begin, end)[step] == count[step]
            else:
                names, (begin, end), recompute = step
                if late:
                    events = [*events, (late.pop() + 0.5, "A", 7.0, 5)]
                    laboratory.write(events)
                was = counts(laboratory, begin, end)
                version = laboratory.plan(text_of(names))
                record = laboratory.run(version, begin, end, f"run {number}", recompute=recompute)
                now = counts(laboratory, begin, end)
                if record.status == "published":
                    assert record.readers is not None
                    assert (record.readers["before"], record.readers["after"]) == (was.total(), now.total())
                    assert record.readers["fewer"] == {
                        name: [was[name], now[name]] for name in was if now[name] < was[name]
                    }
                    assert record.empty == sorted(name for name in names if not now[name])
                    assert laboratory.wrong(version, begin, end) == [] or (begin, end) != (0, 120)
                else:
                    assert was == now
                ran = names, (begin, end), now
                for name in names:
                    before.pop(name, None)
            for name, rows in before.items():
                assert laboratory.rows(name) == rows, name


@given(
    minutes=st.sets(st.integers(0, 239), max_size=12),
    span=st.sampled_from([(0, 60), (60, 120), (120, 180), (0, 240)]),
    again=st.booleans(),
)
# windows that end in the interval have events, the interval has none
@example(minutes={100, 180}, span=(120, 180), again=True)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_stream_without_events_in_the_interval_is_told(
    minutes: set[int], span: tuple[int, int], again: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    laboratory = Laboratory(in_process(), tmp_path_factory.mktemp("house"))
    laboratory.write([(minute, "A", 1.0, 5) for minute in sorted(minutes)])
    laboratory.write(steady(240), "quotes")
    with without_audit():
        version = laboratory.plan(text_of(["all", "quoted"]))
        record = laboratory.run(version, *span, "first")
        if again:
            record = laboratory.run(version, *span, "again", recompute=True)
    messages = [diagnostic["message"] for diagnostic in record.diagnostics if diagnostic["code"] == "HDL-413"]
    silent = not any(span[0] <= minute < span[1] for minute in minutes)
    assert not record.has_failed
    assert [("trades" in message) for message in messages] == [True] * silent
    if silent and minutes:
        assert "it has them from 2013-07-01T" in messages[0] or len(minutes) == 0


def test_what_is_deleted_while_single_windows_are_published_again_does_not_come_back_by_half(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with without_audit():
        version = laboratory.plan(text_of(["by_symbol", "all"]))
        laboratory.run(version, 0, 120, "first")
        laboratory.write([*steady(120), (20.5, "A", 7.0, 3)])
        finals = finals_stage.write_finals

        def deleting(*arguments: Any) -> Any:
            delete_answers(laboratory.warehouse, ["by_symbol"], dry_run=False)
            return finals(*arguments)

        monkeypatch.setattr(finals_stage, "write_finals", deleting)
        with pytest.raises(publication.HeddleError, match="HDL-541"):
            laboratory.run(version, 0, 120, "second")
        monkeypatch.setattr(finals_stage, "write_finals", finals)
        record = laboratory.run(version, 0, 120, "second")
    assert not record.narrow and laboratory.wrong(version, 0, 120) == []


def test_a_clock_that_goes_back_takes_no_answers(laboratory: Laboratory) -> None:
    with without_audit():
        version = laboratory.plan(text_of(["by_symbol", "all"]))
        laboratory.run(version, 0, 120, "first")
        before = counts(laboratory, 0, 120)
        record = laboratory.run(version, 0, 120, "earlier", as_of=DAY + 60 * MINUTE)
    assert record.withheld and counts(laboratory, 0, 120) == before
    assert record.readers is None or record.readers["fewer"] == {}


def test_an_interval_that_is_still_to_come_is_told(laboratory: Laboratory) -> None:
    """Nobody means 2030: all windows are withheld, and there are no events either."""
    with without_audit():
        version = laboratory.plan(text_of(["by_symbol"]))
        record = laboratory.run(version, 600, 660, "to come", as_of=DAY + 120 * MINUTE)
        withheld = laboratory.run(version, 60, 120, "withheld", as_of=DAY + 30 * MINUTE)
    (message,) = [diagnostic["message"] for diagnostic in record.diagnostics]
    assert "trades has no events in [2013-07-01T10:00:00Z, 2013-07-01T11:00:00Z); it has them from" in message
    assert not record.has_failed and withheld.diagnostics == []
