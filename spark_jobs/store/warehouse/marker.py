"""The marker of a warehouse: the format of its tables, which Heddle wrote it, and which can go on with it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.schemas import BREAKING, COLUMNS, FORMAT, MARKER


@dataclass(frozen=True)
class Marker:
    """Content of a marker.

    - ``format``: version of the tables' schemas; every other version is refused.
    - ``columns``: version of the columns that came later.
    - ``breaking``: the version of ``columns`` that a Heddle has to have at least.
    - ``heddle``: the version that wrote the marker; empty: one that wrote none, or that is not installed.
    - ``id``: the random name of the warehouse for hosts, which may reach it by different paths; empty: it has none.
    """

    format: int
    columns: int
    breaking: int
    heddle: str
    id: str

    @classmethod
    def read(cls, warehouse: Place) -> Marker | None:
        """The marker of a place; None if there is none. Raises HDL-546 for a damaged one."""
        place = warehouse / MARKER
        try:
            content = json.loads(place.read())
            version, columns, breaking = (int(content.get(name, 0)) for name in ("format", "columns", "breaking"))
            return cls(version, columns, breaking, str(content.get("heddle", "")), str(content.get("id", "")))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError, AttributeError) as error:
            hint = f'write {{"kind": "heddle warehouse", "format": {FORMAT}}} into it, if its tables are of this format'
            raise HeddleError("HDL-546", f"{place} is damaged", hint) from error

    def check(self, warehouse: Place) -> None:
        """Raise HDL-503 if this Heddle cannot read the tables."""
        if self.format > FORMAT or self.breaking > COLUMNS:
            writer, here = self.heddle or "a newer version", heddle_version() or "an earlier one"
            message = f"{warehouse} was written by Heddle {writer} (format {self.format}, columns {self.columns}); "
            message += f"this is Heddle {here} (format {FORMAT}, columns {COLUMNS})"
            hint = f"use Heddle {writer} here, too, or go back as docs/upgrade.md says"
            raise HeddleError("HDL-503", message, hint)
        if self.format < FORMAT:
            message = f"{warehouse} was written by an older Heddle (format {self.format}; this one writes {FORMAT})"
            raise HeddleError("HDL-503", message, "name a new folder and backfill it: the answers are the same")

    @property
    def is_older(self) -> bool:
        """Return whether earlier code wrote the warehouse that could not go on if this one wrote to it."""
        return self.columns < BREAKING


def write_marker(warehouse: Place, known: str = "") -> None:
    """Mark a place as a warehouse that this Heddle wrote. ``known``: its id."""
    content = {"kind": "heddle warehouse", "format": FORMAT, "columns": COLUMNS, "id": known or uuid.uuid4().hex}
    content |= {"breaking": BREAKING, "heddle": heddle_version()}
    (warehouse / MARKER).put(json.dumps(content).encode())


def heddle_version() -> str:
    """The version of this Heddle; empty in a checkout that is not installed."""
    from importlib import metadata

    try:
        return metadata.version("heddle")
    except metadata.PackageNotFoundError:
        return ""
