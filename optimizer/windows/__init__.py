"""Starts of windows, and the number of edges of their unions."""
