"""The documents are true: links live, blocks are read or run, figures carry commands, lists are what is declared."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from heddle.cli.app import app
from optimizer.aggregates.algebra import AGGREGATES, Aggregate
from optimizer.language.parser import parse
from optimizer.language.scalar_calls import SCALAR_CALLS
from optimizer.language.words import CALLABLE
from optimizer.search.search import ALGORITHMS
from optimizer.workload.scalars import CAST_TYPES, SCALARS, UNITS
from optimizer.workload.streams import load_streams
from optimizer.workload.values import Stream
from tests import cli_reference, snippets
from tests.snippets import ROOT, blocks

README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("examples/**/README.md")])
LINES = 180
"""Most lines of the README."""
MEASURED = [README, *(DOCS / f"{name}.md" for name in ("benchmarks", "papers", "reliability"))]
"""Pages whose tables of figures name the command that measured them."""
FOLDERS = ("optimizer", "spark_jobs", "plugins", "dags", "docker", "tests", "examples", "docs", "heddle")
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
"""Every command of the command line, by name."""

named = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


# ---------------------------------------------------------------------------------------- aggregates
CALLS = {
    "value": "{name}(x)",
    "value+by": "{name}(x, y)",
    "value+time": "{name}(x)",
    "value+fraction": "{name}(x, φ)",
    "value+k": "{name}(x, k)",
    "number+number": "{name}(x, y)",
    "value+fractions": "{name}(x, array(φ, …))",
    "value+lgk": "{name}(x[, lgk])",
    "value+entries": "{name}(x[, lgk])",
    "value+size": "{name}(x[, k])",
    "state": "{name}(c)",
    "ordered": "{name}(x)",
    "ordered+k": "{name}(x, k [ORDER BY y])",
    "ordered+separator": "{name}(x[, ', '] [ORDER BY y])",
}
TAKES = {
    "state": "a condition",
    "ordered": "an integer or a decimal",
    "ordered+k": "no double",
    "ordered+separator": "no double",
}
"""What aggregates take that keep something else."""
SKETCHES = {(): "", ("registers",): "HyperLogLog", ("quantiles",): "spaced ranks", ("frequent",): "frequent items"}


def rows_of_aggregates() -> list[str]:
    """A row for each meaning: the names that have it as they are called, what they take, their class and sketch."""
    declared: dict[str, list[Aggregate]] = {}
    for aggregate in AGGREGATES.values():
        declared.setdefault(aggregate.meaning, []).append(aggregate)
    rows = []
    for meaning, aliases in declared.items():
        first = aliases[0]
        calls = " ".join(f"`{CALLS[alias.signature].format(name=alias.name)}`" for alias in aliases)
        takes = TAKES.get(first.signature, first.takes)
        rows.append(f"| {calls} | {meaning} | {takes} | {first.klass} | {SKETCHES[first.sketch]} |")
    return rows


def test_the_table_of_aggregates_is_what_is_declared() -> None:
    section = (DOCS / "language.md").read_text().partition("\n## Aggregates\n")[2].partition("\n## ")[0]
    written = [line for line in section.splitlines() if line.startswith("| `")]
    assert written == rows_of_aggregates()


# --------------------------------------------------------------------------------------- expressions
SCALAR_FORMS = {
    "if": "`if(c, x, y)` `CASE WHEN c THEN x … [ELSE y] END` `CASE x WHEN v THEN … END` `nullif(x, y)`",
    "cast": "`CAST(x AS t)` `TRY_CAST(x AS t)` `x::t`",
    "date_trunc": "`date_trunc('hour', t)`",
    "date_part": "`extract(hour FROM t)` `date_part('hour', t)` `datepart('hour', t)` `year(t)` `quarter(t)` "
    "`month(t)` `weekofyear(t)` `day(t)` `dayofmonth(t)` `dayofweek(t)` `weekday(t)` `dayofyear(t)` `hour(t)` "
    "`minute(t)` `second(t)`",
    "time_diff": "`timestampdiff(MINUTE, t, u)` `datediff(u, t)` `date_diff(u, t)`",
    "at_zone": "`t AT TIME ZONE 'Europe/Berlin'` `from_utc_timestamp(t, 'Europe/Berlin')`",
    "to_timestamp": "`to_timestamp(x, 'dd/MM/yyyy HH:mm')`",
    "to_date": "`to_date(x, 'dd/MM/yyyy')`",
    "substring": "`substring(x, from[, count])` `substr(x, from[, count])` `left(x, count)` `right(x, count)`",
    "length": "`length(x)` `char_length(x)`",
    "split_part": "`split_part(x, '-', 2)`",
    "concat": "`concat(x, y, …)` `x || y`",
    "trim": "`trim(x)`",
    "ltrim": "`ltrim(x)`",
    "rtrim": "`rtrim(x)`",
    "replace": "`replace(x, 'a'[, 'b'])`",
    "regexp_like": "`regexp_like(x, '^a+')` `rlike(x, '^a+')` `x RLIKE '^a+'`",
    "round": "`round(x[, places])`",
    "floor": "`floor(x)`",
    "ceil": "`ceil(x)` `ceiling(x)`",
    "sqrt": "`sqrt(x)`",
    "ln": "`ln(x)`",
    "exp": "`exp(x)`",
    "sin": "`sin(x)`",
    "cos": "`cos(x)`",
    "asin": "`asin(x)`",
    "power": "`power(x, y)` `pow(x, y)`",
    "mod": "`mod(x, y)` `x % y`",
    "greatest": "`greatest(x, y, …)`",
    "least": "`least(x, y, …)`",
}
"""How the functions of single values are written, by the function that answers."""


def test_the_table_of_functions_is_what_is_declared() -> None:
    section = (DOCS / "language.md").read_text().partition("\n## Expressions\n")[2].partition("\n## ")[0]
    rows = [f"| {SCALAR_FORMS[function.name]} | {function.meaning} |" for function in SCALARS]
    assert "\n".join(rows) in section
    assert SCALAR_FORMS.keys() == {function.name for function in SCALARS}
    assert set(SCALAR_CALLS) == set(CALLABLE)
    assert [name for name in SCALAR_CALLS if f"`{name}(" not in section] == []
    assert [unit for unit in (*UNITS, *CAST_TYPES) if unit not in section] == []


# ------------------------------------------------------------------------------------ generated lists
def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    assert cli_reference.PAGE.read_text() == cli_reference.page(), "python -m tests.cli_reference renews docs/cli.md"


def test_every_command_has_a_row_of_its_own() -> None:
    written = set(re.findall(r"^\| `heddle ([\w-]+)", cli_reference.PAGE.read_text(), re.MULTILINE))
    assert written == set(COMMANDS)


def test_every_plan_search_is_in_the_catalogue() -> None:
    text = (DOCS / "algorithms.md").read_text()
    assert [name for name in ALGORITHMS if f"`{name}`" not in text] == []


@named
def test_files_that_are_named_exist(page: Path) -> None:
    """Paths in backticks that begin with a folder of the project."""
    text = unfenced(page.read_text())
    paths = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./*-]+)`", text)
    assert [path for path in paths if not any(ROOT.glob(path.rstrip("/")))] == []


@named
def test_symbols_that_are_named_are_defined(page: Path) -> None:
    """``path.py:symbol`` in backticks."""
    pairs = re.findall(r"`([\w/]+\.py):(\w+)`", unfenced(page.read_text()))
    assert [(path, symbol) for path, symbol in pairs if symbol not in definitions(path)] == []


def guide(title: str) -> str:
    """A section of the page for contributors."""
    return (DOCS / "contributing.md").read_text().split(f"### {title}\n")[1].split("\n### ")[0]


def modules_with(pattern: str) -> list[str]:
    """Modules of production, without experiments, whose text has a pattern."""
    paths = (path for folder in ("heddle", "optimizer", "spark_jobs") for path in ROOT.glob(f"{folder}/**/*.py"))
    names = (str(path.relative_to(ROOT)) for path in paths if re.search(pattern, path.read_text()))
    return sorted(name for name in names if not name.startswith("optimizer/papers/"))


def test_three_modules_know_an_aggregate_by_name() -> None:
    known = modules_with(r"\bbit_or\b|\bBIT_OR\b")
    assert known == [
        "optimizer/aggregates/algebra.py",
        "optimizer/aggregates/state_kinds.py",
        "spark_jobs/audit/unshared/audited.py",
    ]
    assert [name for name in known if name not in guide("An aggregate")] == []


CATALOGUED = [line for line in (DOCS / "algorithms.md").read_text().splitlines() if line.startswith("| ")]
CATALOGUED = [line for line in CATALOGUED if not line.startswith("| algorithm |")]
"""The rows of the catalogue of algorithms."""


def row_of(line: str) -> tuple[str, list[tuple[str, str]]]:
    """What a row says its algorithm runs in, and (module's path, symbol) of its code."""
    *_, runs_in, code, _ = (cell.strip() for cell in line.split(" |"))
    return runs_in, re.findall(r"`([\w/]+\.py):(\w+)`", code)


@cache
def definitions(path: str) -> frozenset[str]:
    """Names that a module defines at its top level; imported names are not among them."""
    names = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        assigned = node.targets if isinstance(node, ast.Assign) else []
        assigned = [node.target] if isinstance(node, ast.AnnAssign) else assigned
        names |= {target.id for target in assigned if isinstance(target, ast.Name)}
    return frozenset(names)


@cache
def uses_of_production() -> frozenset[tuple[str, str]]:
    """(module, name) of everything that a module of production imports, or reads of a module that it imports."""
    uses = set()
    folders = ("heddle", "optimizer", "spark_jobs", "dags", "plugins")
    paths = (path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py"))
    for path in (path for path in paths if not path.is_relative_to(ROOT / "optimizer" / "papers")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imports = [
            (node.module or "", name) for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names
        ]
        uses |= {(module, name.name) for module, name in imports}
        modules = {name.asname or name.name: f"{module}.{name.name}" for module, name in imports}
        uses |= {
            (modules[node.value.id], node.attr)
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
        }
    return frozenset(uses)


def wrong_row(line: str) -> str:
    """What a row of the catalogue says that is not so; empty if all is."""
    runs_in, code = row_of(line)
    if not code:
        return f"no code: {line}"
    for path, symbol in code:
        if not (ROOT / path).is_file() or symbol not in definitions(path):
            return f"{path} does not define {symbol}"
        is_used = (path.removesuffix(".py").replace("/", "."), symbol) in uses_of_production()
        if runs_in != ("production" if is_used else "reference"):
            return f"{path}:{symbol} is not {runs_in}"
    return ""


@pytest.mark.parametrize("line", CATALOGUED, ids=[line.split(" | ")[0][2:] for line in CATALOGUED])
def test_the_catalogue_says_where_an_algorithm_is_and_runs(line: str) -> None:
    assert wrong_row(line) == ""


def test_a_wrong_row_of_the_catalogue_is_noticed() -> None:
    row = "| B-INT | paper | | | {} | `optimizer/{}:{}` |"
    assert len(CATALOGUED) > 40
    assert wrong_row(row.format("reference", "papers/reference/a_seq.py", "a_seq")) == ""
    assert "is not production" in wrong_row(row.format("production", "papers/reference/a_seq.py", "a_seq"))
    assert "is not reference" in wrong_row(row.format("reference", "combine/two_stacks.py", "combine_forward"))
    # imported there, not defined
    assert "does not define" in wrong_row(row.format("production", "combine/choose.py", "combine_forward"))
    assert "does not define" in wrong_row(row.format("production", "combine/nowhere.py", "combine_forward"))
    assert "no code" in wrong_row("| B-INT | paper | | | reference | `optimizer/combine/choose.py` |")


def test_the_site_has_every_page() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def files(entry: Any) -> Iterator[str]:
        for item in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            yield from files(item)
        if isinstance(entry, str):
            yield entry

    assert sorted(files(site["nav"])) == sorted(path.name for path in DOCS.glob("*.md"))
    assert site["theme"]["font"] is False and "analytics" not in site["extra"]


def test_the_builder_of_the_site_is_pinned() -> None:
    lines = [line for line in (ROOT / "requirements-docs.txt").read_text().splitlines() if not line.startswith("#")]
    assert any(line.startswith("mkdocs-material==") for line in lines)
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line)] == []


# ---------------------------------------------------------------------------------------------- links
def unfenced(text: str) -> str:
    """A page's text without its fenced blocks."""
    return re.sub(r"(?ms)^```.*?^```", "", text)


def prose(text: str) -> str:
    """A page's text without fenced blocks and code in lines."""
    return re.sub(r"`[^`\n]*`", "", unfenced(text))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings. Those that hosts of repositories and MkDocs make differ (runs of hyphens) are
    left out: nobody can link to them from both."""
    slugs = set()
    for heading in re.findall(r"(?m)^#+ (.+)$", unfenced(page.read_text())):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        slugs |= {slug} if "--" not in slug else set()
    return slugs


@named
def test_links_live(page: Path) -> None:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            dead.append(link)
        if page.parent == DOCS and DOCS not in (target, *target.parents):
            dead.append(f"{link}: is not in the site")
    assert dead == []


WRITTEN = [page for page in PAGES if page.name not in ("errors.md", "configuration.md")]
"""Pages that people write; the others are generated whole."""


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_not_endless(page: Path) -> None:
    """Prose is wrapped, so that a change of a sentence is a small difference; tables and generated text are not."""
    text = prose(page.read_text().partition(cli_reference.MARK)[0])
    assert [line for line in text.splitlines() if len(line) > 130 and not line.startswith("|")] == []


# ------------------------------------------------------------------------------------------- figures
def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LINES


def targets() -> set[str]:
    return set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))


COMMAND = re.compile(r"`(make\s\w|python -m tests\.|heddle )[^`]+`")


@pytest.mark.parametrize("page", MEASURED, ids=lambda page: page.name)
def test_tables_of_figures_name_their_command(page: Path) -> None:
    """In the section of each table with a figure outside its first column stands a command in backticks, or a link to
    the example whose commands are run."""
    sections = re.split(r"(?m)^#+ ", unfenced(page.read_text()))
    figures = 0
    for section in sections:
        rows = [row.partition("|")[2] for row in re.findall(r"(?m)^\|(?!-)(.*)$", section)]
        if any(re.search(r"\d", re.sub(r"`[^`]*`|\]\([^)]*\)", "", row)) for row in rows):
            figures += 1
            assert COMMAND.search(section) or "README.md)" in section, section[:200]
    assert figures


@named
def test_commands_exist(page: Path) -> None:
    """Modules, targets and commands with their options, in blocks and in lines of text."""
    text = page.read_text().replace("\\|", "|")
    for module in re.findall(r"python -m (tests\.[\w.]+)", text):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module
    for path in re.findall(r"(?<![\w/])(?:tests|examples)/[\w/.-]*\w", text):
        assert (ROOT / path).exists(), path
    for target in re.findall(r"(?m)(?:`|^)make ([a-z]+(?:-[a-z]+)?)", text):
        assert target in targets(), target
    for line in re.findall(r"(?m)(?:`|^|\$ )heddle ([a-z][^`\n]*)", text):
        name, *words = line.split()
        assert name in COMMANDS, line
        options = {
            option for parameter in COMMANDS[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        } | {"--help"}
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words)):
            assert option in options, f"heddle {line}"


# -------------------------------------------------------------------------------------------- blocks
def streams_of(text: str, folder: Path) -> dict[str, Stream]:
    """The streams that a streams.yaml declares. Raises AssertionError if something is wrong with it."""
    (folder / "streams.yaml").write_text(text)
    streams, diagnostics = load_streams(folder / "streams.yaml")
    assert not diagnostics and streams, diagnostics
    return streams


@named
def test_sql_and_yaml_blocks_are_read(page: Path, tmp_path: Path) -> None:
    streams: dict[str, Stream] = {}
    for declared in (ROOT / "dags/workload/streams.yaml", *ROOT.glob("examples/*/streams.yaml")):
        streams |= load_streams(declared)[0]
    declarations = [block for block in blocks(page) if block.language == "yaml"]
    for block in reversed(declarations):  # queries of a page are over its first declaration
        streams |= streams_of(block.text, tmp_path)
    for block in blocks(page):
        if block.language == "sql":
            parsed = parse(block.text, streams)
            assert parsed.queries and not parsed.diagnostics, f"{page.name}:{block.line}: {parsed.diagnostics}"


@named
def test_python_blocks_are_those_that_a_test_evaluates(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            assert f"\n{block.text}" in snippets.PYTHON, f"{page.name}:{block.line}"


@named
def test_every_block_has_a_language(page: Path) -> None:
    known = {"sql", "yaml", "toml", "python", "pycon", "sh", "text", "console", "diff"}
    unknown_blocks = [f"{page.name}:{block.line}" for block in blocks(page) if block.language not in known]
    assert unknown_blocks == []


def test_the_readme_shows_a_query_and_the_answer_of_an_example() -> None:
    text, example = README.read_text(), ROOT / "examples/web-requests"
    (query,) = [block.text for block in blocks(README) if block.language == "sql"]
    assert query in (example / "queries.sql").read_text() + "\n"
    answers = [block.text for block in blocks(example / "README.md") if block.language == "text"][-1].splitlines()[1:]
    rows = [f"| {' | '.join(line.replace(chr(34), '').split(','))} |" for line in answers]
    assert "\n".join(rows) in text


@pytest.mark.parametrize("name", snippets.PLAYED)
def test_shell_blocks_print_what_is_shown(name: str, tmp_path: Path) -> None:
    page = ROOT / name
    if page != README:
        for file in (path for path in page.parent.rglob("*") if path.suffix in (".csv", ".parquet", ".sql", ".yaml")):
            if "warehouse" not in file.parts:
                copy = tmp_path / file.relative_to(page.parent)
                copy.parent.mkdir(exist_ok=True)
                copy.write_bytes(file.read_bytes())
    printed, compared = None, 0
    for block in blocks(page):
        if block.language == "sh":
            printed = snippets.play(block.text, tmp_path)
        elif block.language == "text" and block.follows and printed is not None:
            assert block.text == printed, f"{name}:{block.line}"
            compared += 1
    assert compared >= 2


def test_a_shell_block_is_whole_commands() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "sh":
                for command in snippets.commands(block.text):
                    assert shlex.split(command.splitlines()[0], comments=True), f"{page.name}:{block.line}"
                done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=60)
                assert done.returncode == 0, f"{page.name}:{block.line}: {done.stderr}"


# ------------------------------------------------------------------------------------------ examples
def test_examples_are_small() -> None:
    for folder in (ROOT / "examples").glob("*/"):
        if folder.name not in ("__pycache__", "grafana", "schedulers"):
            assert {"README.md", "queries.sql", "streams.yaml", "data"} <= {path.name for path in folder.iterdir()}
            assert sum(path.stat().st_size for path in folder.glob("data/*")) <= 100_000


def test_the_data_of_the_examples_are_what_their_script_writes(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    subprocess.run([sys.executable, ROOT / "examples/make_data.py", tmp_path], check=True, timeout=60)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 4
    for path in written:
        ours = ROOT / "examples" / path.relative_to(tmp_path)
        if path.suffix == ".parquet":
            assert pq.read_table(path).equals(pq.read_table(ours))
        else:
            assert path.read_bytes() == ours.read_bytes()
