"""What Heddle is told by environment variables: one frozen value, read from the environment at each call.

No other module reads ``HEDDLE_*`` from the environment, but two that cannot ask here: :mod:`optimizer.errors` (the
science below imports nothing of the jobs) for ``HEDDLE_DEBUG``, by the rule that is used here, and
``plugins/heddle_airflow.py`` for ``HEDDLE_HOME`` (DAG files are parsed without Heddle's packages).

``docs/configuration.md`` is :func:`page`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from glob import glob
from pathlib import Path
from typing import Any

from optimizer.errors.crashes import is_debugging
from optimizer.errors.diagnostics import HeddleError

PROJECT = Path(__file__).resolve().parent.parent
"""The folder of this code: where everything is unless the environment says otherwise."""

OWNER_QUOTA = 10_000
"""The most queries of one owner, unless ``HEDDLE_OWNER_QUOTA`` says otherwise."""


def _setting(variable: str, kind: str, default: str, meaning: str, wrong: str, is_secret: bool = False) -> Any:
    about = {"variable": variable, "kind": kind, "default": default, "meaning": meaning, "wrong": wrong}
    return field(metadata=about, repr=not is_secret)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class Settings:
    """The settings of Heddle.

    A wrong value fails what needs it and nothing else: texts that may be wrong are kept as they are, and checked by the
    property of their name. An empty variable is as one that is not set, but for ``spark_master`` and ``driver_memory``.

    Parameters
    ----------
    home
        The folder of the project.
    warehouse, streams
        The folder of the tables, and the file that declares the streams, of the DAGs and pages.
    workload
        The files of queries that the DAGs register: a pattern of paths.
    source_roots
        The only folders that streams are read from; None: any but the system's.
    owner_quota_text
        See :attr:`owner_quota`.
    tables_of_owners
        Owners whose queries have tables of their own.
    spark_master
        The master's URL; None: not said.
    driver_memory
        Of the JVM of Spark's driver, as Spark writes it.
    jars
        The folder of Delta's jars.
    lease_dsn
        Of the PostgreSQL that keeps the lease of warehouses; None: a file beside the tables does. It is no part of the
        value's text: it holds a password.
    catalog_schema
        Where the DAG of the plan makes every query a view, as Spark writes its name; None: nowhere.
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
    warehouse: Path = _setting(
        "HEDDLE_WAREHOUSE",
        "folder",
        "`var/warehouse` in HEDDLE_HOME",
        "the tables, for the DAGs and the pages in Airflow; commands take `--warehouse`",
        "HDL-501 or HDL-546 when it is opened",
    )
    streams: Path = _setting(
        "HEDDLE_STREAMS",
        "file",
        "`dags/workload/streams.yaml` in HEDDLE_HOME",
        "declares the streams, for the DAGs; commands take `--streams`",
        "HDL-111, or HDL-450 to HDL-461 for what is in it",
    )
    workload: str = _setting(
        "HEDDLE_WORKLOAD",
        "pattern of paths",
        "`dags/workload/*.sql` in HEDDLE_HOME",
        "the files of queries that the DAGs register",
        "HDL-113 if it names no file",
    )
    source_roots: tuple[str, ...] | None = _setting(
        "HEDDLE_SOURCES",
        "folders, `:` between them",
        "none: any folder but the system's",
        "all files of streams have to lie in them, links followed",
        "HDL-458 for a stream that lies elsewhere",
    )
    owner_quota_text: str = _setting(
        "HEDDLE_OWNER_QUOTA",
        "whole number, 0 or more",
        f"`{OWNER_QUOTA}`",
        "most registered queries of one owner (`-- owner:`); later ones are refused with HDL-311",
        "HDL-120 when queries are read",
    )
    tables_of_owners: tuple[str, ...] = _setting(
        "HEDDLE_TABLES_OF_OWNERS",
        "owners, `,` between them",
        "none",
        "their queries have [tables of their own](tables.md#a-table-of-its-own), under the query's name unless "
        "`-- table:` says another",
        "not checked",
    )
    spark_master: str | None = _setting(
        "HEDDLE_SPARK_MASTER", "URL", "`local[*]`", "where Spark runs: any Spark master", "HDL-900: Spark refuses it"
    )
    driver_memory: str = _setting(
        "HEDDLE_DRIVER_MEMORY",
        "size",
        "`2g`",
        "memory of Spark's driver, as Spark writes it",
        "HDL-900: the JVM does not start",
    )
    jars: Path = _setting(
        "HEDDLE_JARS",
        "folder",
        "`.cache/ivy/jars` in the folder of the code",
        "Delta's jars, which `make setup` puts there",
        "HDL-520 when a session starts",
    )
    lease_dsn: str | None = _setting(
        "HEDDLE_LEASE_DSN",
        "PostgreSQL DSN",
        "none: a file of the warehouse keeps it",
        "the server that keeps the lease of a warehouse that several hosts write; a secret, which nothing repeats",
        "HDL-513 when something is written",
        is_secret=True,
    )
    catalog_schema: str | None = _setting(
        "HEDDLE_CATALOG_SCHEMA",
        "schema, or catalogue.schema",
        "none: no views are made",
        "where Spark's catalogue gets a view of every query after each new version of the plan",
        "HDL-623 or HDL-624 when they are made; answers are not concerned",
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
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """What an environment says. Raises nothing: see the class."""
        home = Path(environment.get("HEDDLE_HOME") or PROJECT)
        roots = environment.get("HEDDLE_SOURCES")
        return cls(
            home=home,
            warehouse=Path(environment.get("HEDDLE_WAREHOUSE") or home / "var" / "warehouse"),
            streams=Path(environment.get("HEDDLE_STREAMS") or home / "dags" / "workload" / "streams.yaml"),
            workload=environment.get("HEDDLE_WORKLOAD") or str(home / "dags" / "workload" / "*.sql"),
            source_roots=tuple(folder for folder in roots.split(os.pathsep) if folder) if roots else None,
            owner_quota_text=environment.get("HEDDLE_OWNER_QUOTA") or str(OWNER_QUOTA),
            tables_of_owners=_listed(environment.get("HEDDLE_TABLES_OF_OWNERS", "")),
            spark_master=environment.get("HEDDLE_SPARK_MASTER"),
            driver_memory=environment.get("HEDDLE_DRIVER_MEMORY", "2g"),
            jars=Path(environment.get("HEDDLE_JARS") or PROJECT / ".cache" / "ivy" / "jars"),
            lease_dsn=environment.get("HEDDLE_LEASE_DSN") or None,
            catalog_schema=environment.get("HEDDLE_CATALOG_SCHEMA") or None,
            debug=is_debugging(environment),
            airflow_port_text=environment.get("HEDDLE_AIRFLOW_PORT", ""),
        )

    @property
    def owner_quota(self) -> int:
        """The most registered queries of one owner. Raises HDL-120 if that is no number."""
        text = self.owner_quota_text
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
            raise HeddleError("HDL-120", f"HEDDLE_OWNER_QUOTA is {text!r}", "a whole number of queries, 0 or more")
        return int(text)

    @property
    def airflow_port(self) -> int | None:
        """The port that the embedded Airflow listens on; None: not said. Raises HDL-120 if that is no port."""
        text = self.airflow_port_text.strip()
        if not text:
            return None
        if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or int(text) > 65_535:
            raise HeddleError("HDL-120", f"HEDDLE_AIRFLOW_PORT is {text!r}", "a port, 0 to 65535")
        return int(text)

    def workload_files(self) -> list[str]:
        """The files that :attr:`workload` names, in the order of their names."""
        return sorted(glob(self.workload))  # noqa: PTH207 - the pattern may be absolute


def settings() -> Settings:
    """The settings of this process as its environment is now."""
    return Settings.from_environment(os.environ)


def page() -> str:
    """The variables as Markdown: one table."""
    module = __spec__.name if __spec__ is not None else __name__
    lines = [
        "# Configuration",
        "",
        f"<!-- Generated: edit {module.replace('.', '/')}.py, then python -m {module} > docs/configuration.md -->",
        "",
        "Heddle is configured by environment variables. They are read when they are needed, not once at the start. "
        "What can be said on the command line or as a parameter of a DAG is said there instead.",
        "",
        "| Variable | Value | Default | Meaning | A wrong value |",
        "|---|---|---|---|---|",
    ]
    for one in fields(Settings):
        about = one.metadata
        cells = (f"`{about['variable']}`", about["kind"], about["default"], about["meaning"], about["wrong"])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "The codes are explained in [errors](errors.md).", ""])


if __name__ == "__main__":
    sys.stdout.write(page())
