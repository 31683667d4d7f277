"""When queries with a refresh bound run."""
