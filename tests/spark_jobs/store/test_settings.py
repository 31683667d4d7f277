"""Settings from the environment: what is read, what a wrong value does, and that nothing else reads it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizer.errors.crashes import is_debugging
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.engine.configuration import spark_settings
from spark_jobs.store import settings as module
from spark_jobs.store.settings import DECLARED, PROJECT, Settings, page, settings

ROOT = Path(__file__).resolve().parents[3]
CONFIGURATION = ROOT / "docs" / "configuration.md"

NAMED_ELSEWHERE = {
    "heddle/local/servers.py": "sets them for the processes of Airflow",
    "optimizer/errors/crashes.py": "HEDDLE_DEBUG: the science imports nothing of the jobs",
    "heddle/airflow/dag_set.py": "HEDDLE_SESSION: a DAG file is parsed without Heddle's packages",
    "heddle/airflow/operators.py": "sets them for the job that a task starts",
    "heddle/cli/root.py": "sets HEDDLE_DEBUG for --debug",
    "heddle/local/demo.py": "sets them for all processes of the demo",
    "spark_jobs/operations/project.py": "writes them into the environment file of a new project",
}
"""Modules that name a variable of Heddle's as a value, and why."""

OF_OTHERS = {
    "heddle/local/demo.py": "what is handed on to Airflow",
    "heddle/local/servers.py": "PATH, and what is handed on to Airflow",
    "spark_jobs/store/storage.py": "what Arrow and delta-rs read of stores",
    "optimizer/errors/crashes.py": "see NAMED_ELSEWHERE",
    "optimizer/errors/redaction.py": "the values of all secrets",
    "heddle/airflow/dag_set.py": "see NAMED_ELSEWHERE",
    "heddle/airflow/operators.py": "what a job that a task starts has",
    "heddle/cli/root.py": "see NAMED_ELSEWHERE",
    "heddle/cli/reports.py": "where GitHub has the checkout",
    "spark_jobs/audit/checks/suite.py": "what Great Expectations reads",
    "spark_jobs/streams/copies/databases/opening.py": "secrets that a source's options name",
    "spark_jobs/operations/database_project.py": "whether a secret is set that a source will name",
    "spark_jobs/engine/light_imports.py": "the threads of BLAS",
    "spark_jobs/engine/session.py": "what Spark and Python read",
    "spark_jobs/engine/configuration.py": "where Java is, and what a user has set for Spark",
    "spark_jobs/engine/choice.py": "whether spark-submit started the process",
    "spark_jobs/engine/submitted.py": "whether spark-submit started the process",
    "spark_jobs/engine/freed_memory.py": "what glibc and Arrow read of memory",
    "spark_jobs/operations/lineage_delivery.py": "what OpenLineage's client reads",
    "spark_jobs/engine/local.py": "the path of the modules that worker processes import",
}
"""Modules that touch the environment of the process, and why."""


def sources() -> Iterator[tuple[str, list[ast.AST]]]:
    """The modules of the project but the settings: each path and its syntax tree, flat."""
    for folder in ("heddle", "optimizer", "spark_jobs", "plugins", "dags", "docker"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if path != Path(module.__file__) and re.search("HEDDLE_|environ|getenv", text):
                yield path.relative_to(ROOT).as_posix(), list(ast.walk(ast.parse(text)))


def is_variable(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"HEDDLE_[A-Z_]+", node.value) is not None
    )


def is_environment(node: ast.AST) -> bool:
    """``os.environ``, ``os.getenv``, or either of them imported by its name."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) and node.module == "os" else []
    names += [node.attr] if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" else []
    return bool({"environ", "environb", "getenv", "getenvb"} & set(names))


def test_no_other_module_reads_a_setting() -> None:
    paths = {path for path, nodes in sources() if any(map(is_variable, nodes))}
    assert paths == NAMED_ELSEWHERE.keys(), "ask spark_jobs.store.settings.settings()"


def test_no_other_module_reads_the_environment() -> None:
    touching = {path for path, nodes in sources() if any(map(is_environment, nodes))}
    assert touching == OF_OTHERS.keys(), "ask spark_jobs.store.settings.settings()"


def test_every_setting_is_of_one_variable_that_is_read() -> None:
    class Noted(dict[str, str]):
        def __init__(self) -> None:
            self.read: list[str] = []

        def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
            self.read.append(name)
            return default

    environment = Noted()
    Settings(environment)
    declared = [each.variable for each in DECLARED]
    assert sorted(environment.read) == sorted(declared) and len(set(declared)) == len(declared)


def test_defaults() -> None:
    settings = Settings({})
    assert settings.home == PROJECT == ROOT
    assert (settings.warehouse, settings.streams) == (str(ROOT / "var/warehouse"), ROOT / "dags/workload/streams.yaml")
    assert settings.workload == (str(ROOT / "dags/workload/*.sql"),) and settings.jars == ROOT / ".cache/ivy/jars"
    assert (settings.source_roots, settings.spark_master, settings.lease_dsn, settings.airflow_port) == (
        None,
        None,
        None,
        None,
    )
    assert (settings.owner_quota, settings.driver_memory, settings.debug) == (10_000, "2g", False)


def test_what_is_said_is_taken() -> None:
    settings = Settings(
        {
            "HEDDLE_HOME": "/a",
            "HEDDLE_WAREHOUSE": "/b",
            "HEDDLE_STREAMS": "/c.yaml",
            "HEDDLE_WORKLOAD": "/d/*.sql",
            "HEDDLE_SOURCES": "/e::/f",
            "HEDDLE_OWNER": " desk one ",
            "HEDDLE_OWNER_QUOTA": "7",
            "HEDDLE_TABLES_OF_OWNERS": " ops,, desk one ",
            "HEDDLE_SPARK_MASTER": "spark://g:7077",
            "HEDDLE_DRIVER_MEMORY": "5g",
            "HEDDLE_JARS": "/h",
            "HEDDLE_LEASE_DSN": "postgresql://i",
            "HEDDLE_DEBUG": "1",
            "HEDDLE_AIRFLOW_PORT": " 8090 ",
        }
    )
    assert (settings.home, settings.warehouse, settings.streams) == (Path("/a"), "/b", Path("/c.yaml"))
    assert (settings.workload, settings.source_roots, settings.owner_quota) == (("/d/*.sql",), ("/e", "/f"), 7)
    assert settings.tables_of_owners == ("ops", "desk one") and settings.owner == "desk one"
    assert (settings.spark_master, settings.driver_memory, settings.jars) == ("spark://g:7077", "5g", Path("/h"))
    assert (settings.lease_dsn, settings.debug, settings.airflow_port) == ("postgresql://i", True, 8090)


def test_what_lies_in_the_project_follows_its_folder() -> None:
    settings = Settings({"HEDDLE_HOME": "/a"})
    assert settings.warehouse == "/a/var/warehouse" and settings.streams == Path("/a/dags/workload/streams.yaml")
    assert settings.workload == ("/a/dags/workload/*.sql",)


def test_an_empty_variable_is_as_none_but_for_spark() -> None:
    names = [each.variable for each in DECLARED]
    settings = Settings(dict.fromkeys(names, ""))
    differing = {each.name for each in DECLARED if getattr(settings, each.name) != getattr(Settings({}), each.name)}
    assert differing == {"spark_master", "driver_memory"}
    assert not is_debugging({"HEDDLE_DEBUG": "0"}) and is_debugging({"HEDDLE_DEBUG": "no"})


@pytest.mark.parametrize("text", ["a\tb", "x" * 129])
def test_an_owner_that_cannot_be_one_fails_what_asks_for_it_alone(text: str) -> None:
    settings = Settings({"HEDDLE_OWNER": text})
    with pytest.raises(HeddleError, match="HDL-120 HEDDLE_OWNER"):
        settings.owner  # noqa: B018


@pytest.mark.parametrize("text", ["many", "-1", "1e9", "9" * 20, "٣"])
def test_a_wrong_quota_fails_what_asks_for_it_alone(text: str) -> None:
    settings = Settings({"HEDDLE_OWNER_QUOTA": text})
    with pytest.raises(HeddleError, match="HDL-120 HEDDLE_OWNER_QUOTA"):
        settings.owner_quota  # noqa: B018


@pytest.mark.parametrize("text", ["http", "-1", "65536", "80.5", "٣"])
def test_a_wrong_port_fails_what_asks_for_it_alone(text: str) -> None:
    settings = Settings({"HEDDLE_AIRFLOW_PORT": text})
    with pytest.raises(HeddleError, match="HDL-120 HEDDLE_AIRFLOW_PORT"):
        settings.airflow_port  # noqa: B018


def test_without_delta_no_session_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_JARS", str(tmp_path))
    with pytest.raises(HeddleError, match="HDL-520"):
        spark_settings()


def test_settings_are_those_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("/first", "/second"):
        monkeypatch.setenv("HEDDLE_WAREHOUSE", folder)
        assert Path(settings().warehouse) == Path(folder)


def test_the_password_of_the_lease_is_in_no_text_of_the_settings() -> None:
    settings = Settings({"HEDDLE_LEASE_DSN": "postgresql://heddle:hunter2@db"})
    assert settings.lease_dsn is not None and "hunter2" not in f"{settings} {settings!r}"


def test_the_files_of_the_workload_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.sql", "a.sql", "c.txt"):
        (tmp_path / name).touch()
    settings = Settings({"HEDDLE_WORKLOAD": f"{tmp_path}/*.sql"})
    assert settings.workload_files() == [f"{tmp_path}/a.sql", f"{tmp_path}/b.sql"]


def test_the_page_of_settings_is_up_to_date() -> None:
    renew = f"renew it: .venv/bin/python -m {module.__name__} > {CONFIGURATION.relative_to(ROOT)}"
    assert CONFIGURATION.exists() and CONFIGURATION.read_text() == page(), renew
    for each in DECLARED:
        assert f"| `{each.variable}` |" in page()
