"""Normal form of filters: which are equal, which imply or exclude each other, how many shards they can make.

A filter passes the tuples for which it is TRUE, so two questions with two answers each replace three-valued logic:
where is a condition TRUE, and where is it FALSE. Applied down to the leaves they leave AND and OR over *atoms*:
"this subject's value is in this set" (null may be). A set is a sorted tuple of *cuts*, the points where its
intervals start and end in turn. All types but string are numbered by integers in their order (doubles by their
bits: one zero, NaN last), and every string has a next one. So half-open intervals express exactly
``= != < <= > >= IN BETWEEN`` and ``LIKE 'x%'``: ``a > 3``, ``a >= 4`` and ``a > 3.5`` are one set of integers.
Comparing two expressions makes a subject with the values -1, 0, 1. Atoms of one subject join as sets, parts that
others imply are dropped, and sets are written out again.

Filters with equal normal forms pass the same tuples. The converse holds for comparisons of one column with
constants, but not if AND would have to be multiplied out over OR or arithmetic be solved: equal filters may count
as two.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from operator import add, mul, neg, sub
from typing import Any

from optimizer.workload.expression import EPOCH, FUNCTIONS, exact_literal, type_of
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, Call, Column, Expression, Literal, Type

MANY_PARTS = 64
"""An AND or OR of more parts than this is not searched for parts that others imply (quadratic)."""

Schema = Mapping[str, Type]
Filter = Expression | None
Cut = tuple[Any, ...]  # (ordinal,), or () before all values
Cuts = tuple[Cut, ...]
_ALL, _YES, _NO = ((),), ((1,),), ((), (1,))
_DAY, _INFINITY = 86_400_000_000, 0x7FF0 << 48
_SIGN = "sign of the difference"
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NOT_STRICT = ("and", "or", *(name for name, function in FUNCTIONS.items() if function.null in ("choice", "own")))
_CONDITIONS = ("and", "or", "not", "is_null", "in", "like", *_FLIPPED)
_FOLDED: dict[str, Callable[..., Any]] = {"+": add, "-": sub, "*": mul, "neg": neg, "abs": abs}


# --------------------------------------------------------------------------------------------- formulas
@dataclass(frozen=True)
class _Atom:
    """The value of ``subject`` is in the set of ``cuts``, or it is null and ``null`` is true."""

    subject: Expression
    cuts: Cuts
    null: bool = False

    @cached_property
    def facts(self) -> list[_Atom]:
        """Atoms that hold wherever this one does: itself; what it reads is not null; how a pattern begins."""
        read = _columns(self.subject, but=_NOT_STRICT)
        atoms = [self, *(_Atom(Column(name), _ALL) for name in read if not self.null)]
        if isinstance(self.subject, Call) and self.subject.function == "like" and not self.null and self.cuts == _YES:
            atoms.append(_Atom(self.subject.arguments[0], _beginning(_cut_pattern(self.subject.arguments[1])[0])))
        return atoms


@dataclass(frozen=True)
class _Join:
    """``kind`` ("and" or "or") of two parts or more; of none: holds always or never."""

    kind: str
    parts: tuple[_Formula, ...]


_Formula = _Atom | _Join
_TRUE, _FALSE = _Join("and", ()), _Join("or", ())


def _columns(of: _Formula | Expression, but: tuple[str, ...] = ()) -> list[str]:
    """Columns that a formula or expression reads, but not inside calls of these functions."""
    if isinstance(of, Column):
        return [of.name]
    inner = of.parts if isinstance(of, _Join) else [of.subject] if isinstance(of, _Atom) else ()
    arguments = of.arguments if isinstance(of, Call) and of.function not in but else ()
    return [name for part in (*inner, *arguments) for name in _columns(part, but)]


def _opposite(formula: _Formula) -> _Formula:
    """Holds exactly where the formula does not."""
    if isinstance(formula, _Atom):
        return _Atom(formula.subject, _outside(formula.cuts), not formula.null)
    return _Join("or" if formula.kind == "and" else "and", tuple(map(_opposite, formula.parts)))


@lru_cache(1 << 14)
def _exclude(p: _Formula, q: _Formula) -> bool:
    """Return whether two formulas certainly never hold together."""
    if isinstance(p, _Atom) and isinstance(q, _Atom):
        pairs = [(fact, two) for fact in p.facts for two in q.facts if fact.subject == two.subject]
        return any(_merged("and", pair)[1:] == ((), False) for pair in pairs)
    sides = [(join, two) for join, two in ((p, q), (q, p)) if isinstance(join, _Join)]
    for join, two in sides:
        if join.kind == "or":
            return all(_exclude(part, two) for part in join.parts)
    return any(_exclude(part, two) for join, two in sides for part in join.parts)


# ----------------------------------------------------------------------------------------- sets of values
def _outside(cuts: Cuts) -> Cuts:
    return cuts[1:] if cuts[:1] == _ALL else _ALL + cuts


def _merged(kind: str, atoms: Sequence[_Atom]) -> tuple[Expression, Cuts, bool]:
    """Intersection ("and") or union ("or") of atoms of one subject, field by field."""
    steps: Counter[Cut] = Counter()
    for atom in atoms:
        for index, cut in enumerate(atom.cuts):
            steps[cut] += -1 if index % 2 else 1
    cuts, depth, least = [], 0, len(atoms) if kind == "and" else 1
    for cut in sorted(steps):
        before, depth = depth, depth + steps[cut]
        if (before >= least) != (depth >= least):
            cuts.append(cut)
    return atoms[0].subject, tuple(cuts), (all if kind == "and" else any)(atom.null for atom in atoms)


def _limits(type: Type) -> tuple[Any, Any]:
    """Least and greatest ordinal of a type; strings have no greatest."""
    fixed = {"boolean": (0, 1), "double": (-_INFINITY, _INFINITY + 1), "date": (-(2**31), 2**31 - 1), "string": ("", 0)}
    most = 10 ** (type.precision or type.digits or 19) - 1
    exact = (-most, most) if type.name == "decimal" else (max(-most, -(2**63)), min(most, 2**63 - 1))
    return fixed.get(type.name, exact)


def _ordinal(value: float) -> int:
    size: int = _INFINITY + 1 if math.isnan(value) else struct.unpack("<q", struct.pack("<d", abs(value)))[0]
    return -size if value < 0 else size


def _place(literal: Literal, type: Type) -> tuple[Any, Any]:
    """The first ordinal of a type whose value is not below the literal, and the first that is above it."""
    value = literal.value
    if type == STRING:
        return value, value + "\0"
    if type in (DATE, TIMESTAMP):
        instant = (date.fromisoformat(value) - EPOCH.date()).days * _DAY if literal.type == DATE else value
        value = Fraction(instant, _DAY if type == DATE else 1)
    elif type == DOUBLE:
        value = _ordinal(float(value))
    elif literal.type == DOUBLE:
        # exact numbers meet doubles as their nearest double: that keeps their order, so bisection finds the place
        return _first(_ordinal(value), type), _first(_ordinal(value) + 1, type)
    else:
        value = Fraction(value) * 10**type.scale
    return math.ceil(value), math.floor(value) + 1


def _first(target: int, type: Type) -> int:
    low, beyond = _limits(type)[0], _limits(type)[1] + 1
    while low < beyond:
        middle = (low + beyond) // 2
        low, beyond = (low, middle) if _ordinal(middle / 10**type.scale) >= target else (middle + 1, beyond)
    return int(low)


def _compared(name: str, at: Cut, after: Cut) -> Cuts:
    """The set of what compares so with the values from ``at`` until ``after``."""
    ends: dict[str, Cuts] = {"=": (at, after), "<": ((), at), "<=": ((), after), ">": (after,), ">=": (at,)}
    return tuple(sorted(cut for cut, times in Counter(ends.get(name, ((), at, after))).items() if times % 2))


def _cuts(name: str, literal: Literal, type: Type) -> Cuts:
    """The values of a type that compare so with a literal that is not null."""
    (low, high), ends = _limits(type), _place(literal, type)
    at, after = (() if end <= low else (end,) if type == STRING else (min(end, high + 1),) for end in ends)
    return tuple(cut for cut in _compared(name, at, after) if type == STRING or cut != (high + 1,))


def _cut_pattern(pattern: Any) -> tuple[str, str]:
    """The text that all matches of a LIKE pattern begin with, and the rest of the pattern."""
    plain = re.sub(r"(?s)^((?:\\.|[^\\%_])*).*", r"\1", pattern.value)
    return re.sub(r"(?s)\\(.)", r"\1", plain), pattern.value[len(plain) :]


def _beginning(prefix: str) -> Cuts:
    """The strings that begin so: from the prefix until it is followed by one with a higher last character."""
    stem = prefix.rstrip("\U0010ffff")
    beyond = [] if not stem else [(stem[:-1] + ("\ue000" if stem[-1] == "\ud7ff" else chr(ord(stem[-1]) + 1)),)]
    return ((prefix,) if prefix else (), *beyond)


# ---------------------------------------------------------------------------------------------- reading
@dataclass(frozen=True)
class _Reader:
    """Reads conditions over columns of these types as formulas in normal form, and writes such formulas."""

    schema: Schema
    known: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """Cache of what was read: conditions inside values are requested again at every level that contains them."""

    def truth(self, condition: Filter, wanted: bool = True) -> _Formula:
        """Formula that holds where a condition is TRUE (``wanted``) or where it is FALSE."""
        key = (condition, wanted)
        if key not in self.known:
            self.known[key] = self._truth(condition, wanted)
        formula: _Formula = self.known[key]
        return formula

    def _truth(self, condition: Filter, wanted: bool) -> _Formula:
        if not isinstance(condition, Call):
            return _TRUE if condition is None else self.atom(condition, _YES if wanted else _NO)
        name, arguments = condition.function, condition.arguments
        if name in ("and", "or"):
            return self.join("and" if (name == "and") == wanted else "or", [self.truth(p, wanted) for p in arguments])
        if name == "not":
            return self.truth(arguments[0], not wanted)
        if name == "is_null":
            return self.nullness(arguments[0], wanted)
        subject, *operands = map(self.tidy, arguments)
        if name in _FLIPPED:
            return self.comparison(name, subject, operands[0], wanted)
        cuts: Cuts = _YES
        if name == "in":
            type = type_of(subject, self.schema)
            items = [item for item in operands if isinstance(item, Literal) and item.value is not None]
            # beside a null in the list nothing is known to be absent
            if not items or not wanted and len(items) < len(operands):
                return _FALSE
            cuts = _merged("or", [_Atom(subject, _cuts("=", item, type)) for item in items])[1]
        elif name == "like":
            prefix, remainder = _cut_pattern(operands[0])
            if remainder.strip("%"):
                return _Atom(Call(name, (subject, operands[0])), _YES if wanted else _NO)
            cuts = _beginning(prefix) if remainder else _cuts("=", Literal(prefix, STRING), STRING)
        else:
            subject = self.tidy(condition)
        return self.atom(subject, cuts if wanted else _outside(cuts))

    def comparison(self, name: str, left: Expression, right: Expression, wanted: bool) -> _Formula:
        if None in (getattr(left, "value", 0), getattr(right, "value", 0)):
            return _FALSE
        if left == right and not isinstance(left, Literal):
            return self.nullness(left, False) if (name in ("=", "<=", ">=")) == wanted else _FALSE
        if isinstance(left, Literal) or not isinstance(right, Literal) and repr(right) < repr(left):
            left, right, name = right, left, _FLIPPED[name]
        if isinstance(right, Literal):
            cuts = _cuts(name, right, type_of(left, self.schema))
        else:
            left, cuts = Call(_SIGN, (left, right)), _compared(name, (0,), (1,))
        return self.atom(left, cuts if wanted else _outside(cuts))

    def nullness(self, value: Expression, wanted: bool) -> _Formula:
        """Formula that holds where an expression is null (``wanted``) or where it is not."""
        if isinstance(value, Literal) or isinstance(value, Call) and value.function == "is_null":
            return _TRUE if (getattr(value, "value", 0) is None) == wanted else _FALSE
        name, arguments = (value.function, value.arguments) if isinstance(value, Call) else ("", ())
        kind = FUNCTIONS[name].null if name in FUNCTIONS else "strict"
        opaque = name in ("", "and", "or", "if") or kind == "partial"
        if opaque or name == "in" and any(getattr(item, "value", 0) is None for item in arguments):
            tidied = self.tidy(value)
            return self.nullness(tidied, wanted) if tidied != value else _Atom(value, () if wanted else _ALL, wanted)
        parts = [self.nullness(argument, wanted) for argument in arguments]
        if name == "/":
            parts.append(self.comparison("=", self.tidy(arguments[1]), Literal(0.0, DOUBLE), wanted))
        return self.join("or" if (kind != "choice") == wanted else "and", parts)

    def atom(self, subject: Expression, cuts: Cuts, null: bool = False) -> _Formula:
        """Formula for a subject in a set, in terms of its arguments if that is equivalent."""
        if cuts in ((), _ALL):
            is_constant = null == (cuts == _ALL)
            return (_TRUE if null else _FALSE) if is_constant else self.nullness(subject, null)
        if isinstance(subject, Literal):
            place = () if subject.value is None else (_place(subject, subject.type)[0],)
            return _TRUE if place and sum(cut <= place for cut in cuts) % 2 else _FALSE
        if isinstance(subject, Call) and null:
            return self.join("or", [self.atom(subject, cuts), self.nullness(subject, True)])
        if isinstance(subject, Call) and subject.function in _CONDITIONS:
            return self.truth(subject, cuts == _YES)
        return _Atom(subject, cuts, null)

    def join(self, kind: str, parts: Iterable[_Formula]) -> _Formula:
        """AND or OR of formulas in normal form."""
        flat: dict[_Formula, None] = {}
        for part in parts:
            flat |= dict.fromkeys(part.parts if isinstance(part, _Join) and part.kind == kind else (part,))
        alike: dict[Expression, list[_Atom]] = {}
        for part in flat:
            if isinstance(part, _Atom):
                alike.setdefault(part.subject, []).append(part)
        if any(len(atoms) > 1 for atoms in alike.values()):
            joins = [part for part in flat if isinstance(part, _Join)]
            return self.join(kind, [*(self.atom(*_merged(kind, atoms)) for atoms in alike.values()), *joins])
        if (absorbing := _FALSE if kind == "and" else _TRUE) in flat:
            return absorbing
        remaining = sorted(flat, key=repr)
        for part in tuple(remaining) if len(remaining) <= MANY_PARTS else ():
            other_parts = [other for other in remaining if other != part]
            against = _opposite(part) if kind == "and" else part
            if any(_exclude(other if kind == "and" else _opposite(other), against) for other in other_parts):
                remaining = other_parts
            elif kind == "and":
                # alternatives that the other parts exclude
                alternatives = part.parts if isinstance(part, _Join) else (part,)
                open = [option for option in alternatives if not any(_exclude(option, other) for other in other_parts)]
                if len(open) < len(alternatives):
                    return self.join("and", [*other_parts, self.join("or", open)])
        return remaining[0] if len(remaining) == 1 else _Join(kind, tuple(remaining))

    def tidy(self, value: Expression) -> Expression:
        """The same value, with the operands of + and * sorted and arithmetic on literals done."""
        if not isinstance(value, Call):
            return value
        if value not in self.known:
            self.known[value] = self._tidied(value)
        tidied: Expression = self.known[value]
        return tidied

    def _tidied(self, value: Call) -> Expression:
        name, arguments = value.function, tuple(map(self.tidy, value.arguments))
        if name == "if":
            return self.conditional(arguments)
        numbers = [item.value for item in arguments if isinstance(item, Literal) and item.value is not None]
        if name in _FOLDED and len(numbers) == len(arguments):
            type = type_of(value, self.schema)
            result = _FOLDED[name](*map(float if type == DOUBLE else Fraction, numbers))
            return _literal(_ordinal(result) if type == DOUBLE else int(result * 10**type.scale), type)
        return Call(name, tuple(sorted(arguments, key=repr)) if name in ("+", "*") else arguments)

    def conditional(self, arguments: Sequence[Expression]) -> Expression:
        """An ``if`` with its conditions in normal form, without the values behind those that never or always hold."""
        cases, last = list[Expression](), arguments[-1]
        for condition, value in zip(arguments[:-1:2], arguments[1::2], strict=True):
            formula = self.truth(condition)
            if formula == _TRUE:
                last = value
                break
            if formula != _FALSE:
                cases += [self.write(formula), value]
        short = Call("if", (*cases, last)) if cases else last
        if type_of(short, self.schema) == type_of(Call("if", tuple(arguments)), self.schema):
            return short
        # what is left out gives the value its type
        forms = [self.write(self.truth(condition)) for condition in arguments[:-1:2]]
        pairs = zip(forms, arguments[1::2], strict=True)
        return Call("if", (*(part for pair in pairs for part in pair), arguments[-1]))

    def write(self, formula: _Formula) -> Expression:
        """The condition that is TRUE exactly where a formula holds."""
        if isinstance(formula, _Join):
            return _call(formula.kind, map(self.write, formula.parts))
        subject, cuts, conditions = formula.subject, formula.cuts, list[Expression]()
        if cuts == _ALL:
            conditions = [Call("not", (Call("is_null", (subject,)),))]
        elif isinstance(subject, Call) and subject.function == _SIGN:
            conditions = [Call(name, subject.arguments) for name in _FLIPPED if _compared(name, (0,), (1,)) == cuts]
        elif type_of(subject, self.schema) != BOOLEAN:
            conditions = _write_set(subject, type_of(subject, self.schema), cuts)
        elif cuts:
            conditions = [subject if cuts == _YES else Call("not", (subject,))]
        return _call("or", [*conditions, *([Call("is_null", (subject,))] if formula.null else [])])


# ---------------------------------------------------------------------------------------------- writing
def _call(kind: str, parts: Iterable[Expression]) -> Expression:
    """AND or OR of conditions, none of them such a call itself."""
    lists = (part.arguments if isinstance(part, Call) and part.function == kind else (part,) for part in parts)
    flat = tuple(argument for arguments in lists for argument in arguments)
    return flat[0] if len(flat) == 1 else Call(kind, flat) if flat else Literal(kind == "and", BOOLEAN)


def _singles(cuts: Cuts, type: Type) -> dict[Cut, Literal]:
    """The values that are intervals by themselves, by the intervals' starts."""
    firsts = {low: low[0] if low else _limits(type)[0] for low in cuts[::2]}
    spans = zip(firsts.items(), cuts[1::2], strict=False)
    return {low: _literal(at, type) for (low, at), high in spans if high == (at + ("\0" if type == STRING else 1),)}


def _write_set(subject: Expression, type: Type, cuts: Cuts) -> list[Expression]:
    """Conditions for all single values and for each longer interval, or for the values outside if they are single."""
    singles, missing = _singles(cuts, type), _singles(_outside(cuts), type)
    if 2 * len(missing) >= len(_outside(cuts)):
        condition = Call("!=" if len(missing) == 1 else "in", (subject, *missing.values()))
        return [condition if len(missing) == 1 else Call("not", (condition,))]
    name = "=" if len(singles) == 1 else "in"
    conditions: list[Expression] = [Call(name, (subject, *singles.values()))] if singles else []
    for low, high in zip(cuts[::2], [*cuts[1::2], ()], strict=False):
        if type == STRING and low and (low, high) == _beginning(low[0]):
            pattern = re.sub(r"([\\%_])", r"\\\1", low[0]) + "%"
            conditions.append(Call("like", (subject, Literal(pattern, STRING))))
        elif low not in singles:
            bounds = [_bound(subject, type, low[0], ">=", ">")] if low else []
            conditions.append(_call("and", [*bounds, *([_bound(subject, type, high[0], "<", "<=")] if high else [])]))
    return conditions


def _bound(subject: Expression, type: Type, cut: Any, at: str, before: str) -> Call:
    """A comparison with the value at the cut or with the one before it, whichever is the rounder number."""
    options = {at: _literal(cut, type)}
    if type != STRING or cut.endswith("\0"):
        options[before] = _literal(cut[:-1] if type == STRING else cut - 1, type)
    texts = {name: str(literal.value).rstrip("0") for name, literal in options.items()}
    # NaN is not equal to itself in Python, and not every reader of dates takes timestamps beyond their range
    bad = [name for name, literal in options.items() if texts[name] == "nan" or literal.type == TIMESTAMP != type]
    name = min(texts, key=lambda name: (name in bad, 2 * len(texts[name]) - texts[name].endswith("5")))
    return Call(name, (subject, options[name]))


def _literal(ordinal: Any, type: Type) -> Literal:
    if type == DOUBLE:
        return Literal(math.copysign(struct.unpack("<d", struct.pack("<q", abs(ordinal)))[0], ordinal), DOUBLE)
    # before the year 1 and after 9999 only a timestamp can be written
    if type == DATE and not 1 <= (day := ordinal + EPOCH.toordinal()) <= date.max.toordinal():
        return Literal(ordinal * _DAY, TIMESTAMP)
    if type in (STRING, DATE, TIMESTAMP):
        return Literal(date.fromordinal(day).isoformat() if type == DATE else ordinal, type)
    scale = type.scale
    while scale and ordinal % 10 == 0:
        ordinal, scale = ordinal // 10, scale - 1
    # by its digits, as Decimal's arithmetic would round to 28 of them
    return exact_literal(Decimal((int(ordinal < 0), tuple(map(int, str(abs(ordinal)))), -scale)))


# ----------------------------------------------------------------------------------------------- answers
def normal(filter: Filter, schema: Schema) -> Filter:
    """The normal form of a well-typed filter over columns of these types: TRUE for exactly the same tuples.

    ``None`` (no filter) if it is recognized as always TRUE, ``Literal(False)`` if never. It is its own normal form.
    It serves as a filter only, not inside other expressions: where the filter is null, it may be FALSE, and
    conversely.
    """
    reader = _Reader(schema)
    formula = reader.truth(filter)
    return None if formula == _TRUE else reader.write(formula)


def tidied(value: Expression, schema: Schema) -> Expression:
    """The same value of any type, with operands in a fixed order and conditions inside in normal form."""
    return _Reader(schema).tidy(value)
