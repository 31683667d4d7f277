"""Status of the files of a folder from the file system, in columns."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from functools import cached_property

AT_ONCE_HERE = 4096
"""Number of local files whose status is read in one go."""

status_of = os.stat
"""By its path, not by an object that is made of it: of a hundred thousand files."""


class FileStatuses:
    """Status of files: bytes, times of modification and of change (nanoseconds), inodes. Reading a status takes longer
    than listing a file, so it is read only where needed, and once per file.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths, self._known = paths, dict[int, tuple[int, int, int, int]]()

    def of(self, number: int) -> tuple[int, int, int, int]:
        """Status of one file: bytes, time of modification, inode, time of change."""
        if "all" in self.__dict__:
            size, written, inode, changed = self.all
            return size[number], written[number], inode[number], changed[number]
        if number not in self._known:
            self._known[number] = self._asked(number)
        return self._known[number]

    @cached_property
    def all(self) -> tuple[array[int], array[int], array[int], array[int]]:
        """Status of all files, in columns: an object for each of a hundred thousand files would be most of the cost
        of listing.
        """
        sizes, written, inodes, changed = array("q"), array("q"), array("Q"), array("q")
        for first in range(0, len(self._paths), AT_ONCE_HERE):
            statuses = [status_of(path) for path in self._paths[first : first + AT_ONCE_HERE]]
            sizes.extend([status.st_size for status in statuses])
            written.extend([status.st_mtime_ns for status in statuses])
            inodes.extend([status.st_ino for status in statuses])
            changed.extend([status.st_ctime_ns for status in statuses])
        for number, known in self._known.items():
            sizes[number], written[number], inodes[number], changed[number] = known
        return sizes, written, inodes, changed

    def _asked(self, number: int) -> tuple[int, int, int, int]:
        status = status_of(self._paths[number])
        return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns
