"""How windows of each kind are worked out: the one table that tells the kinds apart in a run.

Its functions import what they name when they are called: the workers that lift events compile no kernels of answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from optimizer.workload.values import WindowKind


def _lifts_time() -> Any:
    from spark_jobs.windows.partials.lifting import Lifting

    return Lifting


def _lifts_sequences() -> Any:
    from spark_jobs.windows.sequences.lifting import SequenceLifting

    return SequenceLifting


def _derives_cells() -> Any:
    from spark_jobs.windows.partials.derivation import Derivation

    return Derivation


def _derives_sequences() -> Any:
    from spark_jobs.windows.sequences.derivation import SequenceDerivation

    return SequenceDerivation


def _answers_time() -> Any:
    from spark_jobs.windows.finals.stage import finals_task

    return finals_task


def _answers_rows() -> Any:
    from spark_jobs.windows.finals.stage import finals_task
    from spark_jobs.windows.row_windows.answers import row_answers

    return partial(finals_task, answering=row_answers)


def _answers_sequences() -> Any:
    from spark_jobs.windows.sequences.stage import sequence_task

    return sequence_task


@dataclass(frozen=True)
class KindOfWindow:
    """``lifting``: names the class that lifts the events of a stream, in any order, into cells (of rows it counts those
    of each day; they are numbered and lifted afterwards, :mod:`spark_jobs.pipeline.run.rows_stage`). ``deriving``:
    names the class that makes rows of those of other synopses. ``answering``: names what makes the tasks of the final
    stage. ``by_days``: partial rows have whole days, from midnight. ``is_predicted``: the cost model knows what they
    cost.
    """

    lifting: Callable[[], Any]
    deriving: Callable[[], Any]
    answering: Callable[[], Any]
    by_days: bool
    is_predicted: bool


KINDS = {
    WindowKind.TIME: KindOfWindow(_lifts_time, _derives_cells, _answers_time, by_days=False, is_predicted=True),
    WindowKind.ROWS: KindOfWindow(_lifts_time, _derives_cells, _answers_rows, by_days=False, is_predicted=False),
    WindowKind.SEQUENCE: KindOfWindow(
        _lifts_sequences, _derives_sequences, _answers_sequences, by_days=True, is_predicted=False
    ),
}
