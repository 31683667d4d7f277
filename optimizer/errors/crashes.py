"""Diagnostics of unexpected errors and interruptions, and how a job ends with them."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.installing import EXTRAS, install_hint
from optimizer.errors.redaction import redacted

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Terminated(KeyboardInterrupt):
    """An interruption by SIGTERM."""


def is_debugging(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether to print tracebacks and the JVM's log: ``HEDDLE_DEBUG``."""
    return environment.get("HEDDLE_DEBUG", "") not in ("", "0")


def is_failure(error: BaseException) -> bool:
    """Return whether this is a failure. A panic of Rust code is one, although it is no ``Exception``."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def finding(error: BaseException) -> Diagnostic:
    """The diagnostic of any error; for a :class:`HeddleError`, its own."""
    if isinstance(error, HeddleError):
        return error.diagnostic
    if isinstance(error, KeyboardInterrupt):
        return Diagnostic("HDL-903", interrupted(error), "run it again")
    if isinstance(error, ModuleNotFoundError) and error.name and (extra := EXTRAS.get(error.name.partition(".")[0])):
        return Diagnostic("HDL-904", f"{error.name} is not installed, which this needs", install_hint(extra))
    first_line = str(error).strip().split("\n")[0]
    what = type(error).__name__ + (f": {first_line}" if first_line else "")
    # Arrow's errors of memory are Python's, the JVM's are not
    if isinstance(error, MemoryError) or "OutOfMemoryError" in str(error):
        return Diagnostic("HDL-901", f"there is not enough memory ({what})", "give more, or ask for less at once")
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        hint = "is the disk full?" if error.errno in FULL else "check the path and its permissions"
        return Diagnostic("HDL-902", f"the system refused: {place}{error.strerror}", hint)
    return Diagnostic("HDL-900", what, "this is an error in Heddle: please report it")


def crash(error: BaseException) -> Diagnostic:
    """The :func:`finding` of an error that ends a command or a job.

    The traceback of an unexpected error, without secrets, is saved to a file for a bug report. It is printed while
    :func:`is_debugging`, and then also for an expected error.
    """
    diagnostic, text = finding(error), redacted("".join(traceback.format_exception(error)))
    if is_debugging():
        sys.stderr.write(text)
    elif not isinstance(error, HeddleError):
        diagnostic = replace(diagnostic, hint=f"{diagnostic.hint}; {_kept(text)}")
    return diagnostic


def _kept(text: str) -> str:
    """Keep a traceback, readable by this user alone; where, in words."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="heddle-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return "HEDDLE_DEBUG=1 shows the traceback, which could not be kept"
    return f"the traceback is in {file.name}"


def tell_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the diagnostic of an error that ends the process: the ``sys.excepthook`` of Heddle's jobs."""
    sys.stderr.write(("interrupted" if isinstance(error, KeyboardInterrupt) else str(crash(error))) + "\n")
    sys.stderr.flush()


def exit_code_of(job: Callable[[], int]) -> int:
    """Run a job and return its exit code: 1, with the diagnostic printed, if it raises; :func:`interrupted_code` if it
    is interrupted.
    """
    try:
        return job()
    except KeyboardInterrupt as error:
        _tell(interrupted(error))
        return interrupted_code(error)
    except BaseException as error:
        if not is_failure(error):
            raise
        causes = error.causes if isinstance(error, HeddleError) else ()
        _tell("\n".join(map(str, (crash(error), *causes))))
        return 1


def _tell(text: str) -> None:
    """Print to standard error, if anybody still reads it."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def interrupted(error: KeyboardInterrupt, outcome: str = "") -> str:
    """Message of an interruption with what was and was not done: from the error itself, else ``outcome``."""
    what, how = str(error) or outcome, "ended by SIGTERM" if isinstance(error, Terminated) else "interrupted"
    return f"{how}: {what}" if what else how


def interrupted_code(error: KeyboardInterrupt) -> int:
    """The exit code of an interruption, as shells have it."""
    return 143 if isinstance(error, Terminated) else 130
