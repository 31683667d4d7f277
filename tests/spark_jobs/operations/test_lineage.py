"""Lineage of real runs: OpenLineage's own classes take every event, and no run fails by what becomes of them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.event_v2 import RunEvent
from openlineage.client.naming.dataset import ABFSS, GCS, S3, LocalFileSystem
from openlineage.client.serde import Serde

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import Origin
from spark_jobs.operations import lineage, lineage_delivery
from spark_jobs.operations.lineage import LineageRun, Parent, dataset_name, lineage_events, origin_name
from spark_jobs.operations.lineage_delivery import as_event, datasets_of, lineage_run, reported_run
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.publish_log import RunRecord
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady

TEXT = """
-- name: volumes
-- owner: desk
-- table: volumes_of_day
SELECT symbol, sum(volume) AS total FROM trades
WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON ts WHERE symbol != 'marked-literal' GROUP BY symbol;
-- name: quoted
SELECT count(*) AS n FROM quotes WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON ts;
"""


@pytest.fixture
def laboratory(engine: Any, tmp_path: Path) -> Laboratory:
    laboratory = Laboratory(engine, tmp_path)
    for stream in ("trades", "quotes"):
        laboratory.write(steady(60), stream)
    return laboratory


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that events are sent to."""
    file = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(transport))
    return file


def reported(laboratory: Laboratory, version: int, **options: Any) -> RunRecord:
    begin, end = DAY, DAY + 60 * MINUTE
    return reported_run(laboratory.spark, laboratory.warehouse, version, begin, end, "a run", **options)


def events_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def plain(data: Any) -> Any:
    """JSON data without the empty values that the client's classes add."""
    if isinstance(data, dict):
        return {name: plain(value) for name, value in data.items() if value not in (None, [], {})}
    return [plain(each) for each in data] if isinstance(data, list) else data


def names(datasets: list[dict[str, Any]]) -> list[str]:
    return [dataset["name"] for dataset in datasets]


def test_a_run_tells_streams_answers_checks_and_tables(laboratory: Laboratory, sent: Path) -> None:
    record = reported(laboratory, laboratory.plan(TEXT))
    house, events = str(laboratory.warehouse.place), events_in(sent)
    assert [(event["job"]["name"], event["eventType"]) for event in events] == [
        (f"warehouse.{part}", type) for part in ("answers", "checks", "tables") for type in ("START", "COMPLETE")
    ]
    answers, checks, tables = events[1::2]
    assert names(answers["inputs"]) == [str(laboratory.source()), str(laboratory.source("quotes"))]
    assert [each["inputFacets"]["inputStatistics"]["rowCount"] for each in answers["inputs"]] == [60, 60]
    outputs = [f"{house}/results", f"{house}/results/quoted", f"{house}/results/volumes"]
    assert sorted(names(answers["outputs"])) == outputs
    assert answers["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == record.answers
    assert (names(tables["inputs"]), names(tables["outputs"])) == (outputs[2:], [f"{house}/tables/volumes_of_day"])
    asserted = [each["inputFacets"]["dataQualityAssertions"]["assertions"] for each in checks["inputs"]]
    assert sorted(check["name"] for each in asserted for check in each) == sorted(
        str(check["check"]) for check in record.checks
    )
    assert len({event["run"]["runId"] for event in events}) == 3
    for event in (checks, tables):
        assert event["run"]["facets"]["parent"]["run"]["runId"] == answers["run"]["runId"]


def test_columns_lead_from_an_own_table_back_to_the_stream(laboratory: Laboratory, sent: Path) -> None:
    reported(laboratory, laboratory.plan(TEXT))
    answers, _, tables = events_in(sent)[1::2]
    (of_query,) = (each for each in answers["outputs"] if each["name"].endswith("/volumes"))
    fields = of_query["facets"]["columnLineage"]["fields"]
    (source,) = fields["total"]["inputFields"]
    assert (source["name"], source["field"]) == (str(laboratory.source()), "volume")
    assert [(each["type"], each["subtype"]) for each in source["transformations"]] == [("DIRECT", "AGGREGATION")]
    of_all = {each["field"]: each["transformations"] for each in of_query["facets"]["columnLineage"]["dataset"]}
    assert sorted(of_all) == ["symbol", "ts"]
    assert sorted(each["subtype"] for each in of_all["symbol"]) == ["FILTER", "GROUP_BY"]
    assert of_query["facets"]["ownership"]["owners"] == [{"name": "desk"}]
    table = tables["outputs"][0]["facets"]
    assert sorted(each["name"] for each in table["schema"]["fields"]) == sorted(table["columnLineage"]["fields"])
    (column,) = table["columnLineage"]["fields"]["total"]["inputFields"]
    assert (column["name"], column["field"]) == (of_query["name"], "total")


def test_the_clients_classes_take_every_event_as_it_is(laboratory: Laboratory) -> None:
    record = laboratory.run(laboratory.plan(TEXT), 0, 60)
    run = replace(lineage_run(laboratory.warehouse, record, DAY), parent=Parent("jobs", "dag.task", PARENT))
    failed = replace(record, status="failed", diagnostics=[{"code": "HDL-530", "severity": "error", "message": "x"}])
    for events in (lineage_events(run), lineage_events(replace(run, record=failed))):
        for event in events:
            told = as_event(event)
            assert isinstance(told, RunEvent)
            assert plain(Serde.to_dict(told)) == plain(event)


PARENT = "0192f1a4-7d2b-7c3e-9b1a-1f2e3d4c5b6a"


def test_parents_are_those_of_the_standard_variable() -> None:
    assert Parent.parse(f"space/with/slash/dag.task/{PARENT}") == Parent("space/with/slash", "dag.task", PARENT)
    for text in ("", "a/b/c", PARENT, f"/job/{PARENT}"):
        assert Parent.parse(text) is None


def test_a_failed_run_tells_codes_and_no_message(laboratory: Laboratory, sent: Path) -> None:
    version = laboratory.plan(TEXT)
    for stream in ("trades", "quotes"):
        laboratory.source(stream).unlink()
    with pytest.raises(HeddleError):
        reported(laboratory, version)
    events = events_in(sent)
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    message = events[1]["run"]["facets"]["errorMessage"]["message"]
    assert "HDL-" in message and str(laboratory.folder) not in message
    assert events[1]["outputs"] == []


def test_a_run_without_anything_to_do_tells_nothing(laboratory: Laboratory, sent: Path) -> None:
    version = laboratory.plan(TEXT)
    reported(laboratory, version)
    before = sent.read_text()
    assert reported(laboratory, version).status == "unchanged"
    assert sent.read_text() == before


def test_no_event_has_text_of_a_query_or_a_secret(
    laboratory: Laboratory, sent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_TOKEN", laboratory.folder.name)
    reported(laboratory, laboratory.plan(TEXT))
    text = sent.read_text()
    assert "marked-literal" not in text and "SELECT" not in text and laboratory.folder.name not in text


def test_a_server_that_is_not_there_is_a_warning(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://user:marked-secret@127.0.0.1:9")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY__TOTAL", "0")
    record = reported(laboratory, laboratory.plan(TEXT))
    assert record.status == "published" and not record.has_failed
    assert [problem["code"] for problem in record.diagnostics] == ["HDL-638"]
    assert "marked-secret" not in str(record.diagnostics)


def test_a_client_that_is_not_installed_is_a_warning(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_OPENLINEAGE", "on")
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    record = reported(laboratory, laboratory.plan(TEXT))
    assert [problem["code"] for problem in record.diagnostics] == ["HDL-639"] and record.status == "published"


@pytest.mark.parametrize(
    ("setting", "variables", "wanted"),
    [
        ("", {}, False),
        ("", {"OPENLINEAGE_URL": "http://x"}, True),
        ("auto", {"OPENLINEAGE_CONFIG": "x.yml"}, True),
        ("auto", {"OPENLINEAGE_URL": "http://x", "OPENLINEAGE_DISABLED": "True"}, False),
        ("off", {"OPENLINEAGE_URL": "http://x"}, False),
        ("on", {}, True),
    ],
)
def test_who_configures_openlineage_gets_events(
    setting: str, variables: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEDDLE_OPENLINEAGE", setting)
    assert lineage_delivery.is_wanted(variables) is wanted


def test_datasets_have_the_names_that_others_give_them() -> None:
    pairs = [
        ("/srv/house/results", LocalFileSystem("/srv/house/results")),
        ("s3://bucket/house/results", S3("bucket", "house/results")),
        ("gs://bucket/house", GCS("bucket", "house")),
        ("abfss://box@account.dfs.core.windows.net/a/b", ABFSS("box", "account", "a/b")),
    ]
    for place, naming in pairs:
        assert dataset_name(place) == (naming.get_namespace(), naming.get_name())


@pytest.mark.parametrize(
    ("path", "table", "expected"),
    [
        ("jdbc:postgresql://db:5432/shop?ssl=1", "public.orders", ("postgres://db:5432", "shop.public.orders")),
        ("jdbc:mysql://db/shop?user=u&password=s3cret", "orders", ("mysql://db", "shop.orders")),
        ("jdbc:postgresql://u:s3cret@db/shop", "orders", ("postgres://", "orders")),
        ("jdbc:oracle:thin:scott/s3cret@db:1521:x", "orders", ("oracle://", "orders")),
        ("jdbc:sqlserver://db:1433;password=s3cret", "orders", ("sqlserver://db:1433", "orders")),
        ("", "shop.orders", ("spark", "shop.orders")),
        ("/data/orders", "", ("file", "/data/orders")),
    ],
)
def test_origins_are_named_without_what_is_secret_in_them(path: str, table: str, expected: tuple[str, str]) -> None:
    assert origin_name(Origin("any", path, table)) == expected


def test_very_many_outputs_are_told_in_several_events(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    run = lineage_run(laboratory.warehouse, laboratory.run(laboratory.plan(TEXT), 0, 60), DAY)
    all_outputs = names(lineage_events(run)[1]["outputs"])
    monkeypatch.setattr(lineage, "MOST_DATASETS", 2)
    events = [event for event in lineage_events(run) if event["job"]["name"].endswith(".answers")]
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert [name for event in events for name in names(event["outputs"])] == all_outputs
    assert len({event["run"]["runId"] for event in events}) == 1


def test_a_task_of_airflow_has_the_datasets_of_all_its_runs_once(laboratory: Laboratory) -> None:
    version = laboratory.plan(TEXT)
    for begin in (0, 30):
        laboratory.run(version, begin, begin + 30, f"run {begin}")
    inputs, outputs = datasets_of(laboratory.warehouse, publish_log.publications(laboratory.warehouse))
    house = str(laboratory.warehouse.place)
    assert sorted(dataset.name for dataset in outputs) == [
        *(f"{house}/results{name}" for name in ("", "/quoted", "/volumes")),
        f"{house}/tables/volumes_of_day",
    ]
    assert {str(laboratory.source()), str(laboratory.source("quotes"))} <= {dataset.name for dataset in inputs}
    checked = [dataset for dataset in inputs if "dataQualityAssertions" in dataset.inputFacets]
    assert {dataset.name for dataset in checked} <= {dataset.name for dataset in outputs} and checked


def test_owners_and_tables_are_those_of_now(laboratory: Laboratory) -> None:
    record = laboratory.run(laboratory.plan(TEXT), 0, 60)
    run: LineageRun = lineage_run(laboratory.warehouse, record, DAY)
    volumes = run.registered["volumes"]
    changed = replace(volumes, last=replace(volumes.last, owner="other desk"))
    events = lineage_events(replace(run, registered=run.registered | {"volumes": changed}))
    owners = [output["facets"].get("ownership") for event in events for output in event["outputs"]]
    assert {owner["owners"][0]["name"] for owner in owners if owner} == {"other desk"}
