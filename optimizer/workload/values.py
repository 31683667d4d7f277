"""Values that users register: streams, queries and workloads, frozen and validated.

Time is integer microseconds UTC; every window is half-open ``[start, end)`` and *starts* on a multiple
of its slide since the epoch (see :mod:`optimizer.windows.alignment`). Query text never goes further than
:mod:`optimizer.language.parser`: everything below works on these values only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

from optimizer.workload.attribute_names import read_attribute
from optimizer.workload.event_patterns import Pattern
from optimizer.workload.nested import LeafTypes, Nested
from optimizer.workload.value_types import BINARY as BINARY
from optimizer.workload.value_types import BOOLEAN as BOOLEAN
from optimizer.workload.value_types import BYTE as BYTE
from optimizer.workload.value_types import DATE as DATE
from optimizer.workload.value_types import DOUBLE as DOUBLE
from optimizer.workload.value_types import INT as INT
from optimizer.workload.value_types import LONG as LONG
from optimizer.workload.value_types import SHORT as SHORT
from optimizer.workload.value_types import STRING as STRING
from optimizer.workload.value_types import TIMESTAMP as TIMESTAMP
from optimizer.workload.value_types import Type as Type
from optimizer.workload.value_types import decimal as decimal
from optimizer.workload.window_kinds import ROWS, SEQUENCE, SESSION, TIME, WindowKind

SECOND = 1_000_000
"""Microseconds in a second."""


# --------------------------------------------------------------------------------------- expressions
@dataclass(frozen=True)
class Column:
    """A source column, by its name in the stream's schema."""

    name: str


@dataclass(frozen=True)
class Literal:
    """A constant. ``value``: bool, int, float, str, ``decimal.Decimal``, or None (SQL null).

    Dates are ISO strings with type ``date``; timestamps integer microseconds UTC with type ``timestamp``.
    """

    value: Any
    type: Type


@dataclass(frozen=True)
class Call:
    """An operator or function of the allow-list (:data:`optimizer.workload.expression.FUNCTIONS`).

    Comparisons ``= != < <= > >=``; logic ``and or not`` (three-valued); ``is_null``, ``in``, ``like``
    (pattern literal second); arithmetic ``+ - * / neg``; ``abs lower upper coalesce``; the functions of
    :data:`optimizer.workload.scalars.SCALARS`.
    """

    function: str
    arguments: tuple[Expression, ...]


Expression = Column | Literal | Call


def columns_of(expression: Expression | None) -> Iterator[str]:
    """Names of the source columns that an expression reads (with repeats)."""
    if isinstance(expression, Column):
        yield expression.name
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from columns_of(argument)


def source_columns(group_by: tuple[tuple[str, Type], ...], derived: tuple[tuple[str, Expression], ...]) -> set[str]:
    """Names of the source columns that some group columns are, or are computed of."""
    computed = dict(derived)
    return {name for column, _ in group_by for name in columns_of(computed.get(column, Column(column)))}


# ------------------------------------------------------------------------------------------- queries
def _later(default: Any) -> Any:
    """A field that earlier versions lack: omitted from JSON, and so from hashes, while it has its default."""
    return field(default=default, metadata={"optional": True})


SESSION_CUT = 3600 * SECOND
"""Stored rows of sessions are cut at multiples of it, so that a run reads only the events of the hours that changed."""

CALENDAR_UNITS = {"day": 86_400 * SECOND, "month": 2_629_746 * SECOND}
"""Units of calendars, with how long they are on average (microseconds)."""


@dataclass(frozen=True)
class Calendar:
    """Range and slide of a window in a calendar.

    ``zone``: a name of the tz database. ``range``, ``slide``: each a number of ``day`` or ``month``. ``slide``
    None, for cumulative windows only: a part of a day by the zone's clock. ``offset``: microseconds of the clock from
    the begin of a day, a week (a Monday) or a month to that of its windows. ``ago``: the days or months that a
    historical window is moved back by, both bounds by their dates
    (:func:`optimizer.windows.calendars.moved_back`).
    """

    zone: str
    range: tuple[int, str]
    slide: tuple[int, str] | None
    offset: int = _later(0)
    ago: tuple[int, str] | None = _later(None)

    @property
    def longest(self) -> int:
        """No window starts further back from its instant (microseconds): clocks are put back by a day at most, months
        have 31 days at most.
        """
        spans = [self.range, *([self.ago] if self.ago is not None else [])]
        return sum((count * {"day": 1, "month": 31}[unit] + 1) * CALENDAR_UNITS["day"] for count, unit in spans)


@dataclass(frozen=True)
class Window:
    """RANGE and SLIDE: windows ``[k*slide + offset, k*slide + offset + range)`` for every integer k.

    In microseconds of event time, or in rows if ``per`` is not None: ``()`` counts the rows of the stream, column
    names those of each key. ``ago`` (microseconds, time only) shifts every window back: the answer of instant
    ``k*slide + range`` is over ``[k*slide - ago, k*slide + range - ago)`` (Arasu & Widom's historical windows).

    ``SLIDE AT MOST`` is a refresh *bound*: ``at_most`` microseconds, a multiple of the slide, which then is the
    step of the stream. Every step has a window, but only those in the schedule are answered
    (:mod:`optimizer.schedule`), never further apart than the bound. ``at`` has the instants that a run answers,
    ascending; None: all.

    ``cumulative``: CUMULATE and STEP: the answer of instant ``k*slide`` is over the time since the last multiple of
    the range that is before it. ``calendar``: range and slide are those of a calendar, and here their average
    lengths. :mod:`optimizer.windows.alignment` defines the instants and starts of such windows.

    ``offset``: STARTING AT, microseconds below the slide (of cumulative windows, the range); that of a calendar is its
    own.

    ``gap`` (microseconds): of sessions, SESSION GAP. Events of a key (``per``) that are at most so far apart are in
    one session; ``range`` is its longest length, UP TO. It ends a gap after its last event, and has its answer a
    microsecond later: an event at the very end belongs to it. The slide is how its stored rows are cut.

    ``parts``: several windows whose answers at one instant are one row (``agg OVER name``), distinct and ordered by
    content. The window itself then is their hull: from the earliest start of a part to the instant, at the instants
    that all parts have. A historical window that is cumulative or of a calendar is a part, be it the only one: its end
    does not determine its instant.
    """

    range: int
    slide: int
    ago: int = _later(0)
    per: tuple[str, ...] | None = _later(None)
    at_most: int | None = _later(None)
    at: tuple[int, ...] | None = _later(None)
    cumulative: bool = _later(False)
    calendar: Calendar | None = _later(None)
    parts: tuple[Window, ...] = _later(())
    offset: int = _later(0)
    gap: int | None = _later(None)

    def __post_init__(self) -> None:
        if self.parts:
            self._check_parts()
            return
        if self.range <= 0 or self.slide <= 0:
            raise ValueError("range and slide must be positive")
        if not self.kind.has_instants and (self.ago or self.at_most is not None or self.cumulative or self.calendar):
            raise ValueError("windows of rows and sessions have no `ago`, refresh bound or calendar")
        if self.gap is not None and self.gap <= 0:
            raise ValueError("a gap is a span of time")
        most = self.range if self.cumulative else self.slide
        if not 0 <= self.offset < most or (self.offset and (self.calendar or self.at_most)):
            raise ValueError("an offset is of windows without a calendar or bound, and less than their distance")
        if self.ago < 0:
            raise ValueError("`ago` is a span of time and not negative")
        if self.at_most is not None and (self.at_most < self.slide or self.at_most % self.slide):
            raise ValueError("a refresh bound is a span of time, and a multiple of the slide")
        if (self.cumulative or self.calendar is not None) and self.at_most is not None:
            raise ValueError("cumulative windows and those of calendars have no bound")
        if self.calendar is not None and self.ago:
            raise ValueError("windows of a calendar are moved back by its days or months")

    def _check_parts(self) -> None:
        first = self.parts[0]
        is_plain = (not part.parts and part.kind.has_instants and part.at is None for part in self.parts)
        if (len(self.parts) < 2 and not first.is_moved) or not all(is_plain):
            raise ValueError("the parts of a window are two or more plain windows of time")
        if any((part.slide, part.at_most) != (first.slide, first.at_most) for part in self.parts):
            raise ValueError("the parts of a window have one slide")

    @classmethod
    def of_several(cls, windows: Iterable[Window]) -> Window:
        """The window whose parts are some windows with the same instants. If they are equal, it is one of them, unless
        this one :attr:`is_moved`.
        """
        parts = tuple(sorted(dict.fromkeys(windows), key=_order_of_part))
        if len(parts) == 1 and not parts[0].is_moved:
            return parts[0]
        widest = max(parts, key=lambda part: part.reach)
        return cls(
            widest.reach if widest.calendar is None else widest.range,
            widest.slide,
            at_most=widest.at_most,
            calendar=widest.calendar,
            parts=parts,
        )

    @classmethod
    def of_calendar(cls, calendar: Calendar, step: int = 0, cumulative: bool = False) -> Window:
        """The window of a calendar. ``step``: of a calendar without a slide (microseconds)."""
        if calendar.slide is not None:
            step = calendar.slide[0] * CALENDAR_UNITS[calendar.slide[1]]
        size = calendar.range[0] * CALENDAR_UNITS[calendar.range[1]]
        return cls(size, step, cumulative=cumulative, calendar=calendar)

    @classmethod
    def of_sessions(cls, gap: int, longest: int, per: tuple[str, ...]) -> Window:
        """Sessions of the events of each key, with their gap and their longest length (microseconds)."""
        return cls(longest, SESSION_CUT, per=per, gap=gap)

    @property
    def is_regular(self) -> bool:
        """Its windows are equally long and start on the multiples of the slide: they are neither cumulative, of a
        calendar, shifted, several, nor sessions.
        """
        return not (self.cumulative or self.calendar is not None or self.parts or self.offset or self.gap is not None)

    @property
    def is_moved(self) -> bool:
        """A historical window whose answers are identified by their instants: several of these may have one end."""
        return bool(self.cumulative and self.ago) or (self.calendar is not None and self.calendar.ago is not None)

    @property
    def phase(self) -> int:
        """Its instants, unless they are those of a calendar, are so far behind multiples of the slide."""
        return self.range + self.offset

    @property
    def each(self) -> tuple[Window, ...]:
        """Its parts, or itself."""
        return self.parts or (self,)

    @property
    def is_rows(self) -> bool:
        """A tuple-based window (ROWS): its range and slide are numbers of rows."""
        return self.per is not None and self.gap is None

    @property
    def kind(self) -> WindowKind:
        """Kind of its range and slide. Windows of event sequences are of time."""
        if self.gap is not None:
            return SESSION
        return ROWS if self.is_rows else TIME

    @property
    def pause(self) -> int:
        """Time that passes from the last event of a window that it decides the end of, to that end."""
        return self.gap or 0

    @property
    def end_before(self) -> int:
        """Time (microseconds) from the end of a window to the instant that it has its answer at."""
        return self.ago if self.gap is None else 1

    @property
    def reach(self) -> int:
        """Distance back from its instant to the start of a window; for a calendar, the longest."""
        if self.parts:
            return max(part.reach for part in self.parts)
        if self.gap is not None:
            # that nothing precedes the longest session shows a gap before it
            return self.range + 2 * self.gap + 1
        return self.range + self.ago if self.calendar is None else self.calendar.longest

    @property
    def average(self) -> int:
        """Average length of its windows; the sum of those of its parts."""
        if self.parts:
            return sum(part.average for part in self.parts)
        return (self.range + self.slide) // 2 if self.cumulative else self.range

    @property
    def period(self) -> int:
        """The longest time, or number of rows, between two answers: the slide, or the refresh bound."""
        return self.at_most or self.slide

    @property
    def overlap_factor(self) -> Fraction:
        """r/s: final aggregations per fragment (Weave Share Eq. 2). A refresh bound counts as the slide."""
        return Fraction(self.average, self.period)


def _order_of_part(part: Window) -> tuple[int, str]:
    return part.reach, json.dumps(to_json(part), sort_keys=True)


@dataclass(frozen=True)
class Output:
    """One output column: ``function`` of ``argument`` (None: ``count(*)``) under ``name``, typed ``type``.

    ``by``: the expression that orders the values, for ``min_by``, ``max_by``, ``first`` and ``last`` (the last two:
    the time column). ``parameter``: the fraction of a percentile, the k of ``top_k``, the size of a sketch;
    ``parameters``: the fractions of several percentiles. ``error``: the error that the query permits, so that a
    sketch may answer; None requires the exact answer. ``event``: in a query of event sequences, the type whose
    events are aggregated, over all sequences (``count(E)``, ``sum(E.x)``); None counts the sequences.

    ``window``: the number of the part of the query's window that it is over, or :data:`ANY_WINDOW`.

    A *derived* output (``sum(x) / count(*)``, function :data:`DERIVED`) is an ``expression`` over plain ones, its
    ``parts``, whose names ("0", "1", …) are the columns of the expression.
    """

    name: str
    function: str
    argument: Expression | None
    argument_type: Type | None
    type: Type
    by: Expression | None = _later(None)
    by_type: Type | None = _later(None)
    parameter: Decimal | None = _later(None)
    error: Decimal | None = _later(None)
    event: str | None = _later(None)
    parameters: tuple[Decimal, ...] = _later(())
    parts: tuple[Output, ...] = _later(())
    expression: Expression | None = _later(None)
    window: int = _later(0)

    @property
    def plain(self) -> tuple[Output, ...]:
        """The aggregates that it takes: its parts, or itself."""
        return self.parts if self.function == DERIVED else (self,)

    def columns(self) -> Iterator[str]:
        """Names of the source columns that it reads (with repeats)."""
        yield from columns_of(self.argument)
        yield from columns_of(self.by)
        for part in self.parts:
            yield from part.columns()


ANY_WINDOW = -1
"""For a part of the query's window: any of them that has an event. For values that are alike in all."""

DERIVED = "expression"
"""The function of outputs that are made of others."""

REACHED = "reached"
"""The function of outputs that count the keys of a step of event sequences, ``parameter``."""


@dataclass(frozen=True)
class Condition:
    """One threshold of a HAVING: the answers with ``output`` ``comparison`` ``value``; comparison < <= > >= = !=.

    ``output`` need not be among the query's outputs. ``value`` is a literal of the same kind (number, text,
    moment).
    """

    output: Output
    comparison: str
    value: Literal


@dataclass(frozen=True)
class Order:
    """One sort key of the answers. An ``output`` without a name, which need not be among the query's outputs."""

    output: Output
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Top:
    """The first ``k`` groups of each window in an order (ORDER BY … LIMIT k); of equals those whose group columns are
    less, column by column, null being the least."""

    k: int
    orders: tuple[Order, ...]


@dataclass(frozen=True)
class AnswerTable:
    """A separate Delta table that a query asks for: its folder, and whether it has a change data feed."""

    name: str
    has_changes: bool = _later(False)


@dataclass(frozen=True)
class ACQ:
    """An aggregate continuous query over one stream.

    ``group_by`` has column names with their types; ``select`` the names under which the group columns are returned,
    in the same order (a group column that is not selected is returned all the same). Only answers that satisfy
    every condition of ``having`` exist. With a ``pattern``, the query aggregates not the events but the sequences
    of them that match it, each entirely inside the window. ``until``: the last instant (microseconds) that it
    answers. ``table``: an additional table of its answers. ``asset``: its new answers are announced to Airflow as a
    separate asset. ``top``: of the answers of a window that satisfy ``having``, only the first exist. ``derived``:
    the group columns that are expressions, by their names in ``group_by``, which are what
    :func:`optimizer.workload.notation.written` writes of them. ``sets``: of a query with GROUPING SETS, ROLLUP or CUBE
    the group columns of each; an answer of one has null in the others. Its last group column then is the number of the
    set (:func:`optimizer.workload.grouping_sets.grouping_ids`), named by all of them.
    """

    name: str
    stream: str
    window: Window
    outputs: tuple[Output, ...]
    filter: Expression | None = None
    group_by: tuple[tuple[str, Type], ...] = ()
    select: tuple[str, ...] = ()
    owner: str = ""
    text: str = field(default="", compare=False)
    having: tuple[Condition, ...] = _later(())
    pattern: Pattern | None = _later(None)
    until: int | None = _later(None)
    table: AnswerTable | None = _later(None)
    asset: bool = _later(False)
    derived: tuple[tuple[str, Expression], ...] = _later(())
    top: Top | None = _later(None)
    sets: tuple[tuple[str, ...], ...] = _later(())

    @property
    def kind(self) -> WindowKind:
        """The kind of the query's window, which decides how it is answered."""
        return self.window.kind if self.pattern is None else SEQUENCE

    @property
    def sequence(self) -> Pattern:
        """The pattern of a query of event sequences. Raises ValueError for others."""
        if self.pattern is None:
            raise ValueError(f"query {self.name} has no pattern")
        return self.pattern

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps of its pattern, ascending, that it counts the keys of (``reached``): a key reaches step k in a
        window that holds a sequence of the first k events. A query with steps has an answer where a key reaches the
        first one, others where a sequence lies in the window.
        """
        return tuple(sorted({int(output.parameter or 0) for output in self.computed if output.function == REACHED}))

    @property
    def combined_events(self) -> int:
        """Number of events that one match combines. Its costs grow with this power of the stream's rate."""
        return len(self.sequence.events) if self.kind.matches_patterns else 1

    @property
    def domain(self) -> tuple[object, ...]:
        """Queries share fragments only with those of their own domain: of time, of rows counted alike, of sessions, or
        of event sequences by the same columns."""
        if self.kind.ends_with_pauses:
            return (self.kind.name,)
        return (self.window.per, *((self.pattern.on, self.pattern.per) if self.pattern else ()))

    @property
    def compared(self) -> tuple[Output, ...]:
        """Outputs that decide which answers exist: those of the conditions, then those of the order."""
        orders = () if self.top is None else self.top.orders
        return (*(condition.output for condition in self.having), *(order.output for order in orders))

    @property
    def computed(self) -> tuple[Output, ...]:
        """The plain aggregates that have to be computed: of the outputs, then of what is compared."""
        return tuple(part for output in (*self.outputs, *self.compared) for part in output.plain)

    @property
    def stored_group_by(self) -> tuple[tuple[str, Type], ...]:
        """The group columns of its partial aggregates: without the number of the grouping set."""
        return self.group_by[:-1] if self.sets else self.group_by

    @property
    def answered_by(self) -> frozenset[str]:
        """Names of the group columns that all its answers have."""
        names = frozenset(name for name, _ in self.stored_group_by)
        return names.intersection(*self.sets) if self.sets else names

    def over(self, window: Window, numbers: Mapping[int, int]) -> ACQ:
        """The query over another window, whose parts have other ``numbers`` than those of its own."""

        def over(output: Output) -> Output:
            if output.parts:
                return replace(output, parts=tuple(map(over, output.parts)))
            return replace(output, window=numbers[output.window])

        return replace(self, window=window).with_outputs(over)

    def with_outputs(self, change: Callable[[Output], Output]) -> ACQ:
        """The query with each output, and each that it compares or orders by, changed."""
        top = self.top
        if top is not None:
            top = replace(top, orders=tuple(replace(order, output=change(order.output)) for order in top.orders))
        having = tuple(replace(condition, output=change(condition.output)) for condition in self.having)
        return replace(self, outputs=tuple(map(change, self.outputs)), having=having, top=top)

    def columns(self, is_filtered: bool = True) -> list[str]:
        """Source columns that the query reads, without the time column, sorted. Unless ``is_filtered``, without those
        that only its filter reads.
        """
        names = source_columns(self.stored_group_by, self.derived)
        names |= set(self.window.per or ()) if self.kind.counts_rows else set()
        names |= set(columns_of(self.filter)) if is_filtered else set()
        names |= {self.sequence.on, *self.sequence.per} if self.kind.matches_patterns else set()
        for output in self.computed:
            names |= set(output.columns())
        return sorted(names)

    def deciding_columns(self, stream: Stream) -> list[str]:
        """Columns of its stream whose values decide its answers, without the time column unless all do."""
        return [column for column, _ in stream.schema] if self.kind.reads_every_column else self.columns()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of what the query answers: its meaning, neither its owner, table or asset nor its layout or comments."""
        meaning = to_json(self)
        for cosmetic in ("owner", "text", "table", "asset"):
            meaning.pop(cosmetic, None)
        return digest(meaning)

    @cached_property
    def definition(self) -> str:
        """The fingerprint of the query as it is registered, whichever instants a run answers of it."""
        if self.window.at is None:
            return self.fingerprint
        return replace(self, window=replace(self.window, at=None)).fingerprint


@dataclass(frozen=True)
class Origin:
    """Source of which Heddle reads a copy: a database, or what only Spark reads.

    - ``format``: as Spark calls it (``table``: a table of a catalogue).
    - ``path``: a file or folder (absolute), or the JDBC URL of a database.
    - ``table``: of a catalogue or database.
    - ``options``: of Spark's reader, sorted.
    - ``watermark``: for sources without files, a column whose values grow as rows come in.
    - ``since``: (microseconds) earlier events are not read.
    - ``copies``: the folder in which its copy lies.
    - ``zone``: the time zone of a database's timestamps without one; None: UTC, for Spark that of its JVM.
    """

    format: str
    path: str = ""
    table: str = ""
    options: tuple[tuple[str, str], ...] = ()
    watermark: str | None = None
    since: int | None = None
    copies: str = ""
    zone: str | None = _later(None)

    @property
    def name(self) -> str:
        """Name in messages."""
        return " ".join(filter(None, (self.format, self.table or self.path)))


@dataclass(frozen=True)
class Partition:
    """A column whose values are in the names of folders.

    - ``type``: its type; None: as the stream's schema has it, or as its texts are.
    - ``is_exact``: whether its value is that part of the event time, in UTC.
    """

    name: str
    type: Type | None = _later(None)
    is_exact: bool = _later(False)


@dataclass(frozen=True)
class Source:
    """Place and form of a stream's events.

    ``format``: csv, parquet or delta; ``path``: a file or folder (absolute); ``origin``: the source that the events
    at the path are a copy of, None: they are no copy.

    ``time_unit``: the unit of a time column of integers, counted since 1970, a key of
    :data:`optimizer.workload.streams.TIME_UNITS`. For CSV only: the ``delimiter``; whether the first line is a
    ``header``, or columns are in the schema's order; the ``quote``, None: there is none; texts that are ``null`` in
    addition to the empty one; ``timestamp_format`` of ``strptime``, None: ISO 8601. The last two also of JSON, and
    ``records``: the keys, with dots between them, of the array whose elements are events. ``reader``: the requested
    reader, one of :data:`optimizer.workload.streams.READERS`.

    ``files``: a pattern of the names of its files, None: those with an ending of the format. ``partitions``: columns in
    the names of folders, which are called ``name=value``, or as the pattern ``folders`` says.
    """

    format: str
    path: str
    delimiter: str = _later(",")
    header: bool = _later(True)
    quote: str | None = _later('"')
    null: tuple[str, ...] = _later(())
    timestamp_format: str | None = _later(None)
    time_unit: str | None = _later(None)
    reader: str = _later("auto")
    origin: Origin | None = _later(None)
    records: str | None = _later(None)
    files: str | None = _later(None)
    partitions: tuple[Partition, ...] = _later(())
    folders: str = _later("")

    @property
    def has_own_keys(self) -> bool:
        """Return whether the source has keys that only Heddle's own readers know."""
        return bool(self.null or self.timestamp_format or self.records or self.files or self.partitions)

    @property
    def options(self) -> str:
        """Non-default options for how the events are written, as JSON."""
        settings = {
            key: value
            for key, value in to_json(self).items()
            if key not in ("is", "format", "path", "reader", "origin")
        }
        return json.dumps(settings, sort_keys=True) if settings else ""


@dataclass(frozen=True)
class DimensionVersion:
    """Content of a dimension as a run uses it.

    ``place``: the file with its rows; ``rows``: the hash of the keys and validities, ``columns``: of each other column
    with them, by its name.
    """

    place: str
    rows: str
    columns: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        """The name of the content."""
        return self.place.rpartition("/")[2].removesuffix(".parquet")


@dataclass(frozen=True)
class Dimension:
    """A declared dimension: a table of attributes by a key, which queries join their streams with.

    - ``key``: its key columns. There is at most one row for a key or, with validities, for a key at a time.
    - ``schema``: (column, type) pairs, with those of the key and the validities.
    - ``valid_from``, ``valid_to``: columns with the first instant of a row and the first one behind it (null: none);
      None: a row is for all times.
    - ``repair``: how far back (microseconds) a change revises published answers; 0: they stay.
    - ``version``: the content that a run uses; None: it is not read yet.
    """

    name: str
    source: Source
    key: tuple[str, ...]
    schema: tuple[tuple[str, Type], ...]
    valid_from: str | None = _later(None)
    valid_to: str | None = _later(None)
    repair: int = _later(0)
    version: DimensionVersion | None = _later(None)

    def type_of(self, column: str | None) -> Type | None:
        """The type of a column; None if there is no such column. ``column`` None: whether there is a row."""
        return BOOLEAN if column is None else dict(self.schema).get(column)

    @property
    def special(self) -> tuple[str, ...]:
        """Its key columns and those of its validities."""
        return (*self.key, *filter(None, (self.valid_from, self.valid_to)))


@dataclass(frozen=True)
class Stream:
    """A declared stream. ``schema``: (column, type) pairs; ``time`` the event-time column;
    ``lateness`` in microseconds: how far behind the clock the watermark is; ``step`` in microseconds: the instants at
    which queries with a refresh bound may be answered are its multiples. ``allowed_lateness`` in microseconds: events
    of published times that come later than so long after them are refused; None: none are. ``event_id``: the column by
    which an event is known that comes a second time. ``nested``: columns of structs, maps and arrays, whose leaves
    (:mod:`optimizer.workload.nested`) queries read as columns; they are not in the schema. ``dimensions``: those that
    its queries may join, whose attributes (:mod:`optimizer.workload.attribute_names`) are read as columns as well."""

    name: str
    source: Source
    schema: tuple[tuple[str, Type], ...]
    time: str
    lateness: int = 0
    step: int = _later(60 * SECOND)
    allowed_lateness: int | None = _later(None)
    event_id: str | None = _later(None)
    nested: tuple[tuple[str, Nested], ...] = _later(())
    dimensions: tuple[Dimension, ...] = _later(())

    @property
    def types(self) -> dict[str, Type]:
        """The types of the plain columns, by name, and of the leaves of the nested ones and the attributes, which it
        does not list."""
        if not self.nested and not self.dimensions:
            return dict(self.schema)
        return LeafTypes(dict(self.schema), dict(self.nested), self._attribute_type)

    def _attribute_type(self, name: str) -> Type | None:
        """The type of an attribute; None if the name denotes none."""
        attribute = read_attribute(name) if self.dimensions else None
        dimensions = (dimension for dimension in self.dimensions if attribute and dimension.name == attribute.dimension)
        return next((dimension.type_of(attribute.column) for dimension in dimensions if attribute), None)

    def dimension(self, name: str) -> Dimension:
        """The dimension of a name, which has to be there."""
        return next(dimension for dimension in self.dimensions if dimension.name == name)

    def type_of(self, column: str) -> Type | None:
        """The declared type of a column; None if it is not declared."""
        return self.types.get(column)


@dataclass(frozen=True)
class Workload:
    """Registered queries and the streams that they read. Query names are unique."""

    queries: tuple[ACQ, ...]
    streams: tuple[Stream, ...]

    def __post_init__(self) -> None:
        names = [query.name for query in self.queries]
        if len(set(names)) != len(names):
            raise ValueError("query names must be unique")

    def stream(self, name: str) -> Stream:
        """The stream of a name, which has to be there."""
        return next(stream for stream in self.streams if stream.name == name)

    def query(self, name: str) -> ACQ:
        """The query of a name, which has to be there."""
        return next(query for query in self.queries if query.name == name)

    def queries_of(self, stream: str) -> list[ACQ]:
        """The queries over a stream, in order."""
        return [query for query in self.queries if query.stream == stream]

    @property
    def fingerprint(self) -> str:
        """Hash of all the queries' meanings and names."""
        return digest(sorted((query.name, query.fingerprint) for query in self.queries))


# ------------------------------------------------------------------------------------- stored as JSON
_CLASSES = {
    cls.__name__: cls
    for cls in (
        *(Type, Column, Literal, Call, Calendar, Window, Pattern, Output, Condition, Order, Top),
        *(AnswerTable, ACQ, Origin, Partition, Source, DimensionVersion, Dimension, Stream, Nested, Workload),
    )
}


@cache
def _stored_fields(cls: type[Any]) -> tuple[tuple[str, Any], ...]:
    """The fields of a class by name, each with the default that is not stored (MISSING: every value is)."""
    return tuple((f.name, f.default if f.metadata.get("optional") else MISSING) for f in fields(cls))


def to_json(value: Any) -> Any:
    """A value of this module as plain JSON data; :func:`from_json` gives an equal value back."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        stored = ((name, default, getattr(value, name)) for name, default in _stored_fields(type(value)))
        parts = {name: to_json(part) for name, default, part in stored if default is MISSING or part != default}
        return {"is": type(value).__name__} | parts
    if isinstance(value, float):
        return {"is": "float", "hex": value.hex()}
    return {"is": "Decimal", "text": str(value)}


def from_json(data: Any) -> Any:
    """Inverse of :func:`to_json`."""
    if isinstance(data, list):
        return tuple(from_json(item) for item in data)
    if not isinstance(data, dict):
        return data
    if data["is"] == "float":
        return float.fromhex(data["hex"])
    if data["is"] == "Decimal":
        return Decimal(data["text"])
    return _CLASSES[data["is"]](**{key: from_json(value) for key, value in data.items() if key != "is"})


def digest(data: Any) -> str:
    """A short stable hash (16 hex digits) of JSON data."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
