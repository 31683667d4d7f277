"""Progress of a long command on standard error: its stages with counts and seconds, for people or for programs.

A terminal shows the running stage, and a line for each that has ended. If standard error is no terminal, nothing is
printed, unless ``heddle --progress json`` requests a JSON object a line.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from rich.text import Text

from heddle.cli import terminal
from optimizer.errors.diagnostics import printable

EVERY = 0.5
"""Seconds between two looks at how many of Spark's tasks are done."""

SHOWN = 0.1
"""Seconds from which on a stage that has ended has a line."""


class Form(StrEnum):
    """Form of the progress output."""

    auto = "auto"
    json = "json"
    none = "none"


_form = Form.auto


def choose(form: Form) -> None:
    """Choose the form of this command's progress output."""
    global _form
    _form = form


class Stages:
    """The stages of one command. Calling it with a line begins a stage, and so ends the one before.

    ``clock`` counts seconds; ``show`` gets the line of the running stage.
    """

    def __init__(self, form: Form, show: Callable[[str], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self.form, self.show, self.clock = form, show, clock
        self.line, self.begun, self.counts = "", 0.0, (0, 0)
        self.prefix = ""

    def __call__(self, line: str) -> None:
        self.end()
        self.line, self.begun = self.prefix + line, self.clock()
        counted = re.search(r"\((\d+) of (\d+)\)", line)
        self.counts = (int(counted[1]), int(counted[2])) if counted else (0, 0)
        self._tell("begin")

    def of(self, number: int, total: int, what: str) -> None:
        """Prefix the following stages with the name of one of several things."""
        self.prefix = f"{what} ({number} of {total}): " if total > 1 else ""

    def count(self, done: int, total: int) -> None:
        """Report the number of done tasks of the stage, and the number of known tasks."""
        if self.line and (done, total) != self.counts:
            self.counts = done, total
            self._tell("progress")

    def end(self) -> None:
        """End the stage that goes on."""
        if self.line:
            self._tell("end")
            self.line = ""

    @property
    def text(self) -> str:
        """The stage that goes on, as people are shown it."""
        done, total = self.counts
        counted = f", {done:,} of {total:,} tasks" if total and f"({done} of {total})" not in self.line else ""
        return f"{self.line}{counted}"

    def _tell(self, event: str) -> None:
        seconds = self.clock() - self.begun
        if self.form is Form.json:
            record: dict[str, Any] = {"stage": self.line, "event": event, "seconds": round(seconds, 3)}
            record |= {"done": self.counts[0], "total": self.counts[1]} if self.counts[1] else {}
            terminal.errors.file.write(json.dumps(record) + "\n")
            terminal.errors.file.flush()
        elif self.form is Form.auto and terminal.errors.is_terminal:
            if event == "end" and seconds >= SHOWN:
                terminal.errors.print(Text(printable(f"  {self.text}  {seconds:.1f} s"), "dim"), soft_wrap=True)
            elif event != "end":
                self.show(self.text)


@contextmanager
def stages(line: str) -> Iterator[Stages]:
    """The stages of what is done within, of which ``line`` is the first."""
    if _form is not Form.auto or not terminal.errors.is_terminal:
        progress = Stages(_form, lambda text: None)
        progress(line)
        try:
            yield progress
        finally:
            progress.end()
        return
    with terminal.errors.status("") as status:
        progress = Stages(_form, lambda text: status.update(Text(printable(text))))
        progress(line)
        try:
            yield progress
        finally:
            progress.end()


@contextmanager
def watched(stages: Stages, tasks_done: Callable[[], tuple[int, int]]) -> Iterator[None]:
    """Show how many tasks are done while the block runs, if progress is shown at all."""
    if not (stages.form is Form.json or (stages.form is Form.auto and terminal.errors.is_terminal)):
        yield
        return
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(stages, tasks_done, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(stages: Stages, tasks_done: Callable[[], tuple[int, int]], ended: threading.Event) -> None:
    while not ended.wait(EVERY):
        try:
            done, total = tasks_done()
        except Exception:
            # the session ends, and with it what there is to be seen
            return
        if total:
            stages.count(done, total)
