"""Coded, positioned errors, and how they are told."""
