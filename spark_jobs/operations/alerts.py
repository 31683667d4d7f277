"""Alerts to owners of queries: raised once for each condition, resolved once, and sent at least once.

What is guaranteed, with any number of processes that send for one warehouse and may die at any moment:

- A condition that a pass sees is raised exactly once, and resolved exactly once after a pass sees that it is over. Both
  are rows of the table ``alerts``, in commits on exactly the version that they follow from.
- What is raised is sent until a try succeeds, by the passes after it, the alert before its resolution.
- It arrives twice only if a process dies, or takes longer than :data:`CLAIM`, between sending and recording that. Both
  have the same ``id``.
- A condition that begins and ends between two passes is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from optimizer.errors.codes import CODES
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.instants import format_instant
from optimizer.workload.values import SECOND, digest
from spark_jobs.operations.conditions import Condition, Key, Kind, conditions, watched
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import alerts_log
from spark_jobs.store.warehouse.alerts_log import AlertRow
from spark_jobs.store.warehouse.warehouse import Warehouse

CLAIM = 300 * SECOND
"""Time (microseconds) that a process has for sending, before another one sends the same."""

BATCH = 100
"""Alerts that are sent at once."""

State = Literal["open", "resolved", "test"]

SEVERITIES = {"failed": "error", "blocked": "error", "late": "error", "silent": "warning"}
SEVERITIES |= {"unexpected": "warning", "test": "warning"}

Send = Callable[[Sequence[dict[str, Any]]], None]
"""Sends alerts (:meth:`Alert.to_json`). Raises HDL-635, or anything else, if that fails."""


@dataclass(frozen=True)
class Alert:
    """A message about a condition that began, or ended, at a moment (``at``).

    ``message`` and ``hint`` are not stored: they may repeat values of events. Instants are microseconds.
    """

    state: State
    query: str
    kind: Kind
    code: str
    owner: str
    since: int
    begin: int
    end: int
    at: int
    message: str = ""
    hint: str = ""

    @classmethod
    def of(cls, condition: Condition, at: int) -> Alert:
        """The alert of a condition that begins."""
        return cls(state="open", at=at, **{name: getattr(condition, name) for name in _OF_CONDITION})

    @property
    def key(self) -> Key:
        return self.query, self.kind, self.code

    @property
    def id(self) -> str:
        """Name of the alert, the same for each time that it is sent."""
        return f"{digest([*self.key, self.since])[:24]}-{self.state}"

    def to_row(self) -> AlertRow:
        """The row that raises it."""
        return AlertRow(self.id, "raised", self.at, alert={name: getattr(self, name) for name in _STORED})

    @classmethod
    def from_row(cls, row: AlertRow) -> Alert:
        """The inverse of :meth:`to_row`."""
        return cls(**{name: row.alert[name] for name in _STORED})

    def resolved(self, at: int) -> Alert:
        """The alert that this one's condition is over."""
        return replace(self, state="resolved", at=at, message="", hint="")

    def to_json(self) -> dict[str, Any]:
        """The fields as they are sent, with the channel of the owner."""
        channels = settings().owners
        meaning = CODES[self.code].meaning if self.code in CODES else ""
        over = f"{self.query} is no longer {_WORDS[self.kind]}" if self.state == "resolved" else ""
        return {
            "id": self.id,
            **asdict(self),
            "message": self.message or over or f"{self.query}: {meaning}",
            "severity": SEVERITIES[self.kind],
            "channel": channels.get(self.owner, channels.get("*", "")),
            **{name: format_instant(getattr(self, name)) for name in ("since", "at")},
            **{name: format_instant(getattr(self, name)) if self.end else "" for name in ("begin", "end")},
        }


_WORDS = {"failed": "failing", "blocked": "blocked by checks", "late": "late", "silent": "silent"}
_WORDS |= {"unexpected": "other than expected"}
_OF_CONDITION = [each.name for each in fields(Condition)]
_STORED = [each.name for each in fields(Alert) if each.name not in ("message", "hint")]


@dataclass(frozen=True)
class Sending:
    """An alert, whether it was ``sent``, and how often that failed; ``claimed``: until then (microseconds) another
    process sends it."""

    alert: Alert
    sent: bool = False
    failures: int = 0
    claimed: int = 0


def sendings(rows: Iterable[AlertRow]) -> list[Sending]:
    """State of each alert that was raised, in the order in which they were."""
    raised: dict[str, Alert] = {}
    later: dict[str, list[AlertRow]] = {}
    for row in rows:
        if row.event == "raised":
            raised.setdefault(row.id, Alert.from_row(row))
        else:
            later.setdefault(row.id, []).append(row)
    all_sendings = []
    for id, alert in raised.items():
        events = later.get(id, [])
        sent, failures = (sum(row.event == event for row in events) for event in ("sent", "failed"))
        claimed = max((row.until for row in events), default=0)
        all_sendings.append(
            Sending(alert, bool(sent), failures, 0 if events and events[-1].event == "failed" else claimed)
        )
    return all_sendings


def open_alerts(raised: Iterable[Sending]) -> dict[Key, Alert]:
    """The alerts whose conditions are not over, by key."""
    newest = {sending.alert.key: sending.alert for sending in raised}
    return {key: alert for key, alert in newest.items() if alert.state == "open"}


def news(raised: Sequence[Sending], current: Iterable[Condition], now: int) -> list[Alert]:
    """The alerts of conditions that began or ended since those that were ``raised``."""
    known, by_key = open_alerts(raised), {condition.key: condition for condition in current}
    begun = [Alert.of(condition, now) for key, condition in by_key.items() if key not in known]
    ended = [alert.resolved(now) for key, alert in known.items() if key not in by_key]
    known_ids = {sending.alert.id for sending in raised}
    # a condition that came back has no other beginning if the records do not show that it was over
    return [*ended, *(replace(alert, since=now) if alert.id in known_ids else alert for alert in begun)]


@dataclass(frozen=True)
class AlertsView:
    """Conditions at a moment, with what was raised and sent of them."""

    current: list[Condition]
    raised: list[Sending]


def view_alerts(warehouse: Warehouse, now: int) -> AlertsView:
    """The conditions at the moment ``now`` (microseconds), and the alerts that were raised. Writes nothing."""
    raised = sendings(alerts_log.rows(warehouse))
    known = {key: (alert.begin, alert.end) for key, alert in open_alerts(raised).items()}
    return AlertsView(conditions(watched(warehouse, now, known)), raised)


@dataclass(frozen=True)
class Passed:
    """Alerts that a pass sent, and why it could not send the rest."""

    sent: tuple[Alert, ...] = ()
    problems: tuple[Diagnostic, ...] = ()


def pass_alerts(warehouse: Warehouse, now: int, send: Send) -> Passed:
    """Raise the alerts of conditions that began or ended, and send all that were not sent yet.

    Parameters
    ----------
    warehouse
        Where the alerts are stored. It is only read while there is nothing to send.
    now
        The moment (microseconds).
    send
        Sends a batch. What it raises becomes HDL-635, and the batch is sent again by the next pass.
    """
    view = view_alerts(warehouse, now)
    if not news(view.raised, view.current, now) and not _due(view.raised, now):
        return Passed()
    claimed = warehouse.leased(lambda token: _claim(warehouse, now, token))
    described = {condition.key: condition for condition in view.current}
    sent: list[Alert] = []
    for first in range(0, len(claimed), BATCH):
        batch = claimed[first : first + BATCH]
        try:
            place = {"warehouse": str(warehouse.place)}
            send([_worded(alert, described).to_json() | place for alert in batch])
        except (Exception, SystemExit) as error:  # it is somebody's code: nothing of it ends a run
            _record(warehouse, claimed[first:], "failed", now)
            return Passed(tuple(sent), (undelivered(error),))
        _record(warehouse, batch, "sent", now)
        sent += batch
    return Passed(tuple(sent))


def _due(raised: Iterable[Sending], now: int) -> list[Alert]:
    """The alerts that were not sent, and that no other process sends now."""
    waiting = [sending for sending in raised if not sending.sent]
    busy = {sending.alert.key for sending in waiting if sending.claimed > now}
    # a resolution waits for its alert
    return [sending.alert for sending in waiting if sending.alert.key not in busy]


def _claim(warehouse: Warehouse, now: int, token: int) -> list[Alert]:
    """Raise what is new by the records of now, and claim all that is to be sent."""
    since = warehouse.version("alerts")
    view = view_alerts(warehouse, now)
    added = [alert.to_row() for alert in news(view.raised, view.current, now)]
    due = _due([*view.raised, *sendings(added)], now)
    claims = [AlertRow(alert.id, "claimed", now, now + CLAIM) for alert in due]
    alerts_log.log(warehouse, [*added, *claims], token, since)
    return due


def _record(warehouse: Warehouse, alerts: Sequence[Alert], event: alerts_log.Event, now: int) -> None:
    added = [AlertRow(alert.id, event, now) for alert in alerts]
    warehouse.leased(lambda token: alerts_log.log(warehouse, added, token))


def _worded(alert: Alert, described: Mapping[Key, Condition]) -> Alert:
    """The alert with the words of its condition, if that is not over."""
    condition = described.get(alert.key)
    if condition is None or alert.state != "open":
        return alert
    return replace(alert, message=condition.message, hint=condition.hint)


def undelivered(error: BaseException) -> Diagnostic:
    """HDL-635, a warning, for what ended sending."""
    if isinstance(error, HeddleError):
        finding = error.diagnostic
        return Diagnostic(finding.code, finding.message, finding.hint, severity="warning")
    message = f"alerts could not be sent: {type(error).__name__}: {error}"
    return Diagnostic(
        "HDL-635", message, "`heddle alerts --test` sends a sample; the next run sends them again", severity="warning"
    )


def sample(now: int, owner: str) -> Alert:
    """An alert that is about nothing, for a test of a channel."""
    message = "this is a test: alerts of Heddle arrive here"
    return Alert("test", "heddle_test", "test", "HDL-635", owner, now, 0, 0, now, message, "nothing to do")
