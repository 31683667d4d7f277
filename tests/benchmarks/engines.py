"""Engines beside the shared run, each in a process and an environment of its own: DuckDB, Polars, ClickHouse,
DataFusion and Flink at their best.

An engine has several ways to answer a query; :meth:`Peer.prepare` measures them, and the cheapest is used. Some have
functions of their own for event sequences, which answer another question (:meth:`Engine.others`): those are measured
beside, and never chosen.
"""

from __future__ import annotations

import base64
import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.workload.values import ACQ, SECOND
from tests.benchmarks import counting
from tests.benchmarks.counting import Counting
from tests.benchmarks.peers import THREADS, Peer, Setting, SparkJobs, SparkStatement, canonical, difference
from tests.benchmarks.query_sql import Fragments, answer_of, groups_of, plain, sql, states_of
from tests.benchmarks.workers import Worker, python_of

TOO_LONG = 30.0
"""CPU seconds. A way that took longer to count the sequences of a pattern is not tried for longer patterns."""


class Engine(Peer):
    """A peer in a worker that answers each query in the way that was measured to be the cheapest for it.

    ``spent``: by query and way what one run took, in CPU seconds; also of what answers another question.
    """

    engine: str
    ways: tuple[str, ...]

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.best: dict[str, str] = {}
        self.spent: dict[str, dict[str, float]] = {}
        self._given_up: dict[str, int] = {}
        self.worker = self.start(setting)

    def start(self, setting: Setting) -> Worker:
        """What runs its statements."""
        return Worker(self.engine, THREADS)

    @abstractmethod
    def statement(self, query: ACQ, way: str) -> str:
        """What the worker is told."""

    def others(self, query: ACQ) -> dict[str, str]:
        """By name statements that answer another question than the query, which people would ask instead."""
        return {}

    def ways_of(self, query: ACQ) -> list[str]:
        """The ways to answer a query; without those that already took too long for a shorter pattern."""
        ways = self.ways if query.pattern is None else counting.WAYS
        return [way for way in ways if _length(query) <= self._given_up.get(way, _length(query))]

    def prepare(self, queries: Sequence[ACQ]) -> None:
        for query in queries:
            ways = self.ways_of(query)
            for way in (ways[0], *ways):  # the very first opens files and loads code
                self._run(query, way, self.statement(query, way))
            spent = self.spent[query.name]
            self.best[query.name] = min(ways, key=spent.__getitem__)
            for name, statement in self.others(query).items():
                self._run(query, name, statement)

    def _run(self, query: ACQ, way: str, statement: str, into: Path | None = None) -> None:
        started = self.worker.cpu_seconds()
        self.worker.run(statement, into)
        spent = self.worker.cpu_seconds() - started
        self.spent.setdefault(query.name, {})[way] = spent
        if query.pattern is not None and spent > TOO_LONG:
            self._given_up[way] = min(_length(query), self._given_up.get(way, _length(query)))

    def answer(self, queries: Sequence[ACQ]) -> None:
        for query in queries:
            self.worker.run(self.statement(query, self.best.get(query.name, self.ways_of(query)[0])))

    def tables(self, queries: Sequence[ACQ]) -> dict[str, pa.Table]:
        answers_by_query = {}
        for query in queries:
            ways = self.ways_of(query)
            several = [self._table(query, way) for way in ways]
            for (way, one), (other, two) in pairwise(zip(ways, several, strict=True)):
                if problem := difference(query, one, two):
                    raise ValueError(f"{self.title}: {query.name} by {other} is not what it is by {way}: {problem}")
            answers_by_query[query.name] = several[0]
        return answers_by_query

    def _table(self, query: ACQ, way: str) -> pa.Table:
        with tempfile.TemporaryDirectory() as place:
            self._run(query, way, self.statement(query, way), Path(place))
            return canonical(query, pq.read_table(place))

    def processes(self) -> list[psutil.Process]:
        return self.worker.processes()

    def close(self) -> None:
        self.worker.close()


def _length(query: ACQ) -> int:
    return len(query.pattern.events) if query.pattern is not None else 0


# ------------------------------------------------------------------------------------------------- SQL
@dataclass(frozen=True)
class Dialect:
    """How an engine writes what differs. ``events``: the stream, of a path; ``moment``: microseconds since 1970, of a
    column; ``divide``: the operator of integer division; ``numbers``: a row for each number from the first up to and
    without the last."""

    events: str
    moment: str
    divide: str
    numbers: str
    quote: str = '"'
    once: str = ""


class Statements(Engine):
    """One SQL statement a query. ``expanded``: fragments, each repeated for the windows that hold it; ``framed``: a
    dense grid of fragments under SQL window frames; ``direct``: each event repeated for its windows. Event
    sequences are counted in the ways of :mod:`tests.benchmarks.counting`."""

    ways: tuple[str, ...] = ("expanded", "framed", "direct")
    counts_sequences = True
    dialect: Dialect

    def statement(self, query: ACQ, way: str) -> str:
        if query.pattern is not None:
            return self._counting(query).statement(way)
        return {"expanded": self._expanded, "framed": self._framed, "direct": self._direct}[way](query)

    def _counting(self, query: ACQ) -> Counting:
        events, divide = self.events(query), self.dialect.divide
        return Counting(query, self.interval, events, self._moment, divide, self._repeat)

    def _repeat(self, rows: str, first: str, last: str, most: int) -> str:
        """SQL of rows, each for the numbers from the first up to and without the last, of which there are at most so
        many."""
        return f"SELECT *, {self.dialect.numbers.format(first, last)} AS k FROM ({rows}) AS repeated"

    def events(self, query: ACQ) -> str:
        condition = f" WHERE {sql(query.filter)}" if query.filter is not None else ""
        return self.dialect.events.format(self.stream.source.path) + condition

    @property
    def _moment(self) -> str:
        return self.dialect.moment.format(self.stream.time)

    def named(self, name: str) -> str:
        return f"{self.dialect.quote}{name}{self.dialect.quote}"

    def inside(self, query: ACQ) -> str:
        """The condition on the number of a window, k."""
        end = f"k * {query.window.slide} + {query.window.range}"
        return f"{end} > {self.interval[0]} AND {end} <= {self.interval[1]}"

    def _direct(self, query: ACQ) -> str:
        range_, slide, divide = query.window.range, query.window.slide, self.dialect.divide
        columns = sorted({self.stream.time, *query.columns()} - {self.stream.time})
        first, last = f"({self._moment} - {range_}) {divide} {slide} + 1", f"{self._moment} {divide} {slide} + 1"
        window_numbers = f"{self.dialect.numbers.format(first, last)} AS k"
        outputs = ", ".join(f"{plain(output)} AS {self.named(output.name)}" for output in query.outputs)
        return (
            f"SELECT k * {slide} AS window_start, {', '.join([*groups_of(query), outputs])} "
            f"FROM (SELECT {', '.join([*columns, window_numbers])} FROM {self.events(query)}) AS repeated "
            f"WHERE {self.inside(query)} GROUP BY {', '.join(['k', *groups_of(query)])}"
        )

    def fragments(self, query: ACQ, cuts: Fragments) -> tuple[str, dict[str, str], dict[str, str]]:
        """SQL of the fragments' states, the states' names, and how those combine."""
        states = states_of([query])
        names = {lift: f"state{number}" for number, lift in enumerate(states)}
        keys = ", ".join(["fragment", *groups_of(query)])
        columns = sorted({self.stream.time, *query.columns()} - {self.stream.time})
        numbered = ", ".join([f"{cuts.number(self._moment, self.dialect.divide)} AS fragment", *columns])
        lifted = ", ".join(f"{lift} AS {name}" for lift, name in names.items())
        grouped = f"SELECT {keys}, {lifted} FROM (SELECT {numbered} FROM {self.events(query)}) AS numbered"
        return f"{grouped} GROUP BY {keys}", names, {names[lift]: combine for lift, combine in states.items()}

    def _outputs(self, query: ACQ, names: Mapping[str, str]) -> str:
        answers = [
            f"CAST({answer_of(output, names)} AS DOUBLE) AS {self.named(output.name)}" for output in query.outputs
        ]
        return ", ".join([f"k * {query.window.slide} AS window_start", *groups_of(query), *answers])

    def _repeated(self, cuts: Fragments) -> str:
        """SQL of the fragments, each with the number k of every window that holds it."""
        divide = self.dialect.divide
        first = f"(fragment - {cuts.a_window - cuts.a_slide}) {divide} {cuts.a_slide}"
        return (
            f"SELECT *, {self.dialect.numbers.format(first, f'fragment {divide} {cuts.a_slide} + 1')} AS k FROM grouped"
        )

    def _expanded(self, query: ACQ) -> str:
        cuts = Fragments.of(query.window)
        grouped, names, combine = self.fragments(query, cuts)
        windows = self.expanded_windows(query, cuts, combine)
        return f"WITH grouped AS ({grouped}), {windows} SELECT {self._outputs(query, names)} FROM combined"

    def expanded_windows(self, query: ACQ, cuts: Fragments, combine: Mapping[str, str]) -> str:
        """Tables of a statement up to ``combined``, the windows' states, out of its table ``grouped``: each fragment
        repeated."""
        combined = ", ".join(f"{how}({name}) AS {name}" for name, how in combine.items())
        windows = ", ".join(["k", *groups_of(query)])
        return (
            f"expanded AS ({self._repeated(cuts)}), "
            f"combined AS (SELECT {windows}, {combined} FROM expanded WHERE {self.inside(query)} GROUP BY {windows})"
        )

    def _framed(self, query: ACQ) -> str:
        cuts = Fragments.of(query.window)
        grouped, names, combine = self.fragments(query, cuts)
        slide = query.window.slide
        first, last = (self.interval[0] - query.window.range) // slide + 1, self.interval[1] // slide
        dense = self.dense(query, first * cuts.a_slide, (last + 1) * cuts.a_slide)
        return (
            f"WITH grouped AS {self.dialect.once}({grouped}), dense AS ({dense}), "
            f"{self.framed_windows(query, cuts, combine)} SELECT {self._outputs(query, names)} FROM combined"
        )

    def dense(self, query: ACQ, first: int, last: int) -> str:
        """The table ``grouped`` with a row for each fragment and group, ``present`` where it had one."""
        groups = groups_of(query)
        grid = f"(SELECT {self.dialect.numbers.format(first, last)} AS fragment) AS grid"
        keys = f" CROSS JOIN (SELECT DISTINCT {', '.join(groups)} FROM grouped) AS every_key" if groups else ""
        known = "(SELECT *, 1 AS present FROM grouped) AS known"
        return f"SELECT * FROM {grid}{keys} LEFT JOIN {known} USING ({', '.join(['fragment', *groups])})"

    def framed_windows(self, query: ACQ, cuts: Fragments, combine: Mapping[str, str]) -> str:
        """As :meth:`expanded_windows`, out of a table ``dense``: window frames over it."""
        groups, divide = groups_of(query), self.dialect.divide
        frames = ", ".join(f"{how}({name}) OVER frames AS {name}" for name, how in combine.items())
        apart = f"PARTITION BY {', '.join(groups)} " if groups else ""
        return (
            # a window that holds no event of its group has no state that counts
            f"framed AS (SELECT {', '.join(['fragment', *groups])}, {frames}, count(present) OVER frames AS filled "
            f"FROM dense WINDOW frames AS "
            f"({apart}ORDER BY fragment ROWS BETWEEN CURRENT ROW AND {cuts.a_window - 1} FOLLOWING)), "
            f"combined AS (SELECT * FROM (SELECT *, fragment {divide} {cuts.a_slide} AS k FROM framed "
            f"WHERE fragment % {cuts.a_slide} = 0 AND filled > 0) AS numbered WHERE {self.inside(query)})"
        )


class DuckDB(Statements):
    title = "DuckDB, one statement a query"
    engine = "duckdb"
    dialect = Dialect(
        "read_parquet('{}/*.parquet')", "epoch_us({})", "//", "unnest(range({}, {}))", once="MATERIALIZED "
    )


class ClickHouse(Statements):
    """Without ``framed``: what is used twice is computed twice, and frames of one thread cost more than repeating."""

    title = "ClickHouse, one statement a query"
    engine = "clickhouse"
    ways: tuple[str, ...] = ("expanded", "direct")

    def __init__(self, setting: Setting) -> None:
        # told that nothing is null and that strings are few it groups by them in less
        types = {"timestamp": "DateTime64(6, \\'UTC\\')", "string": "LowCardinality(String)", "long": "Int64"}
        types["double"] = "Float64"
        columns = ", ".join(f"{name} {types[type.name]}" for name, type in setting.stream.schema)
        self.dialect = Dialect(
            f"file('{{}}/*.parquet', Parquet, '{columns}')",
            "toUnixTimestamp64Micro({})",
            "DIV",
            "arrayJoin(range({}, {}))",
        )
        super().__init__(setting)

    def others(self, query: ACQ) -> dict[str, str]:
        """``windowFunnel``: by window how many keys have a sequence in it; ``sequenceCount``: sequences of which no two
        overlap, each the first that ends."""
        if query.pattern is None:
            return {}
        count, keys = self._counting(query), ["k", *query.pattern.per]
        types = f"{count.on} IN ({', '.join(sorted(set(count.pattern)))})"
        rows = self._repeat(count.rows(types), count.first_window("t"), f"{count.last_window('t')} + 1", 0)
        is_event = ", ".join(f"{count.on} = {event}" for event in count.pattern)
        chain = ".*".join(f"(?{number + 1})" for number in range(len(count.pattern)))
        functions = {
            "windowFunnel": f"windowFunnel({query.window.range}, 'strict_increase')(toUInt64(t), {is_event}) = "
            f"{len(count.pattern)}",
            "sequenceCount": f"sequenceCount('{chain}')(toUInt64(t), {is_event})",
        }
        return {
            name: count.answers(f"SELECT {', '.join(keys)}, {call} AS n FROM ({rows}) AS e GROUP BY {', '.join(keys)}")
            for name, call in functions.items()
        }


class DataFusion(Statements):
    title = "DataFusion, one statement a query"
    engine = "datafusion"
    dialect = Dialect("events", "CAST({} AS BIGINT)", "/", "unnest(range({}, {}))")

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.worker.run(f"CREATE EXTERNAL TABLE events STORED AS PARQUET LOCATION '{self.stream.source.path}/'")


class Flink(Statements):
    """One Flink SQL batch job a query. ``expanded`` as elsewhere, repeated by a join; ``hop``: its ``HOP`` windows.

    ``HOP`` wants ranges that are multiples of the slide: others are rounded up, and the events behind a window's end
    left out of it.
    """

    title = "Flink SQL batch, one job a query"
    engine = "flink"
    ways = ("expanded", "hop")
    dialect = Dialect(
        "events",
        # whole seconds suffice: ranges and slides are such
        "CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', CAST({} AS TIMESTAMP(6))) AS BIGINT) * 1000000",
        "/",
        "",
        "`",
    )

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        types = {"timestamp": "TIMESTAMP_LTZ(6)", "long": "BIGINT"}
        columns = ", ".join(f"`{name}` {types.get(type.name, type.name.upper())}" for name, type in self.stream.schema)
        moment = f"moment AS CAST(`{self.stream.time}` AS TIMESTAMP_LTZ(3)), WATERMARK FOR moment AS moment"
        self.worker.run(
            f"CREATE TABLE events ({columns}, {moment}) "
            f"WITH ('connector' = 'filesystem', 'path' = '{self.stream.source.path}', 'format' = 'parquet')"
        )

    def statement(self, query: ACQ, way: str) -> str:
        return self._hop(query) if way == "hop" else super().statement(query, way)

    def others(self, query: ACQ) -> dict[str, str]:
        """``match_recognize``: the events that begin a sequence shorter than a window, each once however many it
        begins; how many there are in all, for its windows lie nowhere."""
        if query.pattern is None:
            return {}
        defined = [
            f"e{number} AS e{number}.{query.pattern.on} = '{event}'"
            for number, event in enumerate(query.pattern.events)
        ]
        between = " ".join(f"{f'other{number}*? ' if number else ''}e{number}" for number in range(len(defined)))
        window_length = _seconds(query.window.range // SECOND)
        matches = (
            f"PARTITION BY {', '.join(query.pattern.per)} ORDER BY moment MEASURES e0.moment AS begun "
            f"ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN ({between}) WITHIN {window_length} "
            f"DEFINE {', '.join(defined)}"
        )
        return {"match_recognize": f"SELECT count(*) AS begun FROM {self.events(query)} MATCH_RECOGNIZE ({matches})"}

    def _repeated(self, cuts: Fragments) -> str:
        before = ", ".join(f"({number})" for number in range(-(-cuts.a_window // cuts.a_slide)))
        condition = f"(fragment / {cuts.a_slide} - before) * {cuts.a_slide} + {cuts.a_window} > fragment"
        return (
            f"SELECT grouped.*, fragment / {cuts.a_slide} - before AS k "
            f"FROM grouped CROSS JOIN (VALUES {before}) AS earlier(before) WHERE {condition}"
        )

    def _repeat(self, rows: str, first: str, last: str, most: int) -> str:
        steps = ", ".join(f"({number})" for number in range(most))
        return (
            f"SELECT repeated.*, {first} + step AS k FROM ({rows}) AS repeated "
            f"CROSS JOIN (VALUES {steps}) AS steps(step) WHERE {first} + step < {last}"
        )

    def _hop(self, query: ACQ) -> str:
        range_, slide = query.window.range // SECOND, query.window.slide // SECOND
        rounded_range = -(-range_ // slide) * slide
        start = "TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start)"
        begin, end = (instant // SECOND for instant in self.interval)
        inside = [f"{start} + {range_} > {begin}", f"{start} + {range_} <= {end}"]
        if rounded_range != range_:
            inside.append(f"moment < TIMESTAMPADD(SECOND, {range_}, CAST(window_start AS TIMESTAMP_LTZ(3)))")
        if query.filter is not None:
            inside.append(sql(query.filter))
        columns = [f"CAST({start} AS BIGINT) * {SECOND} AS window_start", *groups_of(query)]
        for output in query.outputs:
            aggregate = plain(output)
            if output.function == "avg":  # of integers it would be an integer
                aggregate = f"avg(CAST({aggregate[4:-1]} AS DOUBLE))"
            columns.append(f"{aggregate} AS {self.named(output.name)}")
        windows = f"HOP(TABLE events, DESCRIPTOR(moment), {_seconds(slide)}, {_seconds(rounded_range)})"
        return (
            f"SELECT {', '.join(columns)} FROM {windows} WHERE {' AND '.join(inside)} "
            f"GROUP BY {', '.join(['window_start', 'window_end', *groups_of(query)])}"
        )


def _seconds(number: int) -> str:
    return f"INTERVAL '{number}' SECOND({len(str(number))})"


# ---------------------------------------------------------------------------------------------- Polars
class Polars(Engine):
    """One lazy Polars query a query, by ``group_by_dynamic`` on its streaming engine, over fragments or over events."""

    title = "Polars, one query a query"
    engine = "polars"
    ways = ("fragments", "events")

    def statement(self, query: ACQ, way: str) -> str:
        lazy = self._over_fragments(query) if way == "fragments" else self._over_events(query)
        return base64.b64encode(lazy.serialize()).decode()

    def _scan(self, query: ACQ) -> Any:
        import polars as pl

        scan = pl.scan_parquet(f"{self.stream.source.path}/*.parquet")
        return scan if query.filter is None else scan.filter(pl.sql_expr(sql(query.filter)))

    def _windows(self, sorted_: Any, query: ACQ, outputs: Sequence[Any]) -> Any:
        import polars as pl

        range_, slide = query.window.range, query.window.slide
        # it starts with the slide that holds the first row: the windows before that which hold it too are wanted
        before = -(-range_ // slide) * slide
        windows = sorted_.group_by_dynamic(
            self.stream.time,
            every=f"{slide}us",
            period=f"{range_}us",
            offset=f"-{before}us",
            closed="left",
            label="left",
            start_by="window",
            group_by=groups_of(query) or None,
        )
        end = pl.col(self.stream.time).dt.epoch("us") + range_
        inside = (end > self.interval[0]) & (end <= self.interval[1])
        return windows.agg(*outputs).filter(inside).rename({self.stream.time: "window_start"})

    def _over_events(self, query: ACQ) -> Any:
        import polars as pl

        outputs = [pl.sql_expr(plain(output)).alias(output.name) for output in query.outputs]
        return self._windows(self._scan(query).set_sorted(self.stream.time), query, outputs)

    def _over_fragments(self, query: ACQ) -> Any:
        import polars as pl

        time, cuts = pl.col(self.stream.time), Fragments.of(query.window)
        states = states_of([query])
        names = {lift: f"state{number}" for number, lift in enumerate(states)}
        if cuts.second is None:
            start = time.dt.truncate(f"{cuts.slide // cuts.a_slide}us")
        else:
            instant = time.dt.epoch("us")
            phase = instant % cuts.slide
            late = pl.when(phase >= cuts.second).then(cuts.second).otherwise(0)
            start = (instant - phase + late).cast(pl.Datetime("us", "UTC"))
        lifted = [pl.sql_expr(lift).alias(name) for lift, name in names.items()]
        grouped = self._scan(query).group_by(start, *groups_of(query)).agg(*lifted).sort(self.stream.time)
        combined = [getattr(pl.col(name), states[lift])() for lift, name in names.items()]
        windows = self._windows(grouped, query, combined)
        outputs = [pl.sql_expr(answer_of(output, names)).alias(output.name) for output in query.outputs]
        return windows.select("window_start", *groups_of(query), *outputs)


PEERS: dict[str, type[Peer]] = {
    "spark": SparkJobs,
    "statement": SparkStatement,
    "duckdb": DuckDB,
    "polars": Polars,
    "clickhouse": ClickHouse,
    "datafusion": DataFusion,
    "flink": Flink,
}


def installed(name: str) -> bool:
    """Whether a peer is here."""
    peer = PEERS[name]
    return not issubclass(peer, Engine) or python_of(peer.engine) is not None
