"""Build backend: setuptools, over a tree in which every package lies below ``heddle``.

The repository keeps its top-level folders, and an editable installation has them too. Only the wheel has other names
(:mod:`building.mapping`).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from setuptools import build_meta

from building.mapping import FOLDERS, mapped

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
