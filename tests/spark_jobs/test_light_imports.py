"""What is set aside is not looked through again, and a process ends without a word."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNTED = "import gc; from spark_jobs.light_imports import set_aside; set_aside(); print(gc.get_freeze_count() > 0)"


@pytest.mark.parametrize(
    ("before", "is_frozen"),
    [("pass", "True"), ("import duckdb; duckdb.sql('SELECT 1').fetchall()", "False")],
)
def test_a_process_ends_without_a_word(before: str, is_frozen: str) -> None:
    """DuckDB tells of all its types once nobody collects them any more."""
    program = f"{before}; {COUNTED}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (is_frozen, "")


FIELDS = """
import hashlib, sys
from contextlib import nullcontext
from spark_jobs import light_imports
if sys.argv[1] == "deep":
    light_imports.FlatCopies = nullcontext
from spark_jobs.checks.suite import great_expectations
great_expectations()
from pydantic.v1 import BaseModel
def below(kind):
    for one in kind.__subclasses__():
        yield one
        yield from below(one)
def told(field):
    inner = [told(one) for one in [*(field.sub_fields or ()), *([field.key_field] if field.key_field else [])]]
    config = field.model_config.__qualname__
    validators = sorted(field.class_validators), len(field.validators or ())
    return [repr(field), repr(field.field_info), validators, config, inner]
found = {
    (one.__module__, one.__qualname__): {name: told(field) for name, field in one.__fields__.items()}
    for one in below(BaseModel)
}
import re
print(len(found), hashlib.sha256(re.sub("0x[0-9a-f]+", "", repr(sorted(found.items(), key=repr))).encode()).hexdigest())
"""


def test_flat_copies_make_the_classes_that_deep_ones_make() -> None:
    done = [
        subprocess.run([sys.executable, "-c", FIELDS, how], capture_output=True, text=True, check=True).stdout
        for how in ("deep", "flat")
    ]
    assert done[0] == done[1] and int(done[0].split()[0]) > 200


def test_what_checks_load_is_set_aside_once() -> None:
    """Whatever a run leaves is garbage again."""
    program = (
        "import gc; from spark_jobs.checks.suite import great_expectations; great_expectations(); "
        "first = gc.get_freeze_count(); kept = [[] for _ in range(1000)]; great_expectations(); "
        "import duckdb; duckdb.sql('SELECT 1').fetchall(); print(first > 100_000, gc.get_freeze_count() <= first)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")
