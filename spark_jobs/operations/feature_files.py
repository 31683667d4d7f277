"""Files of labels, and files of the same labels with their features: Parquet or CSV, a part at a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from spark_jobs.engine.choice import Engine
from spark_jobs.operations.feature_labels import FeatureRequest, LabelForm
from spark_jobs.operations.features import FeatureSet, feature_folder, feature_plan
from spark_jobs.results.encoding import csv_table
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.windows.features.labels import PART_ROWS

ENDINGS = (".parquet", ".csv")


class FeatureFile(NamedTuple):
    """A file with features that was written: its ``rows``, how many ``features`` each has, how many labels were
    ``recomputed``, and warnings."""

    rows: int
    features: int
    recomputed: int
    findings: list[Diagnostic]


def form_of_file(path: Path) -> str:
    """The form of a file, by its name. Raises HDL-641."""
    if path.suffix.lower() not in ENDINGS:
        raise HeddleError("HDL-641", f"{path} is neither Parquet nor CSV by its name", f"end it {' or '.join(ENDINGS)}")
    return path.suffix.lower()


class LabelFile:
    """A file of labels. Of CSV the columns that are not read as moments or keys stay texts."""

    def __init__(self, path: Path) -> None:
        self.path, self._ending = path, form_of_file(path)
        self._types: dict[str, pa.DataType] = {}
        with self._reading():
            if self._ending == ".parquet":
                self.names = pq.read_schema(path).names
            else:
                with self._csv({}) as reader:
                    self.names = reader.schema.names

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowInvalid, pa.ArrowKeyError) as error:
            hint = "it is a file of Parquet, or CSV with a header in UTF-8"
            raise HeddleError("HDL-641", f"the labels {self.path} cannot be read: {error}", hint) from None

    def _csv(self, types: dict[str, pa.DataType], include: Sequence[str] | None = None) -> pacsv.CSVStreamingReader:
        block = pacsv.ReadOptions(block_size=1 << 24, use_threads=False)
        if not types:
            # the first block alone is looked at
            return pacsv.open_csv(self.path, block, pacsv.ParseOptions(newlines_in_values=True))
        convert = pacsv.ConvertOptions(
            column_types=types,
            include_columns=list(include or ()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return pacsv.open_csv(self.path, block, pacsv.ParseOptions(newlines_in_values=True), convert)

    def declare(self, form: LabelForm) -> None:
        """Read keys by the types of the group columns that they are."""
        self._types = {name: pa.string() for name in self.names}
        for group, name in form.columns.items():
            if form.types[group].name != "timestamp":
                self._types[name] = arrow_type(form.types[group])

    def parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of the labels, in parts. Raises HDL-641 for what cannot be read."""
        with self._reading():
            if self._ending == ".parquet":
                with pq.ParquetFile(self.path) as file:
                    for batch in file.iter_batches(PART_ROWS, columns=list(columns), use_threads=False):
                        # a nested column brings its fields
                        yield pa.Table.from_batches([batch]).select(list(columns))
                return
            with self._csv(self._types, columns) as reader:
                waiting: list[pa.RecordBatch] = []
                for batch in reader:
                    waiting.append(batch)
                    if sum(each.num_rows for each in waiting) >= PART_ROWS:
                        yield pa.Table.from_batches(waiting)
                        waiting = []
                if waiting:
                    yield pa.Table.from_batches(waiting)


def features_of_file(
    warehouse: Warehouse,
    request: FeatureRequest,
    labels: Path,
    output: Path,
    engine: Engine,
) -> FeatureFile:
    """Write the labels of a file with their features into another, which is there completely or not at all.

    Raises HDL-115 if it cannot be written, HDL-641 for files that cannot be used, and as
    :func:`spark_jobs.operations.features.features_of_table`.
    """
    form_of_file(output)
    planned, file = feature_plan(warehouse, request), LabelFile(labels)
    form = LabelForm.of(request, planned.queries, file.names)
    file.declare(form)
    with feature_folder(warehouse, engine) as place:
        made = FeatureSet(warehouse, request, planned, form, engine, place)
        for part in file.parts(form.read):
            made.add(part)
        made.compute()
        draft = output.with_name(f".{output.name}.{uuid.uuid4().hex}")
        try:
            with _Writer(draft, csv_table if form_of_file(output) == ".csv" else None) as writer:
                features = made.checked_parts()
                for part in file.parts(file.names):
                    if len(part):
                        writer.write(_with_columns(part, next(features, None), labels))
                if next(features, None) is not None:
                    raise _changed(labels)
                if not made.rows:
                    writer.write(_with_columns(_empty(file), pa.schema(made.fields).empty_table(), labels))
            draft.replace(output)
        except OSError as error:
            raise HeddleError("HDL-115", f"{output} cannot be written: {error.strerror}", "check --output") from None
        finally:
            draft.unlink(missing_ok=True)
    return FeatureFile(made.rows, len(made.fields), made.recomputed, made.findings)


def _empty(file: LabelFile) -> pa.Table:
    return next(file.parts(file.names), pa.table({name: pa.array([], pa.string()) for name in file.names})).slice(0, 0)


def _with_columns(labels: pa.Table, features: pa.Table | None, path: Path) -> pa.Table:
    if features is None or len(features) != len(labels):
        raise _changed(path)
    for field, column in zip(features.schema, features.columns, strict=True):
        labels = labels.append_column(field, column)
    return labels


def _changed(path: Path) -> HeddleError:
    return HeddleError("HDL-641", f"the labels {path} changed while their features were computed", "run it again")


class _Writer:
    """Writes tables of one schema into a file of Parquet or CSV."""

    def __init__(self, path: Path, in_csv: Callable[[pa.Table], pa.Table] | None) -> None:
        self.path, self._in_csv = path, in_csv
        self._writer: Any = None

    def __enter__(self) -> _Writer:
        self._file = self.path.open("wb")
        return self

    def write(self, table: pa.Table) -> None:
        """Write some rows."""
        table = table if self._in_csv is None else self._in_csv(table)
        if self._writer is None:
            self._writer = (pq.ParquetWriter if self._in_csv is None else pacsv.CSVWriter)(self._file, table.schema)
        self._writer.write_table(table)

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.close()
