"""Definitions in JSON and YAML, as nodes with their places, and the SQL expressions in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml
from sqlglot import exp

from optimizer.language.refusals import Refused, shown_text
from optimizer.language.words import written_name
from optimizer.migration.binding import Relation
from optimizer.migration.words import Dialect, limited_tokens, spelled, tree_of
from optimizer.workload.streams import ShallowLoader

DOCUMENT_CHARACTERS = 1 << 20
"""Longest document that is read."""

MOST_NODES_READ = 50_000

_TOP = re.compile(r"^(semantic_models?|metrics?|models|version|saved_quer(y|ies))[ \t]*:", re.MULTILINE)

_STATEMENT = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*+(?:select|with|insert|create|set|use|drop|begin|execute|alter|merge|\()(?![\w:])",
    re.IGNORECASE | re.DOTALL,
)

_WORD = re.compile(r"\w+")

_SELECT = "SELECT "


@dataclass(frozen=True)
class Definition:
    """A definition as rows of a query.

    Parameters
    ----------
    name, owner
        The query's name and owner, in characters that these may have.
    at
        The offset of the definition in the document.
    near
        Offsets of the words in it, from ``at``, by the word in lower case.
    relation
        The grouping.
    """

    name: str
    owner: str
    at: int
    near: Mapping[str, int]
    relation: Relation


@dataclass(frozen=True)
class Reporter:
    """Functions by which the reader of a document reports: ``add`` takes a finding whose place is an offset in the
    document, a name and a severity; ``problems`` gives what our own parser finds wrong with a grouping.
    """

    add: Callable[[Refused, str, str], None]
    problems: Callable[[Relation, str], Sequence[Refused]]


class _Loader(ShallowLoader):
    """Nodes without aliases, of which few make many, and not too many."""

    number: int = field(default=0)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.number = (self.number if isinstance(self.number, int) else 0) + 1
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not read", self.peek_event().start_mark)
        if self.number > MOST_NODES_READ:
            message = f"it has more than {MOST_NODES_READ:,} values"
            raise yaml.composer.ComposerError(None, None, message, self.peek_event().start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def is_document(text: str) -> bool:
    """Return whether a text is JSON or YAML, by how it begins or by the keys of its first level."""
    begin = text.lstrip("\ufeff \t\r\n")[:64]
    if begin.startswith(("{{", "{%", "{#")) or _STATEMENT.match(text):
        return False
    return begin.startswith(("{", "[")) or _TOP.search(text) is not None


def read_document(text: str) -> list[yaml.Node]:
    """The documents of a text. Raises :class:`Refused`, HDL-146, for what is neither JSON nor YAML."""
    if len(text) > DOCUMENT_CHARACTERS:
        message = f"the document has {len(text):,} characters, the limit is {DOCUMENT_CHARACTERS:,}"
        raise Refused("HDL-301", message, "split it")
    what = "JSON" if text.lstrip()[:1] in ("{", "[") else "YAML"
    try:
        # JSON may be indented by tabs, and has none within texts
        roots = list(yaml.compose_all(text.replace("\t", " ") if what == "JSON" else text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Refused("HDL-146", f"this is not {what}: {error.problem}", "", mark.index if mark else 0) from None
    except yaml.reader.ReaderError as error:
        raise Refused("HDL-146", f"this is not {what}: a character that it cannot have", "", error.position) from None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):
        raise Refused("HDL-146", f"this is not {what} that can be read", "") from None
    return [root for root in roots if root is not None and not is_null(root)]


# ------------------------------------------------------------------------------------------------ nodes
def place(node: yaml.Node) -> int:
    """The offset of a node in its document."""
    index: int = node.start_mark.index
    return index


def members(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """The values of a mapping by their keys; nothing of another node. Nulls are as if they were not there."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    pairs = ((key.value, value) for key, value in node.value if isinstance(key, yaml.ScalarNode))
    return {key: value for key, value in pairs if not is_null(value)}


def elements(node: yaml.Node | None) -> list[yaml.Node]:
    """The elements of a list without nulls; nothing of another node."""
    return [element for element in node.value if not is_null(element)] if isinstance(node, yaml.SequenceNode) else []


def is_null(node: yaml.Node) -> bool:
    """Return whether a node is null."""
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def text_of(node: yaml.Node | None, default: str = "") -> str:
    """The text of a scalar; the default of another node, or of none."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) and not is_null(node) else default


def path_of(node: yaml.Node | None, *keys: str) -> yaml.Node | None:
    """The node below some keys, if it is there."""
    for key in keys:
        node = members(node).get(key)
    return node


def words_near(node: yaml.Node) -> dict[str, int]:
    """Offsets of the words in a node's scalars, from the node, by the word in lower case."""
    offsets: dict[str, int] = {}
    for scalar in _scalars(node):
        for match in _WORD.finditer(str(scalar.value)):
            quoted = scalar.style in ("'", '"')
            offsets.setdefault(match[0].lower(), place(scalar) - place(node) + quoted + match.start())
    return offsets


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, yaml.ScalarNode):
            yield top
        elif isinstance(top, yaml.MappingNode):
            stack += [part for pair in reversed(top.value) for part in reversed(pair)]
        elif isinstance(top, yaml.SequenceNode):
            stack += reversed(top.value)


def column_named(name: str) -> exp.Expr:
    """A column, quoted where its name needs it."""
    return exp.Column(this=exp.to_identifier(name, quoted=written_name(name) != name))


def expression_in(node: yaml.Node, text: str | None = None) -> exp.Expr:
    """The SQL expression in a scalar, in Spark's dialect, its parts at their places in the document.

    ``text``: read instead of the scalar's own. Raises :class:`Refused`.
    """
    own = text_of(node) if text is None else text
    style = node.style if isinstance(node, yaml.ScalarNode) else None
    is_verbatim = text is None and style not in ("|", ">")
    shift = place(node) - len(_SELECT) + (style in ("'", '"'))
    if not own.strip():
        raise Refused("HDL-146", "an expression is empty", "", place(node))
    statement = _SELECT + own
    try:
        tree = tree_of(spelled(limited_tokens(statement, Dialect.spark)), statement)
    except Refused as refused:
        at = max(refused.at + shift, place(node)) if is_verbatim else place(node)
        raise Refused(refused.code, refused.message, refused.hint, at) from None
    items = tree.expressions if isinstance(tree, exp.Select) else []
    others = any(value for name, value in tree.args.items() if name != "expressions")
    if len(items) != 1 or others or isinstance(items[0], exp.Alias | exp.Star):
        raise Refused("HDL-146", f"{shown_text(own)} is not one expression", "", place(node))
    for part in items[0].walk():
        if "start" in part.meta:
            part.meta["start"] = part.meta["start"] + shift if is_verbatim else place(node)
    inner: exp.Expr = items[0]
    return inner
