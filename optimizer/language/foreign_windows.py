"""Windows as Spark and Flink write them, put into the words of the WINDOW clause before anything else is read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from optimizer.language.nodes import refuse
from optimizer.language.refusals import QUOTED, TIME_WINDOW, Findings, Refused, shown_text
from optimizer.language.scope import Scope
from optimizer.workload.instants import is_unit

_FORMS = {
    "window": "window(<time>, '1 hour'[, '5 minutes'])",
    "tumble": "TUMBLE(TABLE <stream>, DESCRIPTOR(<time>), INTERVAL '10' MINUTES)",
    "hop": "HOP(TABLE <stream>, DESCRIPTOR(<time>), <slide>, <size>)",
    "cumulate": "CUMULATE(TABLE <stream>, DESCRIPTOR(<time>), <step>, <size>)",
}
"""The functions that are windows, as they are to be written."""

_SESSIONS = ("session", "session_window")

_BOUNDS = {f"{function}_{bound}": function for function in ("tumble", "hop") for bound in ("start", "end")}
"""Flink's functions of a window's bounds, with the function of the window."""

_LENGTHS = ("RANGE", "SLIDE", "MOST", "ENDING", "CUMULATE", "STEP", "GAP", "TO")
"""The words of the WINDOW clause that a length follows."""

_COLUMNS = ("window", "window_start", "window_end")
"""Names that a query may select and group by like columns: every answer has them."""

_OURS = "\x00"
"""Begins the name of a window's column that stood for a function: no name that is written has this character."""

_CLAUSES = {
    *(TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING),
    *(TokenType.ORDER_BY, TokenType.LIMIT, TokenType.WITH),
}


@dataclass(frozen=True)
class _Call:
    """A function that is a window: its tokens are [begin, behind). ``clause``: the clause it is in; "" inside
    others.
    """

    tokens: Sequence[Token]
    begin: int
    behind: int
    clause: str

    @property
    def name(self) -> str:
        return self.tokens[self.begin].text.lower()

    @property
    def at(self) -> int:
        return self.tokens[self.begin].start

    @property
    def written(self) -> tuple[str, ...]:
        """Its arguments, to be compared with those of another."""
        return tuple(token.text.lower() for token in self.tokens[self.begin + 1 : self.behind])

    @property
    def arguments(self) -> list[list[Token]]:
        """Its arguments, each as tokens."""
        return split_arguments(self.tokens[self.begin + 2 : self.behind - 1])


def split_arguments(tokens: Sequence[Token]) -> list[list[Token]]:
    """The arguments between commas that no parenthesis surrounds."""
    arguments, depth = [list[Token]()], 0
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if token.token_type == TokenType.COMMA and not depth:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return arguments


def native_windows(tokens: Sequence[Token]) -> list[Token]:
    """The words of a statement with windows that are functions as WINDOW clauses, and intervals as quoted lengths.

    Each word keeps its place in the text. Raises Refused (HDL-121) for windows that the language does not have.
    """
    tokens = _with_quoted_lengths(tokens)
    calls = list(_calls(tokens))
    grouped = [call for call in calls if call.clause == "GROUP_BY"]
    replaced = dict[int, tuple[int, list[Token]]]()
    for call in calls:
        if call.name in _SESSIONS:
            raise _session(call)
        if call.clause == "FROM":
            begin, behind, source, clause = _table_function(call)
            replaced[begin] = behind, [source, *clause]
        elif call.clause == "GROUP_BY" and call.name in _FORMS:
            replaced[call.begin] = call.behind, [_column(call, "window")]
        elif call.clause == "SELECT":
            function = _BOUNDS.get(call.name, call.name)
            if not any(function == other.name and call.written == other.written for other in grouped):
                message = f"{call.name}(…) is selected, but the query does not group by this window"
                hint = "write the same window in GROUP BY; answers have window_start and window_end anyway"
                raise Refused("HDL-121", message, hint, call.at)
            bound = call.name.rpartition("_")[2] if call.name in _BOUNDS else ""
            replaced[call.begin] = call.behind, [_column(call, f"window_{bound}" if bound else "window")]
        else:
            message = f"a window stands in GROUP BY or in FROM: {call.name}(…) is not allowed here"
            raise Refused("HDL-121", message, f"write behind the stream: {TIME_WINDOW}", call.at)
    return list(_put_in(tokens, replaced, [token for call in grouped for token in _clause(call, call.arguments)]))


def _put_in(
    tokens: Sequence[Token], replaced: dict[int, tuple[int, list[Token]]], clauses: list[Token]
) -> Iterator[Token]:
    """The tokens with some replaced, by their index, and clauses before GROUP BY."""
    index = depth = 0
    while index < len(tokens):
        token = tokens[index]
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if index in replaced:
            index, instead = replaced[index]
            yield from instead
            continue
        if token.token_type == TokenType.GROUP_BY and not depth:
            yield from clauses
            clauses = []
        yield token
        index += 1


def _calls(tokens: Sequence[Token]) -> Iterator[_Call]:
    """The functions of windows, outermost ones alone."""
    depth, clause, behind, inside = 0, "", 0, 0
    for index, (token, after) in enumerate(itertools.pairwise(tokens)):
        kind = token.token_type
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(kind, 0)
        called = after.token_type == TokenType.L_PAREN and kind not in QUOTED
        if not depth and (kind in _CLAUSES or (kind == TokenType.WINDOW and not called)):
            clause, inside = kind.name, index
        if index >= behind and called and token.text.lower() in (*_FORMS, *_SESSIONS, *_BOUNDS):
            behind = index + 2 + _closing_parenthesis(tokens[index + 1 :])
            is_table = clause == "FROM" and _begin_of_table(tokens, index) == inside + 1
            yield _Call(tokens, index, behind, clause if is_table or (not depth and clause != "FROM") else "")


def _closing_parenthesis(tokens: Sequence[Token]) -> int:
    """Index of the parenthesis that closes the first token."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0:
            return at
    return len(tokens) - 1


def _begin_of_table(tokens: Sequence[Token], index: int) -> int:
    """Index at which the table of a function begins: at TABLE ( if that precedes it."""
    before = [token.text.upper() for token in tokens[max(index - 2, 0) : index]]
    return index - 2 if before == ["TABLE", "("] else index


def _table_function(call: _Call) -> tuple[int, int, Token, list[Token]]:
    """A table function in FROM: its first token, that behind it and its alias, the stream, and the WINDOW clause."""
    tokens, begin, behind = call.tokens, _begin_of_table(call.tokens, call.begin), call.behind
    behind += begin < call.begin
    table, *arguments = call.arguments
    if len(table) != 2 or table[0].text.upper() != "TABLE" or len(arguments) < 2:
        raise _malformed(call)
    if [token.text.upper() for token in (*arguments[0][:2], *arguments[0][-1:])] != ["DESCRIPTOR", "(", ")"]:
        raise _malformed(call)
    clause = _clause(call, [arguments[0][2:-1], *arguments[1:]])
    if {"window_start", "window_end"} - {token.text.lower() for token in tokens[_group_by(tokens, behind) :]}:
        message = "the query does not group by the window that it reads"
        raise Refused("HDL-121", message, "write GROUP BY window_start, window_end and what else you group by", call.at)
    if behind < len(tokens) and tokens[behind].text.upper() == "AS":
        behind += 1
    if behind < len(tokens) and tokens[behind].token_type in (TokenType.VAR, TokenType.IDENTIFIER):
        behind += tokens[behind].text.upper() != "PATTERN"
    return begin, behind, table[1], clause


def _group_by(tokens: Sequence[Token], begin: int) -> int:
    places = (at for at in range(begin, len(tokens)) if tokens[at].token_type == TokenType.GROUP_BY)
    return next(places, len(tokens))


def _clause(call: _Call, arguments: Sequence[list[Token]]) -> list[Token]:
    """The WINDOW clause of a window's time column and lengths, in the order of its function."""
    time, *length_tokens = arguments
    lengths = [_length(call, tokens) for tokens in length_tokens]
    # Flink says the slide or the step first
    least, size = (2, 1) if call.name in ("hop", "cumulate") else (1, 0)
    slides = {"window": 1, "tumble": 0, "hop": 0, "cumulate": 0}[call.name]
    most = {"window": 3, "tumble": 2, "hop": 3, "cumulate": 3}[call.name]
    if len(time) == 3 and time[1].token_type == TokenType.DOT:
        time = time[2:]
    if len(time) != 1 or not least <= len(lengths) <= most or time[0].token_type == TokenType.STRING:
        raise _malformed(call)
    slide = lengths[slides] if slides < len(lengths) else lengths[size]
    words = ("CUMULATE", "STEP") if call.name == "cumulate" else ("RANGE", "SLIDE")
    clause = [_word("WINDOW", call, TokenType.WINDOW), _word(words[0], call), lengths[size]]
    clause += [_word(words[1], call), slide]
    if len(lengths) == most:
        clause += [_word("STARTING", call), _word("AT", call), lengths[-1]]
    return [*clause, _word("ON", call), time[0]]


def _length(call: _Call, tokens: list[Token]) -> Token:
    """An argument that is a length, as a quoted one."""
    if tokens and tokens[0].token_type == TokenType.INTERVAL:
        length, behind = _interval(tokens, 0)
        tokens = [length, *tokens[behind:]]
    if len(tokens) != 1 or tokens[0].token_type != TokenType.STRING:
        raise _malformed(call)
    return tokens[0]


def _with_quoted_lengths(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with the intervals of a WINDOW clause as quoted lengths."""
    quoted, index = list[Token](), 0
    while index < len(tokens):
        token = tokens[index]
        if token.token_type == TokenType.INTERVAL and index and tokens[index - 1].text.upper() in _LENGTHS:
            token, index = _interval(tokens, index)
        else:
            index += 1
        quoted.append(token)
    return quoted


def _interval(tokens: Sequence[Token], begin: int) -> tuple[Token, int]:
    """The INTERVAL that begins at a token as a quoted length, and the index behind it."""
    first, index, terms = tokens[begin], begin + 1, list[str]()
    while index < len(tokens) and tokens[index].token_type in (TokenType.STRING, TokenType.NUMBER):
        terms.append(tokens[index].text)
        index += 1
        if index < len(tokens) and tokens[index].token_type not in QUOTED and is_unit(tokens[index].text):
            terms.append(tokens[index].text)
            index += 1
    if not terms:
        hint = "write INTERVAL '1' HOUR, INTERVAL 5 MINUTES, or a quoted length: '1 hour'"
        raise Refused("HDL-204", "INTERVAL is followed by a number and a unit", hint, first.start)
    length = Token(TokenType.STRING, " ".join(terms), first.line, first.col, first.start, tokens[index - 1].end)
    return length, index


def _word(text: str, call: _Call, kind: TokenType = TokenType.VAR) -> Token:
    at = call.tokens[call.begin]
    return Token(kind, text, at.line, at.col, at.start, at.end)


def _column(call: _Call, name: str) -> Token:
    return _word(_OURS + name, call)


def _malformed(call: _Call) -> Refused:
    form = _FORMS[_BOUNDS.get(call.name, call.name)]
    hint = f"write {form}, or behind the stream: {TIME_WINDOW}"
    return Refused("HDL-121", f"this {call.name}(…) cannot be read", hint, call.at)


def _session(call: _Call) -> Refused:
    """A session as a function says only its gap."""
    gap, last = "30 minutes", call.arguments[-1]
    identifiers = [token.text for argument in call.arguments[:-1] for token in argument if token.text.isidentifier()]
    time = identifiers[-1] if identifiers else "<time>"
    if last and last[0].token_type == TokenType.INTERVAL:
        gap = _interval(last, 0)[0].text
    elif len(last) == 1 and last[0].token_type == TokenType.STRING:
        gap = last[0].text
    message = f"{call.name}(…) does not say how long a session may last: a run reads so far back"
    hint = f"write behind the stream: WINDOW SESSION GAP '{gap[:64]}' UP TO '1 day' ON {time[:64]}"
    return Refused("HDL-121", message, hint, call.at)


# ---------------------------------------------------------------------------------- the columns of a window
def drop_window_columns(tree: exp.Select, scope: Scope, findings: Findings) -> None:
    """Take a window and its bounds out of what a query selects and groups by: every answer has them.

    Positions of GROUP BY are those of what is left. One that is given another name is refused (HDL-208).
    """
    names = [_window_column(item.this if type(item) is exp.Alias else item, scope) for item in tree.expressions]
    for item, name in zip(tree.expressions, names, strict=True):
        if name is not None and type(item) is exp.Alias and item.alias.lower() != name:
            with findings.collecting():
                message = f"answers have it as {name}, not as {shown_text(item.alias)}"
                refuse("HDL-208", message, "leave AS out, and rename it where you read answers", item)
    tree.set("expressions", [item for item, name in zip(tree.expressions, names, strict=True) if name is None])
    group = tree.args.get("group")
    if group is None:
        return
    before = list(itertools.accumulate((name is not None for name in names), initial=0))
    expressions = []
    for node in group.expressions:
        position = int(node.this) if isinstance(node, exp.Literal) and node.is_int and len(node.this) < 5 else 0
        if 0 < position <= len(names):
            if names[position - 1] is not None:
                continue
            node.set("this", str(position - before[position - 1]))
        if _window_column(node, scope) is None:
            expressions.append(node)
    group.set("expressions", expressions)
    if not expressions and not any(value for name, value in group.args.items() if name != "expressions"):
        tree.set("group", None)


def _window_column(node: exp.Expr, scope: Scope) -> str | None:
    """Column of a window that a node names: ``window``, ``window_start`` or ``window_end``; None for other nodes."""
    if type(node) is exp.Dot and isinstance(node.expression, exp.Identifier):
        node = exp.Column(this=node.expression, table=node.this.this if type(node.this) is exp.Column else None)
    if type(node) is not exp.Column or not isinstance(node.this, exp.Identifier):
        return None
    name, table = node.name.lower(), node.table.lower()
    if table in ("window", _OURS + "window") and scope.stream.name.lower() != table and name in ("start", "end"):
        return f"window_{name}"
    if not table and name.startswith(_OURS):
        return name.removeprefix(_OURS)
    return name if not table and name in _COLUMNS and not scope.has(node.name) else None
