"""The code blocks of the documentation, and how they are run.

A page is tried by its blocks, in their order:

- ``sh`` in the pages of :data:`PLAYED`: played in a folder of its own; a ``text`` block that follows at once is what it
  prints. ``heddle`` runs in this process, with tasks in the driver instead of Spark, and without the checks that need
  Spark. Elsewhere every command of a ``sh`` block has to exist, with its options.
- ``sql``, ``yaml``: read by the parsers that read users' files.
- ``pycon``: a session over the warehouse of tests/fixtures, which tests/heddle/test_opened_warehouse.py plays.
- ``python``: one of :data:`PYTHON`, which tests/spark_jobs/results/test_read.py evaluates, and
  tests/spark_jobs/results/test_current_dimensions.py and tests/heddle/test_sql_server.py.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer import testing

from heddle.cli.app import app
from spark_jobs.pipeline.run import checks_stage

ROOT = Path(__file__).resolve().parents[1]

FINGERPRINT = "470c488b1202511a"
"""Of carrier_delay_1h in dags/workload/flights.sql."""

SPARK = """
import heddle

heddle.register(spark, "var/warehouse")
spark.sql("SELECT window_start, window_end, carrier, mean_delay FROM carrier_delay_1h")
"""

DUCKDB = """
import heddle

connection = heddle.connect("var/warehouse")
connection.sql("SELECT window_start, carrier, mean_delay FROM carrier_delay_1h WHERE window_end > '2013-01-01'")
"""

POLARS = """
import heddle

answers = heddle.scan("carrier_delay_1h", "var/warehouse")
answers.select("window_start", "carrier", "mean_delay").collect()
"""

DELTA = '''
results = DeltaTable("var/warehouse/results").to_pyarrow_dataset()
duckdb.sql("""SELECT window_start, window_end, key ->> '$[0]' AS carrier, doubles[1] AS mean_delay
              FROM results WHERE query = 'carrier_delay_1h' AND fingerprint = '470c488b1202511a'""")
'''

OWN_TABLE = """
delays = DeltaTable("var/warehouse/tables/carrier_delay_1h").to_pyarrow_dataset()
duckdb.sql("SELECT window_start, window_end, carrier, mean_delay FROM delays WHERE error IS NULL")
"""

DIMENSION_TABLE = """
products = DeltaTable("var/warehouse/dimension_tables/products").to_pyarrow_dataset()
duckdb.sql("SELECT product_id, department FROM products")
"""

FLIGHT_SQL = """
from adbc_driver_flightsql import dbapi

with dbapi.connect("grpc://127.0.0.1:8766", autocommit=True) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT window_end, carrier, mean_delay FROM carrier_delay_1h WHERE carrier = ?", ["AA"])
    delays = cursor.fetch_arrow_table()
"""

PYTHON = (SPARK, DUCKDB, POLARS, DELTA, OWN_TABLE, DIMENSION_TABLE, FLIGHT_SQL)

PLAYED = (
    "README.md",
    "docs/first-steps.md",
    "docs/dimensions.md",
    "docs/expectations.md",
    "docs/features.md",
    *(f"examples/{name}/README.md" for name in ("web-requests", "sensor-readings", "shop-orders")),
)

EXITS = re.compile(r"# exits with (\d)$")
"""Comment behind a command that does not end with 0."""

PREPARING = ("make ", "export PATH=")
"""Lines that the tests' environment stands for."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language (empty for none), text, first line (1-based), and whether it follows another one
    with nothing but empty lines between."""

    language: str
    text: str
    line: int
    follows: bool


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a Markdown file, in order.

    Raises:
        ValueError: a block never ends.
    """
    blocks, language, inside = list[Block](), "", list[str]()
    begin, follows = 0, False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            if begin:
                blocks.append(Block(language, "\n".join(inside) + "\n", begin, follows))
                begin, follows, inside = 0, True, []
            else:
                begin, language = number, line[3:].strip()
        elif begin:
            inside.append(line)
        elif line.strip():
            follows = False
    if begin:
        raise ValueError(f"{page}:{begin}: a block never ends")
    return blocks


def commands(script: str) -> list[str]:
    """The lines of a shell script without comments, continued lines and here-documents joined to one command."""
    joined = list[str]()
    lines = iter(script.splitlines())
    for line in lines:
        while line.endswith("\\"):
            line = line[:-1].rstrip() + " " + next(lines).strip()
        heredoc = re.search(r"<<'(\w+)'", line)
        while heredoc and not line.endswith(f"\n{heredoc[1]}"):
            line += "\n" + next(lines)
        if line.strip() and not line.lstrip().startswith("#"):
            joined.append(line)
    return joined


@contextmanager
def without_spark() -> Iterator[None]:
    """Within it runs take place in this process; the audit, which needs Spark, finds nothing wrong."""
    with pytest.MonkeyPatch.context() as patch:
        passed: list[dict[str, Any]] = [{"check": "none", "success": True, "detail": ""}]
        patch.setattr(checks_stage, "audit", lambda *arguments: list(passed))
        yield


def play(script: str, folder: Path) -> str:
    """Run a script in ``folder``; returns what its last command prints on standard output.

    Raises:
        AssertionError: a command fails.
    """
    printed = ""
    for command in commands(script):
        if command.startswith(PREPARING):
            continue
        if command.startswith("heddle "):
            with without_spark(), pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                done = testing.CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
            code = EXITS.search(command)
            assert done.exit_code == (int(code[1]) if code else 0), f"{command}\n{done.output}"
            printed = done.stdout
        else:
            ended = subprocess.run(["bash", "-ec", command], cwd=folder, capture_output=True, text=True, timeout=60)
            assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
            printed = ended.stdout
    return printed
