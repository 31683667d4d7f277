"""Delta tables as delta-spark writes them: each is read as Spark reads it, or refused by a code."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import (
    ACQ,
    LONG,
    SECOND,
    STRING,
    TIMESTAMP,
    Column,
    Output,
    Source,
    Stream,
    Type,
    Window,
    Workload,
)
from spark_jobs.pipeline.run.interval import run
from spark_jobs.streams.sources.decoding import (
    _row_in_file,
    check_columns,
    discover_schema,
    missing_columns,
    read_split,
    times_of,
)
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.splits import FIRST, LAST, Split
from tests.chaos.world import CLOCK
from tests.sizes import examples
from tests.spark_jobs.case_runs import planned, published, stored, wrong
from tests.spark_jobs.laboratory import outdated
from tests.workloads import SCHEMA, Case, arrow_schema

EVENTS = "ts timestamp, v bigint, s string"
ROWS = "SELECT timestamp_micros(id * 1000001), id, concat('s', id) FROM range(0, 6, 1, 2)"
MORE = [f"INSERT INTO {{t}} VALUES (timestamp_micros({at}), {at}, 'more')" for at in range(5)]


def stream(path: Path, schema: tuple[tuple[str, Type], ...] = (), **options: Any) -> Stream:
    return Stream("events", Source("delta", str(path)), schema, "ts", **options)


def ours(source: Stream) -> pa.Table:
    """All rows of a table as a run reads them; the schema is discovered where none is declared."""
    if not source.schema:
        source, diagnostics = discover_schema(source)
        assert not diagnostics
    splits, names = splits_of(source), [name for name, _ in source.schema]
    check_columns(source, splits, names)
    batches = [batch for split in splits for batch in read_split(source, split, names)]
    return pa.Table.from_batches(batches).select(names)


def counted(rows: list[tuple[Any, ...]]) -> Counter[Any]:
    return Counter(tuple("NaN" if isinstance(x, float) and math.isnan(x) else x for x in row) for row in rows)


def rows_of(table: pa.Table) -> Counter[Any]:
    """Rows of a table with moments as microseconds and dates as days: Python's own end with the year 9999."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        elif pa.types.is_date(column.type):
            column = column.cast(pa.int32())
        columns.append(column.to_pylist())
    return counted(list(zip(*columns, strict=True)))


def spark_rows(spark: Any, path: Path, names: list[str]) -> Counter[Any]:
    frame = spark.read.format("delta").load(str(path))
    shown = []
    for name in names:
        kind = dict(frame.dtypes)[name]
        cast = {"timestamp": "unix_micros({})", "timestamp_ntz": "unix_micros(cast({} as timestamp))"}
        cast |= {"date": "unix_date({})", "float": "cast({} as double)"}
        shown.append(cast.get(kind, "{}").format(f"`{name}`"))
    return counted([tuple(row) for row in frame.selectExpr(*shown).collect()])


Make = Callable[..., Path]


@pytest.fixture
def make(spark: Any, tmp_path: Path) -> Make:
    """Creates a table and plays statements on it ({t}: the table, {p}: its path)."""

    def create_table(
        *statements: str, columns: str = EVENTS, rows: str = ROWS, how: str = "", name: str = "table"
    ) -> Path:
        path = tmp_path / name
        first = [f"CREATE TABLE {{t}} ({columns}) USING delta {how}", *([f"INSERT INTO {{t}} {rows}"] if rows else [])]
        for statement in (*first, *statements):
            spark.sql(statement.format(t=f"delta.`{path}`", p=path))
        return path

    return create_table


def properties(**given: str) -> str:
    return "TBLPROPERTIES (" + ", ".join(f"'delta.{name.replace('_', '.')}' = '{given[name]}'" for name in given) + ")"


def check(spark: Any, path: Path) -> pa.Table:
    table = ours(stream(path))
    assert len(table) and rows_of(table) == spark_rows(spark, path, table.column_names)
    return table


HARMLESS = {
    "row tracking": {"how": properties(enableRowTracking="true")},
    "change data feed": {"how": properties(enableChangeDataFeed="true"), "then": ["UPDATE {t} SET v = 7 WHERE v < 3"]},
    "commit timestamps": {"how": properties(enableInCommitTimestamps="true")},
    "vacuum check": {"how": properties(feature_vacuumProtocolCheck="supported")},
    "defaults": {
        "columns": "ts timestamp, v bigint DEFAULT 7, s string",
        "how": properties(feature_allowColumnDefaults="supported"),
        "then": ["INSERT INTO {t} (ts) VALUES (timestamp_micros(9))"],
    },
    "clustering": {"how": "CLUSTER BY (v)"},
    "identity": {
        "columns": "ts timestamp, v bigint GENERATED ALWAYS AS IDENTITY",
        "rows": "(ts) SELECT timestamp_micros(id) FROM range(5)",
    },
    "generated": {
        "columns": "ts timestamp, v bigint, day date GENERATED ALWAYS AS (cast(ts as date))",
        "rows": "(ts, v) VALUES (timestamp_micros(9), 9)",
        "how": "PARTITIONED BY (day)",
    },
    "not null and checks": {
        "columns": "ts timestamp NOT NULL, v bigint, s string",
        "then": ["ALTER TABLE {t} ADD CONSTRAINT low CHECK (v < 100)"],
    },
    "no mapping any more": {
        "how": properties(columnMapping_mode="name"),
        "then": ["ALTER TABLE {t} DROP FEATURE columnMapping"],
    },
    "deletion vectors enabled": {"how": properties(enableDeletionVectors="true")},
    "deletion vectors purged": {
        "how": properties(enableDeletionVectors="true"),
        "then": [
            "DELETE FROM {t} WHERE v = 3",
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
            "REORG TABLE {t} APPLY (PURGE)",
        ],
    },
    "classic checkpoints": {"how": properties(checkpointInterval="2"), "then": MORE},
    "checkpoints of structs": {
        "how": properties(
            checkpointInterval="2", checkpoint_writeStatsAsStruct="true", checkpoint_writeStatsAsJson="false"
        ),
        "then": MORE,
    },
    "columns in another case": {
        "columns": "ts timestamp, V bigint, s string",
        "then": ["INSERT INTO {t} SELECT ts AS TS, v AS v, s AS S FROM {t}"],
    },
    "overwritten": {"then": ["INSERT OVERWRITE {t} VALUES (timestamp_micros(1), 1, 'new')"]},
    "optimized": {"then": [*MORE, "OPTIMIZE {t}", "OPTIMIZE {t} ZORDER BY (v)"]},
}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", HARMLESS)
def test_features_that_change_nothing_for_a_reader(spark: Any, make: Make, name: str) -> None:
    case: dict[str, Any] = dict(HARMLESS[name])
    check(spark, make(*case.pop("then", ()), **case))


@pytest.mark.longer
@pytest.mark.spark
def test_features_together_that_change_nothing_for_a_reader(spark: Any, make: Make) -> None:
    how = properties(
        enableRowTracking="true",
        enableChangeDataFeed="true",
        enableInCommitTimestamps="true",
        feature_vacuumProtocolCheck="supported",
        feature_allowColumnDefaults="supported",
        checkpointInterval="2",
    )
    columns = "ts timestamp NOT NULL, v bigint DEFAULT 7, s string, double_v bigint GENERATED ALWAYS AS (v * 2)"
    more = ["INSERT INTO {t} (ts, s) VALUES (timestamp_micros(9), 'x')"] * 2
    check(spark, make(*more, columns=columns, rows=f"(ts, v, s) {ROWS}", how="CLUSTER BY (v) " + how))


# ------------------------------------------------------------------ other names, and rows that are gone
DELETES = ["DELETE FROM {t} WHERE v = 3", "DELETE FROM {t} WHERE v IN (0, 5)", "UPDATE {t} SET s = 'x' WHERE v = 4"]
UNDERSTOOD = {
    "mapping by name": {"how": properties(columnMapping_mode="name")},
    "mapping by id": {"how": properties(columnMapping_mode="id")},
    "columns that changed their names": {
        "then": [
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
            "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')",
            "ALTER TABLE {t} DROP COLUMN v",
            "ALTER TABLE {t} RENAME COLUMN s TO v",
            "ALTER TABLE {t} ADD COLUMN s bigint",
            "INSERT INTO {t} VALUES (timestamp_micros(9), 'now a text', 9)",
        ]
    },
    "a partition and the time that changed their names": {
        "how": "PARTITIONED BY (s) " + properties(columnMapping_mode="name"),
        "then": [
            "ALTER TABLE {t} RENAME COLUMN s TO part",
            "ALTER TABLE {t} RENAME COLUMN ts TO old",
            "ALTER TABLE {t} RENAME COLUMN v TO s",
            "ALTER TABLE {t} RENAME COLUMN old TO ts",
        ],
    },
    "deletion vectors": {"how": properties(enableDeletionVectors="true"), "then": DELETES},
    "deletion vectors and mapping": {
        "how": "PARTITIONED BY (s) " + properties(columnMapping_mode="name", enableDeletionVectors="true"),
        "then": [*DELETES, "ALTER TABLE {t} RENAME COLUMN v TO w", "DELETE FROM {t} WHERE w = 1"],
    },
    "deletion vectors and checkpoints": {
        "how": properties(enableDeletionVectors="true", checkpointInterval="2", checkpointPolicy="v2"),
        "then": [*DELETES, *MORE],
    },
    "deletion vectors of many row groups": {
        "rows": "SELECT timestamp_micros(id), id, concat('s', id) FROM range(0, 250000, 1, 1)",
        "how": properties(enableDeletionVectors="true"),
        "then": ["DELETE FROM {t} WHERE v % 7 = 0 AND v > 90000", "DELETE FROM {t} WHERE v < 5"],
    },
    "iceberg": {"how": properties(columnMapping_mode="name", enableIcebergCompatV2="true")},
}


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "deletion vectors and mapping" else pytest.mark.longer)
        for name in UNDERSTOOD
    ],
)
def test_other_names_and_rows_that_are_gone(spark: Any, make: Make, name: str) -> None:
    case: dict[str, Any] = dict(UNDERSTOOD[name])
    check(spark, make(*case.pop("then", ()), **case))


NESTED = (
    "ts timestamp, n struct<x: bigint, y: struct<z: string, w: double>>, m map<string, struct<k: bigint>>, "
    "l array<bigint>"
)


@pytest.mark.longer
@pytest.mark.spark
def test_fields_of_structs_and_maps_that_changed_their_names(spark: Any, make: Make) -> None:
    path = make(
        "ALTER TABLE {t} RENAME COLUMN n TO m2",
        "ALTER TABLE {t} RENAME COLUMN m2.y.z TO w2",
        "ALTER TABLE {t} DROP COLUMN m2.x",
        "ALTER TABLE {t} RENAME COLUMN m.value.k TO q",
        "INSERT INTO {t} "
        "SELECT timestamp_micros(9), named_struct('y', named_struct('w2', 'b', 'w', 2.5D)), null, array(3)",
        "DELETE FROM {t} WHERE l[0] = 2",
        columns=NESTED,
        rows="SELECT timestamp_micros(id), named_struct('x', id, 'y', named_struct('z', 'a', 'w', 0.5D)), "
        "map('a', named_struct('k', id)), array(id) FROM range(0, 4, 1, 1)",
        how=properties(columnMapping_mode="name", enableDeletionVectors="true"),
    )
    source, diagnostics = discover_schema(stream(path))
    assert not diagnostics
    names = ["ts", "m2.y.w2", "m2.y.w", "m['a'].q", "l[0]"]
    batches = [batch for split in splits_of(source) for batch in read_split(source, split, names)]
    table = pa.Table.from_batches(batches).select(names)
    expected = spark.read.format("delta").load(str(path))
    shown = expected.selectExpr("unix_micros(ts)", "m2.y.w2", "m2.y.w", "m['a'].q", "l[0]").collect()
    assert rows_of(table) == counted([tuple(row) for row in shown]) and len(table) == 4


@given(st.lists(st.booleans(), max_size=30))
def test_rows_are_told_as_the_file_counts_them(gone: list[bool]) -> None:
    split = Split("a", "a", deleted=np.flatnonzero(gone))
    remaining_rows = [row for row in range(40) if row >= len(gone) or not gone[row]]
    assert [_row_in_file(split, number) for number in range(len(remaining_rows))] == remaining_rows


CHANGES = [
    "INSERT INTO {t} SELECT timestamp_micros(id * 3 + {at}), id, concat('n', id) FROM range(0, 5, 1, 1)",
    "DELETE FROM {t} WHERE {v} % 3 = 1",
    "DELETE FROM {t} WHERE {v} = {at}",
    "UPDATE {t} SET {s} = 'updated' WHERE {v} % 4 = 2",
    "MERGE INTO {t} USING (SELECT 2 AS k) AS o ON {v} = o.k WHEN MATCHED THEN DELETE",
    "rename",
    "ALTER TABLE {t} ADD COLUMN more{at} bigint",
    "OPTIMIZE {t}",
    "ALTER TABLE {t} ALTER COLUMN {v} TYPE bigint",
]


@pytest.mark.longer
@pytest.mark.spark
@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(
    st.sampled_from(("name", "id", "none")),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(CHANGES), min_size=1, max_size=7),
)
def test_histories_of_tables(
    spark: Any, tmp_path_factory: Any, mode: str, parts: bool, vectors: bool, changes: list[str]
) -> None:
    """Whatever was done to a table, it is read as Spark reads it, and the identities of its files change where their
    rows or names do. ``vectors``: it has deletion vectors, else types that may be widened (not read of one table)."""
    path = tmp_path_factory.mktemp("history") / "table"
    table, names = f"delta.`{path}`", {"v": "v", "s": "s"}
    feature = {"enableDeletionVectors" if vectors else "enableTypeWidening": "true"}
    clause = properties(columnMapping_mode=mode, checkpointInterval="3", **feature)
    spark.sql(
        f"CREATE TABLE {table} (ts timestamp, v int, s string) USING delta {'PARTITIONED BY (s)' * parts} {clause}"
    )
    spark.sql(f"INSERT INTO {table} SELECT timestamp_micros(id), id, concat('s', id % 2) FROM range(0, 9, 1, 1)")
    added, before = 0, None
    for at, change in enumerate(changes):
        if (change == "rename" and mode == "none") or (change.endswith("TYPE bigint") and vectors):
            continue
        if change == "rename":
            new = f"{'v' if at % 2 else 's'}{at}"
            spark.sql(f"ALTER TABLE {table} RENAME COLUMN {names[new[0]]} TO {new}")
            names[new[0]] = new
        elif change.startswith("INSERT"):
            rows = change.format(t=table, at=at).replace(" FROM range", f"{', 7' * added} FROM range")
            spark.sql(rows)
        else:
            spark.sql(change.format(t=table, at=at, **names))
            added += change.startswith("ALTER TABLE {t} ADD")
        source = stream(path)
        splits = splits_of(source)
        our_table = ours(source) if splits else None
        rows = spark_rows(spark, path, our_table.column_names if our_table is not None else ["ts"])
        assert (rows_of(our_table) if our_table is not None else Counter()) == rows
        assert sum(split.rows or 0 for split in splits) == rows.total()
        content = sorted(map(str, rows.elements())), our_table.column_names if our_table is not None else None
        marks = {split.identity for split in splits_of(replace(source, schema=(("ts", TIMESTAMP), ("v", LONG))))}
        if before is not None and content != before[0] and content[1] == before[0][1]:
            assert marks != before[1]
        before = content, marks


@pytest.mark.spark
def test_rows_that_are_deleted_later_are_taken_out_of_the_answers(spark: Any, tmp_path: Path) -> None:
    """A deletion vector is late data: the windows of the rows that it names are answered again, and no others."""
    case = delta_case(tmp_path)
    house, version = planned(case, tmp_path / "warehouse", "weave-share")
    spans = [(case.begin, case.end)]
    for begin, end in spans:
        run(spark, house, version, begin, end, f"first {begin}")
    assert wrong(case, published(case, house)) == []
    table = f"delta.`{case.stream.source.path}`"
    spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', "
        "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '3', 'delta.minWriterVersion' = '7')"
    )
    assert outdated(house, CLOCK) == []
    spark.sql(f"DELETE FROM {table} WHERE volume = 3")
    assert list((Path(case.stream.source.path)).glob("**/deletion_vector*.bin"))
    (late,) = outdated(house, CLOCK)
    record = run(spark, house, version, late.begin, late.end, "after")
    assert record.status == "published" and record.narrow
    remaining = case.events.filter(pc.fill_null(pc.not_equal(case.events["volume"], 3), True))
    assert (
        len(remaining) == len(case.events) - 1 and wrong(replace(case, events=remaining), published(case, house)) == []
    )
    # a column that gets another's name is another column, though no file has changed
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN volume TO old")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN code TO volume")
    swapped = remaining.set_column(remaining.schema.names.index("volume"), "volume", remaining["code"].cast(pa.int64()))
    (late,) = outdated(house, CLOCK)
    run(spark, house, version, late.begin, late.end, "renamed")
    assert wrong(replace(case, events=swapped), published(case, house)) == []


def delta_case(folder: Path) -> Case:
    """A minute's sums over five minutes, a file of ten events with one of volume 3."""
    minute = 60 * SECOND
    rows: dict[str, list[Any]] = {name: [None] * 10 for name, _ in SCHEMA}
    rows |= {
        "ts": [at * minute // 2 for at in range(10)],
        "volume": list(range(10)),
        "code": [7 * at for at in range(10)],
    }
    events = pa.table(rows, schema=arrow_schema())
    total = Output("total", "sum", Column("volume"), LONG, LONG)
    query = ACQ("sums", "events", Window(minute, minute), (total,))
    columns = (("ts", TIMESTAMP), ("volume", LONG))
    source = Stream("events", Source("delta", "events"), columns, "ts")
    return stored(Case(Workload((query,), (source,)), events, 0, 5 * minute), folder / "source", "delta")


# ------------------------------------------------------------------------------- refused by their names
@pytest.mark.longer
@pytest.mark.spark
def test_what_is_not_read_is_refused_by_its_name(make: Make) -> None:
    path = make(columns="ts timestamp, j variant", rows="SELECT timestamp_micros(9), parse_json('[1]')")
    for schema in ((), (("ts", TIMESTAMP), ("v", STRING))):
        with pytest.raises(HeddleError, match="HDL-405 .*uses .*variantType") as raised:
            ours(stream(path, schema))
        assert raised.value.diagnostic.hint


@pytest.mark.longer
@pytest.mark.spark
def test_deletion_vectors_beside_widened_types_are_refused(make: Make) -> None:
    path = make("DELETE FROM {t} WHERE v = 3", how=properties(enableDeletionVectors="true", enableTypeWidening="true"))
    with pytest.raises(HeddleError, match="HDL-405 .*deletionVectors") as raised:
        ours(stream(path))
    assert "DROP FEATURE typeWidening" in str(raised.value.diagnostic.hint)


def test_column_mapping_of_the_classical_protocol_is_noticed(tmp_path: Path) -> None:
    """As Spark writes it: reader version 2, no list of features. The names of v and w are those of the other's file."""
    write_deltalake(tmp_path, pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC")), "v": [1], "w": [2]}))
    log = tmp_path / "_delta_log" / f"{0:020}.json"

    def mapped(mode: str) -> None:
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "protocol" in action:
                action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
            if "metaData" in action:
                schema = json.loads(action["metaData"]["schemaString"])
                physical = dict(zip(("ts", "v", "w"), ("ts", "w", "v"), strict=True))
                for number, field in enumerate(schema["fields"]):
                    mapping = {"id": number, "physicalName": physical[field["name"]]}
                    field["metadata"] = {f"delta.columnMapping.{name}": value for name, value in mapping.items()}
                action["metaData"]["schemaString"] = json.dumps(schema)
                action["metaData"]["configuration"] = {"delta.columnMapping.mode": mode}
        log.write_text("\n".join(map(json.dumps, actions)))

    mapped("name")
    table = ours(stream(tmp_path, (("ts", TIMESTAMP), ("v", LONG), ("w", LONG))))
    assert table.drop_columns("ts").to_pylist() == [{"v": 2, "w": 1}]
    mapped("charm")
    with pytest.raises(HeddleError, match="HDL-405 .*"):
        ours(stream(tmp_path, (("ts", TIMESTAMP), ("v", LONG))))


def test_a_feature_that_nobody_knows_is_refused_by_its_name(tmp_path: Path) -> None:
    events = pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path, events)
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x-new"], "writerFeatures": ["x-new"]}
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    actions = [{"protocol": protocol} if "protocol" in action else action for action in actions]
    log.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(HeddleError, match="HDL-405 .*x-new"):
        splits_of(stream(tmp_path, (("ts", TIMESTAMP),)))


# --------------------------------------------------------------------------- types, partitions, columns
@pytest.mark.spark
def test_widened_types_are_read_as_spark_reads_them(spark: Any, make: Make) -> None:
    path = make(
        *(f"ALTER TABLE {{t}} ALTER COLUMN {change}" for change in ("a TYPE bigint", "f TYPE double", "b TYPE double")),
        "ALTER TABLE {t} ALTER COLUMN d TYPE decimal(12, 4)",
        "ALTER TABLE {t} ALTER COLUMN c TYPE decimal(12, 1)",
        "INSERT INTO {t} VALUES (timestamp_micros(1), 5000000000, 0.1, 12345.6789, 1.5, 3.5)",
        columns="ts timestamp, a int, f float, d decimal(6, 2), b short, c byte",
        rows="VALUES (timestamp_micros(0), 5, cast(0.1 as float), 12.34, cast(7 as short), cast(-1 as byte))",
        how=properties(enableTypeWidening="true"),
    )
    assert len(check(spark, path)) == 2


@pytest.mark.spark
def test_timestamps_without_a_zone_are_utc(spark: Any, make: Make) -> None:
    path = make(
        columns="ts timestamp_ntz, v bigint, s string",
        rows="SELECT timestamp_ntz'2020-01-01 00:00:00.123456', 1, 's'",
    )
    assert len(check(spark, path)) == 1


AWKWARD = ["a b", "a%20b", "a/b", "ä", "=", "x=y", "a%2Fb", "#", "?", ":", "..", "a\\\\b", "  ", "\\n", "+", "%", "%zz"]
AWKWARD += ["__HIVE_DEFAULT_PARTITION__", '"', "", "1", "true", "2020-01-01", "null"]


@pytest.mark.spark
@pytest.mark.parametrize("checkpoint", [pytest.param(False, marks=pytest.mark.slow), True])
def test_awkward_partition_values(spark: Any, make: Make, checkpoint: bool) -> None:
    values = ", ".join(f"'{value}'" for value in [*AWKWARD, "it\\'s"])
    path = make(
        rows=f"SELECT timestamp_micros(p), p, v FROM (SELECT posexplode(array({values}, null)) AS (p, v))",
        how="PARTITIONED BY (s) " + properties(checkpointInterval="1" if checkpoint else "100"),
    )
    table = check(spark, path)
    assert len(table) == len(AWKWARD) + 2
    declared = stream(path, (("ts", TIMESTAMP), ("S", STRING)))  # whatever the case
    assert rows_of(ours(declared)) == spark_rows(spark, path, ["ts", "s"])


def test_awkward_partition_values_of_another_writer(tmp_path: Path) -> None:
    values = [*(value for value in AWKWARD if value not in ("", "__HIVE_DEFAULT_PARTITION__")), None]
    times = pa.array(range(len(values)), pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path, pa.table({"ts": times, "s": pa.array(values, pa.string())}), partition_by=["s"])
    expected = Counter(zip(range(len(values)), values, strict=True))
    assert rows_of(ours(stream(tmp_path))) == expected
    DeltaTable(tmp_path).create_checkpoint()
    assert rows_of(ours(stream(tmp_path, (("ts", TIMESTAMP), ("S", STRING))))) == expected


@pytest.mark.spark
def test_partitions_of_every_type(spark: Any, make: Make) -> None:
    rows = [
        "true, date'2020-02-29', 1.25, 0.1, timestamp'2020-01-01 00:00:00.123456', 5, 3000000000, float(0.1)",
        "false, date'1969-12-31', -1.00, double('NaN'), timestamp'1969-12-31 23:59:59', -5, -1, float('inf')",
        "true, date'0001-01-01', 99.99, double('-Infinity'), timestamp'9999-12-31 00:00:00', 127, 0, null",
        "null, null, null, null, null, null, null, null",
    ]
    path = make(
        columns="ts timestamp, b boolean, d date, c decimal(4, 2), f double, t timestamp, i tinyint, l bigint, g float",
        rows="VALUES " + ", ".join(f"(timestamp_micros({at}), {row})" for at, row in enumerate(rows)),
        how="PARTITIONED BY (b, d, c, f, t, i, l, g)",
    )
    table = check(spark, path)
    kinds = ["timestamp[us, tz=UTC]", "bool", "date32[day]", "decimal128(4, 2)", "double", "timestamp[us, tz=UTC]"]
    assert [str(kind) for kind in table.schema.types] == [*kinds, "int64", "int64", "double"]
    source, _ = discover_schema(stream(path))
    assert [str(type) for _, type in source.schema][6:8] == ["byte", "long"]
    declared = stream(path, (("ts", TIMESTAMP), ("d", STRING)))
    with pytest.raises(HeddleError, match="HDL-404 .*column d .*declared string"):
        ours(declared)


@pytest.mark.spark
def test_a_column_that_was_added_later_is_null_in_older_files(spark: Any, make: Make) -> None:
    path = make(
        "ALTER TABLE {t} ADD COLUMNS (w double, day date)",
        "INSERT INTO {t} VALUES (timestamp_micros(9), 9, 'x', 1.5, date'2020-01-01')",
        "ALTER TABLE {t} ADD COLUMNS (never string)",
    )
    table = check(spark, path)
    assert [table[name].null_count for name in ("w", "day", "never")] == [6, 6, 7]
    declared = stream(path, (("ts", TIMESTAMP), ("never", STRING), ("gone", LONG)))
    assert missing_columns(declared, splits_of(declared), ["never", "gone"]) == ["gone"]
    with pytest.raises(HeddleError, match="HDL-403 .*no column gone"):
        ours(declared)


def test_what_only_a_file_has_is_no_column_of_the_table(tmp_path: Path) -> None:
    """As in a table that was made of a folder of Parquet files by the schema of one of them."""
    events = pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC")), "v": [1]})
    write_deltalake(tmp_path, events)
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('\\"name\\":\\"v\\"', '\\"name\\":\\"w\\"'))
    declared = stream(tmp_path, (("ts", TIMESTAMP), ("v", LONG), ("w", LONG)))
    splits = splits_of(declared)
    assert missing_columns(declared, splits, ["v", "w"]) == ["v"]
    (batch,) = read_split(declared, splits[0], ["v", "w"])
    assert batch.to_pylist()[0] | {"ts": 0} == {"ts": 0, "v": None, "w": None}


@pytest.mark.spark
def test_times_beyond_the_years_1_to_9999_are_set_apart(spark: Any, make: Make) -> None:
    path = make(
        *(
            f"INSERT INTO {{t}} VALUES (timestamp_micros({used}), {at}, 'x'), (timestamp_micros({beyond}), {at}, 'y')"
            for at, used, beyond in ((7, FIRST, LAST), (8, LAST - 1, FIRST - 1))
        )
    )
    source, _ = discover_schema(stream(path))
    splits = splits_of(source)
    # two files say nothing of their times: they are read by every run, which counts what has none
    assert [split.begin for split in splits].count(None) == 2
    read = [times_of(batch, source) for split in splits for batch in read_split(source, split, ["v"])]
    assert sum(missing for _, _, missing in read) == 2
    counts = Counter(zip(*([x for timed in read for x in values(timed)] for values in (_times, _volumes)), strict=True))
    known = {at: number for (at, number), many in spark_rows(spark, path, ["ts", "v"]).items() if many}
    assert counts == Counter({(at, v): 1 for at, v in known.items() if FIRST <= at < LAST})


def _times(read: Any) -> list[int]:
    return list(read[0].tolist())


def _volumes(read: Any) -> list[int]:
    return list(read[1]["v"].to_pylist())


# ------------------------------------------------------------------------------------------------- logs
@pytest.mark.longer
@pytest.mark.spark
def test_logs_that_were_cut_off_after_a_checkpoint_and_logs_with_gaps(spark: Any, make: Make, tmp_path: Path) -> None:
    path = make(*MORE, how=properties(checkpointInterval="3"))
    log = path / "_delta_log"

    def without(*versions: int, checkpoints: bool = True) -> Path:
        cut = tmp_path / "-".join(map(str, (*versions, checkpoints)))
        shutil.copytree(path, cut)
        for name in [f"{version:020}.json" for version in versions]:
            (cut / "_delta_log" / name).unlink()
        if not checkpoints:
            for file in [*(cut / "_delta_log").glob("*checkpoint*")]:
                file.unlink()
        return cut

    expected = spark_rows(spark, path, ["ts", "v", "s"])
    assert sorted(file.name for file in log.glob("*.checkpoint.parquet")) == [
        f"{3:020}.checkpoint.parquet",
        f"{6:020}.checkpoint.parquet",
    ]
    for cut in (without(0, 1, 2), without(2), without(5), without(checkpoints=False)):
        assert rows_of(ours(stream(cut))) == expected
    for cut in (without(0, checkpoints=False), without(2, checkpoints=False), without(0, 1, checkpoints=False)):
        with pytest.raises(HeddleError, match=r"HDL-430 .*lacks version \d, its newest is 6"):
            ours(stream(cut))
    (log / f"{6:020}.json").write_text("{")
    for file in log.glob("*checkpoint*"):
        file.unlink()
    with pytest.raises(HeddleError, match="HDL-405 .*cannot be opened"):
        ours(stream(path))


@pytest.mark.spark
def test_checkpoints_of_the_second_version_are_read(spark: Any, make: Make) -> None:
    path = make(*MORE[:2], how=properties(checkpointPolicy="v2", checkpointInterval="2"))
    assert any((path / "_delta_log" / "_sidecars").iterdir())
    for version in range(2):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert len(check(spark, path)) == 8


# ----------------------------------------------------------------------------------------------- places
@pytest.mark.longer
@pytest.mark.spark
def test_a_shallow_clone_is_read_where_its_files_may_be(
    spark: Any, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone's log has absolute URIs."""
    make(name="a b%20c")
    clone = tmp_path / "clone"
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{tmp_path / 'a b%20c'}`")
    assert len(check(spark, clone)) == 6
    monkeypatch.setenv("HEDDLE_SOURCES", str(tmp_path))
    assert len(ours(stream(clone))) == 6
    monkeypatch.setenv("HEDDLE_SOURCES", str(clone))
    with pytest.raises(HeddleError, match="HDL-458 .*leads to where no stream is read from"):
        ours(stream(clone))


PLACES = ["{outside}", "file://{outside}", "file:{outside}", "../outside/a.parquet", "%2e%2e/outside/a.parquet"]
PLACES += ["sub/../../outside/a.parquet", "link.parquet", "linked/a.parquet"]


@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_a_log_places_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    write_deltalake(inside, pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC"))}))
    (file,) = inside.glob("*.parquet")
    outside.mkdir()
    (inside / "sub").mkdir()
    (inside / "link.parquet").symlink_to(outside / "a.parquet")
    (inside / "linked").symlink_to(outside)
    shutil.move(file, outside / "a.parquet")
    log = inside / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace(file.name, place.format(outside=outside / "a.parquet")))
    source = stream(inside, (("ts", TIMESTAMP),))
    assert len(splits_of(source)) == 1  # anywhere but the system's folders
    monkeypatch.setenv("HEDDLE_SOURCES", f"{tmp_path / 'other'}:{inside}")
    with pytest.raises(HeddleError, match="HDL-458 "):
        splits_of(source)
    with pytest.raises(HeddleError, match="HDL-458 "):
        splits_of(stream(outside))


@pytest.mark.parametrize("name", ["_delta_log", f"_delta_log/{0:020}.json"])
def test_a_log_that_lies_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    inside = tmp_path / "inside"
    write_deltalake(inside, pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC"))}))
    shutil.move(inside / name, tmp_path / "elsewhere")
    (inside / name).symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("HEDDLE_SOURCES", str(inside))
    with pytest.raises(HeddleError, match="HDL-458 "):
        splits_of(stream(inside, (("ts", TIMESTAMP),)))
    with pytest.raises(HeddleError, match="HDL-458 "):
        discover_schema(stream(inside))


def test_files_in_another_store_are_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC"))}))
    (file,) = tmp_path.glob("*.parquet")
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace(file.name, "s3://bucket/a.parquet"))
    with pytest.raises(HeddleError, match=r"HDL-405 .*has a file elsewhere \(s3:\)"):
        splits_of(stream(tmp_path, (("ts", TIMESTAMP),)))
    assert DeltaTable(tmp_path).version() == 0
