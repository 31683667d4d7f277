"""The run that compiles kernels ahead publishes answers, so that it meets what runs meet."""

from __future__ import annotations

import pytest

from spark_jobs.pipeline.run import compiling


def test_the_run_that_compiles_is_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    compiling.main()
    assert capsys.readouterr().out.startswith("compiling the kernels of runs (once) ... ")
