"""Count faults in one pass over all staged answers; :mod:`spark_jobs.audit.checks.suite` judges the counts."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import CARRIERS, synopses_of
from optimizer.workload.values import ACQ, BOOLEAN, DOUBLE
from spark_jobs.audit.checks.kinds import AUDITS, AnswerTimes
from spark_jobs.audit.checks.suite import COLUMNS, FINDINGS
from spark_jobs.results.revisions import Answered
from spark_jobs.results.rows import places
from spark_jobs.store.storage import WHOLE, Place
from spark_jobs.store.warehouse.data_files import BUCKETS, bucket_of
from spark_jobs.store.warehouse.schemas import RESULTS

BUCKETS_OF = "(buckets)"

_GRAIN = ("stream", "query", "window_start", "window_end", "instant", "key")

DICTIONARIES = ["stream", "query", "key", "error"]


Rows = list[dict[str, Any]]
"""A row a query, of :data:`spark_jobs.audit.checks.suite.COLUMNS`, and one of the buckets of groups in a file."""


class Findings(NamedTuple):
    """Counts of the inspection of the staged file at a ``path``: ``rows`` of faults, and the ``answered`` windows
    (None: windows of rows, which are all different).
    """

    path: str
    rows: Rows
    answered: Answered | None


def inspection_of(plan: SharingPlan, begin: int, ends: Mapping[str, int]) -> Callable[[str], Findings]:
    """A function that inspects one staged file of the answers of a plan, given its path.

    The task that writes a file inspects it: it reads back what lies on the disk, every row of it, and only counts leave
    the task.
    """
    queries, bucket_by = _asked(plan, ends)
    return partial(inspect, queries=queries, begin=begin, ends=ends, bucket_by=bucket_by)


EXAMPLES = 200
"""Characters of examples of a query from which on no more are added."""


def summed(files: Iterable[Findings]) -> Rows:
    """The findings in all staged files as a row a query.

    All answers of a query, an instant and a bucket of groups lie in one file of a day as a rule, so an answer that is
    repeated is repeated in one file. Only where memory is short, tasks divide the groups of a bucket. So files are
    compared row by row if they have the same bucket and overlapping spans of instants of one query.
    """
    totals: dict[str, dict[str, Any]] = {}
    seen: dict[tuple[str, int], list[tuple[str, dict[str, list[int]]]]] = {}
    for file in files:
        for row in file.rows:
            if row["query"] == BUCKETS_OF:
                contents = json.loads(row["examples"])
                for bucket in contents["buckets"]:
                    seen.setdefault((contents["day"], bucket), []).append((file.path, contents["spans"]))
            else:
                _add(totals, row)
    together: dict[str, set[str]] = {}
    for of_bucket in seen.values():
        for (path, spans), (other_path, other_spans) in itertools.combinations(of_bucket, 2):
            known, more = together.setdefault(path, {path}), together.setdefault(other_path, {other_path})
            if known is not more and _meet(spans, other_spans):
                known |= more
                together |= dict.fromkeys(more, known)
    for paths in {id(each): sorted(each) for each in together.values() if len(each) > 1}.values():
        for row in _repeated_in(paths):
            _add(totals, row)
    return [totals[name] for name in sorted(totals)]


def _add(totals: dict[str, dict[str, Any]], row: dict[str, Any]) -> None:
    """Add a row of findings to that of its query."""
    known = totals.setdefault(row["query"], dict.fromkeys(COLUMNS, 0) | {"query": row["query"], "examples": ""})
    for name in ("answers", *FINDINGS):
        known[name] += row[name]
    if len(known["examples"]) < EXAMPLES:
        known["examples"] = "; ".join(filter(None, (known["examples"], row["examples"])))


def _meet(spans: Mapping[str, Sequence[int]], others: Mapping[str, Sequence[int]]) -> bool:
    """Return whether two files may have the same answer, by the first and the last instant of each query in them."""
    both = spans.keys() & others.keys()
    return any(spans[name][0] <= others[name][1] and others[name][0] <= spans[name][1] for name in both)


def _repeated_in(paths: Sequence[str]) -> Rows:
    """A row for each query of which files have an answer twice, together."""
    together = _Inspection((), 0, {}, {}, "")
    tables = []
    for path in paths:
        reader = pq.ParquetFile(Place.of(path).open_unchanging(True, WHOLE), read_dictionary=DICTIONARIES)
        columns = [name for name in ("query", "key", "instant", "position") if name in reader.schema_arrow.names]
        tables.append(reader.read(columns=columns, use_threads=False))
    together.compare(pa.concat_tables(tables, promote_options="default"))
    return [row for row in together.findings().rows if row["query"] != BUCKETS_OF and row["repeated"]]


def _asked(plan: SharingPlan, ends: Iterable[str]) -> tuple[list[ACQ], dict[str, tuple[str, ...]]]:
    """The queries over some streams, and the group columns that decide the bucket of each one's answers."""
    queries: list[ACQ] = []
    bucket_by: dict[str, tuple[str, ...]] = {}
    for tree in plan.trees:
        if tree.stream in ends:
            stream = plan.workload.stream(tree.stream)
            for synopsis, members in synopses_of(stream, tree.queries, tree.together, tree.late).items():
                queries += members
                for query in members:
                    # of event sequences, keys that are no groups decide the bucket of partial rows alone
                    grouped = dict(query.group_by)
                    bucket_by[query.name] = tuple(name for name in synopsis.bucket_by if name in grouped)
    return queries, bucket_by


def inspect(
    path: str,
    queries: Sequence[ACQ],
    begin: int,
    ends: Mapping[str, int],
    bucket_by: Mapping[str, tuple[str, ...]] | None = None,
) -> Findings:
    """Inspect one staged file: the answers of each query, and the buckets of groups.

    ``bucket_by``: by query, the group columns that decide an answer's bucket (default: all). Rows are inspected row
    group by row group: if the rows of a query ascend by (key, instant), as tasks write them, no answer occurs
    twice. Only if they do not, all rows of the file are compared.
    """
    file = _Inspection(queries, begin, ends, bucket_by or {}, path)
    content = Place.of(path).open_unchanging(True, WHOLE)
    metadata = pq.read_metadata(content)
    if not _is_schema(metadata.schema.to_arrow_schema()):
        file.found["(file)"] = Counter({"answers": metadata.num_rows, "wrong_schema": max(metadata.num_rows, 1)})
        file.examples["(file)"] = [path]
        return file.findings()
    reader = pq.ParquetFile(content, metadata=metadata, read_dictionary=DICTIONARIES)
    columns = [name for name in (*_GRAIN, "position", *CARRIERS) if name in reader.schema_arrow.names]
    for number in range(reader.metadata.num_row_groups):
        rows = reader.read_row_group(number, columns=columns, use_threads=False)
        file.look(rows, lambda at=number: reader.read_row_group(at, columns=["error"], use_threads=False))  # type: ignore[misc]
    if file.unordered:
        file.compare(reader.read(columns=["query", "key", "instant", "position"], use_threads=False))
    return file.findings()


def _is_schema(schema: pa.Schema) -> bool:
    """Return whether a file has only columns of the results table, and all except those that may be null throughout."""
    stored = {column.name: column for column in RESULTS if column.name != "day"}
    fields = zip(schema.names, schema.types, strict=True)
    known = all(name in stored and _plain(type) == stored[name].type for name, type in fields)
    return known and all(column.nullable or column.name in schema.names for column in stored.values())


def _plain(type: pa.DataType) -> pa.DataType:
    return type.value_type if pa.types.is_dictionary(type) else type


@numba.njit(cache=True)
def _walk(ranks, codes, instants, first, last, starts, ends, range_, slide, ago, begin, until, wrong, heads):
    """Marks the rows [first, last) of one query whose window is wrong; where the groups start, how many there are, and
    whether (rank of the key, instant) ascends."""
    count, ascends, aligned = 0, True, False
    for i in range(first, last):
        instant = instants[i]
        if i == first or codes[i] != codes[i - 1]:
            heads[count] = i
            count += 1
            if i > first and ranks[codes[i]] <= ranks[codes[i - 1]]:
                ascends = False
            aligned = (instant - range_) % slide == 0
        else:
            step = instant - instants[i - 1]
            if step <= 0:
                ascends = False
            # as a rule the next window is one slide later
            if not aligned or step != slide:
                aligned = (instant - range_) % slide == 0
        end = instant - ago
        wrong[i] = not (aligned and ends[i] == end and starts[i] == end - range_ and begin < instant <= until)
    return count, ascends


@numba.njit(cache=True)
def _uneven(offsets, first, last, width):
    """Lists among [first, last) that are not so long."""
    count = 0
    for i in range(first, last):
        count += offsets[i + 1] - offsets[i] != width
    return count


Longs = NDArray[np.int64]

Valid = NDArray[np.bool_] | None


class _Lists:
    """A list column of some rows: ``offsets`` (n + 1,) and ``values`` (m,), those that are null being 0, ``valid``
    (m,) or None if none is."""

    def __init__(self, column: pa.ListArray) -> None:
        self.offsets = column.offsets.to_numpy()
        values = column.values
        self.valid: Valid = None
        if values.null_count:
            self.valid = values.is_valid().to_numpy(zero_copy_only=False)
            values = values if pa.types.is_string(values.type) else values.fill_null(0)
        self.values = None if pa.types.is_string(values.type) else values.to_numpy()

    def column(self, first: int, last: int, width: int, at: int) -> tuple[NDArray[Any] | None, Valid]:
        """Element ``at`` of the lists [first, last), all ``width`` long: values, and where they are not null."""
        part = slice(self.offsets[first] + at, self.offsets[last], width)
        return None if self.values is None else self.values[part], None if self.valid is None else self.valid[part]


class _Layout(NamedTuple):
    """Layout of keys: the number of columns (``width``), those that decide the bucket, and the number of the first
    bucket.
    """

    width: int
    chosen: tuple[int, ...]
    first_bucket: int


class _Inspection:
    """Findings in one file so far."""

    def __init__(
        self,
        queries: Sequence[ACQ],
        begin: int,
        ends: Mapping[str, int],
        bucket_by: Mapping[str, tuple[str, ...]],
        path: str,
    ) -> None:
        self.queries = {query.name: query for query in queries}
        self.places = {query.name: list(zip(query.outputs, places(query), strict=True)) for query in queries}
        self.begin, self.ends, self.path = begin, ends, path
        self.layouts: dict[str, _Layout] = {}
        for number, query in enumerate(queries):
            names = [name for name, _ in query.group_by]
            chosen = bucket_by.get(query.name, tuple(names))
            first_bucket = AUDITS[query.kind].first_bucket(query)
            if query.top is not None:
                # written once all tasks have said which answers are among the first, all of a query in one file
                first_bucket = (5 + number) * BUCKETS
            self.layouts[query.name] = _Layout(len(names), tuple(names.index(name) for name in chosen), first_bucket)
        self.found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.examples: defaultdict[str, list[str]] = defaultdict(list)
        self.keys: dict[_Layout, dict[str, bool]] = {}
        self.buckets: set[int] = set()
        self.spans: dict[str, tuple[int, int]] = {}
        self.last: dict[str, tuple[str, int]] = {}
        self.unordered = False
        self.answered, self.has_positions = Answered(), False

    def look(self, rows: pa.Table, errors: Callable[[], pa.Table]) -> None:
        """Check the rows of a row group; ``errors`` reads their errors."""
        if len(rows) == 0:
            return
        columns = {name: single_chunk(rows[name]) for name in rows.schema.names}
        missing = np.zeros(len(rows), dtype=bool)
        for name in _GRAIN:
            if columns[name].null_count:
                missing |= columns[name].is_null().to_numpy(zero_copy_only=False)
        codes, stream, key = (dictionary_codes(columns[name]) for name in ("query", "stream", "key"))
        starts, ends, instants = (
            instants_as_numbers(columns[name]) for name in ("window_start", "window_end", "instant")
        )
        numbered = instants_as_numbers(columns["position"]) if "position" in columns else np.full(len(rows), -1)
        times = AnswerTimes(starts, ends, instants, numbered)
        names, streams, texts = (columns[name].dictionary.to_pylist() for name in ("query", "stream", "key"))
        # a null is numbered behind the others
        names, streams, texts = [*names, None], [*streams, None], [*texts, ""]
        ranks = np.append(pc.rank(columns["key"].dictionary, tiebreaker="dense").to_numpy().astype(np.int64), 0)
        positions = columns.get("position")
        self.has_positions |= positions is not None and positions.null_count < len(rows)
        if not self.has_positions:
            self.answered.add([name or "(null)" for name in names], codes, instants, None)
        lists = {carrier: _Lists(columns[carrier]) for carrier in CARRIERS if carrier in columns}
        wrong, heads = np.zeros(len(rows), dtype=bool), np.empty(len(rows), dtype=np.int64)
        cuts = [0, *(np.flatnonzero((codes[1:] != codes[:-1]) | (stream[1:] != stream[:-1])) + 1).tolist(), len(rows)]
        for first, last in itertools.pairwise(cuts):
            name, source, part = names[codes[first]], streams[stream[first]], slice(first, last)
            flags: dict[str, NDArray[np.bool_]] = {"null_keys": missing[part]}
            query = self.queries.get(name)
            if query is not None and query.stream == source:
                audit, window, until = AUDITS[query.kind], query.window, self.ends[query.stream]
                moments, *rules = audit.grid(window, times, self.begin, until)
                count, ascends = _walk(ranks, key, moments, first, last, *rules, wrong, heads)
                wrong[part] |= audit.misplaced(window, times.part(first, last), self.begin, until)
                flags["wrong_window"] = wrong[part]
                self._order(query.name, ascends, texts, key, moments, first, last)
                used = key[heads[:count]]
                flags |= self._shape(query, lists, texts, used, key, first, last)
                if "wrong_shape" not in flags:
                    flags |= self._values(query, lists, first, last, errors)
            elif name is not None and source is not None:
                flags["wrong_shape"] = np.ones(last - first, dtype=bool)
            self._count(name or "(null)", flags, columns, texts, key, part)
            self._widen(name or "(null)", instants[part])

    def _widen(self, name: str, instants: Longs) -> None:
        first, last = int(instants.min()), int(instants.max())
        known = self.spans.setdefault(name, (first, last))
        self.spans[name] = min(known[0], first), max(known[1], last)

    def _order(
        self,
        name: str,
        ascends: bool,
        texts: list[str],
        key: NDArray[Any],
        moments: Longs,
        first: int,
        last: int,
    ) -> None:
        head = texts[key[first]], int(moments[first])
        if not ascends or (name in self.last and head <= self.last[name]):
            self.unordered = True
        self.last[name] = texts[key[last - 1]], int(moments[last - 1])

    def _shape(
        self,
        query: ACQ,
        lists: Mapping[str, _Lists],
        texts: list[str],
        used: NDArray[Any],
        key: NDArray[Any],
        first: int,
        last: int,
    ) -> dict[str, NDArray[np.bool_]]:
        """Rows whose lists or key are not as long as the query wants them; notes the buckets of the keys."""
        wrong = np.zeros(last - first, dtype=bool)
        widths = Counter(carrier for _, (carrier, _) in self.places[query.name])
        for carrier in CARRIERS:
            if carrier not in lists:
                wrong |= widths[carrier] > 0
            elif _uneven(lists[carrier].offsets, first, last, widths[carrier]):
                wrong |= np.diff(lists[carrier].offsets[first : last + 1]) != widths[carrier]
        layout = self.layouts[query.name]
        known = self.keys.setdefault(layout, {})
        new = {texts[code] for code in used.tolist()} - known.keys()
        if new:
            self._learn(layout, known, sorted(new))
        bad = [code for code in used.tolist() if not known[texts[code]]]
        if bad:
            wrong |= np.isin(key[first:last], bad)
        return {"wrong_shape": wrong} if wrong.any() else {}

    def _learn(self, layout: _Layout, known: dict[str, bool], texts: list[str]) -> None:
        width, chosen, first_bucket = layout
        takes_all = chosen == tuple(range(width))
        parts = []
        for text in texts:
            values = _parsed(text)
            known[text] = values is not None and len(values) == width
            if values is not None and known[text]:
                parts.append(text if takes_all else json_value([values[at] for at in chosen]))
        self.buckets.update((first_bucket + bucket_of(parts)).tolist())

    def _values(
        self, query: ACQ, lists: Mapping[str, _Lists], first: int, last: int, errors: Callable[[], pa.Table]
    ) -> dict[str, NDArray[np.bool_]]:
        """Rows with values that cannot be."""
        widths = Counter(carrier for _, (carrier, _) in self.places[query.name])
        flags: dict[str, NDArray[np.bool_]] = {}
        by_argument: dict[Any, dict[str, tuple[NDArray[Any], Valid]]] = {}

        def flag(finding: str, rows: NDArray[np.bool_]) -> None:
            if rows.any():
                flags[finding] = flags.get(finding, False) | rows

        for output, (carrier, at) in self.places[query.name]:
            values, valid = lists[carrier].column(first, last, widths[carrier], at)
            if output.function in _COUNTS and valid is not None and not valid.all():
                without_error = single_chunk(errors()["error"]).is_null().to_numpy(zero_copy_only=False)[first:last]
                flag("impossible", ~valid & without_error)
            if values is None:
                continue
            if output.function in _COUNTS:
                flag("negative_counts", values < 0)
            if output.function in _SPREADS:
                flag("impossible", values < 0)
            if output.type == BOOLEAN:
                flag("impossible", (values != 0) & (values != 1))
            exact = output.argument_type is not None and output.argument_type.is_exact
            if output.function in _FINITE and output.type == DOUBLE and exact:
                flag("impossible", ~np.isfinite(values))
            if output.argument is not None and output.argument_type is not None and output.argument_type.is_numeric:
                by_argument.setdefault(output.argument, {})[output.function] = values, valid
        for known in by_argument.values():
            for bound, below in (("min", True), ("max", False)):
                for function in _BETWEEN & known.keys() if bound in known else ():
                    (limit, limit_valid), (value, valid) = known[bound], known[function]
                    # an average may round past an extreme in its last place
                    slack = 1e-14 * np.abs(value) if function == "avg" else 0
                    outside = limit > value + slack if below else value - slack > limit
                    for mask in (limit_valid, valid):
                        if mask is not None:
                            outside = outside & mask
                    flag("disordered", outside)
        return flags

    def _count(
        self,
        name: str,
        flags: Mapping[str, NDArray[np.bool_]],
        columns: Mapping[str, pa.Array],
        texts: list[str],
        key: NDArray[Any],
        part: slice,
    ) -> None:
        counts, examples = self.found[name], self.examples[name]
        counts["answers"] += part.stop - part.start
        for finding, flagged in flags.items():
            rows = int(np.count_nonzero(flagged))
            counts[finding] += rows
            if rows and len(examples) < 2:
                at = part.start + int(np.argmax(flagged))
                examples.append(f"{name} {columns['window_start'][at]} {texts[key[at]]}")

    def compare(self, rows: pa.Table) -> None:
        """Count answers that occur twice, whatever the order of the rows."""
        columns = [single_chunk(rows[name].unify_dictionaries()) for name in ("query", "key")]
        query, key = (dictionary_codes(column) for column in columns)
        names, texts = ([*column.dictionary.to_pylist(), "(null)"] for column in columns)
        moments = instants_as_numbers(single_chunk(rows["instant"]))
        position = np.zeros_like(moments)
        if "position" in rows.schema.names:
            position = instants_as_numbers(single_chunk(rows["position"]))
        order = np.lexsort((position, moments, key, query))
        same = np.ones(max(len(order) - 1, 0), dtype=bool)
        for column in (query, key, moments, position):
            same &= np.diff(column[order]) == 0
        for at in order[1:][same].tolist():
            name = names[query[at]]
            self.found[name]["repeated"] += 1
            if len(self.examples[name]) < 2:
                self.examples[name].append(f"{name} {rows['instant'][at]} {texts[key[at]]}")

    def findings(self) -> Findings:
        """The findings: a row a query, and one of the buckets."""
        rows = [
            {"query": name, "answers": counts["answers"]}
            | {finding: counts[finding] for finding in FINDINGS}
            | {"examples": "; ".join(self.examples[name])}
            for name, counts in self.found.items()
        ]
        contents = json.dumps(
            {"day": self.path.split("day=")[-1].split("/")[0], "spans": self.spans, "buckets": sorted(self.buckets)}
        )
        rows.append({"query": BUCKETS_OF, "answers": 0, **dict.fromkeys(FINDINGS, 0), "examples": contents})
        return Findings(self.path, rows, None if self.has_positions else self.answered)


_COUNTS = {"count", "count_distinct", "reached"}

_SPREADS = {"variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop"}

_FINITE = {"avg", "median", "percentile", *_SPREADS}
"""Functions that exact values never make infinite or NaN. Not among them: logarithms of negative numbers are NaN,
and powers may overflow.
"""

_BETWEEN = {"avg", "median", "percentile", "percentile_disc", "mode", "first", "last"}
"""Functions whose result lies between the least and the greatest value."""


def single_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without a copy where it is one."""
    # Arrow copies even a single chunk
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def dictionary_codes(column: pa.DictionaryArray) -> NDArray[np.int32]:
    """Numbers (n,) of the texts of a dictionary; nulls have the one behind the last."""
    indices = column.indices
    return (indices.fill_null(len(column.dictionary)) if indices.null_count else indices).to_numpy()


def instants_as_numbers(column: pa.Array) -> NDArray[np.int64]:
    """Instants as microseconds (n,), -1 where there is none."""
    numbers = column.view(pa.int64())
    return (numbers.fill_null(-1) if numbers.null_count else numbers).to_numpy()


_DECODER = json.JSONDecoder()

_VALUES = {str, type(None)}


def _parsed(text: str) -> list[str | None] | None:
    """The texts and nulls of a JSON list; None for any other text."""
    try:
        # json.loads takes several times as long, to look for blanks around a short text
        values, end = _DECODER.raw_decode(text)
    except ValueError:
        end = -1
    if end != len(text):
        try:
            values = json.loads(text)
        except ValueError:
            return None
    return values if isinstance(values, list) and _VALUES.issuperset(map(type, values)) else None


def json_value(values: Sequence[str | None]) -> str:
    """Texts as one compact JSON list."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)
