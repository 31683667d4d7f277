"""Checks of staged answers before anything is published.

Two kinds, both on exactly the files that the publishing commit will name: a Great Expectations suite (schema, keys,
grain, windows, ranges) over what one pass over all answers counted of each query, and our own check, which recomputes
sampled windows of sampled queries unshared, from raw events, with Spark's own aggregates, and compares: answers, and
which windows and groups exist at all.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.plan import SharingPlan
from optimizer.query import ACQ
from optimizer.synopsis import CARRIERS
from optimizer.window import instants
from spark_jobs.cells import encoded, numbered
from spark_jobs.files import bucket_of
from spark_jobs.final_aggregates import RESULTS, places
from spark_jobs.partial_aggregates import Task
from spark_jobs.sources import Split, format_instant, read_split

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

INSTANT = pa.timestamp("us", tz="UTC")

SAMPLED_QUERIES = 3
SAMPLED_WINDOWS = 2
SAMPLED_EVENTS = 200_000


def audit(
    spark: SparkSession,
    staged: list[str],
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    seed: str,
) -> list[dict[str, Any]]:
    """All checks of one staged interval: dicts of ``check``, ``success`` and ``detail``.

    ``staged``: the files that hold the answers of the windows that end in (begin, ends[stream]], exactly those that
    the publishing commit will name; ``seed`` decides the sample.
    """
    queries = [query for query in plan.workload.queries if query.stream in ends]
    checks = expectations(inspected(spark, staged, queries, begin, ends))
    return checks + recomputed(spark, staged, plan, sources, begin, ends, seed)


# ---------------------------------------------------------------------------------- Great Expectations
FINDINGS = ("wrong_schema", "null_keys", "repeated", "wrong_window", "wrong_shape", "negative_counts", "disordered")
"""What is counted of each query's staged answers; every count must be zero:

a file without just the columns of the results table; missing query, window or group; a (query, window, group) that
stands twice; a window that is not the query's or not of this interval; lists of another length than the query has
outputs; counts below zero; not min <= avg <= max.
"""


def inspected(
    spark: SparkSession, staged: list[str], queries: Sequence[ACQ], begin: int, ends: dict[str, int]
) -> pd.DataFrame:
    """Look at every staged answer once: a row a query with ``answers``, :data:`FINDINGS` and ``examples``.

    Every row of every file is checked; only counts leave the tasks. All answers of a bucket of groups lie in one file
    of a day, so an answer that stands twice does so in one file, unless a bucket is found in two.
    """
    import pandas as pd

    columns = ["query", "answers", *FINDINGS, "examples"]
    found = pd.DataFrame([], columns=columns)
    if staged:
        ddl = "query string, answers long, " + ", ".join(f"{name} long" for name in FINDINGS) + ", examples string"
        width = min(len(staged), 4 * spark.sparkContext.defaultParallelism)
        task = inspect_task(staged, list(queries), begin, ends)
        found = spark.range(0, len(staged), 1, width).mapInArrow(task, ddl).toArrow().to_pandas()
    seen: dict[tuple[str, int], int] = {}
    for text in found.loc[found["query"] == BUCKETS_OF, "examples"]:
        told = json.loads(text)
        for bucket in told["buckets"]:
            seen[told["day"], bucket] = seen.get((told["day"], bucket), 0) + 1
    twice = sum(count - 1 for count in seen.values())
    counts = {
        "answers": "sum",
        **dict.fromkeys(FINDINGS, "sum"),
        "examples": lambda texts: "; ".join(filter(None, texts)),
    }
    summary = found[found["query"] != BUCKETS_OF].groupby("query", as_index=False).agg(counts)
    if twice:
        summary.loc[len(summary)] = ["(files)", 0, 0, 0, twice, 0, 0, 0, 0, "a bucket of groups lies in two files"]
    return summary[columns]


BUCKETS_OF = "(buckets)"


def inspect_task(staged: list[str], queries: list[ACQ], begin: int, ends: dict[str, int]) -> Task:
    """The task that inspects the staged files whose numbers (``id``) it is given."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from inspect(staged[number], queries, begin, ends).to_batches()

    return task


def inspect(path: str, queries: Sequence[ACQ], begin: int, ends: dict[str, int]) -> pa.Table:
    """What one staged file holds of each query, and which buckets of groups."""
    texts = any(carrier == "texts" for query in queries for carrier, _ in places(query))
    looked_at = [
        "stream",
        "query",
        "window_start",
        "window_end",
        "instant",
        "key",
        "longs",
        "doubles",
        *(["texts"] if texts else []),
    ]
    reader = pq.ParquetFile(path, memory_map=True, read_dictionary=["stream", "query", "key"])
    right_schema = reader.schema_arrow.names == [name for name in RESULTS.names if name != "day"]
    rows = reader.read(columns=looked_at, use_threads=False).unify_dictionaries()
    known = {query.name: query for query in queries}
    named = rows["query"].combine_chunks()
    number = pc.fill_null(named.indices, -1).to_numpy(zero_copy_only=False)
    key, keys = _key_numbers(rows["key"].combine_chunks())
    widths = np.array([len(json.loads(text)) for text in keys], dtype=np.int64)
    starts, lasts, moments = (
        pc.fill_null(rows[name].cast(pa.int64()), -1).combine_chunks().to_numpy(zero_copy_only=False)
        for name in ("window_start", "window_end", "instant")
    )
    missing = np.zeros(len(rows), dtype=bool)
    for name in ("stream", "query", "window_start", "window_end", "instant", "key"):
        missing |= ~rows[name].combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    repeated = _repeated(number * len(keys) + key, starts)
    found = []
    for index, name in enumerate(named.dictionary.to_pylist()):
        at = np.flatnonzero(number == index)
        bad = {"null_keys": missing[at], "repeated": repeated[at]}
        if name in known:
            query = known[name]
            window, until = query.window, ends[query.stream]
            aligned = (moments[at] - window.range) % window.slide == 0
            aligned &= (moments[at] - starts[at] == window.reach) & (moments[at] - lasts[at] == window.ago)
            bad["wrong_window"] = ~aligned | (moments[at] <= begin) | (moments[at] > until)
            together = len(at) == at[-1] - at[0] + 1
            bad |= {} if right_schema else {"wrong_schema": np.ones(len(at), dtype=bool)}
            bad |= _outputs(query, rows.slice(at[0], len(at)) if together else rows.take(pa.array(at)))
            bad["wrong_shape"] |= widths[key[at]] != len(query.group_by)
        else:
            bad["wrong_shape"] = np.ones(len(at), dtype=bool)
        worst = [int(at[np.argmax(flags)]) for flags in bad.values() if flags.any()]
        examples = "; ".join(f"{name} {rows['window_start'][i]} {rows['key'][i].as_py()}" for i in worst[:2])
        counts = {finding: int(bad[finding].sum()) if finding in bad else 0 for finding in FINDINGS}
        found.append({"query": name, "answers": len(at), **counts, "examples": examples})
    told = {"day": path.split("day=")[-1].split("/")[0], "buckets": sorted({int(b) for b in bucket_of(keys)})}
    found.append({"query": BUCKETS_OF, "answers": 0, **dict.fromkeys(FINDINGS, 0), "examples": json.dumps(told)})
    return pa.Table.from_pylist(found)


def _repeated(grain: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows (n,) repeat the (query, group) and window start of another."""
    repeated = np.zeros(len(grain), dtype=bool)
    changes = np.flatnonzero(np.diff(grain)) + 1
    heads = grain[np.concatenate([[0], changes])] if len(grain) else grain
    ascending = np.diff(starts) > 0
    ascending[changes - 1] = True
    # as the jobs write them: each query and group in one stretch, its windows ascending
    if ascending.all() and len(np.unique(heads)) == len(heads):
        return repeated
    order = np.lexsort((starts, grain))
    repeated[order[1:][(np.diff(grain[order]) == 0) & (np.diff(starts[order]) == 0)]] = True
    return repeated


def _key_numbers(keys: pa.DictionaryArray) -> tuple[NDArray[np.int64], list[str]]:
    """Number (n,) of each row's group, and the groups' keys as partial rows have them; null: no group, ``[]``."""
    values, codes = encoded(keys)
    used, number = numbered(codes.astype(np.int64), len(values))
    return number, [text if text is not None else "[]" for text in values.take(pa.array(used)).to_pylist()]


def _outputs(query: ACQ, rows: pa.Table) -> dict[str, NDArray[np.bool_]]:
    """What is wrong with the outputs of some rows of one query: flags (n,) a finding."""
    count = len(rows)
    at = dict(zip(query.outputs, places(query), strict=True))
    wrong = pa.chunked_array([pa.array(np.zeros(count, dtype=bool))])
    for carrier in set(CARRIERS) & set(rows.schema.names):
        width = sum(found == carrier for found, _ in at.values())
        wrong = pc.or_(wrong, pc.not_equal(pc.list_value_length(rows[carrier]), width))
    shape = pc.fill_null(wrong, True).combine_chunks().to_numpy(zero_copy_only=False)
    flags = {"wrong_shape": shape}
    if shape.any():
        return flags
    values = {
        output: pc.fill_null(pc.list_element(rows[carrier], index), 0).combine_chunks().to_numpy(zero_copy_only=False)
        for output, (carrier, index) in at.items()
        if carrier != "texts"
    }
    negative = np.zeros(count, dtype=bool)
    disordered = np.zeros(count, dtype=bool)
    by_argument: dict[Any, dict[str, Any]] = {}
    for output in values:
        if output.function == "count":
            negative |= values[output] < 0
        by_argument.setdefault(output.argument, {})[output.function] = values[output]
    for found in by_argument.values():
        # an average may round past an extreme in its last place
        if {"avg", "min"} <= found.keys():
            disordered |= found["min"] > found["avg"] + 1e-14 * np.abs(found["avg"])
        if {"avg", "max"} <= found.keys():
            disordered |= found["avg"] - 1e-14 * np.abs(found["avg"]) > found["max"]
    return flags | {"negative_counts": negative, "disordered": disordered}


def expectations(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """The Great Expectations suite over what :func:`inspected` found: one check an expectation."""
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

    found = []
    for query, windows in sample(plan.workload.queries, sources, begin, ends, random.Random(seed)):
        stream = plan.workload.stream(query.stream)
        events = _raw(spark, plan, query, sources[query.stream], windows)
        expected = recompute(events, query, stream.time, windows).toArrow().to_pylist()
        ours = _staged_rows(staged, query.name, [start for start, _ in windows])
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
) -> list[tuple[ACQ, list[tuple[int, int]]]]:
    """Some queries with some of their windows [start, end), answered or not, to be recomputed.

    Raw events are dear: windows are taken while they hold about :data:`SAMPLED_EVENTS` together, but always one, and
    one audit in eight takes whatever it draws, so that long windows over fast streams are recomputed too.
    """
    budget = SAMPLED_EVENTS if chance.randrange(8) else float("inf")
    drawn = [query for query in queries if query.stream in ends]
    chance.shuffle(drawn)
    found: list[tuple[ACQ, list[tuple[int, int]]]] = []
    for query in drawn:
        possible = instants(query.window, begin, ends[query.stream])
        picked = sorted(chance.sample(range(len(possible)), min(SAMPLED_WINDOWS, len(possible))))
        ends_at = [int(possible[index]) - query.window.ago for index in picked]
        windows = [(end - query.window.range, end) for end in ends_at]
        cost = sum(_events(sources[query.stream], *window) for window in windows)
        if windows and (cost <= budget or not found):
            found.append((query, windows))
            budget -= cost
        if len(found) == SAMPLED_QUERIES:
            break
    return found


def _events(splits: list[Split], begin: int, end: int) -> float:
    """About how many events lie in [begin, end), events spread evenly over each split; unknown ones count as none."""
    total = 0.0
    for split in splits:
        if split.rows and split.begin is not None and split.end is not None:
            overlap = min(end, split.end) - max(begin, split.begin)
            total += split.rows * max(overlap, 0) / max(split.end - split.begin, 1)
    return total


def _staged_rows(staged: list[str], query: str, starts: list[int]) -> list[dict[str, Any]]:
    if not staged:
        return []
    instants = pa.array(starts, pa.int64()).cast(INSTANT)
    chosen = (ds.field("query") == query) & ds.field("window_start").isin(instants)
    found: list[dict[str, Any]] = ds.dataset(staged, format="parquet").to_table(filter=chosen).to_pylist()
    return found


def _raw(
    spark: SparkSession, plan: SharingPlan, query: ACQ, splits: list[Split], windows: list[tuple[int, int]]
) -> DataFrame:
    """The raw events that some windows can hold, as a frame of the source's own columns."""
    stream = plan.workload.stream(query.stream)
    columns = list(dict.fromkeys([stream.time, *query.columns()]))
    needed = [split for split in splits if any(split.may_hold(start, end) for start, end in windows)]
    types = dict(stream.schema)
    names = {"long": "bigint"}
    ddl = ", ".join(
        f"`{name}` {types[name] if types[name].name == 'decimal' else names.get(types[name].name, types[name].name)}"
        for name in columns
    )
    if not needed:
        return spark.createDataFrame([], ddl)

    def task(batches: Any) -> Any:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for events in read_split(stream, needed[number], columns):
                    yield events.filter(_inside(events, stream.time, windows))

    return spark.range(0, len(needed), 1, len(needed)).mapInArrow(task, ddl)


def _inside(events: pa.RecordBatch, time: str, windows: list[tuple[int, int]]) -> pa.Array:
    instants = events.column(time).cast(pa.int64())
    chosen = pa.array([False] * len(instants))
    for start, end in windows:
        chosen = pc.or_(chosen, pc.fill_null(pc.and_(pc.greater_equal(instants, start), pc.less(instants, end)), False))
    return chosen


def compare(query: ACQ, ours: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """Differences between staged rows and recomputed ones, for people; empty when they agree."""
    from spark_jobs.unshared import agrees, grain, qualifies

    mine = {(row["window_start"], tuple(json.loads(row["key"]))): row for row in ours}
    theirs = {grain(query, row): row for row in expected}
    # where rounding or a permitted error decides what HAVING says, the answer may be there or not
    wanted = {key: qualifies(query, row) for key, row in theirs.items()}
    theirs = {key: row for key, row in theirs.items() if wanted[key] is not False and (wanted[key] or key in mine)}
    differences = [f"window {key} is missing" for key in sorted(theirs.keys() - mine.keys(), key=str)]
    differences += [f"window {key} should not exist" for key in sorted(mine.keys() - theirs.keys(), key=str)]
    for key in sorted(mine.keys() & theirs.keys(), key=str):
        for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
            value = mine[key][carrier][index]
            if mine[key]["error"] and value is None:
                continue
            if not agrees(output, value, theirs[key]):
                found = theirs[key][output.name]
                differences.append(f"window {key}: {output.name} is {value}, recomputed {found}")
    return differences
