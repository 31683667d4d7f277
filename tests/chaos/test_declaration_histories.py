"""Whatever key of a declaration, file, setting or place changes between commands: readers see what a fresh warehouse
would show them, or the interval is named.

:mod:`tests.chaos.declarations` has the projects, the variations and the judge. ``make test`` plays each variation once,
all of them in one project; ``make test-all`` plays random histories.
"""

from __future__ import annotations

import copy
import random
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optimizer.workload.streams_schema import streams_schema
from spark_jobs.results.read import read
from spark_jobs.store.settings import DECLARED
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant
from tests import oracle
from tests.chaos.declarations import (
    ELSEWHERE,
    FILES,
    INTERVALS,
    KINDS,
    MINUTE,
    NEED_A_JVM,
    NEED_OTHERS,
    NOW,
    QUERIES,
    SETTINGS,
    START,
    VARIATIONS,
    Interval,
    Project,
    Variation,
    arrow,
    arrow_of_texts,
    differences,
    iso,
    late,
)
from tests.in_process import Clock, without_spark
from tests.sizes import PROFILE, THOROUGH, examples


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
    assert keys - {variation.key for variation in VARIATIONS} == NEED_A_JVM | NEED_OTHERS
    assert len({str(variation) for variation in VARIATIONS}) == len(VARIATIONS)


def named(found: dict[str, Any]) -> set[tuple[int, str]]:
    """The intervals that a repair names, by the minute in which they begin, with each of their outdated queries."""
    return {
        ((interval["begin"] - START) // MINUTE, query)
        for interval in found["outdated"]
        for query in interval["radius"]["queries"]
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
        candidates = [
            variation
            for variation in VARIATIONS
            if variation.kind == kind and (variation.is_quick or PROFILE == THOROUGH)
        ]
        variations = sorted(candidates, key=lambda variation: not variation.is_unread)
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


def round_of(project: Project, interval: Interval, now: Mapping[str, Variation], then: str = "repair") -> list[str]:
    """Run an interval after some streams (by their first names) changed, then another command; what was wrong.

    A ``backfill`` and a ``tick`` publish some other interval. A ``repair`` publishes all that are not as they would be
    in a fresh warehouse; whatever follows, they are named.
    """
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

    def described(step: str, verdicts: Mapping[Interval, Mapping[str, str]]) -> list[str]:
        return [
            f"{now.get(stream, stream)}: after a {step} {each}: {what}"
            for each, streams in verdicts.items()
            for stream, what in streams.items()
        ]

    project.release()
    wrong += described("run", judged([interval]))
    other_verdicts = judged([each for each in project.published if each != interval])
    wrong += unnamed(project, record, now, other_verdicts)
    outdated = named(project.command("repair", *(() if then == "repair" else ("--dry-run",)))[1])
    wrong += [
        f"{now.get(stream, stream)}: nothing names {each}, which differs from a fresh warehouse"
        for each, streams in other_verdicts.items()
        for stream in streams
        if not any((each[0], f"{stream}_{kind}") in outdated for kind in QUERIES)
    ]
    after: dict[Interval, dict[str, str]] = {}
    if then == "repair":
        after = judged(project.published)
    elif then == "backfill":
        project.command("backfill", "--every", "2 hours", "--from", iso(0), "--to", iso(120))
        after = judged([INTERVALS[0]])
    elif (following := project.tick()) is not None:
        fresh, failed = project.fresh()
        after = judged([following])
    # what is wrong stays wrong: it is judged once
    project.spoiled |= {stream for streams in after.values() for stream in streams}
    return wrong + described(then, after)


def unnamed(
    project: Project,
    record: Mapping[str, Any],
    now: Mapping[str, Variation],
    others: Mapping[Interval, Mapping[str, str]],
) -> list[str]:
    """The intervals that a new declaration made wrong, and that neither the run nor `status` names."""
    names = {stream.first_name: stream.name for stream in project.streams}
    declared = {
        (interval, stream): now[stream]
        for interval, streams in others.items()
        for stream in streams
        if stream in now and now[stream].is_declared
    }
    status = project.declared_otherwise() if declared else set()
    run = {diagnostic["message"].split()[1] for diagnostic in record["diagnostics"] if diagnostic["code"] == "HDL-470"}
    wrong = [
        f"{variation}: status does not name {interval}"
        for (interval, stream), variation in declared.items()
        if (interval[0], names[stream]) not in status
    ]
    wrong += [
        f"{variation}: the run does not name the other intervals"
        for (_, stream), variation in declared.items()
        if names[stream] not in run
    ]
    return wrong


def test_each_variation(project: Project) -> None:
    wrong = walked(project)
    assert not wrong, "\n".join(wrong)


def test_a_fresh_warehouse_equals_the_oracle(project: Project) -> None:
    """The judge of these tests, judged by DuckDB: every format and kind of window, by both times."""
    for kind in ("headed", "headless", "counted", "parquet", "delta", "both"):
        for time_column in ("t1", "t2"):
            stream = project.add(f"{kind}_{time_column}", kind, tuple(QUERIES) if time_column == "t1" else ("range",))
            stream.declaration["time"] = time_column
    project.write()
    record = project.run((0, 360))
    assert not record["failed"]
    house = Warehouse.open(project.root / project.warehouse, create=False)
    events = [row for rows in FILES.values() for row in rows]
    compared = 0
    for query in load_plan(house, 1).workload.queries:
        table = arrow(events) if query.stream.startswith(("parquet", "delta")) else arrow_of_texts(events)
        begin, end = START, START + 360 * MINUTE
        instants = [parse_instant(refresh["at"]) for refresh in record["refreshes"]]
        restricted_query = oracle.asked_at(query, instants) if query.window.at_most is not None else query
        # rows of one time are ordered by the columns as they are declared
        expected = oracle.answers(restricted_query, table, query.stream[-2:], begin, end)
        answers = read(house, query.name, begin, end)
        assert answers.num_rows == len(expected) > 0, query.name
        assert oracle.compare(query, answers, expected) == [], query.name
        compared += len(expected)
    assert compared > 300


# ------------------------------------------------------------------------------------------------ histories
def history(project: Project, chance: random.Random, rounds: int) -> list[str]:
    """Play a random history; what was wrong, behind what happened."""
    kinds = [chance.choice(list(KINDS)) for _ in range(3)]
    for number, kind in enumerate(kinds):
        queries = tuple(chance.sample(list(QUERIES), 2))
        project.add(f"s{number}_{kind}", kind, queries)
    project.write()
    for interval in INTERVALS[:2]:
        project.run(interval)
    happened = [", ".join(f"{stream.name} ({' '.join(stream.queries)})" for stream in project.streams)]
    for _ in range(rounds):
        now = {}
        for stream in chance.sample(project.streams, chance.randint(0, 2)):
            variation = chance.choice([variation for variation in VARIATIONS if variation.kind == stream.kind])
            if chance.random() < 0.4:
                happened.append(f"{stream.first_name} also:")
            else:
                stream.reset()
            happened.append(f"{stream.first_name}: {variation}")
            variation.change(project, stream)
            now[stream.first_name] = replace(variation, is_unread=False)
        if (place := chance.choice(("", "", "", "moved", "copied", "copied without times"))) and place not in happened:
            happened.append(place)
            project.moved() if place == "moved" else project.copied(place == "copied")
        interval = chance.choice(INTERVALS)
        then = chance.choice(("repair", "backfill", "tick"))
        happened.append(f"run {interval}, {then}")
        wrong = round_of(project, interval, now, then)
        if wrong:
            return [*happened, *wrong]
    return []


@pytest.mark.parametrize("seed", range(examples(1, 200)))
def test_histories(seed: int, project: Project) -> None:
    wrong = history(project, random.Random(seed), 4)
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------------------------------------------- settings
def test_every_setting_is_changed() -> None:
    """A new setting needs a value in the generator."""
    known = {setting.name for setting in DECLARED}
    assert known - set(SETTINGS) == ELSEWHERE
    assert set(SETTINGS) - known == {"TZ", "LC_ALL"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project of which two intervals are published, to be copied back to its place."""
    place = tmp_path_factory.mktemp("place")
    with without_spark(clock := Clock(START + NOW * MINUTE)):
        project = Project(place / "project", clock)
        for kind in ("headed", "headless", "parquet", "delta"):
            project.add(kind, kind)
        project.write()
        for interval in INTERVALS[:2]:
            project.run(interval)
    project.root = project.root.rename(place / "kept")
    return project


@pytest.fixture
def settled(kept: Project) -> Iterator[Project]:
    """A copy of the project that is kept, at the place where it was made."""
    place = kept.root.with_name("project")
    for folder in kept.root.parent.iterdir():
        if folder != kept.root:
            shutil.rmtree(folder)
    shutil.copytree(kept.root, place)
    with without_spark(kept.clock):
        yield replace(kept, root=place, streams=copy.deepcopy(kept.streams), published=list(kept.published))


def changed_settings(project: Project, names: Iterable[str]) -> None:
    """Change some settings, and run an interval again: nothing is read or published. Then the next one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            for variable, value in SETTINGS[name](project).items():
                patch.setenv(variable, value)
        time.tzset()
        again, following = project.run(INTERVALS[1]), project.run(INTERVALS[2])
        assert again["status"] == "unchanged", names
        assert all(begin >= START + INTERVALS[2][0] * MINUTE for begin, _, _ in following["scanned"].values()), names
        assert not project.command("repair")[1]["outdated"]
    time.tzset()
    fresh, failed = project.fresh()
    assert not failed
    assert not any(differences(project, project.seen(), fresh, failed, interval) for interval in project.published)


def test_settings_change_no_answer(settled: Project) -> None:
    changed_settings(settled, SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_changes_no_answer(name: str, settled: Project) -> None:
    changed_settings(settled, [name])


# -------------------------------------------------------------------------------------------------- places
def late_files(project: Project) -> None:
    for stream in project.streams:
        late(project, stream)


def is_as_fresh(project: Project) -> None:
    fresh, failed = project.fresh()
    seen = project.seen()
    assert not failed
    assert not any(differences(project, seen, fresh, failed, interval) for interval in project.published)


def goes_on(project: Project) -> None:
    """The next interval reads its own events, and nothing else has changed."""
    record = project.run(INTERVALS[2])
    assert not record["failed"] and not (record["radius"] or {}).get("rows")
    assert all(begin >= START + INTERVALS[2][0] * MINUTE for begin, _, _ in record["scanned"].values())
    assert not project.command("repair", "--dry-run")[1]["outdated"]


def repairs_late_files(project: Project) -> None:
    """`repair`, first of all commands, names the intervals of late files and publishes them again."""
    late_files(project)
    repaired = named(project.command("repair")[1])
    expected = {(begin, f"{stream.first_name}_range") for begin, _ in INTERVALS[:2] for stream in project.streams}
    assert expected <= repaired
    is_as_fresh(project)


THEN = {"goes on": goes_on, "repairs late files": repairs_late_files}


@pytest.mark.parametrize("then", THEN)
def test_a_moved_project(then: str, settled: Project) -> None:
    settled.moved()
    THEN[then](settled)


@pytest.mark.parametrize("with_times", [True, False])
@pytest.mark.parametrize("then", THEN)
def test_a_copied_project(then: str, with_times: bool, settled: Project) -> None:
    """The copy looks at its own files, and the original at those of its own."""
    original = settled.copied(with_times)
    THEN[then](settled)
    assert not original.command("repair", "--dry-run")[1]["outdated"]
    late_files(original)
    assert not settled.command("repair", "--dry-run")[1]["outdated"]
    assert original.command("repair", "--dry-run")[1]["outdated"]
