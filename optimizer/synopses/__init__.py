"""Synopses of a tree: stored partials, and what different filters and group-bys share."""
