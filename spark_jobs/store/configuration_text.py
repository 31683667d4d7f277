"""What ``docs/configuration.md`` says above the table of settings (:func:`spark_jobs.store.settings.page`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

INTRODUCTION = """\
Heddle is configured by options of commands, by environment variables, and by a project file `heddle.toml`. What is
said first in this order holds: option (or parameter of a DAG), environment variable, project file, default. They are
read when they are needed, not once at the start; `heddle config` shows each value and where it comes from.

## heddle.toml

```toml
warehouse = "house"
streams = "streams.yaml"
workload = ["queries", "more/*.sql"]
tables_of_owners = ["desk"]
```

With this file in a folder, `heddle validate`, `heddle run --from 2013-07-01 --to 2013-07-02`, `heddle status` and all
other commands there and below need neither files nor `--streams` and `--warehouse`. `heddle plan`, `heddle explain` and
`heddle what-if` take the warehouse from it only where no FILES are given.

If `HEDDLE_PROJECT` names a folder, its file is read. Otherwise Heddle reads the nearest file upward from the working
directory, or the one in `HEDDLE_HOME` if there is none. Only one file is read.

The file can say which code Spark loads. So Heddle refuses a file above the working directory that other users control,
with HDL-123 and the folder or file that causes it: every folder, link and target on its way has to belong to you or to
root, and nobody else may write it. A folder with the sticky bit, such as `/tmp`, may lie above the project but not be
the project. A group that has no other member, a read-only mount and a mounted ConfigMap are fine. If you trust the
folder, set `HEDDLE_HOME` to it: what it names is not checked.

Keys are named in the table below. Paths are relative to the folder of the file. An unknown key, a value of a wrong type
and bad TOML are HDL-123, with the place.

## Editors

`heddle init` writes the JSON schemas of both files into the folder `.heddle` of the project, and names them in the
first line of each file. So editors complete keys and mark mistakes without a network. For YAML (VS Code's YAML
extension, and all that use yaml-language-server) the line is:

```yaml
# yaml-language-server: $schema=.heddle/streams.yaml.json
streams:
  trades:
    source: {format: csv, path: trades.csv}
    time: ts
```

For TOML (Even Better TOML, taplo) it is `#:schema .heddle/heddle.toml.json`. After an update of Heddle write the
schemas again: `heddle schema streams > .heddle/streams.yaml.json` and
`heddle schema heddle.toml > .heddle/heddle.toml.json`. They are also shipped as
[streams.schema.json](schemas/streams.schema.json) and [heddle.schema.json](schemas/heddle.schema.json). A schema
knows keys, types and choices; `heddle validate` knows the rest.

## Settings
"""


def page_of(rows: Iterable[Sequence[str]], module: str) -> str:
    """The page on configuration, which a module prints, with the cells of each setting."""
    lines = [
        "# Configuration",
        "",
        f"<!-- Generated: edit {module.replace('.', '/')}.py, then python -m {module} > docs/configuration.md -->",
        "",
        INTRODUCTION,
        "| Variable | In heddle.toml | Value | Default | Meaning | A wrong value |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(cells)} |" for cells in rows),
    ]
    return "\n".join([*lines, "", "The codes are explained in [errors](errors.md).", ""])
