"""What an earlier plan becomes for a changed workload.

References
----------
Guirguis et al., Weave Share, CIKM 2011: section 5. The paper's own method, with its deviation tolerance, is
:mod:`optimizer.papers.reference.incremental_weave_share`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.search.cost import Partition, SearchProblem
from optimizer.search.weave_share import merge_trees


def evolve(problem: SearchProblem, previous: Partition) -> Partition:
    """The plan that an earlier plan becomes for a changed workload.

    ``previous``: trees of items as they were, of those items that are still there (some may be missing: new). New
    items become trees, and trees merge as long as that saves; no tree is split.
    """
    placed = {item for tree in previous for item in tree}
    start = [sorted(tree) for tree in previous if tree] + [[i] for i in range(len(problem)) if i not in placed]
    return merge_trees(problem, start)


def homes(problem: SearchProblem, tree_of: Mapping[int, Any]) -> Partition:
    """Trees of items from trees of queries: ``tree_of`` some queries; an item is where most of its queries are."""
    items_by_tree: dict[Any, list[int]] = {}
    for item, members in enumerate(problem.members):
        votes: dict[Any, int] = {}
        for member in members.tolist():
            if member in tree_of:
                votes[tree_of[member]] = votes.get(tree_of[member], 0) + 1
        if votes:
            items_by_tree.setdefault(max(votes, key=lambda tree: votes[tree]), []).append(item)
    return sorted(items_by_tree.values())
