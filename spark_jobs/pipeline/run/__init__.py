"""One run, stage by stage."""
