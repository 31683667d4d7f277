"""Requests that the API answers, refuses and survives: tokens, parameters, bodies, cursors, headers."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fastapi.testclient import TestClient
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from heddle.api.cursors import Cursor, signing_key
from heddle.api.requests import wants_arrow
from heddle.api.tokens import configured_token
from heddle.cli.serve import check_host
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted
from spark_jobs.results.newest import NewestCache
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.heddle.api.api_client import ARROW, arrow_table, client_of, next_page
from tests.sizes import examples

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with three published intervals."""
    folder = tmp_path_factory.mktemp("served")
    with tarfile.open(Path(__file__).parents[2] / "fixtures" / "warehouse_0_1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "warehouse"


@pytest.fixture(scope="module")
def client(house: Path) -> Iterator[TestClient]:
    yield client_of(house)


# ------------------------------------------------------------------------------------------------ refusals
REFUSED = [
    ("answers/by_symbl", 404, "HDL-507", "did you mean by_symbol?"),
    ("answers/..", 404, None, ""),
    ("answers/..%2f..%2fheddle.json", 404, None, ""),
    ("answers/%00", 404, "HDL-507", ""),
    ("answers/%0d%0aSet-Cookie:%20a=b", 404, None, ""),
    (f"answers/{'q' * 5000}", 404, "HDL-507", ""),
    ("answers/by_symbol?symbl=A", 400, "HDL-630", "did you mean symbol?"),
    ("answers/by_symbol?n=1.5", 400, "HDL-630", "whole number"),
    ("answers/by_symbol?n=9223372036854775808", 400, "HDL-630", "64 bits"),
    ("answers/by_symbol?n=", 400, "HDL-630", "whole number"),
    ("answers/by_symbol?mean=1e999", 400, "HDL-630", "a number"),
    ("answers/by_symbol?window_end=soon", 400, "HDL-630", "an instant"),
    ("answers/by_symbol?since=soon", 400, "HDL-114", "2013-07-01T00:00:00"),
    ("answers/by_symbol?since=2013-07-01&since=2013-07-02", 400, "HDL-630", "once"),
    ("answers/by_symbol?limit=0", 400, "HDL-630", "100,000"),
    ("answers/by_symbol?limit=100001", 400, "HDL-630", "100,000"),
    (f"answers/by_symbol?limit={'9' * 4000}", 400, "HDL-630", "100,000"),
    ("answers/by_symbol?limit=1e3", 400, "HDL-630", "100,000"),
    ("answers/by_symbol?cursor=", 400, "HDL-631", "next"),
    ("answers/by_symbol?cursor=AAAA", 400, "HDL-631", "next"),
    (f"answers/by_symbol?cursor={'A' * 9000}", 400, "HDL-631", "next"),
    ("answers/by_symbol/latest?n=3", 400, "HDL-630", "symbol"),
    ("answers/by_symbol/latest?limit=3", 400, "HDL-630", "symbol"),
    ("answers/spread/latest?symbol=A", 400, "HDL-630", "no group columns"),
    ("queries?owner=me", 400, "HDL-630", "leave it out"),
    ("nothing", 404, "HDL-630", "openapi.json"),
]


@pytest.mark.parametrize(("path", "status", "code", "hint"), REFUSED, ids=[path[:50] for path, *_ in REFUSED])
def test_what_cannot_be_answered_is_refused_with_its_code(
    client: TestClient, path: str, status: int, code: str | None, hint: str
) -> None:
    refused = client.get(path)
    assert refused.status_code == status, refused.text
    if code is not None:
        problem = refused.json()
        assert refused.headers["content-type"] == "application/problem+json"
        assert problem["code"] == code and problem["status"] == status and hint in problem["hint"]
    assert len(refused.text) < (2000 if code is not None else 20_000) and "set-cookie" not in refused.headers
    assert "no-store" in refused.headers.get("cache-control", "no-store")


BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"[]", 400),
    (b'{"keys": 1}', 400),
    (b'{"keys": [], "more": 1}', 400),
    (b'{"keys": [1]}', 400),
    (b'{"keys": [{}]}', 400),
    (b'{"keys": [{"symbol": "A", "n": 1}]}', 400),
    (b'{"keys": [{"symbol": 1}]}', 400),
    (b'{"keys": [{"symbol": ["A"]}]}', 400),
    (b'{"keys": [{"symbol": "\\ud800"}]}', 400),
    (b'{"keys": [{"symbol": NaN}]}', 400),
    (b'{"keys": ' + b"[" * 100_000, 400),
    (b'{"keys": [' + b"9" * 10_000 + b"]}", 400),
    (b"\xff\xfe", 400),
    (json.dumps({"keys": [{"symbol": "A"}] * 1001}).encode(), 400),
    (json.dumps({"keys": [{"symbol": "A" * 2_000_000}]}).encode(), 413),
]


@pytest.mark.parametrize(("body", "status"), BODIES, ids=[str(body[:30]) for body, _ in BODIES])
def test_a_body_is_json_of_known_columns_within_limits(client: TestClient, body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    refused = client.post("answers/by_symbol/latest", content=body, headers=headers)
    assert refused.status_code == status and refused.json()["code"] == "HDL-630", refused.text
    assert len(refused.text) < 1500


def test_a_body_in_another_form_is_refused(client: TestClient) -> None:
    for media in (ARROW, "text/plain", "application/x-www-form-urlencoded", ""):
        refused = client.post("answers/by_symbol/latest", content=b'{"keys": []}', headers={"Content-Type": media})
        assert refused.status_code == 415 and refused.json()["code"] == "HDL-630"


def test_nothing_can_be_written(client: TestClient) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for path in ("answers/by_symbol", "queries", *(["answers/by_symbol/latest"] if method != "POST" else [])):
            refused = client.request(method, path, json={})
            assert refused.status_code == 405 and refused.headers["allow"], (method, path)


def test_no_other_origin_is_permitted(client: TestClient) -> None:
    headers = {"Origin": "https://evil.example"}
    for answer in (client.get("answers/by_symbol", headers=headers), client.get("queries", headers=headers)):
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "private, no-cache" and answer.headers["etag"]
    preflight = client.options("answers/by_symbol", headers=headers | {"Access-Control-Request-Method": "GET"})
    assert preflight.status_code == 405 and "access-control-allow-origin" not in preflight.headers
    assert client.get("answers/by_symbol", headers={"Host": "evil.example"}).status_code == 400


def test_a_link_repeats_parameters_as_parameters(client: TestClient) -> None:
    """Whatever a value is, it neither ends the header nor begins another."""
    values = ["A", 'x>; rel="next", <http://evil.example', "a\r\nSet-Cookie: b=c", "ü", "a&limit=9"]
    page = client.get("answers/by_symbol", params=[("limit", 1), *(("symbol", value) for value in values)])
    assert page.status_code == 200 and "set-cookie" not in page.headers
    assert list(page.links) == ["next"] and page.headers["link"].isascii()
    again = next_page(client, page)
    assert again.status_code == 200 and {row["symbol"] for row in again.json()["rows"]} == {"A"}


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
@settings(max_examples=examples(50), phases=(Phase.explicit, Phase.generate))
def test_a_cursor_that_was_not_given_is_refused(content: bytes) -> None:
    key = signing_key(TOKEN, "table")
    for text in (content.decode("latin-1"), base64.urlsafe_b64encode(content).decode().rstrip("=")):
        with pytest.raises(HeddleError, match="HDL-631"):
            Cursor.of(text, key)


def test_a_cursor_is_of_one_token_table_and_listing(client: TestClient) -> None:
    cursor = Cursor(3, "definition", "request", -5, 7)
    key = signing_key(TOKEN, "table")
    text = cursor.text(key)
    assert Cursor.of(text, key) == cursor
    for other in (signing_key("", "table"), signing_key(TOKEN, "another")):
        with pytest.raises(HeddleError, match="HDL-631"):
            Cursor.of(text, other)
    for place in range(len(text)):
        changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        # the last character has bits that stand for nothing
        if base64.urlsafe_b64decode(changed + "==") != base64.urlsafe_b64decode(text + "=="):
            with pytest.raises(HeddleError, match="HDL-631"):
                Cursor.of(changed, key)
    given_cursor = client.get("answers/by_symbol?limit=1").json()["next"]
    for path in ("by_symbol?symbol=A&cursor=", "by_symbol?since=2013-07-01&cursor=", "wide?cursor="):
        assert client.get(f"answers/{path}{given_cursor}").json()["code"] == "HDL-631"
    assert client.get(f"answers/by_symbol?limit=3&cursor={given_cursor}").status_code == 200


# ------------------------------------------------------------------------------------------------ tokens
def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(token: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'me:{token}'.encode()).decode()}"}


@pytest.mark.parametrize("path", ["/api/v1/queries", "/api/v1/openapi.json", "/answers", "/nothing", "/api/v1/nothing"])
def test_with_a_token_every_path_asks_for_it(house: Path, path: str) -> None:
    guarded = client_of(house, TOKEN)
    base = "http://elsewhere.example"
    for headers in ({}, bearer(TOKEN[:-1]), bearer(""), basic("x"), bearer(TOKEN + "x"), {"Authorization": TOKEN}):
        refused = guarded.get(base + path, headers=headers)
        assert refused.status_code == 401 and "HDL-633" in refused.text and TOKEN not in refused.text
        assert refused.headers["www-authenticate"].startswith("Bearer" if path.startswith("/api/") else "Basic")
    twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")]
    assert guarded.get(base + path, headers=twice).status_code == 401
    broken = guarded.get(base + path, headers={"Authorization": "Basic *"})
    assert broken.status_code == 401
    for headers in (bearer(TOKEN), basic(TOKEN)):
        assert guarded.get(base + path, headers=headers).status_code == (404 if "nothing" in path else 200)


def test_a_token_is_of_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured_token() == ""
    with pytest.raises(HeddleError, match="HDL-572"):
        check_host("0.0.0.0", "")
    check_host("0.0.0.0", TOKEN)
    file = tmp_path / "mounted"
    monkeypatch.setenv("HEDDLE_SERVE_TOKEN_FILE", str(file))
    with pytest.raises(HeddleError, match="HDL-634"):
        configured_token()
    file.write_text(f"{TOKEN}-of-a-file\n")
    assert configured_token() == f"{TOKEN}-of-a-file" and TOKEN not in redacted(f"it is {TOKEN}-of-a-file")
    monkeypatch.setenv("HEDDLE_SERVE_TOKEN", TOKEN)
    assert configured_token() == TOKEN
    for wrong in ("short", "has a space in it, which is odd", "ü" * 20, "x" * 513):
        monkeypatch.setenv("HEDDLE_SERVE_TOKEN", wrong)
        with pytest.raises(HeddleError, match="HDL-634") as raised:
            configured_token()
        assert wrong not in str(raised.value)


# ------------------------------------------------------------------------------------------------ answers
@pytest.mark.parametrize(
    ("accept", "is_arrow"),
    [
        (None, False), ("*/*", False), ("application/json", False), (ARROW, True), (f"{ARROW}, */*;q=0.5", True),
        (f"application/json, {ARROW};q=0.2", False), ("application/*", False), (f"{ARROW.upper()};v=1", True),
    ],
)  # fmt: skip
def test_the_form_is_the_one_that_is_accepted(accept: str | None, is_arrow: bool) -> None:
    assert wants_arrow(accept) == is_arrow


@pytest.mark.parametrize("accept", ["text/html", f"{ARROW};q=0", "application/json;q=x", ""])
def test_other_forms_are_refused(client: TestClient, accept: str) -> None:
    refused = client.get("answers/by_symbol", headers={"Accept": accept})
    assert refused.status_code == (406 if accept else 200), refused.text


def test_the_document_describes_every_answer(client: TestClient) -> None:
    document = client.get("openapi.json").json()
    assert document["paths"].keys() == {"/queries", "/answers/{query}", "/answers/{query}/latest"}

    def check(answer: Any, path: str, method: str = "get") -> None:
        described = document["paths"][path][method]["responses"][str(answer.status_code)]["content"]
        media = answer.headers["content-type"]
        schema = described[media]["schema"] | {"components": document["components"]}
        jsonschema.validate(answer.json(), schema, jsonschema.Draft202012Validator)

    queries = client.get("queries")
    check(queries, "/queries")
    for query in queries.json()["queries"]:
        name = query["query"]
        listed = client.get(f"answers/{name}")
        check(listed, "/answers/{query}")
        assert all(list(row) == [each["name"] for each in query["columns"]] for row in listed.json()["rows"])
        newest = client.get(f"answers/{name}/latest")
        check(newest, "/answers/{query}/latest")
        groups = [each["name"] for each in query["columns"] if each["role"] == "group"]
        keys = [{name: row[name] for name in groups} for row in newest.json()["rows"]] + [dict.fromkeys(groups)]
        check(client.post(f"answers/{name}/latest", json={"keys": keys}), "/answers/{query}/latest", "post")
        arrow = client.get(f"answers/{name}", headers={"Accept": ARROW})
        assert arrow.headers["content-type"] == ARROW
        assert arrow_table(arrow.content).schema.metadata[b"heddle.query"] == name.encode()
    check(client.get("answers/nobody"), "/answers/{query}")
    check(client.get("answers/by_symbol?n=x"), "/answers/{query}")
    check(client.post("answers/by_symbol/latest", json={}), "/answers/{query}/latest", "post")


def test_newest_answers_that_do_not_fit_the_memory_are_refused(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_SERVE_MEMORY", "100")
    small = client_of(house)
    refused = small.get("answers/by_symbol/latest")
    assert refused.status_code == 503 and refused.json()["code"] == "HDL-901"
    assert "HEDDLE_SERVE_MEMORY" in refused.json()["hint"]
    assert small.get("answers/spread/latest").status_code == 200


def test_the_least_recently_asked_for_is_dropped(house: Path) -> None:
    from heddle.api.service import AnswerService

    service = AnswerService(lambda: str(house), "", 300)
    cache: NewestCache = service._newest
    opened = service._opened()
    sizes = {name: cache.load(opened.version, opened.snapshot(name)).size for name in ("spread", "orders", "wide")}
    assert sum(sizes.values()) > 200
    cache = NewestCache(sizes["spread"] + sizes["orders"] + sizes["wide"] - 1)
    for name in ("spread", "orders", "spread", "wide"):
        cache.load(opened.version, opened.snapshot(name))
    assert cache.cached("orders", opened.version) is None
    assert cache.cached("spread", opened.version) and cache.cached("wide", opened.version)
    later = opened.version[0], opened.version[1] + 1, opened.version[2]
    assert cache.cached("spread", later) is None
    # another version with the same files has the same answers
    again = cache.load(later, opened.snapshot("spread"))
    assert again is cache.cached("spread", later)


def test_a_warehouse_that_is_not_there_is_said(tmp_path: Path) -> None:
    missing = client_of(tmp_path / "nothing").get("queries")
    assert missing.status_code == 404 and missing.json()["code"] == "HDL-502"
    Warehouse.open(tmp_path / "empty")
    assert client_of(tmp_path / "empty").get("queries").json() == {"queries": []}
    unknown = client_of(tmp_path / "empty").get("answers/any")
    assert unknown.status_code == 404 and "heddle run" in unknown.json()["hint"]
