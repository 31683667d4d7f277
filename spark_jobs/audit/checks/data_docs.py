"""What Great Expectations found in a run, kept for its page (Data Docs): one JSON file a run, in the warehouse.

Great Expectations' own site fetches Bootstrap, icons, fonts and scripts from elsewhere, and its templates escape
nothing. So none of its markup is kept, but its result and its own words for it, from which
:mod:`heddle.pages.data_docs` makes a page when somebody asks for it. They are written in the run, where Great
Expectations is loaded anyway: importing it takes 13 CPU seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from optimizer.errors.diagnostics import printable
from optimizer.errors.redaction import redacted
from optimizer.workload.values import digest
from spark_jobs.store.storage import Place

FOLDER = "data_docs"
"""Of the results, in a warehouse."""

KEPT = 400
"""Results that are kept, the newest."""

_NAME = re.compile(r"([0-9a-f]{16})\.html", re.ASCII)
_FILE = re.compile(r"([0-9a-f]{16})\.(?:html|json)", re.ASCII)


def page_name(seed: str) -> str:
    """The name of the page of the audit with that seed: a digest, so never a path."""
    return digest(seed) + ".html"


def document(result: Any, facts: Mapping[str, str]) -> dict[str, Any]:
    """What is kept of a validation result (Great Expectations'); ``facts``: lines for the head of its page.

    ``result``: as Great Expectations writes it, with each expectation in its own words; where it cannot, ``problem``
    says why.
    """
    about: dict[str, Any] = {"format": 1, "facts": dict(facts)}
    try:
        for expectation in result.results:
            _put_in_words(expectation)
        return about | {"result": result.to_json_dict()}
    except Exception as error:
        # the checks themselves are in quality_results: a page less is no reason to withhold answers
        return about | {"problem": printable(redacted(f"{type(error).__name__}: {error}"), 600)}


def _put_in_words(expectation: Any) -> None:
    """Have an expectation say itself: if it is met, in the same words as the last time that it was met in this way, as
    finding them takes longer than checking it."""
    asked = expectation.expectation_config
    wanted = {name: value for name, value in asked.kwargs.items() if name != "batch_id"}
    # of no rows there is no percentage
    observed = [expectation.result.get(name) for name in ("observed_value", "unexpected_percent")]
    key = json.dumps([asked.type, wanted, observed], default=str, sort_keys=True)
    if expectation.success and key in _words:
        expectation.rendered_content, asked.rendered_content = _words[key]
        return
    expectation.render()
    if expectation.success:
        _words[key] = expectation.rendered_content, asked.rendered_content


_words: dict[str, tuple[Any, Any]] = {}
"""Of the expectations that this process has found met."""


def write_document(folder: Place, name: str, kept: Mapping[str, Any]) -> None:
    """Write what the page ``name`` (:func:`page_name`) is made from (:func:`document`), whole or not at all; the oldest
    go."""
    content = json.dumps(kept, ensure_ascii=False)
    (folder / name.replace(".html", ".json")).put(content.encode())
    there = [file for file in folder.listed() if file.name.endswith((".json", ".html"))]
    for file in sorted(there, key=lambda file: file.modified, reverse=True)[KEPT:]:
        (folder / file.name).remove()


def documents(folder: Place) -> set[str]:
    """The names of the pages that there are."""
    found = (_FILE.fullmatch(file.name) for file in folder.listed())
    return {f"{each[1]}.html" for each in found if each is not None}


def document_file(folder: Place, name: str) -> Place | None:
    """The file of the page ``name``: its result (``.json``), or the page itself (``.html``) of a run of an earlier
    version; None if there is none. Only names that runs give: never a path, never a link."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    for file in (folder / f"{found[1]}.json", folder / name):
        if file.info() is not None and not (file.is_local and file.local().is_symlink()):
            return file
    return None


def read_document(file: Place) -> dict[str, Any]:
    """What :func:`document` made, as it was written; one with a ``problem`` if the file is none such."""
    try:
        kept = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        return {"problem": f"{type(error).__name__}: {error}"}
    return kept if isinstance(kept, dict) else {"problem": f"{type(kept).__name__} is no result"}
