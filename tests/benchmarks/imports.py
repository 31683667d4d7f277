"""What each import hook of :mod:`spark_jobs.engine.light_imports` saves: CPU seconds of processes that import and end.

python -m tests.benchmarks.imports [--rounds N]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from statistics import median

from rich.console import Console
from rich.table import Table

SUITE = "from spark_jobs.audit.checks import suite; suite.great_expectations()"

WITHOUT = """
from contextlib import nullcontext
from spark_jobs.engine import light_imports
for name in {names!r}:
    setattr(light_imports, name, lambda *given: nullcontext())
"""

HOOKS = ("Absent", "Deferred", "Uncollected")

CODES = {
    "Great Expectations, all hooks": SUITE,
    **{f"Great Expectations without {name}": WITHOUT.format(names=(name,)) + SUITE for name in HOOKS},
    "Great Expectations, none": WITHOUT.format(names=HOOKS) + SUITE,
    "Arrow alone": "from spark_jobs.engine.light_imports import arrow_alone; arrow_alone()",
    "Arrow": "import pyarrow; pyarrow.array([0])",
    "Numba alone": "from spark_jobs.engine.light_imports import numba_alone; numba_alone()",
    "Numba": "from numba.np import arraymath",
}


def main() -> int:
    """Measure in turns and print; the exit code."""
    parser = argparse.ArgumentParser(description="what import hooks save")
    parser.add_argument("--rounds", type=int, default=5)
    seconds_by_import: dict[str, list[float]] = {name: [] for name in CODES}
    for number in range(parser.parse_args().rounds + 1):
        for name, code in CODES.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if number:  # the first one finds no compiled modules
                seconds_by_import[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    table = Table("import", "CPU-s", "least")
    for name, values in seconds_by_import.items():
        table.add_row(name, f"{median(values):.2f}", f"{min(values):.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
