"""A relation as a lazy frame of Polars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.errors.installing import check_installed
from optimizer.workload.values import Type
from spark_jobs.results.relations import Arrangement, Relation, Slot, relation
from spark_jobs.store.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    import polars as pl


def scan(warehouse: Warehouse, query: str) -> pl.LazyFrame:
    """A query's relation as a lazy frame: of the version of the results that is the newest now, only required files
    and columns are read, pages checked. ``.collect()`` gives a frame, ``.collect().to_pandas()`` one of pandas.
    Raises HDL-507 for a query that no plan has known, HDL-904 without Polars.
    """
    check_installed("polars")
    import polars as pl

    current = warehouse.table("results")
    known = relation(warehouse, query, current)
    rows = pl.scan_pyarrow_dataset(warehouse.checked_dataset("results", current)).filter(pl.col("query") == query)
    return pl.concat([_selected(known, arrangement, rows) for arrangement in known.arrangements])


def _selected(known: Relation, arrangement: Arrangement, rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows that are laid out so."""
    import polars as pl

    chosen = pl.col("fingerprint").is_in(arrangement.fingerprints)
    if arrangement.plan_versions:
        chosen |= pl.col("fingerprint").is_null() & pl.col("plan_version").is_in(arrangement.plan_versions)
    pairs = zip(known.columns, arrangement.slots, strict=True)
    return rows.filter(chosen).select(**{column.name: _value(slot, column.type) for column, slot in pairs})


def _value(slot: Slot | None, type: Type) -> pl.Expr:
    """The value of a row in a slot, as a column's type."""
    import polars as pl

    target = _polars_type(type)
    if slot is None:
        return pl.lit(None, target)
    stored = pl.col(slot.carrier)
    if slot.carrier == "key":
        return _of_text(stored.str.json_decode(pl.List(pl.String)).list.get(slot.index, null_on_oob=True), type)
    if slot.carrier in ("longs", "doubles", "texts"):
        stored = stored.list.get(slot.index, null_on_oob=True)
        if type.name == "boolean":
            return stored != 0
        if type.name == "binary":
            return stored.str.decode("base64")
        if type.name == "date":
            stored = stored.cast(pl.Int32)
    return stored.cast(target)


def _of_text(text: pl.Expr, type: Type) -> pl.Expr:
    import polars as pl

    if type.name == "boolean":
        return text == "true"
    if type.name == "date":
        return text.str.to_date("%Y-%m-%d")
    if type.name == "timestamp":
        text = text.cast(pl.Int64)
    return text.cast(_polars_type(type))


def _polars_type(type: Type) -> pl.DataType:
    import polars as pl

    if type.name == "decimal":
        return pl.Decimal(type.precision, type.scale)
    plain = {"boolean": pl.Boolean(), "long": pl.Int64(), "double": pl.Float64(), "string": pl.String()}
    plain |= {"binary": pl.Binary()}
    return (plain | {"date": pl.Date(), "timestamp": pl.Datetime("us", "UTC")})[type.name]
