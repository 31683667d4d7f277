"""A canary for every test of hostile text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.guard import Canary, canary_in


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    with canary_in(tmp_path) as planted_canary:
        yield planted_canary
