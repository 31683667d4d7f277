"""Tables of benchmarks as text."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def rendered(shown: Sequence[Table]) -> str:
    console = Console(width=200, file=io.StringIO())
    for table in shown:
        console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]
