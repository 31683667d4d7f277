"""Join a frame of events with dimensions, as a plain Spark job does: each dimension read by Spark's own reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F

from optimizer.workload.attribute_names import JoinedAttribute, inputs_of, read_key
from optimizer.workload.attributes import attributes_in
from optimizer.workload.computed_keys import key_expression
from optimizer.workload.values import TIMESTAMP, Dimension, Stream, Type
from spark_jobs.audit.unshared.columns import TypedColumns, ddl_of, quoted_column, to_column
from spark_jobs.audit.unshared.values import spark_name

_BEGIN, _END = "begin", "end"
"""What the validity of a row is called in front of a dimension's number; its columns have their names behind it."""


def joined_frame(
    frame: DataFrame, stream: Stream, names: Iterable[str], read: Callable[[Stream], DataFrame]
) -> DataFrame:
    """A frame of a stream's columns with the attributes among ``names`` as columns of their own.

    ``read`` reads a dimension as if it were a stream without a time. Events without a row have nulls.
    """
    attributes = attributes_in(stream, names)
    if not attributes:
        return frame
    numbers: dict[JoinedAttribute, int] = {}
    columns = frame.columns
    for name, attribute in attributes.items():
        dimension = stream.dimension(attribute.dimension)
        if attribute.row not in numbers:
            number = numbers[attribute.row] = len(numbers)
            frame = _joined(frame, stream, attribute, _rows(dimension, number, read))
        number, column = numbers[attribute.row], attribute.column
        value = quoted_column(_name(number, column or dimension.key[0]))
        frame = frame.withColumn(spark_name(name), value.isNotNull() if column is None else value)
    return frame.select(*(_plain(name) for name in (*columns, *map(spark_name, attributes))))


def _plain(name: str) -> SparkColumn:
    return F.col("`" + name.replace("`", "``") + "`")


def _name(number: int, column: str) -> str:
    return f"heddle {number} {column}"


def _typed(name: str, type_: Type | None) -> SparkColumn:
    assert type_ is not None
    return quoted_column(name).cast(ddl_of(type_))


def _rows(dimension: Dimension, number: int, read: Callable[[Stream], DataFrame]) -> tuple[DataFrame, Dimension, int]:
    """The rows of a dimension, its columns and validities under names that no other frame has."""
    frame = read(Stream(dimension.name, dimension.source, dimension.schema, ""))
    columns = [_typed(name, type_).alias(_name(number, name)) for name, type_ in dimension.schema]
    if dimension.valid_from is None:
        return frame.select(*columns), dimension, number
    begin = _typed(dimension.valid_from, TIMESTAMP)
    if dimension.valid_to is not None:
        end = _typed(dimension.valid_to, TIMESTAMP)
    else:
        keys = [quoted_column(name) for name in dimension.key]
        end = F.lead(begin).over(SparkWindow.partitionBy(*keys).orderBy(begin.asc_nulls_first()))
    validity = begin.alias(f"{_BEGIN} {number}"), end.alias(f"{_END} {number}")
    return frame.select(*columns, *validity), dimension, number


def _key(key: str, stream: Stream) -> SparkColumn:
    if read_key(key) is None:
        return _typed(key, stream.types[key])
    types = TypedColumns({name: stream.types[name] for name in inputs_of(key)})
    return to_column(key_expression(key), types)


def _joined(
    frame: DataFrame, stream: Stream, attribute: JoinedAttribute, rows: tuple[DataFrame, Dimension, int]
) -> DataFrame:
    others, dimension, number = rows
    conditions = [
        _key(name, stream) == quoted_column(_name(number, key))
        for name, key in zip(attribute.keys, dimension.key, strict=True)
    ]
    if dimension.valid_from is not None:
        time = quoted_column(stream.time)
        begin, end = quoted_column(f"{_BEGIN} {number}"), quoted_column(f"{_END} {number}")
        conditions += [begin.isNull() | (time >= begin), end.isNull() | (time < end)]
    return frame.join(others, reduce(lambda both, and_: both & and_, conditions), "left")
