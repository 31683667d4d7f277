"""The files of a stream's folder, on this machine or in a store: which are read, in which order, under which names.

The conventions about names are those of :mod:`spark_jobs.streams.sources.file_names`; how a file is opened is its
format's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.values import Stream
from spark_jobs.store.storage import ObjectVersion, Place, Stored, check_bucket
from spark_jobs.store.warehouse.schemas import MARKER
from spark_jobs.streams.sources.compression import without_codecs
from spark_jobs.streams.sources.file_names import (
    COMMIT_LOG,
    TABLE_LOGS,
    is_data,
    is_hidden,
    is_no_data,
    is_warehouse,
    of_table,
    unread_files,
    unread_links,
)
from spark_jobs.streams.sources.file_statuses import FileStatuses
from spark_jobs.streams.sources.partition_columns import Wanted, placed
from spark_jobs.streams.sources.sink_log import committed, sinks_above
from spark_jobs.streams.sources.splits import KnownFiles, SourceFiles, Split, check_place, failures_of

AT_ONCE = 16
"""Files of a store that are looked at at once."""


T = TypeVar("T")

OpenFile = Callable[[str, str, ObjectVersion | None, Any], list[Split]]
Look = Callable[[str], tuple[ObjectVersion, Any]]


def files_of_folder(
    stream: Stream,
    known: KnownFiles | None,
    endings: tuple[str, ...],
    open_file: OpenFile,
    look: Look,
    wanted: Wanted | None = None,
) -> SourceFiles:
    """List the files of a folder of this machine or of a store.

    Parameters
    ----------
    stream
        The stream whose source the folder, or file, is.
    known
        Files of this machine that are passed over.
    endings
        Those of the files that are read, in lower case.
    open_file
        Returns the splits of a file, by its path, identity, version and beginning; the last two are None for files of
        this machine.
    look
        Returns the version of a file in a store, and what is read of the file at the same time.
    wanted
        The folders to list; None: all.

    Raises HDL-401 (nothing there), HDL-402 (a file cannot be read), HDL-416 (a commit log cannot be read), HDL-458 (a
    file lies where no stream is read from), HDL-485 (a file lies outside the declared folders).
    """
    if not Place.of(stream.source.path).is_local:
        return _files_in_store(stream, endings, open_file, look, wanted)
    return _files_here(stream, known, endings, open_file, wanted)


def names_below(root: str, paths: Sequence[str]) -> list[str]:
    """Names of files below the root of their source. A source that is one file has the file's name."""
    start = len(root.rstrip("/")) + 1
    return [path[start:] or path.rpartition("/")[2] for path in paths]


def _files_here(
    stream: Stream,
    known: KnownFiles | None,
    endings: tuple[str, ...],
    open_file: OpenFile,
    wanted: Wanted | None,
) -> SourceFiles:
    """The files of this machine, those that are known passed over."""
    paths, passed, warnings = _files(stream, known, endings, wanted)
    names, statuses = names_below(stream.source.path, paths), FileStatuses(paths)

    def identity(number: int) -> str:
        size, written, _, _ = statuses.of(number)
        return f"{names[number]}|{size}|{written}"

    def opened(numbers: Sequence[int]) -> list[Split]:
        return [split for number in numbers for split in open_file(paths[number], identity(number), None, None)]

    def marked() -> pa.Array:
        # the texts of all files at once
        size, written, inode, changed = (pa.array(np.asarray(column)).cast(pa.string()) for column in statuses.all)
        identities = pc.binary_join_element_wise(pa.array(names, pa.string()), size, written, "|")
        status = pc.binary_join_element_wise(inode, changed, "|")
        return pc.binary_join_element_wise(identities, status, "\n")

    return SourceFiles(paths, marked, opened, names, passed=passed, warnings=warnings)


def _files_in_store(
    stream: Stream, endings: tuple[str, ...], open_file: OpenFile, look: Look, wanted: Wanted | None
) -> SourceFiles:
    """The files of a store."""
    files, warnings = _stored_files(stream, endings, wanted)
    paths = [str(place) for place, _ in files]
    names = names_below(str(Place.of(stream.source.path)), paths)

    def identity(number: int, version: ObjectVersion) -> str:
        return f"{names[number]}|{version.size}|{version.tag}"

    def opened(numbers: Sequence[int]) -> list[Split]:
        chosen = [paths[number] for number in numbers]
        return [
            split
            for number, (version, footer) in zip(numbers, look_at_once(stream, chosen, look), strict=True)
            for split in open_file(paths[number], identity(number, version), version, footer)
        ]

    marks = [f"{file.size}|{file.modified}" for _, file in files]
    return SourceFiles(paths, lambda: marks, opened, names, warnings=warnings)


def look_at_once(stream: Stream, paths: Sequence[str], look: Callable[[str], T]) -> list[T]:
    """Return what a look at each of some files of a store returns; its failures are errors of the stream."""

    def looked_at(path: str) -> T:
        with failures_of(stream, path):
            return look(path)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(looked_at, paths))


def _stored_files(
    stream: Stream, endings: tuple[str, ...], wanted: Wanted | None
) -> tuple[list[tuple[Place, Stored]], tuple[Diagnostic, ...]]:
    """The files of a source in a store, in the order in which a folder of this machine would have them, and the
    warnings about the others."""
    root = Place.of(stream.source.path)
    check_place(stream, root)
    # a listing is a request for a thousand files, and a file that bears the source's name another
    listed = root.listed(recursive=True) if wanted is None else _listed_in_store(root, wanted)
    files = _without_warehouses({tuple(file.name.split("/")): file for file in listed})
    if wanted is not None and not files and root.contents() != ([], []):
        return [], ()
    if not files:
        if (alone := root.info()) is not None:
            return [(root, alone)], ()
        check_bucket(root)
        raise HeddleError("HDL-401", f"stream {stream.name}: there is nothing at {root}", "check `path`")
    visible = [parts for parts in sorted(files) if not any(map(is_hidden, parts))]
    chosen = {"/".join(parts): parts for parts in visible if is_data(parts[-1], endings, stream.source.files)}
    unread_names = [
        name for name in map("/".join, visible) if name not in chosen and not is_no_data(name.rpartition("/")[2])
    ]
    logs = {
        (part, "/".join(parts[:at]))
        for parts in files
        for at, part in enumerate(parts)
        if part == COMMIT_LOG or part in TABLE_LOGS
    }
    sinks = [str(root / folder) if folder else str(root) for log, folder in logs if log == COMMIT_LOG]
    committed_files = committed(stream, root, sinks or sinks_above(root), list(chosen))
    warnings = (*unread_files(stream, endings, unread_names), *committed_files.warnings)
    warnings += tuple(of_table(stream, str(root / folder), log) for log, folder in sorted(logs) if log in TABLE_LOGS)
    names = [name for name in chosen if name not in committed_files.uncommitted]
    numbers, outside = placed(stream, names)
    names, warnings = [names[number] for number in numbers], (*warnings, *outside)
    if not names and wanted is None:
        raise _no_file(stream, endings, root, warnings)
    return [(root / files[chosen[name]].name, files[chosen[name]]) for name in names], warnings


def _without_warehouses(files: dict[tuple[str, ...], Stored]) -> dict[tuple[str, ...], Stored]:
    """The files of a store, by their names' parts, without those of warehouses below it."""
    marked = [parts[:-1] for parts in files if len(parts) > 1 and parts[-1] == MARKER]
    if not marked:
        return files
    children: dict[tuple[str, ...], set[str]] = {folder: set() for folder in marked}
    for parts in files:
        for at in range(1, len(parts)):
            if parts[:at] in children:
                children[parts[:at]].add(parts[at])
    warehouses = {folder for folder, names in children.items() if is_warehouse(names)}
    return {
        parts: file for parts, file in files.items() if not any(parts[:at] in warehouses for at in range(1, len(parts)))
    }


def _listed_in_store(root: Place, wanted: Wanted) -> list[Stored]:
    """The files of a store in the folders that are wanted: a request a folder, not one for all files."""
    stored, folders = list[Stored](), [""]
    while folders:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            contents = list(pool.map(lambda folder: (root / folder if folder else root).contents(), folders))
        inner = list[str]()
        for folder, (files, names) in zip(folders, contents, strict=True):
            above = f"{folder}/" if folder else ""
            stored += [replace(file, name=f"{above}{file.name}") for file in files]
            inner += [f"{above}{name}" for name in names if wanted.has(f"{above}{name}")]
        folders = inner
    return stored


def newest_folders(stream: Stream) -> list[list[str]]:
    """Return the names of the folders of a source, of those in the last of these by name, and so on: a listing a level
    of its partitions. Raises HDL-402.
    """
    place, levels = Place.of(stream.source.path), list[list[str]]()
    with failures_of(stream, stream.source.path):
        for _ in stream.source.folders.split("/") if stream.source.folders else stream.source.partitions:
            names = [name for name in place.folders() if not is_hidden(name)]
            if not names:
                break
            levels.append(names)
            place = place / names[-1]
    return levels


def _no_file(
    stream: Stream, endings: tuple[str, ...], root: Path | Place, warnings: Sequence[Diagnostic]
) -> HeddleError:
    kind = (
        f"file that matches {stream.source.files}"
        if stream.source.files
        else f"{' or '.join(without_codecs(endings))} file"
    )
    message = f"stream {stream.name}: no {kind} in {root}"
    hint = "; ".join(["check `path` and `format`", *(warning.message for warning in warnings[:2])])
    return HeddleError("HDL-401", message, hint)


def _files(
    stream: Stream, known: KnownFiles | None, endings: tuple[str, ...], wanted: Wanted | None
) -> tuple[list[str], NDArray[np.int64], tuple[Diagnostic, ...]]:
    """The files of a folder of this machine, or the file that the source is, by their paths' parts; the
    numbers of the known ones that are passed over; and the warnings about all others."""
    root = Path(stream.source.path)
    check_place(stream, root)
    if root.is_file():
        placed(stream, [root.name])
        return [str(root)], np.zeros(0, dtype=np.int64), ()
    if not root.exists():
        raise HeddleError(
            "HDL-401",
            f"stream {stream.name}: there is no {root}",
            "check `path`: it is relative to streams.yaml",
        )
    walked, above = _walked(str(root), wanted), sinks_above(Place(str(root)))
    sinks = [folder for folder, log in walked.logs if log == COMMIT_LOG] or above
    # which files are committed is decided of all of them
    entries, passed = _passed(walked.entries, None if sinks else known)
    pattern = stream.source.files
    data_entries = [entry for entry in entries if is_data(entry.name, endings, pattern) and not is_hidden(entry.name)]
    paths = [entry.path for entry in data_entries if entry.is_file(follow_symlinks=False)]
    # folders that are links are not gone into
    paths += [entry.path for entry in data_entries if entry.is_symlink() and _leads_to_file(stream, entry)]
    warnings = _unread(stream, endings, entries, data_entries, paths)
    warnings += tuple(of_table(stream, folder, log) for folder, log in walked.logs if log in TABLE_LOGS)
    if sinks:
        below = {path[len(str(root)) + 1 :]: path for path in paths}
        committed_files = committed(stream, Place(str(root)), sinks, list(below))
        paths, warnings = (
            [path for name, path in below.items() if name not in committed_files.uncommitted],
            warnings + committed_files.warnings,
        )
    if stream.source.partitions:
        numbers, outside = placed(stream, names_below(str(root), paths))
        paths, warnings = [paths[number] for number in numbers], (*warnings, *outside)
    if not paths and not len(passed) and wanted is None:
        raise _no_file(stream, endings, root, warnings)
    paths.sort(key=None if walked.is_flat else lambda path: path.replace("/", "\0"))
    return paths, passed, warnings


def _unread(
    stream: Stream,
    endings: tuple[str, ...],
    entries: list[os.DirEntry[str]],
    named: list[os.DirEntry[str]],
    paths: list[str],
) -> tuple[Diagnostic, ...]:
    """The warning about the entries of a folder that are not read."""
    if len(paths) == len(entries):
        return ()
    read = set(paths) if len(paths) < len(named) else None
    below = len(stream.source.path.rstrip("/")) + 1
    links = [
        entry.path[below:]
        for entry in entries
        if entry.is_symlink() and not is_no_data(entry.name) and not _is_file(entry)
    ]
    unread_paths = [
        entry.path
        for entry in entries
        if not is_no_data(entry.name)
        and not (is_data(entry.name, endings, stream.source.files) and (read is None or entry.path in read))
    ]
    files = {path[below:] for path in unread_paths} - set(links)
    return (*unread_files(stream, endings, files), *unread_links(stream, links))


def _leads_to_file(stream: Stream, link: os.DirEntry[str]) -> bool:
    """Return whether a link leads to a file. Raises HDL-458 if the file is in a place that is not allowed for
    streams.
    """
    if _is_file(link):
        check_place(stream, Path(link.path))
        return True
    return False


def _is_file(link: os.DirEntry[str]) -> bool:
    try:
        return link.is_file()
    except OSError:  # one that leads to itself
        return False


class _Walked(NamedTuple):
    """Content of a folder and its folders, without hidden ones; whether it has no folders; and the folders that have a
    log (:mod:`spark_jobs.streams.sources.file_names`), with its name.
    """

    entries: list[os.DirEntry[str]]
    is_flat: bool
    logs: list[tuple[str, str]]


def _walked(root: str, wanted: Wanted | None = None) -> _Walked:
    folders, files, is_flat, logs = [root], list[os.DirEntry[str]](), True, list[tuple[str, str]]()
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as entries:
            children = list(entries)
        inner = [entry for entry in children if entry.is_dir(follow_symlinks=False)]
        if folder != root and is_warehouse({entry.name for entry in children}):
            is_flat = False
            continue
        folders += [
            entry.path
            for entry in inner
            if not is_hidden(entry.name) and (wanted is None or wanted.has(entry.path[len(root.rstrip("/")) + 1 :]))
        ]
        logs += [(folder, entry.name) for entry in inner if entry.name == COMMIT_LOG or entry.name in TABLE_LOGS]
        files += [entry for entry in children if not entry.is_dir(follow_symlinks=False)] if inner else children
        is_flat &= not inner
    return _Walked(files, is_flat, sorted(logs))


def _passed(
    entries: list[os.DirEntry[str]], known: KnownFiles | None
) -> tuple[list[os.DirEntry[str]], NDArray[np.int64]]:
    """The entries that are not known by their paths and inodes, and the numbers of the known ones."""
    nothing = np.zeros(0, dtype=np.int64)
    if known is None or not len(known.paths):
        return entries, nothing
    try:
        paths = pa.array([entry.path for entry in entries], pa.string())
    except UnicodeEncodeError:  # a name that is no text
        return entries, nothing
    # an inode is told by the folder: that of a link is its own, and no other file's
    inodes = np.fromiter((entry.inode() for entry in entries), np.uint64, len(entries))
    at = pc.fill_null(pc.index_in(paths, known.paths), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    is_known = (at >= 0) & (known.inodes[at] == inodes)
    return [entries[number] for number in np.flatnonzero(~is_known).tolist()], at[is_known]
