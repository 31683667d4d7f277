"""Drivers that take turns: any interleaving of what they do to one warehouse can be drawn, and drawn again.

Each *driver* is a thread, and just one of them runs at a time. At a *point* (before and after every lease, every look
at a table, every commit, every file) it hands the turn to the next, whom a seed draws. The lease is the real file lock;
who waits for it is just not drawn. An adversary may take the lease away from its holder, who does not notice: as if it
had been stopped, or the database of the lease restarted.
"""

from __future__ import annotations

import fcntl
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.results import own_table
from spark_jobs.store.warehouse import lease as lease_module
from spark_jobs.store.warehouse import warehouse
from spark_jobs.windows.partials import stored_coverage


def in_process(point: Callable[[str], None] = lambda name: None) -> Engine:
    """What does tasks in this process, and has no session of Spark; see :class:`LocalWorkers`."""
    return Engine("tests", given=LocalWorkers(point=point))


@dataclass
class Orders:
    """One ordering of what some drivers do. ``switch``: how likely a point hands the turn on; ``breaks``: how likely it
    takes the lease from whoever holds it."""

    chance: random.Random
    root: Path
    switch: float = 0.3
    breaks: float = 0.0
    told: list[str] = field(default_factory=list)
    broken: int = 0

    def __post_init__(self) -> None:
        self.turn = threading.Condition()
        self.now: int | None = None
        self.live: set[int] = set()
        self.waiting: set[int] = set()
        self.names: dict[int, str] = {}
        self.failures: list[BaseException] = []

    def play(self, drivers: dict[str, Callable[[], None]]) -> None:
        """Run them all to their ends, one at a time, in the drawn order. Raises what a driver raised."""
        threads = [
            threading.Thread(target=self._drive, args=(number, body), daemon=True)
            for number, body in enumerate(drivers.values())
        ]
        self.names = dict(enumerate(drivers))
        self.live = set(self.names)
        with self.turn:
            self._hand_on()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _drive(self, number: int, body: Callable[[], None]) -> None:
        _mine.number, _mine.orders = number, self
        with self.turn:
            self.turn.wait_for(lambda: self.now == number)
        try:
            body()
        except BaseException as error:
            self.failures.append(error)
        finally:
            with self.turn:
                self.live.discard(number)
                self.waiting.clear()
                self._hand_on()

    def _hand_on(self) -> None:
        able = sorted(self.live - self.waiting) or sorted(self.live)
        self.now = self.chance.choice(able) if able else None
        self.turn.notify_all()

    def point(self, name: str, always: bool = False) -> None:
        """Perhaps another driver's turn."""
        number = getattr(_mine, "number", None)
        if number is None or _mine.orders is not self:
            return
        if self.breaks and self.chance.random() < self.breaks:
            self._break()
        if not always and self.chance.random() >= self.switch:
            return
        with self.turn:
            self.told.append(f"{self.names[number]}: {name}")
            self._hand_on()
            self.turn.wait_for(lambda: self.now == number)

    def _break(self) -> None:
        """The lease of whoever holds it is anyone's."""
        lease = self.root / ".lease"
        content = lease.read_bytes()
        lease.unlink()
        lease.write_bytes(content)
        self.broken += 1
        self.told.append("the lease is taken away")
        self.waiting.clear()

    def lock(self, file: int, operation: int) -> None:
        """``flock`` that lets others go on while it waits."""
        number = getattr(_mine, "number", None)
        while number is not None:
            try:
                return _flock(file, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                self.waiting.add(number)
                self.point("waits for the lease", always=True)
        return _flock(file, operation)


_mine = threading.local()
_flock = fcntl.flock

POINTS: tuple[tuple[Any, str], ...] = (
    (warehouse.Warehouse, "check_lease"),
    (DeltaTable, "__init__"),
    (DeltaTable, "create_write_transaction"),
    (warehouse, "write_deltalake"),
    (own_table, "write_deltalake"),
    (warehouse, "write_files"),
    (stored_coverage, "write_files"),
)


@contextmanager
def in_turns(orders: Orders) -> Iterator[None]:
    """Every driver yields at every point."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in POINTS:
            patch.setattr(owner, name, _yielding(orders, getattr(owner, name), name))
        original = warehouse.Warehouse.lease

        @contextmanager
        def lease(self: warehouse.Warehouse) -> Iterator[int]:
            orders.point("before lease")
            with original(self) as token:
                orders.point("has the lease")
                yield token
            orders.waiting.clear()
            orders.point("after lease")

        patch.setattr(warehouse.Warehouse, "lease", lease)
        patch.setattr(lease_module.fcntl, "flock", orders.lock)
        yield


def _yielding(orders: Orders, held: Callable[..., Any], name: str) -> Callable[..., Any]:
    def yielding(*args: Any, **kwargs: Any) -> Any:
        orders.point(f"before {name}")
        result = held(*args, **kwargs)
        orders.point(f"after {name}")
        return result

    return yielding
