"""The clock of live sessions, which passes where a session waits and kills it on demand."""

from __future__ import annotations

from tests.spark_jobs.laboratory import DAY, MINUTE


class Killed(BaseException):
    """The process is gone."""


class Clock:
    """The time, which passes only where somebody waits; ``kill_at``: how many tasks from now on are done before the
    process is killed."""

    def __init__(self, minute: float) -> None:
        self.now = round(DAY + minute * MINUTE)
        self.kill_at: int | None = None
        self.waits = 0

    def __call__(self) -> int:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits += 1
        self.now += round(seconds * 1e6)

    def point(self, name: str) -> None:
        if self.kill_at is not None:
            self.kill_at -= 1
            if self.kill_at < 0:
                raise Killed(name)
