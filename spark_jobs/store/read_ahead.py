"""Reads ahead where reading waits for a store: the first of many is worked on while the next are on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Queue
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

AT_ONCE = 4
"""Number of reads at the same time."""

WAITING = 2
"""Number of items of each read that may wait for the consumer: the memory that reading ahead takes."""


def read_ahead(reads: Iterable[Callable[[], Iterable[T]]], at_once: int = AT_ONCE) -> Iterator[T]:
    """Yield the items of some reads, in their order, as if one followed the other.

    Raises what a read raises, in its place. No read continues after that, or after this iterator is closed.
    """
    pending_reads, begun, stop = iter(reads), deque[_Reading[T]](), Event()

    def begin() -> None:
        for read in pending_reads:
            begun.append(_Reading(read, stop))
            return

    try:
        for _ in range(at_once):
            begin()
        while begun:
            yield from begun[0].items()
            begun.popleft()
            begin()
    finally:
        stop.set()
        for reading in begun:
            reading.end()


class _Reading(Generic[T]):
    """A read in a separate thread."""

    def __init__(self, read: Callable[[], Iterable[T]], stop: Event) -> None:
        self._read, self._stop = read, stop
        self._queue: Queue[tuple[T, ...] | BaseException | None] = Queue(WAITING)
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def items(self) -> Iterator[T]:
        """Yield the items of the read, and raise its error."""
        while (message := self._queue.get()) is not None:
            if isinstance(message, BaseException):
                raise message
            yield message[0]

    def end(self) -> None:
        """Wait until the read has ended. It must have been stopped before."""
        while self._thread.is_alive():
            # it may wait for room
            try:
                self._queue.get_nowait()
            except Empty:
                self._thread.join(0.01)

    def _work(self) -> None:
        try:
            for item in self._read():
                self._queue.put((item,))
                if self._stop.is_set():
                    return
        except BaseException as error:
            self._queue.put(error)
        else:
            self._queue.put(None)
