"""Files that are as the ledger has them and hold nothing for a run are not opened: it takes in what it would else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.workload.values import Source, Stream
from spark_jobs.pipeline.run.preparation import listed
from spark_jobs.store.warehouse.schemas import TABLES
from spark_jobs.streams.sources.declared import Declaration
from spark_jobs.streams.sources.formats import parquet as parquet_module
from spark_jobs.streams.sources.ledger import Arrival, Ledger, _by_moment, ledger
from spark_jobs.streams.sources.splits import SourceFiles
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY
from tests.spark_jobs.streams.twins import CLOCK, HOURS, SCHEMA, Twins, events

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5), st.integers(0, 200), st.integers(0, 30)),
        st.tuples(st.just("keep"), st.integers(0, 5), st.integers(0, 200), st.integers(1, 30)),
        st.tuples(st.sampled_from(["remove", "touch", "swap"]), st.integers(0, 5), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("look"), st.integers(0, 220), st.integers(1, 24), st.just(0)),
    ),
    min_size=3,
    max_size=12,
)


@pytest.mark.parametrize("format", ["parquet", "csv", "delta"])
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(history=steps, has_ids=st.booleans())
def test_what_is_taken_in_is_what_all_files_give(
    tmp_path_factory: pytest.TempPathFactory, format: str, history: list[tuple[str, int, int, int]], has_ids: bool
) -> None:
    twins = Twins(tmp_path_factory.mktemp("twins"), format, event_id="id" if has_ids else None)
    twins.write(0, 0, 30)
    for step, name, number, more in [*history, ("look", 30, 12, 0), ("look", 150, 12, 0)]:
        if step in ("write", "keep"):
            twins.write(name, number, more, step == "keep")
        elif step == "look":
            every, needed = twins.look(name, name + number)
            assert needed == every
        else:
            twins.change(step, name, number)


def opened_by(twins: Twins, begin: int, end: int, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The files that the second warehouse opens for a run over some hours, by name."""
    seen: list[str] = []
    opening = parquet_module.parquet_splits

    def watched(stream: Stream, path: str, *arguments: Any, **options: Any) -> Any:
        seen.append(Path(path).name)
        return opening(stream, path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(parquet_module, "parquet_splits", watched)
        listed(twins.needed, twins.plan, CLOCK, "a run", within=(DAY + begin * HOURS, DAY + end * HOURS))
    return set(seen)


def test_a_run_opens_what_is_new_and_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(tmp_path, "parquet")
    for name in range(10):
        twins.write(name, 24 * name, 24)
    assert opened_by(twins, 220, 230, monkeypatch) == {f"{name}.parquet" for name in range(10)}
    # a day back, by whole days
    assert opened_by(twins, 220, 230, monkeypatch) == {"8.parquet", "9.parquet"}
    twins.write(2, 48, 12)
    assert opened_by(twins, 220, 230, monkeypatch) == {"2.parquet", "8.parquet", "9.parquet"}
    assert opened_by(twins, 220, 230, monkeypatch) == {"8.parquet", "9.parquet"}


def test_a_column_that_older_files_alone_have_is_there(tmp_path: Path) -> None:
    twins = Twins(tmp_path, "parquet")
    for name in range(5):
        rows = events(48 * name, 48 * name + 24, name)
        path = twins.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows if name == 1 else rows.drop_columns(["volume"]), path)
    twins.look(0, 240)
    _, (content, failed, codes, *_) = twins.look(216, 240)
    assert (failed, codes) == ((), []) and content


@pytest.mark.parametrize("written", [0, 30 * DAY])
def test_a_file_of_a_store_is_known_by_its_moment_an_hour_later(written: int) -> None:
    stream = Stream("trades", Source("csv", "s3://bucket/trades"), SCHEMA, "ts")
    noted = written + HOURS
    name = "s3://bucket/trades/a|b.csv"
    row = {
        "stream": "trades",
        "identity": f'{name}|12|"tag"',
        "path": name,
        "event": "came",
        "arrived": written,
        "begin": 0,
        "end": DAY,
        "refused": "[]",
        "late": 0,
        "at": noted,
        "stamps": None,
        "commit": None,
        "changed": None,
    }

    def settled(mark: str, at: int, suffix: str = "", plans: tuple[Stream, ...] = (stream,)) -> list[bool]:
        then = row | {"at": at, "identity": f"{row['identity']}{suffix}"}
        rows = pa.Table.from_pylist([then], TABLES["source_files"][0])
        files = SourceFiles([name], lambda: [mark], lambda numbers: [], ["a|b.csv"])
        known = Ledger("trades", 1, rows, None, Declaration(stream, lambda: plans))
        return list(known.settled_in(stream, files, (2 * DAY, 3 * DAY))[0])

    assert settled(f"12|{written}", noted + 1) == [True]
    # within the hour it may be written again under the same moment
    assert settled(f"12|{written}", noted) == [False]
    assert settled(f"13|{written}", noted + 1) == [False]
    assert settled(f"12|{written + 1}", noted + 1) == [False]
    # whatever an earlier Heddle had behind it; but only if the times are declared as in the plans of then
    other = replace(stream, source=replace(stream.source, header=False))
    for plans, expected in (((stream,), [True]), ((other,), [False]), ((stream, other), [False])):
        assert settled(f"12|{written}", noted + 1, '|as {"header": false}|one of each id', plans) == expected


def test_nothing_of_the_ledger_is_lost_in_columns(tmp_path: Path) -> None:
    twins = Twins(tmp_path, "parquet")
    twins.write(1, 0, 24)
    twins.write(2, 48, 24)
    twins.look(0, 72)
    twins.change("remove", 1, 0)
    twins.look(0, 72)
    trades_ledger = ledger(twins.needed, "trades")
    assert [arrival.event for arrival in trades_ledger.values()] == ["gone", "came"] and len(trades_ledger) == 2
    assert trades_ledger.extent == (DAY + 48 * HOURS + 2, DAY + 71 * HOURS + 3)
    assert [arrival.event for arrival in trades_ledger.since(0)] == ["gone", "came"] and trades_ledger.since(
        trades_ledger.newest
    ) == []
    assert trades_ledger.newest == max(arrival.noted for arrival in trades_ledger.values())


bounds = st.one_of(st.none(), st.integers(0, 12))
spans_asked = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), max_size=5)
files_noted = st.lists(st.tuples(st.integers(0, 5), bounds, bounds, st.integers(1, 9)), max_size=9)


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=files_noted, added=files_noted, spans=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), max_size=5)
)
def test_the_newest_entry_of_a_span_is_that_of_all_files(rows: list[Any], added: list[Any], spans: list[Any]) -> None:
    def arrival(name: int, begin: int | None, end: int | None, noted: int) -> Arrival:
        if begin is not None and end is not None:
            begin, end = min(begin, end), max(begin, end) + 1
        return Arrival("trades", f"{name}|0|0", f"{name}", "came", noted, noted, begin, end)

    # what is added comes after all that is stored
    stored = sorted((arrival(*row) for row in rows), key=lambda file: file.noted)
    more = {file.identity: file for file in (arrival(name, begin, end, noted + 9) for name, begin, end, noted in added)}
    table = pa.Table.from_pylist([file.row() for file in stored], TABLES["source_files"][0])
    trades_ledger = Ledger("trades", 1, table, more)
    # of one of the table that does not say both of its bounds any time counts
    last = {
        file.identity: replace(file, begin=None, end=None) if None in (file.begin, file.end) else file
        for file in stored
    } | more
    begins, lengths = (np.array([span[at] for span in spans], dtype=np.int64) for at in (0, 1))
    expected = []
    for begin, end in zip(begins.tolist(), (begins + lengths).tolist(), strict=True):
        expected.append(max((file.noted for file in last.values() if file.meets(begin, end)), default=0))
    assert trades_ledger.newest_in(begins, begins + lengths).tolist() == expected


@settings(max_examples=examples(100), deadline=None)
@given(pieces=st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=4))
def test_rows_of_a_ledger_are_ordered_by_their_moments(pieces: list[list[int]]) -> None:
    schema, number, tables = pa.schema([("at", pa.timestamp("us")), ("number", pa.int64())]), 0, list[pa.Table]()
    for piece in pieces:
        numbers = range(number, number + len(piece))
        tables.append(pa.table({"at": pa.array(piece, schema.field("at").type), "number": numbers}, schema))
        number += len(piece)
    rows = pa.concat_tables([schema.empty_table(), *tables])
    assert _by_moment(rows).equals(rows.sort_by("at"))
