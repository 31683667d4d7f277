"""Which files above the working directory are trusted: generated folders, owners, modes and links, which another user
of this machine then really attacks."""

from __future__ import annotations

import grp
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store import file_trust
from spark_jobs.store.file_trust import distrust
from spark_jobs.store.settings import settings as heddle_settings
from tests.sizes import examples
from tests.spark_jobs.store import attacker

ME, ATTACKER, SHARED_GROUP = 51_234, 61_234, 71_234
"""Users and a group that no file of users names; the attacker is in the group in half of the attacks."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@dataclass(frozen=True)
class Entry:
    """A folder, link or file on the way: its owner, the bits of its mode that vary, and whether the group is shared."""

    owner: int
    bits: int
    shared: bool

    def apply(self, path: Path) -> None:
        os.chown(path, self.owner, SHARED_GROUP if self.shared else 0, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod((0o755 if path.is_dir() else 0o644) | self.bits)


SAFE = Entry(ME, 0, False)
ENTRIES = st.builds(
    Entry,
    owner=st.sampled_from([ME, ME, 0, 0, ATTACKER]),
    bits=st.sampled_from([0, 0, 0, stat.S_IWGRP, stat.S_IWOTH, stat.S_IWOTH | stat.S_ISVTX]),
    shared=st.booleans(),
)


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder of root's that every user may look into."""
    folder = Path(tempfile.mkdtemp(prefix="heddle-trust-")).resolve()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def built(base: Path, chains: list[list[Entry]], is_relative: bool) -> tuple[Path, list[Path]]:
    """A file below folders for each chain; each is a link to the next, the last is real. First file, all entries."""
    files = [base.joinpath(str(n), *"abc"[: len(chain) - 1], "heddle.toml") for n, chain in enumerate(chains)]
    on_the_way = []
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True)
        if number + 1 < len(files):
            target = files[number + 1]
            file.symlink_to(os.path.relpath(target, file.parent) if is_relative else target)
        else:
            file.write_text('jars = "jars"')
    for number, (file, chain) in enumerate(zip(files, chains, strict=True)):
        SAFE.apply(base / str(number))
        folders = list(reversed(file.parents[: len(chain) - 1]))
        for path, entry in zip([*folders, file], chain, strict=True):
            entry.apply(path)
            on_the_way.append(path)
    return files[0], on_the_way


def attacked(project: Path, on_the_way: list[Path]) -> bool:
    """Whether the attacker changes the file, puts another in its place, or plants what it names. A program of its own:
    the processes of tests have threads, and are not to be forked."""
    program, folder = Path(attacker.__file__), project.parent / "jars"
    return any(
        subprocess.run(
            [sys.executable, "-IS", program, str(ATTACKER), group, folder, *on_the_way],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        == "True\n"
        for group in ("", str(SHARED_GROUP))
    )


@needs_root
@settings(max_examples=examples(40))
@given(
    chains=st.lists(st.lists(ENTRIES, min_size=2, max_size=4), min_size=1, max_size=3),
    is_relative=st.booleans(),
)
@example(chains=[[SAFE, SAFE]], is_relative=False)
@example(chains=[[SAFE, SAFE], [Entry(0, stat.S_IWOTH | stat.S_ISVTX, False), SAFE]], is_relative=True)
@example(chains=[[Entry(0, stat.S_IWGRP, True), SAFE]], is_relative=False)
@example(chains=[[SAFE, Entry(ATTACKER, 0, False)], [SAFE, SAFE]], is_relative=True)
@example(chains=[[Entry(0, stat.S_IWOTH | stat.S_ISVTX, False), SAFE]], is_relative=False)
def test_a_file_is_trusted_unless_another_user_can_attack_it(chains: list[list[Entry]], is_relative: bool) -> None:
    """Trust equals what the kernel lets an attacker do; with links through every kind of folder."""
    base = Path(tempfile.mkdtemp(prefix="heddle-trust-")).resolve()
    try:
        base.chmod(0o755)
        project, on_the_way = built(base, chains, is_relative)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: ME)
            refusal = distrust(project)
        assert (refusal is not None) == attacked(project, on_the_way), refusal
        assert refusal is None or refusal.entry in on_the_way
    finally:
        shutil.rmtree(base)


@needs_root
def test_a_hard_link_to_the_trusted_file_does_not_make_another_folder_trusted(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, planted = base / "home", base / "planted"
    home.mkdir()
    planted.mkdir()
    (home / "heddle.toml").write_text('jars = "jars"')
    (planted / "heddle.toml").hardlink_to(home / "heddle.toml")
    os.chown(planted, ATTACKER, ATTACKER)
    monkeypatch.setenv("HEDDLE_HOME", str(home))
    monkeypatch.chdir(planted)
    with pytest.raises(HeddleError, match=f"HDL-123 {planted} belongs to another user"):
        heddle_settings()


def config_map(folder: Path, text: str) -> None:
    """A folder as Kubernetes mounts a ConfigMap: everybody may write it, and files are links through `..data`."""
    (folder / "..2026_11_26").mkdir(parents=True)
    (folder / "..2026_11_26" / "heddle.toml").write_text(text)
    (folder / "..data").symlink_to("..2026_11_26")
    (folder / "heddle.toml").symlink_to("..data/heddle.toml")
    folder.chmod(0o777)


def test_a_config_map_is_trusted_where_it_is_named_or_mounted_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "config"
    config_map(folder, 'jars = "jars"')
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HEDDLE_JARS", raising=False)
    with pytest.raises(HeddleError, match=f"HDL-123 {folder} can be written by other users\n.*chmod go-w {folder}; or"):
        heddle_settings()
    with monkeypatch.context() as patch:
        patch.setenv("HEDDLE_HOME", str(folder))
        assert heddle_settings().jars == folder / "jars"
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert heddle_settings().jars == folder / "jars"


@needs_root
def test_a_read_only_mount_of_another_user_is_refused_and_of_root_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    config_map(tmp_path / "config", "")
    link = tmp_path / "config" / "heddle.toml"
    assert distrust(link) is None
    os.chown(tmp_path / "config" / "..data", ATTACKER, ATTACKER, follow_symlinks=False)
    refusal = distrust(link)
    assert refusal is not None and refusal.entry.name == "..data"


def test_links_that_lead_round_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="more than 40 links"):
        distrust(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "members", "accounts", "is_private"),
    [
        ("ann", [], [("ann", 7, 70)], True),
        ("ann", ["ann"], [("ann", 7, 70)], True),
        ("ann", ["ann", "root"], [("ann", 7, 70), ("root", 0, 0)], True),
        ("ann", ["bob"], [("ann", 7, 70), ("bob", 8, 80)], False),
        ("ann", [], [("ann", 7, 70), ("bob", 8, 70)], False),
        ("users", [], [("ann", 7, 70)], False),
        ("ann", [], [("ann", 7, 71)], False),
        ("ann", ["nobody_knows"], [("ann", 7, 70)], False),
        ("root", [], [("root", 0, 70), ("ann", 7, 70)], True),
        ("ann", [], [], False),
    ],
)
def test_a_group_is_private_if_it_is_the_users_own_and_nobody_else_is_in_it(
    name: str,
    members: list[str],
    accounts: list[tuple[str, int, int]],
    is_private: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """User 7 asks about group 70. Containers run users without an account, with root's group."""
    known = [SimpleNamespace(pw_name=who, pw_uid=user, pw_gid=group) for who, user, group in accounts]

    def account(by: Callable[[SimpleNamespace], bool]) -> SimpleNamespace:
        for entry in known:
            if by(entry):
                return entry
        raise KeyError

    monkeypatch.setattr(os, "geteuid", lambda: 7)
    monkeypatch.setattr(grp, "getgrgid", lambda group: SimpleNamespace(gr_name=name, gr_mem=members))
    monkeypatch.setattr(file_trust.pwd, "getpwuid", lambda user: account(lambda entry: entry.pw_uid == user))
    monkeypatch.setattr(file_trust.pwd, "getpwnam", lambda who: account(lambda entry: entry.pw_name == who))
    monkeypatch.setattr(file_trust.pwd, "getpwall", lambda: known)
    assert file_trust._is_private(70) is is_private
