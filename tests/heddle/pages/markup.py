"""Pages read strictly: every element is closed, nothing is loaded, links lead to neighbours."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "col", "input"}


class Page(HTMLParser):
    """Reads a page strictly: every element is closed in order; links and forms lead to its neighbours only."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        for name, value in attrs:
            assert not name.startswith("on") and name not in ("src", "srcdoc")
            if name in ("href", "action"):
                assert value is not None and re.fullmatch(r"[A-Za-z./?=&#%0-9_-]+", value), value
                assert not value.startswith("/") and ":" not in value
                self.links.append(value)
            if name == "id" and value:
                self.ids.append(value)
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open
        self.elements.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data + " "


def read(text: str) -> Page:
    assert "<script" not in text and "url(" not in text and "@import" not in text
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(page.elements)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    page.text = " ".join(page.text.split())
    return page
