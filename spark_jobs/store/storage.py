"""Bytes in folders of this machine and in object stores, behind one seam. No other module opens a file system (except
:mod:`spark_jobs.store.azure`, for this one).

A place is a URL: a path, ``s3://bucket/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix`` or
``gs://bucket/prefix``. Credentials come from the environment, or from the instance that this runs on, and from
nowhere else. All of them guarantee that a file is complete under its name or absent, and never changes afterwards.
So files are written on this machine (:class:`Draft`) and put once: nothing is renamed, appended to or mapped in a
store.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.redaction import redacted
from optimizer.workload.urls import normalised, scheme_of
from spark_jobs.store import azure

GONE = ".gone-"
"""Prefix of the name of a folder that is being removed."""

_DAY = 86_400_000_000
"""Microseconds."""


@dataclass(frozen=True)
class Stored:
    """A listed file: its name (relative to the listed folder), bytes, and time of writing (microseconds; whole seconds
    in stores).
    """

    name: str
    size: int
    modified: int


@dataclass(frozen=True)
class ObjectVersion:
    """A file of a store as it was seen. ``tag``: its ETag (of Google's its generation), which no other content has;
    empty: its name never names another content. ``modified``: when it was written, microseconds."""

    size: int
    tag: str
    modified: int

    @classmethod
    def of(cls, file: pa.NativeFile) -> ObjectVersion:
        """Version of a file that was opened in a store. Raises OSError if the store does not name it."""
        metadata = {_text(name).lower(): _text(value) for name, value in (file.metadata() or {}).items()}
        tag = metadata.get("generation") or metadata.get("etag")
        if not tag:
            raise OSError("the store says no ETag of it")
        modified = 0
        with suppress(ValueError):
            modified = int(datetime.fromisoformat(metadata.get("last-modified", "")).timestamp() * 1e6)
        return cls(int(file.size()), tag, modified)


def _text(given: str | bytes) -> str:
    return given.decode("latin-1") if isinstance(given, bytes) else given


SMALL = 1 << 20
"""Most bytes of a store's file that is read completely: reading parts of it takes as many requests."""

WHOLE = 64 << 20
"""Most bytes of a store's file that a reader of most of its content reads completely."""

KEPT = 64 << 20
"""Most bytes of them that a process caches."""

_files: OrderedDict[str, pa.Buffer] = OrderedDict()
_guard = threading.Lock()


def kept(url: str) -> pa.Buffer | None:
    """Content that this process has read of a file that never changes; None if it is no longer cached."""
    with _guard:
        content = _files.get(url)
        if content is not None:
            _files.move_to_end(url)
        return content


def keep(url: str, content: pa.Buffer) -> pa.Buffer:
    """Keep what was read; what was used longest ago makes room."""
    with _guard:
        _files[url] = content
        while sum(buffer.size for buffer in _files.values()) > KEPT:
            _files.popitem(last=False)
    return content


@dataclass(frozen=True, order=True)
class Place:
    """A file or folder, by its URL; :meth:`of` makes one of what a user wrote."""

    url: str

    @classmethod
    def of(cls, place: str | os.PathLike[str] | Place) -> Place:
        """The place of a path or a URL. Raises HDL-574 for a URL that is none, or of a scheme that is not known."""
        if isinstance(place, Place):
            return place
        text = os.fspath(place)
        scheme = scheme_of(text)
        return cls(text) if scheme is None else cls(normalised(text))

    @property
    def is_local(self) -> bool:
        """Return whether it is a path of this machine."""
        return scheme_of(self.url) is None

    def local(self) -> Path:
        """Its path on this machine. Raises ValueError in a store."""
        if not self.is_local:
            raise ValueError(f"{self.url} is not on this machine")
        return Path(self.url)

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.url.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Place:
        """The folder or prefix that contains it."""
        return Place(self.url.rpartition("/")[0])

    # ---------------------------------------------------------------------------------------- reading
    def filesystem(self) -> fs.FileSystem:
        """Arrow's file system of which this place is the root."""
        system, path = self._reached()
        return fs.SubTreeFileSystem(path, system)

    def open(self, memory_map: bool = False) -> pa.NativeFile:
        """The file, to be read from anywhere in it. Raises OSError."""
        if self.is_local:
            return pa.memory_map(self.url) if memory_map else pa.OSFile(self.url)
        system, path = self._reached()
        return system.open_input_file(path)

    def open_unchanging(self, memory_map: bool = False, most: int = SMALL) -> pa.NativeFile:
        """Open a file that never changes once it exists, such as a data file; otherwise as :meth:`open`.

        In a store, a file of up to ``most`` bytes is read completely, and cached (:func:`kept`) if it is small.
        Raises OSError.
        """
        if self.is_local:
            return self.open(memory_map)
        content = kept(self.url)
        if content is None:
            file = self.open()
            if file.size() > most:
                return file
            with file:
                content = file.read_buffer()
            if content.size <= SMALL:
                keep(self.url, content)
        return pa.BufferReader(content)

    def read(self) -> bytes:
        """All of a small file. Raises OSError."""
        if self.is_local:
            return self.local().read_bytes()
        system, path = self._reached()
        with system.open_input_stream(path, compression=None) as file:
            content: bytes = file.read()
        return content

    def info(self) -> Stored | None:
        """Return the file as it would be listed; None if there is none. Raises OSError."""
        system, path = self._reached()
        file_info = system.get_file_info(path)
        return _stored(self.name, file_info) if file_info.type == fs.FileType.File else None

    def exists(self) -> bool:
        """Return whether there is a file, or a folder with something in it. Raises OSError."""
        if self.is_local:
            return self.local().exists()
        system, path = self._reached()
        return bool(system.get_file_info(path).type != fs.FileType.NotFound)

    def listed(self, recursive: bool = False) -> Iterator[Stored]:
        """The files in a folder, by name; in its folders too if ``recursive``. Nothing if it is not there."""
        system, path = self._reached()
        chosen = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
        infos = [each for each in system.get_file_info(chosen) if each.type == fs.FileType.File]
        for each in sorted(infos, key=lambda file: file.path):
            yield _stored(each.path[len(path) :].lstrip("/"), each)

    def contents(self) -> tuple[list[Stored], list[str]]:
        """The files in a folder and the names of its folders, by one listing. Nothing if it is not there."""
        system, path = self._reached()
        infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        files = [_stored(each.base_name, each) for each in infos if each.type == fs.FileType.File]
        folders = sorted(each.base_name for each in infos if each.type == fs.FileType.Directory)
        return sorted(files, key=lambda file: file.name), folders

    def folders(self) -> list[str]:
        """The names of the folders in a folder, in order. None if it is not there."""
        system, path = self._reached()
        infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(each.base_name for each in infos if each.type == fs.FileType.Directory)

    # ---------------------------------------------------------------------------------------- writing
    def put(self, content: bytes) -> None:
        """Write a small file, completely or not at all, and replace the one of this name. Raises OSError."""
        draft = Draft(self.parent, f".{self.name}.{uuid.uuid4().hex}")
        try:
            draft.file.write_bytes(content)
            draft.put(self.name)
        except BaseException:
            draft.drop()
            raise

    def touch(self, seen: Stored) -> None:
        """Let a file that was ``seen`` count as written lately: within a day, as a store has to be given it again."""
        if self.is_local:
            os.utime(self.local())
        elif seen.modified < time.time_ns() // 1000 - _DAY:
            self.put(self.read())

    def remove(self) -> None:
        """Remove a file; it need not be there. Raises OSError."""
        if self.is_local:
            self.local().unlink(missing_ok=True)
            return
        root, path = self._parted()
        with suppress(FileNotFoundError):
            if root.startswith("abfss:"):
                azure.remove_blob(root, path.lstrip("/"))
            else:
                system, path = self._reached()
                system.delete_file(path)

    def remove_folder(self) -> None:
        """Remove a folder with all that is in it: at once on this machine, in a store file by file. Raises OSError."""
        if self.is_local:
            trash = self.parent.local() / f"{GONE}{uuid.uuid4().hex}"
            self.local().rename(trash)
            for each in trash.parent.glob(f"{GONE}*"):  # others may have been cut off
                shutil.rmtree(each)
            return
        system, path = self._reached()
        system.delete_dir(path)

    def make_folder(self) -> None:
        """Make the folder, if there are folders. Raises OSError."""
        if self.is_local:
            self.local().mkdir(parents=True, exist_ok=True)

    def _reached(self) -> tuple[fs.FileSystem, str]:
        if self.is_local:
            return _filesystem("", os.getpid(), ()), self.url
        root, path = self._parted()
        # of abfss the account is no part of the path
        bucket = root.partition("://")[2].partition("@")[0]
        return _filesystem(root, os.getpid(), reached_by()), f"{bucket}{path}"

    def _parted(self) -> tuple[str, str]:
        """Split the URL of a store into the URL of its bucket and the rest."""
        scheme, _, path = self.url.partition("://")
        bucket = path.partition("/")[0]
        return f"{scheme}://{bucket}", path[len(bucket) :]

    def _upload(self, content: pa.Buffer) -> None:
        """Upload content with one PUT, or in several parts that become visible when the upload is completed."""
        root, path = self._parted()
        if root.startswith("abfss:"):
            azure.upload_blob(root, path.lstrip("/"), content)
        else:
            _put(*self._reached(), content)


class Draft:
    """A file in the making: on this machine's disk, where no reader looks, until :meth:`put` gives it its name.

    ``name``: what it is called until then, which nothing else may be. ``file``: where it is written. Who makes a draft
    puts it or drops it.
    """

    def __init__(self, folder: Place, name: str) -> None:
        self.folder = folder
        folder.make_folder()
        # beside where it will be: another disk could not be renamed from
        self.file = (folder.local() if folder.is_local else Path(tempfile.gettempdir())) / name

    def put(self, name: str) -> int:
        """Put it into its folder under a name, at once; its bytes. Raises OSError."""
        size = self.file.stat().st_size
        target = self.folder / name
        if target.is_local:
            self.file.replace(target.local())
            return size
        with pa.memory_map(str(self.file)) if size else pa.BufferReader(b"") as content:
            target._upload(content.read_buffer())
        self.drop()
        return size

    def drop(self) -> None:
        """Leave nothing of it."""
        self.file.unlink(missing_ok=True)


def _put(system: fs.FileSystem, path: str, content: pa.Buffer) -> None:
    stream = system.open_output_stream(path, compression=None)
    try:
        stream.write(content)
    except BaseException:
        # to close it would complete an object that is too short: it is let go of as it is
        with suppress(AttributeError, OSError):
            stream.abort()
        raise
    stream.close()


_COLOUR = re.compile(r"\x1b\[\d*m\s*\u21b3?|\x1b\[\d*m")

_REASONS = (
    (
        r"NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound|bucket does not exist",
        "HDL-576",
        "there is no such bucket",
        "make it, or name another",
    ),
    (
        r"EXPIRED_TOKEN|ExpiredToken|token (included in the request is|has) expired",
        "HDL-577",
        "the credentials have expired",
        "renew them: nothing was lost, and the next run goes on",
    ),
    (
        r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH"
        r"|SignatureDoesNotMatch|INVALID_CLIENT_TOKEN_ID|No credentials|NoCredentials|AuthenticationFailed"
        r"|UserNotFound|HTTP (?:status )?40[13]\b|40[13] Forbidden|Unauthorized|(?:no|any|provide|load) credentials"
        r"|AuthenticationException|token request|Authorization\w*Failure|\] 40[13] ",
        "HDL-577",
        "the store refuses these credentials",
        "AWS_…, AZURE_… or GOOGLE_… of the environment, or the role of the instance, have to permit it",
    ),
    (
        r"SLOW_DOWN|SlowDown|\b503 S|THROTTL|TooManyRequests|\b429 T|ServerBusy|\] (?:429|503) ",
        "HDL-578",
        "the store asks for fewer requests",
        "run it again later",
    ),
    (
        r"NETWORK_CONNECTION|resolve host|connect error|Connection refused|error sending request|timed? ?out|dns error"
        r"|Fail to get a new connection|Connection closed before",
        "HDL-578",
        "the store cannot be reached",
        "are region (AWS_REGION) and endpoint (AWS_ENDPOINT_URL, AZURE_STORAGE_ENDPOINT) right, and the network up?",
    ),
)
"""Messages of Arrow and delta-rs if a store refuses: their meaning and what to do."""


def is_refusal(error: Exception) -> bool:
    """Return whether a store refused a request, in contrast to returning damaged content."""
    return any(re.search(pattern, str(error)) for pattern, *_ in _REASONS)


def check_bucket(place: Place) -> None:
    """Raise HDL-576 if the bucket of a place in a store does not exist, HDL-577 without valid credentials."""
    if place.is_local:
        return
    system, path = place._reached()
    bucket = path.partition("/")[0]
    if system.get_file_info(bucket).type == fs.FileType.NotFound:
        try:
            # the answer to a look at a bucket says no more; some servers know no bucket of whom they do not know
            system.get_file_info(fs.FileSelector(bucket))
        except OSError as error:
            refused = store_error(place, error)
            if refused.diagnostic.code == "HDL-577":
                raise refused from error
        hint = f"make it, or name another; is the endpoint ({_endpoint_variable(place)}) the right one?"
        raise HeddleError("HDL-576", f"{place}: there is no such bucket", hint)


def store_error(place: Place, error: Exception) -> HeddleError:
    """The coded error of a store that could not be read or written."""
    message = printable(redacted(" ".join(_COLOUR.sub("", str(error)).split())), 300) or type(error).__name__
    for pattern, code, meaning, hint in _REASONS:
        if re.search(pattern, str(error)):
            return HeddleError(code, f"{place}: {meaning}: {message}", hint)
    return HeddleError("HDL-578", f"{place} cannot be used: {message}", "run it again; is the store well?")


def _endpoint_variable(place: Place) -> str:
    return azure.ENDPOINTS[0] if place.url.startswith("abfss:") else "AWS_ENDPOINT_URL"


def _stored(name: str, info: Any) -> Stored:
    return Stored(name, int(info.size), int((info.mtime_ns or 0) // 1000))


def reached_by() -> tuple[str, ...]:
    """Variables of the environment that define the endpoints and credentials of stores."""
    # as bytes: every look at a table comes here, and decoding all names takes longer than the look
    variables = (name for name in os.environb if name.startswith((b"AWS_", b"AZURE_", b"AZURITE_", b"GOOGLE_")))
    return tuple(os.fsdecode(name + b"=" + os.environb[name]) for name in sorted(variables))


def endpoint() -> str | None:
    """Endpoint of S3, if it is not Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL")


@lru_cache(16)
def _filesystem(root: str, process: int, reached_by: tuple[str, ...]) -> fs.FileSystem:
    """The file system of a bucket, one a process: what was made before a fork is not used after it."""
    if not root:
        return fs.LocalFileSystem()
    if root.startswith("abfss:"):
        try:
            return azure.container_filesystem(root, os.environ)
        except OSError as error:
            raise store_error(Place(root), error) from error
    # small files are one request; the constructors would not look at AWS_ENDPOINT_URL
    uri = f"{root}/?allow_delayed_open=true" if root.startswith("s3:") else f"{root}/"
    return fs.FileSystem.from_uri(uri)[0]
