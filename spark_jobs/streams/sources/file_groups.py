"""Group the files of a folder by schema: each group is one table, with the place by which a source names it.

Files of one format whose columns have the same names are one table, wherever they lie below the folder. Of many files
that are called alike, such as ``part-0001`` and ``part-0002``, only some are opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.formats import DECLARED
from spark_jobs.store.storage import Place, store_error
from spark_jobs.store.warehouse.schemas import MARKER
from spark_jobs.streams.sources.file_names import is_data, is_hidden
from spark_jobs.streams.sources.formats import FORMATS
from spark_jobs.streams.sources.proposals import (
    KNOWN,
    LONE,
    Data,
    SeenFile,
    ending_of,
    format_of_file,
    look,
    look_at_files,
    stream_name,
    undeclared,
)
from spark_jobs.streams.sources.splits import check_place

OPENED = 100
"""Files that are called alike and are all opened; of more the first, the middle and the last."""

ALIKE = 0.5
"""Share of common columns from which files that are called alike are one table, if files may lack columns."""

WITHOUT_DATA = ("node_modules", "venv", "var")
"""Folders that are not looked into unless they are named."""

GENERIC = frozenset(
    re.findall(
        r"\w+",
        """data dataset datasets raw input inputs in out output export exports import landing staging files file part
        parts chunk parquet csv json delta tables table db tmp batch shard""",
    )
)
"""Names of files and folders that say nothing about their content."""

RESERVED = frozenset(
    re.findall(
        r"\w+",
        """and as between case create cross distinct drop else except fetch from grant having insert intersect interval
        into join lateral like not on or qualify select tablesample then union using values when where window with""",
    )
)
"""Words of SQL that no query can have as the name of a stream."""

Partitioned = re.compile(r".*=.*|[0-9]{1,4}|[0-9]{4}-[0-9]{2}(-[0-9]{2})?")
"""Folders that divide a table: ``day=2024-01-01``, ``2024``, ``2024-01-01``."""


@dataclass(frozen=True)
class FileGroup:
    """Files that are one table.

    Attributes
    ----------
    path
        What its source names: a file, a folder of all its files, or a table with a log.
    format
        Its format.
    files
        Its files; none of a table with a log.
    file_pattern
        Names of its files, if the folder has others; None: all with an ending of the format.
    name
        A name for its stream that no other group has.
    """

    path: Path | Place
    format: str
    files: tuple[SeenFile, ...] = ()
    file_pattern: str | None = None
    name: str = ""


@dataclass(frozen=True)
class FileLayout:
    """Properties of a file that decide whether two are one table: names of columns, and how text is divided into them.

    ``is_loose``: whether a column may be missing in a file.
    """

    format: str
    names: frozenset[str]
    written: tuple[object, ...] = ()
    is_loose: bool = False

    def is_like(self, other: FileLayout, is_called_alike: bool) -> bool:
        """Return whether files of both are one table."""
        if (self.format, self.written) != (other.format, other.written):
            return False
        if self.names == other.names:
            return True
        common = len(self.names & other.names)
        return is_called_alike and self.is_loose and common >= ALIKE * len(self.names | other.names)


def groups_at(path: Path | Place) -> list[FileGroup]:
    """The tables at a path: one, or several of a folder.

    Raises HDL-134 if there is nothing, and in a store HDL-458 and HDL-576 to HDL-578. Files that cannot be read are
    groups that :func:`look_at_group` refuses.
    """
    if isinstance(path, Place):
        check_place(undeclared(path, ""), path)
        try:
            content = _found_in_store(path)
        except OSError as error:
            raise store_error(path, error) from error
    elif path.is_dir() and not _log_of(path):
        content = _walked(path)
    else:
        content = _Found()
    if not content.files and all(table.path == path for table in content.tables):
        # one file or table, or nothing, which a look explains
        return [FileGroup(path, "", name=usable(stream_name(path)))]
    groups = _grouped(path, content.files, has_other_files=False)
    if len(groups) == 1 and not content.tables and groups[0].file_pattern is None:
        readable = FORMATS[groups[0].format].endings
        if all(is_data(file.path.name, readable) for file in groups[0].files):
            groups = [replace(groups[0], path=path)]
    return with_names([*content.tables, *groups])


def groups_below(folder: Path, deepest: int) -> list[FileGroup]:
    """The tables in a folder that nobody named, and in the folders below it, which other files may be in."""
    if _log_of(folder):
        return [FileGroup(folder, "", name=usable(stream_name(folder)))]
    content = _walked(folder, deepest)
    return with_names([*content.tables, *_grouped(folder, content.files, has_other_files=True)])


def look_at_group(group: FileGroup) -> Data:
    """The data of a group. Raises what :func:`spark_jobs.streams.sources.proposals.look` raises."""
    if not group.files:
        return look(group.path)
    return look_at_files(group.path, group.files, group.file_pattern)


# --------------------------------------------------------------------------------------------- listing
@dataclass
class _Found:
    """Tables with a log, and other files, below a folder."""

    tables: list[FileGroup]
    files: list[SeenFile]

    def __init__(self) -> None:
        self.tables, self.files = [], []


def _log_of(folder: Path) -> str | None:
    """The format of a folder that is a table with a log."""
    return next((name for name, format in FORMATS.items() if format.log and (folder / format.log).is_dir()), None)


def _walked(root: Path, deepest: int | None = None) -> _Found:
    """Return the content of a folder. ``deepest``: folders in folders that are looked into, if nobody named it."""
    content, folders = _Found(), list[tuple[Path, tuple[str, ...]]]([(root, ())])
    while folders:
        folder, parts = folders.pop(0)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            path = folder / entry.name
            if is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                is_skipped = deepest is not None and (entry.name in WITHOUT_DATA or len(parts) >= deepest)
                if is_skipped and not Partitioned.fullmatch(entry.name) or (path / MARKER).exists():
                    continue
                if (format := _log_of(path)) is not None:
                    content.tables.append(FileGroup(path, format))
                else:
                    folders.append((path, (*parts, entry.name)))
            elif _is_file_of_data(entry.name) and path.is_file():
                content.files.append(SeenFile(path, parts, path.stat().st_size))
    return content


def _is_file_of_data(name: str) -> bool:
    return ending_of(name) in LONE


def _found_in_store(place: Place) -> _Found:
    """Return the content of a folder of a store."""
    content = _Found()
    listed = [(file.name.split("/"), file.size) for file in place.listed(recursive=True)]
    tables = dict[tuple[str, ...], str]()
    for parts, _ in listed:
        for name, format in FORMATS.items():
            if format.log and format.log in parts[:-1]:
                tables.setdefault(tuple(parts[: parts.index(format.log)]), name)
    content.tables = [FileGroup(place / "/".join(parts) if parts else place, tables[parts]) for parts in sorted(tables)]
    for parts, size in sorted(listed):
        is_of_table = any(tuple(parts[: len(table)]) == table for table in tables)
        if not is_of_table and _is_file_of_data(parts[-1]) and not any(map(is_hidden, parts)):
            content.files.append(SeenFile(place / "/".join(parts), tuple(parts[:-1]), size))
    return content


# -------------------------------------------------------------------------------------------- grouping
def _grouped(root: Path | Place, files: Sequence[SeenFile], has_other_files: bool) -> list[FileGroup]:
    """Files as groups of one table each. ``has_other_files``: the root is no folder of data alone."""
    classes: dict[tuple[str, ...], list[SeenFile]] = {}
    for file in files:
        classes.setdefault((format_of_file(file.path), *_home(file), _shape(_stem(file))), []).append(file)
    tables: list[tuple[FileLayout, str, list[SeenFile]]] = []
    # empty files belong to files beside them
    for called, alike in sorted(classes.items(), key=lambda item: not any(file.size for file in item[1])):
        neighbour = next((table for table in tables if _is_beside(table, called)), None)
        is_apart = has_other_files and not called[1:-1]
        if neighbour is not None and not is_apart and not any(file.size for file in alike):
            neighbour[2].extend(alike)
            continue
        for layout, chosen in _layouts(called[0], alike):
            shape = called[-1]
            known = next((table for table in tables if table[0].is_like(layout, table[1] == shape)), None)
            if known is None or not layout.names:
                tables.append((layout, shape, list(chosen)))
            else:
                known[2].extend(chosen)
    return [group for table in tables for group in _placed(root, table[0], table[2], files, has_other_files)]


def _is_beside(table: tuple[FileLayout, str, list[SeenFile]], called: tuple[str, ...]) -> bool:
    """Return whether a table has files of a format in a folder; ``called``: the format, the folder and a shape."""
    return table[0].format == called[0] and any(_home(file) == called[1:-1] for file in table[2])


def _layouts(format: str, files: Sequence[SeenFile]) -> list[tuple[FileLayout, list[SeenFile]]]:
    """Files that are called alike, by their layouts. Empty files belong to the first one."""
    full = [file for file in files if file.size] or list(files)
    empty = [file for file in files if file not in full] if len(full) < len(files) else []
    some = full if len(full) <= OPENED else [full[0], full[len(full) // 2], full[-1]]
    layouts = [_layout_of(format, file) for file in some]
    if len(full) > OPENED and all(layouts[0].is_like(layout, True) and layout.names for layout in layouts):
        return [(layouts[0], [*full, *empty])]
    if len(full) > OPENED:
        layouts = [_layout_of(format, file) for file in full]
    tables: list[tuple[FileLayout, list[SeenFile]]] = []
    for file, layout in zip(full, layouts, strict=True):
        known = next((chosen for known, chosen in tables if layout.names and known.is_like(layout, True)), None)
        if known is None:
            tables.append((layout, [file]))
        else:
            known.append(file)
    tables[0][1].extend(empty)
    return tables


def _layout_of(format: str, file: SeenFile) -> FileLayout:
    """The layout of a file; without names if it cannot be read."""
    source_format = FORMATS[format]
    try:
        outline = source_format.outline(undeclared(file.path, format), file.path)
    except HeddleError:
        return FileLayout(format, frozenset(), (str(file.path),))
    return FileLayout(format, outline.names, outline.written, not source_format.is_each_complete)


def _home(file: SeenFile) -> tuple[str, ...]:
    """The folders of a file above those that divide its table."""
    at = next((at for at, name in enumerate(file.folders) if Partitioned.fullmatch(name)), len(file.folders))
    return file.folders[:at]


def _placed(
    root: Path | Place, layout: FileLayout, chosen: Sequence[SeenFile], files: Sequence[SeenFile], has_other_files: bool
) -> Iterator[FileGroup]:
    """The groups by which sources can name the chosen files: one, or several if no folder and no pattern is theirs."""
    format, group = FORMATS[layout.format], FileGroup(root, layout.format, tuple(chosen))
    if len(chosen) == 1 and _home(chosen[0]) == chosen[0].folders:
        yield replace(group, path=chosen[0].path)
        return
    home = tuple(os.path.commonprefix([_home(file) for file in chosen]))
    folder = root / "/".join(home) if home else root
    below = [file for file in files if file.folders[: len(home)] == home]
    readable = [file for file in below if is_data(file.path.name, format.endings)]
    if set(readable) == set(chosen) and (home or not has_other_files):
        yield replace(group, path=folder)
        return
    pattern = _pattern(chosen, below) if "files" in DECLARED[layout.format].keys else None
    # a pattern of the working folder has to say more than an ending
    if pattern is not None and (home or not has_other_files or not pattern.startswith("*")):
        yield replace(group, path=folder, file_pattern=pattern)
        return
    homes = dict.fromkeys(_home(file)[: len(home) + 1] for file in chosen)
    if len(homes) > 1:
        for inner in homes:
            some = [file for file in chosen if _home(file)[: len(home) + 1] == inner]
            yield from _placed(root, layout, some, files, has_other_files)
        return
    yield from (FileGroup(file.path, layout.format, (file,)) for file in chosen)


def _pattern(chosen: Sequence[SeenFile], below: Iterable[SeenFile]) -> str | None:
    """A pattern that the names of all chosen files have, and those of no others; None if there is none."""
    names = [file.path.name for file in chosen]
    prefix, ending = os.path.commonprefix(names), os.path.commonprefix([name[::-1] for name in names])[::-1]
    ending = ending[max(0, ending.find(".")) :] if "." in ending else ""
    prefix = prefix[: len(prefix) - len(ending)] if prefix.endswith(ending) and ending else prefix
    prefix = re.sub(r"[0-9]+$", "", prefix)
    if not ending or re.search(r"[*?\[]", prefix + ending):
        return None
    matching = {file for file in below if file.path.name.startswith(prefix) and file.path.name.endswith(ending)}
    return f"{prefix}*{ending}" if matching == set(chosen) and (prefix or len(ending) > 1) else None


# ---------------------------------------------------------------------------------------------- naming
def _stem(file: SeenFile) -> str:
    """Name of a file without its endings."""
    return stem_of(file.path.name)


def stem_of(name: str) -> str:
    """Name of a file without the endings of its format and of its compression."""
    stem = name[: -len(ending_of(name))] if ending_of(name) in KNOWN else name
    return re.sub(r"\.(snappy|gz|zstd|lz4|brotli|c[0-9]+)$", "", stem) or name


def _shape(stem: str) -> str:
    """Return a name without the digits and identifiers that differ between files of a table."""
    hex_runs = re.sub(r"[0-9a-f]{8}(-?[0-9a-f]{4,}){2,}|[0-9a-f]{16,}", "#", stem.lower())
    return re.sub(r"[0-9]+", "#", hex_runs)


def with_names(groups: Sequence[FileGroup]) -> list[FileGroup]:
    """Groups with names that are words of their files or folders, that queries can use, and that differ. Files of the
    root come first."""
    ordered = sorted(groups, key=lambda group: (not _is_file_of(group), str(group.path)))
    words = [_name(group, len(groups) == 1) for group in ordered]
    names = list[str]()
    for name, group in zip(words, ordered, strict=True):
        above = [part for part in _home_of(group) if not _is_generic(part)]
        if words.count(name) > 1 and above and _word(above[-1]) != name:
            name = _word(f"{above[-1]}_{name}")
        choices = (name, *(f"{name}_{number}" for number in range(2, len(groups) + 2)))
        names.append(next(text for text in choices if text not in names))
    return [replace(group, name=name) for group, name in zip(ordered, names, strict=True)]


def _is_file_of(group: FileGroup) -> bool:
    """Return whether a group is a file that lies directly in the root."""
    return len(group.files) == 1 and group.path == group.files[0].path and not group.files[0].folders


def _name(group: FileGroup, is_only: bool) -> str:
    if is_only:
        return usable(stream_name(group.path))
    files = [_stem(file) for file in group.files]
    own = os.path.commonprefix(files) if files else ""
    own = own if len(files) == 1 else re.sub(r"[\W_0-9]+$", "", own)
    path = group.path.name if not isinstance(group.path, Place) else group.path.name.partition("@")[0]
    is_file = len(group.files) == 1 and group.path == group.files[0].path
    candidates = [own] if is_file or group.file_pattern is not None else [path, own]
    candidates += [*reversed(_home_of(group)), own, path]
    name = next((text for text in candidates if text and not _is_generic(text)), candidates[0] or path)
    return _word(name)


def _home_of(group: FileGroup) -> tuple[str, ...]:
    """The folders below the root that a group lies in."""
    return _home(group.files[0]) if group.files else ()


def _is_generic(name: str) -> bool:
    return len(re.findall(r"[^\W\d_]", name)) < 2 or _word(name).strip("_0123456789") in GENERIC


def _word(text: str) -> str:
    """Letters, digits and underscores that name a stream."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    cleaned = re.sub(r"\W+", "_", spaced, flags=re.ASCII).strip("_").lower()[:60]
    return usable(cleaned if re.match(r"[a-z_]", cleaned) else f"stream_{cleaned}".rstrip("_"))


def usable(name: str) -> str:
    """A name as it is, unless SQL reserves it."""
    return f"{name}_data" if name in RESERVED else name
