"""What the environment says of Azure: as Arrow takes it, it is what delta-rs does. Needs no server."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted
from spark_jobs.store.azure import Endpoint, container_filesystem, endpoint_of
from spark_jobs.store.storage import Place

ROOT = "abfss://box@account.dfs.core.windows.net"
KEY = b64encode(b"a key of an account").decode()


@pytest.fixture(autouse=True)
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the variables that this machine has."""
    for name in os.environ:
        if name.startswith(("AZURE_", "AZURITE_")):
            monkeypatch.delenv(name)


class Unable:
    """As Arrow where nobody gives it a token."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get_file_info(self, chosen: fs.FileSelector) -> list[fs.FileInfo]:
        raise self.error


def options(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], root: str = ROOT) -> dict[str, Any]:
    """What Arrow's file system is made with."""
    kwargs: dict[str, Any] = {}

    def unable_filesystem(account: str, **options: Any) -> Unable:
        kwargs.update(options, account=account)
        return Unable(OSError("not permitted there"))

    monkeypatch.setattr(fs, "AzureFileSystem", unable_filesystem)
    container_filesystem(root, environment)
    return kwargs


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": KEY, "AZURE_STORAGE_SAS_TOKEN": "sv=1"}, {"account_key": KEY}),
        ({"AZURE_STORAGE_ACCESS_KEY": KEY}, {"account_key": KEY}),
        ({"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=x"}, {"sas_token": "?sv=1&sig=x"}),
        ({"AZURE_STORAGE_SAS_KEY": "sv=1&sig=x"}, {"sas_token": "?sv=1&sig=x"}),
        (
            {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_STORAGE_CLIENT_SECRET": "s"},
            {"tenant_id": "t", "client_id": "c", "client_secret": "s"},
        ),
        ({"AZURE_CLIENT_ID": "of a managed identity"}, {}),
        ({}, {}),
    ],
)
def test_credentials(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: dict[str, str]) -> None:
    kwargs = options(monkeypatch, environment)
    assert {name: value for name, value in kwargs.items() if "_storage_" not in name and name != "account"} == expected
    assert kwargs["account"] == "account" and kwargs["blob_storage_authority"] == ".blob.core.windows.net"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://account.blob.core.chinacloudapi.cn", (".blob.core.chinacloudapi.cn", ".dfs.core.chinacloudapi.cn")),
        (
            "https://account.dfs.core.usgovcloudapi.net/",
            (".blob.core.usgovcloudapi.net", ".dfs.core.usgovcloudapi.net"),
        ),
        ("https://account.store.here:444", (".store.here:444", ".store.here:444")),
        ("https://other.blob.core.chinacloudapi.cn", None),
        ("http://127.0.0.1:10000/account", None),
        ("account.blob.core.windows.net", None),
    ],
)
def test_endpoints(url: str, expected: tuple[str, str] | None) -> None:
    if expected is not None:
        assert endpoint_of(url, "account") == Endpoint("https", *expected)
        return
    with pytest.raises(HeddleError, match="HDL-120 .*account"):
        endpoint_of(url, "account")


def test_the_account_of_a_workspace_and_of_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    kwargs = options(monkeypatch, {}, "abfss://space@onelake.dfs.fabric.microsoft.com")
    assert kwargs["account"] == "onelake" and kwargs["blob_storage_authority"] == ".blob.fabric.microsoft.com"
    emulated = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURE_STORAGE_ACCOUNT_KEY": KEY}
    kwargs = options(monkeypatch, emulated | {"AZURITE_BLOB_STORAGE_URL": "http://127.0.0.1:10077"})
    assert kwargs["blob_storage_authority"] == "127.0.0.1:10077" and kwargs["blob_storage_scheme"] == "http"
    assert options(monkeypatch, emulated)["dfs_storage_authority"] == "127.0.0.1:10000"


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": "n0 key"}, "HDL-120"),
        ({"AZURE_STORAGE_USE_EMULATOR": "true"}, "HDL-577"),
        ({"AZURE_USE_FABRIC_ENDPOINT": "true"}, "HDL-120"),
        ({"AZURE_STORAGE_ENDPOINT": "https://other.blob.core.windows.net"}, "HDL-120"),
    ],
)
def test_what_would_end_the_process_is_refused(environment: dict[str, str], code: str) -> None:
    with pytest.raises(HeddleError, match=code) as refused:
        container_filesystem(ROOT, environment)
    assert "n0 key" not in str(refused.value)


def test_nobody_who_asks_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    error = pa.ArrowException(
        "Unknown error: AuthenticationException: Failed to get token from DefaultAzureCredential."
    )
    monkeypatch.setattr(fs, "AzureFileSystem", lambda *arguments, **options: Unable(error))
    with pytest.raises(HeddleError, match="HDL-577"):
        (Place.of(f"{ROOT}/x") / "y").exists()


def test_signatures_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redacted("GET https://account/box?sv=1&sig=abcdefgh&se=2 failed") == (
        "GET https://account/box?sv=1&sig=***&se=2 failed"
    )
    monkeypatch.setenv("AZURE_STORAGE_SAS_KEY", "sv=1&se=tomorrow")
    assert "tomorrow" not in redacted("by sv=1&se=tomorrow")
