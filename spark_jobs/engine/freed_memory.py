"""Freed memory is reused, not given back to the system.

A run frees and takes arrays of many megabytes all the time. By default the C library and Arrow return them to the
system, which clears each page that is taken again.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

MOST_KEPT = 1_000_000_000
"""Bytes of freed memory that a process keeps, and of an array that it reuses."""

SMALL_PAGES = {"NUMPY_MADVISE_HUGEPAGE": "0"}
"""Environment, read when NumPy is imported, in which it takes no huge pages for arrays: what the system has cleared is
still in the cache when a small page is filled."""

KEEPING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_TRIM_THRESHOLD_": str(MOST_KEPT),
    "MALLOC_MMAP_THRESHOLD_": str(MOST_KEPT),
} | SMALL_PAGES
"""Environment of processes that keep what they free."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt``."""


@cache
def keep_freed_memory() -> bool:
    """Keep what this process frees from now on, as :data:`KEEPING` has others do. Returns whether it does.

    Not where the C library is not glibc, nor if the environment sets one of the variables: the user decides.
    """
    if sys.platform != "linux" or (KEEPING.keys() - SMALL_PAGES.keys()) & os.environ.keys():
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    import pyarrow as pa

    for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
        library.mallopt(parameter, MOST_KEPT)
    pa.set_memory_pool(pa.system_memory_pool())
    return True


def give_back() -> None:
    """Return the memory that :func:`keep_freed_memory` kept to the system: a process may live long after a run."""
    if keep_freed_memory.cache_info().currsize and keep_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)
