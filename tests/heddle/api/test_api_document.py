"""The examples of docs/api.md: commands print what is shown, sessions of Python return it."""

from __future__ import annotations

import doctest
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.heddle.api.api_client import serving

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/api.md").read_text()
ADDRESS = "127.0.0.1:8765"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page, with the address of a server of the fixture."""
    folder = tmp_path_factory.mktemp("document")
    with tarfile.open(ROOT / "tests/fixtures/warehouse_0_1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    with serving(folder / "warehouse") as (host, port):
        yield PAGE.replace(ADDRESS, f"{host}:{port}")


def test_commands_print_what_is_shown(page: str) -> None:
    blocks = re.findall(r"(?ms)^```sh\n(curl -s '?http://127.*?)^```\n(?:\n```text\n(.*?)^```\n)?", page)
    assert len(blocks) >= 4
    for command, shown in blocks:
        done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == shown.strip() if shown else done.stdout.startswith('{"query": "by_symbol"'), (
            command
        )


def test_sessions_of_python_return_what_is_shown(page: str) -> None:
    session = doctest.DocTestParser().get_doctest(page.replace("```", ""), {}, "docs/api.md", None, 0)
    output: list[str] = []
    done = doctest.DocTestRunner().run(session, out=output.append)
    assert done.attempted >= 5 and not done.failed, "".join(output)
