"""Send the lineage of runs with OpenLineage's own client, which reads its own configuration.

Delivery is best effort: whatever goes wrong is a warning (HDL-638, HDL-639) in the record that the command shows, and
no run fails by it. Tasks of Airflow send nothing here: their operators report to Airflow's provider, which sends.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.redaction import redacted
from spark_jobs.operations.lineage import FACETS, LineageRun, Parent, lineage_events, merged_datasets
from spark_jobs.operations.seen import newest_row_of
from spark_jobs.pipeline.run import interval
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import registry
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord, now_micros
from spark_jobs.store.warehouse.warehouse import Warehouse

CONFIGURED = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT", "OPENLINEAGE__TRANSPORT__TYPE")
"""Variables of OpenLineage's client, each of which says where events go."""


def reported_run(
    engine: Any, warehouse: Warehouse, plan_version: int, begin: int, end: int, run_id: str, **options: Any
) -> RunRecord:
    """:func:`spark_jobs.pipeline.run.interval.run`, whose lineage is then sent if that is configured."""
    if not is_wanted(os.environ):
        return interval.run(engine, warehouse, plan_version, begin, end, run_id, **options)
    since = now_micros()
    try:
        record = interval.run(engine, warehouse, plan_version, begin, end, run_id, **options)
    except HeddleError:
        row = newest_row_of(warehouse, run_id)
        if row is not None and row.event == "failed" and row.at >= since:
            problem = sent(warehouse, row.record)
            if problem is not None:
                options.get("report", print)(str(problem))
        raise
    problem = sent(warehouse, record)
    if problem is not None:
        record.diagnostics.append(problem.to_json())
    return record


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Return whether runs outside Airflow send their lineage."""
    setting = settings().openlineage
    if setting == "auto":
        is_disabled = environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true"
        return not is_disabled and any(environment.get(name) for name in CONFIGURED)
    return setting == "on"


def sent(warehouse: Warehouse, record: RunRecord) -> Diagnostic | None:
    """Send the events of a run; a warning if that does not succeed."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError as error:
        hint = "install Heddle with the extra `lineage`, or set HEDDLE_OPENLINEAGE=off"
        return Diagnostic("HDL-639", f"{error.name} is not installed, which sends lineage", hint, severity="warning")
    try:
        events = lineage_events(lineage_run(warehouse, record, now_micros()))
        if events:
            client = OpenLineageClient()
            for event in events:
                client.emit(as_event(event))
            client.close(CLOSING)
    except Exception as error:
        reason = redacted(str(error).partition("\n")[0])[:300]
        message = f"the lineage of this run was not sent: {type(error).__name__}: {reason}"
        hint = "see OPENLINEAGE_URL or OPENLINEAGE_CONFIG; HEDDLE_OPENLINEAGE=off sends none"
        return Diagnostic("HDL-638", message, hint, severity="warning")
    return None


CLOSING = 10.0
"""Seconds that a client has to send what it has not sent yet."""


def lineage_run(warehouse: Warehouse, record: RunRecord, ended: int) -> LineageRun:
    """A run with what its events say of its plan, and of the queries as they are registered now."""
    return LineageRun(
        record,
        load_plan(warehouse, record.plan_version),
        registry.live(warehouse),
        str(warehouse.place),
        ended,
        os.environ.get("OPENLINEAGE_NAMESPACE") or "heddle",
        Parent.parse(os.environ.get("OPENLINEAGE_PARENT_ID", "")),
    )


# ------------------------------------------------------------------------------------ the client's own classes
def as_event(event: Mapping[str, Any]) -> Any:
    """An event as the client's class, which checks it."""
    from openlineage.client.event_v2 import RunEvent

    return _structured(RunEvent, event)


def datasets_of(warehouse: Warehouse, rows: Iterable[LogRow]) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs of the runs of some rows of the log, as the client's classes: of an operator, which is one job
    for all of them."""
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    runs = [lineage_run(warehouse, row.record, row.at) for row in rows]
    inputs, outputs = merged_datasets(event for each in runs for event in lineage_events(each))
    return [_structured(InputDataset, each) for each in inputs], [_structured(OutputDataset, each) for each in outputs]


def _structured(kind: Any, data: Any) -> Any:
    """JSON data as a value of a class of the client."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if data is None else _structured(parts[0], data)
    if origin is list:
        return [_structured(parts[0], each) for each in data]
    if origin is dict:
        return {name: _structured(_facet_class(name, parts[1]), each) for name, each in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if not hasattr(kind, "__attrs_attrs__"):
        return data
    hints = get_type_hints(kind)
    known = {each.alias: each.name for each in kind.__attrs_attrs__ if each.init}
    values = {alias: _structured(hints[name], data[name]) for alias, name in known.items() if name in data}
    value = kind(**values)
    more = {name: each for name, each in data.items() if name not in (*known.values(), "schemaURL", "_schemaURL")}
    return value.with_additional_properties(**more) if more else value


def _facet_class(name: str, base: Any) -> Any:
    """The class of a facet by its name; ``base`` for one that OpenLineage does not define, and for what is no facet."""
    from openlineage.client import facet_v2

    if name not in FACETS or not hasattr(base, "with_additional_properties"):
        return base
    classes: Sequence[Any] = [
        getattr(module, FACETS[name].partition("/")[2])
        for module in vars(facet_v2).values()
        if isinstance(module, types.ModuleType) and hasattr(module, FACETS[name].partition("/")[2])
    ]
    return classes[0]
