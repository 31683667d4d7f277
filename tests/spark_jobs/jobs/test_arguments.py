"""What jobs that Airflow submits take from their arguments, and their exit codes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.jobs import land_topic, repair_results


def test_a_topic_is_landed_as_all_arguments_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topics: list[Any] = []
    stopped: list[bool] = []
    landed = SimpleNamespace(to_json=lambda: {"landed": 3}, diagnostics=["a warning"])
    monkeypatch.setattr(land_topic, "topic_of", lambda *given, **named: topics.append((given, named)) or "a topic")
    monkeypatch.setattr(land_topic, "session_settings", dict)
    session = SimpleNamespace(stop=lambda: stopped.append(True))
    monkeypatch.setattr(land_topic, "start_session", lambda name, settings: session)
    monkeypatch.setattr(land_topic, "land", lambda spark, topic, report: landed if topic == "a topic" else None)
    options = {"stream": "trades", "to": "table", "avro-schema": "a.avsc", "checkpoint": "c", "starting": "latest"}
    arguments = ["trades", "--servers", "host:1", "--streams", "streams.yaml"]
    assert land_topic.main([*arguments, *(f"--{name}={value}" for name, value in options.items())]) == 0
    named = {"stream": "trades", "table": "table", "avro_schema": "a.avsc", "checkpoint": "c", "starting": "latest"}
    assert topics == [(("trades", "host:1", "streams.yaml"), named)] and stopped == [True]
    assert capsys.readouterr() == ('{"landed": 3}\n', "a warning\n")


def test_a_repair_that_fails_prints_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped: list[bool] = []

    def fail(*given: Any) -> Any:
        raise HeddleError("HDL-401", "no file", "check `path`")

    monkeypatch.setattr(repair_results, "arrow_alone", lambda: None)
    monkeypatch.setattr(repair_results, "set_aside", lambda: None)
    engine = SimpleNamespace(stop=lambda: stopped.append(True))
    monkeypatch.setattr(repair_results, "engine_of_job", lambda name: engine)
    monkeypatch.setattr("spark_jobs.pipeline.planning.project_streams.of_project", lambda *given: "warehouse")
    monkeypatch.setattr("spark_jobs.store.warehouse.warehouse.Warehouse.open", lambda *given, **named: None)
    monkeypatch.setattr("spark_jobs.store.warehouse.publish_log.lost_publications", lambda warehouse: [])
    outdated = [SimpleNamespace(begin=0, end=10, radius="a file changed")]
    monkeypatch.setattr("spark_jobs.pipeline.run.history.outdated", lambda *given: outdated)
    monkeypatch.setattr("spark_jobs.pipeline.run.interval.run", fail)
    arguments = ["--warehouse", "w", "--plan-version", "1", "--days", "1"]
    assert repair_results.main(arguments) == 1 and stopped == [True]
    assert "HDL-401" in capsys.readouterr().err
    outdated.clear()
    assert repair_results.main(arguments) == 0
