"""``heddle`` without a command, and the list of ``heddle --help``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from heddle.cli.app import app
from heddle.cli.root import MODULES

COMMANDS = CliRunner()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a project, in which commands run."""
    monkeypatch.chdir(tmp_path)
    for name in ("HEDDLE_HOME", "HEDDLE_WAREHOUSE", "HEDDLE_STREAMS", "HEDDLE_WORKLOAD", "HEDDLE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def typed(*words: str) -> str:
    """What a command prints; it has to end well."""
    done = COMMANDS.invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.output


def test_without_a_project_init_is_next(folder: Path) -> None:
    text = typed()
    assert "There is no project in this folder." in text
    assert "  heddle init " in text


def test_each_step_names_the_next(folder: Path) -> None:
    (folder / "visits.csv").write_text("time,page\n2025-03-03T08:05:00Z,home\n2025-03-03T08:25:00Z,shop\n")
    typed("init", "--yes")
    fresh = typed()
    assert "nothing is published" in fresh
    assert [step in fresh for step in ("heddle validate", "heddle preview", "heddle run")] == [True] * 3
    typed("run", "--from", "2025-03-03", "--to", "2025-03-04", "--engine", "local")
    published = typed()
    assert "newest run published: 2025-03-03T00:00:00Z .. 2025-03-04T00:00:00Z" in published
    assert "1 query; 1 interval published" in published
    assert "  heddle read visits_" in published


def test_a_project_without_a_warehouse_asks_for_one(folder: Path) -> None:
    (folder / "heddle.toml").write_text('streams = "streams.yaml"\n')
    assert 'warehouse = "…"   (in heddle.toml)' in typed()


def test_a_warehouse_that_cannot_be_read_is_an_error(folder: Path) -> None:
    (folder / "heddle.toml").write_text('warehouse = "w"\n')
    (folder / "w").mkdir()
    (folder / "w" / "heddle.json").write_text("{")
    done = COMMANDS.invoke(app, [])
    assert done.exit_code in (1, 2)
    assert "HDL-" in done.output


def test_the_list_has_each_command_once_in_a_line(folder: Path) -> None:
    lines = [line.strip("│ ").split() for line in typed("--help").splitlines() if line.startswith("│ ")]
    assert sorted(line[0] for line in lines if line[0] in MODULES) == sorted(MODULES)
