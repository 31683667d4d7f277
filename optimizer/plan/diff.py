"""Compare two plans: queries, trees, costs, partials that stay valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from optimizer.errors.diagnostics import count
from optimizer.plan.definition import NAMED, SharingPlan
from optimizer.plan.rhythms import changes
from optimizer.plan.sequence_sharing import SequenceDiff
from optimizer.synopses.derivation import shares_of, sources_of
from optimizer.synopses.synopsis import Synopsis
from optimizer.workload import values
from optimizer.workload.values import ACQ, LIFETIME, Window


@dataclass(frozen=True)
class PlanDiff:
    """Changes from an old plan to a new one, and the stored partial aggregates that stay valid.

    Trees of both plans are matched by the queries that they have in common, since tree numbers shift when
    queries come and go.

    Attributes
    ----------
    added, removed, changed
        Names of queries; ``changed`` are those with another definition.
    what
        The parts of each of ``changed`` that differ, see :func:`what_changed`.
    streams
        Streams that queries of both plans read and whose declaration changed, with the changed parts: "trades
        (path)".
    moved
        (query, old tree, new tree) of queries in both plans whose trees do not match.
    trees
        (old tree or "", new tree or "", old cost, new cost) of every matched, new and gone tree.
    cost
        Of the old plan and of the new one.
    reused, built
        Number of synopses of the new plan that the old plan has too (their stored partials stay valid), and of
        those that it lacks and for which events are read.
    derived
        Number of synopses of the new plan that are made from stored rows of the old plan's, without reading an
        event.
    rebuilt
        (query, reason, windows) of each query that a synopsis of the second kind answers: the next run reads
        its history again, back to the start of its earliest window. ``windows``: the number of its windows that
        overlap, ceil(range / slide); stored partials cannot give this number of answers per group.
    sequences
        Changes in the sharing of event sequences, for each filter and group-by that has queries in both plans.
    refreshes
        Queries with a refresh bound whose rhythm changes, in words.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    moved: tuple[tuple[str, str, str], ...]
    trees: tuple[tuple[str, str, float, float], ...]
    cost: tuple[float, float]
    reused: int = 0
    built: int = 0
    rebuilt: tuple[tuple[str, str, int], ...] = ()
    sequences: tuple[SequenceDiff, ...] = ()
    refreshes: tuple[str, ...] = ()
    what: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    derived: int = 0

    @property
    def is_empty(self) -> bool:
        """Same queries in the same trees (costs may differ: rates do)."""
        regrouped = any(not old or not new for old, new, _, _ in self.trees)
        other_changes = self.added or self.removed or self.changed or self.moved or self.refreshes or self.streams
        return not (other_changes or regrouped)

    def to_json(self) -> dict[str, Any]:
        """The change as ``heddle diff --json`` prints it."""
        return {
            "format_version": 1,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": list(self.changed),
            "moved": [{"query": query, "from": old, "to": new} for query, old, new in self.moved],
            "trees": [
                {"old": old or None, "new": new or None, "old_cost": before, "new_cost": after}
                for old, new, before, after in self.trees
            ],
            "cost": {"old": self.cost[0], "new": self.cost[1]},
            **({"sequences": [asdict(change) for change in self.sequences]} if self.sequences else {}),
            **({"refreshes": list(self.refreshes)} if self.refreshes else {}),
            **({"streams": list(self.streams)} if self.streams else {}),
            "synopses": {"reused": self.reused, "new": self.built}
            | ({"derived": self.derived} if self.derived else {}),
            "rebuilt": [
                {"query": query, "reason": reason, "windows": windows} for query, reason, windows in self.rebuilt
            ],
        }

    def lines(self) -> list[str]:
        """The changes as plain text, one per line."""
        if self.is_empty:
            return [f"same queries in the same trees; cost {_change(*self.cost)}"]
        text_lines = [f"~ stream {stream}" for stream in self.streams]
        text_lines += [f"+ query {name}" for name in self.added]
        text_lines += [f"- query {name}" for name in self.removed]
        text_lines += [f"~ query {name} ({what})" for name, what in zip(self.changed, self.what, strict=True)]
        text_lines += [f"> query {name}: {old} -> {new}" for name, old, new in self.moved]
        for old, new, before, after in self.trees:
            if not old:
                text_lines.append(f"+ tree {new}: cost {after:.6g}")
            elif not new:
                text_lines.append(f"- tree {old}: cost {before:.6g}")
            elif before != after:
                renamed = old if old == new else f"{old} (now {new})"
                text_lines.append(f"  tree {renamed}: cost {_change(before, after)}")
        text_lines.append(f"  plan: cost {_change(*self.cost)}")
        text_lines += [f"  sequences: {line}" for change in self.sequences for line in change.lines()]
        text_lines += [f"  refreshes: {line}" for line in self.refreshes]
        if self.derived:
            derived = f"{count(self.derived, 'synopsis')} {_verb(self.derived)}"
            text_lines.append(f"  stored partials: {derived} made of stored rows at the next run")
        if self.rebuilt:
            windows = sum(windows for _, _, windows in self.rebuilt)
            reused = f"{count(self.reused, 'synopsis')} {'stays' if self.reused == 1 else 'stay'} valid"
            text_lines.append(
                f"  stored partials: {reused}, {self.built} {_verb(self.built)} computed from history at the next run, "
                f"for {count(len(self.rebuilt), 'query')} ({count(windows, 'open window')} a group)"
            )
            for reason in dict.fromkeys(reason for _, reason, _ in self.rebuilt):
                names = [query for query, why, _ in self.rebuilt if why == reason]
                more = f", … {len(names) - NAMED} more" if len(names) > NAMED else ""
                text_lines.append(f"    {reason}: {', '.join(names[:NAMED])}{more}")
        return text_lines


def _verb(number: int) -> str:
    return "is" if number == 1 else "are"


def what_changed(was: ACQ, now: ACQ) -> str:
    """Differences between two queries of one name, in words: "window, outputs"."""
    parts = {
        "stream": ("stream",),
        "window": ("window",),
        "pattern": ("pattern",),
        "filter": ("filter",),
        "group-by": ("group_by",),
        "outputs": ("outputs", "select"),
        "having": ("having",),
        "order": ("top",),
        "lifetime": ("until",),
        "owner": ("owner",),
        "asset": ("asset",),
        "table": ("table",),
        "expectations": ("expect",),
    }

    def as_json(query: ACQ, names: Sequence[str]) -> Any:
        return [values.to_json(getattr(query, name)) for name in names]

    return ", ".join(what for what, names in parts.items() if as_json(was, names) != as_json(now, names))


def diff(old: SharingPlan | None, new: SharingPlan) -> PlanDiff:
    """Compare two plans; ``old`` None is a plan without queries.

    Expected O(n) in the queries of both, in addition to their trees' edge sets.
    """
    before = {query.name: query for query in old.workload.queries} if old else {}
    after = {query.name: query for query in new.workload.queries}
    old_costs = {tree.id: float(cost) for tree, cost in zip(old.trees, old.tree_costs, strict=True)} if old else {}
    new_costs = {tree.id: float(cost) for tree, cost in zip(new.trees, new.tree_costs, strict=True)}
    home = {query.name: tree.id for tree in (old.trees if old else ()) for query in tree.queries}
    stream_of = {tree.id: tree.stream for tree in (old.trees if old else ())}

    # the pairs with most queries in common match first; earlier trees win ties
    common: dict[tuple[str, str], int] = {}
    for tree in new.trees:
        for query in tree.queries:
            was = home.get(query.name)
            if was is not None and stream_of[was] == tree.stream:
                common[was, tree.id] = common.get((was, tree.id), 0) + 1
    match: dict[str, str] = {}
    matched: set[str] = set()
    for was, now in sorted(common, key=lambda pair: -common[pair]):
        if now not in match and was not in matched:
            match[now] = was
            matched.add(was)

    moved = [
        (query.name, home[query.name], tree.id)
        for tree in new.trees
        for query in tree.queries
        if query.name in home and match.get(tree.id) != home[query.name]
    ]
    trees = [
        (match.get(now, ""), now, old_costs[match[now]] if now in match else 0.0, cost)
        for now, cost in new_costs.items()
    ]
    trees += [(was, "", cost, 0.0) for was, cost in old_costs.items() if was not in matched]
    changed = tuple(name for name in after if name in before and before[name].fingerprint != after[name].fingerprint)
    reused, built, rebuilt, derived = _reuse(old, new, set(changed))
    return PlanDiff(
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        changed,
        tuple(moved),
        tuple(trees),
        (float(old.cost) if old else 0.0, float(new.cost)),
        reused,
        built,
        rebuilt,
        _sequence_diffs(old, new),
        changes(old.schedules if old else (), new.schedules),
        tuple(what_changed(before[name], after[name]) for name in changed),
        _redeclared(old, new),
        derived,
    )


def _redeclared(old: SharingPlan | None, new: SharingPlan) -> tuple[str, ...]:
    parts = {
        "format": lambda stream: stream.source.format,
        "path": lambda stream: stream.source.path,
        "options": lambda stream: replace(stream.source, format="", path=""),
        "time": lambda stream: stream.time,
        "columns": lambda stream: (stream.schema, stream.nested),
        "lateness": lambda stream: (stream.lateness, stream.allowed_lateness),
        "step": lambda stream: stream.step,
        "levels": lambda stream: stream.keep_fine,
        "event_id": lambda stream: stream.event_id,
        "dimensions": lambda stream: stream.dimensions,
    }
    before = {stream.name: stream for stream in old.workload.streams} if old else {}
    used = {tree.stream for tree in (old.trees if old else ())}
    redeclared = []
    for stream in new.workload.streams:
        was = before.get(stream.name)
        if was is not None:
            # a dimension more or less is of queries that came or went
            names = {each.name for each in was.dimensions} & {each.name for each in stream.dimensions}
            was, stream = (
                replace(one, dimensions=tuple(each for each in one.dimensions if each.name in names))
                for one in (was, stream)
            )
        if was is not None and was != stream and stream.name in used:
            what = [name for name, part in parts.items() if part(was) != part(stream)]
            redeclared.append(f"{stream.name} ({', '.join(what)})")
    return tuple(redeclared)


def _sequence_diffs(old: SharingPlan | None, new: SharingPlan) -> tuple[SequenceDiff, ...]:
    before = {
        name: sharing for tree in (old.trees if old else ()) for sharing in tree.sequences for name in sharing.patterns
    }
    diffs = []
    for tree in new.trees:
        for sharing in tree.sequences:
            was = next((before[name] for name in sharing.patterns if name in before), None)
            diffs += [was.diff(sharing)] if was is not None else []
    return tuple(diffs)


def _reuse(
    old: SharingPlan | None, new: SharingPlan, changed: set[str]
) -> tuple[int, int, tuple[tuple[str, str, int], ...], int]:
    """Synopses of the new plan that the old one has, and those for which events are read; the queries of the latter;
    synopses that are made of stored rows alone."""
    old_synopses = old.synopses() if old else []
    stored = {synopsis.fingerprint: synopsis for synopsis, _ in old_synopses}
    answered = {query.name: synopsis for synopsis, queries in old_synopses for query in queries}
    new_synopses = new.synopses()
    # trees of one content share what is stored
    built: set[str] = set()
    derived: set[str] = set()
    rebuilt = []
    for synopsis, queries in new_synopses:
        if synopsis.fingerprint in stored:
            continue
        sources = sources_of(stored.values(), synopsis)
        if sources and not shares_of(sources, synopsis)[1]:
            derived.add(synopsis.fingerprint)
            continue
        built.add(synopsis.fingerprint)
        added = f"; only {_added(synopsis, sources)} new are computed" if sources else ""
        for query in queries:
            why = _why(synopsis, answered.get(query.name), query.name in changed)
            rebuilt.append((query.name, why + added, _windows_back(query.window)))
    reused = {synopsis.fingerprint for synopsis, _ in new_synopses} - built - derived
    return len(reused), len(built), tuple(rebuilt), len(derived)


def _added(synopsis: Synopsis, sources: Sequence[Synopsis]) -> str:
    if synopsis.kind.matches_patterns:
        return "event types that are, or have attributes that are,"
    known = {predicate for source in sources for predicate in source.predicates}
    return "states that are" if set(synopsis.predicates) <= known else "filters and states that are"


def _why(now: Synopsis, was: Synopsis | None, changed: bool) -> str:
    if was is None:
        return "new query"
    if changed:
        return "definition changed"
    if now.kind.matches_patterns:
        return "what is kept of events changed (types, attributes, filter or keys)"
    if was.edges != now.edges:
        return "its synopsis' edges changed"
    return "its stream's time column changed" if was.time != now.time else "its synopsis' states changed"


def _windows_back(window: Window) -> int:
    return -(-min(window.reach, LIFETIME) // window.slide)


def _change(before: float, after: float) -> str:
    if before == after:
        return f"{after:.6g}"
    percent = f" ({(after - before) / before:+.1%})" if before else ""
    return f"{before:.6g} -> {after:.6g}{percent}"
