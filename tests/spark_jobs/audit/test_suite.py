"""Another process judges as this one does, and where it does not, this one judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.audit.checks import suite
from spark_jobs.audit.checks.suite import FINDINGS
from tests.sizes import examples

FACTS = {"answers of": "2013-07-01 .. 2013-07-02", "files": "3"}

ROW = {"query": "q", "answers": 5, **dict.fromkeys(FINDINGS, 0), "examples": ""}

rows = st.lists(
    st.fixed_dictionaries(
        {
            "query": st.sampled_from(["q", "délai", "(files)", None]),
            "answers": st.integers(-1, 3),
            **{finding: st.sampled_from([0, 0, 0, 1, 7]) for finding in FINDINGS},
            "examples": st.sampled_from(["", "q 2013-07-01 12:00:00 [é]"]),
        }
    ),
    max_size=3,
)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The other process, for one test."""
    monkeypatch.setattr(suite, "_idle", [])
    suite.begin("all")
    (idle_process,) = suite._idle
    yield idle_process
    suite.end()
    assert idle_process.wait(60) is not None


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time that this process judges."""
    judgements: list[str] = []
    monkeypatch.setattr(suite, "_judged", lambda summary, facts: (judgements.append("here"), None))
    return judgements


def plain(kept: Mapping[str, Any] | None) -> Any:
    """What is kept, without the moments and names that each judgement has of its own, and the words for what is right,
    which are those of the first time in a process."""
    assert kept is not None and "problem" not in kept
    result = kept["result"]
    plain_results = []
    for check in result["results"]:
        of_its_own = {"id": "", "rendered_content": check["success"] or check["expectation_config"]["rendered_content"]}
        words = check["success"] or check["rendered_content"]
        plain_results.append(
            check | {"expectation_config": check["expectation_config"] | of_its_own, "rendered_content": words}
        )
    return kept["facts"], plain_results, result["statistics"], result["success"]


@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(rows, min_size=1, max_size=3))
def test_it_judges_as_this_process_does(process: Any, summaries: list[list[dict[str, Any]]]) -> None:
    for summary in summaries:
        with suite.judging(summary, FACTS) as judgement:
            checks, document = judgement()
        process_judgement, local_judgement = (checks, plain(document)), suite._judged(summary, FACTS)
        assert process_judgement == (local_judgement[0], plain(local_judgement[1])) and suite._idle == [process]


def test_where_it_has_ended_this_process_judges(process: Any, alone: list[str]) -> None:
    process.kill()
    process.wait()
    for number in (1, 2):
        with suite.judging([ROW], FACTS) as judgement:
            judgement()
        assert alone == ["here"] * number and suite._idle == []


def test_what_nobody_waited_for_answers_nobody_else(process: Any, alone: list[str]) -> None:
    """A check that fails meanwhile leaves a judgement behind, of these answers and no others."""
    with pytest.raises(ValueError, match="meanwhile"), suite.judging([ROW], FACTS):
        raise ValueError("meanwhile")
    assert suite._idle == [] and process.poll() is not None
    with suite.judging([ROW | {"repeated": 1}], FACTS) as judgement:
        judgement()
    assert alone == ["here"]


def test_it_begins_only_for_who_has_all_answers_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "_idle", [])
    monkeypatch.setenv("HEDDLE_CHECKS", "sample")
    for level in (None, "none", "sample"):
        suite.begin(level)
    assert suite._idle == []
