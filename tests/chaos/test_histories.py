"""Plans that change at any boundary, and generated workloads, through the pipeline against the oracle.

``make chaos`` plays 100 changes and 300 workloads. Tasks run in the driver's process (:mod:`tests.chaos.orders`);
``tests/spark_jobs/test_differential.py`` has some of the same through Spark.
"""

from __future__ import annotations

import os
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.schemas import micros
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos.conftest import Counted
from tests.chaos.orders import in_process
from tests.chaos.world import CLOCK, MINUTES, PLANS, STEPS, Race, copied, judged, template, without_audit
from tests.spark_jobs.case_runs import planned, published, stored, wrong
from tests.spark_jobs.kernels import ALGORITHMS
from tests.spark_jobs.laboratory import outdated
from tests.workloads import Case, cases, row_cases, sequence_cases, session_cases, spans_of

ROUNDS = int(os.environ.get("HEDDLE_CHAOS", "0"))
SEED = int(os.environ.get("HEDDLE_CHAOS_SEED", "0"))

PARTS = 10
"""`make chaos` plays them in so many parts."""

KINDS = [(text, algorithm) for text in PLANS for algorithm in ALGORITHMS]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return template(tmp_path_factory.mktemp("histories"))


def switched(places: tuple[Path, Path], seed: int) -> None:
    """A backfill in pieces, during which the plan changes: between two of them, within one, or back again."""
    chance = random.Random(seed)
    played = copied(*places, chance, lambda name: None)
    before, after = chance.sample(KINDS, 2)
    size = chance.choice((20, 30, 40))
    spans = [(begin, begin + size) for begin in range(0, MINUTES, size)]
    at, how, step = (
        chance.randrange(len(spans)),
        chance.choice(("between", "within", "back")),
        chance.choice(list(STEPS)),
    )

    def play() -> None:
        house = played.world.warehouse
        played.plan(*before)
        for number, (begin, end) in enumerate(spans):
            if number == at and how == "within":
                changed_within(played, step, after, begin, end)
                continue
            if number == at:
                played.plan(*after)
            played.run(f"piece {number}", begin, end)
            if number == at and how == "back":
                publish_plan(house, load_plan(house, (current_version(house) or 0) - 1))

    names = [f"{algorithm} of plan {PLANS.index(text)}" for text, algorithm in (before, after)]
    repeat = f"HEDDLE_CHAOS_SEED={seed} make test PYTEST='tests/chaos/test_histories.py -k some_changes'"
    judged(played, play, [f"{' to '.join(names)}, {how} piece {at} ({step}); once more: {repeat}"])


def changed_within(played: Race, step: str, after: tuple[str, str], begin: int, end: int) -> None:
    owner, name = STEPS[step]
    original, armed = getattr(owner, name), [True]

    def then(*args: Any, **kwargs: Any) -> Any:
        if armed and armed.pop():
            played.plan(*after)
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, then)
        played.run("piece", begin, end)


def test_some_changes_of_the_plan(places: tuple[Path, Path]) -> None:
    """With HEDDLE_CHAOS_SEED: that one alone."""
    for seed in [SEED] if SEED else range(1, 2):
        switched(places, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_changes_of_the_plan(places: tuple[Path, Path], part: int, counted: Counted) -> None:
    count = (100 if ROUNDS else 20) // PARTS
    for seed in range(100 + part * count, 100 + (part + 1) * count):
        switched(places, seed)
    counted("changes of the plan", count)


# ------------------------------------------------------------------------------------ generated workloads
LONG = settings(
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)


def workloads(most: int, part: int = 0) -> int:
    """Generated workloads, their runs in any order, the plan changing on the way; how many there were."""
    count = 0

    @seeded(SEED or 1 + part)
    @settings(LONG, max_examples=most)
    @given(
        st.one_of(cases(), row_cases(), sequence_cases(), session_cases()),
        st.sampled_from(ALGORITHMS),
        st.sampled_from(ALGORITHMS),
        st.randoms(use_true_random=False),
    )
    def check(generated: Case, first: str, then: str, chance: random.Random) -> None:
        nonlocal count
        with tempfile.TemporaryDirectory() as folder, without_audit():
            case = stored(generated, Path(folder) / "source", "parquet")
            warehouse, version = planned(case, Path(folder) / "warehouse", first)
            spans = spans_of(case, chance.randint(1, 3))
            for number, (begin, end) in enumerate(chance.sample(spans, len(spans))):
                if number == 1:
                    version = planned(case, warehouse.root, then)[1]
                run(in_process(), warehouse, version, begin, end, f"run {number}")
            assert wrong(case, published(case, warehouse)) == []
        count += 1

    check()
    return count


def late_events(most: int, part: int = 0) -> tuple[int, int]:
    """Generated workloads whose events come in any number of files, some after intervals were published, and some go:
    repaired, the answers are the oracle's, and answers that no such event touches are of the revision they were of.
    A repair answers single windows wherever it can: any window may change if windows are of rows, or an event may make
    another a repetition. How many workloads there were, and how many repairs published single windows."""
    count = narrow = 0

    @seeded(SEED or 1 + part)
    @settings(LONG, max_examples=most)
    @given(
        st.one_of(cases(), sequence_cases(), cases(), row_cases(), session_cases()),
        st.sampled_from(ALGORITHMS),
        st.randoms(use_true_random=False),
    )
    def check(generated: Case, algorithm: str, chance: random.Random) -> None:
        nonlocal count, narrow
        piles = [
            chance.choice(("kept", "kept", "kept", "late 1", "late 2", "gone")) for _ in range(len(generated.events))
        ]
        pile = {
            name: generated.events.filter(pa.array([label == name for label in piles])) for name in sorted(set(piles))
        }
        late = [name for name in ("late 1", "late 2") if name in pile]
        goes = "gone" in pile and chance.random() < 0.3
        with tempfile.TemporaryDirectory() as folder, without_audit():
            case = stored(replace(generated, events=generated.events.slice(0, 0)), Path(folder) / "source", "parquet")
            source = Path(case.stream.source.path)
            by_time = case.stream.event_id is None and not any(query.window.is_rows for query in case.workload.queries)

            def come(name: str) -> None:
                pq.write_table(pile[name], source / f"{name}.parquet")

            for name in pile.keys() - set(late):
                come(name)
            house, version = planned(case, Path(folder) / "warehouse", algorithm)
            spans = spans_of(case, chance.randint(1, 3))
            for number, (begin, end) in enumerate(spans):
                run(in_process(), house, version, begin, end, f"run {number}")
            for name in late:
                come(name)
                if goes and name == late[-1]:
                    (source / "gone.parquet").unlink()
                for interval in outdated(house, CLOCK):
                    run_id = f"{name} {interval.begin}"
                    record = run(in_process(), house, version, interval.begin, interval.end, run_id)
                    assert record.narrow == (record.status == "published" and by_time)
                    narrow += record.narrow
                    if record.narrow and not goes:
                        assert untouched_but_revised(house, run_id, instants_of(pile[name])) == []
                assert outdated(house, CLOCK) == []
            remaining_tables = [pile[name] for name in pile if not (goes and late and name == "gone")]
            events = pa.concat_tables(remaining_tables) if remaining_tables else generated.events
            assert wrong(replace(case, events=events), published(case, house)) == []
        count += 1

    check()
    return count, narrow


def instants_of(events: pa.Table) -> list[int]:
    return [at for at in events["ts"].cast(pa.int64()).to_pylist() if at is not None]


def untouched_but_revised(house: Warehouse, run_id: str, late: list[int]) -> list[str]:
    """Answers of windows of time that a run published, though no late event lies in them."""
    rows = house.rows("results", ["run_id", "query", "position", "window_start", "window_end"])
    return [
        f"{row['query']} {row['window_end']}"
        for row in rows
        if row["run_id"] == run_id
        and row["position"] is None
        and not any(micros(row["window_start"]) <= at < micros(row["window_end"]) for at in late)
    ]


@pytest.mark.longer
def test_some_late_events() -> None:
    count, narrow = late_events(6)
    assert count >= 4 and narrow >= 2


@pytest.mark.longer
def test_more_late_events() -> None:
    count, narrow = late_events(30, 1)
    assert count >= 30 and narrow >= 9


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_late_events(part: int, counted: Counted) -> None:
    count, narrow = late_events((300 if ROUNDS else 30) // PARTS, part)
    counted("generated workloads with late events", count, repairs_of_single_windows=narrow)


def test_some_generated_workloads() -> None:
    assert workloads(3) >= 3


@pytest.mark.longer
def test_more_generated_workloads() -> None:
    assert workloads(30, 1) >= 30


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_generated_workloads(part: int, counted: Counted) -> None:
    counted("generated workloads", workloads((300 if ROUNDS else 30) // PARTS, part))
