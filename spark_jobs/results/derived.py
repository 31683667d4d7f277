"""Compute values of aggregates: an expression over the lowered parts, exact, with an overflow mask for what does
not fit.

Null, NaN and divisions by zero are as everywhere in the language (:mod:`spark_jobs.streams.sources.expressions`).
What is not proven to fit 64 bits or 38 digits (:mod:`optimizer.workload.derived`) is computed in integers of any
size first.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates.states import Lowered, carrier_of
from optimizer.workload.derived import derived_call_type, derived_type, may_overflow
from optimizer.workload.values import Call, Column, Expression, Output, Type
from spark_jobs.results.rows import typed
from spark_jobs.streams.sources.expressions import arrow_type, evaluate


def derived(output: Output, parts: Sequence[Lowered]) -> Lowered:
    """A derived output over some answers (a,), of its parts over the same.

    Where a part overflows, or the arithmetic over them does, it is null and overflows.
    """
    assert output.expression is not None
    rows = len(parts[0].valid)
    part_values = {part.name: as_typed(lowered, part.type) for part, lowered in zip(output.parts, parts, strict=True)}
    over = np.zeros(rows, dtype=bool)
    for part in parts:
        if part.overflow is not None:
            over |= part.overflow
    values = _Checked(part_values, {part.name: part.type for part in output.parts}, over).of(output.expression)
    type_ = derived_type(output.expression, {part.name: part.type for part in output.parts})
    lowered_values = lowered_of(values, type_)
    return Lowered(lowered_values.values, lowered_values.valid & ~over, over if over.any() else None)


def as_typed(lowered: Lowered, type: Type) -> pa.Array:
    """Lowered values in the Arrow type of their output; null where they are not valid."""
    return typed(pa.array(lowered.values, mask=~np.asarray(lowered.valid, dtype=bool)), type)


def lowered_of(values: pa.Array, type: Type) -> Lowered:
    """Typed values as :class:`Lowered` has them."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    carrier = carrier_of(type)
    stored: NDArray[Any]
    if carrier == "texts":
        texts = [
            None if scalar is None else format(scalar, "f") if type.name == "decimal" else scalar
            for scalar in values.to_pylist()
        ]
        stored = np.array([*texts, None], dtype=object)[:-1]
    elif carrier == "doubles":
        stored = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    else:
        longs = values.cast(pa.int32()) if type.name == "date" else values
        stored = pc.fill_null(longs.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return Lowered(stored, valid)


class _Checked:
    """Evaluates an expression over the columns of parts; ``over`` (n,) gets true where a value does not fit."""

    def __init__(self, columns: dict[str, pa.Array], types: dict[str, Type], over: NDArray[np.bool_]) -> None:
        self.columns, self.types, self.over = dict(columns), dict(types), over

    def of(self, expression: Expression) -> pa.Array:
        """The values (n,) of an expression."""
        return self._evaluated(self._narrowed(expression))

    def _evaluated(self, proven: Expression) -> pa.Array:
        batch = pa.RecordBatch.from_arrays(list(self.columns.values()), names=list(self.columns))
        return evaluate(proven, batch, self.types)

    def _narrowed(self, expression: Expression) -> Expression:
        """The expression with columns for what cannot be proven to fit, which are computed here."""
        if not isinstance(expression, Call):
            return expression
        call = Call(expression.function, tuple(self._narrowed(argument) for argument in expression.arguments))
        types = [derived_type(argument, self.types) for argument in call.arguments]
        if not may_overflow(call, types):
            return call
        name, type_ = f"checked {len(self.columns)}", derived_call_type(call.function, types, call.arguments)
        arguments = [self._evaluated(argument) for argument in call.arguments]
        self.columns[name], self.types[name] = self._exactly(call.function, arguments, type_), type_
        return Column(name)

    def _exactly(self, function: str, arguments: list[pa.Array], type: Type) -> pa.Array:
        compute = _EXACT[function]
        values: list[Any] = []
        with localcontext(prec=100):
            for row, operands in enumerate(zip(*(argument.to_pylist() for argument in arguments), strict=True)):
                value = None if None in operands else compute(*map(Decimal, operands))
                if value is not None and not _fits(value, type):
                    self.over[row], value = True, None
                values.append(int(value) if value is not None and type.name == "long" else value)
        return pa.array(values, arrow_type(type))


def _fits(value: Decimal, type: Type) -> bool:
    if type.name == "long":
        return -(2**63) <= value < 2**63
    return abs(value) < Decimal(10) ** (type.precision - type.scale)


_EXACT: dict[str, Any] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "neg": lambda value: -value,
    "abs": abs,
}
