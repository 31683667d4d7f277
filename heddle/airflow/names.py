"""Names of Heddle's DAGs and pages in Airflow. Needs no Airflow: the command line imports it."""

from __future__ import annotations

import re

NAMES = ("refresh_sharing_plan", "aggregate_windows", "repair_results", "maintain_warehouse", "land_topics")
"""The DAGs, without a prefix."""

PAGES = "/sharing-plan"
"""Where Airflow has Heddle's pages."""

PREFIX = r"[a-z][a-z0-9_]{0,49}"
"""A prefix: it is part of DAG ids, URIs and addresses of pages."""


def check_prefix(prefix: str) -> None:
    """Raise HDL-584 for a text that is no prefix; "" is none, and fine."""
    if prefix and not re.fullmatch(PREFIX, prefix, re.ASCII):
        raise wrong_argument(
            f"the prefix is {prefix[:100]!r}", "a small letter, then small letters, digits and `_`, at most 50"
        )


def wrong_argument(message: str, hint: str) -> Exception:
    """The error (HDL-584) of an argument of a DAG file."""
    from optimizer.errors.diagnostics import HeddleError

    return HeddleError("HDL-584", message, hint)


def pages_address(prefix: str) -> str:
    """The address of the pages of the DAGs with a prefix, in Airflow."""
    return f"{PAGES}/in/{prefix}" if prefix else PAGES
