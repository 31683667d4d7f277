"""Spark's settings: what a user has set holds, and ours are added to it."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.engine import configuration, session
from spark_jobs.engine.configuration import JOINED, REQUIRED, archive_of, spark_settings, user_settings
from spark_jobs.engine.workers import FILES_A_TASK, LEAST_A_TASK, tasks_for


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Heddle's own settings say would hold over a user's."""
    for name in ("HEDDLE_DRIVER_MEMORY", "HEDDLE_SPARK_CODE", "HEDDLE_TASK_MEMORY"):
        monkeypatch.delenv(name, raising=False)


OURS = spark_settings(user_values={})

TEXTS = st.text("abc/.-D=", min_size=1, max_size=8)


@st.composite
def users(draw: st.DrawFn) -> dict[str, str]:
    """Settings of a user, some of them the same as ours."""
    names = draw(st.sets(st.sampled_from([*OURS, "spark.executor.cores", "spark.app.mine"])))
    chosen = {}
    for name in sorted(names - {"spark.executor.cores"}):
        if name in JOINED:
            parts = draw(st.lists(TEXTS | st.sampled_from(OURS[name].split(JOINED[name])), min_size=1, max_size=3))
            chosen[name] = JOINED[name].join(parts)
        else:
            chosen[name] = draw(TEXTS | st.just(OURS.get(name, "x")))
    return chosen | ({"spark.executor.cores": "3"} if "spark.executor.cores" in names else {})


@given(users(), st.booleans(), st.booleans())
def test_a_users_settings_hold_and_ours_are_added(theirs: dict[str, str], is_quick: bool, is_local: bool) -> None:
    ours = spark_settings(is_quick, is_local, {})
    added = spark_settings(is_quick, is_local, theirs)
    holds = theirs | added
    for name, value in theirs.items():
        if name in JOINED:
            assert holds[name] == value or holds[name].startswith(value + JOINED[name])
        elif name not in REQUIRED:
            assert holds[name] == value
    for name, value in ours.items():
        if name in JOINED and name != "spark.driver.extraJavaOptions":
            assert set(value.split(JOINED[name])) <= set(holds[name].split(JOINED[name]))
        elif name in REQUIRED or name not in theirs:
            assert (
                name == "spark.driver.extraJavaOptions"
                or name == "spark.executor.memoryOverhead"
                or holds[name] == value
            )
    # what was made once is not made longer by what reads it as the user's
    again = spark_settings(is_quick, is_local, holds)
    assert holds | again == holds


def test_each_file_and_option_of_a_user_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["# spark.a 1", "", "spark.b   two words ", "spark.c=3", " spark.d : 4", "spark.e", "spark.f = x=y"]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", shlex.join(["--conf", "spark.c=5", "--jars", "/a.jar,/b.jar", "pyspark-shell"])
    )
    expected = {"spark.b": "two words", "spark.c": "5", "spark.d": "4", "spark.f": "x=y", "spark.jars": "/a.jar,/b.jar"}
    assert user_settings() == expected
    assert spark_settings(is_local=False)["spark.jars"].startswith("/a.jar,/b.jar,")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert user_settings() == {}


def test_a_cluster_has_no_options_of_a_short_local_driver() -> None:
    made = spark_settings(is_local=False, user_values={"spark.executor.cores": "4", "spark.executor.memory": "8g"})
    assert not {"spark.driver.extraJavaOptions", "spark.eventLog.enabled"} & made.keys()
    # Spark's own tenth of 8 GiB, and four workers of 2.5 GiB
    assert made["spark.executor.memoryOverhead"] == f"{-(-8192 // 10) + 4 * 2560}m"
    assert "spark.executor.memoryOverhead" not in spark_settings(user_values={})
    long = spark_settings(quick=False, user_values={})["spark.driver.extraJavaOptions"]
    assert "Tiered" not in long and "SharedArchive" not in long


def test_a_class_archive_is_named_by_what_it_holds_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    names = [archive_of([str(jar)]), archive_of([str(jar)]), archive_of([])]
    os.utime(jar, (1, 1))
    names.append(archive_of([str(jar)]))
    jar.write_bytes(b"22")
    names.append(archive_of([str(jar)]))
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    names.append(archive_of([str(jar)]))
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"')
    names.append(archive_of([str(jar)]))
    assert names[0] == names[1] and len(set(names)) == len(names) - 1
    # a draft is not taken, an archive is
    monkeypatch.setattr(configuration, "archive_of", lambda paths: tmp_path / "x.jsa")
    assert not configuration.is_archived()
    (tmp_path / "x.jsa").write_bytes(b"")
    assert configuration.is_archived()


@given(st.integers(0, 10**12), st.integers(1, 1000), st.integers(0, 10**6))
def test_few_events_are_one_task(amount: int, width: int, files: int) -> None:
    import spark_jobs.engine.workers as workers

    assert workers.LEAST_A_TASK in (1, LEAST_A_TASK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "LEAST_A_TASK", 100)
        tasks = tasks_for(amount, width, files)
    assert 1 <= tasks <= width
    assert (tasks == 1) == (width == 1 or (amount < 200 and files < 2 * FILES_A_TASK))


def test_jars_are_fetched_into_the_folder_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of HEDDLE_JARS, whatever it is called; a fetch that fails leaves nothing there."""
    folder = tmp_path / "more" / "delta"

    def resolved(command: list[str], **options: object) -> CompletedProcess[str]:
        (place,) = re.findall(r"'([^']+)'\]\)$", command[-1])
        (Path(place) / "jars").mkdir()
        (Path(place) / "jars" / "io.delta_delta-spark.jar").touch()
        return CompletedProcess(command, 0, "", "")

    def unresolved(command: list[str], **options: object) -> CompletedProcess[str]:
        trace = "Traceback (most recent call last):\njava.lang.RuntimeException: [unresolved dependency: x]\n\tat y\n"
        return CompletedProcess(command, 1, "", trace)

    monkeypatch.setattr(session.subprocess, "run", unresolved)
    with pytest.raises(HeddleError, match="HDL-580.*unresolved dependency: x"):
        session.fetch_package("a:b:1", folder)
    assert list(folder.parent.rglob("*")) == [folder]
    monkeypatch.setattr(session.subprocess, "run", resolved)
    session.fetch_package("a:b:1", folder)
    assert list(folder.parent.rglob("*.jar")) == [folder / "io.delta_delta-spark.jar"]


@pytest.mark.parametrize("name", ["spark.jars", "spark.jars.packages"])
def test_a_driver_on_a_cluster_takes_delta_from_the_users_settings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEDDLE_JARS", str(tmp_path))
    value = "hdfs:///jars/delta-spark_2.13-4.4.0.jar"
    settings = spark_settings(is_local=False, user_values={name: value})
    assert {"spark.driver.extraClassPath", "spark.jars"} & settings.keys() <= {name}
    assert str(tmp_path) not in str(settings)
    with pytest.raises(HeddleError, match="HDL-520"):
        spark_settings(is_local=False, user_values={})


@pytest.mark.parametrize("code", ["archive", "installed"])
def test_nothing_of_the_drivers_paths_is_in_settings_of_executors(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_SPARK_CODE", code)
    of_executors = {
        key: value for key, value in spark_settings(is_local=False, user_values={}).items() if "executor" in key
    }
    assert of_executors and not any("/" in value for value in of_executors.values())
