"""The manual refresh as HTML: what to ask for, what a dry run found, and who refreshed the plan when.

Pure functions. A refresh is a run of the DAG ``refresh_sharing_plan``: Airflow runs it, logs who asked, and keeps the
outcome, so a dry run may be looked at and applied by somebody else, and later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from optimizer.cost import COST_MODELS
from optimizer.errors import Diagnostic
from optimizer.markup import LOGO, count, cut, document, escape, figure, folded_table, menu
from optimizer.operations_page import difference, moment
from optimizer.search import ALGORITHMS

AGAIN = 3
"""Seconds after which the page of a refresh that is not done asks again."""

SHOWN = 10

FIRST = {"algorithm": "best", "cost_model": "paper", "tolerance": "0.05", "rates": "", "reason": ""}
"""What the form asks for at first, as the DAG does."""


@dataclass(frozen=True)
class Refresh:
    """A run of ``refresh_sharing_plan``: ``state`` as Airflow calls it, ``by`` whom (or by its schedule: "").

    ``outcome``: what :func:`spark_jobs.planning.refresh_plan` returned; None before it did. ``problem``: why it failed.
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


def _page(title: str, body: Sequence[str], head: str = "", chips: str = "") -> str:
    top = f'<header>{LOGO}<div><h1>{escape(title)}</h1><p class="chips">{chips}</p></div></header>'
    return document(f"Sharing plan: {title}", [menu("refresh"), top, *body], head)


def _problem(found: Diagnostic | None) -> str:
    if found is None:
        return ""
    hint = f'<p class="remedy">→ {escape(found.hint)}</p>' if found.hint else ""
    return f'<section class="card verdict ill"><h2>{escape(found.code)} {escape(found.message)}</h2>{hint}</section>'


def refused(found: Diagnostic) -> str:
    """The page of a request that was refused."""
    return _page("Refresh", [_problem(found), '<p><a class="button" href="refresh">Back to the form</a></p>'])


def form(
    recent: Sequence[Refresh],
    given: Mapping[str, str] = FIRST,
    wrong: Diagnostic | None = None,
    paused: bool = False,
) -> str:
    """The form of a dry run, with what was ``given`` before if that was ``wrong``, and the latest refreshes."""

    def choice(name: str, values: Sequence[str]) -> str:
        chosen = given.get(name, FIRST[name])
        options = "".join(
            f'<option value="{value}"{" selected" if value == chosen else ""}>{value}</option>' for value in values
        )
        return f'<select id="{name}" name="{name}">{options}</select>'

    def text(name: str) -> str:
        return escape(cut(given.get(name, FIRST[name]), 2000))

    fields = (
        ("algorithm", "Search", choice("algorithm", tuple(ALGORITHMS)), "how queries are grouped into trees"),
        (
            "cost_model",
            "Cost model",
            choice("cost_model", tuple(COST_MODELS)),
            "operations as published, or CPU seconds",
        ),
        (
            "tolerance",
            "Tolerance",
            f'<input id="tolerance" name="tolerance" inputmode="decimal" maxlength="20" value="{text("tolerance")}">',
            "the plan in force is kept while it costs at most this much more than a new one (0.05: 5 %)",
        ),
        (
            "rates",
            "Rates",
            f'<textarea id="rates" name="rates" rows="2" maxlength="4000">{text("rates")}</textarea>',
            "stream=tuples per second, one a line, instead of the measured ones; may be empty",
        ),
        (
            "reason",
            "Reason",
            f'<input id="reason" name="reason" maxlength="500" value="{text("reason")}">',
            "kept with the plan",
        ),
    )
    rows = "".join(
        f'<label for="{name}">{label}</label><div>{control}<small>{note}</small></div>'
        for name, label, control, note in fields
    )
    warning = (
        Diagnostic("HDL-556", "the DAG refresh_sharing_plan is paused", "unpause it: until then nothing is run")
        if paused
        else None
    )
    return _page(
        "Refresh",
        [
            _problem(warning),
            _problem(wrong),
            '<section class="card"><h2>Dry run <small>writes nothing; shows what would change, and what that costs'
            '</small></h2><form method="post" action="refresh">'
            f"{rows}"
            '<button type="submit">Dry run</button></form></section>',
            _recent(recent),
        ],
    )


def _recent(recent: Sequence[Refresh]) -> str:
    rows = [
        f'<tr><td><a href="refresh?run={escape(_quoted(one.run_id))}">{escape(cut(one.run_id, 60))}</a></td>'
        f"<td>{moment(one.at) if one.at else ''}</td><td>{escape(cut(one.by, 60)) or '<i>schedule</i>'}</td>"
        f"<td>{'dry run' if one.dry else 'refresh'}</td>"
        f'<td><b class="{"ill" if one.state == "failed" else ""}">{escape(one.state)}</b></td>'
        f"<td>{escape(cut(one.reason, 120))}</td></tr>"
        for one in recent
    ]
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("run", "asked (UTC)", "by", "what", "state", "reason"))
    table = folded_table("log texts", (30, 16, 14, 9, 10, 21), head, rows, SHOWN, len(rows), "refresh")
    return f'<section class="card"><h2>Latest refreshes <small>in Airflow, newest first</small></h2>{table}</section>'


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def outcome(one: Refresh, in_force: int, wrong: Diagnostic | None = None) -> str:
    """The page of one refresh. ``in_force``: version of the plan in force now (0: none)."""
    told = {
        "run": one.run_id,
        "asked": f"{moment(one.at)} UTC" if one.at else "",
        "by": one.by or "schedule",
        "what": "dry run" if one.dry else "refresh",
        "state": one.state,
        **{name.replace("_", " "): str(one.conf[name]) for name in FIRST if one.conf.get(name) not in (None, "", {})},
    }
    chips = "".join(f"<span><i>{escape(name)}</i> {escape(cut(value, 300))}</span>" for name, value in told.items())
    body = [_problem(wrong)]
    head = ""
    if not one.is_done:
        head = f'<meta http-equiv="refresh" content="{AGAIN}">'
        body.append(
            f'<section class="card verdict"><h2>{escape(one.state.capitalize())}</h2>'
            f'<p class="quiet">Airflow runs it; this page asks again every {AGAIN} seconds.</p></section>'
        )
    elif one.outcome is None or one.state == "failed":
        why = one.problem or "its log in Airflow says why"
        body.append(
            '<section class="card verdict ill"><h2>It failed, nothing was changed by it</h2>'
            f"<p>{escape(cut(why, 1200))}</p></section>"
        )
    else:
        body += _found(one, one.outcome, in_force)
    body.append('<p><a class="button" href="refresh">Another dry run</a></p>')
    return _page("Dry run" if one.dry else "Refresh", body, head, chips)


def _found(one: Refresh, found: Mapping[str, Any], in_force: int) -> list[str]:
    before, plan = int(found["version"] or 0), found["plan"]
    unit = "operations/s" if plan["cost_model"] == "paper" else "CPU-s/s"
    costs = {"this plan": plan["cost"], **{name.replace("_", " "): cost for name, cost in plan["baselines"].items()}}
    tiles = "".join(
        f'<div class="tile"><p>{escape(name)}</p><strong>{figure(float(cost))}</strong><small>{unit}</small></div>'
        for name, cost in costs.items()
        if cost is not None
    )
    body = [
        f'<section class="tiles">{tiles}</section>',
        *(
            _problem(Diagnostic(told["code"], told["message"], told.get("hint", "")))
            for told in found["diagnostics"][:5]
        ),
        f'<section class="card"><h2>Difference <small>{count(len(plan["trees"]), "tree")} after it</small></h2>'
        f"{difference(found['diff'])}</section>",
    ]
    if not one.dry:
        verdict = f"Version {before} was stored" if found["changed"] else f"Version {before} stays in force"
        return [f'<section class="card verdict well"><h2>{verdict}</h2></section>', *body]
    if not found["changed"]:
        told = "Nothing would change: there is nothing to apply."
        return [*body, f'<section class="card verdict well"><h2>{told}</h2></section>']
    if before != in_force:
        changed = Diagnostic(
            "HDL-551",
            f"version {in_force or 'none'} is in force now; this dry run was against version {before or 'none'}",
            "make a new dry run: this one cannot be applied",
        )
        return [*body, _problem(changed)]
    return [
        *body,
        f'<section class="card"><h2>Apply <small>runs refresh_sharing_plan in Airflow, as you; refused if version '
        f"{before or 'none'} is not in force any more, or if the plan would be another by then</small></h2>"
        f'<form method="post" action="apply">'
        f'<input type="hidden" name="run" value="{escape(one.run_id)}">'
        '<button type="submit">Apply</button></form></section>',
    ]
