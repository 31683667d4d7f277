"""The registry of error codes: each code that Heddle reports, with its meaning and its consequences.

A code is stable: its number is never reused. The first digit is its area (:data:`AREAS`). Callers that decide
something by a code (the exit code of a command, whether the run fails, the HTTP status of a page) ask
:func:`exit_code`, :func:`is_fatal` and :func:`http_status`. These accept any text, because a warehouse may contain a
code that a later Heddle has declared.

``docs/errors.md`` is :func:`page`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType

from optimizer.errors.code import AREAS as AREAS
from optimizer.errors.code import Code as Code
from optimizer.errors.codes_of_queries import CODES_OF_QUERIES
from optimizer.errors.codes_of_runs import CODES_OF_RUNS
from optimizer.errors.codes_of_sources import CODES_OF_SOURCES

DECLARED = (*CODES_OF_QUERIES, *CODES_OF_SOURCES, *CODES_OF_RUNS)

CODES: Mapping[str, Code] = MappingProxyType({code.code: code for code in DECLARED})
"""Every code, by its number."""


def exit_code(code: str) -> int:
    """The exit code of a command that an error of this code ends: 2 if the command was called wrongly, else 1."""
    return CODES[code].exit_code if code in CODES else 1


def is_fatal(code: str) -> bool:
    """Return whether an error of this code fails the run, and not only the stream in whose work it arose."""
    return code in CODES and CODES[code].fatal


def http_status(code: str) -> int:
    """The HTTP status of a page that an error of this code ends."""
    return CODES[code].http_status if code in CODES else 400


def page() -> str:
    """The registry as Markdown: a table for each area."""
    module = __spec__.name if __spec__ is not None else __name__
    statuses = ", ".join(f"{code.code} {code.http_status}" for code in DECLARED if code.http_status != 400)
    lines = [
        "# Error codes",
        "",
        f"<!-- Generated: edit {module.replace('.', '/')}.py, then python -m {module} > docs/errors.md -->",
        "",
        "Whatever Heddle refuses or reports carries a code, a message and, where something can be done, a hint. "
        "A code never changes its meaning.",
        "",
        "- **Severity**: an error leaves out what it is about, a warning does not; a record stands in a row of a "
        "table. `heddle validate` tells errors of a stream that no query reads as warnings.",
        "- **Exit**: the exit code of a command that the error ends; 2 means that it was called wrongly.",
        "- **Fails the run**: yes, if the whole run fails wherever the error arises. Any other error that arises in "
        "the work on one stream fails that stream alone, and the run if no stream is left.",
        f"- **HTTP status** of a page in Airflow that the error ends: {statuses}; any other 400.",
    ]
    for area in AREAS.values():
        lines += ["", f"## {area}", "", "| Code | Meaning | What to do | Severity | Exit | Fails the run |"]
        lines.append("|---|---|---|---|---|---|")
        lines += [_row(code) for code in DECLARED if code.area == area]
    return "\n".join(lines) + "\n"


def _row(code: Code) -> str:
    severity = "error or warning" if code.severity == "either" else code.severity
    ends = str(code.exit_code) if code.severity in ("error", "either") else ""
    return f"| {code.code} | {code.meaning} | {code.action} | {severity} | {ends} | {'yes' if code.fatal else ''} |"


if __name__ == "__main__":
    sys.stdout.write(page())
