"""Workers of every kind do the tasks of a stage alike: outcomes in order, counts once, errors as they are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.engine.spark import SparkWorkers
from spark_jobs.engine.workers import Workers, shares
from spark_jobs.pipeline.run.partials_stage import parts_of
from tests.sizes import examples


def squares(numbers: Iterable[int], count: Callable[[str, int], None]) -> Iterator[Any]:
    """Some outcomes for each number, and counts."""
    for number in numbers:
        count("numbers", 1)
        count("sum", number)
        yield from [(number, number * number)] * (number % 3)


def failing(numbers: Iterable[int], count: Callable[[str, int], None]) -> Iterator[Any]:
    for number in numbers:
        if number == 2:
            raise HeddleError("HDL-404", "a value that does not fit")
        yield number


def dying(numbers: Iterable[int], count: Callable[[str, int], None]) -> Iterator[Any]:
    for number in numbers:
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield number


@pytest.fixture
def processes() -> Iterator[LocalWorkers]:
    workers = LocalWorkers(2)
    yield workers
    workers.close()


def check(workers: Workers, pieces: int, most: int) -> None:
    outcome = workers.run(squares, pieces, most, "squares")
    assert outcome.results == [(number, number**2) for number in range(pieces) for _ in range(number % 3)]
    assert (outcome.counts["numbers"], outcome.counts["sum"]) == (pieces, sum(range(pieces)))


@given(pieces=st.integers(0, 40), most=st.integers(1, 20))
def test_shares_are_all_numbers_in_order(pieces: int, most: int) -> None:
    parts = shares(pieces, most)
    assert [number for part in parts for number in part] == list(range(pieces))
    assert len(parts) <= most and all(parts) and max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1


@pytest.mark.parametrize(("pieces", "most"), [(0, 3), (1, 3), (7, 1), (7, 3), (9, 20)])
def test_tasks_of_this_machine(processes: LocalWorkers, pieces: int, most: int) -> None:
    check(LocalWorkers(), pieces, most)
    check(processes, pieces, most)


def test_tasks_of_processes_in_any_number() -> None:
    workers = LocalWorkers(2)

    @settings(max_examples=examples(20))
    @given(st.integers(0, 12), st.integers(1, 9))
    def checked(pieces: int, most: int) -> None:
        check(workers, pieces, most)

    checked()
    workers.close()


@pytest.mark.spark
def test_tasks_of_spark(spark: Any) -> None:
    workers = SparkWorkers(spark.sparkContext, "a run")
    for pieces, most in ((0, 3), (1, 3), (7, 3)):
        check(workers, pieces, most)
    assert [(job.description, job.tasks, job.failed) for job in workers.jobs] == [("squares", 1, 0), ("squares", 3, 0)]
    assert all(len(job.ids) == 1 for job in workers.jobs) and workers.application and not workers.name.endswith(" ")


def test_an_error_of_a_task_is_raised_as_it_is(processes: LocalWorkers) -> None:
    for workers in (LocalWorkers(), processes):
        with pytest.raises(HeddleError, match="HDL-404 a value that does not fit"):
            workers.run(failing, 6, 6, "failing")
    # and what comes next is done
    check(processes, 5, 5)


def test_a_process_that_is_killed_fails_its_stage(processes: LocalWorkers) -> None:
    with pytest.raises(RuntimeError, match="a worker process of this machine ended"):
        processes.run(dying, 6, 6, "dying")
    check(processes, 5, 5)


@given(sizes=st.lists(st.integers(0, 1000), max_size=60), width=st.integers(1, 9), more=st.integers(0, 20))
def test_parts_are_all_splits_in_order_and_none_is_much_too_large(sizes: list[int], width: int, more: int) -> None:
    parts = parts_of(sizes, width, width + more)
    assert [number for part in parts for number in part] == list(range(len(sizes))) and len(parts) <= width + more
    known = [max(size, 1) for size in sizes]
    largest = sum(known) / width + max(known, default=0)
    assert all(sum(known[part.start : part.stop]) <= largest + 1e-9 for part in parts)


def test_the_first_tasks_read_most_where_a_core_has_several() -> None:
    assert [len(part) for part in parts_of([1] * 64, 4, 8)] == [12] * 4 + [4] * 4
    assert [len(part) for part in parts_of([1] * 64, 4, 4)] == [16] * 4
