"""Runs tasks through Spark Connect, which has no contexts, no RDDs and no accumulators: managed services have nothing
else.

A stage is ``mapInArrow`` over the numbers of its pieces of work; what its tasks yield comes back as rows, of one
attempt of each task. The project is sent to the workers (:mod:`spark_jobs.engine.shipping`).
"""

from __future__ import annotations

import re
import socket
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.redaction import keep_secret, redacted
from spark_jobs.engine.configuration import PATIENCE
from spark_jobs.engine.shipping import archive
from spark_jobs.engine.workers import EVENTS, Job, StageOutcome, Task, counting, outcome_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_PORT = 15_002
"""Port of servers whose URL names none."""


class ConnectWorkers:
    """The executors behind a server of Spark Connect. ``tag``: of its operations, by which they are interrupted;
    the id of a run."""

    def __init__(self, session: SparkSession, tag: str) -> None:
        self._session, self._tag = session, tag.replace(",", " ")
        self.name = "spark connect"
        self.application = self.ui = ""
        self.jobs: list[Job] = []
        self.is_warm = True
        self._width = 0

    @property
    def width(self) -> int:
        """Number of tasks that the cluster runs at once, as far as it is known."""
        if not self._width:
            frame = self._session.range(1 << 20).mapInArrow(_one_row, "n bigint")
            self._width = max(1, int(frame.count()))
        return self._width

    def run(self, task: Task, pieces: int, most: int, description: str) -> StageOutcome:
        """Run a task with ``mapInArrow`` over the numbers of the pieces:
        :meth:`spark_jobs.engine.workers.Workers.run`.
        """
        from pyspark import cloudpickle

        if pieces == 0:
            return StageOutcome([])
        begun = time.perf_counter()
        work = cloudpickle.dumps(counting(task))
        self._session.addTag(self._tag)
        try:
            frame = self._session.range(0, pieces, 1, min(pieces, most))
            rows = frame.mapInArrow(partial(_done, work), "first bigint, place bigint, content binary").toArrow()
        except KeyboardInterrupt:
            self._session.interruptTag(self._tag)
            raise
        finally:
            self._session.removeTag(self._tag)
        ordered_rows = sorted(rows.to_pylist(), key=lambda row: (row["first"], row["place"]))
        outcome = outcome_of([cloudpickle.loads(row["content"]) for row in ordered_rows])
        seconds, events = round(time.perf_counter() - begun, 3), outcome.counts[EVENTS]
        self.jobs.append(Job(description, (), min(pieces, most), 0, seconds, events, outcome.cpu_seconds))
        return outcome

    def tasks_done(self) -> tuple[int, int]:
        """Return zeros: the tasks of Spark Connect are not known."""
        return 0, 0

    def session(self) -> SparkSession:
        """The session."""
        return self._session

    def close(self) -> None:
        """Whoever started the session ends it."""


def _done(work: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: the outcomes of one task."""
    import pickle

    task = pickle.loads(work)
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    if not numbers:
        return
    for place, outcome in enumerate(task(numbers)):
        yield _row(numbers[0], place, outcome)


def _row(first: int, place: int, outcome: Any) -> pa.RecordBatch:
    import pickle

    return pa.RecordBatch.from_pydict({"first": [first], "place": [place], "content": [pickle.dumps(outcome)]})


def _one_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if any(len(batch) for batch in batches):
        yield pa.RecordBatch.from_pydict({"n": [1]})


def check_version(theirs: str, place: str) -> None:
    """Raise HDL-529 for a server of another minor version than PySpark here."""
    import pyspark

    ours = pyspark.__version__
    if ours.split(".")[:2] != theirs.split(".")[:2]:
        message = f"the server of Spark Connect at {place} is Spark {printable(theirs, 40)}, PySpark here is {ours}"
        raise HeddleError("HDL-529", message, "use a server of the same minor version")


def remote_session(url: str, name: str, project: Path) -> SparkSession:
    """Open a session of the Spark Connect server at a URL (``sc://host:port``), and send it this project.

    Raises HDL-529 if the URL is invalid, or nothing listens there within some seconds. The client itself would try
    again for many minutes, and log nothing.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    keep_secret(dict(re.findall(r";(token)=([^;]+)", url)))
    match = re.fullmatch(r"sc://([^/:;]+|\[[0-9A-Fa-f:]+\])(?::(\d{1,5}))?(?:/;.*|/)?", url)
    hint = "HEDDLE_SPARK_REMOTE is a URL as sc://host:15002, or sc://host:443/;use_ssl=true;token=…"
    if match is None:
        raise HeddleError("HDL-529", "HEDDLE_SPARK_REMOTE is no URL of Spark Connect", hint)
    host, port = match[1].strip("[]"), int(match[2] or DEFAULT_PORT)
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise HeddleError("HDL-529", f"no server of Spark Connect at {host}:{port}: {error}", hint) from error
    try:
        session: Any = SparkSession.builder.remote(url).appName(name).getOrCreate()
    except PySparkException as error:
        reason = printable(redacted(str(error)), 300)
        raise HeddleError("HDL-529", f"the server of Spark Connect at {host}:{port} refuses: {reason}", hint) from error
    try:
        check_version(session.version, f"{host}:{port}")
    except HeddleError:
        session.stop()
        raise
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.shuffle.partitions": "4",
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    with tempfile.TemporaryDirectory() as folder:
        session.addArtifacts(str(archive(Path(folder), project)), pyfile=True)
    return cast("SparkSession", session)
