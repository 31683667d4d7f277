"""Import boundaries (design.md section 2), each in a process of its own, and what a JVM is not needed for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("pyspark", "airflow", "pyarrow", "deltalake", "great_expectations", "py4j")


def loaded(statement: str, *arguments: str, folder: Path | None = None) -> set[str]:
    """Which of the heavy packages a statement loads; it has to succeed."""
    report = f"import sys; print('LOADED', *({{name.partition('.')[0] for name in sys.modules}} & set({HEAVY!r})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{report}", *arguments],
        cwd=folder or ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "JAVA_HOME": "", "HOME": str(folder or ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    return set(line.split()[1:])


def test_the_optimizer_is_pure_python_and_numpy() -> None:
    found = (path.relative_to(ROOT).with_suffix("") for path in (ROOT / "optimizer").rglob("*.py"))
    modules = sorted(".".join(path.parts) for path in found if path.stem != "__init__")
    assert len(modules) > 20
    assert loaded("import optimizer, " + ", ".join(modules)) == set()


@pytest.mark.parametrize("module", ["planning", "read", "tables", "sources", "partial_aggregates", "final_aggregates"])
def test_what_plans_and_reads_loads_no_spark(module: str) -> None:
    found = loaded(f"import spark_jobs.{module}")
    assert found <= {"pyarrow", "deltalake"}


def test_the_command_line_starts_without_anything_heavy() -> None:
    assert loaded("import spark_jobs.cli") == set()


def test_planning_needs_no_jvm(tmp_path: Path) -> None:
    """Validate and plan over a Parquet stream with no Java on the path, without loading Spark."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"ts": pa.array([0, 60_000_000], pa.timestamp("us")), "x": [1, 2]}), tmp_path / "e.parquet")
    (tmp_path / "streams.yaml").write_text(
        "streams:\n  events:\n    source: {format: parquet, path: e.parquet}\n    time: ts\n"
    )
    (tmp_path / "q.sql").write_text(
        "-- name: q\nSELECT sum(x) AS s FROM events WINDOW RANGE '1 minute' SLIDE '1 minute' ON ts;\n"
    )
    call = (
        "from typer.testing import CliRunner\nfrom spark_jobs.cli import app\n"
        "for command in ('validate', 'plan', 'explain q'):\n"
        "    done = CliRunner().invoke(app, [*command.split(), 'q.sql', '--streams', 'streams.yaml'])\n"
        "    assert done.exit_code == 0, done.output\n"
    )
    assert loaded(call, folder=tmp_path) & {"pyspark", "py4j", "airflow", "great_expectations"} == set()
