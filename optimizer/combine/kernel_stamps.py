"""Compile kernels again if what they call in another module changes.

Numba stores a compiled kernel next to its module and loads it while the text of that module is the same. The kernel
contains the kernels of other modules that it calls, and the constants that it imports with them. Without a longer stamp
it would answer with their former code.
"""

from __future__ import annotations

import hashlib
from typing import Any

from numba.core.dispatcher import Dispatcher


def stamp_kernels(module: dict[str, Any]) -> None:
    """Extend the stamps of a module's kernels by those of the kernels that it imports.

    ``module``: its ``globals()``. A module that calls kernels of another one ends with this call.
    """
    kernels: list[Any] = [value for value in module.values() if isinstance(value, Dispatcher)]
    own = [kernel for kernel in kernels if kernel.py_func.__module__ == module["__name__"]]
    imported = {repr(_stored(kernel)) for kernel in kernels if kernel not in own}
    digest = hashlib.sha256("".join(sorted(imported)).encode()).hexdigest()
    for kernel in own:
        kernel._cache._cache_file._source_stamp = (_stored(kernel), digest)


def _stored(kernel: Any) -> object:
    """The stamp under which Numba stores a kernel."""
    return kernel._cache._cache_file._source_stamp
