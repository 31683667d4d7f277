"""Relations as views of Spark: of a session, or of a catalogue that stays."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from sqlglot import exp

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.results.current_dimensions import current_dimensions, make_missing, table_of
from spark_jobs.results.relations import relations
from spark_jobs.results.views import (
    chosen_names,
    created,
    dimension_view_names,
    dimension_views,
    results_of,
    select,
    table_named,
    view_names,
)
from spark_jobs.store.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = "heddle results"
"""The session's view of the stored rows; no query can be called so."""


def register(spark: SparkSession, warehouse: Warehouse, queries: Iterable[str] | None = None) -> list[str]:
    """Make every query (or those of ``queries``) a temporary view of a session; returns the names of the views.
    Without ``queries`` it also makes views of the dimensions that queries join, as a run used them last
    (:func:`~spark_jobs.results.views.dimension_view_names`).

    All are of one version of the results, the newest now; to see later answers, register again. A dot or dash in a
    query's name is an underscore in its view's. Raises HDL-507 for a query that no plan has known.
    """
    current = warehouse.table("results")
    known = relations(warehouse, current)
    names = view_names(known, "spark")
    rows = spark.read.format("delta").option("versionAsOf", current.version()).load(warehouse.path("results"))
    if "fingerprint" not in rows.columns:
        rows = rows.selectExpr("*", "CAST(NULL AS STRING) AS fingerprint")
    rows.createOrReplaceTempView(f"`{RESULTS}`")
    source = exp.Table(this=exp.to_identifier(RESULTS, quoted=True))
    chosen = chosen_names(known, queries)
    for query in chosen:
        frame = spark.sql(select(known[query], source, "spark").sql("spark"))
        frame.createOrReplaceTempView(f"`{names[query]}`")
    made = [names[query] for query in chosen]
    dimensions = [] if queries is not None else [dimension.name for dimension in current_dimensions(warehouse)]
    for dimension, views in dimension_view_names(dimensions, names.values(), "spark").items():
        version, path = warehouse.version(table_of(dimension)), warehouse.path(table_of(dimension))
        frame = spark.read.format("delta").option("versionAsOf", version).load(path)
        for view in views:
            frame.createOrReplaceTempView(f"`{view}`")
        made += views
    return made


def create_views(spark: SparkSession, warehouse: Warehouse, place: str) -> list[str]:
    """Create or replace the view of every query, and those of the dimensions that queries join, in ``place``: an
    existing schema, or a catalogue and a schema. Returns their names.

    They read results and dimensions as they are at the time of a query. Views of queries that were removed stay, with
    all that they ever answered; none is dropped. Raises HDL-623 for a place that is no name.
    """
    known, source, schema = relations(warehouse), results_of(warehouse, "spark"), table_named(place, "spark")
    names = view_names(known, "spark")
    for query in known:
        spark.sql(created(names[query], select(known[query], source, "spark"), schema).sql("spark"))
    made = [names[query] for query in known]
    # a reader without write access gets the views of the tables that exist
    with suppress(HeddleError, DeltaError, OSError):
        make_missing(warehouse)
    for _, view, statement in dimension_views(warehouse, known, "spark", schema):
        spark.sql(statement)
        made.append(view)
    return made
