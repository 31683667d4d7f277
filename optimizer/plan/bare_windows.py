"""Planning windows without queries or streams: a CSV of ranges and slides, up to millions of rows.

What ``heddle plan --windows`` does: the workloads of the papers' experiments, capacity planning, or a workload
of some other system. The search is the one that plans registered queries; only names, filters and streams are missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.export import tree_facts
from optimizer.search.baselines import factor_windows
from optimizer.search.cost import PAPER, CostModel, SearchProblem
from optimizer.search.search import SECONDS, SearchResult, find
from optimizer.workload.values import SECOND

LONGEST = 10**9
"""Longest range and slide in seconds (31 years)."""

REWRITTEN = 200
"""Most windows that are also planned by rewriting: quadratic, a fraction of a second."""

SHOWN = 20
"""Largest number of bad rows that are reported one by one."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of one stream, in microseconds. ``rows``: number of each in its file, from 0. Shapes (n,)."""

    rows: NDArray[np.int64]
    ranges: NDArray[np.int64]
    slides: NDArray[np.int64]


def read_windows(path: Path) -> tuple[Windows, list[Diagnostic]]:
    """Read a CSV file with columns ``range`` and ``slide`` in seconds (decimals down to a microsecond).

    Rows that are no window are skipped and reported. Empty lines are no rows. Raises HeddleError HDL-111 (no such
    file), HDL-117 (not such a CSV file) and HDL-113 (no usable row).
    """
    import pyarrow as pa
    import pyarrow.csv as pcsv

    if not path.is_file():
        raise HeddleError("HDL-111", f"there is no file {path}", "check the path", file=str(path))
    columns = ["range", "slide"]
    torn: dict[int, str] = {}

    def leave_out(row: Any) -> str:
        torn[row.number] = row.text
        return "skip"

    # empty lines are kept and one thread reads, so that lines can be numbered
    reading = pcsv.ReadOptions(use_threads=False)
    parsing = pcsv.ParseOptions(ignore_empty_lines=False, invalid_row_handler=leave_out)
    for kind in (pa.int64(), pa.float64(), pa.binary()):
        torn.clear()
        options = pcsv.ConvertOptions(
            column_types=dict.fromkeys(columns, kind), include_columns=columns, strings_can_be_null=True
        )
        try:
            table = pcsv.read_csv(path, reading, parsing, options)
            break
        except pa.ArrowKeyError:
            raise HeddleError("HDL-117", f"{path} has no columns range and slide", "first line: range,slide") from None
        except pa.ArrowInvalid as error:
            if kind == pa.binary():
                raise HeddleError("HDL-117", f"{path} is not a CSV file: {error}", "first line: range,slide") from None
        except OSError as error:
            raise HeddleError("HDL-111", f"{path} cannot be read: {error}", "check the path", file=str(path)) from None
    cells = [table.column(name) for name in columns]
    ranges, slides = map(_microseconds, cells)
    lines = np.delete(np.arange(len(ranges) + len(torn)), [number - 2 for number in torn]) + 2
    empty = np.logical_and(*(column.is_null().to_numpy() for column in cells))
    if empty.any():
        with path.open("rb") as file:
            empty &= np.isin(lines, [number for number, line in enumerate(file, 1) if not line.strip()])
    skipped = lines[empty]
    good = (ranges > 0) & (slides > 0)
    bad = dict.fromkeys(torn, -1) | {int(lines[at]): int(at) for at in np.flatnonzero(~good & ~empty)}
    diagnostics = []
    for line in sorted(bad)[:SHOWN]:
        at = bad[line]
        values = [_shown(column[at].as_py()) for column in cells] if at >= 0 else []
        diagnostics.append(
            Diagnostic(
                "HDL-118",
                f"row {line - 2 - int(np.searchsorted(skipped, line))} is no window: "
                f"range and slide are seconds above 0 and up to {LONGEST:,}, whole microseconds",
                ("range {}, slide {}".format(*values) if values else _shown(torn[line])) + "; left out",
                line=line,
                file=str(path),
            )
        )
    if len(bad) > SHOWN:
        diagnostics.append(
            Diagnostic("HDL-118", f"and {len(bad) - SHOWN:,} more rows of {path} are no windows", "left out")
        )
    if not good.any():
        messages = "; ".join(diagnostic.message for diagnostic in diagnostics)
        raise HeddleError("HDL-113", f"there is no usable row in {path}" + (f": {messages}" if messages else ""))
    rows = lines - 2 - np.searchsorted(skipped, lines)
    return Windows(rows[good], ranges[good], slides[good]), diagnostics


def _shown(value: Any) -> str:
    """A cell in a message: short, and nothing that a terminal would obey."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return "".join(letter if letter.isprintable() else "?" for letter in text[:40])


def _microseconds(column: Any) -> NDArray[np.int64]:
    """Seconds as whole microseconds; 0 where that is impossible."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type):
        seconds = pc.fill_null(column, 0).to_numpy()
        return np.where((seconds > 0) & (seconds <= LONGEST), seconds, 0) * SECOND
    if pa.types.is_floating(column.type):
        values = pc.fill_null(column, 0.0).to_numpy()
        values = np.where(np.isfinite(values) & (values > 0) & (values <= LONGEST), values, 0.0)
        microseconds = np.rint(values * SECOND).astype(np.int64)
        # a decimal of a microsecond comes back to the same double
        return np.where(microseconds / SECOND == values, microseconds, 0)
    return np.array([_text_microseconds(text) for text in column.to_pylist()], dtype=np.int64)


def _text_microseconds(text: bytes | None) -> int:
    try:
        value = Decimal((text or b"").decode().strip())
    except (UnicodeDecodeError, InvalidOperation):
        return 0
    # before it becomes a fraction: that of 1e999999999 would fill the memory
    if not value.is_finite() or not Decimal("1e-6") <= value <= LONGEST:
        return 0
    microseconds = Fraction(value) * SECOND
    return int(microseconds) if microseconds.denominator == 1 else 0


@dataclass(frozen=True, eq=False)
class WindowPlan:
    """The sharing plan of bare windows. ``seconds``: CPU seconds that planning took, without reading."""

    windows: Windows
    algorithm: str
    model: CostModel
    rate: Fraction
    search: SearchResult
    seconds: float

    @cached_property
    def trees(self) -> list[tuple[list[int], int]]:
        """(rows, number of the tree in the search's result) in order of the first row."""
        problem = self.search.problem
        trees = []
        for number, tree in enumerate(self.search.partition):
            members = np.sort(np.concatenate([problem.members[item] for item in tree]))
            trees.append((self.windows.rows[members].tolist(), number))
        return sorted(trees, key=lambda tree: tree[0][0])

    @property
    def cost(self) -> Fraction:
        """Per second, in the model's unit."""
        return sum(self.search.costs, Fraction(0))

    @cached_property
    def factor_windows(self) -> Fraction | None:
        """Cost of rewriting windows into one another (:func:`optimizer.search.baselines.factor_windows`): where it
        compares, so under the paper's cost model, with distinct windows, at most :data:`REWRITTEN` of them."""
        windows = self.windows
        if self.model.name != "paper" or len(windows.rows) > REWRITTEN:
            return None
        if len(np.unique(np.stack([windows.ranges, windows.slides]), axis=1).T) < len(windows.rows):
            return None
        return factor_windows(windows.ranges.tolist(), windows.slides.tolist(), self.rate).cost

    def to_json(self, summary: bool = False) -> dict[str, Any]:
        """Return the plan as :func:`optimizer.plan.export.to_json` does; queries are row numbers as text.

        ``summary`` omits the queries.
        """
        search = self.search
        inexact = [
            f"windows-{n}" for n, (_, at) in enumerate(self.trees, 1) if search.bounds[at][0] != search.bounds[at][1]
        ]
        return {
            "format_version": 1,
            "algorithm": self.algorithm,
            "optimal": search.optimal,
            "queries": len(self.windows.rows),
            "distinct_edge_sets": search.distinct_edge_sets,
            "upper_bounds": inexact + list(search.inexact),
            "cost": float(self.cost),
            "cost_exact": str(self.cost),
            "lower_bound": None if search.lower_bound is None else float(search.lower_bound),
            "cost_model": self.model.name,
            "rates": {"windows": str(self.rate)},
            "baselines": {
                "no_share": float(search.problem.unshared),
                "shared": float(search.shared),
                "weave_share": None if search.weave_share is None else float(search.weave_share),
            }
            | ({} if self.factor_windows is None else {"factor_windows": float(self.factor_windows)}),
            "seconds": round(self.seconds, 6),
            "trees": [
                {"id": f"windows-{number}", "stream": "windows"}
                | ({} if summary else {"queries": [str(row) for row in rows]})
                | {"query_count": len(rows)}
                | self._facts(at)
                for number, (rows, at) in enumerate(self.trees, start=1)
            ],
        }

    def _facts(self, at: int) -> dict[str, Any]:
        problem, items = self.search.problem, self.search.partition[at]
        composite = _lcm(self.windows.slides[problem.members[item]] for item in items)
        overlap = sum(
            (self._overlap(problem.members[item]) for item in items),
            Fraction(0),
        )
        return tree_facts(composite, self.search.bounds[at], overlap, self.search.costs[at])

    def _overlap(self, members: NDArray[np.int64]) -> Fraction:
        full_slides, inner = np.divmod(self.windows.ranges[members], self.windows.slides[members])
        slides, slide_index = np.unique(self.windows.slides[members], return_inverse=True)
        # sums of seconds fit: a million inner parts below 10^15 microseconds each
        parts = [int(inner[slide_index == n].astype(object).sum()) for n in range(len(slides))]
        total = int(full_slides.astype(object).sum())
        return total + sum((Fraction(part, int(slide)) for part, slide in zip(parts, slides, strict=True)), Fraction(0))


def _lcm(arrays: Iterable[NDArray[np.int64]]) -> int:
    return math.lcm(*(int(slide) for slides in arrays for slide in np.unique(slides)))


def plan_windows(
    windows: Windows,
    rate: Fraction,
    algorithm: str = "best",
    model: CostModel | None = None,
    counter: str = "auto",
    seconds: float = SECONDS,
) -> WindowPlan:
    """Plan how bare windows over one stream are shared.

    Parameters
    ----------
    windows
        At least one.
    rate
        Tuples per second, >= 0.
    algorithm, counter, seconds
        As in :func:`optimizer.plan.builder.build_plan`.
    model
        A cost model. Default: the paper's.

    Raises
    ------
    HeddleError
        HDL-450 for a negative rate; HDL-350 and HDL-351 as in :func:`optimizer.search.search.find`.
    """
    if rate < 0:
        raise HeddleError("HDL-450", f"a plan needs a rate of at least 0, not {rate} tuples/s", "give --rate")
    chosen = model or PAPER
    started = time.process_time()

    def problem_of(collapse: bool) -> SearchProblem:
        return SearchProblem.of_windows(
            windows.ranges, windows.slides, rate, chosen, collapse=collapse, counter=counter
        )

    search_result = find(problem_of, algorithm, seconds)
    return WindowPlan(windows, algorithm, chosen, rate, search_result, time.process_time() - started)
