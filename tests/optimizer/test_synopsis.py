"""Which queries share a synopsis, where its states stand, and what its fingerprint depends on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.aggregates.states import ROWS
from optimizer.synopses import synopsis as synopses
from optimizer.synopses.synopsis import CARRIERS, Synopsis, states_of, synopses_of
from optimizer.workload.values import (
    ACQ,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Literal,
    Output,
    Source,
    Stream,
    Window,
)

PRICE, VOLUME, NAME = Column("price"), Column("volume"), Column("symbol")
STREAM = Stream(
    "trades",
    Source("csv", "trades.csv"),
    (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG)),
    "ts",
)
ONLY_A = Call("=", (NAME, Literal("A", STRING)))
HOUR = Window(3600, 600)


def query(name: str, *outputs: Output, window: Window = HOUR, **rest: object) -> ACQ:
    return ACQ(name, "trades", window, outputs, **rest)  # type: ignore[arg-type]


COUNT = Output("n", "count", None, None, LONG)
SUM = Output("s", "sum", VOLUME, LONG, LONG)
AVERAGE = Output("a", "avg", PRICE, DOUBLE, DOUBLE)
SPREAD = Output("d", "stddev", PRICE, DOUBLE, DOUBLE)
FIRST = Output("f", "min", NAME, STRING, STRING)
BY_SYMBOL = (("symbol", STRING),)


def only(*queries: ACQ) -> Synopsis:
    (synopsis,) = synopses_of(STREAM, queries)
    return synopsis


def test_states_are_those_needed_once_and_rows_first() -> None:
    kinds = [state.kind for state in states_of([query("a", AVERAGE, COUNT), query("b", SPREAD, AVERAGE)])]
    assert kinds == ["rows", "count", "exact_sum", "exact_sum_squares"]
    assert states_of([query("a", COUNT)]) == (ROWS,)


def test_queries_of_one_filter_and_grouping_share_a_synopsis() -> None:
    a, b = query("a", SUM, group_by=BY_SYMBOL), query("b", AVERAGE, group_by=BY_SYMBOL, window=Window(1200, 300))
    c, d = query("c", SUM, filter=ONLY_A, group_by=BY_SYMBOL), query("d", SUM)
    synopses = synopses_of(STREAM, [a, b, c, d])
    assert sorted(tuple(member.name for member in members) for members in synopses.values()) == [
        ("a", "b"),
        ("c",),
        ("d",),
    ]
    # the fragments of each are those of its own queries
    assert {members[0].name: synopsis.edges for synopsis, members in synopses.items()} == {
        "a": ((300, 0),),
        "c": ((600, 0),),
        "d": ((600, 0),),
    }


def test_the_layout_gives_every_state_its_own_columns() -> None:
    synopsis = only(query("a", SUM, AVERAGE, SPREAD, FIRST, COUNT))
    for carrier in CARRIERS:
        columns = [column for state, at in synopsis.layout(carrier) for column in range(at, at + state.width)]
        assert columns == list(range(synopsis.width(carrier)))
    assert synopsis.layout("longs")[0] == (ROWS, 0)
    # rows, count(volume), two limbs, count(price), count(symbol), heads of two exact sums; one text
    assert [synopsis.width(carrier) for carrier in CARRIERS] == [8, 0, 1]


BASE = query("a", SUM, group_by=BY_SYMBOL)


@pytest.mark.parametrize(
    "changed",
    [
        replace(BASE, window=Window(3600, 700)),
        replace(BASE, window=Window(3601, 600)),
        replace(BASE, filter=ONLY_A),
        replace(BASE, group_by=()),
        replace(BASE, outputs=(SUM, FIRST)),
        replace(BASE, outputs=(Output("s", "sum", PRICE, DOUBLE, DOUBLE),)),
    ],
    ids=["slide", "range", "filter", "groups", "states", "argument"],
)
def test_whatever_defines_the_content_changes_the_fingerprint(changed: ACQ) -> None:
    assert only(changed).fingerprint != only(BASE).fingerprint


def test_names_owners_and_shape_of_the_answers_do_not() -> None:
    same = replace(BASE, name="z", owner="someone", text="SELECT …", select=("ticker",))
    assert only(same).fingerprint == only(BASE).fingerprint
    # 4200 s has the same edges as 3600 s at a slide of 600 s: the stored fragments serve both
    assert only(replace(BASE, window=Window(4200, 600))).fingerprint == only(BASE).fingerprint
    average = Output("m", "avg", VOLUME, LONG, DOUBLE)
    assert only(replace(BASE, outputs=(average,))).fingerprint == only(BASE).fingerprint


def test_stream_time_and_format_are_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    base = only(BASE)
    before = base.fingerprint
    assert replace(base, stream="other").fingerprint != before
    assert replace(base, time="seen").fingerprint != before
    monkeypatch.setattr(synopses, "FORMAT", synopses.FORMAT + 1)
    assert replace(base).fingerprint != before
