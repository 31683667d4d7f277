"""What names mean inside one statement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp
from sqlglot.tokens import Token

from optimizer.language.nodes import refuse, refuse_unknown
from optimizer.language.refusals import Refused, shown_text
from optimizer.language.words import Limits, did_you_mean, resolve_name
from optimizer.workload.values import Stream, Type


@dataclass(frozen=True)
class Scope:
    """What the clauses of a statement are read against: its text, its stream, and what it may ask for."""

    text: str
    stream: Stream
    limits: Limits

    @cached_property
    def schema(self) -> dict[str, Type]:
        return dict(self.stream.schema)

    def written(self, token: Token) -> str:
        """A token as it stands in the text, with its quotes."""
        return self.text[token.start : token.end + 1]

    def column_of_token(self, token: Token) -> str:
        """The column of the stream that a token names. Raises Refused (HDL-202)."""
        column = resolve_name(token.text, self.schema)
        if column is None:
            message = f"stream {self.stream.name} has no column {shown_text(token.text)}"
            raise Refused("HDL-202", message, did_you_mean(token.text, self.schema, "columns"), token.start)
        return column

    def column(self, node: exp.Expr) -> tuple[str, Type]:
        """The column that a node names, with its type; the stream's name may stand before it."""
        table = self.qualifier(node)
        if table is not None and resolve_name(table.name, [self.stream.name]) is None:
            message = f"{shown_text(table.name)} is not the stream of this query"
            refuse("HDL-202", message, f"write {self.stream.name}.{node.this.name}", node)
        return self.unqualified(node)

    def qualifier(self, node: exp.Expr) -> exp.Expr | None:
        """What stands before the dot of a column's name, which is refused if it is not a plain one."""
        for name, value in node.args.items():
            if value and name not in ("this", "table"):
                refuse("HDL-103", "nested names are not allowed", "columns are plain names", node)
        if not isinstance(node.this, exp.Identifier):
            refuse_unknown(node.this, self.text)
        return node.args.get("table")

    def unqualified(self, node: exp.Expr) -> tuple[str, Type]:
        """The column that a node names, whatever stands before its dot."""
        column = resolve_name(node.this.name, self.schema)
        if column is None:
            message = f"stream {self.stream.name} has no column {shown_text(node.this.name)}"
            hint = did_you_mean(node.this.name, self.schema, "columns")
            if node.this.name.lower() in ("window_start", "window_end"):
                hint = "every answer has it: leave it out"
            refuse("HDL-202", message, hint, node)
        return column, self.schema[column]
