"""Clusters of events, cut where none lies for long."""

from __future__ import annotations

import numpy as np

from optimizer.workload.instants import FAR_APART
from spark_jobs.streams.sources.clusters import Cluster, grouped_clusters, of_times


def test_times_are_cut_where_two_are_further_than_far_apart() -> None:
    assert of_times(np.array([], dtype=np.int64)) == []
    assert of_times(np.array([FAR_APART, 0, 5])) == [Cluster(0, FAR_APART + 1, 3)]
    assert of_times(np.array([FAR_APART + 1, 0, 1])) == [Cluster(0, FAR_APART + 2, 3)]
    assert of_times(np.array([FAR_APART + 2, 0, 1])) == [Cluster(0, 2, 2), Cluster(FAR_APART + 2, FAR_APART + 3, 1)]


def test_clusters_that_are_not_far_apart_are_joined() -> None:
    first, near, far = (
        Cluster(0, 10, 2),
        Cluster(9 + FAR_APART, 20 + FAR_APART, 3),
        Cluster(10 + FAR_APART, FAR_APART * 2, 1),
    )
    assert grouped_clusters([near, first]) == (Cluster(0, 20 + FAR_APART, 5),)
    assert grouped_clusters([far, first]) == (first, far)
    assert grouped_clusters([far, first], most=2) == (first, far)
    assert grouped_clusters([far, first], most=1) == (Cluster(0, FAR_APART * 2, 3),)
