"""Judge answers by what their owners expect: by Great Expectations, and next to it by a count of our own.

Great Expectations on pandas is not exact: it compares integers beyond 2^53 and decimals as doubles, takes NaN for null,
and reads patterns by an engine that may need exponential time. So each expectation becomes a *frame*: the column of
values where Great Expectations compares them exactly, else a column of our verdicts, which it judges. Expectations with
the same class and arguments are judged together, on one frame of the rows of all of them.

If the two counts differ, the stricter verdict counts, and the outcome says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.errors.diagnostics import count as number_of
from optimizer.workload.expectations import AGE, AGGREGATE, PAIR, RATIO, ROWS, UNIQUE, Expectation, ExpectedRange
from optimizer.workload.instants import duration_text
from optimizer.workload.values import SECOND, Literal, Type
from spark_jobs.audit.checks.statistics import Number, is_within, normal, rounded_number, statistic
from spark_jobs.streams.sources.expressions import evaluate, passed

if TYPE_CHECKING:
    import pandas as pd

EXACT = 2**53
"""Largest integer up to which doubles have all."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ExpectationRequest:
    """An expectation of some rows.

    - ``subject``: the name of the query or stream; ``rows``: the columns that it names, typed by ``schema``.
    - ``before``: for :data:`RATIO` the number of rows that they are compared with.
    - ``clock``: now (microseconds), for :data:`AGE`.
    - ``skipped``: why there is nothing to compare with; "" if there is.
    """

    subject: str
    expectation: Expectation
    rows: pa.Table
    schema: Mapping[str, Type]
    before: int | None = None
    clock: int = 0
    skipped: str = ""


@dataclass(frozen=True)
class ExpectationOutcome:
    """Outcome of a request.

    - ``observed``: the share of rows that are as expected, or the number that is compared; None: there is none.
    - ``unexpected``: how many of ``counted`` rows are not as expected; None: one number is judged.
    - ``examples``: the places of the first of them among the request's rows.
    - ``difference``: what Great Expectations says, if that is not what our count says.
    """

    request: ExpectationRequest
    success: bool
    observed: float | None = None
    unexpected: int | None = None
    counted: int = 0
    examples: tuple[int, ...] = ()
    difference: str = ""

    @property
    def bound(self) -> str:
        """Description of what is expected, in a few words."""
        return bound_text(self.request.expectation)

    def summary(self) -> str:
        """Describe what was observed, in one sentence."""
        if self.request.skipped:
            return f"skipped: {self.request.skipped}"
        if self.unexpected is not None:
            rows = number_of(self.counted, "row")
            return f"{self.unexpected:,} of {rows} {'is' if self.unexpected == 1 else 'are'} not as expected"
        value = "nothing" if self.observed is None else _shown(self.observed, self.request.expectation)
        return f"observed {value}, expected {self.bound}"


def _shown(value: float, expectation: Expectation) -> str:
    if expectation.form == AGE:
        return f"an age of {duration_text(round(value * SECOND))}"
    return f"{value:,.0f}" if value.is_integer() and abs(value) < EXACT else f"{value:.6g}"


def bound_text(expectation: Expectation) -> str:
    """Describe what an expectation asks for, in a few words."""
    if expectation.is_of_rows:
        return "all rows" if expectation.mostly is None else f"{expectation.mostly} of rows"
    if expectation.form == AGE:
        return f"newer than {duration_text(expectation.span)}"
    bounds = expectation.bounds
    low, high = (None if each is None else each.value for each in (bounds.low, bounds.high))
    if low is not None and high is not None:
        text = f"between {low} and {high}" if low != high else f"{low}"
    else:
        sign = (">" if bounds.above else ">=") if low is not None else ("<" if bounds.below else "<=")
        text = f"{sign} {low if low is not None else high}"
    return f"{text} times those of {duration_text(expectation.span)} ago" if expectation.form == RATIO else text


# ----------------------------------------------------------------------------------------------- frames
@dataclass(frozen=True)
class Template:
    """A class of Great Expectations with its arguments, other than the columns: what is judged together.

    ``columns``: the arguments that name columns, each with a column of the frame or a list of them; ``kind``: of the
    columns' values.
    """

    name: str
    arguments: tuple[tuple[str, Any], ...]
    columns: tuple[tuple[str, str | tuple[str, ...]], ...]
    kind: str = ""
    alone: int = 0
    """Not 0: it is judged by itself."""


@dataclass(frozen=True)
class Frame:
    """Input of Great Expectations for a request, and our own verdicts on it.

    - ``columns``: of the frame, by name, each (n,).
    - ``wrong``, ``counted``: the rows that are not as expected, and those that count; None: one number is judged.
    - ``success``: our own verdict.
    """

    request: ExpectationRequest
    template: Template
    columns: Mapping[str, Any]
    size: int
    wrong: Mask | None
    counted: Mask | None
    success: bool
    observed: float | None
    places: NDArray[np.int64] | None = field(default=None)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the values of its columns; verdicts are booleans."""
        named = [self.request.schema[name].name for name in self.request.expectation.columns]
        return ("boolean",) if not self.template.kind else tuple(named[: len(self.columns)])

    @property
    def total(self) -> int:
        """Number of rows that count."""
        return 0 if self.counted is None else int(np.count_nonzero(self.counted))


def frame_of(request: ExpectationRequest, number: int) -> Frame:
    """The frame of a request. ``number``: from 1, different for all requests that are judged at once."""
    rows, expectation = request.rows.combine_chunks(), request.expectation
    places = None
    if expectation.where is not None:
        chosen = passed(expectation.where, rows, request.schema)
        places = np.flatnonzero(chosen)
        rows = rows.filter(pa.array(chosen))
    if expectation.is_of_rows:
        return _rows_frame(request, rows, places, number)
    return _number_frame(request, rows, number)


def _rows_frame(request: ExpectationRequest, rows: pa.Table, places: NDArray[np.int64] | None, number: int) -> Frame:
    """The frame of an expectation that is judged row by row."""
    expectation = request.expectation
    mostly = 1.0 if expectation.mostly is None else float(expectation.mostly)
    arrays = {name: single(rows[name]) for name in expectation.columns}
    if expectation.form == UNIQUE:
        wrong, counted = _repeated(list(arrays.values()))
    else:
        verdicts = single(evaluate(expectation.condition, rows, request.schema))
        counted = verdicts.is_valid().to_numpy(zero_copy_only=False)
        wrong = counted & ~pc.fill_null(verdicts, True).to_numpy(zero_copy_only=False)
    template, columns = _values_frame(expectation, arrays, request.schema, mostly, number)
    if template is None:
        # what Great Expectations does not compare exactly: it is given our verdicts
        template, columns = verdicts_template(expectation, wrong, counted)
    total, unexpected = int(np.count_nonzero(counted)), int(np.count_nonzero(wrong))
    share = None if not total else (total - unexpected) / total
    limit = Fraction(1) if expectation.mostly is None else Fraction(expectation.mostly)
    success = not total or Fraction(total - unexpected, total) >= limit
    return Frame(request, template, columns, len(rows), wrong, counted, success, share, places)


def verdicts_template(expectation: Expectation, wrong: Mask, counted: Mask) -> tuple[Template, dict[str, Any]]:
    """The class and the column of our own verdicts, which is named by the sentence: true, false, and null for rows that
    do not count."""
    mostly = 1.0 if expectation.mostly is None else float(expectation.mostly)
    verdicts = np.where(wrong, False, True).astype(object)
    verdicts[~counted] = None
    arguments = (("value_set", (True,)), ("mostly", mostly))
    template = Template("ExpectColumnValuesToBeInSet", arguments, (("column", expectation.text),))
    return template, {expectation.text: verdicts}


def _repeated(arrays: Sequence[pa.Array]) -> tuple[Mask, Mask]:
    """Rows whose values occur in several rows, and those that count: not those with nothing but nulls."""
    size = len(arrays[0])
    nulls = [array.is_null().to_numpy(zero_copy_only=False) for array in arrays]
    counted = ~np.logical_and.reduce(nulls) if size else np.zeros(0, dtype=bool)
    codes = np.zeros(size, dtype=np.int64)
    for array in arrays:
        encoded = normal(array).dictionary_encode()
        own = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + own, return_inverse=True)[1]
    counts = np.bincount(codes[counted], minlength=int(codes.max()) + 1 if size else 0)
    return counted & (counts[codes] > 1) if size else counted, counted


def _values_frame(
    expectation: Expectation, arrays: Mapping[str, pa.Array], schema: Mapping[str, Type], mostly: float, number: int
) -> tuple[Template | None, dict[str, Any]]:
    """The class and the values that Great Expectations compares exactly; None if it would not."""
    series = {name: exact_values(array, schema[name]) for name, array in arrays.items()}
    if any(each is None for each in series.values()) or expectation.rule in ("matches", "number"):
        return None, {}
    kinds = {schema[name].name for name in arrays}
    kind, share = ",".join(sorted(kinds)), ("mostly", mostly)
    names = list(arrays)
    if expectation.form == UNIQUE:
        # values of one request are never compared with those of another
        if len(names) == 1:
            return Template("ExpectColumnValuesToBeUnique", (share,), (("column", names[0]),), kind, number), series
        together = (("column_list", tuple(names)),)
        return Template("ExpectCompoundColumnsToBeUnique", (share,), together, kind, number), series
    if expectation.form == PAIR:
        if len(kinds) > 1 or not kinds <= {"long", "double", "timestamp", "date"}:
            return None, {}
        missing = ("ignore_row_if", "either_value_is_missing")
        columns = (("column_A", "a"), ("column_B", "b"))
        values = dict(zip(("a", "b"), series.values(), strict=False))
        if len(names) == 1:
            values["b"] = values["a"]
        if expectation.rule == "=":
            return Template("ExpectColumnPairValuesToBeEqual", (missing, share), columns, kind), values
        or_equal = ("or_equal", expectation.rule == ">=")
        return Template("ExpectColumnPairValuesAToBeGreaterThanB", (or_equal, missing, share), columns, kind), values
    values = {"value": series[names[0]]}
    column = (("column", "value"),)
    type_ = schema[names[0]]
    if expectation.rule == "not null":
        return Template("ExpectColumnValuesToNotBeNull", (share,), column, kind), values
    if expectation.rule == "in":
        items = [exact_bound(item, type_) for item in expectation.items]
        if any(item is None for item in items):
            return None, {}
        return Template("ExpectColumnValuesToBeInSet", (("value_set", tuple(items)), share), column, kind), values
    # it takes no texts as bounds
    arguments = None if kind == "string" else exact_bounds(expectation.bounds, type_)
    if arguments is None:
        return None, {}
    return Template("ExpectColumnValuesToBeBetween", (*arguments, share), column, kind), values


def exact_bounds(bounds: ExpectedRange, type_: Type) -> tuple[tuple[str, Any], ...] | None:
    """The bounds as Great Expectations takes them; None if it would round one."""
    arguments: list[tuple[str, Any]] = []
    sides = (
        ("min_value", bounds.low, "strict_min", bounds.above),
        ("max_value", bounds.high, "strict_max", bounds.below),
    )
    for name, literal, strict, is_strict in sides:
        if literal is None:
            continue
        value = exact_bound(literal, type_)
        if value is None:
            return None
        arguments += [(name, value), *([(strict, True)] if is_strict else [])]
    return tuple(arguments)


def exact_bound(literal: Literal, type_: Type) -> Any:
    """A constant as Great Expectations takes it for values of a type; None if it would round it."""
    value = literal.value
    if type_.name == "double":
        return float(value) if abs(float(value)) < math.inf else None
    if type_.name == "long":
        return value if isinstance(value, int) and abs(value) <= EXACT else None
    if type_.name in ("timestamp", "date"):
        moment = np.datetime64(value, "us") if literal.type.name == "timestamp" else np.datetime64(value, "D")
        at = moment.astype("datetime64[us]").astype(datetime)
        return at if isinstance(at, datetime) and _EARLIEST <= at.replace(tzinfo=UTC) <= _LATEST else None
    return value if type_.name in ("string", "boolean") else None


_EARLIEST, _LATEST = datetime(1700, 1, 1, tzinfo=UTC), datetime(2250, 1, 1, tzinfo=UTC)
"""Moments between which pandas has nanoseconds."""


def exact_values(array: pa.Array, type_: Type) -> pd.Series[Any] | None:
    """Values (n,) in the form in which pandas and Great Expectations compare them exactly; None if there is none."""
    import pandas as pd

    if type_.name == "long":
        if len(array) and array.null_count < len(array):
            ends = pc.min_max(array).as_py()
            if ends["min"] < -EXACT or ends["max"] > EXACT:
                return None
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        return pd.Series(
            pd.arrays.IntegerArray(pc.fill_null(array, 0).to_numpy(zero_copy_only=False).copy(), nulls.copy())
        )
    if type_.name == "double":
        if pc.any(pc.is_nan(array.drop_null()), min_count=0).as_py():
            return None
        return pd.Series(array.to_numpy(zero_copy_only=False).copy())
    if type_.name in ("string", "boolean"):
        return pd.Series(array.to_pylist(), dtype=object)
    if type_.name in ("timestamp", "date"):
        moments = (
            array.cast(pa.timestamp("us")) if type_.name == "date" else array.view(pa.int64()).view(pa.timestamp("us"))
        )
        if array.null_count < len(array):
            ends = pc.min_max(moments).as_py()
            if ends["min"].replace(tzinfo=UTC) < _EARLIEST or ends["max"].replace(tzinfo=UTC) > _LATEST:
                return None
        return pd.Series(moments.to_numpy(zero_copy_only=False))
    return None


def _number_frame(request: ExpectationRequest, rows: pa.Table, number: int) -> Frame:
    """The frame of an expectation of one number: that number, compared exactly."""
    expectation, bounds = request.expectation, request.expectation.bounds
    value: Number | None
    if expectation.form == AGGREGATE:
        value = statistic(expectation.rule, single(rows[expectation.columns[0]]))
    elif expectation.form == ROWS:
        value = Fraction(len(rows))
    elif expectation.form == RATIO:
        value = Fraction(len(rows), request.before) if request.before else None
    else:
        newest = pc.max(rows[expectation.columns[0]]).value if len(rows) else None
        value = None if newest is None else Fraction(request.clock - newest, SECOND)
        bounds = ExpectedRange(
            None, Literal(Fraction(expectation.span, SECOND), request.schema[expectation.columns[0]]), below=True
        )
    low, high = (None if each is None else each.value for each in (bounds.low, bounds.high))
    success = is_within(value, low, high, bounds.above, bounds.below)
    template, columns, size = _number_template(expectation, value, bounds, len(rows), number)
    if template is None:
        verdicts = (("value_set", (True,)), ("mostly", 1.0))
        template = Template("ExpectColumnValuesToBeInSet", verdicts, (("column", expectation.text),))
        columns, size = {expectation.text: np.array([success], dtype=object)}, 1
    return Frame(request, template, columns, size, None, None, success, rounded_number(value))


def _number_template(
    expectation: Expectation, value: Number | None, bounds: ExpectedRange, rows: int, number: int
) -> tuple[Template | None, dict[str, Any], int]:
    """The class, the frame and its size; None if Great Expectations would round the number or a bound."""
    low, high = (None if each is None else each.value for each in (bounds.low, bounds.high))
    if expectation.form == ROWS:
        least = None if low is None else math.floor(low) + 1 if bounds.above else math.ceil(low)
        most = None if high is None else math.ceil(high) - 1 if bounds.below else math.floor(high)
        given = (("min_value", least), ("max_value", most))
        arguments = tuple((name, max(bound, 0)) for name, bound in given if bound is not None)
        return Template("ExpectTableRowCountToBeBetween", arguments, (), "", number), {}, rows
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None, {}, 1
    exact = [value, *(each for each in (low, high) if each is not None)]
    if not isinstance(value, float) and any(not _is_double(each) for each in exact):
        return None, {}, 1
    sides = [("min_value", low), ("strict_min", bounds.above), ("max_value", high), ("strict_max", bounds.below)]
    settled = tuple(
        (name, bound if isinstance(bound, bool) else float(bound))
        for name, bound in sides
        if bound is not None and bound is not False
    )
    name = "ExpectColumnValuesToBeBetween"
    return (
        Template(name, (*settled, ("mostly", 1.0)), (("column", "value"),), "number"),
        {"value": np.array([float(value)])},
        1,
    )


def _is_double(value: Any) -> bool:
    """Return whether a number is a double, so that nothing rounds it."""
    try:
        return Fraction(float(value)) == Fraction(value)
    except (OverflowError, ValueError):
        return False


def single(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# ---------------------------------------------------------------------------------------------- judging
@dataclass(frozen=True)
class Judged:
    """Verdict of Great Expectations on a frame: its success, and the places of the rows that are not as expected.

    There are no places of one number, or if only the ``unexpected`` rows were counted. ``problem``: what it raised.
    """

    success: bool
    wrong: NDArray[np.int64] | None = None
    problem: str = ""
    unexpected: int | None = None


Judge = Callable[[Template, Sequence[Frame]], list[Judged]]
"""Judges frames of one template, all at once."""


def judged(requests: Sequence[ExpectationRequest], judge: Judge) -> list[ExpectationOutcome]:
    """Judge all requests, in their order."""
    frames: list[Frame | None] = [
        None if request.skipped else frame_of(request, number) for number, request in enumerate(requests, 1)
    ]
    groups: dict[Template, list[int]] = {}
    for place, frame in enumerate(frames):
        if frame is not None:
            groups.setdefault(frame.template, []).append(place)
    verdicts: dict[int, Judged] = {}
    for template, places in groups.items():
        together = [frame for place in places if (frame := frames[place]) is not None]
        verdicts |= dict(zip(places, judge(template, together), strict=True))
    return [
        ExpectationOutcome(request, True) if frame is None else _outcome(frame, verdicts[place])
        for place, (request, frame) in enumerate(zip(requests, frames, strict=True))
    ]


def _outcome(frame: Frame, verdict: Judged) -> ExpectationOutcome:
    """The stricter of our verdict and that of Great Expectations."""
    difference = ""
    wrong = np.flatnonzero(frame.wrong) if frame.wrong is not None else None
    if verdict.problem:
        difference = f"Great Expectations raised {verdict.problem}"
    elif wrong is not None and verdict.wrong is not None and not np.array_equal(wrong, verdict.wrong):
        difference = f"Great Expectations finds {len(verdict.wrong):,} unexpected rows, Heddle {len(wrong):,}"
    elif wrong is not None and verdict.unexpected is not None and verdict.unexpected != len(wrong):
        difference = f"Great Expectations finds {verdict.unexpected:,} unexpected rows, Heddle {len(wrong):,}"
    elif verdict.success != frame.success:
        words = {True: "as expected", False: "not as expected"}
        difference = f"Great Expectations says {words[verdict.success]}, Heddle {words[frame.success]}"
    is_right = verdict.success and frame.success and not verdict.problem
    if wrong is None:
        return ExpectationOutcome(frame.request, is_right, frame.observed, difference=difference)
    if verdict.wrong is not None:
        wrong = np.union1d(wrong, verdict.wrong)
    places = wrong[:3] if frame.places is None else frame.places[wrong[:3]]
    counted = frame.total
    share = (counted - len(wrong)) / counted if counted else None
    examples = tuple(places.tolist())
    return ExpectationOutcome(frame.request, is_right, share, len(wrong), counted, examples, difference)
