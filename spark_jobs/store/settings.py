"""Settings from the environment and ``heddle.toml``, read again at each call.

No other module reads ``HEDDLE_*`` from the environment, except two that cannot import this one:
:mod:`optimizer.errors` (the science below imports nothing of the jobs) reads ``HEDDLE_DEBUG``, by the rule that is
used here, and :mod:`heddle.airflow.dag_set` reads ``HEDDLE_SESSION`` (DAG files are parsed without Heddle's other
packages).

``docs/configuration.md`` is :func:`page`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from optimizer.errors.crashes import is_debugging
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.installing import IS_CHECKOUT, PROJECT
from optimizer.errors.redaction import HIDDEN, keep_secret, redacted
from optimizer.workload.urls import split_places
from spark_jobs.store.alert_settings import parse_notify, parse_owners
from spark_jobs.store.configuration_text import page_of
from spark_jobs.store.memory import TASK_MEMORY, TaskMemory
from spark_jobs.store.project_file import MOST, NAME, WORDS, Form, ProjectFile, read_project

HOME = PROJECT if IS_CHECKOUT else Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "heddle"
"""Default of ``HEDDLE_HOME``: the checkout, or for an installed wheel a folder of the user."""

CACHE = PROJECT / ".cache"
if not IS_CHECKOUT:
    CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heddle"
"""The folder of what can be fetched again: of the checkout, or for an installed wheel of the user."""

OWNER_QUOTA = 10_000
"""Default of ``HEDDLE_OWNER_QUOTA``: the most queries of one owner."""

LOCAL_EVENTS = 15_000_000
"""Default of ``HEDDLE_LOCAL_EVENTS``: the events and rows up to which a run starts no Spark, if no setting names its
engine.
"""

ENGINES = ("spark", "local", "auto")
"""The engines: Spark; processes of this machine, without a JVM; the cheaper of them for the work at hand."""

SENT = ("folder", "archive", "installed")
"""The ways in which executors get this code: from the folder of the project, which they see too; as an archive that is
sent; from their own Python, in which it is installed.
"""

CHECKS = ("all", "sample", "none")
"""The levels of checking a run's answers, from much to little: all answers are inspected and a sample is recomputed
from raw events; only the sample is recomputed; nothing is checked.
"""

EVENTS = Path("var") / "spark-events"
"""Spark's event log, in HEDDLE_HOME."""

DRIVER_MEMORY = "2g"
"""Default memory of Spark's driver, if neither ``HEDDLE_DRIVER_MEMORY`` nor Spark's own settings define it."""

NO_FILE = ProjectFile()

SERVE_MEMORY = TaskMemory(512 << 20)
"""Default of ``HEDDLE_SERVE_MEMORY``: the memory of the newest answers that ``heddle serve`` keeps."""

PLACES = ("home", "warehouse", "streams", "workload", "copies", "topics")
"""Settings that a named project alone says, whatever variables there are: several projects have one environment."""

_project: ContextVar[str] = ContextVar("project", default="")


Value = TypeVar("Value")


@dataclass(eq=False)
class Setting(Generic[Value]):
    """A setting: its source, the conversion of its text into a value, and its documentation.

    It is an attribute of :class:`Settings`, which parses it when it is first read.

    Attributes
    ----------
    variable
        Name in the environment. The ``key`` in a project file is its name without ``HEDDLE_``.
    kind, show_default, meaning, wrong
        Its kind, its default, its purpose, and the effect of a wrong value: for ``docs/configuration.md``.
    parse
        Converts its text to its value; for a setting with several texts, a tuple of them. Raises ValueError, with
        what to write instead.
    default
        The value if it is not set, computed from other settings.
    form
        Form of its value in a project file; None: only the environment sets it.
    option
        Of commands, which have no other default.
    split
        Splits the variable into several texts; None: it has one.
    takes_empty
        Whether an empty variable is a value.
    is_secret
        Whether its value is never shown.
    """

    variable: str
    kind: str
    show_default: str
    meaning: str
    wrong: str
    parse: Callable[[Any], Value]
    default: Callable[[Settings], Value]
    form: Form | None = None
    option: str = ""
    split: Callable[[str], tuple[str, ...]] | None = None
    takes_empty: bool = False
    is_secret: bool = False
    name: str = ""

    def __set_name__(self, owner: type[Settings], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, settings: None, owner: type[Settings]) -> Setting[Value]: ...

    @overload
    def __get__(self, settings: Settings, owner: type[Settings]) -> Value: ...

    def __get__(self, settings: Settings | None, owner: type[Settings]) -> Setting[Value] | Value:
        if settings is None:
            return self
        value = self._value(settings)
        # the attribute of the instance is read from now on
        vars(settings)[self.name] = value
        return value

    def _value(self, settings: Settings) -> Value:
        texts = settings.texts.get(self.name)
        if texts is None:
            return self.default(settings)
        try:
            return self.parse(texts[0] if self.split is None else texts)
        except ValueError as error:
            shown = HIDDEN if self.is_secret else redacted(", ".join(texts))
            message = f"{self.variable} is {shown[:128]!r}"
            raise HeddleError("HDL-120", message, str(error)) from None

    @property
    def key(self) -> str:
        return self.variable.removeprefix("HEDDLE_").lower()

    def given(self, environment: Mapping[str, str], project: ProjectFile) -> tuple[str, ...] | None:
        """Return the texts that an environment, or else a project file, gives; None if neither does."""
        text = environment.get(self.variable)
        if text or (self.takes_empty and text is not None):
            return (text,) if self.split is None else self.split(text)
        return project.values.get(self.key)


# ------------------------------------------------------------------------------------------------- values
def _texts(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(None, texts))


def _names(texts: tuple[str, ...]) -> tuple[str, ...]:
    return _texts(tuple(text.strip() for text in texts))


def _owner(text: str) -> str:
    owner = text.strip()
    if not owner.isprintable() or len(owner) > 128:
        raise ValueError("1 to 128 printable characters")
    return owner


def _number(digits: int, unit: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(rf"\d{{1,{digits}}}", text, re.ASCII):
            raise ValueError(f"a whole number of {unit}, 0 or more")
        return int(text)

    return parse


def _choice(names: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return text

    return parse


def _port(text: str) -> int | None:
    port = text.strip()
    if port and (not re.fullmatch(r"\d{1,5}", port, re.ASCII) or int(port) > MOST["port"]):
        raise ValueError("a port, 0 to 65535")
    return int(port) if port else None


def _address(text: str) -> str | None:
    address = text.strip().rstrip("/")
    if address and not re.fullmatch(r"https?://[^\s\"'<>?#]{1,500}", address):
        raise ValueError("the address of its first page, as http://history:18080")
    return address or None


def _unless_none(text: str) -> str | None:
    # in a project file it is relative to the folder of the file
    return None if Path(text).name == "none" else text


def _former_engine(settings: Settings) -> str | None:
    if settings.in_process is None:
        return None
    return "auto" if settings.in_process else "spark"


def _former_limit(settings: Settings) -> int:
    return LOCAL_EVENTS if settings.in_process is None else settings.in_process


class Settings:
    """The settings of Heddle, as an environment and a project file give them.

    Each is parsed when it is first read, so a wrong value fails what needs it (HDL-120) and nothing else. An empty
    variable counts as missing, except for ``spark_master`` and ``driver_memory``.

    Parameters
    ----------
    environment
        The variables. They are read at once.
    project
        The project file, which gives what no variable gives.
    """

    project = Setting(
        "HEDDLE_PROJECT",
        "folder",
        "none",
        "the project, wherever a process works: its `heddle.toml` is read and no other, and only that file says where "
        "its warehouse, streams, workload, topics and copies are",
        "HDL-583 if it has no `heddle.toml`",
        lambda text: Path(text).absolute(),
        lambda settings: None,
    )
    home = Setting(
        "HEDDLE_HOME",
        "folder",
        "HEDDLE_PROJECT, or the checkout; of an installed wheel `~/.local/share/heddle`",
        "`dags` and `var` lie in it",
        "not checked",
        Path,
        lambda settings: HOME if settings.project is None else settings.project,
    )
    warehouse = Setting(
        "HEDDLE_WAREHOUSE",
        "folder or URL",
        "`var/warehouse` in HEDDLE_HOME",
        "the tables; the default is for the DAGs and the pages alone, commands have none",
        "HDL-501, HDL-546 or HDL-574 to HDL-579 when it is opened",
        str,
        lambda settings: str(settings.home / "var" / "warehouse"),
        "path",
        option="--warehouse PLACE",
    )
    streams = Setting(
        "HEDDLE_STREAMS",
        "file",
        "`dags/workload/streams.yaml` in HEDDLE_HOME",
        "declares the streams; the default is for the DAGs alone, commands have none",
        "HDL-111, or HDL-450 to HDL-461 for what is in it",
        Path,
        lambda settings: settings.home / "dags" / "workload" / "streams.yaml",
        "path",
        option="--streams FILE",
    )
    workload = Setting(
        "HEDDLE_WORKLOAD",
        "pattern of paths",
        "`dags/workload/*.sql` in HEDDLE_HOME",
        "the files of queries; the default is for the DAGs alone, commands have none",
        "HDL-113 if it names no file; HDL-111 if one of several names none",
        _texts,
        lambda settings: (str(settings.home / "dags" / "workload" / "*.sql"),),
        "paths",
        option="FILES",
        split=lambda text: (text,),
    )
    source_roots = Setting(
        "HEDDLE_SOURCES",
        "folders and URLs of folders in stores, `:` between them",
        "none: any folder but the system's",
        "all files of streams have to lie in them, links followed; in a store, the URL or what it lies in is named",
        "HDL-458 for a stream that lies elsewhere; HDL-574 or HDL-575 for a URL that is none",
        _texts,
        lambda settings: None,
        "paths",
        split=lambda text: split_places(text, os.pathsep),
    )
    copies = Setting(
        "HEDDLE_COPIES",
        "folder or URL",
        "that of the warehouse with `-copies` behind it",
        "where [copies](sources.md#what-only-spark-reads) lie of streams that only Spark reads",
        "HDL-542 or HDL-574 to HDL-579 when something is copied",
        str,
        lambda settings: f"{settings.warehouse.rstrip('/')}-copies",
        "path",
    )
    owner = Setting(
        "HEDDLE_OWNER",
        "1 to 128 printable characters",
        "none",
        "the owner of queries that are read without `-- owner:`",
        "HDL-120 when queries are read",
        _owner,
        lambda settings: "",
        "text",
    )
    owner_quota = Setting(
        "HEDDLE_OWNER_QUOTA",
        "whole number, 0 or more",
        f"`{OWNER_QUOTA}`",
        "most registered queries of one owner (`-- owner:`); later ones are refused with HDL-311",
        "HDL-120 when queries are read",
        _number(9, "queries"),
        lambda settings: OWNER_QUOTA,
        "number",
    )
    tables_of_owners = Setting(
        "HEDDLE_TABLES_OF_OWNERS",
        "owners, `,` between them",
        "none",
        "their queries have [tables of their own](tables.md#a-table-of-its-own), under the query's name unless "
        "`-- table:` says another",
        "not checked",
        _names,
        lambda settings: (),
        "texts",
        split=lambda text: tuple(text.split(",")),
    )
    notify = Setting(
        "HEDDLE_NOTIFY",
        "`https://…`, `module:callable`, or the path of an Airflow notifier",
        "none: nothing is sent",
        "where [alerts](alerts.md) go; a secret, which nothing repeats. The environment sets it, or in DAGs Airflow's "
        "option `notify` in the section `heddle`",
        "HDL-120 or HDL-635, a warning after a run",
        parse_notify,
        lambda settings: None,
        is_secret=True,
    )
    owners = Setting(
        "HEDDLE_OWNERS",
        "`owner=channel`, `,` between them",
        "none",
        "the channel of each owner, a label that [alerts](alerts.md) carry; `*` is any other owner",
        "HDL-120, a warning after a run",
        parse_owners,
        lambda settings: {},
        "pairs",
        split=lambda text: tuple(text.split(",")),
    )
    spark_master = Setting(
        "HEDDLE_SPARK_MASTER",
        "URL",
        "`local[*]`",
        "where Spark runs: any Spark master",
        "HDL-900: Spark refuses it",
        str,
        lambda settings: None,
        "text",
        takes_empty=True,
    )
    spark_code = Setting(
        "HEDDLE_SPARK_CODE",
        "`folder`, `archive` or `installed`",
        "`folder`",
        "how the executors of a cluster get Heddle's code: from the folder of the project, which they see under the "
        "same path; as an archive that is sent with compiled kernels; or from their own Python, which has the same "
        "version. Spark Connect always sends it",
        "HDL-120 when Spark starts; HDL-538 if executors have no Heddle, or other code",
        _choice(SENT),
        lambda settings: SENT[0],
        "text",
    )
    spark_remote = Setting(
        "HEDDLE_SPARK_REMOTE",
        "URL",
        "none: a classic session",
        "a Spark Connect server (`sc://host:15002`) that computes instead; a secret, as it may hold a token",
        "HDL-529 when a session starts",
        str,
        lambda settings: None,
        "text",
        is_secret=True,
    )
    engine = Setting(
        "HEDDLE_ENGINE",
        "`spark`, `local` or `auto`",
        "`spark` in DAGs, with a master elsewhere and with Spark Connect; else `auto`",
        "what runs compute with: Spark; processes of this machine, without a JVM; local processes for no more events "
        "and rows than `local_events`, else Spark",
        "HDL-120 when something runs; also `local` with a master elsewhere",
        _choice(ENGINES),
        _former_engine,
        "text",
        option="--engine",
    )
    local_events = Setting(
        "HEDDLE_LOCAL_EVENTS",
        "whole number, 0 or more",
        f"`{LOCAL_EVENTS}`",
        "the events and rows up to which `engine: auto` starts no Spark",
        "HDL-120 when something runs",
        _number(12, "events"),
        _former_limit,
        "number",
    )
    in_process = Setting(
        "HEDDLE_IN_PROCESS",
        "whole number, 0 or more",
        "none",
        "the former name of `local_events`, of which 0 was `engine: spark`. It is read, with a warning (HDL-125)",
        "HDL-120 when something runs",
        _number(12, "events"),
        lambda settings: None,
        "number",
    )
    event_log = Setting(
        "HEDDLE_EVENT_LOG",
        "folder or URL; `none`",
        "`var/spark-events` in HEDDLE_HOME",
        "where Spark writes down what each application did, for a history server; in the default folder a file is kept "
        "for seven days",
        "not written if it cannot be made",
        _unless_none,
        lambda settings: str(settings.home / EVENTS),
        "path",
    )
    spark_history = Setting(
        "HEDDLE_SPARK_HISTORY",
        "URL",
        "none",
        "where Spark's history server is, as `http://history:18080`: the link *Spark* of Airflow's tasks and the page "
        "of a run lead there",
        "HDL-120 when the page of a run is read; the task has no link",
        _address,
        lambda settings: None,
        "text",
    )
    driver_memory = Setting(
        "HEDDLE_DRIVER_MEMORY",
        "size",
        "`2g`",
        "memory of Spark's driver, as Spark writes it; without it that of `spark-defaults.conf`, where it has one",
        "HDL-900: the JVM does not start",
        str,
        lambda settings: DRIVER_MEMORY,
        "text",
        takes_empty=True,
    )
    task_memory = Setting(
        "HEDDLE_TASK_MEMORY",
        "bytes: `512m`, `2g`",
        "`2g`",
        "what the data of one task of a run may take, beside what every worker has (some 0.3 GB): beyond it partial "
        "rows are written early, answers made in several passes; what cannot be divided fails alone "
        "([limits](limits.md#memory))",
        "HDL-120 when something runs",
        TaskMemory.parse,
        lambda settings: TASK_MEMORY,
        "text",
    )
    jars = Setting(
        "HEDDLE_JARS",
        "folder",
        "`.cache/ivy/jars` in the checkout; of an installed wheel `~/.cache/heddle/ivy/jars`",
        "Delta's jars, which `make setup` or `heddle jars --fetch` puts there",
        "HDL-520 when a session starts",
        Path,
        lambda settings: CACHE / "ivy" / "jars",
        "path",
    )
    lease_dsn = Setting(
        "HEDDLE_LEASE_DSN",
        "PostgreSQL DSN",
        "none: a file of the warehouse keeps it",
        "the server that keeps the lease of a warehouse that several hosts write; a secret, which nothing repeats",
        "HDL-513 when something is written",
        str,
        lambda settings: None,
        "text",
        is_secret=True,
    )
    catalog_schema = Setting(
        "HEDDLE_CATALOG_SCHEMA",
        "schema, or catalogue.schema",
        "none: no views are made",
        "where Spark's catalogue gets a view of every query after each new version of the plan",
        "HDL-623 or HDL-624 when they are made; answers are not concerned",
        str,
        lambda settings: None,
        "text",
    )
    topics = Setting(
        "HEDDLE_TOPICS",
        "file",
        "`dags/workload/topics.toml` in HEDDLE_HOME",
        "the topics of Kafka that a DAG [lands](kafka.md#in-airflow); while it names none, or is not there, the DAG is "
        "skipped",
        "HDL-626 when the DAG runs",
        Path,
        lambda settings: settings.home / "dags" / "workload" / "topics.toml",
        "path",
    )
    kafka_options = Setting(
        "HEDDLE_KAFKA_OPTIONS",
        "file",
        "none: Kafka asks for nothing",
        "a properties file with the options of Kafka's client: [security](kafka.md#security)",
        "HDL-626 when a topic is landed",
        Path,
        lambda settings: None,
    )
    session = Setting(
        "HEDDLE_SESSION",
        "minutes or hours: `15 minutes`, `1 hour`",
        "none: each refresh is a run of its own",
        "the DAG `aggregate_windows` starts a [session](airflow.md#sessions) so often, which answers each refresh when "
        "it is due",
        "Airflow shows the DAG's import error",
        str,
        lambda settings: "",
    )
    dimension_days = Setting(
        "HEDDLE_DIMENSION_DAYS",
        "whole number, 0 or more",
        "`0`: no longer than `heddle maintain --retention`",
        "for so many days after their last use `heddle maintain` keeps versions of [dimensions](dimensions.md), which "
        "[features](features.md#what-was-known-then) of what was known then need",
        "HDL-120 when maintenance runs",
        _number(5, "days"),
        lambda settings: 0,
        "number",
    )
    checks = Setting(
        "HEDDLE_CHECKS",
        "`all`, `sample` or `none`",
        "`all`",
        "what of a run's answers is checked before they are published: everything is inspected and a sample "
        "recomputed from raw events; only the sample; nothing, which its record and readers are told",
        "HDL-120 when something runs",
        _choice(CHECKS),
        lambda settings: CHECKS[0],
        "text",
        option="--checks",
    )
    openlineage = Setting(
        "HEDDLE_OPENLINEAGE",
        "`on`, `off` or `auto`",
        "`auto`",
        "whether runs of commands and of Python send [lineage](monitor.md#lineage); `auto`: if a variable of "
        "OpenLineage's client says where to",
        "HDL-120 when something runs",
        _choice(("on", "off", "auto")),
        lambda settings: "auto",
    )
    cpu_hour_price = Setting(
        "HEDDLE_CPU_HOUR_PRICE",
        "amount, with a currency or not",
        "none: costs are CPU seconds alone",
        "what a CPU hour costs, e.g. `0.05 EUR`: the pages say what queries and owners "
        "[cost a month](operations.md#money)",
        "HDL-120 when a page is read",
        str,
        lambda settings: "",
        "text",
    )
    serve_token = Setting(
        "HEDDLE_SERVE_TOKEN",
        "16 to 512 printable ASCII characters, no space",
        "none: `heddle serve` and `heddle sql-server` listen on loopback only",
        "what a request to `heddle serve` or `heddle sql-server` has to [carry](api.md#tokens); a secret",
        "HDL-634 when `heddle serve` starts",
        str,
        lambda settings: "",
        is_secret=True,
    )
    serve_token_file = Setting(
        "HEDDLE_SERVE_TOKEN_FILE",
        "file",
        "none",
        "the file that has the token, such as a mounted secret, where HEDDLE_SERVE_TOKEN is not set",
        "HDL-634 when `heddle serve` starts",
        Path,
        lambda settings: None,
    )
    serve_memory = Setting(
        "HEDDLE_SERVE_MEMORY",
        "bytes: `512m`, `2g`",
        "`512m`",
        "what the [newest answers](api.md#the-newest-answers) that `heddle serve` keeps in memory may take",
        "HDL-120 when `heddle serve` starts",
        TaskMemory.parse,
        lambda settings: SERVE_MEMORY,
        "text",
    )
    debug = Setting(
        "HEDDLE_DEBUG",
        "switch",
        "off",
        "print tracebacks, and what Spark logs; `heddle --debug` sets it",
        "on for any text but `0`",
        lambda text: is_debugging({"HEDDLE_DEBUG": text}),
        lambda settings: False,
    )
    airflow_port = Setting(
        "HEDDLE_AIRFLOW_PORT",
        "port, 0 to 65535",
        "that of the last start, else `8080`",
        "where `make up` has Airflow listen on 127.0.0.1; if it is taken, or 0, another is chosen",
        "HDL-120 when Airflow starts",
        _port,
        lambda settings: None,
        "port",
    )

    def __init__(
        self,
        environment: Mapping[str, str],
        project: ProjectFile = NO_FILE,
        declared: Iterable[Setting[Any]] | None = None,
    ) -> None:
        """``declared``: the settings that are looked up, if not all."""
        texts_by_name = ((setting.name, setting.given(environment, project)) for setting in declared or DECLARED)
        self.texts: Mapping[str, tuple[str, ...]] = {name: texts for name, texts in texts_by_name if texts is not None}

    def warnings(self) -> list[Diagnostic]:
        """HDL-125 for a setting that is given by its former name."""
        if self.in_process is None:
            return []
        now = f"local_events = {self.in_process}" if self.in_process else 'engine = "spark"'
        message = "HEDDLE_IN_PROCESS is the former name of a setting"
        return [Diagnostic("HDL-125", message, f"in {NAME}: {now}", severity="warning")]

    def workload_files(self) -> list[str]:
        """Return the files that :attr:`workload` names, in the order of their names.

        Of several patterns, one that matches no file stays as it is, so that reading it fails: its queries are not
        taken for removed.
        """
        files = {pattern: sorted(glob(pattern)) for pattern in self.workload}  # noqa: PTH207 - it may be absolute
        paths = [file for pattern, of in files.items() for file in of or ([pattern] if len(files) > 1 else [])]
        return sorted(set(paths))


DECLARED: tuple[Setting[Any], ...] = tuple(each for each in vars(Settings).values() if isinstance(each, Setting))
"""Every setting, in the order of the page on configuration."""


def project_file(environment: Mapping[str, str]) -> ProjectFile:
    """The project file of this process: of HEDDLE_PROJECT, else upward from the working directory, else in HEDDLE_HOME.
    Raises HDL-123, and HDL-583 if the named project has none."""
    places = Settings(environment, declared=[Settings.project, Settings.home])
    project = read_project(places.home, *_keys(), named=places.project)
    keep_secret({key: ", ".join(values) for key, values in project.values.items()})
    return project


@cache
def _keys() -> tuple[dict[str, Form], dict[str, str]]:
    """Return the forms of the keys that a project file may have, and for the other settings the place to set them."""
    elsewhere = {each.key: f"set {each.variable} in the environment" for each in DECLARED if each.form is None}
    return {each.key: each.form for each in DECLARED if each.form is not None}, elsewhere


def settings() -> Settings:
    """The settings of this process as its environment and its project file are now. Raises HDL-123, HDL-583."""
    environment = _of_project(os.environ)
    return Settings(environment, project_file(environment))


def use_project(folder: str) -> None:
    """Have :func:`settings` be those of a project in this context: a thread, or a task of asyncio. "": as elsewhere."""
    _project.set(folder)


def _of_project(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variables that hold, with the project that is used."""
    name = Settings.project.variable
    folder = _project.get() or environment.get(name)
    if not folder:
        return environment
    places = {getattr(Settings, place).variable for place in PLACES}
    return {key: value for key, value in environment.items() if key not in places} | {name: folder}


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
    environment = _of_project(environment)
    project = project_file(environment)
    configured, rows = Settings(environment, project), list[Described]()
    for each in DECLARED:
        shown = _shown(each, configured)
        if each.given(environment, NO_FILE) is not None:
            rows.append(Described(each.key, each.variable, shown, "environment"))
        elif each.key in project.values:
            line = project.line_of(each.key)
            rows.append(Described(each.key, each.variable, shown, NAME, str(project.path), line))
        else:
            rows.append(Described(each.key, each.variable, shown, "default"))
    return rows, project.path


def _shown(setting: Setting[Any], configured: Settings) -> str:
    """The value of a setting as text; a wrong one as it is given, a secret not at all."""
    try:
        value = getattr(configured, setting.name)
    except HeddleError:
        value = configured.texts.get(setting.name)
    if value and setting.is_secret:
        return HIDDEN
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        value = tuple(f"{name}={text}" for name, text in value.items())
    return redacted(", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value))


def said(name: str) -> Any:
    """The value of a setting that the environment or the project file gives; None if neither does. Raises HDL-123."""
    configured = settings()
    return getattr(configured, name) if name in configured.texts else None


def required(name: str) -> Any:
    """The value of a setting that commands have no default of. Raises HDL-124 if nothing gives it, HDL-123."""
    value = said(name)
    if value is None:
        about: Setting[Any] = getattr(Settings, name)
        hint = f'give {about.option}, or set {about.variable}, or write {about.key} = "…" into {NAME}'
        raise HeddleError("HDL-124", f"nothing says the {name} of this command", hint)
    return value


def schema() -> dict[str, Any]:
    """The JSON schema of ``heddle.toml``, for editors."""
    text = {"type": "string", "pattern": r"^[^\x00]*[^\s\x00][^\x00]*$"}
    several = {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}
    forms: dict[Form, dict[str, Any]] = {"path": text, "paths": several, "text": text, "texts": several}
    forms["pairs"] = {"type": "object", "additionalProperties": text}
    forms |= {form: {"type": "integer", "minimum": 0, "maximum": most} for form, most in MOST.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Heddle: {NAME}",
        "type": "object",
        "properties": {
            each.key: {"description": each.meaning} | forms[each.form] for each in DECLARED if each.form is not None
        },
        "additionalProperties": False,
    }


def page() -> str:
    """The settings as Markdown: how they are given, and one table."""
    module = __spec__.name if __spec__ is not None else __name__
    rows = []
    for each in DECLARED:
        key = f"`{each.key}`: {WORDS[each.form]}" if each.form is not None else "no"
        rows.append((f"`{each.variable}`", key, each.kind, each.show_default, each.meaning, each.wrong))
    return page_of(rows, module)


if __name__ == "__main__":
    sys.stdout.write(page())
