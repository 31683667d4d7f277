"""Schedules of queries with a refresh bound."""
