"""How many runs a fault in production code survives the audit.

    python -m tests.benchmarks.audit_power [--seed N] [--mutants N] [--place PLACE] [--json FILE]

Faults are drawn by seed, beforehand, from operators and places (:mod:`tests.benchmarks.mutants`), of lines that the
workload executes. Each is put into a process of its own that plays four runs over a generated workload, with the sample
audit alone (no inspection of all answers). A fault is *equivalent* if no answer differs from those without it, *small*
if fewer than 0.5 % do, *stopped* if the runs fail or report an error for another reason than the audit; all others
count: *refused* by the audit within four runs, or *survived*. Doubles are compared to eleven digits. Exit code 1 where
fewer than 90 % of those that count are refused.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from tests.benchmarks.mutants import PLACES, SHARED_READING, Mutant, drawn_mutants, kernel_lines, named_mutant

RUNS = 4
"""Runs that a fault may survive."""

LEAST_SHARE = 0.005
"""Faults that touch a smaller share of the answers do not count."""

GOAL = 0.9

LIMIT = 120
"""CPU seconds that the runs of one fault may take: one that loops is stopped."""

DAY = 86_400_000_000
BEGIN = 1_372_636_800_000_000

QUERIES = """
-- name: by_symbol
SELECT symbol, count(*) AS n, sum(volume) AS total, avg(price) AS mean, min(price) AS low, max(price) AS high
FROM trades WINDOW RANGE '5 hours' SLIDE '2 hours' ON ts GROUP BY symbol;
-- name: dear
SELECT symbol, sum(price) AS money, stddev(price) AS spread FROM trades WHERE price * volume > 200 AND side = 'B'
WINDOW RANGE '6 hours' SLIDE '3 hours' ON ts GROUP BY symbol;
-- name: sides
SELECT side, count(price) AS priced, sum(fee) AS fees, avg(fee) AS fee FROM trades WHERE volume >= 4 OR side IS NULL
WINDOW RANGE '4 hours' SLIDE '2 hours' ON ts GROUP BY side;
-- name: late_share
SELECT count(*) FILTER (WHERE late) AS late, count(*) AS n, bool_or(late) AS some, bool_and(late) AS every
FROM trades WHERE symbol IN ('A', 'C', 'D') WINDOW RANGE '8 hours' SLIDE '4 hours' ON ts;
-- name: middle
SELECT symbol, median(volume) AS middle, percentile(price, 0.9) AS high, mode(side) AS side FROM trades
WINDOW RANGE '6 hours' SLIDE '6 hours' ON ts GROUP BY symbol;
-- name: distinct_symbols
SELECT count(DISTINCT symbol) AS symbols, count(DISTINCT volume) AS volumes FROM trades
WINDOW RANGE '3 hours' SLIDE '1 hours' ON ts;
-- name: ago
SELECT symbol, sum(volume) AS total, max(due) AS due FROM trades
WINDOW RANGE '4 hours' SLIDE '2 hours' ENDING '20 hours' AGO ON ts GROUP BY symbol;
-- name: so_far
SELECT count(*) AS n, sum(volume) AS total, first(price) AS first, last(price) AS last FROM trades
WINDOW CUMULATE '1 day' STEP '3 hours' ON ts;
-- name: local_day
SELECT side, count(*) AS n, avg(volume) AS size FROM trades WINDOW RANGE '1 day' IN 'Europe/Berlin' ON ts GROUP BY side;
-- name: hundred
SELECT count(price) AS n, sum(volume) AS total, avg(price) AS mean FROM trades WINDOW ROWS 20 SLIDE 10 ON ts;
-- name: each_hundred
SELECT symbol, sum(volume) AS total, min(price) AS low FROM trades
WINDOW ROWS 8 SLIDE 4 PARTITION BY symbol ON ts GROUP BY symbol;
-- name: rotations
SELECT count(*) AS n, sum(A.volume) AS total FROM trades PATTERN SEQ(A, B) ON symbol PARTITION BY side
WINDOW RANGE '4 hours' SLIDE '2 hours' ON ts;
-- name: busiest
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '6 hours' SLIDE '3 hours' ON ts GROUP BY symbol
ORDER BY count(*) DESC LIMIT 2;
-- name: many
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '6 hours' SLIDE '2 hours' ON ts GROUP BY symbol
HAVING count(*) > 5;
-- name: quoted
SELECT venue, count(*) AS n, sum(size) AS size, avg(bid) AS bid, covar_pop(bid, size) AS both FROM quotes
WINDOW RANGE '5 hours' SLIDE '2 hours' ON ts GROUP BY venue;
-- name: spread
SELECT sum(ask - bid) AS spread, max(CAST(size AS double) / 3) AS third, min(coalesce(bid, 0.5)) AS least FROM quotes
WHERE NOT (venue = 'X' AND size < 3) WINDOW RANGE '6 hours' SLIDE '2 hours' ON ts;
-- name: hours
SELECT hour(seen) AS h, count(*) AS n, max(round(bid, 1)) AS bid FROM quotes WHERE upper(venue) LIKE 'X%'
WINDOW RANGE '12 hours' SLIDE '6 hours' ON ts GROUP BY hour(seen);
-- name: texts
SELECT count(*) AS n, max(CAST(code AS int)) AS code, min(length(venue)) AS short FROM quotes
WHERE CAST(code AS int) % 3 <> 1 WINDOW RANGE '4 hours' SLIDE '4 hours' ON ts;
-- name: cases
SELECT sum(CASE WHEN bid > ask THEN 1 WHEN size BETWEEN 2 AND 5 THEN 2 ELSE 0 END) AS points, sum(abs(size - 4)) AS off
FROM quotes WINDOW RANGE '4 hours' SLIDE '2 hours' ON ts;
-- name: bounded
SELECT venue, count(*) AS n, sum(size) AS size FROM quotes WINDOW RANGE '6 hours' SLIDE AT MOST '3 hours' ON ts
GROUP BY venue;
"""


# ------------------------------------------------------------------------------------------------ the workload
def trades(chance: random.Random, day: int, count: int) -> pa.Table:
    """Events of one day, as texts will hold them: CSV."""
    at = sorted(BEGIN + day * DAY + chance.randrange(DAY) for _ in range(count))
    rows = [
        {
            "ts": moment,
            "symbol": chance.choice(["A", "A", "B", "B", "C", "D", "E", None]),
            "side": chance.choice(["B", "S", "S", None]),
            "price": chance.choice([None, round(chance.uniform(10, 90), 3), round(chance.uniform(10, 90), 1)]),
            "volume": chance.choice([None, *range(1, 12)]),
            "fee": f"{chance.randrange(-300, 900) / 100:.2f}",
            "late": chance.choice([True, False, False, None]),
            "due": f"2013-0{chance.randint(1, 9)}-{chance.randint(10, 28)}",
        }
        for moment in at
    ]
    table = pa.Table.from_pylist(rows)
    times = pc.strftime(table["ts"].cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    return table.set_column(0, "ts", times)


def quotes(chance: random.Random, day: int, count: int) -> pa.Table:
    """Events of one day in Parquet, their times in nanoseconds without a zone."""
    at = sorted(BEGIN + day * DAY + chance.randrange(DAY) for _ in range(count))
    rows = [
        {
            "ts": moment * 1000,
            "venue": chance.choice(["X", "x2", "Y", None]),
            "bid": chance.choice([None, round(chance.uniform(1, 9), 2)]),
            "ask": round(chance.uniform(1, 9), 2),
            "size": chance.choice([None, *range(9)]),
            "code": chance.choice(["1", "2", "33", " 7", "x", None]),
            "seen": moment - chance.randrange(DAY),
        }
        for moment in at
    ]
    types = {"ts": pa.timestamp("ns"), "size": pa.int32(), "seen": pa.timestamp("us", "UTC")}
    names = {"venue": pa.string(), "bid": pa.float64(), "ask": pa.float64(), "code": pa.string()}
    schema = pa.schema([(name, (types | names)[name]) for name in rows[0]])
    return pa.Table.from_pylist(rows, schema)


def write_events(folder: Path, seed: int, events: int) -> None:
    """Files of a day each, one day more than there are runs."""
    chance = random.Random(seed)
    for name in ("trades", "quotes"):
        (folder / name).mkdir()
    for day in range(-1, RUNS):
        pcsv.write_csv(trades(chance, day, events), folder / "trades" / f"{day + 1}.csv")
        pq.write_table(
            quotes(chance, day, events), folder / "quotes" / f"{day + 1}.parquet", row_group_size=events // 2
        )


def plan_of(folder: Path) -> Any:
    """The plan of all queries."""
    from optimizer.language.parser import parse
    from optimizer.plan.builder import build_plan
    from optimizer.workload import values
    from optimizer.workload.values import Source, Stream, Workload, decimal

    schemas = {
        "trades": [("ts", values.TIMESTAMP), ("symbol", values.STRING), ("side", values.STRING)]
        + [("price", values.DOUBLE), ("volume", values.LONG), ("fee", decimal(10, 2)), ("late", values.BOOLEAN)]
        + [("due", values.DATE)],
        "quotes": [("ts", values.TIMESTAMP), ("venue", values.STRING), ("bid", values.DOUBLE), ("ask", values.DOUBLE)]
        + [("size", values.INT), ("code", values.STRING), ("seen", values.TIMESTAMP)],
    }
    formats = {"trades": "csv", "quotes": "parquet"}
    streams = {
        name: Stream(name, Source(formats[name], str(folder / name)), tuple(schema), "ts")
        for name, schema in schemas.items()
    }
    parsed = parse(QUERIES, streams)
    assert not [problem for problem in parsed.diagnostics if problem.severity == "error"], parsed.diagnostics
    return build_plan(
        Workload(parsed.queries, tuple(streams.values())), dict.fromkeys(streams, Fraction(1)), "weave-share"
    )


# ------------------------------------------------------------------------------------------------ the runs
@dataclass(frozen=True)
class Played:
    """What some runs published (answers by query, window and group), and the first run that the audit refuses, counted
    from 1, with its reason; ``failure``: why they did not end."""

    answers: dict[tuple[Any, ...], Any]
    refused: int | None = None
    reason: str = ""
    failure: str = ""


def play(events: Path, house: Path, apply: Callable[[], None], seed: int, runs: int) -> Played:
    """Play the runs; what the audit refuses is noted, and published all the same."""
    from spark_jobs.pipeline.planning.publication import publish_plan
    from spark_jobs.pipeline.run import checks_stage
    from spark_jobs.pipeline.run.interval import run
    from spark_jobs.results.read import read
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from tests.chaos.orders import in_process

    refused: list[tuple[int, str]] = []
    number = 0
    audit = checks_stage.audit

    def noted(*args: Any) -> list[dict[str, Any]]:
        checks = audit(*args)
        wrong = [check for check in checks if not check["success"]]
        if wrong:
            refused.append((number, f"{wrong[0]['check']}: {wrong[0]['detail'][:200]}"))
        return [check | {"success": True} for check in checks]

    checks_stage.audit = noted  # type: ignore[assignment]
    try:
        warehouse = Warehouse.open(house)
        plan = plan_of(events)
        version, _ = publish_plan(warehouse, plan)
        apply()
        spark: Any = in_process()
        for number in range(1, runs + 1):
            begin = BEGIN + (number - 1) * DAY
            record = run(
                spark, warehouse, version, begin, begin + DAY, f"{seed}/{number}", as_of=1 << 60, checks="sample"
            )
            if record.has_failed:
                diagnostic = next(each for each in record.diagnostics if each["severity"] == "error")
                raise RuntimeError(f"{diagnostic['code']} {diagnostic['message']}")
        answers: dict[tuple[Any, ...], Any] = {}
        for query in plan.workload.queries:
            for row in read(warehouse, query.name).to_pylist():
                key = [row.get(name) for name in ("window_start", "window_end", "instant", "position")]
                groups = [row[name] for name in query.select or [name for name, _ in query.group_by]]
                values = [_shown(row[output.name]) for output in query.outputs]
                answers[query.name, *map(str, key), *map(str, groups)] = values
        return Played(answers, *(refused[0] if refused else (None, "")))
    except Exception as error:
        return Played({}, *(refused[0] if refused else (None, "")), f"{type(error).__name__}: {str(error)[:300]}")


def _shown(value: Any) -> str:
    """A value as a text; of a double what is promised of it."""
    return f"{value:.11e}" if isinstance(value, float) else str(value)


def apart(work: Callable[[], Any]) -> Any:
    """What a function gives in a process of its own; None if that ended otherwise."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        import resource

        used = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (used + LIMIT, used + LIMIT))
        with open(os.devnull, "w") as nothing, os.fdopen(writing, "wb") as answer:  # noqa: PTH123
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
            try:
                pickle.dump(work(), answer)
            except BaseException:
                pickle.dump(traceback.format_exc(), answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        content = answer.read()
    os.waitpid(child, 0)
    return pickle.loads(content) if content else None


def executed(work: Callable[[], Any], modules: Sequence[str]) -> dict[str, set[int]]:
    """The lines of some modules that a function executes, by file."""
    import importlib

    lines = {str(importlib.import_module(module).__file__): kernel_lines(module) for module in modules}

    def trace(frame: Any, event: str, argument: Any) -> Any:
        lines_of_file = lines.get(frame.f_code.co_filename)
        if lines_of_file is None:
            return None
        lines_of_file.add(frame.f_lineno)

        def inside(frame: Any, event: str, argument: Any) -> Any:
            lines_of_file.add(frame.f_lineno)
            return inside

        return inside

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return lines


@dataclass(frozen=True)
class Outcome:
    """What became of one fault: the share of the answers that it touches, and what ``kind`` of outcome that is."""

    mutant: str
    place: str
    kind: str
    share: float
    runs: int | None
    reason: str


def outcome_of(mutant: Mutant, right: Played, played: Played | None) -> Outcome:
    """The outcome of a fault. ``right``: without it."""

    def outcome(kind: str, share: float = 0.0, runs: int | None = None, reason: str = "") -> Outcome:
        return Outcome(str(mutant), mutant.place, kind, share, runs, reason)

    if not isinstance(played, Played):
        return outcome("stopped", reason=str(played or "it did not end")[-300:])
    if played.failure:
        if played.refused is not None:
            return outcome("refused", 1.0, played.refused, played.reason)
        return outcome("stopped", reason=played.failure)
    keys = right.answers.keys() | played.answers.keys()
    differ = sum(right.answers.get(key) != played.answers.get(key) for key in keys)
    share = differ / max(len(right.answers), 1)
    if not differ:
        return outcome("false alarm" if played.refused else "equivalent", 0.0, played.refused, played.reason)
    if share < LEAST_SHARE:
        return outcome("small", share, played.refused, played.reason)
    return outcome("survived" if played.refused is None else "refused", share, played.refused, played.reason)


def measure(
    seed: int,
    counts: dict[str, int],
    faults: Sequence[str],
    events: int,
    runs: int,
    report: Callable[[str], None],
) -> list[Outcome]:
    """Play the runs without a fault, then with each of the ``faults``, or if there are none with each that is drawn."""
    # loaded once, for all processes
    from spark_jobs.audit.unshared import duckdb_files, duckdb_windows
    from spark_jobs.pipeline.run import checks_stage, finals_stage, interval, partials_stage, publication

    _ = checks_stage, finals_stage, interval, partials_stage, publication, duckdb_files, duckdb_windows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_events(folder, seed, events)
        modules = [module for place in counts for module in PLACES[place]] if not faults else []

        def untouched() -> Any:
            lines: dict[str, set[int]] = {}
            plays: list[Played] = []
            lines = executed(lambda: plays.append(play(folder, folder / "right", lambda: None, seed, runs)), modules)
            return plays[0], lines

        known = apart(untouched)
        if not isinstance(known, tuple) or known[0].failure or known[0].refused:
            raise SystemExit(f"the runs without a fault failed: {known if not isinstance(known, tuple) else known[0]}")
        right, lines = known
        report(f"{len(right.answers)} answers without a fault")
        outcomes = []
        drawn = [named_mutant(name) for name in faults] or drawn_mutants(seed, counts, lines)
        for number, mutant in enumerate(drawn):
            house = folder / f"mutant-{number}"
            played = apart(lambda mutant=mutant, house=house: play(folder, house, mutant.apply, seed, runs))  # type: ignore[misc]
            outcomes.append(outcome_of(mutant, right, played))
            outcome = outcomes[-1]
            report(
                f"{outcome.kind:11} {outcome.share:7.2%} {outcome.runs or '-'}  {outcome.mutant}  {outcome.reason[:90]}"
            )
        return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=10, help="faults that are drawn of each place")
    parser.add_argument("--place", action="append", choices=sorted(PLACES))
    parser.add_argument("--events", type=int, default=150, help="events of a day and stream")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--fault", action="append", default=[], help="this fault: MODULE:FUNCTION:CHANGE")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts = dict.fromkeys(options.place or PLACES, options.mutants)
    parameters = options.seed, counts, options.fault, options.events, options.runs
    outcomes = measure(*parameters, lambda line: print(line, flush=True))
    kinds = Counter(outcome.kind for outcome in outcomes)
    counted = [outcome for outcome in outcomes if outcome.kind in ("refused", "survived")]
    reading = sum(outcome.place in SHARED_READING for outcome in counted)
    print(f"{len(outcomes)} faults: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}")
    share = kinds["refused"] / len(counted) if counted else 0.0
    refused = f"{kinds['refused']} of {len(counted)} ({share:.0%}), {reading} of them in reading"
    print(f"refused within {options.runs} runs: {refused}")
    print("in the first run:", sum(outcome.runs == 1 for outcome in counted))
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return int(share < GOAL or kinds["false alarm"] > 0)


if __name__ == "__main__":
    sys.exit(main())
