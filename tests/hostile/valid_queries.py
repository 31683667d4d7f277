"""Valid queries from the grammar, by a seed: every feature of the README's "The query language"."""

from __future__ import annotations

import random
import re
from random import Random

from optimizer.aggregates.algebra import AGGREGATES

COLUMNS = {
    "a column": ("symbol", "price", "volume", "qty", "fee", "day", "ok", "ts"),
    "a number": (
        *("CASE WHEN ok THEN qty END", "CASE qty WHEN 1 THEN 2 ELSE 3 END", "CAST(symbol AS int)", "fee::double"),
        *("if(ok, price, NULL)", "nullif(qty, 0)", "ifnull(qty, 0)", "round(fee, 1)", "floor(price)", "qty % 7"),
        *("extract(hour FROM ts)", "year(day)", "length(symbol)", "greatest(qty, fee, 1)", "power(qty, 2)", "price"),
        *("volume", "qty", "fee", "qty * 2", "qty + volume", "fee / 3", "abs(qty)", "-price"),
    ),
    "an integer": ("volume", "qty", "qty + 1", "abs(qty)", "coalesce(qty, 0)"),
    "a double": ("price", "qty / 2", "-price"),
    "an integer or a double": ("price", "qty", "volume"),
    "an integer or a text": ("symbol", "qty", "lower(symbol)"),
    "an integer, a double or a text": ("symbol", "qty", "price"),
    "a timestamp": ("ts", "date_trunc('hour', ts)", "TIMESTAMP '2013-07-01'"),
    "a text": ("symbol", "lower(symbol)"),
    "a condition": ("ok", "qty > 1", "NOT ok", "symbol LIKE 'a%' AND ok", "price IS NOT NULL"),
}
NESTED = ("place.volume", "trades.Place.`volume`", "counts['v']", "counts['it\\\\'s ]']", "legs[0].volume", "by_id[-7]")
"""What is as volume is, in nested columns."""

COMPARISONS = (
    "qty {o} 3",
    "price {o} 1.5",
    "volume {o} -7",
    "fee {o} 12.34",
    "symbol {o} 'NYSE'",
    "day {o} '2013-07-04'",
    "ts {o} timestamp '2013-07-04 18:30:00'",
    "day {o} date '2013-07-04'",
    "qty * 2 + 1 {o} volume",
    "price / qty {o} 1e3",
    "lower(symbol) {o} 'x'",
    'upper(symbol) {o} "X"',
    "coalesce(symbol, 'none') {o} 'none'",
    "abs(-qty) {o} 5L",
    "`qty` {o} 1",
    "trades.qty {o} 1",
)
CONDITIONS = (
    "ok",
    "NOT ok",
    "symbol IS NULL",
    "price IS NOT NULL",
    "symbol IN ('a', 'b', 'it\\'s')",
    "qty NOT IN (1, 2, 3)",
    "symbol LIKE 'A%'",
    "symbol NOT LIKE '%\\\\_x'",
    "qty BETWEEN 1 AND 5",
    "price NOT BETWEEN -1.5 AND 2",
    "symbol RLIKE '^[a-c]+(x|y)*$'",
    "CASE WHEN ok THEN qty > 1 ELSE ok END",
    "TRY_CAST(symbol AS date) IS NULL",
    "left(symbol, 2) || right(symbol, 2) = split_part(symbol, '-', 1)",
    "date_trunc('day', ts) = day",
    "hour(ts AT TIME ZONE 'Europe/Berlin') BETWEEN 8 AND 17",
    "from_utc_timestamp(ts, 'America/New_York') > '2013-07-04'",
    "to_timestamp(symbol, 'dd/MM/yyyy HH:mm') > ts",
    "trim(replace(symbol, 'a', 'b')) NOT IN ('x')",
    "symbol = 'می\u200cخواهم'",
)
POSITION = "the position of its_group"

COMPUTED = ("date_trunc('hour', ts)", "lower(symbol)", "qty + 1", "CASE WHEN ok THEN symbol END", "CAST(fee AS int)")
SIGNS = (
    "symbol",
    "upper(symbol)",
    "CASE WHEN ok THEN trades.symbol ELSE 'x' END",
    "CAST(fee AS string)",
    "left(symbol, 2)",
)
UNITS = ("volume", "qty + 1", "CAST(symbol AS bigint)", "year(date_trunc('day', ts))", "coalesce(qty, volume, 3)")
SECTORS = ("upper(n.sector)", "concat(symbol, sector)", "n.sector")
"""Keys of joins: of each column of the dimension's key, and of one that is joined by an attribute of the first."""

DURATIONS = {
    "30 seconds": 30,
    "1 minute": 60,
    "90 seconds": 90,
    "5 minutes": 300,
    "1 hour": 3600,
    "2 hours 30 minutes": 9000,
    "1 day": 86_400,
    "1 week": 604_800,
}
"""Spans as they are written, and their seconds."""
OTHER_WINDOWS = (
    "WINDOW RANGE '1h30m' ON ts",
    "WINDOW RANGE '90 min' SLIDE INTERVAL '5' MINUTES ON ts",
    "WINDOW RANGE INTERVAL '2 hours' SLIDE INTERVAL 30 MINUTES ON ts",
    "WINDOW CUMULATE '1 day' STEP '1 hour' ON ts",
    "WINDOW CUMULATE '1 day' STEP '15 min' IN 'Asia/Kathmandu' ON ts",
    "WINDOW CUMULATE '1 month' STEP '1 day' IN 'Europe/Berlin' ON ts",
    "WINDOW RANGE '1 day' IN 'Europe/Berlin' ON ts",
    "WINDOW RANGE '7 days' SLIDE '1 day' IN 'America/New_York' ON ts",
    "WINDOW RANGE '1 week' IN 'UTC' ON ts",
    "WINDOW RANGE '3 months' SLIDE '1 month' ON ts",
    "WINDOW RANGE '1 year' SLIDE '1 quarter' IN 'Pacific/Apia' ON ts",
    "WINDOW SESSION GAP '30 minutes' UP TO '1 day' ON ts",
    "WINDOW SESSION GAP INTERVAL '90' SECONDS UP TO '2 hours' ON ts",
    "WINDOW RANGE UNBOUNDED SLIDE '1 day' ON ts",
    "WINDOW RANGE UNBOUNDED SLIDE '1 month' IN 'Europe/Berlin' ON ts",
    "WINDOW RANGE UNBOUNDED SLIDE '6 hours' ENDING '7 days' AGO ON ts",
)
FUNCTIONS = (
    "window(ts, '1 hour')",
    "window(ts, '1 hour', '5 minutes')",
    "window(trades.ts, interval 1 hour, interval '5 minutes')",
    "TUMBLE(ts, INTERVAL '1' HOUR)",
    "HOP(ts, INTERVAL '5' MINUTE, INTERVAL '1' HOUR)",
)
"""Windows that stand in GROUP BY."""
TABLE_FUNCTIONS = (
    "TABLE(TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '10' MINUTES))",
    "TABLE(HOP(TABLE trades, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '1' HOUR)) AS w",
    "TABLE(CUMULATE(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY))",
)
"""Windows that stand in FROM."""
APPROXIMATE = (
    "approx_count_distinct(symbol)",
    "approx_count_distinct(symbol, 0.01)",
    "approx_percentile(price, 0.9)",
    "approx_percentile(price, array(0.5, 0.9), 100)",
    "percentile(fee, array(0.5))",
    "array_agg(DISTINCT symbol, 10)",
    "approx_percentile(fee, 0.5, 100)",
    "percentile_approx(qty, 0.1, 10)",
    "approx_top_k(symbol)",
    "approx_top_k(symbol, 7)",
)


ORDERED = {
    "state": ("qty > 1", "symbol LIKE 'a%' AND ok", "ok"),
    "ordered": ("qty", "fee", "volume + 1"),
    "ordered+k": ("symbol, 3", "qty, 1 ORDER BY ts DESC", "fee, 1000", "day, 2 ORDER BY ok"),
    "ordered+separator": ("symbol, ','", "symbol", "qty, '; ' ORDER BY qty DESC", "DISTINCT symbol, '|'"),
}
"""Arguments of the aggregates of values in the order of time, by signature."""


def _aggregate(random: random.Random) -> str:
    if random.random() < 0.15:
        return random.choice(APPROXIMATE)
    if random.random() < 0.2:
        return random.choice(
            ("count(*)", "count(1)", "count_if(qty > 1)", "count(DISTINCT symbol)", "COUNT(DISTINCT qty + 1)")
        )
    name = random.choice(sorted(AGGREGATES))
    aggregate = AGGREGATES[name]
    if aggregate.signature in ORDERED:
        return f"{name}({random.choice(ORDERED[aggregate.signature])})"
    arguments = [random.choice(COLUMNS[aggregate.takes])]
    if aggregate.signature == "value+by":
        arguments.append(random.choice(("qty", "ts", "price * 2")))
    if aggregate.signature == "number+number":
        arguments.append(random.choice(("qty", "fee", "price * 2")))
    if aggregate.signature == "value+fractions":
        arguments.append(random.choice(("array(0.5)", "array(0.5, 0.99)")))
    if aggregate.default is not None and random.random() < 0.5:
        arguments.append("12")
    if aggregate.signature == "value+fraction":
        arguments.append(random.choice(("0.5", "0.99", "1", "5e-1")))
    if aggregate.signature == "value+k":
        arguments.append(random.choice(("1", "3", "1000")))
    filter_clause = f" FILTER (WHERE {random.choice(CONDITIONS)})" if random.random() < 0.15 else ""
    return f"{random.choice((name, name.upper()))}({', '.join(arguments)}){filter_clause}"


def _condition(random: random.Random, depth: int = 3) -> str:
    kind = random.randrange(5) if depth else 0
    if kind < 2:
        operator = random.choice(("=", "<>", "!=", "<", "<=", ">", ">="))
        return random.choice((*COMPARISONS, *CONDITIONS)).format(o=operator)
    if kind == 2:
        return f"NOT ({_condition(random, depth - 1)})"
    word = random.choice((" AND ", " OR "))
    parts = [_condition(random, depth - 1) for _ in range(random.randint(2, 3))]
    return "(" + word.join(f"({part})" for part in parts) + ")"


def _window(random: random.Random, groups: list[str], pattern: bool) -> str:
    kind = random.randrange(5 if pattern else 8)
    if kind == 0 and not pattern:
        per = random.sample(groups, random.randint(0, len(groups)))
        by = f" PARTITION BY {', '.join(per)}" if per else ""
        return f"WINDOW ROWS {random.randint(1, 1000)} SLIDE {random.randint(1, 50)}{by} ON ts"
    if kind == 1:
        return f"WINDOW RANGE '{random.choice(('1 hour', '1 day'))}' SLIDE AT MOST '10 minutes' ON ts"
    if kind > 4:
        return random.choice((OTHER_WINDOWS, OTHER_WINDOWS, FUNCTIONS, TABLE_FUNCTIONS)[random.randrange(4)])
    slide = random.choice(list(DURATIONS))
    range_ = random.choice([duration for duration in DURATIONS if DURATIONS[duration] <= 1440 * DURATIONS[slide]])
    ago = f" ENDING '{random.choice(list(DURATIONS))}' AGO" if random.random() < 0.25 else ""
    return f"WINDOW RANGE '{range_}' SLIDE '{slide}'{ago} ON ts"


def _sequence(random: random.Random) -> tuple[str, list[str]]:
    events = [random.choice(("A", "B", "'New York'")) for _ in range(random.randint(1, 4))]
    names = [event.strip("'") for event in events]
    event = random.choice(names)
    quoted = event if event.isidentifier() else f"`{event}`"
    per = random.choice(("", " PARTITION BY qty", " PARTITION BY qty, ok"))
    aggregates = ["count(*)", f"count({quoted})", f"sum({quoted}.volume)", f"avg({quoted}.fee)", f"max({quoted}.day)"]
    # of its own, so that the other queries stay as they are
    also = Random(f"{events} {per} steps")
    chosen = random.sample(aggregates, random.randint(1, 3))
    if per and also.random() < 0.5:
        step = also.randint(1, len(events))
        chosen.append(also.choice((f"reached({step})", f"REACHED({step}) / reached(1)", f"-reached( {step} )")))
    if also.random() < 0.4:
        for place in also.sample(range(1, len(events)), also.randint(0, len(events) - 1)):
            events[place] = f"{also.choice(('NOT', 'not'))} {also.choice(('A', 'C'))}, {events[place]}"
    return f"PATTERN SEQ({', '.join(events)}) ON symbol{per}", chosen


def _comparable(aggregates: list[str]) -> str:
    """The first aggregate that something is compared with: no sketch is."""
    return next((call for call in aggregates if "sketch" not in call.lower()), "count(*)")


def _derived(made: random.Random, groups: list[str]) -> str:
    """An expression over aggregates, and group columns."""
    known = ["sum(qty)", "count(*)", "sum(fee)", "max(price)", "min(qty)", "count(DISTINCT symbol)", "1.5", "100"]
    known += [group for group in groups if group in ("qty", "fee")]
    value = "avg(qty)"
    for _ in range(made.randint(1, 4)):
        form = made.choice(
            ("{} + {}", "({} - {})", "{} * {}", "({}) / {}", "coalesce({}, {})", "abs({} - {})", "-({}) * {}")
        )
        value = form.format(value, made.choice(known))
    return value


_SEVERAL = (
    "WINDOW h AS (RANGE '1 hour'), d AS (RANGE '1 day') SLIDE '15 minutes' ON ts",
    "WINDOW h AS (RANGE '90 minutes'), d AS (RANGE '150 min' ENDING '7 days' AGO) SLIDE '1 hour' ON ts",
    "WINDOW h AS (RANGE '10 minutes'), d AS (RANGE '1 hour') SLIDE AT MOST '10 minutes' ON ts",
    "WINDOW h AS (RANGE '1 hour'), d AS (CUMULATE '6 hours') SLIDE '10 minutes' ON ts",
    "WINDOW h AS (RANGE '7 days'), d AS (CUMULATE '1 month') SLIDE '1 day' IN 'Europe/Berlin' ON ts",
    "WINDOW h AS (CUMULATE '1 month'), d AS (CUMULATE '1 month' ENDING '1 month' AGO) SLIDE '1 hour' IN 'UTC' ON ts",
    "WINDOW h AS (RANGE '1 month'), d AS (RANGE '1 month' ENDING '1 year' AGO) SLIDE '1 month' ON ts",
    "WINDOW h AS (RANGE '1 day'), d AS (RANGE '1 week' ENDING '1 quarter' AGO) SLIDE '1 day' ON ts",
    "WINDOW h AS (RANGE '1 day'), `d` AS (RANGE INTERVAL '2' DAYS), unused AS (RANGE '3 days') SLIDE '1 day' ON ts",
    "WINDOW h AS (RANGE '1 hour'), d AS (RANGE '60 minutes') ON ts",
    "WINDOW h AS (RANGE '1 day'), d AS (RANGE UNBOUNDED) SLIDE '1 day' ON ts",
)
_PLAIN_CALL = re.compile(r"\b(?:avg|sum|count|max|min|reached|REACHED)\([^()]*\)")


def _over(random: random.Random, call: str) -> str:
    """An aggregate over one of the windows, or an expression whose aggregates are."""
    if _PLAIN_CALL.sub("", call) != call and not _PLAIN_CALL.fullmatch(call) and "FILTER" not in call:
        return _PLAIN_CALL.sub(lambda match: f"{match[0]} OVER {random.choice('hd')}", call)
    return f"{call} OVER {random.choice('hd')}"


def _joins(seed: int) -> list[str]:
    """JOIN clauses, now and then, by columns and by what is computed."""
    rng = random.Random(f"joins {seed}")
    if rng.random() > 0.3:
        return []
    kind = rng.choice(("", "LEFT ", "INNER "))
    sides = [(rng.choice(SIGNS), "n.sign"), (rng.choice(UNITS), "n.unit")]
    rng.shuffle(sides)
    by = " AND ".join(" = ".join(rng.sample(pair, 2)) for pair in sides)
    joins = [f"{kind}JOIN names AS n ON {by}"]
    if rng.random() < 0.4:
        joins.append(f"LEFT JOIN names o ON {rng.choice(SECTORS)} = o.sign AND o.unit = abs(n.owner_id)")
    return joins


def query(seed: int) -> str:
    """A valid query, the same for a seed for ever."""
    rng = random.Random(seed)
    groups = rng.sample(["symbol", "qty", "day", "ok", "fee"], rng.choice((0, 0, 1, 1, 2)))
    pattern, aggregates = "", [_aggregate(rng) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.15:
        groups = [group for group in groups if group in ("qty", "ok")]
        pattern, aggregates = _sequence(rng)
    if not pattern and rng.random() < 0.3:
        aggregates.append(_derived(rng, groups))
    # of its own, so that the other queries stay as they are
    also = random.Random(f"{seed} windows")
    several = not pattern and also.random() < 0.12
    if pattern:
        also = random.Random(f"{seed} windows of sequences")
        several = also.random() < 0.4
    compared, total = _comparable(aggregates), "count(*)"
    if several:
        aggregates = [_over(also, call) for call in aggregates]
        compared, total = _over(also, compared), "count(*) OVER h"
    computed = rng.choice(COMPUTED) if not pattern and rng.random() < 0.3 else None
    outputs = [f"{call} AS a{number}" for number, call in enumerate(aggregates)]
    select = rng.sample(groups, rng.randint(0, len(groups))) + outputs
    window = _window(rng, groups, bool(pattern))
    if several:
        of_calendars = ("CUMULATE", "UNBOUNDED", "month", "quarter")
        window = also.choice(
            [each for each in _SEVERAL if not (pattern and any(word in each for word in of_calendars))]
        )
        outputs += ["count(*) OVER (h, d) AS n" if pattern else "max(qty) OVER (h, d) AS most"] * (also.random() < 0.3)
        select = [item for item in select if " AS a" not in item] + outputs
    if computed is not None and "ROWS" not in window:
        select.append(f"{computed} AS its_group")
        groups.append(rng.choice((computed, "its_group", POSITION)))
    lines = [f"-- name: q_{seed}.{rng.choice(('x', 'y-z'))}"]
    if rng.random() < 0.5:
        lines.append(f"-- owner: {rng.choice(('desk one', 'Zoë <z@example.org>', '数据', '[red]x[/]'))}")
    if rng.random() < 0.2 and "ROWS" not in window and "SESSION" not in window:
        lines.append("-- until: 2030-12-31T18:00:00")
    source = window if window in TABLE_FUNCTIONS else "trades"
    bounds = ["window_start", "window_end"] if window in TABLE_FUNCTIONS else [window] if window in FUNCTIONS else []
    if bounds and rng.random() < 0.7:
        select = ["window_start", *(["window.end AS window_end"] if rng.random() < 0.5 else []), *select]
    places = {POSITION: str(len(select))}
    groups = [places.get(group, group) for group in groups]
    grouped = rng.sample([*groups, *bounds], len(groups) + len(bounds))
    clauses = [
        window if window.startswith("WINDOW") else "",
        pattern,
        f"WHERE {_condition(rng)}" if rng.random() < 0.6 else "",
    ]
    clauses = [clause for clause in clauses if clause]
    clauses += [f"GROUP BY {', '.join(grouped)}"] if grouped else []
    if rng.random() < 0.25:
        clauses.append(f"HAVING {total} > {rng.randint(0, 9)} AND 1e6 >= {total}")
    elif rng.random() < 0.1:
        clauses.append(f"HAVING NOT {total} BETWEEN 3 AND {rng.randint(3, 9)} OR {compared} IS NULL")
    is_ranked = "ROWS" not in window and "SESSION" not in window
    if groups and not pattern and is_ranked and rng.random() < 0.2:
        identifiers = [group for group in groups if group.isidentifier()]
        last = rng.choice(("", " DESC", f", {identifiers[0]} NULLS LAST" if identifiers else " ASC"))
        order = rng.choice((total, f"sum(qty){total[8:]} / {total}", compared))
        clauses.append(f"ORDER BY {order}{last} LIMIT {rng.randint(1, 1000)}")
    holistic = any(
        word in " ".join(outputs).lower() for word in ("percentile(", "median", "distinct", "mode", "top_k(")
    )
    if holistic and not pattern and rng.random() < 0.5:
        clauses.append("WITH (error = 0.01)")
    break_ = rng.choice((" ", "\n", "\n  ", " /* so */ "))
    if source == "trades" and "ROWS" not in window:
        clauses = [*_joins(seed), *clauses]
    lines.append(f"SELECT {', '.join(select)} FROM {source}{break_}{break_.join(clauses)}{rng.choice((';', ''))}")
    text = "\n".join(lines)
    if not pattern and "ROWS" not in window and rng.random() < 0.3:
        text = re.sub(r"\bvolume\b", rng.choice(NESTED), text)
    return text
