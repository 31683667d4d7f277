"""Import hooks, all that there are: libraries import others that nothing here needs, which is most of a short process.

CPU seconds of an import (``python -m tests.benchmarks.imports``): Great Expectations 1.8 with all hooks, 3.5 without
:class:`Absent`, 4.5 without :class:`Deferred`, 6.6 with none; Arrow 0.2 instead of 0.6; Numba 0.6 instead of 0.85.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader
from threading import get_ident
from typing import Any

from spark_jobs.engine.freed_memory import SMALL_PAGES


class _Hook:
    """Within it the thread that made it imports some modules otherwise."""

    def __init__(self, *names: str) -> None:
        self.names, self.thread = frozenset(names), get_ident()

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def __exit__(self, *ending: object) -> None:
        sys.meta_path.remove(self)  # type: ignore[arg-type]

    def _is_meant(self, name: str) -> bool:
        return name in self.names and get_ident() == self.thread


class Absent(_Hook):
    """The modules are not installed, for an importer that does without them then."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Refuse the modules; leave all others to the finders behind."""
        if self._is_meant(name):
            raise ModuleNotFoundError("not looked for", name=name)


class Deferred(_Hook):
    """The modules are loaded with their first use."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the module with the other finders, and defer its loading."""
        if not self._is_meant(name):
            return None
        behind = [finder for finder in sys.meta_path if not isinstance(finder, Deferred)]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in behind)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


class Uncollected:
    """Within it no garbage is looked for: a thousand modules that are imported have none."""

    def __enter__(self) -> None:
        self.enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *ending: object) -> None:
        if self.enabled:
            gc.enable()


def set_aside() -> None:
    """Leave what is loaded out of garbage collection, also when the process ends. Not once DuckDB is there, which then
    complains of its types that nobody collected."""
    if "_duckdb" not in sys.modules:
        gc.freeze()


def numba_alone() -> None:
    """Load Numba without the BLAS of SciPy: no kernel here has linear algebra."""
    if "numba" not in sys.modules:
        with Absent("scipy.linalg"):
            import_module("numba.np.arraymath")


def arrow_alone() -> None:
    """Load Arrow without pandas, and NumPy with small pages and without the threads of BLAS: nothing here multiplies
    matrices."""
    for name, value in ({"OPENBLAS_NUM_THREADS": "1"} | SMALL_PAGES).items():
        os.environ.setdefault(name, value)
    if "pandas" not in sys.modules and "pyarrow" not in sys.modules:
        with Absent("pandas"):
            # Arrow looks for pandas with its first array
            import_module("pyarrow").array([0])
