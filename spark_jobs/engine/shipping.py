"""The code of this project as an archive that Spark sends to its executors, which share no folder with the driver.

Nothing is assumed of the executors but Python with the packages that tasks need.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from optimizer.errors.installing import PROJECT

PACKAGES = ("optimizer", "spark_jobs")
"""Folders of the packages that tasks import."""

TOP_LEVEL = {name.partition("/")[0] for name in PACKAGES}
"""Names that tasks import these packages by."""

KERNELS = ("optimizer/aggregates", "optimizer/combine", "optimizer/sequences", "spark_jobs")
"""Folders of the compiled kernels that tasks call."""

_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The time of all files in the archive, so that equal code is an equal archive."""

_UNPACKED = '''"""Unpacks Heddle's code once for a user of this machine.

A session's archive has another path each time, and what was compiled is found again by the path of its source.
"""

import os
import tempfile
import zipfile

_archive = os.path.dirname(__file__)
_name = os.path.basename(_archive).removesuffix(".zip")


def _place():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    made = os.path.join(home, "heddle")
    try:
        os.makedirs(made, mode=0o700, exist_ok=True)
        if os.stat(made).st_uid != os.getuid():
            raise OSError("it is of another user")
        place = os.path.join(made, _name)
        if not os.path.isdir(place):
            draft = tempfile.mkdtemp(dir=made)
            _unpack(draft)
            try:
                os.rename(draft, place)
            except OSError:
                if not os.path.isdir(place):
                    raise
        return place
    except OSError:
        place = tempfile.mkdtemp(prefix="heddle-")
        _unpack(place)
        return place


def _unpack(place):
    with zipfile.ZipFile(_archive) as packed:
        packed.extractall(place, [name for name in packed.namelist() if name.startswith("code/")])


PLACE = os.path.join(_place(), "code")
'''

_STUB = """import os

import heddle_unpacked

__path__ = [os.path.join(heddle_unpacked.PLACE, __name__)]
"""


def archive(folder: Path, project: Path) -> Path:
    """The packages that tasks import as a ZIP file in a folder, named by their code; imported from it, they unpack
    themselves into the user's cache. Kernels that were compiled here go with them: a worker with the same processor
    and Numba compiles none."""
    contents = _code(project)
    contents |= {f"{name}/__init__.py": _STUB.encode() for name in sorted(TOP_LEVEL)}
    contents["heddle_unpacked.py"] = _UNPACKED.encode()
    place = folder / f"heddle-{_hash(contents)}.zip"
    with zipfile.ZipFile(place, "w") as zip_file:
        for name, content in contents.items():
            zip_file.writestr(zipfile.ZipInfo(name, _FIRST_DAY), content, zipfile.ZIP_DEFLATED, compresslevel=1)
        for name in KERNELS:
            for file in sorted((project / name).rglob("__pycache__/*.nb[ic]")):
                member = zipfile.ZipInfo(f"code/{file.relative_to(project)}", _FIRST_DAY)
                zip_file.writestr(member, file.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=1)
    return place


@cache
def code_hash() -> str:
    """Hash of the code that this process has: executors that have Heddle installed compare theirs with the driver's."""
    return _hash(_code(PROJECT))


def _code(project: Path) -> dict[str, bytes]:
    """Files of the packages that tasks import, by their names in the archive."""
    files = [file for name in PACKAGES for file in sorted((project / name).rglob("*.py"))]
    return {f"code/{file.relative_to(project)}": file.read_bytes() for file in files}


def _hash(contents: Mapping[str, bytes]) -> str:
    hashed = hashlib.sha256()
    for name, content in contents.items():
        hashed.update(f"{name}\0{len(content)}\0".encode() + content)
    return hashed.hexdigest()[:16]
