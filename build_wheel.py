"""Build of the wheel: setuptools, over a tree in which every package lies below ``heddle``.

``spark_jobs`` is a common name of folders with DAGs. A wheel with a top-level package of that name would hide them, so
the wheel has one top-level package, ``heddle``. The repository keeps its top-level folders, and an editable
installation has them too.
"""

from __future__ import annotations

import io
import re
import shutil
import tokenize
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from setuptools import build_meta

build_sdist = build_meta.build_sdist
build_editable = build_meta.build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable

COPIED = ("pyproject.toml", "README.md", "constraints.txt")
"""Files of the project that the build of a wheel reads."""

SCHEMAS = "docs/schemas"
"""Folder of the JSON schemas, ``heddle/schemas`` in the wheel."""

PACKAGES = {"spark_jobs": "heddle._jobs", "optimizer": "heddle._optimizer"}
"""Packages of the repository, and their names in the wheel."""

FOLDERS = {name: package.replace(".", "/") for name, package in PACKAGES.items()}
"""Folders of the repository, and their places in the wheel."""

_NAME = "|".join(PACKAGES)
_IN_CODE = re.compile(rf"(\b(?:from|import)\s+)({_NAME})(?=[\s.,;]|$)")
_MODULE = re.compile(rf"(?<![\w.-])({_NAME})(?=\.[A-Za-z_{{])")
_PATH = re.compile(rf"(?<![\w.-])({_NAME})(?=/)")
_TEXTS = {tokenize.STRING} | {getattr(tokenize, name) for name in ("FSTRING_MIDDLE",) if hasattr(tokenize, name)}

Position = tuple[int, int]


def mapped(source: str) -> str:
    """Return a module's source with the names that the wheel has.

    Rewritten are import statements, modules and paths in strings (``"spark_jobs.engine.session"``,
    ``"spark_jobs/jobs/aggregate_windows.py"``, ``"from optimizer.errors import codes"``), and a string that is the name
    of a folder and nothing else (``"spark_jobs"`` becomes ``"heddle/_jobs"``). Comments and other names stay.

    Raises ValueError for ``import spark_jobs.x`` without ``as``: the name that it binds would be another one.
    """
    lines = source.splitlines(keepends=True)
    replaced: list[tuple[Position, Position, str]] = []
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    statement = ""
    for number, token in enumerate(tokens):
        if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT) or token.string == ";":
            statement = ""
        elif token.type == tokenize.NAME:
            statement = statement or token.string
            is_imported = statement in ("from", "import") and tokens[number - 1].string in ("from", "import", ",")
            if token.string in PACKAGES and is_imported:
                if statement == "import" and not _is_renamed(tokens, number):
                    raise ValueError(f"line {token.start[0]}: import {token.string} … needs `as`")
                replaced.append((token.start, token.end, PACKAGES[token.string]))
        elif token.type in _TEXTS:
            statement = statement or "text"
            # of the source: a token of an f-string has its double braces as single ones
            text = _between(lines, token.start, token.end)
            # a replacement field may follow, as in f"spark_jobs.{name}"
            field = "{" if tokens[number + 1].string == "{" else ""
            new = _mapped_text(text + field).removesuffix(field)
            if text != new:
                replaced.append((token.start, token.end, new))
        elif token.type != tokenize.COMMENT:
            statement = statement or token.string
    for start, end, text in reversed(replaced):
        first, last = start[0] - 1, end[0] - 1
        lines[first : last + 1] = [lines[first][: start[1]] + text + lines[last][end[1] :]]
    return "".join(lines)


def _between(lines: list[str], start: Position, end: Position) -> str:
    """The source between two positions, lines from 1 and columns from 0."""
    part = lines[start[0] - 1 : end[0]]
    return "".join([*part[:-1], part[-1][: end[1]]])[start[1] :]


def _is_renamed(tokens: list[tokenize.TokenInfo], number: int) -> bool:
    """Return whether the module that is imported from a token on is given another name."""
    while tokens[number].type == tokenize.NAME and tokens[number].string != "as" or tokens[number].string == ".":
        number += 1
    return tokens[number].string == "as"


def _mapped_text(text: str) -> str:
    """The text of a string token, with its prefix and quotes."""
    folder = re.fullmatch(rf"([A-Za-z]*(['\"]))({_NAME})(\2)", text)
    if folder:
        return f"{folder[1]}{FOLDERS[folder[3]]}{folder[4]}"
    text = _IN_CODE.sub(lambda match: match[1] + PACKAGES[match[2]], text)
    text = _MODULE.sub(lambda match: PACKAGES[match[1]], text)
    return _PATH.sub(lambda match: FOLDERS[match[1]], text)


def build_wheel(
    wheel_directory: str, config_settings: Mapping[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel into a folder, from a copy of the sources under their names in the wheel."""
    target = str(Path(wheel_directory).resolve())
    with TemporaryDirectory() as folder:
        arrange(Path.cwd(), Path(folder))
        with chdir(folder):
            name: str = build_meta.build_wheel(target, config_settings)
    return name


def arrange(project: Path, folder: Path) -> None:
    """Copy the sources of a project into a folder, as the wheel has them."""
    for name in COPIED:
        shutil.copy(project / name, folder)
    unshipped = shutil.ignore_patterns("__pycache__", "papers")
    for source, place in ({"heddle": "heddle"} | FOLDERS | {SCHEMAS: "heddle/schemas"}).items():
        shutil.copytree(project / source, folder / place, ignore=unshipped)
    for path in folder.rglob("*.py"):
        path.write_text(mapped(path.read_text(encoding="utf-8")), encoding="utf-8")
