"""Registered queries whose workload file no longer has them: they were deleted or renamed there, and go on publishing.

The file that a query came from is part of its registration. Files are compared by the names of their queries, so a
query with a mistake is still in its file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.values import ACQ
from spark_jobs.store.warehouse.registry import Registered

SHOWN = 12
"""Queries that a message names."""


@dataclass(frozen=True)
class MissingQuery:
    """A registered query that is missing from its file. ``renamed_to``: a query of the files with the same meaning."""

    name: str
    file: str
    renamed_to: str = ""

    def __str__(self) -> str:
        renamed = f", looks renamed to {self.renamed_to}" if self.renamed_to else ""
        return f"{self.name} ({Path(self.file).name}{renamed})"


def missing_queries(
    live: Mapping[str, Registered], given: Sequence[str] | None = None, queries: Iterable[ACQ] = ()
) -> list[MissingQuery]:
    """The registered queries that are missing from their files, by name.

    Parameters
    ----------
    live
        Queries that are registered and not removed, by name.
    given
        Absolute paths of the files and folders that a command names: only queries of these are checked. None: all.
    queries
        Queries of the given files. The first with the same meaning as a missing query counts as its new name.
    """
    by_meaning: dict[str, str] = {}
    for query in queries:
        by_meaning.setdefault(replace(query, name="").fingerprint, query.name)
    missing = []
    for name, registered in sorted(live.items()):
        file = registered.file
        if file is None or (given is not None and (file := _given_file(file, given)) is None):
            continue
        if given is None and not Path(file).parent.exists():
            continue  # the project lies elsewhere now
        names = _names_in(file, _version(file))
        if names is not None and name not in names:
            renamed = by_meaning.get(replace(registered.query, name="").fingerprint, "")
            missing.append(MissingQuery(name, file, renamed if renamed != name else ""))
    return missing


def missing_warnings(missing: Sequence[MissingQuery], removed: bool = False) -> list[Diagnostic]:
    """The warning (HDL-148) about missing queries, if there are any; ``removed``: they are about to go."""
    if not missing:
        return []
    shown = ", ".join(map(str, missing[:SHOWN])) + (f", … {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
    verb = "query is" if len(missing) == 1 else "queries are"
    message = f"{len(missing)} registered {verb} no longer in the file that registered {_them(missing)}: {shown}"
    hint = f"they go on; `heddle remove {missing[0].name}`, or `heddle run … --prune` for all of them"
    if removed:
        hint = "they are removed; their answers stay under the old names"
    return [Diagnostic("HDL-148", message, hint, severity="warning")]


def check_prunable(missing: Sequence[MissingQuery], registered: int) -> None:
    """Raises HDL-149 if more than half of the registered queries would be removed."""
    if 2 * len(missing) > registered:
        message = f"--prune would remove {len(missing)} of {registered} registered queries"
        raise HeddleError("HDL-149", message, "see that all files are there; `heddle remove` removes queries by name")


def _them(missing: Sequence[MissingQuery]) -> str:
    return "it" if len(missing) == 1 else "them"


def _given_file(file: str, given: Sequence[str]) -> str | None:
    """The file as it is among those given, or below a folder given; None: neither. Of a project that was moved the file
    lies below the given folder as it did below the one of that name."""
    for place in given:
        if file == place or file.startswith(place.rstrip(os.sep) + os.sep):
            return file
    if Path(file).parent.exists():
        return None
    parts = Path(file).parts
    for folder in map(Path, given):
        if folder.name in parts[1:]:
            below = parts[len(parts) - parts[::-1].index(folder.name) :]
            return str(folder.joinpath(*below))
    return None


def _version(file: str) -> tuple[int, int] | None:
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@cache
def _names_in(file: str, version: tuple[int, int] | None) -> frozenset[str] | None:
    """Names of the queries in a file; None if the file cannot be read, or if the ends of its queries are unclear.
    Empty if it does not exist.
    """
    # the parser's library is not for those who only read what is planned
    from optimizer.language.parser import query_names, read_text

    if version is None:
        return None if Path(file).exists() else frozenset()
    try:
        return query_names(read_text(file), file)
    except HeddleError:
        return None
