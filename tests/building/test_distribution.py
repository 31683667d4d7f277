"""The wheel and the sdist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from optimizer.errors.installing import EXTRAS

ROOT = Path(__file__).resolve().parents[2]


def test_every_package_of_an_extra_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= project["optional-dependencies"].keys()


def test_no_text_installs_heddle_from_the_index() -> None:
    """The index has a package of this name that is not this code."""
    files = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    files += [path for name in ("heddle", "optimizer", "spark_jobs") for path in (ROOT / name).rglob("*.py")]
    assert len(files) > 300
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install\s+['\"]?heddle\b|(?<![\w./-])heddle\[", text), path
