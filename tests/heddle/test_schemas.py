"""The schemas that editors check streams.yaml and heddle.toml by say what Heddle's own readers say."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from heddle.cli.app import app
from heddle.cli.config import Schema, schema_text
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.streams import SOURCE_KEYS, TYPES, load_streams
from optimizer.workload.streams_schema import streams_schema
from spark_jobs.store.settings import Settings, project_file, schema

ROOT = Path(__file__).resolve().parents[2]
STREAMS = Draft202012Validator(streams_schema())
PROJECT = Draft202012Validator(schema())
SHIPPED = {Schema.streams: "streams.schema.json", Schema.project: "heddle.schema.json"}


@pytest.mark.parametrize("file", Schema)
def test_what_is_shipped_is_what_is_printed(file: Schema) -> None:
    done = CliRunner().invoke(app, ["schema", file.value])
    assert done.stdout == schema_text(file) == (ROOT / "docs/schemas" / SHIPPED[file]).read_text()
    Draft202012Validator.check_schema(json.loads(done.stdout))


@pytest.mark.parametrize("path", [*ROOT.glob("examples/*/streams.yaml"), ROOT / "dags/workload/streams.yaml"])
def test_files_of_the_project_fit(path: Path) -> None:
    assert list(STREAMS.iter_errors(yaml.safe_load(path.read_text()))) == []


def _columns() -> st.SearchStrategy[dict[str, str]]:
    types = st.sampled_from((*TYPES, "decimal(10,2)", "Decimal( 38 )", "LONG", "String"))
    names = st.sampled_from(("a", "b c", "price", "2", "größe"))
    return st.dictionaries(names, types, max_size=4).map(lambda columns: columns | {"ts": "timestamp"})


@st.composite
def sources(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(("csv", "parquet", "delta")))
    source: dict[str, Any] = {"format": kind, "path": draw(st.sampled_from(("data", "./a/b.csv", "2013", 2013)))}
    optional: dict[str, st.SearchStrategy[Any]] = {"time_unit": st.sampled_from(("s", "ms", "us", "ns"))}
    if kind == "csv":
        optional |= {
            "delimiter": st.sampled_from((";", "tab", "|")),
            "header": st.sampled_from((True, False)),
            "quote": st.sampled_from(("'", "none")),
            "null": st.sampled_from(("NA", ["NA", "-"], 0, [0, "NA"])),
            "timestamp_format": st.just("%d/%m/%Y %H:%M"),
        }
    if kind != "delta":
        optional |= {
            "files": st.sampled_from(("*.parq", "part-[0-9]*", "2013")),
            "partitions": st.sampled_from(
                (["day"], {"day": "exact", "n": "long"}, {"day": None}, {"day": "date exact"})
            ),
        }
    for key, values in optional.items():
        if draw(st.booleans()):
            source[key] = draw(values)
    return source


@st.composite
def streams(draw: st.DrawFn) -> dict[str, Any]:
    """What is right in every respect."""
    stream: dict[str, Any] = {"source": draw(sources()), "time": "ts"}
    optional = {
        "schema": _columns(),
        "lateness": st.sampled_from(("0 seconds", "2 hours")),
        "step": st.sampled_from(("1 minute", "1 hour")),
        "allowed_lateness": st.just("7 days"),
        "levels": st.just({"keep_fine": "90 days"}),
    }
    for key, values in optional.items():
        if draw(st.booleans()):
            stream[key] = draw(values)
    if "partitions" in stream["source"] and "schema" in stream:
        stream["schema"]["day"] = "date"
    if stream["source"]["format"] != "csv" and "schema" in stream:
        kinds = st.sampled_from(
            ("struct<a: long, `b c`: map<string,double>>", " ARRAY< decimal(4,2)>", "map<int, date>")
        )
        stream["schema"] |= draw(st.dictionaries(st.just("nested"), kinds))
    return stream


files = st.dictionaries(st.sampled_from(("trades", "_s", "A1")), streams(), min_size=1).map(lambda of: {"streams": of})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schemas")


def is_read(content: Any, folder: Path) -> bool:
    """Whether a file of streams is read without an error."""
    path = folder / "streams.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return not load_streams(path)[1]


@given(files)
def test_what_is_right_fits(content: dict[str, Any]) -> None:
    assert list(STREAMS.iter_errors(content)) == []


def _places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, value in content.items() if isinstance(content, dict) else ():
        yield from _places(value, (*path, key))


def _put(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    modified_content = deepcopy(content)
    inner = modified_content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return modified_content


ODD = (None, 7, 1.5, True, "", "x", "s", [], ["x"], [["x"]], {}, {"x": "y"}, {"format": "csv"}, "decimal(99)", "tab")


@given(files, st.data())
def test_schema_and_reader_agree_on_one_odd_value(folder: Path, content: dict[str, Any], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(_places(content), key=str)))
    odd = _put(content, path, data.draw(st.sampled_from(ODD)))
    fits, read = STREAMS.is_valid(odd), is_read(odd, folder)
    assert fits or not read, odd
    if fits and not read:
        # what a schema does not know: durations, formats, characters, and columns that are there
        assert path[-1] in (
            "lateness",
            "step",
            "allowed_lateness",
            "keep_fine",
            "time",
            "event_id",
            "path",
            "delimiter",
            "quote",
            "partitions",
        ) or (path[-1] in ("timestamp_format", "schema", "ts") or path[-2:-1] in (("schema",), ("partitions",))), odd


@given(files, st.sampled_from(("source", "time", "sourc", "x")), st.sampled_from(sorted(SOURCE_KEYS)))
def test_keys_are_those_that_are_read(folder: Path, content: dict[str, Any], key: str, inner: str) -> None:
    first = next(iter(content["streams"].values()))
    first.pop(key, None) if key in ("source", "time") else first.update({key: "x"})
    assert not STREAMS.is_valid(content) and not is_read(content, folder)
    assert not STREAMS.is_valid({"streams": {"a b": {"source": {"format": "csv", "path": "x"}, "time": "t"}}})
    for kind in ("parquet", "delta"):
        stream = {"source": {"format": kind, "path": "x", inner: "csv" if inner == "format" else "s"}, "time": "t"}
        assert STREAMS.is_valid({"streams": {"s": stream}}) == is_read({"streams": {"s": stream}}, folder), stream


HOSTILE = (
    "null",
    "[]",
    "7",
    "streams:",
    "streams: []",
    "streams: {a: 7}",
    "streams: {a: {source: x, time: t}}",
    "x: {}",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_file_of_streams_fits_not(text: str, folder: Path) -> None:
    content = yaml.safe_load(text)
    assert not STREAMS.is_valid(content) and not is_read(content, folder)


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, bool) else str(value).lower()


VALUES = st.one_of(
    st.sampled_from(("x", "", " ", "a b", "größe")),
    st.integers(-2, 10**10),
    st.booleans(),
    st.lists(st.sampled_from(("x", "", "y"))),
    st.lists(st.integers(0, 3)),
)
KEYS = st.sampled_from((*schema()["properties"], "home", "lease_dsn", "x"))


@given(st.dictionaries(KEYS, VALUES, max_size=3))
def test_project_files_fit_if_they_are_read(folder: Path, content: dict[str, Any]) -> None:
    text = "".join(f"{key} = {_toml(value)}\n" for key, value in content.items())
    (folder / "heddle.toml").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        try:
            Settings({}, project_file({}))
            read = True
        except HeddleError:
            read = False
    assert PROJECT.is_valid(tomllib.loads(text)) == read


def test_the_documented_project_file_fits() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    match = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert match is not None and PROJECT.is_valid(tomllib.loads(match[1]))
