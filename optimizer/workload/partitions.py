"""Columns and times in the names of folders: ``day=2024-01-31/region=eu`` and ``{year}/{month}/{day}``.

The keys ``partitions`` and ``path`` of a source in ``streams.yaml`` declare them. Here names of folders become texts of
columns and spans of time; :mod:`spark_jobs.streams.sources.partition_columns` makes typed values of the texts.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND, Partition, Source, Type

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value in the name of a folder that is null, as Hive, Spark, DuckDB and Arrow write it."""

EXACT = "exact"
"""The word that declares a partition to be that part of the event time, in UTC."""

AUTO = "auto"
"""The word for a partition with a type that its texts show."""

MOST_PARTITIONS = 32
"""Partitions of a source."""

PARTS = ("year", "month", "day", "hour")
"""The parts of a time that a pattern of folders knows by name, the longest first."""

_ALIASES = {"y": "year", "yyyy": "year", "m": "month", "mm": "month", "mon": "month", "d": "day", "dd": "day"}
_ALIASES |= {"h": "hour", "hh": "hour", "hr": "hour"} | {part: part for part in PARTS}

_WIDTHS = {"year": "[0-9]{4}", "month": "[0-9]{1,2}", "day": "[0-9]{1,2}", "hour": "[0-9]{1,2}"}

_FORMS = tuple(
    re.compile(form, re.ASCII)
    for form in (
        r"(\d{4})-(\d\d)-(\d\d)[ T_-](\d\d)(?::00(?::00)?)?",
        r"(\d{4})(\d\d)(\d\d)(\d\d)",
        r"(\d{4})-(\d\d)-(\d\d)",
        r"(\d{4})(\d\d)(\d\d)",
        r"(\d{4})-(\d\d)",
        r"(\d{4})(\d\d)",
        r"(\d{4})",
    )
)
"""The ways to write a time in the name of a folder: its year, month, day and hour, as far as they go."""

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_ESCAPED = re.compile(rb"%([0-9a-fA-F]{2})")


class Misplaced(ValueError):
    """Folders that do not have the names that the source declares, in words."""


# -------------------------------------------------------------------------------------------- declaring
def split_pattern(path: str) -> tuple[str, str]:
    """Split a path into the folder where it begins and its pattern (``logs``, ``{year}/{month}``; "": none)."""
    segments = path.split("/")
    first = next((at for at, segment in enumerate(segments) if _NAME.search(segment)), None)
    if first is None:
        return path, ""
    root = "/".join(segments[:first])
    return root or ("/" if path.startswith("/") else "."), "/".join(segments[first:]).strip("/")


def pattern_names(folders: str) -> tuple[str, ...]:
    """Return the names in a pattern of folders. Raises HDL-457 for a name that occurs twice, or a stray bracket."""
    names = _NAME.findall(folders)
    repeated = next((name for at, name in enumerate(names) if name.lower() in map(str.lower, names[:at])), None)
    if repeated is not None:
        raise HeddleError("HDL-457", f"{{{repeated}}} appears twice in the path", "each name of a pattern is a column")
    if re.search(r"[{}]", _NAME.sub("", folders)) or "" in folders.split("/"):
        hint = "{year}, {month}, {day}, {hour}, or the name of a column in letters, digits and underscores"
        raise HeddleError("HDL-457", f"{folders!r} is no pattern of folders", hint)
    return tuple(names)


def parse_partitions(
    words: Mapping[str, str] | str | None, folders: str, parse_type: Callable[[str], Type]
) -> tuple[Partition, ...]:
    """Return the partitions that a source declares.

    Parameters
    ----------
    words
        By name what is declared of it: a type, ``exact``, both, or nothing. ``exact`` alone: of each part of the time
        in the pattern.
    folders
        The pattern of its path; "": folders are called ``name=value``.
    parse_type
        Returns the type of a text, or raises HDL-454.

    Raises HDL-454, HDL-456 and HDL-457.
    """
    names = pattern_names(folders) if folders else ()
    if isinstance(words, str):
        parts = [name for name in names if name in PARTS]
        if words != EXACT or not parts:
            hint = f"list the columns, or write {EXACT} for a path with {{year}}, {{month}} and {{day}}"
            raise HeddleError("HDL-457", f"partitions are {words[:100]!r}", hint)
        words = dict.fromkeys(parts, EXACT)
    words = words or {}
    if len(words) > MOST_PARTITIONS or len(names) > MOST_PARTITIONS:
        raise HeddleError("HDL-457", f"more than {MOST_PARTITIONS} partitions", "declare fewer")
    for name in words:
        if folders and name not in names:
            raise HeddleError("HDL-457", f"the path has no {{{name}}}", f"it has {', '.join(names)}")
        if not (name.isprintable() and 0 < len(name) <= 255) or "/" in name:
            raise HeddleError("HDL-457", f"{name[:100]!r} cannot name a partition", "1 to 255 printable characters")
    lower = [name.lower() for name in words]
    if len(set(lower)) < len(lower):
        raise HeddleError("HDL-456", "two partitions differ by case at most", "rename one")
    partitions = [_parsed(name, words.get(name, ""), parse_type) for name in (names or words)]
    if folders:
        _check_chain(partitions)
    return tuple(partitions)


def _parsed(name: str, word: str, parse_type: Callable[[str], Type]) -> Partition:
    text, is_exact = word.strip(), False
    if text == AUTO:
        return Partition(name)
    if text == EXACT or text.endswith(f" {EXACT}"):
        text, is_exact = text.removesuffix(EXACT).strip(), True
    return Partition(name, parse_type(text) if text else None, is_exact)


def _check_chain(partitions: Sequence[Partition]) -> None:
    """Raise HDL-457 if an exact part of a pattern lacks the longer parts."""
    exact = [partition.name for partition in partitions if partition.is_exact and partition.name in PARTS]
    for longer, part in pairwise(PARTS):
        if part in exact and longer not in exact:
            hint = f"name {{{longer}}} in the path, and declare it exact too"
            raise HeddleError("HDL-457", f"{{{part}}} is exact without {{{longer}}}", hint)


def with_partitions(source: Source, schema: Sequence[tuple[str, Type]]) -> tuple[Source, tuple[tuple[str, Type], ...]]:
    """Return a source whose partitions are spelt as the schema spells them, and the schema with those that declare a
    type.

    A partition that neither declares is no column; it must be exact, or a part of the time in a pattern. Raises HDL-454
    for two different types, HDL-457 for a partition without one.
    """
    columns, types = {name.lower(): name for name, _ in schema}, dict(schema)
    partitions = []
    for partition in source.partitions:
        name = columns.get(partition.name.lower(), partition.name)
        if partition.type is not None and types.setdefault(name, partition.type) != partition.type:
            message = f"column {name} is a {types[name]} in `schema` and a {partition.type} in `partitions`"
            raise HeddleError("HDL-454", message, "declare one of them")
        if name not in types and not (partition.is_exact or (source.folders and name in PARTS)):
            hint = f"write it in `schema`, or `partitions: {{{name}: string}}`"
            raise HeddleError("HDL-457", f"the partition {name} has no type", hint)
        partitions.append(Partition(name, partition.type, partition.is_exact))
    return replace(source, partitions=tuple(partitions)), tuple(types.items())


# -------------------------------------------------------------------------------------------- reading
def texts_in(source: Source, folders: Sequence[str]) -> dict[str, str | None]:
    """Return the text of each partition of a file that lies in some folders below its source; None: null.

    Raises :class:`Misplaced` if a partition is missing, or there twice.
    """
    if source.folders:
        return _of_pattern(source.folders, tuple(folders), is_partial=False)
    texts = _of_names(source, folders)
    for partition in source.partitions:
        if partition.name not in texts:
            raise Misplaced(f"no folder {partition.name}=…")
    return texts


def span_in(source: Source, folders: Sequence[str], is_partial: bool = False) -> tuple[int, int] | None:
    """Return the span [begin, end) in microseconds to which exact partitions limit the files in some folders; None:
    they do not limit them.

    ``is_partial``: more folders may follow. Raises :class:`Misplaced` for a folder that names no time.
    """
    texts = _of_pattern(source.folders, tuple(folders), is_partial) if source.folders else _of_names(source, folders)
    names = [partition.name for partition in source.partitions if partition.is_exact and partition.name in texts]
    exact = {name: texts[name] for name in names}
    if None in exact.values():
        return None
    parts: dict[str, int] = {}
    for name, text in exact.items():
        for part, number in _parts(name, str(text)).items():
            if parts.setdefault(part, number) != number:
                raise Misplaced(f"{part} {parts[part]} and {part} {number}")
    length = next((at for at, part in enumerate(PARTS) if part not in parts), len(PARTS))
    if not is_partial and len(parts) > length:
        raise Misplaced(f"a {next(part for part in PARTS[length:] if part in parts)} without its {PARTS[length]}")
    return _span([parts[part] for part in PARTS[:length]]) if length else None


def is_exact(source: Source) -> bool:
    """Return whether a part of the event time is in the names of a source's folders."""
    return any(partition.is_exact for partition in source.partitions)


def margin_of(span: tuple[int, int]) -> tuple[int, int]:
    """Return the span of a folder and of what lies next to it: its own length before and after, at most a day."""
    margin = min(span[1] - span[0], DAY)
    return span[0] - margin, span[1] + margin


def unescaped(text: str) -> str:
    """Return a text with its percent-encoding resolved, as UTF-8; what is no encoding stays. Raises Misplaced."""
    try:
        content = text.encode("utf-8", "surrogateescape")
        return _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), content).decode("utf-8")
    except UnicodeError:
        raise Misplaced(f"{ascii(text)}, which is not UTF-8") from None


def folder_names(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the names in folders that are called ``name=value``, in their order."""
    return tuple(dict.fromkeys(name for folder in folders if (name := _key(folder)) is not None))


def _key(folder: str) -> str | None:
    name, equals, _ = folder.partition("=")
    return unescaped(name) if equals and name else None


def _of_names(source: Source, folders: Sequence[str]) -> dict[str, str | None]:
    declared = {partition.name.lower(): partition.name for partition in source.partitions}
    texts: dict[str, str | None] = {}
    for folder in folders:
        key, equals, value = folder.partition("=")
        name = declared.get(unescaped(key).lower()) if equals else None
        if name is None:
            continue
        if name in texts:
            raise Misplaced(f"two folders {name}=…")
        texts[name] = None if value == NULL else unescaped(value)
    return texts


@lru_cache(maxsize=256)
def _segments(folders: str) -> tuple[re.Pattern[str], ...]:
    """A pattern for each folder of a pattern of folders."""
    patterns = []
    for segment in folders.split("/"):
        pieces = _NAME.split(segment)
        widths = [_WIDTHS.get(name, ".+?") for name in pieces[1::2]]
        named = [f"(?P<{name}>{width})" for name, width in zip(pieces[1::2], widths, strict=True)]
        texts = [re.escape(text) for text in pieces[::2]]
        patterns.append(re.compile("".join(a + b for a, b in zip(texts, [*named, ""], strict=True)), re.DOTALL))
    return tuple(patterns)


def pattern_regex(folders: str) -> str:
    """Return a regular expression of a pattern of folders, with a group for each name in order; ``/`` ends it."""
    pieces = _NAME.split(folders)
    groups = [f"({_WIDTHS.get(name, '[^/]+?')})" for name in pieces[1::2]]
    texts = [re.escape(text) for text in pieces[::2]]
    return "^" + "".join(a + b for a, b in zip(texts, [*groups, ""], strict=True)) + "/"


def _of_pattern(pattern: str, folders: tuple[str, ...], is_partial: bool) -> dict[str, str | None]:
    segments = _segments(pattern)
    if len(folders) < len(segments) and not is_partial:
        raise Misplaced(f"{len(folders)} of the {len(segments)} folders of {pattern}")
    texts: dict[str, str | None] = {}
    for segment, folder in zip(segments, folders, strict=False):
        match = segment.fullmatch(folder)
        if match is None:
            raise Misplaced(f"{folder}, which does not match {pattern}")
        texts |= match.groupdict()
    return texts


def _parts(name: str, text: str) -> dict[str, int]:
    """The parts of a time in the text of an exact partition."""
    part = _ALIASES.get(name.lower())
    if part not in (None, "year") and re.fullmatch("[0-9]{1,2}", text, re.ASCII):
        return {str(part): int(text)}
    match = next((match for form in _FORMS if (match := form.fullmatch(text)) is not None), None)
    if match is None:
        raise Misplaced(f"{name} {text[:60]!r}, which is no day, hour, month or year, though it is declared exact")
    return dict(zip(PARTS, map(int, match.groups()), strict=False))


def _span(parts: Sequence[int]) -> tuple[int, int]:
    """The span of a year, of a month of it, and so on. Raises Misplaced."""
    year, month, day, hour = (*parts, *(1, 1, 1, 0)[len(parts) :])
    try:
        begin = _micros(datetime(year, month, day, hour, tzinfo=UTC))
    except ValueError:
        raise Misplaced(f"{'-'.join(f'{part:02}' for part in parts)}, which is no date") from None
    if len(parts) > 2:
        return begin, begin + (DAY if len(parts) == 3 else 3600 * SECOND)
    months = monthrange(year, month)[1] if len(parts) == 2 else 365 + isleap(year)
    return begin, begin + months * DAY


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
