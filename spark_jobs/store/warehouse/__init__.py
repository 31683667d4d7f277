"""Heddle's Delta tables: one owner for each."""
