"""A store's server for a session of tests, a proxy before it, and a folder of a bucket for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from heddle.local.object_store import ObjectStore
from tests.stores.azurite import ACCOUNT, Azurite
from tests.stores.proxy import StoreProxy
from tests.stores.versitygw import Versitygw


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A server that runs: the embedded one, or that which the environment names."""
    kinds: dict[str | None, type[ObjectStore]] = {"versitygw": Versitygw, "azurite": Azurite}
    store = kinds.get(os.environ.get("HEDDLE_TEST_STORE"), ObjectStore).over(
        tmp_path_factory.mktemp("store") / "objects"
    )
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
    store_proxy = StoreProxy(server.port)
    yield store_proxy
    store_proxy.stop()


@pytest.fixture
def through(server: ObjectStore, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment that leads through the proxy, which is this process's as well."""
    environment = server.environment
    for name, value in environment.items():
        environment[name] = value.replace(server.url, proxy.url)
        monkeypatch.setenv(name, environment[name])
    return environment


@pytest.fixture
def root_of(server: ObjectStore) -> Callable[[str], str]:
    """The URL of a bucket, which need not be there."""
    return lambda bucket: (
        f"abfss://{bucket}@{ACCOUNT}.dfs.core.windows.net" if isinstance(server, Azurite) else f"s3://{bucket}"
    )


@pytest.fixture
def place(bucket: str, root_of: Callable[[str], str], through: dict[str, str]) -> str:
    """A URL where nothing is, reached through the proxy."""
    return f"{root_of(bucket)}/{uuid.uuid4().hex}"
