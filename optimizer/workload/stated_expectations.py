"""Expectations of a stream as ``streams.yaml`` states them: sentences, or mappings of a column and what is expected.

They are texts until the columns of the stream are known (:func:`optimizer.language.expectations.with_expectations`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import yaml

from optimizer.workload.expectations import BLOCK, Expectation

MOST_STATED = 64
"""Expectations of one stream."""

STATED_KEYS = ("column", "between", "in", "matches", "not_null", "is_number", "unique", "mostly", "where", "severity")
"""Keys of an expectation that is written as a mapping."""

_SENTENCE = re.compile(r"\s*(?:\(\s*(\w*)\s*\)\s*)?(.*?)\s*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class BadNode(Exception):
    """A finding at a node; ends the reading of one stream or, inside a stream, of one key."""

    def __init__(self, code: str, message: str, hint: str, node: yaml.Node) -> None:
        super().__init__(message)
        self.code, self.message, self.hint, self.node = code, message, hint, node


def _not_stated(message: str, hint: str, node: yaml.Node) -> BadNode:
    """Refusal of a node that should be an expectation."""
    return BadNode("HDL-260", message, hint, node)


def stated(node: yaml.Node) -> tuple[Expectation, ...]:
    """The expectations of a node, unread: with their texts, severities and places. Raises BadNode (HDL-260)."""
    if not isinstance(node, yaml.SequenceNode) or not 0 < len(node.value) <= MOST_STATED:
        message = f"expect is a list of 1 to {MOST_STATED} expectations"
        raise _not_stated(message, "expect: [price between 0 and 1000000 mostly 0.999]", node)
    return tuple(map(_stated, node.value))


def _stated(node: yaml.Node) -> Expectation:
    place = node.start_mark.line + 1, node.start_mark.column + 1
    if isinstance(node, yaml.ScalarNode):
        match = _SENTENCE.fullmatch(str(node.value))
        assert match is not None
        return Expectation(match[2], (match[1] or BLOCK).lower(), at=place)
    if not isinstance(node, yaml.MappingNode):
        raise _not_stated("an expectation is a sentence or a mapping", "price is not null", node)
    values: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value not in STATED_KEYS or key.value in values:
            raise _not_stated("an expectation has another key, or one twice", ", ".join(STATED_KEYS), key)
        values[key.value] = value
    checks = [name for name in _WRITTEN if name in values]
    if "column" not in values or len(checks) != 1:
        raise _not_stated("an expectation is of one column and has one check", ", ".join(_WRITTEN), node)
    text = f"{_name(values['column'])} {_WRITTEN[checks[0]](values[checks[0]])}"
    text += f" mostly {_scalar(values['mostly'])}" if "mostly" in values else ""
    text += f" where {_scalar(values['where'])}" if "where" in values else ""
    severity = _scalar(values["severity"]).lower() if "severity" in values else BLOCK
    return Expectation(text, severity, at=place)


def _scalar(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _not_stated("this is one value", "a number or a text", node)
    return str(node.value)


def _name(node: yaml.Node) -> str:
    return "`" + _scalar(node).replace("`", "``") + "`"


def _value(node: yaml.Node) -> str:
    """A value as the grammar has it: what YAML writes plainly and reads as a number is one."""
    text = _scalar(node)
    if getattr(node, "style", None) is None and (_NUMBER.fullmatch(text) or text.lower() in ("true", "false")):
        return text
    return _quoted(node)


def _list(node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode):
        raise _not_stated("this is a list of values", "[0, 1]", node)
    return list(node.value)


def _between(node: yaml.Node) -> str:
    bounds = _list(node)
    if len(bounds) != 2:
        raise _not_stated("between has two bounds", "between: [0, 1]", node)
    low, high = (None if _scalar(each).lower() in ("", "null", "~") else _value(each) for each in bounds)
    if low is None and high is None:
        raise _not_stated("between has a bound", "between: [0, 1]", node)
    if low is None or high is None:
        return f">= {low}" if low is not None else f"<= {high}"
    return f"between {low} and {high}"


def _true(words: str) -> Callable[[yaml.Node], str]:
    def write(node: yaml.Node) -> str:
        if _scalar(node).lower() != "true":
            raise _not_stated("this is true, or left out", "true", node)
        return words

    return write


_WRITTEN: Mapping[str, Callable[[yaml.Node], str]] = {
    "between": _between,
    "in": lambda node: f"in ({', '.join(map(_value, _list(node)))})",
    "matches": lambda node: f"matches {_quoted(node)}",
    "not_null": _true("is not null"),
    "is_number": _true("is a number"),
    "unique": _true("is unique"),
}


def _quoted(node: yaml.Node) -> str:
    return "'" + _scalar(node).replace("\\", "\\\\").replace("'", "\\'") + "'"
