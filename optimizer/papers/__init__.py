"""What was published, for reference, and its evaluations again. Production imports nothing of it."""
