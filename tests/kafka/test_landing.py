"""Topics of a real broker into Delta tables: each record once whatever dies, and answers over them the oracle's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream
from spark_jobs.engine.session import start_session  # noqa: F401 - of the process that is killed
from spark_jobs.streams.landing import kafka
from spark_jobs.streams.landing import land as landing_module
from spark_jobs.streams.landing.land import Topic, land
from tests.kafka.broker import Broker, is_there
from tests.spark_jobs.laboratory import DAY, MINUTE

pytestmark = [
    pytest.mark.longer,
    pytest.mark.skipif(
        not (is_there() and any(kafka.jars_folder().glob("*spark-sql-kafka*.jar"))),
        reason="Kafka's jars are not fetched: make test-slow fetches them",
    ),
]

COLUMNS = (("ts", TIMESTAMP), ("symbol", STRING), ("volume", LONG), ("kafka_id", STRING))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running_broker = Broker(tmp_path_factory.mktemp("broker"))
    running_broker.start()
    yield running_broker
    running_broker.stop()


@pytest.fixture
def session(spark: Any) -> Any:
    """That of all tests, which has Kafka's jars where they are fetched."""
    return spark


@pytest.fixture
def topic(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Topic:
    table = tmp_path / "trades"
    stream = Stream("trades", Source("delta", str(table)), COLUMNS, "ts", event_id="kafka_id")
    return Topic(request.node.name.replace("[", "-").replace("]", ""), broker.servers, stream, table)


def send(session: Any, topic: Topic, values: Sequence[bytes | None], key: bytes | None = None) -> None:
    rows = [(key, value if value is None else bytearray(value)) for value in values]
    frame = session.createDataFrame(rows, "key binary, value binary").coalesce(1)
    frame.write.format("kafka").option("kafka.bootstrap.servers", topic.servers).option("topic", topic.name).save()


def event(number: int) -> bytes:
    at = f"2013-07-01T{number // 60:02}:{number % 60:02}:00Z"
    return json.dumps({"ts": at, "symbol": "AB"[number % 2], "volume": number, "more": [1]}).encode()


def rows(folder: Path | str) -> list[dict[str, Any]]:
    return DeltaTable(str(folder)).to_pyarrow_table().to_pylist()


def volumes(topic: Topic) -> list[int]:
    return sorted(row["volume"] for row in rows(topic.table))


def test_what_does_not_fit_is_kept_with_its_reason(session: Any, topic: Topic) -> None:
    bad = [b"{", b'{"ts": "2013-07-01", "volume": "7"}', b'{"volume": 1}', None, b"\xff", b"x" * 100_000]
    send(session, topic, [*map(event, range(100)), *bad], b"key")
    landed = land(session, topic)
    assert (landed.landed, landed.quarantined) == (100, len(bad)) and landed.diagnostics[0].code == "HDL-629"
    assert volumes(topic) == list(range(100))
    row = rows(topic.table)[0]
    assert row["kafka_id"] == f"{row['kafka_partition']}:{row['kafka_offset']}" and row["kafka_topic"] == topic.name
    assert row["kafka_timestamp"].year > 2013
    quarantined = rows(landed.quarantine)
    assert sorted(each["why"] for each in quarantined) == sorted(
        [
            "it is not JSON (character 1)",
            "volume: a text where a whole number is expected",
            "ts: there is no event time",
            "there is no value (a tombstone)",
            "it is not UTF-8 (byte 0)",
            "it is not JSON (character 0)",
        ]
    )
    assert {each["key"] for each in quarantined} == {b"key"} and max(
        each["value_bytes"] for each in quarantined
    ) == 100_000
    assert max(len(each["value"] or b"") for each in quarantined) == 65_536
    # nothing new: nothing happens
    again = land(session, topic)
    assert (again.landed, again.quarantined, again.batches) == (0, 0, 0)
    assert len(rows(topic.table)) == 100


@pytest.mark.parametrize("dies_after", [0, 1, 2])
def test_a_crash_anywhere_in_a_batch_neither_loses_nor_doubles(
    session: Any, topic: Topic, dies_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first table, between both, and behind both but before the checkpoint: each batch dies once."""
    plain, died = landing_module.append, []
    send(session, topic, [each for number in range(30) for each in (event(number), b"bad %d" % number)])

    def append(frame: Any, folder: Path, application: str, number: int, count: int) -> None:
        is_second = folder != topic.table
        if number in died:
            return plain(frame, folder, application, number, count)
        if dies_after == 0 or (dies_after == 1 and is_second):
            died.append(number)
            raise RuntimeError("died")
        plain(frame, folder, application, number, count)
        if dies_after == 2 and is_second:
            died.append(number)
            raise RuntimeError("died")

    monkeypatch.setattr(landing_module, "append", append)
    deaths = 0
    while True:
        try:
            landed = land(session, topic, most=20)
            break
        except Exception as error:
            assert "died" in str(error)
            deaths += 1
            assert deaths < 20
    assert deaths >= 3
    assert volumes(topic) == list(range(30))
    assert sorted(each["value"] for each in rows(landed.quarantine)) == sorted(b"bad %d" % each for each in range(30))


KILLED = """
import os, signal, sys
from tests.kafka import test_landing as t
from pathlib import Path
plain = t.landing_module.append
def append(frame, folder, *more):
    plain(frame, folder, *more)
    os.kill(os.getpid(), signal.SIGKILL)
t.landing_module.append = append
table = Path(sys.argv[3])
stream = t.Stream("trades", t.Source("delta", str(table)), t.COLUMNS, "ts", event_id="kafka_id")
session = t.start_session("killed", "local[1]", settings=t.kafka.session_settings())
t.land(session, t.Topic(sys.argv[1], sys.argv[2], stream, table))
"""


def test_a_process_that_is_killed_behind_the_commit(session: Any, topic: Topic) -> None:
    send(session, topic, [event(number) for number in range(50)])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, topic.name, topic.servers, str(topic.table)], env=dict(os.environ)
    )
    assert done.returncode == -9 and volumes(topic) == list(range(50))
    checkpoint = topic.table / "_checkpoints" / topic.name
    assert [path.name for path in (checkpoint / "offsets").glob("[0-9]*")] == ["0"]
    assert not list((checkpoint / "commits").glob("[0-9]*"))
    send(session, topic, [event(number) for number in range(50, 60)])
    land(session, topic)
    assert volumes(topic) == list(range(60))


def test_latest_begins_where_the_topic_ends(session: Any, topic: Topic) -> None:
    from dataclasses import replace

    send(session, topic, [event(1)])
    topic = replace(topic, starting="latest")
    assert land(session, topic).landed == 0
    send(session, topic, [event(2)])
    assert land(session, topic).landed == 1 and volumes(topic) == [2]


def test_tables_and_checkpoints_that_do_not_belong_together(session: Any, topic: Topic, tmp_path: Path) -> None:
    import shutil
    from dataclasses import replace

    send(session, topic, [event(1)])
    land(session, topic)
    checkpoint = topic.table / "_checkpoints" / topic.name

    def refused(other: Topic) -> str:
        with pytest.raises(HeddleError) as caught:
            land(session, other)
        assert caught.value.diagnostic.code == "HDL-627"
        return caught.value.diagnostic.message

    assert "another table" in refused(replace(topic, table=tmp_path / "other", checkpoint=checkpoint))
    assert "some would be there twice" in refused(replace(topic, checkpoint=tmp_path / "new"))
    narrower = replace(topic.stream, schema=COLUMNS[:2])
    assert "other columns" in refused(replace(topic, stream=narrower))
    # Spark's part of the checkpoint is gone: batch 0 would be left out as if it were there
    for name in ("offsets", "commits", "metadata", "sources"):
        path = checkpoint / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "does not know of" in refused(topic)
    # a new column is added, and null in what is there
    second = replace(topic, table=tmp_path / "second")
    land(session, second)
    wider = replace(second, stream=replace(topic.stream, schema=(*COLUMNS, ("price", LONG))))
    send(session, topic, [b'{"ts": "2013-07-01", "volume": 2, "price": 7}'])
    land(session, wider)
    assert {row["volume"]: row["price"] for row in rows(second.table)} == {1: None, 2: 7}


def test_a_topic_that_is_not_there(session: Any, topic: Topic) -> None:
    from dataclasses import replace

    for other in (replace(topic, servers="127.0.0.1:1"), replace(topic, name="not-there")):
        with pytest.raises(HeddleError) as caught:
            land(session, other)
        assert caught.value.diagnostic.code == "HDL-628"
    assert "no such topic" in caught.value.diagnostic.message


def test_answers_over_a_landed_topic_are_the_oracles(session: Any, topic: Topic, tmp_path: Path) -> None:
    """Late records, records that come twice under one id of their own, and those that do not fit."""
    from dataclasses import replace
    from fractions import Fraction

    from optimizer.language.parser import parse
    from optimizer.plan.builder import build_plan
    from optimizer.workload.values import Workload
    from spark_jobs.pipeline.planning.publication import publish_plan
    from spark_jobs.pipeline.run.interval import run
    from spark_jobs.results.read import read
    from spark_jobs.store.warehouse.plans import load_plan
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from tests import oracle

    stream = replace(topic.stream, schema=(*COLUMNS[:3], ("id", LONG)), event_id="id")
    topic = replace(topic, stream=stream)
    text = """
    -- name: by_symbol
    SELECT symbol, count(*) AS n, sum(volume) AS total FROM trades
    WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
    -- name: all
    SELECT count(*) AS n, max(volume) AS most FROM trades WINDOW RANGE '40 minutes' SLIDE '15 minutes' ON ts;
    """
    house = Warehouse.open(tmp_path / "warehouse")
    parsed = parse(text, {"trades": stream})
    assert not parsed.diagnostics
    plan = build_plan(Workload(parsed.queries, (stream,)), {"trades": Fraction(1)}, "weave-share")
    version = publish_plan(house, plan)[0]
    begin, end = DAY, DAY + 60 * MINUTE

    def wrong(events: Sequence[dict[str, Any]], run_id: str) -> list[str]:
        """What a run publishes, beside the oracle's answers over these events."""
        run(session, house, version, begin, end, run_id, as_of=end + 10**13)
        event_table = pa.Table.from_pylist(
            [each | {"ts": datetime.fromisoformat(each["ts"])} for each in events],
            pa.schema([("ts", pa.timestamp("us", "UTC")), ("symbol", "string"), ("volume", "int64"), ("id", "int64")]),
        )
        return [
            f"{query.name}: {line}"
            for query in load_plan(house, version).workload.queries
            for line in oracle.compare(
                query, read(house, query.name), oracle.answers(query, event_table, "ts", begin, end)
            )
        ]

    def publish(events: Sequence[dict[str, Any]]) -> None:
        send(session, topic, [json.dumps(each).encode() for each in events])

    steady = [json.loads(event(number)) | {"id": number} for number in range(60)]
    publish([*steady, *steady[50:]])
    send(session, topic, [b"bad"])
    assert land(session, topic).landed == 70
    assert wrong(steady, "first") == []
    late = [steady[number] | {"symbol": "C", "volume": 1000 + number, "id": 100 + number} for number in (7, 30, 31)]
    publish([*late, *late[:2], steady[3]])
    assert land(session, topic).landed == 6 and len(rows(topic.table)) == 76
    assert wrong(steady, "too few") != [] and wrong([*steady, *late], "late") == []
