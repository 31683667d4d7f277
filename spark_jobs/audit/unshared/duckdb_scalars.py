"""Functions of single values in DuckDB's SQL, made of the SQL of their arguments and its kinds.

Kinds are those of :mod:`spark_jobs.audit.unshared.duckdb_expressions`: integers are HUGEINT, timestamps integer
microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from optimizer.workload.patterns import readable_pattern
from optimizer.workload.scalars import cast_type, time_format
from optimizer.workload.values import Call, Literal, Type
from spark_jobs.audit.unshared.zones import changes_of

Typed = tuple[str, str]
_BITS = {3: 8, 5: 16, 10: 32}
_LENGTHS = {
    **{"microsecond": 1, "millisecond": 1000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000},
    **{"day": 86_400_000_000, "week": 604_800_000_000},
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_CONSTANTS = (
    "cast",
    "date_trunc",
    "date_part",
    "at_zone",
    "to_timestamp",
    "to_date",
    "substring",
    "split_part",
    "replace",
)


def values_of(call: Call) -> int:
    """Number of a call's arguments that are values; the others are constants."""
    if call.function == "time_diff":
        return 2
    return 1 if call.function in (*_CONSTANTS, "regexp_like", "round") else len(call.arguments)


def constants_of(call: Call) -> list[Any]:
    """The constants among a call's arguments."""
    return [argument.value for argument in call.arguments[values_of(call) :] if isinstance(argument, Literal)]


def scalar_sql(call: Call, arguments: list[Typed], aligned: Callable[[list[Typed]], list[str]]) -> Typed | None:
    """The SQL of a call of these values, and its kind; None if it is no function of single values."""
    name, constants = call.function, constants_of(call)
    if name == "if":
        *values, kind = aligned([*arguments[1::2], arguments[-1]])
        cases = " ".join(f"WHEN {c} THEN {v}" for (c, _), v in zip(arguments[:-1:2], values, strict=False))
        return f"(CASE {cases} ELSE {values[-1]} END)", kind
    if name in ("greatest", "least"):
        *values, kind = aligned(arguments)
        return f"{name}({', '.join(values)})", kind
    if name == "mod":
        left, right, kind = aligned(arguments)
        return f"(CASE WHEN {right} <> 0 THEN {left} % {right} END)", kind
    if name == "cast":
        return _cast(*arguments[0], cast_type(constants[0]))
    if name in _TEXTS:
        sql, kind = _TEXTS[name](*(sql for sql, _ in arguments), *constants)
        return sql, kind
    if name in ("date_trunc", "date_part"):
        return _time(name, arguments[0], constants[0])
    if name == "time_diff":
        return _difference(arguments[0], arguments[1], constants[0])
    if name == "at_zone":
        return f"({arguments[0][0]} + {_offset(arguments[0][0], *changes_of(constants[0]))})", "timestamp"
    if name in ("to_timestamp", "to_date"):
        return _parsed(arguments[0][0], constants[0], name == "to_timestamp")
    if name in ("round", "floor", "ceil"):
        return _whole(name, arguments[0], constants)
    return _real(name, arguments)


def _real(name: str, arguments: list[Typed]) -> Typed | None:
    doubles = [f"({sql})::VARCHAR::DOUBLE" if kind == "decimal" else f"({sql})::DOUBLE" for sql, kind in arguments]
    if name == "sqrt":
        return f"(CASE WHEN {doubles[0]} < 0 THEN 'nan'::DOUBLE ELSE sqrt({doubles[0]}) END)", "double"
    if name == "ln":
        return f"(CASE WHEN {doubles[0]} <= 0 THEN NULL ELSE ln({doubles[0]}) END)", "double"
    if name == "power":
        # as Java has it: C says 1 of powers of 1, whatever they are
        base, exponent = doubles
        strange = f"isnan({exponent}) OR (abs({base}) = 1 AND isinf({exponent}))"
        known = f"{base} IS NOT NULL AND ({strange})"
        return f"(CASE WHEN {known} THEN 'nan'::DOUBLE ELSE power({base}, {exponent}) END)", "double"
    return (f"{name}({doubles[0]})", "double") if name in ("exp", "sin", "cos", "asin") else None


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# -------------------------------------------------------------------------------------------------- texts
def _substring(text: str, begin: int, length: int = 2**31 - 1) -> Typed:
    start = str(begin - 1) if begin > 0 else f"(length({text}) + {begin})" if begin < 0 else "0"
    low, high = f"greatest({start}, 0)", f"greatest({start}::BIGINT + {max(length, 0)}, 0)"
    return f"substring({text}, ({low} + 1)::BIGINT, greatest({high} - {low}, 0)::BIGINT)", "string"


_TEXTS: dict[str, Callable[..., Typed]] = {
    "substring": _substring,
    "length": lambda text: (f"length({text})::HUGEINT", "long"),
    "split_part": lambda text, by, place: (f"split_part({text}, {_text(by)}, {place})", "string"),
    "concat": lambda *texts: ("(" + " || ".join(texts) + ")", "string"),
    "trim": lambda text: (f"trim({text}, ' ')", "string"),
    "ltrim": lambda text: (f"ltrim({text}, ' ')", "string"),
    "rtrim": lambda text: (f"rtrim({text}, ' ')", "string"),
    "replace": lambda text, old, new: (f"replace({text}, {_text(old)}, {_text(new)})", "string"),
    "regexp_like": lambda text, form: (f"regexp_matches({text}, {_text(readable_pattern(form))})", "boolean"),
}


# -------------------------------------------------------------------------------------------------- times
_PARTS = {"dayofweek": "dayofweek({}) + 1", "weekday": "isodow({}) - 1", "dayofyear": "dayofyear({})"}


def _time(name: str, argument: Typed, what: str) -> Typed:
    sql, kind = argument
    stamp = f"({sql})::TIMESTAMP" if kind == "date" else f"make_timestamp({sql})"
    if name == "date_trunc":
        return f"epoch_us(date_trunc('{what}', {stamp}))", "timestamp"
    if what == "second":
        return f"(epoch_us({stamp} - date_trunc('minute', {stamp}))::DECIMAL(18,0) * 0.000001)::DECIMAL(8,6)", "decimal"
    part = _PARTS.get(what, f"date_part('{what.removeprefix('whole ')}', {{}})").format(stamp)
    return f"({part})::HUGEINT", "long"


def _difference(begin: Typed, end: Typed, unit: str) -> Typed:
    """SQL of the full units between two times. Months count by days, each month as if it had 32 of them."""
    first, last = (f"epoch_us(({sql})::TIMESTAMP)" if kind == "date" else sql for sql, kind in (begin, end))
    difference = f"(({last})::HUGEINT - ({first})::HUGEINT)"
    fits = f"{difference} BETWEEN -9223372036854775808 AND 9223372036854775807"
    if unit in _LENGTHS:
        return f"(CASE WHEN {fits} THEN {difference} // {_LENGTHS[unit]} END)::HUGEINT", "long"
    day = _LENGTHS["day"]
    since, until = (f"floor({micros}::DECIMAL(38,0) / {day})::HUGEINT" for micros in (first, last))
    morning, evening = (f"({micros}::HUGEINT - {days} * {day})" for micros, days in ((first, since), (last, until)))
    shift = (
        f"CASE WHEN {until} > {since} AND {evening} < {morning} THEN -1 "
        f"WHEN {until} < {since} AND {evening} > {morning} THEN 1 ELSE 0 END"
    )
    from_day, to_day = f"(DATE '1970-01-01' + ({since})::INT)", f"(DATE '1970-01-01' + ({until} + {shift})::INT)"
    days = " - ".join(f"((year({at}) * 12 + month({at})) * 32 + day({at}))" for at in (to_day, from_day))
    months = f"(({days})::HUGEINT // 32)"
    return f"(CASE WHEN {fits} THEN {months} // {_MONTHS[unit]} END)::HUGEINT", "long"


def _offset(micros: str, moments: tuple[int, ...], offsets: tuple[int, ...]) -> str:
    """SQL of the offset (microseconds) of a clock that changes at some moments: a search by halves."""
    if not moments:
        return f"{offsets[0]}::BIGINT"
    middle = len(moments) // 2
    before = _offset(micros, moments[:middle], offsets[: middle + 1])
    behind = _offset(micros, moments[middle + 1 :], offsets[middle + 1 :])
    return f"CASE WHEN {micros} < {moments[middle]} THEN {before} ELSE {behind} END"


def _parsed(text: str, format: str, is_moment: bool) -> Typed:
    """A time by a format: the parts that its expression finds."""
    known = time_format(format)
    parts = {name: f"regexp_extract({text}, {_text(known.pattern)}, {at})" for name, at in known.groupindex.items()}
    numbers = [f"TRY_CAST({parts[part]} AS INT)" if part in parts else "0" for part in "yMdHms"]
    year, month, in_month, hour, minute, second = numbers
    day = f"TRY(make_date({year}, {month}, {in_month}))"
    micros = f"TRY_CAST(rpad({parts['S']}, 6, '0') AS INT)" if "S" in parts else "0"
    inside = f"{year} <> 0 AND {hour} < 24 AND {minute} < 60 AND {second} < 60"
    time = day
    if is_moment:
        time = f"epoch_us({day}::TIMESTAMP) + ({hour} * 3600 + {minute} * 60 + {second})::BIGINT * 1000000 + {micros}"
    sql = f"(CASE WHEN regexp_full_match({text}, {_text(known.pattern)}) THEN CASE WHEN {inside} THEN {time} END END)"
    return sql, "timestamp" if is_moment else "date"


# ------------------------------------------------------------------------------------------------ numbers
def _whole(name: str, argument: Typed, constants: list[Any]) -> Typed:
    sql, kind = argument
    if name != "round":
        if kind == "double":
            fits = f"{name}({sql}) >= -9223372036854775808::DOUBLE AND {name}({sql}) < 9223372036854775808::DOUBLE"
            return f"(CASE WHEN {fits} THEN {name}({sql})::HUGEINT END)", "long"
        return (sql, kind) if kind == "long" else (f"{name}({sql})", "decimal")
    places = int(constants[0])
    if kind == "double":
        near = f"isfinite({sql}) AND abs({sql}) < 1e15"
        return f"(CASE WHEN {near} THEN ({sql})::VARCHAR::DECIMAL(38,{places})::DOUBLE ELSE {sql} END)", "double"
    if kind == "long":
        unit = 10 ** max(0, -places)
        return f"(sign({sql})::HUGEINT * ((abs({sql}) + {unit // 2}) // {unit}) * {unit})", "long"
    # DuckDB rounds a null to zero where the unit is greater than any value
    return f"(CASE WHEN {sql} IS NOT NULL THEN round({sql}, {places}) END)", "decimal"


# -------------------------------------------------------------------------------------------------- casts
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?"
_DAY = r"(\d{4})(?:-(\d\d?)(?:-(\d\d?)(?:[ T]((?s:.*)))?)?)?"
_CLOCK = r"(\d\d?):(\d\d?)(?::(\d\d?)(?:\.(\d{0,9}))?)?\s?(Z|UTC|[+-]\d\d?:\d\d)?"


def _cast(sql: str, kind: str, target: Type) -> Typed:
    if kind == target.name and target.name not in ("long", "decimal"):
        return sql, kind
    if kind == "string":
        sql = f"trim({sql}, {' || '.join(f'chr({code})' for code in [*range(1, 33), 127])})"
    maker = {"long": _to_long, "decimal": _to_decimal, "date": _to_date, "timestamp": _to_timestamp}.get(target.name)
    if maker is not None:
        return maker(sql, kind, target), target.name
    if target.name == "double":
        if kind == "string":
            form = f"{_NUMBER}|(?i:nan|[+-]?inf(inity)?)"
            return f"(CASE WHEN regexp_full_match({sql}, '{form}') THEN TRY_CAST({sql} AS DOUBLE) END)", "double"
        if kind == "timestamp":
            return f"({sql}::DOUBLE / 1e6)", "double"
        return (
            f"{sql}::VARCHAR::DOUBLE"
            if kind == "decimal"
            else f"({sql})::INT::DOUBLE"
            if kind == "boolean"
            else f"({sql})::DOUBLE"
        ), "double"
    if target.name == "boolean":
        if kind == "string":
            yes, no = "('t', 'true', 'y', 'yes', '1')", "('f', 'false', 'n', 'no', '0')"
            return f"(CASE WHEN lower({sql}) IN {yes} THEN true WHEN lower({sql}) IN {no} THEN false END)", "boolean"
        return f"({sql} <> 0)", "boolean"
    return (f"make_timestamp({sql})::VARCHAR" if kind == "timestamp" else f"({sql})::VARCHAR"), "string"


def _to_long(sql: str, kind: str, target: Type) -> str:
    integer = {
        "long": sql,
        "boolean": f"({sql})::INT::HUGEINT",
        "double": f"(CASE WHEN isfinite({sql}) AND abs({sql}) < 1e30 THEN trunc({sql})::HUGEINT END)",
        "decimal": f"trunc({sql})::HUGEINT",
        "timestamp": f"floor_div({sql}, 1000000)::HUGEINT",
        "string": rf"(CASE WHEN regexp_full_match({sql}, '[+-]?\d{{1,40}}') THEN TRY_CAST({sql} AS HUGEINT) END)",
    }[kind]
    limit = 2 ** (_BITS.get(target.digits, 64) - 1)
    return f"(CASE WHEN {integer} BETWEEN -{limit}::HUGEINT AND {limit - 1} THEN {integer} END)"


def _to_decimal(sql: str, kind: str, target: Type) -> str:
    text = {"double": f"({sql})::VARCHAR", "boolean": f"({sql})::INT", "string": sql}.get(kind, sql)
    known = f"regexp_full_match({sql}, '{_NUMBER}')" if kind == "string" else "TRUE"
    return f"(CASE WHEN {known} THEN TRY_CAST({text} AS {target}) END)"


def _parts(sql: str, form: str, *groups: int) -> list[str]:
    return [f"regexp_extract({sql}, '^{form}$', {group})" for group in groups]


def _to_date(sql: str, kind: str, target: Type) -> str:
    if kind == "timestamp":
        return f"make_timestamp({sql})::DATE"
    year, month, day = _parts(sql, _DAY, 1, 2, 3)
    date = (
        f"TRY(make_date({year}::INT, coalesce(nullif({month}, ''), '1')::INT, coalesce(nullif({day}, ''), '1')::INT))"
    )
    return f"(CASE WHEN regexp_full_match({sql}, '{_DAY}') AND {year} <> '0000' THEN {date} END)"


def _to_timestamp(sql: str, kind: str, target: Type) -> str:
    if kind == "date":
        return f"epoch_us(({sql})::TIMESTAMP)"
    if kind == "long":
        return f"(CASE WHEN {sql} BETWEEN -62135596800 AND 253402300799 THEN ({sql} * 1000000)::BIGINT END)"
    form = re.sub(r"\(\(\?s:\.\*\)\)", lambda _: _CLOCK, _DAY)
    day = _to_date(sql, "string", target)
    hour, minute, second, fraction, zone = _parts(sql, form, 4, 5, 6, 7, 8)
    hour, minute, second = (f"coalesce(nullif({part}, ''), '0')::INT" for part in (hour, minute, second))
    micros = f"rpad({fraction}, 6, '0')[:6]::INT"
    ahead = f"CASE WHEN {zone} IN ('', 'Z', 'UTC') THEN 0 ELSE (split_part({zone}[2:], ':', 1)::INT * 60 + "
    ahead += f"split_part({zone}, ':', 2)::INT) * (CASE WHEN {zone}[1] = '-' THEN -1 ELSE 1 END) END"
    # nothing is evaluated of a text of another form: its parts are no numbers
    inside = f"{hour} < 24 AND {minute} < 60 AND {second} < 60 AND abs({ahead}) <= 1080"
    total = (
        f"epoch_us({day}::TIMESTAMP) + ({hour} * 3600 + {minute} * 60 + {second} - ({ahead}) * 60)::BIGINT * 1000000"
    )
    return f"(CASE WHEN regexp_full_match({sql}, '{form}') THEN CASE WHEN {inside} THEN {total} + {micros} END END)"
