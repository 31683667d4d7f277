"""Checks of staged answers."""
