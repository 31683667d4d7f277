"""Safeguards that are taken out, one at a time: the harness has to notice each.

A *mutation* patches the code; a *witness* is a scenario that should tell. ``test_mutations.py`` prints who did.
"""

from __future__ import annotations

import fcntl
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import day_label
from spark_jobs.operations import file_checks
from spark_jobs.operations import maintenance as maintenance_module
from spark_jobs.pipeline.planning import publication as publication_module
from spark_jobs.pipeline.run import finals_stage, narrowing, preparation, publication, stage_tasks
from spark_jobs.pipeline.run import values as values_module
from spark_jobs.results import own_table, tables
from spark_jobs.store.warehouse import data_files, held_tables, plans, publish_log, schemas
from spark_jobs.store.warehouse import lease as lease_module
from spark_jobs.store.warehouse import warehouse as warehouse_module
from spark_jobs.store.warehouse.plans import current_version
from spark_jobs.windows.partials import stored_coverage
from tests.chaos.commits import answer
from tests.chaos.world import PLANS, Died, Race, copied, die, interrupted, judged, race
from tests.spark_jobs.laboratory import DAY, MINUTE

Patch = pytest.MonkeyPatch
Places = tuple[Path, Path]


# ------------------------------------------------------------------------------------------- the lease
def no_lock(patch: Patch) -> None:
    @contextmanager
    def locked(path: Path) -> Iterator[int]:
        import os

        file = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            yield file
        finally:
            os.close(file)

    patch.setattr(lease_module, "locked", locked)


def no_fencing(patch: Patch) -> None:
    patch.setattr(warehouse_module.Warehouse, "check_lease", lambda *args: None)


def commits_on_top_of_anything(patch: Patch) -> None:
    """As before: the table as it is when the commit comes."""

    def properties(token: str, transactions: Any, note: str) -> CommitProperties:
        return CommitProperties(app_transactions=[warehouse_module.Transaction(*pair) for pair in transactions] or None)

    patch.setattr(warehouse_module, "_properties", properties)
    write = warehouse_module.write_deltalake

    def newest(current: DeltaTable, *args: Any, **kwargs: Any) -> None:
        write(current.table_uri, *args, **kwargs)

    patch.setattr(warehouse_module, "write_deltalake", newest)
    original = DeltaTable.create_write_transaction
    patch.setattr(
        DeltaTable,
        "create_write_transaction",
        lambda self, *args, **kwargs: original(DeltaTable(self.table_uri), *args, **kwargs),
    )


def rows_follow_from_nothing(patch: Patch) -> None:
    """The version that the rows of an append follow from is not looked at."""
    append = warehouse_module.Warehouse.append
    patch.setattr(
        warehouse_module.Warehouse,
        "append",
        lambda self, table, rows, token, transaction=None, since=None: append(self, table, rows, token, transaction),
    )


def no_transactions(patch: Patch) -> None:
    patch.setattr(warehouse_module, "_properties", lambda *args: CommitProperties(max_commit_retries=0))


# ------------------------------------------------------------------------------------------- revisions and the log
def revision_reused(patch: Patch) -> None:
    original = publish_log.revision_of
    patch.setattr(publish_log, "revision_of", lambda *args: max(1, original(*args) - 1))


def every_attempt_its_own_log_line(patch: Patch) -> None:
    def log(house: Any, record: Any, event: str, content: Any, version: Any) -> None:
        with house.lease() as token:
            row = publish_log._row_of(record, event, content, version, record.revision)
            house.append("publish_log", [row.to_row()], token)

    patch.setattr(publish_log, "log_event", log)


def no_reconciliation(patch: Patch) -> None:
    patch.setattr(publish_log, "reconcile", lambda *args: None)


def reconciled_as_of_now(patch: Patch) -> None:
    patch.setattr(warehouse_module.Warehouse, "committed", lambda self, table, *args: self.version(table))


def own_interval_reconciled(patch: Patch) -> None:
    original = publish_log._unlogged

    def unlogged(house: Any, begin: int, end: int) -> Any:
        same = publish_log.interval_label(begin, end)
        return [lost for lost in original(house, begin, end) if lost[0].interval == same]

    patch.setattr(publish_log, "_unlogged", unlogged)


def overlaps_overlooked(patch: Patch) -> None:
    def published(house: Any, plan: Any, begin: int, end: int, content: str) -> Any:
        rows = [row for row in publish_log.rows_of_interval(house, begin, end) if row.event == "published"]
        return rows[-1] if rows and rows[-1].content == content else None

    patch.setattr(publish_log, "same_publication", published)


def content_that_never_changes(patch: Patch) -> None:
    patch.setattr(preparation, "content_hash", lambda *args: "always the same")


def logged_before_published(patch: Patch) -> None:
    original = publication.publish

    def publish(run: Any, checked: Any) -> Any:
        publish_log.log_event(run.warehouse, run.record, "published", "?", run.warehouse.version("results") + 1)
        return original(run, checked)

    patch.setattr(publication, "publish", publish)


# ------------------------------------------------------------------------------------------- what is replaced
def replaced(table: str, which: Callable[[pa.Table, pa.Array], pa.Array]) -> Callable[[Patch], None]:
    def broken(patch: Patch) -> None:
        original = warehouse_module.Warehouse.replace

        def replace(self: Any, name: str, written: Any, days: Any, chosen: Any, *args: Any, **kwargs: Any) -> int:
            if name == table:
                right = chosen

                def chosen(rows: pa.Table) -> pa.Array:
                    return which(rows, right(rows))

            return original(self, name, written, days, chosen, *args, **kwargs)

        patch.setattr(warehouse_module.Warehouse, "replace", replace)

    return broken


def nothing(rows: pa.Table, right: pa.Array) -> pa.Array:
    return pa.array([False] * len(rows))


def everything(rows: pa.Table, right: pa.Array) -> pa.Array:
    return pa.array([True] * len(rows))


def but_the_last(rows: pa.Table, right: pa.Array) -> pa.Array:
    return pc.and_(right, pc.less(rows["instant"], pc.max(rows["instant"])))


def every_file_untouched(patch: Patch) -> None:
    original = warehouse_module.Warehouse.replace
    patch.setattr(
        warehouse_module.Warehouse,
        "replace",
        lambda self, name, written, days, chosen, interval, revision, *args: original(
            self, name, written, days, chosen, interval, revision, lambda file: True
        ),
    )


def in_two_commits(patch: Patch) -> None:
    """What is new first, what it replaces then."""
    commit = warehouse_module.Warehouse.commit

    def twice(self: Any, table: str, current: Any, actions: Sequence[Any], token: int, *args: Any) -> None:
        adds = [action for action in actions if isinstance(action, AddAction)]
        removes = [action for action in actions if isinstance(action, RemoveAction)]
        commit(self, table, current, adds, token, *args)
        if removes:
            commit(self, table, DeltaTable(self.path(table)), removes, token)

    patch.setattr(warehouse_module.Warehouse, "commit", twice)


def an_answer_lost_unaudited(patch: Patch) -> None:
    """What the audit is for, where there is none."""
    original = warehouse_module.Warehouse.replace

    def replace(self: Any, name: str, written: Sequence[Any], *args: Any, **kwargs: Any) -> int:
        if name == "results" and written:
            first, root = written[0], Path(self.path(name))
            rows = data_files.read_file(root / first.path).slice(1)
            rows = rows.append_column("day", pa.array([first.day] * len(rows), pa.string()))
            written = [*data_files.write_files(root, rows), *written[1:]]
        return original(self, name, written, *args, **kwargs)

    patch.setattr(warehouse_module.Warehouse, "replace", replace)


def staged_files_visible(patch: Patch) -> None:
    original = finals_stage.write_finals

    def write(run: Any, filled: Any) -> Any:
        staged, house = original(run, filled), run.warehouse
        with house.lease() as token:
            actions = [warehouse_module.added(written.file) for written in staged]
            house.commit("results", DeltaTable(house.path("results")), actions, token)
        return staged

    patch.setattr(finals_stage, "write_finals", write)


# ------------------------------------------------------------------------------------------- partial aggregates
def tokens_that_never_change(patch: Patch) -> None:
    patch.setattr(stored_coverage, "stored_for", lambda *args: lambda *piece: True)


def answered_from_whatever_is_there(patch: Patch) -> None:
    """Without the look at what the finals stage reads (HDL-541)."""
    original, looked = stored_coverage.missing_spans, finals_stage.write_finals

    def finals(*args: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(stored_coverage, "missing_spans", lambda *args: [])
            return looked(*args)

    patch.setattr(stored_coverage, "missing_spans", original)
    patch.setattr(finals_stage, "write_finals", finals)


def incomplete_said_to_be_complete(patch: Patch) -> None:
    """The last file of partial rows is lost, what says that they are complete is not."""
    original = stage_tasks.of_outcomes

    def written(*args: Any) -> Any:
        files, broken = original(*args)
        return files[:-1], broken

    patch.setattr(stage_tasks, "of_outcomes", written)


# ------------------------------------------------------------------------------------------- plans and maintenance
def registered_once_a_version(patch: Patch) -> None:
    append = warehouse_module.Warehouse.append

    def transacted(self: Any, table: str, rows: Any, token: int, transaction: Any = None, since: Any = None) -> None:
        if table == "workload_queries":
            transaction = (table, (plans.current_version(self) or 0) + 1)
        append(self, table, rows, token, transaction, since)

    patch.setattr(warehouse_module.Warehouse, "append", transacted)


def plan_stored_whenever_asked(patch: Patch) -> None:
    patch.setattr(publication_module, "relocated_as", lambda plan, places: SimpleNamespace(fingerprint=""))


def merged_files_kept(patch: Patch) -> None:
    original = warehouse_module.Warehouse.commit

    def commit(self: Any, table: str, current: Any, actions: Sequence[Any], *args: Any) -> None:
        if len(args) == 1:  # maintenance's: no transaction
            actions = [action for action in actions if isinstance(action, AddAction)]
        original(self, table, current, actions, *args)

    patch.setattr(warehouse_module.Warehouse, "commit", commit)


def merged_rows_lost(patch: Patch) -> None:
    original = maintenance_module._read

    def read(*args: Any) -> pa.Table:
        return original(*args).slice(1)

    patch.setattr(maintenance_module, "_read", read)


def unchecked_pages(patch: Patch) -> None:
    patch.setattr(data_files, "opened", lambda path, **options: pq.ParquetFile(path, **options))
    patch.setattr(held_tables, "FORMAT", ds.ParquetFileFormat())
    patch.setattr(file_checks, "check_content", lambda place, size: None)


def no_isolation(patch: Patch) -> None:
    """A table that was made without it."""
    original = Race.wrong

    def wrong(self: Race) -> list[str]:
        path = self.world.warehouse.path("partials")
        DeltaTable(path).alter.set_table_properties({"delta.isolationLevel": "WriteSerializable"})
        return original(self)

    patch.setattr(Race, "wrong", wrong)


# ------------------------------------------------------------------------------- single windows published again
def overtaken_unnoticed(patch: Patch) -> None:
    patch.setattr(warehouse_module.Warehouse, "transactions", lambda self, table, since: iter(()))


def windows_overlooked(patch: Patch) -> None:
    original = narrowing.change

    def change(*args: Any) -> Any:
        narrowed = original(*args)
        return narrowed._replace(
            instants={name: at if at is None else at[:-1] for name, at in narrowed.instants.items()}
        )

    patch.setattr(narrowing, "change", change)


def whatever_was_published(patch: Patch) -> None:
    """The windows of another plan's publication are gone on with."""
    patch.setattr(
        narrowing,
        "narrowing_base",
        lambda warehouse, prepared: publish_log.newest_publication(
            warehouse, prepared.request.begin, prepared.request.end
        ),
    )


def known_as_of_now(patch: Patch) -> None:
    """A run says that it knew what others have noted meanwhile."""
    late = property(lambda listing: dict.fromkeys(listing.arrivals, 1 << 60))
    patch.setattr(values_module.SourceListing, "newest", late)


def whatever_is_known(patch: Patch) -> None:
    """A publication is gone on with, or published over, that knew files which the run has not listed."""
    patch.setattr(narrowing, "is_older_than", lambda past, now: False)


def tables_follow_the_last(patch: Patch) -> None:
    """What was published before the last publication is taken for granted."""
    original = tables._commits
    patch.setattr(tables, "_commits", lambda house, since, until: original(house, max(since, until - 1), until))


def tables_append(patch: Patch) -> None:
    """What a table has of the interval is not looked at."""
    patch.setattr(own_table, "_may_hold", lambda *args: False)


MUTATIONS: dict[str, tuple[Callable[[Patch], None], str]] = {
    "no lock": (no_lock, "two holders"),
    "no fencing": (no_fencing, "the lease is taken away"),
    "commits on top of anything": (commits_on_top_of_anything, "committed in between"),
    "appends follow from nothing": (rows_follow_from_nothing, "allocated in between"),
    "no transaction ids": (no_transactions, "runs in order"),
    "revision reused": (revision_reused, "runs in order"),
    "a log line an attempt": (every_attempt_its_own_log_line, "its retry, before log"),
    "no reconciliation": (no_reconciliation, "dead over another"),
    "reconciled as of now": (reconciled_as_of_now, "dead beside another"),
    "own interval reconciled alone": (own_interval_reconciled, "dead over another"),
    "overlaps overlooked": (overlaps_overlooked, "there and back"),
    "stale content": (content_that_never_changes, "runs in order"),
    "logged before published": (logged_before_published, "runs in order"),
    "results not replaced": (replaced("results", nothing), "runs in order"),
    "results replaced but the last": (replaced("results", but_the_last), "runs in order"),
    "all results replaced": (replaced("results", everything), "runs in order"),
    "partials not replaced": (replaced("partials", nothing), "runs in order"),
    "all partials replaced": (replaced("partials", everything), "runs in order"),
    "every file untouched": (every_file_untouched, "runs in order"),
    "published in two commits": (in_two_commits, "runs in order"),
    "an answer lost, and no audit": (an_answer_lost_unaudited, "runs in order"),
    "staged files visible": (staged_files_visible, "runs in order"),
    "stale tokens": (tokens_that_never_change, "runs in order"),
    "answered from whatever is there": (
        answered_from_whatever_is_there,
        "a run of what it reads, with late events, before answer",
    ),
    "incomplete said to be complete": (incomplete_said_to_be_complete, "runs in order"),
    "registered once a version": (registered_once_a_version, "killed while registering"),
    "plan stored whenever asked": (plan_stored_whenever_asked, "planned twice"),
    "no isolation": (no_isolation, "runs in order"),
    "merged files kept": (merged_files_kept, "runs in order"),
    "merged rows lost": (merged_rows_lost, "runs in order"),
    "damage is not looked for": (unchecked_pages, "a flipped bit"),
    "overtaken unnoticed": (overtaken_unnoticed, "single windows, overtaken"),
    "windows overlooked": (windows_overlooked, "single windows"),
    "whatever was published": (whatever_was_published, "single windows"),
    "known as of now": (known_as_of_now, "noted by another meanwhile"),
    "tables follow the last publication": (tables_follow_the_last, "dead before its tables"),
    "tables on top of anything": (tables_append, "runs in order"),
    "whatever is known": (whatever_is_known, "a run of the same, with late events, before reconcile"),
}
"""What is taken out, and the witness that is asked first."""


# ------------------------------------------------------------------------------------------- witnesses
def dead_before_its_tables(race: Race) -> None:
    """The process is gone once it has published; another interval comes next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "follow", die)
        with pytest.raises(Died):
            race.world.run(current_version(race.world.warehouse) or 0, 60, 120, "dead")
    race.late(0)
    race.run("next", 0, 60)


def _calm(places: Places, body: Callable[[Race], None], name: str) -> None:
    played = copied(*places, random.Random(0), lambda name: None)
    judged(played, lambda: body(played), [name])


def in_order(race: Race) -> None:
    """Maintenance, late events, another plan, the first again."""
    race.maintain()
    race.run("next", 60, 120)
    race.late(1)
    race.run("late", 0, 60)
    race.plan(PLANS[1])
    race.run("all by another", 0, 120)
    race.plan(PLANS[2])
    race.run("next again", 60, 120)


def there_and_back(race: Race) -> None:
    race.run("first", 60, 120)
    race.plan(PLANS[1])
    race.run("all", 0, 120)
    race.run("first again", 60, 120, 1)


def killed_while_registering(race: Race) -> None:
    """One refresh dies between its commits, the next is of other queries."""
    append = warehouse_module.Warehouse.append

    def dying(self: Any, table: str, *args: Any, **kwargs: Any) -> None:
        if table == "sharing_plans":
            raise KeyboardInterrupt
        append(self, table, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warehouse_module.Warehouse, "append", dying)
        with pytest.raises(KeyboardInterrupt):
            race.plan(PLANS[1])
    race.plan(PLANS[2])


def planned_twice(race: Race) -> None:
    race.plan(PLANS[2])
    race.plan(PLANS[2])


def two_holders(race: Race) -> None:
    """Who comes while another holds the lease waits for it."""
    house, waited = race.world.warehouse, []

    def waiting(file: int, operation: int) -> None:
        try:
            flock(file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            waited.append(file)
            raise TimeoutError from None

    flock = fcntl.flock
    with house.lease(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", waiting)
        with pytest.raises(TimeoutError), house.lease():
            pass


def taken_away(race: Race) -> None:
    """While a holder is about to commit, another gets the lease, and has committed nothing yet."""
    house, lease = race.world.warehouse, race.world.warehouse.root / ".lease"
    row = {
        "run_id": "r",
        "stream": "s",
        "code": "c",
        "rows": 1,
        "detail": "",
        "at": schemas.moment(publish_log.now_micros()),
    }
    with house.lease() as token:
        lease.unlink()
        lease.write_text(str(token))
        with house.lease(), pytest.raises(HeddleError, match="HDL-510"):
            house.append("quarantine", [row], token)


def committed_between(race: Race) -> None:
    """A holder looks, another replaces all that it looked at, the holder commits."""
    house, check = race.world.warehouse, warehouse_module.Warehouse.check_lease
    armed = [True]

    def overtaken(self: Any, token: int) -> None:
        check(self, token)
        if armed and armed.pop():
            lease = house.root / ".lease"
            lease.unlink()
            lease.write_text(str(token))
            race.run("overtaking", 0, 120)

    staged = list(data_files.write_files(house.path("results"), answer(0, 5, "slow")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warehouse_module.Warehouse, "check_lease", overtaken)
        with pytest.raises(HeddleError, match="HDL-510"):
            days = day_label(DAY), day_label(DAY)
            house.replace("results", staged, days, lambda rows: pa.array([True] * len(rows)), "slow", 5)


def allocated_between(race: Race) -> None:
    """A holder that lost the lease commits after another has looked, before that one commits: it is told."""
    house, rows = race.world.warehouse, publish_log.rows_of_interval
    armed = [True]

    def overtaken(*args: Any) -> Any:
        interval_rows = rows(*args)
        if armed and armed.pop():
            row = publish_log._row_of(other, "allocated", "other", None, 7).to_row()
            warehouse_module.write_deltalake(
                DeltaTable(house.path("publish_log")),
                pa.Table.from_pylist([row], schemas.TABLES["publish_log"][0]),
                mode="append",
            )
        return interval_rows

    other = publish_log.RunRecord("other", 1, DAY, DAY + MINUTE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish_log, "rows_of_interval", overtaken)
        with pytest.raises(HeddleError, match="HDL-510"):
            publish_log.revision_of(house, other, "mine", False)
    table = DeltaTable(house.path("publish_log"))
    table.delete("content = 'other'")


def flipped(race: Race) -> None:
    """One bit of a page of the last column, the states."""
    house = race.world.warehouse
    paths = [house.root / "partials" / file["path"] for file in house.files("partials", "", "9")]
    for path in paths:
        rows = pq.read_metadata(path).row_group(0)
        chunk = rows.column(rows.num_columns - 1)
        content = bytearray(path.read_bytes())
        content[chunk.data_page_offset + chunk.total_compressed_size - 2] ^= 4
        path.write_bytes(content)
    with pytest.raises(HeddleError, match="HDL-543"):
        race.world.run(1, 0, 60, "damaged", recompute=True)
    maintenance_module.maintain(house)


def dead_then_overlapped(race: Race) -> None:
    """A publication that is not logged, one over it, the first again."""
    race.plan(PLANS[1])
    race.dies_unlogged(60, 120)
    race.plan(PLANS[2])
    race.run("over it", 0, 120)
    race.run("dead", 60, 120, 2)


def dead_beside_another(race: Race) -> None:
    race.dies_unlogged(60, 120)
    race.run("beside it", 0, 60)
    race.run("dead", 60, 120)


def dead_over_another(race: Race) -> None:
    """The first again would be the same as ever, were it not for what nobody logged."""
    race.run("first", 60, 120)
    race.dies_unlogged(0, 120)
    race.run("first again", 60, 120, 1)


def single_windows(race: Race) -> None:
    """Of late events, once and again, and by a plan that comes back."""
    race.run("first", 60, 120)
    race.late(2)
    race.run("again", 60, 120)
    race.late(1)
    race.plan(PLANS[1])
    race.run("by another", 60, 120)
    race.late(0)
    race.run("the first", 60, 120, 1)


def noted_meanwhile(race: Race) -> None:
    """While a run lists, a file comes that another run notes first; what it holds is late all the same."""
    opened, armed = preparation.opened, [True]

    def opening(stream: Any, *args: Any) -> Any:
        files = opened(stream, *args)
        if stream.name == "trades" and armed and armed.pop():
            race.late(2)
            race.run("the other", 0, 60)
        return files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "opened", opening)
        race.run("late", 60, 120)
    race.run("repaired", 60, 120)


def overtaken(places: Places) -> None:
    interrupted(*places, "publish", False, "a run of more, with late events and another plan", narrow=True)


WITNESSES: dict[str, Callable[[Places], None]] = {
    "runs in order": lambda places: _calm(places, in_order, "in order"),
    "there and back": lambda places: _calm(places, there_and_back, "there and back"),
    "killed while registering": lambda places: _calm(places, killed_while_registering, "killed while registering"),
    "planned twice": lambda places: _calm(places, planned_twice, "planned twice"),
    "dead, then overlapped": lambda places: _calm(places, dead_then_overlapped, "dead then overlapped"),
    "dead beside another": lambda places: _calm(places, dead_beside_another, "dead beside another"),
    "dead over another": lambda places: _calm(places, dead_over_another, "dead over another"),
    "two holders": lambda places: _calm(places, two_holders, "two holders"),
    "the lease is taken away": lambda places: _calm(places, taken_away, "taken away"),
    "committed in between": lambda places: _calm(places, committed_between, "committed in between"),
    "allocated in between": lambda places: _calm(places, allocated_between, "allocated in between"),
    "a flipped bit": lambda places: _calm(places, flipped, "a flipped bit"),
    "single windows": lambda places: _calm(places, single_windows, "single windows"),
    "noted by another meanwhile": lambda places: _calm(places, noted_meanwhile, "noted by another meanwhile"),
    "single windows, overtaken": overtaken,
    "dead before its tables": lambda places: _calm(places, dead_before_its_tables, "dead before its tables"),
    **{
        f"{intruder}, {'after' if after else 'before'} {step}": (
            lambda places, step=step, after=after, intruder=intruder: interrupted(*places, step, after, intruder)
        )
        for step, after, intruder in (
            ("log", False, "its retry"),
            ("choose the revision", False, "its retry"),
            ("look for the same content", False, "a run of more that dies before its log"),
            ("answer", False, "a run of what it reads, with late events"),
            ("answer", True, "a run of more, with late events and another plan"),
            ("publish", False, "a run of more, with late events and another plan"),
            ("reconcile", False, "a run of the same, with late events"),
        )
    },
    **{f"ordering {seed}": (lambda places, seed=seed: race(*places, seed)) for seed in range(1, 41)},
}


def _is_unfit(error: BaseException | None) -> bool:
    """Whether something was called as it is no more: a run that breaks by that says nothing of the safeguard."""
    while error is not None:
        if isinstance(error, (TypeError, AttributeError, NameError)):
            return True
        error = error.__cause__ or error.__context__
    return False


def noticed(mutation: str, places: Places, most: int = 100) -> tuple[str, str] | None:
    """Who noticed that a safeguard is out, of the ``most`` witnesses that are asked first, and what it said; None if
    nobody did."""
    broken, likely = MUTATIONS[mutation]
    for name in list(dict.fromkeys([likely, *WITNESSES]))[:most]:
        with Patch.context() as patch:
            broken(patch)
            try:
                WITNESSES[name](places)
            except (Exception, pytest.fail.Exception) as error:
                assert not _is_unfit(error), f"{mutation} no longer fits the code that it changes: {error!r}"
                message_lines = [line for line in str(error).splitlines() if line]
                return name, message_lines[-1] if message_lines else repr(error)
    return None
