"""What Great Expectations found in a run, kept for its page (Data Docs): one JSON file a run, in the warehouse.

Great Expectations' own site fetches Bootstrap, icons, fonts and scripts from elsewhere, and its templates escape
nothing. So none of its markup is kept, but its result and its own words for it, from which
:mod:`heddle.pages.data_docs` makes a page when somebody asks for it. They are written in the run, where Great
Expectations is loaded anyway: importing it takes 13 CPU seconds.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimizer.errors.diagnostics import printable
from optimizer.errors.redaction import redacted
from optimizer.workload.values import digest

FOLDER = "data_docs"
"""Of the results, in a warehouse."""

KEPT = 400
"""Results that are kept, the newest."""

_NAME = re.compile(r"([0-9a-f]{16})\.html", re.ASCII)


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
            expectation.render()
        return about | {"result": result.to_json_dict()}
    except Exception as error:
        # the checks themselves are in quality_results: a page less is no reason to withhold answers
        return about | {"problem": printable(redacted(f"{type(error).__name__}: {error}"), 600)}


def write_document(folder: Path, name: str, result: Any, facts: Mapping[str, str]) -> None:
    """Write what the page ``name`` (:func:`page_name`) is made from, whole or not at all; the oldest go."""
    folder.mkdir(exist_ok=True)
    place = (folder / name).with_suffix(".json")
    temporary = folder / f".{place.name}.{os.getpid()}"
    temporary.write_text(json.dumps(document(result, facts), ensure_ascii=False), encoding="utf-8")
    temporary.replace(place)
    kept = sorted(
        (file for file in folder.iterdir() if file.suffix in (".json", ".html")),
        key=lambda file: file.stat().st_mtime,
        reverse=True,
    )
    for file in kept[KEPT:]:
        file.unlink(missing_ok=True)


def document_file(folder: Path, name: str) -> Path | None:
    """The file of the page ``name``: its result (``.json``), or the page itself (``.html``) of a run of an earlier
    version; None if there is none. Only names that runs give: never a path, never a link."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    for file in (folder / f"{found[1]}.json", folder / name):
        if file.is_file() and not file.is_symlink():
            return file
    return None


def read_document(file: Path) -> dict[str, Any]:
    """What :func:`document` made, as it was written; one with a ``problem`` if the file is none such."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        return {"problem": f"{type(error).__name__}: {error}"}
    return kept if isinstance(kept, dict) else {"problem": f"{type(kept).__name__} is no result"}
