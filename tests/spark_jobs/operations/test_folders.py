"""Warehouses wherever they lie: below folders of awkward names, and on file systems that nobody may write to."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import Source, Stream
from spark_jobs.audit.unshared.measure import native_frame
from spark_jobs.engine import session
from spark_jobs.operations.maintenance import maintain
from spark_jobs.store.warehouse.data_files import is_awkward, log_place
from spark_jobs.store.warehouse.schemas import TABLES
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.files import splits_of
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import SCHEMA, Laboratory, steady, table_of

FOLDERS = (
    *("a b", " a", "it's", 'q"q', "#1", "what?", "été 日本 e\u0301", "{a}*", "$HOME;x", "a:b", "file:a", "day=1"),
    *("100%", "%zz", "per%20cent", "%2F", "%C3%A9", "[x]", "a[0-9]", "a|b", "a^b", "a\\b", "a\tb", "a\nb"),
    "[per%20cent] it's #1?",
)
HALVES = [" ".join(FOLDERS[:12]), "/".join(FOLDERS[12:])]
"""All of the names at once, in two paths: each of them takes as long as any one."""


def test_the_matrix_has_names_of_both_kinds() -> None:
    assert 8 <= sum(map(is_awkward, FOLDERS)) <= len(FOLDERS) - 8


@pytest.mark.parametrize("folder", [*HALVES, FOLDERS[-1]])
def test_a_warehouse_below_an_awkward_folder(folder: str, tmp_path: Path) -> None:
    """Planned, run, repaired, merged, cleaned, and read by every command that reads."""
    place = tmp_path / folder
    place.mkdir(parents=True)
    with without_audit():
        lab = Laboratory(in_process(), place)
        lab.write(steady())
        version = lab.plan()
        for begin in (0, 20, 40):
            assert lab.run(version, begin, begin + 20, f"run {begin}").status == "published"
        assert lab.run(version, 40, 60, "again").status == "unchanged" and lab.wrong(version, 0, 60) == []
        lab.write([*steady(), (30.5, "A", 1.0, 5)])
        assert lab.run(version, 20, 40, "late").status == "published"
        assert lab.run(version, 40, 60, "later").status == "published" and lab.wrong(version, 0, 60) == []
        before = len(list((lab.warehouse.root / "results").rglob("*.parquet")))
        assert maintain(lab.warehouse, retention=0).removed > 0 and lab.wrong(version, 0, 60) == []
        assert len(list((lab.warehouse.root / "results").rglob("*.parquet"))) < before
        # what a killed run left, and nothing else, goes
        for table in TABLES:
            leftover_file = lab.warehouse.root / table / "left.parquet"
            leftover_file.write_bytes(b"x")
            os.utime(leftover_file, (1, 1))
        assert maintain(lab.warehouse, retention=0).removed >= len(TABLES) and lab.wrong(version, 0, 60) == []
        assert not list(lab.warehouse.root.rglob("left.parquet"))
        assert lab.run(version, 60, 80, "after").status == "published" and lab.wrong(version, 0, 80) == []
    house = ("--warehouse", str(lab.warehouse.root))
    for command in (
        *(("read", "all"), ("status",), ("plan",), ("queries",), ("diff", "1", "1"), ("maintain", "--dry-run")),
        *(("lookup", "by_symbol", "--at", "2013-07-01T00:50"), ("explain", "all"), ("repair", "--dry-run")),
    ):
        done = CliRunner().invoke(app, [*command, *house])
        assert done.exit_code == 0, done.output
    # nothing was written anywhere else
    assert [path.name for path in tmp_path.iterdir()] == [folder.split("/")[0]]
    again = subprocess.run(
        [sys.executable, "-m", "heddle.cli.app", "pause", "all", *house], capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0 and [row["query"] for row in lab.warehouse.rows("workload_queries")][-1] == "all"


@pytest.mark.parametrize("format", ["csv", "parquet", "delta"])
@pytest.mark.parametrize("folder", [*HALVES, FOLDERS[-1]])
def test_a_source_below_an_awkward_folder(folder: str, format: str, tmp_path: Path) -> None:
    place, events = tmp_path / folder, table_of(steady(5))
    place.mkdir(parents=True)
    if format == "csv":
        pcsv.write_csv(events, place / "a.csv")
    elif format == "parquet":
        pq.write_table(events, place / "a.parquet")
    else:
        write_deltalake(tmp_path / "made", events)
        (tmp_path / "made").rename(place / "table")
        place = place / "table"
    stream = Stream("trades", Source(format, str(place)), SCHEMA, "ts")
    batches = [batch for split in splits_of(stream) for batch in read_split(stream, split, ["volume"])]
    assert [number for batch in batches for number in batch["volume"].to_pylist()] == events["volume"].to_pylist()


@pytest.mark.spark
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_spark_sees_no_pattern_in_a_source_s_folder(format: str, spark: Any, tmp_path: Path) -> None:
    place, events = tmp_path / "a[0-9] {b}", table_of(steady(5))
    place.mkdir()
    (pcsv.write_csv if format == "csv" else pq.write_table)(events, place / f"a.{format}")
    stream = Stream("trades", Source(format, str(place)), SCHEMA, "ts")
    assert native_frame(spark, stream).count() == 5


def test_the_stand_in_of_a_log_is_gone_with_its_process(tmp_path: Path) -> None:
    house = tmp_path / "[x]"
    program = (
        "import sys\nfrom spark_jobs.store.warehouse.warehouse import Warehouse\n"
        "from spark_jobs.store.warehouse.data_files import log_place\n"
        "print(log_place(Warehouse.open(sys.argv[1]).path('results')))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(house)], capture_output=True, text=True, timeout=120)
    assert not Path(done.stdout.strip()).exists() and (house / "results" / "_delta_log").is_dir()
    # one that somebody tidied away comes again
    warehouse = Warehouse.open(house)
    place = log_place(warehouse.path("results"))
    shutil.rmtree(place)
    assert warehouse.version("results") == 0 and log_place(warehouse.path("results")) != place


def test_paths_that_can_be_no_warehouse(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    for path, code in (
        (tmp_path / "loop", "HDL-546"),
        (f"{tmp_path}/\udcff", "HDL-546"),
        (tmp_path / ("x" * 300), "HDL-546"),
        ("~nobody-at-all/x", "HDL-546"),
        (tmp_path / "file" / "x", "HDL-542"),
    ):
        with pytest.raises(HeddleError) as refused:
            Warehouse.open(path)
        assert refused.value.diagnostic.code == code, path


# ------------------------------------------------------------------------------------------- read only
_closed: list[str] = []


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if not _closed or event not in ("open", "os.mkdir", "os.remove", "os.rename"):
        return
    path, flags = arguments[0], arguments[2] if event == "open" else os.O_WRONLY
    writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes and isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith(_closed[0]):
        raise OSError(errno.EROFS, "Read-only file system", os.fsdecode(path))


sys.addaudithook(_refuse)


@pytest.fixture(params=("mounted", "simulated"))
def read_only(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A warehouse in which nobody may write. (Permissions do not bind root.)"""
    monkeypatch.setattr(session, "start_session", lambda *arguments, **options: in_process())
    with without_audit():
        lab = Laboratory(in_process(), tmp_path)
        lab.write(steady())
        assert lab.run(lab.plan(), 0, 60).status == "published"
    house = lab.warehouse.root
    if request.param == "simulated":
        _closed.append(str(house))
        yield house
        _closed.clear()
        return
    ways = (["--bind", str(house), str(house)], ["-o", "remount,ro,bind", str(house)])
    mounted = 0
    try:
        for way in ways:
            mounted += subprocess.run(["mount", *way], capture_output=True).returncode == 0
        if mounted < len(ways):
            pytest.skip("file systems may not be mounted here")
        yield house
    finally:
        if mounted:
            subprocess.run(["umount", str(house)], check=True)


def test_what_only_reads_works_on_a_read_only_file_system(read_only: Path) -> None:
    house = ("--warehouse", str(read_only))
    with pytest.raises(OSError, match="Read-only"):
        (read_only / "x").write_text("x")
    for command in (
        *(("read", "all"), ("status",), ("queries",), ("plan",), ("explain", "all"), ("diff", "1", "1")),
        *(("lookup", "by_symbol", "--at", "2013-07-01T00:50"), ("what-if", "--remove", "all")),
    ):
        done = CliRunner().invoke(app, [*command, *house])
        assert done.exit_code == 0, (command, done.output)
    for command in (
        *(("pause", "all"), ("rollback", "1"), ("maintain",)),
        ("backfill", "--from", "2013-07-01T01:00", "--to", "2013-07-01T02:00"),
    ):
        done = CliRunner().invoke(app, [*command, *house])
        assert done.exit_code == 1 and "error HDL-545" in done.stderr and "`heddle read`" in done.stderr, done.output
    with pytest.raises(HeddleError, match="HDL-545"):
        Warehouse.open(read_only / "new")


def test_a_table_that_came_later_is_no_reason_not_to_read(tmp_path: Path) -> None:
    """Of an older warehouse; where nothing can be made it is opened without."""
    house = Warehouse.open(tmp_path / "house").root
    shutil.rmtree(house / "source_files")
    _closed.append(str(house))
    try:
        assert Warehouse.open(house, create=False).rows("publish_log") == []
    finally:
        _closed.clear()
    assert not (house / "source_files").exists()
    assert Warehouse.open(house).rows("source_files") == []
