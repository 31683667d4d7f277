"""Metrics are OpenMetrics text that Prometheus' own parser reads, whatever queries, owners and streams are called."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from typer.testing import CliRunner

from heddle.cli.app import app
from spark_jobs.operations import maintenance, metrics
from spark_jobs.operations.metrics import METRICS, MOST_SERIES, OTHER, QueryState, Snapshot
from spark_jobs.operations.scrape import STATISTICS, read_snapshot, scraped
from spark_jobs.operations.values import Saving
from spark_jobs.store.warehouse import log_counts, publish_log
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.sizes import examples
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady

NOW = DAY + 200 * MINUTE

texts = st.text(max_size=12) | st.sampled_from(
    [OTHER, 'say "x"', "a\\nb", "a\nb", "\\", "é\u2028\ud800", "{a=1}", "# EOF"]
)
moments = st.none() | st.integers(0, 2 * NOW)
queries = st.lists(
    st.builds(
        QueryState, texts, texts, texts, st.none() | st.integers(1, 10), moments, st.integers(0, 9), st.booleans()
    ),
    max_size=30,
    unique_by=lambda query: query.name.encode("utf-8", "replace"),
)


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Samples by name and labels, as Prometheus' parser reads them."""
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in samples.setdefault(sample.name, {}), "a series comes twice"
            samples[sample.name][labels] = sample.value
    return samples


def labels_of(query: QueryState) -> tuple[tuple[str, str], ...]:
    labels = {"stream": query.stream, "query": query.name, "owner": query.owner}
    return tuple(sorted((name, text.encode("utf-8", "replace").decode()) for name, text in labels.items()))


@settings(max_examples=examples(100), deadline=None)
@given(
    queries=queries,
    savings=st.lists(st.builds(Saving, texts, st.just(1), st.floats(0), st.floats(0)), max_size=4),
    counts=st.dictionaries(st.tuples(texts, texts), st.integers(0, 1 << 62), max_size=5),
    stages=st.dictionaries(st.sampled_from(["list", "audit"]), st.integers(0, 1 << 50)),
)
def test_generated_names_are_read_as_they_are(
    queries: list[QueryState],
    savings: list[Saving],
    counts: dict[tuple[str, str], int],
    stages: dict[str, int],
) -> None:
    snapshot = Snapshot(
        "0", 3, 2, registered=counts, queries=queries, cpu_micros=stages, quarantined=counts, savings=savings
    )
    samples = parsed(metrics.exposition(snapshot, NOW))
    for query in queries:
        if query.name != OTHER:
            assert samples["heddle_query_blocked"][labels_of(query)] == query.is_blocked
    assert sum(samples.get("heddle_quarantined_events", {}).values()) == pytest.approx(sum(counts.values()))


def test_every_unit_and_type_is_that_of_its_family() -> None:
    snapshot = Snapshot("1", 1, 1, queries=[QueryState("q", "s", "o", 5, DAY, 2, True)], cpu_micros={"list": 1_500_000})
    families = {family.name: family for family in text_string_to_metric_families(metrics.exposition(snapshot, NOW))}
    declared = {metric.name: metric for metric in METRICS}
    assert families.keys() <= declared.keys()
    for name, family in families.items():
        assert (family.type, family.unit) == (declared[name].type, declared[name].unit)
        assert family.documentation == declared[name].meaning
    assert families["heddle_cpu_seconds"].samples[0].value == 1.5


def many(number: int) -> list[QueryState]:
    return [
        QueryState(f"q{at:05}", "trades", "desk", 60 if at % 10 == 7 else None, DAY - at * MINUTE, at % 3, at % 2 == 0)
        for at in range(number)
    ]


def test_series_beyond_the_limit_are_one_that_sums_them() -> None:
    every, owners = many(4_000), [f"o{number:04}" for number in range(900)]
    snapshot = Snapshot(
        "1",
        7,
        queries=every,
        registered={(owner, state): 1 for owner in owners for state in ("running", "paused", "expired")},
        quarantined={(f"stream {number}", "HDL-410"): 1 for number in range(900)},
        savings=[Saving(owner, 1, 1.0, 2.0) for owner in owners],
    )
    samples = parsed(metrics.exposition(snapshot, NOW))
    assert sum(map(len, samples.values())) <= MOST_SERIES
    rest = tuple(sorted(dict.fromkeys(("stream", "query", "owner"), OTHER).items()))
    shown = {dict(labels)["query"] for labels in samples["heddle_query_blocked"]} - {OTHER}
    # all with a bound, then the first by name
    bounded = {query.name for query in every if query.bound is not None}
    unbounded = sorted(query.name for query in every if query.bound is None)
    assert shown == bounded | set(unbounded[: metrics.MOST_QUERIES - len(bounded)])
    others = [query for query in every if query.name not in shown]
    assert samples["heddle_query_blocked"][rest] == sum(query.is_blocked for query in others)
    oldest = min(query.answered_until or 0 for query in others)
    assert samples["heddle_query_lag_seconds"][rest] == (NOW - oldest) / 1e6
    owned = samples["heddle_owner_cpu_seconds"]
    assert len(owned) == metrics.MOST_OWNERS + 1
    assert sum(owned.values()) == len(owners) == owned[("owner", OTHER),] + metrics.MOST_OWNERS


def test_queries_that_have_their_own_series_are_the_same_in_any_order() -> None:
    every = many(1_500)
    texts = {metrics.exposition(Snapshot("1", queries=order), NOW) for order in (every, every[::-1])}
    assert len(texts) == 1


BOUND = """
-- name: watch
-- owner: desk
SELECT count(*) AS n FROM trades WINDOW RANGE '30 minutes' SLIDE AT MOST '20 minutes' ON ts;
-- name: quoted
SELECT count(*) AS n FROM quotes WINDOW RANGE '30 minutes' SLIDE '10 minutes' ON ts;
"""


def test_a_snapshot_says_what_runs_did(engine: Any, tmp_path: Path) -> None:
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady(120))
    laboratory.write(steady(120), "quotes")
    version = laboratory.plan(BOUND)
    first = laboratory.run(version, 0, 60, live=True)
    laboratory.source("quotes").unlink()
    second = laboratory.run(version, 60, 120, "again", live=True)
    snapshot = read_snapshot(laboratory.warehouse, NOW)
    states = {query.name: query for query in snapshot.queries}
    assert states["quoted"] == QueryState("quoted", "quotes", "", None, DAY + 60 * MINUTE, 0, True)
    assert states["watch"].answered_until == second.refreshed["watch"]
    assert (states["watch"].owner, states["watch"].bound, states["watch"].is_blocked) == ("desk", 20 * MINUTE, False)
    assert snapshot.answers == first.answers + second.answers
    assert snapshot.scanned_events == first.rows_scanned + second.rows_scanned
    assert snapshot.runs == {"published": 2, "failed": 0}
    spent = sum(sum(record.cpu_seconds.values()) for record in (first, second))
    assert sum(snapshot.cpu_micros.values()) == pytest.approx(spent * 1e6)
    assert snapshot.intervals == 2 and snapshot.registered == {("desk", "running"): 1, ("", "running"): 1}
    samples = parsed(scraped(str(laboratory.warehouse.place), NOW))
    assert samples["heddle_plan_version"] == {(): version}


def test_a_scrape_reads_nothing_while_no_table_changes(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady(60))
    version = laboratory.plan(BOUND)
    laboratory.run(version, 0, 60, "first", recompute=True)
    before = read_snapshot(laboratory.warehouse, NOW)
    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "dataset", lambda *args, **options: pytest.fail("a table was read"))
        assert scraped(str(laboratory.warehouse.place), NOW)
    laboratory.run(version, 0, 60, "second", recompute=True)
    after = read_snapshot(laboratory.warehouse, NOW)
    assert (before.runs["published"], after.runs["published"]) == (1, 2)


def test_status_prints_metrics_as_they_are_served(engine: Any, tmp_path: Path) -> None:
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady(60))
    laboratory.plan(BOUND)
    place = str(laboratory.warehouse.place)
    printed = CliRunner().invoke(app, ["status", "--warehouse", place, "--format", "openmetrics"])
    assert printed.exit_code == 0 and parsed(printed.stdout) == parsed(scraped(place, NOW))
    as_json = CliRunner().invoke(app, ["status", "--warehouse", place, "--format", "json"])
    assert json.loads(as_json.stdout)["plan_version"] == 1
    both = CliRunner().invoke(app, ["status", "--warehouse", place, "--format", "openmetrics", "--json"])
    assert both.exit_code == 2
    nothing = CliRunner().invoke(app, ["status", "--warehouse", str(tmp_path / "none"), "--format", "openmetrics"])
    assert nothing.exit_code == 2 and nothing.stdout == ""


def test_no_warehouse_is_no_error(tmp_path: Path) -> None:
    assert list(parsed(scraped(str(tmp_path / "none"), NOW))) == ["heddle_build_info", *TOTALS]


TOTALS = ("heddle_scanned_events_total", "heddle_answers_total", "heddle_published_intervals_total")


def _row(number: int, event: Any, **record: Any) -> LogRow:
    return LogRow(number, number + 1, 1, f"{number}", event, 1, None, 5, number, number, json.dumps(record))


def test_counts_of_runs_are_the_same_after_merges_and_in_warehouses_of_earlier_versions(tmp_path: Path) -> None:
    warehouse = Warehouse.open(tmp_path / "house")
    rows = [
        _row(0, "published", rows_scanned=10, cpu_seconds={"list": 0.25}, lateness={"watch": 9}),
        _row(1, "failed", rows_scanned=1, cpu_seconds={"list": 0.5, "audit": 1}),
        _row(2, "published", rows_scanned=4, lateness={"watch": 1, "other": 2}),
        replace(_row(3, "published"), text=None),
    ]
    expected: dict[str, int] = {"published": 3, "failed": 1, "answers": 15, "events": 15, "intervals": 3}
    expected |= {"cpu/list": 750_000, "cpu/audit": 1_000_000, "late/watch": 2, "late/other": 1}
    for number, row in enumerate(rows):
        with warehouse.lease() as token:
            warehouse.append("publish_log", [row.to_row()], token)
        if number == 1:
            maintenance.merge_logs(warehouse, most=0)
    assert publish_log.run_counts(warehouse) == expected
    # an earlier Heddle counted less
    file = warehouse.root / log_counts.COUNTS / "publish_log.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": None, "counts": {"intervals": 1}}))
    assert publish_log.run_counts(warehouse) == expected


EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "grafana"


def expressions() -> list[str]:
    """All expressions of the dashboard and of the alerting rules."""
    dashboard = json.loads((EXAMPLES / "heddle.json").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    annotations = [each["expr"] for each in dashboard["annotations"]["list"]]
    rules = yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"][0]["rules"]
    return [*targets, *variables, *annotations, *(rule["expr"] for rule in rules)]


def test_dashboard_and_rules_ask_for_metrics_and_labels_that_exist() -> None:
    labels = {metric.sample: set(metric.labels) for metric in METRICS}
    asked = set()
    for expression in expressions():
        names = re.findall(r"\bheddle_\w+", expression)
        assert names and set(names) <= labels.keys(), expression
        for name, selector in re.findall(r"(heddle_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)\s*=", selector)) <= labels[name], expression
        for name, label in re.findall(r"label_values\((\w+), (\w+)\)", expression):
            assert label in labels[name]
        asked |= set(names)
    # what only identifies, or has a panel by another metric, is not drawn
    assert labels.keys() - asked == UNDRAWN


UNDRAWN = {
    "heddle_build_info",
    "heddle_plan_trees",
    "heddle_published_intervals_total",
    "heddle_query_answered_until_timestamp_seconds",
    "heddle_recomputed_queries_total",
    "heddle_registered_queries",
}


def test_legends_of_the_dashboard_name_labels_of_their_metric() -> None:
    labels = {metric.sample: set(metric.labels) for metric in METRICS}
    dashboard = json.loads((EXAMPLES / "heddle.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            (name, *_) = re.findall(r"\bheddle_\w+", target["expr"])
            assert set(re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))) <= labels[name]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_guide_lists_every_metric() -> None:
    guide = (EXAMPLES.parents[1] / "docs" / "monitor.md").read_text()
    assert metrics.metrics_table() in guide
    for name, (kind, meaning) in STATISTICS.items():
        assert f"| `{name}` | {kind} | {meaning} |" in guide
