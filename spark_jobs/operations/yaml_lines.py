"""Lines of a ``streams.yaml`` that people read and edit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from optimizer.workload.urls import SCHEMES, scheme_of
from optimizer.workload.values import Source, Type


def source_lines(source: Source, folder: Path) -> Iterator[str]:
    """The key ``source`` of a stream or dimension, with paths relative to a project's ``folder``."""
    yield "    source:"
    yield f"      format: {source.format}"
    yield f"      path: {yaml_text(_relative(source.path, folder))}"
    if source.files is not None:
        yield f"      files: {yaml_text(source.files)}"
    if source.partitions:
        yield f"      partitions: {yaml_text([partition.name for partition in source.partitions])}"
    if source.delimiter != ",":
        yield f"      delimiter: {yaml_text('tab' if source.delimiter == chr(9) else source.delimiter)}"
    if not source.header:
        yield "      header: false"
    if source.null:
        yield f"      null: {yaml_text(list(source.null))}"
    if source.timestamp_format is not None:
        yield f"      timestamp_format: {yaml_text(source.timestamp_format)}"
    if source.time_unit is not None:
        yield f"      time_unit: {source.time_unit}"
    if source.records is not None:
        yield f"      records: {yaml_text(source.records)}"


def column_line(name: str, type: Type | None = None) -> str:
    """A column's name, with its type if there is one."""
    if type is None:
        return yaml_text(name)
    return f"{yaml_text(name)}: {yaml_text(str(type)) if type.name == 'decimal' else type}"


def yaml_text(value: str | list[str]) -> str:
    """A value in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return text.removesuffix("\n").removesuffix("...").rstrip("\n")


def comment_text(text: str) -> str:
    """A text that a comment can hold."""
    return re.sub(r"\s+", " ", text)


def _relative(path: str, folder: Path) -> str:
    """A path as streams.yaml has it: relative to its folder, unless it lies elsewhere or in a store."""
    if scheme_of(path) in SCHEMES:
        return path
    base = folder.resolve()
    place = Path(path)
    return place.relative_to(base).as_posix() if place.is_relative_to(base) else place.as_posix()
