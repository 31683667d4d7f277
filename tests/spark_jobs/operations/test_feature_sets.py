"""Features of labels as of their moments: cases with exact answers, generated ones, and rules against leakage."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heddle
from optimizer.workload.values import LONG, STRING, TIMESTAMP
from spark_jobs.operations import features as features_module
from spark_jobs.windows.features.moments import MomentRule
from tests.heddle.api.api_client import client_of
from tests.joined_cases import JoinedCase, joined_cases, with_joined_events, with_stored_dimensions
from tests.sizes import examples
from tests.spark_jobs.case_runs import planned
from tests.spark_jobs.case_runs import stored as stored_events
from tests.spark_jobs.feature_cases import (
    LabelledCase,
    arrived,
    features,
    house_of,
    label_table,
    labelled,
    wrong_features,
)
from tests.spark_jobs.feature_houses import (
    ALL_LABELS,
    BEGIN,
    HOUR,
    QUERY,
    events_of,
    house_with,
    labels_of,
    some_events,
)
from tests.workloads import calendar_cases, cases, several_cases

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[2] / "fixtures/metric_cases.json").read_text(encoding="utf-8"))
}
TYPES = {"timestamp": TIMESTAMP, "varchar": STRING, "bigint": LONG, "int": LONG}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def plain(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() if isinstance(value, datetime) else value


def table_of(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """A table of a case: its columns are called ``name: type``."""
    names, kinds = zip(*(column.split(": ") for column in columns), strict=True)
    values = [
        [moment(value) if kind == "timestamp" else value for value in column]
        for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    return pa.table(values, names=names)


def rows_of(table: pa.Table, columns: Sequence[str]) -> list[list[Any]]:
    """Rows in the columns of a case, whose features have short names."""
    names = [column if column in table.column_names else f"q__{column}" for column in columns]
    return [[plain(row[name]) for name in names] for row in table.to_pylist()]


@pytest.mark.parametrize(("accuracy", "most"), [("refreshed", 4_000_000), ("exact", 4_000_000), ("exact", 0)])
def test_features_as_last_refreshed_and_exact(
    tmp_path: Path, accuracy: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.windows.features.answering.CUT_CELLS", most)
    case, expected = CASES["F1"], CASES["F1"]["expected"][f"accuracy {accuracy}"]
    house = house_with(tmp_path, {"1": table_of(**case["input"]["payments"])}, case["query"])
    labels = table_of(**case["input"]["labels"])
    table = house.features(labels, "q", at="at", accuracy=accuracy, upto=True)
    assert rows_of(table, expected["columns"]) == expected["rows"]
    assert table.column_names[:3] == labels.column_names


@pytest.mark.parametrize("known", ["now", "then"])
def test_features_of_an_event_that_came_three_hours_late(tmp_path: Path, known: str) -> None:
    case, expected = CASES["F2"], CASES["F2"]["expected"][f"known {known}"]
    (table,) = (each for name, each in case["input"].items() if name.startswith("payments"))
    events = table_of(**table)
    came = [at.timestamp() for at in events["came"].to_pylist()]
    files = {str(row): events.slice(row, 1).drop_columns("came") for row in range(len(events))}
    house = house_with(tmp_path, files, case["query"])
    for row, at in enumerate(came):
        os.utime(tmp_path / "payments" / f"{row}.parquet", (at, at))
    made = house.features(table_of(**case["input"]["labels"]), ["q"], at="at", known=known, upto=True)
    assert rows_of(made, expected["columns"]) == expected["rows"]


def differences(case: LabelledCase) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        stored, warehouse = house_of(case, Path(folder))
        query = stored.case.workload.queries[0]
        table = label_table(query, stored.labels, stored.case)
        made = features(warehouse, stored, table)
        return wrong_features(stored, table, made, dict.fromkeys(range(len(table)), stored.case.events))


@settings(max_examples=examples(25))
@given(labelled(st.one_of(cases(3), several_cases(3), calendar_cases(3))))
def test_features_are_those_of_the_oracle_label_by_label(case: LabelledCase) -> None:
    assert differences(case) == []


@settings(max_examples=examples(15))
@given(labelled(st.one_of(cases(3), several_cases(3))))
def test_cells_that_are_cut_at_bounds_of_windows_give_the_same(case: LabelledCase) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.windows.features.answering.CUT_CELLS", 0)
        assert differences(case) == []


@settings(max_examples=examples(15))
@given(labelled(st.one_of(cases(2), several_cases(2))), st.data(), st.booleans())
def test_what_was_known_then_are_the_files_that_had_arrived(
    case: LabelledCase, data: st.DataObject, is_cut: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if is_cut:
            patch.setattr("spark_jobs.windows.features.answering.CUT_CELLS", 0)
        moments = [label["moment"] for label in case.labels]
        later = st.sampled_from([at + by for at in moments for by in (-1, 0, 1)])
        first = min(moments)
        came = [first, *(max(first, at) for at in data.draw(st.lists(later, min_size=1, max_size=4)))]
        stored, files = arrived(case, Path(folder), came)
        warehouse, _ = planned(stored.case, Path(folder) / "house", "shared")
        table = label_table(stored.case.workload.queries[0], stored.labels, stored.case)
        made = features(warehouse, stored, table, "then")
        known = {row: pa.concat_tables([part for at, part in files if at <= m]) for row, m in enumerate(moments)}
        assert wrong_features(stored, table, made, known) == []


@settings(max_examples=examples(12))
@given(joined_cases(3, 40, cases), st.data())
def test_attributes_of_dimensions_are_joined(joined: JoinedCase, data: st.DataObject) -> None:
    wide = replace(with_joined_events(joined), workload=joined.case.workload)
    case = data.draw(labelled(st.just(wide)))
    with tempfile.TemporaryDirectory() as folder:
        files = with_stored_dimensions(joined, Path(folder) / "dimensions", ["parquet"])
        workload = replace(case.case.workload, streams=(replace(files.case.stream, lateness=case.lateness),))
        own = stored_events(replace(files.case, workload=workload), Path(folder) / "source", "parquet")
        warehouse, _ = planned(own, Path(folder) / "house", "shared")
        table = label_table(case.case.workload.queries[0], case.labels, case.case)
        made = features(warehouse, case, table)
        assert wrong_features(case, table, made, dict.fromkeys(range(len(table)), case.case.events)) == []


# ------------------------------------------------------------------------------------------- rules
def made(folder: Path, files: Mapping[str, pa.Table], labels: pa.Table, **options: Any) -> list[dict[str, Any]]:
    folder.mkdir()
    house = house_with(folder, files, QUERY)
    table = house.features(labels, "q", at="at", **options)
    return [dict(row) for row in table.to_pylist()]


@pytest.mark.parametrize("accuracy", ["refreshed", "exact"])
def test_events_at_or_after_a_moment_change_nothing(tmp_path: Path, accuracy: str) -> None:
    events, moment = some_events(1), 5 * HOUR
    # later labels have events lifted that these must not know
    labels = labels_of([(at, user) for at in (moment, 23 * HOUR) for user in ("a", "b", None)])
    before = [event for event in events if event[0] < moment]
    later = [*before, *((moment + at, "a", 8) for at in (0, 1, HOUR)), (moment, None, 7)]
    results = [
        made(tmp_path / name, {"1": events_of(rows)}, labels, accuracy=accuracy)[:3]
        for name, rows in (("all", events), ("before", before), ("more", later))
    ]
    assert results[0] == results[1] == results[2]
    assert any(row["q__n"] for row in results[0])


@pytest.mark.parametrize("accuracy", ["refreshed", "exact"])
def test_order_parts_and_files_change_nothing(tmp_path: Path, accuracy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(some_events(2))
    together = made(tmp_path / "one", {"1": events}, ALL_LABELS, accuracy=accuracy)
    files = {str(number): events.slice(number * 30, 30) for number in range(7)}
    assert made(tmp_path / "files", files, ALL_LABELS, accuracy=accuracy) == together
    order = random.Random(3).sample(range(len(ALL_LABELS)), len(ALL_LABELS))
    shuffled = made(tmp_path / "shuffled", {"1": events}, ALL_LABELS.take(order), accuracy=accuracy)
    assert [shuffled[order.index(row)] for row in range(len(order))] == together
    parts = [
        row
        for at, part in enumerate((ALL_LABELS.slice(0, 7), ALL_LABELS.slice(7)))
        for row in made(tmp_path / f"part {at}", {"1": events}, part, accuracy=accuracy)
    ]
    assert parts == together
    monkeypatch.setattr("spark_jobs.operations.features.PART_ROWS", 4)
    monkeypatch.setattr("spark_jobs.operations.features.LABELS_A_PIECE", 3)
    assert made(tmp_path / "pieces", {"1": events}, ALL_LABELS, accuracy=accuracy) == together


def test_a_label_that_occurs_twice_has_its_features_twice(tmp_path: Path) -> None:
    labels = pa.concat_tables([ALL_LABELS, ALL_LABELS])
    rows = made(tmp_path / "twice", {"1": events_of(some_events(4))}, labels, accuracy="exact")
    assert rows[: len(ALL_LABELS)] == rows[len(ALL_LABELS) :]


def test_what_no_event_counts_for(tmp_path: Path) -> None:
    rows = made(tmp_path / "none", {"1": events_of(some_events(5))}, labels_of([(0, "nobody"), (-99 * HOUR, "a")]))
    nothing = {"q__total": None, "q__n": 0, "q__high": None, "q__kinds": 0, "q__mean": None}
    assert all(nothing.items() <= row.items() for row in rows)


def test_a_delay_ends_the_features_earlier(tmp_path: Path) -> None:
    events, labels = events_of(some_events(6)), labels_of([(9 * HOUR, "a"), (9 * HOUR, None)])
    delayed = made(tmp_path / "delayed", {"1": events}, labels, accuracy="exact", delay="2 hours")
    earlier = made(
        tmp_path / "earlier", {"1": events}, labels_of([(7 * HOUR, "a"), (7 * HOUR, None)]), accuracy="exact"
    )
    assert [row | {"at": 0} for row in delayed] == [row | {"at": 0} for row in earlier]


@pytest.mark.parametrize("accuracy", ["refreshed", "exact"])
def test_a_leak_is_not_handed_over(tmp_path: Path, accuracy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def leaking(rule: MomentRule, query: Any, instants: Any) -> Any:
        return [(starts, ends + 1) for starts, ends in spans(rule, query, instants)]

    spans = MomentRule.spans
    monkeypatch.setattr(MomentRule, "spans", leaking)
    rows = [(at * HOUR, "a", 1) for at in range(9)]
    with pytest.raises(heddle.Error, match=r"HDL-530 .*of 1 drawn labels differ.*q: label of 2026-03-01T06:00:00Z"):
        made(tmp_path / "leak", {"1": events_of(rows)}, labels_of([(6 * HOUR, "a")]), accuracy=accuracy)


def test_a_check_that_fails_hands_nothing_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any) -> Any:
        raise ZeroDivisionError("no")

    monkeypatch.setattr("spark_jobs.operations.feature_checks.recompute_here", failing)
    with pytest.raises(heddle.Error, match="HDL-531 the check of q failed: ZeroDivisionError: no"):
        made(tmp_path / "check", {"1": events_of(some_events(7))}, ALL_LABELS)


# ------------------------------------------------------------------------------------------- stored partials
def published(house: heddle.House, begin: int, end: int) -> None:
    house.run(f"2026-03-01T{begin:02}:00", f"2026-03-01T{end:02}:00")


def lifted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The spans of the events that are lifted from now on, in hours."""
    spans: list[tuple[int, int]] = []
    lift = features_module.lift_labelled

    def noted(stream: Any, splits: Any, cells: Any, *more: Any) -> Any:
        spans.extend(((part.begin - BEGIN) // HOUR, (part.end - BEGIN) // HOUR) for part in cells)
        return lift(stream, splits, cells, *more)

    monkeypatch.setattr(features_module, "lift_labelled", noted)
    return spans


def test_refreshed_features_come_from_stored_partials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = house_with(tmp_path, {"1": events_of(some_events(9))}, QUERY)
    labels = labels_of([(at * HOUR + 6 * 60_000_000, user) for at in range(8, 20) for user in ("a", None, "nobody")])
    before, spans = house.features(labels, "q", at="at", upto=True), lifted(monkeypatch)
    published(house, 4, 20)
    assert house.features(labels, "q", at="at", upto=True).equals(before) and spans == []
    # the windows of later labels, and of earlier ones, are not stored as a whole
    later = labels_of([(at * HOUR + 6 * 60_000_000, "a") for at in (8, 19, 20, 21)])
    assert rows_of(house.features(later, "q", at="at"), ["n"])[:2] == [[n] for n in _counts(later, (8, 19))]
    assert spans == [(17, 21)]
    # a file that came since is in no stored partial of its time
    pq.write_table(events_of([(9 * HOUR, "a", 100)]), tmp_path / "payments" / "late.parquet")
    made = house.features(labels, "q", at="at")
    assert made["q__high"].to_pylist()[6] == 100 and len(spans) == 2 and spans[1][0] <= 9


def test_exact_features_at_an_instant_are_the_published_answer(tmp_path: Path) -> None:
    house = house_with(tmp_path, {"1": events_of(some_events(10))}, QUERY)
    published(house, 2, 8)
    answers = house.read("q").table
    labels = pa.table({"at": answers["window_end"], "user": answers["user"]})
    made = house.features(labels, "q", at="at", accuracy="exact")
    for name in ("total", "n", "high", "kinds", "mean"):
        assert made[f"q__{name}"].equals(answers[name])
    assert len(answers) > 20


def test_the_latest_answers_of_the_api_are_the_features_of_now(tmp_path: Path) -> None:
    house = house_with(tmp_path, {"1": events_of(some_events(9))}, QUERY)
    published(house, 0, 23)
    users = ["a", "b", "c", None, "nobody"]
    with client_of(tmp_path / "house") as client:
        latest = client.post("answers/q/latest", json={"keys": [{"user": user} for user in users]}).json()
    newest = moment(latest["newest"].removesuffix("Z"))
    labels = pa.table({"at": [newest + timedelta(minutes=5)] * len(users), "user": pa.array(users, pa.string())})
    features = house.features(labels, "q", at="at", upto=True).to_pylist()
    outputs = ("total", "n", "high", "kinds", "mean")
    assert [row["q__upto"] for row in features] == [newest] * len(users) and latest["rows"][-1] is None
    assert features[-1]["q__n"] == 0
    for row, feature in zip(latest["rows"][:-1], features[:-1], strict=True):
        assert row["window_end"] == latest["newest"]
        assert [row[name] for name in outputs] == [feature[f"q__{name}"] for name in outputs]


def _counts(labels: pa.Table, hours: Sequence[int]) -> list[int]:
    events = [(at, user) for at, user, _ in some_events(9)]
    return [sum(user == "a" and (hour - 3) * HOUR <= at < hour * HOUR for at, user in events) for hour in hours]


# ------------------------------------------------------------------------------------------- bad input
def refused(folder: Path, labels: pa.Table, queries: Any = "q", text: str = QUERY, **options: Any) -> heddle.Error:
    folder.mkdir(exist_ok=True)
    house = house_with(folder, {"1": events_of([(0, "a", 1)])}, text)
    with pytest.raises(heddle.Error) as raised:
        house.features(labels, queries, **{"at": "at", **options})
    return raised.value


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"queries": "qq"}, "HDL-507", "there is no query qq"),
        ({"queries": []}, "HDL-507", "needs a query"),
        ({"queries": ["q", "q"]}, "HDL-641", "the query q is named twice"),
        ({"at": "att"}, "HDL-641", "the labels have no column att"),
        ({"keys": {"users": "user"}}, "HDL-641", "the labels have no column users"),
        ({"keys": {"user": "users"}}, "HDL-641", "grouped by users"),
        ({"keys": {"user": "user", "at": "user"}}, "HDL-641", "group column user is named twice"),
        ({"accuracy": "precise"}, "HDL-641", "one of refreshed, exact"),
        ({"known": "later"}, "HDL-641", "one of now, then"),
        ({"delay": "soon"}, "HDL-204", "soon"),
        ({"delay": "-1 hour"}, "HDL-115", "not negative"),
        ({"at": "user"}, "HDL-644", "row 1 of the labels: user 'a' is no moment"),
    ],
)
def test_requests_that_cannot_be_used(tmp_path: Path, options: dict[str, Any], code: str, words: str) -> None:
    error = refused(tmp_path, ALL_LABELS, **options)
    assert error.code == code and words in f"{error} {error.hint}"


def test_labels_that_cannot_be_used_are_named_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.operations.features.PART_ROWS", 2)
    good = labels_of([(0, "a"), (HOUR, "b"), (2 * HOUR, "c")])
    nothing = good.set_column(0, "at", pa.array([*good["at"].to_pylist()[:2], None], good.schema.field("at").type))
    texts = good.set_column(0, "at", pa.array(["2026-03-01", "2026-03-01T01:00:00+01:00", "no"]))
    far = good.set_column(0, "at", pa.array([0, 0, 2**62 // 1000], pa.timestamp("ms")))
    numbers = good.set_column(1, "user", pa.array([1, 2, 3]))
    integers = good.set_column(0, "at", pa.array([1, 2, 3]))
    for number, (labels, code, words) in enumerate(
        [
            (nothing, "HDL-644", "1 moment missing, the first in row 3"),
            (texts, "HDL-644", "row 3 of the labels: at 'no' is no moment"),
            (far, "HDL-644", "row 3 of the labels"),
            (numbers, "HDL-641", "row 1 of the labels: user '1' is no string (int64)"),
            (integers, "HDL-641", "has no moments: it is int64"),
            (good.drop_columns("user"), "HDL-641", "q is grouped by user, and the labels have no column user"),
            (good.append_column("q__n", good["user"]), "HDL-641", "have a column q__n already"),
            (good.append_column("at", good["at"]), "HDL-641", "several columns at"),
        ]
    ):
        error = refused(tmp_path / str(number), labels)
        assert error.code == code and words in str(error), error


@pytest.mark.parametrize(
    "window",
    [
        "WINDOW ROWS 3 ON t GROUP BY user",
        "WINDOW SESSION GAP '1 hour' UP TO '1 day' ON t GROUP BY user",
        "WINDOW RANGE '1 hour' SLIDE '1 hour' ON t GROUP BY user ORDER BY n DESC LIMIT 2",
        "WINDOW RANGE '1 hour' SLIDE '1 hour' ON t GROUP BY ROLLUP (user)",
        "WINDOW RANGE '1 hour' SLIDE AT MOST '10 minutes' ON t GROUP BY user",
        "WINDOW RANGE UNBOUNDED SLIDE '1 day' ON t GROUP BY user",
    ],
)
def test_queries_that_cannot_be_in_a_feature_set(tmp_path: Path, window: str) -> None:
    error = refused(tmp_path, ALL_LABELS, text=f"SELECT user, count(*) AS n FROM payments {window}")
    assert error.code == "HDL-648" and error.hint


def test_labels_before_the_first_arrival_are_refused_if_they_know_then_only(tmp_path: Path) -> None:
    house = house_with(tmp_path, {"1": events_of([(0, "a", 1)])}, QUERY)
    came = BEGIN / 1e6 + 7200
    os.utime(tmp_path / "payments" / "1.parquet", (came, came))
    labels = labels_of([(3 * HOUR, "a"), (2 * HOUR - 1, "a")])
    with pytest.raises(heddle.Error, match=r"HDL-647 row 2 of the labels is of 2026-03-01T01:59:59.999999Z.*02:00:00Z"):
        house.features(labels, "q", at="at", known="then")
    assert len(house.features(labels.slice(0, 1), "q", at="at", known="then")) == 1


def test_no_labels_have_no_features(tmp_path: Path) -> None:
    house = house_with(tmp_path, {"1": events_of([(0, "a", 1)])}, QUERY)
    table = house.features(ALL_LABELS.slice(0, 0), "q", at="at", upto=True)
    assert len(table) == 0 and table.column_names[-2:] == ["q__mean", "q__upto"]


def test_values_that_do_not_fit_are_null_and_reported(tmp_path: Path) -> None:
    house = house_with(tmp_path, {"1": events_of([(0, "a", 2**62), (1, "a", 2**62), (2, "a", 1)])}, QUERY)
    with pytest.warns(UserWarning, match="HDL-649 .*2 values of features do not fit"):
        table = house.features(labels_of([(HOUR, "a")]), "q", at="at", accuracy="exact")
    assert table["q__total"].to_pylist() == [None] and table["q__n"].to_pylist() == [3]
