"""The soak, a minute long, and what it decides by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.soak.soak import Checkpoint, Piece, Soak, Tick, _joined, grown, growth


def tick(number: int, **others: float) -> Tick:
    return Tick(**{"driver": 200.0, "jvm": 500.0, "wall": 20.0, "cpu": 15.0 + number % 3} | others)


def checkpoint(number: int, **others: float) -> Checkpoint:
    """Answers and history grow with the data, and all else wavers."""
    days = 2.0 * number + 1
    kilobytes = {"partials": 300.0 + number % 2, "results": 50 * days, "publish_log": 10 * days, **others}
    files = {"results": int(3 * days), "partials": int(2 * days)}
    return Checkpoint(
        *(3.0 * number, 10 * number, 0, days, int(8 * days), files, kilobytes, 40 + number % 3, 100.0, int(900 * days))
    )


def test_what_wavers_or_grows_with_the_data_is_a_plateau() -> None:
    assert grown([tick(number) for number in range(40)], [checkpoint(number) for number in range(12)]) == []
    # too few samples tell nothing
    assert growth([1, 2, 4, 8, 16, 32, 64]) is None and grown([tick(1)], [checkpoint(1)]) == []


@pytest.mark.parametrize("name", ["driver", "jvm", "cpu"])
def test_what_grows_tick_by_tick_is_told(name: str) -> None:
    ticks = [tick(number, **{name: 20.0 * (1 + number / 20)}) for number in range(40)]
    assert len(grown(ticks, [])) == 1


def test_what_grows_without_maintenance_is_told() -> None:
    leaking = [checkpoint(number, partials=100.0 * number + 100) for number in range(12)]
    assert ["partials" in line for line in grown([], leaking)] == [True]
    history = [checkpoint(number, publish_log=10.0 * number * number) for number in range(12)]
    assert ["history" in line for line in grown([], history)] == [True]


def test_neighbours_of_one_plan_are_judged_as_one() -> None:
    first, second, third = Piece(0, 10, 1, 5), Piece(10, 20, 1, 6), Piece(20, 30, 1, 7, True)
    assert _joined([first, second, third]) == [Piece(0, 20, 1, 6), third]
    assert _joined([first, Piece(11, 20, 1, 6)]) == [first, Piece(11, 20, 1, 6)]
    assert _joined([first, Piece(10, 20, 2, 6)]) == [first, Piece(10, 20, 2, 6)]


def test_what_was_published_stays_where_its_query_is_registered_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A repair by a plan without it publishes the interval again: the others' answers are of all events then."""
    soak = judged_by([(1, 0, 30, ""), (2, 10, 20, "")], monkeypatch)
    pieces_by_query = {name: sorted(pieces, key=lambda piece: piece.begin) for name, pieces in soak.pieces().items()}
    assert pieces_by_query["a"] == [Piece(0, 10, 1, 1), Piece(10, 20, 2, 2), Piece(20, 30, 1, 1)]
    assert pieces_by_query["extra"] == [Piece(0, 10, 1, 1), Piece(10, 20, 1, 1, True), Piece(20, 30, 1, 1)]


def test_what_could_not_be_read_is_asked_for_as_long_as_its_query_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unread = judged_by([(1, 0, 10, ""), (3, 10, 20, "trades"), (3, 0, 10, "trades")], monkeypatch).pieces()
    assert unread["a"] == [Piece(0, 10, 1, 1), Piece(10, 20, 3, 2, failed=True)]
    # a repair by a plan with the query, and by one without it
    assert judged_by([(1, 0, 10, "trades"), (1, 0, 10, "")], monkeypatch).pieces()["extra"] == [Piece(0, 10, 1, 2)]
    assert judged_by([(1, 0, 10, "trades"), (2, 0, 10, "")], monkeypatch).pieces()["extra"] == []


def judged_by(published: Sequence[tuple[int, int, int, str]], monkeypatch: pytest.MonkeyPatch) -> Soak:
    """A soak that knows of publications, one after the other: plan version, begin, end, the stream that failed."""
    rows = [
        {
            "event": "published",
            "table_version": number,
            "interval_start": begin,
            "interval_end": end,
            "at": number,
            "plan_version": version,
            "record": json.dumps({"failed": [failed]} if failed else {}),
        }
        for number, (version, begin, end, failed) in enumerate(published, 1)
    ]
    plans = {1: ("a", "extra"), 2: ("a",), 3: ("a",)}
    soak = Soak.__new__(Soak)
    soak.warehouse = SimpleNamespace(rows=lambda table: rows)  # type: ignore[assignment]
    monkeypatch.setattr("tests.soak.soak.micros", lambda moment: moment)
    monkeypatch.setattr("tests.soak.soak.load_plan", lambda house, version: plan_with(plans[version]))
    return soak


def plan_with(names: Sequence[str]) -> SimpleNamespace:
    queries = [SimpleNamespace(name=name, stream="trades") for name in names]
    return SimpleNamespace(workload=SimpleNamespace(queries=queries))


@pytest.mark.slow
@pytest.mark.spark
def test_a_minute(tmp_path: Path) -> None:
    soak = Soak(tmp_path, 7)
    assert soak.run(1.0) == []
    assert soak.judged > 100 and soak.ticks and sum(soak.faults.values()) >= 1
    # the judge can tell: answers that lack an event
    soak.data["trades"].insert(0, (60.0, "A", 1e6, 99))
    assert any(line.startswith("by_symbol: ") for line in soak.wrong())
