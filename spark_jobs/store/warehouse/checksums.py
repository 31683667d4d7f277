"""Checksums of data files: whether a file is the one that was committed.

Three sums lie in a file's name, which the commit names: its size, the CRC-32 of all of it, and that of its footer. They
need no column in Delta's log, survive checkpoints and merges of the log, and are there before the commit is. Pages have
CRCs of their own, which Parquet's readers check. So what is read is checked while it is read, at the price of a file
status and a footer; :func:`check_content` reads all of a file.

Files of an earlier Heddle have the footer's sum alone in their names, those that delta-rs wrote none: the size that the
log has is checked of all.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.store.storage import Place, keep, kept

TAIL = 1 << 16
"""Number of bytes at the end of a file that are read at once: they usually contain the complete footer."""

PIECE = 1 << 22
"""Bytes of which the sum is made at once."""

_NAME = re.compile(r"(?:-([0-9a-f]{1,16})-([0-9a-f]{8}))?-([0-9a-f]{8})\.parquet$")


@dataclass(frozen=True)
class Checksums:
    """Checksums of a data file's content from its name; None where the name has none.

    Parameters
    ----------
    size
        Bytes.
    content
        CRC-32 of the complete file.
    footer
        CRC-32 of the footer, with its length and mark.
    """

    size: int | None = None
    content: int | None = None
    footer: int | None = None

    @classmethod
    def of_file(cls, path: Path) -> Checksums:
        """Compute the checksums of a file of this machine."""
        with pa.OSFile(str(path)) as file:
            return cls(int(file.size()), content_sum(file), zlib.crc32(footer_of(file)))

    @classmethod
    def named(cls, name: str) -> Checksums:
        """Parse the checksums in a file's name."""
        match = _NAME.search(name)
        if match is None:
            return cls()
        size, content, footer = (None if text is None else int(text, 16) for text in match.groups())
        return cls(size, content, footer)

    @property
    def suffix(self) -> str:
        """End of a file name with all checksums, before ``.parquet``."""
        return f"{self.size:x}-{self.content:08x}-{self.footer:08x}"

    def check(self, size: int, footer: bytes, committed: int | None = None) -> None:
        """Raises OSError unless a file has this size and footer. ``committed``: the size that the log has, if known."""
        for expected in (committed, self.size):
            if expected is not None and size != expected:
                raise OSError(f"it has {size} bytes, not {expected}")
        if self.footer is not None and zlib.crc32(footer) != self.footer:
            raise OSError("its footer is not what was written")


def content_sum(file: pa.NativeFile) -> int:
    """The CRC-32 of all of a file, which is read piece by piece."""
    size, checksum = file.size(), 0
    for first in range(0, size, PIECE):
        checksum = zlib.crc32(file.read_at(min(PIECE, size - first), first), checksum)
    return checksum


_seen: dict[str, tuple[int, ...]] = {}
"""Identities of this machine's files that passed their check, to distinguish them from later files in their place."""


def check_committed(place: Place, size: int) -> None:
    """Raises OSError unless a file has the size that the log has, and the footer that its name has.

    The footer of a file that has not changed since is read once a process.
    """
    if place.is_local:
        status = Path(place.url).stat()
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if status.st_size == size and _seen.get(place.url) == identity:
            return
        with pa.OSFile(place.url) as file:
            Checksums.named(place.name).check(status.st_size, footer_of(file), size)
        _seen[place.url] = identity
    elif kept(f"{place.url}#footer") is None:
        with place.open() as file:
            Checksums.named(place.name).check(file.size(), kept_footer(place, file), size)


def check_bytes(name: str, content: bytes | pa.Buffer, size: int | None = None) -> None:
    """Raises OSError unless bytes are all of the file of this name; ``size``: as the log has it."""
    file = pa.BufferReader(content)
    sums = Checksums.named(name)
    sums.check(file.size(), footer_of(file), size)
    if sums.content is not None and zlib.crc32(content) != sums.content:
        raise OSError("its content is not what was written")


def check_content(place: Place, size: int | None = None) -> None:
    """Read all of a file. Raises OSError if it is not the one that was committed: by its checksum, or, if its name has
    none, by its size, its footer, and every page that has a checksum or cannot be decoded."""
    sums = Checksums.named(place.name)
    with place.open() as file:
        footer = footer_of(file)
        sums.check(file.size(), footer, size)
        if sums.content is not None:
            if content_sum(file) != sums.content:
                raise OSError("its content is not what was written")
            return
        metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
        data = pq.ParquetFile(file, metadata=metadata, page_checksum_verification=True)
        for group in range(data.num_row_groups):
            data.read_row_group(group)


def kept_footer(place: Place, file: pa.NativeFile) -> bytes:
    """The footer of a data file; in a store a process requests it only once."""
    if place.is_local or isinstance(file, pa.BufferReader):
        return footer_of(file)
    name = f"{place.url}#footer"
    content = kept(name)
    return bytes(content if content is not None else keep(name, pa.py_buffer(footer_of(file))))


def footer_of(file: pa.NativeFile) -> bytes:
    """The footer of a Parquet file with its length and mark; all of a file that is too short to have one."""
    size = file.size()
    tail: bytes = file.read_at(min(size, TAIL), max(0, size - TAIL))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail) and length <= size:
        tail = file.read_at(length, size - length)
    return tail[-min(length, len(tail)) :]
