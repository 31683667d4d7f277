"""The events that came too late and are refused, and taking them in all the same
(:mod:`spark_jobs.streams.sources.ledger`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.arrivals import Arrival
from spark_jobs.streams.sources.ledger import ledger, next_moment


def refusals(warehouse: Warehouse) -> list[Arrival]:
    """The files of which events are refused now, by stream and path."""
    names, version = {row["stream"] for row in warehouse.rows("source_files", ["stream"])}, current_version(warehouse)
    # what was refused by times that were declared otherwise is refused no more
    planned = () if version is None else load_plan(warehouse, version).workload.streams
    streams = {name: name for name in names} | {stream.name: stream for stream in planned if stream.name in names}
    arrivals = [arrival for name in sorted(names) for arrival in ledger(warehouse, streams[name]).all()]
    return sorted(
        (arrival for arrival in arrivals if arrival.is_here and arrival.late),
        key=lambda arrival: (arrival.stream, arrival.path),
    )


def release(warehouse: Warehouse, paths: Sequence[str]) -> list[Arrival]:
    """Take in what is refused of some files (by path, or the end of one): the intervals that it changes are outdated
    then, and repaired as others are. Returns the files. Raises HDL-412 for one of which nothing is refused."""
    with warehouse.lease() as token:
        refused = refusals(warehouse)
        released_files: dict[str, Arrival] = {}
        for path in paths:
            matches = [arrival for arrival in refused if arrival.path == path or arrival.path.endswith("/" + path)]
            if not matches:
                known = ", ".join(Path(arrival.path).name for arrival in refused[:8]) or "nothing is"
                raise HeddleError("HDL-412", f"nothing of {path} is refused", f"refused: {known}")
            released_files |= {arrival.identity: arrival for arrival in matches}
        released = [
            replace(arrival, event="released", noted=next_moment(ledger(warehouse, arrival.stream)), refused=(), late=0)
            for arrival in released_files.values()
        ]
        warehouse.append("source_files", [arrival.row() for arrival in released], token)
    return list(released_files.values())
