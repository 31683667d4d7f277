"""Land the current records of a Kafka topic in a Delta table, each record exactly once.

Spark's Structured Streaming reads the available records (``availableNow``) in batches of a bounded size. Its checkpoint
records the offsets of a batch before the batch runs, and its completion afterwards. A batch is written to two Delta
tables with the id of the checkpoint and the batch's number as Delta's transaction. After a crash anywhere the same
offsets are read again under the same number, and a table that already has them skips them.

The table has no partitions: its log has the least and the greatest event time of each file, by which readers skip
files. Folders by the day of arrival would not help with event time, and would make small files of late records.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimizer.errors.diagnostics import Diagnostic, HeddleError, count, printable
from optimizer.errors.redaction import redacted
from optimizer.workload.streams import is_readable, load_streams
from optimizer.workload.values import Stream
from spark_jobs.store.settings import settings
from spark_jobs.streams.landing import kafka
from spark_jobs.streams.landing.avro import AvroSchema
from spark_jobs.streams.landing.places import Landing, landing
from spark_jobs.streams.landing.records import MARK, QUARANTINE, Records
from spark_jobs.streams.sources.formats import format_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 1_000_000
"""Records of a batch at most, of all partitions together."""

FILE_ROWS = 1_000_000
"""Rows of a file of the table, about."""

STARTS = ("earliest", "latest")

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True)
class Topic:
    """A topic, and the place where it is landed.

    Parameters
    ----------
    name
        Name of the topic.
    servers
        ``host:port``, several separated by commas.
    stream
        The stream whose columns the records have.
    table
        The folder of the Delta table.
    avro
        The schema of its records; None: they are JSON objects.
    checkpoint
        A folder; None: in the table's.
    starting
        ``earliest`` or ``latest``: where a topic without a checkpoint begins.
    """

    name: str
    servers: str
    stream: Stream
    table: Path
    avro: AvroSchema | None = None
    checkpoint: Path | None = None
    starting: str = "earliest"


@dataclass(frozen=True)
class Landed:
    """Result of landing: the numbers of records in the table and in the quarantine, and of batches."""

    topic: str
    table: str
    quarantine: str
    landed: int
    quarantined: int
    batches: int

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON."""
        return asdict(self)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Warnings about the result: HDL-629 if records did not fit."""
        if not self.quarantined:
            return ()
        message = f"topic {self.topic}: {count(self.quarantined, 'record')} did not fit the stream"
        hint = f"the Delta table {self.quarantine} has them, each with the reason (`why`)"
        return (Diagnostic("HDL-629", message, hint, severity="warning"),)


def topic_of(
    name: str,
    servers: str,
    streams: str | Path,
    stream: str | None = None,
    table: str | Path | None = None,
    avro_schema: str | Path | None = None,
    checkpoint: str | Path | None = None,
    starting: str = "earliest",
) -> Topic:
    """A topic from the options of a command. ``stream``: by default the topic's name; ``table``: by default the place
    that the stream is read from. Raises HDL-626 for a topic that cannot be landed, and the errors of the stream.
    """
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise HeddleError("HDL-626", f"{printable(name, 100)!r} is no topic", "letters, digits, '.', '_' and '-'")
    if starting not in STARTS:
        raise HeddleError("HDL-626", f"--starting is {starting!r}", "earliest or latest")
    known, diagnostics = load_streams(streams, settings().source_roots)
    chosen = known.get(stream or name)
    if chosen is None:
        errors = [each for each in diagnostics if each.severity == "error"]
        if errors:
            raise HeddleError.of(errors[0])
        hint = f"--stream names one of {', '.join(sorted(known)[:20])}"
        raise HeddleError("HDL-626", f"{streams} declares no stream {stream or name}", hint)
    if table is None and not format_of(chosen).is_landed:
        message = f"stream {chosen.name} is read from {chosen.source.format} files, no Delta table"
        raise HeddleError("HDL-626", message, "say by --to where its table is to be")
    avro = None if avro_schema is None else AvroSchema.of(_text(Path(avro_schema)))
    place = _folder(chosen.source.path if table is None else str(table), "--to")
    checkpoint_folder = None if checkpoint is None else _folder(str(checkpoint), "--checkpoint")
    return Topic(name, servers, chosen, place, avro, checkpoint_folder, starting)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise HeddleError(
            "HDL-626", f"the Avro schema cannot be read: {reason}", "name its file", file=str(path)
        ) from None


def _folder(text: str, option: str) -> Path:
    """A folder of this machine, links followed."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text):
        message = f"{option} is no folder here ({redacted(text)})"
        hint = "streams are read from folders, and Spark's Delta can lose commits in stores"
        raise HeddleError("HDL-626", message, hint)
    place, roots = Path(text).resolve(), settings().source_roots
    if not is_readable(place, None if roots is None else [Path(root).resolve() for root in roots]):
        raise HeddleError("HDL-626", f"{option} lies where no stream is read from", "HEDDLE_SOURCES names the folders")
    return place


def land(
    spark: SparkSession, topic: Topic, report: Callable[[str], None] = lambda line: None, most: int = BATCH
) -> Landed:
    """Land all records that the topic has when this begins, ``most`` a batch.

    Raises HDL-626 (it cannot be landed so), HDL-627 (tables and checkpoint do not belong together), HDL-628 (Kafka
    cannot be reached, refuses, or has lost records that were not landed). What a batch brought before stays.
    """
    records = Records.of(topic.stream, topic.avro)
    options = kafka.options()
    kafka.check_servers(topic.servers)
    with landing(topic.name, topic.table, topic.checkpoint, records) as place:
        batches = _Batches(place, records, report)
        _run(spark, topic, options, place, batches.write, most)
    return Landed(
        topic.name, str(place.table), str(place.quarantine), batches.landed, batches.quarantined, batches.count
    )


class _Batches:
    """Process each batch, and count its records."""

    def __init__(self, place: Landing, records: Records, report: Callable[[str], None]) -> None:
        self.place, self.records, self.report = place, records, report
        self.landed = self.quarantined = self.count = 0

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch into both tables; into each once, however often it is called with one number."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema

        plain = batch.select("key", "value", "topic", "partition", "offset", "timestamp")
        parsed = plain.mapInArrow(self.records.read, from_arrow_schema(self.records.parsed)).persist()
        try:
            is_bad = F.col(f"{MARK}why").isNotNull()
            totals = parsed.agg(F.count("*").alias("rows"), F.count_if(is_bad).alias("bad")).first()
            rows, bad = (totals["rows"], totals["bad"]) if totals is not None else (0, 0)
            extra = [name for name in self.records.parsed.names if name.startswith(MARK)]
            append(parsed.where(~is_bad).drop(*extra), self.place.table, self.place.application, number, rows - bad)
            if bad:
                columns = [
                    F.col(name if name.startswith("kafka_") else MARK + name).alias(name) for name in QUARANTINE.names
                ]
                append(
                    parsed.where(is_bad).select(*columns), self.place.quarantine, self.place.application, number, bad
                )
        finally:
            parsed.unpersist()
        self.landed, self.quarantined, self.count = self.landed + rows - bad, self.quarantined + bad, self.count + 1
        self.report(f"batch {number}: {count(rows - bad, 'record')}, {bad:,} in quarantine")


def append(frame: DataFrame, folder: Path, application: str, number: int, rows: int) -> None:
    """Append to a table as transaction ``number``, which a table has once."""
    files = max(1, -(-rows // FILE_ROWS))
    writer = frame.coalesce(files).write.format("delta").mode("append")
    writer.option("txnAppId", application).option("txnVersion", number).save(str(folder))


def _run(
    spark: SparkSession,
    topic: Topic,
    options: dict[str, str],
    place: Landing,
    write: Callable[[DataFrame, int], None],
    most: int,
) -> None:
    """Run the query to its end."""
    from pyspark.errors import PySparkException

    reader = spark.readStream.format("kafka").option("kafka.isolation.level", "read_committed")
    for name, value in options.items():
        reader = reader.option(f"kafka.{name}", value)
    reader = reader.option("kafka.bootstrap.servers", topic.servers).option("subscribe", topic.name)
    reader = reader.option("startingOffsets", topic.starting).option("failOnDataLoss", "true")
    reader = reader.option("maxOffsetsPerTrigger", most)
    try:
        writer = reader.load().writeStream.option("checkpointLocation", str(place.checkpoint))
        query = writer.trigger(availableNow=True).foreachBatch(write).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
    except PySparkException as error:
        raise _failure(topic, error) from error


_REASONS = (
    (r"UnknownTopicOrPartition", "there is no such topic", "make it, or name another"),
    (r"(?i)authoriz|authenticat|SaslException|SSLHandshake", "Kafka refuses", "check the file of HEDDLE_KAFKA_OPTIONS"),
    (
        r"KAFKA_DATA_LOSS|OffsetOutOfRange|data may have been lost|failOnDataLoss|aged out",
        "records that were not landed are gone from Kafka, or the topic was made anew",
        "keep records longer there; to go on with what is left, land into another folder",
    ),
    (r"TimeoutException|DisconnectException|Failed to construct kafka|ConfigException", "Kafka does not answer as it "
     "should", "check --servers, and the file of HEDDLE_KAFKA_OPTIONS"),
)  # fmt: skip


def _failure(topic: Topic, error: Exception) -> HeddleError:
    """The coded error of a query that failed; others are raised again as they are."""
    text = redacted(str(error))
    for pattern, meaning, hint in _REASONS:
        if re.search(pattern, text):
            first = printable(text.strip().partition("\n")[0], 300)
            return HeddleError("HDL-628", f"topic {topic.name}: {meaning} ({first})", hint)
    raise error
