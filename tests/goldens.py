"""Goldens: texts that are kept in ``tests/golden`` and compared with what the code says now.

There is one way to renew them: run the tests with ``HEDDLE_GOLDENS=renew`` in the environment, and read what git says
has changed.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden"
RENEW = "HEDDLE_GOLDENS"
MOST_LINES = 60
"""Lines of a difference that are shown."""


def check(name: str, text: str) -> None:
    """Compare a text with the golden of that name, or renew it. Raises AssertionError with the difference."""
    file = FOLDER / name
    text = text.rstrip("\n") + "\n"
    if os.environ.get(RENEW) == "renew":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    saved = file.read_text(encoding="utf-8") if file.exists() else ""
    if saved == text:
        return
    lines = list(difflib.unified_diff(saved.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="", n=2))
    more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    hint = f"If this change is wanted: {RENEW}=renew python -m pytest {Path(__file__).parent.name}/test_goldens.py"
    raise AssertionError("\n".join([f"{name} is not what it was", *lines[:MOST_LINES], *more, hint]))


def as_json(data: Any) -> str:
    """JSON whose short lists and objects stand in one line, so that a difference is read easily."""
    return "\n".join(_lines(data, ""))


def _lines(data: Any, indent: str) -> list[str]:
    flat = json.dumps(data, ensure_ascii=False)
    if len(indent) + len(flat) <= 110 or not isinstance(data, (dict, list)) or not data:
        return [indent + flat]
    lines = []
    for key in data if isinstance(data, dict) else range(len(data)):
        name = f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(data, dict) else ""
        first, *following = _lines(data[key], indent + " ")
        lines += [f"{indent} {name}{first.strip()}", *following]
        lines[-1] += ","
    lines[-1] = lines[-1].removesuffix(",")
    opening, closing = "{}" if isinstance(data, dict) else "[]"
    return [indent + opening, *lines, indent + closing]


# ------------------------------------------------------------------------------------------------- pages
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
INLINE = {"a", "abbr", "b", "button", "code", "em", "i", "input", "label", "mark", "select", "small", "span", "strong"}


class _Outline(HTMLParser):
    """What a browser shows of a page, in lines: elements with their attributes, and texts as they are shown.

    Attributes and classes are sorted, white space is collapsed and left out where a block begins or ends, comments are
    left out, and an element that is closed at once is as one that has nothing in it. Style sheets are kept apart.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.styles: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.at_start = True
        self.feed(page)
        self.close()
        self._flush(True)
        assert self.open == [], f"not closed: {self.open}"

    def _flush(self, block: bool) -> None:
        """Write the text that was collected; at a block's edge without the space that nobody sees."""
        if block:
            self.text = self.text.rstrip(" ")
        if self.text:
            self.lines.append(" " * len(self.open) + json.dumps(self.text, ensure_ascii=False))
            self.at_start = self.text.endswith(" ")
        self.text = ""
        if block:
            if self.lines and self.lines[-1].strip() == '" "':
                self.lines.pop()
            self.at_start = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._flush(tag not in INLINE)
        shown = []
        for name, value in sorted(attrs, key=lambda attribute: attribute[0]):
            words = (value or "").split()
            value = " ".join(sorted(words) if name == "class" else words)
            if name == "class" and not words:
                continue
            shown.append(name if not value else f"{name}={json.dumps(value, ensure_ascii=False)}")
        if tag != "style":
            self.lines.append(" ".join([" " * len(self.open) + f"<{tag}>", *shown]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self._flush(tag not in INLINE)
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"]:
            self.styles.append(data)
            return
        if self.open[-1:] == ["textarea"] or "pre" in self.open:
            self.text += data
            return
        if not data.strip() and (self.at_start or not data):
            return
        text = " ".join(data.split())
        text = (" " if data[0].isspace() and not self.at_start else "") + text
        text += " " if data[-1].isspace() and text.strip() else ""
        self.text += text

    def handle_decl(self, decl: str) -> None:
        self.lines.append(f"<!{decl.lower()}>")


def outline(page: str) -> str:
    """A page in a normal form: the same for all pages of which a browser shows the same."""
    return "\n".join(_Outline(page).lines)


def styles(pages: list[str]) -> str:
    """The style sheets of some pages, a rule a line, each once, without comments and white space."""
    rules: dict[str, None] = {}
    for page in pages:
        for sheet in _Outline(page).styles:
            text = re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL)
            text = re.sub(r"\s*([{};,])\s*", r"\1", " ".join(text.split()))
            text = text.replace(": ", ":").replace(";}", "}")
            rules |= dict.fromkeys(rule.strip() + "}" for rule in text.split("}") if rule.strip())
    return "\n".join(rules)
