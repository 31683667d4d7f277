"""The workload files that are named, and their text. Apart from the parser, whose library takes longer to import."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO
from weakref import WeakKeyDictionary

from optimizer.errors.diagnostics import HeddleError

FILE_BYTES = 64 << 20
"""Largest workload file that is read."""

STDIN, STDIN_NAME = Path("-"), "stdin"
"""The path that names standard input, and how findings name it."""


def read_text(path: str | Path) -> str:
    """The text of a workload file. Raises HDL-111 if it cannot be read, is too large, or no UTF-8."""
    file = shown_path(path)
    try:
        content = _standard_input() if Path(path) == STDIN else _content(path)
        if len(content) > FILE_BYTES:
            raise HeddleError("HDL-111", f"is larger than {FILE_BYTES} bytes", "split it", file=file)
        return content.decode("utf-8-sig")
    except OSError as error:
        raise HeddleError("HDL-111", f"cannot be read: {error.strerror}", file=file) from None
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 text (byte {error.start})"
        raise HeddleError("HDL-111", message, "save it as UTF-8", file=file) from None


def shown_path(path: str | Path) -> str:
    """A workload file as findings name it."""
    return STDIN_NAME if Path(path) == STDIN else str(path)


def _content(path: str | Path) -> bytes:
    with Path(path).open("rb") as opened:
        return opened.read(FILE_BYTES + 1)


_read: WeakKeyDictionary[TextIO, bytes] = WeakKeyDictionary()


def _standard_input() -> bytes:
    """Read standard input once, and return the same bytes to later callers."""
    if sys.stdin not in _read:
        _read[sys.stdin] = sys.stdin.buffer.read(FILE_BYTES + 1)
    return _read[sys.stdin]


def workload_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files of some paths, in the order of their names.

    A folder stands for the ``*.sql`` in it and below, a pattern for its matches (``**``: any folders), ``-`` for
    standard input. Folders whose names begin with a dot are skipped.

    Raises HDL-111 for a path without a file.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path == STDIN or path.is_file():
            matches = [path]
        elif path.is_dir():
            below = (file for file in path.rglob("*.sql") if file.is_file())
            matches = sorted(file for file in below if not any(map(_is_hidden, file.relative_to(path).parts)))
        else:
            matching = glob.glob(str(path), recursive=True)  # noqa: PTH207
            matches = sorted(file for file in map(Path, matching) if file.is_file())
        if not matches:
            message = f"there is no .sql file in {path}" if path.is_dir() else f"there is no file {path}"
            raise HeddleError("HDL-111", message, "check the path", file=str(path))
        files += matches
    return list(dict.fromkeys(files))


def _is_hidden(name: str) -> bool:
    return name.startswith(".")
