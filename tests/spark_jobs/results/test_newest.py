"""Newest answers that follow the results: what is read of a change gives what reading everything gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from optimizer.workload.values import Window
from spark_jobs.results.newest import NewestAnswers, _hashes, _texts
from spark_jobs.results.relations import relations
from spark_jobs.results.snapshot import AnswerSnapshot
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.sizes import examples
from tests.spark_jobs.results.stored import BY_TEXT, HOUR, NOON, row, store

DAY = 24

ANSWERS = st.lists(st.tuples(st.integers(0, 12 * DAY), st.sampled_from(["A", "B", None])), max_size=4)
CHANGES = st.lists(st.tuples(st.booleans(), ANSWERS), min_size=2, max_size=5)
"""Commits: answers, by hour and group, that come, or whose day's files go."""


def snapshot_of(warehouse: Warehouse) -> AnswerSnapshot:
    current = warehouse.table("results")
    return AnswerSnapshot(warehouse, current, relations(warehouse, current), BY_TEXT.name)


def rows_of(answers: pa.Table) -> list[str]:
    return sorted(map(repr, answers.to_pylist()))


@given(CHANGES)
@settings(max_examples=examples(15), phases=(Phase.explicit, Phase.generate))
def test_what_is_read_of_a_change_is_what_all_of_it_gives(steps: Any) -> None:
    with TemporaryDirectory() as folder:
        store(Path(folder), [([BY_TEXT], [])])
        warehouse, before, number = Warehouse.open(folder), None, 0
        for goes, answers in steps:
            if goes and answers:
                day = f"2013-07-{1 + (answers[0][0] + 12) // DAY:02}"
                current = warehouse.table("results")
                with warehouse.lease():
                    current.delete(f"day = '{day}'")
            else:
                number += 1
                rows = [row(BY_TEXT, hours, number, who) for hours, who in dict.fromkeys(answers)]
                store(Path(folder), [([BY_TEXT], rows)])
            snapshot = snapshot_of(warehouse)
            digest = snapshot.digest()
            complete = NewestAnswers.of(snapshot, digest)
            renewed = before.renewed(snapshot, digest) if before is not None else None
            if renewed is not None:
                found = {(each["who"], each["window_end"]) for each in renewed.answers.to_pylist()}
                assert found == {(each["who"], each["window_end"]) for each in complete.answers.to_pylist()}
                assert renewed.files == complete.files and renewed.digest == complete.digest
            before = renewed or complete


TRICKY = [
    *(("a", "b"), ("ab", ""), ("", "ab"), ("a\x00", "b"), ("a", "\x00b"), ("1:a", "b"), ("a", None), (None, "a")),
    *(("-", ""), ("", "-"), (None, None), ("a=", "b"), ("a", "=b")),
]
"""Groups of two texts that are easily taken for one another."""


def test_groups_are_found_by_exactly_their_values() -> None:
    first, second = (pa.array([pair[at] for pair in TRICKY], pa.string()) for at in (0, 1))
    number = pa.array(range(len(TRICKY)))
    groups = pa.table({"first": first, "second": second})
    answers = groups.append_column("n", number)
    hashes = _hashes(_texts(answers, ["first", "second"]))
    order = np.argsort(hashes, kind="stable")
    facts = ("q", 1, "", "", frozenset[tuple[str, str]](), ("first", "second"))
    newest = NewestAnswers(*facts, answers.take(order), hashes[order])
    assert newest.find(groups).equals(answers)
    # of equal hashes each is compared
    alike = replace(newest, hashes=np.zeros(len(TRICKY), np.uint64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.results.newest._hashes", lambda texts: np.zeros(len(texts), np.uint64))
        assert alike.find(groups.take([3, 1])).equals(answers.take([3, 1]))
        assert alike.find(pa.table({"first": ["b"], "second": ["a"]}))["n"].to_pylist() == [None]


def test_a_new_day_is_read_alone(tmp_path: Path) -> None:
    """And a group that lost its newest answer, or a redefined query, is read from the beginning."""
    store(tmp_path, [([BY_TEXT], [row(BY_TEXT, 0, 1, "A"), row(BY_TEXT, 0, 2, "B")])])
    warehouse = Warehouse.open(tmp_path)
    first = NewestAnswers.of(snapshot_of(warehouse), "1")
    store(tmp_path, [([BY_TEXT], [row(BY_TEXT, DAY, 3, "A")])])
    second = first.renewed(snapshot_of(warehouse), "2")
    assert second is not None
    assert rows_of(second.answers) == rows_of(NewestAnswers.of(snapshot_of(warehouse), "2").answers)
    assert sorted(second.answers["n"].to_pylist()) == [2, 3]
    with warehouse.lease():
        warehouse.table("results").delete("day = '2013-07-02'")
    assert second.renewed(snapshot_of(warehouse), "3") is None
    redefined = replace(BY_TEXT, window=Window(2 * HOUR, HOUR))
    store(tmp_path, [([redefined], [row(redefined, 2 * DAY, 4, "A")])])
    assert second.renewed(snapshot_of(warehouse), "4") is None
    assert NOON % HOUR == 0
