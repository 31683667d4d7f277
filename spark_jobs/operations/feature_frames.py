"""Labels as Arrow, pandas, Polars or Spark has them, and the same with their features."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from spark_jobs.engine.choice import Engine, spark_workers
from spark_jobs.operations.feature_labels import FeatureRequest, LabelForm
from spark_jobs.operations.features import FOLDER, FeatureSet, feature_plan, features_of_table, write_part
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.publish_log import coded_error
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.features.labels import PART_ROWS, KeyColumns


def with_features(
    warehouse: Warehouse, request: FeatureRequest, labels: Any, engine: Engine
) -> tuple[Any, list[Diagnostic]]:
    """The labels with the columns of their features, of the type that they have, and warnings.

    ``labels``: a table, batch or reader of Arrow, or a DataFrame of pandas, Polars or Spark. Rows keep their order, and
    pandas its index. A DataFrame of Spark is computed by its session, and never collected. Raises TypeError for
    anything else, and as :func:`spark_jobs.operations.features.features_of_table`.
    """
    package = type(labels).__module__.partition(".")[0]
    if package == "pandas":
        return _with_features_of_pandas(warehouse, request, labels, engine)
    if package == "pyspark":
        return _with_features_of_spark(warehouse, request, labels)
    if package == "polars":
        return _with_features_of_polars(warehouse, request, labels, engine)
    if isinstance(labels, pa.RecordBatchReader):
        labels = labels.read_all()
    batch = isinstance(labels, pa.RecordBatch)
    table = pa.Table.from_batches([labels]) if batch else labels
    if not isinstance(table, pa.Table):
        known = "a table of Arrow, or a DataFrame of pandas, Polars or Spark"
        raise TypeError(f"labels are {known}, not {type(labels).__name__}")
    features, findings = features_of_table(warehouse, request, table, table.column_names, engine)
    table = _appended(table, features)
    return (table.combine_chunks().to_batches()[0] if batch and len(table) else table), findings


def _read_columns(warehouse: Warehouse, request: FeatureRequest, names: list[str]) -> list[str]:
    return LabelForm.of(request, feature_plan(warehouse, request).queries, names).read


def _with_features_of_pandas(
    warehouse: Warehouse, request: FeatureRequest, labels: Any, engine: Engine
) -> tuple[Any, list[Diagnostic]]:
    import pandas

    names = [str(name) for name in labels.columns]
    read = _read_columns(warehouse, request, names)
    try:
        table = pa.Table.from_pandas(labels[read], preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise HeddleError("HDL-641", f"a column of the labels has values of several types: {error}") from None
    features, findings = features_of_table(warehouse, request, table, names, engine)
    frame = features.to_pandas(types_mapper=_nullable(pandas))
    frame.index = labels.index
    return pandas.concat([labels, frame], axis=1), findings


def _nullable(pandas: Any) -> Any:
    """Types of pandas that have nulls without making integers doubles."""
    types = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
    return types.get


def _with_features_of_polars(
    warehouse: Warehouse, request: FeatureRequest, labels: Any, engine: Engine
) -> tuple[Any, list[Diagnostic]]:
    import polars

    if isinstance(labels, polars.LazyFrame):
        raise TypeError("labels are a DataFrame of Polars: collect the LazyFrame")
    read = _read_columns(warehouse, request, labels.columns)
    table = labels.select(read).to_arrow()
    features, findings = features_of_table(warehouse, request, table, labels.columns, engine)
    frame = polars.from_arrow(features)
    assert isinstance(frame, polars.DataFrame)
    return labels.hstack(frame), findings


# ------------------------------------------------------------------------------------------- Spark
def _with_features_of_spark(warehouse: Warehouse, request: FeatureRequest, labels: Any) -> tuple[Any, list[Diagnostic]]:
    """A DataFrame of the session of the labels, over files in the warehouse that `heddle maintain` removes later."""
    spark, name = labels.sparkSession, uuid.uuid4().hex
    planned = feature_plan(warehouse, request)
    form = LabelForm.of(request, planned.queries, labels.columns)
    place = warehouse.place / FOLDER / name
    train = place / "train"
    train.make_folder()
    engine = Engine("heddle", given=spark_workers(spark, f"features/{name}"))
    made = FeatureSet(warehouse, request, planned, form, engine, place)
    try:
        writing = _part_writing(place, form, made.key_columns)
        try:
            summaries = labels.mapInArrow(writing, "part binary").toArrow()
        except Exception as error:
            raise coded_error(error) from error
        for summary in summaries["part"].to_pylist():
            made.add_written(pickle.loads(summary))
        made.compute()
        made.write_checked(_attaching(place))
        if not made.parts:
            nothing = labels.limit(0).toArrow()
            _write_parquet(train / "none.parquet", _appended(nothing, pa.schema(made.fields).empty_table()))
    except BaseException:
        place.remove_folder()
        raise
    frame = spark.read.parquet(str(train))
    for field in labels.schema.fields:
        # what Parquet knows of nulls inside is no other type
        if frame.schema[field.name].dataType.simpleString() != field.dataType.simpleString():
            frame = frame.withColumn(field.name, frame[f"`{field.name}`"].cast(field.dataType))
    return frame, made.findings


def _part_writing(
    place: Place, form: LabelForm, key_columns: Sequence[KeyColumns]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a partition of labels that writes its rows as parts, and yields what they are."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        rows = first = 0
        for batch in chain(batches, (None,)):
            if batch is not None:
                waiting.append(batch)
                rows += batch.num_rows
            if rows and (batch is None or rows >= PART_ROWS):
                table = pa.Table.from_batches(waiting)
                part = write_part(place, form, key_columns, table.select(form.read), first)
                _write_parquet(_columns_file(place, part.name), table)
                yield pa.RecordBatch.from_pydict({"part": [pickle.dumps(part)]})
                waiting, rows, first = [], 0, first + rows

    return write


def _columns_file(place: Place, part: str) -> Place:
    return place / f"columns-{part}.parquet"


def _attaching(place: Place) -> Callable[[str, pa.Table], None]:
    """The function that writes a part of the labels with its features."""

    def attach(part: str, features: pa.Table) -> None:
        with _columns_file(place, part).open() as file:
            labels = pq.read_table(file)
        _write_parquet(place / "train" / f"{part}.parquet", _appended(labels, features))

    return attach


def _appended(labels: pa.Table, features: pa.Table) -> pa.Table:
    for field, column in zip(features.schema, features.columns, strict=True):
        labels = labels.append_column(field, column)
    return labels


def _write_parquet(file: Place, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    file.put(sink.getvalue().to_pybytes())
