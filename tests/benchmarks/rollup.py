"""Rollups in every engine: what they store of a day's events, and how they answer queries from that.

A :class:`Family` is all queries of one filter and group-by. Its rollup groups the events of a day once, at the greatest
common divisor of all ranges and slides, with every state that its queries need, and is stored as Parquet, a file a day.
Coarser rollups (*levels*) are made from finer ones. The queries of one window (a :class:`Unit`) can be answered
together. The ways to answer one: ``expanded``, each granule repeated for the windows that hold it; ``framed``, frames
over a dense grid; in Polars also ``dynamic``, its ``group_by_dynamic``.

:mod:`tests.benchmarks.rollup_days` chooses among them and measures.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pyarrow as pa

from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, LONG
from tests.benchmarks.engines import ClickHouse, DataFusion, Dialect, DuckDB, Engine, Statements
from tests.benchmarks.peers import Interval, Setting
from tests.benchmarks.query_sql import RECIPES, Fragments, answer_of, groups_of, sql, states_of
from tests.benchmarks.trades import DAY_START
from tests.benchmarks.workers import cpu_seconds, own_processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {"long": ("BIGINT", pa.int64()), "double": ("DOUBLE", pa.float64())}
"""The types of outputs and states, as SQL and in files."""


# ------------------------------------------------------------------------------- what is answered from what
@dataclass(frozen=True, eq=False)
class Family:
    """Queries of one filter and group-by, which one rollup answers."""

    name: str
    queries: tuple[ACQ, ...]

    @cached_property
    def merged(self) -> ACQ:
        """A query with the outputs of all."""
        return _merged(self.queries)

    @cached_property
    def granule(self) -> int:
        """Microseconds of the rollup's granules: the greatest that no window cuts."""
        return math.gcd(*(granule_of(query) for query in self.queries))

    @cached_property
    def levels(self) -> dict[int, int]:
        """The coarser granules of its windows, finest first, each with the coarsest finer one that makes it."""
        finer_by_granule: dict[int, int] = {}
        for granule in sorted({granule_of(query) for query in self.queries} - {self.granule}):
            finer_by_granule[granule] = max(
                finer for finer in (self.granule, *finer_by_granule) if granule % finer == 0
            )
        return finer_by_granule

    @cached_property
    def names(self) -> dict[str, str]:
        """The columns of its states, by their SQL over events."""
        return {lift: f"state{number}" for number, lift in enumerate(states_of(self.queries))}

    @cached_property
    def combine(self) -> dict[str, str]:
        """How two values of each state's column combine."""
        return {self.names[lift]: how for lift, how in states_of(self.queries).items()}

    @cached_property
    def types(self) -> dict[str, str]:
        """The SQL types of its states' columns. Some engines add integers up to other types."""
        type_by_column = {}
        for output in (output for query in self.queries for output in query.outputs):
            argument = "*" if output.argument is None else sql(output.argument)
            for lift, _ in RECIPES[output.function].states:
                type = LONG if lift.startswith("count") else output.argument_type
                assert type is not None
                type_by_column[self.names[lift.format(argument)]] = TYPES[type.name][0]
        return type_by_column

    @property
    def reach(self) -> int:
        return max(query.window.range for query in self.queries)

    def table(self, granule: int) -> str:
        return f"{self.name}_{granule}"


class Unit(NamedTuple):
    """Queries of a family that have one window and are answered together."""

    family: Family
    queries: tuple[ACQ, ...]

    @property
    def states(self) -> dict[str, str]:
        """How the columns of the states that it needs combine."""
        names = (self.family.names[lift] for lift in states_of(self.queries))
        return {name: self.family.combine[name] for name in names}

    @property
    def granule(self) -> int:
        return granule_of(self.queries[0])

    def cuts(self, granule: int) -> Fragments:
        """The window in granules."""
        window = self.queries[0].window
        return Fragments(window.slide // granule, window.range // granule, window.slide, None)


def granule_of(query: ACQ) -> int:
    """The coarsest granule that cuts at the edges of a query's windows."""
    return math.gcd(query.window.range, query.window.slide)


def _merged(queries: Sequence[ACQ]) -> ACQ:
    outputs = {(output.function, output.argument): output for query in queries for output in query.outputs}
    return replace(queries[0], outputs=tuple(outputs.values()))


def families_of(queries: Sequence[ACQ]) -> list[Family]:
    members_by_key: dict[Any, list[ACQ]] = {}
    for query in queries:
        members_by_key.setdefault((query.filter, query.group_by), []).append(query)
    return [Family(f"family{number}", tuple(members)) for number, members in enumerate(members_by_key.values())]


def units_of(families: Sequence[Family], batch: str) -> list[Unit]:
    """All queries, ``batch`` (``query``, ``window``) by batch."""
    queries_by_key: dict[Any, list[ACQ]] = {}
    for family in families:
        for query in family.queries:
            apart = (query.window.range, query.window.slide) if batch == "window" else query.name
            queries_by_key.setdefault((family.name, apart), []).append(query)
    known = {family.name: family for family in families}
    return [Unit(known[name], tuple(queries)) for (name, _), queries in queries_by_key.items()]


class Way(NamedTuple):
    """How a unit is answered: from which granule, and how."""

    granule: int
    how: str


@dataclass(frozen=True)
class Tuning:
    """How a family is answered: its units with their ways; ``levels``: its rollup is rolled up further."""

    family: Family
    levels: bool
    units: Mapping[Unit, Way]

    @property
    def dense(self) -> list[int]:
        """The granules of the tables that frames go over."""
        return sorted({way.granule for way in self.units.values() if way.how == "framed"})


class Day(NamedTuple):
    """A day's events, and the folder that keeps rollups: a folder a family, a file a day."""

    number: int
    events: Path
    store: Path

    @property
    def interval(self) -> Interval:
        begin = DAY_START + self.number * DAY
        return begin, begin + DAY

    def stored(self, family: Family) -> list[Path]:
        """The family's files of the days that its windows reach back to, this one last."""
        days = range(max(0, self.number - -(-family.reach // DAY)), self.number + 1)
        return [self.store / family.name / f"day-{number}.parquet" for number in days]

    def first(self, family: Family) -> int:
        """Of the first granule that a window which ends in the day can reach."""
        return (self.interval[0] - family.reach) // family.granule


# ------------------------------------------------------------------------------------------------ engines
class Rollup(Engine):
    """An engine that answers from rollups. What follows are statements in its language, but for :meth:`refresh`."""

    ways: tuple[str, ...] = ("expanded", "framed")
    prelude: tuple[str, ...] = ()
    null_columns: frozenset[str] = frozenset()
    """Columns of the stream that may be null; group columns are not."""
    cold_trials = 0
    """Trials that only warm it up."""

    @abstractmethod
    def build(self, family: Family, day: Day) -> list[str]:
        """Group the day's events and store them; then load what the day's windows reach."""

    @abstractmethod
    def level(self, family: Family, granule: int, finer: int) -> list[str]:
        """Roll a table up further."""

    @abstractmethod
    def densify(self, family: Family, granule: int) -> list[str]:
        """Make a table with a row for each granule and group of a table."""

    @abstractmethod
    def answers(self, unit: Unit, way: Way, folder: Path) -> list[str]:
        """Write the answers of a unit's queries into a folder."""

    @abstractmethod
    def forget(self, family: Family) -> list[str]:
        """Remove its tables."""

    def begin(self) -> None:
        """What is set once, and not counted."""
        self.run(self.prelude)

    def statement(self, query: ACQ, way: str) -> str:
        raise TypeError(f"a rollup answers all queries of a workload, not only {query.name}")

    def run(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self.worker.run(statement)

    def set_day(self, day: Day) -> None:
        self.interval = day.interval
        self.stream = replace(self.stream, source=replace(self.stream.source, path=str(day.events)))

    def refresh(self, tunings: Sequence[Tuning], day: Day, folder: Path) -> None:
        """Everything that a day costs: rollups built and stored, answers written into a folder."""
        self.set_day(day)
        for tuning in tunings:
            family = tuning.family
            self.run(self.build(family, day))
            for granule, finer in family.levels.items() if tuning.levels else ():
                self.run(self.level(family, granule, finer))
            for granule in tuning.dense:
                self.run(self.densify(family, granule))
            for unit, way in tuning.units.items():
                self.run(self.answers(unit, way, folder))
            self.run(self.forget(family))


@dataclass(frozen=True)
class Writing:
    """How an engine writes what a rollup needs besides its :class:`Dialect`. ``table``: a table made of a query;
    ``file``: a Parquet file of a query; ``stored``: the rows of such a file; ``instant``: a time of microseconds;
    ``key``: a group column in the form that is grouped by cheaply; ``text``: such a column as it is written."""

    table: tuple[str, ...]
    file: str
    stored: str
    instant: str
    drop: tuple[str, ...] = ("DROP TABLE IF EXISTS {}",)
    key: str = "{0}"
    text: str = "{0}"


class SqlRollup(Rollup, Statements):
    writing: Writing

    def build(self, family: Family, day: Day) -> list[str]:
        *_, newest = stored = day.stored(family)
        cuts = Fragments(1, 1, family.granule, None)
        grouped, _, _ = self.fragments(family.merged, cuts)
        groups = groups_of(family.merged)
        states = [f"CAST({name} AS {type}) AS {name}" for name, type in family.types.items()]
        columns = ", ".join(["fragment", *(self.writing.key.format(name) for name in groups), *family.types])
        rows = " UNION ALL ".join(
            f"SELECT {columns} FROM {self.writing.stored.format(file)}"
            + (f" WHERE fragment >= {day.first(family)}" if file is not newest else "")
            for file in stored
        )
        return [
            self.writing.file.format(
                newest, f"SELECT {', '.join(['fragment', *groups, *states])} FROM ({grouped}) AS lifted"
            ),
            *self._made(family.table(family.granule), rows),
        ]

    def level(self, family: Family, granule: int, finer: int) -> list[str]:
        keys = ["fragment", *groups_of(family.merged)]
        coarser = f"fragment {self.dialect.divide} {granule // finer} AS coarser"
        rows = f"SELECT {', '.join([coarser, *groups_of(family.merged), *family.types])} FROM {family.table(finer)}"
        states = [f"CAST({how}({name}) AS {family.types[name]}) AS {name}" for name, how in family.combine.items()]
        columns = ["coarser AS fragment", *keys[1:], *states]
        grouped = f"SELECT {', '.join(columns)} FROM ({rows}) AS cut GROUP BY {', '.join(['coarser', *keys[1:]])}"
        return self._made(family.table(granule), grouped)

    def densify(self, family: Family, granule: int) -> list[str]:
        begin, end = self.interval
        dense = self.dense(family.merged, (begin - family.reach) // granule, -(-end // granule))
        rows = f"WITH grouped AS (SELECT * FROM {family.table(granule)}) {dense}"
        return self._made(f"{family.table(granule)}_dense", rows)

    def answers(self, unit: Unit, way: Way, folder: Path) -> list[str]:
        query, cuts, table = unit.queries[0], unit.cuts(way.granule), unit.family.table(way.granule)
        columns = ", ".join(["fragment", *groups_of(query), *unit.states])
        if way.how == "framed":
            source = f"dense AS (SELECT {columns}, present FROM {table}_dense)"
            windows = self.framed_windows(query, cuts, unit.states)
        else:
            source = f"grouped AS (SELECT {columns} FROM {table})"
            windows = self.expanded_windows(query, cuts, unit.states)
        if len(unit.queries) == 1:
            rows = f"WITH {source}, {windows} SELECT {self._lowered(unit, query)} FROM combined"
            return [self.writing.file.format(folder / f"{query.name}.parquet", rows)]
        window_columns = ", ".join(["k", *groups_of(query), *unit.states])
        return [
            *self._made("windows", f"WITH {source}, {windows} SELECT {window_columns} FROM combined"),
            *(
                self.writing.file.format(
                    folder / f"{query.name}.parquet", f"SELECT {self._lowered(unit, query)} FROM windows"
                )
                for query in unit.queries
            ),
        ]

    def _lowered(self, unit: Unit, query: ACQ) -> str:
        """The columns of a query's answers."""
        slide, range_ = query.window.slide, query.window.range
        instant = self.writing.instant.format
        outputs = [
            f"CAST({answer_of(output, unit.family.names)} AS {TYPES[output.type.name][0]}) AS {self.named(output.name)}"
            for output in query.outputs
        ]
        bounds = [f"{instant(f'k * {slide}')} AS window_start", f"{instant(f'k * {slide} + {range_}')} AS window_end"]
        return ", ".join([*bounds, *(self.writing.text.format(name) for name in groups_of(query)), *outputs])

    def _made(self, table: str, rows: str) -> list[str]:
        return [statement.format(table, rows) for statement in self.writing.table]

    def forget(self, family: Family) -> list[str]:
        tables = [family.table(granule) for granule in (family.granule, *family.levels)]
        tables += [*(f"{table}_dense" for table in tables), "windows"]
        # those that are made of others first
        return [statement.format(table) for table in reversed(tables) for statement in self.writing.drop]


class DuckDBRollup(SqlRollup, DuckDB):
    title = "DuckDB over its rollup"
    prelude = ("SET preserve_insertion_order = false",)  # no order is asked for
    writing = Writing(
        ("CREATE OR REPLACE TEMP TABLE {} AS {}",),
        "COPY ({1}) TO '{0}' (FORMAT parquet)",
        "read_parquet('{}')",
        "make_timestamp({})",
        key="CAST({0} AS {0}_key) AS {0}",
        text="CAST({0} AS VARCHAR) AS {0}",
    )

    def build(self, family: Family, day: Day) -> list[str]:
        group, *load = super().build(family, day)
        files = ", ".join(f"'{file}'" for file in day.stored(family))
        # grouping by few strings is a tenth cheaper so
        types = [
            f"CREATE TYPE {name}_key AS ENUM (SELECT DISTINCT {name} FROM read_parquet([{files}]))"
            for name in groups_of(family.merged)
        ]
        return [group, *types, *load]

    def forget(self, family: Family) -> list[str]:
        types = [f"DROP TYPE IF EXISTS {name}_key" for name in groups_of(family.merged)]
        return [*super().forget(family), *types]


class ClickHouseRollup(SqlRollup, ClickHouse):
    """Without ``framed``, as :class:`ClickHouse`."""

    title = "ClickHouse over its rollup"
    ways = ("expanded",)
    writing = Writing(
        ("CREATE OR REPLACE TABLE {} ENGINE = Memory AS {}",),
        "INSERT INTO FUNCTION file('{}', Parquet) {}",
        "file('{}', Parquet)",
        "fromUnixTimestamp64Micro({}, 'UTC')",
        key="CAST({0} AS LowCardinality(String)) AS {0}",
    )

    def begin(self) -> None:
        super().begin()
        events = self.dialect.events
        for name, type in self.stream.schema:
            if name in self.null_columns:
                declared = {"long": "Int64", "double": "Float64"}[type.name]
                events = events.replace(f"{name} {declared}", f"{name} Nullable({declared})")
        self.dialect = replace(self.dialect, events=events)


class DataFusionRollup(SqlRollup, DataFusion):
    title = "DataFusion over its rollup"
    dialect = replace(DataFusion.dialect, events="'{}/'")
    writing = Writing(
        ("CREATE OR REPLACE TABLE {} AS {}",),
        "COPY ({1}) TO '{0}' STORED AS PARQUET",
        "'{}'",
        "to_timestamp_micros({})",
    )

    def __init__(self, setting: Setting) -> None:
        super(DataFusion, self).__init__(setting)  # without a table of events, which are read where they lie


class Session:
    """Spark in this process's session, as a :class:`tests.benchmarks.workers.Worker`."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def run(self, statement: str) -> None:
        self.spark.sql(statement)

    def processes(self) -> list[psutil.Process]:
        return own_processes()

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.processes())

    def close(self) -> None:
        """The session is its owner's."""


class SparkRollup(SqlRollup):
    """Spark SQL in a session that is warm: rollups cached, a job a query or a window."""

    title = "Spark over its rollup"
    engine = "spark"
    cold_trials = 1
    dialect = Dialect(
        "parquet.`{}`",
        "unix_micros({})",
        "DIV",
        "explode(CASE WHEN {0} < {1} THEN sequence({0}, {1} - 1) END)",
        "`",
    )
    writing = Writing(
        ("UNCACHE TABLE IF EXISTS {0}", "DROP VIEW IF EXISTS {0}", "CACHE TABLE {0} AS {1}"),
        "INSERT OVERWRITE DIRECTORY '{}' USING PARQUET SELECT /*+ COALESCE(1) */ * FROM ({})",
        "parquet.`{}`",
        "timestamp_micros({})",
        ("UNCACHE TABLE IF EXISTS {0}", "DROP VIEW IF EXISTS {0}"),
    )

    def start(self, setting: Setting) -> Any:
        return Session(setting.spark)


class PolarsRollup(Rollup):
    """Polars in scripts: tables stay in memory between them."""

    title = "Polars over its rollup"
    engine = "polars_scripts"
    ways = ("expanded", "framed", "dynamic")
    prelude = ("tables = {}",)

    def build(self, family: Family, day: Day) -> list[str]:
        *_, newest = stored = day.stored(family)
        query, moment = family.merged, f"pl.col({self.stream.time!r}).dt.epoch('us')"
        filter_call = "" if query.filter is None else f".filter(pl.sql_expr({sql(query.filter)!r}))"
        lifted = ", ".join(
            self._total(f"pl.sql_expr({lift!r})", lift, f"pl.sql_expr({lift.replace('sum(', 'count(', 1)!r})")
            + f".alias({name!r})"
            for lift, name in family.names.items()
        )
        keys = ", ".join([f"({moment} // {family.granule}).alias('fragment')", *map(repr, groups_of(query))])
        return [
            f"pl.scan_parquet({f'{day.events}/*.parquet'!r}){filter_call}.group_by({keys}).agg({lifted})"
            f".sink_parquet({str(newest)!r})",
            f"tables[{family.table(family.granule)!r}] = pl.scan_parquet({list(map(str, stored))!r})"
            f".filter(pl.col('fragment') >= {day.first(family)}).collect()",
        ]

    def _nullable(self, lift: str) -> bool:
        """Whether a sum may be over nothing but nulls, which is 0 for Polars."""
        return lift.startswith("sum(") and any(name in lift for name in self.null_columns)

    def _total(self, total: str, lift: str, count: str) -> str:
        return f"pl.when({count} > 0).then({total})" if self._nullable(lift) else total

    def _combined(self, unit: Unit) -> str:
        """The states of a group."""
        return self._combined_states({lift: unit.family.names[lift] for lift in states_of(unit.queries)}, unit.family)

    def _combined_states(self, names: Mapping[str, str], family: Family) -> str:
        return ", ".join(
            self._total(f"pl.col({name!r}).{family.combine[name]}()", lift, f"pl.col({name!r}).count()")
            + f".alias({name!r})"
            for lift, name in names.items()
        )

    def level(self, family: Family, granule: int, finer: int) -> list[str]:
        keys = ", ".join([f"pl.col('fragment') // {granule // finer}", *map(repr, groups_of(family.merged))])
        states = self._combined_states(family.names, family)
        return [
            f"tables[{family.table(granule)!r}] = tables[{family.table(finer)!r}].lazy().group_by({keys})"
            f".agg({states}).collect(engine='streaming')"
        ]

    def densify(self, family: Family, granule: int) -> list[str]:
        (begin, end), table, groups = self.interval, family.table(granule), groups_of(family.merged)
        first, last = (begin - family.reach) // granule, -(-end // granule)
        grid = f"pl.select(fragment=pl.int_range({first}, {last}))"
        keys = f"tables[{table!r}].select({groups!r}).unique().join({grid}, how='cross')" if groups else grid
        known = f"tables[{table!r}].with_columns(present=pl.lit(1))"
        return [
            f"tables[{table + '_dense'!r}] = {keys}.join({known}, on={['fragment', *groups]!r}, how='left', "
            "maintain_order='left')"
        ]

    def answers(self, unit: Unit, way: Way, folder: Path) -> list[str]:
        cuts, query = unit.cuts(way.granule), unit.queries[0]
        windows = getattr(self, f"_{way.how}_windows")(unit, cuts, unit.family.table(way.granule))
        end = f"(pl.col('k') * {query.window.slide} + {query.window.range})"
        windows += f".filter({end} > {self.interval[0]}, {end} <= {self.interval[1]})"
        if len(unit.queries) == 1:
            return [f"{windows}{self._lowered(unit, query, folder)}"]
        return [
            f"windows = {windows}.collect(engine='streaming')",
            *(f"windows.lazy(){self._lowered(unit, query, folder)}" for query in unit.queries),
        ]

    def _lowered(self, unit: Unit, query: ACQ, folder: Path) -> str:
        slide, range_ = query.window.slide, query.window.range
        instant = "cast(pl.Datetime('us', 'UTC'))"
        columns = [
            f"(pl.col('k') * {slide}).{instant}.alias('window_start')",
            f"(pl.col('k') * {slide} + {range_}).{instant}.alias('window_end')",
            *map(repr, groups_of(query)),
        ]
        for output in query.outputs:
            type = {"long": "pl.Int64", "double": "pl.Float64"}[output.type.name]
            answer = answer_of(output, unit.family.names)
            columns.append(f"pl.sql_expr({answer!r}).cast({type}).alias({output.name!r})")
        return f".select({', '.join(columns)}).sink_parquet({str(folder / f'{query.name}.parquet')!r})"

    def _expanded_windows(self, unit: Unit, cuts: Fragments, table: str) -> str:
        groups, slide = groups_of(unit.queries[0]), cuts.a_slide
        first = f"(pl.col('fragment') - {cuts.a_window - slide}) // {slide}"
        return (
            f"tables[{table!r}].lazy().select({['fragment', *groups, *unit.states]!r})"
            f".with_columns(k=pl.int_ranges({first}, pl.col('fragment') // {slide} + 1)).explode('k')"
            f".drop_nulls('k').group_by({['k', *groups]!r}).agg({self._combined(unit)})"
        )

    def _framed_windows(self, unit: Unit, cuts: Fragments, table: str) -> str:
        # a group's rows are as many as granules: no window that is answered goes over their end
        names = {**unit.states, "present": "sum"}
        frames = ", ".join(
            f"pl.col({name!r}).rolling_{how}({cuts.a_window}, min_samples=1).shift({1 - cuts.a_window})"
            for name, how in names.items()
        )
        chosen = ["fragment", *groups_of(unit.queries[0])]
        return (
            f"tables[{table + '_dense'!r}].lazy().select(*{chosen!r}, {frames})"
            f".filter(pl.col('fragment') % {cuts.a_slide} == 0, pl.col('present').is_not_null())"
            f".with_columns(k=pl.col('fragment') // {cuts.a_slide})"
        )

    def _dynamic_windows(self, unit: Unit, cuts: Fragments, table: str) -> str:
        groups, slide = groups_of(unit.queries[0]), cuts.a_slide
        # it starts with the slide that holds the first row: the windows before that which hold it too are wanted
        before = -(-cuts.a_window // slide) * slide
        return (
            f"tables[{table!r}].lazy().sort('fragment').group_by_dynamic('fragment', every='{slide}i', "
            f"period='{cuts.a_window}i', offset='-{before}i', closed='left', label='left', start_by='window', "
            f"group_by={groups or None!r}).agg({self._combined(unit)})"
            f".with_columns(k=pl.col('fragment') // {slide})"
        )

    def forget(self, family: Family) -> list[str]:
        return ["tables = {}; windows = None"]


ROLLUPS: dict[str, type[Rollup]] = {
    "duckdb": DuckDBRollup,
    "polars": PolarsRollup,
    "clickhouse": ClickHouseRollup,
    "datafusion": DataFusionRollup,
    "spark": SparkRollup,
}
