"""What a revision changes for readers, counted by hashes, beside the same counted row by row."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.results import revisions
from spark_jobs.results.revisions import Answered, Readers
from spark_jobs.store.warehouse.schemas import RESULTS
from tests.sizes import examples

Row = dict[str, Any]

_DOUBLES = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]))
_LISTS = {
    "longs": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-2, 2)), max_size=2)),
    "doubles": st.one_of(st.none(), st.lists(_DOUBLES, max_size=2)),
    "texts": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "ab"])), max_size=2)),
}


@st.composite
def answers(draw: Any, run: str) -> list[Row]:
    """Rows of results, one a query, instant, position and key."""
    places = st.tuples(st.sampled_from("pq"), st.integers(0, 3), st.sampled_from([None, 0, 7]), st.sampled_from("xy"))
    return [
        {
            "day": "1970-01-01",
            "stream": "s",
            "query": query,
            "window_start": instant - 1,
            "window_end": instant,
            "instant": instant,
            "position": position,
            "key": f'["{key}"]',
            **{name: draw(values) for name, values in _LISTS.items()},
            "error": draw(st.sampled_from([None, None, "HDL-601"])),
            "plan_version": 1,
            "revision": 1,
            "run_id": run,
            "fingerprint": "f",
        }
        for query, instant, position, key in draw(st.lists(places, unique=True, max_size=8))
    ]


def seen(row: Row) -> str:
    """What readers see of a row: NaN is NaN, a list without elements is as none."""
    return repr([row["key"], row["error"], *(row[name] or None for name in _LISTS)])


def windows(rows: Sequence[Row]) -> dict[tuple[Any, ...], Counter[str]]:
    counts: dict[tuple[Any, ...], Counter[str]] = {}
    for row in rows:
        counts.setdefault((row["query"], row["instant"], row["position"]), Counter())[seen(row)] += 1
    return counts


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=RESULTS)


def replaced(
    old: Sequence[Row], new: Sequence[Row], gone: set[str], folder: Path, by_tasks: bool = False
) -> dict[str, Any]:
    """By :class:`Readers`: the answers of some queries of ``old`` go, in two files, those of ``new`` come.
    ``by_tasks``: each file was counted by somebody else."""
    readers = Readers()
    for part in (old[: len(old) // 2], old[len(old) // 2 :]):
        stored = table(part)
        inside = pa.array([True] * len(stored), pa.bool_())
        readers.replace(stored, inside, pc.is_in(stored["query"], pa.array(sorted(gone), pa.string())))
    paths = []
    for number, part in enumerate((new[::2], new[1::2])):
        # as tasks write them: without columns that no row has
        staged = table(part).drop_columns(["day"])
        staged = staged.drop_columns([name for name in ("position", *_LISTS) if staged[name].null_count == len(staged)])
        paths.append(folder / f"{number}.parquet")
        pq.write_table(staged, paths[-1])
    answered = Answered() if by_tasks else None
    for path in paths if answered is not None else ():
        of_file = Answered()
        of_file.add_file(pq.ParquetFile(path, read_dictionary=["query"]))
        answered.join(pickle.loads(pickle.dumps(of_file)))
    return readers.change(paths, answered) | {"none": readers.without_answers(["p", "q", "r"])}


@given(
    old=answers("a"),
    new=answers("b"),
    gone=st.sets(st.sampled_from("pq")),
    places=st.sampled_from((0, 1 << 20)),
    by=st.booleans(),
    bits=st.sampled_from((1, 192)),
)
@settings(max_examples=examples(60), deadline=None)
def test_changes_are_those_of_comparing_every_row(
    old: list[Row],
    new: list[Row],
    gone: set[str],
    places: int,
    by: bool,
    bits: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    new = [row for row in new if row["query"] in gone]
    if old:
        new += [row for row in old[::2] if row["query"] in gone and windows([row]).keys().isdisjoint(windows(new))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revisions, "MOST_PLACES", places)
        patch.setattr(revisions, "BITS_A_WINDOW", bits)
        changes = replaced(old, new, gone, tmp_path_factory.mktemp("staged"), by)
    was, now = windows([row for row in old if row["query"] in gone]), windows(new)
    expected = {
        "gained": [key for key in now if key not in was],
        "lost": [key for key in was if key not in now],
        "changed": [key for key in was if key in now and was[key] != now[key]],
    }
    for kind, keys in expected.items():
        assert changes[kind] == [len({query for query, *_ in keys}), len(keys)], kind
    after = [row for row in old if row["query"] not in gone] + new
    assert (changes["before"], changes["after"]) == (len(old), len(after))
    counts = Counter(row["query"] for row in old), Counter(row["query"] for row in after)
    assert changes["fewer"] == {
        name: [count, counts[1][name]] for name, count in counts[0].items() if counts[1][name] < count
    }
    assert changes["queries"] == sorted({query for kind in ("lost", "changed") for query, *_ in expected[kind]})
    assert changes["none"] == [name for name in "pqr" if not counts[1][name]]


def test_a_record_names_a_hundred_queries_at_most(tmp_path: Path) -> None:
    rows = [row | {"query": f"q{number:03}"} for number in range(150) for row in _some()]
    changes = replaced(rows, [], {row["query"] for row in rows}, tmp_path)
    assert changes["lost"] == [150, 150] and len(changes["queries"]) == 100 and len(changes["fewer"]) == 150


def _some() -> list[Row]:
    first = {"day": "1970-01-01", "stream": "s", "query": "p", "window_start": 0, "window_end": 1, "instant": 1}
    stamp = {"plan_version": 1, "revision": 1, "run_id": "r", "key": "[]"}
    return [first | stamp | dict.fromkeys(("position", *_LISTS, "error", "fingerprint"))]


@given(
    old=answers("a"),
    new=answers("b"),
    again=st.sets(st.integers(0, 20)),
    copies=st.sets(st.integers(0, 20), max_size=2),
    cuts=st.sets(st.integers(0, 20), max_size=3),
)
@settings(max_examples=examples(60), deadline=None)
def test_answers_stay_that_there_is_one_equal_answer_of(
    old: list[Row], new: list[Row], again: set[int], copies: set[int], cuts: set[int]
) -> None:
    stored = [*old, *(old[at] for at in sorted(copies) if at < len(old))]
    given = [*new, *(row | {"run_id": "b"} for at, row in enumerate(old) if at in again)]
    edges = [0, *(cut for cut in sorted(cuts) if cut < len(stored)), len(stored)]
    unchanged = revisions.Unchanged()
    unchanged.add(table(given), [table(stored[low:high]) for low, high in pairwise(edges)])
    was, now = (
        Counter((row["query"], row["instant"], row["position"], seen(row)) for row in rows) for rows in (stored, given)
    )
    for rows in (stored, given):
        expected = []
        for row in rows:
            key = row["query"], row["instant"], row["position"], seen(row)
            expected.append(was[key] == 1 and now[key] == 1)
        assert unchanged.holds(table(rows)).tolist() == expected
    assert len(unchanged) == sum(was[key] == 1 and now[key] == 1 for key in was)


def test_answers_whose_hashes_are_equal_by_chance_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = _some(), [row | {"longs": [2]} for row in _some()]
    monkeypatch.setattr(revisions, "_hashes", lambda column: np.ones(len(column), dtype=np.uint64))
    unchanged = revisions.Unchanged()
    unchanged.add(table(new), [table(old)])
    assert not len(unchanged)
    unchanged.add(table(old), [table(old)])
    assert len(unchanged) == 1


def test_another_definition_is_another_answer() -> None:
    unchanged = revisions.Unchanged()
    unchanged.add(table([row | {"fingerprint": "f"} for row in _some()]), [table(_some())])
    assert not len(unchanged)
