"""Columns whose values are in the names of folders, and which folders a run has to list.

``partitions`` and a pattern in ``path`` declare them (:mod:`optimizer.workload.partitions`). A file's splits have the
texts of its folders (:attr:`spark_jobs.streams.sources.splits.Split.folders`). They become values of the declared types
here, by the rules that CSV has, whatever the format of the file.

A value of a file in a column that its folder has as well must be the folder's: Spark and DuckDB take the folder's
without a look at the file's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError, count
from optimizer.workload.partitions import PARTS, Misplaced, is_exact, margin_of, span_in, texts_in
from optimizer.workload.values import (
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Expression,
    Literal,
    Source,
    Stream,
    Type,
    columns_of,
)
from spark_jobs.streams.sources.expressions import arrow_type, evaluate
from spark_jobs.streams.sources.file_names import some
from spark_jobs.streams.sources.splits import Split
from spark_jobs.streams.sources.text_values import DECIMAL, INTEGER, converted_texts

DIGITS = 2
"""Digits of a number with a leading zero that is a part of a date or time, no code."""


# ------------------------------------------------------------------------------------------- names
def folders_in(name: str) -> tuple[str, ...]:
    """Return the folders of a file, by its name below the source."""
    return tuple(name.split("/")[:-1])


def _texts(stream: Stream, name: str) -> dict[str, str | None]:
    folders = folders_in(name)
    texts = texts_in(stream.source, folders)
    span_in(stream.source, folders)
    return texts


def folder_texts(stream: Stream, name: str) -> tuple[tuple[str, str | None], ...]:
    """Return the texts of the partitions of a file, by its ``name`` below the source. Raises HDL-485."""
    if not stream.source.partitions:
        return ()
    try:
        return tuple(_texts(stream, name).items())
    except Misplaced as error:
        raise _misplaced(stream, [name], str(error)) from None


def _misplaced(stream: Stream, names: Sequence[str], reason: str) -> HeddleError:
    files = f"{count(len(names), 'file')} of {stream.source.path}" if len(names) > 1 else stream.source.path
    hint = "move them, or correct `partitions`: every file needs a folder of each"
    return HeddleError("HDL-485", f"stream {stream.name}: {some(sorted(names))} in {files}: {reason}", hint)


def placed(stream: Stream, names: Sequence[str]) -> tuple[list[int], tuple[Diagnostic, ...]]:
    """Return the numbers of the files whose folders are as the stream declares them, and a warning about the others.

    A file outside a pattern of folders is not read. Raises HDL-485 for one that lacks a folder ``name=value``.
    """
    if not stream.source.partitions:
        return list(range(len(names))), ()
    reasons: dict[str, str | None] = {}
    for name in names:
        folder = name.rpartition("/")[0]
        if folder not in reasons:
            try:
                _texts(stream, name)
                reasons[folder] = None
            except Misplaced as misplaced:
                reasons[folder] = str(misplaced)
    good = [number for number, name in enumerate(names) if reasons[name.rpartition("/")[0]] is None]
    bad = [name for name in names if reasons[name.rpartition("/")[0]] is not None]
    if not bad:
        return good, ()
    problem = _misplaced(stream, bad, str(reasons[bad[0].rpartition("/")[0]]))
    if not stream.source.folders:
        raise problem
    hint = f"only files in {stream.source.folders} are read: move it, or correct `path`"
    return good, (Diagnostic("HDL-485", f"{problem.diagnostic.message}: not read", hint, severity="warning"),)


def split_folders(stream: Stream, paths: Sequence[str], names: Sequence[str]) -> Callable[[Split], Split]:
    """Return what gives a split of some files, with their names below the source, the texts of its folders."""
    if not stream.source.partitions:
        return lambda split: split
    by_path = dict(zip(paths, names, strict=True))
    known: dict[str, tuple[tuple[str, str | None], ...]] = {}

    def with_folders(split: Split) -> Split:
        name = by_path[split.path]
        folder = name.rpartition("/")[0]
        if folder not in known:
            known[folder] = folder_texts(stream, name)
        split = replace(split, folders=known[folder])
        return _timed(stream, split) if stream.time in dict(split.folders) else split

    return with_folders


def _timed(stream: Stream, split: Split) -> Split:
    """A split all of whose events have the time that its folder has."""
    at = value_of(stream, split, stream.time).value
    return split if at is None else replace(split, begin=at, end=at + 1)


# ------------------------------------------------------------------------------------------- listing
@dataclass(frozen=True)
class Wanted:
    """The folders that a run lists of a source with exact partitions.

    - ``span``: instants [begin, end) whose folders, with those next to them, are listed;
    - ``folders``: more folders, below the source: those of known files with events of the span, and all above these.
    """

    source: Source
    span: tuple[int, int]
    folders: frozenset[str] = frozenset()

    def has(self, folder: str) -> bool:
        """Return whether a folder below the source has to be listed."""
        if folder in self.folders:
            return True
        try:
            span = span_in(self.source, tuple(folder.split("/")), is_partial=True)
        except Misplaced:
            return True  # it is reported
        if span is None:
            return True
        begin, end = margin_of(span)
        return begin < self.span[1] and end > self.span[0]


def wanted(
    source: Source, span: tuple[int, int], names: Sequence[str], needed: NDArray[np.bool_]
) -> tuple[Wanted, NDArray[np.bool_]]:
    """Return the folders to list for a span [begin, end), and which of the known files (n,) are in none of them.

    ``names``: of the known files, below the source. ``needed``: whether each may have an event of the span.
    """
    folders = [name.rpartition("/")[0] for name in names]
    needed_folders: set[str] = set()
    for folder in {folders[number] for number in np.flatnonzero(needed).tolist()}:
        while folder and folder not in needed_folders:
            needed_folders.add(folder)
            folder = folder.rpartition("/")[0]
    chosen = Wanted(source, span, frozenset(needed_folders))
    listed = {folder: not folder or chosen.has(folder) for folder in dict.fromkeys(folders)}
    return chosen, np.array([not listed[folder] for folder in folders], dtype=bool)


def folder_span(stream: Stream, name: str) -> tuple[int, int] | None:
    """Return the span [begin, end) to which exact partitions limit a file, by its name; None: they do not."""
    if not is_exact(stream.source):
        return None
    try:
        return span_in(stream.source, folders_in(name))
    except Misplaced:
        return None


# ------------------------------------------------------------------------------------------- values
@lru_cache(maxsize=512)
def in_files(stream: Stream) -> Stream:
    """Return the stream without the columns that the names of folders have."""
    names = {partition.name for partition in stream.source.partitions}
    return replace(stream, schema=tuple(pair for pair in stream.schema if pair[0] not in names)) if names else stream


def value_of(stream: Stream, split: Split, name: str) -> pa.Scalar:
    """Return the value of a column that the folders of a split have. Raises HDL-404."""
    text, type = dict(split.folders)[name], stream.type_of(name)
    assert type is not None
    if text is None:
        return pa.scalar(None, arrow_type(type))
    return _value(stream, split.path, name, type, text)


def _value(stream: Stream, path: str, name: str, type: Type, text: str) -> pa.Scalar:
    try:
        return _typed(replace(stream.source, null=(), timestamp_format=None), name == stream.time, type, text)
    except pa.ArrowInvalid:
        folder = path.rpartition("/")[0]
        message = f"stream {stream.name}: column {name} of the folder {folder} does not fit its declared type {type}: "
        hint = "correct its type in `schema` or `partitions`, or the name of the folder; null is "
        raise HeddleError("HDL-404", f"{message}{text[:60]!r}", f"{hint}__HIVE_DEFAULT_PARTITION__") from None


@lru_cache(maxsize=4096)
def _typed(source: Source, is_time: bool, type: Type, text: str) -> pa.Scalar:
    if type != STRING and text != text.strip():
        raise pa.ArrowInvalid("spaces")
    value = converted_texts(source, is_time, type, pa.array([text], pa.string()))[0]
    if not value.is_valid:
        raise pa.ArrowInvalid("no value")
    return value


def column_of(stream: Stream, split: Split, name: str, rows: int, encoded: bool = False) -> pa.Array:
    """Return a column that the folders of a split have, in its declared type. ``encoded``: as a dictionary.

    Raises HDL-404.
    """
    value = value_of(stream, split, name)
    if encoded and value.is_valid and pa.types.is_string(value.type):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array([value]))
    return pa.repeat(value, rows)


def check_same(stream: Stream, split: Split, name: str, values: pa.Array, before: int) -> None:
    """Raise HDL-487 if a file has another value in a column than its folder; ``before``: rows before these."""
    value = value_of(stream, split, name)
    known = pc.is_valid(values)
    differs = known if not value.is_valid else pc.and_(known, pc.fill_null(pc.not_equal(values, value), False))
    if pa.types.is_floating(values.type) and value.is_valid and math.isnan(value.as_py()):
        differs = pc.and_(known, pc.invert(pc.fill_null(pc.is_nan(values), False)))
    at = pc.index(differs, True).as_py()
    if at >= 0:
        message = (
            f"stream {stream.name}: column {name} of {split.path} is {values[at].as_py()!r} in row {before + at + 1}, "
            f"its folder has {value.as_py()!r}"
        )
        hint = f"take {name} out of `partitions` to read the file's values, or correct the file"
        raise HeddleError("HDL-487", message, hint)


# ------------------------------------------------------------------------------------------- guessing
def guessed_type(name: str, texts: Iterable[str | None], is_pattern: bool = False) -> Type:
    """Return the type of the texts of a partition: long, double, date, timestamp or string, as in Spark.

    A number of more than two digits that begins with zero is a code, and a string.
    """
    known = pa.array(list(dict.fromkeys(text for text in texts if text is not None)), pa.string())
    if not len(known):
        return LONG if is_pattern and name in PARTS else STRING
    if _are(known, INTEGER):
        return STRING if _are_codes(known) or not _fits(known, LONG) else LONG
    if _are(known, DECIMAL):
        return DOUBLE if not _are_codes(known) and _fits(known, DOUBLE) else STRING
    for type, form in ((DATE, r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), (TIMESTAMP, r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+Z?")):
        if _are(known, form) and _fits(known, type):
            return type
    return STRING


def _are(texts: pa.Array, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, f"^({form})$")).as_py())


def _are_codes(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, rf"^[+-]?0[0-9]{{{DIGITS},}}")).as_py())


def _fits(texts: pa.Array, type: Type) -> bool:
    try:
        converted_texts(Source("csv", ""), False, type, texts)
    except pa.ArrowInvalid:
        return False
    return True


def partition_types(stream: Stream, names: Iterable[str]) -> list[tuple[str, Type]]:
    """Return the partitions of a stream without a schema, with their declared types, else those of their texts.

    ``names``: of its files, below the source. Raises HDL-485.
    """
    by_folder = {name.rpartition("/")[0]: name for name in names}
    texts = [dict(folder_texts(stream, name)) for name in by_folder.values()]
    return [
        (
            partition.name,
            partition.type
            or guessed_type(partition.name, (of.get(partition.name) for of in texts), bool(stream.source.folders)),
        )
        for partition in stream.source.partitions
    ]


# ------------------------------------------------------------------------------------------- pruning
def may_match(condition: Expression | None, stream: Stream, split: Split) -> bool:
    """Return whether an event of a split may satisfy a condition, by the names of its folders. Raises HDL-404."""
    names = dict(split.folders)
    if condition is None or not names:
        return True
    used = set(columns_of(condition)) & set(names)
    used = {name for name in used if stream.type_of(name) is not None}
    if not used:
        return True
    values = {name: pa.array([value_of(stream, split, name)]) for name in sorted(used)}
    row = pa.RecordBatch.from_arrays(list(values.values()), names=list(values))
    return _may_be_true(condition, row, {name: type for name, type in stream.schema if name in used})


def _may_be_true(condition: Expression, row: pa.RecordBatch, types: Mapping[str, Type]) -> bool:
    if isinstance(condition, Call) and condition.function == "and":
        return all(_may_be_true(argument, row, types) for argument in condition.arguments)
    if isinstance(condition, Call) and condition.function == "or":
        return any(_may_be_true(argument, row, types) for argument in condition.arguments)
    if isinstance(condition, Literal | Column | Call) and set(columns_of(condition)) <= set(types):
        value: Any = evaluate(condition, row, types)[0].as_py()
        return value is True
    return True
