"""Data Docs: Great Expectations' expectations of a run's answers, and the outcome, on one of our pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

from heddle.pages.render import render
from optimizer.errors.diagnostics import Diagnostic
from optimizer.errors.redaction import redacted

EXAMPLES_SHOWN = 20
"""Unexpected values of one expectation."""

TABLE_LEVEL = "Table-Level Expectations"


@dataclass(frozen=True)
class Expectation:
    """One expectation in Great Expectations' words, and the observed value.

    ``unexpected``: the number of unexpected values, in words; ``examples``: such values with their numbers;
    ``raised``: the reason why it could not be checked.
    """

    is_met: bool
    text: str
    observed: str
    unexpected: str
    examples: Sequence[tuple[str, str]]
    raised: str


@dataclass(frozen=True)
class Validation:
    """A validation result: its suite and run as (name, value)s, and its expectations by column."""

    is_met: bool
    overview: Sequence[tuple[str, str]]
    columns: Sequence[tuple[str, Sequence[Expectation]]]


def page(document: Mapping[str, Any]) -> str:
    """The page of a stored result (:func:`spark_jobs.audit.checks.data_docs.document`). If it cannot be shown, the
    page gives the reason.
    """
    facts = document.get("facts")
    problem, validation = document.get("problem"), None
    if problem is None:
        try:
            validation = _validation(document["result"])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
    return render(
        "data_docs.html.j2",
        facts=[(str(name), str(value)) for name, value in facts.items()] if isinstance(facts, dict) else [],
        problem=Diagnostic("HDL-557", f"Great Expectations could not render this: {problem}") if problem else None,
        validation=validation,
    )


def _validation(result: Mapping[str, Any]) -> Validation:
    statistics, meta = result["statistics"], result["meta"]
    overview = [
        ("Expectation Suite", str(result["suite_name"])),
        ("Evaluated Expectations", str(statistics["evaluated_expectations"])),
        ("Successful Expectations", str(statistics["successful_expectations"])),
        ("Unsuccessful Expectations", str(statistics["unsuccessful_expectations"])),
        ("Success Percent", f"≈{statistics['success_percent'] or 0.0:.2f}%"),
        ("Great Expectations Version", str(meta["great_expectations_version"])),
        ("Run Time", str(meta["run_id"]["run_time"])),
    ]
    columns: dict[str, list[Expectation]] = {}
    for checked in result["results"]:
        column = checked["expectation_config"]["kwargs"].get("column")
        columns.setdefault(TABLE_LEVEL if column is None else str(column), []).append(_expectation(checked))
    # of the table first, then by the columns' names
    ranked = sorted(columns.items(), key=lambda item: (item[0] != TABLE_LEVEL, item[0]))
    return Validation(bool(result["success"]), overview, ranked)


def _expectation(checked: Mapping[str, Any]) -> Expectation:
    config, result = checked["expectation_config"], checked["result"]
    unexpected, examples = "", []
    if not checked["success"] and result.get("unexpected_count"):
        percent = f"{result['unexpected_percent']:.4g}% of {result['element_count']:,} total rows"
        unexpected = f"{result['unexpected_count']:,} unexpected values found. {percent}."
        counts = result.get("partial_unexpected_counts") or []
        examples = [(str(each["value"]), f"{each['count']:,}") for each in counts[:EXAMPLES_SHOWN]]
    return Expectation(
        is_met=bool(checked["success"]),
        text=_words(config, "atomic.prescriptive.summary") or str(config["type"]).replace("_", " "),
        observed=_words(checked, "atomic.diagnostic.observed_value") or str(result.get("observed_value", "--")),
        unexpected=unexpected,
        examples=examples,
        raised=_raised(checked.get("exception_info") or {}),
    )


def _words(rendered: Mapping[str, Any], name: str) -> str:
    """Great Expectations' text for something: a template whose parameters are values."""
    for part in rendered.get("rendered_content") or ():
        if part["name"] == name and "template" in part["value"]:
            values = {key: str(parameter["value"]) for key, parameter in part["value"].get("params", {}).items()}
            return Template(part["value"]["template"]).safe_substitute(values)
    return ""


def _raised(info: Mapping[str, Any]) -> str:
    """Reason why an expectation could not be checked: either one for the complete expectation, or one a metric."""
    each = [info] if "raised_exception" in info else list(info.values())
    return redacted("; ".join(str(reason["exception_message"]) for reason in each if reason["raised_exception"]))
