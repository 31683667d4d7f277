"""An S3 server for a session of tests, a proxy before it, and a bucket for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from heddle.local.object_store import ObjectStore
from tests.stores.proxy import StoreProxy
from tests.stores.versitygw import Versitygw


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A server that runs: the embedded one, or that which the environment names."""
    kind = Versitygw if os.environ.get("HEDDLE_TEST_STORE") == "versitygw" else ObjectStore
    store = kind.over(tmp_path_factory.mktemp("store") / "objects")
    store.start()
    yield store
    store.stop()


@pytest.fixture(scope="session")
def bucket(server: ObjectStore) -> str:
    """A bucket on it."""
    server.make_bucket("heddle-tests")
    return "heddle-tests"


@pytest.fixture
def proxy(server: ObjectStore) -> Iterator[StoreProxy]:
    """A proxy before the server that passes everything on."""
    made = StoreProxy(server.port)
    yield made
    made.stop()


@pytest.fixture
def place(server: ObjectStore, bucket: str, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL where nothing is, reached through the proxy."""
    for name, value in (server.environment | {"AWS_ENDPOINT_URL": proxy.url}).items():
        monkeypatch.setenv(name, value)
    return f"s3://{bucket}/{uuid.uuid4().hex}"
