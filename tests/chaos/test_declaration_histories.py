"""Whatever key of a declaration, file, setting or place changes between commands: readers see what a fresh warehouse
would show them, or the interval is named.

:mod:`tests.chaos.declarations` has the projects, the variations and the judge. ``make test`` plays each variation once,
all of them in one project; ``make test-all`` plays random histories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from optimizer.workload.streams_schema import streams_schema
from tests.chaos.declarations import (
    INTERVALS,
    KINDS,
    MINUTE,
    NEED_A_JVM,
    NOW,
    QUERIES,
    START,
    VARIATIONS,
    Interval,
    Project,
    Variation,
    differences,
)
from tests.in_process import Clock, without_spark
from tests.sizes import PROFILE, THOROUGH


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """An empty project, half a day after its events."""
    clock = Clock(START + NOW * MINUTE)
    with without_spark(clock):
        yield Project(tmp_path / "project", clock)


def test_every_key_of_a_declaration_is_changed() -> None:
    """A new key needs a variation here."""
    stream = next(iter(streams_schema()["properties"]["streams"]["patternProperties"].values()))["properties"]
    keys = {key for key in stream if key != "source"} | {f"source.{key}" for key in stream["source"]["properties"]}
    assert keys - {variation.key for variation in VARIATIONS} == NEED_A_JVM
    assert len({str(variation) for variation in VARIATIONS}) == len(VARIATIONS)


def named(found: dict[str, Any]) -> set[tuple[int, str]]:
    """The intervals that a repair names, by the minute in which they begin, with each of their outdated queries."""
    return {
        ((one["begin"] - START) // MINUTE, query) for one in found["outdated"] for query in one["radius"]["queries"]
    }


COPIES = dict.fromkeys(KINDS, 1) | {"headed": 6, "headless": 2, "parquet": 2, "delta": 2}
"""Streams of each kind: more streams take their variations in fewer rounds."""


def walked(project: Project) -> list[str]:
    """Play each variation once, in the streams of its kind in turn; what was wrong.

    In each round every stream changes, one of two published intervals is run, and the other is repaired. Variations
    that no query reads come first: before them nothing else has changed.
    """
    waiting: dict[str, list[Variation]] = {}
    for kind, most in COPIES.items():
        mine = [one for one in VARIATIONS if one.kind == kind and (one.is_quick or PROFILE == THOROUGH)]
        variations = sorted(mine, key=lambda one: not one.is_unread)
        for number in range(most):
            waiting[project.add(f"{kind}_{number}", kind).name] = variations[number::most]
    project.write()
    for interval in INTERVALS[:2]:
        project.run(interval)
    wrong: list[str] = []
    for number in range(max(map(len, waiting.values()))):
        now = {}
        for stream in project.streams:
            if waiting[stream.first_name]:
                now[stream.first_name] = waiting[stream.first_name].pop(0)
                stream.reset()
                now[stream.first_name].change(project, stream)
        wrong += round_of(project, INTERVALS[1 - number % 2], now)
    return wrong


def round_of(project: Project, interval: Interval, now: Mapping[str, Variation]) -> list[str]:
    """Run an interval after some streams (by their first names) changed, and repair the others; what was wrong."""
    project.write()
    record = project.run(interval)
    fresh, failed = project.fresh()
    first_names = {stream.name: stream.first_name for stream in project.streams}
    wrong = [f"{now.get(first_names[name], name)}: the run fails" for name in set(record["failed"]) - failed]
    for name in set(record["scanned"]) & set(first_names):
        variation = now.get(first_names[name])
        if variation is not None and variation.is_unread:
            wrong.append(f"{variation}: the run reads events")

    def judged(intervals: Iterable[Interval]) -> dict[Interval, dict[str, str]]:
        seen = project.seen()
        return {each: differences(project, seen, fresh, failed, each) for each in intervals}

    def told(step: str, found: Mapping[Interval, Mapping[str, str]]) -> list[str]:
        return [
            f"{now.get(stream, stream)}: after a {step} {each}: {what}"
            for each, streams in found.items()
            for stream, what in streams.items()
        ]

    wrong += told("run", judged([interval]))
    others = judged([each for each in project.published if each != interval])
    outdated = named(project.command("repair")[1])
    wrong += [
        f"{now.get(stream, stream)}: nothing names {each}, which differs from a fresh warehouse"
        for each, streams in others.items()
        for stream in streams
        if not any((each[0], f"{stream}_{which}") in outdated for which in QUERIES)
    ]
    after = judged(project.published)
    # what is wrong stays wrong: it is judged once
    project.spoiled |= {stream for streams in after.values() for stream in streams}
    return wrong + told("repair", after)


def test_each_variation(project: Project) -> None:
    wrong = walked(project)
    assert not wrong, "\n".join(wrong)
