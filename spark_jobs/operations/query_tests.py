"""Tests of queries on rows that somebody wrote down: ``heddle test``.

A file of tests is YAML (docs/first-steps.md has one). Its values are read by the types of the columns that they are
for, so nothing is guessed from how they are written. Answers are those of a run
(:mod:`spark_jobs.operations.in_process`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from optimizer.errors.crashes import crash
from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from optimizer.windows.alignment import instants_over
from optimizer.workload.attributes import attributes_in, columns_read
from optimizer.workload.values import ACQ, Dimension, Source, Stream, Type, Workload
from spark_jobs.operations.agreement import TOLERANCE, Mismatch, Row, mismatches
from spark_jobs.operations.in_process import answers_of, asked_at
from spark_jobs.pipeline.planning.requested import Inputs, load_inputs
from spark_jobs.results.relations import RelationColumn, slotted
from spark_jobs.store.settings import required
from spark_jobs.streams.sources.decoding import parse_instant
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.splits import FIRST

BIGGEST = 1 << 20
"""Bytes of a file of tests that are read."""

KEYS = ("name", "query", "given", "dimensions", "at", "expect", "tolerance")

NO_ROWS = "HDL-499"
"""A test gives no rows of a dimension that its query joins."""

BEGINNING = "it has `tests:`, a list of {query: …, given: […], expect: […]}"


WrittenRows = tuple[tuple[int, Mapping[str, str | None]], ...]
"""Rows as they are written: each with its line."""


@dataclass(frozen=True)
class QueryTest:
    """A test as it is written. ``at``: the only instants whose answers count (microseconds); empty: all. ``given``,
    ``expect`` and, by name, ``dimensions``: rows of texts, None for null, by column, each with its line."""

    file: Path
    line: int
    name: str
    query: str
    given: WrittenRows
    expect: WrittenRows
    dimensions: Mapping[str, WrittenRows] = field(default_factory=dict, kw_only=True)
    at: tuple[int, ...] = ()
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Outcome:
    """Outcome of a test: it passed if there are neither ``mismatches`` nor ``problems``. ``seconds`` of wall time."""

    test: QueryTest
    mismatches: tuple[Mismatch, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    answers: int = 0
    seconds: float = 0.0

    @property
    def has_passed(self) -> bool:
        return not self.mismatches and not self.problems

    def lines(self) -> list[str]:
        """The differences, for people: the kind of each mismatch, ``-`` what was expected, ``+`` what is there."""
        return [line for mismatch in self.mismatches for line in (mismatch.kind, *mismatch.lines())]

    def to_json(self) -> dict[str, Any]:
        """The outcome as ``heddle test --json`` prints it."""
        return {
            "file": str(self.test.file),
            "line": self.test.line,
            "name": self.test.name,
            "query": self.test.query,
            "passed": self.has_passed,
            "answers": self.answers,
            "seconds": round(self.seconds, 3),
            "mismatches": [{"kind": mismatch.kind, "lines": mismatch.lines()} for mismatch in self.mismatches],
            "diagnostics": [problem.to_json() for problem in self.problems],
        }


def run_tests(paths: Sequence[Path], report: Callable[[str], None] = lambda line: None) -> list[Outcome]:
    """Do the tests of some files, and of the ``*.yaml`` and ``*.yml`` of folders that have ``tests:``, in their order.

    Raises HDL-111 for a path that is not there, HDL-132 for a file that is none of tests, HDL-113 if there are none.
    """
    outcomes = []
    for path in _files(paths):
        suite = QuerySuite.read(path)
        for test in suite.tests:
            report(f"{path.name}: {test.name}")
            outcomes.append(suite.outcome(test))
    if not outcomes:
        places = ", ".join(map(str, paths))
        raise HeddleError("HDL-113", f"there is no test of a query in {places}", BEGINNING)
    return outcomes


def _files(paths: Sequence[Path]) -> list[Path]:
    chosen: list[Path] = []
    for path in paths:
        if path.is_dir():
            chosen += [file for file in sorted(path.rglob("*.y*ml")) if _has_tests(file)]
        elif path.is_file():
            chosen.append(path)
        else:
            raise HeddleError("HDL-111", f"there is no file {path}", "check the path", file=str(path))
    return list(dict.fromkeys(chosen))


def _has_tests(file: Path) -> bool:
    """Return whether a YAML file of a folder contains tests: the folder may have other files."""
    try:
        with file.open("rb") as opened:
            return any(line.startswith(b"tests:") for line in opened.read(BIGGEST).splitlines())
    except OSError:
        return False


# ------------------------------------------------------------------------------------------- reading
class _Reader:
    """Reads the nodes of a file of tests; every error has its place."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def root(self) -> yaml.Node:
        try:
            data = self.path.read_bytes()
            if len(data) > BIGGEST:
                raise self.wrong(f"it is larger than {BIGGEST:,} bytes", "divide it")
            node = yaml.compose(data.decode("utf-8-sig"), Loader=yaml.CSafeLoader)
        except OSError as error:
            raise self.wrong(f"it cannot be read: {error.strerror}", "check its permissions") from None
        except UnicodeDecodeError:
            raise self.wrong("it is not UTF-8", "save it as UTF-8") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise self.wrong(f"it is no YAML: {error.problem}", "", mark and mark.line + 1 or 0) from None
        except (yaml.YAMLError, RecursionError):
            raise self.wrong("it is no YAML", "") from None
        if node is None:
            raise self.wrong("it is empty", BEGINNING)
        return node

    def wrong(self, message: str, hint: str, line: int = 0) -> HeddleError:
        return HeddleError("HDL-132", message, hint, file=str(self.path), line=line, column=1 if line else 0)

    def mapping(self, node: yaml.Node, known: Sequence[str] = ()) -> dict[str, yaml.Node]:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            raise self.wrong(
                "here is no mapping", f"keys: {', '.join(known)}" if known else "write {column: value}", line
            )
        entries = {str(key.value): value for key, value in node.value}
        for name in entries:
            if known and name not in known:
                raise self.wrong(f"there is no key {name}", meant(name, known), line)
        if len(entries) < len(node.value):
            raise self.wrong("a key appears twice", "leave one out", line)
        return entries

    def items(self, node: yaml.Node) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.wrong("here is no list", "write - …", node.start_mark.line + 1)
        return list(node.value)

    def text(self, node: yaml.Node) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            raise self.wrong("here is no value", "write a text, a number or null", node.start_mark.line + 1)
        is_null = not node.style and node.value in ("", "~", "null", "Null", "NULL")
        return None if is_null else str(node.value)

    def rows(self, node: yaml.Node) -> WrittenRows:
        return tuple(
            (row.start_mark.line + 1, {name: self.text(value) for name, value in self.mapping(row).items()})
            for row in self.items(node)
        )

    def rows_by_name(self, node: yaml.Node) -> dict[str, WrittenRows]:
        return {name: self.rows(rows) for name, rows in self.mapping(node).items()}

    def texts(self, node: yaml.Node) -> list[str]:
        values = self.items(node) if isinstance(node, yaml.SequenceNode) else [node]
        return [text for value in values if (text := self.text(value)) is not None]

    def test(self, node: yaml.Node, number: int, shared: Mapping[str, WrittenRows]) -> QueryTest:
        line = node.start_mark.line + 1
        keys = self.mapping(node, KEYS)
        for name in ("query", "given", "expect"):
            if name not in keys:
                raise self.wrong(f"the test has no {name}", BEGINNING, line)
        query = self.text(keys["query"]) or ""
        title = self.text(keys["name"]) if "name" in keys else None
        given, expect = self.rows(keys["given"]), self.rows(keys["expect"])
        try:
            at = tuple(sorted(map(parse_instant, self.texts(keys["at"])))) if "at" in keys else ()
            tolerance = float(self.text(keys["tolerance"]) or "") if "tolerance" in keys else TOLERANCE
            if not 0 <= tolerance < 1:
                raise ValueError
        except HeddleError as error:
            raise self.wrong(error.diagnostic.message, error.hint, line) from None
        except ValueError:
            raise self.wrong("tolerance is a number, 0 to 1", "0.01: one percent", line) from None
        own = self.rows_by_name(keys["dimensions"]) if "dimensions" in keys else {}
        dimensions = {**shared, **own}
        name = title or f"{query} {number}"
        return QueryTest(self.path, line, name, query, given, expect, at, tolerance, dimensions=dimensions)


@dataclass(frozen=True)
class QuerySuite:
    """A file of tests, with the queries and streams that they are of."""

    path: Path
    inputs: Inputs
    tests: tuple[QueryTest, ...]
    streams: Mapping[str, Stream] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> QuerySuite:
        """Read a file of tests, its queries and its streams. Raises HDL-132, and HDL-111 for a missing file."""
        reader = _Reader(path)
        keys = reader.mapping(reader.root(), ("streams", "queries", "dimensions", "tests"))
        if "tests" not in keys:
            raise reader.wrong("it has no tests", BEGINNING)
        folder = path.parent
        streams = [folder / text for text in reader.texts(keys["streams"])] if "streams" in keys else []
        queries = [folder / text for text in reader.texts(keys["queries"])] if "queries" in keys else []
        files = tuple(map(str, queries or required("workload")))
        inputs = _inputs(files, str(streams[0] if streams else required("streams")))
        shared = reader.rows_by_name(keys["dimensions"]) if "dimensions" in keys else {}
        tests = tuple(reader.test(node, number, shared) for number, node in enumerate(reader.items(keys["tests"]), 1))
        return cls(path, inputs, tests, {stream.name: stream for stream in inputs.workload.streams})

    def outcome(self, test: QueryTest) -> Outcome:
        """Run a test. Raises nothing: the failure of one does not affect the others."""
        begin = time.perf_counter()
        try:
            query = self._query(test)
            stream = self.streams[query.stream]
            columns = [column for column, _ in slotted(query) if column.role != "revision"]
            expected = [_expected(test, line, row, columns) for line, row in test.expect]
            answers, problems = _answers(test, query, stream)
        except Exception as error:
            problems = [error.diagnostic if isinstance(error, HeddleError) else crash(error)]
            return Outcome(test, problems=tuple(problems), seconds=time.perf_counter() - begin)
        keys = [column.name for column in columns if column.role in ("time", "position", "group")]
        wrong = mismatches(expected, answers, keys, test.tolerance)
        seconds = time.perf_counter() - begin
        errors = tuple(problem for problem in problems if problem.severity == "error")
        return Outcome(test, tuple(wrong), errors, len(answers), seconds)

    def _query(self, test: QueryTest) -> ACQ:
        known = {query.name: query for query in self.inputs.workload.queries}
        if test.query in known:
            return known[test.query]
        of_it = [error for error in self.inputs.errors if error.query == test.query]
        if of_it:
            raise HeddleError.of(of_it[0])
        first_errors = [str(error) for error in self.inputs.errors[:1]]
        hint = "; ".join([meant(test.query, known), *first_errors])
        raise HeddleError(
            "HDL-507", f"no file has a query {test.query}", hint, file=str(test.file), line=test.line, column=1
        )


@lru_cache(8)
def _inputs(files: tuple[str, ...], streams: str) -> Inputs:
    """Queries and streams that several files of tests may be of."""
    return load_inputs(files, streams)


# ------------------------------------------------------------------------------------------ answering
def _answers(test: QueryTest, query: ACQ, stream: Stream) -> tuple[list[Row], Sequence[Diagnostic]]:
    """The answers to the given events, and what went wrong."""
    # what lies in nested columns is given as columns of their own
    columns = dict.fromkeys([stream.time, *columns_read(stream, query.columns())])
    leaves = [(name, stream.types[name]) for name in columns if name not in dict(stream.schema)]
    stream = replace(stream, schema=(*stream.schema, *leaves), nested=())
    events = _table(test, test.given, f"stream {stream.name}", dict(stream.schema))
    dimensions = _dimension_rows(test, query, stream)
    times = [at for at in events[stream.time].cast(pa.int64()).to_pylist() if at is not None]
    if not times:
        return [], ()
    window = query.window
    if not query.kind.has_instants:
        begin, end = FIRST, max(times) + 1 + window.pause + window.end_before
        requested = asked_at(query, ())
    else:
        span = min(times), max(times) + window.settles + window.period
        moments = np.unique(np.array(times, dtype=np.int64))
        at = test.at or tuple(instants_over(replace(window, at=None), moments, *span).tolist())
        begin, end, requested = min(at) - 1, max(at), asked_at(query, at)
    with tempfile.TemporaryDirectory(prefix="heddle-") as folder:
        file = Path(folder) / "given.parquet"
        pq.write_table(events, file)
        file_stream = replace(stream, source=Source("parquet", str(file)), allowed_lateness=None)
        file_stream = replace(file_stream, dimensions=tuple(_written(Path(folder), each) for each in dimensions))
        answers, problems = answers_of(Workload((requested,), (file_stream,)), begin, end)
    rows = answers[query.name].to_pylist() if query.name in answers else []
    if test.at and not query.kind.has_instants:
        rows = [row for row in rows if _micros(row["window_end"]) in test.at]
    return rows, problems


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _dimension_rows(test: QueryTest, query: ACQ, stream: Stream) -> list[tuple[Dimension, pa.Table]]:
    """The dimensions that a query joins, with the rows that the test gives. Raises HDL-132 and, if it gives none,
    HDL-499."""
    known = {dimension.name: dimension for dimension in stream.dimensions}
    for name, rows in test.dimensions.items():
        if name not in known:
            line = rows[0][0] if rows else test.line
            raise _wrong(test, line, f"there is no dimension {name}", meant(name, known))
    joined = {attribute.dimension for attribute in attributes_in(stream, query.columns()).values()}
    for name in sorted(joined - test.dimensions.keys()):
        message = f"query {query.name} joins {name}, and the test has no rows of it"
        hint = f"write dimensions: {{{name}: [{{{', '.join(f'{key}: …' for key in known[name].key)}}}]}}"
        raise HeddleError(NO_ROWS, message, hint, file=str(test.file), line=test.line, column=1)
    return [
        (known[name], _table(test, test.dimensions[name], f"dimension {name}", dict(known[name].schema)))
        for name in sorted(joined)
    ]


def _written(folder: Path, given: tuple[Dimension, pa.Table]) -> Dimension:
    """A dimension whose rows are in a file of a folder."""
    dimension, rows = given
    file = folder / f"{dimension.name}.dimension.parquet"
    pq.write_table(rows, file)
    return replace(dimension, source=Source("parquet", str(file)))


def _table(test: QueryTest, written: WrittenRows, where: str, types: Mapping[str, Type]) -> pa.Table:
    """Rows of a stream or dimension (``where``), whose columns have some ``types``."""
    rows = []
    for line, row in written:
        for name in row:
            if name not in types:
                raise _wrong(test, line, f"{where} has no column {name}", meant(name, types))
        rows.append({name: _value(test, line, name, text, types[name]) for name, text in row.items()})
    return pa.Table.from_pylist(rows, pa.schema([(name, arrow_type(type)) for name, type in types.items()]))


def _expected(test: QueryTest, line: int, row: Mapping[str, str | None], columns: Iterable[RelationColumn]) -> Row:
    types = {column.name: column.type for column in columns}
    for name in row:
        if name not in types:
            raise _wrong(test, line, f"query {test.query} has no column {name}", meant(name, types))
    return {name: _value(test, line, name, text, types[name]) for name, text in row.items()}


def _wrong(test: QueryTest, line: int, message: str, hint: str) -> HeddleError:
    return HeddleError("HDL-132", message, hint, file=str(test.file), line=line, column=1)


def _instant(text: str) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=parse_instant(text))


_READ: dict[str, Callable[[str], Any]] = {
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
    "long": int,
    "double": lambda text: float(text.replace(".nan", "nan").replace(".inf", "inf")),
    "decimal": Decimal,
    "date": date.fromisoformat,
    "timestamp": _instant,
}


def _value(test: QueryTest, line: int, name: str, text: str | None, type: Type) -> Any:
    """A text as a value of a column's type. Raises HDL-132."""
    if text is None:
        return None
    try:
        value = _READ.get(type.name, str)(text)
        pa.scalar(value, arrow_type(type))
        return value
    except (HeddleError, ValueError, KeyError, ArithmeticError, pa.ArrowInvalid):
        raise _wrong(test, line, f"{name}: {text!r} is no {type}", "write it as the column has it") from None
