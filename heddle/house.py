"""A warehouse in Python: its queries, their answers as typed tables, its plan, and runs."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from optimizer.plan.definition import SharingPlan
    from optimizer.plan.explain import Explanation
    from optimizer.workload.values import Workload
    from spark_jobs.operations.queries import QueryListing
    from spark_jobs.pipeline.planning.what_if import WhatIf
    from spark_jobs.store.warehouse.publish_log import RunRecord
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from spark_jobs.windows.loading import QueryForms

Moment = str | date | int
"""An instant: ISO 8601 text (UTC unless it has an offset), a ``datetime`` (UTC unless it has a zone), a ``date`` (its
midnight), or microseconds since 1970."""

SHOWN = 20
"""Rows that a notebook shows of some answers."""


class Answers:
    """Answers as a typed ``pyarrow.Table`` (:attr:`table`, and whatever a table has), also for pandas and Polars.

    ``pa.table(answers)``, ``pl.from_arrow(answers)`` and DuckDB take it as it is (Arrow's PyCapsule interface).
    """

    def __init__(self, table: pa.Table, title: str = "") -> None:
        self.table, self.title = table, title

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("table", "title"):
            raise AttributeError(name)
        return getattr(self.table, name)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, each by column name."""
        for batch in self.table.to_batches():
            yield from batch.to_pylist()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """Return a pandas DataFrame; ``options``: those of ``pyarrow.Table.to_pandas``."""
        return self.table.to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """Return a Polars DataFrame; Polars has to be installed."""
        import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __repr__(self) -> str:
        about = f"{self.title}: " if self.title else ""
        return f"<{about}{self.table.num_rows:,} answers of {', '.join(self.table.column_names)}>"

    def _repr_html_(self) -> str:
        names = self.table.column_names
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        shown = self.table.slice(0, SHOWN).to_pylist()
        rows = ("".join(f"<td>{escape(_text(row[name]))}</td>" for name in names) for row in shown)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        more = f"<p>{self.table.num_rows:,} answers" + (f", the first {SHOWN} shown" if len(self) > SHOWN else "")
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</p>"


def _text(value: Any) -> str:
    return "" if value is None else str(value)


class StoredPlan:
    """A version of the sharing plan; whatever a :class:`optimizer.plan.definition.SharingPlan` has."""

    def __init__(self, definition: SharingPlan, version: int) -> None:
        self.definition, self.version = definition, version

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("definition", "version"):
            raise AttributeError(name)
        return getattr(self.definition, name)

    def __repr__(self) -> str:
        queries, trees = len(self.definition.workload.queries), len(self.definition.trees)
        return f"<plan version {self.version}: {queries} queries in {trees} trees>"

    def _repr_html_(self) -> str:
        from heddle.pages.plan import page

        shown = escape(page(self.definition, {"version": str(self.version)}), quote=True)
        return f'<iframe srcdoc="{shown}" sandbox="" style="width:100%;height:640px;border:0" title="plan"></iframe>'


class QueryExplanation:
    """Explanation of a query's sharing; it has every attribute of an :class:`optimizer.plan.explain.Explanation`."""

    def __init__(self, explanation: Explanation) -> None:
        self.explanation = explanation

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "explanation":
            raise AttributeError(name)
        return getattr(self.explanation, name)

    def __str__(self) -> str:
        return "\n".join(self.explanation.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class House:
    """An opened warehouse. Threads may share one: it keeps nothing that a newer version does not replace.

    Every method raises :class:`heddle.Error` with a code, a hint and, for what was written wrongly, its position.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._lock = threading.Lock()
        self._lookups: dict[str, tuple[tuple[int, int], QueryForms]] = {}

    @property
    def path(self) -> str:
        """The folder or URL of its tables."""
        return str(self._warehouse.place)

    def __repr__(self) -> str:
        return f"heddle.open({self.path!r})"

    # ------------------------------------------------------------------------------------------ answers
    def read(self, query: str, since: Moment | None = None, until: Moment | None = None) -> Answers:
        """The published answers of a query, by instant and group: its relation, whose columns are always the same
        (``window_start``, ``window_end``, the query's groups and outputs, ``revision``, ``error``; docs/reading.md).

        ``since``, ``until``: only of instants in (since, until]; the instant is the window's end unless it is
        historical. Raises HDL-507 for an unknown query, HDL-547 and HDL-548 if none were published for it.
        """
        from spark_jobs.results.read import check_answered, read

        begin, end = _micros_or_none(since), _micros_or_none(until)
        table = read(self._warehouse, query, begin, end, full=True)
        if not table.num_rows:
            check_answered(self._warehouse, query, begin, end)
        return Answers(table, query)

    def scan(self, query: str) -> polars.LazyFrame:
        """A query's relation as a lazy frame of Polars: only what you select is read. Raises HDL-507, HDL-904."""
        from spark_jobs.results.frames import scan

        return scan(self._warehouse, query)

    def sql(self, statement: str) -> Answers:
        """The answer of one SELECT in DuckDB's SQL, in which every query and every dimension is a view by its own name.

        It reads answers and dimensions and nothing else. Raises HDL-620 to HDL-622 for what is wrong in it, at its
        position.
        """
        from spark_jobs.results.connect import ask

        return Answers(ask(self._warehouse, statement))

    def connect(self, queries: Sequence[str] | None = None) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection in which every query, or each of ``queries``, is a view, all of one version: that of now.
        Every dimension that queries join is one, too, as a run used it last.

        Raises HDL-507 for a name that no query has.
        """
        from spark_jobs.results.connect import connect

        return connect(self._warehouse, queries)

    def register(self, spark: SparkSession) -> list[str]:
        """Make every query a temporary view of a Spark session, all of one version; their names."""
        from spark_jobs.results.catalogue import register

        return register(spark, self._warehouse)

    def lookup(
        self, query: str, at: Moment, groups: Sequence[Any] | None = None, until: Moment | None = None
    ) -> Answers:
        """A query's answers from stored partial aggregates, at any instant: the newest window that ends by ``at``.

        ``groups``: only these, each the values of the group columns in the query's order (a plain value if there is
        only one column). ``until``: those of all instants in (at, until]. Loaded partial aggregates are cached
        until a run stores more: the first look-up takes seconds, the others milliseconds. Raises HDL-603 to
        HDL-607.
        """
        import pyarrow as pa

        forms = self._loaded(query)

        def answered(group: tuple[Any, ...] | None) -> pa.Table:
            if until is None:
                return forms.answer(lambda lookups: lookups.at(micros(at), group))
            return forms.answer(lambda lookups: lookups.between(micros(at), micros(until), group))

        if groups is None:
            return Answers(answered(None), query)
        tables = [answered(group if isinstance(group, tuple) else _as_group(group)) for group in groups]
        return Answers(pa.concat_tables(tables, promote_options="default") if tables else answered(None)[:0], query)

    def features(
        self,
        labels: Any,
        queries: str | Sequence[str],
        *,
        at: str,
        keys: Mapping[str, str] | None = None,
        accuracy: str = "refreshed",
        known: str = "now",
        delay: str | None = None,
        upto: bool = False,
        engine: str | None = None,
    ) -> Any:
        """The labels with the answers of queries as of the moment of each (docs/features.md): a column
        ``<query>__<output>`` for each output, of the type that the labels have.

        ``labels``: a table of Arrow, or a DataFrame of pandas, Polars or Spark. ``at``: the column of the moments (UTC
        without a zone); ``keys``: columns of the labels with the names of the group columns that they are, where these
        differ. ``accuracy``: ``"refreshed"``, the newest answer that was complete at the moment, or ``"exact"``, the
        windows that end at the moment; the end is exclusive. ``known``: all that has arrived by ``"now"``, or only what
        had arrived ``"then"``. ``delay``: features end so long before the moment, e.g. ``"5 minutes"``. ``upto``: also
        ``<query>__upto``, the instant up to which events count. Raises HDL-507 for an unknown query, HDL-530 if a
        recomputed sample differs, HDL-641 and HDL-644 for labels that cannot be used, HDL-647 and HDL-648.
        """
        from spark_jobs.engine.choice import Engine
        from spark_jobs.operations.feature_frames import with_features
        from spark_jobs.operations.feature_labels import feature_request

        names = [queries] if isinstance(queries, str) else list(queries)
        request = feature_request(names, at, keys or {}, accuracy, known, delay, upto)
        own = Engine("heddle", requested=engine)
        try:
            framed, findings = with_features(self._warehouse, request, labels, own)
        finally:
            own.stop()
        for finding in findings:
            warnings.warn(str(finding), stacklevel=2)
        return framed

    def _loaded(self, query: str) -> QueryForms:
        from spark_jobs.windows.loading import Reader

        versions = self._warehouse.version("partials"), self._warehouse.version("sharing_plans")
        with self._lock:
            if query not in self._lookups or self._lookups[query][0] != versions:
                self._lookups[query] = versions, Reader(self._warehouse).forms(query)
            return self._lookups[query][1]

    # ------------------------------------------------------------------------------------------- queries
    def queries(self) -> list[QueryListing]:
        """Every query that was ever registered, by name: owner, state, stream, text, newest plan."""
        from spark_jobs.operations.queries import list_queries

        return list_queries(self._warehouse, time.time_ns() // 1000)

    def plan(self, version: int | None = None) -> StoredPlan:
        """A stored plan (None: the one in force). Raises HDL-506 if there is none of this version."""
        from spark_jobs.store.warehouse.plans import current_version, load_plan

        chosen = version if version is not None else current_version(self._warehouse) or 0
        return StoredPlan(load_plan(self._warehouse, chosen), chosen)

    def explain(self, query: str) -> QueryExplanation:
        """Explain why a query of the plan in force shares, with which others, and what it would cost alone. Raises
        HDL-507.
        """
        from optimizer.plan.explain import explain

        plan = self.plan().definition
        names = [known.name for known in plan.workload.queries]
        if query not in names:
            raise HeddleError("HDL-507", f"there is no query {query} in the plan", meant(query, names))
        return QueryExplanation(explain(plan, query))

    def what_if(
        self,
        add: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        remove: str | Iterable[str] = (),
        rates: Mapping[str, float | str] | None = None,
    ) -> WhatIf:
        """The plan in force, and what it would become; nothing is stored.

        ``add``: workload files over the plan's streams; ``remove``: names of queries; ``rates``: tuples per second by
        stream, or ``"x3"`` for three times today's. Raises HDL-1xx and HDL-2xx for what is wrong in a file.
        """
        from spark_jobs.pipeline.planning.what_if import RateChange, what_if

        plan, extra = self.plan().definition, self._workload(add, None)
        texts = [f"{name}{rate if str(rate).startswith('x') else f'={rate}'}" for name, rate in (rates or {}).items()]
        removed = [remove] if isinstance(remove, str) else list(remove)
        return what_if(plan, extra.queries, removed, [RateChange.parse(text) for text in texts], extra)

    def preview(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        streams: str | os.PathLike[str] | None = None,
        last: str | None = None,
    ) -> dict[str, Answers]:
        """The answers of the queries of workload files on the newest windows of their data, by name, the newest first;
        nothing is registered or published, no Spark is started.

        ``streams``: the file that declares the streams (None: those of the plan in force); ``last``: all windows that
        end in the last so long of the data, e.g. ``"1 day"`` (None: the newest complete one, and the one with the
        newest event). Raises HDL-1xx and HDL-2xx for what is wrong in a file, HDL-4xx in the data.
        """
        from optimizer.workload.instants import parse_duration
        from spark_jobs.operations.preview import preview

        workload, span = self._workload(files, streams), None if last is None else parse_duration(last)
        shown, problems = preview(workload, span)
        _raise_first(problems)
        return {preview.query.name: Answers(preview.answers, preview.query.name) for preview in shown}

    def _workload(
        self, files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], streams: str | os.PathLike[str] | None
    ) -> Workload:
        """The queries of files. Raises the first of what is wrong with them."""
        from optimizer.language.files import workload_files
        from optimizer.language.parser import load_workload
        from spark_jobs.pipeline.planning.requested import load_inputs
        from spark_jobs.store.settings import settings

        paths = [Path(file) for file in ([files] if isinstance(files, (str, os.PathLike)) else files)]
        if streams is not None:
            inputs = load_inputs(paths, Path(streams))
            _raise_first(inputs.diagnostics)
            return inputs.workload
        known = {stream.name: stream for stream in self.plan().definition.workload.streams}
        workload, problems = load_workload(workload_files(paths), known, owner=settings().owner)
        _raise_first(problems)
        return workload

    # ---------------------------------------------------------------------------------------------- runs
    def run(
        self, since: Moment, until: Moment, *, spark: SparkSession | None = None, progress: bool = False
    ) -> RunRecord:
        """Compute, check and publish by the plan in force every window that ends in (since, until].

        ``spark``: the session to use; without one it is started if there is enough to do, and stopped at the end.
        ``progress``: a line on stderr for each stage. Running it again changes nothing. Raises HDL-5xx if nothing was
        published.
        """
        from optimizer.workload.instants import format_instant
        from spark_jobs.engine.choice import Engine
        from spark_jobs.operations.lineage_delivery import reported_run

        begin, end = micros(since), micros(until)
        name = f"python/{format_instant(begin)}/{format_instant(end)}"
        report: Callable[[str], None] = _on_stderr if progress else _nowhere
        version = self.plan().version
        own = Engine("heddle", lambda: report("starting Spark"))
        try:
            engine = own if spark is None else spark
            return reported_run(engine, self._warehouse, version, begin, end, name, report=report)
        finally:
            own.stop()


def _raise_first(problems: Sequence[Diagnostic]) -> None:
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise HeddleError.of(errors[0], *errors[1:])


def _on_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def _nowhere(line: str) -> None:
    """Shows nothing."""


def _as_group(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _micros_or_none(moment: Moment | None) -> int | None:
    return None if moment is None else micros(moment)


def micros(moment: Moment) -> int:
    """An instant as microseconds since 1970. Raises HDL-114 for what is none."""
    if isinstance(moment, bool) or not isinstance(moment, (str, date, int)):
        raise HeddleError("HDL-114", f"{moment!r} is not an instant", "write '2013-07-01T00:00:00' (UTC) or a datetime")
    if isinstance(moment, int):
        return moment
    if isinstance(moment, date):
        if not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day)
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        since = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    from spark_jobs.streams.sources.decoding import parse_instant

    return parse_instant(moment)
