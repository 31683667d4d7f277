"""A call of an aggregate, in SELECT or HAVING: over events, or over the sequences that match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from sqlglot import exp

from optimizer.aggregates.algebra import AGGREGATES, SEQUENCES
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.clauses import LIFETIME_WINDOW, SEVERAL_WINDOWS, TOGETHER
from optimizer.language.constants import accuracy_argument, constant_argument, constant_arguments, error_argument
from optimizer.language.expressions import ExpressionReader, filter_of, settled
from optimizer.language.nodes import (
    call_arguments,
    function_name,
    place_of,
    refuse,
    refuse_unknown,
    without_parentheses,
)
from optimizer.language.refusals import NULL, Findings, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.language.words import (
    BINARY,
    CALLABLE,
    DISTINCT_FORMS,
    FORMS,
    NAMES_OF_SYNTAX,
    OF_GROUPS,
    ORDERED,
    PARAMETERS,
    SEVERAL,
    WITHIN_GROUP,
    Form,
    did_you_mean,
    resolve_name,
    written_name,
)
from optimizer.workload.attributes import last_name, shown_column
from optimizer.workload.event_patterns import Pattern
from optimizer.workload.instants import duration_text, parse_duration
from optimizer.workload.ordered import is_ordered_by, state_in_time, value_in_order
from optimizer.workload.values import (
    BOOLEAN,
    DOUBLE,
    LONG,
    STRING,
    Call,
    Column,
    Expression,
    Literal,
    Output,
    Type,
    Window,
    columns_of,
)
from optimizer.workload.window_kinds import WindowKind

_LONGEST_NAME = 64
"""Characters of a name that an output gets when it is given none."""


@dataclass(frozen=True)
class AggregateCall:
    """An output; ``takes_error``: the query's permitted error applies, because the call names none."""

    output: Output
    takes_error: bool = False


@dataclass(frozen=True)
class _Written:
    """A call as written in the query: its form, and the node of each role that is present."""

    node: exp.Expr
    function: str
    form: Form
    roles: Mapping[str, exp.Expr]


@dataclass(frozen=True)
class NamedWindows:
    """The named windows of a query, by name, and the numbers of those that an aggregate is over."""

    windows: Mapping[str, Window]
    used: set[int] = field(default_factory=set)

    def number(self, name: str, node: exp.Expr) -> int:
        """The number of the window of a name. Raises Refused (HDL-244)."""
        known = resolve_name(name, self.windows)
        if known is None:
            hint = did_you_mean(name, self.windows, "windows")
            refuse("HDL-244", f"the query has no window {shown_text(name)}", hint, node)
        values = list(self.windows.values())
        number = values.index(self.windows[known])
        self.used.add(number)
        return number


@dataclass(frozen=True)
class AggregateReader:
    """Reads calls of aggregates over the events of windows of a kind. ``error``: what the query permits them to be off
    by; ``windows``: those that calls name with OVER."""

    scope: Scope
    kind: WindowKind
    error: Decimal | None
    findings: Findings
    windows: NamedWindows | None = field(default=None, kw_only=True)

    def read(self, node: exp.Expr, alias: str) -> AggregateCall:
        """The output of a call. ``alias``: its name in the answers, made from the call if empty."""
        over = node if type(node) is exp.Window else None
        if over is not None:
            _check_over(over)
        node = node.this if over is not None else node
        filter_node = node.expression if type(node) is exp.Filter else None
        written = _written(node.this if filter_node else node, self.scope.text)
        number = self._window(over, written)
        call = self._call(written, alias, filter_node, node)
        if over is None:
            return call
        name = alias or f"{call.output.name}_{over.args['alias'].name}"[:_LONGEST_NAME]
        return replace(call, output=replace(call.output, name=name, window=number))

    def each_window(self, node: exp.Expr) -> Iterator[tuple[str, exp.Expr]] | None:
        """The call over each of the windows of ``OVER (h, d)``, with the name of the window; None for other nodes."""
        node = without_parentheses(node)
        if type(node) is not exp.Window or not _over_name(node).startswith(TOGETHER):
            return None
        names = _over_name(node).split(TOGETHER)[1:]
        return ((name, exp.Window(this=node.this, alias=exp.to_identifier(name), over="OVER")) for name in names)

    def _window(self, over: exp.Expr | None, written: _Written) -> int:
        """The number of the window that a call is over. Raises Refused."""
        if over is None:
            if self.windows is None:
                return 0
            message = f"{written.function} names no window"
            hint = f"write {written.function}(…) OVER {' or OVER '.join(self.windows.windows)}"
            refuse("HDL-244", message, hint, written.node)
        name = _over_name(over)
        if name.startswith(TOGETHER):
            hint = "SELECT sum(x) OVER (h, d) AS s has s_h and s_d; in an expression name one"
            refuse("HDL-244", "several windows stand behind OVER inside an expression", hint, written.node)
        if self.windows is None:
            hint = f"write {SEVERAL_WINDOWS}, or leave OVER out"
            refuse("HDL-244", f"the query has no window {shown_text(name)}", hint, written.node)
        return self.windows.number(name, written.node)

    def check_group(self, column: str, node: exp.Expr) -> None:
        """Refuse a group column among aggregates where it has no value there."""

    def _call(self, written: _Written, alias: str, where: exp.Expr | None, node: exp.Expr) -> AggregateCall:
        if "step" in written.roles:
            hint = "write PATTERN SEQ(A, B) ON <type column> PARTITION BY <key column>"
            refuse("HDL-222", f"{written.function} counts keys by their steps in an event sequence", hint, node)
        return self._of_events(written, alias, where)

    def _of_events(self, written: _Written, alias: str, where: exp.Expr | None) -> AggregateCall:
        scope, form, function, roles = self.scope, written.form, written.function, written.roles
        aggregate = AGGREGATES[form.function]
        if aggregate.signature == "state" or aggregate.signature.startswith("ordered"):
            return self._in_time(written, alias, where)
        expressions = ExpressionReader(scope, scope.column)
        argument, argument_type = _argument(roles["x"], expressions)
        if function == "count" and _is_written_value(argument):
            argument, argument_type = None, None
        by, by_type = _argument(roles["y"], expressions) if "y" in roles else (None, None)
        conditions = [*([roles["x"]] if function == "count_if" else []), *([where.this] if where else [])]
        if function == "count_if":
            argument, argument_type = None, None
        columns = [*columns_of(argument), *columns_of(by)]
        if conditions:
            condition = filter_of(conditions, scope)
            columns += columns_of(condition)
            if by is None:
                argument, argument_type = counted_where(condition, argument, argument_type)
            else:
                by, by_type = counted_where(condition, by, by_type)
        name = alias or _made_name(function, columns)
        if aggregate.signature == "value+time":
            by, by_type = Column(scope.stream.time), scope.schema[scope.stream.time]
        try:
            type_ = aggregate.output_type(argument_type, by_type)
        except TypeError as reason:
            raise Refused("HDL-203", str(reason), "", place_of(written.node)) from None
        error, takes_error = self._permitted_error(written) if aggregate.sketch else (None, False)
        read = Output(name, form.function, argument, argument_type, type_, by, by_type, form.k, error)
        return AggregateCall(self._with_parameters(read, written), takes_error)

    def _in_time(self, written: _Written, alias: str, where: exp.Expr | None) -> AggregateCall:
        """An aggregate of values in the order of time, or in another one."""
        scope, form, roles, time = self.scope, written.form, written.roles, self.scope.stream.time
        aggregate = AGGREGATES[form.function]
        listed: Type | None = None
        parameter = form.k
        if "condition" in roles:
            condition, type_ = _argument(roles["condition"], ExpressionReader(scope, scope.column))
            if condition is None or type_ != BOOLEAN:
                hint = "compare it: time_while(state = 'on')"
                refuse("HDL-203", f"{written.function} needs a condition, not {type_ or '*'}", hint, written.node)
            columns = [*columns_of(condition)]
            argument, argument_type = state_in_time(condition, time), LONG
            parameter = _longest(roles.get("longest"), written, scope)
        else:
            reader = ExpressionReader(scope, scope.column)
            value, type_ = _argument(roles["x"], reader)
            separator = _separator(roles.get("separator"), written)
            if value is None or type_ is None or type_ == DOUBLE:
                message = f"{written.function} takes {'no doubles' if type_ == DOUBLE else 'one expression'}"
                refuse("HDL-203", message, "CAST them to decimals or texts" if type_ == DOUBLE else "", written.node)
            if aggregate.signature == "ordered" and not type_.is_numeric:
                refuse("HDL-203", f"{written.function} needs an integer or a decimal, not {type_}", "", written.node)
            key = _key_of_order(roles["order"], reader, written) if "order" in roles else None
            columns, listed = [*columns_of(value)], type_
            argument, argument_type = value_in_order(value, type_, time, key, separator, "distinct" in roles), STRING
            parameter = Decimal(len(separator)) if "separator" in form.roles else parameter
        if where is not None:
            condition = filter_of([where.this], scope)
            columns += columns_of(condition)
            filtered, _ = counted_where(condition, argument, argument_type)
            assert filtered is not None
            argument = filtered
        type_of_output = aggregate.output_type(argument_type)
        name = alias or _made_name(written.function, columns)
        output = Output(name, form.function, argument, argument_type, type_of_output, None, listed, parameter)
        return AggregateCall(self._with_parameters(output, written))

    def _with_parameters(self, output: Output, written: _Written) -> Output:
        """Add the numeric parameters of the call to the output."""
        check = AGGREGATES[output.function].check_parameter
        for role, code in PARAMETERS.items():
            if role not in written.roles:
                continue
            node, what = written.roles[role], f"the {role} of {written.function}"
            if role == "fractions":
                output = replace(output, parameters=constant_arguments(node, code, what, check, self.scope))
            else:
                output = replace(output, parameter=constant_argument(node, code, what, check, self.scope))
        return output

    def _permitted_error(self, written: _Written) -> tuple[Decimal | None, bool]:
        """Permitted error of the aggregate, and whether it is the query's: the call's argument, the query's, or the
        form's.
        """
        if "error" in written.roles:
            return error_argument(written.roles["error"], written.function, self.scope), False
        if "accuracy" in written.roles:
            return accuracy_argument(written.roles["accuracy"], written.function, self.scope), False
        if self.error is not None:
            return self.error, True
        return written.form.error, False


@dataclass(frozen=True)
class SequenceReader(AggregateReader):
    """Reads calls of aggregates over the sequences of events that match a pattern."""

    pattern: Pattern

    def check_group(self, column: str, node: exp.Expr) -> None:
        message = f"{shown_column(column)} is a group column, and over event sequences it cannot be reckoned with"
        refuse("HDL-222", message, "a condition on it belongs in WHERE", node)

    def _call(self, written: _Written, alias: str, where: exp.Expr | None, node: exp.Expr) -> AggregateCall:
        if where or written.function == "count_if":
            hint = "a condition on events belongs in WHERE; if(c, x, NULL) leaves values out"
            refuse("HDL-222", "FILTER does not apply to event sequences", hint, node)
        if "step" in written.roles:
            return AggregateCall(self._of_steps(written, alias))
        return _of_sequences(written, alias, EventColumns(self.scope, self.pattern, self.findings))

    def _of_steps(self, written: _Written, alias: str) -> Output:
        """The number of keys that reached a step. Raises Refused (HDL-222)."""
        node, steps, function = without_parentheses(written.roles["step"]), len(self.pattern.events), written.function
        step = str(node.this) if type(node) is exp.Literal and not node.is_string else ""
        if not (step.isdecimal() and len(step) < 4 and 1 <= int(step) <= steps):
            hint = f"write {function}(1)" + (f" to {function}({steps})" if steps > 1 else "")
            refuse("HDL-222", f"{function} takes the number of a step of {self.pattern}", hint, node)
        if not self.pattern.per:
            hint = "add PARTITION BY <key column> behind the type column"
            refuse("HDL-222", f"{function} counts keys, and the sequences have none", hint, written.node)
        name = alias or f"{function}_{int(step)}"
        return Output(name, function, None, None, SEQUENCES[function](None), parameter=Decimal(int(step)))


class EventColumns:
    """Resolve names in an aggregate over sequences: attributes of the one event type that it reads."""

    def __init__(self, scope: Scope, pattern: Pattern, findings: Findings) -> None:
        self.scope, self.pattern, self.findings = scope, pattern, findings
        self.event: str | None = None
        """The event type, from the first name that mentions it."""

    def column(self, node: exp.Expr) -> tuple[str, Type]:
        """The column that is named, of an event of the sequence, and its type."""
        table = self.scope.qualifier(node)
        if table is None:
            example = f"{written_name(self.pattern.events[0])}.{node.this.name}"
            message = f"{shown_text(node.this.name)}: of which event of the sequence?"
            refuse("HDL-222", message, f"write {example}", node)
        if self.event not in (None, table.name):
            message = f"an aggregate reads one event of a sequence, not {self.event} and {table.name}"
            refuse("HDL-222", message, "aggregate them one by one", node)
        if self.event is None:
            self.read_event(table.name, table)
        return self.scope.unqualified(node)

    def read_event(self, name: str, node: exp.Expr) -> None:
        """Read the event type of this name; one that the pattern does not have is in no sequence."""
        if name not in self.pattern.events:
            hint = did_you_mean(name, self.pattern.events, "event types")
            message = f"{shown_text(name)} is no event type of {self.pattern}: no sequence has one"
            self.findings.warnings.append(Refused("HDL-223", message, hint, place_of(node)))
        self.event = name


def _made_name(function: str, columns: Iterable[str]) -> str:
    """The name of an output that is given none."""
    return re.sub(r"\W", "_", "_".join([function, *dict.fromkeys(map(last_name, columns))]))[:_LONGEST_NAME]


def _longest(node: exp.Expr | None, written: _Written, scope: Scope) -> Decimal | None:
    """The longest time (microseconds) that counts after an event."""
    if node is None:
        return None
    if type(node) is not exp.Literal or not node.is_string:
        hint = f"write {written.function}(condition, '10 minutes')"
        refuse("HDL-204", f"the longest time of {written.function} is a quoted duration", hint, node)
    try:
        longest = parse_duration(node.name)
    except HeddleError as error:
        raise Refused.of(error, place_of(node)) from None
    if longest <= 0:
        refuse("HDL-204", f"the longest time of {written.function} must be longer than zero", "", node)
    if longest > scope.limits.range:
        hint = f"{duration_text(scope.limits.range)} are the longest"
        refuse("HDL-307", f"the longest time of {written.function} is too long", hint, node)
    return Decimal(longest)


def _separator(node: exp.Expr | None, written: _Written) -> str:
    """The separator of texts. Raises Refused (HDL-203)."""
    if node is None:
        return ""
    if type(node) is not exp.Literal or not node.is_string:
        refuse("HDL-203", f"the separator of {written.function} has to be a text in quotes", "write ', '", node)
    return str(node.this)


def _key_of_order(node: exp.Expr, reader: ExpressionReader, written: _Written) -> tuple[Expression, Type, bool]:
    """The key that an aggregate orders its values by: expression, type, and whether it descends. Raises Refused."""
    hint = f"write {written.function}(x, … ORDER BY y DESC)"
    if len(node.expressions) != 1:
        refuse("HDL-104", f"{written.function} orders by one expression", hint, node.expressions[1].this)
    ordered = node.expressions[0]
    descends = bool(ordered.args.get("desc"))
    value, type_ = _argument(ordered.this, reader)
    if value is None or type_ is None or not is_ordered_by(type_):
        message = f"{written.function} orders by integers, dates, timestamps and conditions, not by {type_ or '*'}"
        refuse("HDL-203", message, "without ORDER BY the order is that of time", ordered.this)
    return value, type_, descends


def _check_over(node: exp.Expr) -> None:
    """Refuse the windows of SQL."""
    extra = [name for name, value in node.args.items() if value and name not in ("this", "alias", "over")]
    if extra or not _over_name(node):
        spec = node.args.get("spec")
        is_lifetime = spec is not None and spec.args.get("start") == "UNBOUNDED"
        hint = f"a total since the first event is {LIFETIME_WINDOW}" if is_lifetime else f"write {SEVERAL_WINDOWS}"
        refuse("HDL-103", "OVER takes the name of a window", hint, node.this)


def _over_name(node: exp.Expr) -> str:
    alias = node.args.get("alias")
    return alias.name if isinstance(alias, exp.Identifier) else ""


def _within_group(node: exp.Expr, text: str) -> _Written:
    """``percentile_cont(0.5) WITHIN GROUP (ORDER BY x)`` as ``percentile(x, 0.5)``."""
    name = function_name(node.this, text) or ""
    if name in FORMS and FORMS[name].function in ORDERED and type(node.expression) is exp.Order:
        return _of_order(node.this, name, call_arguments(node.this), node.expression)
    if name not in WITHIN_GROUP:
        refuse_unknown(node, text)
    ordered = node.expression.expressions if type(node.expression) is exp.Order else []
    hint = f"write {name}({'' if name == 'mode' else '0.5'}) WITHIN GROUP (ORDER BY x)"
    if len(ordered) != 1:
        refuse("HDL-104", f"{name} orders by one expression", hint, node.this)
    if ordered[0].args.get("desc"):
        refuse("HDL-104", f"{name} counts from the least value", f"{hint}: 0.1 for 0.9 from above", node.this)
    arguments, function = call_arguments(node.this), WITHIN_GROUP[name]
    form = FORMS[function]
    if len(arguments) != len(form.roles) - 1:
        refuse("HDL-104", f"{name} takes {len(form.roles) - 1} argument(s) here, not {len(arguments)}", hint, node.this)
    if function in SEVERAL and function_name(arguments[0], text) == "array":
        form = SEVERAL[function]
    return _Written(node.this, function, form, dict(zip(form.roles, [ordered[0].this, *arguments], strict=False)))


def _written(node: exp.Expr, text: str) -> _Written:
    """The call of an aggregate with as many arguments as it takes."""
    if type(node) is exp.WithinGroup:
        return _within_group(node, text)
    function = function_name(node, text) or ""
    if function in OF_GROUPS:
        hint = "it is of ROLLUP, CUBE and GROUPING SETS, and stands by itself in SELECT: grouping_id() AS level"
        refuse("HDL-206", f"{function}() has no meaning here", hint, node)
    if function not in FORMS:
        if function in CALLABLE or type(node) in BINARY or type(node) in (exp.Paren, exp.Literal, exp.Neg):
            hint = "there has to be an aggregate in it: sum(x) / count(*)"
            refuse("HDL-105", "SELECT takes group columns, aggregates and expressions over them", hint, node)
        refuse_unknown(node, text)
    arguments = call_arguments(node)
    if arguments and type(arguments[0]) is exp.Order and DISTINCT_FORMS.get(function) in ORDERED:
        arguments = _distinct_first(arguments[0])
    if arguments and type(arguments[0]) is exp.Distinct:
        if function in FORMS and "separator" in FORMS[function].roles:
            written = _of_order(node, function, [*arguments[0].expressions, *arguments[1:]])
            return replace(written, roles={**written.roles, "distinct": arguments[0]})
        if function not in DISTINCT_FORMS:
            what, hint = NAMES_OF_SYNTAX[exp.Distinct]
            refuse("HDL-103", f"{what} is not allowed in {function}", hint, node)
        values = arguments[0].expressions
        if len(values) > 1 and function == "count":
            return _Written(
                node, DISTINCT_FORMS[function], FORMS[DISTINCT_FORMS[function]], {"x": exp.Tuple(expressions=values)}
            )
        function, arguments = DISTINCT_FORMS[function], [*values, *arguments[1:]]
    elif function == "array_agg":
        refuse("HDL-104", "array_agg takes DISTINCT", "write array_agg(DISTINCT x, 10), or collect_set(x, 10)", node)
    form = FORMS[function]
    if form.function in ORDERED:
        last = arguments[-1] if arguments else node
        if type(last) is exp.Order and type(last.this) is exp.Distinct:
            message = f"{function} with DISTINCT lists the values in their own order"
            refuse("HDL-104", message, "leave ORDER BY out, or DISTINCT", node)
        if type(last) is exp.Order:
            return _of_order(node, function, [*arguments[:-1], last.this], last)
        return _of_order(node, function, arguments)
    if function in SEVERAL and len(arguments) > 1 and function_name(arguments[1], text) == "array":
        form = SEVERAL[function]
    return _Written(node, function, form, _roles(node, function, form, arguments))


def _distinct_first(order: exp.Order) -> list[exp.Expr]:
    """The arguments of ``f(DISTINCT x, k ORDER BY y)``: sqlglot reads them as one."""
    if type(order.this) is not exp.Distinct:
        return [order]
    *values, last = order.this.expressions
    return [exp.Distinct(expressions=values), exp.Order(this=last, expressions=order.expressions)]


def _roles(node: exp.Expr, function: str, form: Form, arguments: Sequence[exp.Expr]) -> dict[str, exp.Expr]:
    """The role of each argument. Raises Refused (HDL-104) for too few or too many."""
    if not form.least <= len(arguments) <= len(form.roles):
        example = f"{function}({', '.join(form.roles)})"
        refuse("HDL-104", f"{function} takes {form.counts}, not {len(arguments)}", f"write {example}", node)
    return dict(zip(form.roles, arguments, strict=False))


def _of_order(node: exp.Expr, function: str, arguments: Sequence[exp.Expr], order: exp.Expr | None = None) -> _Written:
    """A call of an aggregate of values in an order."""
    roles = _roles(node, function, FORMS[function], arguments)
    return _Written(node, function, FORMS[function], roles if order is None else {**roles, "order": order})


def _of_sequences(written: _Written, alias: str, columns: EventColumns) -> AggregateCall:
    """An aggregate over the sequences: ``count(*)``, ``count(E)`` or a function of E's attributes."""
    function, events = written.function, columns.pattern.events
    if function not in SEQUENCES:
        hint = f"{', '.join(SEQUENCES)} apply to event sequences"
        if function == "count_distinct":
            hint = f"reached({len(events)}) counts the keys of PARTITION BY with a sequence"
        refuse("HDL-222", f"{function} does not apply to event sequences", hint, written.node)
    node = without_parentheses(written.roles["x"])
    argument: Expression | None = None
    argument_type: Type | None = None
    is_name = type(node) is exp.Column and not node.args.get("table") and function == "count"
    is_no_column = isinstance(node.this, exp.Identifier) and not columns.scope.has(node.name)
    if is_name and (is_no_column or node.name in events):
        columns.read_event(node.name, node)
    else:
        argument, argument_type = _argument(node, ExpressionReader(columns.scope, columns.column))
        if function == "count" and _is_written_value(argument):
            argument, argument_type = None, None
        elif argument is not None and columns.event is None:
            example = f"{function}({written_name(events[0])}.x)"
            message = f"{function} over sequences needs an attribute of an event"
            refuse("HDL-222", message, f"write {example}", node)
    try:
        type_ = SEQUENCES[function](argument_type)
    except TypeError as reason:
        raise Refused("HDL-203", str(reason), "", place_of(written.node)) from None
    parts = [*([columns.event] if columns.event else []), *dict.fromkeys(map(last_name, columns_of(argument)))]
    name = alias or re.sub(r"\W", "_", "_".join([function, *parts]))[:_LONGEST_NAME]
    return AggregateCall(Output(name, function, argument, argument_type, type_, event=columns.event))


def _argument(node: exp.Expr, expressions: ExpressionReader) -> tuple[Expression | None, Type | None]:
    """An argument of an aggregate with its type; neither for a star."""
    if type(node) is exp.Star:
        return None, None
    if type(node) is exp.Tuple:
        return _tuple([expressions.read(part) for part in node.expressions], node), STRING
    value, type_ = expressions.read(node)
    return settled(value, BOOLEAN), BOOLEAN if type_ == NULL else type_


def _tuple(values: list[tuple[Expression, Type]], node: exp.Expr) -> Expression:
    """Several values as one text: equal where all of them are, null where one is."""
    texts: list[Expression] = []
    for value, type_ in values:
        if type_ == DOUBLE:
            refuse(
                "HDL-203",
                "count(DISTINCT …) of several values takes no doubles",
                "CAST them to decimals",
                node.expressions[0],
            )
        text = settled(value, STRING)
        text = text if type_ in (STRING, NULL) else Call("cast", (text, Literal("string", STRING)))
        # with their lengths before them, texts side by side are no others
        texts += [Call("cast", (Call("length", (text,)), Literal("string", STRING))), Literal(":", STRING), text]
    return Call("concat", tuple(texts))


def counted_where(
    condition: Expression | None, value: Expression | None, type_: Type | None
) -> tuple[Expression | None, Type | None]:
    """The value that an aggregate with a FILTER goes over: null where the condition does not hold."""
    if condition is None:
        return value, type_
    value, type_ = (Literal(True, BOOLEAN), BOOLEAN) if value is None or type_ is None else (value, type_)
    return Call("if", (condition, value, Literal(None, type_))), type_


def _is_written_value(argument: Expression | None) -> bool:
    """Return whether the argument is a value written in the query, which every event has."""
    return isinstance(argument, Literal) and argument.value is not None
