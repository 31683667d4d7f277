"""Translate a file of another engine's statements or definitions to Heddle's queries, each checked by our own parser.

A statement that cannot be translated is skipped and reported; the others go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from optimizer.errors.diagnostics import Diagnostic
from optimizer.language.nodes import place_of
from optimizer.language.parser import Report, parse
from optimizer.language.refusals import Findings, Refused
from optimizer.language.statements import Statement, settings_of, split_statements
from optimizer.migration.assumed import UNKNOWN, assumed_stream
from optimizer.migration.binding import Relation
from optimizer.migration.chronon import group_bys, is_chronon
from optimizer.migration.documents import Definition, Reporter, is_document, place, read_document
from optimizer.migration.metricflow import is_metricflow, metric_queries
from optimizer.migration.relations import Reader, named_columns
from optimizer.migration.words import (
    LEFT_OUT,
    Dialect,
    cut_head,
    cut_windows,
    limited_tokens,
    places,
    spelled,
    tree_of,
    without_statement_set,
)
from optimizer.migration.writing import WrittenQuery, differences, valid_name, written_queries
from optimizer.workload.values import Stream

FILE_BYTES = 4 << 20
"""Largest job that is read."""

MOST_STATEMENTS = 2000


@dataclass(frozen=True)
class Imported:
    """Result of importing a job: ``text`` is a file of queries, which parses; ``names`` are theirs, in order."""

    text: str
    names: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """Diagnostics that prevented an import."""
        return tuple(diagnostic for diagnostic in self.diagnostics if diagnostic.severity == "error")


_TELLING = (
    (Dialect.timescale, re.compile(r"\btimescaledb\b|\btime_bucket(_gapfill)?\s*\(", re.IGNORECASE)),
    (Dialect.flink, re.compile(r"\bDESCRIPTOR\s*\(|\b(TUMBLE|HOP|SESSION)(_START|_END)?\s*\(", re.IGNORECASE)),
)
"""Words that other dialects have."""


def dialect_of(text: str) -> Dialect:
    """The dialect that the functions of a job are of; Spark's if none tells."""
    return next((dialect for dialect, words in _TELLING if words.search(text)), Dialect.spark)


def import_job(
    text: str, dialect: Dialect, file: str = "", streams: Mapping[str, Stream] | None = None, stem: str = "query"
) -> Imported:
    """The queries of a job's statements; never raises for bad text.

    ``streams``: what the queries are checked against; None: only how they are written is, with types that are
    assumed. ``stem``: names queries that no table or view does, with a number. Linear in the text, but for views
    that are put in, which are limited.
    """
    job = _Job(text, dialect, file, streams, stem)
    statements = () if is_document(text) else split_statements(text)
    if is_document(text):
        job.read_document()
    for ordinal, statement in enumerate(statements, 1):
        if ordinal > MOST_STATEMENTS:
            refused = Refused("HDL-302", f"more than {MOST_STATEMENTS:,} statements", "split the file")
            job.report.add(refused, "", statement.start)
            break
        job.read(statement, ordinal)
    return Imported("\n".join(job.written), tuple(job.names), tuple(job.report.diagnostics))


@dataclass
class _Job:
    """A job while its statements are read, one after another."""

    text: str
    dialect: Dialect
    file: str
    streams: Mapping[str, Stream] | None
    stem: str
    views: dict[str, Relation] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    written: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.report = Report(self.text, self.file)

    def read(self, statement: Statement, ordinal: int) -> None:
        """Write the queries of one statement, or report why there are none."""
        settings = settings_of(statement, "")
        broken = [*statement.broken, *settings.broken]
        findings = Findings()
        for at, code, message, hint in broken:
            if code == "HDL-103":
                findings.warnings.append(Refused("HDL-140", "a hint is left out", "", at))
            else:
                self.report.add(Refused(code, message, hint, at), settings.name)
        self._warn(findings, settings.name, 0)
        text = without_statement_set(statement.text)
        if any(code != "HDL-103" for _, code, _, _ in broken) or not text.strip():
            return
        try:
            self._read(text, statement.start, settings.name, settings.owner, ordinal)
        except Refused as refused:
            severity = "warning" if refused.code == LEFT_OUT else "error"
            self.report.add(refused, settings.name, statement.start, severity)
        except RecursionError:
            deep = Refused("HDL-303", "the statement is nested too deeply", "write simpler views")
            self.report.add(deep, settings.name, statement.start)

    def read_document(self) -> None:
        """Write the queries of definitions in JSON or YAML, or report why there are none."""
        try:
            roots = read_document(self.text)
            for definition in definitions(roots, Reporter(self._report, self._problems), self.tables):
                self._write(definition.relation, definition.name, definition.owner, definition.at, definition.near)
        except Refused as refused:
            self.report.add(refused, "")
        except RecursionError:
            deep = Refused("HDL-303", "the document is nested too deeply", "write it flatter")
            self.report.add(deep, "")

    def _report(self, refused: Refused, query: str, severity: str) -> None:
        self.report.add(refused, query, 0, severity)

    def _problems(self, relation: Relation, name: str) -> list[Refused]:
        """Errors that our own parser finds in the queries of a grouping."""
        written = written_queries(relation, name, self.dialect)
        errors = [error for query in written for error in self._parsed(query, "")]
        return [Refused(error.code, error.message, error.hint) for error in errors]

    def _write(self, relation: Relation, target: str, owner: str, start: int, near: Mapping[str, int]) -> None:
        notes = relation.notes if relation.window is None else (*relation.notes, *relation.window.notes())
        findings = Findings(warnings=list(notes))
        self._warn(findings, target, start)
        for query in written_queries(relation, target, self.dialect):
            self._take(query, owner, start, near)

    def _read(self, text: str, start: int, named: str, owner: str, ordinal: int) -> None:
        tokens = limited_tokens(text, self.dialect)
        head, body = cut_head(tokens)
        body, windows = cut_windows(body)
        tree = tree_of(spelled(body), text)
        known = None if self.streams is None else _dimensions(self.streams)
        relation = Reader(self.dialect, self.views, self.tables, self.targets, windows, known).read(tree)
        relation = named_columns(relation, head.columns, body[0].start)
        target = valid_name(named or head.name or f"{self.stem}_{ordinal}")
        names = {head.name.lower(), ".".join(head.parts).lower()}
        if not head.is_view:
            self.targets |= names
        else:
            self.views |= dict.fromkeys(names, relation)
            if relation.grouped is None or (relation.grouped.ranked is not None and relation.grouped.top is None):
                return
        findings = Findings()
        if (order := tree.args.get("order")) is not None:
            hint = "order the answers as they are read"
            findings.warnings.append(Refused("HDL-140", "ORDER BY is left out", hint, place_of(order)))
        self._warn(findings, target, start)
        self._write(relation, target, owner, start, places(tokens))

    def _warn(self, findings: Findings, query: str, start: int) -> None:
        for warning in findings.warnings:
            self.report.add(warning, query, start, "warning")

    def _parsed(self, query: WrittenQuery, comments: str) -> list[Diagnostic]:
        """The errors that our own parser finds in a query behind some comments."""
        streams = {query.stream: assumed_stream(query, self.dialect)} if self.streams is None else self.streams
        errors = parse(comments + query.text, streams).errors
        return [error for error in errors if self.streams is not None or error.code not in UNKNOWN]

    def _take(self, query: WrittenQuery, owner: str, start: int, near: Mapping[str, int]) -> None:
        """Keep a query that our own parser reads."""
        name, number = query.name, 2
        while name in self.names:
            name, number = f"{query.name}_{number}", number + 1
        comments = f"-- name: {name}\n" + (f"-- owner: {owner}\n" if owner else "")
        problems = self._parsed(query, comments)
        for problem in problems:
            at = _near(query.text, problem.line - 1 - comments.count("\n"), problem.column - 1, near)
            self.report.add(Refused(problem.code, problem.message, problem.hint, at), name, start)
        if problems:
            return
        schema = self.streams[query.stream].schema if self.streams and query.stream in self.streams else ()
        fractional = frozenset(column.lower() for column, type in schema if type.name in ("double", "decimal"))
        findings = Findings()
        for message in differences(query, self.dialect, fractional):
            findings.warnings.append(Refused("HDL-147", message, "check that this is wanted"))
        self._warn(findings, name, start)
        self.names.append(name)
        self.written.append(f"{comments}{query.text}\n")


def definitions(roots: Sequence[yaml.Node], report: Reporter, tables: dict[str, str]) -> Iterator[Definition]:
    """The definitions of documents, by what each is. Raises :class:`Refused` for none that is known."""
    if not roots:
        raise Refused("HDL-146", "the document is empty", "")
    metrics = [root for root in roots if is_metricflow(root)]
    others = [root for root in roots if not is_chronon(root) and not is_metricflow(root)]
    for other in others:
        if len(others) == len(roots):
            message = "this is neither a statement nor a definition that is read"
            hint = "a GroupBy of Chronon, or semantic_models and metrics of dbt"
            raise Refused("HDL-146", message, hint, place(other))
        report.add(Refused(LEFT_OUT, "a document without metrics is left out", "", place(other)), "", "warning")
    for root in roots:
        if is_chronon(root):
            yield from group_bys(root, report, tables)
    yield from metric_queries(metrics, report)


def _dimensions(streams: Mapping[str, Stream]) -> set[str]:
    return {dimension.name for stream in streams.values() for dimension in stream.dimensions}


def _near(text: str, row: int, column: int, near: Mapping[str, int]) -> int:
    """Offset in the statement of the first word equal to the word at a place of the written query; else 0."""
    lines = text.split("\n")
    word = re.match(r"\w*", lines[row][column:]) if 0 <= row < len(lines) else None
    return near.get(word[0].lower(), 0) if word else 0
