"""Checks of staged answers before anything is published.

Two kinds, both on exactly the files that the publishing commit will name: a Great Expectations suite (schema, keys,
grain, windows, ranges) over what one pass over all answers counted of each query, and our own check, which recomputes
sampled windows of sampled queries unshared, from raw events, with Spark's own aggregates, and compares: answers, and
which windows and groups exist at all.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.plan import SharingPlan
from optimizer.query import ACQ, BOOLEAN, DOUBLE, LONG, Output, Stream
from optimizer.synopsis import CARRIERS, synopses_of
from optimizer.window import instants
from spark_jobs.cells import distinct_rows, key_texts
from spark_jobs.expressions import arrow_type
from spark_jobs.files import BUCKETS, bucket_of
from spark_jobs.partial_aggregates import as_texts
from spark_jobs.results import INSTANT, RESULTS, places
from spark_jobs.sources import Split, format_instant, read_split

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession


def audit(
    spark: SparkSession,
    staged: list[str],
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    seed: str,
    docs: Path | None = None,
) -> list[dict[str, Any]]:
    """All checks of one staged interval: dicts of ``check``, ``success`` and ``detail``.

    ``staged``: the files that hold the answers of the windows that end in (begin, ends[stream]], exactly those that
    the publishing commit will name; ``seed`` decides the sample; ``docs``: the folder of the Data Docs.
    """
    document = None if docs is None else partial(_document, docs, staged, seed, begin, ends)
    checks = expectations(inspected(spark, staged, plan, begin, ends), document)
    checks += recomputed(spark, staged, plan, sources, begin, ends, seed)
    return checks + recomputed_rows(spark, staged, plan, sources, ends, seed)


# ---------------------------------------------------------------------------------- Great Expectations
FINDINGS = (
    "wrong_schema",
    "null_keys",
    "repeated",
    "wrong_window",
    "wrong_shape",
    "negative_counts",
    "disordered",
    "impossible",
)
"""What is counted of each query's staged answers; every count must be zero:

a file without the columns of the results table, or with others; missing query, window or group; a (query, window,
group) that stands twice; a window that is not the query's or not of this interval; a key or lists of another length
than the query has group columns or outputs, or a query or stream that nobody asked for; counts below zero; a mean,
quantile or mode below the least value or above the greatest; what no events can give (a null count, an infinite mean
of integers, a negative variance, a truth that is neither 0 nor 1).
"""

BUCKETS_OF = "(buckets)"

_GRAIN = ("stream", "query", "window_start", "window_end", "instant", "key")
_DICTIONARIES = ["stream", "query", "key", "error"]


def inspected(
    spark: SparkSession, staged: list[str], plan: SharingPlan, begin: int, ends: dict[str, int]
) -> pd.DataFrame:
    """Look at every staged answer once: a row a query with ``answers``, :data:`FINDINGS` and ``examples``.

    Every row of every file is checked; only counts leave the tasks. All answers of a bucket of groups lie in one file
    of a day, so an answer that stands twice does so in one file, unless a bucket is found in two.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    if staged:
        queries, bucket_by = _asked(plan, ends)
        # not through SQL: planning and compiling a query would cost as much as half of the inspection
        files = spark.sparkContext.parallelize(staged, min(len(staged), 4 * spark.sparkContext.defaultParallelism))
        rows = files.flatMap(lambda path: inspect(path, queries, begin, ends, bucket_by).to_pylist()).collect()
    found: dict[str, dict[str, Any]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if row["query"] == BUCKETS_OF:
            told = json.loads(row["examples"])
            seen.update((told["day"], bucket) for bucket in told["buckets"])
        elif (known := found.setdefault(row["query"], row)) is not row:
            for name in ("answers", *FINDINGS):
                known[name] += row[name]
            known["examples"] = "; ".join(filter(None, (known["examples"], row["examples"])))
    twice = sum(count - 1 for count in seen.values())
    columns = ["query", "answers", *FINDINGS, "examples"]
    if twice:
        told = {"query": "(files)", "repeated": twice, "examples": "a bucket of groups lies in two files"}
        found["(files)"] = dict.fromkeys(columns, 0) | told
    return pd.DataFrame([found[name] for name in sorted(found)], columns=columns)


def _asked(plan: SharingPlan, ends: Iterable[str]) -> tuple[list[ACQ], dict[str, tuple[str, ...]]]:
    """The queries over some streams, and the group columns that decide the bucket of each one's answers."""
    queries: list[ACQ] = []
    bucket_by: dict[str, tuple[str, ...]] = {}
    for tree in plan.trees:
        if tree.stream in ends:
            stream = plan.workload.stream(tree.stream)
            for synopsis, members in synopses_of(stream, tree.queries, tree.together).items():
                queries += members
                for query in members:
                    # of event sequences, keys that are no groups decide the bucket of partial rows alone
                    grouped = dict(query.group_by)
                    bucket_by[query.name] = tuple(name for name in synopsis.bucket_by if name in grouped)
    return queries, bucket_by


def inspect(
    path: str,
    queries: Sequence[ACQ],
    begin: int,
    ends: Mapping[str, int],
    bucket_by: Mapping[str, tuple[str, ...]] | None = None,
) -> pa.Table:
    """What one staged file holds of each query, and which buckets of groups.

    ``bucket_by``: by query, the group columns that decide an answer's bucket (default: all). Row group by row group:
    the rows of a query that ascend by (key, instant), as tasks write them, cannot hold an answer twice; only where
    they do not are all rows of the file compared.
    """
    day = path.split("day=")[-1].split("/")[0]
    file = _Inspection(queries, begin, ends, bucket_by or {}, day)
    metadata = pq.read_metadata(path)
    if not _is_schema(metadata.schema.to_arrow_schema()):
        file.found["(file)"] = Counter({"answers": metadata.num_rows, "wrong_schema": max(metadata.num_rows, 1)})
        file.examples["(file)"] = [path]
        return file.told()
    reader = pq.ParquetFile(path, metadata=metadata, memory_map=True, read_dictionary=_DICTIONARIES)
    columns = [name for name in (*_GRAIN, "position", *CARRIERS) if name in reader.schema_arrow.names]
    for number in range(reader.metadata.num_row_groups):
        rows = reader.read_row_group(number, columns=columns, use_threads=False)
        file.look(rows, lambda at=number: reader.read_row_group(at, columns=["error"], use_threads=False))  # type: ignore[misc]
    if file.unordered:
        file.compare(reader.read(columns=["query", "key", "instant", "position"], use_threads=False))
    return file.told()


def _is_schema(schema: pa.Schema) -> bool:
    """Whether a file has columns of the results table alone, and all but those that may be null throughout."""
    stored = {column.name: column for column in RESULTS if column.name != "day"}
    found = zip(schema.names, schema.types, strict=True)
    known = all(name in stored and _plain(type) == stored[name].type for name, type in found)
    return known and all(column.nullable or column.name in schema.names for column in stored.values())


def _plain(type: pa.DataType) -> pa.DataType:
    return type.value_type if pa.types.is_dictionary(type) else type


@numba.njit(cache=True)
def _walk(ranks, codes, instants, first, last, starts, ends, range_, slide, ago, begin, until, wrong, heads):
    """Marks the rows [first, last) of one query whose window is wrong; where the groups start, how many there are, and
    whether (rank of the key, instant) ascends."""
    count, ascends, aligned = 0, True, False
    for i in range(first, last):
        instant = instants[i]
        if i == first or codes[i] != codes[i - 1]:
            heads[count] = i
            count += 1
            if i > first and ranks[codes[i]] <= ranks[codes[i - 1]]:
                ascends = False
            aligned = (instant - range_) % slide == 0
        else:
            step = instant - instants[i - 1]
            if step <= 0:
                ascends = False
            # as a rule the next window is one slide later
            if not aligned or step != slide:
                aligned = (instant - range_) % slide == 0
        end = instant - ago
        wrong[i] = not (aligned and ends[i] == end and starts[i] == end - range_ and begin < instant <= until)
    return count, ascends


@numba.njit(cache=True)
def _uneven(offsets, first, last, width):
    """Lists among [first, last) that are not so long."""
    count = 0
    for i in range(first, last):
        count += offsets[i + 1] - offsets[i] != width
    return count


Longs = NDArray[np.int64]
Valid = NDArray[np.bool_] | None


class _Lists:
    """A list column of some rows: ``offsets`` (n + 1,) and ``values`` (m,), those that are null being 0, ``valid``
    (m,) or None if none is."""

    def __init__(self, column: pa.ListArray) -> None:
        self.offsets = column.offsets.to_numpy()
        values = column.values
        self.valid: Valid = None
        if values.null_count:
            self.valid = values.is_valid().to_numpy(zero_copy_only=False)
            values = values if pa.types.is_string(values.type) else values.fill_null(0)
        self.values = None if pa.types.is_string(values.type) else values.to_numpy()

    def column(self, first: int, last: int, width: int, at: int) -> tuple[NDArray[Any] | None, Valid]:
        """Element ``at`` of the lists [first, last), all ``width`` long: values, and where they are not null."""
        part = slice(self.offsets[first] + at, self.offsets[last], width)
        return None if self.values is None else self.values[part], None if self.valid is None else self.valid[part]


class _Layout(NamedTuple):
    """How keys are made: so many columns, those of them that decide the bucket, and what its number is counted from."""

    width: int
    chosen: tuple[int, ...]
    kind: int


class _Inspection:
    """What was found in one file so far."""

    def __init__(
        self,
        queries: Sequence[ACQ],
        begin: int,
        ends: Mapping[str, int],
        bucket_by: Mapping[str, tuple[str, ...]],
        day: str,
    ) -> None:
        self.queries = {query.name: query for query in queries}
        self.places = {query.name: list(zip(query.outputs, places(query), strict=True)) for query in queries}
        self.begin, self.ends, self.day = begin, ends, day
        self.layouts: dict[str, _Layout] = {}
        for query in queries:
            names = [name for name, _ in query.group_by]
            chosen = bucket_by.get(query.name, tuple(names))
            # windows of rows have files of their own, so have event sequences, and those without groups
            kind = BUCKETS if query.window.is_rows else 0
            if query.pattern is not None:
                kind = 2 * BUCKETS if query.group_by else 3 * BUCKETS
            self.layouts[query.name] = _Layout(len(names), tuple(names.index(name) for name in chosen), kind)
        self.found: dict[str, Counter[str]] = {}
        self.examples: dict[str, list[str]] = {}
        self.keys: dict[_Layout, dict[str, bool]] = {}
        self.buckets: set[int] = set()
        self.last: dict[str, tuple[str, int]] = {}
        self.unordered = False

    def look(self, rows: pa.Table, errors: Callable[[], pa.Table]) -> None:
        """Check the rows of a row group; ``errors`` reads their errors."""
        if len(rows) == 0:
            return
        columns = {name: _whole(rows[name]) for name in rows.schema.names}
        missing = np.zeros(len(rows), dtype=bool)
        for name in _GRAIN:
            if columns[name].null_count:
                missing |= columns[name].is_null().to_numpy(zero_copy_only=False)
        named, stream, key = (_codes(columns[name]) for name in ("query", "stream", "key"))
        starts, ends, instants = (_micros(columns[name]) for name in ("window_start", "window_end", "instant"))
        names, streams, texts = (columns[name].dictionary.to_pylist() for name in ("query", "stream", "key"))
        # a null is numbered behind the others
        names, streams, texts = [*names, None], [*streams, None], [*texts, ""]
        ranks = np.append(pc.rank(columns["key"].dictionary, tiebreaker="dense").to_numpy().astype(np.int64), 0)
        lists = {carrier: _Lists(columns[carrier]) for carrier in CARRIERS if carrier in columns}
        wrong, heads = np.zeros(len(rows), dtype=bool), np.empty(len(rows), dtype=np.int64)
        cuts = [0, *(np.flatnonzero((named[1:] != named[:-1]) | (stream[1:] != stream[:-1])) + 1).tolist(), len(rows)]
        for first, last in itertools.pairwise(cuts):
            name, source, part = names[named[first]], streams[stream[first]], slice(first, last)
            flags: dict[str, NDArray[np.bool_]] = {"null_keys": missing[part]}
            query = self.queries.get(name)
            if query is not None and query.stream == source:
                window, until = query.window, self.ends[query.stream]
                moments, rules = instants, (starts, ends, window.range, window.slide, window.ago, self.begin, until)
                if window.is_rows:
                    # numbered by their first rows: the times do not follow from the query
                    moments = _micros(columns["position"]) if "position" in columns else np.full(len(rows), -1)
                    rules = moments, moments, 0, window.slide, 0, -1, LONGEST
                count, ascends = _walk(ranks, key, moments, first, last, *rules, wrong, heads)
                if window.is_rows:
                    at, after = instants[part], ends[part]
                    wrong[part] |= (starts[part] >= after) | (after != at) | (at <= self.begin) | (at > until)
                elif window.at is not None:
                    wrong[part] |= ~np.isin(instants[part], window.at)
                flags["wrong_window"] = wrong[part]
                self._order(query.name, ascends, texts, key, moments, first, last)
                used = key[heads[:count]]
                flags |= self._shape(query, lists, texts, used, key, first, last)
                if "wrong_shape" not in flags:
                    flags |= self._values(query, lists, first, last, errors)
            elif name is not None and source is not None:
                flags["wrong_shape"] = np.ones(last - first, dtype=bool)
            self._count(name or "(null)", flags, columns, texts, key, part)

    def _order(
        self,
        name: str,
        ascends: bool,
        texts: list[str],
        key: NDArray[Any],
        moments: Longs,
        first: int,
        last: int,
    ) -> None:
        head = texts[key[first]], int(moments[first])
        if not ascends or (name in self.last and head <= self.last[name]):
            self.unordered = True
        self.last[name] = texts[key[last - 1]], int(moments[last - 1])

    def _shape(
        self,
        query: ACQ,
        lists: Mapping[str, _Lists],
        texts: list[str],
        used: NDArray[Any],
        key: NDArray[Any],
        first: int,
        last: int,
    ) -> dict[str, NDArray[np.bool_]]:
        """Rows whose lists or key are not as long as the query wants them; notes the buckets of the keys."""
        wrong = np.zeros(last - first, dtype=bool)
        widths = Counter(carrier for _, (carrier, _) in self.places[query.name])
        for carrier in CARRIERS:
            if carrier not in lists:
                wrong |= widths[carrier] > 0
            elif _uneven(lists[carrier].offsets, first, last, widths[carrier]):
                wrong |= np.diff(lists[carrier].offsets[first : last + 1]) != widths[carrier]
        layout = self.layouts[query.name]
        known = self.keys.setdefault(layout, {})
        new = {texts[code] for code in used.tolist()} - known.keys()
        if new:
            self._learn(layout, known, sorted(new))
        bad = [code for code in used.tolist() if not known[texts[code]]]
        if bad:
            wrong |= np.isin(key[first:last], bad)
        return {"wrong_shape": wrong} if wrong.any() else {}

    def _learn(self, layout: _Layout, known: dict[str, bool], texts: list[str]) -> None:
        width, chosen, kind = layout
        whole = chosen == tuple(range(width))
        parts = []
        for text in texts:
            values = _parsed(text)
            known[text] = values is not None and len(values) == width
            if values is not None and known[text]:
                parts.append(text if whole else _json([values[at] for at in chosen]))
        self.buckets.update((kind + bucket_of(parts)).tolist())

    def _values(
        self, query: ACQ, lists: Mapping[str, _Lists], first: int, last: int, errors: Callable[[], pa.Table]
    ) -> dict[str, NDArray[np.bool_]]:
        """Rows with values that cannot be."""
        widths = Counter(carrier for _, (carrier, _) in self.places[query.name])
        found: dict[str, NDArray[np.bool_]] = {}
        by_argument: dict[Any, dict[str, tuple[NDArray[Any], Valid]]] = {}

        def flag(finding: str, where: NDArray[np.bool_]) -> None:
            if where.any():
                found[finding] = found.get(finding, False) | where

        for output, (carrier, at) in self.places[query.name]:
            values, valid = lists[carrier].column(first, last, widths[carrier], at)
            if output.function in _COUNTS and valid is not None and not valid.all():
                told = _whole(errors()["error"]).is_null().to_numpy(zero_copy_only=False)[first:last]
                flag("impossible", ~valid & told)
            if values is None:
                continue
            if output.function in _COUNTS:
                flag("negative_counts", values < 0)
            if output.function in _SPREADS:
                flag("impossible", values < 0)
            if output.type == BOOLEAN:
                flag("impossible", (values != 0) & (values != 1))
            exact = output.argument_type is not None and output.argument_type.is_exact
            if output.type == DOUBLE and exact:
                flag("impossible", ~np.isfinite(values))
            if output.argument is not None and output.argument_type is not None and output.argument_type.is_numeric:
                by_argument.setdefault(output.argument, {})[output.function] = values, valid
        for known in by_argument.values():
            for bound, below in (("min", True), ("max", False)):
                for function in _BETWEEN & known.keys() if bound in known else ():
                    (limit, there), (value, valid) = known[bound], known[function]
                    # an average may round past an extreme in its last place
                    slack = 1e-14 * np.abs(value) if function == "avg" else 0
                    outside = limit > value + slack if below else value - slack > limit
                    for mask in (there, valid):
                        if mask is not None:
                            outside = outside & mask
                    flag("disordered", outside)
        return found

    def _count(
        self,
        name: str,
        flags: Mapping[str, NDArray[np.bool_]],
        columns: Mapping[str, pa.Array],
        texts: list[str],
        key: NDArray[Any],
        part: slice,
    ) -> None:
        counts, examples = self.found.setdefault(name, Counter()), self.examples.setdefault(name, [])
        counts["answers"] += part.stop - part.start
        for finding, where in flags.items():
            rows = int(np.count_nonzero(where))
            counts[finding] += rows
            if rows and len(examples) < 2:
                at = part.start + int(np.argmax(where))
                examples.append(f"{name} {columns['window_start'][at]} {texts[key[at]]}")

    def compare(self, rows: pa.Table) -> None:
        """Count answers that stand twice, in whatever order the rows are."""
        columns = [_whole(rows[name].unify_dictionaries()) for name in ("query", "key")]
        query, key = (_codes(column) for column in columns)
        names, texts = ([*column.dictionary.to_pylist(), "(null)"] for column in columns)
        moments = _micros(_whole(rows["instant"]))
        position = np.zeros_like(moments)
        if "position" in rows.schema.names:
            position = _micros(_whole(rows["position"]))
        order = np.lexsort((position, moments, key, query))
        same = np.ones(max(len(order) - 1, 0), dtype=bool)
        for column in (query, key, moments, position):
            same &= np.diff(column[order]) == 0
        for at in order[1:][same].tolist():
            name = names[query[at]]
            self.found[name]["repeated"] += 1
            if len(self.examples[name]) < 2:
                self.examples[name].append(f"{name} {rows['instant'][at]} {texts[key[at]]}")

    def told(self) -> pa.Table:
        """The findings as rows, a row a query, and one of the buckets."""
        rows = [
            {"query": name, "answers": counts["answers"]}
            | {finding: counts[finding] for finding in FINDINGS}
            | {"examples": "; ".join(self.examples[name])}
            for name, counts in self.found.items()
        ]
        told = json.dumps({"day": self.day, "buckets": sorted(self.buckets)})
        rows.append({"query": BUCKETS_OF, "answers": 0, **dict.fromkeys(FINDINGS, 0), "examples": told})
        return pa.Table.from_pylist(rows)


LONGEST = np.iinfo(np.int64).max

_COUNTS = {"count", "count_distinct"}
_SPREADS = {"variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop"}
_BETWEEN = {"avg", "median", "percentile", "percentile_disc", "mode", "first", "last"}
"""What lies between the least and the greatest value."""


def _whole(column: pa.ChunkedArray) -> pa.Array:
    # Arrow copies even a single chunk
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _codes(column: pa.DictionaryArray) -> NDArray[np.int32]:
    """Numbers (n,) of the texts of a dictionary; nulls have the one behind the last."""
    indices = column.indices
    return (indices.fill_null(len(column.dictionary)) if indices.null_count else indices).to_numpy()


def _micros(column: pa.Array) -> NDArray[np.int64]:
    numbers = column.view(pa.int64())
    return (numbers.fill_null(-1) if numbers.null_count else numbers).to_numpy()


def _parsed(text: str) -> list[str | None] | None:
    try:
        values = json.loads(text)
    except ValueError:
        return None
    right = isinstance(values, list) and all(value is None or isinstance(value, str) for value in values)
    return values if right else None


def _json(values: Sequence[str | None]) -> str:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def _document(docs: Path, staged: Sequence[str], seed: str, begin: int, ends: Mapping[str, int], result: Any) -> None:
    """Write the Data Docs page of an audit."""
    from spark_jobs.data_docs import page_name, write_page

    facts = {
        "answers of": f"{format_instant(begin)} .. {format_instant(max(ends.values()))}",
        "files": str(len(staged)),
    }
    write_page(docs, page_name(seed), result, facts)


def expectations(summary: pd.DataFrame, document: Callable[[Any], None] | None = None) -> list[dict[str, Any]]:
    """The Great Expectations suite over what :func:`inspected` found: one check an expectation. ``document`` is given
    Great Expectations' result, for its Data Docs."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx

    expect = gx.expectations
    suite_of = [
        expect.ExpectTableColumnsToMatchSet(column_set=list(summary.columns), exact_match=True),
        expect.ExpectColumnValuesToNotBeNull(column="query"),
        expect.ExpectColumnValuesToBeUnique(column="query"),
        expect.ExpectColumnValuesToBeBetween(column="answers", min_value=0),
        *(expect.ExpectColumnValuesToBeInSet(column=finding, value_set=[0]) for finding in FINDINGS),
    ]
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("staged").add_dataframe_asset("answers")
    batch = asset.add_batch_definition_whole_dataframe("all")
    suite = context.suites.add(gx.ExpectationSuite("answers", expectations=suite_of))
    validation = context.validation_definitions.add(gx.ValidationDefinition(name="answers", data=batch, suite=suite))
    result = validation.run(batch_parameters={"dataframe": summary})
    if document is not None:
        document(result)
    found = []
    for one in result.results:
        column = one.expectation_config.kwargs.get("column", "table")
        detail = ""
        if not one.success:
            # either of the whole expectation, or one a metric
            told = one.exception_info or {}
            each = [told] if "raised_exception" in told else list(told.values())
            raised = "; ".join(str(info["exception_message"]) for info in each if info["raised_exception"])
            rows = summary[summary[column] != 0] if column in FINDINGS else summary
            lines = [f"{row['query']}: {row[column]} ({row['examples']})" for _, row in rows.head(3).iterrows()]
            detail = raised[:300] or "; ".join(lines)
        found.append(
            {"check": f"gx:{one.expectation_config.type}({column})", "success": bool(one.success), "detail": detail}
        )
    return found


# --------------------------------------------------------------------------------- shared = unshared
SAMPLED_QUERIES = 3
SAMPLED_WINDOWS = 2

SAMPLED_EVENTS = 20_000
"""Of windows that hold more events than this, just some groups are recomputed: those of some buckets of keys."""

SCAN_SHARE = 0.15
"""What recomputing samples may cost, as a share of what it costs to read and group the run's events once..."""

LEAST_SECONDS = 0.45
"""...or so much: what that is for ten million events..."""

FEW_EVENTS = 1_000_000
"""...but runs over no more events than this recompute as many queries as any: what they cost is starting anyway."""

SECONDS = {"scanned": 3e-7, "query": 0.3, "read": 5e-8, "recomputed": 2.5e-6}
"""CPU time of Spark's scan of an event, and of a sample: of each query, of an event in a split that is read, and of one
that is recomputed. Measured; only their ratios matter."""

DRAWS = 6
"""Draws of windows of a query, of which the cheapest is taken: as a rule one in splits that are read anyway."""

RARE = 32
"""One audit in so many takes a window of any query, however many events it holds."""

LOCAL_EVENTS = 4_000_000
"""Events of the splits that the driver reads itself; more are read by Spark's tasks."""

Sample = list[tuple[ACQ, list[tuple[int, int]]]]


def recomputed(
    spark: SparkSession,
    staged: list[str],
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    seed: str,
) -> list[dict[str, Any]]:
    """Recompute sampled windows from raw events with Spark's own aggregates and compare: one check a query."""
    from spark_jobs.unshared import recompute

    sampled = sample(plan.workload.queries, sources, begin, ends, random.Random(seed))
    wanted = [_Wanted.of(query, windows, sources[query.stream], seed) for query, windows in sampled]
    stored = _staged_rows(staged, sampled)
    found = []
    for one, events in _frames(spark, plan, sources, wanted):
        query, windows = one.query, list(one.windows)
        time = plan.workload.stream(query.stream).time
        expected = recompute(events, query, time, windows).toArrow().to_pylist()
        ours = [row for row in stored if row["query"] == query.name and one.has(row["key"])]
        differences = compare(query, ours, expected)
        found.append(
            {
                "check": f"shared=unshared({query.name})",
                "success": not differences,
                "detail": "; ".join(differences[:3])
                or f"{len(expected)} answers of {len(windows)} windows, e.g. from {format_instant(windows[0][0])}",
            }
        )
    return found


def sample(
    queries: Sequence[ACQ],
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    chance: random.Random,
) -> Sample:
    """Some queries with the content [start, end) of some of their windows, answered or not, to be recomputed.

    Raw events are dear: queries are taken while they cost little beside the run itself (:data:`SCAN_SHARE`), the
    cheapest of those drawn if none does; but at times (:data:`RARE`) a window of whatever query is drawn first, so that
    long windows over fast streams are recomputed too. Windows of rows are left out.
    """
    held = {name: _Held(sources[name]) for name in ends}
    events = sum(held[name].events(begin, end) for name, end in ends.items())
    budget = inf if events <= FEW_EVENTS else max(LEAST_SECONDS, SCAN_SHARE * SECONDS["scanned"] * events)
    drawn = [query for query in queries if query.stream in ends and not query.window.is_rows]
    chance.shuffle(drawn)
    found: Sample = []
    if not chance.randrange(RARE):
        for query in drawn:
            possible = instants(query.window, begin, ends[query.stream])
            if len(possible):
                windows = _draw(query, possible, 1, chance)
                found.append((query, windows))
                held[query.stream].open(windows)
                break
    fallback: tuple[float, ACQ, list[tuple[int, int]]] | None = None
    for query in drawn[: 8 * SAMPLED_QUERIES]:
        possible = instants(query.window, begin, ends[query.stream])
        if len(found) == SAMPLED_QUERIES:
            break
        if len(possible) == 0 or any(query is taken for taken, _ in found):
            continue
        draws = [_draw(query, possible, SAMPLED_WINDOWS, chance) for _ in range(DRAWS)]
        cost, windows = min(((held[query.stream].cost(windows), windows) for windows in draws), key=itemgetter(0))
        if cost <= budget:
            budget -= cost
            found.append((query, windows))
            held[query.stream].open(windows)
        elif fallback is None or cost < fallback[0]:
            fallback = cost, query, windows
    if not found and fallback is not None:
        found.append(fallback[1:])
    return found


def _draw(query: ACQ, possible: Longs, most: int, chance: random.Random) -> list[tuple[int, int]]:
    picked = sorted(chance.sample(range(len(possible)), min(most, len(possible))))
    return [(int(possible[at]) - query.window.reach, int(possible[at]) - query.window.ago) for at in picked]


class _Held:
    """What the splits of a source hold, as far as they say; which of them are read anyway."""

    def __init__(self, splits: Sequence[Split]) -> None:
        unknown = [split.begin is None or split.end is None for split in splits]
        self.begins = np.array([split.begin or 0 for split in splits], dtype=np.int64)
        self.ends = np.array([split.end or 0 for split in splits], dtype=np.int64)
        self.rows = np.where(unknown, 0, np.array([split.rows or 0 for split in splits], dtype=np.float64))
        self.opened = np.zeros(len(splits), dtype=bool)

    def events(self, begin: int, end: int) -> float:
        """About how many events lie in [begin, end), spread evenly over each split; unknown ones count as none."""
        overlap = np.clip(np.minimum(self.ends, end) - np.maximum(self.begins, begin), 0, None)
        return float((self.rows * overlap / np.maximum(self.ends - self.begins, 1)).sum())

    def touched(self, windows: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
        found = np.zeros(len(self.rows), dtype=bool)
        for begin, end in windows:
            found |= (self.begins < end) & (self.ends > begin)
        return found

    def cost(self, windows: Sequence[tuple[int, int]]) -> float:
        """CPU seconds of recomputing a query's windows, about."""
        events = min(sum(self.events(*window) for window in windows), SAMPLED_EVENTS)
        read = float(self.rows[self.touched(windows) & ~self.opened].sum())
        return SECONDS["query"] + SECONDS["read"] * read + SECONDS["recomputed"] * events

    def open(self, windows: Sequence[tuple[int, int]]) -> None:
        self.opened |= self.touched(windows)


class _Wanted(NamedTuple):
    """A query with the windows that are recomputed; ``buckets``: of the groups' keys, if just some are (if it counts
    rows, of the keys by which it does)."""

    query: ACQ
    windows: tuple[tuple[int, int], ...]
    buckets: tuple[int, ...] | None

    @classmethod
    def of(cls, query: ACQ, windows: Sequence[tuple[int, int]], splits: Sequence[Split], seed: str) -> _Wanted:
        held = _Held(splits)
        events = sum(held.events(*window) for window in windows)
        buckets = None
        if query.group_by and events > SAMPLED_EVENTS:
            count = max(1, int(BUCKETS * SAMPLED_EVENTS / events))
            buckets = tuple(random.Random(f"{seed}/{query.name}").sample(range(BUCKETS), count))
        return cls(query, tuple(windows), buckets)

    def has(self, key: str) -> bool:
        return self.buckets is None or int(bucket_of([key])[0]) in self.buckets

    def columns(self, stream: Stream) -> list[str]:
        return list(dict.fromkeys([stream.time, *self.query.columns()]))

    def of_batch(self, events: pa.RecordBatch, stream: Stream) -> pa.RecordBatch:
        """The events of a batch that have to be recomputed, with the columns that this takes."""
        moments = events.column(stream.time).cast(pa.int64())
        tests = [pc.and_(pc.greater_equal(moments, start), pc.less(moments, end)) for start, end in self.windows]
        chosen = events.filter(pc.fill_null(reduce(pc.or_, tests), False)).select(self.columns(stream))
        if self.buckets is None or chosen.num_rows == 0:
            return chosen
        per = self.query.window.per
        names = [name for name, _ in self.query.group_by if per is None or name in per]
        grouped = [chosen.column(name) for name in names]
        values, number, groups = distinct_rows(grouped, chosen.num_rows)
        keys = key_texts([as_texts(column) for column in values], groups).to_pylist()
        return chosen.filter(pa.array(np.isin(bucket_of(keys), self.buckets)[number]))


def _frames(
    spark: SparkSession, plan: SharingPlan, sources: Mapping[str, list[Split]], wanted: Sequence[_Wanted]
) -> Iterator[tuple[_Wanted, DataFrame]]:
    """The raw events that are to be recomputed, as frames of the source's own columns.

    The driver reads the splits of each stream once for all its queries; what holds too much for that, or does not say
    how much it holds, Spark's tasks read query by query.
    """
    for name in dict.fromkeys(one.query.stream for one in wanted):
        stream = plan.workload.stream(name)
        mine = [one for one in wanted if one.query.stream == name]
        windows = [window for one in mine for window in one.windows]
        needed = [split for split in sources[name] if any(split.may_hold(*window) for window in windows)]
        if any(split.rows is None for split in needed) or sum(split.rows or 0 for split in needed) > LOCAL_EVENTS:
            for one in mine:
                yield one, _distributed(spark, stream, one, needed)
            continue
        columns = list(dict.fromkeys(column for one in mine for column in one.columns(stream)))
        found: list[list[pa.RecordBatch]] = [[] for _ in mine]
        for split in needed:
            for events in read_split(stream, split, columns):
                for one, batches in zip(mine, found, strict=True):
                    batches.append(one.of_batch(events, stream))
        types = dict(stream.schema)
        for one, batches in zip(mine, found, strict=True):
            schema = pa.schema([(column, arrow_type(types[column])) for column in one.columns(stream)])
            # Spark 4.2 loses the rows of a table with empty batches before them
            held = pa.Table.from_batches([batch for batch in batches if batch.num_rows], schema).combine_chunks()
            # one partition: nothing has to be exchanged
            yield one, spark.createDataFrame(held).coalesce(1)


def _distributed(spark: SparkSession, stream: Stream, one: _Wanted, splits: list[Split]) -> DataFrame:
    columns, types = one.columns(stream), dict(stream.schema)
    ddl = ", ".join(f"`{name}` {'bigint' if types[name].name == 'long' else types[name]}" for name in columns)
    needed = [split for split in splits if any(split.may_hold(*window) for window in one.windows)]
    if not needed:
        return spark.createDataFrame([], ddl)

    def task(batches: Any) -> Any:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for events in read_split(stream, needed[number], columns):
                    yield one.of_batch(events, stream)

    return spark.range(0, len(needed), 1, len(needed)).mapInArrow(task, ddl)


def _staged_rows(staged: list[str], sampled: Sample) -> list[dict[str, Any]]:
    """The staged answers of the sampled windows."""
    if not staged or not sampled:
        return []
    starts = {query.name: np.array([start for start, _ in windows], dtype=np.int64) for query, windows in sampled}
    found: list[dict[str, Any]] = []
    for path in staged:
        reader = pq.ParquetFile(path, memory_map=True, read_dictionary=_DICTIONARIES)
        at = reader.schema_arrow.names.index("query")
        for number in range(reader.metadata.num_row_groups):
            bounds = reader.metadata.row_group(number).column(at).statistics
            told = bounds is not None and bounds.has_min_max
            if told and not any(bounds.min <= name <= bounds.max for name in starts):
                continue
            rows = reader.read_row_group(number, use_threads=False)
            query, moments = _whole(rows["query"]), _micros(_whole(rows["window_start"]))
            codes, names = _codes(query), query.dictionary.to_pylist()
            chosen = np.zeros(len(rows), dtype=bool)
            for name in starts.keys() & set(names):
                chosen |= (codes == names.index(name)) & np.isin(moments, starts[name])
            found += rows.filter(pa.array(chosen)).to_pylist()
    return found


def compare(query: ACQ, ours: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """Differences between staged rows and recomputed ones, for people; empty when they agree."""
    from spark_jobs.unshared import agrees, grain, qualifies

    mine = {(row["window_start"], tuple(json.loads(row["key"]))): row for row in ours}
    theirs = {grain(query, row): row for row in expected}
    verdicts = {key: qualifies(query, row) for key, row in theirs.items()}
    missing = [key for key, verdict in verdicts.items() if verdict and key not in mine]
    extra = [key for key in mine if verdicts.get(key, False) is False]
    differences = [f"window {key} is missing" for key in sorted(missing, key=str)]
    differences += [f"window {key} should not exist" for key in sorted(extra, key=str)]
    for key in sorted(mine.keys() & theirs.keys(), key=str):
        for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
            value = mine[key][carrier][index]
            if mine[key]["error"] and value is None:
                continue
            if not agrees(output, value, theirs[key]):
                wanted = theirs[key][output.name]
                differences.append(f"window {key}: {output.name} is {value}, recomputed {wanted}")
    return differences


# ------------------------------------------------------------------------------------- windows of rows
class RowWindow(NamedTuple):
    """A published window of rows: the number of its first row among those of ``key`` (its values of ``per`` as texts),
    and its span [start, end), microseconds."""

    position: int
    key: tuple[str | None, ...]
    start: int
    end: int


def recomputed_rows(
    spark: SparkSession,
    staged: list[str],
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    ends: Mapping[str, int],
    seed: str,
) -> list[dict[str, Any]]:
    """Recompute sampled windows of rows from the raw events of their spans: one check a query.

    A span that holds fewer rows of the key than the window has is wrong. One that holds more (rows at the time of the
    first or the last may belong to neighbours) says nothing about the answer.
    """
    from spark_jobs.unshared import grain, recompute

    queries = [query for query in plan.workload.queries if query.window.is_rows and query.stream in ends]
    sampled = sample_rows(staged, queries, sources, random.Random(seed))
    wanted = []
    for query, windows in sampled.items():
        buckets = set(bucket_of([_json(window.key) for window in windows]).tolist())
        spans = dict.fromkeys((window.start, window.end) for window in windows)
        wanted.append(_Wanted(query, tuple(spans), tuple(sorted(buckets))))
    found = []
    for one, events in _frames(spark, plan, sources, wanted):
        query, counting, windows = one.query, _counting(one.query), sampled[one.query]
        time = plan.workload.stream(query.stream).time
        expected = recompute(events, query, time, one.windows).toArrow().to_pylist()
        counted = recompute(events, counting, time, one.windows).toArrow().to_pylist()
        rows = {(_span(row), grain(counting, row)[1]): row["rows"] for row in counted}
        differences, apart = [], 0
        for window in windows:
            span, key = (window.start, window.end), window.key
            if (held := rows.get((span, key), 0)) != query.window.range:
                differences += [f"{window} holds {held} rows"] * (held < query.window.range)
                continue
            apart += 1
            theirs = [row for row in expected if _span(row) == span and _key_of(query, grain(query, row)[1]) == key]
            differences += compare(query, _staged_window(staged, query, window), theirs)
        told = f"{apart} of {len(windows)} windows, the others share the time of their first or last row"
        found.append(
            {
                "check": f"shared=unshared({query.name})",
                "success": not differences,
                "detail": "; ".join(differences[:3]) or told,
            }
        )
    return found


def sample_rows(
    staged: list[str], queries: Sequence[ACQ], sources: Mapping[str, list[Split]], chance: random.Random
) -> dict[ACQ, list[RowWindow]]:
    """Some queries that count rows with some of their published windows, to be recomputed: of a few draws the cheapest,
    and no second query if that is dear."""
    drawn = chance.sample(queries, min(len(queries), 8 * SAMPLED_QUERIES)) if staged else []
    found: dict[ACQ, list[RowWindow]] = {}
    for query in drawn:
        rows = _staged_of(staged, ds.field("query") == query.name, ["position", "key", "window_start", "window_end"])
        if len(rows) == 0 or len(found) == SAMPLED_QUERIES:
            continue
        held = _Held(sources[query.stream])
        draws = []
        for _ in range(DRAWS):
            picked = rows.take(sorted(chance.sample(range(len(rows)), min(SAMPLED_WINDOWS, len(rows)))))
            windows = [
                RowWindow(row["position"], _key_of(query, json.loads(row["key"])), *_span(row))
                for row in picked.to_pylist()
            ]
            draws.append((held.cost([(window.start, window.end) for window in windows]), windows))
        cost, windows = min(draws, key=itemgetter(0))
        if cost <= LEAST_SECONDS or not found:
            found[query] = windows
    return found


def _counting(query: ACQ) -> ACQ:
    """All rows of each key, whatever the query makes of them."""
    per = query.window.per or ()
    group_by = tuple(column for column in query.group_by if column[0] in per)
    rows = Output("rows", "count", None, None, LONG)
    return replace(query, filter=None, group_by=group_by, select=(), outputs=(rows,), having=())


def _key_of(query: ACQ, values: Sequence[str | None]) -> tuple[str | None, ...]:
    """The values of ``per`` among those of a group."""
    per = query.window.per or ()
    return tuple(value for value, (name, _) in zip(values, query.group_by, strict=True) if name in per)


def _span(row: Mapping[str, Any]) -> tuple[int, int]:
    start, end = (pa.scalar(row[name], INSTANT).value for name in ("window_start", "window_end"))
    return start, end


def _staged_window(staged: list[str], query: ACQ, window: RowWindow) -> list[dict[str, Any]]:
    """The staged answers of one window of rows."""
    chosen = (ds.field("query") == query.name) & (ds.field("position") == window.position)
    rows: list[dict[str, Any]] = _staged_of(staged, chosen, None).to_pylist()
    return [row for row in rows if _key_of(query, json.loads(row["key"])) == window.key]


def _staged_of(staged: list[str], chosen: ds.Expression, columns: list[str] | None) -> pa.Table:
    schema = pa.schema([column for column in RESULTS if column.name != "day"])
    return ds.dataset(staged, format="parquet", schema=schema).to_table(columns, filter=chosen)
