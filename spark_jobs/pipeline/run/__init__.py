"""A run, stage by stage."""
