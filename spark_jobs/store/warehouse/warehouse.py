"""The warehouse: Heddle's Delta tables, the lease that orders every commit, and the one rule of writing.

Every write of partials and results replaces exactly one interval of one table, atomically and idempotently
(design.md section 4): tasks write data files that no reader sees, and one commit names them and removes what they
replace. The design calls for Spark's ``replaceWhere``; committing the files that the tasks wrote gives the same
guarantee without sending every answer through the JVM's row writer twice. Small tables (workload, plans,
statistics, logs) are appended to. Every commit goes through delta-rs and through one lease, because two writers on
one path can lose a commit. A process can lose its lease without knowing (it was stopped, the database of the lease
was restarted). So every commit is also made on exactly the version of the table that it follows from, or not at all
(HDL-510): any process that has committed in between had the lease.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import re
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import Stream
from spark_jobs.store.storage import Place, check_bucket, is_refusal, store_error
from spark_jobs.store.warehouse import lease
from spark_jobs.store.warehouse.conditional import check_conditional
from spark_jobs.store.warehouse.data_files import (
    LOG,
    READ_ONLY,
    DataFile,
    is_awkward,
    log_place,
    now_millis,
    read_file,
    reading,
    statistics,
    unwritable,
    write_files,
    writing,
)
from spark_jobs.store.warehouse.held_tables import (
    PADDING,
    Files,
    checked_files,
    current_table,
    note_commit,
    pruned_dataset,
    with_small_files,
)
from spark_jobs.store.warehouse.lease import postgres_lease
from spark_jobs.store.warehouse.marker import Marker, write_marker
from spark_jobs.store.warehouse.schemas import COLUMNS, HOUR, INSTANT, LATER, MARKER, TABLES, TOKEN_DIGITS

Result = TypeVar("Result")

TRIES = 12
"""Number of tries of a commit to a store."""

FIRST_WAIT = 0.05
"""Seconds that are waited at most before a commit is tried a second time; twice as long each time after it."""

TOKEN = "heddle"
"""Key of a commit's token in its metadata."""

NOTE = "userMetadata"
"""Key of a commit's note in its metadata: Delta's own, a column of ``DESCRIBE HISTORY``."""

_CONFIGURATION = {"delta.isolationLevel": "Serializable"}

CHECKPOINT_EVERY = 10
"""Commits between two checkpoints in a store, where opening a table takes a request for each commit since the last
one.
"""

FAR = 1 << 62
"""Later than every moment (microseconds)."""

_COMMIT = re.compile(r"\d{20}\.json")


@dataclass(frozen=True)
class Warehouse:
    """A place that holds Heddle's tables. Open one with :meth:`open`. ``declared``: the streams as they are declared
    now, by name, where a command knows that (:mod:`spark_jobs.store.warehouse.places`). ``note``: the user metadata of
    its commits; empty: they have none. ``is_older``: an earlier Heddle wrote it, and only ``heddle upgrade --apply``
    may write to it."""

    place: Place
    declared: Callable[[], Mapping[str, Stream]] | None = field(default=None, compare=False, repr=False)
    note: str = field(default="", compare=False, repr=False)
    is_older: bool = field(default=False, compare=False, repr=False)

    @property
    def root(self) -> Path:
        """Its folder on this machine. Raises ValueError for a warehouse in a store."""
        return self.place.local()

    def is_at(self, root: str) -> bool:
        """Return whether a folder or URL is its place."""
        return self.place == _resolved(root)

    @classmethod
    def open(cls, root: str | os.PathLike[str] | Place, create: bool = True) -> Warehouse:
        """The warehouse at a folder or URL; an empty or missing place becomes one if ``create``.

        Writes nothing where nothing is missing. What an earlier Heddle wrote can be read, and is left as it is if that
        Heddle could not go on otherwise. Raises HDL-501 for a folder that holds something else, HDL-502 if there is
        none, HDL-503 for another format, HDL-545 if one cannot be made, HDL-546 for a path that is of no use.
        """
        existing = cls.existing(root)
        if existing is None:
            warehouse = cls(_resolved(root))
            if not create:
                raise HeddleError("HDL-502", f"there is no warehouse at {warehouse.place}", "`heddle run` makes one")
            lease.check_driver()
            try:
                warehouse.place.make_folder()
                if not warehouse.place.is_local:
                    check_conditional(warehouse.place)
                with warehouse.lease():
                    warehouse._create(TABLES)
            except (DeltaError, OSError) as error:
                raise unwritable(warehouse.place, error) from error
            return warehouse
        narrow = not existing.is_older and existing.marker.columns < COLUMNS
        # in a store the marker tells which tables there are: to ask for each takes a request
        looks = existing.place.is_local or narrow
        later = [name for name in LATER if not (existing.place / name).exists()] if looks else []
        if later or narrow:
            try:
                with replace(existing, is_older=False).lease():
                    existing._create(later)
                    if narrow:
                        existing._bring_up()
            except HeddleError as error:
                # what is there can be read all the same
                if error.diagnostic.code != READ_ONLY:
                    raise
        return existing

    @property
    def marker(self) -> Marker:
        """Its marker as it is now."""
        marker = Marker.read(self.place)
        if marker is None:
            raise HeddleError("HDL-502", f"there is no warehouse at {self.place}", "`heddle run` makes one")
        return marker

    def bring_up(self) -> None:
        """Add the columns that came later, also those whose rows an earlier Heddle cannot read. Keeps the marker of
        before beside the new one."""
        with replace(self, is_older=False).lease():
            (self.place / f"{MARKER}.{self.marker.columns}").put((self.place / MARKER).read())
            self._bring_up()

    def _bring_up(self) -> None:
        for name in ("results", "partials"):
            self._widen(name)
        write_marker(self.place, self.marker.id)

    @classmethod
    def existing(cls, root: str | os.PathLike[str] | Place) -> Warehouse | None:
        """The warehouse at a place; None if there is none and one could be made. Raises as :meth:`open` does."""
        path = _resolved(root)
        try:
            marker = Marker.read(path)
            if marker is None:
                check_bucket(path)
                if not _begun(path):
                    hint = "name a new or empty folder with --warehouse"
                    raise HeddleError("HDL-501", f"{path} is not a Heddle warehouse", hint)
                return None
        except OSError as error:
            if not path.is_local:
                raise store_error(path, error) from error
            raise _useless(path, error.strerror or str(error)) from error
        _identities[path.url] = marker.id
        marker.check(path)
        return cls(path, is_older=marker.is_older)

    @classmethod
    def stands(cls, root: str | os.PathLike[str] | Place) -> bool:
        """Return whether there is a warehouse at a place. Raises as :meth:`open` does for a URL that is none."""
        return (Place.of(root) / MARKER).info() is not None

    def _create(self, names: Iterable[str]) -> None:
        for name in names:
            schema, partition = TABLES[name]
            if is_awkward(self.path(name)):
                (self.place / name / LOG).make_folder()
            if not DeltaTable.is_deltatable(log_place(self.path(name))):
                DeltaTable.create(
                    log_place(self.path(name)),
                    schema=schema,
                    partition_by=partition or None,
                    configuration=_CONFIGURATION,
                    raise_if_key_not_exists=False,
                )
        if Marker.read(self.place) is None:
            write_marker(self.place)

    def _widen(self, name: str) -> None:
        """Add the columns to a table that came later than it was made; its rows have nulls in them."""
        table = self.table(name)
        known = {column.name for column in table.schema().fields}
        missing = [column for column in TABLES[name][0] if column.name not in known]
        if missing:
            with self.exactly(name, table) as properties:
                new_fields = Schema.from_arrow(pa.schema(missing)).fields
                table.alter.add_columns(new_fields, commit_properties=properties)

    def path(self, table: str) -> str:
        """Path or URL of a table."""
        return str(self.place / table)

    # --------------------------------------------------------------------------------------- lease
    @contextmanager
    def lease(self) -> Iterator[int]:
        """Hold the exclusive right to commit among all processes; yields the fencing token.

        A file lock on the warehouse: the system releases it if its holder dies. With ``HEDDLE_LEASE_DSN`` set
        (warehouses that several hosts write) it also takes a PostgreSQL advisory lock. Tokens only grow: a holder
        that reads a larger one has lost the lease and must not commit (:meth:`check_lease`). A store has no locks:
        there the version of each table is the token, and PostgreSQL only saves useless work.

        Raises HDL-645 if an earlier Heddle wrote the warehouse, HDL-503 if a newer one has since this process began.
        """
        if self.is_older:
            message = f"an earlier Heddle wrote {self.place}; this one reads it, and cannot write to it yet"
            hint = f"`heddle upgrade --check --warehouse {self.place}` shows what --apply changes, and how to go back"
            raise HeddleError("HDL-645", message, hint)
        if not self.place.is_local:
            with postgres_lease(self._lease_name):
                yield 0
            return
        path = self.root / ".lease"
        with postgres_lease(self._lease_name), lease.locked(path) as file:
            token = self._token(os.pread(file, TOKEN_DIGITS, 0)) + 1
            try:
                # as many digits as ever, over those before: whoever is killed here, or finds no room, leaves a token
                os.pwrite(file, b"%0*d" % (TOKEN_DIGITS, token), 0)
                os.fsync(file)
            except OSError as error:
                raise unwritable(path, error) from error
            if (marker := Marker.read(self.place)) is not None:
                marker.check(self.place)
            yield token

    def _lease_name(self) -> str:
        """Name of the warehouse for hosts, which may reach it by different paths: the random id from its creation."""
        marker = Marker.read(self.place)
        return str((marker and marker.id) or self.place)

    def check_lease(self, token: int) -> None:
        """Raises HDL-510 unless ``token`` is still the newest that was given out."""
        if not self.place.is_local:
            return
        try:
            newest = self._token((self.root / ".lease").read_bytes())
        except FileNotFoundError:
            newest = 0
        if newest != token:
            raise self._lost(f"token {token}, now {newest}")

    def _token(self, text: bytes) -> int:
        if text and not text.isdigit():
            raise HeddleError(
                "HDL-540",
                f"{self.root / '.lease'} does not hold the number of a lease",
                "remove the file while nothing writes to the warehouse",
            )
        return int(text or 0)

    def _lost(self, why: str) -> HeddleError:
        message = f"this process lost the lease of {self.place} ({why})"
        return HeddleError("HDL-510", message, "nothing was committed; run it again")

    def leased(self, step: Callable[[int], Result]) -> Result:
        """Call a step that reads and commits under the lease, with its token, and return its result.

        In a store, which has no binding lease, others may commit between the two (HDL-510): then the step is tried
        again from its reading on, :data:`TRIES` times in all, each time after a random wait.
        """
        for again in range(TRIES):
            try:
                with self.lease() as token:
                    return step(token)
            except HeddleError as error:
                if self.place.is_local or error.diagnostic.code != "HDL-510" or again == TRIES - 1:
                    raise
                time.sleep(random.uniform(0, FIRST_WAIT * 2 ** min(again, 5)))
        raise AssertionError

    # ------------------------------------------------------------------------- reading without a JVM
    def table(self, name: str, version: int | None = None) -> DeltaTable:
        """A table as it is now, or as it was in a version. Raises HDL-544 if its log cannot be read.

        A newest commit that is empty is one of which a crash of the machine has taken the content: Delta takes it for
        one that changed nothing.
        """
        try:
            delta_table = self._held(name) if name in TABLES else None
            if delta_table is None or (version is not None and version != delta_table.version()):
                delta_table = DeltaTable(log_place(self.path(name)), version=version)
            newest = self.place / name / LOG / f"{delta_table.version():020}.json"
            # a store has a commit whole or not at all
            if newest.is_local and newest.exists() and newest.local().stat().st_size == 0:
                raise OSError(f"{newest.name} is empty")
        except (DeltaError, OSError) as error:
            if not self.place.is_local and is_refusal(error):
                raise store_error(self.place, error) from error
            reason = str(error).splitlines()[0]
            hint = "put its _delta_log back as it was, from a copy; until then nothing is published"
            raise HeddleError("HDL-544", f"the log of {self.path(name)} cannot be read: {reason}", hint) from error
        return delta_table

    def _held(self, name: str) -> DeltaTable:
        """A table of the warehouse as it is now."""
        return current_table(*self._opened_by(name))

    def _opened_by(self, name: str) -> tuple[str, str, Path | None]:
        """The URL, the identity and the log of a table by which it is kept open."""
        log = self.place / name / LOG
        return log_place(self.path(name)), _identity(self.place), log.local() if log.is_local else None

    def dataset(
        self,
        table: str,
        current: DeltaTable | None = None,
        where: ds.Expression | None = None,
        files: Files | None = None,
    ) -> ds.Dataset:
        """A table as of ``current``, else as it is now. ``where``: of which at least the rows are there that meet this
        condition; each file less is some time less, in a store some requests. ``files``: as of
        :func:`spark_jobs.store.warehouse.held_tables.pruned_dataset`.

        Read by Arrow's own file system: behind delta-rs's, which is in Python, Arrow's threads are aborted together
        with the process if one of them lets go of a file while the interpreter ends.
        """
        current = self.table(table) if current is None else current
        pruned = pruned_dataset(current, (self.place / table).filesystem(), where, files)
        # of answers and partial aggregates each file has to be the one that was committed
        is_checked = table not in TABLES or "day" in TABLES[table][1]
        if is_checked:
            with reading(self.path(table)):
                pruned = checked_files(pruned, current, self.place / table, where)
        if not self.place.is_local:
            with reading(self.path(table)):
                pruned = with_small_files(pruned, current, where, is_checked)
        return _complete(table, pruned) if self.is_older and table in TABLES else pruned

    def checked_dataset(self, table: str, current: DeltaTable) -> ds.Dataset:
        """A table as of ``current`` for readers that bring no options of their own.

        Pages are checked as they are read, files without a requested row are skipped, and columns that came later
        exist, with nulls.
        """
        return _complete(table, self.dataset(table, current))

    def stored_rows(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: ds.Expression | None = None,
        current: DeltaTable | None = None,
    ) -> pa.Table:
        """Columns of the rows of a small table that meet a condition. Raises HDL-543 if its files cannot be read."""
        with reading(self.path(table)):
            dataset = self.dataset(table, current, where)
            return dataset.to_table(None if columns is None else list(columns), filter=where)

    def rows(self, table: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """All rows of one of the small tables."""
        rows: list[dict[str, Any]] = self.stored_rows(table, columns).to_pylist()
        return rows

    def newest_first(
        self, table: str, by: str, columns: Sequence[str], where: ds.Expression
    ) -> Iterator[tuple[pa.Table, int | None]]:
        """The rows of a small table that meet a condition, in pieces, those with the latest moments in the column
        ``by`` first: each with the latest (microseconds) that may still come, None after the last.

        Who stops early reads no more than it needs: pieces are groups of rows, and know their bounds.
        """
        current = self.table(table)
        actions = pa.table(current.get_add_actions(flatten=True))
        latest = actions[f"max.{by}"].cast(INSTANT).cast(pa.int64()).to_pylist()
        # an unknown bound is no bound; a log has milliseconds, cut off
        bounds = {
            path: None if known is None else known + PADDING["us"]
            for path, known in zip(actions["path"].to_pylist(), latest, strict=True)
        }
        waiting: list[tuple[int, int, ds.Fragment, bool]] = []
        number = itertools.count()
        with reading(self.path(table)):
            dataset = self.dataset(table, current, where)
            for file in dataset.get_fragments(filter=where):
                known = bounds.get(_file_name(file.path))
                heapq.heappush(waiting, (-(FAR if known is None else known), next(number), file, False))
            while waiting:
                _, _, piece, is_group = heapq.heappop(waiting)
                if not is_group:
                    latest_of = _latest(piece.metadata, by)
                    # files are older than columns that came later
                    for group in piece.split_by_row_group(filter=where, schema=dataset.schema):
                        known = latest_of[group.row_groups[0].id]
                        heapq.heappush(waiting, (-known, next(number), group, True))
                    continue
                with reading(self.path(table)):
                    rows = piece.to_table(dataset.schema, list(columns), filter=where)
                yield rows, -waiting[0][0] if waiting else None

    def latest_number(self, table: str, column: str) -> int | None:
        """The greatest number in a column of a small table, as its log has it; None: it has no rows."""
        actions = pa.table(self.table(table).get_add_actions(flatten=True))
        name = f"max.{column}"
        if name in actions.schema.names and not actions[name].null_count:
            return pc.max(actions[name]).as_py()
        return max((row[column] for row in self.rows(table, [column])), default=None)

    def version(self, table: str) -> int:
        """The newest version of a table."""
        return int(self.table(table).version())

    def state(self, table: str) -> str:
        """A name for the state of a table: its id, version and newest commit. The version is not enough: a folder can
        be removed and created again, or restored and continued otherwise."""
        delta_table = self.table(table)
        return f"{delta_table.metadata().id} {delta_table.version()} {delta_table.history(1)}"

    def append(
        self,
        table: str,
        rows: Sequence[dict[str, Any]],
        token: int,
        transaction: tuple[str, int] | None = None,
        since: int | None = None,
    ) -> None:
        """Append rows to a small table in one commit, under the caller's lease with its ``token``.

        ``transaction`` (application id, version): a commit of that id and a version at least as large exists
        exactly if this append was done before; then nothing is appended. ``since``: the version of the table that
        the rows follow from, if they depend on its content; it was read under the same lease. Raises HDL-510 if
        another process has committed to the table since.
        """
        if not rows:
            return
        current = self.table(table, since)
        # after the version is known: who gets the lease from now on commits after it, and this commit fails
        self.check_lease(token)
        done = None if transaction is None else current.transaction_version(transaction[0])
        if transaction is not None and done is not None and done >= transaction[1]:
            return
        data = pa.Table.from_pylist(list(rows), schema=TABLES[table][0])
        if is_awkward(self.path(table)):
            self.commit(table, current, [self.added_rows(table, current, data)], token, transaction)
            return
        before = int(current.version())
        with self.exactly(table, current, *([transaction] if transaction else [])) as properties:
            write_deltalake(
                current,
                data,
                mode="append",
                # columns that came later than the warehouse; what was written before has nulls in them
                schema_mode="merge",
                commit_properties=properties,
            )
        note_commit(*self._opened_by(table), before)

    def added_rows(self, table: str, current: DeltaTable, data: pa.Table) -> AddAction:
        """The rows as a file of a small table, which delta-rs cannot write where it cannot read the path."""
        known = {field.name for field in current.schema().fields}
        if known != set(data.schema.names):
            message = f"{self.path(table)} is of an earlier Heddle, and in a folder whose name has one of %, [, ], |, ^"
            raise HeddleError("HDL-546", message, "rename the folder, run anything, and rename it back")
        sink = pa.BufferOutputStream()
        pq.write_table(data, sink)
        content = sink.getvalue().to_pybytes()
        file = self.place / table / f"part-{uuid.uuid4().hex}.parquet"
        with writing(file):
            file.put(content)
        return AddAction(file.name, len(content), {}, now_millis(), True, statistics(data))

    @contextmanager
    def exactly(self, table: str, current: DeltaTable, *transactions: tuple[str, int]) -> Iterator[CommitProperties]:
        """Make one commit with the given properties, as the version after ``current``. Raises HDL-510 if that is not
        possible, HDL-542 if it cannot be written.

        Each commit has a unique token. It identifies a commit as ours that succeeded although it was reported as
        failed (the answer of a store was lost, or Delta's work after a commit failed).
        """
        before, token = int(current.version()), uuid.uuid4().hex
        properties = _properties(token, transactions, self.note)
        try:
            yield properties
            # not of all tables in the same run
            turn = list(TABLES).index(table) if table in TABLES else 0
            if not self.place.is_local and (before + 1) % CHECKPOINT_EVERY == turn % CHECKPOINT_EVERY:
                self._checkpoint(table)
        except (DeltaError, OSError) as error:
            if self.version(table) == before:
                raise unwritable(self.path(table), error) from error
            if self._token_of(table, before + 1) == token:
                return
            reason, _, _ = str(error).partition("\n")
            message = f"{self.path(table)} has changed since version {before}: {reason}"
            raise HeddleError("HDL-510", message, "run it again") from error

    def commit(
        self,
        table: str,
        current: DeltaTable,
        actions: Sequence[AddAction | RemoveAction],
        token: int,
        transaction: tuple[str, int] | None = None,
    ) -> None:
        """Commit data files of partials or results as the version after ``current``, which the caller read under the
        lease whose ``token`` it holds. Raises HDL-510 if another process has committed since."""
        self.check_lease(token)
        schema, partition_by = TABLES[table]
        with self.exactly(table, current, *([transaction] if transaction else [])) as properties:
            current.create_write_transaction(
                list(actions), "append", schema, partition_by, commit_properties=properties
            )

    def _checkpoint(self, table: str) -> None:
        """Write a checkpoint for readers to begin at. Without it they only take longer: an error shows when it is
        read.
        """
        with suppress(DeltaError, OSError):
            self.table(table).create_checkpoint()

    def _token_of(self, table: str, version: int) -> str | None:
        """The token of a commit (:meth:`exactly`); None if it has none, or cannot be read."""
        try:
            (commit,) = DeltaTable(log_place(self.path(table)), version=version).history(1)
        except (DeltaError, OSError, ValueError):
            return None
        return commit.get(TOKEN)

    def committed(self, table: str, application: str, revision: int, since: int = 0) -> int | None:
        """The version of ``table`` that a transaction made, after a moment (microseconds); None if none did, or if the
        table's log does not reach back to it."""
        log = self.place / table / LOG
        commits = [file for file in log.listed() if _COMMIT.fullmatch(file.name)]
        # clocks of hosts differ
        for file in commits[bisect_left(commits, since - HOUR, key=lambda file: file.modified) :]:
            for line in (log / file.name).read().splitlines():
                action = json.loads(line).get("txn")
                if action is not None and action["appId"] == application and action["version"] >= revision:
                    # a lower one never comes after a higher
                    return int(file.name.partition(".")[0]) if action["version"] == revision else None
        return None

    def transactions(self, table: str, since: int) -> Iterator[tuple[int, str, int]]:
        """Yield the commits to ``table`` after a version: the version that each made, the application and the version
        of its transaction. Raises HDL-541 if the table's log does not reach back.
        """
        for version in range(since + 1, self.version(table) + 1):
            try:
                text = (self.place / table / LOG / f"{version:020}.json").read()
            except FileNotFoundError as error:
                message = f"the log of {table} does not reach back to version {version}"
                raise HeddleError("HDL-541", message, "run it again") from error
            actions = (json.loads(line).get("txn") for line in text.splitlines())
            yield from ((version, action["appId"], action["version"]) for action in actions if action is not None)

    # --------------------------------------------------------------------- partials and results
    def files(
        self,
        table: str,
        first_day: str,
        last_day: str,
        current: DeltaTable | None = None,
        chosen: Files | None = None,
    ) -> list[dict[str, Any]]:
        """The committed data files of some days, by path: ``path``, ``day``, ``size`` and Delta's statistics
        (``min.<column>``, ``max.<column>``); as of ``current``, else of now. ``chosen``: a choice of them."""
        current = self.table(table) if current is None else current
        actions = pa.table(current.get_add_actions(flatten=True))
        if len(actions):
            days = actions["partition.day"]
            actions = actions.filter(pc.and_(pc.greater_equal(days, first_day), pc.less_equal(days, last_day)))
        if len(actions) and chosen is not None:
            actions = actions.filter(chosen(actions))
        data_files = [row | {"day": row["partition.day"], "size": row["size_bytes"]} for row in actions.to_pylist()]
        return sorted(data_files, key=lambda row: str(row["path"]))

    def replace(
        self,
        table: str,
        written: Sequence[DataFile],
        days: tuple[str, str],
        replaced: Callable[[pa.Table], pa.Array],
        interval: str,
        revision: int | None,
        untouched: Callable[[dict[str, Any]], bool] = lambda file: False,
        replaced_whole: Callable[[dict[str, Any]], bool] = lambda file: False,
        still: Callable[[], None] = lambda: None,
        rewritten: Rewritten | None = None,
    ) -> int:
        """Replace one interval of ``table`` by the rows of ``written``, in one commit; returns its version.

        - ``days``: first and last partition that the interval touches.
        - ``replaced(rows)``: the stored rows that it replaces (booleans).
        - ``untouched(file)``: True if a file's statistics show that it contains none of them.
        - ``replaced_whole(file)``: True if it contains no others, so that it may be removed even if it is
          damaged. Files with other rows too are rewritten without the replaced ones.
        - ``still()``, under the lease, raises if the stored content no longer matches ``written``.
        - ``rewritten`` counts the rewritten files.
        - ``interval`` and ``revision`` make the commit idempotent: the same revision of the same interval is
          committed once, a lower one never (HDL-512). ``revision`` None takes the table's next version, for rows
          that another run may have replaced in between.

        Raises HDL-511 if the table's log does not show the commit afterwards.
        """
        application = f"{table}/{interval}"

        def step(token: int) -> int:
            current = self.table(table)
            done = current.transaction_version(application)
            number = int(current.version()) + 1 if revision is None else revision
            if revision is not None and done is not None and done >= number:
                if done > number:
                    raise HeddleError(
                        "HDL-512", f"revision {number} of {interval} came after revision {done} was published"
                    )
                return self.committed(table, application, number) or 0
            still()
            self._check_staged(table, written)
            actions: list[AddAction | RemoveAction] = [added(file) for file in written]
            counted = Rewritten() if rewritten is None else rewritten
            counted.begin()
            for file in self.files(table, *days, current):
                if not untouched(file):
                    actions += self._without(table, file, replaced, replaced_whole, counted)
            self.commit(table, current, actions, token, (application, number))
            version = int(current.version()) + 1
            if (version, application, number) not in self.transactions(table, version - 1):
                raise HeddleError(
                    "HDL-511",
                    f"the commit of {application} revision {number} is not in the log of {self.path(table)}",
                    "another writer may have ignored the lease; run it again",
                )
            return version

        return self.leased(step)

    def _check_staged(self, table: str, written: Sequence[DataFile]) -> None:
        """Maintenance with a short retention may have taken staged files for left over: HDL-543."""
        for staged in written:
            place = self.place / table / staged.path
            with reading(place):
                info = place.info()
                if info is None or info.size != staged.size:
                    raise OSError("it is not as long as it was written")

    def _without(
        self,
        table: str,
        file: dict[str, Any],
        replaced: Callable[[pa.Table], pa.Array],
        replaced_whole: Callable[[dict[str, Any]], bool],
        rewritten: Rewritten,
    ) -> Iterator[AddAction | RemoveAction]:
        """Yield the actions for a stored file of which some rows are replaced; nothing, if none is."""
        root, gone_whole = (
            self.place / table,
            RemoveAction(file["path"], True, now_millis(), file["size"], {"day": file["day"]}),
        )
        try:
            rows = read_file(root / file["path"])
        except HeddleError:
            if not replaced_whole(file):
                raise
            yield gone_whole
            return
        rows = rows.append_column("day", pa.array([file["day"]] * len(rows), pa.string()))
        is_replaced = pc.fill_null(replaced(rows), False)
        count = pc.sum(is_replaced).as_py() or 0
        if count:
            yield gone_whole
            if count < len(rows):
                for new_file in write_files(root, rows.filter(pc.invert(is_replaced))):
                    rewritten.add(new_file)
                    yield added(new_file)


@dataclass
class Rewritten:
    """Unchanged answers that a commit rewrote because they shared a file with replaced ones: the new ``files``, their
    ``bytes`` and ``rows``.
    """

    files: int = 0
    bytes: int = 0
    rows: int = 0

    def begin(self) -> None:
        """Count from nothing: the commit is tried again."""
        self.files = self.bytes = self.rows = 0

    def add(self, file: DataFile) -> None:
        """Count one more file."""
        self.files, self.bytes, self.rows = self.files + 1, self.bytes + file.size, self.rows + file.rows


def _latest(footer: pq.FileMetaData, by: str) -> list[int]:
    """The latest moment (microseconds) of a column in each group of rows of a file. Of no other column: the statistics
    of all of them, of a hundred groups, take ten milliseconds."""
    (column,) = (number for number in range(footer.num_columns) if footer.schema.column(number).path == by)
    groups = (footer.row_group(number).column(column).statistics for number in range(footer.num_row_groups))
    return [FAR if each is None or not each.has_min_max else pa.scalar(each.max, INSTANT).value for each in groups]


def _complete(table: str, stored: ds.Dataset) -> ds.Dataset:
    """A dataset with the columns of a table that came later, with nulls."""
    missing = [column for column in TABLES[table][0] if column.name not in stored.schema.names]
    return ds.FileSystemDataset(list(stored.get_fragments()), pa.schema([*stored.schema, *missing]), stored.format)


def _file_name(path: str) -> str:
    """Name of a file in Delta's log of a table without partitions."""
    return path.rpartition("/")[2]


def _properties(token: str, transactions: Sequence[tuple[str, int]], note: str) -> CommitProperties:
    """A commit that is tried once: on the version that was read, never on a later one."""
    app_transactions = [Transaction(*transaction) for transaction in transactions]
    metadata = {TOKEN: token} | ({NOTE: note} if note else {})
    return CommitProperties(metadata, max_commit_retries=0, app_transactions=app_transactions or None)


def added(file: DataFile, data_change: bool = True) -> AddAction:
    """The commit's action for a file that was written. ``data_change``: it has rows that the table did not have."""
    return AddAction(file.path, file.size, {"day": file.day}, now_millis(), data_change, file.stats)


def _identity(place: Place) -> str:
    """Identity of a warehouse, to distinguish it from another one that was at its place before."""
    return _identities.get(place.url, "")


_identities: dict[str, str] = {}
"""Ids of the warehouses in stores that this process has opened, by URL."""


def _resolved(root: str | os.PathLike[str] | Place) -> Place:
    """A place, of a path without links. Raises HDL-546 for a path that leads nowhere, or is no text, and HDL-574 or
    HDL-575 for a URL that is none."""
    place = Place.of(root)
    if not place.is_local:
        return place
    try:
        path = place.local().expanduser().resolve()
        str(path).encode()
    except UnicodeEncodeError as error:
        raise _useless(place, "its name is not UTF-8") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise _useless(place, str(error)) from error
    return Place(str(path))


def _useless(path: Place, why: str) -> HeddleError:
    return HeddleError("HDL-546", f"{str(path)!r} can be no warehouse: {why}", "name another folder with --warehouse")


def _begun(place: Place) -> bool:
    """Return whether a place without a marker is empty, or contains only the remains of an interrupted creation."""
    if not place.is_local:
        return all(file.name.startswith(("_probe-", *(f"{name}/" for name in TABLES))) for file in place.listed(True))
    path = place.local()
    if not path.exists():
        return True
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir()}
    own_names = {name for name in names if name in TABLES or name == ".lease" or name.startswith(f".{MARKER}")}
    return not names or (".lease" in names and names <= own_names | {MARKER, MARKER + ".new"})
