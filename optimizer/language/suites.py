"""Reads suites of Great Expectations 1.x, as JSON, into sentences of our own grammar.

Only core classes over columns are read, and only if a sentence means the same. Everything else is refused by its name:
SQL, custom classes, actions, conditions of pandas. So a suite never brings code or a query to an engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from optimizer.errors.diagnostics import printable
from optimizer.language.refusals import Refused, shown_text

SUITE_BYTES = 1 << 20
"""Largest suite that is read."""

Kwargs = Mapping[str, Any]

_SEVERITIES = {"critical": "block", "warning": "warn", "info": "warn"}
"""Severities of Great Expectations, as ours; without one an expectation is critical."""

_IGNORED = frozenset(
    ("meta", "notes", "id", "description", "rendered_content", "severity", "windows", "batch_id", "catch_exceptions")
) | {"result_format", "type", "kwargs", "success_on_last_run", "expectation_context"}
"""Keys that change no verdict."""

_MISSING = "either_value_is_missing"


def suite_sentences(name: str, file: str) -> Iterator[tuple[str, str]]:
    """The sentences of a suite with their severities. ``name``: of its file, relative to the workload file ``file``.

    Raises Refused: HDL-263, with the class that cannot be read.
    """
    suite = _loaded(name, file)
    if not isinstance(suite, dict) or not isinstance(suite.get("expectations"), list):
        hint = "export it with `suite.to_json_dict()`"
        raise _refused(name, "is no suite of Great Expectations 1.x: it has no list `expectations`", hint)
    for key in suite:
        if key not in ("name", "expectations", "suite_parameters", "great_expectations_version", *_IGNORED):
            raise _refused(name, f"has {shown_text(str(key))}, which Heddle does not run", "attach the suite alone")
    for number, each in enumerate(suite["expectations"], 1):
        if not isinstance(each, dict) or "expectation_type" in each or not isinstance(each.get("kwargs"), dict):
            raise _refused(name, f"expectation {number} is not written as GX 1.x does", "save it with GX 1.x")
        severity = _SEVERITIES.get(str(each.get("severity", "critical")))
        if severity is None:
            message = f"expectation {number} ({each.get('type')}) has no severity of GX"
            raise _refused(name, message, "critical, warning or info")
        for sentence in _sentences(name, str(each.get("type")), each["kwargs"]):
            yield sentence, severity


def _loaded(name: str, file: str) -> Any:
    """The content of a suite's file, which has to lie with the workload file."""
    if not name or not file or file == "stdin":
        raise Refused("HDL-263", "a suite is a file next to the workload file", "-- expect suite: suites/rates.json")
    folder, path = Path(file).parent.resolve(), Path(name)
    place = (folder / path).resolve()
    if path.is_absolute() or not place.is_relative_to(folder) or place.suffix != ".json":
        hint = "name a .json file in the folder of the workload file, or below it"
        raise _refused(name, "lies outside the folder of the workload file, or is no .json file", hint)
    try:
        if not place.is_file() or place.stat().st_size > SUITE_BYTES:
            raise _refused(name, f"does not exist, or is larger than {SUITE_BYTES} bytes", "check the path")
        return json.loads(place.read_bytes(), parse_float=Decimal)
    except OSError as error:
        raise _refused(name, f"cannot be read: {error.strerror}", "check the path") from None
    except (ValueError, RecursionError):
        raise _refused(name, "is not JSON", "export it with `suite.to_json_dict()`") from None


def _refused(name: str, message: str, hint: str) -> Refused:
    return Refused("HDL-263", f"suite {shown_text(name)}: {printable(message, 300)}", hint)


def _sentences(name: str, type_: str, kwargs: Kwargs) -> Iterator[str]:
    """The sentences that mean the same as one expectation of Great Expectations."""
    form = _FORMS.get(type_)
    if form is None:
        raise _refused(name, f"{shown_text(type_)} is not read", "core classes over columns are: see docs/language.md")
    known, write = form
    for key, value in kwargs.items():
        if key not in known and key not in _IGNORED and value not in (None, False):
            raise _refused(
                name, f"{type_} with {shown_text(str(key))} is not read", "write it as `-- expect: … where …`"
            )
    try:
        yield from write(kwargs)
    except (KeyError, TypeError, ValueError) as error:
        raise _refused(name, f"{type_} cannot be read: {type(error).__name__} {error}", "check its kwargs") from None


def _column(kwargs: Kwargs, key: str = "column") -> str:
    return _name(kwargs[key])


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError("a column is named by text")
    return "`" + name.replace("`", "``") + "`"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, Decimal)):
        return f"{Decimal(value):f}"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    raise TypeError("a value is a number, a text or a boolean")


def _mostly(kwargs: Kwargs) -> str:
    share = kwargs.get("mostly")
    if share is None or (not isinstance(share, bool) and Decimal(share) == 1):
        return ""
    return f" mostly {_value(share)}"


def _ranges(subject: str, kwargs: Kwargs) -> Iterator[str]:
    """A range as one sentence, or two if a bound itself is outside."""
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    above, below = bool(kwargs.get("strict_min")), bool(kwargs.get("strict_max"))
    if low is None and high is None:
        raise ValueError("it has neither min_value nor max_value")
    share = _mostly(kwargs)
    if low is not None and high is not None and not (above or below):
        yield f"{subject} between {_value(low)} and {_value(high)}{share}"
        return
    if low is not None and high is not None and share:
        raise ValueError("two strict bounds with mostly are two expectations")
    if low is not None:
        yield f"{subject} {'>' if above else '>='} {_value(low)}{share}"
    if high is not None:
        yield f"{subject} {'<' if below else '<='} {_value(high)}{share}"


def _statistic(function: str, kwargs: Kwargs) -> Iterator[str]:
    return _ranges(f"{function}({_column(kwargs)})", kwargs)


def _in_set(kwargs: Kwargs) -> Iterator[str]:
    values = kwargs["value_set"]
    if not isinstance(values, list) or not values:
        raise TypeError("value_set is a list of values")
    yield f"{_column(kwargs)} in ({', '.join(map(_value, values))}){_mostly(kwargs)}"


def _pair(kwargs: Kwargs, comparison: str) -> Iterator[str]:
    if kwargs.get("ignore_row_if") != _MISSING:
        raise ValueError(f"ignore_row_if has to be {_MISSING}: a null is compared with nothing")
    yield f"{_column(kwargs, 'column_A')} {comparison} {_column(kwargs, 'column_B')}{_mostly(kwargs)}"


def _together(kwargs: Kwargs) -> Iterator[str]:
    yield f"({', '.join(map(_name, kwargs['column_list']))}) is unique{_mostly(kwargs)}"


_RANGE = ("min_value", "max_value", "strict_min", "strict_max")
_PAIRS = ("column_A", "column_B", "mostly", "ignore_row_if")

_FORMS: dict[str, tuple[tuple[str, ...], Callable[[Kwargs], Iterator[str]]]] = {
    "expect_column_values_to_be_between": (
        ("column", "mostly", *_RANGE),
        lambda kwargs: _ranges(_column(kwargs), kwargs),
    ),
    "expect_column_values_to_not_be_null": (
        ("column", "mostly"),
        lambda kwargs: iter([f"{_column(kwargs)} is not null{_mostly(kwargs)}"]),
    ),
    "expect_column_values_to_be_in_set": (("column", "mostly", "value_set"), _in_set),
    "expect_column_values_to_match_regex": (
        ("column", "mostly", "regex"),
        lambda kwargs: iter([f"{_column(kwargs)} matches {_value(kwargs['regex'])}{_mostly(kwargs)}"]),
    ),
    "expect_column_values_to_be_unique": (
        ("column", "mostly"),
        lambda kwargs: iter([f"{_column(kwargs)} is unique{_mostly(kwargs)}"]),
    ),
    "expect_compound_columns_to_be_unique": (("column_list", "mostly"), _together),
    "expect_column_pair_values_a_to_be_greater_than_b": (
        (*_PAIRS, "or_equal"),
        lambda kwargs: _pair(kwargs, ">=" if kwargs.get("or_equal") else ">"),
    ),
    "expect_column_pair_values_to_be_equal": (_PAIRS, lambda kwargs: _pair(kwargs, "=")),
    **{
        f"expect_column_{words}_to_be_between": (("column", *_RANGE), partial(_statistic, function))
        for function, words in (
            *((name, name) for name in ("mean", "median", "min", "max", "sum", "stdev")),
            ("distinct", "unique_value_count"),
        )
    },
    "expect_table_row_count_to_be_between": (_RANGE, lambda kwargs: _ranges("rows", kwargs)),
    "expect_table_row_count_to_equal": (("value",), lambda kwargs: iter([f"rows = {_value(kwargs['value'])}"])),
}
"""The classes that are read: their arguments, and how they are written as sentences."""
