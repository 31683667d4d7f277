"""A project made from data: ``heddle init``. It writes small files that a person reads and edits, and their schemas."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.installing import PROJECT
from optimizer.language.parser import parse
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY, duration_text
from optimizer.workload.streams import FILE_BYTES
from optimizer.workload.streams_schema import streams_schema
from optimizer.workload.urls import SCHEMES, scheme_of
from optimizer.workload.values import BOOLEAN, DOUBLE, LONG, SECOND, STRING
from spark_jobs.store.project_file import NAME
from spark_jobs.store.settings import schema
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.schemas import MARKER
from spark_jobs.streams.sources.formats import FORMATS
from spark_jobs.streams.sources.proposals import (
    LONE,
    Data,
    Proposal,
    TimeCandidate,
    data_files,
    look,
    propose,
    stream_name,
    time_of,
)

STREAMS = "streams.yaml"
QUERIES = "queries/first.sql"
SCHEMAS = ".heddle"
"""Folder of a project with the JSON schemas of its files, which editors check them by without a network."""

DAGS = "dags/heddle_dags.py"
ENVIRONMENT = "airflow.env"

MOST_STREAMS = 10
"""Streams that are proposed where nobody names data."""

DEEPEST = 3
"""Folders in folders that are looked into where nobody names data."""

WINDOWS = (
    (60 * SECOND, 60 * SECOND),
    (300 * SECOND, 60 * SECOND),
    (900 * SECOND, 300 * SECOND),
    (3600 * SECOND, 900 * SECOND),
    (6 * 3600 * SECOND, 3600 * SECOND),
    (DAY, 3600 * SECOND),
    (7 * DAY, DAY),
    (30 * DAY, DAY),
)
"""Ranges and slides that a first query may have, in microseconds."""

ENOUGH = 20
"""Events that a window of a first query should have, on average."""

MOST_WINDOWS = 500
"""Windows that the span of the data should have at most."""

MOST_GROUPS = 50
"""Distinct values of a column in a sample by which a first query groups."""

Choose = Callable[[Data, TimeCandidate, str], tuple[TimeCandidate, str]]
"""Asks a person for the time column and the name of a stream, given the likeliest."""


@dataclass(frozen=True)
class Project:
    """Proposal of ``heddle init``: the streams, and the text of each file by its path below ``folder``."""

    folder: Path
    proposals: tuple[Proposal, ...]
    files: tuple[tuple[str, str], ...]
    problems: tuple[Diagnostic, ...] = ()

    @property
    def next_steps(self) -> tuple[str, ...]:
        """The commands that come next, over the newest day of the data."""
        change = [] if self.folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(self.folder))}"]
        last = next((p.inspection.newest for p in self.proposals if p.inspection.newest is not None), None)
        day = 0 if last is None else last // DAY * DAY
        queries = re.findall(r"-- name: (\w+)", dict(self.files)[QUERIES])
        run = f"heddle run --from {day_label(day)} --to {day_label(day + DAY)}"
        read = [f"heddle read {queries[0]}"] if queries else []
        return (*change, "heddle validate", "heddle preview", run, *read)

    def write(self) -> list[Path]:
        """Write the files. Raises HDL-133, before anything is written, if one is there; HDL-115 if one cannot be."""
        for name, _ in self.files:
            if os.path.lexists(self.folder / name):
                hint = "nothing was written; move it, or name another folder by --folder"
                raise HeddleError("HDL-133", f"{self.folder / name} is there already", hint)
        written = []
        for name, text in self.files:
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
    time: str | None = None,
    name: str | None = None,
    airflow: bool = False,
    choose: Choose = lambda data, time, name: (time, name),
) -> Project:
    """A project over data: files, folders, Delta tables, patterns, or URLs of stores (none: the data in the working
    folder and below).

    ``time``, ``name``: the time column and the name of the stream, of data that are one stream. Data that no path
    names and that cannot be used are reported and skipped. Raises HDL-134 if there are no data, HDL-135 and HDL-136
    for named data that cannot be used, and the errors of a store.
    """
    inputs: Sequence[Path | Place] = _expanded(paths) if paths else list(found_below(Path()))
    if not inputs:
        raise HeddleError("HDL-134", "there are no CSV, Parquet or Delta data here or below", "heddle init PATH")
    if len(inputs) > 1 and name is not None:
        raise HeddleError("HDL-134", f"--name names one stream, the data are {len(inputs)}", "name one file or folder")
    proposals: list[Proposal] = []
    problems: list[Diagnostic] = []
    for path in inputs[:MOST_STREAMS]:
        try:
            data = look(path)
            chosen, called = choose(data, time_of(data, time), name or _free_name(path, proposals))
            proposals.append(propose(data, chosen, called))
        except HeddleError as error:
            if paths:
                raise
            problems.append(replace(error.diagnostic, severity="warning"))
    if not proposals:
        raise HeddleError.of(*problems)
    files = [(STREAMS, streams_text(proposals, folder)), (QUERIES, queries_text(proposals)), (NAME, _SETTINGS)]
    files += [(f"{SCHEMAS}/{name}", json.dumps(schema, indent=2) + "\n") for name, schema in _schemas()]
    if airflow:
        files += [(DAGS, _DAG_FILE), (ENVIRONMENT, _environment(folder))]
    return Project(folder, tuple(proposals), tuple(files), tuple(problems))


def _schemas() -> Iterator[tuple[str, Mapping[str, object]]]:
    yield f"{STREAMS}.json", streams_schema()
    yield f"{NAME}.json", schema()


def _free_name(path: Path | Place, proposals: Sequence[Proposal]) -> str:
    """A name for the stream of a path that no other has."""
    name, used_names = stream_name(path), {proposal.stream.name for proposal in proposals}
    return next(text for text in (name, *(f"{name}_{number}" for number in range(2, 99))) if text not in used_names)


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
        if set(local_paths) == set(data_files(folder)) and len({path.suffix for path in local_paths}) == 1:
            return [folder]
    return local_paths


def _glob(pattern: Path) -> Iterator[Path]:
    return Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))


def found_below(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Data in a folder and below it: Delta tables, folders of data files, and files of the folder itself."""
    if any(format.log and (folder / format.log).is_dir() for format in FORMATS.values()):
        yield folder
        return
    if (folder / MARKER).exists():
        return
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return
    files = [path for path in inside if path.suffix in LONE and path.is_file()]
    partitioned = any("=" in path.name and path.is_dir() for path in inside)
    if partitioned or (depth and len(files) > 1 and len({path.suffix for path in files}) == 1):
        yield folder
        return
    yield from files
    for path in inside:
        hidden = path.name.startswith((".", "_")) or path.name in ("node_modules", "venv", "var")
        if path.is_dir() and not path.is_symlink() and not hidden and depth < DEEPEST:
            yield from found_below(path, depth + 1)


# ------------------------------------------------------------------------------------------ streams.yaml
def streams_text(proposals: Sequence[Proposal], folder: Path) -> str:
    """The file of streams, with what was seen as comments."""
    lines = [
        f"# yaml-language-server: $schema={SCHEMAS}/{STREAMS}.json",
        '# Where the events are, and which column is their time. All keys: docs/language.md, "Streams".',
        "streams:",
    ]
    for proposal in proposals:
        lines += _stream_lines(proposal, folder)
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > FILE_BYTES:
        raise HeddleError("HDL-135", "the columns are too many to be declared", "name fewer files at once")
    return text


def _stream_lines(proposal: Proposal, folder: Path) -> Iterator[str]:
    stream, inspection = proposal.stream, proposal.inspection
    yield f"  {stream.name}:"
    about = "about " if proposal.is_about else ""
    number = inspection.files
    yield f"    # {number:,} file{'s' if number != 1 else ''}, {about}{proposal.rows:,} events"
    if inspection.first is not None and inspection.last is not None:
        yield f"    # {inspection.span_text}, {rate_text(proposal.rate)}"
    for note in proposal.notes:
        yield f"    # {note}"
    yield "    source:"
    source = stream.source
    yield f"      format: {source.format}"
    yield f"      path: {_yaml(_relative(source.path, folder))}"
    if source.delimiter != ",":
        yield f"      delimiter: {_yaml('tab' if source.delimiter == chr(9) else source.delimiter)}"
    if not source.header:
        yield "      header: false"
    if source.null:
        yield f"      null: {_yaml(list(source.null))}"
    if source.timestamp_format is not None:
        yield f"      timestamp_format: {_yaml(source.timestamp_format)}"
    if source.time_unit is not None:
        yield f"      time_unit: {source.time_unit}"
    yield f"    time: {_yaml(stream.time)}"
    other_times = [candidate.name for candidate in proposal.data.candidates if candidate.name != stream.time]
    if other_times:
        yield f"    # other columns with times: {', '.join(map(_comment, other_times[:6]))}"
    yield "    # lateness: 10 minutes   # how long events may still come after the clock has passed their time"
    # a file says its columns itself; they are shown to be read
    mark = "" if proposal.has_schema else "# "
    yield f"    {mark}schema:" + ("" if proposal.has_schema else "   # as the files have it")
    for name, type in stream.schema:
        yield f"    {mark}  {_yaml(name)}: {_yaml(str(type)) if type.name == 'decimal' else type}"


def _yaml(value: str | list[str]) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return text.removesuffix("\n").removesuffix("...").rstrip("\n")


def _comment(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _relative(path: str, folder: Path) -> str:
    """A path as streams.yaml has it: relative to its folder, unless it lies elsewhere or in a store."""
    if scheme_of(path) in SCHEMES:
        return path
    base = folder.resolve()
    place = Path(path)
    return place.relative_to(base).as_posix() if place.is_relative_to(base) else place.as_posix()


def rate_text(rate: Fraction) -> str:
    """Events a second for people, in the unit in which they are a handful."""
    for size, unit in ((1, "a second"), (60, "a minute"), (3600, "an hour")):
        if rate * size >= 1:
            return f"about {float(rate * size):,.3g} {unit}"
    return f"about {float(rate * 86_400):.3g} a day"


# ------------------------------------------------------------------------------------------- queries.sql
def queries_text(proposals: Sequence[Proposal]) -> str:
    """A first query of each stream: how many events, and the mean of a column, by a column of few values."""
    lines = ["-- Queries over the streams of streams.yaml. `heddle preview` answers them on the newest data.", ""]
    for proposal in proposals:
        lines += [first_query(proposal), ""]
    return "\n".join(lines)


def first_query(proposal: Proposal) -> str:
    """A query that the language accepts, over the measured span."""
    group, measure = _group(proposal), _measure(proposal)
    choices = ((group, measure), (group, None), (None, measure), (None, None))
    for group, measure in dict.fromkeys(choices):
        text = _query(proposal, group, measure)
        parsed = parse(text, {proposal.stream.name: proposal.stream})
        if parsed.queries and not any(problem.severity == "error" for problem in parsed.diagnostics):
            return text
    return f"-- no query was found for {proposal.stream.name}: write one\n"


def _query(proposal: Proposal, group: str | None, measure: str | None) -> str:
    size, slide = window_of(proposal.rate, proposal.span)
    stream = proposal.stream
    outputs = [_quoted(group)] if group is not None else []
    outputs.append("count(*) AS events")
    if measure is not None:
        outputs.append(f"avg({_quoted(measure)}) AS {_alias(measure)}")
    by = f"\nGROUP BY {_quoted(group)}" if group is not None else ""
    return (
        f"-- name: {stream.name}_{_short(size)}\n"
        f"SELECT {', '.join(outputs)}\n"
        f"FROM {stream.name}\n"
        f"WINDOW RANGE '{duration_text(size)}' SLIDE '{duration_text(slide)}' ON {_quoted(stream.time)}{by};"
    )


def window_of(rate: Fraction, span: int) -> tuple[int, int]:
    """Range and slide (microseconds) of a first query: the shortest window with enough events that are not too many."""
    fitting = [pair for pair in WINDOWS if pair[0] <= span] or [WINDOWS[0]]
    enough = (pair for pair in fitting if rate * pair[0] >= ENOUGH * SECOND and span <= MOST_WINDOWS * pair[0])
    return next(enough, fitting[-1])


def _short(size: int) -> str:
    for unit, letter in ((DAY, "d"), (3600 * SECOND, "h"), (60 * SECOND, "min")):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return "window"


def _quoted(name: str) -> str:
    """A column as a query has it: in backticks unless it is a plain word in lower case, hence no word of the language
    that is written in capitals here."""
    is_plain = re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) and name not in _WORDS
    return name if is_plain else "`" + name.replace("`", "``") + "`"


_WORDS = frozenset(
    re.findall(
        r"\w+",
        """select from where group by having order limit window range rows slide on as and or not in is null like
        between case when then else end cast distinct count sum avg min max first last filter partition seq at most
        ending ago true false interval date timestamp with union join left right table values desc asc all any if""",
    )
)


def _alias(measure: str) -> str:
    cleaned = re.sub(r"\W+", "_", measure, flags=re.ASCII).strip("_").lower()[:40]
    return f"mean_{cleaned}" if cleaned else "mean"


def _distinct(proposal: Proposal, name: str) -> int:
    sample: pa.Table = proposal.data.sample
    return int(pc.count_distinct(sample[name]).as_py()) if name in sample.schema.names else 0


def _group(proposal: Proposal) -> str | None:
    """A column of few values, that repeat."""
    rows = len(proposal.data.sample)
    for name, type in proposal.stream.schema:
        distinct = _distinct(proposal, name)
        few = 1 < distinct <= min(MOST_GROUPS, max(2, rows // 2))
        if type in (STRING, BOOLEAN) and name != proposal.stream.time and few:
            return name
    return None


def _measure(proposal: Proposal) -> str | None:
    """A column of numbers, that are no numbers of things."""
    numbers = [
        (name, type)
        for name, type in proposal.stream.schema
        if type.name in ("double", "decimal", "long") and name != proposal.stream.time and _distinct(proposal, name) > 1
    ]
    ids = re.compile(r"(?i)(^|_)(id|key|code|number|no|nr|index|year|zip|plz)s?(_|$)|__index")
    likely = [(name, type) for name, type in numbers if not ids.search(name)]
    preferred = sorted(likely, key=lambda pair: (pair[1] != DOUBLE, pair[1] == LONG))
    return preferred[0][0] if preferred else None


# ----------------------------------------------------------------------------------- settings, Airflow
_SETTINGS = f"""\
#:schema {SCHEMAS}/{NAME}.json
# What commands need not be told in this folder and below. All keys: docs/configuration.md.
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
