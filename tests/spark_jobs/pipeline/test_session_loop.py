"""What a live session does after each refresh: the next one, another attempt, or its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.pipeline.run import live
from spark_jobs.pipeline.run.live import COMES_SECOND, RETRY, LiveSession

RECORD: Any = SimpleNamespace(end=10)
BROKEN = HeddleError("HDL-401", "no file", "check `path`")
SECOND_TO_ANOTHER = HeddleError(min(COMES_SECOND), "answered meanwhile", "")


def played(
    outcomes: list[Any], frontier: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Any], list[str], list[float]]:
    """What a session yields, reports and waits whose refreshes end as some outcomes say; the last at its end."""
    remaining, reports, pauses = list(outcomes), list[str](), list[float]()

    def run(*arguments: Any, **options: Any) -> Any:
        outcome = remaining.pop(0)
        if isinstance(outcome, HeddleError):
            raise outcome
        return outcome

    refresh = SimpleNamespace(begin=0, end=10, plan_version=1, late=())
    monkeypatch.setattr(live, "in_force", lambda warehouse, active: None)
    monkeypatch.setattr(live, "due", lambda *arguments: refresh if remaining else None)
    monkeypatch.setattr(live, "frontier", lambda warehouse: frontier)
    monkeypatch.setattr(live, "run", run)
    nothing: Any = None
    session = LiveSession(
        nothing,
        SimpleNamespace(recycle=lambda: None),  # type: ignore[arg-type]
        until=100,
        report=reports.append,
        clock=lambda: 50 if len(remaining) > 1 else 100,
        wait=pauses.append,
    )
    return list(session.refreshes()), reports, pauses


def test_a_refresh_that_another_session_answered_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert played([SECOND_TO_ANOTHER, RECORD], 5, monkeypatch) == ([RECORD], ["another session was first"], [])
    # nothing of it is answered
    assert played([SECOND_TO_ANOTHER, RECORD], 0, monkeypatch) == ([SECOND_TO_ANOTHER, RECORD], [], [RETRY])


def test_what_fails_is_tried_again_later_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = played([BROKEN, BROKEN, RECORD, BROKEN, RECORD], 5, monkeypatch)
    assert transcript == ([BROKEN, BROKEN, RECORD, BROKEN, RECORD], [], [RETRY, 2 * RETRY, RETRY])
    # not after the end
    assert played([BROKEN, BROKEN], 5, monkeypatch) == ([BROKEN, BROKEN], [], [RETRY])
