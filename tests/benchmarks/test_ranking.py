"""Which plans of a ranking are run again."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.ranking import BEHIND, Ranked, contenders


def ranked(*stages: float) -> Ranked:
    return Ranked(1, list(stages), list(stages))


def test_what_is_clearly_behind_is_not_run_again_but_ours_is() -> None:
    fastest, near, behind, ours = ranked(1.0), ranked(BEHIND), ranked(BEHIND + 0.01), ranked(9.0)
    plan: Any = None
    remaining = contenders([(plan, contender) for contender in (behind, near, ours, fastest)], ours)
    assert [contender for _, contender in remaining] == [near, ours, fastest]


def test_one_slow_round_is_not_enough() -> None:
    fastest, unlucky = ranked(1.0, 1.0, 1.0), ranked(1.1, 5.0, 1.1)
    plan: Any = None
    assert len(contenders([(plan, fastest), (plan, unlucky)], fastest)) == 2
