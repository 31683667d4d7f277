"""Reports of checks for CI: annotations of GitHub, and JUnit XML."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.output import exit_for, writing_to
from optimizer.errors.diagnostics import Diagnostic, HeddleError, printable

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


class ReportFormat(StrEnum):
    """Output format of a check."""

    text = "text"
    json = "json"
    github = "github"


class DiffFormat(StrEnum):
    """Output format of a difference of plans."""

    text = "text"
    json = "json"
    github = "github"
    markdown = "markdown"


ReportOption = Annotated[
    ReportFormat,
    typer.Option("--format", help="Text, JSON, or text with annotations for GitHub Actions (github)."),
]

JUnit = Annotated[
    Path | None, typer.Option("--junit", help="Write a report in JUnit's XML to this file too.", metavar="FILE")
]


@dataclass(frozen=True)
class Case:
    """One thing that was checked.

    - ``suite``: the file it is in, as the user named it;
    - ``name``, ``line``: its name and where it begins (0: it is about the file);
    - ``problems``: what is wrong with it, with warnings;
    - ``difference``: lines that show how it differs from what is expected;
    - ``seconds``: of wall time.
    """

    suite: str
    name: str
    line: int = 0
    problems: Sequence[Diagnostic] = ()
    difference: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def errors(self) -> list[Diagnostic]:
        return [problem for problem in self.problems if problem.severity == "error"]


def by_file(files: Sequence[str], problems: Sequence[Diagnostic]) -> list[Case]:
    """A case for each file, with the problems that are in it; those that are in no file are a case of their own."""
    names = dict.fromkeys([*files, *(problem.file for problem in problems)])
    return [
        Case(name, name or "heddle", problems=[problem for problem in problems if problem.file == name])
        for name in names
    ]


@contextmanager
def reporting(format: str, junit: Path | None) -> Iterator[list[Case]]:
    """Yield a list for cases, and report them at the end. An expected failure becomes a case, a message and an exit
    code."""
    cases: list[Case] = []
    try:
        yield cases
    except HeddleError as error:
        problems = [error.diagnostic, *error.causes]
        _deliver([*cases, *by_file((), problems)], format, junit)
        raise exit_for(error) from None
    _deliver(cases, format, junit)


def _deliver(cases: Sequence[Case], format: str, junit: Path | None) -> None:
    if format == ReportFormat.github:
        sys.stdout.writelines(f"{line}\n" for case in cases for line in workflow_commands(case))
    if junit is not None:
        try:
            with writing_to(junit, "--junit"):
                junit.write_bytes(junit_xml(cases))
        except HeddleError as error:
            raise exit_for(error) from None


# --------------------------------------------------------------------------------------------- GitHub
def workflow_commands(case: Case) -> Iterator[str]:
    """The workflow commands that show a case's problems at their lines of a pull request."""
    for problem in case.problems:
        about = f" [{problem.query}]" if problem.query else ""
        message = f"{problem.message}{about}" + (f"\nhint: {problem.hint}" if problem.hint else "")
        place = (problem.file, problem.line, problem.column)
        yield command(problem.severity, problem.code, message, *place)
    if case.difference:
        yield command("error", case.name, "\n".join(case.difference), case.suite, case.line)


def command(severity: str, title: str, message: str, file: str = "", line: int = 0, column: int = 0) -> str:
    """A workflow command: ``::error file=q.sql,line=3,col=8,title=HDL-103::message``."""
    places = {"file": _in_repository(file), "line": line, "col": column, "title": title}
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in places.items() if value)
    return f"::{severity} {properties}::{_escaped(message)}"


def _in_repository(file: str) -> str:
    """The path of a file as CI knows it: relative to GitHub's checkout, elsewhere to the working folder."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    path = Path(file).absolute() if file.isprintable() else root
    return path.relative_to(root).as_posix() if file and path != root and path.is_relative_to(root) else file


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


# ---------------------------------------------------------------------------------------------- JUnit
def junit_xml(cases: Sequence[Case]) -> bytes:
    """Cases as JUnit's XML, a suite for each file. It has no attributes but those that every reader knows."""
    from xml.etree import ElementTree

    root = ElementTree.Element("testsuites", {"name": "heddle"} | _counts(cases))
    for suite in dict.fromkeys(case.suite for case in cases):
        inside = [case for case in cases if case.suite == suite]
        name = printable(_in_repository(suite) or "heddle")
        element = ElementTree.SubElement(root, "testsuite", {"name": name} | _counts(inside))
        for case in inside:
            _add(element, case)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    failed = sum(1 for case in cases if case.errors or case.difference)
    seconds = sum(case.seconds for case in cases)
    return {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "time": f"{seconds:.3f}"}


def _add(suite: Element, case: Case) -> None:
    from xml.etree.ElementTree import SubElement

    suite_name = printable(_in_repository(case.suite) or "heddle")
    names = {"classname": suite_name, "name": suite_name if case.name == case.suite else printable(case.name)}
    element = SubElement(suite, "testcase", names, time=f"{case.seconds:.3f}")
    errors, lines = case.errors, [printable(line) for line in case.difference]
    if errors or lines:
        about = {"message": errors[0].message, "type": errors[0].code} if errors else {"message": lines[0], "type": "-"}
        text = "\n".join([*(f"{suite_name}:{case.line}" for _ in lines[:1]), *lines, *map(str, errors)])
        SubElement(element, "failure", about).text = text
    warnings = [str(problem) for problem in case.problems if problem.severity != "error"]
    if warnings:
        SubElement(element, "system-out").text = "\n".join(warnings)


def json_asked(format: str, as_json: bool) -> bool:
    """Return whether JSON is to be printed: ``--json`` is ``--format json``."""
    if as_json and format not in ("text", "json"):
        raise typer.BadParameter(f"--json is --format json, not {format}")
    return as_json or format == "json"
