"""What a test tries only in `make test-slow`, `make test-slow` runs."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parent

RUN = ("engine", "spark", "longer", "reduced")
"""Fixtures and marks of the tests that ``make test-slow`` runs."""


def calls(node: ast.AST) -> int:
    """The calls of ``examples`` that have a number for ``make test-slow``."""
    called = [call for call in ast.walk(node) if isinstance(call, ast.Call) and ast.unparse(call.func) == "examples"]
    return sum(word.arg == "slow" for call in called for word in call.keywords)


def is_run(function: ast.FunctionDef) -> bool:
    """Whether ``make test-slow`` runs a test."""
    marks = {
        node.attr for part in function.decorator_list for node in ast.walk(part) if isinstance(node, ast.Attribute)
    }
    return bool((marks | {argument.arg for argument in function.args.args}) & set(RUN))


def unmarked(text: str) -> list[str]:
    """The tests that try more in the profile of ``make test-slow``, which does not run them."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and calls(node)]
    outside = [f"{calls(ast.parse(text))} calls"] * (sum(map(calls, functions)) != calls(ast.parse(text)))
    return [function.name for function in functions if not is_run(function)] + outside


def test_dear_tests_are_run_in_full() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}
    dear = [name for name, text in texts.items() if "slow=" in text]
    assert len(dear) > 5 and {name: unmarked(texts[name]) for name in dear if unmarked(texts[name])} == {}


def test_a_dear_test_that_is_not_run_is_noticed() -> None:
    settled = "@settings(max_examples=examples(1, slow=2))\ndef test_it({}): pass\n"
    assert unmarked(settled.format("")) == ["test_it"]
    assert unmarked(settled.format("engine")) == unmarked("@pytest.mark.reduced\n" + settled.format("")) == []
    assert unmarked("FEW = settings(max_examples=examples(1, slow=2))\n") == ["1 calls"]
