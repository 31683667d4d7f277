"""The audit knows every aggregate of every type that it takes: answered, made use of, compared, ordered by."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload import values
from optimizer.workload.derived import derived_type
from optimizer.workload.ordered import state_in_time, value_in_order
from optimizer.workload.values import (
    ACQ,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    SECOND,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    Order,
    Output,
    Source,
    Stream,
    Top,
    Type,
    Window,
    Workload,
)
from spark_jobs.audit.checks.recompute import compare
from spark_jobs.audit.unshared.agreement import agrees
from spark_jobs.audit.unshared.audited import AUDITED
from spark_jobs.audit.unshared.columns import ANSWERS
from spark_jobs.audit.unshared.duckdb_windows import recompute_here
from spark_jobs.audit.unshared.spark_evidence import EVIDENCE
from spark_jobs.audit.unshared.values import compared_outputs, recomputed_parts
from spark_jobs.audit.unshared.windows import recompute
from tests.spark_jobs.kernels import kernel_answers, of_query
from tests.workloads import POOLS, SCHEMA, Case, arrow_schema, takes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK = 60 * SECOND


def events() -> pa.Table:
    """Each value of each column, and nulls; a group in which there is nothing else."""
    chance, rows = random.Random(5), 120
    columns: dict[str, list[object]] = {"ts": [chance.randrange(3 * TICK) for _ in range(rows)]}
    columns |= {name: [chance.choice([*POOLS[name], None]) for _ in range(rows)] for name, _ in SCHEMA}
    columns["carrier"] = [chance.choice(["AA", "B6"]) for _ in range(rows)]
    columns = {name: [*column_values, *[0 if name == "ts" else None] * 3] for name, column_values in columns.items()}
    return pa.table(columns, schema=arrow_schema())


def outputs_of(function: str) -> list[Output]:
    """One of each type that the aggregate takes, and, if it can, one that permits an error."""
    aggregate = AGGREGATES[function]
    if aggregate.signature == "state":
        return [Output("out_0", function, state_in_time(Column("late"), "ts"), LONG, DOUBLE)]
    if aggregate.signature.startswith("ordered"):
        return in_order(function)
    by: tuple[Expression | None, Type | None] = (None, None)
    if aggregate.signature in ("value+by", "number+number"):
        by = Column("volume"), LONG
    elif aggregate.signature == "value+time":
        by = Column("ts"), TIMESTAMP
    parameters = {
        "value+fraction": "0.75",
        "value+k": "2",
        "value+lgk": "12",
        "value+entries": "12",
        "value+size": "200",
    }
    parameter = Decimal(parameters[aggregate.signature]) if aggregate.signature in parameters else None
    several = (Decimal("0.25"), Decimal("0.5")) if aggregate.signature == "value+fractions" else ()
    outputs = [Output("", function, None, None, aggregate.output_type(None))] if aggregate.star else []
    for name, type in SCHEMA:
        if takes(aggregate, type):
            output_type = aggregate.output_type(type, by[1])
            output = Output("", function, Column(name), type, output_type, *by, parameter=parameter, parameters=several)
            outputs += [output, replace(output, error=Decimal("0.01"))] if aggregate.sketch else [output]
    return [replace(output, name=f"out_{number}") for number, output in enumerate(outputs)]


def in_order(function: str) -> list[Output]:
    """Outputs of values of each type in the order of time and in others."""
    keys = (None, (Column("volume"), LONG, False), (Column("due"), DATE, True), (Column("late"), BOOLEAN, True))
    outputs = []
    for (name, type), key in itertools.product(SCHEMA, keys):
        signature = AGGREGATES[function].signature
        if type == DOUBLE or (signature == "ordered" and (key is not None or not type.is_numeric)):
            continue
        has_separator = signature == "ordered+separator"
        separator, is_distinct = (", ", key is None and name != "volume") if has_separator else ("", False)
        argument = value_in_order(Column(name), type, "ts", key, separator, is_distinct)
        result = AGGREGATES[function].output_type(STRING)
        parameter = None if signature == "ordered" else Decimal(2)
        outputs.append(Output(f"out_{len(outputs)}", function, argument, STRING, result, None, type, parameter))
    return outputs


def made_of(output: Output) -> list[Output]:
    """Values made of an aggregate: whether there is one, the value itself, twice it."""
    part = replace(output, name="0", error=None)
    able = [Call("is_null", (Column("0"),)), Call("coalesce", (Column("0"), Column("0")))]
    able.append(Call("+", (Column("0"), Column("0"))))
    derived_outputs = []
    for number, expression in enumerate(able):
        try:
            type = derived_type(expression, {"0": part.type})
        except HeddleError:
            continue
        name = f"{output.name}_made_{number}"
        derived_outputs.append(Output(name, values.DERIVED, None, None, type, parts=(part,), expression=expression))
    return derived_outputs


def queries_of(function: str) -> list[ACQ]:
    """Everything that can be made of the aggregate answered by one, the others compare it and go by its order."""
    plain = outputs_of(function)
    derived = [derived_output for output in plain if output.type != BINARY for derived_output in made_of(output)]
    query = ACQ(
        function,
        "events",
        Window(2 * TICK, TICK),
        (*plain, *derived),
        None,
        (("carrier", values.STRING),),
        ("carrier",),
    )
    queries = [query]
    for number, output in enumerate(candidate for candidate in (*plain, *derived) if candidate.type != BINARY):
        is_present = Output(
            "",
            values.DERIVED,
            None,
            None,
            BOOLEAN,
            parts=(replace(output, name="0", error=None),),
            expression=Call("not", (Call("is_null", (Column("0"),)),)),
        )
        having = () if output.parts else (Condition(is_present, "=", Literal(True, BOOLEAN)),)
        top = Top(2, (Order(replace(output, name=""), True, True),))
        queries.append(replace(query, name=f"{function}_{number}", outputs=(output,), having=having, top=top))
    return queries


def expected_of(query: ACQ, plain: Sequence[Output], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that recomputing a query gives, from those of a query that answers each aggregate once."""
    of = {replace(output, name=""): output.name for output in plain}
    expected_rows = [{name: row[name] for name in ("window_start", "window_end", "carrier")} for row in rows]
    for output in (*query.outputs, *compared_outputs(query)):
        for part in recomputed_parts(output):
            name = of[replace(part, name="")]
            for row, expected_row in zip(rows, expected_rows, strict=True):
                expected_row |= {
                    part.name + key.removeprefix(name): value
                    for key, value in row.items()
                    if key == name or key.startswith(f"{name} ")
                }
    return expected_rows


def audited(function: str, recomputed: Callable[[pa.Table, ACQ, list[tuple[int, int]]], list[dict[str, Any]]]) -> None:
    """Everything that can be made of the aggregate is answered as an engine recomputes it."""
    table, queries = events(), queries_of(function)
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    begin, end = TICK, 4 * TICK
    answers = kernel_answers(Case(Workload(tuple(queries), (stream,)), table, begin, end), "shared", (), begin, end)
    spans = [(at - 2 * TICK, at) for at in range(2 * TICK, end + 1, TICK)]
    plain = outputs_of(function)
    rows = recomputed(table, replace(queries[0], outputs=tuple(plain)), spans)
    assert rows
    for query in queries:
        mismatches = compare(query, of_query(answers, query).to_pylist(), expected_of(query, plain, rows))
        assert mismatches == [], query


@pytest.mark.longer
@pytest.mark.parametrize("function", sorted(AGGREGATES))
def test_every_aggregate(spark: SparkSession, function: str) -> None:
    def by_spark(table: pa.Table, query: ACQ, spans: list[tuple[int, int]]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = recompute(spark.createDataFrame(table), query, "ts", spans).toArrow().to_pylist()
        return rows

    audited(function, by_spark)


@pytest.mark.parametrize("function", sorted(AGGREGATES))
def test_every_aggregate_by_duckdb(function: str) -> None:
    audited(function, lambda table, query, spans: recompute_here(table, query, "ts", spans))


def test_every_aggregate_has_an_audit() -> None:
    assert AUDITED.keys() == AGGREGATES.keys()
    families = {audit.family for audit in AUDITED.values()}
    assert ANSWERS.keys() <= families and EVIDENCE.keys() <= families
    for audit in AUDITED.values():
        names = audit.spark.split()
        assert bool(names) or audit.family in ANSWERS or audit.in_spark is not None
        assert audit.family in ANSWERS or all(hasattr(functions, name) for name in names)


@pytest.mark.longer
def test_an_audit_may_say_more_than_a_chain_of_functions(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AUDITED, "bit_xor", replace(AUDITED["bit_xor"], spark="", in_spark=lambda F, x: F.bit_xor(x)))
    test_every_aggregate(spark, "bit_xor")


def test_an_exact_answer_beyond_64_bits_is_null() -> None:
    output = Output("n", "bit_or", Column("volume"), LONG, LONG)
    pairs = [(None, 2**63), (2**63 - 1, 2**63), (2**63 - 1, 2**63 - 1), (None, -(2**63)), (None, None)]
    assert [agrees(output, value, {"n": recomputed}) for value, recomputed in pairs] == [True, False, True, False, True]
