"""What Heddle's pages are made of: the document around them, their style, tables that fold, and texts of values.

Pages load nothing and run nothing. Names, owners and filters are users' text: whatever is not markup of ours goes
through :func:`escape`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape as escape_markup

from optimizer.errors import printable
from optimizer.query import SECOND


def escape(text: str) -> str:
    """Text that is neither markup nor anything that turns or hides what stands beside it."""
    return escape_markup(printable(text))


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def count(number: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


MILLION_YEARS = 365_250_000 * 86_400 * SECOND


def duration(microseconds: int) -> str:
    """A span of time, exact up to a million years: ``1 h 30 min``."""
    if microseconds > MILLION_YEARS:
        return f"10^{math.floor(math.log10(microseconds) - math.log10(MILLION_YEARS) + 6)} years"
    found, rest = [], microseconds
    for name, size in (("d", 86_400 * SECOND), ("h", 3_600 * SECOND), ("min", 60 * SECOND)):
        whole, rest = divmod(rest, size)
        if whole:
            found.append(f"{whole} {name}")
    if rest or not found:
        found.append(f"{rest / SECOND:.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(found)


def bar(value: float, largest: float, kind: str) -> str:
    width = 100 * value / largest if largest else 0.0
    return f'<div class="bar {kind}" style="width:{max(width, 0.4):.2f}%"></div>'


def folded_table(
    kind: str, widths: Sequence[int], head: str, rows: Sequence[str], first: int, total: int, noun: str
) -> str:
    """A table whose rows after the ``first`` are folded; of ``total`` the rest is said to be left out."""
    # a fold for one row is longer than the row
    shown = first + 1 if len(rows) == first + 1 else first
    columns = "".join(f'<col style="width:{width}%">' for width in widths)
    table = f'<div class="wide"><table class="{kind}"><colgroup>{columns}</colgroup>'
    found = f"{table}<thead><tr>{head}</tr></thead><tbody>{''.join(rows[:shown])}</tbody></table></div>"
    if len(rows) > shown:
        left_out = f'<p class="quiet">Left out: {count(total - len(rows), noun)}.</p>' if total > len(rows) else ""
        found += (
            f"<details><summary>{count(total - shown, f'more {noun}')}</summary>"
            f"{table}<tbody>{''.join(rows[shown:])}</tbody></table></div>{left_out}</details>"
        )
    return found


PAGES = {
    "plan": ("./", "Plan"),
    "operations": ("operations", "Operations"),
    "history": ("history", "History"),
    "refresh": ("refresh", "Refresh"),
}
"""The pages of the plugin: their addresses beside one another, and what they are called."""


def menu(here: str) -> str:
    """Links to the other pages of the plugin from one of :data:`PAGES`."""
    links = "".join(
        f'<a href="{address}"{" aria-current=page" if name == here else ""}>{told}</a>'
        for name, (address, told) in PAGES.items()
    )
    return f'<nav class="menu">{links}</nav>'


def document(title: str, body: Iterable[str], head: str = "") -> str:
    """A whole page, light and dark. ``body`` and ``head``: markup; ``title``: text."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>{head}<style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


# --------------------------------------------------------------------------------------------- style
LOGO = (
    '<svg class="logo" viewBox="0 0 40 40" aria-hidden="true"><path d="M8 4v32M16 4v32M24 4v32M32 4v32"/>'
    '<path class="weft" d="M3 13h9m8 0h8m8 0h1M3 21h1m8 0h8m8 0h9M3 29h9m8 0h8m8 0h1"/></svg>'
)

STYLE = """
:root { color-scheme: light dark;
  --bg: #f4f5f7; --card: #fff; --ink: #1a1e24; --dim: #626c78; --line: #e4e7eb; --track: #eff1f4;
  --own: #2b6cd9; --soft: #2b6cd93d; --base: #c3cad3; --end: #d1660f; --good: #147a49; --bad: #c62828; --code: #eef1f5;
  --even: #2b6cd9; --odd: #8fb4f0; }
@media (prefers-color-scheme: dark) { :root {
  --bg: #0e1116; --card: #161b22; --ink: #e6e9ee; --dim: #95a0ad; --line: #29303a; --track: #1e242d;
  --own: #5b95f5; --soft: #5b95f547; --base: #4a5462; --end: #f2a04c; --good: #4cc48c; --bad: #ff7b72; --code: #212833;
  --even: #4d86e6; --odd: #2b4d85; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink);
  font: 14px/1.5 ui-sans-serif, system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 28px 20px 40px; }
header { display: flex; gap: 16px; align-items: center; margin-bottom: 20px; }
h1 { font-size: 25px; line-height: 1.2; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 0 0 14px; } h3 { font-size: 15px; margin: 0; }
h2 small, .dim, .quiet, footer, small { color: var(--dim); font-weight: 400; }
small { font-size: 12px; } p { margin: 0; } .quiet { font-size: 12px; }
.logo { width: 44px; height: 44px; flex: none; fill: none; stroke: var(--base); stroke-width: 3;
  stroke-linecap: round; }
.logo .weft { stroke: var(--own); }
.chips { display: flex; flex-wrap: wrap; gap: 2px 18px; margin-top: 4px; overflow-wrap: anywhere; }
.chips i { font-style: normal; color: var(--dim); margin-right: 3px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 14px; margin-bottom: 14px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 15px 18px; }
.tile p { color: var(--dim); }
.tile strong { display: block; font-size: 28px; line-height: 1.25; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.tile.good strong, .good { color: var(--good); }
.card { margin-bottom: 14px; }
.pair { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); gap: 0 14px;
  align-items: start; }
.cost { margin-bottom: 16px; } .cost > div:first-child { display: flex; gap: 8px; align-items: baseline; }
em { font-style: normal; font-variant-numeric: tabular-nums; margin-left: auto; font-weight: 600; }
.track { background: var(--track); border-radius: 4px; height: 16px; position: relative; overflow: hidden; }
.bar { height: 100%; border-radius: 4px; } .bar.own { background: var(--own); } .bar.base { background: var(--base); }
.cost .track { height: 20px; margin-top: 3px; }
.tree { display: grid; grid-template-columns: 150px 80px 1fr 76px 60px; gap: 12px; align-items: center; color: inherit;
  text-decoration: none; padding: 3px 6px; margin: 0 -6px; border-radius: 6px; }
.tree:hover { background: var(--track); } .tree span { overflow-wrap: anywhere; }
.tree small, .tree em { text-align: right; white-space: nowrap; } .tree small:last-child { color: var(--good); }
.tree .bar.own { position: absolute; top: 0; left: 0; }
table { border-collapse: collapse; width: 100%; }
th { font-weight: 500; color: var(--dim); text-align: right; font-size: 12px; }
td { text-align: right; font-variant-numeric: tabular-nums; border-top: 1px solid var(--line); vertical-align: top; }
th, td { padding: 5px 0 5px 14px; } th:first-child, td:first-child { text-align: left; padding-left: 0; }
td { white-space: nowrap; }
.owners td:first-child { white-space: normal; overflow-wrap: anywhere; }
table { table-layout: fixed; } .owners { min-width: 480px; } .queries { min-width: 760px; }
.queries th:nth-child(-n+3), .queries td:nth-child(-n+3) { text-align: left; white-space: normal;
  overflow-wrap: anywhere; }
.queries td:first-child small { display: block; }
.part { display: flex; gap: 8px; align-items: center; justify-content: flex-end; }
.part .track { flex: 1; height: 8px; min-width: 40px; max-width: 90px; }
.bad { color: var(--end); }
code { font: 12px/1.5 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; background: var(--code);
  border-radius: 4px; padding: 1px 5px; }
details > summary { cursor: pointer; }
details.card > summary { display: flex; flex-wrap: wrap; gap: 2px 14px; align-items: baseline; list-style: none; }
details.card > summary::-webkit-details-marker { display: none; }
details.card > summary::before { content: ""; border: 5px solid transparent; border-left-color: var(--dim);
  border-right: 0; align-self: center; }
details.card[open] > summary::before { transform: rotate(90deg); }
details.card > summary span { color: var(--dim); } details.card > summary b { margin-left: auto; }
details.card[open] > summary { margin-bottom: 10px; }
details details summary { color: var(--dim); padding: 6px 0; border-top: 1px solid var(--line); }
.wide { overflow-x: auto; } .wide > svg { display: block; width: 100%; min-width: 760px; }
.wide > .quiet { margin: 0 0 12px; text-align: right; }
svg text { font-size: 12px; fill: var(--ink); } svg .dim { fill: var(--dim); }
svg path { fill: none; stroke-width: 1; }
.grid { stroke: var(--line); } .lane, .axis { stroke: var(--base); }
.start { stroke: var(--own); stroke-width: 2 !important; } .end { stroke: var(--end); stroke-width: 2 !important; }
.window { stroke: var(--soft); stroke-width: 9 !important; } .even { fill: var(--even) !important; }
.odd { fill: var(--odd) !important; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 8px; align-items: center; color: var(--dim); margin: -6px 0 12px; }
.key { width: 2px; height: 12px; margin-left: 10px; } .key:first-child { margin-left: 0; }
.key.start { background: var(--own); } .key.end { background: var(--end); }
.key.window { width: 22px; height: 9px; background: var(--soft); }
.key.fragment { width: 22px; background: linear-gradient(90deg, var(--even) 50%, var(--odd) 50%); }
section > h2 { margin-top: 26px; } .card > h2 { margin-top: 0; }
footer { font-size: 12px; margin-top: 22px; max-width: 80ch; }
@media (max-width: 900px) { .pair { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 640px) { .tree { grid-template-columns: 1fr 70px 60px 56px; }
  .tree .track { grid-column: 1 / -1; grid-row: 2; } }
.menu { display: flex; gap: 4px; margin: -10px 0 18px; border-bottom: 1px solid var(--line); }
.menu a, .jump a { color: var(--dim); text-decoration: none; padding: 6px 12px; }
.menu a[aria-current] { color: var(--ink); font-weight: 600; box-shadow: inset 0 -2px var(--own); }
.menu a:hover, .jump a:hover { color: var(--ink); }
.jump { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; background: var(--bg);
  margin: 0 -12px 10px; padding: 4px 0; }
.jump + section, section[id] { scroll-margin-top: 48px; }
.verdict { border-left: 4px solid var(--base); } .verdict h2 { margin-bottom: 6px; }
.verdict.well { border-left-color: var(--good); } .verdict.ill { border-left-color: var(--bad); }
.verdict ol { margin: 0; padding-left: 20px; overflow-wrap: anywhere; } .verdict li { margin-bottom: 8px; }
.verdict a { color: inherit; }
.remedy { color: var(--dim); } .tile.ill strong, b.ill { color: var(--bad); } b.warn { color: var(--end); }
.log { min-width: 760px; } .log.runs, .log.revisions { min-width: 1030px; }
.log th:first-child, .log td:first-child { white-space: normal; overflow-wrap: anywhere; }
.log td a, .card > p a { color: var(--own); }
.log tr.ill td:first-child { box-shadow: -8px 0 var(--card), -11px 0 var(--bad); }
.log tr.problem td { border-top: 0; text-align: left; white-space: normal; overflow-wrap: anywhere; color: var(--bad);
  padding-top: 0; }
.log tr.chosen td { background: var(--track); }
.under { display: block; overflow-wrap: anywhere; white-space: normal; }
.texts th, .texts td { text-align: left; } .texts td { white-space: normal; overflow-wrap: anywhere; }
.revisions th:last-child, .revisions td:last-child { text-align: left; white-space: normal;
  overflow-wrap: anywhere; }
h1, h2, .verdict { overflow-wrap: anywhere; } .lateness td { white-space: normal; }
.runs th, .runs td { padding-left: 8px; } .runs td { font-size: 13px; }
.runs th:nth-child(3), .runs td:nth-child(3) { text-align: left; }
.history th:nth-child(n+5):nth-child(-n+8), .history td:nth-child(n+5):nth-child(-n+8),
.quarantined th:nth-child(3), .quarantined td:nth-child(3), .quarantined th:nth-child(4),
.quarantined td:nth-child(4) { text-align: right; }
.wide > svg.chart { min-width: 560px; } .chart rect.own { fill: var(--own); } .chart rect.end { fill: var(--bad); }
.chart .mark { stroke: var(--ink); stroke-width: 2; } .chart + .quiet { margin-top: 6px; }
.key.fill { width: 12px; height: 12px; } .key.own { background: var(--own); } .key.fill.end { background: var(--bad); }
.key.line { width: 14px; height: 2px; background: var(--ink); }
.diff { list-style: none; margin: 0; padding: 0; overflow-wrap: anywhere; white-space: pre-wrap;
  font: 12px/1.6 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
.diff .plus { color: var(--good); } .diff .minus { color: var(--bad); } .diff .other { color: var(--own); }
form { display: grid; grid-template-columns: 150px minmax(0, 460px); gap: 10px 16px; align-items: start; }
form label { padding-top: 5px; } form small { display: block; }
input, select, textarea { font: inherit; color: inherit; background: var(--bg); border: 1px solid var(--base);
  border-radius: 6px; padding: 5px 8px; width: 100%; }
textarea { font-family: ui-monospace, Menlo, "DejaVu Sans Mono", monospace; font-size: 12px; }
button, .button { font: inherit; font-weight: 600; color: #fff !important; background: var(--own); border: 0;
  border-radius: 6px; padding: 7px 16px; cursor: pointer; text-decoration: none; display: inline-block; width: auto; }
form button { grid-column: 2; justify-self: start; }
.card > p + *, .card > * + p { margin-top: 10px; } h2 + .quiet { margin-top: 0 !important; }
@media (max-width: 640px) { form { grid-template-columns: minmax(0, 1fr); } form button { grid-column: 1; } }
"""
