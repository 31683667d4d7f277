"""``heddle init`` of a store: what it proposes is what it proposes of the same files in a folder."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import write_deltalake
from typer.testing import CliRunner, Result

from heddle.cli.app import app
from spark_jobs.store.storage import Place
from tests.spark_jobs.laboratory import steady, table_of
from tests.stores.credentials import WRONG


def initiated(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["init", *words, "--yes", "--folder", str(folder)])


def fill(root: str, format: str) -> None:
    """The same rows in a folder or a store, in two files; below it what is no data."""
    rows = table_of(steady(90))
    for number, part in enumerate((rows.slice(0, 40), rows.slice(40))):
        if format == "delta":
            write_deltalake(root, part, mode="append")
            continue
        sink = io.BytesIO()
        if format == "csv":
            pcsv.write_csv(part, sink, pcsv.WriteOptions(delimiter=";"))
        else:
            pq.write_table(part, sink)
        for name in (f"day={number}/part.{format}", f"_old/part.{format}", "read me.md"):
            place = Place.of(root) / name
            place.parent.make_folder()
            place.put(sink.getvalue())


@pytest.mark.parametrize("format", ["csv", "parquet", "delta"])
def test_a_store_is_proposed_as_a_folder(place: str, tmp_path: Path, format: str) -> None:
    texts = []
    for number, root in enumerate((str(tmp_path / "trades"), f"{place}/trades/")):
        fill(root.rstrip("/"), format)
        project = tmp_path / str(number)
        done = initiated(project, root)
        assert done.exit_code == 0, done.output
        streams = (project / "streams.yaml").read_text()
        assert f"path: {root.rstrip('/')}\n" in streams
        settings = (project / "heddle.toml").read_text()
        assert 'warehouse = "warehouse"' in settings
        texts.append(
            (streams.replace(root.rstrip("/"), "…"), (project / "queries" / "first.sql").read_text(), settings)
        )
        preview = CliRunner().invoke(
            app, ["preview", str(project / "queries" / "first.sql"), "--streams", str(project / "streams.yaml")]
        )
        assert preview.exit_code == 0, preview.output
    assert texts[0] == texts[1]


def test_a_file_and_several_places(place: str, tmp_path: Path) -> None:
    fill(f"{place}/a b", "csv")
    fill(f"{place}/trades", "parquet")
    done = initiated(tmp_path / "made", f"{place}/a b/day=0/part.csv", f"{place}/trades")
    assert done.exit_code == 0, done.output
    streams = (tmp_path / "made" / "streams.yaml").read_text()
    assert "  part:\n" in streams and "  trades:\n" in streams and f"path: {place}/a b/day=0/part.csv\n" in streams


def test_each_table_of_a_folder_is_a_stream(place: str, tmp_path: Path) -> None:
    fill(f"{place}/tables/first", "delta")
    fill(f"{place}/tables/second", "parquet")
    fill(f"{place}/tables/third", "csv")
    done = initiated(tmp_path / "made", f"{place}/tables")
    assert done.exit_code == 0, done.output
    declared = yaml.safe_load((tmp_path / "made" / "streams.yaml").read_text())["streams"]
    paths = {name: (stream["source"]["format"], stream["source"]["path"]) for name, stream in declared.items()}
    formats = {"first": "delta", "second": "parquet", "third": "csv"}
    assert paths == {name: (format, f"{place}/tables/{name}") for name, format in formats.items()}
    assert "90 events from" in done.output


def test_what_goes_wrong_has_a_code_and_names_the_place(
    place: str, through: dict[str, str], root_of: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(root: str, code: str) -> str:
        done = initiated(tmp_path / "made", root)
        assert done.exit_code != 0 and code in done.output and not (tmp_path / "made").exists(), done.output
        assert root in done.output.replace("\n", "")
        return done.output

    refused(f"{place}/nothing", "HDL-134")
    refused(f"{root_of('no-such-bucket-here')}/x", "HDL-576")
    for name, content in (("text", b"# no data"), ("bad.parquet", b"PAR1 and then PAR1"), ("bad.csv", b"\0\1")):
        (Place.of(place) / "files" / name).put(content)
    refused(f"{place}/files/bad.parquet", "HDL-135")
    refused(f"{place}/files/bad.csv", "HDL-135")
    (Place.of(place) / "texts" / "read me.md").put(b"x")
    refused(f"{place}/texts", "HDL-134")
    with monkeypatch.context() as patched:
        patched.setenv("HEDDLE_SOURCES", os.pathsep.join(["/else", f"{place}/files"]))
        refused(f"{place}/texts", "HDL-458")
    for name in WRONG.keys() & through.keys():
        with monkeypatch.context() as patched:
            patched.setenv(name, WRONG[name])
            refused(f"{place}/texts", "HDL-577")
