"""Reading ahead gives what reading gives, in order, and ends when whoever asked for it does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.store.read_ahead import read_ahead


def counted(items: list[int], fails: bool) -> Iterator[int]:
    """The items, and then maybe a failure."""
    yield from items
    if fails:
        raise OSError(f"after {items}")


def read_all(reads: Iterator[int]) -> tuple[list[int], str]:
    """What comes, and of what it ends."""
    numbers = []
    try:
        for item in reads:
            numbers.append(item)
    except OSError as error:
        return numbers, str(error)
    return numbers, ""


@given(
    st.lists(st.tuples(st.lists(st.integers(), max_size=6), st.integers(0, 5).map(lambda n: not n)), max_size=12),
    st.integers(1, 5),
)
def test_it_is_what_one_after_the_other_gives(pieces: list[tuple[list[int], bool]], at_once: int) -> None:
    one_by_one = (item for items, fails in pieces for item in counted(items, fails))
    assert read_all(read_ahead([partial(counted, *piece) for piece in pieces], at_once)) == read_all(one_by_one)


@given(st.integers(0, 40), st.integers(1, 4))
def test_nothing_goes_on_when_nobody_reads(taken: int, at_once: int) -> None:
    before = threading.active_count()
    reads = read_ahead([partial(iter, range(10))] * 5, at_once)
    assert [next(reads) for _ in range(taken)] == [*range(10)] * (taken // 10) + [*range(taken % 10)]
    reads.close()
    assert threading.active_count() == before


def test_several_are_read_at_once() -> None:
    meeting = threading.Barrier(3, timeout=60)

    def read() -> Iterator[int]:
        yield meeting.wait() * 0

    assert list(read_ahead([read] * 3, 3)) == [0, 0, 0]
    with pytest.raises(threading.BrokenBarrierError):
        meeting.abort()
        list(read_ahead([read], 1))
