"""Data Docs: Great Expectations' own words on a page that loads nothing, whatever is in them."""

from __future__ import annotations

import os
import re
import socket
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs import data_docs
from spark_jobs.data_docs import kept, page, page_name, write_page
from spark_jobs.quality import FINDINGS, _document, expectations

FACTS = {"answers of": "2013-07-01 .. 2013-07-02"}


def summary(**found: Any) -> pd.DataFrame:
    row = {"query": "volume", "answers": 40, **dict.fromkeys(FINDINGS, 0), "examples": ""}
    return pd.DataFrame([row | found, row | {"query": "delays"}])


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What Great Expectations found in good answers and in hostile ones that stand twice."""
    found: dict[str, Any] = {}
    assert all(check["success"] for check in expectations(summary(), lambda result: found.update(good=result)))
    hostile = {"query": "<script>alert(1)</script><img src=x>", "repeated": 3}
    checks = expectations(summary(**hostile), lambda result: found.update(bad=result))
    assert [check["check"] for check in checks if not check["success"]] == [
        "gx:expect_column_values_to_be_in_set(repeated)"
    ]
    return found


def test_a_page_says_what_was_expected_and_found(results: dict[str, Any]) -> None:
    good, bad = page(results["good"], FACTS), page(results["bad"], FACTS)
    for text in (good, bad):
        assert "HDL-557" not in text and "answers of" in text
        assert not re.search(r"<(script|img|link|iframe|a href=.?http)|url\(|@import|\son\w+=|https?:", text)
    assert "values must never be null" in good and "repeated" in good and good.count("fas fa-check-circle") == 13
    assert "fas fa-times" not in good and bad.count("fas fa-times") == 2
    assert len(bad) < 100_000


def test_no_network_is_asked(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a page was not to need a network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    assert "HDL-557" not in page(results["good"], FACTS)


def test_what_cannot_be_rendered_is_said_and_withholds_nothing() -> None:
    text = page(object(), FACTS)
    assert "HDL-557" in text and "AttributeError" in text


def test_pages_are_written_whole_and_the_oldest_go(
    results: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_docs, "KEPT", 2)
    names = [page_name(seed) for seed in ("a", "b", "../../c")]
    for number, name in enumerate(names):
        write_page(tmp_path / "docs", name, results["good"], FACTS)
        os.utime(tmp_path / "docs" / name, (number, number))
    assert sorted(file.name for file in (tmp_path / "docs").iterdir()) == sorted(names[1:])
    assert all(re.fullmatch(r"[0-9a-f]{16}\.html", name) for name in names)


def test_an_audit_without_answers_has_a_page_too(results: dict[str, Any], tmp_path: Path) -> None:
    _document(tmp_path / "docs", [], "seed", 0, {"trades": 1}, results["good"])
    assert "1970-01-01" in (tmp_path / "docs" / page_name("seed")).read_text()


class _Strict(HTMLParser):
    """Fails on what is not closed in order, and on any attribute but a class."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "a", "iframe", "style", "link", "form", "svg", "object")
        assert [name for name, _ in attrs] in ([], ["class"])
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


PIECES = st.sampled_from(
    [
        *(
            "<div>",
            "</div>",
            '<p class="x">',
            "</p>",
            "<script>",
            "</script>",
            "<style>",
            "</style>",
            "<br/>",
            "<img src=x>",
        ),
        *(
            '<b onclick="x">',
            "</b>",
            "<a href='javascript:x'>",
            "</a>",
            "<!--",
            "-->",
            "<![CDATA[",
            "]]>",
            "&lt;script&gt;",
        ),
        *(
            "text",
            "<",
            ">",
            '"',
            "'",
            "&",
            "&#60;",
            "</",
            "<svg/onload=x>",
            "<table><tr><td>",
            "\u202e",
            '<i class="a\'>">',
        ),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=6)), max_size=30))
def test_only_known_elements_are_kept(pieces: list[str]) -> None:
    _Strict(kept("".join(pieces)))


def test_texts_are_kept() -> None:
    assert (
        kept('<div id="x" class="row"><p>a &lt; b<script>c</script>d</div>e')
        == '<div class="row"><p>a &lt; bd</p></div>e'
    )
