"""Joins of a job's stream with dimensions, by equality with their keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from optimizer.language.nodes import place_of
from optimizer.language.refusals import Refused, shown_text
from optimizer.migration.words import cut_number

if TYPE_CHECKING:
    from optimizer.migration.binding import Binder

REFUSED = "HDL-142"

DECLARE = "declare it below `dimensions:` in streams.yaml, with its key; or join in a job before"


@dataclass(frozen=True)
class ImportedJoin:
    """A join with a dimension.

    Parameters
    ----------
    dimension, alias
        The dimension's name, and its name in the query.
    is_left
        Whether events without a row stay.
    pairs
        Bound values of the stream's columns, or of dimensions joined before, each with the column of the key that it
        equals.
    is_using
        Whether these are named by USING.
    """

    dimension: str
    alias: str
    is_left: bool
    pairs: tuple[tuple[exp.Expr, str], ...]
    is_using: bool


@dataclass(frozen=True)
class JoinedTable:
    """A table of JOIN, before its condition is read.

    Parameters
    ----------
    node
        The join.
    dimension, alias
        The dimension's name, and its name in the query.
    """

    node: exp.Join
    dimension: str
    alias: str


def joined_tables(tree: exp.Select, taken: Collection[str], known: Collection[str] | None) -> list[JoinedTable]:
    """The tables that a SELECT joins. ``taken``: names of tables in lower case; ``known``: the dimensions, None: any.
    Raises :class:`Refused` for what is no dimension.
    """
    tables: list[JoinedTable] = []
    for node in tree.args.get("joins") or ():
        kind = " ".join(filter(None, (node.args.get(part) for part in ("method", "side", "kind")))).upper()
        if kind not in ("", "INNER", "LEFT", "LEFT OUTER"):
            raise Refused(REFUSED, f"a {kind} JOIN", "JOIN and LEFT JOIN are read", place_of(node))
        table = node.this
        is_plain = isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier)
        if not is_plain or cut_number(table.name, table.this.quoted) is not None or _has_more(table):
            raise Refused(REFUSED, "a join with something else than a table", DECLARE, place_of(node))
        if not node.args.get("using") and not node.args.get("on"):
            raise Refused(REFUSED, "a join without a key", "write USING (<key>), or ON", place_of(node))
        names = {name.lower(): name for name in known or ()}
        if known is not None and table.name.lower() not in names:
            message = f"a join with {shown_text(table.name)}, which is no dimension"
            raise Refused(REFUSED, message, DECLARE, place_of(node))
        joined = JoinedTable(node, names.get(table.name.lower(), table.name), table.alias or table.name)
        if joined.alias.lower() in (*taken, *(each.alias.lower() for each in tables)):
            raise Refused(REFUSED, f"two tables are named {shown_text(joined.alias)}", "name one", place_of(node))
        tables.append(joined)
    return tables


def _has_more(table: exp.Table) -> bool:
    return bool(table.alias_column_names) or any(
        value for name, value in table.args.items() if name not in ("this", "db", "catalog", "alias")
    )


def read_join(table: JoinedTable, binder: Binder) -> tuple[ImportedJoin, list[exp.Expr]]:
    """A join, and the other conditions of ON. Raises :class:`Refused` if a LEFT JOIN has such conditions."""
    node, is_left = table.node, (table.node.side or "").upper() == "LEFT"
    using: Sequence[exp.Identifier] = node.args.get("using") or ()
    pairs = [(binder.bind(exp.Column(this=key.copy())), key.name) for key in using]
    others: list[exp.Expr] = []
    for condition in conjuncts(node.args.get("on")):
        pair = _pair(condition, table.alias)
        if pair is not None:
            pairs.append((binder.bind(pair[0]), pair[1]))
        elif is_left:
            hint = "ON takes equalities with columns of the dimension's key"
            raise Refused(REFUSED, "another condition of a LEFT JOIN", hint, place_of(node))
        else:
            others.append(condition)
    if not pairs:
        hint = f"write ON o.key = {table.alias}.key, with the names of both tables"
        raise Refused(REFUSED, f"ON compares no column of {shown_text(table.alias)}", hint, place_of(node))
    return ImportedJoin(table.dimension, table.alias, is_left, tuple(pairs), bool(using)), others


def _pair(condition: exp.Expr, alias: str) -> tuple[exp.Expr, str] | None:
    """The other side of an equality with a column of the dimension, and that column; None: it is no such equality."""
    if type(condition) is not exp.EQ:
        return None
    sides = [condition.this.unnest(), condition.expression.unnest()]
    of_it = [type(side) is exp.Column and str(side.table).lower() == alias.lower() for side in sides]
    if of_it.count(True) != 1:
        return None
    inner, outer = sides if of_it[0] else sides[::-1]
    columns = list(outer.find_all(exp.Column))
    is_own = any(str(column.table).lower() == alias.lower() for column in columns)
    return (outer, str(inner.name)) if columns and not is_own else None


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The parts that AND joins."""
    while isinstance(node, exp.Paren):
        node = node.this
    if node is None:
        return []
    return [*conjuncts(node.this), *conjuncts(node.expression)] if isinstance(node, exp.And) else [node]
