"""Two consoles that print texts as they are: one for output, one for messages."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from optimizer.errors.diagnostics import printable


class PlainConsole(Console):
    """Prints texts as they are: names, owners and values are users' text, and neither markup nor escape sequences."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(markup=False, emoji=False, **arguments)

    def render_str(self, text: str, **arguments: Any) -> Text:
        """Text without markup, and without characters that are not to be printed."""
        lines = "\n".join(printable(line) for line in text.split("\n"))
        return super().render_str(lines, **arguments)


# into a pipe or a log, lines are as long as the tables need
console = PlainConsole(width=None if sys.stdout.isatty() else 160)

errors = PlainConsole(stderr=True)
