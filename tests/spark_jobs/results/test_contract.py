"""A data contract says of queries' tables what is so, in the form of the Open Data Contract Standard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.results import contract as module
from spark_jobs.results.connect import connect
from spark_jobs.results.contract import contract
from tests.sizes import examples
from tests.spark_jobs.results.odcs import accepted, table_of
from tests.spark_jobs.results.stored import BY_TEXT, WHOLE, Stored, row, store, worlds


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    owned = replace(BY_TEXT, owner="ops", text="SELECT 1 -- from https://me:hunter2@host/x")
    return store(tmp_path / "w", [([owned, WHOLE], [row(BY_TEXT, n, n, "A") for n in range(3)])])


@given(steps=worlds())
@settings(max_examples=examples(10))
def test_the_standard_accepts_contracts_of_every_type(steps: Any) -> None:
    with TemporaryDirectory() as folder:
        stored = store(Path(folder), steps)
        data = accepted(contract(stored.warehouse, ["q", "Other.query-1"]))
        for name, view in (("q", "q"), ("Other.query-1", '"Other.query-1"')):
            columns = connect(stored.warehouse).sql(f"SELECT * FROM {view}").columns
            assert [each["name"] for each in table_of(data, name)["properties"]] == columns


def test_it_says_what_is_never_null_what_is_unique_and_how_old_answers_become(stored: Stored) -> None:
    data = accepted(contract(stored.warehouse, ["by.text"]))
    table = table_of(data, "by.text")
    assert data["team"] == {"name": "ops"} and data["name"] == "by.text"
    assert {each["name"] for each in table["properties"] if each["required"]} == {
        "window_start",
        "window_end",
        "revision",
    }
    unique = table["quality"][0]
    assert unique["arguments"]["properties"] == ["window_start", "window_end", "who"]
    columns = ", ".join(unique["arguments"]["properties"])
    repeated = f'SELECT 1 FROM "by.text" GROUP BY {columns} HAVING count(*) > 1'
    assert connect(stored.warehouse).sql(repeated).fetchall() == []
    levels = {level["property"]: (level["value"], level["unit"]) for level in data["slaProperties"]}
    assert levels == {"frequency": (1, "hour"), "latency": (0, "day"), "freshness": (1, "hour")}


def test_no_secret_is_in_it(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    described = table_of(accepted(contract(stored.warehouse, ["by.text"])), "by.text")["description"]
    assert described.startswith("SELECT") and "hunter2" not in described
    monkeypatch.setattr(module, "_place_of", lambda warehouse: "s3://key:secret@bucket/w", raising=True)
    data = accepted(contract(stored.warehouse, ["by.text"]))
    (server,) = data["servers"]
    assert server["type"] == "s3" and "secret" not in server["location"]


def test_a_contract_is_the_same_until_something_changes(stored: Stored) -> None:
    assert contract(stored.warehouse, ["by.text"]) == contract(stored.warehouse, ["by.text"])


def test_a_query_that_no_plan_knows_is_refused(stored: Stored) -> None:
    with pytest.raises(HeddleError, match="HDL-507"):
        contract(stored.warehouse, ["nope"])
