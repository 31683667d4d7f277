"""The plan as a page and as a flowchart: true figures, bounded sizes, and nothing that a user wrote as markup."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.pages import timeline as drawing
from heddle.pages.formats import duration
from heddle.pages.mermaid import TREES_SHOWN, mermaid
from heddle.pages.plan import OWNERS_FOLDED, OWNERS_SHOWN, page
from heddle.pages.render import ENVIRONMENT
from heddle.pages.timeline import Timeline, timeline
from optimizer.plan.accounts import accounts
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.search.cost import measured
from optimizer.workload.values import (
    LONG,
    SECOND,
    STRING,
    Call,
    Column,
    Literal,
    Workload,
)
from tests.heddle.pages import markup
from tests.heddle.pages.markup import Page
from tests.heddle.pages.plans import EXAMPLE_3, planned, query, stream
from tests.optimizer.searching import window_lists
from tests.sizes import examples


def read(text: str) -> str:
    """The text of a plan's page, which sends nothing and leads nowhere but into itself."""
    return page_alone(text).text


def page_alone(text: str) -> Page:
    assert "http" not in text
    parsed_page = markup.read(text)
    assert "form" not in parsed_page.elements and all(link.startswith("#") for link in parsed_page.links)
    return parsed_page


# ----------------------------------------------------------------------------------------------- costs
@settings(max_examples=examples(60), deadline=None)
@given(windows=window_lists(7), algorithm=st.sampled_from(["weave-share", "no-share", "shared"]), paper=st.booleans())
def test_accounts_add_up(windows: list[tuple[int, int]], algorithm: str, paper: bool) -> None:
    """Exactly: to each tree's cost here, and to No Share's alone."""
    queries = [query(f"q{i}", *window) for i, window in enumerate(windows)]
    plan = planned(queries, "7", algorithm, "paper" if paper else measured())
    books = accounts(plan)
    assert sum(account.alone for account in books) == plan.no_share
    for tree, cost in zip(plan.trees, plan.tree_costs, strict=True):
        assert sum(account.here for account in books if account.tree == tree.id) == cost
    assert all(account.here >= 0 for account in books)


def test_example_3_by_hand() -> None:
    """a alone 1.2 + 4/4, c alone 1.2 + 2/4; together half of 1.2 each, and the same fragments."""
    a, c, b = accounts(planned(EXAMPLE_3))
    assert [float(x.alone) for x in (a, b, c)] == [2.2, 1.6, 1.7]
    assert [float(x.here) for x in (a, b, c)] == [1.6, 1.6, 1.1]


# ------------------------------------------------------------------------------------------------ page
def test_the_page_has_the_figures() -> None:
    parsed_page = page_alone(page(planned(EXAMPLE_3), {"plan version": "12"}))
    text = parsed_page.text
    assert "plan version 12" in text and "weave-share" in text
    assert "4.3 operations/s" in text and "which costs 1.28 times this" in text
    assert "−22 %" in text  # 4.3 of 5.5
    # owners: ops pays 3.8 alone and 3.2 here, nobody 1.7 and 1.1
    assert re.search(r"ops 2 3.8 3.2 74% −16 %", text) and re.search(r"no owner 1 1.7 1.1 26% −35 %", text)
    assert parsed_page.elements.count("svg") == 4  # the sign, the picture, and a timeline for each tree
    assert "a 16 s every 4 s" in text.replace("ops ", "")


def test_filters_and_groups_are_summarised() -> None:
    late = Call(
        "and",
        (Call(">", (Column("volume"), Literal(5, LONG))), Call("like", (Column("symbol"), Literal("A%", STRING)))),
    )
    listed = Call("in", (Column("symbol"), Literal("A", STRING), Literal(None, STRING)))
    absent = Call("not", (Call("is_null", (Column("volume"),)),))
    product = Call("=", (Call("neg", (Call("abs", (Column("volume"),)),)), Literal(True, STRING)))
    queries = [query(f"q{i}", 8, 4, filter=clause) for i, clause in enumerate((late, listed, absent, product))]
    queries.append(query("grouped", 8, 4, group_by=(("symbol", STRING), ("volume", LONG))))
    text = read(page(planned(queries)))
    for shown in (
        "(volume > 5) AND (symbol LIKE 'A%')",
        "symbol IN ('A', null)",
        "NOT volume IS NULL",
        "-abs(volume) = true",
        "by symbol, volume",
    ):
        assert shown in text


HOSTILE = "<script>alert('x')</script>\"'&amp;<!--]]>http"


def test_hostile_text_stays_text() -> None:
    """In every place where a user's text goes, also the flowchart."""
    clause = Call("=", (Column("symbol"), Literal(HOSTILE, STRING)))
    hostile = query(HOSTILE, 8, 4, owner=HOSTILE, filter=clause, group_by=((HOSTILE, STRING),), stream=HOSTILE)
    plan = planned([hostile, query("b", 10, 5)])
    text = page(plan, {HOSTILE: HOSTILE})
    assert "<script" not in text and "<!--" not in text
    parsed_page = Page(text)
    assert "script" not in parsed_page.elements and parsed_page.text.count("<script>alert") >= 8
    chart = mermaid(plan)
    labels = re.findall(r'"([^"]*)"', chart)
    assert not any(set("<>&'`") & set(label.replace("<br/>", "")) for label in labels)
    # without labels nothing is left that a user wrote
    assert not re.search(r"script|alert", re.sub(r'"[^"]*"', "", chart))


def test_two_thousand_queries_are_cut_and_said_to_be() -> None:
    """90 trees by force; what is left out is stated, and adds up."""
    queries = [query(f"q{i:04}", 3 + i % 90, 3 + i % 90, owner=f"team{i % 150}") for i in range(2000)]
    plan = planned(queries, "0")
    assert len(plan.trees) > 60
    text = page(plan)
    body = read(text)
    assert len(text) < 1_000_000
    hidden_trees = len(plan.trees) - TREES_SHOWN
    assert f"Left out: {hidden_trees} trees that cost less, with" in body
    hidden = int(re.search(r"trees that cost less, with ([\d,]+) quer", body)[1].replace(",", ""))  # type: ignore[index]
    listed = len(set(re.findall(r"\bq\d{4}\b", body)))
    assert listed == 2000 - hidden
    assert "140 more owners" in body and f"Left out: {150 - OWNERS_SHOWN - OWNERS_FOLDED} owners" in body
    chart = mermaid(plan)
    assert f"... {hidden_trees} more trees" in chart and chart.count("-->") == 2 * TREES_SHOWN + 1
    html = page(planned([query(f"q{i:04}", 8, 4) for i in range(2000)]))
    assert "1,988 more queries" in html and "Left out: 1,928 queries." in html


def test_small_and_odd_plans() -> None:
    assert "−" not in read(page(planned([query("only", 8, 4)]))).replace("over −", "")
    read(page(planned([query("only", 1, 100)], "0")))
    free = planned([query("only", 8, 4)], "0", model=measured())
    read(page(replace(free, tree_costs=(Fraction(0),), no_share=Fraction(0), shared=Fraction(0))))
    empty = build_plan(Workload((), (stream(),)), {})
    assert "no query" in read(page(empty)) and mermaid(empty) == "flowchart LR\n"


def test_measured_costs_have_a_fitting_unit() -> None:
    small = planned([query("a", 8, 4)], "1000", model=measured())
    assert re.search(r"CPU-(µs|ms|ns)/s", read(page(small)))


def test_uncountable_edges_are_bounds() -> None:
    """A composite slide of thousands of digits, and edges that are known from below and above only."""
    slides = [7 + 2 * i for i in range(1200)]
    tree = ExecutionTree("trades-1", "trades", tuple(query(f"q{s}", s + 1, s) for s in slides))
    tree.__dict__["edge_bounds"] = (Fraction(9, 10), Fraction(95, 100))
    workload = Workload(tree.queries, (stream(),))
    small_plan = planned([query("a", 8, 4)])
    plan = SharingPlan(
        (tree,), workload, "best", small_plan.model, small_plan.rates, (Fraction(2),), Fraction(3), Fraction(2),
        Fraction(2), False, ("trades-1", "shared"), 1200,
    )  # fmt: skip
    text = read(page(plan))
    assert "at most 0.95 edges a second" in text and text.count("≤ 2") == 5
    assert re.search(r"composite slide 10\^\d+ years", text)


# -------------------------------------------------------------------------------------------- timeline
def svg_of(shown: Timeline) -> str:
    return str(ENVIRONMENT.get_template("timeline.html.j2").module.timeline(shown))  # type: ignore[attr-defined]


def drawn(svg: str, kind: str) -> str:
    return "".join(re.findall(f'<path class="{kind}(?: on)?" d="([^"]*)"', svg))


@settings(max_examples=examples(80), deadline=None)
@given(windows=window_lists(5))
def test_a_timeline_shows_every_edge(windows: list[tuple[int, int]]) -> None:
    """Ticks and fragments counted against the windows themselves, second by second."""
    tree = ExecutionTree("t-1", "trades", tuple(query(f"q{i}", *window) for i, window in enumerate(windows)))
    span = drawing.extent(tree)[0] // SECOND
    svg = svg_of(timeline(tree))
    lanes = {(r, s) for r, s in windows}
    starts = sum(sum(at % s == 0 for at in range(span + 1)) for _, s in lanes)
    ends = sum(sum((at - r) % s == 0 for at in range(1, span + 1)) for r, s in lanes)
    assert drawn(svg, "start").count("v-9") == starts
    assert drawn(svg, "end").count("v9") == ends
    cuts = {at for at in range(span + 1) for r, s in lanes if at % s == 0 or (at - r) % s == 0} | {0, span}
    assert (drawn(svg, "even") + drawn(svg, "odd")).count("z") == len(cuts) - 1
    assert len(cuts) - 1 <= 2 * drawing.FRAGMENTS_SHOWN


def test_long_composite_slides_are_drawn_in_part() -> None:
    tree = ExecutionTree("t-1", "trades", (query("a", 3600, 60), query("b", 7200, 3607)))
    covers = timeline(tree).covers
    assert "The first 1 h" in covers and "of a composite slide of" in covers
    short = ExecutionTree("t-1", "trades", (query("a", 8, 4),))
    assert "12 composite slides of 4 s" in svg_of(timeline(short))
    many = ExecutionTree("t-1", "trades", tuple(query(f"q{i}", 60 + i, 60) for i in range(30)))
    assert "… 20 more windows" in svg_of(timeline(many))


# --------------------------------------------------------------------------------------------- mermaid
def test_the_flowchart_of_example_3() -> None:
    assert mermaid(planned(EXAMPLE_3)) == (
        "flowchart LR\n"
        '  s0(["trades<br/>1.2 tuples/s"])\n'
        '  s0 --> t0["trades-1<br/>2 queries<br/>2.7 operations/s"]\n'
        '  t0 --> q0["a<br/>c"]\n'
        '  s0 --> t1["trades-2<br/>1 query<br/>1.6 operations/s"]\n'
        '  t1 --> q1["b"]\n'
    )


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(0, "0 s"), (90 * SECOND, "1 min 30 s"), (86_400 * SECOND, "1 d"), (1_500_000, "1.5 s"), (1, "0.000001 s")],
)
def test_spans_are_exact(microseconds: int, text: str) -> None:
    assert duration(microseconds) == text
