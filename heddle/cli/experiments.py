"""``heddle experiments``: the papers' figures again."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from heddle.cli import terminal
from heddle.cli.options import AsJson, Paper
from heddle.cli.output import print_json, telling_errors, writing_to
from heddle.cli.root import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.installing import check_installed

if TYPE_CHECKING:
    from optimizer.papers.evaluations.outcome import Experiment, Outcome


@app.command(
    epilog="Examples: heddle experiments --list   |   heddle experiments f1 --figure 7   "
    "|   heddle experiments weave-share --full --output var/experiments"
)
def experiments(
    paper: Annotated[Paper | None, typer.Argument(help="Whose figures to measure.", show_default=False)] = None,
    figure: Annotated[str | None, typer.Option("--figure", help="Only this figure or table (see --list).")] = None,
    full: Annotated[bool, typer.Option("--full", help="The papers' whole ranges (minutes each).")] = False,
    output: Annotated[Path, typer.Option("--output", help="Folder for the CSV and PNG files.")] = Path(
        "var/experiments"
    ),
    listing: Annotated[bool, typer.Option("--list", help="List the experiments and what the papers claim.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure the papers' figures and tables again. It prints the papers' values next to ours. Needs no JVM."""
    if paper is None and not listing:
        raise typer.BadParameter("say which paper (f1, weave-share, arasu-widom, sharon or golab), or --list")
    with telling_errors():
        _check_installed(is_drawing=not listing)
        chosen = _chosen(paper, figure)
        if listing or paper is None:
            return _list_experiments(chosen, as_json)
        _check_chosen(chosen, paper, figure)
        measured = [_measured_to(output, experiment, full, as_json) for experiment in chosen]
    if as_json:
        print_json({"experiments": measured})


def _check_installed(is_drawing: bool) -> None:
    """Raise HDL-904 if the experiments, or what they are drawn with, are not installed."""
    if find_spec("optimizer.papers") is None:
        message = "optimizer.papers is not installed: the experiments are in Heddle's repository only"
        raise HeddleError("HDL-904", message, "clone the repository, run make setup and repeat the command there")
    if is_drawing:
        check_installed("matplotlib")


def _chosen(paper: Paper | None, figure: str | None) -> list[Experiment]:
    from optimizer.papers.evaluations.catalogue import EXPERIMENTS

    return [
        experiment
        for experiment in EXPERIMENTS.values()
        if (paper is None or experiment.paper == paper.value) and (figure is None or experiment.figure == figure)
    ]


def _check_chosen(chosen: Sequence[Experiment], paper: Paper, figure: str | None) -> None:
    if not chosen:
        figures = ", ".join(experiment.figure for experiment in _chosen(paper, None))
        raise HeddleError("HDL-116", f"{paper.value} has no experiment for figure {figure}", f"figures: {figures}")


def _measured_to(output: Path, experiment: Experiment, full: bool, as_json: bool) -> dict[str, Any]:
    """An experiment's outcome as JSON, written to files and shown to people."""
    from optimizer.papers.evaluations.outcome import write

    outcome = _measured(experiment, "full" if full else "quick")
    with writing_to(output):
        paths = write(outcome, output)
    if not as_json:
        _show_outcome(outcome, paths)
    return _outcome_json(outcome, paths)


def _list_experiments(chosen: Sequence[Experiment], as_json: bool) -> None:
    if as_json:
        columns = ("name", "paper", "figure", "title", "claim", "minutes")
        print_json({"experiments": [{name: getattr(experiment, name) for name in columns} for experiment in chosen]})
        return
    table = Table(title="experiments", title_justify="left")
    for name in ("paper", "figure", "title", "the paper says", "minutes (--full)"):
        table.add_column(name, justify="right" if name.startswith("minutes") else "left")
    for experiment in chosen:
        cells = (experiment.paper, experiment.figure, experiment.title, experiment.claim, f"{experiment.minutes:g}")
        table.add_row(*cells)
    terminal.console.print(table)


def _measured(experiment: Experiment, scale: str) -> Outcome:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.fields[name]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=terminal.errors, transient=True) as progress:
        task = progress.add_task("", total=None, name=experiment.name)

        def report(done: int, total: int, text: str) -> None:
            progress.update(task, completed=done, total=total, description=text)

        return experiment.run(scale, report)


def _outcome_json(outcome: Outcome, paths: Sequence[Path]) -> dict[str, Any]:
    experiment = outcome.experiment
    return {
        "name": experiment.name,
        "title": experiment.title,
        "claim": experiment.claim,
        "scale": outcome.scale,
        "summary": outcome.summary,
        "measured": {
            quantity: {"paper": paper, "measured": ours} for quantity, (paper, ours) in outcome.measured.items()
        },
        "files": [str(path) for path in paths],
    }


def _show_outcome(outcome: Outcome, paths: Sequence[Path]) -> None:
    from rich.markdown import Markdown

    from optimizer.papers.evaluations.outcome import table

    experiment = outcome.experiment
    for line in (
        f"{experiment.name}: {experiment.title} ({outcome.scale})",
        f"  the paper says: {experiment.claim}",
        f"  we measured:    {outcome.summary}",
    ):
        terminal.console.print(line, markup=False, highlight=False, soft_wrap=True)
    if outcome.measured:
        terminal.console.print(Markdown(table([outcome])))
    terminal.console.print(f"  {', '.join(map(str, paths))}", markup=False, highlight=False, soft_wrap=True)
