"""The ``timestamp_format`` of a source: the directives of ``strptime`` that it may have."""

from __future__ import annotations

import re

from optimizer.errors.diagnostics import HeddleError

DIRECTIVES = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "[0-9]{1,2}",
    "b": "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec",
    "d": "[0-9]{1,2}",
    "H": "[0-9]{1,2}",
    "I": "[0-9]{1,2}",
    "p": "[AaPp][Mm]",
    "M": "[0-9]{1,2}",
    "S": "[0-9]{1,2}",
    "f": "[0-9]{1,6}",
    "z": "Z|[+-][0-9]{2}:?[0-9]{2}",
}
"""The directives of ``strptime`` in a ``timestamp_format`` and their patterns, in addition to ``%%``."""


def check_format(text: str) -> None:
    """Raise HDL-457 unless a ``timestamp_format`` denotes one instant."""
    parts = re.split(r"%(.)", text)
    names = [name for name in parts[1::2] if name != "%"]
    hint = "e.g. '%d/%m/%Y %H:%M'; directives: " + " ".join(f"%{name}" for name in DIRECTIVES)
    if not text.isprintable() or len(text) > 100 or any("%" in part for part in parts[::2]):
        raise HeddleError("HDL-457", f"{text[:100]!r} is no timestamp_format", hint)
    for name in names:
        if name not in DIRECTIVES or names.count(name) > 1:
            what = "appears twice in" if name in DIRECTIVES else "is not known in"
            raise HeddleError("HDL-457", f"%{name} {what} the timestamp_format {text!r}", hint)
    directives = set(names)
    lacking = [both for both in ("Yy", "mb", "d") if len(directives & set(both)) != 1]
    if lacking or {"H", "I"} <= directives or ("I" in directives) != ("p" in directives):
        raise HeddleError("HDL-457", f"the timestamp_format {text!r} does not say one time of one day", hint)
