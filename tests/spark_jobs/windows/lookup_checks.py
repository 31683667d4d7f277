"""Look-ups of a query compared with its answers, and the command that looks up."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.windows.alignment import instants
from optimizer.workload.values import ACQ, DOUBLE, Stream, Workload
from spark_jobs.windows.loading import QueryLookups
from tests.sizes import examples
from tests.spark_jobs.windows.partial_cases import STREAM
from tests.workloads import Case

FAST = settings(
    max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


def check_instants(query: ACQ, found: QueryLookups, table: pa.Table, case: Case) -> None:
    """Each way to ask for one instant tells what ``between`` tells of it."""
    moments = instants(query.window, case.begin, case.end)
    if len(moments) == 0:
        return
    groups = [query.select[at] if query.select else name for at, (name, _) in enumerate(query.group_by)]
    # what is made of sums of doubles may depend on their last bit
    told_alike = [output for output in query.outputs if not any(part.type == DOUBLE for part in output.parts)]
    outputs = [output.name for output in told_alike]
    known = {}
    for row in rows_of(table):
        at = row["window_end"] if not query.window.ago else row["instant"]
        key = pa.scalar(at, pa.timestamp("us", "UTC")).value, tuple(map(repr, (row[name] for name in groups)))
        known[key] = row
    later = moments + min(query.window.slide, 3) - 1
    if query.top is None:
        batch = found.batch(later)
    else:
        with pytest.raises(HeddleError, match="HDL-609"):
            found.batch(later)
    for place, moment in enumerate(moments.tolist()):
        singly = found.at(moment)
        moment_rows = [row for (at, _), row in known.items() if at == moment]
        assert list(map(repr, rows_of(singly.select(outputs)))) == [
            repr({name: row[name] for name in outputs}) for row in moment_rows
        ]
        for number, group in enumerate(found.groups):
            row = known.get((moment, tuple(map(repr, group))))
            answer = found.single(int(later[place]), *group)
            assert (answer is None) == (row is None)
            if row is not None and answer is not None:
                values = {output.name: value for output, value in zip(query.outputs, answer, strict=True)}
                assert [alike(values[name]) for name in outputs] == [alike(row[name]) for name in outputs]
            for output in told_alike if query.top is None else ():
                values, valid = batch[output.name]
                expected_value = None if row is None else row[output.name]
                assert valid[number, place] == (expected_value is not None)
                if expected_value is not None and output.type.name in ("long", "double", "string"):
                    assert alike(values[number, place].item() if values.dtype != object else values[number, place]) == (
                        alike(expected_value)
                    )


def alike(value: Any) -> Any:
    """Doubles up to the rounding of sums that are put together in another order, which can cancel."""
    if isinstance(value, float):
        return "NaN" if value != value else pytest.approx(value, rel=1e-9, abs=1e-9)
    return value


def workload_of(text: str, stream: Stream = STREAM) -> Workload:
    parsed = parse(text, {stream.name: stream})
    assert parsed.diagnostics == ()
    return Workload(parsed.queries, (stream,))


def heddle(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["lookup", *arguments])
    return done.exit_code, done.stdout, done.stderr
