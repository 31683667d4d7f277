"""Measurements of each stream: rates, groups per fragment and stage costs. They feed the optimizer; no JVM."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from optimizer.synopses.late import with_late_forms
from optimizer.synopses.sharing import EVENTS, Profile
from optimizer.windows.alignment import day_label
from optimizer.workload.values import ACQ, SECOND, Stream, columns_of, digest, source_columns
from spark_jobs.store.warehouse.data_files import is_of_levels, opened, reading
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import read_split, times_of
from spark_jobs.streams.sources.dimensions import pinned_stream
from spark_jobs.streams.sources.event_counts import EventCounts
from spark_jobs.streams.sources.expressions import evaluate
from spark_jobs.streams.sources.files import files_of
from spark_jobs.streams.sources.splits import FIRST, LAST, Split

FEATURES: dict[str, str] = {
    "runs": "1",
    "processes": "1 if the run was the first of its process: it imports what runs need, and loads kernels",
    "suites": "1 if the run was the first of its process whose answers were all checked: it imports Great Expectations",
    "sessions": "1 if the run was the first of its Spark session: it starts a JVM, or its workers",
    "spark_runs": "1 if some tasks of the run were Spark's, 0 if its own process did them all",
    "queries": "queries that were answered",
    "queries_recomputed": "queries of which the audit recomputed some windows from raw events",
    "events_recomputed": "raw events in those windows, about",
    "events": "source tuples read and decoded, once for all trees",
    "tree_tuples": "source tuples, once for every edge set whose fragments they were assigned to",
    "family_tuples": "source tuples, once for every synopsis (tree, filter and group-by) that was filled",
    "partial_rows_written": "partial rows that the tasks of the first stage wrote",
    "partial_rows_read": "partial rows that tasks read back: to answer, and to make others of them",
    "rows_passed": "partial rows of each query's synopsis, once for every query: each passes over all of them",
    "fragments_combined": "partial rows under each answer, so each row r/s times a query",
    "answers": "answers written",
}
"""Counts of a run's own work that explain its CPU time: name and meaning."""


COUNTS = "counts"
"""Key of :class:`EventCounts` among the costs of a run."""

NO_STREAM = ""
"""The stream of a measurement of a run that read none."""


@dataclass(frozen=True)
class Measured:
    """One measurement of a stream: ``rows`` events with times in [begin, end) (microseconds), and the average number
    of groups with a partial row in a fragment (None before any run).
    """

    stream: str
    begin: int
    end: int
    rows: int
    groups_per_fragment: float | None = None

    @property
    def rate(self) -> Fraction:
        """Tuples per second; 0 without events. A span counts as at least a second."""
        return Fraction(self.rows * SECOND, max(self.end - self.begin, SECOND)) if self.rows else Fraction(0)

    def row(
        self,
        run_id: str,
        stage_cpu_seconds: Mapping[str, float] | None = None,
        features: Mapping[str, int] | None = None,
        about: Mapping[str, Any] | None = None,
        counts: EventCounts | None = None,
    ) -> dict[str, Any]:
        """The measurement as a row of ``stream_statistics``, with the stages' costs and features of its run, what else
        is known ``about`` it (:attr:`Recorded.about`), and the ``counts`` of its events by their time."""
        costs: dict[str, Any] = dict(stage_cpu_seconds or {})
        if about:
            costs["about"] = dict(about)
        if counts is not None:
            costs[COUNTS] = counts.to_json()
        return {
            "stream": self.stream,
            "interval_start": pa.scalar(max(self.begin, FIRST), INSTANT).as_py(),
            "interval_end": pa.scalar(min(self.end, LAST - 1), INSTANT).as_py(),
            "rows": self.rows,
            "rate": float(self.rate),
            "groups_per_fragment": self.groups_per_fragment,
            "stage_cpu_seconds": json.dumps(costs | {"features": dict(features)} if features else costs),
            "run_id": run_id,
            "at": pa.scalar(time.time_ns() // 1000, INSTANT).as_py(),
        }


MANY = 500
"""Files of a source from which on its rate is measured by a sample of them."""

SAMPLED = 200
"""Files of that sample."""


def measure_source(stream: Stream, warehouse: Warehouse | None = None) -> Measured:
    """Measure the rows and the span of event times of everything that a stream's source contains now.

    File statistics provide them where the format has some. A CSV source is read once. If there are more than
    :data:`MANY` files, :data:`SAMPLED` of them, in even steps from the first to the last, represent all. Raises
    what reading raises.
    """
    rows, begin, end = 0, None, None
    files = files_of(stream)
    numbers = np.arange(every := len(files.paths))
    if every > MANY:
        numbers = np.unique(np.linspace(0, every - 1, SAMPLED).round().astype(np.int64))
    for split in files.opened(numbers.tolist()):
        low, high, count = split.begin, split.end, split.rows
        if low is None or high is None or count is None:
            low = high = None
            count = 0
            for batch in read_split(stream, split, []):
                times = batch.column(stream.time).drop_null()
                if len(times):
                    bounds = pc.min_max(times.cast(pa.int64())).as_py()
                    low = bounds["min"] if low is None else min(low, bounds["min"])
                    high = bounds["max"] + 1 if high is None else max(high, bounds["max"] + 1)
                    count += len(times)
        if low is None or high is None:
            continue
        rows += count
        begin = low if begin is None else min(begin, low)
        end = high if end is None else max(end, high)
    rows = round(rows * every / max(len(numbers), 1))
    groups = groups_per_fragment(warehouse, stream.name) if warehouse is not None else None
    return Measured(stream.name, begin or 0, end or 0, rows, groups)


def _middle(stream: Stream) -> Split | None:
    """A split in the middle of a source; None: it has none. No more files are opened than that takes."""
    files = files_of(stream)
    count = len(files.paths)
    for number in sorted(range(count), key=lambda number: abs(number - count // 2)):
        if splits := files.opened([number]):
            return splits[len(splits) // 2]
    return None


def profile(stream: Stream, queries: Sequence[ACQ], rate: Fraction) -> Profile:
    """A sample of a stream's events with all that its queries filter and group by, joined early and late.

    The first events of a split in the middle of the source, in order of time: the same until the source changes.
    Raises what reading raises.
    """
    split = _middle(stream)
    queries = with_late_forms(stream, queries)
    columns = sorted({name for query in queries for name, _ in query.group_by})
    filters = {query.filter for query in queries if query.filter is not None}
    computed = dict(derived for query in queries for derived in query.derived)
    grouped = {name for query in queries for name in source_columns(query.group_by, query.derived)}
    plain = {*grouped, *columns} - computed.keys()
    read = sorted({*plain, *(name for filter in filters for name in columns_of(filter))})
    stream = pinned_stream(stream, read)
    batches = read_split(stream, split, read) if split is not None else iter(())
    batch = next(batches, None)
    if batch is None:
        return Profile(np.zeros(0, dtype=np.int64), {}, {}, float(rate))
    times, batch, _ = times_of(batch, stream)
    order = np.argsort(times, kind="stable")[:EVENTS]
    batch, schema = batch.take(pa.array(order)), stream.types
    codes = {
        name: (evaluate(computed[name], batch, schema) if name in computed else batch.column(name))
        .dictionary_encode(null_encoding="encode")
        .indices.to_numpy()
        .astype(np.int64)
        for name in columns
    }
    holds = {
        filter: pc.fill_null(evaluate(filter, batch, schema), False).to_numpy(zero_copy_only=False)
        for filter in filters
    }
    return Profile(times[order], codes, holds, float(rate))


MEASURED_FILES = 8
"""Files of partial rows of which groups are counted, at most: of a source in order of time each has fragments of its
own."""


def groups_per_fragment(warehouse: Warehouse, stream: str, since: int | None = None) -> float | None:
    """Stored partial rows of a stream per stored fragment (each synopsis counts its own); None without any.

    ``since``: count fragments from this instant on only (None: all). If there are more than :data:`MEASURED_FILES`
    files, an evenly spread sample of them represents all.
    """
    first, last = "" if since is None else day_label(since), chr(sys.maxunicode)
    stored = [file for file in warehouse.files("partials", first, last) if not is_of_levels(file["day"])]
    files = [file for file in stored if _may_hold(file, stream, since)]
    rows, fragments = 0, list[pa.Table]()
    for file in files[:: -(-len(files) // MEASURED_FILES) or 1]:
        count, table = _fragments_of(warehouse, file, stream, since)
        rows += count
        fragments.append(table)
    if not rows:
        return None
    return rows / len(pa.concat_tables(fragments).group_by(["fingerprint", "fragment_start"]).aggregate([]))


def _may_hold(file: Mapping[str, Any], stream: str, since: int | None) -> bool:
    """Return whether a file's statistics allow for partial rows of a stream, from an instant on."""
    least, most, last = (file.get(name) for name in ("min.stream", "max.stream", "max.fragment_start"))
    is_of_stream = least is None or most is None or least <= stream <= most
    return is_of_stream and (since is None or last is None or last >= since)


def _fragments_of(
    warehouse: Warehouse, file: Mapping[str, Any], stream: str, since: int | None
) -> tuple[int, pa.Table]:
    """Number of partial rows of a stream in a file, and their fragments."""
    place = warehouse.place / "partials" / file["path"]
    texts = ["key", "stream", "fingerprint"]
    with reading(place):
        read = opened(place, size=file["size"], read_dictionary=texts).read([*texts, "fragment_start"])
    columns = {name: read[name].unify_dictionaries().combine_chunks() for name in texts}
    keys, streams, synopses = (pc.fill_null(column.indices, -1).to_numpy() for column in columns.values())
    starts = read["fragment_start"].to_numpy()
    chosen = (keys >= 0) & (streams == columns["stream"].dictionary.index(stream).as_py())
    if since is not None:
        chosen &= starts >= since
    numbered = pa.table({"fingerprint": synopses[chosen], "fragment_start": starts[chosen]})
    fragments = numbered.group_by(numbered.schema.names).aggregate([])
    return len(numbered), fragments.set_column(0, "fingerprint", columns["fingerprint"].dictionary.take(fragments[0]))


def log(warehouse: Warehouse, rows: Sequence[dict[str, Any]]) -> None:
    """Add measurements (:meth:`Measured.row`)."""
    warehouse.leased(lambda token: warehouse.append("stream_statistics", rows, token))


@cache
def machine() -> str:
    """This machine in short: its name, its cores and their model."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line for line in lines if line.startswith("model name")), "")
    except OSError:
        model = ""
    return digest([platform.node(), os.cpu_count(), platform.machine(), platform.processor(), model])[:16]


def recorded_costs(warehouse: Warehouse) -> list[tuple[dict[str, int], dict[str, float]]]:
    """Features and CPU seconds by stage of each run, oldest first. Runs of earlier versions recorded no features and
    are skipped.
    """
    rows = warehouse.rows("stream_statistics", ["stage_cpu_seconds", "at"])
    costs = [json.loads(row["stage_cpu_seconds"] or "{}") for row in sorted(rows, key=lambda row: row["at"])]
    for of_run in costs:
        of_run.pop("about", None)
        of_run.pop(COUNTS, None)
    return [(of_run.pop("features"), of_run) for of_run in costs if of_run.get("features")]


@dataclass(frozen=True)
class Recorded:
    """A run as those after it learn from it: amounts by feature, CPU seconds by stage, what was ``expected`` of it
    before, by what plan (``kind``), on which machine, and the CPU seconds ``predicted``."""

    features: Mapping[str, float]
    cpu_seconds: Mapping[str, float]
    expected: Mapping[str, float]
    kind: str
    machine: str
    predicted: float | None = None

    @property
    def about(self) -> dict[str, Any]:
        """The fields that are stored in addition to features and costs."""
        fields = {"kind": self.kind, "machine": self.machine, "predicted": self.predicted}
        return {"expected": dict(self.expected)} | fields

    @property
    def total(self) -> float:
        return sum(self.cpu_seconds.values())


def newest_costs(warehouse: Warehouse, most: int) -> list[Recorded]:
    """The newest runs that recorded their expected features, at most ``most``, the newest first.

    Runs of earlier versions recorded none. Reads no more of the table than necessary.
    """
    has_prediction = pc.match_substring(ds.field("stage_cpu_seconds"), '"about"')
    records = []
    for row in _newest(warehouse, ["stage_cpu_seconds"], has_prediction, most):
        costs = json.loads(row["stage_cpu_seconds"])
        features, about = costs.pop("features", {}), costs.pop("about")
        costs.pop(COUNTS, None)
        records.append(Recorded(features, costs, **about))
    return records


REMEMBERED = 1000
"""Measurements among which the last of each stream is looked for."""


def _newest(
    warehouse: Warehouse, columns: Sequence[str], where: ds.Expression | None = None, most: int = REMEMBERED
) -> list[dict[str, Any]]:
    """The newest measurements, at most ``most``, the newest first."""
    chosen = ds.field("at").is_valid() if where is None else where
    measurements = pa.table({})
    for rows, bound in warehouse.newest_first("stream_statistics", "at", [*columns, "at"], chosen):
        measurements = pa.concat_tables([measurements, rows]) if len(measurements) else rows
        # of equal moments those that came first
        measurements = measurements.sort_by([("at", "descending")]).slice(0, most)
        if len(measurements) == most and (bound is None or measurements["at"][-1].value >= bound):
            break
    return list(measurements.to_pylist())


def last_measured(warehouse: Warehouse, stream: str) -> Fraction | None:
    """The rate that was recorded last, or None."""
    rows = _newest(warehouse, ["stream", "rate"], ds.field("stream") == stream, 1)
    return Fraction(rows[0]["rate"]).limit_denominator(10**9) if rows else None


def last_groups(warehouse: Warehouse) -> dict[str, float]:
    """The groups a fragment of each stream that were recorded last, where any were."""
    known = [row for row in _newest(warehouse, ["stream", "groups_per_fragment"]) if row["groups_per_fragment"]]
    return {row["stream"]: row["groups_per_fragment"] for row in reversed(known)}


def events_between(splits: Sequence[Split], begin: int, end: int) -> float:
    """About how many events lie in [begin, end), events spread evenly over each split; unknown ones count as none."""
    total = 0.0
    for split in splits:
        if split.rows and split.begin is not None and split.end is not None:
            overlap = min(end, split.end) - max(begin, split.begin)
            total += split.rows * max(overlap, 0) / max(split.end - split.begin, 1)
    return total
