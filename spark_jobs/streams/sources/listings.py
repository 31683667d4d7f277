"""What the files of a source are listed as, whichever folder or store the source lies in now.

A *listing* is what one look at a folder, a store or a log says of a file: of a file of a folder
``name|size|time of modification``, of a store ``name|size|ETag``, of a table ``table|name`` with what of it is deleted.
Names are below the root of the source. The ledger notes it with each file. An earlier Heddle noted whole paths and
parts of the declaration in a file's identity; what it would be listed as today follows from those.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_DECLARED = r"(?s)(?:\|as \{.*\})?(?:\|one of each .*)?$"
"""What identities had behind them of the declaration."""

_CONTENT = r"\|content [0-9a-f]{8}$"

_FILE = r"(?s)^.*\|(?P<rest>\d+\|[^|]*)$"


def listed_as(rows: pa.Table, is_table: bool, roots: Sequence[str], table: str | None) -> pa.Array:
    """What the rows of a ledger were listed as.

    Parameters
    ----------
    rows
        With the columns ``identity``, ``path`` and ``listed``.
    is_table
        Whether the stream is a table, which names its files.
    roots
        Where the source lies, and lay, of rows that an earlier Heddle noted.
    table
        The id of the table that the stream is, if it is one: of rows from before tables were noted.
    """
    listed = rows["listed"].combine_chunks()
    if not listed.null_count:
        return listed
    identities, paths = rows["identity"].combine_chunks(), rows["path"].combine_chunks()
    if is_table:
        names = pc.replace_substring_regex(identities, _DECLARED, "")
        former = pc.binary_join_element_wise(pa.scalar(table or ""), names, "|")
    else:
        plain = pc.replace_substring_regex(pc.replace_substring_regex(identities, _CONTENT, ""), _DECLARED, "")
        rest = pc.struct_field(pc.extract_regex(plain, _FILE), "rest")
        former = pc.binary_join_element_wise(_names(paths, roots), rest, "|")
    return pc.coalesce(listed, former)


def _names(paths: pa.Array, roots: Sequence[str]) -> pa.Array:
    """The names of files below the first root that they lie in; else their paths."""
    names = paths
    for root in reversed(list(dict.fromkeys(root.rstrip("/") for root in roots))):
        inside = pc.utf8_slice_codeunits(paths, len(root) + 1)
        names = pc.if_else(pc.starts_with(paths, f"{root}/"), inside, names)
        names = pc.if_else(pc.equal(paths, root), root.rpartition("/")[2], names)
    return names


def first_table(rows: pa.Table) -> str | None:
    """The id of the first table that a ledger of a stream knew; None: it knew none."""
    commits = rows.filter(rows["listed"].is_null())["commit"].drop_null()
    if len(commits):
        return str(commits[0]).rpartition("@")[0]
    known = rows["listed"].drop_null()
    return str(known[0]).partition("|")[0] if len(known) else None


FEW = 16
"""Names that are looked for one by one."""


def named_alike(listed: pa.Array, names: Sequence[str]) -> pa.Array:
    """Which listings are of files of a folder with the names and sizes of some, whenever they were written."""
    if len(names) > FEW:
        alike = [name.rpartition("|")[0] for name in names]
        return pc.is_in(pc.replace_substring_regex(listed, r"\|[^|]*$", ""), pa.array(alike, pa.string()))
    found = pa.repeat(pa.scalar(False), len(listed))
    for name in names:
        found = pc.or_(found, pc.fill_null(pc.starts_with(listed, f"{name.rpartition('|')[0]}|"), False))
    return found
