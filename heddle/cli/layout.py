"""``heddle format``: workload files laid out in one way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from heddle.cli import terminal
from heddle.cli.options import AsJson, Files
from heddle.cli.output import print_diagnostics, print_json, writing_to
from heddle.cli.reports import Case, JUnit, ReportFormat, ReportOption, json_asked, reporting
from heddle.cli.root import app
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.diagnostics import count as number_of


@app.command(
    name="format",
    epilog="Examples: heddle format queries   |   heddle format --check 'queries/**/*.sql'   "
    "|   heddle format - < q.sql   |   heddle format --diff q.sql",
)
def format_files(
    files: Files,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 and name the files that are not laid out.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; show what would change.")] = False,
    format: ReportOption = ReportFormat.text,
    junit: JUnit = None,
    as_json: AsJson = False,
) -> None:
    """Lay out workload files in one way. Each clause has a line, keywords are in capitals, and comments keep their
    places. The meaning of the queries does not change. A query with an error stays as it is and is reported (exit
    1). Standard input (-) goes to standard output."""
    as_json = json_asked(format, as_json)
    with reporting(format, junit) as cases:
        done = _formatted(files, is_written=not (check or diff), is_printed=not as_json)
        cases += [file.case(check) for file in done]
    if as_json:
        print_json({"files": [file.to_json() for file in done]})
    else:
        show_formatted(done, check, diff)
    print_diagnostics([diagnostic for file in done for diagnostic in file.diagnostics])
    raise typer.Exit(1 if any(file.diagnostics or (check and file.is_changed) for file in done) else 0)


@dataclass(frozen=True)
class Formatted:
    """A workload file as it was and as it is to be, and what is wrong with queries that stay as they are."""

    file: str
    before: str
    after: str
    diagnostics: tuple[Diagnostic, ...]

    @property
    def is_changed(self) -> bool:
        return self.before != self.after

    def case(self, check: bool) -> Case:
        """The case of it for CI; with ``check`` a file that is not laid out fails, at its first line that changes."""
        if not (check and self.is_changed):
            return Case(self.file, self.file, problems=self.diagnostics)
        pairs = zip_longest(self.before.splitlines(), self.after.splitlines())
        line = next((number for number, (old, new) in enumerate(pairs, 1) if old != new), 1)
        return Case(self.file, self.file, line, self.diagnostics, [f"it is not laid out: heddle format {self.file}"])

    def to_json(self) -> dict[str, object]:
        """The fields as ``--json`` prints them."""
        return {
            "file": self.file,
            "changed": self.is_changed,
            "errors": [diagnostic.to_json() for diagnostic in self.diagnostics],
        }


def _formatted(files: Sequence[Path], is_written: bool, is_printed: bool) -> list[Formatted]:
    """The files, laid out; those that change are written and standard input is printed, if they are to be. Raises
    HDL-111 and HDL-115."""
    from optimizer.language.files import STDIN, read_text, shown_path, workload_files
    from optimizer.language.layout import lay_out

    done = []
    for path in workload_files(files):
        file = shown_path(path)
        try:
            text = read_text(path)
        except HeddleError as error:
            done.append(Formatted(file, "", "", (error.diagnostic,)))
            continue
        layout = lay_out(text, file)
        formatted = Formatted(file, text, layout.text, layout.diagnostics)
        done.append(formatted)
        if is_written and path == STDIN:
            sys.stdout.write(formatted.after if is_printed else "")
        elif is_written and formatted.is_changed:
            with writing_to(path):
                path.write_bytes(_like(path, formatted.after))
    return done


def _like(path: Path, text: str) -> bytes:
    """A text as bytes, with the mark of UTF-8 at its beginning if the file has one."""
    with path.open("rb") as opened:
        mark = b"\xef\xbb\xbf"
        return (mark if opened.read(3) == mark else b"") + text.encode()


def show_formatted(done: Sequence[Formatted], check: bool, diff: bool) -> None:
    """Print the files that changed, or would change; with ``diff``, also the changes."""
    from difflib import unified_diff

    from optimizer.language.files import STDIN_NAME

    if not (check or diff):
        done = [file for file in done if file.file != STDIN_NAME]
    changed = [file for file in done if file.is_changed]
    for file in changed if diff else ():
        lines = unified_diff(file.before.splitlines(), file.after.splitlines(), file.file, file.file, lineterm="")
        for line in lines:
            terminal.console.print(line, style=_COLOURS.get(line[:1]), highlight=False, soft_wrap=True)
    for file in changed if check or not diff else ():
        what = "would be laid out" if check else "laid out"
        terminal.errors.print(f"{what}: {file.file}", highlight=False, soft_wrap=True)
    would = "would be " if check or diff else ""
    same = len(done) - len(changed)
    text = f"{number_of(len(changed), 'file')} {would}laid out, {same} left as {'it is' if same == 1 else 'they are'}"
    if done:
        terminal.errors.print(text, highlight=False)


_COLOURS = {"+": "green", "-": "red"}
