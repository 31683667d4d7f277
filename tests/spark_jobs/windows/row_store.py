"""What runs keep of a stream with windows of rows, in memory, and its answers compared with the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.synopses.synopsis import Synopsis, counts_of, synopses_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import (
    ACQ,
    Workload,
)
from spark_jobs.store.warehouse.schemas import ANSWERS, PARTIALS
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import partials_of
from spark_jobs.windows.row_windows.answers import finals_of_rows
from spark_jobs.windows.row_windows.lifting import RowLifting
from spark_jobs.windows.row_windows.numbering import Counts
from tests.oracle import answers, compare
from tests.spark_jobs.kernels import as_read, decoded, of_query
from tests.workloads import Case


class Store:
    """What runs keep of a case's stream: the rows of each day, counted and lifted; ``cuts`` cut the events into
    batches."""

    def __init__(self, case: Case, cuts: Sequence[int] = (), apart: bool = False) -> None:
        self.stream = case.stream
        self.cuts, self.apart = cuts, apart
        self.synopses: dict[Synopsis, tuple[ACQ, ...]] = {}
        for queries in self._trees(case.workload.queries):
            for synopsis, members in synopses_of(self.stream, queries).items():
                self.synopses[synopsis] = (*self.synopses.get(synopsis, ()), *members)
        self.counted = {per: counts_of(self.stream, per) for per in {synopsis.per or () for synopsis in self.synopses}}
        self.stored = {synopsis: PARTIALS.empty_table() for synopsis in (*self.synopses, *self.counted.values())}
        self.fill(case.events)

    def _trees(self, queries: Iterable[ACQ]) -> list[list[ACQ]]:
        trees: dict[object, list[ACQ]] = {}
        for query in queries:
            trees.setdefault(query.name if self.apart else query.window.per, []).append(query)
        return list(trees.values())

    def fill(self, events: pa.Table, first: int | None = None) -> None:
        """Store the days from ``first`` (default: the first with a row) on as ``events`` have them."""
        table = decoded(Case(Workload((), (self.stream,)), events, 0, 1))
        bounds = pc.min_max(table["ts"].cast(pa.int64())).as_py()
        if bounds["min"] is None:
            return
        begin = bounds["min"] // DAY * DAY if first is None else first
        end = (bounds["max"] // DAY + 1) * DAY

        def read(columns: list[str]) -> Iterable[pa.RecordBatch]:
            edges = sorted({0, len(table), *(cut % (len(table) + 1) for cut in self.cuts)})
            for low, high in zip(edges, edges[1:], strict=False):
                yield from table.select(["ts", *columns]).slice(low, high - low).combine_chunks().to_batches()

        for synopsis in self.counted.values():
            self._replace(
                synopsis,
                begin,
                partials_of(read(table.schema.names[1:]), self.stream, [FillRequest(synopsis, begin, end)]),
            )
        counts = self.counts()
        lifting = RowLifting(self.stream, self.requests(begin, end), counts)
        for block in next(iter(counts.values())).blocks(begin, end, most=5):
            for cells in lifting.cells(read, *block):
                assert ((block[0] <= cells.starts) & (cells.starts < block[1])).all()
                self._replace(cells.synopsis, block[0], cells.encode())
        assert not lifting.failed

    def requests(self, begin: int, end: int) -> list[FillRequest]:
        """All synopses of some days."""
        return [FillRequest(synopsis, begin, end) for synopsis in self.synopses]

    def _replace(self, synopsis: Synopsis, begin: int, rows: pa.Table) -> None:
        stored = self.stored[synopsis]
        rows = rows.filter(pc.equal(rows["fingerprint"], synopsis.fingerprint))
        self.stored[synopsis] = pa.concat_tables([stored.filter(pc.less(stored["fragment_start"], begin)), rows])

    def counts(self) -> dict[tuple[str, ...], Counts]:
        return {per: Counts.of(synopsis, self.stored[synopsis]) for per, synopsis in self.counted.items()}

    def answers(self, begin: int, end: int) -> pa.Table:
        """Of all queries, from no more days than a run over [begin, end) reads."""
        batches: list[pa.RecordBatch] = []
        counts = self.counts()
        for synopsis, queries in self.synopses.items():
            first = counts[synopsis.per or ()].history_start([query.window for query in queries], begin, end)
            rows = self.stored[synopsis]
            rows = rows.filter(pc.greater_equal(rows["fragment_start"], first))
            batches += (answers.rows() for answers in finals_of_rows(rows, synopsis, queries, begin, end))
        return pa.Table.from_batches(batches, ANSWERS)


def wrong(case: Case, table: pa.Table, events: pa.Table | None = None) -> list[str]:
    events = case.events if events is None else events
    differences = []
    for query in case.workload.queries:
        expected = answers(query, events, "ts", case.begin, case.end)
        rows = of_query(table, query)
        ours = as_read(query, rows).append_column("position", rows["position"])
        differences += [f"{query.name}: {line}" for line in compare(query, ours, expected)]
    return differences
