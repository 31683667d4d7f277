"""Continue and repair a warehouse whose stream of JSON Spark copied before Heddle read JSON itself.

``fixtures/make_warehouse_json.py`` describes its history.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from optimizer.workload.streams import load_streams, with_copy
from optimizer.workload.values import Origin, Source
from spark_jobs.streams.copies.readers import known_streams, reason
from tests.earlier_code import ROOT, EarlierCode
from tests.fixtures.make_warehouse_json import START, write
from tests.in_process import Clock, heddle, without_spark

FIRST, LATE, THIRD = range(0, 14_400, 60), [4000], range(14_400, 18_000, 60)
"""The seconds of clicks that were published, of the late one, and of those of the next hour."""

NOW = (START + 6 * 3600) * 10**6


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project as the current folder, an hour after its last run."""
    with tarfile.open(Path(__file__).parent / "fixtures" / "warehouse_json.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path / "project")
    _as_if_made_here(tmp_path / "project")
    with without_spark(Clock(NOW)):
        yield tmp_path / "project"


def _as_if_made_here(project: Path) -> None:
    """Name the copy, and what it holds, by the folder that the project is in now."""
    (copy,) = copies(project)
    logs = sorted((copy / "_delta_log").glob("*.json"))
    (old,) = {place for log in logs for place in re.findall(r'"__piece":"([^"]*)/data/', log.read_text())}
    for log in logs:
        log.write_text(log.read_text().replace(f"{old}/data/", f"{project}/data/"))
    stream = load_streams(project / "streams.yaml")[0]["clicks"]
    origin = Origin("json", str(project / "data"), copies=str(project / "warehouse-copies"))
    copied = with_copy(replace(stream, source=Source("delta", "", time_unit="ms", origin=origin)))
    copy.rename(copied.source.path)


def done(*arguments: str) -> dict[str, Any]:
    completed = heddle(*arguments, "--json")
    assert completed.code == 0, completed
    reply: dict[str, Any] = json.loads(completed.out)
    return reply


def answers() -> dict[tuple[str, str], tuple[int, int, Decimal, int]]:
    """The published answers of the hourly query, by hour and user."""
    return {
        (row["window_start"][11:13], row["user"]): (row["clicks"], row["total"], Decimal(row["price"]), row["ms"])
        for row in done("read", "hourly")["rows"]
    }


def expected(*seconds: Sequence[int]) -> dict[tuple[str, str], tuple[int, int, Decimal, int]]:
    """The answers over the clicks of some seconds."""
    by_key: dict[tuple[str, str], list[int]] = {}
    for second in (second for some in seconds for second in some):
        by_key.setdefault((f"{second // 3600:02}", f"u{second // 60 % 3}"), []).append(second)
    return {
        key: (len(some), sum(some), Decimal(max(some)) / 8, sum(second % 700 for second in some))
        for key, some in by_key.items()
    }


def copies(project: Path) -> list[Path]:
    return sorted((project / "warehouse-copies").glob("clicks-*"))


def test_a_copy_is_read_as_long_as_it_is_there(project: Path) -> None:
    _, streams, problems = known_streams("streams.yaml")
    (copy,) = copies(project)
    assert (problems, streams["clicks"].source.path) == ([], str(copy))
    assert "made by an earlier Heddle" in reason(streams["clicks"])
    assert answers() == expected(FIRST)
    # another schema was another copy: now it is none
    text = Path("streams.yaml").read_text()
    Path("streams.yaml").write_text(text.replace("n: long", "n: double"))
    assert known_streams("streams.yaml")[1]["clicks"].source.format == "json"
    # columns that only Spark has found are where some copy is
    Path("streams.yaml").write_text(text[: text.index("    schema")])
    shutil.rmtree(copy)
    assert known_streams("streams.yaml")[1]["clicks"].source.format == "json"


@pytest.mark.parametrize("reader", ["the copy", pytest.param("Spark", marks=pytest.mark.longer)])
def test_the_copy_is_continued_and_repaired(project: Path, reader: str) -> None:
    """A new hour and a late event count once, whether streams.yaml stays or names the reader."""
    if reader == "Spark":
        text = Path("streams.yaml").read_text()
        Path("streams.yaml").write_text(text.replace("time_unit: ms", "time_unit: ms, reader: spark"))
    write(project / "data" / "third.json", list(THIRD))
    interval = "--from", "2013-07-01T04:00Z", "--to", "2013-07-01T05:00Z", "--engine", "local"
    # in a process of its own, whose session of Spark nobody else has
    *_, again = EarlierCode(ROOT).run(NOW, ["run", *interval], ["repair"], ["repair"])
    assert len(copies(project)) == 1
    assert answers() == expected(FIRST, LATE, THIRD)
    assert again == {"format_version": 1, "outdated": []}


def test_without_the_copy_the_files_are_read(project: Path) -> None:
    """Deleting the copy is the way to do without Spark: nothing is lost and nothing is doubled."""
    shutil.rmtree(project / "warehouse-copies")
    write(project / "data" / "third.json", list(THIRD))
    done("run", "--from", "2013-07-01T04:00Z", "--to", "2013-07-01T05:00Z")
    assert not copies(project)
    done("repair")
    assert answers() == expected(FIRST, LATE, THIRD)
    assert done("repair") == {"format_version": 1, "outdated": []}
    record = done("backfill", "--from", "2013-07-01T00:00Z", "--to", "2013-07-01T05:00Z")
    assert answers() == expected(FIRST, LATE, THIRD), record
