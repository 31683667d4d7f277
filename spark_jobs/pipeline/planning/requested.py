"""From workload files to a stored sharing plan, without a JVM: the job of ``refresh_sharing_plan``.

A plan version is a set of immutable rows of ``sharing_plans``. A refresh that changes neither the queries nor the
trees keeps the current version, so small changes of rates do not cause new plans.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Literal

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.language.files import STDIN_NAME, shown_path, workload_files
from optimizer.search.cost import CostModel, measured
from optimizer.search.cost import cost_model as named_model
from optimizer.synopses.late import with_late_forms
from optimizer.synopses.sharing import Profile
from optimizer.synopses.synopsis import families_of
from optimizer.workload.values import Workload
from spark_jobs.pipeline.costs.fit import fit_of
from spark_jobs.pipeline.costs.measurements import Measured, last_groups, last_measured, measure_source, profile
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import registry
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.copies.readers import StrPath, known_streams
from spark_jobs.streams.sources.inspection import as_warned

RATE = re.compile(r"\d{1,30}/\d{1,30}|(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,2})?", re.ASCII)

LONGEST_RATE = 100

Event = Literal["paused", "resumed", "removed"]

TOLERANCE = 0.05
"""Part by which the plan in force may cost more than a plan from scratch before it is replaced."""


@dataclass(frozen=True)
class PlanningRequest:
    """Request to plan some files.

    Attributes
    ----------
    files, streams
        Workload files, folders of them or patterns; the file that declares the streams.
    rates
        Tuples per second by stream, in place of those that are measured.
    algorithm, cost_model, counter
        Names of a search, of a cost model and of an edge counter.
    budget
        CPU seconds to improve the plan of each stream. None: the default of ``best``.
    tolerance
        The plan in force is kept while it costs at most ``1 + tolerance`` times the plan from scratch.
    exactly
        Whether the files are the whole workload: registered queries that they lack are removed.
    prune
        Whether registered queries are removed that came from these files and are no longer there.
    reuse
        Whether to skip the search if the queries of the plan in force mean the same and rates are about the same.
    """

    files: tuple[StrPath, ...]
    streams: StrPath
    rates: Mapping[str, Fraction] = field(default_factory=dict)
    algorithm: str = "best"
    cost_model: str = "paper"
    counter: str = "auto"
    budget: float | None = None
    tolerance: float = TOLERANCE
    exactly: bool = False
    prune: bool = False
    reuse: bool = False


@dataclass(frozen=True)
class Inputs:
    """The workload of some files, with all findings about it (the rest is usable).

    ``files``: the absolute path of the file that each query came from. ``read``: all of these files, as named by
    the user. ``given``: absolute paths of the files and folders that were named. ``streams_wrong``: whether some
    stream cannot be used. ``wrong``: names, as in findings, of queries with an error, also of those that share a
    finding.
    """

    workload: Workload
    diagnostics: tuple[Diagnostic, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    read: tuple[str, ...] = ()
    streams_wrong: bool = False
    wrong: frozenset[str] = frozenset()
    given: tuple[str, ...] = ()

    @property
    def errors(self) -> list[Diagnostic]:
        return [diagnostic for diagnostic in self.diagnostics if diagnostic.severity == "error"]


def load_inputs(files: Sequence[StrPath], streams_file: StrPath, warehouse: Warehouse | None = None) -> Inputs:
    """Read streams and queries. Bad streams and queries are reported; the others are returned.

    ``files``: as for :func:`workload_files`. ``warehouse``: where queries may be registered. A query that is
    registered with the same text keeps its meaning.

    Three settings of :class:`spark_jobs.store.settings.Settings` apply: ``source_roots`` (where streams may lie),
    ``owner_quota`` (the number of queries of an owner) and ``owner`` (the owner of queries that name none).
    Raises HDL-111 if a file is missing.
    """
    quota, owner = settings().owner_quota, settings().owner
    # the parser's library is not for those who only plan, or read what is planned
    from optimizer.language.parser import load_workload

    absolute_paths = tuple(os.path.abspath(_without_pattern(path)) for path in files)  # noqa: PTH100 - of links the name
    files = workload_files(files)
    if not Path(streams_file).is_file():
        raise HeddleError("HDL-111", f"there is no file {streams_file}", "check the path", file=str(streams_file))
    streams, known, diagnostics = known_streams(streams_file)
    streams_wrong = any(diagnostic.severity == "error" for diagnostic in diagnostics)
    matches = (
        re.match(r"(?:stream|dimension) (\w+)\b", diagnostic.message)
        for diagnostic in diagnostics
        if diagnostic.severity == "error"
    )
    unreadable = {*streams, *(match[1] for match in matches if match)} - set(known)
    origin: dict[str, str] = {}
    wrong: set[str] = set()
    having_tables = settings().tables_of_owners

    @cache
    def registered_texts() -> dict[str, str]:
        known = registry.live(warehouse) if warehouse is not None else {}
        return {name: registration.last.text for name, registration in known.items()}

    def registered_text(name: str) -> str:
        return registered_texts().get(name, "")

    workload, findings = load_workload(
        files, known, None, quota, origin, unreadable, wrong, having_tables, owner, registered_text
    )
    filed = {name: path for name, path in origin.items() if path != STDIN_NAME}
    whence = {name: os.path.abspath(path) for name, path in filed.items()}  # noqa: PTH100 - of links the name
    read = tuple(map(shown_path, files))
    return Inputs(workload, (*diagnostics, *findings), whence, read, streams_wrong, frozenset(wrong), absolute_paths)


def _without_pattern(path: StrPath) -> Path:
    """The folder before the first part of a path that is a pattern; the path if none is."""
    parts = Path(path).parts
    patterns = (number for number, part in enumerate(parts) if any(sign in part for sign in "*?["))
    return Path(*parts[: next(patterns, len(parts))])


def rates_of(
    workload: Workload, given: Mapping[str, Fraction], warehouse: Warehouse | None = None
) -> tuple[dict[str, Fraction], list[Measured], list[Diagnostic]]:
    """The rate of each stream that a query reads: as given, else measured from its source now.

    A source that cannot be read is reported, and planned at the rate recorded last in ``warehouse``, or else at one
    tuple a second: its queries stay registered and the other streams go on. Returns rates, measurements and
    diagnostics. Raises HDL-407 for a rate of an unknown stream.
    """
    for name in given:
        if name not in {stream.name for stream in workload.streams}:
            raise HeddleError("HDL-407", f"a rate is given for {name}, which is no stream")
    rates: dict[str, Fraction] = {}
    measurements, diagnostics = [], []
    for name in dict.fromkeys(query.stream for query in workload.queries):
        if name in given:
            rates[name] = given[name]
            continue
        try:
            measurements.append(measure_source(workload.stream(name), warehouse))
            rates[name] = measurements[-1].rate
        except HeddleError as error:
            diagnostics.append(as_warned(error.diagnostic))
            known = last_measured(warehouse, name) if warehouse is not None else None
            rates[name] = known if known is not None else Fraction(1)
    return rates, measurements, diagnostics


def profiles_of(workload: Workload, rates: Mapping[str, Fraction], model: CostModel) -> dict[str, Profile]:
    """A sample of each stream whose queries over windows of time have different filters or group-bys, which may share
    partial aggregates, or of which the ``measured`` model does not know how many groups a fragment has. Streams that
    cannot be read have none (and are reported where their rate is measured)."""
    profiles: dict[str, Profile] = {}
    known = dict(model.groups_per_fragment)
    for name in dict.fromkeys(query.stream for query in workload.queries):
        queries = [query for query in workload.queries_of(name) if query.kind.shares_synopses]
        is_unknown = model.name == "measured" and name not in known
        if queries and (is_unknown or len(families_of(with_late_forms(workload.stream(name), queries))) > 1):
            try:
                profiles[name] = profile(workload.stream(name), queries, rates[name])
            except HeddleError:
                continue
    return profiles


def densities_of(workload: Workload, profiles: Mapping[str, Profile]) -> dict[str, Fraction]:
    """Densities from the samples that decide which queries share synopses, by stream and number."""
    return {
        f"{name} {number}": Fraction(density).limit_denominator(10**9)
        for name, profile in profiles.items()
        for number, density in enumerate(
            profile.densities(
                with_late_forms(
                    workload.stream(name),
                    [query for query in workload.queries_of(name) if query.kind.shares_synopses],
                )
            )
        )
    }


def model_of(name: str, measurements: Sequence[Measured], warehouse: Warehouse | None = None) -> CostModel:
    """The cost model of a name; ``measured`` knows the groups per fragment that were measured.

    With a ``warehouse``: by the costs that were fitted to its runs (``heddle calibrate --warehouse``), and by the
    groups that were recorded last where there is no measurement now.
    """
    if name != "measured":
        return named_model(name)
    groups = {
        measurement.stream: measurement.groups_per_fragment
        for measurement in measurements
        if measurement.groups_per_fragment
    }
    if warehouse is None:
        return measured(groups_per_fragment=groups)
    return measured(fit_of(warehouse).coefficients, last_groups(warehouse) | groups)


def parse_rates(texts: Sequence[str]) -> dict[str, Fraction]:
    """``STREAM=TUPLES_PER_SECOND`` options as exact fractions. Raises HDL-112."""
    rates: dict[str, Fraction] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        try:
            rate = parse_rate(number)
        except HeddleError:
            rate = Fraction(-1)
        if not name or rate < 0:
            raise HeddleError("HDL-112", f"{text!r} is not STREAM=TUPLES_PER_SECOND", "e.g. trades=1200")
        if rates.setdefault(name, rate) != rate:
            raise HeddleError("HDL-112", f"stream {name} is given two rates, {rates[name]} and {rate}", "give one")
    return rates


def parse_rate(text: str) -> Fraction:
    """Tuples per second as an exact fraction, at least 0: 1200, 0.5, 1e6, 6/5. Raises HDL-112."""
    try:
        # an exponent of many digits would be a number of as many gigabytes
        rate = Fraction(text.strip()) if RATE.fullmatch(text.strip()) else Fraction(-1)
    except ZeroDivisionError:
        rate = Fraction(-1)
    if rate < 0:
        raise HeddleError("HDL-112", f"{text!r} is no rate in tuples per second", "e.g. 1200")
    return rate
