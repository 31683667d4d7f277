"""Fixtures shared by all tests, and the profile by which they run (tests/sizes.py)."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.sizes import PROFILE, QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from optimizer.plan.definition import SharingPlan

settings.load_profile(PROFILE)
if PROFILE == QUICK:
    # Delta tables of a few rows: handing work from thread to thread costs more than the work does
    os.environ.setdefault("TOKIO_WORKER_THREADS", "1")

DEAR = ("chaos", "dags")
"""Folders whose files take longer than others."""

SERVED = ("stores", "dags")
"""Folders whose files share a server: that of S3, or a process with Airflow."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of Spark's session in quick tests: compiling a plan, or planning it again, costs more than few rows do."""


UNSEEN = {"spark.ui.enabled": "false", "spark.eventLog.enabled": "false"}
"""Nobody looks at the session of the tests; test_submitted.py tests what is seen."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole test process: starting one costs more than most tests."""
    from spark_jobs.engine.session import start_session

    # hundreds of generated plans stay in the driver's caches
    os.environ.setdefault("HEDDLE_DRIVER_MEMORY", "5g")
    settings = (INTERPRETED if PROFILE == QUICK else {}) | _jars_of_kafka() | UNSEEN
    session = start_session("tests", "local[2]", settings=settings)
    _sessions.append(session)
    yield session
    _sessions.clear()
    session.stop()


def _jars_of_kafka() -> dict[str, str]:
    """Spark's jars with those that it reads Kafka with, where they are fetched: a process has one session."""
    from optimizer.errors.diagnostics import HeddleError
    from spark_jobs.streams.landing.kafka import session_settings

    try:
        return {"spark.jars": session_settings()["spark.jars"]}
    except HeddleError:
        return {}


@pytest.fixture(scope="session", autouse=True)
def _the_command_line_is_built_once() -> None:
    """Typer's runner builds it for each command, which takes longer than most commands."""
    from typer import testing

    testing._get_command = cache(testing._get_command)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """What runs the tasks of runs, for tests of what stands around tasks: logs, revisions, repairs, maintenance.

    In the quick profile the driver's process, at a tenth of the cost: all staged answers are still counted and checked,
    and a sample is recomputed, but not by Spark. In the others the Spark session, with the whole audit.
    ``test_differential.py`` shows that both give the same bytes.
    """
    if PROFILE != QUICK:
        yield request.getfixturevalue("spark")
        return
    from spark_jobs.pipeline.run import checks_stage
    from tests.chaos.orders import in_process

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks_stage, "audit", _counted)
        yield in_process()


def _counted(
    engine: Any,
    findings: Sequence[Mapping[str, Any]] | None,
    staged: list[str],
    plan: SharingPlan,
    sources: Any,
    begin: int,
    ends: dict[str, int],
    seed: str,
    docs: Any = None,
    past: Any = None,
) -> Sequence[Mapping[str, Any]]:
    """The audit without Great Expectations and Spark: every staged answer is looked at once, the sample is recomputed
    by DuckDB."""
    from spark_jobs.audit.checks.recompute import recomputed
    from spark_jobs.audit.checks.row_windows import recomputed_rows
    from spark_jobs.audit.checks.staged_answers import Staged
    from spark_jobs.audit.checks.suite import FINDINGS
    from tests.chaos.orders import in_process

    wrong = [row for row in findings or () if any(row[name] for name in FINDINGS)]
    checks = [{"check": "counted", "success": not wrong, "detail": str(wrong)}]
    # without a session there is no second opinion
    arguments = in_process(), Staged(staged), plan, sources, begin, ends, seed, past
    return [*checks, *recomputed(*arguments), *recomputed_rows(*arguments)]


def pytest_collection(session: pytest.Session) -> None:
    """Collect no garbage while tests are imported: all that they import stays."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Do not look for garbage in what was imported, and look for it seldom: it took 7 of 100 CPU seconds of tests."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Frozen objects would be reported as leaks of extension modules."""
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests by their fixtures. Files with Spark, faults or Airflow come first: the short ones at the end fill up
    whichever process is done earlier."""
    for item in items:
        for name in {"engine", "spark"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(name)
    dear = {item.path for item in items if item.get_closest_marker("spark") or item.path.parent.name in DEAR}
    items.sort(key=lambda item: item.path not in dear)


class FilesAndServedFolders(LoadFileScheduling):
    """A file of tests goes to one process, and so do all files of a folder that starts a server once a process."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(super()._split_scope(nodeid))
        return file.parent.name if file.parent.name in SERVED else str(file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndServedFolders | None:
    """Divide tests by files and some folders where ``--dist loadfile`` asks for files."""
    return FilesAndServedFolders(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def _few_events_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a few events give is put together from several tasks too, as it is of many events outside of the tests."""
    monkeypatch.setattr("spark_jobs.engine.workers.LEAST_A_TASK", 1)


_sessions: list[SparkSession] = []


@pytest.fixture(autouse=True)
def _the_session_stays() -> Iterator[None]:
    """A command that is tested in this process may stop the session of all tests: that test fails, not those after."""
    yield
    for session in _sessions:
        if session.sparkContext._jsc is None:
            _sessions.clear()
            pytest.fail("this test stopped the Spark session of all tests: give what it runs one of its own")
