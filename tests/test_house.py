"""How the house is kept: what every module, class and function of the production code has, and what none has.

Nothing is imported: the rules read the text. Each is a function from modules to what breaks it, so that it is also
tried on a module that does. An exception stands in a list with its reason, and goes once nothing needs it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from tests.house_figures import imports_of

ROOT = Path(__file__).resolve().parents[1]
OWN = ("heddle", "optimizer", "spark_jobs", "plugins", "dags")

LONGEST_FUNCTION = 80
LONGEST_MODULE = 800
LONGEST_COMMAND = 15

DIALECT = frozenset({"told", "held", "beside", "asked", "one", "whole", "mine", "found"})
"""Words that say nothing of what they name."""

LOCALS = (DIALECT - {"one"}) | {"kept", "gone", "taken", "wanted", "theirs", "said"}
"""Words that no local variable has as its name. ``one`` may be the number 1."""

OPENINGS = frozenset({"What", "Whether", "How", "Of", "Where", "As", "Which", "Those", "Who"})
"""Words that open no docstring of a function or class: it opens with a noun or an imperative."""

LONG_FUNCTIONS = {
    "optimizer/papers/reference/sharon.py _feed": "the paper's algorithm, whose steps share all of their state",
}

LONG_MODULES = {
    "optimizer/sequences/kernels.py": "one family: Numba does not see a change of what is inlined from another file",
}

KIND_TESTS = {
    "optimizer/workload/values.py": 4,
    "optimizer/synopses/synopsis.py": 3,
    "optimizer/language/reader.py": 1,
    "spark_jobs/audit/checks/sampling.py": 1,
}
"""Where the kind of a window is tested: where a query, a window and a synopsis learn theirs, where a clause is read,
and where an audit names what only windows of time can be. Everybody else asks the kind, or a table by kind."""

SAME_NAMES = {
    "heddle main": "each program's own",
    "heddle read": "what a command does, and the same in Python",
    "heddle page": "one a kind of page, called by its module's name",
    "optimizer Counts": "answers of a paper's algorithm, and the kernels' state of COUNT(*)",
    "optimizer Group": "of a schedule, and of sequence queries",
    "optimizer Pattern": "what a query says, and its place in the graph of candidates",
    "optimizer Search": "what a search came to: of the published algorithm, and of sequence candidates",
    "optimizer Stream": "what is declared, and its events: of the kernels and of an evaluation",
    "optimizer Sweep": "of each paper's own parameters",
    "optimizer Windows": "what is planned, what the kernels are given, and what an evaluation draws",
    "optimizer choose": "each module's one decision, called by its module's name",
    "optimizer optimum": "of a schedule, and of a search for trees",
    "optimizer to_json": "of a plan, and of the workload's values",
    "optimizer workload": "of each evaluation",
    "spark_jobs Run": "what an operator sees of a run, and the run while it goes on",
    "spark_jobs answer": "of the finals, and of sequences unshared",
    "spark_jobs changes": "of a registration, and of the registry's events",
    "spark_jobs check_columns": "of a CSV file's header, and of any source's schema",
    "spark_jobs inspect": "of a source, and of answers",
    "spark_jobs log": "of each table that is a log, called by its module's name",
    "spark_jobs main": "each job's own",
    "spark_jobs misfit": "why a query does not fit its stream, and the error of a value that does not fit its column",
    "spark_jobs opened": "a warehouse, and a data file",
    "spark_jobs read": "of answers, and of a CSV file",
    "spark_jobs rows": "of each table that is a log, called by its module's name",
}

UNREAD = {
    "optimizer/sequences/kernels.py _VectorModel": "Numba's registry of models has it",
    "heddle/airflow/plugin.py HeddlePlugin": "an entry point",
    "heddle/airflow/provider.py get_provider_info": "an entry point",
}


@dataclass(frozen=True)
class Module:
    """A module of the production code: its path below the project, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes, walked once."""
        return list(ast.walk(self.tree))

    @property
    def folder(self) -> str:
        return self.path.partition("/")[0]


Modules = Mapping[str, Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(scope="module")
def modules() -> Modules:
    paths = sorted(path for folder in OWN for path in (ROOT / folder).rglob("*.py"))
    assert len(paths) > 150
    names = (path.relative_to(ROOT).as_posix() for path in paths)
    return {name: Module(name, path.read_text(encoding="utf-8")) for name, path in zip(names, paths, strict=True)}


def of(path: str, text: str) -> Modules:
    """One module that does not exist."""
    return {path: Module(path, text)}


def functions(module: Module) -> Iterator[Function]:
    """All functions, nested ones too."""
    return (node for node in module.nodes if isinstance(node, Function))


def classes(module: Module) -> Iterator[ast.ClassDef]:
    """All classes, nested ones too."""
    return (node for node in module.nodes if isinstance(node, ast.ClassDef))


def decorators(node: Function) -> set[str]:
    """The names of what decorates a function, without arguments."""
    return {ast.unparse(wrapper.func if isinstance(wrapper, ast.Call) else wrapper) for wrapper in node.decorator_list}


# ------------------------------------------------------------------------------------------------ docstrings
def undocumented(modules: Modules) -> list[str]:
    """Modules, public classes and public functions and methods without a docstring.

    A method needs none if its name begins with an underscore, if a base class in this project documents the method of
    that name, or if it is a property of a single ``return``: its name says it all, and the expression the rest. Nor
    does a function that Airflow's ``@dag`` makes a DAG of, for its text is the module's (``doc_md=__doc__``).
    """
    known = {node.name: node for module in modules.values() for node in classes(module)}
    findings = [path for path, module in modules.items() if not ast.get_docstring(module.tree)]
    for path, module in modules.items():
        public = [
            node for node in module.tree.body if isinstance(node, Function | ast.ClassDef) and node.name[0] != "_"
        ]
        for node in public:
            if not ast.get_docstring(node) and not (isinstance(node, Function) and "dag" in decorators(node)):
                findings.append(f"{path} {node.name}")
            for method in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(method, Function) and method.name[0] != "_" and not _says_it_all(method, node, known):
                    findings.append(f"{path} {node.name}.{method.name}")
    return findings


def _says_it_all(method: Function, owner: ast.ClassDef, known: Mapping[str, ast.ClassDef]) -> bool:
    is_property = bool(decorators(method) & {"property", "cached_property"})
    is_single = len(method.body) == 1 and isinstance(method.body[0], ast.Return)
    return bool(ast.get_docstring(method)) or (is_property and is_single) or _is_inherited(method.name, owner, known)


def _is_inherited(name: str, owner: ast.ClassDef, known: Mapping[str, ast.ClassDef]) -> bool:
    """Whether a base class documents a method."""
    for base in owner.bases:
        node = known.get(ast.unparse(base).partition("[")[0].rpartition(".")[2])
        if node is None or node is owner:
            continue
        methods = {method.name: method for method in node.body if isinstance(method, Function)}
        if (name in methods and ast.get_docstring(methods[name])) or _is_inherited(name, node, known):
            return True
    return False


def test_everything_public_has_a_docstring(modules: Modules) -> None:
    assert undocumented(modules) == []


def test_a_missing_docstring_is_noticed() -> None:
    text = (
        "class Base:\n    '''B.'''\n    def answer(self):\n        '''A.'''\n    def _own(self): pass\n"
        "class Other(Base):\n    '''O.'''\n    def answer(self): pass\n    def more(self): pass\n"
        "    @property\n    def size(self): return 1\n    @property\n    def sized(self):\n        x = 1\n"
        "        return x\n"
        "def free(): pass\ndef _free(): pass\n@dag(doc_md=__doc__)\ndef daily(): pass\nclass Bare: pass\n"
    )
    names = ["", " Other.more", " Other.sized", " free", " Bare"]
    assert undocumented(of("heddle/a.py", text)) == [f"heddle/a.py{name}" for name in names]


# ----------------------------------------------------------------------------------------------------- names
def dialect(modules: Modules) -> list[str]:
    """Functions, classes, methods, parameters and fields of classes whose name is a word of :data:`DIALECT`."""
    findings = []
    for path, module in modules.items():
        names: list[tuple[int, str]] = []
        for function in functions(module):
            args = function.args
            parameters = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            names.append((function.lineno, function.name))
            names += [(parameter.lineno, parameter.arg) for parameter in parameters if parameter is not None]
        for node in classes(module):
            fields = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
            names.append((node.lineno, node.name))
            names += [(field.lineno, field.id) for field in fields if isinstance(field, ast.Name)]
        findings += [f"{path}:{line} {name}" for line, name in names if name.lower() in DIALECT]
    return findings


def test_no_word_of_a_dialect_is_a_name(modules: Modules) -> None:
    assert dialect(modules) == []


def test_a_word_of_the_dialect_is_noticed() -> None:
    text = "def told(a, held): pass\nclass One:\n    whole: int\n    def f(self, *, mine, **found): asked = 1\n"
    assert {line.split()[1] for line in dialect(of("heddle/a.py", text))} == {
        *("told", "held", "One", "whole", "mine", "found"),
    }


def vague_locals(modules: Modules) -> list[str]:
    """Local variables, those of comprehensions among them, whose name is a word of :data:`LOCALS`."""
    return [
        f"{path}:{name.lineno} {name.id}"
        for path, module in modules.items()
        for function in functions(module)
        for name in ast.walk(function)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id in LOCALS
    ]


def test_locals_are_named_after_what_they_hold(modules: Modules) -> None:
    assert vague_locals(modules) == []


def test_a_vague_local_is_noticed() -> None:
    text = "def f(rows):\n    found = [told for told in rows]\n    left, one = found[0], 1\n    return left + one\n"
    assert [line.split()[1] for line in vague_locals(of("heddle/a.py", text))] == ["found", "told"]


def oddly_opened(modules: Modules) -> list[str]:
    """Functions and classes whose docstring opens with a word of :data:`OPENINGS`."""
    return [
        f"{path} {node.name}: {text.split()[0]}"
        for path, module in modules.items()
        for node in (*functions(module), *classes(module))
        if (text := ast.get_docstring(node)) and text.split()[0].rstrip(",:") in OPENINGS
    ]


def test_docstrings_open_with_a_noun_or_an_imperative(modules: Modules) -> None:
    assert oddly_opened(modules) == []


def test_an_odd_opening_is_noticed() -> None:
    text = 'def f():\n    """What is read."""\n\n\nclass A:\n    """Rows."""\n'
    assert oddly_opened(of("heddle/a.py", text)) == ["heddle/a.py f: What"]


def twice(modules: Modules) -> dict[str, list[str]]:
    """Public classes and functions of modules by folder and name, those that several modules of the folder define."""
    places: dict[str, list[str]] = {}
    for path, module in modules.items():
        for node in module.tree.body:
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(f"{module.folder} {node.name}", []).append(path)
    return {name: paths for name, paths in places.items() if len(set(paths)) > 1}


def test_a_public_name_has_one_meaning_in_a_folder(modules: Modules) -> None:
    assert sorted(twice(modules)) == sorted(SAME_NAMES)


def test_a_name_defined_twice_is_noticed() -> None:
    first, other = of("heddle/a.py", "def page(): pass\ndef _own(): pass\n"), of("heddle/b.py", "class page: pass\n")
    assert twice(first | other | of("plugins/c.py", "def page(): pass\n")) == {
        "heddle page": ["heddle/a.py", "heddle/b.py"]
    }


# --------------------------------------------------------------------------------------------------- lengths
def long_functions(modules: Modules) -> list[str]:
    """Functions of more than :data:`LONGEST_FUNCTION` lines without their docstrings; kernels are left out."""
    return [
        f"{path} {function.name}"
        for path, module in modules.items()
        for function in functions(module)
        if path != "optimizer/sequences/kernels.py" and _lines(function) > LONGEST_FUNCTION
    ]


def _lines(node: Function) -> int:
    docstring = node.body[0] if ast.get_docstring(node) else None
    return _height(node) - (_height(docstring) if docstring else 0)


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_fit_on_a_screen(modules: Modules) -> None:
    assert sorted(long_functions(modules)) == sorted(LONG_FUNCTIONS)


def test_a_long_function_is_noticed() -> None:
    docstring, line = "        '''\n        D.\n        '''\n", "        x = 1\n"
    text = f"class A:\n    def fits(self):\n{docstring}{line * 79}    def long(self):\n{docstring}{line * 80}"
    assert long_functions(of("heddle/a.py", text)) == ["heddle/a.py long"]


def long_modules(modules: Modules) -> list[str]:
    """Modules of more than :data:`LONGEST_MODULE` lines."""
    return [path for path, module in modules.items() if len(module.text.splitlines()) > LONGEST_MODULE]


def test_modules_are_no_books(modules: Modules) -> None:
    assert sorted(long_modules(modules)) == sorted(LONG_MODULES)


def test_a_long_module_is_noticed() -> None:
    assert long_modules(of("heddle/a.py", "x = 1\n" * 801) | of("heddle/b.py", "x = 1\n" * 800)) == ["heddle/a.py"]


# ---------------------------------------------------------------------------------------------------- owners
def log_readers(modules: Modules) -> list[str]:
    """Modules that read the publish log's rows beside their owner, so that they would know the JSON of its records."""
    reading = re.compile(r"""\b(rows|dataset)\(\s*["']publish_log["']""")
    return [path for path, module in modules.items() if reading.search(module.text)]


def test_the_publish_log_has_one_reader(modules: Modules) -> None:
    assert log_readers(modules) == ["spark_jobs/store/warehouse/publish_log.py"]


def test_another_reader_of_the_publish_log_is_noticed() -> None:
    readers = [of("heddle/a.py", "house.rows('publish_log')"), of("heddle/b.py", 'house.dataset(\n    "publish_log")')]
    assert [log_readers(module) for module in readers] == [["heddle/a.py"], ["heddle/b.py"]]
    assert log_readers(of("heddle/c.py", 'house.version("publish_log")')) == []


def format_readers(modules: Modules) -> list[str]:
    """Modules that compare a text with the name of a format that Heddle reads itself, or a source's format with
    constants. Each format is a class, and everybody else asks it."""
    names = {"csv", "parquet", "delta", "iceberg"}
    readers = set()
    for path, module in modules.items():
        for node in module.nodes:
            if not isinstance(node, ast.Compare):
                continue
            constants = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            if constants & names or (constants and re.search(r"\b(source|split)\.format\b", ast.unparse(node))):
                readers.add(path)
    return sorted(readers)


def test_formats_are_compared_nowhere(modules: Modules) -> None:
    # what only Spark reads has no class, but is copied in one place; a view in SQL reads a table of Delta Lake or files
    assert format_readers(modules) == ["spark_jobs/results/views.py", "spark_jobs/streams/copies/origins.py"]


def test_a_comparison_of_formats_is_noticed() -> None:
    for text in ("stream.source.format == 'orc'", "kind in ('csv', 'x')", "'delta' != other", "split.format == 'a'"):
        assert format_readers(of("heddle/a.py", text)) == ["heddle/a.py"]
    assert format_readers(of("heddle/a.py", "one.source.format == other.source.format")) == []


def kind_tests(modules: Modules) -> dict[str, int]:
    """By module, how often it tests the kind of a window: a window's ``is_rows``, whether there is a ``pattern``, a
    ``per`` or what a synopsis has ``sequenced``, or a kind with a kind. Assertions decide nothing and do not count."""
    counts: dict[str, int] = {}
    for path, module in modules.items():
        asserted = {part for node in module.nodes if isinstance(node, ast.Assert) for part in ast.walk(node)}
        if count := sum(node not in asserted and _tests_kind(node) for node in module.nodes):
            counts[path] = count
    return counts


def _tests_kind(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("is_rows", "is_sequence")
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        return re.search(r"(^|[( ])\w*Window\b", ast.unparse(node.args[1])) is not None
    if not isinstance(node, ast.Compare):
        return False
    sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
    if sides[-1] == "None":
        return re.search(r"\.(pattern|per|sequenced)$", sides[0]) is not None
    return any(re.fullmatch(r"(\w+\.)*(TIME|ROWS|ROW_WINDOWS|SEQUENCE)", side) for side in sides) and any(
        re.search(r"\bkind\b", side) for side in sides
    )


def test_the_kind_of_a_window_is_tested_in_few_places(modules: Modules) -> None:
    assert kind_tests(modules) == KIND_TESTS


def test_a_test_of_the_kind_of_a_window_is_noticed() -> None:
    for text in (
        "if query.window.is_rows: pass",
        "x = 0 if query.pattern is not None else 1",
        "tree.per is None",
        "synopsis.sequenced is None",
        "query.kind is window_kinds.ROWS",
        "TIME != tree.kind",
        "isinstance(window, RowWindow)",
        "isinstance(window, (Window, str))",
    ):
        assert kind_tests(of("heddle/a.py", text)) == {"heddle/a.py": 1}, text
    for text in ("assert query.pattern is not None", "query.kind.counts_rows", "isinstance(node, exp.Window)"):
        assert kind_tests(of("heddle/a.py", text)) == {}, text


# ---------------------------------------------------------------------------------------------------- readers
def unread(modules: Modules) -> list[str]:
    """Functions, classes and constants of modules that no other line of the production code reads.

    A name counts as read wherever it occurs in another statement of any module, also inside a text such as
    ``"package.module:name"``. So a name that several modules define is not seen. What a decorator registers is read
    by its registry. `optimizer/papers` has what was published: experiments and tests read it.
    """
    readers: dict[str, set[tuple[str, int]]] = {}
    for path, module in modules.items():
        for number, statement in enumerate(module.tree.body):
            for name in _names_read(statement):
                readers.setdefault(name, set()).add((path, number))
    return [
        f"{path} {name}"
        for path, module in modules.items()
        if not path.startswith(("optimizer/papers/", "dags/"))
        for number, statement in enumerate(module.tree.body)
        for name in _names_defined(statement)
        if not name.startswith("__") and readers.get(name, set()) <= {(path, number)}
    ]


def _names_defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, Function | ast.ClassDef):
        return [] if statement.decorator_list and isinstance(statement, Function) else [statement.name]
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else getattr(statement, "targets", [])
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _names_read(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.:]+", node.value):
            yield from re.split("[.:]", node.value)


def test_everything_is_read_by_the_product(modules: Modules) -> None:
    assert sorted(unread(modules)) == sorted(UNREAD)


def test_what_nothing_reads_is_noticed() -> None:
    text = (
        "LIMIT, MORE = 1, 2\ndef used(): return LIMIT\ndef again(): return again()\n@app.command()\ndef run(): used()\n"
    )
    assert unread(of("heddle/a.py", text)) == ["heddle/a.py MORE", "heddle/a.py again"]
    readers = (
        of("heddle/b.py", "from heddle import a\na.MORE\n"),
        of("heddle/b.py", "PLACE = 'heddle.a:again'\nPLACE\n"),
    )
    assert [unread(of("heddle/a.py", text) | reader) for reader in readers] == [
        ["heddle/a.py again"],
        ["heddle/a.py MORE"],
    ]
    assert unread(of("optimizer/papers/reference/a.py", text)) == []


# -------------------------------------------------------------------------------------------------- commands
def long_commands(modules: Modules) -> list[str]:
    """Commands whose bodies have more than :data:`LONGEST_COMMAND` lines, without signature and docstring: they take
    their options, make one call and show what it returns."""
    findings = []
    for path, module in modules.items():
        for function in functions(module):
            body = function.body[1 if ast.get_docstring(function) else 0 :]
            if "app.command" in decorators(function) and body and _span(body) > LONGEST_COMMAND:
                findings.append(f"{path} {function.name}")
    return findings


def _span(body: list[ast.stmt]) -> int:
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1


def test_commands_only_call_and_show(modules: Modules) -> None:
    assert sum("app.command" in decorators(node) for module in modules.values() for node in functions(module)) > 20
    assert long_commands(modules) == []


def test_a_command_that_computes_is_noticed() -> None:
    line = "    x = 1\n"
    command = "@app.command(epilog='e')\ndef status(\n    a: int,\n) -> None:\n    '''\n    D.\n    '''\n"
    fits, long = command + line * 15, command + line * 16
    assert long_commands(of("heddle/cli/a.py", fits)) == []
    assert long_commands(of("heddle/cli/a.py", long)) == ["heddle/cli/a.py status"]


# ----------------------------------------------------------------------------------------------------- tests
def importers_of_tests(modules: Modules) -> list[str]:
    """Modules that import a test file, or a name of one."""
    is_test = re.compile(r"tests\.(\w+\.)*test_\w+")
    return [path for path, module in modules.items() if any(map(is_test.fullmatch, imports_of(module.tree)))]


def test_no_module_imports_a_test() -> None:
    paths = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "tests").rglob("*.py"))}
    assert len(paths) > 300
    assert importers_of_tests({name: Module(name, path.read_text()) for name, path in paths.items()}) == []


def test_an_import_of_a_test_is_noticed() -> None:
    for text in (
        "import tests.heddle.test_a",
        "from tests import test_a",
        "from tests.heddle.test_a import query",
        "def test_b():\n    from tests.heddle import world, test_a",
    ):
        assert importers_of_tests(of("tests/test_b.py", text)) == ["tests/test_b.py"]
    assert importers_of_tests(of("tests/test_b.py", "from tests.heddle.testing import test\nimport tests.world")) == []
