"""Mutants are the same for a seed, change one place of a text, and have tests near them."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.benchmarks.mutants import edits_of
from tests.mutants import Outcome, draw, near_files, near_files_of_folders, product_files, table

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


def test_the_table_counts_outcomes_by_folder() -> None:
    kinds = Counter({"noticed": 2, "equivalent": 1, "survived": 1})
    outcomes = [Outcome("m", "a", 1, kind, "") for kind in kinds.elements()]
    assert [line.split() for line in table(outcomes).splitlines()] == [
        ["folder", "drawn", "noticed", "equivalent", "survived"],
        ["a", "4", "2", "1", "1"],
        ["all", "4", "2", "1", "1"],
    ]
