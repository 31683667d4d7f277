"""The manual refresh: its form, the outcome of a dry run, and past refreshes with their users and times.

A refresh is a run of the DAG ``refresh_sharing_plan``. Airflow runs it, logs its user, and stores the outcome. So
somebody else may look at a dry run and apply it, also later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from heddle.pages.folding import Fold, Table, fold, fold_lines
from heddle.pages.formats import cut, figure, moment
from heddle.pages.plan import Tile
from heddle.pages.render import render
from optimizer.errors.diagnostics import Diagnostic
from optimizer.search.cost import COST_MODELS
from optimizer.search.search import ALGORITHMS

AGAIN = 3
"""Seconds after which the page of an unfinished refresh reloads."""

SHOWN = 10
"""Refreshes before the fold."""

PROBLEMS_SHOWN = 5

TOO_MANY = "HDL-526"
"""Code of the error that too many queries would be removed."""

FIRST = {"algorithm": "best", "cost_model": "paper", "tolerance": "0.05", "rates": "", "reason": ""}
"""Initial values of the form, the same as the DAG's."""


ALLOW = "allow_removals"
"""The field of the form, and of the DAG, that permits to remove many queries."""


@dataclass(frozen=True)
class Refresh:
    """A run of ``refresh_sharing_plan``: ``state`` as Airflow calls it, ``by`` whom (or by its schedule: "").

    ``outcome``: the JSON data of its :class:`spark_jobs.pipeline.planning.refresh.PlanOutcome`; None before it ended.
    ``problem``: why it failed.
    """

    run_id: str
    state: str
    at: datetime | None
    by: str
    conf: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] | None = None
    problem: str = ""

    @property
    def dry(self) -> bool:
        return bool(self.conf.get("dry_run"))

    @property
    def is_done(self) -> bool:
        return self.state in ("success", "failed")

    @property
    def reason(self) -> str:
        return str(self.conf.get("reason") or "")


def refused(problem: Diagnostic, is_form: bool = True) -> str:
    """The page of a request that was refused: of a form, or to see something."""
    return render(
        "refused.html.j2", title="Refresh" if is_form else "Not shown", facts=(), problem=problem, is_form=is_form
    )


def read_only() -> str:
    """The page that replaces the form if this server cannot refresh."""
    return render("read_only.html.j2", title="Refresh", facts=())


# ---------------------------------------------------------------------------------------------- form
def form(
    recent: Sequence[Refresh],
    given: Mapping[str, str] = FIRST,
    wrong: Diagnostic | None = None,
    paused: bool = False,
) -> str:
    """The form of a dry run, with what was ``given`` before if that was ``wrong``, and the latest refreshes."""
    columns = [("run", 30), ("asked (UTC)", 16), ("by", 14), ("what", 9), ("state", 10), ("reason", 21)]
    warning = Diagnostic("HDL-556", "the DAG refresh_sharing_plan is paused", "unpause it: until then nothing is run")
    return render(
        "refresh_form.html.j2",
        title="Refresh",
        facts=(),
        problems=[problem for problem in (warning if paused else None, wrong) if problem is not None],
        given={name: cut(given.get(name, first), 2000) for name, first in FIRST.items()},
        algorithms=tuple(ALGORITHMS),
        cost_models=tuple(COST_MODELS),
        allow=ALLOW,
        is_allowed=given.get(ALLOW) == "yes",
        recent=Table("log texts", columns, fold(recent, SHOWN, len(recent), "refresh")),
    )


# ------------------------------------------------------------------------------------------- outcome
@dataclass(frozen=True)
class Verdict:
    """Outcome of a refresh, or its next step: a CSS class, a title, and a line below it ("": none)."""

    kind: str
    title: str
    detail: str = ""


@dataclass(frozen=True)
class Result:
    """Outcome of a successful refresh: costs, problems (the worst first), the difference, and the number of trees."""

    tiles: Sequence[Tile]
    problems: Sequence[Diagnostic]
    lines: Fold[str]
    trees: int


@dataclass(frozen=True)
class OutcomePage:
    """The page of one refresh, in its order: ``first``, ``result``, ``last``, and what can be done about it.

    ``outdated``: another plan is in force; ``apply``: it can be applied, to version ``against`` (0: none).
    """

    refresh: Refresh
    wrong: Diagnostic | None
    first: Verdict | None = None
    result: Result | None = None
    last: Verdict | None = None
    outdated: Diagnostic | None = None
    apply: bool = False
    against: int = 0


def outcome(refresh: Refresh, in_force: int, wrong: Diagnostic | None = None) -> str:
    """The page of one refresh. ``in_force``: version of the plan in force now (0: none)."""
    return render(
        "refresh_outcome.html.j2",
        title="Dry run" if refresh.dry else "Refresh",
        facts=list(_facts(refresh).items()),
        page=_outcome(refresh, in_force, wrong),
        again=AGAIN,
    )


def _facts(refresh: Refresh) -> dict[str, str]:
    """Request of a refresh: its parameters, user and time."""
    conf = {name: refresh.conf[name] for name in FIRST if refresh.conf.get(name) not in (None, "", {})}
    return {
        "run": refresh.run_id,
        "asked": f"{moment(refresh.at)} UTC" if refresh.at else "",
        "by": refresh.by or "schedule",
        "what": "dry run" if refresh.dry else "refresh",
        "state": refresh.state,
        **{name.replace("_", " "): str(value) for name, value in conf.items()},
        **({"removals": "however many"} if refresh.conf.get(ALLOW) else {}),
    }


def _outcome(refresh: Refresh, in_force: int, wrong: Diagnostic | None) -> OutcomePage:
    if not refresh.is_done:
        again = f"Airflow runs it; this page asks again every {AGAIN} seconds."
        return OutcomePage(refresh, wrong, Verdict("", refresh.state.capitalize(), again))
    if refresh.outcome is None or refresh.state == "failed":
        why = refresh.problem or "its log in Airflow says why"
        return OutcomePage(refresh, wrong, Verdict("ill", "It failed, nothing was changed by it", cut(why, 1200)))
    before, is_changed = int(refresh.outcome["version"] or 0), refresh.outcome["changed"]
    result = _result(refresh.outcome)
    if not refresh.dry:
        title = f"Version {before} was stored" if is_changed else f"Version {before} stays in force"
        return OutcomePage(refresh, wrong, Verdict("well", title), result)
    if not is_changed:
        title = "Nothing would change: there is nothing to apply."
        return OutcomePage(refresh, wrong, None, result, Verdict("well", title))
    if result.problems and result.problems[0].code == TOO_MANY:
        title = "It cannot be applied like this. If these queries are to go: make a dry run that allows removals."
        return OutcomePage(refresh, wrong, None, result, Verdict("ill", title))
    if before != in_force:
        outdated = Diagnostic(
            "HDL-551",
            f"version {in_force or 'none'} is in force now; this dry run was against version {before or 'none'}",
            "make a new dry run: this one cannot be applied",
        )
        return OutcomePage(refresh, wrong, None, result, outdated=outdated)
    return OutcomePage(refresh, wrong, None, result, apply=True, against=before)


def _result(outcome: Mapping[str, Any]) -> Result:
    plan = outcome["plan"]
    problems = [
        Diagnostic(problem["code"], problem["message"], problem.get("hint", "")) for problem in outcome["diagnostics"]
    ]
    unit = "operations/s" if plan["cost_model"] == "paper" else "CPU-s/s"
    costs = {"this plan": plan["cost"], **{name.replace("_", " "): cost for name, cost in plan["baselines"].items()}}
    return Result(
        tiles=[Tile(name, figure(float(cost)), unit) for name, cost in costs.items() if cost is not None],
        problems=sorted(problems, key=lambda problem: problem.code != TOO_MANY)[:PROBLEMS_SHOWN],
        lines=fold_lines(outcome["diff"]),
        trees=len(plan["trees"]),
    )
