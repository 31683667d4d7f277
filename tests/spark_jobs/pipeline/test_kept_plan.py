"""A plan is made again only if something has changed that decides it, and everything that does is looked at."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from heddle.cli.inputs import planning_request
from heddle.cli.options import Algorithm, CostModel
from heddle.cli.run import _stored_request, _StoredRequest
from optimizer.plan.builder import build_plan
from optimizer.plan.reuse import Searched, reused
from spark_jobs.pipeline.planning import kept_plan
from spark_jobs.pipeline.planning.changes import pause_or_resume
from spark_jobs.pipeline.planning.plan_workload import PlannedWorkload, plan_workload
from spark_jobs.pipeline.planning.requested import TOLERANCE, PlanningRequest
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos.orders import in_process
from tests.sizes import examples
from tests.spark_jobs.laboratory import Laboratory, steady

MINUTE = 60_000_000
FIRST = 1_704_067_200_000_000  # 2024-01-01
STREAMS = """\
streams:
  trades:
    source: {{format: parquet, path: trades}}
    schema: {{ts: timestamp, symbol: string, volume: {volume}}}
    time: ts
    lateness: {lateness} minutes
"""


@dataclass
class Project:
    """A folder with queries, a source of several files and a warehouse."""

    folder: Path
    queries: dict[str, str] = field(default_factory=dict)
    lateness: int = 0
    volume: str = "long"
    rates: list[str] = field(default_factory=list)
    algorithm: Algorithm = Algorithm.best
    cost_model: CostModel = CostModel.paper

    def __post_init__(self) -> None:
        (self.folder / "trades").mkdir()
        self.events("a", 0, 400)
        self.events("b", 400, 800)
        for name, (range, slide, condition) in {
            "short": (5, 5, ""),
            "long": (60, 20, ""),
            "large": (30, 10, "volume > 5"),
            "small": (45, 15, "volume < 3"),
        }.items():
            self.query(name, range, slide, condition)
        self.write()

    def events(self, name: str, first: float, last: float, step: float = 1, volume: int = 1, groups: int = 2) -> None:
        """A file of an event a minute from one minute to another."""
        minutes = [first + number * step for number in range(int((last - first) / step))]
        times = pa.array([FIRST + round(minute * MINUTE) for minute in minutes], pa.timestamp("us", "UTC"))
        symbols = pa.array([f"s{number % groups}" for number in range(len(minutes))])
        volumes = pa.array([(number % 8) * volume for number in range(len(minutes))], pa.int64())
        table = pa.table({"ts": times, "symbol": symbols, "volume": volumes})
        pq.write_table(table, self.folder / "trades" / f"{name}.parquet", compression="none", use_dictionary=False)

    def query(self, name: str, range: int, slide: int, where: str = "") -> None:
        condition = f" WHERE {where}" if where else ""
        self.queries[name] = (
            f"-- name: {name}\nSELECT symbol, sum(volume) AS total FROM trades "
            f"WINDOW RANGE '{range} minutes' SLIDE '{slide} minutes' ON ts{condition} GROUP BY symbol;\n"
        )

    def write(self) -> None:
        (self.folder / "queries.sql").write_text("\n".join(self.queries.values()))
        (self.folder / "streams.yaml").write_text(STREAMS.format(lateness=self.lateness, volume=self.volume))

    @property
    def files(self) -> list[Path]:
        return [self.folder / "queries.sql"]

    @property
    def house(self) -> str:
        return str(self.folder / "warehouse")

    def stored(self) -> _StoredRequest:
        """As ``heddle run`` stores its plan."""
        return _stored_request(replace(self.request(), reuse=True), self.house, True)

    def searched(self) -> PlannedWorkload:
        """As a search finds it now."""
        return plan_workload(self.request(), Warehouse.open(self.house))

    def request(self) -> PlanningRequest:
        options = self.rates, self.algorithm, self.cost_model
        return replace(planning_request(self.files, self.folder / "streams.yaml", *options), exactly=True)

    def reads_nothing(self) -> bool:
        """Whether the next ``heddle run`` does not even read the queries."""
        request = replace(self.request(), reuse=True)
        return kept_plan.unchanged_plan(Warehouse.open(self.house), request) is not None


@contextmanager
def project() -> Iterator[Project]:
    with TemporaryDirectory() as folder:
        yield Project(Path(folder))


def _append(file: str, text: str) -> Callable[[Project], None]:
    def change(at: Project) -> None:
        path = at.folder / file
        path.write_text(path.read_text() + text)

    return change


def _rewritten(change: Callable[[Project], None]) -> Callable[[Project], None]:
    def changed(at: Project) -> None:
        change(at)
        at.write()

    return changed


# of each change, whether the plan in force still holds
CHANGES: dict[str, tuple[bool, Callable[[Project], None]]] = {
    "nothing": (True, lambda at: None),
    "a comment": (True, _append("queries.sql", "-- nothing\n")),
    "a comment of the streams": (True, _append("streams.yaml", "# nothing\n")),
    "a late file": (True, lambda at: at.events("late", 100, 102)),
    "a changed byte": (True, lambda at: at.events("b", 400, 800, volume=2)),
    "a rate within the tolerance": (True, lambda at: setattr(at, "rates", ["trades=1/58"])),
    "a rate beyond the tolerance": (False, lambda at: setattr(at, "rates", ["trades=1/50"])),
    "a lower rate beyond the tolerance": (False, lambda at: setattr(at, "rates", ["trades=1/70"])),
    "events with many more groups": (False, lambda at: at.events("b", 400, 800, groups=200)),
    "many more events": (False, lambda at: at.events("c", 0, 800)),
    "a range": (False, _rewritten(lambda at: at.query("long", 80, 20))),
    "a slide": (False, _rewritten(lambda at: at.query("long", 60, 30))),
    "a filter": (False, _rewritten(lambda at: at.query("large", 30, 10, "volume > 6"))),
    "a query more": (False, _rewritten(lambda at: at.query("more", 7, 7))),
    "a query less": (False, _rewritten(lambda at: at.queries.pop("short"))),
    "a declared lateness": (False, _rewritten(lambda at: setattr(at, "lateness", 5))),
    "a declared type": (False, _rewritten(lambda at: setattr(at, "volume", "int"))),
    "an algorithm": (False, lambda at: setattr(at, "algorithm", Algorithm.no_share)),
    "a cost model": (False, lambda at: setattr(at, "cost_model", CostModel.measured)),
    "a query that is paused": (False, lambda at: _pause(at)),
}


def _pause(at: Project) -> None:
    pause_or_resume(Warehouse.open(at.house), "paused", ["short"])


@pytest.mark.parametrize("name", CHANGES)
def test_one_change_decides_whether_a_plan_is_reused(name: str) -> None:
    changed_by([name])


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.sampled_from(sorted(CHANGES)),
        min_size=2,
        max_size=3,
        # one rate takes the place of another, and what is no longer there is not paused
        unique_by=lambda name: re.sub("^.*(rate|events|query less|paused).*$", "one of them", name),
    )
)
def test_a_plan_is_reused_only_where_a_search_would_keep_it(names: list[str]) -> None:
    changed_by(names)


def changed_by(names: list[str]) -> None:
    """A project is planned, changed and planned again; beside it a search of its own."""
    with project() as at:
        first = at.stored()
        assert first.is_new and not first.holds
        assert at.reads_nothing() and at.stored().holds
        for name in names:
            CHANGES[name][1](at)
        replanned, anew = at.stored(), at.searched()
        assert replanned.holds <= all(CHANGES[name][0] for name in names)
        if len(names) == 1:
            assert replanned.holds == CHANGES[names[0]][0]
        if replanned.holds:
            assert (replanned.version, replanned.is_new) == (first.version, False)
        new_plan = anew.plan
        assert replanned.plan.workload.fingerprint == new_plan.workload.fingerprint
        assert replanned.plan.workload.streams == new_plan.workload.streams
        adapted_plan = build_plan(
            new_plan.workload,
            dict(new_plan.rates),
            at.algorithm.value,
            new_plan.model,
            previous=replanned.plan,
            tolerance=10**6,
        )
        assert adapted_plan.cost <= (1 + Fraction(TOLERANCE)) * (new_plan.from_scratch or new_plan.cost)
        if at.cost_model is CostModel.paper:
            assert at.reads_nothing()


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(1, 10**6),
    st.fractions(Fraction(8, 10), Fraction(12, 10), max_denominator=1000),
)
def test_a_reused_plan_costs_no_more_than_the_tolerance_allows(
    windows: list[tuple[int, int]], rate: int, factor: Fraction
) -> None:
    with project() as at:
        at.queries.clear()
        for number, (slides, slide) in enumerate(windows):
            at.query(f"q{number}", slides * slide, slide, "" if number % 2 else "volume > 1")
        at.write()
        at.rates = [f"trades={rate}"]
        plan = plan_workload(at.request()).plan
        rates = {"trades": rate * factor}
        searched = Searched.of(plan, plan.model)
        assert Searched.from_json(searched.to_json()) == searched
        reused_plan = reused(plan, searched, plan.workload, rates, plan.algorithm, plan.model, TOLERANCE)
        assert (reused_plan is not None) == (max(factor, 1 / factor) <= 1 + Fraction(TOLERANCE))
        anew = build_plan(plan.workload, rates, plan.algorithm, plan.model)
        adapted_plan = build_plan(plan.workload, rates, plan.algorithm, plan.model, previous=plan, tolerance=10**6)
        assert reused_plan is None or adapted_plan.cost <= (1 + Fraction(TOLERANCE)) * anew.cost


def test_small_steps_of_a_rate_do_not_add_up() -> None:
    with project() as at:
        at.rates = ["trades=100"]
        at.stored()
        holds = []
        for rate in (103, 106, 109, 112):
            at.rates = [f"trades={rate}"]
            holds.append(at.stored().holds)
        assert holds == [True, False, True, False]


def test_other_code_or_a_setting_reads_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with project() as at:
        at.stored()
        with monkeypatch.context() as patch:
            patch.setenv("HEDDLE_OWNER", "anna")
            assert not at.reads_nothing()
            # whose a query is decides no plan, and is registered
            assert at.stored().holds and at.reads_nothing()
        with monkeypatch.context() as patch:
            patch.setattr(kept_plan, "code", lambda: "other")
            assert not at.reads_nothing() and not at.stored().holds


def test_what_there_is_to_say_is_said_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    with project() as at:
        _append("queries.sql", "-- name: wrong\nSELECT volum FROM trades;\n")(at)
        for _ in range(2):
            assert at.stored().has_failed
            assert "wrong" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"version": 1}', "\x00"])
def test_a_damaged_note_is_none(content: str) -> None:
    with project() as at:
        at.stored()
        (Path(at.house) / kept_plan.FILE).write_text(content)
        assert not at.stored().holds
        assert at.stored().holds


# ------------------------------------------------------------------------------ through the command
def run(at: Project, *more: str) -> str:
    """``heddle run`` of twelve hours; what it says."""
    arguments = ["run", *map(str, at.files), "--streams", str(at.folder / "streams.yaml"), "--warehouse", at.house]
    interval = ["--from", "2024-01-01", "--to", "2024-01-01T12:00", "--checks", "none", "--engine", "local"]
    done = CliRunner().invoke(app, [*arguments, *interval, *more])
    assert done.exit_code == 0, done.output
    return done.output


def total(at: Project) -> int:
    done = CliRunner().invoke(app, ["read", "long", "--warehouse", at.house, "--format", "csv", "--limit", "1000"])
    assert done.exit_code == 0, done.output
    return sum(int(float(match[1])) for match in re.finditer(r",(\d+(?:\.\d+)?)\s*$", done.output, re.MULTILINE))


def test_a_late_file_and_a_changed_byte_are_published_while_the_plan_holds() -> None:
    with project() as at:
        assert "plan version 1 (new)" in run(at) and total(at)
        again = run(at)
        assert "plan version 1 still holds" in again and "nothing changed since revision 1" in again
        before = total(at)
        at.events("late", 100, 104, 0.5, volume=1000)
        late = run(at)
        assert "plan version 1 still holds" in late and "published revision 2" in late
        assert total(at) > before
        path, before = at.folder / "trades" / "b.parquet", total(at)
        status = path.stat()
        at.events("b", 400, 800, volume=2)
        assert path.stat().st_size == status.st_size
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        changed = run(at)
        assert "plan version 1 still holds" in changed and "published revision 3" in changed
        assert total(at) > before


def test_a_damaged_published_file_is_noticed_while_the_plan_holds() -> None:
    with project() as at:
        run(at)
        assert "still holds" in run(at)
        for path in (Path(at.house) / "results").rglob("*.parquet"):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        done = CliRunner().invoke(app, ["read", "long", "--warehouse", at.house])
        assert done.exit_code == 1 and "HDL-5" in done.output


def test_a_warehouse_that_is_put_back_has_the_plans_that_follow(tmp_path: Path) -> None:
    """In one process, at the same version of the same table."""
    lab = Laboratory(in_process(), tmp_path)
    lab.write(steady(60))
    lab.plan()
    house, backup = lab.warehouse.root, tmp_path / "kept"
    shutil.copytree(house, backup)
    versions_and_slides = []
    for slide in (7, 9):
        window = f"WINDOW RANGE '{slide} minutes' SLIDE '{slide} minutes' ON ts"
        text = f"-- name: x\nSELECT count(*) AS n FROM trades {window};"
        version = lab.plan(text)
        (query,) = load_plan(lab.warehouse, version).workload.queries
        versions_and_slides.append((version, query.window.slide // 60_000_000))
        shutil.rmtree(house)
        shutil.copytree(backup, house)
    assert versions_and_slides == [(2, 7), (2, 9)]
