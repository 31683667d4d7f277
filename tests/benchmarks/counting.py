"""SQL that counts event sequences as Heddle does, in the ways that engines have for it.

A sequence is one event of each type of a pattern, in this order and in strictly ascending time, with the same keys;
counted is every choice of events, in each window that holds all of one. Three ways, which answer the same:

``joined``
    What people write: the stream joined with itself, an event a type. A row for each sequence: work grows as their
    number. Joined are events of the same or of two neighbouring spans as long as a window, not of the whole day.
``stepped``
    Joins too, but after each the sequences so far that begin in one slide and end with one event are one row with
    their number. Work grows with the length, and with the square of the events of a key and window.
``paned``
    Without joins: in each fragment of windows and key, SQL window functions count every piece of the pattern; the
    fragments of a window are put together by window functions again. Work grows with the square of the length.

Numbers are 64 bits, which suffices up to 9·10¹⁸ sequences; Heddle's are 38 digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optimizer.workload.values import ACQ
from tests.benchmarks.query_sql import Fragments, groups_of

Repeat = Callable[[str, str, str, int], str]
"""SQL of the rows of a SELECT, each for every number from a first one (SQL) up to and without a last one (SQL), as k;
also how many these are at most."""

BEFORE = "BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"

WAYS = ("joined", "stepped", "paned")


@dataclass(frozen=True)
class Counting:
    """Counts the sequences of a query.

    ``interval``: answered are the windows that end in (begin, end] (microseconds); ``events``: what stands after FROM
    for the stream with the query's filter; ``moment``: SQL of an event's time in microseconds; ``divide``: the operator
    of integer division; ``repeat``: how an engine repeats rows. ValueError if the query asks for anything else.
    """

    query: ACQ
    interval: tuple[int, int]
    events: str
    moment: str
    divide: str
    repeat: Repeat

    def __post_init__(self) -> None:
        if self.query.pattern is None or [str(output.function) for output in self.query.outputs] != ["count"]:
            raise ValueError(f"{self.query.name} does not count sequences")

    def statement(self, way: str) -> str:
        """The SQL: ``window_start`` (microseconds), the group columns, the count."""
        return {"joined": self._joined, "stepped": self._stepped, "paned": self._paned}[way]()

    @property
    def pattern(self) -> tuple[str, ...]:
        """The types, as SQL literals."""
        assert self.query.pattern is not None
        return tuple("'" + event.replace("'", "''") + "'" for event in self.query.pattern.events)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns in which the events of a sequence agree."""
        assert self.query.pattern is not None
        return self.query.pattern.per

    @property
    def on(self) -> str:
        """The column of an event's type."""
        assert self.query.pattern is not None
        return self.query.pattern.on

    def rows(self, types: str, more: str = "") -> str:
        """SQL of the events that satisfy a condition: keys, type, time t in microseconds, and more columns."""
        columns = ", ".join([*self.keys, self.on, f"{self.moment} AS t"])
        return f"SELECT {columns}{more} FROM {self.events} {'AND' if self.query.filter else 'WHERE'} {types}"

    def first_window(self, moment: str) -> str:
        """SQL of the number of the first window that holds an instant."""
        return f"({moment} - {self.query.window.range}) {self.divide} {self.query.window.slide} + 1"

    def last_window(self, moment: str) -> str:
        """SQL of the number of the last window that holds an instant."""
        return f"{moment} {self.divide} {self.query.window.slide}"

    @property
    def _most(self) -> int:
        """In how many windows an instant is at most."""
        return -(-self.query.window.range // self.query.window.slide)

    def answers(self, numbered: str) -> str:
        """SQL of the answers, of rows with k, the groups and n."""
        end = f"k * {self.query.window.slide} + {self.query.window.range}"
        groups = groups_of(self.query)
        columns = ", ".join([f"k * {self.query.window.slide} AS window_start", *groups])
        return (
            f"SELECT {columns}, sum(n) AS {self.query.outputs[0].name} FROM ({numbered}) AS numbered "
            f"WHERE n > 0 AND {end} > {self.interval[0]} AND {end} <= {self.interval[1]} "
            f"GROUP BY {', '.join(['k', *groups])}"
        )

    def _of_windows(self, found: str) -> str:
        """The answers of rows with the first and the last window that hold them, the groups and n."""
        return self.answers(self.repeat(found, "first_window", "last_window + 1", self._most))

    # ------------------------------------------------------------------------------------------ joined
    def _joined(self) -> str:
        pattern, range_ = self.pattern, self.query.window.range
        keys, span = [*self.keys, "k"], f"t {self.divide} {range_}"
        columns = ", ".join([*self.keys, f"{span} AS k", "t AS begun", "t"])
        so_far = f"SELECT {columns} FROM ({self.rows(f'{self.on} = {pattern[0]}')}) AS e"
        for event in pattern[1:]:
            near = self.repeat(self.rows(f"{self.on} = {event}"), f"{span} - 1", f"{span} + 1", 2)
            same = [f"later.{name} = so_far.{name}" for name in keys]
            same += ["later.t > so_far.t", f"later.t < so_far.begun + {range_}"]
            columns = ", ".join([*(f"so_far.{name} AS {name}" for name in keys), "begun", "later.t AS t"])
            so_far = f"SELECT {columns} FROM ({so_far}) AS so_far JOIN ({near}) AS later ON {' AND '.join(same)}"
        groups = groups_of(self.query)
        windows = [f"{self.first_window('t')} AS first_window", f"{self.last_window('begun')} AS last_window"]
        by = ", ".join(["first_window", "last_window", *groups])
        each = f"SELECT {', '.join([*windows, *groups])} FROM ({so_far}) AS so_far"
        return self._of_windows(f"SELECT {by}, count(*) AS n FROM ({each}) AS found GROUP BY {by}")

    # ----------------------------------------------------------------------------------------- stepped
    def _stepped(self) -> str:
        pattern, keys = self.pattern, [*self.keys, "k"]
        first = self.rows(
            f"{self.on} = {pattern[0]}", f", {self.last_window(self.moment)} AS k, CAST(1 AS BIGINT) AS n"
        )
        so_far = f"SELECT {', '.join([*keys, 't', 'n'])} FROM ({first}) AS e"
        for event in pattern[1:]:
            # the sequence began in slide k, so the last window that may hold it is k
            after = self.repeat(
                self.rows(f"{self.on} = {event}"), self.first_window("t"), f"{self.last_window('t')} + 1", self._most
            )
            same = " AND ".join([*(f"later.{name} = so_far.{name}" for name in keys), "later.t > so_far.t"])
            columns = [f"later.{name} AS {name}" for name in [*keys, "t"]]
            joined = f"SELECT {', '.join(columns)}, n FROM ({so_far}) AS so_far JOIN ({after}) AS later ON {same}"
            grouped = ", ".join([*keys, "t"])
            so_far = f"SELECT {grouped}, CAST(sum(n) AS BIGINT) AS n FROM ({joined}) AS joined GROUP BY {grouped}"
        groups = groups_of(self.query)
        windows = ", ".join([f"{self.first_window('t')} AS first_window", "k AS last_window", *groups, "n"])
        sequences = f"SELECT {windows} FROM ({so_far}) AS so_far"
        by = ", ".join(["first_window", "last_window", *groups])
        return self._of_windows(f"SELECT {by}, sum(n) AS n FROM ({sequences}) AS found GROUP BY {by}")

    # ------------------------------------------------------------------------------------------- paned
    def _paned(self) -> str:
        cuts, length, keys = Fragments.of(self.query.window), len(self.pattern), ", ".join(self.keys)
        pieces = [(begin, end) for end in range(1, length + 1) for begin in range(1, end + 1)]
        types = f"{self.on} IN ({', '.join(sorted(set(self.pattern)))})"
        relation = f"SELECT *, {cuts.number('t', self.divide)} AS fragment FROM ({self.rows(types)}) AS e"
        for end, event in enumerate(self.pattern, 1):
            # c1_3 of an event: in how many ways the second to third type of the pattern end with it, in its fragment
            counts = [f"CAST(CASE WHEN {self.on} = {event} THEN 1 ELSE 0 END AS BIGINT) AS c{end}_{end}"]
            for begin in range(1, end):
                before = _total(f"sum(c{begin}_{end - 1}) OVER earlier")
                counts.append(
                    f"CASE WHEN {self.on} = {event} THEN {before} ELSE CAST(0 AS BIGINT) END AS c{begin}_{end}"
                )
            window = f" WINDOW earlier AS (PARTITION BY fragment, {keys} ORDER BY t RANGE {BEFORE})" if end > 1 else ""
            relation = f"SELECT *, {', '.join(counts)} FROM ({relation}) AS e{window}"
        sums = ", ".join(f"CAST(sum(c{begin}_{end}) AS BIGINT) AS s{begin}_{end}" for begin, end in pieces)
        relation = f"SELECT fragment, {keys}, {sums} FROM ({relation}) AS e GROUP BY fragment, {keys}"
        first = f"(fragment - {cuts.a_window - cuts.a_slide}) {self.divide} {cuts.a_slide}"
        most = -(-cuts.a_window // cuts.a_slide)
        relation = self.repeat(relation, first, f"fragment {self.divide} {cuts.a_slide} + 1", most)
        relation = f"SELECT *, s1_1 AS g1 FROM ({relation}) AS e"
        for end in range(2, length + 1):
            # v: sequences of the first types in the window's fragments before; g: those that end in this fragment
            window = f"WINDOW earlier AS (PARTITION BY k, {keys} ORDER BY fragment ROWS {BEFORE})"
            known = f"SELECT *, {_total(f'sum(g{end - 1}) OVER earlier')} AS v{end - 1} FROM ({relation}) AS e {window}"
            ways = [f"s1_{end}", *(f"v{begin - 1} * s{begin}_{end}" for begin in range(2, end + 1))]
            relation = f"SELECT *, {' + '.join(ways)} AS g{end} FROM ({known}) AS e"
        return self.answers(
            f"SELECT k, {', '.join([*groups_of(self.query), f'g{length} AS n'])} FROM ({relation}) AS e"
        )


def _total(sum: str) -> str:
    """SQL of a sum of no rows, too."""
    return f"CAST(coalesce({sum}, 0) AS BIGINT)"
