"""What shells are told to complete, and that nothing but that reaches who types."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completed")
    with tarfile.open(ROOT / "tests/fixtures/warehouse_0_1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "broken").mkdir()
    (folder / "broken/heddle.json").write_text("{")
    return folder


def completed(line: str, place: Path, **environment: str) -> list[str]:
    """What bash is told for a line whose last word is being typed; nothing else is said."""
    variables = {"_HEDDLE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", "from heddle.cli.app import app; app(prog_name='heddle')"],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT), "HEDDLE_HOME": str(place)} | variables | environment,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "" and "Traceback" not in done.stdout
    return done.stdout.split()


QUERIES = [
    ("heddle read --warehouse warehouse by", ["by_symbol"]),
    ("heddle lookup --warehouse warehouse by", ["by_symbol"]),
    ("heddle explain --warehouse warehouse by", ["by_symbol"]),
    ("heddle pause --warehouse warehouse by", ["by_symbol"]),
    ("heddle queries --warehouse warehouse --history by", ["by_symbol"]),
    ("heddle plan --streams streams.yaml --rate t", ["trades="]),
    ("heddle what-if --streams streams.yaml --rate t", ["trades="]),
    ("heddle val", ["validate"]),
]


@pytest.mark.parametrize(("line", "expected"), QUERIES)
def test_names_are_completed(line: str, expected: list[str], place: Path) -> None:
    assert completed(line, place) == expected


def test_the_environment_says_the_warehouse(place: Path) -> None:
    assert completed("heddle read by", place, HEDDLE_WAREHOUSE="warehouse") == ["by_symbol"]


@pytest.mark.parametrize("house", ("none", "broken", "streams.yaml", ""))
def test_what_goes_wrong_completes_nothing(house: str, place: Path) -> None:
    assert completed(f"heddle read --warehouse {house} b" if house else "heddle read b", place) == []
    assert completed("heddle plan --streams none.yaml --rate t", place) == []
