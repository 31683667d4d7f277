"""Declarations of each source format in ``streams.yaml``, for the parser and the JSON schema.

The class of a format below ``spark_jobs/streams/sources/formats`` lists and decodes its events.
"""

from __future__ import annotations

from dataclasses import dataclass

KEYS_OF_TEXT = ("delimiter", "header", "quote", "null", "timestamp_format")
"""Keys that describe how text files are written."""

KEYS_OF_FOLDERS = ("files", "partitions")
"""Keys that choose files of a folder by name, and make columns of the names of folders."""

KEYS_OF_SPARK = ("options", "watermark", "since", "zone")
"""Keys that only sources have that are copied."""


@dataclass(frozen=True)
class DeclaredFormat:
    """The declaration of one source format.

    Parameters
    ----------
    keys
        The keys that the source may have besides ``format``. It must have its ``path`` and its ``table``, if they are
        among them.
    is_direct
        Whether Heddle reads the events itself: there is a class of the format's name. Spark copies those of the others.
    is_either
        Whether the source has a ``path`` or a ``table``, and not both.
    is_database
        Whether ``path`` is the URL of a database (:mod:`optimizer.workload.databases`).
    is_flat
        Whether no column can be a struct, map or array.
    title
        How an error refers to its files.
    """

    keys: tuple[str, ...]
    is_direct: bool = False
    is_either: bool = False
    is_database: bool = False
    is_flat: bool = False
    title: str = ""

    @property
    def copied(self) -> frozenset[str]:
        """The keys of which one is enough for Spark to copy a source that Heddle could read itself."""
        return frozenset(KEYS_OF_SPARK).intersection(self.keys) if self.is_direct else frozenset()

    @property
    def required(self) -> tuple[str, ...]:
        """The keys that a source must have."""
        return () if self.is_either else tuple(key for key in ("path", "table") if key in self.keys)


DECLARED = {
    "csv": DeclaredFormat(
        ("path", "time_unit", *KEYS_OF_TEXT, *KEYS_OF_FOLDERS), is_direct=True, is_flat=True, title="CSV files"
    ),
    "parquet": DeclaredFormat(("path", "time_unit", "reader", *KEYS_OF_FOLDERS), is_direct=True),
    "delta": DeclaredFormat(("path", "time_unit", "reader"), is_direct=True),
    "iceberg": DeclaredFormat(("path", "table", "time_unit"), is_direct=True, is_either=True),
    "orc": DeclaredFormat(("path", "time_unit", "options", "since")),
    "json": DeclaredFormat(
        ("path", "time_unit", "null", "timestamp_format", "records", "reader", "options", "since", *KEYS_OF_FOLDERS),
        is_direct=True,
    ),
    "avro": DeclaredFormat(("path", "time_unit", "options", "since")),
    "jdbc": DeclaredFormat(("path", "table", "time_unit", "reader", *KEYS_OF_SPARK), is_database=True),
    "table": DeclaredFormat(("table", "time_unit", "reader", "watermark", "since")),
}
"""The source formats, by the names that ``format`` has."""

UNNAMED = "table"
"""The format of a source without the key ``format``: a table of a catalogue."""

COPIED_AS = "delta"
"""The format of the copies of what Spark reads."""
