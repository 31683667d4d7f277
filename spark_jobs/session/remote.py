"""Runs tasks through Spark Connect, which has no contexts, no RDDs and no accumulators: managed services have nothing
else.

A stage is ``mapInArrow`` over the numbers of its pieces of work; what its tasks yield, and what they count, comes back
as rows. A task that is tried again counts once, as the rows of one attempt alone come back. The project is sent to the
workers as an archive of its own: nothing is assumed of them but Python with the packages that tasks need.
"""

from __future__ import annotations

import hashlib
import re
import socket
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.redaction import keep_secret, redacted

DEFAULT_PORT = 15_002
"""Of servers whose URL names none."""

PATIENCE = 10.0
"""Seconds in which somebody has to answer there."""

PACKAGES = ("optimizer", "spark_jobs")
"""What tasks import of this project."""

_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The time of all files in the archive, so that equal code is an equal archive."""


class RemoteSession:
    """A session of Spark Connect with the part of a context that the stages of a run ask for."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.sparkContext = RemoteContext(session)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class RemoteContext:
    """What the stages of a run ask of a context."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._counters = 0

    @cached_property
    def defaultParallelism(self) -> int:
        """The tasks that the cluster runs at once, as far as it says."""
        return max(1, int(self._session.range(1 << 20).mapInArrow(_one_row, "n bigint").count()))

    def accumulator(self, value: int) -> Counter:
        """A counter that begins at ``value``."""
        self._counters += 1
        return Counter(self._counters, value)

    def parallelize(self, items: Sequence[Any], pieces: int) -> _Stage:
        """The items, spread over tasks."""
        return _Stage(self._session, list(items), pieces)


class Counter:
    """Counts what tasks tell; in a task it holds what that task has added."""

    def __init__(self, number: int, value: int = 0) -> None:
        self.number, self.value = number, value

    def add(self, amount: int) -> None:
        """Count so many more."""
        self.value += amount

    def __reduce__(self) -> tuple[Any, ...]:
        return _counter_of_task, (self.number,)


_of_task: dict[int, Counter] = {}
"""The counters of the task that this process does."""


def _counter_of_task(number: int) -> Counter:
    return _of_task.setdefault(number, Counter(number))


class _Stage:
    """Work on items by tasks, to be collected."""

    def __init__(
        self, session: Any, items: list[Any], pieces: int, task: Callable[[Iterable[Any]], Iterable[Any]] = iter
    ) -> None:
        self._session, self._items, self._pieces, self._task = session, items, pieces, task

    def mapPartitions(self, task: Callable[[Iterable[Any]], Iterable[Any]]) -> _Stage:
        """Have a task done for all items of a piece."""
        return _Stage(self._session, self._items, self._pieces, task)

    def flatMap(self, task: Callable[[Any], Iterable[Any]]) -> _Stage:
        """Have a task done for each item."""
        return self.mapPartitions(partial(_each, task))

    def collect(self) -> list[Any]:
        """Do it: all that the tasks yield, in the order of the items; counters are added to."""
        from pyspark import cloudpickle

        counters: dict[int, Counter] = {}
        work = _pickled(cloudpickle, (self._items, self._task), counters)
        frame = self._session.range(0, len(self._items), 1, self._pieces)
        rows = frame.mapInArrow(partial(_done, work), "first bigint, place bigint, content binary").toArrow()
        yielded: list[Any] = []
        for row in sorted(rows.to_pylist(), key=lambda row: (row["first"], row["place"])):
            content = cloudpickle.loads(row["content"])
            if row["place"] >= 0:
                yielded.append(content)
                continue
            for number, amount in content.items():
                counters[number].add(amount)
        return yielded


def _pickled(pickle: Any, value: Any, counters: dict[int, Counter]) -> bytes:
    """A value as bytes; the counters in it are noted."""
    import io

    class Noting(pickle.CloudPickler):
        def reducer_override(self, given: Any) -> Any:
            if isinstance(given, Counter):
                counters[given.number] = given
            return super().reducer_override(given)

    sink = io.BytesIO()
    Noting(sink).dump(value)
    return sink.getvalue()


def _each(task: Callable[[Any], Iterable[Any]], items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        yield from task(item)


def _done(work: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: the outcomes of one task, and last what it counted."""
    import pickle

    _of_task.clear()
    items, task = pickle.loads(work)
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    if not numbers:
        return
    for place, outcome in enumerate(task(items[number] for number in numbers)):
        yield _row(numbers[0], place, outcome)
    yield _row(numbers[0], -1, {number: counter.value for number, counter in _of_task.items()})


def _row(first: int, place: int, outcome: Any) -> pa.RecordBatch:
    import pickle

    return pa.RecordBatch.from_pydict({"first": [first], "place": [place], "content": [pickle.dumps(outcome)]})


def _one_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if any(len(batch) for batch in batches):
        yield pa.RecordBatch.from_pydict({"n": [1]})


_UNPACKED = '''"""Unpacks Heddle's code once for a user of this machine.

A session's archive has another path each time, and what was compiled is found again by the path of its source.
"""

import os
import tempfile
import zipfile

_archive = os.path.dirname(__file__)
_name = os.path.basename(_archive).removesuffix(".zip")


def _place():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    made = os.path.join(home, "heddle")
    try:
        os.makedirs(made, mode=0o700, exist_ok=True)
        if os.stat(made).st_uid != os.getuid():
            raise OSError("it is of another user")
        place = os.path.join(made, _name)
        if not os.path.isdir(place):
            draft = tempfile.mkdtemp(dir=made)
            _unpack(draft)
            try:
                os.rename(draft, place)
            except OSError:
                if not os.path.isdir(place):
                    raise
        return place
    except OSError:
        place = tempfile.mkdtemp(prefix="heddle-")
        _unpack(place)
        return place


def _unpack(place):
    with zipfile.ZipFile(_archive) as packed:
        packed.extractall(place, [name for name in packed.namelist() if name.startswith("code/")])


PLACE = os.path.join(_place(), "code")
'''

_STUB = """import os

import heddle_unpacked

__path__ = [os.path.join(heddle_unpacked.PLACE, __name__)]
"""


def archive(folder: Path, project: Path) -> Path:
    """The packages that tasks import as a ZIP file in a folder, whose name says its content; imported from it, they
    unpack themselves into the user's cache."""
    found = [file for name in PACKAGES for file in sorted((project / name).rglob("*.py"))]
    contents = {f"code/{file.relative_to(project)}": file.read_bytes() for file in found}
    contents |= {f"{name}/__init__.py": _STUB.encode() for name in PACKAGES}
    contents["heddle_unpacked.py"] = _UNPACKED.encode()
    hashed = hashlib.sha256()
    for name, content in contents.items():
        hashed.update(f"{name}\0{len(content)}\0".encode() + content)
    place = folder / f"heddle-{hashed.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in contents.items():
            made.writestr(zipfile.ZipInfo(name, _FIRST_DAY), content, zipfile.ZIP_DEFLATED)
    return place


def remote_session(url: str, name: str, project: Path) -> RemoteSession:
    """A session of the Spark Connect server at a URL (``sc://host:port``), to which this project is sent.

    Raises HDL-529 if the URL is none, or nothing listens there within some seconds: the client itself would try again
    for many minutes, and say nothing.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    keep_secret(dict(re.findall(r";(token)=([^;]+)", url)))
    found = re.fullmatch(r"sc://([^/:;]+|\[[0-9A-Fa-f:]+\])(?::(\d{1,5}))?(?:/;.*|/)?", url)
    hint = "HEDDLE_SPARK_REMOTE is a URL as sc://host:15002, or sc://host:443/;use_ssl=true;token=…"
    if found is None:
        raise HeddleError("HDL-529", "HEDDLE_SPARK_REMOTE is no URL of Spark Connect", hint)
    host, port = found[1].strip("[]"), int(found[2] or DEFAULT_PORT)
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise HeddleError("HDL-529", f"no server of Spark Connect at {host}:{port}: {error}", hint) from error
    try:
        session: Any = SparkSession.builder.remote(url).appName(name).getOrCreate()
    except PySparkException as error:
        told = printable(redacted(str(error)), 300)
        raise HeddleError("HDL-529", f"the server of Spark Connect at {host}:{port} refuses: {told}", hint) from error
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.shuffle.partitions": "4",
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    with tempfile.TemporaryDirectory() as folder:
        session.addArtifacts(str(archive(Path(folder), project)), pyfile=True)
    return RemoteSession(session)
