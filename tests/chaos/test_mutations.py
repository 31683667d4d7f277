"""Each safeguard that is taken out is noticed. ``make chaos`` takes out all and prints who noticed; `make test` few."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.conftest import Counted
from tests.chaos.mutations import MUTATIONS, WITNESSES, noticed
from tests.chaos.world import template

FEW = ("no lock", "no fencing", "commits on top of anything")
"""Those of `make test`."""

FORMER = (
    "killed while registering",
    "dead beside another",
    "dead over another",
    "committed in between",
    "noted by another meanwhile",
    "single windows",
    "allocated in between",
)
"""Witnesses of what once went wrong."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return template(tmp_path_factory.mktemp("mutations"), crowded=True)


@pytest.mark.parametrize(
    "mutation", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in MUTATIONS]
)
def test_a_safeguard_that_is_taken_out_is_noticed(places: tuple[Path, Path], mutation: str, counted: Counted) -> None:
    notice = noticed(mutation, places)
    assert notice is not None, f"nobody noticed {mutation}"
    counted("safeguards taken out, and noticed")
    print(f"{mutation} | {notice[0]} | {notice[1][:120]}")


@pytest.mark.parametrize(
    "witness",
    [
        name if name in FORMER else pytest.param(name, marks=pytest.mark.slow)
        for name in WITNESSES
        if not name.startswith("ordering")
    ],
)
def test_nobody_notices_what_is_not_there(places: tuple[Path, Path], witness: str) -> None:
    WITNESSES[witness](places)
