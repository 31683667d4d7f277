"""Local schedulers that react to load: they choose the sub-groups that run next (earliest deadline first).

:mod:`optimizer.schedule` plans when queries run if there is time for all of them. If there may not be, a scheduler
decides after every execution what to run next. A task T is a sub-group with its period n. d(T) is the number of updates
of the synopsis until T is due: n once it is executed, one less after every update. T is *pending* at d(T) = 0 and
*late* below.

=============  ======================================================================================================
mode           jointly executed with the task of lowest d(T) = v =============
====================================================================================================== no-sharing
nothing (Algorithm 1) aggressive     its whole group: a group is one task of its shortest period (section 4.2)
conservative   tasks of its group that have the same d(T) (Algorithm 2) hybrid         likewise; some periods are
shortened beforehand (:func:`optimizer.schedule.fixed_periods.hybrid_periods`) late           hybrid; if v < 0 all late
tasks of its group (section 4.4) late-pending   hybrid; if v < 0 all late and pending tasks of its group (Algorithm 3)
free-riders    late-pending with the queries' periods; and tasks that the scan covers anyway and that pay for themselves
=============  ======================================================================================================

Free riders (ours): a sub-group whose window is scanned anyway pays only its post costs, and is then due only a
whole period later. While nothing is late, this mode runs each group by its cheapest cycle
(:func:`optimizer.schedule.planner.plan_schedule`), counted from the last time that the whole group was executed.

Two ways to use idle time, which the paper mixes: *work-conserving* schedulers (Algorithms 1-3 as written) execute tasks
before they are due if nothing else is to be done; *lazy* ones (as Figure 4 is drawn) wait until d(T) = 0. No task is
executed twice between two updates: its answer would be the same.

References
----------
Golab, Bijay & Ozsu, "Multi-query optimization of sliding window aggregates by schedule synchronization", University of
Waterloo CS-2006-26, 2006: sections 4.1-4.4, Algorithms 1-3. Deviations: "choose any task from V(T)" is the one of
lowest d(T), then of highest priority, then the oldest; without the guard against executing twice, Algorithm 1 runs the
task of the shortest period for ever in an idle system.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from optimizer.schedule.fixed_periods import hybrid_periods
from optimizer.schedule.groups import Cycle, Group, SubGroup
from optimizer.schedule.planner import plan_schedule

MODES = ("no-sharing", "aggressive", "conservative", "hybrid", "late", "late-pending", "free-riders")


class Task(NamedTuple):
    """Unit of scheduling: queries of a group.

    ``name``: of the sub-group, its smallest query; of an aggressive scheduler's task the group.
    """

    group: str
    name: str


class LocalScheduler:
    """Choose the tasks that run next, for queries whose synopses are updated at the same time.

    Drive it with :meth:`update` for each update of the synopses, :meth:`choose` whenever the processor is free, and
    :meth:`done` when the chosen tasks have been executed.

    Parameters
    ----------
    groups
        Queries that may run together. More can be added, and removed.
    mode
        One of :data:`MODES`.
    work_conserving
        Execute tasks before they are due if nothing else is to be done.
    now
        Number of the last update; lifetimes (``until``) count by it.
    fixed
        Cost of each joint execution, whatever it executes; hybrid periods and cheapest cycles depend on it.

    Attributes
    ----------
    d
        Updates until each task is due: negative if it is late.
    now
        Number of the last update.

    Raises
    ------
    ValueError
        Unknown mode; groups or queries of one name.
    """

    def __init__(
        self,
        groups: Iterable[Group] = (),
        mode: str = "late-pending",
        *,
        work_conserving: bool = True,
        now: int = 0,
        fixed: Fraction | int = 0,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}: one of {', '.join(MODES)}")
        self.mode, self.work_conserving, self.now, self.fixed = mode, work_conserving, now, fixed
        self.d: dict[Task, int] = {}
        self._groups: dict[str, list[SubGroup]] = {}
        self._periods: dict[Task, int] = {}
        self._members: dict[Task, tuple[SubGroup, ...]] = {}
        self._tasks: dict[str, list[Task]] = {}
        self._executed: dict[Task, int] = {}
        self._cycles: dict[str, tuple[Cycle, tuple[Task, ...]]] = {}
        self._anchors: dict[str, int] = {}
        for group in groups:
            if group.name in self._groups:
                raise ValueError(f"group {group.name} is there already")
            for subgroup in group.subgroups:
                self._register(group.name, subgroup)
        for name in self._groups:
            self._plan(name)

    # ------------------------------------------------------------------------------------------ workload
    @property
    def queries(self) -> Iterator[str]:
        """The names of all queries."""
        return (name for subgroups in self._groups.values() for each in subgroups for name in each.queries)

    def add(self, group: str, subgroup: SubGroup) -> None:
        """New queries, of a group that is there or a new one: due within their period from now."""
        self._register(group, subgroup)
        self._plan(group)

    def remove(self, query: str) -> None:
        """A query leaves; with the last of its sub-group the task does. Raises ValueError if it is not there."""
        for group, subgroups in self._groups.items():
            for place, each in enumerate(subgroups):
                if query in each.queries:
                    remaining = tuple(name for name in each.queries if name != query)
                    old = self._task_of(group, each)
                    subgroups[place : place + 1] = [replace(each, queries=remaining)] if remaining else []
                    if remaining and self.mode != "aggressive":
                        self._rename(old, self._task_of(group, subgroups[place]))
                    self._plan(group)
                    return
        raise ValueError(f"no query {query}")

    def _register(self, group: str, subgroup: SubGroup) -> None:
        if not subgroup.queries:
            raise ValueError(f"a sub-group of {group} has no queries")
        if known := sorted(set(subgroup.queries) & set(self.queries)):
            raise ValueError(f"queries that are there already: {known}")
        self._groups.setdefault(group, []).append(subgroup)

    def _rename(self, old: Task, new: Task) -> None:
        """A task is called by its smallest query, which may have left."""
        self._tasks[old.group] = [new if task == old else task for task in self._tasks[old.group]]
        self._members[new] = self._members.pop(old)
        for state in (self.d, self._periods, self._executed):
            if old in state:
                state[new] = state.pop(old)

    def _task_of(self, group: str, subgroup: SubGroup) -> Task:
        return Task(group, min(subgroup.queries))

    def _plan(self, name: str) -> None:
        """Set tasks and periods of a group whose queries have changed. Keep the record of executions."""
        subgroups = self._groups[name]
        before = {task: self._periods.pop(task) for task in self._tasks.pop(name, [])}
        for task in before:
            del self._members[task]
        if not subgroups:
            del self._groups[name]
            for task in before:
                self._forget(task)
            return
        group = Group(name, tuple(subgroups))
        periods: Sequence[int]
        if self.mode == "aggressive":
            tasks, members, periods = [Task(name, name)], [tuple(subgroups)], [group.period]
        else:
            tasks, members = [self._task_of(name, each) for each in subgroups], [(each,) for each in subgroups]
            shortened = self.mode in ("hybrid", "late", "late-pending")
            periods = hybrid_periods(group, self.fixed) if shortened else [each.period for each in subgroups]
        if self.mode == "free-riders":
            self._cycles[name] = plan_schedule(1, [group], self.fixed).cycles[0], tuple(tasks)
            self._anchors.setdefault(name, self.now)
        for task in before.keys() - set(tasks):
            self._forget(task)
        for task, each, period in zip(tasks, members, periods, strict=True):
            age = before[task] - self.d[task] if task in before else 0
            remaining = period - age
            # a period that is shortened makes no task late that was not
            self.d[task] = max(remaining, 0) if task in before and self.d[task] >= 0 else remaining
            self._periods[task], self._members[task] = period, each
        self._tasks[name] = tasks

    def _forget(self, task: Task) -> None:
        self.d.pop(task, None)
        self._executed.pop(task, None)

    # ------------------------------------------------------------------------------------------ what happens
    def update(self, number: int | None = None) -> None:
        """The synopses have been updated (Algorithm 1, lines 2-5): the next one, or several up to a number.

        Queries whose lifetime is over leave. Raises ValueError if the number is not later than the last one.
        """
        number = self.now + 1 if number is None else number
        if number <= self.now:
            raise ValueError(f"update {number} is not later than the last one, {self.now}")
        for task in self.d:
            self.d[task] -= number - self.now
        self.now = number
        for name, subgroups in list(self._groups.items()):
            remaining = [each for each in subgroups if each.runs_at(number)]
            if len(remaining) < len(subgroups):
                subgroups[:] = remaining
                self._plan(name)

    def choose(self) -> tuple[Task, ...]:
        """The tasks to be jointly executed next, those of one group; none if there is nothing to be done."""
        waiting = {task: d for task, d in self.d.items() if self._executed.get(task) != self.now}
        if not waiting:
            return ()
        late = min(waiting.values()) < 0
        urgency = waiting
        if self.mode == "free-riders" and not late:
            # what its cycle has now is as urgent as if it were due
            scheduled = self._scheduled()
            urgency = {task: 0 if task in scheduled else d for task, d in waiting.items()}
        lowest = min(urgency.values())
        if lowest > 0 and not self.work_conserving:
            return ()
        first = max(
            (task for task, d in urgency.items() if d == lowest),
            key=lambda task: max(each.priority for each in self._members[task]),
        )
        if self.mode == "no-sharing":
            return (first,)
        together = lowest
        if lowest < 0 and self.mode in ("late", "late-pending", "free-riders"):
            together = -1 if self.mode == "late" else 0
        chosen = [task for task in self._tasks[first.group] if task in urgency and lowest <= urgency[task] <= together]
        if self.mode == "free-riders":
            scan = max(self._subgroup(task).scan for task in chosen)
            chosen = [
                task
                for task in self._tasks[first.group]
                if task in chosen or (task in waiting and self._rides(task, waiting[task], scan))
            ]
        return tuple(chosen)

    def _scheduled(self) -> set[Task]:
        scheduled: set[Task] = set()
        for name, (cycle, tasks) in self._cycles.items():
            if name in self._groups and self.now > self._anchors[name]:
                scheduled.update(tasks[number] for number in cycle.at(self.now - self._anchors[name]))
        return scheduled

    def _rides(self, task: Task, d: int, scan: Fraction) -> bool:
        """Return whether a task is worth executing when the scan that it needs is paid for.

        Its post costs pay for the part of a period that has passed; by itself that costs its scan in addition.
        """
        each = self._subgroup(task)
        return each.scan <= scan and each.post * each.period <= (each.scan + each.post) * (each.period - d)

    def _subgroup(self, task: Task) -> SubGroup:
        (each,) = self._members[task]
        return each

    def done(self, tasks: Collection[Task]) -> None:
        """Mark tasks as executed on the latest synopses: they are due a whole period later.

        This holds even if they were late (section 4.1). Raises ValueError for unknown tasks, or those executed since
        the last update already; nothing is changed then. Do not report tasks whose lifetime ended while they ran.
        """
        if unknown := [task for task in tasks if task not in self.d]:
            raise ValueError(f"no such tasks: {unknown}")
        if twice := [task for task in tasks if self._executed.get(task) == self.now]:
            raise ValueError(f"executed twice in update {self.now}: {twice}")
        for task in tasks:
            self.d[task] = self._periods[task]
            self._executed[task] = self.now
        for name in {task.group for task in tasks}:
            if all(self._executed.get(task) == self.now for task in self._tasks[name]):
                self._anchors[name] = self.now

    # ------------------------------------------------------------------------------------------ what is asked
    def period(self, task: Task) -> int:
        """The period that a task has in this mode, in updates."""
        return self._periods[task]

    def executed(self, tasks: Iterable[Task]) -> tuple[str, ...]:
        """The queries that some tasks execute."""
        return tuple(name for task in tasks for each in self._members[task] for name in each.queries)

    def cost(self, tasks: Collection[Task]) -> Fraction:
        """Cost of executing tasks of one group jointly: the longest scan, and the post costs that are not shared."""
        each = [subgroup for task in tasks for subgroup in self._members[task]]
        return max(subgroup.scan for subgroup in each) + sum(subgroup.post for subgroup in each)

    @property
    def late(self) -> Mapping[Task, int]:
        """The late set: d(T) < 0."""
        return {task: d for task, d in self.d.items() if d < 0}

    @property
    def pending(self) -> Mapping[Task, int]:
        """The pending set: d(T) = 0."""
        return {task: d for task, d in self.d.items() if d == 0}
