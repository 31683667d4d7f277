"""Arrow columns as texts, and texts of group keys."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def key_texts(columns: Sequence[pa.StringArray], groups: int) -> pa.StringArray:
    """Groups' values (columns of texts) as JSON lists, null as null."""
    if not columns:
        return pa.array(["[]"] * groups, pa.string())
    written = pc.binary_join_element_wise(*map(_json_texts, columns), ",")
    return pc.binary_join_element_wise("[", written, "]", "")


def _json_texts(column: pa.StringArray) -> pa.StringArray:
    if pc.any(pc.match_substring_regex(column, r'["\\\x00-\x1f]'), min_count=0).as_py():
        texts = [json.dumps(value, ensure_ascii=False) for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    return pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), "null")


def as_texts(values: pa.Array) -> pa.StringArray:
    """Group values and decimals as texts that :func:`spark_jobs.results.rows.typed` reads back: timestamps as
    microseconds."""
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if pa.types.is_decimal(values.type) and values.type.scale > 6:
        # Arrow would write small ones as 1E-7
        plain = [None if value is None else format(value, "f") for value in values.to_pylist()]
        return pa.array(plain, pa.string())
    return values.cast(pa.string())


def flat(column: pa.Array) -> pa.Array:
    """A column without its dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
