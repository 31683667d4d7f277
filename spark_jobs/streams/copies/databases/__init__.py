"""Databases that Heddle reads itself: a connection for each kind, and what is read over it into a copy."""
