"""A process that imports Airflow and Heddle once and runs each script in a fork of it: the imports take 4 CPU seconds.

It reads a line of JSON for each script from standard input, and answers with the script's exit code.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from typing import Any

IMPORTED = (
    "airflow.dag_processing.dagbag",
    "airflow.utils.db",
    "heddle.airflow.plugin",
    "heddle.pages.served",
    "spark_jobs.pipeline.planning.refresh",
)


def main() -> None:
    """Run scripts one after the other until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in IMPORTED:
        import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            answers.close()
            sys.exit(run(**json.loads(line)))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def run(script: str, arguments: list[str], environment: dict[str, str], folder: str, out: str, err: str) -> int:
    """Run a script as ``python -c`` would: with this environment, in this folder, its output in these two files."""
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        os.dup2(os.open(path, flags | os.O_CREAT), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["-c", *arguments]

    from airflow import settings

    # the database and the folders of the environment
    settings.configure_vars()
    settings.configure_orm()
    variables: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(script, "<script>", "exec"), variables)  # noqa: S102
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
