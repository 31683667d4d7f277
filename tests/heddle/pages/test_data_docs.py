"""Data Docs: Great Expectations' own words, kept as a result and shown on a page that loads nothing."""

from __future__ import annotations

import json
import os
import re
import socket
from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.pages.data_docs import page
from spark_jobs.audit.checks import data_docs
from spark_jobs.audit.checks.data_docs import document, document_file, page_name, read_document, write_document
from spark_jobs.audit.checks.suite import FINDINGS, expectations
from spark_jobs.store.storage import Place
from tests.heddle.pages import markup
from tests.sizes import examples

FACTS = {"answers of": "2013-07-01 .. 2013-07-02"}


def summary(**found: Any) -> pd.DataFrame:
    row = {"query": "volume", "answers": 40, **dict.fromkeys(FINDINGS, 0), "examples": ""}
    return pd.DataFrame([row | found, row | {"query": "delays"}])


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What Great Expectations found in good answers and in hostile ones that stand twice."""
    gx_results: dict[str, Any] = {}
    assert all(check["success"] for check in expectations(summary(), lambda result: gx_results.update(good=result)))
    hostile = {"query": "<script>alert(1)</script><img src=x>", "repeated": 3}
    checks = expectations(summary(**hostile), lambda result: gx_results.update(bad=result))
    assert [check["check"] for check in checks if not check["success"]] == [
        "gx:expect_column_sum_to_be_between(repeated)"
    ]
    return gx_results


def read(html: str) -> str:
    """The text of a page of Data Docs, which sends nothing and leads to the operations only."""
    assert "https:" not in html
    parsed_page = markup.read(html)
    assert "form" not in parsed_page.elements and set(parsed_page.links) <= {"../operations#quality", "#content"}
    return parsed_page.text


def test_a_page_says_what_was_expected_and_found(results: dict[str, Any]) -> None:
    pages = [page(document(results[name], FACTS)) for name in ("good", "bad")]
    good, bad = map(read, pages)
    for text in (good, bad):
        assert "HDL-557" not in text and "answers of 2013-07-01 .. 2013-07-02" in text
        assert "Evaluated Expectations 12" in text and "Expectation Suite answers" in text
    assert "query values must never be null." in good and "Must have exactly these columns" in good
    # of each expectation, and of the suite
    assert good.count("✓") == 13 and "✗" not in good
    assert bad.count("✗") == 2 and "✗ Failed" in bad and "Successful Expectations 11" in bad
    assert "✗ repeated sum must be less than or equal to 0.0. 3" in bad
    assert max(map(len, pages)) < 100_000


def test_an_expectation_that_raised_says_why(results: dict[str, Any]) -> None:
    record = document(results["good"], FACTS)
    raised = {
        "raised_exception": True,
        "exception_message": "no column; s3://me:password1@store",
        "exception_traceback": "",
    }
    for info in (raised, {"metric": raised, "another": raised | {"raised_exception": False}}):
        record["result"]["results"][1] |= {"success": False, "result": {}, "exception_info": info}
        text = read(page(record))
        assert text.count("no column;") == 1 and "password1" not in text and "HDL-557" not in text


def test_no_network_is_asked(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a page was not to need a network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    assert "HDL-557" not in page(document(results["good"], FACTS))


def test_what_cannot_be_rendered_is_said_and_withholds_nothing() -> None:
    text = read(page(document(object(), FACTS)))
    assert "HDL-557" in text and "AttributeError" in text and "answers of" in text


def test_results_are_written_whole_and_the_oldest_go(
    results: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_docs, "KEPT", 2)
    docs = Place.of(tmp_path / "docs")
    docs.make_folder()
    # a page of an earlier version
    (docs / "0123456789abcdef.html").put(b"<p>old")
    os.utime((docs / "0123456789abcdef.html").local(), (0, 0))
    names = [page_name(seed) for seed in ("a", "b", "../../c")]
    assert all(re.fullmatch(r"[0-9a-f]{16}\.html", name) for name in names)
    for number, name in enumerate(names, start=1):
        write_document(docs, name, document(results["good"], FACTS))
        file = document_file(docs, name)
        assert file is not None and "HDL-557" not in page(read_document(file))
        os.utime(file.local(), (number, number))
        assert (document_file(docs, "0123456789abcdef.html") is None) == (number > 1)
    assert [file.name for file in docs.listed()] == sorted(f"{name[:16]}.json" for name in names[1:])


def test_only_files_of_runs_are_found(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "0123456789abcdef.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "0123456789abcdee.json").mkdir()
    docs = Place.of(tmp_path)
    for name in ("secret.json", "secret.html", "../secret.html", "0123456789abcdef.html", "0123456789abcdee.html"):
        assert document_file(docs, name) is None
    (tmp_path / "0123456789abcdef.html").write_text("old")
    assert document_file(docs, "0123456789abcdef.html") == docs / "0123456789abcdef.html"


def test_an_audit_without_answers_has_a_page_too(results: dict[str, Any], tmp_path: Path) -> None:
    docs = Place.of(tmp_path / "docs")
    write_document(docs, page_name("seed"), document(results["good"], {"answers of": "1970-01-01 .. 1970-01-02"}))
    file = document_file(docs, page_name("seed"))
    assert file is not None and "1970-01-01" in page(read_document(file))


HOSTILE = "<script>alert('x')</script>\"'&amp;<!--]]>\u202e\x1b[31m$column<a href=javascript:alert(1)>"


def poisoned(value: Any) -> Any:
    """A result whose every text is hostile, but for those that say what is what."""
    if isinstance(value, dict):
        safe_keys = ("name", "schema")
        return {name: part if name in safe_keys else poisoned(part) for name, part in value.items()}
    if isinstance(value, list):
        return [poisoned(part) for part in value]
    return HOSTILE if isinstance(value, str) else value


def test_hostile_text_stays_text(results: dict[str, Any]) -> None:
    html = page(poisoned(document(results["bad"], {"answers of": HOSTILE})))
    assert "<script" not in html and "<!--" not in html and "\u202e" not in html and "\x1b" not in html
    assert read(html).count("<script>alert") > 30 and "HDL-557" not in html


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all parts of a result."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in parts for place in places(part, (*path, key)))]


@pytest.fixture(scope="module")
def kept(results: dict[str, Any]) -> dict[str, Any]:
    """What is kept of the hostile answers that stand twice, short."""
    record: dict[str, Any] = json.loads(json.dumps(document(results["bad"], FACTS)))
    record["result"]["results"] = [check for check in record["result"]["results"] if not check["success"]][:3]
    return record


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_a_damaged_result_is_shown_or_said_to_be_damaged(kept: dict[str, Any], data: st.DataObject) -> None:
    damaged = deepcopy(kept)
    *path, last = data.draw(st.sampled_from([place for place in places(kept) if place]))
    part = damaged
    for key in path:
        part = part[key]
    part[last] = data.draw(st.sampled_from([None, 3, "text", [], {}, [None], {"a": 1}]))
    assert "Data Docs" in read(page(damaged))


@pytest.mark.parametrize("text", ["", "{", "[1]", "\ud800".encode("utf-8", "surrogatepass"), "[" * 100_000])
def test_a_file_that_is_no_result_is_said_to_be_none(text: str | bytes, tmp_path: Path) -> None:
    file = tmp_path / "0123456789abcdef.json"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    assert "HDL-557" in page(read_document(Place.of(file)))
