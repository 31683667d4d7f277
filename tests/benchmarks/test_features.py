"""The benchmark of features, scaled down: all ways to answer agree, and a difference is reported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from optimizer.workload.instants import DAY
from tests.benchmarks import feature_peers, features, sharing
from tests.benchmarks.feature_queries import (
    AGGREGATES,
    BEGIN,
    DAILY,
    FIRST_DAY,
    HOUR,
    INSTANTS,
    NOW,
    RECENT,
    STEP,
    daily,
    generate,
    recent,
)

TINY = ["--events", "1500", "--keys", "30", "--rounds", "1", "--no-spark", "--charts", "nowhere"]


def test_the_queries_have_a_feature_for_each_aggregate_and_window(tmp_path: Path) -> None:
    for queries, windows in ((recent(tmp_path), RECENT), (daily(tmp_path), DAILY)):
        names = {f"{name}_{window}" for name in AGGREGATES for window in windows}
        assert {output.name for output in queries.query.outputs} == names and len(names) == 104
        assert [part.range for part in queries.query.window.each] == list(windows.values())


def test_orders_are_ascending_and_no_two_at_one_moment(tmp_path: Path) -> None:
    table = pq.read_table(generate(tmp_path, 5_000, 50))
    times = table["ts"].cast(pa.int64()).to_numpy()
    assert len(table) == 5_000 and (np.diff(times) > 0).all() and times[0] >= BEGIN and times[-1] < NOW
    assert pc.max(table["cents"]).as_py() < feature_peers.SHIFT
    # a moment and an amount are one number
    assert (NOW + DAY - BEGIN) * feature_peers.SHIFT < 1 << 63


def test_hops_end_windows_with_complete_hops() -> None:
    instant = BEGIN + 800 * DAY + 10 * HOUR + 7 * STEP
    starts = {name: feature_peers.hop_start(instant, length) for name, length in RECENT.items()}
    assert starts["h6"] == instant - RECENT["h6"]
    assert starts["d7"] == BEGIN + 793 * DAY + 10 * HOUR
    assert starts["d30"] == BEGIN + 770 * DAY


@pytest.mark.parametrize("kind", ["update", "backfill"])
def test_all_ways_agree(tmp_path: Path, kind: str) -> None:
    source = generate(tmp_path, 3_000, 20)
    queries = daily(source) if kind == "backfill" else recent(source)
    end = FIRST_DAY + INSTANTS * DAY
    bounds = (FIRST_DAY, end) if kind == "backfill" else (end - STEP, end)
    answers = {}
    with feature_peers.peers_of(source, 20, with_spark=False) as peers:
        for peer in peers:
            peer.prepare(queries)
            # at midnight hops are exact, too; those of 5 minutes are of the end of the stream only
            if peer.can(queries) and (peer.is_exact or kind == "backfill"):
                answers[peer.title] = peer.answers(queries, bounds)
    first, *others = answers.values()
    assert first is not None and len(others) >= 2 and len(first) > 10
    for other in others:
        assert other is not None and features.difference(queries.query, first, other) is None
        assert features.wrong_share(queries.query, first, other) < 1e-9


def test_wrong_answers_are_counted(tmp_path: Path) -> None:
    source = generate(tmp_path, 500, 5)
    queries = recent(source)
    peer = feature_peers.DuckDBBands(source, 5)
    answers = peer.answers(queries, (NOW - STEP, NOW))
    n = answers.column_names.index("n_d730")
    wrong = answers.set_column(n, "n_d730", pc.add(answers["n_d730"].cast(pa.int64()), 1))
    assert features.wrong_share(queries.query, answers, wrong) == pytest.approx(1 / 104)
    assert features.wrong_share(queries.query, answers, answers.slice(1)) == pytest.approx(1 / len(answers))


class Forgetful(feature_peers.Polars):
    title = "Polars"

    def answers(self, queries: feature_peers.QuerySet, bounds: feature_peers.Bounds) -> pa.Table:
        answers = super().answers(queries, bounds)
        name = queries.query.outputs[-1].name
        return answers.set_column(answers.column_names.index(name), name, pa.nulls(len(answers), pa.int64()))


@pytest.mark.longer
def test_a_small_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figures.json"
    monkeypatch.setattr(feature_peers, "Polars", Forgetful)
    arguments = ["--workloads", "features", *TINY, "--data", str(tmp_path / "data"), "--json", str(path)]
    assert sharing.main(arguments) == 1
    document = json.loads(path.read_text())
    assert document["update"]["rows"] == 30 and document["backfill"]["rows"] == 30 * INSTANTS
    for task in ("update", "backfill"):
        figures = document[task]
        # all others agree with Heddle
        (problem,) = figures["differing"]
        assert problem.startswith("Polars: ")
        assert figures["fill"] > 0 and figures["over_heddle"]["heddle"] == 1
        assert figures["best_exact"].startswith(("DuckDB", "Polars"))
    assert document["update"]["wrong"]["hops"] > document["backfill"]["wrong"]["hops"] == 0
    shown = capsys.readouterr().out
    assert "times Heddle" in shown and "differs: Polars" in shown
