"""Store the result of Great Expectations of a run for its page (Data Docs): one JSON file a run, in the warehouse.

Great Expectations' own site fetches Bootstrap, icons, fonts and scripts from elsewhere, and its templates escape
nothing. So none of its markup is stored, only its result and its own wording, from which
:mod:`heddle.pages.data_docs` makes a page on request. They are written in the run, where Great Expectations is
loaded anyway: importing it takes 13 CPU seconds.
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
"""Folder of the results in a warehouse."""

KEPT = 400
"""Number of results to store, the newest ones."""

_NAME = re.compile(r"([0-9a-f]{16})\.html", re.ASCII)
_FILE = re.compile(r"([0-9a-f]{16})\.(?:html|json)", re.ASCII)


def page_name(seed: str) -> str:
    """The name of the page of the audit with that seed: a digest, so never a path."""
    return digest(seed) + ".html"


def query_page_name(run_id: str, revision: int, query: str) -> str:
    """The name of the page of the expectations of one query in a run."""
    return page_name(digest([run_id, revision, query]))


def document(result: Any, facts: Mapping[str, str]) -> dict[str, Any]:
    """Content to store of a validation result (Great Expectations'). ``facts``: lines for the head of its page.

    ``result``: as Great Expectations writes it, with each expectation in its own words; if that fails, ``problem``
    has the reason.
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
    """Have an expectation render itself. If it is met, reuse the words of the last time that it was met in this
    way, because rendering takes longer than checking it.
    """
    configuration = expectation.expectation_config
    arguments = {name: value for name, value in configuration.kwargs.items() if name != "batch_id"}
    # of no rows there is no percentage
    observed = [expectation.result.get(name) for name in ("observed_value", "unexpected_percent")]
    key = json.dumps([configuration.type, arguments, observed], default=str, sort_keys=True)
    if expectation.success and key in _words:
        expectation.rendered_content, configuration.rendered_content = _words[key]
        return
    expectation.render()
    if expectation.success:
        _words[key] = expectation.rendered_content, configuration.rendered_content


_words: dict[str, tuple[Any, Any]] = {}
"""Wording of the expectations that this process has seen met."""


def write_document(folder: Place, name: str, kept: Mapping[str, Any]) -> None:
    """Write the content (:func:`document`) of the page ``name`` (:func:`page_name`) atomically, and delete the
    oldest ones.
    """
    content = json.dumps(kept, ensure_ascii=False)
    (folder / name.replace(".html", ".json")).put(content.encode())
    files = [file for file in folder.listed() if file.name.endswith((".json", ".html"))]
    for file in sorted(files, key=lambda file: file.modified, reverse=True)[KEPT:]:
        (folder / file.name).remove()


def documents(folder: Place) -> set[str]:
    """The names of the pages that there are."""
    matches = (_FILE.fullmatch(file.name) for file in folder.listed())
    return {f"{each[1]}.html" for each in matches if each is not None}


def document_file(folder: Place, name: str) -> Place | None:
    """The file of the page ``name``: its result (``.json``), or the page itself (``.html``) of a run of an earlier
    version; None if there is none. Only names that runs give: never a path, never a link."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    for file in (folder / f"{match[1]}.json", folder / name):
        if file.info() is not None and not (file.is_local and file.local().is_symlink()):
            return file
    return None


def read_document(file: Place) -> dict[str, Any]:
    """Read what :func:`document` made, as it was written; one with a ``problem`` if the file has another content."""
    try:
        parsed = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        return {"problem": f"{type(error).__name__}: {error}"}
    return parsed if isinstance(parsed, dict) else {"problem": f"{type(parsed).__name__} is no result"}
