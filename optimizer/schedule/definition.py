"""A schedule: its instants as a function of data time alone, its cost, its stored form."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from optimizer.schedule.groups import RIDING, Cycle, Group, SubGroup


@dataclass(frozen=True)
class Schedule:
    """Runs of the queries of some groups: a cycle for each group, and its cost.

    A schedule is a function of time and has no other state. Only after a change of plan may the last execution of a
    query be further in the past than the new cycle assumes; see :meth:`ticks`.

    Attributes
    ----------
    step
        Microseconds of one synopsis update.
    groups, cycles
        The groups and one cycle for each.
    fixed
        Cost of any run at all, paid once for all groups that run at the same update.
    algorithm
        One of :data:`ALGORITHMS`.
    cost
        Per update. Exact, unless there are too many periods to count the instants at which several coincide: then
        an upper bound.
    costs
        By algorithm, for comparison: no-sharing, conservative, aggressive, hybrid (and optimal, if requested).
    bound
        Lower bound of the cost of any schedule that obeys the bounds.
    """

    step: int
    groups: tuple[Group, ...]
    cycles: tuple[Cycle, ...]
    fixed: Fraction
    algorithm: str
    cost: Fraction
    costs: Mapping[str, Fraction] = field(default_factory=dict, hash=False)
    bound: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.step < 1:
            raise ValueError(f"a step of {self.step} microseconds")
        for what, names in (
            ("groups", [group.name for group in self.groups]),
            ("queries", [name for group in self.groups for each in group.subgroups for name in each.queries]),
        ):
            if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
                raise ValueError(f"names of several {what}: {repeated}")
        for group, cycle in zip(self.groups, self.cycles, strict=True):
            if not cycle.obeys(group):
                raise ValueError(f"the cycle of group {group.name} does not obey the bounds of its queries")

    @property
    def proven(self) -> bool:
        """Return whether no schedule is cheaper."""
        return self.cost == self.bound

    def ticks(
        self, begin: int, end: int, refreshed: Mapping[str, int] = MappingProxyType({})
    ) -> list[tuple[int, tuple[str, ...]]]:
        """The instants in (begin, end] at which something runs, and the names of the queries that run then.

        Instants are in microseconds, multiples of the step. ``refreshed`` has the instants at which queries were
        last executed, as far as they are known.

        Runs follow the cycles, with one exception: a query that was executed at or before ``begin`` and whose bound
        ends after ``begin``, but before the cycle's next run of it (a change of plan may cause this). It runs at
        the last update within its bound, together with its sub-group and all sub-groups that its scan covers and
        that have no post costs. The cycle then goes on. A query whose bound is over at ``begin`` follows the cycle
        (:meth:`overdue` returns it), as does one that was never executed, or later than ``begin``.

        Split intervals give the same, if the executions of the first are in ``refreshed`` of the second.
        """
        return list(self._walk(begin, end, refreshed))

    def next_tick(self, after: int, refreshed: Mapping[str, int] = MappingProxyType({})) -> int | None:
        """The first instant later than this one at which something runs. None: all lifetimes are over."""
        return next((instant for instant, _ in self._walk(after, None, refreshed)), None)

    def overdue(self, end: int, refreshed: Mapping[str, int]) -> tuple[str, ...]:
        """The queries that a late run at an instant executes, when scheduled instants before it were missed.

        Late and pending ones together (section 4.4): those whose bound is over or would be before the cycle's next run
        of them, those that run now anyway, and those of which no execution is known, each with its sub-group. Then
        riders, the cheapest first: sub-groups for which the run costs little more (what their scans add and their post
        costs), up to :data:`RIDING` of what it costs without them; they need no run of their own soon. Never a
        sub-group that was executed at this update already.
        """
        update = end // self.step
        due: list[set[int]] = []
        stale: list[list[int]] = []
        for group, cycle in zip(self.groups, self.cycles, strict=True):
            stale_numbers = [
                number
                for number, each in enumerate(group.subgroups)
                if each.runs_at(update)
                and any(refreshed.get(name, -math.inf) < update * self.step for name in each.queries)
            ]
            scheduled = cycle.at(update)
            late = {number for number in stale_numbers if number in scheduled}
            for number in stale_numbers:
                each, coming = group.subgroups[number], cycle.after(update, number)
                if any(
                    name not in refreshed or self._deadline(refreshed[name], each.period) < coming
                    for name in each.queries
                ):
                    late.add(number)
            due.append(late)
            stale.append(stale_numbers)
        if any(due):
            self._ride(due, stale)
        return tuple(
            name
            for group, numbers in zip(self.groups, due, strict=True)
            for number in sorted(numbers)
            for name in group.subgroups[number].queries
        )

    def _ride(self, due: list[set[int]], stale: list[list[int]]) -> None:
        """Add riders to what is due of each group."""
        scans = [
            max((group.subgroups[number].scan for number in numbers), default=Fraction(0))
            for group, numbers in zip(self.groups, due, strict=True)
        ]
        posts = (group.subgroups[n].post for group, numbers in zip(self.groups, due, strict=True) for n in numbers)
        spare = RIDING * (self.fixed + sum(scans) + sum(posts))
        riders = [
            (max(each.scan - scans[place], Fraction(0)) + each.post, place, number)
            for place, stale_numbers in enumerate(stale)
            for number in stale_numbers
            if number not in due[place]
            for each in (self.groups[place].subgroups[number],)
        ]
        for added, place, number in sorted(riders):
            spare -= added
            if spare < 0:
                return
            due[place].add(number)

    def _deadline(self, refreshed: int, period: int) -> int:
        """The last update within the bound of a query that was last executed at an instant."""
        return (refreshed + period * self.step) // self.step

    def _walk(self, begin: int, end: int | None, refreshed: Mapping[str, int]) -> Iterator[tuple[int, tuple[str, ...]]]:
        first, last = begin // self.step, None if end is None else end // self.step
        walks = [
            self._walk_group(place, first, last, self._urgent(place, begin, refreshed))
            for place in range(len(self.groups))
        ]
        at: int | None = None
        names: list[str] = []
        for update, place, numbers in heapq.merge(*walks):
            if update != at:
                if at is not None:
                    yield at * self.step, tuple(names)
                at, names = update, []
            subgroups = self.groups[place].subgroups
            names += [name for number in numbers for name in subgroups[number].queries]
        if at is not None:
            yield at * self.step, tuple(names)

    def _urgent(self, place: int, begin: int, refreshed: Mapping[str, int]) -> list[tuple[int, int]]:
        """(update, sub-group) of a group whose known queries would exceed their bounds if they followed the cycle."""
        group, cycle, first = self.groups[place], self.cycles[place], begin // self.step
        urgent = set()
        for number, each in enumerate(group.subgroups):
            known = [refreshed[name] for name in each.queries if refreshed.get(name, math.inf) <= begin]
            deadlines = [update for last in known if (update := self._deadline(last, each.period)) > first]
            if deadlines and min(deadlines) < cycle.after(first, number) and each.runs_at(min(deadlines)):
                urgent.add((min(deadlines), number))
        return sorted(urgent)

    def _walk_group(
        self, place: int, first: int, last: int | None, urgent: list[tuple[int, int]]
    ) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(update, group, sub-groups) for the runs of one group after an update, up to another."""
        group, cycle = self.groups[place], self.cycles[place]
        ends = [each.until for each in group.subgroups]
        over = None if None in ends else max(end for end in ends if end is not None)
        update, executed = first, set[int]()
        while True:
            urgent = [each for each in urgent if each[1] not in executed]
            update = min([cycle.after(update), *(due for due, _ in urgent)])
            if any(limit is not None and update > limit for limit in (last, over)):
                return
            executed = {number for number in cycle.at(update) if group.subgroups[number].runs_at(update)}
            if due := {number for when, number in urgent if when == update}:
                executed |= due
                executed.update(number for number in group.riders(executed) if group.subgroups[number].runs_at(update))
            if executed:
                yield update, place, tuple(sorted(executed))

    # ----------------------------------------------------------------------------------------- JSON
    def to_json(self) -> dict[str, Any]:
        """Values for ``json.dumps``: fractions as text, exactly."""
        return {
            "step": self.step,
            "groups": [_group_to_json(group) for group in self.groups],
            "cycles": [_cycle_to_json(cycle) for cycle in self.cycles],
            "fixed": str(self.fixed),
            "algorithm": self.algorithm,
            "cost": str(self.cost),
            "costs": {name: str(cost) for name, cost in self.costs.items()},
            "bound": str(self.bound),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schedule:
        """The schedule that :meth:`to_json` wrote."""
        return cls(
            data["step"],
            tuple(_group_from_json(group) for group in data["groups"]),
            tuple(_cycle_from_json(cycle) for cycle in data["cycles"]),
            Fraction(data["fixed"]),
            data["algorithm"],
            Fraction(data["cost"]),
            {name: Fraction(cost) for name, cost in data["costs"].items()},
            Fraction(data["bound"]),
        )


def _group_to_json(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "subgroups": [
            {
                "period": each.period,
                "scan": str(each.scan),
                "queries": list(each.queries),
                "post": str(each.post),
                "priority": each.priority,
                "until": each.until,
            }
            for each in group.subgroups
        ],
    }


def _group_from_json(data: Mapping[str, Any]) -> Group:
    return Group(
        data["name"],
        tuple(
            SubGroup(
                each["period"],
                Fraction(each["scan"]),
                tuple(each["queries"]),
                Fraction(each["post"]),
                each["priority"],
                each["until"],
            )
            for each in data["subgroups"]
        ),
    )


def _cycle_to_json(cycle: Cycle) -> dict[str, Any]:
    runs = [[offset, list(numbers)] for offset, numbers in cycle.runs]
    return {"length": cycle.length, "runs": runs, "periods": list(cycle.periods)}


def _cycle_from_json(data: Mapping[str, Any]) -> Cycle:
    runs = tuple((offset, tuple(numbers)) for offset, numbers in data["runs"])
    return Cycle(data["length"], runs, tuple(data["periods"]))
