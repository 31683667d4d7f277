"""Reads one statement into one query, by guarded tokens and sqlglot's tree; every problem with its place."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import NoReturn

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from optimizer.aggregates.algebra import AGGREGATES, SEQUENCES
from optimizer.aggregates.states import check_error
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.clauses import COUNT_TEXT, PATTERN, ROW_WINDOW, ClauseReader, Clauses, PatternWords, WindowWords
from optimizer.language.refusals import NULL, QUOTED, TIME_WINDOW, Refused, shown_text
from optimizer.language.words import (
    BINARY,
    CALLABLE,
    CLAUSES,
    FLIPPED,
    FORBIDDEN,
    FORMS,
    LEFT_OUT,
    MEANT,
    MOMENTS,
    NAMES_OF_SYNTAX,
    NOT_IN_HAVING,
    OPAQUE,
    OPERANDS,
    PARAMETERS,
    RANGES,
    RESERVED,
    SOURCES,
    SUFFIXES,
    WINDOW_FUNCTIONS,
    Form,
    Limits,
    check_accuracy,
    closing_parenthesis,
    did_you_mean,
    is_constant,
    output_among,
    resolve_name,
    shortest_decimal,
    window_function,
    with_opaque_names,
    without_parentheses,
    written_name,
)
from optimizer.workload.expression import call_type, moment, negated, number
from optimizer.workload.instants import duration_text, parse_duration, rows_text
from optimizer.workload.predicates import normal
from optimizer.workload.values import (
    ACQ,
    BOOLEAN,
    DOUBLE,
    STRING,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    Output,
    Pattern,
    Stream,
    Type,
    Window,
    columns_of,
)


class QueryReader:
    """Reads one statement; clauses are read one by one so that several mistakes are reported at once."""

    def __init__(
        self, text: str, streams: Mapping[str, Stream], limits: Limits, unreadable: Collection[str] = ()
    ) -> None:
        self.text, self.streams, self.limits, self.unreadable = text, streams, limits, unreadable
        self.problems: list[Refused] = []
        self.warnings: list[Refused] = []
        self.stream: Stream | None = None
        self.schema: dict[str, Type] = {}
        self.error: Decimal | None = None
        self.error_taken = False
        self.pattern: Pattern | None = None
        self.event: str | None = None
        """The event type whose attributes an aggregate over sequences reads, once it is known."""
        self.of_event = False
        self.refused: dict[str, Refused] = {}
        """Why an output has no value, by its alias: a HAVING on it is wrong for the same reason."""

    def read(self, name: str, owner: str, source: str) -> ACQ | None:
        """The query, or None with :attr:`problems`."""
        try:
            tokens = self._tokens()
            clauses, rest = self._cut(tokens)
            tree = self._tree(rest)
            self._from(tree)
        except Refused as refused:
            self.problems.append(refused)
            return None
        assert self.stream is not None
        group_by = self._group_by(tree)
        window, filter = None, None
        try:
            window = self._window(clauses.window, group_by)
        except Refused as refused:
            self.problems.append(refused)
        try:
            self.pattern = self._pattern(clauses.pattern, window, group_by)
        except Refused as refused:
            # what the aggregates mean depends on it
            self.problems.append(refused)
            return None
        self._permit(clauses.error)
        outputs, select = self._select(tree, group_by)
        groups = dict(zip(select, group_by, strict=True)) | {column: column for column in group_by}
        having = self._having(tree, outputs, groups, clauses.having)
        where = tree.args.get("where")
        if where is not None:
            try:
                filter, found = self._expression(where.this, 0)
                if found not in (BOOLEAN, NULL):
                    self._refuse("HDL-203", f"WHERE needs a condition, not {found}", "compare it", where.this)
                filter = normal(_settled(filter, BOOLEAN), self.schema)
            except Refused as refused:
                self.problems.append(refused)
        if self.problems or window is None:
            return None
        if clauses.error is not None and not self.error_taken:
            takers = ", ".join(name for name, aggregate in AGGREGATES.items() if aggregate.sketch)
            message = "WITH (error = …) changes nothing: every aggregate of the query is exact or names its own error"
            self.warnings.append(Refused("HDL-218", message, f"{takers} take it", clauses.error.start))
        grouped = tuple(group_by.items())
        return ACQ(
            name, self.stream.name, window, outputs, filter, grouped, select, owner, source, having, self.pattern
        )

    def _refuse(self, code: str, message: str, hint: str, node: exp.Expr) -> NoReturn:
        raise Refused(code, message, hint, self._at(node))

    def _at(self, node: exp.Expr) -> int:
        # TRUE and NULL have no place of their own: what they stand in has
        for near in (node, node.parent):
            starts = [found.meta["start"] for found in near.walk() if "start" in found.meta] if near else []
            if starts:
                return min(starts)
        return 0

    # ------------------------------------------------------------------------------------------ tokens
    def _tokens(self) -> list[Token]:
        limits = self.limits
        size = len(self.text.encode(errors="surrogatepass"))
        if size > limits.bytes:
            raise Refused("HDL-301", f"the query has {size} bytes, the limit is {limits.bytes}", "split it")
        try:
            tokens = Spark().tokenize(self.text)
        except TokenError:
            raise Refused("HDL-101", "this text cannot be split into words", "look for stray quotes") from None
        # our own comments are blanked: what is left are those of other languages
        if not tokens or any(token.comments for token in tokens):
            raise Refused("HDL-103", "templates are not allowed", "write the value", max(self.text.find("{"), 0))
        if len(tokens) > limits.tokens:
            raise Refused("HDL-302", f"the query has {len(tokens)} words, the limit is {limits.tokens}", "split it")
        first = tokens[0]
        if first.token_type == TokenType.WITH:
            raise Refused("HDL-103", "common table expressions are not allowed", SOURCES, first.start)
        if first.token_type != TokenType.SELECT:
            raise Refused("HDL-102", f"a query starts with SELECT, not {shown_text(first.text)}", "", first.start)
        self._check_nesting(tokens)
        for at, (token, after) in enumerate(itertools.pairwise(tokens)):
            called = after.token_type == TokenType.L_PAREN and token.token_type not in QUOTED
            if called and token.text.lower() in WINDOW_FUNCTIONS:
                end = at + 1 + closing_parenthesis(tokens[at + 1 :])
                written = self.text[token.start : tokens[end].end + 1]
                raise window_function(written, token.text.lower(), token.start)
        for token, after in zip(tokens, [*tokens[1:], None], strict=True):
            self._check_token(token, after, first)
        return tokens

    def _check_token(self, token: Token, after: Token | None, first: Token) -> None:
        source = self.text[token.start : token.end + 1]
        if len(token.text) > self.limits.literal:
            limit = self.limits.literal
            raise Refused(
                "HDL-305",
                f"a word or literal of {len(token.text)} characters; the limit is {limit}",
                "",
                token.start,
            )
        if token.token_type in FORBIDDEN:
            raise Refused("HDL-103", *FORBIDDEN[token.token_type], token.start)
        # 5L arrives as 5 :: BIGINT, all three at the same place
        if token.token_type == TokenType.DCOLON and source == "::":
            raise Refused("HDL-103", "casts are not allowed", "the stream's schema fixes the types", token.start)
        if token.token_type == TokenType.SELECT and token is not first:
            hint = "one SELECT over one stream: no subqueries, no UNION"
            raise Refused("HDL-103", "subqueries and set operations are not allowed", hint, token.start)
        if token.token_type == TokenType.STRING and "${" in token.text:
            raise Refused("HDL-103", "substitutions are not allowed in strings", "write the value", token.start)
        if token.token_type == TokenType.COMMA and after is not None and after.token_type == TokenType.FROM:
            raise Refused("HDL-101", "nothing follows this comma", "remove it", token.start)
        if token.token_type == TokenType.IDENTIFIER and not token.text:
            raise Refused("HDL-101", "this name is empty", "write a name between the quotes", token.start)
        called = after is not None and after.token_type == TokenType.L_PAREN
        if called and token.text.lower() in ("cast", "try_cast", "convert", "transform"):
            hint = "the stream's schema fixes the types"
            raise Refused("HDL-103", f"{token.text} is not allowed", hint, token.start)
        # sqlglot reads what may be a type twice, and what is inside it again twice: 2^depth times in all
        if called and token.token_type in Spark.Parser.TYPE_TOKENS and token.text.lower() not in OPAQUE:
            hint = did_you_mean(token.text, [*FORMS, *CALLABLE], "functions")
            raise Refused("HDL-104", f"there is no function {shown_text(token.text)}", hint, token.start)

    def _check_nesting(self, tokens: Sequence[Token]) -> None:
        """Bound recursion before any recursive code runs: parentheses, and prefix operators not yet ended."""
        prefixes, total, connectives = [0], 0, 0
        opened: list[Token] = []
        previous: Token | None = None
        for token in tokens:
            kind = token.token_type
            if kind == TokenType.L_PAREN:
                prefixes.append(0)
                opened.append(token)
            elif kind == TokenType.R_PAREN:
                if not opened:
                    raise Refused("HDL-101", "this parenthesis was never opened", "remove it", token.start)
                opened.pop()
                total -= prefixes.pop()
            elif kind in (TokenType.AND, TokenType.OR, TokenType.COMMA):
                connectives += 1
                total -= prefixes[-1]
                prefixes[-1] = 0
            elif kind == TokenType.NOT or (
                kind in (TokenType.DASH, TokenType.PLUS, TokenType.TILDE)
                and (previous is None or previous.token_type not in OPERANDS)
            ):
                prefixes[-1] += 1
                total += 1
            if len(opened) + total > self.limits.depth:
                message = f"expressions are nested more than {self.limits.depth} deep here"
                raise Refused("HDL-303", message, "remove parentheses", token.start)
            if connectives > self.limits.connectives:
                message = f"the query has more than {self.limits.connectives} ANDs, ORs and commas"
                raise Refused("HDL-304", message, "use IN or BETWEEN, or split the query", token.start)
            previous = token
        if opened:
            raise Refused("HDL-101", "this parenthesis is never closed", "close it", opened[-1].start)

    # --------------------------------------------------------------------------------------- our clauses
    def _cut(self, tokens: list[Token]) -> tuple[Clauses, list[Token]]:
        """Our own clauses, and the tokens of all the others."""
        depth, source, found, patterns = 0, None, list[int](), list[int]()
        options: int | None = None
        having = 0
        for index, token in enumerate(tokens):
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            after = tokens[index + 1] if index + 1 < len(tokens) else None
            if depth or (source is None and token.token_type != TokenType.FROM):
                continue
            if token.token_type == TokenType.FROM:
                source = token
            elif token.token_type == TokenType.WINDOW:
                found.append(index)
            elif token.token_type == TokenType.HAVING:
                having = token.start
            elif token.text.upper() == "PATTERN" and after is not None and after.text.upper() == "SEQ":
                patterns.append(index)
            elif token.token_type == TokenType.WITH and after is not None and after.text.lower() in ("(", "error"):
                options = index if options is None else options
        if source is None:
            raise Refused("HDL-101", "the query has no FROM", SOURCES, tokens[-1].start)
        if not found:
            message = "the query has no WINDOW clause"
            raise Refused("HDL-107", message, f"after the stream, write {TIME_WINDOW}", source.start)
        for clause, places in (("WINDOW", found), ("PATTERN", patterns)):
            if len(places) > 1:
                raise Refused("HDL-107", f"a query has one {clause} clause", "", tokens[places[1]].start)
        error, last = None, len(tokens)
        if options is not None:
            error, last = self._options(tokens, options), options
        window, behind = self._window_words(tokens[:last], found[0])
        ours, pattern = [(found[0], behind)], None
        if patterns:
            pattern, behind = self._pattern_words(tokens[:last], patterns[0])
            ours.append((patterns[0], behind))
        rest, at = list[Token](), 0
        for begin, behind in sorted(ours):
            after = tokens[behind] if behind < last else None
            follows = any(behind == other for other, _ in ours)
            if after is not None and not follows and after.token_type in (*OPERANDS, TokenType.L_PAREN):
                message = f"{shown_text(after.text)} cannot follow the {tokens[begin].text.upper()} clause"
                hint = "WHERE, GROUP BY, HAVING, WITH or the end follow it"
                raise Refused("HDL-101", message, hint, after.start)
            rest += tokens[at:begin]
            at = behind
        return Clauses(window, pattern, error, having), rest + tokens[at:last]

    def _window_words(self, tokens: list[Token], begin: int) -> tuple[WindowWords, int]:
        """The WINDOW clause that begins at a token, and the index of the token behind it."""
        words = ClauseReader(tokens, begin + 1, f"write {TIME_WINDOW}")
        rows = words.word("RANGE", "ROWS").text.upper() == "ROWS"
        if rows:
            words.hint = f"write {ROW_WINDOW}"
        kind, what = (TokenType.NUMBER, "a number of rows") if rows else (TokenType.STRING, "a quoted duration")
        range = words.token(kind, what)
        words.word("SLIDE")
        bound = words.word("AT") if words.follows("AT") else None
        if bound is not None:
            words.word("MOST")
            if rows:
                hint = "write SLIDE with a number of rows, or RANGE '…' SLIDE AT MOST '…'"
                raise Refused("HDL-107", "a refresh bound is a span of time, not a number of rows", hint, bound.start)
        slide, ago, per = words.token(kind, what), None, list[Token]()
        if words.follows("ENDING"):
            ending = words.word("ENDING")
            if rows:
                hint = "ENDING … AGO shifts windows of time: RANGE '…' SLIDE '…' ENDING '7 days' AGO"
                raise Refused("HDL-107", "ENDING has no meaning for a number of rows", hint, ending.start)
            ago = words.token(TokenType.STRING, what)
            words.word("AGO")
        if rows and words.follows("PARTITION BY"):
            words.word("PARTITION BY")
            per += words.names("PARTITION BY names columns")
        words.word("ON")
        on = words.name("ON names the time column")
        return WindowWords(rows, range, bound is not None, slide, ago, per, on), words.cursor

    def _pattern_words(self, tokens: list[Token], begin: int) -> tuple[PatternWords, int]:
        """The PATTERN clause that begins at a token, and the index of the token behind it."""
        words = ClauseReader(tokens, begin + 1, f"write {PATTERN}")
        seq = words.word("SEQ")
        words.word("(")
        events = [words.event()]
        while words.follows(","):
            words.word(",")
            events.append(words.event())
        words.word(")")
        words.word("ON")
        on, per = words.name("ON names the column of the event types"), list[Token]()
        if words.follows("PARTITION BY"):
            words.word("PARTITION BY")
            per += words.names("PARTITION BY names columns")
        return PatternWords(seq, events, on, per), words.cursor

    def _options(self, tokens: list[Token], begin: int) -> Token:
        """The number of ``WITH (error = …)``, which ends the query."""
        words = ClauseReader(tokens, begin + 1, "write WITH (error = 0.01)")
        words.word("(")
        option = words.name("WITH ( ) holds the permitted error")
        if option.text.lower() != "error":
            message = f"there is no option {shown_text(option.text)}"
            raise Refused("HDL-107", message, "error is the only one: WITH (error = 0.01)", option.start)
        words.word("=")
        error = words.token(TokenType.NUMBER, "a number")
        words.word(")")
        if words.cursor < len(tokens):
            token = tokens[words.cursor]
            raise Refused("HDL-107", "nothing follows WITH (…)", "move it to the end of the query", token.start)
        return error

    def _window(self, words: WindowWords, group_by: Mapping[str, Type]) -> Window:
        assert self.stream is not None
        read, said = (self._rows, rows_text) if words.rows else (self._duration, duration_text)
        first = "ROWS" if words.rows else "RANGE"
        range, slide = read(first, words.range), read("SLIDE", words.slide)
        ago = self._duration("AGO", words.ago) if words.ago is not None else 0
        if not words.rows and slide < self.limits.slide:
            message = f"SLIDE is shorter than {duration_text(self.limits.slide)}"
            raise Refused("HDL-306", message, "", words.slide.start)
        if Fraction(range, slide) > self.limits.ratio:
            least = said(-(-range // self.limits.ratio))
            message = f"{first} is more than {self.limits.ratio} times SLIDE"
            raise Refused("HDL-308", message, f"a slide of {least} or more is allowed with it", words.slide.start)
        if resolve_name(words.on.text, [self.stream.time]) is None:
            message = f"windows of {self.stream.name} are on {self.stream.time}, not {shown_text(words.on.text)}"
            raise Refused("HDL-205", message, f"write ON {self.stream.time}", words.on.start)
        if slide > range:
            self.warnings.append(
                Refused(
                    "HDL-210",
                    f"the slide ({said(slide)}) is longer than the range ({said(range)})",
                    f"the events between two windows are in none: of every {said(slide)} only {said(range)} "
                    + ("need count" if words.at_most else "count, the first: windows are [k*slide, k*slide + range)"),
                    words.slide.start,
                )
            )
        if words.at_most:
            return self._bound(words, range, slide, ago)
        per = tuple(sorted({self._counted_by(token, group_by) for token in words.per})) if words.rows else None
        return Window(range, slide, ago, per)

    def _bound(self, words: WindowWords, range: int, bound: int, ago: int) -> Window:
        """A window that is refreshed at instants of the schedule's choice, multiples of the stream's step."""
        assert self.stream is not None
        step, said = self.stream.step, duration_text
        if bound < step:
            message = f"AT MOST is shorter than the step of {self.stream.name} ({said(step)})"
            hint = f"allow {said(step)} or more, or give the stream a shorter `step` in streams.yaml"
            raise Refused("HDL-224", message, hint, words.slide.start)
        if range % step:
            message = f"RANGE is no multiple of the step of {self.stream.name} ({said(step)})"
            hint = f"{said(range - range % step or step)} is, or give the stream another `step` in streams.yaml"
            raise Refused("HDL-225", message, hint, words.range.start)
        # a bound is kept just as well by the multiple of the step below it
        return Window(range, step, ago, at_most=bound - bound % step)

    def _pattern(
        self, words: PatternWords | None, window: Window | None, group_by: Mapping[str, Type]
    ) -> Pattern | None:
        if words is None:
            return None
        assert self.stream is not None
        if window is not None and window.is_rows:
            message = "an event sequence lies in a window of time, not in a number of rows"
            raise Refused("HDL-220", message, f"write {TIME_WINDOW}", words.seq.start)
        if len(words.events) > self.limits.pattern:
            message = f"SEQ has {len(words.events)} events; the limit is {self.limits.pattern}"
            raise Refused("HDL-220", message, "split it into shorter sequences", words.seq.start)
        on = self._known(words.on)
        if self.schema[on].name not in ("string", "long"):
            message = f"{on} is {self.schema[on]}: event types are strings or integers"
            raise Refused("HDL-221", message, "name the column that tells what an event is", words.on.start)
        events = tuple(self._event_type(token, on) for token in words.events)
        per = set(group_by)
        for token in words.per:
            column = self._known(token)
            if column == self.stream.time or self.schema[column] == DOUBLE:
                what = "the time column" if column == self.stream.time else "the double column"
                message = f"sequences by {what} {column}"
                raise Refused("HDL-206", message, "name an integer, decimal or string column", token.start)
            per.add(column)
        if len(per) > self.limits.group_columns:
            message = f"PARTITION BY and GROUP BY name {len(per)} columns; the limit is {self.limits.group_columns}"
            raise Refused("HDL-309", message, "", words.seq.start)
        return Pattern(events, on, tuple(sorted(per)))

    def _event_type(self, token: Token, on: str) -> str:
        written = self.text[token.start : token.end + 1]
        if self.schema[on].name == "string":
            if token.token_type == TokenType.NUMBER:
                hint = f"quote it: '{written}'"
                raise Refused("HDL-221", f"{on} is a string: {shown_text(written)} is a number", hint, token.start)
            return token.text
        if token.token_type != TokenType.NUMBER or not written.isdecimal() or len(written) > 18:
            message = f"{on} is {self.schema[on]}: {shown_text(token.text)} is no value of it"
            raise Refused("HDL-221", message, "write whole numbers: SEQ(1, 2, 3)", token.start)
        return str(int(written))

    def _known(self, token: Token) -> str:
        column = resolve_name(token.text, self.schema)
        if column is None:
            assert self.stream is not None
            message = f"stream {self.stream.name} has no column {shown_text(token.text)}"
            raise Refused("HDL-202", message, did_you_mean(token.text, self.schema, "columns"), token.start)
        return column

    def _duration(self, word: str, token: Token) -> int:
        try:
            value = parse_duration(token.text)
        except HeddleError as error:
            raise Refused.of(error, token.start) from None
        if value <= 0:
            raise Refused("HDL-204", f"{word} must be longer than zero", "", token.start)
        if value > self.limits.range:
            message = f"{word} is longer than {duration_text(self.limits.range)}"
            raise Refused("HDL-307", message, "", token.start)
        return value

    def _rows(self, word: str, token: Token) -> int:
        written = self.text[token.start : token.end + 1]
        if not COUNT_TEXT.fullmatch(written):
            message = f"{word} takes a whole number of rows, not {shown_text(written)}"
            raise Refused("HDL-204", message, "one row or more", token.start)
        if int(written) > self.limits.rows:
            raise Refused("HDL-307", f"{word} is more than {self.limits.rows:,} rows", "", token.start)
        return int(written)

    def _counted_by(self, token: Token, group_by: Mapping[str, Type]) -> str:
        column = self._known(token)
        # a GROUP BY that was refused is incomplete
        if column not in group_by and not self.problems:
            message = f"rows are counted for each {column}, which the query does not group by"
            raise Refused("HDL-219", message, f"add GROUP BY {column}, or leave PARTITION BY out", token.start)
        return column

    # ------------------------------------------------------------------------------------ stock clauses
    def _tree(self, tokens: list[Token]) -> exp.Select:
        # so much context that the length of start_context is the position of the error
        parser = Spark().parser(error_level=ErrorLevel.IMMEDIATE, error_message_context=10 * self.limits.bytes)
        try:
            trees = parser.parse(with_opaque_names(tokens), self.text)
        except ParseError as error:
            found = error.errors[0] if error.errors else {}
            near, description = str(found.get("highlight") or ""), str(found.get("description") or "")
            message = f"the query cannot be read near {shown_text(near)}" if near else "the query cannot be read"
            if description.startswith("Expecting"):
                message += f": {description[0].lower()}{description[1:]}"
            elif description.startswith("The number of provided arguments"):
                message += ": too many arguments"
            elif description.startswith("Required keyword"):
                message += ": something is missing"
            raise Refused("HDL-101", message, "", len(str(found.get("start_context") or ""))) from None
        except RecursionError:
            raise Refused("HDL-303", "expressions are nested too deeply", "remove parentheses") from None
        except Exception as error:
            # a slip of sqlglot's on text that nobody means: it costs its own query alone
            raise Refused("HDL-101", f"the query cannot be read ({type(error).__name__})", "write it plainer") from None
        tree = trees[0] if len(trees) == 1 else None
        if not isinstance(tree, exp.Select):
            message = "this is not a plain SELECT"
            raise Refused("HDL-103", message, "one SELECT over one stream", tokens[0].start)
        refused = []
        for name, value in tree.args.items():
            if value and name not in ("expressions", "from_", "where", "group", "having"):
                word, message, hint = CLAUSES.get(name, ("", f"{name} is not allowed", SOURCES))
                at = next((token.start for token in tokens if word and token.text.upper() == word), tokens[0].start)
                if name == "joins":
                    at = self._at(value[0])
                refused.append(Refused("HDL-103", message, hint, at))
        if refused:
            *others, last = sorted(refused, key=lambda found: found.at)
            self.problems += others
            raise last
        return tree

    def _from(self, tree: exp.Select) -> None:
        source = tree.args.get("from_")
        if source is None:
            # the word stands somewhere, as something else
            raise Refused("HDL-101", "the query has no FROM", SOURCES)
        table = source.this
        if type(table) is not exp.Table or not isinstance(table.this, exp.Identifier):
            self._refuse("HDL-103", "FROM takes the name of a stream", SOURCES, source)
        for name, value in table.args.items():
            if value and name != "this":
                what = {"db": "paths and qualified names", "alias": "aliases of streams"}.get(name, name)
                self._refuse("HDL-103", f"{what}: not allowed in FROM", SOURCES, table)
        found = resolve_name(table.name, self.streams)
        if found is None and (declared := resolve_name(table.name, self.unreadable)) is not None:
            self._refuse(LEFT_OUT, f"stream {declared} cannot be read", "what is wrong with it stands above", table)
        if found is None:
            hint = did_you_mean(table.name, self.streams, "streams") or "declare it in streams.yaml"
            self._refuse("HDL-201", f"there is no stream {shown_text(table.name)}", hint, table)
        self.stream = self.streams[str(found)]
        if not self.stream.schema:
            message = f"the columns of stream {self.stream.name} are not known"
            self._refuse("HDL-213", message, "give it a `schema` in streams.yaml", table)
        self.schema = dict(self.stream.schema)

    def _group_by(self, tree: exp.Select) -> dict[str, Type]:
        """Group columns with their types, in order."""
        assert self.stream is not None
        group, found = tree.args.get("group"), dict[str, Type]()
        if group is None:
            return found
        try:
            for name, value in group.args.items():
                if value and name != "expressions":
                    self._refuse("HDL-206", f"GROUP BY {name.upper()} is not allowed", "name the columns", tree)
            for node in group.expressions:
                if type(node) is not exp.Column:
                    message = "GROUP BY takes column names"
                    self._refuse("HDL-206", message, "expressions and positions are not allowed", node)
                column, type_ = self._column(node)
                if column == self.stream.time:
                    hint = "the windows already divide time: choose RANGE and SLIDE"
                    self._refuse("HDL-206", f"grouping by the time column {column}", hint, node)
                if type_ == DOUBLE:
                    hint = "equal doubles are chance: group by an integer, decimal or string column"
                    self._refuse("HDL-206", f"grouping by the double column {column}", hint, node)
                if column in found:
                    self._refuse("HDL-206", f"{column} is grouped by twice", "", node)
                found[column] = type_
            if len(found) > self.limits.group_columns:
                message = f"{len(found)} group columns; the limit is {self.limits.group_columns}"
                self._refuse("HDL-309", message, "", group.expressions[self.limits.group_columns])
        except Refused as refused:
            self.problems.append(refused)
        return found

    def _select(self, tree: exp.Select, group_by: dict[str, Type]) -> tuple[tuple[Output, ...], tuple[str, ...]]:
        outputs: list[Output] = []
        names: dict[str, str] = {}
        taken: dict[str, exp.Expr] = {}
        for item in tree.expressions:
            try:
                node, alias, column = item, "", None
                if type(item) is exp.Alias:
                    node, alias = item.this, item.alias
                if type(node) is exp.Column:
                    column, _ = self._column(node)
                    if column not in group_by:
                        self._refuse(
                            "HDL-207",
                            f"{column} is neither grouped by nor aggregated",
                            f"add GROUP BY {column}, or write max({column})",
                            node,
                        )
                    if column in names:
                        self._refuse("HDL-208", f"{column} is selected twice", "", node)
                    names[column] = name = alias or column
                else:
                    output = self._output(node, alias)
                    outputs.append(output)
                    name = output.name
                if alias and not (alias.isidentifier() and len(alias) <= 64):
                    self._refuse(
                        "HDL-208",
                        f"{shown_text(alias)} cannot name a column of the answers",
                        "letters, digits and underscores, not starting with a digit",
                        item,
                    )
                self._take(name, taken, item, column)
            except Refused as refused:
                self.problems.append(refused)
                self.refused[item.alias.lower()] = refused
        for column in group_by:
            if column not in names:
                try:
                    self._take(column, taken, tree.args["group"], column)
                except Refused as refused:
                    self.problems.append(refused)
        if not outputs and not self.problems:
            self.problems.append(Refused("HDL-105", "the query computes no aggregate", "add count(*) or another"))
        if len(outputs) > self.limits.outputs:
            message = f"{len(outputs)} outputs; the limit is {self.limits.outputs}"
            self.problems.append(Refused("HDL-310", message, "split the query"))
        return tuple(outputs), tuple(names.get(column, column) for column in group_by)

    def _take(self, name: str, taken: dict[str, exp.Expr], item: exp.Expr, column: str | None = None) -> None:
        """Give a name to a column of the answers; ``column``: the group column that it holds."""
        if name.lower() in RESERVED:
            message = f"{name} is the name of a column that answers have of their own"
            hint = f"select it under another name: {written_name(column) if column else '…'} AS its_{name.lower()}"
            self._refuse("HDL-208", message, hint, item)
        if name.lower() in taken:
            self._refuse("HDL-208", f"two columns of the answers are named {name}", "name one with AS", item)
        taken[name.lower()] = item

    def _output(self, node: exp.Expr, alias: str) -> Output:
        assert self.stream is not None
        written = self._function(node) or ""
        if written not in FORMS:
            if written in CALLABLE or type(node) in BINARY or type(node) in (exp.Paren, exp.Literal, exp.Neg):
                hint = "combine aggregates when you read the answers; inside an aggregate arithmetic is allowed"
                self._refuse("HDL-105", "SELECT takes group columns and single aggregates", hint, node)
            self._unknown(node)
        arguments = self._arguments(node)
        if arguments and type(arguments[0]) is exp.Distinct:
            if written != "count":
                what, hint = NAMES_OF_SYNTAX[exp.Distinct]
                self._refuse("HDL-103", f"{what} is not allowed in {written}", hint, node)
            written, arguments = "count_distinct", arguments[0].expressions
        form = FORMS[written]
        aggregate = AGGREGATES[form.function]
        if not form.least <= len(arguments) <= len(form.roles):
            example = f"{written}({', '.join(form.roles)})"
            self._refuse("HDL-104", f"{written} takes {form.counts}, not {len(arguments)}", f"write {example}", node)
        given = dict(zip(form.roles, arguments, strict=False))
        if self.pattern is not None:
            return self._of_sequences(node, alias, written, given["x"])
        argument, found = self._value(given["x"])
        if written == "count" and isinstance(argument, Literal) and argument.value is not None:
            argument, found = None, None
        by, by_type = self._value(given["y"]) if "y" in given else (None, None)
        name = alias or "_".join([written, *dict.fromkeys([*columns_of(argument), *columns_of(by)])])[:64]
        if aggregate.signature == "value+time":
            by, by_type = Column(self.stream.time), self.schema[self.stream.time]
        try:
            type_ = aggregate.output_type(found, by_type)
        except TypeError as reason:
            raise Refused("HDL-203", str(reason), "", self._at(node)) from None
        parameter, error = form.k, None
        for role, code in PARAMETERS.items():
            if role in given:
                parameter = self._constant(given[role], code, f"the {role} of {written}", aggregate.check_parameter)
        if aggregate.sketch:
            error = self._permitted(given, form, written)
        return Output(name, form.function, argument, found, type_, by, by_type, parameter, error)

    def _of_sequences(self, node: exp.Expr, alias: str, written: str, given: exp.Expr) -> Output:
        """An aggregate over the sequences: ``count(*)``, ``count(E)`` or a function of E's attributes."""
        assert self.pattern is not None
        if written not in SEQUENCES:
            hint = f"{', '.join(SEQUENCES)} apply to event sequences"
            self._refuse("HDL-222", f"{written} does not apply to event sequences", hint, node)
        given = without_parentheses(given)
        self.event, argument, found = None, None, None
        is_event = type(given) is exp.Column and not given.args.get("table") and written == "count"
        if is_event and isinstance(given.this, exp.Identifier) and given.name not in self.schema:
            self.event = self._event(given.name, given)
        elif is_event and given.name in self.pattern.events:
            self.event = given.name
        else:
            self.of_event = True
            try:
                argument, found = self._value(given)
            finally:
                self.of_event = False
            if isinstance(argument, Literal) and written == "count" and argument.value is not None:
                argument, found = None, None
            elif argument is not None and self.event is None:
                example = f"{written}({written_name(self.pattern.events[0])}.x)"
                message = f"{written} over sequences needs an attribute of an event"
                self._refuse("HDL-222", message, f"write {example}", given)
        try:
            type_ = SEQUENCES[written](found)
        except TypeError as reason:
            raise Refused("HDL-203", str(reason), "", self._at(node)) from None
        read = [*([self.event] if self.event else []), *dict.fromkeys(columns_of(argument))]
        name = alias or re.sub(r"\W", "_", "_".join([written, *read]))[:64]
        return Output(name, written, argument, found, type_, event=self.event)

    def _event(self, name: str, node: exp.Expr) -> str:
        """An event type by its name in an aggregate; one that the pattern does not have is in no sequence."""
        assert self.pattern is not None
        if name not in self.pattern.events:
            hint = did_you_mean(name, self.pattern.events, "event types")
            message = f"{shown_text(name)} is no event type of {self.pattern}: no sequence has one"
            self.warnings.append(Refused("HDL-223", message, hint, self._at(node)))
        return name

    def _value(self, node: exp.Expr) -> tuple[Expression | None, Type | None]:
        """An argument of an aggregate with its type; neither for a star."""
        if type(node) is exp.Star:
            return None, None
        value, found = self._expression(node, 0)
        return _settled(value, BOOLEAN), BOOLEAN if found == NULL else found

    def _permitted(self, given: Mapping[str, exp.Expr], form: Form, written: str) -> Decimal | None:
        """The error that an aggregate may have: its own argument, else the query's, else that of its form."""
        if "error" in given:
            return self._constant(given["error"], "HDL-216", f"the error of {written}", check_error)
        if "accuracy" in given:
            accuracy = self._constant(given["accuracy"], "HDL-216", f"the accuracy of {written}", check_accuracy)
            return shortest_decimal((1 / accuracy).quantize(Decimal("1e-9"), ROUND_FLOOR))
        if self.error is not None:
            self.error_taken = True
            return self.error
        return form.error

    def _permit(self, token: Token | None) -> None:
        """Read the number of WITH (error = …)."""
        try:
            if token is not None:
                self.error = _checked(number(token.text), "HDL-216", check_error, token.start)
        except HeddleError as error:
            self.problems.append(Refused.of(error, token.start if token else 0))
        except Refused as refused:
            self.problems.append(refused)

    def _constant(self, node: exp.Expr, code: str, what: str, check: Callable[[Decimal], None]) -> Decimal:
        if not is_constant(node):
            self._refuse(code, f"{what} is a number that stands in the query", RANGES[code], node)
        value, found = self._expression(node, 0)
        if not isinstance(value, Literal) or not found.is_numeric:
            self._refuse(code, f"{what} is a number, not {found}", RANGES[code], node)
        return _checked(value, code, check, self._at(node))

    # ------------------------------------------------------------------------------------------- having
    def _having(
        self, tree: exp.Select, outputs: Sequence[Output], groups: Mapping[str, str], start: int
    ) -> tuple[Condition, ...]:
        """The thresholds of HAVING, which starts at an offset; ``groups``: the group columns, by column and alias."""
        having = tree.args.get("having")
        pending, found, computed = [having.this] if having else [], list[Condition](), list(outputs)
        while pending:
            node = without_parentheses(pending.pop())
            if type(node) is exp.And:
                pending += [node.expression, node.this]
                continue
            try:
                found.append(self._condition(node, outputs, computed, groups))
            except Refused as refused:
                if refused not in self.problems:
                    refused.at = refused.at or start
                    self.problems.append(refused)
        if len(computed) > max(len(outputs), self.limits.outputs):
            message = f"{len(computed)} aggregates in SELECT and HAVING; the limit is {self.limits.outputs}"
            self.problems.append(Refused("HDL-310", message, "split the query", start))
        return tuple(dict.fromkeys(found))

    def _condition(
        self, node: exp.Expr, outputs: Sequence[Output], computed: list[Output], groups: Mapping[str, str]
    ) -> Condition:
        """One threshold. ``computed``: the outputs and what earlier thresholds compare; gets what this one adds."""
        comparison = BINARY.get(type(node), "")
        if comparison not in FLIPPED:
            what, hint = NOT_IN_HAVING.get(type(node), ("other conditions", "sum(x) > 10, any(y) = TRUE"))
            self._refuse("HDL-217", f"HAVING takes comparisons joined by AND, not {what}", hint, node)
        subject, constant = without_parentheses(node.this), without_parentheses(node.expression)
        if is_constant(subject):
            subject, constant, comparison = constant, subject, FLIPPED[comparison]
        if is_constant(subject) or not is_constant(constant):
            hint = "an aggregate or the name of an output on one side, a number, text or moment on the other"
            self._refuse("HDL-217", "HAVING compares an aggregate with a constant", hint, node)
        if type(subject) is exp.Column:
            output = self._named(subject, outputs, groups)
        elif self._function(subject) in FORMS:
            output = output_among(self._output(subject, ""), computed)
        else:
            hint = "inside an aggregate arithmetic is allowed"
            self._refuse("HDL-217", "HAVING compares single aggregates, not other expressions", hint, node)
        value, found = self._expression(constant, 0)
        if found == NULL:
            self._refuse("HDL-217", "a comparison with NULL is never true", "compare with a value", node)
        call, _ = self._call(comparison, [(Column(output.name), output.type), (value, found)], node)
        assert isinstance(call, Call) and isinstance(call.arguments[1], Literal)
        return Condition(output, comparison, call.arguments[1])

    def _named(self, node: exp.Expr, outputs: Sequence[Output], groups: Mapping[str, str]) -> Output:
        """The output that a name in HAVING refers to."""
        names = {output.name: output for output in outputs}
        column = None
        if not node.args.get("table"):
            if node.name.lower() in self.refused:
                raise self.refused[node.name.lower()]
            name = resolve_name(node.name, names)
            if name is not None:
                return names[name]
            name = resolve_name(node.name, groups)
            column = groups[name] if name else resolve_name(node.name, self.schema)
            if column is None:
                hint = did_you_mean(node.name, [*names, *self.schema], "outputs and columns")
                self._refuse("HDL-202", f"there is no output or column {shown_text(node.name)}", hint, node)
        column = column or self._column(node)[0]
        if column in groups:
            hint = "a condition on it belongs in WHERE"
            self._refuse("HDL-217", f"HAVING is for aggregates; {column} is a group column", hint, node)
        hint = f"filter events in WHERE, or aggregate it: max({column})"
        self._refuse("HDL-217", f"HAVING is for aggregates; {column} has many values in a window", hint, node)

    # -------------------------------------------------------------------------------------- expressions
    def _function(self, node: exp.Expr) -> str | None:
        """The function's name as written: sqlglot maps many names to one node, the language does not."""
        if not isinstance(node, exp.Func) or "start" not in node.meta:
            return None
        return self.text[node.meta["start"] : node.meta["end"] + 1].lower()

    def _arguments(self, node: exp.Expr) -> list[exp.Expr]:
        self._only(node, "this", "expressions")
        return node.expressions

    def _unknown(self, node: exp.Expr) -> NoReturn:
        """Say why a node is not of the language."""
        if type(node) in NAMES_OF_SYNTAX:
            what, hint = NAMES_OF_SYNTAX[type(node)]
            self._refuse("HDL-103", f"{what} is not allowed here", hint, node)
        name = self._function(node)
        if name is None:
            self._refuse("HDL-103", f"{type(node).__name__.lower()} is not allowed here", "", node)
        hint = did_you_mean(name, [*FORMS, *CALLABLE], "functions")
        if name in MEANT:
            hint = f"did you mean {MEANT[name]}?"
        self._refuse("HDL-104", f"there is no function {shown_text(name)}", hint, node)

    def _column(self, node: exp.Expr) -> tuple[str, Type]:
        assert self.stream is not None
        for name, value in node.args.items():
            if value and name not in ("this", "table"):
                self._refuse("HDL-103", "nested names are not allowed", "columns are plain names", node)
        if not isinstance(node.this, exp.Identifier):
            self._unknown(node.this)
        table = node.args.get("table")
        if self.of_event:
            assert self.pattern is not None
            if table is None:
                example = f"{written_name(self.pattern.events[0])}.{node.this.name}"
                message = f"{shown_text(node.this.name)}: of which event of the sequence?"
                self._refuse("HDL-222", message, f"write {example}", node)
            if self.event not in (None, table.name):
                message = f"an aggregate reads one event of a sequence, not {self.event} and {table.name}"
                self._refuse("HDL-222", message, "aggregate them one by one", node)
            self.event = self.event or self._event(table.name, table)
        elif table is not None and resolve_name(table.name, [self.stream.name]) is None:
            self._refuse(
                "HDL-202",
                f"{shown_text(table.name)} is not the stream of this query",
                f"write {self.stream.name}.{node.this.name}",
                node,
            )
        found = resolve_name(node.this.name, self.schema)
        if found is None:
            message = f"stream {self.stream.name} has no column {shown_text(node.this.name)}"
            hint = did_you_mean(node.this.name, self.schema, "columns")
            if node.this.name.lower() in ("window_start", "window_end"):
                hint = "every answer has it: leave it out"
            self._refuse("HDL-202", message, hint, node)
        return str(found), self.schema[str(found)]

    def _expression(self, node: exp.Expr, depth: int) -> tuple[Expression, Type]:
        """The value of a node and its type; every kind of node that the language has is named here."""
        # chains like a + b + c lean to the left: no parenthesis, but as deep
        if depth > 2 * self.limits.depth:
            self._refuse("HDL-303", "the expression is too long", "shorten the chain of operators", node)
        kind = type(node)
        if kind is exp.Paren:
            return self._expression(self._only(node, "this"), depth + 1)
        if kind is exp.Column:
            name, found = self._column(node)
            return Column(name), found
        if kind in (exp.Literal, exp.Boolean, exp.Null, exp.TryCast, exp.Cast):
            literal = self._literal(node)
            return literal, literal.type
        if kind in (exp.And, exp.Or):
            operands = []
            while type(node) is kind:
                operands.append(node.expression)
                node = node.this
            read = [self._expression(operand, depth + 1) for operand in (node, *reversed(operands))]
            return self._call("and" if kind is exp.And else "or", read, node)
        if kind is exp.Not:
            return self._call("not", [self._expression(self._only(node, "this"), depth + 1)], node)
        if kind is exp.Neg:
            value, found = self._expression(self._only(node, "this"), depth + 1)
            if isinstance(value, Literal) and found.is_numeric:
                return (literal := negated(value)), literal.type
            return self._call("neg", [(value, found)], node)
        if kind is exp.Is and type(node.expression) is exp.Null:
            value, found = self._expression(node.this, depth + 1)
            return self._call("is_null", [(value, found)], node)
        if kind is exp.Is:
            self._refuse("HDL-103", "IS takes NULL or NOT NULL", "write the condition itself", node)
        if kind in (exp.In, exp.Like, exp.Between):
            return self._predicate(node, depth)
        if kind in BINARY:
            self._only(node, "this", "expression", "typed", "safe")
            sides = [self._expression(side, depth + 1) for side in (node.this, node.expression)]
            return self._call(BINARY[kind], sides, node)
        function = self._function(node)
        if function in CALLABLE:
            arguments = [self._expression(argument, depth + 1) for argument in self._arguments(node)]
            return self._call(function, arguments, node)
        if function in FORMS:
            hint = "aggregates belong in SELECT and HAVING"
            self._refuse("HDL-105", f"the aggregate {function} cannot stand here", hint, node)
        self._unknown(node)

    def _predicate(self, node: exp.Expr, depth: int) -> tuple[Expression, Type]:
        """IN, LIKE and BETWEEN, negated or not."""
        self._only(node, "this", "expression", "expressions", "low", "high", "negate")
        names = {exp.In: "expressions", exp.Like: "expression"}
        subject = self._expression(node.this, depth + 1)
        if type(node) is exp.Between:
            low, high = (self._expression(node.args[side], depth + 1) for side in ("low", "high"))
            found = self._call(
                "and", [self._call(">=", [subject, low], node), self._call("<=", [subject, high], node)], node
            )
        else:
            items = node.args.get(names[type(node)]) or []
            items = items if isinstance(items, list) else [items]
            read = [subject, *(self._expression(item, depth + 1) for item in items)]
            found = self._call("in" if type(node) is exp.In else "like", read, node)
        return self._call("not", [found], node) if node.args.get("negate") else found

    def _only(self, node: exp.Expr, *names: str) -> exp.Expr:
        """Refuse a node with an argument that is not expected; its first expected argument."""
        for name, value in node.args.items():
            if value and name not in names:
                self._refuse("HDL-103", f"{name} is not allowed here", "", node)
        return node.args[names[0]]

    def _literal(self, node: exp.Expr) -> Literal:
        try:
            if type(node) is exp.Null:
                return Literal(None, NULL)
            if type(node) is exp.Boolean:
                return Literal(bool(node.this), BOOLEAN)
            if type(node) is exp.Literal:
                return Literal(node.this, STRING) if node.is_string else number(node.this)
            # `date '…'`, `timestamp '…'` and suffixed numbers are left: real casts were refused as tokens
            inner, target = node.this, node.args["to"].this
            if type(inner) is exp.Literal and inner.is_string and target in MOMENTS:
                return moment(inner.this, MOMENTS[target])
            if type(inner) is exp.Literal and target in SUFFIXES:
                found = number(inner.this)
                if target == exp.DType.DOUBLE:
                    return Literal(float(found.value), DOUBLE)
                return found
        except HeddleError as error:
            raise Refused.of(error, self._at(node)) from None
        self._refuse("HDL-103", "casts are not allowed", "the stream's schema fixes the types", node)

    def _call(self, name: str, arguments: Sequence[tuple[Expression, Type]], node: exp.Expr) -> tuple[Expression, Type]:
        """A call with its type, after giving NULLs and date strings the type of what stands beside them."""
        known = [type_ for _, type_ in arguments if type_ != NULL]
        beside = known[0] if known else DOUBLE if name in ("+", "-", "*", "/", "neg", "abs") else BOOLEAN
        if name in ("like", "lower", "upper"):
            beside = STRING
        values, types = [], []
        try:
            moments = [type_ for type_ in known if type_.name in ("date", "timestamp")]
            for value, type_ in arguments:
                if type_ == NULL:
                    value, type_ = _settled(value, beside), beside
                elif type_ == STRING and isinstance(value, Literal) and moments:
                    value = moment(value.value, moments[0])
                    type_ = value.type
                values.append(value)
                types.append(type_)
            call = Call(name, tuple(values))
            return call, call_type(name, types, call.arguments)
        except HeddleError as error:
            raise Refused.of(error, self._at(node)) from None


def _checked(literal: Literal, code: str, check: Callable[[Decimal], None], at: int) -> Decimal:
    """A number as it was written, unless it is out of range."""
    value = Decimal(str(literal.value))
    try:
        check(value)
    except ValueError as error:
        raise Refused(code, str(error), RANGES[code], at) from None
    return shortest_decimal(value)


def _settled(value: Expression, type: Type) -> Expression:
    """The value, with a NULL of no type given one."""
    return Literal(None, type) if isinstance(value, Literal) and value.type == NULL else value
