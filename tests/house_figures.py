"""The size and shape of the project, as one table.

    python -m tests.house_figures [CHECKOUT ...] [--json FILE]

Each CHECKOUT is a column. Without one, the only column is this checkout. The command imports nothing, so it also reads
other commits.

*Code lines* are lines with a token that is no comment, no docstring and no blank. A *room* is a direct child of
``spark_jobs``; an *arrow* leads from a room to a room that it imports, except under ``TYPE_CHECKING``; *floors* are the
length of the longest path of arrows; rooms on a *circle* import one another. *Tests on the kind* compare the kind of a
window or a source's format outside of its own module. *Dialect words* are names, of any kind, that are one of
:data:`DIALECT`.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("heddle", "optimizer", "spark_jobs", "plugins", "dags")
PAPERS = "optimizer/papers/"

DIALECT = ("found", "told", "one", "left", "asked", "held", "beside", "whole", "given", "kept")

WINDOW_KINDS = re.compile(r"is_rows\b|is_sequence\b|\.pattern is (?:not )?None|isinstance\([^)]*Window\)")
FORMATS = re.compile(r"""\.format\b\s*(?:==|!=|in\b|not in\b)|["'](?:csv|parquet|delta|iceberg)["']\s*(?:==|!=)""")


def code_lines(text: str) -> int:
    """Lines with a token that is no comment, docstring or blank."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Dotted names that are imported at run time; of ``from a import b`` both a and a.b."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imports_of(node)


def arrows_of(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """For each room of spark_jobs, by path of its modules, the rooms that it imports."""
    paths = [path for path in modules if path.startswith("spark_jobs/")]
    rooms = {path.split("/")[1].removesuffix(".py") for path in paths} - {"__init__"}
    arrows: dict[str, set[str]] = {room: set() for room in rooms}
    for path, tree in modules.items():
        if path.startswith("spark_jobs/") and (room := path.split("/")[1].removesuffix(".py")) in rooms:
            targets = {name.split(".")[1] for name in imports_of(tree) if name.startswith("spark_jobs.")}
            arrows[room] |= (targets & rooms) - {room}
    return arrows


def reached(arrows: Mapping[str, set[str]], room: str) -> set[str]:
    """The rooms to which a path of arrows leads."""
    seen: set[str] = set()
    waiting = [room]
    while waiting:
        for target in arrows[waiting.pop()] - seen:
            seen.add(target)
            waiting.append(target)
    return seen


def floors_of(arrows: Mapping[str, set[str]]) -> int:
    """Rooms on the longest path; each circle counts as the rooms that it has."""
    depths: dict[str, int] = {}

    def depth(room: str, path: tuple[str, ...]) -> int:
        if room not in depths:
            below = [depth(target, (*path, room)) for target in arrows[room] if target not in path]
            depths[room] = 1 + max(below, default=0)
        return depths[room]

    return max(depth(room, ()) for room in arrows)


def names_of(tree: ast.Module) -> Iterator[str]:
    """Names of functions, parameters and variables, once each time that they are bound."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters of a function, without self and cls."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in arguments)


def figures(checkout: Path) -> dict[str, int]:
    """All figures of a checkout, by what they count."""
    texts = {
        str(path.relative_to(checkout)): path.read_text()
        for folder in (*PRODUCT, "tests")
        for path in sorted((checkout / folder).rglob("*.py"))
    }
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: code_lines(text) for path, text in texts.items()}
    product = [path for path in texts if not path.startswith("tests/")]
    functions = [
        node
        for path in product
        for node in ast.walk(trees[path])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    defined: dict[str, set[str]] = defaultdict(set)
    for path in product:
        for node in trees[path].body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined[node.name].add(path)
    dialect = {
        part: Counter(name.lstrip("_") for path in paths for name in names_of(trees[path]))
        for part, paths in (("product", product), ("tests", [path for path in texts if path.startswith("tests/")]))
    }
    arrows = arrows_of(trees)
    on_kind = {path: len(WINDOW_KINDS.findall(texts[path])) for path in product}
    on_format = {path: len(FORMATS.findall(texts[path])) for path in product}
    rooms = Counter(dict.fromkeys(arrows, 0))
    for path in product:
        if path.startswith("spark_jobs/") and (room := path.split("/")[1].removesuffix(".py")) in arrows:
            rooms[room] += lines[path]
    return {
        "code lines of the product": sum(lines[path] for path in product),
        "- of which the papers' own": sum(lines[path] for path in product if path.startswith(PAPERS)),
        "code lines of tests": sum(count for path, count in lines.items() if path.startswith("tests/")),
        "- of which benchmarks": sum(count for path, count in lines.items() if path.startswith("tests/benchmarks/")),
        "files of the product": len(product),
        "rooms of spark_jobs": len(arrows),
        "floors": floors_of(arrows),
        "arrows": sum(map(len, arrows.values())),
        "rooms on circles": sum(room in reached(arrows, room) for room in arrows),
        "tests on the kind of a window": sum(on_kind.values()),
        "- in files": sum(count > 0 for count in on_kind.values()),
        "tests on the format of a source": sum(on_format.values()),
        "- in files ": sum(count > 0 for count in on_format.values()),
        "dialect words as names, product": sum(dialect["product"][word] for word in DIALECT),
        "dialect words as names, tests": sum(dialect["tests"][word] for word in DIALECT),
        "names defined in three modules or more": sum(len(paths) >= 3 for paths in defined.values()),
        "functions with eight parameters or more": sum(parameters_of(node) >= 8 for node in functions),
        "tests that import tests": sum(
            any(re.match(r"tests\.(\w+\.)*test_\w+$", name) for name in imports_of(trees[path]))
            for path in texts
            if path.startswith("tests/")
        ),
        **{f"code lines of spark_jobs.{room}": count for room, count in rooms.most_common()},
    }


def main() -> None:
    """Print the figures of each checkout."""
    parser = argparse.ArgumentParser(prog="python -m tests.house_figures", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    columns = {str(checkout): figures(checkout.resolve()) for checkout in options.checkouts}
    table = Table("", *columns)
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        table.add_row(name, *(f"{column[name]:,}" if name in column else "" for column in columns.values()))
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(columns, indent=2) + "\n")


if __name__ == "__main__":
    main()
