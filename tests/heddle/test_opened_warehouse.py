"""A warehouse in Python (``import heddle``): what commands say, as values; and nothing slow before it is used."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import heddle
from heddle.house import micros
from spark_jobs.operations.upgrade import apply_upgrade
from spark_jobs.results.read import read
from spark_jobs.results.relations import relation
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos.orders import in_process
from tests.in_process import Clock, without_spark
from tests.in_process import heddle as command

FIXTURES = Path(__file__).parent.parent / "fixtures"
START = 1_372_716_000_000_000
"""2013-07-01T22:00:00Z, as in fixtures/make_warehouse.py."""

HOUR = 3_600_000_000


@pytest.fixture
def clock() -> Clock:
    """The time of day."""
    return Clock(START + 305 * 60_000_000)


@pytest.fixture
def house(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[heddle.House]:
    """A warehouse with three published intervals, in the current folder."""
    with tarfile.open(FIXTURES / "warehouse_0_1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    apply_upgrade(Warehouse.open("warehouse"))
    with without_spark(clock):
        yield heddle.open("warehouse")


def said(*arguments: str) -> Any:
    done = command(*arguments, "--warehouse", "warehouse", "--json")
    assert done.code == 0, done
    return json.loads(done.out)


def running(house: heddle.House) -> list[str]:
    return [query.name for query in house.plan().workload.queries]


def test_the_documents_say_what_happens(house: heddle.House, tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "warehouse").rename(tmp_path / "var/warehouse")
    text = (Path(__file__).parents[2] / "docs/python.md").read_text().replace("```", "")
    session = doctest.DocTestParser().get_doctest(text, {}, "docs/python.md", None, 0)
    output: list[str] = []
    done = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session, out=output.append)
    assert done.attempted > 10 and not done.failed, "".join(output)


def test_importing_it_takes_nothing_slow() -> None:
    slow = (
        "pyarrow",
        "pandas",
        "numpy",
        "numba",
        "pyspark",
        "polars",
        "duckdb",
        "deltalake",
        "typer",
        "rich",
        "jinja2",
    )
    code = f"import sys, heddle; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_answers_are_those_of_the_table(house: heddle.House) -> None:
    for name in running(house):
        expected = read(house._warehouse, name, full=True)
        if not expected.num_rows:
            with pytest.raises(heddle.Error) as raised:
                house.read(name)
            assert raised.value.code in ("HDL-547", "HDL-548")
            continue
        answers = house.read(name)
        assert answers.table.equals(expected) and pa.table(answers).equals(expected)
        assert len(answers) == answers.num_rows == len(list(answers)) == len(answers.to_pandas())
        assert answers.to_polars().to_arrow().num_rows == expected.num_rows
        late = house.read(name, since=START + HOUR, until=datetime(2013, 7, 2, 1, tzinfo=UTC))
        assert late.table.equals(read(house._warehouse, name, START + HOUR, START + 3 * HOUR, full=True))


def test_sql_duckdb_and_polars_have_the_same_answers(house: heddle.House) -> None:
    for name in running(house):
        expected = read(house._warehouse, name, full=True)
        columns = expected.column_names
        rows = sorted(map(repr, expected.to_pylist()))
        statement = f'SELECT * FROM "{name}"'
        connected = heddle.connect("warehouse").execute(statement).to_arrow_table()
        for table in (
            house.sql(statement).table,
            connected,
            house.scan(name).collect().to_arrow(),
            heddle.scan(name, "warehouse").collect().to_arrow(),
        ):
            again = pa.table({column: table[column].cast(expected[column].type) for column in columns})
            assert table.column_names == columns and sorted(map(repr, again.to_pylist())) == rows
    with pytest.raises(heddle.Error) as raised:
        house.sql("SELECT *\nFROM nobody")
    assert raised.value.code == "HDL-621" and raised.value.position == ("SQL", 2, 6)


def test_a_connection_has_the_views_that_are_named(house: heddle.House) -> None:
    views = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND view_name <> 'heddle results'"
    assert house.connect(["by_symbol"]).execute(views).fetchall() == [("by_symbol",)]
    assert {("by_symbol",), ("spread",)} <= set(heddle.connect("warehouse").execute(views).fetchall())
    with pytest.raises(heddle.Error, match="HDL-507"):
        house.connect(["nobody"])


def test_an_instant_is_text_a_datetime_a_date_or_microseconds() -> None:
    east = timezone(timedelta(hours=2))
    expected = START
    texts = ("2013-07-01T22:00:00Z", "2013-07-02T00:00:00+02:00", "2013-07-01 22:00:00")
    times = (datetime(2013, 7, 1, 22), datetime(2013, 7, 2, tzinfo=east), START)
    assert [micros(moment) for moment in (*texts, *times)] == [expected] * 6
    assert micros(date(2013, 7, 2)) == micros("2013-07-02") == START + 2 * HOUR
    for wrong in ("yesterday", 1.5, None, True):
        with pytest.raises(heddle.Error) as raised:
            micros(wrong)  # type: ignore[arg-type]
        assert raised.value.code == "HDL-114" and raised.value.hint


def test_look_ups_are_those_of_the_command(house: heddle.House) -> None:
    tried = 0
    for name in running(house):
        try:
            answers = house.lookup(name, at="2013-07-02T01:00")
        except heddle.Error as error:
            rows = next(query.window.is_rows for query in house.plan().workload.queries if query.name == name)
            assert error.code == ("HDL-607" if rows else "HDL-603")
            continue
        listed = said("lookup", name, "--at", "2013-07-02T01:00")
        assert answers.num_rows == len(listed["rows"])
        known = relation(house._warehouse, name, house._warehouse.table("results"))
        columns = [column.name for column in known.columns if column.role == "group"]
        groups = list({tuple(row[column] for column in columns) for row in answers})
        if columns and groups:
            tried += 1
            chosen = house.lookup(name, "2013-07-02T01:00", groups)
            key = [(column, "ascending") for column in columns]
            assert chosen.table.sort_by(key).equals(answers.table.sort_by(key))
            assert house.lookup(name, "2013-07-02T01:00", []).table.schema == answers.table.schema
            with pytest.raises(heddle.Error) as raised:
                house.lookup(name, "2013-07-02T01:00", [("nobody", "knows", "this")])
            assert raised.value.code == "HDL-605"
    assert tried


def test_a_look_up_sees_what_was_stored_since(house: heddle.House, clock: Clock) -> None:
    name = next(query.name for query in house.plan().workload.queries if query.kind.shares_synopses)
    before = house.lookup(name, "2013-07-02T01:00").table
    loaded = house._lookups[name][1]
    house.lookup(name, "2013-07-02T01:30")
    assert house._lookups[name][1] is loaded
    clock.now += 24 * HOUR
    house.run("2013-07-02T04:00", "2013-07-02T05:00")
    # of sums of doubles the run stored what it read, in today's form; what is older is answered from the former one
    house.lookup(name, "2013-07-02T04:30")
    assert house._lookups[name][1] is not loaded
    assert house.lookup(name, "2013-07-02T01:00").table.equals(before)


def test_queries_plans_and_explanations_are_those_of_the_commands(house: heddle.House) -> None:
    assert [query.to_json() for query in house.queries()] == said("queries")["queries"]
    plan = house.plan()
    assert f"plan version {plan.version}: " in repr(plan) and house.plan(1).version == 1
    name = running(house)[0]
    explained = house.explain(name)
    assert json.loads(json.dumps(explained.to_json())) == said("explain", name)
    assert str(explained).splitlines() == explained.lines()
    with pytest.raises(heddle.Error) as raised:
        house.explain("nobody")
    assert raised.value.code == "HDL-507" and raised.value.hint


def test_what_if_stores_nothing(house: heddle.House, tmp_path: Path) -> None:
    stream = house.plan().workload.streams[0]
    text = (
        f"-- name: added\nSELECT count(*) AS n FROM {stream.name} WINDOW RANGE '1 hour' SLIDE '1 hour' ON {stream.time}"
    )
    (tmp_path / "more.sql").write_text(text)
    answer = house.what_if(add="more.sql", remove=running(house)[0], rates={stream.name: "x3"})
    names = [query.name for query in answer.after.workload.queries]
    assert "added" in names and running(house)[0] not in names and "added" not in running(house)
    assert answer.after.rate(stream.name) == 3 * answer.before.rate(stream.name)
    (tmp_path / "more.sql").write_text(text.replace("count(*)", "cuont(*)"))
    with pytest.raises(heddle.Error) as raised:
        house.what_if(add=["more.sql"])
    error = raised.value
    assert error.code.startswith("HDL-1") and error.position is not None and error.position[1] == 2
    assert error.position[0].endswith("more.sql")


def test_a_run_is_published_and_running_it_again_changes_nothing(
    house: heddle.House, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    clock.now += 24 * HOUR
    since, until = "2013-07-02T02:00", "2013-07-02T04:00"
    session: Any = in_process()
    first = house.run(since, until, spark=session, progress=True)
    assert first.status == "published" and "listing sources" in capsys.readouterr().err
    assert house.run(since, until).status == "unchanged"
    assert capsys.readouterr().err == ""
    with pytest.raises(heddle.Error) as raised:
        house.run(until, since, spark=session)
    assert raised.value.code == "HDL-504"


def test_notebooks_show_no_text_as_markup(house: heddle.House) -> None:
    name = "<script>alert(1)</script>"
    table = pa.table({name: [name] * 30})
    shown = heddle.Answers(table, name)._repr_html_()
    assert "<script" not in shown and "30 answers, the first 20 shown" in shown
    plan = house.plan()._repr_html_()
    assert plan.startswith("<iframe srcdoc=") and "<html" not in plan
    assert house.explain(running(house)[0])._repr_html_().startswith("<pre>")


def test_threads_share_a_warehouse(house: heddle.House) -> None:
    name = next(query.name for query in house.plan().workload.queries if query.kind.shares_synopses)
    expected = house.lookup(name, "2013-07-02T01:00").table
    other, comparisons = heddle.open("warehouse"), []

    def look() -> None:
        comparisons.append(other.lookup(name, "2013-07-02T01:00").table.equals(expected))

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert comparisons == [True] * 6


def test_what_is_no_warehouse_is_said(tmp_path: Path) -> None:
    with pytest.raises(heddle.Error) as raised:
        heddle.open(tmp_path / "nowhere")
    assert raised.value.code == "HDL-502" and raised.value.position is None
    assert heddle.__version__
