"""OpenLineage events of a run: from streams to the answers of queries, and from there to the tables of queries.

:func:`lineage_events` is pure: it makes events, as JSON data, of a run's record, its plan and the registered queries.
:mod:`spark_jobs.operations.lineage_delivery` sends them. A run is up to three jobs, each with its events:

- ``<warehouse>.answers`` reads streams and writes the answers of queries;
- ``<warehouse>.checks`` reads answers and has the outcomes of their checks;
- ``<warehouse>.tables`` reads answers and writes the tables of queries.

No event has the text of a query, a literal or a value: what is sent are names, types, numbers and codes.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import metadata
from typing import Any

import pyarrow as pa

from optimizer.errors.codes import CODES
from optimizer.errors.redaction import redacted
from optimizer.plan.column_lineage import Dependency, Source, column_lineage
from optimizer.plan.definition import SharingPlan
from optimizer.workload.attributes import attributes_in, read_attribute
from optimizer.workload.instants import format_instant
from optimizer.workload.urls import scheme_of
from optimizer.workload.values import ACQ, SECOND, Dimension, Origin, Stream
from spark_jobs.results.own_table import FOLDER
from spark_jobs.results.table_rows import columns_of, made_columns
from spark_jobs.store.warehouse.checks_log import RECOMPUTED
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.registry import Registered

SPEC = "https://openlineage.io/spec"

EVENT_SCHEMA = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"

RUN_FACET = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunFacet"
"""Schema of a run facet that OpenLineage does not define."""

FACETS = {
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "dataQualityAssertions": "1-1-0/DataQualityAssertionsDatasetFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
    "inputStatistics": "1-0-0/InputStatisticsInputDatasetFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
    "nominalTime": "1-0-1/NominalTimeRunFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "ownership": "1-0-1/OwnershipDatasetFacet",
    "parent": "1-2-0/ParentRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet",
    "schema": "1-2-0/SchemaDatasetFacet",
}
"""Version and class of each facet that is sent, by its name."""

MOST_DATASETS = 500
"""Output datasets of an event. A run with more has further events of the type RUNNING, each with as many."""

DATABASES = {"postgresql": "postgres"}
"""Schemes of JDBC that OpenLineage calls otherwise."""

_JDBC = re.compile(r"jdbc:[a-z0-9]+:(?://([\w.:\[\]-]+)(?:/([\w.$-]*))?(?:[?;].*)?)?", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Dataset:
    """A dataset of an event: its namespace and name, and its facets by the kinds that an event has."""

    namespace: str
    name: str
    facets: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)

    def to_json(self, role: str) -> dict[str, Any]:
        """The dataset as ``role`` ("inputs" or "outputs") of an event."""
        kind = {"inputs": "inputFacets", "outputs": "outputFacets"}[role]
        return {"namespace": self.namespace, "name": self.name, "facets": self.facets, kind: getattr(self, role)}


@dataclass(frozen=True)
class Parent:
    """The run that started a run: job namespace, job name and run id."""

    namespace: str
    job: str
    run_id: str

    @classmethod
    def parse(cls, text: str) -> Parent | None:
        """The parent of ``OPENLINEAGE_PARENT_ID``: namespace/job/run id; None for any other text."""
        parts = text.strip().rsplit("/", 2)
        try:
            return cls(parts[0], parts[1], str(uuid.UUID(parts[2]))) if len(parts) == 3 and all(parts) else None
        except ValueError:
            return None


@dataclass(frozen=True)
class LineageRun:
    """A run whose lineage is told.

    ``registered``: the registered queries by name, with their owners and tables of now; ``place``: the folder or URL of
    the warehouse; ``ended``: when it ended (microseconds); ``namespace``: of its jobs.
    """

    record: RunRecord
    plan: SharingPlan
    registered: Mapping[str, Registered]
    place: str
    ended: int
    namespace: str = "heddle"
    parent: Parent | None = None

    @property
    def answered(self) -> list[ACQ]:
        """The queries that it answered: no error names them, and their stream could be read."""
        errors = (each for each in self.record.diagnostics if each["severity"] == "error")
        failed = {each.get("query") for each in errors}
        return [
            query
            for query in self.plan.workload.queries
            if query.name not in failed and query.stream not in self.record.failed
        ]

    @property
    def dimensions(self) -> list[Dimension]:
        """The dimensions that its answered queries join, each once."""
        joined: dict[str, Dimension] = {}
        for query in self.answered:
            stream = self.plan.workload.stream(query.stream)
            names = (attribute.dimension for attribute in attributes_in(stream, query.columns()).values())
            joined |= {name: stream.dimension(name) for name in names}
        return [joined[name] for name in sorted(joined)]

    @property
    def streams(self) -> list[Stream]:
        """The streams that its plan reads, and that could be read."""
        names = {query.stream for query in self.plan.workload.queries} - set(self.record.failed)
        return [stream for stream in self.plan.workload.streams if stream.name in names]

    def job(self, part: str) -> str:
        """The name of one of its jobs."""
        return f"{redacted(self.place.rstrip('/').rpartition('/')[2]) or 'heddle'}.{part}"

    def run_id(self, part: str) -> str:
        """The id of the run of one of its jobs: of another try it is another one."""
        record = self.record
        parts = (self.place, record.run_id, record.begin, record.end, self.ended, part)
        return str(uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(map(str, parts))))

    def owner(self, query: ACQ) -> str:
        """The owner of a query, as it is registered now."""
        return self.registered[query.name].last.owner if query.name in self.registered else query.owner

    def table(self, query: ACQ) -> str | None:
        """The name of a query's own table; None: it has none."""
        table = self.registered[query.name].table if query.name in self.registered else query.table
        return table.name if table is not None else None


def lineage_events(run: LineageRun) -> list[dict[str, Any]]:
    """The events of a run that published or failed, in their order; none of a run that had nothing to do."""
    if run.record.status == "unchanged":
        return []
    inputs = [stream_dataset(run, stream) for stream in run.streams]
    inputs += [dimension_dataset(dimension) for dimension in run.dimensions]
    if run.record.status != "published":
        return [*_events(run, "answers", inputs, [], "FAIL"), *_checks(run)]
    outputs = [results_dataset(run), *(answers_dataset(run, query) for query in run.answered)]
    return [*_events(run, "answers", inputs, outputs), *_checks(run), *_tables(run)]


def _checks(run: LineageRun) -> list[dict[str, Any]]:
    """The events of the checks of a run, whose inputs are what was checked."""
    by_query: dict[str, list[dict[str, Any]]] = {}
    of_all = []
    for check in run.record.checks:
        name = str(check["check"])
        if name.startswith(RECOMPUTED):
            query = name.removeprefix(RECOMPUTED).removesuffix(")")
            by_query.setdefault(query, []).append(_assertion("shared=unshared", name, check["success"]))
        else:
            kind = name.removeprefix("gx:").partition("(")[0]
            of_all.append(_assertion(kind, name, check["success"]))
    checked = [(results_dataset(run), of_all)] if of_all else []
    names = {query.name for query in run.plan.workload.queries}
    checked += [(_answers_named(run, name), assertions) for name, assertions in by_query.items() if name in names]
    inputs = []
    for dataset, assertions in checked:
        facet = _facet("dataQualityAssertions", assertions=assertions)
        inputs.append(Dataset(dataset.namespace, dataset.name, inputs={"dataQualityAssertions": facet}))
    return _events(run, "checks", inputs, []) if inputs else []


def _assertion(kind: str, name: str, success: object) -> dict[str, Any]:
    return {"assertion": kind, "success": bool(success), "severity": "error", "name": name}


def _tables(run: LineageRun) -> list[dict[str, Any]]:
    """The events of the tables of queries; none if no answered query has one."""
    pairs = [(query, table) for query in run.answered if (table := run.table(query)) is not None]
    inputs = [_answers_named(run, query.name) for query, _ in pairs]
    outputs = [own_table_dataset(run, query, table) for query, table in pairs]
    return _events(run, "tables", inputs, outputs) if pairs else []


def _events(
    run: LineageRun, part: str, inputs: Sequence[Dataset], outputs: Sequence[Dataset], end: str = "COMPLETE"
) -> list[dict[str, Any]]:
    """The events of one job of a run: START, and the last one, with all datasets; RUNNING before it for very many."""
    began = run.ended - round(sum(run.record.wall_seconds.values()) * SECOND)
    pieces = [outputs[first : first + MOST_DATASETS] for first in range(0, len(outputs), MOST_DATASETS)] or [()]
    types = ["RUNNING"] * (len(pieces) - 1) + [end]
    events = [_event(run, part, "START", began, inputs, ())]
    return events + [
        _event(run, part, type, run.ended, inputs, piece) for type, piece in zip(types, pieces, strict=True)
    ]


def _event(
    run: LineageRun, part: str, type: str, at: int, inputs: Sequence[Dataset], outputs: Sequence[Dataset]
) -> dict[str, Any]:
    job = _facet("jobType", processingType="BATCH", integration="HEDDLE", jobType="RUN")
    return {
        "eventType": type,
        "eventTime": format_instant(at),
        "producer": producer(),
        "schemaURL": EVENT_SCHEMA,
        "run": {"runId": run.run_id(part), "facets": _run_facets(run, part, type)},
        "job": {"namespace": run.namespace, "name": run.job(part), "facets": {"jobType": job}},
        "inputs": [dataset.to_json("inputs") for dataset in inputs],
        "outputs": [dataset.to_json("outputs") for dataset in outputs],
    }


def _run_facets(run: LineageRun, part: str, type: str) -> dict[str, Any]:
    record = run.record
    interval = {"nominalStartTime": format_instant(record.begin), "nominalEndTime": format_instant(record.end)}
    facets = {
        "nominalTime": _facet("nominalTime", **interval),
        "processing_engine": _facet("processing_engine", version=metadata.version("heddle"), name="Heddle"),
        "heddle_run": {
            "_producer": producer(),
            "_schemaURL": RUN_FACET,
            "runId": redacted(record.run_id),
            "planVersion": record.plan_version,
            "revision": record.revision,
        },
    }
    parent = run.parent if part == "answers" else Parent(run.namespace, run.job("answers"), run.run_id("answers"))
    if parent is not None:
        job = {"namespace": parent.namespace, "name": parent.job}
        facets["parent"] = _facet("parent", run={"runId": parent.run_id}, job=job)
    if type == "FAIL":
        codes = dict.fromkeys(each["code"] for each in record.diagnostics if each["severity"] == "error")
        # a message may name values of events
        meanings = [f"{code} {CODES[code].meaning}" if code in CODES else str(code) for code in codes]
        message = " ".join(meanings) or "The run failed."
        facets["errorMessage"] = _facet("errorMessage", message=message, programmingLanguage="PYTHON")
    return facets


def _facet(kind: str, **fields: Any) -> dict[str, Any]:
    name = FACETS[kind].partition("/")[2]
    return {"_producer": producer(), "_schemaURL": f"{SPEC}/facets/{FACETS[kind]}.json#/$defs/{name}", **fields}


@lru_cache(1)
def producer() -> str:
    """The URI that events say they come from."""
    return f"urn:heddle:{metadata.version('heddle')}"


# -------------------------------------------------------------------------------------------------- datasets
def dataset_name(place: str) -> tuple[str, str]:
    """Namespace and name of a folder, file or URL, by OpenLineage's rules for the names of datasets."""
    scheme = scheme_of(place)
    if scheme is None:
        return "file", redacted(place)
    bucket, _, path = place.partition("://")[2].partition("/")
    return redacted(f"{scheme}://{bucket}"), redacted(path.strip("/")) or "/"


def origin_name(origin: Origin) -> tuple[str, str]:
    """Namespace and name of what only Spark reads."""
    if origin.path.startswith("jdbc:"):
        scheme = origin.path.split(":")[1]
        # of an address with a user only the table is named: what follows the user cannot be told from a password
        address = None if "@" in origin.path else _JDBC.fullmatch(origin.path)
        host, database = (address[1], address[2]) if address is not None else ("", "")
        parts = filter(None, (database, origin.table))
        return f"{DATABASES.get(scheme, scheme)}://{host or ''}", redacted(".".join(parts))
    return dataset_name(origin.path) if origin.path else ("spark", redacted(origin.table or origin.format))


def stream_dataset(run: LineageRun, stream: Stream) -> Dataset:
    """The dataset of a stream: the files or table that its events come from, before they are copied."""
    origin = stream.source.origin
    namespace, name = dataset_name(stream.source.path) if origin is None else origin_name(origin)
    columns = [{"name": column, "type": str(type)} for column, type in stream.schema]
    columns += [{"name": column, "type": "struct"} for column, _ in stream.nested]
    statistics = {}
    if stream.name in run.record.scanned:
        _, _, events = run.record.scanned[stream.name]
        statistics["inputStatistics"] = _facet("inputStatistics", rowCount=events)
    return Dataset(namespace, name, {"schema": _facet("schema", fields=columns)}, statistics)


def dimension_dataset(dimension: Dimension) -> Dataset:
    """The dataset of a dimension: the files or table that its rows come from."""
    columns = [{"name": column, "type": str(type)} for column, type in dimension.schema]
    return Dataset(*dataset_name(dimension.source.path), {"schema": _facet("schema", fields=columns)})


def results_dataset(run: LineageRun) -> Dataset:
    """The Delta table with the answers of all queries."""
    statistics = _facet("outputStatistics", rowCount=run.record.answers)
    return Dataset(*dataset_name(f"{run.place.rstrip('/')}/results"), outputs={"outputStatistics": statistics})


def answers_dataset(run: LineageRun, query: ACQ) -> Dataset:
    """The answers of a query, which are rows of the results."""
    stream = run.plan.workload.stream(query.stream)
    lineage, schema = column_lineage(query, stream), _columns(query)
    known = {dimension.name: dimension_dataset(dimension) for dimension in stream.dimensions} | {
        "": stream_dataset(run, stream)
    }
    groups, outputs = made_columns(query, schema)
    sources: dict[str, Iterable[Source]] = dict.fromkeys(("window_start", "window_end", "instant"), lineage.window)
    sources |= dict(zip((*groups, *outputs), (*lineage.groups, *lineage.outputs), strict=True))
    fields = {name: {"inputFields": _inputs_of(known, of)} for name, of in sources.items()}
    facets = {
        "schema": _schema(schema),
        "columnLineage": _facet("columnLineage", fields=fields, dataset=_inputs_of(known, lineage.answers)),
        **_ownership(run.owner(query)),
    }
    return replace(_answers_named(run, query.name), facets=facets)


def _answers_named(run: LineageRun, query: str) -> Dataset:
    return Dataset(*dataset_name(f"{run.place.rstrip('/')}/results/{query}"))


def own_table_dataset(run: LineageRun, query: ACQ, table: str) -> Dataset:
    """A query's own table, each column of which is that of its answers."""
    schema, source = _columns(query), _answers_named(run, query.name)
    fields = {name: {"inputFields": _inputs(source, [(name, Dependency.IDENTITY)])} for name in schema.names}
    facets = {
        "schema": _schema(schema),
        "columnLineage": _facet("columnLineage", fields=fields, dataset=[]),
        **_ownership(run.owner(query)),
    }
    return Dataset(*dataset_name(f"{run.place.rstrip('/')}/{FOLDER}/{table}"), facets)


def _ownership(owner: str) -> dict[str, Any]:
    return {"ownership": _facet("ownership", owners=[{"name": redacted(owner)}])} if owner else {}


def _inputs_of(known: Mapping[str, Dataset], sources: Iterable[Source]) -> list[dict[str, Any]]:
    """Fields that something depends on, of the stream (``known`` by "") or of dimensions, by their names."""
    by_dataset: dict[str, list[Source]] = {"": []}
    for name, dependency in sources:
        attribute = read_attribute(name)
        if attribute is None or attribute.dimension not in known:
            by_dataset[""].append((name, dependency))
        elif attribute.column is not None:
            by_dataset.setdefault(attribute.dimension, []).append((attribute.column, dependency))
    return [each for name, of in by_dataset.items() for each in _inputs(known[name], of)]


def _inputs(source: Dataset, sources: Iterable[Source]) -> list[dict[str, Any]]:
    """Fields of a dataset that something depends on, each with all the ways in which it does."""
    by_column: dict[str, list[dict[str, Any]]] = {}
    for column, dependency in sources:
        type, subtype = dependency.value
        by_column.setdefault(column, []).append({"type": type, "subtype": subtype})
    return [
        {"namespace": source.namespace, "name": source.name, "field": column, "transformations": transformations}
        for column, transformations in by_column.items()
    ]


def _schema(schema: pa.Schema) -> dict[str, Any]:
    return _facet("schema", fields=[{"name": field.name, "type": str(field.type)} for field in schema])


@lru_cache(20_000)
def _columns(query: ACQ) -> pa.Schema:
    return columns_of(query)


def merged_datasets(events: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Inputs and outputs of several events, each dataset once with all its facets: those of an Airflow task, which is
    one job."""
    sides: list[dict[tuple[str, str], dict[str, Any]]] = [{}, {}]
    for event in events:
        for side, role, kind in zip(sides, ("inputs", "outputs"), ("inputFacets", "outputFacets"), strict=True):
            for dataset in event[role]:
                known = side.setdefault((dataset["namespace"], dataset["name"]), {**dataset, "facets": {}, kind: {}})
                known["facets"] |= dataset["facets"]
                known[kind] |= dataset[kind]
    inputs, outputs = (list(side.values()) for side in sides)
    return inputs, outputs
