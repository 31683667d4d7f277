"""Great Expectations' Spark engine as a judge of large frames; small ones are judged on pandas.

Spark compares integers exactly, and texts and booleans as pandas does. Doubles, times and everything else that pandas
is given as verdicts are verdicts here, too. So both engines give the same verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from optimizer.errors.diagnostics import printable
from spark_jobs.audit.checks.expected import Frame, Judged, Template, verdicts_template
from spark_jobs.audit.checks.judging import PandasJudge, expectation_of, problem_of
from spark_jobs.audit.checks.suite import great_expectations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE = 1_000_000
"""Rows of a frame from which on Spark judges it: less takes longer to hand over than to judge."""

_KINDS = {"long": "bigint", "string": "string", "boolean": "boolean"}
"""Kinds of values that Spark compares as we do, with their types there."""


class SparkJudge:
    """Judges large frames on Spark, each by itself, and all others by another judge.

    - ``session``: gives the session, which is started only if there is a large frame.
    - ``other``: judges what is small, and everything if Great Expectations was imported without Spark.
    """

    def __init__(
        self, session: Callable[[], SparkSession | None], other: PandasJudge, least: int | None = None
    ) -> None:
        self._session, self._other, self._least = session, other, LARGE if least is None else least
        self._batches: Any = None

    def __call__(self, template: Template, frames: Sequence[Frame]) -> list[Judged]:
        """Judge frames of one template."""
        is_small = [frame.wrong is None or frame.size < self._least for frame in frames]
        if all(is_small) or not self._is_possible():
            return self._other(template, frames)
        others = [frame for frame, each in zip(frames, is_small, strict=True) if each]
        small = iter(self._other(template, others) if others else ())
        return [next(small) if each else self._judged(frame) for frame, each in zip(frames, is_small, strict=True)]

    def _is_possible(self) -> bool:
        """Return whether Great Expectations has Spark, and a session of a kind that it knows."""
        great_expectations()
        from great_expectations.compatibility import pyspark

        session = self._session() if pyspark.functions else None
        return session is not None and not type(session).__module__.startswith("pyspark.sql.connect")

    def _judged(self, frame: Frame) -> Judged:
        try:
            result = self._validated(_for_spark(frame))
        except Exception as error:
            # whatever it cannot do, no answers are published for that
            return Judged(False, None, printable(f"{type(error).__name__}: {error}", 300))
        problem = problem_of(result)
        if problem:
            return Judged(False, None, problem)
        return Judged(bool(result.success), None, "", int(result.result["unexpected_count"]))

    def _validated(self, frame: Frame) -> Any:
        import pandas as pd

        gx, session = great_expectations(), self._session()
        assert session is not None
        if self._batches is None:
            context = gx.get_context(mode="ephemeral")
            context.variables.progress_bars = {"globally": False}
            asset = context.data_sources.add_spark("expected", persist=False).add_dataframe_asset("rows")
            self._batches = asset.add_batch_definition_whole_dataframe("all")
        # a sentence may have dots, which Spark reads as paths
        names = {name: f"column_{number}" for number, name in enumerate(frame.columns)}
        columns = {names[name]: pd.Series(values).astype(object) for name, values in frame.columns.items()}
        data = pd.DataFrame({name: values.where(values.notna(), None) for name, values in columns.items()})
        kinds = [*frame.kinds, *frame.kinds][: len(columns)]
        schema = ", ".join(f"{name} {_KINDS[kind]}" for name, kind in zip(columns, kinds, strict=True))
        batch = self._batches.get_batch(batch_parameters={"dataframe": session.createDataFrame(data, schema)})
        template = replace(
            frame.template, columns=tuple((key, _renamed(value, names)) for key, value in frame.template.columns)
        )
        suite = gx.ExpectationSuite("expected", expectations=[expectation_of(gx.expectations, template)])
        return batch.validate(suite, result_format="SUMMARY").results[0]


def _renamed(value: str | tuple[str, ...], names: dict[str, str]) -> str | tuple[str, ...]:
    return names[value] if isinstance(value, str) else tuple(names[each] for each in value)


def _for_spark(frame: Frame) -> Frame:
    """The frame with values that Spark compares as we do, else with our verdicts."""
    assert frame.wrong is not None and frame.counted is not None
    if all(kind in _KINDS for kind in frame.kinds):
        return frame
    template, columns = verdicts_template(frame.request.expectation, frame.wrong, frame.counted)
    return replace(frame, template=template, columns=columns)
