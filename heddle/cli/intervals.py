"""The interval of a command, and what to type where it is missing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import typer

from optimizer.errors.diagnostics import HeddleError


def requested_interval(
    context: typer.Context, files: Sequence[Path], streams: Path, begin: str | None, end: str | None
) -> tuple[int, int]:
    """The interval [--from, --to) of a command, in microseconds.

    Raises HDL-477 if one of them is missing, HDL-114 if one is no instant, HDL-504 if the interval is empty.
    """
    from spark_jobs.streams.sources.decoding import parse_instant

    if begin is None or end is None:
        raise _missing(context, files, streams, begin, end)
    first, last = parse_instant(begin), parse_instant(end)
    if last <= first:
        raise HeddleError("HDL-504", "the interval is empty: --to must be after --from")
    return first, last


def _missing(
    context: typer.Context, files: Sequence[Path], streams: Path, begin: str | None, end: str | None
) -> HeddleError:
    """The error for an interval without a begin or an end: which time the data cover, and a command for the newest
    day, or for the day after a begin or before an end."""
    from optimizer.windows.alignment import day_label
    from optimizer.workload.instants import DAY
    from spark_jobs.operations.preview import spans_of_data
    from spark_jobs.pipeline.planning.requested import load_inputs
    from spark_jobs.streams.sources.decoding import parse_instant
    from spark_jobs.streams.sources.splits import LAST

    names = " and ".join(name for name, instant in (("--from", begin), ("--to", end)) if instant is None)
    covered = spans_of_data(load_inputs(files, streams).workload)
    newest = max((last for _, last in covered if last is not None), default=0)
    day = min(newest - newest % DAY, LAST - 2 * DAY)
    if begin is not None:
        first = parse_instant(begin)
        missing = ["--to", day_label(min(max(first - first % DAY, day) + DAY, LAST - 1))]
    elif end is not None:
        missing = ["--from", day_label(parse_instant(end) - 1)]
    else:
        missing = ["--from", day_label(day), "--to", day_label(day + DAY)]
    coverage = "; ".join(text for text, _ in covered) or "no stream can be read"
    message = f"{names} {'is' if ' ' not in names else 'are'} missing: which time is to be published? {coverage}"
    return HeddleError("HDL-477", message, f"e.g. {shlex.join([*_command(context), *missing])}")


def _command(context: typer.Context) -> list[str]:
    """The command as it was typed."""
    typed, arguments = list[str](), list[str]()
    for parameter in context.command.params:
        value, source = context.params.get(parameter.name or ""), context.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE":
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        texts = [str(each.value if isinstance(each, Enum) else each) for each in values]
        if parameter.param_type_name == "argument":
            arguments += texts
        elif getattr(parameter, "is_flag", False):
            typed.append(parameter.opts[0])
        else:
            typed += [text for each in texts for text in (parameter.opts[0], each)]
    return ["heddle", *context.command_path.split()[1:], *arguments, *typed]
