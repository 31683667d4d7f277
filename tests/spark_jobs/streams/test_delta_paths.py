"""Files of a Delta log by where they lie, however actions spell them, and what HDL-405 says."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import LONG, TIMESTAMP, Source, Stream
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.delta_source import read_log
from spark_jobs.streams.sources.files import splits_of
from tests.sizes import examples

NAMES = ("a.parquet", "b c.parquet", "day=1/é%.parquet")


def stream_of(path: Path) -> Stream:
    return Stream("events", Source("delta", str(path)), (("ts", TIMESTAMP), ("id", LONG)), "ts")


def spellings(root: Path, name: str) -> list[str]:
    """All ways in which a log may name a file."""
    coded = quote(name)
    coded_spellings = [coded, f"./{coded}", f"{root}/{coded}", f"file:{root}/{coded}", f"file://{root}/{coded}"]
    return [
        *coded_spellings,
        *([name] if "%" not in name else []),
        quote(name, safe="/="),
        f"{coded.replace('/', '//')}",
    ]


def table(root: Path) -> None:
    """The files of a table, and its first commit, which adds none."""
    for number, name in enumerate(NAMES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        times = pa.array([number], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"ts": times, "id": pa.array([number], pa.int64())}), root / name)
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("ts", "timestamp"), ("id", "long"))
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    format = {"provider": "parquet", "options": {}}
    data = {"id": "x", "format": format, "schemaString": schema, "partitionColumns": [], "configuration": {}}
    commit(root, 0, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": data})


def commit(root: Path, version: int, *actions: object) -> None:
    log = root / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def add(path: str) -> object:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}


def remove(path: str) -> object:
    return {"remove": {"path": path, "deletionTimestamp": time.time_ns() // 1_000_000, "dataChange": True}}


@pytest.mark.parametrize("is_linked", [False, True])
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_newest_action_of_a_file_decides_however_it_is_spelled(
    is_linked: bool, data: st.DataObject, tmp_path: Path
) -> None:
    """Generated histories: a commit adds or removes files, in any spelling, again and again; a checkpoint by delta-rs
    may lie between."""
    root = tmp_path / uuid.uuid4().hex
    table(root)
    present, spelt = set[int](), dict[int, str]()
    is_unclear = False
    for version in range(1, data.draw(st.integers(1, 5)) + 1):
        actions = []
        for number in sorted(data.draw(st.sets(st.integers(0, len(NAMES) - 1), max_size=2))):
            name = data.draw(st.sampled_from(spellings(root, NAMES[number])))
            is_added = data.draw(st.booleans())
            # a removal that is spelled otherwise than its add, or an add beside another, is what checkpoints mix up
            is_unclear |= spelt.get(number, name) != name
            spelt[number] = name
            actions.append(add(name) if is_added else remove(name))
            (present.add if is_added else present.discard)(number)
        commit(root, version, *actions)
        if data.draw(st.integers(0, 5)) == 0:
            DeltaTable(str(root)).create_checkpoint()
            if is_unclear:
                # delta-rs wrote down what it made of the spellings
                spelt["unclear"] = "yes"  # type: ignore[index]
    read_from = root
    if is_linked:
        read_from = tmp_path / uuid.uuid4().hex
        read_from.symlink_to(root)
    try:
        read_ids = Counter(
            number
            for split in splits_of(stream_of(read_from))
            for batch in read_split(stream_of(read_from), split, ["id"])
            for number in batch["id"].to_pylist()
        )
    except HeddleError as error:
        assert error.code == "HDL-405" and "in two ways" in str(error) and "unclear" in spelt
        return
    assert read_ids == Counter(present)


def test_a_vector_in_another_spelling_takes_the_place_of_the_file(tmp_path: Path) -> None:
    """A file that is removed and added in one commit is there once, by the newest name."""
    table(tmp_path)
    commit(tmp_path, 1, add("a.parquet"))
    commit(tmp_path, 2, remove("./a.parquet"), add(f"file:{tmp_path}/a.parquet"))
    assert [file.name for file in read_log(stream_of(tmp_path)).files] == [f"file:{tmp_path}/a.parquet"]
    assert [file.name for file in read_log(stream_of(tmp_path), 1).files] == ["a.parquet"]


# ----------------------------------------------------------------------------------------------- HDL-405
FOREIGN = ("Kernel", "kernel", "Generic", "DeltaError", "serde", "DeltaTable", "arrow", "expected value at")
"""Words of other libraries."""


@pytest.mark.parametrize(
    ("protocol", "told"),
    [
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x-new"], "writerFeatures": ["x-new"]},
            "x-new",
        ),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["catalogManaged"],
                "writerFeatures": ["catalogManaged"],
            },
            "catalogManaged",
        ),
        ({"minReaderVersion": 9, "minWriterVersion": 9}, "reader version 9"),
        ({"minReaderVersion": "x"}, "cannot be opened"),
    ],
)
def test_a_feature_that_is_not_read_is_named(protocol: dict[str, object], told: str, tmp_path: Path) -> None:
    table(tmp_path)
    commit(tmp_path, 1, {"protocol": protocol})
    with pytest.raises(HeddleError, match="HDL-405") as caught:
        read_log(stream_of(tmp_path))
    assert told in caught.value.diagnostic.message and caught.value.hint
    assert not any(word in str(caught.value) for word in FOREIGN), caught.value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 1 of 00000000000000000001.json in its log is damaged"),
        ('{"commitInfo":{}}\n{"add":', "line 2 of 00000000000000000001.json"),
        ("\x00\x00", "line 1 of 00000000000000000001.json"),
        ('{"add":{"path":7}}', "cannot be opened at version 1"),
        ('{"metaData":{"schemaString":"{"}}', "cannot be opened at version 1"),
    ],
)
def test_a_damaged_log_is_named_by_file_and_line(text: str, told: str, tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(text)
    with pytest.raises(HeddleError, match="HDL-405") as caught:
        read_log(stream_of(tmp_path))
    assert told in caught.value.diagnostic.message and caught.value.hint
    assert not any(word in str(caught.value) for word in FOREIGN), caught.value
