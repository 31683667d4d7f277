"""Inputs of the newest plan, so that a plan is made again only if they change.

A file of the warehouse, :data:`FILE`, stores them in two forms. *As requested*: a digest of the bytes of the files,
the settings, the listings of the sources, the registered queries and this code. If it is the same, not even the
queries are parsed again (:func:`unchanged_plan`). *As searched*: rates and cost model. If the queries mean the same
and the rates are about the same, the search is skipped (:func:`reusable_plan`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.installing import PROJECT
from optimizer.language.files import STDIN, workload_files
from optimizer.plan.definition import SharingPlan
from optimizer.plan.reuse import Searched, reused
from optimizer.search.cost import CostModel
from optimizer.workload.partitions import is_exact
from optimizer.workload.values import Stream, Workload, digest, from_json, to_json
from spark_jobs.pipeline.planning.requested import PlanningRequest
from spark_jobs.store.settings import DECLARED, settings
from spark_jobs.store.warehouse import places, plans
from spark_jobs.store.warehouse.places import relocated_as
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimensions import stream_of_rows
from spark_jobs.streams.sources.files import files_digest
from spark_jobs.streams.sources.folders import newest_folders

FILE = "planned.json"

SUITE = re.compile(rb"--\s*expect\s+suite\b", re.IGNORECASE)
"""A line that attaches a suite of Great Expectations."""

LIBRARIES = ("sqlglot", "numpy", "scipy", "numba")
"""Libraries that decide the meaning of a query, or the plan that a search finds."""


def fingerprint(request: PlanningRequest) -> str | None:
    """Return a digest of a request with the content of its files, the settings and this code; None if that cannot be
    known beforehand: standard input, or a file that cannot be read."""
    paths = [Path(path) for path in request.files]
    if STDIN in paths:
        return None
    content = sha256()
    try:
        for path in (*workload_files(paths), Path(request.streams)):
            data = path.read_bytes()
            content.update(f"{len(data)} {os.path.abspath(path)}\0".encode())  # noqa: PTH100 - of links the name
            content.update(data)
            if SUITE.search(data) is not None:
                # the files of suites are read with the queries
                return None
    except (OSError, HeddleError):
        return None
    absolute = [os.path.abspath(path) for path in paths]  # noqa: PTH100
    options = [str(getattr(request, option.name)) for option in fields(request)]
    return digest([content.hexdigest(), absolute, options, _settings(), code()])


@dataclass(frozen=True)
class _Kept:
    """The content of :data:`FILE`.

    ``request``: digest of the request. ``sources``: the streams that its files declare, each with a digest of its
    listing. Both are None if something in them was wrong or a listing does not show all changes. ``registered``:
    digest of the stored tables that name the queries and plans. ``code``: digest of the code that searched.
    """

    version: int
    fingerprint: str
    registered: str
    request: str | None
    sources: tuple[tuple[Stream, str], ...] | None
    searched: Searched
    code: str

    def to_json(self) -> dict[str, Any]:
        sources = None if self.sources is None else [[to_json(stream), mark] for stream, mark in self.sources]
        return vars(self) | {"sources": sources, "searched": self.searched.to_json()}

    @classmethod
    def of(cls, warehouse: Warehouse) -> _Kept | None:
        """Read the stored content; None if it is missing or cannot be read."""
        try:
            content = json.loads((warehouse.place / FILE).read())
            sources = content["sources"]
            known = None if sources is None else tuple((from_json(stream), str(mark)) for stream, mark in sources)
            return cls(**content | {"sources": known, "searched": Searched.from_json(content["searched"])})
        except (OSError, ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError):
            return None


def unchanged_plan(warehouse: Warehouse, request: PlanningRequest) -> tuple[SharingPlan, int] | None:
    """The newest plan and its version, if nothing that it was made from has changed.

    That is: the same request with the same files of queries and of sources, and no registration since.
    """
    basis = _Kept.of(warehouse)
    if basis is None or basis.request is None or basis.sources is None or basis.request != fingerprint(request):
        return None
    if request.cost_model == "measured" or basis.registered != _registered(warehouse):
        return None
    if any(_listing(stream) != mark for stream, mark in basis.sources):
        return None
    plan = plans.load_plan(warehouse, basis.version)
    return (plan, basis.version) if plan.fingerprint == basis.fingerprint else None


@dataclass(frozen=True)
class Reusable:
    """A stored plan that holds, and what it was searched with."""

    plan: SharingPlan
    version: int
    searched: Searched


def reusable_plan(
    warehouse: Warehouse | None,
    workload: Workload,
    rates: Mapping[str, Fraction],
    algorithm: str,
    model: CostModel,
    tolerance: float,
    densities: Callable[[], Mapping[str, Fraction]],
) -> Reusable | None:
    """The newest plan for queries that mean the same, if a search would keep it
    (:func:`optimizer.plan.reuse.reused`)."""
    basis = _Kept.of(warehouse) if warehouse is not None else None
    if warehouse is None or basis is None or basis.code != code() or plans.current_version(warehouse) != basis.version:
        return None
    plan = relocated_as(plans.load_plan(warehouse, basis.version), {stream.name: stream for stream in workload.streams})
    reused_plan = reused(plan, basis.searched, workload, rates, algorithm, model, tolerance, densities)
    return None if reused_plan is None else Reusable(reused_plan, basis.version, basis.searched)


def sources_of(streams: Iterable[Stream]) -> tuple[tuple[Stream, str], ...] | None:
    """The streams, each with a digest of its listing; None if one has none."""
    listings = [(stream, _listing(stream)) for stream in streams]
    return tuple((stream, mark) for stream, mark in listings if mark) if all(mark for _, mark in listings) else None


def note_plan(
    warehouse: Warehouse,
    plan: SharingPlan,
    searched: Searched,
    version: int,
    request: str | None = None,
    sources: tuple[tuple[Stream, str], ...] | None = None,
) -> None:
    """Note under the lease what a plan that was just stored, or that holds, was made from."""
    basis = _Kept(version, plan.fingerprint, _registered(warehouse), request, sources, searched, code())
    content = json.dumps(basis.to_json(), sort_keys=True).encode()
    file = warehouse.place / FILE
    try:
        is_kept = file.read() == content
    except OSError:
        is_kept = False
    if not is_kept:
        file.put(content)


def _registered(warehouse: Warehouse) -> str:
    """A digest of what is registered and planned, and of where the streams of plans lie."""
    versions = [warehouse.version(name) for name in ("sharing_plans", "workload_queries")]
    return digest([*versions, places.noted_places(warehouse)])


def _listing(stream: Stream) -> str:
    """Digest of the listing of a source; empty if a listing does not reveal all changes of its files."""
    try:
        dimensions = [files_digest(stream_of_rows(each)) for each in stream.dimensions]
        if not all(dimensions):
            return ""
        if is_exact(stream.source):
            # rates and columns are looked at again when a folder comes
            return digest(["folders", newest_folders(stream), *dimensions])
        listed = files_digest(stream)
    except HeddleError:
        return ""
    return digest([listed, *dimensions]) if listed and dimensions else listed


def _settings() -> list[tuple[str, str]]:
    """The texts of the settings that are given, without secrets."""
    configured = settings()
    return [(each.name, repr(configured.texts.get(each.name))) for each in DECLARED if not each.is_secret]


@cache
def code() -> str:
    """A digest of the files of this code and of the libraries that decide with it, by size and time."""
    marks: list[object] = [sys.version]
    for folder in ("optimizer", "spark_jobs"):
        for root, _, names in os.walk(PROJECT / folder):
            marks += [_mark(Path(root, name)) for name in sorted(names) if name.endswith((".py", ".json"))]
    specs = (find_spec(name) for name in LIBRARIES)
    marks += [_mark(Path(spec.origin)) for spec in specs if spec is not None and spec.origin is not None]
    return digest(sorted(map(str, marks)))


def _mark(path: Path) -> Sequence[object]:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns
