"""What is told of errors: of those that were foreseen, of those that were not, and where a traceback is kept."""

from __future__ import annotations

import errno
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from optimizer.errors.crashes import crash, exit_code_of, finding, is_failure
from optimizer.errors.diagnostics import Diagnostic, HeddleError, count, meant
from optimizer.errors.installing import install_hint


class PanicException(BaseException):
    """As Rust code panics in Python."""


CRASHES = [
    (KeyError("x"), "HDL-900", "KeyError: 'x'"),
    (RuntimeError("first\nsecond"), "HDL-900", "RuntimeError: first"),
    (ZeroDivisionError(), "HDL-900", "ZeroDivisionError"),
    (PanicException("Invalid object store url"), "HDL-900", "PanicException: Invalid object store url"),
    (MemoryError(), "HDL-901", "there is not enough memory (MemoryError)"),
    (RuntimeError("java.lang.OutOfMemoryError: heap"), "HDL-901", "there is not enough memory (RuntimeError: java"),
    (OSError(errno.ENOSPC, "No space left on device", "/house/x"), "HDL-902", "the system refused: /house/x: No space"),
    (PermissionError(errno.EACCES, "Permission denied", "/house"), "HDL-902", "the system refused: /house: Permission"),
    (OSError("no number"), "HDL-900", "OSError: no number"),
]


@pytest.mark.parametrize(("error", "code", "message"), CRASHES)
def test_what_nobody_foresaw_is_told_in_a_line(
    error: BaseException, code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("HEDDLE_DEBUG", raising=False)
    try:
        raise error
    except BaseException as caught:
        diagnostic = crash(caught)
    assert diagnostic.code == code and diagnostic.message.startswith(message) and diagnostic.hint
    (traceback_file,) = tmp_path.iterdir()
    assert diagnostic.hint.endswith(f"the traceback is in {traceback_file}")
    assert "Traceback" in traceback_file.read_text() and "test_errors.py" in traceback_file.read_text()
    assert stat.S_IMODE(traceback_file.stat().st_mode) == 0o600


def test_a_traceback_that_cannot_be_kept_is_no_other_crash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HEDDLE_DEBUG", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    assert "HEDDLE_DEBUG=1" in crash(ValueError("x")).hint
    monkeypatch.setenv("HEDDLE_DEBUG", "1")
    diagnostic = crash(ValueError("x"))
    assert "Traceback" not in diagnostic.hint and "ValueError: x" in capsys.readouterr().err


def test_what_was_foreseen_says_itself_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    foreseen = HeddleError("HDL-501", "no warehouse", "name another")
    assert crash(foreseen) == finding(foreseen) == foreseen.diagnostic and not list(tmp_path.iterdir())


def test_causes_stand_in_lines_of_their_own() -> None:
    """They were one text, whose line ends were told as a backslash and an n."""
    cause = Diagnostic("HDL-404", "no times", "declare it")
    error = HeddleError.of(Diagnostic("HDL-505", "none could be read"), cause)
    assert str(error) == "error HDL-505 none could be read\nerror HDL-404 no times\n    hint: declare it"
    assert error.causes == (cause,) and "\\n" not in str(error)


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (
            HeddleError.of(Diagnostic("HDL-505", "none"), Diagnostic("HDL-404", "no times")),
            1,
            "HDL-505 none\nerror HDL-404",
        ),
        (RuntimeError("boom"), 1, "error HDL-900 RuntimeError: boom"),
        (PanicException("rust"), 1, "error HDL-900 PanicException: rust"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (KeyboardInterrupt("nothing was published"), 130, "interrupted: nothing was published\n"),
    ],
)
def test_a_job_ends_with_a_code_and_a_reason(
    raised: BaseException,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def job() -> int:
        raise raised

    assert exit_code_of(job) == code and exit_code_of(lambda: 7) == 7
    stderr = capsys.readouterr().err
    assert said in stderr and "Traceback" not in stderr


def test_ways_to_end_are_no_failures() -> None:
    for error in (SystemExit(3), GeneratorExit(), KeyboardInterrupt()):
        assert not is_failure(error)
    with pytest.raises(SystemExit):
        exit_code_of(lambda: sys.exit(3))


def test_the_nearest_name_is_meant() -> None:
    names = [f"query_{number}" for number in range(2000)] + ["tweets_p95_1h"]
    assert meant("tweets_p95", names) == "did you mean tweets_p95_1h?"
    assert meant("Tweets_P95_1h", names) == "did you mean tweets_p95_1h?"
    assert meant("zzz", ["b", "a"]) == "known: a, b" and meant("zzz", []) == ""
    assert meant("zzz", [f"q{number:04}" for number in range(50)]).count(",") == 12


@pytest.mark.parametrize(
    ("noun", "plural"),
    [
        *(("query", "queries"), ("day", "days"), ("answer", "answers"), ("execution tree", "execution trees")),
        *(("synopsis", "synopses"), ("index", "indexes"), ("late event", "late events"), ("batch", "batches")),
    ],
)
def test_one_is_one(noun: str, plural: str) -> None:
    assert (count(1, noun), count(0, noun), count(1234, noun)) == (f"1 {noun}", f"0 {plural}", f"1,234 {plural}")


def test_a_package_of_an_extra_that_is_not_installed_is_named_with_its_extra() -> None:
    diagnostic = finding(ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql"))
    assert (
        diagnostic.code == "HDL-904"
        and "pyspark.sql" in diagnostic.message
        and diagnostic.hint == install_hint("spark")
    )
    assert finding(ModuleNotFoundError("No module named 'spark_job'", name="spark_job")).code == "HDL-900"
