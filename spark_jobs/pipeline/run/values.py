"""Values that the stages of a run pass on: ``prepare -> fill -> answer -> check -> publish``, each from one to the
next.

Each stage is a function in a file of its own. Its other findings about the run (counts, diagnostics, costs) go into
the record of the :class:`Run`, which is logged when the run ends, however it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import Stream
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.session import CpuSeconds
from spark_jobs.engine.workers import Workers
from spark_jobs.store.settings import CHECKS
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.data_files import DataFile
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.event_counts import EventCounts
from spark_jobs.streams.sources.first_events import first_event
from spark_jobs.streams.sources.ledger import Ledger
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.stored_marks import StoredMarks
from spark_jobs.windows.partials.synopsis_work import SynopsisWork

if TYPE_CHECKING:
    from spark_jobs.audit.checks.inspection import Findings
    from spark_jobs.results.revisions import Readers

Instants = Mapping[str, NDArray[np.int64] | None]
"""The instants at which queries are answered: all of those that have None, none of those that are not there."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class ReleaseRequest:
    """Request to publish the answers of a ``query`` that its expectations block, as of a ``revision``, for a
    ``reason``."""

    query: str
    reason: str
    revision: int


@dataclass(frozen=True)
class RunRequest:
    """Request for a run: the answers of the interval [begin, end) by a plan.

    Attributes
    ----------
    plan_version, begin, end, run_id
        The plan, the interval (microseconds) and the id of the run.
    clock
        Now, for the watermarks (microseconds).
    recompute
        Read the events again, whatever is stored, and publish a new revision.
    live
        The next live run continues where this one ends (:func:`spark_jobs.pipeline.planning.live_runs.due`).
    late
        The run came too late for some of the refreshes in the interval: queries with a refresh bound are answered
        only at its last instant.
    checks
        Extent of the checks of answers, of :data:`spark_jobs.store.settings.CHECKS`.
    allow_empty
        Publish an interval after the newest event, too, as idle. Otherwise it fails with HDL-476.
    release
        The blocked answers to publish all the same; nothing else is answered again.
    """

    plan_version: int
    begin: int
    end: int
    run_id: str
    clock: int
    recompute: bool = False
    live: bool = False
    late: bool = False
    checks: str = CHECKS[0]
    allow_empty: bool = True
    release: ReleaseRequest | None = None

    def asks_more_than(self, published: LogRow) -> bool:
        """Return whether the request asks for more checks than the published answers had."""
        return CHECKS.index(self.checks) < CHECKS.index(published.record.checked)


@dataclass(frozen=True)
class Run:
    """Shared state of all stages of one run.

    ``record``: the record that the stages write. ``was_started``: whether an earlier run had started the session.
    ``counts``: the events that tasks counted of each stream.
    """

    engine: Engine
    warehouse: Warehouse
    request: RunRequest
    record: RunRecord
    report: Report
    was_started: bool = False
    counts: dict[str, list[EventCounts]] = field(default_factory=dict)

    @cached_property
    def marks(self) -> StoredMarks:
        """The marks of stored partial aggregates, read once for all stages."""
        return StoredMarks(self.warehouse)

    @property
    def workers(self) -> Workers:
        """The workers that run the tasks."""
        return self.engine.workers

    @contextmanager
    def stage(self, name: str, saying: str) -> Iterator[None]:
        """Report the start of a stage, and what Spark did in it at its end. Measure its CPU and wall seconds; what ends
        the run in it is logged."""
        self.report(saying)
        before = len(self.record.jobs)
        cpu, wall = CpuSeconds(), time.perf_counter()
        ending: BaseException | None = None
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            ending = error
            raise
        finally:
            for book, spent in (
                (self.record.cpu_seconds, cpu.spent()),
                (self.record.wall_seconds, time.perf_counter() - wall),
            ):
                book[name] = round(book.get(name, 0.0) + spent, 3)
            # before a run has an engine, those are the jobs of another
            if self.record.engine:
                self.record.jobs = [asdict(job) for job in self.engine.jobs]
                for job in self.engine.jobs[before:]:
                    self.engine.finished(job)
            if ending is not None:
                self._log_end(ending, name)

    def _log_end(self, error: BaseException, stage: str) -> None:
        is_published = self.record.revision > 0 and publish_log.log_end(self.warehouse, self.record, error, stage)
        if isinstance(error, KeyboardInterrupt):
            raise type(error)(f"{'it' if is_published else 'nothing'} was published") from None


@dataclass(frozen=True)
class SourceListing:
    """Contents of the streams of a plan.

    It has their splits and the ledger of their files, the names of those that cannot be listed, the names of the
    ``unfit`` queries that use a column which their stream does not have, and the problems of both. ``within``: the
    instants of the only windows that it serves; None: it serves all. ``streams``: the streams, with the versions of
    their dimensions. ``firsts``: the first events, as far as they were requested.
    """

    sources: dict[str, list[Split]]
    arrivals: dict[str, Ledger]
    failed: list[str]
    unfit: list[str]
    problems: list[dict[str, Any]]
    within: tuple[int, int] | None = None
    streams: dict[str, Stream] = field(default_factory=dict)
    firsts: dict[str, int | None] = field(default_factory=dict)

    def first_event(self, name: str) -> int | None:
        """Time of the first event of a stream (microseconds), or somewhat earlier; None: it has none."""
        if name not in self.firsts:
            self.firsts[name] = first_event(self.streams[name], self.sources[name])
        return self.firsts[name]

    def known_at(self, noted: int) -> SourceListing:
        """The listing without the files that came after a moment of the ledgers (microseconds)."""
        later = {name: {file.identity for file in files.since(noted)} for name, files in self.arrivals.items()}
        sources = {
            name: [split for split in splits if split.identity not in later[name]]
            for name, splits in self.sources.items()
        }
        return replace(self, sources=sources, firsts={})

    def pinned(self, plan: SharingPlan) -> SharingPlan:
        """The plan with its streams as they were listed."""
        streams = tuple(self.streams.get(stream.name, stream) for stream in plan.workload.streams)
        return (
            plan
            if streams == plan.workload.streams
            else replace(plan, workload=replace(plan.workload, streams=streams))
        )

    @property
    def newest(self) -> dict[str, int]:
        """The newest entry of each stream's ledger (microseconds)."""
        return {name: files.newest for name, files in self.arrivals.items()}


@dataclass(frozen=True)
class PreparedRun:
    """A run with everything that is known before it computes anything.

    Attributes
    ----------
    plan
        The plan, with the instants to answer.
    before
        The last answered instants of queries with a refresh bound.
    sources, ends
        For each stream that can be read: its splits, and the end up to which its windows are answered
        (microseconds).
    work
        The synopses of windows of time and of sequences. Those of rows are known once the rows are counted.
    content, basis
        Hash of everything that decides the answers, and of all of it except the sources.
    repeated
        Number of events of a stream that are skipped because they repeat earlier ones.
    is_closing
        Whether periods of levels are to be closed (:mod:`spark_jobs.windows.partials.levels`).
    """

    request: RunRequest
    plan: SharingPlan
    listing: SourceListing
    before: dict[str, int]
    sources: dict[str, list[Split]]
    ends: dict[str, int]
    work: tuple[SynopsisWork, ...]
    content: str
    basis: str
    repeated: dict[str, int]
    failed: tuple[str, ...]
    diagnostics: tuple[dict[str, Any], ...]
    is_closing: bool = False


@dataclass(frozen=True)
class Allocated:
    """A prepared run that was given a revision.

    ``base``: the publication since which only some windows may have changed; None: all of them may. ``newest``: the
    newest publication of the interval; None: this is the first. ``table_version``: of ``results`` before the run.
    """

    prepared: PreparedRun
    base: LogRow | None
    newest: LogRow | None
    table_version: int


@dataclass(frozen=True)
class FilledRun:
    """A run all of whose partial aggregates are stored.

    ``sources``, ``ends``: of the streams that could be read. ``plan``: what can be answered; ``narrowed``: what of it
    is answered again; ``instants``: which of its windows; None: all. ``work``: the synopses with the queries that they
    answer; ``filled``: what of them was not stored before. ``content``: hash of all that decided the answers.
    """

    allocated: Allocated
    plan: SharingPlan
    narrowed: SharingPlan
    instants: Instants | None
    sources: dict[str, list[Split]]
    ends: dict[str, int]
    work: tuple[SynopsisWork, ...]
    filled: tuple[FillRequest, ...]
    content: str


@dataclass(frozen=True)
class AnsweredRun:
    """A run whose answers are in files that no commit names yet.

    ``findings``: those of the inspection of each file; None: this run does not inspect its answers.
    """

    filled: FilledRun
    staged: tuple[DataFile, ...]
    findings: tuple[Findings, ...] | None = None


@dataclass(frozen=True)
class CheckedRun:
    """A run whose answers passed all checks. ``seed`` decided which of them were recomputed."""

    answered: AnsweredRun
    seed: str


@dataclass(frozen=True)
class PublishedRun:
    """A run whose answers readers see, since a version of ``results``. ``readers``: what changed for them."""

    checked: CheckedRun
    table_version: int
    readers: Readers
