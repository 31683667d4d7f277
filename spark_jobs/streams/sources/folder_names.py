"""Propose columns for undeclared files from the names of their folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from optimizer.workload.partitions import PARTS, Misplaced, folder_names, texts_in
from optimizer.workload.values import DATE, Partition, Source, Type
from spark_jobs.streams.sources.csv_guess import is_nameable
from spark_jobs.streams.sources.partition_columns import guessed_type

_DATED = ("[12][0-9]{3}", "(0?[1-9]|1[0-2])", "(0?[1-9]|[12][0-9]|3[01])", "([01]?[0-9]|2[0-3])")
"""Names of folders that may be a year, month, day and hour."""


@dataclass(frozen=True)
class FolderNames:
    """Columns that the names of folders show.

    - ``columns``: names and types of the columns that every file has (``day=2024-01-31``);
    - ``texts``: of each file its texts, in that order;
    - ``others``: names that only some files have, or that cannot name a column;
    - ``both``: names that the files have as columns;
    - ``pattern``: of folders that are named like dates, such as ``{year}/{month}/{day}``;
    - ``files``: the pattern of the names of files, None: their endings are known.
    """

    columns: tuple[tuple[str, Type], ...] = ()
    texts: tuple[tuple[str | None, ...], ...] = ()
    others: tuple[str, ...] = ()
    both: tuple[str, ...] = ()
    pattern: str = ""
    files: str | None = None

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The columns as a source declares them."""
        return tuple(Partition(name) for name, _ in self.columns)

    def without(self, names: Iterable[str]) -> FolderNames:
        """Return these without columns that the files have."""
        lower = {name.lower() for name in names}
        chosen = [at for at, (name, _) in enumerate(self.columns) if name.lower() not in lower]
        return replace(
            self,
            columns=tuple(self.columns[at] for at in chosen),
            texts=tuple(tuple(texts[at] for at in chosen) for texts in self.texts),
            both=tuple(name for name, _ in self.columns if name.lower() in lower),
        )

    def sampled(self, rows: int) -> dict[str, pa.Array]:
        """Return texts of each column for some rows of a sample, spread over the files."""
        numbers = [row * len(self.texts) // max(rows, 1) for row in range(rows)]
        return {
            name: pa.array([self.texts[number][at] for number in numbers], pa.string())
            for at, (name, _) in enumerate(self.columns)
        }

    def notes(self, time: str) -> list[str]:
        """Return what a person should know. ``time``: the time column."""
        notes = []
        if self.both:
            notes.append(
                f"{', '.join(self.both)}: in the files and in the names of folders; the files' values are read"
            )
        if self.others:
            notes.append(
                f"some folders are named by {', '.join(self.others[:6])}: no columns, as not every file has them"
            )
        parts = [name for name, type in self.columns if name != time and (type == DATE or name in PARTS)]
        if parts:
            words = ", ".join(f"{name}: {'exact' if name in parts else 'auto'}" for name, _ in self.columns)
            notes.append(f"if the folders have the UTC time of {time}, write partitions: {{{words}}}")
            notes.append("and a run lists only the folders that it needs")
        if self.pattern:
            notes.append(f"folders are named like dates: /{self.pattern} behind the path makes columns of them;")
            notes.append(
                f"if they have the UTC time of {time}, add partitions: exact, and a run lists only what it needs"
            )
        return notes


def names_of_folders(folders: Sequence[tuple[str, ...]], files: str | None = None) -> FolderNames:
    """Return what the names of folders have. ``folders``: of each file those that it lies in; ``files``: the pattern of
    the files' names.
    """
    try:
        names = folder_names(folder for of_file in folders for folder in of_file)
        usable = [name for name in names if is_nameable(name) and _is_everywhere(name, folders)]
        source = Source("csv", "", partitions=tuple(map(Partition, usable)))
        texts = tuple(tuple(texts_in(source, of_file)[name] for name in usable) for of_file in folders)
    except Misplaced:
        return FolderNames(files=files)
    if not names:
        return FolderNames(pattern=_pattern(folders), files=files)
    columns = tuple((name, guessed_type(name, (of[at] for of in texts))) for at, name in enumerate(usable))
    return FolderNames(columns, texts, tuple(name for name in names if name not in usable), files=files)


def _is_everywhere(name: str, folders: Sequence[tuple[str, ...]]) -> bool:
    source = Source("csv", "", partitions=(Partition(name),))
    try:
        return all(name in texts_in(source, of_file) for of_file in dict.fromkeys(folders))
    except Misplaced:
        return False


def _pattern(folders: Sequence[tuple[str, ...]]) -> str:
    """The pattern of folders that are named like dates; empty if they are not."""
    depth = min(map(len, folders), default=0)
    dated = 0
    for at, form in enumerate(_DATED[:depth]):
        if not all(re.fullmatch(form, of_file[at], re.ASCII) for of_file in dict.fromkeys(folders)):
            break
        dated = at + 1
    return "/".join(f"{{{part}}}" for part in PARTS[:dated]) if dated > 1 else ""
