"""Old and new code meet one warehouse: what is read, what is refused, what an upgrade changes and says first."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.warehouse import marker
from spark_jobs.store.warehouse.schemas import COLUMNS, MARKER
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.in_process import Clock, Said, heddle, without_spark

FORMER = Path(__file__).parents[2] / "fixtures" / "warehouse_0_1.tar.xz"


@pytest.fixture
def former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A warehouse that Heddle 0.1 wrote."""
    with tarfile.open(FORMER) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "warehouse"


LOOKUP = ("lookup", "by_symbol", "--at", "2013-07-01T23:30:00")


def commanded(*arguments: str) -> Said:
    with without_spark(Clock(1_372_734_300_000_000)):
        return heddle(*arguments, "--warehouse", "warehouse")


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_warehouse_has_nothing_to_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Warehouse.open("warehouse")
    before = files(tmp_path)
    completed = commanded("upgrade", "--check")
    assert completed.code == 0 and "nothing to upgrade: this version writes the formats that are there" in completed.out
    reply = json.loads(commanded("upgrade", "--apply", "--json").out)
    assert (reply["steps"], reply["applied"]) == ([], True) and reply["written_by"] == reply["heddle"] != ""
    assert {each["then"] for each in reply["formats"]} == {"stays"} and files(tmp_path) == before


def test_a_former_warehouse_is_read_and_written_only_after_its_upgrade(former: Path) -> None:
    marked_before = (former / MARKER).read_bytes()
    # adds tables that earlier versions ignore
    Warehouse.open(former)
    before = files(former)
    assert before[MARKER] == marked_before
    checked = commanded("upgrade")
    assert checked.code == 1 and "add partials.numbers: about 2 s" in checked.out
    assert f"copy {former}/heddle.json.1 over {former}/heddle.json" in checked.err
    for reading in (("status",), ("read", "by_symbol"), ("queries",), LOOKUP, ("upgrade", "--check", "--json")):
        assert commanded(*reading).code == (1 if "upgrade" in reading else 0)
    assert files(former) == before
    refused = commanded("pause", "by_symbol")
    assert refused.code == 1 and "HDL-645" in refused.err
    assert f"heddle upgrade --check --warehouse {former}" in refused.err
    unconfirmed = commanded("upgrade", "--apply")
    assert unconfirmed.code == 2 and "HDL-646" in unconfirmed.err and "To go back" in unconfirmed.err
    assert files(former) == before
    applied = commanded("upgrade", "--apply", "--yes")
    assert applied.code == 0 and "To go back" in applied.err and "1 step done" in applied.out
    assert (former / "heddle.json.1").read_bytes() == before[MARKER]
    assert commanded("upgrade", "--check").code == 0 and commanded("pause", "by_symbol").code == 0


def marked(place: Path, **changed: Any) -> None:
    content = json.loads((place / MARKER).read_text())
    (place / MARKER).write_text(json.dumps(content | changed))


def test_the_version_that_wrote_newer_rows_is_named(tmp_path: Path) -> None:
    begun = Warehouse.open(tmp_path)
    marked(tmp_path, columns=COLUMNS + 1, breaking=COLUMNS + 1, heddle="9.8.7")
    refusal = r"(?s)HDL-503 .*was written by Heddle 9\.8\.7 .*use Heddle 9\.8\.7 here, too"
    with pytest.raises(HeddleError, match=refusal):
        Warehouse.open(tmp_path)
    # a process that began before
    with pytest.raises(HeddleError, match=refusal), begun.lease():
        pytest.fail("has the lease")


def test_what_a_newer_version_only_adds_is_ignored(tmp_path: Path) -> None:
    Warehouse.open(tmp_path)
    marked(tmp_path, columns=COLUMNS + 1, heddle="9.8.7")
    before = (tmp_path / MARKER).read_bytes()
    with Warehouse.open(tmp_path).lease() as token:
        assert token > 1
    assert (tmp_path / MARKER).read_bytes() == before


def test_columns_that_earlier_code_ignores_are_added_as_a_warehouse_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Warehouse.open(tmp_path)
    marked(tmp_path, columns=COLUMNS - 1)
    monkeypatch.setattr(marker, "BREAKING", COLUMNS - 1)
    assert not Warehouse.open(tmp_path).is_older
    assert json.loads((tmp_path / MARKER).read_text())["columns"] == COLUMNS
