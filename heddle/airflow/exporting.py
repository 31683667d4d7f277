"""DAG files: ``heddle airflow export`` writes one for each DAG, and renews them after an upgrade."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from heddle.airflow.names import NAMES
from optimizer.errors.diagnostics import HeddleError

STAMP = r"# heddle \S+ ([0-9a-f]{16}): "
"""How the first line of a DAG file begins: version, and digest of the lines below it."""


@dataclass(frozen=True)
class DagFile:
    """A DAG file: its place, its text, and the text that is there now; None: there is no file."""

    path: Path
    text: str
    before: str | None

    @property
    def is_changed(self) -> bool:
        return self.text != self.before

    @property
    def is_edited(self) -> bool:
        """Return whether somebody else wrote the file that is there, or edited it."""
        if self.before is None or not self.is_changed:
            return False
        first, _, body = self.before.partition("\n")
        matched = re.match(STAMP, first)
        return matched is None or matched[1] != _digest(body)


def dag_files(folder: Path, arguments: Mapping[str, str]) -> list[DagFile]:
    """The files of all DAGs in a folder, by the arguments of :meth:`heddle.airflow.dag_set.DagSet.of`. Raises HDL-115
    for a file that is there and cannot be read."""
    files = []
    for name in NAMES:
        path = folder / f"{arguments.get('prefix', '')}{name}.py"
        try:
            before = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
        except OSError as error:
            raise HeddleError("HDL-115", f"{path} cannot be read: {error.strerror}", "check DIR") from None
        files.append(DagFile(path, text_of(name, arguments), before))
    return files


def text_of(name: str, arguments: Mapping[str, str]) -> str:
    """The text of the file of a DAG."""
    # a path is any text
    given = "".join(f"    {key}={json.dumps(value)},\n" for key, value in arguments.items())
    call = f"{name}(\n{given})\n" if given else f"{name}()\n"
    body = f"from heddle.airflow import {name}\n\n{call}"
    options = " ".join(f"--{key} {shlex.quote(value)}" for key, value in arguments.items())
    renew = re.sub(r"[^ -~]", "?", f"heddle airflow export DIR {options}".rstrip())
    # Airflow reads only files in which the words DAG and airflow are
    return f"# heddle {version('heddle')} {_digest(body)}: a DAG file. After an upgrade, {renew}\n{body}"


def write_files(files: list[DagFile], force: bool) -> list[DagFile]:
    """Write the files that change and return them. Raises HDL-585 for files that somebody edited, unless ``force``;
    then nothing is written. Raises HDL-115."""
    edited = [str(file.path) for file in files if file.is_edited]
    if edited and not force:
        message = f"edited, or not written by Heddle: {', '.join(edited)}"
        raise HeddleError("HDL-585", message, "nothing was written; name another folder, or give --force")
    changed = [file for file in files if file.is_changed]
    for file in changed:
        try:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            # an Airflow that reads meanwhile sees one file or the other
            temporary = file.path.with_suffix(".new")
            temporary.write_text(file.text, encoding="utf-8")
            temporary.replace(file.path)
        except OSError as error:
            raise HeddleError("HDL-115", f"{file.path} cannot be written: {error.strerror}", "check DIR") from None
    return changed


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]
