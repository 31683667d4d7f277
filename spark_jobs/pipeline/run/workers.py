"""The process that Spark forks its Python workers from: what their tasks import is imported once, here, not in each.

Spark collects the garbage of a worker after each task, which takes a sixth of a second among all the objects of our
libraries. So those are set aside: here before a worker is forked, in a worker once a task has imported more.
"""

import gc
import sys
from typing import Any

from spark_jobs.engine.light_imports import arrow_alone, numba_alone

# what is imported here lives as long as the process
gc.disable()
arrow_alone()
numba_alone()

import pyspark.worker  # noqa: E402
from pyspark.daemon import manager  # noqa: E402

_known = len(sys.modules)

_spark_main = pyspark.worker.main


def main(infile: Any, outfile: Any) -> None:
    """Run one task as Spark's own workers do, and exempt new modules from garbage collection."""
    global _known
    _spark_main(infile, outfile)
    if len(sys.modules) > _known:
        gc.collect()
        gc.freeze()
        _known = len(sys.modules)


if __name__ == "__main__":
    pyspark.worker.main = main
    gc.freeze()
    gc.enable()
    manager()
