"""The evaluations of the five papers, run again: one experiment per figure.

Each experiment measures on the papers' generated workloads and reports the paper's claim next to the measurement, also
if they disagree. A claim that depends on the machine or the language (seconds, memory) is paired with one that does not
(operations by the papers' own formulas, costs of plans).

References
----------
Guirguis et al., Weave Share, CIKM 2011: Figures 4-11 and 14. Shein et al., F1, CIKM 2015: Figures 6-11, Table 2.
Arasu & Widom, "Resource sharing in continuous sliding-window aggregates", VLDB 2004: Figures 9-12.
Poppe et al., "Sharon: Shared Online Event Sequence Aggregation", technical report, 2018: Figures 13-16.
Golab et al., "Multi-query optimization of sliding window aggregates by schedule synchronization", 2006: Figures 5-8.
"""

from __future__ import annotations

from optimizer.papers.evaluations import arasu_widom, f1, golab, sharon, weave_share
from optimizer.papers.evaluations.outcome import SCALES, Chart, Experiment, Outcome, Report, table, write
from optimizer.papers.evaluations.window_workload import Windows, generate

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Chart",
    "Experiment",
    "Outcome",
    "Report",
    "Windows",
    "generate",
    "table",
    "write",
]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for paper in (f1, weave_share, arasu_widom, sharon, golab)
    for experiment in paper.EXPERIMENTS
}
"""Experiments by name: the paper and the figure, for example "f1-7" and "weave-share-14"."""
