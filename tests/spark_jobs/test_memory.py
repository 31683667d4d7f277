"""The memory of a task: less of it makes more files and more passes, and the same answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_jobs.partials import fill_request
from spark_jobs.run.interval import run
from tests.sizes import examples
from tests.spark_jobs.test_differential import (
    ALGORITHMS,
    DEAR,
    expects_answers,
    planned,
    published,
    same_bytes,
    stored,
)
from tests.workloads import Case, calendar_cases, cases, row_cases, sequence_cases


@pytest.mark.parametrize("generated_cases", [cases, calendar_cases, sequence_cases, row_cases])
def test_how_much_memory_there_is_changes_no_byte(
    engine: Any, tmp_path_factory: pytest.TempPathFactory, generated_cases: Callable[..., st.SearchStrategy[Case]]
) -> None:
    """Of every aggregate; what cannot be divided as far as it would have to be is told of, and nothing else is lost."""

    @settings(DEAR, max_examples=examples(4, 100))
    @given(
        generated_cases(most_queries=8, most_events=60),
        st.sampled_from(ALGORITHMS),
        st.sampled_from(["8k", "16k", "32k", "64k", "256k"]),
    )
    def check(generated: Case, algorithm: str, memory: str) -> None:
        assume(expects_answers(generated))
        folder = tmp_path_factory.mktemp("memory")
        case = stored(generated, folder / "source", "parquet")
        warehouse, version = planned(case, folder / "plenty", algorithm)
        run(engine, warehouse, version, case.begin, case.end, "run-1")
        found = published(case, warehouse)
        other, version = planned(case, folder / "little", algorithm)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HEDDLE_TASK_MEMORY", memory)
            patch.setattr(fill_request, "BATCH_ROWS", 1)
            try:
                record = run(engine, other, version, case.begin, case.end, "run-1")
            except Exception as error:
                assert "HDL-517" in str(error), error
                print("NONE")
                return
        failed = {told["query"] for told in record.diagnostics if told["severity"] == "error"}
        print(memory, len(failed), len(found))
        left = published(case, other)
        for name in found:
            if name not in failed and not same_bytes({name: found[name]}, {name: left[name]}):
                query = next(q for q in case.workload.queries if q.name == name)
                print("DIFF", name, [(o.function, str(o.argument)[:40]) for o in query.outputs])

    check()
