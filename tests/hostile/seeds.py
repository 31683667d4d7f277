"""Seeds of generated attacks: how many, from which on, and how a failure is repeated."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from tests.hostile.guard import TooLong

COUNT = int(os.environ.get("HEDDLE_FUZZ", "5000"))
FIRST = int(os.environ.get("HEDDLE_FUZZ_SEED", "0"))


def each(test: str, count: int, check: Callable[[int], str]) -> Counter[str]:
    """Checks so many seeds; a failure says how to repeat it. What ``check`` returned, counted."""
    outcomes = Counter[str]()
    for seed in range(FIRST, FIRST + count):
        try:
            outcomes[check(seed)] += 1
        except (Exception, TooLong) as error:
            again = f"HEDDLE_FUZZ=1 HEDDLE_FUZZ_SEED={seed} python -m pytest tests/hostile/test_fuzz.py -k {test}"
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\nagain: {again}") from error
    return outcomes
