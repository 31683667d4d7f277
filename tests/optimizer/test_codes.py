"""Every error code is declared once, told somewhere, documented, and named by a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from optimizer.errors import codes
from optimizer.errors.codes import AREAS, CODES, DECLARED, Code

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = Path(codes.__file__)
ERRORS = ROOT / "docs" / "errors.md"

UNTESTED: dict[str, str] = {}
"""Codes that no test names, and why."""


def sources() -> Iterator[Path]:
    """The modules of the project, without the registry."""
    for folder in ("heddle", "optimizer", "spark_jobs", "plugins", "dags", "docker"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent != REGISTRY.parent or not path.name.startswith("code"):
                yield path


@cache
def nodes(path: Path) -> list[ast.AST]:
    """The syntax tree of a module, flat; empty if it names no code."""
    text = path.read_text()
    return list(ast.walk(ast.parse(text))) if "HDL-" in text else []


def code_in(node: ast.AST) -> str | None:
    """The code that a literal is, as one has it that is told or compared; None for any other."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text and re.fullmatch(r"HDL-\d{3}", node.value) else None  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def used() -> dict[str, list[str]]:
    """The places of each code that stands in the sources as a value."""
    places: dict[str, list[str]] = {}
    for path in sources():
        for node in nodes(path):
            code = code_in(node)
            if code is not None:
                places.setdefault(code, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
    assert len(places) > 100
    return places


def test_every_code_in_the_sources_is_declared(used: dict[str, list[str]]) -> None:
    undeclared = {code: places for code, places in used.items() if code not in CODES}
    assert not undeclared, f"declare them in {REGISTRY.relative_to(ROOT)}"


def test_every_declared_code_is_used(used: dict[str, list[str]]) -> None:
    assert CODES.keys() - used.keys() == set(), "nothing tells these codes: remove them, and never use them again"


def test_no_text_names_a_code_that_is_not_declared() -> None:
    """Docstrings and pages too."""
    for path in (*sources(), ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        assert set(re.findall(r"HDL-\d{3}", path.read_text())) <= CODES.keys(), path


def test_each_code_is_declared_once_in_order_and_says_what_to_do() -> None:
    numbers = [code.code for code in DECLARED]
    assert numbers == sorted(set(numbers)) and len(CODES) == len(DECLARED)
    for code in DECLARED:
        assert re.fullmatch(r"HDL-\d{3}", code.code) and code.area in AREAS.values()
        for text in (code.meaning, code.action):
            assert text.endswith(".") and ". " not in text and "|" not in text and "\n" not in text, code.code


def test_what_scripts_rely_on_stays() -> None:
    """Exit codes, what fails a run and the statuses of pages: a change of them is a change of the interface."""
    wrong_usage = {code.code for code in DECLARED if code.exit_code == 2}
    texts = (111, 112, 114, 115, 116, 123, 124, *range(131, 135), 136)
    other_codes = (
        407,
        474,
        476,
        477,
        495,
        501,
        502,
        504,
        525,
        527,
        549,
        572,
        574,
        575,
        584,
        *range(620, 624),
        626,
        634,
        *range(641, 645),
        *range(646, 649),
    )
    assert wrong_usage == {f"HDL-{n}" for n in (*texts, *other_codes)}
    assert {code.code for code in DECLARED if code.fatal} == {
        f"HDL-{n}" for n in (510, 511, 512, 513, 540, 542, 543, 544)
    }
    assert {code.code: code.http_status for code in DECLARED if code.http_status != 400} == {
        "HDL-502": 404,
        "HDL-507": 404,
        "HDL-521": 404,
        "HDL-551": 409,
        "HDL-554": 403,
        "HDL-555": 429,
        "HDL-559": 404,
        "HDL-632": 410,
        "HDL-633": 401,
    }


def test_decisions_by_code() -> None:
    assert (codes.exit_code("HDL-111"), codes.exit_code("HDL-404")) == (2, 1)
    assert codes.is_fatal("HDL-542") and not codes.is_fatal("HDL-404")
    assert (codes.http_status("HDL-554"), codes.http_status("HDL-404")) == (403, 400)
    # a warehouse may hold what a later Heddle tells
    assert (codes.exit_code("HDL-999"), codes.is_fatal("HDL-999"), codes.http_status("HDL-999")) == (1, False, 400)


def calls_with_a_code(tree: list[ast.AST]) -> Iterator[tuple[str, bool]]:
    """Each code that is given to a call, and whether it is told as a warning there."""
    appended = {
        argument
        for node in tree
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("findings.warnings.append")
        for argument in node.args
    }
    for node in tree:
        if isinstance(node, ast.Call) and node.args and (code := code_in(node.args[0])) is not None:
            severities = [ast.literal_eval(word.value) for word in node.keywords if word.arg == "severity"]
            yield code, severities == ["warning"] or node in appended


def test_severities_are_as_declared() -> None:
    warnings: dict[str, set[bool]] = {}
    for path in sources():
        for code, is_warning in calls_with_a_code(nodes(path)):
            warnings.setdefault(code, set()).add(is_warning)
    expected: dict[str, set[bool]] = {"error": {False}, "warning": {True}, "either": {False, True}, "record": set()}
    for name, seen in warnings.items():
        assert seen == expected[CODES[name].severity], name
    assert {code.code for code in DECLARED if code.severity == "warning"} <= warnings.keys()


def test_the_page_of_errors_is_up_to_date() -> None:
    renew = f"renew it: .venv/bin/python -m {codes.__name__} > {ERRORS.relative_to(ROOT)}"
    assert ERRORS.exists() and ERRORS.read_text() == codes.page(), renew


def test_the_page_has_a_row_for_each_code() -> None:
    rows = re.findall(r"^\| (HDL-\d{3}) \|.*\|$", codes.page(), re.MULTILINE)
    assert rows == [code.code for code in DECLARED]


def test_every_code_is_named_by_a_test() -> None:
    tests = (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    tested_codes = {code for path in tests for code in re.findall(r"HDL-\d{3}", path.read_text())}
    assert CODES.keys() - tested_codes == UNTESTED.keys(), (
        "write a test that names it, or say in UNTESTED why there is none"
    )


def test_a_code_of_no_area_has_none() -> None:
    with pytest.raises(KeyError):
        Code("HDL-799", "Nothing.", "Nothing.").area  # noqa: B018
