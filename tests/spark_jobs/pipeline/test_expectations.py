"""A query whose answers are not what its owner expects keeps its former answers; all others are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.pipeline.run import checks_stage
from spark_jobs.results.read import read
from spark_jobs.store.warehouse import publish_log
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, outdated, steady

BLOCKED, WARNED = "HDL-539", "HDL-565"

BODY = {
    "prices": "SELECT symbol, max(price) AS high FROM trades WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON ts "
    "GROUP BY symbol",
    "counts": "SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON ts "
    "GROUP BY symbol",
    "total": "SELECT sum(volume) AS total FROM trades WINDOW RANGE '30 minutes' SLIDE '10 minutes' ON ts",
}


def text_of(**expectations: str | list[str]) -> str:
    """The workload, each query with its lines of expectations."""
    pieces = []
    for name, body in BODY.items():
        lines = expectations.get(name, [])
        lines = [lines] if isinstance(lines, str) else lines
        pieces += [*(f"-- expect{line if line.startswith((' (', ':')) else ': ' + line}" for line in lines)]
        pieces += [f"-- name: {name}", body + ";"]
    # headers follow the statement before, so the name comes first
    text, block = [], []
    for piece in pieces:
        if piece.startswith("-- name"):
            text += [piece, *block]
            block = []
        elif piece.startswith("-- expect"):
            block.append(piece)
        else:
            text.append(piece)
    return "\n".join(text)


def codes(record: Any) -> list[tuple[str, str]]:
    return [(each["code"], each["query"]) for each in record.diagnostics]


@pytest.fixture
def lab(engine: Any, tmp_path: Path) -> Laboratory:
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady())
    return laboratory


def instants(lab: Laboratory, name: str) -> list[float]:
    ends = [row["window_end"].timestamp() for row in read(lab.warehouse, name).to_pylist()]
    return sorted({(at * 1e6 - DAY) / MINUTE for at in ends})


def test_a_block_keeps_one_query_back_and_a_warning_none(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices="high < 100.5", counts=" (warn): n > 1000", total="rows between 1 and 100"))
    record = lab.run(version, 60, 120, "run-1")
    assert record.status == "published" and not record.has_failed
    assert record.blocked == {"prices": ["high < 100.5"]}
    assert codes(record) == [(BLOCKED, "prices"), (WARNED, "counts")]
    assert "symbol=" in record.diagnostics[0]["message"] and "not as expected" in record.diagnostics[0]["message"]
    assert instants(lab, "prices") == [] and instants(lab, "counts") == instants(lab, "total") == [*range(70, 121, 10)]
    rows = lab.warehouse.rows("quality_results")
    by_check = {row["check"]: row for row in rows if row["query"]}
    assert {row["query"]: row["success"] for row in by_check.values()} == {
        "prices": False,
        "counts": False,
        "total": True,
    }
    assert by_check["expect(rows between 1 and 100)"]["observed"] == 6 == len(lab.rows("total"))
    assert (
        by_check["expect(high < 100.5)"]["severity"] == "block" and by_check["expect(high < 100.5)"]["unexpected"] > 0
    )

    # the next interval is judged on its own, and a run over the same one judges again
    assert lab.run(version, 50, 60, "run-2").blocked == {"prices": ["high < 100.5"]}
    again = lab.run(version, 60, 120, "run-1")
    assert (again.status, again.revision, again.blocked) == ("published", 2, {"prices": ["high < 100.5"]})
    assert again.narrow and lab.run(version, 60, 120, "run-1").revision == 3


def test_a_changed_expectation_applies_from_the_next_run_on_and_publishes_what_was_blocked(lab: Laboratory) -> None:
    first = lab.plan(text_of(prices="high < 100.5"))
    lab.run(first, 60, 120, "run-1")
    changed = lab.plan(text_of(prices="high < 1000"))
    assert changed == first  # the same plan: an expectation changes no answer
    record = lab.run(changed, 60, 120, "run-1")
    assert (record.status, record.revision, record.blocked) == ("published", 2, {})
    assert record.narrow and lab.wrong(first, 60, 120) == []
    assert lab.run(changed, 60, 120, "run-1").status == "unchanged"


def test_what_is_blocked_is_repaired_with_what_came_late(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices="max(high) > 200"))
    lab.run(version, 0, 60, "run-0")
    lab.run(version, 60, 120, "run-1")
    (stale, again) = outdated(lab.warehouse, DAY + 500 * MINUTE)
    assert [each.radius.blocked for each in (stale, again)] == [("prices",), ("prices",)]
    lab.write([*steady(), (70.5, "A", 900.0, 1)])
    record = lab.run(version, 60, 120, "run-2")
    assert record.blocked == {}
    assert not [line for line in lab.wrong(version, 0, 120) if not line.startswith("prices: window 2013-07-01T00")]
    assert instants(lab, "prices") == [*range(70, 121, 10)]
    (stale,) = outdated(lab.warehouse, DAY + 500 * MINUTE)
    assert stale.radius.blocked == ("prices",)


def test_a_narrow_revision_is_judged_with_the_answers_that_stay(lab: Laboratory) -> None:
    version = lab.plan(text_of(prices=["rows = 12", "mean(high) < 150"]))
    assert lab.run(version, 60, 120, "run-1").blocked == {}
    lab.write([*steady(), (70.5, "A", 2000.0, 1)])
    record = lab.run(version, 60, 120, "run-2")
    assert record.narrow and record.blocked == {"prices": ["mean(high) < 150"]}
    before = lab.rows("prices")
    assert len(before) == 12 and max(row["high"] for row in before) < 200


def test_a_crash_between_the_commit_and_its_log_keeps_what_is_blocked(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lab.plan(text_of(prices="high < 100.5"))
    log = publish_log.log_event

    def crash(*arguments: Any) -> None:
        if arguments[2] == "published":
            raise RuntimeError("power cut")
        log(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(publish_log, "log_event", crash)
        with pytest.raises(RuntimeError, match="power cut"):
            lab.run(version, 60, 120, "run-1")
    retried = lab.run(version, 60, 120, "run-1")
    # it is no publication of everything: what is blocked is judged again
    assert (retried.status, retried.revision, retried.blocked) == ("published", 2, {"prices": ["high < 100.5"]})
    first, _ = lab.log("published")
    assert '"blocked": {"prices"' in first["record"]


def test_a_crash_between_judging_and_publishing_goes_on_under_the_same_revision(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lab.plan(text_of(prices="high < 100.5"))
    with monkeypatch.context() as patch:
        patch.setattr(checks_stage, "CheckedRun", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lab.run(version, 60, 120, "run-1")
    assert lab.log("published") == []
    retried = lab.run(version, 60, 120, "run-1")
    assert (retried.revision, retried.blocked) == (1, {"prices": ["high < 100.5"]})
    assert instants(lab, "counts") == [*range(70, 121, 10)] and instants(lab, "prices") == []
