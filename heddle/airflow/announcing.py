"""Events of assets: what was published, and whose answers are new. Each publication is announced once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from heddle.airflow.dag_set import DagSet
from heddle.airflow.runs import epoch_micros, published_row, utc_instant

if TYPE_CHECKING:
    from spark_jobs.operations.announcements import Announcement
    from spark_jobs.store.warehouse.publish_log import LogRow


def announce(dag_set: DagSet, context: Mapping[str, Any], news: Sequence[Announcement]) -> list[dict[str, Any]]:
    """Add the events of new answers to those that the task emits by succeeding; what was added.

    Airflow stores a task's events in the transaction that makes it successful, so an attempt that fails emits none and
    one that succeeds all, once. A publication that has its event already, as when a successful task is cleared and runs
    again, gets no second one.
    """
    from spark_jobs.operations.announcements import key_of

    if not news:
        return []
    # an event is later than its publication, but the clocks are those of two machines
    since = datetime.fromtimestamp(min(announcement.at for announcement in news) / 1e6, UTC) - timedelta(hours=1)
    known = {key_of(event.extra) for event in context["inlet_events"][dag_set.answers].after(since.isoformat())}
    added = [announcement for announcement in news if announcement.key not in known]
    for announcement in added:
        print(f"new answers: {announcement.extra}")
        context["outlet_events"][dag_set.answers].add(dag_set.answers_of(announcement.query), extra=announcement.extra)
    return [announcement.extra for announcement in added]


def announce_run(dag_set: DagSet, context: Mapping[str, Any], pinned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """:func:`announce` what this run of ``aggregate_windows`` published of the interval ``pinned``."""
    from spark_jobs.operations.announcements import of_run
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from spark_jobs.streams.sources.decoding import parse_instant

    begin, end = (parse_instant(pinned[name]) for name in ("from", "to"))
    return announce(dag_set, context, of_run(Warehouse.open(settings().warehouse), begin, end, context["run_id"]))


def announce_refreshes(dag_set: DagSet, context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Announce what a session published: an event of ``results`` for each refresh, and :func:`announce` the new
    answers; of a run by hand or of a backfill, which a session's task does too, :func:`announce_run`. The events of
    ``results``."""
    from spark_jobs.operations.announcements import announcements, is_of_others, of_session
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse

    place, pinned = settings().warehouse, context["ti"].xcom_pull(task_ids="session")
    if context["dag_run"].run_type != "scheduled":
        if pinned is None:  # it has failed
            return []
        announce_run(dag_set, context, pinned)
        return announce_results(dag_set, context, [published_row(pinned)])
    if not Warehouse.stands(place):
        return []
    warehouse = Warehouse.open(place, create=False)
    session_rows = of_session(warehouse, context["run_id"], epoch_micros(datetime.now(UTC)))
    rows = [row for row in session_rows if not is_of_others(row)]
    announce(dag_set, context, announcements(warehouse, rows))
    return announce_results(dag_set, context, rows)


def announce_results(dag_set: DagSet, context: Mapping[str, Any], rows: Sequence[LogRow]) -> list[dict[str, Any]]:
    """Add an event of ``results`` for each publication that has none yet, as :func:`announce` does for answers; the
    ``extra`` of those added."""
    from optimizer.workload.instants import format_instant

    added = [
        {"from": format_instant(row.begin), "to": format_instant(row.end), **{key: getattr(row, key) for key in RESULT}}
        for row in rows
    ]
    if added:
        since = datetime.fromtimestamp(min(row.at for row in rows) / 1e6, UTC) - timedelta(hours=1)
        known = [
            _publication(event.extra) for event in context["inlet_events"][dag_set.results].after(since.isoformat())
        ]
        added = [extra for extra in added if _publication(extra) not in known]
    for extra in added:
        print(f"published: {extra}")
        context["outlet_events"][dag_set.refreshes].add(dag_set.results, extra=extra)
    return added


def _publication(extra: Mapping[str, Any]) -> tuple[Any, ...]:
    """Identity of a publication, from the ``extra`` of its event; earlier versions wrote instants in two forms."""
    instants = [utc_instant(extra[name]) if extra.get(name) else None for name in ("from", "to")]
    return (*instants, extra.get("revision"), extra.get("run_id"))


RESULT = ("plan_version", "revision", "answers", "run_id")
"""Fields of a publication in its event, in addition to the interval."""


def announce_others(dag_set: DagSet, context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """:func:`announce` what no run of ``aggregate_windows`` announces, or none has, of the last days."""
    from spark_jobs.operations.announcements import of_others
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse

    warehouse = settings().warehouse
    if not Warehouse.stands(warehouse):
        return []
    return announce(
        dag_set, context, of_others(Warehouse.open(warehouse, create=False), epoch_micros(datetime.now(UTC)))
    )
