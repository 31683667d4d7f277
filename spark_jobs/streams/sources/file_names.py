"""Decide by their names which files of a folder belong to a stream, and warn about all others.

Every file below a stream's folder is read, is skipped by a convention that docs/sources.md states, or is named in a
warning (HDL-414). Nothing else decides about names: folders of this machine, stores and copies call this module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from optimizer.errors.diagnostics import Diagnostic, count
from optimizer.workload.values import Stream
from spark_jobs.store.warehouse.schemas import MARKER
from spark_jobs.streams.sources.compression import CODECS, without_codecs

TEMPORARY = (
    *(".tmp", ".temp", ".crc", "._copying_", ".inprogress"),
    *(".partial", ".filepart", ".crdownload", ".swp", "~"),
)
"""Endings, in lower case, of files that are being written or that accompany others."""

NO_DATA = (".sql", ".yaml", ".yml", ".toml", ".md", ".py", ".sh", ".ipynb", ".html", ".pdf", ".license")
"""Endings, in lower case, of files that describe data or work with them, and never are events."""

COMMIT_LOG = "_spark_metadata"
"""The folder in which Spark's streaming sink names the files that it has committed."""

TABLE_LOGS = {"_delta_log": "a Delta table", ".hoodie": "a Hudi table"}
"""Folders whose presence shows that their parent is a table."""

EXAMPLES = 3
"""Names in a warning."""


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden, by its name only. As in Spark, ``_day=1`` is a partition."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def is_temporary(name: str) -> bool:
    """Return whether a file is temporary or accompanies another one, by its name only."""
    return name.lower().endswith(TEMPORARY)


def is_no_data(name: str) -> bool:
    """Return whether a file is skipped without a warning, by its name only."""
    return is_hidden(name) or name.lower().endswith((*TEMPORARY, *NO_DATA))


def is_warehouse(names: Collection[str]) -> bool:
    """Return whether a folder with entries of these names is a warehouse of Heddle, which holds answers and no events
    of a stream around it."""
    return MARKER in names and "publish_log" in names


def is_data(name: str, endings: tuple[str, ...], pattern: str | None = None) -> bool:
    """Return whether a file that is not hidden has one of some endings, in any case. ``pattern``: matches it instead of
    having an ending.
    """
    if pattern is not None:
        return fnmatchcase(name.lower(), pattern.lower()) and not is_temporary(name)
    return name.lower().endswith(endings)


def is_skipped(path: str) -> bool:
    """Return whether a file is skipped by convention: hidden, in a hidden folder, or temporary. ``path``: below the
    root.
    """
    return any(map(is_hidden, path.split("/"))) or is_temporary(path)


def unread_files(stream: Stream, endings: tuple[str, ...], names: Iterable[str]) -> tuple[Diagnostic, ...]:
    """The warning about files that are neither read nor skipped by convention; empty if there are none."""
    names = sorted(names)
    if not names:
        return ()
    message = f"stream {stream.name} does not read {count(len(names), 'file')} in {stream.source.path}: {some(names)}"
    plain = without_codecs(endings)
    compressed = "" if len(plain) == len(endings) else f" (and the same with {', '.join(CODECS)})"
    hint = f"only {', '.join(plain)} files{compressed} are read: rename them, or name them by `files` below `source`"
    if stream.source.files is not None:
        hint = f"only files that match {stream.source.files} are read, as `files` says"
    return (Diagnostic("HDL-414", message, hint, severity="warning"),)


def unread_links(stream: Stream, names: Iterable[str]) -> tuple[Diagnostic, ...]:
    """The warning about links to folders, which are not followed, and about those that lead nowhere."""
    names = sorted(names)
    message = f"stream {stream.name} does not follow {count(len(names), 'link')}: {some(names)}"
    hint = "links to folders are not followed: name the folder itself, or mount it there"
    return (Diagnostic("HDL-414", message, hint, severity="warning"),) if names else ()


def some(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(names) - EXAMPLES
    return ", ".join(names[:EXAMPLES]) + (f" and {more:,} more" if more > 0 else "")


def of_table(stream: Stream, folder: str, log: str) -> Diagnostic:
    """The warning that a folder read file by file is a table."""
    message = f"stream {stream.name}: {folder} is {TABLE_LOGS[log]}, but is read as a folder of files"
    hint = "files that the table has removed count too; "
    hint += "write `format: delta`" if log == "_delta_log" else "export the table"
    return Diagnostic("HDL-417", message, hint, severity="warning")
