"""Listings of the files of a source, independent of the folder or store in which the source lies.

A *listing* is the description of a file in a folder, a store or a log: ``name|size|time of modification`` in a folder,
``name|size|ETag`` in a store, ``table|name`` with its deleted rows in a table. Names are below the root of the source.
The ledger stores the listing of each file. An earlier Heddle stored full paths and parts of the declaration in a file's
identity; today's listing is derived from those.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_DECLARED = r"(?s)(?:\|as \{.*\})?(?:\|one of each .*)?$"
"""Suffix of identities with the declaration."""

_CONTENT = r"\|content [0-9a-f]{8}$"

_FILE = r"(?s)^.*\|(?P<rest>\d+\|[^|]*)$"


def listed_as(rows: pa.Table, is_table: bool, roots: Sequence[str], table: str | None) -> pa.Array:
    """Listings of the rows of a ledger.

    Parameters
    ----------
    rows
        With the columns ``identity``, ``path`` and ``listed``.
    is_table
        Whether the stream is a table, which names its files.
    roots
        Current and former places of the source, for rows that an earlier Heddle noted.
    table
        The id of the stream's table, if it is one: for rows from before tables were noted.
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
        suffix = pc.struct_field(pc.extract_regex(plain, _FILE), "rest")
        former = pc.binary_join_element_wise(_names(paths, roots), suffix, "|")
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
    """Mask of the listings with the names and sizes of some files of a folder, whatever their times."""
    if len(names) > FEW:
        alike = [name.rpartition("|")[0] for name in names]
        return pc.is_in(pc.replace_substring_regex(listed, r"\|[^|]*$", ""), pa.array(alike, pa.string()))
    is_alike = pa.repeat(pa.scalar(False), len(listed))
    for name in names:
        is_alike = pc.or_(is_alike, pc.fill_null(pc.starts_with(listed, f"{name.rpartition('|')[0]}|"), False))
    return is_alike
