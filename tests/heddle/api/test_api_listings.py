"""Listings and newest answers through the API, compared with plain Python over what the Python reader returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from heddle.api.app import build_api
from spark_jobs.results import snapshot
from spark_jobs.results.read import read
from spark_jobs.results.relations import relation
from tests.heddle.api.api_client import ARROW, arrow_table, equals, parameter, plain_rows, python_rows
from tests.sizes import examples
from tests.spark_jobs.results.stored import HOUR, NOON, store, worlds

ROOT = {"place": ""}
CLIENT = TestClient(build_api(lambda: ROOT["place"], "", 64 << 20))
"""Made once: that takes longer than most requests."""

QUERIES = ("q", "Other.query-1")


@pytest.fixture(autouse=True)
def _spans_are_short() -> Iterator[None]:
    """Few rows are read at once, so that pages begin and end within spans and at their ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "ROWS_AT_ONCE", 2)
        patch.setattr(snapshot, "MOST_SCANNED", 6)
        yield


def listed(
    query: str, parameters: Sequence[tuple[str, Any]], limits: Sequence[int]
) -> tuple[list[Any], list[pa.Table]]:
    """The rows of all pages in JSON, and the tables of the same pages in Arrow. Page n has the n-th limit, in turn."""
    rows, tables, cursor = list[Any](), list[pa.Table](), None
    for number in range(200):
        own = [*parameters, ("limit", limits[number % len(limits)])] + ([("cursor", cursor)] if cursor else [])
        page = CLIENT.get(f"/answers/{query}", params=own)
        assert page.status_code == 200, page.text
        content = page.json()
        assert len(content["rows"]) <= limits[number % len(limits)]
        rows += content["rows"]
        arrow = CLIENT.get(f"/answers/{query}", params=own, headers={"Accept": ARROW})
        tables.append(arrow_table(arrow.content))
        assert ("next" in page.links) == ("next" in arrow.links) == (content["next"] is not None)
        cursor = content["next"]
        if cursor is None:
            return rows, tables
    raise AssertionError("the listing does not end")


@pytest.mark.reduced
@given(steps=worlds(), data=st.data())
@settings(max_examples=examples(8, slow=25), phases=(Phase.explicit, Phase.generate))
def test_listings_are_what_plain_python_chooses_of_read_answers(steps: Any, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        warehouse = store(Path(folder), steps).warehouse
        ROOT["place"] = folder
        for query in QUERIES:
            hours = st.none() | st.integers(-2, 44).map(lambda hour: NOON + hour * HOUR)
            since, until = data.draw(hours), data.draw(hours)
            answers = read(warehouse, query, since, until, full=True)
            expected = answers.to_pylist()
            parameters: list[tuple[str, Any]] = []
            for name, moment in (("since", since), ("until", until)):
                if moment is not None:
                    parameters.append((name, parameter(pa.scalar(moment, pa.timestamp("us", "UTC")).as_py())))
            values = [(name, value) for row in expected for name, value in row.items() if value is not None]
            for name, value in data.draw(st.lists(st.sampled_from(values), max_size=2)) if values else []:
                parameters.append((name, parameter(value)))
            compared: dict[str, list[str]] = {}
            for name, text in parameters:
                if name not in ("since", "until"):
                    compared.setdefault(name, []).append(text)
            chosen = [
                number
                for number, row in enumerate(expected)
                if all(
                    any(equals(row[name], value) for value in _values(values, name, texts))
                    for name, texts in compared.items()
                )
            ]
            rows, tables = listed(query, parameters, data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
            wanted = python_rows(answers.take(pa.array(chosen, pa.int64())))
            found = plain_rows(rows, answers.schema)
            assert python_rows(pa.concat_tables(tables)) == found
            assert sorted(found) == sorted(wanted)
            if len({query.window for queries, _ in steps for query in queries}) == 1:
                assert found == wanted


def _values(values: Sequence[tuple[str, Any]], name: str, texts: Sequence[str]) -> list[Any]:
    """The values that some parameters stand for."""
    return [value for known, value in values if known == name and parameter(value) in texts]


@pytest.mark.reduced
@given(steps=worlds(), data=st.data())
@settings(max_examples=examples(8, slow=25), phases=(Phase.explicit, Phase.generate))
def test_the_newest_answers_are_those_of_read_answers(steps: Any, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        warehouse = store(Path(folder), steps).warehouse
        ROOT["place"] = folder
        for query in QUERIES:
            answers = read(warehouse, query, full=True)
            groups = relation(warehouse, query).named("group")
            newest: dict[str, list[tuple[Any, str]]] = {}
            for row, text in zip(answers.to_pylist(), python_rows(answers), strict=True):
                at = row["window_end"], row.get("position") or 0
                newest.setdefault(repr([row[name] for name in groups]), []).append((at, text))
            rows = CLIENT.get(f"/answers/{query}/latest").json()["rows"]
            found = dict(zip(plain_rows(rows, answers.schema), rows, strict=True))
            assert len(found) == len(newest)
            # generated rows may be twice for a window and a group; then either may be returned
            for of_group in newest.values():
                last = max(at for at, _ in of_group)
                assert any(text in found for at, text in of_group if at == last)
            keys = [{name: row[name] for name in groups} for row in found.values()]
            unknown = dict.fromkeys(groups)
            body = {"keys": [*keys, unknown, *keys[:1]]}
            by_key = CLIENT.post(f"/answers/{query}/latest", json=body)
            assert by_key.status_code == 200, by_key.text
            answered = list(found.values())
            of_nulls = next((row for row in answered if all(row[name] is None for name in groups)), None)
            assert by_key.json()["rows"] == [*answered, of_nulls, *answered[:1]]
            arrow = CLIENT.post(f"/answers/{query}/latest", json=body, headers={"Accept": ARROW})
            table = arrow_table(arrow.content)
            nothing = dict.fromkeys(answers.column_names)
            assert python_rows(table) == plain_rows([row or nothing for row in by_key.json()["rows"]], answers.schema)
