"""What runs teach of those after them: costs, corrections, intervals, from the newest and no others."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.workload.values import SECOND
from spark_jobs.pipeline.costs import fit as fit_module
from spark_jobs.pipeline.costs import learned as learned_module
from spark_jobs.pipeline.costs.fit import SHIPPED, STAGES, Fit, fit_of, nonnegative, observations_of, store
from spark_jobs.pipeline.costs.learned import (
    ENOUGH,
    JUDGED,
    REMEMBERED,
    SHIPPED_FACTOR,
    Learned,
    Predicted,
    known_costs,
)
from spark_jobs.pipeline.costs.measurements import Measured, Recorded, groups_per_fragment, newest_costs
from spark_jobs.store.warehouse.data_files import write_files
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.store.warehouse.warehouse import Warehouse

HERE, ELSEWHERE = "here", "elsewhere"
DAY = 1_372_636_800 * SECOND


def features_of(chance: random.Random, size: float = 1.0) -> dict[str, float]:
    """What a run of some size might have counted."""
    events = round(chance.uniform(2e5, 2e6) * size)
    queries, cold = chance.randint(5, 100), chance.random() < 0.3
    return {
        "runs": 1,
        "processes": int(cold),
        "suites": int(cold),
        "queries": queries,
        "queries_recomputed": 3,
        "events": events,
        "family_tuples": events * chance.randint(1, 20),
        "partial_rows_written": round(events * chance.uniform(0.05, 0.5)),
        "partial_rows_read": round(events * chance.uniform(0.1, 0.8)),
        "rows_passed": round(events * chance.uniform(1, 10)),
        "answers": round(events * chance.uniform(0.1, 1)),
    }


def recorded(
    features: Mapping[str, float],
    costs: Mapping[str, float],
    times: float = 1.0,
    machine: str = HERE,
    kind: str = "plan",
    predicted: float | None = None,
) -> Recorded:
    """A run that took what the costs say, each feature in the stages that pay for it, as many times."""
    stages = {
        stage: sum(
            times * costs[name] * features.get(name, 0) / sum(name in paid for paid in STAGES.values())
            for name in names
        )
        for stage, names in STAGES.items()
    }
    return Recorded(dict(features), stages, dict(features), kind, machine, predicted)


def learned(runs: Sequence[Recorded], prior: Mapping[str, float] = SHIPPED) -> Learned:
    """What runs teach, the oldest first."""
    return Learned(Fit(prior), list(runs)[::-1][:REMEMBERED], HERE)


def played(count: int, seed: int, noise: float) -> Iterator[tuple[Predicted, float]]:
    """Runs of a machine that costs other than the shipped ones, with noise, predicted before each: said and taken."""
    chance, runs = random.Random(seed), list[Recorded]()
    costs = {name: cost * chance.uniform(0.7, 1.6) for name, cost in SHIPPED.items()}
    for _ in range(count):
        features = features_of(chance)
        prediction = learned(runs).predict(features, "plan")
        runs.append(recorded(features, costs, chance.lognormvariate(0, noise), predicted=prediction.cpu_seconds))
        yield prediction, runs[-1].total


# ------------------------------------------------------------------------------------------------- costs
def test_costs_of_a_machine_are_learned() -> None:
    chance = random.Random(3)
    costs = {name: cost * chance.uniform(0.5, 3) for name, cost in SHIPPED.items()}
    runs = [recorded(features_of(chance), costs) for _ in range(30)]
    model = learned(runs)
    assert model.costs == learned(runs).costs  # the same, whoever asks
    for _ in range(20):
        features = features_of(chance, 3.0)
        assert model.costs.seconds(features) == pytest.approx(Fit(costs).seconds(features), rel=0.1)
    wrong = [
        Fit(SHIPPED).seconds(features) / Fit(costs).seconds(features)
        for features in (features_of(chance) for _ in range(20))
    ]
    assert max(abs(ratio - 1) for ratio in wrong) > 0.3  # the shipped costs would not have done


def test_before_any_run_costs_are_those_that_were_stored(tmp_path: Path) -> None:
    house, features = Warehouse.open(tmp_path / "house"), features_of(random.Random(1))
    assert known_costs(None) == Fit(SHIPPED)
    assert Learned.of(house).predict(features, "plan").cpu_seconds == pytest.approx(Fit(SHIPPED).seconds(features))
    dearer = Fit({name: 3 * cost for name, cost in SHIPPED.items()})
    store(house.place / fit_module.FILE, dearer)
    assert fit_of(house) == dearer
    prediction = Learned.of(house).predict(features, "plan")
    assert prediction.cpu_seconds == pytest.approx(dearer.seconds(features), rel=1e-6)
    assert (prediction.runs, prediction.is_measured) == (0, False)


def test_runs_beside_other_load_are_not_believed() -> None:
    chance = random.Random(5)
    disturbed = [recorded(features_of(chance), SHIPPED, 6.0 if number in (14, 17, 19) else 1.0) for number in range(20)]
    costs = learned(disturbed).costs
    for _ in range(20):
        features = features_of(chance)
        assert costs.seconds(features) == pytest.approx(Fit(SHIPPED).seconds(features), rel=0.03)


def test_another_machine_is_forgotten() -> None:
    chance = random.Random(7)
    old = [recorded(features_of(chance), SHIPPED, 4.0, ELSEWHERE) for _ in range(30)]
    new = [recorded(features_of(chance), SHIPPED) for _ in range(ENOUGH)]
    features = features_of(chance)
    alone = learned(old).predict(features, "plan")
    assert alone.cpu_seconds > 1.15 * Fit(SHIPPED).seconds(features)  # better than nothing
    assert (alone.runs, alone.is_measured) == (0, False)
    prediction = learned([*old, *new]).predict(features, "plan")
    assert (
        prediction.cpu_seconds == pytest.approx(Fit(SHIPPED).seconds(features), rel=0.15) and prediction.runs == ENOUGH
    )


def test_a_machine_that_has_become_slower_is_followed() -> None:
    chance = random.Random(9)
    runs = [recorded(features_of(chance), SHIPPED, 1.0 if number < 30 else 2.0) for number in range(60)]
    features = features_of(chance)
    assert learned(runs).predict(features, "plan").cpu_seconds == pytest.approx(
        2 * Fit(SHIPPED).seconds(features), rel=0.2
    )


def test_runs_of_a_plan_correct_those_after_them() -> None:
    """A plan of which the costs do not know everything takes half as much again; another plan's runs do not."""
    chance = random.Random(11)
    features = features_of(chance)
    other_runs = [recorded(features_of(chance), SHIPPED, kind="another") for _ in range(30)]
    unknown = [recorded(features, SHIPPED, 1.5) for _ in range(6)]
    model = learned([*other_runs, *unknown])
    plain = model.costs.seconds(features)
    own = 1.5 * Fit(SHIPPED).seconds(features)
    assert model.predict(features, "plan").cpu_seconds == pytest.approx(own, rel=0.1)
    assert abs(own / model.predict(features, "plan").cpu_seconds - 1) < abs(own / plain - 1) / 2
    assert model.predict(features, "another").cpu_seconds < 1.15 * plain
    # ten times the work is not the same
    larger = {name: 10 * amount for name, amount in features.items()}
    assert model.predict(larger, "plan").cpu_seconds == pytest.approx(model.costs.seconds(larger))


# --------------------------------------------------------------------------------------------- intervals
@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5])
def test_intervals_hold_in_nine_of_ten(noise: float) -> None:
    predictions = [(prediction, seconds) for seed in range(3) for prediction, seconds in list(played(100, seed, noise))]
    judged = [
        prediction.least <= seconds <= prediction.most for prediction, seconds in predictions if prediction.is_measured
    ]
    assert len(judged) == 3 * (100 - ENOUGH - JUDGED)
    assert 0.85 <= sum(judged) / len(judged) <= 0.97
    widths = sorted(prediction.most / prediction.least for prediction, _ in predictions if prediction.is_measured)
    # not by being wider than the noise: nine in ten lie within e^(2 * 1.645 * noise)
    assert widths[len(widths) // 2] < np.exp(2 * 1.645 * noise) * 1.6


def test_before_enough_was_measured_the_interval_is_the_shipped_one() -> None:
    for number, (prediction, _) in enumerate(played(ENOUGH + JUDGED + 1, 1, 0.1)):
        assert prediction.is_measured == (number >= ENOUGH + JUDGED) and prediction.runs == number
        if not prediction.is_measured:
            assert (prediction.least, prediction.most) == (
                prediction.cpu_seconds / SHIPPED_FACTOR,
                prediction.cpu_seconds * SHIPPED_FACTOR,
            )


AMOUNTS = st.one_of(st.sampled_from([0.0, -0.02, -3.0, 1e-9, 1e9]), st.floats(-10, 100))


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, st.none() | AMOUNTS), max_size=30), AMOUNTS)
def test_whatever_was_recorded_a_price_can_be_told(
    runs: list[tuple[float, float, float | None]], events: float
) -> None:
    """A clock that went back, a run that took nothing: they are read as they were stored."""
    recorded_runs = [
        Recorded(
            {"runs": 1, "events": abs(counted)}, {"list": 0.01, "finals": took}, {"runs": 1}, "plan", HERE, predicted
        )
        for counted, took, predicted in runs
    ]
    prediction = learned(recorded_runs).predict({"runs": 1, "events": abs(events)}, "plan")
    assert 0 <= prediction.least <= prediction.cpu_seconds <= prediction.most < float("inf")


# ------------------------------------------------------------------------------------------------ solver
@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_nonnegative_least_squares_is_that_of_scipy(rows: int, columns: int, seed: int) -> None:
    from scipy.optimize import nnls

    chance = np.random.default_rng(seed)
    given_, target = chance.normal(size=(rows, columns)), chance.normal(size=rows)
    if columns > 2:
        given_[:, 2] = given_[:, 0]  # two that cannot be told apart
    solution = nonnegative(given_.T @ given_, given_.T @ target)
    _, least = nnls(given_, target)
    assert (solution >= 0).all()
    assert np.linalg.norm(given_ @ solution - target) == pytest.approx(least, abs=1e-6)


# ---------------------------------------------------------------------------------------------- warehouses
def rows_of(runs: Sequence[Recorded], stream: str = "trades") -> list[dict[str, Any]]:
    rows = []
    for number, run in enumerate(runs):
        measured = Measured(stream, DAY, DAY + SECOND, 10)
        row = measured.row(f"run {number}", run.cpu_seconds, run.features, run.about)  # type: ignore[arg-type]
        rows.append(row | {"at": pa.scalar(DAY + number * SECOND, pa.timestamp("us", "UTC")).as_py()})
    return rows


def test_only_the_newest_runs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house, chance = Warehouse.open(tmp_path / "house"), random.Random(2)
    rows = rows_of([recorded(features_of(chance), SHIPPED, predicted=float(number)) for number in range(300)])
    for first in range(0, 300, 20):
        house.leased(lambda token, first=first: house.append("stream_statistics", rows[first : first + 20], token))  # type: ignore[misc]
    read: list[int] = []
    before = Warehouse.newest_first

    def counted(self: Warehouse, *arguments: Any) -> Iterator[tuple[pa.Table, int | None]]:
        for piece, bound in before(self, *arguments):
            read.append(len(piece))
            yield piece, bound

    monkeypatch.setattr(Warehouse, "newest_first", counted)
    newest = newest_costs(house, REMEMBERED)
    assert [run.predicted for run in newest] == [float(number) for number in range(299, 299 - REMEMBERED, -1)]
    assert sum(read) <= REMEMBERED + 20
    assert Learned.of(house).runs == newest


def test_records_of_older_versions_teach_nothing_and_are_read(tmp_path: Path) -> None:
    house, features = Warehouse.open(tmp_path / "house"), features_of(random.Random(4))
    old = Measured("trades", DAY, DAY + SECOND, 10)
    rows = [old.row("none", {"finals": 9.0}), old.row("features", {"finals": 9.0}, {"runs": 1, "sessions": 1})]
    rows += rows_of([recorded(features, SHIPPED)])
    house.leased(lambda token: house.append("stream_statistics", rows, token))
    (run,) = newest_costs(house, REMEMBERED)
    assert run == recorded(features, SHIPPED)
    # who fits explicitly has them all
    assert sorted(len(seen.features) for seen in observations_of(house)) == [2, len(features)]
    assert all("about" not in seen.cpu_seconds for seen in observations_of(house))


def test_learning_loads_no_scipy() -> None:
    code = (
        "import sys\n"
        "from spark_jobs.pipeline.costs.learned import Learned\n"
        "from spark_jobs.pipeline.costs.fit import Fit, SHIPPED\n"
        "from spark_jobs.pipeline.costs.measurements import Recorded\n"
        "run = Recorded({'runs': 1}, {'list': 1.0}, {'runs': 1}, 'plan', 'here')\n"
        "assert Learned(Fit(SHIPPED), [run] * 9, 'here').predict({'runs': 1}, 'plan').cpu_seconds > 0.5\n"
        "print([name for name in sys.modules if name.startswith(('scipy', 'pyspark'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_the_newest_correct_most() -> None:
    assert learned_module._middle([3.0, 1.0, 2.0, 10.0]) == 2.5
    assert learned_module._middle([5.0]) == 5.0


# -------------------------------------------------------------------------------------------- boundaries
@pytest.mark.parametrize(
    ("count", "judged"),
    [
        (0, 0),
        (ENOUGH, 0),
        (ENOUGH + 1, 1),
        (REMEMBERED - 1, REMEMBERED - 1 - ENOUGH),
        # the first of a full memory were predicted from others that are forgotten
        (REMEMBERED, REMEMBERED),
        (REMEMBERED + 1, REMEMBERED),
    ],
)
def test_predictions_are_judged_that_were_made_from_enough_runs(count: int, judged: int) -> None:
    runs = [recorded(features_of(random.Random(seed)), SHIPPED, predicted=1.0) for seed in range(count)]
    assert len(learned(runs).judged) == judged


@pytest.mark.parametrize(("count", "is_measured"), [(ENOUGH + JUDGED - 1, False), (ENOUGH + JUDGED, True)])
def test_an_interval_is_measured_from_enough_judged_predictions(count: int, is_measured: bool) -> None:
    runs = [recorded(features_of(random.Random(seed)), SHIPPED, predicted=1.0) for seed in range(count)]
    assert learned(runs).predict(features_of(random.Random(1)), "plan").is_measured is is_measured


# ------------------------------------------------------------------------------------------------- groups
partial_rows = st.lists(
    st.tuples(
        st.sampled_from(["flights", "trades"]),
        st.sampled_from(["coarse", "fine"]),
        st.integers(-2, 2),
        st.sampled_from([None, "[]", '["A"]', '["B"]']),
    ),
    max_size=20,
)


def stored_partial_row(stream: str, synopsis: str, at: int, key: str | None) -> dict[str, Any]:
    """A partial row; without a key, what says that a span is complete."""
    return {
        "day": "2013-07-01" if at >= 0 else "2013-06-30",
        "stream": stream,
        "fingerprint": synopsis,
        "fragment_start": DAY + at * SECOND,
        "fragment_end": DAY + (at + 1) * SECOND,
        "key": key,
        "shard": None if key is None else 1,
        "bucket": -1 if key is None else 7,
        "longs": [1],
        "doubles": [],
        "texts": ["content"],
    }


@given(files=st.lists(partial_rows, max_size=3), since=st.none() | st.integers(-2, 2))
def test_groups_are_counted_by_fragment(
    files: list[list[tuple[str, str, int, str | None]]], since: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    warehouse = Warehouse.open(tmp_path_factory.mktemp("groups") / "warehouse")
    tables = [pa.Table.from_pylist([stored_partial_row(*row) for row in rows], schema=PARTIALS) for rows in files]
    written = [file for table in tables for file in write_files(warehouse.path("partials"), table)]
    if written:
        days = ("2013-06-30", "2013-07-01")
        warehouse.replace("partials", written, days, lambda rows: pa.array([False] * len(rows)), "/".join(days), None)
    first = None if since is None else DAY + since * SECOND
    chosen = [
        (synopsis, at)
        for rows in files
        for stream, synopsis, at, key in rows
        if stream == "trades" and key is not None and (since is None or at >= since)
    ]
    expected = len(chosen) / len(set(chosen)) if chosen else None
    assert groups_per_fragment(warehouse, "trades", first) == expected
