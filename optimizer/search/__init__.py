"""Searches for a plan: which queries share, and at what cost."""
