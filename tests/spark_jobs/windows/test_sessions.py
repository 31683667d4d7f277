"""Sessions: which runs are stored and read again, late events, sessions that are too long, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.schemas import micros
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.loading import Reader
from tests.chaos.orders import in_process

DAY = datetime(2026, 5, 2, tzinfo=UTC)
SCHEMA = (("t", TIMESTAMP), ("user", STRING), ("site", STRING), ("n", LONG))
Click = tuple[float, str, str, int]


class Clicks:
    """A warehouse over clicks (minutes after midnight, user, site, n)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.runs = folder, 0, 0
        (folder / "clicks").mkdir()
        self.stream = Stream("clicks", Source("parquet", str(folder / "clicks")), SCHEMA, "t")
        self.warehouse = Warehouse.open(folder / "house")
        self.version = 0

    def add(self, *rows: Click) -> None:
        self.files += 1
        moments = [(DAY + timedelta(minutes=minute), *rest) for minute, *rest in rows]
        columns = [pa.array(column) for column in zip(*moments, strict=True)]
        table = pa.table(columns, [name for name, _ in SCHEMA])
        pq.write_table(table, self.folder / "clicks" / f"{self.files}.parquet")

    def plan(self, *queries: str) -> None:
        text = ";\n".join(f"-- name: q{number}\n{query}" for number, query in enumerate(queries))
        parsed = parse(text, {"clicks": self.stream})
        assert not parsed.errors, parsed.errors
        plan = build_plan(Workload(parsed.queries, (self.stream,)), {"clicks": Fraction(1)}, "weave-share")
        self.version, _ = publish_plan(self.warehouse, plan)

    def run(self, begin: float = 0, end: float = 1440) -> RunRecord:
        self.runs += 1
        first, last = (micros(DAY + timedelta(minutes=minute)) for minute in (begin, end))
        record = run(in_process(), self.warehouse, self.version, first, last, f"run-{self.runs}", as_of=last + 10**13)
        assert record.status == "published", record.diagnostics
        return record

    def answers(self, name: str = "q0", columns: Sequence[str] = ("user", "n")) -> list[tuple[object, ...]]:
        """Start and end in minutes, then some columns."""
        rows = read(self.warehouse, name).to_pylist()
        spans = [[(row[side] - DAY) / timedelta(minutes=1) for side in ("window_start", "window_end")] for row in rows]
        return sorted((*span, *(row[name] for name in columns)) for span, row in zip(spans, rows, strict=True))


@pytest.fixture
def clicks(tmp_path: Path) -> Clicks:
    world = Clicks(tmp_path)
    world.add((10, "u", "a", 1), (25, "u", "b", 2), (70, "u", "a", 4), (20, "v", "a", 8), (200, "v", "a", 16))
    return world


def sessions(gap: str, longest: str = "1 day", per: str = "", group_by: str = "user", more: str = "") -> str:
    return (
        f"SELECT {group_by}, sum(n) AS n FROM clicks "
        f"WINDOW SESSION GAP '{gap}' UP TO '{longest}' {per} ON t GROUP BY {group_by} {more}"
    )


def test_a_longer_gap_reads_no_event_and_a_shorter_one_reads_all(clicks: Clicks) -> None:
    clicks.plan(sessions("20 minutes"))
    assert clicks.run().features["events"] == 5
    clicks.plan(sessions("20 minutes"), sessions("50 minutes"))
    assert clicks.run().features["events"] == 0
    assert clicks.answers("q1") == [(10, 120, "u", 7), (20, 70, "v", 8), (200, 250, "v", 16)]
    clicks.plan(sessions("50 minutes"))
    assert clicks.run().features["events"] == 0
    clicks.plan(sessions("5 minutes"), sessions("50 minutes"))
    assert clicks.run().features["events"] == 5
    assert len(clicks.answers("q0")) == 5


def test_a_late_event_joins_two_sessions(clicks: Clicks) -> None:
    clicks.plan(sessions("30 minutes"))
    clicks.run()
    assert clicks.answers() == [(10, 55, "u", 3), (20, 50, "v", 8), (70, 100, "u", 4), (200, 230, "v", 16)]
    clicks.add((50, "u", "a", 32))
    assert clicks.run().revision == 2
    assert clicks.answers() == [(10, 100, "u", 39), (20, 50, "v", 8), (200, 230, "v", 16)]


def test_an_open_session_waits_for_its_end(clicks: Clicks) -> None:
    """An event at the very end belongs to it, so its answer exists a microsecond later."""
    clicks.plan(sessions("30 minutes"))
    clicks.run(0, 100)
    assert clicks.answers() == [(10, 55, "u", 3), (20, 50, "v", 8)]
    clicks.add((100, "u", "a", 64))
    clicks.run(100, 300)
    assert clicks.answers() == [
        *((10, 55, "u", 3), (20, 50, "v", 8), (70, 130, "u", 68)),
        (200, 230, "v", 16),
    ]


def test_sessions_of_a_key_with_several_groups(clicks: Clicks) -> None:
    """A session of a user has an answer for each site, over its own events."""
    clicks.plan(sessions("15 minutes", per="PARTITION BY user", group_by="user, site"))
    clicks.run()
    assert clicks.answers(columns=("user", "site", "n")) == [
        *((10, 40, "u", "a", 1), (10, 40, "u", "b", 2), (20, 35, "v", "a", 8)),
        *((70, 85, "u", "a", 4), (200, 215, "v", "a", 16)),
    ]


def test_a_session_that_is_too_long_has_a_row_that_says_so(clicks: Clicks) -> None:
    clicks.plan(sessions("50 minutes", "50 minutes", more="HAVING sum(n) > 7"))
    clicks.run()
    assert clicks.answers(columns=("user", "n", "error")) == [
        (20, 70, "v", 8, None),
        (20, 120, "u", None, "HDL-612 the session is longer than 50 minutes"),
        (200, 250, "v", 16, None),
    ]


def test_sessions_are_not_looked_up(clicks: Clicks) -> None:
    clicks.plan(sessions("30 minutes"))
    clicks.run()
    with pytest.raises(HeddleError, match="sessions") as raised:
        Reader(clicks.warehouse).query("q0")
    assert raised.value.diagnostic.code == "HDL-607"


MISTAKES = [
    ("SESSION ^'30 minutes' ON t", "HDL-107", "SESSION GAP"),
    ("SESSION GAP '30 minutes' ^ON t", "HDL-107", "UP TO"),
    ("SESSION GAP ^30 UP TO '1 day' ON t", "HDL-107", "SESSION GAP"),
    ("SESSION GAP ^'0 minutes' UP TO '1 day' ON t", "HDL-204", ""),
    ("SESSION GAP ^'half an hour' UP TO '1 day' ON t", "HDL-204", "minutes"),
    ("SESSION GAP '1 day' UP TO ^'1 hour' ON t", "HDL-204", "longest"),
    ("SESSION GAP '1 day' UP TO ^'4000 days' ON t", "HDL-307", ""),
    ("SESSION GAP '1 day' UP TO '2 days' PARTITION BY ^site ON t", "HDL-219", "GROUP BY site"),
    ("SESSION GAP '1 day' UP TO '2 days' ON ^n", "HDL-205", "ON t"),
    ("SESSION GAP '1 day' UP TO '2 days' ^SLIDE '1 day' ON t", "HDL-107", "SESSION GAP"),
    ("s AS (^SESSION GAP '1 day' UP TO '2 days') ON t", "HDL-107", "RANGE"),
]


@pytest.mark.parametrize(("marked", "code", "hint"), MISTAKES)
def test_mistakes_are_coded_positioned_and_say_what_to_do(marked: str, code: str, hint: str) -> None:
    text = f"SELECT user, count(*) AS n FROM clicks WINDOW {marked} GROUP BY user"
    stream = Stream("clicks", Source("parquet", "clicks"), SCHEMA, "t")
    (problem,) = parse(text.replace("^", ""), {"clicks": stream}).errors
    assert (problem.code, problem.column) == (code, text.index("^") + 1), problem
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT user, count(*) AS n FROM clicks @S GROUP BY user ORDER BY count(*) DESC LIMIT 3", "HDL-229"),
        ("SELECT user, site, count(*) AS n FROM clicks @S GROUP BY ROLLUP (user, site)", "HDL-206"),
        ("SELECT user, count(*) AS n FROM clicks PATTERN SEQ(a, b) ON site @S GROUP BY user", "HDL-220"),
        ("SELECT user, session_length() AS n FROM clicks WINDOW RANGE '1 day' ON t GROUP BY user", "HDL-104"),
    ],
)
def test_what_sessions_do_not_go_with(text: str, code: str) -> None:
    stream = Stream("clicks", Source("parquet", "clicks"), SCHEMA, "t")
    parsed = parse(text.replace("@S", "WINDOW SESSION GAP '1 day' UP TO '2 days' ON t"), {"clicks": stream})
    assert [problem.code for problem in parsed.errors] == [code], parsed.errors
