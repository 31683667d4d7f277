"""The source formats that Heddle reads itself: a module each."""

from __future__ import annotations

from importlib import import_module

from optimizer.workload.formats import DECLARED
from optimizer.workload.values import Stream
from spark_jobs.streams.sources.formats.source_format import SourceFormat

FORMATS: dict[str, SourceFormat] = {
    name: import_module(f"{__name__}.{name}").FORMAT for name, declared in DECLARED.items() if declared.is_direct
}
"""Each declared format that Heddle reads itself: the ``FORMAT`` of the module of its name."""


def format_of(stream: Stream) -> SourceFormat:
    """Return the format of a stream's source."""
    return FORMATS[stream.source.format]
