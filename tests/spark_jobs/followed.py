"""What must be true of the tables of queries, as anybody reads them."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from deltalake import DeltaTable

from spark_jobs.results import own_table, tables
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse


def counted(rows: pa.Table, names: list[str]) -> Counter[str]:
    return Counter(str(list(row.values())) for row in rows.select(names).to_pylist())


def wrong(house: Warehouse) -> list[str]:
    """What differs between the tables of queries, as anybody reads them, and the published answers."""
    differences = []
    for request in tables.table_requests(house):
        if not (house.root / request.name).is_dir():
            continue
        rows = DeltaTable(house.path(request.name)).to_pyarrow_table()
        answers = read(house, request.query)
        names = [name for name in answers.schema.names if name != "error"]
        if missing := set(names) - set(rows.schema.names):
            differences.append(f"{request.name} lacks {missing}")
        elif counted(rows, names) != counted(answers, names):
            differences.append(f"{request.name}: {len(rows)} rows, {len(answers)} answers")
    return differences


def published(house: Warehouse, query: str, until: int) -> set[tuple[object, object]]:
    """The instants of a query with the revisions that they had in the versions of the results up to one."""
    revisions = set()
    for version in range(until + 1):
        results = DeltaTable(house.path("results"), version=version)
        rows = results.to_pyarrow_table(filters=[("query", "=", query)], columns=["instant", "revision"])
        revisions |= set(zip(*(rows[name].to_pylist() for name in rows.schema.names), strict=True))
    return revisions


def torn(house: Warehouse) -> list[str]:
    """Versions of tables that are not what the results were of their query in the version that they name."""
    torn_versions = []
    for name in own_table.folders(house):
        path = house.root / own_table.FOLDER / name
        newest = DeltaTable(str(path))
        query = own_table.query_of(newest)
        for version in range(newest.version() + 1):
            seen = DeltaTable(str(path), version=version)
            at = seen.transaction_version("results")
            rows = seen.to_pyarrow_table(columns=["instant", "revision", "day"])
            if at is None:
                torn_versions += [f"{path.name} {version}: {len(rows)} rows of nobody knows when"] * (len(rows) > 0)
                continue
            results = DeltaTable(house.path("results"), version=at)
            answers = results.to_pyarrow_table(filters=[("query", "=", query)], columns=rows.schema.names)
            # a row keeps the revision that changed it last, which may be of another interval with that instant
            known = published(house, query, at)
            strange = any((row["instant"], row["revision"]) not in known for row in rows.to_pylist())
            if strange or counted(rows, ["instant", "day"]) != counted(answers, ["instant", "day"]):
                torn_versions.append(f"{path.name} {version}: {len(rows)} rows, {len(answers)} answers then")
    return torn_versions
