"""Folders of a store whose names are columns: the events of a folder of this machine, and listings only of what is
needed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optimizer.workload.partitions import parse_partitions
from optimizer.workload.streams import parse_type
from optimizer.workload.values import DATE, LONG, STRING, TIMESTAMP, Source, Stream
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import read_splits
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.inspection import inspect
from spark_jobs.streams.sources.ledger import ledger, opened
from spark_jobs.streams.sources.proposals import look, propose, time_of
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import DAY

LENGTH = 86_400_000_000
SCHEMA = (("ts", TIMESTAMP), ("x", LONG), ("day", DATE), ("region", STRING))


@pytest.fixture(autouse=True)
def unaudited() -> Iterator[None]:
    with without_audit():
        yield


def filled(root: str) -> Stream:
    place = Place.of(root)
    for day in range(1, 8):
        for region in ("eu", "a%20b", "__HIVE_DEFAULT_PARTITION__"):
            folder = place / f"day=2013-07-0{day}" / f"region={region}"
            folder.make_folder()
            (folder / "a.csv").put(f"ts,x\n2013-07-0{day}T05:00:00,{day}\n".encode())
    partitions = parse_partitions({"day": "exact", "region": ""}, "", parse_type)
    return Stream("events", Source("csv", root, partitions=partitions), SCHEMA, "ts")


def rows_of(stream: Stream) -> list[dict[str, Any]]:
    names = [name for name, _ in stream.schema]
    return [row for batch in read_splits(stream, splits_of(stream), names) for row in batch.to_pylist()]


def test_folders_of_a_store_are_columns(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = (filled(f"{root}/{uuid.uuid4().hex}") for root in (str(tmp_path), place))
    assert rows_of(here) == rows_of(there) and len(rows_of(there)) == 21
    assert inspect(here, ["region"]).to_json() == inspect(there, ["region"]).to_json()
    found = look(Place.of(there.source.path))
    proposal = propose(found, time_of(found))
    assert dict(proposal.stream.schema) == dict(SCHEMA)
    assert [partition.name for partition in proposal.stream.source.partitions] == ["day", "region"]
    listings: list[str] = []
    contents = Place.contents

    def watched(self: Place) -> Any:
        listings.append(str(self))
        return contents(self)

    monkeypatch.setattr(Place, "contents", watched)
    warehouse = Warehouse.open(tmp_path / "warehouse")
    span = (DAY + 3 * LENGTH, DAY + 4 * LENGTH)
    listed = opened(there, ledger(warehouse, there), span, sparing=True)
    assert sorted({split.path.split("day=")[1][:10] for split in listed.splits}) == [
        "2013-07-03",
        "2013-07-04",
        "2013-07-05",
    ]
    assert len(listings) == 1 + 3 * (1 + 3)
    listings.clear()
    assert len(opened(there, ledger(warehouse, there), span).splits) == 21 and listings == []
