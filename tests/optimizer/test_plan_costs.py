"""What a plan is compared with."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from optimizer.plan.definition import SharingPlan


@pytest.mark.parametrize(("from_scratch", "is_known"), [(None, False), (5, False), (4, True), (6, True)])
def test_a_search_from_scratch_is_a_baseline_where_it_costs_otherwise(from_scratch: int | None, is_known: bool) -> None:
    plan = SimpleNamespace(no_share=9, shared=8, weave_share=None, from_scratch=from_scratch, cost=5)
    known = {"no_share": 9, "shared": 8, "weave_share": None}
    baselines = vars(SharingPlan)["baselines"].fget(plan)
    assert baselines == (known | {"from_scratch": from_scratch} if is_known else known)
