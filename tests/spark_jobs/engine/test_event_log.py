"""What is read of Spark's event log is what Spark counted, and of a log that is cut or hostile, what is whole of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.event_log import MOST_LINE, SeenApplication, SeenJob, read_event_log
from tests.sizes import examples

SERVED = """
import json, sys
from pyspark import TaskContext
from spark_jobs.engine.session import start_session
from spark_jobs.engine.spark import SparkWorkers

session = start_session("counted", "local[2,3]")
context = session.sparkContext
print("APPLICATION", context.applicationId, flush=True)

def fails(failures):
    def task(numbers, count):
        for number in numbers:
            if TaskContext.get().attemptNumber() < failures.get(number, 0):
                raise ValueError(f"piece {number} is broken\\n  and this is no reason")
            yield number
    return task

for line in sys.stdin:
    counted = []
    for group, stages in json.loads(line):
        workers = SparkWorkers(session.sparkContext, group)
        for description, pieces, failures in stages:
            try:
                workers.run(fails({int(key): value for key, value in failures.items()}), pieces, pieces, description)
            except Exception:
                pass
        counted.append([[job.ids[0], job.description, job.tasks, job.failed] for job in workers.jobs])
    # what is logged last is written by then
    context._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    print("COUNTED", json.dumps(counted), flush=True)
session.stop()
"""

Stages = list[tuple[str, int, dict[int, int]]]
Jobs = list[tuple[int, str, int, int]]


class Counted:
    """A Spark application of another process that does what it is given, and says what Spark counted."""

    def __init__(self, events: Path) -> None:
        self.events = events
        environment = os.environ | {"HEDDLE_EVENT_LOG": str(events), "HEDDLE_DRIVER_MEMORY": "1g"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVED], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.application = self._told("APPLICATION")

    def _told(self, what: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(what):
                return line.removeprefix(what).strip()
        raise AssertionError(f"the process ended with {self.process.wait()}")

    def play(self, runs: list[tuple[str, Stages]]) -> list[Jobs]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(runs) + "\n")
        self.process.stdin.flush()
        return [[tuple(job) for job in jobs] for jobs in json.loads(self._told("COUNTED"))]

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait() == 0

    def seen(self, group: str | None = None) -> SeenApplication:
        application = read_event_log(str(self.events), self.application, group)
        assert application is not None and application.is_whole
        return application


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    counted_application = Counted(tmp_path_factory.mktemp("events"))
    yield counted_application
    counted_application.process.kill()
    counted_application.process.wait()


def stages() -> st.SearchStrategy[Stages]:
    """Jobs of one run: description, pieces, and how many attempts of which of them fail."""

    def stage(pieces: int) -> st.SearchStrategy[tuple[str, int, dict[int, int]]]:
        failures = st.dictionaries(st.integers(0, pieces - 1), st.integers(1, 3))
        return st.tuples(st.text(max_size=8), st.just(pieces), failures)

    return st.lists(st.integers(1, 4).flatmap(stage), min_size=1, max_size=3)


@pytest.mark.spark
def test_what_is_read_is_what_spark_counted(counted: Counted) -> None:
    """Any jobs of any runs, while the application goes on and after it, whether attempts of their tasks fail or all."""
    known: dict[str, Jobs] = {}

    @settings(max_examples=examples(10), deadline=None)
    @given(st.lists(stages(), min_size=1, max_size=2))
    def checked(drawn: list[Stages]) -> None:
        names = [f"run {len(known) + number}" for number in range(len(drawn))]
        known.update(zip(names, counted.play(list(zip(names, drawn, strict=True))), strict=True))
        for group, planned in zip(names, drawn, strict=True):
            # Spark writes its log behind what it counts
            seen = next(seen for seen in map(counted.seen, [group] * 1000) if has_counted(seen, group, known[group]))
            assert not seen.ended and seen.groups[group] == len(planned) and set(seen.groups) == set(known)
            check(seen, group, planned, known[group])

    checked()
    counted.end()
    seen = counted.seen()
    assert seen.ended and seen.executors == 1 and not seen.lost
    for group, jobs in known.items():
        same_counts(seen.of_group(group), jobs)


def has_counted(seen: SeenApplication, group: str, jobs: Jobs) -> bool:
    """Whether the log has all failures that Spark has counted."""
    seen_jobs = seen.of_group(group)
    return len(seen_jobs) == len(jobs) and all(
        job.failed >= failed for job, (*_, failed) in zip(seen_jobs, jobs, strict=True)
    )


def same_counts(found: list[SeenJob], jobs: Jobs) -> None:
    assert [(job.id, job.tasks) for job in found] == [(at, tasks) for at, _, tasks, _ in jobs]
    for job, (*_, failed) in zip(found, jobs, strict=True):
        # of a job that was given up, attempts still fail after it is counted
        assert job.failed >= failed if job.status == "failed" else job.failed == failed


def check(seen: SeenApplication, group: str, planned: Stages, jobs: Jobs) -> None:
    seen_jobs = seen.of_group(group)
    assert len(seen_jobs) == len(seen.jobs) and len(seen_jobs) == len(planned)
    same_counts(seen_jobs, jobs)
    for job, (description, pieces, failures) in zip(seen_jobs, planned, strict=True):
        # what is not printable is shown by its code point
        assert not description.isprintable() or job.description == description
        is_broken = 3 in failures.values()
        assert (job.tasks, job.status) == (pieces, "failed" if is_broken else "succeeded")
        assert job.seconds is not None and (job.reason != "") == is_broken
        if not is_broken:
            assert job.failed == sum(failures.values())
            assert job.reasons == {f"ValueError: piece {piece} is broken": times for piece, times in failures.items()}
            assert all(stage.done == stage.tasks for stage in job.stages.values())


# --------------------------------------------------------------------------------------- cut, and hostile
def event(name: str, **told: Any) -> str:
    return json.dumps({"Event": f"SparkListener{name}", **told}, separators=(",", ":"))


def end_of_task(stage: int, reason: dict[str, Any]) -> str:
    measured = {"Executor Run Time": 1500, "Executor CPU Time": 250_000_000}
    fields = {"Stage ID": stage, "Stage Attempt ID": 0, "Task End Reason": reason, "Task Metrics": measured}
    return event("TaskEnd", **fields)


TRACE = "Traceback (most recent call last):\n  File\nKeyError: 'é'\n more"
LINES = [
    event("LogStart", **{"Spark Version": "4.2.0"}),
    event("ExecutorAdded", **{"Timestamp": 1, "Executor ID": "1"}),
    event(
        "JobStart",
        **{
            "Job ID": 4,
            "Submission Time": 1_000,
            "Stage Infos": [{"Stage ID": 7, "Number of Tasks": 2}],
            "Properties": {"spark.jobGroup.id": "a", "spark.job.description": "partials é"},
        },
    ),
    end_of_task(7, {"Reason": "ExceptionFailure", "Description": TRACE}),
    event("ExecutorRemoved", **{"Executor ID": "1", "Removed Reason": "Container killed by YARN\nmore"}),
    end_of_task(7, {"Reason": "Success"}),
    end_of_task(7, {"Reason": "Success"}),
    event("StageCompleted", **{"Stage Info": {"Stage ID": 7, "Submission Time": 1_000, "Completion Time": 4_000}}),
    event("JobEnd", **{"Job ID": 4, "Completion Time": 4_500, "Job Result": {"Result": "JobSucceeded"}}),
    event("ApplicationEnd", Timestamp=9),
]
KEYS = sorted({key for line in LINES for key in json.loads(line)} | {"Number of Tasks", "Reason"})
PLAIN = "".join(f"{line}\n" for line in LINES).encode()


def zstd(content: bytes) -> bytes:
    """As Spark writes: a frame each time that it flushes."""
    return b"".join(pa.compress(line, "zstd", asbytes=True) for line in content.splitlines(keepends=True))


@pytest.mark.parametrize("suffix", ["", ".inprogress", ".zstd", ".zstd.inprogress"])
def test_a_log_that_is_cut_anywhere_has_what_is_whole_of_it(suffix: str, tmp_path: Path) -> None:
    content = zstd(PLAIN) if "zstd" in suffix else PLAIN
    file = tmp_path / f"app-1{suffix}"
    before = (0, 0, 0, False)
    for size in range(len(content) + 1):
        file.write_bytes(content[:size])
        seen = read_event_log(str(tmp_path), "app-1", "a")
        assert seen is not None and seen.is_whole
        job = seen.jobs.get(4)
        stage = job.stages[7] if job is not None else None
        progress = (seen.executors, stage.done if stage else 0, stage.failed if stage else 0, seen.ended)
        assert all(now >= then for now, then in zip(progress, before, strict=True))
        before = progress
    assert before == (1, 2, 1, True) and seen is not None and job is not None and stage is not None
    assert (job.status, job.seconds, job.description, stage.seconds) == ("succeeded", 3.5, "partials é", 3.0)
    assert (job.reasons, seen.lost) == ({"KeyError: 'é'": 1}, {"1": "Container killed by YARN"})
    assert (stage.run_seconds, stage.jvm_seconds) == (4.5, 0.75)
    assert seen.of_group("b") == []


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_no_log_breaks_the_reader(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bytes of a log that were changed, and events whose values are anything."""
    place = tmp_path_factory.mktemp("hostile")
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        max_leaves=8,
    )
    lines: list[str] = list(LINES)
    for at in data.draw(st.lists(st.integers(0, len(LINES) - 1), max_size=4)):
        fields = json.loads(lines[at])
        fields[data.draw(st.sampled_from(KEYS))] = data.draw(values)
        lines[at] = json.dumps(fields, separators=(",", ":"))
    content = bytearray("".join(f"{line}\n" for line in lines).encode())
    if data.draw(st.booleans()):
        content = bytearray(zstd(bytes(content)))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=5)):
        content[at] = data.draw(st.integers(0, 255))
    suffix = ".zstd" if content[:4] == b"\x28\xb5\x2f\xfd" else ""
    (place / f"app-1{suffix}").write_bytes(content)
    seen = read_event_log(str(place), "app-1")
    assert seen is not None
    for job in seen.jobs.values():
        assert job.description.isprintable() and all(reason.isprintable() for reason in job.reasons)


@pytest.mark.parametrize(
    "line",
    [
        b'{"Event":"SparkListenerJobStart","Job ID":' + b"[" * 100_000,
        b'{"Event":"SparkListenerJobStart","Job ID":' + b"9" * 10_000 + b"}",
        b'{"Event":"SparkListenerJobStart","Job ID":1,"Submission Time":1e999}',
        b'{"Event":"SparkListenerTaskEnd","Stage ID":7,"Task End Reason":5}',
        b'{"Event":"SparkListenerJobEnd"}',
        b"x" * (MOST_LINE + (1 << 20)),
        b"\xff\xfe",
    ],
)
def test_an_event_that_is_none_is_left_out(line: bytes, tmp_path: Path) -> None:
    lines = PLAIN.splitlines(keepends=True)
    (tmp_path / "app-1").write_bytes(b"".join([*lines[:5], line + b"\n", *lines[5:]]))
    seen = read_event_log(str(tmp_path), "app-1")
    assert seen is not None and seen.ended and seen.jobs[4].stages[7].done == 2
    assert seen.is_whole == line.startswith(b"\xff")


def test_where_a_log_is_found(tmp_path: Path) -> None:
    def write(name: str, content: bytes = PLAIN) -> None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)

    def tasks(application: str) -> int | None:
        seen = read_event_log(tmp_path.as_uri(), application)
        return None if seen is None else sum(job.tasks for job in seen.jobs.values())

    write("application_1_1_1")
    write("application_1_1_2.zstd", zstd(PLAIN.replace(b'of Tasks":2', b'of Tasks":5')))
    assert tasks("application_1_1") == 5
    half = len(b"".join(PLAIN.splitlines(keepends=True)[:4]))
    write("eventlog_v2_app-2/events_2_app-2", PLAIN[half:])
    write("eventlog_v2_app-2/events_1_app-2.zstd", zstd(PLAIN[:half]))
    write("eventlog_v2_app-2/appstatus_app-2", b"")
    assert tasks("app-2") == 2
    for absent in ("app-3", "application_1", "../secret", "", ".", "app-2/../app-2", "a" * 500, "é"):
        assert tasks(absent) is None
    assert read_event_log(str(tmp_path / "no folder"), "app-2") is None
    assert read_event_log("hdfs://nowhere/logs", "app-2") is None


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.engine.event_log.MOST_BYTES", 1 << 20)
    bomb = pa.compress(b"\n" * (4 << 20), "zstd", asbytes=True)
    (tmp_path / "app-1.zstd").write_bytes(bomb + zstd(PLAIN))
    seen = read_event_log(str(tmp_path), "app-1")
    assert seen is not None and not seen.is_whole and not seen.jobs
