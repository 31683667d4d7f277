"""From an empty folder to right answers: for each kind of data at most five commands, and no edit of a generated file.

The answers that ``heddle read`` prints are compared with those computed by DuckDB over the rows that were written.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.in_process import Clock, Said, heddle, without_spark
from tests.spark_jobs.streams.database_tables import PostgresServer, postgres_server

NOW = 1_800_000_000_000_000
MOST_COMMANDS = 5
SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
STEP = 433
"""Seconds between two events: two and a half days of them, with windows of different counts."""

FIRST = datetime(2025, 3, 3, tzinfo=UTC)
EVENTS = pa.table(
    {
        "event_id": list(range(500)),
        "at": pa.array([FIRST + timedelta(seconds=STEP * number) for number in range(500)], pa.timestamp("us", "UTC")),
        "region": [("east", "west", "north")[number * number % 7 % 3] for number in range(500)],
        "product_id": [number * 5 % 11 for number in range(500)],
        "amount": [number * 37 % 401 / 4 for number in range(500)],
    }
)
"""The rows of every stream."""

UNZONED = EVENTS.set_column(1, "at", EVENTS["at"].cast(pa.timestamp("us")))
"""The same for DuckDB, which knows zones only by an extension."""

PRODUCTS = pa.table(
    {"product_id": range(11), "label": [f"p{n}" for n in range(11)], "department_id": [0, 1, 2] * 3 + [0, 1]}
)
DEPARTMENTS = pa.table({"department_id": range(3), "department": ["food", "toys", "garden"]})
REGIONS = pa.table({"region": ["east", "west", "north"], "manager": ["Ada", "Bo", "Cy"]})

BY_DEPARTMENT = """-- name: by_department
SELECT department, count(*) AS events, avg(amount) AS mean_amount
FROM orders JOIN products USING (product_id) JOIN departments USING (department_id)
WINDOW RANGE '6 hours' SLIDE '6 hours' ON `at`
GROUP BY department;
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("WAREHOUSE", "STREAMS", "WORKLOAD", "COPIES"):
        monkeypatch.delenv(f"HEDDLE_{name}", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with postgres_server(tmp_path_factory.mktemp("postgres")) as running:
        yield running


# ------------------------------------------------------------------------------------------- commands
class Newcomer:
    """Runs commands and counts them. Each has to succeed."""

    def __init__(self) -> None:
        self.commands = 0

    def heddle(self, *arguments: str) -> Said:
        """What a command prints; AssertionError if it fails, or is one too many."""
        self.commands += 1
        assert self.commands <= MOST_COMMANDS, arguments
        done = heddle(*arguments)
        assert done.code == 0, (arguments, done)
        return done

    def project(self, *arguments: str) -> list[list[str]]:
        """Make a project: the words of each command that ``heddle init`` proposes."""
        return proposed_steps(self.heddle("init", *arguments).out)


def proposed_steps(printed: str) -> list[list[str]]:
    """The words of the commands that ``heddle init`` prints, without the first."""
    return [line.split()[1:] for line in printed.partition("next:")[2].splitlines() if line.strip()]


def proposed(steps: Sequence[Sequence[str]], name: str) -> Sequence[str]:
    """The proposed command of a name."""
    (words,) = [words for words in steps if words[0] == name]
    return words


# --------------------------------------------------------------------------------------------- oracle
def window_lengths(statement: str) -> tuple[int, int]:
    """Range and slide of a query in seconds."""
    match = re.search(r"RANGE '(\d+) (\w+?)s?' SLIDE '(\d+) (\w+?)s?'", statement)
    assert match is not None, statement
    return int(match[1]) * SECONDS[match[2]], int(match[3]) * SECONDS[match[4]]


def statement_of(query: str) -> str:
    """The text of a query in the files below queries/."""
    text = "\n".join(path.read_text() for path in sorted(Path("queries").glob("*.sql")))
    return text.partition(f"-- name: {query}\n")[2].partition(";")[0]


def expected_answers(
    run: Sequence[str], lengths: tuple[int, int], group: str, value: str, joins: str = ""
) -> list[Any]:
    """Count and mean by window and group as DuckDB computes them, for windows that end in the interval of a run."""
    begin, end = (
        int(datetime.fromisoformat(run[run.index(f"--{at}") + 1]).replace(tzinfo=UTC).timestamp())
        for at in ("from", "to")
    )
    range_, slide = lengths
    with duckdb.connect() as database:
        for name, table in (
            ("rows", UNZONED),
            ("products", PRODUCTS),
            ("departments", DEPARTMENTS),
            ("regions", REGIONS),
        ):
            database.register(name, table)
        return database.execute(
            f"""SELECT closing, {group}, count(*), avg({value})
            FROM range({begin + slide}, {end + 1}, {slide}) AS windows(closing), rows {joins}
            WHERE epoch(rows.at) >= closing - {range_} AND epoch(rows.at) < closing GROUP BY ALL ORDER BY ALL"""
        ).fetchall()


def read_answers(printed: str) -> list[Any]:
    """The answers that ``heddle read … --json`` prints, in the form of :func:`expected_answers`."""
    rows = [list(row.values()) for row in json.loads(printed)["rows"]]
    return sorted(
        (int(datetime.fromisoformat(end).timestamp()), group, events, mean) for _, end, group, events, mean in rows
    )


def check_answers(user: Newcomer, steps: Sequence[Sequence[str]], group: str, value: str = "amount") -> None:
    """Run and read what ``heddle init`` proposes, and compare the answers."""
    run, read = proposed(steps, "run"), proposed(steps, "read")
    user.heddle(*run)
    answers = read_answers(user.heddle(*read, "--json").out)
    assert answers == expected_answers(run, window_lengths(statement_of(read[1])), group, value)
    assert answers
    assert user.commands <= MOST_COMMANDS


# ----------------------------------------------------------------------------------------------- data
def json_lines(folder: Path) -> None:
    lines = [json.dumps(row, default=datetime.isoformat) for row in EVENTS.to_pylist()]
    (folder / "visits.jsonl").write_text("\n".join(lines))


def geojson(folder: Path) -> None:
    features = [
        {
            "type": "Feature",
            "properties": {"at": int(row["at"].timestamp() * 1000), "region": row["region"], "amount": row["amount"]},
            "geometry": {"type": "Point", "coordinates": [7.1, 50.7]},
        }
        for row in EVENTS.to_pylist()
    ]
    (folder / "visits.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))


def csv_text(table: pa.Table) -> str:
    rows = [
        ",".join(value.isoformat() if isinstance(value, datetime) else str(value) for value in row.values())
        for row in table.to_pylist()
    ]
    return "\n".join([",".join(table.column_names), *rows, ""])


def compressed_csv(folder: Path) -> None:
    (folder / "visits.csv.gz").write_bytes(gzip.compress(csv_text(EVENTS).encode()))


def hive_folders(folder: Path) -> None:
    rows = EVENTS.append_column("day", EVENTS["at"].cast(pa.date32()))
    pq.write_to_dataset(rows, folder / "visits", partition_cols=["day", "region"])


@pytest.mark.parametrize("write", [json_lines, geojson, compressed_csv, hive_folders])
def test_files_are_answered(write: Callable[[Path], None], folder: Path) -> None:
    write(folder)
    user = Newcomer()
    with without_spark(Clock(NOW)):
        steps = user.project()
        assert "1 query usable, 0 errors" in user.heddle(*proposed(steps, "validate")).out
        check_answers(user, steps, "region")


def test_a_value_that_means_none_is_declared_as_the_error_says(folder: Path) -> None:
    """One line more in a generated file: the error prints it."""
    lines = csv_text(EVENTS).splitlines()
    late = [line if number != 499 else line.rsplit(",", 1)[0] + ",nil" for number, line in enumerate(lines)]
    (folder / "visits.csv").write_text("\n".join(late))
    with without_spark(Clock(NOW)), pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.streams.sources.csv_guess.ROWS", 100)
        steps = proposed_steps(heddle("init").out)
        failed = heddle(*proposed(steps, "run"))
        assert failed.code == 1 and "line 500" in failed.err
        declared = re.search(r"add `(null: .+?)` to `source`", failed.err)
        assert declared is not None, failed.err
        path = Path("streams.yaml")
        path.write_text(path.read_text().replace("    source:\n", f"    source:\n      {declared[1]}\n"))
        assert heddle(*proposed(steps, "run")).code == 0


# ------------------------------------------------------------------------------------------- tables
def test_five_tables_are_joined(folder: Path) -> None:
    """Two streams and three dimensions. The query by department is a file of the user's own."""
    tables = {"orders": EVENTS, "products": PRODUCTS, "departments": DEPARTMENTS, "regions": REGIONS}
    tables["visits"] = EVENTS.select(["event_id", "at", "region", "amount"]).rename_columns(
        ["visit", "at", "region", "seconds"]
    )
    (folder / "shop").mkdir()
    for name, table in tables.items():
        (folder / "shop" / f"{name}.csv").write_text(csv_text(table))
    user = Newcomer()
    with without_spark(Clock(NOW)):
        steps = user.project("shop")
        declared = Path("streams.yaml").read_text()
        assert re.findall(r"^  (\w+):", declared, re.M) == ["orders", "visits", "departments", "products", "regions"]
        Path("queries/departments.sql").write_text(BY_DEPARTMENT)
        run = proposed(steps, "run")
        user.heddle(*run)
        joined = read_answers(user.heddle("read", "by_department", "--json").out)
        visits = re.findall(r"-- name: (visits\w+)", Path("queries/first.sql").read_text())
        firsts = [
            read_answers(user.heddle("read", name, "--json").out) for name in (proposed(steps, "read")[1], *visits)
        ]
    joins = "JOIN products USING (product_id) JOIN departments USING (department_id)"
    assert joined == expected_answers(run, window_lengths(BY_DEPARTMENT), "department", "amount", joins)
    for name, answers in zip((proposed(steps, "read")[1], *visits), firsts, strict=True):
        group = re.search(r"SELECT (\w+),", statement_of(name))
        assert group is not None and answers
        assert answers == expected_answers(run, window_lengths(statement_of(name)), group[1], "amount")


# ---------------------------------------------------------------------------------------- databases
COLUMNS = "event_id INTEGER PRIMARY KEY, at {time}, region TEXT, product_id INTEGER, amount DOUBLE PRECISION"


def test_a_sqlite_file_check_answers(folder: Path) -> None:
    with closing(sqlite3.connect("shop.db")) as database:
        database.execute(f"CREATE TABLE orders ({COLUMNS.format(time='TIMESTAMP')})")
        rows = [(*row[:1], row[1].strftime("%Y-%m-%d %H:%M:%S"), *row[2:]) for row in event_rows()]
        database.execute("CREATE TABLE regions (region TEXT, manager TEXT)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
    check_table("shop.db", "orders")


def test_a_table_of_postgresql_check_answers(server: PostgresServer, folder: Path) -> None:
    with server.connect() as connection:
        connection.execute(f"CREATE TABLE orders ({COLUMNS.format(time='timestamptz')})")
        connection.execute("CREATE TABLE regions (region TEXT, manager TEXT)")
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO orders VALUES (%s, %s, %s, %s, %s)", event_rows())
    check_table(server.url(), "public.orders")


def event_rows() -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in EVENTS.to_pylist()]


def check_table(address: str, table: str) -> None:
    """From the list of tables to the answers of one: list, init, run, read."""
    user = Newcomer()
    with without_spark(Clock(NOW)):
        ((_, *arguments),) = user.project(address)
        assert arguments == [address, "--table", table]
        steps = user.project(*arguments)
        check_answers(user, steps, "region")
