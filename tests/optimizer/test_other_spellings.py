"""What other engines write, and this language reads as what it has: the same queries, to the fingerprint."""

from __future__ import annotations

import pytest

from optimizer.language.parser import ParseResult, parse
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream

COLUMNS = (("t", TIMESTAMP), ("a", STRING), ("b", LONG), ("x", DOUBLE))
STREAM = Stream("events", Source("parquet", "events"), COLUMNS, "t")


def parsed(select: str, rest: str = "") -> ParseResult:
    return parse(f"-- name: q\nSELECT {select} FROM events WINDOW RANGE '1 hour' ON t {rest}", {"events": STREAM})


@pytest.mark.parametrize(
    ("select", "rest", "same", "as_written"),
    [
        ("a, b, count(*) AS n", "GROUP BY ALL", "a, b, count(*) AS n", "GROUP BY a, b"),
        ("upper(a) AS u, count(*) AS n", "GROUP BY ALL", "upper(a) AS u, count(*) AS n", "GROUP BY u"),
        ("count(*) AS n, sum(b) AS s, s / n AS r", "GROUP BY ALL", "count(*) AS n, sum(b) AS s, s / n AS r", ""),
        ("try_divide(sum(b), count(*)) AS r", "", "sum(b) / count(*) AS r", ""),
        ("percentile_cont(0.9) WITHIN GROUP (ORDER BY x) AS p", "", "percentile(x, 0.9) AS p", ""),
        ("percentile_disc(0.9) WITHIN GROUP (ORDER BY b) AS p", "", "percentile_disc(b, 0.9) AS p", ""),
        (
            "percentile_cont(array(0.5, 0.9)) WITHIN GROUP (ORDER BY x) AS p",
            "",
            "percentile(x, array(0.5, 0.9)) AS p",
            "",
        ),
        ("mode() WITHIN GROUP (ORDER BY a) AS m", "", "mode(a) AS m", ""),
        (
            "percentile_cont(0.9) WITHIN GROUP (ORDER BY x) FILTER (WHERE b > 1) AS p",
            "",
            "percentile(x, 0.9) FILTER (WHERE b > 1) AS p",
            "",
        ),
    ],
)
def test_the_query_is_the_same(select: str, rest: str, same: str, as_written: str) -> None:
    first, second = parsed(select, rest), parsed(same, as_written)
    assert not first.diagnostics and not second.diagnostics
    assert first.queries[0].fingerprint == second.queries[0].fingerprint


@pytest.mark.parametrize(
    ("select", "code", "hint"),
    [
        ("percentile_cont(0.9) WITHIN GROUP (ORDER BY x DESC) AS p", "HDL-104", "0.1 for 0.9"),
        ("percentile_cont(0.9) WITHIN GROUP (ORDER BY x, b) AS p", "HDL-104", "ORDER BY x"),
        ("percentile_cont() WITHIN GROUP (ORDER BY x) AS p", "HDL-104", "ORDER BY x"),
        ("sum(b) WITHIN GROUP (ORDER BY x) AS p", "HDL-103", ""),
        ("count(DISTINCT a, x) AS n", "HDL-203", "decimals"),
    ],
)
def test_mistakes_are_coded(select: str, code: str, hint: str) -> None:
    (error,) = parsed(select).errors
    assert error.code == code and hint in error.hint


def test_different_pairs_are_different_texts() -> None:
    """The lengths stand before the texts: ('1:', 'x') is not ('1', ':x')."""
    import pyarrow as pa

    from spark_jobs.streams.sources.expressions import evaluate

    (query,) = parsed("count(DISTINCT a, b) AS n").queries
    (output,) = query.outputs
    assert output.argument is not None
    pairs = [("1", 23), ("12", 3), ("", 123), ("1:1", 2), (None, 1), ("1", None), ("1", 23)]
    batch = pa.table({"a": [a for a, _ in pairs], "b": pa.array([b for _, b in pairs], pa.int64())})
    texts = evaluate(output.argument, batch, dict(COLUMNS)).to_pylist()
    assert len(set(texts)) == 5 and texts[4] is texts[5] is None and texts[0] == texts[6]
