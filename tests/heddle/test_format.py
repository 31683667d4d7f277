"""``heddle format``, and where commands take workload files from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heddle.cli.app import app

UGLY = "-- name: a\nselect count( * ) as n from s window range '1 hour' slide '1 hour' on t;\n"
FINE = "-- name: a\nSELECT count(*) AS n\nFROM s\nWINDOW RANGE '1 hour' SLIDE '1 hour' ON t;\n"
WRONG = "-- name: b\nselect count(* as n from s"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q/deep").mkdir(parents=True)
    (tmp_path / "q/.git").mkdir()
    for name in ("q/a.sql", "q/deep/b.sql", "q/.git/c.sql", "d.txt"):
        (tmp_path / name).write_text(UGLY)
    return tmp_path


def heddle(*arguments: str, given: str | None = None) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments), input=given)
    return done.exit_code, done.stdout, done.stderr


def test_check_names_what_is_not_laid_out_and_writes_nothing(place: Path) -> None:
    code, out, stderr = heddle("format", "--check", "q")
    assert (code, out) == (1, "") and "q/a.sql" in stderr and "q/deep/b.sql" in stderr and ".git" not in stderr
    assert (place / "q/a.sql").read_text() == UGLY


def test_diff_shows_what_would_change_and_writes_nothing(place: Path) -> None:
    code, out, _ = heddle("format", "--diff", "d.txt")
    assert code == 0 and "-select count( * )" in out and "+SELECT count(*) AS n" in out
    assert (place / "d.txt").read_text() == UGLY


def test_files_are_written_and_then_fine(place: Path) -> None:
    (place / "d.txt").write_bytes(b"\xef\xbb\xbf" + UGLY.encode())
    code, out, stderr = heddle("format", "q/**/*.sql", "d.txt", "--json")
    assert code == 0 and stderr == "" and [file["changed"] for file in json.loads(out)["files"]] == [True] * 3
    assert (place / "q/deep/b.sql").read_text() == FINE and (place / "q/.git/c.sql").read_text() == UGLY
    assert (place / "d.txt").read_bytes() == b"\xef\xbb\xbf" + FINE.encode()
    assert heddle("format", "--check", "q", "d.txt")[0] == 0
    assert "0 files laid out, 2 left as they are" in heddle("format", "q")[2]


def test_standard_input_goes_to_standard_output(place: Path) -> None:
    assert heddle("format", "-", given=UGLY) == (0, FINE, "")
    assert heddle("format", "-", "--check", given=FINE)[0] == 0
    code, out, stderr = heddle("format", "-", given=UGLY + WRONG)
    assert code == 1 and out == FINE + "\n" + WRONG + "\n" and stderr.startswith("stdin:4:13: error HDL-101 [b]")


def test_what_is_wrong_stays_as_it_is(place: Path) -> None:
    (place / "d.txt").write_text(WRONG + ";\n")
    (place / "e.txt").write_bytes(b"\xff")
    code, _, stderr = heddle("format", "d.txt", "e.txt")
    assert code == 1 and "HDL-101" in stderr and "e.txt: error HDL-111 is not UTF-8" in stderr
    assert (place / "d.txt").read_text() == WRONG + ";\n"
    assert (place / "e.txt").read_bytes() == b"\xff"
    assert heddle("format", "none.sql")[0] == 2
    assert heddle("format")[0] == 2


def test_other_commands_read_standard_input_too(place: Path) -> None:
    (place / "streams.yaml").write_text(
        "streams:\n  s:\n    source: {format: csv, path: s.csv}\n    schema: {t: timestamp}\n    time: t\n"
    )
    (place / "s.csv").write_text("t\n2024-01-01T00:00:00\n")
    _, out, _ = heddle("validate", "-", "q", "--streams", "streams.yaml", "--json", given=UGLY.replace("a\n", "z\n"))
    assert '"z"' in out and "HDL-209" in out
    stderr = heddle("validate", "-", "--streams", "streams.yaml", given=WRONG)[2]
    assert stderr.startswith("stdin:2:13: error HDL-101 [b]")
