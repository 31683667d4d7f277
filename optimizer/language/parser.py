"""Query text to typed values, for text that nobody trusts.

Strategy: limit first, cut second, parse third, allow-list last. A linear scanner of our own splits a file
into statements (so that a broken one costs only itself) and blanks comments. Bytes, tokens, nesting and
connectives are counted on the token list of the *stock* sqlglot tokenizer before any recursive code sees it.
Our own clauses are cut out of that list, the rest is parsed by stock sqlglot (dialect ``spark``, never a
subclass; it sees our functions under names that it does not know, so that each arrives as it was written),
and the tree is mapped node by node to :mod:`optimizer.workload.values` values. A node, an argument of a node
or a function that is not named here is refused, so new syntax of a later sqlglot is refused too. The text
itself goes no further.
"""

from __future__ import annotations

import bisect
import glob
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from optimizer.errors.diagnostics import Diagnostic, HeddleError, count
from optimizer.language.reader import NamedStatement, read_query
from optimizer.language.refusals import Findings, Refused, shown_text
from optimizer.language.statements import RULES, SETTING, split_statements
from optimizer.language.words import LEFT_OUT, MOST_PROBLEMS, QUERY_NAME, Limits, check_characters
from optimizer.workload.instants import instant_of_text
from optimizer.workload.values import ACQ, Stream, Workload

FILE_BYTES = 64 << 20
"""Largest workload file that is read."""


@dataclass(frozen=True)
class ParseResult:
    """The queries that can be answered, in file order, and everything found wrong or worth knowing.

    ``positions``: line and column (1-based) where each of the queries begins.
    """

    queries: tuple[ACQ, ...]
    diagnostics: tuple[Diagnostic, ...]
    positions: tuple[tuple[int, int], ...] = ()

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(found for found in self.diagnostics if found.severity == "error")


def parse(
    text: str,
    streams: Mapping[str, Stream],
    file: str = "",
    limits: Limits | None = None,
    unreadable: Collection[str] = (),
) -> ParseResult:
    """All the queries of one workload file. ``unreadable``: streams that are declared and of no use.

    Never raises for bad text: a query that cannot be used is left out and said why, with line and column in
    ``file`` (1-based, columns in characters); the others are returned. Linear in the text.

    Statements end with ``;``. A line ``-- name: x`` before a statement names it (otherwise the file's stem
    and its number in the file do), ``-- owner: y`` says whose it is, ``-- until: instant`` the last instant that
    it answers. A statement is::

        SELECT <group column or aggregate> [AS name], … FROM stream
        [PATTERN SEQ(type, …) ON column [PARTITION BY column, …]]
        WINDOW RANGE '…' SLIDE [AT MOST] '…' [ENDING '…' AGO] ON time
             | ROWS n SLIDE m [PARTITION BY column, …] ON time
        [WHERE condition] [GROUP BY column, …]
        [HAVING <aggregate or output> <comparison> <constant> AND …] [WITH (error = number)]

    with the WINDOW and PATTERN clauses anywhere behind FROM and WITH at the end.

    - ``PATTERN``: what is aggregated are the sequences of events of these types, in strictly ascending time, all in
      one window and equal in the columns of PARTITION BY and GROUP BY; ``count(*)`` counts them, ``count(E)``,
      ``sum(E.x)``, ``avg``, ``min`` and ``max`` go over their events of type E. WHERE leaves events out before.
    - ``AT MOST``: a refresh bound. Windows end at those multiples of the stream's step that the schedule chooses, never
      further apart than the bound; RANGE is a multiple of the step.
    - ``ENDING``: every window is shifted back by so much, see :class:`optimizer.workload.values.Window`.
    - ``ROWS``: the stream's rows, all of them, are numbered from 0 in the order of time, rows of equal time in that of
      the values of all the stream's columns; window k is over the rows [k*m, k*m + n), and WHERE leaves rows out
      within it. ``PARTITION BY`` numbers the rows of each of its keys by themselves; its columns are group columns.
    - ``HAVING``: only answers that satisfy all thresholds exist. An aggregate that is null satisfies none.
    - ``WITH (error = …)``: what distinct counts, percentiles, modes and top-k may be off by, in HAVING too, unless one
      of them names its own error, as Spark's approximate functions can; without any, answers are exact.
    """
    limits = limits or Limits()
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    queries: dict[str, ACQ] = {}
    diagnostics: list[Diagnostic] = []
    where: dict[str, int] = {}

    def position(at: int) -> tuple[int, int]:
        line = bisect.bisect_right(lines, at)
        return line, at - lines[line - 1] + 1

    def report(at: int, query: str, code: str, message: str, hint: str, severity: str = "error") -> None:
        diagnostics.append(Diagnostic(code, message, hint, file, *position(at), query, severity))

    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(file).stem) or "query"
    stem = stem if QUERY_NAME.match(stem) else "_" + stem
    for ordinal, statement in enumerate(split_statements(text), 1):
        name, owner, until = f"{stem[:100]}_{ordinal}", "", None
        bad = list(statement.broken)
        given: set[str] = set()
        for at, comment in statement.comments:
            setting = SETTING.fullmatch(comment)
            if setting is None:
                continue
            what, value = setting[1].lower(), setting[2].strip()
            if what in given:
                bad.append((at, "HDL-109", f"a second {what} for one query", "is a semicolon missing above?"))
            given.add(what)
            if what == "owner" and value.isprintable() and 0 < len(value) <= 128:
                owner = value
            elif what == "name" and QUERY_NAME.fullmatch(value):
                name = value
            elif what == "until" and (instant := instant_of_text(value)) is not None:
                until = instant
            else:
                bad.append((at, "HDL-109", f"{shown_text(value)} is no {what}", RULES[what]))
        try:
            # in its comments too, which may be made to look like the query
            for at, comment in statement.comments:
                check_characters(comment, at)
            check_characters(
                text[statement.start : min(statement.end, statement.start + limits.bytes)], statement.start
            )
        except Refused as refused:
            bad.append((refused.at, refused.code, refused.message, refused.hint))
        if name in where:
            hint = f"the first is in line {position(where[name])[0]} and is kept"
            bad.append((statement.start, "HDL-209", f"two queries are named {name}", hint))
        where.setdefault(name, statement.start)
        for at, code, message, hint in bad:
            report(at, name, code, message, hint)
        if bad:
            continue
        findings, query = Findings(), None
        with findings.collecting():
            source = text[statement.start : statement.end].rstrip()
            named = NamedStatement(statement.text, name, owner, source)
            query = read_query(named, streams, limits, unreadable, findings)
        for found in findings.problems[:MOST_PROBLEMS]:
            report(statement.start + found.at, name, found.code, found.message, found.hint)
        for found in findings.warnings:
            report(statement.start + found.at, name, found.code, found.message, found.hint, "warning")
        if query is not None and query.window.is_rows and until is not None:
            hint = "remove -- until, or ask for a window of time"
            report(statement.start, name, "HDL-109", "a query over a number of rows has no lifetime", hint)
        elif query is not None:
            queries[name] = replace(query, until=until)
    positions = tuple(position(where[name]) for name in queries)
    return ParseResult(tuple(queries.values()), tuple(diagnostics), positions)


def beyond_quota(query: ACQ, quota: int, file: str, line: int = 0, column: int = 0) -> Diagnostic:
    """HDL-311: its owner has as many queries as are permitted without it."""
    whose = f"of {query.owner}" if query.owner else "without an owner"
    message = f"there are {quota} queries {whose} already, the quota"
    hint = "remove some, or raise HEDDLE_OWNER_QUOTA"
    return Diagnostic("HDL-311", message, hint, file, line, column, query.name)


def load_workload(
    files: Iterable[str | Path],
    streams: Mapping[str, Stream],
    limits: Limits | None = None,
    quota: int | None = None,
    origin: dict[str, str] | None = None,
    unreadable: Collection[str] = (),
    wrong: set[str] | None = None,
) -> tuple[Workload, tuple[Diagnostic, ...]]:
    """The workload of some files, and what was found wrong with them.

    ``unreadable``: streams that are declared and of no use, which was told; of all queries over one it is told once
    that they are left out. ``quota``: the most queries of one owner (those without one are one owner's); the first ones
    are kept, the others are refused one by one (HDL-311). ``origin`` is told the file of each query, ``wrong`` the
    names of those with an error, as findings have them.

    A file that cannot be read gives HDL-111, a name that an earlier file has HDL-209; the first one is kept.
    """
    queries: dict[str, ACQ] = {}
    origin = {} if origin is None else origin
    held: dict[str, int] = {}
    diagnostics: list[Diagnostic] = []
    for path in files:
        try:
            with Path(path).open("rb") as opened:
                content = opened.read(FILE_BYTES + 1)
            if len(content) > FILE_BYTES:
                diagnostics.append(Diagnostic("HDL-111", f"is larger than {FILE_BYTES} bytes", "split it", str(path)))
                continue
            text = content.decode("utf-8-sig")
        except OSError as error:
            diagnostics.append(Diagnostic("HDL-111", f"cannot be read: {error.strerror}", file=str(path)))
            continue
        except UnicodeDecodeError as error:
            message = f"is not UTF-8 text (byte {error.start})"
            diagnostics.append(Diagnostic("HDL-111", message, "save it as UTF-8", file=str(path)))
            continue
        found = parse(text, streams, str(path), limits, unreadable)
        diagnostics += found.diagnostics
        for query, position in zip(found.queries, found.positions, strict=True):
            if query.name in queries:
                message = f"two queries are named {query.name}"
                hint = f"the first is in {origin[query.name]} and is kept"
                diagnostics.append(Diagnostic("HDL-209", message, hint, str(path), *position, query.name))
            elif quota is not None and held.get(query.owner, 0) >= quota:
                diagnostics.append(beyond_quota(query, quota, str(path), *position))
            else:
                held[query.owner] = held.get(query.owner, 0) + 1
                queries[query.name], origin[query.name] = query, str(path)
    if wrong is not None:
        wrong |= {found.query for found in diagnostics if found.severity == "error"}
    return Workload(tuple(queries.values()), tuple(streams.values())), tuple(_told_once(diagnostics))


def _told_once(diagnostics: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """The findings, those about one unreadable stream as one, at the first of its queries."""
    counts = Counter(found.message for found in diagnostics if found.code == LEFT_OUT)
    for found in diagnostics:
        if found.code != LEFT_OUT:
            yield found
        elif number := counts.pop(found.message, 0):
            left_out = f"{found.message}: {count(number, 'query')} over it left out"
            yield replace(found, message=left_out, query=found.query if number == 1 else "")


def workload_files(paths: Iterable[str | Path]) -> list[Path]:
    """The files that are named: by a folder its ``*.sql``, by a pattern what it matches, in the order of their names.

    Raises HDL-111 for a path that names none.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_file():
            named = [path]
        elif path.is_dir():
            named = sorted(path.glob("*.sql"))
        else:
            named = sorted(file for file in map(Path, glob.glob(str(path))) if file.is_file())  # noqa: PTH207
        if not named:
            message = f"there is no .sql file in {path}" if path.is_dir() else f"there is no file {path}"
            raise HeddleError("HDL-111", message, "check the path", file=str(path))
        found += named
    return list(dict.fromkeys(found))
