"""A process that commits to a warehouse: as often as it is told, or stopping in the middle.

python -m tests.chaos.commits ROOT ROUNDS NAME     # commits
python -m tests.chaos.commits                      # reads [root, deed, point] a line, stops there, goes on
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.windows.alignment import day_label
from optimizer.workload.values import Source, Stream, Workload
from spark_jobs.operations import maintenance
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse import warehouse
from spark_jobs.store.warehouse.data_files import write_files
from spark_jobs.store.warehouse.publish_log import RunRecord, interval_label, log_event, revision_of
from spark_jobs.store.warehouse.schemas import INSTANT, RESULTS, TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, SCHEMA

EVERY = 50
"""Appends to one publication."""

SPANS = 2
"""Intervals that are published again and again, by both."""


def commit_often(house: Warehouse, rounds: int, name: str) -> None:
    for number in range(rounds):
        with house.lease() as token:
            since = house.version("quarantine")
            house.append("quarantine", [noted(name, number, str(since))], token, since=since)
        if number % EVERY == 0:
            publish(house, f"{name}/{number}", number // EVERY % SPANS)


def noted(name: str, number: int, detail: str) -> dict[str, Any]:
    at = pa.scalar(DAY, INSTANT).as_py()
    return {"run_id": name, "stream": "s", "code": "HDL-410", "rows": number, "detail": detail, "at": at}


def answer(span: int, revision: int, run_id: str) -> pa.Table:
    at = pa.scalar(DAY + (span + 1) * MINUTE, INSTANT)
    row = {field.name: None for field in TABLES["results"][0]} | {
        **{"day": day_label(DAY), "stream": "s", "query": "q", "key": "[]", "longs": [], "doubles": [], "texts": []},
        **{"window_start": at.as_py(), "window_end": at.as_py(), "instant": at.as_py()},
        **{"plan_version": 1, "revision": revision, "run_id": run_id},
    }
    return pa.Table.from_pylist([row], RESULTS)


def publish(house: Warehouse, run_id: str, span: int) -> None:
    """One answer of one minute, under the next revision, as runs publish; another may be first with a later one."""
    record = RunRecord(run_id, 1, DAY + span * MINUTE, DAY + (span + 1) * MINUTE)
    try:
        record.revision = revision_of(house, record, str(span), False)
        staged = list(write_files(house.path("results"), answer(span, record.revision, run_id)))
        low, high = pa.scalar(record.begin, INSTANT), pa.scalar(record.end, INSTANT)

        def replaced(stored: pa.Table) -> pa.Array:
            return pc.and_(pc.greater(stored["instant"], low), pc.less_equal(stored["instant"], high))

        days = (day_label(DAY), day_label(DAY))
        interval = interval_label(record.begin, record.end)
        version = house.replace("results", staged, days, replaced, interval, record.revision)
        log_event(house, record, "published", str(span), version)
    except HeddleError as error:
        if error.diagnostic.code != "HDL-512":
            raise


def standing(house: Warehouse) -> dict[int, list[int]]:
    """The revisions that stand of each span."""
    revisions_by_span: dict[int, list[int]] = {}
    for row in DeltaTable(house.path("results")).to_pyarrow_table(columns=["instant", "revision"]).to_pylist():
        span = (int(row["instant"].timestamp() * 1e6) - DAY) // MINUTE - 1
        revisions_by_span.setdefault(span, []).append(row["revision"])
    return revisions_by_span


# ----------------------------------------------------------------------------------------- what is stopped
def _append(house: Warehouse, name: str) -> None:
    with house.lease() as token:
        house.append("quarantine", [noted(name, 1, "")], token)


def _replace(house: Warehouse, name: str) -> None:
    """Both replace all of the day, under names of their own."""
    staged = list(write_files(house.path("results"), answer(0, 5, name)))
    everything = lambda rows: pa.array([True] * len(rows))  # noqa: E731
    house.replace("results", staged, (day_label(DAY), day_label(DAY)), everything, name, 5)


def _allocate(house: Warehouse, name: str) -> None:
    revision_of(house, RunRecord(name, 1, DAY, DAY + MINUTE), name, False)


def _plan(house: Warehouse, name: str) -> None:
    text = QUERIES.replace("25 minutes", "35 minutes" if name == "other" else "45 minutes")
    stream = Stream("trades", Source("parquet", "nowhere"), SCHEMA, "ts")
    workload = Workload(parse(text, {"trades": stream}).queries, (stream,))
    publish_plan(house, build_plan(workload, {"trades": Fraction(1)}))


def _maintain(house: Warehouse, name: str) -> None:
    publish(house, name, 0) if name == "other" else maintenance.maintain(house)


DEEDS: dict[str, Callable[[Warehouse, str], None]] = {
    "append": _append,
    "replace": _replace,
    "allocate": _allocate,
    "plan": _plan,
    "maintain": _maintain,
}

STOPS = ("after lease", "before check", "after check", "before commit")


def prepare(house: Warehouse) -> None:
    """Small files, so that there is something to merge."""
    for span in range(maintenance.FEW + 1):
        publish(house, "before", span)


def state(house: Warehouse) -> dict[str, Any]:
    return {name: DeltaTable(house.path(name)).to_pyarrow_table().to_pylist() for name in TABLES}


def stopping(house: Warehouse, what: str, point: str) -> str:
    """Do it, stopping once at a point; the code of what it says."""
    lease, originals = Warehouse.lease, {}
    remaining_points = [point]

    def stop(reached: str) -> None:
        if remaining_points == [reached]:
            remaining_points.clear()
            os.kill(os.getpid(), signal.SIGSTOP)

    def at(owner: Any, name: str, before: str, after: str) -> None:
        originals[owner, name] = function = getattr(owner, name)

        def stopped(*args: Any, **kwargs: Any) -> Any:
            stop(before)
            result = function(*args, **kwargs)
            stop(after)
            return result

        setattr(owner, name, stopped)

    @contextmanager
    def leased(house: Warehouse) -> Iterator[int]:
        with lease(house) as token:
            stop("after lease")
            yield token

    at(Warehouse, "check_lease", "before check", "after check")
    at(DeltaTable, "create_write_transaction", "before commit", "")
    at(warehouse, "write_deltalake", "before commit", "")
    Warehouse.lease = leased  # type: ignore[method-assign]
    try:
        DEEDS[what](house, "mine")
        return "done"
    except HeddleError as error:
        return error.diagnostic.code
    finally:
        Warehouse.lease = lease  # type: ignore[method-assign]
        for (owner, name), function in originals.items():
            setattr(owner, name, function)


def main() -> None:
    if len(sys.argv) > 1:
        house = Warehouse.open(sys.argv[1], create=False)
        print("ready", flush=True)
        commit_often(house, int(sys.argv[2]), sys.argv[3])
        return
    for line in sys.stdin:
        root, what, point = json.loads(line)
        print(stopping(Warehouse.open(root, create=False), what, point), flush=True)


if __name__ == "__main__":
    main()
