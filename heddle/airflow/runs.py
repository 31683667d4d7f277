"""The interval of a run of ``aggregate_windows``, its plan, and what it published.

Imported while DAG files are parsed, so Heddle's other packages are imported when a task runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from spark_jobs.store.settings import Settings
    from spark_jobs.store.warehouse.publish_log import LogRow


def params_of(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Params of a run.

    Airflow accepts any key in the configuration of a run: ``{"dryrun": true}`` would be a run that is none. Raises
    AirflowFailException, after which Airflow does not retry, for a key that the DAG does not declare.
    """
    declared = list(context["dag"].params)
    unknown = [str(name) for name in context["dag_run"].conf or {} if name not in declared]
    if unknown:
        near = difflib.get_close_matches(unknown[0], declared, 1, 0.5)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(declared) or 'none'}"
        raise _refused(f"the DAG has no Param `{unknown[0][:100]}`: {hint}")
    params: Mapping[str, Any] = context["params"]
    return params


def _refused(message: str) -> Exception:
    from airflow.sdk.exceptions import AirflowFailException

    return AirflowFailException(message)


def interval_of(context: Mapping[str, Any]) -> tuple[datetime, datetime]:
    """The interval [start, end) of event time that a run is about.

    It comes from the Params ``from`` and ``to`` of a run by hand, else from the run's data interval (scheduled runs
    and backfills), else it is the last complete UTC day before the run was requested. It is the same for every try
    of a run. Raises AirflowFailException for Params that are no interval.
    """
    params = params_of(context)
    bounds = [params[name] for name in ("from", "to") if params.get(name)]
    if len(bounds) == 1:
        raise _refused("only one of the Params `from` and `to` is given: give both, or neither")
    if bounds:
        first, last = map(utc_instant, bounds)
        if first >= last:
            raise _refused(f"`from` is {bounds[0]} and `to` is {bounds[1]}: `to` has to be later")
        return first, last
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is not None and end is not None and start < end:
        return start, end
    run_after = context["dag_run"].run_after
    midnight = run_after.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=1), midnight


def utc_instant(text: str) -> datetime:
    """An instant in UTC; text without a time zone is in UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def pinned_run(
    settings: Settings, begin: datetime, end: datetime, live: bool
) -> dict[str, Any] | Literal["covered"] | None:
    """The plan version and the interval for all tries of a run; None while it has to wait.

    A live run goes on where the one before it ended, up to the newest refresh that is due; it is ``"covered"`` if that
    one has published the interval already. Any other run is over its own interval.
    """
    from optimizer.workload.instants import format_instant
    from spark_jobs.pipeline.planning.live_runs import due, frontier
    from spark_jobs.pipeline.planning.refresh import watermark_delay
    from spark_jobs.store.warehouse.plans import current_version
    from spark_jobs.store.warehouse.warehouse import Warehouse

    # Only the plan's DAG creates the warehouse: two first runs at once would race for it.
    if not Warehouse.stands(settings.warehouse):
        print("no plan is stored yet: trigger the DAG refresh_sharing_plan of this project")
        return None
    warehouse = Warehouse.open(settings.warehouse, create=False)
    first, last, clock = (epoch_micros(moment) for moment in (begin, end, datetime.now(UTC)))
    if live:
        reached = frontier(warehouse)
        if reached is not None and reached >= last:
            return "covered"
        due_run = due(warehouse, clock, first)
        if due_run is None:
            return None
        return {
            "plan_version": due_run.plan_version,
            "from": format_instant(due_run.begin),
            "to": format_instant(due_run.end),
            "live": True,
            "late": due_run.late,
        }
    version = current_version(warehouse)
    if version is None or clock < last + watermark_delay(settings.streams):
        return None
    return {"plan_version": version, "from": format_instant(first), "to": format_instant(last)}


def epoch_micros(moment: datetime) -> int:
    """Microseconds since the epoch, exactly."""
    # pendulum's differences cannot be divided by a timedelta
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000 + moment.microsecond


def published_row(pinned: Mapping[str, Any]) -> LogRow:
    """The newest publication of the interval ``pinned`` in the run log.

    A run that changes nothing has no publication: its interval's newest is returned. Raises
    :class:`optimizer.errors.diagnostics.HeddleError` (HDL-596) if the interval was never published.
    """
    from optimizer.errors.diagnostics import HeddleError
    from optimizer.workload.instants import instant_of_text
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse import publish_log
    from spark_jobs.store.warehouse.warehouse import Warehouse

    rows = publish_log.rows_of_interval(
        Warehouse.open(settings().warehouse), *(instant_of_text(pinned[name]) or 0 for name in ("from", "to"))
    )
    published = [row for row in rows if row.event == "published"]
    if not published:
        raise HeddleError("HDL-596", f"nothing is published for {pinned['from']} to {pinned['to']}")
    return max(published, key=lambda row: row.revision)


def failed_refreshes(run_id: str) -> list[str]:
    """The refreshes of a session in which something failed, and why. Answers that expectations block are no failure."""
    from optimizer.workload.instants import format_instant
    from spark_jobs.operations.announcements import of_session
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.publish_log import BLOCKED
    from spark_jobs.store.warehouse.warehouse import Warehouse

    warehouse = settings().warehouse
    if not Warehouse.stands(warehouse):
        return []
    rows = of_session(Warehouse.open(warehouse, create=False), run_id, epoch_micros(datetime.now(UTC)))
    return [
        f"{format_instant(row.end)}: {diagnostic['code']} {diagnostic['message']}"
        for row in rows
        for diagnostic in row.record.diagnostics
        if diagnostic["severity"] == "error" and diagnostic["code"] != BLOCKED
    ]
