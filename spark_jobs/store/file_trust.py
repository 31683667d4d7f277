"""Check whether other users of this machine may have put a file in its place, or may change its content.

A file that only happens to lie above the working directory decides which code runs. As git does with a repository
that somebody else owns, Heddle reads such a file only if this user or root controls it. The rules are those of
OpenSSH's StrictModes, with links followed: every folder, link and target on the way belongs to this user or root,
and nobody else may write it.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_LINKS = 40
"""Links that one path may lead through, as in Linux."""

ROOT = 0


@dataclass(frozen=True)
class Distrust:
    """Reason why a file is not trusted: ``entry`` is the folder, link or file on its way that others control.

    ``can_be_closed``: this user can remove the others' right to write it without harm to anybody.
    """

    entry: Path
    reason: str
    can_be_closed: bool = False


def distrust(path: Path) -> Distrust | None:
    """Reason why this user should not trust a file; None if only this user and root control it.

    ``path``: absolute, without links among its folders; the file itself may be a link. A folder with the sticky
    bit, such as /tmp, may be on the way: others cannot rename what they do not own. The folder of the file may not
    be one, because the paths that the file names lie in it. Raises OSError if something on the way cannot be looked
    at.
    """
    for entry, status in _entries(path):
        if status.st_uid not in (ROOT, os.geteuid()):
            return Distrust(entry, "belongs to another user")
        is_sticky = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
        if stat.S_ISLNK(status.st_mode) or (is_sticky and entry != path.parent):
            continue
        if _may_be_written_by_others(entry, status):
            can_be_closed = status.st_uid == os.geteuid() and not is_sticky
            return Distrust(entry, "can be written by other users", can_be_closed)
    return None


def _entries(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder, link and file on the way to a file, from the root of the file system on."""
    folder, ahead, links = Path(path.anchor), list(reversed(path.parts[1:])), 0
    yield folder, folder.lstat()
    while ahead:
        part = ahead.pop()
        if part == os.pardir:
            folder = folder.parent
            continue
        entry = folder / part
        status = entry.lstat()
        yield entry, status
        if not stat.S_ISLNK(status.st_mode):
            folder = entry
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(f"{path} leads through more than {MOST_LINKS} links")
        target = entry.readlink()
        if target.is_absolute():
            folder = Path(target.anchor)
        ahead += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _may_be_written_by_others(entry: Path, status: os.stat_result) -> bool:
    world_writable, group = status.st_mode & stat.S_IWOTH, status.st_mode & stat.S_IWGRP
    if not world_writable and not group:
        return False
    if os.statvfs(entry).f_flag & os.ST_RDONLY:  # a mounted ConfigMap has mode 0777
        return False
    return bool(world_writable) or _has_access_list(entry) or not _is_private(status.st_gid)


def _has_access_list(entry: Path) -> bool:
    """Return whether a POSIX access list names more users: the group's bits are then the most that any of them may
    do.
    """
    with suppress(OSError, AttributeError):  # none, or a system that has no extended attributes
        return "system.posix_acl_access" in os.listxattr(entry)
    return False


def _is_private(group: int) -> bool:
    """Return whether only this user and root are in a group: their private group, with their name.

    Many systems give every user such a group, and let it write what the user creates.
    """
    trusted = (ROOT, os.geteuid())
    for user in trusted:
        with suppress(KeyError):  # containers run users that no file of users names
            account, members = pwd.getpwuid(user), grp.getgrgid(group)
            if account.pw_gid != group or members.gr_name != account.pw_name:
                continue
            member_ids = {pwd.getpwnam(name).pw_uid for name in members.gr_mem} - {*trusted}
            return not member_ids and all(each.pw_uid in trusted for each in pwd.getpwall() if each.pw_gid == group)
    return False
