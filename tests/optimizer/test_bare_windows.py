"""Windows from a CSV file: spellings of numbers, bad rows beside good ones, and the plan of registered queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.bare_windows import LONGEST, SHOWN, Windows, plan_windows, read_windows
from optimizer.plan.builder import build_plan
from optimizer.plan.export import to_json as plan_to_json
from optimizer.search.cost import measured
from optimizer.search.search import ALGORITHMS
from optimizer.workload.values import ACQ, LONG, SECOND, TIMESTAMP, Output, Source, Stream, Window, Workload
from tests.optimizer.searching import RATES, window_lists
from tests.sizes import examples

BUDGET = 0.01
TRADES = Stream("windows", Source("csv", "trades.csv"), (("ts", TIMESTAMP),), "ts")

Read = Callable[[str | bytes], tuple[Windows, list[Diagnostic]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def parsed(text: str | bytes) -> tuple[Windows, list[Diagnostic]]:
        path = tmp_path / "windows.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_windows(path)

    return parsed


def refused(read: Read, text: str | bytes) -> str:
    with pytest.raises(HeddleError) as caught:
        read(text)
    return caught.value.diagnostic.code


def in_memory(pairs: list[tuple[int, int]]) -> Windows:
    ranges, slides = (np.array([pair[n] * SECOND for pair in pairs], dtype=np.int64) for n in (0, 1))
    return Windows(np.arange(len(pairs)), ranges, slides)


# ------------------------------------------------------------------------------------------- reading
@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("60,30", (60_000_000, 30_000_000)),
        ("0.5,0.000001", (500_000, 1)),
        ('"60","30"', (60_000_000, 30_000_000)),
        ("  60 ,  0.25 ", (60_000_000, 250_000)),
        ("1e3,1E-6", (1_000_000_000, 1)),
        ("123456789.123456,1000000000", (123_456_789_123_456, 10**15)),
        ("0.1,0.3", (100_000, 300_000)),
        ("1.10,2.0", (1_100_000, 2_000_000)),
    ],
)
@pytest.mark.parametrize("neighbour", ["7,7", "7.5,7.5", "seven,7"], ids=["integers", "decimals", "text"])
def test_numbers_mean_the_same_whatever_stands_beside_them(
    read: Read, cells: str, expected: tuple[int, int], neighbour: str
) -> None:
    windows, _ = read(f"range,slide\n{cells}\n{neighbour}\n")
    assert (windows.ranges[0], windows.slides[0]) == expected
    assert windows.rows[0] == 0


@settings(max_examples=examples(100), deadline=None)
@given(pairs=st.lists(st.tuples(*[st.integers(1, LONGEST * SECOND)] * 2), min_size=1, max_size=20), bad=st.booleans())
def test_every_microsecond_comes_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], bad: bool
) -> None:
    path = tmp_path_factory.mktemp("csv") / "windows.csv"
    lines = [f"{Decimal(r) / SECOND:f},{Decimal(s) / SECOND:f}" for r, s in pairs]
    path.write_text("\n".join(["range,slide", *lines, *["?,?"] * bad]))
    windows, diagnostics = read_windows(path)
    assert list(zip(windows.ranges.tolist(), windows.slides.tolist(), strict=True)) == pairs
    assert len(diagnostics) == bad


@pytest.mark.parametrize(
    "cells",
    [
        "-5,1", "5,-1", "0,1", "1,0", "nan,1", "NaN,1", "inf,1", "-inf,1", "1000000001,1", "1,1e10",
        "99999999999999999999999999,1", "0.0000005,1", "1.0000001,1", "1e-7,1", ",", "5,", ",5", "five,1", "1;2,1",
        "1e999999999,1", "1e-999999999,1", "1/2,1", "3", "1,2,3", "\N{SNOWMAN},1", "1 2,3",
    ],
)  # fmt: skip
@pytest.mark.parametrize("neighbour", ["7,7", "7.5,7.5", "x,7"], ids=["integers", "decimals", "text"])
@pytest.mark.timeout(20)
def test_a_bad_row_is_left_out_and_told(read: Read, cells: str, neighbour: str) -> None:
    windows, diagnostics = read(f"range,slide\n4,2\n{cells}\n6,3\n{neighbour}\n")
    first = [d for d in diagnostics if d.line == 3]
    assert len(first) == 1 and first[0].code == "HDL-118" and first[0].severity == "error"
    assert "row 1 is no window" in first[0].message and first[0].file.endswith("windows.csv")
    assert windows.rows.tolist()[:2] == [0, 2]
    assert windows.ranges.tolist()[:2] == [4 * SECOND, 6 * SECOND]
    assert len(windows.rows) + len(diagnostics) == 4


def test_bytes_that_are_no_text_are_a_bad_row(read: Read) -> None:
    windows, diagnostics = read(b"range,slide\n4,2\n\xff\xfe,3\n6,3\n")
    assert windows.rows.tolist() == [0, 2] and [d.line for d in diagnostics] == [3]
    windows, diagnostics = read(b"range,slide,owner\n4,2,\xff\n")
    assert windows.rows.tolist() == [0] and diagnostics == []


def test_messages_hold_nothing_that_a_terminal_obeys(read: Read) -> None:
    _, diagnostics = read("range,slide\n4,2\n\x1b[31mred\x07" + "x" * 1000 + ",3\n\x1b[2J\n")
    assert [d.line for d in diagnostics] == [3, 4]
    assert all(str(d).isprintable() or "\x1b" not in str(d) for d in diagnostics)
    assert max(len(d.hint) for d in diagnostics) < 120


def test_empty_lines_are_no_rows_but_lines(read: Read) -> None:
    windows, diagnostics = read("range,slide\n4,2\n\n  \n0,1\n\n6,3\n,\n7\n\n")
    # a line of blanks has one cell
    assert windows.rows.tolist() == [0, 3]
    assert [(d.line, d.message.split(" is")[0]) for d in diagnostics] == [
        (4, "row 1"), (5, "row 2"), (8, "row 4"), (9, "row 5"),
    ]  # fmt: skip
    assert read("range,slide\r\n4,2\r\n\r\n6,3\r\n")[0].rows.tolist() == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "slide,range\n2,4\n",
        "name,slide,x,range\n\"a,b\",2,,4\n",
        "\N{ZERO WIDTH NO-BREAK SPACE}range,slide\n4,2",
        "range,slide,range_of_motion\n4,2,9\n",
    ],
)  # fmt: skip
def test_columns_by_name(read: Read, text: str) -> None:
    windows, diagnostics = read(text)
    assert (windows.ranges.tolist(), windows.slides.tolist()) == ([4 * SECOND], [2 * SECOND])
    assert diagnostics == []


def test_files_that_are_none(read: Read, tmp_path: Path) -> None:
    for text in ("4,2\n6,3\n", "range;slide\n4;2\n", "Range,Slide\n4,2\n", "", "\n", "range\n4\n", "\x00\x01\x02"):
        assert refused(read, text) == "HDL-117"
    assert refused(read, "range,slide\n4,2\n".encode("utf-16")) == "HDL-117"
    assert refused(read, "range,slide\n") == "HDL-113"
    assert refused(read, "range,slide\n0,0\nx,y\n") == "HDL-113"
    for path in (tmp_path / "missing.csv", tmp_path):
        with pytest.raises(HeddleError, match="HDL-111"):
            read_windows(path)


def test_many_bad_rows_are_counted(read: Read) -> None:
    windows, diagnostics = read("range,slide\n" + "4,2\n0,1\n" * 1000)
    assert windows.rows.tolist() == list(range(0, 2000, 2))
    assert len(diagnostics) == SHOWN + 1
    assert [d.line for d in diagnostics[:2]] == [3, 5]
    assert diagnostics[-1].message.startswith(f"and {1000 - SHOWN} more rows")


def test_bad_rows_far_into_the_file(read: Read) -> None:
    """Beyond the first block that the reader takes, with broken lines in between."""
    good = "1234567,89\n" * 150_000
    windows, diagnostics = read(f"range,slide\n{good}7\n\n{good}0,1\n4,2\n")
    assert [d.line for d in diagnostics] == [150_002, 300_004]
    assert windows.rows[-1] == 300_002 and len(windows.rows) == 300_001


# ------------------------------------------------------------------------------------------- planning
@settings(max_examples=examples(40), deadline=None)
@given(
    pairs=window_lists(14),
    rate=RATES,
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    model=st.sampled_from([None, measured()]),
)
def test_the_plan_is_that_of_registered_queries(
    pairs: list[tuple[int, int]], rate: Fraction, algorithm: str, model: object
) -> None:
    plan = plan_windows(in_memory(pairs), rate, algorithm, model, seconds=BUDGET)  # type: ignore[arg-type]
    output = (Output("n", "count", None, None, LONG),)
    queries = [ACQ(str(n), "windows", Window(r * SECOND, s * SECOND), output) for n, (r, s) in enumerate(pairs)]
    workload = Workload(tuple(queries), (TRADES,))
    chosen = {"model": model} if model else {}
    registered = build_plan(workload, {"windows": rate}, algorithm, seconds=BUDGET, **chosen)  # type: ignore[arg-type]
    assert plan.cost == registered.cost
    assert [[str(row) for row in rows] for rows, _ in plan.trees] == [
        [query.name for query in tree.queries] for tree in registered.trees
    ]
    plan_json, expected = plan.to_json(), plan_to_json(registered)
    for field in (
        "distinct_edge_sets",
        "upper_bounds",
        "cost",
        "cost_exact",
        "cost_model",
        "rates",
        "optimal",
    ):
        assert plan_json[field] == expected[field], field
    for name in ("no_share", "shared", "weave_share"):
        assert plan_json["baselines"][name] == expected["baselines"][name]
    assert plan_json["trees"] == [tree | {"query_count": len(tree["queries"])} for tree in expected["trees"]]


def test_json_and_summary(read: Read) -> None:
    windows, _ = read("range,slide\n16,4\nx,1\n10,5\n8,4\n0.5,0.25\n")
    plan = plan_windows(windows, Fraction(6, 5), "best")
    full, summary = plan.to_json(), plan.to_json(summary=True)
    assert json.loads(json.dumps(full)) == full
    assert full["queries"] == 4 and full["rates"] == {"windows": "6/5"} and full["format_version"] == 1
    assert full["optimal"] is True and full["upper_bounds"] == [] and full["seconds"] >= 0
    assert Fraction(full["cost_exact"]) == plan.cost and full["cost"] == float(plan.cost)
    assert full["cost"] == pytest.approx(sum(tree["cost"] for tree in full["trees"]))
    assert [tree["id"] for tree in full["trees"]] == [f"windows-{n + 1}" for n in range(len(full["trees"]))]
    # numbers of rows in the file, in order of the first
    assert sorted(int(row) for tree in full["trees"] for row in tree["queries"]) == [0, 2, 3, 4]
    firsts = [int(tree["queries"][0]) for tree in full["trees"]]
    assert firsts == sorted(firsts)
    short = [{key: value for key, value in tree.items() if key != "queries"} for tree in full["trees"]]
    assert summary["trees"] == short
    assert {**summary, "trees": 0} == {**full, "trees": 0}


def test_no_share_lists_rows_singly() -> None:
    plan = plan_windows(in_memory([(4, 2), (6, 2), (4, 2), (10, 5)]), Fraction(2), "no-share")
    assert [rows for rows, _ in plan.trees] == [[0], [1], [2], [3]]
    assert plan.cost == plan.search.problem.unshared
    assert plan.to_json()["distinct_edge_sets"] == 2


def test_slides_of_one_edge_set() -> None:
    """Slide 4 halved by its inner edge is slide 2; the tree's composite slide and overlap are of the windows."""
    (tree,) = plan_windows(in_memory([(2, 4), (6, 4), (6, 2), (5, 2)]), Fraction(100)).to_json()["trees"]
    assert tree["composite_slide"] == 4 and tree["edge_rate"] == "1" and tree["edges"] == 4
    assert Fraction(tree["overlap_factor"]) == Fraction(1, 2) + Fraction(3, 2) + 3 + Fraction(5, 2)


def test_fifty_thousand_rows(read: Read) -> None:
    chosen = np.random.default_rng(2)
    slides = chosen.integers(1, 200, 50_000)
    ranges = slides * chosen.integers(1, 11, 50_000)
    text = "range,slide\n" + "\n".join(f"{r},{s}" for r, s in zip(ranges.tolist(), slides.tolist(), strict=True))
    windows, diagnostics = read(text)
    assert diagnostics == [] and (windows.ranges == ranges * SECOND).all()
    plan = plan_windows(windows, Fraction(10), "weave-share")
    rows = [row for rows, _ in plan.trees for row in rows]
    assert sorted(rows) == list(range(50_000))
    # a few hundred items, not fifty thousand queries
    assert len(plan.search.problem) <= 199
    total = sum(Fraction(tree["overlap_factor"]) for tree in plan.to_json(summary=True)["trees"])
    assert total == int((ranges // slides).sum())


def test_calls_that_cannot_be() -> None:
    windows = in_memory([(4, 2), (9, 3)])
    with pytest.raises(HeddleError, match="HDL-450"):
        plan_windows(windows, Fraction(-1))
    with pytest.raises(ValueError, match="unknown algorithm"):
        plan_windows(windows, Fraction(1), "cleverest")
    with pytest.raises(ValueError, match="unknown counter"):
        plan_windows(windows, Fraction(1), counter="abacus")


# --------------------------------------------------------------------------------------- command line
@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "good.csv").write_text("range,slide\n16,4\n10,5\n8,4\n")
    (tmp_path / "mixed.csv").write_text("range,slide\n16,4\nsoon,5\n8,4\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def heddle(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["plan", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_planning_a_file(place: Path) -> None:
    code, out, _ = heddle("--windows", "good.csv", "--rate", "1.2", "--json")
    data = json.loads(out)
    assert code == 0 and data["cost_exact"] == "43/10"
    assert [tree["queries"] for tree in data["trees"]] == [["0", "2"], ["1"]]
    code, out, _ = heddle("--windows", "good.csv", "--rate", "1.2", "--json", "--summary", "--algorithm", "shared")
    assert code == 0 and [tree["query_count"] for tree in json.loads(out)["trees"]] == [3]
    assert heddle("--windows", "good.csv", "--rate", "1.2")[0] == 0


def test_bad_rows_are_told_and_the_others_planned(place: Path) -> None:
    code, out, err = heddle("--windows", "mixed.csv", "--rate", "1", "--json")
    assert code == 1 and json.loads(out)["queries"] == 2
    assert "HDL-118" in err and "mixed.csv:3" in err and "soon" in err
    (place / "bad.csv").write_text("range,slide\nx,y\n")
    code, out, err = heddle("--windows", "bad.csv", "--rate", "1", "--json")
    assert code == 1 and out == "" and "HDL-113" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rate", "1", "--rate", "2"],
        [],
        ["--rate", "trades=5"],
        ["--rate", "-3"],
        ["--rate", "nan"],
        ["--rate", "1/0"],
        ["--rate", "1", "--algorithm", "cleverest"],
        ["--rate", "1", "--counter", "abacus"],
        ["--rate", "1", "--budget", "-1"],
        ["--rate", "1", "--format", "html"],
        ["--rate", "1", "good.sql"],
        ["--rate", "1", "--warehouse", "."],
    ],
    ids=" ".join,
)
def test_wrong_calls(place: Path, arguments: list[str]) -> None:
    (place / "good.sql").write_text("-- name: a\nSELECT count(*) AS n FROM trades")
    code, out, err = heddle("--windows", "good.csv", *arguments)
    assert code == 2 and out == "" and err
    assert "Traceback" not in err


def test_a_missing_file_is_a_wrong_call(place: Path) -> None:
    code, out, err = heddle("--windows", "none.csv", "--rate", "1")
    assert code == 2 and "HDL-111" in err


@pytest.mark.parametrize("algorithm", ["best", "weave-share", "no-share"])
def test_ten_thousand_identical_rows(place: Path, algorithm: str) -> None:
    (place / "same.csv").write_text("range,slide\n" + "30,10\n" * 10_000)
    code, out, _ = heddle("--windows", "same.csv", "--rate", "5", "--json", "--summary", "--algorithm", algorithm)
    data = json.loads(out)
    trees = 10_000 if algorithm == "no-share" else 1
    assert code == 0 and len(data["trees"]) == trees and data["queries"] == 10_000
    assert Fraction(data["cost_exact"]) == 5 * trees + Fraction(3, 10) * 10_000
    assert data["distinct_edge_sets"] == 1
