"""Labels as Arrow, pandas, Polars or Spark has them, and the same with their features."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from spark_jobs.engine.choice import Engine
from spark_jobs.operations.feature_labels import FeatureRequest, LabelForm
from spark_jobs.operations.features import feature_plan, features_of_table
from spark_jobs.store.warehouse.warehouse import Warehouse


def with_features(
    warehouse: Warehouse, request: FeatureRequest, labels: Any, engine: Engine
) -> tuple[Any, list[Diagnostic]]:
    """The labels with the columns of their features, of the type that they have, and warnings.

    ``labels``: a table, batch or reader of Arrow, or a DataFrame of pandas or Polars. Rows keep their order, and pandas
    its index. Raises TypeError for anything else, and as :func:`spark_jobs.operations.features.features_of_table`.
    """
    package = type(labels).__module__.partition(".")[0]
    if package == "pandas":
        return _with_features_of_pandas(warehouse, request, labels, engine)
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
    for field, column in zip(features.schema, features.columns, strict=True):
        table = table.append_column(field, column)
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
