"""The project file ``heddle.toml``: its place and content.

:mod:`spark_jobs.store.settings` knows the keys that it may have and passes in the form of each.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.workload.urls import SCHEMES, scheme_of
from spark_jobs.store.file_trust import distrust

NAME = "heddle.toml"

BIGGEST = 65_536
"""Bytes that are read of it."""

Form = Literal["path", "paths", "text", "texts", "pairs", "number", "port"]
"""Form of a key's value. Paths are relative to the file's folder; pairs become texts ``name=value``."""

WORDS: Mapping[Form, str] = {
    "path": 'a path: "…"',
    "paths": 'a path, or a list of paths: ["…", "…"]',
    "text": 'a text: "…"',
    "texts": 'a text, or a list of texts: ["…", "…"]',
    "pairs": 'a table of texts: {name = "…"}',
    "number": "a whole number, 0 or more",
    "port": "a port, 0 to 65535",
}
MOST: Mapping[Form, int] = {"number": 999_999_999, "port": 65_535}


@dataclass(frozen=True)
class ProjectFile:
    """Content of a project file.

    Parameters
    ----------
    path
        The file; None: there is none.
    values
        One or more texts by key: numbers as texts too, paths absolute.
    text
        The complete text of the file.
    """

    path: Path | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    text: str = field(default="", repr=False)

    def line_of(self, key: str) -> int:
        """The line, from 1, that a key's value begins in; 0: the file has none."""
        return _lines_of(self.text).get(key, 0)


def read_project(
    home: Path, forms: Mapping[str, Form], elsewhere: Mapping[str, str], named: Path | None = None
) -> ProjectFile:
    """Read the project file of the folder ``named``, else the nearest upward from the working directory, else the one
    in ``home``.

    ``forms``: the forms of the keys that it may have. ``elsewhere``: for keys that it may not have, the place to
    set them. Raises HDL-123 for a file that cannot be read or has a key or value that is not allowed, HDL-583 if the
    folder ``named`` has no project file.
    """
    path = _nearest(home) if named is None else named / NAME
    if named is not None and not os.path.isfile(named / NAME):  # noqa: PTH113 - Path.is_file raises where it may not look
        hint = "HEDDLE_PROJECT, or `project` of a DAG file, is the folder of a project: heddle init makes one"
        raise HeddleError("HDL-583", f"{named} has no {NAME}", hint)
    if path is None:
        return ProjectFile()
    try:
        with path.open("rb") as file:
            data = file.read(BIGGEST + 1)
    except OSError as error:
        raise _wrong(path, f"it cannot be read: {error.strerror}", "check its permissions") from None
    if len(data) > BIGGEST:
        raise _wrong(path, f"it is longer than {BIGGEST:,} bytes", "leave only settings in it")
    return _parsed(path, data, tuple(sorted(forms.items())), tuple(sorted(elsewhere.items())))


def _nearest(home: Path) -> Path | None:
    """Path of the project file. Raises HDL-123 for one above the working directory that other users control."""
    for folder in _upward():
        path = folder / NAME
        if os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises where it may not look
            if not _is_same(folder, home):
                _check_trusted(path)
            return path
    home_file = home / NAME
    return home_file.absolute() if os.path.isfile(home_file) else None  # noqa: PTH113


def _is_same(folder: Path, home: Path) -> bool:
    """Return whether a folder is the one that the environment names: not only the same file in both, which may be a
    link.
    """
    try:
        return folder.samefile(home)
    except OSError:
        return False


def _check_trusted(path: Path) -> None:
    """Raises HDL-123 for a project file that somebody else may have put where it is, or may change."""
    try:
        problem = distrust(path)
    except OSError as error:
        raise _wrong(path, f"it cannot be read: {error.strerror or error}", "check its permissions") from None
    if problem is None:
        return
    what = "it" if problem.entry == path else str(problem.entry)
    hint = f"if you trust it: export HEDDLE_HOME={shlex.quote(str(path.parent))}"
    if problem.can_be_closed:
        hint = f"chmod go-w {shlex.quote(str(problem.entry))}; or, {hint}"
    raise _wrong(path, f"{what} {problem.reason}", hint)


def _upward() -> Iterator[Path]:
    try:
        working = Path.cwd()
    except OSError:
        return  # it was removed
    yield from (working, *working.parents)


@lru_cache(8)
def _parsed(
    path: Path, data: bytes, forms: tuple[tuple[str, Form], ...], elsewhere: tuple[tuple[str, str], ...]
) -> ProjectFile:
    """A project file as it is read. Raises HDL-123."""
    # most projects have none
    import tomllib

    known, hints = dict(forms), dict(elsewhere)
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        content = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _wrong(path, "it is not UTF-8", "save it as UTF-8", line, 1) from None
    except (ValueError, RecursionError) as error:
        raise _bad_toml(path, text, str(error)) from None
    values: dict[str, tuple[str, ...]] = {}
    lines = _lines_of(text)
    for key, value in content.items():
        line, column = lines.get(key, 0), 1 if key in lines else 0
        if key not in known:
            hint = hints.get(key) or meant(key, known, shown=20)
            raise _wrong(path, f"there is no setting {key}", hint, line, column)
        try:
            values[key] = _value(value, known[key], path.parent)
        except ValueError as error:
            raise _wrong(path, f"{key} {error}", f"it is {WORDS[known[key]]}", line, column) from None
    return ProjectFile(path, values, text)


def _bad_toml(path: Path, text: str, message: str) -> HeddleError:
    """Error of text that is not TOML, with the parser's message."""
    hint = 'lines are: key = "text", key = ["text", "text"] or key = 7'
    place = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if place is None:
        return _wrong(path, "it is no TOML", hint)
    rows = text.split("\n")
    line, column = (int(place[1]), int(place[2])) if place[1] else (len(rows), len(rows[-1]) + 1)
    return _wrong(path, f"it is no TOML: {message[: place.start()]}", hint, line, column)


def _value(value: Any, form: Form, folder: Path) -> tuple[str, ...]:
    """A value as settings take it. Raises ValueError in words that follow the key."""
    if form in MOST:
        if type(value) is not int:
            raise ValueError(f"is {_kind(value)}, no whole number")
        if not 0 <= value <= MOST[form]:
            raise ValueError("is a number that it cannot be")
        return (str(value),)
    if form == "pairs":
        if not isinstance(value, dict):
            raise ValueError(f"is {_kind(value)}, no table")
        return tuple(f"{name}={_text(text, False, folder)}" for name, text in value.items())
    if form in ("paths", "texts"):
        parts = value if isinstance(value, list) else [value]
        if not parts:
            raise ValueError("is an empty list")
        return tuple(_text(part, form == "paths", folder) for part in parts)
    return (_text(value, form == "path", folder),)


def _text(value: Any, is_path: bool, folder: Path) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is {_kind(value)}, no {'path' if is_path else 'text'}")
    if not value.strip() or "\0" in value:
        raise ValueError("is empty" if not value.strip() else "has a character that no value may have")
    return str(folder / value) if is_path and scheme_of(value) not in SCHEMES else value


def _kind(value: Any) -> str:
    kinds = ((bool, "true or false"), (int, "a number"), (float, "a number"), (str, "a text"), (list, "a list"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "a table or a time")


@lru_cache(8)
def _lines_of(text: str) -> Mapping[str, int]:
    """The line, from 1, that each key is in: what parses by itself is a statement, maybe of several lines."""
    import tomllib

    line_of_key: dict[str, int] = {}
    rows, first = text.split("\n"), 0
    for last in range(1, len(rows) + 1):
        try:
            keys = tomllib.loads("\n".join(rows[first:last]))
        except (ValueError, RecursionError):
            continue
        for key in keys:
            line_of_key.setdefault(key, first + 1)
        first = last
    return line_of_key


def _wrong(path: Path, message: str, hint: str, line: int = 0, column: int = 0) -> HeddleError:
    return HeddleError("HDL-123", message, hint, file=str(path), line=line, column=column)
