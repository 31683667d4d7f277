"""Places that events and attributes come from, as parts of the values in :mod:`optimizer.workload.values`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from optimizer.workload.value_types import Type


def later(default: Any) -> Any:
    """A field that earlier versions lack: omitted from JSON, and so from hashes, while it has its default."""
    return field(default=default, metadata={"optional": True})


@dataclass(frozen=True)
class Origin:
    """Source of which Heddle reads a copy: a database, or what only Spark reads.

    - ``format``: as Spark calls it (``table``: a table of a catalogue).
    - ``path``: a file or folder (absolute), or the JDBC URL of a database.
    - ``table``: of a catalogue or database.
    - ``options``: of Spark's reader, sorted.
    - ``watermark``: for sources without files, a column whose values grow as rows come in.
    - ``since``: (microseconds) earlier events are not read.
    - ``copies``: the folder in which its copy lies.
    - ``zone``: the time zone of a database's timestamps without one; None: UTC, for Spark that of its JVM.
    """

    format: str
    path: str = ""
    table: str = ""
    options: tuple[tuple[str, str], ...] = ()
    watermark: str | None = None
    since: int | None = None
    copies: str = ""
    zone: str | None = later(None)

    @property
    def name(self) -> str:
        """Name in messages."""
        return " ".join(filter(None, (self.format, self.table or self.path)))


@dataclass(frozen=True)
class Partition:
    """A column whose values are in the names of folders.

    - ``type``: its type; None: as the stream's schema has it, or as its texts are.
    - ``is_exact``: whether its value is that part of the event time, in UTC.
    """

    name: str
    type: Type | None = later(None)
    is_exact: bool = later(False)


@dataclass(frozen=True)
class DimensionVersion:
    """Content of a dimension as a run uses it.

    ``place``: the file with its rows; ``rows``: the hash of the keys and validities, ``columns``: of each other column
    with them, by its name.
    """

    place: str
    rows: str
    columns: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        """The name of the content."""
        return self.place.rpartition("/")[2].removesuffix(".parquet")
