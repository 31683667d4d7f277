"""Great Expectations' Data Docs of what a run checked: a page a run, in the warehouse, that needs no network.

Great Expectations' own site fetches Bootstrap, icons, fonts and scripts from elsewhere, and its templates escape
nothing. So its renderers make the content, of that what shows something is kept (elements and attributes of a list),
and the page around it is ours. It is made in the run, where Great Expectations is loaded anyway: importing it takes
13 CPU seconds, a page some milliseconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from html import escape as escape_markup
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from optimizer.errors import Diagnostic, printable
from optimizer.markup import LOGO, document, escape
from optimizer.query import digest

FOLDER = "data_docs"
"""Of the pages, in a warehouse."""

KEPT = 400
"""Pages that are kept, the newest."""


def page_name(seed: str) -> str:
    """The name of the page of the audit with that seed: a digest, so never a path."""
    return digest(seed) + ".html"


def write_page(folder: Path, name: str, result: Any, facts: Mapping[str, str]) -> None:
    """Write the page of a validation result (Great Expectations'), whole or not at all; old pages go."""
    folder.mkdir(exist_ok=True)
    temporary = folder / f".{name}.{os.getpid()}"
    temporary.write_text(page(result, facts), encoding="utf-8")
    temporary.replace(folder / name)
    pages = sorted(folder.glob("*.html"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in pages[KEPT:]:
        file.unlink(missing_ok=True)


def page(result: Any, facts: Mapping[str, str]) -> str:
    """A validation result as a page; ``facts``: lines for its head. If it cannot be rendered, the page says so."""
    try:
        body = "".join(f'<section class="card gx">{kept(section)}</section>' for section in _sections(result))
    except Exception as error:
        # the checks themselves are in quality_results: a page less is no reason to withhold answers
        found = Diagnostic("HDL-557", f"Great Expectations could not render this: {type(error).__name__}: {error}")
        body = f'<section class="card verdict ill"><h2>{escape(str(found))}</h2></section>'
    chips = "".join(f"<span><i>{escape(name)}</i> {escape(value)}</span>" for name, value in facts.items())
    head = f'<header>{LOGO}<div><h1>Data Docs</h1><p class="chips">{chips}</p></div></header>'
    back = '<nav class="menu"><a href="../operations#quality">Operations</a></nav>'
    return document("Data Docs", [back, head, body], f"<style>{STYLE}</style>")


def _sections(result: Any) -> list[str]:
    """What Great Expectations renders of a result, as it does for its own site."""
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view import DefaultJinjaSectionView

    view = DefaultJinjaSectionView()
    found = ValidationResultsPageRenderer().render(result)
    return [
        view.render({"section": section.to_json_dict(), "section_loop": {"index": number}})
        for number, section in enumerate(found.sections, start=1)
    ]


_ELEMENTS = re.compile(r"div|span|p|h[1-6]|table|thead|tbody|tr|th|td|ul|ol|li|b|strong|i|em|code|pre|small")
_VOID = re.compile(r"br|hr")
_GONE = re.compile(r"script|style|head|title|button|footer|nav|svg|iframe|object|template|select|textarea")
_CLASSES = re.compile(r"[A-Za-z0-9 _-]{0,200}", re.ASCII)


class _Kept(HTMLParser):
    """Keeps elements and classes of a list, closes what is open, and escapes every text."""

    def __init__(self) -> None:
        super().__init__()
        self.out: list[str] = []
        self.open: list[str] = []
        self.gone: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if _GONE.fullmatch(tag):
            self.gone.append(tag)
        elif not self.gone and _VOID.fullmatch(tag):
            self.out.append(f"<{tag}>")
        elif not self.gone and _ELEMENTS.fullmatch(tag):
            classes = next((value for name, value in attrs if name == "class" and value), "")
            shown = f' class="{" ".join(classes.split())}"' if classes and _CLASSES.fullmatch(classes) else ""
            self.out.append(f"<{tag}{shown}>")
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not _GONE.fullmatch(tag):
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.gone:
            if tag == self.gone[-1]:
                self.gone.pop()
        elif tag in self.open:
            while True:
                last = self.open.pop()
                self.out.append(f"</{last}>")
                if last == tag:
                    break

    def handle_data(self, data: str) -> None:
        if not self.gone:
            self.out.append("\n".join(escape_markup(printable(line)) for line in data.splitlines()) or " ")


def kept(markup: str) -> str:
    """Of markup what shows something: known elements and their classes, and all texts; nothing loads, links or runs."""
    found = _Kept()
    found.feed(markup)
    found.close()
    return "".join(found.out) + "".join(f"</{tag}>" for tag in reversed(found.open))


STYLE = """
.gx table { table-layout: auto; } .gx th, .gx td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.gx h1, .gx h2, .gx h3, .gx h4, .gx h5, .gx h6 { font-size: 15px; margin: 8px 0; }
.gx ul { padding-left: 20px; } .gx .cooltip .top, .gx [hidden] { display: none; }
.gx thead[class*="hidden"], .gx .invisible { display: none; }
.gx .text-success, .gx .badge-success { color: var(--good); } .gx .text-danger { color: var(--bad); }
.gx .fa-check-circle::before { content: "✓"; } .gx .fa-times::before { content: "✗"; }
.gx .fa-exclamation-triangle::before { content: "!"; }
.gx .badge { background: var(--code); border-radius: 4px; padding: 1px 5px; }
.gx .alert { padding: 6px 0; } .gx .show-scrollbars { overflow-x: auto; }
"""
