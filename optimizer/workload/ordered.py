"""Values in an order, as one number or text each: so any multiset of them, combined in any way, has the order again.

``time_while`` keeps twice the microseconds of an event, one more where its condition holds. ``last_k``, ``string_agg``
and ``rate`` keep a text: the place of the event in the order, in digits of one length, before the value.
"""

from __future__ import annotations

from optimizer.workload.expression import exact_literal
from optimizer.workload.values import DATE, LONG, STRING, TIMESTAMP, Call, Column, Expression, Literal, Type

TIME_DIGITS, KEY_DIGITS = 19, 20
"""Digits of a time, and of a key that ORDER BY names."""

_KEYED = "k"
"""The first character of texts with a key."""

DISTINCT = "d"
"""The first character of texts that count once, without any place."""

_TIMES_FROM, _KEYS_FROM = exact_literal(2 * 10**18), exact_literal(2 * 10**19)
"""Added to times and keys, so that all have as many digits, also before 1970 and below 0."""


def state_in_time(condition: Expression, time: str) -> Expression:
    """Twice the microseconds of an event, one more where the condition holds: a long, of a condition that is null the
    same as of one that does not hold."""
    holds = Call("if", (condition, exact_literal(1), exact_literal(0)))
    doubled = Call("*", (_microseconds(Column(time), TIMESTAMP), exact_literal(2)))
    return Call("cast", (Call("+", (doubled, holds)), Literal("long", STRING)))


def value_in_order(
    value: Expression,
    type: Type,
    time: str,
    key: tuple[Expression, Type, bool] | None = None,
    separator: str = "",
    is_distinct: bool = False,
) -> Expression:
    """A text that is less than another one where the event comes before the other one's: by the ``key`` (an integer,
    a date, a timestamp or a condition; its type; whether it descends), if there is one, then by the time, then by the
    value. The value is written at its end, after the ``separator``; null where the value or the key is.
    ``is_distinct``: each value once, in the order of the values."""
    texts = [_as_text(Call("+", (_TIMES_FROM, _microseconds(Column(time), TIMESTAMP))))]
    if key is not None:
        expression, key_type, descends = key
        place = _as_text(Call("-" if descends else "+", (_KEYS_FROM, _whole(expression, key_type))))
        texts = [Literal(_KEYED, STRING), place, *texts]
    if is_distinct:
        texts = [Literal(DISTINCT, STRING)]
    texts += [Literal(separator, STRING)] if separator else []
    return Call("concat", (*texts, value if type == STRING else _as_text(value)))


def value_at(text: str) -> str:
    """The separator and the value of a text of :func:`value_in_order`."""
    if text.startswith(DISTINCT):
        return text[len(DISTINCT) :]
    return text[len(_KEYED) + KEY_DIGITS + TIME_DIGITS :] if text.startswith(_KEYED) else text[TIME_DIGITS:]


def time_at(text: str) -> int:
    """The time of a text of :func:`value_in_order` without a key, in microseconds since some moment."""
    return int(text[:TIME_DIGITS])


def is_ordered_by(type: Type) -> bool:
    """Return whether ORDER BY inside an aggregate takes values of a type."""
    return type in (DATE, TIMESTAMP) or type.name in ("long", "boolean")


def _whole(key: Expression, type: Type) -> Expression:
    if type.name == "boolean":
        return Call("if", (Call("is_null", (key,)), Literal(None, LONG), key, exact_literal(1), exact_literal(0)))
    return key if type.name == "long" else _microseconds(key, type)


def _microseconds(moment: Expression, type: Type) -> Expression:
    if type == DATE:
        moment = Call("cast", (moment, Literal("timestamp", STRING)))
    return Call("time_diff", (Literal(0, TIMESTAMP), moment, Literal("microsecond", STRING)))


def _as_text(value: Expression) -> Expression:
    return Call("cast", (value, Literal("string", STRING)))
