"""Ways to answer the two queries of :mod:`tests.benchmarks.features` without Heddle.

| peer | update | backfill |
|---|---|---|
| DuckDB, filters | one statement, each aggregate with ``FILTER`` for its window | – |
| DuckDB, bands | events are grouped by the shortest window that has them, and these groups by customer | – |
| DuckDB, frames | – | cells of a day, under window frames |
| DuckDB, repeated; Polars | Polars: bands | cells of a day, each repeated for the instants of a window |
| Spark, one job | filters | cells of a day, each repeated for all instants; filters |
| Spark, a job a feature | a group-by of a window's events | ``window`` |
| hops | hops of 5 minutes, hours and days | hops of days |

Days that the windows of all instants have in common are made one cell before it is repeated.

Spark answers the backfill for a sample of customers, and a sample of features with a job each; its figures are scaled.
Of the backfill these are of windows up to 30 days only, so they are too low.

Hops are as Chronon's description has them: a window of at least 12 days ends with a complete day, one of at least 12
hours with a complete hour, one that is shorter with complete 5 minutes. At midnight such windows are exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numba
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.workload.instants import DAY
from tests.benchmarks.feature_queries import AGGREGATES, BEGIN, FIRST_DAY, HOUR, INSTANTS, STEP, QuerySet
from tests.benchmarks.peers import THREADS

Bounds = tuple[int, int]
"""Answered are the instants in (begin, end]."""

SAMPLED = 1_000
"""Customers for which Spark answers the backfill, about."""

FIRST = FIRST_DAY // DAY

LONGEST = 730

STATES = {
    **{"n": "sum", "total": "sum", "squares": "sum", "low": "min", "high": "max"},
    **{"earliest": "min_by", "latest": "max_by", "refunds": "sum", "refunded": "sum", "items": "sum"},
    "most_items": "max",
}
"""How the states of a cell are combined; ``earliest`` and ``latest`` by ``…_at``."""


class Peer(ABC):
    """A way to answer.

    ``is_exact``: its answers are compared; ``is_repeated``: it is measured in each round, else once; ``every``: of the
    backfill it answers every n-th customer.
    """

    title: str
    is_exact = True
    is_repeated = True
    every = 1

    def __init__(self, source: Path, keys: int) -> None:
        self.source, self.keys = source, keys

    def prepare(self, queries: QuerySet) -> None:  # noqa: B027
        """Store what the peer stores of the history, or warm it up."""

    def can(self, queries: QuerySet) -> bool:
        """Return whether it has a way to answer the query."""
        return True

    def scale(self, queries: QuerySet) -> float:
        """What its figures are multiplied by."""
        return self.every if queries.is_daily else 1.0

    @abstractmethod
    def answers(self, queries: QuerySet, bounds: Bounds) -> pa.Table | None:
        """The answers; None if it computes others than all of some customers."""


# --------------------------------------------------------------------------------------------------- SQL
class Dialect:
    """What SQL of DuckDB calls otherwise than that of Spark."""

    by, wide, micros = ("arg_min", "arg_max"), "HUGEINT", "epoch_us(ts)"

    def events(self, source: Path) -> str:
        return f"read_parquet('{source}/*.parquet')"


class SparkDialect(Dialect):
    by, wide, micros = ("min_by", "max_by"), "DECIMAL(19, 0)", "unix_micros(ts)"

    def events(self, source: Path) -> str:
        return f"parquet.`{source}`"


DUCKDB, SPARK = Dialect(), SparkDialect()


def native(dialect: Dialect, condition: str) -> dict[str, str]:
    """The 13 aggregates over the events of a condition."""
    first, last = dialect.by
    calls = AGGREGATES | {"earliest": f"{first}(cents, ts)", "latest": f"{last}(cents, ts)"}
    calls |= {"spread": "stddev_samp(cents)", "refunds": "count(*)", "refunded": "sum(cents)"}
    refunds = dict.fromkeys(("refunds", "refunded"), f"kind = 'refund' AND {condition}")
    return {name: f"{call} FILTER (WHERE {refunds.get(name, condition)})" for name, call in calls.items()}


def lifted(dialect: Dialect) -> str:
    """The states of the events of a cell."""
    first, last = dialect.by
    return f"""count(*) AS n, CAST(sum(cents) AS BIGINT) AS total, CAST(sum(cents * cents) AS BIGINT) AS squares,
        min(cents) AS low, max(cents) AS high, min(ts) AS earliest_at, {first}(cents, ts) AS earliest,
        max(ts) AS latest_at, {last}(cents, ts) AS latest, count(*) FILTER (WHERE kind = 'refund') AS refunds,
        CAST(sum(cents) FILTER (WHERE kind = 'refund') AS BIGINT) AS refunded, CAST(sum(items) AS BIGINT) AS items,
        max(items) AS most_items"""


def recombined(dialect: Dialect) -> str:
    """The states of some cells as those of one."""
    calls = []
    for name, how in STATES.items():
        if how.endswith("_by"):
            end = how.removesuffix("_by")
            by = dialect.by[end == "max"]
            calls.append(f"{end}({name}_at) AS {name}_at, {by}({name}, {name}_at) AS {name}")
        else:
            calls.append(f"CAST({how}({name}) AS BIGINT) AS {name}")
    return ", ".join(calls)


def lowered(dialect: Dialect, over: str) -> dict[str, str]:
    """The 13 aggregates from states. ``over``: behind each aggregate, ``FILTER (…)`` or ``OVER w``."""
    first, last = dialect.by
    n, total = f"sum(n){over}", f"sum(total){over}"
    wide = {name: f"CAST(sum({name}){over} AS {dialect.wide})" for name in ("n", "total", "squares")}
    square = f"{wide['n']} * {wide['squares']} - {wide['total']} * {wide['total']}"
    return {
        "n": f"coalesce({n}, 0)",
        "total": total,
        "mean": f"{total} / nullif({n}, 0)",
        "low": f"min(low){over}",
        "high": f"max(high){over}",
        "spread": f"CASE WHEN {n} > 1 THEN sqrt(CAST({square} AS DOUBLE) / ({n} * ({n} - 1))) END",
        "earliest": f"{first}(earliest, earliest_at){over}",
        "latest": f"{last}(latest, latest_at){over}",
        "refunds": f"coalesce(sum(refunds){over}, 0)",
        "refunded": f"sum(refunded){over}",
        "items": f"sum(items){over}",
        "mean_items": f"sum(items){over} / nullif({n}, 0)",
        "most_items": f"max(most_items){over}",
    }


def named(windows: Mapping[str, Mapping[str, str]]) -> str:
    """A select list of the outputs; by window and aggregate."""
    return ", ".join(f"{windows[window][name]} AS {name}_{window}" for name in AGGREGATES for window in windows)


def banded(windows: Sequence[str], cells: str, dialect: Dialect) -> str:
    """Answers from cells with a band; the band of a cell is the number of the shortest window that has it."""
    outputs = named({window: lowered(dialect, f" FILTER (WHERE band <= {at})") for at, window in enumerate(windows)})
    return f"SELECT customer, {outputs} FROM ({cells}) AS cells GROUP BY customer"


def band_of(time: str, starts: Sequence[int]) -> str:
    """The number of the first window that begins at a time or before it."""
    return f"CASE {' '.join(f'WHEN {time} >= {start} THEN {at}' for at, start in enumerate(starts))} END"


def instant_sql(instant: int) -> str:
    """An instant as a timestamp, which engines compare with statistics of files."""
    return f"TIMESTAMP '{np.datetime64(instant, 'us')}+00:00'"


def cells_of_days(dialect: Dialect, source: Path, where: str = "") -> str:
    """The cells of the days of all windows of the backfill."""
    span = f"ts >= {instant_sql((FIRST + 1 - LONGEST) * DAY)} AND ts < {instant_sql((FIRST + INSTANTS) * DAY)}"
    day = f"CAST(floor({dialect.micros} / {DAY}) AS BIGINT)"
    return f"""SELECT customer, {day} AS day, {lifted(dialect)} FROM {dialect.events(source)}
        WHERE {span}{where} GROUP BY customer, {day}"""


def started(table: pa.Table, queries: QuerySet, bounds: Bounds) -> pa.Table:
    """Rows with the start of their windows, by the number of the instant or of one instant."""
    longest = max(queries.windows.values())
    if queries.is_daily:
        numbers = table["i"].cast(pa.int64()).to_numpy()
        return table.drop_columns(["i"]).append_column("window_start", [FIRST_DAY + numbers * DAY - longest])
    return table.append_column("window_start", [np.full(len(table), bounds[1] - longest)])


class DuckDB(Peer):
    """A connection of its own."""

    def __init__(self, source: Path, keys: int) -> None:
        super().__init__(source, keys)
        self.connection = duckdb.connect(config={"threads": THREADS})
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("SET preserve_insertion_order = false")

    def table(self, statement: str) -> pa.Table:
        return self.connection.sql(statement).to_arrow_table()


class DuckDBFilters(DuckDB):
    title = "DuckDB, filters"

    def can(self, queries: QuerySet) -> bool:
        return not queries.is_daily

    def answers(self, queries: QuerySet, bounds: Bounds) -> pa.Table:
        return started(self.table(filtered(DUCKDB, self.source, queries, bounds[1])), queries, bounds)


def filtered(dialect: Dialect, source: Path, queries: QuerySet, instant: int) -> str:
    """The answers of an instant in one statement."""
    starts = {window: instant_sql(instant - length) for window, length in queries.windows.items()}
    outputs = named({window: native(dialect, f"ts >= {start}") for window, start in starts.items()})
    span = f"ts >= {[*starts.values()][-1]} AND ts < {instant_sql(instant)}"
    return f"SELECT customer, {outputs} FROM {dialect.events(source)} WHERE {span} GROUP BY customer"


class DuckDBBands(DuckDB):
    title = "DuckDB, bands"

    def can(self, queries: QuerySet) -> bool:
        return not queries.is_daily

    def answers(self, queries: QuerySet, bounds: Bounds) -> pa.Table:
        starts = [bounds[1] - length for length in queries.windows.values()]
        span = f"ts >= {instant_sql(starts[-1])} AND ts < {instant_sql(bounds[1])}"
        band = band_of(DUCKDB.micros, starts)
        cells = f"""SELECT customer, {band} AS band, {lifted(DUCKDB)} FROM {DUCKDB.events(self.source)}
            WHERE {span} GROUP BY customer, band"""
        return started(self.table(banded(list(queries.windows), cells, DUCKDB)), queries, bounds)


class DuckDBFrames(DuckDB):
    title = "DuckDB, frames"
    is_repeated = False

    def can(self, queries: QuerySet) -> bool:
        return queries.is_daily

    def answers(self, queries: QuerySet, bounds: Bounds) -> pa.Table:
        # a row for each instant, on the last day of its windows
        days = f"SELECT unnest(range({FIRST}, {FIRST + INSTANTS})) AS day"
        outputs = named({window: lowered(DUCKDB, f" OVER {window}") for window in queries.windows})
        frames = ", ".join(
            f"{window} AS (PARTITION BY customer ORDER BY day "
            f"RANGE BETWEEN {length // DAY - 1} PRECEDING AND CURRENT ROW)"
            for window, length in queries.windows.items()
        )
        table = self.table(f"""
            WITH cells AS ({cells_of_days(DUCKDB, self.source)}),
            marked AS (SELECT *, FALSE AS is_instant FROM cells UNION ALL BY NAME
                SELECT customer, day, TRUE AS is_instant FROM (SELECT DISTINCT customer FROM cells), ({days}))
            SELECT customer, i, COLUMNS(* EXCLUDE (customer, i, is_instant)) FROM (
                SELECT customer, day - {FIRST} + 1 AS i, is_instant, {outputs} FROM marked WINDOW {frames})
            WHERE is_instant AND n_d730 > 0""")
        return started(table, queries, bounds)


class DuckDBRepeated(DuckDB):
    title = "DuckDB, repeated"

    def can(self, queries: QuerySet) -> bool:
        return queries.is_daily

    def answers(self, queries: QuerySet, bounds: Bounds) -> pa.Table:
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE cells AS {cells_of_days(DUCKDB, self.source)}")
        for window, length in queries.windows.items():
            width = length // DAY
            outputs = ", ".join(f"{call} AS {name}_{window}" for name, call in lowered(DUCKDB, "").items())
            instants = f"unnest(range(greatest(1, day - {FIRST - 1}), least({INSTANTS}, day - {FIRST - width}) + 1))"
            inner, begin, end = core(width)
            rows = f"SELECT * EXCLUDE (day), {instants} AS i FROM cells WHERE day >= {begin} AND day < {end}"
            if inner:
                inside = f"day >= {inner[0]} AND day < {inner[1]}"
                one = f"SELECT customer, {recombined(DUCKDB)} FROM cells WHERE {inside} GROUP BY customer"
                every = f"SELECT *, unnest(range(1, {INSTANTS + 1})) AS i FROM ({one})"
                rows += f" AND NOT ({inside}) UNION ALL BY NAME {every}"
            self.connection.execute(f"""CREATE OR REPLACE TEMP TABLE {window} AS
                SELECT customer, i, {outputs} FROM ({rows}) GROUP BY customer, i""")
        *shorter, longest = queries.windows
        joined = " ".join(f"LEFT JOIN {window} USING (customer, i)" for window in shorter)
        counts = [f"{name}_{window}" for window in shorter for name in ("n", "refunds")]
        replaced = ", ".join(f"coalesce({name}, 0) AS {name}" for name in counts)
        return started(self.table(f"SELECT * REPLACE ({replaced}) FROM {longest} {joined}"), queries, bounds)


def core(width: int) -> tuple[Bounds | None, int, int]:
    """The days [begin, end) that the windows of all instants of the backfill have, if any; the first day of any of
    them, and the end of the last. ``width``: days."""
    begin, end = FIRST + INSTANTS - width, FIRST + 1
    return ((begin, end) if begin < end else None), FIRST + 1 - width, FIRST + INSTANTS


# ------------------------------------------------------------------------------------------------ Polars
SHIFT = 100_000
"""More than any amount: a moment and an amount are one number of 63 bits, which ascends by the moment."""


class Polars(Peer):
    """Lazy frames on the streaming engine."""

    title = "Polars"

    def answers(self, queries: QuerySet, bounds: Bounds) -> pa.Table:
        events = pl.scan_parquet(f"{self.source}/*.parquet")
        return started((self._backfill if queries.is_daily else self._update)(events, queries, bounds), queries, bounds)

    def _update(self, events: pl.LazyFrame, queries: QuerySet, bounds: Bounds) -> pa.Table:
        starts = [bounds[1] - length for length in queries.windows.values()]
        events = events.filter(_moment(starts[-1]) <= pl.col("ts"), pl.col("ts") < _moment(bounds[1]))
        band = pl.lit(len(starts) - 1, pl.Int32)
        for at, start in reversed(list(enumerate(starts[:-1]))):
            band = pl.when(pl.col("ts") >= _moment(start)).then(pl.lit(at, pl.Int32)).otherwise(band)
        cells = events.group_by("customer", band.alias("band")).agg(**_lifts())
        outputs = [
            call.alias(f"{name}_{window}")
            for at, window in enumerate(queries.windows)
            for name, call in _lowers(pl.col("band") <= at).items()
        ]
        return cells.group_by("customer").agg(outputs).collect(engine="streaming").to_arrow()

    def _backfill(self, events: pl.LazyFrame, queries: QuerySet, bounds: Bounds) -> pa.Table:
        begin, end = (FIRST + 1 - LONGEST) * DAY, (FIRST + INSTANTS) * DAY
        events = events.filter(_moment(begin) <= pl.col("ts"), pl.col("ts") < _moment(end))
        day = pl.col("ts").dt.epoch("us") // DAY
        cells = events.group_by("customer", day.alias("day")).agg(**_lifts()).collect(engine="streaming")
        answers: pl.LazyFrame | None = None
        for window, length in reversed([*queries.windows.items()]):
            width = length // DAY
            inner, first, last = core(width)
            rows = cells.lazy().filter(pl.col("day") >= first, pl.col("day") < last)
            low = pl.max_horizontal(pl.lit(1), pl.col("day") - (FIRST - 1))
            high = pl.min_horizontal(pl.lit(INSTANTS), pl.col("day") - (FIRST - width)) + 1
            if inner:
                inside = (pl.col("day") >= inner[0]) & (pl.col("day") < inner[1])
                one = rows.filter(inside).group_by("customer").agg(**_recombines())
                one = one.with_columns(i=pl.int_ranges(1, INSTANTS + 1))
                rows = rows.filter(~inside).with_columns(i=pl.int_ranges(low, high)).drop("day")
                rows = pl.concat([rows, one.select(rows.collect_schema().names())])
            else:
                rows = rows.with_columns(i=pl.int_ranges(low, high)).drop("day")
            outputs = [call.alias(f"{name}_{window}") for name, call in _lowers(pl.lit(True)).items()]
            table = rows.explode("i").group_by("customer", "i").agg(outputs)
            answers = table if answers is None else answers.join(table, on=["customer", "i"], how="left")
        assert answers is not None
        counts = [f"{name}_{window}" for window in queries.windows for name in ("n", "refunds")]
        return answers.with_columns(pl.col(counts).fill_null(0)).collect(engine="streaming").to_arrow()


def _moment(instant: int) -> pl.Expr:
    return pl.lit(instant).cast(pl.Datetime("us", "UTC"))


def _lifts() -> dict[str, pl.Expr]:
    cents, refund = pl.col("cents"), pl.col("kind") == "refund"
    packed = (pl.col("ts").dt.epoch("us") - BEGIN) * SHIFT + cents
    return {
        "n": pl.len().cast(pl.Int64),
        "total": cents.sum(),
        "squares": (cents * cents).sum(),
        "low": cents.min(),
        "high": cents.max(),
        "earliest": packed.min(),
        "latest": packed.max(),
        "refunds": refund.cast(pl.Int64).sum(),
        "refunded": pl.when(refund).then(cents).otherwise(0).sum(),
        "items": pl.col("items").sum(),
        "most_items": pl.col("items").max(),
    }


def _recombines() -> dict[str, pl.Expr]:
    return {name: getattr(pl.col(name), how.removesuffix("_by"))() for name, how in STATES.items()}


def _lowers(condition: pl.Expr) -> dict[str, pl.Expr]:
    states = {name: getattr(pl.col(name).filter(condition), how.removesuffix("_by"))() for name, how in STATES.items()}
    n, total = states["n"], states["total"]
    is_some = n > 0
    square = n.cast(pl.Int128) * states["squares"].cast(pl.Int128) - total.cast(pl.Int128) * total.cast(pl.Int128)
    values = {
        "total": total,
        "mean": total / n,
        "earliest": states["earliest"] % SHIFT,
        "latest": states["latest"] % SHIFT,
        "items": states["items"],
        "mean_items": states["items"] / n,
    }
    return {
        "n": n,
        "refunds": states["refunds"],
        "refunded": pl.when(states["refunds"] > 0).then(states["refunded"]),
        "spread": pl.when(n > 1).then((square.cast(pl.Float64) / (n * (n - 1))).sqrt()),
        **{name: states[name] for name in ("low", "high", "most_items")},
        **{name: pl.when(is_some).then(value) for name, value in values.items()},
    }


# ------------------------------------------------------------------------------------------------- Spark
class Spark(Peer):
    is_repeated = False

    def __init__(self, source: Path, keys: int, session: Any) -> None:
        super().__init__(source, keys)
        self.session = session
        self.every = max(1, keys // SAMPLED)

    def prepare(self, queries: QuerySet) -> None:
        end = FIRST_DAY + INSTANTS * DAY
        self.answers(queries, (FIRST_DAY, end) if queries.is_daily else (end, end + STEP))


class SparkOneJob(Spark):
    title = "Spark, one job"

    def answers(self, queries: QuerySet, bounds: Bounds) -> pa.Table:
        if not queries.is_daily:
            statement = filtered(SPARK, self.source, queries, bounds[1])
            return started(self.session.sql(statement).toArrow(), queries, bounds)
        outputs = named(
            {
                window: lowered(SPARK, f" FILTER (WHERE day >= {FIRST - length // DAY} + i)")
                for window, length in queries.windows.items()
            }
        )
        cells = cells_of_days(SPARK, self.source, f" AND customer % {self.every} = 0")
        instants = f"explode(sequence(greatest(1, day - {FIRST - 1}), least({INSTANTS}, day - {FIRST - LONGEST})))"
        rows = f"SELECT *, {instants} AS i FROM ({cells}) AS cells"
        statement = f"SELECT customer, i, {outputs} FROM ({rows}) AS repeated GROUP BY customer, i"
        return started(self.session.sql(statement).toArrow(), queries, bounds)


class SparkJobs(Spark):
    title = "Spark, a job a feature"

    def features(self, queries: QuerySet) -> dict[str, str]:
        """The sample: an aggregate of each window, of the backfill up to 30 days."""
        windows = [window for window, length in queries.windows.items() if not queries.is_daily or length <= 30 * DAY]
        names = [name for name in AGGREGATES if name not in ("refunds", "refunded")]
        return {window: names[at % len(names)] for at, window in enumerate(windows)}

    def scale(self, queries: QuerySet) -> float:
        features = len(AGGREGATES) * len(queries.windows) / len(self.features(queries))
        return super().scale(queries) * features

    def answers(self, queries: QuerySet, bounds: Bounds) -> None:
        begin, end = bounds
        for window, name in self.features(queries).items():
            length = queries.windows[window]
            call = native(SPARK, "TRUE")[name]
            span = f"ts >= {instant_sql(end - length)} AND ts < {instant_sql(end)}"
            if queries.is_daily:
                span = f"ts >= {instant_sql(begin + DAY - length)} AND ts < {instant_sql(end)}"
                hop = f"window(ts, '{length // DAY} days', '1 day')"
                due = f"w.end > {instant_sql(begin)} AND w.end <= {instant_sql(end)}"
                statement = f"""SELECT * FROM (SELECT customer, {hop} AS w, {call} AS feature
                    FROM {SPARK.events(self.source)} WHERE {span} AND customer % {self.every} = 0
                    GROUP BY customer, {hop}) AS hopping WHERE {due}"""
            else:
                rows = f"FROM {SPARK.events(self.source)} WHERE {span}"
                statement = f"SELECT customer, {call} AS feature {rows} GROUP BY customer"
            self.session.sql(statement).toArrow()


# -------------------------------------------------------------------------------------------------- hops
class Hops(DuckDB):
    """Hops are tables of DuckDB; the loop over the hops of a window of the backfill is compiled."""

    title = "hops"
    is_exact = False

    def prepare(self, queries: QuerySet) -> None:
        events = DUCKDB.events(self.source)
        # the loop needs the order that is asked for
        self.connection.execute("SET preserve_insertion_order = true")
        if queries.is_daily:
            self.connection.execute(f"CREATE OR REPLACE TABLE days AS {cells_of_days(DUCKDB, self.source)}")
            return
        for name, width in (("fives", STEP), ("hours", HOUR), ("days", DAY)):
            begin = f"epoch_us(ts) // {width} * {width}"
            recently = f"WHERE ts >= (SELECT max(ts) FROM {events}) - INTERVAL 12 HOURS" if name == "fives" else ""
            self.connection.execute(f"""CREATE OR REPLACE TABLE {name} AS
                SELECT customer, {begin} AS hop, {lifted(DUCKDB)} FROM {events} {recently}
                GROUP BY customer, {begin}""")

    def answers(self, queries: QuerySet, bounds: Bounds) -> pa.Table:
        return started(self._days(queries) if queries.is_daily else self._update(queries, bounds), queries, bounds)

    def _update(self, queries: QuerySet, bounds: Bounds) -> pa.Table:
        begin, end = bounds
        span = f"ts >= {instant_sql(begin)} AND ts < {instant_sql(end)}"
        self.connection.execute(f"""INSERT INTO fives SELECT customer, {begin} AS hop, {lifted(DUCKDB)}
            FROM {DUCKDB.events(self.source)} WHERE {span} GROUP BY customer""")
        starts = [hop_start(end, length) for length in queries.windows.values()]
        by_five = (end - 6 * HOUR) // HOUR * HOUR
        by_hour = (end - 7 * DAY) // DAY * DAY
        parts = (("fives", by_five, end), ("hours", by_hour, by_five), ("days", starts[-1], by_hour))
        selects = (f"SELECT * FROM {name} WHERE hop >= {low} AND hop < {high}" for name, low, high in parts)
        rows = " UNION ALL ".join(selects)
        cells = f"""SELECT customer, {band_of("hop", starts)} AS band, {recombined(DUCKDB)} FROM ({rows})
            GROUP BY customer, band"""
        return self.table(banded(list(queries.windows), cells, DUCKDB))

    def _days(self, queries: QuerySet) -> pa.Table:
        table = self.table("SELECT * FROM days ORDER BY customer, day")
        times = {f"{name}_at": table[f"{name}_at"].cast(pa.int64()) for name in ("earliest", "latest")}
        columns = {name: times.get(name, table[name]).fill_null(0).to_numpy() for name in table.column_names}
        customers, firsts = np.unique(columns["customer"], return_index=True)
        offsets = np.append(firsts, len(table))
        states = np.stack([columns[name].astype(np.int64) for name in HOP_STATES], axis=1)
        outputs: dict[str, Any] = {}
        for window, length in queries.windows.items():
            merged = merge_hops(offsets, columns["day"].astype(np.int64), states, length // DAY, FIRST, INSTANTS)
            outputs |= {f"{name}_{window}": values for name, values in _hop_outputs(merged).items()}
        grid = {"customer": np.repeat(customers, INSTANTS), "i": np.tile(np.arange(1, INSTANTS + 1), len(customers))}
        rows = pa.table(grid | outputs)
        return rows.filter(pa.array(rows[f"n_{window}"].to_numpy() > 0))


def hop_start(instant: int, length: int) -> int:
    """The start of a window that ends with a complete hop."""
    hop = DAY if length >= 12 * DAY else HOUR if length >= 12 * HOUR else STEP
    return (instant - length) // hop * hop


HOP_STATES = (
    *("n", "total", "squares", "refunds", "refunded", "items"),
    *("low", "high", "most_items", "earliest", "latest"),
)
"""The states of a hop by column: sums, extremes, and the first and the last amount; hops ascend by day."""


@numba.njit(cache=True)
def merge_hops(offsets, days, states, width, first, instants):
    """Merge the hops under each window of a width (days). (customers * instants, states)."""
    out = np.zeros((len(offsets) - 1) * instants * states.shape[1], np.int64).reshape(-1, states.shape[1])
    for customer in range(len(offsets) - 1):
        begin, end = offsets[customer], offsets[customer + 1]
        for instant in range(instants):
            while begin < end and days[begin] < first + instant + 1 - width:
                begin += 1
            row = out[customer * instants + instant]
            for at in range(begin, end):
                if days[at] > first + instant:
                    break
                hop = states[at]
                if row[0] == 0:
                    row[:] = hop
                    continue
                for state in range(6):
                    row[state] += hop[state]
                row[6] = min(row[6], hop[6])
                row[7] = max(row[7], hop[7])
                row[8] = max(row[8], hop[8])
                row[10] = hop[10]
    return out


def _hop_outputs(merged: NDArray[np.int64]) -> dict[str, Any]:
    states = dict(zip(HOP_STATES, merged.T, strict=True))
    n, is_none = states["n"], states["n"] == 0
    with np.errstate(invalid="ignore", divide="ignore"):
        total = states["total"].astype(np.float64)
        # amounts have at most 17 bits: products of sums of some thousand have no more than 63
        square = (n * states["squares"] - states["total"] ** 2).astype(np.float64)
        doubles = {"mean": total / n, "mean_items": states["items"] / n, "spread": np.sqrt(square / (n * (n - 1)))}
    longs = {name: states[name] for name in ("total", "low", "high", "earliest", "latest", "items", "most_items")}
    return {
        "n": n,
        "refunds": states["refunds"],
        "refunded": pa.array(states["refunded"], mask=states["refunds"] == 0),
        **{name: pa.array(values, mask=is_none) for name, values in longs.items()},
        **{name: pa.array(values, mask=n < (2 if name == "spread" else 1)) for name, values in doubles.items()},
    }


@contextmanager
def peers_of(source: Path, keys: int, with_spark: bool) -> Iterator[list[Peer]]:
    """All peers over the events in a folder."""
    with ExitStack() as stack:
        ways = (DuckDBFilters, DuckDBBands, DuckDBFrames, DuckDBRepeated, Polars, Hops)
        peers: list[Peer] = [way(source, keys) for way in ways]
        if with_spark:
            from spark_jobs.engine.session import start_session

            session = start_session("features", quick=False)
            stack.callback(session.stop)
            peers += [SparkOneJob(source, keys, session), SparkJobs(source, keys, session)]
        yield peers
