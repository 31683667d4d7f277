"""Checks of staged answers before anything is published.

Two kinds, both on the exact staged version: a Great Expectations suite (schema, keys, grain, ranges) and our own
check, which recomputes sampled windows of sampled queries unshared, from raw events, with Spark's own aggregates, and
compares: answers, and which windows and groups exist at all.
"""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from optimizer.plan import SharingPlan
from optimizer.query import ACQ
from optimizer.window import window_ends
from spark_jobs.final_aggregates import places
from spark_jobs.sources import Split, format_instant, read_split
from spark_jobs.unshared import recompute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLED_QUERIES = 3
SAMPLED_WINDOWS = 2

EPSILON = 2.0**-52


def audit(
    spark: SparkSession,
    staged: DataFrame,
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    seed: str,
) -> list[dict[str, Any]]:
    """All checks of one staged interval: dicts of ``check``, ``success`` and ``detail``.

    ``staged``: the answers of windows that end in (begin, ends[stream]]; ``seed`` decides the sample.
    """
    staged = staged.cache()
    try:
        checks = expectations(spark, staged, plan, begin, max(ends.values()))
        checks += recomputed(spark, staged, plan, sources, begin, ends, seed)
    finally:
        staged.unpersist()
    return checks


# ---------------------------------------------------------------------------------- Great Expectations
def expectations(
    spark: SparkSession, staged: DataFrame, plan: SharingPlan, begin: int, end: int
) -> list[dict[str, Any]]:
    """The Great Expectations suite over the staged answers: one check an expectation."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx

    expect = gx.expectations
    frame = _audited(spark, staged, plan)
    columns = ["stream", "query", "window_start", "window_end", "key"]
    suite_of = [expect.ExpectColumnValuesToNotBeNull(column=column) for column in columns]
    suite_of += [
        expect.ExpectTableColumnsToMatchSet(column_set=frame.columns, exact_match=True),
        expect.ExpectColumnValuesToBeUnique(column="grain"),
        expect.ExpectColumnValuesToBeInSet(column="known_window", value_set=[True]),
        expect.ExpectColumnValuesToBeInSet(column="whole", value_set=[True]),
        expect.ExpectColumnValuesToBeBetween(column="least_count", min_value=0),
        expect.ExpectColumnValuesToBeInSet(column="ordered", value_set=[True]),
        expect.ExpectColumnValuesToBeBetween(column="end_micros", min_value=begin + 1, max_value=end),
    ]
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    batch = (
        context.data_sources.add_spark("staged")
        .add_dataframe_asset("answers")
        .add_batch_definition_whole_dataframe("all")
    )
    suite = context.suites.add(gx.ExpectationSuite("answers", expectations=suite_of))
    validation = context.validation_definitions.add(
        gx.ValidationDefinition(name="answers", data=batch, suite=suite)
    )
    result = validation.run(batch_parameters={"dataframe": frame})
    found = []
    for one in result.results:
        config = one.expectation_config
        column = config.kwargs.get("column", "table")
        detail = ""
        if not one.success:
            told = (
                one.exception_info
                if one.exception_info and "exception_message" in str(one.exception_info)
                else {}
            )
            outcome = one.result or {}
            detail = json.dumps(
                {
                    "unexpected": outcome.get("unexpected_count"),
                    "examples": [str(value) for value in outcome.get("partial_unexpected_list", [])][:3],
                    "raised": str(told)[:300] if told else "",
                }
            )
            detail += f" rows: {_examples(frame, column)}"
        found.append({"check": f"gx:{config.type}({column})", "success": bool(one.success), "detail": detail})
    return found


def _audited(spark: SparkSession, staged: DataFrame, plan: SharingPlan) -> DataFrame:
    """The staged answers with what the suite looks at; rows of unknown queries keep nulls there and fail."""
    from pyspark.sql import functions as F

    roles = spark.createDataFrame(
        [_roles(query) for query in plan.workload.queries],
        "query string, range bigint, slide bigint, groups int, width_longs int, width_doubles int, width_texts int, "
        "counts array<int>, ordered_long array<array<int>>, ordered_double array<array<int>>",
    )
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")

    def in_order(triples: str, extremes: str) -> Any:
        # min <= avg <= max; an average may round past an extreme by a unit in the last place
        return F.forall(
            triples,
            lambda at: F.coalesce(
                (
                    F.get(extremes, F.get(at, 0))
                    <= F.get("doubles", F.get(at, 1)) * (1 + 1e-14 * F.signum(F.get("doubles", F.get(at, 1))))
                )
                & (
                    F.get("doubles", F.get(at, 1)) * (1 - 1e-14 * F.signum(F.get("doubles", F.get(at, 1))))
                    <= F.get(extremes, F.get(at, 2))
                ),
                F.lit(True),
            ),
        )

    joined = staged.join(F.broadcast(roles), "query", "left")
    return joined.select(
        "stream",
        "query",
        "window_start",
        "window_end",
        "key",
        end.alias("end_micros"),
        F.to_json(F.struct("query", start.alias("start"), "key"), {"ignoreNullFields": "false"}).alias(
            "grain"
        ),
        F.coalesce(
            (F.pmod(start, F.col("slide")) == 0) & (end - start == F.col("range")), F.lit(False)
        ).alias("known_window"),
        F.coalesce(
            (F.size("key") == F.col("groups"))
            & (F.size("longs") == F.col("width_longs"))
            & (F.size("doubles") == F.col("width_doubles"))
            & (F.size("texts") == F.col("width_texts")),
            F.lit(False),
        ).alias("whole"),
        F.coalesce(F.array_min(F.transform("counts", lambda at: F.get("longs", at))), F.lit(0)).alias(
            "least_count"
        ),
        F.coalesce(
            in_order("ordered_long", "longs") & in_order("ordered_double", "doubles"), F.lit(False)
        ).alias("ordered"),
    )


def _roles(query: ACQ) -> tuple[Any, ...]:
    """What the suite has to know of a query: its window, how long its lists are, and which outputs to compare."""
    at = dict(zip(query.outputs, places(query), strict=True))
    width = {
        carrier: sum(1 for found, _ in at.values() if found == carrier)
        for carrier in ("longs", "doubles", "texts")
    }
    by_argument: dict[Any, dict[str, tuple[str, int]]] = {}
    for output, place in at.items():
        by_argument.setdefault(output.argument, {})[output.function] = place
    ordered: dict[str, list[list[int]]] = {"longs": [], "doubles": []}
    for places_of in by_argument.values():
        if {"min", "avg", "max"} <= set(places_of) and places_of["avg"][0] == "doubles":
            ordered[places_of["min"][0]].append([places_of[name][1] for name in ("min", "avg", "max")])
    counts = [index for output, (_, index) in at.items() if output.function == "count"]
    return (
        query.name,
        query.window.range,
        query.window.slide,
        len(query.group_by),
        width["longs"],
        width["doubles"],
        width["texts"],
        counts,
        ordered["longs"],
        ordered["doubles"],
    )


def _examples(frame: DataFrame, column: str) -> str:
    from pyspark.sql import functions as F

    bad = {
        "known_window": ~F.col("known_window"),
        "whole": ~F.col("whole"),
        "ordered": ~F.col("ordered"),
        "least_count": F.col("least_count") < 0,
    }.get(column)
    rows = (
        (frame if bad is None else frame.where(bad)).select("query", "window_start", "key").limit(3).collect()
    )
    return "; ".join(f"{row['query']} {row['window_start']} {row['key']}" for row in rows)


# --------------------------------------------------------------------------------- shared = unshared
def recomputed(
    spark: SparkSession,
    staged: DataFrame,
    plan: SharingPlan,
    sources: dict[str, list[Split]],
    begin: int,
    ends: dict[str, int],
    seed: str,
) -> list[dict[str, Any]]:
    """Recompute sampled windows from raw events with Spark's own aggregates and compare: one check a query."""
    from pyspark.sql import functions as F

    chance = random.Random(seed)
    answerable = [
        query
        for query in plan.workload.queries
        if query.stream in ends and len(window_ends(query.window, begin, ends[query.stream]))
    ]
    found = []
    for query in chance.sample(answerable, min(SAMPLED_QUERIES, len(answerable))):
        possible = window_ends(query.window, begin, ends[query.stream])
        picked = sorted(chance.sample(range(len(possible)), min(SAMPLED_WINDOWS, len(possible))))
        windows = [(int(possible[i]) - query.window.range, int(possible[i])) for i in picked]
        stream = plan.workload.stream(query.stream)
        events = _raw(spark, plan, query, sources[query.stream], windows)
        expected = [row.asDict() for row in recompute(events, query, stream.time, windows).collect()]
        starts = [F.timestamp_micros(F.lit(start)) for start, _ in windows]
        ours = staged.where(F.col("query") == query.name).where(F.col("window_start").isin(starts)).collect()
        differences = compare(query, [row.asDict() for row in ours], expected)
        found.append(
            {
                "check": f"shared=unshared({query.name})",
                "success": not differences,
                "detail": "; ".join(differences[:3])
                or f"{len(expected)} answers of {len(windows)} windows, e.g. from {format_instant(windows[0][0])}",
            }
        )
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
    import pyarrow.compute as pc

    instants = events.column(time).cast(pa.int64())
    chosen = pa.array([False] * len(instants))
    for start, end in windows:
        chosen = pc.or_(
            chosen, pc.fill_null(pc.and_(pc.greater_equal(instants, start), pc.less(instants, end)), False)
        )
    return chosen


def compare(query: ACQ, ours: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """Differences between staged rows and recomputed ones, for people; empty when they agree."""
    from spark_jobs.unshared import agrees, grain

    mine = {(row["window_start"], tuple(row["key"])): row for row in ours}
    theirs = {grain(query, row): row for row in expected}
    differences = [f"window {key} is missing" for key in sorted(theirs.keys() - mine.keys(), key=str)]
    differences += [f"window {key} should not exist" for key in sorted(mine.keys() - theirs.keys(), key=str)]
    for key in sorted(mine.keys() & theirs.keys(), key=str):
        for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
            value = mine[key][carrier][index]
            if mine[key]["error"] and value is None:
                continue
            if not agrees(output, value, theirs[key]):
                wanted = theirs[key][output.name]
                differences.append(f"window {key}: {output.name} is {value}, recomputed {wanted}")
    return differences
