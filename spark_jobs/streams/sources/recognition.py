"""Recognise known files by their content when listings, names or places have changed.

A file of a folder with the same listing, inode and time of change as before has not changed. Otherwise it is read:
links, permissions, copies and moves also change these. If a file of its name and size had the same content, it is that
file, and its new listing is stored. If not, it is a new file that came where the other went.

A file of a store is identified by its ETag, a file of a table by the table's id and the name in its log. Neither is
read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import Stream
from spark_jobs.engine.workers import Available, in_shares, unavailable
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.arrivals import Arrival
from spark_jobs.streams.sources.file_statuses import status_of
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.listings import first_table
from spark_jobs.streams.sources.splits import Split

if TYPE_CHECKING:
    from spark_jobs.streams.sources.ledger import Ledger

CONTENT = "|content "
"""Precedes the CRC-32 in the identity of a file with other content than before under its name, size and time."""

CHUNK = 4 << 20
"""Bytes of a file that are read at once for its CRC-32."""

BYTES_A_TASK = 1 << 27
"""Bytes of files that are worth a task that reads them for their CRC-32."""

KEPT = 1 << 17
"""Checksums that a process keeps: what it looks at twice it reads once."""


@dataclass(frozen=True)
class Seen:
    """A file as it is listed now: by what the ledger finds it again."""

    path: str
    listing: str
    stamp: str | None


@dataclass
class Recognised:
    """Splits under the identities of their files, and of files that are seen otherwise than before how they are now, by
    identity."""

    splits: list[Split]
    seen: dict[str, Seen] = field(default_factory=dict)

    def named(self, identities: Mapping[str, str]) -> Recognised:
        """Return the splits with the identity of each path."""
        splits = [
            split if (identity := identities[split.path]) == split.identity else replace(split, identity=identity)
            for split in self.splits
        ]
        return Recognised(splits, self.seen)


def recognised(
    stream: Stream,
    splits: list[Split],
    known: Ledger,
    table: str | None,
    note: bool,
    trust: bool = True,
    available: Available = unavailable,
) -> Recognised:
    """Splits, as they are listed, under the identities by which the ledger knows their files.

    Parameters
    ----------
    table
        The id of the table that the stream is now, if it is one.
    note
        Whether the ledger is written: files that nothing is known of are only read then.
    trust
        Whether a file that is listed with the inode and time of change of before need not be read.
    available
        The workers that read files, if there is much to read.

    Raises HDL-402.
    """
    splits_seen = Recognised(splits)
    listings = {split.path: split for split in splits}
    if not listings:
        return splits_seen
    if format_of(stream).is_table:
        return _of_table(splits_seen, listings, known, table)
    if not Place.of(stream.source.path).is_local:
        return _of_store(splits_seen, listings, known)
    return _of_folder(splits_seen, stream, listings, known, note, trust, available)


def _by_listing(arrivals: Sequence[Arrival]) -> dict[str, Arrival]:
    """The first of some files that was listed as each."""
    first_arrivals: dict[str, Arrival] = {}
    for arrival in arrivals:
        for listing, _ in arrival.listings:
            first_arrivals.setdefault(listing, arrival)
    return first_arrivals


def _of_table(files_seen: Recognised, listings: Mapping[str, Split], known: Ledger, table: str | None) -> Recognised:
    files = _by_listing(known.listed({split.identity for split in listings.values()}, table))
    identities = {}
    for path, split in listings.items():
        file = files.get(split.identity)
        identities[path] = split.identity if file is None else file.identity
        if file is not None and not files_seen.seen and first_table(known.rows) is None:
            # from now on the ledger knows which table it is
            files_seen.seen[file.identity] = Seen(path, split.identity, None)
    return files_seen.named(identities)


def _of_store(files_seen: Recognised, listings: Mapping[str, Split], known: Ledger) -> Recognised:
    files = _by_listing(known.listed({split.identity for split in listings.values()}))
    identities = {}
    for path, split in listings.items():
        file = files.get(split.identity)
        identities[path] = split.identity if file is None else file.identity
        if file is not None and split.version is not None:
            written = str(split.version.modified)
            if written not in file.stamps and split.version.modified != file.arrived:
                files_seen.seen[file.identity] = Seen(path, split.identity, written)
    return files_seen.named(identities)


def _of_folder(
    files_seen: Recognised,
    stream: Stream,
    listings: Mapping[str, Split],
    known: Ledger,
    note: bool,
    trust: bool,
    available: Available,
) -> Recognised:
    alike = known.listed({split.identity for split in listings.values()})
    before = {pair: arrival.identity for arrival in reversed(alike) for pair in arrival.listings if pair[1]}
    statuses: dict[str, str] = {}
    for path in listings:
        with file_errors(stream, path):
            status = status_of(path)
            statuses[path] = f"{status.st_ino}|{status.st_ctime_ns}"
    identities: dict[str, str] = {}
    for path, split in listings.items():
        identity = before.get((split.identity, statuses[path]))
        if identity is not None and trust:
            identities[path] = identity
    unknown = {path: split.identity for path, split in listings.items() if path not in identities}
    sized: dict[str, list[Arrival]] = {}
    for arrival in known.listed(set(unknown.values()), is_sized=True) if unknown else ():
        for listing in {listing for listing, _ in arrival.listings}:
            sized.setdefault(_sized(listing), []).append(arrival)
    read = [(path, listing) for path, listing in unknown.items() if note or _sized(listing) in sized]
    contents = _contents(stream, [(path, statuses[path], listing) for path, listing in read], available)
    identities |= unknown
    for (path, listing), content in zip(read, contents, strict=True):
        identities[path] = identity = _held(listing, content, sized.get(_sized(listing), []))
        files_seen.seen[identity] = Seen(path, listing, f"{statuses[path]}|{content}")
    return files_seen.named(identities)


def _contents(stream: Stream, files: Sequence[tuple[str, str, str]], available: Available) -> list[str]:
    """Return the content checksums of files, each given by path, status and listing."""

    def work(numbers: Sequence[int]) -> list[str]:
        contents = []
        for number in numbers:
            with file_errors(stream, files[number][0]):
                contents.append(_content(*files[number]))
        return contents

    # a listing ends in the size and the time of modification
    size = sum(int(listing.rsplit("|", 2)[1]) for _, _, listing in files)
    shares = in_shares(work, len(files), size // BYTES_A_TASK, available, f"list {stream.name}: contents")
    return [content for share in shares for content in share]


def _held(listing: str, content: str, candidates: Sequence[Arrival]) -> str:
    """The identity of a file with such content, of files of its name and size."""
    same = [arrival for arrival in candidates if any(known == listing for known, _ in arrival.listings)]
    for arrival in (*same, *candidates):
        if content in arrival.contents:
            return arrival.identity
    # an earlier Heddle has noted it without what it holds
    unstamped = [arrival for arrival in same if not arrival.contents]
    if unstamped:
        return unstamped[0].identity
    return f"{listing}{CONTENT}{content}" if same else listing


def _sized(listing: str) -> str:
    return listing.rpartition("|")[0]


@lru_cache(KEPT)
def _content(path: str, status: str, listing: str) -> str:
    """Content checksum of a file with this listing."""
    return _checksum(path)


def _checksum(path: str) -> str:
    """The CRC-32 of a file's content."""
    checksum = 0
    with Path(path).open("rb") as file:
        while chunk := file.read(CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}"


@contextmanager
def file_errors(stream: Stream, path: str) -> Iterator[None]:
    """A file that cannot be read is a coded error of its stream."""
    try:
        yield
    except OSError as error:
        hint = "do files come and go while they are listed? run it again"
        raise HeddleError("HDL-402", f"stream {stream.name}: {path} cannot be read: {error}", hint) from error
