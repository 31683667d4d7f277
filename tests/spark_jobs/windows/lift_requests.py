"""What runs lift from events, seen from outside, and the states in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pytest

from optimizer.synopses.synopsis import Synopsis
from spark_jobs.pipeline.run import partials_stage
from spark_jobs.windows.partials.fill_request import FillRequest


def pairs_of(synopsis: Synopsis, is_counted: bool = False) -> set[tuple[Any, Any]]:
    """The states of each filter; if it ``is_counted`` elsewhere, but for the number of tuples."""
    return {(predicate, state) for predicate in synopsis.predicates for state in synopsis.states[is_counted:]}


@contextmanager
def watched() -> Iterator[list[FillRequest]]:
    """What is lifted from events meanwhile."""
    seen: list[FillRequest] = []
    lift_task = partials_stage.lift_task
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            partials_stage,
            "lift_task",
            lambda *args, **kwargs: seen.extend(chain.from_iterable(args[2])) or lift_task(*args, **kwargs),
        )
        yield seen


def kinds(requests: Sequence[FillRequest]) -> list[set[str]]:
    return [{state.kind for state in request.synopsis.states} for request in requests]
