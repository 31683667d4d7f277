"""What is said of packages that are not installed."""

from __future__ import annotations

import re
import sys

import pytest

from optimizer.errors import installing
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.installing import check_installed, install_hint


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed("pyspark", "psycopg")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(HeddleError, match=r"(?s)HDL-904 psycopg is not installed.*") as raised:
        check_installed("pyspark", "psycopg")
    assert install_hint("lease") in str(raised.value)


def test_the_hint_names_the_checkout_or_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing, "IS_CHECKOUT", True)
    assert install_hint("spark") == "run `make setup`"
    monkeypatch.setattr(installing, "IS_CHECKOUT", False)
    assert re.fullmatch(r"pip install '\./heddle-[\d.]+-py3-none-any\.whl\[spark\]'", install_hint("spark"))
