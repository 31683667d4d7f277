"""Meaning of names inside one statement."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property

from sqlglot import exp
from sqlglot.tokens import Token

from optimizer.language.joined import Joined
from optimizer.language.nodes import refuse, refuse_unknown
from optimizer.language.refusals import Refused, shown_text
from optimizer.language.words import Limits, did_you_mean, resolve_name
from optimizer.workload.nested import Nested, Path, Step, behind, leaf_names
from optimizer.workload.values import Column, Stream, Type

_A = {"struct": "a struct", "map": "a map", "array": "an array"}
_HINTS = {
    "struct": "its fields stand behind a dot",
    "map": "its values are m['key'], or m[1] where keys are integers",
    "array": "its elements are a[0], a[1] and so on",
}


def written_path(node: exp.Expr, text: str) -> Path:
    """The names, keys and places that a node writes, as they are written."""
    steps: list[Step] = []
    while type(node) is not exp.Column:
        inner = node.expression if type(node) is exp.Dot else None
        if isinstance(inner, exp.Identifier):
            steps.append(Step(True, inner.name))
        elif type(node) is exp.Bracket:
            (inner,) = node.expressions
            sign, literal = (-1, inner.this) if type(inner) is exp.Neg else (1, inner)
            if not literal.is_string and not literal.this.isdigit():
                refuse("HDL-103", f"{shown_text(literal.this)} is no place and no key", "a whole number", node)
            steps.append(Step(False, literal.this if literal.is_string else sign * int(literal.this)))
        else:
            refuse_unknown(node, text)
        node = node.this
    names = [node.args[part] for part in ("this", "table", "db", "catalog") if node.args.get(part)]
    for name in names:
        if not isinstance(name, exp.Identifier):
            refuse_unknown(name, text)
    steps += [Step(True, name.name) for name in names]
    return Path(str(steps[-1].value), tuple(reversed(steps[:-1])))


@dataclass(frozen=True)
class Scope:
    """The context in which the clauses of a statement are read: its text, its stream, its limits, the dimensions that
    it joins, and the name that it gives to the stream."""

    text: str
    stream: Stream
    limits: Limits
    joins: tuple[Joined, ...] = field(default=(), kw_only=True)
    stream_alias: str = field(default="", kw_only=True)

    @cached_property
    def schema(self) -> dict[str, Type]:
        return self.stream.types

    def written(self, token: Token) -> str:
        """A token as written in the text, with its quotes."""
        return self.text[token.start : token.end + 1]

    def column_of_token(self, token: Token) -> str:
        """The column of the stream that a token names. Raises Refused (HDL-202)."""
        column = resolve_name(token.text, self.schema)
        if column is None:
            message = f"stream {self.stream.name} has no column {shown_text(token.text)}"
            raise Refused("HDL-202", message, did_you_mean(token.text, self.schema, "columns"), token.start)
        return column

    @cached_property
    def conditions(self) -> list[Column]:
        """Conditions that the inner joins are: their dimensions have a row."""
        return [Column(joined.attribute(None).name) for joined in self.joins if joined.is_inner]

    @property
    def names(self) -> list[str]:
        """The names of all columns that a bare name may denote."""
        attributes = (name for joined in self.joins for name in dict(joined.dimension.schema))
        return list(dict.fromkeys([*self.schema, *attributes]))

    def has(self, name: str) -> bool:
        """Return whether a bare name denotes a column of the stream or an attribute."""
        return resolve_name(name, self.schema) is not None or bool(self._attributes(name))

    def _attributes(self, name: str) -> list[str]:
        """The attributes that a bare name may denote: not keys that equal the stream's column of the same name."""
        names = []
        for joined in self.joins:
            column = resolve_name(name, dict(joined.dimension.schema))
            if column is None or joined.equals_key(column, resolve_name(name, self.schema)):
                continue
            names.append(joined.attribute(column).name)
        return names

    def column(self, node: exp.Expr) -> tuple[str, Type]:
        """The column, leaf or attribute that a node names, with its type; the stream's name may precede it."""
        table = node.args.get("table") if type(node) is exp.Column and not node.args.get("db") else None
        if table is not None and self.joins and isinstance(node.this, exp.Identifier):
            alias = resolve_name(table.name, [joined.name for joined in self.joins])
            if alias is not None:
                return self._attribute(next(joined for joined in self.joins if joined.name == alias), node)
        path = self._path(node) if self.stream.nested or type(node) is not exp.Column else None
        if path is not None:
            return self._leaf(path, node)
        table = self.qualifier(node)
        if table is not None and resolve_name(table.name, [self._stream_name]) is None:
            message = f"{shown_text(table.name)} is not the stream of this query"
            if self.joins:
                message = f"{shown_text(table.name)} is neither the stream of this query nor a dimension that it joins"
            refuse("HDL-202", message, f"write {self._qualified(node.this.name)}", node)
        if table is not None and self.joins:
            return self._of_stream(node)
        return self.unqualified(node)

    def _qualified(self, name: str) -> str:
        """A name with each table before it that has such a column; with the stream if none has."""
        tables = [joined.name for joined in self.joins if resolve_name(name, dict(joined.dimension.schema)) is not None]
        if not tables or resolve_name(name, self.schema) is not None:
            tables.insert(0, self._stream_name)
        return " or ".join(f"{table}.{name}" for table in tables)

    @property
    def _stream_name(self) -> str:
        return self.stream_alias or self.stream.name

    def _attribute(self, joined: Joined, node: exp.Expr) -> tuple[str, Type]:
        column = resolve_name(node.name, dict(joined.dimension.schema))
        if column is None:
            message = f"dimension {joined.dimension.name} has no column {shown_text(node.name)}"
            refuse("HDL-202", message, did_you_mean(node.name, dict(joined.dimension.schema), "columns"), node)
        return joined.attribute(column).name, dict(joined.dimension.schema)[column]

    def _path(self, node: exp.Expr) -> Path | None:
        """The path that a node writes, from a column of the stream on; None: a name, with a qualifier at most."""
        path = written_path(node, self.text)
        known = [*self.schema, *dict(self.stream.nested)]
        is_stream = resolve_name(path.root, [self._stream_name]) is not None and path.steps and path.steps[0].is_field
        # as Spark: the stream's name comes before a column's
        if is_stream and resolve_name(str(path.steps[0].value), known) is not None:
            path = Path(str(path.steps[0].value), path.steps[1:])
        root = resolve_name(path.root, known)
        if root is None or (not path.steps and root in self.schema):
            # refused, or found, as a name without steps
            if type(node) is not exp.Column:
                message = f"stream {self.stream.name} has no column {shown_text(path.root)}"
                refuse("HDL-202", message, did_you_mean(path.root, known, "columns"), node)
            return None
        return Path(root, path.steps)

    def _leaf(self, path: Path, node: exp.Expr) -> tuple[str, Type]:
        """The leaf at the end of a path, by its own name."""
        type_: Type | Nested = dict(self.stream.nested).get(path.root) or self.schema[path.root]
        steps: list[Step] = []
        for step in path.steps:
            text = Path(path.root, tuple(steps)).name(())
            if not isinstance(type_, Nested):
                refuse("HDL-202", f"{shown_text(text)} is a {type_}: nothing is in it", "", node)
            if type_.kind == "struct" and step.is_field:
                fields = [name for name, _ in type_.fields]
                name = resolve_name(str(step.value), fields)
                if name is None:
                    message = f"{shown_text(text)} has no field {shown_text(str(step.value))}"
                    refuse("HDL-202", message, did_you_mean(str(step.value), fields, "fields"), node)
                step = Step(True, name)
            inner_type = behind(type_, step)
            if inner_type is None:
                refuse("HDL-202", f"{shown_text(text)} is {_A[type_.kind]}, without {step}", _HINTS[type_.kind], node)
            type_, steps = inner_type, [*steps, step]
        leaf = Path(path.root, tuple(steps)).name(dict(self.stream.schema))
        if isinstance(type_, Nested):
            hint = "write " + ", ".join(itertools.islice(leaf_names(leaf, type_), 8))
            refuse("HDL-202", f"{shown_text(leaf)} is {_A[type_.kind]}, no plain value", hint, node)
        if self.stream.types.get(leaf) != type_ or leaf in dict(self.stream.schema):
            refuse("HDL-202", f"another column is named {shown_text(leaf)}", "rename one", node)
        return leaf, type_

    def qualifier(self, node: exp.Expr) -> exp.Expr | None:
        """The qualifier before the dot of a column's name; refused if it is not a plain name."""
        for name, value in node.args.items():
            if type(node) is not exp.Column or (value and name not in ("this", "table")):
                refuse("HDL-103", "nested names are not allowed", "columns are plain names", node)
        if not isinstance(node.this, exp.Identifier):
            refuse_unknown(node.this, self.text)
        return node.args.get("table")

    def unqualified(self, node: exp.Expr) -> tuple[str, Type]:
        """The column or attribute that a node names, regardless of its qualifier."""
        attributes = self._attributes(node.this.name)
        if not attributes:
            return self._of_stream(node)
        if len(attributes) > 1 or resolve_name(node.this.name, self.schema) is not None:
            hint = f"write {self._qualified(node.name)}"
            refuse("HDL-202", f"several tables have a column {shown_text(node.this.name)}", hint, node)
        return attributes[0], self.schema[attributes[0]]

    def _of_stream(self, node: exp.Expr) -> tuple[str, Type]:
        column = resolve_name(node.this.name, self.schema)
        if column is None:
            message = f"stream {self.stream.name} has no column {shown_text(node.this.name)}"
            hint = did_you_mean(node.this.name, [*self.names, *dict(self.stream.nested)], "columns")
            if node.this.name.lower() in ("window_start", "window_end"):
                hint = "every answer has it: leave it out"
            refuse("HDL-202", message, hint, node)
        return column, self.schema[column]
