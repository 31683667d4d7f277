"""Compare the answers of an interval before and after a revision: the changes for readers, and the answers that stay.

An answer is compared by a hash of its row, a window by the sum of its answers' hashes: nothing is sorted, and no
row is made into Python values. Windows with other answers have the same sum by chance once in 2^64. Answers stay only
if their values are the same, too (:class:`Unchanged`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spark_jobs.store.arrays.numbering import distinct_of, numbered_tuples
from spark_jobs.store.storage import WHOLE, Place
from spark_jobs.store.warehouse.data_files import opened, reading
from spark_jobs.store.warehouse.schemas import RESULTS

Hashes = NDArray[np.uint64]

WINDOW = ["query", "instant", "position"]
CONTENT = ["window_start", "key", "longs", "doubles", "texts", "error"]

STORED = [*WINDOW, *CONTENT, "fingerprint"]
"""Columns of an answer that stays: the rest says which publication it is of."""

NAMED = 100
"""Queries that a record names of those whose answers changed."""


@dataclass
class Readers:
    """Answers of one interval by query: ``before`` a revision and ``after`` it; ``gone`` those that it replaces, by
    window (:data:`WINDOW`) and hash. ``known``: whether this process has replaced them, not an attempt before."""

    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    gone: list[pa.Table] = field(default_factory=list)
    known: bool = False
    _windows: dict[str, Counter[str]] = field(default_factory=dict)

    def begin(self) -> None:
        """Count from the beginning: the interval is being replaced by this process, perhaps not for the first time."""
        self.before, self.gone, self.known = Counter(), [], True

    def replace(self, stored: pa.Table, inside: pa.Array, gone: pa.Array) -> None:
        """Count the rows of a stored file: those ``inside`` the interval, and those of them that are replaced
        (``gone``).
        """
        self.before.update(_by_query(stored.select(["query"]).filter(inside)))
        replaced = stored.filter(gone)
        if len(replaced):
            self.gone.append(_hashed(replaced))

    def change(self, staged: Iterable[Place], answered: Answered | None = None) -> dict[str, Any]:
        """The change, once the answers of the ``staged`` files have replaced the old ones. ``answered``: those
        answers, if the reader of the files has counted them already.

        - ``before``, ``after``: answers of the interval;
        - ``gained``, ``lost``, ``changed``: the numbers of queries and windows that have answers now that had none,
          have none any more, have others;
        - ``fewer``: for each query that has fewer answers than before, the numbers before and now;
        - ``queries``: those that lost or changed answers, the first hundred.
        """
        if not self.gone:
            return self._first(staged, answered)
        new = [_hashed(_read(path)) for path in staged]
        self.after = Counter(self.before)
        for part in self.gone:
            self.after.subtract(_by_query(part))
        for part in new:
            self.after.update(_by_query(part))
        old_windows, new_windows = _windows(self.gone), _windows(new)
        both = pa.Table.join(old_windows, new_windows, WINDOW, right_suffix=" now", join_type="full outer")
        was, now = both["hash_sum"], both["hash_sum now"]
        gained = both.filter(pc.is_null(was))["query"]
        lost = both.filter(pc.is_null(now))["query"]
        changed = both.filter(pc.fill_null(pc.not_equal(was, now), False))["query"]
        fewer = {name: [count, self.after[name]] for name, count in self.before.items() if self.after[name] < count}
        kinds = {"gained": gained, "lost": lost, "changed": changed}
        self._windows = {kind: Counter(_counts(queries)) for kind, queries in kinds.items()}
        names = sorted({*self._windows["lost"], *self._windows["changed"]})
        return {
            "before": self.before.total(),
            "after": self.after.total(),
            **{kind: [len(windows), windows.total()] for kind, windows in self._windows.items()},
            "fewer": dict(sorted(fewer.items())),
            "queries": names[:NAMED],
        }

    def _first(self, staged: Iterable[Place], answered: Answered | None) -> dict[str, Any]:
        """The change where nothing is replaced: every window is gained, and no answer need be compared."""
        if answered is None:
            answered = Answered()
            for path in staged:
                with reading(path):
                    answered.add_file(opened(path, most=WHOLE, read_dictionary=["query"]))
        self.after = self.before + answered.answers
        self._windows = {"gained": answered.windows(), "lost": Counter(), "changed": Counter()}
        return {
            "before": self.before.total(),
            "after": self.after.total(),
            **{kind: [len(windows), windows.total()] for kind, windows in self._windows.items()},
            "fewer": {},
            "queries": [],
        }

    def change_of(self, names: Collection[str]) -> dict[str, dict[str, int]]:
        """The change (:meth:`change` comes first) of each of some queries of which anything changed: its answers in the
        interval ``before`` and ``after``, how many windows ``gained``, ``lost`` or ``changed`` answers."""
        return {
            name: {"before": self.before[name], "after": self.after[name]}
            | {kind: windows[name] for kind, windows in self._windows.items()}
            for name in sorted(names)
            if any(windows[name] for windows in self._windows.values())
        }

    def without_answers(self, names: Collection[str]) -> list[str]:
        """Names of the queries that have no answer in the interval now."""
        return sorted(name for name in names if not self.after[name])


MOST_PLACES = 1 << 24
"""Queries times instants of a batch up to which its windows are counted in a table of bits."""

BITS_A_WINDOW = 8 * 24
"""Bits of a grid of windows from which on those that have answers take less, each by itself."""

BATCH = 1 << 17
"""Rows that are counted at once: few enough to stay in the cache."""


class _Grid(NamedTuple):
    """Windows that lie evenly: of ``names`` queries, at ``places`` instants from ``first`` on, a ``step`` apart."""

    names: tuple[str, ...]
    first: int
    step: int
    places: int

    def windows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The windows (3, n) of some numbers (n,): query, instant, no position."""
        query, place = np.divmod(numbers, self.places)
        return np.stack([query, self.first + place * self.step, np.full(len(query), -1)])


class Answered:
    """Answers by query, and the windows that they are of: answers repeat a window in millions, so it is not joined on.

    A window is the query, the instant and the position (-1: none). What tasks count is joined by the driver: of windows
    that lie evenly a bit each.
    """

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self._bits: dict[_Grid, NDArray[np.uint8]] = {}
        self._others: list[tuple[tuple[str, ...], NDArray[np.int64]]] = []

    def add(
        self,
        names: Sequence[str],
        codes: NDArray[np.int32],
        instants: NDArray[np.int64],
        positions: NDArray[np.int64] | None,
    ) -> None:
        """Count some answers (n,): ``codes`` number the ``names`` of their queries; ``positions``: None if none has
        one."""
        if not len(codes):
            return
        counts = np.bincount(codes, minlength=len(names)).tolist()
        self.answers.update({name: count for name, count in zip(names, counts, strict=True) if count})
        first, last = int(instants.min()), int(instants.max())
        step = int(np.gcd.reduce(instants - first)) or 1
        places = (last - first) // step + 1
        if positions is not None or places * len(names) > MOST_PLACES:
            every = np.full(len(codes), -1) if positions is None else positions
            windows = np.unique(np.stack([codes.astype(np.int64), instants, every]), axis=1)
            self._others.append((tuple(names), windows))
            return
        seen = np.zeros(places * len(names), dtype=bool)
        seen[(instants - first) // step + codes * np.int64(places)] = True
        grid = _Grid(tuple(names), first, step, places)
        if len(seen) > BITS_A_WINDOW * np.count_nonzero(seen):
            self._others.append((grid.names, grid.windows(np.flatnonzero(seen))))
        else:
            self._note(grid, np.packbits(seen))

    def add_file(self, file: pq.ParquetFile) -> None:
        """Count the answers of a file whose queries are read as a dictionary."""
        columns = [name for name in WINDOW if name in file.schema_arrow.names]
        for batch in file.iter_batches(BATCH, columns=columns):
            positions = None
            if "position" in columns and batch["position"].null_count < len(batch):
                positions = pc.fill_null(batch["position"], -1).to_numpy()
            queries, instants = batch["query"], batch["instant"].cast(pa.int64()).to_numpy()
            self.add(queries.dictionary.to_pylist(), queries.indices.to_numpy(), instants, positions)

    def join(self, other: Answered) -> None:
        """Count what another has counted, too."""
        self.answers.update(other.answers)
        self._others += other._others
        for grid, bits in other._bits.items():
            self._note(grid, bits)

    def _note(self, grid: _Grid, bits: NDArray[np.uint8]) -> None:
        known = self._bits.get(grid)
        self._bits[grid] = bits if known is None else known | bits

    def windows(self) -> Counter[str]:
        """Number of windows of each query that have answers."""
        numbers: dict[str, int] = {}
        windows_of_all: list[NDArray[np.int64]] = []
        for grid, bits in self._bits.items():
            windows = grid.windows(np.flatnonzero(np.unpackbits(bits, count=grid.places * len(grid.names))))
            windows_of_all.append(np.stack([_numbered(numbers, grid.names)[windows[0]], *windows[1:]]))
        for names, windows in self._others:
            windows_of_all.append(np.stack([_numbered(numbers, names)[windows[0]], *windows[1:]]))
        if not windows_of_all:
            return Counter()
        queries, *columns = np.concatenate(windows_of_all, axis=1)
        parts = [(number, len(values)) for values, number in map(distinct_of, columns)]
        row, _ = numbered_tuples([(queries, len(numbers)), *parts], len(queries))
        counts = np.bincount(queries[row], minlength=len(numbers)).tolist()
        return Counter({name: counts[number] for name, number in numbers.items() if counts[number]})


class Unchanged:
    """Answers that a revision gives again as they are stored, so that the stored ones stay.

    :meth:`add` compares: the stored answers, file by file, with some new ones. An answer stays if there is one equal
    answer on either side, of the same definition.
    """

    def __init__(self) -> None:
        self._hashes = np.zeros(0, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, new: pa.Table, stored: Iterable[pa.Table]) -> None:
        """Compare ``new`` answers with ``stored`` ones that they replace, both with the columns of :data:`STORED`,
        but for those that hold nothing.
        """
        hashes, first, counts = np.unique(_identities(new), return_index=True, return_counts=True)
        hits = np.zeros(len(hashes), dtype=np.int64)
        is_equal = np.zeros(len(hashes), dtype=bool)
        for rows in stored:
            places = _places(hashes, _identities(rows))
            matches = np.flatnonzero(places >= 0)
            np.add.at(hits, places[matches], 1)
            at = first[places[matches]]
            # equal hashes are equal rows but for a chance, which answers do not depend on
            same = _are_equal(rows.take(pa.array(matches)), new.take(pa.array(at)))
            is_equal[places[matches]] = same
        self._hashes = np.sort(np.concatenate([self._hashes, hashes[(counts == 1) & (hits == 1) & is_equal]]))

    def holds(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Mask (n,) of the rows that stay, among answers that were compared."""
        return _places(self._hashes, _identities(rows)) >= 0


def _places(ascending: Hashes, hashes: Hashes) -> NDArray[np.int64]:
    """The places (n,) of hashes (n,) among others, which ascend; -1: it is not among them."""
    if not len(ascending):
        return np.full(len(hashes), -1)
    places = np.minimum(np.searchsorted(ascending, hashes), len(ascending) - 1)
    return np.where(ascending[places] == hashes, places, -1)


def _identities(rows: pa.Table) -> Hashes:
    """A hash (n,) of all of an answer that :data:`STORED` has."""
    total = _content_hashes(rows)
    for number, name in enumerate((*WINDOW, "fingerprint"), len(CONTENT)):
        if name in rows.schema.names:
            hashes = _hashes(pa.chunked_array(rows[name]).combine_chunks())
            total += np.where(hashes == 0, np.uint64(0), _mixed(hashes + np.uint64(number)))
    return total


def _are_equal(these: pa.Table, others: pa.Table) -> NDArray[np.bool_]:
    """Compare answers (n,) with others (n,) by all columns of :data:`STORED`, as the hashes do."""
    same = np.ones(len(these), dtype=bool)
    for name in STORED:
        columns = [_whole(rows, name) for rows in (these, others)]
        same &= _equal_values(*columns)
    return same


def _whole(rows: pa.Table, name: str) -> pa.Array:
    """A column in its declared type; nulls if the rows do not have it."""
    type_ = RESULTS.field(name).type
    if name not in rows.schema.names:
        return pa.nulls(len(rows), type_)
    return pa.chunked_array(rows[name]).combine_chunks().cast(type_)


def _equal_values(these: pa.Array, others: pa.Array) -> NDArray[np.bool_]:
    """Compare values (n,) of one type: null equals null, NaN any NaN, 0.0 not -0.0, null an empty list."""
    if pa.types.is_list(these.type):
        lengths, others_lengths = (pc.fill_null(pc.list_value_length(each), 0).to_numpy() for each in (these, others))
        same = lengths == others_lengths
        chosen = pa.array(same)
        elements = _equal_values(*(pc.list_flatten(each.filter(chosen)) for each in (these, others)))
        owners = np.repeat(np.flatnonzero(same), lengths[same])
        same[owners[~elements]] = False
        return same
    if pa.types.is_floating(these.type):
        bits = [_float_bits(each) for each in (these, others)]
        equal = pa.array(bits[0] == bits[1])
    else:
        equal = pc.fill_null(pc.equal(these, others), False)
    nulls = these.is_null().to_numpy(zero_copy_only=False), others.is_null().to_numpy(zero_copy_only=False)
    both: NDArray[np.bool_] = nulls[0] & nulls[1]
    return np.where(nulls[0] | nulls[1], both, equal.to_numpy(zero_copy_only=False))


def _float_bits(column: pa.Array) -> Hashes:
    values = column.to_numpy(zero_copy_only=False)
    bits: Hashes = np.where(np.isnan(values), np.nan, values).view(np.uint64)
    return bits


def _numbered(numbers: dict[str, int], names: Sequence[str]) -> NDArray[np.int64]:
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _read(path: Place) -> pa.Table:
    """The answers of a file, as far as readers see them."""
    with reading(path):
        file = opened(path, most=WHOLE)
        return file.read(columns=[name for name in (*WINDOW, *CONTENT) if name in file.schema_arrow.names])


def _by_query(rows: pa.Table) -> dict[str, int]:
    return _counts(rows["query"])


def _counts(names: pa.ChunkedArray) -> dict[str, int]:
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(names).to_pylist()}


def _hashed(rows: pa.Table) -> pa.Table:
    """Rows of results by window, with a hash of what readers see of each."""
    columns = {
        "query": rows["query"].cast(pa.string()),
        "instant": rows["instant"].cast(pa.int64()),
        # windows of time have no position, and nulls do not join
        "position": pc.fill_null(rows["position"], -1) if "position" in rows.schema.names else np.full(len(rows), -1),
        "hash": _content_hashes(rows),
    }
    return pa.table(columns)


def _content_hashes(rows: pa.Table) -> Hashes:
    """A hash (n,) of what readers see of each row of results."""
    total = np.zeros(len(rows), dtype=np.uint64)
    for number, name in enumerate(CONTENT):
        if name in rows.schema.names:
            hashes = _hashes(pa.chunked_array(rows[name]).combine_chunks())
            # a column that is not in the file is as one of nulls
            total += np.where(hashes == 0, np.uint64(0), _mixed(hashes + np.uint64(number)))
    return total


def _windows(parts: list[pa.Table]) -> pa.Table:
    """The windows of some hashed rows, with the sum of their hashes."""
    numbers = [("instant", pa.int64()), ("position", pa.int64()), ("hash", pa.uint64())]
    schema = pa.schema([("query", pa.string()), *numbers])
    rows = pa.concat_tables([part.cast(schema) for part in parts]) if parts else schema.empty_table()
    return rows.group_by(WINDOW).aggregate([("hash", "sum")])


def _hashes(column: pa.Array) -> Hashes:
    """A hash (n,) of each value; null is as any null, and a list without elements as one that is null."""
    if pa.types.is_list(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        elements = _mixed(_hashes(pc.list_flatten(column)) + _mixed(places.astype(np.uint64) + _ODD))
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(elements)])
        return sums[ends] - sums[ends - lengths]
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        texts = encoded.dictionary.to_numpy(zero_copy_only=False)
        # a quarter of a second, for those who compare revisions alone
        from pandas.util import hash_array

        known = np.append(hash_array(texts.astype(object), categorize=False), np.uint64(0))
        return known[pc.fill_null(encoded.indices, len(texts)).to_numpy(zero_copy_only=False)]
    if pa.types.is_floating(column.type):
        bits = _float_bits(column)
    else:
        bits = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    # of null alone the hash is 0
    return np.where(valid, _mixed(bits + _ODD) | np.uint64(1), np.uint64(0))


_ODD = np.uint64(0x9E3779B97F4A7C15)
"""No hash of anything that occurs often is 0, which mixing would leave as it is."""


def _mixed(values: Hashes) -> Hashes:
    """Bits that depend on all bits (the finalizer of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
