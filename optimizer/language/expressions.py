"""Expressions and conditions inside WHERE and aggregates, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.nodes import call_arguments, function_name, only_argument, place_of, refuse, refuse_unknown
from optimizer.language.refusals import NULL, Refused
from optimizer.language.scope import Scope
from optimizer.language.words import BINARY, CALLABLE, FORMS, MOMENTS, SUFFIXES
from optimizer.workload.expression import call_type, moment, negated, number
from optimizer.workload.predicates import normal
from optimizer.workload.values import BOOLEAN, DOUBLE, STRING, Call, Column, Expression, Literal, Type

Typed = tuple[Expression, Type]
"""A value with its type, which is NULL's own for a NULL that nothing gave one yet."""


@dataclass(frozen=True)
class ExpressionReader:
    """Maps a tree of sqlglot's to a typed expression; ``column``: what a name stands for where the tree stands."""

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
        if kind is exp.Column:
            name, type_ = self.column(node)
            return Column(name), type_
        if kind in (exp.Literal, exp.Boolean, exp.Null, exp.TryCast, exp.Cast):
            literal = _literal(node)
            return literal, literal.type
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
        if kind in (exp.In, exp.Like, exp.Between):
            return self._predicate(node, depth)
        if kind in BINARY:
            only_argument(node, "this", "expression", "typed", "safe")
            sides = [self.read(side, depth + 1) for side in (node.this, node.expression)]
            return typed_call(BINARY[kind], sides, node)
        return self._function(node, depth)

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
            arguments = [self.read(argument, depth + 1) for argument in call_arguments(node)]
            return typed_call(function, arguments, node)
        if function in FORMS:
            hint = "aggregates belong in SELECT and HAVING"
            refuse("HDL-105", f"the aggregate {function} cannot stand here", hint, node)
        refuse_unknown(node, self.scope.text)


def read_filter(tree: exp.Select, scope: Scope) -> Expression | None:
    """The condition of WHERE in normal form."""
    where = tree.args.get("where")
    if where is None:
        return None
    condition, type_ = ExpressionReader(scope, scope.column).read(where.this)
    if type_ not in (BOOLEAN, NULL):
        refuse("HDL-203", f"WHERE needs a condition, not {type_}", "compare it", where.this)
    return normal(settled(condition, BOOLEAN), scope.schema)


def typed_call(name: str, arguments: Sequence[Typed], node: exp.Expr) -> Typed:
    """A call with its type, after giving NULLs and date strings the type of what stands by them."""
    known = [type_ for _, type_ in arguments if type_ != NULL]
    null_type = known[0] if known else DOUBLE if name in ("+", "-", "*", "/", "neg", "abs") else BOOLEAN
    if name in ("like", "lower", "upper"):
        null_type = STRING
    values, types = [], []
    try:
        moments = [type_ for type_ in known if type_.name in ("date", "timestamp")]
        for value, type_ in arguments:
            if type_ == NULL:
                value, type_ = settled(value, null_type), null_type
            elif type_ == STRING and isinstance(value, Literal) and moments:
                value = moment(value.value, moments[0])
                type_ = value.type
            values.append(value)
            types.append(type_)
        call = Call(name, tuple(values))
        return call, call_type(name, types, call.arguments)
    except HeddleError as error:
        raise Refused.of(error, place_of(node)) from None


def settled(value: Expression, type: Type) -> Expression:
    """The value, with a NULL of no type given one."""
    return Literal(None, type) if isinstance(value, Literal) and value.type == NULL else value


def _literal(node: exp.Expr) -> Literal:
    try:
        if type(node) is exp.Null:
            return Literal(None, NULL)
        if type(node) is exp.Boolean:
            return Literal(bool(node.this), BOOLEAN)
        if type(node) is exp.Literal:
            return Literal(node.this, STRING) if node.is_string else number(node.this)
        # `date '…'`, `timestamp '…'` and suffixed numbers are left: real casts were refused as tokens
        inner, target = node.this, node.args["to"].this
        if type(inner) is exp.Literal and inner.is_string and target in MOMENTS:
            return moment(inner.this, MOMENTS[target])
        if type(inner) is exp.Literal and target in SUFFIXES:
            literal = number(inner.this)
            if target == exp.DType.DOUBLE:
                return Literal(float(literal.value), DOUBLE)
            return literal
    except HeddleError as error:
        raise Refused.of(error, place_of(node)) from None
    refuse("HDL-103", "casts are not allowed", "the stream's schema fixes the types", node)
