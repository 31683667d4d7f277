"""Expressions and conditions inside WHERE and aggregates, node by node."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.nodes import (
    call_arguments,
    function_name,
    is_name,
    only_argument,
    place_of,
    refuse,
    refuse_unknown,
)
from optimizer.language.refusals import NULL, Refused, shown_text
from optimizer.language.scalar_calls import FIELD_NAMES, SCALAR_CALLS, sort_arguments, target_name
from optimizer.language.scope import Scope
from optimizer.language.words import BINARY, CALLABLE, FORMS, MOMENTS
from optimizer.windows.calendars import check_zone
from optimizer.workload.expression import call_type, exact_literal, moment, negated, number
from optimizer.workload.predicates import normal
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, Call, Column, Expression, Literal, Type

_DIGITS = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)

Typed = tuple[Expression, Type]
"""A value with its type, which is NULL's own for a NULL that nothing gave one yet."""


@dataclass(frozen=True)
class ExpressionReader:
    """Map a tree of sqlglot to a typed expression; ``column``: resolves a name in the tree."""

    scope: Scope
    column: Callable[[exp.Expr], tuple[str, Type]]

    def read(self, node: exp.Expr, depth: int = 0) -> Typed:
        """The value of a node and its type; every kind of node that the language has is named here."""
        # chains like a + b + c lean to the left: no parenthesis, but as deep
        if depth > 2 * self.scope.limits.depth:
            refuse("HDL-303", "the expression is too long", "shorten the chain of operators", node)
        kind = type(node)
        if kind is exp.Paren:
            return self.read(only_argument(node, "this"), depth + 1)
        if is_name(node):
            name, type_ = self.column(node)
            return Column(name), type_
        if kind in (exp.Literal, exp.Boolean, exp.Null):
            literal = _literal(node)
            return literal, literal.type
        if kind in (exp.TryCast, exp.Cast):
            return self._cast(node, depth)
        if kind is exp.Case:
            return self._case(node, depth)
        if kind in (exp.And, exp.Or):
            return self._connected(node, depth)
        if kind is exp.Not:
            return typed_call("not", [self.read(only_argument(node, "this"), depth + 1)], node)
        if kind is exp.Neg:
            value, type_ = self.read(only_argument(node, "this"), depth + 1)
            if isinstance(value, Literal) and type_.is_numeric:
                return (literal := negated(value)), literal.type
            return typed_call("neg", [(value, type_)], node)
        if kind is exp.Is and type(node.expression) is exp.Null:
            return typed_call("is_null", [self.read(node.this, depth + 1)], node)
        if kind is exp.Is:
            refuse("HDL-103", "IS takes NULL or NOT NULL", "write the condition itself", node)
        if kind is exp.RegexpLike:
            only_argument(node, "this", "expression")
            pattern = sort_arguments("regexp_like", [node.this, node.expression], node)[1]
            return typed_call("regexp_like", [self.read(node.this, depth + 1)], node, pattern)
        if kind is exp.Extract:
            return self._extract(node, depth)
        if kind is exp.AtTimeZone:
            only_argument(node, "this", "zone")
            return self._at_zone(self.read(node.this, depth + 1), _text_of(node.args["zone"], "AT TIME ZONE"), node)
        if kind in (exp.In, exp.Like, exp.Between):
            return self._predicate(node, depth)
        if kind in BINARY:
            only_argument(node, "this", "expression", "typed", "safe")
            sides = [self.read(side, depth + 1) for side in (node.this, node.expression)]
            if is_between_times(node, sides):
                return between_times(sides, node)
            return typed_call(BINARY[kind], sides, node)
        return self._function(node, depth)

    def _scalar(self, name: str, node: exp.Expr, depth: int) -> Typed:
        """A call of a function of single values."""
        nodes, constants = sort_arguments(name, call_arguments(node), node)
        values, function = [self.read(argument, depth + 1) for argument in nodes], SCALAR_CALLS[name].function
        if function == "if":
            return self.conditional([(values[0], values[1])], values[2], node)
        if function == "nullif":
            return self.conditional([(typed_call("=", values, node), (Literal(None, NULL), NULL))], values[0], node)
        if function == "at_zone":
            return self._at_zone(values[0], str(constants[0].value), node)
        if function == "time_diff" and not constants:
            # datediff(end, start) counts days from date to date
            ends = alike(values[::-1], DATE, node)
            days = [end if end[1] == DATE else typed_call("cast", [end], node, (_DATE,)) for end in ends]
            return typed_call(function, days, node, (Literal("day", STRING),))
        if function in ("left", "right"):
            length = int(constants[0].value)
            begin = 1 if function == "left" else -max(length, 1)
            return typed_call("substring", values, node, (exact_literal(begin), exact_literal(max(length, 0))))
        if function in ("to_date", "to_timestamp") and not constants:
            target = function.removeprefix("to_")
            return typed_call("cast", values, node, (Literal(target, STRING),))
        return typed_call(function, values, node, constants)

    def _at_zone(self, value: Typed, zone: str, node: exp.Expr) -> Typed:
        """A time as the clock of a zone shows it. Raises Refused (HDL-240) for an unknown one."""
        try:
            check_zone(zone)
        except HeddleError as error:
            raise Refused.of(error, place_of(node)) from None
        if value[1] == STRING:
            # a time that is written as a text
            value = alike([value, (Literal(None, TIMESTAMP), TIMESTAMP)], TIMESTAMP, node)[0]
        return typed_call("at_zone", [value], node, (Literal(zone, STRING),))

    def conditional(self, cases: Sequence[tuple[Typed, Typed]], last: Typed, node: exp.Expr) -> Typed:
        """The value behind the first condition that is true; the conditions are in normal form."""
        values = alike([*(value for _, value in cases), last], BOOLEAN, node)
        conditions = []
        for (condition, type_), _ in cases:
            if type_ not in (BOOLEAN, NULL):
                refuse("HDL-203", f"CASE and if need conditions, not {type_}", "compare the value", node)
            form = normal(settled(condition, BOOLEAN), self.scope.schema)
            conditions.append((Literal(True, BOOLEAN) if form is None else form, BOOLEAN))
        pairs = zip(conditions, values, strict=False)
        return called("if", [*(typed for pair in pairs for typed in pair), values[-1]], node)

    def _case(self, node: exp.Expr, depth: int) -> Typed:
        only_argument(node, "this", "ifs", "default")
        subject = self.read(node.this, depth + 1) if node.this else None
        cases = []
        for branch in node.args["ifs"]:
            condition = self.read(only_argument(branch, "this", "true"), depth + 1)
            if subject is not None:
                condition = typed_call("=", [subject, condition], branch)
            cases.append((condition, self.read(branch.args["true"], depth + 1)))
        if not cases:
            refuse("HDL-101", "CASE has no WHEN", "CASE WHEN c THEN a ELSE b END", node)
        default = node.args.get("default")
        last = self.read(default, depth + 1) if default else (Literal(None, NULL), NULL)
        return self.conditional(cases, last, node)

    def _extract(self, node: exp.Expr, depth: int) -> Typed:
        field = only_argument(node, "this", "expression")
        name = field.name.lower()
        if type(field) is not exp.Var or name not in FIELD_NAMES:
            refuse("HDL-203", f"times have no field {shown_text(name)}", ", ".join(FIELD_NAMES), node)
        value = self.read(node.expression, depth + 1)
        return typed_call("date_part", [value], node, (Literal(FIELD_NAMES[name], STRING),))

    def _cast(self, node: exp.Expr, depth: int) -> Typed:
        """A cast, or the literal that sqlglot has as one: ``date '…'``, ``timestamp '…'``, a number with a suffix."""
        only_argument(node, "this", "to", "safe")
        inner, target = node.this, node.args["to"]
        try:
            literal = _cast_literal(inner, target)
            if literal is not None:
                return literal, literal.type
        except HeddleError as error:
            raise Refused.of(error, place_of(node)) from None
        value, type_ = self.read(inner, depth + 1)
        if type_ == NULL:
            value, type_ = Literal(None, STRING), STRING
        return typed_call("cast", [(value, type_)], node, (Literal(target_name(target), STRING),))

    def _connected(self, node: exp.Expr, depth: int) -> Typed:
        """AND or OR, however many: a chain of one of them is one call."""
        kind, operands = type(node), []
        while type(node) is kind:
            operands.append(node.expression)
            node = node.this
        read = [self.read(operand, depth + 1) for operand in (node, *reversed(operands))]
        return typed_call("and" if kind is exp.And else "or", read, node)

    def _predicate(self, node: exp.Expr, depth: int) -> Typed:
        """IN, LIKE and BETWEEN, negated or not."""
        only_argument(node, "this", "expression", "expressions", "low", "high", "negate")
        names = {exp.In: "expressions", exp.Like: "expression"}
        subject = self.read(node.this, depth + 1)
        if type(node) is exp.Between:
            low, high = (self.read(node.args[side], depth + 1) for side in ("low", "high"))
            bounds = [typed_call(">=", [subject, low], node), typed_call("<=", [subject, high], node)]
            predicate = typed_call("and", bounds, node)
        else:
            items = node.args.get(names[type(node)]) or []
            items = items if isinstance(items, list) else [items]
            read = [subject, *(self.read(item, depth + 1) for item in items)]
            predicate = typed_call("in" if type(node) is exp.In else "like", read, node)
        return typed_call("not", [predicate], node) if node.args.get("negate") else predicate

    def _function(self, node: exp.Expr, depth: int) -> Typed:
        function = function_name(node, self.scope.text)
        if function in CALLABLE:
            return self._scalar(function, node, depth)
        if function in FORMS:
            hint = "aggregates belong in SELECT and HAVING"
            refuse("HDL-105", f"the aggregate {function} cannot stand here", hint, node)
        refuse_unknown(node, self.scope.text)


def is_between_times(node: exp.Expr, sides: Sequence[Typed]) -> bool:
    """Return whether an expression is a time less another one."""
    return type(node) is exp.Sub and {type_ for _, type_ in sides} <= {DATE, TIMESTAMP}


def between_times(sides: Sequence[Typed], node: exp.Expr) -> Typed:
    """A time less another one: the days between two dates, else seconds, with their fraction."""
    if all(type_ == DATE for _, type_ in sides):
        return typed_call("time_diff", sides[::-1], node, (Literal("day", STRING),))
    passed = typed_call("time_diff", sides[::-1], node, (Literal("microsecond", STRING),))
    return typed_call("/", [passed, (Literal(1e6, DOUBLE), DOUBLE)], node)


def read_filter(tree: exp.Select, scope: Scope) -> Expression | None:
    """The condition of WHERE, and those of inner joins, in normal form."""
    clause = tree.args.get("where")
    if clause is None and not scope.conditions:
        return None
    return filter_of([] if clause is None else [clause.this], scope)


def filter_of(nodes: Sequence[exp.Expr], scope: Scope) -> Expression | None:
    """The conditions of a WHERE and of inner joins, all of them, as one in normal form; None if it always holds."""
    conditions: list[Expression] = list(scope.conditions)
    for node in nodes:
        condition, type_ = ExpressionReader(scope, scope.column).read(node)
        if type_ not in (BOOLEAN, NULL):
            refuse("HDL-203", f"WHERE needs a condition, not {type_}", "compare it", node)
        conditions.append(settled(condition, BOOLEAN))
    return normal(conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions)), scope.schema)


_NULL_AS = {
    **dict.fromkeys(("+", "-", "*", "/", "neg", "abs", "mod", "sqrt", "ln", "exp", "power"), DOUBLE),
    **dict.fromkeys(("round", "floor", "ceil", "sin", "cos", "asin"), DOUBLE),
    **dict.fromkeys(("like", "lower", "upper", "length", "concat", "trim", "ltrim", "rtrim", "substring"), STRING),
    **dict.fromkeys(("split_part", "replace", "regexp_like", "to_date", "to_timestamp"), STRING),
    **dict.fromkeys(("date_trunc", "date_part", "at_zone", "time_diff"), TIMESTAMP),
}
"""Types of NULL in calls where no other argument has one."""

_DATE = Literal("date", STRING)

_OF_TEXTS = {name for name, type_ in _NULL_AS.items() if type_ == STRING}


def typed_call(name: str, arguments: Sequence[Typed], node: exp.Expr, constants: Sequence[Literal] = ()) -> Typed:
    """A call with its type. NULLs and date strings get the type of the other arguments."""
    if name in ("date_trunc", "date_part"):
        # a date that is written as a text
        arguments = [*arguments, *([(Literal(None, TIMESTAMP), TIMESTAMP)] if arguments[0][1] == STRING else ())]
    values = alike(arguments, _NULL_AS.get(name, BOOLEAN), node, always=STRING if name in _OF_TEXTS else None)
    count = 1 if name in ("date_trunc", "date_part") else len(values)
    return called(name, [*values[:count], *((constant, constant.type) for constant in constants)], node)


def alike(arguments: Sequence[Typed], default: Type, node: exp.Expr, always: Type | None = None) -> list[Typed]:
    """Give values of one context a common type: NULLs the type of the first value that has one (``always``: this type),
    texts next to times become times.
    """
    known = [type_ for _, type_ in arguments if type_ != NULL]
    null_type = always or (known[0] if known else default)
    moments = [type_ for type_ in known if type_.name in ("date", "timestamp")]
    values = []
    try:
        for value, type_ in arguments:
            if type_ == NULL:
                value, type_ = settled(value, null_type), null_type
            elif type_ == STRING and isinstance(value, Literal) and moments and value.value is not None:
                value = moment(value.value, moments[0])
                type_ = value.type
            values.append((value, type_))
        return values
    except HeddleError as error:
        raise Refused.of(error, place_of(node)) from None


def called(name: str, arguments: Sequence[Typed], node: exp.Expr) -> Typed:
    """A call with its type."""
    call = Call(name, tuple(value for value, _ in arguments))
    try:
        return call, call_type(name, [type_ for _, type_ in arguments], call.arguments)
    except HeddleError as error:
        raise Refused.of(error, place_of(node)) from None


def settled(value: Expression, type: Type) -> Expression:
    """The value, with a NULL of no type given one."""
    return Literal(None, type) if isinstance(value, Literal) and value.type == NULL else value


def _text_of(node: exp.Expr, what: str) -> str:
    if type(node) is not exp.Literal or not node.is_string:
        refuse("HDL-240", f"{what} takes a quoted name of a time zone", "write 'Europe/Berlin'", node)
    return str(node.this)


def _literal(node: exp.Expr) -> Literal:
    try:
        if type(node) is exp.Null:
            return Literal(None, NULL)
        if type(node) is exp.Boolean:
            return Literal(bool(node.this), BOOLEAN)
        if type(node) is exp.Literal:
            return Literal(node.this, STRING) if node.is_string else number(node.this)
    except HeddleError as error:
        raise Refused.of(error, place_of(node)) from None
    refuse_unknown(node, "")


def _cast_literal(inner: exp.Expr, to: exp.Expr) -> Literal | None:
    """The literal that a cast of one writes; None where it is to be cast."""
    target = to.this
    if type(inner) is not exp.Literal:
        return None
    if target in MOMENTS:
        return moment(inner.this, MOMENTS[target]) if inner.is_string else None
    if target == exp.DType.DOUBLE and not inner.is_string:
        return Literal(float(number(inner.this).value), DOUBLE)
    if target == exp.DType.BIGINT and not inner.is_string and inner.this.isdigit():
        return number(inner.this)
    # 2.5BD arrives as a text beside the type that just holds it
    if target == exp.DType.DECIMAL and inner.is_string and _DIGITS.fullmatch(inner.this):
        literal = number(inner.this)
        digits = (literal.type.digits or literal.type.precision, literal.type.scale)
        return literal if target_name(to) == f"decimal({digits[0]},{digits[1]})" else None
    return None
