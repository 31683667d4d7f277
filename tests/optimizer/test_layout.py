"""Workload files are laid out in one way, and mean what they meant."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optimizer.language.layout import WIDTH, lay_out
from optimizer.language.parser import parse
from optimizer.workload.values import ACQ, LONG, STRING, TIMESTAMP, Source, Stream
from tests.hostile.attacks import LEGAL
from tests.hostile.guard import STREAMS
from tests.hostile.mutations import mutated
from tests.hostile.valid_queries import query

ROOT = Path(__file__).resolve().parents[2]
FILES = [*ROOT.glob("examples/*/*.sql"), *ROOT.glob("dags/workload/*.sql")]

BLANKS = (" ", "  ", "\n", "\n\n", "\t", " \n ", " /* so */ ", " /* it\n is */\n", " -- so\n", "\n-- so it is\n  ")


def meaning(text: str) -> list[ACQ]:
    """The queries of a file, but for the text that they are written in."""
    return [replace(query, text="") for query in parse(text, STREAMS, "q.sql").queries]


def scattered(text: str, seed: int) -> str:
    """A text with other white space and comments between its words, outside quotes and comments."""
    choose = random.Random(seed)
    parts = re.split(r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*\n|/\*.*?\*/)", text, flags=re.DOTALL)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"(?<=\S) (?=\S)", lambda _: choose.choice(BLANKS), parts[at])
    return "".join(parts)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_query_means_what_it_meant(seed: int, other: int) -> None:
    text = scattered(query(seed), other)
    assert meaning(text), text
    laid_out = lay_out(text)
    assert meaning(laid_out.text) == meaning(text), laid_out.text
    assert lay_out(laid_out.text) == laid_out
    assert re.findall("so it is|it\n is|so", laid_out.text) == re.findall("so it is|it\n is|so", text)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.integers(0, 10**9), st.sampled_from(("", ";", "\n")))
def test_whatever_is_in_a_file_means_what_it_meant(seeds: list[int], other: int, between: str) -> None:
    text = mutated(f"{between}\n".join(f"-- name: q{seed}\n{query(seed)}" for seed in seeds), other)
    laid_out = lay_out(text).text
    assert meaning(laid_out) == meaning(text)
    assert lay_out(laid_out).text == laid_out


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_of_the_project_are_laid_out(path: Path) -> None:
    text = path.read_text()
    if path.parent.name == "workload":
        assert lay_out(text).text == text, "heddle format it"
    assert lay_out(re.sub(r"\n(?!--|\n)", "  ", text)).diagnostics == ()


def test_what_is_legal_is_laid_out() -> None:
    for text in LEGAL:
        assert meaning(lay_out(text).text) == meaning(text)


WIDE = "SELECT symbol, " + ", ".join(f"sum(volume) AS the_volume_{number}" for number in range(5))

LAID_OUT = {
    "select symbol,count( * )as n from trades window range '1 hour' slide'5 minutes'on ts where qty>1 and not ok group "
    "by symbol having count(*)>3 with(error=0.1)": """\
SELECT symbol, count(*) AS n
FROM trades
WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts
WHERE qty > 1 AND NOT ok
GROUP BY symbol
HAVING count(*) > 3
WITH (error = 0.1);
""",
    f"{WIDE} from trades window rows 5 slide 2 partition by symbol on ts group by symbol": (
        "SELECT\n    symbol,\n"
        + ",\n".join(f"    sum(volume) AS the_volume_{number}" for number in range(5))
        + "\nFROM trades\nWINDOW ROWS 5 SLIDE 2 PARTITION BY symbol ON ts\nGROUP BY symbol;\n"
    ),
    "-- What we watch\n\n\n\n--Owner:desk\n  -- NAME : a \nselect count(*) as n -- all of them\n, sum(qty) as q "
    "from trades -- a stream\n-- in windows\n"
    "window range '1 hour' slide at most '5 minutes' ending '7 days' ago on ts; -- the end": """\
-- What we watch

-- owner: desk
-- name: a
SELECT
    count(*) AS n,  -- all of them
    sum(qty) AS q
FROM trades  -- a stream
-- in windows
WINDOW RANGE '1 hour' SLIDE AT MOST '5 minutes' ENDING '7 days' AGO ON ts;  -- the end
""",
    f"select max(-qty) as `end`,min(qty - -1)as range from trades window range '1 hour' slide '1 hour' on ts where "
    f"{' and '.join(f'(qty between {n} and 7 or symbol is not null)' for n in range(4))};": """\
SELECT max(-qty) AS `end`, min(qty - -1) AS range
FROM trades
WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts
WHERE (qty BETWEEN 0 AND 7 OR symbol IS NOT NULL)
  AND (qty BETWEEN 1 AND 7 OR symbol IS NOT NULL)
  AND (qty BETWEEN 2 AND 7 OR symbol IS NOT NULL)
  AND (qty BETWEEN 3 AND 7 OR symbol IS NOT NULL);
""",
}


@pytest.mark.parametrize("text", LAID_OUT, ids=range(len(LAID_OUT)))
def test_one_clause_a_line(text: str) -> None:
    expected = LAID_OUT[text]
    assert lay_out(text).text == expected
    assert max(map(len, expected.splitlines())) <= WIDTH


NEW = """\
-- name: a
SELECT
    path,
    CASE WHEN status >= 500 THEN 'bad' WHEN status IS NULL THEN NULL ELSE 'good' END AS kind,
    sum(CASE kind WHEN 'x' THEN end ELSE -1 END) AS total,
    count(*) FILTER (WHERE status = 200) AS fine,
    sum(errors) / count(*) AS ratio,
    m['key'] AS k,
    x::int AS i,
    date_trunc('hour', t) AS h
FROM requests
WINDOW CUMULATE '1 day' STEP '1 hour' IN 'Europe/Berlin' ON time
WHERE t > u - INTERVAL '1' DAY
GROUP BY path, kind
HAVING count(*) > 10 OR max(x) - min(x) > 5
ORDER BY sum(x) DESC LIMIT 5;

-- name: b
SELECT window.start, window.end, count(*) AS n
FROM requests
GROUP BY window(t, '1 hour', '5 minutes'), path;

-- name: c
SELECT window_start, count(*) AS n
FROM TABLE(HOP(TABLE requests, DESCRIPTOR(t), INTERVAL 5 MINUTES, INTERVAL 1 HOUR))
GROUP BY window_start;
"""


def test_words_that_may_come_to_the_language_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        diagnostics = ()

    monkeypatch.setattr("optimizer.language.layout.parse", lambda *arguments: Nothing)
    assert lay_out(NEW).text == NEW
    small = re.sub(r"\b[A-Z_]+\b", lambda word: word[0].lower(), re.sub(r"\n +", " ", NEW))
    small = small.replace("europe/berlin", "Europe/Berlin")
    laid_out = lay_out(small).text.replace("table(hop(table", "TABLE(HOP(TABLE")
    assert laid_out.replace("descriptor(", "DESCRIPTOR(") == NEW


def test_a_query_with_an_error_stays_as_it_is_and_is_told_of() -> None:
    good = "-- name: good\nselect count(*) as n from trades window range '1 hour' slide '1 hour' on ts;"
    bad = "-- name: bad\nselect count(* as n from trades   window range '1 hour' slide '1 hour' on ts;"
    laid_out = lay_out(f"{good}\n{bad}\n{good.replace('good', 'better')}", "q.sql")
    assert bad in laid_out.text and laid_out.text.count("SELECT") == 2
    assert [(diagnostic.code, diagnostic.line, diagnostic.file) for diagnostic in laid_out.diagnostics] == [
        ("HDL-101", 4, "q.sql")
    ]


@example("select count(*) as n from trades window range '1 h' slide '1 h' on ts\n-- owner: a\n-- name: b\n")
@given(st.text(alphabet="-/*;'\" \nab:", max_size=40))
def test_settings_stay_with_their_query(text: str) -> None:
    full_text = (
        f"{text}\n-- name: a\nselect count(*) as n from trades window range '1 hour' slide '1 hour' on ts {text}"
    )
    laid_out = lay_out(full_text).text
    assert meaning(laid_out) == meaning(full_text)
    assert lay_out(laid_out).text == laid_out


NAMES = """\
SELECT at, max(slide) AS range, min(range) AS true, count(*) AS end
FROM s
WINDOW RANGE '1 hour' SLIDE '5 minutes' ON slide
WHERE range > 3 AND NOT (range IN (1, 2))
GROUP BY at;
"""


def test_names_that_are_words_of_the_language_keep_their_letters() -> None:
    columns = (("slide", TIMESTAMP), ("range", LONG), ("at", STRING))
    streams = {"s": Stream("s", Source("parquet", "x"), columns, "slide")}
    small = NAMES.replace("\n", " ").lower()
    assert not parse(NAMES, streams).errors and lay_out(small).text == lay_out(NAMES).text == NAMES
    before, after = (parse(text, streams).queries[0] for text in (small, NAMES))
    assert before.fingerprint == after.fingerprint and before.outputs == after.outputs


def test_ends_of_lines_stay() -> None:
    text = "-- name: a\r\nselect count(*) as n from trades window range '1 hour' slide '1 hour' on ts"
    laid_out = lay_out(text).text
    assert laid_out.startswith("-- name: a\r\nSELECT count(*) AS n\r\nFROM") and laid_out.count("\n") == laid_out.count(
        "\r\n"
    )
    assert lay_out("").text == "" and lay_out("  \n\n").text == ""
