"""Attacks by query text: every one is refused at once, with a code and a place, and nothing is read or told."""

from __future__ import annotations

import json

import pytest
from sqlglot.dialects.spark import Spark

from tests.hostile import attacks
from tests.hostile.guard import WINDOW, Canary, TooLong, bounded, filled, parsed

QUERIES = attacks.queries()


def test_there_are_enough_of_them_and_none_twice() -> None:
    assert len(set(QUERIES)) == len(QUERIES) >= 250


@pytest.mark.parametrize("category", sorted({category for category, _ in QUERIES}))
def test_attacks_are_refused(category: str, canary: Canary) -> None:
    for text in (text for text_category, text in QUERIES if text_category == category):
        result = parsed(filled(text, canary), canary)
        assert not result.queries and result.errors, text[:200]
        assert len(result.diagnostics) <= 64 or text.count(";") > 64


def test_legal_texts_are_read_as_they_are(canary: Canary) -> None:
    for text in attacks.LEGAL:
        result = parsed(filled(text, canary), canary)
        assert len(result.queries) == 1 and not result.diagnostics, text


PATTERNS = (
    "{(×20}1{)×20}",
    "{K(×20}1{)×20}",
    "{(K ×20}1{)×20}",
    "{K ×200}1",
    "{K<×60}1{>×60}",
    "{K qty (×20}1{)×20}",
    "{qty K (×20}1{)×20}",
    "{K(qty, ×20}1{)×20}",
)


THIRDS = [
    pytest.param(0, marks=pytest.mark.longer),
    pytest.param(1, marks=pytest.mark.slow),
    pytest.param(2, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("third", THIRDS)
def test_no_word_of_sqlglot_doubles_its_work_at_every_level(canary: Canary, third: int) -> None:
    spark = (Spark.Tokenizer.KEYWORDS, Spark.Tokenizer.SINGLE_TOKENS, Spark.Parser.FUNCTIONS)
    words = {word for known in spark for word in known if word.isascii()} | set(Spark.Parser.FUNCTION_PARSERS)
    assert len(words) > 900
    for word in sorted(words)[third::3]:
        for pattern in PATTERNS:
            text = attacks.expanded(pattern).replace("K", word)
            parsed(f"SELECT count(*) FROM trades {WINDOW} WHERE {text}", canary)


def test_the_watch_watches(canary: Canary) -> None:
    canary.check("nothing")
    with pytest.raises(AssertionError):
        canary.check(json.dumps({"row": canary.secret}))
    with pytest.raises(TooLong), bounded("a loop", 0.05):
        while True:
            pass
    canary.path.read_text()
    with pytest.raises(AssertionError):
        canary.check("nothing")
