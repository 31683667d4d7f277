"""Libraries that others import though nothing here needs them: most of what a short process costs is imports.

Nothing else is imported here: whoever asks for this does so before Arrow is there.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader
from threading import get_ident
from typing import Any


class Absent:
    """Within it one package is not there, for whoever does without it where it is not installed."""

    def __init__(self, name: str) -> None:
        self.name, self.thread = name, get_ident()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Refuse one name to the thread that made this, leave all others to the finders behind."""
        if name == self.name and get_ident() == self.thread:
            raise ModuleNotFoundError("not looked for", name=name)

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *ending: object) -> None:
        sys.meta_path.remove(self)


class Deferred:
    """Within it some modules are imported with their first use, for whoever imports more than it uses."""

    def __init__(self, *names: str) -> None:
        self.names, self.thread = frozenset(names), get_ident()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """What the finders behind find, to be loaded later; nothing of other names, or to other threads."""
        if name not in self.names or get_ident() != self.thread:
            return None
        behind = [finder for finder in sys.meta_path if not isinstance(finder, Deferred)]
        found = next(filter(None, (finder.find_spec(name, path, target) for finder in behind)), None)
        if found is not None and found.loader is not None:
            found.loader = LazyLoader(found.loader)
        return found

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *ending: object) -> None:
        sys.meta_path.remove(self)


class FlatCopies:
    """Within it classes of Pydantic 1 inherit fields that are copied as deep as a class changes them: not their types,
    which is most of what hundreds of such classes take to be made."""

    def __enter__(self) -> None:
        try:
            from pydantic.v1 import main
        except ImportError:
            self.main: Any = None
            return
        self.main, self.copied = main, getattr(main, "smart_deepcopy", None)
        if self.copied is not None:
            main.smart_deepcopy = _copied_fields  # type: ignore[assignment]

    def __exit__(self, *ending: object) -> None:
        if self.main is not None and self.copied is not None:
            self.main.smart_deepcopy = self.copied


def _copied_fields(value: Any) -> Any:
    """Fields by name; whatever else a class copies as it is copied otherwise."""
    from pydantic.v1.fields import ModelField

    if type(value) is dict and all(type(field) is ModelField for field in value.values()):
        return {name: _copied_field(field) for name, field in value.items()}
    return copy.deepcopy(value)


def _copied_field(field: Any) -> Any:
    found = copy.copy(field)
    found.field_info = copy.copy(field.field_info)
    found.class_validators = dict(field.class_validators)
    if field.sub_fields:
        found.sub_fields = [_copied_field(one) for one in field.sub_fields]
    if field.key_field is not None:
        found.key_field = _copied_field(field.key_field)
    return found


class Uncollected:
    """Within it no garbage is looked for: among a thousand modules there is none, and to look takes a fifth of their
    import."""

    def __enter__(self) -> None:
        self.enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *ending: object) -> None:
        if self.enabled:
            gc.enable()


def set_aside() -> None:
    """Look for garbage in what there is no more, also when the process ends: to look through modules then takes a fifth
    of a short command. Not once DuckDB is there, which tells of each of its types that nobody has collected."""
    if "_duckdb" not in sys.modules:
        gc.freeze()


def numba_alone() -> None:
    """Load Numba without the BLAS of SciPy, for which it asks with its first kernel; no kernel here has any."""
    if "numba" not in sys.modules:
        with Absent("scipy.linalg"):
            import_module("numba.np.arraymath")


def arrow_alone() -> None:
    """Load Arrow without pandas, of which nothing here gives it any values, and NumPy without the threads of BLAS."""
    # they take longer to start than NumPy to load, and nothing here multiplies matrices
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "pandas" not in sys.modules and "pyarrow" not in sys.modules:
        # Arrow imports it (half a second) with its first array, to know its types by
        with Absent("pandas"):
            import pyarrow

            pyarrow.array([0])
