"""Loads the partial rows of a query's synopsis, once, without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.synopses.synopsis import CARRIERS, Synopsis, former_of, synopses_of
from optimizer.windows.alignment import day_label, history_start
from optimizer.workload.expression import exact_literal, family_of
from optimizer.workload.values import ACQ, EARLIEST, STRING, Condition, Literal, Output, Stream
from spark_jobs.store.arrays.texts import as_texts, key_texts
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.data_files import bucket_of, reading
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant
from spark_jobs.streams.sources.dimension_versions import with_current_versions
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.windows.kinds import EXECUTIONS
from spark_jobs.windows.lookups.kernels import Group, Span, unknown_group
from spark_jobs.windows.lookups.lookups import Lookups
from spark_jobs.windows.lookups.sequence_lookups import SequenceLookups
from spark_jobs.windows.partials.stored_coverage import coverage, named_as_declared

RECENT_RECORDS = 32
"""Newest publications that are searched for where windows since the first event start."""

QueryLookups = Lookups | SequenceLookups
"""Look-ups of one query, over whatever its windows are made of."""


class Reader:
    """Opens look-ups of a warehouse's queries: ``Reader(house).query("by_symbol").at(instant)``.

    ``plan_version``: whose synopses to use; None: the newest that has stored partials for the query as it is now.
    """

    def __init__(self, warehouse: Warehouse | str | os.PathLike[str], plan_version: int | None = None) -> None:
        self.warehouse = warehouse if isinstance(warehouse, Warehouse) else Warehouse.open(warehouse, create=False)
        self.plan_version = plan_version

    def query(
        self,
        name: str,
        begin: int | None = None,
        end: int | None = None,
        groups: Sequence[Group] | None = None,
    ) -> QueryLookups:
        """Load the stored partial rows of a query's synopsis.

        ``begin``, ``end`` (microseconds): only what instants in (begin, end] need. ``groups``: only these, each a tuple
        of the group columns' values as :meth:`Lookups.at` returns them.

        Raises HDL-507 for a query that no plan knows, HDL-603 if nothing is stored for it, HDL-605 for an unknown
        group, HDL-607 for windows of rows, HDL-609 for some groups of a query with ORDER BY … LIMIT.
        """
        query, forms = self._stored(name)
        return self._load(self._since_first(query), *forms[0], begin, end, groups)

    def forms(self, name: str) -> QueryForms:
        """The look-ups of a query in all forms in which its partial rows are stored. Raises as :meth:`query`."""
        query, forms = self._stored(name)
        query = self._since_first(query)
        return QueryForms(query, [partial(self._load, query, *form) for form in forms])

    def _since_first(self, query: ACQ) -> ACQ:
        """The query with the windows since the first event starting where the newest publication has them start."""
        if not query.window.has_origin:
            return query
        rows = publish_log.newest_rows(self.warehouse, "at", publish_log.PUBLISHED, RECENT_RECORDS)
        origins = (row.record.origins[query.stream] for row in rows if query.stream in row.record.origins)
        return query.from_origin(next(origins, EARLIEST))

    def _load(
        self,
        query: ACQ,
        synopsis: Synopsis,
        spans: list[Span],
        stream: Stream,
        begin: int | None = None,
        end: int | None = None,
        groups: Sequence[Group] | None = None,
    ) -> QueryLookups:
        """The look-ups of a query over the partial rows of one synopsis, as for :meth:`query`."""
        window = query.window
        if begin is not None:
            first = history_start([window], begin, 1 << 62)
            spans = [(max(span[0], first), span[1]) for span in spans if span[1] > first]
        if end is not None:
            last = synopsis.fragments.last_edge(end - window.ago)
            spans = [(span[0], min(span[1], last)) for span in spans if span[0] < last]
        rows = self._rows(synopsis, spans, self._buckets(query, synopsis, groups))
        query_lookups = EXECUTIONS[synopsis.kind].look_up(query, synopsis, rows, spans, stream)
        return query_lookups if groups is None else query_lookups.of_groups(groups)

    def _stored(self, name: str) -> tuple[ACQ, list[tuple[Synopsis, list[Span], Stream]]]:
        """The query, and the synopses to answer it from, the newest form first, with the pieces of time that are
        complete, and the stream with the versions of its dimensions."""
        newest = current_version(self.warehouse) or 0
        versions = range(newest, 0, -1) if self.plan_version is None else [self.plan_version]
        newest_query: ACQ | None = None
        declared: dict[str, Stream] = {}
        for version in versions:
            plan = load_plan(self.warehouse, version)
            declared = {stream.name: stream for stream in plan.workload.streams} | declared
            for tree in plan.trees:
                query = next((query for query in tree.queries if query.name == name), None)
                if query is None or (newest_query is not None and query.fingerprint != newest_query.fingerprint):
                    continue
                newest_query = newest_query or query
                if not query.kind.has_instants:
                    message = f"{name} is over {query.kind.words}: these are not answered on demand"
                    raise HeddleError("HDL-607", message, "`heddle read`")
                synopses = synopses_of(plan.workload.stream(tree.stream), tree.queries, tree.together, tree.late)
                newest_form, members = next((form, members) for form, members in synopses.items() if query in members)
                former = () if newest_form.kind.matches_patterns else (former_of(newest_form, members),)
                forms = []
                for synopsis in (newest_form, *former):
                    pieces = coverage(self.warehouse, [synopsis.fingerprint]).get(synopsis.fingerprint, [])
                    # what was stored under another declaration is of other events
                    stream = with_current_versions(self.warehouse, declared[tree.stream])
                    naming = named_as_declared(self.warehouse, stream, synopsis)
                    if pieces := [piece for piece in pieces if naming.is_of(piece[2])]:
                        forms.append((synopsis, _joined([piece[:2] for piece in pieces]), stream))
                if forms:
                    return query, forms
        if newest_query is None:
            known = [query.name for query in load_plan(self.warehouse, newest).workload.queries] if newest else []
            raise HeddleError("HDL-507", f"no plan knows a query {name}", meant(name, known))
        raise HeddleError("HDL-603", f"no partial aggregates are stored for {name}", "`heddle run` stores them")

    def _rows(self, synopsis: Synopsis, spans: list[Span], buckets: list[int] | None) -> pa.Table:
        chosen = (ds.field("fingerprint") == synopsis.fingerprint) & ds.field("key").is_valid()
        if spans:
            first, last = spans[0][0], spans[-1][1]
            chosen &= (ds.field("day") >= day_label(first)) & (ds.field("day") <= day_label(last - 1))
            # a whole day begins before the window that needs some of it
            is_day = synopsis.kind.begins_at_midnight
            begins = ds.field("fragment_end") > first if is_day else ds.field("fragment_start") >= first
            chosen &= begins & (ds.field("fragment_start") < last)
        else:
            chosen &= pc.scalar(False)
        if buckets is not None:
            chosen &= ds.field("bucket").isin(buckets)
        columns = ["fragment_start", "fragment_end", "key", "shard", *CARRIERS, "numbers"]
        with reading(self.warehouse.path("partials")):
            table = self.warehouse.dataset("partials", where=chosen)
            return table.to_table(columns=columns, filter=chosen)

    def _buckets(self, query: ACQ, synopsis: Synopsis, groups: Sequence[Group] | None) -> list[int] | None:
        """The buckets that hold the rows of some groups; None: all."""
        if groups is None:
            return None
        names = [name for name, _ in query.group_by]
        columns = _texts_of(query, groups)
        if not set(synopsis.bucket_by) <= set(names):
            # the keys of a group of sequences lie in all of them
            return None
        keys = key_texts([columns[names.index(name)] for name in synopsis.bucket_by], len(groups))
        return sorted(set(bucket_of(keys.to_pylist()).tolist()))


class QueryForms:
    """Look-ups of one query, for each form in which its partial rows are stored: a new version of Heddle may store
    another form than earlier ones. A form is loaded when a look-up needs time that the newer forms do not have.
    """

    def __init__(self, query: ACQ, loads: Sequence[Callable[[], QueryLookups]]) -> None:
        self.query = query
        self._loads = list(loads)
        self._loaded: list[QueryLookups] = []

    def answer(self, answered: Callable[[QueryLookups], pa.Table]) -> pa.Table:
        """Return the answer of the newest form that has the time. Raises the HDL-604 of the newest form if none has
        it.
        """
        missing: HeddleError | None = None
        for number, load in enumerate(self._loads):
            if number == len(self._loaded):
                self._loaded.append(load())
            try:
                return answered(self._loaded[number])
            except HeddleError as error:
                if error.code != "HDL-604":
                    raise
                missing = missing or error
        assert missing is not None
        raise missing


def _joined(pieces: Sequence[Span]) -> list[Span]:
    """Ascending pieces, those that touch in one."""
    joined: list[Span] = []
    for first, last in sorted(pieces):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


def _texts_of(query: ACQ, groups: Sequence[Group]) -> list[pa.StringArray]:
    """Groups as columns of texts, as keys hold them. Raises HDL-605 for values that are none of the columns'."""
    columns = []
    for at, (_, type) in enumerate(query.group_by):
        try:
            columns.append(as_texts(pa.array([group[at] for group in groups], arrow_type(type))))
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, IndexError) as error:
            raise unknown_group(query, groups) from error
    if any(len(group) != len(query.group_by) for group in groups):
        raise unknown_group(query, groups)
    return columns


def parse_group(query: ACQ, texts: Sequence[str]) -> Group:
    """A group from texts as a person writes them (``\\N``: null). Raises HDL-605."""
    if len(texts) != len(query.group_by):
        raise unknown_group(query, [tuple(texts)])
    values = []
    for text, (_, type) in zip(texts, query.group_by, strict=True):
        try:
            stored = pa.array([None if text == "\\N" else text], pa.string())
            if type.name == "timestamp" and text != "\\N":
                stored = pa.array([parse_instant(text)])
            values.append(stored.cast(arrow_type(type))[0].as_py())
        # text that cannot be UTF-8, and types that no text is converted into
        except (pa.ArrowException, UnicodeError, HeddleError) as error:
            raise unknown_group(query, [tuple(texts)]) from error
    return tuple(values)


LONGEST_HAVING = 2048
"""Characters of the thresholds that a look-up may ask for."""

_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|!=|<>|=|<|>)\s*('(?:[^']|'')*'|[-+]?[\w.]+)\s*")


def parse_having(query: ACQ, text: str) -> tuple[Condition, ...]:
    """Thresholds on a query's outputs by name, e.g. ``n >= 100 AND high < 5.5``; numbers and quoted texts.

    Raises HDL-608 for anything else.
    """
    outputs = {output.name: output for output in (*query.outputs, *(condition.output for condition in query.having))}
    conditions = []
    if len(text) > LONGEST_HAVING:
        raise HeddleError("HDL-608", f"thresholds of {len(text)} characters", f"{LONGEST_HAVING} at most")
    for part in re.split(r"\bAND\b(?=(?:[^']*'[^']*')*[^']*$)", text, flags=re.IGNORECASE):
        match = _CONDITION.fullmatch(part)
        output = outputs.get(match.group(1)) if match else None
        if match is None or output is None:
            raise HeddleError("HDL-608", f"{part.strip()!r} is no threshold", f"e.g. {next(iter(outputs))} >= 100")
        conditions.append(Condition(output, match.group(2).replace("<>", "!="), _literal(output, match.group(3))))
    return tuple(conditions)


def _literal(output: Output, text: str) -> Literal:
    family = family_of(output.type)
    if text.startswith("'") and family == "string":
        return Literal(text[1:-1].replace("''", "'"), STRING)
    if re.fullmatch(r"[-+]?(\d+(\.\d*)?|\.\d+)", text, re.ASCII) and family == "number":
        return exact_literal(Decimal(text))
    raise HeddleError("HDL-608", f"{output.name} is {output.type}: it cannot be compared with {text}", "see above")
