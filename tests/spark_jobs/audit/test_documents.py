"""Expectations in words, as the page of an audit has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spark_jobs.audit.checks.data_docs import document


class Expectation:
    """One of Great Expectations' that counts how often it is put in words."""

    def __init__(self, column: str, batch: str, success: bool = True) -> None:
        kwargs = {"batch_id": batch, "column": column}
        self.expectation_config = SimpleNamespace(type="not_null", kwargs=kwargs, rendered_content=None)
        self.result = {"observed_value": 1}
        self.success = success
        self.rendered_content: Any = None
        self.renderings = 0

    def render(self) -> None:
        self.renderings += 1
        self.rendered_content = f"{self.expectation_config.kwargs['column']} is not null"


def test_expectations_that_differ_only_in_their_batch_share_words() -> None:
    checks = [Expectation("ts", "1"), Expectation("key", "1"), Expectation("ts", "2"), Expectation("ts", "2", False)]
    result = SimpleNamespace(results=checks, to_json_dict=lambda: {"success": True})
    assert document(result, {"run": "r"}) == {"format": 1, "facts": {"run": "r"}, "result": {"success": True}}
    words = ["ts is not null", "key is not null", "ts is not null", "ts is not null"]
    assert [check.rendered_content for check in checks] == words
    assert [check.renderings for check in checks] == [1, 1, 0, 1]
