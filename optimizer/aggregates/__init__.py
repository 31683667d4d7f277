"""The algebra of aggregates."""
