"""Files of a Delta table that its log spells in several ways: with or without percent-encoding, absolute or relative.

delta-rs compares the paths of ``add`` and ``remove`` actions as texts. A ``remove`` that spells a path otherwise than
its ``add`` removes nothing there, and a file that is added under two spellings counts twice. Here the newest action
that names a file, however it spells it, decides, as in Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq

from spark_jobs.store.storage import Place

AT_ONCE = 16
"""Commits of a store that are read at once."""


class TwoNames(ValueError):
    """A file with several names of which it is not known which is the newest."""


def current_names(
    names: Sequence[str], place: Callable[[str], str], log: Place, commits: Sequence[int], checkpoints: Sequence[str]
) -> set[str]:
    """Active names of a table that count, one name for each file.

    Parameters
    ----------
    names
        Names of active files, as delta-rs lists them.
    place
        Returns the place of a file by its name, in one spelling.
    log
        The folder of the log.
    commits
        The versions since the newest checkpoint, ascending.
    checkpoints
        The names of the files of that checkpoint.

    Raises :class:`TwoNames` if a checkpoint has a file under two names, and OSError.
    """
    active: dict[str, list[str]] = {}
    for name in names:
        active.setdefault(place(name), []).append(name)
    texts = dict(zip(commits, _texts(log, commits), strict=True))
    removed = [_removed(text) for text in texts.values()]
    in_checkpoint = set(_removed_before(log, checkpoints))
    counted_names = set(names)
    unclear = {path for path, spelt in active.items() if len(spelt) > 1}
    for name in {name for names_removed in (*removed, in_checkpoint) for name in names_removed} - counted_names:
        path = place(name)
        if path in active:
            unclear.add(path)
    if not unclear:
        return counted_names
    newest = _newest(texts, place, unclear)
    for path in unclear:
        if path not in newest:
            raise TwoNames(" and ".join(sorted({*active[path], *(n for n in in_checkpoint if place(n) == path)})[:2]))
        counted_names -= {name for name in active[path] if name != newest[path]}
    return counted_names


def _newest(texts: dict[int, str], place: Callable[[str], str], paths: set[str]) -> dict[str, str | None]:
    """The name that the newest commit which names a file adds, by file; None: that commit removes it."""
    newest: dict[str, str | None] = {}
    for version in sorted(texts, reverse=True):
        of_version: dict[str, str | None] = {}
        for kind, name in _named(texts[version], ("add", "remove")):
            path = place(name)
            # a file that is both is there, with other deleted rows
            if path in paths and (kind == "add" or path not in of_version):
                of_version[path] = name if kind == "add" else None
        newest = of_version | newest
    return newest


def _texts(log: Place, commits: Sequence[int]) -> list[str]:
    def text(version: int) -> str:
        with (log / f"{version:020}.json").open_unchanging() as file:
            content: bytes = file.read()
        return content.decode(errors="replace")

    if log.is_local:
        return list(map(text, commits))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(text, commits))


def _named(text: str, kinds: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The actions of some kinds in a commit, with the names of their files."""
    marks = [f'"{kind}"' for kind in kinds]
    for line in text.split("\n"):
        if any(mark in line for mark in marks):
            action: dict[str, Any] = json.loads(line)
            yield from ((kind, str(action[kind]["path"])) for kind in kinds if action.get(kind))


def _removed(text: str) -> set[str]:
    # most commits remove nothing
    return {name for _, name in _named(text, ("remove",))} if '"remove"' in text else set()


def _removed_before(log: Place, checkpoints: Iterable[str]) -> Iterator[str]:
    """The names that a checkpoint has as removed."""
    for name in checkpoints:
        if not name.endswith(".parquet"):
            continue
        with (log / name).open_unchanging() as content:
            file = pq.ParquetFile(content)
            if "remove" in file.schema_arrow.names:
                column = file.read(columns=["remove.path"])["remove"].combine_chunks()
                yield from (path for path in column.field("path").drop_null().to_pylist())
