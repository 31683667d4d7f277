"""A file that was rewritten with its size and time as before is other content; one that was moved, copied or linked is
not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.pipeline.run.history import outdated, prices
from spark_jobs.streams.sources import recognition
from spark_jobs.streams.sources.ledger import ledger
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.sizes import examples
from tests.spark_jobs import laboratory
from tests.spark_jobs.laboratory import DAY, MINUTE, Event, steady, table_of
from tests.spark_jobs.streams.feed import LATER, Feed


@pytest.fixture(autouse=True)
def unaudited() -> Iterator[None]:
    with without_audit():
        yield


class Files(Feed):
    """A feed whose files can be rewritten so that neither size nor time of modification tells."""

    def __init__(self, folder: Path, format: str, **options: object) -> None:
        super().__init__(in_process(), folder, format, **options)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.{self.format}"

    def put(self, name: str, events: list[Event], came: float = 0) -> None:
        """Write a file of as many bytes for as many events."""
        table = table_of(events).append_column("id", pa.array(range(len(events)), pa.int64()))
        if self.format == "csv":
            pcsv.write_csv(table, self.path(name))
        else:
            pq.write_table(table, self.path(name), compression="none", use_dictionary=False)
        os.utime(self.path(name), (0, (DAY + came * MINUTE) / 1e6))
        self.files[name] = table

    def rewrite(self, name: str, events: list[Event]) -> None:
        """In place; the file system's clock may need a moment until it tells."""
        path = self.path(name)
        before = path.stat()
        self.put(name, events)
        while path.stat().st_ctime_ns == before.st_ctime_ns:
            path.touch()
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = path.stat()
        assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)

    def repaired(self, version: int, run_id: str) -> int:
        """How many intervals were published again."""
        intervals = laboratory.outdated(self.warehouse, LATER)
        for interval in intervals:
            self.run(
                version, (interval.begin - DAY) / MINUTE, (interval.end - DAY) / MINUTE, f"{run_id} {interval.begin}"
            )
        return len(intervals)


def variant(number: int, minute: int = 20) -> list[Event]:
    """Some events, in as many bytes for each number below 10: one has another price and time."""
    return [(minute, "A", 7.5, 3), (minute + number + 0.5, "A", number + 0.25, 5), (minute + 11, "C", 1.5, 1)]


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("options", [{}, {"event_id": "id"}], ids=["plain", "one of each id"])
def test_a_file_rewritten_with_its_size_and_time_is_published_again(
    tmp_path: Path, format: str, options: dict[str, str]
) -> None:
    feed = Files(tmp_path, format, **options)
    feed.write("a", steady(60), 0, range(100, 160))
    feed.put("b", variant(1))
    version = feed.plan()
    assert feed.run(version, 0, 60, "one").status == "published"
    assert outdated(feed.warehouse, LATER) == []
    (before,) = (
        arrival for arrival in ledger(feed.warehouse, "trades").values() if arrival.path == str(feed.path("b"))
    )

    feed.rewrite("b", variant(2))
    # what writes nothing notices as well
    (interval,) = outdated(feed.warehouse, LATER)
    assert interval.radius.files == 2 and set(interval.radius.queries) == {"by_symbol", "all"}
    (price,) = prices(feed.warehouse, version, DAY, DAY + 60 * MINUTE, LATER)
    assert not price.published
    assert ledger(feed.warehouse, "trades")[before.identity] == before

    record = feed.run(version, 0, 60, "two")
    assert (record.status, record.revision) == ("published", 2)
    assert feed.wrong(version, 0, 60, feed.all()) == []
    if not options:
        # [20, 31] lies in the windows of `by_symbol` that end from 25 to 55, of `all` from 30 to 60; that which ends
        # at 55 holds only the event of minute 31, which stays
        assert feed.revised(0, 60, 2) == {
            *(("by_symbol", end) for end in (25, 35, 45)),
            *(("all", end) for end in (25, 40, 55)),
        }
    known = ledger(feed.warehouse, "trades")
    assert not known[before.identity].is_here and known[before.identity].noted > before.noted
    # every later listing says the same
    assert outdated(feed.warehouse, LATER) == []
    assert feed.run(version, 0, 60, "three").status == "unchanged"
    feed.rewrite("b", variant(3))
    assert feed.repaired(version, "third content") == 1
    assert feed.wrong(version, 0, 60, feed.all()) == []
    # as it was at first: under the identity that it had then
    feed.rewrite("b", variant(1))
    assert feed.repaired(version, "first content") == 1
    assert feed.wrong(version, 0, 60, feed.all()) == []
    assert ledger(feed.warehouse, "trades")[before.identity].is_here


def _permissions(path: Path) -> None:
    path.chmod(0o600 if path.stat().st_mode & 0o077 else 0o644)


def _linked(path: Path) -> None:
    path.with_suffix(".linked").unlink(missing_ok=True)
    path.with_suffix(".linked").hardlink_to(path)


def _copied(path: Path) -> None:
    """``cp -a`` and renamed over it."""
    shutil.copy2(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


def _restored(path: Path) -> None:
    """From a backup, after it was lost."""
    shutil.copy2(path, path.with_suffix(".backup"))
    path.unlink()
    shutil.copy2(path.with_suffix(".backup"), path)


SAME: tuple[Callable[[Path], None], ...] = (_permissions, _linked, _copied, _restored)


def _changed(path: Path, act: Callable[[Path], None]) -> None:
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        act(path)


@pytest.mark.parametrize("act", SAME)
def test_what_changes_the_inode_alone_is_no_other_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], None]
) -> None:
    feed = Files(tmp_path, "csv")
    feed.put("a", variant(1))
    version = feed.plan()
    record = feed.run(version, 0, 60, "one")
    before = ledger(feed.warehouse, "trades")
    read: list[str] = []
    checksum = recognition._checksum
    monkeypatch.setattr(recognition, "_checksum", lambda path: read.append(path) or checksum(path))
    assert feed.run(version, 0, 60, "two").status == "unchanged" and read == []

    _changed(feed.path("a"), act)
    assert outdated(feed.warehouse, LATER) == [] and len(read) == 1
    again = feed.run(version, 0, 60, "three")
    assert again.status == "unchanged" and again.listed == record.listed and len(read) == 1
    after = ledger(feed.warehouse, "trades")
    assert [(arrival.identity, arrival.noted, arrival.event) for arrival in after.values()] == [
        (arrival.identity, arrival.noted, arrival.event) for arrival in before.values()
    ]
    # it is remembered as it is now, so that it is not read at every listing
    recognition._content.cache_clear()
    assert feed.run(version, 0, 60, "four").status == "unchanged" and len(read) == 1
    assert ledger(feed.warehouse, "trades") == after
    # and still known as it was before: hosts that see other inodes do not take turns in noting theirs
    (stamps,) = (arrival.stamps for arrival in after.values())
    assert len(stamps) == 2 and stamps > next(iter(before.values())).stamps


def test_a_ledger_of_an_earlier_heddle_gets_stamps_without_a_change(tmp_path: Path) -> None:
    feed = Files(tmp_path, "csv")
    feed.put("a", variant(1))
    version = feed.plan()
    record = feed.run(version, 0, 60, "one")
    table = feed.warehouse.dataset("source_files").to_table().drop_columns(["stamps"])
    write_deltalake(feed.warehouse.table("source_files"), table, mode="overwrite", schema_mode="overwrite")
    (old,) = ledger(feed.warehouse, "trades").values()
    assert old.stamps == frozenset()
    assert outdated(feed.warehouse, LATER) == []

    again = feed.run(version, 0, 60, "two")
    assert again.status == "unchanged" and again.listed == record.listed
    (now,) = ledger(feed.warehouse, "trades").values()
    assert now.noted == old.noted and len(now.stamps) == 1
    feed.rewrite("a", variant(2))
    assert feed.repaired(version, "repair") == 1
    assert feed.wrong(version, 0, 60, feed.all()) == []


def test_a_correction_with_its_time_put_back_is_not_refused(tmp_path: Path) -> None:
    """And what was refused of a file is when it is back."""
    feed = Files(tmp_path, "parquet", allowed_lateness=5 * MINUTE)
    feed.write("a", steady(60), 0, range(100, 160))
    version = feed.plan()
    feed.run(version, 0, 60, "one")
    feed.put("b", variant(1), came=90)
    assert feed.run(version, 0, 60, "two").refused == {"trades": 3}
    feed.rewrite("b", variant(2))
    assert feed.run(version, 0, 60, "three").refused == {}
    assert feed.wrong(version, 0, 60, feed.all()) == []
    feed.rewrite("b", variant(1))
    assert feed.run(version, 0, 60, "four").refused == {"trades": 3}
    assert feed.wrong(version, 0, 60, feed.files["a"]) == []


STEPS = st.one_of(
    st.tuples(st.just("rewrite"), st.integers(1, 4)),
    st.tuples(st.just("same"), st.sampled_from(SAME)),
    st.sampled_from([(name, None) for name in ("touch", "append", "run", "dry run", "repair")]),
)


@settings(max_examples=examples(4), deadline=None)
@given(
    format=st.sampled_from(["csv", "parquet"]),
    steps=st.lists(st.tuples(STEPS, st.sampled_from(["a", "b"])), min_size=3, max_size=8),
)
def test_any_sequence_of_changes_and_runs_gives_the_oracles_answers(
    tmp_path_factory: pytest.TempPathFactory, format: str, steps: list[tuple[tuple[str, object], str]]
) -> None:
    """A dry run tells of a change exactly if a file is not what was published: other bytes, whatever its time."""
    feed = Files(tmp_path_factory.mktemp("feed"), format)
    contents = {"a": variant(1), "b": variant(1, 40)}
    for name, events in contents.items():
        feed.put(name, events)
    version = feed.plan()

    def present() -> dict[str, bytes]:
        return {name: feed.path(name).read_bytes() for name in contents}

    feed.run(version, 0, 90, "first")
    published = present()
    for number, ((step, how), name) in enumerate([*steps, (("repair", None), "a")]):
        path = feed.path(name)
        if step == "rewrite":
            assert isinstance(how, int)
            contents[name] = [*variant(how, 20 if name == "a" else 40), *contents[name][3:]]
            feed.rewrite(name, contents[name])
        elif step == "same":
            _changed(path, how)
        elif step == "touch":
            os.utime(path, (0, (DAY + (number + 1) * MINUTE) / 1e6))
        elif step == "append":
            contents[name] = [*contents[name], (60 + number, "B", 2.5, 4)]
            feed.put(name, contents[name], number + 1)
        elif step == "dry run":
            assert bool(laboratory.outdated(feed.warehouse, LATER)) == (present() != published)
        else:
            changed = present() != published
            if step == "run":
                record = feed.run(version, 0, 90, f"run {number}")
                assert record.status == ("published" if changed else "unchanged")
            else:
                assert feed.repaired(version, f"repair {number}") == changed
            published = present()
            assert feed.wrong(version, 0, 90, feed.all()) == []
            assert outdated(feed.warehouse, LATER) == []
