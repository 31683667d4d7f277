"""Events to partial aggregates."""
