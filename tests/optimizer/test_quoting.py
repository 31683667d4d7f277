"""Double quotes hold text; where that text is also the name of a column, the query is refused instead of guessed."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sqlglot.dialects.spark import Spark
from sqlglot.tokens import Token, TokenType

from optimizer.language.parser import parse
from optimizer.workload.values import ACQ
from tests.hostile.guard import SCHEMA, STREAMS, WINDOW
from tests.hostile.valid_queries import query

CODE = "HDL-243"

COLUMNS = {*SCHEMA, "place", "counts", "by_id", "legs"}


def without_comments(text: str) -> str:
    """A generated query without its ``--`` lines and comments, so that tokens have the offsets of the text."""
    return re.sub(r"/\*.*?\*/", " ", "\n".join(line for line in text.splitlines() if not line.startswith("--")))


def words(text: str) -> list[Token]:
    return Spark().tokenize(text)


def is_column(tokens: list[Token], number: int) -> bool:
    """Whether a word names a column, and not a function, a field, an output, a unit or the keyword of a literal."""
    token, before = tokens[number], tokens[number - 1]
    after = tokens[number + 1] if number + 1 < len(tokens) else None
    # brackets behind a text are refused before the stream is known
    others = (TokenType.L_PAREN, TokenType.STRING, TokenType.L_BRACKET)
    is_literal = after is not None and after.token_type in others
    is_qualified = before.token_type in (TokenType.ALIAS, TokenType.DOT, TokenType.DCOLON)
    is_word = token.token_type not in (TokenType.STRING, TokenType.NUMBER)
    # INTERVAL '1' DAY
    is_word = is_word and before.token_type not in (TokenType.STRING, TokenType.NUMBER)
    return is_word and token.text.lower() in COLUMNS and not is_literal and not is_qualified


def replaced(text: str, token: Token, by: str) -> str:
    return text[: token.start] + by + text[token.end + 1 :]


def meaning(text: str) -> ACQ:
    (query,) = parse(text, STREAMS).queries
    return replace(query, name="q", text="")


@given(seed=st.integers(0, 10_000), choice=st.randoms(use_true_random=False))
def test_quoted_column_is_refused(seed: int, choice: random.Random) -> None:
    text = without_comments(query(seed))
    tokens = words(text)
    places = [number for number in range(1, len(tokens)) if is_column(tokens, number)]
    assume(places)
    token = tokens[choice.choice(places)]
    written = replaced(text, token, f'"{choice.choice((str.lower, str.upper))(token.text)}"')
    parsed = parse(written, STREAMS)
    assert not parsed.queries
    # clauses of ours are cut before the stream is known: they name the place and the form
    assert {diagnostic.code for diagnostic in parsed.errors} in ({CODE}, {"HDL-107"}, {"HDL-121"}), (
        written,
        parsed.diagnostics,
    )
    hints = {CODE: "for the name", "HDL-107": "without quotes", "HDL-121": "write "}
    assert all(hints[diagnostic.code] in diagnostic.hint for diagnostic in parsed.errors), parsed.errors


@given(seed=st.integers(0, 10_000))
def test_quotes_of_other_texts_change_nothing(seed: int) -> None:
    text = without_comments(query(seed))
    expected = meaning(text)
    for token in reversed(words(text)):
        written = text[token.start : token.end + 1]
        is_plain = token.token_type == TokenType.STRING and written[0] == "'" and not set(written) & set('"\\')
        # INTERVAL "5" MINUTE in GROUP BY is compared with the window as it is written
        if is_plain and not written[1:-1].isdigit() and written[1:-1].lower() not in COLUMNS:
            text = replaced(text, token, f'"{written[1:-1]}"')
    assert meaning(text) == expected


def test_every_quoted_name_is_reported_at_its_place() -> None:
    text = f'SELECT "symbol", count(DISTINCT "VOLUME") AS n FROM trades {WINDOW} WHERE "qty" = 3 GROUP BY "symbol"'
    parsed = parse(text, STREAMS)
    assert [(diagnostic.code, diagnostic.line, diagnostic.column) for diagnostic in parsed.diagnostics] == [
        (CODE, 1, text.index(quoted) + 1) for quoted in ('"symbol", ', '"VOLUME"', '"qty"', '"symbol"')[:3]
    ] + [(CODE, 1, text.rindex('"symbol"') + 1)]
    assert parsed.errors[1].hint == "write volume for the name, or 'VOLUME' for the text"


@pytest.mark.parametrize(
    "text",
    [
        f'SELECT sum(price) AS "price" FROM trades {WINDOW}',
        f'SELECT sum(counts["symbol"]) AS n FROM trades {WINDOW}',
        'SELECT count(*) AS n FROM trades PATTERN SEQ("price", "qty") ON symbol WINDOW RANGE "1 hour" ON ts',
        f'SELECT count(*) AS n FROM trades {WINDOW} WHERE symbol = "n"',
    ],
)
def test_text_where_no_column_can_stand(text: str) -> None:
    assert not parse(text, STREAMS).diagnostics


@pytest.mark.parametrize("clause", ['HAVING "n" > 3', 'GROUP BY symbol ORDER BY "N" DESC LIMIT 3'])
def test_quoted_output_is_refused_where_outputs_count(clause: str) -> None:
    parsed = parse(f"SELECT count(*) AS n FROM trades {WINDOW} {clause}", STREAMS)
    assert [diagnostic.code for diagnostic in parsed.diagnostics] == [CODE]
    assert parsed.errors[0].hint.startswith("write n for the name")


def test_registered_query_keeps_its_meaning_with_a_warning() -> None:
    text = f'-- name: households\nSELECT count(DISTINCT "volume") AS n FROM trades {WINDOW}'
    source = text.partition("\n")[2]
    parsed = parse(text, STREAMS, registered_text=lambda name: source if name == "households" else "")
    assert [(diagnostic.code, diagnostic.severity) for diagnostic in parsed.diagnostics] == [(CODE, "warning")]
    assert [query.name for query in parsed.queries] == ["households"]
    # one more character is another query, which nobody registered
    assert parse(text + " ", STREAMS, registered_text=lambda name: source + ";").errors
