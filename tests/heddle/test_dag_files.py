"""``heddle airflow export``: what it writes, renews, and leaves alone."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from heddle.airflow.names import NAMES
from tests.in_process import heddle


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HEDDLE_HOME", "HEDDLE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def calls(folder: Path) -> dict[str, dict[str, object]]:
    """The DAGs that the files of a folder make, with their arguments."""
    made = {}
    for path in folder.glob("*.py"):
        statement = ast.parse(path.read_text()).body[-1]
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        call = statement.value
        made[ast.unparse(call.func)] = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    return made


def test_a_file_for_each_dag_names_the_project_here(folder: Path) -> None:
    Path("heddle.toml").write_text('warehouse = "house"\n')
    done = heddle("airflow", "export", "dags")
    assert done.code == 0 and f"project: {folder}" in done.out, done.err
    assert calls(folder / "dags") == {name: {"project": str(folder)} for name in NAMES}
    assert all(path.read_text().startswith("# heddle 0.") for path in (folder / "dags").iterdir())


def test_airflow_takes_them_for_dag_files(folder: Path) -> None:
    from airflow.utils.file import might_contain_dag

    assert heddle("airflow", "export", "dags").code == 0
    paths = list((folder / "dags").iterdir())
    assert len(paths) == 5 and all(might_contain_dag(str(path), safe_mode=True) for path in paths)


def test_without_a_project_the_environment_of_airflow_says_it(folder: Path) -> None:
    done = heddle("airflow", "export", "dags", "--json")
    assert done.code == 0 and json.loads(done.out)["project"] is None
    assert calls(folder / "dags") == {name: {} for name in NAMES}


def test_options_are_arguments_whatever_their_text(folder: Path) -> None:
    hostile = "a\"; import os\n#'\\"
    options = ["--project", "/srv/é", "--prefix", "team_a_", "--owner", hostile, "--pool", "two"]
    done = heddle("airflow", "export", "dags", *options)
    assert done.code == 0 and "HDL-583 /srv/é has no heddle.toml on this machine" in done.err
    arguments = {"project": "/srv/é", "prefix": "team_a_", "owner": hostile, "pool": "two"}
    assert calls(folder / "dags") == dict.fromkeys(NAMES, arguments)
    assert {path.name for path in (folder / "dags").iterdir()} == {f"team_a_{name}.py" for name in NAMES}


def test_files_are_renewed_unless_somebody_edited_them(folder: Path) -> None:
    Path("heddle.toml").touch()
    assert heddle("airflow", "export", "dags").out.count("wrote ") == 5
    assert heddle("airflow", "export", "dags").out.count("unchanged ") == 5
    # of a version before, whose text was another
    renewed = heddle("airflow", "export", "dags", "--owner", "anna")
    assert renewed.code == 0 and renewed.out.count("wrote ") == 5
    edited = folder / "dags" / "repair_results.py"
    edited.write_text(edited.read_text().replace("anna", "bert"))
    before = {path: path.read_text() for path in (folder / "dags").iterdir()}
    refused = heddle("airflow", "export", "dags", "--owner", "cleo")
    assert refused.code == 1 and "HDL-585" in refused.err and "repair_results.py" in refused.err
    assert before == {path: path.read_text() for path in (folder / "dags").iterdir()}
    forced = heddle("airflow", "export", "dags", "--owner", "cleo", "--force")
    assert forced.code == 0 and calls(folder / "dags")["repair_results"]["owner"] == "cleo"


def test_a_file_of_somebody_else_stays(folder: Path) -> None:
    (folder / "dags").mkdir()
    (folder / "dags" / "land_topics.py").write_text("mine = 1\n")
    done = heddle("airflow", "export", "dags")
    assert done.code == 1 and "HDL-585" in done.err
    assert [path.name for path in (folder / "dags").iterdir()] == ["land_topics.py"]


def test_wrong_calls_are_told(folder: Path) -> None:
    assert heddle("airflow", "export", "dags", "--prefix", "Team").code == 2
    assert heddle("airflow", "import", "dags").code == 2
    Path("file").touch()
    done = heddle("airflow", "export", "file/dags")
    assert done.code == 2 and "HDL-115" in done.err
