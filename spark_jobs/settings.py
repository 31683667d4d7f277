"""What Heddle is told by environment variables and ``heddle.toml``: one frozen value, read anew at each call.

No other module reads ``HEDDLE_*`` from the environment, but two that cannot ask here: :mod:`optimizer.errors` (the
science below imports nothing of the jobs) for ``HEDDLE_DEBUG``, by the rule that is used here, and
``plugins/heddle_airflow.py`` for ``HEDDLE_HOME`` and ``HEDDLE_SESSION`` (DAG files are parsed without Heddle's
packages).

``docs/configuration.md`` is :func:`page`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from optimizer.errors.crashes import is_debugging
from optimizer.errors.diagnostics import Diagnostic, HeddleError, printable
from optimizer.errors.redaction import HIDDEN, keep_secret, redacted
from optimizer.workload.urls import split_places
from spark_jobs.project_file import MOST, NAME, WORDS, Form, ProjectFile, read_project

PROJECT = Path(__file__).resolve().parent.parent
"""The folder of this code: where everything is unless the environment says otherwise."""

OWNER_QUOTA = 10_000
"""The most queries of one owner, unless ``HEDDLE_OWNER_QUOTA`` says otherwise."""


LOCAL_EVENTS = 15_000_000
"""Events and rows up to which a run starts no Spark, if nothing says which engine it takes, unless
``HEDDLE_LOCAL_EVENTS`` says otherwise."""

ENGINES = ("spark", "local", "auto")
"""What computes: Spark; processes of this machine, without a JVM; whichever is cheaper for what there is to do."""

SENT = ("folder", "archive")
"""How executors get this code: from the folder of the project, which they see too; as an archive that is sent."""

CHECKS = ("all", "sample", "none")
"""How much of a run's answers is checked: all of them are inspected and a sample is recomputed from raw events; only
the sample is recomputed; nothing is done. From much to little."""

EVENTS = Path("var") / "spark-events"
"""Spark's event log, in HEDDLE_HOME."""

DRIVER_MEMORY = "2g"
"""Memory of Spark's driver, unless ``HEDDLE_DRIVER_MEMORY`` or Spark's own settings say otherwise."""

NO_FILE = ProjectFile()

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class TaskMemory:
    """The memory that the data of one task may take, in ``bytes``, and what it is divided into.

    Data is copied while it is worked on: batches are merged, cells rolled up, encoded, put in order and written. So
    what a task gathers before it spills or splits is a fraction of what it may take (measured:
    ``python -m tests.benchmarks.memory``). Beside it a task has what every worker has: Python, Arrow and the compiled
    kernels.
    """

    bytes: int

    @property
    def cells(self) -> int:
        """Bytes of cells that a task of the first stage gathers before it writes them."""
        return self.bytes // 8

    @property
    def piece(self) -> int:
        """Bytes of partial rows that are put in order and written at once, and of answers that wait for their file."""
        return self.bytes // 16

    @property
    def partial_rows(self) -> int:
        """Bytes of stored partial rows that a task of the final stage answers from at once."""
        return self.bytes // 8


TASK_MEMORY = TaskMemory(2 << 30)
"""What a task may take unless ``HEDDLE_TASK_MEMORY`` says otherwise."""


def _setting(
    variable: str,
    kind: str,
    default: str,
    meaning: str,
    wrong: str,
    form: Form | None = None,
    option: str = "",
    is_secret: bool = False,
) -> Any:
    """``form``: of its value in a project file; None: the environment alone says it. ``option``: of commands, which
    have no other default."""
    about = {"variable": variable, "kind": kind, "default": default, "meaning": meaning, "wrong": wrong}
    key = variable.removeprefix("HEDDLE_").lower()
    return field(metadata=about | {"key": key, "form": form, "option": option}, repr=not is_secret)


@dataclass(frozen=True)
class Settings:
    """The settings of Heddle.

    A wrong value fails what needs it and nothing else: texts that may be wrong are kept as they are, and checked by the
    property of their name. An empty variable is as one that is not set, but for ``spark_master`` and ``driver_memory``.
    What no variable says, the project file does.

    Parameters
    ----------
    home
        The folder of the project.
    warehouse, streams
        The folder or URL of the tables, and the file that declares the streams, of the DAGs and pages.
    workload
        The files of queries that the DAGs register: patterns of paths, and folders.
    source_roots
        The only folders that streams are read from; None: any but the system's.
    copies
        The folder or URL of the copies of what only Spark reads.
    owner_text
        See :attr:`owner`.
    owner_quota_text
        See :attr:`owner_quota`.
    tables_of_owners
        Owners whose queries have tables of their own.
    spark_master
        The master's URL; None: not said.
    spark_code_text
        See :attr:`spark_code`.
    spark_remote
        The URL of a Spark Connect server; None: a session is started here. It may hold a token.
    engine_text
        See :attr:`engine`.
    local_events_text, in_process_text
        See :attr:`local_events`.
    event_log
        The folder or URL of Spark's event log; None: there is none.
    spark_history_text
        See :attr:`spark_history`.
    driver_memory
        Of the JVM of Spark's driver, as Spark writes it.
    task_memory_text
        See :attr:`task_memory`.
    jars
        The folder of Delta's jars.
    lease_dsn
        Of the PostgreSQL that keeps the lease of warehouses; None: a file beside the tables does. It is no part of the
        value's text: it holds a password.
    catalog_schema
        Where the DAG of the plan makes every query a view, as Spark writes its name; None: nowhere.
    topics
        The file of the topics that the DAG ``land_topics`` lands.
    kafka_options
        The file of options of Kafka's client; None: there are none.
    session
        How long a session of the DAG that answers refreshes lives; empty: each refresh is a run of its own.
    checks_text
        See :attr:`checks`.
    cpu_hour_price
        What a CPU hour costs, as text: :meth:`spark_jobs.costs.money.CpuPrice.parse` reads it.
    debug
        Whether tracebacks, and what the JVM logs, are printed.
    airflow_port_text
        See :attr:`airflow_port`.
    """

    home: Path = _setting(
        "HEDDLE_HOME",
        "folder",
        "the folder of the code",
        "the project: `dags`, `spark_jobs` and `var` lie in it, for Airflow",
        "not checked",
    )
    warehouse: str = _setting(
        "HEDDLE_WAREHOUSE",
        "folder or URL",
        "`var/warehouse` in HEDDLE_HOME",
        "the tables; the default is for the DAGs and the pages alone, commands have none",
        "HDL-501, HDL-546 or HDL-574 to HDL-579 when it is opened",
        "path",
        "--warehouse PLACE",
    )
    streams: Path = _setting(
        "HEDDLE_STREAMS",
        "file",
        "`dags/workload/streams.yaml` in HEDDLE_HOME",
        "declares the streams; the default is for the DAGs alone, commands have none",
        "HDL-111, or HDL-450 to HDL-461 for what is in it",
        "path",
        "--streams FILE",
    )
    workload: tuple[str, ...] = _setting(
        "HEDDLE_WORKLOAD",
        "pattern of paths",
        "`dags/workload/*.sql` in HEDDLE_HOME",
        "the files of queries; the default is for the DAGs alone, commands have none",
        "HDL-113 if it names no file; HDL-111 if one of several names none",
        "paths",
        "FILES",
    )
    source_roots: tuple[str, ...] | None = _setting(
        "HEDDLE_SOURCES",
        "folders and URLs of folders in stores, `:` between them",
        "none: any folder but the system's",
        "all files of streams have to lie in them, links followed; in a store, the URL or what it lies in is named",
        "HDL-458 for a stream that lies elsewhere; HDL-574 or HDL-575 for a URL that is none",
        "paths",
    )
    copies: str = _setting(
        "HEDDLE_COPIES",
        "folder or URL",
        "that of the warehouse with `-copies` behind it",
        "where [copies](sources.md#what-only-spark-reads) lie of streams that only Spark reads",
        "HDL-542 or HDL-574 to HDL-579 when something is copied",
        "path",
    )
    owner_text: str = _setting(
        "HEDDLE_OWNER",
        "1 to 128 printable characters",
        "none",
        "the owner of queries that are read without `-- owner:`",
        "HDL-120 when queries are read",
        "text",
    )
    owner_quota_text: str = _setting(
        "HEDDLE_OWNER_QUOTA",
        "whole number, 0 or more",
        f"`{OWNER_QUOTA}`",
        "most registered queries of one owner (`-- owner:`); later ones are refused with HDL-311",
        "HDL-120 when queries are read",
        "number",
    )
    tables_of_owners: tuple[str, ...] = _setting(
        "HEDDLE_TABLES_OF_OWNERS",
        "owners, `,` between them",
        "none",
        "their queries have [tables of their own](tables.md#a-table-of-its-own), under the query's name unless "
        "`-- table:` says another",
        "not checked",
        "texts",
    )
    spark_master: str | None = _setting(
        "HEDDLE_SPARK_MASTER",
        "URL",
        "`local[*]`",
        "where Spark runs: any Spark master",
        "HDL-900: Spark refuses it",
        "text",
    )
    spark_code_text: str = _setting(
        "HEDDLE_SPARK_CODE",
        "`folder` or `archive`",
        "`folder`",
        "how the executors of a cluster get Heddle's code: from the folder of the project, which they see under the "
        "same path, or as an archive that is sent with compiled kernels. Spark Connect always sends it",
        "HDL-120 when Spark starts",
        "text",
    )
    spark_remote: str | None = _setting(
        "HEDDLE_SPARK_REMOTE",
        "URL",
        "none: a classic session",
        "a Spark Connect server (`sc://host:15002`) that computes instead; a secret, as it may hold a token",
        "HDL-529 when a session starts",
        "text",
        is_secret=True,
    )
    engine_text: str = _setting(
        "HEDDLE_ENGINE",
        "`spark`, `local` or `auto`",
        "`spark` in DAGs, with a master elsewhere and with Spark Connect; else `auto`",
        "what runs compute with: Spark; processes of this machine, without a JVM; local processes for no more events "
        "and rows than `local_events`, else Spark",
        "HDL-120 when something runs; also `local` with a master elsewhere",
        "text",
        option="--engine",
    )
    local_events_text: str = _setting(
        "HEDDLE_LOCAL_EVENTS",
        "whole number, 0 or more",
        f"`{LOCAL_EVENTS}`",
        "the events and rows up to which `engine: auto` starts no Spark",
        "HDL-120 when something runs",
        "number",
    )
    in_process_text: str = _setting(
        "HEDDLE_IN_PROCESS",
        "whole number, 0 or more",
        "none",
        "the former name of `local_events`, of which 0 was `engine: spark`. It is read, with a warning (HDL-125)",
        "HDL-120 when something runs",
        "number",
    )
    event_log: str | None = _setting(
        "HEDDLE_EVENT_LOG",
        "folder or URL; `none`",
        "`var/spark-events` in HEDDLE_HOME",
        "where Spark writes down what each application did, for a history server; in the default folder a file is kept "
        "for seven days",
        "not written if it cannot be made",
        "path",
    )
    spark_history_text: str = _setting(
        "HEDDLE_SPARK_HISTORY",
        "URL",
        "none",
        "where Spark's history server is, as `http://history:18080`: the link *Spark* of Airflow's tasks and the page "
        "of a run lead there",
        "HDL-120 when the page of a run is read; the task has no link",
        "text",
    )
    driver_memory: str = _setting(
        "HEDDLE_DRIVER_MEMORY",
        "size",
        "`2g`",
        "memory of Spark's driver, as Spark writes it; without it that of `spark-defaults.conf`, where it has one",
        "HDL-900: the JVM does not start",
        "text",
    )
    task_memory_text: str = _setting(
        "HEDDLE_TASK_MEMORY",
        "bytes: `512m`, `2g`",
        "`2g`",
        "what the data of one task of a run may take, beside what every worker has (some 0.3 GB): beyond it partial "
        "rows are written early, answers made in several passes; what cannot be divided fails alone "
        "([limits](limits.md#memory))",
        "HDL-120 when something runs",
        "text",
    )
    jars: Path = _setting(
        "HEDDLE_JARS",
        "folder",
        "`.cache/ivy/jars` in the folder of the code",
        "Delta's jars, which `make setup` puts there",
        "HDL-520 when a session starts",
        "path",
    )
    lease_dsn: str | None = _setting(
        "HEDDLE_LEASE_DSN",
        "PostgreSQL DSN",
        "none: a file of the warehouse keeps it",
        "the server that keeps the lease of a warehouse that several hosts write; a secret, which nothing repeats",
        "HDL-513 when something is written",
        "text",
        is_secret=True,
    )
    catalog_schema: str | None = _setting(
        "HEDDLE_CATALOG_SCHEMA",
        "schema, or catalogue.schema",
        "none: no views are made",
        "where Spark's catalogue gets a view of every query after each new version of the plan",
        "HDL-623 or HDL-624 when they are made; answers are not concerned",
        "text",
    )
    topics: Path = _setting(
        "HEDDLE_TOPICS",
        "file",
        "`dags/workload/topics.toml` in HEDDLE_HOME",
        "the topics of Kafka that a DAG [lands](kafka.md#in-airflow); while it names none, or is not there, the DAG is "
        "skipped",
        "HDL-626 when the DAG runs",
        "path",
    )
    kafka_options: Path | None = _setting(
        "HEDDLE_KAFKA_OPTIONS",
        "file",
        "none: Kafka asks for nothing",
        "a properties file with the options of Kafka's client: [security](kafka.md#security)",
        "HDL-626 when a topic is landed",
    )
    session: str = _setting(
        "HEDDLE_SESSION",
        "minutes or hours: `15 minutes`, `1 hour`",
        "none: each refresh is a run of its own",
        "the DAG `aggregate_windows` starts a [session](airflow.md#sessions) so often, which answers each refresh when "
        "it is due",
        "Airflow shows the DAG's import error",
    )
    checks_text: str = _setting(
        "HEDDLE_CHECKS",
        "`all`, `sample` or `none`",
        "`all`",
        "what of a run's answers is checked before they are published: everything is inspected and a sample "
        "recomputed from raw events; only the sample; nothing, which its record and readers are told",
        "HDL-120 when something runs",
        "text",
        option="--checks",
    )
    cpu_hour_price: str = _setting(
        "HEDDLE_CPU_HOUR_PRICE",
        "amount, with a currency or not",
        "none: costs are CPU seconds alone",
        "what a CPU hour costs, e.g. `0.05 EUR`: the pages say what queries and owners "
        "[cost a month](operations.md#money)",
        "HDL-120 when a page is read",
        "text",
    )
    debug: bool = _setting(
        "HEDDLE_DEBUG",
        "switch",
        "off",
        "print tracebacks, and what Spark logs; `heddle --debug` sets it",
        "on for any text but `0`",
    )
    airflow_port_text: str = _setting(
        "HEDDLE_AIRFLOW_PORT",
        "port, 0 to 65535",
        "that of the last start, else `8080`",
        "where `make up` has Airflow listen on 127.0.0.1; if it is taken, or 0, another is chosen",
        "HDL-120 when Airflow starts",
        "port",
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], project: ProjectFile = NO_FILE) -> Settings:
        """What an environment says, and where it says nothing, a project file. Raises nothing: see the class."""
        home = _home(environment)

        def text(key: str, takes_empty: bool = False) -> str | None:
            given = environment.get(f"HEDDLE_{key.upper()}")
            is_given = given is not None if takes_empty else bool(given)
            return given if is_given else next(iter(project.values.get(key, ())), None)

        def texts(key: str, separator: str | None = None) -> tuple[str, ...] | None:
            given = environment.get(f"HEDDLE_{key.upper()}")
            if not given:
                return project.values.get(key)
            return tuple(part for part in (given.split(separator) if separator else [given]) if part)

        def places(key: str) -> tuple[str, ...] | None:
            given = environment.get(f"HEDDLE_{key.upper()}")
            return split_places(given, os.pathsep) if given else project.values.get(key)

        warehouse = text("warehouse") or str(home / "var" / "warehouse")
        memory, owners = text("driver_memory", takes_empty=True), texts("tables_of_owners", ",")
        return cls(
            home=home,
            warehouse=warehouse,
            streams=Path(text("streams") or home / "dags" / "workload" / "streams.yaml"),
            workload=texts("workload") or (str(home / "dags" / "workload" / "*.sql"),),
            source_roots=places("sources"),
            copies=text("copies") or f"{warehouse.rstrip('/')}-copies",
            owner_text=text("owner") or "",
            owner_quota_text=text("owner_quota") or str(OWNER_QUOTA),
            tables_of_owners=tuple(name.strip() for name in owners or () if name.strip()),
            spark_master=text("spark_master", takes_empty=True),
            spark_code_text=text("spark_code") or "folder",
            spark_remote=text("spark_remote") or None,
            engine_text=text("engine") or "",
            local_events_text=text("local_events") or "",
            in_process_text=text("in_process") or "",
            event_log=_none(text("event_log") or str(home / EVENTS)),
            spark_history_text=text("spark_history") or "",
            driver_memory=DRIVER_MEMORY if memory is None else memory,
            task_memory_text=text("task_memory") or "2g",
            jars=Path(text("jars") or PROJECT / ".cache" / "ivy" / "jars"),
            lease_dsn=text("lease_dsn") or None,
            catalog_schema=text("catalog_schema") or None,
            topics=Path(text("topics") or home / "dags" / "workload" / "topics.toml"),
            kafka_options=Path(file) if (file := environment.get("HEDDLE_KAFKA_OPTIONS")) else None,
            session=environment.get("HEDDLE_SESSION") or "",
            checks_text=text("checks") or CHECKS[0],
            cpu_hour_price=text("cpu_hour_price") or "",
            debug=is_debugging(environment),
            airflow_port_text=text("airflow_port") or "",
        )

    @property
    def owner(self) -> str:
        """The owner of queries that name none; empty: they have none. Raises HDL-120 if it cannot be one."""
        text = self.owner_text.strip()
        if not text.isprintable() or len(text) > 128:
            raise HeddleError("HDL-120", f"HEDDLE_OWNER is {text[:128]!r}", "1 to 128 printable characters")
        return text

    @property
    def owner_quota(self) -> int:
        """The most registered queries of one owner. Raises HDL-120 if that is no number."""
        text = self.owner_quota_text
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
            raise HeddleError("HDL-120", f"HEDDLE_OWNER_QUOTA is {text!r}", "a whole number of queries, 0 or more")
        return int(text)

    @property
    def spark_history(self) -> str | None:
        """The address of Spark's history server, without a slash at its end; None: there is none. Raises HDL-120."""
        text = self.spark_history_text.strip().rstrip("/")
        if text and not re.fullmatch(r"https?://[^\s\"'<>?#]{1,500}", text):
            hint = "the address of its first page, as http://history:18080"
            raise HeddleError("HDL-120", f"HEDDLE_SPARK_HISTORY is {printable(redacted(text), 128)!r}", hint)
        return text or None

    @property
    def engine(self) -> str | None:
        """What runs compute with, one of :data:`ENGINES`; None: nothing says. Raises HDL-120."""
        text = self.engine_text
        if text and text not in ENGINES:
            raise HeddleError("HDL-120", f"HEDDLE_ENGINE is {text[:128]!r}", f"one of {', '.join(ENGINES)}")
        if not text and self.in_process_text:
            return "auto" if self._number("in_process") else "spark"
        return text or None

    @property
    def spark_code(self) -> str:
        """How executors get this code, one of :data:`SENT`. Raises HDL-120."""
        text = self.spark_code_text
        if text not in SENT:
            raise HeddleError("HDL-120", f"HEDDLE_SPARK_CODE is {text[:128]!r}", f"one of {', '.join(SENT)}")
        return text

    @property
    def local_events(self) -> int:
        """Events and rows up to which ``auto`` starts no Spark. Raises HDL-120 if that is no number."""
        if self.local_events_text:
            return self._number("local_events")
        return self._number("in_process") if self.in_process_text else LOCAL_EVENTS

    def _number(self, key: str) -> int:
        text = getattr(self, f"{key}_text")
        if not re.fullmatch(r"\d{1,12}", text, re.ASCII):
            message = f"HEDDLE_{key.upper()} is {text!r}"
            raise HeddleError("HDL-120", message, "a whole number of events, 0 or more")
        return int(text)

    def warnings(self) -> list[Diagnostic]:
        """HDL-125 for what is read though it is called otherwise today."""
        if not self.in_process_text:
            return []
        now = 'engine = "spark"' if not self._number("in_process") else f"local_events = {self.in_process_text}"
        message = "HEDDLE_IN_PROCESS is the former name of a setting"
        return [Diagnostic("HDL-125", message, f"in {NAME}: {now}", severity="warning")]

    @property
    def task_memory(self) -> TaskMemory:
        """What the data of one task may take. Raises HDL-120 if that is no size."""
        text = self.task_memory_text.strip().lower()
        size = re.fullmatch(r"([1-9]\d{0,14})([kmg]?)b?", text, re.ASCII)
        if size is None:
            message = f"HEDDLE_TASK_MEMORY is {self.task_memory_text[:128]!r}"
            raise HeddleError("HDL-120", message, "a size in bytes, with k, m or g behind it: `512m`")
        return TaskMemory(int(size[1]) * _UNITS[size[2]])

    @property
    def airflow_port(self) -> int | None:
        """The port that the embedded Airflow listens on; None: not said. Raises HDL-120 if that is no port."""
        text = self.airflow_port_text.strip()
        if not text:
            return None
        if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or int(text) > 65_535:
            raise HeddleError("HDL-120", f"HEDDLE_AIRFLOW_PORT is {text!r}", "a port, 0 to 65535")
        return int(text)

    @property
    def checks(self) -> str:
        """What is checked of answers before they are published, one of :data:`CHECKS`. Raises HDL-120."""
        if self.checks_text not in CHECKS:
            raise HeddleError("HDL-120", f"HEDDLE_CHECKS is {self.checks_text!r}", f"one of {', '.join(CHECKS)}")
        return self.checks_text

    def workload_files(self) -> list[str]:
        """The files that :attr:`workload` names, in the order of their names; of several patterns one that names none
        stays as it is, so that whoever reads the files says so: its queries are not to be taken for removed."""
        files = {pattern: sorted(glob(pattern)) for pattern in self.workload}  # noqa: PTH207 - it may be absolute
        named = [file for pattern, of in files.items() for file in of or ([pattern] if len(files) > 1 else [])]
        return sorted(set(named))


def project_file(environment: Mapping[str, str]) -> ProjectFile:
    """The project file of this process, upward from the working directory, else in HEDDLE_HOME. Raises HDL-123."""
    project = read_project(_home(environment), *_keys())
    keep_secret({key: ", ".join(values) for key, values in project.values.items()})
    return project


@cache
def _keys() -> tuple[dict[str, Form], dict[str, str]]:
    """The forms of what a project file may say, and where else is said what it may not."""
    about = [one.metadata for one in fields(Settings)]
    others = {each["key"]: f"set {each['variable']} in the environment" for each in about if not each["form"]}
    return {each["key"]: each["form"] for each in about if each["form"]}, others


def _none(text: str) -> str | None:
    # of a project file it is below its folder
    return None if Path(text).name == "none" else text


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HEDDLE_HOME") or PROJECT)


def settings() -> Settings:
    """The settings of this process as its environment and its project file are now. Raises HDL-123."""
    return Settings.from_environment(os.environ, project_file(os.environ))


@dataclass(frozen=True)
class Described:
    """A setting as a person is shown it: its value as text, without secrets, and where that comes from.

    ``source`` is ``environment``, ``heddle.toml`` or ``default``; ``file`` and ``line`` (from 1) are of the project
    file, empty and 0 for another source.
    """

    name: str
    variable: str
    value: str
    source: str
    file: str = ""
    line: int = 0


def describe(environment: Mapping[str, str] = os.environ) -> tuple[list[Described], Path | None]:
    """Every setting, in the order of the page on configuration, and the project file. Raises HDL-123."""
    project = project_file(environment)
    configured = Settings.from_environment(environment, project)
    found = []
    for one in fields(Settings):
        key, variable = one.metadata["key"], one.metadata["variable"]
        value = getattr(configured, one.name)
        text = HIDDEN if value and not one.repr else _shown(value)
        is_taken_empty = one.name in ("spark_master", "driver_memory") and variable in environment
        if environment.get(variable) or is_taken_empty:
            found.append(Described(key, variable, text, "environment"))
        elif key in project.values:
            found.append(Described(key, variable, text, NAME, str(project.path), project.line_of(key)))
        else:
            found.append(Described(key, variable, text, "default"))
    return found, project.path


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return redacted(", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value))


def said(name: str) -> Any:
    """The value of a setting that the environment or the project file says; None if neither does. Raises HDL-123."""
    project = project_file(os.environ)
    about = next(one.metadata for one in fields(Settings) if one.name == name)
    if not os.environ.get(about["variable"]) and about["key"] not in project.values:
        return None
    return getattr(Settings.from_environment(os.environ, project), name)


def required(name: str) -> Any:
    """The value of a setting that commands have no default of. Raises HDL-124 if nothing says it, HDL-123."""
    value = said(name)
    if value is None:
        about = next(one.metadata for one in fields(Settings) if one.name == name)
        hint = f'give {about["option"]}, or set {about["variable"]}, or write {about["key"]} = "…" into {NAME}'
        raise HeddleError("HDL-124", f"nothing says the {name} of this command", hint)
    return value


def schema() -> dict[str, Any]:
    """The JSON schema of ``heddle.toml``, for editors."""
    text = {"type": "string", "pattern": r"^[^\x00]*[^\s\x00][^\x00]*$"}
    several = {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}
    forms: dict[Form, dict[str, Any]] = {"path": text, "paths": several, "text": text, "texts": several}
    forms |= {form: {"type": "integer", "minimum": 0, "maximum": most} for form, most in MOST.items()}
    about = [one.metadata for one in fields(Settings) if one.metadata["form"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Heddle: {NAME}",
        "type": "object",
        "properties": {each["key"]: {"description": each["meaning"]} | forms[each["form"]] for each in about},
        "additionalProperties": False,
    }


INTRODUCTION = """\
Heddle is configured by options of commands, by environment variables, and by a project file `heddle.toml`. What is
said first in this order holds: option (or parameter of a DAG), environment variable, project file, default. They are
read when they are needed, not once at the start; `heddle config` shows each value and where it comes from.

## heddle.toml

```toml
warehouse = "house"
streams = "streams.yaml"
workload = ["queries", "more/*.sql"]
tables_of_owners = ["desk"]
```

With this file in a folder, `heddle validate`, `heddle run --from 2013-07-01 --to 2013-07-02`, `heddle status` and all
other commands there and below need neither files nor `--streams` and `--warehouse`. `heddle plan`, `heddle explain` and
`heddle what-if` take the warehouse from it only where no FILES are given.

The nearest file upward from the working directory is read; if there is none, that in `HEDDLE_HOME`, which is where DAGs
have theirs. Only one is read.

The file can say which code Spark loads. So Heddle refuses a file above the working directory that other users control,
with HDL-123 and the folder or file that causes it: every folder, link and target on its way has to belong to you or to
root, and nobody else may write it. A folder with the sticky bit, such as `/tmp`, may lie above the project but not be
the project. A group that has no other member, a read-only mount and a mounted ConfigMap are fine. If you trust the
folder, set `HEDDLE_HOME` to it: what it names is not checked.

Keys are named in the table below. Paths are relative to the folder of the file. An unknown key, a value of a wrong type
and bad TOML are HDL-123, with the place.

## Editors

`heddle schema streams` and `heddle schema heddle.toml` print JSON schemas, which are shipped as
[streams.schema.json](schemas/streams.schema.json) and [heddle.schema.json](schemas/heddle.schema.json). Editors
complete keys and mark mistakes by them. For YAML (VS Code's YAML extension, and all that use yaml-language-server) this
is the first line of `streams.yaml`, with the path of a copy of the schema:

```yaml
# yaml-language-server: $schema=streams.schema.json
streams:
  trades:
    source: {format: csv, path: trades.csv}
    time: ts
```

For TOML (Even Better TOML, taplo) it is `#:schema heddle.schema.json` in the first line of `heddle.toml`. A schema
knows keys, types and choices; `heddle validate` knows the rest.

## Settings
"""


def page() -> str:
    """The settings as Markdown: how they are given, and one table."""
    module = __spec__.name if __spec__ is not None else __name__
    lines = [
        "# Configuration",
        "",
        f"<!-- Generated: edit {module.replace('.', '/')}.py, then python -m {module} > docs/configuration.md -->",
        "",
        INTRODUCTION,
        "| Variable | In heddle.toml | Value | Default | Meaning | A wrong value |",
        "|---|---|---|---|---|---|",
    ]
    for one in fields(Settings):
        about = one.metadata
        key = f"`{about['key']}`: {WORDS[about['form']]}" if about["form"] else "no"
        cells = (f"`{about['variable']}`", key, about["kind"], about["default"], about["meaning"], about["wrong"])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "The codes are explained in [errors](errors.md).", ""])


if __name__ == "__main__":
    sys.stdout.write(page())
