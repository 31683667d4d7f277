"""Output of commands: tables for people, JSON for programs, diagnostics with the line that they are about."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from heddle.cli import terminal
from optimizer.errors.codes import exit_code
from optimizer.errors.crashes import crash
from optimizer.errors.diagnostics import Diagnostic, HeddleError, printable
from optimizer.errors.redaction import redacted


def exit_for(error: BaseException) -> typer.Exit:
    """Tell what ends a command; its exit code."""
    print_diagnostics([crash(error), *(error.causes if isinstance(error, HeddleError) else ())])
    return typer.Exit(exit_code(error.diagnostic.code) if isinstance(error, HeddleError) else 1)


def is_an_end(error: BaseException) -> bool:
    """Return whether an error is the command line's way to end, or comes from a reader that stops early (``|
    head``).
    """
    return isinstance(error, (typer.Abort, BrokenPipeError)) or hasattr(error, "exit_code")


TREES_SHOWN = 60
"""Most trees of a plan's table: the dearest."""


@contextmanager
def telling_errors() -> Iterator[None]:
    """Expected failures become a message and an exit code."""
    try:
        yield
    except HeddleError as error:
        raise exit_for(error) from None


WIDEST = 100
"""Characters that are shown of a line of somebody's file."""


def print_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    """Errors and warnings on stderr, each once; on a terminal with the line that each is about."""
    for diagnostic in dict.fromkeys(diagnostics):
        first, *hint = str(diagnostic).split("\n")
        place, word, what = first.partition(f"{diagnostic.severity} {diagnostic.code}")
        text = Text(place).append(word, _COLOURS[diagnostic.severity]).append(what)
        for line in _source(diagnostic) if terminal.errors.is_terminal else ():
            text.append("\n" + line)
        for line in hint:
            text.append("\n    ").append("hint:", "cyan").append(line.removeprefix("    hint:"))
        terminal.errors.print(text, highlight=False, soft_wrap=True)


_COLOURS = {"error": "bold red", "warning": "bold yellow"}


def _source(diagnostic: Diagnostic) -> list[str]:
    """The line of the workload or of streams.yaml that a finding is about, with ``^`` under the place."""
    is_text_of_ours = diagnostic.code < "HDL-4" or "HDL-45" <= diagnostic.code < "HDL-47"
    # where these point to a password may stand
    is_secret = diagnostic.code in ("HDL-123", "HDL-458", "HDL-575")
    if not diagnostic.line or not diagnostic.column or not is_text_of_ours or is_secret:
        return []
    try:
        with Path(diagnostic.file).open(encoding="utf-8-sig") as file:
            line = next(itertools.islice(file, diagnostic.line - 1, None), "").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        return []
    start, at = max(0, diagnostic.column - 1 - WIDEST // 2), diagnostic.column - 1
    if not line or at > len(line) or redacted(line) != line:
        return []
    before, behind = (printable(part.replace("\t", " ")) for part in (line[start:at], line[at : start + WIDEST]))
    return [f"    {before}{behind}", f"    {' ' * cell_len(before)}^"]


def json_text(data: dict[str, Any]) -> str:
    """The JSON object that a command prints, with the version of its form."""
    return json.dumps({"format_version": 1} | data, indent=2) + "\n"


def print_json(data: dict[str, Any]) -> None:
    """Print the one JSON object of ``--json``."""
    sys.stdout.write(json_text(data))


def write_text(path: Path, text: str) -> None:
    """Write a file that ``--output`` names. Raises HDL-115 if it cannot be written."""
    with telling_errors(), writing_to(path):
        path.write_text(text, encoding="utf-8")
    terminal.errors.print(f"wrote {path}", highlight=False, markup=False)


@contextmanager
def writing_to(path: Path, option: str = "--output") -> Iterator[None]:
    """Turn an error of writing a file, which ``option`` names, into HDL-115."""
    try:
        yield
    except OSError as error:
        raise HeddleError("HDL-115", f"{path} cannot be written: {error.strerror}", f"check {option}") from None


def seconds_text(seconds: float) -> str:
    """A duration for people, in its largest unit that divides it; long ones are rounded."""
    if seconds > 10**13:
        return f"10^{math.floor(math.log10(seconds) - math.log10(31_557_600))} years"
    for size, unit in ((31_557_600, "years"), (86400, "d")):
        if seconds >= 1000 * size:
            return f"≈ {seconds / size:,.0f} {unit}"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size:g} {unit}"
    return f"{seconds:g} s"


def interval_text(begin: int, end: int) -> str:
    """An interval [begin, end) of microseconds for people."""
    from optimizer.workload.instants import format_instant

    return f"{format_instant(begin)} .. {format_instant(end)}"


LISTED = 20
"""Names and rows of a list that are shown to people."""


def print_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of the first :data:`LISTED` rows, and how many more there are."""
    table = Table(title=title, title_justify="left")
    for name in columns:
        is_text = name in ("old", "new", "query", "because", "quantity", "experiment")
        table.add_column(name, justify="left" if is_text else "right")
    for row in rows[:LISTED]:
        table.add_row(*row)
    terminal.console.print(table)
    if len(rows) > LISTED:
        terminal.console.print(f"  … {len(rows) - LISTED:,} more (--json has all)")


def unit_text(cost_model: str) -> str:
    """The unit of a cost model's costs."""
    return "operations/s" if cost_model == "paper" else "CPU-s/s"


def print_table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """All rows, each value as it is, fingerprints in short."""
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        cells = {"fingerprint": str(row.get("fingerprint"))[:8]}
        table.add_row(*(cells.get(name) or ("" if row[name] is None else str(row[name])) for name in columns))
    terminal.console.print(table)
