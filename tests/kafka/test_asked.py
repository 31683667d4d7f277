"""What a landing is asked for: topics, options of Kafka, the DAG's file, jars; without a broker."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted
from spark_jobs.engine.configuration import spark_settings
from spark_jobs.store.settings import settings
from spark_jobs.streams.landing import kafka
from spark_jobs.streams.landing.land import topic_of
from spark_jobs.streams.landing.places import landing
from spark_jobs.streams.landing.records import Records
from spark_jobs.streams.landing.topics import folder_jobs, jobs

STREAMS = """
streams:
  trades:
    source: {format: delta, path: data/trades}
    time: ts
    schema: {ts: timestamp, volume: long}
  files:
    source: {format: csv, path: files}
    time: ts
    schema: {ts: timestamp, volume: long}
"""


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    path = tmp_path / "streams.yaml"
    path.write_text(STREAMS)
    return path


def refused(code: str, call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    with pytest.raises(HeddleError) as caught:
        call(*arguments, **named)
    assert caught.value.diagnostic.code == code
    return caught.value.diagnostic.message


def test_a_topic_by_what_a_user_says(streams: Path, tmp_path: Path) -> None:
    topic = topic_of("trades", "a:1", streams)
    assert (topic.table, topic.checkpoint, topic.starting) == (tmp_path / "data/trades", None, "earliest")
    topic = topic_of("other-2", "a:1", streams, "files", tmp_path / "x" / ".." / "y", checkpoint=tmp_path / "c")
    assert (topic.table, topic.checkpoint) == (tmp_path / "y", tmp_path / "c")
    for name in ("a,b", "a b", "..", "", "x" * 250):
        assert "is no topic" in refused("HDL-626", topic_of, name, "a:1", streams, "trades")
    assert "declares no stream" in refused("HDL-626", topic_of, "none", "a:1", streams)
    assert "no Delta table" in refused("HDL-626", topic_of, "files", "a:1", streams)
    for place in ("s3://bucket/x", "/etc/x"):
        refused("HDL-626", topic_of, "trades", "a:1", streams, table=place)
    refused("HDL-450", topic_of, "trades", "a:1", tmp_path / "absent.yaml")
    assert "cannot be read" in refused("HDL-626", topic_of, "trades", "a:1", streams, avro_schema="absent")


def test_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for servers in ("", "a", "a:", "a:0", "a:65536", "a:1,", "a:1;b:2", "user:pw@a:1"):
        refused("HDL-626", kafka.check_servers, servers)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        # bound, and not listening
        refused("HDL-628", kafka.check_servers, f"127.0.0.1:{port}")
        listening.listen()
        kafka.check_servers(f"127.0.0.1:1,127.0.0.1:{port}")


def test_options_come_from_a_file_and_are_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kafka.options() == {}
    path = tmp_path / "client.properties"
    monkeypatch.setenv("HEDDLE_KAFKA_OPTIONS", str(path))
    assert "cannot be read" in refused("HDL-626", kafka.options)
    path.write_text(
        '# a comment\nsecurity.protocol=SASL_SSL\nsasl.jaas.config=Module required \\\n  password="s=s3cr3t";\n'
    )
    options = kafka.options()
    assert options == {"security.protocol": "SASL_SSL", "sasl.jaas.config": 'Module required password="s=s3cr3t";'}
    assert redacted(f"failed: {options['sasl.jaas.config']} SASL_SSL") == "failed: *** SASL_SSL"
    assert "s3cr3t" not in redacted('it says password="s=s3cr3t";') + repr(settings())
    for text in ("bootstrap.servers=a:1", "no sign: hunter2", "a=1\na=2", "A b=hunter2", "x=" + "y" * 70_000):
        path.write_text(text)
        assert "hunter2" not in refused("HDL-626", kafka.options)


def test_the_file_of_the_dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert jobs(settings()) == []  # the one that is shipped
    path = tmp_path / "topics.toml"
    monkeypatch.setenv("HEDDLE_TOPICS", str(path))
    monkeypatch.setenv("HEDDLE_STREAMS", "/s/streams.yaml")
    assert jobs(settings()) == []
    path.write_text('[a]\nservers = "h:1"\n["b.c"]\nservers = "h:2"\nto = "d"\nstarting = "latest"\n')
    assert jobs(settings()) == [
        ["a", "--streams", "/s/streams.yaml", "--servers", "h:1"],
        ["b.c", "--streams", "/s/streams.yaml", "--servers", "h:2", "--to", f"{tmp_path}/d", "--starting", "latest"],
    ]
    path.write_text('[a]\nservers = "h:1"\n[b]\nfolder = "raw"\nto = "t"\nstream = "s"\n[c]\nfolder = "/raw"\n')
    assert [arguments[0] for arguments in jobs(settings())] == ["a"]
    assert folder_jobs(settings()) == [
        {"streams": "/s/streams.yaml", "folder": f"{tmp_path}/raw", "table": f"{tmp_path}/t", "stream": "s"},
        {"streams": "/s/streams.yaml", "folder": "/raw"},
    ]
    for text in (
        "[a]\n",
        "a = 1",
        '[a]\nfolder = "x"\nservers = "h:1"',
        "[a]\nservers = 1",
        '[a]\nservers = "h:1"\nfrom = "x"',
        "[",
        "\xff",
    ):
        path.write_bytes(text.encode("latin-1"))
        refused("HDL-626", jobs, settings())


def test_jars_for_kafka_are_of_these_sessions_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_JARS", str(tmp_path / "ivy" / "jars"))
    (tmp_path / "ivy" / "jars").mkdir(parents=True)
    (tmp_path / "ivy" / "jars" / "io.delta_delta-spark.jar").touch()
    refused("HDL-625", kafka.session_settings)
    folder = kafka.jars_folder()
    folder.mkdir(parents=True)
    for name in (*kafka.NEEDED, "hadoop-client-api"):
        (folder / f"org_{name}-1.jar").touch()
    plain, kafka_settings = spark_settings(), kafka.session_settings()
    assert "/kafka/jars/" not in str(plain) and kafka_settings["spark.jars"].count("/kafka/jars/") == len(kafka.NEEDED)
    # what the archive of classes was made for stays as it is
    assert {name for name in kafka_settings if kafka_settings[name] != plain.get(name)} == {"spark.jars"}


def test_one_process_at_a_time_lands_into_a_table(streams: Path, tmp_path: Path) -> None:
    topic = topic_of("trades", "a:1", streams)
    records = Records.of(topic.stream)
    with landing("trades", topic.table, None, records) as place:
        assert place.checkpoint == topic.table / "_checkpoints" / "trades"

        def second() -> None:
            with landing("trades", topic.table, None, records):
                pass

        assert "another process" in refused("HDL-627", second)
    second()
    # a second topic has a checkpoint of its own
    with landing("more", topic.table, None, records) as other:
        assert other.identity != place.identity


def test_the_command_tells_what_stands_in_the_way(
    streams: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*more: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["land", "trades", "--servers", "127.0.0.1:1", "--streams", str(streams), *more])
        return done.exit_code, done.output

    assert run("--format", "avro")[0] == 2 and run("--avro-schema", "x")[0] == 2
    assert run("--stream", "none")[0] == 2
    monkeypatch.setenv("HEDDLE_JARS", str(tmp_path / "none"))
    code, text = run()
    assert code == 1 and "HDL-520" in text
