"""Marks of stored partial aggregates: which pieces [begin, end) of a synopsis are complete, and of what content.

A mark is a row without a key and without a bucket. Files never change, so a run reads the marks of each file once: its
stages ask the same :class:`StoredMarks`, each for the version of the table that it works with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from numpy.typing import NDArray

from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.splits import Tokens

Pieces = dict[str, list[tuple[int, int, str]]]
"""Complete pieces [begin, end) by fingerprint, ascending, each with the name of the content that it was computed from
(:class:`spark_jobs.streams.sources.splits.ContentName`)."""

COLUMNS = ("stream", "fingerprint", "fragment_start", "fragment_end", "texts")
"""Columns of a mark that are read."""


class StoredMarks:
    """The marks in the files of ``partials``, each file read once.

    ``tokens``: of the content of each stream, for a run, whose sources do not change.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.tokens: defaultdict[str, Tokens] = defaultdict(dict)
        self._forget()

    def _forget(self) -> None:
        self._read = set[str]()
        self._rows = pa.table({name: [] for name in COLUMNS}, _SCHEMA)

    def under(
        self,
        current: DeltaTable,
        fingerprints: Sequence[str] | None,
        spans: Sequence[tuple[int, int]] | None,
        stream: str | None = None,
    ) -> Pieces:
        """Complete pieces that overlap some spans [begin, end), as of a version of the table; arguments and errors are
        those of :meth:`marks`."""
        pieces: Pieces = {}
        for row in self.marks(current, fingerprints, spans, stream):
            pieces.setdefault(row["fingerprint"], []).append(
                (row["fragment_start"], row["fragment_end"], row["texts"][0])
            )
        return {fingerprint: sorted(of_synopsis) for fingerprint, of_synopsis in pieces.items()}

    def marks(
        self,
        current: DeltaTable,
        fingerprints: Sequence[str] | None,
        spans: Sequence[tuple[int, int]] | None,
        stream: str | None = None,
        are_levels: bool = False,
    ) -> list[dict[str, Any]]:
        """The marks that overlap some spans [begin, end), as of a version of the table: :data:`COLUMNS` by name.

        ``fingerprints``: of these synopses; None: of all of a ``stream``. ``spans`` None: at any time. ``are_levels``:
        only those of levels are needed, others may be among them. Raises HDL-543.
        """
        if (fingerprints is not None and not fingerprints) or (spans is not None and not spans):
            return []
        column, values = ("stream", [str(stream)]) if fingerprints is None else ("fingerprint", sorted(fingerprints))
        files = pa.table(current.get_add_actions(flatten=True))
        if not len(files):
            return []
        # only marks have no bucket
        needed = pc.less(files["min.bucket"], 0).fill_null(False).to_numpy()
        if are_levels:
            needed &= pc.not_equal(pc.utf8_length(files["partition.day"]), len("2020-01-01")).to_numpy()
        if spans is not None:
            needed &= overlaps(files["min.fragment_start"].to_numpy(), files["max.fragment_end"].to_numpy(), spans)
        needed = np.flatnonzero(needed)
        needed = needed[_may_have(files.take(pa.array(needed)), column, values)]
        self._add(current, files["path"], needed)
        rows = self._rows.filter(pc.is_in(self._rows[column], pa.array(values, pa.string())))
        if spans is not None:
            bounds = rows["fragment_start"].to_numpy(), rows["fragment_end"].to_numpy()
            rows = rows.filter(pa.array(overlaps(*bounds, spans)))
        marks: list[dict[str, Any]] = rows.to_pylist()
        return marks

    def _add(self, current: DeltaTable, paths: pa.ChunkedArray, needed: NDArray[np.int64]) -> None:
        """Read the marks of the files that are ``needed``, by their numbers among ``paths``, as far as they are not
        read. If one of the files that were read is no longer there, all others are read again as well."""
        if not self._read.issubset(paths.to_pylist()):
            self._forget()
        new = set(paths.take(pa.array(needed)).to_pylist()) - self._read
        if not new:
            return
        chosen = ds.field("key").is_null()
        is_new = pa.array(sorted(new), pa.string())
        with reading(self.warehouse.path("partials")):
            dataset = self.warehouse.dataset("partials", current, chosen, lambda files: pc.is_in(files["path"], is_new))
            rows = dataset.to_table(columns=list(COLUMNS), filter=chosen).cast(_SCHEMA)
        self._rows = pa.concat_tables([self._rows, rows]).combine_chunks()
        self._read |= new


_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("fingerprint", pa.string()),
        ("fragment_start", pa.int64()),
        ("fragment_end", pa.int64()),
        ("texts", pa.list_(pa.string())),
    ]
)


def _may_have(files: pa.Table, column: str, values: Sequence[str]) -> NDArray[np.bool_]:
    """Mask (n,) of the files (n,), with Delta's statistics, that may have one of some texts (ascending) in a column."""
    known, last = np.array(values, dtype=str), len(values) - 1
    least, most = (files[f"{bound}.{column}"] for bound in ("min", "max"))
    at = np.searchsorted(known, least.fill_null("").to_numpy().astype(str))
    is_within = known[np.minimum(at, last)] <= most.fill_null("").to_numpy().astype(str)
    mask: NDArray[np.bool_] = (at <= last) & (is_within | most.is_null().to_numpy())
    return mask


def overlaps(starts: NDArray[np.int64], ends: NDArray[np.int64], spans: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
    """Mask (n,) of those of [starts, ends) (n,) that overlap one of some spans [begin, end)."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            begin, end = joined[-1][0], max(joined.pop()[1], end)
        joined.append((begin, end))
    if not joined:
        return np.zeros(len(starts), dtype=bool)
    begins, lasts = np.array(joined, dtype=np.int64).T
    # the first span that ends behind the start is the only one that decides
    at = np.searchsorted(lasts, starts, side="right")
    return (at < len(lasts)) & (begins[np.minimum(at, len(lasts) - 1)] < ends)
