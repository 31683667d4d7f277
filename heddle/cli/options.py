"""Options and arguments that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from heddle.cli.completion import complete_queries, complete_streams


def _required(name: str) -> Callable[[], Any]:
    """Default of a required option, from the environment or the project file; HDL-124 if neither sets it."""

    def value() -> Any:
        from spark_jobs.store.settings import required

        return required(name)

    return value


def _said_streams(streams: Path | None) -> Path | None:
    """The streams of the option, else those that the environment or the project file sets."""
    from spark_jobs.store.settings import said

    return said("streams") if streams is None else streams


def _said_warehouse(context: typer.Context, warehouse: str | None) -> str | None:
    """The warehouse of the option. If it is None and no files or windows are planned, the one that the environment or
    the project file sets.
    """
    from spark_jobs.store.settings import said

    inputs = context.params.get("files") or context.params.get("windows")
    return said("warehouse") if warehouse is None and not inputs else warehouse


FILES_ARE = "Workload files (SQL), folders of them, quoted patterns, or - for standard input."

Files = Annotated[
    list[Path],
    typer.Argument(
        help=FILES_ARE,
        default_factory=_required("workload"),
        show_default="HEDDLE_WORKLOAD, heddle.toml",
    ),
]

OptionalFiles = Annotated[list[Path] | None, typer.Argument(help=FILES_ARE, show_default=False)]

Streams = Annotated[
    Path,
    typer.Option(
        "--streams",
        help="The file that declares the streams.",
        default_factory=_required("streams"),
        show_default="HEDDLE_STREAMS, heddle.toml",
    ),
]

OptionalStreams = Annotated[
    Path | None,
    typer.Option(
        "--streams",
        help="The file that declares the streams. Default: HEDDLE_STREAMS, heddle.toml.",
        callback=_said_streams,
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

WarehouseOption = Annotated[
    str,
    typer.Option(
        "--warehouse",
        help="The folder or URL (s3://…, abfss://…, gs://…) that holds Heddle's tables.",
        default_factory=_required("warehouse"),
        show_default="HEDDLE_WAREHOUSE, heddle.toml",
    ),
]

OptionalWarehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        help="Take the plan stored in this warehouse. Without FILES: HEDDLE_WAREHOUSE, heddle.toml.",
        callback=_said_warehouse,
    ),
]

Rates = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        help="STREAM=TUPLES_PER_SECOND; may be given again. Default: measured from the source.",
        autocompletion=complete_streams,
    ),
]

Begin = Annotated[
    str,
    typer.Option("--from", help="Start of the interval (UTC, e.g. 2013-07-01); windows that end then are not in it."),
]

End = Annotated[str, typer.Option("--to", help="End of the interval (UTC); windows that end then are in it.")]

RunBegin = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Start of the interval (UTC, e.g. 2013-07-01); windows that end then are not in it. Required.",
        show_default=False,
    ),
]

RunEnd = Annotated[
    str | None,
    typer.Option(
        "--to", help="End of the interval (UTC); windows that end then are in it. Required.", show_default=False
    ),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, show what would be done.")]

Exactly = Annotated[
    bool, typer.Option("--exactly", help="FILES are the whole workload: remove what is registered and not in them.")
]

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before queries or answers are removed.")]

OptionalBegin = Annotated[str | None, typer.Option("--from", help="Only windows that end after this instant.")]

OptionalEnd = Annotated[str | None, typer.Option("--to", help="Only windows that end at or before this instant.")]


class Checks(StrEnum):
    """Levels of checking a run's answers."""

    all = "all"
    sample = "sample"
    none = "none"


ChecksOption = Annotated[
    Checks | None,
    typer.Option(
        "--checks",
        help="Before answers are published: inspect all and recompute a sample from raw events (all), recompute the "
        "sample alone (sample), or do nothing (none), which is kept with them. Default: HEDDLE_CHECKS, all.",
        show_default=False,
    ),
]


class EngineName(StrEnum):
    """Engine of a run."""

    spark = "spark"
    local = "local"
    auto = "auto"


EngineOption = Annotated[
    EngineName | None,
    typer.Option(
        "--engine",
        help="Compute with Spark (spark), with processes of this machine (local), or with these where there is little "
        "to do (auto). Default: HEDDLE_ENGINE, auto.",
        show_default=False,
    ),
]


class Algorithm(StrEnum):
    """Search method that groups queries into trees."""

    best = "best"
    optimal = "optimal"
    weave_share = "weave-share"
    no_share = "no-share"
    shared = "shared"
    random = "random"
    insert_then_weave = "insert-then-weave"
    local_search = "local-search"


class Counter(StrEnum):
    """Method of counting edges."""

    auto = "auto"
    conditioning = "conditioning"
    bit_set = "bit-set"
    f1 = "f1"
    f1_opt = "f1-opt"


class CostModel(StrEnum):
    """Cost model of a plan."""

    paper = "paper"
    measured = "measured"


class PlanFormat(StrEnum):
    """Output format of a plan."""

    text = "text"
    json = "json"
    mermaid = "mermaid"
    html = "html"


class Paper(StrEnum):
    """Papers with figures to measure again."""

    f1 = "f1"
    weave_share = "weave-share"
    arasu_widom = "arasu-widom"
    sharon = "sharon"
    golab = "golab"


class JobDialect(StrEnum):
    """SQL dialect of a job."""

    spark = "spark"
    flink = "flink"
    timescale = "timescale"


class Format(StrEnum):
    """Output format of answers."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


AlgorithmOption = Annotated[Algorithm, typer.Option("--algorithm", help="How queries are grouped into trees.")]

CounterOption = Annotated[
    Counter, typer.Option("--edge-counter", help="How edges are counted: auto, or a reference of the papers.")
]

CostOption = Annotated[CostModel, typer.Option("--cost-model", help="What a plan costs: operations or CPU seconds.")]


Names = Annotated[
    list[str],
    typer.Argument(help="Names of queries.", metavar="QUERY...", show_default=False, autocompletion=complete_queries),
]

Query = Annotated[str, typer.Argument(help="Name of the query.", show_default=False, autocompletion=complete_queries)]

Reason = Annotated[str, typer.Option("--reason", help="Kept with the event and the plan.")]
