"""A grouping of a job as the text of Heddle's queries: one for each of its sets of keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from optimizer.language.refusals import Refused
from optimizer.language.words import QUERY_NAME, written_name
from optimizer.migration.binding import RANK, Grouped, Relation, is_marker, is_of_window, markers
from optimizer.migration.functions import BY_TIME, JOINED_BY_TIME, divides_whole_numbers, rename
from optimizer.migration.joins import ImportedJoin
from optimizer.migration.windows import ImportedWindow
from optimizer.migration.words import Dialect, function_of

WIDTH = 110
"""Columns of a line of the written file."""


@dataclass(frozen=True)
class WrittenQuery:
    """A query as text without its comments. ``parts``: its expressions, as trees; ``joins``: its dimensions."""

    name: str
    text: str
    stream: str
    time: str
    parts: tuple[exp.Expr, ...]
    joins: tuple[ImportedJoin, ...] = ()


def written_queries(relation: Relation, name: str, dialect: Dialect) -> Iterator[WrittenQuery]:
    """The queries of a relation, several where it has several sets of keys. Raises :class:`Refused`."""
    grouped = relation.grouped
    if grouped is None or relation.window is None:
        raise Refused("HDL-141", "the statement aggregates nothing in a window", "")
    if grouped.ranked is not None and grouped.top is None:
        raise Refused("HDL-143", "rows are numbered, and all of them are kept", "leave row_number() out, or filter it")
    for keys in grouped.sets:
        other_keys = [key for part in grouped.sets for key in part if key not in keys]
        suffix = "" if len(grouped.sets) == 1 else "_" + ("_".join(map(_plain_name, keys)) or "all")
        single = replace(grouped, sets=(keys,))
        yield _written(replace(relation, grouped=single), f"{name}{suffix}"[:128], other_keys, dialect)


def _all(conditions: Sequence[exp.Expr], dialect: Dialect) -> str:
    """Conditions that all hold, as one."""
    texts = (sql(part, dialect) for part in conditions)
    alone = len(conditions) == 1
    return " AND ".join(
        f"({text})" if isinstance(part.unnest(), exp.Or) and not alone else text
        for part, text in zip(conditions, texts, strict=True)
    )


def _plain_name(key: exp.Expr) -> str:
    text = key.name if isinstance(key, exp.Column) else sql(key, Dialect.spark)
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in text).strip("_") or "key"


def _written(relation: Relation, name: str, others: Sequence[exp.Expr], dialect: Dialect) -> WrittenQuery:
    grouped, window = relation.grouped, relation.window
    assert grouped is not None and window is not None
    items = [item for item in relation.items if item[1] not in others and not _is_own(item[1])]
    for _, node in items:
        for _marker in markers(node):
            hint = "every answer has window_start and window_end: compute with them when you read"
            raise Refused("HDL-145", "a value is computed from the bounds of the window", hint)
    selected = ", ".join(_selected(alias, node, dialect) for alias, node in items)
    stream = written_name(relation.stream)
    lines = _folded(f"SELECT {selected or '*'} FROM {stream}")
    lines += [join_text(join, dialect) for join in relation.joins]
    (keys,) = grouped.sets
    lines += _folded(f"WINDOW {window.clause}{_partition(window, keys)} ON {window.time}")
    if relation.where:
        lines += _folded(f"WHERE {_all(relation.where, dialect)}")
    lines += _folded(f"GROUP BY {', '.join(sql(key, dialect) for key in keys)}") if keys else []
    if grouped.having:
        lines += _folded(f"HAVING {_all(grouped.having, dialect)}")
    if grouped.ranked is not None:
        lines += _folded(f"ORDER BY {_order(grouped, items, dialect)} LIMIT {grouped.top}")
    read = [node for _, node in items] + [*keys, *relation.where, *grouped.having]
    text = "\n".join(lines) + ";"
    return WrittenQuery(name, text, relation.stream, window.time, tuple(read), relation.joins)


def _partition(window: ImportedWindow, keys: Sequence[exp.Expr]) -> str:
    """PARTITION BY of sessions that are not of each group. Raises Refused (HDL-144) for what Heddle has not."""
    names = {key.name.lower() if type(key) is exp.Column else "" for key in keys}
    by = window.keys
    if by is None or {name.lower() for name in by} == names:
        return ""
    if not by or not {name.lower() for name in by} <= names:
        message = "sessions are partitioned by other columns than the query groups by"
        hint = "group by the columns of PARTITION BY, and others if need be"
        raise Refused("HDL-144", message, hint)
    return f" PARTITION BY {', '.join(map(written_name, by))}"


def join_text(join: ImportedJoin, dialect: Dialect) -> str:
    """The clause of a join."""
    name, alias = written_name(join.dimension), written_name(join.alias)
    table = name if join.alias.lower() == join.dimension.lower() else f"{name} AS {alias}"
    if join.is_using and all(type(outer) is exp.Column and outer.name == key for outer, key in join.pairs):
        by = f"USING ({', '.join(written_name(key) for _, key in join.pairs)})"
    else:
        by = "ON " + " AND ".join(
            f"{sql(outer.unnest(), dialect)} = {alias}.{written_name(key)}" for outer, key in join.pairs
        )
    return f"{'LEFT ' * join.is_left}JOIN {table} {by}"


def _is_own(node: exp.Expr) -> bool:
    """Return whether a column is one that every answer has, or the number of a row."""
    return is_of_window(node) or is_marker(node, RANK)


def _selected(alias: str, node: exp.Expr, dialect: Dialect) -> str:
    text = sql(node.unnest(), dialect)
    plain = isinstance(node, exp.Column) and node.name == alias
    return f"{text} AS {written_name(alias)}" if alias and not plain else text


def _order(grouped: Grouped, items: Sequence[tuple[str, exp.Expr]], dialect: Dialect) -> str:
    assert grouped.ranked is not None
    by = grouped.ranked.this.unnest()
    alias = next((alias for alias, node in items if alias and node.unnest() == by), "")
    return f"{written_name(alias) if alias else sql(by, dialect)}{' DESC' if grouped.ranked.args.get('desc') else ''}"


def _folded(text: str) -> list[str]:
    """A clause in lines, broken behind the commas of the outermost list where it is long."""
    if len(text) <= WIDTH:
        return [text]
    lines, line, depth, quote = [], "", 0, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and text[at - 1] != "\\" else quote
        elif letter in "'\"`":
            quote = letter
        depth += (letter == "(") - (letter == ")") if not quote else 0
        line += letter
        if letter == "," and not depth and not quote and len(line) > WIDTH // 2:
            lines.append(line)
            line = "   "
    return [*lines, line]


# -------------------------------------------------------------------------------------- expressions
def sql(node: exp.Expr, dialect: Dialect) -> str:
    """An expression as Heddle's text."""
    tree = exp.Paren(this=node.copy())
    for call in list(tree.find_all(exp.Anonymous)):
        rename(call, dialect)
    if dialect is Dialect.flink:
        for like in tree.find_all(exp.Like):
            # a backslash is a letter there
            if isinstance(like.expression, exp.Literal):
                like.set("expression", exp.Literal.string(like.expression.name.replace("\\", "\\\\")))
    for inner in list(tree.find_all(exp.Paren)):
        if isinstance(inner.parent, exp.Paren | exp.Anonymous) and inner is not tree:
            inner.replace(inner.this)
    for part in reversed(list(tree.find_all(exp.Anonymous, exp.Cast))):
        if isinstance(part, exp.Anonymous) and part.name == "try_cast" and isinstance(part.expressions[0], exp.Var):
            part.replace(exp.Var(this=f"TRY_{part.expressions[0].name}"))
        elif isinstance(part, exp.Cast):
            part.replace(exp.Var(this=_cast(part)))
    text: str = tree.this.sql(dialect="spark", normalize_functions=False)
    return text


_MOMENTS = {
    exp.DType.DATE: "DATE",
    exp.DType.TIMESTAMP: "TIMESTAMP",
    exp.DType.TIMESTAMPTZ: "TIMESTAMP",
    exp.DType.TIMESTAMPLTZ: "TIMESTAMP",
}


def _cast(cast: exp.Cast) -> str:
    """A cast as text; that of a constant to a moment as Heddle's constant."""
    kind = cast.args["to"]
    inner: str = cast.this.sql(dialect="spark", normalize_functions=False)
    if kind.this in _MOMENTS and isinstance(cast.this, exp.Literal) and cast.this.is_string:
        return f"{_MOMENTS[kind.this]} {inner}"
    if kind.this == exp.DType.BIGINT and isinstance(cast.this, exp.Literal) and cast.this.is_int:
        return f"{inner}L"
    return f"CAST({inner} AS {kind.sql(dialect='spark')})"


def differences(written: WrittenQuery, dialect: Dialect, fractional: frozenset[str]) -> Iterator[str]:
    """Differences between the query's meaning here and in its dialect. ``fractional``: columns that are not
    integers.
    """
    nodes = [call for part in written.parts for call in part.find_all(exp.Anonymous)]
    calls = {function_of(call.name) for call in nodes if dialect is not Dialect.timescale or len(call.expressions) < 2}
    names = {"first_value": "first", "last_value": "last"}
    if by_time := sorted({names.get(name, name) for name in calls} & BY_TIME):
        yield f"{' and '.join(by_time)} go by the time of the events, not by their arrival"
    if joined := sorted({function_of(call.name) for call in nodes if _joins_unordered(call)}):
        yield f"{' and '.join(joined)} without ORDER BY is in the order of time, not of arrival"
    divided = [node for part in written.parts for node in part.walk() if divides_whole_numbers(node)]
    if dialect is Dialect.flink and any(
        {column.name.lower() for column in node.find_all(exp.Column)} - fractional or not node.find(exp.Column)
        for node in divided
    ):
        yield "Flink divides whole numbers to whole numbers, in avg too; Heddle divides them as Spark does"


def _joins_unordered(call: exp.Anonymous) -> bool:
    """Return whether a call joins texts in an order that it does not name; distinct texts have their own."""
    is_named = call.find(exp.Order, exp.Distinct) is not None or isinstance(call.parent, exp.WithinGroup)
    return function_of(call.name) in JOINED_BY_TIME and not is_named


def valid_name(name: str) -> str:
    """A name that a query can have, near to the one that is given."""
    text = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_.-") else "_" for letter in name)
    text = text[:100] or "query"
    return text if QUERY_NAME.fullmatch(text) else f"_{text}"
