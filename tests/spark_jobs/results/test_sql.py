"""``heddle sql``: what may be asked, what is answered, and how a mistake is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import Window
from spark_jobs.results.connect import ask, connect
from spark_jobs.results.frames import scan
from spark_jobs.results.read import read
from spark_jobs.results.relations import relations
from spark_jobs.store.warehouse import plans
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.in_process import Clock, heddle, without_spark
from tests.spark_jobs.results.mistakes import MISTAKES
from tests.spark_jobs.results.stored import BY_TEXT, HOUR, NOON, WHOLE, Stored, row, same, store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Three days with answers of two queries."""
    rows = [row(BY_TEXT, hours, hours * 10 + n, who) for hours in range(0, 72, 6) for n, who in enumerate(("A", None))]
    rows += [row(WHOLE, hours, hours) for hours in range(0, 72, 6)]
    return store(tmp_path_factory.mktemp("sql") / "warehouse", [([BY_TEXT, WHOLE], rows)])


def test_relations_are_joined(made: Stored) -> None:
    table = ask(made.warehouse, 'SELECT * FROM "by.text" t JOIN Whole w USING (window_end) WHERE t.n = 121')
    assert table.column_names == [
        *("window_start", "window_end", "who", "n", "last", "revision", "error"),
        *("window_start_1", "n_1", "last_1", "revision_1", "error_1"),
    ]
    (joined,) = table.to_pylist()
    assert (joined["n"], joined["n_1"], joined["who"], joined["last"]) == (121, 12, None, "it's")
    assert joined["window_end"] == datetime(2013, 7, 2, tzinfo=UTC)


def test_all_relations_are_there_for_who_asks_which(made: Stored) -> None:
    views = ask(made.warehouse, "SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'")
    assert {"by.text", "whole"} <= set(views["view_name"].to_pylist())
    assert ask(made.warehouse, "WITH whole AS (SELECT 1 AS x) SELECT x FROM whole").to_pylist() == [{"x": 1}]


@pytest.mark.parametrize(("text", "code", "place", "hint"), MISTAKES)
def test_a_mistake_has_a_code_and_a_place(
    made: Stored, text: str, code: str, place: tuple[int, int] | None, hint: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    secret_table = pa.table({"password": ["hush"]})  # what DuckDB would find by the name of a variable
    (tmp_path / "secret.csv").write_text("password\nhush\n")
    with pytest.raises(HeddleError) as caught:
        ask(made.warehouse, text)
    diagnostic = caught.value.diagnostic
    assert diagnostic.code == code and hint in diagnostic.hint, diagnostic
    assert place is None or (diagnostic.line, diagnostic.column) == place, diagnostic
    assert (tmp_path / "secret.csv").read_text() == "password\nhush\n" and len(secret_table) == 1


def test_one_connection_sees_one_version(made: Stored, tmp_path: Path) -> None:
    world = store(tmp_path / "w", [([WHOLE], [row(WHOLE, 0, 1)])])
    connection = connect(world.warehouse)
    assert connection.sql("SELECT count(*) FROM whole").fetchall() == [(1,)]
    again = store(tmp_path / "w", [([replace(WHOLE, window=Window(2 * HOUR, HOUR))], [row(WHOLE, 1, 2)])])
    assert connection.sql("SELECT count(*) FROM whole").fetchall() == [(1,)]
    assert connect(again.warehouse).sql("SELECT count(*), max(n) FROM whole").fetchall() == [(2, 2)]
    assert connection.sql("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


def test_only_files_of_the_times_asked_for_are_read(made: Stored, tmp_path: Path) -> None:
    """Of the three days two are damaged: who asks for the other does not notice, who asks for all is told."""
    rows = [row(WHOLE, hours, hours) for hours in range(0, 72, 6)]
    world = store(tmp_path / "w", [([WHOLE], rows)])
    files = sorted(Path(world.warehouse.path("results")).glob("day=*/*.parquet"))
    assert len(files) == 4
    for file in files[1:]:
        place = pq.ParquetFile(file).metadata.row_group(0).column(1).data_page_offset
        data = bytearray(file.read_bytes())
        data[place + 40] ^= 0xFF
        file.write_bytes(data)
    first = "SELECT sum(n) FROM whole WHERE window_end <= TIMESTAMPTZ '2013-07-02 00:00:00Z'"
    assert ask(world.warehouse, first).to_pydict() == {"sum(n)": [0 + 6 + 12]}
    with pytest.raises(HeddleError, match=r"HDL-543"):
        ask(world.warehouse, "SELECT * FROM whole")


def test_names_that_differ_in_case_are_two_views(tmp_path: Path) -> None:
    upper = replace(WHOLE, name="WHOLE")
    world = store(tmp_path / "w", [([WHOLE], [row(WHOLE, 0, 1)]), ([WHOLE, upper], [row(upper, 1, 2)])])
    connection = connect(world.warehouse)
    other = connection.sql("SELECT view_name FROM duckdb_views() WHERE view_name LIKE 'WHOLE\\_%' ESCAPE '\\'")
    ((name,),) = other.fetchall()
    assert connection.sql(f'SELECT n FROM "{name}"').fetchall() == [(2,)]
    assert connection.sql("SELECT n FROM whole").fetchall() == [(1,)]


def test_all_relations_take_one_look_at_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many versions there are, and whatever the queries meant in them; no plan is put together."""
    steps = [([replace(WHOLE, window=Window(n * HOUR, HOUR)), BY_TEXT], []) for n in range(1, 7)]
    world, looks = store(tmp_path / "w", steps), list[str]()
    plain = Warehouse.dataset
    monkeypatch.setattr(
        Warehouse, "dataset", lambda *arguments, **options: looks.append(arguments[1]) or plain(*arguments, **options)
    )
    monkeypatch.setattr(plans, "from_rows", lambda rows: pytest.fail("a plan was built"))
    known = relations(world.warehouse)
    assert {name: len(known[name].definitions) for name in known} == {"by.text": 1, "whole": 6}
    assert [len(known[name].arrangements) for name in known] == [1, 1] and looks == ["sharing_plans"]


def test_a_removed_query_keeps_its_relation(tmp_path: Path) -> None:
    world = store(tmp_path / "w", [([WHOLE, BY_TEXT], [row(BY_TEXT, 0, 1, "A")]), ([WHOLE], [])])
    assert [query.name for query in load_plan(world.warehouse, 2).workload.queries] == ["whole"]
    assert ask(world.warehouse, 'SELECT n FROM "by.text"').to_pylist() == [{"n": 1}]
    assert list(relations(world.warehouse)) == ["by.text", "whole"]


def test_a_table_without_fingerprints_is_read_by_plan_versions(tmp_path: Path) -> None:
    """Of an older warehouse that this user may not widen."""
    other = replace(WHOLE, outputs=(replace(WHOLE.outputs[0], name="m"), *WHOLE.outputs))
    steps = [([each], [row(each, hours, 1) | {"marked": False, "m": 7}]) for hours, each in enumerate((WHOLE, other))]
    world = store(tmp_path / "w", steps)
    rows = world.warehouse.dataset("results").to_table().drop_columns("fingerprint")
    shutil.rmtree(world.warehouse.path("results"))
    write_deltalake(world.warehouse.path("results"), rows, partition_by=["day"])
    expected = world.expected("whole")
    assert len(expected) == 2 and not pc.any(pc.is_null(expected["n"])).as_py()
    same(read(world.warehouse, "whole", full=True), expected)
    same(connect(world.warehouse).table("whole").to_arrow_table(), expected)
    same(scan(world.warehouse, "whole").collect().to_arrow(), expected)


def test_read_has_the_columns_that_it_had(made: Stored) -> None:
    assert read(made.warehouse, "by.text").column_names == ["window_start", "window_end", "who", "n", "last"]
    assert read(made.warehouse, "by.text", full=True).column_names[-2:] == ["revision", "error"]


# ---------------------------------------------------------------------------------------------- command line
@pytest.fixture
def house(made: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.chdir(tmp_path)
    with without_spark(Clock(NOON)):
        yield ["--warehouse", str(made.warehouse.root)]


def test_the_command_prints_every_format(house: list[str], tmp_path: Path) -> None:
    text = (
        "SELECT window_end, n, [n, n + 1] AS l, 1.50::DECIMAL(38, 10) AS d, 'nan'::DOUBLE AS x FROM whole WHERE n = 12"
    )
    assert "SQL: 1 row" in heddle("sql", text, *house).out
    invocation = heddle("sql", text, *house, "--json")
    value = {"window_end": "2013-07-02T00:00:00Z", "n": 12, "l": [12, 13], "d": "1.5000000000", "x": "NaN"}
    assert json.loads(invocation.out)["rows"] == [value]
    invocation = heddle("sql", text, *house, "--format", "csv")
    assert invocation.out.splitlines()[1] == '"2013-07-02T00:00:00Z",12,"[12, 13]",1.5000000000,nan'
    assert heddle("sql", text, *house, "--format", "parquet", "--output", "out.parquet").code == 0
    assert pq.read_table(tmp_path / "out.parquet")["l"].to_pylist() == [[12, 13]]
    invocation = heddle("sql", "SELECT * FROM whol", *house)
    assert (
        invocation.code == 2 and "SQL:1:15: error HDL-621" in invocation.err and "did you mean whole?" in invocation.err
    )


def test_the_command_prints_views_that_duckdb_takes(house: list[str], made: Stored) -> None:
    """Another engine's own: here DuckDB over Arrow, by the name that --from says."""
    invocation = heddle("views", *house, "--from", "lake.answers", "--catalog-schema", "mart")
    connection = connect(made.warehouse, ())
    connection.execute('CREATE SCHEMA lake; CREATE SCHEMA mart; CREATE VIEW lake.answers AS FROM "heddle results"')
    connection.execute(invocation.out)
    assert connection.sql('SELECT max(n) FROM mart."by.text"').fetchall() == [(661,)]
    assert heddle("views", "nope", *house).code != 0 and heddle("views", *house, "--dbt", "--json").code == 2
    (view,) = json.loads(heddle("views", "whole", *house, "--json").out)["views"]
    assert view["query"] == "whole" and view["statement"].startswith('CREATE OR REPLACE VIEW "whole"')
    assert heddle("views", *house, "--dbt", "--output", "sources.yml").code == 0 and Path("sources.yml").exists()
    assert "HDL-623" in heddle("views", *house, "--dialect", "mysql").err
    assert "HDL-623" in heddle("views", *house, "--dialect", "trino").err
    assert "HDL-623" in heddle("views", *house, "--from", "a; DROP TABLE b").err
