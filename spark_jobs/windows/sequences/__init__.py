"""Event sequences on Spark."""
