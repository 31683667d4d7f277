"""Features of labels in frames and files: the same type back, in the same order, with the same values."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import heddle
from tests.in_process import heddle as command
from tests.snippets import ROOT, blocks, play
from tests.spark_jobs.feature_houses import ALL_LABELS, QUERY, events_of, house_with, some_events


@pytest.fixture
def house(tmp_path: Path) -> heddle.House:
    return house_with(tmp_path, {"1": events_of(some_events(8))}, QUERY)


@pytest.fixture
def table(house: heddle.House) -> pa.Table:
    return house.features(ALL_LABELS, "q", at="at", upto=True)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return [dict(row) for row in table.to_pylist()]


def test_forms_of_arrow(house: heddle.House, table: pa.Table) -> None:
    batch = ALL_LABELS.combine_chunks().to_batches()[0]
    made = house.features(batch, "q", at="at", upto=True)
    assert isinstance(made, pa.RecordBatch) and rows(pa.Table.from_batches([made])) == rows(table)
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch.slice(0, 5), batch.slice(5)])
    made = house.features(reader, "q", at="at", upto=True)
    assert isinstance(made, pa.Table) and rows(made) == rows(table)


def test_a_frame_of_pandas_keeps_its_index_and_its_other_columns(house: heddle.House, table: pa.Table) -> None:
    labels = ALL_LABELS.to_pandas()
    labels["thing"] = [object() for _ in range(len(labels))]
    labels.index = [f"row {number}" for number in range(len(labels))][::-1]
    made = house.features(labels, "q", at="at", upto=True)
    assert isinstance(made, pandas.DataFrame) and list(made.index) == list(labels.index)
    assert list(made.columns) == ["at", "user", "thing", *table.column_names[2:]]
    assert made["thing"].tolist() == labels["thing"].tolist()
    assert str(made["q__n"].dtype) == "Int64" and made["q__n"].tolist() == table["q__n"].to_pylist()
    totals = [None if value is pandas.NA else value for value in made["q__total"].tolist()]
    assert totals == table["q__total"].to_pylist()


def test_a_frame_of_pandas_with_naive_times_is_in_utc(house: heddle.House, table: pa.Table) -> None:
    labels = ALL_LABELS.to_pandas()
    labels["at"] = labels["at"].dt.tz_localize(None).astype("datetime64[ns]")
    assert house.features(labels, "q", at="at")["q__n"].tolist() == table["q__n"].to_pylist()


def test_a_frame_of_polars(house: heddle.House, table: pa.Table) -> None:
    polars = pytest.importorskip("polars")
    labels = polars.from_arrow(ALL_LABELS)
    made = house.features(labels, "q", at="at", upto=True)
    assert isinstance(made, polars.DataFrame) and made.columns == table.column_names
    assert made.to_dicts() == polars.from_arrow(table).to_dicts()
    with pytest.raises(TypeError, match="collect the LazyFrame"):
        house.features(labels.lazy(), "q", at="at")


def test_labels_of_another_type(house: heddle.House) -> None:
    with pytest.raises(TypeError, match="Arrow, or a DataFrame of pandas, Polars or Spark, not list"):
        house.features([1, 2], "q", at="at")
    mixed = pandas.DataFrame({"at": ["2026-03-01", 3], "user": ["a", "b"]})
    with pytest.raises(heddle.Error, match="HDL-641 a column of the labels has values of several types"):
        house.features(mixed, "q", at="at")


# ------------------------------------------------------------------------------------------- files
def run(tmp_path: Path, labels: str, output: str, *more: str) -> Any:
    house = ("--warehouse", str(tmp_path / "house"), "--engine", "local")
    return command(
        "features", str(tmp_path / labels), "--at", "at", "--queries", "q", "-o", str(tmp_path / output), *house, *more
    )


def test_files_of_parquet_and_csv(
    house: heddle.House, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.operations.feature_files.PART_ROWS", 5)
    pq.write_table(ALL_LABELS, tmp_path / "labels.parquet", row_group_size=4)
    made = run(tmp_path, "labels.parquet", "train.parquet", "--upto")
    assert made.code == 0 and "18 labels with 6 features" in made.err and "18 labels recomputed" in made.err, made
    assert rows(pq.read_table(tmp_path / "train.parquet")) == rows(table)
    with_more = ALL_LABELS.append_column("zip", pa.array([f"00{number}" for number in range(len(ALL_LABELS))]))
    pacsv.write_csv(with_more, tmp_path / "labels.csv")
    made = run(tmp_path, "labels.csv", "train.csv", "--json")
    assert made.code == 0 and '"recomputed": 18' in made.out
    lines = (tmp_path / "train.csv").read_text().splitlines()
    assert lines[0] == '"at","user","zip","q__total","q__n","q__high","q__kinds","q__mean"'
    assert [line.split(",")[2] for line in lines[1:]] == [f'"00{number}"' for number in range(len(ALL_LABELS))]
    assert [line.split(",")[4] for line in lines[1:]] == [str(n) for n in table["q__n"].to_pylist()]
    pq.write_table(ALL_LABELS.slice(0, 0), tmp_path / "none.parquet")
    assert run(tmp_path, "none.parquet", "none.csv").code == 0
    assert (tmp_path / "none.csv").read_text().splitlines()[0].startswith('"at","user","q__total"')


def test_files_that_cannot_be_used(house: heddle.House, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("at,user\n2026-03-01T05:00:00Z,a\nnever,b\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "old.csv").write_text("before")
    (tmp_path / "labels.txt").write_text("")
    for labels, output, code, words in (
        ("labels.csv", "old.csv", "HDL-644", "row 2 of the labels: at 'never' is no moment"),
        ("broken.parquet", "train.csv", "HDL-641", "cannot be read"),
        ("missing.csv", "train.csv", "HDL-641", "cannot be read"),
        ("labels.txt", "train.csv", "HDL-641", "neither Parquet nor CSV"),
        ("labels.csv", "train.json", "HDL-641", "neither Parquet nor CSV"),
    ):
        made = run(tmp_path, labels, output)
        assert made.code == 2 and code in made.err and words in made.err.replace("\n", " "), made
    assert (tmp_path / "old.csv").read_text() == "before"
    (tmp_path / "labels.csv").write_text("at,user\n2026-03-01T05:00:00Z,a\n")
    made = run(tmp_path, "labels.csv", "no/train.csv")
    assert made.code == 2 and "HDL-115" in made.err
    made = run(tmp_path, "labels.csv", "train.csv", "--key", "user")
    assert made.code == 2 and "COLUMN=GROUP" in made.err
    assert not [*tmp_path.glob(".train*")] and not (tmp_path / "train.csv").exists()


def test_nothing_is_written_if_a_sample_differs(
    house: heddle.House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*arguments: Any) -> list[str]:
        return ["q: label of 2026-03-01T05:00:00Z, key ['a']: n is 3, recomputed 2"]

    monkeypatch.setattr("spark_jobs.operations.feature_checks.wrong_features", wrong)
    pq.write_table(ALL_LABELS, tmp_path / "labels.parquet")
    made = run(tmp_path, "labels.parquet", "train.parquet")
    assert made.code == 1 and "HDL-530" in made.err and "n is 3, recomputed 2" in made.err
    assert not [*tmp_path.glob("*train*")] and not [*tmp_path.glob(".train*")]


def test_the_session_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs/features.md"
    for block in blocks(page):
        if block.language == "sh" and "heddle features" not in block.text:
            play(block.text, tmp_path)
    monkeypatch.chdir(tmp_path)
    (text,) = [block.text for block in blocks(page) if block.language == "pycon"]
    session = doctest.DocTestParser().get_doctest(text, {}, "docs/features.md", None, 0)
    output: list[str] = []
    done = doctest.DocTestRunner().run(session, out=output.append)
    assert done.attempted == 5 and not done.failed, "".join(output)


# ------------------------------------------------------------------------------------------- Spark
def test_a_frame_of_spark_is_never_collected(
    house: heddle.House, table: pa.Table, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = spark.createDataFrame(ALL_LABELS).selectExpr(
        "at", "user", "CAST(1 AS TINYINT) AS small", "map('a', 1) AS some"
    )
    labels = labels.repartition(3)
    taken: list[int] = []
    frame_type = type(labels)
    to_arrow = frame_type.toArrow

    def counted(frame: Any) -> pa.Table:
        result = to_arrow(frame)
        taken.append(len(result))
        return result

    monkeypatch.setattr(frame_type, "toArrow", counted)
    monkeypatch.setattr(frame_type, "collect", None)
    monkeypatch.setattr(frame_type, "toPandas", None)
    made = house.features(labels, "q", at="at", upto=True)
    assert sum(taken) <= 3
    monkeypatch.undo()
    assert type(made) is frame_type and made.columns == ["at", "user", "small", "some", *table.column_names[2:]]
    kinds = [[field.dataType.simpleString() for field in frame.schema.fields[:4]] for frame in (made, labels)]
    assert kinds[0] == kinds[1]

    def ordered(frame: pa.Table) -> list[str]:
        return sorted(map(str, rows(frame.select(table.column_names))))

    assert ordered(made.toArrow()) == ordered(table)
    none = house.features(labels.where("false"), "q", at="at")
    assert none.count() == 0 and none.columns[-1] == "q__mean"
    with pytest.raises(heddle.Error, match="HDL-644 column at of the labels: 1 moment missing"):
        house.features(labels.selectExpr("nullif(at, at) AS at", "user").limit(1), "q", at="at")
    folders = [*(tmp_features(house)).iterdir()]
    assert len(folders) == 2
    command("maintain", "--warehouse", house.path, "--retention", "0 days")
    assert not [*(tmp_features(house)).iterdir()]


def tmp_features(house: heddle.House) -> Path:
    return Path(house.path) / "features"
