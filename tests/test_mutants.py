"""Mutants are the same for a seed, change one place of a text, and have tests near them."""

from __future__ import annotations

import ast
from collections import Counter
from types import FunctionType

import pytest

from optimizer.papers.reference import online_intervals
from optimizer.sequences import kernels as sequence_kernels
from optimizer.windows import alignment
from tests.benchmarks.mutants import edits_of
from tests.mutant_forks import Mutation, kernels_of, nearest
from tests.mutants import ROOT, Outcome, draw, names_near, near_files, near_files_of_folders, product_files, table

TEXT = '''"""A module: 1."""

LIMIT = 3


def spent(limit: int, *numbers: int) -> int:
    """Not this 2."""
    total = 0
    for number in numbers:
        if not number < limit and number in (1,
                                             2):
            continue
        total += max(number, -1)  # é
    if total > 5:
        raise ValueError(f"{total + 1}")
    print(total)
    return total
'''


def applied(change: str, occurrence: int = 1) -> list[str]:
    """The lines of the text that a mutation leaves behind in the place of others."""
    (edit,) = [edit for edit in edits_of(TEXT) if (edit.change, edit.occurrence) == (change, occurrence)]
    lines = set(TEXT.splitlines())
    return [line.strip() for line in edit.apply(TEXT).splitlines() if line not in lines]


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ("0 becomes 1", ["total = (1)"]),
        ("0 becomes -1", ["total = (-1)"]),
        ("Lt becomes LtE", ["if not (number <= limit) and number in (1,"]),
        ("Lt becomes GtE", ["if not (number >= limit) and number in (1,"]),
        ("without Not", ["if (number < limit) and number in (1,"]),
        ("In becomes NotIn", ["if not number < limit and (number not in (1, 2)):"]),
        ("And becomes Or", ["if (not number < limit or number in (1, 2)):"]),
        ("without Continue", ["pass"]),
        ("max becomes min", ["total += (min(number, -1))  # é"]),
        ("without USub", ["total += max(number, (1))  # é"]),
        ("without AugAssign", ["pass  # é"]),
        ("5 becomes 4", ["if total > (4):"]),
        ("without Raise", ["pass"]),
        ("without Expr", ["pass"]),
    ],
)
def test_a_mutation_changes_one_place(change: str, lines: list[str]) -> None:
    assert applied(change) == lines


def test_only_bodies_of_functions_are_mutated() -> None:
    edits = edits_of(TEXT)
    assert {edit.function for edit in edits} == {"spent"}
    assert not [edit for edit in edits if edit.change.startswith("3 ") or edit.line < 8]
    assert len({(edit.function, edit.change, edit.occurrence) for edit in edits}) == len(edits)
    for edit in edits:
        assert ast.dump(ast.parse(edit.apply(TEXT))) != ast.dump(ast.parse(TEXT))


def test_a_seed_draws_the_same_mutants_and_more_of_them() -> None:
    few, many = draw(1, 10), draw(1, 20)
    assert many[:10] == few and len({mutant.name for mutant in many}) == 20
    assert {mutant.path.rpartition("/")[0] for mutant in draw(1, 5, "optimizer/windows")} == {"optimizer/windows"}


def test_every_folder_with_functions_has_tests() -> None:
    folders = {
        folder for folder, paths in product_files().items() if any(not path.endswith("__init__.py") for path in paths)
    }
    assert folders - near_files_of_folders().keys() == {"dags/workload", "examples"} & folders
    *nearest, last = near_files("optimizer/windows/alignment.py")
    assert "tests/optimizer/test_alignment.py" in nearest and last == "tests/optimizer/test_edges.py"


def test_tests_in_the_mirroring_folder_are_near_the_modules_that_they_import() -> None:
    assert "tests/spark_jobs/pipeline/test_break_even.py" in near_files("spark_jobs/pipeline/costs/money.py")
    assert "tests/spark_jobs/pipeline/test_break_even.py" not in near_files("spark_jobs/pipeline/costs/prediction.py")


def test_tests_that_name_a_function_or_its_callers_come_first() -> None:
    text = (
        "class Bag:\n    def add(self):\n        _merged(1)\n\n"
        "def _merged(x):\n    return x\n\ndef outer():\n    return Bag()\n"
    )
    names = names_near(text, "_merged")
    assert names == {"_merged": 0, "add": 1, "Bag": 2, "outer": 3}
    assert [nearest(names, test) for test in ("x = _merged(2)", "outer(Bag)", "bag.address")] == [0, 2, 4]


def test_a_fork_changes_the_function_that_others_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    function = alignment.day_label
    monkeypatch.setattr(function, "__code__", function.__code__)
    text = (ROOT / "optimizer/windows/alignment.py").read_text()
    before = function(0)
    mutated = text.replace("def day_label(instant: int) -> str:", "def day_label(instant: int) -> str:\n    return 'x'")
    assert mutated != text
    assert Mutation("optimizer.windows.alignment", "day_label", mutated, [], {}, False, 1).place()
    assert (before, function(0)) == ("1970-01-01", "x")
    assert not Mutation("optimizer.windows.alignment", "no_such", mutated, [], {}, False, 1).place()
    assert not Mutation("", "day_label", mutated, [], {}, False, 1).place()


@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (online_intervals._climb.py_func, {"_climb", "_process"}),  # an overload calls a function of a table
        (sequence_kernels._any_bits._defn, {"_chain", "_extend_cells", "landmark_windows"}),  # an intrinsic
        (sequence_kernels._sweep.py_func, {"_sweep", "_between_landmarks", "landmark_windows"}),
        (alignment.day_label, set()),
    ],
)
def test_kernels_compile_again_that_contain_a_function(function: FunctionType, kernels: set[str]) -> None:
    names = {kernel.py_func.__name__ for kernel in kernels_of(function)}
    assert kernels <= names and bool(kernels) == bool(names)
    assert "lone_windows" not in names


def test_the_table_counts_outcomes_by_folder() -> None:
    kinds = Counter({"noticed": 2, "equivalent": 1, "survived": 1})
    outcomes = [Outcome("m", "a", 1, kind, "") for kind in kinds.elements()]
    assert [line.split() for line in table(outcomes).splitlines()] == [
        ["folder", "drawn", "noticed", "equivalent", "survived"],
        ["a", "4", "2", "1", "1"],
        ["all", "4", "2", "1", "1"],
    ]
