"""Examples for schedulers: files that parse, with calls that the command line takes."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from heddle.cli.app import app

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "schedulers"


def argument_lists(value: Any) -> Iterator[list[str]]:
    """Lists of texts that begin with a command, or with ``heddle`` and a command."""
    if isinstance(value, dict):
        for each in value.values():
            yield from argument_lists(each)
    elif isinstance(value, list):
        if value[:1] == ["heddle"] and len(value) > 1:
            yield value[1:]
        elif value[:1] == ["tick"]:
            yield value
        for each in value:
            yield from argument_lists(each)


def calls() -> list[list[str]]:
    """Every call of the command line in the examples, without ``heddle``."""
    from_yaml = [call for path in FOLDER.glob("*.yaml") for call in argument_lists(yaml.safe_load(path.read_text()))]
    nodes = [node for path in FOLDER.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    lists = [
        ast.literal_eval(node)
        for node in nodes
        if isinstance(node, ast.List) and all(isinstance(each, ast.Constant) for each in node.elts)
    ]
    from_python = [call for each in lists for call in argument_lists(each)]
    text = "".join(path.read_text() for path in sorted(FOLDER.iterdir()))
    return [
        *from_yaml,
        *from_python,
        *(line.split() for line in re.findall(r"heddle(?:_main\.py)? (tick[^\"\n]*)", text)),
    ]


def test_every_call_is_one_that_the_command_line_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_WAREHOUSE", str(tmp_path))
    assert len(calls()) >= 7
    for call in calls():
        command = get_command(app).get_command(None, call[0])  # type: ignore[attr-defined]
        assert command is not None, call
        command.make_context(call[0], call[1:]).close()


def test_the_shell_operator_is_in_a_dag() -> None:
    names: dict[str, Any] = {}
    exec((FOLDER / "shell_dag.py").read_text(), names)  # noqa: S102
    assert names["dag"].has_task("tick")


def test_python_files_compile_and_the_script_is_one_for_bash() -> None:
    for path in FOLDER.glob("*.py"):
        compile(path.read_text(), str(path), "exec")
    subprocess.run(["bash", "-n", FOLDER / "yarn.sh"], check=True)


@pytest.mark.parametrize("kind", ["CronJob", "SparkApplication"])
def test_kubernetes_files_say_what_they_are(kind: str) -> None:
    documents = [yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.yaml")]
    assert [document for document in documents if document.get("kind") == kind]
