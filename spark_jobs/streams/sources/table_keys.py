"""Keys of tables that nobody declared: unique columns, the columns of other tables that refer to them, and repeats.

Columns are read to the end, up to a limit: a sample cannot show that values are unique. Values are compared as texts,
so that files of different formats can refer to each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.workload.formats import DECLARED
from optimizer.workload.values import BYTE, INT, LONG, SHORT, STRING, Stream
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.event_times import MOST_BYTES, MOST_ROWS, text_bytes
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.formats import FORMATS
from spark_jobs.streams.sources.proposals import Data, undeclared

MOST_VALUES = 32_000_000
"""Values of a table that are read at once."""

TRIED = 6
"""Columns that may be part of a key of several columns."""

LONGEST_KEY = 3
"""Columns of a key."""

REFERRING = 0.5
"""Share of a column's values that a key has to contain if the column refers to it."""

LEAST_CODES = 3
"""Different texts of a column, all in a key, from which it refers to that key whatever it is called."""

MOST_REPEATS = 0.1
"""Share of rows that may repeat an event id. Where more do, the column is no id of events."""

KEY_TYPES = (STRING, LONG, INT, SHORT, BYTE)

ID_WORDS = frozenset(["id", "ids", "uuid", "guid", "key", "code", "upc", "sku", "ean", "isbn", "hash"])
"""Last words of names of identifiers."""

ID_NOUNS = "user|customer|client|order|product|item|store|shop|session|account|device|event|message|household|basket"
_RUN_TOGETHER = re.compile(rf"({ID_NOUNS})(id|uuid|key|code)s?")

PLAIN_IDS = frozenset({"id", "uuid", "guid", "key", "code", "_id", "pk"})
"""Names of keys that say nothing of what they identify."""

EVENT_WORDS = frozenset(
    {"event", "message", "msg", "record", "row", "request", "trace", "transaction", "txn", "tx", "log", "entry", "line"}
)
"""What an identifier of events is called after, besides the table's name."""


def words_of(name: str) -> list[str]:
    """The words of a column's name, in lower case: ``householdId`` has two."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return re.findall(r"[^\W_]+", spaced.lower())


def is_id(name: str) -> bool:
    """Return whether a column's name is that of an identifier."""
    words = words_of(name)
    return bool(words) and (words[-1] in ID_WORDS or _RUN_TOGETHER.fullmatch(words[-1]) is not None)


def is_ordinal(name: str) -> bool:
    """Return whether values under a name say which time or place, and neither how much nor which thing."""
    return words_of(name)[-1:] == [] or words_of(name)[-1] in POSITIONS


def singular(name: str) -> str:
    """A table's name as that of one of its rows."""
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("s", "")):
        if name.endswith(ending) and not name.endswith("ss"):
            return name[: len(name) - len(ending)] + replacement
    return name


POSITIONS = frozenset(
    re.findall(
        r"\w+",
        """number no nr index idx rownum zip plz postcode phone year quarter month week day weekday dow hour minute
        second date time timestamp epoch version rank line""",
    )
)
"""Last words of names of numbers that are no measures."""


class UndeclaredTable:
    """Data with a name, whose columns can be read to the end."""

    def __init__(self, name: str, data: Data) -> None:
        self.name, self.data = name, data
        self.types = dict(data.columns)
        self._read = dict[str, pa.ChunkedArray]()
        guess = data.guess
        listed = undeclared(data.path, data.format, data.folders)
        source = replace(listed.source, **({} if guess is None else guess.options))
        # whatever a CSV file has later than its sample is a text
        columns = () if guess is None else guess.columns
        texts = {column.name for column in columns if DECLARED[data.format].is_flat or column.formats}
        schema = tuple((column, STRING if column in texts else type) for column, type in data.columns)
        self.stream = Stream(name, source, schema, next(iter(self.types)))
        self.splits = splits_of(self.stream)
        self.size = sum(map(text_bytes, self.splits))

    @property
    def is_text(self) -> bool:
        """True if the files do not state their number of rows."""
        return not FORMATS[self.data.format].has_statistics

    @property
    def rows(self) -> int:
        """Number of rows; of text that is too long to be read, estimated."""
        if not self.is_text:
            return sum(split.rows or 0 for split in self.splits)
        if self.size > MOST_BYTES:
            guess = self.data.guess
            return round(self.size / max(1.0, guess.row_bytes if guess is not None else 1.0))
        return len(self.column(self.stream.time))

    def can_read(self, columns: int) -> bool:
        """Return whether so many columns are short enough to be read at once."""
        if self.is_text:
            return self.size <= MOST_BYTES
        return self.rows <= MOST_ROWS and self.rows * columns <= MOST_VALUES

    def columns(self, names: Sequence[str]) -> pa.Table:
        """All rows of some columns, in the types of the files; of text files, strings. Raises what reading raises."""
        missing = [name for name in names if name not in self._read]
        if missing:
            batches = [batch for split in self.splits for batch in read_split(self.stream, split, missing)]
            for name in missing:
                self._read[name] = pa.chunked_array([batch.column(name) for batch in batches], _type(batches, name))
        return pa.table({name: self._read[name] for name in names})

    def column(self, name: str) -> pa.ChunkedArray:
        """All values of a column. Raises what reading raises."""
        return self.columns([name])[name]

    def texts(self, name: str) -> pa.ChunkedArray:
        """All values of a column as texts. Raises what reading raises."""
        return self.column(name).cast(pa.string())


def _type(batches: Sequence[pa.RecordBatch], name: str) -> pa.DataType:
    return batches[0].column(name).type if batches else pa.string()


# -------------------------------------------------------------------------------------------------- keys
def unique_key(table: UndeclaredTable) -> tuple[str, ...]:
    """Columns whose values are never null and differ between all rows; none if there are none that leave another
    column, or if the table is too long to be read.

    One column is better than several, an identifier better than another column, an earlier one better than a later.
    Raises what reading raises.
    """
    if len(table.types) < 2 or not table.can_read(1):
        return ()
    first = next(iter(table.types))
    named = [
        name
        for name in _key_columns(table)
        if is_id(name) or ((table.types[name] == STRING or name == first) and not is_ordinal(name))
    ]
    likely = [name for name in named if _is_unique(table.data.sample, [name])]
    likely.sort(key=lambda name: (not is_own_id(table.name, name), not is_id(name)))
    if table.is_text:
        table.columns(likely[:TRIED])  # read once
    for name in likely[:TRIED]:
        if _is_unique(table.columns([name]), [name]):
            return (name,)
    parts = [name for name in _key_columns(table) if is_id(name)][:TRIED]
    for size in range(2, LONGEST_KEY + 1):
        for names in combinations(parts, size):
            if size == len(table.types) or not table.can_read(size):
                continue
            if _is_unique(table.data.sample, names) and _is_unique(table.columns(names), names):
                return names
    return ()


def _key_columns(table: UndeclaredTable) -> list[str]:
    return [name for name, type in table.types.items() if type in KEY_TYPES and name in table.data.sample.schema.names]


def _is_unique(rows: pa.Table, names: Iterable[str]) -> bool:
    """Return whether no row has a null in these columns, or the values of another row."""
    columns = rows.select(list(names))
    if any(column.null_count for column in columns.columns):
        return False
    return len(columns.group_by(columns.column_names, use_threads=False).aggregate([])) == len(rows)


def is_own_id(table: str, column: str) -> bool:
    """Return whether a column is called as the id of a table's rows: ``id`` or ``product_id`` of ``products``."""
    lower = "_".join(words_of(column))
    own_ids = (f"{own}{between}{word}" for own in _own_names(table) for between in ("", "_") for word in ID_WORDS)
    return lower in PLAIN_IDS or lower in own_ids


def _own_names(table: str) -> set[str]:
    return {table, singular(table), singular(table).rpartition("_")[2]}


@dataclass(frozen=True)
class KeyReference:
    """A column of a table that has values of another table's key; ``is_complete``: a sample has no others."""

    table: str
    column: str
    is_complete: bool = True


def references_to(table: UndeclaredTable, key: str, others: Iterable[UndeclaredTable]) -> list[KeyReference]:
    """The columns of other tables that refer to a key of one column: by their names, and codes also by their values.

    Raises what reading the key raises.
    """
    values: pa.Array | None = None
    references = []
    for other in others:
        called = _called_after(table.name, key, other)
        codes = [name for name in _code_columns(other) if name not in called] if table.types[key] == STRING else []
        for column in (*called, *codes):
            known = pc.unique(pc.drop_null(other.data.sample[column]).cast(pa.string()))
            if not len(known):
                continue
            if values is None:
                values = pc.unique(table.texts(key))
            share = pc.mean(pc.is_in(known, values).cast(pa.int64())).as_py()
            if share >= (REFERRING if column in called else 1.0):
                references.append(KeyReference(other.name, column, share == 1.0))
    return references


def _called_after(table: str, key: str, other: UndeclaredTable) -> list[str]:
    """The columns of another table whose names say that they refer to a key."""
    lower = "_".join(words_of(key))
    names = {f"{own}_{lower}" for own in _own_names(table)} if lower in PLAIN_IDS else {lower}
    return [name for name in _key_columns(other) if "_".join(words_of(name)) in names]


def _code_columns(table: UndeclaredTable) -> list[str]:
    """Columns of texts with some different values, which may be those of a key whatever it is called."""
    texts = [name for name in _key_columns(table) if table.types[name] == STRING]
    return [name for name in texts if pc.count_distinct(table.data.sample[name]).as_py() >= LEAST_CODES]


# ----------------------------------------------------------------------------------------------- repeats
@dataclass(frozen=True)
class EventId:
    """A column that may identify events.

    ``rows`` have a value, ``repeats`` of them one of an earlier row. ``is_same``: whether rows with the same value are
    the same in all columns; None: they are too many to be compared.
    """

    column: str
    rows: int
    repeats: int
    is_same: bool | None


def event_id_of(table: UndeclaredTable, foreign: Iterable[str] = ()) -> EventId | None:
    """The column that most likely identifies the events of a table; None if there is none, or it is too long to be
    read. ``foreign``: columns that refer to other tables. Raises what reading raises."""
    for name in _key_columns(table):
        words = words_of(name)
        is_called_so = is_own_id(table.name, name) or (len(words) > 1 and words[-2] in EVENT_WORDS and is_id(name))
        if not is_called_so or name in foreign or not table.can_read(1):
            continue
        values = table.column(name)
        different = int(pc.count_distinct(values).as_py())
        if values.null_count or not len(values) or len(values) - different > MOST_REPEATS * len(values):
            continue
        if different == len(values):
            return EventId(name, len(values), 0, True)
        is_same = None
        if table.can_read(len(table.types)):
            rows = table.columns(list(table.types))
            is_same = len(rows.group_by(rows.column_names, use_threads=False).aggregate([])) == different
        return EventId(name, len(values), len(values) - different, is_same)
    return None
