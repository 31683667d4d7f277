"""Kinds of windows: of time, of rows, of event sequences, of sessions.

A query has one kind (:attr:`optimizer.workload.values.ACQ.kind`), so has a tree and a synopsis. Code reads
properties of the kind and compares no kinds. Behaviour that differs is in tables by kind, each with an entry for
every kind below:

- :data:`optimizer.synopses.synopsis.SYNOPSES_BY_KIND`: the synopses that answer the queries of a tree;
- :data:`optimizer.synopses.derivation.DERIVED_BY_KIND`: derivations of another synopsis from stored rows;
- :data:`spark_jobs.windows.kinds.EXECUTIONS`: how a run lifts, derives and answers, and how answers are looked up;
- :data:`spark_jobs.audit.checks.kinds.AUDITS`, :data:`spark_jobs.audit.unshared.windows.UNSHARED` and
  :data:`spark_jobs.audit.unshared.duckdb_windows.RECOMPUTED`: how answers are judged, apart from the above.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WindowKind:
    """One kind of window.

    - ``name``: in the labels of audits; ``words``: what the windows are of, in messages;
    - ``counts_rows``: range and slide are numbers of rows, not microseconds. Rows are numbered before they are
      lifted, and an answer is identified by its ``position``, the number of its first row;
    - ``has_instants``: the ends of windows, and so their events, follow from the query only. Without that,
      a query has no lifetime, is due in every interval, and is not looked up on demand;
    - ``matches_patterns``: its queries have a pattern, and aggregate the sequences of events that match it;
    - ``reads_from_first``: every event from the first of the stream on decides an answer, not only those of the
      window;
    - ``reads_every_column``: all columns of the stream decide an answer, as they order events of equal times;
    - ``has_fragments``: a partial row is of the time between two edges of windows, so that a run can answer any
      piece of time from the rows of that piece. Else partial rows are of days, or of parts of them;
    - ``ends_with_pauses``: a window ends where the events of its key pause for the length of a gap;
    - ``begins_at_midnight``: a partial row has a complete day, also if the first window begins within it;
    - ``shares_synopses``: queries of different filters and group-bys share a synopsis if that is cheaper, and pay
      for their own synopsis only;
    - ``is_predicted``: the cost model predicts the cost of a run of it;
    - ``reads_expressions``: GROUP BY takes expressions, and columns may be in nested ones; ``ranks_groups``:
      ORDER BY … LIMIT keeps the first groups of a window, and GROUP BY takes several grouping sets.
    """

    name: str
    words: str
    counts_rows: bool = False
    has_instants: bool = True
    matches_patterns: bool = False
    reads_from_first: bool = False
    reads_every_column: bool = False
    has_fragments: bool = False
    begins_at_midnight: bool = False
    shares_synopses: bool = False
    is_predicted: bool = False
    reads_expressions: bool = False
    ranks_groups: bool = False
    ends_with_pauses: bool = False


TIME = WindowKind(
    "time",
    "a span of time",
    has_fragments=True,
    shares_synopses=True,
    is_predicted=True,
    reads_expressions=True,
    ranks_groups=True,
)

ROWS = WindowKind(
    "rows",
    "a number of rows",
    counts_rows=True,
    has_instants=False,
    reads_from_first=True,
    reads_every_column=True,
)

SEQUENCE = WindowKind("sequence", "event sequences", matches_patterns=True, begins_at_midnight=True)

SESSION = WindowKind("session", "sessions", has_instants=False, reads_expressions=True, ends_with_pauses=True)
