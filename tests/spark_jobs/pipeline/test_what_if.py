"""What a change would cost: against plans made after the change, and by hand. The command is in test_cli."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.search.cost import measured
from optimizer.workload.values import ACQ, LONG, SECOND, STRING, TIMESTAMP, Output, Source, Stream, Window, Workload
from spark_jobs.pipeline.planning.what_if import RateChange, what_if
from tests.optimizer.searching import window_lists
from tests.sizes import examples

TRADES = Stream("trades", Source("csv", "trades.csv"), (("ts", TIMESTAMP),), "ts")


def query(name: str, seconds_range: int, seconds_slide: int) -> ACQ:
    window = Window(seconds_range * SECOND, seconds_slide * SECOND)
    return ACQ(name, "trades", window, (Output("n", "count", None, None, LONG),))


def planned(queries: list[ACQ], rate: Fraction, algorithm: str) -> SharingPlan:
    return build_plan(Workload(tuple(queries), (TRADES,)), {"trades": rate}, algorithm)


@pytest.mark.parametrize(
    ("text", "stream", "number", "is_factor"),
    [
        ("trades=1200", "trades", Fraction(1200), False),
        ("trades = 1/3", "trades", Fraction(1, 3), False),
        ("tradesx3", "trades", Fraction(3), True),
        ("trades×0.5", "trades", Fraction(1, 2), True),
        ("trades*1e3", "trades", Fraction(1000), True),
        ("matrix2x10", "matrix2", Fraction(10), True),
        ("boxx.5", "box", Fraction(1, 2), True),
    ],
)
def test_rates_as_people_write_them(text: str, stream: str, number: Fraction, is_factor: bool) -> None:
    assert RateChange.parse(text) == RateChange(stream, number, is_factor)


@pytest.mark.parametrize(
    "text", ["", "trades", "=3", "trades=", "trades=-1", "trades=1/0", "tradesx", "trades=1e", "x3"]
)
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(HeddleError, match="HDL-112"):
        RateChange.parse(text)


@settings(max_examples=examples(50), deadline=None)
@given(windows=window_lists(6), data=st.data(), algorithm=st.sampled_from(["weave-share", "no-share", "shared"]))
def test_the_plan_after_is_the_plan_of_the_workload_after(
    windows: list[tuple[int, int]], data: st.DataObject, algorithm: str
) -> None:
    queries = [query(f"q{i}", *window) for i, window in enumerate(windows)]
    rate, factor = Fraction(data.draw(st.integers(0, 50)), 7), Fraction(data.draw(st.integers(0, 30)), 3)
    removed = data.draw(st.sets(st.sampled_from([old_query.name for old_query in queries])))
    new = [query(f"n{i}", *window) for i, window in enumerate(data.draw(window_lists(2)))]
    base = planned(queries, rate, algorithm)
    comparison = what_if(base, new, removed, [RateChange("trades", factor, True)])
    stay = [old_query for old_query in queries if old_query.name not in removed]
    assert comparison.after == planned([*stay, *new], rate * factor, algorithm)
    assert (comparison.before, comparison.diff.removed) == (base, tuple(q.name for q in queries if q.name in removed))
    # as it would be without planning: the same trees, each new query alone
    trees = [[q for q in tree.queries if q.name not in removed] for tree in base.trees] + [[q] for q in new]
    apart = (planned(tree, rate * factor, "shared").cost for tree in trees if tree)
    assert comparison.kept == sum(apart, Fraction(0))


def test_nothing_changes_if_nothing_is_asked() -> None:
    base = planned([query("a", 16, 4), query("b", 10, 5)], Fraction(6, 5), "weave-share")
    comparison = what_if(base)
    assert (
        comparison.after == base
        and comparison.kept == base.cost
        and comparison.diff.is_empty
        and not comparison.diff.rebuilt
    )


def test_newcomers_share_as_a_sample_of_the_stream_says(tmp_path: Path) -> None:
    events = 20_000
    columns = {
        "ts": pa.array(np.arange(events) * 2 * SECOND, pa.timestamp("us", "UTC")),
        "symbol": [f"S{number % 7}" for number in range(events)],
        "side": ["BS"[number % 2] for number in range(events)],
    }
    pq.write_table(pa.table(columns), tmp_path / "trades.parquet")
    types = (("ts", TIMESTAMP), ("symbol", STRING), ("side", STRING))
    stream = Stream("trades", Source("parquet", str(tmp_path / "trades.parquet")), types, "ts")

    def by(name: str, *columns: str) -> ACQ:
        return replace(query(name, 7200, 3600), group_by=tuple((column, STRING) for column in columns))

    rates, model = {"trades": Fraction(1, 2)}, measured()
    base = build_plan(Workload((by("a", "symbol"),), (stream,)), rates, "best", model)
    comparison = what_if(base, [by("b", "side"), by("c", "symbol", "side")])
    assert comparison.after.together == (("a", "c"),) and not comparison.after.blind
    (tmp_path / "trades.parquet").unlink()
    assert what_if(base, [by("b", "side"), by("c", "symbol", "side")]).after.blind == ("trades",)


def test_what_does_not_exist() -> None:
    base = planned([query("a", 16, 4)], Fraction(1), "weave-share")
    with pytest.raises(HeddleError, match="HDL-507.*nobody"):
        what_if(base, remove=["nobody"])
    with pytest.raises(HeddleError, match="HDL-407.*orders"):
        what_if(base, changes=[RateChange("orders", Fraction(1), False)])
