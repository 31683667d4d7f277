"""Stands in for a Spark session where there is little to do: tasks run in this process, one after the other, without a
JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


class Accumulator:
    """Counts what tasks tell, as Spark's accumulators do."""

    def __init__(self, value: int) -> None:
        self.value = value

    def add(self, amount: int) -> None:
        """Count so many more."""
        self.value += amount


class InProcess:
    """What the stages of a run ask of a Spark session and its context, but for what Spark itself computes (checks).

    ``point``: called before and after the tasks of a stage, with what that moment is.
    """

    defaultParallelism = 2

    def __init__(self, point: Callable[[str], None] = lambda name: None) -> None:
        self.sparkContext = self
        self.point = point
        self.numbers: list[int] = []

    def stop(self) -> None:
        """There is nothing to stop."""

    def accumulator(self, value: int) -> Accumulator:
        """A counter that begins at ``value``."""
        return Accumulator(value)

    def statusTracker(self) -> InProcess:
        """What knows the jobs."""
        return self

    def getJobIdsForGroup(self) -> list[int]:
        """The jobs that were run."""
        return [1]

    def parallelize(self, numbers: Iterable[int], pieces: int) -> InProcess:
        """The numbers, for :meth:`mapPartitions`."""
        made = InProcess(self.point)
        made.numbers = list(numbers)
        return made

    def mapPartitions(self, task: Callable[[Iterable[int]], Iterator[Any]]) -> InProcess:
        """Have a task done for all numbers by :meth:`collect`."""
        self.task = task
        return self

    def flatMap(self, task: Callable[[Any], Iterable[Any]]) -> InProcess:
        """Have a task done for each number."""
        return self.mapPartitions(lambda items: (result for item in items for result in task(item)))

    def collect(self) -> list[Any]:
        """Do it: all that the task yields."""
        self.point("before tasks")
        results = list(self.task(self.numbers))
        self.point("after tasks")
        return results
