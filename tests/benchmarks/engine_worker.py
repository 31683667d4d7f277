"""Runs statements of one engine in an environment of its own, for :class:`tests.benchmarks.workers.Worker`.

    python engine_worker.py ENGINE THREADS

Reads one JSON object a line from standard input, ``{"statement": text, "into": folder or null}``, runs it to its end,
and answers each with one line of JSON: null, or the error. Rows become an Arrow table that is dropped (those of Flink
go to its sink ``blackhole``), or Parquet in the folder. Needs the engine and PyArrow; nothing of Heddle.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[[str], Any]
"""A statement to an Arrow table."""


def duckdb(threads: int) -> Run:
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": threads})
    connection.execute("SET TimeZone = 'UTC'")
    return lambda statement: connection.sql(statement).to_arrow_table()


def polars(threads: int) -> Run:
    """A statement is a serialized lazy frame, in base 64."""
    os.environ["POLARS_MAX_THREADS"] = str(threads)  # it reads this once, when it is imported
    import polars

    def run(statement: str) -> Any:
        return polars.LazyFrame.deserialize(base64.b64decode(statement)).collect(engine="streaming").to_arrow()

    return run


def polars_scripts(threads: int) -> Run:
    """A statement is Python over ``pl``; what it assigns stays for the next one."""
    os.environ["POLARS_MAX_THREADS"] = str(threads)
    import polars

    names = {"pl": polars}
    return lambda statement: exec(statement, names)  # noqa: S102 - the benchmark's own statements


def clickhouse(threads: int) -> Run:
    import pyarrow.ipc
    from chdb import session

    chdb_session = session.Session()
    settings = ("prefer_column_name_to_alias = 1", "cast_keep_nullable = 1", "query_plan_optimize_join_order_limit = 0")
    for name in (*settings, f"max_threads = {threads}"):
        chdb_session.query(f"SET {name}")

    def run(statement: str) -> Any:
        rows = chdb_session.query(statement, "ArrowStream").bytes()  # none of what is no query
        return pyarrow.ipc.open_stream(rows).read_all() if rows else None

    return run


def datafusion(threads: int) -> Run:
    from datafusion import SessionConfig, SessionContext

    context = SessionContext(SessionConfig().with_target_partitions(threads)).enable_url_table()
    return lambda statement: context.sql(statement).to_arrow_table()


def into_files(run: Run) -> Callable[[str, str | None], None]:
    """What runs a statement and drops its rows or writes them into a folder."""

    def go(statement: str, into: str | None) -> None:
        table = run(statement)
        if into is not None:
            import pyarrow.parquet

            pyarrow.parquet.write_table(table, Path(into) / "answers.parquet")

    return go


def flink(threads: int) -> Callable[[str, str | None], None]:
    """In batch mode. A statement that is no query (DDL) is run as it is."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    environment = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    settings = environment.get_config()
    settings.set("parallelism.default", str(threads))
    settings.set("table.local-time-zone", "UTC")
    settings.set("pipeline.jars", os.environ["FLINK_JARS"])

    def go(statement: str, into: str | None) -> None:
        if statement.startswith("CREATE"):
            environment.execute_sql(statement).wait()
            return
        sink = "'connector' = 'blackhole'"
        if into is not None:
            sink = f"'connector' = 'filesystem', 'path' = '{into}', 'format' = 'parquet'"
        environment.execute_sql("DROP TABLE IF EXISTS answers").wait()
        environment.execute_sql(f"CREATE TABLE answers WITH ({sink}) AS {statement}").wait()

    return go


ENGINES: dict[str, Callable[[int], Run]] = {
    "duckdb": duckdb,
    "polars": polars,
    "polars_scripts": polars_scripts,
    "clickhouse": clickhouse,
    "datafusion": datafusion,
}


PDEATHSIG = 1


def main() -> None:
    if sys.platform == "linux":
        # a benchmark that was stopped waits for no answer: this ends with it
        ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
    # engines print as they like: the answers have standard output to themselves
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine, threads = sys.argv[1], int(sys.argv[2])
    go = flink(threads) if engine == "flink" else into_files(ENGINES[engine](threads))
    for line in sys.stdin:
        problem = None
        try:
            go(**json.loads(line))
        except BaseException as error:  # an engine in Rust panics with what is no Exception
            problem = str(error) or traceback.format_exc()
        print(json.dumps(problem), file=answers, flush=True)


if __name__ == "__main__":
    main()
