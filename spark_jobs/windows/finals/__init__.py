"""Partial aggregates to answers."""
