"""Faults in production code, drawn by seed: one operator at one place each.

A mutant changes one operator, constant or name in the body of one function; the function keeps its identity, so that
whoever imported it meets the fault. A kernel of Numba's and all kernels that call it run as Python from then on.
"""

from __future__ import annotations

import ast
import importlib
import random
import sys
import types
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numba.core.dispatcher import Dispatcher

PLACES: dict[str, tuple[str, ...]] = {
    "lifting": (
        "spark_jobs.windows.partials.lifting",
        "spark_jobs.windows.partials.kernels",
        "spark_jobs.windows.partials.values",
        "spark_jobs.windows.row_windows.lifting",
        "spark_jobs.windows.sequences.lifting",
    ),
    "combining": (
        "spark_jobs.windows.partials.combining",
        "spark_jobs.windows.partials.states",
        "spark_jobs.windows.finals.passes",
    ),
    "lowering": (
        "spark_jobs.windows.finals.answers",
        "optimizer.aggregates.lowering",
        "spark_jobs.windows.sequences.answers",
    ),
    "sharding": (
        "spark_jobs.windows.partials.families",
        "spark_jobs.windows.partials.cells",
        "spark_jobs.windows.partials.batches",
    ),
    "numbering": ("spark_jobs.store.arrays.numbering", "spark_jobs.windows.row_windows.numbering"),
    "counting": (
        "spark_jobs.windows.finals.structures",
        "spark_jobs.windows.finals.window_query",
        "spark_jobs.windows.row_windows.answers",
    ),
    "decoding": (
        "spark_jobs.streams.sources.decoding",
        "spark_jobs.streams.sources.csv_source",
        "spark_jobs.streams.sources.formats.parquet",
    ),
    "casts": ("spark_jobs.streams.sources.conversions", "spark_jobs.streams.sources.casts"),
    "filters and expressions": ("spark_jobs.streams.sources.expressions", "spark_jobs.streams.sources.scalars"),
}
"""Where faults are put, with the modules of each place."""

SHARED_READING = ("decoding", "casts", "filters and expressions")
"""Places whose faults an audit would have in both sides of its comparison if it read as the run does."""

_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv}
_NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "and_kleene": "or_kleene",
    "or_kleene": "and_kleene",
    "less": "less_equal",
    "less_equal": "less",
    "greater": "greater_equal",
    "greater_equal": "greater",
    "add": "subtract",
    "subtract": "add",
    "floor": "ceil",
    "any": "all",
    "all": "any",
}


@dataclass(frozen=True)
class Mutant:
    """One fault: of ``place``, in a ``module``'s function; ``number`` of the change in the module, ``line``, what
    ``change`` it is."""

    place: str
    module: str
    function: str
    number: int
    line: int
    change: str

    def __str__(self) -> str:
        return f"{self.place}: {self.module}:{self.line} {self.function}: {self.change}"

    def apply(self) -> None:
        """Put the fault into the function of this process."""
        mutated = ast.fix_missing_locations(_Changes(self.number).visit(_fresh(self.module)))
        compiled = compile(mutated, _path(self.module), "exec")
        code = code_in(compiled, self.function.split("."))
        function = function_in(self.module, self.function)
        assert code is not None and function is not None
        function.__code__ = code
        wrapped = vars(sys.modules[self.module]).get(self.function)
        if isinstance(wrapped, Dispatcher):
            _interpret(wrapped)


def _ours() -> list[types.ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith(("spark_jobs.", "optimizer."))]


def kernels_calling(kernel: Dispatcher) -> list[Dispatcher]:
    """A kernel, and all that call it."""
    kernels = {
        id(value): value for module in _ours() for value in vars(module).values() if isinstance(value, Dispatcher)
    }
    chosen = {id(kernel): kernel}
    while True:
        calling = {
            number: each
            for number, each in kernels.items()
            if number not in chosen
            and any(id(each.py_func.__globals__.get(name)) in chosen for name in each.py_func.__code__.co_names)
        }
        if not calling:
            return list(chosen.values())
        chosen |= calling


def _interpret(kernel: Dispatcher) -> None:
    """Have a kernel, and all that call it, run as Python."""
    chosen = {id(each) for each in kernels_calling(kernel)}
    for module in _ours():
        for name, value in list(vars(module).items()):
            if id(value) in chosen and isinstance(value, Dispatcher):
                setattr(module, name, value.py_func)
            elif isinstance(value, dict):
                for key, inner in list(value.items()):
                    if isinstance(inner, Dispatcher) and id(inner) in chosen:
                        value[key] = inner.py_func


def kernel_lines(module: str) -> set[int]:
    """The lines of a module's kernels, of which no trace tells whether they are executed."""
    members = vars(importlib.import_module(module)).values()
    codes = [
        each.py_func.__code__ for each in members if isinstance(each, Dispatcher) and each.py_func.__module__ == module
    ]
    return {line for code in codes for _, _, line in code.co_lines() if line is not None}


def _path(module: str) -> str:
    return str(importlib.import_module(module).__file__)


def _fresh(module: str) -> ast.Module:
    return ast.parse(Path(_path(module)).read_text(), _path(module))


def function_in(module: str, name: str) -> Any:
    """The function that a name of a module is, whatever it is wrapped in; None if it cannot be changed."""
    function: Any = sys.modules[module]
    for part in name.split("."):
        function = vars(function).get(part)
    for _ in range(5):
        for inner in ("__func__", "fget", "func", "__wrapped__", "py_func"):
            if not isinstance(function, types.FunctionType) and hasattr(function, inner):
                function = getattr(function, inner)
        if isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
    return function if isinstance(function, types.FunctionType) else None


def code_in(code: types.CodeType, names: Sequence[str]) -> types.CodeType | None:
    """The code of a function in that of a module, by its name's parts; None without it."""
    for name in names:
        inner = [
            constant for constant in code.co_consts if isinstance(constant, types.CodeType) and constant.co_name == name
        ]
        if not inner:
            return None
        code = inner[-1]
    return code


class _Changes(ast.NodeTransformer):
    """Counts what can be changed in the bodies of functions, and changes what has ``chosen`` as its number."""

    def __init__(self, chosen: int | None = None) -> None:
        self.chosen, self.count = chosen, 0
        self.found: list[tuple[str, int, str]] = []
        self.names: list[str] = []
        self.depth = 0

    def _may(self, node: Any, change: str) -> bool:
        if not self.depth:
            return False
        self.found.append((".".join(self.names), node.lineno, change))
        self.count += 1
        return self.count - 1 == self.chosen

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if self.depth:
            return node
        self.names.append(node.name)
        node.body = [
            self.visit(statement) if isinstance(statement, ast.FunctionDef) else statement for statement in node.body
        ]
        self.names.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if not self.depth:
            self.names.append(node.name)
        self.depth += 1
        is_documented = ast.get_docstring(node) is not None
        node.body = [
            statement if at == 0 and is_documented else self.visit(statement) for at, statement in enumerate(node.body)
        ]
        self.depth -= 1
        if not self.depth:
            self.names.pop()
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        kind = type(node.ops[0])
        if kind in _COMPARISONS and self._may(node, f"{kind.__name__} becomes {_COMPARISONS[kind].__name__}"):
            node.ops[0] = _COMPARISONS[kind]()
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        kind = type(node.op)
        if kind in _ARITHMETIC and self._may(node, f"{kind.__name__} becomes {_ARITHMETIC[kind].__name__}"):
            node.op = _ARITHMETIC[kind]()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        if self._may(node, f"{type(node.op).__name__} becomes {other.__name__}"):
            node.op = other()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, (ast.Not, ast.USub, ast.Invert)) and self._may(
            node, f"without {type(node.op).__name__}"
        ):
            return node.operand
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            if self._may(node, f"{node.value} becomes {not node.value}"):
                return ast.copy_location(ast.Constant(not node.value), node)
        elif isinstance(node.value, int) and self._may(node, f"{node.value} becomes {node.value + 1}"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name in _NAMES and self._may(node, f"{name} becomes {_NAMES[name]}"):
            if isinstance(called, ast.Attribute):
                called.attr = _NAMES[name]
            elif isinstance(called, ast.Name):
                called.id = _NAMES[name]
        return node


_NEGATED = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class _Edits(_Changes):
    """The changes of :class:`_Changes`, and more: a comparison negated, a constant less 1, a statement dropped.

    ``span`` and ``replacement`` are of the chosen change: where the changed node stands in the text, and the new node.
    The audit's faults stay those of :class:`_Changes`, so that a seed draws the same ones as before.
    """

    span: tuple[int, int, int, int] | None = None
    replacement: ast.AST | None = None

    def _may(self, node: Any, change: str) -> bool:
        is_chosen = super()._may(node, change)
        if is_chosen:
            self.span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        return is_chosen

    def visit(self, node: ast.AST) -> Any:
        changed = ast.Pass() if self._is_dropped(node) else super().visit(node)
        if self.span is not None and self.replacement is None:
            self.replacement = changed
        return changed

    def _is_dropped(self, node: ast.AST) -> bool:
        """Whether a statement goes whose names nothing after it needs."""
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        is_stored = isinstance(node, ast.Assign) and not any(
            isinstance(to, (ast.Name, ast.Tuple)) for to in node.targets
        )
        is_jump = isinstance(node, (ast.Raise, ast.Continue, ast.Break, ast.AugAssign))
        return (is_call or is_stored or is_jump) and self._may(node, f"without {type(node).__name__}")

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        super().visit_Compare(node)
        kind = type(node.ops[0])
        if kind in _NEGATED and self._may(node, f"{kind.__name__} becomes {_NEGATED[kind].__name__}"):
            node.ops[0] = _NEGATED[kind]()
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        changed = super().visit_Constant(node)
        is_number = isinstance(node.value, int) and not isinstance(node.value, bool)
        if is_number and self._may(node, f"{node.value} becomes {int(node.value) - 1}"):  # type: ignore[arg-type]
            return ast.copy_location(ast.Constant(int(node.value) - 1), node)  # type: ignore[arg-type]
        return changed


@dataclass(frozen=True)
class Edit:
    """One small mutation of a text: ``number`` of the change in the text, the ``function`` and ``line`` that it is in,
    what ``change`` it is, and which of the ``occurrence`` of equal changes of the function."""

    number: int
    function: str
    line: int
    change: str
    occurrence: int

    def apply(self, text: str) -> str:
        """Return the text with this mutation, all other lines untouched."""
        edits = _Edits(self.number)
        edits.visit(ast.parse(text))
        assert edits.span is not None and edits.replacement is not None
        begin_line, begin_column, end_line, end_column = edits.span
        lines = text.encode().splitlines(keepends=True)
        before = b"".join(lines[: begin_line - 1]) + lines[begin_line - 1][:begin_column]
        after = lines[end_line - 1][end_column:] + b"".join(lines[end_line:])
        changed = ast.unparse(ast.fix_missing_locations(edits.replacement))
        is_expression = isinstance(edits.replacement, ast.expr)
        return (before + (f"({changed})" if is_expression else changed).encode() + after).decode()


def edits_of(text: str) -> list[Edit]:
    """Return all small mutations of the functions in a text, in the order of the text."""
    edits = _Edits()
    edits.visit(ast.parse(text))
    seen: Counter[tuple[str, str]] = Counter()
    mutations = []
    for number, (function, line, change) in enumerate(edits.found):
        seen[function, change] += 1
        mutations.append(Edit(number, function, line, change, seen[function, change]))
    return mutations


def mutants_of(place: str, module: str) -> Iterator[Mutant]:
    """All faults of one module."""
    importlib.import_module(module)
    changes = _Changes()
    changes.visit(_fresh(module))
    for number, (function, line, change) in enumerate(changes.found):
        if function_in(module, function) is not None:
            yield Mutant(place, module, function, number, line, change)


def named_mutant(name: str) -> Mutant:
    """The last fault of a name like ``module:function:change``."""
    module, function, change = name.split(":")
    place = next(place for place, modules in PLACES.items() if module in modules)
    return [mutant for mutant in mutants_of(place, module) if (mutant.function, mutant.change) == (function, change)][
        -1
    ]


def drawn_mutants(seed: int, counts: Mapping[str, int], lines: Mapping[str, Collection[int]]) -> list[Mutant]:
    """So many faults of each place, of the lines that are executed: ``lines`` of each module's file."""
    chance = random.Random(seed)
    mutants: list[Mutant] = []
    for place, count in counts.items():
        possible = [
            mutant
            for module in PLACES[place]
            for mutant in mutants_of(place, module)
            if mutant.line in lines.get(_path(module), ())
        ]
        mutants += chance.sample(possible, min(count, len(possible)))
    return mutants
