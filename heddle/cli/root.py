"""The root of the command line: its options, and how it ends. Commands register themselves with :data:`app`."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from heddle.cli import terminal
from heddle.cli.output import exit_for, is_an_end, print_diagnostics
from optimizer.errors.crashes import crash, interrupted, is_failure


class _App(typer.Typer):
    """Whatever crashes before a command has begun is told as :class:`_Commands` does."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        try:
            return super().__call__(*given, **named)
        except Exception as error:
            print_diagnostics([crash(error)])
            sys.exit(1)


class _Commands(TyperGroup):
    """Nothing that a command raises reaches a terminal as it is: it is told in a line, with a code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            publishes = ctx.invoked_subcommand in ("run", "tick", "backfill", "repair")
            terminal.errors.print(interrupted(error, "nothing was published" if publishes else ""), highlight=False)
            raise typer.Exit(130) from None
        except BaseException as error:
            if not is_failure(error) or is_an_end(error):
                raise
            raise exit_for(error) from None


app = _App(
    cls=_Commands,
    help="Shares the processing of sliding-window aggregate queries over the same streams.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"heddle {metadata.version('heddle')}")
        raise typer.Exit


READING = frozenset(
    {
        "validate",
        "init",
        "streams",
        "preview",
        "test",
        "import",
        "status",
        "queries",
        "read",
        "diff",
        "explain",
        "lookup",
        "sql",
        "views",
        "quarantine",
        "pause",
        "resume",
    }
)
"""Commands that only read and plan nothing: they never meet a value of pandas."""


def _leave_pandas_out() -> None:
    """Have Arrow do without pandas, which it imports (a second) with its first array to know its types by."""

    class Absent:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            if name == "pandas":
                raise ModuleNotFoundError("not looked for", name="pandas")

    if "pandas" in sys.modules or "pyarrow" in sys.modules:
        return
    sys.meta_path.insert(0, Absent)
    try:
        import pyarrow

        pyarrow.array([0])
    finally:
        sys.meta_path.remove(Absent)


@app.callback()
def options(
    context: typer.Context,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version of Heddle and exit."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print tracebacks, and what Spark logs (as HEDDLE_DEBUG=1 does).")
    ] = False,
) -> None:
    """What is said before the command: it holds for all of them."""
    if debug:
        os.environ["HEDDLE_DEBUG"] = "1"
    if context.invoked_subcommand in READING:
        _leave_pandas_out()
