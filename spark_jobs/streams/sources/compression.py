"""Compressed text files: which codec a file's name states, and its content as it was before, block by block.

Arrow decompresses: it knows files of several members, and an archive that is cut or damaged is an error when its end is
reached, never the end of the data.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa


class Codec(NamedTuple):
    """A way to compress: Arrow's name of it, the first bytes of its files, the command that decompresses them."""

    name: str
    magic: tuple[bytes, ...]
    command: str


CODECS = {
    ".gz": Codec("gzip", (b"\x1f\x8b",), "gunzip"),
    # the second kind of frame holds no data, but may come first
    ".zst": Codec(
        "zstd", (b"\x28\xb5\x2f\xfd", *(bytes([at]) + b"\x2a\x4d\x18" for at in range(0x50, 0x60))), "unzstd"
    ),
    ".bz2": Codec("bz2", (b"BZh",), "bunzip2"),
}
"""The codecs by the endings, in lower case, of files that are compressed so."""

MOST_RATIO = 1000
"""Bytes that one byte of a file may become. What is more is hardly data."""

FREE = 256 << 20
"""Bytes that any file may become."""


class NotCompressed(OSError):
    """A file is not compressed in the way that its name states."""


class Bomb(OSError):
    """A file expands to more than :data:`MOST_RATIO` times its bytes."""


def codec_ending(path: str) -> str:
    """Return the ending of a compressed file's name, a key of :data:`CODECS`; empty: it is not compressed."""
    lower = path.lower()
    return next((ending for ending in CODECS if lower.endswith(ending)), "")


def with_codecs(endings: Iterable[str]) -> tuple[str, ...]:
    """Return some endings of names, and those of the same files compressed."""
    plain = tuple(endings)
    return (*plain, *(ending + codec for ending in plain for codec in CODECS))


def without_codecs(endings: Iterable[str]) -> list[str]:
    """Return the endings of files that are not compressed."""
    return [ending for ending in endings if not codec_ending(ending)]


class _Lent(io.RawIOBase):
    """A file that a stream reads from and does not close when it is forgotten."""

    def __init__(self, file: BinaryIO | io.BufferedReader) -> None:
        self.file = file

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self.file.read(size)


class Decompressed(io.RawIOBase):
    """The content of a compressed file. Going back begins again.

    ``file``: at any position; ``size``: its bytes. Reading raises OSError for an archive that is cut or damaged,
    :class:`NotCompressed` and :class:`Bomb`.
    """

    def __init__(self, file: BinaryIO | io.BufferedReader, path: str, size: int) -> None:
        self.codec, self.file, self.size = CODECS[codec_ending(path)], file, size
        self._begin()

    def _begin(self) -> None:
        self.file.seek(0)
        beginning = self.file.read(4)
        if beginning and not beginning.startswith(self.codec.magic):
            raise NotCompressed(f"it is not compressed with {self.codec.name}, as its name states")
        self.file.seek(0)
        self.stream = pa.CompressedInputStream(pa.PythonFile(_Lent(self.file), mode="r"), self.codec.name)
        self.at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes of the content were read."""
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte of the content, counted from its begin or from the current one."""
        if whence == io.SEEK_END:
            raise io.UnsupportedOperation("the size of a compressed file is not known before it is read")
        target = offset + (self.at if whence == io.SEEK_CUR else 0)
        if target < self.at:
            self._begin()
        while self.at < target and self._next(min(target - self.at, 1 << 20)):
            pass
        return self.at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes of the content; return how many."""
        with memoryview(buffer).cast("B") as target:
            content = self._next(len(target))
            target[: len(content)] = content
        return len(content)

    def _next(self, size: int) -> bytes:
        content: bytes = self.stream.read(size)
        self.at += len(content)
        if self.at > max(FREE, MOST_RATIO * self.size):
            raise Bomb(f"its {self.size:,} bytes expand to more than {max(FREE, MOST_RATIO * self.size):,}")
        return content
