"""The examples of docs/schedulers.md: files that parse, with commands that Heddle has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from heddle.cli.app import app

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "schedulers.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


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
    """Every call of the command line on the page, without ``heddle``."""
    from_yaml = [call for block in blocks("yaml") for call in argument_lists(yaml.safe_load(block))]
    nodes = [node for block in blocks("python") for node in ast.walk(ast.parse(block)) if isinstance(node, ast.List)]
    lists = [ast.literal_eval(node) for node in nodes if all(isinstance(each, ast.Constant) for each in node.elts)]
    from_python = [call for each in lists for call in argument_lists(each)]
    lines = re.findall(r"heddle(?:_main\.py)? (tick[^`\"\n]*)", PAGE)
    return [*from_yaml, *from_python, *(line.split() for line in lines)]


def test_every_call_on_the_page_is_one_that_the_command_line_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEDDLE_WAREHOUSE", str(tmp_path))
    assert len(calls()) >= 7
    for call in calls():
        command = get_command(app).get_command(None, call[0])  # type: ignore[attr-defined]
        assert command is not None, call
        command.make_context(call[0], call[1:]).close()


def test_python_examples_compile_and_the_shell_operator_is_in_a_dag() -> None:
    assert len([compile(block, "schedulers.md", "exec") for block in blocks("python")]) == 3
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)  # noqa: S102
    assert names["BashOperator"].__module__.startswith("airflow")


@pytest.mark.parametrize("kind", ["CronJob", "SparkApplication"])
def test_kubernetes_files_say_what_they_are(kind: str) -> None:
    assert [block for block in map(yaml.safe_load, blocks("yaml")) if block.get("kind") == kind]
