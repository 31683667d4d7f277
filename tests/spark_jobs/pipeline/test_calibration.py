"""Costs fitted to what runs recorded: they are found again, never negative, and what a run records is what it did."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.builder import build_plan
from optimizer.search.cost import Coefficients
from optimizer.windows.alignment import instants
from optimizer.workload.instants import DAY as DAY_LONG
from spark_jobs.pipeline.costs import fit as fit_module
from spark_jobs.pipeline.costs import prediction
from spark_jobs.pipeline.costs.fit import SHIPPED, STAGES, Fit, Observation, fit, fit_of, observations_of, store
from spark_jobs.pipeline.costs.measurements import FEATURES, Measured, last_groups
from spark_jobs.pipeline.costs.prediction import expected
from spark_jobs.pipeline.planning.requested import model_of
from spark_jobs.pipeline.run import calibrate
from spark_jobs.pipeline.run.calibrate import PROBES
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.files import splits_of
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, Laboratory, steady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# what runs of some size have of each feature, about
SIZES = {
    **{
        "runs": 1,
        "processes": 1,
        "suites": 1,
        "sessions": 1,
        "spark_runs": 1,
        "queries": 3000,
        "queries_recomputed": 3,
        "events_recomputed": 2e6,
    },
    **{"events": 3e6, "tree_tuples": 3e7, "family_tuples": 3e7, "partial_rows_written": 1e6, "partial_rows_read": 1e6},
    **{"rows_passed": 1e8, "fragments_combined": 1e8, "answers": 3e6},
}


def observations(costs: dict[str, float], count: int, seed: int) -> list[Observation]:
    """Runs of which each has much of some features, each stage taking exactly an equal part of its features' costs."""
    chance = np.random.default_rng(seed)
    payers = {name: [stage for stage, features in STAGES.items() if name in features] for name in SHIPPED}
    observed_runs = []
    for _ in range(count):
        features = {
            name: float(size * chance.random() * (chance.random() < 0.6)) if size > 1 else float(chance.integers(0, 2))
            for name, size in SIZES.items()
        }
        features["runs"] = 1.0
        spent = {
            stage: sum(costs[name] / len(payers[name]) * features[name] for name in names)
            for stage, names in STAGES.items()
        }
        observed_runs.append(Observation(features, spent))
    return observed_runs


factors = st.fixed_dictionaries({name: st.floats(0.3, 3.0) for name in SHIPPED})


@given(factors, st.integers(0, 2**32))
@settings(max_examples=examples(25), deadline=None)
def test_costs_are_found_again(factor: dict[str, float], seed: int) -> None:
    costs = {name: cost * factor[name] for name, cost in SHIPPED.items()}
    seen = observations(costs, 200, seed)
    fitted = fit(seen)
    typical = statistics.median(observation.total for observation in seen)
    for name, cost in costs.items():
        # right to a fiftieth, or to a hundredth of what a run takes where a feature matters less than that
        assert abs(fitted.costs[name] - cost) * SIZES[name] <= max(0.02 * cost * SIZES[name], 0.01 * typical), name
    assert fitted.error is not None and fitted.error < 0.01


@given(st.lists(st.lists(st.floats(0, 1e4), min_size=5, max_size=5), min_size=0, max_size=6), st.integers(0, 2**32))
@settings(max_examples=examples(25), deadline=None)
def test_no_cost_is_ever_negative(times: list[list[float]], seed: int) -> None:
    seen = [
        Observation(observation.features, dict(zip(STAGES, spent, strict=True)))
        for observation, spent in zip(observations(SHIPPED, len(times), seed), times, strict=True)
    ]
    fitted = fit(seen)
    assert fitted.costs.keys() == SHIPPED.keys() and min(fitted.costs.values()) >= 0
    assert len(fitted.residuals) == len(seen)


def test_few_records_fall_back_to_the_shipped_costs() -> None:
    assert fit([]).costs == pytest.approx(SHIPPED)
    assert fit([]).error is None
    # one run that wrote rows at three times the shipped cost: that moves, what it has nothing of stays
    rows = {"runs": 1, "partial_rows_written": 50_000_000}
    spent = {"partials": 3 * SHIPPED["partial_rows_written"] * 50_000_000}
    fitted = fit([Observation(rows, spent)])
    assert fitted.costs["partial_rows_written"] == pytest.approx(3 * SHIPPED["partial_rows_written"], rel=0.05)
    unchanged_costs = {name: cost for name, cost in SHIPPED.items() if name not in ("runs", "partial_rows_written")}
    assert {name: fitted.costs[name] for name in unchanged_costs} == pytest.approx(unchanged_costs)


def test_shipped_costs_are_the_models_defaults() -> None:
    paid = {name for names in STAGES.values() for name in names}
    assert FEATURES.keys() == SHIPPED.keys() == paid | {"fragments_combined", "tree_tuples"}
    assert all((cost > 0) == (name in paid) for name, cost in SHIPPED.items())
    assert Fit(SHIPPED).coefficients == Coefficients()


def test_the_coefficients_of_a_plan_stand_for_what_a_plan_changes() -> None:
    costs = Fit(SHIPPED)
    # every feature takes a second
    amounts = {name: 1 / cost for name, cost in SHIPPED.items() if cost}
    assert costs.seconds(amounts) == pytest.approx(len(amounts))
    assert costs.seconds(amounts, costs.coefficients) == pytest.approx(len(amounts))
    of_plans = ("per_family_tuple", "per_partial_row", "per_answer", "per_row_passed")
    for name in of_plans:
        dearer = replace(Coefficients(), **{name: 2 * getattr(Coefficients(), name)})
        more = 2 if name == "per_partial_row" else 1  # written and read
        assert costs.seconds(amounts, dearer) == pytest.approx(len(amounts) + more), name
    # the two that were measured as nothing can be had all the same
    for feature, name in (("fragments_combined", "per_fragment_combined"), ("tree_tuples", "per_tuple")):
        assert costs.seconds({feature: 1e9}) == 0
        assert costs.seconds({feature: 1e9}, Coefficients(**{name: Fraction("1e-9")})) == pytest.approx(1)


def test_probes_are_workloads_and_vary_every_feature() -> None:
    for probe in PROBES:
        assert len({probe.name for probe in PROBES}) == len(PROBES)
        workload = probe.workload(calibrate._stream(Path("nowhere")))
        assert len(workload.queries) == len(probe.windows) * probe.filters


# ------------------------------------------------------------------------------------------------ stores
def test_stored_costs_are_what_plans_are_made_with(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    assert fit_of(house) == Fit(SHIPPED)
    assert model_of("measured", [], house).coefficients == Coefficients()
    dearer = Fit(SHIPPED | {"tree_tuples": 5e-7}, (0.1, -0.2))
    store(house.place / fit_module.FILE, dearer)
    assert fit_of(house) == dearer
    assert model_of("measured", [], house).coefficients.per_tuple == Fraction("5e-7")
    assert model_of("paper", [], house).name == "paper"
    assert sorted(path.name for path in house.root.glob("*coefficients*")) == [fit_module.FILE]
    # what an older Heddle stored lacks features that came later
    text = json.loads((house.root / fit_module.FILE).read_text())
    del text["costs"]["rows_passed"], text["residuals"]
    (house.root / fit_module.FILE).write_text(json.dumps(text))
    assert fit_of(house).costs == dearer.costs


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"costs": {"runs": -1}}', '{"costs": {"runs": "x"}}', '{"costs": 3}']
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    house = Warehouse.open(tmp_path / "house")
    (house.root / fit_module.FILE).write_text(text)
    with pytest.raises(HeddleError, match="HDL-516"):
        fit_of(house)


def recorded(house: Warehouse, costs: list[dict[str, Any] | None], features: dict[str, int]) -> None:
    """Rows of ``stream_statistics``: None as versions without features wrote them."""
    rows = []
    for number, spent in enumerate(costs):
        seen = Measured("trades", DAY, DAY + MINUTE, 10 + number, 2.5 if number % 2 else None)
        rows.append(seen.row("run", {"finals": 9.0}) if spent is None else seen.row("run", spent, features))
    with house.lease() as token:
        house.append("stream_statistics", rows, token)


def test_records_of_older_versions_are_left_out(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    recorded(house, [None, {"finals": 1.0, "list": 0.5}, None], {"runs": 1, "answers": 7})
    assert observations_of(house) == [Observation({"runs": 1, "answers": 7}, {"finals": 1.0, "list": 0.5})]
    assert last_groups(house) == {"trades": 2.5}
    assert model_of("measured", [], house).groups("trades") == Fraction(5, 2)


def test_calibrate_fits_to_a_warehouse(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    call = ["calibrate", "--warehouse", str(house.root)]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 1 and "HDL-515" in done.stderr
    recorded(house, [{"partials": 40.0}] * 3, {"runs": 1, "partial_rows_written": 5_000_000})
    done = CliRunner().invoke(app, [*call, "--json", "--output", str(tmp_path / "costs.json")])
    report = json.loads(done.stdout)
    assert done.exit_code == 0 and report["format_version"] == 1 and report["runs"] == 3
    assert report["costs"]["partial_rows_written"] == pytest.approx(8e-6, rel=0.1)
    assert fit_of(house).costs == report["costs"] == json.loads((tmp_path / "costs.json").read_text())["costs"]
    assert "half of the runs" in CliRunner().invoke(app, call).stdout
    assert CliRunner().invoke(app, [*call, "--quick"]).exit_code == 2


# -------------------------------------------------------------------------------------------------- runs
@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    from spark_jobs.audit.checks import suite

    monkeypatch.setattr(suite, "expectations", lambda *arguments: [])
    laboratory = Laboratory(spark, tmp_path)
    laboratory.write(steady())
    return laboratory


def stored_rows(lab: Laboratory) -> pa.Table:
    rows = DeltaTable(lab.warehouse.path("partials")).to_pyarrow_table()
    return rows.filter(pa.compute.is_valid(rows["key"]))


@pytest.mark.longer
@pytest.mark.spark
def test_a_run_records_what_it_did_and_what_was_predicted(lab: Laboratory) -> None:
    version = lab.plan(algorithm="no-share")
    plan = load_plan(lab.warehouse, version)
    assert len(plan.trees) == 2  # two queries
    record = lab.run(version, 60, 120, "first", as_of=DAY + 2 * DAY_LONG)
    run_features = record.features
    assert run_features.keys() == FEATURES.keys()
    # windows of 40 minutes that end after minute 60 start after minute 20: at 30, and those of 25 after 35: at 40
    read = 120 - 30
    assert (run_features["runs"], run_features["queries"], run_features["queries_recomputed"]) == (1, 2, 2)
    assert run_features["events"] == record.rows_scanned == read
    assert run_features["tree_tuples"] == run_features["family_tuples"] == 2 * read
    rows = stored_rows(lab)
    assert run_features["partial_rows_written"] == run_features["partial_rows_read"] == len(rows) > 0
    assert run_features["rows_passed"] == len(rows)  # each query has a synopsis of its own
    answers = DeltaTable(lab.warehouse.path("results")).to_pyarrow_table().to_pylist()
    assert run_features["answers"] == record.answers == len(answers)
    query_of = {
        synopsis.fingerprint: query.name
        for tree in plan.trees
        for synopsis, (query, *_) in calibrate.synopses_of(plan.workload.stream("trades"), tree.queries).items()
    }
    partials = [
        (query_of[row["fingerprint"]], json.loads(row["key"]), row["fragment_start"]) for row in rows.to_pylist()
    ]
    covered = 0
    for answer in answers:
        first, last = (round(answer[name].timestamp() * 1e6) for name in ("window_start", "window_end"))
        covered += sum(
            query == answer["query"] and key == json.loads(answer["key"]) and first <= start < last
            for query, key, start in partials
        )
    assert run_features["fragments_combined"] == covered > run_features["rows_passed"]
    assert record.predicted_cpu_seconds and record.predicted_cpu_seconds > 0
    spent = sum(record.cpu_seconds.values())
    assert record.prediction_error == pytest.approx((record.predicted_cpu_seconds - spent) / spent, abs=1e-3)
    assert record.explained_cpu_seconds == pytest.approx(Fit(SHIPPED).seconds(run_features), abs=1e-3)

    # told to recompute, it reads the events again, whatever is stored
    again = lab.run(version, 60, 120, "again", as_of=DAY + 2 * DAY_LONG, recompute=True).features
    read_again = ("events", "tree_tuples", "family_tuples", "partial_rows_written", "partial_rows_read", "answers")
    assert [again[name] for name in read_again] == [run_features[name] for name in read_again]

    # a query more, over partial rows that are there already, reads no event
    busy = "-- name: busy" + QUERIES.split("-- name: all")[0].partition("by_symbol")[2].replace(";", " HAVING n > 12;")
    version = lab.plan(QUERIES + busy, algorithm="no-share")
    stored = lab.run(version, 60, 120, "more", as_of=DAY + 2 * DAY_LONG).features
    assert stored["sessions"] == stored["events"] == stored["partial_rows_written"] == stored["family_tuples"] == 0
    assert stored["answers"] > 0 and stored["partial_rows_read"] > 0
    observed = observations_of(lab.warehouse)
    assert len(observed) == 3 and Observation(run_features, record.cpu_seconds) in observed
    assert all(features in [run.features for run in observed] for features in (again, stored))
    assert last_groups(lab.warehouse).keys() == {"trades"}

    status = CliRunner().invoke(app, ["status", "--warehouse", str(lab.warehouse.root), "--json"])
    runs = json.loads(status.stdout)["runs"]
    (first,) = (run for run in runs if run["run_id"] == "first")
    assert first["features"] == run_features and first["predicted_cpu_seconds"] == record.predicted_cpu_seconds
    shown = CliRunner().invoke(app, ["status", "--warehouse", str(lab.warehouse.root)]).stdout
    assert "predicted" in shown and f"{record.predicted_cpu_seconds:.1f}" in shown


@pytest.mark.spark
def test_what_is_expected_is_what_comes_at_the_rates_and_groups_of_the_plan(lab: Laboratory) -> None:
    """Events every minute for two symbols: at that rate, and with the groups that were measured, all is foreseen."""
    version = lab.plan(
        "-- name: q\nSELECT symbol, count(*) AS n FROM trades WINDOW RANGE '20 minutes' SLIDE '10 minutes' "
        "ON ts GROUP BY symbol;"
    )
    record = lab.run(version, 60, 120, "run", as_of=DAY + 2 * DAY_LONG)
    plan = load_plan(lab.warehouse, version)
    query = plan.workload.queries[0]
    plan = build_plan(plan.workload, {"trades": Fraction(1, 60)}, "weave-share", "measured")
    stream = plan.workload.stream("trades")
    ((synopsis, queries),) = calibrate.synopses_of(stream, plan.trees[0].queries).items()
    begin, until = DAY + 60 * MINUTE, DAY + 120 * MINUTE
    first = int(instants(query.window, begin, until)[0]) - query.window.range
    part = prediction.SynopsisWork(synopsis, queries, first, until)
    span = prediction.FillRequest(synopsis, first, until)
    work = prediction.Work(begin, [part], [span], {"trades": splits_of(stream)})
    amounts = expected(plan, work, last_groups(lab.warehouse))
    assert last_groups(lab.warehouse) == {"trades": 2.0}
    for name, amount in amounts.items():
        assert amount == pytest.approx(record.features[name], rel=0.02), name
    # of a time before the source holds anything, nothing is expected
    early = prediction.SynopsisWork(synopsis, queries, first - DAY_LONG, until)
    longer = prediction.FillRequest(synopsis, first - DAY_LONG, until)
    work = prediction.Work(begin, [early], [longer], {"trades": splits_of(stream)})
    assert expected(plan, work, {"trades": 2.0})["events"] == pytest.approx(120, rel=0.02)
    assert expected(plan, work, {"trades": 2.0})["partial_rows_written"] == 24


@pytest.mark.spark
def test_records_of_older_versions_are_shown_without_a_prediction(lab: Laboratory) -> None:
    version = lab.plan()
    lab.run(version, 60, 120, "run", as_of=DAY + 2 * DAY_LONG)
    (row,) = lab.log("published")
    record = json.loads(row["record"])
    for name in ("features", "predicted_cpu_seconds", "explained_cpu_seconds", "prediction_error"):
        del record[name]
    with lab.warehouse.lease() as token:
        lab.warehouse.append("publish_log", [row | {"record": json.dumps(record)}], token)
    done = CliRunner().invoke(app, ["status", "--warehouse", str(lab.warehouse.root)])
    assert done.exit_code == 0 and done.stdout.count("published ") >= 2


@pytest.mark.spark
@pytest.mark.slow
def test_calibrate_measures_this_machine(spark: SparkSession, tmp_path: Path) -> None:
    reports: list[str] = []
    fitted = calibrate.calibrate(spark, tmp_path, quick=True, report=reports.append)
    assert len(reports) == len(PROBES) == len(fitted.residuals)
    assert fitted.costs["runs"] > 0 and fitted.error is not None and fitted.error < 1
