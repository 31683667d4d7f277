"""Where a warehouse has the versions of its dimensions."""

from __future__ import annotations

from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.warehouse import Warehouse

FOLDER = "dimensions"
"""Folder of a warehouse with the versions of its dimensions, each in a folder of its name."""

CURRENT = "current"
"""The file next to the versions of a dimension that names the one that a run used last."""


def stored_dimension_names(warehouse: Warehouse) -> list[str]:
    """The names of the dimensions that runs have used."""
    return (warehouse.place / FOLDER).folders()


def versions_folder(warehouse: Warehouse, name: str) -> Place:
    """The folder of a dimension's versions."""
    return warehouse.place / FOLDER / name


def current_version_of(warehouse: Warehouse, name: str) -> str | None:
    """The id of the version of a dimension that a run used last; None if none has."""
    try:
        return (versions_folder(warehouse, name) / CURRENT).read().decode()
    except OSError:
        return None
