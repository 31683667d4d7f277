"""The names that source code has in the wheel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from build_wheel import arrange, mapped

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from spark_jobs.engine.session import start", "from heddle._jobs.engine.session import start"),
        ("from optimizer import errors", "from heddle._optimizer import errors"),
        ("import optimizer.errors.codes as codes", "import heddle._optimizer.errors.codes as codes"),
        ("import os, spark_jobs as jobs", "import os, heddle._jobs as jobs"),
        ("if x:\n    from optimizer.plan import (\n        a,\n        b,\n    )\n", None),
        ('"spark.python.daemon.module": "spark_jobs.run.workers"', None),
        ('command = [python, "-m", "spark_jobs.engine.session"]', None),
        ('place = "spark_jobs/log4j2.properties"', 'place = "heddle/_jobs/log4j2.properties"'),
        ('f"{home}/spark_jobs/jobs/x.py"', 'f"{home}/heddle/_jobs/jobs/x.py"'),
        ('f"spark_jobs.{room}: {{optimizer.x}}"', 'f"heddle._jobs.{room}: {{heddle._optimizer.x}}"'),
        ('home / "spark_jobs" / "jobs"', 'home / "heddle/_jobs" / "jobs"'),
        ('f"from spark_jobs.engine import {step} as step"', 'f"from heddle._jobs.engine import {step} as step"'),
        ('code = """\nimport sys\nfrom optimizer.plan import x\n"""', None),
        ('"""See :mod:`optimizer.errors`, run by ``python -m spark_jobs.x``."""', None),
        ("x = 'optimizer/combine', 'spark_jobs'", "x = 'heddle/_optimizer/combine', 'heddle/_jobs'"),
    ],
)
def test_imports_modules_and_paths_have_the_names_of_the_wheel(source: str, expected: str | None) -> None:
    if expected is None:
        expected = source.replace("spark_jobs", "heddle._jobs").replace("optimizer", "heddle._optimizer")
    assert mapped(source) == expected
    assert mapped(expected) == expected


@pytest.mark.parametrize(
    "source",
    [
        "optimizer = make(optimizer)\noptimizer.step(spark_jobs=1)\n",
        "# from optimizer.plan import x\n",
        'hint = "the optimizer plans the sharing. The optimizer."\n',
        "from mine.spark_jobs import x\nfrom .optimizer import y\nimport my_optimizer.x as z\n",
        '"my_spark_jobs/x.py", "mine.optimizer.x", "no-optimizer/x"\n',
        'f"{optimizer}.{spark_jobs}/x"\n',
    ],
)
def test_other_names_stay(source: str) -> None:
    assert mapped(source) == source


def test_an_import_that_would_bind_another_name_is_refused() -> None:
    for source in ("import optimizer.errors\n", "import os, spark_jobs\n"):
        with pytest.raises(ValueError, match="line 1: import"):
            mapped(source)


def test_lines_stay_where_they_are() -> None:
    source = 'x = 1\nfrom optimizer.a import b; from spark_jobs.c import d\ny = """\noptimizer/a\n""", "spark_jobs"\n'
    assert mapped(source).count("\n") == source.count("\n") and mapped(source).count("heddle") == 4


def test_the_arranged_tree_is_heddle_and_nothing_else(tmp_path: Path) -> None:
    """Every module compiles, and none names a package that the wheel does not have."""
    arrange(ROOT, tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"heddle"}
    modules = [path for path in tmp_path.rglob("*.py") if "papers" not in path.parts]
    assert len(modules) > 400 and modules == list(tmp_path.rglob("*.py"))
    for path in modules:
        text = path.read_text(encoding="utf-8")
        compile(text, str(path), "exec")
        assert not re.search(r"(?m)^\s*(from|import) (optimizer|spark_jobs)\b", text), path
        assert not re.search(r"(?<![\w./-])(optimizer|spark_jobs)[./]\w", text), path
    data = ("schemas/streams.schema.json", "_jobs/log4j2.properties", "pages/templates/page.html.j2", "py.typed")
    assert all((tmp_path / "heddle" / name).is_file() for name in data)
