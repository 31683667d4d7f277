"""Kernels are compiled again if a kernel or a constant changes that they take from another module."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

ROOT = Path(__file__).parents[2]

CALLED = """
from numba import njit

@njit(cache=True)
def step(number):
    return number + {}
"""
CALLER = """
from numba import njit
from called_kernels import step
from optimizer.combine.kernel_stamps import stamp_kernels

@njit(cache=True)
def twice(number):
    return step(step(number))

stamp_kernels(globals())
"""


def twice(folder: Path, amount: int) -> tuple[int, int]:
    """What a fresh import answers for 0, and how often it was loaded from Numba's cache."""
    (folder / "called_kernels.py").write_text(CALLED.format(amount))
    importlib.invalidate_caches()
    for name in ("called_kernels", "calling_kernels"):
        sys.modules.pop(name, None)
    kernel = importlib.import_module("calling_kernels").twice
    return kernel(0), sum(kernel.stats.cache_hits.values())


def test_a_kernel_follows_the_kernels_of_other_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "calling_kernels.py").write_text(CALLER)
    assert [twice(tmp_path, amount) for amount in (1, 1, 300)] == [(2, 0), (2, 1), (600, 0)]


def test_every_module_that_calls_kernels_of_another_is_stamped() -> None:
    paths = [path for folder in ("optimizer", "spark_jobs") for path in ROOT.glob(f"{folder}/**/*.py")]
    stamped, unstamped = [], []
    for path in paths:
        if "njit" not in path.read_text():
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        module = importlib.import_module(name)
        kernels = {key: value for key, value in vars(module).items() if isinstance(value, Dispatcher)}
        own = {key: value for key, value in kernels.items() if value.py_func.__module__ == name}
        called = {word for value in own.values() for word in value.py_func.__code__.co_names}
        if called & (kernels.keys() - own.keys()):
            is_last = re.search(r"\nstamp_kernels\(globals\(\)\)\n$", path.read_text())
            (stamped if is_last else unstamped).append(name)
    assert unstamped == [] and len(stamped) > 10
