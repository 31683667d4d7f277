"""A live run that asks for no more than the names of most files sees what one sees that looks at all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.pipeline.run.preparation import listed, prepare
from spark_jobs.pipeline.run.values import RunRequest
from spark_jobs.streams.sources import looks
from spark_jobs.streams.sources.looks import TURNS, WITHIN, Look, turns_of
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE
from tests.spark_jobs.streams.twins import CLOCK, HOURS, Twins

REACH = (DAY + 219 * HOURS, DAY + 220 * HOURS)
"""The run of all tests, which reads the events of a day and more."""


class Looked(Twins):
    """One source of old files and two warehouses: a live run of one looks in turns, the other looks at everything."""

    def __init__(self, folder: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, format)
        self.later, self.hours = 0, dict[Path, int]()
        monkeypatch.setattr(looks, "clock_micros", lambda: time.time_ns() // 1000 + self.later)

    def put(self, name: int, hour: int) -> None:
        """A new file with events of an hour."""
        if not self.path(name).exists():
            self.write(name, hour, 1)
            self.hours[self.path(name)] = hour

    def over(self, name: int) -> None:
        """A file put in the place of one, with its times."""
        path = self.path(name)
        if path.exists():
            aside = path.rename(path.with_suffix(".old"))
            self.write(name, self.hours[path], 1)
            path.rename(path.with_suffix(".new"))
            aside.rename(path)
            path.with_suffix(".new").replace(path)

    def in_place(self, name: int) -> None:
        """Other events of the same hour under the same name, size, inode and time of modification."""
        path = self.path(name)
        if path.exists():
            before = path.stat()
            self.write(name, self.hours[path], 1, keeps=True)
            while path.stat().st_ctime_ns == before.st_ctime_ns:
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert path.stat().st_ino == before.st_ino

    def taken(self, live: bool) -> tuple[str, dict[str, str]]:
        """What decides the answers of the run, and how the ledger has the files that are there."""
        house = self.needed if live else self.every
        listing = listed(house, self.plan, CLOCK, "a run", within=REACH, live=live)
        prepared = prepare(house, self.plan, RunRequest(1, *REACH, "a run", CLOCK), listing)
        present = (arrival for arrival in listing.arrivals["trades"].all() if arrival.is_here)
        return prepared.content, {arrival.path: arrival.identity for arrival in present}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The files of which more than the name was asked for."""
    counts: list[str] = []
    real = looks.Look.knows

    def watched(self: Look, inodes: Any, noted: Any) -> Any:
        known = real(self, inodes, noted)
        counts.append(f"{int((~known).sum())} of {len(known)}")
        return known

    monkeypatch.setattr(looks.Look, "knows", watched)
    yield counts


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 8), st.integers(0, 230)),
        st.tuples(st.sampled_from(["over", "in place", "remove", "touch"]), st.integers(0, 8), st.just(0)),
        st.tuples(st.just("swap"), st.integers(0, 8), st.integers(0, 8)),
        st.tuples(st.just("look"), st.integers(0, 130), st.just(0)),
    ),
    min_size=4,
    max_size=16,
)


@pytest.mark.parametrize("format", ["parquet", "csv"])
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(history=steps)
def test_what_a_look_in_turns_sees_is_what_all_files_say(
    tmp_path_factory: pytest.TempPathFactory, format: str, history: list[tuple[str, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        twins = Looked(tmp_path_factory.mktemp("looked"), format, patch)
        for name in range(6):
            twins.put(name, 40 * name)
        twins.put(8, 215)
        rewritten: dict[str, int] = {}
        last = [("look", 200, 0), ("look", 70, 0)]
        for step, number, more in [("look", 0, 0), ("look", 180, 0), *history, *last]:
            path, to = twins.path(number), twins.path(more)
            if step == "put":
                twins.put(number, more)
            elif step == "over":
                twins.over(number)
            elif step == "in place":
                twins.in_place(number)
                rewritten[str(path)] = twins.later
            elif step in ("remove", "touch"):
                twins.change(step, number, 0)
                if step == "touch":
                    rewritten[str(path)] = twins.later
            elif step == "swap" and path.exists() and path != to:
                twins.change(step, number, more)
                twins.hours[to] = twins.hours[path]
            elif step == "look":
                twins.later += number * MINUTE
                (content, seen), (expected, all_of_them) = twins.taken(live=True), twins.taken(live=False)
                assert content == expected
                late = {path for path in rewritten if twins.later - rewritten[path] < WITHIN}
                assert {path: name for path, name in seen.items() if path not in late} == {
                    path: name for path, name in all_of_them.items() if path not in late
                }
                assert seen.keys() == all_of_them.keys()


def test_most_files_are_asked_for_no_more_than_their_names(tmp_path: Path, asked: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        twins = Looked(tmp_path, "parquet", patch)
        for name in range(9):
            twins.put(name, 20 * name)
        twins.put(9, 215)
        twins.taken(live=True)
        assert twins.taken(live=True)[1] == twins.taken(live=False)[1]
        # what came within the hour may be written again
        assert asked == ["0 of 0", "9 of 9"]
        asked.pop(0)
        twins.later += 3 * HOURS
        twins.taken(live=True)
        twins.taken(live=True)
        assert asked[1:] == ["9 of 9", "0 of 9"]
        # one part at a time, and all within the hour
        for _ in range(12):
            twins.later += 5 * MINUTE
            twins.taken(live=True)
        counts = [int(each.partition(" ")[0]) for each in asked[3:]]
        assert max(counts) < 9 <= sum(counts)
        twins.in_place(3)
        assert twins.taken(live=True)[1] != twins.taken(live=False)[1]
        # runs that are not live look at everything
        assert len(asked) == 16, asked
        twins.later += WITHIN
        assert twins.taken(live=True)[1] == twins.taken(live=False)[1]


def test_another_declaration_and_another_clock_know_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Looked(tmp_path, "parquet", monkeypatch)
    Look.begin(twins.needed, twins.stream).keep()
    assert (Look.begin(twins.needed, twins.stream).before > 0).all()
    twins.later -= 2 * HOURS
    assert Look.begin(twins.needed, twins.stream).is_due.all()
    twins.later += 2 * HOURS
    other = Twins(tmp_path / "other", "csv")
    assert not Look.begin(twins.needed, other.stream).before.any()
    file = tmp_path / "needed" / looks.LOOKS
    for path in file.iterdir():
        path.write_text("half {")
    assert Look.begin(twins.needed, twins.stream).is_due.all()


def test_turns_are_spread_whatever_the_inodes() -> None:
    for inodes in (np.arange(6400), 64 * np.arange(6400), 2**40 + 256 * np.arange(6400)):
        turns = turns_of(inodes.astype(np.uint64))
        assert turns.min() == 0 and turns.max() == TURNS - 1
        assert np.bincount(turns).max() < 200
