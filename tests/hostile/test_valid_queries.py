"""What the language has is never taken for an attack."""

from __future__ import annotations

from tests.hostile.guard import Canary, parsed
from tests.hostile.valid_queries import query

FEATURES = (
    *(
        "ROWS",
        "ENDING",
        "AT MOST",
        "CUMULATE '",
        "SESSION GAP",
        "RANGE UNBOUNDED",
        "IN 'Europe",
        "'3 months'",
        "window(ts",
        "TABLE(HOP",
        "INTERVAL",
        "PATTERN",
        "HAVING",
        "HAVING NOT",
        "ORDER BY",
        "LIMIT",
        ") / ",
        "coalesce(",
        "WITH (error",
        "PARTITION BY",
        "GROUP BY",
        "-- until",
        "-- owner",
    ),
    *(
        "LIKE",
        "IN (",
        "BETWEEN",
        "IS NULL",
        "DISTINCT",
        "approx_percentile",
        "date '",
        "timestamp '",
        "`qty`",
        "/* so */",
    ),
    *(
        "CASE",
        "CAST(",
        "::",
        "RLIKE",
        ") FILTER (WHERE",
        "count_if",
        "extract(",
        "GROUP BY its_group",
        "GROUP BY date_trunc(",
        "place.volume",
        "counts['it\\'s ]']",
        "legs[0].",
        "by_id[-7]",
        "JOIN names AS n ON",
        "= o.sign",
    ),
)


def test_no_valid_query_is_refused(canary: Canary) -> None:
    texts = [query(seed) for seed in range(500)]
    for text in texts:
        result = parsed(text, canary)
        assert not result.errors and len(result.queries) == 1, text + "\n" + "\n".join(map(str, result.errors))
    assert len(set(texts)) == 500
    assert [feature for feature in FEATURES if not any(feature in text for text in texts)] == []
