"""Resolve a SELECT of a job with its views, CTEs and subselects to events of one stream, or to one grouping."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from optimizer.language.nodes import place_of
from optimizer.language.refusals import Refused
from optimizer.migration.binding import (
    RANK,
    Binder,
    Grouped,
    Relation,
    is_marker,
    is_of_window,
    marker,
    markers,
)
from optimizer.migration.buckets import of_unit, truncated
from optimizer.migration.functions import calls_aggregate
from optimizer.migration.joins import DECLARE, conjuncts, joined_tables, read_join
from optimizer.migration.spans import has_spans, with_spans
from optimizer.migration.windows import ImportedWindow, of_table_function
from optimizer.migration.words import CutWindow, Dialect, cut_number, function_of

MOST_SETS = 32
"""Sets of keys that one statement may have by GROUPING SETS, ROLLUP and CUBE."""


@dataclass(frozen=True)
class Reader:
    """Reads the queries of a job.

    ``views``: relations named by earlier statements, by name in lower case, both full and by its last part;
    ``targets``: the names of tables that they wrote. ``tables``: the full name of each stream, by the last part in
    lower case. ``dimensions``: the names of those that are declared; None: any table may be one.
    """

    dialect: Dialect
    views: Mapping[str, Relation]
    tables: dict[str, str]
    targets: Collection[str] = ()
    windows: Sequence[CutWindow] = ()
    dimensions: Collection[str] | None = None

    def read(self, tree: exp.Expr) -> Relation:
        """The relation of a query. Raises :class:`Refused` for what is not one grouping of one stream."""
        while isinstance(tree, exp.Subquery | exp.Paren) and not tree.args.get("with_"):
            tree = tree.this
        if isinstance(tree, exp.SetOperation):
            hint = "write each of its queries as a statement"
            raise Refused("HDL-142", "a UNION, or another operation on sets", hint, place_of(tree))
        if not isinstance(tree, exp.Select):
            raise Refused("HDL-146", "this is no SELECT", "", place_of(tree))
        reader = self._with_ctes(tree)
        source, names = reader._source(tree)
        source, joined = reader._joined(tree, source, names)
        return _Select(tree, source, frozenset(names), self.dialect, joined).relation()

    def _joined(self, tree: exp.Select, source: Relation, names: Collection[str]) -> tuple[Relation, frozenset[str]]:
        """The relation with the dimensions that a SELECT joins, and their names in it."""
        used_names = {*names, *(join.alias.lower() for join in source.joins), source.stream.lower()}
        tables = joined_tables(tree, used_names, self.dimensions)
        if tables and source.grouped is not None:
            raise Refused("HDL-142", "a join with answers", "join them when you read: heddle sql", place_of(tree))
        aliases = frozenset(table.alias.lower() for table in tables)
        for table in tables:
            if table.dimension.lower() in (*self.views, *self.targets):
                message = f"a join with {table.dimension}, which an earlier statement makes"
                raise Refused("HDL-142", message, DECLARE, place_of(table.node))
            binder = Binder(source, frozenset(names), self.dialect, joined=aliases)
            join, others = read_join(table, binder)
            where = tuple(binder.bind(condition) for condition in others)
            source = replace(source, joins=(*source.joins, join), where=source.where + where)
        return source, aliases

    def _with_ctes(self, tree: exp.Select) -> Reader:
        views = dict(self.views)
        clause = tree.args.get("with_")
        if clause is not None and clause.args.get("recursive"):
            raise Refused("HDL-143", "a recursive query", "", place_of(tree))
        for cte in clause.expressions if clause is not None else ():
            relation = replace(self, views=views).read(cte.this)
            columns = [column.name for column in (cte.args["alias"].args.get("columns") or ())]
            views[cte.alias.lower()] = named_columns(relation, columns, place_of(cte))
        return replace(self, views=views)

    def _source(self, tree: exp.Select) -> tuple[Relation, set[str]]:
        for name, value in tree.args.items():
            if value and name not in _READ:
                code, message, hint = _REFUSED.get(name, ("HDL-143", f"{name} in a SELECT", ""))
                near = value[0] if isinstance(value, list) else value
                raise Refused(code, message, hint, place_of(near if isinstance(near, exp.Expr) else tree))
        clause = tree.args.get("from_")
        if clause is None:
            raise Refused("HDL-142", "the query reads no stream", "FROM names one", place_of(tree))
        table = clause.this
        for name, value in table.args.items():
            if value and name not in ("this", "db", "catalog", "alias"):
                raise Refused("HDL-142", f"{name} in FROM", "name the table alone", place_of(table))
        alias = table.args.get("alias")
        columns = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
        if isinstance(table, exp.Subquery):
            return named_columns(self.read(table.this), columns, place_of(table)), {table.alias.lower()}
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or columns:
            raise Refused("HDL-142", "FROM takes one table, view or subselect", "", place_of(table))
        names = {name.lower() for name in (table.name, table.alias) if name}
        number = cut_number(table.name, table.this.quoted)
        if number is None:
            return self._named([part.name for part in table.parts], place_of(table)), names
        return self._windowed(self.windows[number]), names

    def _named(self, parts: Sequence[str], at: int) -> Relation:
        """The view of a name, or the stream that its last part names."""
        name, full_name = parts[-1], ".".join(parts).lower()
        view = self.views.get(full_name)
        if view is not None:
            return view
        if full_name in self.targets:
            hint = "aggregate the stream itself, or keep this job"
            raise Refused("HDL-143", f"{full_name} is what an earlier statement writes", hint, at)
        if self.tables.setdefault(name.lower(), full_name) != full_name:
            hint = "give one of the streams another name"
            raise Refused(
                "HDL-142", f"{self.tables[name.lower()]} and {full_name} are two tables of one name", hint, at
            )
        return Relation(name)

    def _windowed(self, cut: CutWindow) -> Relation:
        source = self._named(cut.source, cut.at)
        if source.window is not None:
            hint = "give the outer query the longer window over the stream itself"
            raise Refused("HDL-143", "a window over the answers of a window", hint, cut.at)
        time = exp.Column(this=exp.to_identifier(cut.time))
        bound = Binder(source, frozenset(), self.dialect).bind(time)
        if type(bound) is not exp.Column:
            raise Refused("HDL-144", "the time of a window is computed, not a column of the stream", "", cut.at)
        window = of_table_function(cut, bound.this.sql(dialect="spark"))
        return replace(source, window=window, windowed=True)


_READ = ("expressions", "from_", "joins", "where", "group", "having", "with_", "order")
"""Clauses of a SELECT that are read. A table has no order, so ORDER BY is not among them."""

_REFUSED = {
    "laterals": ("HDL-142", "LATERAL or EXPLODE", "unnest the stream in a job before"),
    "pivots": ("HDL-142", "PIVOT", "write an aggregate with FILTER for each value"),
    "windows": ("HDL-143", "a named window", "windows of rows are not read"),
    "qualify": ("HDL-143", "QUALIFY", "filter row_number() in an outer SELECT"),
    "match": ("HDL-143", "MATCH_RECOGNIZE", "write PATTERN SEQ(…)"),
    "distinct": ("HDL-143", "SELECT DISTINCT", "count(DISTINCT x) counts the values of a window"),
    "limit": (
        "HDL-143",
        "LIMIT is of all answers, Heddle's ORDER BY … LIMIT of each window",
        "filter row_number() OVER (PARTITION BY the window ORDER BY …) in an outer SELECT",
    ),
    "offset": ("HDL-143", "OFFSET", ""),
}


def named_columns(relation: Relation, columns: Sequence[str], at: int) -> Relation:
    """The relation with other names for its columns, as ``INSERT INTO t (a, b)`` and ``WITH c (a, b)`` give them."""
    if not columns:
        return relation
    if len(columns) != len(relation.items) or (relation.star and not relation.grouped):
        raise Refused("HDL-143", f"{len(columns)} names for the columns of another number", "", at)
    items = tuple((name, node) for name, (_, node) in zip(columns, relation.items, strict=True))
    return replace(relation, items=items)


@dataclass
class _Select:
    """One SELECT over a relation."""

    tree: exp.Select
    source: Relation
    names: frozenset[str]
    dialect: Dialect
    joined: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.binder = Binder(self.source, self.names, self.dialect, joined=self.joined)
        self.is_grouped = self.source.grouped is not None or self.tree.args.get("group") is not None

    def relation(self) -> Relation:
        """The rows of the SELECT."""
        tree, source = self.tree, self.source
        group = tree.args.get("group")
        if source.grouped is not None:
            return self._over_groups(source.grouped)
        aggregates = any(calls_aggregate(node) for item in tree.expressions for node in item.walk())
        if group is not None or aggregates or tree.args.get("having"):
            return self._grouping(group)
        items, star = self._items()
        return replace(source, items=items, star=star, where=source.where + self._where())

    def _where(self) -> tuple[exp.Expr, ...]:
        clause = self.tree.args.get("where")
        if clause is None:
            return ()
        return (self.binder.bind(clause.this),)

    def _items(self) -> tuple[tuple[tuple[str, exp.Expr], ...], bool]:
        """The columns of the SELECT list, and whether all of the stream's are among them."""
        items: list[tuple[str, exp.Expr]] = []
        star = False
        for item in self.tree.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                if any(value for name, value in item.args.items() if name not in ("this", "table")):
                    raise Refused("HDL-143", "a star with exceptions", "name the columns", place_of(item))
                items += self.source.items
                star |= self.source.star and not self.source.grouped
                continue
            node = item.this if isinstance(item, exp.Alias) else item
            bound = self._rank(node) if isinstance(node, exp.Window) else self.binder.bind(node)
            items.append((item.alias or (node.name if isinstance(node, exp.Column) else ""), bound))
        return tuple(items), star

    # ------------------------------------------------------------------------------------- grouping
    def _grouping(self, group: exp.Group | None) -> Relation:
        aliased = {item.alias.lower(): item.this for item in self.tree.expressions if isinstance(item, exp.Alias)}
        conditions = self._where()
        keys = [list(part) for part in self._sets(group, aliased)]
        items, star = self._items()
        if self._window is None and keys:
            keys, items = self._by_unit(keys, items)
        self._check_keys(keys, star)
        self.binder.aliases = {name: self.binder.bind(node) for name, node in aliased.items()}
        clause = self.tree.args.get("having")
        having = self.binder.bind(clause.this, aliases=True) if clause is not None else None
        sets = tuple(tuple(key for key in part if not is_of_window(key)) for part in keys)
        grouped = Grouped(sets, (having,) if having is not None else (), self._ranked())
        answers = replace(self.source, items=items, star=False, window=self._window, windowed=False)
        answers = replace(answers, where=self.source.where + conditions, grouped=grouped)
        if has_spans(answers):
            answers = with_spans(answers, place_of(self.tree))
        if answers.window is None:
            hint = "group by window(time, '1 hour') in Spark, by window_start and window_end in Flink"
            raise Refused("HDL-141", "the query groups by no window", hint, place_of(self.tree))
        for condition in answers.grouped.having if answers.grouped is not None else ():
            if any(True for _ in markers(condition)):
                raise Refused("HDL-145", "HAVING on the bounds of the window", "", place_of(condition))
        return answers

    @property
    def _window(self) -> ImportedWindow | None:
        return self.binder.window or self.source.window

    def _by_unit(
        self, keys: list[list[exp.Expr]], items: tuple[tuple[str, exp.Expr], ...]
    ) -> tuple[list[list[exp.Expr]], tuple[tuple[str, exp.Expr], ...]]:
        """Keys and items whose times cut to a unit are the starts of windows, where every set of keys has one."""
        cut_keys = [[key for key in part if truncated(key) is not None] for part in keys]
        if any(len(part) != 1 or part[0] != cut_keys[0][0] for part in cut_keys):
            return keys, items
        key = cut_keys[0][0]
        time_and_unit = truncated(key)
        assert time_and_unit is not None
        self.binder.window = of_unit(*time_and_unit, place_of(key))

        def as_start(node: exp.Expr) -> exp.Expr:
            return marker("start", node) if node == key else node

        changed = [[as_start(each) for each in part] for part in keys]
        return changed, tuple((name, exp.Paren(this=node).transform(as_start).this) for name, node in items)

    def _check_keys(self, keys: Sequence[Sequence[exp.Expr]], star: bool) -> None:
        """Raise :class:`Refused` for sets of keys some of which lack the window, and for a star in a grouping."""
        windowed = [any(is_of_window(key) for key in part) for part in keys]
        if self._window is not None and not any(windowed):
            hint = "group by window(time, '1 hour') in Spark, by window_start and window_end in Flink"
            raise Refused("HDL-141", "the query groups by no window", hint, place_of(self.tree))
        if self._window is not None and not all(windowed):
            raise Refused("HDL-141", "one of the GROUPING SETS has no window", "put it into each", place_of(self.tree))
        if star and self._window is not None:
            raise Refused("HDL-146", "a star in a query that groups", "name the columns", place_of(self.tree))

    def _sets(self, group: exp.Group | None, aliased: Mapping[str, exp.Expr]) -> list[tuple[exp.Expr, ...]]:
        """The sets of keys, bound: one, or those of GROUPING SETS, ROLLUP and CUBE."""
        plain: list[exp.Expr] = []
        sets: list[tuple[exp.Expr, ...]] = [()]
        if group is None:
            return sets
        names = ("expressions", "grouping_sets", "cube", "rollup")
        if any(value and name not in names for name, value in group.args.items()):
            raise Refused("HDL-143", "GROUP BY ALL, or with totals", "name the columns", place_of(self.tree))
        for part in [part for name in names for part in group.args.get(name) or ()]:
            if isinstance(part, exp.GroupingSets | exp.Cube | exp.Rollup):
                inner = list(part.expressions) or list(group.expressions)
                plain = plain if part.expressions else []
                choices = _choices(part, inner)
                if len(sets) * len(choices) > MOST_SETS:
                    raise Refused("HDL-310", f"more than {MOST_SETS} grouping sets", "write fewer", place_of(part))
                sets = [(*keys, *choice) for keys in sets for choice in choices]
            else:
                plain.append(part)
        bound = {id(key): self._key(key, aliased) for key in [*plain, *(key for part in sets for key in part)]}
        return [tuple(bound[id(key)] for key in (*plain, *part)) for part in sets]

    def _key(self, key: exp.Expr, aliased: Mapping[str, exp.Expr]) -> exp.Expr:
        items = self.tree.expressions
        if isinstance(key, exp.Literal) and key.is_int and 1 <= int(key.name) <= len(items):
            item = items[int(key.name) - 1]
            return self.binder.bind(item.this if isinstance(item, exp.Alias) else item)
        if isinstance(key, exp.Column) and len(key.parts) == 1 and key.name.lower() in aliased:
            expression = aliased[key.name.lower()]
            if not self._is_column(key.name.lower()):
                return self.binder.bind(expression)
        return self.binder.bind(key)

    def _is_column(self, name: str) -> bool:
        """Return whether the rows have a column of this name, as far as is known; then GROUP BY refers to it, not to
        an alias.
        """
        used = (column for item in self.tree.expressions for column in item.find_all(exp.Column))
        return name in self.source.columns or (self.source.star and name in (column.name.lower() for column in used))

    # -------------------------------------------------------------------------------- over a grouping
    def _over_groups(self, grouped: Grouped) -> Relation:
        tree = self.tree
        plain = (item for item in tree.expressions if not isinstance(item.unalias(), exp.Window))
        aggregates = any(calls_aggregate(node) for item in plain for node in item.walk())
        if tree.args.get("group") or tree.args.get("having") or aggregates:
            hint = "aggregate the stream itself: queries share its partial aggregates anyway"
            raise Refused("HDL-143", "an aggregate of aggregates", hint, place_of(tree))
        for condition in self._where():
            if any(is_marker(marked) for marked in markers(condition)):
                message = "a condition on the bounds of the window"
                raise Refused("HDL-145", message, "read the answers of the windows that you want", place_of(condition))
            grouped = self._kept(grouped, condition)
        items, _ = self._items()
        ranked = self._ranked()
        if ranked is not None and grouped.ranked is not None:
            raise Refused("HDL-143", "rows are numbered twice", "", place_of(tree))
        return replace(self.source, items=items, grouped=replace(grouped, ranked=ranked or grouped.ranked))

    def _kept(self, grouped: Grouped, where: exp.Expr) -> Grouped:
        """The groups that satisfy a condition: of the row's number the first ones, of all else a HAVING."""
        conditions: tuple[exp.Expr, ...] = ()
        for part in conjuncts(where):
            if not any(True for _ in markers(part)):
                conditions += (part,)
            elif (top := _first_rows(part)) is not None and grouped.top is None:
                grouped = replace(grouped, top=top)
            else:
                hint = "write rownum <= 3"
                raise Refused("HDL-143", "a condition on the number of a row", hint, place_of(self.tree.args["where"]))
        if conditions and grouped.ranked is not None:
            hint = "filter the groups before they are numbered"
            raise Refused("HDL-143", "a condition behind the choice of the first rows", hint, place_of(self.tree))
        return replace(grouped, having=grouped.having + conditions)

    def _rank(self, window: exp.Window) -> exp.Expr:
        name = function_of(window.this.name) if isinstance(window.this, exp.Anonymous) else ""
        if name != "row_number" or not self.is_grouped:
            hint = "only row_number() over the groups of each window is: ORDER BY … LIMIT k"
            raise Refused("HDL-143", "a function over rows (OVER)", hint, place_of(window))
        return marker(RANK)

    def _ranked(self) -> exp.Ordered | None:
        """The order by which the rows of each window are numbered, if they are."""
        window_nodes = [node for item in self.tree.expressions for node in item.find_all(exp.Window)]
        if len(window_nodes) > 1:
            raise Refused("HDL-143", "rows are numbered twice", "", place_of(window_nodes[1]))
        return self._order(window_nodes[0]) if window_nodes else None

    def _order(self, window: exp.Window) -> exp.Ordered:
        parts = [self.binder.bind(part) for part in window.args.get("partition_by") or ()]
        order = window.args.get("order")
        if not parts or not all(map(is_of_window, parts)):
            hint = "Heddle has those of each window"
            raise Refused("HDL-143", "the first rows of each group", hint, place_of(window))
        if order is None or len(order.expressions) != 1:
            raise Refused("HDL-143", "the first rows by other than a single order", "", place_of(window))
        ordered = order.expressions[0]
        return exp.Ordered(this=self.binder.bind(ordered.this), desc=bool(ordered.args.get("desc")))


def _first_rows(condition: exp.Expr) -> int | None:
    """k, of a condition that keeps the first k rows."""
    if not isinstance(condition, exp.LTE | exp.LT | exp.EQ) or not is_marker(condition.this, RANK):
        return None
    if not isinstance(condition.expression, exp.Literal) or not condition.expression.is_int:
        return None
    number = int(condition.expression.name) - isinstance(condition, exp.LT)
    return number if number >= 1 and not (isinstance(condition, exp.EQ) and number != 1) else None


def _choices(part: exp.Expr, keys: Sequence[exp.Expr]) -> list[tuple[exp.Expr, ...]]:
    """The sets of keys of GROUPING SETS, CUBE or ROLLUP."""
    groups = [tuple(key.expressions) if isinstance(key, exp.Tuple) else (key.unnest(),) for key in keys]
    if isinstance(part, exp.GroupingSets):
        return groups
    if isinstance(part, exp.Rollup):
        return [sum(groups[:size], ()) for size in range(len(groups), -1, -1)]
    if len(groups) > 5:
        hint = f"{MOST_SETS} grouping sets are the most"
        raise Refused("HDL-310", f"a CUBE of {len(groups)} columns", hint, place_of(part))
    chosen = range(2 ** len(groups))
    return [sum((group for at, group in enumerate(groups) if bits >> at & 1), ()) for bits in reversed(chosen)]
