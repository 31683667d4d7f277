"""A program that attacks files as another user: it changes one, puts another in its place, or makes a folder.

Arguments: user, its further group or "", the folder to make, files and folders to attack. It prints whether it could.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path


def tries(*steps: Callable[[], object]) -> bool:
    for step in steps:
        try:
            step()
        except OSError:
            continue
        return True
    return False


def main(user: int, group: str, folder: Path, on_the_way: list[Path]) -> bool:
    os.setgroups([int(group)] if group else [])
    os.setgid(user)
    os.setuid(user)
    if any(path.lstat().st_uid == user for path in on_the_way):
        return True  # an owner may do anything
    return tries(
        *(lambda path=path: path.open("ab").close() for path in on_the_way if path.is_file()),
        *(lambda path=path: path.rename(path.with_name("moved")) for path in on_the_way),
        folder.mkdir,
    )


if __name__ == "__main__":
    print(main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), [Path(path) for path in sys.argv[4:]]))
