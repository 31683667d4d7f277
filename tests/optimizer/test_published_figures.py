"""What rows of Weave Share's figures hold."""

from __future__ import annotations

import pytest

from optimizer.papers.evaluations import weave_share


def test_costs_are_relative_to_those_of_one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"weave_share_cost": 3.0, "shared_cost": 4.0, "best_cost": 2.0}
    trees = {"weave_share_trees": 5.0, "best_trees": 6.0}
    monkeypatch.setattr(weave_share, "_means", lambda workloads, rate, algorithms: costs | trees)
    row = {"normalised_cost": 0.75, "trees": 5.0, "weave_share_cost": 3.0, "shared_cost": 4.0}
    assert weave_share._normalised([], 1, with_best=False) == row
    assert weave_share._normalised([], 1, with_best=True) == row | {"best_normalised_cost": 0.5, "best_trees": 6.0}
