"""Windows since the first event of a stream (RANGE UNBOUNDED): whole runs against the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.run.interval import run
from spark_jobs.windows.partials import levels
from tests.lifetimes import lifetime_cases
from tests.sizes import examples
from tests.spark_jobs.case_runs import DEAR, expects_answers, planned, published, stored, wrong
from tests.spark_jobs.kernels import ALGORITHMS
from tests.workloads import Case, spans_of


@pytest.fixture
def eager() -> Iterator[None]:
    """Every window is long, and each day is closed at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "LONG", 0)
        patch.setattr(levels, "BATCH", 1)
        yield


@settings(DEAR, max_examples=examples(25, 200, slow=40))
@given(
    generated=lifetime_cases(),
    format=st.sampled_from(("parquet", "parquet", "csv", "delta")),
    algorithm=st.sampled_from(ALGORITHMS),
    data=st.data(),
)
def test_published_answers_are_those_of_the_oracle(
    engine: Any,
    eager: None,
    tmp_path_factory: pytest.TempPathFactory,
    generated: Case,
    format: str,
    algorithm: str,
    data: st.DataObject,
) -> None:
    """Under any plan and any cut of the interval, in any order, with maintenance in between."""
    assume(expects_answers(generated))
    folder = tmp_path_factory.mktemp("lifetimes")
    case = stored(generated, folder / "source", format)
    warehouse, version = planned(case, folder / "warehouse", algorithm)
    for begin, end in data.draw(st.permutations(spans_of(case, data.draw(st.integers(1, 4))))):
        run(engine, warehouse, version, begin, end, f"run-{begin}", recompute=data.draw(st.integers(0, 4)) == 0)
        if data.draw(st.integers(0, 4)) == 0:
            maintain(warehouse, retention=0)
    assert wrong(generated, published(case, warehouse)) == []
