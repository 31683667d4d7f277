"""The root of the command line: its options, and how it ends. Commands register themselves with :data:`app`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_command_name
from typer.models import CommandInfo

from heddle.cli import terminal
from heddle.cli.output import exit_for, is_an_end, print_diagnostics
from heddle.cli.progress import Form, choose
from optimizer.errors.crashes import crash, interrupted, interrupted_code, is_failure
from spark_jobs.engine.light_imports import arrow_alone, numba_alone, set_aside


class _App(typer.Typer):
    """The application. It reports a crash before a command has begun as :class:`_Commands` does.

    Commands are built when they are requested: building all, and importing their modules, takes longer than most of
    them.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.declared: dict[str, CommandInfo] = {}

    def command(self, *given: Any, **named: Any) -> Callable[[Any], Any]:
        declare = super().command(*given, **{"cls": _Command} | named)

        def register(function: Any) -> Any:
            declared = declare(function)
            info = self.registered_commands.pop()
            self.declared[info.name or get_command_name(function.__name__)] = info
            return declared

        return register

    def __call__(self, *given: Any, **named: Any) -> Any:
        # modules and tables are no garbage: to look for it while they are made takes a tenth of a short command
        gc.set_threshold(100_000)
        atexit.register(set_aside)
        if "_HEDDLE_COMPLETE" in os.environ:
            # a shell asks: what goes wrong is not to stand in the line that somebody types
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        try:
            return super().__call__(*given, **named)
        except Exception as error:
            print_diagnostics([crash(error)])
            sys.exit(1)


class _Commands(TyperGroup):
    """The group of commands. It reports every error of a command in one line with a code, never as a traceback."""

    @property
    def commands(self) -> dict[str, Any]:
        """All commands, by name: every module of commands is imported for it."""
        return {name: _built(name) for name in MODULES}

    @commands.setter
    def commands(self, built: Mapping[str, Any]) -> None:
        """Ignore the commands: none is built in advance."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _built(cmd_name) if cmd_name in MODULES else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _Plain.take_over(self.get_params(ctx))
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            publishes = ctx.invoked_subcommand in ("run", "tick", "backfill", "repair")
            terminal.errors.print(interrupted(error, "nothing was published" if publishes else ""), highlight=False)
            raise typer.Exit(interrupted_code(error)) from None
        except BaseException as error:
            if not is_failure(error) or is_an_end(error):
                raise
            raise exit_for(error) from None


app = _App(
    cls=_Commands,
    help="Compute many sliding-window aggregates over the same streams in one pass. Without a command: the state of "
    "the project in this folder, and what to type next.",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


MODULES: dict[str, str] = {}
"""The commands in the order of ``heddle --help``, and the module that each is declared in (:mod:`heddle.cli.app`)."""
PANELS: dict[str, str] = {}
"""The group of ``heddle --help`` that each command is listed in."""


@cache
def _built(name: str) -> Any:
    """The command of a name. ``heddle --help`` lists it by the first sentence of its help."""
    import_module(MODULES[name])
    info = app.declared[name]
    info.short_help = " ".join((info.callback.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    info.rich_help_panel = PANELS[name]
    return get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode="rich")


class _Command(TyperCommand):
    """A command. It lets libraries load little, and only once its arguments are known."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _Plain.take_over(self.get_params(ctx))
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:
        if self.name in READING:
            prepare(self.name)
        return super().invoke(ctx)


class _Plain:
    """Typer's conversion of texts, paths and defaults, without Pydantic, whose import takes as long as a command."""

    def __init__(self, parameter: Any) -> None:
        self.made_by_typer = parameter.get_runtime_param
        annotation = parameter.type_descriptor.annotation
        if isinstance(annotation, UnionType):
            annotation = next((kind for kind in get_args(annotation) if kind is not NoneType), annotation)
        self.is_list = get_origin(annotation) is list
        self.kind = get_args(annotation)[0] if self.is_list else annotation

    @classmethod
    def take_over(cls, parameters: Sequence[Any]) -> None:
        """Have parameters of a command converted by this class, where Typer does it in the way known here."""
        for parameter in parameters:
            if getattr(parameter, "_runtime_param", ...) is None:
                parameter._runtime_param = cls(parameter)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter; what is not plain is left to Typer."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        values = value if self.is_list and isinstance(value, (list, tuple)) else [value]
        if self.kind is str and all(type(text) is str for text in values):
            coerced = list(values)
        elif self.kind is Path and all(isinstance(path, (str, Path)) for path in values):
            coerced = [Path(path) for path in values]
        elif all(type(argument) is self.kind for argument in values):
            coerced = list(values)
        else:
            param._runtime_param = None
            return self.made_by_typer().coerce(value, param=param, ctx=ctx)
        return coerced if self.is_list else coerced[0]


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata

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
        "alerts",
        "queries",
        "read",
        "diff",
        "explain",
        "lookup",
        "features",
        "sql",
        "views",
        "contract",
        "quarantine",
        "pause",
        "resume",
        "run",
        "tick",
        "backfill",
        "repair",
    }
)
"""Commands that never give Arrow a value of pandas."""


def prepare(command: str) -> None:
    """Have libraries load no more than a command that only reads, or may find nothing to do, needs of them."""
    arrow_alone()
    if command in ("lookup", "features", "preview", "test"):
        numba_alone()


@app.callback()
def options(
    context: typer.Context,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version of Heddle and exit."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print tracebacks and the log of Spark, as HEDDLE_DEBUG=1 does.")
    ] = False,
    progress: Annotated[
        Form,
        typer.Option(
            "--progress",
            help="How long commands report their stages on standard error: lines at a terminal (auto), JSON objects "
            "anywhere, or nothing.",
        ),
    ] = Form.auto,
) -> None:
    """Options before the command: they hold for all commands. Without a command, the state of the project is shown."""
    if debug:
        os.environ["HEDDLE_DEBUG"] = "1"
    choose(progress)
    if context.invoked_subcommand is None:
        prepare("status")
        import_module("heddle.cli.overview").show_overview()
