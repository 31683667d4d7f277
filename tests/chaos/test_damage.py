"""Files that are missing, cut off or changed, in the sources and in the warehouse: told, never answered from."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.run import preparation, publication
from tests.chaos.world import World, without_audit
from tests.spark_jobs.laboratory import DAY, MINUTE, steady, table_of

BOTH = """
-- name: trades_only
SELECT symbol, count(*) AS n, sum(price) AS money FROM trades
WINDOW RANGE '20 minutes' SLIDE '20 minutes' ON ts GROUP BY symbol;
-- name: quotes_only
SELECT count(*) AS n, max(symbol) AS last, sum(price) AS money FROM quotes
WINDOW RANGE '20 minutes' SLIDE '20 minutes' ON ts;
"""


def gone(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half_written(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def without_its_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def of_zeros(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def one_bit(path: Path) -> None:
    """Among the values of the longest column: the length stays, the footer is whole."""
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    longest = max(chunks, key=lambda chunk: chunk.total_compressed_size)
    first = longest.dictionary_page_offset or longest.data_page_offset
    flip(path, first + longest.total_compressed_size - 2)


def one_bit_of_the_footer(path: Path) -> None:
    flip(path, len(path.read_bytes()) - 200)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


DAMAGES = (gone, empty, half_written, without_its_last_byte, of_zeros, one_bit, one_bit_of_the_footer)
Damage = Callable[[Path], None]
SOME = [
    damage if damage in (gone, half_written, one_bit) else pytest.param(damage, marks=pytest.mark.slow)
    for damage in DAMAGES
]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world of two streams, of which one interval is published."""
    folder = tmp_path_factory.mktemp("damage") / "world"
    folder.mkdir()
    with without_audit():
        world = World.at(folder)
        world.write(steady())
        world.write(steady(), "quotes")
        world.run(world.plan(BOTH), 0, 60, "before")
    return folder


@pytest.fixture
def world(published: Path, tmp_path: Path) -> Iterator[World]:
    """Put back where it was made: plans hold the paths of their sources."""
    backup = tmp_path / "kept"
    shutil.copytree(published, backup)
    with without_audit():
        yield World.at(published)
    shutil.rmtree(published)
    shutil.move(backup, published)


def wrong(world: World, begin: int, end: int) -> list[str]:
    world.events = dict.fromkeys(("trades", "quotes"), table_of(steady()))
    return world.wrong(1, begin, end)


def data_files(world: World, table: str) -> list[Path]:
    root = world.warehouse.root / table
    return [root / file["path"] for file in world.warehouse.files(table, "", "9")]


# ----------------------------------------------------------------------------------------------- sources
@pytest.mark.parametrize("damage", SOME[:-2])
def test_a_damaged_source_fails_its_stream_alone(world: World, damage: Damage) -> None:
    answers_before = world.rows("quotes_only")
    damage(world.source("quotes") / "first.parquet")
    record = world.run(1, 0, 120, "damaged")
    assert record.status == "published"
    [diagnostic] = record.diagnostics
    assert diagnostic["code"] == ("HDL-401" if damage is gone else "HDL-402") and "quotes" in diagnostic["message"]
    assert world.rows("quotes_only") == answers_before
    assert [line for line in wrong(world, 0, 120) if line.startswith("trades")] == []
    world.write(steady(), "quotes")
    assert world.run(1, 0, 120, "mended").diagnostics == [] and wrong(world, 0, 120) == []


@pytest.mark.parametrize("code", ["HDL-510", "HDL-542", "HDL-544"])
def test_what_is_no_sources_fault_fails_the_run(world: World, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """The lease is lost, or the disk full, while files are noted: no stream is said to be unreadable."""

    def failing(*args: object) -> None:
        raise HeddleError(code, "the warehouse cannot be written")

    answers_before = world.rows("quotes_only")
    world.write([(70.5, "A", 1.0, 1)], "quotes", "late")
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "admitted", failing)
        with pytest.raises(HeddleError, match=code):
            world.run(1, 60, 120, "failing")
    assert world.rows("quotes_only") == answers_before and len(world.warehouse.rows("publish_log")) == 2


def test_a_source_that_goes_while_it_is_read_fails_its_stream_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed whole, half of it there when it is read."""
    listed = preparation.listed

    def then_damaged(*args: object) -> object:
        listing = listed(*args)  # type: ignore[arg-type]
        half_written(world.source("quotes") / "first.parquet")
        return listing

    answers_before = world.rows("quotes_only")
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "listed", then_damaged)
        record = world.run(1, 60, 120, "damaged")
    assert [diagnostic["code"] for diagnostic in record.diagnostics] == ["HDL-402"] and world.rows(
        "quotes_only"
    ) == answers_before
    world.write(steady(), "quotes")
    # what was published without it is not taken for the whole
    assert world.run(1, 60, 120, "mended").status == "published" and wrong(world, 0, 120) == []


# --------------------------------------------------------------------------------------------- warehouse
@pytest.mark.parametrize("damage", SOME)
@pytest.mark.parametrize("which", ["first", pytest.param("last", marks=pytest.mark.slow)])
def test_damaged_partial_aggregates_are_never_answered_from(world: World, damage: Damage, which: str) -> None:
    paths = sorted(data_files(world, "partials"), key=lambda path: path.stat().st_size)
    victim = paths[0 if which == "first" else -1]
    damage(victim)
    answers_before = {name: world.rows(name) for name in ("trades_only", "quotes_only")}
    with pytest.raises(HeddleError, match="HDL-543") as raised:
        world.run(1, 0, 120, "damaged")
    assert "heddle maintain" in str(raised.value)
    assert {name: world.rows(name) for name in answers_before} == answers_before
    outcome = CliRunner().invoke(app, ["maintain", "--warehouse", str(world.warehouse.root)])
    assert outcome.exit_code == 0 and victim.name in "".join(outcome.stderr.split())
    record = world.run(1, 0, 120, "damaged")
    assert record.status == "published" and record.synopses_reused == 0
    assert wrong(world, 0, 120) == [] and maintain(world.warehouse).damaged == []


@pytest.mark.parametrize("damage", SOME)
def test_damaged_answers_are_told_and_published_again(world: World, damage: Damage) -> None:
    [victim] = data_files(world, "results")
    damage(victim)
    with pytest.raises(HeddleError, match=f"HDL-543 .*{victim.name}|HDL-543 .*CRC"):
        world.rows("trades_only")
    # a run cannot keep what else the file holds
    with pytest.raises(HeddleError, match=f"HDL-543 .*{victim.name}"):
        world.run(1, 30, 90, "damaged")
    house = str(world.warehouse.root)
    outcome = CliRunner().invoke(app, ["maintain", "--warehouse", house])
    assert outcome.exit_code == 1 and "HDL-543" in outcome.stderr
    assert "--recompute" in outcome.stderr and "--from 2013-07-01 --to 2013-07-02" in " ".join(outcome.stderr.split())
    day = 24 * 60
    assert world.run(1, 0, day, "again", recompute=True, as_of=DAY + 2 * day * MINUTE).status == "published"
    assert wrong(world, 0, day) == [] and maintain(world.warehouse).damaged == []


def newest_commit(world: World, table: str) -> Path:
    return max((world.warehouse.root / table / "_delta_log").glob("*.json"))


def without_a_log(path: Path) -> None:
    shutil.rmtree(path.parent)


def without_the_table(path: Path) -> None:
    shutil.rmtree(path.parent.parent)


LOST = [
    (table, damage) if damage in few else pytest.param(table, damage, marks=pytest.mark.slow)
    for table, few in (("results", (empty, without_a_log)), ("publish_log", (half_written,)), ("partials", ()))
    for damage in (empty, half_written, of_zeros, without_a_log, without_the_table)
]


@pytest.mark.parametrize(("table", "damage"), LOST)
def test_a_damaged_log_is_told_and_nothing_is_published(world: World, table: str, damage: Damage) -> None:
    """Delta takes an empty commit for one that changed nothing, and a table without a log for one to be made."""
    damage(newest_commit(world, table))
    house = str(world.warehouse.root)
    for command in (["maintain", "--warehouse", house], ["read", "trades_only", "--warehouse", house]):
        outcome = CliRunner().invoke(app, command)
        if command[0] == "maintain" or table == "results":
            assert outcome.exit_code == 1 and "HDL-544" in outcome.stderr and "Traceback" not in outcome.stderr
    with pytest.raises(HeddleError, match=f"HDL-544 .*{table}"):
        world.run(1, 60, 120, "damaged")


@pytest.mark.parametrize("again", [False, True], ids=["the only one", "a later revision"])
@pytest.mark.parametrize("healer", ["repair", "run"])
def test_a_newest_commit_that_is_lost_is_noticed_and_published_again(world: World, again: bool, healer: str) -> None:
    """The log of publications has it; Delta takes the version before for the newest."""
    world.run(1, 60, 120, "other")
    if again:
        world.write([(70.5, "A", 1.0, 1), (71.5, "B", 7.0, 1)], "trades", "late")
        world.run(1, 60, 120, "again")
    commit = newest_commit(world, "results")
    commit.unlink()
    house = str(world.warehouse.root)
    state = CliRunner().invoke(app, ["status", "--warehouse", house])
    assert state.exit_code == 0 and "HDL-533" in state.output and "01:00:00Z" in state.output
    files_before = sorted(path.name for path in (world.warehouse.root / "results").glob("day=*/*.parquet"))
    refused = CliRunner().invoke(app, ["maintain", "--warehouse", house, "--retention", "0 days"])
    assert refused.exit_code == 1 and "HDL-533" in refused.output
    # what the lost commit named is there, for whoever puts it back
    assert files_before == sorted(path.name for path in (world.warehouse.root / "results").glob("day=*/*.parquet"))
    if healer == "repair":
        done = CliRunner().invoke(app, ["repair", "--warehouse", house])
        assert "HDL-533" in done.output and done.exit_code == 0, done.output
    else:
        assert world.run(1, 60, 120, "after").status == "published"
    events = {"trades": steady() + ([(70.5, "A", 1.0, 1), (71.5, "B", 7.0, 1)] if again else []), "quotes": steady()}
    world.events = {name: table_of(rows) for name, rows in events.items()}
    assert world.wrong(1, 0, 120) == []
    state = CliRunner().invoke(app, ["status", "--warehouse", house])
    assert "HDL-533" not in state.output and maintain(world.warehouse).damaged == []


def test_staged_answers_that_are_gone_are_not_published(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance that keeps nothing takes what a run has not published yet for left over."""
    publish = publication.publish

    def after_maintenance(*args: object) -> int:
        maintain(world.warehouse, retention=0)
        return publish(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(publication, "publish", after_maintenance)
        with pytest.raises(HeddleError, match="HDL-543"):
            world.run(1, 60, 120, "slow")
    assert wrong(world, 0, 60) == []
    assert world.run(1, 60, 120, "slow").status == "published" and wrong(world, 0, 120) == []


# ------------------------------------------------------------------------------------ vacuum under a reader
def test_a_reader_of_an_older_version_keeps_its_files_for_the_retention(world: World) -> None:
    old_table = DeltaTable(world.warehouse.path("results"))
    before = old_table.to_pyarrow_table().to_pylist()
    world.run(1, 0, 60, "again", recompute=True)
    maintain(world.warehouse)
    assert old_table.to_pyarrow_table().to_pylist() == before
    maintain(world.warehouse, retention=0)
    # told, not fewer answers
    with pytest.raises(FileNotFoundError):
        old_table.to_pyarrow_table()
    assert wrong(world, 0, 60) == []
