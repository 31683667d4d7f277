"""Valid texts made worse: nothing raises, nothing hangs, and what comes out is a value or a finding with a place.

5,000 queries by default; ``HEDDLE_FUZZ=100000`` makes as many (``HEDDLE_FUZZ_SEED`` says where they begin). A failure
names its seed; ``HEDDLE_FUZZ=1 HEDDLE_FUZZ_SEED=<seed> python -m pytest tests/hostile/test_fuzz.py`` repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import parse_duration
from optimizer.workload.streams import load_streams
from optimizer.workload.values import from_json, to_json
from spark_jobs.pipeline.planning.requested import parse_rate, parse_rates
from spark_jobs.pipeline.planning.what_if import RateChange
from spark_jobs.streams.sources.decoding import parse_instant
from spark_jobs.windows.loading import parse_group, parse_having
from tests.hostile.guard import WINDOW, Canary, bounded, check_findings, parsed, told
from tests.hostile.mutations import NASTY, mutated
from tests.hostile.seeds import COUNT, each
from tests.hostile.valid_queries import query


def test_mutated_queries(canary: Canary) -> None:
    def check(seed: int) -> str:
        text = mutated(query(seed % 997), seed)
        if seed % 5 == 0:
            text += "\n" + mutated(query(seed % 991), seed + 1)
        result = parsed(text, canary)
        return "read" if result.queries else result.errors[0].code if result.errors else "nothing"

    outcomes = each("queries", COUNT, check)
    # neither is everything still valid nor everything broken in one way
    assert COUNT < 1000 or (len(outcomes) > 15 and 0.05 < outcomes["read"] / COUNT < 0.7), outcomes


STREAMS = """streams:
  trades:  # of one day
    source: {format: csv, path: data/trades.csv}
    schema: {ts: timestamp, symbol: string, price: double, volume: long, fee: 'decimal(10,2)'}
    time: ts
    lateness: 10 minutes
    step: 5 minutes
  requests:
    source:
      format: parquet
      path: ../requests
    time: at
"""
NASTY_YAML = (
    *NASTY,
    *(
        "&a",
        "*a",
        "<<: *a",
        "!!python/object:x",
        "!!binary",
        "!x",
        "? ",
        "- ",
        "|",
        ">",
        "%YAML 1.1\n",
        "---\n",
        "...\n",
    ),
    *(
        '"\\0"',
        '"\\ud800"',
        '"\\UFFFFFFFF"',
        "@",
        "null",
        "~",
        "[[[[[[",
        "{{{{{{",
        "}",
        "streams:",
        "  - x\n",
        "path: /etc/x",
    ),
    *("file:///etc/passwd", "s3a://u:p@h/x", "999999999999999999 weeks", "decimal(99,99)", ".inf", "0o7", "2013-07-04"),
)


def test_mutated_streams(canary: Canary, tmp_path: Path) -> None:
    file = tmp_path / "streams.yaml"

    def check(seed: int) -> str:
        text = mutated(STREAMS, seed, NASTY_YAML)
        # as an editor would, and as nobody does
        file.write_bytes(text.encode(errors="surrogatepass" if seed % 7 == 0 else "replace"))
        with bounded(text):
            streams, diagnostics = load_streams(file)
        canary.check(repr(streams), *told(diagnostics))
        check_findings([diagnostic for diagnostic in diagnostics if not diagnostic.line], text)
        check_findings(
            diagnostics, text.replace("\r\n", "\n").replace("\r", "\n").replace("\x85", "\n").replace("\u2028", "\n")
        )
        assert streams or diagnostics
        assert all(from_json(to_json(stream)) == stream for stream in streams.values())
        return "read" if streams else diagnostics[0].code

    outcomes = each("streams", COUNT // 10 or 1, check)
    assert COUNT < 1000 or len(outcomes) > 4, outcomes


OPTIONS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("1200.5e3", parse_rate),
    ("6/5", parse_rate),
    ("trades=1200", lambda text: parse_rates([text])),
    ("tradesx1.5", RateChange.parse),
    ("2013-07-01T12:30:00.5+02:00", parse_instant),
    ("1 day 6 hours 30.5 seconds", parse_duration),
)


def test_mutated_options(canary: Canary) -> None:
    parse_result = parsed(
        "SELECT max(symbol) AS s, count(*) AS n FROM trades @W GROUP BY symbol, day".replace("@W", WINDOW), canary
    )
    of_query = (
        ("n >= 100 AND s <> 'it''s'", lambda text: parse_having(parse_result.queries[0], text)),
        ("AA,2013-07-04", lambda text: parse_group(parse_result.queries[0], text.split(","))),
    )
    options = (*OPTIONS, *of_query)

    def check(seed: int) -> str:
        text, read = options[seed % len(options)]
        text = mutated(text, seed)
        try:
            with bounded(text, 1.0):
                option = read(text)
        except HeddleError as error:
            canary.check(*told([error.diagnostic]))
            check_findings([error.diagnostic], text)
            return error.diagnostic.code
        assert not isinstance(option, Fraction) or 0 <= option < 10**140
        return "read"

    outcomes = each("options", COUNT // 2 or 1, check)
    assert COUNT < 1000 or outcomes.keys() >= {"read", "HDL-112", "HDL-114", "HDL-204", "HDL-605", "HDL-608"}, outcomes


@pytest.mark.parametrize("seed", (5, 1007))
def test_a_seed_is_a_text(seed: int) -> None:
    assert mutated(query(seed), seed) == mutated(query(seed), seed) != query(seed)
