"""Event sequences: matching, and what patterns share."""
