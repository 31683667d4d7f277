"""Places: folders of this machine and a store are the same to whoever uses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heddle.local.object_store import ObjectStore
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.sizes import examples
from tests.stores.credentials import WRONG
from tests.stores.proxy import Fate, Rule, StoreProxy


@pytest.fixture(params=["folder", "store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place.of(tmp_path / "a folder" if request.param == "folder" else request.getfixturevalue("place"))


LETTERS = st.characters(codec="utf-8", exclude_characters="/\\\0", exclude_categories=["C"])
NAMES = st.text(LETTERS, min_size=1, max_size=20)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(NAMES.filter(lambda name: name.strip(". ") == name), st.binary(max_size=200), max_size=6))
def test_what_is_put_is_there(root: Place, files: dict[str, bytes]) -> None:
    folder = root / f"day {abs(hash(tuple(files)))}"
    for name, content in files.items():
        (folder / name).put(b"before")
        (folder / name).put(content)
    assert {file.name: file.size for file in folder.listed()} == {name: len(text) for name, text in files.items()}
    for name, content in files.items():
        file = folder / name
        assert file.exists() and file.read() == content and file.open().read() == content
        info = file.info()
        assert info is not None and info.size == len(content)
        file.remove()
        file.remove()
        assert not file.exists() and file.info() is None
    assert list(folder.listed(recursive=True)) == []


def test_folders_are_listed_and_removed(root: Place) -> None:
    assert root.folders() == [] and list(root.listed(recursive=True)) == []
    for name in ("a/1", "a/b/2", "c/3"):
        (root / name).put(name.encode())
    assert root.folders() == ["a", "c"]
    assert [file.name for file in root.listed(recursive=True)] == ["a/1", "a/b/2", "c/3"]
    (root / "a").remove_folder()
    assert root.folders() == ["c"] and not (root / "a/b/2").exists()


def test_large_files_are_whole(root: Place) -> None:
    content = bytes(range(256)) * (1 << 16)
    (root / "large").put(content)
    file = (root / "large").open()
    assert file.size() == len(content) and file.read_at(256, 256 * 1000) == content[:256]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("s3:/a/b", "HDL-574"),
        ("s3://", "HDL-574"),
        ("s3://B_a/x", "HDL-574"),
        ("http://bucket/x", "HDL-574"),
        ("s3://bucket/../x", "HDL-574"),
        ("s3://bucket/x?region=eu", "HDL-574"),
        ("s3://key:secretsecret@bucket/x", "HDL-575"),
        ("abfss://container:secretsecret@account.dfs.core.windows.net/x", "HDL-575"),
        ("abfss://container/x", "HDL-574"),
        ("abfss://box@account.dfs.core.chinacloudapi.cn/x", "HDL-574"),
    ],
)
def test_urls_that_are_none(url: str, code: str) -> None:
    with pytest.raises(HeddleError) as refused:
        Warehouse.open(url)
    assert refused.value.diagnostic.code == code and "secretsecret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("s3a://bucket/x//y/", "s3://bucket/x/y"),
        ("S3://bucket", "s3://bucket"),
        ("gcs://bucket/ünïcode/", "gs://bucket/ünïcode"),
        ("abfs://box@account.dfs.core.windows.net/w", "abfss://box@account.dfs.core.windows.net/w"),
        ("abfss://box@account.blob.core.windows.net/w", "abfss://box@account.dfs.core.windows.net/w"),
        ("abfss://space@onelake.dfs.fabric.microsoft.com/w", "abfss://space@onelake.dfs.fabric.microsoft.com/w"),
        ("/a/b", "/a/b"),
        ("data:x", "data:x"),
        ("c:/x", "c:/x"),
    ],
)
def test_urls_are_known_by_one_spelling(url: str, known: str) -> None:
    assert Place.of(url).url == known


def test_what_a_store_refuses_is_told(
    place: str, through: dict[str, str], root_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in WRONG.keys() & through.keys():
        with monkeypatch.context() as patched:
            patched.setenv(name, WRONG[name])
            with pytest.raises(HeddleError) as refused:
                Warehouse.open(place)
            assert refused.value.diagnostic.code == "HDL-577" and WRONG[name] not in str(refused.value)
    with pytest.raises(HeddleError, match="HDL-576"):
        Warehouse.open(f"{root_of('no-such-bucket-here')}/x")
    with pytest.raises(HeddleError, match="HDL-502"):
        Warehouse.open(place, create=False)


def test_a_store_without_conditions_is_refused(place: str, proxy: StoreProxy) -> None:
    proxy.set(0.0, Rule(Fate.LIE, "PUT", "_delta_log", times=1 << 30))
    with pytest.raises(HeddleError, match="HDL-579"):
        Warehouse.open(place)
    proxy.set()
    assert Warehouse.open(place).version("results") == 0


def test_others_files_are_no_warehouse(place: str) -> None:
    (Place.of(place) / "theirs.txt").put(b"x")
    with pytest.raises(HeddleError, match="HDL-501"):
        Warehouse.open(place)


def test_a_store_that_cannot_be_reached(
    place: str, through: dict[str, str], proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in through.items():
        monkeypatch.setenv(name, value.replace(proxy.url, "http://127.0.0.1:1"))
    with pytest.raises(HeddleError, match="HDL-578"):
        Warehouse.open(place)


def test_the_embedded_server_says_why_it_does_not_start(
    server: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_server = ObjectStore.over(tmp_path / "objects")
    second_server.port = server.port
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "_answers", lambda self: False)
        with pytest.raises(HeddleError, match="HDL-597"):
            second_server.start()
    monkeypatch.setenv("HEDDLE_JARS", str(tmp_path / "ivy" / "jars"))
    with pytest.raises(HeddleError, match="HDL-598"):
        ObjectStore.over(tmp_path / "other").start()
