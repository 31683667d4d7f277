"""Algorithms as their papers have them."""
