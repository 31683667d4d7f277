"""Workers for the tasks of a stage, with any engine: Spark, Spark Connect, or only this machine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from optimizer.errors.diagnostics import count as number_of
from spark_jobs.store.warehouse.publish_log import coded_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Count = Callable[[str, int], None]
"""Adds an amount to the counter of a name."""

Task = Callable[..., Iterator[Any]]
"""The work of a stage: given numbers of pieces and a :data:`Count`, it yields outcomes."""


EVENTS = "events"
"""Name of the count of events that tasks read, for people."""


def uncounted(name: str, amount: int) -> None:
    """The :data:`Count` that counts nothing."""


@dataclass(frozen=True)
class Job:
    """Spark's work for one stage of a run.

    ``description``: a line for people. ``ids``: of its jobs. ``tasks``: their number, and ``failed``: the number of
    failed attempts. ``seconds``: wall time. ``events``: number of events that its tasks read. ``cpu_seconds``: of
    its tasks, in Python.
    """

    description: str
    ids: tuple[int, ...]
    tasks: int
    failed: int
    seconds: float
    events: int = 0
    cpu_seconds: float = 0.0

    @property
    def line(self) -> str:
        """For people."""
        events = f"{number_of(self.events, 'event')}, " if self.events else ""
        failed = f", {self.failed} failed" if self.failed else ""
        spent = f", {self.cpu_seconds:.1f} CPU-s" if self.cpu_seconds else ""
        tasks = f"{number_of(self.tasks, 'task')}{failed}"
        return f"{self.description}: {events}{tasks}, {self.seconds:.1f} s{spent}"


@dataclass(frozen=True)
class StageOutcome:
    """Outcomes of the tasks of a stage, in the order of their pieces, and their counts.

    A task that is tried again counts once: its counts and its ``cpu_seconds`` come back with the outcomes of one
    attempt.
    """

    results: list[Any]
    counts: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0


LEAST_A_TASK = 100_000
"""Events or rows that a task has at least: a second process that imports and loads kernels costs more than they do."""

FILES_A_TASK = 8
"""Files for which a task pays, however few events they have."""


def tasks_for(amount: float, width: int, files: int = 0) -> int:
    """Number of ``width`` tasks at once that are worth their start for an amount of events or rows, in a number of
    files, each of which takes time to open.
    """
    return min(width, max(1, int(amount // LEAST_A_TASK), files // FILES_A_TASK))


class Workers(Protocol):
    """``name``: for the log and the record, as "spark local[2]"; ``jobs``: what Spark did, in order; ``application``,
    ``ui``: the id of Spark's application and the address of its pages, empty where it has none."""

    name: str
    jobs: list[Job]
    application: str
    ui: str

    @property
    def is_warm(self) -> bool:
        """Return whether the processes of the workers have started, as far as is known here."""

    @property
    def width(self) -> int:
        """The tasks that they do at once."""

    def run(self, task: Task, pieces: int, most: int, description: str) -> StageOutcome:
        """Do a task for the numbers 0 .. ``pieces`` - 1, spread over at most ``most`` tasks. ``description``: what it
        is for, for people. Raises what a task raises, in the engine's own wrapping."""

    def tasks_done(self) -> tuple[int, int]:
        """Numbers of finished tasks and of all tasks in progress, as far as is known here."""

    def session(self) -> SparkSession | None:
        """A session for work that only Spark can do; None if there is none and none can be started."""

    def close(self) -> None:
        """End what was started for them."""


@dataclass(frozen=True)
class _Counts:
    amounts: Counter[str]
    cpu_seconds: float


def counting(task: Task) -> Callable[[Iterable[int]], Iterator[Any]]:
    """A task that yields last what it counted, for :func:`outcome_of`."""

    def counted(numbers: Iterable[int]) -> Iterator[Any]:
        amounts: Counter[str] = Counter()
        begun = time.process_time()

        def count(name: str, amount: int) -> None:
            amounts[name] += amount

        yield from task(numbers, count)
        yield _Counts(amounts, time.process_time() - begun)

    return counted


def outcome_of(yielded: Sequence[Any]) -> StageOutcome:
    """Combine the outcomes that tasks made by :func:`counting` yielded, in order."""
    counts: Counter[str] = Counter()
    results, cpu_seconds = [], 0.0
    for outcome in yielded:
        if isinstance(outcome, _Counts):
            counts.update(outcome.amounts)
            cpu_seconds += outcome.cpu_seconds
        else:
            results.append(outcome)
    return StageOutcome(results, counts, round(cpu_seconds, 3))


def shares(pieces: int, most: int) -> list[range]:
    """The numbers 0 .. ``pieces`` - 1 as at most ``most`` runs of about the same length."""
    tasks = min(pieces, most)
    return [range(pieces * at // tasks, pieces * (at + 1) // tasks) for at in range(tasks)]


T = TypeVar("T")

Available = Callable[[], "Workers | None"]
"""Returns the workers of a run before it is known how much it reads; None: that decides what they are."""


def unavailable() -> None:
    """The :data:`Available` of a caller without workers."""


def in_shares(
    work: Callable[[Sequence[int]], T], pieces: int, tasks: int, available: Available, description: str
) -> list[T]:
    """Do some work for the numbers 0 .. ``pieces`` - 1, in consecutive shares, and return its results in their order.

    If more than one of ``tasks`` is worth its start and workers are available, each share is a task; else this process
    does it all at once. Raises what the work raises, as a coded error.
    """
    workers = available() if tasks > 1 else None
    if workers is None:
        return [work(range(pieces))]

    def task(numbers: Iterable[int], count: Count) -> Iterator[T]:
        if share := list(numbers):
            yield work(share)

    try:
        return workers.run(task, pieces, min(tasks, workers.width), description).results
    except Exception as error:
        raise coded_error(error) from error
