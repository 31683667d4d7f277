"""The commit log of Spark's streaming file sink: which files of a folder it has committed.

The log is a folder ``_spark_metadata`` of text files: ``N`` has the files of batch N, ``N.compact`` those of all
batches up to N. The first line is a version, each further line a JSON object. Files that the log does not name are
remains of batches that failed: Spark does not read them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from optimizer.errors.diagnostics import Diagnostic, HeddleError, count
from optimizer.workload.urls import SCHEMES
from optimizer.workload.values import Stream
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.file_names import COMMIT_LOG, is_skipped, some, unread_links

VERSION = "v1"

_BATCH = re.compile(r"(\d+)(\.compact)?")


class Committed(NamedTuple):
    """Result of reading the logs of a folder: its ``uncommitted`` files, and the ``warnings`` about these and about
    files that a log names and that are gone.
    """

    uncommitted: frozenset[str]
    warnings: tuple[Diagnostic, ...]


def committed(stream: Stream, root: Place, sinks: Iterable[str], names: Sequence[str]) -> Committed:
    """Read the commit logs of some folders for some files.

    Parameters
    ----------
    root
        The folder of the stream.
    sinks
        The folders that have a log, as paths or URLs.
    names
        The files below ``root``, by their paths relative to it.

    Raises HDL-416 if a log cannot be read.
    """
    uncommitted, warnings = set[str](), list[Diagnostic]()
    for sink in sorted(sinks):
        below = _below(str(root), sink)
        names_below = [name for name in names if name.startswith(below)]
        # a partition of a sink: the log of the folder above names its files
        ahead = (
            "" if below or sink.rstrip("/") == str(root).rstrip("/") else str(root)[len(sink.rstrip("/")) + 1 :] + "/"
        )
        inside = {f"{ahead}{name[len(below) :]}": name for name in names_below}
        logged = _relative(sink.rstrip("/"), _named(stream, Place.of(sink) / COMMIT_LOG), inside.keys())
        left_over = [name for relative, name in inside.items() if relative not in logged]
        lost = sorted(name for name in logged if name not in inside and name.startswith(ahead))
        uncommitted.update(left_over)
        if left_over:
            message = f"stream {stream.name}: {count(len(left_over), 'file')} of {sink} not committed by its "
            message += f"{COMMIT_LOG}, so not read: {some(sorted(left_over))}"
            warnings.append(Diagnostic("HDL-416", message, "Spark does not read them either", severity="warning"))
        if lost:
            message = (
                f"stream {stream.name}: {COMMIT_LOG} of {sink} names {count(len(lost), 'file')} not there: {some(lost)}"
            )
            hint = "put them back if they should count: Spark refuses to read such a folder"
            warnings.append(Diagnostic("HDL-416", message, hint, severity="warning"))
    return Committed(frozenset(uncommitted), tuple(warnings))


class ReadNames(NamedTuple):
    """The ``names`` of files that are read, and the ``warnings`` about others."""

    names: list[str]
    warnings: tuple[Diagnostic, ...]


def read_names(stream: Stream, root: Place, names: Sequence[str]) -> ReadNames:
    """Files below a folder, by their paths relative to it, that are read whatever their ending: neither hidden nor
    temporary, and committed where a folder has a commit log.
    """
    parts = [name.split("/") for name in names]
    logs = {"/".join(each[: each.index(COMMIT_LOG)]) for each in parts if COMMIT_LOG in each[:-1]}
    sinks = {str(root / folder) if folder else str(root) for folder in logs}
    read = [name for name in names if not is_skipped(name)]
    committed_files = committed(stream, root, sinks or sinks_above(root), read)
    return ReadNames([name for name in read if name not in committed_files.uncommitted], committed_files.warnings)


ORIGINS = ("orc", "json", "avro", "parquet")
"""Formats of files in a folder that only Spark reads."""


def origin_warnings(stream: Stream) -> tuple[Diagnostic, ...]:
    """The warnings about files in the folder of a stream's origin that are not copied."""
    origin = stream.source.origin
    if origin is None or origin.format not in ORIGINS:
        return ()
    root = Place.of(origin.path)
    if not root.is_local:
        return read_names(stream, root, [file.name for file in root.listed(recursive=True)]).warnings
    below = [] if root.local().is_file() else [*root.local().rglob("*")]
    names = [str(path.relative_to(root.local())) for path in below if path.is_file()]
    links = [str(path.relative_to(root.local())) for path in below if path.is_symlink() and not path.is_file()]
    return (
        *unread_links(stream, filter(lambda name: not is_skipped(name), links)),
        *read_names(stream, root, names).warnings,
    )


def sinks_above(root: Place) -> list[str]:
    """The folder that has the log of a folder which is one of its partitions (``…/day=1``); none if it is not."""
    sinks, folder = list[str](), root
    while "=" in folder.name:
        folder = folder.parent
        if (folder / COMMIT_LOG).exists():
            sinks.append(str(folder))
    return sinks


def _below(root: str, sink: str) -> str:
    root, sink = root.rstrip("/"), sink.rstrip("/")
    return f"{sink[len(root) + 1 :]}/" if len(sink) > len(root) else ""


def _named(stream: Stream, log: Place) -> set[str]:
    """The paths that a log names, decoded."""
    batches, compacted = dict[int, str](), -1
    for file in log.listed():
        if match := _BATCH.fullmatch(file.name):
            batches[int(match[1])] = file.name
            compacted = max(compacted, int(match[1])) if match[2] else compacted
    last = max(batches, default=-1)
    paths = set[str]()
    for number in range(max(compacted, 0), last + 1):
        if number not in batches:
            raise _unreadable(stream, log, f"lacks batch {number}, its newest is {last}")
        version, _, actions = log_text(stream, log / batches[number]).partition("\n")
        if version.strip() != VERSION:
            raise _unreadable(stream, log, f"has version {version[:20]!r} in {batches[number]}, not {VERSION}")
        for line in filter(None, map(str.strip, actions.split("\n"))):
            try:
                action = json.loads(line)
                path, kind = str(action["path"]), action.get("action", "add")
            except (ValueError, KeyError, TypeError, AttributeError):
                raise _unreadable(stream, log, f"has a line in {batches[number]} that is no action") from None
            (paths.discard if kind == "delete" else paths.add)(_decoded(path))
    return paths


def log_text(stream: Stream, file: Place) -> str:
    """The text of a file of the log. Raises HDL-416 if it is not UTF-8."""
    try:
        return file.read().decode()
    except UnicodeDecodeError:
        raise _unreadable(stream, file.parent, f"has a file that is not UTF-8: {file.name}") from None


def _unreadable(stream: Stream, log: Place, what: str) -> HeddleError:
    hint = "restore the log, or copy the files that count to a folder without one"
    return HeddleError("HDL-416", f"stream {stream.name}: the log {log} {what}", hint)


def _decoded(uri: str) -> str:
    """The path or URL of a file that a log names by its URI."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", uri)
    if scheme is None:
        return unquote(uri)
    store = SCHEMES.get(scheme[1].lower())
    return unquote(urlsplit(uri).path) if store is None else f"{store}://{unquote(uri.partition('://')[2])}"


def _relative(sink: str, paths: Collection[str], names: Collection[str]) -> set[str]:
    """Paths in a log, relative to its folder. If the folder was moved or copied since, the log has paths of another
    folder: the one below which most of the ``names`` are named.
    """
    relative = {path[len(sink) + 1 :] for path in paths if path.startswith(f"{sink}/")}
    elsewhere = [path for path in paths if not path.startswith(f"{sink}/")]
    votes = Counter[str]()
    for path in elsewhere:
        parts = path.split("/")
        for at in range(1, len(parts)):
            if "/".join(parts[at:]) in names:
                votes["/".join(parts[:at])] += 1
    if votes:
        before = max(votes, key=lambda folder: (votes[folder], len(folder)))
        relative |= {path[len(before) + 1 :] for path in elsewhere if path.startswith(f"{before}/")}
        elsewhere = [path for path in elsewhere if not path.startswith(f"{before}/")]
    return relative | {path.lstrip("/") for path in elsewhere}
