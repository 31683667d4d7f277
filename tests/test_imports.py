"""Import boundaries (design.md section 2), each in a process of its own, and what a JVM is not needed for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OWN = ("heddle", "optimizer", "spark_jobs", "plugins", "dags")
HEAVY = ("pyspark", "airflow", "pyarrow", "deltalake", "great_expectations", "jinja2", "py4j")


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
    paths = (path.relative_to(ROOT).with_suffix("") for path in (ROOT / "optimizer").rglob("*.py"))
    modules = sorted(".".join(path.parts) for path in paths if path.stem != "__init__")
    assert len(modules) > 20
    assert loaded("import optimizer, " + ", ".join(modules)) == set()


@pytest.mark.parametrize(
    "module",
    [
        "pipeline.planning.refresh",
        "results.read",
        "store.warehouse.warehouse",
        "streams.sources.decoding",
        "windows.partials.lifting",
        "windows.finals.stage",
    ],
)
def test_what_plans_and_reads_loads_no_spark(module: str) -> None:
    packages = loaded(f"import spark_jobs.{module}")
    assert packages <= {"pyarrow", "deltalake"}


def test_the_command_line_starts_without_anything_heavy() -> None:
    assert loaded("import heddle.cli.app") == set()


def test_dag_files_are_exported_without_airflow() -> None:
    assert loaded("import heddle.airflow, heddle.airflow.exporting, heddle.cli.dag_files") == set()


def test_templates_are_loaded_for_pages_only() -> None:
    """Not for a flowchart, and a page of a plan needs no table."""
    assert loaded("import heddle, heddle.pages.mermaid, heddle.pages.formats, spark_jobs.operations.values") == set()
    assert loaded("import heddle.pages.plan, heddle.pages.operations, heddle.pages.history") == {"jinja2"}
    assert loaded("import heddle.pages.refresh, heddle.pages.data_docs") == {"jinja2"}
    assert loaded("import heddle.pages.answers, heddle.pages.query, heddle.pages.streams, heddle.pages.trends") == {
        "jinja2"
    }
    # Airflow imports it wherever it loads plugins
    assert loaded("import heddle.pages.app") == set()


def test_only_the_pages_name_jinja() -> None:
    modules = [path for folder in OWN for path in (ROOT / folder).rglob("*.py")]
    assert len(modules) > 80
    naming = set()
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if {name.partition(".")[0] for name in names} & {"jinja2", "markupsafe"}:
                naming.add(path.relative_to(ROOT).as_posix())
    assert naming == {"heddle/pages/render.py"}


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
        "from typer.testing import CliRunner\nfrom heddle.cli.app import app\n"
        "for command in ('validate', 'plan', 'plan --format mermaid', 'explain q'):\n"
        "    done = CliRunner().invoke(app, [*command.split(), 'q.sql', '--streams', 'streams.yaml'])\n"
        "    assert done.exit_code == 0, done.output\n"
    )
    assert loaded(call, folder=tmp_path) & {"pyspark", "py4j", "airflow", "great_expectations", "jinja2"} == set()


def test_no_private_name_crosses_a_module() -> None:
    modules = {path: ast.parse(path.read_text()) for folder in OWN for path in (ROOT / folder).rglob("*.py")}
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules}
    crossing = []
    for path, tree in modules.items():
        imported = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OWN:
                private = [alias.name for alias in node.names if alias.name.startswith("_")]
                crossing += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name in private]
                imported |= {a.asname or a.name for a in node.names if f"{node.module}.{a.name}" in names}
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported):
                continue
            if node.attr.startswith("_") and not node.attr.startswith("__"):
                crossing.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.value.id}.{node.attr}")
    assert len(modules) > 150 and crossing == []
