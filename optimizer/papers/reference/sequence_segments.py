"""Patterns cut into segments, and the counters of segments that an executor keeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.papers.reference.sequence_runs import Longs
from optimizer.sequences.events import Events

Spans = Sequence[tuple[int, int]]
"""Positions [begin, end) of a pattern that are shared segments, ascending and disjoint."""

Segment = tuple[tuple[int, ...], bool]
"""Type codes of a segment, and whether it is shared."""


def segments_of(pattern: Sequence[int], spans: Spans) -> list[Segment]:
    """Segments of one query, in order."""
    if not pattern:
        raise ValueError("a pattern has at least one event type")
    segments, at = [], 0
    for begin, end in spans:
        if not at <= begin < end <= len(pattern):
            raise ValueError(f"shared spans {list(spans)} are not ascending and disjoint within {len(pattern)} types")
        if at < begin:
            segments.append((tuple(pattern[at:begin]), False))
        segments.append((tuple(pattern[begin:end]), True))
        at = end
    return segments + ([(tuple(pattern[at:]), False)] if at < len(pattern) else [])


class Layout(NamedTuple):
    """The segments that are counted (*counters*), and the counters that make up each query. A counter has a *node* for
    each of its positions. Nodes are numbered through all counters. Lists of lists are (offsets, values).

    - ``nodes`` (counters + 1,): first node of each.
    - ``codes``, ``owner`` (nodes,): type and counter of each node.
    - ``pooled``, ``leads``: by counter, whether its STARTs share counts by pane, and whether it is the first segment of
      any query.
    - ``of_type``: nodes of each type, later ones first.
    - ``joined``: by type, the counters that begin with it and are later segments.
    - ``path`` (queries + 1,) and ``parts``: the counters of each query.
    - ``noted``: by place, the place whose notes it uses, the first with the same counters up to it.
    - ``joins``: by counter, the places in ``parts`` where it is a later segment with its own notes.
    - ``second``: by place, whether it is a second segment.
    - ``panes``: the most panes in the windows of one instant.
    """

    nodes: Longs
    codes: Longs
    owner: Longs
    pooled: NDArray[np.bool_]
    leads: NDArray[np.bool_]
    of_type: tuple[Longs, Longs]
    joined: tuple[Longs, Longs]
    path: Longs
    parts: Longs
    joins: tuple[Longs, Longs]
    second: NDArray[np.bool_]
    noted: Longs
    panes: int


def layout_of(segments: Sequence[Sequence[Segment]], pooled: bool, panes: int, events: Events) -> Layout:
    """The layout of queries in segments. ``panes``: of one instant's windows, the most."""
    texts: list[tuple[int, ...]] = []
    known: dict[tuple[int, ...], int] = {}
    paths: list[list[int]] = []
    for pieces in segments:
        paths.append([])
        for text, shared in pieces:
            number = known.setdefault(text, len(texts)) if shared else len(texts)
            if number == len(texts):
                texts.append(text)
            paths[-1].append(number)
    codes = [code for text in texts for code in text]
    types = 1 + max(codes + [int(events.type.max(initial=0))])
    places = [(part, place > 0, place == 1) for parts in paths for place, part in enumerate(parts)]
    joins: list[list[int]] = [[] for _ in texts]
    leads = np.zeros(len(texts), np.bool_)
    first_with: dict[tuple[int, ...], int] = {}
    noted = [
        first_with.setdefault(tuple(parts[: position + 1]), number)
        for number, (parts, position) in enumerate(
            (parts, position) for parts in paths for position in range(len(parts))
        )
    ]
    for place, (part, later, _) in enumerate(places):
        if not later:
            leads[part] = True
        elif noted[place] == place:
            joins[part].append(place)
    of_type: list[list[int]] = [[] for _ in range(types)]
    for node in reversed(range(len(codes))):
        of_type[codes[node]].append(node)
    joined: list[list[int]] = [[] for _ in range(types)]
    for counter, text in enumerate(texts):
        if joins[counter]:
            joined[text[0]].append(counter)
    lengths = [len(text) for text in texts]
    return Layout(
        np.cumsum([0, *lengths]),
        np.array(codes, np.int64),
        np.repeat(np.arange(len(texts)), lengths),
        np.array([pooled and not places for places in joins], np.bool_),
        leads,
        _flat(of_type),
        _flat(joined),
        np.cumsum([0, *map(len, paths)]),
        np.array([part for part, _, _ in places], np.int64),
        _flat(joins),
        np.array([second for _, _, second in places], np.bool_),
        np.array(noted, np.int64),
        panes,
    )


def _flat(lists: Iterable[Sequence[int]]) -> tuple[Longs, Longs]:
    sequences = list(lists)
    return np.cumsum([0, *map(len, sequences)]), np.array([value for each in sequences for value in each], np.int64)
