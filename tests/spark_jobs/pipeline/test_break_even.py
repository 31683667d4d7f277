"""From where on sharing wins, and what CPU seconds cost in money."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.builder import build_plan
from optimizer.workload.values import SECOND
from spark_jobs.audit.checks.sampling import SAMPLED_QUERIES
from spark_jobs.operations.read import read_operations
from spark_jobs.pipeline.costs.fit import SHIPPED, Fit
from spark_jobs.pipeline.costs.money import MONTH, CpuPrice, covered
from spark_jobs.pipeline.run.break_even import BreakEven, of_comparison, of_plan
from spark_jobs.pipeline.run.calibrate import PROBES, _stream
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import Laboratory, steady

amounts = st.floats(0.001, 20)


@given(amounts, amounts, amounts, st.integers(1, 50), st.integers(0, 100_000))
def test_sharing_wins_from_the_first_number_of_queries_with_which_it_is_cheaper(
    fixed: float, per_query: float, plain: float, queries: int, events: int
) -> None:
    threshold = BreakEven(queries, events, fixed, 0.0, per_query, plain, 0.0, True).from_queries
    cheaper = [number for number in range(1, 400) if fixed + number * per_query < number * plain * (1 - 1e-9)]
    if threshold is None:
        assert plain <= per_query and not cheaper
    elif threshold < 399:
        assert cheaper and abs(cheaper[0] - threshold) <= 1


@given(amounts, st.floats(0, 2), amounts, st.integers(1, 50), st.integers(0, 2000), st.floats(0, 0.01))
def test_sharing_wins_from_the_first_number_of_events_with_which_it_is_cheaper(
    fixed: float, per_query: float, plain: float, queries: int, events: int, per_event: float
) -> None:
    plain_event = 0.001
    break_even = BreakEven(queries, events, fixed, per_event, per_query, plain, plain_event, True)

    def gain(at: int) -> float:
        shared = fixed + per_event * (at - events) + queries * per_query
        return queries * (plain + plain_event * (at - events)) - shared

    threshold = break_even.from_events
    if threshold is None:
        assert queries * plain_event <= per_event
    elif queries * plain_event > per_event + 1e-6:
        assert gain(threshold + 1) >= -1e-6 and (threshold < 2 or gain(threshold - 2) <= 1e-6)


def test_a_plan_says_from_how_many_queries_on_sharing_wins() -> None:
    workload = PROBES[-1].workload(_stream(Path("nowhere")))
    plan = build_plan(workload, {"trades": Fraction(1)}, "shared")
    break_even = of_plan(Fit(SHIPPED), plan)
    assert break_even is not None and not break_even.is_measured and break_even.queries == len(workload.queries)
    assert break_even.events == pytest.approx(86_400)
    # what every run takes in a process of its own, and nothing that its queries add
    known = {"runs": 1, "processes": 1, "suites": 1, "queries_recomputed": SAMPLED_QUERIES, "events": 86_400}
    assert break_even.fixed == pytest.approx(Fit(SHIPPED).seconds(known))
    assert 0 < break_even.per_query < 0.1 and break_even.from_queries and break_even.from_queries < 12
    # an application of Spark pays for its start as well
    started = Fit(SHIPPED).seconds({"sessions": 1, "spark_runs": 1})
    assert break_even.spark_start == pytest.approx(started)
    on_spark = replace(break_even, fixed=break_even.fixed + started).from_queries
    assert on_spark == break_even.from_queries_on_spark and on_spark is not None and on_spark > break_even.from_queries
    assert f"(from {on_spark} as a Spark application of its own)" in break_even.sentence()
    dearer = of_plan(Fit(SHIPPED), plan, [{"cpu_seconds": 10.0, "rows_scanned": 86_400}])
    assert dearer is not None and dearer.is_measured and dearer.from_queries == 1
    assert "sharing wins from 1 query on (from 1 as" in dearer.sentence() and "measured here" in dearer.sentence()
    never = of_plan(Fit(SHIPPED), plan, [{"cpu_seconds": 0.0, "rows_scanned": 86_400}])
    assert never is not None and never.from_queries is None and "does not win" in never.sentence()
    many = build_plan(workload, {"trades": Fraction(1000)}, "shared")
    more = of_plan(Fit(SHIPPED), many)
    # beyond what a process does alone Spark is started
    assert more is not None and more.fixed > break_even.fixed + SHIPPED["sessions"]
    assert more.spark_start == 0 and "application" not in more.sentence()


def test_a_comparison_divides_what_the_run_took() -> None:
    features = {"runs": 1, "queries": 10, "events": 1_000, "answers": 5_000_000}
    samples = [{"cpu_seconds": 2.0, "rows_scanned": 1_000}, {"cpu_seconds": 4.0, "rows_scanned": 1_000}]
    break_even = of_comparison(Fit(SHIPPED), features, 20.0, 10, samples)
    assert break_even.fixed + 10 * break_even.per_query == pytest.approx(20.0)
    assert (
        break_even.plain_job == pytest.approx(3.0) and break_even.to_json()["from_queries"] == break_even.from_queries
    )


def test_the_command_line_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lab = Laboratory(in_process(), tmp_path)
    lab.write(steady())
    lab.plan()
    call = ["plan", "--warehouse", str(lab.warehouse.root)]
    assert "a plain Spark job of one query" in CliRunner().invoke(app, call).stdout
    break_even = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)["break_even"]
    assert break_even["queries"] == 2 and not break_even["plain_jobs_measured_here"]


def test_what_if_prices_a_day_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lab = Laboratory(in_process(), tmp_path)
    lab.write(steady())
    lab.plan()
    call = ["what-if", "--warehouse", str(lab.warehouse.root), "--rate", "tradesx1000000"]
    prices = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)["run_over_a_day"]
    assert 2 * prices["now"]["cpu_seconds"] < prices["then"]["cpu_seconds"]
    for price in prices.values():
        assert not price["is_measured"] and price["most"] == pytest.approx(4 * price["least"], abs=0.01)
    assert "a run over a day, then: " in CliRunner().invoke(app, call).stdout


# -------------------------------------------------------------------------------------------------- money
@pytest.mark.parametrize(
    ("text", "price"),
    [("0.05 EUR", CpuPrice(0.05, "EUR")), (" .5€ ", CpuPrice(0.5, "€")), ("2", CpuPrice(2.0)), (" ", None)],
)
def test_a_price_is_an_amount_and_a_currency(text: str, price: CpuPrice | None) -> None:
    assert CpuPrice.parse(text) == price


@pytest.mark.parametrize("text", ["EUR", "-1 EUR", "1,5 EUR", "0.05 EUR USD", "1e9", "0.05 EUR\n0", "nan"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(HeddleError, match="HDL-120"):
        CpuPrice.parse(text)


def test_a_month_goes_on_at_the_pace_of_what_was_covered() -> None:
    price = CpuPrice(0.05, "EUR")
    assert price.a_month(7200, MONTH) == "0.1 EUR"
    assert price.a_month(7200, MONTH // 1000) == "100.00 EUR"
    assert (price.a_month(0, MONTH), price.a_month(1, 0)) == ("0.00 EUR", "")


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=8))
def test_what_is_covered_is_counted_once(drawn: list[tuple[int, int]]) -> None:
    spans = [(begin, begin + length) for begin, length in drawn]
    assert covered(spans) == len({at for begin, end in spans for at in range(begin, end)})


def test_owners_are_told_what_they_cost_a_month(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from heddle.pages import operations, query
    from spark_jobs.operations.answers import read_query
    from spark_jobs.operations.series import Span

    lab = Laboratory(in_process(), tmp_path)
    lab.write(steady())
    with without_audit():
        lab.run(lab.plan(), 0, 60)
    page = operations.page(read_operations(lab.warehouse))
    assert "a month" not in page
    monkeypatch.setenv("HEDDLE_CPU_HOUR_PRICE", "3600 EUR")
    view = read_operations(lab.warehouse)
    spent = sum(saving.part for saving in view.savings)
    assert view.covered == 3600 * SECOND
    monthly_cost = CpuPrice(1.0, "EUR").a_month(3600 * spent, 3600 * SECOND)
    assert monthly_cost and monthly_cost in operations.page(view)
    assert "EUR a month" in query.page(read_query(lab.warehouse, "by_symbol", Span("all")))
    monkeypatch.setenv("HEDDLE_CPU_HOUR_PRICE", "much")
    with pytest.raises(HeddleError, match="HDL-120"):
        read_operations(lab.warehouse)
