"""Single faults in each place are refused by the sample audit: some of what ``tests.benchmarks.audit_power`` draws."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

FAULTS = {
    "lifting": "spark_jobs.windows.partials.kernels:add_where:Mult becomes Add",
    "sharding": "spark_jobs.windows.partials.families:LiftingGroup.lift:Add becomes Sub",
    "decoding": "spark_jobs.streams.sources.csv_source:_raw:True becomes False",
}

MORE = {
    "lifting": "spark_jobs.windows.partials.lifting:Lifting._lift:Eq becomes NotEq",
    "lowering": "optimizer.aggregates.lowering:_as_doubles:NotEq becomes Eq",
    "filters and expressions": "spark_jobs.streams.sources.expressions:_case:Eq becomes NotEq",
}


def are_refused(tmp_path: Path, faults: dict[str, str], runs: int) -> None:
    json_path = tmp_path / "outcomes.json"
    options = [option for fault in faults.values() for option in ("--fault", fault)]
    command = [sys.executable, "-m", "tests.benchmarks.audit_power", "--events", "100", "--runs", str(runs), *options]
    done = subprocess.run([*command, "--json", str(json_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(json_path.read_text())
    assert {outcome["place"] for outcome in outcomes} == set(faults)
    assert {outcome["kind"] for outcome in outcomes} == {"refused"}, outcomes


def test_single_faults_are_refused(tmp_path: Path) -> None:
    are_refused(tmp_path, FAULTS, 1)


@pytest.mark.slow
def test_more_single_faults_are_refused(tmp_path: Path) -> None:
    are_refused(tmp_path, MORE, 4)
