"""Declared streams: ``streams.yaml`` to :class:`optimizer.workload.values.Stream` values.

The YAML is composed with the safe loader and read node by node, so that every message has a line, an alias
expands nothing and an unknown key is an error instead of a silent default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.databases import DatabaseUrl, parse_database_url
from optimizer.workload.dimensions import with_columns
from optimizer.workload.formats import COPIED_AS, DECLARED, KEYS_OF_FOLDERS, KEYS_OF_SPARK, KEYS_OF_TEXT, UNNAMED
from optimizer.workload.instants import DAY, duration_text, instant_of_text, parse_duration
from optimizer.workload.nested import LeafTypes, Nested, Step, leaf_names, read_path
from optimizer.workload.nested import Path as ColumnPath
from optimizer.workload.nested_types import is_nested, parse_nested
from optimizer.workload.partitions import parse_partitions, split_pattern, with_partitions
from optimizer.workload.stated_expectations import BadNode as _Bad
from optimizer.workload.stated_expectations import stated
from optimizer.workload.timestamp_formats import check_format
from optimizer.workload.urls import SCHEMES, lies_in, normalised, scheme_of
from optimizer.workload.values import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INT,
    LONG,
    SECOND,
    SHORT,
    STRING,
    TIMESTAMP,
    Dimension,
    Origin,
    Source,
    Stream,
    Type,
    decimal,
    digest,
    to_json,
)

BY_CATALOGUE = "iceberg:"
"""Prefix of the path of an Iceberg table in a catalogue: ``iceberg:catalogue.schema.table``."""

READERS = ("auto", "direct", "spark")
"""Readers: Heddle itself if it can, Heddle itself, Spark."""

TYPES: dict[str, Type] = {
    "boolean": BOOLEAN,
    "byte": BYTE,
    "short": SHORT,
    "int": INT,
    "integer": INT,
    "long": LONG,
    "bigint": LONG,
    "float": DOUBLE,
    "double": DOUBLE,
    "real": DOUBLE,
    "string": STRING,
    "date": DATE,
    "timestamp": TIMESTAMP,
}
"""Column types by their names in streams.yaml, in addition to ``decimal(p,s)``."""

TIME_UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""Units of an integer time: (factor, divisor) that convert it to microseconds."""

STREAM_KEYS = {"source": True, "time": True} | dict.fromkeys(
    ("schema", "lateness", "step", "allowed_lateness", "event_id", "levels", "expect"), False
)
"""The keys of a stream, and which it has to have."""

LEVELS_KEYS = {"keep_fine": True}
"""The keys of a stream's levels, and which they have to have."""

DIMENSION_KEYS = {"source": True, "key": True} | dict.fromkeys(("schema", "valid_from", "valid_to", "repair"), False)
"""The keys of a dimension, and which it has to have."""

SOURCE_KEYS = dict.fromkeys(
    ("format", *dict.fromkeys(key for declared in DECLARED.values() for key in declared.keys)), False
)
"""The keys of a stream's source, none of which each has to have: see :data:`optimizer.workload.formats.DECLARED`."""

MOST_OPTIONS = 100
"""Options of Spark's reader."""

RESERVED = ("path", "paths", "url", "dbtable", "query", "preparequery", "sessioninitstatement", "mode", "basepath")
"""Options of Spark's reader that other keys set, or that would silently drop events, or run statements."""

TABLE = re.compile(r"[A-Za-z0-9_$-]+(\.[A-Za-z0-9_$-]+){0,3}", re.ASCII)
"""The name of a table of a catalogue or database."""

ENVIRONMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
"""An option's value that the environment has."""

MOST_DIMENSIONS = 100
"""Dimensions of a file of streams."""

MOST_KEYS = 8
"""Columns of a dimension's key."""

MOST_NULLS = 100
"""Most texts that stand for null."""

FILE_BYTES = 1 << 17
"""Largest streams.yaml that is read: some thousand columns. (PyYAML reads 100 kB a second.)"""

DEEPEST = 20
"""Brackets in brackets of a file of streams."""

NODES = 20_000
"""Most keys and values that are read of a file, where those behind an alias count each time."""

_MOST_FINDINGS = 100

_READ_ELSEWHERE = ("format", "path", "table", "reader", *KEYS_OF_FOLDERS)

DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)", re.ASCII)
STREAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRET_OPTION = re.compile(r"secret|passw|pwd|token|key$|credential", re.IGNORECASE)
_SECRET = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/+[^/]*@")
_KEY = re.compile(r"[?&;](?:[a-z_-]*(?:secret|password|token|key|sig)[a-z_-]*)=", re.IGNORECASE)
_PLAIN_TAGS = {
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq")
}

SYSTEM = tuple(map(Path, ("/boot", "/dev", "/etc", "/proc", "/run/secrets", "/sys", "/var/run/secrets")))
"""Folders from which no stream is read, whatever the settings are."""


Root = Path | str
"""Place that streams may be read from: a folder with links resolved, or the normalised URL of a folder in a store."""


def roots_of(roots: Iterable[str | Path]) -> tuple[Root, ...]:
    """The roots that a setting names. Raises HDL-574 or HDL-575 for a URL that is none."""
    texts = [(str(root), Path(root)) for root in roots]
    return tuple(normalised(text) if scheme_of(text) in SCHEMES else path.resolve() for text, path in texts)


def is_readable(place: Root, roots: Iterable[Root] | None) -> bool:
    """Return whether streams may be read from a folder or a URL.

    It must be inside one of the ``roots`` (None: anywhere) and outside :data:`SYSTEM`.
    """
    if isinstance(place, str):
        return roots is None or any(lies_in(place, root) for root in roots if isinstance(root, str))
    inside = roots is None or any(place.is_relative_to(root) for root in roots if isinstance(root, Path))
    return inside and not any(place.is_relative_to(folder) for folder in SYSTEM)


def parse_type(text: str) -> Type:
    """The type that ``long``, ``decimal(10,2)``, … names. Raises HDL-454 for any other text."""
    text = text.strip().lower()
    if text in TYPES:
        return TYPES[text]
    match = DECIMAL.fullmatch(text)
    try:
        if match:
            return decimal(int(match[1]), int(match[2] or 0))
    except ValueError as error:
        raise HeddleError("HDL-454", f"{error}", "1 to 38 digits, at most all of them after the point") from None
    if text.startswith("decimal"):
        hint = "write decimal(10,2), inside {…} quoted: 'decimal(10,2)'"
        raise HeddleError("HDL-454", f"{text!r} is not a type", hint)
    raise HeddleError("HDL-454", f"there is no type {text!r}", _close(text, TYPES))


def parse_column(text: str) -> Type | Nested:
    """The type of a column, plain or nested. Raises HDL-454."""
    return parse_nested(text, parse_type) if is_nested(text) else parse_type(text)


def with_schema(
    stream: Stream,
    schema: Mapping[str, Type] | Iterable[tuple[str, Type]],
    nested: Iterable[tuple[str, Nested]] = (),
) -> Stream:
    """The stream with these columns.

    A time column of integers is one of timestamps if the source has a ``time_unit``.
    Raises HDL-456 if two columns differ by case alone, HDL-455 if the time column is missing or no timestamp, HDL-461
    if the column of event ids is missing or of a type that has none.
    """
    pairs, nested = tuple(schema.items() if isinstance(schema, Mapping) else schema), tuple(nested)
    seen: dict[str, str] = {}
    for name, _ in (*pairs, *nested):
        if name.lower() in seen:
            message = f"stream {stream.name}: columns {seen[name.lower()]} and {name} differ by case at most"
            raise HeddleError("HDL-456", message, "rename one: Spark and Delta do not tell them apart")
        seen[name.lower()] = name
    path = None if stream.time in dict(pairs) else read_path(stream.time)
    if path is not None and path.root in dict(nested) and stream.source.origin is not None:
        message = f"stream {stream.name}: its time {stream.time} is a field, and Spark copies it"
        raise HeddleError("HDL-455", message, "name a column of its own: of what Spark copies, the time is no field")
    if path is not None:
        nested = tuple(_timed(stream, path, name, type_) for name, type_ in nested)
    time_type = LeafTypes(dict(pairs), dict(nested)).get(stream.time)
    if time_type is None:
        message = f"stream {stream.name} has no column {stream.time} (its `time`)"
        raise HeddleError("HDL-455", message, _close(stream.time, [*dict(pairs), *_leaves(nested)]))
    if time_type.name == "long" and stream.source.time_unit is not None:
        pairs = tuple((name, TIMESTAMP if name == stream.time else type_) for name, type_ in pairs)
    elif time_type != TIMESTAMP:
        message = f"stream {stream.name}: its time column {stream.time} is a {time_type}"
        hint = "declare it in `schema` as timestamp"
        if time_type.name == "long":
            hint = f"say what it counts since 1970 by `time_unit` below `source`: one of {', '.join(TIME_UNITS)}"
        elif time_type == STRING:
            hint += "; texts are read as ISO 8601"
        raise HeddleError("HDL-455", message, hint)
    if stream.event_id is not None:
        type_ = dict(pairs).get(stream.event_id)
        if type_ is None:
            message = f"stream {stream.name} has no column {stream.event_id} (its `event_id`)"
            raise HeddleError("HDL-461", message, _close(stream.event_id, dict(pairs)))
        if type_.name not in ("string", "long"):
            message = f"stream {stream.name}: its column of event ids {stream.event_id} is a {type_}"
            raise HeddleError("HDL-461", message, "name a column of strings or integers")
    return with_copy(replace(stream, schema=pairs, nested=nested))


def has_columns(stream: Stream) -> bool:
    """Return whether the columns of a stream are declared, or known."""
    return bool(stream.schema or stream.nested)


def _leaves(nested: Iterable[tuple[str, Nested]]) -> list[str]:
    return [leaf for name, type_ in nested for leaf in leaf_names(name, type_)]


def _timed(stream: Stream, path: ColumnPath, name: str, type_: Nested) -> tuple[str, Nested]:
    """A nested column whose field of integers is a stream's time, as one of timestamps."""

    def timed(inner: Type | Nested, steps: Sequence[Step]) -> Type | Nested:
        if not steps:
            is_counted = isinstance(inner, Type) and inner.name == "long" and stream.source.time_unit is not None
            return TIMESTAMP if is_counted else inner
        if not isinstance(inner, Nested) or inner.kind != "struct":
            return inner
        fields = [
            (field, timed(below, steps[1:]) if field == steps[0].value and steps[0].is_field else below)
            for field, below in inner.fields
        ]
        return Nested("struct", tuple(fields))

    if name != path.root:
        return name, type_
    changed = timed(type_, path.steps)
    assert isinstance(changed, Nested)
    return name, changed


def with_copy(stream: Stream) -> Stream:
    """The stream, whose schema is known, with the place of the copy of its origin, if it has one: another for whatever
    else is to be copied."""
    origin = stream.source.origin
    if origin is None:
        return stream
    content = [to_json(replace(origin, copies="")), to_json(stream.schema), to_json(stream.nested), stream.time]
    content += [stream.source.time_unit] if stream.source.time_unit is not None else []
    place = f"{origin.copies.rstrip('/')}/{stream.name}-{digest(content)[:12]}"
    return replace(stream, source=replace(stream.source, path=place))


class ShallowLoader(yaml.SafeLoader):
    """Loader that reads no further once brackets are too deep: each would be looked at again for each that it is in."""

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:
        """Scan an opening bracket. Raises :class:`yaml.MarkedYAMLError` if it is too deep."""
        if self.flow_level >= DEEPEST:
            raise yaml.scanner.ScannerError(None, None, f"brackets are {DEEPEST} deep", self.get_mark())
        super().fetch_flow_collection_start(TokenClass)


def load_streams(
    path: str | Path, roots: Iterable[str | Path] | None = None, copies: str = ""
) -> tuple[dict[str, Stream], tuple[Diagnostic, ...]]:
    """The streams that a file declares, by name, and what is wrong with the others.

    ``roots``: the only folders, and URLs of folders, that sources may lie in (None: any but :data:`SYSTEM`);
    ``copies``: where copies lie of what Spark reads. Never raises for bad content. Relative source paths are resolved
    against the file's folder; ``schema`` may be absent (then it is empty, see :func:`with_schema`), ``lateness`` (then
    it is zero), ``step`` (a minute), ``allowed_lateness`` (without end), ``event_id`` and ``levels`` (none) too.
    """
    file = str(path)
    try:
        with Path(path).open("rb") as opened:
            content = opened.read(FILE_BYTES + 1)
        if len(content) > FILE_BYTES:
            return {}, (Diagnostic("HDL-450", f"is larger than {FILE_BYTES} bytes", file=file),)
        root = yaml.compose(content.decode("utf-8-sig"), Loader=ShallowLoader)
    except OSError as error:
        hint = "name the file that declares the streams"
        return {}, (Diagnostic("HDL-450", f"cannot be read: {error.strerror}", hint, file),)
    except UnicodeDecodeError:
        return {}, (Diagnostic("HDL-450", "is not UTF-8 text", "save it as UTF-8", file),)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        return {}, (Diagnostic("HDL-451", f"is not YAML: {error.problem}", "", file, line, column),)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):
        return {}, (Diagnostic("HDL-451", "is not YAML that can be read", "", file),)
    try:
        allowed = None if roots is None else roots_of(roots)
    except HeddleError as error:
        hint = f"HEDDLE_SOURCES names it; {error.diagnostic.hint}"
        return {}, (Diagnostic(error.diagnostic.code, error.diagnostic.message, hint),)
    reader = _Reader(Path(path).absolute().parent, file, allowed, copies)
    return reader.read(root), tuple(reader.diagnostics)


def _close(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else "known: " + ", ".join(known[:16])


class _Reader:
    def __init__(self, folder: Path, file: str, roots: tuple[Root, ...] | None, copies: str) -> None:
        self.folder, self.file, self.roots, self.copies = folder, file, roots, copies
        self.diagnostics: list[Diagnostic] = []
        self.nodes = 0

    def report(self, bad: _Bad, name: str = "", what: str = "stream") -> None:
        mark = bad.node.start_mark
        message = f"{what} {name}: {bad.message}" if name else bad.message
        diagnostic = Diagnostic(bad.code, message, bad.hint, self.file, mark.line + 1, mark.column + 1)
        self.diagnostics.append(diagnostic)

    def read(self, root: yaml.Node | None) -> dict[str, Stream]:
        streams: dict[str, Stream] = {}
        if root is None:
            message = "is empty"
            self.diagnostics.append(Diagnostic("HDL-453", message, "it begins with `streams:`", self.file))
            return streams
        try:
            keys = self._keys(root, {"streams": True, "dimensions": False})
            entries = list(self._items(keys["streams"]))
            declared_dimensions = list(self._items(keys["dimensions"])) if "dimensions" in keys else []
        except _Bad as bad:
            self.report(bad)
            return streams
        for name_node, node in entries:
            self._declare(streams, name_node, node, "stream", self._stream)
        dimensions: dict[str, Dimension] = {}
        for name_node, node in declared_dimensions[:MOST_DIMENSIONS]:
            self._declare(dimensions, name_node, node, "dimension", self._dimension, streams)
        for name_node, _ in declared_dimensions[MOST_DIMENSIONS : MOST_DIMENSIONS + 1]:
            self.report(_Bad("HDL-459", f"more than {MOST_DIMENSIONS} dimensions", "declare fewer", name_node))
        declared = tuple(dimensions.values())
        return {name: replace(stream, dimensions=declared) for name, stream in streams.items()}

    def _declare(
        self,
        declared: dict[str, Any],
        name_node: yaml.ScalarNode,
        node: yaml.Node,
        what: str,
        read: Callable[[str, yaml.Node], Any],
        others: Collection[str] = (),
    ) -> None:
        """Add what a node declares to those of its kind, by its name; ``others``: names of the other kind."""
        name = str(name_node.value)
        if len(self.diagnostics) >= _MOST_FINDINGS:
            return
        try:
            if not STREAM_NAME.fullmatch(name):
                hint = "letters, digits and underscores, not starting with a digit"
                raise _Bad("HDL-457", f"{name!r} cannot name a {what}", hint, name_node)
            if name in declared:
                raise _Bad("HDL-456", "declared twice", "the first is kept", name_node)
            if name.lower() in (other.lower() for other in others):
                raise _Bad("HDL-456", "a stream has the same name", "name one of them otherwise", name_node)
            declared[name] = read(name, node)
        except _Bad as bad:
            self.report(bad, name, what)

    def _dimension(self, name: str, node: yaml.Node) -> Dimension:
        keys = self._keys(node, DIMENSION_KEYS)
        source = self._source(keys["source"])
        if source.origin is not None:
            hint = f"one of {', '.join(name for name, declared in DECLARED.items() if declared.is_direct)}"
            raise _Bad("HDL-457", "Heddle reads dimensions itself, without Spark", hint, keys["source"])
        key = self._texts(keys["key"])
        if not 1 <= len(key) <= MOST_KEYS or len({column.lower() for column in key}) < len(key):
            raise _Bad(
                "HDL-457", f"a key has 1 to {MOST_KEYS} different columns", "e.g. key: [product_id]", keys["key"]
            )
        validity = {part: self._text(keys[part]) for part in ("valid_from", "valid_to") if part in keys}
        if "valid_to" in validity and "valid_from" not in validity:
            hint = "name the column with the first instant of a row, too"
            raise _Bad("HDL-453", "valid_to without valid_from", hint, keys["valid_to"])
        repair = 0
        if "repair" in keys:
            repair = self._duration("repair", keys["repair"], 0, 3660 * DAY)
        dimension = Dimension(name, source, key, (), validity.get("valid_from"), validity.get("valid_to"), repair)
        if "schema" not in keys:
            return dimension
        schema: dict[str, Type] = {}
        for column, type_node in self._items(keys["schema"]):
            if column.value in schema:
                raise _Bad("HDL-456", f"column {column.value} is declared twice", "", column)
            try:
                schema[str(column.value)] = parse_type(self._text(type_node))
            except HeddleError as error:
                message = f"column {column.value}: {error.diagnostic.message}"
                raise _Bad("HDL-454", message, error.diagnostic.hint, column) from None
        try:
            source, pairs = with_partitions(source, tuple(schema.items()))
            return with_columns(replace(dimension, source=source), pairs)
        except HeddleError as error:
            message = error.diagnostic.message.removeprefix(f"dimension {name}: ")
            raise _Bad(error.diagnostic.code, message, error.diagnostic.hint, keys["schema"]) from None

    def _duration(self, key: str, node: yaml.Node, least: int, most: int) -> int:
        """A span of time, in microseconds."""
        try:
            duration = parse_duration(self._text(node))
        except HeddleError as error:
            raise _Bad("HDL-457", error.diagnostic.message, error.diagnostic.hint, node) from None
        if duration < least:
            raise _Bad("HDL-457", f"{key} is too short", f"{duration_text(least)} or more", node)
        if duration > most:
            raise _Bad("HDL-457", f"{key} is too long", f"{duration_text(most)} at most", node)
        return duration

    def _keep_fine(self, node: yaml.Node, lateness: int) -> int:
        """Duration for which partial aggregates below levels are kept. ``lateness``: that of the stream."""
        keep_fine = self._keys(node, LEVELS_KEYS)["keep_fine"]
        duration = self._duration("keep_fine", keep_fine, DAY, 3660 * DAY)
        if duration < lateness:
            hint = f"runs wait {duration_text(lateness)} for late events: keep_fine is that or more"
            raise _Bad("HDL-457", "keep_fine is shorter than lateness", hint, keep_fine)
        return duration

    def _stream(self, name: str, node: yaml.Node) -> Stream:
        keys = self._keys(node, STREAM_KEYS)
        source = self._source(keys["source"])
        format_ = source.format if source.origin is None else source.origin.format
        spans: dict[str, Any] = {"lateness": 0, "step": 60 * SECOND}
        limits = (("lateness", 0, 366 * DAY), ("step", SECOND, DAY), ("allowed_lateness", 0, 3660 * DAY))
        for key, least, most in limits:
            if key in keys:
                spans[key] = self._duration(key, keys[key], least, most)
        if DAY % spans["step"]:
            hint = "e.g. '1 minute', '5 minutes' or '1 hour'"
            raise _Bad("HDL-457", "a day is no multiple of the step", hint, keys["step"])
        if spans.get("allowed_lateness", spans["lateness"]) < spans["lateness"]:
            hint = "runs wait for `lateness`; what comes later than `allowed_lateness` is refused"
            raise _Bad("HDL-457", "allowed_lateness is shorter than lateness", hint, keys["allowed_lateness"])
        if "levels" in keys:
            spans["keep_fine"] = self._keep_fine(keys["levels"], spans["lateness"])
        event_id = self._text(keys["event_id"]) if "event_id" in keys else None
        if "expect" in keys:
            spans["expect"] = stated(keys["expect"])
        stream = Stream(name, source, (), self._text(keys["time"]), event_id=event_id, **spans)
        if "schema" not in keys:
            return stream
        schema: dict[str, Type] = {}
        nested: dict[str, Nested] = {}
        for column, type_node in self._items(keys["schema"]):
            text = self._text(type_node)
            if not (column.value.isprintable() and 0 < len(column.value) <= 255):
                raise _Bad("HDL-457", f"{column.value!r} cannot name a column", "1 to 255 printable characters", column)
            if column.value in schema or column.value in nested:
                raise _Bad("HDL-456", f"column {column.value} is declared twice", "", column)
            try:
                type_ = parse_column(text)
                if not isinstance(type_, Nested):
                    schema[str(column.value)] = type_
                elif DECLARED[format_].is_flat:
                    message = f"{DECLARED[format_].title} have no {type_.kind}s"
                    raise HeddleError("HDL-454", message, "leave it out, or write Parquet")
                else:
                    nested[str(column.value)] = type_
            except HeddleError as error:
                message = f"column {column.value}: {error.diagnostic.message}"
                raise _Bad("HDL-454", message, error.diagnostic.hint, column) from None
        try:
            source, pairs = with_partitions(source, tuple(schema.items()))
            return with_schema(replace(stream, source=source), pairs, nested.items())
        except HeddleError as error:
            diagnostic = error.diagnostic
            message = diagnostic.message.removeprefix(f"stream {name}: ")
            at = keys[{"HDL-455": "time", "HDL-457": "source", "HDL-461": "event_id"}.get(diagnostic.code, "schema")]
            raise _Bad(diagnostic.code, message, diagnostic.hint, at) from None

    def _source(self, node: yaml.Node) -> Source:
        """Place of a stream's events, and the reader for them."""
        source = self._keys(node, SOURCE_KEYS)
        if "format" not in source and "table" not in source:
            raise _Bad("HDL-453", "the key 'format' is missing", f"one of {', '.join(DECLARED)}", node)
        format_ = self._text(source["format"]) if "format" in source else UNNAMED
        if format_ not in DECLARED:
            message = f"there is no source format {format_!r}"
            raise _Bad("HDL-457", message, _close(format_, DECLARED), source["format"])
        declared = DECLARED[format_]
        for key in declared.required:
            if key not in source:
                raise _Bad("HDL-453", f"the key {key!r} is missing", "", node)
        if declared.is_either and ("path" in source) == ("table" in source):
            hint = "the folder of a table without a catalogue, or the name of one in a catalogue"
            raise _Bad("HDL-453", f"a source of {format_} has either a 'path' or a 'table'", hint, node)
        database = self._database(source["path"]) if declared.is_database else None
        place, folders = database.jdbc if database is not None else "", ""
        if "path" in source and not place:
            place = self._text(source["path"])
            # a folder that is called so is no pattern
            if "partitions" in declared.keys and not self._is_there(place):
                place, folders = split_pattern(place)
            place = self._place(place, source["path"])
        written = self._options(format_, source) | self._of_folders(source, folders)
        if database is not None and not self._text(source["path"]).startswith("jdbc:"):
            # of a JDBC URL they stay where they are: it names an existing copy
            credentials = {"user": database.user, "password": database.password}
            options = {name: value for name, value in credentials.items() if value} | dict(written.get("options", ()))
            written |= {"options": tuple(sorted(options.items()))} if options else {}
        reader = self._text(source["reader"]) if "reader" in source else READERS[0]
        if reader not in READERS:
            raise _Bad("HDL-457", f"there is no reader {reader!r}", _close(reader, READERS), source["reader"])
        if declared.is_direct and "table" in source:
            name = self._table(source["table"])
            if "." not in name:
                raise _Bad("HDL-457", f"{name!r} names no catalogue", "catalogue.schema.table", source["table"])
            place = BY_CATALOGUE + name
        if declared.is_direct and reader != "spark" and not declared.copied & written.keys():
            return Source(format_, place, reader=reader, **written)
        for key in ("null", "timestamp_format", "records"):
            if key in written:
                hint = "take out `reader: spark`, `options` and `since`, with which Spark reads it"
                raise _Bad("HDL-457", f"Spark has no {key}", hint, source[key])
        if reader == "direct" and declared.copied & written.keys():
            hint = f"take out {' and '.join(sorted(declared.copied & written.keys()))}, or `reader`"
            raise _Bad("HDL-457", "reader is direct, and other keys are Spark's", hint, source["reader"])
        for key in ("files", "partitions"):
            if written.get(key):
                hint = "Spark itself takes columns from folders that are called name=value"
                at = source.get("reader", source.get(key, node))
                raise _Bad("HDL-457", f"{key} is not of what Spark reads (`reader`, `options`, `since`)", hint, at)
        copied = Source(COPIED_AS, "", reader=reader, **{key: written[key] for key in written if key == "time_unit"})
        origin = Origin(
            format_, place, copies=self.copies, **{key: written[key] for key in KEYS_OF_SPARK if key in written}
        )
        if "table" in source:
            origin = replace(origin, table=self._table(source["table"]))
        return replace(copied, origin=origin)

    def _of_folders(self, source: Mapping[str, yaml.Node], folders: str) -> dict[str, Any]:
        """Choice of files by name, and columns in the names of folders."""
        chosen: dict[str, Any] = {}
        if "files" in source:
            chosen["files"] = glob = self._text(source["files"])
            if not (glob.isprintable() and 0 < len(glob) <= 255) or "/" in glob:
                hint = "a pattern of names, without folders: '*.parq' or 'part-*'"
                raise _Bad("HDL-457", f"{glob[:100]!r} names no files", hint, source["files"])
        node = source.get("partitions")
        words: dict[str, str] | str | None = None
        if isinstance(node, yaml.SequenceNode):
            words = dict.fromkeys(self._texts(node), "")
        elif isinstance(node, yaml.MappingNode):
            words = {
                str(key.value): "" if value.tag.endswith(":null") else self._text(value)
                for key, value in self._items(node)
            }
        elif node is not None:
            words = self._text(node)
        try:
            chosen["partitions"] = parse_partitions(words, folders, parse_type)
        except HeddleError as error:
            diagnostic = error.diagnostic
            raise _Bad(diagnostic.code, diagnostic.message, diagnostic.hint, node or source["path"]) from None
        return chosen | {"folders": folders}

    def _database(self, node: yaml.Node) -> DatabaseUrl:
        """The database of a URL, which has no credentials but a user and a reference to the environment."""
        text = self._text(node)
        try:
            url = parse_database_url(text, self.folder)
        except HeddleError as error:
            raise _Bad(error.diagnostic.code, error.diagnostic.message, error.diagnostic.hint, node) from None
        if not text.startswith("jdbc:") and url.file:
            self._place(url.file, node)
        else:
            self._check_not_limited(node)
        return url

    def _table(self, node: yaml.Node) -> str:
        name = self._text(node)
        if TABLE.fullmatch(name) is None or len(name) > 512:
            hint = "names of letters, digits, _, $ and -, with dots between them: catalogue.schema.table"
            raise _Bad("HDL-457", f"{name[:100]!r} is no table", hint, node)
        self._check_not_limited(node)
        return name

    def _check_not_limited(self, node: yaml.Node) -> None:
        if self.roots is not None:
            hint = "HEDDLE_SOURCES names the folders and URLs of sources, and a table lies in none that is known here"
            raise _Bad("HDL-458", "the source lies where no stream is read from", hint, node)

    def _of_spark(self, node: yaml.Node) -> tuple[tuple[str, str], ...]:
        """Options of Spark's reader, sorted."""
        options: dict[str, str] = {}
        for key, value in self._items(node):
            name, text = str(key.value), self._text(value)
            if not (re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,127}", name) and text.isprintable() and len(text) <= 1024):
                raise _Bad("HDL-457", f"{name[:100]!r} is no option of Spark's reader", "", key)
            if name.lower() in RESERVED or name.lower() in map(str.lower, options):
                what = "appears twice" if name.lower() in map(str.lower, options) else "cannot be set"
                raise _Bad("HDL-457", f"the option {name} {what}", "", key)
            if _SECRET_OPTION.search(name) and not ENVIRONMENT.fullmatch(text):
                # never repeated, as above
                hint = "write ${NAME} in its place, and set NAME in the environment"
                raise _Bad("HDL-458", f"the option {name} has a secret in it", hint, value)
            if len(options) >= MOST_OPTIONS:
                raise _Bad("HDL-457", f"more than {MOST_OPTIONS} options", "name fewer", key)
            options[name] = text
        return tuple(sorted(options.items()))

    def _options(self, format_: str, source: Mapping[str, yaml.Node]) -> dict[str, Any]:
        """Options for how the events of a source are written, and which of them are read."""
        options: dict[str, Any] = {}
        for key, node in source.items():
            if key in _READ_ELSEWHERE and key in ("format", *DECLARED[format_].keys):
                continue
            if key not in DECLARED[format_].keys:
                owners = [declared.title or name for name, declared in DECLARED.items() if key in declared.keys]
                hint = f"what is {format_} says how it is written" if key in KEYS_OF_TEXT else f"not of {format_}"
                raise _Bad("HDL-457", f"{key} is of {', '.join(owners)} alone", hint, node)
            if key == "options":
                options[key] = self._of_spark(node)
                continue
            if key == "since":
                options[key] = instant_of_text(self._text(node))
                if options[key] is None:
                    hint = "a day or moment in UTC: 2026-01-01 or 2026-01-01T06:00"
                    raise _Bad("HDL-457", f"since is {self._text(node)[:50]!r}", hint, node)
                continue
            if key == "null":
                options[key] = self._texts(node)
                continue
            if key == "zone":
                options[key] = self._zone(node)
                continue
            text = self._text(node)
            if key == "records":
                parts = text.split(".")
                if not all(part and part.isprintable() and len(part) <= 255 for part in parts) or len(parts) > DEEPEST:
                    hint = "the keys that lead to the array of events, e.g. features or data.items"
                    raise _Bad("HDL-457", f"{text[:100]!r} is no path to records", hint, node)
                options[key] = text
            elif key == "watermark":
                if not (text.isprintable() and 0 < len(text) <= 255):
                    raise _Bad("HDL-457", f"{text[:100]!r} cannot name a column", "", node)
                options[key] = text
            elif key == "time_unit":
                if text not in TIME_UNITS:
                    raise _Bad("HDL-457", f"there is no time_unit {text!r}", _close(text, TIME_UNITS), node)
                options[key] = text
            elif key == "header":
                if text not in ("true", "false"):
                    raise _Bad("HDL-457", f"header is {text!r}", "true or false: whether the first line is one", node)
                options[key] = text == "true"
            elif key == "timestamp_format":
                try:
                    check_format(text)
                except HeddleError as error:
                    raise _Bad("HDL-457", error.diagnostic.message, error.diagnostic.hint, node) from None
                options[key] = text
            elif key == "quote" and text == "none":
                options[key] = None
            else:
                # a tab, or a space, is a character of its own here
                options[key] = mark = "\t" if text == "tab" else str(node.value)
                if not (len(mark) == 1 and mark.isascii() and (mark in " \t" or mark.isprintable())) or mark.isalnum():
                    hint = (
                        "one character, no letter or digit: e.g. ';' or tab" if key == "delimiter" else "'\"' or none"
                    )
                    raise _Bad("HDL-457", f"{key} is {text!r}", hint, node)
        if options.get("delimiter", ",") == options.get("quote", '"'):
            raise _Bad(
                "HDL-457",
                "delimiter and quote are the same",
                "",
                source["delimiter" if "delimiter" in options else "quote"],
            )
        return options

    def _zone(self, node: yaml.Node) -> str:
        """The name of a time zone."""
        name = self._text(node)
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            hint = "a name of the tz database: UTC, Europe/Berlin, America/New_York"
            raise _Bad("HDL-457", f"there is no time zone {name[:100]!r}", hint, node) from None
        return name

    def _texts(self, node: yaml.Node) -> tuple[str, ...]:
        """One text or a list of them."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        self.nodes += len(nodes)
        if len(nodes) > MOST_NULLS:
            raise _Bad("HDL-457", f"more than {MOST_NULLS} texts in a list", "name fewer", node)
        for text_node in nodes:
            self._check_tag(text_node)
        return tuple(self._text(text_node) for text_node in nodes)

    def _place(self, path: str, node: yaml.Node) -> str:
        """Place of a source: an absolute path without links, or a normalised URL."""
        if not path:
            raise _Bad("HDL-457", "the source's path is empty", "a file or folder", node)
        if not path.isprintable() or len(path) > 1024:
            raise _Bad("HDL-457", "the source's path is none", "1 to 1024 printable characters", node)
        in_store = scheme_of(path) in SCHEMES
        if (not in_store and _SECRET.match(path)) or ((in_store or _URI.match(path)) and _KEY.search(path)):
            # never repeated: it would end up in plans, pages and logs
            hint = "credentials belong to the environment of whoever reads the source"
            raise _Bad("HDL-458", "the source's path has a user, a password or a key in it", hint, node)
        if in_store or _URI.match(path):
            return self._url(path, node)
        try:
            place = Path(self.folder, path).resolve()
        except (OSError, RuntimeError):
            # a link that may not be read, or that leads to itself
            raise _Bad("HDL-458", "the source's path cannot be followed", "name the folder itself", node) from None
        if not is_readable(place, self.roots):
            hint = "HEDDLE_SOURCES names the folders of sources" if self.roots is not None else "move the data"
            raise _Bad("HDL-458", "the source lies where no stream is read from", hint, node)
        return str(place)

    def _is_there(self, path: str) -> bool:
        try:
            return scheme_of(path) not in SCHEMES and Path(self.folder, path).exists()
        except (OSError, ValueError):
            return False

    def _url(self, url: str, node: yaml.Node) -> str:
        """A source in a store."""
        try:
            known = normalised(url)
        except HeddleError as error:
            raise _Bad(error.diagnostic.code, error.diagnostic.message, error.diagnostic.hint, node) from None
        if not is_readable(known, self.roots):
            hint = "HEDDLE_SOURCES names the folders and URLs of sources"
            raise _Bad("HDL-458", "the source lies where no stream is read from", hint, node)
        return known

    def _items(self, node: yaml.Node) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise _Bad("HDL-453", "expected `key: value` pairs here", "see the example in the README", node)
        self.nodes += 1 + 2 * len(node.value)
        if self.nodes > NODES:
            raise _Bad("HDL-459", f"more than {NODES} keys and values, counting aliases", "declare fewer", node)
        for key, value in node.value:
            self._check_tag(key)
            self._check_tag(value)
            if not isinstance(key, yaml.ScalarNode):
                raise _Bad("HDL-453", "a key must be a plain word", "", key)
            yield key, value

    def _check_tag(self, node: yaml.Node) -> None:
        # << and = have tags of their own without anybody writing one
        if node.tag not in _PLAIN_TAGS and not (isinstance(node, yaml.ScalarNode) and node.value in ("<<", "=")):
            raise _Bad("HDL-453", "tags are not allowed", "write plain keys and values", node)

    def _keys(self, node: yaml.Node, known: Mapping[str, bool]) -> dict[str, yaml.Node]:
        """The values of a mapping with fixed keys (True: required)."""
        values: dict[str, yaml.Node] = {}
        for key, value in self._items(node):
            if key.value not in known:
                raise _Bad("HDL-452", f"there is no key {key.value!r} here", _close(key.value, known), key)
            if key.value in values:
                raise _Bad("HDL-456", f"the key {key.value!r} appears twice", "", key)
            values[key.value] = value
        for name, required in known.items():
            if required and name not in values:
                raise _Bad("HDL-453", f"the key {name!r} is missing", "", node)
        return values

    def _text(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise _Bad("HDL-453", "expected a single value here", "", node)
        return str(node.value).strip()
