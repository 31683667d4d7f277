"""Texts made worse, by a seed."""

from __future__ import annotations

import random
import re

NASTY = (
    *(
        "(",
        ")",
        "((((",
        "))))",
        "'",
        '"',
        "`",
        ";",
        ",",
        ".",
        "--",
        "/*",
        "*/",
        "/*+",
        "{#",
        "#}",
        "{{",
        "}}",
        "${env:X}",
    ),
    *(
        "::",
        "->",
        "|>",
        "<=>",
        "||",
        "@",
        "?",
        ":x",
        "$$",
        "\\",
        "\\'",
        "%",
        "&",
        "^",
        "~",
        "[",
        "]",
        "=",
        "<",
        ">",
        "!",
    ),
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "WINDOW",
        "RANGE",
        "ROWS",
        "SLIDE",
        "AT MOST",
        "ENDING",
        "AGO",
        "ON",
        "PATTERN",
        "SEQ",
        "reached(2)",
        "SEQ(A, NOT B, C)",
    ),
    *(
        "GROUP BY",
        "HAVING",
        "ORDER BY",
        "LIMIT 10",
        "NULLS FIRST",
        "sum(qty) / count(*)",
        "WITH (error = ",
        "UNION ALL SELECT 1",
        "JOIN trades",
        "JOIN names n ON upper(symbol) = n.sign AND",
        "LATERAL VIEW",
        "TABLESAMPLE",
        "OVER ()",
    ),
    *(
        "CASE WHEN",
        "END",
        "CAST(qty AS",
        "INTERVAL",
        "NOT",
        "NULL",
        "AND",
        "OR",
        "IN (",
        "EXISTS (",
        "ANY (",
        "DISTINCT",
    ),
    *("reflect('a', 'b')", "text.`/etc/passwd`", "date(", "sort_array(", "map(", "struct<", "array<", "x'00'", "r'x'"),
    *("-- name: ../x\n", "-- name: <b>\n", "-- owner: \x1b[31m\n", "-- until: x\n", "\n-- name: y\n", "-- name:"),
    *(
        "0",
        "-1",
        "1e309",
        "1e-309",
        "9" * 30,
        "9" * 400,
        "0.1",
        "1_0",
        "0x1",
        "5L",
        "1BD",
        "'1 hour'",
        "'-1 s'",
        "'9 years'",
    ),
    *(
        "\x00",
        "\x1b",
        "\r",
        "\t",
        "\x0b",
        "\x85",
        "\u200b",
        "\u200d",
        "\u202e",
        "\u2028",
        "\ufeff",
        "\ud800",
        "\U000e0041",
    ),
    *(
        "é",
        "ß",
        "İ",
        "ﬁ",
        "\u0430",
        "１",
        "٣",
        "’",
        "＝",
        "🧵",
        "a\u0301",
        "x" * 300,
        " " * 500,
        "(" * 100,
        "NOT " * 50,
    ),
)
_PIECES = re.compile(r"\w+|\s+|'[^'\n]*'|[^\w\s]")


def mutated(text: str, seed: int, nasty: tuple[str, ...] = NASTY) -> str:
    """The text with one to six changes, the same for a seed for ever."""
    rng = random.Random(seed)
    pieces = _PIECES.findall(text)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(len(pieces)) if pieces else 0
        kind = rng.randrange(8)
        if kind == 0:
            pieces.insert(at, rng.choice(nasty))
        elif not pieces:
            continue
        elif kind == 1:
            del pieces[at]
        elif kind == 2:
            other = rng.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif kind == 3:
            pieces[at] = rng.choice(nasty)
        elif kind == 4:
            piece = pieces[at : at + rng.randint(1, 6)]
            pieces[at:at] = piece * rng.choice((1, 1, 2, 40))
        elif kind == 5:
            pieces = pieces[:at]
        elif kind == 6:
            place = rng.randint(0, len(pieces[at]))
            noise = rng.choice((rng.choice(nasty), chr(rng.randrange(0x20)), chr(rng.randrange(0x110000))))
            pieces[at] = pieces[at][:place] + noise + pieces[at][place:]
        else:
            pieces[at] = pieces[at].swapcase()
    return "".join(pieces)
