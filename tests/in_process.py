"""Commands of the command line in this process, with a clock of their own and without a JVM.

Tasks run in the driver (:class:`tests.chaos.orders.in_process`); the audit, which needs Spark, finds what the caller
says.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import typer.rich_utils
from typer import testing
from typer.main import get_command

from heddle.cli.app import app
from spark_jobs.pipeline.run import checks_stage

COMMAND = get_command(app)
"""Made once: that takes longer than most commands."""

PASSED = ({"check": "none", "success": True, "detail": ""},)

WIDTH = 110
"""Columns of the terminal that help is rendered for."""


@dataclass
class Clock:
    """The time of day, in microseconds since the epoch; no two looks at it are the same."""

    now: int

    def nanoseconds(self) -> int:
        self.now += 1
        return self.now * 1000


@contextmanager
def without_spark(clock: Clock, checks: Sequence[dict[str, Any]] = PASSED) -> Iterator[None]:
    """Within it commands run in this process at ``clock``, and every audit finds ``checks``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", clock.nanoseconds)
        patch.setattr(testing, "_get_command", lambda _: COMMAND)
        patch.setattr(typer.rich_utils, "MAX_WIDTH", WIDTH)
        patch.setenv("COLUMNS", str(WIDTH))
        patch.setattr(checks_stage, "audit", lambda *arguments: [dict(check) for check in checks])
        yield


@dataclass(frozen=True)
class Said:
    """What a command said: its exit code, and its text on standard output and standard error."""

    code: int
    out: str
    err: str


def heddle(*arguments: str) -> Said:
    """Run a command. Raises whatever it raises but its own end."""
    done = testing.CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Said(done.exit_code, done.stdout, done.stderr)
