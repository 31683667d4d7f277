"""A project made from data: ``heddle init``. It writes small files that a person reads and edits, and their schemas."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from optimizer.errors.diagnostics import count as number_of
from optimizer.errors.installing import PROJECT
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from optimizer.workload.streams import FILE_BYTES
from optimizer.workload.streams_schema import streams_schema
from optimizer.workload.urls import SCHEMES, scheme_of
from spark_jobs.operations.first_queries import likely_groups, queries_text, rate_text
from spark_jobs.operations.table_roles import (
    ProposedDimension,
    TableRoles,
    dimensions_lines,
    roles_of,
)
from spark_jobs.operations.yaml_lines import column_line, comment_text, source_lines, yaml_text
from spark_jobs.store.project_file import NAME
from spark_jobs.store.settings import schema
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.file_groups import FileGroup, groups_at, groups_below, look_at_group
from spark_jobs.streams.sources.proposals import Data, Proposal, TimeCandidate, data_files, ending_of, propose, time_of
from spark_jobs.streams.sources.table_keys import EventId, UndeclaredTable, event_id_of

STREAMS = "streams.yaml"
QUERIES = "queries/first.sql"
SCHEMAS = ".heddle"
"""Folder of a project with the JSON schemas of its files, which editors check them by without a network."""

DAGS = "dags/heddle_dags.py"
ENVIRONMENT = "airflow.env"

MOST_STREAMS = 20
"""Streams that are proposed at once."""

DEEPEST = 3
"""Folders in folders that are looked into where nobody names data."""

NO_DATA = "heddle init PATH; a database is named by its file or URL: heddle init shop.db"

Choose = Callable[[Data, TimeCandidate, str], tuple[TimeCandidate, str]]
"""Asks a person for the time column and the name of a stream, the likeliest as defaults. An empty name is skipped."""


@dataclass(frozen=True)
class Project:
    """Proposal of ``heddle init``: the streams, the text of each file by its path below ``folder``, and the tables that
    events refer to."""

    folder: Path
    proposals: tuple[Proposal, ...]
    files: tuple[tuple[str, str], ...]
    problems: tuple[Diagnostic, ...] = ()
    dimensions: tuple[ProposedDimension, ...] = ()

    @property
    def about(self) -> tuple[str, ...]:
        """Lines that say what the data are."""
        lines = list[str]()
        for proposal in self.proposals:
            lines.append(f"{proposal.inspection}; time: {proposal.time}")
            lines += [f"  {note}" for note in (proposal.question, *proposal.notes) if note]
        return (*lines, *map(str, self.dimensions))

    @property
    def next_steps(self) -> tuple[str, ...]:
        """The commands that come next, over the newest day that all streams have, or that the longest has."""
        change = [] if self.folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(self.folder))}"]
        spans = {each.stream.name: span for each in self.proposals if (span := each.inspection.usual_span) is not None}
        longest = max(self.proposals, key=lambda each: each.rows)
        newest = min((span[1] for span in spans.values()), default=0)
        if any(newest < first for first, _ in spans.values()):
            newest = spans.get(longest.stream.name, (0, newest))[1]
        day = newest // DAY * DAY
        queries = re.findall(r"-- name: (\w+)", dict(self.files)[QUERIES])
        queries_of_longest = [query for query in queries if query.startswith(f"{longest.stream.name}_")]
        run = f"heddle run --from {day_label(day)} --to {day_label(day + DAY)}"
        read = [f"heddle read {query}" for query in (queries_of_longest or queries)[:1]]
        return (*change, "heddle validate", "heddle preview", run, *read)

    def _is_there(self, name: str, text: str) -> bool:
        """Return whether a file that nobody edits is there as it would be written."""
        path = self.folder / name
        return name.startswith(f"{SCHEMAS}/") and path.is_file() and path.read_bytes() == text.encode()

    def write(self) -> list[Path]:
        """Write the files. Raises HDL-133, before anything is written, if one is there; HDL-115 if one cannot be."""
        files = [(name, text) for name, text in self.files if not self._is_there(name, text)]
        for name, _ in files:
            if os.path.lexists(self.folder / name):
                hint = "nothing was written; move it, or name another folder by --folder"
                raise HeddleError("HDL-133", f"{self.folder / name} is there already", hint)
        written = []
        for name, text in files:
            path = self.folder / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                raise HeddleError("HDL-115", f"{path} cannot be written: {error.strerror}", "check --folder") from None
            written.append(path)
        return written


def plan_project(
    paths: Sequence[str | Path],
    folder: Path,
    time: str | Sequence[str] | None = None,
    name: str | None = None,
    airflow: bool = False,
    choose: Choose | None = None,
) -> Project:
    """A project over data: files, folders, Delta tables, patterns, or URLs of stores (none: the data in the working
    folder and below). Files of one schema are one table.

    Parameters
    ----------
    time
        The time column; of several streams ``stream=column`` for each that needs it.
    name
        The name of the stream, of data that are one.
    choose
        Asks for the time column and the name; None: nobody is asked.

    Tables of several that cannot be used are reported and left out. Raises HDL-134 if there are no data, HDL-135 and
    HDL-136 for data that are one table and cannot be used, HDL-495 for a ``time`` of no stream, and the errors of a
    store.
    """
    groups = _groups(paths)
    if not groups:
        raise HeddleError("HDL-134", "there are no CSV, JSON, Parquet or Delta data here or below", NO_DATA)
    if len(groups) > 1 and name is not None:
        tables = ", ".join(group.name for group in groups[:6])
        message = f"--name names one stream, the data are {len(groups)}: {tables}"
        raise HeddleError("HDL-134", message, "name one file or folder")
    is_one = len(groups) == 1
    looked, problems = _looked(groups, is_one)
    times = _times([time] if isinstance(time, str) else time or [], looked)
    roles = TableRoles(tuple(looked), (), (), {}) if is_one else roles_of(looked, times)
    problems += roles.left_out
    proposals = list[Proposal]()
    for stream in roles.streams[:MOST_STREAMS]:
        try:
            proposals.append(_proposed(looked[stream], name or stream, times.get(stream), roles, choose))
        except HeddleError as error:
            if is_one or stream in times:
                raise
            problems.append(replace(error.diagnostic, severity="warning"))
    problems += _too_many(roles.streams[MOST_STREAMS:])
    if not proposals:
        raise HeddleError.of(_no_stream(looked), *problems)
    text = streams_text(proposals, folder, roles.dimensions)
    files = [(STREAMS, text), *files_beside(proposals, folder, airflow, roles.dimensions)]
    return Project(folder, tuple(proposals), tuple(files), tuple(problems), roles.dimensions)


def files_beside(
    proposals: Sequence[Proposal], folder: Path, airflow: bool = False, dimensions: Sequence[ProposedDimension] = ()
) -> list[tuple[str, str]]:
    """The files of a project other than that of its streams, by their paths."""
    files = [(QUERIES, queries_text(proposals, dimensions)), (NAME, _SETTINGS)]
    files += [(f"{SCHEMAS}/{name}", json.dumps(schema, indent=2) + "\n") for name, schema in _schemas()]
    return [*files, (DAGS, _DAG_FILE), (ENVIRONMENT, _environment(folder))] if airflow else files


def _groups(paths: Sequence[str | Path]) -> list[FileGroup]:
    """The tables at some paths, or those that lie here and below, with different names."""
    if not paths:
        return groups_below(Path(), DEEPEST)
    groups = [group for path in _expanded(paths) for group in groups_at(path)]
    names = list[str]()
    for group in groups:
        choices = (group.name, *(f"{group.name}_{number}" for number in range(2, len(groups) + 2)))
        names.append(next(text for text in choices if text not in names))
    return [replace(group, name=name) for group, name in zip(groups, names, strict=True)]


def _looked(groups: Sequence[FileGroup], is_one: bool) -> tuple[dict[str, Data], list[Diagnostic]]:
    """The data of each table by its name, and what is wrong with the others. Raises what is wrong with the only one."""
    looked, problems = dict[str, Data](), list[Diagnostic]()
    for group in groups:
        try:
            looked[group.name] = look_at_group(group)
        except HeddleError as error:
            if is_one:
                raise
            problems.append(replace(error.diagnostic, severity="warning"))
    return looked, problems


def _times(options: Sequence[str], looked: Mapping[str, Data]) -> dict[str, str]:
    """The time column of each stream for which one is named. Raises HDL-136 and HDL-495."""
    times = dict[str, str]()
    for option in options:
        stream, is_pair, column = option.partition("=")
        if is_pair and stream in looked:
            times[stream] = column
        elif len(looked) == 1:
            times[next(iter(looked))] = option
        elif is_pair:
            message = f"--time {option}: there is no table {stream}"
            raise HeddleError("HDL-495", message, f"{meant(stream, looked)}; write stream=column")
        else:
            having = [name for name, data in looked.items() if option in dict(data.columns)]
            if not having:
                raise HeddleError("HDL-495", f"--time {option}: no table has such a column", "write stream=column")
            times |= {name: option for name in having if name not in times}
    for name, column in times.items():
        time_of(looked[name], column)
    return times


def _proposed(data: Data, name: str, time: str | None, roles: TableRoles, choose: Choose | None) -> Proposal:
    """A stream over data, with its time and the id of its events. Raises what reading raises."""
    chosen, foreign, notes = time_of(data, time), roles.foreign.get(name, ()), list[str]()
    others = [candidate for candidate in data.likely_times if candidate.name != chosen.name]
    is_alone = len(roles.streams) == 1
    if choose is not None and time is None and (is_alone or others):
        chosen, new_name = choose(data, chosen, name if is_alone else "")
        name = new_name or name
    question = ""
    if others and choose is None and time is None:
        question = f"{len(others) + 1} columns have times; {chosen.name} is taken. "
        question += f"To take {others[0].name}: --time {name}={others[0].name}"
    proposal = replace(propose(data, chosen, name), foreign=tuple(foreign), question=question)
    with suppress(HeddleError):
        # what cannot be read is a problem of the stream, which has been looked at
        table = UndeclaredTable(name, data)
        event_id = event_id_of(table, (chosen.name, *foreign))
        if event_id is not None and event_id.repeats:
            proposal, note = _with_event_id(proposal, event_id)
            notes.append(note)
        if (groups := likely_groups(proposal)) and table.can_read(len(groups)):
            proposal = replace(proposal, columns=table.columns(groups))
    return replace(proposal, notes=(*notes, *proposal.notes))


def _with_event_id(proposal: Proposal, event_id: EventId) -> tuple[Proposal, str]:
    """A stream whose repeated events count once, if they are the same in all columns; and a note about them."""
    repeats = f"{number_of(event_id.repeats, 'row')} of {event_id.rows:,}"
    if event_id.is_same is None:
        note = (
            f"{repeats} repeat the {event_id.column} of another row: with `event_id: {event_id.column}` it counts once"
        )
    elif not event_id.is_same:
        note = f"{repeats} repeat the {event_id.column} of another row, with other values: no `event_id` is proposed"
    else:
        note = f"{repeats} repeat another one: `event_id: {event_id.column}` counts it once"
        proposal = replace(proposal, stream=replace(proposal.stream, event_id=event_id.column))
    return proposal, note


def _too_many(names: Sequence[str]) -> list[Diagnostic]:
    """The warning about streams beyond the largest number, if there are any."""
    if not names:
        return []
    message = f"only {MOST_STREAMS} streams are proposed; left out: {', '.join(names[:20])}"
    message += f" and {len(names) - 20} more" if len(names) > 20 else ""
    return [Diagnostic("HDL-496", message, "name the files or folders that you need", severity="warning")]


def _no_stream(looked: Mapping[str, Data]) -> Diagnostic:
    """That no table has events."""
    hint = "a stream needs a column with the time of each event: heddle init … --time TABLE=COLUMN"
    what = f"none of {', '.join(list(looked)[:6])} has a column of times" if looked else "no table can be read"
    return Diagnostic("HDL-136", what, hint)


def _schemas() -> Iterator[tuple[str, Mapping[str, object]]]:
    yield f"{STREAMS}.json", streams_schema()
    yield f"{NAME}.json", schema()


# ------------------------------------------------------------------------------------------ finding data
def _expanded(paths: Sequence[str | Path]) -> list[Path | Place]:
    """The named data, on this machine with patterns too; if the files are all those of a folder, the folder."""
    places = [Place.of(text) for text in map(str, paths) if scheme_of(text) in SCHEMES]
    local = _local([Path(path) for path in paths if scheme_of(str(path)) not in SCHEMES])
    return [*local, *dict.fromkeys(places)]


def _local(paths: Sequence[Path]) -> list[Path]:
    local_paths: list[Path] = []
    for path in paths:
        matched = [path] if path.exists() else sorted(Path().glob(str(path)) if not path.is_absolute() else _glob(path))
        if not matched:
            raise HeddleError("HDL-134", f"there is nothing at {path}", "check the path, or the pattern")
        local_paths += matched
    local_paths = list(dict.fromkeys(local_paths))
    parents = {path.parent for path in local_paths}
    if len(local_paths) > 1 and len(parents) == 1 and all(path.is_file() for path in local_paths):
        folder = parents.pop()
        if set(local_paths) == set(data_files(folder)) and len({ending_of(path.name) for path in local_paths}) == 1:
            return [folder]
    return local_paths


def _glob(pattern: Path) -> Iterator[Path]:
    return Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))


# ------------------------------------------------------------------------------------------ streams.yaml
def streams_text(proposals: Sequence[Proposal], folder: Path, dimensions: Sequence[ProposedDimension] = ()) -> str:
    """The file of streams, with what was seen as comments."""
    lines = [
        f"# yaml-language-server: $schema={SCHEMAS}/{STREAMS}.json",
        '# Where the events are, and which column is their time. All keys: docs/language.md, "Streams".',
        "streams:",
    ]
    for proposal in proposals:
        lines += _stream_lines(proposal, folder)
    lines += dimensions_lines(dimensions, folder)
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > FILE_BYTES:
        raise HeddleError("HDL-135", "the columns are too many to be declared", "name fewer files at once")
    return text


def _stream_lines(proposal: Proposal, folder: Path) -> Iterator[str]:
    stream, inspection = proposal.stream, proposal.inspection
    yield f"  {stream.name}:"
    yield f"    # {number_of(inspection.files, 'file')}, {inspection.events_text}"
    if inspection.first is not None and inspection.last is not None:
        yield f"    # {inspection.span_text}, {rate_text(proposal.rate)}"
    for note in proposal.notes:
        yield f"    # {comment_text(note)}"
    yield from source_lines(stream.source, folder)
    yield f"    time: {yaml_text(stream.time)}"
    others = [candidate for candidate in proposal.data.candidates if candidate.name != stream.time]
    for candidate in others[:3]:
        how = f"also {candidate.how}; if it is the time: heddle init … --time {stream.name}={candidate.name}"
        yield f"    # time: {comment_text(yaml_text(candidate.name))}   # {comment_text(how)}"
    if stream.event_id is not None:
        yield f"    event_id: {yaml_text(stream.event_id)}"
    yield "    # lateness: 10 minutes   # how long events may still come after the clock has passed their time"
    # a file says its columns itself; they are shown to be read
    mark = "" if proposal.has_schema else "# "
    yield f"    {mark}schema:" + ("" if proposal.has_schema else "   # as the files have it")
    for name, type in stream.schema:
        yield f"    {mark}  {column_line(name, type)}"
    for name, nested in stream.nested if proposal.has_schema else ():
        yield f"    {mark}  {yaml_text(name)}: {yaml_text(str(nested))}"


# ----------------------------------------------------------------------------------- settings, Airflow
_SETTINGS = f"""\
#:schema {SCHEMAS}/{NAME}.json
# Defaults of the commands in this folder and below. All keys: docs/configuration.md.
warehouse = "warehouse"
streams = "{STREAMS}"
workload = ["queries"]
"""

_DAG_FILE = """\
# Heddle's DAGs, over the project in the folder above.
from pathlib import Path

from heddle.airflow import dags

dags(project=Path(__file__).resolve().parent.parent)
"""


def _environment(folder: Path) -> str:
    """Settings that every process of Airflow needs: the scheduler's timetable and the pages read them too."""
    base = folder.resolve()
    values = {"AIRFLOW__CORE__DAGS_FOLDER": base / "dags", "HEDDLE_PROJECT": base}
    if (PROJECT / "plugins").is_dir():
        # a checkout, which is not installed
        values |= {"AIRFLOW__CORE__PLUGINS_FOLDER": PROJECT / "plugins", "PYTHONPATH": PROJECT}
    lines = "".join(f"{name}={value}\n" for name, value in values.items())
    return f"# For every process of Airflow: set -a; . ./{ENVIRONMENT}; set +a\n{lines}"
