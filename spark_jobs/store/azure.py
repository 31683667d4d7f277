"""Azure's stores as Arrow reaches them: by the same variables of the environment as delta-rs, which commits.

Arrow's own reading of a URL would look at none of ``AZURE_STORAGE_…``. And its files are not written by it: it makes an
empty one first, in place of what was there, and fills it afterwards. :func:`upload_blob` writes
them by delta-rs.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as fs

from optimizer.errors.diagnostics import HeddleError

if TYPE_CHECKING:
    from deltalake._internal import DeltaFileSystemHandler

PART = 8 << 20
"""So many bytes of a file are one request."""

ACCESS_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
SIGNATURES = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
TENANTS = ("AZURE_STORAGE_TENANT_ID", "AZURE_STORAGE_AUTHORITY_ID", "AZURE_TENANT_ID", "AZURE_AUTHORITY_ID")
CLIENTS = ("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID")
SECRETS = ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET")
ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")

EMULATOR, EMULATOR_URL = "AZURE_STORAGE_USE_EMULATOR", "AZURITE_BLOB_STORAGE_URL"
FABRIC = "AZURE_USE_FABRIC_ENDPOINT"

_NOT_THERE = "_heddle-is-not-there"


@dataclass(frozen=True)
class Endpoint:
    """Place of an account's blobs: ``scheme``, and the authorities as Arrow expects them (starting with a point if
    Arrow puts the account before them). ``dfs``: the authority of the hierarchical namespace.
    """

    scheme: str
    blob: str
    dfs: str


def container_filesystem(root: str, environment: Mapping[str, str]) -> fs.FileSystem:
    """Arrow's file system of the account of a container.

    Parameters
    ----------
    root
        The container's URL, ``abfss://container@account.dfs.core.windows.net``.
    environment
        The variables with the endpoint and the credentials.

    Raises
    ------
    HeddleError
        HDL-120 for a variable that cannot be followed, HDL-577 without credentials on an endpoint of HTTP.
    OSError
        If there are no credentials, or they yield no token: Arrow would end the process later.
    """
    container, _, host = root.partition("://")[2].partition("@")
    account, _, domain = host.partition(".")
    endpoint, options = _endpoint(account, domain, environment), _credentials(environment)
    is_by_token = not {"account_key", "sas_token"} & options.keys()
    if endpoint.scheme == "http" and is_by_token:
        hint = f"set {ACCESS_KEYS[0]} or {SIGNATURES[0]}, or name an endpoint of https"
        raise HeddleError("HDL-577", f"{root}: tokens are not sent to an endpoint of http", hint)
    system = fs.AzureFileSystem(
        account,
        blob_storage_scheme=endpoint.scheme,
        dfs_storage_scheme=endpoint.scheme,
        blob_storage_authority=endpoint.blob,
        dfs_storage_authority=endpoint.dfs,
        **options,
    )
    if is_by_token:
        _check_token(system, container)
    return system


def _endpoint(account: str, domain: str, environment: Mapping[str, str]) -> Endpoint:
    if _is_on(environment, FABRIC):
        hint = "write URLs as abfss://workspace@onelake.dfs.fabric.microsoft.com/… instead"
        raise HeddleError("HDL-120", f"{FABRIC} is set, which Arrow does not know", hint)
    if _is_on(environment, EMULATOR):
        url = urlsplit(environment.get(EMULATOR_URL) or "http://127.0.0.1:10000")
        return Endpoint(url.scheme, url.netloc, url.netloc)
    endpoint_url = _first(environment, ENDPOINTS)
    return endpoint_of(endpoint_url, account) if endpoint_url else Endpoint("https", *_services(domain))


def endpoint_of(url: str, account: str) -> Endpoint:
    """Return the endpoint in AZURE_STORAGE_ENDPOINT: ``https://account.blob.core.chinacloudapi.cn`` of another cloud.
    Raises HDL-120.
    """
    parts = urlsplit(url)
    host = parts.netloc
    if parts.scheme not in ("http", "https") or parts.path.strip("/") or not host.startswith(f"{account}."):
        # an emulator understands less than Azure: delta-rs has to know that it is one
        hint = (
            f"write it as https://{account}.blob.core.chinacloudapi.cn; of an emulator, set {EMULATOR}=true and "
            f"{EMULATOR_URL}"
        )
        raise HeddleError("HDL-120", f"{ENDPOINTS[0]} is not the endpoint of the account {account}", hint)
    return Endpoint(parts.scheme, *_services(host.removeprefix(f"{account}.")))


def _services(domain: str) -> tuple[str, str]:
    """The domains of blobs and of the hierarchical namespace, of either."""
    suffix = re.sub(r"^(blob|dfs)\.", "", domain)
    return (f".blob.{suffix}", f".dfs.{suffix}") if suffix != domain else (f".{domain}", f".{domain}")


def _credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """In the order of delta-rs; nothing: what Azure's library makes of the rest of the environment and the machine."""
    if key := _first(environment, ACCESS_KEYS):
        _check_key(key)
        return {"account_key": key}
    tenant, client, secret = (_first(environment, names) for names in (TENANTS, CLIENTS, SECRETS))
    if tenant and client and secret:
        return {"tenant_id": tenant, "client_id": client, "client_secret": secret}
    if signature := _first(environment, SIGNATURES):
        return {"sas_token": f"?{signature.removeprefix('?')}"}
    return {}


def _check_key(key: str) -> None:
    """Raise HDL-120 for a key that is not base 64. Arrow would end the process."""
    try:
        b64decode(key, validate=True)
    except ValueError:
        hint = "copy it whole, with the = at its end"
        raise HeddleError("HDL-120", f"{ACCESS_KEYS[0]} is no key of an account: it is not base 64", hint) from None


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in ("1", "true", "on", "yes", "y")


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _check_token(system: fs.FileSystem, container: str) -> None:
    """Arrow catches what its check of the namespace raises where there is no token, and nowhere else."""
    try:
        system.get_file_info(fs.FileSelector(f"{container}/{_NOT_THERE}", allow_not_found=True))
    except OSError:
        return  # there is a token: what is permitted by it is said where it is needed
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


def upload_blob(root: str, path: str, content: pa.Buffer) -> None:
    """Make a file of a container by blocks that are nothing until they are all named. Raises OSError."""
    stream: Any = _handler(root).open_output_stream(path)
    for start in range(0, content.size, PART):
        stream.write(content.slice(start, min(PART, content.size - start)).to_pybytes())
    stream.close()


def remove_blob(root: str, path: str) -> None:
    """Remove a file of a container: one request, of which Arrow makes several, and seconds of one that is not there.
    Raises OSError."""
    _handler(root).delete_file(path)


def _handler(root: str) -> DeltaFileSystemHandler:
    # who reads a folder of this machine needs none of it
    from deltalake._internal import DeltaFileSystemHandler

    return DeltaFileSystemHandler(root, None)
