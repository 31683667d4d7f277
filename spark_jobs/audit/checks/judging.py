"""Great Expectations as a judge of frames: its own core classes, on pandas in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from optimizer.errors.diagnostics import printable
from spark_jobs.audit.checks.expected import ExpectationRequest, Frame, Judged, Template, frame_of
from spark_jobs.audit.checks.suite import great_expectations
from spark_jobs.engine.light_imports import Uncollected


class PandasJudge:
    """Judges frames on pandas.

    ``results``: what Great Expectations returned of each template, with the frames that it was about.
    """

    def __init__(self) -> None:
        gx = great_expectations()
        self._expectations, self._suite_class = gx.expectations, gx.ExpectationSuite
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_pandas("expected").add_dataframe_asset("rows")
        self._batches = asset.add_batch_definition_whole_dataframe("all")
        self.results: list[tuple[Any, Sequence[Frame]]] = []

    def __call__(self, template: Template, frames: Sequence[Frame]) -> list[Judged]:
        """Judge frames of one template, all of whose rows are put below one another."""
        try:
            with Uncollected():
                result = self.validated(template, frames)
        except Exception as error:
            # whatever it cannot do, no answers are published for that
            return [Judged(False, None, printable(f"{type(error).__name__}: {error}", 300))] * len(frames)
        self.results.append((result, frames))
        return verdicts_of(result, template, frames)

    def validated(self, template: Template, frames: Sequence[Frame]) -> Any:
        """Result of Great Expectations on the rows of some frames."""
        import pandas as pd

        if template.columns:
            names = list(frames[0].columns)
            columns = {name: [frame.columns[name] for frame in frames] for name in names}
            data = pd.DataFrame(
                {
                    name: parts[0] if len(parts) == 1 else pd.concat([*map(pd.Series, parts)], ignore_index=True)
                    for name, parts in columns.items()
                }
            )
        else:
            data = pd.DataFrame(index=range(frames[0].size))
        batch = self._batches.get_batch(batch_parameters={"dataframe": data})
        return batch.validate(
            self._suite_class("expected", expectations=[expectation_of(self._expectations, template)]),
            result_format={"result_format": "COMPLETE", "return_unexpected_index_query": False},
        ).results[0]


def validated_alone(judge: PandasJudge, name: str, requests: Sequence[ExpectationRequest]) -> Any:
    """The result of Great Expectations on the expectations of one query, as a suite of its own for Data Docs."""
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult

    results = []
    for number, request in enumerate(requests, 1):
        if not request.skipped:
            frame = _named(frame_of(request, number))
            results.append(judge.validated(frame.template, [frame]))
    met = sum(bool(result.success) for result in results)
    statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": met,
        "unsuccessful_expectations": len(results) - met,
        "success_percent": 100 * met / len(results) if results else None,
    }
    versions = {"great_expectations_version": great_expectations().__version__}
    meta = versions | {"run_id": {"run_name": name, "run_time": datetime.now(UTC).isoformat()}}
    return ExpectationSuiteValidationResult(
        success=met == len(results), results=results, suite_name=name, statistics=statistics, meta=meta
    )


def _named(frame: Frame) -> Frame:
    """The frame of one value, under the name of its column."""
    columns = frame.request.expectation.columns
    if list(frame.columns) != ["value"] or len(columns) != 1:
        return frame
    template = replace(frame.template, columns=(("column", columns[0]),))
    return replace(frame, template=template, columns={columns[0]: frame.columns["value"]})


def expectation_of(classes: Any, template: Template) -> Any:
    """The object of Great Expectations that a template is."""
    arguments = {name: list(value) if isinstance(value, tuple) else value for name, value in template.arguments}
    columns = {name: list(value) if isinstance(value, tuple) else value for name, value in template.columns}
    return getattr(classes, template.name)(**columns, **arguments)


def verdicts_of(result: Any, template: Template, frames: Sequence[Frame]) -> list[Judged]:
    """The verdict on each frame, out of a result on all of their rows."""
    problem = problem_of(result)
    if problem:
        return [Judged(False, None, problem)] * len(frames)
    if frames[0].wrong is None and template.name == "ExpectTableRowCountToBeBetween":
        return [Judged(bool(result.success))]
    wrong = np.sort(np.array(result.result.get("unexpected_index_list") or [], dtype=np.int64))
    edges = np.cumsum([0, *(frame.size for frame in frames)])
    cuts = np.searchsorted(wrong, edges)
    share = dict(template.arguments)["mostly"]
    verdicts = []
    for number, frame in enumerate(frames):
        own = wrong[cuts[number] : cuts[number + 1]] - edges[number]
        if frame.wrong is None:
            verdicts.append(Judged(not len(own)))
            continue
        # as Great Expectations does for all of its rows
        is_right = not frame.total or float(frame.total - len(own)) / frame.total >= share
        verdicts.append(Judged(bool(result.success) if len(frames) == 1 else is_right, own))
    return verdicts


def problem_of(result: Any) -> str:
    """Return what Great Expectations raised while it judged, "" if it did not."""
    errors = result.exception_info or {}
    each = [errors] if "raised_exception" in errors else list(errors.values())
    raised = "; ".join(str(info["exception_message"]) for info in each if info["raised_exception"])
    return printable(raised, 300)
