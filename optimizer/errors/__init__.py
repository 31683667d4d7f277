"""Errors with codes and positions, and how they are shown."""
