"""Fine partial aggregates that a stream does not keep: complete histories against the oracle, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.values import TIMESTAMP, Source, Stream, Workload
from spark_jobs.operations.fine_partials import DroppedFine
from spark_jobs.operations.maintenance import maintain
from spark_jobs.operations.status import read_status
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.partials import dropped_fine, levels
from tests.oracle import answers, compare
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR
from tests.workloads import POOLS, SCHEMA, arrow_schema

BEGIN = 19_782 * DAY
"""2024-02-29T00:00:00Z: histories begin to be answered."""

DAYS = 3
"""Days that are answered."""

SIZES = ("62 days", "100 days", "366 days", "45 days")


def events_between(chance: np.random.Generator, begin: int, end: int, size: int) -> pa.Table:
    """Events of all columns, spread over [begin, end)."""
    columns: dict[str, Any] = {"ts": np.sort(chance.integers(begin, end, size))}
    for name, _ in SCHEMA:
        columns[name] = [POOLS[name][at] for at in chance.integers(0, min(3, len(POOLS[name])), size)]
    return pa.table(columns, schema=arrow_schema())


class History:
    """A stream of some files, queries of two slides over it, and a warehouse, through what happens to them."""

    def __init__(self, engine: Any, folder: Path, seed: int, texts: list[str], keep_fine: int | None) -> None:
        self.engine, self.texts, self.chance = engine, texts, np.random.default_rng(seed)
        self.source, self.number, self.is_missing = folder / "source", 0, False
        self.source.mkdir()
        self.files: dict[str, pa.Table] = {}
        edges = BEGIN - np.array([400, 300, 200, 101, 100, 40, 0, -1, -2, -3]) * DAY
        for begin, end in zip(edges.tolist(), edges.tolist()[1:], strict=False):
            self.write(events_between(self.chance, begin, end, 20))
        self.warehouse = Warehouse.open(folder / "warehouse")
        self.plan(keep_fine)

    def write(self, rows: pa.Table, name: str = "") -> None:
        """Write a file of events, a new one unless it is named."""
        self.number += 1
        name = name or f"{self.number:03}.parquet"
        self.files[name] = rows
        pq.write_table(rows, self.source / name, row_group_size=5)

    def plan(self, keep_fine: int | None) -> None:
        source = Source("parquet", str(self.source))
        stream = Stream("events", source, (("ts", TIMESTAMP), *SCHEMA), "ts", keep_fine=keep_fine)
        parsed = parse(";\n".join(self.texts), {"events": stream})
        assert not parsed.errors
        self.workload = Workload(parsed.queries, (stream,))
        self.version, _ = publish_plan(self.warehouse, build_plan(self.workload, {"events": Fraction(1)}))

    def run(self, first: int, last: int | None = None, recompute: bool = False) -> RunRecord | None:
        """Answer some days; None if all of it was refused because files are missing."""
        self.number += 1
        span = BEGIN + first * DAY, BEGIN + (first + 1 if last is None else last) * DAY
        try:
            record = run(self.engine, self.warehouse, self.version, *span, f"run-{self.number}", recompute=recompute)
        except HeddleError as error:
            assert error.code == "HDL-517" and self.is_missing
            return None
        assert record.status in ("published", "unchanged")
        return record

    def remove(self, name: str) -> None:
        """Take a file away, without another in its place."""
        (self.source / name).unlink()
        del self.files[name]
        self.is_missing = True

    def maintain(self, erase: bool = False) -> list[DroppedFine]:
        maintained = maintain(self.warehouse, retention=0, erase=erase)
        assert not any(fine.problem for fine in maintained.fine)
        return maintained.fine

    def published(self, name: str) -> pa.Table:
        """What is published of a query for the days that are answered."""
        rows = read(self.warehouse, name)
        return rows.filter(
            pc.greater(rows["window_end"], pa.scalar(BEGIN, pa.timestamp("us")).cast(rows["window_end"].type))
        )

    def wrong(self, refused: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
        """Differences between what is published and the oracle, of the queries that were not refused."""
        table = pa.concat_tables(self.files.values())
        return [
            f"{query.name}: {line}"
            for query in self.workload.queries
            if query.name not in refused
            for line in compare(
                query, self.published(query.name), answers(query, table, "ts", BEGIN, BEGIN + DAYS * DAY)
            )
        ]

    def checked(self) -> set[str]:
        """Repair all days, and compare. Returns the queries that were refused: nothing of them is published anew."""
        refused: set[str] = set()
        for day in range(DAYS):
            record = self.run(day)
            names = {query.name for query in self.workload.queries}
            if record is not None:
                codes = [issue for issue in record.diagnostics if issue["code"] == dropped_fine.GONE]
                names = {issue["query"] for issue in codes}
                assert self.is_missing or not names
            refused |= names
        assert self.wrong(refused) == []
        return refused


@pytest.fixture
def eager() -> Iterator[pytest.MonkeyPatch]:
    """Each day is closed at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "BATCH", 1)
        yield patch


def text(name: str, size: str, slide: str, ago: str = "", group: str = "late") -> str:
    outputs = "count(*) AS n, sum(volume) AS s, max(price) AS m, median(volume) AS d, first(code) AS f"
    window = f"WINDOW RANGE '{size}' SLIDE '{slide}'{ago} ON ts"
    return f"-- name: {name}\nSELECT {group}, {outputs} FROM events {window} GROUP BY {group}"


STEPS = ("run", "run", "late", "rewrite", "remove", "maintain", "maintain", "recompute", "erase", "keep", "query")


@settings(DEAR, max_examples=examples(2, 40, slow=5))
@given(data=st.data(), seed=st.integers(0, 1 << 16))
def test_what_is_dropped_changes_no_answer(
    engine: Any, eager: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, seed: int
) -> None:
    """Runs, late events, files rewritten and removed, maintenance, erasure, other settings and queries, in any order;
    in the end all answers are those of the oracle, or refused."""
    # 0: no window is so short that fragments are kept for it
    eager.setattr(levels, "LONG", data.draw(st.sampled_from((0, 0, 62 * DAY))))
    slides = data.draw(st.permutations(("1 day", "6 hours", "7 days")))[:2]
    texts = [
        text(
            f"q{number}",
            data.draw(st.sampled_from(SIZES)),
            slide,
            data.draw(st.sampled_from(("", " ENDING '20 days' AGO"))),
        )
        for number, slide in enumerate(slides)
    ]
    keep_fine = data.draw(st.sampled_from((DAY, 50 * DAY, 90 * DAY, 300 * DAY)))
    history = History(engine, tmp_path_factory.mktemp("history"), seed, texts, keep_fine)
    history.run(0)
    for _ in range(data.draw(st.integers(2, 7))):
        step, names = data.draw(st.sampled_from(STEPS)), sorted(history.files)
        name = data.draw(st.sampled_from(names))
        if step in ("run", "recompute"):
            history.run(data.draw(st.integers(0, DAYS - 1)), recompute=step == "recompute")
        elif step == "late":
            back = data.draw(st.integers(1, 380)) * DAY
            history.write(events_between(history.chance, BEGIN - back, BEGIN - back + DAY, 2))
        elif step == "rewrite":
            history.write(history.files[name].slice(1), name)
        elif step == "remove" and len(names) > 2:
            history.remove(name)
        elif step in ("maintain", "erase"):
            history.maintain(erase=step == "erase")
        elif step == "keep":
            keep_fine = data.draw(st.sampled_from((None, DAY, 100 * DAY)))
            history.plan(keep_fine)
        elif step == "query":
            group = data.draw(st.sampled_from(("late", "carrier")))
            history.texts.append(text(f"q{len(history.texts)}", "70 days", "3 hours", "", group))
            history.plan(keep_fine)
    refused = history.checked()
    if refused:
        # what is refused is answered from the files that there are if it is asked for
        for day in range(DAYS):
            history.run(day, recompute=True)
        assert history.wrong() == []


ZEROS = dict.fromkeys(("days", "rows", "bytes", "levels"), 0)

LONG_TEXTS = [text("six_hourly", "100 days", "6 hours"), text("daily", "366 days", "1 day")]
"""Windows of one synopsis, of which some begin in periods that the others cover."""


@pytest.fixture
def history(engine: Any, eager: pytest.MonkeyPatch, tmp_path: Path) -> History:
    history = History(engine, tmp_path, 7, LONG_TEXTS, 20 * DAY)
    # in the days in which windows begin
    history.write(events_between(history.chance, BEGIN - 100 * DAY, BEGIN - 97 * DAY, 40))
    history.run(0)
    return history


def stored_days(history: History) -> dict[str, set[int]]:
    """The days on which stored rows of fragments, and of levels, begin."""
    rows = history.warehouse.dataset("partials").to_table(["day", "fragment_start", "key"]).to_pylist()
    groups = [row for row in rows if row["key"] is not None]
    return {
        "fragments": {row["fragment_start"] // DAY for row in groups if len(row["day"]) == len("2024-02-29")},
        "days": {row["fragment_start"] // DAY for row in groups if len(row["day"]) == len("2024-02")},
        "months": {row["fragment_start"] // DAY for row in groups if len(row["day"]) == len("2024")},
    }


def test_only_days_below_levels_that_are_old_enough_are_dropped(history: History, eager: pytest.MonkeyPatch) -> None:
    before = stored_days(history)
    (fine,) = maintain(history.warehouse, dry_run=True).fine
    assert stored_days(history) == before
    (dropped,) = history.maintain()
    assert (dropped.rows, dropped.days, dropped.levels) == (fine.rows, fine.days, fine.levels) and dropped.rows > 50
    until = BEGIN + DAY - 20 * DAY
    assert dropped.until == until and dropped.raised_by is None
    after = stored_days(history)
    assert all(after[name] == before[name] for name in ("days", "months"))
    assert after["fragments"] == {day for day in before["fragments"] if day >= until // DAY}
    (again,) = history.maintain()
    assert again.rows == again.days == 0
    (standing,) = read_status(history.warehouse, 1).fine
    assert (standing.rows, standing.days) == (dropped.rows, dropped.days)
    assert standing.until is not None and until - 5 * DAY < standing.until <= until
    house = str(history.warehouse.root)
    lines = CliRunner().invoke(app, ["status", "--warehouse", house]).stdout.splitlines()
    assert any(line.startswith(f"events: {dropped.rows} fine partial rows") for line in lines)
    shown = json.loads(CliRunner().invoke(app, ["status", "--warehouse", house, "--json"]).stdout)["fine_dropped"]
    assert shown[0]["keep_fine"] == "20 days" and shown[0]["rows"] == dropped.rows
    shown = json.loads(CliRunner().invoke(app, ["maintain", "--warehouse", house, "--json"]).stdout)["fine"]
    assert shown == [{"stream": "events", "keep_fine": "20 days", "until": format_instant(until)} | ZEROS]
    # the next day reads levels, and lifts the day again in which its windows begin; it closes none
    eager.setattr(levels, "BATCH", 8)
    record = history.run(1)
    assert record is not None and 0 < record.rows_scanned < 60
    after = stored_days(history)
    assert all(after[name] >= before[name] for name in ("days", "months")) and before["months"]
    assert BEGIN // DAY - 99 in after["fragments"] and record.features["partial_rows_read"] < 150
    assert history.checked() == set()


def test_nothing_is_dropped_unless_the_stream_allows_it(history: History) -> None:
    before = stored_days(history)
    history.plan(None)
    assert history.maintain() == [] and stored_days(history) == before
    history.plan(400 * DAY)
    assert [fine.rows for fine in history.maintain()] == [0] and stored_days(history) == before


def test_fragments_are_kept_for_the_windows_that_begin_in_them(engine: Any, tmp_path: Path, eager: Any) -> None:
    texts = [text("long", "100 days", "6 hours"), text("short", "40 days", "6 hours")]
    history = History(engine, tmp_path, 3, texts, 20 * DAY)
    history.run(0)
    output = CliRunner().invoke(app, ["maintain", "--warehouse", str(history.warehouse.root), "--dry-run"]).stdout
    assert "would be dropped; " in output and " rows of their levels stay" in output
    assert "events: keep_fine is raised to 40 days: windows of short begin or end there" in output
    (fine,) = history.maintain()
    assert (fine.raised_by, fine.keep_fine) == ("short", 40 * DAY)
    assert fine.until == BEGIN + DAY - 40 * DAY and fine.rows > 0
    # of windows of another synopsis nothing is raised
    history.texts = [text("long", "100 days", "6 hours"), text("short", "40 days", "6 hours", "", "carrier")]
    history.plan(20 * DAY)
    (fine,) = history.maintain()
    assert (fine.raised_by, fine.keep_fine) == (None, 20 * DAY)


def test_levels_of_another_state_of_the_source_cover_nothing(history: History) -> None:
    days = sorted(day for day in stored_days(history)["fragments"] if day < BEGIN // DAY - 20)
    changed = days[len(days) // 2]
    history.write(events_between(history.chance, changed * DAY, (changed + 1) * DAY, 1))
    history.maintain()
    assert stored_days(history)["fragments"].intersection(days) == {changed}


def test_late_event_lifts_its_day_again_as_a_whole(history: History) -> None:
    history.maintain()
    at = BEGIN - 60 * DAY + 5 * DAY // 8
    history.write(events_between(history.chance, at, at + 1, 1))
    assert history.checked() == set()
    days = stored_days(history)["fragments"]
    assert at // DAY in days and not {at // DAY - 1, at // DAY + 1} & days
    # and goes again
    (fine,) = history.maintain()
    assert fine.rows > 0 and at // DAY not in stored_days(history)["fragments"]
    assert history.checked() == set()


def test_what_needs_dropped_fragments_of_missing_files_is_refused(history: History) -> None:
    history.checked()
    history.maintain()
    answers_before = read(history.warehouse, "six_hourly")
    name = "005.parquet"  # of the last 40 to 100 days
    rows = history.files[name]
    history.remove(name)
    with pytest.raises(HeddleError) as refusal:
        run(history.engine, history.warehouse, history.version, BEGIN, BEGIN + DAY, "refused")
    assert refusal.value.code == "HDL-517"
    assert read(history.warehouse, "six_hourly").equals(answers_before)
    assert history.checked() == {"six_hourly", "daily"}
    # a query of the newest fragments goes on
    history.texts.append(text("newest", "10 days", "1 day", "", "code"))
    history.plan(20 * DAY)
    record = history.run(0)
    assert record is not None
    issues = [issue for issue in record.diagnostics if issue["code"] == "HDL-618"]
    assert {issue["query"] for issue in issues} == {"six_hourly", "daily"}
    assert name in issues[0]["message"] and "--recompute" in issues[0]["hint"]
    # a query that comes later, over the same time
    history.texts.append(text("hourly", "2 days", "1 hour"))
    history.plan(20 * DAY)
    former = BEGIN - 80 * DAY
    with pytest.raises(HeddleError, match="none of the plan's queries"):
        run(history.engine, history.warehouse, history.version, former, former + DAY, "a former day")
    # the file is back
    history.write(rows, name)
    assert history.checked() == set()
    run(history.engine, history.warehouse, history.version, former, former + DAY, "a former day again")
    history.remove(name)
    history.maintain(erase=True)
    assert history.checked() == set()


@pytest.mark.longer
def test_rewritten_file_of_a_dropped_day_is_no_missing_one(history: History) -> None:
    history.maintain()
    history.write(history.files["005.parquet"].slice(3), "005.parquet")
    assert history.checked() == set()
    # in other files, too
    history.maintain()
    rows = history.files["004.parquet"]
    history.write(rows.slice(0, 9))
    history.write(rows.slice(9))
    (history.source / "004.parquet").unlink()
    del history.files["004.parquet"]
    assert history.checked() == set()


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("is_after", [False, pytest.param(True, marks=pytest.mark.longer)])
def test_drop_that_ends_in_between_leaves_complete_months(
    history: History, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    commit, count = Warehouse.commit, 0
    total = sum(fine.rows for fine in maintain(history.warehouse, dry_run=True).fine)

    def dies(at: int) -> Any:
        def committing(self: Warehouse, *given: Any, **named: Any) -> None:
            nonlocal count
            count += 1
            if count == at and not is_after:
                raise Killed
            commit(self, *given, **named)
            if count == at:
                raise Killed

        return committing

    remaining = total
    for at in (1, 2):
        count = 0
        monkeypatch.setattr(Warehouse, "commit", dies(at))
        with pytest.raises(Killed):
            history.maintain()
        monkeypatch.setattr(Warehouse, "commit", commit)
        rows = sum(fine.rows for fine in maintain(history.warehouse, dry_run=True).fine)
        assert rows <= remaining and (rows < remaining or (at == 1 and not is_after))
        remaining = rows
    assert remaining > 0
    assert history.checked() == set()
    assert sum(fine.rows for fine in history.maintain()) >= remaining
    assert history.checked() == set()


@pytest.mark.longer
def test_run_whose_fragments_are_dropped_meanwhile_publishes_nothing(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.pipeline.run import partials_stage

    history.maintain()
    fill = partials_stage.fill

    def dropped_in_between(*given: Any) -> Any:
        filled = fill(*given)
        history.maintain()
        return filled

    monkeypatch.setattr(partials_stage, "fill", dropped_in_between)
    with pytest.raises(HeddleError) as refusal:
        run(history.engine, history.warehouse, history.version, BEGIN + DAY, BEGIN + 2 * DAY, "meanwhile")
    assert refusal.value.code == "HDL-541"
    monkeypatch.undo()
    assert history.checked() == set()


@pytest.mark.longer
def test_recomputed_answers_replace_levels(history: History) -> None:
    history.maintain()
    record = history.run(0, recompute=True)
    assert record is not None and record.rows_scanned > 50
    assert min(stored_days(history)["fragments"]) <= BEGIN // DAY - 300
    assert sum(fine.rows for fine in history.maintain()) > 50
    assert history.checked() == set()
