"""The first queries of a project that ``heddle init`` makes: how many events, and the mean of a measure, by groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.language.parser import parse
from optimizer.workload.instants import DAY, duration_text
from optimizer.workload.values import BOOLEAN, DOUBLE, SECOND, STRING, Stream, Type
from spark_jobs.operations.table_roles import ProposedDimension
from spark_jobs.streams.sources.proposals import Proposal
from spark_jobs.streams.sources.table_keys import is_id, is_ordinal, words_of

WINDOWS = (
    (60 * SECOND, 60 * SECOND),
    (300 * SECOND, 60 * SECOND),
    (900 * SECOND, 300 * SECOND),
    (3600 * SECOND, 900 * SECOND),
    (6 * 3600 * SECOND, 3600 * SECOND),
    (DAY, 3600 * SECOND),
    (7 * DAY, DAY),
    (30 * DAY, DAY),
)
"""Ranges and slides that a first query may have, in microseconds."""

ENOUGH = 20
"""Events that a window of a first query should have, on average."""

MOST_WINDOWS = 500
"""Windows that the span of the data should have at most."""

MOST_GROUPS = 50
"""Distinct values of a column in a sample by which a first query groups."""

MOST_SAME = 0.9
"""Share of equal values in a sample from which another measure is better."""

MOST_READ = 8
"""Columns of a table that are read to the end for a group."""

MOST_NULLS = 0.5
"""Share of nulls in a sample from which neither a group nor a measure is proposed."""

FIRST_RUN = 100
"""Rows in which a column that counts rows ascends by one."""

INTEGERS = ("long", "int", "short", "byte")
NUMBERS = ("double", "decimal", *INTEGERS)

COORDINATES = frozenset({"lat", "latitude", "lon", "lng", "long", "longitude", "x", "y", "z"})
"""Last words of names of numbers whose mean says little."""


def rate_text(rate: Fraction) -> str:
    """Events a second for people, in the unit in which they are a handful."""
    for size, unit in ((1, "a second"), (60, "a minute"), (3600, "an hour")):
        if rate * size >= 1:
            return f"about {float(rate * size):,.3g} {unit}"
    return f"about {float(rate * 86_400):.3g} a day"


def queries_text(proposals: Sequence[Proposal], dimensions: Sequence[ProposedDimension] = ()) -> str:
    """First queries of each stream: how many events, and the mean of a measure, by a column of few values and by an
    attribute of a dimension."""
    lines = ["-- Queries over the streams of streams.yaml. `heddle preview` answers them on the newest data.", ""]
    for proposal in proposals:
        lines += [first_query(proposal), ""]
        joined = joined_query(proposal, dimensions)
        lines += [joined, ""] if joined else []
    return "\n".join(lines)


def first_query(proposal: Proposal) -> str:
    """A query that the language accepts, over the measured span."""
    group, measure = _group(proposal), _measure(proposal)
    choices = ((group, measure), (group, None), (None, measure), (None, None))
    for group, measure in dict.fromkeys(choices):
        text = _query(proposal, group, measure)
        if _is_accepted(text, proposal.stream):
            return text
    return f"-- no query was found for {proposal.stream.name}: write one\n"


def joined_query(proposal: Proposal, dimensions: Sequence[ProposedDimension]) -> str | None:
    """A query by an attribute of a dimension that the stream refers to; None if there is none that the language
    accepts."""
    stream, measure = proposal.stream, _measure(proposal)
    stream = replace(stream, dimensions=tuple(dimension.declared for dimension in dimensions))
    pairs = [
        (each, dimension) for dimension in dimensions for each in dimension.references if each.table == stream.name
    ]
    # where all events have a row, and of the largest dimension
    pairs.sort(key=lambda pair: (not pair[0].is_complete, -pair[1].rows))
    for reference, dimension in pairs:
        (key,) = dimension.key
        on = f"{stream.name}.{_quoted(reference.column)} = {dimension.name}.{_quoted(key)}"
        join = " JOIN" if reference.is_complete else " LEFT JOIN"
        join += f" {dimension.name} " + (f"USING ({_quoted(key)})" if reference.column == key else f"ON {on}")
        for group in dimension.groups:
            text = _query(proposal, group, measure, join, f"_by_{_word(group)}")
            if group not in dict(stream.schema) and _is_accepted(text, stream):
                return text
    return None


def _is_accepted(text: str, stream: Stream) -> bool:
    parsed = parse(text, {stream.name: stream})
    return bool(parsed.queries) and not any(problem.severity == "error" for problem in parsed.diagnostics)


def _query(proposal: Proposal, group: str | None, measure: str | None, join: str = "", suffix: str = "") -> str:
    size, slide = window_of(proposal.rate, proposal.span)
    stream, fields = proposal.stream, dict(proposal.data.fields)

    def written(name: str) -> str:
        # a path has its own quotes
        return name if name in fields else _quoted(name)

    outputs = [written(group)] if group is not None else []
    outputs.append("count(*) AS events")
    if measure is not None:
        outputs.append(f"avg({written(measure)}) AS {_alias(measure)}")
    by = f"\nGROUP BY {written(group)}" if group is not None else ""
    return (
        f"-- name: {stream.name}{suffix}_{_short(size)}\n"
        f"SELECT {', '.join(outputs)}\n"
        f"FROM {stream.name}{join}\n"
        f"WINDOW RANGE '{duration_text(size)}' SLIDE '{duration_text(slide)}' ON {written(stream.time)}{by};"
    )


def window_of(rate: Fraction, span: int) -> tuple[int, int]:
    """Range and slide (microseconds) of a first query: the shortest window with enough events that are not too many."""
    fitting = [pair for pair in WINDOWS if pair[0] <= span] or [WINDOWS[0]]
    enough = (pair for pair in fitting if rate * pair[0] >= ENOUGH * SECOND and span <= MOST_WINDOWS * pair[0])
    return next(enough, fitting[-1])


def _short(size: int) -> str:
    for unit, letter in ((DAY, "d"), (3600 * SECOND, "h"), (60 * SECOND, "min")):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return "window"


def _quoted(name: str) -> str:
    """A column as a query has it: in backticks unless it is a plain word in lower case, hence no word of the language
    that is written in capitals here."""
    is_plain = re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) and name not in _WORDS
    return name if is_plain else "`" + name.replace("`", "``") + "`"


_WORDS = frozenset(
    re.findall(
        r"\w+",
        """select from where group by having order limit window range rows slide on as and or not in is null like
        between case when then else end cast distinct count sum avg min max first last filter partition seq at most
        ending ago true false interval date timestamp with union join left right table values desc asc all any if""",
    )
)


def _word(name: str) -> str:
    return re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()[:40]


def _alias(measure: str) -> str:
    cleaned = _word(measure)
    return f"mean_{cleaned}" if cleaned else "mean"


def _values(proposal: Proposal, name: str) -> pa.ChunkedArray:
    """All values of a column that were read, else those of the sample; none if there are none."""
    for rows in (proposal.columns, proposal.data.sample):
        if rows is not None and name in rows.schema.names:
            return rows[name]
    return pa.chunked_array([], pa.null())


def _columns_of(proposal: Proposal) -> tuple[tuple[str, Type], ...]:
    """The columns of a stream, also those inside structs."""
    return (*proposal.stream.schema, *proposal.data.fields)


def _distinct(proposal: Proposal, name: str) -> int:
    return int(pc.count_distinct(_values(proposal, name)).as_py())


def _is_mostly_null(proposal: Proposal, name: str) -> bool:
    values = _values(proposal, name)
    return values.null_count > MOST_NULLS * len(values)


def likely_groups(proposal: Proposal) -> list[str]:
    """The columns of which a sample has few values. A sample of sorted rows may have only one."""
    return [
        name
        for name, type in proposal.stream.schema
        if (type in (STRING, BOOLEAN) or name in proposal.foreign)
        and name != proposal.stream.time
        and name in proposal.data.sample.schema.names
        and _distinct(proposal, name) <= MOST_GROUPS
    ][:MOST_READ]


def _group(proposal: Proposal) -> str | None:
    """A column of few values that repeat and that most events have: a word before an identifier of a dimension."""
    stream, columns = proposal.stream, _columns_of(proposal)
    few = [
        (name, type)
        for name, type in columns
        if name not in (stream.time, stream.event_id)
        and 1 < _distinct(proposal, name) <= min(MOST_GROUPS, max(2, len(_values(proposal, name)) // 2))
        and not _is_mostly_null(proposal, name)
    ]
    words = [name for name, type in few if type in (STRING, BOOLEAN)]
    return next(iter([*words, *(name for name, _ in few if name in proposal.foreign)]), None)


def _measure(proposal: Proposal) -> str | None:
    """A column of numbers that measure something: no identifiers, no positions, no parts of a date."""
    stream = proposal.stream
    measures = [
        (name, type)
        for name, type in _columns_of(proposal)
        if type.name in NUMBERS
        and name not in (stream.time, stream.event_id, *proposal.foreign)
        and _distinct(proposal, name) > 1
        and not _is_mostly_null(proposal, name)
        and not (is_id(name) or is_ordinal(name) or name.startswith("__index"))
        and not _counts_rows(proposal, name)
    ]
    measures.sort(
        key=lambda pair: (
            _is_coordinate(pair[0]),
            _has_one_value(proposal, pair[0]),
            pair[1].name in INTEGERS,
            pair[1] != DOUBLE,
        )
    )
    return measures[0][0] if measures else None


def _is_coordinate(name: str) -> bool:
    return words_of(name)[-1] in COORDINATES


def _has_one_value(proposal: Proposal, name: str) -> bool:
    """Return whether nearly all values are the same, such as a cost that is mostly 0."""
    known = pc.drop_null(_values(proposal, name))
    counts = known.value_counts().field("counts")
    return len(counts) > 0 and pc.max(counts).as_py() > MOST_SAME * len(known)


def _counts_rows(proposal: Proposal, name: str) -> bool:
    """Return whether a column has the numbers of rows, as an index that was written with them."""
    sample: pa.Table = proposal.data.sample
    if name not in sample.schema.names or len(sample) < 3 or dict(_columns_of(proposal))[name].name not in INTEGERS:
        return False
    values = [int(value) for value in sample[name].slice(0, FIRST_RUN).drop_null().to_pylist()]
    return sample[name].null_count == 0 and values == list(range(values[0], values[0] + len(values)))
