"""Lifting groups: synopses that are lifted together, and when that no longer pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from optimizer.aggregates.exact_doubles import ExactSums, limbs_between
from optimizer.aggregates.states import MULTISETS, PAIRS, State
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import absorb
from optimizer.workload.values import Expression
from spark_jobs.store.arrays.numbering import LONG_MIN, Longs, Rows, distinct_rows, numbered
from spark_jobs.windows.partials import fill_request
from spark_jobs.windows.partials.batches import (
    LiftedEvents,
    LiftedNumbers,
    lift_multiset,
    lift_pair,
    lift_sums,
    lift_texts,
    terms_of,
    thinned,
)
from spark_jobs.windows.partials.cells import Cells, concatenated, stored_rows
from spark_jobs.windows.partials.derivation import completed
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.kernels import Coded, numbered_cells, selected, those_of
from spark_jobs.windows.partials.states import NUMBERS, Column, class_of, numbers_of
from spark_jobs.windows.partials.values import Batch


def _union(spans: Sequence[FillRequest]) -> Synopsis:
    """The coarsest synopsis from which those of all spans can be rolled up: their atoms."""
    synopses = [span.synopsis for span in spans]
    first = synopses[0]
    if all(synopsis == first for synopsis in synopses):
        return first

    def all_of(parts: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(item for part in parts for item in part))

    return replace(
        first,
        edges=absorb(all_of(synopsis.edges for synopsis in synopses)),
        predicates=all_of(synopsis.predicates for synopsis in synopses),
        group_by=all_of(synopsis.group_by for synopsis in synopses),
        states=all_of(synopsis.states for synopsis in synopses),
        bucket_by=(),
    )


def _gives(fine: Synopsis, coarse: Synopsis) -> bool:
    """Return whether the cells of one synopsis can be rolled up from those of another over the same events."""

    def has(slide: int, shift: int) -> bool:
        return any(slide % other == 0 and shift % other == at for other, at in fine.edges)

    return (
        set(coarse.predicates) <= set(fine.predicates)
        and set(coarse.group_by) <= set(fine.group_by)
        and set(coarse.states) <= set(fine.states)
        and all(has(slide, shift) for slide, shift in coarse.edges)
    )


def _detail(span: FillRequest) -> tuple[Any, ...]:
    """Greater for cells that others can be rolled up from."""
    synopsis = span.synopsis
    rate = sum(1 / slide for slide, _ in synopsis.edges)
    return len(synopsis.group_by), rate, len(synopsis.predicates), len(synopsis.states), span.end - span.begin


_DIVISIONS: tuple[Callable[[FillRequest], Any], ...] = (
    lambda span: span.synopsis.group_by,
    lambda span: span.synopsis.predicates,
    lambda span: span.synopsis.edges,
)
"""Properties that a family is divided by: the first in which its spans differ."""


USUAL_LIMBS = 5
"""Limbs of an exact sum of doubles, as a rule at most."""

FEW_IN_COMMON = 4
"""Blocks that share fewer than one in this number of their cells are not merged: they are as small apart."""


class TooFineToShare(Exception):
    """The atoms of a family are too many to be worth it."""


class TooManyCells(Exception):
    """The cells of a batch take more memory than they may."""


class _NumberedEvents(NamedTuple):
    """Events of a batch and their cells: ``rows`` (k,) of them, empty: all; the ``cell`` (k,) of each; of each cell
    (c,) its code and how many events it has. A code is made of the fragment from ``first`` on, the group below
    ``groups`` and the number of the signature; ``keys``: the groups' values."""

    rows: Rows
    cell: Rows
    codes: Longs
    counts: Longs
    starts: Longs
    ends: Longs
    first: int
    keys: tuple[pa.Array, ...]
    groups: int
    signatures: Longs


class LiftingGroup:
    """Spans that share atoms, and the atoms so far: a block of cells a batch."""

    def __init__(self, spans: Sequence[FillRequest]) -> None:
        self.spans = tuple(spans)
        self.synopsis = _union(spans)
        self.begin, self.end = min(span.begin for span in spans), max(span.end for span in spans)
        self.blocks: list[Cells] = []
        self.place = self.synopsis.edges, [name for name, _ in self.synopsis.group_by]
        self.is_limited = any(span.most_groups is not None for span in spans)
        self.unchecked = 0
        self.met: dict[Any, list[tuple[tuple[pa.Array, ...], int]]] = {}
        self.arguments: dict[Expression, list[State]] = {}
        self.both: dict[tuple[Expression, Expression], list[State]] = {}
        for states in numbers_of(self.synopsis.states).values():
            for state in states:
                if state.definition.takes_two and state.argument is not None and state.by is not None:
                    self.both.setdefault((state.argument, state.by), []).append(state)
                elif state.argument is not None:
                    self.arguments.setdefault(state.argument, []).append(state)
        widths = [state.width for states in numbers_of(self.synopsis.states).values() for state in states]
        self.sums = [state for state in self.synopsis.states if class_of(state) is ExactSums]
        self.cell_bytes = 8 * (sum(widths) + USUAL_LIMBS * len(self.sums)) + 40
        self.others: dict[State, Callable[..., Column]] = {}
        for state in self.synopsis.states:
            if state.kind in PAIRS or state.kind in MULTISETS:
                self.others[state] = lift_pair if state.kind in PAIRS else lift_multiset
            elif class_of(state) is ExactSums:
                self.others[state] = lift_sums
            elif state.carrier == "texts":
                self.others[state] = lift_texts
        self.elements = sum(lift is not lift_sums for lift in self.others.values())

    def divided(self) -> list[LiftingGroup]:
        """The family in parts that share less."""
        return [self.narrowed(spans) for spans in self.parts]

    @cached_property
    def parts(self) -> list[list[FillRequest]]:
        """The spans in the parts that the family can be divided into; one if all have the same cells."""
        parts: dict[Any, list[FillRequest]] = {}
        for key in _DIVISIONS:
            parts = {}
            for span in self.spans:
                parts.setdefault(key(span), []).append(span)
            if len(parts) > 1:
                break
        return list(parts.values())

    def narrowed(self, spans: Sequence[FillRequest]) -> LiftingGroup:
        """A family of some of the spans, with what is known of them."""
        family = LiftingGroup(spans)
        family.blocks = [block.rolled_up(family.synopsis, family.begin, family.end) for block in self.blocks]
        family.unchecked, family.met = self.unchecked, self.met
        return family

    def lift(self, batch: Batch, most: int | None = None, is_divisible: bool = True) -> Cells | None:
        """The atoms of a batch; None if it has none. Before the expensive part it raises TooFineToShare, if it would be
        cheaper to divide the family and it ``is_divisible``, and TooManyCells, if they had more bytes than ``most``."""
        numbered_events = self._numbered(batch)
        if numbered_events is None:
            return None
        if is_divisible and len(self.parts) > 1 and self._is_crumbs(numbered_events, len(numbered_events.counts)):
            raise TooFineToShare
        if most is not None and self._bytes_of(batch, numbered_events) > most:
            raise TooManyCells
        lifted_events = LiftedEvents(numbered_events.rows, numbered_events.cell, numbered_events.counts)
        lifted = LiftedNumbers(self.synopsis.states, lifted_events)
        for argument, states in self.arguments.items():
            lifted.lift(batch.values(argument), states)
        for (x, y), states in self.both.items():
            lifted.lift_both(batch.values(x), batch.values(y), states)
        other_states = {state: lift(batch, lifted_events, state) for state, lift in self.others.items()}
        shards = len(numbered_events.signatures)
        codes = numbered_events.codes // shards
        used, group_of = numbered(codes % numbered_events.groups, numbered_events.groups)
        at = numbered_events.first + codes // numbered_events.groups
        return Cells(
            self.synopsis,
            numbered_events.starts[at],
            numbered_events.ends[at],
            numbered_events.signatures[numbered_events.codes % shards],
            group_of,
            len(used),
            tuple(column.take(pa.array(used)) for column in numbered_events.keys),
            lifted.longs,
            lifted.doubles,
            other_states,
        )

    def _bytes_of(self, batch: Batch, events: _NumberedEvents) -> int:
        """Bytes of the atoms of a batch, about: exact sums have as many limbs as its numbers need."""
        limbs = sum(max(0, limbs_between(*terms_of(batch, state)) - USUAL_LIMBS) for state in self.sums)
        return len(events.counts) * (self.cell_bytes + 8 * limbs) + 16 * len(events.cell) * self.elements

    def _numbered(self, batch: Batch) -> _NumberedEvents | None:
        """The cells that the events of a batch are in; None if they are in none."""
        synopsis = self.synopsis
        starts, ends, place = batch.fragments(synopsis)
        first, last = (int(at) for at in np.searchsorted(starts, [self.begin, self.end]))
        keys, group, groups = batch.groups(synopsis.group_by)
        signatures, shard_of, passing = batch.shards(synopsis.predicates)
        shards = len(signatures)
        inside = (place >= first) & (place < last)
        if not inside.all():
            chosen = inside.view(np.int8)
            everything = passing is None
            arguments = batch.fragment, chosen, batch.space
            passing = selected(*arguments) if everything else those_of(passing, *arguments)
        rows = np.empty(0, dtype=np.int32) if passing is None else passing
        events = batch.rows if passing is None else len(passing)
        if events == 0:
            return None
        base, possible = (place - first) * (groups * shards), (last - first) * groups * shards
        coded = Coded(batch.fragment, base, group, shards, batch.signature, shard_of, possible)
        cell, codes, counts = numbered_cells(events, rows, coded)
        return _NumberedEvents(rows, cell, codes, counts, starts, ends, first, keys, groups, signatures)

    def settled(self, sample: Batch, times: float) -> list[LiftingGroup]:
        """Return the family, or the parts that are cheaper to lift apart, judged by a sample of a batch with
        ``times`` as many events.
        """
        if len(self.parts) == 1:
            return [self]
        numbered_events = self._numbered(sample)
        if numbered_events is None:
            return [self]
        # where the second half of the sample has few cells of its own, more events have as few
        half = int(np.count_nonzero(np.bincount(numbered_events.cell[: len(numbered_events.cell) // 2], minlength=1)))
        cells = len(numbered_events.counts) + 2 * (len(numbered_events.counts) - half) * (times - 1)
        if not self._is_crumbs(numbered_events, cells / times):
            return [self]
        return [part for divided in self.divided() for part in divided.settled(sample, times)]

    def _is_crumbs(self, events: _NumberedEvents, cells: float) -> bool:
        """Return whether lifting each part of the family costs less than one pass and rolling up this number of
        cells.
        """
        signatures = events.signatures
        passing = np.bincount(events.codes % len(signatures), weights=events.counts, minlength=len(signatures))
        apart = 0.0
        for spans in self.parts:
            predicates = {predicate for span in spans for predicate in span.synopsis.predicates}
            mask = sum(1 << bit for bit, predicate in enumerate(self.synopsis.predicates) if predicate in predicates)
            apart += passing[(signatures & mask) != 0].sum()
        return bool(len(self.spans) * cells * fill_request.ROLL_UP_COST > apart - events.counts.sum())

    def merge(self) -> None:
        """Put the blocks together, if they may have many cells in common."""
        if len(self.blocks) > 1 and self._in_common() * FEW_IN_COMMON > sum(map(len, self.blocks)):
            self.blocks = [concatenated(self.blocks).merged()]

    def _in_common(self) -> int:
        """The most cells that occur in a block before theirs, too: events come more or less in the order of time."""
        repeated_cells, latest = 0, LONG_MIN
        for block in self.blocks:
            repeated_cells += int(np.count_nonzero(block.starts <= latest))
            latest = max(latest, int(block.starts.max(initial=LONG_MIN)))
        return repeated_cells

    def beyond(self) -> list[FillRequest]:
        """The spans with more groups so far than they may have."""
        self.unchecked = 0
        return [
            span for key, spans in self._limited().items() for span in spans if _is_beyond(span, self._groups(key)[1])
        ]

    def forget(self) -> None:
        """Drop the blocks, but remember the groups of the spans that may not have any number of them."""
        self.met = {key: [self._groups(key)] for key in self._limited()}
        self.blocks = []

    def _limited(self) -> dict[Any, list[FillRequest]]:
        """The spans whose groups are counted, by what those depend on."""
        limited: dict[Any, list[FillRequest]] = {}
        for span in self.spans:
            if span.most_groups is not None:
                limited.setdefault((span.synopsis.group_by, span.synopsis.predicates), []).append(span)
        return limited

    def _groups(self, key: Any) -> tuple[tuple[pa.Array, ...], int]:
        parts = self.met.get(key, []) + [block.keys_of(*key) for block in self.blocks]
        columns = [pa.concat_arrays(parts) for parts in zip(*(columns for columns, _ in parts), strict=True)]
        distinct, _, groups = distinct_rows(columns, sum(count for _, count in parts))
        return distinct, groups

    def tables(self, most: int) -> Iterator[pa.Table]:
        """The rows of each span to store; ``most`` as for :meth:`cells`."""
        if not self.blocks:
            return
        if len(self.spans) > 1:
            self.merge()
        other_spans = []
        for span in self.spans:
            if self._has_atoms(span):
                yield stored_rows([block.rolled_up(span.synopsis) for block in self.blocks])
            else:
                other_spans.append(span)
        yield from (cells.encode() for cells in self._cells(other_spans, most) if len(cells))

    def _has_atoms(self, span: FillRequest) -> bool:
        """Return whether a span's cells are the atoms, with all or some of their states, all of which are numbers."""
        same = replace(span.synopsis, states=self.synopsis.states)
        is_all = (span.begin, span.end) == (self.begin, self.end) and _gives(same, self.synopsis)
        return is_all and span.into is None and all(class_of(state) in NUMBERS for state in span.synopsis.states)

    def cells(self, most: int) -> Iterator[Cells]:
        """Yield the cells of each span as they are to be stored. Cells that others can be rolled up from are kept
        within ``most`` bytes, in addition to the blocks, from which all can.
        """
        if not self.blocks:
            return
        if len(self.spans) > 1:
            self.merge()
        yield from self._cells(self.spans, most)

    def _cells(self, spans: Sequence[FillRequest], most: int) -> Iterator[Cells]:
        kept_bytes, done = 0, list[tuple[FillRequest, Cells]]()
        for span in sorted(spans, key=_detail, reverse=True):
            parents = [
                cells
                for parent, cells in done
                if _gives(parent.synopsis, span.synopsis) and parent.begin <= span.begin and span.end <= parent.end
            ]
            parts = [min(parents, key=len)] if parents else self.blocks
            span_cells = _rolled_up(parts, span).to_store()
            kept_bytes += span_cells.size
            if kept_bytes <= most:
                done.append((span, span_cells))
            stored = thinned(span_cells)
            yield stored if span.into is None else completed(stored, span.into, span.is_counted)


def _rolled_up(parts: Sequence[Cells], span: FillRequest) -> Cells:
    """The cells of a span in any order, from parts that have finer ones. Several parts are made small before they are
    joined."""
    coarse = [part.rolled_up(span.synopsis, span.begin, span.end) for part in parts]
    if len(parts) > 1:
        coarse = [fewer if fewer is part else fewer.merged() for fewer, part in zip(coarse, parts, strict=True)]
    return concatenated(coarse)


def _is_beyond(span: FillRequest, groups: int) -> bool:
    return span.most_groups is not None and groups > span.most_groups
