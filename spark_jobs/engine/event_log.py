"""Read Spark's event log of an application: its jobs, their stages and tasks, and its executors.

An event log is a file of JSON lines, or a folder of such files. It is compressed frame by frame as it is written.
So if the application still runs, or was killed, the last line is incomplete. Unreadable parts of a log are skipped:
another process wrote it, perhaps on another machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.redaction import redacted
from spark_jobs.store.storage import Place

MOST_BYTES = 256 << 20
"""Bytes to read of a log, unpacked: some ten thousand jobs."""

MOST_LINE = 8 << 20
"""Bytes of one event; a longer one is skipped."""

MOST_FILES = 1_000
"""Number of files to read of the log of one application."""

CHUNK = 1 << 18
MOST_REASON = 300
"""Characters of why a task failed."""

_LARGEST = 1 << 53
"""Milliseconds and counts beyond it are none."""

_HEAD = re.compile(rb'\{"Event":"SparkListener(\w+)"(?:,"Stage ID":(\d{1,10}),)?')
_MILLIS, _NANOS = 1e-3, 1e-9
_KILLED = ("TaskKilled", "TaskCommitDenied")


@dataclass
class SeenStage:
    """One stage of a job, all attempts of it.

    ``tasks``: number of its tasks. ``done``, ``failed``, ``killed``: attempts of them by outcome. ``reasons``:
    reasons of failures, with their numbers. ``run_seconds``: time for which its tasks occupied a core, in Python
    too. ``jvm_seconds``: CPU of the executors' JVMs.
    """

    id: int
    tasks: int = 0
    done: int = 0
    failed: int = 0
    killed: int = 0
    seconds: float | None = None
    run_millis: int = 0
    jvm_nanos: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def run_seconds(self) -> float:
        return self.run_millis * _MILLIS

    @property
    def jvm_seconds(self) -> float:
        return self.jvm_nanos * _NANOS


@dataclass
class SeenJob:
    """One job of Spark.

    ``group``: the id of its run. ``submitted``: milliseconds since 1970. ``seconds``: until it ended. ``reason``:
    the reason if it failed.
    """

    id: int
    group: str
    description: str
    submitted: int
    status: Literal["running", "succeeded", "failed"] = "running"
    seconds: float | None = None
    reason: str = ""
    stages: dict[int, SeenStage] = field(default_factory=dict)

    @property
    def tasks(self) -> int:
        return sum(stage.tasks for stage in self.stages.values())

    @property
    def failed(self) -> int:
        return sum(stage.failed for stage in self.stages.values())

    @property
    def run_seconds(self) -> float:
        return sum(stage.run_seconds for stage in self.stages.values())

    @property
    def reasons(self) -> dict[str, int]:
        """Reasons of failed attempts of tasks, with their numbers."""
        counts: dict[str, int] = {}
        for stage in self.stages.values():
            for reason, times in stage.reasons.items():
                counts[reason] = counts.get(reason, 0) + times
        return counts


@dataclass
class SeenApplication:
    """An application, as far as its log exists.

    ``ended``: whether the log has its end. ``is_whole``: whether all of the log was read. ``executors``: number of
    all executors. ``lost``: executors that were lost before the end, with the reasons. ``groups``: number of jobs
    of each run. ``jobs``: the requested jobs, by their ids.
    """

    id: str
    ended: bool = False
    is_whole: bool = True
    executors: int = 0
    lost: dict[str, str] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    jobs: dict[int, SeenJob] = field(default_factory=dict)

    def of_group(self, group: str) -> list[SeenJob]:
        """The jobs of one run, in order."""
        return [job for _, job in sorted(self.jobs.items()) if job.group == group]

    @property
    def lost_executors(self) -> list[tuple[str, str]]:
        """Ids of the executors that were lost before the end, with the reasons."""
        return sorted(self.lost.items())


def read_event_log(folder: str, application: str, group: str | None = None) -> SeenApplication | None:
    """Read the event log of an application; None if a folder has none, or it cannot be read.

    ``folder``: a path or URL. ``group``: the only job group whose tasks are counted; None: all.
    """
    seen = _Reader(application, group)
    try:
        files = _files(folder, application)
        if not files:
            return None
        for line in _lines(files, seen.application):
            seen.take(line)
    except (OSError, HeddleError):
        # a store that does not answer, a folder that another user owns
        return None
    return seen.application


def _files(folder: str, application: str) -> list[Place]:
    """The files of the log of an application, in order, of its last attempt."""
    if not re.fullmatch(r"[A-Za-z0-9_\-]{1,200}", application):
        return []
    place, known = Place.of(folder.removeprefix("file://")), re.escape(application.lower())
    single = re.compile(rf"{known}(?:_(\d{{1,9}}))?(?:\.zstd)?(?:\.inprogress)?")
    attempts = [(int(match[1] or 0), file.name) for file in place.listed() if (match := single.fullmatch(file.name))]
    if attempts:
        return [place / max(attempts)[1]]
    rolled = re.compile(rf"eventlog_v2_{known}(?:_(\d{{1,9}}))?")
    folders = [(int(match[1] or 0), name) for name in place.folders() if (match := rolled.fullmatch(name))]
    if not folders:
        return []
    inside = place / max(folders)[1]
    part = re.compile(rf"events_(\d{{1,9}})_{known}(?:_\d{{1,9}})?(?:\.zstd)?(?:\.compact)?")
    parts = [(int(match[1]), file.name) for file in inside.listed() if (match := part.fullmatch(file.name))]
    return [inside / name for _, name in sorted(parts)[:MOST_FILES]]


def _lines(files: list[Place], application: SeenApplication) -> Iterator[bytes]:
    """The complete lines of some files, up to :data:`MOST_BYTES`."""
    remaining = MOST_BYTES
    for file in files:
        remainder, is_too_long = b"", False
        for chunk in _chunks(file):
            remaining -= len(chunk)
            if remaining < 0:
                application.is_whole = False
                return
            *lines, remainder = (remainder + chunk).split(b"\n")
            if lines and is_too_long:
                lines, is_too_long = lines[1:], False
            if len(remainder) > MOST_LINE:
                remainder, is_too_long = b"", True
                application.is_whole = False
            yield from lines


def _chunks(file: Place) -> Iterator[bytes]:
    """The bytes of a file, unpacked, up to the first broken frame. Raises OSError if it cannot be opened."""
    done, size = 0, CHUNK
    while size:
        with file.open() as stored, _unpacked(stored, file.name) as content:
            try:
                _skip(content, done)
                while chunk := content.read(size):
                    done += len(chunk)
                    yield chunk
                return
            except OSError:
                # a frame that is not whole: what is before it is read in smaller parts
                size //= 64


def _unpacked(stored: pa.NativeFile, name: str) -> pa.NativeFile:
    return pa.CompressedInputStream(stored, "zstd") if ".zstd" in name else stored


def _skip(content: pa.NativeFile, size: int) -> None:
    while size > 0 and (chunk := content.read(min(size, CHUNK))):
        size -= len(chunk)


class _Reader:
    """Gathers the events of one log."""

    def __init__(self, application: str, group: str | None) -> None:
        self.application, self._group = SeenApplication(application), group
        self._stages: dict[int, SeenStage] = {}

    def take(self, line: bytes) -> None:
        """Read one line of the log; unknown events are skipped."""
        head = _HEAD.match(line)
        if head is None:
            return
        taking = _EVENTS.get(head[1])
        # most lines are the ends of tasks, and of a session most are of other runs
        if taking is None or (head[2] and int(head[2]) not in self._stages):
            return
        try:
            taking(self, json.loads(line))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            self.application.is_whole = False

    def _ended(self, event: dict[str, Any]) -> None:
        self.application.ended = True

    def _executor_came(self, event: dict[str, Any]) -> None:
        self.application.executors += 1

    def _executor_went(self, event: dict[str, Any]) -> None:
        reason = event.get("Removed Reason")
        self.application.lost[_text(event["Executor ID"], 60)] = _reason(reason if isinstance(reason, str) else "")

    def _job_began(self, event: dict[str, Any]) -> None:
        properties = event.get("Properties") or {}
        group = _raw(properties.get("spark.jobGroup.id"))
        self.application.groups[group] = self.application.groups.get(group, 0) + 1
        if self._group is not None and group != self._group:
            return
        description = _text(properties.get("spark.job.description"), MOST_REASON)
        job = SeenJob(_whole(event["Job ID"]), group, description, _whole(event["Submission Time"]))
        self.application.jobs[job.id] = job
        for stage in event["Stage Infos"]:
            number = _whole(stage["Stage ID"])
            if number not in self._stages:
                # one that another job has done already is skipped in this one
                self._stages[number] = job.stages[number] = SeenStage(number, _whole(stage["Number of Tasks"]))

    def _job_ended(self, event: dict[str, Any]) -> None:
        job = self.application.jobs.get(_whole(event["Job ID"]))
        if job is None:
            return
        result = event["Job Result"]
        job.status = "succeeded" if result["Result"] == "JobSucceeded" else "failed"
        job.seconds = _span(job.submitted, event["Completion Time"])
        if job.status == "failed":
            job.reason = _reason(_raw((result.get("Exception") or {}).get("Message")))

    def _stage_ended(self, event: dict[str, Any]) -> None:
        info = event["Stage Info"]
        stage = self._stages.get(_whole(info["Stage ID"]))
        if stage is not None and "Submission Time" in info and "Completion Time" in info:
            seconds = _span(_whole(info["Submission Time"]), info["Completion Time"])
            stage.seconds = round((stage.seconds or 0.0) + seconds, 3)

    def _task_ended(self, event: dict[str, Any]) -> None:
        stage = self._stages.get(_whole(event["Stage ID"]))
        if stage is None:
            return
        ending = event["Task End Reason"]
        kind = _raw(ending["Reason"])
        if kind == "Success":
            stage.done += 1
        elif kind in _KILLED:
            stage.killed += 1
        else:
            stage.failed += 1
            description = next(
                (ending[name] for name in ("Description", "Loss Reason", "Message") if ending.get(name)), kind
            )
            reason = _reason(_raw(description)) or kind
            stage.reasons[reason] = stage.reasons.get(reason, 0) + 1
        measured = event.get("Task Metrics") or {}
        stage.run_millis += _whole(measured.get("Executor Run Time", 0))
        stage.jvm_nanos += _whole(measured.get("Executor CPU Time", 0))


_EVENTS: dict[bytes, Any] = {
    b"ApplicationEnd": _Reader._ended,
    b"ExecutorAdded": _Reader._executor_came,
    b"ExecutorRemoved": _Reader._executor_went,
    b"JobStart": _Reader._job_began,
    b"JobEnd": _Reader._job_ended,
    b"StageCompleted": _Reader._stage_ended,
    b"TaskEnd": _Reader._task_ended,
}


def _whole(value: Any) -> int:
    """A number of the log. Raises TypeError for anything else."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise TypeError(f"no number of an event: {type(value)}")
    return value


def _span(begin: int, end: Any) -> float:
    """The seconds between two milliseconds."""
    return round(max(0, _whole(end) - begin) * _MILLIS, 3)


def _raw(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _text(value: Any, most: int) -> str:
    return printable(redacted(_raw(value)), most)


def _reason(text: str) -> str:
    """Reason of a failure in a line; for an error of Python the line below its traceback."""
    lines = [line for line in text[-20_000:].splitlines() if line.strip()] if "Traceback" in text else []
    traces = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    after = lines[traces[-1] + 1 :] if traces else text.strip().splitlines()
    line = next((line for line in after if not line.startswith(" ")), after[0] if after else "")
    return _text(line.strip(), MOST_REASON)
