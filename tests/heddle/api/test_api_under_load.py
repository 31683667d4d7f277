"""Clients that read while runs publish new revisions: each response, and each listing, is of one revision."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from spark_jobs.results.read import read_version
from spark_jobs.results.relations import relation
from tests.heddle.api.api_client import WITHIN, client_of, next_page, plain_rows, python_rows, serving
from tests.spark_jobs.laboratory import Laboratory, steady

QUERY = "by_symbol"
MOST = 120
"""Minutes of events; all of them are published each time."""


class Reader(threading.Thread):
    """A client that lists in pages, lists at once, and asks for the newest answers, until it is told to stop."""

    def __init__(self, address: tuple[str, int], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.address, self.stop = address, stop
        self.listings: list[tuple[int, list[Any]]] = []
        self.newest: list[tuple[int, list[Any]]] = []
        self.failures: list[str] = []

    def run(self) -> None:
        """Ask until it is told to stop, at least once."""
        try:
            while True:
                self._ask()
                if self.stop.is_set():
                    return
        except Exception as error:
            self.failures.append(repr(error))

    def _ask(self) -> None:
        for limit in (7, 1000):
            rows, snapshots, cursor = list[Any](), set[int](), ""
            while True:
                page = self._get(f"answers/{QUERY}?limit={limit}" + (f"&cursor={cursor}" if cursor else ""))
                rows += page["rows"]
                snapshots.add(page["snapshot"])
                cursor = page["next"]
                if not cursor:
                    break
            assert len(snapshots) == 1
            self.listings.append((snapshots.pop(), rows))
        newest = self._get(f"answers/{QUERY}/latest")
        self.newest.append((newest["snapshot"], newest["rows"]))

    def _get(self, path: str) -> Any:
        connection = http.client.HTTPConnection(*self.address, timeout=WITHIN)
        try:
            connection.request("GET", f"/api/v1/{path}")
            response = connection.getresponse()
            content = response.read()
            assert response.status == 200, content
            return json.loads(content)
        finally:
            connection.close()


@pytest.fixture
def laboratory(engine: Any, tmp_path: Path) -> Laboratory:
    made = Laboratory(engine, tmp_path)
    made.write(steady(MOST))
    made.plan()
    made.run(1, 0, MOST, "run-0")
    return made


def test_each_response_is_of_one_revision_while_runs_publish(laboratory: Laboratory) -> None:
    stop = threading.Event()
    with serving(laboratory.warehouse.root) as address:
        readers = [Reader(address, stop) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(1, 4):
            events = [(at, who, (price or 0) + number, volume) for at, who, price, volume in steady(MOST)]
            laboratory.write(events)
            assert laboratory.run(1, 0, MOST, f"run-{number}").status == "published"
        stop.set()
        for reader in readers:
            reader.join(WITHIN)
        # and those who ask from now on get the newest
        last = Reader(address, stop)
        last.run()
    assert not [failure for reader in [*readers, last] for failure in reader.failures]
    warehouse, known = laboratory.warehouse, relation(laboratory.warehouse, QUERY)
    assert last.listings[-1][0] == last.newest[-1][0] == warehouse.version("results")
    stored = {
        version: read_version(warehouse, known, warehouse.table("results", version))
        for version in {snapshot for reader in [*readers, last] for snapshot, _ in [*reader.listings, *reader.newest]}
    }
    for reader in [*readers, last]:
        for snapshot, rows in reader.listings:
            assert plain_rows(rows, known.schema) == python_rows(stored[snapshot])
            assert len({row["revision"] for row in rows}) == 1
        for snapshot, rows in reader.newest:
            assert len({row["revision"] for row in rows}) == 1
            assert set(plain_rows(rows, known.schema)) <= set(python_rows(stored[snapshot]))
    assert {row["revision"] for _, rows in last.listings for row in rows} == {4}


def test_a_listing_goes_on_in_its_snapshot_until_that_is_gone(laboratory: Laboratory) -> None:
    client = client_of(laboratory.warehouse.root)
    first = client.get(f"answers/{QUERY}?limit=5")
    everything = client.get(f"answers/{QUERY}")
    page = first.json()
    laboratory.write([(at, who, (price or 0) + 1, volume) for at, who, price, volume in steady(MOST)])
    laboratory.run(1, 0, MOST, "run-1")
    # before files are removed
    following = next_page(client, first)
    assert following.json()["rows"] == everything.json()["rows"][5:10]
    assert following.json()["snapshot"] == page["snapshot"]
    # who knows the answers by their tag gets the new ones
    changed = client.get(f"answers/{QUERY}", headers={"If-None-Match": everything.headers["etag"]})
    assert changed.status_code == 200 and changed.json()["rows"] != everything.json()["rows"]
    assert client.get(f"answers/{QUERY}", headers={"If-None-Match": changed.headers["etag"]}).status_code == 304
    # maintenance removes what only the earlier version names
    named = set(laboratory.warehouse.table("results").file_uris())
    for file in (laboratory.warehouse.root / "results").rglob("*.parquet"):
        if str(file) not in {name.removeprefix("file://") for name in named}:
            file.unlink()
    gone = next_page(client, first)
    assert gone.status_code == 410 and gone.json()["code"] == "HDL-632", gone.text
    assert client.get(f"answers/{QUERY}?limit=5").status_code == 200


def test_a_listing_ends_where_the_query_is_redefined(laboratory: Laboratory) -> None:
    client = client_of(laboratory.warehouse.root)
    cursor = client.get(f"answers/{QUERY}?limit=5").json()["next"]
    text = f"-- name: {QUERY}\nSELECT count(*) AS other FROM trades WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts"
    laboratory.plan(text)
    gone = client.get(f"answers/{QUERY}?limit=5&cursor={quote(cursor)}")
    assert gone.status_code == 410 and gone.json()["code"] == "HDL-632" and "redefined" in gone.json()["message"]
