"""Where windows start, and how many edges their unions have."""
