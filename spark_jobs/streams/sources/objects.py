"""Files of sources as listed, and reading them: local files by path, files in stores by URL.

A file in a store is listed with its *version*. Everything read from it later must be of this version, else HDL-402: the
version is checked once more after reading, so that content that a writer replaced meanwhile never counts.
"""

from __future__ import annotations

import io
import mmap
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.store.storage import ObjectVersion, Place
from spark_jobs.streams.sources.compression import Decompressed, codec_ending

FOOTER = 1 << 16
"""Bytes at the end of a Parquet file in a store that are requested at once: most footers are shorter."""

BUFFER = 1 << 20
"""Smallest request for an object in bytes."""

COPIED = 8 << 20
"""Bytes of an object that are copied at once."""

BEGINNING = 1 << 16
"""Bytes at the beginning of a CSV file in a store that are cached, and the smallest request when looking at one."""

BEGINNINGS = 512
"""Beginnings that a process keeps: 32 MiB."""

FOOTERS = 4096
"""Footers that a process keeps."""


class Changed(OSError):
    """An object is not the one that was listed."""


@contextmanager
def object_file(path: str, version: ObjectVersion | None) -> Iterator[pa.NativeFile]:
    """An object, to be read from anywhere in it. Raises :class:`Changed`, also in place of whatever failed meanwhile,
    if it is not of the version, or is not any more when all is read."""
    with Place.of(path).open() as file:
        now = ObjectVersion.of(file) if version is None or version.tag else version
        _check(now, version)
        try:
            yield file
        except Exception:
            _check_again(path, now)
            raise
    _check_again(path, now)


def _check(now: ObjectVersion, version: ObjectVersion | None) -> None:
    if version is not None and (now.size, now.tag) != (version.size, version.tag):
        raise Changed("it is not what was listed: did it change meanwhile?")


def _check_again(path: str, version: ObjectVersion) -> None:
    if version.tag:
        with Place.of(path).open() as file:
            _check(ObjectVersion.of(file), version)


_beginnings: dict[tuple[str, ObjectVersion], bytes] = {}


def look_at(path: str) -> ObjectVersion:
    """Current version of a file in a store; its beginning is cached for later looks. Raises OSError."""
    with Place.of(path).open() as file:
        now = ObjectVersion.of(file)
        if (path, now) not in _beginnings:
            beginning = _read(file, 0, min(BEGINNING, now.size))
            if len(_beginnings) >= BEGINNINGS:
                _beginnings.clear()
            _beginnings[path, now] = beginning
    return now


@contextmanager
def opened(path: str, version: ObjectVersion | None = None, look: bool = False) -> Iterator[io.BufferedReader]:
    """Open a file at its first byte; in a store with large requests, for a ``look`` at an end of it with smaller ones,
    and with none where :func:`look_at` cached enough. A compressed file is opened as its content. Raises OSError.
    """
    with _opened(path, version, look) as file:
        if not codec_ending(path):
            yield file
            return
        size = Path(path).stat().st_size if Place.of(path).is_local else file.seek(0, io.SEEK_END)
        yield io.BufferedReader(Decompressed(file, path, size), BUFFER)


@contextmanager
def _opened(path: str, version: ObjectVersion | None, look: bool) -> Iterator[io.BufferedReader]:
    """Open a file as it is stored."""
    if Place.of(path).is_local:
        with Path(path).open("rb") as file:
            yield file
        return
    with ExitStack() as stack:

        def stored_file() -> pa.NativeFile:
            return stack.enter_context(object_file(path, version))

        if version is not None and look:
            content = _Object(version.size, stored_file, _beginnings.get((path, version), b""))
        else:
            stored = stored_file()
            size = int(stored.size())
            # its header is looked at, and read again with what follows
            content = _Object(size, lambda: stored, _read(stored, 0, min(size, BUFFER)))
        yield io.BufferedReader(content, BEGINNING if look else BUFFER)


class Beginning(NamedTuple):
    """The first bytes of a file's content; whether they are all; and how many bytes of content one of the file has."""

    data: bytes
    is_all: bool
    ratio: float


def beginning_of(path: Path | Place, size: int) -> Beginning:
    """Return the first bytes of a file, or of the content of a compressed one. Raises OSError."""
    with path.open() if isinstance(path, Place) else path.open("rb") as file:
        if not codec_ending(path.name):
            data = file.read(size)
            return Beginning(data, not file.read(1), 1.0)
        stored = file.seek(0, io.SEEK_END)
        content = Decompressed(file, path.name, stored)
        reader = io.BufferedReader(content, size)
        data = reader.read(size)
        # how much smaller the file is shows when more of it is read: it is requested in large blocks
        more = len(reader.read(COPIED))
        return Beginning(data, not more, (len(data) + more) / max(1, stored if more < COPIED else file.tell()))


def _read(file: pa.NativeFile, begin: int, size: int) -> bytes:
    content: bytes = file.read_at(size, begin) if size else b""
    if len(content) < size:
        raise OSError(f"it ends after {begin + len(content)} bytes")
    return content


class _Object(io.RawIOBase):
    """An object as a file for Python, with a cached beginning; an object that ends early is an error."""

    def __init__(self, size: int, ask: Callable[[], pa.NativeFile], kept: bytes = b"") -> None:
        self.size, self.ask, self.kept, self.at = size, ask, kept, 0
        self.file: pa.NativeFile | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as target:
            size = max(0, min(len(target), self.size - self.at))
            content = self.kept[self.at : self.at + size]
            if not content and size:
                self.file = self.file or self.ask()
                content = _read(self.file, self.at, size)
            target[: len(content)] = content
        self.at += len(content)
        return len(content)


@contextmanager
def mapped(path: str, version: ObjectVersion | None = None) -> Iterator[mmap.mmap]:
    """All of a file that is not empty; that of a store, or the content of a compressed one, as a temporary copy on this
    machine's disk. Raises OSError.
    """
    if Place.of(path).is_local and not codec_ending(path):
        with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
        return
    with tempfile.TemporaryFile() as copy:
        with opened(path, version) as file:
            while block := file.read(COPIED):
                copy.write(block)
        copy.flush()
        with mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


# ------------------------------------------------------------------------------------------- Parquet
_footers: dict[tuple[str, ObjectVersion], pq.FileMetaData] = {}


def seen(path: str, version: ObjectVersion | None = None) -> tuple[ObjectVersion, pq.FileMetaData]:
    """The version of a Parquet file of a store, unless it is known, and its footer, which is read once a process and
    version. Raises OSError and pyarrow's errors."""
    with Place.of(path).open() as file:
        now = ObjectVersion.of(file) if version is None or version.tag else version
        _check(now, version)
        metadata = _footers.get((path, now)) or _footer(file)
    if len(_footers) >= FOOTERS:
        _footers.clear()
    _footers[path, now] = metadata
    return now, metadata


def _footer(file: pa.NativeFile) -> pq.FileMetaData:
    size = int(file.size())
    begin = max(0, size - FOOTER)
    end = _read(file, begin, size - begin)
    is_whole = begin == 0 or int.from_bytes(end[-8:-4], "little") + 8 <= len(end)
    # a footer alone is read as a file would be that has it at its end
    return pq.read_metadata(pa.BufferReader(end) if is_whole else file)


@contextmanager
def parquet(
    path: str, version: ObjectVersion | None = None, metadata: pq.FileMetaData | None = None, **options: Any
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, optionally with its footer; in a store its columns are requested by ranges at once.
    Checksums of pages are verified. Raises OSError and pyarrow's errors.
    """
    options["page_checksum_verification"] = True
    if Place.of(path).is_local:
        yield pq.ParquetFile(path, metadata=metadata, **options)
        return
    with object_file(path, version) as file:
        yield pq.ParquetFile(file, metadata=metadata or _footer(file), pre_buffer=True, **options)
