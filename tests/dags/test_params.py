"""What a run of a DAG is configured with: a key that the form lacks is refused, and publications are announced once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.airflow.announcing import announce_results
from heddle.airflow.dag_set import DagSet
from heddle.airflow.runs import interval_of, params_of

PARAMS = ("algorithm", "cost_model", "rates", "tolerance", "dry_run", "allow_removals", "from", "to", "days", "reason")
DAY = timedelta(days=1)
NOON = datetime(2013, 7, 1, 12, tzinfo=UTC)


def context(conf: Mapping[str, Any] | None, declared: Mapping[str, Any]) -> dict[str, Any]:
    """A task's context as Airflow makes it: what is configured overrides or extends what the DAG declares."""
    return {
        "dag": SimpleNamespace(params=dict(declared)),
        "dag_run": SimpleNamespace(conf=conf, run_after=NOON),
        "params": {**declared, **(conf or {})},
    }


@st.composite
def misspelled(draw: st.DrawFn) -> str:
    """A declared name with a letter dropped, doubled, swapped or in another case, or any text."""
    name = draw(st.sampled_from(PARAMS))
    at = draw(st.integers(0, len(name) - 1))
    edits = (
        name[:at] + name[at + 1 :],
        name[:at] + name[at] + name[at:],
        name.upper(),
        name.replace("_", ""),
        f" {name}",
    )
    return draw(st.sampled_from(edits) | st.text(max_size=200))


@given(
    st.dictionaries(misspelled(), st.booleans() | st.integers() | st.none(), max_size=3),
    st.sets(st.sampled_from(PARAMS)),
)
def test_undeclared_param_is_refused(conf: dict[str, Any], declared: set[str]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    task_context = context(conf, dict.fromkeys(sorted(declared)))
    if conf.keys() <= declared:
        assert params_of(task_context) == task_context["params"]
        return
    with pytest.raises(AirflowFailException) as refused:
        params_of(task_context)
    first = next(name for name in conf if name not in declared)
    assert first[:100] in str(refused.value) and (
        "did you mean" in str(refused.value) or "known: " in str(refused.value)
    )


def test_misspelled_dry_run_names_the_declared_one() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="did you mean `dry_run`"):
        params_of(context({"dryrun": True}, {"dry_run": False, "rates": {}}))
    assert params_of(context(None, {"dry_run": False})) == {"dry_run": False}


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"from": "2013-07-01T00:00:00Z"}, "only one of"),
        ({"to": "2013-07-01T00:00:00Z"}, "only one of"),
        ({"from": "2013-07-02T00:00:00Z", "to": "2013-07-01T00:00:00Z"}, "has to be later"),
        ({"from": "2013-07-01T00:00:00Z", "to": "2013-07-01T02:00:00+02:00"}, "has to be later"),
    ],
)
def test_params_that_are_no_interval_are_refused(conf: dict[str, str], message: str) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=message):
        interval_of(context(conf, {"from": None, "to": None}))


class Events:
    """The events of an asset, with the names that Airflow gives to reading and adding them."""

    def __init__(self, known: list[dict[str, Any]]) -> None:
        self.known, self.added = known, list[dict[str, Any]]()

    def after(self, since: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(extra=extra) for extra in [*self.known, *self.added]]

    def add(self, asset: Any, extra: dict[str, Any]) -> None:
        self.added.append(extra)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from(("manual/1", "scheduled/2"))), max_size=12
    ),
    st.booleans(),
)
def test_each_publication_has_one_event(published: list[tuple[int, int, str]], is_old_form: bool) -> None:
    """Publications announced one by one, in any order, repeated as cleared tasks repeat them."""
    events, dag_set = Events([]), DagSet()
    for day, revision, run_id in published:
        begin = round((NOON + day * DAY).timestamp()) * 1_000_000
        row = SimpleNamespace(
            begin=begin,
            end=begin + DAY // timedelta(microseconds=1),
            at=begin,
            plan_version=1,
            revision=revision,
            answers=5,
            run_id=run_id,
        )
        task_context = {"inlet_events": {dag_set.results: events}, "outlet_events": {dag_set.refreshes: events}}
        announce_results(dag_set, task_context, [row])
        if is_old_form and events.added:
            last = events.added[-1]
            last["from"] = last["from"].replace("Z", "+00:00")
    assert len(events.added) == len(set(published))
