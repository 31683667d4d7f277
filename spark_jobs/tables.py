"""The warehouse: Heddle's Delta tables, the lease that orders every commit, and the one rule of writing.

Every write of partials and results replaces exactly one interval of one table, atomically and idempotently
(design.md section 4). Tables that people and the planner read without a JVM (workload, plans, statistics, logs)
are appended to through delta-rs; partials and results are written by Spark. All commits of either kind go through
one lease, because two writers on one path can lose a commit.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from optimizer.errors import HeddleError
from spark_jobs.final_aggregates import ANSWERS
from spark_jobs.partial_aggregates import PARTIALS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARKER = "heddle.json"
FORMAT = 1

INSTANT = pa.timestamp("us", tz="UTC")

RESULTS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        *ANSWERS,
        pa.field("plan_version", pa.int64(), nullable=False),
        pa.field("revision", pa.int64(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
    ]
)
"""What consumers read, partitioned by ``day``: the UTC day of the window's last instant. One row an answer."""

TABLES: dict[str, tuple[pa.Schema, list[str]]] = {
    "workload_queries": (
        pa.schema(
            [
                pa.field("query", pa.string(), nullable=False),
                pa.field("fingerprint", pa.string(), nullable=False),
                pa.field("owner", pa.string()),
                pa.field("text", pa.string()),
                pa.field("definition", pa.string()),
                pa.field("event", pa.string(), nullable=False),
                pa.field("at", INSTANT, nullable=False),
            ]
        ),
        [],
    ),
    "stream_statistics": (
        pa.schema(
            [
                pa.field("stream", pa.string(), nullable=False),
                pa.field("interval_start", INSTANT, nullable=False),
                pa.field("interval_end", INSTANT, nullable=False),
                pa.field("rows", pa.int64(), nullable=False),
                pa.field("rate", pa.float64(), nullable=False),
                pa.field("groups_per_fragment", pa.float64()),
                pa.field("stage_cpu_seconds", pa.string()),
                pa.field("run_id", pa.string(), nullable=False),
                pa.field("at", INSTANT, nullable=False),
            ]
        ),
        [],
    ),
    "sharing_plans": (
        pa.schema(
            [
                pa.field("plan_version", pa.int64(), nullable=False),
                pa.field("created_at", INSTANT, nullable=False),
                pa.field("created_by", pa.string()),
                pa.field("reason", pa.string()),
                pa.field("fingerprint", pa.string(), nullable=False),
                pa.field("stream", pa.string(), nullable=False),
                pa.field("tree", pa.string(), nullable=False),
                pa.field("query", pa.string(), nullable=False),
                pa.field("row", pa.string(), nullable=False),
            ]
        ),
        [],
    ),
    "publish_log": (
        pa.schema(
            [
                pa.field("interval_start", INSTANT, nullable=False),
                pa.field("interval_end", INSTANT, nullable=False),
                pa.field("revision", pa.int64(), nullable=False),
                pa.field("run_id", pa.string(), nullable=False),
                pa.field("event", pa.string(), nullable=False),
                pa.field("plan_version", pa.int64(), nullable=False),
                pa.field("content", pa.string()),
                pa.field("answers", pa.int64()),
                pa.field("table_version", pa.int64()),
                pa.field("record", pa.string()),
                pa.field("at", INSTANT, nullable=False),
            ]
        ),
        [],
    ),
    "quality_results": (
        pa.schema(
            [
                pa.field("run_id", pa.string(), nullable=False),
                pa.field("interval_start", INSTANT, nullable=False),
                pa.field("interval_end", INSTANT, nullable=False),
                pa.field("check", pa.string(), nullable=False),
                pa.field("success", pa.bool_(), nullable=False),
                pa.field("detail", pa.string()),
                pa.field("at", INSTANT, nullable=False),
            ]
        ),
        [],
    ),
    "quarantine": (
        pa.schema(
            [
                pa.field("run_id", pa.string(), nullable=False),
                pa.field("stream", pa.string(), nullable=False),
                pa.field("code", pa.string(), nullable=False),
                pa.field("rows", pa.int64(), nullable=False),
                pa.field("detail", pa.string()),
                pa.field("at", INSTANT, nullable=False),
            ]
        ),
        [],
    ),
    "partials": (PARTIALS, ["day"]),
    "results": (RESULTS, ["day"]),
}
"""Schema and partition columns of each table."""


@dataclass(frozen=True)
class Warehouse:
    """A folder that holds Heddle's tables. Open one with :meth:`open`."""

    root: Path

    @classmethod
    def open(cls, root: str | os.PathLike[str], create: bool = True) -> Warehouse:
        """The warehouse at a folder; an empty or missing folder becomes one if ``create``.

        Raises HDL-501 for a folder that holds something else, HDL-502 if there is none, HDL-503 for a newer format.
        """
        path = Path(root).expanduser().resolve()
        marker = path / MARKER
        if not marker.exists():
            if path.exists() and (not path.is_dir() or any(name.name != ".lease" for name in path.iterdir())):
                raise HeddleError(
                    "HDL-501",
                    f"{path} is not a Heddle warehouse",
                    "name a new or empty folder with --warehouse",
                )
            if not create:
                raise HeddleError("HDL-502", f"there is no warehouse at {path}", "`heddle run` makes one")
            path.mkdir(parents=True, exist_ok=True)
        warehouse = cls(path)
        if not marker.exists():
            with warehouse.lease():
                warehouse._create()
        found = json.loads(marker.read_text())
        if found.get("format", 0) > FORMAT:
            raise HeddleError(
                "HDL-503",
                f"{path} was written by a newer Heddle (format {found['format']})",
                "upgrade Heddle",
            )
        return warehouse

    def _create(self) -> None:
        if (self.root / MARKER).exists():
            return
        for name, (schema, partition) in TABLES.items():
            if not DeltaTable.is_deltatable(str(self.root / name)):
                DeltaTable.create(
                    str(self.root / name),
                    schema=schema,
                    partition_by=partition or None,
                    configuration={"delta.isolationLevel": "Serializable"},
                    raise_if_key_not_exists=False,
                )
        temporary = self.root / (MARKER + ".new")
        temporary.write_text(json.dumps({"kind": "heddle warehouse", "format": FORMAT}))
        temporary.rename(self.root / MARKER)

    def path(self, table: str) -> str:
        return str(self.root / table)

    # --------------------------------------------------------------------------------------- lease
    @contextmanager
    def lease(self) -> Iterator[int]:
        """Hold the right to commit, alone among all processes; yields the fencing token.

        A file lock on the warehouse: released by the system if its holder dies. With ``HEDDLE_LEASE_DSN`` set
        (warehouses that several hosts write) a PostgreSQL advisory lock is held as well. Tokens only grow: a
        holder that finds a larger one has lost the lease and must not commit (:meth:`check_lease`).
        """
        path = self.root / ".lease"
        with path.open("a+") as file, _postgres_lease(str(self.root)):
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            token = int(file.read() or 0) + 1
            file.seek(0)
            file.truncate()
            file.write(str(token))
            file.flush()
            os.fsync(file.fileno())
            yield token

    def check_lease(self, token: int) -> None:
        """Raises HDL-510 unless ``token`` is still the newest that was given out."""
        newest = int((self.root / ".lease").read_text() or 0)
        if newest != token:
            raise HeddleError(
                "HDL-510",
                f"this process lost the lease of {self.root} (token {token}, now {newest})",
                "nothing was committed; run it again",
            )

    # ------------------------------------------------------------------------- reading without a JVM
    def rows(self, table: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """All rows of one of the small tables."""
        found: list[dict[str, Any]] = (
            DeltaTable(self.path(table)).to_pyarrow_table(columns=columns).to_pylist()
        )
        return found

    def version(self, table: str) -> int:
        return int(DeltaTable(self.path(table)).version())

    def append(
        self,
        table: str,
        rows: Sequence[dict[str, Any]],
        token: int,
        transaction: tuple[str, int] | None = None,
    ) -> None:
        """Append rows to a small table in one commit, under the lease whose ``token`` the caller holds.

        ``transaction`` (application id, version): a commit of that id and a version at least as large is there
        already exactly if this append was done before; it is then left out.
        """
        if not rows:
            return
        self.check_lease(token)
        properties = CommitProperties()
        if transaction is not None:
            done = DeltaTable(self.path(table)).transaction_version(transaction[0])
            if done is not None and done >= transaction[1]:
                return
            properties = CommitProperties(app_transactions=[Transaction(*transaction)])
        schema = TABLES[table][0]
        write_deltalake(
            self.path(table),
            pa.Table.from_pylist(list(rows), schema=schema),
            mode="append",
            commit_properties=properties,
        )

    # ------------------------------------------------------------------------------ writing by Spark
    def replace(
        self, table: str, frame: DataFrame, predicate: str, interval: str, revision: int | None
    ) -> int:
        """Replace the rows of ``table`` that satisfy ``predicate`` by ``frame``, in one commit; its version.

        ``predicate`` bounds the partition column by literals. ``interval`` and ``revision`` make the commit
        idempotent: the same revision of the same interval is written once, a lower one never. ``revision``
        None takes the table's next version: for rows that another run may have replaced in between.
        Raises HDL-511 if the table's log does not show the commit afterwards.
        """
        application = f"{table}/{interval}"
        with self.lease() as token:
            done = DeltaTable(self.path(table)).transaction_version(application)
            if revision is None:
                revision = self.version(table) + 1
            elif done is not None and done >= revision:
                if done > revision:
                    raise HeddleError(
                        "HDL-512",
                        f"revision {revision} of {interval} came after revision {done} was published",
                    )
                return self.version(table)
            self.check_lease(token)
            (
                frame.write.format("delta")
                .mode("overwrite")
                .option("replaceWhere", predicate)
                .option("txnAppId", application)
                .option("txnVersion", str(revision))
                .save(self.path(table))
            )
            written = DeltaTable(self.path(table))
            if written.transaction_version(application) != revision:
                raise HeddleError(
                    "HDL-511",
                    f"the commit of {application} revision {revision} is not in the log of {self.path(table)}",
                    "another writer may have ignored the lease; run it again",
                )
            return int(written.version())


@contextmanager
def _postgres_lease(name: str) -> Iterator[None]:
    dsn = os.environ.get("HEDDLE_LEASE_DSN")
    if not dsn:
        yield
        return
    import psycopg2

    connection = psycopg2.connect(dsn)
    try:
        with connection.cursor() as cursor:
            # released by the server when the connection ends, however it ends
            cursor.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (name,))
        yield
    finally:
        connection.close()
