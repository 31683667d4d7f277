"""Which families share a synopsis: counted on a sample, decided by cost, against every partition of few families."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.plan.builder import build_plan
from optimizer.search.cost import PAPER, Coefficients, measured
from optimizer.synopses import sharing
from optimizer.synopses.sharing import Profile, choose, cost, groups_per_fragment
from optimizer.synopses.synopsis import Family, families_of, synopses_of
from optimizer.windows.alignment import Fragments
from optimizer.workload.values import (
    ACQ,
    SECOND,
    STRING,
    Window,
    Workload,
)
from tests.optimizer.shard_samples import STREAM, above, query, sample
from tests.sizes import examples

COSTS = Coefficients()


ROWS = st.tuples(st.integers(0, 9), st.integers(0, 3), st.sampled_from((0, 1, 2, 10**9)), st.integers(0, 40))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ROWS, max_size=60), st.lists(st.integers(-1, 9), min_size=1, max_size=4), st.booleans(), st.data())
def test_rows_are_those_that_are_counted_one_by_one(
    rows: list[tuple[int, int, int, int]], thresholds: list[int], is_cut: bool, data: st.DataObject
) -> None:
    prices, a, b = ([row[place] for row in rows] for place in range(3))
    profile = replace(
        sample(prices, a, b, thresholds), times=np.cumsum([row[3] * SECOND for row in rows], dtype=np.int64)
    )
    # of -1 no filter at all
    filters = {None if threshold == -1 else above(threshold): threshold for threshold in thresholds}
    names = data.draw(st.lists(st.sampled_from("ab"), unique=True))
    families: list[Family] = [(filter, tuple((name, STRING) for name in names)) for filter in filters]
    profile = replace(
        profile, holds={predicate: profile.holds[predicate] for predicate in filters if predicate is not None}
    )
    edges = Fragments.of([Window(50 * SECOND, 30 * SECOND)]).edges if is_cut else ()
    events = max(1, len(rows) - data.draw(st.integers(0, 5)))
    seen = [(row, int(time)) for row, time in zip(rows, profile.times, strict=True)][:events]
    cells = set()
    for row, time in seen:
        shard = tuple(threshold == -1 or row[0] > threshold for threshold in filters.values())
        if any(shard):
            # windows of 50 s every 30 s begin at 30 k and end at 30 k + 20
            fragment = sum(time // SECOND >= 30 * k + shift for k in range(100) for shift in (0, 20)) if is_cut else 0
            cells.add((fragment, shard, *(row["ab".index(name) + 1] for name in names)))
    expected = len(cells) / len(seen) if seen else 0.0
    assert profile.rows(edges, families, events) == pytest.approx(expected)
    assert profile.shards(filters) == len(
        {
            shard
            for row in rows
            if any(shard := tuple(threshold == -1 or row[0] > threshold for threshold in filters.values()))
        }
    )


def test_ten_thresholds_share_the_shards_of_a_column() -> None:
    """Ten thresholds make eleven shards, not 1,023; apart they are almost ten rows a cell."""
    limits = [float(limit) for limit in range(10)]
    profile = sample([i % 11 - 0.5 for i in range(6_600)], [0] * 6_600, [0] * 6_600, limits)
    assert profile.shards([above(limit) for limit in limits]) == 10
    assert profile.shards([*(above(limit) for limit in limits), None]) == 11
    queries = [query(f"q{limit}", above(limit)) for limit in limits]
    # in each minute every threshold is passed by some event: apart they are as many rows as shards, read as they are
    assert choose(profile, queries, COSTS) == ()
    # with a group for nearly every event a shard's row stands for the rows of all the thresholds that it passes
    sparse = sample([i % 11 - 0.5 for i in range(6_600)], list(range(6_600)), [0] * 6_600, limits)
    queries = [query(f"q{limit}", above(limit), "a") for limit in limits]
    (together,) = choose(sparse, queries, COSTS)
    assert len(together) >= 8


def test_columns_that_determine_one_another_share_their_union() -> None:
    """The group-bys (a), (a, b) have equally many groups where a determines b."""
    a = [i % 50 for i in range(6_000)]
    profile = sample([1.0] * 6_000, a, [key // 10 for key in a])
    queries = [query("fine", None, "a", "b"), query("coarse", None, "a"), query("coarsest", None, "b")]
    together = choose(profile, queries, COSTS)
    assert together == (("fine", "coarse"),)
    (shared, members), (alone, _) = synopses_of(STREAM, queries, together).items()
    assert [member.name for member in members] == ["fine", "coarse"]
    assert [name for name, _ in shared.group_by] == ["a", "b"]
    assert shared.bucket_by == ("a",)
    assert [name for name, _ in alone.group_by] == ["b"]


def test_independent_columns_stay_apart() -> None:
    chance = np.random.default_rng(3)
    profile = sample([1.0] * 6_000, chance.integers(0, 40, 6_000), chance.integers(0, 40, 6_000))
    assert choose(profile, [query("x", None, "a"), query("y", None, "b")], COSTS) == ()


def test_what_is_in_force_is_kept_while_it_is_about_as_cheap() -> None:
    a = [i % 50 for i in range(6_000)]
    profile = sample([1.0] * 6_000, a, [key // 10 for key in a])
    queries = [query("fine", None, "a", "b"), query("coarse", None, "a"), query("coarsest", None, "b")]
    dear = (("coarse", "coarsest"),)
    assert choose(profile, queries, COSTS, dear) == (("fine", "coarse"),)
    assert choose(None, queries, COSTS, dear) == dear
    assert choose(None, queries, COSTS) == ()
    # queries that are gone leave the others where they were
    assert choose(None, queries[1:], COSTS, (("fine", "coarse", "coarsest"),)) == (("coarse", "coarsest"),)


def test_a_filter_that_comes_leaves_the_synopsis_that_is_there() -> None:
    """Sharing with it would save 5 % of the partial rows, and cost the history of both."""
    profile = sample([1.5 if i % 100 < 38 else 0.5 for i in range(6_000)], list(range(6_000)), [0] * 6_000, [0.0, 1.0])
    existing_query, new = query("there", above(0.0), "a"), query("new", above(1.0), "a")
    assert choose(profile, [existing_query, new], COSTS) == (("there", "new"),)
    assert choose(profile, [existing_query, new], COSTS, [("there",)]) == ()
    # but two that come share what they can
    other = query("other", above(1.0), "a", "b")
    assert choose(profile, [existing_query, new, other], COSTS, [("there",)]) == (("new", "other"),)


def partitions(families: list[Family]) -> Iterator[list[list[Family]]]:
    if not families:
        yield []
        return
    first, *other_families = families
    for partition in partitions(other_families):
        yield [[first], *partition]
        for index in range(len(partition)):
            yield [*partition[:index], [first, *partition[index]], *partition[index + 1 :]]


def drawn_families(data: st.DataObject) -> tuple[Profile, list[ACQ]]:
    """A small sample, and up to four queries over it."""
    size = data.draw(st.integers(1, 60))
    prices = data.draw(st.lists(st.sampled_from([0.5, 1.5, 2.5]), min_size=size, max_size=size))
    a, b = (data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)) for _ in range(2))
    filters = st.sampled_from([None, above(0.0), above(1.0), above(2.0)])
    columns = st.sampled_from([(), ("a",), ("b",), ("a", "b")])
    drawn = data.draw(st.lists(st.tuples(filters, columns), min_size=1, max_size=4))
    seconds = st.sampled_from([2, 3, 10, 60])
    queries = [
        query(f"q{number}", filter, *names, seconds=data.draw(seconds)) for number, (filter, names) in enumerate(drawn)
    ]
    return sample(prices, a, b, (0.0, 1.0, 2.0)), queries


def priced(profile: Profile, queries: Sequence[ACQ], synopses: Iterable[Iterable[Family]]) -> float:
    members_of, total = families_of(queries), 0.0
    for families in synopses:
        synopsis_families = list(families)
        edges = Fragments.of(query.window for family in synopsis_families for query in members_of[family]).edges
        total += cost(profile, edges, synopsis_families, COSTS)
    return total


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_never_dearer_than_apart_and_close_to_the_best_partition(data: st.DataObject) -> None:
    profile, queries = drawn_families(data)
    synopses = synopses_of(STREAM, queries, choose(profile, queries, COSTS))
    for synopsis, members in synopses.items():
        assert synopsis.edges == Fragments.of(query.window for query in members).edges
    assert sorted(member.name for members in synopses.values() for member in members) == sorted(
        query.name for query in queries
    )
    spent = priced(profile, queries, map(families_of, synopses.values()))
    families = list(families_of(queries))
    apart = priced(profile, queries, [[family] for family in families])
    best = min(priced(profile, queries, partition) for partition in partitions(families))
    assert best - 1e-12 <= spent <= apart + 1e-12
    assert spent <= 1.35 * best + 1e-12


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_what_comes_leaves_what_is_there_where_it_is(data: st.DataObject) -> None:
    """Synopses in force, also of one family, stay whole while that costs about as much as anything."""
    profile, queries = drawn_families(data)
    families = list(families_of(queries))
    existing_families = data.draw(st.lists(st.sampled_from(families), unique=True))
    inner = data.draw(st.sampled_from(list(partitions(existing_families))))
    existing_names = [[query.name for family in group for query in families_of(queries)[family]] for group in inner]
    loyalty = data.draw(st.sampled_from([1.1, 1.5, 3.0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "LOYALTY", loyalty)
        together = choose(profile, queries, COSTS, existing_names)
    chosen_synopses = [frozenset(families_of(members)) for members in synopses_of(STREAM, queries, together).values()]
    if any(frozenset(group) not in chosen_synopses for group in inner):
        new = [[family] for family in families if family not in existing_families]
        assert priced(profile, queries, [*inner, *new]) > loyalty * priced(profile, queries, chosen_synopses)


def test_a_plan_carries_what_shares_a_synopsis_through_rows_and_refreshes() -> None:
    from optimizer.plan.stored_rows import from_rows, to_rows

    a = [i % 50 for i in range(6_000)]
    profile = sample([1.0] * 6_000, a, [key // 10 for key in a])
    queries = (query("fine", None, "a", "b"), query("coarse", None, "a"), query("coarsest", None, "b"))
    workload = Workload(queries, (STREAM,))
    plan = build_plan(workload, {"trades": Fraction(1)}, profiles={"trades": profile})
    assert [tree.together for tree in plan.trees] == [(("fine", "coarse"),)]
    assert from_rows(to_rows(plan)) == plan
    assert build_plan(workload, {"trades": Fraction(1)}, previous=plan).trees == plan.trees
    apart = build_plan(workload, {"trades": Fraction(1)})
    assert apart.fingerprint != plan.fingerprint


def test_what_no_run_has_measured_is_counted_on_the_sample() -> None:
    """A fragment of a minute has 20 groups in one family, one in the other; without a sample the plan says so."""
    profile = sample([1.0] * 6_000, [i % 20 for i in range(6_000)], [0] * 6_000)
    queries = (query("x", None, "a"), query("y"))
    assert groups_per_fragment(profile, queries) == 10.5
    assert groups_per_fragment(sample([], [], []), queries) is None
    # a synopsis of both has one row for each group of the finer, counted once
    assert groups_per_fragment(profile, queries, (("x", "y"),)) == 20
    workload, rates = Workload(queries, (STREAM,)), {"trades": Fraction(100)}
    seen = build_plan(workload, rates, model="measured", profiles={"trades": profile})
    assert (dict(seen.model.groups_per_fragment), seen.blind) == ({"trades": Fraction(21, 2)}, ())
    known = build_plan(workload, rates, model=measured(groups_per_fragment={"trades": 3}), profiles={"trades": profile})
    assert dict(known.model.groups_per_fragment) == {"trades": 3}
    assert build_plan(workload, rates, model="measured").blind == ("trades",)
    assert build_plan(workload, rates, model=PAPER).blind == ()
