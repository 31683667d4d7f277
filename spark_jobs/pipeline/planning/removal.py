"""Unregistering queries, and deleting their published answers once somebody has agreed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.errors.diagnostics import Diagnostic
from optimizer.workload.instants import format_instant
from spark_jobs.pipeline.planning.changes import remove_queries
from spark_jobs.results import tables
from spark_jobs.results.deletion import Deleted, delete_answers
from spark_jobs.store.warehouse import registry
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class Removal:
    """Queries that were removed, or would be.

    It has the change of the plan as :func:`spark_jobs.pipeline.planning.changes.remove_queries` returns it, the
    published answers to delete, whether the user ``agreed`` to that, whether it ``is_done``, and problems that
    stopped tables of queries from following.
    """

    change: Mapping[str, Any]
    answers: tuple[Deleted, ...]
    agreed: bool
    is_done: bool
    diagnostics: tuple[Diagnostic, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The removal as ``heddle remove --json`` prints it."""
        return {
            **self.change,
            "answers": [deleted_json(deleted) for deleted in self.answers],
            "dry_run": not self.is_done,
        }


def deleted_json(gone: Deleted) -> dict[str, Any]:
    """Answers that go, their first and last instant as text."""
    first, last = ("" if at is None else format_instant(at) for at in (gone.first, gone.last))
    return {"query": gone.query, "answers": gone.answers, "first": first, "last": last}


def remove(
    warehouse: Warehouse,
    names: Sequence[str],
    reason: str,
    with_answers: bool,
    dry_run: bool,
    agree: Callable[[Sequence[Deleted]], bool],
) -> Removal:
    """Unregister queries. ``with_answers``: delete their published answers too, also of queries removed before.

    ``agree`` is called with the answers to delete, of which there may be none. Nothing is removed unless it agrees.
    Raises HDL-521 for a name that is neither registered nor has answers to delete, and what :func:`remove_queries`
    raises.
    """
    names = list(dict.fromkeys(names))
    known = registry.registered(registry.events(warehouse))
    live = [name for name in names if name in known and not known[name].removed]
    answers = _deleted(warehouse, names, True) if with_answers else ()
    registry.check_registered(
        known, [name for name in names if name not in {*live, *(deleted.query for deleted in answers)}]
    )
    change: dict[str, Any] = {"queries": [], "diff": []}
    if live:
        # what cannot be removed is said before anything is asked
        change |= remove_queries(warehouse, live, reason, dry_run=True)
    agreed = agree(answers)
    is_done = agreed and not dry_run
    if is_done and live:
        change |= remove_queries(warehouse, live, reason)
    if is_done and answers:
        answers = _deleted(warehouse, names, False)
    problems = tables.follow(warehouse) if is_done and answers else ()
    return Removal(change, answers, agreed, is_done, tuple(problems))


def _deleted(warehouse: Warehouse, names: Sequence[str], dry_run: bool) -> tuple[Deleted, ...]:
    """The published answers of some queries, deleted unless it is a dry run; none of those that have none."""
    return tuple(deleted for deleted in delete_answers(warehouse, names, dry_run) if deleted.answers)
