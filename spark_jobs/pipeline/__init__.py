"""Plans a workload, predicts its cost and runs an interval stage by stage."""
