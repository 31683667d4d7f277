"""Reads what an owner expects of answers: one sentence, a closed grammar, every problem with its place.

``<check> [mostly <share>] [where <condition>]``, where a check is one of

- ``x between a and b``, ``x >= a`` (``>``, ``<``, ``<=``), ``x is not null``, ``x is a number``, ``x in (a, …)``,
  ``x matches 'pattern'``;
- ``x > y`` (``>=``, ``<``, ``<=``, ``=``) of two columns, ``x is unique``, ``(x, y) is unique``;
- ``mean(x) between a and b``, or a comparison; also median, min, max, sum, stdev and distinct;
- ``rows between a and b``, or a comparison; ``rows between a and b times those of 7 days ago``;
- ``max(window_end) newer than 2 hours``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from sqlglot.tokens import Token, TokenType

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted
from optimizer.language.expressions import filter_of
from optimizer.language.guards import counted_tokens, guarded_tokens
from optimizer.language.refusals import QUOTED, Findings, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.language.statements import Expected
from optimizer.language.suites import suite_sentences
from optimizer.language.syntax import parse_select
from optimizer.language.words import FLIPPED, Limits, did_you_mean, resolve_name
from optimizer.workload.expectations import (
    AGE,
    AGGREGATE,
    BLOCK,
    PAIR,
    RATIO,
    ROWS,
    STATISTICS,
    UNIQUE,
    VALUES,
    WARN,
    Expectation,
    ExpectedRange,
)
from optimizer.workload.expression import call_type, moment, negated, number
from optimizer.workload.instants import parse_duration
from optimizer.workload.patterns import readable_pattern
from optimizer.workload.types import family_of
from optimizer.workload.values import (
    ACQ,
    BOOLEAN,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Expression,
    Literal,
    Source,
    Stream,
    Type,
)

SEVERITIES = (WARN, BLOCK)

MOST_EXPECTATIONS = 64
"""Expectations of one query or stream."""

MOST_ITEMS = 1000
"""Values of one ``in (…)``."""

FORMS = "e.g. rate between 0 and 1 mostly 0.99; rate is not null; (day, route) is unique; rows between 1 and 500"

_COMPARISONS = {
    TokenType.GT: ">",
    TokenType.GTE: ">=",
    TokenType.LT: "<",
    TokenType.LTE: "<=",
    TokenType.EQ: "=",
}

_CONDITION = "SELECT 1 FROM answers WHERE "
"""What a condition is read behind."""

_LARGEST = Literal(float("inf"), DOUBLE)
"""Only NaN is greater."""


def answer_columns(query: ACQ) -> tuple[tuple[str, Type], ...]:
    """The columns of a query's answers that an expectation may name, with their types."""
    columns = [("window_start", TIMESTAMP), ("window_end", TIMESTAMP)]
    columns += [("instant", TIMESTAMP)] if query.window.ago else []
    columns += [("position", LONG)] if query.kind.counts_rows else []
    selected = query.select or [name for name, _ in query.group_by]
    columns += [(name, type_) for name, (_, type_) in zip(selected, query.group_by, strict=True)]
    return (*columns, *((output.name, output.type) for output in query.outputs))


def read_expectations(
    lines: Sequence[Expected], query: ACQ, file: str, limits: Limits
) -> tuple[tuple[Expectation, ...], list[Refused]]:
    """The expectations of a query, and what is wrong with them, with offsets in the workload file ``file``.

    What occurs twice is taken once.
    """
    columns = dict(answer_columns(query))
    expectations: dict[tuple[str, str], Expectation] = {}
    problems: list[Refused] = []
    for line in lines:
        try:
            if line.is_suite:
                # the line may warn of what the suite has as critical
                read = [
                    read_expectation(text, line.severity or severity, query.name, columns, limits)
                    for text, severity in suite_sentences(line.text, file)
                ]
            else:
                read = [read_expectation(line.text, line.severity, query.name, columns, limits)]
            expectations |= {(each.text, each.severity): each for each in read}
        except Refused as refused:
            # a sentence of a suite has no place in the file
            refused.at = line.at + (0 if line.is_suite else refused.at)
            problems.append(refused)
    if len(expectations) > MOST_EXPECTATIONS:
        message = f"{len(expectations)} expectations; the limit is {MOST_EXPECTATIONS}"
        problems.append(Refused("HDL-310", message, "expect less of one query", lines[-1].at))
    return tuple(expectations.values()), problems


def with_expectations(stream: Stream, file: str) -> Stream:
    """The stream, whose columns are known, with its expectations read. ``file``: that declares it.

    Raises HDL-260, HDL-261 or HDL-262, with the place.
    """
    columns = dict(stream.schema)
    read: dict[tuple[str, str], Expectation] = {}
    for each in stream.expect:
        try:
            expectation = read_expectation(each.text, each.severity, f"stream {stream.name}", columns)
            if expectation.form in (ROWS, RATIO):
                raise Refused("HDL-262", "a number of events is not expected of a stream", "expect it of a query")
        except Refused as refused:
            message = f"stream {stream.name}: {refused.message}"
            line, column = (*each.at, 0, 0)[:2]
            raise HeddleError(refused.code, message, refused.hint, file=file, line=line, column=column) from None
        read[expectation.text, expectation.severity] = expectation
    return replace(stream, expect=tuple(read.values()))


def read_expectation(
    text: str, severity: str, about: str, columns: Mapping[str, Type], limits: Limits | None = None
) -> Expectation:
    """Read one expectation.

    - ``text``: the sentence, without its severity; ``severity``: as it was written, "" for the default.
    - ``about``: the name of the query or stream; ``columns``: those that the sentence may name, with their types.

    Raises Refused with an offset in the text: HDL-260 for what is no such sentence, HDL-261 for a column that does not
    exist, HDL-262 for types, bounds and patterns that do not fit, and what a condition behind ``where`` raises.
    """
    severity = severity.strip().lower() or BLOCK
    if severity not in SEVERITIES:
        hint = "write (warn) or (block); without it an expectation blocks"
        raise Refused("HDL-260", f"there is no severity {shown_text(severity)}", hint)
    limits = limits or Limits()
    return replace(_Sentence(text, about, dict(columns), limits).read(), text=redacted(text.strip()), severity=severity)


class _Sentence:
    """Reads the words of one sentence from left to right."""

    def __init__(self, text: str, about: str, columns: dict[str, Type], limits: Limits) -> None:
        self.text, self.about, self.columns, self.limits = text, about, columns, limits
        self.tokens = counted_tokens(text, limits) if text.strip() else []
        self.at = 0

    # ------------------------------------------------------------------------------------------- words
    @property
    def place(self) -> int:
        """The offset of the next word."""
        return self.tokens[self.at].start if self.at < len(self.tokens) else len(self.text)

    def peek(self, ahead: int = 0) -> str:
        """A word in lower case; "" behind the last, and for quoted ones."""
        number_ = self.at + ahead
        if number_ >= len(self.tokens) or self.tokens[number_].token_type in QUOTED:
            return ""
        return str(self.tokens[number_].text).lower()

    def skip(self, *words: str) -> bool:
        """Skip some words, if they come next."""
        if [self.peek(ahead) for ahead in range(len(words))] != list(words):
            return False
        self.at += len(words)
        return True

    def need(self, *words: str) -> None:
        """Skip words that have to come next."""
        for word in words:
            if not self.skip(word):
                raise self.refused(f"`{word}` is expected here")

    def refused(self, message: str, hint: str = FORMS, code: str = "HDL-260", at: int | None = None) -> Refused:
        """A refusal of the next word, or of an offset."""
        near = f", not {shown_text(self.tokens[self.at].text)}" if self.at < len(self.tokens) and at is None else ""
        return Refused(code, message + (near if code == "HDL-260" else ""), hint, self.place if at is None else at)

    def name(self) -> str:
        """The column that the next word names."""
        if self.at >= len(self.tokens):
            raise self.refused("the sentence ends where a column is expected")
        token = self.tokens[self.at]
        is_word = token.token_type not in (TokenType.STRING, TokenType.NUMBER) and token.text[:1].isidentifier()
        if not is_word and token.token_type != TokenType.IDENTIFIER:
            raise self.refused("a column is expected here")
        column = resolve_name(token.text, self.columns)
        if column is None:
            message = f"{self.about} has no column {shown_text(token.text)}"
            raise Refused("HDL-261", message, did_you_mean(token.text, self.columns, "columns"), token.start)
        self.at += 1
        return column

    # ---------------------------------------------------------------------------------------- sentences
    def read(self) -> Expectation:
        """The sentence. Its text and severity are left empty."""
        if not self.tokens:
            raise Refused("HDL-260", "the expectation is empty", FORMS)
        begin = self.at
        expectation = self._check()
        mostly, where = None, None
        if self.skip("mostly"):
            at = self.place
            mostly = self._share()
            if not expectation.is_of_rows:
                message = "`mostly` is a share of rows, and this is about one number"
                raise Refused("HDL-262", message, "widen the bounds instead", at)
        if self.peek() == "where":
            if expectation.form in (RATIO, AGE):
                raise self.refused("`where` does not go with this check", "leave it out", "HDL-262")
            where = self._condition()
        if self.at < len(self.tokens):
            raise self.refused("the sentence should end here")
        assert begin == 0
        return replace(expectation, mostly=mostly, where=where)

    def _check(self) -> Expectation:
        if self.skip("rows"):
            return self._rows()
        if self.skip("("):
            return self._unique_together()
        if self.peek() == "distinct" and self.peek(1) not in ("(", "between", "is", "in", "matches", ""):
            self.at += 1
            return self._statistic("distinct", self.name(), self.place)
        if self.peek() in STATISTICS and self.peek(1) == "(":
            return self._called()
        at, column = self.place, self.name()
        type_ = self.columns[column]
        if self.skip("is"):
            return self._is(column, type_, at)
        if self.skip("in"):
            return self._in(column, type_)
        if self.skip("matches"):
            return self._matches(column, type_, at)
        return self._compared(column, type_)

    def _is(self, column: str, type_: Type, at: int) -> Expectation:
        if self.skip("unique"):
            return self._of((column,), UNIQUE, "unique")
        if self.skip("not", "null"):
            condition = Call("not", (Call("is_null", (Column(column),)),))
            return self._of((column,), VALUES, "not null", condition)
        if self.skip("a", "number"):
            if not type_.is_numeric:
                raise Refused("HDL-262", f"{column} is a {type_}, never a number", "leave it out", at)
            condition = Call("<=", (Column(column), _LARGEST))
            return self._of((column,), VALUES, "number", condition)
        raise self.refused("`not null`, `a number` or `unique` is expected here")

    def _unique_together(self) -> Expectation:
        columns = [self.name()]
        while self.skip(","):
            columns.append(self.name())
        self.need(")", "is", "unique")
        if len(set(columns)) < len(columns):
            raise self.refused("a column stands twice", "name each once", "HDL-262", 0)
        return self._of(tuple(columns), UNIQUE, "unique")

    def _in(self, column: str, type_: Type) -> Expectation:
        self.need("(")
        items = [self._literal(type_)]
        while self.skip(","):
            items.append(self._literal(type_))
        self.need(")")
        if len(items) > MOST_ITEMS:
            raise self.refused(f"{len(items)} values; the limit is {MOST_ITEMS}", "use between", "HDL-262", 0)
        condition = Call("in", (Column(column), *items))
        return replace(self._of((column,), VALUES, "in", condition), items=tuple(items))

    def _matches(self, column: str, type_: Type, at: int) -> Expectation:
        if type_ != STRING:
            raise Refused("HDL-262", f"{column} is a {type_}: only texts match a pattern", "use between or in", at)
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None or token.token_type != TokenType.STRING:
            raise self.refused("a pattern in quotes is expected here", "matches '[A-Z]{3}'")
        try:
            readable_pattern(token.text)
        except HeddleError as error:
            raise Refused("HDL-262", error.diagnostic.message, error.diagnostic.hint, token.start) from None
        self.at += 1
        condition = Call("regexp_like", (Column(column), Literal(token.text, STRING)))
        return self._of((column,), VALUES, "matches", condition)

    def _compared(self, column: str, type_: Type) -> Expectation:
        """A range, a comparison with a constant, or one with a column."""
        if self.peek() != "between" and self.at < len(self.tokens):
            comparison = _COMPARISONS.get(self.tokens[self.at].token_type)
            after = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
            is_constant = after is None or after.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.DASH)
            if comparison is not None and not is_constant and self.peek(1) not in ("true", "false"):
                return self._pair(column, comparison)
        bounds = self._bounds(type_)
        calls = []
        if bounds.low is not None:
            calls.append(Call(">" if bounds.above else ">=", (Column(column), bounds.low)))
        if bounds.high is not None:
            calls.append(Call("<" if bounds.below else "<=", (Column(column), bounds.high)))
        condition = calls[0] if len(calls) == 1 else Call("and", tuple(calls))
        return replace(self._of((column,), VALUES, "between", condition), bounds=bounds)

    def _pair(self, column: str, comparison: str) -> Expectation:
        at = self.place
        self.at += 1
        other = self.name()
        condition = Call(comparison, (Column(column), Column(other)))
        self._check_types(condition, at)
        if comparison in ("<", "<="):
            column, other, comparison = other, column, FLIPPED[comparison]
        return self._of((column, other), PAIR, comparison, condition)

    def _rows(self) -> Expectation:
        bounds = self._bounds(LONG, is_count=True)
        if not self.skip("times"):
            return Expectation("", "", ROWS, "rows", bounds=bounds)
        self.need("those", "of")
        span = self._duration()
        self.need("ago")
        return Expectation("", "", RATIO, "rows", bounds=bounds, span=span)

    def _called(self) -> Expectation:
        at, function = self.place, self.peek()
        self.at += 2
        column = self.name()
        self.need(")")
        if self.skip("newer", "than"):
            if function != "max" or self.columns[column] != TIMESTAMP:
                raise Refused("HDL-262", "`newer than` is about the latest of some times", "max(window_end)", at)
            return Expectation("", "", AGE, "newer", (column,), span=self._duration())
        return self._statistic(function, column, at)

    def _statistic(self, function: str, column: str, at: int) -> Expectation:
        type_ = self.columns[column]
        if function != "distinct" and not type_.is_numeric:
            message = f"{function} needs numbers, and {column} is a {type_}"
            raise Refused("HDL-262", message, "use distinct, or max(…) newer than", at)
        bounds = self._bounds(LONG if function == "distinct" else type_, is_count=function == "distinct")
        return Expectation("", "", AGGREGATE, function, (column,), bounds=bounds)

    def _of(self, columns: tuple[str, ...], form: str, rule: str, condition: Expression | None = None) -> Expectation:
        return Expectation("", "", form, rule, columns, condition)

    # ------------------------------------------------------------------------------------------- parts
    def _bounds(self, type_: Type, is_count: bool = False) -> ExpectedRange:
        """Read ``between a and b`` or a comparison. ``is_count``: of something that is counted."""
        at = self.place
        if self.skip("between"):
            low = self._literal(type_)
            self.need("and")
            bounds = ExpectedRange(low, self._literal(type_))
        else:
            comparison = _COMPARISONS.get(self.tokens[self.at].token_type) if self.at < len(self.tokens) else None
            if comparison is None:
                raise self.refused("`between`, `is`, `in`, `matches` or a comparison is expected here")
            self.at += 1
            value = self._literal(type_)
            bounds = {
                ">": ExpectedRange(value, None, above=True),
                ">=": ExpectedRange(value),
                "<": ExpectedRange(None, value, below=True),
                "<=": ExpectedRange(None, value),
                "=": ExpectedRange(value, value),
            }[comparison]
        low_value, high_value = (None if each is None else each.value for each in (bounds.low, bounds.high))
        if low_value is not None and high_value is not None and low_value > high_value:
            message = f"no value is between {low_value} and {high_value}"
            raise Refused("HDL-262", message, "put the smaller bound first", at)
        if is_count and high_value is not None and (high_value < 0 or (high_value == 0 and bounds.below)):
            raise Refused("HDL-262", "a number of rows or values is never below 0", "", at)
        return bounds

    def _literal(self, type_: Type) -> Literal:
        """A constant that values of a type may be compared with."""
        if self.at >= len(self.tokens):
            raise self.refused("the sentence ends where a value is expected")
        token, sign, at = self.tokens[self.at], 1, self.place
        if token.token_type == TokenType.DASH:
            sign = -1
            self.at += 1
            if self.at >= len(self.tokens):
                raise self.refused("the sentence ends where a number is expected")
            token = self.tokens[self.at]
        try:
            literal = self._constant(token, sign, type_)
            if literal is None:
                raise self.refused("a value is expected here", "columns are compared as x > y")
            call_type("=", [type_, literal.type], ())
        except HeddleError as error:
            raise Refused("HDL-262", error.diagnostic.message, error.diagnostic.hint, at) from None
        self.at += 1
        return literal

    def _constant(self, token: Token, sign: int, type_: Type) -> Literal | None:
        if token.token_type == TokenType.NUMBER:
            literal = number(token.text)
            return negated(literal) if sign < 0 else literal
        if token.token_type == TokenType.STRING and sign > 0:
            return moment(token.text, type_) if family_of(type_) == "time" else Literal(token.text, STRING)
        if token.text.lower() in ("true", "false") and sign > 0 and token.token_type not in QUOTED:
            return Literal(token.text.lower() == "true", BOOLEAN)
        return None

    def _share(self) -> Decimal:
        token, at = (self.tokens[self.at] if self.at < len(self.tokens) else None), self.place
        if token is None or token.token_type != TokenType.NUMBER:
            raise self.refused("`mostly` takes a share of rows", "e.g. mostly 0.99")
        try:
            share = Decimal(str(number(token.text).value))
        except HeddleError as error:
            raise Refused("HDL-262", error.diagnostic.message, error.diagnostic.hint, at) from None
        if not 0 < share <= 1:
            raise Refused("HDL-262", f"`mostly` is above 0 and at most 1, not {share}", "e.g. mostly 0.99", at)
        self.at += 1
        return share

    def _duration(self) -> int:
        """A length of time, in quotes or without."""
        at, words = self.place, list[str]()
        while self.at < len(self.tokens) and self.peek() not in ("ago", "mostly", "where"):
            words.append(self.tokens[self.at].text)
            self.at += 1
        try:
            span = parse_duration(" ".join(words))
        except HeddleError as error:
            raise Refused("HDL-262", error.diagnostic.message, error.diagnostic.hint, at) from None
        if span <= 0:
            raise Refused("HDL-262", "a length of time is above 0", "e.g. 7 days", at)
        return span

    def _condition(self) -> Expression:
        """The condition behind ``where``, which is the rest of the sentence."""
        begin = self.tokens[self.at].end + 1
        text = _CONDITION + self.text[begin:]
        try:
            tokens: Sequence[Token] = guarded_tokens(text, self.limits)
            findings = Findings()
            tree = parse_select(tokens, text, self.limits, findings)
            for problem in findings.problems:
                raise problem
            others = [
                name for name, value in tree.args.items() if value and name not in ("expressions", "from_", "where")
            ]
            if others or tree.args.get("where") is None or tree.args["from_"].this.args.get("alias"):
                raise Refused(
                    "HDL-260", "`where` takes one condition", "where route <> 'A' AND rate > 0", len(_CONDITION)
                )
            stream = Stream(self.about, Source("", ""), tuple(self.columns.items()), "")
            condition = filter_of([tree.args["where"].this], Scope(text, stream, self.limits))
        except Refused as refused:
            refused.at = min(max(refused.at - len(_CONDITION), 0) + begin, len(self.text))
            if refused.code == "HDL-202":
                refused.code = "HDL-261"
                refused.message = refused.message.replace(f"stream {self.about} has", f"{self.about} has")
            raise
        self.at = len(self.tokens)
        # a condition that always holds chooses all rows
        return Literal(True, BOOLEAN) if condition is None else condition

    def _check_types(self, call: Call, at: int) -> None:
        types = [self.columns[each.name] for each in call.arguments if isinstance(each, Column)]
        try:
            call_type(call.function, types, call.arguments)
        except HeddleError as error:
            raise Refused("HDL-262", error.diagnostic.message, error.diagnostic.hint, at) from None
