"""Keep the rows of each dimension that a run used last in a Delta table, for readers other than Heddle.

The file ``current`` next to the versions of a dimension is the truth, and the table follows it: it has one data file,
whose name begins with the id of its version. So one commit changes the version, a process that is cut off has either
made it or not, and the next run makes up for it. A version that the table has already is not written again.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from optimizer.errors.crashes import finding
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.workload.attributes import attributes_in
from optimizer.workload.values import Dimension, Type
from spark_jobs.store.storage import Draft, Place
from spark_jobs.store.warehouse.checksums import Checksums
from spark_jobs.store.warehouse.data_files import LOG, ROW_GROUP, log_place, now_millis, writing
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.warehouse import NOTE, Warehouse
from spark_jobs.streams.sources.dimension_rows import ALWAYS, VALID_FROM, VALID_TO, attribute_name
from spark_jobs.streams.sources.dimension_versions import CURRENT, ENDING, stored_dimension_names, versions_folder
from spark_jobs.streams.sources.expressions import arrow_type

FOLDER = "dimension_tables"
"""The folder of the warehouse that holds the tables."""

_CONFIGURATION = {"delta.checkpointInterval": "10"}


@dataclass(frozen=True)
class CurrentDimension:
    """A dimension with a table that other engines can read: its name, its key and the columns of the table."""

    name: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, Type], ...]


def table_of(name: str) -> str:
    """The table of a dimension, as the warehouse knows it."""
    return f"{FOLDER}/{name}"


def table_names(warehouse: Warehouse) -> list[str]:
    """The tables of dimensions that exist, as the warehouse knows them."""
    names = (table_of(name) for name in (warehouse.place / FOLDER).folders())
    return [name for name in names if _exists(warehouse, name)]


def _exists(warehouse: Warehouse, table: str) -> bool:
    # a process that was cut off may have left the folder of a log
    return (warehouse.place / table / LOG).exists() and DeltaTable.is_deltatable(log_place(warehouse.path(table)))


def planned_dimensions(warehouse: Warehouse) -> list[Dimension]:
    """The dimensions that the plan in force declares and a run has used, in the order of their names."""
    return _planned(warehouse, stored_dimension_names(warehouse))


def _planned(warehouse: Warehouse, names: Collection[str]) -> list[Dimension]:
    # plans are large: they are not read for nothing
    version = current_version(warehouse) if names else None
    declared = {} if version is None else _declared(load_plan(warehouse, version))
    return [declared[name] for name in sorted(declared) if name in names]


def _declared(plan: SharingPlan) -> dict[str, Dimension]:
    return {dimension.name: dimension for stream in plan.workload.streams for dimension in stream.dimensions}


def used_columns(plan: SharingPlan) -> dict[str, set[str]]:
    """The columns of each dimension that a plan's queries use, by its name."""
    used: dict[str, set[str]] = {}
    for stream in plan.workload.streams:
        columns = {column for query in plan.workload.queries_of(stream.name) for column in query.columns()}
        for attribute in attributes_in(stream, columns).values():
            used.setdefault(attribute.dimension, set()).update(filter(None, [attribute.column]))
    return used


def current_dimensions(warehouse: Warehouse) -> list[CurrentDimension]:
    """The dimensions of the plan in force that have a table, with the columns that it has now."""
    dimensions = []
    for dimension in _planned(warehouse, [table.rpartition("/")[2] for table in table_names(warehouse)]):
        names = {field.name for field in warehouse.table(table_of(dimension.name)).schema().fields}
        columns = tuple((name, type) for name, type in dimension.schema if name in names)
        dimensions.append(CurrentDimension(dimension.name, dimension.key, columns))
    return dimensions


def current_place(warehouse: Warehouse, name: str) -> Place | None:
    """The file with the version of a dimension that a run used last; None: no run has used it."""
    folder = versions_folder(warehouse, name)
    try:
        place = folder / f"{(folder / CURRENT).read().decode()}{ENDING}"
    except OSError:
        return None
    return place if place.exists() else None


def stored_columns(dimension: Dimension, place: Place) -> tuple[tuple[str, Type], ...]:
    """The columns of a dimension that a version has, with their types."""
    names = pq.read_schema(place.open()).names
    known = {column for column in dict(dimension.schema) if attribute_name(column) in names} | set(dimension.special)
    return tuple((column, type) for column, type in dimension.schema if column in known)


def validity_columns(dimension: Dimension) -> dict[str, str]:
    """The columns of a dimension with validities, each with the column of a version that has it as microseconds."""
    return dict(zip(dimension.special[len(dimension.key) :], (VALID_FROM, VALID_TO), strict=False))


# ------------------------------------------------------------------------------------------------- following
def make_missing(warehouse: Warehouse) -> None:
    """Make the tables of the dimensions that queries of the plan in force join and no run has used yet, without rows:
    views can be made over them as over answers that are not there yet.
    """
    version = current_version(warehouse)
    if version is None:
        return
    plan = load_plan(warehouse, version)
    declared = _declared(plan)
    for name, used in used_columns(plan).items():
        dimension = declared[name]
        columns = [(column, type) for column, type in dimension.schema if column in used | set(dimension.special)]
        if not _exists(warehouse, table_of(name)):
            with warehouse.lease() as token:
                _create(warehouse, dimension, columns, [], token)


def follow_current(warehouse: Warehouse, dimensions: Iterable[Dimension]) -> list[Diagnostic]:
    """Bring the tables of dimensions to the versions that runs used last, and return the problems. Raises nothing of
    the tables: answers are published whatever becomes of them.
    """
    problems = []
    for dimension in dimensions:
        table = table_of(dimension.name)
        try:
            _follow(warehouse, dimension, table)
        except Exception as error:
            expected = isinstance(error, HeddleError | DeltaError | OSError | pa.ArrowException)
            reason = str(error).partition("\n")[0] if expected else finding(error).message
            message = f"the table of dimension {dimension.name} was not written: {reason}"
            hint = f"the next run tries again; if it fails too, remove {warehouse.path(table)}: a run writes it again"
            problems.append(Diagnostic("HDL-563", message, hint))
    return problems


def _follow(warehouse: Warehouse, dimension: Dimension, table: str) -> None:
    place = current_place(warehouse, dimension.name)
    if place is None or held_version(warehouse, table) == _id(place):
        return
    columns = stored_columns(dimension, place)
    # rows are written before others have to wait for the lease
    file = _written(dimension, columns, place, warehouse.place / table)
    if not warehouse.leased(lambda token: _commit(warehouse, dimension, columns, file, token)):
        (warehouse.place / table / file.path).remove()


def held_version(warehouse: Warehouse, table: str) -> str | None:
    """The id of the version that a table has; None: there is no table, or its file is gone."""
    path = held_file(warehouse, table)
    return None if path is None else path.partition("-")[0]


def held_file(warehouse: Warehouse, table: str) -> str | None:
    """The data file of a table; None: there is no table, or the file is not as long as it was written."""
    if not _exists(warehouse, table):
        return None
    sizes: dict[str, int] = warehouse.table(table)._table.get_add_file_sizes()
    for path, size in sizes.items():
        info = (warehouse.place / table / path).info()
        if info is not None and info.size == size:
            return path
    return None


def discard(warehouse: Warehouse, table: str) -> None:
    """Remove the data file of a table: the next run makes it anew."""
    if (path := held_file(warehouse, table)) is not None:
        (warehouse.place / table / path).remove()


def _id(place: Place) -> str:
    return place.name.partition(".")[0]


def _commit(
    warehouse: Warehouse, dimension: Dimension, columns: Sequence[tuple[str, Type]], file: AddAction, token: int
) -> bool:
    """Let a table consist of a file, in one commit; False: a run has used another version meanwhile, and follows it."""
    table = table_of(dimension.name)
    place = current_place(warehouse, dimension.name)
    if place is None or _id(place) != file.path.partition("-")[0]:
        return False
    # maintenance with a short retention may have taken it for left over
    info = (warehouse.place / table / file.path).info()
    if info is None or info.size != file.size:
        raise OSError(f"{file.path} is not as long as it was written")
    if not _exists(warehouse, table):
        _create(warehouse, dimension, columns, [file], token)
        return True
    current = warehouse.table(table)
    warehouse.check_lease(token)
    with warehouse.exactly(table, current) as once:
        schema = Schema.from_arrow(_schema(columns))
        current.create_write_transaction([file], "overwrite", schema, commit_properties=once)
    return True


def _create(
    warehouse: Warehouse, dimension: Dimension, columns: Sequence[tuple[str, Type]], files: list[AddAction], token: int
) -> None:
    """Make the table of a dimension, with these files, in one commit."""
    table = table_of(dimension.name)
    # where delta-rs is given a link to it, it has to be there
    (warehouse.place / table / LOG).make_folder()
    warehouse.check_lease(token)
    create_table_with_add_actions(
        log_place(warehouse.path(table)),
        Schema.from_arrow(_schema(columns)),
        files,
        name=dimension.name,
        description=f"rows of the dimension {dimension.name} that a run of Heddle used last",
        configuration=_CONFIGURATION,
        commit_properties=CommitProperties({NOTE: warehouse.note} if warehouse.note else None, max_commit_retries=0),
    )


def _written(dimension: Dimension, columns: Sequence[tuple[str, Type]], version: Place, folder: Place) -> AddAction:
    """Write the rows of a version as a data file into a folder, where no reader sees it until a commit names it. No
    more than some row groups are in memory at once.
    """
    name, schema = f"{_id(version)}-{uuid.uuid4().hex}", _schema(columns)
    rows, nulls = 0, Counter[str]()
    with writing(folder):
        draft = Draft(folder, f"{name}.parquet")
        try:
            with pq.ParquetWriter(draft.file, schema, compression="zstd", write_page_checksum=True) as writer:
                for batch in _batches(dimension, schema, version):
                    rows += len(batch)
                    nulls.update({column: batch[column].null_count for column in schema.names})
                    writer.write_table(batch, row_group_size=ROW_GROUP)
            path = f"{name}-{Checksums.of_file(draft.file).suffix}.parquet"
            size = draft.put(path)
        except BaseException:
            draft.drop()
            raise
    # a column without a count of nulls is one without nulls to some readers
    counts = {column: nulls[column] for column in schema.names}
    return AddAction(path, size, {}, now_millis(), True, json.dumps({"numRecords": rows, "nullCount": counts}))


def _schema(columns: Sequence[tuple[str, Type]]) -> pa.Schema:
    return pa.schema([(name, arrow_type(type)) for name, type in columns])


def _batches(dimension: Dimension, schema: pa.Schema, version: Place) -> Iterator[pa.Table]:
    """The rows of a version under the names and in the types of the declared columns."""
    validity = validity_columns(dimension)
    stored = {name: name if name in dimension.key else attribute_name(name) for name in schema.names} | validity
    with pq.ParquetFile(version.open()) as file:
        for batch in file.iter_batches(ROW_GROUP, columns=list(stored.values())):
            columns = [
                _moments(batch[stored[field.name]], field.type)
                if field.name in validity
                else batch[stored[field.name]].cast(field.type)
                for field in schema
            ]
            yield pa.table(columns, schema=schema)


def _moments(stored: pa.Array, type: pa.DataType) -> pa.Array:
    """Bounds of validities, in microseconds, as values (n,); null where there is none."""
    micros = stored.to_numpy()
    instants = pa.array(micros, pa.int64(), mask=np.isin(micros, ALWAYS))
    if pa.types.is_date32(type):
        return pc.floor_temporal(instants.cast(pa.timestamp("us")), unit="day").cast(type)
    return instants.cast(type)
