"""Measures queries that join a dimension beside the same queries over a stream that has the attributes as columns.

    python -m tests.benchmarks.joins [--events N] [--keys N] [--queries N] [--joined N] [--rounds N] [--sample N]
        [--peers PEER ...] [--data DIR] [--json FILE]

Both streams are the same Parquet files of one day: ``joined`` reads the key of an account (an integer; with ``--texts``
a text) and looks its attributes up in a dimension of 100,000 accounts, ``wide`` reads the attributes from the files.
Of 100 queries 20 use attributes: as groups, in filters, as arguments. Each round runs both, one after the other, into
fresh warehouses, with every stage of a run; the first is not counted, and compares the answers. Peers answer a sample
of the queries over the wide stream, one by one, answers dropped: so they are spared the join.

Seconds are CPU seconds of the process tree, medians of the rounds; the ratio is the median of the rounds' ratios. The
exit code is 1 if answers differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.language.parser import parse
from optimizer.workload.instants import DAY
from optimizer.workload.values import (
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Dimension,
    Source,
    Stream,
    Workload,
)
from spark_jobs.engine import choice
from spark_jobs.engine.session import start_session
from spark_jobs.results.read import read
from tests.benchmarks.engines import PEERS, installed
from tests.benchmarks.peers import Measured, Setting, plan_of, shared, spent_by
from tests.benchmarks.sharing import machine
from tests.benchmarks.trades import DAY_START, FILTERS, GROUP_BYS, HOUR_DIVISORS, OUTPUTS, ROWS_PER_FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTRIBUTES = (("segment", STRING), ("tier", STRING), ("country", STRING), ("weight", DOUBLE))
"""Columns of an account."""

PLAIN = (
    *(("ts", TIMESTAMP), ("symbol", STRING), ("exchange", STRING), ("side", STRING), ("price", DOUBLE)),
    ("volume", LONG),
)

JOINED_GROUPS = (("a.segment",), ("a.tier",), ("a.country",), ("a.segment", "side"), ("symbol",))
JOINED_FILTERS = ("", "a.tier = 'tier 1'", "a.segment != 'segment 03' AND volume > 500", "a.weight > 20")
JOINED_OUTPUTS = ("sum(a.weight) AS weight", "count(*) AS trades, max(a.weight) AS heaviest", "sum(volume) AS volume")


@dataclass(frozen=True)
class Ground:
    """The files of a benchmark: both streams, and their dimension."""

    joined: Stream
    wide: Stream

    def streams(self) -> dict[str, Stream]:
        """Both, by what they are called here."""
        return {"joined": self.joined, "wide": self.wide}


def generate(folder: Path, events: int, keys: int, is_text: bool, seed: int = 7) -> Ground:
    """Events of some accounts over one day in Parquet files of a million rows, kept if already there."""
    done = folder / f"accounts-{events}-{keys}{'-texts' if is_text else ''}"
    if not done.exists():
        partly = done.with_name(f"{done.name}.partial")
        shutil.rmtree(partly, ignore_errors=True)
        (partly / "events").mkdir(parents=True)
        chance = np.random.default_rng(seed)
        accounts = _accounts(chance, keys, is_text)
        pq.write_table(accounts, partly / "accounts.parquet")
        files = -(-events // ROWS_PER_FILE)
        for number in range(files):
            rows = min(ROWS_PER_FILE, events - number * ROWS_PER_FILE)
            span = (DAY_START + DAY * number // files, DAY_START + DAY * (number + 1) // files)
            pq.write_table(_events(chance, rows, span, accounts), partly / "events" / f"part-{number:04d}.parquet")
        partly.rename(done)
    key = ("account", STRING if is_text else LONG)
    source = Source("parquet", str((done / "events").resolve()))
    accounts_source = Source("parquet", str((done / "accounts.parquet").resolve()))
    dimension = Dimension("accounts", accounts_source, ("account",), (key, *ATTRIBUTES))
    return Ground(
        Stream("trades", source, (*PLAIN, key), "ts", dimensions=(dimension,)),
        Stream("trades", source, (*PLAIN, key, *ATTRIBUTES), "ts"),
    )


def _accounts(chance: np.random.Generator, keys: int, is_text: bool) -> pa.Table:
    # scattered over a wide range, as ids are
    numbers = np.sort(chance.choice(50 * keys, keys, replace=False))

    def some(name: str, count: int) -> pa.Array:
        return pa.array([f"{name} {number:02d}" for number in range(count)]).take(
            pa.array(chance.integers(0, count, keys))
        )

    return pa.table(
        {
            "account": [f"account {number:08d}" for number in numbers] if is_text else numbers,
            "segment": some("segment", 12),
            "tier": pa.array([f"tier {number}" for number in range(5)]).take(pa.array(chance.integers(0, 5, keys))),
            "country": some("country", 60),
            "weight": chance.lognormal(3.0, 0.5, keys),
        }
    )


def _events(chance: np.random.Generator, rows: int, span: tuple[int, int], accounts: pa.Table) -> pa.Table:
    def some(names: Sequence[str]) -> pa.Array:
        return pa.array(names).take(pa.array(chance.integers(0, len(names), rows)))

    plain = {
        "ts": pa.array(np.sort(chance.integers(*span, rows))).cast(pa.timestamp("us", "UTC")),
        "symbol": some([f"SYM{key:03d}" for key in range(200)]),
        "exchange": some([f"X{exchange:02d}" for exchange in range(12)]),
        "side": some(["B", "S"]),
        "price": chance.lognormal(3.0, 0.5, rows),
        "volume": chance.integers(1, 5000, rows),
    }
    own = accounts.take(pa.array(chance.integers(0, len(accounts), rows)))
    return pa.table(plain | {name: own[name] for name in own.column_names})


def texts(queries: int, joined: int, is_joined: bool) -> str:
    """The queries as text, ``joined`` of them with attributes: by a join, or as columns."""
    chance, statements = np.random.default_rng(11), list[str]()
    while len(statements) < queries:
        number = len(statements)
        slide = 60 * int(chance.choice(HOUR_DIVISORS))
        window = f"WINDOW RANGE '{slide * int(chance.integers(3, 19)) // 2} seconds' SLIDE '{slide} seconds' ON ts"
        pools = (
            (JOINED_GROUPS, JOINED_OUTPUTS, JOINED_FILTERS) if number < joined else (GROUP_BYS, OUTPUTS, FILTERS[:12])
        )
        groups, outputs, filter = (pool[int(chance.integers(len(pool)))] for pool in pools)
        join = " LEFT JOIN accounts AS a USING (account)" if number < joined and is_joined else ""
        where = f" WHERE {filter}" if filter else ""
        by = ", ".join(groups)
        text = f"-- name: q{number:03d}\nSELECT {by}, {outputs} FROM trades{join} {window}{where} GROUP BY {by}"
        statements.append(text if is_joined else text.replace("a.", ""))
    return ";\n".join(statements)


def workload(stream: Stream, queries: int, joined: int) -> Workload:
    """The queries over one of the streams."""
    parsed = parse(texts(queries, joined, bool(stream.dimensions)), {stream.name: stream})
    if len(parsed.queries) != queries:
        raise ValueError(f"the workload is not valid: {parsed.diagnostics[:3]}")
    return Workload(tuple(parsed.queries), (stream,))


def measure(ground: Ground, options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """The CPU seconds of both streams' runs, round by round, with their stages and planning."""
    plans, planning = {}, {}
    for name, stream in ground.streams().items():
        spent, plans[name] = spent_by(
            partial(plan_of, workload(stream, options.queries, options.joined), options.events)
        )
        planning[name] = spent.cpu
    measured = {name: Measured() for name in plans}
    stages: dict[str, dict[str, list[float]]] = {name: {} for name in plans}
    answers: dict[str, dict[str, pa.Table]] = {}
    for number in range(options.rounds + 1):
        for name, plan in plans.items():
            engine = choice.Engine("bench", requested="local")
            try:
                with shared(engine, plan, scratch / name) as (spent, record, warehouse):
                    measured[name].add(spent, warming=not number)
                    print(
                        f"round {number}: {name} {spent.cpu:.1f} CPU s, load {os.getloadavg()[0]:.1f}", file=sys.stderr
                    )
                    if number:
                        for stage, seconds in record.cpu_seconds.items():
                            stages[name].setdefault(stage, []).append(seconds)
                    else:
                        some = plan.workload.queries[: options.joined]
                        answers[name] = {query.name: read(warehouse, query.name) for query in some}
            finally:
                engine.stop()
    differing = [name for name in answers["joined"] if not _same(answers["joined"][name], answers["wide"][name])]
    pairs = zip(measured["joined"].cpu, measured["wide"].cpu, strict=True)
    return {
        "planning_cpu": planning,
        "cpu": {name: each.cpu for name, each in measured.items()},
        "median_cpu": {name: each.median for name, each in measured.items()},
        "memory": {name: each.memory for name, each in measured.items()},
        "stages": {
            name: {stage: statistics.median(values) for stage, values in of.items()} for name, of in stages.items()
        },
        "ratio": statistics.median(joined / wide for joined, wide in pairs),
        "answers": sum(map(len, answers["joined"].values())),
        "differing": differing,
    }


def _same(left: pa.Table, right: pa.Table) -> bool:
    """Return whether two tables of answers are equal; doubles but for rounding."""
    if left.column_names != right.column_names or len(left) != len(right):
        return False
    order = [
        (name, "ascending") for name in left.column_names if not pa.types.is_floating(left.schema.field(name).type)
    ]
    left, right = left.sort_by(order), right.sort_by(order)
    for some, other in zip(left.itercolumns(), right.itercolumns(), strict=True):
        if pa.types.is_floating(some.type):
            if not np.allclose(some.to_numpy(), other.to_numpy(), rtol=1e-9, equal_nan=True):
                return False
        elif not some.equals(other):
            return False
    return True


def measure_peers(ground: Ground, options: argparse.Namespace) -> dict[str, Any]:
    """What peers spend on one of the queries over the wide stream, by the peer's name: medians of the rounds."""
    names = [name for name in options.peers if installed(name)]
    needs_spark = any(name.startswith("spark") for name in names)
    spark = start_session("bench", quick=False) if needs_spark else cast("SparkSession", None)
    queries = workload(ground.wide, options.queries, options.joined).queries
    sample = [queries[at * len(queries) // options.sample] for at in range(options.sample)]
    spent: dict[str, Any] = {}
    for name in names:
        peer = PEERS[name](Setting(spark, replace(ground.wide)))
        try:
            peer.answer(sample[: peer.least])
            rounds = [spent_by(partial(peer.answer, sample), peer.processes)[0] for _ in range(options.rounds)]
        finally:
            peer.close()
        cpu = statistics.median(each.cpu for each in rounds) / len(sample)
        spent[name] = {"title": peer.title, "cpu_of_a_query": cpu, "cpu_of_all": cpu * options.queries}
    return spent


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each figure, and write the JSON. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="joins", description="Joined queries beside those over a wide stream")
    for option, value, what in (
        ("--events", 10_000_000, "events of the day"),
        ("--keys", 100_000, "accounts in the dimension"),
        ("--queries", 100, "queries"),
        ("--joined", 20, "of them with attributes"),
        ("--rounds", 3, "measured rounds after the warming one"),
        ("--sample", 6, "queries that each peer runs"),
    ):
        parser.add_argument(option, type=int, default=value, help=f"{what} ({value:,})")
    parser.add_argument("--texts", action="store_true", help="keys are texts")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[], metavar="PEER", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--data", type=Path, default=Path("var/bench"), help="where the streams are kept (var/bench)")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    options = parser.parse_args(arguments)
    options.data.mkdir(parents=True, exist_ok=True)
    ground = generate(options.data, options.events, options.keys, options.texts)
    document: dict[str, Any] = {"events": options.events, "keys": options.keys, "texts": options.texts}
    document |= {"queries": options.queries, "joined": options.joined, "machine": machine()}
    with tempfile.TemporaryDirectory(dir=options.data) as scratch:
        document |= measure(ground, options, Path(scratch))
    document["peers"] = measure_peers(ground, options)
    for name in ("joined", "wide"):
        print(f"{name}: {document['median_cpu'][name]:.1f} CPU s, {document['stages'][name]}")
    print(f"ratio {document['ratio']:.2f}, {document['answers']:,} joined answers, differing: {document['differing']}")
    for peer in document["peers"].values():
        print(f"{peer['title']}: {peer['cpu_of_all']:.1f} CPU s for all queries, without the join")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if document["differing"] else 0


if __name__ == "__main__":
    sys.exit(main())
