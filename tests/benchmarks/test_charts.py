"""Charts say what was measured: lines are where their values are, no label covers another, what failed is absent."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.charts import BOTTOM, LABEL_HEIGHT, LEFT, QUANTITIES, RIGHT, TOP, Line, draw, main, svg

NAMESPACE = "{http://www.w3.org/2000/svg}"
VALUES = st.floats(min_value=1e-3, max_value=1e6)


def spent(value: float, failure: str = "") -> dict[str, Any]:
    values = [value, value * 3, value * 2]
    return {"cpu": values, "wall": values, "memory": [seconds * 1e6 for seconds in values], "failure": failure}


def document() -> dict[str, Any]:
    peers = {
        "duckdb": spent(1.0) | {"title": "DuckDB", "answer_bytes": 20.0},
        "flink": spent(1.0, "no room") | {"title": "Flink", "answer_bytes": None},
    }
    shared = [
        {"queries": size, "answers": size * 100_000, "written_bytes": size * 1e6, "run": spent(size / 10)}
        for size in (10, 1_000)
    ]
    workload = {"kind": "regular", "events": 5, "shared": shared, "peers": peers, "scan": spent(4.0)}
    return {"workloads": [workload]}


def lines_of(text: str) -> dict[str, list[tuple[float, float]]]:
    """The places of a chart's points, by the name of their line."""
    points_by_line = {}
    for group in ElementTree.fromstring(text).iter(f"{NAMESPACE}g"):
        circles = group.iter(f"{NAMESPACE}circle")
        points_by_line[group.attrib["class"]] = [
            (float(circle.attrib["cx"]), float(circle.attrib["cy"])) for circle in circles
        ]
    return points_by_line


def test_every_quantity_is_drawn_and_what_failed_is_not(tmp_path: Path) -> None:
    paths = draw(document(), tmp_path)
    assert [path.name for path in paths] == [f"sharing_regular_{quantity}.svg" for quantity in QUANTITIES]
    for path in paths[:3]:
        assert set(lines_of(path.read_text())) == {"heddle", "duckdb", "scan"}
    # medians, a peer's times the number of queries; its memory is what it is
    assert "DuckDB: 2,000<" in paths[0].read_text() and "Heddle, all of it: 200<" in paths[0].read_text()
    assert "DuckDB: 2<" in paths[2].read_text()
    assert set(lines_of(paths[3].read_text())) == {"heddle", "parquet"}
    assert "answers alone, as Parquet: 2,000<" in paths[3].read_text()
    assert draw({"growth": []}, tmp_path) == []


def test_the_command_draws_what_is_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sharing.json").write_text(json.dumps(document()))
    main([str(tmp_path / "sharing.json"), str(tmp_path / "charts")])
    assert len(capsys.readouterr().out.splitlines()) == len(list((tmp_path / "charts").iterdir())) == len(QUANTITIES)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=10))
def test_points_are_where_their_values_are_and_labels_apart(values: list[tuple[float, float]]) -> None:
    lines = [Line(f"line{number}", "<&>", ((10, two[0]), (100, two[1]))) for number, two in enumerate(values)]
    text = svg("a title", lines)
    places = lines_of(text)
    points = [point for line in lines for point in zip(line.points, places[line.name], strict=True)]
    drawn = sorted((value, y) for (_, value), (_, y) in points)
    assert all(LEFT <= x <= RIGHT and TOP - 0.1 <= y <= BOTTOM + 0.1 for _, (x, y) in points)
    (least, lowest), (greatest, highest) = drawn[0], drawn[-1]
    for value, y in drawn:  # heights go by the logarithm
        part = math.log(value / least) / math.log(greatest / least) if greatest > least else 0.0
        assert y == pytest.approx(lowest + part * (highest - lowest), abs=0.2)
    labels = sorted(float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)">&lt;&amp;&gt;', text))
    assert len(labels) == len(lines)
    assert all(below - above >= LABEL_HEIGHT - 0.2 for above, below in pairwise(labels))
    assert labels[-1] <= BOTTOM + 13
