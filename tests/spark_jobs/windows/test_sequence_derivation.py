"""A changed workload of event sequences pays for what it adds: events from stored rows, those of new types beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.plan.diff import diff
from optimizer.synopses.derivation import SynopsisPart, given_by, shares_of, sources_of
from optimizer.synopses.synopsis import EventAttribute, Sequenced, Synopsis
from optimizer.workload.instants import DAY
from optimizer.workload.values import DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Column, Source, Stream
from spark_jobs.audit.checks import suite
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.sequences.derivation import SequenceDerivation
from spark_jobs.windows.sequences.encoding import decoded
from spark_jobs.windows.sequences.lifting import SequenceLifting
from tests.spark_jobs.laboratory import Laboratory
from tests.spark_jobs.windows.lift_requests import watched
from tests.spark_jobs.windows.partial_cases import MANY

TYPES = "ABCDE"
TYPE_OF = {"speed": DOUBLE, "toll": LONG}
STREAM = Stream(
    "reports",
    Source("parquet", "/reports"),
    (("ts", TIMESTAMP), ("street", STRING), ("vehicle", LONG), ("toll", LONG), ("speed", DOUBLE)),
    "ts",
)
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("street", pa.string()),
        ("vehicle", pa.int64()),
        ("toll", pa.int64()),
        ("speed", pa.float64()),
    ]
)
HOUR = 3600 * SECOND

instants = st.integers(0, 60).map(lambda hour: hour * HOUR)
numbers = st.one_of(st.none(), st.integers(-3, 1 << 40))
event = st.fixed_dictionaries(
    {
        "ts": st.integers(0, 120).map(lambda half: half * HOUR // 2),
        "street": st.sampled_from([*TYPES, "F", None]),
        "vehicle": st.sampled_from([1, 2, 3, None]),
        "toll": numbers,
        "speed": st.one_of(st.none(), st.sampled_from([0.1, -2.5, 1e300, float("inf"), float("nan")])),
    }
)


def kept(types: Sequence[str], carriers: Mapping[str, Iterable[str]] | None = None, **changes: Any) -> Synopsis:
    """A synopsis of sequences of reports; ``carriers``: by name those of its attributes."""
    attributes = [
        EventAttribute(Column(name), TYPE_OF[name], tuple(sorted(carriers[name]))) for name in sorted(carriers or {})
    ]
    sequenced = Sequenced("street", tuple(sorted(types)), tuple(attributes))
    per = (("vehicle", LONG),)
    synopsis = Synopsis("reports", "ts", ((HOUR, 0),), (None,), per, (), ("vehicle",), None, sequenced)
    return replace(synopsis, **changes)


ALL = kept(TYPES, dict.fromkeys(TYPE_OF, TYPES))


@st.composite
def synopses(draw: st.DrawFn) -> Synopsis:
    """Some event types, and attributes of some of those."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, unique=True))
    carriers = st.lists(st.sampled_from(types), min_size=1, unique=True)
    return kept(types, draw(st.dictionaries(st.sampled_from(sorted(TYPE_OF)), carriers)))


def sequenced_of(synopsis: Synopsis | None) -> Sequenced:
    assert synopsis is not None and synopsis.sequenced is not None
    return synopsis.sequenced


def rows_of(request: FillRequest, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    lifting = SequenceLifting(STREAM, [request])
    for batch in batches:
        lifting.add(batch)
    return pa.concat_tables([PARTIALS.empty_table(), *lifting.tables()])


def content(synopsis: Synopsis, rows: pa.Table) -> tuple[Any, ...]:
    """The events that rows hold, and where they stand."""
    assert set(rows["fingerprint"].to_pylist()) <= {synopsis.fingerprint}
    if len(rows) == 0:
        return ()
    sequences = decoded(synopsis, rows)
    columns = [sequences.events.key, sequences.events.time, sequences.events.type, sequences.events.count]
    sequenced = sequenced_of(synopsis)
    for at, attribute in enumerate(sequenced.attributes):
        stats = sequences.events.attributes[str(at)]
        assert {sequenced.types[code] for code in sequences.events.type[stats.known > 0]} <= set(attribute.carriers)
        # of no value there are no extremes
        columns += [
            stats.known,
            *stats.sum,
            *(np.where(stats.known > 0, each, 0) for each in (stats.least, stats.greatest)),
        ]
        columns += [] if stats.special is None else [stats.special]
    places = set(zip(*(rows[name].to_pylist() for name in ("day", "key", "bucket")), strict=True))
    bounds = {
        (row["day"], row["key"]): (row["fragment_start"], row["fragment_end"])
        for row in rows.select(["day", "key", "fragment_start", "fragment_end"]).to_pylist()
    }
    return [np.asarray(column).tobytes() for column in columns], sequences.keys, places, bounds


@MANY
@given(
    st.one_of(st.lists(event, max_size=3), st.lists(event, min_size=15, max_size=40)),
    synopses(),
    st.lists(st.one_of(st.just(ALL), synopses()), min_size=1, max_size=3, unique=True),
    st.one_of(st.just((0, 3 * DAY)), st.tuples(instants, instants)),
    st.sampled_from([1, 1 << 30]),
)
def test_events_of_rows_beside_lifted_types_are_those_of_the_source(
    found: list[dict[str, Any]],
    wanted: Synopsis,
    candidates: list[Synopsis],
    span: tuple[int, int],
    memory: int,
) -> None:
    begin, end = sorted(span)
    batches = [pa.RecordBatch.from_pylist(found[at::2], SCHEMA) for at in range(2)]
    # other days than the wanted ones are stored, too
    stored = [rows_of(FillRequest(candidate, 0, 3 * DAY), batches) for candidate in candidates]
    request = FillRequest(wanted, begin, end, stored=tuple(sources_of(candidates, wanted)))
    written: list[pa.Table] = []
    derivation = SequenceDerivation([request] if request.stored else [], TaskMemory(memory), written.extend)
    for table in stored:
        for first in range(0, len(table), 2):
            derivation.add(table.slice(first, 2))
    written += derivation.tables()
    assert new_of(wanted, candidates) == [
        type_ for lift_request in request.lifted for type_ in sequenced_of(lift_request.synopsis).types
    ]
    written += [rows_of(lift_request, batches) for lift_request in request.lifted]
    rows = pa.concat_tables([PARTIALS.empty_table(), *written])
    assert content(wanted, rows) == content(wanted, rows_of(FillRequest(wanted, begin, end), batches))


def new_of(wanted: Synopsis, candidates: Sequence[Synopsis]) -> list[str]:
    """The event types, in order, of which no candidate has all that is wanted."""

    def has(synopsis: Synopsis, event: str) -> set[str] | None:
        sequenced = sequenced_of(synopsis)
        by_name = {
            attribute.argument.name: attribute.carriers
            for attribute in sequenced.attributes
            if isinstance(attribute.argument, Column)
        }
        return {name for name, carriers in by_name.items() if event in carriers} if event in sequenced.types else None

    return [
        event
        for event in sequenced_of(wanted).types
        if not any(
            (known := has(candidate, event)) is not None and (has(wanted, event) or set()) <= known
            for candidate in candidates
        )
    ]


def test_what_gives_no_events() -> None:
    speeds = {"speed": "AB"}
    target = kept("AB", speeds)
    for other in (
        kept("CD", {"speed": "CD"}),
        kept("AB", {"toll": "AB"}),
        kept("AB", speeds, group_by=(("toll", LONG),)),
        kept("AB", speeds, predicates=(Column("toll"),)),
        kept("AB", speeds, time="at"),
        kept("AB", speeds, derived=(("vehicle", Column("toll")),)),
        kept("AB", speeds, sequenced=None),
    ):
        assert given_by(other, target) is None
    # windows do not matter: rows are not cut at their edges
    assert given_by(kept("ABC", {"speed": "ABC", "toll": "C"}, edges=((7 * HOUR, 1),)), target) == target
    # events of a type of which an attribute is new are lifted again
    assert given_by(kept("ABC", {"speed": "A"}), target) == kept("A", {"speed": "A"})
    first, second = kept("AC", {"toll": "AC"}), kept("ABD", {"toll": "AB"})
    shares = [[SynopsisPart(kept("AC"))], [SynopsisPart(kept("B"))]], [SynopsisPart(kept("E"))]
    assert shares_of([first, second], kept("ABCE")) == shares
    assert sources_of([first, second], kept("ABDE")) == [second]


# ------------------------------------------------------------------------------------------- whole runs
@pytest.fixture
def lab(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.setattr(suite, "expectations", lambda *args: [])
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write([(minute, "ABCD"[minute * 7 % 4], 100.0 + minute % 5, minute % 3) for minute in range(300)])
    return laboratory


def query(name: str, seq: str, outputs: str = "count(*) AS n", window: tuple[int, int] = (60, 10)) -> str:
    return (
        f"-- name: {name}\nSELECT {outputs} FROM trades PATTERN SEQ({seq}) ON symbol PARTITION BY volume "
        f"WINDOW RANGE '{window[0]} minutes' SLIDE '{window[1]} minutes' ON ts;\n"
    )


def types_of(requests: Sequence[FillRequest]) -> list[tuple[str, ...]]:
    return [request.synopsis.sequenced.types for request in requests if request.synopsis.sequenced]


OLD = query("old", "A, B", "count(*) AS n, sum(A.price) AS p")
ADDED = "only event types that are, or have attributes that are, new are computed"


def test_a_new_event_type_is_lifted_alone(lab: Laboratory) -> None:
    before = lab.plan(OLD)
    lab.run(before, 60, 240, "old")
    version = lab.plan(OLD + query("new", "B, C", window=(30, 15)))
    changes = diff(*(load_plan(lab.warehouse, plan) for plan in (before, version)))
    assert {why.partition("; ")[2] for _, why, _ in changes.rebuilt} == {ADDED}
    with watched() as seen:
        record = lab.run(version, 60, 240, "new")
    assert types_of(seen) == [("C",)] and record.features["partial_rows_read"] > 0
    assert lab.wrong(version, 60, 240) == []
    # the day after all types are lifted
    with watched() as seen:
        lab.run(version, 240, 290, "next")
    assert types_of(seen) == [("A", "B", "C")] and lab.wrong(version, 60, 290) == []


def test_a_query_less_reads_no_event(lab: Laboratory) -> None:
    lab.run(lab.plan(OLD + query("other", "C, D")), 60, 240, "many")
    version = lab.plan(query("few", "A, C"))
    with watched() as seen:
        record = lab.run(version, 60, 240, "few")
    assert seen == [] and record.rows_scanned == 0 and lab.wrong(version, 60, 240) == []


def test_a_new_attribute_is_lifted_with_events_that_have_it(lab: Laboratory) -> None:
    before = lab.plan(OLD)
    lab.run(before, 60, 240, "old")
    version = lab.plan(OLD + query("new", "A, B", "max(B.volume) AS most"))
    changes = diff(*(load_plan(lab.warehouse, plan) for plan in (before, version)))
    assert {why.partition("; ")[2] for _, why, _ in changes.rebuilt} == {ADDED}
    with watched() as seen:
        record = lab.run(version, 60, 240, "new")
    assert types_of(seen) == [("B",)] and record.features["partial_rows_read"] > 0
    assert lab.wrong(version, 60, 240) == []
    # what no query takes any more is left out, without an event being read
    version = lab.plan(query("new", "A, B", "max(B.volume) AS most"))
    assert lab.run(version, 60, 240, "fewer").rows_scanned == 0 and lab.wrong(version, 60, 240) == []
    # and so is read again of the type that has it
    version = lab.plan(OLD)
    with watched() as seen:
        lab.run(version, 60, 290, "back")
    assert lab.wrong(version, 60, 290) == []
